"""Deployed code behind walls: what it may answer, what it may not do, and that a broken request costs only itself."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from rm_gallery.core.reward.function_result import EvaluateResult
from rm_gallery.core.utils.errors import ConfigError, SandboxUnavailable
from rm_gallery.evaluation.bundle import Bundle, bundle_folders
from rm_gallery.evaluation.pool import LIMITS, EvaluatorBroken, EvaluatorPool
from tests.sandbox.outside import descendants
from tests.support.system import require_bubblewrap

T = TypeVar("T")
ASKED = {"messages": [{"role": "user", "content": "What?"}, {"role": "assistant", "content": "That."}]}
ACTS = r"""
import os, socket, subprocess, sys, threading, time
from rm_gallery import reward_function, EvaluateResult

def loop():
    while True:
        pass

def fork():
    while True:
        os.fork()

def tell(text):
    return EvaluateResult(score=1.0, reason=str(text))

def deep():
    inside = 1
    for _ in range(254):
        inside = [inside]
    return {"score": 1.0, "step_outputs": [{"step_index": 0, "base_reward": 1.0, "metrics": {"x": inside}}]}

ACTS = {
    "score": lambda: 0.25,
    "none": lambda: None,
    "loop": loop,
    "sleep": lambda: time.sleep(60),
    "allocate": lambda: len(bytearray(10**10)),
    "allocate many": lambda: [b"x" * (20 * 2**20) for _ in range(100)],
    "fork": fork,
    "print": lambda: [print("x" * 1000) for _ in range(10_000)],
    "large": lambda: EvaluateResult(score=1.0, reason="x" * 10_000_000),
    "nan": lambda: float("nan"),
    "deep": deep,
    "text": lambda: "1.0",
    "raise": lambda: 1 / 0,
    "exit": lambda: sys.exit(3),
    "die": lambda: os._exit(3),
    "kill": lambda: os.kill(os.getpid(), 9),
    "abort": lambda: os.abort(),
    "read": lambda: open("/etc/passwd").read(),
    "environment": lambda: tell(sorted(os.environ)),
    "list": lambda: tell(os.listdir("/")),
    "write": lambda: open("/py/x", "w"),
    "socket": lambda: socket.create_connection(("127.0.0.1", PORT)),
    "command": lambda: subprocess.run(["/bin/sh", "-c", "id"]),
    "write much": lambda: open("much", "wb").write(b"x" * 40_000_000),
    "forge": lambda: [_write(fd, bytes(3) + b"\x02{}") for fd in range(3, 10)],
    "garble": lambda: [_write(fd, b"\xff" * 100) for fd in range(3, 10)],
}

def _write(fd, data):
    try:
        os.write(fd, data)
    except OSError:
        pass

@reward_function
def evaluate(messages, act="score", **kwargs):
    return ACTS[act]()
"""


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


CONTAINED = [
    ("none", None, "returned None"),
    ("loop", "deadline", "longer than 0.5 s"),
    ("sleep", "deadline", "longer than 0.5 s"),
    ("allocate", "memory", "more memory"),
    ("allocate many", "memory", "more"),
    ("fork", "function_error|processes|deadline|crashed", ""),
    ("print", "output", "printed more than 256 KB"),
    ("large", "output", "the limit is"),
    ("nan", "function_error", "finite"),
    ("deep", "invalid_result|function_error", "nested|recursion|JSON"),
    ("text", "function_error", "returned str"),
    ("raise", "function_error", "ZeroDivisionError: division by zero .evaluator/main.py, line"),
    ("exit", "function_error", "SystemExit: 3"),
    ("die", "crashed", "exit code 3"),
    ("kill", "crashed", "ended"),
    ("abort", "crashed", "ended"),
    ("read", "function_error", "FileNotFoundError"),
    ("write", "function_error", "OSError|PermissionError"),
    ("socket", "function_error", "PermissionError"),
    ("command", "function_error", "FileNotFoundError|PermissionError"),
    ("write much", "function_error|crashed", ""),
    ("forge", "function_error", "returned list"),
    ("garble", "output", "the limit is"),
]


@pytest.mark.system("bubblewrap")
def test_what_it_may_not_do_costs_its_request_only(with_pool: Callable[..., Any], tmp_path: Path) -> None:
    def asked(names: list[str], seconds: float) -> dict[str, tuple[EvaluateResult, EvaluateResult]]:
        async def ask(pool: EvaluatorPool) -> list[tuple[EvaluateResult, EvaluateResult]]:
            return [(await pool.evaluate(act(name)), await pool.evaluate(act("score"))) for name in names]

        limits = replace(LIMITS, wall_seconds=seconds)
        return dict(zip(names, with_pool(of(ACTS.replace("PORT", "9")), ask, workers=1, limits=limits), strict=True))

    endless = ["loop", "sleep"]
    found = asked(endless, 0.5) | asked([name for name, _, _ in CONTAINED if name not in endless], LIMITS.wall_seconds)
    for name, code, message in CONTAINED:
        result, after = found[name]
        assert not result.is_score_valid and result.score == 0.0, name
        said = result.error or ""
        assert (code is None) == (result.error is None), (name, result)
        assert re.fullmatch(code or "", said.partition(": ")[0]), (name, said)
        assert re.search(message, said or result.reason or ""), (name, said)
        assert "Traceback" not in said and "/tmp" not in said, (name, said)
        assert after.is_score_valid and after.score == 0.25, name


@pytest.mark.system("bubblewrap")
def test_it_sees_nothing_of_this_machine(with_pool: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")

    async def ask(pool: EvaluatorPool) -> list[EvaluateResult]:
        return [await pool.evaluate(act(name)) for name in ("environment", "list")]

    environment, root = with_pool(of(ACTS), ask, workers=1)
    assert "KEY" not in environment.reason and "HOME" in environment.reason
    assert "home" not in root.reason and "root" not in root.reason and "proc" not in root.reason


@pytest.mark.system("bubblewrap")
def test_a_worker_killed_from_outside_costs_its_request_or_none(with_pool: Callable[..., Any]) -> None:
    others_of_this_run = descendants()

    async def ask(pool: EvaluatorPool) -> tuple[EvaluateResult, EvaluateResult, EvaluateResult]:
        await pool.ready()
        running = asyncio.ensure_future(pool.evaluate(act("sleep")))
        await asyncio.sleep(0.2)
        before = descendants() - others_of_this_run
        others = [asyncio.ensure_future(pool.evaluate(act("score"))) for _ in range(20)]
        for child in before:
            with contextlib.suppress(ProcessLookupError):  # one may have gone with the one that started it
                os.kill(child, signal.SIGKILL)
        killed = await running
        assert [(await other).score for other in others] == [0.25] * 20
        for child in descendants() - others_of_this_run:  # those that nobody waits for
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        await asyncio.sleep(0.1)
        after = await asyncio.gather(*(pool.evaluate(act("score")) for _ in range(4)))
        return killed, after[0], after[-1]

    killed, first, last = with_pool(of(ACTS), ask, workers=2)
    assert killed.error.startswith("crashed: ")
    assert (first.score, last.score) == (0.25, 0.25)


@pytest.mark.system("bubblewrap")
def test_slow_requests_run_side_by_side_and_a_deadline_bounds_the_wait(with_pool: Callable[..., Any]) -> None:
    slow = of("import time\ndef evaluate(messages, seconds=0.0, **kwargs):\n    time.sleep(seconds)\n    return 1.0\n")

    async def ask(pool: EvaluatorPool) -> tuple[list[EvaluateResult], list[EvaluateResult]]:
        await pool.evaluate_batch([{**ASKED, "kwargs": {"seconds": 0.3}}] * 8)
        # one after the other they take longer than they have
        found = await pool.evaluate_batch([{**ASKED, "kwargs": {"seconds": 1.5}}] * 8, deadline=11.5)
        return found, await pool.evaluate_batch([{**ASKED, "kwargs": {"seconds": 5}}] * 12, deadline=0.4)

    found, late = with_pool(slow, ask, workers=8)
    assert [result.score for result in found] == [1.0] * 8
    assert {str(result.error).partition(":")[0] for result in late} == {"deadline"}


@pytest.mark.system("bubblewrap")
def test_a_request_no_worker_was_free_for_is_told_in_time_and_never_begun(with_pool: Callable[..., Any]) -> None:
    code = "import time\nCOUNT = []\ndef evaluate(messages, seconds=0.0, **kwargs):\n    COUNT.append(1)\n    time.sleep(seconds)\n    return len(COUNT)\n"

    async def ask(pool: EvaluatorPool) -> list[Any]:
        await pool.evaluate(ASKED)
        first = asyncio.ensure_future(pool.evaluate({**ASKED, "kwargs": {"seconds": 6.0}}))
        await asyncio.sleep(0.2)
        late = await pool.evaluate_batch([ASKED, ASKED], deadline=0.5)
        told = [first.done(), *(result.error for result in late)]
        return [*told, (await first).score, (await pool.evaluate(ASKED)).score]

    late = "deadline: no worker was free within 0.5 s"
    assert with_pool(of(code), ask, workers=1) == [False, late, late, 2.0, 3.0]


@pytest.mark.system("bubblewrap")
def test_closing_finishes_what_waits(with_pool: Callable[..., Any]) -> None:
    slow = of("import time\ndef evaluate(messages, **kwargs):\n    time.sleep(0.05)\n    return 1.0\n")

    async def ask(pool: EvaluatorPool) -> list[EvaluateResult]:
        waiting = [asyncio.ensure_future(pool.evaluate(ASKED)) for _ in range(10)]
        await asyncio.sleep(0.1)
        await pool.close()
        return [*(await asyncio.gather(*waiting)), await pool.evaluate(ASKED)]

    *found, after = with_pool(slow, ask, workers=2)
    assert [result.score for result in found] == [1.0] * 10
    assert after.error == "closed: the evaluator is no longer served"


@pytest.mark.system("bubblewrap")
def test_what_nobody_waits_for_is_not_begun(with_pool: Callable[..., Any]) -> None:
    code = "import time\nCOUNT = []\ndef evaluate(messages, **kwargs):\n    COUNT.append(1)\n    time.sleep(0.2)\n    return len(COUNT)\n"

    async def ask(pool: EvaluatorPool) -> list[float]:
        first = asyncio.ensure_future(pool.evaluate(ASKED))
        gone = [asyncio.ensure_future(pool.evaluate(ASKED, deadline=each)) for each in (None, 60.0, 60.0)]
        await asyncio.sleep(0.1)
        for task in gone:
            task.cancel()
        await asyncio.wait(gone)
        return [(await first).score, (await pool.evaluate(ASKED)).score]

    assert with_pool(of(code), ask, workers=1) == [1.0, 2.0]


SHAPES = {
    "plain": "def evaluate(messages, **kwargs):\n    return len(messages[-1].content)\n",
    "async": "import asyncio\nasync def evaluate(messages, **kwargs):\n    await asyncio.sleep(0.001)\n    return 5\n",
    "dict": "def evaluate(messages, **kwargs):\n    return {'score': 5, 'reason': 'r', 'metrics': {'m': {'score': 0.5, 'reason': ''}}}\n",
    "annotations": "from __future__ import annotations\nfrom rm_gallery import Message, reward_function\n"
    "@reward_function\ndef evaluate(messages: list[Message], **kwargs):\n    return len(messages[-1].content)\n",
    "branch": "try:\n    import absent\nexcept ImportError:\n    def evaluate(messages, **kwargs):\n        return 5\n",
    "object": "class Length:\n    def __call__(self, messages, **kwargs):\n        return 5\nevaluate = Length()\n",
    "numpy": "import numpy as np\ndef evaluate(messages, **kwargs):\n    return np.float32(5)\n",
    "truth": "def evaluate(messages, ground_truth=None, original_messages=None, tools=None, tag='', **kwargs):\n"
    "    return 5 if (ground_truth, tools, tag, len(original_messages)) == ({'a': 1}, [1], '好', 1) else 0\n",
}


@pytest.mark.system("bubblewrap")
@pytest.mark.parametrize("name", SHAPES)
def test_functions_of_every_shape(name: str, with_pool: Callable[..., Any]) -> None:
    payload = {**ASKED, "ground_truth": {"a": 1}, "tools": [1], "kwargs": {"tag": "好", "messages": "not these"}}
    found = with_pool(of(SHAPES[name]), lambda pool: pool.evaluate(payload), workers=1)
    assert (found.score, found.error) == (5.0, None)


@pytest.mark.system("bubblewrap")
def test_several_metrics_with_helpers_of_one_name(
    with_pool: Callable[..., Any], make_folder: Callable[..., Path]
) -> None:
    reads = "from pathlib import Path\nimport helper\nfrom . import helper as own\ndef evaluate(messages, **kwargs):\n"
    reads += "    return helper.VALUE + own.VALUE + float((Path(__file__).parent / 'data' / 'n.txt').read_text())\n"
    first = make_folder("first", reads, **{"helper.py": "VALUE = 1\n", "data/n.txt": "0.5"})
    second = make_folder("second", reads, **{"helper.py": "VALUE = 2\n", "data/n.txt": "0.25"})
    third = make_folder("third", "def evaluate(messages, fails=False, **kwargs):\n    return None if fails else 1\n")
    bundle = bundle_folders([f"first={first}", f"second={second}", f"third={third}"])

    async def ask(pool: EvaluatorPool) -> list[EvaluateResult]:
        return await pool.evaluate_batch([ASKED, {**ASKED, "kwargs": {"fails": True}}])

    scored, unscored = with_pool(bundle, ask, workers=1)
    assert {name: metric.score for name, metric in scored.metrics.items()} == {"first": 2.5, "second": 4.25, "third": 1}
    assert scored.score == pytest.approx(7.75 / 3) and scored.reason == "mean of first 2.5, second 4.25, third 1"
    assert not unscored.is_score_valid and "third: evaluate returned None" in unscored.reason
    assert [metric.is_score_valid for metric in unscored.metrics.values()] == [True, True, False]


@pytest.mark.system("bubblewrap")
def test_a_batch_function_gets_the_answers_to_one_prompt_at_once(with_pool: Callable[..., Any]) -> None:
    code = "from rm_gallery import reward_function\n@reward_function(mode='batch')\n"
    code += (
        "def evaluate(rollouts_messages, ground_truth=0, **kwargs):\n    return [len(rollouts_messages) + ground_truth]"
    )
    bundle = of(f"{code} * len(rollouts_messages)\n")
    assert bundle.mode == "batch"
    other = {"messages": [{"role": "user", "content": "And?"}, ASKED["messages"][1]]}
    mixed = [ASKED, other, {**ASKED, "ground_truth": 10}, {"messages": "text"}, ASKED]
    found = with_pool(bundle, lambda pool: pool.evaluate_batch(mixed), workers=1)
    assert [result.score for result in found] == [2.0, 1.0, 11.0, 0.0, 2.0]
    assert "invalid_input: rollouts_messages[3]: expected a list of messages" in found[3].error


BROKEN = {
    "raises": ("raise RuntimeError('no good')\ndef evaluate(messages, **kwargs): ...\n", "RuntimeError: no good"),
    "imports": ("import nowhere\ndef evaluate(messages, **kwargs): ...\n", "No module named 'nowhere'"),
    "signature": ("def evaluate(text): ...\n", "no parameter 'messages'"),
    "exits": ("import os\nos._exit(1)\ndef evaluate(messages, **kwargs): ...\n", "ended"),
    "requires": (
        "from rm_gallery import reward_function\n@reward_function(requirements=['nowhere-at-all>=2'])\n"
        "def evaluate(messages, **kwargs): ...\n",
        "pip install nowhere-at-all>=2",
    ),
}


@pytest.mark.system("bubblewrap")
@pytest.mark.parametrize("name", BROKEN)
def test_code_that_does_not_load_says_why(name: str, with_pool: Callable[..., Any]) -> None:
    code, message = BROKEN[name]

    async def ask(pool: EvaluatorPool) -> EvaluateResult:
        with pytest.raises(EvaluatorBroken, match=message):
            await pool.ready()
        return await pool.evaluate(ASKED)

    found = with_pool(of(code), ask, workers=1)
    assert found.error.startswith("evaluator_load: ") and message in found.error


@pytest.mark.system("bubblewrap")
def test_odd_payloads(with_pool: Callable[..., Any]) -> None:
    payloads: list[dict[str, Any]] = [
        {"messages": [{"role": "assistant", "content": None, "tool_calls": [{"name": "f", "arguments": "{}"}]}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "\ud800"}]}], "ground_truth": 2**80},
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
        "invalid_input",
        "invalid_input",
        "None",
        "invalid_input",
    ]


def test_without_bubblewrap_it_refuses_unless_asked_by_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SandboxUnavailable, match="needs bubblewrap"):
        EvaluatorPool(of(ACTS))

    async def ask() -> EvaluateResult:
        pool = EvaluatorPool(of(ACTS), sandbox="subprocess")
        try:
            return await pool.evaluate(act("score"))
        finally:
            await pool.close()

    assert asyncio.run(ask()).score == 0.25


@pytest.mark.parametrize(
    "settings", [{"workers": 0}, {"workers": True}, {"sandbox": "docker"}, {"sandbox": "fusion:http://x"}]
)
def test_settings_that_do_not_fit(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        EvaluatorPool(of(ACTS), **settings)
