"""Chat messages as every part of the library passes them around."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from rm_gallery.core.model.budget import Usage
from rm_gallery.core.model.transport import Json
from rm_gallery.core.text.canonical import OPENED, opened
from rm_gallery.core.utils.prompt import format_messages as format_messages


class MessageRole(str, Enum):
    """Who speaks."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"
    FUNCTION = "function"
    DEVELOPER = "developer"

    # Python 3.10 and 3.11 format a mixed-in enum differently; a prompt must not depend on the
    # interpreter.
    def __str__(self) -> str:
        return self.value

    def __format__(self, spec: str) -> str:
        return format(self.value, spec)


RoleName = Literal["system", "user", "assistant", "tool", "function", "developer"]

if TYPE_CHECKING:

    class _Role:
        """A role as type checkers see it: given as a role or its name, kept as a role."""

        def __get__(self, message: object, owner: object = None) -> MessageRole: ...
        def __set__(self, message: object, role: MessageRole | RoleName) -> None: ...


@cache
def _field_names(cls: type[BaseModel]) -> frozenset[str]:
    return frozenset(cls.model_fields)


def part_text(part: Mapping[str, Any]) -> str | None:
    """What a content part says, in the layout of chat or of responses; None for pictures, thoughts
    and other parts.
    """
    kind = part.get("type")
    text = part.get("refusal" if kind == "refusal" else "text") if kind in TEXT_PARTS else None
    return text if isinstance(text, str) else None


def picture_of(part: Mapping[str, Any]) -> str | None:
    """The URL (http, https or data) of a content part that is a picture; None where it holds none
    that can be sent.
    """
    if part.get("type") not in ("image_url", "input_image", "image"):
        return None
    url = next((part[key] for key in ("image_url", "image", "url") if part.get(key)), None)
    if isinstance(url, Mapping):
        url = url.get("url")
    return (
        url
        if isinstance(url, str)
        and url[:11].lower().startswith(("http://", "https://", "data:image/"))
        else None
    )


TEXT_PARTS = ("text", "input_text", "output_text", "refusal", None)
THOUGHT_PARTS = ("thinking", "redacted_thinking", "reasoning")


def text_of(content: Any) -> str:
    """The text of a message's content: the content itself, or its text parts joined by newlines;
    empty for None.
    """
    if isinstance(content, str):
        return content
    if not isinstance(content, (list, tuple)):
        return ""
    parts = (
        part if isinstance(part, str | Mapping) else getattr(part, "__dict__", {})
        for part in content
    )
    texts = (part if isinstance(part, str) else part_text(part) for part in parts)
    return "\n".join(text for text in texts if text is not None)


class ToolFunction(BaseModel):
    """Name and raw JSON arguments of a called function."""

    name: str = ""
    arguments: str | Json = ""


class ToolCall(BaseModel):
    """One tool call of an assistant message, in the OpenAI layout."""

    model_config = ConfigDict(extra="allow")

    id: str | None = None
    type: str = "function"
    function: ToolFunction = Field(default_factory=ToolFunction)


class ChatMessage(BaseModel):
    """One turn: text or OpenAI content parts, tool calls, and the model's reasoning where it was
    given.

    Keys that OpenAI-style records carry beyond these fields are kept in `additional_kwargs`, so
    nothing is lost.
    """

    if TYPE_CHECKING:
        role: _Role = _Role()
    else:
        role: MessageRole = MessageRole.USER
    name: str | None = None
    content: str | list[Json] = ""
    """The text, or a list of OpenAI content parts. A null content (tool calls only) becomes the
    empty string.
    """
    reasoning_content: str = ""
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    additional_kwargs: Json = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _keep_unknown_keys(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        names = _field_names(cls)
        # speed: most messages have the fields of one, and text
        if (
            names.issuperset(data)
            and data.get("content", "") is not None
            and data.get("reasoning_content", "") is not None
        ):
            return data
        unknown = [key for key in data if key not in names]
        empty = [name for name in ("content", "reasoning_content") if data.get(name, "") is None]
        data = {**data, **dict.fromkeys(empty, "")}
        if unknown:
            extra = {key: data.pop(key) for key in unknown}
            data["additional_kwargs"] = {**(data.get("additional_kwargs") or {}), **extra}
        return data

    @property
    def text(self) -> str:
        """The message's text: the content itself, or its text parts joined by newlines."""
        content = self.content
        return content if isinstance(content, str) else text_of(content)

    @property
    def read_text(self) -> str:
        """The text as readers are given it: with the opening tag of a thought that the prompt opened,
        where the message's key `thought_opened` says so.
        """
        begun = not self.reasoning_content and self.additional_kwargs.get(OPENED) is True
        return opened(self.text) if begun else self.text

    def to_openai(self) -> Json:
        """The message as an OpenAI request takes it; reasoning and extra keys stay here."""
        out: Json = {"role": self.role.value, "content": self.content}
        if self.name:
            out["name"] = self.name
        if self.tool_calls:
            out["tool_calls"] = [call.model_dump(exclude_none=True) for call in self.tool_calls]
        if self.tool_call_id:
            out["tool_call_id"] = self.tool_call_id
        return out


_CUT = frozenset(
    "length max_tokens max_output_tokens max_completion_tokens max_new_tokens model_length "
    "model_context_window_exceeded token_limit incomplete".split()
)
_WITHHELD = frozenset(
    "content_filter content_filtered content_management_policy content_blocked safety image_safety "
    "recitation blocklist prohibited_content spii sensitive guardrail_intervened refusal".split()
)


Ended = Literal["done", "cut", "withheld"]


def how_it_ended(finish_reason: object) -> Ended:
    """What a provider's word says of a text: it ended by itself, at a token limit, or in a content
    filter.
    """
    if not isinstance(finish_reason, str) or finish_reason in ("stop", "tool_calls"):
        return "done"
    reason = finish_reason.strip().lower().rpartition(".")[2].replace(" ", "_").replace("-", "_")
    return "cut" if reason in _CUT else "withheld" if reason in _WITHHELD else "done"


@dataclass(frozen=True)
class Decision:
    """What a model makes of one question: how probable each of its answers is.

    Attributes:
        probabilities: by answer, in the order that was asked; they sum to 1.
        outside: the share of what the model would have said that is none of the answers, 0 to 1.
    """

    probabilities: Mapping[str, float]
    outside: float = 0.0

    @property
    def top(self) -> str:
        """The most probable answer; of equals the first."""
        return max(self.probabilities, key=self.probabilities.__getitem__)

    @property
    def confidence(self) -> float:
        """How sure the top answer is among K: (K·p - 1) / (K - 1), 0 where all are alike and 1
        where no other is possible.
        """
        n = len(self.probabilities)
        return (
            1.0 if n < 2 else min(1.0, max(0.0, (n * self.probabilities[self.top] - 1) / (n - 1)))
        )

    def expected(self, values: Mapping[str, float]) -> float:
        """The mean of the answers' values by their probabilities."""
        return sum(share * values[answer] for answer, share in self.probabilities.items())

    def as_record(self) -> Json:
        """As records keep it."""
        shown = {answer: round(share, 6) for answer, share in self.probabilities.items()}
        return {
            "probabilities": shown,
            "confidence": round(self.confidence, 6),
            "outside": round(self.outside, 6),
        }


class ChatResponse(BaseModel):
    """A checked reply of a model: there is a choice with a message.

    `finish_reason` is the provider's word; `cached` tells that no call was paid for.
    """

    message: ChatMessage
    finish_reason: str | None = None
    usage: Usage = Field(default_factory=Usage)
    model: str = ""
    choices: list[str] = Field(default_factory=list)
    """All texts when more than one was asked for (n > 1), the first included."""
    logprobs: Any = None
    decisions: dict[str, Decision] | None = None
    """By question, where probabilities were asked for instead of a text; a question that was
    refused is absent.
    """
    cached: bool = False

    @property
    def ended(self) -> Ended:
        """How the reply ended, in whatever words a provider says it."""
        return how_it_ended(self.finish_reason)

    @property
    def text(self) -> str:
        """Text of the first choice, reasoning left out."""
        return self.message.text
