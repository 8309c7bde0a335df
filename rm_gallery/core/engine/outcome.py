"""What became of one job: a value, a reason why there is none, or the error that broke it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from rm_gallery.core.utils.errors import (
    BudgetExceeded,
    ConfigError,
    DeadlineExceeded,
    ParseError,
    ProviderError,
    RMGalleryError,
    Unscored,
)

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


def scored(value: T) -> Outcome[T]:
    """Outcome of a job that gave `value`."""
    return Outcome("scored", value)


def outcome_of_error(error: BaseException) -> Outcome[T]:
    """Outcome of a job that raised: unscored when there was nothing to judge by, failed when the judging broke.

    ConfigError is the caller's to mend and is raised again instead of becoming ten thousand equal outcomes.
    """
    if isinstance(error, ConfigError):
        raise error
    message = str(error) or type(error).__name__
    if isinstance(error, Unscored):
        return Outcome("unscored", reason=error.reason, message=message)
    if isinstance(error, ParseError):
        return Outcome("unscored", reason="parse", message=message)
    if isinstance(error, DeadlineExceeded):
        return Outcome("failed", reason="deadline", message=message)
    if isinstance(error, ProviderError):
        return Outcome("failed", reason=error.kind, message=message)
    if isinstance(error, BudgetExceeded):
        return Outcome("failed", reason="budget", message=message)
    if isinstance(error, RMGalleryError):
        return Outcome("failed", reason=getattr(error, "reason", "error"), message=message)
    return Outcome("failed", reason="error", message=f"{type(error).__name__}: {message}")
