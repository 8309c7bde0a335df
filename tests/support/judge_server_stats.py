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


def key_hash(secret: str) -> str:
    """Short hash under which a key may appear in statistics."""
    return "sha256:" + hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def sent_key(headers: Mapping[str, str]) -> str | None:
    """The key a request carries, as a bearer token or Azure's `api-key`; None when it carries none."""
    bearer = headers.get("authorization", "")
    return (
        bearer[7:].strip() if bearer[:7].lower() == "bearer " else headers.get("api-key")
    ) or None


@dataclass(slots=True)
class Request:
    """One complete request; header names are lower case."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    def shown(self) -> dict[str, Any]:
        """The request for assertions; secrets are replaced by their hash."""
        headers = {
            name: key_hash(value.split(" ")[-1]) if name in _SECRET_HEADERS else value
            for name, value in self.headers.items()
        }
        try:
            body = orjson.loads(self.body) if self.body else None
        except orjson.JSONDecodeError:
            body = self.body.decode("utf-8", "replace")
        return {
            "method": self.method,
            "path": self.path,
            "query": self.query,
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
    lateness: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])
    """How much later than promised replies left, the sign of a server that cannot keep up: their
    number, sum and maximum.
    """
    errors: list[str] = field(default_factory=list)


class Stats:
    def __init__(self, cpu_clock: Callable[[], float]) -> None:
        self._cpu_clock = cpu_clock
        self.in_flight = self.connections_open = 0
        self.recent: deque[Request] = deque(maxlen=200)
        self.reset()

    def reset(self) -> None:
        """Zero all counters; requests in flight stay in flight but are not counted again when they
        end.
        """
        self.counts = Counts(max_in_flight=self.in_flight)
        self.recent.clear()
        self._started = (self._cpu_clock(), time.perf_counter())

    def arrived(self, request: Request) -> Counts:
        """Count a request; what is given back counts its end."""
        counts, key = self.counts, sent_key(request.headers)
        counts.requests += 1
        self.in_flight += 1
        counts.max_in_flight = max(counts.max_in_flight, self.in_flight)
        counts.keys[key or ""] += 1
        self.recent.append(request)
        return counts

    def counted(self, sample: bytes, body: bytes) -> int:
        """Count one call of a sample and of an exact body; gives the number of earlier calls of the
        sample.
        """
        self.counts.by_sample[sample] += 1
        self.counts.by_body[body] += 1
        return self.counts.by_sample[sample] - 1

    def late(self, seconds: float) -> None:
        n, total, most = self.counts.lateness
        self.counts.lateness = [n + 1, total + seconds, max(most, seconds)]

    def snapshot(self, *, detail: bool) -> dict[str, Any]:
        """All figures as JSON types; `detail` adds the counts per body (large after long runs)."""
        counts = self.counts
        cpu, wall = self._cpu_clock() - self._started[0], time.perf_counter() - self._started[1]
        replies, late, latest = counts.lateness
        keys = {key: n for key, n in counts.keys.items() if key}
        hashes = {key_hash(key): n for key, n in keys.items()}
        auth = {"sent": sum(keys.values()), "missing": counts.keys[""], "key_hashes": hashes}
        process = {
            "cpu_seconds": cpu,
            "wall_seconds": wall,
            "cpu_share": cpu / wall if wall > 0 else 0.0,
        }
        process |= {
            "mean_lateness_ms": 1000 * late / max(1, replies),
            "max_lateness_ms": 1000 * latest,
            "replies": int(replies),
        }
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
            "usage": {name: counts.totals[name] for name in ("prompt_tokens", "completion_tokens")},
            "oracle": {name: counts.totals[name] for name in ("hits", "misses")},
            "internal_errors": counts.errors[:20],
            **{"auth": auth, "process": process},
        }
        return {
            **shown,
            **(
                {"calls_by_body": {d.hex(): n for d, n in counts.by_body.items()}} if detail else {}
            ),
        }
