"""The database under the store of evaluators: its address, its tables, and every statement that is ever sent to it."""

from __future__ import annotations

import functools
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rm_gallery.core.utils.errors import ConfigError, MissingExtra

if TYPE_CHECKING:
    import sqlalchemy as sa
    from sqlalchemy.exc import SQLAlchemyError

VARIABLE = "RM_GALLERY_STORE"
FORMAT = 1
STATE_TABLE = "rm_gallery_store"
_WAIT_SECONDS = 30.0


def default_store_url() -> str:
    """RM_GALLERY_STORE, else a SQLite file in the user's data folder (XDG_DATA_HOME, LOCALAPPDATA or ~/.local/share)."""
    given = os.environ.get(VARIABLE, "").strip()
    if given:
        return given
    base = os.environ.get("XDG_DATA_HOME") or (os.environ.get("LOCALAPPDATA") if sys.platform == "win32" else None)
    return str((Path(base) if base else Path.home() / ".local" / "share") / "rm-gallery" / "evaluators.db")


def parsed_url(url: str) -> sa.URL:
    """The address as SQLAlchemy takes it, with our driver; a text without `://` is the path of a SQLite file. Raises ConfigError."""
    import sqlalchemy as sa
    from sqlalchemy.exc import SQLAlchemyError

    if "://" not in url:
        path = Path(url.removeprefix("sqlite:")).expanduser().absolute()
        return sa.URL.create("sqlite", database=str(path))
    try:
        parsed = sa.make_url(url)
    except SQLAlchemyError:
        raise ConfigError(
            f"{VARIABLE} or --store is no database URL; examples: postgresql://user@host/database, sqlite:///evaluators.db"
        ) from None
    backend = parsed.get_backend_name()
    if backend == "postgres" or parsed.drivername == "postgresql":
        return parsed.set(drivername="postgresql+psycopg")
    if backend not in ("postgresql", "sqlite"):
        raise ConfigError(f"a store is a SQLite file or a PostgreSQL database; found a URL of {backend!r}")
    if backend == "sqlite" and parsed.database in (None, "", ":memory:"):
        raise ConfigError("a store in memory is gone at once; name a file: sqlite:///evaluators.db")
    return parsed


def engine_of(url: sa.URL, shown: str) -> sa.Engine:
    """Where connections come from; `shown` is the address without password. Raises ConfigError, MissingExtra."""
    import sqlalchemy as sa

    if url.get_backend_name() == "sqlite":
        path = Path(url.database or "")
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # the code of evaluators is its owner's business
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        except OSError as error:
            raise ConfigError(f"the store {shown} cannot be opened: {error.strerror or error}") from error
        # a connection per transaction: nothing is left open in a thread that ends or a process that forks
        return sa.create_engine(url, poolclass=sa.NullPool, connect_args={"timeout": _WAIT_SECONDS}, hide_parameters=True)
    bounds: dict[str, Any] = {"connect_timeout": 10, "tcp_user_timeout": 15_000}
    if "options" not in url.query:
        bounds["options"] = f"-c statement_timeout={int(1000 * _WAIT_SECONDS)}"
    try:
        import psycopg  # noqa: F401 - what SQLAlchemy talks to PostgreSQL with
    except ImportError as error:
        raise MissingExtra("psycopg[binary]", "postgres", "A store in PostgreSQL") from error
    return sa.create_engine(url, pool_pre_ping=True, pool_size=2, max_overflow=8, connect_args=bounds, hide_parameters=True)


def cause_of(error: SQLAlchemyError) -> str:
    """The database's own words in one line; statements and parameters stay out."""
    inner = getattr(error, "orig", None) or error
    return " ".join(str(inner).split())[:300] or type(inner).__name__


@dataclass(frozen=True)
class Statements:
    """Everything that is ever asked of the database; values go in by name."""

    metadata: sa.MetaData
    format: sa.Select[Any]
    begin: sa.Insert
    revision: sa.Select[Any]
    change: sa.Update
    current: sa.Select[Any]
    latest: sa.Select[Any]
    numbers: sa.Select[Any]
    ids: sa.Select[Any]
    add_version: sa.Insert
    add_evaluator: sa.Insert
    point_to: sa.Update
    delete_evaluator: sa.Delete
    delete_versions: sa.Delete
    with_files: sa.Select[Any]
    history: sa.Select[Any]
    listing: sa.Select[Any]


@functools.cache
def statements() -> Statements:
    """Raises MissingExtra without sqlalchemy."""
    try:
        import sqlalchemy as sa
    except ImportError as error:
        raise MissingExtra("sqlalchemy", "serve", "The store of evaluators") from error
    metadata = sa.MetaData()
    state = sa.Table(
        STATE_TABLE,
        metadata,
        sa.Column("one", sa.Integer, primary_key=True),
        sa.Column("format", sa.Integer, nullable=False),
        sa.Column("revision", sa.BigInteger, nullable=False),
    )
    evaluators = sa.Table(
        "rm_gallery_evaluators",
        metadata,
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("current", sa.Integer, nullable=False),
    )
    versions = sa.Table(
        "rm_gallery_versions",
        metadata,
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("version", sa.Integer, primary_key=True),
        sa.Column("hash", sa.Text, nullable=False),
        sa.Column("display_name", sa.Text, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        # metrics, requirements, mode: what can be told without unpacking the files
        sa.Column("facts", sa.Text, nullable=False),
        sa.Column("size", sa.Integer, nullable=False),
        sa.Column("created", sa.Text, nullable=False),
        sa.Column("files", sa.LargeBinary, nullable=False),
    )
    wanted: sa.BindParameter[Any] = sa.bindparam("wanted")
    is_served = versions.c.version == evaluators.c.current
    rows = sa.select(*versions.c, evaluators.c.current).join(evaluators, evaluators.c.id == versions.c.id)
    facts = rows.with_only_columns(*(c for c in versions.c if c.name != "files"), evaluators.c.current)
    version: sa.BindParameter[Any] = sa.bindparam("number", type_=sa.Integer)
    return Statements(
        metadata=metadata,
        format=sa.select(state.c.format),
        begin=sa.insert(state).values(one=1, format=FORMAT, revision=0),
        revision=sa.select(state.c.revision),
        change=sa.update(state).values(revision=state.c.revision + 1),
        current=sa.select(evaluators.c.current).where(evaluators.c.id == wanted),
        latest=sa.select(sa.func.max(versions.c.version)).where(versions.c.id == wanted),
        numbers=sa.select(versions.c.version).where(versions.c.id == wanted).order_by(versions.c.version),
        ids=sa.select(evaluators.c.id).order_by(evaluators.c.id).limit(20),
        add_version=sa.insert(versions),
        add_evaluator=sa.insert(evaluators),
        point_to=sa.update(evaluators).where(evaluators.c.id == wanted).values(current=version),
        delete_evaluator=sa.delete(evaluators).where(evaluators.c.id == wanted),
        delete_versions=sa.delete(versions).where(versions.c.id == wanted),
        with_files=rows.where(versions.c.id == wanted, versions.c.version == sa.func.coalesce(version, evaluators.c.current)),
        history=facts.where(versions.c.id == wanted).order_by(versions.c.version.desc()),
        listing=facts.where(is_served).order_by(versions.c.id),
    )
