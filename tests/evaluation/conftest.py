"""Both databases, and folders to deploy."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.postgresql import postgresql

_numbers = itertools.count()


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[str]:
    with postgresql() as url:
        yield url


@pytest.fixture(
    params=["sqlite", pytest.param("postgresql", marks=pytest.mark.system("postgresql"))]
)
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty store."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'store.db'}"
    import psycopg

    url: str = request.getfixturevalue("postgresql_server")
    name = f"store{next(_numbers)}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    return url.replace("/postgres?", f"/{name}?")


MakeFolder = Callable[..., Path]


@pytest.fixture
def make_folder(tmp_path: Path) -> MakeFolder:
    """Writes a metric folder: `make_folder("name", main="…", **{"helper.py": "…"})`."""

    def make(
        name: str = "metric",
        main: str = "def evaluate(messages, **kwargs):\n    return 1.0\n",
        **others: str,
    ) -> Path:
        folder = tmp_path / "metrics" / name
        for path, text in {"main.py": main, **others}.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text, encoding="utf-8")
        return folder

    return make
