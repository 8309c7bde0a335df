"""What became of one job: a value, a reason why there is none, or the error that broke it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar, get_args

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
from rm_gallery.core.utils.models import said_by
from rm_gallery.core.utils.shown import redact

T = TypeVar("T")
Status = Literal["scored", "unscored", "failed"]
Bounds = tuple[float | None, float | None]
"""Lowest and highest possible score; None where there is no bound."""
NOT_BEGUN = frozenset({"stopped", "budget"})
"""Reasons of jobs that a run did not get to: counted as stopped, not as failed."""
UNDECLARED = "undeclared_range"
"""Reason of a score outside the [0, 1] of a reward or grader that declares no range: never the
answer's doing.

Nothing broke. A function of 0 to 10 points gives its good answers such scores, and they would pay
for it with the worst one.
"""


@dataclass(slots=True)
class Outcome(Generic[T]):
    """Result of one job.

    `cause` says who brought it about that there is no value, `reason` how in a short code,
    `message` in one sentence for people; cause and reason are empty for a scored job, and its
    message is what the judge said. `value` is None unless scored.
    """

    status: Status
    value: T | None = None
    reason: str = ""
    message: str = ""
    cause: Cause | None = None
    components: Mapping[str, float] = field(default_factory=dict)
    """The parts of the value, and numbers reported beside it, by name."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """What else was said of it, such as a function's `metrics` with their reasons and its
    `step_outputs`.
    """

    @property
    def score(self) -> T | None:
        """The value, where it is a score; None unless scored, for what was not judged is never a 0."""
        return self.value

    @property
    def ok(self) -> bool:
        """Whether the job gave a value."""
        return self.status == "scored"

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON types, for an outcome that is a score; what else was said is left out."""
        return {
            "score": self.value,
            "status": self.status,
            "cause": self.cause,
            "reason": self.reason,
            "message": self.message,
            "components": dict(self.components),
        }

    def without_value(self, message: str = "") -> Outcome[Any]:
        """The same for a job whose value would be another thing, such as the whole that this was a
        part of.
        """
        return Outcome(self.status, None, self.reason, message or self.message, self.cause)


CAUSES: tuple[Cause, ...] = get_args(Cause)
NOT_RUN: Outcome[Any] = Outcome(
    "failed", None, "stopped", "The run stopped before this sample was judged.", "caller"
)


def scored(
    value: T,
    message: str = "",
    components: Mapping[str, float] | None = None,
    extra: Mapping[str, Any] | None = None,
) -> Outcome[T]:
    """Outcome of a job that gave `value`."""
    return Outcome("scored", value, "", message, None, components or {}, extra or {})


def unscored(reason: str, message: str, cause: Cause) -> Outcome[Any]:
    """Outcome of a job for which there was nothing to judge by, or no verdict to read."""
    return Outcome("unscored", None, reason, message, cause)


def failed(reason: str, message: str, cause: Cause) -> Outcome[Any]:
    """Outcome of a job whose judging broke."""
    return Outcome("failed", None, reason, message, cause)


def stopped_outcome(reason: str, cause: Cause) -> Outcome[Any]:
    """Outcome of a job that was never begun because the run stopped, for this reason and by this
    cause.
    """
    return failed("stopped", f"Not judged: the run stopped ({reason}).", cause)


_PRECEDENCE: tuple[Cause | None, ...] = (
    "endpoint",
    "judge",
    "rule",
    "data",
    "caller",
    None,
    "answer",
)


def deciding(missing: Iterable[Outcome[Any]]) -> Outcome[Any]:
    """The outcome that stands for a whole, of one or more parts that have no value; the order they
    come in changes nothing.

    What failed comes before what was not begun, and that before what is unscored: another run may
    still score it. Among equals the cause decides: endpoint, judge, rule, data, caller, answer.
    """
    # the answer comes last: where an endpoint was down as well, the whole is not the answer's
    # fault, and is worth no worst score
    return min(
        missing,
        key=lambda one: (
            *_lost(one.status, one.reason),
            _PRECEDENCE.index(one.cause),
            one.reason,
            one.message,
        ),
    )


def _lost(status: Status, reason: str) -> tuple[bool, bool]:
    return status != "failed", reason in NOT_BEGUN


def outside(name: str, score: float, bounds: Bounds, declared: bool) -> Outcome[Any]:
    """Outcome of a score of `name` outside its range, whether that was declared or is the one of
    what declares none.
    """
    ends = ", ".join("None" if end is None else f"{end:g}" for end in bounds)
    if declared:
        return failed(
            "invalid_result",
            f"{name} gave the score {score:g}, outside its declared range [{ends}].",
            "rule",
        )
    advice = "return a score inside it, or declare the range that it has: score_range=(low, high)."
    return failed(
        UNDECLARED, f"{name} gave the score {score:g}, outside its range [{ends}]; {advice}", "rule"
    )


def worst_of(bounds: Bounds, higher_is_better: bool = True) -> float | None:
    """The worst score of a range, which what an answer caused is worth; None where the range is
    open on that side.
    """
    return bounds[0] if higher_is_better else bounds[1]


def is_run_level(error: BaseException) -> bool:
    """Whether an error ends the run: one the caller has to mend, instead of ten thousand equal
    outcomes.

    Data that does not fit (DataError) is its own sample's matter.
    """
    return isinstance(error, ConfigError) and not isinstance(error, DataError)


def outcome_of_error(error: BaseException) -> Outcome[Any]:
    """Outcome of a job that raised: unscored when there was nothing to judge by, failed when the
    judging broke.

    The error says who caused it. One that is none of the library's is the endpoint's where it is a
    connection error or a timeout (`is_endpoint_error`), else the rule's own. An error of the run is
    raised again, see `is_run_level`.
    """
    if is_run_level(error):
        raise error
    # a client's error may echo the key it was given
    message = redact(said_by(error)) or type(error).__name__
    if not isinstance(error, RMGalleryError):
        return failed(
            "error",
            f"{type(error).__name__}: {message}",
            "endpoint" if is_endpoint_error(error) else "rule",
        )
    if isinstance(error, Unscored):
        return unscored(error.reason, message, error.cause)
    if isinstance(error, ParseError):
        return unscored("parse", message, error.cause)
    if isinstance(error, ProviderError):
        return failed(error.kind, message, error.cause)
    codes = ((DataError, "data"), (DeadlineExceeded, "deadline"), (BudgetExceeded, "budget"))
    reason = next(
        (code for kind, code in codes if isinstance(error, kind)), getattr(error, "reason", "error")
    )
    return failed(reason, message, error.cause)
