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
from rm_gallery.core.reward.schema import Example, PhraseJudge, RewardMeta, sample_of
from rm_gallery.core.utils.errors import DataError
from rm_gallery.gallery.rm import KINDS, judged_class_name, judged_name, scenario_keys

SCENARIOS = Path(__file__).parent / "scenarios"
LANGUAGES = ("en", "zh")
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
def scenario(key: str) -> dict[str, Any]:
    """A scenario's file: `en` and `zh` (`scenario`, its title, then one line; `desc`, the task;
    `rubrics` in order of weight, `levels`, what the scores of one answer mean under them),
    `family`, `work`, whether the judge has to compute, and `example` (`question`, `better`,
    `worse`, and a phrase of each answer).

    Raises DataError for a file that is no YAML mapping or lacks one of these.
    """
    import yaml

    path = SCENARIOS / f"{key}.yaml"
    try:
        content = yaml.load(
            path.read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        )
        for language in LANGUAGES:
            content[language]["scenario"], content[language]["desc"], content[language]["rubrics"]
        (
            content["example"]["question"],
            content["example"]["better"],
            content["example"]["worse"],
            content["example"]["phrases"],
        )
    except (yaml.YAMLError, KeyError, TypeError) as error:
        raise DataError(
            f"{path.name}: not a judged scenario: {type(error).__name__} {error}"
        ) from error
    assert isinstance(content, dict)
    return content


def __getattr__(name: str) -> Any:
    for key in scenario_keys():
        for kind in KINDS:
            if name == judged_class_name(key, kind):
                made = globals()[name] = _judged_class(key, kind)
                return made
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _judged_class(key: str, kind: str) -> type[BaseRubricReward]:
    texts = scenario(key)
    name, about = judged_class_name(key, kind), texts["example"]
    body: dict[str, Any] = {
        "__module__": __name__,
        "__qualname__": name,
        "__doc__": _documentation(texts["en"], kind),
        "name": judged_name(key, kind),
        "work": bool(texts.get("work")),
        "scenario_texts": {language: texts[language] for language in LANGUAGES},
        "example": Example(
            sample_of(about["question"], about["better"], about["worse"]),
            judge=PhraseJudge(tuple(about["phrases"])),
        ),
    }
    made: type[BaseRubricReward] = RewardMeta(name, (_BASES[kind],), body)
    return made


def _documentation(texts: dict[str, Any], kind: str) -> str:
    title, _, about = texts["scenario"].partition(". ")
    rubrics = [f"{number}. {rubric}" for number, rubric in enumerate(texts["rubrics"], 1)]
    head = f"{title}: {_EFFECTS[kind]}."
    return "\n".join(
        [
            head,
            "",
            f"{about} {texts['desc']}",
            "",
            _SCORES[kind] + " Higher is better.",
            "",
            *rubrics,
        ]
    )
