"""What a judge server counts, and the last requests it saw."""

from __future__ import annotations

import hashlib
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

_SECRET_HEADERS = ("authorization", "api-key", "proxy-authorization", "x-api-key")


def messages_digest(messages: Any) -> bytes:
    return hashlib.sha256(orjson.dumps(messages, option=orjson.OPT_SORT_KEYS)).digest()


def messages_key(messages: Any) -> str:
    return messages_digest(messages).hex()


def key_hash(secret: str) -> str:
    """Short hash under which a key may appear in statistics."""
    return "sha256:" + hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def sent_key(headers: Mapping[str, str]) -> str | None:
    """The key a request carries, as a bearer token or Azure's `api-key`; None when it carries none."""
    bearer = headers.get("authorization", "")
    if bearer[:7].lower() == "bearer ":
        return bearer[7:].strip() or None
    return headers.get("api-key") or None


@dataclass(slots=True)
class Request:
    """One complete request; header names are lower case."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes


@dataclass(slots=True)
class Record:
    """One API request, from arrival until its outcome (a status, or how the connection ended)."""

    number: int
    generation: int
    request: Request

    def shown(self) -> dict[str, Any]:
        """The request for assertions; secrets are replaced by their hash."""
        headers = {
            name: key_hash(value.split(" ")[-1]) if name in _SECRET_HEADERS else value
            for name, value in self.request.headers.items()
        }
        try:
            body = orjson.loads(self.request.body) if self.request.body else None
        except orjson.JSONDecodeError:
            body = self.request.body.decode("utf-8", "replace")
        return {
            "method": self.request.method,
            "path": self.request.path,
            "query": self.request.query,
            "headers": headers,
            "body": body,
        }


@dataclass
class Counts:
    requests: int = 0
    by_outcome: Counter[str] = field(default_factory=Counter)
    by_fault: Counter[str] = field(default_factory=Counter)
    by_body: Counter[bytes] = field(default_factory=Counter)
    by_sample: Counter[bytes] = field(default_factory=Counter)
    keys: Counter[str] = field(default_factory=Counter)
    totals: Counter[str] = field(default_factory=Counter)
    max_in_flight: int = 0
    connections_opened: int = 0
    lateness_sum: float = 0.0
    lateness_max: float = 0.0
    delivered: int = 0
    errors: list[str] = field(default_factory=list)


class Stats:
    def __init__(self, cpu_clock: Callable[[], float]) -> None:
        self._cpu_clock = cpu_clock
        self.in_flight = 0
        self.connections_open = 0
        self.generation = 0
        self.recent: deque[Record] = deque(maxlen=200)
        self.reset()

    def reset(self) -> None:
        """Zero all counters; requests in flight stay in flight but are not counted again when they end."""
        self.generation += 1
        self.counts = Counts(max_in_flight=self.in_flight)
        self.recent.clear()
        self._cpu_start = self._cpu_clock()
        self._wall_start = time.perf_counter()

    def connected(self) -> None:
        self.connections_open += 1
        self.counts.connections_opened += 1

    def arrived(self, request: Request) -> Record:
        counts = self.counts
        counts.requests += 1
        self.in_flight += 1
        counts.max_in_flight = max(counts.max_in_flight, self.in_flight)
        key = sent_key(request.headers)
        if key is None:
            counts.totals["key_missing"] += 1
        else:
            counts.keys[key] += 1
        record = Record(counts.requests, self.generation, request)
        self.recent.append(record)
        return record

    def counted(self, sample: bytes, body: bytes) -> int:
        """Count one call of a sample and of an exact body; gives the number of earlier calls of the sample."""
        counts = self.counts
        earlier = counts.by_sample[sample]
        counts.by_sample[sample] = earlier + 1
        counts.by_body[body] += 1
        return earlier

    def finished(self, record: Record, outcome: str) -> None:
        self.in_flight -= 1
        if record.generation == self.generation:
            self.counts.by_outcome[outcome] += 1

    def lateness(self, seconds: float) -> None:
        """Note how much later than promised a reply left: the sign of a server that cannot keep up."""
        counts = self.counts
        counts.delivered += 1
        counts.lateness_sum += seconds
        counts.lateness_max = max(counts.lateness_max, seconds)

    def snapshot(self, *, detail: bool) -> dict[str, Any]:
        """All figures as JSON types; `detail` adds the counts per body (large after long runs)."""
        counts = self.counts
        cpu, wall = self._cpu_clock() - self._cpu_start, time.perf_counter() - self._wall_start
        shown: dict[str, Any] = {
            "requests": counts.requests,
            "by_status": dict(counts.by_outcome),
            "by_fault": dict(counts.by_fault),
            "in_flight": self.in_flight,
            "max_in_flight": counts.max_in_flight,
            "connections_opened": counts.connections_opened,
            "connections_open": self.connections_open,
            "client_closed": counts.by_outcome["client_closed"],
            "distinct_samples": len(counts.by_sample),
            "max_attempts": max(counts.by_sample.values(), default=0),
            "auth": {
                "sent": sum(counts.keys.values()),
                "missing": counts.totals["key_missing"],
                "key_hashes": {key_hash(key): n for key, n in counts.keys.items()},
            },
            "usage": {name: counts.totals[name] for name in ("prompt_tokens", "completion_tokens")},
            "oracle": {"hits": counts.totals["oracle_hits"], "misses": counts.totals["oracle_misses"]},
            "internal_errors": counts.errors[:20],
            "process": {
                "cpu_seconds": cpu,
                "wall_seconds": wall,
                "replies": counts.delivered,
                "cpu_share": cpu / wall if wall > 0 else 0.0,
                "mean_lateness_ms": 1000 * counts.lateness_sum / max(1, counts.delivered),
                "max_lateness_ms": 1000 * counts.lateness_max,
            },
        }
        if detail:
            shown["calls_by_body"] = {digest.hex(): n for digest, n in counts.by_body.items()}
        return shown
