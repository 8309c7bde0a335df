"""Choosing a sandbox: never silently less than asked for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rm_gallery.core.sandbox import bwrap
from rm_gallery.core.sandbox.bwrap import BwrapRunner
from rm_gallery.core.sandbox.fusion import SandboxFusionRunner
from rm_gallery.core.sandbox.process import SandboxLimits
from rm_gallery.core.sandbox.select import SubprocessRunner, doctor, get_runner
from rm_gallery.core.utils.errors import ConfigError, SandboxUnavailable


@pytest.mark.parametrize("sandbox", ["auto", "bwrap"])
def test_without_bubblewrap_the_message_says_what_to_do(
    sandbox: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SandboxUnavailable) as caught:
        get_runner(sandbox)
    assert "apt-get install bubblewrap" in str(caught.value)
    assert 'sandbox="subprocess"' in str(caught.value)
    (check,) = [check for check in doctor() if check.name == "bubblewrap"]
    assert not check.ok
    assert "apt-get install bubblewrap" in check.fix


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("echo 'bwrap: No permissions to create new namespace' >&2; exit 1", "user namespaces seem to be forbidden"),
        ("exit 0", "it did not answer"),
    ],
)
def test_where_it_may_not_run_the_message_says_why(
    script: str, told: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "bwrap"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SandboxUnavailable, match=re.escape(told)):
        get_runner("auto")


@pytest.mark.system("bubblewrap")
def test_names(bubblewrap: BwrapRunner) -> None:
    assert isinstance(get_runner(), BwrapRunner)
    assert isinstance(get_runner("bwrap"), BwrapRunner)
    assert isinstance(get_runner("subprocess"), SubprocessRunner)
    assert isinstance(get_runner("fusion:http://127.0.0.1:1"), SandboxFusionRunner)


@pytest.mark.parametrize("sandbox", ["docker", "", "fusion", "Subprocess"])
def test_unknown_names(sandbox: str) -> None:
    with pytest.raises(ConfigError, match="choose 'auto'"):
        get_runner(sandbox)


@pytest.mark.system("bubblewrap")
def test_doctor_names_every_part(bubblewrap: BwrapRunner) -> None:
    checks = {check.name: check for check in doctor()}
    assert set(checks) == {
        "bubblewrap",
        "system-call filter",
        "memory watcher",
        "sandboxed interpreter",
        "SandboxFusion client",
    }
    assert checks["bubblewrap"].ok
    assert all(check.detail for check in checks.values())


@pytest.mark.system("bubblewrap")
def test_success_of_the_probe_is_remembered(bubblewrap: BwrapRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bwrap, "_try", lambda *_: pytest.fail("probed again"))
    assert isinstance(get_runner("auto"), BwrapRunner)


@pytest.mark.parametrize("field", ["wall_seconds", "cpu_seconds", "memory_mb", "processes", "file_mb", "output_kb"])
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), True, "8"])
def test_limits_must_be_positive_numbers(field: str, value: object) -> None:
    with pytest.raises(ConfigError, match=field):
        SandboxLimits(**{field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(("field", "value"), [("memory_mb", 63), ("processes", 3)])
def test_limits_leave_room_for_the_interpreter(field: str, value: int) -> None:
    with pytest.raises(ConfigError, match="interpreter itself"):
        SandboxLimits(**{field: value})
    assert SandboxLimits(**{field: value + 1})
