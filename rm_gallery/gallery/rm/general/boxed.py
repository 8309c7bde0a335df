r"""Exact match of the answer in `\boxed{}`."""

from __future__ import annotations

import re
from typing import Any, ClassVar

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.reward.example import Example, sample_of
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.schema import RewardResult
from rm_gallery.core.text.answer import last_boxed
from rm_gallery.core.text.reasoning import split_reasoning
from rm_gallery.gallery.rm.rule import RuleReward, answer_text, one_score, references_of, shown

_SPACES = re.compile(r"\\[,!:; ]|\\q?quad\b|~|\s+")
_SIZES = re.compile(r"\\(?:left|right|displaystyle)(?![A-Za-z])")
_FRACTIONS = re.compile(r"\\[dt]frac(?![A-Za-z])")
_SHORT_FRACTION = re.compile(r"\\frac(\d)(\d)(?!\d)")
_TEXT = re.compile(r"\\(?:text|mathrm|textbf|mathbf|mbox)\{([^{}]*)\}")


@RewardRegistry.register("boxed_answer")
class BoxedAnswerReward(RuleReward):
    r"""1 when the last `\boxed{}` of the answer equals the reference, else 0; braces may be nested.

    Compared is the text, not its value: 1/2 is not 0.5 (see math_verify_reward). With `normalize` signs of typesetting
    do not count: spaces, dollar signs, \left and \right, \dfrac for \frac, \text{} around words, a full stop at the
    end. A reference may be boxed itself. Range [0, 1], higher is better; without a box 0; unscored without a reference.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reference"})

    name: str = "boxed_answer"
    normalize: bool = True

    example = Example(sample_of("Solve 2x = 1.", "So $x = \\boxed{\\dfrac{1}{2}}$.", "So x = 1/2.", reference="\\frac12"))

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        """Take the last box and compare."""
        references = references_of(sample, self.name)
        given = last_boxed(split_reasoning(answer_text(sample)).final)
        if given is None:
            return one_score(self.name, 0.0, r"The answer holds no \boxed{}.")
        hit = any(self._same(given, reference) for reference in references)
        return one_score(self.name, float(hit), f"The box holds {shown(given)}.")

    def _same(self, given: str, reference: str) -> bool:
        box = last_boxed(reference)
        wanted = reference.replace("\r\n", "\n").strip() if box is None else box
        return plain_latex(given) == plain_latex(wanted) if self.normalize else given.strip() == wanted.strip()


def plain_latex(text: str) -> str:
    """A LaTeX answer without what only typesetting needs."""
    text = _TEXT.sub(r"\1", text)
    text = _SIZES.sub("", text.replace(r"\$", "").replace("$", ""))
    text = _FRACTIONS.sub(r"\\frac", text)
    text = _SHORT_FRACTION.sub(r"\\frac{\1}{\2}", text)
    return _SPACES.sub("", text).rstrip(".")
