"""What is no rate is refused; how rates are kept, in turns, is in the golden files."""

from __future__ import annotations

import pytest

from rm_gallery.core.engine.calls.rate_limit import RateLimit
from rm_gallery.core.utils.errors import ConfigError


@pytest.mark.parametrize("rate", [0, -1, float("nan"), float("inf")])
def test_rates_that_are_no_rates_are_refused(rate: float) -> None:
    with pytest.raises(ConfigError, match="requests_per_minute must be a positive number"):
        RateLimit(rate)
    with pytest.raises(ConfigError, match="tokens_per_minute"):
        RateLimit(None, rate)
