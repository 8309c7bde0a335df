"""The pool in whole programs: scripts, forks, killed parents. Each runs in an interpreter of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engine.worker_pools import is_alive, wait_until

_ROOT = Path(__file__).resolve().parents[2]
_needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")


def _start(tmp_path: Path, source: str) -> subprocess.Popen[str]:
    script = tmp_path / "program.py"
    script.write_text(source, encoding="utf-8")
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-W", "ignore:This process:DeprecationWarning", str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(_ROOT)},
        cwd=tmp_path,
    )


def _run(tmp_path: Path, source: str) -> str:
    with _start(tmp_path, source) as process:
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert err == ""
    return out


def test_script_without_main_guard(tmp_path: Path) -> None:
    (tmp_path / "rules.py").write_text("def double(n):\n    return 2 * n\n", encoding="utf-8")
    out = _run(
        tmp_path,
        "import rules\n"
        "from rm_gallery.core.engine.workers.pool import get_pool\n"
        "print('once')\n"
        "print(get_pool().map(rules.double, range(5), deadline=20))\n",
    )
    assert out == "once\n[0, 2, 4, 6, 8]\n"


def test_function_of_the_script_is_refused_with_the_way_out(tmp_path: Path) -> None:
    out = _run(
        tmp_path,
        "from rm_gallery.core.engine.workers.pool import get_pool\n"
        "from rm_gallery.core.utils.errors import ConfigError\n"
        "def double(n):\n    return 2 * n\n"
        "try:\n    get_pool().submit(double, 1)\nexcept ConfigError as error:\n    print(error)\n",
    )
    assert "__main__.double lives in the script" in out
    assert "move it to a module" in out


def test_argument_of_a_class_of_the_script(tmp_path: Path) -> None:
    out = _run(
        tmp_path,
        "from rm_gallery.core.engine.workers.pool import get_pool\n"
        "class Thing:\n    pass\n"
        "error = get_pool().submit(repr, Thing()).exception()\n"
        "print(type(error).__name__, error)\n",
    )
    assert out.startswith("ConfigError")
    assert "importable module" in out


def test_end_of_the_program_ends_hanging_workers(tmp_path: Path) -> None:
    out = _run(
        tmp_path,
        "import time\n"
        "from rm_gallery.core.engine.workers.pool import get_pool\n"
        "print(get_pool().submit(int, 1).result(), get_pool().worker_pids()[0])\n"
        "get_pool().submit(time.sleep, 600)\n",
    )
    assert not is_alive(int(out.split()[1]))


@_needs_fork
def test_forked_child_uses_processes_of_its_own(tmp_path: Path) -> None:
    out = _run(
        tmp_path,
        "import os, time\n"
        "from rm_gallery.core.engine.workers.pool import get_pool\n"
        "pool = get_pool()\n"
        "before = pool.submit(os.getpid).result()\n"
        "slow = pool.submit(time.sleep, 0.5)\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    inside = pool.map(abs, [-1, -2], deadline=20) == [1, 2] and get_pool() is pool\n"
        "    fresh = before not in pool.worker_pids()\n"
        "    pool.shutdown()\n"
        "    os._exit(0 if inside and fresh else 1)\n"
        "print(os.waitpid(child, 0)[1], slow.result(), pool.submit(os.getpid).result() == before)\n",
    )
    assert out == "0 None True\n"


@_needs_fork
@pytest.mark.parametrize("state", ["idle", "hanging"])
def test_killed_parent_leaves_no_worker(tmp_path: Path, state: str) -> None:
    call = "pool.submit(time.sleep, 600)" if state == "hanging" else "None"
    source = (
        "import os, time\n"
        "from rm_gallery.core.engine.workers.pool import WorkerPool\n"
        "pool = WorkerPool(1)\n"
        "worker = pool.submit(os.getpid).result()\n"
        f"{call}\n"
        "print(worker, flush=True)\n"
        "time.sleep(600)\n"
    )
    with _start(tmp_path, source) as process:
        assert process.stdout is not None
        worker = int(process.stdout.readline())
        assert is_alive(worker)
        process.kill()
    assert wait_until(lambda: not is_alive(worker))


def test_orphan_that_holds_the_interpreter_lock_ends_itself(tmp_path: Path) -> None:
    source = (
        "from rm_gallery.core.engine.workers import main as worker_main\n"
        "worker_main._ORPHAN_SLACK = 0.2\n"
        "worker_main._OrphanTimer().cover(0.2)\n"
        "9 ** 9 ** int('9')\n"
    )
    with _start(tmp_path, source) as process:
        assert process.wait(timeout=30) == 1
        assert process.stderr is not None and process.stderr.read() == ""


def test_spawned_process_of_multiprocessing(tmp_path: Path) -> None:
    (tmp_path / "outer.py").write_text(
        "from rm_gallery.core.engine.workers.pool import get_pool\n"
        "def run(n):\n    return get_pool().map(abs, [-n, n], deadline=20)\n",
        encoding="utf-8",
    )
    out = _run(
        tmp_path,
        "import multiprocessing, outer\n"
        "if __name__ == '__main__':\n"
        "    with multiprocessing.get_context('spawn').Pool(2) as processes:\n"
        "        print(processes.map(outer.run, [1, 2]))\n"
        "        processes.close()\n"
        "        processes.join()\n",
    )
    assert out == "[[1, 1], [2, 2]]\n"
