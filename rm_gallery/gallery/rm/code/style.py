"""The Python code of an answer as text: does it compile, and how is it indented and named?"""

from __future__ import annotations

import ast
import textwrap
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.schema import Example, RewardResult, sample_of
from rm_gallery.core.text.blocks import compile_problem, parse_python, split_fences
from rm_gallery.core.utils.errors import Unscored
from rm_gallery.gallery.rm.rule import KillableRule, answer_text, one_score, shown


@RewardRegistry.register("code_syntax_check")
class SyntaxCheckReward(KillableRule):
    """Share of the answer's Python blocks that compile: valid blocks / all blocks.

    Nothing is executed. Blocks are fenced and marked python; without such a mark, blocks without a language are taken.
    The syntax is that of the running interpreter. Range [0, 1], higher is better; unscored (`no_code`) without a block.
    """

    name: str = "code_syntax_check"

    example = Example(
        sample_of(
            "Write a Python function that doubles a number.",
            "~~~python\ndef double(x):\n    return 2 * x\n~~~",
            "~~~python\ndef double(x):\n    return 2 *\n~~~",
        )
    )

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        blocks = required_blocks(sample, self.name)
        problems = [
            f"block {number}, {found}" for number, found in enumerate(map(parse, blocks), start=1) if isinstance(found, str)
        ]
        reason = "; ".join(problems[:5]) or f"{len(blocks)} of {len(blocks)} blocks compile."
        return one_score(self.name, 1 - len(problems) / len(blocks), reason)


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
        raise Unscored(f"{reward}: the answer has no fenced Python block.", reason="no_code", cause="answer")
    return blocks


def parse(code: str) -> ast.AST | str:
    """The code's syntax tree, or one sentence on why it does not compile."""
    tree = parse_python(code)
    return tree if isinstance(tree, str) else compile_problem(code) or tree


class Style(NamedTuple):
    """What was looked at in one or more blocks."""

    indents: Counter[str]
    """How often each unit of indentation is used."""
    good: list[str]
    bad: list[str]
    """Names that follow PEP 8, and those that do not."""


@RewardRegistry.register("code_style")
class CodeStyleReward(KillableRule):
    """0.5 x share of indented blocks using the code's most common indentation + 0.5 x share of names following PEP 8.

    Names are those the code itself gives, from its syntax tree: functions, arguments and variables in snake_case
    (variables also in UPPER_CASE, module variables also in CapWords, as types are named), classes in CapWords. A part
    with nothing to look at counts 1. Range [0, 1], higher is better; unscored without a fenced Python block (`no_code`)
    or when none compiles (`syntax_error`); blocks that do not compile are left out. Source: PEP 8.
    """

    name: str = "code_style"

    example = Example(
        sample_of(
            "Write a Python function that doubles a number.",
            "~~~python\ndef double(x):\n    return 2 * x\n~~~",
            "~~~python\ndef doubleIt(X):\n  result = 2 * X\n  return result\n~~~",
        )
    )

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        style = Style(Counter(), [], [])
        problems = []
        blocks = required_blocks(sample, self.name)
        for block in blocks:
            tree = parse(block)
            if isinstance(tree, str):
                problems.append(tree)
            else:
                _look(block, tree, style)
        if len(problems) == len(blocks):
            raise Unscored(f"{self.name}: no block compiles ({problems[0]}).", reason="syntax_error", cause="answer")
        indentation, naming = _shares(style)
        reason = f"Indentation {indentation:.2f}, names {naming:.2f}"
        reason += f" (not PEP 8: {', '.join(shown(name) for name in style.bad[:5])})." if style.bad else "."
        return one_score(self.name, (indentation + naming) / 2, reason, {"indentation": indentation, "naming": naming})


def _shares(style: Style) -> tuple[float, float]:
    indents, names = style.indents.total(), len(style.good) + len(style.bad)
    indentation = style.indents.most_common(1)[0][1] / indents if indents else 1.0
    return indentation, len(style.good) / names if names else 1.0


def _look(code: str, tree: ast.AST, style: Style) -> None:
    style.indents.update(_indents(code.split("\n"), tree))
    for name, fits in _names(tree):
        (style.good if fits else style.bad).append(name)


def _indents(lines: list[str], tree: ast.AST) -> Iterator[str]:
    """White space that each indented block adds to the line that opens it."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.stmt | ast.excepthandler):
            continue
        for field in ("body", "orelse", "finalbody"):
            inner = getattr(node, field, None)
            if not inner or inner[0].lineno == node.lineno or inner[0].lineno > len(lines):
                continue
            outer, own = _margin(lines[node.lineno - 1]), _margin(lines[inner[0].lineno - 1])
            if len(own) > len(outer):  # an elif is a nested if that is not indented
                yield own[len(outer) :] if own.startswith(outer) else own


def _margin(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def _names(tree: ast.AST) -> Iterator[tuple[str, bool]]:
    assigned = (node for node in ast.iter_child_nodes(tree) if isinstance(node, ast.Assign | ast.AnnAssign))
    top = {id(target) for node in assigned for target in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield node.name, _is_cap_words(node.name)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node.name == node.name.lower()
        elif isinstance(node, ast.arg):
            yield node.arg, node.arg == node.arg.lower()
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            fits = node.id in (node.id.lower(), node.id.upper()) or (id(node) in top and _is_cap_words(node.id))
            yield node.id, fits


def _is_cap_words(name: str) -> bool:
    bare = name.strip("_")
    return "_" not in bare and bare[:1] == bare[:1].upper()
