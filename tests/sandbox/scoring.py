"""Short ways to score a code answer in tests."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from rm_gallery.core.sandbox.code_test_spec import AssertTests, CodeTestReport, CodeTests
from rm_gallery.core.sandbox.code_tests import run_code_tests
from rm_gallery.core.sandbox.process import SandboxLimits
from rm_gallery.core.sandbox.runner import Runner

QUICK = SandboxLimits(wall_seconds=4.0, cpu_seconds=1.0, memory_mb=256, output_kb=64)


def score_all(
    runner: Runner,
    answers: Sequence[tuple[str, CodeTests]],
    *,
    limits: SandboxLimits = QUICK,
    deadline: float = 60.0,
) -> list[CodeTestReport]:
    """Score answers at once, in an event loop of their own."""

    async def together() -> list[CodeTestReport]:
        calls = [
            run_code_tests(c, t, runner=runner, limits=limits, deadline=deadline)
            for c, t in answers
        ]
        return list(await asyncio.gather(*calls))

    return asyncio.run(together())


def score(
    runner: Runner,
    code: str,
    tests: CodeTests,
    *,
    limits: SandboxLimits = QUICK,
    deadline: float = 60.0,
) -> CodeTestReport:
    """Score one answer."""
    return score_all(runner, [(code, tests)], limits=limits, deadline=deadline)[0]


def reasons(runner: Runner, code: str, *lines: str, limits: SandboxLimits = QUICK) -> list[str]:
    """The reason of each of these assert lines."""
    return [
        outcome.reason
        for outcome in score(runner, code, AssertTests(lines), limits=limits).outcomes
    ]
