"""The tool calls an answer makes, from its structured field or from its text."""

from __future__ import annotations

import ast
import re
from typing import Any, NamedTuple

from rm_gallery.core.data.schema import DataOutput, Step
from rm_gallery.core.text.blocks import parse_python, read_json, split_fences, tagged
from rm_gallery.core.text.reasoning import split_reasoning

_PYTHON_CALLS = re.compile(r"\[?\s*[A-Za-z_][\w.]*\s*\(")
_MAX_PYTHON = 20_000


class ToolCall(NamedTuple):
    """One call: the tool's name and its arguments."""

    name: str
    arguments: dict[str, Any]


class ToolCalls(NamedTuple):
    """The calls found, in order, and what was meant as a call but could not be read."""

    calls: list[ToolCall]
    problems: list[str]


def tool_calls_of(output: DataOutput, trajectory: bool = False) -> ToolCalls:
    """The calls of an output's answer; with `trajectory` those of its steps come first."""
    messages = [*(output.steps or ()), output.answer] if trajectory else [output.answer]
    found = ToolCalls([], [])
    for message in messages:
        calls, problems = calls_of_message(message)
        found.calls.extend(calls)
        found.problems.extend(problems)
    return found


def calls_of_message(message: Step) -> ToolCalls:
    """The calls of one message: its `tool_calls`, else those in its text."""
    if message.tool_calls:
        return _sorted([as_call(call.function.model_dump()) for call in message.tool_calls])
    return calls_in_text(message.text)


def calls_in_text(text: str) -> ToolCalls:
    """Calls written as `<tool_call>{…}</tool_call>`, as JSON (fenced or bare), or as Python calls `[f(a=1), g()]`.

    Only what follows a thought counts. Text that looks like none of these holds no calls.
    """
    text = split_reasoning(text).final.strip().removeprefix("[TOOL_CALLS]").strip()
    in_tags, _ = tagged(text, "tool_call")
    if in_tags:
        return _sorted([read_call(body) for body in in_tags])
    bodies = [block.body for block in split_fences(text)[0] if block.language in ("json", "tool_call", "")]
    for body in bodies or [text]:
        found = _calls_in_json(body.strip())
        if found is not None:
            return found
    return _python_calls(text) if _PYTHON_CALLS.match(text) and len(text) <= _MAX_PYTHON else ToolCalls([], [])


def read_call(text: str) -> ToolCall | str:
    """The call a JSON text describes, or what is wrong with it."""
    try:
        return as_call(read_json(text))
    except ValueError as error:
        return f"A tool call is no JSON: {error}"


def as_call(value: Any) -> ToolCall | str:
    """A call from `{"name", "arguments"}`, also inside `"function"`; arguments may be JSON text. Else what is wrong."""
    if isinstance(value, dict) and isinstance(value.get("function"), dict):
        value = value["function"]
    if not isinstance(value, dict):
        return f"A tool call is an object; found {type(value).__name__}."
    name, arguments = value.get("name"), value.get("arguments", value.get("parameters"))
    if not isinstance(name, str) or not name:
        return "A tool call has no name."
    if isinstance(arguments, str) and arguments.strip():
        try:
            arguments = read_json(arguments)
        except ValueError as error:
            return f"The arguments of {name[:60]} are no JSON: {error}"
    if arguments in (None, ""):
        arguments = {}
    if not isinstance(arguments, dict):
        return f"The arguments of {name[:60]} are no object but {type(arguments).__name__}."
    return ToolCall(name, arguments)


def _sorted(found: list[ToolCall | str]) -> ToolCalls:
    return ToolCalls([f for f in found if isinstance(f, ToolCall)], [f for f in found if isinstance(f, str)])


def _calls_in_json(text: str) -> ToolCalls | None:
    """Calls in a JSON text, None when it is no JSON or its objects are not meant as calls."""
    if text[:1] not in ("{", "["):
        return None
    try:
        value = read_json(text)
    except ValueError:
        return None
    if isinstance(value, dict) and isinstance(value.get("tool_calls"), list):
        value = value["tool_calls"]
    values = value if isinstance(value, list) else [value]
    if not all(isinstance(v, dict) and ("name" in v or "function" in v) for v in values):
        return None
    return _sorted([as_call(v) for v in values])


def _python_calls(text: str) -> ToolCalls:
    tree = parse_python(text, "eval")
    if not isinstance(tree, ast.Expression):
        return ToolCalls([], [])
    body = tree.body
    nodes = body.elts if isinstance(body, ast.List | ast.Tuple) else [body]
    return _sorted([_python_call(node) for node in nodes])


def _python_call(node: ast.expr) -> ToolCall | str:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name | ast.Attribute):
        return "A tool call is written name(argument=value)."
    name = ast.unparse(node.func)
    if node.args or any(keyword.arg is None for keyword in node.keywords):
        return f"The arguments of {name[:60]} have no names."
    try:
        return ToolCall(name, {str(k.arg): ast.literal_eval(k.value) for k in node.keywords})
    except (ValueError, TypeError, RecursionError, MemoryError):
        return f"An argument of {name[:60]} is no literal value."
