"""What an endpoint does not take, and how a request is sent instead: fields, whole replies, a
system role, two turns of one speaker.

All of it is found out from the endpoint's refusals, once per endpoint and model; a request keeps
its identity however it is sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from rm_gallery.core.utils.errors import ProviderError

RENAMED = {"max_tokens": "max_completion_tokens"}
DROPPABLE = (
    "temperature",
    "top_p",
    "seed",
    "stop",
    "logprobs",
    "top_logprobs",
    "max_tokens",
    "n",
    "stream_options",
)
_UNSUPPORTED = ("unsupported", "not supported", "does not support", "unrecognized", "not permitted")
_ONLY_STREAMS = re.compile(
    r"(?i)\bonly\s+supports?\s+(?:the\s+)?stream|\benable\s+(?:the\s+)?stream"
    r"|\bstream(?:ing)?\b[^.]{0,40}\b(?:must\s+be|is\s+required|should\s+be\s+(?:set|true))"
    r"|\bnon-?stream(?:ing)?\b[^.]{0,40}\b(?:not\s+(?:be\s+)?(?:supported|allowed)|calls?"
    r"|unsupported)|\brequires?\s+(?:\w+\s+)?stream"
)
_NO_SYSTEM = re.compile(
    r"(?i)\b(?:system|developer)\b[^.]{0,40}\b(?:not\s+(?:be\s+)?(?:supported|enabled|allowed"
    r"|permitted)|unsupported)|\bnot\s+support(?:ed|ing)?\b[^.]{0,40}\bsystem\b"
    r"|\b(?:unsupported|invalid|unknown)\s+(?:value|role)\b[^.]{0,40}\bsystem\b"
    r"|\bonly\b[^.]{0,40}\buser\b[^.]{0,20}\bassistant\b[^.]{0,30}\broles?\b"
)
_ALTERNATE = re.compile(
    r"(?i)\broles?\s+must\s+alternate|\balternat(?:e|ing)\b[^.]{0,40}\b(?:user|roles?)\b"
    r"|\bconsecutive\b[^.]{0,40}\b(?:messages|turns|roles?)\b"
)


@dataclass(frozen=True)
class Adaptation:
    """How requests to one model at one endpoint are sent."""

    fields: Mapping[str, str | None] = field(default_factory=dict)
    """Fields that are left out, or sent under another name."""
    stream: bool = False
    """Whether the reply is asked for in pieces."""
    plain_roles: bool = False
    """Whether what the system says stands in the user's turn, and turns of one speaker are one."""

    def joined(self, other: Adaptation) -> Adaptation:
        """Both together: calls that are out at once may each find something out."""
        return Adaptation(
            {**self.fields, **other.fields},
            self.stream or other.stream,
            self.plain_roles or other.plain_roles,
        )

    def of(self, payload: dict[str, Any]) -> dict[str, Any]:
        """The request as it is sent."""
        if not (self.fields or self.stream or self.plain_roles):
            return payload
        sent = dict(payload)
        if self.stream:
            sent |= {"stream": True, "stream_options": {"include_usage": True}}
        if self.plain_roles and "messages" in sent:
            sent["messages"] = _alternating(sent["messages"])
        named = ((self.fields.get(name, name), value) for name, value in sent.items())
        return {name: value for name, value in named if name is not None}

    def after(self, error: ProviderError, sent: dict[str, Any]) -> tuple[Adaptation, str] | None:
        """The next way to send a request that was refused, and what changes, in words; None where
        the refusal names no change.
        """
        if error.status not in (400, 422):
            return None
        text = str(error)
        if not self.stream and _ONLY_STREAMS.search(text):
            return replace(self, stream=True), "is asked for streamed replies"
        turns = sent.get("messages", ())
        if (
            not self.plain_roles
            and _alternating(turns) != turns
            and (_NO_SYSTEM.search(text) or _ALTERNATE.search(text))
        ):
            return replace(
                self, plain_roles=True
            ), "is told in the user's turn what the system says"
        lower = text.lower()
        if not any(word in lower for word in _UNSUPPORTED):
            return None
        name = next(
            (name for name in DROPPABLE if name in sent and re.search(rf"\b{name}\b", lower)), None
        )
        if name is None:
            return None
        instead = RENAMED.get(name) if RENAMED.get(name, "\0") in text else None
        how = f"sent as '{instead}'" if instead else "no longer sent"
        return replace(
            self, fields={**self.fields, name: instead}
        ), f"refused '{name}', which is {how}"


def _alternating(turns: Any) -> list[dict[str, Any]]:
    """The turns with what the system says before the first user's, and turns in a row of one
    speaker as one.
    """
    merged: list[dict[str, Any]] = []
    for turn in turns:
        turn = (
            {**turn, "role": "user"} if turn.get("role") in ("system", "developer") else dict(turn)
        )
        plain = not (turn.get("tool_calls") or turn.get("role") == "tool")
        if (
            merged
            and plain
            and merged[-1].get("role") == turn.get("role")
            and not merged[-1].get("tool_calls")
        ):
            merged[-1]["content"] = _joined(merged[-1].get("content"), turn.get("content"))
        else:
            merged.append(turn)
    return merged


def _joined(first: Any, second: Any) -> Any:
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}\n\n{second}"
    parts = [
        part if isinstance(part, list) else [{"type": "text", "text": part or ""}]
        for part in (first, second)
    ]
    return [*parts[0], *parts[1]]


def whole_reply(body: bytes, endpoint: str) -> dict[str, Any]:
    """The reply that a stream of server-sent events adds up to, as an endpoint gives one that does
    not stream.

    Raises ProviderError: transient, where the stream breaks off before the reply has ended, or
    holds what is no chunk.
    """
    raw: dict[str, Any] = {}
    choices: dict[int, dict[str, Any]] = {}
    ended = False
    for data in _events(body):
        if data == b"[DONE]":
            ended = True
            break
        try:
            chunk = orjson.loads(data)
        except orjson.JSONDecodeError as error:
            raise ProviderError(
                f"{endpoint} streamed a chunk that is not JSON.", kind="transient"
            ) from error
        if not isinstance(chunk, dict):
            raise ProviderError(f"{endpoint} streamed a chunk that is no object.", kind="transient")
        raw |= {
            key: value for key, value in chunk.items() if key != "choices" and value is not None
        }
        for piece in chunk.get("choices") or ():
            if isinstance(piece, dict):
                _add_choice_delta(
                    choices.setdefault(
                        _index(piece), {"message": {"role": "assistant", "content": ""}}
                    ),
                    piece,
                )
    if "error" not in raw:
        ended = ended or (
            bool(choices) and all(choice.get("finish_reason") for choice in choices.values())
        )
        if not ended:
            raise ProviderError(
                f"{endpoint} broke its stream off before the reply had ended.", kind="transient"
            )
    raw["choices"] = [_finished(choices[index], index) for index in sorted(choices)]
    return raw


def _events(body: bytes) -> Iterator[bytes]:
    """The data of each event; comments and other fields are left out, and lines end in any way the
    standard allows.
    """
    lines: list[bytes] = []
    for line in [
        *body.removeprefix(b"\xef\xbb\xbf")
        .replace(b"\r\n", b"\n")
        .replace(b"\r", b"\n")
        .split(b"\n"),
        b"",
    ]:
        if line.startswith(b"data:"):
            lines.append(line[5:].removeprefix(b" "))
        elif not line and lines:
            yield b"\n".join(lines).strip()
            lines = []


def _index(piece: dict[str, Any]) -> int:
    index = piece.get("index")
    return index if isinstance(index, int) else 0


_TEXTS = ("content", "reasoning_content", "reasoning", "refusal")


def _add_choice_delta(choice: dict[str, Any], piece: dict[str, Any]) -> None:
    delta = piece.get("delta") or piece.get("message") or {}
    message = choice["message"]
    for name in _TEXTS:
        if isinstance(text := delta.get(name), str):
            message.setdefault(name, "")
            message[name] = (message[name] or "") + text
    for call in delta.get("tool_calls") or ():
        calls = choice.setdefault("calls", {})
        one = calls.setdefault(
            _index(call), {"id": "", "type": "function", "function": {"name": "", "arguments": ""}}
        )
        one["id"] = call.get("id") or one["id"]
        function = call.get("function") or {}
        for name in ("name", "arguments"):
            one["function"][name] += function.get(name) or ""
    weights = piece.get("logprobs")
    if isinstance(weights, dict) and isinstance(weights.get("content"), list):
        choice.setdefault("logprobs", {"content": []})["content"] += weights["content"]
    if piece.get("finish_reason"):
        choice["finish_reason"] = piece["finish_reason"]
    if piece.get("error"):
        choice["error"] = piece["error"]


def _finished(choice: dict[str, Any], index: int) -> dict[str, Any]:
    calls = choice.pop("calls", {})
    if calls:
        choice["message"]["tool_calls"] = [calls[number] for number in sorted(calls)]
    return {"index": index, "finish_reason": None, **choice}
