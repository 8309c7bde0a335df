"""The files of examples/deploy do what they say, as far as this machine can try them."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import httpx
import pytest

from rm_gallery.serve.tokens import create_token
from tests.support.children import ROOT, child_environment
from tests.support.serving import Serving

FILES = ROOT / "examples" / "deploy"
pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="containers and systemd are Linux's"
)


def instructions() -> list[tuple[str, str]]:
    """The lines of the container file: instruction and what follows."""
    lines = (FILES / "Containerfile").read_text(encoding="utf-8").splitlines()
    return [
        (line.split(" ", 1)[0], line.split(" ", 1)[1])
        for line in lines
        if line and not line.startswith("#")
    ]


def unit() -> configparser.ConfigParser:
    found = configparser.ConfigParser(strict=False, interpolation=None)
    found.optionxform = str  # type: ignore[assignment,method-assign]  # names have capitals
    found.read_string((FILES / "rm-gallery.service").read_text(encoding="utf-8"))
    return found


def commands() -> dict[str, list[str]]:
    """How each of them starts the server."""
    return {
        "Containerfile": json.loads(dict(instructions())["ENTRYPOINT"])
        + json.loads(dict(instructions())["CMD"]),
        "rm-gallery.service": shlex.split(unit()["Service"]["ExecStart"]),
    }


@pytest.mark.long("a server process")
@pytest.mark.parametrize("file", ["Containerfile", "rm-gallery.service"])
def test_the_server_that_they_start_answers_who_has_a_token(file: str, tmp_path: Path) -> None:
    token = create_token(tmp_path / "tokens.json", "a", ["evaluate"])
    shutil.copy(FILES / "serve.yaml", tmp_path)
    program, command, *given = commands()[file]
    assert (program, command) == ("/opt/rm-gallery/bin/rm-gallery", "serve")
    options = [re.sub(r"/(etc|var/log|var/lib)/rm-gallery", str(tmp_path), each) for each in given]
    options = [
        "0" if before == "--status-port" else each
        for before, each in zip(["", *options], options, strict=False)
    ]
    at = options.index("--port")
    assert options.pop(at + 1) == "8000" and options.pop(at)
    with Serving(*options, cwd=tmp_path) as server:
        status = server.status_url() if "--status-port" in options else server.url
        assert httpx.get(f"{status}/health".replace("0.0.0.0", "127.0.0.1")).status_code == 200
        url = server.url.replace("0.0.0.0", "127.0.0.1")
        ask = {"completion": "4", "reference": "4"}
        for headers, status in ({"X-Api-Key": token}, 200), ({}, 401):
            assert (
                httpx.post(f"{url}/v1/rewards/exact", json=ask, headers=headers).status_code
                == status
            )
        server.terminate()
        assert server.ended() == 0


@pytest.mark.long("a server process")
def test_the_steps_of_the_container_file_install_the_command(tmp_path: Path) -> None:
    found = instructions()
    assert [name for name, _ in found][0] == "FROM" and ":latest" not in found[0][1]
    assert (
        dict(found)["USER"] not in ("root", "0") and [name for name, _ in found].count("CMD") == 1
    )
    for name, given in found:
        if name == "COPY":
            *sources, target = given.split()
            for source in sources:
                there = tmp_path / target.strip("/") / (source if target.endswith("/") else "")
                copy = shutil.copytree if (ROOT / source).is_dir() else shutil.copy
                there.parent.mkdir(parents=True, exist_ok=True)
                copy(ROOT / source, there)
    (install,) = (given for name, given in found if name == "RUN" and "pip install" in given)
    offline = {
        "PIP_NO_INDEX": "1",
        "PIP_NO_DEPS": "1",
        "PIP_NO_BUILD_ISOLATION": "0",
        "PIP_QUIET": "2",
    }
    env = child_environment(**offline, PYTHONPATH=sysconfig.get_path("purelib"))
    env["PATH"] = f"{Path(sys.executable).parent}:{env['PATH']}"
    here = re.sub(r"(?<![\w.])/(opt|src)\b", rf"{tmp_path}/\1", install)
    done = subprocess.run(
        here, shell=True, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    command = tmp_path / commands()["Containerfile"][0].lstrip("/")
    where = "import rm_gallery; print(rm_gallery.__file__)"
    for call in (
        [str(command), "serve", "--help"],
        [str(command.with_name("python")), "-c", where],
    ):
        done = subprocess.run(
            call, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(tmp_path))


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    text = (
        (FILES / "rm-gallery.service")
        .read_text(encoding="utf-8")
        .replace(commands()["rm-gallery.service"][0], sys.executable)
    )
    (tmp_path / "rm-gallery.service").write_text(text, encoding="utf-8")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(tmp_path / "rm-gallery.service")],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0 and "rm-gallery" not in done.stderr, done.stderr
