"""Does the answer match a regular expression?"""

from __future__ import annotations

import re
from typing import Any, ClassVar, Literal

from pydantic import field_validator

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.reward.example import Example, sample_of
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.schema import RewardResult
from rm_gallery.core.utils.errors import ConfigError, Unscored
from rm_gallery.gallery.rm.rule import KillableRule, answer_text, known, one_score, shown

Mode = Literal["search", "match", "fullmatch"]


@RewardRegistry.register("regex_match")
class RegexMatchReward(KillableRule):
    """1 when the answer matches the pattern, else 0; with `negate` the other way round.

    The pattern is the field `pattern`, else `pattern` in answer.label or metadata; Python's syntax. `mode` says where:
    anywhere (search), at the start (match), or as a whole (fullmatch, white space at both ends left out). Patterns that
    take for ever are stopped at the reward's deadline. Range [0, 1], higher is better; unscored without a pattern
    (`no_pattern`) or with a broken one in the sample (`invalid_pattern`).
    """

    needs: ClassVar[frozenset[str]] = frozenset({"pattern"})

    name: str = "regex_match"
    pattern: str | None = None
    mode: Mode = "search"
    ignore_case: bool = False
    """Python's re.IGNORECASE."""
    multiline: bool = False
    """Python's re.MULTILINE."""
    dotall: bool = False
    """Python's re.DOTALL."""
    negate: bool = False

    example = Example(
        sample_of(
            "When was the treaty signed? Use the form 2000-12-31.",
            "Signed on 1648-10-24.",
            "In October 1648.",
            pattern=r"\b\d{4}-\d{2}-\d{2}\b",
        ),
        inputs={"pattern": "the field `pattern`, else `pattern` in `answer.label` or `metadata`"},
    )

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, value: str | None) -> str | None:
        if value is not None:
            try:
                re.compile(value)
            except (re.error, OverflowError, RecursionError) as error:
                raise ConfigError(f"it is no regular expression: {error}") from None
        return value

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        """Try the pattern."""
        text = answer_text(sample)
        found = getattr(self._compiled(sample), self.mode)(text.strip() if self.mode == "fullmatch" else text)
        reason = "The pattern does not match." if found is None else f"The pattern matches {shown(found.group())}."
        return one_score(self.name, float((found is not None) != self.negate), reason)

    def _compiled(self, sample: DataSample) -> re.Pattern[str]:
        pattern = self.pattern if self.pattern is not None else known(sample, "pattern")
        if not isinstance(pattern, str):
            raise Unscored(f"{self.name} needs a pattern: set the field pattern or metadata['pattern'].", reason="no_pattern")
        flags = (re.IGNORECASE * self.ignore_case) | (re.MULTILINE * self.multiline) | (re.DOTALL * self.dotall)
        try:
            return re.compile(pattern, flags)
        except (re.error, OverflowError, RecursionError) as error:
            raise Unscored(f"{self.name}: {shown(pattern)}: {error}", reason="invalid_pattern") from None
