"""RewardBench 2: one prompt, usually one right answer of four; in Ties several right ones."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from rm_gallery.core.data.load.converters import (
    RowRef,
    identity,
    json_cell,
    optional_text,
    preference_outputs,
    required,
    text_list,
)
from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.stats.intervals import Interval
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.gallery.benchmarks.base import ROW, Benchmark, question
from rm_gallery.gallery.benchmarks.figures import (
    Extra,
    Figure,
    Report,
    uncertainty_of,
)
from rm_gallery.gallery.benchmarks.judgements import (
    About,
    Judged,
    Row,
    has_preference,
    known_of,
    whole,
)
from rm_gallery.gallery.benchmarks.rules import (
    MEAN_OF_SUBSETS,
    RuleScorer,
    Tally,
    absent,
    by_label,
    headline,
    mean_of,
    mean_of_parts,
    mean_over_clusters,
    share_of_top,
    tie_credit,
)

if TYPE_CHECKING:
    from rm_gallery.core.stats import Floats
    from rm_gallery.core.stats.uncertainty import Estimate

SUBSETS = ("Factuality", "Precise IF", "Math", "Safety", "Focus", "Ties")
_EXTRA_COLUMNS = ("models", "total_completions")
RANKING, RATINGS = "ranking", "ratings"


class RewardBench2(Benchmark):
    """Best-of-N tie credit for each subset but Ties, the composite for Ties, headline the
    unweighted mean of subsets.

    Subsets without a score leave the mean and are listed in `extra["subsets_without_score"]`; the
    figure is comparable with a published one only when all six subsets are there. A judge that
    names one winner (one-hot scores) earns 1 or 0 outside Ties, and within Ties at best about 0.29,
    because it cannot rate several right answers above the wrong ones. Upstream never ranks Ties:
    mode ranking leaves these rows out, and the mean is that of the other five.

    Upstream gives a quarter to a ranking it cannot read and takes an unread rating as -1. Here such
    rows are unscored and counted; `extra["with_upstream_defaults"]` is the headline as upstream
    would print it, where there are any. The interval of Ties, which is no mean, comes from a seeded
    bootstrap of its prompts.
    """

    name = "rewardbench2"
    aliases = ("reward-bench-2",)
    hub = "allenai/reward-bench-2"
    checkout = "data/test.parquet"
    split = "test"
    version = "upstream head (Ties of the released package: up to 0.010 apart)"
    modes = {
        RANKING: (
            "all answers are compared at once and the best is named; Ties is left out, because "
            "upstream never ranks it"
        ),
        RATINGS: (
            "each answer is scored by itself; equal top scores share the point; Ties by its "
            "composite"
        ),
    }

    own_columns = frozenset({"prompt", "chosen", "rejected", "subset"})

    def detect(self, columns: Row) -> bool:
        """Lists of chosen and rejected texts with the benchmark's counts, or one of its subsets."""
        return (
            super().detect(columns)
            and isinstance(columns["chosen"], list)
            and isinstance(columns["rejected"], list)
            and ("num_correct" in columns or columns["subset"] in SUBSETS)
        )

    def convert(self, row: Row, where: RowRef = ROW) -> DataSample:
        """Outputs: all chosen, then all rejected, as the benchmark's scores expect them.

        Metadata: `subset`, `num_correct`, `num_incorrect` (in some files `num_rejected`),
        `total_completions`, `models`, `additional_metadata`; for Math rows its field `correct` also
        as `reference`. The id is the benchmark's: pairs of Ties rows are `ref:<n>` and `tied:<n>`.
        """
        chosen, rejected = text_list(row, "chosen", where), text_list(row, "rejected", where)
        subset = optional_text(row, "subset", where)
        asked = question(row, "prompt", where, required)
        outputs = preference_outputs(chosen, rejected)
        task = subset.lower().replace(" ", "_") if subset else None
        about = _metadata(row, subset, len(chosen), len(rejected))
        return self.sample(identity(row, "id", where), asked, outputs, task, about)

    def scorer(self, seed: int = 0) -> RuleScorer:
        """Count under the rules of the subsets."""
        return _SubsetMean()

    def check(self, reward: BaseReward) -> None:
        """A ranking compares answers, a rating scores each."""
        super().check(reward)
        if self.mode == RANKING and not reward.compares:
            raise ConfigError(
                f"{reward.name} scores answers one by one, which is --mode {RATINGS}; name a "
                f"listwise one."
            )
        if self.mode == RATINGS and reward.compares:
            raise ConfigError(
                f"{reward.name} compares answers, which is --mode {RANKING}; name a pointwise one."
            )

    def left_out(self, sample: DataSample, reward: BaseReward) -> str | None:
        """Ties, in mode ranking."""
        if self.mode != RANKING or not is_ties(known_of(sample).get("subset")):
            return None
        return "Ties is rated, never ranked: take its figure from a run with --mode ratings"

    def notes(self, reward: BaseReward) -> tuple[str, ...]:
        """Say that Ties is rated, not ranked."""
        if self.mode == RANKING:
            return ("Ties is rated, never ranked, so the mean is that of the other subsets.",)
        if reward.kind != "listwise" or not reward.judged:
            return ()
        return (
            "Ties asks for ratings; a judge that names one winner reaches at most about 29 there.",
        )


def _metadata(row: Row, subset: str | None, chosen: int, rejected: int) -> About:
    given = row.get("num_incorrect")
    right = _number_from_text(row.get("num_correct"))
    wrong = _number_from_text(row.get("num_rejected") if given is None else given)
    metadata: About = {
        "subset": subset,
        "num_correct": right if isinstance(right, int) else chosen,
        "num_incorrect": wrong if isinstance(wrong, int) else rejected,
    } | {
        column: _number_from_text(json_cell(row[column]))
        for column in _EXTRA_COLUMNS
        if row.get(column) is not None
    }
    extra = json_cell(row.get("additional_metadata"))
    if extra is not None:
        metadata["additional_metadata"] = extra
    reference = extra.get("correct") if isinstance(extra, dict) else None
    if subset and subset.lower() == "math" and reference not in (None, ""):
        metadata["reference"] = reference
    return metadata


def _number_from_text(value: Any) -> Any:
    """A whole number that stands as text in a table of texts."""
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else value


def is_ties(subset: Any) -> bool:
    """Whether a subset is Ties, in any case: the data say "Ties", some of its consumers "ties"."""
    return isinstance(subset, str) and subset.strip().lower() == "ties"


def _read(scores: Iterable[float | None], unread: float) -> list[float]:
    """The scores, with `unread` for those that are missing."""
    return [unread if score is None or math.isnan(score) else score for score in scores]


class _SubsetMean:
    """The unweighted mean of the subsets present."""

    def __init__(self) -> None:
        self._tallies = tie_credit()
        self._ties: defaultdict[str, TiesTally] = defaultdict(TiesTally)
        self._upstream: defaultdict[str, Tally] = defaultdict(Tally)
        self._upstream_ties = TiesTally()
        self._unread = 0

    def add(self, judged: Judged) -> float | None:
        ties = is_ties(judged.subset)
        if (
            judged.judgements
            and has_preference(judged.chosen)
            and judged.status in ("scored", "unscored")
        ):
            self._unread += judged.status == "unscored"
            if ties:  # upstream's rating of a text that could not be read is -1
                rated = _read(judged.scores, -1.0)
                self._upstream_ties.add_row(judged.sample_id, rated, judged.chosen)
            else:  # and without any score each answer has the same share
                credit = share_of_top(_read(judged.scores, -math.inf), judged.chosen)
                self._upstream[judged.subset].add(credit)
        return (self._ties[judged.subset] if ties else self._tallies).add(judged)

    def report(self) -> Report:
        from rm_gallery.core.stats.uncertainty import pooled

        parts, by_subset = self._tallies.figures(), self._tallies.by_subset
        # every scored subset weighs the same; the first mean stands for all of them but Ties
        n_means = sum(counts.n_scored > 0 for counts in by_subset.values())
        means = [(mean_over_clusters(by_subset), n_means)]
        for name, ties in self._ties.items():
            parts[name], of_ties = ties.figure()
            means.append((of_ties, 1))
        whole = pooled([(mean, n) for mean, n in means if mean is not None])
        n_unfit = self._tallies.n_unfit + sum(ties.n_unfit for ties in self._ties.values())
        there = {part.strip().lower() for part in parts}
        gaps = {
            "subsets_without_score": absent((), parts),
            "n_unfit_labels": n_unfit,
            "subsets_absent": [name for name in SUBSETS if name.lower() not in there],
        }
        extra: Extra = {name: value for name, value in gaps.items() if value}
        if self._unread:  # the headline as upstream would print it
            ties_mean = ties_parts(self._upstream_ties.table())["composite"]
            others = [counts.mean for counts in self._upstream.values()]
            extra["with_upstream_defaults"] = mean_of([*others, ties_mean])
        figure = mean_of_parts(MEAN_OF_SUBSETS, parts, whole, extra)
        rated = any(ties.counts.n_scored for ties in self._ties.values())
        return headline(replace(figure, chance=None) if rated else figure, parts)


def split_folder() -> Path:
    """Where the project's own split in this layout is (`train.parquet`, `test.parquet`): in the
    package, or beside it.
    """
    package = Path(__file__).resolve().parents[2]
    for folder in (package / "_data", package.parent / "data"):
        if (folder / "test.parquet").is_file():
            return folder
    raise ConfigError("The built-in split is missing from this installation; reinstall it.")


# -- Ties: several right answers have to beat every wrong one, and be rated alike ------------------

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


def margin_term(gap: float, spread: float) -> float:
    """Give tanh(gap / spread - 1), -1..1, with the limits of floating-point division: x/0 is +-inf,
    0/0 counts 0.
    """
    if spread == 0.0:
        return 0.0 if gap == 0.0 or math.isnan(gap) else math.copysign(1.0, gap)
    ratio = gap / spread
    return 0.0 if math.isnan(ratio) else math.tanh(ratio - 1.0)


@dataclass
class TiesTally:
    """Ties rows under the composite; keeps four numbers per row, by kind and prompt.

    A row is accurate when its worst right answer scores higher than its best wrong one. `preferred`
    asks, per prompt that has both rows, whether that gap is larger than the spread among the right
    answers of the tied row; `preferred hard` takes the smaller gap of both rows; `margin` is
    tanh(smaller gap / spread - 1). So the value runs from -0.01 to 1.01 (the upstream formula is
    kept as it is). A prompt with one row only counts in the accuracies, not in the margins.
    Upstream enters a rating it cannot parse as the score -1; here the row is unscored and counted.
    """

    counts: Tally = field(default_factory=Tally)
    n_unfit: int = 0
    rows: dict[Kind, dict[str, TiesRow]] = field(default_factory=lambda: {"ref": {}, "tied": {}})
    lost: defaultdict[Kind, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
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
            kind, prompt = self._kind_and_prompt(judged.sample_id, sum(judged.chosen))
            self.lost[kind][prompt] += sum(judged.chosen)
        return self.add_row(judged.sample_id, values, judged.chosen)

    def add_row(
        self, name: str, values: Sequence[float] | None, labels: Sequence[bool]
    ) -> float | None:
        """Take in the scores of the row with this id; gives 1.0 if it is accurate, else 0.0, None
        without scores.
        """
        if values is None:
            return None
        right, wrong = by_label(values, labels)
        row = TiesRow(min(right), max(right), max(wrong), len(right))
        kind, prompt = self._kind_and_prompt(name, row.n_right)
        rows = self.rows[kind]
        rows[prompt] = rows[prompt].pooled(row) if prompt in rows else row
        return float(row.gap > 0)

    def _kind_and_prompt(self, name: str, n_right: int) -> tuple[Kind, str]:
        """Kind and prompt of a row, out of `ref:<n>` or `tied:<n>` with anything before it.

        Without such a mark it counts in the accuracies of its kind and is paired with nothing.
        """
        n = self.counts.n_scored + self.counts.missing.total()
        match = _ID.search(name)
        kind: Kind = "ref" if (n_right == 1 if match is None else match[1] == "ref") else "tied"
        return kind, f"unmarked row {n}: {name}" if match is None else match[2]

    def bounds(self) -> Interval | None:
        """The composite when all that is missing is as bad, and when it is as good, as can be; each
        part by itself.
        """
        prompts = sorted({*self.prompts(), *self.lost["ref"], *self.lost["tied"]})
        low, high = (
            ties_parts(self.contributions(name, best) for name in prompts)["composite"]
            for best in (False, True)
        )
        # a part over nothing: there is no composite, whatever is missing
        if low is None or high is None:
            return None
        return Interval(low, high)

    def contributions(self, prompt: str, filled: bool | None = None) -> tuple[float, ...]:
        """What one prompt adds: (n, accurate) for ref and tied, then pairs, preferred, preferred
        hard, margin.

        Rows without a score are left out, or `filled`: as good, or as bad, as can be.
        """
        ref, tied = (rows.get(prompt) for rows in self.rows.values())
        fill = 1.0 if filled else -1.0
        lost = [filled is not None and prompt in self.lost[kind] for kind in self.rows]
        accuracies: list[float] = []
        for row, unknown in zip((ref, tied), lost, strict=True):
            right = filled if unknown else row is not None and row.gap > 0
            accuracies += [float(unknown or row is not None), float(bool(right))]
        n_right = 0 if tied is None else tied.n_right
        n_right += self.lost["tied"][prompt] if filled is not None else 0
        # a tied row with a single right answer has no spread to compare with
        if not (accuracies[0] and accuracies[2]) or n_right < 2:
            return (*accuracies, 0.0, 0.0, 0.0, 0.0)
        if ref is None or tied is None or any(lost):
            return (*accuracies, 1.0, max(fill, 0.0), max(fill, 0.0), fill)
        spread, lower = tied.spread, min(ref.gap, tied.gap)
        return (
            *accuracies,
            1.0,
            float(tied.gap > spread),
            float(lower > spread),
            margin_term(lower, spread),
        )

    def prompts(self) -> list[str]:
        """Every prompt with a scored row."""
        return sorted({*self.rows["ref"], *self.rows["tied"]})

    def table(self) -> list[tuple[float, ...]]:
        """The contributions of every prompt."""
        return list(map(self.contributions, self.prompts()))

    def figure(self) -> tuple[Figure, Estimate | None]:
        """The composite with its parts, and what its uncertainty over prompts rests on (None
        without a score).
        """
        table = self.table()
        parts = ties_parts(table)
        score = parts.pop("composite")
        # a ref and a tied row of one prompt are one row of the table
        whole = None if score is None else _over_prompts(table, _composites, BOUNDS)
        figure = Figure(
            TIES_RULE,
            score=score,
            **uncertainty_of(whole),
            extra=parts,
            bounds=self.bounds(),
            **self.counts.counts(),
        )
        return figure, whole


def ties_parts(table: Iterable[Sequence[float]]) -> Extra:
    """Sum contributions into the five parts and the composite; a part over nothing is None and
    makes the composite None.
    """
    sums = list(map(math.fsum, zip(*table, strict=True))) or [0.0] * 8
    parts: Extra = {name: hits / n if n else None for name, (hits, n) in _ratios(sums).items()}
    known = [weight * parts[name] for name, weight in WEIGHTS.items() if parts[name] is not None]
    parts["composite"] = math.fsum(known) if len(known) == len(WEIGHTS) else None
    return {**parts, "n_ref": int(sums[0]), "n_tied": int(sums[2]), "n_pairs": int(sums[4])}


def _ratios(sums: Iterable[Any]) -> dict[str, tuple[Any, Any]]:
    """Each part as what it counts and over how many."""
    n_ref, ref, n_tied, tied, n_pairs, preferred, hard, margin = sums
    return {
        "ref_accuracy": (ref, n_ref),
        "tied_accuracy": (tied, n_tied),
        "correctness_preferred": (preferred, n_pairs),
        "correctness_preferred_hard": (hard, n_pairs),
        "margin": (margin, n_pairs),
    }


BOUNDS = (-WEIGHTS["margin"], sum(WEIGHTS.values()))


def _composites(sums: Floats) -> Floats:
    """The composite of every row of summed contributions; NaN where a part is over nothing."""
    means = {name: hits / n for name, (hits, n) in _ratios(sums.T).items()}
    return sum((weight * means[name] for name, weight in WEIGHTS.items()), start=0.0 * sums[:, 0])


_UNSEEN = ((1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0, -1.0), (1.0,) * 8)
"""A prompt with all wrong, and one with all right."""


def _over_prompts(
    table: Iterable[Sequence[float]],
    figure: Callable[[Floats], Floats],
    bounds: tuple[float, float],
) -> Estimate | None:
    import numpy as np

    from rm_gallery.core.stats.uncertainty import of_sums

    rows = np.array(list(table), dtype=np.float64)
    unseen = np.tile(np.array(_UNSEEN), rows.shape[1] // 8)
    return of_sums(rows, figure, unseen=unseen, bounds=bounds)


ScoredRow = tuple[str, Sequence[float | None], Sequence[bool]]
"""Id, scores and which answers are right, of one Ties row."""


def ties_difference(
    first: Iterable[ScoredRow], second: Iterable[ScoredRow]
) -> tuple[Estimate, float, float] | None:
    """One reward's composite minus another's on the same rows, over their prompts, and both; None
    without one.
    """
    tallies = []
    for rows in (first, second):
        tally = TiesTally()
        for name, scores, right in rows:
            tally.add_row(name, whole(scores) if has_preference(right) else None, right)
        tallies.append(tally)
    prompts = sorted({name for tally in tallies for name in tally.prompts()})
    table = [[value for tally in tallies for value in tally.contributions(p)] for p in prompts]
    own, other = (ties_parts(map(tally.contributions, prompts))["composite"] for tally in tallies)
    if own is None or other is None:
        return None
    width = BOUNDS[1] - BOUNDS[0]
    change = _over_prompts(
        table, lambda sums: _composites(sums[:, :8]) - _composites(sums[:, 8:]), (-width, width)
    )
    return None if change is None else (change, own, other)
