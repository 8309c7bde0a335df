"""Do a reward's comparisons fit together? Every pair of a sample in both orders, contradictions and
cycles among them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.reward.run import run_unordered
from rm_gallery.core.stats import np
from rm_gallery.core.stats.denominator import worst_case_bounds
from rm_gallery.core.stats.intervals import Interval
from rm_gallery.core.utils.errors import ConfigError, DataError
from rm_gallery.core.utils.shown import one_line
from rm_gallery.gallery.benchmarks.figures import Record
from rm_gallery.gallery.benchmarks.judgements import (
    Judged,
    Judgement,
    Pair,
    cluster_of,
    sign,
    worst,
)
from rm_gallery.gallery.benchmarks.lead import worth
from rm_gallery.study.cards import conflicts_figures
from rm_gallery.study.doors import Asked, Keywords, door
from rm_gallery.study.pairwise_comparisons import (
    Finding,
    PairwiseComparison,
    Questionnaire,
    kept_when_interrupted,
    lost,
    mean_finding,
    missing_of,
    reasons_of,
)
from rm_gallery.study.runs import kept_in, sample_record
from rm_gallery.study.source import Source
from rm_gallery.study.task import begun, judge_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

Places = tuple[int, int]
SampleComparisons = tuple[DataSample, dict[Places, PairwiseComparison]]
"""A sample and its comparisons, by the places of their answers."""
Graph = dict[Places, int]
"""Per pair (i, j), i < j: +1 where i is better, -1 where j is, 0 for a tie."""
EXAMPLES = 20


@dataclass(frozen=True, kw_only=True)
class Conflicts(Record):
    """How well a reward's comparisons fit together.

    Attributes:
        reward: name of the reward, and its kind.
        judge: the model that judged; None where none did.
        data: where the samples came from.
        n: samples with two or more answers; `n_scored` of them have every verdict, and only these
            are in the figures.
        lost: samples without, by outcome.
        missing: those without by who caused it (endpoint, judge, answer, data, rule, caller).
        bounds: the conflict rate when every sample without has none, and when every one has a
            conflict, 0..1.
        reasons: why, "status: reason" to how many samples and an example.
        figures: conflict, symmetry, transitivity and cycle rates by name.
        examples: samples with a conflict: id, the contradictory pairs, and the answers of each
            cycle by number from 1.
        calls: requests made to the judge.
        stopped: why the run ended early.
    """

    reward: str
    kind: str
    judge: str | None
    data: str
    n: int
    n_scored: int
    lost: Mapping[str, int]
    reasons: Mapping[str, Mapping[str, Any]]
    missing: Mapping[str, int] = field(default_factory=dict)
    bounds: Interval | None = None
    calls: int = 0
    stopped: str | None = None
    notes: tuple[str, ...] = ()
    figures: Mapping[str, Finding]
    examples: tuple[Mapping[str, Any], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain JSON types."""
        card = super().to_dict()
        return {"worth": worth(conflicts_figures(card)), **card}

    @property
    def worth(self) -> str:
        """What a reader may conclude, in the sentences that every rendering begins with."""
        return one_line(self.to_dict()["worth"])

    def about(self) -> list[str]:
        """What the figures rest on, a line each."""
        left_out = "".join(f", {count} {status}" for status, count in self.lost.items())
        judge = " · judge {judge}" if self.judge else ""
        about = f"{{reward}} ({{kind}}){judge} · data: {{data}} · {{n_scored}} of {{n}} samples"
        lines = [about.format_map(vars(self)) + left_out, *self.notes]
        for example in self.examples[:3]:
            conflicts = [
                f"answers {', '.join(map(str, one))} form a cycle" for one in example["cycles"]
            ]
            if pairs := [f"{i} and {j}" for i, j in example["contradictory"]]:
                conflicts.insert(0, f"the orders disagree about {', '.join(pairs)}")
            lines.append(f"{example['id']}: {'; '.join(conflicts)}")
        return lines


@door()
def conflicts(asked: Asked, **keywords: Unpack[Keywords]) -> Conflicts:
    """Compare all pairs of each sample's answers in both orders and find what contradicts itself.

    Samples need no preference labels. With `run_dir` the folder keeps what every run keeps: a line
    per sample with the verdicts of its pairs, and as its figure the share without a conflict.

    Raises:
        ConfigError: for a reward that scores answers by themselves: numbers cannot contradict each
            other.
    """
    built = asked.reward
    if not built.compares:
        raise ConfigError(
            f"{built.name} is {built.kind}: it scores answers by themselves, and numbers have an "
            f"order without contradictions. "
            "Name a listwise or pairwise reward, or see how stable its scores are with `rm-gallery "
            "audit`."
        )
    samples, name, identity = samples_of(asked.source)
    sheet = Questionnaire(built)
    games: list[SampleComparisons] = []
    for sample in samples:
        pairs, cluster = combinations(range(len(sample.output)), 2), cluster_of(sample)
        if comparisons := {
            (i, j): sheet.comparison(sample, sample.output[i], sample.output[j], cluster)
            for i, j in pairs
        }:
            games.append((sample, comparisons))
    if not games:
        raise DataError(f"{name}: no sample has two answers, so there is nothing to compare.")
    chosen, control = begun(asked.options, {"conflicts": 1, **identity}, total=len(sheet.questions))

    def conclude() -> Conflicts:
        rows = [_row_of(sheet, sample, comparisons) for sample, comparisons in games]
        report = _conflicts_of(
            rows,
            reward=built.name,
            kind=built.kind,
            judge=judge_of(built)[0],
            data=name,
            calls=control.calls,
            stopped=control.stopped,
        )
        with kept_in(chosen.run_dir) as keeping:
            if keeping is not None:
                for row in rows:
                    keeping.add(sample_record(None, row.judged, row.credit))
                keeping.finish(conflicts_figures(report.to_dict()))
        return report

    with (
        kept_when_interrupted(control, conclude),
        closing(run_unordered(built, sheet.questions.values(), chosen, asked.hooks)) as scored,
    ):
        sheet.collect(scored)
    return conclude()


def samples_of(source: Source) -> tuple[list[DataSample], str, dict[str, Any]]:
    """The samples of a source, which need no labels, what they are called, and what identifies them."""
    data = source.data
    samples = isinstance(data, Sequence) and all(isinstance(one, DataSample) for one in data)
    if samples and source.benchmark is None:
        source = replace(source, benchmark="preferences")
    dataset = source.open()
    return list(dataset.rows()), dataset.name, dataset.identity()


# -- reading ---------------------------------------------------------------------------------------


def cycles(n: int, better: Iterable[Places]) -> list[list[int]]:
    """Groups of answers that are better than each other in a circle: strongly connected components
    of two or more.

    `better` holds (winner, loser) pairs of positions below `n`.
    """
    reaches = np.eye(n, dtype=bool)
    for edge in better:
        reaches[edge] = True
    for place in range(n):
        reaches |= np.outer(reaches[:, place], reaches[place])
    groups = {tuple(np.flatnonzero(row).tolist()) for row in reaches & reaches.T}
    return [list(group) for group in sorted(groups) if len(group) > 1]


def transitive(graph: Graph, i: int, j: int, k: int) -> bool:
    """Whether three comparisons (i < j < k) fit one order, in which answers may be equal."""
    first, second, whole = graph[i, j], graph[j, k], graph[i, k]
    if first == 0 or second == 0:
        return whole == first + second
    return first != second or whole == first


_WHAT = {
    "conflict": "samples whose comparisons, order by order, hold a contradiction or a cycle",
    "symmetry": "pairs that get the same verdict in both orders",
    "transitivity": "triples of answers whose three verdicts, each over both orders, fit one order",
    "cycle": "samples with a cycle that remains when each pair's two orders are taken together",
    "first_place": "contradictory pairs won both times by the answer shown first",
}


class _Row(NamedTuple):
    """A sample with the verdicts of all its pairs."""

    judged: Judged
    contradiction: Mapping[str, Any] = {}
    """What is contradictory, with answers numbered from 1; empty where nothing is."""
    units: Mapping[str, list[float]] = {}
    """What each unit of it (sample, pair, triple) adds to each rate; empty without all verdicts."""
    ties: int = 0
    """Pairs that tie over both orders."""

    @property
    def credit(self) -> float | None:
        """1 without a conflict, 0 with one."""
        return float(not self.contradiction) if self.units else None


def _row_of(
    sheet: Questionnaire, sample: DataSample, comparisons: Mapping[Places, PairwiseComparison]
) -> _Row:
    """What became of a sample."""
    games = {pair: sheet.games(comparison) for pair, comparison in comparisons.items()}
    status = worst(sheet.status(comparison) for comparison in comparisons.values())
    status = "unscored" if status == "scored" and not all(games.values()) else status
    # each verdict is for the answers in the order in which they were shown
    judgements = [
        Judgement(Pair(i, j), verdict=game.verdict)
        if game.first == 0
        else Judgement(Pair(j, i), verdict=-game.verdict)
        for (i, j), played in games.items()
        for game in played
    ]
    one = Judged(sample, judgements, status, sheet.issues(comparisons.values()))
    if status != "scored":
        return _Row(one)
    n = len(sample.output)
    orders = {pair: [game.verdict for game in played] for pair, played in games.items()}
    graph: Graph = {pair: sign(sum(verdicts), 0) or 0 for pair, verdicts in orders.items()}
    uneven = [[i + 1, j + 1] for (i, j), verdicts in orders.items() if len(set(verdicts)) > 1]
    remaining = cycles(n, _edges(graph.items()))
    contradiction: dict[str, Any] = {}
    every_game = ((pair, verdict) for pair, verdicts in orders.items() for verdict in verdicts)
    if uneven or cycles(n, _edges(every_game)):
        circles = [[place + 1 for place in group] for group in remaining]
        contradiction = {"contradictory": uneven, "cycles": circles}
    flipped = [games[pair][0] for pair, verdicts in orders.items() if set(verdicts) == {1, -1}]
    units = {
        "conflict": [float(bool(contradiction))],
        "symmetry": [float(len(set(both)) == 1) for both in orders.values() if len(both) > 1],
        "transitivity": [float(transitive(graph, *triple)) for triple in combinations(range(n), 3)],
        "cycle": [float(bool(remaining))] if n > 2 else [],
        "first_place": [float(game.first == (game.verdict < 0)) for game in flipped],
    }
    return _Row(one, contradiction, units, [*graph.values()].count(0))


def _conflicts_of(rows: Sequence[_Row], **about: Any) -> Conflicts:
    """The figures over all samples."""
    figures = {}
    for key, what in _WHAT.items():
        units = [(value, row.judged.cluster) for row in rows for value in row.units.get(key, ())]
        values, clusters = [value for value, _ in units], [cluster for _, cluster in units]
        figures[key] = mean_finding("conflicts", key, what, values, clusters, None)
    notes = []
    if ties := sum(row.ties for row in rows):
        notes.append(f"{ties} pairs ended in a tie over both orders")
    if not figures["transitivity"].n:
        notes.append("no sample has three scored answers, so transitivity is not known")
    every = [row.judged for row in rows]
    with_conflict = [row for row in rows if row.contradiction]
    n_scored = sum(one.status == "scored" for one in every)
    whole = worst_case_bounds(len(rows), n_scored, len(with_conflict), missing_of(every))
    return Conflicts(
        n=len(rows),
        n_scored=n_scored,
        missing=whole.missing,
        bounds=whole.bounds,
        lost=lost(one.status for one in every),
        reasons=reasons_of(one for one in every if one.issues),
        figures=figures,
        examples=tuple(
            {"id": row.judged.sample.sample_id, **row.contradiction}
            for row in with_conflict[:EXAMPLES]
        ),
        notes=tuple(notes),
        **about,
    )


def _edges(verdicts: Iterable[tuple[Places, int]]) -> Iterator[Places]:
    """(winner, loser) of every comparison that has one."""
    for (i, j), verdict in verdicts:
        if verdict:
            yield (i, j) if verdict > 0 else (j, i)
