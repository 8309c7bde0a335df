"""Replies, rates and equal questions shared by every process that knows one Redis server, on
whichever machine.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from collections.abc import Hashable, Sequence
from contextlib import suppress
from typing import Any

from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.calls.limits import RateLimit
from rm_gallery.core.utils.errors import ConfigError, MissingExtra, logger
from rm_gallery.core.utils.shown import redact

PREFIX = "rm-gallery:1:"
MAX_AGE = 30 * 86400
"""Seconds that a reply is kept."""
LEAD_SECONDS = 15.0
"""So long after the last sign of whoever asks a question another one asks it; the sign comes three
times as often.
"""
AWAY_SECONDS = 2.0
"""After a failure the server is left alone for so long, and this process goes by its own limits."""
_FIRST_LOOK, _LAST_LOOK = 0.02, 0.25
_TIMEOUT = 5.0

_LEAD = """
local kept = redis.call('GET', KEYS[1])
if kept then return kept end
if redis.call('SET', KEYS[2], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 end
return 0
"""
_LAND = """
if ARGV[2] ~= '' then redis.call('SET', KEYS[1], ARGV[2], 'EX', ARGV[3]) end
if redis.call('GET', KEYS[2]) == ARGV[1] then redis.call('DEL', KEYS[2]) end
return 1
"""
_STAY = (
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) "
    "end return 0"
)
# Two buckets, of requests and of tokens, that refill by the second up to one second's worth; a need
# above that waits for a full one. Gives the microseconds to wait, 0 where it was taken.
_TAKE = """
local clock = redis.call('TIME')
local now, wait, levels = clock[1] + clock[2] / 1e6, 0, {}
local kept = redis.call('HMGET', KEYS[1], 'l1', 'l2', 'at')
for i = 1, 2 do
  local rate, need = tonumber(ARGV[2 * i - 1]), tonumber(ARGV[2 * i])
  if rate > 0 then
    local room = math.max(1, rate)
    levels[i] = math.min(room, (tonumber(kept[i]) or room) + math.max(0, now - (tonumber(kept[3]) or now)) * rate)
    wait = math.max(wait, (math.min(need, room) - levels[i]) / rate)
    levels[i] = levels[i] - need
  end
end
if wait > 1e-6 then return math.ceil(wait * 1e6) end
for i = 1, 2 do if levels[i] then redis.call('HSET', KEYS[1], 'l' .. i, tostring(levels[i])) end end
redis.call('HSET', KEYS[1], 'at', string.format('%.6f', now))
redis.call('EXPIRE', KEYS[1], 3600)
return 0
"""
_GIVE = (
    "if redis.call('EXISTS', KEYS[1]) == 1 then redis.call('HINCRBYFLOAT', KEYS[1], 'l2', ARGV[1]) "
    "end return 1"
)


class RedisShare:
    """What processes share through a Redis server: each reply is kept for 30 days, an equal
    question is asked once, and a rate is that of all together. While the server is away each
    process goes by its own limits, and says so once.

    Lives on the library's event loop. All that is asked in one turn of it goes out together.

    Args:
        url: `redis://`, `rediss://` (TLS) or `unix://`, as redis-py reads it; a password in it is
            never shown.

    Raises:
        MissingExtra: redis-py is not installed.
        ConfigError: the URL cannot be read.
    """

    def __init__(self, url: str) -> None:
        try:
            from redis import asyncio as client
            from redis.exceptions import RedisError
        except ImportError:
            raise MissingExtra("redis", "redis", "a cache in Redis") from None
        self._trouble = RedisError, OSError, asyncio.TimeoutError
        try:
            self._client = client.Redis.from_url(
                url,
                socket_timeout=_TIMEOUT,
                socket_connect_timeout=_TIMEOUT,
                max_connections=4,
                protocol=2,
            )
        except (ValueError, TypeError) as error:
            raise ConfigError(
                f"RM_GALLERY_CACHE is no Redis URL that can be read: {redact(str(error))}"
            ) from None
        self._me = secrets.token_hex(8)
        self._batch: list[tuple[tuple[Any, ...], asyncio.Future[Any]]] = []
        self._sending: asyncio.Task[None] | None = None
        self._leading: set[str] = set()
        self._staying: asyncio.Task[None] | None = None
        self._away_until = 0.0
        self._away = False

    # -- questions ---------------------------------------------------------------------------------

    async def lead(self, key: str) -> tuple[bytes, bool] | None:
        """None for whoever is to ask, and to say `landed` at the end; else the reply, and whether
        it had been kept before.
        """
        look, waited = _FIRST_LOOK, False
        while (
            found := await self._ask(
                _LEAD, 2, _reply(key), _lock(key), self._me, int(LEAD_SECONDS * 1000)
            )
        ) is not None:
            if isinstance(found, bytes):
                return found, not waited
            if found == 1:
                self._leading.add(key)
                if self._staying is None or self._staying.done():
                    self._staying = asyncio.get_running_loop().create_task(self._stay())
                return None
            waited = True
            await asyncio.sleep(look)
            look = min(_LAST_LOOK, 1.5 * look)
        return None

    async def landed(self, key: str, reply: bytes | None) -> None:
        """Keep a reply, or say that there is none; who waits hears of it."""
        self._leading.discard(key)
        await self._ask(_LAND, 2, _reply(key), _lock(key), self._me, reply or b"", MAX_AGE)

    async def _stay(self) -> None:
        """Say that questions are still being asked here, until none is."""
        while self._leading:
            await asyncio.sleep(LEAD_SECONDS / 3)
            for key in list(self._leading):
                await self._ask(_STAY, 1, _lock(key), self._me, int(LEAD_SECONDS * 1000))

    # -- rates -------------------------------------------------------------------------------------

    def rate(self, key: str) -> RateLimit:
        """The limit of an endpoint that all processes keep together."""
        return _SharedRate(self, PREFIX + "rate:" + hashlib.sha256(key.encode()).hexdigest())

    async def take(self, key: str, per_second: Sequence[float], need: int) -> float | None:
        """Seconds to wait for a call at these rates of requests and tokens, 0 where it may start;
        None while the server is away.
        """
        requests, tokens = per_second
        found = await self._ask(_TAKE, 1, key, requests, 1, tokens, need)
        return None if found is None else found / 1e6

    async def give(self, key: str, tokens: int) -> None:
        """Give tokens back that a call did not use; negative for more than it was expected to."""
        await self._ask(_GIVE, 1, key, tokens)

    # -- the server --------------------------------------------------------------------------------

    async def _ask(self, *command: Any) -> Any:
        """What a script gives; None while the server is away."""
        if time.monotonic() < self._away_until:
            return None
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._batch.append((command, future))
        if self._sending is None or self._sending.done():
            self._sending = loop.create_task(self._send())
        return await future

    async def _send(self) -> None:
        while self._batch:
            batch, self._batch = self._batch, []
            try:
                pipe = self._client.pipeline(transaction=False)
                for command, _ in batch:
                    pipe.eval(*command)
                found = await pipe.execute(raise_on_error=False)
            except self._trouble as error:
                self._lost(error)
                found = [None] * len(batch)
            else:
                found = [self._checked(each) for each in found]
            for (_, future), value in zip(batch, found, strict=True):
                if not future.done():
                    future.set_result(value)

    def _checked(self, value: Any) -> Any:
        if isinstance(value, Exception):
            self._lost(value)
            return None
        if self._away:
            self._away = False
            logger.warning(
                "The Redis server of RM_GALLERY_CACHE answers again: replies and rates are shared "
                "from here on."
            )
        return value

    def _lost(self, error: BaseException) -> None:
        self._away_until = time.monotonic() + AWAY_SECONDS
        if not self._away:
            self._away = True
            logger.warning(
                "The Redis server of RM_GALLERY_CACHE does not answer ({}: {}). The run goes on: "
                "nothing is kept or shared until it does, and limits are those of this process "
                "alone.",
                type(error).__name__, redact(str(error)),
            )  # fmt: skip

    async def close(self) -> None:
        """Hang up."""
        for task in (self._sending, self._staying):
            if task is not None:
                task.cancel()
        with suppress(*self._trouble):
            await self._client.aclose()


class _SharedRate(RateLimit):
    """A rate of all processes that know the server; of this one alone while it is away."""

    def __init__(self, share: RedisShare, key: str) -> None:
        super().__init__()
        self._share, self._key = share, key
        self._per_second = [0.0, 0.0]
        self._turn = asyncio.Lock()
        self._giving: set[asyncio.Task[None]] = set()

    def set(
        self, requests_per_minute: float | None = None, tokens_per_minute: float | None = None
    ) -> None:
        """Take over rates, and check them."""
        super().set(requests_per_minute, tokens_per_minute)
        for place, given in enumerate((requests_per_minute, tokens_per_minute)):
            if given is not None:
                self._per_second[place] = given / 60.0

    def enter(self, tokens: int) -> bool:
        """Never: it has to be asked for."""
        return False

    async def wait(self, tokens: int, line: Hashable) -> None:
        """Wait for the turn of a call; calls of this process go one after the other."""
        async with self._turn:
            while (wait := await self._share.take(self._key, self._per_second, tokens)) is not None:
                if wait <= 0:
                    return
                await asyncio.sleep(wait)
        if not super().enter(tokens):
            await super().wait(tokens, line)

    def settle(self, reserved: int, used: int) -> None:
        """Correct what a call was expected to use."""
        super().settle(reserved, used)
        if self._per_second[1] and reserved != used:
            task = asyncio.get_running_loop().create_task(
                self._share.give(self._key, reserved - used)
            )
            self._giving.add(task)
            task.add_done_callback(self._giving.discard)


def _reply(key: str) -> str:
    return f"{PREFIX}reply:{key}"


def _lock(key: str) -> str:
    return f"{PREFIX}lock:{key}"


_shares: dict[str, RedisShare] = {}


def share(url: str) -> RedisShare:
    """What this process shares at this URL; on the library's loop."""
    found = _shares.get(url)
    if found is None:
        found = _shares[url] = RedisShare(url)
    return found


@library_loop.at_close
async def _close_shares() -> None:
    while _shares:
        await _shares.popitem()[1].close()


library_loop.after_fork(_shares.clear)
