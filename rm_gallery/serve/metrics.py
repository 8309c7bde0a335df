"""What a server counts, in Prometheus' text format."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from rm_gallery.core.utils.errors import MissingExtra
from rm_gallery.serve.formats import Outcomes

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

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
        self.labels: dict[str, str] = {}
        """Of every sample: tells this process apart from others behind the same port, so that no
        counter is seen to fall when another one is asked.
        """

    def answered(self, route: str, status: int, seconds: float) -> None:
        """Count a reply."""
        self.requests[route, status] += 1
        self.seconds[route][bisect_left(BUCKETS, seconds)] += 1
        self.total_seconds[route] += seconds

    def scored(self, target: str, scores: Outcomes) -> None:
        """Count outcomes."""
        outcomes = self.outcomes
        for each in scores:
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
                for family in metrics._families(handler):
                    family.samples = [
                        each._replace(labels={**each.labels, **metrics.labels})
                        for each in family.samples
                    ]
                    yield family

        registry = CollectorRegistry()
        registry.register(Collector())
        return generate_latest(registry)

    def _families(self, handler: Any) -> Iterable[Metric]:
        from prometheus_client.core import (
            CounterMetricFamily,
            GaugeMetricFamily,
            HistogramMetricFamily,
        )

        requests = CounterMetricFamily(
            "rm_gallery_requests", "Requests answered.", labels=("route", "status")
        )
        for (route, status), n in list(self.requests.items()):
            requests.add_metric((route, str(status)), n)
        yield requests
        seconds = HistogramMetricFamily(
            "rm_gallery_request_seconds", "Seconds per request.", labels=("route",)
        )
        for route, counts in list(self.seconds.items()):
            buckets, below = [], 0
            for bound, n in zip((*map(str, BUCKETS), "+Inf"), counts, strict=True):
                below += n
                buckets.append((bound, below))
            seconds.add_metric((route,), buckets, self.total_seconds[route])
        yield seconds
        completions = CounterMetricFamily(
            "rm_gallery_completions",
            "Completions by what became of them.",
            labels=("target", "outcome"),
        )
        for (target, outcome), n in list(self.outcomes.items()):
            completions.add_metric((target, outcome), n)
        yield completions
        yield GaugeMetricFamily(
            "rm_gallery_requests_in_flight", "Requests being answered.", self.in_flight
        )
        yield GaugeMetricFamily(
            "rm_gallery_body_bytes", "Bytes of the bodies of these requests.", self.bytes
        )
        waiting = GaugeMetricFamily(
            "rm_gallery_waiting", "Completions waiting for a reward.", labels=("reward",)
        )
        calls = CounterMetricFamily(
            "rm_gallery_judge_calls",
            "Calls of a reward's judge: made, cached, retries.",
            labels=("reward", "kind"),
        )
        for name, lane in handler.lanes.items():
            waiting.add_metric((name,), lane.waiting)
            for kind, n in lane.run.counters().items():
                if n:
                    calls.add_metric((name, kind), n)
        yield waiting
        yield calls
