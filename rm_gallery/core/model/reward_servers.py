"""Rewards behind a server, over the one call path: `rm-gallery serve`, and the scoring endpoints of
vLLM, SGLang and TEI.

Layouts as in vLLM's pooling protocols, SGLang's native API and the OpenAPI document of Text
Embeddings Inference (TEI).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, get_args
from urllib.parse import quote, unquote, urlsplit

import orjson
from pydantic import Field

from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.model import transport
from rm_gallery.core.model.budget import Usage
from rm_gallery.core.model.openai_endpoint import OpenaiEndpoint
from rm_gallery.core.model.transport import token_count
from rm_gallery.core.score import CAUSES, Score, scored
from rm_gallery.core.utils.errors import (
    Cause,
    ConfigError,
    DeadlineExceeded,
    ProviderError,
    ScoreError,
)
from rm_gallery.core.utils.shown import one_line

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
"""What each endpoint takes, the usual first: the turns (the server applies its chat template), one
text, or question and answer apart."""
PATHS = {"sglang/rerank": "/v1/rerank", "sglang/score": "/v1/score"}
PATIENCE_SECONDS = 10.0
"""How long a server may take to say what it is."""
MAX_NUMBERS = 1 << 20
"""More numbers than this in a reply are no scores."""


class Numbers(NamedTuple):
    """What a server gave for one input: rows of numbers, one row or one per token or step, and the
    names of its columns.
    """

    rows: list[list[float]]
    names: tuple[str, ...] = ()
    tokens: int = 0
    """Tokens of the input; 0 where the server does not say."""


def split_url(url: str) -> tuple[str, str]:
    """The server's base URL and the endpoint its path ends with (classify, score, …), empty where
    it names none.
    """
    base, path = url.rstrip("/"), urlsplit(url).path.rstrip("/")
    named = path.rpartition("/")[2]
    if named not in {name.partition("/")[2] for name in get_args(EndpointName)}:
        named = ""
    return base.removesuffix(f"/{named}").removesuffix("/v1").removesuffix("/v2"), named


class ServedScorer(OpenaiEndpoint):
    """A server that gives numbers for a conversation; equal inputs are asked for once and kept in
    the cache.

    `endpoint` names server and endpoint; where it does not, the server is asked who it is (once per
    process), never guessed.
    """

    model: str = ""
    """Name of the model as the server knows it; empty where it serves one."""
    endpoint: EndpointName | None = None
    named: str = ""
    """The endpoint that the URL named, where the server is to be asked who it is."""
    raw: bool = True
    """Whether numbers are asked for before sigmoid or softmax, which saturate; SGLang's are raw in
    any case.
    """
    label_token_ids: list[int] = Field(default_factory=list)
    """For sglang/score: the tokens whose probabilities behind the answer are the numbers."""
    cache: bool | None = True

    async def ascore(self, way: Way, given: dict[str, Any]) -> Numbers:
        """The numbers for a conversation, put in one way; may be awaited from any event loop.

        Args:
            way: messages, pair or text; auto is what the endpoint usually takes.
            given: `messages`, for a pair `query` and `answer`, for a text `input` (and `templated`,
                where a chat template wrote it); all that may be needed.

        Raises:
            ConfigError: the server cannot be told, or its endpoint is not asked in this way.
                ProviderError: no usable answer.
            ScoreError: a number is NaN or infinite. DeadlineExceeded, BudgetExceeded.
        """
        from rm_gallery.core.model.client import complete

        model = self.model or await self._serves()
        settings = {
            "model": model,
            "endpoint": self.endpoint or self.named,
            "raw": self.raw,
            "way": way,
        }
        labels = {"labels": self.label_token_ids} if self.label_token_ids else {}
        numbers: Numbers = await library_loop.bridge(
            complete(self, {**self.extra_body, **settings, **labels, **given})
        )
        return numbers

    def way_of(self, kind: str, way: Way) -> Input:
        """How the endpoint is asked; ConfigError when it is not asked in this way."""
        takes = INPUTS[kind]
        chosen: Input = takes[0] if way == "auto" else way
        if chosen not in takes or (way == "auto" and chosen == "text"):
            text = (
                "give the model's own with chat_template= (Jinja text or a .jinja file), or "
                "chat_template=plain"
            )
            advice = text if takes == ("text",) else f"chat_template={takes[0]}"
            raise ConfigError(
                f"{self.endpoint_key()}: {kind} takes {' or '.join(takes)}, not {way}; {advice}."
            )
        return chosen

    async def kind(self, timeout: float | None = None) -> str:
        """Server and endpoint, such as vllm/classify: the one that was named, else what the server
        says it is.
        """
        if self.endpoint is not None:
            return self.endpoint
        kind: str = await asked_once(self, f"kind {self.named}", lambda: self._who(timeout))
        return kind

    async def _serves(self) -> str:
        """The model that a server with one model serves, so that cached numbers of another one are
        not taken for its own.

        Empty where it does not say, or does not answer at the moment: the call itself then waits
        for it.
        """
        try:
            serves: str = await library_loop.bridge(asked_once(self, "serves", self._what))
            return serves
        except ProviderError:
            return ""

    async def _what(self) -> str:
        kind, patience = await self.kind(PATIENCE_SECONDS), PATIENCE_SECONDS
        if kind.startswith("vllm"):
            listed = (await self._get_info("/v1/models", patience)).get("data")
            first = (
                listed[0]
                if isinstance(listed, list) and listed and isinstance(listed[0], dict)
                else {}
            )
            names = (first.get("id"), first.get("root"))
        elif kind.startswith("sglang"):
            info = await self._get_info("/get_model_info", patience)
            names = (info.get("model_path"), info.get("weight_version"))
        else:
            info = await self._get_info("/info", patience)
            names = (info.get("model_id"), info.get("model_sha"))
        return " ".join(str(name)[:300] for name in names if name)

    async def _who(self, timeout: float | None) -> str:
        tei = await self._get_info("/info", timeout)
        if isinstance(tei.get("model_type"), dict):
            own = {"reranker": "rerank", "classifier": "predict"}
            fitting = [endpoint for kind, endpoint in own.items() if kind in tei["model_type"]]
            return self._known(
                "tei",
                fitting,
                f"it serves a model of type {next(iter(tei['model_type']), '?')!s:.40}",
            )
        for path in ("/get_model_info", "/model_info"):
            if "model_path" in await self._get_info(path, timeout):
                return self._known("sglang", ["classify", "rerank", "score"])
        if "version" in await self._get_info("/version", timeout):
            routes = (await self._get_info("/openapi.json", timeout)).get("paths")
            order = ["classify", "pooling", "score", "rerank"]
            offered = (
                [each for each in order if f"/{each}" in routes]
                if isinstance(routes, dict)
                else order
            )
            return self._known("vllm", offered, "it offers none of /classify, /pooling, /score")
        raise ConfigError(
            f"{self._endpoint().url} does not say whether it is vLLM, SGLang or TEI; name its "
            f"endpoint with endpoint=, one of {', '.join(get_args(EndpointName))}."
        )

    def _known(self, server: str, offered: list[str], otherwise: str = "") -> str:
        wanted = self.named or (offered[0] if offered else "")
        if f"{server}/{wanted}" in INPUTS:
            return f"{server}/{wanted}"
        why = f"it has no endpoint /{wanted} for scores" if wanted else otherwise
        example = next(each for each in INPUTS if each.startswith(server))
        raise ConfigError(
            f"{self._endpoint().url} is {server}, and {why}; name one that it has with endpoint=, "
            f"such as {example}."
        )

    async def _get_info(self, path: str, timeout: float | None) -> dict[str, Any]:
        """What a server says of itself at a path; empty where it has none."""
        try:
            reply = await self.request(path, None, timeout)
        except ProviderError as error:
            if error.status in (400, 404, 405, 422, 501) or (
                error.kind == "transient" and "not JSON" in str(error)
            ):
                return {}
            raise
        return reply if isinstance(reply, dict) else {}

    async def attempt(self, payload: dict[str, Any], timeout: float | None) -> dict[str, Any]:
        """One POST to the endpoint, in its own layout."""
        kind = await self.kind(timeout)
        way = self.way_of(kind, payload["way"])
        body = _body(kind, payload, way)
        if self.model and not kind.startswith("tei"):
            body["model"] = self.model
        reply = await self.request(
            PATHS.get(kind, f"/{kind.partition('/')[2]}"), {**body, **self.extra_body}, timeout
        )
        return {"kind": kind, "found": reply}

    def read(self, raw: dict[str, Any], payload: dict[str, Any]) -> Numbers:
        """The numbers of a reply, finite and in the layout of its endpoint."""
        kind, reply = raw["kind"], raw["found"]
        try:
            rows, names = _rows(kind, reply)
            if not rows or not all(rows) or sum(map(len, rows)) > MAX_NUMBERS:
                raise ValueError("no numbers")
            if len(set(map(len, rows))) > 1 or len(set(names)) != len(names):
                raise ValueError("rows of unlike length, or one name for two numbers")
            if not all(type(value) in (int, float) for row in rows for value in row):
                raise ValueError("something that is no number")
            numbers = [list(map(float, row)) for row in rows]
        except (
            KeyError,
            IndexError,
            TypeError,
            ValueError,
            OverflowError,
            AttributeError,
        ) as error:
            shown = one_line(str(reply)[:400], 120)
            raise ProviderError(
                f"{self.endpoint_key()} answered 200 in a layout that is not that of {kind}: "
                f"{shown}",
                kind="fatal",
            ) from error
        odd = next((value for row in numbers for value in row if not math.isfinite(value)), None)
        if odd is not None:
            raise ScoreError(f"{self.endpoint_key()} gave {odd}, which is no score.")
        return Numbers(numbers, tuple(names), _tokens(reply))

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


_asked: dict[tuple[Any, str], asyncio.Future[Any]] = {}
library_loop.after_fork(_asked.clear)


async def asked_once(
    server: OpenaiEndpoint, what: str, ask: Callable[[], Coroutine[Any, Any, Any]]
) -> Any:
    """What a server says of itself, asked for once per process; again where it did not answer."""
    key = (server._endpoint(), what)
    asked = _asked.get(key)
    if asked is None or asked.cancelled() or (asked.done() and asked.exception() is not None):
        asked = _asked[key] = asyncio.ensure_future(ask())
    return await asyncio.shield(asked)


def _body(kind: str, asked: dict[str, Any], way: Input) -> dict[str, Any]:
    """A request in the layout of its endpoint."""
    pair = {"query": asked.get("query"), "documents": [asked.get("answer")]}
    if kind.startswith("vllm/"):
        # numbers before sigmoid or softmax; a chat template writes the special tokens itself
        raw = {"use_activation": False} if asked["raw"] else {}
        if kind == "vllm/score":
            return {"text_1": asked["query"], "text_2": asked["answer"], **raw}
        if kind == "vllm/rerank":
            return {**pair, **raw}
        if way == "messages":
            return {"messages": asked["messages"], **raw}
        return {
            "input": asked["input"],
            "add_special_tokens": not asked.get("templated", False),
            **raw,
        }
    if kind == "sglang/classify":
        return {"text": asked["input"]}
    if kind == "sglang/rerank":
        return pair
    if kind == "sglang/score":
        if not asked.get("labels"):
            raise ConfigError(
                "sglang/score gives probabilities of tokens: name them with label_token_ids=[…]."
            )
        items = {"query": asked["query"], "items": [asked["answer"]]}
        return {
            **items,
            "label_token_ids": asked["labels"],
            "apply_softmax": True,
            "item_first": False,
        }
    if kind == "tei/rerank":
        return {"query": asked["query"], "texts": [asked["answer"]], "raw_scores": asked["raw"]}
    given = [asked["query"], asked["answer"]] if way == "pair" else asked["input"]
    return {"inputs": given, "raw_scores": asked["raw"]}


def _rows(kind: str, reply: Any) -> tuple[list[list[Any]], list[str]]:
    """The rows of numbers in a reply, and the names of their columns; KeyError and the like where
    the layout is another.
    """
    if kind == "vllm/classify":
        return [_only_entry(reply["data"])["probs"]], []
    if kind == "vllm/score":
        return [[_only_entry(reply["data"])["score"]]], []
    if kind == "vllm/rerank":
        return [[_only_entry(reply["results"])["relevance_score"]]], []
    if kind == "vllm/pooling":
        data = _only_entry(reply["data"])["data"]
        return (data if isinstance(data[0], list) else [data]), []
    if kind == "sglang/classify":
        return [(_only_entry(reply) if isinstance(reply, list) else reply)["embedding"]], []
    if kind == "sglang/rerank":
        entry = _only_entry(reply["results"] if isinstance(reply, dict) else reply)
        return [[entry["score"] if "score" in entry else entry["relevance_score"]]], []
    if kind == "sglang/score":
        return [_only_entry(reply["scores"])], []
    if kind == "tei/rerank":
        return [[_only_entry(reply)["score"]]], []
    entries = reply[0] if isinstance(reply[0], list) else reply
    return [[entry["score"] for entry in entries]], [
        one_line(str(entry["label"])[:4000], 300) for entry in entries
    ]


def _only_entry(entries: Any) -> Any:
    """The only entry of a list of results."""
    if not isinstance(entries, list) or len(entries) != 1:
        raise ValueError("not one result")
    return entries[0]


def _tokens(reply: Any) -> int:
    entry = reply[0] if isinstance(reply, list) and reply else reply
    if not isinstance(entry, dict):
        return 0
    counts = entry.get("usage") or entry.get("meta_info")
    return token_count(counts.get("prompt_tokens")) if isinstance(counts, dict) else 0


TOKEN_VARIABLE = "RM_GALLERY_TOKEN"
"""Environment variable with the bearer token of reward servers."""
_KINDS = {"rewards": "reward", "evaluations": "evaluator"}


def split_reward_url(url: str, named: str) -> tuple[str, str]:
    """The server's base URL and the target that a reward's URL names:
    http://host:8000/v1/rewards/NAME or …/evaluations/ID.

    Raises ConfigError, with `named` for where the URL came from, when it names none.
    """
    base, _, rest = transport.check_url(url, named).rpartition("/v1/")
    kind, _, name = rest.partition("/")
    if not base or kind not in _KINDS or not name or "/" in name:
        raise ConfigError(
            f"{named} names no reward: found {url[:200]!r}; give http://HOST:PORT/v1/rewards/NAME, "
            f"or /v1/evaluations/ID "
            "for a deployed evaluator."
        )
    return base, f"{_KINDS[kind]}:{unquote(name)}"


class RewardServer(OpenaiEndpoint):
    """One reward or evaluator of a server, which `model` names: `reward:NAME` or `evaluator:ID`.

    The token is `api_key`, else RM_GALLERY_TOKEN; a key of OpenAI is never sent. Answers are not
    cached unless `cache` says so: what stands behind a name may be deployed anew.
    """

    key_variable: ClassVar[str] = TOKEN_VARIABLE
    # the server says the rest itself
    hints: ClassVar[Mapping[int, str]] = {401: f"check the token, or {TOKEN_VARIABLE}"}

    cache: bool | None = False
    max_outage: float = Field(default=30.0, ge=0)

    async def ascore(self, items: Sequence[dict[str, Any]]) -> list[Score[float]]:
        """What the server says of the items, which are those of its own format, in one request.

        Raises:
            ConfigError: a URL that is none. ProviderError: no usable answer, or a request that was
                refused.
            RequestError: an item that cannot be written as JSON. DeadlineExceeded, BudgetExceeded.
        """
        from rm_gallery.core.model.client import complete

        asked = {
            "target": self.model,
            "items": list(items),
            **({"extra": self.extra_body} if self.extra_body else {}),
        }
        scores: list[Score[float]] = await library_loop.bridge(complete(self, asked))
        return scores

    async def aget(self, path: str) -> Any:
        """What a GET gives, such as the list of rewards; once, without a retry."""
        return await library_loop.bridge(self.request(path, None, self.timeout))

    async def attempt(self, payload: dict[str, Any], timeout: float | None) -> dict[str, Any]:
        """One POST of one item or of several."""
        kind, _, name = payload["target"].partition(":")
        path = f"/v1/{'rewards' if kind == 'reward' else 'evaluations'}/{quote(name, safe='')}"
        if kind == "evaluator":
            path += "/outcome"
        items = payload["items"]
        try:
            if len(items) == 1:
                return {
                    "results": [await self.request(path, {**items[0], **self.extra_body}, timeout)]
                }
            return await self.post(f"{path}/batch", {"items": items, **self.extra_body}, timeout)
        except ProviderError as error:
            if error.status != 504:
                raise
            # asked again it would take as long again
            raise DeadlineExceeded(f"{self.endpoint_key()} ran out of time: {error}") from None

    def read(self, raw: dict[str, Any], payload: dict[str, Any]) -> list[Score[float]]:
        """The answers, one per item, with finite scores."""
        results = raw.get("results")
        try:
            if not isinstance(results, list) or len(results) != len(payload["items"]):
                raise ValueError("not one result per item")
            return [_score_of_entry(each) for each in results]
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            shown = one_line(str(raw)[:400], 120)
            raise ProviderError(
                f"{self.endpoint_key()} answered 200 in a layout that is not that of a reward "
                f"server: {shown}",
                kind="fatal",
            ) from error

    def kept(self, raw: dict[str, Any], reply: Any) -> bytes | None:
        """Answers that all have a score."""
        whole = all(each.ok for each in reply)
        return (
            orjson.dumps([[each.value, each.reason, dict(each.components)] for each in reply])
            if whole
            else None
        )

    def restored(self, stored: bytes) -> list[Score[float]]:
        """What was kept."""
        try:
            return [scored(*each) for each in orjson.loads(stored)]
        except TypeError as error:
            raise ValueError("no answers") from error

    def usage(self, reply: Any, expected_input: int) -> Usage:
        """One call; tokens are the server's own matter."""
        return Usage(calls=1)

    def _headers(self, endpoint: transport.HttpEndpoint, key: str | None) -> dict[str, str]:
        # a little less than is waited for, so that its own word about it arrives
        patience = max(0.9 * self.timeout, self.timeout - 5)
        return {"X-Timeout-Seconds": f"{patience:g}", **super()._headers(endpoint, key)}


def _score_of_entry(entry: Any) -> Score[float]:
    status, score = entry["status"], entry["score"]
    if status not in ("scored", "unscored", "failed") or (score is None) != (status != "scored"):
        raise ValueError("status and score do not fit")
    if score is not None and (isinstance(score, bool) or not math.isfinite(score)):
        raise ValueError("no number")
    components = {str(name): float(value) for name, value in entry["components"].items()}
    if not all(map(math.isfinite, components.values())):
        raise ValueError("a component that is no number")
    cause = entry.get("cause")
    value = None if score is None else float(score)
    # a server of an earlier version says nothing of it: then it is the endpoint that knows, and did
    # not tell
    known: Cause | None = None if score is not None else cause if cause in CAUSES else "endpoint"
    return Score(
        value,
        str(entry["message"]),
        components=components,
        status=status,
        cause=known,
        code=str(entry["reason"]),
    )
