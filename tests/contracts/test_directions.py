"""A reward of which lower is better, with its scores turned, says the same at every door: the same
decision, and the mirrored figure.

The range is no share and lies about no zero, so that neither `-score` nor `1 - score` mirrors by
chance.
"""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import pytest

from rm_gallery import (
    BaseListWiseReward,
    BaseLLMReward,
    BasePairWiseReward,
    BasePointWiseReward,
    BaseReward,
    BaseStepWiseReward,
    BaseTrajectoryReward,
    Cascade,
    DataSample,
    Gate,
    GraderRank,
    GraderScore,
    GradingRunner,
    MessageRole,
    RewardResult,
    Score,
    Stage,
    Step,
    TurnRewards,
    Unscored,
    WeightedSum,
    audit,
    check_reward,
    conflicts,
    evaluate,
    fuzz_reward,
)
from rm_gallery.core.graders.base import as_grader
from rm_gallery.core.reward.schema import sample_of
from rm_gallery.gallery.benchmarks.base import benchmarks
from rm_gallery.integrations.trl_data import preference_rows, step_rows, unpaired_rows
from rm_gallery.report.gate import under
from rm_gallery.study.benchmark import evaluate_repeatedly
from rm_gallery.study.canaries import check_canaries
from rm_gallery.study.compare import compare
from rm_gallery.study.grading import grade
from rm_gallery.study.mix import check_mix
from rm_gallery.study.rejudge import rejudge
from rm_gallery.study.select import judge_select
from rm_gallery.study.table import score_table
from rm_gallery.study.winrate import winrate
from rm_gallery.train.live import LiveWatch
from rm_gallery.train.watch import watch
from tests.benchmarks.excerpts import rows_of
from tests.benchmarks.judges import KINDS, Judge
from tests.contracts.test_doors import DOORS as STUDIES
from tests.contracts.test_doors import OF_OPTIONS
from tests.integrations.adapters import ADAPTERS, Row, one_by_one
from tests.integrations.packages import installed
from tests.reward.rewards import ranked, scored

LOW, HIGH = -1.0, 3.0
QUIET: dict[str, Any] = {"progress": False}


def texts_of(sample: DataSample) -> list[str]:
    """Of each output the answer, or the last step that is shown."""
    return [(output.steps or [output.answer])[-1].text for output in sample.output]


def worth(sample: DataSample, text: str) -> float:
    """From LOW to HIGH by eighths: all for the reference, else by the length."""
    right = str(sample.reference() or "") or "42"
    share = 1.0 if text.strip() == right else (len(text) * 5 % 7) / 8
    return LOW + (HIGH - LOW) * share


class Up:
    """Scores an answer, or the last step that is shown; higher is better."""

    score_range: tuple[float | None, float | None] = (LOW, HIGH)
    name: str = "worth"
    higher_is_better: bool = True

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        values = [worth(sample, text) for text in texts_of(sample)]
        values = values if self.higher_is_better else [LOW + HIGH - value for value in values]
        several = isinstance(self, BaseListWiseReward | BasePairWiseReward)
        return ranked(self.name, *values) if several else scored(self.name, values[0])


class Point(Up, BasePointWiseReward):
    """One answer."""


class PointDown(Point):
    higher_is_better = False


class List(Up, BaseListWiseReward):
    """All answers to one prompt."""


class ListDown(List):
    higher_is_better = False


class Steps(Up, BaseStepWiseReward):
    """Every step."""


class StepsDown(Steps):
    higher_is_better = False


class Whole(Up, BaseTrajectoryReward):
    """A trajectory."""


class WholeDown(Whole):
    higher_is_better = False


PAIRS: dict[str, tuple[type[BaseReward], type[BaseReward]]] = {
    "pointwise": (Point, PointDown),
    "listwise": (List, ListDown),
    "stepwise": (Steps, StepsDown),
    "trajectory": (Whole, WholeDown),
}


class Side(NamedTuple):
    """One of the two directions."""

    down: bool

    def reward(self, kind: str = "pointwise", **settings: Any) -> BaseReward:
        return PAIRS[kind][self.down](**settings)

    def value(self, score: float | None) -> float | None:
        """What it is upwards."""
        return score if score is None or not self.down else LOW + HIGH - score

    def interval(self, ends: Sequence[float]) -> list[float]:
        turned = [round(self.value(end) or 0.0, 9) for end in ends]
        return turned[::-1] if self.down else turned

    def limit(self, upwards: float) -> float:
        return LOW + HIGH - upwards if self.down else upwards


SIDES = Side(False), Side(True)
WITHOUT_FIGURES = {"estimate", "prepare"}
"""What says what a run costs."""
BENCHMARKS = sorted(benchmarks())
TEXTS = ("one", "three", "sixteen", "twenty-one", "42", "forty two", "forty-three")
SAMPLE = sample_of("6 * 7?", *TEXTS)
ROWS = [
    {"id": str(k), "prompt": f"q{k}", "chosen": TEXTS[k % 7], "rejected": TEXTS[(3 * k + 1) % 7]}
    for k in range(8)
]
STEPS = sample_of(
    "6 * 7?",
    {"content": "42"},
)
STEPS = STEPS.model_copy(
    update={
        "output": [
            STEPS.output[0].model_copy(
                update={"steps": [Step(role=MessageRole.ASSISTANT, content=text) for text in TEXTS]}
            )
        ]
    }
)


# -- studies ---------------------------------------------------------------------------------------


def of_evaluate(side: Side, kind: str = "pointwise") -> Any:
    found = evaluate(side.reward(kind), ROWS, **QUIET).to_dict()
    assert 0.0 < found["score"] < 1.0
    gates = [
        under(found, least / 20, surely) is None for least in range(21) for surely in (False, True)
    ]
    return [found[name] for name in ("score", "ci95", "bounds", "by_subset", "baselines")], gates


def of_compare(side: Side) -> Any:
    with tempfile.TemporaryDirectory() as own:
        evaluate("length_baseline", ROWS, run_dir=f"{own}/a", **QUIET)
        evaluate(side.reward(), ROWS, run_dir=f"{own}/b", **QUIET)
        (found,) = compare(f"{own}/a", f"{own}/b")
    return found.whole.to_dict(), found.only_first, found.only_second, found.mcnemar_p


def of_repeats(side: Side) -> Any:
    return evaluate_repeatedly(side.reward(), ROWS, repeats=2, **QUIET).to_dict()["score"]


def of_winrate(side: Side) -> Any:
    found = winrate(side.reward(), ROWS, "prompt", ["chosen", "rejected"], **QUIET).to_dict()
    return [found[name] for name in ("score", "ci95", "bounds", "extra", "baselines")]


def of_table(side: Side) -> Any:
    found = score_table(side.reward(), ROWS, "prompt", "chosen", **QUIET).to_dict()
    return side.value(found["score"]), side.interval(found["ci95"]), side.interval(found["bounds"])


def labelled() -> list[dict[str, Any]]:
    return [
        {"id": str(k), "query": "6 * 7?", "response": text, "label": int(k % 7 in (1, 3, 4))}
        for k, text in enumerate(TEXTS * 2)
    ]


def of_grade(side: Side) -> Any:
    runner = GradingRunner({"worth": side.reward()})
    found = grade(runner, labelled(), labels="label", **QUIET).to_dict()
    (checked,) = found["extra"]["validation"].values()
    assert found["n_scored"] == len(TEXTS) * 2, "labels of people break no reward"
    own = ("accuracy", "kappa", "precision", "recall", "f1", "spearman", "accuracy_ci95")
    return side.interval([found["score"]] * 2), [checked.get(name) for name in own]


def of_select(side: Side) -> Any:
    runner = GradingRunner({
        "a": side.reward(), "b": as_grader(side.reward("trajectory"), name="b"),
    })  # fmt: skip
    found = judge_select(runner, labelled(), "label", **QUIET)
    return (
        found.best,
        found.shared,
        found.differences["a", "b"].ends,
        [(j.figures, j.worst) for j in found.judges],
    )


def of_canaries(side: Side) -> Any:
    asked = {"role": "user", "content": "6 * 7?"}
    rows = [
        {"messages": [asked, {"role": "assistant", "content": text}], "canary": mark}
        for mark, text in zip(("gold", "floor", "hacked", "gold", "hacked"), ("42", *TEXTS), strict=False)
    ]  # fmt: skip
    tried = check_canaries(side.reward(), rows).tried
    assert {one.level for one in tried} >= {"", "fault"}
    return [(one.name, one.level, side.value(one.scored.value)) for one in tried]


def of_check(side: Side) -> Any:
    found = check_reward(side.reward(), **QUIET)
    assert found.findings
    return [(one.name, one.level, one.where) for one in found.findings]


def of_fuzz(side: Side) -> Any:
    found = fuzz_reward(side.reward(), texts=20, **QUIET)
    assert found.passed
    return [(one.text, one.share, side.value(one.score)) for one in found.passed]


def of_mix(side: Side) -> Any:
    """A part of which lower is better is a penalty in a sum; by itself it is looked at alike."""
    sign = -1.0 if side.down else 1.0
    mixed: list[tuple[Any, float]] = [("accuracy", 1.0), (side.reward(), 0.5 * sign)]
    found = check_mix(mixed, normalize=True, full=1.0 if side.down else 1.5, **QUIET)
    assert found.parts["worth"].findings
    return [(one.name, one.where) for one in found.parts["worth"].findings]


def of_sum(side: Side, normalize: bool) -> Any:
    weights = {"worth": -0.25 if side.down else 0.25, "length": 0.001}
    parts = {"worth": side.reward(), "length": build("length_baseline")}
    if normalize:
        del parts["length"], weights["length"]
    return best(WeightedSum(parts, weights=weights, normalize=normalize))


def of_audit(side: Side) -> Any:
    found = audit(
        side.reward(),
        limit=2,
        probes=["range", "no_answer", "length", "length_correlation", "quality"],
        **QUIET,
    )
    shown = found.to_dict()["findings"]
    told = shown["range.ties"].pop("extra"), shown["range.saturation"].pop("what")
    extra, best_score = told[0], told[1].rpartition("(")[2].rstrip(")")
    ends = side.interval([extra["lowest"], extra["highest"]])
    return shown, ends, side.value(extra["most_common"]["score"]), side.value(float(best_score))


def of_conflicts(side: Side) -> Any:
    found = conflicts(side.reward("listwise"), [SAMPLE], **QUIET).to_dict()
    return found["figures"], found["examples"], found["bounds"]


def of_rejudge(side: Side) -> Any:
    asked = {"role": "user", "content": "6 * 7?"}
    rows = [
        {"messages": [asked, {"role": "assistant", "content": text}], "reward": side.value(k / 4)}
        for k, text in enumerate(TEXTS)
    ]
    found = rejudge(side.reward(), rows, **QUIET)
    assert found.n_both == len(TEXTS)
    sign = -1.0 if side.down else 1.0
    gap = found.difference
    figures = found.spearman, sign * (gap.estimate or 0.0), gap.p_value
    return found.changed, [None if each is None else round(each, 12) for each in figures]


# -- a reward's own doors and wrappers -------------------------------------------------------------


def build(name: str) -> BaseReward:
    from rm_gallery import RewardRegistry

    return RewardRegistry.create(name)


def best(reward: BaseReward, n: int = len(TEXTS)) -> list[str]:
    """The answers, best first."""
    return [output.answer.text for output in reward.best_of_n(SAMPLE, n=n).output]


def values(side: Side, reward: BaseReward) -> list[float | None]:
    done = reward.evaluate(SAMPLE)
    return [side.value(reward.score_of_output(output)) for output in done.output]


def of_gate(side: Side) -> Any:
    """The condition lets pass what is as good as its limit."""
    gate = Gate(side.reward(), side.reward(), threshold=side.limit(1.0))
    return values(side, gate), best(gate)


def of_cascade(side: Side) -> Any:
    stage = Stage(side.reward(), stop_below=side.limit(0.5), stop_above=side.limit(2.0))
    cascade = Cascade(stage, side.reward("trajectory"))
    return values(side, cascade), best(cascade)


def of_turns(side: Side) -> Any:
    turns = TurnRewards(outcome=side.reward())
    return values(side, turns)


def of_bridge(side: Side) -> Any:
    """A grader of a reward, and a reward of that grader."""
    grader = side.reward()
    fields: list[dict[str, Any]] = [{"query": "6 * 7?", "response": text} for text in TEXTS]
    graded = [grader.evaluate(**each) for each in fields]
    said = []
    for one in graded:
        assert isinstance(one, GraderScore)
        said.append((side.value(one.score), one.normalized, one.passed(side.limit(1.0))))
    return said, best(side.reward())


def of_ranks(side: Side) -> Any:
    grader = side.reward("listwise")
    found = grader.evaluate(query="6 * 7?", responses=list(TEXTS))
    assert isinstance(found, GraderRank) and grader.compares
    return found.rank


def of_rows(side: Side) -> Any:
    """The rows that trainers are given."""
    pairs = preference_rows([SAMPLE], side.reward(), pairs="all", gap=0.5, margin=True)
    single = unpaired_rows([SAMPLE], side.reward(), threshold=side.limit(0.5))
    middle = unpaired_rows([SAMPLE], side.reward("listwise"))
    steps = step_rows([STEPS], side.reward("stepwise"), threshold=side.limit(0.5))
    assert pairs and single and steps
    return list(pairs), list(single), list(middle), list(steps)


def of_live(side: Side) -> Any:
    """A held-out reward becomes worse while the trained one rises."""
    live = LiveWatch(side.reward(), share=1.0, baseline=5, window=5, on_finding="stop")
    for step in range(20):
        texts = ["42"] * 14 + list(TEXTS[:2]) if step < 8 else [*TEXTS[:2]] * 8
        live.step(step, texts, [step / 20] * len(texts), groups=list(range(len(texts))))
    found = [one for one in live.findings if one.kind == "apart"]
    assert found and live.stopped is found[0]
    ends = found[0].figures["held_out"]
    return side.value(ends["early"]), side.value(ends["late"]), live.p_value, live.state()["steps"]


def of_live_honest(side: Side) -> Any:
    """A held-out reward becomes better."""
    live = LiveWatch(side.reward(), share=1.0, baseline=5, window=5)
    for step in range(20):
        texts = [*TEXTS[:2]] * 8 if step < 8 else ["42"] * 16
        live.step(step, texts, [step / 20] * len(texts), groups=list(range(len(texts))))
    assert not {one.kind for one in live.findings} & {"apart", "fell"}
    return live.p_value


def of_watch(side: Side) -> Any:
    """A log whose component is a penalty: its weight says so."""
    rows = []
    for step in range(20):
        for n in range(32):
            right = LOW + (HIGH - LOW) * ((n + step) % 4 / 8 + step / 40)
            own = {"worth": side.value(right), "style": 1.0 - (n % 4 / 8 + step / 40)}
            said = {"step": step, "prompt": f"{step}-{n // 4}", "completion": f"text {n} {step}"}
            rows.append({**said, **own})
    found = watch(rows, weights={"worth": -1.0 if side.down else 1.0})
    assert {one.kind for one in found.findings} >= {"apart"}
    return [(one.kind, one.severity, one.components) for one in found.findings]


DOORS: dict[str, Callable[[Side], Any]] = {
    "evaluate": of_evaluate,
    "evaluate, listwise": lambda side: of_evaluate(side, "listwise"),
    "evaluate, trajectory": lambda side: of_evaluate(side, "trajectory"),
    "evaluate_repeatedly": of_repeats,
    "compare": of_compare,
    "winrate": of_winrate,
    "score_table": of_table,
    "grade": of_grade,
    "judge_select": of_select,
    "check_canaries": of_canaries,
    "check_reward": of_check,
    "fuzz_reward": of_fuzz,
    "audit": of_audit,
    "conflicts": of_conflicts,
    "rejudge": of_rejudge,
    "check_mix": of_mix,
    "WeightedSum": lambda side: of_sum(side, False),
    "WeightedSum, normalized": lambda side: of_sum(side, True),
    "best_of_n": lambda side: best(side.reward()),
    "best_of_n, listwise": lambda side: best(side.reward("listwise")),
    "Gate": of_gate,
    "Cascade": of_cascade,
    "TurnRewards": of_turns,
    "bridge": of_bridge,
    "ranks": of_ranks,
    "rows of trainers": of_rows,
    "live watch": of_live,
    "live watch, honest": of_live_honest,
    "watch": of_watch,
}


@pytest.mark.parametrize("name", DOORS)
def test_a_turned_reward_says_the_same(name: str) -> None:
    assert DOORS[name](Side(True)) == DOORS[name](Side(False))


def test_every_study_of_a_reward_is_a_door() -> None:
    """A new one gets a line in DOORS."""
    held = {name.partition(",")[0] for name in DOORS}
    of_rewards = {
        name
        for name in set(STUDIES) - OF_OPTIONS
        if {"reward", "runner", "targets"} & set(inspect.signature(STUDIES[name]).parameters)
    }
    assert of_rewards - held == WITHOUT_FIGURES


class Broken(Point):
    """Cannot read an answer that says so, by the answer's own doing."""

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        if "broken" in sample.output[0].answer.text:
            raise Unscored("no code block", reason="no_code", cause="answer")
        return super()._evaluate(sample, **kwargs)


class BrokenDown(Broken):
    higher_is_better = False


@pytest.fixture
def there() -> Iterator[None]:
    """Stand-ins for packages that are not installed."""
    with installed():
        yield


@pytest.mark.usefixtures("there")
@pytest.mark.parametrize("name", ADAPTERS)
def test_a_trainer_is_given_the_mirrored_scores_and_components(name: str) -> None:
    adapter = ADAPTERS[name]
    rows = [Row("6 * 7?", text, "42") for text in ("forty two", "42", "broken")]
    given = []
    for side, reward in zip(SIDES, (Broken(), BrokenDown()), strict=True):
        made = adapter.make(reward, **adapter.given)
        given.append([side.value(adapter.score(each)) for each in one_by_one(adapter, made, rows)])
    assert given[0] == given[1] and given[0][1:] == [HIGH, LOW]


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_benchmark_gives_a_turned_judge_the_same_figures(name: str) -> None:
    rows = rows_of(name)
    said: Judge = lambda sample: [len(text) % 9 / 8 for text in texts_of(sample)]  # noqa: E731
    turned: Judge = lambda sample: [1.0 - score for score in said(sample)]  # noqa: E731
    for kind in benchmarks()[name].kinds & {"pointwise", "stepwise", "trajectory"}:
        told = []
        for judge, higher in ((said, True), (turned, False)):
            body = {"higher_is_better": higher, "score_range": (0.0, 1.0)}
            made: Any = type("Shares", (KINDS[kind],), body)
            told.append(evaluate(made(judge=judge), rows, name, **QUIET).to_dict())
            for of_itself in ("seconds", "worth", "constant"):  # they show its scores as they are
                told[-1].pop(of_itself, None)
        assert told[0] == told[1]


class Falling(BaseReward):
    """Says of scores how they are to be read, and nothing of their range."""

    higher_is_better = False


class Bounded:
    """What is no reward may say it as well."""

    score_range = (LOW, HIGH)


class FallingPoint(Falling, Point):
    pass


class FallingPairs(Falling, BaseLLMReward, BasePairWiseReward):
    pass


class BoundedPoint(Bounded, Falling, BasePointWiseReward):  # type: ignore[misc]  # other types
    def _evaluate(self, sample: DataSample, **kwargs: Any) -> Score[float]:
        return Score(LOW)


@pytest.mark.parametrize(
    ("kind", "bounds"),
    [(FallingPoint, (LOW, HIGH)), (FallingPairs, (0.0, 1.0)), (BoundedPoint, (LOW, HIGH))],
)
def test_of_several_bases_the_one_that_says_more_of_scores_counts(
    kind: type[BaseReward], bounds: tuple[float, float]
) -> None:
    assert (kind.score_range, kind.higher_is_better) == (bounds, False)
    made = kind()
    assert (made.score_range, made.higher_is_better, made.worst_score) == (bounds, False, bounds[1])
