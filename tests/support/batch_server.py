"""A provider's batch API of both dialects on a thread here, which has a judge server answer the
requests, and may lose some.
"""

from __future__ import annotations

import email.parser
import email.policy
import json
import random
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support.judge_server import JudgeServer


@dataclass
class BatchServer:
    """What it holds. Lines come back in another order, some of them twice; `lose` names what
    becomes of the first tries of some.
    """

    judge: JudgeServer
    lose: Mapping[str, float] = field(default_factory=dict)
    """expired, errored, missing: share of the requests that end so when they come for the first
    time.
    """
    ready: threading.Event = field(default_factory=threading.Event)
    """Batches are done once this is set."""
    files: dict[str, bytes] = field(default_factory=dict)
    batches: dict[str, dict[str, Any]] = field(default_factory=dict)
    status: str = ""
    """What a batch that is done calls itself; by default completed or ended, as its dialect has it.
    """
    online: int = 0
    """Calls of their own."""
    seen: set[str] = field(default_factory=set)
    url: str = ""

    @property
    def requests(self) -> list[int]:
        """How many requests each batch had, in order."""
        return [len(each["lines"]) for each in self.batches.values()]

    def chat(self, body: Any) -> tuple[int, Any]:
        """The judge's answer to one request."""
        request = urllib.request.Request(
            f"{self.judge.base_url}/chat/completions",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request) as reply:
                return reply.status, json.loads(reply.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def fate(self, text: str) -> str:
        """What becomes of a request: a loss, or nothing where it comes again."""
        if text in self.seen:
            return ""
        self.seen.add(text)
        left = random.Random(text).random()
        for name, share in self.lose.items():
            left -= share
            if left < 0:
                return name
        return ""

    def results(
        self, lines: list[dict[str, Any]], dialect: str
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Output and error lines, shuffled and some doubled."""
        good, bad = [], []
        for line in lines:
            asked = line["body"] if dialect == "openai" else line["params"]
            fate, name = (
                self.fate(json.dumps(asked, sort_keys=True)),
                {"custom_id": line["custom_id"]},
            )
            if fate == "missing":
                continue
            if dialect == "anthropic":
                good.append(
                    {**name, "result": self._message(asked) if not fate else {"type": fate}}
                )
            elif fate == "expired":
                bad.append(
                    {
                        **name,
                        "response": None,
                        "error": {"code": "batch_expired", "message": "too late"},
                    }
                )
            else:
                status, body = (
                    self.chat(asked) if not fate else (500, {"error": {"message": "lost"}})
                )
                (good if status == 200 else bad).append(
                    {**name, "response": {"status_code": status, "body": body}, "error": None}
                )
        for kind in (good, bad):
            kind.extend(kind[::7])
            random.Random(len(lines)).shuffle(kind)
        return good, bad

    def _message(self, asked: dict[str, Any]) -> dict[str, Any]:
        system = [{"role": "system", "content": asked["system"]}] if "system" in asked else []
        status, body = self.chat({**asked, "messages": system + asked["messages"]})
        if status != 200:
            return {
                "type": "errored",
                "error": {"type": "error", "error": {"type": "api_error", "message": "no"}},
            }
        used, text = body["usage"], body["choices"][0]["message"]["content"]
        usage = {"input_tokens": used["prompt_tokens"], "output_tokens": used["completion_tokens"]}
        content = [{"type": "text", "text": text}]
        return {
            "type": "succeeded",
            "message": {
                "content": content,
                "stop_reason": "end_turn",
                "usage": usage,
                "model": body["model"],
            },
        }

    def get(self, path: str) -> tuple[int, Any]:
        """State and results."""
        parts = path.removeprefix("/v1/").split("?")[0].split("/")
        if parts[0] == "files":
            return 200, self.files[parts[1]]
        if parts == ["batches"]:
            return 200, {
                "data": [
                    {"id": name, "metadata": each["metadata"]}
                    for name, each in self.batches.items()
                ]
            }
        dialect = "anthropic" if parts[0] == "messages" else "openai"
        name = parts[2] if dialect == "anthropic" else parts[1]
        batch = self.batches[name]
        if not self.ready.is_set():
            return 200, {"id": name, "status": "in_progress", "processing_status": "in_progress"}
        if "results" not in batch:
            batch["results"] = self.results(batch["lines"], dialect)
        written = [
            b"\n".join(json.dumps(line).encode() for line in lines) for lines in batch["results"]
        ]
        if dialect == "anthropic":
            return 200, written[0] if parts[-1] == "results" else {
                "id": name,
                "processing_status": self.status or "ended",
            }
        self.files |= {f"{name}-out": written[0], f"{name}-err": written[1]}
        errors = (
            {"data": [{"message": "line 7 is no request"}]} if self.status == "failed" else None
        )
        state = {"id": name, "status": self.status or "completed", "errors": errors}
        return 200, {**state, "output_file_id": f"{name}-out", "error_file_id": f"{name}-err"}

    def post(self, path: str, body: bytes, kind: str) -> tuple[int, Any]:
        """Files, batches, and calls of their own."""
        if path == "/v1/files":
            parsed = email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(
                f"Content-Type: {kind}\r\n\r\n".encode() + body
            )
            parts = {
                part.get_param("name", header="content-disposition"): part
                for part in parsed.iter_parts()
            }
            assert parts["purpose"].get_content().strip() == "batch"
            name = f"file-{len(self.files)}"
            self.files[name] = bytes(parts["file"].get_payload(decode=True))
            return 200, {"id": name}
        if path == "/v1/chat/completions":
            self.online += 1
            return self.chat(json.loads(body))
        asked, name = json.loads(body), f"batch-{len(self.batches)}"
        if path == "/v1/batches":
            lines = [json.loads(line) for line in self.files[asked["input_file_id"]].splitlines()]
        else:
            lines = asked["requests"]
        assert len({line["custom_id"] for line in lines}) == len(lines)
        self.batches[name] = {"lines": lines, "metadata": asked.get("metadata")}
        return 200, {"id": name}


@contextmanager
def batch_server(judge: JudgeServer, **settings: Any) -> Iterator[BatchServer]:
    """Run one before this judge."""
    server = BatchServer(judge, **settings)
    server.ready.set()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _send(self, status: int, content: Any) -> None:
            body = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            self._send(*server.get(self.path))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self._send(*server.post(self.path, body, self.headers["Content-Type"]))

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing."""

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listening.daemon_threads = True
    threading.Thread(target=listening.serve_forever, daemon=True).start()
    server.url = f"http://127.0.0.1:{listening.server_address[1]}/v1"
    try:
        yield server
    finally:
        listening.shutdown()
        listening.server_close()
