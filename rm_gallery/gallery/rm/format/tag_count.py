"""How many of the tags a format asks for are there?"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.reward.example import Example, sample_of
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.schema import RewardResult
from rm_gallery.gallery.rm.format.tags import tag_name
from rm_gallery.gallery.rm.rule import RuleReward, answer_text, one_score

TagName = Annotated[str, AfterValidator(tag_name)]


@RewardRegistry.register("xml_tag_count")
class XmlTagCountReward(RuleReward):
    """Share of the wanted opening and closing tags that occur exactly once.

    For the default tags think and answer each of the four is worth 0.25, as in open-r1's `tag_count_reward`; with
    `own_lines` they count only in the layout asked for there: a line end after opening tags and around closing ones,
    where the very first and last need none outside. Order is not looked at; see reasoning_format. Range [0, 1], higher
    is better.
    """

    name: str = "xml_tag_count"
    tags: tuple[TagName, ...] = Field(default=("think", "answer"), min_length=1)
    """Names of the wanted tags."""
    own_lines: bool = False

    example = Example(
        sample_of("What is six times seven?", "<think>6 · 7 = 42</think><answer>42</answer>", "<think>6 · 7 = 42</think>42")
    )

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        """Count the tags."""
        text = answer_text(sample)
        wanted = [tag for name in self.tags for tag in (f"<{name}>", f"</{name}>")]
        if self.own_lines:
            text = f"\n{text}\n"
            missing = [tag for tag in wanted if text.count(f"\n{tag}\n") != 1 or text.count(tag) != 1]
        else:
            missing = [tag for tag in wanted if text.count(tag) != 1]
        reason = f"Not exactly once: {', '.join(missing)}." if missing else "Each tag occurs once."
        return one_score(self.name, 1 - len(missing) / len(wanted), reason)
