"""An endpoint of the OpenAI protocol and the way to it."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote, urlsplit

import orjson
from pydantic import Field, SecretStr, field_serializer, field_validator

from rm_gallery.core.model import transport
from rm_gallery.core.model.model_call import BaseModelCall
from rm_gallery.core.model.transport import HINTS, decoded, provider_error
from rm_gallery.core.utils.errors import ConfigError, ProviderError, RequestError, logger
from rm_gallery.core.utils.shown import MASK, is_credential

if TYPE_CHECKING:
    import openai

DEFAULT_URL = "https://api.openai.com/v1"
URL_VARIABLES = ("OPENAI_BASE_URL", "BASE_URL")
_SCHEMES = ("bearer", "basic", "token", "apikey")


class OpenaiEndpoint(BaseModelCall):
    """An endpoint of the OpenAI protocol and the way to it.

    It can be built without a key or a network. Key and URL are looked up at the first call: the
    arguments, else OPENAI_API_KEY, and OPENAI_BASE_URL or BASE_URL; an empty variable counts as
    unset. An endpoint on this machine needs no key.
    """

    key_variable: ClassVar[str] = "OPENAI_API_KEY"
    """Environment variable with the key, where none is given."""
    hints: ClassVar[Mapping[int, str]] = HINTS
    """What to look at first, by HTTP status."""

    base_url: str | None = None
    api_key: SecretStr | None = None
    default_headers: dict[str, str] = Field(default_factory=dict, repr=False)
    default_query: dict[str, str] = Field(default_factory=dict, repr=False)
    """Query parameters of every request, such as Azure's api-version."""
    proxy: str | None = Field(default=None, repr=False)
    ca_bundle: str | None = None

    @field_validator("base_url")
    @classmethod
    def _url(cls, value: str | None) -> str | None:
        return transport.check_url(value, "base_url") if value else None

    @field_serializer("default_headers", "default_query", "proxy", when_used="json")
    def _hidden(self, value: Any) -> Any:
        return dict.fromkeys(value, MASK) if isinstance(value, dict) else value and MASK

    def check(self) -> None:
        """Raise ConfigError without a key (naming the variable) or with a base URL that is none."""
        self._headers(self._endpoint(), self._resolved_key())

    def endpoint_key(self) -> str:
        """The base URL this model calls."""
        return self._endpoint().url

    def route(self) -> str:
        """The URL with headers and query, credentials left out: they may choose the deployment that
        answers.
        """
        url = self._endpoint().url
        if not self.default_headers and not self.default_query:
            return url
        return _route(url, tuple(self.default_headers.items()), tuple(self.default_query.items()))

    def account(self) -> str:
        """A hash of the key and of other credentials."""
        return _digest(self._resolved_key() or "", *_secrets(*self._hiding_places(None)))

    def describe(self) -> dict[str, Any]:
        """As for every model; headers and query count by their hash."""
        settings = super().describe()
        route = self.route()
        return settings if route == settings["endpoint"] else {**settings, "route": _digest(route)}

    async def post(
        self, path: str, payload: dict[str, Any], timeout: float | None
    ) -> dict[str, Any]:
        """One POST of a JSON body to a path below the base URL, decoded.

        Anything but a JSON object with status 200 raises ProviderError, whose text holds none of
        this model's secrets.
        """
        content = await self.request(path, payload, timeout)
        if not isinstance(content, dict):
            what = type(content).__name__
            raise ProviderError(
                f"{self._endpoint().url} answered with {what}, not an object.", kind="transient"
            )
        return content

    async def request(
        self, path: str, payload: dict[str, Any] | None, timeout: float | None
    ) -> Any:
        """What a POST of a JSON body, or a GET without one, to a path below the base URL gives; any
        JSON value.

        Anything but JSON with status 200 raises ProviderError, whose text holds none of this
        model's secrets.
        """
        try:
            body = None if payload is None else orjson.dumps(payload)
        except TypeError as error:
            raise RequestError(f"The request cannot be written as JSON: {error}.") from error
        return self._decoded(await self.content(path, timeout, body=body))

    async def send(
        self, path: str, body: bytes, timeout: float | None, headers: Mapping[str, str]
    ) -> Any:
        """`request` for a body that is no JSON of this library's making, with headers of its own."""
        return self._decoded(await self.content(path, timeout, headers=headers, body=body))

    def key_header(self, name: str) -> dict[str, str]:
        """The key as a header of this name; empty without a key."""
        key = self._resolved_key()
        return {} if key is None else {name: key}

    async def content(
        self,
        path: str,
        timeout: float | None,
        most: int | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> bytes:
        """What an answer with status 200 holds, of at most `most` bytes; any other raises
        ProviderError. Nothing of it is a secret.
        """
        endpoint = self._endpoint()
        key = self._resolved_key()
        began = time.perf_counter()
        sent = (
            {**self._headers(endpoint, key), **headers} if headers else self._headers(endpoint, key)
        )
        reply = await transport.exchange(endpoint, path, body, sent, timeout, most)
        taken, method = 1000 * (time.perf_counter() - began), "GET" if body is None else "POST"
        logger.trace(
            "{} {}{} model={} -> {} in {:.0f} ms, {} bytes sent, {} received",
            method, endpoint.url, path, self.model, reply.status, taken, len(body or b""), len(reply.body),
        )  # fmt: skip
        received = reply.body
        for secret in _secrets(*self._hiding_places(key)):
            # some endpoints repeat the key they refuse; in a reply a placeholder such as "secret"
            # is a word like any other
            if reply.status != 200 or len(secret) >= 12 or not secret.isalpha():
                received = received.replace(secret.encode(), MASK.encode())
        if reply.status != 200:
            raise provider_error(endpoint.url, reply._replace(body=received), self.hints)
        return received

    def _decoded(self, content: bytes) -> Any:
        try:
            return decoded(content)
        except ValueError as error:
            url = self._endpoint().url
            raise ProviderError(
                f"{url} answered with a body that is not JSON.", kind="transient"
            ) from error

    def _endpoint(self) -> transport.HttpEndpoint:
        url, named = self.base_url, "base_url"
        if not url:
            named = next((name for name in URL_VARIABLES if os.environ.get(name)), "")
            url = os.environ[named] if named else DEFAULT_URL
        return _endpoint(
            url, named, self.proxy, self.ca_bundle, tuple(sorted(self.default_query.items()))
        )

    def _resolved_key(self) -> str | None:
        given = self.api_key.get_secret_value() if self.api_key is not None else ""
        return given or os.environ.get(self.key_variable) or None

    def _hiding_places(self, key: str | None) -> tuple[Any, ...]:
        return (
            key,
            tuple(self.default_headers.items()),
            tuple(self.default_query.items()),
            self.proxy,
        )

    def _headers(self, endpoint: transport.HttpEndpoint, key: str | None) -> dict[str, str]:
        headers = {"Content-Type": "application/json", **self.default_headers}
        if key is not None and ("\n" in key or "\r" in key):
            raise ConfigError(
                "The API key holds a line break; set OPENAI_API_KEY to the key alone."
            )
        if key is not None:
            azure = ".azure." in endpoint.url or any(
                name == "api-version" for name, _ in endpoint.query
            )
            headers.setdefault(*(("api-key", key) if azure else ("Authorization", f"Bearer {key}")))
        elif endpoint.url == DEFAULT_URL and "Authorization" not in headers:
            raise ConfigError(
                f"No API key for model '{self.model}': set OPENAI_API_KEY, or pass api_key=…; for "
                f"a server of your own "
                "set OPENAI_BASE_URL or pass base_url=… (--base-url)."
            )
        return headers

    @property
    def client(self) -> openai.AsyncOpenAI:
        """An `openai` client with the same settings, for what is not judging (streaming, files);
        yours to close.
        """
        import openai

        endpoint = self._endpoint()
        self._headers(endpoint, self._resolved_key())
        return openai.AsyncOpenAI(
            api_key=self._resolved_key() or "none",
            base_url=endpoint.url,
            default_headers=self.default_headers,
            default_query=self.default_query or None,
            timeout=self.timeout,
            max_retries=0,
        )


@lru_cache(maxsize=256)
def _endpoint(
    url: str,
    named: str,
    proxy: str | None,
    ca_bundle: str | None,
    query: tuple[tuple[str, str], ...],
) -> transport.HttpEndpoint:
    """The checked endpoint: asked for several times per call, worked out once."""
    return transport.HttpEndpoint(transport.check_url(url, named), proxy, ca_bundle, query)


@lru_cache(maxsize=256)
def _route(
    url: str, headers: tuple[tuple[str, str], ...], query: tuple[tuple[str, str], ...]
) -> str:
    shown = [sorted([n.lower(), v] for n, v in headers if not _is_secret(n, v))]
    shown.append(sorted([n, v] for n, v in query if not _is_secret(n, v)))
    return f"{url} {orjson.dumps(shown).decode()}" if any(shown) else url


def _is_secret(name: str, value: str) -> bool:
    return is_credential(name) or value.lower().startswith(
        tuple(f"{scheme} " for scheme in _SCHEMES)
    )


@lru_cache(maxsize=256)
def _secrets(
    key: str | None,
    headers: tuple[tuple[str, str], ...],
    query: tuple[tuple[str, str], ...],
    proxy: str | None,
) -> tuple[str, ...]:
    """What must not be seen in any text from outside: long enough not to be a word by chance."""
    texts = [key or "", urlsplit(proxy or "").password or ""]
    for name, value in (*headers, *query):
        texts += value.split() if _is_secret(name, value) else []
    texts = [text for text in texts if len(text) >= 6 and text.lower() not in _SCHEMES]
    return tuple(dict.fromkeys(form for text in texts for form in (text, quote(text, safe=""))))


@lru_cache(maxsize=256)
def _digest(*texts: str) -> str:
    return (
        hashlib.sha256("\0".join(texts).encode("utf-8", "surrogatepass")).hexdigest()[:12]
        if any(texts)
        else ""
    )
