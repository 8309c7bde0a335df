"""Recorded rollouts of agents as samples, with the rewards that were recorded beside them.

Known layouts: traces of verifiers (v1, and the results of earlier versions), rollouts of NeMo-Gym,
trajectories in ATIF (Harbor), Inspect logs with tool calls, and dumps of OpenAI's and Anthropic's
messages. Every layout becomes one conversation of OpenAI's turns; a turn keeps its text byte for
byte.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rm_gallery.core.data.conversation import sample_of_completion, split_rollout
from rm_gallery.core.data.load.converters import (
    DataConverter,
    DataConverterRegistry,
    RowRef,
    json_cell,
    shown,
)
from rm_gallery.core.data.load.json_files import converted
from rm_gallery.core.data.load.padding import fields_in
from rm_gallery.core.data.schema import DataSample, is_absent, without_nan
from rm_gallery.core.model.message import text_of
from rm_gallery.core.utils.errors import DataError

RECORDED = "recorded"
"""The metadata key of what was recorded: `layout`, `reward` and its `parts`; of a rollout that has no
end to be judged, `broke` says why.
"""
SILENT = "the log holds no turn of the agent"
Turn = dict[str, Any]


@dataclass
class RecordedRollout:
    """One recorded conversation of an agent.

    Attributes:
        prompt: the turns before the agent's first.
        completion: what followed: the agent's turns, those of tools, users and environments.
        reward: the recorded one; None where there is none.
        parts: what it was made of, by name; None for a part that was not scored.
        truth: the recorded right answer.
        tools: definitions of the tools there were.
        id: identity; empty for a hash of the content.
        about: everything else, which judging again cannot make anew.
    """

    prompt: list[Turn]
    completion: list[Turn]
    reward: float | None = None
    parts: dict[str, float | None] = field(default_factory=dict)
    truth: Any = None
    tools: Any = None
    id: str = ""
    about: dict[str, Any] = field(default_factory=dict)


class RolloutLayout(NamedTuple):
    """A form in which rollouts are written: whether a row has it, and how it is read."""

    detect: Callable[[Mapping[str, Any]], bool]
    read: Callable[[Mapping[str, Any]], RecordedRollout]


@DataConverterRegistry.register("rollouts")
class RolloutConverter(DataConverter):
    """Reads a recorded rollout in any layout of `LAYOUTS`, found by its keys.

    The last turn of the agent is the answer, the turns before it in the rollout are its steps. What
    was recorded stands in the metadata under `recorded`: `layout`, `reward`, and `parts` by name.

    A rollout that crashed is one without a result, in every layout: its `broke` holds the error that
    the log names, or that the agent never spoke. The reward beside an error is none: it was written
    because nothing was scored.
    """

    def convert(self, row: dict[str, Any], where: RowRef) -> DataSample:
        """The rollout as one sample; DataError for a row of no known layout."""
        cells = {name: json_cell(value) for name, value in row.items()}
        name = next((name for name, layout in LAYOUTS.items() if layout.detect(cells)), None)
        if name is None:
            raise DataError(
                f"{where}: no recorded rollout; expected a layout of {', '.join(LAYOUTS)}, found "
                f"the keys {', '.join(sorted(map(str, row))[:12])}"
            )
        try:
            rollout = converted(name, LAYOUTS[name].read, cells, where)
        except DataError as error:
            raise DataError(f"{where}: {error}") from error
        if isinstance(rollout, DataError):
            raise rollout
        why = _error_of(cells) or _error_of(cells.get("response"))
        reward = None if why else rollout.reward
        recorded = {"layout": name, "reward": reward, "parts": rollout.parts}
        if broke := why or ("" if split_rollout(rollout.completion)[1] else SILENT):
            recorded["broke"] = broke
        return sample_of_completion(
            rollout.prompt,
            rollout.completion,
            ground_truth=rollout.truth if is_absent(named := cells.get("reference")) else named,
            tools=rollout.tools or None,
            row={**rollout.about, RECORDED: recorded},
            unique_id=rollout.id,
        )


# -- turns -----------------------------------------------------------------------------------------


def turns_of(messages: Any) -> list[Turn]:
    """Messages of OpenAI's chat or responses API, of Anthropic's or of Inspect as OpenAI's turns.

    Raises DataError for an entry that is no message.
    """
    if isinstance(messages, str):
        return [{"role": "user", "content": messages}]
    if not isinstance(messages, Sequence):
        raise DataError(f"expected a list of messages, found {shown(messages)}")
    spoken: list[Turn] = []
    thought = ""
    for message in messages:
        if not isinstance(message, Mapping):
            raise DataError(f"expected a message, found {shown(message)}")
        for turn in _turns_of_item(message):
            if turn["role"] == "reasoning":
                thought += turn["content"]
                continue
            if turn["role"] == "assistant" and thought:
                turn["reasoning_content"], thought = thought, ""
            goes_on = message.get("type") == "function_call" and not turn.get("reasoning_content")
            # the responses API writes each call of a turn as an item of its own
            if goes_on and spoken and spoken[-1]["role"] == "assistant":
                spoken[-1].setdefault("tool_calls", []).extend(turn["tool_calls"])
            else:
                spoken.append(turn)
    if thought:  # the model thought and said nothing
        spoken.append({"role": "assistant", "content": None, "reasoning_content": thought})
    return spoken


def _turns_of_item(message: Mapping[str, Any]) -> Iterator[Turn]:
    kind = message.get("type")
    if kind == "function_call":
        call = _call(message.get("call_id"), message.get("name"), message.get("arguments"))
        yield {"role": "assistant", "content": None, "tool_calls": [call]}
    elif kind == "function_call_output":
        yield _tool_turn(message.get("call_id"), message.get("output"))
    elif kind == "reasoning":
        parts = [*(message.get("summary") or ()), *(message.get("content") or ())]
        yield {"role": "reasoning", "content": "".join(part.get("text") or "" for part in parts)}
    elif isinstance(message.get("role"), str):
        yield from _spoken_turns(message)
    else:
        raise DataError(f"expected a message with a role, found {shown(message)}")


def _spoken_turns(message: Mapping[str, Any]) -> Iterator[Turn]:
    """A message with a role; results of tools that stand inside it are turns of their own."""
    role, content = str(message["role"]), message.get("content")
    turn: Turn = {"role": role, "content": content}
    for name in ("name", "tool_call_id", "reasoning_content"):
        if message.get(name):
            turn[name] = message[name]
    calls = [_call_of(call) for call in message.get("tool_calls") or ()]
    kept: list[Any] = []
    for part in content if isinstance(content, list) else ():
        block = part if isinstance(part, Mapping) else {"type": "text", "text": part}
        kind = block.get("type")
        if kind == "tool_use":
            calls.append(_call(block.get("id"), block.get("name"), block.get("input")))
        elif kind == "tool_result":
            yield _tool_turn(block.get("tool_use_id"), block.get("content"))
        elif kind in ("thinking", "reasoning"):
            thought = block.get("thinking") or block.get("reasoning") or block.get("text") or ""
            turn["reasoning_content"] = turn.get("reasoning_content", "") + thought
        elif kind in ("text", "input_text", "output_text"):
            kept.append({"type": "text", "text": block.get("text") or ""})
        else:
            kept.append(dict(block))
    if isinstance(content, list):
        only_text = all(part.get("type") == "text" for part in kept)
        turn["content"] = "\n".join(part["text"] for part in kept) if only_text else kept
        if content and not (kept or calls or turn.get("reasoning_content")):
            return  # nothing but results of tools
    if calls:
        turn["tool_calls"] = calls
        turn["content"] = turn["content"] or None
    yield turn


def _tool_turn(call: Any, content: Any) -> Turn:
    text = text_of(content) if content is None or isinstance(content, list) else _written(content)
    return {"role": "tool", "content": text, **({"tool_call_id": str(call)} if call else {})}


def _call_of(call: Any) -> dict[str, Any]:
    """A tool call as OpenAI writes it; Inspect's has the name under `function`."""
    if not isinstance(call, Mapping):
        raise DataError(f"expected a tool call, found {shown(call)}")
    function = call.get("function")
    if isinstance(function, Mapping):
        return _call(call.get("id"), function.get("name"), function.get("arguments"))
    return _call(call.get("id"), function or call.get("name"), call.get("arguments"))


def _call(id: Any, name: Any, arguments: Any) -> dict[str, Any]:
    function = {"name": str(name or ""), "arguments": _written(arguments or {})}
    return {**({"id": str(id)} if id else {}), "type": "function", "function": function}


def _written(value: Any) -> str:
    """A text as it is, any other value as JSON: integers beyond 64 bits and lone surrogates too."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def _number(value: Any) -> float | None:
    """A recorded number, also as the text a csv file holds; None for what is no finite one, such as
    a reward that was never given.
    """
    if isinstance(value, str) and not _NUMBER.fullmatch(value.strip()):
        return None
    if not isinstance(value, str | int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _numbers(values: Any) -> dict[str, float | None]:
    return {str(name): _number(value) for name, value in fields_in(values).items()}


def _error_of(row: Any) -> str:
    """The error with which a log says that a rollout ended; empty where it names none."""
    if not isinstance(row, Mapping) or row.get("ok") is True:
        return ""
    for key in ("error", "errors", "exception_info"):
        found = row.get(key)
        if isinstance(found, list):
            found = next(iter(found), None)
        if found and isinstance(found, str | Mapping):
            return " ".join(_written(found).split())[:200]
    return ""


def _rest(row: Mapping[str, Any], used: Sequence[str]) -> dict[str, Any]:
    return {str(key): value for key, value in row.items() if key not in used and value is not None}


# -- layouts ---------------------------------------------------------------------------------------


def _verifiers_trace(row: Mapping[str, Any]) -> RecordedRollout:
    """A trace of verifiers v1: a graph of messages, whose last branch is the conversation.

    A reward is the sum of score times weight over the rewards that were scored; none of them, no
    reward, where verifiers itself says 0.
    """
    nodes = row["nodes"] or ()
    path: list[Mapping[str, Any]] = []
    at: Any = len(nodes) - 1 if nodes else None
    while at is not None:
        node = nodes[at]
        path.append(node)
        parent = node.get("parent")
        if parent is not None and not (isinstance(parent, int) and 0 <= parent < at):
            raise DataError(
                f"node {at} names {shown(parent)} as its parent, which is not before it"
            )
        at = parent
    path.reverse()
    begins = next((k for k, node in enumerate(path) if node.get("sampled")), len(path))
    asked, said = (
        [turn for node in part for turn in turns_of([node["message"]])]
        for part in (path[:begins], path[begins:])
    )
    rewards = row.get("rewards") or {}
    parts = {name: _number(reward and reward["score"]) for name, reward in rewards.items()}
    values = []
    for name, part in parts.items():
        if part is not None:
            weight = _number(rewards[name].get("weight"))
            values.append(part if weight is None else part * weight)
    task = row["task"]
    data = task.get("data") or {}
    about = {
        **_rest(data, ("prompt", "answer", "info")),
        **fields_in(data.get("info")),
        **_rest(row, ("nodes", "calls", "task", "rewards", "tools", "id", "version", "verifiers")),
    }
    parents = {node.get("parent") for node in nodes}
    if (branches := sum(k not in parents for k in range(len(nodes)))) > 1:
        about["branches"] = branches
    return RecordedRollout(
        prompt=asked or turns_of(data.get("prompt") or []),
        completion=said,
        reward=_number(sum(values)) if values else None,
        parts=parts,
        truth=data.get("answer"),
        tools=row.get("tools"),
        id=str(row.get("id") or ""),
        about=about,
    )


def _nemo_gym(row: Mapping[str, Any]) -> RecordedRollout:
    """A rollout of NeMo-Gym: what was asked, and the response in the layout of OpenAI's responses."""
    asked, response = row["responses_create_params"], row["response"] or {}
    prompt = turns_of(asked["input"])
    if asked.get("instructions"):
        prompt.insert(0, {"role": "system", "content": asked["instructions"]})
    output = response.get("output") or []
    if output and all(isinstance(history, list) for history in output):
        # Aviary's rollouts hold the whole history as it stood after each turn
        prompt, completion = split_rollout(turns_of(output[-1]))
    else:
        completion = turns_of(output)
    task, number = row.get("_ng_task_index"), row.get("_ng_rollout_index")
    return RecordedRollout(
        prompt=prompt,
        completion=completion,
        reward=None if row.get("mask_sample") else _number(row.get("reward")),
        parts=_numbers(row.get("reward_components")),
        truth=row.get("expected_answer"),
        tools=asked.get("tools"),
        id=f"{task}-{number}" if task is not None and number is not None else "",
        about=_rest(row, ("responses_create_params", "response", "reward", "expected_answer")),
    )


_SOURCES = {"user": "user", "agent": "assistant", "system": "system"}


def _atif(row: Mapping[str, Any]) -> RecordedRollout:
    """A trajectory in ATIF: steps of user, system and agent, tool calls with what was observed."""
    spoken: list[Turn] = []
    for number, step in enumerate(row["steps"] or (), 1):
        role = _SOURCES.get(step.get("source"))
        if role is None:
            raise DataError(f"step {number} is of {shown(step.get('source'))}, no known source")
        message = {"role": role, "content": step.get("message")}
        calls = [
            _call(call.get("tool_call_id"), call.get("function_name"), call.get("arguments"))
            for call in step.get("tool_calls") or ()
        ]
        thought = step.get("reasoning_content")
        spoken += turns_of([{**message, "tool_calls": calls, "reasoning_content": thought}])
        seen = (step.get("observation") or {}).get("results") or ()
        for at, result in enumerate(seen):
            call = result.get("source_call_id") or (at < len(calls) and calls[at].get("id"))
            spoken.append(_tool_turn(call, result.get("content")))
    prompt, completion = split_rollout(spoken)
    return RecordedRollout(
        prompt=prompt,
        completion=completion,
        reward=_number(row.get("reward")),
        tools=fields_in(row.get("agent")).get("tool_definitions"),
        id=str(row.get("trajectory_id") or row.get("session_id") or ""),
        about=_rest(row, ("steps", "reward", "session_id", "trajectory_id")),
    )


_TRUTHS = ("reference", "ground_truth", "answer", "target", "expected_answer")
_REWARDS = ("reward", "score")
_IDS = ("id", "unique_id", "trajectory_id", "rollout_id")


_INSPECT = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
"""Inspect's letters as its `value_to_float` has them: correct, partial, incorrect, no answer."""


def _is_inspect(row: Mapping[str, Any]) -> bool:
    """Whether a row is of an Inspect log, see `inspect_row`: its `answer` is the model's."""
    return {"prompt", "answer", "reference", "epoch"} <= row.keys()


def _dump(row: Mapping[str, Any]) -> RecordedRollout:
    """Messages, or prompt and completion, with a reward beside them: dumps of APIs and trainers,
    results of verifiers before v1, rows of Inspect logs (`score.NAME`).
    """
    inspect = _is_inspect(row)
    if row.get("messages") is not None:
        turns = turns_of(row["messages"])
        if row.get("system"):  # Anthropic's stands apart
            turns = [*turns_of([{"role": "system", "content": row["system"]}]), *turns]
        given = row.get("prompt")
        prompt, completion = split_rollout(
            turns, turns_of(given) if isinstance(given, list) else None
        )
    else:
        prompt = turns_of(row.get("prompt") or [])
        spoken = row.get("answer" if inspect and "completion" not in row else "completion")
        completion = (
            [{"role": "assistant", "content": spoken}]
            if isinstance(spoken, str)
            else turns_of([] if is_absent(spoken) else spoken)
        )
    scores = {
        k[6:]: _INSPECT.get(v, v) if isinstance(v, str) else v
        for k, v in row.items()
        if isinstance(k, str) and k.startswith("score.")
    }
    parts = _numbers(row.get("metrics")) | _numbers(row.get("rewards")) | _numbers(scores)
    reward = next((v for k in _REWARDS if (v := _number(row.get(k))) is not None), None)
    if reward is None and len(scores) == 1:
        reward = next(iter(parts.values()))
    truths = _TRUTHS[:1] if inspect else _TRUTHS
    truth = next((row[k] for k in truths if row.get(k) not in (None, "")), None)
    used = ("messages", "prompt", "completion", "system", "tools", "tool_defs", *_REWARDS, *_IDS)
    mine = (*used, "metrics", "rewards", *_TRUTHS)
    named = next((row[k] for k in _IDS if row.get(k) is not None), "")
    return RecordedRollout(
        prompt=prompt,
        completion=completion,
        reward=reward,
        parts=parts,
        truth=truth,
        tools=row.get("tools") or row.get("tool_defs"),
        id=str(named),
        about=without_nan(
            {k: v for k, v in _rest(row, mine).items() if not str(k).startswith("score.")}
        ),
    )


def _has(row: Mapping[str, Any], key: str, kind: type) -> bool:
    """Whether a row has what a layout keeps under a key; null of a rollout that crashed."""
    return key in row and isinstance(row[key], kind | None)


LAYOUTS: dict[str, RolloutLayout] = {
    "verifiers": RolloutLayout(
        lambda row: _has(row, "nodes", list) and isinstance(row.get("task"), Mapping),
        _verifiers_trace,
    ),
    "NeMo-Gym": RolloutLayout(
        lambda row: (
            isinstance(row.get("responses_create_params"), Mapping)
            and _has(row, "response", Mapping)
        ),
        _nemo_gym,
    ),
    "ATIF": RolloutLayout(
        lambda row: (
            _has(row, "steps", list) and str(row.get("schema_version", "")).startswith("ATIF")
        ),
        _atif,
    ),
    "messages": RolloutLayout(
        lambda row: _has(row, "messages", list) or "completion" in row or _is_inspect(row),
        _dump,
    ),
}
"""By name; the first that fits is taken."""
