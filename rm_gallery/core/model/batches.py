"""Calls of a run through a provider's batch API: collected into rounds, sent as files, waited for
over restarts, at half the price.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import orjson

from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.context import RunStopped
from rm_gallery.core.engine.options import BATCH_PROVIDERS
from rm_gallery.core.model.model_call import BaseModelCall
from rm_gallery.core.model.openai_endpoint import OpenaiEndpoint
from rm_gallery.core.model.storage import canonical_key
from rm_gallery.core.model.transport import Reply, provider_error
from rm_gallery.core.utils.errors import ConfigError, ProviderError, logger
from rm_gallery.core.utils.file import AppendedFile, to_line

if TYPE_CHECKING:
    from rm_gallery.core.engine.context import RunControl

FILE_NAME = "batches.jsonl"
IDLE_SECONDS = 1.0
"""A round is sent when nobody has asked anything for so long: all who are in flight wait for it."""
FIRST_LOOK, LAST_LOOK, GROWTH = 1.0, 60.0, 1.5
MOST_SECONDS = 26 * 3600.0
"""Providers promise 24 hours; what is not done then is asked again."""
RESULT_BYTES = 1 << 30
HTTP_SECONDS = 600.0
BatchAnswers = Mapping[str, "dict[str, Any] | ProviderError"]
"""By custom id, the raw answer in the chat layout, or why there is none."""


class BatchProvider(ABC):
    """One provider's batch API."""

    most_requests: ClassVar[int]
    most_bytes: ClassVar[int]

    @abstractmethod
    def line(self, custom_id: str, payload: Mapping[str, Any]) -> bytes:
        """One request as JSON; ProviderError for what the provider's batches do not take."""

    @abstractmethod
    async def submit(self, llm: OpenaiEndpoint, lines: list[bytes], token: str) -> str:
        """Send a batch and give its id; `token` marks it, where the provider has room for that."""

    async def find(self, llm: OpenaiEndpoint, token: str) -> str | None:
        """The id of a batch with this mark, where the provider can tell."""
        return None

    @abstractmethod
    async def look(self, llm: OpenaiEndpoint, batch: str) -> BatchAnswers | None:
        """What came of a batch, None while it is being worked on; ids that are missing got no
        result.
        """


class OpenaiBatches(BatchProvider):
    """Files and batches of the OpenAI protocol, which several other providers speak, too."""

    most_requests, most_bytes = 50_000, 190 << 20

    def line(self, custom_id: str, payload: Mapping[str, Any]) -> bytes:
        """A line of the input file."""
        return orjson.dumps(
            {
                "custom_id": custom_id,
                "method": "POST",
                "url": "/v1/chat/completions",
                "body": payload,
            }
        )

    async def submit(self, llm: OpenaiEndpoint, lines: list[bytes], token: str) -> str:
        """Upload the file and make the batch."""
        mark = secrets.token_hex(16)
        parts = [
            f'--{mark}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'.encode(),
            f'--{mark}\r\nContent-Disposition: form-data; name="file"; '
            f'filename="rm-gallery.jsonl"\r\n'
            "Content-Type: application/jsonl\r\n\r\n".encode(),
            b"\n".join(lines),
            f"\r\n--{mark}--\r\n".encode(),
        ]
        kind = {"Content-Type": f"multipart/form-data; boundary={mark}"}
        file = await llm.send("/files", b"".join(parts), HTTP_SECONDS, kind)
        wanted = {
            "input_file_id": file["id"],
            "endpoint": "/v1/chat/completions",
            "completion_window": "24h",
            "metadata": {"rm_gallery": token},
        }
        made = await llm.post("/batches", wanted, HTTP_SECONDS)
        return str(made["id"])

    async def find(self, llm: OpenaiEndpoint, token: str) -> str | None:
        """Look through the latest hundred batches."""
        listed = await llm.request("/batches?limit=100", None, HTTP_SECONDS)
        matches = (
            each
            for each in listed.get("data", ())
            if (each.get("metadata") or {}).get("rm_gallery") == token
        )
        return next((str(each["id"]) for each in matches), None)

    async def look(self, llm: OpenaiEndpoint, batch: str) -> BatchAnswers | None:
        """The lines of the output file and of the error file, in any order."""
        state = await llm.request(f"/batches/{batch}", None, HTTP_SECONDS)
        status = state.get("status")
        if status == "failed":
            reasons = [
                each.get("message", "") for each in (state.get("errors") or {}).get("data") or ()
            ]
            raise ProviderError(
                f"The batch {batch} was refused: {'; '.join(reasons)[:300] or 'no reason given'}.",
                kind="fatal",
            )
        if status not in ("completed", "expired", "cancelled"):
            return None
        answers: dict[str, dict[str, Any] | ProviderError] = {}
        for file in (state.get("output_file_id"), state.get("error_file_id")):
            if file:
                content = await llm.content(f"/files/{file}/content", HTTP_SECONDS, RESULT_BYTES)
                for line in content.splitlines():
                    if line.strip():
                        entry = orjson.loads(line)
                        answers.setdefault(entry["custom_id"], self._read_entry(llm, entry))
        return answers

    def _read_entry(
        self, llm: OpenaiEndpoint, entry: Mapping[str, Any]
    ) -> dict[str, Any] | ProviderError:
        response, error = entry.get("response"), entry.get("error")
        body = response.get("body") if isinstance(response, dict) else None
        if (
            isinstance(response, dict)
            and response.get("status_code") == 200
            and isinstance(body, dict)
        ):
            return body
        if isinstance(response, dict):
            status = response.get("status_code")
            reply = Reply(status if isinstance(status, int) else 500, {}, orjson.dumps(body))
            return provider_error(llm.endpoint_key(), reply)
        code = error.get("code") if isinstance(error, dict) else None
        return ProviderError(
            f"A request of the batch got no answer ({code or 'no reason given'}).", kind="transient"
        )


class AnthropicBatches(BatchProvider):
    """Message batches of Anthropic; requests and answers are put into its layout and back."""

    most_requests, most_bytes = 100_000, 240 << 20
    headers: ClassVar[dict[str, str]] = {"anthropic-version": "2023-06-01"}

    def line(self, custom_id: str, payload: Mapping[str, Any]) -> bytes:
        """One of the batch's requests."""
        return orjson.dumps({"custom_id": custom_id, "params": to_messages(payload)})

    def _headers(self, llm: OpenaiEndpoint) -> dict[str, str]:
        return {**self.headers, **llm.key_header("x-api-key")}

    async def submit(self, llm: OpenaiEndpoint, lines: list[bytes], token: str) -> str:
        """Make the batch."""
        body = b'{"requests":[' + b",".join(lines) + b"]}"
        made = await llm.send("/messages/batches", body, HTTP_SECONDS, self._headers(llm))
        return str(made["id"])

    async def look(self, llm: OpenaiEndpoint, batch: str) -> BatchAnswers | None:
        """The lines of its results, in any order."""
        headers = self._headers(llm)
        state = orjson.loads(
            await llm.content(f"/messages/batches/{batch}", HTTP_SECONDS, None, headers)
        )
        if state.get("processing_status") != "ended":
            return None
        content = await llm.content(
            f"/messages/batches/{batch}/results", HTTP_SECONDS, RESULT_BYTES, headers
        )
        answers: dict[str, dict[str, Any] | ProviderError] = {}
        for line in content.splitlines():
            if line.strip():
                entry = orjson.loads(line)
                answers.setdefault(entry["custom_id"], self._read_entry(llm, entry["result"]))
        return answers

    def _read_entry(
        self, llm: OpenaiEndpoint, result: Mapping[str, Any]
    ) -> dict[str, Any] | ProviderError:
        if result.get("type") == "succeeded":
            return to_chat(result["message"])
        if result.get("type") == "errored":
            error = result.get("error") or {}
            error = error.get("error", error)
            invalid = error.get("type") == "invalid_request_error"
            return provider_error(
                llm.endpoint_key(),
                Reply(400 if invalid else 500, {}, orjson.dumps({"error": error})),
            )
        return ProviderError(
            f"A request of the batch got no answer ({result.get('type')}).", kind="transient"
        )


def to_messages(payload: Mapping[str, Any]) -> dict[str, Any]:
    """A chat request in Anthropic's layout; ProviderError for fields that its batches do not know."""
    known = {
        "model",
        "messages",
        "max_tokens",
        "max_completion_tokens",
        "temperature",
        "top_p",
        "stop",
        "tools",
        "tool_choice",
        "n",
        "seed",
    }
    if unknown := sorted(payload.keys() - known):
        raise ProviderError(
            f"A batch of Anthropic takes no {', '.join(unknown)}; ask the judge for text or a "
            f"tool call (channel='text').",
            kind="fatal",
        )
    made: dict[str, Any] = {"model": payload["model"], "messages": []}
    made["max_tokens"] = payload.get("max_tokens") or payload.get("max_completion_tokens") or 4096
    for message in payload["messages"]:
        if message["role"] in ("system", "developer"):
            made["system"] = "\n\n".join(filter(None, [made.get("system"), message["content"]]))
        else:
            made["messages"].append(
                {"role": message["role"], "content": _content(message["content"])}
            )
    made |= {
        name: payload[name] for name in ("temperature", "top_p") if payload.get(name) is not None
    }
    if stop := payload.get("stop"):
        made["stop_sequences"] = [stop] if isinstance(stop, str) else list(stop)
    if tools := payload.get("tools"):
        functions = [tool["function"] for tool in tools]
        made["tools"] = [
            {
                "name": f["name"],
                "description": f.get("description", ""),
                "input_schema": f["parameters"],
            }
            for f in functions
        ]
        made["tool_choice"] = {"type": "tool", "name": functions[0]["name"]}
    return made


def _content(content: Any) -> Any:
    if not isinstance(content, list):
        return content
    made = []
    for part in content:
        if part.get("type") == "image_url":
            url = part["image_url"]["url"]
            kind, _, data = url.removeprefix("data:").partition(";base64,")
            source = (
                {"type": "url", "url": url}
                if not data
                else {"type": "base64", "media_type": kind, "data": data}
            )
            made.append({"type": "image", "source": source})
        else:
            made.append({"type": "text", "text": part["text"]})
    return made


_STOPS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "refusal": "content_filter",
}


def to_chat(message: Mapping[str, Any]) -> dict[str, Any]:
    """Anthropic's answer in the chat layout."""
    blocks, usage = message.get("content") or (), message.get("usage") or {}
    text = "".join(block["text"] for block in blocks if block.get("type") == "text")
    calls = [
        {
            "id": block["id"],
            "type": "function",
            "function": {"name": block["name"], "arguments": orjson.dumps(block["input"]).decode()},
        }
        for block in blocks
        if block.get("type") == "tool_use"
    ]
    kept, made = (
        usage.get("cache_read_input_tokens") or 0,
        usage.get("cache_creation_input_tokens") or 0,
    )
    stop = message.get("stop_reason")
    answer = {"role": "assistant", "content": text, **({"tool_calls": calls} if calls else {})}
    return {
        "model": message.get("model", ""),
        "choices": [{"index": 0, "message": answer, "finish_reason": _STOPS.get(str(stop), stop)}],
        "usage": {
            "prompt_tokens": (usage.get("input_tokens") or 0) + kept + made,
            "completion_tokens": usage.get("output_tokens") or 0,
            "prompt_tokens_details": {"cached_tokens": kept},
        },
    }


_PROVIDERS: dict[str, type[BatchProvider]] = {
    "openai": OpenaiBatches,
    "anthropic": AnthropicBatches,
}
assert _PROVIDERS.keys() == set(BATCH_PROVIDERS)


class _Round:
    """Requests of one endpoint and model that are sent together."""

    def __init__(self) -> None:
        self.lines: dict[str, bytes] = {}
        self.bytes = 0
        self.asked = 0.0


class BatchCalls:
    """The batches of one run, and who waits for what in them. Lives on the library's event loop.

    What is sent is noted in the run folder before and after: a run that is continued waits for the
    same batches. A request is known by a hash of it and by its number among equal ones, so that
    whoever asks it again finds its answer.
    """

    def __init__(
        self, provider: str, folder: str, sent: Callable[[str], None] | None = None
    ) -> None:
        self._on_sent = sent
        """Ends the run once a round is sent, where it is not to be waited for."""
        self._provider = _PROVIDERS[provider]()
        self._path = Path(folder) / FILE_NAME
        self._file: AppendedFile | None = None
        self._times: Counter[str] = Counter()
        self._rounds: dict[tuple[str, str, str], _Round] = {}
        self._waiting: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._answers: dict[str, dict[str, Any] | ProviderError] = {}
        self._sent: dict[str, str] = {}
        """By custom id, the batch it went with in this run or an earlier part of it; a token where
        its id was not noted.
        """
        self._followed: dict[str, asyncio.Task[None]] = {}
        self._rushing: set[asyncio.Task[None]] = set()
        self._load_sent()

    def _load_sent(self) -> None:
        try:
            lines = self._path.read_bytes().splitlines()
        except FileNotFoundError:
            return
        tokens: dict[str, list[str]] = {}
        for line in lines:
            try:
                entry = orjson.loads(line)
            except ValueError:  # torn
                continue
            if "requests" in entry:
                tokens[entry["token"]] = entry["requests"]
                self._sent |= dict.fromkeys(entry["requests"], "?" + entry["token"])
            elif entry["token"] in tokens:
                self._sent |= dict.fromkeys(tokens[entry["token"]], entry["batch"])

    def _note(self, **entry: Any) -> None:
        if self._file is None:
            self._file = AppendedFile(self._path, 0o600)
        self._file.write(to_line(entry))

    async def ask(self, llm: OpenaiEndpoint, payload: dict[str, Any]) -> dict[str, Any]:
        """The raw answer to a request, once its batch is done; ProviderError as for a request of
        its own.
        """
        digest = canonical_key({"endpoint": llm.route(), "request": payload})[:48]
        custom_id = f"{digest}-{self._times[digest]}"
        self._times[digest] += 1
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[custom_id] = future
        if custom_id in self._answers:
            self._tell(custom_id, self._answers.pop(custom_id))
        elif custom_id in self._sent:
            self._follow(llm, self._sent[custom_id])
        else:
            self._collect(llm, custom_id, payload)
        try:
            return await future
        finally:
            self._waiting.pop(custom_id, None)

    def _collect(self, llm: OpenaiEndpoint, custom_id: str, payload: dict[str, Any]) -> None:
        line = self._provider.line(custom_id, payload)
        key = llm.route(), llm.account(), str(payload.get("model"))
        waiting = self._rounds.get(key)
        if waiting is not None and waiting.bytes + len(line) > self._provider.most_bytes:
            self._start_round(llm, key)
            waiting = None
        if waiting is None:
            waiting = self._rounds[key] = _Round()
            asyncio.get_running_loop().call_later(IDLE_SECONDS, self._look_idle, llm, key, waiting)
        waiting.lines[custom_id] = line
        waiting.bytes += len(line) + 1
        waiting.asked = time.monotonic()
        if len(waiting.lines) >= self._provider.most_requests:
            self._start_round(llm, key)

    def _look_idle(self, llm: OpenaiEndpoint, key: tuple[str, str, str], waiting: _Round) -> None:
        if self._rounds.get(key) is not waiting:
            return
        left = waiting.asked + IDLE_SECONDS - time.monotonic()
        if left > 0:
            asyncio.get_running_loop().call_later(left + 0.01, self._look_idle, llm, key, waiting)
        else:
            self._start_round(llm, key)

    def _start_round(self, llm: OpenaiEndpoint, key: tuple[str, str, str]) -> None:
        lines = {
            name: line
            for name, line in self._rounds.pop(key).lines.items()
            if name in self._waiting
        }
        if lines:
            task = asyncio.get_running_loop().create_task(self._submit(llm, lines))
            self._rushing.add(task)
            task.add_done_callback(self._rushing.discard)

    async def _submit(self, llm: OpenaiEndpoint, lines: dict[str, bytes]) -> None:
        token = secrets.token_hex(12)
        self._note(token=token, requests=list(lines), at=int(time.time()))
        try:
            batch = await self._provider.submit(llm, list(lines.values()), token)
        except (ProviderError, KeyError, TypeError) as error:
            self._fail(lines, error)
            return
        self._note(token=token, batch=batch)
        self._sent |= dict.fromkeys(lines, batch)
        logger.info(
            "batch {} of {} requests is sent; the run waits for it, and so does the same command "
            "begun again",
            batch,
            len(lines),
        )
        if self._on_sent is None:
            self._follow(llm, batch)
            return
        notice = (
            f"batch {batch} of {len(lines):,} requests is sent; the same command without --submit "
            f"(submit=) collects it"
        )
        self._on_sent(notice)
        for name in lines:
            future = self._waiting.get(name)
            if future is not None and not future.done():
                future.set_exception(RunStopped(f"Not judged yet: {notice}."))

    def _fail(self, names: Iterable[str], error: Exception) -> None:
        if not isinstance(error, ProviderError):
            error = ProviderError(
                f"The provider's answer about a batch has another layout than expected "
                f"({error!r:.100}).",
                kind="fatal",
            )
        for name in names:
            self._tell(name, ProviderError(str(error), kind=error.kind, status=error.status))

    def _tell(self, custom_id: str, answer: dict[str, Any] | ProviderError) -> None:
        future = self._waiting.get(custom_id)
        if future is None or future.done():
            self._answers[custom_id] = answer
        elif isinstance(answer, ProviderError):
            future.set_exception(answer)
        else:
            future.set_result(answer)

    def _follow(self, llm: OpenaiEndpoint, batch: str) -> None:
        if batch not in self._followed:
            self._followed[batch] = asyncio.get_running_loop().create_task(self._wait(llm, batch))

    async def _wait(self, llm: OpenaiEndpoint, batch: str) -> None:
        """Look until a batch is done, and hand out what is in it."""
        names = [name for name, sent in self._sent.items() if sent == batch]
        wait, end = FIRST_LOOK, time.monotonic() + MOST_SECONDS
        answers: BatchAnswers | None = None
        warned = False
        while answers is None and time.monotonic() < end:
            try:
                if batch.startswith("?"):  # killed between sending it and noting its id
                    known = await self._provider.find(llm, batch[1:])
                    if known is None:
                        break
                    self._note(token=batch[1:], batch=known)
                    batch = known
                answers = await self._provider.look(llm, batch)
            except ProviderError as error:
                if error.kind == "fatal":
                    self._fail(names, error)
                    return
                if not warned:
                    warned = True
                    logger.warning("batch {}: {} It is looked for again.", batch, error)
            except (KeyError, TypeError, AttributeError, ValueError) as error:
                self._fail(names, error)
                return
            if answers is None:
                await asyncio.sleep(wait)
                wait = min(LAST_LOOK, GROWTH * wait)
        none = ProviderError("A request of a batch got no answer in time.", kind="transient")
        for name in names:
            self._tell(name, (answers or {}).get(name, none))

    async def close(self) -> None:
        """Look no more; what was sent stays sent."""
        for task in (*self._followed.values(), *self._rushing):
            task.cancel()
        if self._file is not None:
            self._file.close()


_open: dict[tuple[str, str], BatchCalls] = {}


def batches_of(run: RunControl, provider: str, folder: str, submit: bool) -> BatchCalls:
    """The batches of the run in this folder, until it ends."""
    calls = _open.get((provider, folder))
    if calls is None:
        while run.parent is not None and run.parent.batch is not None:
            run = run.parent
        whole = run
        calls = BatchCalls(provider, folder, whole.stop if submit else None)
        _open[provider, folder] = calls
        whole.hold("batches", lambda: lambda: _close_batches(provider, folder))
    return calls


def _close_batches(provider: str, folder: str) -> None:
    calls = _open.pop((provider, folder), None)
    if calls is not None and not library_loop.is_exiting():
        library_loop.submit(calls.close())


def with_batches(llm: BaseModelCall, provider: str) -> OpenaiEndpoint:
    """The model; ConfigError for one whose provider has no batches."""
    if not isinstance(llm, OpenaiEndpoint):
        raise ConfigError(
            f"batch={provider!r} needs a model of the OpenAI protocol; {type(llm).__name__} has no "
            f"batches. Leave it out."
        )
    return llm
