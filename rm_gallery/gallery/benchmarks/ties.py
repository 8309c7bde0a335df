"""The Ties composite of RewardBench 2: several right answers have to beat every wrong one, and be rated alike."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from rm_gallery.core.stats.intervals import Interval
from rm_gallery.gallery.benchmarks.figures import Figure
from rm_gallery.gallery.benchmarks.judgements import Judged, has_preference
from rm_gallery.gallery.benchmarks.rules import Tally

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rm_gallery.core.stats.clustered import ClusteredMean

TIES_RULE = "ties_composite"
Kind = Literal["ref", "tied"]
_ID = re.compile(r"(?:^|[^A-Za-z0-9])(ref|tied):(.+)$", re.DOTALL)
WEIGHTS = {
    "tied_accuracy": 0.30,
    "ref_accuracy": 0.30,
    "correctness_preferred": 0.20,
    "correctness_preferred_hard": 0.20,
    "margin": 0.01,
}


class TiesRow(NamedTuple):
    """What the composite needs of one row: extremes of its right and wrong answers."""

    worst_right: float
    best_right: float
    best_wrong: float
    n_right: int

    @property
    def gap(self) -> float:
        """Worst right minus best wrong score; above 0 the row is accurate."""
        return _minus(self.worst_right, self.best_wrong)

    @property
    def spread(self) -> float:
        """Best minus worst right score."""
        return _minus(self.best_right, self.worst_right)

    def pooled(self, other: TiesRow) -> TiesRow:
        """The row that holds the answers of both; upstream pools rows of the same id."""
        return TiesRow(
            min(self.worst_right, other.worst_right),
            max(self.best_right, other.best_right),
            max(self.best_wrong, other.best_wrong),
            self.n_right + other.n_right,
        )


def _minus(a: float, b: float) -> float:
    """Subtract; equal infinities are no distance apart."""
    return 0.0 if a == b else a - b


def parse_ties_id(text: str) -> tuple[Kind, str] | None:
    """Split `ref:<n>` or `tied:<n>`, with anything before it, into kind and prompt name; None if it is neither."""
    match = _ID.search(text)
    return None if match is None else (("ref" if match[1] == "ref" else "tied"), match[2])


def margin_term(gap: float, spread: float) -> float:
    """Give tanh(gap / spread - 1), -1..1, with the limits of floating-point division: x/0 is +-inf, 0/0 counts 0."""
    if spread == 0.0:
        return 0.0 if gap == 0.0 or math.isnan(gap) else math.copysign(1.0, gap)
    ratio = gap / spread
    return 0.0 if math.isnan(ratio) else math.tanh(ratio - 1.0)


@dataclass
class TiesTally:
    """Ties rows under the composite; keeps four numbers per row, by kind and prompt.

    A row is accurate when its worst right answer scores higher than its best wrong one. `preferred` asks, per prompt that has
    both rows, whether that gap is larger than the spread among the right answers of the tied row; `preferred hard` takes the
    smaller gap of both rows; `margin` is tanh(smaller gap / spread - 1). So the value runs from -0.01 to 1.01 (the upstream
    formula is kept as it is). A prompt with one row only counts in the accuracies, not in the margins. Upstream enters a
    rating it cannot parse as the score -1; here the row is unscored and counted.
    """

    counts: Tally = field(default_factory=Tally)
    n_unfit: int = 0
    ref: dict[str, TiesRow] = field(default_factory=dict)
    tied: dict[str, TiesRow] = field(default_factory=dict)
    lost: dict[Kind, dict[str, int]] = field(default_factory=lambda: {"ref": {}, "tied": {}})
    """Right answers of the rows without a score, by kind and prompt."""

    def add(self, judged: Judged) -> float | None:
        """Count one row; gives 1.0 if it is accurate, else 0.0."""
        fits = has_preference(judged.chosen)
        self.n_unfit += judged.status == "scored" and not fits
        values = judged.complete() if fits else None
        # the composite is no mean over rows, so the tally's credits serve for counting only
        cause = judged.cause_or("data")
        self.counts.add(None if values is None else 0.0, judged.status, cause=cause)
        if values is None and cause is not None:
            kind, prompt = self._place(judged.sample_id, sum(judged.chosen))
            self.lost[kind][prompt] = self.lost[kind].get(prompt, 0) + sum(judged.chosen)
        return self.add_row(judged.sample_id, values, judged.chosen)

    def add_row(self, name: str, values: Sequence[float] | None, labels: Sequence[bool]) -> float | None:
        """Take in the scores of the row with this id; gives 1.0 if it is accurate, else 0.0, None without scores."""
        if values is None:
            return None
        right = [value for value, label in zip(values, labels, strict=True) if label]
        wrong = [value for value, label in zip(values, labels, strict=True) if not label]
        row = TiesRow(min(right), max(right), max(wrong), len(right))
        kind, prompt = self._place(name, row.n_right)
        rows = self.ref if kind == "ref" else self.tied
        rows[prompt] = rows[prompt].pooled(row) if prompt in rows else row
        return float(row.gap > 0)

    def _place(self, name: str, n_right: int) -> tuple[Kind, str]:
        """Kind and prompt of a row; without a mark it counts in the accuracies of its kind and is paired with nothing."""
        n = self.counts.n_scored + self.counts.missing.total()
        return parse_ties_id(name) or (("ref" if n_right == 1 else "tied"), f"unmarked row {n}: {name}")

    def _filled(self, prompt: str, high: bool) -> tuple[float, ...]:
        """What one prompt adds when each of its rows without a score is as bad, or as good, as can be."""
        known, there = self.contributions(prompt), {kind: prompt in lost for kind, lost in self.lost.items()}
        ref = (1.0, float(high)) if there["ref"] else known[0:2]
        tied = (1.0, float(high)) if there["tied"] else known[2:4]
        n_right = self.lost["tied"].get(prompt, 0) + (self.tied[prompt].n_right if prompt in self.tied else 0)
        if not any(there.values()) or not (ref[0] and tied[0]) or n_right < 2:
            return (*ref, *tied, *known[4:])
        return (*ref, *tied, 1.0, float(high), float(high), 1.0 if high else -1.0)

    def bounds(self) -> Interval | None:
        """The composite when all that is missing is as bad, and when it is as good, as can be; each part by itself."""
        prompts = sorted({*self.ref, *self.tied, *self.lost["ref"], *self.lost["tied"]})
        if not prompts:
            return None
        low, high = (ties_parts(self._filled(name, best) for name in prompts)["composite"] for best in (False, True))
        if low is None or high is None:  # a part over nothing: there is no composite, whatever is missing
            return None
        return Interval(low, high)

    def contributions(self, prompt: str) -> tuple[float, ...]:
        """What one prompt adds: (n, accurate) for ref and tied, then pairs, preferred, preferred hard, margin."""
        ref, tied = self.ref.get(prompt), self.tied.get(prompt)
        accuracies = (
            float(ref is not None),
            float(ref is not None and ref.gap > 0),
            float(tied is not None),
            float(tied is not None and tied.gap > 0),
        )
        # a tied row with a single right answer has no spread to compare with
        if ref is None or tied is None or tied.n_right < 2:
            return (*accuracies, 0.0, 0.0, 0.0, 0.0)
        spread, lower = tied.spread, min(ref.gap, tied.gap)
        return (*accuracies, 1.0, float(tied.gap > spread), float(lower > spread), margin_term(lower, spread))

    def table(self) -> list[tuple[float, ...]]:
        """The contributions of every prompt."""
        return [self.contributions(prompt) for prompt in sorted(self.ref.keys() | self.tied.keys())]

    def figure(self, seed: int, name: str) -> tuple[Figure, ClusteredMean | None]:
        """The composite with its parts, and what its uncertainty over prompts rests on (None without a score)."""
        from rm_gallery.core.stats.clustered import named_generator

        table = self.table()
        parts = ties_parts(table)
        score = parts.pop("composite")
        whole = None if score is None else _composite(table, score, named_generator(seed, name))
        ci95 = None if whole is None else whole.interval()
        figure = Figure(TIES_RULE, score=score, ci95=ci95, extra=parts, bounds=self.bounds(), **self.counts.counts())
        return figure, whole


def ties_parts(table: Iterable[Sequence[float]]) -> dict[str, Any]:
    """Sum contributions into the five parts and the composite; a part over nothing is None and makes the composite None."""
    columns = list(zip(*table, strict=True)) or [()] * 8
    n_ref, ref, n_tied, tied, n_pairs, preferred, hard, margin = (math.fsum(column) for column in columns)
    parts: dict[str, Any] = {
        "ref_accuracy": ref / n_ref if n_ref else None,
        "tied_accuracy": tied / n_tied if n_tied else None,
        "correctness_preferred": preferred / n_pairs if n_pairs else None,
        "correctness_preferred_hard": hard / n_pairs if n_pairs else None,
        "margin": margin / n_pairs if n_pairs else None,
    }
    known = [weight * parts[name] for name, weight in WEIGHTS.items() if parts[name] is not None]
    parts["composite"] = math.fsum(known) if len(known) == len(WEIGHTS) else None
    parts.update(n_ref=int(n_ref), n_tied=int(n_tied), n_pairs=int(n_pairs))
    return parts


BOUNDS = (-WEIGHTS["margin"], sum(WEIGHTS.values()))


def _composite(table: list[tuple[float, ...]], score: float, rng: np.random.Generator) -> ClusteredMean:
    """The composite with its spread over bootstrap draws; a ref and a tied row of the same prompt are drawn together."""
    from rm_gallery.core.stats.clustered import cluster_sum_draws, from_draws

    draws = _composites(cluster_sum_draws(table, rng))
    # the margin aside, prompts that all behave alike would make the composite look known exactly
    alike = len({row[:7] for row in table}) == 1
    return from_draws(score, draws[:0] if alike else draws, len(table), bounds=BOUNDS)


def _composites(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """The composite of every row of summed contributions; NaN where a part is over nothing."""
    import numpy as np

    n_ref, ref, n_tied, tied, n_pairs, preferred, hard, margin = sums.T
    with np.errstate(invalid="ignore", divide="ignore"):
        means = {
            "ref_accuracy": ref / n_ref,
            "tied_accuracy": tied / n_tied,
            "correctness_preferred": preferred / n_pairs,
            "correctness_preferred_hard": hard / n_pairs,
            "margin": margin / n_pairs,
        }
        return np.asarray(np.sum([weight * means[name] for name, weight in WEIGHTS.items()], axis=0))


ScoredRow = tuple[str, Sequence[float | None], Sequence[bool]]
"""Id, scores and which answers are right, of one Ties row."""


def ties_difference(first: Iterable[ScoredRow], second: Iterable[ScoredRow], seed: int = 0) -> ClusteredMean | None:
    """The composite of one reward minus that of another on the same rows, over prompts drawn together; None without one."""
    import numpy as np

    from rm_gallery.core.stats.clustered import cluster_sum_draws, from_draws, named_generator

    tallies = []
    for rows in (first, second):
        tally = TiesTally()
        for name, scores, right in rows:
            known = [score for score in scores if score is not None and not math.isnan(score)]
            tally.add_row(name, known if len(known) == len(scores) and has_preference(right) else None, right)
        tallies.append(tally)
    prompts = sorted({name for tally in tallies for name in (*tally.ref, *tally.tied)})
    if not prompts:
        return None
    table = np.array([[*tallies[0].contributions(name), *tallies[1].contributions(name)] for name in prompts])
    estimate = float(np.subtract(*(_composites(table[:, part].sum(axis=0)[None, :])[0] for part in _SIDES)))
    if math.isnan(estimate):
        return None
    sums = cluster_sum_draws(table.tolist(), named_generator(seed, "ties difference"))
    draws = _composites(sums[:, _SIDES[0]]) - _composites(sums[:, _SIDES[1]])
    width = BOUNDS[1] - BOUNDS[0]
    return from_draws(estimate, draws, len(prompts), bounds=(-width, width))


_SIDES = (slice(0, 8), slice(8, 16))
