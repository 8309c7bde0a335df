"""Scoring through a SandboxFusion service, which can only run whole programs.

The conversation between answer and tests is replayed, one message further each time. The answer
still never shares a program with the tests, so it cannot read them or forge their verdict. The
price is two runs per call the tests make.
"""

from __future__ import annotations

import base64
import json
import math
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from rm_gallery.core.sandbox.attempt import Attempt, as_text, output_bound
from rm_gallery.core.sandbox.code_test_spec import (
    CodeTestReport,
    CodeTests,
    InputOutputTests,
    answer_job,
    build_report,
    test_job,
)
from rm_gallery.core.sandbox.floor import source_of
from rm_gallery.core.sandbox.inside.codec import CodecError, decode, encode
from rm_gallery.core.sandbox.inside.remote import error_reason
from rm_gallery.core.sandbox.inside.testing import same_output
from rm_gallery.core.sandbox.process import SandboxLimits
from rm_gallery.core.sandbox.runner import RemoteResult, RemoteRunner
from rm_gallery.core.utils.errors import ConfigError, DataError, DeadlineExceeded, ProviderError

if TYPE_CHECKING:
    import aiohttp


_OVERHEAD_SECONDS = 15.0
_MAX_REPLY = 32 * 1024 * 1024


class SandboxFusionRunner(RemoteRunner):
    """Runs programs on a SandboxFusion server; its operator answers for the walls there.

    A user name and password in the address are sent as basic authentication and shown nowhere, nor
    is its query. Redirects are not followed: the answer's code goes to the address given. Raises
    ConfigError for something that is no http(s) address.
    """

    name = "fusion"

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        try:
            host = parts.hostname or ""
            port = f":{parts.port}" if parts.port else ""
        except ValueError:
            host = port = ""
        if parts.scheme not in ("http", "https") or not host:
            raise ConfigError(
                "the address of a SandboxFusion service is http://host:port or https://host:port"
            )
        host = f"[{host}]" if ":" in host else host
        self._shown = f"{parts.scheme}://{host}{port}{parts.path.rstrip('/')}"
        self._url = self._shown + "/run_code" + (f"?{parts.query}" if parts.query else "")
        self._headers = {}
        if parts.username is not None:
            login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._headers["Authorization"] = f"Basic {base64.b64encode(login.encode()).decode()}"

    def __repr__(self) -> str:
        return f"SandboxFusionRunner({self._shown!r})"

    async def run(self, code: str, stdin: str, limits: SandboxLimits) -> RemoteResult:
        """Run one Python program; see RemoteRunner."""
        import aiohttp

        body = {
            "code": code,
            "language": "python",
            "stdin": stdin,
            "run_timeout": limits.wall_seconds,
            "compile_timeout": limits.wall_seconds,
            "memory_limit_MB": math.ceil(limits.memory_mb),
        }
        timeout = aiohttp.ClientTimeout(total=2 * limits.wall_seconds + _OVERHEAD_SECONDS)
        try:
            # a session per call: event loops come and go, and a session belongs to one of them
            async with aiohttp.ClientSession(timeout=timeout, headers=self._headers) as session:
                async with session.post(self._url, json=body, allow_redirects=False) as response:
                    text = await _read_body(response)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            gone = isinstance(error, (aiohttp.ClientConnectorError, aiohttp.InvalidURL))
            told = "cannot be reached ({})" if gone else "did not answer: {}"
            raise ProviderError(
                f"SandboxFusion at {self._shown} {told.format(type(error).__name__)}",
                kind="unreachable" if gone else "transient",
            ) from None
        if text is None:
            return RemoteResult("output limit", "", "", None)
        return self._remote_result(text)

    def _remote_result(self, text: bytes) -> RemoteResult:
        try:
            reply: Any = json.loads(text)
            result = reply.get("run_result")
        except (ValueError, AttributeError) as error:
            raise ProviderError("SandboxFusion sent no JSON object", kind="transient") from error
        if reply.get("status") == "SandboxError" or not isinstance(result, dict):
            raise ProviderError(
                f"SandboxFusion failed: {str(reply.get('message'))[:200]}", kind="transient"
            )
        status, code = str(result.get("status")), result.get("return_code")
        return RemoteResult(
            status="finished"
            if status == "Finished"
            else "deadline"
            if "TimeLimit" in status
            else "error",
            stdout=str(result.get("stdout") or ""),
            stderr=str(result.get("stderr") or ""),
            exit_code=code if isinstance(code, int) else None,
        )


async def _read_body(response: aiohttp.ClientResponse) -> bytes | None:
    """Return the body, or None when it is larger than any fair program prints; raises ProviderError
    for an error status.
    """
    status = response.status
    if status == 429:
        raise ProviderError("SandboxFusion asks to slow down", kind="rate_limit", status=status)
    if status >= 300:
        told = (
            f"HTTP {status}"
            if status >= 400
            else "a redirect, which is not followed; give its own address"
        )
        raise ProviderError(
            f"SandboxFusion answered with {told}",
            kind="transient" if status >= 500 else "fatal",
            status=status,
        )
    parts = bytearray()
    async for chunk in response.content.iter_chunked(65536):
        parts += chunk
        if len(parts) > _MAX_REPLY:
            return None
    return bytes(parts)


_INSIDE = "rm_gallery.core.sandbox.inside"
_MODULES = "codec base remote suite answer testing".split()
_Known = list[tuple[bytes, "bytes | None"]]


async def run_remotely(
    code: str,
    tests: CodeTests,
    units: int,
    runner: RemoteRunner,
    limits: SandboxLimits,
    deadline: float,
) -> CodeTestReport:
    """Run the units on a remote runner.

    Raises ProviderError when the service fails, DeadlineExceeded when it was too slow for the
    deadline through no fault of the answer, DataError when the tests themselves cannot run.
    """
    began = time.monotonic()
    session = _Session(runner, limits, began + deadline, {})
    if isinstance(tests, InputOutputTests) and not tests.fn_name:
        await session.run_programs(code, tests)
    else:
        first = 0
        while first < units:
            attempt = await session.replay(
                answer_job(code, tests), {**test_job(tests), "first": first, "units": units}
            )
            first = attempt.settle(session.outcomes, units)
    return build_report(session.outcomes, units, began, runner, session.runs)


@dataclass
class _Session:
    runner: RemoteRunner
    limits: SandboxLimits
    until: float
    outcomes: dict[int, tuple[str, str]]
    runs: int = 0

    async def run(self, code: str, stdin: str = "") -> RemoteResult:
        if time.monotonic() >= self.until:
            raise DeadlineExceeded(
                "the remote sandbox did not finish this sample's tests before its deadline"
            )
        self.runs += 1
        return await self.runner.run(code, stdin, self.limits)

    async def run_programs(self, code: str, tests: InputOutputTests) -> None:
        expected = [as_text(value) for value in tests.outputs]
        bound = output_bound(self.limits, expected)
        for number, given in enumerate(tests.inputs):
            reason = "deadline"
            slow_answer = ("deadline", "") in self.outcomes.values()
            if time.monotonic() < self.until or not slow_answer:
                result = await self.run(code, as_text(given))
                reason = _program_reason(result, expected[number], bound)
            self.outcomes[number] = (reason, "")

    async def replay(self, answer: dict[str, object], job: dict[str, object]) -> Attempt:
        """Alternate between both programs until the tests have nothing left to ask."""
        attempt = Attempt(int(str(job["first"])))
        replies, end = await self._replies(answer, [])
        if not replies:
            attempt.all_rest = end
            return attempt
        hello = replies[0]
        known: _Known = []
        while True:
            records, request = await self._tests(job, hello, known)
            if request is None:
                self._judge_records(attempt, records, end)
                return attempt
            asked = [question for question, _ in known] + [request]
            replies, end = await self._replies(answer, asked)
            known.append((request, replies[len(asked)] if len(replies) > len(asked) else None))

    async def _replies(
        self, answer: dict[str, object], requests: list[bytes]
    ) -> tuple[list[bytes], str]:
        result = await self.run(_program(f"answer.replay_functions({answer!r}, {requests!r})"))
        replies = [payload for kind, payload in _messages_in(result.stdout) if kind == "A"]
        return replies, _end_reason(result)

    async def _tests(
        self, job: dict[str, object], hello: bytes, known: _Known
    ) -> tuple[list[tuple[Any, ...]], bytes | None]:
        # repr of inf and nan is no literal
        tests = f"codec.decode({encode(job)!r})"
        result = await self.run(_program(f"testing.replay_tests({tests}, {hello!r}, {known!r})"))
        messages = _messages_in(result.stdout)
        if any(kind == "X" for kind, _ in messages):
            raise DataError(
                "the tests take another path each time they run, which a remote sandbox cannot "
                "follow"
            )
        try:
            records = [decode(payload) for kind, payload in messages if kind == "R"]
        except CodecError as error:
            raise ProviderError(
                f"the remote sandbox returned a damaged record: {error}", kind="transient"
            ) from error
        requests = [payload for kind, payload in messages if kind == "C"]
        if not records and not requests:
            where = f"{result.status}: {result.stderr.strip()[-200:]}"
            raise ProviderError(
                f"the tests did not run on the remote sandbox ({where})", kind="transient"
            )
        return [each for each in records if isinstance(each, tuple)], next(iter(requests), None)

    def _judge_records(self, attempt: Attempt, records: list[tuple[Any, ...]], end: str) -> None:
        for record in records:
            if attempt.take(record):
                attempt.stop_by(end, loaded=True, surely=end == "deadline")
        if not attempt.all_rest and attempt.next_unit == attempt.first and not attempt.outcomes:
            attempt.judge("deadline", "in the test process")


def _program(call: str) -> str:
    sources = [(f"{_INSIDE}.{stem}", source_of(stem)) for stem in _MODULES]
    return (
        f"import sys\nfor name, text in {sources!r}:\n"
        "    module = sys.modules[name] = type(sys)(name)\n"
        "    exec(compile(text, name, 'exec'), module.__dict__)\n"
        f"answer, base, codec, testing = (sys.modules['{_INSIDE}.' + name] for name in ('answer', "
        f"'base', 'codec', 'testing'))\nbase.steady_hashes()\n{call}\n"
    )


def _messages_in(stdout: str) -> list[tuple[str, bytes]]:
    messages = []
    for line in stdout.splitlines():
        kind, _, payload = line.partition(" ")
        if kind in ("A", "C", "R", "X"):
            with suppress(ValueError):
                messages.append((kind, base64.b64decode(payload, validate=True)))
    return messages


def _end_reason(result: RemoteResult) -> str:
    if result.status in ("deadline", "output limit"):
        return result.status
    return f"crashed exit code {result.exit_code}"


def _program_reason(result: RemoteResult, expected: str, bound: int) -> str:
    if result.status in ("deadline", "output limit"):
        return result.status
    if len(result.stdout.encode("utf-8", "replace")) > bound:
        return "output limit"
    if result.status == "error" or result.exit_code not in (0, None):
        last = (result.stderr.strip().splitlines() or [""])[-1].split(":")[0].strip()
        name = last.rsplit(".", 1)[-1]
        return error_reason([name]) if name.isidentifier() else _end_reason(result)
    return "passed" if same_output(result.stdout, expected) else "wrong answer"
