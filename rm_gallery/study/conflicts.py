"""Do a reward's comparisons fit together? Every pair of a sample in both orders, contradictions and cycles among them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.engine.context import RunControl
from rm_gallery.core.engine.options import RunOptions, whole
from rm_gallery.core.model.base import BaseLLM
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.reward.run import options_of, run_unordered
from rm_gallery.core.runner.grading_runner import build_reward
from rm_gallery.core.utils.errors import ConfigError, DataError
from rm_gallery.core.utils.file import as_json, seeded_positions, write_whole
from rm_gallery.gallery.benchmarks.base import Benchmark
from rm_gallery.gallery.benchmarks.figures import plain
from rm_gallery.gallery.benchmarks.judgements import Status, worst
from rm_gallery.study.duels import Duel, Finding, Said, Sheet, found, lost
from rm_gallery.study.task import judge_of, open_data

Graph = dict[tuple[int, int], int]
"""Per pair (i, j), i < j: +1 where i is better, -1 where j is, 0 for a tie."""
EXAMPLES = 20
_OWN = ("params", "llm", "base_url", "limit", "seed", "on_bad_row", "columns", "hooks", "options", "benchmark")


@dataclass(frozen=True)
class Conflicts:
    """How well a reward's comparisons fit together.

    Attributes:
        reward: name of the reward, and its kind.
        judge: the model that judged; None where none did.
        data: where the samples came from.
        n: samples with two or more answers; `n_scored` of them have every verdict, and only these are in the figures.
        lost: samples without, by outcome.
        reasons: why, "status: reason" to how many questions and an example.
        figures: conflict, symmetry, transitivity and cycle rates by name.
        examples: samples with a conflict: id, the contradictory pairs, and the answers of each cycle by number from 1.
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
    figures: Mapping[str, Finding]
    examples: tuple[Mapping[str, Any], ...] = ()
    calls: int = 0
    stopped: str | None = None
    notes: tuple[str, ...] = field(default_factory=tuple)

    def about(self) -> list[str]:
        """What the figures rest on, a line each."""
        left_out = [f"{count} {status}" for status, count in self.lost.items()]
        counts = ", ".join([f"{self.n_scored} of {self.n} samples", *left_out])
        judge = f" · judge {self.judge}" if self.judge else ""
        with_conflict = [f"{example['id']}: {_shown(example)}" for example in self.examples[:3]]
        return [f"{self.reward} ({self.kind}){judge} · data: {self.data} · {counts}", *self.notes, *with_conflict]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain JSON types."""
        own = {name: plain(value) for name, value in vars(self).items() if name not in ("figures", "examples")}
        shown = {name: figure.to_dict() for name, figure in self.figures.items()}
        return {**own, "figures": shown, "examples": [plain(example) for example in self.examples]}


def conflicts(
    reward: str | BaseReward | type[BaseReward],
    data: Any,
    benchmark: str | Benchmark | None = None,
    *,
    params: Mapping[str, Any] | None = None,
    llm: str | dict[str, Any] | BaseLLM | None = None,
    base_url: str | None = None,
    limit: int | None = None,
    seed: int = 0,
    on_bad_row: str = "raise",
    columns: Mapping[str, str | None] | None = None,
    hooks: Mapping[str, Any] | None = None,
    options: RunOptions | None = None,
    **run_options: Any,
) -> Conflicts:
    """Compare all pairs of each sample's answers in both orders and find what contradicts itself.

    Args are those of `evaluate`; samples need no preference labels. With `run_dir` the same call continues an unfinished run,
    and `conflicts.json` is kept there.

    Raises:
        ConfigError: as `evaluate`, and for a reward that scores answers by themselves: numbers cannot contradict each other.
    """
    built = build_reward(reward, params, llm, base_url, seed)
    if not built.compares:
        raise ConfigError(
            f"{built.name} is {built.kind}: it scores answers by themselves, and numbers have an order without contradictions. "
            "Name a listwise or pairwise reward, or see how stable its scores are with `rm-gallery audit`."
        )
    chosen, values = options_of(built, options, hooks, run_options, progress=None, beside=_OWN)
    samples, name, identity = _samples(data, benchmark, limit=limit, seed=seed, on_bad_row=on_bad_row, columns=columns)
    sheet = Sheet(built)
    games: list[tuple[str, dict[tuple[int, int], Duel]]] = []
    for sample in samples:
        pairs = combinations(range(len(sample.output)), 2)
        duels = {(i, j): sheet.duel(sample, sample.output[i], sample.output[j]) for i, j in pairs}
        games += [(sample.sample_id, duels)] if duels else []
    if not games:
        raise DataError(f"{name}: no sample has two answers, so there is nothing to compare.")
    control = chosen.control or RunControl()
    chosen = replace(
        chosen,
        control=control,
        total=len(sheet.questions),
        manifest={"conflicts": 1, **identity, **(chosen.manifest or {})},
    )
    with closing(run_unordered(built, sheet.questions.values(), chosen, values)) as scored:
        sheet.hear(scored)
    out = _read(sheet, games, name)
    out = replace(out, calls=control.calls, stopped=control.stopped)
    if chosen.run_dir is not None:
        write_whole(Path(chosen.run_dir) / "conflicts.json", as_json(out.to_dict()))
    return out


def _samples(data: Any, benchmark: str | Benchmark | None, **how: Any) -> tuple[list[DataSample], str, dict[str, Any]]:
    """The samples, what they are called, and what identifies them; labels do not matter here."""
    if how["limit"] is not None:
        whole("limit", how["limit"], 1)
    if isinstance(data, Iterable) and not isinstance(data, (str, Mapping)) and not hasattr(data, "iloc"):
        data = list(data)
        if data and all(isinstance(sample, DataSample) for sample in data):
            chosen = seeded_positions(len(data), how["limit"] or len(data), how["seed"])
            return [data[place] for place in chosen], f"{len(chosen)} samples", {"limit": how["limit"]}
    opened = open_data(data, benchmark, **how)
    return list(opened.rows()), opened.name, opened.identity()


def _shown(example: Mapping[str, Any]) -> str:
    """A conflict in words."""
    pairs = [f"{i} and {j}" for i, j in example["contradictory"]]
    circles = [f"answers {', '.join(map(str, group))} form a cycle" for group in example["cycles"]]
    return "; ".join([*([f"the orders disagree about {', '.join(pairs)}"] if pairs else []), *circles])


# -- reading ------------------------------------------------------------------------------------------------------------


def cycles(n: int, better: Iterable[tuple[int, int]]) -> list[list[int]]:
    """Groups of answers that are better than each other in a circle: strongly connected components of two or more.

    `better` holds (winner, loser) pairs of positions below `n`.
    """
    import numpy as np
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    edges = list(better)
    if not edges:
        return []
    rows, columns = zip(*edges, strict=True)
    graph = coo_array((np.ones(len(edges)), (rows, columns)), shape=(n, n))
    _, names = connected_components(graph, directed=True, connection="strong")
    groups: dict[int, list[int]] = {}
    for place, label in enumerate(names.tolist()):
        groups.setdefault(label, []).append(place)
    return [group for group in groups.values() if len(group) > 1]


def transitive(graph: Graph, i: int, j: int, k: int) -> bool:
    """Whether three comparisons (i < j < k) fit one order, in which answers may be equal."""
    first, second, whole = graph[i, j], graph[j, k], graph[i, k]
    if first == 0 or second == 0:
        return whole == first + second
    return first != second or whole == first


def _read(sheet: Sheet, samples: list[tuple[str, dict[tuple[int, int], Duel]]], name: str) -> Conflicts:
    rates: dict[str, tuple[list[float], list[str]]] = {key: ([], []) for key in _WHAT}
    statuses: list[Status] = []
    examples: list[dict[str, Any]] = []
    ties = 0
    for sample_id, duels in samples:
        status = worst(sheet.status(duel) for duel in duels.values())
        if status == "scored" and not all(sheet.games(duel) for duel in duels.values()):
            status = "unscored"
        statuses.append(status)
        if status != "scored":
            continue
        cluster = next(iter(duels.values())).cluster
        one = _Sample(sheet, duels)
        ties += sum(verdict == 0 for verdict in one.graph.values())
        for key, credits in one.credits().items():
            rates[key][0].extend(credits)
            rates[key][1].extend([cluster] * len(credits))
        if one.found and len(examples) < EXAMPLES:
            examples.append({"id": sample_id, **one.found})
    figures = {key: found("conflicts", key, _WHAT[key], *rates[key], limit=None) for key in _WHAT}
    judge, _ = judge_of(sheet.reward)
    scored = statuses.count("scored")
    notes = [f"{ties} pairs ended in a tie over both orders"] if ties else []
    notes += [] if figures["transitivity"].n else ["no sample has three scored answers, so transitivity is not known"]
    return Conflicts(
        sheet.reward.name,
        sheet.reward.kind,
        judge,
        name,
        len(samples),
        scored,
        lost(statuses),
        reasons_of(sheet.said.values()),
        figures,
        tuple(examples),
        notes=tuple(notes),
    )


_WHAT = {
    "conflict": "samples whose comparisons, order by order, hold a contradiction or a cycle",
    "symmetry": "pairs that get the same verdict in both orders",
    "transitivity": "triples of answers whose three verdicts, each over both orders, fit one order",
    "cycle": "samples with a cycle that remains when each pair's two orders are taken together",
    "first_place": "contradictory pairs won both times by the answer shown first",
}


class _Sample:
    """The comparisons of one sample."""

    def __init__(self, sheet: Sheet, duels: Mapping[tuple[int, int], Duel]) -> None:
        self.n = max(j for _, j in duels) + 1
        self.games = {pair: sheet.games(duel) for pair, duel in duels.items()}
        sums = {pair: sum(game.verdict for game in games) for pair, games in self.games.items()}
        self.graph: Graph = {pair: (total > 0) - (total < 0) for pair, total in sums.items()}
        self.uneven = [pair for pair, games in self.games.items() if len({game.verdict for game in games}) > 1]
        wins = [(pair, game.verdict) for pair, games in self.games.items() for game in games]
        self.all_cycles = cycles(self.n, _edges(wins))
        self.cycles = cycles(self.n, _edges(self.graph.items()))

    @property
    def found(self) -> dict[str, Any]:
        """What is contradictory, with answers numbered from 1; empty where nothing is."""
        if not self.all_cycles and not self.uneven:
            return {}
        pairs = [[i + 1, j + 1] for i, j in self.uneven]
        return {"contradictory": pairs, "cycles": [[place + 1 for place in group] for group in self.cycles]}

    def credits(self) -> dict[str, list[float]]:
        """What each unit of the sample adds to each rate."""
        twice = [games for games in self.games.values() if len(games) > 1]
        flipped = [games for games in twice if {game.verdict for game in games} == {1, -1}]
        firsts = [games[0].first == (0 if games[0].verdict > 0 else 1) for games in flipped]
        triples = combinations(range(self.n), 3)
        return {
            "conflict": [float(bool(self.found))],
            "symmetry": [float(len({game.verdict for game in games}) == 1) for games in twice],
            "transitivity": [float(transitive(self.graph, *triple)) for triple in triples],
            "cycle": [float(bool(self.cycles))] if self.n > 2 else [],
            "first_place": [float(first) for first in firsts],
        }


def _edges(verdicts: Iterable[tuple[tuple[int, int], int]]) -> Iterator[tuple[int, int]]:
    for (i, j), verdict in verdicts:
        if verdict:
            yield (i, j) if verdict > 0 else (j, i)


def reasons_of(every: Iterable[Said]) -> dict[str, dict[str, Any]]:
    """Why questions have no score: "status: reason" to how many, and one message."""
    counts: Counter[str] = Counter()
    examples: dict[str, str] = {}
    for said in every:
        if said.status != "scored":
            key = f"{said.status}: {said.reason}"
            counts[key] += 1
            examples.setdefault(key, said.message)
    return {key: {"n": n, "example": examples[key]} for key, n in counts.most_common()}
