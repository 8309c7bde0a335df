"""Every judgement of a sample that a reward made, or a file recorded: of a candidate, of a pair in
one order, or of a step.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from rm_gallery.core.data.load.converters import output as answer_of
from rm_gallery.core.data.load.converters import shown
from rm_gallery.core.data.schema import (
    DataSample,
    Reward,
    RewardIssue,
    TableSample,
    preference_of,
)
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.score import NOT_BEGUN
from rm_gallery.core.utils.errors import Cause, ConfigError, DataError
from rm_gallery.core.utils.identity import hashed
from rm_gallery.core.utils.names import unknown_name

Row = Mapping[str, Any]
About = dict[str, Any]
"""What is known of a sample, or of an answer, beside its texts."""
Status = Literal["scored", "unscored", "failed", "stopped"]
"""What became of a sample or judgement; `stopped` was never begun, because a budget or the run
ended.
"""
NOT_ASKED = "not_asked"
"""The reason of samples that the protocol leaves out: they are unscored, and outside the rule's
denominator.
"""
_UNKNOWN: dict[Status, Cause] = {"stopped": "caller", "failed": "endpoint", "unscored": "judge"}
"""Who is taken to have caused it where a record of an earlier version does not say."""
Verdict = int | None
"""+1 when the first named candidate won, -1 when the second did, 0 for a tie, None without a usable
verdict.
"""


class Candidate(NamedTuple):
    """The judgement is about one output."""

    output: int


class Pair(NamedTuple):
    """The judgement is about two outputs, shown in this order."""

    first: int
    second: int


class StepOf(NamedTuple):
    """The judgement is about one step of an output."""

    output: int
    step: int


Place = Candidate | Pair | StepOf


class Judgement(NamedTuple):
    """One judgement: where it belongs and what it said.

    `score` is turned so that higher is better. `verdict` belongs to a `Pair` and names its
    candidates, not positions.
    """

    place: Place
    status: Status = "scored"
    score: float | None = None
    verdict: Verdict = None


T = TypeVar("T")


class derived(Generic[T]):
    """An attribute that is worked out when first read.

    Speed: before Python 3.12 `functools.cached_property` takes a lock for each value, which costs
    more than most of these.
    """

    def __init__(self, function: Callable[[Any], T]) -> None:
        self.function, self.name, self.__doc__ = function, function.__name__, function.__doc__

    def __get__(self, one: Any, kind: type) -> T:
        """Work the value out; from then on it stands in the object's `__dict__`, which wins."""
        value = one.__dict__[self.name] = self.function(one)
        return value


@dataclass(frozen=True)
class Judged:
    """A sample with every judgement of it; what the scoring rules are fed with."""

    sample: DataSample
    judgements: Sequence[Judgement]
    status: Status = "scored"
    """Of the sample as a whole: it is scored when every output, or every step, has its score."""
    issues: Sequence[RewardIssue] = ()

    @property
    def sample_id(self) -> str:
        """Identity of the sample."""
        return self.sample.sample_id

    @property
    def metadata(self) -> About:
        """What rules read and records keep of the sample: a table row's place, else its metadata."""
        return known_of(self.sample)

    @derived
    def subset(self) -> str:
        """The part of the benchmark it belongs to; empty where there are no parts."""
        return str(known_of(self.sample).get("subset") or "")

    @derived
    def cluster(self) -> str:
        """What it shares its fate with, see `cluster_of`."""
        return cluster_of(self.sample)

    @derived
    def chosen(self) -> list[bool]:
        """Per output whether the benchmark prefers it."""
        return [preference_of(output) == "chosen" for output in self.sample.output]

    @property
    def label(self) -> Row:
        """What the benchmark says of the first output; empty where it says nothing."""
        return (self.sample.output[0].answer.label or {}) if self.sample.output else {}

    @derived
    def lengths(self) -> list[int]:
        """Per output the characters of its answer."""
        return [len(output.answer.text) for output in self.sample.output]

    @derived
    def scores(self) -> list[float | None]:
        """One score per output, higher is better; None where there is none."""
        scores: list[float | None] = [None] * len(self.sample.output)
        for place, _, score, _ in self.judgements:
            if isinstance(place, Candidate):
                scores[place.output] = score
        return scores

    @property
    def cause(self) -> Cause | None:
        """Who brought it about that the sample has no score; None where it has one, and where the
        protocol does not ask about it.
        """
        if self.status == "scored":
            return None
        own = next((issue for issue in self.issues if status_of([issue]) == self.status), None)
        if own is not None and own.reason == NOT_ASKED:
            return None
        return own.cause if own is not None and own.cause is not None else _UNKNOWN[self.status]

    def cause_or(self, otherwise: Cause) -> Cause | None:
        """Who caused it where the sample earns nothing: `otherwise` for one that is scored all the
        same.
        """
        return otherwise if self.status == "scored" else self.cause

    def complete(self) -> list[float] | None:
        """The scores, or None when the sample is not scored or one of them is missing: it is scored
        whole or not at all.
        """
        if self.status != "scored":
            return None
        scores = self.scores
        # speed: every rule asks for these, so `whole` is written out
        known = [score for score in scores if score is not None and score == score]
        return known if len(known) == len(scores) else None

    def verdict(self, first: int, second: int) -> Verdict:
        """Who won when `first` was shown before `second`; without such a judgement, what the two
        scores say.
        """
        games = {j.place: j.verdict for j in self.judgements if isinstance(j.place, Pair)}
        if games or self.status != "scored":
            return games.get(Pair(first, second))
        return sign(self.scores[first], self.scores[second])

    @derived
    def played_orders(self) -> int:
        """In how many orders each pair was shown: 0 when candidates were scored rather than
        compared.
        """
        pairs = [j.place for j in self.judgements if type(j.place) is Pair]
        return len(pairs) // len({frozenset(place) for place in pairs}) if pairs else 0

    def steps(self, output: int) -> list[float | None]:
        """One score per step of an output, in order."""
        places = (
            j for j in self.judgements if isinstance(j.place, StepOf) and j.place.output == output
        )
        return [judgement.score for judgement in places]


def whole(scores: Sequence[float | None]) -> list[float] | None:
    """The scores; None where one of them is missing or NaN."""
    # NaN is not equal to itself
    known = [score for score in scores if score is not None and score == score]
    return known if len(known) == len(scores) else None


def known_of(sample: DataSample) -> About:
    """What rules read of a sample: a table row's place, else its metadata."""
    return (sample.place if isinstance(sample, TableSample) else sample.metadata) or {}


def cluster_of(sample: DataSample) -> str:
    """Name of the cluster a sample belongs to: samples of one cluster are no independent witnesses.

    `metadata["cluster"]` if it is given (a conversation, a document, an annotator), else a hash of
    the prompt's roles and texts, so that all samples of one prompt stand together. A sample without
    a prompt is a cluster of its own, by its id.
    """
    given = known_of(sample).get("cluster")
    if given is not None and given != "":
        return str(given)
    joined = ""
    for message in sample.input:
        role, text = message.role.value, message.text
        joined += f"{len(role)}:{role}{len(text)}:{text}"
    if not joined:
        return f"id:{sample.sample_id}"
    return hashed(hashlib.blake2b(digest_size=8), joined.encode("utf-8", "surrogatepass"))


def sign(first: float | None, second: float | None) -> Verdict:
    """Two scores as a verdict: +1 if the first is higher, -1 if the second is, 0 if equal, None if
    one is missing.
    """
    if first is None or second is None or math.isnan(first) or math.isnan(second):
        return None
    return (first > second) - (first < second)


def turned(verdict: Verdict) -> Verdict:
    """The verdict with its two candidates exchanged."""
    return None if verdict is None else -verdict


def sees_one_order(reward: BaseReward) -> bool:
    """Whether a judge is shown every pair in one order only."""
    return reward.judged and (reward.kind == "listwise" or not getattr(reward, "both_orders", True))


def judged(reward: BaseReward, sample: DataSample) -> Judged:
    """What `reward` said about a sample it scored, judgement by judgement.

    Scores are turned so that higher is better. A sample is failed, stopped or unscored as soon as
    one judgement is.
    """
    turn = 1.0 if reward.higher_is_better else -1.0
    stepwise, complete = reward.kind == "stepwise", True
    judgements: list[Judgement] = []
    issues: list[RewardIssue] = []
    for index, output in enumerate(sample.output):
        records: list[tuple[Place, Reward]] = (
            [(StepOf(index, place), step.reward) for place, step in enumerate(output.turns)]
            if stepwise and output.steps
            else [(Candidate(index), output.answer.reward)]
        )
        for place, record in records:
            own: list[RewardIssue] = []
            if record.issues:
                key = reward.key_in(record)
                own = [issue for issue in record.issues if issue.name == key]
                issues += own
            score = reward.score_of(record)
            if score is None:
                complete = False
                judgements.append(Judgement(place, status_of(own)))
            else:
                judgements.append(Judgement(place, "scored", turn * score))
    status: Status = "scored" if complete and judgements else status_of(issues)
    if reward.kind == "pairwise" and sample.output:
        judgements += _games(reward, sample)
    elif reward.kind == "listwise" and reward.judged and len(judgements) == 2:
        first, second = _noted(reward, sample).get("order", (0, 1))
        judgements.append(
            Judgement(
                Pair(first, second), verdict=sign(judgements[first].score, judgements[second].score)
            )
        )
    whole = Judged(sample, judgements, status, issues)
    if len(judgements) == len(sample.output) and not stepwise:
        # speed: every rule asks for these, and one judgement an answer says them
        whole.__dict__.update(scores=[each.score for each in judgements], played_orders=0)
    return whole


def not_asked(sample: DataSample, name: str, why: str) -> Judged:
    """A sample that the protocol leaves out, with the reason; `name` is what would have judged it."""
    return not_judged(sample, name, NOT_ASKED, why)


def not_judged(
    sample: DataSample, name: str, reason: str, why: str, cause: Cause | None = None
) -> Judged:
    """A sample that was never put to `name`, unscored with the reason."""
    issue = RewardIssue(name=name, status="unscored", reason=reason, message=why, cause=cause)
    return Judged(sample, [], "unscored", [issue])


def status_of(issues: Sequence[RewardIssue]) -> Status:
    """The outcome that issues stand for; `unscored` without any."""
    if any(issue.status == "failed" and issue.reason not in NOT_BEGUN for issue in issues):
        return "failed"
    return "stopped" if any(issue.reason in NOT_BEGUN for issue in issues) else "unscored"


def _noted(reward: BaseReward, sample: DataSample) -> dict[str, Any]:
    """What a comparing reward noted down beside its scores; it is the same for every output."""
    record = sample.output[0].answer.reward
    return record.extra_data.get(reward.key_in(record), {})


def _games(reward: BaseReward, sample: DataSample) -> list[Judgement]:
    """The verdicts of a pairwise reward, each under the order in which the pair was shown."""
    extra, games = _noted(reward, sample), []
    for pair, margins in extra.get("pairs", {}).items():
        low, high = (int(part) for part in pair.split(","))
        # a rule has no position to favour: what it says in one order holds in both
        if pair not in extra.get("orders", ()):
            margins, orders = [margins[0]] * 2, [(low, high), (high, low)]
        else:
            orders = extra["orders"][pair]
        for (first, second), margin in zip(orders, margins, strict=True):
            verdict = int(margin > 0) - int(margin < 0)
            games.append(
                Judgement(Pair(first, second), verdict=verdict if first < second else -verdict)
            )
    return games


_WORST_FIRST: tuple[Status, ...] = ("failed", "stopped", "unscored", "scored")


def worst(statuses: Iterable[Status]) -> Status:
    """The outcome of a whole whose parts ended so: one lost part loses it."""
    return min(statuses, key=_WORST_FIRST.index, default="scored")


def worst_part(parts: Sequence[Judged]) -> Judged:
    """The part whose outcome is that of the whole."""
    return min(parts, key=lambda part: _WORST_FIRST.index(part.status))


def is_pair(chosen: Sequence[bool]) -> bool:
    """Whether the labels are those of a pair: one chosen output, one rejected."""
    return len(chosen) == 2 and bool(chosen[0]) != bool(chosen[1])


def has_preference(chosen: Sequence[bool]) -> bool:
    """Whether the labels prefer some outputs to others."""
    return True in chosen and False in chosen


# -- judgements made elsewhere, as a file recorded them --------------------------------------------

JudgeGroup = dict[str, Any]
"""What tells a group of recorded judgements from others, such as the model that judged."""
Rows = Iterable[Row]
Samples = Iterable[DataSample] | None
"""The rows of the benchmark that recorded ones are joined to, where they are at hand."""
Recorded = Iterator[tuple[JudgeGroup, Judged]]
"""Judged samples out of a file, each with its group."""
_Cell = tuple[str, str]
"""A candidate as its row names it, and the order it was shown in (empty, AB or BA)."""
ScoresByModel = dict[str | None, dict[str, dict[_Cell, float | None]]]
"""The scores of a file by who judged (None where no row says so), id and place."""
_COLUMNS = ("id", "candidate", "score")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def joined(
    benchmark: str,
    ids: Callable[[DataSample], tuple[str, ...]],
    read: Callable[[], ScoresByModel],
    samples: Samples,
) -> Recorded:
    """Each sample of a benchmark with the scores `read` from a file, by the ids it goes by.

    `candidate` is a position, counted from 0 in the chosen and then the rejected answers, or `A` or
    `B` as a pair's row names them. Rows that carry no id are known by their number, counted from 0,
    or by the hash of their texts. Rows of several `judge_model` are groups of their own. A sample
    without all its scores is unscored.

    Raises:
        ConfigError: no samples to join with.
        DataError: a column is absent, a value does not fit, or an id, candidate or order is unknown
            or occurs twice.
    """
    if samples is None:
        raise ConfigError(
            f"scores are joined to the rows of {benchmark}; say where they are with --data PATH."
        )
    by_model = read()
    unmet = {model: set(scores) for model, scores in by_model.items()}
    known: dict[str, int] = {}
    numbered = False
    for number, sample in enumerate(samples):
        numbered = numbered if number else sample.unique_id == sample.content_hash()
        names = (sample.unique_id, str(number)) if numbered else ids(sample)
        texts = hash(tuple(output.answer.text for output in sample.output))
        for model, scores in by_model.items():
            name = next((name for name in names if name in scores), None)
            if name is not None:
                unmet[model].discard(name)
                if known.setdefault(name, texts) != texts:
                    raise DataError(
                        f"the data has different rows with the id '{name[:80]}', so its scores fit "
                        f"both; "
                        "give the scores of each file apart."
                    )
            yield group_of(model), _judged(sample, scores[name] if name else {})
        known.setdefault(names[0], texts)
    for model, missed in unmet.items():
        if missed:
            raise DataError(
                f"scores: {len(missed)} of {len(by_model[model])} ids are not in the data, such as "
                f"{_some_names(sorted(missed))}; the data has ids such as {_some_names(list(known))}."
            )


def judge_of(row: Row) -> str | None:
    """The model that judged, where a recorded row names it."""
    return None if row.get("judge_model") is None else str(row["judge_model"])


def group_of(judge: str | None) -> JudgeGroup:
    """The group of recorded judgements of this model."""
    return {} if judge is None else {"judge_model": judge}


def scores_by_model(rows: Rows) -> ScoresByModel:
    """The scores of rows of one candidate each."""
    by_model: ScoresByModel = {}
    for row in recorded_rows(rows, *_COLUMNS):
        order = "" if row.get("order") is None else str(row["order"]).strip().upper()
        if order not in ("", "AB", "BA"):
            raise row.unfit("order", "AB or BA")
        name, place = row.named(), (row.candidate(), order)
        places = by_model.setdefault(judge_of(row), {}).setdefault(name, {})
        if place in places:
            what = f"candidate {place[0]}" + (f" in order {order}" if order else "")
            raise DataError(
                f"recorded row {row.number}: {what} of id '{name[:80]}' was given before; keep one "
                f"score of it."
            )
        places[place] = row.score("score")
    if not by_model:
        raise DataError("scores: no rows found; a row holds " + ", ".join(_COLUMNS) + ".")
    return by_model


def peek(rows: Rows) -> tuple[Row, Iterator[Row]]:
    """The first row, empty without any, and all rows again: what tells one layout of recorded
    judgements from another.
    """
    waiting = iter(rows)
    first = next(waiting, None)
    return (first or {}), chain(() if first is None else (first,), waiting)


class RecordedRow(dict[str, Any]):
    """A row of a file of judgements, with its number from 1; what does not fit is a DataError."""

    def __init__(self, row: Row, number: int) -> None:
        super().__init__(row)
        self.number = number

    def need(self, *columns: str) -> None:
        """DataError for the first column that it does not have."""
        missing = [column for column in columns if column not in self]
        if missing:
            raise DataError(
                f"recorded row {self.number}: column '{missing[0]}' is missing; a row holds "
                f"{', '.join(columns)}; the row has: {', '.join(map(str, self)) or 'no columns'}."
            )

    def unfit(self, column: str, expected: str, value: object = None) -> DataError:
        """The error for a value that does not fit, or for what was read out of it."""
        return _unfit(self.number, column, expected, self[column] if value is None else value)

    def named(self, column: str = "id") -> str:
        """An id as text."""
        value = self[column]
        if isinstance(value, str) and value:
            return value
        return str(self.integer(column, "an id (text or whole number)"))

    def integer(self, column: str, expected: str = "a whole number") -> int:
        """A whole number, which is no text."""
        value = self[column]
        whole = None if isinstance(value, str) else integer(value)
        if whole is None:
            raise self.unfit(column, expected)
        return whole

    def text(self, column: str = "raw_text") -> str:
        """What a judge wrote, empty where it gave nothing."""
        value = self[column]
        if value is not None and not isinstance(value, str):
            raise self.unfit(column, "text")
        return value or ""

    def score(self, column: str) -> float | None:
        """A score; None where there is none."""
        return number_of(self.get(column), column, self.number)

    def candidate(self) -> str:
        """A or B, or a position counted from 0."""
        value = self["candidate"]
        value = value.strip().upper() if isinstance(value, str) else value
        if value in ("A", "B"):
            return str(value)
        position = integer(value)
        if position is None or position < 0:
            raise self.unfit("candidate", "A, B or a position counted from 0")
        return str(position)


def recorded_rows(rows: Rows, *columns: str) -> Iterator[RecordedRow]:
    """The rows of a file of judgements, each of which has these columns."""
    for number, row in enumerate(rows, 1):
        recorded = RecordedRow(row, number)
        recorded.need(*columns)
        yield recorded


def integer(value: Any) -> int | None:
    """A whole number, also as 3.0 (of a table column with gaps) or "3" (of a table of texts); None
    for anything else.
    """
    if isinstance(value, str):
        known = value.removeprefix("-").isdecimal()
    else:
        known = not isinstance(value, bool) and isinstance(value, int | float) and value % 1 == 0
    return int(value) if known else None


def _unfit(number: int, column: str, expected: str, value: object) -> DataError:
    return DataError(
        f"recorded row {number}, column '{column}': expected {expected}, found {shown(value)}."
    )


def number_of(value: Any, column: str, number: int) -> float | None:
    """A score, also as the text a csv file holds; None where there is none: empty, or no finite
    number.
    """
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        value = float(value)
    if value is None or (isinstance(value, str) and value.strip().lower() in ("", "nan")):
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _unfit(number, column, "a number", value)
    return float(value) if math.isfinite(value) else None


def _some_names(names: Sequence[str]) -> str:
    return ", ".join(f"'{name[:80]}'" for name in names[:3])


def _judged(sample: DataSample, scores: Mapping[_Cell, float | None]) -> Judged:
    """The sample with its scores; those of two orders also as the verdicts of two games."""
    positions = _positions(sample)
    by_order: dict[str, dict[int, float | None]] = {}
    for (candidate, order), score in scores.items():
        if candidate not in positions:
            raise DataError(
                f"scores: sample '{sample.sample_id[:80]}' has {len(sample.output)} candidates, "
                f"found one named '{candidate}'; " + unknown_name("candidate", candidate, positions)
            )
        by_order.setdefault(order, {})[positions[candidate]] = score
    if len(by_order) > 1 and "" in by_order:
        raise DataError(
            f"scores: some of sample '{sample.sample_id[:80]}' name an order and some do not; name "
            f"it in all."
        )
    if len(sample.output) != 2 and any(by_order):
        raise DataError(
            f"scores: sample '{sample.sample_id[:80]}' is no pair, so its scores have no order AB "
            f"or BA."
        )
    means: list[float | None] = []
    for place in range(len(sample.output)):
        known = whole([of.get(place) for of in by_order.values()])
        means.append(math.fsum(known) / len(known) if known else None)
    games = [
        game(order == "BA", sign(of.get(0), of.get(1))) for order, of in by_order.items() if order
    ]
    places = map(Candidate, range(len(means)))
    return recorded(sample, places, means, "The file has no score for an answer.", games)


def recorded(
    sample: DataSample,
    places: Iterable[Place],
    scores: Sequence[float | None],
    why: str,
    games: Sequence[Judgement] = (),
) -> Judged:
    """The sample with the scores a file has for its places; unscored, as `why` says, without all."""
    said = [
        Judgement(place, "unscored" if score is None else "scored", score)
        for place, score in zip(places, scores, strict=True)
    ]
    said += games
    if scores and None not in scores:
        return Judged(sample, said)
    return replace(not_judged(sample, "scores", "no_score", why, "data"), judgements=said)


def game(swapped: bool, verdict: Verdict) -> Judgement:
    """One game of a pair; `verdict` names its outputs (+1 the first), whichever was shown first."""
    if not swapped:
        return Judgement(Pair(0, 1), verdict=verdict)
    return Judgement(Pair(1, 0), verdict=turned(verdict))


def _positions(sample: DataSample) -> dict[str, int]:
    """The outputs by the names a scores file may give them: their place among chosen and then
    rejected ones, and A and B.
    """
    labels = [preference_of(output) == "rejected" for output in sample.output]
    ranked = enumerate(sorted(range(len(labels)), key=labels.__getitem__))
    positions = {str(place): at for place, at in ranked}
    return positions | ({"A": 0, "B": 1} if len(labels) == 2 else {})


def judged_pair(
    name: str,
    label: int,
    games: tuple[Verdict, Verdict],
    subset: str,
    unread: Verdict = None,
) -> Judged:
    """A pair of which only the verdicts of two games were kept, +1 for its first output; `label` is
    1, -1, or 0 for a tie, and `unread` what a game without a verdict counts as.
    """
    metadata = {"subset": subset, "unreadable": None in games}
    preferences = {1: ("chosen", "rejected"), -1: ("rejected", "chosen"), 0: ("tie", "tie")}[label]
    outputs = [answer_of("", preference) for preference in preferences]
    sample = DataSample.model_validate({"unique_id": name, "output": outputs, "metadata": metadata})
    first, second = (unread if verdict is None else verdict for verdict in games)
    return Judged(sample, [game(False, first), game(True, second)])
