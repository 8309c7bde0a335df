"""What holds of every measure of agreement: clusters are counted, not rows, and an interval and its
p-value say one thing.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from rm_gallery import GradingRunner
from rm_gallery.core.stats import agreement
from rm_gallery.core.stats.intervals import Interval
from rm_gallery.core.stats.uncertainty import Estimate, difference
from rm_gallery.core.stats.validation import precision_recall_f1, validate
from rm_gallery.study.grading import grade
from rm_gallery.study.select import judge_select
from rm_gallery.study.table import score_table

Labels = NDArray[np.int64]
Measure = Callable[[Labels, Labels, Any], Estimate | None]


def measures() -> dict[str, Measure]:
    """Those of the module by name, kappa and alpha with each of their distances, and those of
    verdicts.
    """
    found: dict[str, Measure] = {}
    for name, estimate in inspect.getmembers(agreement, inspect.isfunction):
        if not name.endswith("_estimate"):
            continue
        several = "ratings" in inspect.signature(estimate).parameters

        def of(a: Labels, b: Labels, clusters: Any, _of: Any = estimate, _in: bool = several, **more: Any) -> Any:  # fmt: skip
            rows = a.tolist(), b.tolist()
            return _of(*([rows] if _in else rows), clusters=clusters, **more)

        found[name] = of
    for metric in ("ordinal", "interval"):
        of_alpha = partial(found["krippendorff_alpha_estimate"], metric=metric)  # type: ignore[call-arg]
        found[f"alpha, {metric}"] = of_alpha
    for weights in ("linear", "quadratic"):
        of_kappa = partial(found["cohen_kappa_estimate"], weights=weights)  # type: ignore[call-arg]
        found[f"kappa, {weights}"] = of_kappa
    for part in ("precision", "recall", "f1"):
        found[part] = lambda a, b, clusters, _part=part: precision_recall_f1(  # type: ignore[misc]
            a > 1, b > 1, clusters
        )[_part]
    return found


def drawn(seed: int, n: int = 60) -> tuple[Labels, Labels]:
    """Two raters of `n` units on a scale of four, who agree on some more or less."""
    rng = np.random.default_rng(seed)
    first = rng.integers(0, 4, n)
    alike = rng.random(n) < rng.uniform(0.2, 1.1)
    return first, np.where(alike, first, rng.integers(0, 4, n))


def ends(figure: Estimate | None) -> Interval:
    assert figure is not None
    found = figure.interval()
    assert found is not None
    return found


def width(figure: Estimate | None) -> float:
    low, high = ends(figure)
    return high - low


@pytest.mark.parametrize("name", measures())
def test_every_measure_counts_clusters(name: str) -> None:
    of = measures()[name]
    for seed in range(12):
        a, b = drawn(seed)
        alone = of(a, b, None)
        assert alone is not None and len(alone.pulls) == len(a)
        assert alone.pulls.sum() == pytest.approx(0.0, abs=1e-9)
        assert alone.weights.sum() == pytest.approx(1.0)
        # rows in clusters never say more than independent ones
        for k in (20, 6, 3):
            clusters = np.random.default_rng(seed).integers(0, k, len(a))
            assert width(of(a, b, clusters)) >= width(alone) - 1e-9
        # copies say nothing new
        copies = np.tile(np.arange(len(a)), 3)
        many = np.tile(a, 3), np.tile(b, 3)
        assert width(of(*many, copies)) > width(of(*many, None))
        # one prompt that stands twice changes little: it made intervals four times as wide
        once = of(np.append(a, a[0]), np.append(b, b[0]), np.append(np.arange(len(a)), 0))
        assert width(once) == pytest.approx(width(alone), rel=0.2)


@pytest.mark.parametrize("name", measures())
def test_every_measure_says_one_thing(name: str) -> None:
    of = measures()[name]
    for seed in range(6):
        a, b = drawn(seed)
        single = of(a, b, np.zeros(len(a)))
        assert single is not None and single.interval() is None and single.p_value(0.0) is None
        for clusters in (None, np.arange(len(a)) // 3):
            figure = of(a, b, clusters)
            assert figure is not None
            low, high = ends(figure)
            for null in np.linspace(-0.95, 0.95, 39):
                if figure.bounds[0] <= null and min(abs(null - low), abs(null - high)) > 1e-6:
                    p = figure.p_value(float(null))
                    assert p is not None and (p < 0.05) == (not low <= null <= high), null
            nothing = difference(figure, figure)
            assert nothing.estimate == 0.0 and nothing.p_value(0.0) == 1.0


@pytest.mark.parametrize("name", sorted(set(measures()) - {"recall", "f1", "precision"}))
def test_labels_of_one_value_have_no_interval(name: str) -> None:
    """Whatever is said of them, such labels tell of no agreement beyond chance."""
    of, said = measures()[name], drawn(0)[0]
    for first, labels in ((said, said * 0 + 2), (said * 0 + 2, said * 0 + 2)):
        found = of(first, labels, None)
        several_raters = name not in OF_LABELS
        assert found is None or (several_raters and (first != labels).any()), found


OF_LABELS = {"label_kappa_estimate", "spearman_estimate", "kendall_tau_b_estimate"}
"""What holds a judge against labels; the others take all raters for alike."""


def printed_intervals(kept: Any, path: str = "") -> Iterator[str]:
    """Where figures hold an interval of a measure beyond chance, or of an order."""
    for name, value in kept.items() if isinstance(kept, dict) else ():
        here = f"{path}.{name}"
        if value is not None and any(m in here for m in ("kappa", "spearman", "kendall")):
            if name.endswith("ci95") or isinstance(value, dict) and "ci95" in value:
                yield here
        yield from printed_intervals(value, here)


@pytest.mark.parametrize("label", [0, 1])
def test_no_figure_keeps_an_interval_of_kappa_with_labels_of_one_value(label: int) -> None:
    rows = [{"query": f"{n}", "response": "x" * (n % 10), "ok": label} for n in range(40)]

    def length(response: str) -> float:
        return len(response) / 10

    graders = {"long": length, "short": lambda response: 1 - length(response)}
    runner = GradingRunner(graders, show_progress=False)
    report = grade(runner, rows, labels="ok").to_dict()
    assert not list(printed_intervals(report["extra"]["validation"]))
    assert "unknown, since all scores or all labels are the same" in report["worth"]
    selection = judge_select(runner, rows, "ok", second_labels="ok").figures_kept()
    kept = {name: one for name, one in selection.items() if name != "worth"}
    assert not list(printed_intervals(kept)), kept
    table = [
        {"prompt": f"question {n}", "answer": f"answer {n}", "ok": label, "s": n % 2}
        for n, row in enumerate(rows)
    ]
    scored = score_table("column:s", table, "prompt", "answer", labels="ok").to_dict()
    assert not list(printed_intervals(scored)), scored
    told = validate([0.1, 0.9] * 20, [label] * 40, threshold=0.5).to_dict()
    assert not list(printed_intervals(told))


@pytest.mark.parametrize("name", measures())
def test_units_without_a_rating_do_not_count(name: str) -> None:
    """A `None` beside them leaves every figure as it was, in rows that still fit others."""
    if name in ("precision", "recall", "f1"):
        made = precision_recall_f1([1, 1, 0, None, 1], [1, 0, 1, 1, None])[name]
        bare = precision_recall_f1([1, 1, 0], [1, 0, 1])[name]
    else:
        of: Any = measures()[name]
        a, b = drawn(3)
        lone = None if name.startswith("fleiss") else 2
        gaps = np.append(a.astype(object), [None, lone]), np.append(b.astype(object), [None, None])
        made, bare = of(*gaps, None), of(a, b, None)
    assert made is not None and bare is not None and len(made.pulls) == len(bare.pulls) + 2
    assert made.estimate == bare.estimate and made.n == bare.n
    assert ends(made) == pytest.approx(ends(bare))
