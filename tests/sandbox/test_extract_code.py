"""Which part of an answer is its code."""

from __future__ import annotations

import pytest

from rm_gallery.core.sandbox.code_tests import extract_code

TABLE = [
    ("bare code", "x = 1\n", "x = 1\n"),
    ("empty", "", ""),
    ("one block", "Here:\n```python\nx = 1\n```\nDone.", "x = 1\n"),
    ("no language", "```\nx = 1\n```", "x = 1\n"),
    ("tildes", "~~~py\nx = 1\n~~~", "x = 1\n"),
    ("last block wins", "```\nx = 1\n```\nbetter:\n```python\nx = 2\n```", "x = 2\n"),
    ("an empty last block does not", "```\nx = 1\n```\n```\n\n```", "x = 1\n"),
    ("never closed", "```python\nx = 1\ny = 2", "x = 1\ny = 2\n"),
    ("only the closing fence", "x = 1\n```", "x = 1"),
    ("Windows line ends", "```python\r\nx = 1\r\ny = 2\r\n```\r\n", "x = 1\ny = 2\n"),
    ("longer fence holds a shorter one", "````\nx = '''\n```\n'''\n````", "x = '''\n```\n'''\n"),
    ("tildes hold backticks", "~~~\n```\nx\n```\n~~~", "```\nx\n```\n"),
    ("indented in a list", "1. code\n   ```python\n   def f():\n       return 1\n   ```", "def f():\n    return 1\n"),
    ("a body keeps its indentation", "```\n    return 1\n```", "    return 1\n"),
    ("inline code is no block", "Use ```x``` here", "Use ```x``` here"),
    ("two backticks are no fence", "``\nx\n``", "``\nx\n``"),
    ("a fence in a string line", "```\nx = '```'\n```", "x = '```'\n"),
    ("language with options", "```python title=a.py\nx = 1\n```", "x = 1\n"),
    ("Chinese around", "代码：\n```python\n名 = 1\n```\n完", "名 = 1\n"),
]


@pytest.mark.parametrize(("text", "code"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_extract_code(text: str, code: str) -> None:
    assert extract_code(text) == code


def test_a_long_answer_of_fences_takes_linear_time() -> None:
    text = "```\nx\n```\n" * 50_000 + "`" * 200_000
    assert extract_code(text) == "x\n"
