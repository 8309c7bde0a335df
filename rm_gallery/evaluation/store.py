"""Versioned evaluators in one database, SQLite by default, PostgreSQL by URL: every statement that
is ever sent to it, and every change as one transaction.
"""

from __future__ import annotations

import functools
import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from rm_gallery.core.utils.errors import ConfigError, MissingExtra, RMGalleryError
from rm_gallery.core.utils.log import logger
from rm_gallery.evaluation.bundle import Bundle, DamagedBundle, Mode

if TYPE_CHECKING:
    import sqlalchemy as sa
    from sqlalchemy.exc import SQLAlchemyError


VARIABLE = "RM_GALLERY_STORE"
FORMAT = 1
STATE_TABLE = "rm_gallery_store"
_WAIT_SECONDS = 30.0


def default_store_url() -> str:
    """RM_GALLERY_STORE, else a SQLite file in the user's data folder (XDG_DATA_HOME, LOCALAPPDATA
    or ~/.local/share).
    """
    given = os.environ.get(VARIABLE, "").strip()
    if given:
        return given
    base = os.environ.get("XDG_DATA_HOME") or (
        os.environ.get("LOCALAPPDATA") if sys.platform == "win32" else None
    )
    return str(
        (Path(base) if base else Path.home() / ".local" / "share") / "rm-gallery" / "evaluators.db"
    )


def parsed_url(url: str) -> sa.URL:
    """The address as SQLAlchemy takes it, with our driver; a text without `://` is the path of a
    SQLite file. Raises ConfigError.
    """
    import sqlalchemy as sa
    from sqlalchemy.exc import SQLAlchemyError

    if "://" not in url:
        path = Path(url.removeprefix("sqlite:")).expanduser().absolute()
        return sa.URL.create("sqlite", database=str(path))
    try:
        parsed = sa.make_url(url)
    except SQLAlchemyError:
        raise ConfigError(
            f"{VARIABLE} or --store is no database URL; examples: postgresql://user@host/database, "
            f"sqlite:///evaluators.db"
        ) from None
    backend = parsed.get_backend_name()
    if backend == "postgres" or parsed.drivername == "postgresql":
        return parsed.set(drivername="postgresql+psycopg")
    if backend not in ("postgresql", "sqlite"):
        raise ConfigError(
            f"a store is a SQLite file or a PostgreSQL database; found a URL of {backend!r}"
        )
    if backend == "sqlite" and parsed.database in (None, "", ":memory:"):
        raise ConfigError("a store in memory is gone at once; name a file: sqlite:///evaluators.db")
    return parsed


def engine_of(url: sa.URL, shown: str) -> sa.Engine:
    """Where connections come from; `shown` is the address without password. Raises ConfigError,
    MissingExtra.
    """
    import sqlalchemy as sa

    if url.get_backend_name() == "sqlite":
        path = Path(url.database or "")
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # the code of evaluators is its owner's business
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        except OSError as error:
            raise ConfigError(
                f"the store {shown} cannot be opened: {error.strerror or error}"
            ) from error
        # a connection per transaction: nothing is left open in a thread that ends or a process that
        # forks
        return sa.create_engine(
            url,
            poolclass=sa.NullPool,
            connect_args={"timeout": _WAIT_SECONDS},
            hide_parameters=True,
        )
    bounds: dict[str, Any] = {"connect_timeout": 10, "tcp_user_timeout": 15_000}
    if "options" not in url.query:
        bounds["options"] = f"-c statement_timeout={int(1000 * _WAIT_SECONDS)}"
    try:
        import psycopg  # noqa: F401 - what SQLAlchemy talks to PostgreSQL with
    except ImportError as error:
        raise MissingExtra("psycopg[binary]", "postgres", "A store in PostgreSQL") from error
    return sa.create_engine(
        url,
        pool_pre_ping=True,
        pool_size=2,
        max_overflow=8,
        connect_args=bounds,
        hide_parameters=True,
    )


def cause_of(error: SQLAlchemyError) -> str:
    """The database's own words in one line; statements and parameters stay out."""
    inner = getattr(error, "orig", None) or error
    return " ".join(str(inner).split())[:300] or type(inner).__name__


class Statements:
    """Everything that is ever asked of the database; values go in by name. Raises MissingExtra
    without sqlalchemy.
    """

    def __init__(self) -> None:
        try:
            import sqlalchemy as sa
        except ImportError as error:
            raise MissingExtra("sqlalchemy", "serve", "The store of evaluators") from error
        self.metadata = metadata = sa.MetaData()

        def table(name: str, *keys: str, **columns: Any) -> sa.Table:
            made = (
                sa.Column(column, kind, primary_key=column in keys, nullable=False)
                for column, kind in columns.items()
            )
            return sa.Table(name, metadata, *made)

        state = table(STATE_TABLE, "one", one=sa.Integer, format=sa.Integer, revision=sa.BigInteger)
        evaluators = table("rm_gallery_evaluators", "id", id=sa.Text, current=sa.Integer)
        versions = table(
            "rm_gallery_versions",
            "id",
            "version",
            id=sa.Text,
            version=sa.Integer,
            hash=sa.Text,
            display_name=sa.Text,
            description=sa.Text,
            # metrics, requirements, mode: what can be told without unpacking the files
            facts=sa.Text,
            size=sa.Integer,
            created=sa.Text,
            files=sa.LargeBinary,
        )
        wanted: sa.BindParameter[Any] = sa.bindparam("wanted")
        rows = sa.select(*versions.c, evaluators.c.current).join(
            evaluators, evaluators.c.id == versions.c.id
        )
        facts = rows.with_only_columns(
            *(c for c in versions.c if c.name != "files"), evaluators.c.current
        )
        version: sa.BindParameter[Any] = sa.bindparam("number", type_=sa.Integer)
        self.format = sa.select(state.c.format)
        self.begin = sa.insert(state).values(one=1, format=FORMAT, revision=0)
        self.revision = sa.select(state.c.revision)
        self.change = sa.update(state).values(revision=state.c.revision + 1)
        self.current = sa.select(evaluators.c.current).where(evaluators.c.id == wanted)
        self.latest = sa.select(sa.func.max(versions.c.version)).where(versions.c.id == wanted)
        self.numbers = (
            sa.select(versions.c.version)
            .where(versions.c.id == wanted)
            .order_by(versions.c.version)
        )
        self.ids = sa.select(evaluators.c.id).order_by(evaluators.c.id).limit(20)
        self.add_version = sa.insert(versions)
        self.add_evaluator = sa.insert(evaluators)
        self.point_to = (
            sa.update(evaluators).where(evaluators.c.id == wanted).values(current=version)
        )
        self.delete_evaluator = sa.delete(evaluators).where(evaluators.c.id == wanted)
        self.delete_versions = sa.delete(versions).where(versions.c.id == wanted)
        self.with_files: sa.Select[Any] = rows.where(
            versions.c.id == wanted,
            versions.c.version == sa.func.coalesce(version, evaluators.c.current),
        )
        self.history: sa.Select[Any] = facts.where(versions.c.id == wanted).order_by(
            versions.c.version.desc()
        )
        self.listing: sa.Select[Any] = facts.where(
            versions.c.version == evaluators.c.current
        ).order_by(versions.c.id)


statements = functools.cache(Statements)


_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_TRIES = 20
_LONGEST = {"display_name": 200, "description": 5000}


class StoreError(RMGalleryError):
    """The database refused or lost an operation; nothing was changed."""


class UnknownEvaluator(ConfigError):
    """There is no evaluator, or no version of it, by that name."""


class EvaluatorExists(ConfigError):
    """An evaluator of that id is there and was not to be replaced."""


@dataclass(frozen=True)
class Version:
    """One version of an evaluator, without its files."""

    id: str
    version: int
    hash: str
    display_name: str
    description: str
    metrics: tuple[str, ...]
    requirements: tuple[str, ...]
    mode: Mode
    size: int
    """Bytes of the stored files, packed."""
    created: str
    """When it was deployed, ISO 8601 in UTC."""
    is_current: bool
    """Whether this version is the one that is served."""

    @property
    def name(self) -> str:
        """The resource name, whose last part is the id."""
        return f"accounts/local/evaluators/{self.id}"

    def as_dict(self) -> dict[str, Any]:
        """JSON types."""
        own = {each.name: getattr(self, each.name) for each in fields(Version)}
        return {
            "name": self.name,
            **own,
            "metrics": list(self.metrics),
            "requirements": list(self.requirements),
        }


@dataclass(frozen=True)
class Deployed(Version):
    """One version with its files."""

    bundle: Bundle


class Store:
    """The evaluators in one database; usable from several threads, processes and machines at once.

    A reader sees a version whole or not at all; a process that dies while it writes leaves what was
    there. Every method raises StoreError when the database fails it.
    """

    def __init__(self, engine: sa.Engine, shown: str) -> None:
        self._engine = engine
        self._sql = statements()
        self.shown = shown
        """Where it is, without password."""

    @classmethod
    def open(cls, url: str | os.PathLike[str] | None = None) -> Store:
        """Open a store, and make it where there is none.

        Args:
            url: `postgresql://user:password@host/database`, `sqlite:///path` or the path of a
                SQLite file; default `default_store_url`.

        Raises:
            ConfigError: the URL is none, or what it names cannot be opened or was made by a newer
                version.
            MissingExtra: PostgreSQL without its driver.
        """
        statements()
        from sqlalchemy.exc import SQLAlchemyError

        parsed = parsed_url(os.fspath(url) if url is not None else default_store_url())
        shown = parsed.render_as_string(hide_password=True)
        store = cls(engine_of(parsed, shown), shown)
        try:
            store._prepare()
        except SQLAlchemyError as error:
            store.close()
            raise ConfigError(f"the store {shown} cannot be opened: {cause_of(error)}") from error
        except ConfigError:
            store.close()
            raise
        return store

    def close(self) -> None:
        """Close its connections."""
        self._engine.dispose()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _prepare(self) -> None:
        """Make the tables, or find that another process has; the row of state comes last, so that
        half of it is no store.
        """
        from sqlalchemy.exc import DBAPIError

        for left in reversed(range(_TRIES)):
            format_number = self._read_state()
            if format_number is not None:
                break
            try:
                with self._engine.begin() as connection:
                    self._sql.metadata.create_all(connection)
                    connection.execute(self._sql.begin)
            except DBAPIError:  # another process made it at the same moment, or it cannot be made
                if not left:
                    raise
                time.sleep(0.1)
        if format_number is not None and format_number > FORMAT:
            raise ConfigError(
                f"the store {self.shown} was made by a newer version of rm_gallery; update this one"
            )

    def _read_state(self) -> int | None:
        import sqlalchemy as sa

        with self._engine.connect() as connection:
            if not sa.inspect(connection).has_table(STATE_TABLE):
                return None
            number: int | None = connection.execute(self._sql.format).scalar_one_or_none()
        return number

    def revision(self) -> int:
        """A number that grows with every change; equal numbers mean that nothing has changed."""
        with self._reading() as connection:
            return int(connection.execute(self._sql.revision).scalar_one())

    def save(
        self,
        evaluator_id: str,
        bundle: Bundle,
        *,
        display_name: str = "",
        description: str = "",
        force: bool = False,
    ) -> Deployed:
        """Store a bundle as the new current version of an evaluator.

        Args:
            evaluator_id: up to 63 letters, digits, "-", "_" and ".".
            bundle: its files.
            display_name: what people call it; default the id.
            description: what it measures.
            force: a further version of an evaluator that is there; older ones stay, see `rollback`.

        Raises:
            EvaluatorExists: it is there and `force` is not given.
            ConfigError: an id or text that cannot be stored.
        """
        _check_id(evaluator_id)
        for name, text in (("display_name", display_name), ("description", description)):
            _check_text(name, text)
        packed = bundle.pack()
        facts = {name: getattr(bundle, name) for name in ("metrics", "requirements", "mode")}
        row = {
            "id": evaluator_id,
            "hash": bundle.hash,
            "display_name": display_name or evaluator_id,
            "description": description,
            "facts": orjson.dumps(facts).decode(),
            "size": len(packed),
            "created": datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
            "files": packed,
        }

        with self._writing() as connection:
            current = self._current(connection, evaluator_id)
            self._refuse(evaluator_id, current, force)
            latest = connection.execute(self._sql.latest, {"wanted": evaluator_id}).scalar_one()
            version = int(latest or 0) + 1
            connection.execute(self._sql.add_version, {"version": version, **row})
            if current is None:
                connection.execute(
                    self._sql.add_evaluator, {"id": evaluator_id, "current": version}
                )
            else:
                connection.execute(self._sql.point_to, {"wanted": evaluator_id, "number": version})
        return self.current(evaluator_id, version=version)

    def check_free(self, evaluator_id: str, *, force: bool = False) -> None:
        """Raise what `save` would raise about the id, before work is put into what is to be saved."""
        _check_id(evaluator_id)
        with self._reading() as connection:
            self._refuse(evaluator_id, self._current(connection, evaluator_id), force)

    def _refuse(self, evaluator_id: str, current: int | None, force: bool) -> None:
        if current is not None and not force:
            raise EvaluatorExists(
                f"there is an evaluator {evaluator_id!r} (version {current}) in {self.shown}; "
                f"choose another id, or "
                "replace it with force=True (--force): its versions are kept"
            )

    def current(self, evaluator_id: str, *, version: int | None = None) -> Deployed:
        """The version that is served, or another one by its number, with its files.

        Raises:
            UnknownEvaluator: there is none.
            DamagedBundle: the stored files are not those that were deployed.
        """
        values = {"wanted": evaluator_id if _ID.fullmatch(evaluator_id) else "", "number": version}
        with self._reading() as connection:
            row = connection.execute(self._sql.with_files, values).one_or_none()
            if row is None:
                raise self._unknown(connection, evaluator_id, version)
        facts = vars(_version_of(row))
        if not isinstance(row.files, bytes | memoryview):
            raise _damaged(row)
        return Deployed(**facts, bundle=Bundle.unpack(bytes(row.files), row.hash))

    def versions(self, evaluator_id: str) -> list[Version]:
        """All versions of an evaluator, the newest first; raises UnknownEvaluator."""
        with self._reading() as connection:
            rows = connection.execute(self._sql.history, {"wanted": evaluator_id}).all()
            if not rows:
                raise self._unknown(connection, evaluator_id)
        return [_version_of(row) for row in rows]

    def list(self) -> list[Version]:
        """The current version of every evaluator, by id; a damaged one is left out and named in the
        log.
        """
        with self._reading() as connection:
            rows = connection.execute(self._sql.listing).all()
        versions = []
        for row in rows:
            try:
                versions.append(_version_of(row))
            except DamagedBundle as error:
                logger.warning("{}", error)
        return versions

    def rollback(self, evaluator_id: str, version: int | None = None) -> Version:
        """Serve an older version again (default: the one before the current); no version is
        removed.

        Raises:
            UnknownEvaluator: there is no such evaluator or version, or none before the current.
        """
        with self._writing() as connection:
            current = self._current(connection, evaluator_id)
            if current is None:
                raise self._unknown(connection, evaluator_id)
            known = connection.execute(self._sql.numbers, {"wanted": evaluator_id}).scalars().all()
            wanted = (
                max((n for n in known if n < current), default=None) if version is None else version
            )
            if wanted is None:
                raise UnknownEvaluator(
                    f"evaluator {evaluator_id!r} has no version before the current one ({current})"
                )
            if wanted not in known:
                raise UnknownEvaluator(
                    f"evaluator {evaluator_id!r} has no version {version}; it has "
                    f"{', '.join(map(str, known))}"
                )
            connection.execute(self._sql.point_to, {"wanted": evaluator_id, "number": wanted})
        return next(each for each in self.versions(evaluator_id) if each.version == wanted)

    def delete(self, evaluator_id: str) -> int:
        """Remove an evaluator with all its versions; return how many there were. Raises
        UnknownEvaluator.
        """
        wanted = {"wanted": evaluator_id}
        with self._writing() as connection:
            if not connection.execute(self._sql.delete_evaluator, wanted).rowcount:
                raise self._unknown(connection, evaluator_id)
            return int(connection.execute(self._sql.delete_versions, wanted).rowcount)

    def _unknown(
        self, connection: sa.Connection, evaluator_id: str, version: int | None = None
    ) -> UnknownEvaluator:
        if version is not None:
            return UnknownEvaluator(
                f"there is no version {version} of evaluator {evaluator_id[:80]!r} in {self.shown}"
            )
        known = ", ".join(connection.execute(self._sql.ids).scalars()) or "none yet"
        return UnknownEvaluator(
            f"there is no evaluator {evaluator_id[:80]!r} in {self.shown}; there are: {known}"
        )

    @contextmanager
    def _reading(self) -> Iterator[sa.Connection]:
        with self._errors(), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def _writing(self) -> Iterator[sa.Connection]:
        """One transaction. It begins with a write to the one row, which makes writers wait for each
        other in any database.
        """
        with self._errors(), self._engine.begin() as connection:
            connection.execute(self._sql.change)
            yield connection

    def _current(self, connection: sa.Connection, evaluator_id: str) -> int | None:
        values = {"wanted": evaluator_id}
        number: int | None = connection.execute(self._sql.current, values).scalar_one_or_none()
        return number

    @contextmanager
    def _errors(self) -> Iterator[None]:
        from sqlalchemy.exc import SQLAlchemyError

        try:
            yield
        except SQLAlchemyError as error:
            raise StoreError(
                f"the store {self.shown}: {cause_of(error)}; nothing was changed"
            ) from error


def _check_id(evaluator_id: str) -> None:
    if not isinstance(evaluator_id, str) or not _ID.fullmatch(evaluator_id):
        raise ConfigError(
            f"evaluator_id is {str(evaluator_id)[:80]!r}; it holds up to 63 letters, digits, '-', "
            f"'_' and '.', "
            "and begins with a letter or digit"
        )


def _check_text(name: str, text: str) -> None:
    try:
        size = len(text.encode("utf-8"))
    except UnicodeEncodeError:
        raise ConfigError(f"{name} holds characters that are no valid Unicode") from None
    if "\0" in text or size > _LONGEST[name]:
        raise ConfigError(
            f"{name} may have {_LONGEST[name]} bytes and no NUL character; found {size} bytes"
        )


def _damaged(row: sa.Row[Any]) -> DamagedBundle:
    return DamagedBundle(
        f"what the store holds of evaluator {row.id!r}, version {row.version}, is damaged; deploy "
        f"it again"
    )


def _version_of(row: sa.Row[Any]) -> Version:
    try:
        facts = orjson.loads(row.facts)
        metrics, requirements = tuple(facts["metrics"]), tuple(facts["requirements"])
        mode = facts["mode"]
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(row) from error
    own = {each.name for each in fields(Version)}
    return Version(
        **{name: value for name, value in row._mapping.items() if name in own},
        metrics=metrics,
        requirements=requirements,
        mode=mode,
        is_current=row.version == row.current,
    )
