"""What several tests of adapters get."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from loguru import logger

from tests.integrations.packages import installed


@pytest.fixture
def warned() -> Iterator[list[str]]:
    """The warnings of a test."""
    lines: list[str] = []
    sink = logger.add(lambda message: lines.append(message.record["message"]), level="WARNING")
    yield lines
    logger.remove(sink)


@pytest.fixture
def there() -> Iterator[None]:
    """Stand-ins for packages that are not installed."""
    with installed():
        yield
