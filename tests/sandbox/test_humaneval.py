"""HumanEval: every canonical solution passes, every one-token fault fails, and verdicts agree with plain execution."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rm_gallery.core.sandbox.bwrap import BwrapRunner
from rm_gallery.core.sandbox.process import SandboxLimits
from tests.sandbox.humaneval import Problem, own_problems, problems
from tests.sandbox.mutants import one_token_faults
from tests.sandbox.scoring import score_all

LIMITS = SandboxLimits(wall_seconds=8.0)

pytestmark = pytest.mark.system("bubblewrap")


@pytest.mark.parametrize("own", [True, False], ids=["written for the project", "HumanEval"])
def test_canonical_solutions_pass(bubblewrap: BwrapRunner, own: bool) -> None:
    found = own_problems() if own else problems()
    answers = [(p.solution, p.tests) for p in found]
    # an answer may also repeat the prompt
    answers += [(p.tests.prompt + p.solution, p.tests) for p in found[:: 1 if own else 8]]
    reports = score_all(bubblewrap, answers, limits=LIMITS)
    assert [(place, report.outcomes[0]) for place, report in enumerate(reports) if report.score != 1.0] == []
    assert len(found) == (12 if own else 164)


@pytest.mark.slow
@pytest.mark.parametrize("own", [True, False], ids=["written for the project", "HumanEval"])
def test_one_token_faults_fail(bubblewrap: BwrapRunner, own: bool) -> None:
    found = own_problems() if own else problems()
    bodies = [one_token_faults(p.tests.prompt, p.solution, p.name)[:40] for p in found]
    verdicts = plain_verdicts(found, bodies)
    # the last verdict of each problem is its first fault that changes behaviour; those before it changed nothing
    assert [p.name for p, verdict in zip(found, verdicts, strict=True) if not verdict or verdict[-1] is not False] == []
    tried = [
        (p.name, p.tests, body, passes)
        for p, tries, verdict in zip(found, bodies, verdicts, strict=True)
        for body, passes in zip(tries, verdict, strict=False)
        if passes is not None
    ]
    reports = score_all(bubblewrap, [(body, tests) for _, tests, body, _ in tried], limits=LIMITS)
    wrong = [
        (name, body, passes, report.outcomes[0])
        for (name, _, body, passes), report in zip(tried, reports, strict=True)
        if report.score != float(passes)
    ]
    assert wrong == []
    assert sum(report.score == 0.0 for report in reports) == len(found)


def test_written_faults_fail(bubblewrap: BwrapRunner) -> None:
    reports = score_all(bubblewrap, [(p.broken, p.tests) for p in own_problems()], limits=LIMITS)
    assert [p.name for p, report in zip(own_problems(), reports, strict=True) if report.score != 0.0] == []


def plain_verdicts(found: Sequence[Problem], bodies: Sequence[list[str]]) -> list[list[bool | None]]:
    """What each body does without a sandbox, worked out in two processes."""
    script = Path(__file__).with_name("plain_oracle.py")
    jobs = [
        {"prompt": p.tests.prompt, "test": p.tests.test, "entry_point": p.tests.entry_point, "bodies": tries}
        for p, tries in zip(found, bodies, strict=True)
    ]

    def run(part: list[dict[str, object]]) -> list[list[bool | None]]:
        command = [sys.executable, "-I", str(script)]
        done = subprocess.run(command, input=json.dumps(part).encode(), capture_output=True, timeout=120, check=True)
        verdicts: list[list[bool | None]] = json.loads(done.stdout)
        return verdicts

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(run, (jobs[::2], jobs[1::2]))
    return [(second if place % 2 else first)[place // 2] for place in range(len(jobs))]
