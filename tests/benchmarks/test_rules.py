"""How samples add up, beyond what the golden files hold: clusters, parts, uncertainty, and figures as plain JSON."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.stats.intervals import Interval, wilson_interval
from rm_gallery.core.stats.margins import expected_best
from rm_gallery.gallery.benchmarks.base import benchmarks, get_benchmark
from rm_gallery.gallery.benchmarks.figures import one_line, plain
from rm_gallery.gallery.benchmarks.judgements import Judged, Status, cluster_of, sign, worst
from rm_gallery.gallery.benchmarks.prmbench import f_scores
from rm_gallery.gallery.benchmarks.rewardbench import SECTION_WEIGHTS
from rm_gallery.gallery.benchmarks.rules import Gathered
from rm_gallery.gallery.benchmarks.ties import ScoredRow, TiesRow, TiesTally, margin_term, ties_difference
from rm_gallery.report.evaluate import evaluate
from tests.benchmarks.judges import Steps
from tests.support.benchmarks import by_hand
from tests.support.samples import make_sample


@pytest.mark.parametrize("name", sorted(benchmarks()))
def test_nothing_scored_is_no_score(name: str) -> None:
    lost = [by_hand([1] * 6, (True,) * 3 + (False,) * 3, status="unscored", sample_id=str(k)) for k in range(3)]
    for judged in ([], lost):
        report = get_benchmark(name).score(judged)
        assert (report.score, report.ci95, report.n, report.n_scored) == (None, None, len(judged), 0)
        assert plain(report.to_dict()) == report.to_dict()


@pytest.mark.parametrize(
    ("name", "subsets", "right", "wrong"),
    [
        ("rewardbench", ("math-prm", "llmbar-natural", "shp"), 1, 1),
        ("rewardbench2", ("Math", "Focus"), 1, 3),
        ("rm_bench", ("chat", "code"), 3, 3),
    ],
)
def test_figures_of_many_samples_depend_on_no_order_and_no_seed(
    name: str, subsets: tuple[str, ...], right: int, wrong: int
) -> None:
    rng = random.Random(0)
    labels = (True,) * right + (False,) * wrong
    judged = [
        by_hand([float(rng.randrange(4)) for _ in labels], labels, subset=rng.choice(subsets), sample_id=str(k))
        for k in range(60)
    ]
    report = get_benchmark(name).score(judged)
    assert get_benchmark(name).score(random.Random(1).sample(judged, 60)).to_dict() == report.to_dict()
    assert report.ci95 is not None and report.score is not None and report.ci95.covers(report.score)
    assert get_benchmark(name).score(judged, seed=1).to_dict() == report.to_dict(), "no mean needs draws"


def test_the_uncertainty_of_a_section_is_that_of_its_heaviest_subset() -> None:
    """math-prm weighs six times a code subset: few rows there leave the section uncertain, however many there are elsewhere."""

    def pairs(subset: str, each: int) -> list[Judged]:
        return [by_hand(scores, subset=subset) for scores in [[1.0, 0.0]] * each + [[0.0, 1.0]] * each]

    code = [row for name in SECTION_WEIGHTS["Reasoning"] if name != "math-prm" for row in pairs(name, 100)]
    widths = []
    for each in (8, 400):
        found = get_benchmark("rewardbench").score(code + pairs("math-prm", each)).ci95
        assert found is not None
        widths.append(found.high - found.low)
    # half the weight on sixteen fair coins: 2 * 1.96 * 0.5 * 0.125
    assert widths[0] == pytest.approx(0.245, abs=0.02) and widths[1] < 0.06
    sums = {name: sum(weights.values()) for name, weights in SECTION_WEIGHTS.items()}
    assert sums == {"Chat": 358, "Chat Hard": 456, "Safety": 740, "Reasoning": 1968}


def test_problems_are_the_witnesses_not_their_variants() -> None:
    """Six variants of each problem, judged alike: the interval is that of the problems."""
    kinds = ("circular", "confidence", "counterfactual", "deception", "redundency", "missing_condition")

    def rows(copies: int) -> list[dict[str, object]]:
        return [
            {
                "idx": f"p{k}",
                "classification": kind,
                "modified_question": f"q {k}",
                "modified_process": ["right 1", "wrong 2" if k % 3 else "wrong x"],
                "error_steps": [2],
            }
            for k in range(40)
            for kind in kinds[:copies]
        ]

    def judge(sample: DataSample) -> list[float]:
        return [float(not (sample.output[0].steps or [])[-1].text.endswith("2"))]

    widths = [r.ci95.high - r.ci95.low for r in (evaluate(Steps(judge=judge), rows(n)) for n in (1, 6)) if r.ci95]
    assert widths[1] == pytest.approx(widths[0], rel=0.25)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (math.inf, None),
        (Interval(0.1, math.nan), [0.1, None]),
        ({"a": (1, {"b": math.nan})}, {"a": [1, {"b": None}]}),
        ({1: "x"}, {"1": "x"}),
        (1j, "1j"),
        (True, True),
    ],
)
def test_figures_are_told_in_plain_json(value: object, expected: object) -> None:
    assert plain(value) == expected


@pytest.mark.parametrize(
    ("parts", "whole"),
    [
        (["scored", "unscored", "failed", "stopped"], "failed"),
        (["unscored", "stopped", "scored"], "stopped"),
        (["scored", "unscored"], "unscored"),
        (["scored", "scored"], "scored"),
    ],
)
def test_one_lost_part_loses_the_whole(parts: list[Status], whole: Status) -> None:
    assert worst(parts) == worst(reversed(parts)) == whole


def _about(*turns: str, **metadata: str) -> DataSample:
    said = [{"role": ("user", "assistant")[k % 2], "content": text} for k, text in enumerate(turns)]
    return DataSample.model_validate({"input": said, "metadata": metadata or None})


def test_samples_of_one_prompt_are_one_cluster() -> None:
    assert cluster_of(_about("why?", subset="a")) == cluster_of(_about("why?", subset="b"))
    different = [("why?",), ("why not?",), ("why?", "so"), ("wh", "y?"), ("\ud800",)]
    assert len({cluster_of(_about(*turns)) for turns in different}) == len(different)
    assert cluster_of(_about("why?", cluster="7")) == cluster_of(_about("why not?", cluster="7")) == "7"
    assert cluster_of(_about("why?", cluster="")) == cluster_of(_about("why?"))
    assert cluster_of(DataSample(unique_id="x")) == "id:x", "no prompt, nothing shared"


def test_two_scores_as_a_verdict() -> None:
    pairs = [(2.0, 1.0), (1.0, 2.0), (1.0, 1.0), (None, 1.0), (1.0, None), (1.0, math.nan), (math.nan, 1.0)]
    assert [sign(*pair) for pair in pairs] == [1, -1, 0, None, None, None, None]


def test_parts_of_rows_that_share_an_id_do_not_meet() -> None:
    wholes = [make_sample(text, "b", "c", unique_id="same", chosen=0) for text in ("one", "two", "one")]
    parts = [[Judged(Gathered.part_of(whole, k, 2, (0, k + 1)), []) for k in range(2)] for whole in wholes]
    gathered = Gathered()
    given = [parts[0][0], parts[1][1], parts[2][0], parts[1][0], parts[2][1], parts[0][1]]
    found = [gathered.add(part) for part in given]
    assert found[:3] == [None] * 3 and found[3] == parts[1]
    assert found[4:] == [[parts[0][0], parts[2][1]], [parts[2][0], parts[0][1]]], "equal rows may change their parts"
    sample = parts[0][1].sample
    assert (sample.unique_id, [o.answer.text for o in sample.output]) == ("same/1", ["one", "c"])


def test_ties_that_all_behave_alike_are_not_known_exactly() -> None:
    tally = TiesTally()
    for k in range(1, 41):  # all right, by margins of all sizes
        tally.add_row(f"ref:{k}", [2.0 + k, 0.0], (True, False))
        tally.add_row(f"tied:{k}", [2.0 + k, 1.0 + k, 0.0], (True, True, False))
    figure, _ = tally.figure(0, "ties")
    assert figure.score == pytest.approx(1.01, abs=1e-3)
    assert figure.ci95 is not None and figure.ci95.low == pytest.approx(wilson_interval(40, 40).low, abs=0.02)


@pytest.mark.parametrize(
    ("gap", "spread", "term"),
    [
        (0.0, 0.0, 0.0),
        (-1.0, 0.0, -1.0),
        (2.0, 0.0, 1.0),
        (math.nan, 0.0, 0.0),
        (1.0, 1.0, 0.0),
        (1.0, 2.0, math.tanh(-0.5)),
        (math.inf, math.inf, 0.0),
        (-math.inf, 0.0, -1.0),
    ],
)
def test_the_margin_of_ties_has_the_limits_of_floating_point(gap: float, spread: float, term: float) -> None:
    assert margin_term(gap, spread) == term


def test_equal_infinities_are_no_distance_apart_and_what_reorders_text_is_a_space() -> None:
    row = TiesRow(math.inf, math.inf, math.inf, 1)
    assert (row.gap, row.spread) == (0.0, 0.0)
    assert one_line("a\ud800b\x1b\u202ec\u2028d\u2029 e") == "a b c d e"


def test_two_rewards_on_ties_are_compared_prompt_by_prompt() -> None:
    """Prompt 1 is right in both; in prompt 2 the second reward rates a wrong answer best in both rows."""
    ref, tied = (True, False), (True, True, False)
    first = [
        (f"{kind}:{k}", scores, right)
        for k in (1, 2)
        for kind, scores, right in (("ref", [5.0, 1.0], ref), ("tied", [5.0, 5.0, 1.0], tied))
    ]
    second = [*first[:2], ("ref:2", [1.0, 5.0], ref), ("tied:2", [1.0, 1.0, 5.0], tied)]
    found = ties_difference(first, second)
    # one of two prompts: half of everything, and the margin falls from 1 to (1 - 1) / 2
    assert found is not None and found.estimate == pytest.approx(1.01 - (0.5 + 0.01 * 0.0))
    assert found.bounds == pytest.approx((-1.02, 1.02)) and found.n_clusters == 2
    turned = ties_difference(second, first)
    assert turned is not None and turned.estimate == pytest.approx(-found.estimate)
    assert ties_difference([], []) is None
    lost: list[ScoredRow] = [("ref:1", [None, 1.0], ref), ("tied:1", [5.0, math.nan, 1.0], tied)]
    assert ties_difference(first, lost) is None, "a composite of nothing cannot be compared"
    assert ties_difference(first, second, seed=1) == ties_difference(first, second, seed=1)


@pytest.mark.parametrize(
    ("cells", "figures"),
    [
        ((2, 0, 1, 0), (1.0, 1.0)),
        ((0, 1, 0, 1), (-1.0, -1.0)),
        ((1, 0, 0, 0), (1.0, -1.0)),
        ((1, 0, 0, 1), (2 / 3, 0.0)),
        ((0, 0, 1, 1), (0.0, 2 / 3)),
        ((3, 1, 4, 2), (2 / 3, 8 / 11)),
    ],
)
def test_a_share_of_nothing_is_minus_one_in_prmscore(cells: tuple[int, ...], figures: tuple[float, float]) -> None:
    assert f_scores(*cells) == pytest.approx(figures)


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_the_expected_pick_is_the_mean_over_all_draws(k: int) -> None:
    scores, right = [3.0, 1.0, 3.0, 2.0, 1.0], [True, True, False, False, True]

    def pick(drawn: tuple[int, ...]) -> float:
        top = [place for place in drawn if scores[place] == max(scores[p] for p in drawn)]
        return sum(right[place] for place in top) / len(top)

    draws = [pick(drawn) for drawn in itertools.combinations(range(5), k)]
    # a tie is broken among all equally scored answers, drawn or not, which is the same on average
    assert expected_best(scores, right, k) == pytest.approx(sum(draws) / len(draws))
