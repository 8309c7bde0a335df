"""The tool calls an answer makes, and whether they are those that were wanted."""

from __future__ import annotations

import ast
import math
import re
from typing import Any, ClassVar, NamedTuple

from rm_gallery.core.data.schema import DataOutput, DataSample, Step
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.schema import Example, RewardResult, sample_of
from rm_gallery.core.text.blocks import parse_python, read_json, split_fences, split_reasoning, tagged
from rm_gallery.core.utils.errors import Unscored
from rm_gallery.gallery.rm.rule import RuleReward, known, one_score, shown

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


@RewardRegistry.register("tool_call_match")
class ToolCallMatchReward(RuleReward):
    """1 when the answer makes exactly the expected tool calls, else 0; with `partial` F1 of the calls that fit.

    A call fits when name and arguments do: no argument missing or added. Expected calls come from answer.label or
    metadata, key `tool_calls`, `expected_tool_calls` or `reference`: OpenAI's layout, `{"name", "arguments"}`, or
    BFCL's possible answers `{"name": {"argument": [value, value, ""]}}`, where "" makes an argument optional. An empty
    list says that no call is right. With tool definitions in metadata `tools`, an argument may be left out or given
    where it has its default.

    With `tolerant`, numbers are compared by value (5 equals 5.0, where BFCL takes 5 for 5.0 and not the reverse), and
    strings as BFCL does, without case, spaces and ,./-_*^ signs; true is never 1 and "5" is never 5. Calls may come in any order unless `ordered`. The answer's calls are its
    `tool_calls` field, else `<tool_call>` tags, JSON or Python calls in its text; `trajectory` adds those of the steps.

    Range [0, 1], higher is better; unscored without expected calls. Source: the AST evaluation of the Berkeley Function
    Calling Leaderboard (Patil et al. 2025, https://gorilla.cs.berkeley.edu/leaderboard.html).
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reference"})

    name: str = "tool_call_match"
    ordered: bool = False
    partial: bool = False
    tolerant: bool = True
    trajectory: bool = False

    example = Example(
        sample_of(
            "What is the weather in Oslo?",
            '<tool_call>{"name": "weather", "arguments": {"city": "Oslo"}}</tool_call>',
            '<tool_call>{"name": "weather", "arguments": {"city": "Rome"}}</tool_call>',
            tool_calls=[{"name": "weather", "arguments": {"city": "Oslo"}}],
        ),
        inputs={
            "answer": "the tool calls of each `output[i].answer`, with `trajectory` also those of `output[i].steps`",
            "reference": "`tool_calls`, `expected_tool_calls` or `reference` in `answer.label` or `metadata`",
        },
    )

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        """Pair the calls made with those expected."""
        wanted = self._wanted(sample)
        given, problems = tool_calls_of(sample.output[0], self.trajectory)
        defaults = tool_defaults((sample.metadata or {}).get("tools"))
        table = [[fits(call, want, self.tolerant, defaults.get(want.name, {})) for want in wanted] for call in given]
        pairs = in_order(table) if self.ordered else in_any_order(table)
        made = len(given) + len(problems)
        total = made + len(wanted)
        f1 = 2 * pairs / total if total else 1.0
        reason = f"{pairs} of {len(wanted)} expected calls made; {made} calls in all."
        if problems:
            reason += f" Unreadable: {problems[0][:120]}"
        score = f1 if self.partial else float(pairs == len(wanted) == made)
        return one_score(self.name, score, reason, {"matched": pairs, "expected": len(wanted), "made": made})

    def _wanted(self, sample: DataSample) -> list[Wanted]:
        value = known(sample, "tool_calls", "expected_tool_calls", "reference", "ground_truth")
        if value is None:
            raise Unscored(
                f"{self.name} needs the expected calls: set answer.label['tool_calls'] or metadata['tool_calls'].",
                reason="no_reference",
            )
        wanted = read_wanted(value)
        if isinstance(wanted, str):
            raise Unscored(f"{self.name} cannot read the expected calls {shown(value)}: {wanted}", reason="no_reference")
        return wanted


def in_order(table: list[list[bool]]) -> int:
    """Length of the longest common subsequence."""
    best = [0] * (len(table[0]) + 1 if table else 1)
    for row in table:
        before = best[:]
        for column, fit in enumerate(row):
            best[column + 1] = before[column] + 1 if fit else max(before[column + 1], best[column])
    return best[-1]


def in_any_order(table: list[list[bool]]) -> int:
    """Size of a maximum matching: possible answers may overlap, so the first fit is not always the right one."""
    taken: dict[int, int] = {}
    return sum(_assign(row, table, taken, set()) for row in range(len(table)))


def _assign(row: int, table: list[list[bool]], taken: dict[int, int], seen: set[int]) -> bool:
    for column, fit in enumerate(table[row]):
        if fit and column not in seen:
            seen.add(column)
            if column not in taken or _assign(taken[column], table, taken, seen):
                taken[column] = row
                return True
    return False


_IGNORED = str.maketrans("'", '"', " ,./-_*^")


class Wanted(NamedTuple):
    """An expected call: per argument the values that are right, and the arguments that may be left out."""

    name: str
    arguments: dict[str, list[Any]]
    optional: frozenset[str] = frozenset()


def read_wanted(value: Any) -> list[Wanted] | str:
    """The expected calls in any of the layouts `ToolCallMatchReward` names, or what is wrong with them."""
    if isinstance(value, str):
        try:
            value = read_json(value)
        except ValueError as error:
            return f"no JSON ({error})."
    if isinstance(value, dict) and isinstance(value.get("tool_calls"), list):
        value = value["tool_calls"]
    wanted = []
    for entry in value if isinstance(value, list | tuple) else [value]:
        found = _possible_answers(entry)
        if found is None:
            call = as_call(entry)
            if isinstance(call, str):
                return call
            found = Wanted(call.name, {key: [argument] for key, argument in call.arguments.items()})
        wanted.append(found)
    return wanted


def _possible_answers(entry: Any) -> Wanted | None:
    """A call in BFCL's layout, None when it is in another one."""
    if not isinstance(entry, dict) or len(entry) != 1:
        return None
    name, arguments = next(iter(entry.items()))
    if name in ("name", "arguments", "parameters", "function"):
        return None
    if not isinstance(arguments, dict) or not all(isinstance(values, list) for values in arguments.values()):
        return None
    optional = frozenset(key for key, values in arguments.items() if "" in values)
    return Wanted(name, arguments, optional)


def tool_defaults(tools: Any) -> dict[str, dict[str, Any]]:
    """Per tool the arguments with a default in its definition (OpenAI's layout); anything else is passed over."""
    found: dict[str, dict[str, Any]] = {}
    for tool in tools if isinstance(tools, list | tuple) else ():
        function = tool.get("function", tool) if isinstance(tool, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            continue
        parameters = function.get("parameters")
        properties = parameters.get("properties") if isinstance(parameters, dict) else None
        if isinstance(properties, dict):
            defaults = {k: v["default"] for k, v in properties.items() if isinstance(v, dict) and "default" in v}
            found[function["name"]] = defaults
    return found


def fits(call: ToolCall, wanted: Wanted, tolerant: bool, defaults: dict[str, Any]) -> bool:
    """Whether a call has the wanted name and arguments."""
    if call.name != wanted.name:
        return False
    for key, value in call.arguments.items():
        options = wanted.arguments.get(key)
        if options is None:
            if key not in defaults or not same(value, defaults[key], tolerant):
                return False
        elif not any(same(value, option, tolerant) for option in options):
            return False
    for key in wanted.arguments.keys() - call.arguments.keys() - wanted.optional:
        if key not in defaults or not any(same(defaults[key], option, tolerant) for option in wanted.arguments[key]):
            return False
    return True


def same(given: Any, wanted: Any, tolerant: bool) -> bool:
    """Whether two argument values are equal; `tolerant` as in `ToolCallMatchReward`."""
    if isinstance(given, bool) or isinstance(wanted, bool):
        return given is wanted
    if isinstance(given, int | float) and isinstance(wanted, int | float):
        return _close(given, wanted) if tolerant else type(given) is type(wanted) and given == wanted
    if isinstance(given, str) and isinstance(wanted, str):
        return given == wanted or (tolerant and _plain(given) == _plain(wanted))
    if isinstance(given, list | tuple) and isinstance(wanted, list | tuple):
        return len(given) == len(wanted) and all(same(a, b, tolerant) for a, b in zip(given, wanted, strict=True))
    if isinstance(given, dict) and isinstance(wanted, dict):
        return _same_objects(given, wanted, tolerant)
    return bool(given == wanted)


def _same_objects(given: dict[str, Any], wanted: dict[str, Any], tolerant: bool) -> bool:
    if given.keys() == wanted.keys() and all(same(given[key], wanted[key], tolerant) for key in wanted):
        return True
    # BFCL lists the possible values of nested keys as well
    if not all(isinstance(options, list) for options in wanted.values()) or not given.keys() <= wanted.keys():
        return False
    missing = wanted.keys() - given.keys()
    return all("" in wanted[key] for key in missing) and all(
        any(same(value, option, tolerant) for option in wanted[key]) for key, value in given.items()
    )


def _close(given: float, wanted: float) -> bool:
    if given == wanted:
        return True
    try:
        return math.isclose(given, wanted, rel_tol=1e-9)
    except OverflowError:  # an integer beyond the range of floats
        return False


def _plain(text: str) -> str:
    return text.translate(_IGNORED).lower()
