"""A raw answer is checked, not trusted, before it becomes a ChatResponse."""

from __future__ import annotations

from typing import Any

from rm_gallery.core.engine.calls.usage import Usage
from rm_gallery.core.model.message import ChatMessage, ChatResponse, ChatUsage, MessageRole
from rm_gallery.core.utils.errors import ProviderError
from rm_gallery.core.utils.models import build


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
        "additional_kwargs": {"refusal": refusal} if refusal else {},
    }
    # the usual reply is checked by hand above: validating three models again would cost more than reading it
    plain = not tool_calls and not isinstance(content, list)
    extra: dict[str, Any] = {} if plain else {"tool_calls": tool_calls or None, "content": content or ""}
    fields = {
        "message": build(ChatMessage, message) if plain else ChatMessage(**{**message, **extra}),
        "finish_reason": str(finish_reason) if finish_reason is not None else None,
        "usage": _usage(raw.get("usage")),
        "model": str(raw.get("model") or ""),
        "choices": [_text(m) for m in messages] if len(messages) > 1 else [],
        "logprobs": choices[0].get("logprobs"),
        "cached": cached,
    }
    return build(ChatResponse, fields)


def is_complete(response: ChatResponse) -> bool:
    """Whether the reply ended by itself and has text: only such replies are worth keeping in the cache."""
    return response.ended == "done" and bool(response.text.strip())


def to_usage(response: ChatResponse) -> Usage:
    """The reply's token counts as the engine books them: one call."""
    usage = response.usage
    return Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
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
        "input_tokens": _count(raw.get("prompt_tokens")),
        "output_tokens": _count(raw.get("completion_tokens")),
        "cached_tokens": _count(prompt_details.get("cached_tokens")) if isinstance(prompt_details, dict) else 0,
        "reasoning_tokens": _count(output_details.get("reasoning_tokens")) if isinstance(output_details, dict) else 0,
    }
    return build(ChatUsage, fields)


def _count(value: Any) -> int:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) and value == value else 0
