"""One unit's crash, hang or excess is that unit's outcome alone."""

from __future__ import annotations

import pytest

from rm_gallery.core.sandbox import bwrap
from rm_gallery.core.sandbox.bwrap import BwrapRunner
from rm_gallery.core.sandbox.code_tests import AssertTests, CodeTests, InputOutputTests
from rm_gallery.core.sandbox.process import SandboxLimits
from rm_gallery.core.utils.errors import DeadlineExceeded, SandboxUnavailable
from tests.sandbox.scoring import reasons, score

pytestmark = pytest.mark.system("bubblewrap")


@pytest.mark.parametrize(
    ("attack", "reason"),
    [
        ("while True: pass", "deadline"),
        ("raise KeyError(1)", "error: KeyError"),
        ("import os; os._exit(7)", "crashed exit code 7"),
        ("import ctypes; ctypes.string_at(0)", "crashed exit code -11"),
        ("print('x' * 10**6, flush=True); import time; time.sleep(9)", "output limit"),
        ("return [n] * 10**7", "output limit"),
        ("return bytearray(10 << 30)", "memory"),
        ("import os; [os.write(fd, bytes(40)) for fd in range(4, 64) if not _bad(os, fd)]", "tampering"),
    ],
)
def test_other_asserts_keep_their_verdict(bubblewrap: BwrapRunner, attack: str, reason: str) -> None:
    helper = "def _bad(os, fd):\n    try:\n        os.fstat(fd)\n    except OSError:\n        return True\n"
    code = f"{helper}def f(n):\n    if n == 2:\n        {attack}\n    return n * n\n"
    lines = ["assert f(1) == 1", "assert f(2) == 4", "assert f(3) == 9", "assert f(4) == 15"]
    assert reasons(bubblewrap, code, *lines) == ["passed", reason, "passed", "wrong answer"]


def test_score_is_the_share_of_all_units(bubblewrap: BwrapRunner) -> None:
    report = score(
        bubblewrap, "def f(n):\n    return n\n", AssertTests([f"assert f({n}) == {n % 3}" for n in range(9)])
    )
    assert (report.passed, report.total, report.score) == (3, 9, 3 / 9)
    assert report.reasons == {"passed": 3, "wrong answer": 6}
    assert report.starts == 1


def test_units_after_the_sample_deadline_count_as_failed(bubblewrap: BwrapRunner) -> None:
    code = "import time\ndef f(n):\n    time.sleep(0.4)\n    return n\n"
    report = score(bubblewrap, code, AssertTests([f"assert f({n}) == {n}" for n in range(20)]), deadline=1.5)
    assert report.total == 20
    assert 1 <= report.passed <= 4
    assert set(report.reasons) == {"passed", "deadline"}
    assert report.seconds < 3.0


@pytest.mark.parametrize(
    ("program", "deadline", "error"),
    [("/bin/false", 20.0, SandboxUnavailable), ("/no/such", 20.0, SandboxUnavailable), ("", 0.001, DeadlineExceeded)],
)
@pytest.mark.parametrize(
    "tests", [AssertTests(["assert f()"]), InputOutputTests(["1"], ["1"])], ids=["asserts", "programs"]
)
def test_a_sandbox_that_does_not_start_is_an_error_not_a_score(
    bubblewrap: BwrapRunner,
    monkeypatch: pytest.MonkeyPatch,
    tests: CodeTests,
    program: str,
    deadline: float,
    error: type[Exception],
) -> None:
    monkeypatch.setattr(bubblewrap, "_program", program or bubblewrap._program)
    monkeypatch.setattr(bwrap, "_options", lambda _: {"--size", "--perms"})
    with pytest.raises(error, match="start"):
        score(bubblewrap, "def f():\n    return 1\n", tests, deadline=deadline)


def test_a_unit_starved_by_earlier_ones_gets_a_fresh_process(bubblewrap: BwrapRunner) -> None:
    # each unit stays within the CPU limit, all together do not
    limits = SandboxLimits(wall_seconds=60.0, cpu_seconds=1.0)
    code = "import time\ndef f(n):\n    end = time.process_time() + 0.45\n    while time.process_time() < end:\n        pass\n    return n\n"
    report = score(bubblewrap, code, AssertTests([f"assert f({n}) == {n}" for n in range(4)]), limits=limits)
    assert report.score == 1.0
    assert report.starts > 1
