"""How a server is set up: where it listens, what it takes at most, and how long anything may last."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from pydantic import Field

from rm_gallery.core.outcome import Outcome
from rm_gallery.core.utils.errors import ConfigError, MissingExtra
from rm_gallery.core.utils.models import Configured

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric


class ServeSettings(Configured):
    """Settings of a server; ConfigError names the field that does not fit."""

    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=0, le=65535)
    """0 takes a free one."""
    open: bool = False
    """Whether other machines may ask without a token."""
    max_body: int = Field(default=8 << 20, ge=1)
    """Bytes of a request's body."""
    max_bytes: int = Field(default=512 << 20, ge=1)
    """Bytes of all bodies that have arrived and are being read or scored; on top of that requests are refused with 429."""
    max_depth: int = Field(default=64, ge=2)
    """Levels of nesting of a JSON body."""
    max_waiting: int = Field(default=8192, ge=1)
    """Completions that wait for one reward or evaluator; on top of that requests are refused with 429."""
    max_workers: int | None = Field(default=None, ge=1)
    """Judgements of one reward in flight; None takes the reward's own where it was given one, else 128."""
    deadline: float = Field(default=60.0, gt=0)
    """Seconds one request may take; a client may ask for less with the header X-Timeout-Seconds."""
    read_timeout: float = Field(default=30.0, gt=0)
    """Seconds a client may take to send a body."""
    keep_alive: float = Field(default=30.0, gt=0)
    """Seconds an idle connection is kept."""
    linger: float = Field(default=1.0, ge=0)
    """Seconds after SIGTERM during which requests are still taken, with the word that the connection closes."""
    certificate: str | None = None
    """File with the certificate, for TLS."""
    key: str | None = None
    """File with its key."""

    @property
    def local(self) -> bool:
        """Whether only this machine can connect."""
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False

    def check_access(self, has_tokens: bool) -> None:
        """Raise ConfigError when other machines could ask and nobody said that they may."""
        if not (self.local or has_tokens or self.open):
            raise ConfigError(
                f"--host {self.host} lets other machines ask and there are no tokens; make one with `rm-gallery serve-token "
                "create` and give --tokens FILE, or say --open."
            )


BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of latency in seconds."""


class Metrics:
    """Counters of one server."""

    def __init__(self) -> None:
        self.requests: dict[tuple[str, int], int] = defaultdict(int)
        """By route and HTTP status."""
        self.seconds: dict[str, list[int]] = defaultdict(lambda: [0] * (len(BUCKETS) + 1))
        """By route, the answered requests per bucket of latency."""
        self.total_seconds: dict[str, float] = defaultdict(float)
        self.outcomes: dict[tuple[str, str], int] = defaultdict(int)
        """By target and status, the completions."""
        self.in_flight = 0
        """Requests that are being answered."""
        self.bytes = 0
        """Bytes of their bodies."""

    def answered(self, route: str, status: int, seconds: float) -> None:
        """Count a reply."""
        self.requests[route, status] += 1
        self.seconds[route][bisect_left(BUCKETS, seconds)] += 1
        self.total_seconds[route] += seconds

    def scored(self, target: str, found: Sequence[Outcome[float]]) -> None:
        """Count outcomes."""
        outcomes = self.outcomes
        for each in found:
            outcomes[target, each.status] += 1

    def exposed(self, handler: Any) -> bytes:
        """Everything in Prometheus' text format."""
        try:
            from prometheus_client import CollectorRegistry, generate_latest
        except ImportError as error:
            raise MissingExtra("prometheus-client", "serve", "/metrics") from error
        metrics = self

        class Collector:
            def collect(self) -> Iterable[Metric]:
                return metrics._families(handler)

        registry = CollectorRegistry()
        registry.register(Collector())
        return generate_latest(registry)

    def _families(self, handler: Any) -> Iterable[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        requests = CounterMetricFamily("rm_gallery_requests", "Requests answered.", labels=("route", "status"))
        for (route, status), n in self.requests.items():
            requests.add_metric((route, str(status)), n)
        yield requests
        seconds = HistogramMetricFamily("rm_gallery_request_seconds", "Seconds per request.", labels=("route",))
        for route, counts in self.seconds.items():
            buckets, below = [], 0
            for bound, n in zip((*map(str, BUCKETS), "+Inf"), counts, strict=True):
                below += n
                buckets.append((bound, below))
            seconds.add_metric((route,), buckets, self.total_seconds[route])
        yield seconds
        completions = CounterMetricFamily(
            "rm_gallery_completions", "Completions by what became of them.", labels=("target", "outcome")
        )
        for (target, outcome), n in self.outcomes.items():
            completions.add_metric((target, outcome), n)
        yield completions
        yield GaugeMetricFamily("rm_gallery_requests_in_flight", "Requests being answered.", self.in_flight)
        yield GaugeMetricFamily("rm_gallery_body_bytes", "Bytes of the bodies of these requests.", self.bytes)
        waiting = GaugeMetricFamily("rm_gallery_waiting", "Completions waiting for a reward.", labels=("reward",))
        calls = CounterMetricFamily(
            "rm_gallery_judge_calls", "Calls of a reward's judge: made, cached, retries.", labels=("reward", "kind")
        )
        for name, lane in handler.lanes.items():
            waiting.add_metric((name,), lane.waiting)
            for kind, n in lane.run.counters().items():
                if n:
                    calls.add_metric((name, kind), n)
        yield waiting
        yield calls
