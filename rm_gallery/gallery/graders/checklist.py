"""Rubrics as graders: every criterion answered by a judge, the score by the arithmetic of the
rubric.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, NamedTuple

from pydantic import Field, create_model, field_validator, model_validator

from rm_gallery.core.graders.base import usage_sum
from rm_gallery.core.graders.llm import LLMGrader, score_reply, shown
from rm_gallery.core.model.decisions import NO, YES
from rm_gallery.core.model.message import ChatResponse, Decision
from rm_gallery.core.reward.asking import parsed, side_by_side
from rm_gallery.core.reward.channel import LEVELS
from rm_gallery.core.reward.registry import class_for
from rm_gallery.core.reward.rubric import LANGUAGES, LIKERT, Criterion, Rubric, likert
from rm_gallery.core.reward.rubric_shapes import read_rubric, rubric_of_setting
from rm_gallery.core.reward.template import (
    BasePromptTemplate,
    Described,
    OnScale,
    ReadBy,
    no_tag,
    render,
)
from rm_gallery.core.score import Bounds, Score
from rm_gallery.core.text.values import plain, read_boolean, read_integer, read_number
from rm_gallery.core.utils.errors import ConfigError, DataError, ParseError, Unscored
from rm_gallery.gallery.graders import wording

NOT_APPLICABLE = "n/a"
REFUSED = "refused"


class CriterionQuestion(NamedTuple):
    """What is asked of a criterion: its verdict, a level or a number, and between which numbers."""

    asked: str
    low: float
    high: float
    open: bool


def _field(number: int, one: CriterionQuestion) -> tuple[Any, Any]:
    """The field of a judge's reply that answers one criterion."""
    asked, low, high, open_ = one
    expected, expected_zh = (
        told[asked].format(number=number, low=low, high=high, more=told["more"] if open_ else "")
        for told in map(wording()["checklist"].get, LANGUAGES)
    )
    told, field = Described(zh=expected_zh), partial(Field, default=None, description=expected)
    whole = low % 1 == high % 1 == 0 and (asked == "level" or high - low > 1)
    kind: Any = bool if asked == "verdict" else int if whole else float
    if not open_:
        bounds = {} if kind is bool else {"ge": kind(low), "le": kind(high)}
        return Annotated[kind | None, told, OnScale()], field(**bounds)

    def read_open(value: Any) -> Any:
        if (
            isinstance(value, str)
            and plain(value).strip(" .。").lower() in wording()["not_applicable"]
        ):
            return NOT_APPLICABLE
        if kind is bool:
            return read_boolean(value)
        answer = (read_integer if whole else read_number)(value, high, scale=True)
        if not low <= answer <= high:
            raise ParseError(f"Expected a number from {low:g} to {high:g}, found {answer:g}.")
        return answer

    levels = range(int(low), int(high) + 1) if whole and high - low < LEVELS else ()
    answers = (YES, NO) if kind is bool else tuple(map(str, levels))
    reads = ReadBy(read_open, (*answers, NOT_APPLICABLE) if answers else ())
    return Annotated[Any, told, reads], field()


@lru_cache(maxsize=1024)
def _reply(kinds: tuple[CriterionQuestion, ...]) -> type[BasePromptTemplate]:
    fields: dict[str, Any] = {
        f"c{number}": _field(number, one) for number, one in enumerate(kinds, 1)
    }
    return create_model(
        "ChecklistReply", __base__=BasePromptTemplate, __module__=__name__, **fields
    )


def first_level(one: Criterion) -> int:
    """The number of the worst level: labels that are whole numbers in a row are asked for as they
    are.
    """
    labels = [level.label for level in one.levels]
    first = int(labels[0]) if labels and labels[0].isascii() and labels[0].isdigit() else 0
    return first if labels == list(map(str, range(first, first + len(labels)))) else 0


def question_of(one: Criterion) -> CriterionQuestion:
    """What a judge is asked for, yes and no being 1 and 0."""
    if one.levels:
        first = first_level(one)
        return CriterionQuestion("level", first, first + len(one.levels) - 1, one.not_applicable)
    low, high = one.scale or (0, 1)
    return CriterionQuestion("number" if one.scale else "verdict", low, high, one.not_applicable)


def criterion_line(one: Criterion, language: str) -> str:
    """A criterion on one line, so that one of a row passes for no other part of the prompt."""
    levels = [
        " = ".join(dict.fromkeys(filter(None, (str(number), level.label, level.description))))
        for number, level in enumerate(one.levels, first_level(one))
    ]
    scale = f"{one.scale[0]:g}–{one.scale[1]:g}" if one.scale else ""
    words = wording()["checklist"][language]["about"]
    about = zip(words, ("; ".join(levels), scale, one.reference), strict=True)
    parts = [one.text, *(f"({word}: {told})" for word, told in about if told)]
    return " ".join(" ".join(parts).split())


_ABOUT = ("name", "text", "points", "tags")


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

    unheard = frozenset({"prompt", "rubrics", "whole", "own_form"})
    score_range: Bounds = (0.0, 1.0)
    criteria: Rubric = Rubric()
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
            clip = self.criteria.clip if self.clip is None else self.clip
            known = self.criteria.model_copy(update={"clip": clip}).bounds()
            own = bool(self.criteria.criteria) or clip
            object.__setattr__(self, "score_range", known if own else (None, 1.0))
        return self

    @property
    def inputs(self) -> dict[str, bool]:
        """`criteria` is a field of the row where the grader has none."""
        own = bool(self.criteria.criteria)
        return {"query": False, "response": True, "reference_response": False, "criteria": not own}

    def _rubric(self, given: Any) -> Rubric:
        return self.criteria if given is None else read_rubric(given)

    def _messages(self, fields: Mapping[str, Any], form: str) -> list[dict[str, Any]]:
        """The criteria, then the fenced texts."""
        rubric = self._rubric(fields.get("criteria"))
        criteria, whole = rubric.leaves(), rubric.aggregate == "implicit"
        lines = [criterion_line(one, self.language) for one in criteria]
        if whole:
            lines = [f"[{one.points:g}] {line}" for one, line in zip(criteria, lines, strict=True)]
        return render(
            "checklist",
            self.language,
            texts={
                # what differs comes last: what is alike is cached
                name: shown(fields.get(name))
                for name in ("query", "reference_response", "response")
            },
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
            rubric = self._rubric(criteria)
        except ConfigError as error:
            raise DataError(f"{self.name}: {error}") from error
        fields = {"query": query, "response": response, "reference_response": reference_response}
        gains = any(one.points > 0 for one in rubric.criteria)
        if not rubric.criteria or rubric.faults_alone == "unscored" and not gains:
            raise Unscored(f"{self.name}: no criterion has points above 0.", reason="no_criteria")
        if rubric.aggregate == "implicit":
            return await self._whole({**fields, "criteria": rubric})
        leaves = rubric.leaves()
        size = self.max_criteria or len(leaves)
        parts = [leaves[at : at + size] for at in range(0, len(leaves), size)]
        asked = [
            (sample, partial(self._batch, fields, part, self.repair_attempts))
            for sample in range(self.samples)
            for part in parts
        ]
        replies = list[Score[Any]]()
        for one in await side_by_side(asked):
            if isinstance(one, BaseException):
                raise one
            replies.append(one)
        answers = [answer for reply in replies for answer in reply.value or ()]
        soft = rubric.aggregate in ("points", "sum", "threshold")
        judged = [
            (one, _elected(one, answers[place :: len(leaves)], soft))
            for place, one in enumerate(leaves)
        ]
        refused = [one for one, verdict in judged if verdict["said"] == REFUSED]
        if len(refused) == len(leaves) or any(one.gate for one in refused):
            raise Unscored(
                f"{self.name}: the judge declined to decide: {refused[0].text}",
                reason="refused",
                cause="judge",
            )
        scored = rubric.score([verdict["value"] for _, verdict in judged])
        metadata = {
            "raw": scored.raw,
            "clipped": scored.clipped,
            "criteria": [
                {name: about for name in _ABOUT if (about := getattr(one, name))} | verdict
                for one, verdict in judged
            ],
            **({"gates": list(scored.gates)} if scored.gates else {}),
            **({"tags": dict(scored.tags)} if scored.tags else {}),
        }
        cut = (criteria is not None or rubric.clip) if self.clip is None else self.clip
        return Score(
            scored.clipped if cut else scored.raw,
            # of the first sample
            "\n".join(
                dict.fromkeys(reply.reason for reply in replies[: len(parts)] if reply.reason)
            ),
            extra=metadata,
            usage=usage_sum(replies),
        )

    async def _whole(self, fields: Mapping[str, Any]) -> Score[float]:
        """One judgement of the whole list."""

        def read(verdict: Any, reply: ChatResponse) -> Score[float]:
            score = likert(verdict.score)
            return Score(score, extra={"raw": score, "clipped": score, "said": verdict.score})

        return await self._ask(fields, read, score_reply(1, LIKERT, True))

    async def _batch(
        self, fields: Mapping[str, Any], criteria: Sequence[Criterion], attempts: int
    ) -> Score[list[Any]]:
        """What one sample says of some criteria, and why; those that a reply leaves out are asked
        for alone, which counts among the repair `attempts`.
        """
        template, replies = _reply(tuple(map(question_of, criteria))), 0
        about = {
            f"c{number}": criterion_line(one, self.language)
            for number, one in enumerate(criteria, 1)
        }

        def parse(template: type[BasePromptTemplate], reply: ChatResponse) -> Any:
            nonlocal replies
            replies += 1
            return parsed(template, reply)

        def read(verdict: Any, reply: ChatResponse) -> Score[list[Any]]:
            if reply.decisions is None:
                said = {name: getattr(verdict, name) for name in about}
            else:
                said = {name: reply.decisions.get(name, REFUSED) for name in about}
            given = [name for name, answer in said.items() if answer is not None]
            left = [name for name in said if name not in given]
            if left and (replies > attempts or not given):
                raise ParseError(no_tag(left[0], given))
            return Score(list(said.values()))

        rubric = Rubric(criteria=list(criteria))
        score = await self._ask(
            {**fields, "criteria": rubric}, read, template, attempts, parse, about=about
        )
        answers = score.value or []
        alone = [one for one, answer in zip(criteria, answers, strict=True) if answer is None]
        if not alone:
            return score
        rest = await self._batch(fields, alone, attempts - replies)
        late = iter(rest.value or [])
        return Score(
            [next(late) if answer is None else answer for answer in answers],
            score.reason or rest.reason,
            usage=usage_sum([score, rest]),
        )


def verdict_of(one: Criterion, answer: Any) -> tuple[Any, float]:
    """What an answer (yes or no, the number of a level, or a number) is called, and its worth."""
    if one.levels:
        place = int(answer) - first_level(one)
        return one.levels[place].label, one.value_of(place)
    if isinstance(answer, str):
        answer = answer == YES if answer in (YES, NO) else float(answer)
    return answer, one.value_of(answer)


def _elected(one: Criterion, votes: list[Any], soft: bool) -> dict[str, Any]:
    """The verdict of several samples: the answer of the largest share, the worse of a tie.

    Of numbers on a scale it is the mean. Of probabilities it is the expected value, or where it
    must be met wholly or not (a gate, the aggregates all, any and required) that of the answer.

    Returns:
        said: yes or no, the level's label, or the number; n/a; refused by a judge that declined
            this question alone.
        value: the share of its points, 0 to 1; None where it does not apply.
        agreement: the share of the samples that gave this answer, where there are several.
        probabilities: by answer, where the judge stated them.
    """
    heard = [vote for vote in votes if vote != REFUSED]
    if not heard:
        return {"said": REFUSED, "value": None}
    weighed = isinstance(heard[0], Decision)
    totals = Counter[Any]()
    for vote in heard:
        totals.update(vote.probabilities if weighed else [vote])
    shares = {name: total / len(heard) for name, total in totals.items()}
    applies = {name: share for name, share in shares.items() if name != NOT_APPLICABLE}
    total = math.fsum(applies.values())
    answer: Any = NOT_APPLICABLE
    said, value = answer, None
    if 2 * total > 1:
        worth = {name: verdict_of(one, name)[1] for name in applies}
        answer = min(applies, key=lambda name: (-applies[name], one.points * worth[name]))
        said, value = verdict_of(one, answer)
        if not weighed and one.scale is not None:
            said, value = verdict_of(one, fmean(vote for vote in heard if vote != NOT_APPLICABLE))
        elif weighed and soft and not one.gate:
            value = math.fsum(share * worth[name] for name, share in applies.items()) / total
    verdict = {"said": said, "value": value}
    if weighed:
        return verdict | {"probabilities": shares}
    agreement = shares[answer] if one.scale is None else max(shares.values())
    return verdict | {"agreement": agreement} if len(votes) > 1 else verdict


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

    registered = "rubric:"

    @classmethod
    def of_name(cls, name: str) -> type[ChecklistGrader]:
        """A class that makes the checklist of that file."""
        path = Path(name)
        rubric = read_rubric(path)
        if not rubric.criteria:
            raise ConfigError(f"The rubric {name} holds no criteria.")

        def make(**settings: Any) -> ChecklistGrader:
            own = read_rubric(path, None, settings.get("language", "en"))
            return ChecklistGrader(**{"criteria": own, "name": f"rubric:{path.stem}", **settings})

        return class_for(ChecklistGrader, ChecklistGrader, make, score_range=rubric.bounds())
