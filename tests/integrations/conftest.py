"""What several tests of adapters get."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integrations.packages import installed


@pytest.fixture
def there() -> Iterator[None]:
    """Stand-ins for packages that are not installed."""
    with installed():
        yield
