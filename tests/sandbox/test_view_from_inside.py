"""What a sandboxed program can see and do, listed from the inside."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from rm_gallery.core.sandbox.bwrap import BwrapRunner, system_call_filter
from rm_gallery.core.sandbox.process import SandboxLimits
from tests.sandbox.scoring import program_reasons

pytestmark = pytest.mark.system("bubblewrap")

SEEN = [
    ("environment", "import os; print(sorted(os.environ))", str(sorted([
        "HOME", "LANG", "LD_LIBRARY_PATH", "PATH", "PWD", "PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED", "PYTHONNOUSERSITE",
        "PYTHONUTF8",
    ]))),
    ("packages", "import pydantic", "error: ModuleNotFoundError"),
    ("this project", "import rm_gallery.core.sandbox.runner", "error: ModuleNotFoundError"),
    ("temp folder is empty", "import os; print(os.listdir('/tmp'))", "[]"),
    ("temp folder is usable", "import tempfile\nwith tempfile.TemporaryFile() as f:\n    print(f.write(b'abc'))", "3"),
    ("host name", "import socket; print(socket.gethostname())", "sandbox"),
    ("processes", "import os; print(os.getpid() < 10)", "True"),
    ("user", "import os; print(os.getuid() != 0 and os.geteuid() != 0)", "True"),
    ("descriptors", "import os\nn = 0\nfor fd in range(3, 64):\n    try:\n        os.fstat(fd)\n        n += 1\n    except OSError: pass\nprint(n)", "1"),
    ("standard library", "import ssl, sqlite3, decimal, ctypes, zlib, asyncio, multiprocessing; print(1)", "1"),
    ("threads", "import threading; t = threading.Thread(target=print, args=(1,)); t.start(); t.join()", "1"),
    ("children", "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(1)'], check=True)", "1"),
    ("event loop", "import asyncio\nasync def f():\n    print(1)\nasyncio.run(f())", "1"),
]  # fmt: skip


@pytest.mark.parametrize(("code", "expected"), [row[1:] for row in SEEN], ids=[row[0] for row in SEEN])
def test_view(bubblewrap: BwrapRunner, code: str, expected: str) -> None:
    reason = expected if expected.startswith("error") else "passed"
    assert program_reasons(bubblewrap, code, ("", expected), limits=SandboxLimits()) == [reason]


def test_extra_packages_are_importable_and_read_only(bubblewrap: BwrapRunner, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "wanted.py").write_text("VALUE = 7\n")
    runner = BwrapRunner(packages=[str(tmp_path)])
    assert program_reasons(runner, "import wanted; print(wanted.VALUE)", ("", "7")) == ["passed"]
    (reason,) = program_reasons(runner, "import wanted; open(wanted.__file__, 'a')", ("", ""))
    assert reason in ("error: OSError", "error: PermissionError")


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_filter_jumps_stay_inside_the_program(machine: str) -> None:
    program = system_call_filter(machine)
    assert program is not None
    instructions = list(struct.iter_unpack("=HBBI", program))
    for at, (code, if_true, if_false, _) in enumerate(instructions):
        if code & 7 == 5:  # a jump
            assert at + 1 + max(if_true, if_false) < len(instructions)
    assert instructions[-1][0] == 6  # ends with a return


def test_unknown_processors_have_no_filter() -> None:
    assert system_call_filter("riscv64") is None
