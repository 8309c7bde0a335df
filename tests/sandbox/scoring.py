"""Short ways to score a code answer in tests."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from rm_gallery.core.sandbox.code_tests import AssertTests, CodeTestReport, CodeTests, InputOutputTests, run_code_tests
from rm_gallery.core.sandbox.process import SandboxLimits
from rm_gallery.core.sandbox.runner import Runner

QUICK = SandboxLimits(wall_seconds=2.0, cpu_seconds=2.0, memory_mb=256, output_kb=64)


def score(
    runner: Runner, code: str, tests: CodeTests, *, limits: SandboxLimits = QUICK, deadline: float = 20.0
) -> CodeTestReport:
    """Score one answer in an event loop of its own."""
    return asyncio.run(run_code_tests(code, tests, runner=runner, limits=limits, deadline=deadline))


def score_all(
    runner: Runner, answers: Sequence[tuple[str, CodeTests]], *, limits: SandboxLimits = QUICK, deadline: float = 60.0
) -> list[CodeTestReport]:
    """Score many answers at once."""

    async def together() -> list[CodeTestReport]:
        calls = [run_code_tests(c, t, runner=runner, limits=limits, deadline=deadline) for c, t in answers]
        return list(await asyncio.gather(*calls))

    return asyncio.run(together())


def reasons(runner: Runner, code: str, *lines: str, limits: SandboxLimits = QUICK) -> list[str]:
    """Score an answer by assert lines and return the reason of each."""
    return [outcome.reason for outcome in score(runner, code, AssertTests(lines), limits=limits).outcomes]


def program_reasons(runner: Runner, code: str, *pairs: tuple[str, str], limits: SandboxLimits = QUICK) -> list[str]:
    """Score a stdin/stdout program and return the reason of each input."""
    tests = InputOutputTests([pair[0] for pair in pairs], [pair[1] for pair in pairs])
    return [outcome.reason for outcome in score(runner, code, tests, limits=limits).outcomes]
