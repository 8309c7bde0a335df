"""Door to the models: `from rm_gallery.core.models import OpenAIChatModel`."""

from rm_gallery.core.model.base import BaseLLM, FakeLLM, resolve_llm
from rm_gallery.core.model.openai_llm import OpenAIChatModel, OpenaiLLM

__all__ = ["BaseLLM", "FakeLLM", "OpenAIChatModel", "OpenaiLLM", "resolve_llm"]
