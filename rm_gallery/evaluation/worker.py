"""The inside of an evaluator's process: its files written out, each metric's `evaluate` loaded,
conversations answered as JSON.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.machinery
import importlib.util
import inspect
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import orjson

from rm_gallery.core.data.conversation import (
    group_of,
    message_dicts,
    sample_of_messages,
    split_turns,
)
from rm_gallery.core.engine.loop import run as run_on_loop
from rm_gallery.core.reward.function import GIVEN, RewardFunction
from rm_gallery.core.reward.function_result import evaluated, score_of_evaluated
from rm_gallery.core.score import Score, out_of_range, unscored
from rm_gallery.core.score import failed as failed_score
from rm_gallery.core.utils.errors import Cause, DataError, Unscored
from rm_gallery.core.utils.models import error_message

_FOLDER = "evaluator"
_MAIN = "main.py"
_OWN = GIVEN | {"tools"}
_LONGEST = 500
CODES: Mapping[str, Cause] = {
    **dict.fromkeys(
        "deadline memory processes output crashed function_error invalid_result undeclared_range "
        "evaluator_load".split(),
        "rule",
    ),
    **dict.fromkeys(("busy", "closed", "sandbox"), "caller"),
    "invalid_input": "data",
}
"""Codes of failed results, and who caused them; the error begins with one, before a colon."""


def open_evaluator(job: Mapping[str, Any]) -> Callable[[bytes], bytes]:
    """What answers requests: JSON `{"id", "items": [payload, …]}` in,
    `{"id", "cpu", "results": [result, …]}` out.

    `job` holds `files` (path to bytes), `metrics` (folder names) and `mode`; raises what a metric
    raises while it is loaded.
    """
    root = Path(_FOLDER).absolute()
    for path, data in job["files"].items():
        target = root.joinpath(*path.split("/"))
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    functions = {
        name: _load_metric(root / name, number, job["mode"])
        for number, name in enumerate(job["metrics"])
    }
    return partial(_answer_request, functions)


def _load_metric(folder: Path, number: int, mode: str) -> RewardFunction[Any]:
    """The `evaluate` of a folder; it can import the modules next to main.py, also relatively (`from
    . import x`).
    """
    package = f"metric_{number}"
    holder = ModuleType(package)
    holder.__path__ = [str(folder)]
    holder.__spec__ = importlib.machinery.ModuleSpec(package, None, is_package=True)
    sys.modules[package] = holder
    importlib.invalidate_caches()
    sys.path.insert(0, str(folder))
    try:
        module = importlib.import_module(f"{package}.main")
    finally:
        sys.path.remove(str(folder))
        sys.path.append(str(folder))  # for imports inside functions
    # files of the same name in another metric's folder are modules of their own
    for name, loaded in list(sys.modules.items()):
        if not name.startswith(package) and str(getattr(loaded, "__file__", None) or "").startswith(
            f"{folder}{os.sep}"
        ):
            del sys.modules[name]
    function = getattr(module, "evaluate", None)
    if isinstance(function, RewardFunction):
        if function.mode == "stepwise":  # said by a name that reading the file does not tell
            raise DataError(
                f"{folder.name}/{_MAIN}: mode is 'stepwise'; an evaluator is 'pointwise' or 'batch'"
            )
        return function
    if not callable(function):
        raise DataError(f"{folder.name}/{_MAIN} defines no function 'evaluate'")
    return RewardFunction(function, "batch" if mode == "batch" else "pointwise")


def _answer_request(functions: Mapping[str, RewardFunction[Any]], request: bytes) -> bytes:
    try:
        asked = orjson.loads(request)
    except ValueError:  # lone surrogates and integers beyond 64 bits
        asked = json.loads(request)
    items = asked["items"]
    by_metric = [_metric_results(function, items) for function in functions.values()]
    rows = zip(*by_metric, strict=True)
    scores = [combined(dict(zip(functions, row, strict=True))) for row in rows]
    dumped = b",".join(map(_dumped, scores))
    # what it printed belongs to this request
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stdout.flush()
    return b'{"id":%d,"cpu":%.3f,"results":[%b]}' % (asked["id"], time.process_time(), dumped)


def _dumped(score: Score[float]) -> bytes:
    result = evaluated(score)
    try:
        return result.model_dump_json().encode()
    except ValueError:  # of pydantic, for what has no form in JSON
        pass
    try:  # the same with a question mark for what is no valid Unicode
        return json.dumps(result.model_dump(mode="json"), ensure_ascii=False).encode(
            "utf-8", "replace"
        )
    except (ValueError, TypeError) as error:
        return _dumped(_no_json(error))


def _no_json(error: Exception) -> Score[float]:
    return failed("invalid_result", f"the result is not JSON: {type(error).__name__}")


def _score_of(function: RewardFunction[Any], returned: object) -> Score[float]:
    """The score of a result; failed where it lies outside the function's range, as it is when the
    function is a reward.
    """
    try:
        score = score_of_evaluated(returned, CODES)
    except ValueError as error:  # of pydantic, for what is nested too deep
        return _no_json(error)
    if score.value is None:
        return score
    problem = out_of_range(
        function.name, score.value, function.score_range, function.range_declared
    )
    return score if problem is None else failed(problem.code, problem.reason)


def _metric_results(
    function: RewardFunction[Any], items: Sequence[Mapping[str, Any]]
) -> list[Score[float]]:
    by_place: dict[int, Score[float]] = {}
    groups: dict[str | int, list[int]] = {}
    for at, item in enumerate(items):
        try:
            key: str | int = at
            if function.mode == "batch":
                # functions of mode `batch` get the answers to one prompt and reference together
                messages = message_dicts(item["messages"], f"rollouts_messages[{at}]")
                truth, original = item.get("ground_truth"), item.get("original_messages")
                key = group_of(
                    sample_of_messages(messages, ground_truth=truth, original_messages=original)
                )
            groups.setdefault(key, []).append(at)
        except DataError as error:
            by_place[at] = failed("invalid_input", str(error))
    for places in groups.values():
        own = _guarded(function, [items[at] for at in places])
        by_place.update(zip(places, own, strict=True))
    return [by_place[at] for at in range(len(items))]


def _guarded(
    function: RewardFunction[Any], items: Sequence[Mapping[str, Any]]
) -> list[Score[float]]:
    """The results of one call, or for each item why there are none."""
    try:
        return _called(function, items)
    except Unscored as error:
        failure = unscored("invalid_score", str(error)[:_LONGEST], "rule")
    except MemoryError:
        failure = failed("memory", "the evaluator used more memory than it may")
    except DataError as error:
        failure = failed("invalid_input", str(error))
    except BaseException as error:  # noqa: BLE001 - whatever an evaluator raises, and if it leaves, is the outcome of this item
        failure = failed(
            "function_error", f"{type(error).__name__}: {error_message(error)}{_error_place(error)}"
        )
    return [failure] * len(items)


def _called(
    function: RewardFunction[Any], items: Sequence[Mapping[str, Any]]
) -> list[Score[float]]:
    """One call for an item, or for all answers to one prompt; other inputs are those of the first
    item.
    """
    rollouts = [message_dicts(item["messages"]) for item in items]
    given = function.arguments(_named_inputs(function, items[0], rollouts[0]))
    is_batch = function.mode == "batch"
    given[function.judges] = rollouts if is_batch else rollouts[0]
    returned = function(**given)
    if inspect.iscoroutine(returned):
        returned = run_on_loop(returned)
    return [_score_of(function, each) for each in (returned if is_batch else [returned])]


def _named_inputs(
    function: RewardFunction[Any], item: Mapping[str, Any], messages: list[dict[str, Any]]
) -> dict[str, Any]:
    """A function's other inputs by parameter name; `original_messages` defaults to the prompt of
    the messages.
    """
    given = {name: value for name, value in (item.get("kwargs") or {}).items() if name not in _OWN}
    given |= {
        name: item[name]
        for name in ("ground_truth", "tools", "original_messages")
        if item.get(name) is not None
    }
    if function.takes("original_messages"):
        given.setdefault("original_messages", split_turns(messages)[0])
    return given


def failed(code: str, message: str) -> Score[float]:
    """The score of an evaluation that broke: one sentence says how."""
    return failed_score(code, " ".join(message.split())[:_LONGEST], CODES[code])


def _error_place(error: BaseException) -> str:
    """Place of the error in the evaluator's own files; the rest of the trace stays private."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        parts = Path(frame.filename).parts
        if _FOLDER in parts:
            return f" ({'/'.join(parts[parts.index(_FOLDER) + 1 :])}, line {frame.lineno})"
    return ""


def combined(scores: Mapping[str, Score[float]]) -> Score[float]:
    """One metric's score as it is; for several the mean with each metric, valid only where all
    are.
    """
    if len(scores) == 1:
        return next(iter(scores.values()))
    metrics: dict[str, Any] = {}
    for name, score in scores.items():
        said = evaluated(score)
        reason = said.error or said.reason or ""
        metrics[name] = {"score": said.score, "is_score_valid": score.ok, "reason": reason}
        metrics |= {f"{name}.{inner}": metric for inner, metric in said.metrics.items()}
    extra = {"metrics": metrics}
    for name, score in scores.items():
        if score.status == "failed":  # its code, where it has one, still comes first
            why = f"{name}: {score.reason}"
            own = {"error": why} if "error" in score.extra else {}
            return replace(score, reason=why, extra={**extra, **own})
    values = {name: score.value for name, score in scores.items() if score.value is not None}
    if len(values) < len(scores):
        lost = (f"{n}: {s.reason or 'no score'}" for n, s in scores.items() if n not in values)
        return replace(unscored("invalid_score", "; ".join(lost), "rule"), extra=extra)
    mean = sum(values.values()) / len(values)
    shown = ", ".join(f"{name} {value:.4g}" for name, value in values.items())
    return Score(mean, f"mean of {shown}", extra=extra)
