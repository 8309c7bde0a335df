"""Bearer tokens: made once, kept as hashes, compared in constant time, each with its scopes and its
rate.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import get_args

import orjson

from rm_gallery.core.model.transport import Json
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.core.utils.file import FileLock, as_json, replacing
from rm_gallery.core.utils.log import logger
from rm_gallery.core.utils.names import unknown_name
from rm_gallery.serve.formats import Refused, RequestHeaders, Scope

SCOPES: tuple[Scope, ...] = get_args(Scope)
LOOK_SECONDS = 1.0
"""How often the file is looked at for changes."""
TINY = 1e-6
"""So much of a completion is lost in sums of many."""
_FORM = re.compile(r"rmg_([0-9a-f]{12})_([\w-]{43})\Z", re.ASCII)
_NOBODY = hashlib.sha256(secrets.token_bytes(32)).digest()


@dataclass
class Token:
    """What is known of a token; its secret is not."""

    id: str
    name: str
    digest: bytes
    scopes: frozenset[str]
    per_minute: int | None = None
    """Completions a minute; None for no limit."""
    created: str = ""


class TokenRates:
    """What each token has left of its rate: as much as of a minute at most, and more with every
    second.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._left: dict[str, tuple[float, float]] = {}
        """By the token's id, completions and when that was."""

    def spend(self, id: str, per_minute: int, n: int, had: int = 0) -> float:
        """Take n completions at once; 0, or the seconds until there are as many, where nothing is
        taken and `had`, which were taken before for the same request, are given back.
        """
        most, per_second = float(per_minute), per_minute / 60
        with self._lock:
            now = time.monotonic()
            left, since = self._left.get(id, (most, now))
            left = min(most, left + (now - since) * per_second)
            fits = left >= n - TINY
            self._left[id] = (left - n if fits else min(most, left + had)), now
        return 0.0 if fits else (n - left) / per_second


class TokenFile:
    """The tokens of a file, which is read again when it changes: one that is revoked there is
    refused within a second.
    """

    def __init__(self, path: Path) -> None:
        """Read the file; ConfigError where it cannot be read."""
        self.path = path
        self._known = read_tokens(path)
        self._stamp = _stamp(path)
        self._looked = time.monotonic()

    def __len__(self) -> int:
        return len(self._known)

    def authorize(self, headers: RequestHeaders, scope: Scope) -> Token:
        """The token of a request.

        Raises:
            Refused: there is none that is known (401), or it lacks the scope (403).
        """
        now = time.monotonic()
        if now - self._looked > LOOK_SECONDS:
            self._reload(now)
        token = self._token_of(given_token(headers))
        if token is None:
            raise Refused(
                401, "unauthorized", "Send a known token as `Authorization: Bearer TOKEN`."
            )
        if scope not in token.scopes:
            raise Refused(403, "forbidden", f"The token lacks the scope '{scope}'.")
        return token

    def _token_of(self, given: str | None) -> Token | None:
        form = _FORM.match(given) if given else None
        known = self._known.get(form[1]) if form else None
        # an id that is not known takes as long as one that is
        digest = hashlib.sha256((form[2] if form else "").encode()).digest()
        same = hmac.compare_digest(digest, _NOBODY if known is None else known.digest)
        return known if same else None

    def _reload(self, now: float) -> None:
        self._looked = now
        stamp = _stamp(self.path)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            tokens = read_tokens(self.path)
        except ConfigError as error:
            # nobody gets in by breaking or removing the file
            logger.error("No token is accepted any more: {}", error)
            tokens = {}
        self._known = tokens


def given_token(headers: RequestHeaders) -> str | None:
    """The token a request came with, as a bearer or in X-Api-Key."""
    bearer = headers.get(b"authorization")
    if bearer is not None and bearer[:7].lower() == b"bearer ":
        return bearer[7:].strip().decode("latin-1")
    key = headers.get(b"x-api-key")
    return None if key is None else key.decode("latin-1")


def read_tokens(path: Path) -> dict[str, Token]:
    """The tokens of a file by id; ConfigError names what does not fit."""
    try:
        read = orjson.loads(path.read_bytes())
        entries = read["tokens"]
        return {entry["id"]: _token(entry) for entry in entries}
    except OSError as error:
        raise ConfigError(
            f"the tokens file {path} cannot be read ({error.strerror}); `rm-gallery serve-token "
            f"create --tokens {path}` "
            "makes one."
        ) from error
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{path} is no tokens file: {type(error).__name__}: {error}") from error


def _token(entry: Json) -> Token:
    unknown = set(entry["scopes"]) - set(SCOPES)
    if unknown:
        raise ConfigError(unknown_name("scope", min(unknown), SCOPES))
    per_minute = entry.get("per_minute")
    if per_minute is not None and (type(per_minute) is not int or per_minute < 1):
        raise ConfigError(
            f"per_minute of token {entry['id']} is {per_minute!r:.40}; it is a positive whole "
            f"number."
        )
    digest = bytes.fromhex(entry["sha256"])
    return Token(
        entry["id"],
        entry["name"],
        digest,
        frozenset(entry["scopes"]),
        per_minute,
        entry.get("created", ""),
    )


def _entry(token: Token) -> Json:
    """A token as the file holds it."""
    kept = {
        "id": token.id,
        "name": token.name,
        "sha256": token.digest.hex(),
        "scopes": sorted(token.scopes),
    }
    return {**kept, "per_minute": token.per_minute, "created": token.created}


def create_token(
    path: Path, name: str, scopes: Sequence[str], per_minute: int | None = None
) -> str:
    """Add a token to a file, which is made if need be and readable by its owner alone; returns the
    token, kept nowhere.
    """
    secret = secrets.token_urlsafe(32)
    made = datetime.now(timezone.utc).isoformat(timespec="seconds")
    digest = hashlib.sha256(secret.encode()).digest()
    token = Token(secrets.token_hex(6), name, digest, frozenset(scopes), per_minute, made)
    _token(_entry(token))
    with _changing(path) as tokens:
        if any(known.name == name for known in tokens):
            raise ConfigError(
                f"there is a token named {name!r:.60} already; give another name, or revoke it "
                f"first."
            )
        tokens.append(token)
    return f"rmg_{token.id}_{secret}"


def revoke_token(path: Path, name: str) -> None:
    """Remove a token by name or id; ConfigError when there is none."""
    if not path.exists():
        read_tokens(path)  # says so, and leaves no lock behind
    with _changing(path) as tokens:
        kept = [token for token in tokens if name not in (token.id, token.name)]
        if len(kept) == len(tokens):
            raise ConfigError(unknown_name("token", name, [token.name for token in tokens]))
        tokens[:] = kept


@contextmanager
def _changing(path: Path) -> Iterator[list[Token]]:
    """The tokens of a file; what the block leaves of them is written, for the owner of the file
    alone. Of two changes at once neither undoes the other.
    """
    lock = FileLock(path.with_name(f"{path.name}.lock"))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not lock.acquire(timeout=10.0):
            raise ConfigError(
                f"the tokens file {path} is being changed by {lock.owner()}; try again."
            )
        try:
            tokens = list(read_tokens(path).values()) if path.exists() else []
            yield tokens
            with replacing(path) as file:
                if os.name != "nt":
                    os.fchmod(file.fileno(), 0o600)
                file.write(as_json({"tokens": list(map(_entry, tokens))}))
        finally:
            lock.release()
    except OSError as error:
        raise ConfigError(f"the tokens file {path} cannot be written: {error.strerror}") from error


def _stamp(path: Path) -> tuple[int, int, int] | None:
    with suppress(OSError):
        status = path.stat()
        return status.st_mtime_ns, status.st_size, status.st_ino
    return None
