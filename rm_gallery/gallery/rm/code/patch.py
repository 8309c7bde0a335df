"""How near is a patch to the reference patch?"""

from __future__ import annotations

import re
from typing import Any, ClassVar

from rapidfuzz.distance import Indel

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.reward.example import Example, sample_of
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.schema import RewardResult
from rm_gallery.core.text.blocks import split_fences
from rm_gallery.gallery.rm.rule import RuleReward, answer_text, one_score, references_of

_HUNK = re.compile(r"@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@")
_NOISE = ("index ", "similarity index ", "diff --git ", "new file mode ", "old mode ", "new mode ", "\\ No newline")
_PATCH_LANGUAGES = frozenset({"diff", "patch", "udiff"})


@RewardRegistry.register("code_patch_similarity")
class PatchSimilarityReward(RuleReward):
    """Similarity of the answer's patch to the reference patch: 2 x LCS / (characters of both).

    LCS is the length of the longest common subsequence of characters.
    The patch is the last block fenced as diff or patch, else the last fenced block, else the whole answer. Line numbers
    of hunks, git's index and mode lines, white space at line ends and Windows line ends do not count. Range [0, 1],
    higher is better; the best of several references counts; unscored without a reference.

    Source: the similarity reward of SWE-RL (arXiv 2502.18449), with the longest common subsequence in place of
    difflib's matching blocks, whose size it bounds from above and which takes minutes on long texts.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reference"})

    name: str = "code_patch_similarity"

    example = Example(
        sample_of(
            "Mend the off-by-one error in the loop.",
            "-for i in range(n):\n+for i in range(n + 1):",
            "-for i in range(n):\n+for i in range(1, n):",
            reference="@@ -3 +3 @@\n-for i in range(n):\n+for i in range(n + 1):",
        )
    )

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        """Compare with each reference."""
        answer = answer_text(sample)
        score = max(patch_similarity(answer, reference) for reference in references_of(sample, self.name))
        return one_score(self.name, score)


def patch_similarity(answer: str, reference: str) -> float:
    """Similarity in [0, 1] of the patches two texts hold; 0 when one holds none."""
    given, wanted = (_normal(patch_of(text)) for text in (answer, reference))
    return float(Indel.normalized_similarity(given, wanted)) if given and wanted else 0.0


def patch_of(text: str) -> str:
    """The patch in a text: its last diff block, else its last fenced block, else all of it."""
    blocks, _ = split_fences(text)
    marked = [block.body for block in blocks if block.language in _PATCH_LANGUAGES]
    return (marked or [block.body for block in blocks] or [text])[-1]


def _normal(patch: str) -> str:
    lines = (line.rstrip() for line in patch.split("\n"))
    kept = (_HUNK.sub("@@", line) for line in lines if not line.startswith(_NOISE))
    return "\n".join(kept).strip("\n")
