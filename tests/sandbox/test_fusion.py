"""A remote service that only runs whole programs: what it is told, what it never holds, and that its faults are no score."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

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
from rm_gallery.gallery.rm.code.execution import CodeExecutionReward
from tests.sandbox.fusion_server import FusionServer, fusion_server
from tests.support.samples import issues, make_sample, scores

LIMITS = SandboxLimits(wall_seconds=2.0)


def remote(code: str, tests: CodeTests, *, reply: web.Response | None = None) -> tuple[CodeTestReport, FusionServer]:
    async def both() -> tuple[CodeTestReport, FusionServer]:
        async with fusion_server() as server:
            server.override = reply
            runner = get_runner(f"fusion:{server.url}/")
            return await run_code_tests(code, tests, runner=runner, limits=LIMITS), server

    return asyncio.run(both())


CHECK = "def check(candidate):\n    for n in range(4):\n        assert candidate(n) == n * n\n"


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
        (499, "", "fatal"),
        (404, "", "fatal"),
        (500, "", "transient"),
    ],
)
def test_a_failing_service_is_an_error_not_a_score(status: int, body: str, kind: str) -> None:
    with pytest.raises(ProviderError) as caught:
        remote("print(1)", InputOutputTests([""], ["1"]), reply=web.Response(status=status, text=body))
    assert caught.value.kind == kind


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


def finished(status: str = "Finished", **result: Any) -> web.Response:
    run = {"status": status, "return_code": 0, "stdout": "1", "stderr": "", **result}
    return web.json_response({"status": "Success", "run_result": run})


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (finished(), "passed"),
        (finished(return_code=None), "passed"),
        (finished(return_code="0"), "passed"),
        (finished(stdout=None), "wrong answer"),
        (finished("TimeLimitExceeded"), "deadline"),
        (finished("Error", return_code=1, stderr="Traceback\nx.MemoryError: no"), "memory"),
        (finished("Error", return_code=1, stderr="Traceback\nKeyError: 1\n"), "error: KeyError"),
        (finished("Error", return_code=-9), "crashed exit code -9"),
        (finished(return_code=3), "crashed exit code 3"),
        (finished(stdout="1" + " " * (512 << 10)), "output limit"),
        (finished(stdout="1" + " " * (256 << 10)), "output limit"),
        (finished(stdout="1" + " " * ((256 << 10) - 1)), "passed"),
        (finished(stdout="x" * (33 << 20)), "output limit"),
    ],
)
def test_what_the_service_says_of_a_program_is_its_verdict(reply: web.Response, reason: str) -> None:
    found, _ = remote("print(1)", InputOutputTests([""], ["1"]), reply=reply)
    assert [outcome.reason for outcome in found.outcomes] == [reason]


SECRET = "SeCrEt-9"


def test_a_password_in_the_address_is_sent_and_shown_nowhere() -> None:
    async def both() -> tuple[float | None, list[str], list[str]]:
        async with fusion_server() as server:
            address = server.url.replace("http://", f"http://user:{SECRET}@") + f"/?token={SECRET}"
            reward = CodeExecutionReward(sandbox=f"fusion:{address}")
            sample = make_sample("```python\ndef f():\n    return 1\n```", metadata={"tests": ["assert f() == 1"]})
            good = await reward.async_evaluate(sample)
            server.override = web.Response(status=404, text=f"no {SECRET}")
            bad = await reward.async_evaluate(sample)
            shown = [
                repr(reward),
                str(reward),
                str(reward.model_dump()),
                reward.model_dump_json(),
                str(reward.describe()),
            ]
            shown += [repr(get_runner(reward.sandbox)), bad.model_dump_json(), str(issues(bad)), str(bad.metadata)]
            return scores(good)[0], shown, server.logins

    score, shown, logins = asyncio.run(both())
    assert score == 1.0
    assert {base64.b64decode(login.removeprefix("Basic ")).decode() for login in logins} == {f"user:{SECRET}"}
    assert [text for text in shown if SECRET in text] == []


@pytest.mark.parametrize(
    "sandbox",
    [
        f"fusion:user:{SECRET}@host",
        f"fuson:http://u:{SECRET}@host",
        f"fusion:http://u:{SECRET}@h:99999999",
        f"fusion:ftp://u:{SECRET}@h",
        f"x?key={SECRET}",
    ],
)
def test_no_message_about_a_wrong_address_holds_its_password(sandbox: str) -> None:
    with pytest.raises(ConfigError) as caught:
        get_runner(sandbox)
    assert SECRET not in str(caught.value)


def test_nobody_at_an_address_with_a_password() -> None:
    runner = get_runner(f"fusion:http://user:{SECRET}@127.0.0.1:9")
    with pytest.raises(ProviderError) as caught:
        asyncio.run(run_code_tests("print(1)", InputOutputTests([""], ["1"]), runner=runner))
    assert caught.value.kind == "unreachable"
    assert SECRET not in str(caught.value) + repr(caught.value.__cause__)


def test_a_redirect_is_not_followed() -> None:
    moved = web.Response(status=307, headers={"Location": "http://127.0.0.1:9/elsewhere"})
    with pytest.raises(ProviderError, match="redirect") as caught:
        remote("print(1)", InputOutputTests([""], ["1"]), reply=moved)
    assert caught.value.kind == "fatal"
