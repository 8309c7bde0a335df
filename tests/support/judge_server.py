"""A local judge that speaks the OpenAI chat-completions protocol, for tests and measurements.

`python -m tests.support.judge_server --port 0 --latency-ms 100 --behaviour perfect` prints one JSON line with port, pid
and control_port when it is ready, and ends when its stdin closes. In tests use the context manager `JudgeServer`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.support.judge_server_behaviours import Answer, BehaviourSpec, JudgeCall, Judgement, behaviour_of
from tests.support.judge_server_config import Faults, ServerConfig, faults_from
from tests.support.judge_server_hosts import Host, ProcessHost, RunningServer, ThreadHost
from tests.support.judge_server_prompts import extract_candidates, make_oracle, make_query_oracle, oracle_key
from tests.support.judge_server_stats import key_hash, messages_key

__all__ = [
    "Answer",
    "BehaviourSpec",
    "Faults",
    "JudgeCall",
    "JudgeServer",
    "Judgement",
    "extract_candidates",
    "key_hash",
    "make_oracle",
    "make_query_oracle",
    "messages_key",
    "oracle_key",
]

_PARENT_POLL_S = 0.5


class JudgeServer:
    """A running judge server; starts on construction, stops on `stop()` or at the end of a `with` block.

    `behaviour`: perfect, worst, first, last, garbage, empty, echo, `fixed:TEXT`, `module:function`, a list of replies,
    or a function of a `JudgeCall`. `latency` in seconds. `faults`: a `Faults` or a mapping of its fields. Further
    settings are the fields of `ServerConfig` (oracle, jitter, require_key, required_headers, candidate_pattern, …).
    With `in_process=True` it runs on a thread here: quicker to start, but it shares this process's interpreter.
    Raises ValueError for settings that do not exist or do not fit.
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
        wanted = {"behaviour": behaviour, "latency": latency, "faults": faults, "seed": seed, **settings}
        config = ServerConfig().changed(wanted)
        self._host: Host
        if in_process:
            behaviour_of(behaviour)
            self._host = ThreadHost(config, port=port)
        else:
            if isinstance(behaviour, str) and ":" not in behaviour:
                behaviour_of(behaviour)
            self._host = ProcessHost(_as_json({**wanted, "faults": config.faults}), port=port)
        self.port = self._host.port
        self.pid = self._host.pid
        self.base_url = f"http://127.0.0.1:{self.port}/v1"
        self.azure_url = f"http://127.0.0.1:{self.port}"

    def stats(self, *, detail: bool = True) -> dict[str, Any]:
        """Counts since the start or the last reset; `detail=False` leaves out the counts per body and per sample."""
        found: dict[str, Any] = self._host.call("stats", {"detail": int(detail)})
        return found

    def recent_requests(self, n: int = 10) -> list[dict[str, Any]]:
        """The last requests, oldest first: method, path, query, headers (keys hashed), body, fault, outcome."""
        found: list[dict[str, Any]] = self._host.call("requests", {"n": n})
        return found

    def set(self, **changes: Any) -> None:
        """Change settings; faults are replaced as a whole, and the clock of timed events starts anew."""
        ServerConfig().changed(changes)
        self._host.call("set", changes if self._in_process else _as_json(changes))

    def reset(self) -> None:
        """Zero the statistics, the script position and the clock of timed events."""
        self._host.call("reset", {})

    def stall(self, seconds: float) -> None:
        """From now on hold back all replies for so long."""
        self._host.call("stall", {"seconds": seconds})

    def outage(self, seconds: float) -> None:
        """Close the port and all connections now and come back on the same port after so long."""
        self._host.call("outage", {"seconds": seconds})

    def wait_until(self, condition: Callable[[dict[str, Any]], bool], timeout: float = 10.0) -> dict[str, Any]:
        """Poll the statistics until the condition holds and give them back. Raises TimeoutError with the last ones."""
        end = time.monotonic() + timeout
        while True:
            found = self.stats()
            if condition(found):
                return found
            if time.monotonic() > end:
                raise TimeoutError(f"the judge server did not reach the awaited state; last statistics: {found}")
            time.sleep(0.01)

    def stop(self) -> None:
        """End the server; a second call does nothing."""
        self._host.stop()

    def __enter__(self) -> JudgeServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _as_json(settings: Mapping[str, Any]) -> dict[str, Any]:
    plain = dict(settings)
    if isinstance(plain.get("faults"), Faults):
        plain["faults"] = asdict(plain["faults"])
    if isinstance(plain.get("oracle"), Path):
        plain["oracle"] = str(plain["oracle"].resolve())
    behaviour = plain.get("behaviour")
    if callable(behaviour):
        name = getattr(behaviour, "__qualname__", "<no name>")
        if not name.isidentifier():
            raise ValueError(f"a behaviour for a server process must be a function of a module, found {name}")
        plain["behaviour"] = f"{behaviour.__module__}:{name}"
    return plain


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.support.judge_server", description="A local OpenAI-protocol judge."
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument(
        "--behaviour", help="perfect, worst, first, last, garbage, empty, echo, fixed:TEXT, module:function"
    )
    parser.add_argument("--script", help="JSON file with a list of replies, given in order")
    parser.add_argument("--latency-ms", type=float)
    parser.add_argument("--jitter", type=float)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--oracle", help="JSON file: sha256 of a stripped answer to {good, score}")
    parser.add_argument("--candidate-pattern", help="style name or regex with a group `text`; default: fenced blocks")
    parser.add_argument("--faults", help="JSON object with the fields of Faults")
    parser.add_argument("--config", help="JSON file with any settings, or - for one line on stdin")
    parser.add_argument("--ignore-stdin", action="store_true", help="stay after stdin closed")
    return parser.parse_args(argv)


def _config(arguments: argparse.Namespace) -> ServerConfig:
    settings: dict[str, Any] = {}
    if arguments.config == "-":
        settings = json.loads(_stdin_line())
    elif arguments.config:
        settings = json.loads(Path(arguments.config).read_text(encoding="utf-8"))
    given = {name: getattr(arguments, name) for name in ("behaviour", "jitter", "seed", "oracle", "candidate_pattern")}
    settings.update({name: value for name, value in given.items() if value is not None})
    if arguments.script:
        settings["behaviour"] = json.loads(Path(arguments.script).read_text(encoding="utf-8"))
    if arguments.latency_ms is not None:
        settings["latency"] = arguments.latency_ms / 1000
    if arguments.faults:
        settings["faults"] = faults_from(json.loads(arguments.faults))
    return ServerConfig().changed(settings)


def _stdin_line() -> bytes:
    """One line straight from the descriptor: a buffered reader would keep a lock that the watcher thread needs."""
    pieces: list[bytes] = []
    while not pieces or not pieces[-1].endswith(b"\n"):
        piece = os.read(0, 1 << 16)
        if not piece:
            break
        pieces.append(piece)
    return b"".join(pieces)


def _watch_stdin(loop: asyncio.AbstractEventLoop, stopping: asyncio.Event) -> None:
    while os.read(0, 1 << 16):
        pass
    try:
        loop.call_soon_threadsafe(stopping.set)
    except RuntimeError:  # the loop has closed already
        return


async def _watch_parent(parent: int, stopping: asyncio.Event) -> None:
    """Notice a dead parent even while a fork of it still holds the other end of stdin."""
    while os.getppid() == parent:
        await asyncio.sleep(_PARENT_POLL_S)
    stopping.set()


async def _main(arguments: argparse.Namespace, config: ServerConfig) -> None:
    parent = os.getppid()  # asked before anybody is told the port: the parent may be dead a moment later
    server = RunningServer(config, arguments.host, arguments.port, time.process_time)
    await server.start()
    stopping, watcher = asyncio.Event(), None
    if not arguments.ignore_stdin:
        loop = asyncio.get_running_loop()
        threading.Thread(target=_watch_stdin, args=(loop, stopping), daemon=True).start()
        watcher = loop.create_task(_watch_parent(parent, stopping))
    ready = {"port": server.api.address[1], "pid": os.getpid(), "control_port": server.control.address[1]}
    sys.stdout.write(json.dumps(ready) + "\n")
    sys.stdout.flush()
    await stopping.wait()
    if watcher is not None:
        watcher.cancel()
    await server.close()


def _allow_many_sockets() -> None:
    if os.name == "posix":
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def main(argv: Sequence[str] | None = None) -> int:
    """Run a server until stdin closes or Ctrl-C."""
    arguments = _arguments(argv)
    config = _config(arguments)
    _allow_many_sockets()
    try:
        asyncio.run(_main(arguments, config))
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
