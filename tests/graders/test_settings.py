"""Every setting of a grader or a judged reward is heard, or refused, and tells one from another:
found by the registries.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest

from rm_gallery import BaseGrader, BaseReward, ConfigError, FakeLLM, GraderRegistry, RewardRegistry
from rm_gallery.core.graders.results import about_of
from rm_gallery.core.reward.reward import UNRELATED
from rm_gallery.core.reward.schema import PhraseJudge
from tests.golden import golden
from tests.graders.material import SPECIAL, fields_for, low_high, make
from tests.reward.rewards import BestTemplate, Listening, NumberTemplate
from tests.support.choice import some
from tests.support.samples import make_sample

KINDS = {name: GraderRegistry.get(name) for name in GraderRegistry.list()}
GRADERS = {name: kind for name, kind in KINDS.items() if issubclass(kind, BaseGrader)}
"""Rules among the rewards are graders with the reward's settings, which are the reward's to try."""
REWARDS = {
    name: RewardRegistry.get(name)
    for name in RewardRegistry.list()
    # judges that act need a workspace, and have tests of their own
    if RewardRegistry.get(name).judged and RewardRegistry.get(name).kind != "trajectory"
}
NOT_HEARD_IN_ROWS = {"description", "seed", "worst"}
"""What only documents, decides the order of a sample's answers, or is about what an answer caused."""


def other_search(text: str) -> list[str]:
    return ["nothing of use"]


GIVEN = json.loads((Path(__file__).parent / "settings.json").read_text(encoding="utf-8"))
ANOTHER = FakeLLM(reply="<score>3</score><best>2</best>", model="another")
VALUES: dict[str, list[Any]] = {
    **GIVEN["values"],
    **{"model": [ANOTHER], "llm": [ANOTHER], "search": [other_search]},
    "template": [BestTemplate, NumberTemplate],
}
"""Values other than the default, for fields whose annotation does not name them all."""
BESIDE: dict[str, list[dict[str, Any]]] = GIVEN["beside"]
"""Settings under which a field counts."""


def others(name: str, field: str, info: Any) -> list[Any]:
    """Values of a field that are not its default."""
    if info.annotation is bool or info.annotation == bool | None:
        return [value for value in (True, False) if value is not info.default]
    if get_origin(info.annotation) is Literal:
        return [value for value in get_args(info.annotation) if value != info.default]
    assert field in VALUES, f"{name}: say in settings.json what other values '{field}' may have"
    return VALUES[field]


def heard(outcomes: Iterator[tuple[str, str]]) -> bool:
    return any(one != other for one, other in outcomes)


def outcome_of_grader(name: str, row: dict[str, Any] | None, settings: dict[str, Any]) -> str:
    """All that comes of a grader: requests and result, or why it is refused."""
    judge = Listening(reply="no verdict", seed=1)
    try:
        built = (
            make(name, settings.pop("model", judge), **settings)
            if GRADERS[name].judged
            else GraderRegistry.create(name, **settings)
        )
        if GRADERS[name].judged and row is None:
            judge.reply = low_high(name, built)[1] if name != "g_eval" else "<score>4</score>"
        found = built.evaluate(fields_for(built) if row is None else row, options=None)
        kind = built.kind
    except (ConfigError, ValueError) as error:
        return f"refused: {error}"
    return json.dumps(
        [found.model_dump(exclude={"usage"}), about_of(built), kind, judge.asked], default=str
    )


def rows_of(name: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """The golden lines of a rule: settings and rows on which its settings can be heard."""
    lines = [line for path in golden.HERE.glob("graders/*.jsonl") for _, line in golden.lines(path)]
    return [(line.get("params", {}), line["fields"]) for line in lines if line["grader"] == name]


@pytest.mark.parametrize("name", GRADERS)
def test_every_setting_of_a_grader_is_heard_or_refused_and_counts(name: str) -> None:
    judged = GRADERS[name].judged
    garbage: list[tuple[dict[str, Any], Any]] = (
        [({}, None), ({}, _garbage_row(name))] if judged else rows_of(name)
    )
    for field, info in GRADERS[name].model_fields.items():
        values = others(name, field, info)
        given = [
            {**SPECIAL.get(name, {}), **beside, field: value}
            for value in values
            for beside in BESIDE.get(field, [{}])
        ]
        if field not in (*NOT_HEARD_IN_ROWS, *UNRELATED):
            assert heard(
                (
                    outcome_of_grader(name, row, {**params}),
                    outcome_of_grader(name, row, {**params, **changed}),
                )
                for changed in given
                for params, row in garbage
            ), f"{name}: '{field}' makes no difference; use it, or refuse it (`unheard`)"
        _assert_counts(
            name, field, [_hash(name, {}), *(_hash(name, {field: value}) for value in values)]
        )


def _garbage_row(name: str) -> dict[str, Any]:
    return fields_for(make(name, Listening()))


def _hash(name: str, settings: dict[str, Any]) -> str | None:
    try:
        if name in GRADERS and not GRADERS[name].judged:
            made: BaseReward = GraderRegistry.create(name, **settings)
        elif name in GRADERS:
            made = make(name, settings.pop("model", FakeLLM(reply="x")), **settings)
        else:
            made = RewardRegistry.create(name, **{"llm": FakeLLM(reply="x"), **settings})
        return made.settings_hash
    except (ConfigError, ValueError):
        return None


def _assert_counts(name: str, field: str, hashes: list[str | None]) -> None:
    """The default and every other value that is accepted are different things, but for how fast
    they are.
    """
    found = [each for each in hashes if each is not None]
    same = field in UNRELATED
    assert len(set(found)) == (1 if same else len(found)), (
        f"{name}: '{field}' is {'' if same else 'not '}part of its identity"
    )


def outcome_of_reward(name: str, settings: dict[str, Any]) -> str:
    """All that comes of a judged reward: requests and scores of two samples, with and without
    steps, or why it is refused.
    """
    judge = Listening(reply=PhraseJudge(("two", "one")))
    sample = make_sample("one", "two", reference="three")
    asked = {"type": "text", "text": sample.input[-1].text}
    sample.input[-1].content = [
        asked,
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
    ]
    try:
        reward: BaseReward = RewardRegistry.create(name, **{"llm": judge, **settings})
        first = reward.evaluate(sample, max_workers=1)
        judge.reply = "no verdict"
        second = reward.evaluate(sample, max_workers=1)
        stated = reward.evaluate(make_sample("It is 3.", "4", reference="3"), max_workers=1)
    except (ConfigError, ValueError) as error:
        return f"refused: {error}"
    outputs = [
        output.answer.reward.model_dump()
        for each in (first, second, stated)
        for output in each.output
    ]
    return json.dumps(
        [{**said, "sources": list(said["sources"])} for said in outputs] + [judge.asked],
        default=str,
    )


@pytest.mark.parametrize("name", some(REWARDS, 17))
def test_every_setting_of_a_judged_reward_is_heard_or_refused_and_counts(name: str) -> None:
    for field, info in REWARDS[name].model_fields.items():
        values = others(name, field, info)
        # what an answer caused, see tests/reward/test_causes.py; where a gate opens
        if field not in (*UNRELATED, "worst", "threshold"):
            assert heard(
                (outcome_of_reward(name, beside), outcome_of_reward(name, {**beside, field: value}))
                for beside in BESIDE.get(field, [{}])
                for value in values
            ), f"{name}: '{field}' makes no difference"
        _assert_counts(
            name, field, [_hash(name, {}), *(_hash(name, {field: value}) for value in values)]
        )
