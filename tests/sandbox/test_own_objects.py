"""What an answer returns is data: its own objects are not believed, and cannot turn a wrong answer into an unscored one."""

from __future__ import annotations

import pytest

from rm_gallery.core.sandbox.bwrap import BwrapRunner
from rm_gallery.core.sandbox.code_tests import AssertTests, HumanEvalTests
from tests.sandbox.scoring import reasons, score, score_all

pytestmark = pytest.mark.system("bubblewrap")


def test_s1_a_restart_does_not_bind_the_tests_names_to_the_answer(bubblewrap: BwrapRunner) -> None:
    lines = ["from math import isclose", *["assert isclose(f(2), 4)"] * 3]
    code = (
        "import os, random\nDIES = random.SystemRandom().random() < 0.5\n"
        "def isclose(a, b):\n    return True\ndef f(x):\n    if DIES:\n        os._exit(0)\n    return 5\n"
    )
    reports = score_all(bubblewrap, [(code, AssertTests(lines))] * 12)
    assert [report.passed for report in reports] == [1] * 12


@pytest.mark.parametrize(
    ("lines", "passed"),
    [
        (["limit = 3", "assert f(1) == 1", "assert f(limit) == 3"], [True, False, True]),
        (["def twice(x):\n    return 2 * x", "assert f(1)", "assert twice(f(2)) == 4"], [True, False, True]),
        (["x = f(2)", "assert f(1)", "assert x == 2"], [True, False, False]),
        (["from math import *", "assert f(1)", "assert isclose(f(2), 2.5)"], [True, False, False]),
    ],
    ids=["value", "function", "asked of the answer", "star"],
)
def test_s1_lines_that_do_not_ask_the_answer_are_run_again(
    bubblewrap: BwrapRunner, lines: list[str], passed: list[bool]
) -> None:
    code = "import os\nlimit = x = 9\ndef twice(x):\n    return 0\ndef isclose(a, b):\n    return True\n"
    code += "def f(n):\n    if n == 1:\n        os._exit(0)\n    return n\n"
    found = score(bubblewrap, code, AssertTests(lines))
    assert [outcome.passed for outcome in found.outcomes] == passed


def test_s1_the_tests_own_function_of_the_entry_points_name_is_not_what_is_checked(bubblewrap: BwrapRunner) -> None:
    test = "def f(x):\n    return x * x\ndef check(candidate):\n    assert candidate(3) == f(3)\n"
    assert score(bubblewrap, "def f(x):\n    return 1\n", HumanEvalTests(test, "f")).score == 0.0
    assert score(bubblewrap, "def f(x):\n    return x * x\n", HumanEvalTests(test, "f")).score == 1.0


OPAQUE = (
    "class Yes:\n    def __getattr__(self, name):\n        return lambda *a, **k: True\n"
    "    def __getitem__(self, key):\n        return self\n    def __len__(self):\n        return 3\n"
    "def f(*a):\n    return Yes()\n"
)


@pytest.mark.parametrize(
    "line",
    [
        "assert f()[1:3] == [1, 2]",
        "assert f()[lambda: 1] == 3",
        "assert f().startswith('a') and f().endswith('b')",
        "assert f('7').isdigit()",
        "assert f().sort(key=lambda x: x) is None",
        "assert f().kind.startswith('a')",
        "assert f()[0].isdigit()",
        "assert f().values[0].isdigit()",
        "r = f(); r.done = True; assert r.done",
    ],
)
def test_s2_s3_an_opaque_object_scores_zero(bubblewrap: BwrapRunner, line: str) -> None:
    report = score(bubblewrap, OPAQUE, AssertTests([line]))
    assert report.score == 0.0


def test_s3_a_class_of_the_entry_points_name_is_not_believed(bubblewrap: BwrapRunner) -> None:
    code = "class Split:\n    def __init__(self, text):\n        pass\n    def isdigit(self):\n        return True\n"
    tests = AssertTests(["assert Split('7').isdigit()"], entry_point="Split")
    assert score(bubblewrap, code, tests).score == 0.0


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("import datetime\n    return datetime.date(2020, 2, 29)", "assert f().isoformat() == '2020-02-29'"),
        ("import datetime as d\n    return d.datetime(2020, 1, 1, tzinfo=d.timezone.utc)", "assert f().utcoffset() is not None"),
        ("import datetime as d\n    return d.timedelta(hours=2)", "assert f().total_seconds() == 7200"),
        ("from decimal import Decimal\n    return Decimal('1.50')", "from decimal import Decimal as D; assert f() == D('1.5')"),
        ("from fractions import Fraction\n    return Fraction(2, 4)", "assert (f().numerator, f() * 2) == (1, 1)"),
        ("from collections import deque\n    return deque([1, 2])", "assert f().pop() == 2 and list(f()) == [1, 2]"),
        ("return range(5)", "assert f() == range(5) and f()[1:3] == range(1, 3)"),
        ("class Name(str):\n        def isupper(self): return True\n    return Name('a')", "assert not f().isupper()"),
    ],
)  # fmt: skip
def test_s3_methods_run_on_data_built_on_the_tests_side(bubblewrap: BwrapRunner, body: str, line: str) -> None:
    assert reasons(bubblewrap, f"def f():\n    {body}\n", line) == ["passed"]


def test_what_an_object_holds_is_read_as_data(bubblewrap: BwrapRunner) -> None:
    code = (
        "class Node:\n    def __init__(self, value, left=None):\n        self.value, self.left = value, left\n"
        "    def size(self):\n        return 2\ndef build(a, b):\n    return Node(a, Node(b))\n"
        "def adder(n):\n    return lambda x: x + n\ndef chain():\n    return {'f': adder(1)}\n"
    )
    lines = ["assert build(1, 2).left.value == 2", "assert adder(1)(2) == 3", "assert chain()['f'](1) == 2"]
    assert reasons(bubblewrap, code, *lines, "assert build(1, 2).size() == 2") == ["passed"] * 3 + ["error: TypeError"]


def test_classes_that_the_tests_construct_keep_their_methods(bubblewrap: BwrapRunner) -> None:
    code = (
        "class Stack:\n    def __init__(self):\n        self.items = []\n"
        "    def push(self, x):\n        self.items.append(x)\n        return self\n    def pop(self):\n        return self.items.pop()\n"
        "class cache(Stack):\n    pass\n"
    )
    lines = [
        "s = Stack(); s.push(1).push(2); assert (s.pop(), s.items) == (2, [1])",
        "s = cache(); s.push(1); assert s.pop() == 1",
    ]
    assert reasons(bubblewrap, code, *lines) == ["passed", "error: TypeError"]
    named = AssertTests(lines, prompt="class cache:\n    '''A stack.'''\n")
    assert score(bubblewrap, code, named).score == 1.0
