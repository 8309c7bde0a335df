"""RMB: pairs and lists of answers to conversations, by helpfulness scenario or kind of harm."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rm_gallery.core.data.load.converters import (
    RowRef,
    identity,
    json_cell,
    preference_outputs,
    required,
    text,
    wrong,
)
from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.utils.errors import DataError
from rm_gallery.core.utils.models import copy_with
from rm_gallery.gallery.benchmarks.base import ROW, Benchmark, cell, given, question
from rm_gallery.gallery.benchmarks.judgements import (
    About,
    Candidate,
    Judged,
    Judgement,
    Recorded,
    RecordedRow,
    Row,
    Rows,
    Samples,
    ScoresByModel,
    joined,
    judge_of,
    peek,
    recorded_rows,
    worst_part,
)
from rm_gallery.gallery.benchmarks.rules import (
    Gathered,
    Kinds,
    PooledScorer,
    RuleScorer,
    beaten_losers,
    named_by,
    strict_pairs,
)

_GOALS = Kinds(
    "categories", named_by("subset", "category"), "goals_absent", ("Helpfulness", "Harmlessness")
)
_REWARDS = ("chosen_reward", "reject_reward")


class _RMB(Benchmark):
    def _conversation_sample(
        self,
        row: Row,
        column: str,
        chosen: list[str],
        rejected: list[str],
        models: About,
        where: RowRef,
    ) -> DataSample:
        spoken = question(row, "conversation_input", where, cell)
        languages = [turn.pop("language", None) for turn in spoken]
        about = {**_category(row, where), **models, **given({"language": languages[0]})}
        task = about["subset"].lower() if about.get("subset") else None
        outputs = preference_outputs(chosen, rejected)
        sample = self.sample(identity(row, column, where), spoken, outputs, task, about)
        sample.source = "rmb"
        return sample


class RMBPairwise(_RMB):
    """Strict pairs, pooled; helpfulness and harmlessness, which the benchmark reports apart, under
    `extra["categories"]`.
    """

    name = "rmbbenchmark_pairwise"
    aliases = ("rmb_pairwise", "rmb")
    version = "repository at 2be3180"
    chance = 0.5
    own_columns = frozenset({"conversation_input", "chosen", "reject"})

    def convert(self, row: Row, where: RowRef = ROW) -> DataSample:
        """Outputs: chosen, then rejected.

        Metadata: `subset` (Helpfulness or Harmlessness), `category` (the scenario below it),
        `category_path`, `chosen_model`, `rejected_model`, and `language` where given.
        """
        chosen, chosen_model = _candidate(required(row, "chosen", where), "chosen", where)
        rejected, rejected_model = _candidate(required(row, "reject", where), "reject", where)
        models = {"chosen_model": chosen_model, "rejected_model": rejected_model}
        return self._conversation_sample(row, "pair_uid", [chosen], [rejected], models, where)

    def scorer(self, seed: int = 0) -> RuleScorer:
        """Count strict pairs."""
        return PooledScorer(strict_pairs(), _GOALS)

    def recorded_scores(self, rows: Rows, samples: Samples = None, **rule: str) -> Recorded:
        """Scores by id as for any benchmark, or the published files: both scores of a pair in one
        row.

        Such a row holds `pair_uid`, `chosen_reward` and `reject_reward`, and `category_path` in
        place of the data; what it says of `is_correct` is counted anew.
        """
        first, rows = peek(rows)
        if not {"pair_uid", *_REWARDS} <= first.keys():
            yield from super().recorded_scores(rows, samples, **rule)
            return
        self.under(**rule)
        scores: ScoresByModel = {}
        known: dict[str, RecordedRow] = {}
        for row in recorded_rows(rows, "pair_uid", *_REWARDS):
            name = row.named("pair_uid")
            rewards = {(str(place), ""): row.score(column) for place, column in enumerate(_REWARDS)}
            if scores.setdefault(judge_of(row), {}).setdefault(name, rewards) is not rewards:
                raise DataError(
                    f"recorded row {row.number}: pair '{name[:80]}' was given before; keep one row of "
                    f"it."
                )
            known[name] = row
        if samples is None:
            samples = [_bare(row, name) for name, row in known.items()]
        yield from joined(self.name, self.ids, lambda: scores, samples)


class RMBBestOfN(_RMB):
    """Share of lists whose best answer beats every loser; helpfulness and harmlessness under
    `extra["categories"]`.

    A pairwise judge is asked about the best answer and each loser, as the paper has it, and not
    about two losers.
    """

    name = "rmbbenchmark_bestofn"
    aliases = ("rmb_bon", "rmb_bestofn")
    version = "rule of the paper; the repository at 2be3180 holds no code for it"
    own_columns = frozenset({"conversation_input", "bon_best", "loser_list"})

    def convert(self, row: Row, where: RowRef = ROW) -> DataSample:
        """Outputs: the best answer, then the losers; metadata as for the pairs, with
        `rejected_models`.
        """
        best, best_model = _candidate(required(row, "bon_best", where), "bon_best", where)
        losers = cell(row, "loser_list", where)
        if not isinstance(losers, list) or not losers:
            raise wrong(where, "loser_list", "a list of one or more answers", losers)
        candidates = [
            _candidate(loser, f"loser_list[{place}]", where)
            for place, loser in enumerate(losers, 1)
        ]
        models = {"chosen_model": best_model, "rejected_models": [model for _, model in candidates]}
        return self._conversation_sample(
            row, "bon_uid", [best], [answer for answer, _ in candidates], models, where
        )

    def questions(self, sample: DataSample, reward: BaseReward) -> Iterable[DataSample]:
        """The list itself, or its pairs of best and loser for a pairwise reward."""
        if reward.kind != "pairwise" or len(sample.output) < 3:
            return (sample,)
        losers = len(sample.output) - 1
        return (Gathered.part_of(sample, part, losers, [0, part + 1]) for part in range(losers))

    def scorer(self, seed: int = 0) -> RuleScorer:
        """Count lists."""
        return _Lists()


def _bare(row: RecordedRow, name: str) -> DataSample:
    """The pair without its texts, which a file of scores does not hold."""
    metadata = _category(row, RowRef("recorded scores", row.number))
    return DataSample.model_validate(
        {"unique_id": name, "output": preference_outputs([""], [""]), "metadata": metadata or None}
    )


class _Lists(PooledScorer):
    """Lists, whole or in pairs; a list counts when its last pair has come, and is lost as soon as
    one of them is.
    """

    def __init__(self) -> None:
        super().__init__(beaten_losers(), _GOALS)
        self._pairs = Gathered()

    def add(self, judged: Judged) -> float | None:
        """Count one list, or one pair of a list; the list earns its credit with its last pair."""
        if "whole" not in judged.metadata:
            return super().add(judged)
        pairs = self._pairs.add(judged)
        return None if pairs is None else super().add(_rejoined(pairs))


def _rejoined(pairs: list[Judged]) -> Judged:
    """The list its pairs make up: every loser at its margin below the best answer."""
    first, lost = pairs[0].sample, worst_part(pairs)
    outputs = [first.output[0], *(pair.sample.output[1] for pair in pairs)]
    sample = copy_with(first, unique_id=pairs[0].metadata["whole"], output=outputs)
    judgements = [Judgement(Candidate(0), score=0.0)]
    for place, scores in enumerate((pair.complete() for pair in pairs), 1):
        margin = None if scores is None else scores[1] - scores[0]
        judgements.append(Judgement(Candidate(place), score=margin))
    return Judged(sample, judgements, lost.status, lost.issues)


def _candidate(cell: Any, column: str, where: RowRef) -> tuple[str, str | None]:
    value = json_cell(cell)
    if not isinstance(value, dict) or not isinstance(value.get("answer"), str):
        raise wrong(where, column, "an object with llm_name and answer", value)
    return value["answer"], value.get("llm_name")


def _category(row: Row, where: RowRef) -> About:
    if row.get("category_path") is None:
        return {}
    path = text(row, "category_path", where)
    # "Pairwise_set/Helpfulness/Open QA/Factual"; the first part names the set, not the row.
    parts = [part for part in path.replace("\\", "/").split("/") if part]
    if len(parts) > 1 and parts[0].lower().endswith("_set"):
        parts = parts[1:]
    goal, below = (parts[0], "/".join(parts[1:])) if parts else (None, "")
    return given({"category_path": path, "subset": goal, "category": below or None})
