"""Is the answer in the language that was asked for?"""

from __future__ import annotations

import re
from typing import Any

from pydantic import Field, field_validator

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.reward.example import Example, sample_of
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.schema import RewardResult
from rm_gallery.core.text.blocks import prose_of
from rm_gallery.core.text.language import UNKNOWN, known_language, language_shares
from rm_gallery.core.text.reasoning import split_reasoning
from rm_gallery.core.utils.errors import ConfigError, Unscored
from rm_gallery.gallery.rm.rule import RuleReward, answer_text, known, one_score, shown

_NOT_PROSE = re.compile(
    r"https?://\S+|(?<!\S)\S{1,64}@\S+|\$\$.{1,2000}?\$\$|\\\[(?:(?!\\\[).){1,2000}?\\\]|\\\((?:(?!\\\().){1,500}?\\\)|\\[A-Za-z]+",
    re.DOTALL,
)

_SHOWN = 3


@RewardRegistry.register("language_match")
class LanguageMatchReward(RuleReward):
    """Share of the answer's words that are in the wanted language; with `min_share` 1 from that share on, else 0.

    The language is the field `language`, else `language` in answer.label or metadata (ISO 639-1: "en", "zh", also
    "zh-CN"), else that of the last user turn. Scripts tell languages apart, and common words those that share one: all
    Latin words of a text count for one language, so a few foreign names cost little. A text too short to tell counts
    for every language it may be in. Code, formulas, addresses and a thought are left out (`include_thought` takes it
    in). Range [0, 1], higher is better; unscored when the answer has no words (`no_words`) or the wanted language is
    unknown (`no_language`).
    """

    name: str = "language_match"
    language: str | None = None
    min_share: float | None = Field(default=None, gt=0, le=1)
    include_thought: bool = False

    example = Example(sample_of("今天天气怎么样？", "今天晴，最高气温二十五度。", "It is sunny today."), params={})

    @field_validator("language")
    @classmethod
    def _known(cls, value: str | None) -> str | None:
        if value is None:
            return None
        code = known_language(value)
        if code is None:
            raise ConfigError("this language cannot be told; give an ISO 639-1 code such as 'en' or 'zh'.")
        return code

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        """Compare the languages."""
        wanted = self._wanted(sample)
        text = answer_text(sample)
        found = language_shares(prose(text if self.include_thought else split_reasoning(text).final))
        if not found.words:
            raise Unscored(f"{self.name}: the answer has no words.", reason="no_words", cause="answer")
        share = max(found.shares.get(language, 0.0) for language in wanted)
        score = share if self.min_share is None else float(share >= self.min_share)
        names = " or ".join(sorted(wanted))
        most = ", ".join(f"{name} {part:.0%}" for name, part in list(found.shares.items())[:_SHOWN])
        reason = f"Wanted {names}; found {most}{', …' if len(found.shares) > _SHOWN else ''}."
        return one_score(self.name, score, reason, {"language": names, "shares": found.shares})

    def _wanted(self, sample: DataSample) -> frozenset[str]:
        if self.language is not None:
            return frozenset({self.language})
        given = known(sample, "language")
        if given is not None:
            code = known_language(given) if isinstance(given, str) else None
            if code is None:
                raise Unscored(f"{self.name} knows no language {shown(given)}.", reason="no_language")
            return frozenset({code})
        asked = language_shares(prose(sample.query_text())).main - {UNKNOWN}
        if not asked:
            raise Unscored(
                f"{self.name} cannot tell the wanted language from the prompt: set language, or metadata['language'].",
                reason="no_language",
            )
        return asked


def prose(text: str) -> str:
    """A text without code, formulas and addresses."""
    return _NOT_PROSE.sub(" ", prose_of(text))
