"""A request field that a model does not take is left out, or sent under the name it takes, without costing a sample."""

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
CASES: list[tuple[dict[str, str], dict[str, Any], dict[str, Any]]] = [
    (TEMPERATURE, {"seed": 1}, {"temperature": None, "seed": 1}),
    (LENGTH, {"max_tokens": 9}, {"temperature": 0.0, "max_tokens": None, "max_completion_tokens": 9}),
    (
        {"max_tokens": "max_tokens is not supported"},
        {"max_tokens": 9},
        {"max_tokens": None, "max_completion_tokens": None},
    ),
    ({"seed": "Extra inputs are not permitted: seed"}, {"seed": 1}, {"temperature": 0.0, "seed": None}),
    (
        {**TEMPERATURE, **LENGTH},
        {"max_tokens": 9},
        {"temperature": None, "max_tokens": None, "max_completion_tokens": 9},
    ),
]


@pytest.mark.parametrize("status", [400, 422])
@pytest.mark.parametrize(("refuses", "settings", "sent"), CASES)
def test_the_field_is_left_out_and_that_is_remembered(
    refuses: dict[str, str], settings: dict[str, Any], sent: dict[str, Any], status: int
) -> None:
    llm = picky(refuses=refuses, status=status, **settings)
    assert llm.chat("hi").text == "ok"
    assert {name: llm._sent[-1].get(name) for name in sent} == sent
    assert len(llm._sent) == len(refuses) + 1
    assert llm.chat("again").text == "ok"
    assert len(llm._sent) == len(refuses) + 2, "the second call asks right at once"


NOT_OURS: list[tuple[dict[str, str], dict[str, Any], int]] = [
    ({"messages": "Unsupported content in the messages."}, {}, 400),
    ({"temperature": "The temperature of the question is unclear."}, {}, 400),
    (TEMPERATURE, {}, 401),
    ({"response_format": "Unsupported parameter: 'response_format'."}, {"n": 2}, 400),
    ({"messages": "Unsupported: stopwords."}, {"stop": ["x"]}, 400),
]


@pytest.mark.parametrize(("refuses", "settings", "status"), NOT_OURS)
def test_other_refusals_are_errors_and_nothing_is_left_out(
    refuses: dict[str, str], settings: dict[str, Any], status: int
) -> None:
    llm = picky(refuses=refuses, status=status, extra_body={"response_format": {"type": "text"}}, **settings)
    with pytest.raises(ProviderError, match=str(status)):
        llm.chat("hi")
    (body,) = llm._sent
    assert {"temperature", "messages", "response_format", *settings} <= set(body)


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
