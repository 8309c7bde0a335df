"""Preferences without a rule of their own: anybody's pairs and lists, votes of people, HH-RLHF, HHH
alignment and MT-bench.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any, ClassVar

from rm_gallery.core.data.load.converters import (
    PROMPT_COLUMNS,
    GenericConverter,
    RowRef,
    identity,
    json_cell,
    missing,
    output,
    preference_outputs,
    required,
    text,
    turns,
    wrong,
)
from rm_gallery.core.data.schema import DataSample, is_record
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.utils.errors import DataError
from rm_gallery.gallery.benchmarks.base import ROW, Benchmark, Output, Turns, cell, given, question
from rm_gallery.gallery.benchmarks.figures import Report
from rm_gallery.gallery.benchmarks.judgements import (
    About,
    Judged,
    RecordedRow,
    Row,
    Verdict,
    has_preference,
    integer,
    is_pair,
    known_of,
)
from rm_gallery.gallery.benchmarks.rules import (
    PooledScorer,
    RuleScorer,
    SubsetTallies,
    best_of_n_credit,
    games,
    mean_of,
    played_verdict,
    strict_pairs,
    strict_share,
    tie_credit,
)


class Preferences(Benchmark):
    """Strict pairs if every labelled sample is one chosen against one rejected answer, else
    best-of-N with tie credit.

    One rule holds for the whole report, pooled. Columns are read by their usual names, samples of
    this library as they are.
    """

    name = "preferences"
    aliases: ClassVar[tuple[str, ...]] = ("*",)
    version = "strict pairs or best-of-N with tie credit, pooled"
    general = True

    def detect(self, columns: Row) -> bool:
        """A prompt with chosen and rejected answers, or samples written by this library."""
        asked = any(columns.get(name) is not None for name in ("messages", *PROMPT_COLUMNS))
        return asked and {"chosen", "rejected"} <= columns.keys() or is_record(columns)

    def convert(self, row: dict[str, Any], where: RowRef = ROW) -> DataSample:
        """The row by its usual column names."""
        return GenericConverter().convert(row, where)

    def scorer(self, seed: int = 0) -> RuleScorer:
        """Count under both rules; which one holds is known only at the end."""
        return _Either()


class StrictPairs(Preferences):
    """Strict pairs, pooled; a sample that is no pair is unscored."""

    name = "pairs"
    aliases = ()
    version = "strict pairs, pooled"

    def detect(self, columns: Row) -> bool:
        """Never by itself: it has to be asked for."""
        return False

    def scorer(self, seed: int = 0) -> RuleScorer:
        """Count strict pairs."""
        return PooledScorer(strict_pairs())


class Lists(StrictPairs):
    """Best-of-N with tie credit, pooled."""

    name = "lists"
    version = "best-of-N with tie credit, pooled"

    def scorer(self, seed: int = 0) -> RuleScorer:
        """Count lists."""
        return PooledScorer(tie_credit())


class _Either(PooledScorer):
    """Counts with tie credit, and reports strictly where every labelled sample was a pair: of a
    pair only a half is then nothing.
    """

    undecided = True

    def __init__(self) -> None:
        rule = "best_of_n_tie_credit"
        super().__init__(
            SubsetTallies(rule, best_of_n_credit, has_preference, strict_share, _chance_with_ties)
        )
        self._only_pairs = True

    def add(self, judged: Judged) -> float | None:
        credit = super().add(judged)
        if is_pair(judged.chosen):
            return None if credit is None else float(credit == 1.0)
        self._only_pairs = self._only_pairs and not has_preference(judged.chosen)
        return credit

    def report(self) -> Report:
        if not self._only_pairs:
            return super().report()
        strict = PooledScorer(strict_pairs())
        strict._orders, strict._tallies.n_unfit = self._orders, self._tallies.n_unfit
        for name, tally in self._tallies.by_subset.items():
            own = strict._tallies.by_subset[name] = copy(tally)
            own.credits = array("d", map(math.floor, tally.credits))
        return strict.report()


def _chance_with_ties(shares: Sequence[float]) -> float | None:
    """The mean; with tie credit a pair whose orders contradict each other is worth a half."""
    return mean_of(share or 0.5 for share in shares)


WITH_TIES, WITHOUT_TIES = "with_ties", "without_ties"


Shown = tuple[Turns, str, str]
"""The turns of a question, and two answers to it."""


class TwoAnswers(Benchmark):
    """Two answers in the order of the row, and a label that says which is better."""

    asked: ClassVar[str] = "prompt"
    read_asked: ClassVar[Callable[[Row, str, RowRef], Any]] = text
    answers: ClassVar[tuple[str, str]] = ("response_1", "response_2")
    voted: ClassVar[str] = "label"
    """The columns of the question and how it is read, of the answers, and of the label."""
    votes: ClassVar[Mapping[Any, int]] = {}
    """What the label may be, a whole number or a text: 1 prefers the first answer, -1 the second,
    0 neither.
    """
    worded: ClassVar[bool] = False
    """Whether the label is a text."""
    expected: ClassVar[str] = ""
    """What a label that does not fit should have been."""
    tie: ClassVar[str | None] = None
    """The label of both answers where neither is preferred; without one the metadata say `tie`."""
    row_id: ClassVar[str] = ""
    """The column of the id, where there is one."""
    task: ClassVar[str] = ""
    """The task category; without one it is what `task_of` names of the metadata."""
    task_of: ClassVar[str] = "subset"

    def vote_of(self, label: Any) -> int | None:
        """What a label says; None for one that does not fit."""
        known = isinstance(label, str) and label in self.votes
        return self.votes.get(label if known else integer(label))

    def detect(self, columns: Row) -> bool:
        """By the columns, and a label that fits."""
        return super().detect(columns) and self.vote_of(columns[self.voted]) is not None

    def vote(self, row: Row, where: RowRef) -> int:
        """Above 0 where the first answer is preferred, below 0 where the second is."""
        label = (text if self.worded else required)(row, self.voted, where)
        vote = self.vote_of(label)
        if vote is None:
            raise wrong(where, self.voted, self.expected, label)
        return vote

    def recorded_vote(self, row: RecordedRow) -> int:
        """What the label of a recorded row says."""
        vote = self.vote_of(row["label"])
        if vote is None:
            raise row.unfit("label", self.expected)
        return vote

    def name_of(self, row: Row, where: RowRef) -> str:
        """The id of the row, empty for none."""
        return identity(row, self.row_id, where)

    def shown(self, row: Row, where: RowRef) -> Shown:
        """The turns of the question, and both answers."""
        first, second = (text(row, column, where) for column in self.answers)
        return question(row, self.asked, where, type(self).read_asked), first, second

    def about(self, row: Row, vote: int, where: RowRef) -> About:
        """The metadata; those that are None are left out."""
        return {}

    def convert(self, row: Row, where: RowRef = ROW) -> DataSample:
        """Outputs: the first answer, then the second, labelled by which is better."""
        vote = self.vote(row, where)
        about = self.about(row, vote, where)
        asked, first, second = self.shown(row, where)
        task = self.task or about.get(self.task_of)
        known = {**about, "tie": None if vote or self.tie else True}
        outputs = voted_outputs(first, second, vote, self.tie)
        return self.sample(self.name_of(row, where), asked, outputs, task, given(known) or None)


def voted_outputs(first: str, second: str, vote: int, tie: str | None = None) -> list[Output]:
    """Two answers, labelled by a vote: above 0 for the first, below for the second, 0 for a tie,
    which labels both as `tie` says.
    """
    chosen, rejected = ("chosen", "rejected") if vote else (tie, tie)
    labels = (chosen, rejected) if vote > 0 else (rejected, chosen)
    return list(map(output, (first, second), labels))


def shared_turns(chosen: Sequence[Any], rejected: Sequence[Any]) -> int:
    """Number of leading turns equal on both sides, leaving each side at least its last turn."""
    limit = min(len(chosen), len(rejected)) - 1
    return next((place for place in range(limit) if chosen[place] != rejected[place]), limit)


def answered(conversation: Turns, column: str, where: RowRef) -> Turns:
    """The conversation; DataError where its last turn is not the assistant's."""
    role = conversation[-1]["role"]
    if role != "assistant":
        raise DataError(
            f"{where}, column '{column}': the last turn must be the assistant's, found {role}"
        )
    return conversation


def verdict_of(judged: Judged) -> Verdict:
    """The verdict of a pair, which is a tie where it changes with the order; None where one is
    missing.
    """
    if judged.played_orders == 1:
        return played_verdict(judged)
    first, second, _ = games(judged)
    return None if None in (first, second) else first if first == second else 0


def agreement_credit(judged: Judged) -> float | None:
    """1.0 if the verdict of a pair, read as first, second or tie, is the vote; verdicts that change
    with the order are a tie.
    """
    verdict = verdict_of(judged)
    return None if verdict is None else float(verdict == games(judged)[2])


class Votes(TwoAnswers):
    """Pairs that people voted on. Without ties (the default): strict pairs, and what people called
    a tie is not asked.

    With ties the vote has three classes; a judge that scores the answers ties only with equal
    scores, and one whose verdict changes with the order has said tie.
    """

    chance = 0.5
    detect = Benchmark.detect
    modes = {
        WITHOUT_TIES: "strict pairs; what people called a tie is not asked",
        WITH_TIES: "first, second or tie has to be the vote; verdicts that change with the order are a tie",
    }

    def left_out(self, sample: DataSample, reward: BaseReward) -> str | None:
        """Ties, unless the mode counts them."""
        if self.mode == WITH_TIES or not known_of(sample).get("tie"):
            return None
        return f"people called it a tie; --mode {WITH_TIES} counts ties as a class"

    def scorer(self, seed: int = 0) -> RuleScorer:
        """Count pairs."""
        if self.mode != WITH_TIES:
            return PooledScorer(strict_pairs())
        return PooledScorer(
            SubsetTallies(
                "three_class_agreement", agreement_credit, is_vote, _vote, _chance_of_votes
            )
        )


def _vote(judged: Judged) -> float | None:
    """2 for a verdict of tie plus 1 for a vote of tie; None for a sample without a verdict."""
    fits = judged.status == "scored" and is_vote(judged.chosen)
    verdict = verdict_of(judged) if fits else None
    return None if verdict is None else 2.0 * (verdict == 0) + (not any(judged.chosen))


def _chance_of_votes(votes: Sequence[float]) -> float | None:
    """What verdicts earn that say tie as often as this scorer does, and else name a side by lot.

    One that never ties is right in half of the votes that are none, so that a third is no level for
    all.
    """
    tied, voted = mean_of(vote >= 2.0 for vote in votes), mean_of(vote % 2.0 for vote in votes)
    if tied is None or voted is None:
        return None
    return tied * voted + (1 - tied) * (1 - voted) / 2


def is_vote(chosen: Sequence[bool]) -> bool:
    """Whether the labels are those of two answers, of which people preferred one or neither."""
    return len(chosen) == 2 and not all(chosen)


# -- whole dialogues: HH-RLHF, HHH, MT-bench -------------------------------------------------------

# A speaker's mark stands after an empty line, or at the very start.
_MARK = re.compile(r"(?:\A\s*|\r?\n\r?\n)(Human|Assistant):")
_ROLES = {"Human": "user", "Assistant": "assistant"}

Said = tuple[str, str]
"""Who said what."""


class HHRLHF(Benchmark):
    """Strict pairs, pooled."""

    name = "hh_rlhf"
    hub = "Anthropic/hh-rlhf"
    split = "test"
    version = "strict pairs; the data set names no rule of its own"
    chance = 0.5
    own_columns = frozenset({"chosen", "rejected"})

    def detect(self, columns: Row) -> bool:
        """Two transcripts, and no prompt."""
        return (
            super().detect(columns)
            and "prompt" not in columns
            and all(
                isinstance(columns[side], str) and _MARK.match(columns[side])
                for side in ("chosen", "rejected")
            )
        )

    def convert(self, row: Row, where: RowRef = ROW) -> DataSample:
        r"""The two transcripts, of turns marked `\n\nHuman:` and `\n\nAssistant:`, as one sample.

        The turns both share are the input, and the last assistant turn of each is an answer (white
        space at its ends removed, it may be empty). In a few rows the transcripts part before their
        last turns. There the input still is what they share, and everything after it stays visible
        as the answer: later turns follow with their marks, as in the transcript, and the metadata
        say `contexts_differ`. Rows have no id; the content hash is their identity.
        """
        sides = [_transcript(row, side, where) for side in ("chosen", "rejected")]
        shared = shared_turns(*sides)
        differ = max(map(len, sides)) > shared + 1
        asked = [{"role": _ROLES[who], "content": words} for who, words in sides[0][:shared]]
        outputs = preference_outputs(*([as_answer(side[shared:])] for side in sides))
        about = {"contexts_differ": True} if differ else None
        return self.sample("", asked, outputs, "conversation", about)


def _transcript(row: Row, column: str, where: RowRef) -> list[Said]:
    before, *parts = _MARK.split(text(row, column, where))
    if before.strip() or not parts:
        raise DataError(
            f"{where}, column '{column}': expected a transcript that starts with 'Human:' or "
            f"'Assistant:'"
        )
    spoken = [
        (speaker, words.strip()) for speaker, words in zip(parts[::2], parts[1::2], strict=True)
    ]
    if spoken[-1][0] != "Assistant":
        raise DataError(
            f"{where}, column '{column}': the transcript must end with an assistant turn"
        )
    return spoken


def as_answer(dialogue: Sequence[Said]) -> str:
    """What one side of a dialogue adds, by speaker: its answer, or else all turns with their
    speakers.
    """
    (speaker, words), *later = dialogue
    head = words if speaker == "Assistant" else f"{speaker}: {words}"
    return "\n\n".join([head, *(f"{name}: {further}" for name, further in later)])


_MARKS = ("###The instruction to evaluate:", "###Response to evaluate:", "###Score Rubrics:")
_PROMETHEUS = re.compile("{}(.*?){}(.*){}".format(*map(re.escape, _MARKS)), re.DOTALL)


class HHH(Benchmark):
    """Strict pairs, pooled, with the four groups: equal scores are wrong, as in Prometheus'
    absolute grading.
    """

    name = "hhh"
    aliases = ("hhh_alignment", "HuggingFaceH4/hhh_alignment")
    version = "221 pairs; rule of prometheus-eval at dcfb444"
    chance = 0.5

    def detect(self, columns: Row) -> bool:
        """An input with labelled choices, or a pair of Prometheus' grading prompts."""
        targets = columns.get("targets")
        listed = isinstance(targets, Mapping) and {"choices", "labels"} <= targets.keys()
        graded = {"chosen_instruction", "rejected_instruction"} <= columns.keys()
        return (listed and "input" in columns) or graded

    def convert(self, row: Row, where: RowRef = ROW) -> DataSample:
        """Outputs: the answers in the order of the row, labelled; of grading prompts the chosen one
        first. Metadata: `subset`.
        """
        read = _graded if row.get("targets") is None else _choices
        asked, first, second, vote = read(row, where)
        subset = row.get("subset") or row.get("source")
        about = {"subset": str(subset)} if subset else None
        outputs = voted_outputs(first, second, vote)
        asked_in_turns = turns(asked, "input", where)
        return self.sample(identity(row, "id", where), asked_in_turns, outputs, "alignment", about)


LabelledPair = tuple[str, str, str, int]
"""A query, its two answers, and 1 where the first is better, -1 where the second is."""


def _choices(row: Row, where: RowRef) -> LabelledPair:
    targets = json_cell(row["targets"])
    if not isinstance(targets, Mapping):
        raise wrong(where, "targets", "an object with choices and labels", targets)
    answers, labels = targets.get("choices"), targets.get("labels")
    if not (
        isinstance(answers, list) and len(answers) == 2 and all(isinstance(a, str) for a in answers)
    ):
        raise wrong(where, "targets.choices", "two texts", answers)
    if not isinstance(labels, list) or sorted(map(str, labels)) != ["0", "1"]:
        raise wrong(where, "targets.labels", "a 1 and a 0", labels)
    return text(row, "input", where), answers[0], answers[1], 2 * int(labels[0]) - 1


def _graded(row: Row, where: RowRef) -> LabelledPair:
    """The texts between the headings of two grading prompts."""
    if "chosen_instruction" not in row:
        raise missing(where, "'targets' or 'chosen_instruction'", row)
    (asked, first), (_, second) = (
        _between_headings(row, f"{side}_instruction", where) for side in ("chosen", "rejected")
    )
    return asked, first, second, 1


def _between_headings(row: Row, column: str, where: RowRef) -> Sequence[str]:
    found = _PROMETHEUS.search(text(row, column, where))
    if found is None:
        raise DataError(
            f"{where}, column '{column}': expected the headings {', '.join(_MARKS)} in this order"
        )
    return [part.strip("\n") for part in found.groups()]


class MTBench(Votes):
    """Agreement with each vote of a person, pooled; several people vote on one pair, and a question
    has many pairs.

    Conversations are cut after the turn that was voted on, and their last answer is judged. Where
    the earlier turns of both models are the same they join the input; where they differ, as they
    mostly do, the whole conversation is the answer, its turns marked by speaker.
    """

    name = "mt_bench"
    aliases = ("mt-bench", "mt_bench_human", "mt_bench_human_judgments")
    hub = "lmsys/mt_bench_human_judgments"
    split = "human"
    version = "votes as published; the paper's setups S1 (with ties) and S2 (without)"
    own_columns = frozenset({"conversation_a", "conversation_b", "winner", "model_a", "model_b"})
    voted = "winner"
    votes = {"model_a": 1, "model_b": -1, "tie": 0, "tie (inconsistent)": 0}
    worded = True
    expected = "'model_a', 'model_b' or 'tie'"
    task = "conversation"

    def shown(self, row: Row, where: RowRef) -> Shown:
        """The turns both conversations share, and what each model adds."""
        sides = [_conversation(row, f"conversation_{side}", where) for side in "ab"]
        shared = shared_turns(*sides)
        first, second = (
            as_answer([(turn["role"].capitalize(), turn["content"]) for turn in side[shared:]])
            for side in sides
        )
        return sides[0][:shared], first, second

    def about(self, row: Row, vote: int, where: RowRef) -> About:
        """`subset` (the turn), models, who voted, `cluster`."""
        turn = _turn(row, where)
        return {
            "subset": f"turn {turn}" if turn else None,
            "cluster": identity(row, "question_id", where) or None,
            "turn": turn,
            **{name: row.get(name) for name in ("question_id", "model_a", "model_b", "judge")},
        }

    def name_of(self, row: Row, where: RowRef) -> str:
        """Question, models, turn and voter, as far as they are given."""
        asked = identity(row, "question_id", where) or None
        models = row.get("model_a"), row.get("model_b")
        parts = (asked, *models, _turn(row, where), row.get("judge"))
        return ":".join(str(part) for part in parts if part is not None)


def _turn(row: Row, where: RowRef) -> int | None:
    """The turn that was voted on."""
    if row.get("turn") is None:
        return None
    turn = integer(row["turn"])
    if turn is None or turn < 1:
        raise wrong(where, "turn", "a whole number of at least 1", row["turn"])
    return turn


def _conversation(row: Row, column: str, where: RowRef) -> Turns:
    conversation = question(row, column, where, cell)
    turn = _turn(row, where)
    # the vote is about the answer of that turn, and the file holds the later one, too
    return answered(conversation[: 2 * turn] if turn else conversation, column, where)
