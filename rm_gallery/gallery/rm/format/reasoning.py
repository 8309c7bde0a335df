"""The format `<think>…</think><answer>…</answer>`."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.reward.example import Example, sample_of
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.schema import RewardResult
from rm_gallery.gallery.rm.format.tags import tag_name, the_section
from rm_gallery.gallery.rm.rule import RuleReward, answer_text, one_score

TagName = Annotated[str, AfterValidator(tag_name)]


@RewardRegistry.register("reasoning_format")
class ReasoningFormatReward(RuleReward):
    """1 when the answer is one thought followed by one answer, `<think>…</think><answer>…</answer>`, else 0.

    Each tag occurs exactly once and in this order, both sections have text in them (`allow_empty` lifts that for the
    thought) and nothing but white space stands outside (`allow_outside` lifts that). `prefilled` is for prompts that
    already end in the opening think tag. Range [0, 1], higher is better. Source: the format reward of DeepSeek-R1
    (arXiv 2501.12948, section 2.2.2).
    """

    name: str = "reasoning_format"
    think_token: TagName = "think"
    """Name of the thought's tag."""
    answer_token: TagName = "answer"
    """Name of the answer's tag."""
    allow_outside: bool = False
    allow_empty: bool = False
    prefilled: bool = False

    example = Example(
        sample_of("What is six times seven?", "<think>6 · 7 = 42</think><answer>42</answer>", "<think>6 · 7 = 42</think>42")
    )

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        """Look for the two sections."""
        text = answer_text(sample)
        problem = self.problem(f"<{self.think_token}>{text}" if self.prefilled else text)
        return one_score(self.name, 0.0 if problem else 1.0, problem or "The format is right.")

    def problem(self, text: str) -> str | None:
        """What is wrong with a text's format; None when it is right."""
        thought, answer = the_section(text, self.think_token), the_section(text, self.answer_token)
        if isinstance(thought, str):
            return thought
        if isinstance(answer, str):
            return answer
        if answer.start < thought.end:
            return f"<{self.answer_token}> does not come after </{self.think_token}>."
        if not self.allow_empty and not thought.content.strip():
            return "The thought is empty."
        if not answer.content.strip():
            return "The answer is empty."
        outside = text[: thought.start] + text[thought.end : answer.start] + text[answer.end :]
        if not self.allow_outside and outside.strip():
            return "There is text outside the two sections."
        return None
