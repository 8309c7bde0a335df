"""What only POSIX systems have is imported where it is used: elsewhere every module can be
imported, and rewards score.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.children import run_python

CHILD = """
import importlib, os, select, signal, sys
from tools.imports import module_names

def import_all():
    names = module_names()
    for name in names:
        if not name.endswith("__main__"):
            try:
                importlib.import_module(name)
            except ImportError as error:
                if (error.name or "").partition(".")[0] in {*MISSING, "rm_gallery"}:
                    raise  # and not the package of an extra that is not installed
    return len(names)

MISSING = {"fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog"}
import_all()  # what comes from elsewhere has its own ways there
for name in [name for name in sys.modules if name.partition(".")[0] == "rm_gallery"]:
    del sys.modules[name]
sys.modules.update(dict.fromkeys(MISSING))
gone = {
    os: "fork forkpty killpg getuid geteuid getgid getegid setsid getpgid setpgid getloadavg register_at_fork uname waitid "
        "sched_getaffinity mkfifo chown O_NOFOLLOW O_NONBLOCK O_DIRECTORY WNOHANG WNOWAIT WEXITED P_PID statvfs",
    signal: "SIGKILL SIGSTOP SIGALRM SIGHUP SIGUSR1 SIGUSR2 SIGCHLD SIGPIPE SIGQUIT SIGTSTP SIGCONT alarm setitimer "
            "pthread_sigmask sigwait siginterrupt",
    select: "poll epoll",
}
for module, names in gone.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
assert import_all() > 150
"""

USE = """
from rm_gallery import RewardRegistry
from rm_gallery.core.utils.errors import ConfigError
from tests.support.samples import make_sample, scores

samples = [make_sample("one", "two", unique_id=str(n)) for n in range(20)]
rule = RewardRegistry.create("length_baseline")
assert all(None not in scores(sample) for sample in rule.evaluate_batch(samples, max_workers=4, deadline=20))
judge = RewardRegistry.create("safety_listwise_reward", llm="fake:<best>2</best>")
assert [sorted(scores(sample)) for sample in judge.evaluate_batch(samples)] == [[0.0, 1.0]] * 20
try:
    rule.evaluate_batch(samples, run_dir=sys.argv[1])
except ConfigError as error:
    print(error)
"""


@pytest.mark.long("much work")
def test_every_module_can_be_imported_and_what_needs_the_system_says_so(tmp_path: Path) -> None:
    done = run_python("-c", CHILD + USE, str(tmp_path / "run"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "locks no files" in done.stdout and "run_dir, --out" in done.stdout
