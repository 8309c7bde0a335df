"""Gates, cascades and weighted sums: what they score, what they do not ask, and what comes of parts without a score."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from rm_gallery import DataSample, FakeLLM
from rm_gallery.core.engine.context import RunControl
from rm_gallery.core.graders.base import BaseGrader
from rm_gallery.core.reward.base import (
    BaseListWiseReward,
    BasePairWiseReward,
    BasePointWiseReward,
    BaseReward,
    BaseStepWiseReward,
)
from rm_gallery.core.reward.compose import Cascade, Gate, Savings, Stage, WeightedSum
from rm_gallery.core.reward.schema import RewardResult
from rm_gallery.core.runner.build import build_reward
from rm_gallery.core.utils.errors import ConfigError, Unscored
from tests.reward.rewards import PointJudge, longest, ranked, scored
from tests.support.samples import issues, make_sample, scores


class Words(BasePointWiseReward):
    """The number of words, up to ten; `?` cannot be judged, `!` breaks."""

    score_range: ClassVar[tuple[float | None, float | None]] = (0.0, 10.0)
    seen: ClassVar[list[str]] = []

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        text = sample.output[0].answer.text
        Words.seen.append(text)
        if "?" in text:
            raise Unscored("A question cannot be judged.", reason="no_reference")
        if "!" in text:
            raise OSError("disk full")
        return scored(self.name, float(len(text.split())) + kwargs.get("bonus", 0.0), "counted")


class Tagged(BasePointWiseReward):
    """1 for an answer in tags, 0 for none; `~` cannot be judged."""

    score_range: ClassVar[tuple[float | None, float | None]] = (0.0, 1.0)

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        text = sample.output[0].answer.text
        if "~" in text:
            raise Unscored("Not this one.", reason="not_applicable")
        return scored(self.name, float("<a>" in text))


class Flaws(Words):
    """Lower is better."""

    higher_is_better: ClassVar[bool] = False


class Unbounded(Words):
    score_range: ClassVar[tuple[float | None, float | None]] = (None, None)


class Lengths(BaseListWiseReward):
    """Compares all answers: 1 for the longest of them."""

    score_range: ClassVar[tuple[float | None, float | None]] = (0.0, 1.0)

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        lengths = [len(output.answer.text) for output in sample.output]
        return ranked(self.name, *(float(n == max(lengths)) for n in lengths))


class Steps(BaseStepWiseReward):
    score_range: ClassVar[tuple[float | None, float | None]] = (0.0, 1.0)

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        return scored(self.name, 0.5)


class Relevant(BaseGrader):
    threshold: float | None = 0.3

    def _grade(self, response: str) -> float:
        return 0.4 if "<a>" in response else 0.1


@pytest.fixture(autouse=True)
def _nothing_seen() -> None:
    Words.seen.clear()


def asked() -> list[str]:
    return sorted(Words.seen)


# -- gates -----------------------------------------------------------------------------------------------------------------

GATES: list[tuple[Callable[[], BaseReward], list[str], list[float | None], list[str]]] = [
    (lambda: Gate(Tagged(), Words()), ["<a> x y", "x y"], [3.0, 0.0], ["<a> x y"]),
    (lambda: Gate(Tagged, Words, otherwise=-1.0), ["<a> x y", "x y"], [3.0, -1.0], ["<a> x y"]),
    (lambda: Gate(Relevant(), Words()), ["<a> x y", "x y"], [3.0, 0.0], ["<a> x y"]),
    (lambda: Gate(Relevant(), Words(), threshold=0.5), ["<a> x y"], [0.0], []),
    (lambda: Gate(Flaws(), Tagged(), threshold=2.0), ["<a> x", "<a> x y z"], [1.0, 0.0], ["<a> x", "<a> x y z"]),
    (lambda: Gate(Tagged(), Flaws()), ["<a> x", "x"], [2.0, 10.0], ["<a> x"]),
    (lambda: Gate(Tagged(), Unbounded(), otherwise=-100.0), ["<a>", "x"], [1.0, -100.0], ["<a>"]),
    (lambda: Gate(Tagged(), Gate(Flaws(), Words(), threshold=2.0)), ["<a> x", "<a> x y", "x"], [2.0, 0.0, 0.0], []),
    (lambda: Gate("think_format", Words()), ["x"], [0.0], []),
    (lambda: Gate(Tagged(), Lengths()), ["<a> x", "far too long", "<a> x y"], [0.0, 0.0, 1.0], []),
    (lambda: Gate(Words(), Words(), threshold=2.0 + 5e-10), ["x y"], [2.0], ["x y", "x y"]),  # but for rounding
    (lambda: Gate(Words(), Words(), threshold=2.0 + 5e-9), ["x y"], [0.0], ["x y"]),
    (lambda: Gate(Flaws(), Words(), threshold=2.0 - 5e-10), ["x y"], [2.0], ["x y", "x y"]),
    # normalised where the ranges differ, the worst for what is stopped
    (lambda: Cascade(Stage(Tagged(), stop_above=1.0), Words()), ["<a>", "x x x x x"], [1.0, 0.5], ["x x x x x"]),
    (lambda: Cascade(Stage(Tagged(), stop_below=0.5, stop_above=2.0), Flaws()), ["x", "<a> y"], [0.0, 0.8], ["<a> y"]),
    (
        lambda: Cascade(Stage(Flaws(), stop_below=3.0, stop_above=1.0), Tagged()),
        ["x", "x y", "x y z z"],
        [0.9, 0.0, 0.0],
        [],
    ),
]


@pytest.mark.parametrize(("make", "answers", "expected", "reached"), GATES)
def test_a_gate_scores_as_what_it_guards_and_asks_no_more(
    make: Callable[[], BaseReward], answers: list[str], expected: list[float | None], reached: list[str]
) -> None:
    gate = make()
    assert scores(gate.evaluate(make_sample(*answers))) == [pytest.approx(score) for score in expected]
    if reached:
        assert asked() == sorted(reached)


class Pairs(BasePairWiseReward):
    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        return ranked(self.name, 1.0, 0.0)


@pytest.mark.parametrize(
    ("made", "bounds", "better"),
    [
        (lambda: Gate(Tagged(), Words()), (0.0, 10.0), True),
        (lambda: Gate(Tagged(), Words(), otherwise=20.0), (0.0, 20.0), True),
        (lambda: Gate(Tagged(), Words(), otherwise=-1.0), (-1.0, 10.0), True),
        (lambda: Gate(Tagged(), Flaws()), (0.0, 10.0), False),
        (lambda: Gate(Tagged(), Unbounded(), otherwise=0.0), (None, None), True),
        (lambda: Cascade(Stage(Tagged(), stop_below=0.5, stop_above=1.0), Flaws()), (0.0, 1.0), True),
    ],
)
def test_range_and_direction_are_those_of_what_decides(made: Any, bounds: Any, better: bool) -> None:
    assert (made().score_range, made().higher_is_better) == (bounds, better)


def test_a_last_stage_without_a_score_leaves_none_whatever_it_says_of_the_next() -> None:
    last = Stage(Words(), no_score="next")
    for first in (Stage(Words(name="first"), stop_below=0.0), Stage(Tagged(), stop_below=0.0, no_score="next")):
        assert issues(Cascade(first, last).evaluate(make_sample("~ ?"))) == [("unscored", "no_reference")]


def test_what_was_said_by_another_reward_before_is_not_what_the_part_says() -> None:
    before = Words(name="before").evaluate(make_sample("~ !"))
    gate = Gate(Tagged(), Words(), name="gate")
    said = gate.evaluate(before).output[0].answer.reward.issues
    assert [(issue.status, issue.reason) for issue in said if issue.name == "gate"] == [("unscored", "not_applicable")]


def test_parts_tell_their_own_facts_under_names_of_their_own() -> None:
    assert list(WeightedSum([Words(), Words(), Tagged(), Words()]).parts()) == ["Words", "Words 2", "Tagged", "Words 3"]
    outer = Gate(Tagged(), Gate(Tagged(), Words(), name="inner"), name="outer")
    extra = outer.evaluate(make_sample("<a> x")).output[0].answer.reward.extra_data["outer"]
    assert extra["parts"]["inner"]["stages"] == {"Tagged": "passed", "Words": "decided"}
    assert (Gate(Tagged(), Words()).compares, Gate(Tagged(), Pairs()).compares, Gate(Tagged(), Lengths()).compares) == (
        False,
        True,
        True,
    )


def test_a_part_that_could_score_nothing_is_said_before_anything_is_asked() -> None:
    class Unready(Words):
        def check(self) -> None:
            raise ConfigError("no key")

    for made in (
        Gate(Tagged(), Unready()),
        Gate(Unready(), Tagged(), threshold=1.0),
        WeightedSum([Tagged(), Unready()]),
    ):
        with pytest.raises(ConfigError, match="no key"):
            made.check()


@pytest.mark.parametrize(
    ("answer", "issue", "asks"),
    [
        ("~ <a>", ("unscored", "not_applicable"), False),
        ("<a> ?", ("unscored", "no_reference"), True),
        ("<a> !", ("failed", "error"), True),
    ],
)
@pytest.mark.parametrize("make", [lambda: Gate(Tagged(), Words()), lambda: Cascade(Tagged(), Words())])
def test_a_part_without_a_score_leaves_none(
    make: Callable[[], BaseReward], answer: str, issue: tuple[str, str], asks: bool
) -> None:
    found = make().evaluate(make_sample(answer, "x"))
    assert scores(found) == [None, 0.0]
    assert issues(found) == [issue]
    assert found.output[0].answer.reward.issues[0].message.startswith("Words: " if asks else "Tagged: ")
    assert bool(asked()) is asks


# -- cascades --------------------------------------------------------------------------------------------------------------


def sure(**settings: Any) -> Cascade:
    small = Stage(Words(name="small"), stop_below=2.0, stop_above=5.0, **settings)
    return Cascade(Tagged(), small, Words(name="large"))


@pytest.mark.parametrize(
    ("answer", "score", "stages"),
    [
        ("x", 0.0, ["stopped", "not asked", "not asked"]),
        ("<a>", 0.0, ["passed", "stopped", "not asked"]),
        ("<a> x y", 3.0, ["passed", "passed", "decided"]),
        ("<a> x x x x x", 6.0, ["passed", "decided", "not asked"]),
    ],
)
def test_a_cascade_ends_with_the_stage_that_decides(answer: str, score: float, stages: list[str]) -> None:
    reward = sure()
    found = reward.evaluate(make_sample(answer))
    assert scores(found) == [score]
    said = found.output[0].answer.reward.extra_data["Cascade"]
    assert list(said["stages"].values()) == stages
    assert list(said["metrics"]) == [
        n for n, s in zip(["Tagged", "small", "large"], stages, strict=True) if s != "not asked"
    ]


@pytest.mark.parametrize(("no_score", "status"), [("stop", ["unscored"]), ("next", ["unscored", "unscored"])])
def test_a_small_judge_that_cannot_tell_hands_over_where_it_is_told_to(no_score: str, status: list[str]) -> None:
    found = sure(no_score=no_score).evaluate(make_sample("<a> x ?"))
    stages = found.output[0].answer.reward.extra_data["Cascade"]["stages"]
    assert list(stages.values())[1:] == [*status, "not asked"][:2]
    assert issues(found) == [("unscored", "no_reference")]


def test_what_is_saved_is_counted_in_the_results_in_the_run_and_in_its_folder(tmp_path: Path) -> None:
    reward, control = sure(), RunControl()
    samples = [make_sample("x", "<a> x y", unique_id=str(n)) for n in range(20)]
    done = reward.evaluate_batch(samples, control=control, max_workers=4)
    assert reward.savings(done) == {"Tagged": Savings(40, 0), "small": Savings(20, 20), "large": Savings(20, 20)}
    assert reward.savings(done)["large"].share == 0.5 and Savings(0, 0).share == 0.0
    assert control.spared == 40
    gate, control = Gate(Tagged(), PointJudge(llm=FakeLLM(reply=longest)), otherwise=0.0), RunControl()
    samples = [make_sample(f"<a> {n}" if n % 4 == 0 else f"{n}", unique_id=str(n)) for n in range(40)]
    done = gate.evaluate_batch(samples, control=control, run_dir=str(tmp_path / "run"))
    assert (control.calls, control.spared) == (10, 30), "the judge behind a gate is asked about what passes alone"
    assert gate.savings(done)["PointJudge"] == Savings(10, 30)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text(encoding="utf-8"))
    assert (summary["spent"]["calls"], summary["spent"]["spared"]) == (10, 30)


# -- sums ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "answer", "expected", "bounds"),
    [
        (lambda: WeightedSum([Tagged(), Words()]), "<a> x", 3.0, (0.0, 11.0)),
        (lambda: WeightedSum({"tags": Tagged(), "n": Words()}, {"tags": 2.0, "n": 0.1}), "<a> x", 2.2, (0.0, 3.0)),
        (lambda: WeightedSum({"tags": Tagged, "n": Words}, {"n": -0.1}), "<a> x", 0.8, (-1.0, 1.0)),
        (lambda: WeightedSum({"tags": Tagged, "flaws": Flaws}, {"flaws": -1.0}), "<a> x", -1.0, (-10.0, 1.0)),
        (lambda: WeightedSum({"tags": Tagged, "n": Unbounded}, {"n": 0.0}), "<a> x", 1.0, (0.0, 1.0)),
        (lambda: WeightedSum([Tagged(), Unbounded()]), "<a> x", 3.0, (None, None)),
        (lambda: WeightedSum([Words(), Words()]), "<a> x", 4.0, (0.0, 20.0)),
        (lambda: WeightedSum([Gate(Tagged(), Words()), Lengths()]), "<a> x", 3.0, (0.0, 11.0)),
    ],
)
def test_a_sum_by_weight(make: Callable[[], BaseReward], answer: str, expected: float, bounds: Any) -> None:
    reward = make()
    assert scores(reward.evaluate(make_sample(answer))) == pytest.approx([expected])
    assert reward.score_range == bounds


def test_steps_count_as_the_one_score_of_their_output_and_hooks_reach_the_parts() -> None:
    sample = make_sample("<a>")
    sample.output[0].steps = [sample.output[0].answer.model_copy(), sample.output[0].answer.model_copy()]
    assert scores(WeightedSum([Tagged(), Steps()]).evaluate(sample)) == [1.5]
    assert scores(Gate(Tagged(), Words()).evaluate(make_sample("<a>"), hooks={"bonus": 2.0})) == [3.0]
    many = WeightedSum({"n": Words, "more": Words}, {"n": 1e308, "more": 1e308}).evaluate(make_sample("x y"))
    assert (
        issues(many) == [("failed", "invalid_score")]
        and "no finite number" in many.output[0].answer.reward.issues[0].message
    )


def test_a_sum_without_one_of_its_parts_is_none() -> None:
    found = WeightedSum({"tags": Tagged(), "n": Words()}).evaluate(make_sample("<a>", "~ !", "~", "x ?"))
    assert scores(found) == [2.0, None, None, None]
    assert issues(found) == [("failed", "error"), ("unscored", "not_applicable"), ("unscored", "no_reference")]
    assert "tags: Not this one." in found.output[1].answer.reward.issues[0].message


# -- doors, identity, refusals ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Gate(Tagged(), Words()), Gate(Tagged(), Words(), threshold=0.5)),
        (Gate(Tagged(), Words()), Gate(Tagged(), Flaws())),
        (Gate(Tagged(), Words()), Gate(Tagged(), Words(), otherwise=-1.0)),
        (
            Gate(Tagged(), PointJudge(llm=FakeLLM(model="a")), otherwise=0.0),
            Gate(Tagged(), PointJudge(llm=FakeLLM(model="b")), otherwise=0.0),
        ),
        (WeightedSum([Words()]), WeightedSum([Words()], {"Words": 2.0})),
    ],
)
def test_another_part_or_setting_is_another_reward(one: BaseReward, other: BaseReward) -> None:
    assert one.settings_hash != other.settings_hash
    assert one.settings_hash == pickle.loads(pickle.dumps(one)).settings_hash


FILE = """
from rm_gallery import FakeLLM, Gate, RewardRegistry
from tests.reward.test_compose import Tagged, Words
gated = Gate(Tagged(), Words(), name="gated")
judge = RewardRegistry.create("base_helpfulness_pointwise", llm=FakeLLM(reply=lambda prompt: "<score>4</score>"))
class Mine(Words): pass
"""


def test_a_composition_in_a_file_has_a_name_for_every_door(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(FILE, encoding="utf-8")
    file = f"func:{tmp_path / 'mine.py'}"
    gate = build_reward(f"{file}:gated", {"max_workers": 3})
    assert (gate.name, gate.max_workers, gate.kind) == ("gated", 3, "pointwise")
    assert scores(pickle.loads(pickle.dumps(gate)).evaluate(make_sample("<a> x", "x"))) == [2.0, 0.0]
    assert scores(build_reward(f"{file}:judge").evaluate(make_sample("x"))) == [4.0]
    assert scores(build_reward(f"{file}:Mine").evaluate(make_sample("x y"))) == [2.0]
    with pytest.raises(ConfigError, match="threshold"):
        build_reward(f"{file}:gated", {"threshold": 1.0})


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: Gate(Tagged()), "Gate"),
        (lambda: Gate("no_such_reward", Words()), "no_such_reward"),
        (lambda: Gate(3, Words()), "3"),
        (lambda: Gate(Tagged(), Words(), otherwize=1), "otherwise"),
        (lambda: Gate(Unbounded(), Words()), "threshold"),
        (lambda: Gate(Tagged(), Unbounded()), "otherwise"),
        (lambda: Gate(Tagged(), Words(), threshold=float("nan")), "stop_below"),
        (lambda: Cascade(Tagged()), "stages"),
        (lambda: Cascade(Tagged(), Stage(Words(), stop_below=1.0)), "comes last"),
        (lambda: Cascade(Stage(Words(), stop_below=3.0, stop_above=1.0), Words()), "stop_above"),
        (lambda: Cascade(Stage(Words(), stop_above=3.0), Unbounded()), "range"),
        (lambda: WeightedSum([]), "rewards"),
        (lambda: WeightedSum([Words()], {"Word": 2.0}), "Words"),
        (lambda: WeightedSum([Words()], {"Words": float("inf")}), "finite"),
        (lambda: WeightedSum([Flaws()]), "negative"),
    ],
)
def test_what_cannot_be_composed_is_said(make: Callable[[], BaseReward], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        make()
