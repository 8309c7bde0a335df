"""What every test gets: no outside configuration, a cache of its own, and what must not be skipped
in CI.
"""

from __future__ import annotations

import gc
import importlib.util
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.support.shared_data import shared_folder
from tests.support.system import may_skip

collect_ignore = [] if (shared_folder() / "data").is_dir() else ["gold"]
"""Published figures are checked on the published data, where they are; what the checks rest on is
tested without them.
"""
REQUIRED = os.environ.get("RM_GALLERY_REQUIRE") == "everything"
"""Everything that can be installed is installed: a test that skips for want of it fails."""
SKIPPED = os.environ.get("RM_GALLERY_SKIPPED")
"""File that gets a line for each skipped test, and for each file that skips as a whole: its id, a
tab and the reason.
"""
BUDGET = float(os.environ.get("RM_GALLERY_BUDGET") or "inf")
"""A test that used more seconds of a processor than this without being marked fails the run. Load
inflates CPU time, so a newcomer's run only says so.
"""
WORKER = os.environ.get("PYTEST_XDIST_WORKER")


if sys.dont_write_bytecode:
    # nothing is to be written beside the sources; without another place every child process would
    # compile the package anew
    sys.dont_write_bytecode, sys.pycache_prefix = (
        False,
        str(Path(tempfile.gettempdir()) / "rm-gallery-bytecode"),
    )
    os.environ |= {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": sys.pycache_prefix}


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # a shell's background job ignores Ctrl-C, and so would every process that a test starts to
    # interrupt it
    signal.signal(signal.SIGINT, signal.default_int_handler)


if importlib.util.find_spec("hypothesis"):
    from hypothesis import settings

    # a first call imports and compiles: on a busy machine it takes longer than 200 ms
    settings.register_profile("suite", deadline=None)
    settings.load_profile("suite")


@pytest.fixture(autouse=True)
def _isolated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    for name in (
        "OPENAI_API_KEY",
        "OPENAI_BASE_URL",
        "OPENAI_MODEL",
        "BASE_URL",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "http_proxy",
        "https_proxy",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RM_GALLERY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("RM_GALLERY_STORE", f"sqlite:///{tmp_path / 'evaluators.db'}")
    calls = sys.modules.get("rm_gallery.core.model.client")
    if calls is not None:
        calls._reset_shared()  # an endpoint that one test took down is not down for the next
    yield


@pytest.fixture
def warned() -> Iterator[list[str]]:
    """What the library warns of during a test."""
    from loguru import logger

    said: list[str] = []
    sink = logger.add(said.append, level="WARNING", format="{message}")
    yield said
    logger.remove(sink)


def pytest_itemcollected(item: pytest.Item) -> None:
    """What runs a trainer's own package, and what takes ten seconds, is long."""
    if any(map(item.get_closest_marker, ("trainers", "slow"))):
        item.add_marker(pytest.mark.long("a trainer, or ten seconds"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest tests first: at the end of a run on several workers, no one waits long for
    another.
    """
    items.sort(
        key=lambda item: not any(map(item.get_closest_marker, ("alone", "trainers", "slow")))
    )


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Turn a skip into a failure where everything is installed."""
    outcome = yield
    report: pytest.TestReport = outcome.get_result()  # type: ignore[attr-defined]  # pluggy's result object
    if call.when == "teardown" and not any(map(item.get_closest_marker, ("long", "smoke"))):
        report.user_properties.append(("cpu", item.stash[BEGAN].spent()))
    if REQUIRED and report.skipped and not may_skip(_reason(report)):
        report.outcome = "failed"
        report.longrepr = f"skipped although everything is installed: {_reason(report)}"


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    """The same for a whole file, which `-n` reports nowhere."""
    outcome = yield
    report: pytest.CollectReport = outcome.get_result()  # type: ignore[attr-defined]  # pluggy's result object
    if not report.skipped:
        return
    if WORKER in (None, "gw0"):
        _note_skip(report)
    if REQUIRED and not may_skip(_reason(report)):
        report.outcome = "failed"
        report.longrepr = f"skipped although everything is installed: {_reason(report)}"


class Began:
    """What a test had used when it began."""

    def __init__(self) -> None:
        self.cpu, self.modules = sum(os.times()[:4]), len(sys.modules)
        self.at = time.monotonic()

    def spent(self) -> float:
        """Seconds of this process and its children; none where the test was the first to import
        what others import as well, and no more than the processors had: children of earlier tests
        are counted when they are reaped.
        """
        if len(sys.modules) - self.modules >= 100:
            return 0.0
        had = (time.monotonic() - self.at) * (os.cpu_count() or 1)
        return min(sum(os.times()[:4]) - self.cpu, had)


BEGAN = pytest.StashKey[Began]()
_used: dict[str, float] = {}
"""CPU seconds of the tests that used more than half of one, and are not marked."""


def pytest_collection_finish() -> None:
    """Thousands of items stay to the end: no collection of garbage has to walk through them."""
    gc.freeze()


def pytest_configure() -> None:
    """The list of skipped tests begins anew."""
    if SKIPPED and WORKER is None:
        Path(SKIPPED).write_text("", encoding="utf-8")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Write down what was skipped; with `-n` reports of all workers arrive in one process."""
    if report.skipped and WORKER is None:
        _note_skip(report)
    for name, value in report.user_properties if report.when == "teardown" else ():
        if name == "cpu" and isinstance(value, float) and value > 0.5:
            _used[report.nodeid] = value


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail where the budget holds and a test used a whole second."""
    over = max([0.0, *_used.values()]) > BUDGET
    if over and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _note_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    if SKIPPED:
        with open(SKIPPED, "a", encoding="utf-8") as file:
            file.write(f"{report.nodeid}\t{' '.join(_reason(report).split())}\n")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """With `-n`, a test that measures time (`alone`) waits for the tests of other workers, and they
    for it.
    """
    item.stash[BEGAN] = Began()
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    if run is None or os.name == "nt":
        yield
        return
    with _turn(
        Path(tempfile.gettempdir()) / f"rm-gallery-tests-{run}",
        item.get_closest_marker("alone") is not None,
    ):
        yield


@contextmanager
def _turn(path: Path, alone: bool) -> Iterator[None]:
    import fcntl

    with ExitStack() as open_files:
        gate, floor = (
            open_files.enter_context(open(f"{path}.{name}", "ab")) for name in ("gate", "floor")
        )
        # whoever waits to be alone keeps the gate, so that nobody overtakes it
        fcntl.flock(gate, fcntl.LOCK_EX)
        fcntl.flock(floor, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(gate, fcntl.LOCK_UN)
        yield


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many tests were skipped, and why; and which are to be marked `long`."""
    if _used:
        terminalreporter.section("used more than .5 s of a processor, mark them long(reason)")
        for test, seconds in sorted(_used.items(), key=lambda each: -each[1]):
            terminalreporter.line(f"{seconds:6.2f} s  {test}")
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = Counter(_reason(report) for report in skipped)
    if reasons:
        terminalreporter.section(f"{len(skipped)} tests were skipped")
        for reason, times in reasons.most_common():
            terminalreporter.line(f"{times:5} x {reason}")


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    where = report.longrepr
    return (where[2] if isinstance(where, tuple) else str(where)).removeprefix("Skipped: ")
