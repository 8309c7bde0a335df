"""What an endpoint does not take, and how a request is sent instead: fields, whole replies, a
system role, two turns of one speaker.

All of it is found out from the endpoint's refusals, once per endpoint and model; a request keeps
its identity however it is sent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rm_gallery.core.model.transport import Json
from rm_gallery.core.utils.errors import ProviderError

_DROPPABLE = "temperature top_p seed stop logprobs top_logprobs max_tokens n stream_options".split()
_UNSUPPORTED = re.compile(
    "(?i)unsupported|not supported|does not support|unrecognized|not permitted"
)
_ONLY_STREAMS = re.compile(
    r"(?i)\bonly\s+supports?\s+(?:the\s+)?stream|\benable\s+(?:the\s+)?stream"
    r"|\bstream(?:ing)?\b[^.]{0,40}\b(?:must\s+be|is\s+required|should\s+be\s+(?:set|true))"
    r"|\bnon-?stream(?:ing)?\b[^.]{0,40}\b(?:not\s+(?:be\s+)?(?:supported|allowed)|calls?"
    r"|unsupported)|\brequires?\s+(?:\w+\s+)?stream"
)
_ROLES_REFUSED = re.compile(
    r"(?i)\b(?:system|developer)\b[^.]{0,40}\b(?:not\s+(?:be\s+)?(?:supported|enabled|allowed"
    r"|permitted)|unsupported)|\bnot\s+support(?:ed|ing)?\b[^.]{0,40}\bsystem\b"
    r"|\b(?:unsupported|invalid|unknown)\s+(?:value|role)\b[^.]{0,40}\bsystem\b"
    r"|\bonly\b[^.]{0,40}\buser\b[^.]{0,20}\bassistant\b[^.]{0,30}\broles?\b"
    r"|\broles?\s+must\s+alternate|\balternat(?:e|ing)\b[^.]{0,40}\b(?:user|roles?)\b"
    r"|\bconsecutive\b[^.]{0,40}\b(?:messages|turns|roles?)\b"
)
"""A refusal of what the system says, or of two turns of one speaker."""


@dataclass(frozen=True)
class Adaptation:
    """How requests to one model at one endpoint are sent."""

    fields: Mapping[str, str | None] = field(default_factory=dict)
    """Fields that are left out, or sent under another name."""
    stream: bool = False
    """Whether the reply is asked for in pieces."""
    plain_roles: bool = False
    """Whether what the system says stands in the user's turn, and turns of one speaker are one."""

    def of(self, payload: Json) -> Json:
        """The request as it is sent."""
        if self.stream:
            payload = {**payload, "stream": True, "stream_options": {"include_usage": True}}
        if self.plain_roles and "messages" in payload:
            payload = {**payload, "messages": _alternating(payload["messages"])}
        if not self.fields:
            return payload
        named = ((self.fields.get(name, name), value) for name, value in payload.items())
        return {name: value for name, value in named if name is not None}

    def after(self, error: ProviderError, sent: Json) -> tuple[Adaptation, str] | None:
        """The next way to send a request that was refused, and what changes, in words; None where
        the refusal names no change.
        """
        if error.status not in (400, 422):
            return None
        text, turns = str(error), sent.get("messages", ())
        if not self.stream and _ONLY_STREAMS.search(text):
            return replace(self, stream=True), "is asked for streamed replies"
        if not self.plain_roles and _ROLES_REFUSED.search(text) and _alternating(turns) != turns:
            change = "is told in the user's turn what the system says"
            return replace(self, plain_roles=True), change
        words = set(re.findall(r"\w+", text.lower())) if _UNSUPPORTED.search(text) else ()
        for name in _DROPPABLE:
            if name in sent and name in words:
                instead, how = None, "no longer sent"
                if name == "max_tokens" and "max_completion_tokens" in text:
                    instead, how = "max_completion_tokens", "sent as 'max_completion_tokens'"
                fields = {**self.fields, name: instead}
                return replace(self, fields=fields), f"refused '{name}', which is {how}"
        return None


PLAIN = Adaptation()
"""As they are."""


def _alternating(turns: Any) -> list[Json]:
    """The turns with what the system says before the first user's, and turns in a row of one
    speaker as one.
    """
    merged: list[Json] = []
    for turn in map(dict, turns):
        if turn.get("role") in ("system", "developer"):
            turn["role"] = "user"
        last = merged[-1] if merged else {}
        calls = last.get("tool_calls") or turn.get("tool_calls")
        if merged and turn.get("role") == last.get("role") != "tool" and not calls:
            last["content"] = _joined(last.get("content"), turn.get("content"))
        else:
            merged.append(turn)
    return merged


def _joined(first: Any, second: Any) -> Any:
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}\n\n{second}"
    return [
        part
        for each in (first, second)
        for part in (each if isinstance(each, list) else [{"type": "text", "text": each or ""}])
    ]
