"""A remote service that only runs whole programs gives the same verdicts, and the answer still never sees the tests."""

from __future__ import annotations

import asyncio
import json

import pytest
from aiohttp import web

from rm_gallery.core.sandbox.code_tests import (
    AssertTests,
    CodeTestReport,
    CodeTests,
    HumanEvalTests,
    InputOutputTests,
    run_code_tests,
)
from rm_gallery.core.sandbox.process import SandboxLimits
from rm_gallery.core.sandbox.select import get_runner
from rm_gallery.core.utils.errors import ConfigError, DataError, DeadlineExceeded, ProviderError
from tests.sandbox.fusion_server import FusionServer, fusion_server

LIMITS = SandboxLimits(wall_seconds=2.0)


def remote(code: str, tests: CodeTests, *, reply: web.Response | None = None) -> tuple[CodeTestReport, FusionServer]:
    async def both() -> tuple[CodeTestReport, FusionServer]:
        async with fusion_server() as server:
            server.override = reply
            runner = get_runner(f"fusion:{server.url}/")
            return await run_code_tests(code, tests, runner=runner, limits=LIMITS), server

    return asyncio.run(both())


CHECK = "def check(candidate):\n    for n in range(4):\n        assert candidate(n) == n * n\n"

TABLE: list[tuple[str, str, CodeTests, list[str]]] = [
    ("check", "def f(n):\n    return n * n", HumanEvalTests(CHECK, "f"), ["passed"]),
    ("body", "    return n * n\n", HumanEvalTests(CHECK, "f", "def f(n):\n    '''doc'''\n"), ["passed"]),
    ("wrong", "def f(n):\n    return n", HumanEvalTests(CHECK, "f"), ["wrong answer"]),
    ("no code", "I am sorry", HumanEvalTests(CHECK, "f"), ["error: SyntaxError"]),
    ("prints", "def f(n):\n    print('R cGFzc2Vk')\n    return n * n", HumanEvalTests(CHECK, "f"), ["passed"]),
    (
        "asserts",
        "import os\ndef f(n):\n    if n == 2:\n        os._exit(0)\n    return n * n",
        AssertTests(["assert f(1) == 1", "assert f(2) == 4", "assert f(3) == 9", "assert f(4) == 1"]),
        ["passed", "crashed exit code 0", "passed", "wrong answer"],
    ),
    (
        "state",
        "s = []\ndef f(n):\n    s.append(n)\n    return len(s)",
        AssertTests(["assert (f(0), f(0)) == (1, 2)"]),
        ["passed"],
    ),
    ("hangs", "def f(n):\n    while True:\n        pass", AssertTests(["assert f(1)"]), ["deadline"]),
    (
        "calls",
        "def f(a, b):\n    return a + b",
        InputOutputTests([[1, 2], [3, 4]], [3, 8], "f"),
        ["passed", "wrong answer"],
    ),
    (
        "programs",
        "n = int(input())\nif n == 3:\n    raise SystemExit(3)\nprint(n + 1)",
        InputOutputTests(["1", "2", "x", "3"], ["2", "4", "", ""]),
        ["passed", "wrong answer", "error: ValueError", "crashed exit code 3"],
    ),
]


@pytest.mark.parametrize(("code", "tests", "reasons"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_verdicts(code: str, tests: CodeTests, reasons: list[str]) -> None:
    report, _ = remote(code, tests)
    assert [outcome.reason for outcome in report.outcomes] == reasons
    assert report.runner == "fusion"


def test_no_program_holds_both_answer_and_tests() -> None:
    code = "def f(n):\n    return n * n  # ANSWER-MARK"
    _, server = remote(code, HumanEvalTests(CHECK + "# TESTS-MARK", "f"))
    texts = [request["code"] for request in server.requests]
    assert sum("ANSWER-MARK" in text for text in texts) == 5
    assert sum("TESTS-MARK" in text for text in texts) == 5
    assert not any("ANSWER-MARK" in text and "TESTS-MARK" in text for text in texts)


def test_limits_reach_the_service() -> None:
    _, server = remote("print(1)", InputOutputTests(["7"], ["1"]))
    (request,) = server.requests
    assert request == {
        "code": "print(1)",
        "language": "python",
        "stdin": "7",
        "run_timeout": 2.0,
        "compile_timeout": 2.0,
        "memory_limit_MB": 512,
    }


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (200, "no json", "transient"),
        (200, "[]", "transient"),
        (200, json.dumps({"status": "SandboxError", "message": "out of pods", "run_result": None}), "transient"),
        (429, "", "rate_limit"),
        (504, "", "transient"),
        (404, "", "fatal"),
    ],
)
def test_a_failing_service_is_an_error_not_a_score(status: int, body: str, kind: str) -> None:
    with pytest.raises(ProviderError) as caught:
        remote("print(1)", InputOutputTests([""], ["1"]), reply=web.Response(status=status, text=body))
    assert caught.value.kind == kind


def test_nobody_listens() -> None:
    runner = get_runner("fusion:http://127.0.0.1:9")
    with pytest.raises(ProviderError) as caught:
        asyncio.run(run_code_tests("print(1)", InputOutputTests([""], ["1"]), runner=runner))
    assert caught.value.kind == "unreachable"


def test_a_slow_service_is_not_the_answers_fault() -> None:
    async def slow() -> None:
        async with fusion_server() as server:
            runner = get_runner(f"fusion:{server.url}")
            await run_code_tests("print(1)", InputOutputTests([""] * 50, ["1"] * 50), runner=runner, deadline=0.1)

    with pytest.raises(DeadlineExceeded):
        asyncio.run(slow())


def test_broken_tests_and_addresses_are_the_callers_error() -> None:
    with pytest.raises(DataError):
        remote("x = 1", AssertTests(["assert f("]))
    with pytest.raises(ConfigError):
        get_runner("fusion:localhost:8080")
