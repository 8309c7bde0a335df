"""HumanEval: every canonical solution passes, every one-token fault fails, and verdicts agree with plain execution."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rm_gallery.core.sandbox.bwrap import BwrapRunner
from rm_gallery.core.sandbox.process import SandboxLimits
from tests.sandbox.humaneval import Problem, problems
from tests.sandbox.mutants import one_token_faults
from tests.sandbox.scoring import score_all

LIMITS = SandboxLimits(wall_seconds=4.0)

pytestmark = pytest.mark.system("bubblewrap")


@pytest.mark.parametrize("whole", [False, True], ids=["body", "whole function"])
def test_canonical_solutions_pass(bubblewrap: BwrapRunner, whole: bool) -> None:
    found = problems()
    answers = [((p.tests.prompt if whole else "") + p.solution, p.tests) for p in found]
    reports = score_all(bubblewrap, answers, limits=LIMITS)
    assert [(p.name, r.outcomes[0]) for p, r in zip(found, reports, strict=True) if r.score != 1.0] == []
    assert len(reports) == 164


@pytest.mark.slow
def test_one_token_faults_fail(bubblewrap: BwrapRunner) -> None:
    found = problems()
    bodies = [one_token_faults(p.tests.prompt, p.solution, p.name)[:40] for p in found]
    verdicts = plain_verdicts(found, bodies)
    # the last verdict of each problem is its first fault that changes behaviour; those before it changed nothing
    assert [p.name for p, verdict in zip(found, verdicts, strict=True) if not verdict or verdict[-1]] == []
    tried = [
        (p.name, p.tests, body, passes)
        for p, tries, verdict in zip(found, bodies, verdicts, strict=True)
        for body, passes in zip(tries, verdict, strict=False)
    ]
    reports = score_all(bubblewrap, [(body, tests) for _, tests, body, _ in tried], limits=LIMITS)
    wrong = [
        (name, body, passes, report.outcomes[0])
        for (name, _, body, passes), report in zip(tried, reports, strict=True)
        if report.score != float(passes)
    ]
    assert wrong == []
    assert sum(report.score == 0.0 for report in reports) == 164


def plain_verdicts(found: list[Problem], bodies: list[list[str]]) -> list[list[bool]]:
    job = [
        {"prompt": p.tests.prompt, "test": p.tests.test, "entry_point": p.tests.entry_point, "bodies": tries}
        for p, tries in zip(found, bodies, strict=True)
    ]
    script = Path(__file__).with_name("plain_oracle.py")
    done = subprocess.run(
        [sys.executable, "-I", str(script)],
        input=json.dumps(job).encode(),
        capture_output=True,
        timeout=120,
        check=True,
    )
    verdicts: list[list[bool]] = json.loads(done.stdout)
    return verdicts
