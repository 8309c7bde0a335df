"""What the models make of replies, errors, vectors, names and URLs, as golden files say."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from rm_gallery import FakeLLM, OpenaiLLM, ProviderError, RMGalleryError
from rm_gallery.core.model import transport
from rm_gallery.core.model.base import resolve_llm
from rm_gallery.core.model.embeddings import BaseEmbeddings, resolve_embeddings
from rm_gallery.core.model.openai import provider_error, to_response
from rm_gallery.core.model.reward_servers import (
    RewardServer,
    ServedScorer,
    split_reward_url,
    split_url,
)
from rm_gallery.core.model.transport import HttpAnswer, check_url, decoded
from rm_gallery.core.utils.shown import is_credential, one_line
from tests.golden.golden import Line, kinds, unnamed
from tests.model.test_call import picky

golden = kinds("model")


def said(error: BaseException) -> Line:
    kind = error.kind if isinstance(error, ProviderError) else type(error).__name__
    return {"error": f"{kind}: {error}"}


@golden("text", "ended", "also", "tokens", "booked", "error")
def test_replies(line: Line) -> Line:
    try:
        reply = to_response(line["raw"], lambda: "http://x/v1")
    except ProviderError as error:
        return said(error)
    usage, book, message = reply.usage, FakeLLM().usage(reply, 7), reply.message
    also: dict[str, Any] = {
        "reasoning": message.reasoning_content,
        "finish": reply.finish_reason,
        "model": reply.model,
    }
    also |= {
        "choices": reply.choices,
        "logprobs": reply.logprobs,
        "kept": message.additional_kwargs,
    }
    also["tools"] = [call.function.name for call in message.tool_calls or ()]
    return {
        "text": reply.text,
        "ended": reply.ended,
        "also": {name: value for name, value in also.items() if value},
        "tokens": [
            usage.input_tokens,
            usage.output_tokens,
            usage.cached_tokens,
            usage.reasoning_tokens,
        ],
        "booked": [book.input_tokens, book.output_tokens, book.calls],
    }


@golden("kind", "status", "wait", "message", "filtered")
def test_errors(line: Line) -> Line:
    body = line["body"] if isinstance(line["body"], str) else orjson.dumps(line["body"]).decode()
    error = provider_error(
        "it", HttpAnswer(line["answered"], line.get("headers", {}), body.encode())
    )
    told = {
        "kind": error.kind,
        "status": error.status,
        "wait": error.retry_after,
        "message": str(error),
    }
    return {**told, "filtered": error.filtered or None}


@golden("value")
def test_bodies(line: Line) -> Line:
    try:
        return {
            "value": decoded(
                "".join(text * times for text, times in line["body"]).encode("latin-1")
            )
        }
    except ValueError:
        return {"value": "no JSON"}


@golden("shown")
def test_texts(line: Line) -> Line:
    return {"shown": one_line("".join(text * times for text, times in line["text"]), 300)}


@golden("hidden")
def test_credentials(line: Line) -> Line:
    return {"hidden": [name for name in line["names"] if is_credential(name)]}


class _Scripted(BaseEmbeddings):
    """Answers with a given body."""

    model: str = "scripted"
    cache: bool | None = False
    max_attempts: int = 1
    body: dict[str, Any]

    def endpoint_key(self) -> str:
        return "scripted"

    async def attempt(self, payload: dict[str, Any], timeout: float | None) -> dict[str, Any]:
        return self.body


@golden("vectors", "error")
def test_vectors(line: Line) -> Line:
    try:
        return {"vectors": _Scripted(body=line["body"]).embed(["a", "b"])}
    except ProviderError as error:
        return said(error)


@golden("model", "error")
def test_names(line: Line) -> Line:
    """Which model a name or a dict of settings means."""
    try:
        found = (resolve_llm if line["what"] == "llm" else resolve_embeddings)(line["spec"])
    except RMGalleryError as error:
        return said(error)
    return {"model": f"{type(found).__name__} {found.model}"}


@golden("found", "error")
def test_urls(line: Line) -> Line:
    try:
        if line["of"] == "a scoring server":
            return {"found": list(split_url(line["url"]))}
        if line["of"] == "a reward":
            return {"found": list(split_reward_url(line["url"], "it"))}
        return {"found": [check_url(line["url"], "it")]}
    except RMGalleryError as error:
        return said(error)


@golden("url", "query", "headers", "body", "text", "error")
def test_requests(line: Line) -> Line:
    """What is asked with these settings, and what is told of the answer."""
    told: Line = {}

    async def exchange(
        endpoint: transport.HttpEndpoint, path: str, body: bytes, headers: dict[str, str], *_: Any
    ) -> HttpAnswer:
        told.update(url=endpoint.url + path, query=dict(endpoint.query), body=orjson.loads(body))
        told["headers"] = {name.lower(): value for name, value in headers.items()}
        words = line.get("says", "hello")
        status = line.get("status", 200)
        answer = (
            {"choices": [{"message": {"content": words}}]}
            if status == 200
            else {"error": {"message": words}}
        )
        return HttpAnswer(status, {}, orjson.dumps(answer))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transport, "exchange", exchange)
        for name, value in line.get("env", {}).items():
            patch.setenv(name, value)
        settings = {
            "model": "m",
            "base_url": "http://h/v1",
            "max_attempts": 1,
            "cache": False,
            **line["settings"],
        }
        try:
            told["text"] = OpenaiLLM(**settings).chat("hi", **line.get("changes", {})).text
        except RMGalleryError as error:
            told |= said(error)
    return {name: told.get(name) for name in line["of"].split()}


@golden("sent", "made", "error")
def test_refused_fields(line: Line) -> Line:
    """What is sent in the end to an endpoint that refuses fields, and in how many requests for each
    of two questions.
    """
    llm, made = (
        picky(refuses=line["refuses"], status=line["status"], **line["settings"]),
        list[int](),
    )
    told: Line = {}
    try:
        for question in ("one", "two"):
            before = len(llm._sent)
            llm.chat(question)
            made.append(len(llm._sent) - before)
    except ProviderError as error:
        told, made = said(error), [len(llm._sent)]
    sent = {
        name: value for name, value in llm._sent[-1].items() if name not in ("model", "messages")
    }
    return {"sent": sent, "made": made, **told}


@golden("same")
def test_routes(line: Line) -> Line:
    """Whether two models share replies in the cache, going by where they ask."""
    one, other = (
        OpenaiLLM("m", **{"base_url": "http://h/v1", **line[which]}).route() for which in "ab"
    )
    return {"same": one == other}


@golden("same")
def test_accounts(line: Line) -> Line:
    one, other = (
        OpenaiLLM("m", **{"base_url": "http://h/v1", **line[which]}).account() for which in "ab"
    )
    return {"same": one == other}


@golden("rows", "names", "tokens", "error")
def test_scores_of_servers(line: Line) -> Line:
    """The numbers in an answer of a scoring server."""
    try:
        found = ServedScorer(base_url="http://h").read((line["kind"], line["found"]), {})
    except RMGalleryError as error:
        return said(error)
    return {
        "rows": found.rows,
        "names": list(found.names) or None,
        "tokens": found.input_tokens or None,
    }


@golden("answers", "kept", "error")
def test_answers_of_rewards(line: Line) -> Line:
    server = RewardServer(model="reward:r", base_url="http://h")
    try:
        found = server.read({"results": line["results"]}, {"items": [{}] * line.get("items", 1)})
    except RMGalleryError as error:
        return said(error)
    kept = server.kept({}, found)
    assert kept is None or server.restored(kept) == found
    return {"answers": [each.to_dict() for each in found], "kept": kept is not None}


def test_every_file_has_its_test() -> None:
    assert unnamed("model", globals()) == {"every_file_has_its_test"}
