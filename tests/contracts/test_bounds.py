"""Bounds hold every filling of missing scores, at every figure that states them.

Each figure is made once with scores missing and once with every filling of them by the ends of
their range: the bounds that it states are the least and the most of these. Benchmarks are held to
the same in `tests/benchmarks/test_contract.py`.
"""

from __future__ import annotations

import asyncio
import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rm_gallery import (
    BaseGrader,
    BasePairWiseReward,
    BasePointWiseReward,
    DataSample,
    GradingRunner,
    RewardResult,
    Unscored,
    conflicts,
    evaluate,
)
from rm_gallery.core.reward.schema import sample_of
from rm_gallery.gallery.rm.agentic.final_state import FinalStateReward
from rm_gallery.report.gate import under
from rm_gallery.study.compare import Difference, compare
from rm_gallery.study.grading import grade
from rm_gallery.study.rejudge import rejudge
from rm_gallery.study.select import JudgeSelection, judge_select
from rm_gallery.study.table import score_table
from rm_gallery.study.winrate import winrate
from tests.reward.rewards import ranked, scored

Scores = Mapping[str, float | None]
"""What is said of each text; None where it is missing."""


class Stated(NamedTuple):
    """A figure and the bounds that are stated with it."""

    value: float | None
    low: float
    high: float


class Says(BasePointWiseReward):
    """The score of an answer, by its text."""

    name: str = "says"
    score_range: tuple[float | None, float | None] = (0.0, 1.0)
    said: dict[str, float | None]

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        return scored(self.name, said_of(self.said, sample.output[0].answer.text))


class Prefers(BasePairWiseReward):
    """The first of a pair in any order wins by its number; a pair is known by its texts."""

    name: str = "prefers"
    said: dict[str, float | None]

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        first, second = (output.answer.text for output in sample.output)
        key = f"{first}|{second}"
        if key in self.said:
            return ranked(self.name, said_of(self.said, key), 0.5)
        return ranked(self.name, 0.5, said_of(self.said, f"{second}|{first}"))


class Grades(BaseGrader):
    name: str = "grades"
    said: dict[str, float | None]

    def _grade(self, query: str) -> float:
        return said_of(self.said, query)


def said_of(said: Scores, text: str) -> float:
    value = said[text]
    if value is None:
        raise Unscored("the judge is silent", reason="silent", cause="judge")
    return value


QUIET: dict[str, Any] = {"progress": False}


@contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as own:
        yield Path(own)


def pairs_of(said: Scores) -> list[dict[str, Any]]:
    """Pairs of one part each, by the texts `chosen K` and `rejected K`."""
    names = dict.fromkeys(text.split()[1] for text in said)
    return [
        {"id": k, "prompt": f"q{k}", "chosen": f"chosen {k}", "rejected": f"rejected {k}"}
        for k in names
    ]


# -- figures -------------------------------------------------------------------------------------


def of_compare(said: Scores) -> Stated:
    """Two runs over three pairs; `1:` and `2:` before a text say whose score it is."""
    with folder() as own:
        runs = []
        for name in ("1", "2"):
            mine = {key[2:]: value for key, value in said.items() if key.startswith(name)}
            evaluate(Says(said=mine), pairs_of(mine), run_dir=str(own / name), **QUIET)
            runs.append(own / name)
        (found,) = compare(*runs)
    whole: Difference = found.whole
    assert whole.bounds is not None
    return Stated(whole.paired.difference, *whole.bounds)


def of_gate(said: Scores) -> Stated:
    """The least limit that a gate refuses stands just above the worst case."""
    figures = evaluate(Says(said=dict(said)), pairs_of(said), **QUIET).to_dict()
    limits = [k / 60 for k in range(61)]
    passes = [least for least in limits if under(figures, least) is None]
    return Stated(figures["score"], max(passes), figures["bounds"][1])


def of_table(said: Scores) -> Stated:
    rows = [{"id": text, "prompt": f"q {text}", "answer": text} for text in said]
    figures = score_table(Says(said=dict(said)), rows, "prompt", "answer", **QUIET).to_dict()
    return Stated(figures["score"], *figures["bounds"])


def of_grade(said: Scores) -> Stated:
    runner = GradingRunner({"grades": Grades(said=dict(said))})
    report = grade(runner, [{"id": text, "query": text} for text in said], **QUIET).to_dict()
    figures = report["graders"]["grades"] if "graders" in report else report
    return Stated(figures["score"], *figures["bounds"])


def of_winrate(said: Scores) -> Stated:
    rows = [{"id": text, "prompt": f"q {text}", "a": text, "b": f"{text}, too"} for text in said]
    keyed = {f"{text}|{text}, too": value for text, value in said.items()}
    figures = winrate(Prefers(said=keyed), rows, "prompt", ["a", "b"], **QUIET).to_dict()
    return Stated(figures["score"], *figures["bounds"])


def judged(said: Scores, right: int = 2) -> JudgeSelection:
    """Two judges of labelled rows, of which the first are right."""
    rows = dict.fromkeys(key[2:] for key in said)
    made = {
        name: Grades(said={key[2:]: v for key, v in said.items() if key[0] == name})
        for name in ("1", "2")
    }
    data = [
        {"id": row, "query": row, "label": int(number < right)} for number, row in enumerate(rows)
    ]
    return judge_select(GradingRunner(made), data, "label", **QUIET)


def of_select(said: Scores) -> Stated:
    found = judged(said)
    (first, second) = found.judges
    low, high = found.differences["1", "2"].ends
    value = None
    if not (first.missing or second.missing):
        value = found.differences["1", "2"].paired.difference
    return Stated(value, low, high)


def of_judge(said: Scores) -> Stated:
    """The accuracy of one judge; its best is not stated."""
    one = judged(said).judges[0]
    return Stated(one.figures.get("accuracy"), one.worst["accuracy"], math.inf)


def of_conflicts(said: Scores) -> Stated:
    """Samples of two answers, asked in both orders; a conflict where both orders name the first."""

    class Order(BasePairWiseReward):
        name: str = "order"

        def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
            first, second = (output.answer.text for output in sample.output)
            if "too" in second:
                return ranked(self.name, 1.0, 0.0)
            return ranked(self.name, said_of(said, second), 0.5)

    samples = [sample_of(f"q {text}", text, f"{text}, too") for text in said]
    found = conflicts(Order(), samples, **QUIET)
    assert found.bounds is not None
    return Stated(found.figures["conflict"].value, *found.bounds)


def of_state(standing: Sequence[Mapping[str, Any]], **settings: Any) -> Callable[[Scores], Stated]:
    """Checks of a workspace, one a text: it holds where 1 is said, and cannot be made (its start is
    not known) where nothing is.
    """

    def figure(said: Scores) -> Stated:
        checks: list[dict[str, Any]] = []
        for value, more in zip(said.values(), standing, strict=True):
            made = {"kind": "file", "path": "a.txt", "equals": "4" if value else "5"}
            checks.append({**({"kind": "changes"} if value is None else made), **more})
        sample = sample_of("Do it.", "Done.", workspace={"a.txt": "4"}, checks=checks)
        verdict = asyncio.run(FinalStateReward(**settings).examine(sample))
        return Stated(verdict.value, *verdict.bounds)

    return figure


FORBIDDEN = {"forbidden": True}
PAIRS = {"chosen 0": 1.0, "rejected 0": 0.5, "chosen 1": 0.0, "rejected 1": 0.5}
RIGHT = {"chosen 2": None, "rejected 2": 0.5}
ROWS = {"a": 0.25, "b": 1.0, "c": None, "d": None}
CHECKS = {"a": 1.0, "b": 0.0, "c": None, "d": None}


def sides(first: Scores, second: Scores) -> Scores:
    return {
        f"{name}:{text}": value
        for name, side in (("1", first), ("2", second))
        for text, value in side.items()
    }


class Case(NamedTuple):
    figure: Callable[[Scores], Stated]
    said: Scores
    exact: bool = True
    """Whether the bounds are the least and the most of all fillings, and no wider."""


CASES = {
    "compare, one missing on either side": Case(
        of_compare, sides({**PAIRS, **RIGHT}, {**PAIRS, "chosen 1": None, "chosen 2": 1.0, "rejected 2": 0.5})
    ),
    "compare, the same missing in both": Case(of_compare, sides({**PAIRS, **RIGHT}, {**PAIRS, **RIGHT})),
    "compare, the second alone": Case(
        of_compare, sides({**PAIRS, "chosen 2": 1.0, "rejected 2": 0.5}, {**PAIRS, **RIGHT})
    ),
    "gate": Case(of_gate, {**PAIRS, **RIGHT}),
    "table": Case(of_table, ROWS),
    "grade": Case(of_grade, ROWS),
    "winrate": Case(of_winrate, {"a": 1.0, "b": 0.0, "c": None, "d": 1.0}),
    "conflicts": Case(of_conflicts, {"a": 0.0, "b": 1.0, "c": None, "d": None}),
    "select, one missing on either side": Case(
        of_select, sides({"a": 1.0, "b": None, "c": 0.0, "d": 1.0}, {"a": 0.0, "b": 1.0, "c": None, "d": 1.0})
    ),
    "select, the same missing in both": Case(
        of_select, sides({"a": 1.0, "b": None, "c": 0.0, "d": 1.0}, {"a": 0.0, "b": None, "c": 0.0, "d": 1.0})
    ),
    "judge": Case(
        of_judge, sides({"a": 1.0, "b": None, "c": 0.0, "d": None}, dict.fromkeys("abcd", 1.0)), exact=False
    ),
    "checks": Case(of_state([{}, {"weight": 2}, {}, {"weight": 3}]), CHECKS),
    "checks, one forbidden is missing": Case(of_state([{}, {}, {}, {**FORBIDDEN, "weight": 0.5}]), CHECKS),
    "checks, forbidden ones are missing": Case(
        of_state([{}, {}, FORBIDDEN, {**FORBIDDEN, "weight": 3}]), CHECKS
    ),
    "checks, a forbidden one fails": Case(of_state([{}, FORBIDDEN, {}, {}]), CHECKS),
    "checks, all or nothing": Case(
        of_state([{}, {}, FORBIDDEN, {}], all_or_nothing=True), {**CHECKS, "b": 1.0}
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_bounds_are_the_least_and_the_most_of_all_fillings(name: str) -> None:
    figure, said, exact = CASES[name]
    stated, lost = figure(said), [text for text, value in said.items() if value is None]
    filled = [
        figure({**said, **dict(zip(lost, corner, strict=True))}).value
        for corner in product((0.0, 1.0), repeat=len(lost))
    ]
    values = [value for value in filled if value is not None]
    assert lost and len(values) == 2 ** len(lost)
    assert stated.low - 1e-9 <= min(values) and max(values) <= stated.high + 1e-9
    if exact:
        assert (stated.low, stated.high) == pytest.approx((min(values), max(values)), abs=1e-9)


# -- gates of the lower end of an interval ---------------------------------------------------------


def gated(said: Scores) -> Iterator[tuple[str, Stated, float, Callable[[float], bool]]]:
    """Every figure that a gate holds at the lower end of its interval: its name, value and bounds,
    the interval's lower end, and whether a limit passes.
    """
    figures = evaluate(Says(said=dict(said)), pairs_of(said), **QUIET).to_dict()
    stated = Stated(figures["score"], *figures["bounds"])
    yield "gate", stated, figures["ci95"][0], lambda least: under(figures, least, True) is None
    rows = sides({text: said[text] for text in said if text.startswith("chosen")}, {})
    chosen = judged({**rows, **{f"2:{key[2:]}": 1.0 for key in rows}}, right=7)
    for measure, value in chosen.judges[0].figures.items():
        low, worst = chosen.judges[0].ci95[measure].low, chosen.judges[0].worst[measure]

        def passes(least: float, measure: str = measure) -> bool:
            return not chosen.missed({measure: least}, surely=True)

        yield measure, Stated(value, worst, math.inf), low, passes


def test_surely_counts_both_chance_and_what_is_missing() -> None:
    """The interval of what was judged knows nothing of the rows that were not."""
    said: dict[str, float | None] = {}
    for k in range(14):
        said |= {f"chosen {k}": float(k not in (3, 9)), f"rejected {k}": 0.5}
    said |= {"chosen 5": None, "chosen 12": None}
    names = []
    for name, (value, worst, _), low, passes in gated(said):
        assert value is not None and worst < value and low < value, name
        assert not passes(low) and not passes(worst), name
        assert passes(low + worst - value - 1e-9) and not passes(low + worst - value + 1e-9), name
        names.append(name)
    assert names == ["gate", "accuracy", "kappa", "spearman"]


# -- rows of one prompt ----------------------------------------------------------------------------

Estimate = tuple[float | None, Any]
"""A figure and its 95 % interval."""


def _estimate(figures: Mapping[str, Any]) -> Estimate:
    return figures["score"], figures["ci95"]


def table_of(texts: Sequence[str]) -> Estimate:
    rows = [{"id": str(k), "prompt": f"q {t}", "answer": t} for k, t in enumerate(texts)]
    return _estimate(score_table(Says(said=WORTH), rows, "prompt", "answer", **QUIET).to_dict())


def grade_of(texts: Sequence[str]) -> Estimate:
    rows = [{"id": str(k), "query": text} for k, text in enumerate(texts)]
    runner = GradingRunner({"grades": Grades(said=WORTH)})
    return _estimate(grade(runner, rows, **QUIET).to_dict())


def winrate_of(texts: Sequence[str]) -> Estimate:
    rows = [{"id": str(k), "prompt": f"q {t}", "a": t, "b": "mean"} for k, t in enumerate(texts)]
    return _estimate(winrate(Says(said=WORTH), rows, "prompt", ["a", "b"], **QUIET).to_dict())


def accuracy_of(texts: Sequence[str]) -> Estimate:
    rows = [
        {"id": str(k), "prompt": f"q {text}", "chosen": text, "rejected": "mean"}
        for k, text in enumerate(texts)
    ]
    return _estimate(evaluate(Says(said=WORTH), rows, **QUIET).to_dict())


def rejudged(texts: Sequence[str]) -> Estimate:
    rows = [
        {"messages": [{"role": "user", "content": f"q {text}"}, {"role": "assistant", "content": text}], "reward": 0.5}
        for text in texts
    ]  # fmt: skip
    difference = rejudge(Says(said=WORTH), rows, **QUIET).difference
    return difference.estimate, difference.ci95


def conflicting(texts: Sequence[str]) -> Estimate:
    samples = [sample_of(f"q {text}", text, "mean") for text in texts]
    finding = conflicts(FirstWins(said=WORTH), samples, **QUIET).figures["conflict"]
    return finding.value, finding.ci95


class FirstWins(Prefers):
    """The first answer, for what is worth less than half."""

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        texts = [output.answer.text for output in sample.output]
        first = WORTH[next(text for text in texts if text != "mean")]
        return (
            ranked(self.name, 1.0, 0.0)
            if (first or 0.0) < 0.5
            else ranked(self.name, *(float(text != "mean") for text in texts))
        )


WORTH: dict[str, float | None] = {
    **{f"text {k}": k * 3 % 8 / 8 for k in range(12)},
    "mean": 0.4,
}
CLUSTERED = {
    "score_table": table_of,
    "grade": grade_of,
    "winrate": winrate_of,
    "evaluate": accuracy_of,
    "rejudge": rejudged,
    "conflicts": conflicting,
}


@pytest.mark.parametrize("name", CLUSTERED)
def test_every_row_twice_tells_no_more_than_once(name: str) -> None:
    once = [text for text in WORTH if text != "mean"]
    (value, ci95), (again, twice) = CLUSTERED[name](once), CLUSTERED[name](once * 2)
    assert value is not None and again == pytest.approx(value)
    assert twice[0] <= ci95[0] < value < ci95[1] <= twice[1]
    assert twice[1] - twice[0] < 1.1 * (ci95[1] - ci95[0])
