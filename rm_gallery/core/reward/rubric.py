"""A rubric as one object: criteria with signed points, levels, gates and parts, the arithmetic that
makes a score of them, and the one schema of the files that scenarios, graders, judges and
checklists are read from.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    model_validator,
)

from rm_gallery.core.score import Bounds
from rm_gallery.core.utils.errors import ConfigError, DataError, Unscored
from rm_gallery.core.utils.file import read_file
from rm_gallery.core.utils.identity import digest
from rm_gallery.core.utils.models import field_names
from rm_gallery.core.utils.names import unknown_name

Aggregate = Literal["points", "sum", "all", "any", "threshold", "required", "implicit"]
Values = Sequence[float | None]
Judged = list[tuple["Criterion", float]]
LIKERT = 10
"""Levels of the one number that an implicit judgement states."""


class _Strict(BaseModel):
    """Has the fields of its class and no other."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)


class Level(_Strict):
    """One of the answers a criterion can get: what it is called and what share of the points it is
    worth, 0 to 1.
    """

    label: str = Field(min_length=1)
    value: float = Field(ge=0, le=1)
    description: str = ""


class Criterion(_Strict):
    """One question about a response; negative points make it a fault that costs them when it is
    there.

    It is answered by yes or no; by one of its `levels`, worst first; or by a number on its `scale`.
    A criterion with `parts` is not judged itself: its value is the mean of its parts by their
    points.
    """

    text: str = Field(min_length=1)
    points: float = Field(default=1.0, allow_inf_nan=False)
    name: str = ""
    levels: list[Level] = Field(default_factory=list)
    scale: tuple[float, float] | None = None
    """Lowest and highest number a judge may say."""
    negate: bool = False
    """Whether the value is turned round: met is 0."""
    gate: bool = False
    """Whether the whole rubric is worth nothing where this is not wholly met."""
    optional: bool = False
    """Whether the aggregate `required` leaves it out."""
    of: Literal["state", "text"] = "state"
    """For judges that act, what it is of: the state, of which only what the judge opened is
    evidence, or what was written ("the report names its limits"), of which its own words are.
    """
    not_applicable: bool = False
    """Whether a judge may say that it does not apply; it then counts neither for nor against."""
    reference: str = ""
    tags: list[str] = Field(default_factory=list)
    parts: list[Criterion] = Field(default_factory=list)
    notes: dict[str, Any] = Field(default_factory=dict)
    """What else its source says of it; no score depends on it."""

    @model_validator(mode="before")
    @classmethod
    def _short(cls, given: Any) -> Any:
        """A text alone, and levels that are texts: evenly spaced, worst first."""
        if isinstance(given, str):
            return {"text": given}
        levels = given.get("levels") if isinstance(given, dict) else None
        if levels and all(isinstance(one, str) for one in levels):
            return {**given, "levels": even(levels)}
        return given

    @model_validator(mode="after")
    def _one_kind(self) -> Criterion:
        kinds = [name for name in ("levels", "scale", "parts") if getattr(self, name)]
        if len(kinds) > 1:
            raise ValueError(
                f"a criterion has levels, a scale or parts, and this one has {' and '.join(kinds)}"
            )
        low, high = self.scale or (0.0, 1.0)
        if not -math.inf < low < high < math.inf:
            raise ValueError(f"scale is {self.scale}; give a finite lowest number and a higher one")
        if len(self.levels) == 1 or len({level.label for level in self.levels}) < len(self.levels):
            raise ValueError("levels are two or more, each with a label of its own")
        if self.parts and (self.gate or self.negate):
            raise ValueError(
                "a criterion with parts is no gate and is not negated; say it of a part"
            )
        return self

    def leaves(self) -> list[Criterion]:
        """What is judged of it: itself, or those of its parts."""
        return [leaf for one in self.parts for leaf in one.leaves()] if self.parts else [self]

    def value_of(self, verdict: bool | int | float) -> float:
        """The share of the points that a verdict earns: of yes or no, of a level by its place (0 is
        the worst), of a number.
        """
        if self.levels:
            value = self.levels[int(verdict)].value
        elif self.scale is not None:
            low, high = self.scale
            value = (float(verdict) - low) / (high - low)
        else:
            value = float(bool(verdict))
        return 1.0 - value if self.negate else value


def even(labels: Sequence[Any]) -> list[dict[str, Any]]:
    """Levels of these labels, evenly spaced over [0, 1], worst first."""
    last = max(1, len(labels) - 1)
    return [{"label": str(label), "value": place / last} for place, label in enumerate(labels)]


@dataclass(frozen=True)
class RubricResult:
    """What a rubric makes of its criteria's values.

    Attributes:
        raw: by the rubric's arithmetic; with faults it can be below 0.
        clipped: the same, cut to [0, 1].
        gates: names, else texts, of the must-haves that were missed.
        tags: the raw score of the criteria of each tag alone.
    """

    raw: float
    gates: tuple[str, ...] = ()
    tags: Mapping[str, float] = field(default_factory=dict)

    @property
    def clipped(self) -> float:
        """The raw score, cut to [0, 1]."""
        return min(1.0, max(0.0, self.raw))


class Rubric(_Strict):
    """Criteria and how their values become one score.

    `aggregate`: `points`, the points earned over the sum of the positive ones; `sum`, the points
    earned; `all` and `any`, 1 where all or one are wholly met, else 0; `required`, as `all` over
    what is not optional; `threshold`, 1 where the mean by points reaches `threshold`; `implicit`,
    one judgement of the whole list from 1 to 10, mapped by (x - 1) / 9.
    """

    criteria: list[Criterion] = Field(default_factory=list)
    aggregate: Aggregate = "points"
    threshold: float = Field(default=0.5, allow_inf_nan=False)
    least: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """The denominator of `points` is never below this."""
    faults_alone: Literal["unscored", "deducted"] = "unscored"
    """What `points` makes of a rubric without positive points: no score, or 1 less the share of the
    faults that are there.
    """
    clip: bool = True
    """Whether the score of a response is cut to [0, 1]."""
    shape: str = "plain"
    """The format it was read from."""
    notes: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _sums(self) -> Rubric:
        signed = self.aggregate in ("points", "sum", "implicit")
        if not signed and any(one.points < 0 for one in self.criteria):
            raise ValueError(
                f"negative points need the aggregate points, sum or implicit, and this rubric has "
                f"{self.aggregate}"
            )
        if (
            self.aggregate == "required"
            and self.criteria
            and all(one.optional for one in self.criteria)
        ):
            raise ValueError(
                "every criterion is optional, so the aggregate required has nothing to require"
            )
        return self

    def leaves(self) -> list[Criterion]:
        """The criteria that are judged, in order: those without parts."""
        return [leaf for one in self.criteria for leaf in one.leaves()]

    def bounds(self) -> Bounds:
        """Lowest and highest score it can give."""
        gains = [one.points for one in self.criteria if one.points > 0]
        loss = math.fsum(one.points for one in self.criteria if one.points < 0)
        if not self.clip and self.aggregate == "sum" and (gains or loss):
            return (loss, math.fsum(gains))
        if self.clip or self.aggregate != "points" or not gains:
            return (0.0, 1.0)
        # what does not apply leaves the denominator, so a fault can weigh against the smallest gain
        # alone
        sure = math.fsum(max(0.0, one.points) for one in self.criteria if not _may_go(one))
        return (loss / max(sure or min(gains), self.least), 1.0)

    def score(self, values: Values) -> RubricResult:
        """The score from a value for each of `leaves()`, None for what does not apply.

        Raises:
            Unscored: nothing applies, or no criterion has points above 0.
        """
        leaves = self.leaves()
        if len(values) != len(leaves):
            raise ValueError(f"{len(leaves)} criteria are judged, found {len(values)} values")
        raw = self._raw(_applied(self.criteria, iter(values)))
        judged = _applied(leaves, iter(values))
        missed = tuple(one.name or one.text for one, value in judged if one.gate and value < 1.0)
        tags: dict[str, float] = {}
        for tag in dict.fromkeys(tag for one, _ in judged for tag in one.tags):
            mine = [(one, value) for one, value in judged if tag in one.tags]
            with suppress(Unscored):  # of faults alone
                tags[tag] = _share(mine)
        return RubricResult(min(raw, 0.0) if missed else raw, missed, tags)

    def _raw(self, applied: Judged) -> float:
        if self.aggregate == "sum":
            return math.fsum(one.points * value for one, value in applied)
        if self.aggregate in ("points", "threshold", "implicit"):
            share = _share(applied, self.least, self.faults_alone)
            return float(share >= self.threshold) if self.aggregate == "threshold" else share
        needed = self.aggregate == "required"
        counted = [value >= 1.0 for one, value in applied if not (needed and one.optional)]
        if not counted:
            raise Unscored("no criterion applies.", reason="no_criteria")
        return float(any(counted) if self.aggregate == "any" else all(counted))


def likert(level: int) -> float:
    """The score of an implicit judgement from 1 to 10: (x - 1) / 9."""
    return (level - 1) / (LIKERT - 1)


def mean_of_rows(scores: Sequence[float]) -> float:
    """The mean of the rows' raw scores, cut to [0, 1] only at the end; NaN of none. Source:
    HealthBench, arXiv 2505.08775.
    """
    return min(1.0, max(0.0, math.fsum(scores) / len(scores))) if scores else math.nan


def _may_go(one: Criterion) -> bool:
    return all(map(_may_go, one.parts)) if one.parts else one.not_applicable


def _applied(criteria: Sequence[Criterion], values: Iterator[float | None]) -> Judged:
    """The criteria that apply, each with its value: one with parts has that of its parts."""
    judged: Judged = []
    for one in criteria:
        parts = _applied(one.parts, values)
        value = _share(parts) if parts else None if one.parts else next(values)
        judged += [] if value is None else [(one, value)]
    return judged


def _share(applied: Judged, least: float = 0.0, faults_alone: str = "unscored") -> float:
    """Points earned over the sum of the positive points."""
    earned = math.fsum(one.points * value for one, value in applied)
    positive = math.fsum(one.points for one, _ in applied if one.points > 0)
    if positive > 0:
        return earned / max(positive, least)
    faults = -math.fsum(one.points for one, _ in applied)
    if faults_alone == "deducted" and faults > 0:
        return 1.0 + earned / faults
    raise Unscored("no criterion that applies has points above 0.", reason="no_criteria")


# -- files -----------------------------------------------------------------------------------------

LANGUAGES = ("en", "zh")


class Texts(_Strict):
    """What a judge is told, in one language."""

    scenario: str = ""
    """The kind of request: a title, then one line about it."""
    desc: str = Field(default="", validation_alias=AliasChoices("desc", "task"))
    """The task of the judge; `task` is the same field."""
    criteria: list[Criterion] = Field(
        default_factory=list, validation_alias=AliasChoices("criteria", "rubrics")
    )
    """In order of weight; `rubrics` is the same field."""
    levels: list[str] | dict[int, str] = Field(default_factory=list)
    """What the scores mean: a text each, or a text by number."""
    verdicts: dict[str, str] = Field(default_factory=dict)
    """What each verdict on a claim means."""

    @property
    def rubrics(self) -> list[str]:
        """The texts of the criteria."""
        return [one.text for one in self.criteria]

    @property
    def level_lines(self) -> list[str]:
        """The levels, one line each."""
        if isinstance(self.levels, dict):
            return [f"{level}: {meaning}" for level, meaning in self.levels.items()]
        return self.levels


class ClaimCounting(_Strict):
    """How claims are counted: those of one field, within others, what an unsupported one is worth,
    and what a text without claims is (None: no score).
    """

    of: str
    within: list[str]
    unsupported: float = 0.0
    without: float | None


class RubricExample(_Strict):
    """A question with a better and a worse answer, and a phrase of each."""

    question: str
    better: str
    worse: str
    phrases: list[str]


class RubricFile(Texts, Rubric):
    """A rubric in a file, of which a scenario, a grader or a checklist is made; the file's name is
    its own.

    `en` and `zh` hold the texts by language, of which a file in one language needs none.
    """

    en: Texts | None = None
    zh: Texts | None = None
    kind: Literal["pointwise", "pairwise", "listwise"] | None = Field(
        default=None, validation_alias=AliasChoices("kind", "mode")
    )
    """How many answers are judged at once; `mode` is the same field."""
    scale: Bounds = Field(default=(0.0, 1.0), validation_alias=AliasChoices("scale", "score_range"))
    """Lowest and highest score; `score_range` is the same field."""
    higher_is_better: bool = True
    inputs: dict[str, bool] = Field(default_factory=dict)
    """Fields of a row, and whether each is required."""
    one_of: list[str] = Field(default_factory=list)
    """Fields of which one is enough."""
    claims: ClaimCounting | None = None
    family: str = ""
    work: bool = False
    """Whether the judge has to compute."""
    example: RubricExample | None = None
    _content: Any = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _fits_itself(self) -> RubricFile:
        fields = [*self.one_of, *([self.claims.of, *self.claims.within] if self.claims else ())]
        if self.inputs and (unknown := [name for name in fields if name not in self.inputs]):
            raise ValueError(f"'{unknown[0]}' is none of the inputs; add it to them")
        for where, texts in (("", self), ("en.", self.en), ("zh.", self.zh)):
            numbers = self.numbered(texts) if texts and "scale" in self.model_fields_set else None
            if numbers is not None:
                _levels_of_scale(f"{where}levels", numbers, self.scale)
        return self

    def numbered(self, texts: Texts) -> list[int] | None:
        """The scores that levels explain one by one; None where each text may be for several."""
        return list(texts.levels) if isinstance(texts.levels, dict) else None

    def texts(self, language: str) -> Texts:
        """The texts in a language, else in English, else those of the file itself."""
        return {"zh": self.zh}.get(language) or self.en or self

    def identity(self) -> str:
        """A digest of what the file holds."""
        return digest(self._content)


def _levels_of_scale(field: str, levels: Sequence[int], scale: Bounds) -> None:
    """Refuse numbered levels that are not exactly the whole numbers of the scale: a judge would be
    told of a score that it cannot give.
    """
    low, high = scale
    if low is None or high is None or low % 1 or high % 1:
        raise ValueError(f"{field} need a scale of two whole numbers, and scale is {scale}")
    wanted = range(int(low), int(high) + 1)
    wrong = {"add": set(wanted).difference(levels), "remove": set(levels).difference(wanted)}
    steps = [f"{step} {_listed(those)}" for step, those in wrong.items() if those]
    if steps:
        raise ValueError(
            f"{field} are for {_listed(levels) or 'no score'}, and scale is {low:g} to {high:g}; "
            f"{' and '.join(steps)}"
        )


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(numbers)))


File = TypeVar("File", bound=RubricFile)


def rubric_file(
    path: Path, what: str, model: type[File], fields: Sequence[str] = (), texts: Sequence[str] = ()
) -> File:
    """The rubric in a file, with these fields, and these texts in both languages.

    Raises:
        DataError: one line with the file, the field that does not fit and the next step.
    """
    with refused(f"{path.name}: not {what}: ", DataError, model):
        content = read_file(path)
        rubric = model.model_validate(content)
        rubric._content = content
        missing = [name for name in fields if name not in rubric.model_fields_set]
        for language in LANGUAGES:
            given = rubric.texts(language).model_fields_set
            missing += [f"{language}.{name}" for name in texts if name not in given]
        if missing:
            raise ConfigError(_NO_FIELD.format(missing[0]))
    return rubric


_NO_FIELD = "the field '{}' is missing; add it."


@contextmanager
def refused(
    where: str, error: type[ConfigError] = ConfigError, *models: type[BaseModel]
) -> Iterator[None]:
    """What is wrong with a rubric that is read inside the block, in one line: where, the field that
    does not fit, what was found, and the next step.
    """
    try:
        yield
    except ValidationError as found:
        raise error(f"{where}{_problem(found, models)}") from found
    except ConfigError as found:
        raise error(f"{where}{found}") from found


def _problem(error: ValidationError, models: Sequence[type[BaseModel]]) -> str:
    """The first thing that does not fit, a misspelt field before a missing one."""
    first = min(error.errors(), key=lambda item: item["type"] != "extra_forbidden")
    where, message = ".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")
    if first["type"] == "missing":
        return _NO_FIELD.format(where)
    if first["type"] == "extra_forbidden":
        known = {name for model in (*models, *_MODELS) for name in field_names(model)}
        message = unknown_name("field", str(first["loc"][-1]), known)
    message += "" if message.endswith((".", "?")) else "."
    return f"{where}: {message}" if where else message


_MODELS: tuple[type[BaseModel], ...] = (RubricFile, Criterion, Level, ClaimCounting, RubricExample)
