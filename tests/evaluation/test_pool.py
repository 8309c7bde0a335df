"""Deployed code behind walls: what it may answer, what it may not do, and that a broken request
costs only itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import textwrap
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from rm_gallery import EvaluateResult
from rm_gallery.core.utils.errors import SandboxUnavailable
from rm_gallery.evaluation.bundle import Bundle, bundle_folders
from rm_gallery.evaluation.pool import LIMITS, EvaluatorBroken, EvaluatorPool
from tests.golden.golden import Line, check, lines
from tests.sandbox.outside import descendants
from tests.support.system import require_bubblewrap

pytestmark = pytest.mark.system("bubblewrap")
T = TypeVar("T")
ASKED = {
    "messages": [{"role": "user", "content": "What?"}, {"role": "assistant", "content": "That."}]
}
GOLDEN = Path(__file__).parents[1] / "golden" / "evaluation"
CONTAINED = [line for _, line in lines(GOLDEN / "contained.jsonl")]
HEAD = (
    "import os, socket, subprocess, sys, time\nfrom rm_gallery import EvaluateResult, "
    "reward_function\n"
)
MORE = {
    "score": "return 0.25",
    "environment": "return EvaluateResult(score=1.0, reason=str(sorted(os.environ)))",
    "list": "return EvaluateResult(score=1.0, reason=str(os.listdir('/')))",
}
"""What is asked between two that break, and what tells of the machine."""


def acts() -> Bundle:
    """An evaluator that does what its keyword `act` says."""
    bodies = {**{line["name"]: line["body"] for line in CONTAINED}, **MORE}
    code = [
        f"def act_{n}():\n{textwrap.indent(body, '    ')}\n"
        for n, body in enumerate(bodies.values())
    ]
    table = ", ".join(f"{name!r}: act_{n}" for n, name in enumerate(bodies))
    last = (
        f"@reward_function\ndef evaluate(messages, act='score', **kwargs):\n    return "
        f"{{{table}}}[act]()\n"
    )
    return of("".join([HEAD, *code, last]))


def of(code: str) -> Bundle:
    return bundle_folders(code=code)


@pytest.fixture
def with_pool() -> Iterator[Callable[..., Any]]:
    """`with_pool(bundle, ask, **settings)`: what `await ask(pool)` gives; the pool is closed after."""
    require_bubblewrap()

    def run(bundle: Bundle, ask: Callable[[EvaluatorPool], Awaitable[T]], **settings: Any) -> T:
        async def body() -> T:
            pool = EvaluatorPool(bundle, **settings)
            try:
                return await ask(pool)
            finally:
                await pool.close()

        return asyncio.run(body())

    yield run


def act(name: str) -> dict[str, Any]:
    return {**ASKED, "kwargs": {"act": name}}


def test_what_it_may_not_do_costs_its_request_only(with_pool: Callable[..., Any]) -> None:
    def asked(names: list[str], seconds: float) -> dict[str, tuple[EvaluateResult, EvaluateResult]]:
        async def ask(pool: EvaluatorPool) -> list[tuple[EvaluateResult, EvaluateResult]]:
            return [
                (await pool.evaluate(act(name)), await pool.evaluate(act("score")))
                for name in names
            ]

        limits = replace(LIMITS, wall_seconds=seconds)
        return dict(zip(names, with_pool(acts(), ask, workers=1, limits=limits), strict=True))

    endless = ["loop", "sleep"]
    others = [line["name"] for line in CONTAINED if line["name"] not in endless]
    found = asked(endless, 0.5) | asked(others, LIMITS.wall_seconds)
    for line in CONTAINED:
        result, after = found[line["name"]]
        said = result.error or ""
        assert not result.is_score_valid and result.score == 0.0, line
        assert bool(line["code"]) == bool(said) and re.fullmatch(
            line["code"], said.partition(": ")[0]
        ), (line, said)
        assert re.search(line["says"], said or result.reason or ""), (line, said)
        assert "Traceback" not in said and "/tmp" not in said, (line, said)
        assert after.is_score_valid and after.score == 0.25, line


def test_it_sees_nothing_of_this_machine(
    with_pool: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")

    async def ask(pool: EvaluatorPool) -> list[EvaluateResult]:
        return [await pool.evaluate(act(name)) for name in ("environment", "list")]

    environment, root = with_pool(acts(), ask, workers=1)
    assert "KEY" not in environment.reason and "HOME" in environment.reason
    assert "home" not in root.reason and "root" not in root.reason and "proc" not in root.reason


def test_a_worker_killed_from_outside_costs_its_request_or_none(
    with_pool: Callable[..., Any],
) -> None:
    others_of_this_run = descendants()

    async def ask(pool: EvaluatorPool) -> tuple[EvaluateResult, EvaluateResult, EvaluateResult]:
        await pool.ready()
        running = asyncio.ensure_future(pool.evaluate(act("sleep")))
        await asyncio.sleep(0.2)
        before = descendants() - others_of_this_run
        others = [asyncio.ensure_future(pool.evaluate(act("score"))) for _ in range(20)]
        for child in before:
            # one may have gone with the one that started it
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        killed = await running
        assert [(await other).score for other in others] == [0.25] * 20
        for child in descendants() - others_of_this_run:  # those that nobody waits for
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        await asyncio.sleep(0.1)
        after = await asyncio.gather(*(pool.evaluate(act("score")) for _ in range(4)))
        return killed, after[0], after[-1]

    killed, first, last = with_pool(acts(), ask, workers=2)
    assert killed.error.startswith("crashed: ")
    assert (first.score, last.score) == (0.25, 0.25)


def test_slow_requests_run_side_by_side_and_a_deadline_bounds_the_wait(
    with_pool: Callable[..., Any],
) -> None:
    slow = of(
        "import time\ndef evaluate(messages, seconds=0.0, **kwargs):\n    time.sleep(seconds)\n    "
        "return 1.0\n"
    )

    async def ask(pool: EvaluatorPool) -> tuple[list[EvaluateResult], list[EvaluateResult]]:
        await pool.evaluate_batch([{**ASKED, "kwargs": {"seconds": 0.3}}] * 8)
        # one after the other they take longer than they have
        found = await pool.evaluate_batch(
            [{**ASKED, "kwargs": {"seconds": 1.5}}] * 8, deadline=11.5
        )
        return found, await pool.evaluate_batch(
            [{**ASKED, "kwargs": {"seconds": 5}}] * 12, deadline=0.4
        )

    found, late = with_pool(slow, ask, workers=8)
    assert [result.score for result in found] == [1.0] * 8
    assert {str(result.error).partition(":")[0] for result in late} == {"deadline"}


def test_a_request_no_worker_was_free_for_is_told_in_time_and_never_begun(
    with_pool: Callable[..., Any],
) -> None:
    code = (
        "import time\nCOUNT = []\ndef evaluate(messages, seconds=0.0, **kwargs):\n    "
        "COUNT.append(1)\n    time.sleep(seconds)\n    return len(COUNT) / 4\n"
    )

    async def ask(pool: EvaluatorPool) -> list[Any]:
        await pool.evaluate(ASKED)
        first = asyncio.ensure_future(pool.evaluate({**ASKED, "kwargs": {"seconds": 2.5}}))
        await asyncio.sleep(0.2)
        late = await pool.evaluate_batch([ASKED, ASKED], deadline=0.5)
        told = [first.done(), *(result.error for result in late)]
        return [*told, (await first).score, (await pool.evaluate(ASKED)).score]

    late = "deadline: no worker was free within 0.5 s"
    assert with_pool(of(code), ask, workers=1) == [False, late, late, 0.5, 0.75]


def test_closing_finishes_what_waits(with_pool: Callable[..., Any]) -> None:
    slow = of(
        "import time\ndef evaluate(messages, **kwargs):\n    time.sleep(0.05)\n    return 1.0\n"
    )

    async def ask(pool: EvaluatorPool) -> list[EvaluateResult]:
        waiting = [asyncio.ensure_future(pool.evaluate(ASKED)) for _ in range(10)]
        await asyncio.sleep(0.1)
        await pool.close()
        return [*(await asyncio.gather(*waiting)), await pool.evaluate(ASKED)]

    *found, after = with_pool(slow, ask, workers=2)
    assert [result.score for result in found] == [1.0] * 10
    assert after.error == "closed: the evaluator is no longer served"


def test_what_nobody_waits_for_is_not_begun(with_pool: Callable[..., Any]) -> None:
    code = (
        "import time\nCOUNT = []\ndef evaluate(messages, **kwargs):\n    COUNT.append(1)\n    "
        "time.sleep(0.2)\n    return len(COUNT) / 4\n"
    )

    async def ask(pool: EvaluatorPool) -> list[float]:
        first = asyncio.ensure_future(pool.evaluate(ASKED))
        gone = [
            asyncio.ensure_future(pool.evaluate(ASKED, deadline=each))
            for each in (None, 60.0, 60.0)
        ]
        await asyncio.sleep(0.1)
        for task in gone:
            task.cancel()
        await asyncio.wait(gone)
        return [(await first).score, (await pool.evaluate(ASKED)).score]

    assert with_pool(of(code), ask, workers=1) == [0.25, 0.5]


def test_functions_of_every_shape_are_asked_and_code_that_does_not_load_says_why(
    with_pool: Callable[..., Any],
) -> None:
    payload = {
        **ASKED,
        "ground_truth": {"a": 1},
        "tools": [1],
        "kwargs": {"tag": "好", "messages": "not these"},
    }

    def asked(line: Line) -> Line:
        async def ask(pool: EvaluatorPool) -> EvaluateResult:
            if "says" in line:
                with pytest.raises(EvaluatorBroken, match=line["says"]):
                    await pool.ready()
            return await pool.evaluate(payload)

        found = with_pool(of(line["code"]), ask, workers=1)
        if found.error is None:
            return {"score": found.score}
        code, _, message = found.error.partition(": ")
        return {"error": code if line.get("says", "") in message else message}

    check(GOLDEN / "shapes.jsonl", asked, ("score", "error"))


def test_several_metrics_with_helpers_of_one_name(
    with_pool: Callable[..., Any], make_folder: Callable[..., Path]
) -> None:
    reads = (
        "from pathlib import Path\nimport helper\nfrom . import helper as own\ndef "
        "evaluate(messages, **kwargs):\n"
    )
    reads += (
        "    return (helper.VALUE + own.VALUE) / 10 + float((Path(__file__).parent / 'data' / "
        "'n.txt').read_text())\n"
    )
    first = make_folder("first", reads, **{"helper.py": "VALUE = 1\n", "data/n.txt": "0.05"})
    second = make_folder("second", reads, **{"helper.py": "VALUE = 2\n", "data/n.txt": "0.025"})
    third = make_folder(
        "third", "def evaluate(messages, fails=False, **kwargs):\n    return None if fails else 1\n"
    )
    bundle = bundle_folders([f"first={first}", f"second={second}", f"third={third}"])

    async def ask(pool: EvaluatorPool) -> list[EvaluateResult]:
        return await pool.evaluate_batch([ASKED, {**ASKED, "kwargs": {"fails": True}}])

    scored, unscored = with_pool(bundle, ask, workers=1)
    assert {name: metric.score for name, metric in scored.metrics.items()} == pytest.approx(
        {"first": 0.25, "second": 0.425, "third": 1}
    )
    assert (
        scored.score == pytest.approx(1.675 / 3)
        and scored.reason == "mean of first 0.25, second 0.425, third 1"
    )
    assert (unscored.score, unscored.is_score_valid) == (
        0.0,
        False,
    ) and "third: evaluate returned None" in unscored.reason
    assert [metric.is_score_valid for metric in unscored.metrics.values()] == [True, True, False]


def test_a_batch_function_gets_the_answers_to_one_prompt_at_once(
    with_pool: Callable[..., Any],
) -> None:
    code = (
        "from rm_gallery import reward_function\n@reward_function(mode='batch', score_range=(0, "
        "20))\n"
    )
    code += (
        "def evaluate(rollouts_messages, ground_truth=0, **kwargs):\n    return "
        "[len(rollouts_messages) + ground_truth]"
    )
    bundle = of(f"{code} * len(rollouts_messages)\n")
    assert bundle.mode == "batch"
    other = {"messages": [{"role": "user", "content": "And?"}, ASKED["messages"][1]]}
    mixed = [ASKED, other, {**ASKED, "ground_truth": 10}, {"messages": "text"}, ASKED]
    found = with_pool(bundle, lambda pool: pool.evaluate_batch(mixed), workers=1)
    assert [result.score for result in found] == [2.0, 1.0, 11.0, 0.0, 2.0]
    assert "invalid_input: rollouts_messages[3]: expected a list of messages" in found[3].error


def test_odd_payloads(with_pool: Callable[..., Any]) -> None:
    payloads: list[dict[str, Any]] = [
        {
            "messages": [
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [{"name": "f", "arguments": "{}"}],
                }
            ]
        },
        {
            "messages": [{"role": "user", "content": [{"type": "text", "text": "\ud800"}]}],
            "ground_truth": 2**80,
        },
        {"messages": [{"role": "user"}]},
        {"messages": "text"},
        {"messages": [{"content": "no role"}]},
        {"messages": []},
        {"messages": [{"role": "user", "content": "x" * (17 * 2**20)}]},
    ]
    code = "def evaluate(messages, **kwargs):\n    return len(messages)\n"
    found = with_pool(of(code), lambda pool: pool.evaluate_batch(payloads), workers=1)
    assert [(result.score, result.is_score_valid) for result in found[:3]] == [(1.0, True)] * 3
    assert [str(result.error).partition(":")[0] for result in found[3:]] == [
        "invalid_input", "invalid_input", "None", "invalid_input",
    ]  # fmt: skip


def test_without_bubblewrap_it_refuses_unless_asked_by_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SandboxUnavailable, match="needs bubblewrap"):
        EvaluatorPool(acts())

    async def ask() -> EvaluateResult:
        pool = EvaluatorPool(acts(), sandbox="subprocess")
        try:
            return await pool.evaluate(act("score"))
        finally:
            await pool.close()

    assert asyncio.run(ask()).score == 0.25
