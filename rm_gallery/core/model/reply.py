"""What an endpoint sent is checked and cleaned, not trusted: replies, token counts, error texts."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from typing import Any

import orjson
from pydantic import ValidationError

from rm_gallery.core.engine.calls.prices import Usage
from rm_gallery.core.engine.calls.retry import parse_retry_after
from rm_gallery.core.model.message import ChatMessage, ChatResponse, ChatUsage, MessageRole
from rm_gallery.core.model.transport import Reply
from rm_gallery.core.utils.errors import ProviderError, ProviderErrorKind
from rm_gallery.core.utils.models import build

MAX_TOKENS = 100_000_000
"""A token count above this is no count."""
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b.?")
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]+")


def to_response(raw: dict[str, Any], endpoint: str, cached: bool = False) -> ChatResponse:
    """The reply in a raw OpenAI-style answer; `cached` marks one that was not paid for now.

    Raises:
        ProviderError: transient, when there is no choice, or a choice without a message.
    """
    choices = raw.get("choices")
    if not isinstance(choices, list) or not choices:
        what = "an error object" if raw.get("error") else "no choices"
        raise ProviderError(f"{endpoint} answered 200 with {what} in the body.", kind="transient")
    messages = [choice.get("message") if isinstance(choice, dict) else None for choice in choices]
    if not isinstance(messages[0], dict):
        raise ProviderError(f"{endpoint} answered with a choice that holds no message.", kind="transient")
    first: dict[str, Any] = messages[0]
    content, refusal = first.get("content"), first.get("refusal")
    finish_reason = choices[0].get("finish_reason")
    tool_calls = first.get("tool_calls")
    reasoning = first.get("reasoning_content") or first.get("reasoning")
    message: dict[str, Any] = {
        "role": MessageRole.ASSISTANT,
        "name": None,
        "content": content if isinstance(content, str) else "",
        "reasoning_content": reasoning if isinstance(reasoning, str) else "",
        "tool_calls": None,
        "tool_call_id": None,
        "additional_kwargs": {"refusal": str(refusal)} if refusal else {},
    }
    # the usual reply is checked by hand above: validating three models again would cost more than reading it
    plain = not tool_calls and not isinstance(content, list)
    extra: dict[str, Any] = {} if plain else {"tool_calls": tool_calls or None, "content": content or ""}
    try:
        built = build(ChatMessage, message) if plain else ChatMessage(**{**message, **extra})
    except ValidationError as error:
        raise ProviderError(
            f"{endpoint} answered 200 with a message of an unknown layout ({_where(error)}).", kind="transient"
        ) from None
    fields = {
        "message": built,
        "finish_reason": finish_reason if isinstance(finish_reason, str) else None,
        "usage": _usage(raw.get("usage")),
        "model": model if isinstance(model := raw.get("model"), str) else "",
        "choices": [_text(m) for m in messages] if len(messages) > 1 else [],
        "logprobs": choices[0].get("logprobs"),
        "cached": cached,
    }
    return build(ChatResponse, fields)


def is_complete(response: ChatResponse) -> bool:
    """Whether the reply ended by itself and has text: only such replies are worth keeping in the cache."""
    return response.ended == "done" and bool(response.text.strip())


def booked(response: ChatResponse, expected_input: int) -> Usage:
    """The reply's token counts as the engine books them: one call. What the endpoint did not say is estimated."""
    usage = response.usage
    return Usage(
        input_tokens=usage.input_tokens or expected_input,
        output_tokens=usage.output_tokens or sum(map(len, response.choices or [response.text])) // 4 + 1,
        cached_tokens=usage.cached_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        calls=1,
    )


def _text(message: Any) -> str:
    content = message.get("content") if isinstance(message, dict) else None
    return content if isinstance(content, str) else ""


def _usage(raw: Any) -> ChatUsage:
    if not isinstance(raw, dict):
        return ChatUsage()
    prompt_details = raw.get("prompt_tokens_details") or {}
    output_details = raw.get("completion_tokens_details") or {}
    fields = {
        "input_tokens": token_count(raw.get("prompt_tokens")),
        "output_tokens": token_count(raw.get("completion_tokens")),
        "cached_tokens": token_count(prompt_details.get("cached_tokens")) if isinstance(prompt_details, dict) else 0,
        "reasoning_tokens": token_count(output_details.get("reasoning_tokens")) if isinstance(output_details, dict) else 0,
    }
    return build(ChatUsage, fields)


def token_count(value: Any) -> int:
    """A token count; 0 for what is none (missing, a text, negative, beyond all measure, not finite)."""
    usable = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MAX_TOKENS
    return int(value) if usable else 0


def _where(error: ValidationError) -> str:
    first = error.errors(include_input=False)[0]
    return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"


def decoded(body: bytes) -> Any:
    """The JSON value of a body, lone surrogates and broken UTF-8 replaced; ValueError when it is no JSON."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        try:
            return _whole(json.loads(body.decode("utf-8", "replace")))
        except RecursionError:
            raise ValueError("nested too deeply") from None


def _whole(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_whole(key): _whole(item) for key, item in value.items()}
    return [_whole(item) for item in value] if isinstance(value, list) else value


def one_line(text: str, limit: int = 300) -> str:
    """A stranger's text for messages: no escape sequences, control characters or line breaks, at most `limit` long."""
    text = " ".join(_CONTROLS.sub(" ", _ESCAPES.sub("", text[: 20 * limit])).split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


TRANSIENT_STATUS = frozenset({408, 409, 425, 500, 502, 503, 504, 520, 522, 524, 529})
HINTS = {
    401: "check the API key",
    403: "the key has no access to this model",
    404: "check the model name and the base URL (it usually ends in /v1)",
    400: "the endpoint rejects the request",
    422: "the endpoint rejects the request",
}


def provider_error(url: str, reply: Reply, hints: Mapping[int, str] = HINTS) -> ProviderError:
    """The error for an answer whose status is not 200.

    429 is a rate limit, unless it says the quota is used up (fatal: waiting does not help), or that this request alone is
    above the limit of a minute (OpenAI's words; fatal for it and for no other call, so its status is 413); 5xx and the like are
    transient; every other status is fatal.
    """
    detail, code = _detail(reply.body)
    kind: ProviderErrorKind = "fatal"
    status = 413 if reply.status == 429 and detail.casefold().startswith("request too large") else reply.status
    if status == 429:
        kind = "fatal" if code == "insufficient_quota" else "rate_limit"
    elif reply.status in TRANSIENT_STATUS or reply.status >= 500:
        kind = "transient"
    hint = hints.get(reply.status, "")
    message = f"{url} answered {reply.status}" + (f": {detail}" if detail else "") + (f" ({hint})" if hint else "")
    error = ProviderError(message, kind=kind, status=status, retry_after=parse_retry_after(reply.headers, time.time()))
    error.filtered = code in ("content_filter", "content_policy_violation", "data_inspection_failed")
    return error


def _detail(body: bytes) -> tuple[str, str]:
    try:
        content = decoded(body)
    except ValueError:
        return one_line(body[:4000].decode("utf-8", "replace"), 200), ""
    error = content.get("error", content) if isinstance(content, dict) else content
    if not isinstance(error, dict):
        return one_line(str(error)[:4000]), ""
    code = error.get("code") or error.get("type")
    return one_line(str(error.get("message", error))[:4000]), one_line(code, 60) if isinstance(code, str) else ""
