"""The published styles of code tests, as a table of answers and outcomes."""

from __future__ import annotations

import pytest

from rm_gallery.core.sandbox.bwrap import BwrapRunner
from rm_gallery.core.sandbox.code_tests import AssertTests, HumanEvalTests, InputOutputTests
from rm_gallery.core.utils.errors import DataError
from tests.sandbox.scoring import program_reasons, score

pytestmark = pytest.mark.system("bubblewrap")

PROMPT = (
    "import math\nfrom typing import List\n\ndef helper(x):\n    return x + 1\n\n"
    'def solve(xs: List[int]) -> int:\n    """Sum of helper(x)."""\n'
)
CHECK = "def check(candidate):\n    assert candidate([1, 2]) == 5\n    assert helper(1) == 2\n"

HUMAN_EVAL = [
    ("body", "    return sum(helper(x) for x in xs)\n", "passed"),
    ("body that lost its indentation", "total = sum(helper(x) for x in xs)\nreturn total\n", "passed"),
    ("whole function", "def solve(xs: List[int]) -> int:\n    return sum(helper(x) for x in xs)\n", "passed"),
    ("whole file", PROMPT + "    return sum(helper(x) for x in xs)\n", "passed"),
    (
        "future import first",
        "from __future__ import annotations\ndef solve(xs):\n    return sum(map(helper, xs))\n",
        "passed",
    ),
    ("Windows line ends", "def solve(xs):\r\n    return sum(map(helper, xs))\r\n", "passed"),
    ("lambda", "solve = lambda xs: sum(map(helper, xs))\n", "passed"),
    (
        "another helper does not deceive the test",
        "def helper(x):\n    return 2.5\ndef solve(xs):\n    return 5\n",
        "passed",
    ),
    ("wrong", "    return 0\n", "wrong answer"),
    ("empty", "", "wrong answer"),
    ("prose", "I cannot do that.", "error: SyntaxError"),
    ("other name", "def solution(xs):\n    return 5\n", "wrong answer"),
    ("own check", "def check(c):\n    pass\ndef solve(xs):\n    return 0\n", "wrong answer"),
]


@pytest.mark.parametrize(("code", "reason"), [row[1:] for row in HUMAN_EVAL], ids=[row[0] for row in HUMAN_EVAL])
def test_human_eval(bubblewrap: BwrapRunner, code: str, reason: str) -> None:
    report = score(bubblewrap, code, HumanEvalTests(CHECK, "solve", PROMPT))
    assert [outcome.reason for outcome in report.outcomes] == [reason]


def test_human_eval_without_prompt_needs_the_name(bubblewrap: BwrapRunner) -> None:
    report = score(bubblewrap, "x = 1", HumanEvalTests("def check(c):\n    assert c() == 1", "f"))
    assert report.outcomes[0].reason == "error: NameError"


@pytest.mark.parametrize("prompt", ["Write f(xs). Return 3, please!", "x = 1\n", "\n\n"])
def test_a_prompt_that_is_no_code_to_continue_is_ignored(bubblewrap: BwrapRunner, prompt: str) -> None:
    tests = HumanEvalTests("def check(c):\n    assert c([]) == 3\n", "f", prompt)
    assert score(bubblewrap, "def f(xs):\n    return 3\n", tests).score == 1.0


PROGRAMS = [
    ("print(int(input()) + 1)", ("1", "2"), "passed"),
    ("print(int(input()) + 1)", ("1\r\n", "2\r\n\r\n"), "passed"),
    ("import sys\nprint(sum(map(int, sys.stdin.read().split())))", ("1 2\n3\n", "6"), "passed"),
    ("import sys\nsys.stdout.write(sys.stdin.buffer.read().decode())", ("中文\n", "中文"), "passed"),
    ("print(open(0).read())", ("a  b", "a  b   \n\n"), "passed"),
    ("print(1 / 3)", ("", "0.3333333"), "passed"),
    ("print(1 / 3)", ("", "0.333"), "wrong answer"),
    ("print(3)", ("", "3.0"), "passed"),
    ("print(30000001)", ("", "30000002"), "wrong answer"),
    ("print('a b')", ("", "a  b"), "passed"),
    ("print('a\\nb')", ("", "a b"), "wrong answer"),
    ("print('a')\nprint()", ("", "a"), "passed"),
    ("print('a')", ("", "a\nb"), "wrong answer"),
    ("if __name__ == '__main__':\n    print(1)\n    exit()", ("", "1"), "passed"),
    ("import threading\nthreading.Thread(target=lambda: print(1)).start()", ("", "1"), "passed"),
    ("import atexit\natexit.register(print, 1)", ("", "1"), "passed"),
    (
        "import sys\nsys.setrecursionlimit(10**6)\ndef f(n):\n    return n and 1 + f(n - 1)\nprint(f(20000))",
        ("", "20000"),
        "passed",
    ),
    ("input()\ninput()\nprint(1)", ("x", "1"), "error: EOFError"),
    ("print(len(input()))", ("x" * 3_000_000, "3000000"), "passed"),
    ("print('x' * 300_000)", ("", "x" * 300_000), "passed"),
]


@pytest.mark.parametrize(("code", "pair", "reason"), PROGRAMS, ids=range(len(PROGRAMS)))
def test_stdin_and_stdout(bubblewrap: BwrapRunner, code: str, pair: tuple[str, str], reason: str) -> None:
    assert program_reasons(bubblewrap, code, pair) == [reason]


CALLS = [
    ("def f(a, b):\n    return a + b", [[1, 2], ["x", "y"]], [3, "xy"], 1.0),
    ("class Solution:\n    def f(self, a):\n        return (a, a)", [[1]], [[1, 1]], 1.0),
    ("def f(a):\n    return a", [[1], [[1, 2]]], [[1], [[1, 2]]], 1.0),
    ("def f(a, b):\n    return [a, b]", ["1\n[2]", '"s"\nnull'], ["[1, [2]]", '["s", null]'], 1.0),
    ("def f(a):\n    return {1: a / 3}", [[1.0]], [{"1": 0.33333333}], 1.0),
    ("def f(a):\n    return str(a)", [[1], [2]], [1, "2"], 0.5),
    ("def g(a):\n    return a", [[1], [2]], [1, 2], 0.0),
]


@pytest.mark.parametrize(("code", "inputs", "outputs", "expected"), CALLS, ids=range(len(CALLS)))
def test_calls(
    bubblewrap: BwrapRunner, code: str, inputs: list[object], outputs: list[object], expected: float
) -> None:
    assert score(bubblewrap, code, InputOutputTests(inputs, outputs, "f")).score == expected


BROKEN = [
    HumanEvalTests("def check(candidate:\n", "f"),
    HumanEvalTests("import no_such_package\ndef check(c):\n    assert c()", "f"),
    HumanEvalTests("def verify(c):\n    assert c()", "f"),
    HumanEvalTests("def check(c):\n    assert c(lambda: 1)", "f"),
    AssertTests(["assert f() =="]),
    AssertTests(["assert f()"], setup="raise OSError"),
    AssertTests([]),
    InputOutputTests(["1"], []),
]


@pytest.mark.parametrize("tests", BROKEN, ids=range(len(BROKEN)))
def test_broken_tests_are_an_error_not_a_score(
    bubblewrap: BwrapRunner, tests: HumanEvalTests | AssertTests | InputOutputTests
) -> None:
    with pytest.raises(DataError):
        score(bubblewrap, "def f(*a):\n    return 1\ndef check(c):\n    pass\n", tests)
