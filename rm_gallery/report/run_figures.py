"""The figures of a run, saved or so far, and what a reader has to know before trusting them, in
plain sentences: what the page, the gate, Markdown, JSON and JUnit all show.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, repeat, zip_longest
from typing import Any

from rm_gallery.core.stats import np
from rm_gallery.core.stats.columns import first_seen
from rm_gallery.core.stats.constant import Constancy
from rm_gallery.core.stats.denominator import worst_case_bounds
from rm_gallery.core.stats.intervals import shown_side
from rm_gallery.core.utils.shown import cut, number, percent, show, visible
from rm_gallery.gallery.benchmarks.figures import RULES, plain, uncertainty_of
from rm_gallery.gallery.benchmarks.lead import (
    COMPARED,
    between,
    count_of,
    ends_of,
    in_unit,
    may_praise,
    sides_of,
)
from rm_gallery.study.runs import KeptFigure, OpenRun, SampleRow
from rm_gallery.study.summary import GAME_KINDS, Part, Share, Summary
from rm_gallery.study.winrate_figures import mean_estimate

MANY_FLIPS = 0.2
SPENT = {
    "calls": "calls to the judge",
    "cached": "replies from the cache",
    "spared": "judgements a gate spared",
    "retries": "retries",
    "asked_again": "asked a second time",
    "input_tokens": "tokens read",
    "output_tokens": "tokens written",
}
LONGEST_LINE = 4_000
"""Bytes of a name or a sentence, at most."""
LOST = ("unscored", "failed", "stopped")


def figures_of(run: OpenRun, summary: Summary) -> dict[str, Any]:
    """The saved figures; for an unfinished run those of the samples so far, of the same shape and
    marked `partial`.
    """
    if run.report:
        return run.report
    manifest, kept = run.manifest, run.kept_figure
    reward, constant = _dict(manifest.get("reward")), _constant(summary)
    whole = Part()
    for part in summary.subsets.values():
        whole.merge(part)
    parts = {name: _partial_figure(part, kept) for name, part in sorted(summary.subsets.items())}
    names = _dict(manifest.get("columns")).get("answers") or ()
    sides = dict(zip("ab", names, strict=False)) if kept.rule == COMPARED else {}
    return {
        "partial": True,
        "n_whole": kept.n,
        "benchmark": manifest.get("benchmark") or "",
        "version": manifest.get("rule") or "",
        "reward": reward.get("name") or "the reward",
        "judge": _dict(reward.get("llm")).get("model"),
        **_partial_figure(whole, kept),
        "by_subset": parts if len(parts) > 1 else {},
        **({"extra": sides} if sides else {}),
        "reasons": summary.issues.sorted(),
        "lengths": summary.lengths.counts(),
        **({"constant": constant} if constant else {}),
    }


def _constant(summary: Summary) -> str:
    """What every score or verdict so far was, where all are the same."""
    seen, games = Constancy(), summary.positions.games.counts()
    verdicts = [
        (verdict, "")
        for verdict in (-1, 0, 1)
        for _ in range(min(2, games.get(GAME_KINDS[verdict + 1], 0)))
    ]
    seen.add(summary.answers.scores, verdicts)
    return seen.sentence()


def _dict(value: Any) -> dict[str, Any]:
    """A part of a file that is an object; an empty one where it is none."""
    return value if isinstance(value, dict) else {}


def _partial_figure(part: Part, kept: KeptFigure) -> dict[str, Any]:
    """The mean of the values so far. What is missing is what has no value and somebody caused; a
    scored sample may have none under a rule that is no mean over rows.
    """
    values, n = np.asarray(part.values), len(part.values)
    low, high = kept.scale
    # a grader's results may have another scale than the grader, and a file what no run writes
    scale = kept.scale if ((low <= values) & (values <= high)).all() else (-math.inf, math.inf)
    mean = mean_estimate(values, first_seen(np.asarray(part.clusters)), scale)
    total, missing = math.fsum(part.values), part.missing
    whole = worst_case_bounds(n + missing.total(), n, total, missing, scale)
    known = {"score": mean and mean.estimate, "missing": whole.missing, "bounds": whole.bounds}
    counts = {f"n_{status}": part.statuses[status] for status in ("scored", *LOST)}
    if kept.rule:  # as in a whole report, a sample is scored where it has a value
        counts["n_unscored"] += counts["n_scored"] - n
        counts["n_scored"] = n
    return {
        "rule": kept.rule,
        "n": part.statuses.total(),
        **counts,
        **({"chance": 0.5} if kept.rule == COMPARED else {}),
        **plain({**known, **uncertainty_of(mean)}),
    }


def rule_of(figures: Mapping[str, Any]) -> str:
    """The rule in a sentence."""
    rule = str(figures.get("rule") or "")
    if not rule:
        return "mean credit of the samples so far" if figures.get("partial") else "no rule named"
    return f"{rule}: {RULES[rule]}" if rule in RULES else rule


def title_of(figures: Mapping[str, Any], folder: str) -> str:
    """What a page is called unless somebody says: the two columns that were compared, else the
    reward and what it judged.
    """
    if figures.get("rule") == COMPARED and (names := sides_of(figures)):
        return f"{names[0]} against {names[1]}"
    return f"{figures.get('reward') or 'run'} on {figures.get('benchmark') or folder}"


def lost_of(figures: Mapping[str, Any]) -> list[str]:
    """How many samples have no score and why, one phrase a status."""
    return [f"{k:,} {status}" for status in LOST if (k := count_of(figures, f"n_{status}"))]


def findings(
    run: OpenRun, figures: Mapping[str, Any], summary: Summary
) -> Iterator[tuple[str, str]]:
    """(good, warn or info, sentence): what a reader has to know before trusting the figure."""
    if not run.finished:
        why = f": {figures['stopped']}" if figures.get("stopped") else ""
        yield (
            "warn",
            f"This run is not finished{why}. The figures are of the samples so far; the same "
            f"command continues it.",
        )
    praise = may_praise(figures)
    yield from (
        finding for finding in _baseline_findings(figures) if praise or finding[0] != "good"
    )
    yield from _extra_findings(figures.get("extra") or {})
    suspicion = figures.get("suspicion") or {}
    for sentence in map(str, suspicion.get("said") or ()):
        level = "warn" if suspicion.get("found") else "info"
        yield level, f"{sentence[:1].upper()}{sentence[1:]}."
    own = _dict(figures.get("figures"))
    for name, one in own.items():
        if (value := _dict(one).get("value")) is not None:
            yield "info", f"{name}: {percent(value)} (n = {one['n']:,}): {one['what']}."
    flips, first = summary.positions.flips, summary.positions.first
    # what a command says of orders by its own count stands alone
    if flips.n and not own:
        yield (
            ("warn" if (flips.value or 0) > MANY_FLIPS else "good" if praise else "info"),
            f"{percent(flips.value)} of {flips.n:,} pairs get another verdict when their order is "
            f"swapped; {_preference(first)}.",
        )
    elif first.n and not own:
        yield "info", f"Over {first.n:,} verdicts in one order, {_preference(first)}."
    counts = {
        "rows are equal to an earlier one and count like all others": "duplicates",
        "rows share their id with a different row; both count": "id_collisions",
        "rows did not fit and were left out": "skipped",
    }
    for what, name in counts.items():
        if count := count_of(figures, name):
            yield "warn", f"{count:,} {what}."
    if run.damage:
        yield "warn", f"{run.damage}."
    for note in figures.get("notes") or ():
        yield "info", str(note)


def _extra_findings(extra: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if (times := count_of(_dict(extra.get("repeats")), "n")) > 1:
        yield (
            "info",
            f"The figures are means of {times} repeats; the plots and samples below are those of "
            f"the first.",
        )
    for name, value in extra.items():
        what = str(name).removesuffix("_absent").replace("_", " ")
        if str(name).endswith("_absent") and isinstance(value, list | tuple) and value:
            yield (
                "warn",
                f"The data lack these {what} of the benchmark: {', '.join(map(str, value))}. The "
                f"score is of the others.",
            )


def _preference(first: Share) -> str:
    if first.ci95 is None:
        return "no verdict names a winner"
    remark = (
        "which a fair judge with its 50 % may do, too"
        if first.ci95.covers(0.5)
        else "other than the 50 % of a fair judge"
    )
    return f"what is shown first wins {percent(first.value)}, {remark}"


def _baseline_findings(figures: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    bounds = figures.get("ci95")
    if figures.get("score") is None or not bounds or figures.get("rule") == COMPARED:
        return
    beaten, missed = list[str](), list[str]()
    for name, value in (figures.get("baselines") or {}).items():
        if value is not None:
            side = shown_side(value, bounds, ends_of(figures))
            said = f"always taking the {name} answer ({percent(value)})"
            (beaten if side > 0 else missed).append(said)
    if beaten:
        yield "good", f"The whole interval lies above {_joined_names(beaten, 'and')}."
    if missed:
        yield (
            "warn",
            f"This run does not show that the reward does better than {_joined_names(missed, 'or')}.",
        )


def _joined_names(names: Sequence[str], last: str) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {last} {names[-1]}"


def further(extra: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Further figures of a rule as (name, value), nested ones with their path."""
    for key, value in extra.items():
        name = f"{prefix}{str(key).replace('_', ' ')}"
        if isinstance(value, Mapping):
            if "score" in value and "n" in value:
                bounds = f" ({between(value)})" if between(value) else ""
                yield (
                    name,
                    f"{in_unit(value, value['score'])}{bounds}, n = {count_of(value, 'n'):,}",
                )
            else:
                yield from further(value, f"{name} · ")
        elif isinstance(value, bool):
            yield name, "yes" if value else "no"
        elif isinstance(value, int):
            yield name, f"{value:,}"
        elif isinstance(value, float) and math.isfinite(value):
            yield name, show(value)
        elif (
            isinstance(value, list | tuple)
            and value
            and all(isinstance(item, str | int | float) for item in value)
        ):
            shown = [item if isinstance(item, str) else show(item) for item in value[:40]]
            yield name, (" – " if key == "ci95" else ", ").join(shown)
        elif isinstance(value, str) and len(value) < 200:
            yield name, value


def duration(seconds: float) -> str:
    """Seconds as people say them."""
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def single_line(text: str) -> str:
    """Text from outside on one line, hidden characters made visible."""
    return " ".join(
        "".join(" " if unicodedata.category(c) == "Zs" else c for c in visible(text)).split()
    )


def short_line(text: Any) -> str:
    """A text on one line, a huge one cut."""
    return single_line(cut(str(text), LONGEST_LINE))


def spent(run: OpenRun, figures: Mapping[str, Any], summary: Summary) -> list[tuple[str, str]]:
    """Calls, tokens, cost and time as (name, value), of all parts of the run where the folder
    tells.
    """
    usage = _dict(run.summary.get("spent")) or {
        **(figures.get("usage") or {}),
        "calls": figures.get("calls"),
        "cached": figures.get("cached"),
    }
    seconds = number(figures.get("seconds"))
    shown = [(name, f"{count_of(usage, key):,}") for key, name in SPENT.items() if usage.get(key)]
    shown += [
        (f"{name or 'the model'} answered as", single_line(ids)) for name, ids in run.served.items()
    ]
    if isinstance(usage.get("cost"), (int, float)):
        shown.append(("cost", f"{number(usage['cost']):,.4f} (in the currency of budget.prices)"))
    if seconds:
        shown.append(("time of the last part", duration(seconds)))
        if number(figures.get("calls")):
            shown.append(("calls per second", show(number(figures["calls"]) / seconds)))
    if summary.calls.again:
        shown.append(("questions put again (unreadable reply)", f"{summary.calls.again:,}"))
    return shown


def answers_of(row: SampleRow) -> Iterator[tuple[str, str | None, float | None, str | None]]:
    """Each answer of a sample with its label, score and reason; None where there is none."""
    known = zip_longest(row.labels, row.scores, row.reasons)
    for answer, (label, score, reason) in zip(
        row.answers, chain(known, repeat((None, None, None))), strict=False
    ):
        yield answer, label, score, reason


def figure_cells(figure: Mapping[str, Any]) -> tuple[str, str, str, str]:
    """Score, interval, n and what has no score, of a run or a part of it, as every table shows them."""
    score, lost = in_unit(figure, figure.get("score")), ", ".join(lost_of(figure)) or "0"
    return score, between(figure) or "–", f"{count_of(figure, 'n'):,}", lost
