"""Models behind any endpoint that speaks the OpenAI protocol (OpenAI, Azure, vLLM, SGLang,
DashScope, …).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, TypedDict

import orjson
from pydantic import SecretStr

from rm_gallery.core.model.adapt import whole_reply
from rm_gallery.core.model.base import BaseLLM, Messages, provider
from rm_gallery.core.model.model_call import BaseModelCall
from rm_gallery.core.model.openai_endpoint import OpenaiEndpoint
from rm_gallery.core.utils.errors import ConfigError

if TYPE_CHECKING:
    from typing_extensions import Unpack

DEFAULT_URL = "https://api.openai.com/v1"
URL_VARIABLES = ("OPENAI_BASE_URL", "BASE_URL")
MODEL_VARIABLE = "OPENAI_MODEL"
_SCHEMES = ("bearer", "basic", "token", "apikey")


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
    extra_body: dict[str, Any]
    requests_per_minute: float | None
    tokens_per_minute: float | None
    cache: bool | None


class ChatSettings(OpenaiSettings, total=False):
    """Settings of a chat model."""

    temperature: float | None
    top_p: float | None
    max_tokens: int | None
    stop: list[str] | None
    seed: int | None
    n: int
    enable_thinking: bool


def given(cls: type[BaseModelCall], model: str | None, settings: dict[str, Any]) -> dict[str, Any]:
    """Constructor arguments with the model's name from the environment where none is given;
    ConfigError without any.
    """
    if "openai_api_key" in settings:
        settings["api_key"] = settings.pop("openai_api_key")
    name = model or os.environ.get(MODEL_VARIABLE)
    if not name and settings.keys() - cls.model_fields.keys():
        return settings  # the unknown name says more: it may be the model's
    if not name:
        raise ConfigError(
            f"No model: give the name of a model the endpoint knows, {cls.__name__}(model=…) or "
            f"--llm NAME, or set {MODEL_VARIABLE}."
        )
    return {"model": name, **settings}


@provider("openai")
class OpenaiLLM(BaseLLM, OpenaiEndpoint):
    """A chat model behind an OpenAI-protocol endpoint; without `model` it is the one OPENAI_MODEL
    names.
    """

    def __init__(self, model: str | None = None, **settings: Unpack[ChatSettings]) -> None:
        """A wrong or unknown setting is a ConfigError that names it and the nearest known one."""
        super().__init__(**given(type(self), model, dict(settings)))

    def payload(self, messages: Messages, **overrides: Any) -> dict[str, Any]:
        """The request body; Qwen3's thinking switch is sent where the model name says so."""
        body = super().payload(messages, **overrides)
        if "qwen3" in self.model.lower() and "enable_thinking" not in body:
            body["enable_thinking"] = self.enable_thinking
        return body

    async def attempt(self, payload: dict[str, Any], timeout: float | None) -> dict[str, Any]:
        """One POST to /chat/completions; anything but a JSON object, or a stream of them, with
        status 200 raises ProviderError.
        """
        if not payload.get("stream"):
            return await self.post("/chat/completions", payload, timeout)
        body = await self.content("/chat/completions", timeout, body=orjson.dumps(payload))
        if body.lstrip()[:1] == b"{":  # a server that does not stream answers as a whole
            return dict(self._decoded(body))
        return whole_reply(body, self.endpoint_key())


OpenAIChatModel = OpenaiLLM
"""The same model under the name the grader documents use."""
