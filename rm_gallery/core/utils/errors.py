"""The error families: what cannot be mended by a retry, what may be, and what a sample ran out of."""

from __future__ import annotations

import re
import traceback
from typing import Any, Literal

ProviderErrorKind = Literal["rate_limit", "transient", "fatal", "unreachable"]
Cause = Literal["endpoint", "judge", "answer", "data", "rule", "caller"]
"""Who brought it about that there is no verdict.

`endpoint`: what serves the model did not answer. `judge`: it answered, and nobody can tell its
verdict. `answer`: the text that was to be judged made judging impossible. `data`: the row lacks
what the judgement needs, or holds nonsense. `rule`: the reward does not apply here, or is itself
broken. `caller`: a budget, a cancellation, or a deadline too short for anyone.
"""


class RMGalleryError(Exception):
    """Base of every error this library raises on purpose; it comes whole out of another process.

    `cause` says who brought it about: the class's own, or what the instance was given.
    """

    cause: Cause = "rule"

    def __reduce__(self) -> tuple[Any, ...]:
        # by default an error is built again from its message alone, which breaks the pool whose
        # worker raised it
        return _again, (type(self), self.args), self.__dict__

    def _render_traceback_(self) -> list[str]:
        """What IPython shows: one line, and where it was raised when it is asked for again with
        `%tb`.
        """
        if self.__dict__.get("_told"):
            return "".join(
                traceback.format_exception(type(self), self, self.__traceback__)
            ).splitlines()
        self.__dict__["_told"] = True
        return [f"{type(self).__name__}: {self}", "(%tb shows where it was raised)"]


def _again(kind: type[RMGalleryError], args: tuple[Any, ...]) -> RMGalleryError:
    made = kind.__new__(kind, *args)
    made.args = args
    return made


class ConfigError(RMGalleryError, ValueError):
    """Something the caller has to change; never retried."""

    cause: Cause = "caller"


class Inapplicable(ConfigError):
    """Options that cannot apply to what they were given for.

    `options` names them, the one to leave out first: the command line leaves out those that nobody
    typed, which come from a file of settings or the environment and hold for every command.
    """

    def __init__(self, message: str, *options: str) -> None:
        super().__init__(message)
        self.options = options


class DataError(ConfigError):
    """Input data that does not fit; names file, row and column."""

    cause: Cause = "data"


class MissingExtra(ConfigError, ImportError):
    """An optional package is absent; the message holds the `pip install` line. `extra` is empty for
    one that no extra names.
    """

    def __init__(self, package: str, extra: str, used_for: str) -> None:
        of = f" (of the extra '{extra}')" if extra else ""
        super().__init__(
            f"{used_for} needs the package '{package}'{of}. Install it with: "
            f"{pip_install(*package.split())}"
        )


def reason_of(error: BaseException) -> str:
    """What the error says, without the system's number and the path that the message has already."""
    return str(getattr(error, "strerror", None) or error)


def pip_install(*packages: str) -> str:
    """The line that installs them, as every shell takes it."""
    # zsh reads the brackets of uvicorn[standard] as a pattern of files; `numpy>=2` writes a file
    quoted = (f'"{each}"' if re.search(r"[^\w.-]", each) else each for each in packages)
    return f"pip install {' '.join(quoted)}"


class SandboxUnavailable(ConfigError):
    """Untrusted code was to run and no sandbox is installed."""


class ProviderError(RMGalleryError):
    """A model endpoint did not give a usable reply.

    `kind` decides the retry: rate_limit and transient may be retried, unreachable (nothing listens
    there, name not found) a few times quickly, fatal never. `retry_after` is the server's wish in
    seconds, where it gave one.
    """

    cause: Cause = "endpoint"

    def __init__(
        self,
        message: str,
        *,
        kind: ProviderErrorKind,
        status: int | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.kind: ProviderErrorKind = kind
        self.status = status
        self.retry_after = retry_after
        self.filtered = False
        """Whether the endpoint refused the content: then there is no verdict, and no fault of the
        endpoint either.
        """
        self.routed = False
        """Whether it is a 404 by which a router says that no model takes a part of the request,
        such as a schema.
        """

    @property
    def of_a_field(self) -> bool:
        """Whether an endpoint may refuse a field of the request by it, such as a schema, rather
        than all that it is asked.
        """
        return not self.filtered and (self.status in (400, 415, 422, 501) or self.routed)


class ParseError(RMGalleryError, ValueError):
    """A judge's reply holds no usable verdict; `reply_excerpt` shows its first and last characters."""

    cause: Cause = "judge"

    def __init__(self, message: str, *, reply_excerpt: str = "") -> None:
        super().__init__(message)
        self.reply_excerpt = reply_excerpt


class DeadlineExceeded(RMGalleryError, TimeoutError):
    """A sample or job ran out of time: its caller's, unless it is said who used it up."""

    cause: Cause = "caller"

    def __init__(self, message: str, *, cause: Cause = "caller") -> None:
        super().__init__(message)
        self.cause = cause


class BudgetExceeded(RMGalleryError):
    """The run reached budget.max_calls, max_tokens or max_cost and stopped; it can be resumed."""

    cause: Cause = "caller"


class Unscored(RMGalleryError):
    """There is nothing to judge by: no reference, an empty judge reply, a refused judgement. Raise
    it from a hook.

    `reason` is a short code: no_reference, truncated, content_filter, empty, not_applicable, …
    `cause` says whose doing it is: the data's by default, the rule's for `not_applicable`. What the
    answer caused (`cause="answer"`) is the worst score of the reward's range, so that no text gains
    by being impossible to judge.
    """

    def __init__(
        self, message: str, *, reason: str = "not_applicable", cause: Cause | None = None
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.cause = cause or ("rule" if reason == "not_applicable" else "data")


class ScoreError(RMGalleryError):
    """A reward model gave no usable number for an input, such as NaN; only its sample fails, and is
    never a 0.
    """

    reason = "invalid_score"
    cause: Cause = "judge"


class RequestError(RMGalleryError):
    """A request that cannot be sent, such as text with characters that are not valid Unicode; only
    its sample fails.
    """

    reason = "invalid_request"
    cause: Cause = "data"
