"""A remote service that only runs whole programs: what it is told, what it never holds, and that
its faults are no score.
"""

from __future__ import annotations

import asyncio
import base64
import json

import pytest
from aiohttp import web

from rm_gallery import ProviderError
from rm_gallery.core.sandbox.code_test_spec import (
    CodeTestReport,
    CodeTests,
    HumanEvalTests,
    InputOutputTests,
)
from rm_gallery.core.sandbox.code_tests import run_code_tests
from rm_gallery.core.sandbox.process import SandboxLimits
from rm_gallery.core.sandbox.select import get_runner
from rm_gallery.core.utils.errors import DeadlineExceeded
from rm_gallery.gallery.rm.code import CodeExecutionReward
from tests.golden import golden
from tests.golden.test_rules import text_of
from tests.sandbox.fusion_server import FusionServer, fusion_server
from tests.support.samples import issues, make_sample, scores

LIMITS = SandboxLimits(wall_seconds=2.0)


def remote(
    code: str, tests: CodeTests, *, reply: web.Response | None = None
) -> tuple[CodeTestReport, FusionServer]:
    async def both() -> tuple[CodeTestReport, FusionServer]:
        async with fusion_server() as server:
            server.override = reply
            runner = get_runner(f"fusion:{server.url}/")
            return await run_code_tests(code, tests, runner=runner, limits=LIMITS), server

    return asyncio.run(both())


CHECK = "def check(candidate):\n    for n in range(4):\n        assert candidate(n) == n * n\n"


@pytest.mark.long("programs that resist")
def test_no_program_holds_both_answer_and_tests() -> None:
    code = "def f(n):\n    return n * n  # ANSWER-MARK"
    _, server = remote(
        code, HumanEvalTests(CHECK + "    assert candidate(1) == 1  # TESTS-MARK", "f")
    )
    texts = [request["code"] for request in server.requests]
    assert sum("ANSWER-MARK" in text for text in texts) == 6
    assert sum("TESTS-MARK" in text for text in texts) == 6
    assert not any("ANSWER-MARK" in text and "TESTS-MARK" in text for text in texts)


def test_limits_reach_the_service() -> None:
    _, server = remote("print(1)", InputOutputTests(["7"], ["1"]))
    (request,) = server.requests
    assert request == {
        "code": "print(1)", "language": "python", "stdin": "7", "run_timeout": 2.0, "compile_timeout": 2.0,
        "memory_limit_MB": 512,
    }  # fmt: skip


def replied(_: str, line: golden.Line) -> golden.Line:
    """What the service says of a program is its verdict; a service that fails, or sends elsewhere,
    is an error and no score.
    """
    run = {
        "status": "Finished",
        "return_code": 0,
        "stdout": "1",
        "stderr": "",
        **line.get("result", {}),
    }
    run["stdout"] = text_of(run["stdout"])
    body = line.get("body", json.dumps({"status": "Success", "run_result": run}))
    reply = web.Response(status=line.get("status", 200), text=body, headers=line.get("headers"))
    try:
        found, _server = remote("print(1)", InputOutputTests([""], ["1"]), reply=reply)
    except ProviderError as error:
        return {"error": error.kind}
    return {"reason": found.outcomes[0].reason}


test_replies = golden.runner("fusion", replied, "reason", "error")


def test_a_slow_service_is_not_the_answers_fault() -> None:
    async def slow() -> None:
        async with fusion_server() as server:
            runner = get_runner(f"fusion:{server.url}")
            await run_code_tests(
                "print(1)", InputOutputTests([""] * 50, ["1"] * 50), runner=runner, deadline=0.1
            )

    with pytest.raises(DeadlineExceeded):
        asyncio.run(slow())


SECRET = "SeCrEt-9"


@pytest.mark.long("programs that resist")
def test_a_password_in_the_address_is_sent_and_shown_nowhere() -> None:
    async def both() -> tuple[float | None, list[str], list[str]]:
        async with fusion_server() as server:
            address = server.url.replace("http://", f"http://user:{SECRET}@") + f"/?token={SECRET}"
            reward = CodeExecutionReward(sandbox=f"fusion:{address}")
            sample = make_sample(
                "```python\ndef f():\n    return 1\n```", metadata={"tests": ["assert f() == 1"]}
            )
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
            shown += [
                repr(get_runner(reward.sandbox)),
                bad.model_dump_json(),
                str(issues(bad)),
                str(bad.metadata),
            ]
            return scores(good)[0], shown, server.logins

    score, shown, logins = asyncio.run(both())
    assert score == 1.0
    assert {base64.b64decode(login.removeprefix("Basic ")).decode() for login in logins} == {
        f"user:{SECRET}"
    }
    assert [text for text in shown if SECRET in text] == []


def test_nobody_at_an_address_with_a_password() -> None:
    runner = get_runner(f"fusion:http://user:{SECRET}@127.0.0.1:9")
    with pytest.raises(ProviderError) as caught:
        asyncio.run(run_code_tests("print(1)", InputOutputTests([""], ["1"]), runner=runner))
    assert caught.value.kind == "unreachable"
    assert SECRET not in str(caught.value) + repr(caught.value.__cause__)
