"""A request field that a model does not take is left out or renamed, which is said once; the cases are in a golden file."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from loguru import logger
from pydantic import PrivateAttr

from rm_gallery.core.models import FakeLLM
from rm_gallery.core.utils.errors import ProviderError

_names = itertools.count()


class Picky(FakeLLM):
    """Refuses some fields the way endpoints do, one at a time."""

    reply: Any = "ok"
    refuses: dict[str, str] = {}
    status: int = 400
    _sent: list[dict[str, Any]] = PrivateAttr(default_factory=list)

    async def attempt(self, payload: dict[str, Any], timeout: float | None) -> dict[str, Any]:
        self._sent.append(payload)
        for name, message in self.refuses.items():
            if name in payload:
                raise ProviderError(f"x answered {self.status}: {message}", kind="fatal", status=self.status)
        return await super().attempt(payload, timeout)


def picky(**fields: Any) -> Picky:
    """A model of its own: what an endpoint refused is remembered by model."""
    return Picky(model=f"picky-{next(_names)}", **fields)


TEMPERATURE = {"temperature": "Unsupported value: 'temperature' does not support 0 with this model."}
LENGTH = {"max_tokens": "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead."}


def test_it_is_said_once_and_remembered_only_when_it_helped() -> None:
    said: list[str] = []
    handler = logger.add(said.append, level="WARNING", format="{message}")
    try:
        llm = picky(refuses=LENGTH, max_tokens=9)
        for question in ("one", "two"):
            llm.chat(question)
        assert len(said) == 1
        assert (
            f"model {llm.model} refused 'max_tokens', which is sent as 'max_completion_tokens' from now on" in said[0]
        )
        broken = picky(refuses={**TEMPERATURE, "messages": "The question cannot be answered."})
        for question in ("one", "two"):
            with pytest.raises(ProviderError):
                broken.chat(question)
        assert "temperature" in broken._sent[2], "nothing was learned from a request that failed anyway"
        assert len(said) == 1
    finally:
        logger.remove(handler)
