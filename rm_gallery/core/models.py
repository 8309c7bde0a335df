"""Door to the models: `from rm_gallery.core.models import OpenAIChatModel`."""

from rm_gallery.core.model.base import BaseLLM
from rm_gallery.core.model.openai_llm import OpenAIChatModel, OpenaiLLM
from rm_gallery.core.model.providers import FakeLLM, resolve_llm

__all__ = ["BaseLLM", "FakeLLM", "OpenAIChatModel", "OpenaiLLM", "resolve_llm"]
