"""The client of `rm-gallery serve`: outcomes and scores, one or many, awaited or not."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from typing import Any

from rm_gallery.core.data.conversation import split_turns
from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.model.reward_servers import RewardServer
from rm_gallery.core.model.transport import Json
from rm_gallery.core.score import Score, failed, missing_policy, score_of_error
from rm_gallery.core.utils.errors import (
    ConfigError,
    DataError,
    ProviderError,
    RequestError,
    RMGalleryError,
)
from rm_gallery.gallery.rm.trained.served import RemoteReward
from rm_gallery.integrations.causes import OnError, value_of
from rm_gallery.serve.formats import FIELDS, MAX_ITEMS

Item = Mapping[str, Any]
"""What the server's own format takes: `messages`, or `prompt` and `completion`; and `reference`,
`row`, `id`.
"""


class RewardClient:
    """Asks a reward server; safe in any number of threads and calls at once, connections are kept
    and shared.

    What the server refuses for now (429, 503) or what breaks on the way is tried again, after
    `Retry-After` where the server gave one. What has no score in the end is an outcome with its
    reason, and for the methods that give numbers what `on_error` says. A target is the name of a
    reward, or `evaluator:ID` for a deployed evaluator.

    Args:
        url: where the server is, such as http://127.0.0.1:8000.
        token: its bearer token; without one that in RM_GALLERY_TOKEN.
        on_error: for numbers: "none" gives None for a completion without a score, "raise" raises
            NoScore, a number stands for it.
        deadline: seconds a call of a method may take in all, retries and waits included; None for
            no limit.
        timeout: seconds one request may take.
        batch: completions per request; those of one prompt that follow one another are not parted.
        max_attempts: attempts per request, the first included.
        max_outage: seconds to wait for a server that answered before; 0 never waits.
        default_headers: headers of every request.
        ca_bundle: PEM file of certificates to trust instead of the system's.
        proxy: URL of a proxy.

    Raises:
        ConfigError: a URL or an option that does not fit.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        on_error: OnError = "none",
        deadline: float | None = 120.0,
        timeout: float = 60.0,
        batch: int = 64,
        max_attempts: int = 6,
        max_outage: float = 30.0,
        default_headers: Mapping[str, str] | None = None,
        ca_bundle: str | None = None,
        proxy: str | None = None,
    ) -> None:
        """Check the choices; nobody is asked yet."""
        # ranges are the server's to know
        self.on_error = missing_policy(on_error, "RewardClient: on_error", "none", "raise")
        if type(batch) is not int or batch < 1:
            raise ConfigError(
                f"batch is {batch!r:.80}; give the number of completions per request, 1 or more."
            )
        if deadline is not None and not (
            isinstance(deadline, int | float) and 0 < deadline < math.inf
        ):
            raise ConfigError(
                f"deadline is {deadline!r:.80}; give a positive number of seconds, or None."
            )
        self.batch, self.deadline = batch, deadline
        self._settings: Json = {
            "api_key": token, "timeout": timeout, "max_attempts": max_attempts, "max_outage": max_outage,
            "default_headers": dict(default_headers or {}),
        }  # fmt: skip
        self._server = RewardServer(
            model="", base_url=url, ca_bundle=ca_bundle, proxy=proxy, **self._settings
        )
        self._server.check()
        self._servers: dict[str, RewardServer] = {}

    def __repr__(self) -> str:
        return f"RewardClient({self._server.endpoint_key()!r})"

    def __getstate__(self) -> Json:
        return {**self.__dict__, "_servers": {}}

    # -- outcomes ----------------------------------------------------------------------------------

    async def aevaluate_batch(self, target: str, items: Sequence[Item]) -> list[Score[float]]:
        """Outcomes of completions, in their order; one that cannot be scored costs no other one.

        Raises ConfigError for a field that the server's format does not have.
        """
        for place, item in enumerate(items):
            named = item.keys() if isinstance(item, Mapping) else {f"({type(item).__name__})"}
            if unknown := named - FIELDS:
                raise ConfigError(
                    f"items[{place}] has {min(unknown)!r:.60}; an item has the fields "
                    f"{', '.join(sorted(FIELDS))}."
                )
        return await library_loop.bridge(
            self._outcomes(self._server_of(target), [dict(item) for item in items])
        )

    evaluate_batch = library_loop.blocking(aevaluate_batch)

    async def aevaluate(
        self, target: str, prompt: Any = None, completion: Any = None, **fields: Any
    ) -> Score[float]:
        """The outcome of one completion; `fields` are `messages` (instead of both), `reference`,
        `row`, `id`.
        """
        given = {"prompt": prompt, "completion": completion, **fields}
        item = {name: value for name, value in given.items() if value is not None}
        return (await self.aevaluate_batch(target, [item]))[0]

    evaluate = library_loop.blocking(aevaluate)

    # -- numbers -----------------------------------------------------------------------------------

    async def ascore_batch(self, target: str, items: Sequence[Item]) -> list[float | None]:
        """Scores of completions, in their order; NoScore where there is none and `on_error` is
        "raise".
        """
        return [
            self._value_or_on_error(target, outcome)
            for outcome in await self.aevaluate_batch(target, items)
        ]

    score_batch = library_loop.blocking(ascore_batch)

    async def ascore(
        self, target: str, prompt: Any = None, completion: Any = None, **fields: Any
    ) -> float | None:
        """The score of one completion; arguments as in `aevaluate`."""
        return self._value_or_on_error(
            target, await self.aevaluate(target, prompt, completion, **fields)
        )

    score = library_loop.blocking(ascore)

    def _value_or_on_error(self, target: str, outcome: Score[float]) -> float | None:
        number = None if isinstance(self.on_error, str) else self.on_error
        return value_of(outcome, self.on_error, target, number)

    # -- the server --------------------------------------------------------------------------------

    def reward(self, target: str, **settings: Any) -> RemoteReward:
        """The target as a reward: for `evaluate`, benchmarks, and adapters such as
        `trl_reward(client.reward("math"))`.
        """
        kind, name = _split(target)
        route = "rewards" if kind == "reward" else "evaluations"
        url = f"{self._server.endpoint_key()}/v1/{route}/{name}"
        return RemoteReward(url, **{**self._settings, **settings})

    def rewards(self) -> list[Json]:
        """The rewards the server offers, with name, kind, range and direction."""
        return list(self._get("rewards", "/v1/rewards")["rewards"])

    def evaluations(self) -> list[Json]:
        """The evaluators that are deployed there."""
        return list(self._get("evaluations", "/v1/evaluations")["evaluations"])

    def healthy(self) -> bool:
        """Whether the server is there and takes requests."""
        try:
            self._get("healthy", "/health")
        except ProviderError:
            return False
        return True

    def _get(self, door: str, path: str) -> Any:
        twin = f"asyncio.to_thread(client.{door})"
        return library_loop.run(self._server.aget(path), f"RewardClient.{door}", twin)

    def _server_of(self, target: str) -> RewardServer:
        server = self._servers.get(target)
        if server is None:
            model = ":".join(_split(target))
            server = self._servers.setdefault(
                target, self._server.model_copy(update={"model": model})
            )
        return server

    async def _outcomes(self, server: RewardServer, items: list[Json]) -> list[Score[float]]:
        parts = _split_requests(items, self.batch)
        tasks = [asyncio.ensure_future(_ask_in_halves(server, part)) for part in parts]
        try:
            late = (await asyncio.wait(tasks, timeout=self.deadline))[1] if tasks else set()
        except asyncio.CancelledError:
            late = set(tasks)
            raise
        finally:
            for task in late:
                task.cancel()
        outcomes: list[Score[float]] = []
        for task, part in zip(tasks, parts, strict=True):
            if task in late:
                message = f"{server.endpoint_key()} gave no answer within {self.deadline:g} s."
                outcomes += [failed("deadline", message, "endpoint")] * len(part)
            else:
                outcomes += task.result()
        return outcomes


def _split_requests(items: list[Json], size: int) -> list[list[Json]]:
    """The items in requests of about `size`; completions of one prompt that follow one another stay
    together, so that a reward that compares them sees all of them.
    """
    parts: list[list[Json]] = []
    for item in items:
        last = parts[-1] if parts else None
        if (
            last is None
            or len(last) >= MAX_ITEMS
            or (len(last) >= size and _asked_in(item) != _asked_in(last[-1]))
        ):
            parts.append([item])
        else:
            last.append(item)
    return parts


def _asked_in(item: Json) -> Any:
    """What an item answers; nothing in common with another one where it names no prompt."""
    try:
        return item.get("prompt") or split_turns(item["messages"])[0] or object()
    except (KeyError, DataError):
        return object()


async def _ask_in_halves(server: RewardServer, items: list[Json]) -> list[Score[float]]:
    try:
        return await server.ascore(items)
    except RMGalleryError as error:
        status = error.status if isinstance(error, ProviderError) else None
        # too large together, or one that is no valid text: it costs no other one
        if len(items) > 1 and (status == 413 or isinstance(error, RequestError)):
            half = len(items) // 2
            return [
                *await _ask_in_halves(server, items[:half]),
                *await _ask_in_halves(server, items[half:]),
            ]
        outcome: Score[Any] = score_of_error(error)
        if status == 422:
            outcome = failed("invalid_item", outcome.reason, "data")
        return [outcome] * len(items)


def _split(target: str) -> tuple[str, str]:
    kind, colon, name = target.partition(":")
    if not colon or kind not in ("reward", "evaluator"):
        kind, name = "reward", target
    if not name:
        raise ConfigError(f"target is {target!r:.80}; give the name of a reward, or evaluator:ID.")
    return kind, name
