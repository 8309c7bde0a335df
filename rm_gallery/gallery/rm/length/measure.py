"""How long is an answer: in characters, words or tokens?"""

from __future__ import annotations

from collections.abc import Sized
from typing import Any, Literal

from pydantic import Field

from rm_gallery.core.data.schema import Step
from rm_gallery.core.text.tokens import words
from rm_gallery.core.utils.errors import Unscored
from rm_gallery.gallery.rm.rule import RuleReward, TokenizerSetting, tokens_of

LengthUnit = Literal["chars", "words", "tokens"]

_ID_KEYS = ("completion_ids", "token_ids", "response_ids")
_COUNT_KEYS = ("completion_tokens", "output_tokens", "num_tokens")


class MeasuredReward(RuleReward):
    """Base of rewards that look at an answer's length."""

    unit: LengthUnit = "chars"
    """chars, words (each Chinese character is one), or tokens."""
    tokenizer: TokenizerSetting = Field(default=None, repr=False)
    """Counts tokens. Without one the counts recorded with the answer are taken: `completion_ids` or `completion_tokens`
    in its additional_kwargs, or in `usage` there."""

    def length_of(self, answer: Step) -> int:
        """Length of an answer in the reward's unit; Unscored (`no_token_count`) when tokens cannot be counted."""
        if self.unit == "chars":
            return len(answer.text)
        if self.unit == "words":
            return len(words(answer.text))
        if self.tokenizer is not None:
            return len(tokens_of(self.tokenizer, answer.text))
        count = recorded_tokens(answer)
        if count is None:
            raise Unscored(
                f"{self.name} counts tokens, but it has no tokenizer, and the answer's additional_kwargs hold neither "
                "completion_ids nor completion_tokens.",
                reason="no_token_count",
            )
        return count


def recorded_tokens(answer: Step) -> int | None:
    """Number of tokens recorded with an answer, None when there is no record."""
    extra: dict[str, Any] = answer.additional_kwargs
    usage = extra.get("usage")
    for source in (extra, usage if isinstance(usage, dict) else {}):
        for key in _ID_KEYS:
            if isinstance(source.get(key), Sized) and not isinstance(source[key], str):
                return len(source[key])
        for key in _COUNT_KEYS:
            if isinstance(source.get(key), int):
                return int(source[key])
    return None
