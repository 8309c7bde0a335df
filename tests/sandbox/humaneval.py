"""HumanEval problems as code tests, and a dozen problems of the same form that were written for this project."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from rm_gallery.core.sandbox.code_tests import HumanEvalTests
from tests.support.shared_data import shared_file


@dataclass(frozen=True)
class Problem:
    name: str
    solution: str
    tests: HumanEvalTests
    broken: str = ""
    """A solution that looks right and is not."""


def problems() -> list[Problem]:
    """All 164 problems; skips the test where the file is absent."""
    table = pd.read_parquet(shared_file("humaneval.parquet"))
    return [
        Problem(
            row["task_id"], row["canonical_solution"], HumanEvalTests(row["test"], row["entry_point"], row["prompt"])
        )
        for row in table.to_dict("records")
    ]


# name -> (signature with what stands before it, docstring, body, body that fails, cases as argument texts and results)
_OWN: dict[str, tuple[str, str, str, str, list[tuple[str, str]]]] = {
    "digits": (
        "def digits(n: int) -> list:",
        "The decimal digits of n >= 0, first to last.",
        "return [int(c) for c in str(n)]",
        "return [n % 10] + digits(n // 10) if n else []",
        [("0", "[0]"), ("7", "[7]"), ("1203", "[1, 2, 0, 3]")],
    ),
    "mean": (
        "from typing import List\n\n\ndef mean(xs: List[float]) -> float:",
        "The arithmetic mean of a list that is not empty.",
        "return sum(xs) / len(xs)",
        "return sum(xs) // len(xs)",
        [("[1]", "1"), ("[1, 2]", "1.5"), ("[-3.5, 3.5, 6]", "2")],
    ),
    "runs": (
        "from itertools import groupby\n\n\ndef runs(text: str) -> list:",
        "Each run of equal characters with its length.",
        "return [(c, len(list(same))) for c, same in groupby(text)]",
        "return [(c, text.count(c)) for c, same in groupby(text)]",
        [("''", "[]"), ("'aabca'", "[('a', 2), ('b', 1), ('c', 1), ('a', 1)]")],
    ),
    "celsius": (
        "def half(x):\n    return x / 2\n\n\ndef celsius(f: float) -> float:",
        "Degrees Celsius of degrees Fahrenheit.",
        "return half((f - 32) * 10) / 9",
        "return half(f - 32 * 10) / 9",
        [("212", "100"), ("32", "0"), ("-40", "-40")],
    ),
    "is_leap": (
        "def is_leap(year: int) -> bool:",
        "Whether a year of the Gregorian calendar is a leap year.",
        "return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)",
        "return year % 4 == 0 and year % 100 != 0",
        [("2024", "True"), ("1900", "False"), ("2000", "True"), ("2023", "False")],
    ),
    "words": (
        "import re\n\n\ndef words(text: str) -> dict:",
        "How often each word occurs, case aside.",
        "found = {}\nfor word in re.findall(r'\\w+', text.lower()):\n    found[word] = found.get(word, 0) + 1\nreturn found",
        "found = {}\nfor word in text.lower().split():\n    found[word] = found.get(word, 0) + 1\nreturn found",
        [("''", "{}"), ("'A b, a!'", "{'a': 2, 'b': 1}")],
    ),
    "median": (
        "def median(xs: list) -> float:",
        "The median of a list that is not empty; the list stays as it is.",
        "ys = sorted(xs)\nmiddle = len(ys) // 2\nreturn ys[middle] if len(ys) % 2 else (ys[middle - 1] + ys[middle]) / 2",
        "ys = sorted(xs)\nreturn ys[len(ys) // 2]",
        [("[3]", "3"), ("[3, 1, 2]", "2"), ("[4, 1, 2, 3]", "2.5")],
    ),
    "primes": (
        "def primes(n: int) -> list:",
        "The prime numbers below n.",
        "return [p for p in range(2, n) if all(p % d for d in range(2, p))]",
        "return [p for p in range(2, n) if all(p % d for d in (2, 3, 5) if d < p)]",
        [("2", "[]"), ("12", "[2, 3, 5, 7, 11]"), ("50", "[2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47]")],
    ),
    "transpose": (
        "def transpose(rows: list) -> list:",
        "Rows and columns of a rectangular table exchanged.",
        "return [list(column) for column in zip(*rows)]",
        "return [[row[i] for row in rows] for i in range(len(rows))]",
        [("[]", "[]"), ("[[1, 2, 3], [4, 5, 6]]", "[[1, 4], [2, 5], [3, 6]]")],
    ),
    "balanced": (
        "def balanced(text: str) -> bool:",
        "Whether round brackets open and close in order.",
        "depth = 0\nfor c in text:\n    depth += (c == '(') - (c == ')')\n    if depth < 0:\n        return False\nreturn depth == 0",
        "return text.count('(') == text.count(')')",
        [("'(()())'", "True"), ("')('", "False"), ("'(('", "False"), ("''", "True")],
    ),
    "hanzi": (
        "def hanzi(text: str) -> int:",
        "统计文本中的汉字数量。",
        "return sum('\\u4e00' <= c <= '\\u9fff' for c in text)",
        "return sum(c > '\\x7f' for c in text)",
        [("'三个汉字。'", "4"), ("'é, abc'", "0")],
    ),
    "collatz": (
        "def collatz(n: int) -> int:",
        "Steps from n >= 1 to 1: half of an even number, 3n + 1 of an odd one.",
        "steps = 0\nwhile n != 1:\n    n = 3 * n + 1 if n % 2 else n // 2\n    steps += 1\nreturn steps",
        "return 0 if n <= 2 else 1 + collatz(3 * n + 1 if n % 2 else n // 2)",
        [("1", "0"), ("2", "1"), ("7", "16"), ("27", "111")],
    ),
}


def own_problems() -> list[Problem]:
    """The problems written for this project; no file is needed."""
    found = []
    for name, (head, doc, solution, broken, cases) in _OWN.items():
        checks = "".join(f"    assert candidate({given}) == {wanted}\n" for given, wanted in cases)
        tests = HumanEvalTests(f"def check(candidate):\n{checks}", name, f'{head}\n    """{doc}"""\n')
        found.append(Problem(name, _indented(solution), tests, _indented(broken)))
    return found


def _indented(body: str) -> str:
    return "".join(f"    {line}\n" for line in body.split("\n"))
