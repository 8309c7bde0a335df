"""A local server that scores as vLLM, SGLang or Text Embeddings Inference would, for tests; on a
thread of its own.

The score of an input is `score_of` its last text, before sigmoid; a server asked without
`use_activation: false` or `raw_scores: true` squashes it, as the real ones do.
"""

from __future__ import annotations

import asyncio
import json
import math
import threading
from collections.abc import Callable
from typing import Any

from aiohttp import web

Answer = Callable[[str, dict[str, Any], Any], Any]


def score_of(text: str) -> float:
    """The planted score of a text: higher for longer ones."""
    return len(text) / 10 - 1


def squashed(value: float) -> float:
    return 1 / (1 + math.exp(-value))


class ScoringServer:
    """A running server of one kind; `calls` holds (path, body) of every POST, `asked` the paths of
    GETs.

    `statuses` are answered first, one per POST, before it serves. `answer(path, body, usual)` may
    put something else in place of the usual reply. `offers` are vLLM's routes, `type_` is TEI's
    model type, `labels` make a head of several, `unknown` is the status of a GET for what it does
    not know, and `listed` what vLLM says it serves.
    """

    def __init__(
        self,
        kind: str = "vllm",
        *,
        answer: Answer | None = None,
        statuses: list[int] | None = None,
        offers: tuple[str, ...] = ("classify",),
        type_: str = "reranker",
        labels: tuple[str, ...] = (),
        key: str | None = None,
        unknown: int = 404,
        listed: Any = None,
    ) -> None:
        self.kind, self.answer, self.statuses, self.offers = (
            kind,
            answer,
            list(statuses or ()),
            offers,
        )
        self.type, self.labels, self.key, self.unknown, self.listed = (
            type_,
            labels,
            key,
            unknown,
            listed,
        )
        self.model = "some/model"
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.asked: list[str] = []
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        assert self._ready.wait(10)
        self.url = f"http://127.0.0.1:{self.port}"

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._start())
        self._ready.set()
        self._loop.run_forever()
        self._loop.run_until_complete(self._runner.cleanup())
        self._loop.close()

    async def _start(self) -> None:
        app = web.Application()
        app.router.add_get("/{path:.*}", self._get)
        app.router.add_post("/{path:.*}", self._post)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]

    def __enter__(self) -> ScoringServer:
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    async def _get(self, request: web.Request) -> web.Response:
        self.asked.append(request.path)
        known: dict[tuple[str, str], Any] = {
            ("vllm", "/version"): {"version": "0.16.0"},
            ("vllm", "/openapi.json"): {"paths": {f"/{path}": {} for path in self.offers}},
            ("vllm", "/v1/models"): {
                "data": [{"id": self.model}] if self.listed is None else self.listed
            },
            ("sglang", "/get_model_info"): {"model_path": self.model, "is_generation": False},
            ("tei", "/info"): {"model_id": self.model, "model_type": {self.type: {"id2label": {}}}},
        }
        found = known.get((self.kind, request.path))
        return (
            web.json_response(found)
            if found is not None
            else web.Response(status=self.unknown, text="Not Found")
        )

    async def _post(self, request: web.Request) -> web.Response:
        body = json.loads(await request.read())
        self.calls.append((request.path, body))
        if self.key is not None and request.headers.get("Authorization") != f"Bearer {self.key}":
            return web.json_response({"error": "no key"}, status=401)
        if self.statuses:
            return web.json_response({"error": {"message": "not now"}}, status=self.statuses.pop(0))
        served = getattr(self, f"_{self.kind}_{request.path.rpartition('/')[2]}", None)
        if served is None:
            return web.json_response({"detail": "Not Found"}, status=404)
        usual = served(body)
        found = usual if self.answer is None else self.answer(request.path, body, usual)
        if isinstance(found, web.Response):
            return found
        return web.Response(text=json.dumps(found), content_type="application/json")

    def _numbers(self, text: str, raw: bool) -> list[float]:
        values = [score_of(text) + place for place in range(len(self.labels) or 1)]
        return values if raw else [squashed(value) for value in values]

    @staticmethod
    def _text(body: dict[str, Any]) -> str:
        return str(body["messages"][-1]["content"] if "messages" in body else body["input"])

    def _vllm_classify(self, body: dict[str, Any]) -> Any:
        probs = self._numbers(self._text(body), body.get("use_activation") is False)
        return {
            "data": [{"index": 0, "label": "LABEL_0", "probs": probs}],
            "usage": {"prompt_tokens": 7},
        }

    def _vllm_pooling(self, body: dict[str, Any]) -> Any:
        if "<extra_0>" in self._text(body):
            steps = self._text(body).split("<extra_0>")[:-1]
            rows = [[1 - squashed(score_of(step)), squashed(score_of(step))] for step in steps]
        else:
            rows = [[0.0], self._numbers(self._text(body), body.get("use_activation") is False)]
        return {
            "data": [{"index": 0, "object": "pooling", "data": rows}],
            "usage": {"prompt_tokens": 7},
        }

    def _vllm_score(self, body: dict[str, Any]) -> Any:
        (score,) = self._numbers(body["text_2"], body.get("use_activation") is False)
        return {
            "data": [{"index": 0, "object": "score", "score": score}],
            "usage": {"prompt_tokens": 7},
        }

    def _vllm_rerank(self, body: dict[str, Any]) -> Any:
        (score,) = self._numbers(body["documents"][0], body.get("use_activation") is False)
        return {"results": [{"index": 0, "document": {"text": "…"}, "relevance_score": score}]}

    def _sglang_classify(self, body: dict[str, Any]) -> Any:
        return {"embedding": self._numbers(body["text"], True), "meta_info": {"prompt_tokens": 7}}

    def _sglang_rerank(self, body: dict[str, Any]) -> Any:
        return [
            {"score": self._numbers(body["documents"][0], True)[0], "document": "…", "index": 0}
        ]

    def _sglang_score(self, body: dict[str, Any]) -> Any:
        share = squashed(score_of(body["items"][0]))
        return {"scores": [[share, 1 - share]], "model": "m", "usage": {"prompt_tokens": 7}}

    def _tei_rerank(self, body: dict[str, Any]) -> Any:
        return [{"index": 0, "score": self._numbers(body["texts"][0], body["raw_scores"])[0]}]

    def _tei_predict(self, body: dict[str, Any]) -> Any:
        given = body["inputs"]
        values = self._numbers(given if isinstance(given, str) else given[1], body["raw_scores"])
        entries = [
            {"label": label, "score": value}
            for label, value in zip(self.labels or ("LABEL_0",), values, strict=True)
        ]
        return sorted(entries, key=lambda entry: -float(entry["score"]))
