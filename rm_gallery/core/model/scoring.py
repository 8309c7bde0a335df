"""Reward models behind a server: the scoring endpoints of vLLM, SGLang and Text Embeddings Inference over the one call path.

Layouts as in vLLM's pooling protocols, SGLang's native API and the OpenAPI document of Text Embeddings Inference (TEI).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine
from typing import Any, Literal, NamedTuple, get_args
from urllib.parse import urlsplit

import orjson
from pydantic import Field

from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.calls.budget import Usage
from rm_gallery.core.model.openai_llm import OpenaiEndpoint
from rm_gallery.core.model.transport import one_line, token_count
from rm_gallery.core.utils.errors import ConfigError, ProviderError, ScoreError

EndpointName = Literal[
    "vllm/classify", "vllm/score", "vllm/rerank", "vllm/pooling",
    "sglang/classify", "sglang/rerank", "sglang/score",
    "tei/rerank", "tei/predict",
]  # fmt: skip
Input = Literal["messages", "text", "pair"]
Way = Literal["auto", "messages", "text", "pair"]
INPUTS: dict[str, tuple[Input, ...]] = {
    "vllm/classify": ("messages", "text"),
    "vllm/pooling": ("messages", "text"),
    "vllm/score": ("pair",),
    "vllm/rerank": ("pair",),
    "sglang/classify": ("text",),
    "sglang/rerank": ("pair",),
    "sglang/score": ("pair",),
    "tei/rerank": ("pair",),
    "tei/predict": ("pair", "text"),
}
"""What each endpoint takes, the usual first: the turns (the server applies its chat template), one text, or question and
answer apart."""
PATHS = {"sglang/rerank": "/v1/rerank", "sglang/score": "/v1/score"}
PATIENCE_SECONDS = 10.0
"""How long a server may take to say what it is."""
MAX_NUMBERS = 1 << 20
"""More numbers than this in a reply are no scores."""


class Numbers(NamedTuple):
    """What a server gave for one input: rows of numbers, one row or one per token or step, and the names of its columns."""

    rows: list[list[float]]
    names: tuple[str, ...] = ()
    tokens: int = 0
    """Tokens of the input; 0 where the server does not say."""


def split_url(url: str) -> tuple[str, str]:
    """The server's base URL and the endpoint its path ends with (classify, score, …), empty where it names none."""
    base, path = url.rstrip("/"), urlsplit(url).path.rstrip("/")
    named = path.rpartition("/")[2]
    if named not in {name.partition("/")[2] for name in get_args(EndpointName)}:
        named = ""
    if named:
        base = base[: -len(named) - 1]
    for version in ("/v1", "/v2"):
        base = base.removesuffix(version)
    return base, named


class ServedScorer(OpenaiEndpoint):
    """A server that gives numbers for a conversation; equal inputs are asked for once and kept in the cache.

    `endpoint` names server and endpoint; where it does not, the server is asked who it is (once per process), never guessed.
    """

    model: str = ""
    """Name of the model as the server knows it; empty where it serves one."""
    endpoint: EndpointName | None = None
    named: str = ""
    """The endpoint that the URL named, where the server is to be asked who it is."""
    raw: bool = True
    """Whether numbers are asked for before sigmoid or softmax, which saturate; SGLang's are raw in any case."""
    label_token_ids: list[int] = Field(default_factory=list)
    """For sglang/score: the tokens whose probabilities behind the answer are the numbers."""
    cache: bool | None = True

    async def ascore(self, way: Way, given: dict[str, Any]) -> Numbers:
        """The numbers for a conversation, put in one way; may be awaited from any event loop.

        Args:
            way: messages, pair or text; auto is what the endpoint usually takes.
            given: `messages`, for a pair `query` and `answer`, for a text `input` (and `templated`, where a chat template wrote
                it); all that may be needed.

        Raises:
            ConfigError: the server cannot be told, or its endpoint is not asked in this way. ProviderError: no usable answer.
            ScoreError: a number is NaN or infinite. DeadlineExceeded, BudgetExceeded.
        """
        from rm_gallery.core.model.call import complete

        settings = {
            "model": self.model or await self._serves(),
            "endpoint": self.endpoint or self.named,
            "raw": self.raw,
        }
        settings["way"] = way
        labels = {"labels": self.label_token_ids} if self.label_token_ids else {}
        found: Numbers = await library_loop.bridge(complete(self, {**self.extra_body, **settings, **labels, **given}))
        return found

    def way_of(self, kind: str, way: Way) -> Input:
        """How the endpoint is asked; ConfigError when it is not asked in this way."""
        takes = INPUTS[kind]
        chosen: Input = takes[0] if way == "auto" else way
        if chosen not in takes or (way == "auto" and chosen == "text"):
            text = "give the model's own with chat_template= (Jinja text or a .jinja file), or chat_template=plain"
            advice = text if takes == ("text",) else f"chat_template={takes[0]}"
            raise ConfigError(f"{self.endpoint_key()}: {kind} takes {' or '.join(takes)}, not {way}; {advice}.")
        return chosen

    async def kind(self, timeout: float | None = None) -> str:
        """Server and endpoint, such as vllm/classify: the one that was named, else what the server says it is."""
        if self.endpoint is not None:
            return self.endpoint
        return await self._once(f"kind {self.named}", lambda: self._who(timeout))

    async def _once(self, what: str, ask: Callable[[], Coroutine[Any, Any, str]]) -> str:
        """What a server says of itself, asked for once per process; again where it did not answer."""
        key = (self._endpoint(), what)
        asked = _asked.get(key)
        if asked is None or asked.cancelled() or (asked.done() and asked.exception() is not None):
            asked = _asked[key] = asyncio.ensure_future(ask())
        return await asyncio.shield(asked)

    async def _serves(self) -> str:
        """The model that a server with one model serves, so that cached numbers of another one are not taken for its own.

        Empty where it does not say, or does not answer at the moment: the call itself then waits for it.
        """
        try:
            return await library_loop.bridge(self._once("serves", self._what))
        except ProviderError:
            return ""

    async def _what(self) -> str:
        kind, patience = await self.kind(PATIENCE_SECONDS), PATIENCE_SECONDS
        if kind.startswith("vllm"):
            listed = (await self._told("/v1/models", patience)).get("data")
            first = listed[0] if isinstance(listed, list) and listed and isinstance(listed[0], dict) else {}
            names = (first.get("id"), first.get("root"))
        elif kind.startswith("sglang"):
            told = await self._told("/get_model_info", patience)
            names = (told.get("model_path"), told.get("weight_version"))
        else:
            told = await self._told("/info", patience)
            names = (told.get("model_id"), told.get("model_sha"))
        return " ".join(str(name)[:300] for name in names if name)

    async def _who(self, timeout: float | None) -> str:
        tei = await self._told("/info", timeout)
        if isinstance(tei.get("model_type"), dict):
            own = {"reranker": "rerank", "classifier": "predict"}
            fitting = [endpoint for kind, endpoint in own.items() if kind in tei["model_type"]]
            return self._known("tei", fitting, f"it serves a model of type {next(iter(tei['model_type']), '?')!s:.40}")
        for path in ("/get_model_info", "/model_info"):
            if "model_path" in await self._told(path, timeout):
                return self._known("sglang", ["classify", "rerank", "score"])
        if "version" in await self._told("/version", timeout):
            routes = (await self._told("/openapi.json", timeout)).get("paths")
            order = ["classify", "pooling", "score", "rerank"]
            offered = [each for each in order if f"/{each}" in routes] if isinstance(routes, dict) else order
            return self._known("vllm", offered, "it offers none of /classify, /pooling, /score")
        raise ConfigError(
            f"{self._endpoint().url} does not say whether it is vLLM, SGLang or TEI; name its endpoint with endpoint=, one of "
            f"{', '.join(get_args(EndpointName))}."
        )

    def _known(self, server: str, offered: list[str], otherwise: str = "") -> str:
        wanted = self.named or (offered[0] if offered else "")
        name = f"{server}/{wanted}"
        if not wanted or name not in INPUTS:
            why = otherwise if not wanted else f"it has no endpoint /{wanted} for scores"
            raise ConfigError(
                f"{self._endpoint().url} is {server}, and {why}; name one that it has with endpoint=, such as "
                f"{next(each for each in INPUTS if each.startswith(server))}."
            )
        return name

    async def _told(self, path: str, timeout: float | None) -> dict[str, Any]:
        """What a server says of itself at a path; empty where it has none."""
        try:
            found = await self.request(path, None, timeout)
        except ProviderError as error:
            if error.status in (400, 404, 405, 422, 501) or (error.kind == "transient" and "not JSON" in str(error)):
                return {}
            raise
        return found if isinstance(found, dict) else {}

    async def attempt(self, payload: dict[str, Any], timeout: float | None) -> dict[str, Any]:
        """One POST to the endpoint, in its own layout."""
        kind = await self.kind(timeout)
        way = self.way_of(kind, payload["way"])
        body = _BODIES[kind](payload, way)
        if self.model and not kind.startswith("tei"):
            body["model"] = self.model
        found = await self.request(PATHS.get(kind, f"/{kind.partition('/')[2]}"), {**body, **self.extra_body}, timeout)
        return {"kind": kind, "found": found}

    def read(self, raw: dict[str, Any], payload: dict[str, Any]) -> Numbers:
        """The numbers of a reply, finite and in the layout of its endpoint."""
        kind, found = raw["kind"], raw["found"]
        try:
            rows, names = _READERS[kind](found)
            if not rows or not all(rows) or sum(map(len, rows)) > MAX_NUMBERS:
                raise ValueError("no numbers")
            if len(set(map(len, rows))) > 1 or len(set(names)) != len(names):
                raise ValueError("rows of unlike length, or one name for two numbers")
            numbers = [[_number(value) for value in row] for row in rows]
        except (KeyError, IndexError, TypeError, ValueError, OverflowError, AttributeError) as error:
            shown = one_line(str(found)[:400], 120)
            raise ProviderError(
                f"{self.endpoint_key()} answered 200 in a layout that is not that of {kind}: {shown}", kind="fatal"
            ) from error
        odd = next((value for row in numbers for value in row if not math.isfinite(value)), None)
        if odd is not None:
            raise ScoreError(f"{self.endpoint_key()} gave {odd}, which is no score.")
        return Numbers(numbers, tuple(names), _tokens(found))

    def kept(self, raw: dict[str, Any], reply: Any) -> bytes | None:
        """Rows, names and tokens."""
        return orjson.dumps(list(reply))

    def restored(self, stored: bytes) -> Numbers:
        """What was kept; ValueError for anything else."""
        rows, names, tokens = orjson.loads(stored)
        if not isinstance(rows, list) or not all(isinstance(row, list) and row for row in rows):
            raise ValueError("no rows")
        return Numbers(rows, tuple(names), int(tokens))

    def usage(self, reply: Any, expected_input: int) -> Usage:
        """Input tokens of one call; nothing is generated."""
        return Usage(input_tokens=reply.tokens or expected_input, calls=1)


_asked: dict[tuple[Any, str], asyncio.Future[str]] = {}


def _vllm(payload: dict[str, Any], way: Input) -> dict[str, Any]:
    if way == "messages":
        body: dict[str, Any] = {"messages": payload["messages"]}
    else:
        # a chat template writes the special tokens itself
        body = {"input": payload["input"], "add_special_tokens": not payload.get("templated", False)}
    return _unsquashed(body, payload)


def _vllm_score(payload: dict[str, Any], way: Input) -> dict[str, Any]:
    return _unsquashed({"text_1": payload["query"], "text_2": payload["answer"]}, payload)


def _documents(payload: dict[str, Any], way: Input) -> dict[str, Any]:
    return {"query": payload["query"], "documents": [payload["answer"]]}


def _vllm_rerank(payload: dict[str, Any], way: Input) -> dict[str, Any]:
    return _unsquashed(_documents(payload, way), payload)


def _unsquashed(body: dict[str, Any], payload: dict[str, Any]) -> dict[str, Any]:
    return {**body, "use_activation": False} if payload["raw"] else body


def _sglang_classify_body(payload: dict[str, Any], way: Input) -> dict[str, Any]:
    return {"text": payload["input"]}


def _sglang_score(payload: dict[str, Any], way: Input) -> dict[str, Any]:
    if not payload.get("labels"):
        raise ConfigError("sglang/score gives probabilities of tokens: name them with label_token_ids=[…].")
    return {
        "query": payload["query"],
        "items": [payload["answer"]],
        "label_token_ids": payload["labels"],
        "apply_softmax": True,
        "item_first": False,
    }


def _tei_rerank(payload: dict[str, Any], way: Input) -> dict[str, Any]:
    return {"query": payload["query"], "texts": [payload["answer"]], "raw_scores": payload["raw"]}


def _tei_predict(payload: dict[str, Any], way: Input) -> dict[str, Any]:
    given = [payload["query"], payload["answer"]] if way == "pair" else payload["input"]
    return {"inputs": given, "raw_scores": payload["raw"]}


_BODIES: dict[str, Callable[[dict[str, Any], Input], dict[str, Any]]] = {
    "vllm/classify": _vllm,
    "vllm/pooling": _vllm,
    "vllm/score": _vllm_score,
    "vllm/rerank": _vllm_rerank,
    "sglang/classify": _sglang_classify_body,
    "sglang/rerank": _documents,
    "sglang/score": _sglang_score,
    "tei/rerank": _tei_rerank,
    "tei/predict": _tei_predict,
}
Read = tuple[list[list[Any]], list[str]]


def _one(found: Any) -> Any:
    """The only entry of a list of results."""
    if not isinstance(found, list) or len(found) != 1:
        raise ValueError("not one result")
    return found[0]


def _pooling(found: Any) -> Read:
    data = _one(found["data"])["data"]
    rows = data if isinstance(data[0], list) else [data]
    return rows, []


def _labelled(found: Any) -> Read:
    entries = found[0] if isinstance(found[0], list) else found
    return [[entry["score"] for entry in entries]], [one_line(str(entry["label"])[:4000]) for entry in entries]


def _sglang_classify(found: Any) -> Read:
    return [(_one(found) if isinstance(found, list) else found)["embedding"]], []


def _sglang_rerank(found: Any) -> Read:
    entry = _one(found["results"] if isinstance(found, dict) else found)
    return [[entry["score"] if "score" in entry else entry["relevance_score"]]], []


_READERS: dict[str, Callable[[Any], Read]] = {
    "vllm/classify": lambda found: ([_one(found["data"])["probs"]], []),
    "vllm/score": lambda found: ([[_one(found["data"])["score"]]], []),
    "vllm/rerank": lambda found: ([[_one(found["results"])["relevance_score"]]], []),
    "vllm/pooling": _pooling,
    "sglang/classify": _sglang_classify,
    "sglang/rerank": _sglang_rerank,
    "sglang/score": lambda found: ([_one(found["scores"])], []),
    "tei/rerank": lambda found: ([[_one(found)["score"]]], []),
    "tei/predict": _labelled,
}


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError("no number")
    return float(value)


def _tokens(found: Any) -> int:
    entry = found[0] if isinstance(found, list) and found else found
    if not isinstance(entry, dict):
        return 0
    counts = entry.get("usage") or entry.get("meta_info")
    return token_count(counts.get("prompt_tokens")) if isinstance(counts, dict) else 0


def _forget() -> None:
    _asked.clear()


library_loop.after_fork(_forget)
