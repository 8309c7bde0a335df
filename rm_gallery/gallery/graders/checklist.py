"""Rubrics as graders: every criterion answered by a judge, the score by the arithmetic of the
rubric.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, Field, create_model, field_validator, model_validator

from rm_gallery.core.graders.base import GraderScore
from rm_gallery.core.graders.llm import LLMGrader, score_reply, shown, usage_of
from rm_gallery.core.model.decisions import NO, YES
from rm_gallery.core.model.message import ChatResponse, Decision
from rm_gallery.core.reward.asking import parsed, repeat_index
from rm_gallery.core.reward.channel import LEVELS
from rm_gallery.core.reward.rubric import LIKERT, Criterion, Rubric, RubricResult, likert
from rm_gallery.core.reward.rubric_shapes import read_rubric, rubric_of_setting
from rm_gallery.core.reward.schema import RewardMeta
from rm_gallery.core.reward.template import BasePromptTemplate, Described, OnScale, ReadBy, render
from rm_gallery.core.score import Bounds
from rm_gallery.core.text.values import plain, read_boolean, read_integer, read_number
from rm_gallery.core.utils.errors import ConfigError, DataError, ParseError, Unscored

NOT_APPLICABLE = "n/a"
REFUSED = "refused"
_NO_VERDICT = frozenset(
    {"n/a", "na", "not applicable", "cannot assess", "cannot_assess", "不适用", "无法判断"}
)


@lru_cache(maxsize=1024)
def _field(
    number: int, limits: tuple[float, float] | None, levels: bool, open_: bool
) -> tuple[Any, Any]:
    """The field of a judge's reply that answers one criterion: yes or no, the number of a level, or
    a number inside the limits.
    """
    en, zh = (f" or {NOT_APPLICABLE}", f"，不适用时写 {NOT_APPLICABLE}") if open_ else ("", "")
    read: Any
    kind: Any
    bounds: dict[str, Any] = {}
    answers: tuple[str, ...] = ()
    if limits is None:
        kind, read, answers = bool, read_boolean, (YES, NO, NOT_APPLICABLE)
        expected = f"Whether criterion {number} is met: yes or no{en}, nothing else"
        expected_zh = f"第 {number} 条是否符合：yes 或 no{zh}，不写其他内容"
    else:
        low, high = limits
        whole = levels or (float(low).is_integer() and float(high).is_integer() and high - low > 1)
        bounds = {"ge": int(low), "le": int(high)} if whole else {"ge": low, "le": high}
        kind, reader = (int, read_integer) if whole else (float, read_number)
        read = partial(reader, high=high, scale=True)
        what, what_zh = ("level", "等级") if levels else ("number", "分数")
        expected = f"The {what} of criterion {number}, from {low:g} to {high:g}{en}, nothing else"
        expected_zh = f"第 {number} 条的{what_zh}，从 {low:g} 到 {high:g}{zh}，不写其他内容"
        if whole and high - low < LEVELS:
            numbers = range(int(low), int(high) + 1)
            answers = (*(f"{level:g}" for level in numbers), NOT_APPLICABLE)

    def read_open(value: Any) -> Any:
        if isinstance(value, str) and plain(value).strip(" .。").lower() in _NO_VERDICT:
            return NOT_APPLICABLE
        answer = read(value)
        if bounds and not bounds["ge"] <= answer <= bounds["le"]:
            raise ParseError(f"Expected a number from {low:g} to {high:g}, found {answer:g}.")
        return answer

    annotated: Any = Annotated  # a list of notes cannot stand in its brackets on Python 3.10
    notes = (Any, ReadBy(read_open, answers)) if open_ else (kind | None, OnScale())
    return annotated[notes[0], Described(zh=expected_zh), notes[1]], Field(
        default=None, description=expected, **({} if open_ else bounds)
    )


@lru_cache(maxsize=256)
def _reply(kinds: tuple[tuple[Any, ...], ...]) -> type[BasePromptTemplate]:
    fields: dict[str, Any] = {
        f"c{number}": _field(number, *kind) for number, kind in enumerate(kinds, 1)
    }
    made: type[BasePromptTemplate] = create_model(
        "ChecklistReply", __base__=BasePromptTemplate, __module__=__name__, **fields
    )
    return made


def first_level(one: Criterion) -> int:
    """The number of the worst level: labels that are whole numbers in a row are asked for as they
    are.
    """
    labels = [level.label for level in one.levels]
    if labels and labels[0].isascii() and labels[0].isdigit():
        first = int(labels[0])
        if labels == [str(first + place) for place in range(len(labels))]:
            return first
    return 0


def _kind(one: Criterion) -> tuple[tuple[float, float] | None, bool, bool]:
    first = first_level(one)
    limits = (first, first + len(one.levels) - 1) if one.levels else one.scale
    return limits, bool(one.levels), one.not_applicable


def criterion_line(one: Criterion, words: tuple[str, str, str]) -> str:
    """A criterion on one line, so that one of a row passes for no other part of the prompt."""
    parts = [one.text]
    if one.levels:
        first = first_level(one)
        line = [
            " = ".join(
                dict.fromkeys(
                    text for text in (str(first + place), level.label, level.description) if text
                )
            )
            for place, level in enumerate(one.levels)
        ]
        parts.append(f"({words[0]}: {'; '.join(line)})")
    elif one.scale is not None:
        parts.append(f"({words[1]}: {one.scale[0]:g}–{one.scale[1]:g})")
    if one.reference:
        parts.append(f"({words[2]}: {one.reference})")
    return " ".join(" ".join(parts).split())


WORDS = {"en": ("levels", "a number", "reference"), "zh": ("等级", "分数", "参考")}


class CriterionVerdict(BaseModel):
    """What a judge said of one criterion.

    Attributes:
        value: the share of its points, 0 to 1; None where it does not apply.
        said: yes or no, the level's label, or the number; n/a; refused by a judge that declined
            this question alone.
        agreement: the share of the samples that gave this answer.
        probabilities: by answer, where the judge stated them.
    """

    said: Any
    value: float | None
    agreement: float = 1.0
    probabilities: dict[str, float] | None = None


class ChecklistGrader(LLMGrader):
    """A rubric: criteria with signed points, each answered by the judge, and a score by the
    rubric's arithmetic.

    Fields: `query`, `response`, optional `reference_response`, and `criteria` where the grader has
    none of its own: texts, items in any format of `read_rubric`, a Rubric or the path of a file.
    The score is the points of the criteria met over the sum of the positive points, cut to [0, 1]
    unless `clip` or the rubric's format says otherwise: a criterion with negative points is a
    fault. Metadata: `raw` and `clipped`, `criteria` with what was said of each, `gates` missed,
    `tags`. Source of the convention: HealthBench (arXiv 2505.08775), section on scoring.
    """

    unheard: ClassVar[frozenset[str]] = frozenset({"prompt", "rubrics", "whole", "own_form"})
    score_range: Bounds = (0.0, 1.0)
    criteria: Rubric = Field(default_factory=Rubric)
    clip: bool | None = None
    """Whether the score is cut to [0, 1]; None as the rubric says, and cut where it comes with the
    row.
    """
    max_criteria: int | None = Field(default=None, ge=1)
    """How many criteria one call answers; None for all of them. Figures of different numbers do not
    compare.
    """
    samples: int = Field(default=1, ge=1)
    """How often each criterion is answered: the most frequent answer counts, the worse of a tie,
    and the mean of numbers.
    """

    _any_shape = field_validator("criteria", mode="before")(rubric_of_setting)

    @model_validator(mode="after")
    def _ranged(self) -> ChecklistGrader:
        if "score_range" not in self.model_fields_set:
            clipped = self.criteria.clip if self.clip is None else self.clip
            known = (
                self.criteria.model_copy(update={"clip": clipped}).bounds()
                if self.criteria.criteria
                else (None, 1.0)
            )
            object.__setattr__(self, "score_range", (0.0, 1.0) if clipped else known)
        return self

    @property
    def inputs(self) -> dict[str, bool]:
        """`criteria` is a field of the row where the grader has none."""
        own = bool(self.criteria.criteria)
        return {"query": False, "response": True, "reference_response": False, "criteria": not own}

    def _messages(self, fields: Mapping[str, Any], form: str) -> list[dict[str, Any]]:
        """The criteria, then the fenced texts."""
        # what differs comes last: what is alike is cached
        names = ("query", "reference_response", "response")
        given = fields.get("criteria")
        rubric = self.criteria if given is None else read_rubric(given)
        criteria, whole = rubric.leaves(), rubric.aggregate == "implicit"
        lines = [criterion_line(one, WORDS[self.language]) for one in criteria]
        if whole:
            lines = [f"[{one.points:g}] {line}" for one, line in zip(criteria, lines, strict=True)]
        return render(
            "checklist",
            self.language,
            texts={name: shown(fields.get(name)) for name in names},
            always=["response"],
            criteria=lines,
            whole=whole,
            graded=any(one.levels or one.scale for one in criteria),
            output_form=form,
        )

    async def _grade(
        self, response: Any, query: Any = "", reference_response: Any = None, criteria: Any = None
    ) -> Any:
        try:
            rubric = self.criteria if criteria is None else read_rubric(criteria)
        except ConfigError as error:
            raise DataError(f"{self.name}: {error}") from error
        fields = {"query": query, "response": response, "reference_response": reference_response}
        leaves = rubric.leaves()
        if (
            not rubric.criteria
            or rubric.faults_alone == "unscored"
            and not any(one.points > 0 for one in rubric.criteria)
        ):
            raise Unscored(f"{self.name}: no criterion has points above 0.", reason="no_criteria")
        if rubric.aggregate == "implicit":
            return await self._whole({**fields, "criteria": rubric})
        size = self.max_criteria or len(leaves)
        batches = [leaves[at : at + size] for at in range(0, len(leaves), size)]
        asked = [
            self._batch(fields, batch, sample)
            for sample in range(self.samples)
            for batch in batches
        ]
        # all end before one raises: what is in flight is paid for, and belongs into the cache
        done = await asyncio.gather(*asked, return_exceptions=True)
        outcomes: list[tuple[list[Any], str, dict[str, float]]] = []
        for one in done:
            if isinstance(one, BaseException):
                raise one
            outcomes.append(one)
        answers = [answer for each, *_ in outcomes for answer in each]
        soft = rubric.aggregate in ("points", "sum", "threshold")
        verdicts = [
            _elected(one, answers[place :: len(leaves)], soft) for place, one in enumerate(leaves)
        ]
        refused = [
            one for one, verdict in zip(leaves, verdicts, strict=True) if verdict.said == REFUSED
        ]
        if len(refused) == len(leaves) or any(one.gate for one in refused):
            raise Unscored(
                f"{self.name}: the judge declined to decide: {refused[0].text}",
                reason="refused",
                cause="judge",
            )
        scored = rubric.score([verdict.value for verdict in verdicts])
        reason = "\n".join(dict.fromkeys(why for _, why, _ in outcomes[: len(batches)] if why))
        usage = {name: math.fsum(used[name] for *_, used in outcomes) for name in outcomes[0][2]}
        cut = (criteria is not None or rubric.clip) if self.clip is None else self.clip
        return self._result(scored, cut, leaves, verdicts, reason, usage)

    def _result(
        self,
        scored: RubricResult,
        cut: bool,
        leaves: list[Criterion],
        verdicts: list[CriterionVerdict],
        reason: str,
        usage: dict[str, float],
    ) -> GraderScore:
        lines = [
            {
                **{
                    name: getattr(one, name)
                    for name in ("name", "text", "points", "tags")
                    if getattr(one, name)
                },
                **verdict.model_dump(
                    exclude={"agreement"} if self.samples == 1 else set(), exclude_unset=True
                ),
            }
            for one, verdict in zip(leaves, verdicts, strict=True)
        ]
        metadata: dict[str, Any] = {"raw": scored.raw, "clipped": scored.clipped, "criteria": lines}
        metadata |= {"gates": list(scored.gates)} if scored.gates else {}
        metadata |= {"tags": dict(scored.tags)} if scored.tags else {}
        score = scored.clipped if cut else scored.raw
        return GraderScore(
            score=score, reason=reason, metadata=metadata, usage=usage, **self.about()
        )

    async def _whole(self, fields: Mapping[str, Any]) -> GraderScore:
        """One judgement of the whole list."""
        template = score_reply(1, LIKERT, True)

        def read(reply: ChatResponse) -> GraderScore:
            reply_read = parsed(template, reply)
            score = likert(reply_read.score)
            metadata = {"raw": score, "clipped": score, "said": reply_read.score}
            return GraderScore(
                score=score,
                reason=reply_read.reason or "",
                metadata=metadata,
                usage=usage_of(reply),
                **self.about(),
            )

        result: GraderScore = await self._ask(fields, read, template)
        return result

    async def _batch(
        self, fields: Mapping[str, Any], criteria: Sequence[Criterion], sample: int
    ) -> tuple[list[Any], str, dict[str, float]]:
        """What one sample says of some criteria; those that a reply leaves out are asked for alone,
        which counts among the `repair_attempts`.
        """
        repeat_index.set(repeat_index.get() * 1024 + sample)  # the context is this task's own
        answers: dict[int, Any] = {}
        reason, usage, repairs = "", Counter[str](), 0
        while True:
            left = [place for place in range(len(criteria)) if place not in answers]
            now = [criteria[place] for place in left]
            template = _reply(tuple(map(_kind, now)))

            def read(
                reply: ChatResponse,
                template: type[BasePromptTemplate] = template,
                left: list[int] = left,
            ) -> tuple[dict[int, Any], str, dict[str, float]]:
                nonlocal repairs
                try:
                    last = repairs >= self.repair_attempts
                    return *_answers(reply, template, left, last), usage_of(reply)
                except ParseError:
                    repairs += 1
                    raise

            about = {
                f"c{number}": criterion_line(one, WORDS[self.language])
                for number, one in enumerate(now, 1)
            }
            answered, why, used = await self._ask(
                {**fields, "criteria": Rubric(criteria=now)},
                read,
                template,
                self.repair_attempts - repairs,
                about=about,
            )
            answers |= answered
            reason = reason or why
            usage.update(used)
            if len(answers) == len(criteria):
                return [answers[place] for place in range(len(criteria))], reason, dict(usage)
            repairs += 1


def _answers(
    reply: ChatResponse, template: type[BasePromptTemplate], places: list[int], complete: bool
) -> tuple[dict[int, Any], str]:
    """What a reply says of the criteria at some places, and why; ParseError for one that says
    nothing, or leaves one out where it has to be `complete`.
    """
    reply_read = parsed(template, reply)
    numbers = range(1, len(places) + 1)
    if reply.decisions is not None:
        lines = [reply.decisions.get(f"c{number}", REFUSED) for number in numbers]
        return dict(zip(places, lines, strict=True)), ""
    values = [getattr(reply_read, f"c{number}") for number in numbers]
    given = {p: v for p, v in zip(places, values, strict=True) if v is not None}
    if len(given) < len(places) and (complete or not given):
        there = ", ".join(f"<c{n}>" for n, v in enumerate(values, 1) if v is not None)
        raise ParseError(
            f"The reply holds no complete <c{values.index(None) + 1}>; found "
            f"{there or 'no tag that was asked for'}."
        )
    return given, reply_read.reason or ""


def _weighed(one: Criterion, votes: list[Decision], soft: bool) -> CriterionVerdict:
    """The verdict of probabilities, their mean over the samples: the expected value, or where it
    must be met wholly or not (a gate, the aggregates all, any and required) that of the most
    probable answer; even odds count as the worse one.
    """
    mean = Decision(
        {
            name: math.fsum(v.probabilities[name] for v in votes) / len(votes)
            for name in votes[0].probabilities
        }
    )
    applies = {name: share for name, share in mean.probabilities.items() if name != NOT_APPLICABLE}
    total = math.fsum(applies.values())
    if not 2 * total > 1:
        return CriterionVerdict(
            said=NOT_APPLICABLE, value=None, probabilities=dict(mean.probabilities)
        )
    worth = {name: _verdict(one, name)[1] for name in applies}
    top = max(applies.values())
    answer = min(
        (name for name, share in applies.items() if share == top),
        key=lambda name: one.points * worth[name],
    )
    value = (
        math.fsum(share * worth[name] for name, share in applies.items()) / total
        if soft and not one.gate
        else worth[answer]
    )
    return CriterionVerdict(
        said=_verdict(one, answer)[0], value=value, probabilities=dict(mean.probabilities)
    )


def _verdict(one: Criterion, answer: Any) -> tuple[Any, float]:
    """What an answer (yes or no, the number of a level, or a number) is called, and its worth."""
    if one.levels:
        place = int(answer) - first_level(one)
        return one.levels[place].label, one.value_of(place)
    if isinstance(answer, str):
        answer = answer == YES if answer in (YES, NO) else float(answer)
    return answer, one.value_of(answer)


def _elected(one: Criterion, votes: list[Any], soft: bool) -> CriterionVerdict:
    """The verdict of several samples: the most frequent one, the worse of a tie; of numbers on a
    scale the mean.
    """
    if any(isinstance(vote, Decision) or vote == REFUSED for vote in votes):
        decided = [vote for vote in votes if isinstance(vote, Decision)]
        return (
            _weighed(one, decided, soft) if decided else CriterionVerdict(said=REFUSED, value=None)
        )
    answers = [vote for vote in votes if vote != NOT_APPLICABLE]
    if 2 * len(answers) <= len(votes) and len(answers) < len(votes):
        return CriterionVerdict(
            said=NOT_APPLICABLE, value=None, agreement=1 - len(answers) / len(votes)
        )
    counted = Counter(answers)
    top = max(counted.values())
    answer = min(
        (vote for vote, n in counted.items() if n == top),
        key=lambda vote: one.points * _verdict(one, vote)[1],
    )
    if one.scale is not None:
        top, answer = max(Counter(votes).values()), math.fsum(answers) / len(answers)
    said, value = _verdict(one, answer)
    return CriterionVerdict(said=said, value=value, agreement=top / len(votes))


class HealthBenchGrader(ChecklistGrader):
    """A row's `criteria` one call each, by HealthBench's rule: the score is not cut and may be
    below 0, only the mean over rows is.

    `mean_of_rows` makes the benchmark's figure of the scores. Source: HealthBench, arXiv
    2505.08775.
    """

    name: str = "healthbench"
    score_range: Bounds = (None, 1.0)
    clip: bool | None = False
    max_criteria: int | None = Field(default=1, ge=1)


class RubricFileGrader(ChecklistGrader):
    """The rubric in a file, in any format that `read_rubric` knows: `rubric:FILE`."""

    registered: ClassVar[str] = "rubric:"

    @classmethod
    def of_name(cls, name: str) -> type[ChecklistGrader]:
        """A class that makes the checklist of that file."""
        path = Path(name)
        rubric = read_rubric(path)
        if not rubric.criteria:
            raise ConfigError(f"The rubric {name} holds no criteria.")

        def new(cls: type[Any], **settings: Any) -> ChecklistGrader:
            own = (
                rubric if settings.get("language", "en") == "en" else read_rubric(path, None, "zh")
            )
            return ChecklistGrader(**{"criteria": own, "name": f"rubric:{path.stem}", **settings})

        body = {"__new__": new, "__module__": __name__, "__doc__": ChecklistGrader.__doc__}
        body |= {"score_range": rubric.bounds(), "__annotations__": {"score_range": Bounds}}
        made: type[ChecklistGrader] = RewardMeta("ChecklistGrader", (ChecklistGrader,), body)
        return made
