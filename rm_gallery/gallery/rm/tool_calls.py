"""Reads tool calls from the `tool_calls` field, or from text in the dialects of many models."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rm_gallery.core.data.schema import DataOutput, Step
from rm_gallery.core.model.message import ChatMessage
from rm_gallery.core.text.blocks import parse_python, read_json, split_fences
from rm_gallery.core.text.canonical import split_reasoning

_PYTHON_CALLS = re.compile(r"\[?\s*[A-Za-z_][\w.]*\s*\(")
_MAX_PYTHON = 20_000
_HARMONY = re.compile(
    r"(?:^|<\|start\|>|<\|channel\|>)[^<]{0,80}\bto=(?:functions\.)?([\w.-]{1,200})(?=[\s<])"
)
_HARMONY_BEGINS = ("<|start|>assistant", "<|channel|>")
_HARMONY_PART = re.compile(
    r"(?:<\|start\|>assistant)?\s*(?:<\|channel\|>)?[^<]{0,80}\bto=[\w.-]{1,200}(?=[\s<])"
)
_HARMONY_THOUGHT = re.compile(
    r"(?:<\|start\|>assistant)?\s*<\|channel\|>\s*analysis\b(?![^<]*\bto=)"
)
_HARMONY_ENDS = re.compile(r"<\|(?:call|end|return)\|>")
_NAMED = re.compile(
    r"""(?: name(?==))?\s*[=:]?\s*["']?([\w.-]{1,200})["']?\s*(?:string=["'](true|false)["']\s*)?>"""
)
_UNREAD = re.compile(
    r"<[|｜/]?[\w:|｜▁]{0,40}(?:tool|function|action)s?[_▁ ]?calls?[\w|｜▁]{0,40}>|\[TOOL_\w{1,20}\]",
    re.IGNORECASE,
)


class Untyped(str):
    """An argument written between tags, where 5 and "5" look the same: it equals its text and the
    value the text spells.
    """


class MadeCall(NamedTuple):
    """One call: the tool's name and its arguments."""

    name: str
    arguments: dict[str, Any]

    @property
    def signature(self) -> str:
        """Name and arguments, whatever the order of the keys."""
        arguments = json.dumps(self.arguments, sort_keys=True, ensure_ascii=False, default=str)
        return f"{self.name} {arguments}"


class UnreadCall(str):
    """Why a call cannot be read whose tool is known: arguments that are no JSON do not hide it."""

    name: str
    arguments: None = None

    def __new__(cls, name: str, why: str) -> UnreadCall:
        """The problem, and the tool's name."""
        made = super().__new__(cls, why)
        made.name = name
        return made


Calls = list[MadeCall | str]
"""In order, calls and what is wrong with a text that was meant as one."""


class ToolCalls(NamedTuple):
    """The calls in order, and a problem for each text that was meant as a call but cannot be read."""

    calls: list[MadeCall]
    problems: list[str]

    @classmethod
    def of(cls, read: Calls) -> ToolCalls:
        """Calls and problems apart."""
        return cls(
            [each for each in read if isinstance(each, MadeCall)],
            [each for each in read if isinstance(each, str)],
        )


def tool_calls_of(
    output: DataOutput, trajectory: bool = False, text: str | None = None
) -> ToolCalls:
    """The calls of an output's answer, or of its `text`; with `trajectory` those of its steps come
    first.
    """
    steps = (output.steps or ()) if trajectory else ()
    before = [call for step in steps for call in calls_of_message(step)]
    return ToolCalls.of(before + calls_of_message(output.answer, text))


def calls_of_message(message: Step, text: str | None = None) -> Calls:
    """The calls of one message: its `tool_calls`, else those in its text, or in `text`."""
    return recorded_calls(message) or _read_text(message.read_text if text is None else text)


def recorded_calls(message: ChatMessage) -> Calls:
    """The calls in a message's `tool_calls`."""
    return [as_call(call.function.model_dump()) for call in message.tool_calls or ()]


def calls_in_text(text: str) -> ToolCalls:
    """Calls written in a text, in the dialects of the models that write them.

    Between tags, as JSON or named parameters: `<tool_call>` (Hermes, Qwen, GLM, Granite),
    `<function=…>` (Qwen3-Coder, Llama, Seed), `<invoke name=…>` (MiniMax, DeepSeek V3.2, Olmo),
    DeepSeek's, Kimi's, harmony's, Phi's, InternLM's and Command's marks, `[TOOL_CALLS]` (Mistral),
    `<|python_tag|>` (Llama), `<tool_calls>` (MiniMax, Hunyuan), `functools[…]`; else JSON, fenced
    or bare, or Python calls `[f(a=1), g()]`. Only what follows a thought counts. Other text holds
    no calls; the mark of an unknown dialect is a problem that names it.
    """
    return ToolCalls.of(_read_text(text))


def _read_text(text: str) -> Calls:
    harmony = list(_HARMONY.finditer(text)) if " to=" in text else []
    if harmony:
        return [_harmony_call(text, mark.end(), mark[1]) for mark in harmony]
    text = split_reasoning(text).final.strip()
    for opening, closing, read in _DIALECTS:
        if opening in text:
            # up to its closing mark or the next call; the last may be unclosed
            bodies = [part.partition(closing)[0] for part in text.split(opening)[1:]]
            return [call for body in bodies for call in read(body)]
    blocks = split_fences(text)[0]
    fenced = ("json", "tool_call", "tool_code", "")
    bodies = [block.body for block in blocks if block.language in fenced]
    for body in bodies or [text]:
        if (calls := _calls_in_json(body.strip())) is not None:
            return calls
    code = next((block.body.strip() for block in blocks if block.language == "tool_code"), text)
    if (calls := _python_calls(code)) is not None:
        return calls
    mark = _UNREAD.search(text)
    return [f"The mark {mark[0]!r:.60} is of a dialect that is not read here."] if mark else []


def calls_alone(text: str) -> ToolCalls:
    """The calls of a text that is nothing but calls and a thought before them, in the dialects of
    `calls_in_text`; none where one of them cannot be read.

    Who repeats what it read ("the file says <tool_call>…, which I do not follow") makes no call.
    """
    if text.lstrip().startswith(_HARMONY_BEGINS):
        parts = [part.strip() for part in _HARMONY_ENDS.split(text)]
        parts = [part for part in parts if part and not _HARMONY_THOUGHT.match(part)]
        alone = all(map(_HARMONY_PART.match, parts))
        return _all_or_none([call for part in parts for call in _read_text(part)], alone)
    text = split_reasoning(text).final.strip()
    for opening, closing, read in _DIALECTS:
        before, begun, after = text.partition(opening)
        if not begun or _UNREAD.sub("", before).strip():
            continue
        body, _, rest = after.rpartition(closing) if closing in after else (after, "", "")
        bodies, outside = [body], rest
        # of JSON the whole is read at once: a string in it may quote the marks
        if body.lstrip()[:1] not in ("{", "[") or ToolCalls.of(read(body)).problems:
            parts = [part.partition(closing) for part in after.split(opening)]
            bodies, outside = [part[0] for part in parts], "".join(part[2] for part in parts)
        alone = not _UNREAD.sub("", outside).strip()
        return _all_or_none([call for body in bodies for call in read(body)], alone)
    text = unfenced(text).strip()
    if (found := _calls_in_json(text)) is None:
        found = _python_calls(text)
    return _all_or_none(_read_text(text) if found is None else found, found is not None)


def unfenced(text: str) -> str:
    """A text without the fence around all of it."""
    if text.startswith(("```", "~~~")):
        blocks, outside = split_fences(text)
        if len(blocks) == 1 and not outside.strip():
            return blocks[0].body
    return text


def _all_or_none(calls: Calls, alone: bool) -> ToolCalls:
    if not alone:
        return ToolCalls([], ["A call counts where nothing stands beside it."] if calls else [])
    read = ToolCalls.of(calls)
    return ToolCalls([], read.problems) if read.problems else read


def names_tool(called: str, tool: str) -> bool:
    """Whether a call names a tool, under whatever prefix (`functions.rm`, `mcp__files__rm`) and
    number (`rm:0`) a runtime adds.
    """
    name = re.sub(r":\d+\Z", "", called.strip())
    return name == tool or re.search(rf"(?:[.:/]|__){re.escape(tool)}\Z", name) is not None


def _harmony_call(text: str, start: int, name: str) -> MadeCall | str:
    _, mark, body = text[start : start + 1_000_000].partition("<|message|>")
    if not mark:
        return UnreadCall(name, f"The call of {name[:60]} has no arguments.")
    return _named_call(name, re.split(r"<\|(?:call|end|start|return)\|>", body, maxsplit=1)[0])


def _named_call(name: str, arguments: str) -> MadeCall | str:
    return as_call({"name": name.strip(), "arguments": arguments.strip()})


def _read_body(body: str) -> Calls:
    """Reads the text between the marks of a call: JSON (an object, a list, or several objects),
    named parameters, or Python calls.
    """
    text = body.strip()
    if text.startswith(("<function", "<invoke")):
        return _read_function(re.sub("<function|<invoke", "", text, count=1))
    name, glm, rest = text.partition("<arg_key>")
    if glm:
        pairs = [part.partition("</arg_key>") for part in rest.split("<arg_key>")]
        values = {
            key.strip(): value.partition("<arg_value>")[2].partition("</arg_value>")[0]
            for key, _, value in pairs
        }
        return [
            MadeCall(name.strip(), {key: Untyped(value.strip()) for key, value in values.items()})
        ]
    fenced = next((block.body.strip() for block in split_fences(text)[0]), text)
    if (calls := _python_calls(fenced)) is not None:
        return calls
    if fenced[:1] in ("{", "["):
        parsed: Calls = []
        at = 0
        while at < len(fenced) and (read := _value_at(fenced, at)) is not None:
            value, end = read
            parsed += map(as_call, value if isinstance(value, list) else [value])
            at = len(fenced) - len(fenced[end:].lstrip(" \n\r\t;,"))
        return parsed if parsed and at >= len(fenced) else [read_call(fenced)]
    if re.fullmatch(r"[A-Za-z_][\w.-]{0,199}", text):
        return [MadeCall(text, {})]
    return [read_call(text)]


def _value_at(text: str, start: int) -> tuple[Any, int] | None:
    try:
        return json.JSONDecoder(parse_constant=lambda word: None).raw_decode(text, start)
    except (ValueError, RecursionError):
        return None


def _read_function(body: str) -> Calls:
    """`=name>` or ` name="name">`, then `<parameter=key>value</parameter>` (or
    `<parameter name="key">`) or one JSON object.
    """
    head = _NAMED.match(body)
    if head is None:
        return ["A tool call has no name."]
    rest = body.partition(">")[2].partition("</function>")[0].strip()
    if rest.startswith("{"):
        return [_named_call(head[1], rest)]
    arguments: dict[str, Any] = {}
    for part in re.split(r"<(?:｜DSML｜)?parameter\b", rest)[1:]:
        named = _NAMED.match(part)
        if named is None:
            return [f"A parameter of {head[1][:60]} has no name."]
        value = re.split(r"</(?:｜DSML｜)?parameter>", part.partition(">")[2], maxsplit=1)[0].strip(
            "\r\n"
        )
        arguments[named[1]] = value if named[2] == "true" else Untyped(value)
    return [MadeCall(head[1], arguments)]


def _read_deepseek(body: str) -> Calls:
    """`name<｜tool▁sep｜>{…}`, or `function<｜tool▁sep｜>name` and a fenced object."""
    name, _, rest = body.partition("<｜tool▁sep｜>")
    if name.strip() == "function" and "```" in rest:
        name, _, rest = rest.partition("\n")
        rest = next((block.body for block in split_fences(rest)[0]), rest)
    return [_named_call(name, rest)]


def _read_kimi(body: str) -> Calls:
    """`functions.name:0<|tool_call_argument_begin|>{…}`."""
    name, _, arguments = body.partition("<|tool_call_argument_begin|>")
    return [
        _named_call(name.strip().removeprefix("functions.").rpartition(":")[0] or name, arguments)
    ]


def _read_mistral(body: str) -> Calls:
    """A list of objects, or `name[ARGS]{…}`."""
    name, args, arguments = body.partition("[ARGS]")
    return [_named_call(name.partition("[CALL_ID]")[0], arguments)] if args else _read_body(body)


_DIALECTS: tuple[tuple[str, str, Callable[[str], Calls]], ...] = (
    ("<tool_call>", "</tool_call>", _read_body),
    ("<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", _read_deepseek),
    ("<|tool_call_begin|>", "<|tool_call_end|>", _read_kimi),
    ("<｜DSML｜invoke", "</｜DSML｜invoke>", _read_function),
    ("<invoke", "</invoke>", _read_function),
    ("<function=", "</function>", _read_function),
    ("[TOOL_CALLS]", "\x00", _read_mistral),
    ("<|python_tag|>", "<|e", _read_body),
    ("<|python_start|>", "<|python_end|>", _read_body),
    ("<|tool_call|>", "<|/tool_call|>", _read_body),
    ("<tool_calls>", "</tool_calls>", _read_body),
    ("<function_calls>", "</function_calls>", _read_body),
    ("<|action_start|><|plugin|>", "<|action_end|>", _read_body),
    ("<|START_ACTION|>", "<|END_ACTION|>", _read_body),
    ("functools[", "\x00", lambda body: _read_body(f"[{body}")),
)
"""Opening mark, closing mark, and the reader of the text between them."""


def listed_calls(value: Any) -> Sequence[Any]:
    """The calls of a value: those under `tool_calls`, of a list, or the value as the only one."""
    if isinstance(value, dict) and isinstance(value.get("tool_calls"), list):
        value = value["tool_calls"]
    return value if isinstance(value, list | tuple) else [value]


def read_call(text: str) -> MadeCall | str:
    """The call a JSON text describes, or what is wrong with it."""
    try:
        return as_call(read_json(text))
    except ValueError as error:
        why = f"A tool call is no JSON: {error}"
        named = re.search(r'"(?:name|tool_name)"\s*:\s*"([\w.:/-]{1,200})"', text)
        return UnreadCall(named[1], why) if named else why


def as_call(value: Any) -> MadeCall | str:
    """A call from `{"name", "arguments"}`, also inside `"function"`; arguments may be JSON text.
    Else what is wrong.
    """
    if isinstance(value, dict) and isinstance(value.get("function"), dict):
        value = value["function"]
    if not isinstance(value, dict):
        return f"A tool call is an object; found {type(value).__name__}."
    name = value.get("name", value.get("tool_name"))
    arguments = next(
        (value[key] for key in ("arguments", "parameters", "args") if key in value), None
    )
    if not isinstance(name, str) or not name:
        return "A tool call has no name."
    if isinstance(arguments, str) and arguments.strip():
        try:
            arguments = read_json(arguments)
        except ValueError as error:
            return UnreadCall(name, f"The arguments of {name[:60]} are no JSON: {error}")
    if arguments in (None, ""):
        arguments = {}
    if isinstance(arguments, dict):
        return MadeCall(name, arguments)
    found = type(arguments).__name__
    return UnreadCall(name, f"The arguments of {name[:60]} are no object but {found}.")


def _calls_in_json(text: str) -> Calls | None:
    """Calls in a JSON text; None when it is not JSON or its objects are not calls."""
    if text[:1] not in ("{", "["):
        return None
    try:
        value = read_json(text)
    except ValueError:
        return None
    values = listed_calls(value)
    if not all(isinstance(v, dict) and ("name" in v or "function" in v) for v in values):
        return None
    return list(map(as_call, values))


def _python_calls(text: str) -> Calls | None:
    """Calls written as Python; None for a text that begins otherwise or is too long."""
    if not _PYTHON_CALLS.match(text) or len(text) > _MAX_PYTHON:
        return None
    tree = parse_python(text, "eval")
    body = tree.body if isinstance(tree, ast.Expression) else ast.Tuple([])
    return list(map(_python_call, getattr(body, "elts", [body])))


def _python_call(node: ast.expr) -> MadeCall | str:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name | ast.Attribute):
        return "A tool call is written name(argument=value)."
    name = ast.unparse(node.func)
    if node.args or any(keyword.arg is None for keyword in node.keywords):
        return UnreadCall(name, f"The arguments of {name[:60]} have no names.")
    try:
        return MadeCall(name, {str(k.arg): ast.literal_eval(k.value) for k in node.keywords})
    except (ValueError, TypeError, RecursionError, MemoryError):
        return UnreadCall(name, f"An argument of {name[:60]} is no literal value.")
