"""A local judge that speaks the OpenAI chat-completions protocol, for tests and measurements.

In tests use the context manager `JudgeServer`. It runs in a process of its own, which ends when its
stdin closes, or on a thread here.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.support.judge_server_app import Faults, JudgeApp, ServerConfig
from tests.support.judge_server_behaviours import (
    Answer,
    BehaviourSpec,
    JudgeCall,
    Judgement,
    behaviour_of,
)
from tests.support.judge_server_connection import Listener
from tests.support.judge_server_prompts import (
    extract_candidates,
    make_oracle,
    make_query_oracle,
    oracle_key,
)
from tests.support.judge_server_stats import key_hash

__all__ = [
    "Answer", "BehaviourSpec", "Faults", "JudgeCall", "JudgeServer", "Judgement", "extract_candidates", "judge_fixture",
    "key_hash", "make_oracle", "make_query_oracle", "oracle_key",
]  # fmt: skip

ROOT = Path(__file__).resolve().parents[2]
STOP_SECONDS = 10.0


class JudgeServer:
    """A running judge server; starts on construction, stops on `stop()` or at the end of a `with`
    block.

    `behaviour`: perfect, worst, first, last, garbage, empty, echo, `fixed:TEXT`, a list of replies,
    or a function of a `JudgeCall`. `latency` in seconds. `faults`: a `Faults` or a mapping of its
    fields. Further settings are the fields of `ServerConfig` (oracle, require_key,
    candidate_pattern, …). With `in_process=True` it runs on a thread here: quicker to start and may
    be given a function, but it shares this process's interpreter. Raises TypeError or ValueError
    for settings that do not exist or do not fit.
    """

    def __init__(
        self,
        behaviour: BehaviourSpec = "perfect",
        *,
        latency: float = 0.0,
        faults: Faults | Mapping[str, Any] | None = None,
        seed: int = 0,
        in_process: bool = False,
        port: int = 0,
        **settings: Any,
    ) -> None:
        self._in_process = in_process
        wanted = {
            "behaviour": behaviour,
            "latency": latency,
            "faults": faults,
            "seed": seed,
            **settings,
        }
        config = ServerConfig().changed(wanted)
        behaviour_of(behaviour)
        self._host: _ThreadHost | _ProcessHost = (
            _ThreadHost(config, port) if in_process else _ProcessHost(_as_json(wanted), port)
        )
        self.port, self.pid = self._host.port, self._host.pid
        self.azure_url = f"http://127.0.0.1:{self.port}"
        self.base_url = f"{self.azure_url}/v1"

    def stats(self, *, detail: bool = True) -> dict[str, Any]:
        """Counts since the start or the last reset; `detail=False` leaves out the counts per body."""
        found: dict[str, Any] = self._host.call("stats", {"detail": int(detail)})
        return found

    def recent_requests(self, n: int = 10) -> list[dict[str, Any]]:
        """The last requests, oldest first: method, path, query, headers (keys hashed), body, fault,
        outcome.
        """
        found: list[dict[str, Any]] = self._host.call("requests", {"n": n})
        return found

    def set(self, **changes: Any) -> None:
        """Change settings; faults are replaced as a whole, and the clock of timed events starts
        anew.
        """
        ServerConfig().changed(changes)
        self._host.call("set", changes if self._in_process else _as_json(changes))

    def reset(self) -> None:
        """Zero the statistics, the script position and the clock of timed events."""
        self._host.call("reset", {})

    def wait_until(
        self, condition: Callable[[dict[str, Any]], bool], timeout: float = 10.0
    ) -> dict[str, Any]:
        """Poll the statistics until the condition holds and give them back. Raises TimeoutError
        with the last ones.
        """
        end = time.monotonic() + timeout
        while True:
            found = self.stats()
            if condition(found):
                return found
            if time.monotonic() > end:
                raise TimeoutError(
                    f"the judge server did not reach the awaited state; last statistics: {found}"
                )
            time.sleep(0.01)

    def stop(self) -> None:
        self._host.stop()

    def __enter__(self) -> JudgeServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def judge_fixture(*given: Any, **settings: Any) -> Any:
    """A fixture of a test module: one server with these settings for all of its tests."""
    import pytest

    @pytest.fixture(scope="module")
    def server() -> Iterator[JudgeServer]:
        with JudgeServer(*given, **settings) as running:
            yield running

    return server


def _as_json(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: asdict(value) if isinstance(value, Faults) else value
        for name, value in settings.items()
    }


class _Running:
    def __init__(self, config: ServerConfig, port: int, cpu_clock: Callable[[], float]) -> None:
        self.app = JudgeApp(config, cpu_clock)
        self.api = Listener(self.app, port)
        self.control = Listener(self.app, 0, control_only=True)
        self.app.on_outage = self.api.go_away
        self.stopping = asyncio.Event()
        self.loop = asyncio.get_running_loop()

    async def serve(self, ready: Callable[[_Running], None]) -> None:
        self.api.start()
        self.control.start()
        ready(self)
        await self.stopping.wait()
        await self.api.close()
        await self.control.close()


class _ThreadHost:
    """A server on its own thread and loop; stats count that thread's CPU only."""

    def __init__(self, config: ServerConfig, port: int) -> None:
        self._ready = threading.Event()
        self._started: list[_Running] = []
        self._failure: BaseException | None = None
        self.pid = os.getpid()
        self._thread = threading.Thread(
            target=self._run, args=(config, port), name="judge-server", daemon=True
        )
        self._thread.start()
        self._ready.wait()
        if not self._started:
            raise RuntimeError("the judge server did not start") from self._failure
        self.port: int = self._started[0].api.port

    def _run(self, config: ServerConfig, port: int) -> None:
        async def serve() -> None:
            await _Running(config, port, time.thread_time).serve(told)

        def told(server: _Running) -> None:
            self._started.append(server)
            self._ready.set()

        loop = asyncio.new_event_loop()
        try:
            loop.run_until_complete(serve())
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits for the start
            self._failure = error
        finally:
            self._ready.set()
            loop.close()

    def call(self, what: str, arguments: Mapping[str, Any]) -> Any:
        server = self._started[0]

        async def run() -> Any:
            return server.app.control(what, arguments)

        return asyncio.run_coroutine_threadsafe(run(), server.loop).result(STOP_SECONDS)

    def stop(self) -> None:
        if self._thread.is_alive() and self._started and self.pid == os.getpid():
            self._started[0].loop.call_soon_threadsafe(self._started[0].stopping.set)
            self._thread.join(STOP_SECONDS)


class _ProcessHost:
    """A server in its own process; it ends when this process does, because its stdin then closes."""

    def __init__(self, config: Mapping[str, Any], port: int) -> None:
        self._owner = os.getpid()
        # a session of its own keeps a Ctrl-C meant for the client away from the server
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.judge_server", str(port)],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(config).encode() + b"\n")
            self._process.stdin.flush()
            ready = json.loads(self._process.stdout.readline() or b"null")
        except (OSError, ValueError):
            ready = None
        if ready is None:
            self.stop()
            raise RuntimeError(
                f"the judge server did not start; exit code {self._process.returncode}"
            )
        self.port: int = ready["port"]
        self.pid: int = ready["pid"]
        self._control_port: int = ready["control_port"]

    def call(self, what: str, arguments: Mapping[str, Any]) -> Any:
        """Run one control call over the control port. Raises ValueError where the server refuses
        it.
        """
        connection = http.client.HTTPConnection("127.0.0.1", self._control_port, timeout=30)
        try:
            connection.request("POST", f"/_{what}", json.dumps(arguments), {"Connection": "close"})
            reply = connection.getresponse()
            answer = json.loads(reply.read())
        finally:
            connection.close()
        if reply.status != 200:
            raise ValueError(answer["error"]["message"])
        return answer

    def stop(self) -> None:
        if (
            self._owner != os.getpid()
            or self._process.stdin is None
            or self._process.stdout is None
        ):
            return
        try:
            self._process.stdin.close()
        except BrokenPipeError:
            pass
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


def _stdin_line() -> bytes:
    """One line straight from the descriptor: a buffered reader would take what comes after it."""
    line = b""
    while not line.endswith(b"\n") and (piece := os.read(0, 1 << 16)):
        line += piece
    return line


async def _watch_parent(parent: int, server: _Running) -> None:
    """Notice a dead parent even while a fork of it still holds the other end of stdin."""
    while os.getppid() == parent:
        await asyncio.sleep(0.5)
    server.stopping.set()


async def _main(config: ServerConfig, port: int) -> None:
    # asked before anybody is told the port: the parent may be dead a moment later
    parent = os.getppid()
    server = _Running(config, port, time.process_time)
    watcher = server.loop.create_task(_watch_parent(parent, server))

    def heard() -> None:
        if not os.read(0, 1 << 16):
            server.loop.remove_reader(0)
            server.stopping.set()

    def ready(_: _Running) -> None:
        told = {"port": server.api.port, "pid": os.getpid(), "control_port": server.control.port}
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()

    server.loop.add_reader(0, heard)
    await server.serve(ready)
    watcher.cancel()


if __name__ == "__main__":
    if os.name == "posix":
        import resource

        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    asyncio.run(_main(ServerConfig().changed(json.loads(_stdin_line())), int(sys.argv[1])))
