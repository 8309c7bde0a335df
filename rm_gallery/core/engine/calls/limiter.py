"""What bounds the calls to an endpoint, shared by everything in the process that talks to it."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Hashable

from rm_gallery.core.engine.calls.adaptive_limiter import AdaptiveLimiter, CallEnd
from rm_gallery.core.engine.calls.rate_limit import RateLimit

__all__ = ["AdaptiveLimiter", "CallEnd", "LimiterRegistry", "RateLimit", "endpoint_key"]


def endpoint_key(endpoint: str, secret: str | None = None) -> tuple[str, str]:
    """Registry key of an endpoint and the account behind it; holds a hash, never the secret."""
    digest = hashlib.sha256(secret.encode()).hexdigest()[:16] if secret else ""
    return endpoint.rstrip("/"), digest


class LimiterRegistry:
    """The limiters shared by everything in the process that talks to the same endpoint."""

    def __init__(self) -> None:
        self._limiters: dict[Hashable, AdaptiveLimiter] = {}
        self._rates: dict[Hashable, RateLimit] = {}
        self._lock = threading.Lock()

    def limiter(self, key: Hashable, ceiling: int) -> AdaptiveLimiter:
        """The endpoint's limiter; `ceiling` counts only for the first caller, later ones take a `lease`."""
        with self._lock:
            if key not in self._limiters:
                self._limiters[key] = AdaptiveLimiter(ceiling)
            return self._limiters[key]

    def rate(
        self, key: Hashable, requests_per_minute: float | None = None, tokens_per_minute: float | None = None
    ) -> RateLimit:
        """The endpoint's rate limit; where callers ask for different rates the lowest holds."""
        with self._lock:
            if key not in self._rates:
                self._rates[key] = RateLimit(requests_per_minute, tokens_per_minute)
            else:
                self._rates[key].tighten(requests_per_minute, tokens_per_minute)
            return self._rates[key]

    def in_flight(self) -> int:
        """Calls in flight over all endpoints."""
        return sum(limiter.in_flight for limiter in list(self._limiters.values()))

    def reset(self) -> None:
        """Forget everything: after a fork the loop that held the slots is gone."""
        self._lock = threading.Lock()
        self._limiters = {}
        self._rates = {}
