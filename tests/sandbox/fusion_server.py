"""A small SandboxFusion look-alike on 127.0.0.1 that runs the programs it gets as plain child
processes.
"""

from __future__ import annotations

import asyncio
import resource
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from aiohttp import web


class FusionServer:
    """Counts its requests; `override` replaces the reply."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.logins: list[str] = []
        self.override: web.Response | None = None
        self._slots = asyncio.Semaphore(3)
        self.url = ""

    async def run_code(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.requests.append(body)
        self.logins.append(request.headers.get("Authorization", ""))
        if self.override is not None:
            return self.override
        async with self._slots:
            return await self._run(body)

    async def _run(self, body: dict[str, Any]) -> web.Response:
        with tempfile.NamedTemporaryFile(
            "w", suffix=".py", encoding="utf-8", errors="surrogatepass"
        ) as file:
            file.write(body["code"])
            file.flush()
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                file.name,
                stdin=-1,
                stdout=-1,
                stderr=-1,
                cwd=tempfile.gettempdir(),
                env={},
            )
            status = "Finished"
            with suppress(ProcessLookupError):  # it has ended
                resource.prlimit(process.pid, resource.RLIMIT_CPU, (3, 4))
            try:
                talk = process.communicate(body["stdin"].encode())
                out, err = await asyncio.wait_for(talk, body["run_timeout"])
            except asyncio.TimeoutError:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
                status, out, err = "TimeLimitExceeded", b"", b""
        if process.returncode == -signal.SIGXCPU:
            status = "TimeLimitExceeded"
        result = {
            "status": status
            if process.returncode in (0, -signal.SIGKILL, -signal.SIGXCPU)
            else "Error",
            "return_code": process.returncode,
            "stdout": out.decode("utf-8", "replace"),
            "stderr": err.decode("utf-8", "replace"),
        }
        return web.json_response(
            {"status": "Success", "message": "", "compile_result": None, "run_result": result}
        )


@asynccontextmanager
async def fusion_server() -> AsyncIterator[FusionServer]:
    """Serve until the block ends."""
    server = FusionServer()
    app = web.Application(client_max_size=64 << 20)
    app.router.add_post("/run_code", server.run_code)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    server.url = f"http://{host}:{port}"
    try:
        yield server
    finally:
        await runner.cleanup()
