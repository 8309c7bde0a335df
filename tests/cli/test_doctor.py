"""`rm-gallery doctor` and `rm-gallery cache` say what this machine has, and do what their options ask."""

from __future__ import annotations

import importlib.util
from unittest import mock

import pytest

from rm_gallery.cli.doctor import EXTRAS
from rm_gallery.core.engine.calls.cache import CallCache
from tests.support.command import command


def test_what_is_there_is_ok_and_what_is_not_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = command("doctor").out.splitlines()
    assert "-    OPENAI_API_KEY is not set" in lines and any(line.startswith("ok   cache: ") for line in lines)
    assert "-    endpoint: the default, https://api.openai.com/v1" in lines
    for extra, modules in EXTRAS.items():
        missing = [name for name in modules if importlib.util.find_spec(name) is None]
        told = f"-    extra {extra}: pip install {' '.join(missing)}" if missing else f"ok   extra {extra}: installed"
        assert told in lines
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    monkeypatch.setenv("BASE_URL", "http://judge/v1")
    monkeypatch.setenv("RM_GALLERY_CACHE", "off")
    lines = command("doctor").out.splitlines()
    assert "ok   OPENAI_API_KEY is set" in lines and "ok   endpoint: http://judge/v1" in lines
    assert "-    cache: switched off (RM_GALLERY_CACHE=off)" in lines
    assert command("cache", "stats").code == 2


def test_the_cache_is_counted_shrunk_and_emptied() -> None:
    shown = command("cache", "stats").out.splitlines()
    assert [line.split()[0] for line in shown] == ["path", "entries", "bytes", "oldest", "newest"]
    assert [shown[1].split()[1], *(line.split()[1] for line in shown[3:])] == ["0", "-", "-"]
    with mock.patch.object(CallCache, "prune", return_value=3) as prune:
        assert command("cache", "prune", "--max-days", "2", "--max-bytes", "5").out == "3 replies removed\n"
        command("cache", "prune")
    assert [call.kwargs for call in prune.call_args_list] == [
        {"max_bytes": 5, "max_age": 172_800.0},
        {"max_bytes": None, "max_age": None},
    ]
    assert command("cache", "clear").out == "0 replies removed\n"
