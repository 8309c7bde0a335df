"""Tokens: who is let in, for what and how often, also after their file has changed; without a
server.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import orjson
import pytest

from rm_gallery import ConfigError
from rm_gallery.serve import tokens as module
from rm_gallery.serve.formats import Refused
from rm_gallery.serve.tokens import TokenFile, TokenRates, create_token, read_tokens, revoke_token


class Clock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(module, "time", made)
    return made


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tokens.json"


def bearer(token: str) -> dict[bytes, bytes]:
    return {b"authorization": b"Bearer " + token.encode()}


def refusal(
    tokens: TokenFile, headers: dict[bytes, bytes], scope: Any = "evaluate"
) -> tuple[Any, ...]:
    with pytest.raises(Refused) as raised:
        tokens.authorize(headers, scope)
    return raised.value.status, raised.value.code, raised.value.retry_after


def test_tokens_made_at_once_are_all_kept(file: Path) -> None:
    """Of 13 made by as many commands 4 were left."""
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: create_token(file, f"t{n}", ["read"]), range(16)))
        list(
            pool.map(
                lambda n: revoke_token(file, f"t{n}") if n % 2 else create_token(file, f"u{n}", []),
                range(16),
            )
        )
    wanted = {f"{letter}{n}" for n in range(0, 16, 2) for letter in "tu"}
    assert {token.name for token in read_tokens(file).values()} == wanted and len(
        read_tokens(file)
    ) == 16


def test_only_the_whole_token_opens_and_only_its_scopes(file: Path) -> None:
    token, other = create_token(file, "a", ["evaluate"]), create_token(file, "b", ["read"])
    tokens = TokenFile(file)
    assert len(tokens) == 2
    for headers in (
        bearer(token),
        {b"authorization": b"bearer  " + token.encode()},
        {b"x-api-key": token.encode()},
    ):
        assert tokens.authorize(headers, "evaluate").name == "a"
    id_a, id_b = token.split("_")[1], other.split("_")[1]
    wrong = [
        token[:-1] + ("x" if token[-1] != "x" else "y"),
        token[:-1],
        f"{token}x",
        f"{token}\n",
        "",
        "rmg__",
    ]
    wrong += [
        f"rmg_{id_b}_{token.split('_', 2)[2]}",
        f"rmg_{id_a}_",
        token.upper(),
        f"rmg_{'0' * 12}_{token.split('_', 2)[2]}",
    ]
    for given in wrong:
        assert refusal(tokens, {b"x-api-key": given.encode()})[:2] == (401, "unauthorized"), given
    assert (
        refusal(tokens, {})[0]
        == refusal(tokens, {b"authorization": b"Basic " + token.encode()})[0]
        == 401
    )
    assert [refusal(tokens, bearer(token), scope)[:2] for scope in ("read", "deploy")] == [
        (403, "forbidden")
    ] * 2
    assert refusal(tokens, bearer(other))[0] == 403


@pytest.mark.parametrize("place", [0, 7, 8, 31, 63])
def test_every_digit_of_what_is_kept_counts(file: Path, place: int) -> None:
    token = create_token(file, "a", ["evaluate"])
    kept = orjson.loads(file.read_bytes())
    digest = kept["tokens"][0]["sha256"]
    kept["tokens"][0]["sha256"] = (
        f"{digest[:place]}{'0' if digest[place] != '0' else '1'}{digest[place + 1 :]}"
    )
    file.write_bytes(orjson.dumps(kept))
    assert refusal(TokenFile(file), bearer(token))[0] == 401
    file.write_bytes(orjson.dumps({"tokens": [{**kept["tokens"][0], "sha256": digest}]}))
    assert TokenFile(file).authorize(bearer(token), "evaluate").name == "a"


def test_a_rate_fills_up_with_time_and_never_above_a_minute(clock: Clock) -> None:
    rates = TokenRates()
    for passed, n, had, wait in [
        (0.0, 6, 0, 0.0), (0.0, 1, 0, 10.0), (4.0, 1, 0, 6.0), (17.0, 2, 0, 0.0), (0.0, 1, 0, 9.0), (3600.0, 6, 0, 0.0),
        (9.999, 1, 0, 0.001), (0.001, 1, 0, 0.0), (3600.0, 1, 0, 0.0),
        # one of a batch was taken before; all are given back where the others do not fit
        (0.0, 5, 1, 0.0), (20.0, 1, 0, 0.0), (0.0, 3, 1, 20.0), (20.0, 4, 0, 0.0), (0.0, 1, 0, 10.0),
    ]:  # fmt: skip
        clock.now += passed
        assert rates.spend("a", 6, n, had) == pytest.approx(wait, abs=1e-6), (passed, n)
        assert rates.spend("another", 10**9, 1) == 0.0


def test_a_file_that_changes_is_followed(file: Path, clock: Clock) -> None:
    token = create_token(file, "a", ["evaluate"], 3)
    tokens = TokenFile(file)
    later = create_token(file, "later", ["evaluate"])
    assert refusal(tokens, bearer(later))[0] == 401  # looked at once a second
    clock.now += module.LOOK_SECONDS + 0.1
    assert tokens.authorize(bearer(later), "evaluate").name == "later"
    revoke_token(file, token.split("_")[1])  # by its id
    clock.now += module.LOOK_SECONDS + 0.1
    assert refusal(tokens, bearer(token))[0] == 401
    assert tokens.authorize(bearer(later), "evaluate").name == "later"


@pytest.mark.parametrize("broken", [b"{", b"{}", None])
def test_nobody_gets_in_by_breaking_the_file(
    file: Path, clock: Clock, broken: bytes | None
) -> None:
    token = create_token(file, "a", ["evaluate"])
    tokens = TokenFile(file)
    whole = file.read_bytes()
    file.unlink() if broken is None else file.write_bytes(broken)
    clock.now += module.LOOK_SECONDS + 0.1
    assert refusal(tokens, bearer(token))[0] == 401
    file.write_bytes(whole)
    clock.now += module.LOOK_SECONDS + 0.1
    assert tokens.authorize(bearer(token), "evaluate").name == "a"


def test_what_the_file_keeps(file: Path) -> None:
    token = create_token(file, "a", ["evaluate", "read"], 5)
    text = file.read_text(encoding="utf-8")
    assert token.split("_", 2)[2] not in text
    if os.name != "nt":
        assert file.stat().st_mode & 0o077 == 0
    (kept,) = read_tokens(file).values()
    assert (kept.name, sorted(kept.scopes), kept.per_minute) == ("a", ["evaluate", "read"], 5)
    with pytest.raises(ConfigError, match="a token named 'a' already"):
        create_token(file, "a", ["read"])
    with pytest.raises(ConfigError, match="scope 'raed'. Did you mean read"):
        create_token(file, "b", ["raed"])
    with pytest.raises(ConfigError, match="per_minute of token .* is 0"):
        create_token(file, "b", ["read"], 0)
    with pytest.raises(ConfigError, match="token 'b'"):
        revoke_token(file, "b")
    assert len(read_tokens(file)) == 1
    entry = orjson.loads(text)["tokens"][0]
    for changed in ({"per_minute": True}, {"per_minute": -1}, {"scopes": ["all"]}, {"sha256": "x"}):
        file.write_bytes(orjson.dumps({"tokens": [{**entry, **changed}]}))
        with pytest.raises(ConfigError):
            TokenFile(file)
