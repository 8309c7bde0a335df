"""Retry-After in all the forms servers send it."""

from __future__ import annotations

import pytest

from rm_gallery.core.engine.calls.retry import parse_retry_after

NOW = 1_700_000_000.0  # Tue, 14 Nov 2023 22:13:20 GMT


@pytest.mark.parametrize(
    ("headers", "expected", "why"),
    [
        ({}, None, "no header"),
        ({"retry-after": "3"}, 3.0, "seconds"),
        ({"Retry-After": "3"}, 3.0, "spelling of a plain dict"),
        ({"retry-after": " 2.5 "}, 2.5, "fractions and blanks"),
        ({"retry-after": "0"}, 0.0, "at once"),
        ({"retry-after-ms": "1500"}, 1.5, "milliseconds"),
        ({"RETRY-AFTER-MS": "250", "Retry-After": "9"}, 0.25, "milliseconds are finer and win"),
        ({"retry-after-ms": "soon", "retry-after": "9"}, 9.0, "unreadable milliseconds fall back"),
        ({"retry-after": "Tue, 14 Nov 2023 22:13:50 GMT"}, 30.0, "HTTP-date"),
        ({"retry-after": "Tuesday, 14-Nov-23 22:13:50 GMT"}, 30.0, "RFC 850 date"),
        ({"retry-after": "Tue Nov 14 22:13:50 2023"}, 30.0, "asctime date has no zone and means GMT"),
        ({"retry-after": "Tue, 14 Nov 2023 22:13:00 GMT"}, 0.0, "a date in the past"),
        ({"retry-after": "-5"}, None, "negative"),
        ({"retry-after": "nan"}, None, "not a number"),
        ({"retry-after": "inf"}, None, "for ever"),
        ({"retry-after": ""}, None, "empty"),
        ({"retry-after": "稍后"}, None, "text"),
        ({"retry-after": "Tue, 99 Nov 2023 22:13:50 GMT"}, None, "no such day"),
    ],
)
def test_wait_the_server_asks_for(headers: dict[str, str], expected: float | None, why: str) -> None:
    assert parse_retry_after(headers, NOW) == (None if expected is None else pytest.approx(expected)), why
