"""A local server that speaks OpenAI's chat protocol with tool calls, answered by a script."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Message = dict[str, Any]
Script = Callable[[list[Message], list[Message]], Message]
"""The next message of the assistant, from all messages and the tools there are."""


def calling(*calls: tuple[str, Any]) -> Message:
    """A message that calls tools: names and arguments, a text being taken as it is."""
    made = [
        {
            "id": f"call-{number}",
            "type": "function",
            "function": {
                "name": name,
                "arguments": given if isinstance(given, str) else json.dumps(given),
            },
        }
        for number, (name, given) in enumerate(calls)
    ]
    return {"role": "assistant", "content": None, "tool_calls": made}


def outputs_of(messages: list[Message]) -> list[str]:
    """What the tools gave so far."""
    return [message["content"] for message in messages if message["role"] == "tool"]


class AgentServer:
    """A running server; `requests` are the bodies it got."""

    def __init__(self, script: Script) -> None:
        self.requests: list[dict[str, Any]] = []
        seen = self.requests

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                seen.append(body)
                message = script(body["messages"], body.get("tools", []))
                choice = {
                    "index": 0,
                    "message": message,
                    "finish_reason": "tool_calls" if message.get("tool_calls") else "stop",
                }
                usage = {"prompt_tokens": 100, "completion_tokens": 10}
                reply = json.dumps(
                    {"model": "scripted", "choices": [choice], "usage": usage}
                ).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(reply)))
                self.end_headers()
                self.wfile.write(reply)

            def log_message(self, *given: Any) -> None:
                """Silent."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.base_url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextmanager
def agent(script: Script) -> Iterator[AgentServer]:
    """A server for the time of a `with` block."""
    server = AgentServer(script)
    try:
        yield server
    finally:
        server.stop()
