"""The process that listens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from rm_gallery.core.utils.errors import ConfigError, MissingExtra
from rm_gallery.serve.settings import ServeSettings


def run_server(app: Any, settings: ServeSettings, ready: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT; `ready` is told the URL once requests are taken."""
    try:
        import uvicorn
    except ImportError as error:
        raise MissingExtra("uvicorn[standard]", "serve", "The server") from error

    class Server(uvicorn.Server):
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            if self.started:
                host, port = self.servers[0].sockets[0].getsockname()[:2]
                ready(f"http://{f'[{host}]' if ':' in host else host}:{port}")

    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        log_level="error",
        access_log=False,
        lifespan="on",
        server_header=False,
        date_header=False,
    )
    try:
        asyncio.run(Server(config).serve())
    except SystemExit as error:
        raise ConfigError(f"Nothing can listen on {settings.host}:{settings.port}; give another --port.") from error
