"""Which parts of an answer are Python code, and does it compile?"""

from __future__ import annotations

import ast
import textwrap
from typing import Any

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.reward.example import Example, sample_of
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.schema import RewardResult
from rm_gallery.core.text.blocks import compile_problem, parse_python, split_fences
from rm_gallery.core.utils.errors import Unscored
from rm_gallery.gallery.rm.rule import KillableRule, answer_text, one_score


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
        """Compile each block."""
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
