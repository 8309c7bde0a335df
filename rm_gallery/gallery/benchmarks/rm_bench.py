"""RM-Bench: does the right answer win when the wrong one is dressed better? Three styles on each
side.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from rm_gallery.core.data.load.converters import (
    RowRef,
    identity,
    preference_outputs,
    required,
    text_list,
    wrong,
)
from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.gallery.benchmarks.base import ROW, Benchmark, beginning, given, question
from rm_gallery.gallery.benchmarks.figures import Extra, Figure, Report, with_extra
from rm_gallery.gallery.benchmarks.judgements import Judged, Row
from rm_gallery.gallery.benchmarks.rules import (
    MEAN_OF_SUBSETS,
    Gathered,
    RuleScorer,
    Tally,
    absent,
    headline,
    interval_of_mean,
    mean_of,
    mean_of_parts,
    mean_over_clusters,
)

RULE = "rm_bench_matrix"
STYLES = ("concise", "detailed plain text", "detailed markdown")
_SIZE = len(STYLES)
CELLS = tuple((i, j) for i in range(_SIZE) for j in range(_SIZE))
_PAIRS = [(i, _SIZE + j) for i, j in CELLS]
"""The places of the two answers of each cell."""
LEVELS = {
    "hard": [(i, j) for i, j in CELLS if i < j],
    "normal": [(i, j) for i, j in CELLS if i == j],
    "easy": [(i, j) for i, j in CELLS if i > j],
}
ALL = "all"
_CELLS_OF = {**LEVELS, ALL: [*CELLS]}
DOMAINS = ("chat", "code", "math", "safety")
_DOMAIN_OF_SUBSET = {
    "alpacaeval": "chat",
    "bigcode": "code",
    "math": "math",
    "xstest": "safety",
    "refusals": "safety",
}
_EXTRA_COLUMNS = ("language", "task_id", "error_key")


class RMBench(Benchmark):
    """Strict wins of three chosen styles over three rejected ones, as a matrix by domain; headline
    the mean of domains.

    Cell (i, j) is the share of rows whose chosen answer in style i beats the rejected one in style
    j. `hard` averages the cells in which the chosen one is plainer, `normal` those of equal style,
    `easy` those in which it is richer; a domain's figure averages the three. Safety pools its two
    files. A row with a missing cell is unscored. Comparing judges are asked nine pairs a row, as
    the benchmark's generative mode does.
    """

    name = "rm_bench"
    aliases = ("rm-bench",)
    hub = "THU-KEG/RM-Bench"
    split = "train"
    version = "repository at 73c52d7"
    chance = 0.5

    own_columns = frozenset({"prompt", "chosen", "rejected"})

    def detect(self, columns: Row) -> bool:
        """Three chosen and three rejected answers with a domain, or a subset of one of the
        published files.
        """
        if not super().detect(columns) or "num_correct" in columns:
            return False
        threes = all(
            isinstance(side, list) and [type(text) for text in side] == [str] * _SIZE
            for side in (columns["chosen"], columns["rejected"])
        )
        return threes and _domain(columns) is not None

    def convert(self, row: Row, where: RowRef = ROW) -> DataSample:
        """Outputs: the chosen answer in the three styles, then the rejected one.

        Metadata: `subset` (the domain), `styles` (one per output), `domain` and `origin` as in the
        file.
        """
        chosen, rejected = text_list(row, "chosen", where), text_list(row, "rejected", where)
        for column, side in (("chosen", chosen), ("rejected", rejected)):
            if len(side) != _SIZE:
                raise wrong(where, column, f"three styles ({', '.join(STYLES)})", side)
        domain = _domain(row)
        about = {
            **{column: row.get(column) for column in _EXTRA_COLUMNS},
            "subset": domain,
            "styles": [*STYLES, *STYLES],
            "domain": row.get("domain"),
            "origin": row.get("subset"),
        }
        own = identity(row, "id", where)
        # ids are counted from 0 in each file, and the files are scored together
        name = f"{row.get('domain') or row.get('subset') or ''}:{own}" if own else ""
        asked = question(row, "prompt", where, required)
        return self.sample(name, asked, preference_outputs(chosen, rejected), domain, given(about))

    def ids(self, sample: DataSample) -> tuple[str, ...]:
        """The domain or subset with the number in its file, or that number alone."""
        return (sample.unique_id, sample.unique_id.rpartition(":")[2])

    def questions(self, sample: DataSample, reward: BaseReward) -> Iterable[DataSample]:
        """The row itself for a reward that scores answers; its nine pairs for one that compares
        them.
        """
        if not reward.compares or len(sample.output) != 2 * _SIZE:
            return (sample,)
        return (
            Gathered.part_of(sample, part, len(CELLS), _PAIRS[part], styles=[STYLES[i], STYLES[j]])
            for part, (i, j) in enumerate(CELLS)
        )

    def scorer(self, seed: int = 0) -> RuleScorer:
        """Count the matrices of all domains."""
        return _Matrices()


def _domain(row: Row) -> str | None:
    given, subset = str(row.get("domain") or ""), str(row.get("subset") or "")
    return beginning(given, DOMAINS) or _DOMAIN_OF_SUBSET.get(beginning(subset, _DOMAIN_OF_SUBSET))


class _Matrices:
    """The matrices of all domains, fed with whole rows or with their nine pairs."""

    def __init__(self) -> None:
        self._wins: defaultdict[str, Counter[tuple[int, int]]] = defaultdict(Counter)
        """By domain, how often each cell was won."""
        self._levels: defaultdict[str, defaultdict[str, Tally]] = defaultdict(
            lambda: defaultdict(Tally)
        )
        """By level and domain, what rows earn."""
        self._pairs = Gathered()
        self._n_unfit = 0

    def add(self, judged: Judged) -> float | None:
        """Count one row, or one pair of a row; a row counts, and earns the share of its cells that
        it won, when its last pair has come.
        """
        fits = "whole" in judged.metadata or judged.chosen == [True] * _SIZE + [False] * _SIZE
        self._n_unfit += judged.status == "scored" and not fits
        found = self._pairs.margins(judged, _PAIRS if fits else ())
        wins = self._wins[judged.subset]
        if found is None:
            return None
        margins, lost = found
        won: set[tuple[int, int]] | None = None
        if margins and None not in margins and lost.status == "scored":
            won = {cell for cell, margin in zip(CELLS, margins, strict=True) if (margin or 0) > 0}
            wins.update(won)
        credit = None
        for level, cells in _CELLS_OF.items():
            credit = None if won is None else len(won.intersection(cells)) / len(cells)
            self._levels[level][judged.subset].count(lost, credit)
        return credit

    def _figure(self, domain: str) -> Figure:
        """The domain average with hard, normal, easy and the matrix (chosen style by rejected
        style).
        """
        rows, wins, places = self._levels[ALL][domain], self._wins[domain], range(_SIZE)
        n, levels = rows.n_scored, {name: self._levels[name][domain] for name in LEVELS}
        extra: Extra = {name: counts.mean for name, counts in levels.items()}
        extra["matrix"] = [[wins[i, j] / n if n else None for j in places] for i in places]
        extra["ci95"] = {name: counts.interval() for name, counts in levels.items()}
        return rows.figure(RULE, extra)

    def report(self) -> Report:
        """Report what was counted so far; rows whose pairs have not all come are left out."""
        parts = {name: self._figure(name) for name in self._wins}
        extra: Extra = {
            level: mean_of(part.extra[level] for part in parts.values()) for level in LEVELS
        }
        extra["ci95"] = {level: interval_of_mean(self._levels[level]) for level in LEVELS}
        extra["domains_absent"] = absent(DOMAINS, parts)
        extra |= {"n_unfit_labels": self._n_unfit} if self._n_unfit else {}
        figure = mean_of_parts(MEAN_OF_SUBSETS, parts, mean_over_clusters(self._levels[ALL]), extra)
        if len(parts) == 1:
            figure = with_extra(next(iter(parts.values())), extra)
        return headline(figure, parts)
