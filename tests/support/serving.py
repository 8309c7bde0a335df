"""`rm-gallery serve` or `view` in a process of its own, as people run it."""

from __future__ import annotations

import re
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.children import child_environment


class Serving:
    """A running server; `url` is where. It is stopped at the end of the block, gently and then for
    good.

    `settings` are fields of ServeSettings that the command has no option for.
    """

    def __init__(
        self,
        *arguments: str,
        cwd: Path,
        env: Mapping[str, str] | None = None,
        command: str = "serve",
        **settings: Any,
    ) -> None:
        start = (
            f"from functools import partial\nfrom rm_gallery.serve import door\n"
            f"door.ServeSettings = partial(door.ServeSettings, **{settings!r})\n"
            "from rm_gallery.cli.main import main\nmain()"
        )
        self.process = subprocess.Popen(
            [sys.executable, *(["-c", start] if settings else ["-m", "rm_gallery"]), command, "--port", "0", *arguments],
            cwd=cwd, env=child_environment(**(env or {})), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, bufsize=0,
        )  # fmt: skip
        self.said = b""
        end = time.monotonic() + 60
        while not (found := re.search(rb"on (http://\S+)\n", self.said)):
            assert time.monotonic() < end and self.process.poll() is None, (
                f"no server: {self.said.decode()}"
            )
            self._read(0.1)
        self.url = found[1].decode()

    def status_url(self) -> str:
        """Where /health and /metrics are answered alone."""
        while not (found := re.search(rb"/metrics also on (http://\S+)\n", self.said)):
            assert self.process.poll() is None, self.said.decode()
            self._read(0.1)
        return found[1].decode()

    def _read(self, seconds: float) -> None:
        assert self.process.stderr is not None
        # `select` itself takes no descriptor above 1023
        with selectors.DefaultSelector() as waiting:
            waiting.register(self.process.stderr, selectors.EVENT_READ)
            if waiting.select(seconds):
                self.said += self.process.stderr.read(65536) or b""

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def ended(self, seconds: float = 30.0) -> int:
        """Its exit code, once it has ended; what it said to the end is in `said`."""
        assert self.process.stderr is not None
        code = self.process.wait(seconds)
        self.said += self.process.stderr.read() or b""
        return code

    def __enter__(self) -> Serving:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()
