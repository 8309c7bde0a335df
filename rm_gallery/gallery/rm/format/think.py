"""The format `<think>…</think>` followed by the answer."""

from __future__ import annotations

import re
from typing import Any

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.reward.example import Example, sample_of
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.schema import RewardResult
from rm_gallery.gallery.rm.format.tags import the_section
from rm_gallery.gallery.rm.rule import RuleReward, answer_text, one_score

_LENIENT = re.compile(r"<think>(?!.*<think>)(.*?)</think>.*", re.DOTALL)


@RewardRegistry.register("think_format")
class ThinkFormatReward(RuleReward):
    """1 when the text starts with one thought, `<think>…</think>`, and an answer follows, else 0.

    Strict: each tag occurs exactly once, the thought begins the text, and neither the thought nor what follows is
    blank. With `strict=False` the rule is that of TRL's `think_format_reward`, which also takes an empty thought, a
    second `</think>` and no answer. `prefilled` is for prompts that already end in `<think>`. Range [0, 1], higher is
    better. Source: the format of DeepSeek-R1 (arXiv 2501.12948).
    """

    name: str = "think_format"
    strict: bool = True
    prefilled: bool = False

    example = Example(sample_of("What is six times seven?", "<think>6 · 7 = 42</think>42", "42", "<think>6 · 7 = 42</think>"))

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        """Look for the thought."""
        text = answer_text(sample)
        problem = think_problem(f"<think>{text}" if self.prefilled else text, self.strict)
        return one_score(self.name, 0.0 if problem else 1.0, problem or "The format is right.")


def think_problem(text: str, strict: bool = True) -> str | None:
    """What is wrong with a text's thought; None when nothing is."""
    if not strict:
        return None if _LENIENT.match(text) else "The text does not start with one <think>…</think>."
    thought = the_section(text, "think")
    if isinstance(thought, str):
        return thought
    if thought.start:
        return "There is text before <think>."
    if not thought.content.strip():
        return "The thought is empty."
    if not text[thought.end :].strip():
        return "No answer follows the thought."
    return None
