"""The judged rewards: each file in `scenarios/` gives a listwise, a pointwise and a pairwise class,
built on first import.

`from rm_gallery.gallery.rm.alignment.base import MathListWiseReward` works for each of them.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from rm_gallery.core.reward.judge import (
    BaseListWiseRubricReward,
    BasePairWiseRubricReward,
    BasePointWiseRubricReward,
    BaseRubricReward,
)
from rm_gallery.core.reward.rubric import LANGUAGES, RubricFile, Texts, rubric_file
from rm_gallery.core.reward.schema import Example, PhraseJudge, RewardMeta, sample_of
from rm_gallery.gallery.rm import KINDS, judged_class_name, judged_name, scenario_keys

SCENARIOS = Path(__file__).parent / "scenarios"
_BASES: dict[str, type[BaseRubricReward]] = {
    "listwise": BaseListWiseRubricReward,
    "pointwise": BasePointWiseRubricReward,
    "pairwise": BasePairWiseRubricReward,
}
_EFFECTS = {
    "listwise": "names the best of several answers",
    "pointwise": "scores one answer by itself",
    "pairwise": "compares every pair of answers in both orders",
}
_SCORES = {
    "listwise": "The named answer gets 1, every other 0; a sample needs two answers or more.",
    "pointwise": "A whole number from 1 (worst) to 10 (best).",
    "pairwise": (
        "The share of pairs an answer wins, 0 to 1, a draw counting half; a sample needs two "
        "answers or more."
    ),
}


@cache
def scenario(key: str) -> RubricFile:
    """A scenario's file; DataError for one that lacks what a judged reward needs."""
    texts = ("scenario", "desc", "criteria")
    return rubric_file(
        SCENARIOS / f"{key}.yaml", "a judged scenario", RubricFile, ["example"], texts
    )


def scenario_texts(key: str) -> dict[str, dict[str, Any]]:
    """By language what a judged reward says of a scenario: its fields, and `levels`."""
    return {
        language: {
            "scenario": texts.scenario,
            "desc": texts.desc,
            "rubrics": texts.rubrics,
            "levels": texts.level_lines,
        }
        for language in LANGUAGES
        for texts in (scenario(key).texts(language),)
    }


def __getattr__(name: str) -> Any:
    for key in scenario_keys():
        for kind in KINDS:
            if name == judged_class_name(key, kind):
                made = globals()[name] = _judged_class(key, kind)
                return made
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _judged_class(key: str, kind: str) -> type[BaseRubricReward]:
    rubric = scenario(key)
    name, about = judged_class_name(key, kind), rubric.example
    assert about is not None
    body: dict[str, Any] = {
        "__module__": __name__,
        "__qualname__": name,
        "__doc__": _documentation(rubric.texts("en"), kind),
        "name": judged_name(key, kind),
        "work": rubric.work,
        "scenario_texts": scenario_texts(key),
        "example": Example(
            sample_of(about.question, about.better, about.worse),
            judge=PhraseJudge(tuple(about.phrases)),
        ),
    }
    made: type[BaseRubricReward] = RewardMeta(name, (_BASES[kind],), body)
    return made


def _documentation(texts: Texts, kind: str) -> str:
    title, _, about = texts.scenario.partition(". ")
    rubrics = [f"{number}. {rubric}" for number, rubric in enumerate(texts.rubrics, 1)]
    head = f"{title}: {_EFFECTS[kind]}."
    return "\n".join(
        [
            head,
            "",
            f"{about} {texts.desc}",
            "",
            _SCORES[kind] + " Higher is better.",
            "",
            *rubrics,
        ]
    )
