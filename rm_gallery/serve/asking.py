"""What every mouth of the server speaks to: asks in, outcomes out, and a codec between them and one request format."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel

from rm_gallery.core.outcome import Outcome
from rm_gallery.core.utils.errors import RMGalleryError

Scope = Literal["read", "evaluate", "deploy"]


class Ask(NamedTuple):
    """One completion to be scored, whatever format it came in.

    The conversation is `messages`, whose last assistant turn is judged, or `prompt` and `completion` apart, each a text or
    a list of messages.
    """

    messages: list[dict[str, Any]] | None = None
    prompt: str | list[dict[str, Any]] | None = None
    completion: str | list[dict[str, Any]] | None = None
    reference: Any = None
    row: Mapping[str, Any] | None = None
    """What else is known, by the names of a data set's columns; keywords of a deployed evaluator."""
    id: str = ""
    original_messages: list[dict[str, Any]] | None = None
    """For deployed evaluators, where the format has it."""
    tools: list[Any] | None = None
    problem: str = ""
    """Why this item of a batch cannot be scored: it becomes failed (invalid_item) and costs no other one."""
    kept: Any = None
    """What the codec needs of the request again for its reply; nobody else reads it."""


class Refused(RMGalleryError):
    """A request that is not answered with scores: HTTP status, a short code, one sentence, and when to come again."""

    def __init__(self, status: int, code: str, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.retry_after = retry_after


def invalid(message: str) -> Refused:
    """The refusal of a body that does not fit its format; the message names field, what was found and what is taken."""
    return Refused(422, "invalid_request", message)


@dataclass(frozen=True)
class Codec:
    """One request format: how a JSON body becomes asks, and outcomes a reply. Pure functions, no I/O."""

    name: str
    path: str
    """As FastAPI writes it, with parameters in braces."""
    parse: Callable[[Any, Mapping[str, str]], tuple[str, Sequence[Ask]]]
    """From body and parameters (of path and query) to the target (`reward:NAME`, `evaluator:ID`, or empty for the only one
    there is) and the asks; raises Refused."""
    render: Callable[[Sequence[Ask], Sequence[Outcome[float]]], tuple[int, Any]]
    """From the asks and their outcomes, in the same order, to HTTP status and body."""
    request_model: type[BaseModel] | None = None
    response_model: Any = None
    request_example: Any = None
    summary: str = ""
    query: Mapping[str, tuple[Any, str]] = field(default_factory=dict)
    """Query parameters: type and meaning."""
    method: str = "POST"
    scope: Scope = "evaluate"
