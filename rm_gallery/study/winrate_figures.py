"""Figures of answers compared row by row: win rate, ties and flips, agreement with people,
subgroups, equal length, ranking; and their report in words.
"""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any, NamedTuple

from rm_gallery.core.stats import Bools, Floats, Integers, np
from rm_gallery.core.stats.agreement import label_kappa_estimate
from rm_gallery.core.stats.bradley_terry import bradley_terry, length_controlled
from rm_gallery.core.stats.corrected import corrected_mean, label_scale
from rm_gallery.core.stats.intervals import Interval
from rm_gallery.core.stats.significance import holm, sign_test_over
from rm_gallery.core.stats.uncertainty import Estimate, clustered_mean
from rm_gallery.gallery.benchmarks.figures import Report, hundredths, interval
from rm_gallery.gallery.benchmarks.judgements import Judged

_FEWEST_LABELS = 5
"""A subgroup with fewer labels is not corrected."""


_NOT_PLAYED = -9


def _win_of(before: int | None, after: int | None) -> float | None:
    """The win of the first of two answers, 0..1, by the verdict where it was shown first and that
    where it was shown second; None without either.
    """
    won = [x for x in (before, None if after is None else -after) if x is not None]
    return sum((1 + x) / 2 for x in won) / len(won) if won else None


def first_win(judged: Judged) -> float | None:
    """The win of the first column of answers over the second in a judged row; None without one."""
    if judged.status != "scored" or judged.metadata["columns"][:2] != [0, 1]:
        return None
    return _win_of(judged.verdict(0, 1), judged.verdict(1, 0))


@dataclass
class ComparedRows:
    """All rows of a table, in its order: what became of them, and what people and columns say about
    them; entries are None where unknown.
    """

    clusters: Integers
    """Per row the number of what it belongs to, an array."""
    labels: Sequence[float | None] | None = None
    probabilities: Sequence[float | None] | None = None
    groups: Mapping[str, Sequence[str | None]] = field(default_factory=dict)
    columns: int = 0
    """How many columns of answers are compared."""

    def __post_init__(self) -> None:
        n = len(self.clusters)
        self.people, self.chances = (
            np.full(n, math.nan) if column is None else np.array(column, dtype=np.float64)
            for column in (self.labels, self.probabilities)
        )
        """Labels and their probabilities as arrays; not a number where there is none."""
        self.pairs = {pair: k for k, pair in enumerate(combinations(range(self.columns), 2))}
        self.wins_by_pair = np.full((n, len(self.pairs)), math.nan)
        """Per row and pair of answer columns the win of the first, 1, 0.5 or 0, mean over the
        orders played.
        """
        self.orders = np.full((n, len(self.pairs), 2), _NOT_PLAYED, dtype=np.int8)
        """Of a pair that was played in both orders, what the answer shown first did: +1 won, 0
        tied, -1 lost.
        """
        self.lengths = np.full((n, self.columns), -1, dtype=np.int32)
        """Characters by answer column; -1 where there is no answer."""

    def add(self, row: int, judged: Judged) -> float | None:
        """Keep the comparisons that a judged row holds, and give the win of the first column over
        the second.
        """
        columns: list[int] = judged.metadata["columns"]
        texts = [output.answer.text for output in judged.sample.output]
        self.lengths[row, columns] = [len(text) or -1 for text in texts]
        if judged.status != "scored":
            return None
        for i, j in combinations(range(len(columns)), 2):
            before, after = judged.verdict(i, j), judged.verdict(j, i)
            win = _win_of(before, after)
            if win is None:
                continue
            pair = self.pairs[columns[i], columns[j]]
            self.wins_by_pair[row, pair] = win
            if judged.played_orders == 2 and before is not None and after is not None:
                self.orders[row, pair] = before, after
        first = float(self.wins_by_pair[row, 0])
        return None if math.isnan(first) else first

    def only(self, kept: Bools) -> ComparedRows:
        """The same of these rows alone, as if the others had not been judged."""
        rows = replace(self)
        for name in ("wins_by_pair", "orders", "lengths"):
            getattr(rows, name)[kept] = getattr(self, name)[kept]
        return rows

    def any_win(self, row: int) -> bool:
        """Whether any two answers of a row were compared."""
        return not np.isnan(self.wins_by_pair[row]).all()

    def wins(self, pair: tuple[int, int] = (0, 1)) -> Floats:
        """Per row the win of the first column of a pair, an array; not a number where there is
        none.
        """
        wins: Floats = self.wins_by_pair[:, self.pairs[pair]]
        return wins

    def subgroups(self) -> dict[str, Integers]:
        """The places of the rows of each subgroup, "column = value"."""
        return {
            f"{column} = {name}": np.array([k for k, other in enumerate(names) if other == name])
            for column, names in self.groups.items()
            for name in sorted({name for name in names if name is not None})
        }

    def corrected(
        self,
        values: Floats,
        null: float | None = None,
        bounds: tuple[float, float] = (0.0, 1.0),
        places: Any = slice(None),
    ) -> dict[str, Any]:
        """The mean of all rows, or of those at some places, from values and labels together, free of
        a judge's errors on average: with what it rests on and the p-value of "it is `null`".

        Without a `null` it is in the unit of the labels, whose scale may be another one, which all
        labels together show.
        """
        corrected = corrected_mean(
            values[places],
            self.people[places],
            clusters=self.clusters[places],
            probabilities=None if self.probabilities is None else self.chances[places],
            bounds=bounds if null is not None else label_scale(self.people, bounds),
        )
        return {
            "estimate": corrected.estimate,
            "ci95": corrected.ci95,
            "p_value": None if null is None else corrected.p_value(null),
            "method": corrected.method,
            "n": corrected.n,
            "n_labelled": corrected.n_labelled,
            "judge_alone": corrected.judge_mean,
            "labels_alone": corrected.labels_mean,
            "effective_labels": corrected.effective_labels,
            "notes": list(corrected.notes),
        }


class Mean(NamedTuple):
    """A mean with its 95 % interval over clusters, and a p-value that agrees with it; all None
    where nothing is known.
    """

    estimate: float | None
    ci95: Interval | None
    p_value: float | None

    @classmethod
    def of(cls, estimate: Estimate | None, null: float | None = None) -> Mean:
        """That of an estimate, with the p-value of "it is `null`"."""
        if estimate is None:
            return cls(None, None, None)
        p_value = None if null is None else estimate.p_value(null)
        return cls(estimate.estimate, estimate.interval(), p_value)


def named(**estimates: Estimate | None) -> dict[str, Any]:
    """Estimates by name, each with its interval behind it; None where nothing is known."""
    shown: dict[str, Any] = {}
    for name, estimate in estimates.items():
        shown[name], shown[f"{name}_ci95"], _ = Mean.of(estimate)
    return shown


def mean_of(values: Floats, clusters: Integers, null: float | None = None) -> Mean:
    """The mean of those of an array of values within 0..1 that are numbers, and the p-value of "it
    is `null`".
    """
    return Mean.of(mean_estimate(values, clusters), null)


def mean_estimate(
    values: Floats, clusters: Integers, bounds: tuple[float, float] = (0.0, 1.0)
) -> Estimate | None:
    """The mean of those of an array of values that are numbers; None without any."""
    known = ~np.isnan(values)
    return clustered_mean(values[known], clusters[known], bounds=bounds)


def counts_of(wins: Floats) -> dict[str, int]:
    """How many rows were won, lost and tied by the first."""
    won, lost, tied = (int(which.sum()) for which in (wins > 0.5, wins < 0.5, wins == 0.5))
    return {"wins": won, "losses": lost, "ties": tied}


def flips_of(rows: ComparedRows) -> dict[str, Any]:
    """How often the two orders of a row contradict each other over the first two columns, and which
    position that served; empty if one order was played.

    The p-value is that of the sign test on the contradictory rows alone, which sees a preference
    for a position best; over clusters where rows belong together, None of one cluster.
    """
    orders = rows.orders[:, 0]
    known = orders[:, 0] != _NOT_PLAYED
    if not known.any():
        return {}
    shown, clusters = orders[known], rows.clusters[known]
    flipped = (shown[:, 0] == shown[:, 1]) & (shown[:, 0] != 0)
    served = shown[flipped, 0]
    rate = mean_of(flipped.astype(float), clusters)
    return {
        "n": len(shown),
        "flips": len(served),
        "rate": rate.estimate,
        "ci95": rate.ci95,
        "first_preferred": int((served == 1).sum()),
        "second_preferred": int((served == -1).sum()),
        "position_p_value": sign_test_over(served, clusters[flipped]),
    }


def agreement_of(rows: ComparedRows) -> dict[str, Any]:
    """How far the judge's verdicts (won, tied, lost) are those of the labelled rows: share and
    Cohen's kappa, with intervals; beside them the share of rows in which chance (verdicts as
    frequent as the judge's, on rows of any order) and the longer answer say what people say.
    """
    places = np.flatnonzero(~np.isnan(rows.people + rows.wins()))
    if not len(places):
        return {"n": 0}
    labels = [winner(label) for label in rows.people[places].tolist()]
    verdicts = [winner(win) for win in rows.wins()[places].tolist()]
    share, kappa = accordance(verdicts, labels, rows.clusters[places])
    rate, ci95, _ = Mean.of(share)
    times, n = Counter(labels), len(places)
    chance = math.fsum(times[one] * k for one, k in Counter(verdicts).items()) / n**2
    agreement = {"n": n, "agreement": rate, "ci95": ci95, **named(kappa=kappa), "chance": chance}
    lengths = rows.lengths[places][:, :2]
    if (lengths >= 0).all():
        longer = [winner(first - second + 0.5) for first, second in lengths.tolist()]
        agreement["longest"] = sum(map(operator.eq, longer, labels)) / n
    pairs = zip(verdicts, labels, strict=True)
    table = Counter(f"judge {verdict}, people {label}" for verdict, label in pairs)
    return {**agreement, "table": dict(sorted(table.items()))}


def accordance(
    verdicts: Sequence[Any], labels: Sequence[Any], clusters: Integers
) -> tuple[Estimate | None, Estimate | None]:
    """In how many rows a judge says what people say, as a share and as Cohen's kappa."""
    hits = np.array(list(map(operator.eq, verdicts, labels)), dtype=np.float64)
    kappa = label_kappa_estimate(verdicts, labels, clusters=clusters)
    return mean_estimate(hits, clusters), kappa


def winner(win: float) -> str:
    """Who won a row, `a` or `b`, or `tie`."""
    return "a" if win > 0.5 else "b" if win < 0.5 else "tie"


def subgroups_of(rows: ComparedRows) -> dict[str, dict[str, Any]]:
    """Win rate by subgroup with its interval, and the p-value of "it is 50 %", Holm over all
    subgroups.
    """
    groups: dict[str, dict[str, Any]] = {}
    wins = rows.wins()
    for name, places in rows.subgroups().items():
        own = wins[places]
        part = groups[name] = {
            "n_scored": int((~np.isnan(own)).sum()),
            **mean_of(own, rows.clusters[places], 0.5)._asdict(),
        }
        if (~np.isnan(rows.people[places])).sum() >= _FEWEST_LABELS:
            part["corrected"] = rows.corrected(wins, 0.5, places=places)
    _adjust([part for part in groups.values() if part["p_value"] is not None])
    return groups


def _adjust(parts: Sequence[dict[str, Any]]) -> None:
    """Put p-values corrected for their number (Holm) beside them."""
    for part, p_value in zip(parts, holm([part["p_value"] or 0.0 for part in parts]), strict=True):
        part["p_holm"] = p_value


def equal_length_of(rows: ComparedRows) -> dict[str, Any]:
    """The win rate were both answers equally long."""
    first, second = np.where(rows.lengths < 0, math.nan, rows.lengths)[:, :2].T
    controlled = length_controlled(rows.wins(), first, second, clusters=rows.clusters)
    return {name: getattr(controlled, name) for name in ("estimate", "ci95", "length_effect", "n")}


def baselines_of(rows: ComparedRows, places: Integers) -> dict[str, float | None]:
    """What length alone would say: the win rate in these rows if the longer answer always won, or
    the shorter one.
    """
    lengths = rows.lengths[places]
    known = lengths[(lengths[:, :2] >= 0).all(axis=1)]
    wins = 0.5 + 0.5 * np.sign(known[:, 0] - known[:, 1])
    if not len(wins):
        return {}
    longest = float(wins.sum()) / len(wins)
    return {"longest": longest, "shortest": 1.0 - longest}


def ranking_of(rows: ComparedRows, names: Sequence[str]) -> dict[str, Any]:
    """The answer columns by Bradley–Terry strength, the strongest first, with prompt-level
    intervals and ranks.

    Strengths are log-odds around a mean of 0; an end of an interval that the results leave open is
    None. `win_rate` is that against all others.
    """
    played = [
        (names[i], names[j], float(win), int(cluster))
        for wins, cluster in zip(rows.wins_by_pair, rows.clusters, strict=True)
        for (i, j), win in zip(rows.pairs, wins, strict=True)
        if win == win
    ]
    if not played:
        return {}
    first, second, results, clusters = map(list, zip(*played, strict=True))
    ranking = bradley_terry(first, second, results, clusters=clusters)
    won = {
        name: math.fsum(
            win if a == name else 1.0 - win for a, b, win, _ in played if name in (a, b)
        )
        for name in names
    }
    systems = [
        {
            "answer": each.name,
            "strength": each.strength,
            "ci95": [end if math.isfinite(end) else None for end in each.ci95],
            "best_rank": each.best_rank,
            "worst_rank": each.worst_rank,
            "win_rate": won[each.name] / each.games if each.games else None,
            "n": each.games,
        }
        for each in ranking.systems
    ]
    return {"systems": systems, "notes": list(ranking.notes)}


def pairs_of(rows: ComparedRows, names: Sequence[str]) -> list[dict[str, Any]]:
    """The win rate of every pair of answer columns, with interval, counts, and p-values corrected
    for their number.
    """
    pairs: list[dict[str, Any]] = []
    for i, j in rows.pairs:
        wins = rows.wins((i, j))
        rate, ci95, p_value = mean_of(wins, rows.clusters, 0.5)
        if rate is not None:
            pair = {"a": names[i], "b": names[j], "win_rate": rate, "ci95": ci95}
            pairs.append({**pair, "p_value": p_value, **counts_of(wins)})
    _adjust(pairs)
    return pairs


# -- in words --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WinRateReport(Report):
    """How often one column of answers beats another, with what people and length say about it in
    `extra`.

    `score` is the win rate of a, ties counting half; `extra` holds a, b, wins, losses, ties, test
    (p_value of "50 %"), and where they apply flips, agreement, corrected, length_controlled,
    until_decided, pairs and ranking.
    """

    def says(self) -> list[str]:
        """The win rate in words, and what stands beside it."""
        return [*_in_words(self.extra), *super().says()]


def _in_words(extra: Mapping[str, Any]) -> list[str]:
    p = _p(extra.get("test", {}))
    lines = [f"what the judge alone says{p}"] if p else []
    if flips := extra.get("flips"):
        share = f"{hundredths(flips['rate'])} %, {interval(flips['ci95'])}"
        known = flips["position_p_value"]
        p = "" if known is None else f", p = {known:.3g} if order did not matter"
        lines.append(_FLIPS.format(share=share, p=p, **flips))
    if figures := extra.get("corrected"):
        estimate, judge = f"{_percent(figures)}{_p(figures)}", hundredths(figures["judge_alone"])
        lines += corrected_in_words(figures, estimate, hundredths, f"judge alone {judge}, ")
    if figures := extra.get("length_controlled"):
        lines.append(f"at equal length: {_percent(figures)}, n={figures['n']}")
    if figures := extra.get("until_decided"):
        lines.append(_DECIDED[figures["decided"]].format(ends=interval(figures["ci95"]), **figures))
    ranking = extra.get("ranking", {})
    for part in ranking.get("systems", ()):
        ends = zip(part["ci95"], ("-∞", "∞"), strict=True)
        low, high = (open_ if end is None else f"{end:+.2f}" for end, open_ in ends)
        rank = "–".join(dict.fromkeys((str(part["best_rank"]), str(part["worst_rank"]))))
        won = hundredths(part["win_rate"])
        lines.append(_RANK.format(rank=rank, low=low, high=high, won=won, **part))
    lines += ranking.get("notes", ())
    for name, part in extra.get("subgroups", {}).items():
        own, notes = part.get("corrected"), []
        if part.get("p_holm") is not None:
            notes.append(
                "judge alone p = {p_holm:.3g} for 50 %, counting all subgroups".format(**part)
            )
        notes += [f"corrected by labels {_percent(own)}"] if own else []
        lines += [f"{name}: {'; '.join(notes)}"] if notes else []
    return lines


_FLIPS = (
    "flips: {flips} of {n} rows are judged differently in the other order ({share}); "
    "{first_preferred} for the answer shown first, {second_preferred} for the second{p}"
)
_RANK = "rank {rank}: {answer}, strength {strength:+.2f} ({low} – {high}), wins {won} % of {n}"
_DECIDED = {
    False: "not decided after {n_sequence} {unit}: the interval that holds at every look is {ends}",
    True: "decided after {n_sequence} {unit}: the interval that holds at every look is {ends}; "
    "{rows_saved} of {rows} rows and {judgements_saved} judgements saved",
}
_CORRECTED = (
    "corrected by labels: {shown}, {n_labelled} labels, worth {effective_labels:.0f}; "
    "{beside}labels alone {alone} ({method})"
)


def corrected_in_words(
    figures: Mapping[str, Any],
    estimate: str,
    number: Callable[[float | None], str],
    beside: str = "",
) -> list[str]:
    """A figure that labels corrected, with what it rests on, and the notes on it."""
    alone = number(figures["labels_alone"])
    return [
        _CORRECTED.format(shown=estimate, beside=beside, alone=alone, **figures),
        *figures["notes"],
    ]


def _percent(figures: Mapping[str, Any], name: str = "estimate") -> str:
    return f"{hundredths(figures[name])} % ({interval(figures['ci95'])})"


def _p(test: Mapping[str, Any]) -> str:
    return "" if test.get("p_value") is None else f", p = {test['p_value']:.3g} for 50 %"
