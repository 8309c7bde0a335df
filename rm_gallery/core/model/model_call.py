"""What every model behind an endpoint is to the one path of calls."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field, field_serializer

from rm_gallery.core.model.budget import Usage
from rm_gallery.core.model.limits import MAX_OUTAGE
from rm_gallery.core.model.transport import Json, Seconds
from rm_gallery.core.utils.models import Configured
from rm_gallery.core.utils.shown import without_credentials

if TYPE_CHECKING:
    from typing_extensions import Self

SECRET_FIELDS = ("api_key", "default_headers", "default_query", "proxy")
"""Settings that may hold a secret: never shown, never written to a run folder."""


def named(value: Any) -> str:
    """A function or other object by its name: stable from process to process, unlike its repr."""
    return str(getattr(value, "__qualname__", type(value).__qualname__))


class BaseModelCall(Configured):
    """Any model behind an endpoint; holds no state of a call, so one object serves any number at
    once.

    A provider implements `attempt` (one request, one raw answer) and `endpoint_key`. Caching,
    limits, retries, budget and checks of the reply are added around it for all providers alike
    (`client.complete`); `read`, `kept`, `restored` and `usage` say what a raw answer is, how it is
    kept, and what it cost.
    """

    remote: ClassVar[bool] = True
    """Whether asking it reaches somebody else: a script may be asked again where no model is to be
    called.
    """

    model: str
    """Name of the model as the endpoint knows it."""
    timeout: float = Field(default=120.0, gt=0)
    """Seconds one attempt may take; the sample's deadline shortens it."""
    max_attempts: int = Field(default=6, ge=1)
    """Attempts per call, the first included."""
    max_outage: float = Field(default=MAX_OUTAGE, ge=0)
    """Seconds an endpoint that served calls before may be down until the run stops; calls wait
    meanwhile. 0 never waits.
    """
    extra_body: Json = Field(default_factory=dict)
    """Further request fields, passed through as they are (logprobs, chat_template_kwargs, …)."""
    requests_per_minute: float | None = Field(default=None, gt=0)
    tokens_per_minute: float | None = Field(default=None, gt=0)
    cache: bool | None = None
    """None: replies are cached at temperature 0. True and False decide it."""

    @field_serializer("extra_body", when_used="json")
    def _body_hidden(self, value: Json) -> Json:
        return without_credentials(value)

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        for name, value in super().__repr_args__():
            yield name, without_credentials(value) if name == "extra_body" else value

    unlisted: ClassVar[frozenset[str]] = frozenset(
        "timeout max_attempts max_outage requests_per_minute tokens_per_minute cache".split()
    )
    """Settings that do not make it another model."""

    @classmethod
    def from_name(cls, name: str, **settings: Any) -> Self:
        """The model for what stands behind the provider's prefix."""
        return cls(**({**settings, "model": name} if name else settings))

    @abstractmethod
    async def attempt(self, payload: Json, timeout: Seconds) -> Json:
        """Make one request and return the decoded answer; raises ProviderError or ConfigError."""

    @abstractmethod
    def endpoint_key(self) -> str:
        """Names the endpoint, for people and as the `route` where nothing else tells it apart; no secret
        in it.
        """

    def route(self) -> str:
        """The endpoint and what chooses a deployment behind it (headers, query), credentials left
        out.
        """
        return self.endpoint_key()

    def account(self) -> str:
        """Tells accounts with limits of their own apart, by a hash of the key."""
        return ""

    def check(self) -> None:
        """Raise ConfigError when a call could not even be tried (no key, a URL that is none)."""

    @abstractmethod
    def read(self, raw: Json, payload: Json) -> Any:
        """The checked reply in the raw answer to a request; ProviderError where there is none."""

    @abstractmethod
    def kept(self, raw: Json, reply: Any) -> bytes | None:
        """What the cache keeps of an answer; None for one that is not worth keeping."""

    def kept_beside(self, stored: bytes) -> bytes:
        """What a run folder keeps of what the cache keeps."""
        return stored

    @abstractmethod
    def restored(self, stored: bytes) -> Any:
        """The reply in what the cache kept; ProviderError or ValueError when it cannot be read."""

    def usage(self, reply: Any, expected_input: int) -> Usage:
        """What a reply is booked with; counts that cannot be used give way to estimates. Here one
        call that only reads.
        """
        return Usage(input_tokens=reply.input_tokens or expected_input, calls=1)

    def describe(self) -> Json:
        """What identifies this model in a run's manifest: settings without secrets, limits or
        timeouts.
        """
        skip = {*self.unlisted, *SECRET_FIELDS}
        settings = self.model_dump(mode="json", exclude=skip, exclude_none=True, fallback=named)
        return {"type": type(self).__name__, "endpoint": self.endpoint_key(), **settings}
