"""`Score`: what became of one judgement. A value, or who caused that there is none.

>>> unscored("no_reference", "The row has no reference.", "data").value is None
True
>>> missing = [failed("transient", "HTTP 503", "endpoint"), unscored("parse", "no verdict", "answer")]
>>> deciding(missing).cause  # the answer pays only where nothing else was at fault
'endpoint'
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar, cast, get_args

from rm_gallery.core.utils.endpoint_errors import is_endpoint_error
from rm_gallery.core.utils.errors import (
    BudgetExceeded,
    Cause,
    ConfigError,
    DataError,
    DeadlineExceeded,
    ParseError,
    ProviderError,
    RMGalleryError,
    Unscored,
)
from rm_gallery.core.utils.models import error_message
from rm_gallery.core.utils.shown import redact

T = TypeVar("T")
Status = Literal["scored", "unscored", "failed"]
STATUSES: tuple[Status, ...] = get_args(Status)
CAUSES: tuple[Cause, ...] = get_args(Cause)
Bounds = tuple[float | None, float | None]
"""Lowest and highest possible score; None where there is no bound."""
Missing: TypeAlias = Literal["raise", "none", "skip", "mean", "worst"] | float
"""What stands where there is no score: an error, no value, nothing (the others count alone), the
mean of the others, the worst score of the range, or a number.
"""
_EARLIER_SPELLINGS = {"propagate": "none"}
NOT_BEGUN = frozenset({"stopped", "budget"})
"""Codes of jobs that the run did not get to, or not to their end: counted as stopped, and judged
when it is continued.
"""
UNDECLARED = "undeclared_range"
"""Code of a score outside the default [0, 1] of a reward that declares no range; never the answer's
fault.

Nothing broke: a function of 0 to 10 points gives good answers such scores, and they would pay for
it with the worst one.
"""


class Detail(NamedTuple):
    """One dimension of a score: a number, or one for each of the outputs that were compared."""

    name: str
    value: Any
    reason: str | None = None


@dataclass(slots=True)
class Score(Generic[T]):
    """Result of one judgement.

    `value` is None unless `status` is scored: what was not judged is never a 0. A missing value has
    a `cause` (who) and a `code` (how, in one word, such as parse, deadline or no_reference); both
    are empty for a value.
    """

    value: T | None = None
    reason: str = ""
    """For people: why this value, or why none."""
    components: Mapping[str, float] = field(default_factory=dict)
    """Parts of the value, and numbers reported with it, by name: finite ones, as the value is."""
    status: Status = "scored"
    cause: Cause | None = None
    code: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Whatever else the judgement gave, such as a function's `metrics` and `step_outputs`."""
    details: tuple[Detail, ...] = ()
    """The dimensions the value is the mean of; none where it is the one there is."""
    usage: Mapping[str, float] | None = None
    """What it cost: calls, input_tokens, output_tokens, seconds; None where nobody counted."""
    steps: tuple[Score[Any], ...] = ()
    """Of an output whose steps were judged, what was said of each; the value is made of theirs."""

    @property
    def ok(self) -> bool:
        """Whether there is a value."""
        return self.status == "scored"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types without `extra`. Replies and records keep the founding keys: `reason` is
        the code, `message` the reason.
        """
        return {
            "score": self.value,
            "status": self.status,
            "cause": self.cause,
            "reason": self.code,
            "message": self.reason,
            "components": dict(self.components),
        }

    @property
    def reasons(self) -> str:
        """The reasons of its dimensions, or its own."""
        return "; ".join(filter(None, (detail.reason for detail in self.dimensions(""))))

    def dimensions(self, name: str) -> tuple[Detail, ...]:
        """The dimensions of the value; it is one itself, of this name, where it is made of none."""
        return self.details or (Detail(name, self.value, self.reason or None),)

    def without_value(self, reason: str = "") -> Score[Any]:
        """This outcome for the enclosing job, without its value."""
        why = reason or self.reason
        return Score(None, why, status=self.status, cause=self.cause, code=self.code)


def scored(
    value: T,
    reason: str = "",
    components: Mapping[str, float] | None = None,
    extra: Mapping[str, Any] | None = None,
) -> Score[T]:
    """A value."""
    return Score(value, reason, components or {}, extra=extra or {})


def scored_by(details: Iterable[Detail], extra: Mapping[str, Any] | None = None) -> Score[Any]:
    """The mean of these dimensions, which stay told apart; unscored where there is none.

    >>> scored_by([Detail("brevity", 1.0), Detail("clarity", 0.5)]).value
    0.75
    """
    told = tuple(details)
    if not told:
        return unscored("no_details", "The reward returned a result without details.", "rule")
    return Score(mean_of([detail.value for detail in told]), extra=extra or {}, details=told)


def mean_of(values: Sequence[Any]) -> Any:
    """The mean of numbers; of tuples of one length, a tuple with the mean of each place."""
    if isinstance(values[0], tuple):
        return tuple(mean_of(place) for place in zip(*values, strict=True))
    try:
        return math.fsum(values) / len(values)
    except (OverflowError, ValueError):  # ValueError: inf - inf
        return math.nan


def unscored(code: str, reason: str, cause: Cause) -> Score[Any]:
    """No value: there was nothing to judge by, or no verdict to read."""
    return Score(None, reason, status="unscored", cause=cause, code=code)


def failed(code: str, reason: str, cause: Cause) -> Score[Any]:
    """No value: the judging broke."""
    return Score(None, reason, status="failed", cause=cause, code=code)


def stopped(reason: str, cause: Cause) -> Score[Any]:
    """No value: the run stopped, for this reason, before the job was over."""
    return failed("stopped", f"Not judged: the run stopped ({reason}).", cause)


NOT_RUN = failed("stopped", "The run stopped before this sample was judged.", "caller")

_PRECEDENCE: tuple[Cause | None, ...] = (
    *("endpoint", "judge", "rule", "data", "caller"),
    None,
    # last: where an endpoint was down as well, the whole is not the answer's fault and is worth no
    # worst score
    "answer",
)


def deciding(missing: Iterable[Score[Any]]) -> Score[Any]:
    """The one of several missing scores that stands for their whole, whatever their order.

    Failed comes before not begun, and that before unscored: another run may still score it. Among
    equals the cause decides: endpoint, judge, rule, data, caller, answer.
    """

    def rank(score: Score[Any]) -> tuple[bool, bool, int, str, str]:
        precedence = _PRECEDENCE.index(score.cause)
        return (
            score.status != "failed",
            score.code in NOT_BEGUN,
            precedence,
            score.code,
            score.reason,
        )

    return min(missing, key=rank)


def counted_as(missing: Iterable[tuple[str, str]]) -> Status | Literal["stopped"]:
    """What a sample counts as, by status and code of each score that is missing in it: stopped where
    the run did not get to one of them, since it is judged again when the run is continued; else
    failed where one failed.

    >>> counted_as([("failed", "transient"), ("failed", "stopped")])
    'stopped'
    """
    found = {"stopped" if code in NOT_BEGUN else status for status, code in missing}
    for status in ("stopped", "failed", "unscored"):
        if status in found:
            return status
    return "scored"


def out_of_range(
    name: str, value: float, bounds: Bounds, declared: bool = True
) -> Score[Any] | None:
    """The score that stands for a value that is not finite or outside its range; None where it is
    fine.
    """
    low, high = bounds
    if not math.isfinite(value):
        reason = f"{name} gave the score {value}; a score is a finite number."
        return failed("invalid_result", reason, "rule")
    if (low is None or value >= low - 1e-9) and (high is None or value <= high + 1e-9):
        return None
    return outside(name, value, bounds, declared)


def check_inside(what: str, value: object, who: str, bounds: Bounds, instead: str) -> None:
    """Raise ConfigError for a number, given as `what`, that lies outside of what `who` gives or
    takes; None and words are no numbers.
    """
    if isinstance(value, int | float) and out_of_range(what, value, bounds):
        low, high = bounds
        raise ConfigError(f"{what} is {value}, and {who} {low} to {high}; give {instead}.")


def outside(name: str, value: float, bounds: Bounds, declared: bool) -> Score[Any]:
    """The score that stands for a value outside the declared range, or the default one."""
    ends = ", ".join("None" if end is None else f"{end:g}" for end in bounds)
    if declared:
        reason = f"{name} gave the score {value:g}, outside its declared range [{ends}]."
        return failed("invalid_result", reason, "rule")
    reason = (
        f"{name} gave the score {value:g}, outside its range [{ends}]; return a score inside it, or "
        "declare the range that it has: score_range=(low, high)."
    )
    return failed(UNDECLARED, reason, "rule")


def checked_bounds(given: Any, what: str) -> Bounds:
    """The range of scores that was given as `what`; ConfigError for one without a score in it."""
    fits = (
        isinstance(given, Sequence)
        and len(given) == 2
        and all(b is None or (isinstance(b, int | float) and math.isfinite(b)) for b in given)
    )
    low, high = given if fits else (1, 0)
    if not fits or (low is not None and high is not None and not low < high):
        raise ConfigError(f"{what} is {given!r:.80}; give (lowest, highest), None for no bound.")
    return low, high


def worst_of(bounds: Bounds, higher_is_better: bool = True) -> float | None:
    """The worst score of a range, which what an answer caused is worth; None where that end is
    open.
    """
    return bounds[0] if higher_is_better else bounds[1]


def missing_policy(given: object, what: str, *words: str, why: str = "") -> Missing:
    """The policy that was given as `what`, in today's spelling: one of `words`, or a number.

    Raises ConfigError, which says `why` where that is known, for anything else.

    >>> missing_policy("propagate", "GraderConfig: on_error", "none", "raise")
    'none'
    """
    if isinstance(given, str):
        spelled = _EARLIER_SPELLINGS.get(given, given)
        if spelled in words:
            return cast("Missing", spelled)
    elif isinstance(given, int | float) and not isinstance(given, bool) and _is_finite(given):
        return given
    choices = ", ".join(f'"{word}"' for word in words)
    raise ConfigError(f"{what} is {given!r:.80}{why}; give {choices} or a finite number.")


def finite_score(name: str, given: object) -> float:
    """The score that was given as `name`; ConfigError for anything but a finite number, such as a
    text or True, which Python takes for 1: the best score of many, for the answer that breaks a
    reward.
    """
    if not isinstance(given, bool) and isinstance(given, Real) and _is_finite(given):
        return float(given)
    raise ConfigError(
        f"{name} is {given!r:.80}; give a finite number, no better than a wrong answer gets."
    )


def _is_finite(number: Real | float) -> bool:
    try:
        return math.isfinite(number)
    except OverflowError:  # an integer beyond all floats
        return False


def is_run_level(error: BaseException) -> bool:
    """Whether an error ends the run: the caller has to mend it, instead of reading ten thousand
    equal outcomes. A row that does not fit (DataError) costs itself alone.
    """
    return isinstance(error, ConfigError) and not isinstance(error, DataError)


def score_of_error(error: BaseException) -> Score[Any]:
    """What a raised error is worth: unscored where there was nothing to judge by, else failed.

    The error says who caused it. One that is none of the library's is the endpoint's where it is a
    connection error or a timeout (`is_endpoint_error`), else the rule's own. An error of the run
    (`is_run_level`) is raised again.
    """
    if is_run_level(error):
        raise error
    # a client's error may echo the key it was given
    reason = redact(error_message(error)) or type(error).__name__
    if not isinstance(error, RMGalleryError):
        cause: Cause = "endpoint" if is_endpoint_error(error) else "rule"
        return failed("error", f"{type(error).__name__}: {reason}", cause)
    if isinstance(error, Unscored):
        return unscored(error.reason, reason, error.cause)
    if isinstance(error, ParseError):
        return unscored("parse", reason, error.cause)
    if isinstance(error, ProviderError):
        return failed(error.kind, reason, error.cause)
    codes = ((DataError, "data"), (DeadlineExceeded, "deadline"), (BudgetExceeded, "budget"))
    code = next((code for kind, code in codes if isinstance(error, kind)), None)
    return failed(code or str(getattr(error, "reason", "error")), reason, error.cause)


def about_code(status: str, reason: str, cause: str | None) -> bool:
    """Whether a missing score tells what code does: not where somebody else caused it, nor where it
    may have been the network.
    """
    return cause not in ("endpoint", "caller") and (
        status == "unscored" or reason in ("invalid_result", UNDECLARED)
    )
