"""Door to the models: `from rm_gallery.core.models import OpenAIChatModel`."""

import sys

from rm_gallery.core.model.base import BaseLLM, FakeLLM, resolve_llm
from rm_gallery.core.model.openai_llm import OpenAIChatModel, OpenaiLLM
from rm_gallery.core.utils.compat import ImportPath

__all__ = ["BaseLLM", "FakeLLM", "OpenAIChatModel", "OpenaiLLM", "resolve_llm"]

sys.modules[__name__].__class__ = ImportPath
