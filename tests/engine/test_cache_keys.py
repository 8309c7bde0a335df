"""Equal requests get equal keys, different ones different keys."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from rm_gallery.core.engine.calls.cache import canonical_key, default_cache_folder
from rm_gallery.core.utils.errors import ConfigError

REQUEST = {"model": "m", "messages": [{"role": "user", "content": "你好\r\n"}], "temperature": 0, "repeat": 0}


@pytest.mark.parametrize(
    ("a", "b", "equal"),
    [
        (REQUEST, dict(reversed(REQUEST.items())), True),
        (REQUEST, {**REQUEST, "repeat": 1}, False),
        (REQUEST, {**REQUEST, "model": "n"}, False),
        ({"x": [1, 2]}, {"x": [2, 1]}, False),
        ({"x": "1"}, {"x": 1}, False),
        ({"x": None}, {}, False),
        ({"x": ["a", "b"]}, {"x": ["ab"]}, False),
        ({"x": "\ud800"}, {"x": "\ud800"}, True),
        ({"x": "\ud800"}, {"x": "\udfff"}, False),
        ({"x": 2**80}, {"x": 2**80 + 1}, False),
    ],
    ids=[
        "order of fields", "repeat index", "model", "order of a list", "type", "absent", "list cuts",
        "lone surrogate", "another surrogate", "large integers",
    ],
)  # fmt: skip
def test_keys_follow_the_request(a: Any, b: Any, equal: bool) -> None:
    assert (canonical_key(a) == canonical_key(b)) == equal


def test_keys_are_sha256_of_json_with_sorted_keys() -> None:
    data = '{"a":null,"b":[1,"ü"]}'.encode()
    assert canonical_key({"b": [1, "ü"], "a": None}) == hashlib.sha256(data).hexdigest()


def test_what_json_cannot_say_is_refused() -> None:
    with pytest.raises(ConfigError, match="plain JSON values"):
        canonical_key({"llm": object()})


def test_the_default_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache_folder() == tmp_path / "rm-gallery"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "me")
    assert default_cache_folder().name == "rm-gallery"
