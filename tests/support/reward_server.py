"""A running reward server for tests: uvicorn on a thread, on a free port of this machine."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

import uvicorn

from rm_gallery import BaseReward
from rm_gallery.serve.app import create_app
from rm_gallery.serve.door import ServeSettings
from rm_gallery.serve.handler import Evaluators, Handler


class RewardServer:
    """Serves rewards until it is closed; `url` is where. `settings` are fields of ServeSettings."""

    def __init__(
        self,
        rewards: Mapping[str, BaseReward],
        evaluators: Evaluators | None = None,
        *,
        port: int = 0,
        tasks: Any = None,
        tokens: Any = None,
        **settings: Any,
    ) -> None:
        app = create_app(
            Handler(rewards, evaluators), ServeSettings(**settings), None, tokens, tasks
        )
        config = uvicorn.Config(
            app, host="127.0.0.1", port=port, log_level="error", lifespan="on", log_config=None
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        end = time.monotonic() + 20
        while not self._server.started:
            assert self._thread.is_alive() and time.monotonic() < end, (
                "the reward server did not start"
            )
            time.sleep(0.005)
        self.port: int = self._server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join(20)

    def __enter__(self) -> RewardServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
