"""Small environments of every make, importable by name so that they can be pickled."""

from __future__ import annotations

import asyncio
import logging
import math
from typing import Any

from rm_gallery import Unscored
from rm_gallery.envs.reward_helpers import extract_completion_text, extract_strict_answer

logger = logging.getLogger(__name__)
ODD: dict[str, Any] = {
    "nan": {"correct": math.nan}, "inf": {"correct": 1.0, "more": math.inf}, "text": {"correct": "1.0"},
    "huge": {"correct": 10**400}, "number": 1.0, "list": [("correct", 1.0)], "key": {1: 1.0},
    "missing": {"correct": 1.0, "judge": None}, "none": None, "empty": {}, "bool": {"correct": True},
    "above": {"correct": 1.0, "length": 1e300}, "below": {"correct": -0.5},
}  # fmt: skip


class Correct:
    """Async, one component and a format that costs the judge nothing."""

    async def compute_reward(
        self, rollout_id: str, messages: Any, task: Any, **kwargs: Any
    ) -> dict[str, float]:
        await asyncio.sleep(0)
        answer = extract_strict_answer(extract_completion_text(messages, which="last"))
        logger.info("%s answers %s", rollout_id, answer)
        if not answer:
            return {"correct": 0.0, "format": 0.0}
        return {
            "correct": float(answer == (task or {}).get("ground_truth", "").strip()),
            "format": 1.0,
        }


class Plain:
    """The same, plain."""

    def compute_reward(self, rollout_id: str, messages: Any, task: Any) -> dict[str, float]:
        answer = extract_strict_answer(extract_completion_text(messages))
        logger.info("%s answers %s", rollout_id, answer)
        return {
            "correct": float(answer == (task or {}).get("ground_truth", "")),
            "format": float(bool(answer)),
        }


class Later:
    """A plain method that gives something to await."""

    def compute_reward(self, rollout_id: str, messages: Any, task: Any) -> Any:
        return Correct().compute_reward(rollout_id, messages, task)


class Older:
    """The older form: the truth itself."""

    async def compute_reward(
        self, rollout_id: str, completion: Any, ground_truth: Any, **kwargs: Any
    ) -> Any:
        return {"correct": float(extract_completion_text(completion) == ground_truth)}


class Alarm(BaseException):
    """As verifiers raise it when their time is over."""


class Odd:
    """Returns what the answer names, or raises."""

    def compute_reward(self, rollout_id: str, messages: Any, task: Any, **kwargs: Any) -> Any:
        named = extract_completion_text(messages)
        if named == "raise":
            raise ZeroDivisionError("no sample, no mean")
        if named == "alarm":
            raise Alarm("the verifier took too long")
        if named == "unscored":
            raise Unscored("nothing to judge by", reason="no_reference")
        return ODD.get(named, {"correct": 1.0})


class Group(Odd):
    """Each by itself and all together; the group's share of the longest."""

    async def compute_group_reward(
        self, rollout_ids: list[str], messages_list: list[Any], tasks: list[Any], **kwargs: Any
    ) -> list[dict[str, float]]:
        logger.warning("%d together", len(rollout_ids))
        lengths = [len(extract_completion_text(messages)) for messages in messages_list]
        return [{"length": n / max(lengths)} for n in lengths]


class PlainGroup:
    """Only together, plain, by id."""

    def compute_group_reward(
        self, rollout_ids: list[str], messages_list: Any, tasks: Any
    ) -> dict[str, Any]:
        return {one: {"place": float(n)} for n, one in enumerate(reversed(rollout_ids))}


class Async(Group):
    """Async alone, plain together."""

    async def compute_reward(self, rollout_id: str, messages: Any, task: Any, **kwargs: Any) -> Any:
        return super().compute_reward(rollout_id, messages, task)

    def compute_group_reward(
        self, rollout_ids: Any, messages_list: Any, tasks: Any, **kwargs: Any
    ) -> Any:
        logger.warning("%d together", len(rollout_ids))
        return [{"length": 0.5} for _ in rollout_ids]


class BadGroup(Group):
    """Too few results, the same name twice, or an error, as the task says."""

    async def compute_group_reward(
        self, rollout_ids: Any, messages_list: Any, tasks: Any, **kwargs: Any
    ) -> Any:
        case = tasks[0]["case"]
        if case == "raise":
            raise TimeoutError("judge")
        return {"few": [], "twice": [{"correct": 1.0}] * len(rollout_ids), "text": "no"}[case]


class Seen:
    """Keeps what it was given."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any, Any, Any]] = []

    def compute_reward(
        self, rollout_id: str, messages: Any, task: Any, **kwargs: Any
    ) -> dict[str, float]:
        self.calls.append((rollout_id, messages, task, kwargs))
        if task:
            task["mine"] = True
        return {"seen": 1.0}

    def describe(self) -> dict[str, Any]:
        return {}


class Weighted:
    """Says what its components are, and holds a setting."""

    reward_keys = ("a", "b")

    def __init__(self, limit: int = 3) -> None:
        self.limit = limit

    def compute_reward(self, rollout_id: str, messages: Any, task: Any) -> dict[str, float]:
        return {"a": 1.0} if extract_completion_text(messages) == "short" else {"a": 1.0, "b": 0.5}
