"""Do a reward's comparisons fit together? Every pair of a sample in both orders, contradictions and
cycles among them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.reward.run import run_unordered
from rm_gallery.core.stats import np
from rm_gallery.core.stats.denominator import added, worst_case_bounds
from rm_gallery.core.stats.intervals import Interval
from rm_gallery.core.utils.errors import ConfigError, DataError
from rm_gallery.core.utils.shown import one_line
from rm_gallery.gallery.benchmarks.figures import Record
from rm_gallery.gallery.benchmarks.judgements import (
    Judged,
    Judgement,
    Pair,
    Status,
    cluster_of,
    sign,
    worst,
)
from rm_gallery.gallery.benchmarks.lead import worth
from rm_gallery.study.cards import conflicts_figures
from rm_gallery.study.doors import Asked, Keywords, door
from rm_gallery.study.pairwise_comparisons import (
    Finding,
    Game,
    PairwiseComparison,
    Questionnaire,
    kept_when_interrupted,
    lost,
    mean_finding,
)
from rm_gallery.study.runs import kept_in, sample_record
from rm_gallery.study.source import Source
from rm_gallery.study.task import Reasons, begun, judge_of

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
        """What a reader may conclude, in the one sentence that every rendering begins with."""
        return one_line(self.to_dict()["worth"])

    def about(self) -> list[str]:
        """What the figures rest on, a line each."""
        left_out = "".join(f", {count} {status}" for status, count in self.lost.items())
        judge = " · judge {judge}" if self.judge else ""
        about = f"{{reward}} ({{kind}}){judge} · data: {{data}} · {{n_scored}} of {{n}} samples"
        with_conflict = [
            f"{example['id']}: {_conflict_in_words(example)}" for example in self.examples[:3]
        ]
        return [about.format_map(vars(self)) + left_out, *self.notes, *with_conflict]


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
    about = {"conflicts": 1, **identity}
    chosen, control = begun(asked.options, about, total=len(sheet.questions))

    def found() -> Conflicts:
        rows: list[tuple[Judged, float | None]] = []
        out = _conflicts_of(sheet, games, name, rows, calls=control.calls, stopped=control.stopped)
        with kept_in(chosen.run_dir) as keeping:
            if keeping is not None:
                for one, credit in rows:
                    keeping.add(sample_record(None, one, credit))
                keeping.finish(conflicts_figures(out.to_dict()))
        return out

    with (
        kept_when_interrupted(control, found),
        closing(run_unordered(built, sheet.questions.values(), chosen, asked.hooks)) as scored,
    ):
        sheet.collect(scored)
    return found()


def samples_of(source: Source) -> tuple[list[DataSample], str, dict[str, Any]]:
    """The samples of a source, which need no labels, what they are called, and what identifies them."""
    data = source.data
    samples = isinstance(data, Sequence) and all(isinstance(one, DataSample) for one in data)
    if samples and source.benchmark is None:
        source = replace(source, benchmark="preferences")
    dataset = source.open()
    return list(dataset.rows()), dataset.name, dataset.identity()


def _conflict_in_words(example: Mapping[str, Any]) -> str:
    """A conflict in words."""
    pairs = [f"{i} and {j}" for i, j in example["contradictory"]]
    circles = [f"answers {', '.join(map(str, group))} form a cycle" for group in example["cycles"]]
    return "; ".join(
        [*([f"the orders disagree about {', '.join(pairs)}"] if pairs else []), *circles]
    )


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


def _conflicts_of(
    sheet: Questionnaire,
    samples: list[SampleComparisons],
    name: str,
    rows: list[tuple[Judged, float | None]],
    **spent: Any,
) -> Conflicts:
    """The figures; each sample with its verdicts and what it earns is added to `rows`."""
    credits, clusters = defaultdict[str, list[float]](list), defaultdict[str, list[str]](list)
    statuses: list[Status] = []
    examples: list[dict[str, Any]] = []
    causes, reasons, ties = Counter[str](), Reasons(), 0
    for sample, comparisons in samples:
        games = {pair: sheet.games(comparison) for pair, comparison in comparisons.items()}
        status = worst(sheet.status(comparison) for comparison in comparisons.values())
        one = Judged(sample, _judgements(games), status, sheet.issues(comparisons.values()))
        statuses.append(status)
        credit = None
        if status != "scored":
            causes.update(filter(None, [one.cause]))
            for issue in [issue for issue in one.issues if issue.status == status][:1]:
                reasons.add(f"{status}: {issue.reason}", issue.message)
        else:
            contradiction, earned, tied = _of_sample(games)
            ties, credit = ties + tied, float(not contradiction)
            for key, values in earned.items():
                credits[key] += values
                clusters[key] += [one.cluster] * len(values)
            if contradiction and len(examples) < EXAMPLES:
                examples.append({"id": sample.sample_id, **contradiction})
        rows.append((one, credit))
    figures = {
        key: mean_finding("conflicts", key, what, credits[key], clusters[key], None)
        for key, what in _WHAT.items()
    }
    notes = [f"{ties} pairs ended in a tie over both orders"] if ties else []
    if not figures["transitivity"].n:
        notes.append("no sample has three scored answers, so transitivity is not known")
    n_scored = statuses.count("scored")
    whole = worst_case_bounds(len(samples), n_scored, sum(credits["conflict"]), added([causes]))
    return Conflicts(
        reward=sheet.reward.name,
        kind=sheet.reward.kind,
        judge=judge_of(sheet.reward)[0],
        data=name,
        n=len(samples),
        n_scored=n_scored,
        missing=whole.missing,
        bounds=whole.bounds,
        lost=lost(statuses),
        reasons=reasons.sorted(),
        figures=figures,
        examples=tuple(examples),
        notes=tuple(notes),
        **spent,
    )


def _judgements(games: Mapping[Places, list[Game]]) -> list[Judgement]:
    """The verdicts of a sample, each for the answers in the order in which they were shown."""
    return [
        Judgement(Pair(i, j), verdict=game.verdict)
        if game.first == 0
        else Judgement(Pair(j, i), verdict=-game.verdict)
        for (i, j), own in games.items()
        for game in own
    ]


def _of_sample(
    games: Mapping[Places, list[Game]],
) -> tuple[dict[str, Any], dict[str, list[float]], int]:
    """What is contradictory in a sample, with answers numbered from 1 (empty where nothing is);
    what each unit of it adds to each rate; and how many pairs tie over both orders.
    """
    n = max(j for _, j in games) + 1
    orders = {pair: [game.verdict for game in own] for pair, own in games.items()}
    verdicts = [(pair, verdict) for pair, own in orders.items() for verdict in own]
    graph: Graph = {pair: sign(sum(own), 0) or 0 for pair, own in orders.items()}
    uneven = [[i + 1, j + 1] for (i, j), own in orders.items() if len(set(own)) > 1]
    left = cycles(n, _edges(graph.items()))
    circles = [[place + 1 for place in group] for group in left]
    contradiction: dict[str, Any] = {}
    if uneven or cycles(n, _edges(verdicts)):
        contradiction = {"contradictory": uneven, "cycles": circles}
    twice = [own for own in orders.values() if len(own) > 1]
    flipped = [games[pair][0] for pair, own in orders.items() if set(own) == {1, -1}]
    credits = {
        "conflict": [float(bool(contradiction))],
        "symmetry": [float(len(set(own)) == 1) for own in twice],
        "transitivity": [float(transitive(graph, *triple)) for triple in combinations(range(n), 3)],
        "cycle": [float(bool(left))] if n > 2 else [],
        "first_place": [float(game.first == (game.verdict < 0)) for game in flipped],
    }
    return contradiction, credits, sum(verdict == 0 for verdict in graph.values())


def _edges(verdicts: Iterable[tuple[Places, int]]) -> Iterator[Places]:
    """(winner, loser) of every comparison that has one."""
    for (i, j), verdict in verdicts:
        if verdict:
            yield (i, j) if verdict > 0 else (j, i)
