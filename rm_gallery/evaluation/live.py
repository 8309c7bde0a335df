"""Runs the evaluators of a store for a server: always the current version, in pools that follow
deployments.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

from rm_gallery.core.reward.function_result import each_evaluated, evaluated, told_as
from rm_gallery.core.sandbox.process import SandboxLimits
from rm_gallery.core.score import Score
from rm_gallery.core.utils.log import logger
from rm_gallery.evaluation.bundle import DamagedBundle
from rm_gallery.evaluation.pool import LIMITS, EvaluatorPool
from rm_gallery.evaluation.store import Deployed, Store, StoreError, UnknownEvaluator
from rm_gallery.evaluation.worker import failed

_LOOK_EVERY = 0.5
_PATIENCE = 1.0
_QUIET = 5.0
"""Seconds before running evaluators ask a failed store again."""
_Key = tuple[int, str]


class LiveEvaluators:
    """Evaluates by evaluator id; checks the store at most twice a second and follows deployments by
    any process.

    Requests that run when a new version comes end on the old one. While the store cannot be read,
    what runs goes on. Use it from one event loop.
    """

    def __init__(
        self,
        store: Store,
        *,
        workers: int = 8,
        limits: SandboxLimits = LIMITS,
        sandbox: str = "auto",
    ) -> None:
        """Take an open store and the settings of each evaluator's `EvaluatorPool`; nothing is
        started yet.
        """
        self._store = store
        self._settings: dict[str, Any] = {"workers": workers, "limits": limits, "sandbox": sandbox}
        self._pools: dict[str, tuple[_Key, EvaluatorPool]] = {}
        self._fresh: set[str] = set()
        self._revision = -1
        self._checked_at = -_LOOK_EVERY
        self._quiet_until = 0.0
        self._failure: tuple[float, str] | None = None
        self._lock = asyncio.Lock()
        self._closing: set[asyncio.Task[None]] = set()
        self._warned = False

    def list(self) -> list[dict[str, Any]]:
        """The current version of every evaluator; raises StoreError."""
        return [version.as_dict() for version in self._store.list()]

    @told_as(evaluated)
    async def evaluate(
        self, evaluator_id: str, payload: Mapping[str, Any], deadline: float
    ) -> Score[float]:
        """Evaluate a conversation with the current version, within `deadline` seconds; see
        `EvaluatorPool.evaluate_batch`.

        Raises:
            UnknownEvaluator: there is none of this id.
            SandboxUnavailable: there is no sandbox to run it in.
            StoreError: the store cannot be read and the evaluator has not been asked for before.
            DamagedBundle: its stored files are not those that were deployed.
        """
        return (await self.scores(evaluator_id, [payload], deadline))[0]

    async def scores(
        self, evaluator_id: str, payloads: Sequence[Mapping[str, Any]], deadline: float
    ) -> Sequence[Score[float]]:
        """Evaluate conversations; see `evaluate`."""
        began = time.monotonic()
        try:
            pool = await self._pool(evaluator_id, deadline)
        except asyncio.TimeoutError:
            late = failed(
                "deadline", f"the store of evaluators did not answer within {deadline:g} s"
            )
            return [late] * len(payloads)
        return await pool.scores(payloads, deadline=max(0.0, deadline - (time.monotonic() - began)))

    evaluate_batch = told_as(each_evaluated)(scores)

    async def close(self) -> None:
        """Finish what was asked, then end every process; the store stays open."""
        for key in list(self._pools):
            self._retire(key)
        while self._closing:
            await asyncio.gather(*self._closing)

    async def _pool(self, evaluator_id: str, seconds: float) -> EvaluatorPool:
        running, now = self._pools.get(evaluator_id), time.monotonic()
        is_new = evaluator_id in self._fresh and now - self._checked_at < _LOOK_EVERY
        if running is not None and (is_new or now < self._quiet_until):
            return running[1]
        try:
            # a store that hangs holds up nothing that runs
            await asyncio.wait_for(
                self._bring_up_to_date(evaluator_id), seconds if running is None else _PATIENCE
            )
            self._warned = False
        except (StoreError, asyncio.TimeoutError) as error:
            if evaluator_id not in self._pools:
                raise
            self._quiet_until = time.monotonic() + _QUIET
            if not self._warned:
                self._warned = True
                logger.warning(
                    "{}; the versions that run go on",
                    str(error) or "the store of evaluators does not answer",
                )
        return self._pools[evaluator_id][1]

    async def _bring_up_to_date(self, evaluator_id: str) -> None:
        began = time.monotonic()
        async with self._lock:
            # fail at once: the next waiter would otherwise wait as long again
            if self._failure is not None and self._failure[0] > began:
                raise StoreError(self._failure[1])
            try:
                if time.monotonic() - self._checked_at >= _LOOK_EVERY:
                    self._checked_at = time.monotonic()
                    revision = await asyncio.to_thread(self._store.revision)
                    if revision != self._revision:
                        self._fresh.clear()
                        self._revision = revision
                if evaluator_id not in self._fresh:
                    await self._refresh(evaluator_id)
            except StoreError as error:
                self._failure = time.monotonic(), str(error)
                raise

    async def _refresh(self, evaluator_id: str) -> None:
        try:
            deployed: Deployed = await asyncio.to_thread(self._store.current, evaluator_id)
        except (UnknownEvaluator, DamagedBundle):
            self._retire(evaluator_id)
            raise
        key = (deployed.version, deployed.hash)
        if evaluator_id not in self._pools or self._pools[evaluator_id][0] != key:
            # looking for a sandbox may take a moment the first time
            pool = await asyncio.to_thread(EvaluatorPool, deployed, **self._settings)
            self._retire(evaluator_id)
            self._pools[evaluator_id] = key, pool
        self._fresh.add(evaluator_id)

    def _retire(self, evaluator_id: str) -> None:
        """Let a pool finish what it was asked, then end it."""
        self._fresh.discard(evaluator_id)
        retired = self._pools.pop(evaluator_id, None)
        if retired is not None:
            task = asyncio.ensure_future(retired[1].close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
