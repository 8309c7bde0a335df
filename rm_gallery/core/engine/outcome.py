"""What became of one job: a value, a reason why there is none, or the error that broke it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from rm_gallery.core.engine.folder.manifest import redact
from rm_gallery.core.utils.errors import (
    BudgetExceeded,
    ConfigError,
    DataError,
    DeadlineExceeded,
    ParseError,
    ProviderError,
    RMGalleryError,
    Unscored,
)
from rm_gallery.core.utils.models import said_by

T = TypeVar("T")
Status = Literal["scored", "unscored", "failed"]
NOT_BEGUN = frozenset({"stopped", "budget"})
"""Reasons of jobs that a run did not get to: counted as stopped, not as failed."""


@dataclass(slots=True)
class Outcome(Generic[T]):
    """Result of one job.

    `reason` is a short code, `message` one sentence for people; both are empty for a scored job. `value` is None unless
    scored.
    """

    status: Status
    value: T | None = None
    reason: str = ""
    message: str = ""

    @property
    def ok(self) -> bool:
        """Whether the job gave a value."""
        return self.status == "scored"


NOT_RUN: Outcome[Any] = Outcome("failed", reason="stopped", message="The run stopped before this sample was judged.")


def scored(value: T) -> Outcome[T]:
    """Outcome of a job that gave `value`."""
    return Outcome("scored", value)


def stopped_outcome(reason: str) -> Outcome[Any]:
    """Outcome of a job that was never begun because the run stopped."""
    return Outcome("failed", reason="stopped", message=f"Not judged: the run stopped ({reason}).")


def is_run_level(error: BaseException) -> bool:
    """Whether an error ends the run: one the caller has to mend, instead of ten thousand equal outcomes.

    Data that does not fit (DataError) is its own sample's matter.
    """
    return isinstance(error, ConfigError) and not isinstance(error, DataError)


def outcome_of_error(error: BaseException) -> Outcome[T]:
    """Outcome of a job that raised: unscored when there was nothing to judge by, failed when the judging broke.

    An error of the run is raised again, see `is_run_level`.
    """
    if is_run_level(error):
        raise error
    # a client's error may echo the key it was given
    message = redact(said_by(error)) or type(error).__name__
    if isinstance(error, Unscored):
        return Outcome("unscored", reason=error.reason, message=message)
    if isinstance(error, ParseError):
        return Outcome("unscored", reason="parse", message=message)
    if isinstance(error, DataError):
        return Outcome("failed", reason="data", message=message)
    if isinstance(error, DeadlineExceeded):
        return Outcome("failed", reason="deadline", message=message)
    if isinstance(error, ProviderError):
        return Outcome("failed", reason=error.kind, message=message)
    if isinstance(error, BudgetExceeded):
        return Outcome("failed", reason="budget", message=message)
    if isinstance(error, RMGalleryError):
        return Outcome("failed", reason=getattr(error, "reason", "error"), message=message)
    return Outcome("failed", reason="error", message=f"{type(error).__name__}: {message}")
