"""Gates, cascades and weighted sums: what they score, what they do not ask, and what comes of parts
without a score.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any, ClassVar

import pytest

from rm_gallery import (
    BaseGrader,
    BaseListWiseReward,
    BasePairWiseReward,
    BasePointWiseReward,
    BaseReward,
    BaseStepWiseReward,
    Cascade,
    Combined,
    ConfigError,
    DataSample,
    FakeLLM,
    Gate,
    RewardRegistry,
    RewardResult,
    Score,
    Stage,
    Unscored,
    WeightedSum,
    rule,
)
from rm_gallery.core.engine.context import RunControl
from rm_gallery.core.reward.compose import Savings
from rm_gallery.core.reward.kinds import Listwise
from tests.golden import golden
from tests.reward.rewards import PointJudge, longest, ranked, scored
from tests.support.samples import make_sample, scores


class Words(BasePointWiseReward):
    """The number of words, up to ten; `?` cannot be judged, `!` breaks."""

    score_range: tuple[float | None, float | None] = (0.0, 10.0)
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

    score_range: tuple[float | None, float | None] = (0.0, 1.0)

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        text = sample.output[0].answer.text
        if "~" in text:
            raise Unscored("Not this one.", reason="not_applicable")
        return scored(self.name, float("<a>" in text))


class Flaws(Words):
    """Lower is better."""

    higher_is_better: bool = False


class Unbounded(Words):
    score_range: tuple[float | None, float | None] = (None, None)


class Lengths(BaseListWiseReward):
    """Compares all answers: 1 for the longest of them."""

    score_range: tuple[float | None, float | None] = (0.0, 1.0)

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        lengths = [len(output.answer.text) for output in sample.output]
        return ranked(self.name, *(float(n == max(lengths)) for n in lengths))


class Steps(BaseStepWiseReward):
    score_range: tuple[float | None, float | None] = (0.0, 1.0)

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        return scored(self.name, 0.5)


class Relevant(BaseGrader):
    threshold: float | None = 0.3

    def _grade(self, response: str) -> float:
        return 0.4 if "<a>" in response else 0.1


def composed(line: golden.Line) -> golden.Line:
    """What a composition of the rewards above is, and what it makes of answers."""
    made: BaseReward = eval(line["made"])
    Words.seen.clear()
    found = [output.answer.reward for output in made.evaluate(make_sample(*line["answers"])).output]
    extra = found[0].extra_data.get(made.name, {})
    return {
        "scores": [said.score for said in found],
        "issues": [
            [i.status, i.reason, i.message.partition(":")[0]] for said in found for i in said.issues
        ]
        or None,
        "asked": sorted(Words.seen) or None,
        "range": made.score_range,
        "higher_is_better": made.higher_is_better,
        "stages": extra.get("stages"),
        "metrics": list(extra.get("metrics", ())) or None,
    }


EXPECTED = ("scores", "issues", "asked", "range", "higher_is_better", "stages", "metrics")


@pytest.mark.parametrize("path", golden.files("compositions"))
def test_compositions(path: Path) -> None:
    golden.check(path, composed, EXPECTED)


class Pairs(BasePairWiseReward):
    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        return ranked(self.name, 1.0, 0.0)


class InThrees(BaseListWiseReward):
    """Judges all answers, and is tried by three at a time."""

    kind = Listwise("listwise", compares=True, trial_size=3)
    score_range = (0.0, 9.0)

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> Score[Any]:
        return Score(tuple(float(len(output.answer.text)) for output in sample.output))


def test_a_part_of_a_kind_of_ones_own_that_compares_is_shown_all_answers() -> None:
    whole = WeightedSum({"a": InThrees()})
    assert (whole.kind, whole.compares) == ("listwise", True)
    assert scores(whole.evaluate(make_sample("a", "ab", "abc"))) == [1.0, 2.0, 3.0]


def test_the_kind_of_compositions_in_diamond_form_is_found_once_for_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was found anew at each use: 2^8 times for eight sums of which each holds the one before
    twice.
    """
    asked: list[str] = []

    def parts(whole: WeightedSum) -> dict[str, BaseReward]:
        asked.append(whole.name)
        return dict(whole.rewards)

    monkeypatch.setattr(WeightedSum, "parts", parts)
    made: BaseReward = Tagged()
    for depth in range(8):
        made = WeightedSum({"a": made, "b": made}, name=f"sum {depth}")
    assert made.kind == "pointwise" and not made.compares
    assert max(map(asked.count, asked)) == 1


def test_a_copy_with_other_parts_has_their_kind() -> None:
    alone = WeightedSum({"a": Tagged()})
    group = alone.model_copy(update={"rewards": {"a": Lengths()}})
    assert (alone.kind, group.kind) == ("pointwise", "listwise")
    alone.rewards = group.rewards
    assert alone.kind == "listwise"
    assert pickle.loads(pickle.dumps(group)).kind == "listwise"
    assert scores(group.evaluate(make_sample("a", "b b"))) == [0.0, 1.0]


def test_what_was_said_by_another_reward_before_is_not_what_the_part_says() -> None:
    before = Words(name="before").evaluate(make_sample("~ !"))
    gate = Gate(Tagged(), Words(), name="gate")
    said = gate.evaluate(before).output[0].answer.reward.issues
    assert [(issue.status, issue.reason) for issue in said if issue.name == "gate"] == [
        ("unscored", "not_applicable")
    ]


def test_parts_tell_their_own_facts_under_names_of_their_own() -> None:
    names = list(WeightedSum([Words(), Words(), Tagged(), Words()]).parts())
    assert names == ["Words", "Words 2", "Tagged", "Words 3"]
    outer = Gate(Tagged(), Gate(Tagged(), Words(), name="inner"), name="outer")
    extra = outer.evaluate(make_sample("<a> x")).output[0].answer.reward.extra_data["outer"]
    assert extra["parts"]["inner"]["stages"] == {"Tagged": "passed", "Words": "decided"}
    compares = [Gate(Tagged(), then()).compares for then in (Words, Pairs, Lengths)]
    assert compares == [False, True, True]


def test_a_part_that_could_score_nothing_is_said_before_anything_is_asked() -> None:
    class Unready(Words):
        def check(self) -> None:
            raise ConfigError("no key")

    gates = Gate(Tagged(), Unready()), Gate(Unready(), Tagged(), threshold=1.0)
    for made in (*gates, WeightedSum([Tagged(), Unready()])):
        with pytest.raises(ConfigError, match="no key"):
            made.check()


def sure(**settings: Any) -> Cascade:
    small = Stage(Words(name="small"), stop_below=2.0, stop_above=5.0, **settings)
    return Cascade(Tagged(), small, Words(name="large"))


def test_what_is_saved_is_counted_in_the_results_in_the_run_and_in_its_folder(
    tmp_path: Path,
) -> None:
    reward, control = sure(), RunControl()
    samples = [make_sample("x", "<a> x y", unique_id=str(n)) for n in range(20)]
    done = reward.evaluate_batch(samples, control=control, max_workers=4)
    saved = {"Tagged": Savings(40, 0), "small": Savings(20, 20), "large": Savings(20, 20)}
    assert reward.savings(done) == saved
    assert reward.savings(done)["large"].share == 0.5 and Savings(0, 0).share == 0.0
    assert control.skipped_by_gate == 40
    gate = Gate(Tagged(), PointJudge(llm=FakeLLM(reply=longest)), otherwise=0.0)
    control = RunControl()
    texts = [f"<a> {n}" if n % 4 == 0 else f"{n}" for n in range(40)]
    samples = [make_sample(text, unique_id=str(n)) for n, text in enumerate(texts)]
    done = gate.evaluate_batch(samples, control=control, run_dir=str(tmp_path / "run"))
    assert control.calls == 10
    assert control.skipped_by_gate == 30, "the judge behind a gate is asked about what passes alone"
    assert gate.savings(done)["PointJudge"] == Savings(10, 30)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text(encoding="utf-8"))
    assert (summary["spent"]["calls"], summary["spent"]["spared"]) == (10, 30)


def test_steps_count_as_the_one_score_of_their_output_and_hooks_reach_the_parts() -> None:
    sample = make_sample("<a>")
    sample.output[0].steps = [sample.output[0].answer.model_copy() for _ in "ab"]
    assert scores(WeightedSum([Tagged(), Steps()]).evaluate(sample)) == [1.5]
    gate = Gate(Tagged(), Words())
    assert scores(gate.evaluate(make_sample("<a>"), hooks={"bonus": 2.0})) == [3.0]


def test_another_part_or_setting_is_another_reward() -> None:
    judges = [PointJudge(llm=FakeLLM(model=name)) for name in "ab"]
    made: list[BaseReward] = [Gate(Tagged(), judge, otherwise=0.0) for judge in judges]
    made += [
        Gate(Tagged(), Words(), **more) for more in ({}, {"threshold": 0.5}, {"otherwise": -1.0})
    ]
    made += [
        Gate(Tagged(), Flaws()),
        WeightedSum([Words()]),
        WeightedSum([Words()], {"Words": 2.0}),
    ]
    hashes = [reward.settings_hash for reward in made]
    assert len(set(hashes)) == len(made)
    assert [pickle.loads(pickle.dumps(reward)).settings_hash for reward in made] == hashes


@pytest.mark.parametrize(
    ("higher", "answer", "said"),
    [(True, "x", "small is 1, below 2"), (False, "x x x", "small is 3, above 2")],
)
def test_a_cascade_says_on_which_side_it_stopped(higher: bool, answer: str, said: str) -> None:
    class Counted(Words):
        higher_is_better = higher

    reward = Cascade(Stage(Counted(name="small"), stop_below=2.0), Words(name="large"))
    found = reward.evaluate(make_sample(answer)).output[0].answer.reward.details[0]
    assert said in (found.reason or "")


def test_a_normalised_sum_weighs_parts_on_one_scale_and_keeps_their_direction() -> None:
    parts = {"words": Words(name="words"), "flaws": Flaws(name="flaws")}
    made = WeightedSum(parts, weights={"words": 1.0, "flaws": -0.5}, normalize=True)
    assert made.score_range == (-0.5, 1.0) and made.pays() == {
        "words": (0.0, 1.0),
        "flaws": (-0.5, 0.0),
    }
    [output] = made.evaluate(make_sample("one two three four")).output
    assert made.score_of_output(output) == pytest.approx(0.4 - 0.5 * 0.4)
    metrics = output.answer.reward.extra_data[made.name]["metrics"]
    assert {name: found["score"] for name, found in metrics.items()} == {"words": 0.4, "flaws": 0.4}
    raw = WeightedSum(parts, weights={"words": 1.0, "flaws": -0.5})
    assert raw.pays() == {"words": (0.0, 10.0), "flaws": (-5.0, 0.0)}
    assert raw.settings_hash != made.settings_hash
    assert "normalize" not in raw.describe(), "sums of earlier runs are still the same"


def test_parts_that_outweigh_their_weights_are_named() -> None:
    def said(**weights: float) -> list[str]:
        return WeightedSum(
            {"words": Words(name="words"), "tagged": Tagged(name="tagged")}, weights=weights
        ).uneven()

    assert said(words=1.0, tagged=1.0) == [], "no weight is the smaller one"
    assert said(words=0.1, tagged=1.0)[0].startswith(
        "'words' has the weight 0.1 and moves the sum by up to 1; 'tagged' has 1"
    )
    assert said(words=0.01, tagged=1.0)[0].startswith("'words'"), (
        "a hundredth of the weight and a tenth of the say"
    )
    assert said(words=-0.5, tagged=1.0)[0].startswith("'words' has the weight -0.5"), (
        "a penalty has a say, too"
    )
    assert said(words=0.0, tagged=1.0) == []
    reward = WeightedSum([Words(name="words"), Tagged(name="tagged")], weights={"words": 0.1})
    assert reward.notes()[0] == f"{reward.name} is paid by parts: words 0 to 1, tagged 0 to 1"


def test_a_part_is_named_once_in_the_reason_of_a_whole_without_a_score(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(RewardRegistry, "_classes", dict(RewardRegistry._classes))

    @rule("why_not")
    def why_not(answer: str) -> float:
        raise Unscored("why")

    wholes = Gate("why_not", Words()), Gate(Tagged(), "why_not"), Gate(Gate("why_not", Words(), name="in"), Words()), WeightedSum(["why_not"])  # fmt: skip
    for whole in wholes:
        [issue] = [each for each in whole.evaluate(make_sample("<a>")).output[0].answer.reward.issues if each.name == whole.name]  # fmt: skip
        assert issue.message.count("why_not") == 1, issue.message


class Median(Combined):
    """A formula of one's own: of the parts that have a score, of which two have to have one."""

    missing = "skip"
    least = 2

    def combine(self, scores: Mapping[str, float]) -> float:
        return median(scores.values())


def test_a_formula_of_ones_own_keeps_scales_missing_parts_and_their_least_number() -> None:
    @rule("level", score_range=(1, 5))
    def level(answer: str) -> float:
        return 1.0 + len(answer)

    @rule("unsure")
    def unsure(answer: str) -> float:
        raise Unscored("nothing to see", reason="nothing")

    make: Any = Median  # its constructor is that of `Combined`, which a type checker does not see
    parts = {"level": level, "right": "accuracy", "unsure": unsure}
    row = {"response": "42", "reference_response": "42"}
    found = make(parts).evaluate(row)
    assert (found.score, found.reason) == (0.75, "Median of level 0.5, right 1")
    alone = make({"level": level, "unsure": unsure}).evaluate(row)
    assert (alone.kind, alone.error_type) == ("error", "nothing")
    again = pickle.loads(pickle.dumps(make({"right": "accuracy", "too": "f1_score"})))
    assert again.evaluate(row).score == 1.0
