"""SkyRL, OpenEnv and AReaL: what is built on their base classes, with stand-ins for these
(`packages.py`).
"""

from __future__ import annotations

import asyncio
import copy
import importlib
import math
import pickle
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from rm_gallery import ConfigError, DataSample, RunOptions, Score, reward_function
from rm_gallery.core.score import scored
from rm_gallery.integrations.areal import DEADLINE, areal_reward, areal_workflow
from rm_gallery.integrations.openenv import RolloutReward, RubricReward, RubricScore, openenv_rubric
from rm_gallery.integrations.scoring import RowScorer
from rm_gallery.integrations.skyrl import SkyRLReward, skyrl_reward
from tests.integrations.adapters import Moody, Row, areal_flow, waited
from tests.integrations.packages import STATISTICS, Rubric
from tests.support.samples import issues, make_sample, scores


@pytest.mark.parametrize(("package", "module", "make"), [
    ("openenv", "openenv", lambda: openenv_rubric("math_verify_reward")),
    ("areal", "areal", lambda: areal_workflow("math_verify_reward", None, None)),
    ("skyrl-gym", "skyrl", lambda: skyrl_reward("math_verify_reward")(extras={})),
])  # fmt: skip
def test_what_is_not_installed_is_named_with_its_pip_line(
    package: str, module: str, make: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package.replace("-", "_"), None)  # as if it were not there
    with pytest.raises(ConfigError, match=f"pip install {package}"):
        make()
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = importlib.import_module(f"rm_gallery.integrations.{module}").nothing


def told(messages: list[Any], ground_truth: Any = None, **columns: Any) -> dict[str, Any]:
    """What arrived, as the words of a score."""
    kept = {
        name: value
        for name, value in sorted(columns.items())
        if name in ("a", "b", "data_source", "style")
    }
    return {
        "score": 1.0,
        "reason": repr(([(m.role, m.text) for m in messages], ground_truth, kept)),
    }


@pytest.mark.parametrize(("extras", "columns"), [
    ({"reward_spec": {"ground_truth": "4", "style": "rule"}, "extra_info": {"a": 1}, "data_source": "x"},
     "'4', {'a': 1, 'data_source': 'x', 'style': 'rule'}"),
    ({"reward_model": {"ground_truth": "5"}, "extra_info": {"a": 1, "b": 2}, "b": 3}, "'5', {'a': 1, 'b': 2}"),
    ({"reward_spec": None, "extra_info": "x", "a": 1}, "None, {'a': 1}"),
    (None, "None, {}"),
])  # fmt: skip
def test_skyrl_columns_are_the_rows_fields_under_its_info_and_the_truth(
    extras: Any, columns: str, there: None
) -> None:
    env = skyrl_reward(told, worst=0.0)(extras=extras)
    env.init([{"role": "user", "content": "q"}])
    step = env.step("four")
    assert step["metadata"]["message"] == f"([('user', 'q'), ('assistant', 'four')], {columns})"
    assert SkyRLReward.aggregate_metrics([{"a": 1.0}, {"a": 2.0}]) == {"a": 1.5}


@reward_function(score_range=(0, None))
def first_length(messages: list[Any], **row: Any) -> float:
    return len(messages[0].text)


def test_areal_asks_with_the_messages_else_the_template_within_its_deadline(there: None) -> None:
    reward = areal_reward(first_length, worst=0.0)
    talk = [{"role": "user", "content": "four"}]
    assert (
        reward("templated", "x", [], [], messages=talk) == 4.0
        and reward("templated", "x", [], []) == 9.0
    )
    assert (
        reward(prompt="templated", completions=talk[:0], prompt_ids=[], completion_ids=[], a=1)
        == 9.0
    )
    other = areal_reward(
        reward_function(score_range=(0, None))(lambda messages, prompt=None, **row: prompt),
        messages="turns",
    )
    assert other("templated", "x", [], [], prompt=7, turns=talk) == 7.0, "a column may be called so"
    deadlines: list[tuple[Any, float]] = [
        (None, DEADLINE), ({"max_workers": 2}, DEADLINE), ({"deadline": 3.0}, 3.0),
        (RunOptions(), DEADLINE), (RunOptions(deadline=4.0), 4.0),
    ]  # fmt: skip
    for options, deadline in deadlines:
        assert areal_reward(Moody, options=options).scorer.options.deadline == deadline
    assert areal_reward(Moody, name="mine").__name__ == "mine"
    flow = areal_flow(first_length, enable_thinking=True, worst=0.0)
    assert waited(flow.arun_episode(None, {"completion": "x", "messages": talk})) == 4.0
    assert (
        waited(flow.arun_episode(None, {"completion": "x", "messages": 7})) == 9.0 and flow.thinks
    )


def test_areal_is_told_of_parts_and_of_what_got_no_score(there: None) -> None:
    flow = areal_flow(Moody)
    STATISTICS.clear()
    found = [
        waited(flow.arun_episode(None, {"completion": text})) for text in ("four", "none", "fail")
    ]
    assert found == [4.0, None, None]
    assert STATISTICS == [
        {"reward_unscored": 0.0, "reward/words": 1.0},
        *[{"reward_unscored": 1.0}] * 2,
    ]


class Say:
    """An action or an observation."""

    metadata: dict[str, Any]

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)


def test_a_rubrics_row_is_made_of_plain_fields_and_both_metadata(there: None) -> None:
    def asked(messages: list[Any], **columns: Any) -> dict[str, Any]:
        kept = {name: value for name, value in sorted(columns.items()) if len(name) == 1}
        return {
            "score": 1.0,
            "reason": repr((messages[0].text, kept, "done" in columns, "rubric_scores" in columns)),
        }

    seen = Say(
        prompt="q", a=1, o=object(), _p=2, done=True, metadata={"a": 5, "b": 6, "rubric_scores": {}}
    )
    action = Say(message="x", metadata={"b": 7, "c": 8})
    found = waited(openenv_rubric(asked, worst=0.0)(action, seen))
    assert found.outcome.reason == "('q', {'a': 1, 'b': 6, 'c': 8}, False, False)"
    mapped = waited(
        openenv_rubric(asked, worst=0.0, prompt=lambda seen: "mine")({"text": "x"}, {"a": 3})
    )
    assert mapped.outcome.reason == "('mine', {'a': 3}, False, False)"


@pytest.mark.parametrize(("action", "completion", "score"), [
    ("four", None, 4.0),
    ([{"role": "assistant", "content": "four"}], None, 4.0),
    (Say(message="four", n=3, metadata={}), None, 4.0),
    (Say(message="four", thought="x"), "thought", 1.0),
    (Say(message="four", thought="x"), lambda action: action.message * 2, 8.0),
    (Say(message="four", thought="x"), None, "which field of the Say is the answer.*; its fields: message, thought"),
    (Say(n=1), None, "its fields: n"),
    (Say(message="a"), "said", r"the Say has no field 'said' \(completion=\); its fields: message"),
])  # fmt: skip
def test_the_answer_of_an_action(action: Any, completion: Any, score: Any, there: None) -> None:
    rubric = openenv_rubric(Moody, completion=completion)
    if isinstance(score, str):
        with pytest.raises(ConfigError, match=score):
            waited(rubric(action, Say()))
    else:
        assert waited(rubric(action, Say())) == score


def test_an_outcome_travels_beside_its_number_and_parts_are_children(there: None) -> None:
    parts = {"score": 4.0, "metrics": {"a.b": {"score": 2.0}}}
    rubric = openenv_rubric(
        reward_function(score_range=(0, 4))(lambda messages, **row: parts), name="r"
    )
    seen = Say(metadata={})
    found = waited(rubric("x", seen))
    assert (float(found), found.outcome, rubric.outcome) == (4.0, rubric.outcome, found.outcome)
    assert seen.metadata == {"rubric_scores": {"r": 4.0, "r/a.b": 2.0}}
    assert {name: child.last_score for name, child in rubric.named_rubrics()} == {"a_b": 2.0}
    again = pickle.loads(pickle.dumps(copy.deepcopy(found)))
    assert type(again) is RubricScore and again.outcome == found.outcome
    ((_, child),) = rubric.named_rubrics()
    assert child.forward(None, None) == 2.0
    child.last_score = None
    with pytest.raises(ConfigError, match="a component has a score after its rubric was called"):
        child.forward(None, None)
    late = openenv_rubric(Moody, final_only=True)
    assert [waited(late("fail", Say(**step))) for step in ({}, {"done": False})] == [
        0.0,
        0.0,
    ] and late.outcome is None
    assert waited(late("four", Say(done=True))) == 4.0


def test_trls_harness_reads_the_columns_it_is_given() -> None:
    talk = SimpleNamespace(completion=Row("q", "It is 4.").talk, gold="4")
    for row in ({"gold": "4"}, lambda outcome: {"gold": outcome.gold}):
        assert RolloutReward("math_verify_reward", row=row, reference="gold")(talk) == 1.0
    assert (
        RolloutReward(Moody, name="mine").__name__ == "mine" and RolloutReward(Moody)(talk) == 8.0
    )


class Gives(Rubric):
    """What it is told to give, or what it makes of a step."""

    def __init__(self, value: Any = None, **parts: Rubric) -> None:
        super().__init__()
        self.value = value
        self._rubric_children.update(parts)

    def forward(self, action: Any, observation: Any) -> Any:
        for part in self._rubric_children.values():
            part(action, observation)
        if isinstance(self.value, Exception):
            raise self.value
        return self.value(action, observation) if callable(self.value) else self.value


class Later(Gives):
    """The same, awaited."""

    async def forward(self, action: Any, observation: Any) -> Any:
        await asyncio.sleep(0)
        return super().forward(action, observation)


@pytest.mark.parametrize("kind", [Gives, Later])
@pytest.mark.parametrize(("value", "score", "issue"), [
    (0.5, 0.5, []), (True, 1.0, []), (1e300, 1e300, []), (None, None, [("unscored", "no_score")]),
    (math.nan, None, [("failed", "invalid_score")]), ("0.5", None, [("failed", "invalid_score")]),
    (ValueError("no"), None, [("failed", "error")]),
    (RubricScore(0.0, Score(None, "m", status="failed", code="parse")), None, [("unscored", "parse")]),
    (RubricScore(0.5, scored(0.5)), 0.5, []),
])  # fmt: skip
def test_what_a_rubric_gives_is_a_score_or_none(
    kind: Any, value: Any, score: Any, issue: Any
) -> None:
    found = RubricReward(kind(value)).evaluate(make_sample("x"))
    assert (scores(found), issues(found)) == ([score], issue)


def test_a_step_is_made_of_the_sample_and_shows_no_labels() -> None:
    def look(action: Any, observation: Any) -> float:
        assert (str(action), action.message, str(observation), observation.prompt) == (
            "4",
            "4",
            "Why?",
            "Why?",
        )
        assert observation.messages == [{"role": "user", "content": "Why?"}] and observation.done
        return float(observation.metadata == {"reference": "4", "n": 1})

    asked = make_sample("4", query="Why?", metadata={"n": 1, "reference": "4"})
    assert scores(RubricReward(Gives(look)).evaluate(asked)) == [1.0]
    bare = RubricReward(Gives(lambda action, seen: float("reference" in seen.metadata)))
    assert scores(bare.evaluate(make_sample("4"))) == [0.0]
    assert scores(bare.evaluate(make_sample("4", reference="4"))) == [1.0]
    named = RubricReward(Gives(lambda action, seen: float(action.text)), action_field="text")
    assert scores(named.evaluate(make_sample("4"))) == [4.0]
    made = RubricReward(
        Gives(lambda action, seen: action + seen), to_step=lambda sample: (1.0, len(sample.output))
    )
    assert scores(made.evaluate(make_sample("4"))) == [2.0]


def test_each_sample_is_scored_by_a_copy_whose_members_have_scores_of_its_own() -> None:
    class Client:
        def __deepcopy__(self, memo: Any) -> Any:
            raise TypeError("cannot copy a client")

    class Skips(Gives):
        def forward(self, action: Any, observation: Any) -> Any:
            return float(len(action.message))

    inner, skipped = Skips(), Gives(1.0)
    tree = Gives(0.5, inner=inner)
    tree.client = Client()  # type: ignore[attr-defined]
    skipped.last_score = 0.25
    inner._rubric_children["skipped"] = skipped
    reward = RubricReward(tree)
    found = [RowScorer(reward).score("q", text).components for text in ("a", "bbb")]
    assert (
        found == [{"inner": 1.0}, {"inner": 3.0}]
        and inner.last_score is None
        and reward.name == "Gives"
    )


def test_a_rubrics_settings_and_members_are_its_identity() -> None:
    def settings(value: Any, **parts: Rubric) -> str:
        return RubricReward(Gives(value, **parts)).settings_hash

    called = Gives(1.0)
    called.last_score = 7.0
    assert settings(1.0) == settings(1.0) == RubricReward(called).settings_hash
    assert (
        len(
            {settings(1.0), settings(0.5), settings(1.0, a=Gives(1.0)), settings(1.0, a=Gives(0.5))}
        )
        == 4
    )
    for wrong in ("Half", object(), DataSample):
        with pytest.raises(
            ConfigError, match="give an object of a class derived from openenv's Rubric"
        ):
            RubricReward(wrong)
