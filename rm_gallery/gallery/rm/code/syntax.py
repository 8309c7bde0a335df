"""Does the Python code of an answer compile?"""

from __future__ import annotations

from typing import Any, ClassVar

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.reward.example import Example, sample_of
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.schema import RewardResult
from rm_gallery.gallery.rm.code.blocks import parse, required_blocks
from rm_gallery.gallery.rm.rule import RuleReward, one_score


@RewardRegistry.register("code_syntax_check")
class SyntaxCheckReward(RuleReward):
    """Share of the answer's Python blocks that compile: valid blocks / all blocks.

    Nothing is executed. Blocks are fenced and marked python; without such a mark, blocks without a language are taken.
    The syntax is that of the running interpreter. Range [0, 1], higher is better; unscored (`no_code`) without a block.
    """

    score_range: ClassVar[tuple[float | None, float | None]] = (0.0, 1.0)
    cpu_bound: ClassVar[bool] = True

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
            f"block {number}, {found}"
            for number, found in enumerate(map(parse, blocks), start=1)
            if isinstance(found, str)
        ]
        reason = "; ".join(problems[:5]) or f"{len(blocks)} of {len(blocks)} blocks compile."
        return one_score(self.name, 1 - len(problems) / len(blocks), reason)
