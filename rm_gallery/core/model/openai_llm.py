"""Chat models behind an endpoint of the OpenAI protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rm_gallery.core.model.base import BaseLLM, Messages, provider
from rm_gallery.core.model.openai import OpenaiEndpoint, OpenaiSettings, given
from rm_gallery.core.model.transport import Json

if TYPE_CHECKING:
    from typing_extensions import Unpack


class ChatSettings(OpenaiSettings, total=False):
    """Settings of a chat model."""

    temperature: float | None
    top_p: float | None
    max_tokens: int | None
    stop: list[str] | None
    seed: int | None
    n: int
    enable_thinking: bool


@provider("openai")
class OpenaiLLM(BaseLLM, OpenaiEndpoint):
    """A chat model behind an OpenAI-protocol endpoint; without `model` it is the one OPENAI_MODEL
    names.
    """

    def __init__(self, model: str | None = None, **settings: Unpack[ChatSettings]) -> None:
        """A wrong or unknown setting is a ConfigError that names it and the nearest known one."""
        super().__init__(**given(type(self), model, dict(settings)))

    def payload(self, messages: Messages, **overrides: Any) -> Json:
        """The request body; Qwen3's thinking switch is sent where the model name says so."""
        body = super().payload(messages, **overrides)
        if "qwen3" in self.model.lower():
            body.setdefault("enable_thinking", self.enable_thinking)
        return body


OpenAIChatModel = OpenaiLLM
"""The same model under the name the grader documents use."""
