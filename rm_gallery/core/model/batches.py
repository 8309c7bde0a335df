"""Calls of a run through a provider's batch API: collected into rounds, sent as files, waited for
over restarts, at half the price.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.context import RunControl, RunStopped
from rm_gallery.core.engine.options import BATCH_PROVIDERS
from rm_gallery.core.model.message import text_of
from rm_gallery.core.model.model_call import BaseModelCall
from rm_gallery.core.model.openai import ODD_LAYOUT, OpenaiEndpoint, provider_error, value_at
from rm_gallery.core.model.storage import canonical_key
from rm_gallery.core.model.transport import HttpAnswer, Json
from rm_gallery.core.utils.errors import ConfigError, ProviderError, RMGalleryError
from rm_gallery.core.utils.file import AppendedFile, from_line, to_line
from rm_gallery.core.utils.log import logger

FILE_NAME = "batches.jsonl"
IDLE_SECONDS = 1.0
"""A round is sent when nobody has asked anything for so long: all who are in flight wait for it."""
FIRST_LOOK, LAST_LOOK, GROWTH = 1.0, 60.0, 1.5
MOST_SECONDS = 26 * 3600.0
"""Providers promise 24 hours; what is not done then is asked again."""
RESULT_BYTES = 1 << 30
HTTP_SECONDS = 600.0
Answer = Json | Exception
"""A raw answer in the chat layout, or why there is none."""
Answers = dict[str, Answer]
"""By custom id."""
_FORM = (
    b'--rm-gallery\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--rm-gallery\r\n'
    b'Content-Disposition: form-data; name="file"; filename="rm-gallery.jsonl"\r\n'
    b"Content-Type: application/jsonl\r\n\r\n%b\r\n--rm-gallery--\r\n"
)
"""Lines of JSON hold no line end of two bytes, so nothing in them ends a part."""


# -- providers -------------------------------------------------------------------------------------


class OpenaiBatches:
    """Files and batches of the OpenAI protocol, which several other providers speak, too; a provider
    with another protocol says here what differs.
    """

    path, most_requests, most_bytes = "/batches", BATCH_PROVIDERS["openai"], 190 << 20

    def at(self, llm: OpenaiEndpoint) -> OpenaiEndpoint:
        """The endpoint with what its batch API wants in every header."""
        return llm

    def line(self, custom_id: str, payload: Json) -> bytes:
        """One request as JSON; ProviderError for what the provider's batches do not take."""
        return orjson.dumps(
            {
                "custom_id": custom_id,
                "method": "POST",
                "url": "/v1/chat/completions",
                "body": payload,
            }
        )

    async def submit(self, llm: OpenaiEndpoint, lines: Iterable[bytes], token: str) -> Any:
        """Send a batch and give what it is; `token` marks it, where the provider has room for that."""
        kind = {"Content-Type": "multipart/form-data; boundary=rm-gallery"}
        file = await llm.request("/files", _FORM % b"\n".join(lines), HTTP_SECONDS, kind)
        batch = {
            "input_file_id": file["id"],
            "endpoint": "/v1/chat/completions",
            "completion_window": "24h",
            "metadata": {"rm_gallery": token},
        }
        return await llm.post(self.path, batch, HTTP_SECONDS)

    async def find(self, llm: OpenaiEndpoint, token: str) -> str:
        """The id of a batch with this mark among the latest hundred; empty where there is none,
        which is always so where the provider has no room for marks.
        """
        listed = await llm.request(f"{self.path}?limit=100", None, HTTP_SECONDS)
        marks = {value_at(each, "metadata rm_gallery"): each["id"] for each in listed["data"]}
        return str(marks.get(token, ""))

    def results(self, batch: Json) -> list[str] | None:
        """Paths of what came of a batch, None while it is being worked on; ProviderError where it
        was refused.
        """
        if batch["status"] == "failed":
            faults = value_at(batch, "errors data") or ()
            why = "; ".join(str(each.get("message")) for each in faults) or "no reason given"
            raise ProviderError(f"The batch {batch['id']} was refused: {why}.", kind="fatal")
        if batch["status"] not in ("completed", "expired", "cancelled"):
            return None
        files = map(batch.get, ("output_file_id", "error_file_id"))
        return [f"/files/{file}/content" for file in filter(None, files)]

    def row(self, row: Any) -> tuple[Any, Any]:
        """Status and body, in the chat layout, of one result."""
        return value_at(row, "response status_code") or 504, value_at(row, "response body|error")

    async def look(self, llm: OpenaiEndpoint, batch: str) -> Answers | None:
        """By custom id, what came of a batch, None while it is being worked on; ids that are
        missing got no result. They come in any order, some of them twice.
        """
        paths = self.results(await llm.request(f"{self.path}/{batch}", None, HTTP_SECONDS))
        if paths is None:
            return None
        answers: Answers = {}
        for path in paths:
            content = await llm.content(path, HTTP_SECONDS, RESULT_BYTES)
            for row in map(orjson.loads, filter(bytes.strip, content.splitlines())):
                status, body = self.row(row)
                if status != 200 or not isinstance(body, dict):
                    reply = HttpAnswer(status, {}, orjson.dumps(body))
                    body = provider_error(llm.endpoint_key(), reply)
                answers.setdefault(row["custom_id"], body)
        return answers


class AnthropicBatches(OpenaiBatches):
    """Message batches of Anthropic; requests and answers are put into its layout and back."""

    path = "/messages/batches"
    most_requests, most_bytes = BATCH_PROVIDERS["anthropic"], 240 << 20

    def at(self, llm: OpenaiEndpoint) -> OpenaiEndpoint:
        """With its version and its header of the key."""
        key = llm.key_header("x-api-key")
        headers = {**llm.default_headers, "anthropic-version": "2023-06-01", **key}
        return llm.model_copy(update={"default_headers": headers})

    def line(self, custom_id: str, payload: Json) -> bytes:
        """In its layout."""
        return orjson.dumps({"custom_id": custom_id, "params": to_messages(payload)})

    async def submit(self, llm: OpenaiEndpoint, lines: Iterable[bytes], token: str) -> Any:
        """In one request, which has no room for the token."""
        whole = b'{"requests":[%b]}' % b",".join(lines)
        return await llm.request(self.path, whole, HTTP_SECONDS, {})

    def results(self, batch: Json) -> list[str] | None:
        """One file; a batch is refused at once or never."""
        if batch["processing_status"] != "ended":
            return None
        return [f"{self.path}/{batch['id']}/results"]

    def row(self, row: Any) -> tuple[Any, Any]:
        """A message, an error of the request or of the endpoint, or how it ended without either."""
        result = row["result"]
        if result["type"] == "succeeded":
            return 200, to_chat(result["message"])
        error = value_at(result, "error error|error", result)
        return 400 if error["type"] == "invalid_request_error" else 500, error


_PROVIDERS = {"openai": OpenaiBatches(), "anthropic": AnthropicBatches()}
_SYSTEM = ("system", "developer")
_TAKEN = frozenset(
    "model messages max_tokens max_completion_tokens temperature top_p stop tools tool_choice n "
    "seed".split()
)


def to_messages(payload: Json) -> Json:
    """A chat request in Anthropic's layout; ProviderError for fields that its batches do not know."""
    if unknown := sorted(payload.keys() - _TAKEN):
        raise ProviderError(
            f"A batch of Anthropic takes no {', '.join(unknown)}; ask the judge for text or a "
            f"tool call (channel='text').",
            kind="fatal",
        )
    stop, turns = payload.get("stop"), payload["messages"]
    system = [text_of(turn["content"]) for turn in turns if turn["role"] in _SYSTEM]
    tools = [
        {
            "name": function["name"],
            "description": function.get("description", ""),
            "input_schema": function["parameters"],
        }
        for function in (tool["function"] for tool in payload.get("tools") or ())
    ]
    request = {
        "model": payload["model"],
        "system": "\n\n".join(filter(None, system)),
        "messages": [
            {"role": turn["role"], "content": _content(turn["content"])}
            for turn in turns
            if turn["role"] not in _SYSTEM
        ],
        "max_tokens": payload.get("max_tokens") or payload.get("max_completion_tokens") or 4096,
        "temperature": payload.get("temperature"),
        "top_p": payload.get("top_p"),
        "stop_sequences": [stop] if isinstance(stop, str) else stop,
        "tools": tools,
        "tool_choice": tools and {"type": "tool", "name": tools[0]["name"]},
    }
    return {name: value for name, value in request.items() if value not in (None, "", [])}


def _content(content: Any) -> Any:
    """A message's text, or its texts and pictures in Anthropic's layout."""
    if isinstance(content, list):
        return [*map(_content, content)]
    if not isinstance(content, dict) or content["type"] != "image_url":
        return content
    url = content["image_url"]["url"]
    kind, _, data = url.removeprefix("data:").partition(";base64,")
    inside = {"type": "base64", "media_type": kind, "data": data}
    return {"type": "image", "source": inside if data else {"type": "url", "url": url}}


def to_chat(message: Json) -> Json:
    """Anthropic's answer in the chat layout."""
    fresh, kept, stored, written = (
        value_at(message, f"usage {name}_tokens") or 0
        for name in ("input", "cache_read_input", "cache_creation_input", "output")
    )
    answer: Json = {"content": ""}
    for block in message.get("content") or ():
        if block["type"] == "text":
            answer["content"] += block["text"]
        elif block["type"] == "tool_use":
            called = {"name": block["name"], "arguments": orjson.dumps(block["input"]).decode()}
            call = {"id": block["id"], "type": "function", "function": called}
            answer.setdefault("tool_calls", []).append(call)
    return {
        "model": message.get("model"),
        "choices": [{"message": answer, "finish_reason": message.get("stop_reason")}],
        "usage": {
            "prompt_tokens": fresh + kept + stored,
            "completion_tokens": written,
            "prompt_tokens_details": {"cached_tokens": kept},
        },
    }


# -- rounds ----------------------------------------------------------------------------------------


@dataclass
class _Round:
    """Requests of one endpoint and model that are sent together, and the batch they become."""

    token: str
    batch: str = ""
    """Its id; empty where it was sent and not noted."""
    lines: dict[str, bytes] = field(default_factory=dict)
    """By custom id, what is not sent yet."""
    size: int = 0
    asked: float = 0.0
    """When the last request was added; 0 once it is sent."""
    answers: asyncio.Task[Answers] | None = None


class BatchCalls:
    """The batches of one run, and who waits for what in them. Lives on the library's event loop.

    What is sent is noted in the run folder before and after: a run that is continued waits for the
    same batches. A request is known by a hash of it and by its number among equal ones, so that
    whoever asks it again finds its answer.
    """

    def __init__(self, provider: str, folder: str, on_sent: Callable[[str], None] | None) -> None:
        self._provider = _PROVIDERS[provider]
        self._on_sent = on_sent
        """Ends the run once a round is sent, where it is not to be waited for."""
        path = Path(folder, FILE_NAME)
        self._file = AppendedFile(path, 0o600)
        self._times = Counter[str]()
        self._collected: dict[Any, _Round] = {}
        self._tasks: list[asyncio.Task[Answers]] = []
        self._sent: dict[str, _Round] = {}
        """By custom id, the round it went with in an earlier part of the run."""
        rounds: dict[str, _Round] = {}
        for entry in filter(None, map(from_line, path.read_bytes().splitlines())):
            each = rounds.setdefault(entry["token"], _Round(entry["token"]))
            each.batch = entry.get("batch", "")
            self._sent |= dict.fromkeys(entry.get("requests", ()), each)

    async def ask(self, llm: OpenaiEndpoint, payload: Json) -> Json:
        """The raw answer to a request, once its batch is done; ProviderError as for a request of
        its own.
        """
        digest = canonical_key({"endpoint": llm.route(), "request": payload})[:48]
        custom_id = f"{digest}-{self._times[digest]}"
        self._times[digest] += 1
        each = self._sent.get(custom_id) or self._collect(llm, payload, custom_id)
        if each.answers is None:
            each.answers = asyncio.create_task(self._carry(self._provider.at(llm), each))
            self._tasks.append(each.answers)
        try:
            answers = await asyncio.shield(each.answers)
        except RMGalleryError as error:
            raise copy(error) from None  # all who wait have one of their own to change
        except ODD_LAYOUT as error:
            raise ProviderError(
                f"The provider's answer about a batch has another layout than expected "
                f"({error!r:.100}).",
                kind="fatal",
            ) from error
        finally:
            each.lines.pop(custom_id, None)  # what nobody waits for is not sent
        answer = answers.pop(custom_id, None) or ProviderError(
            "A request of a batch got no answer in time.", kind="transient"
        )
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _collect(self, llm: OpenaiEndpoint, payload: Json, custom_id: str) -> _Round:
        """The round that a request goes with."""
        provider, line = self._provider, self._provider.line(custom_id, payload)
        key = llm.route(), llm.account(), payload.get("model")
        each = self._collected.get(key)
        if (
            each is None
            or not each.asked
            or len(each.lines) >= provider.most_requests
            or each.size + len(line) > provider.most_bytes
        ):
            each = self._collected[key] = _Round(secrets.token_hex(12))
        each.lines[custom_id] = line
        each.size += len(line) + 1
        each.asked = time.monotonic()
        return each

    async def _carry(self, llm: OpenaiEndpoint, each: _Round) -> Answers:
        """Take a round to its answers, from wherever an earlier part of the run left it: sent once
        nobody adds to it, noted before and after, and waited for.
        """
        while (left := each.asked + IDLE_SECONDS - time.monotonic()) > 0:
            await asyncio.sleep(left)
        if each.asked:
            lines, each.lines, each.asked = each.lines, {}, 0.0
            if not lines:
                return {}
            self._note(each, requests=[*lines])
            sent = await self._provider.submit(llm, lines.values(), each.token)
            each.batch = str(sent["id"])
            self._note(each, batch=each.batch)
            message = (
                f"batch {each.batch} of {len(lines):,} requests is sent; the same command begun "
                f"again, without run.submit (submit=), collects it"
            )
            logger.info("{}", message)
            if self._on_sent is not None:
                self._on_sent(message)
                raise RunStopped(f"Not judged yet: {message}.")
            lines.clear()  # they may be many, and the wait long
        return await self._wait(llm, each)

    async def _wait(self, llm: OpenaiEndpoint, each: _Round) -> Answers:
        """Look until a batch is done."""
        wait, end, warned = FIRST_LOOK, time.monotonic() + MOST_SECONDS, False
        while time.monotonic() < end:
            try:
                if not each.batch:  # killed between sending it and noting its id
                    each.batch = await self._provider.find(llm, each.token)
                    if not each.batch:
                        break
                    self._note(each, batch=each.batch)
                if (answers := await self._provider.look(llm, each.batch)) is not None:
                    return answers
            except ProviderError as error:
                if error.kind == "fatal":
                    raise
                if not warned:
                    logger.warning("batch {}: {} It is looked for again.", each.batch, error)
                warned = True
            await asyncio.sleep(wait)
            wait = min(LAST_LOOK, GROWTH * wait)
        return {}

    def _note(self, each: _Round, **more: Any) -> None:
        self._file.write(to_line({"token": each.token, **more}))

    async def close(self) -> None:
        """Look no more; what was sent stays sent."""
        for task in self._tasks:
            task.cancel()
        self._file.close()


_open: dict[str, BatchCalls] = {}
"""By folder."""


def batches_of(run: RunControl, provider: str, folder: str, submit: bool) -> BatchCalls:
    """The batches of the run in this folder, until it ends."""
    if folder not in _open:
        while run.parent is not None and run.parent.batch is not None:
            run = run.parent
        _open[folder] = BatchCalls(provider, folder, run.stop if submit else None)
        run.hold("batches", lambda: partial(_close_batches, folder))
    return _open[folder]


def _close_batches(folder: str) -> None:
    calls = _open.pop(folder)
    if not library_loop.is_exiting():
        library_loop.submit(calls.close())


def with_batches(llm: BaseModelCall, provider: str) -> OpenaiEndpoint:
    """The model; ConfigError for one whose provider has no batches."""
    if not isinstance(llm, OpenaiEndpoint):
        raise ConfigError(
            f"batch={provider!r} needs a model of the OpenAI protocol; {type(llm).__name__} has no "
            f"batches. Leave it out."
        )
    return llm
