"""LongJudgeBench: judges of long texts, in pairs and lists that people ordered."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import combinations

from rm_gallery.core.data.load.converters import (
    RowRef,
    json_cell,
    output,
    text,
    wrong,
)
from rm_gallery.core.data.schema import DataSample
from rm_gallery.gallery.benchmarks.base import ROW, Benchmark, Output, cell, given, question
from rm_gallery.gallery.benchmarks.figures import Report, with_extra
from rm_gallery.gallery.benchmarks.judgements import Judged, Row, integer, sign, whole
from rm_gallery.gallery.benchmarks.llmbar import ONE_ORDER
from rm_gallery.gallery.benchmarks.preferences import voted_outputs
from rm_gallery.gallery.benchmarks.rules import (
    Kinds,
    MeanOfSubsets,
    RuleScorer,
    SubsetTallies,
    games,
    mean_of,
    named_by,
    played_verdict,
)

SETS = ("wp_bench", "ma", "surge")
POINTWISE = ("deepresearch_bench", "realdr", "verify_bench_hard")
STRUCTURE = "structure"
_PREFERRED = {"A": 1, "B": -1, "tie": 0}
_RANKS = {
    None: ("content_ranking", "human_rating"),
    STRUCTURE: ("structure_ranking", "human_score"),
}
"""By mode, people's ranking of a list and the label for an answer's place in it, which is negative so
that higher is better. No judge is shown these labels.
"""


class LongJudgeBench(Benchmark):
    """Share of pairs of answers in the order that people gave them, by set; headline the mean of the
    sets, each weighing the same.

    A pair counts in both orders, averaged, where a judge compares, and a tie is right only where
    people call it one. Of a list all pairs count, by the scores; `extra["spearman"]` and
    `extra["kendall"]` average the rank correlations of the lists, -1..1, higher is better, leaving
    out those with one score for all answers.
    """

    name = "longjudgebench"
    aliases = ("long-judge-bench",)
    version = "pairwise and listwise sets, repository at f35d00d"
    modes = {STRUCTURE: "lists are ordered by structure; without a mode they are by content"}
    own_columns = frozenset({"dataset", "id", "instruction", "responses", "ground_truth"})
    own_values = {"dataset": (*SETS, *POINTWISE)}
    one_order = ONE_ORDER

    def convert(self, row: Row, where: RowRef = ROW) -> DataSample:
        """Outputs: the responses as they stand, labelled by people; of a list the first by content is
        chosen.

        Metadata: `subset` (the set), `language`, `models` and `cluster` (the paper or the prompt).
        """
        name = text(row, "dataset", where)
        if name not in SETS:
            known = "wp_bench, ma or surge; the sets of single answers are not read"
            raise wrong(where, "dataset", known, name)
        responses, truth = (cell(row, column, where) for column in ("responses", "ground_truth"))
        if not (isinstance(responses, list) and len(responses) > 1):
            raise wrong(where, "responses", "a list of two or more responses", responses)
        for place, one in enumerate(responses, 1):
            if not (isinstance(one, Mapping) and isinstance(one.get("content"), str)):
                raise wrong(where, f"responses[{place}]", "an object with model and content", one)
        if not isinstance(truth, Mapping):
            raise wrong(where, "ground_truth", "an object", truth)
        meta = json_cell(row.get("meta"))
        meta = meta if isinstance(meta, Mapping) else {}
        about = {
            "subset": name,
            "language": meta.get("language"),
            "models": [one.get("model") for one in responses],
            "cluster": f"{name}:{meta.get('paper_id', row.get('id'))}",
        }
        # pairs of wp_bench share ids, so that the content has to tell rows apart
        return self.sample(
            "",
            question(row, "instruction", where),
            self._with_labels(name, responses, truth, where),
            name,
            given(about),
        )

    def _with_labels(
        self,
        name: str,
        responses: Sequence[Row],
        truth: Row,
        where: RowRef,
    ) -> list[Output]:
        """The responses with what people said of them."""
        said = [one["content"] for one in responses]
        if name == "surge":
            content, structure = (
                _ranks(responses, truth, ranking, where) for ranking, _ in _RANKS.values()
            )
            return [
                output(
                    words,
                    "chosen" if rank == min(content) else "rejected",
                    **{_RANKS[None][1]: -rank, _RANKS[STRUCTURE][1]: -other},
                )
                for words, rank, other in zip(said, content, structure, strict=True)
            ]
        vote = None
        if name == "ma":
            vote = _PREFERRED.get(str(truth.get("preferred")))
        elif sorted(str(one.get("label")) for one in responses) == ["0", "1"]:
            vote = 1 if integer(responses[0]["label"]) else -1
        if vote is None or len(said) != 2:
            column = "ground_truth" if name == "ma" else "responses"
            expected = "the better of two responses: preferred A, B or tie, or labels 1 and 0"
            raise wrong(where, column, expected, truth if name == "ma" else list(responses))
        return voted_outputs(said[0], said[1], vote)

    def scorer(self, seed: int = 0) -> RuleScorer:
        """Count rows by set."""
        return _Ordered(_RANKS[self.mode][1])


def _ranks(responses: Sequence[Row], truth: Row, ranking: str, where: RowRef) -> list[int]:
    """People's ranks of the responses, 1 for the best."""
    places = truth.get(ranking)
    given_to = places if isinstance(places, Mapping) else {}
    ranks = [integer(given_to.get(one.get("model"))) for one in responses]
    known = [rank for rank in ranks if rank is not None]
    if len(known) < len(ranks):
        raise wrong(where, f"ground_truth.{ranking}", "a rank for each model", places)
    return known


def ordered_credit(judged: Judged, label: str) -> float | None:
    """Share of a row's pairs in people's order; of a single pair the mean of the orders played.

    `label` names people's rating of the answers of a list, higher is better.
    """
    if len(judged.chosen) == 2:
        first, second, wanted = games(judged)
        if judged.played_orders == 1:
            first = second = played_verdict(judged)
        said = whole([first, second])
        return None if said is None else said.count(wanted) / 2
    values = judged.complete()
    if values is None:
        return None
    pairs = list(combinations(zip(values, _people(judged, label), strict=True), 2))
    return sum(sign(v, w) == sign(x, y) for (v, x), (w, y) in pairs) / len(pairs)


def _people(judged: Judged, label: str) -> list[float]:
    """People's rating of the answers, higher is better."""
    labels = [output.answer.label or {} for output in judged.sample.output]
    return [float(own.get(label, won)) for own, won in zip(labels, judged.chosen, strict=True)]


def _fits(chosen: Sequence[bool]) -> bool:
    return len(chosen) > 1 and not all(chosen)


def _guessed(judged: Judged) -> float | None:
    """A half; nothing where people say tie, since a guess of tie costs more pairs than it wins."""
    if not _fits(judged.chosen):
        return None
    return 0.5 if any(judged.chosen) else 0.0


class _Ordered(MeanOfSubsets):
    """Rows by set, with the rank correlations of lists beside them."""

    def __init__(self, label: str) -> None:
        credit = partial(ordered_credit, label=label)
        tallies = SubsetTallies("ordered_pairs", credit, _fits, _guessed)
        super().__init__(tallies, SETS, Kinds("categories", named_by("language")))
        self._label = label
        self._correlations: defaultdict[str, list[float]] = defaultdict(list)

    def add(self, judged: Judged) -> float | None:
        values = judged.complete()
        if values is not None and len(values) > 2 and len(set(values)) > 1:
            from scipy.stats import kendalltau, spearmanr

            people = _people(judged, self._label)
            if len(set(people)) > 1:
                for name, measure in (("spearman", spearmanr), ("kendall", kendalltau)):
                    self._correlations[name].append(float(measure(people, values).statistic))
        return super().add(judged)

    def report(self) -> Report:
        means = {name: mean_of(sorted(found)) for name, found in self._correlations.items()}
        return with_extra(super().report(), means)
