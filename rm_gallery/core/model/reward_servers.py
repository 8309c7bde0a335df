"""Rewards behind a server, over the one call path: `rm-gallery serve`, and the scoring endpoints of
vLLM, SGLang and TEI.

Layouts as in vLLM's pooling protocols, SGLang's native API and the OpenAPI document of Text
Embeddings Inference (TEI); each is a row of `LAYOUTS`.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, get_args
from urllib.parse import quote, unquote

import orjson
from pydantic import BaseModel, Field, FiniteFloat

from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.model.budget import Usage
from rm_gallery.core.model.client import complete
from rm_gallery.core.model.openai import (
    NUMBERS,
    Access,
    OpenaiEndpoint,
    merged_headers,
    token_count,
    value_at,
)
from rm_gallery.core.model.transport import Headers, Json, Seconds, check_url, decoded
from rm_gallery.core.score import CAUSES, Score, Status, scored
from rm_gallery.core.utils.errors import (
    ConfigError,
    DeadlineExceeded,
    ProviderError,
    ScoreError,
)
from rm_gallery.core.utils.shown import one_line

Scores: TypeAlias = list[Score[float]]
EndpointName = Literal[
    "vllm/classify", "vllm/score", "vllm/rerank", "vllm/pooling",
    "sglang/classify", "sglang/rerank", "sglang/score",
    "tei/rerank", "tei/predict",
]  # fmt: skip
Way = Literal["auto", "messages", "text", "pair"]


class Layout(NamedTuple):
    """How one endpoint is asked and how it answers."""

    path: str
    asks: Mapping[str, Mapping[str, Any]]
    """By what it takes, the usual first: the fields of the body, each with the name of the value that
    stands there, or a list of such names. It takes the turns (the server applies its chat template),
    one text, or question and answer apart.
    """
    numbers: str
    """Where the numbers stand, as for `value_at`: one score, or else rows; empty for entries with
    label and score.
    """
    offered_as: str = ""
    """The type of model by which TEI says that it has this endpoint."""


_TURNS = {
    "messages": {"messages": "messages"},
    "text": {"input": "input", "add_special_tokens": "bare"},
}
_DOCUMENT = {"pair": {"query": "query", "documents": ["answer"]}}
LAYOUTS = {
    "vllm/classify": Layout("/classify", _TURNS, "data * probs"),
    "vllm/pooling": Layout("/pooling", _TURNS, "data * data"),
    "vllm/score": Layout(
        "/score", {"pair": {"text_1": "query", "text_2": "answer"}}, "data * score"
    ),
    "vllm/rerank": Layout("/rerank", _DOCUMENT, "results * relevance_score"),
    "sglang/classify": Layout("/classify", {"text": {"text": "input"}}, "embedding|* embedding"),
    "sglang/rerank": Layout(
        "/v1/rerank",
        _DOCUMENT,
        "results * score|* score|results * relevance_score|* relevance_score",
    ),
    "sglang/score": Layout(
        "/v1/score",
        {
            "pair": {
                "query": "query",
                "items": ["answer"],
                "label_token_ids": "labels",
                "apply_softmax": "yes",
                "item_first": "no",
            }
        },
        "scores *",
    ),
    "tei/rerank": Layout(
        "/rerank",
        {"pair": {"query": "query", "texts": ["answer"], "raw_scores": "raw"}},
        "* score",
        offered_as="reranker",
    ),
    "tei/predict": Layout(
        "/predict",
        {
            "pair": {"inputs": ["query", "answer"], "raw_scores": "raw"},
            "text": {"inputs": "input", "raw_scores": "raw"},
        },
        "",
        "classifier",
    ),
}
"""The endpoints; of several that a server has, the first is asked."""
_TOKENS = "usage prompt_tokens|meta_info prompt_tokens|0 meta_info prompt_tokens"
_SERVES = {
    "vllm": ("/v1/models", "data 0 id", "data 0 root"),
    "sglang": ("/get_model_info", "model_path", "weight_version"),
    "tei": ("/info", "model_id", "model_sha"),
}
"""By server, the path that says which model it serves, and where the names stand."""
_MARKS = (
    ("tei", "/info", "model_type", dict),
    ("sglang", "/get_model_info", "model_path", str),
    ("sglang", "/model_info", "model_path", str),
    ("vllm", "/version", "version", str),
)
"""What tells a server: at which path it says what."""
PATIENCE_SECONDS = 10.0
"""How long a server may take to say what it is."""
_ABSENT = (400, 404, 405, 422, 501)
"""Statuses by which a server says that it has no such path."""


class Numbers(NamedTuple):
    """What a server gave for one input: rows of numbers, one row or one per token or step, and the
    names of its columns.
    """

    rows: list[list[float]]
    names: Sequence[str] = ()
    input_tokens: int = 0
    """Tokens of the input; 0 where the server does not say."""


_TAIL = re.compile("(?<![:/])(?:/v2)?(?:/v1)?(?:/(classify|pooling|score|rerank|predict))?/*$")


def split_url(url: str) -> tuple[str, str]:
    """The server's base URL and the endpoint its path ends with (classify, score, …), empty where
    it names none.
    """
    base, named, _ = _TAIL.split(url, 1)
    return base, named or ""


_asked: dict[object, asyncio.Future[Any]] = {}
library_loop.after_fork(_asked.clear)


class ScoringEndpoint(OpenaiEndpoint):
    """A server that gives scores: what it says of itself, and faults of its answers."""

    async def once(self, what: str, ask: Callable[..., Any], *given: Any) -> Any:
        """What a server says of itself, asked for once per process; again where it did not answer."""
        key = (self.route(), what)
        asked = _asked.get(key)
        if not asked or asked.cancelled() or (asked.done() and asked.exception()):
            asked = _asked[key] = asyncio.ensure_future(ask(*given))
        return await asyncio.shield(asked)

    async def said(self, path: str, timeout: Seconds, at: str = "") -> Any:
        """What a server says of itself at a path, whole or what stands there at one of `value_at`;
        None where it has none, by a status or a page.
        """
        try:
            content = await self.content(path, timeout)
        except ProviderError as error:
            if error.status not in _ABSENT:
                raise
            return None
        with suppress(ValueError):
            return value_at(decoded(content), at)
        return None

    def number(self, value: Any) -> float:
        """A finite number; ValueError for what is none, ScoreError for NaN and infinity."""
        if type(value) not in NUMBERS:
            raise ValueError("something that is no number")
        if not math.isfinite(value):
            raise ScoreError(f"{self.endpoint_key()} gave {value}, which is no score.")
        return float(value)


class ServedScorer(ScoringEndpoint):
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

    async def ascore(self, way: Way, given: Json) -> Numbers:
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
        asked = {
            **self.extra_body,
            "model": self.model or await library_loop.bridge(self._serves()),
            "endpoint": self.endpoint or self.named,
            "raw": self.raw,
            "way": way,
            **({"labels": self.label_token_ids} if self.label_token_ids else {}),
            **given,
        }
        return Numbers(*await library_loop.bridge(complete(self, asked)))

    def way_of(self, kind: str, way: Way) -> str:
        """How the endpoint is asked; ConfigError when it is not asked in this way."""
        takes = list(LAYOUTS[kind].asks)
        if way == "auto" and takes[0] != "text":
            return takes[0]
        # nobody but the user knows by which template a text is to be written
        if way not in takes:
            advice = {
                "text": "give the model's own with chat_template= (Jinja text or a .jinja file), "
                "or chat_template=plain"
            }.get(takes[0], f"chat_template={takes[0]}")
            raise ConfigError(
                f"{self.endpoint_key()}: {kind} takes {' or '.join(takes)}, not {way}; {advice}."
            )
        return way

    async def kind(self, timeout: Seconds = None) -> str:
        """Server and endpoint, such as vllm/classify: the one that was named, else what the server
        says it is.
        """
        return self.endpoint or await self.once(f"kind {self.named}", self._who, timeout)

    async def _serves(self) -> str:
        """The model that a server with one model serves, so that cached numbers of another one are
        not taken for its own.

        Empty where it does not say, or does not answer at the moment: the call itself then waits
        for it.
        """
        with suppress(ProviderError):
            path, *names = _SERVES[(await self.kind(PATIENCE_SECONDS)).partition("/")[0]]
            info = await self.once(path, self.said, path, PATIENCE_SECONDS)
            return " ".join(str(found)[:300] for name in names if (found := value_at(info, name)))
        return ""

    async def _who(self, timeout: Seconds) -> str:
        for server, path, mark, what in _MARKS:  # noqa: B007
            offers = await self.said(path, timeout, mark)
            if isinstance(offers, what):
                break
        else:
            raise ConfigError(
                f"{self.endpoint_key()} does not say whether it is vLLM, SGLang or TEI; name its "
                f"endpoint with endpoint=, one of {', '.join(get_args(EndpointName))}."
            )
        if self.named:
            offers = [f"/{self.named}"]
        elif server == "vllm":
            offers = await self.said("/openapi.json", timeout, "paths")
        kinds = [kind for kind in LAYOUTS if kind.startswith(server)]
        for kind in kinds:
            marks = {kind.removeprefix(server), LAYOUTS[kind].offered_as}
            if not isinstance(offers, list | dict) or marks.intersection(offers):
                return kind
        raise ConfigError(
            f"{self.endpoint_key()} is {server}, and it has no endpoint "
            f"{self.named and f'/{self.named} '}for scores; name one that it has with endpoint=, "
            f"such as {kinds[0]}."
        )

    async def attempt(self, payload: Json, timeout: Seconds) -> Any:
        """One POST to the endpoint, in its own layout; which one it is, and what it gave."""
        kind = await self.kind(timeout)
        layout = LAYOUTS[kind]
        fields = layout.asks[self.way_of(kind, payload["way"])]
        if kind == "sglang/score" and "labels" not in payload:
            raise ConfigError(
                "sglang/score gives probabilities of tokens: name them with label_token_ids=[…]."
            )
        # a chat template writes the special tokens itself
        values = {**payload, "bare": not payload.get("templated"), "yes": True, "no": False}
        body = {
            field: values[name] if isinstance(name, str) else [values[each] for each in name]
            for field, name in fields.items()
        }
        if kind.startswith("vllm") and self.raw:
            body["use_activation"] = False
        if self.model and not kind.startswith("tei"):
            body["model"] = self.model
        return kind, await self.request(layout.path, {**body, **self.extra_body}, timeout)

    def read(self, raw: Any, payload: Json) -> Numbers:
        """The numbers of a reply, finite and in the layout of its endpoint."""
        kind, reply = raw
        place, names = LAYOUTS[kind].numbers, list[str]()
        with self.layout_of(kind, reply):
            rows = value_at(reply, place)
            if place.endswith("score"):
                rows = [[rows]]
            # one row per token or step, or one per input
            elif place not in ("data * data", "") or not isinstance(rows[0], list):
                rows = [rows]
            if not place:
                names = [one_line(str(entry["label"]), 300) for entry in rows[0]]
                rows = [[entry["score"] for entry in rows[0]]]
            numbers = [list(map(self.number, row)) for row in rows]
            [width] = set(map(len, numbers))  # one for all
            if not width or len(set(names)) < len(names):
                raise ValueError("no numbers, or one name for two of them")
        return Numbers(numbers, names, token_count(value_at(reply, _TOKENS)))

    def kept(self, raw: Json, reply: Any) -> bytes | None:
        """Rows, names and tokens."""
        return orjson.dumps(list(reply))

    def restored(self, stored: bytes) -> Numbers:
        """What was kept; ValueError for anything else."""
        rows, names, tokens = orjson.loads(stored)
        return Numbers(rows, names, tokens)


TOKEN_VARIABLE = "RM_GALLERY_TOKEN"
"""Environment variable with the bearer token of reward servers."""
_KINDS = {"rewards": "reward", "evaluations": "evaluator"}


def split_reward_url(url: str, named: str) -> tuple[str, str]:
    """The server's base URL and the target that a reward's URL names:
    http://host:8000/v1/rewards/NAME or …/evaluations/ID.

    Raises ConfigError, with `named` for where the URL came from, when it names none.
    """
    parts = re.fullmatch("(.+)/v1/(rewards|evaluations)/([^/]+)", check_url(url, named))
    if parts is None:
        raise ConfigError(
            f"{named} names no reward: found {url[:200]!r}; give http://HOST:PORT/v1/rewards/NAME, "
            f"or /v1/evaluations/ID for a deployed evaluator."
        )
    return parts[1], f"{_KINDS[parts[2]]}:{unquote(parts[3])}"


class RewardServer(ScoringEndpoint):
    """One reward or evaluator of a server, which `model` names: `reward:NAME` or `evaluator:ID`.

    The token is `api_key`, else RM_GALLERY_TOKEN; a key of OpenAI is never sent. Answers are not
    cached unless `cache` says so: what stands behind a name may be deployed anew.
    """

    key_variable = TOKEN_VARIABLE
    # the server says the rest itself
    hints = {401: f"check the token, or {TOKEN_VARIABLE}"}

    cache: bool | None = False
    max_outage: float = Field(default=30.0, ge=0)

    async def ascore(self, items: Sequence[Json]) -> Scores:
        """What the server says of the items, which are those of its own format, in one request.

        Raises:
            ConfigError: a URL that is none. ProviderError: no usable answer, or a request that was
                refused.
            RequestError: an item that cannot be written as JSON. DeadlineExceeded, BudgetExceeded.
        """
        asked: Json = {"target": self.model, "items": list(items)}
        if self.extra_body:
            asked["extra"] = self.extra_body
        return list(await library_loop.bridge(complete(self, asked)))

    async def aget(self, path: str) -> Any:
        """What a GET gives, such as the list of rewards; once, without a retry."""
        return await library_loop.bridge(self.request(path, None, self.timeout))

    async def attempt(self, payload: Json, timeout: Seconds) -> Json:
        """One POST of one item or of several."""
        kind, _, name = self.model.partition(":")
        path = "/v1/rewards/{}" if kind == "reward" else "/v1/evaluations/{}/outcome"
        path, items = path.format(quote(name, safe="")), payload["items"]
        try:
            if len(items) != 1:
                body = {"items": items, **self.extra_body}
                return await self.post(f"{path}/batch", body, timeout)
            entry = await self.request(path, {**items[0], **self.extra_body}, timeout)
            return {"results": [entry]}
        except ProviderError as error:
            if error.status != 504:
                raise
            # asked again it would take as long again
            raise DeadlineExceeded(f"{self.endpoint_key()} ran out of time: {error}") from None

    def read(self, raw: Json, payload: Json) -> Scores:
        """The answers, one per item, with finite scores."""
        with self.layout_of("a reward server", raw):
            return [
                _Entry.model_validate(entry).to_score()
                for entry, _ in zip(raw["results"], payload["items"], strict=True)
            ]

    def kept(self, raw: Json, reply: Any) -> bytes | None:
        """Answers that all have a score."""
        if not all(each.ok for each in reply):
            return None
        return orjson.dumps([[each.value, each.reason, each.components] for each in reply])

    def restored(self, stored: bytes) -> Scores:
        """What was kept."""
        with self.layout_of("a reward server", stored):
            return [scored(*each) for each in orjson.loads(stored)]

    def usage(self, reply: Any, expected_input: int) -> Usage:
        """One call; tokens are the server's own matter."""
        return Usage(calls=1)

    def headers(self, access: Access) -> Headers:
        """As for every endpoint, with the seconds that it has."""
        # a little less than is waited for, so that its own word about it arrives
        patience = f"{max(0.9 * self.timeout, self.timeout - 5):g}"
        return merged_headers({"X-Timeout-Seconds": patience}, super().headers(access))


class _Entry(BaseModel):
    """One answer of a reward server."""

    status: Status
    score: Annotated[FiniteFloat, Field(strict=True)] | None
    message: Any
    reason: Any
    components: dict[str, FiniteFloat]
    cause: Any = None

    def to_score(self) -> Score[float]:
        if (self.score is None) == (self.status == "scored"):
            raise ValueError("status and score do not fit")
        # a server of an earlier version says nothing of it: then it is the endpoint that knows, and
        # did not tell
        return Score(
            self.score,
            str(self.message),
            self.components,
            self.status,
            None if self.score is not None else self.cause if self.cause in CAUSES else "endpoint",
            str(self.reason),
        )
