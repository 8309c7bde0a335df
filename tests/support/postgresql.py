"""A PostgreSQL server of the tests' own: made by `initdb` in a temporary folder, without a
password, on a socket in it.
"""

from __future__ import annotations

import contextlib
import glob
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_ACCOUNTS = ("postgres", "nobody")
"""Who it runs as where the tests run as root, which PostgreSQL refuses."""


def _program(name: str) -> str:
    found = shutil.which(name)
    if not found and shutil.which("psql"):
        # Debian puts the client on the path, and keeps the server's programs off it
        found = max(glob.glob(f"/usr/lib/postgresql/*/bin/{name}"), default="")
    if not found:
        pytest.skip(f"PostgreSQL is not installed: there is no {name}")
    return os.path.realpath(found)


def _account() -> pwd.struct_passwd | None:
    if os.geteuid() != 0:
        return None
    for name in _ACCOUNTS:
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    pytest.skip("PostgreSQL does not run as root, and there is no account 'postgres' or 'nobody'")


@contextlib.contextmanager
def postgresql() -> Iterator[str]:
    """Run a server and give the URL of its database; skips the test with the reason where there is
    none.
    """
    initdb, server = _program("initdb"), _program("postgres")
    account = _account()
    # short: a socket's path has at most 107 characters
    folder = Path(tempfile.mkdtemp(prefix="rmg-pg-"))
    environment = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C.UTF-8", "HOME": str(folder)}
    started: dict[str, Any] = {"cwd": folder, "env": environment}
    if account:
        started |= {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
    try:
        if account:
            os.chown(folder, account.pw_uid, account.pw_gid)
        data = folder / "data"
        options = ["--auth=trust", "--username=tests", "--encoding=UTF8", "--no-sync"]
        made = subprocess.run(
            [initdb, "-D", str(data), *options],
            capture_output=True,
            text=True,
            check=False,
            **started,
        )
        assert made.returncode == 0, made.stderr
        settings = {
            "listen_addresses": "", "unix_socket_directories": str(folder), "fsync": "off", "shared_buffers": "16MB",
            "max_connections": "40", "log_min_messages": "fatal",
        }  # fmt: skip
        words = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        with open(folder / "log", "wb") as log:
            process = subprocess.Popen(
                [server, "-D", str(data), *words], stdout=log, stderr=log, **started
            )
        try:
            url = f"postgresql://tests@/postgres?host={folder}"
            _wait(url, process, folder / "log")
            yield url
        finally:
            process.send_signal(3)  # SIGQUIT: at once, nothing of it is needed again
            process.wait(20)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    import psycopg

    until = time.monotonic() + 30
    while True:
        try:
            psycopg.connect(url).close()
            return
        except psycopg.OperationalError:
            assert process.poll() is None and time.monotonic() < until, log.read_text(
                errors="replace"
            )
            time.sleep(0.05)
