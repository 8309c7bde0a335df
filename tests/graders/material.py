"""Every judged grader with a row that fits it: what the contracts of graders are tried on."""

from __future__ import annotations

import base64
from typing import Any

from rm_gallery import BaseReward, GraderRegistry, RewardRegistry

PNG = {"base64": base64.b64encode(b"not really a picture").decode(), "format": "png"}
WEATHER = {"name": "weather", "arguments": '{"city": "Oslo"}'}
CALL = {"id": "1", "type": "function", "function": WEATHER}
MESSAGES = [
    {"role": "user", "content": "[[messages]]"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "1", "content": "[[observed]]"},
]


def search(text: str) -> list[str]:
    """Finds the same for every text of a length."""
    return [f"a page of {len(text)} words"]


TWO: list[Any] = ["It is short.", {"criterion": "It is rude.", "points": -1}]
SPECIAL: dict[str, dict[str, Any]] = {
    "checklist": {"criteria": ["It is short.", {"criterion": "It is rude.", "weight": -1}]},
    "healthbench": {"criteria": TWO, "max_criteria": 2},
    "search_correctness": {"search": search},
}
"""Settings that a grader cannot do without."""


def judged_graders() -> list[str]:
    """The names of all graders that a model judges and that are not also rewards of that name."""
    own = sorted(set(GraderRegistry.list()) - set(RewardRegistry.list()))
    return [name for name in own if RewardRegistry.get(f"grader:{name}").judged]


def make(name: str, model: Any, /, **settings: Any) -> BaseReward:
    """A registered grader that asks this model."""
    return GraderRegistry.create(name, model=model, **{**SPECIAL.get(name, {}), **settings})


def fields_for(grader: BaseReward) -> dict[str, Any]:
    """A value for each field, marked so that it is found again in a prompt."""
    made: dict[str, Any] = {}
    for name in grader.inputs:
        if name == "messages":
            if "responses" not in made:
                made[name] = MESSAGES
        elif name == "image" or (name == "response" and "vision" in grader.needs):
            made[name] = (
                PNG
                if name == "image" or grader.name == "text_to_image"
                else ["before", PNG, "after"]
            )
        elif name in ("responses", "documents"):
            made[name] = [f"[[{name}]]", "another"]
        elif name == "query" and "messages" in made:
            continue  # the question is in the messages
        elif name not in ("criteria", "label", "metadata", "steps"):
            made[name] = f"[[{name}]]"
    if "max_searches" in type(grader).model_fields:
        made["response"] += " and more" * 60  # than is searched for at once
    return made


def low_high(name: str, grader: BaseReward) -> tuple[str, str]:
    """Replies of a judge that gives the lowest, and the highest score."""
    if name in ("checklist", "healthbench"):
        return "<c1>no</c1><c2>yes</c2>", "<c1>yes</c1><c2>no</c2>"
    if name == "trajectory_comprehensive":
        parts = ("contribution", "relevance", "accuracy", "efficiency")
        return tuple("".join(f"<{p}>{n}</{p}>" for p in parts) for n in (1, 5))  # type: ignore[return-value]
    bounds = (1, 5) if name == "text_to_image" else grader.score_range
    return tuple(f"<reason>so</reason><score>{bound:g}</score>" for bound in bounds)  # type: ignore[return-value]
