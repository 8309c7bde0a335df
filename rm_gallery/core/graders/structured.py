"""Structured output: replies as JSON by a schema where the endpoint can, found out by its first call and remembered."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.model.base import BaseLLM
from rm_gallery.core.reward.template import BasePromptTemplate, asked_fields, described
from rm_gallery.core.utils.errors import ParseError, ProviderError, Unscored

T = TypeVar("T")
REFUSED = frozenset({400, 404, 415, 422, 501})
"""Statuses by which an endpoint refuses a request field it does not know."""
JSON_FORM = {
    "en": "Reply with one JSON object with exactly these keys, and nothing else:",
    "zh": "请只回复一个 JSON 对象，恰好包含以下键，不要写其他内容：",
}
PATIENCE_SECONDS = 5.0
"""How long others wait for the first call, which may hang."""
_TYPES: dict[Any, dict[str, Any]] = {
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
}
_known: dict[tuple[str, str], bool] = {}
_probing: dict[tuple[str, str], asyncio.Future[None]] = {}


def json_form(template: type[BasePromptTemplate], thinking: bool, language: str) -> str:
    """What the judge is told about the form of a reply that is one JSON object, reasons first."""
    keys = {name: described(name, template.model_fields[name], language) for name in asked_fields(template, thinking)}
    return f"{JSON_FORM[language]}\n{json.dumps(keys, ensure_ascii=False, indent=2)}"


def response_format(template: type[BasePromptTemplate], thinking: bool) -> dict[str, Any]:
    """The request field that asks for such an object; bounds are not in it, since not every endpoint knows them."""
    names = asked_fields(template, thinking)
    properties = {n: _TYPES.get(template.model_fields[n].annotation, {"type": "string"}) for n in names}
    schema = {"type": "object", "properties": properties, "required": names, "additionalProperties": False}
    return {"type": "json_schema", "json_schema": {"name": "verdict", "strict": True, "schema": schema}}


async def with_capability(llm: BaseLLM, ask: Callable[[bool], Awaitable[T]]) -> T:
    """`ask(True)` where the model's endpoint takes a schema, else `ask(False)`.

    The first call for an endpoint and a model finds out, while others wait for it, though not for long: a schema that is
    refused is asked without at once. What was found holds for the process; a call without any reply finds nothing out, and
    then each finds out for itself.
    """
    key = (llm.endpoint_key(), llm.model)
    if key in _known:
        return await ask(_known[key])
    first = _probing.get(key)
    if first is None:
        _probing[key] = done = asyncio.get_running_loop().create_future()
        try:
            return await _probe(key, ask)
        finally:
            done.set_result(None)
    if not first.done() and first.get_loop() is asyncio.get_running_loop():
        # awaited without `wait` it would be cancelled with the first of those who wait
        await asyncio.wait([first], timeout=PATIENCE_SECONDS)
    return await (ask(_known[key]) if key in _known else _probe(key, ask))


async def _probe(key: tuple[str, str], ask: Callable[[bool], Awaitable[T]]) -> T:
    try:
        return await _noted(key, ask, True)
    except ProviderError as error:
        if error.status not in REFUSED or error.filtered:
            raise
    return await _noted(key, ask, False)


async def _noted(key: tuple[str, str], ask: Callable[[bool], Awaitable[T]], structured: bool) -> T:
    """`ask(structured)`; a reply shows that the endpoint takes it, even one that cannot be read."""
    try:
        found = await ask(structured)
    except (ParseError, Unscored):
        _known.setdefault(key, structured)
        raise
    _known.setdefault(key, structured)
    return found


def forget() -> None:
    """Forget what was found out."""
    _known.clear()
    _probing.clear()


library_loop.after_fork(forget)
