"""Expected tool calls, and whether a call fits one."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from rm_gallery.core.text.blocks import read_json
from rm_gallery.gallery.rm.agent.tool_calls import ToolCall, as_call

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
