"""Which parts of an answer are Python code."""

from __future__ import annotations

import ast
import textwrap

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.text.blocks import compile_problem, parse_python, split_fences
from rm_gallery.core.utils.errors import Unscored
from rm_gallery.gallery.rm.rule import answer_text

_PYTHON = frozenset({"python", "py", "python3", "py3", "{python}", "{.python}"})


def python_blocks(text: str) -> list[str]:
    """Bodies of the fenced blocks marked as Python; when none is marked so, of those without a language."""
    blocks, _ = split_fences(text)
    marked = [b.body for b in blocks if b.language.split(" ")[0] in _PYTHON]
    found = marked or [b.body for b in blocks if not b.language]
    return [textwrap.dedent(body) for body in found if body.strip()]


def required_blocks(sample: DataSample, reward: str) -> list[str]:
    """The answer's Python blocks; Unscored (`no_code`) when it has none."""
    blocks = python_blocks(answer_text(sample))
    if not blocks:
        raise Unscored(f"{reward}: the answer has no fenced Python block.", reason="no_code")
    return blocks


def parse(code: str) -> ast.AST | str:
    """The code's syntax tree, or one sentence on why it does not compile."""
    tree = parse_python(code)
    return tree if isinstance(tree, str) else compile_problem(code) or tree
