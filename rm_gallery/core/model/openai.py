"""The OpenAI protocol (OpenAI, Azure, vLLM, SGLang, DashScope, …): what an answer says (a reply,
whole or in pieces, or an error), and an endpoint with the way to it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import deepcopy
from functools import lru_cache
from itertools import filterfalse
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypedDict
from urllib.parse import quote, urlsplit

import orjson
from pydantic import Field, SecretStr, ValidationError, field_serializer, field_validator

from rm_gallery.core.model import transport
from rm_gallery.core.model.budget import Usage
from rm_gallery.core.model.message import ChatMessage, ChatResponse, MessageRole
from rm_gallery.core.model.model_call import BaseModelCall
from rm_gallery.core.model.transport import (
    Headers,
    HttpAnswer,
    Json,
    Seconds,
    decoded,
    parse_retry_after,
)
from rm_gallery.core.utils.errors import ConfigError, ProviderError, ProviderErrorKind, RequestError
from rm_gallery.core.utils.log import logger
from rm_gallery.core.utils.models import build, copy_with
from rm_gallery.core.utils.shown import MASK, is_credential, one_line

if TYPE_CHECKING:
    import openai

MAX_TOKENS = 100_000_000
"""A token count above this is no count."""
ODD_LAYOUT = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError)
"""What reading an answer of another layout than the expected one raises."""
NUMBERS = frozenset({int, float})
"""Types of a JSON number; a truth value is none."""

# -- whole -----------------------------------------------------------------------------------------


def to_response(raw: Json, name: Callable[[], str], cached: bool = False) -> ChatResponse:
    """The reply in a raw OpenAI-style answer of the endpoint of that name; `cached` marks one that was
    not paid for now.

    Raises ProviderError: transient, when there is no choice, or a choice without a message; for an
    error in the body, by its code.
    """
    choices = raw.get("choices")
    choices = choices if isinstance(choices, list) else []
    first = object_of(choices[0]) if choices else {}
    # routers and proxies report what failed behind them inside a 200, some beside a text that looks
    # like a reply
    if (error := raw.get("error") or first.get("error")) or first.get("finish_reason") == "error":
        raise _error_inside(name(), error)
    answer = first.get("message")
    if not isinstance(answer, dict):
        what = (
            "with a choice that holds no message" if choices else "200 with no choices in the body"
        )
        raise unusable(name(), f"answered {what}")
    content, refusal, calls = (answer.get(key) for key in ("content", "refusal", "tool_calls"))
    # the usual reply is checked by hand: validating three models would cost more than reading it
    message = copy_with(
        _SAID,
        content=_text(content),
        reasoning_content=_text(answer.get("reasoning_content") or answer.get("reasoning")),
        additional_kwargs={"refusal": str(refusal)} if refusal else {},
    )
    if calls or isinstance(content, list):
        message = _validated(message, name(), content=content or "", tool_calls=calls or None)
    ended, several = first.get("finish_reason"), choices if len(choices) > 1 else ()
    return build(
        ChatResponse,
        {
            "message": message,
            "finish_reason": ended if isinstance(ended, str) else None,
            "usage": usage_of(raw.get("usage")),
            "model": _text(raw.get("model")),
            "choices": [_text(value_at(each, "message content")) for each in several],
            "logprobs": first.get("logprobs"),
            "decisions": None,
            "cached": cached,
        },
    )


_SAID = ChatMessage(
    role=MessageRole.ASSISTANT, content="", reasoning_content="", additional_kwargs={}
)


def _validated(message: ChatMessage, endpoint: str, **more: Any) -> ChatMessage:
    """The message with content parts or calls of tools, which may have any layout."""
    try:
        return ChatMessage(**{**vars(message), **more})
    except ValidationError as invalid:
        fault = invalid.errors(include_input=False)[0]
        where = ".".join(map(str, fault["loc"]))
        what = f"answered 200 with a message of an unknown layout ({where}: {fault['msg']})"
        raise unusable(endpoint, what) from None


def unusable(endpoint: str, what: str) -> ProviderError:
    """The error for an answer that cannot be read; the next one may be better."""
    return ProviderError(f"{endpoint} {what}.", kind="transient")


def object_of(value: Any) -> Json:
    """A JSON object as it is; an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def value_at(value: Any, paths: str, otherwise: Any = None) -> Any:
    """What stands in a JSON value at the first of several paths, parted by |, that is there.

    A path names keys and places of lists; * is the only entry of a list.
    """
    for path in paths.split("|"):
        with suppress(LookupError, TypeError, ValueError):
            inner = value
            for key in path.split():
                if key == "*":
                    [inner] = inner
                else:
                    inner = inner[int(key) if key.isdigit() else key]
            return inner
    return otherwise


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def usage_of(counts: Any, read: str = "prompt_tokens", written: str = "completion_tokens") -> Usage:
    """The token counts of an answer under the names that its protocol has for them."""
    counts = object_of(counts)  # by hand, since every reply comes through here
    of_read, of_written = counts.get(f"{read}_details"), counts.get(f"{written}_details")
    return Usage(
        token_count(counts.get(read)),
        token_count(counts.get(written)),
        token_count(object_of(of_read).get("cached_tokens")),
        token_count(object_of(of_written).get("reasoning_tokens")),
    )


def token_count(value: Any) -> int:
    """A token count; 0 for what is none (missing, a text, negative, beyond all measure, not
    finite).
    """
    return int(value) if type(value) in NUMBERS and 0 <= value <= MAX_TOKENS else 0


# -- in pieces -------------------------------------------------------------------------------------


def whole_reply(body: bytes, endpoint: str) -> Json:
    """The reply that a stream of server-sent events adds up to, as an endpoint gives one that does
    not stream.

    Raises ProviderError: transient, where the stream breaks off before the reply has ended, or
    holds what is no chunk.
    """
    raw: Json = {"choices": {}}
    for _, data in sent_events(body):
        if data.strip() == b"[DONE]":
            break
        try:
            _add(raw, orjson.loads(data))
        except tuple(_BROKEN) as error:
            fault = f"streamed a chunk that is {_BROKEN[type(error)]}"
            raise unusable(endpoint, fault) from None
    else:
        ended = [each.get("finish_reason") for each in raw["choices"].values()]
        if "error" not in raw and not (ended and all(ended)):
            raise unusable(endpoint, "broke its stream off before the reply had ended")
    raw["choices"] = _in_order(raw["choices"])
    for choice in raw["choices"]:
        pieces = object_of(choice.pop("delta", None) or choice.get("message"))
        choice["message"] = message = {"role": "assistant", "content": "", **pieces}
        if calls := _in_order(message.pop("tool_calls", {})):
            message["tool_calls"] = calls
    return raw


_BROKEN: dict[type[Exception], str] = {
    orjson.JSONDecodeError: "not JSON",
    AttributeError: "no object",
    RecursionError: "nested too deeply",
}
"""What a chunk is that cannot be added to the reply, by what that raises."""


def sent_events(body: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Name and data of each server-sent event that has data; comments and other fields are left
    out, and lines end in any way the standard allows.
    """
    text = re.sub(rb"\r\n?", b"\n", body.removeprefix(b"\xef\xbb\xbf"))
    for event in text.split(b"\n\n"):
        if lines := re.findall(rb"(?m)^data: ?(.*)", event):
            # speed: the thousands of chunks of a chat have no name
            names = re.findall(rb"(?m)^event: ?(.*)", event) if b"event:" in event else []
            yield b"".join(names[-1:]), b"\n".join(lines)


_GROWING = frozenset("content reasoning_content reasoning refusal name arguments".split())
_NUMBERED: dict[str, Json] = {
    "choices": {},
    "tool_calls": {"id": "", "type": "function", "function": {"name": "", "arguments": ""}},
}
"""What comes in numbered parts, and what such a part is before its first piece."""


def _add(whole: Json, piece: Json) -> Json:
    """The whole with a further piece of it: texts and lists grow, numbered parts each for itself."""
    for name, value in piece.items():
        if name in _NUMBERED:
            parts = whole.setdefault(name, {})
            for part in map(object_of, value if isinstance(value, list) else ()):
                number = part.pop("index", 0)
                number = number if isinstance(number, int) else 0
                parts[number] = _add(parts.get(number) or deepcopy(_NUMBERED[name]), part)
            continue
        known = whole.get(name)
        known = known if isinstance(known, type(value)) else type(value)()
        if isinstance(value, dict):
            whole[name] = _add(known, value)
        elif isinstance(value, list) or (name in _GROWING and isinstance(value, str)):
            known += value  # in place: a stream of log probabilities has thousands of pieces
            whole[name] = known
        elif value not in (None, ""):
            whole[name] = value
    return whole


def _in_order(parts: dict[int, Json]) -> list[Json]:
    return [parts[number] for number in sorted(parts)]


# -- errors ----------------------------------------------------------------------------------------

HINTS = {
    401: "check the API key",
    403: "the key has no access to this model",
    404: "check the model name and the base URL (it usually ends in /v1)",
    400: "the endpoint rejects the request",
    422: "the endpoint rejects the request",
}
_FILTERED = ("content_filter", "content_policy_violation", "data_inspection_failed")
_TOO_LONG = (
    "context_length_exceeded",
    "string_above_max_length",
    "request_too_large",
    "context_window_exceeded",
)
_SAID_TOO_LONG = re.compile(
    "(?i)maximum context length|context length exceeded|context window|(?:prompt|input) is too long"
)
"""Codes and words of OpenAI, Anthropic, vLLM, SGLang, Bedrock and others for a request that holds
too much.
"""
_ROUTED = re.compile("(?i)support|parameter")
"""Words of a 404 by which a router says that it knows no model that takes a part of the request,
such as a schema or tools.
"""


def provider_error(url: str, reply: HttpAnswer, hints: Mapping[int, str] = HINTS) -> ProviderError:
    """The error for an answer whose status is not 200.

    429 is a rate limit, unless it says the quota is used up (fatal: waiting does not help), or that
    this request alone is above the limit of a minute (OpenAI's words; fatal for it and for no other
    call, so its status is 413); 5xx and the like are transient; every other status is fatal.
    """
    detail, code = _detail(reply.body)
    status = reply.status
    kind: ProviderErrorKind = "fatal"
    if status == 429 and detail.casefold().startswith("request too large"):
        status = 413
    elif status == 429 and code != "insufficient_quota":
        kind = "rate_limit"
    elif status in (408, 409, 425) or status >= 500:
        kind = "transient"
    hint = f" ({hints[reply.status]})" if reply.status in hints else ""
    error = ProviderError(
        f"{url} answered {reply.status}{detail and f': {detail}'}{hint}",
        kind=kind,
        status=status,
        retry_after=parse_retry_after(reply.headers, time.time()),
    )
    error.filtered = code in _FILTERED
    if status == 413 or code in _TOO_LONG or _SAID_TOO_LONG.search(detail):
        # what is too long is this request and no other: control answers tell whether the answer
        # made it so
        error.cause = "judge"
    error.routed = status == 404 and _ROUTED.search(detail) is not None
    return error


def _error_inside(endpoint: str, error: Any) -> ProviderError:
    """The error that a body tells with status 200."""
    code, body = value_at(error, "code"), orjson.dumps({"error": error}, default=str)
    if isinstance(code, int) and 400 <= code < 600:
        return provider_error(
            f"{endpoint} answered 200 for a server behind it that", HttpAnswer(code, {}, body)
        )
    detail = _detail(body)[0] if error else ""
    return unusable(endpoint, f"answered 200 with an error in the body{detail and f': {detail}'}")


def _detail(body: bytes) -> tuple[str, str]:
    """What an error's body says, and its code."""
    try:
        content = decoded(body)
    except ValueError:
        return one_line(body.decode("utf-8", "replace"), 200), ""
    error = value_at(content, "error", content)
    code = value_at(error, "code") or value_at(error, "type")
    return one_line(str(value_at(error, "message", error)), 300), one_line(_text(code), 60)


# -- an endpoint -----------------------------------------------------------------------------------

DEFAULT_URL = "https://api.openai.com/v1"
URL_VARIABLES = ("OPENAI_BASE_URL", "BASE_URL")
MODEL_VARIABLE = "OPENAI_MODEL"
_SCHEMES = ("bearer ", "basic ", "token ", "apikey ")
Fields = tuple[tuple[str, str], ...]


_NO_KEY = (
    "No API key for model '{model}': set OPENAI_API_KEY, or pass api_key=…; for a server of your own "
    "set OPENAI_BASE_URL or pass base_url=… (--base-url)."
)
_BROKEN_KEY = "The API key holds a line break; set OPENAI_API_KEY to the key alone."


class Access(NamedTuple):
    """What the settings of an endpoint come to."""

    endpoint: transport.HttpEndpoint
    route: str
    account: str
    headers: Headers
    """Of every request, the key's among them."""
    fault: str
    """Why no call can be made, with the place of the model's name; empty where one can."""
    secrets: tuple[tuple[bytes, bool], ...]
    """Text, and whether it is masked in replies too."""


def merged_headers(*parts: Mapping[str, str]) -> Headers:
    """Headers, of which a later one replaces an earlier one of its name in any case (RFC 9110, 5.1)."""
    named = {name.lower(): (name, value) for part in parts for name, value in part.items()}
    return dict(named.values())


def _forms_of_secret(text: str) -> tuple[str, ...]:
    """A secret as it is, in a URL, and as JSON writes it: some gateways escape each slash."""
    in_json = json.dumps(text)[1:-1]
    return text, quote(text, safe=""), in_json, in_json.replace("/", "\\/")


@lru_cache(maxsize=256)
def _access(
    url: str,
    named: str,
    key: str | None,
    headers: Fields,
    query: Fields,
    proxy: str | None,
    ca_bundle: str | None,
) -> Access:
    """Asked for several times per call, worked out once."""
    url = transport.check_url(url, named)
    endpoint = transport.HttpEndpoint(url, proxy, ca_bundle, tuple(sorted(query)))
    shown = [
        sorted((name.lower(), value) for name, value in filterfalse(_is_secret, headers)),
        sorted(filterfalse(_is_secret, query)),
    ]
    hidden = " ".join(value for _, value in filter(_is_secret, headers + query))
    texts = [key or "", urlsplit(proxy or "").password or "", *hidden.split()]
    key_header, fault = dict[str, str](), ""
    if key:
        of_azure = ".azure." in url or "api-version" in dict(query)
        key_header = {"api-key": key} if of_azure else {"Authorization": f"Bearer {key}"}
        fault = _BROKEN_KEY if "\n" in key or "\r" in key else ""
    elif url == DEFAULT_URL and "authorization" not in {name.lower() for name, _ in headers}:
        fault = _NO_KEY
    # long enough not to be a word by chance
    texts = [text for text in texts if len(text) >= 6 and f"{text.lower()} " not in _SCHEMES]
    secrets = dict.fromkeys(form for text in texts for form in _forms_of_secret(text))
    return Access(
        endpoint,
        f"{url} {orjson.dumps(shown).decode()}" if any(shown) else url,
        _digest(key or "", *secrets),
        merged_headers({"Content-Type": "application/json"}, key_header, dict(headers)),
        fault,
        # in a reply a placeholder such as "secret" is a word like any other
        tuple((text.encode(), len(text) >= 12 or not text.isalpha()) for text in secrets),
    )


def _is_secret(field: tuple[str, str]) -> bool:
    """Whether a header or a query parameter holds a credential."""
    name, value = field
    return is_credential(name) or value.lower().startswith(_SCHEMES)


def _digest(*texts: str) -> str:
    whole = "\0".join(texts)
    return whole and hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:12]


class OpenaiEndpoint(BaseModelCall):
    """An endpoint of the OpenAI protocol and the way to it.

    It can be built without a key or a network. Key and URL are looked up at the first call: the
    arguments, else OPENAI_API_KEY, and OPENAI_BASE_URL or BASE_URL; an empty variable counts as
    unset. Only OpenAI's own URL, the default, needs a key to be called.
    """

    path: ClassVar[str] = "/chat/completions"
    """Where a request is sent, below the base URL."""
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
        self.headers(self._access())

    def endpoint_key(self) -> str:
        """The base URL this model calls."""
        return self._access().endpoint.url

    def route(self) -> str:
        """The URL with headers and query, credentials left out: they may choose the deployment that
        answers.
        """
        return self._access().route

    def account(self) -> str:
        """A hash of the key and of other credentials."""
        return self._access().account

    def describe(self) -> Json:
        """As for every model; headers and query count by their hash."""
        settings, route = super().describe(), self.route()
        return settings if route == settings["endpoint"] else {**settings, "route": _digest(route)}

    async def attempt(self, payload: Json, timeout: Seconds) -> Json:
        """One POST to the path of this kind of model; see `post`."""
        return await self.post(self.path, payload, timeout)

    async def post(self, path: str, payload: Json, timeout: Seconds) -> Json:
        """One POST of a JSON body to a path below the base URL, decoded.

        Anything but a JSON object with status 200 raises ProviderError, whose text holds none of
        this model's secrets.
        """
        content = await self.request(path, payload, timeout)
        if not isinstance(content, dict):
            what = f"answered with {type(content).__name__}, not an object"
            raise unusable(self.endpoint_key(), what)
        return content

    async def request(
        self,
        path: str,
        payload: Json | bytes | None,
        timeout: Seconds,
        headers: Headers | None = None,
    ) -> Any:
        """What a POST of a body with headers of its own, or a GET without one, to a path below the
        base URL gives; any JSON value, or what a stream of chunks that was asked for adds up to.

        Anything but JSON with status 200 raises ProviderError, whose text holds none of this
        model's secrets.
        """
        content = await self.content(path, timeout, headers=headers, payload=payload)
        # a server that does not stream answers as a whole
        if object_of(payload).get("stream") and not content.lstrip().startswith(b"{"):
            return whole_reply(content, self.endpoint_key())
        try:
            return decoded(content)
        except ValueError as error:
            raise unusable(self.endpoint_key(), "answered with a body that is not JSON") from error

    def key_header(self, name: str) -> dict[str, str]:
        """The key as a header of this name; empty without a key."""
        key = self._key()
        return {} if key is None else {name: key}

    async def content(
        self,
        path: str,
        timeout: Seconds,
        most: int | None = None,
        headers: Headers | None = None,
        payload: Json | bytes | None = None,
    ) -> bytes:
        """What an answer with status 200 holds, of at most `most` bytes; any other raises
        ProviderError. Nothing of it is a secret.

        A payload is sent as JSON, bytes as they are; without one it is a GET.
        """
        try:
            body = orjson.dumps(payload) if isinstance(payload, dict) else payload
        except TypeError as error:
            raise RequestError(f"The request cannot be written as JSON: {error}.") from error
        access = self._access()
        endpoint, sent = access.endpoint, self.headers(access)
        sent = merged_headers(sent, headers) if headers else sent
        began = time.perf_counter()
        reply = await transport.exchange(endpoint, path, body, sent, timeout, most)
        taken, method = 1000 * (time.perf_counter() - began), "GET" if body is None else "POST"
        logger.trace(
            "{} {}{} model={} -> {} in {:.0f} ms, {} bytes sent, {} received",
            method, endpoint.url, path, self.model, reply.status, taken, len(body or b""), len(reply.body),
        )  # fmt: skip
        failed, received = reply.status != 200, reply.body
        for secret, everywhere in access.secrets:
            # some endpoints repeat the key they refuse
            if failed or everywhere:
                received = received.replace(secret, MASK.encode())
        if failed:
            raise provider_error(endpoint.url, reply._replace(body=received), self.hints)
        return received

    @contextmanager
    def layout_of(self, what: str, found: Any, kind: ProviderErrorKind = "fatal") -> Iterator[None]:
        """What goes wrong inside is the fault of an answer that is not in the layout of `what`."""
        try:
            yield
        except ODD_LAYOUT as error:
            raise ProviderError(
                f"{self.endpoint_key()} answered 200 in a layout that is not that of {what}: "
                f"{one_line(str(found), 120)}",
                kind=kind,
            ) from error

    def _key(self) -> str | None:
        key = self.api_key.get_secret_value() if self.api_key is not None else ""
        return key or os.environ.get(self.key_variable) or None

    def _access(self) -> Access:
        url, named = self.base_url, "base_url"
        if not url:
            named = next((name for name in URL_VARIABLES if os.environ.get(name)), "")
            url = os.environ.get(named, DEFAULT_URL)
        headers, query = tuple(self.default_headers.items()), tuple(self.default_query.items())
        return _access(url, named, self._key(), headers, query, self.proxy, self.ca_bundle)

    def headers(self, access: Access) -> Headers:
        """Headers of every request; ConfigError where the key is missing, or is none."""
        if access.fault:
            raise ConfigError(access.fault.format(model=self.model))
        return access.headers

    @property
    def client(self) -> openai.AsyncOpenAI:
        """An `openai` client with the same key, URL, headers, query and timeout, for what is not judging
        (streaming, files); yours to close. Of `proxy` and `ca_bundle` it knows nothing.
        """
        import openai

        self.check()
        return openai.AsyncOpenAI(
            api_key=self._key() or "none",
            base_url=self.endpoint_key(),
            default_headers=self.default_headers,
            default_query=self.default_query or None,
            timeout=self.timeout,
            max_retries=0,
        )


class OpenaiSettings(TypedDict, total=False):
    """Where an endpoint is, how it is reached and what bounds the calls; see the fields of
    `OpenaiEndpoint`.
    """

    base_url: str | None
    api_key: str | SecretStr | None
    openai_api_key: str | SecretStr | None
    default_headers: dict[str, str]
    default_query: dict[str, str]
    proxy: str | None
    ca_bundle: str | None
    timeout: float
    max_attempts: int
    max_outage: float
    extra_body: Json
    requests_per_minute: float | None
    tokens_per_minute: float | None
    cache: bool | None


def given(cls: type[BaseModelCall], model: str | None, settings: Json) -> Json:
    """Constructor arguments with the model's name from the environment where none is given;
    ConfigError without any.
    """
    if "openai_api_key" in settings:
        settings["api_key"] = settings.pop("openai_api_key")
    if name := model or os.environ.get(MODEL_VARIABLE):
        return {"model": name, **settings}
    if settings.keys() - cls.model_fields.keys():
        return settings  # the unknown name says more: it may be the model's
    raise ConfigError(
        f"No model: give the name of a model the endpoint knows, {cls.__name__}(model=…) or "
        f"--llm NAME, or set {MODEL_VARIABLE}."
    )
