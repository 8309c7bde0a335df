"""Does the answer to a multiple-choice question pick the right letter?"""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import field_validator

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.reward.example import Example, sample_of
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.schema import RewardResult
from rm_gallery.core.text.letters import LETTERS, choice_letter
from rm_gallery.core.utils.errors import ConfigError, Unscored
from rm_gallery.gallery.rm.rule import RuleReward, answer_text, known, one_score, references_of, shown


@RewardRegistry.register("multiple_choice_letter")
class MultipleChoiceLetterReward(RuleReward):
    r"""1 when the answer picks the reference's letter, else 0; an answer that picks none, or two, gets 0.

    The first rule that finds one reads the letter: the final statement (an `<answer>` tag, a JSON answer, a box, "the answer
    is B" in eight languages, "I'd go with B", "so B", 选B); a last line that is a letter; the whole answer; a letter it begins
    with ("B. Paris", "B, because"); then, where all finds agree: "B is correct"; lines that start with a letter; letters in
    brackets. What is denied ("not A", "A is wrong"), supposed or taken back is no pick. The article "A" and the pronoun "I"
    are words: "A cat", "The answer is a cat", "I think". A thought is left out, full-width letters count.

    The reference is a letter ("B", "(B)", "B. Paris"), or the text of one of `choices` in answer.label or metadata.
    Range [0, 1], higher is better; unscored without such a reference.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reference"})

    name: str = "multiple_choice_letter"
    letters: str = LETTERS
    """The letters there are; only the first ones when `choices` holds fewer."""

    example = Example(
        sample_of(
            "Which planet is the largest? (A) Mars (B) Jupiter (C) Venus",
            "Jupiter has more than twice the mass of all others. The answer is (B).",
            "It could be A or B.",
            reference="B",
        )
    )

    @field_validator("letters")
    @classmethod
    def _are_letters(cls, value: str) -> str:
        if not value.isascii() or not value.isalpha() or len(set(value.upper())) != len(value):
            raise ConfigError("it holds each letter once, such as 'ABCD'.")
        return value.upper()

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        """Read the letter and compare."""
        choices = known(sample, "choices")
        choices = [str(choice).strip() for choice in choices] if isinstance(choices, list | tuple) else []
        letters = self.letters[: len(choices)] if choices else self.letters
        wanted = {self._wanted(text.strip(), letters, choices) for text in references_of(sample, self.name)}
        given = choice_letter(answer_text(sample), letters)
        reason = "The answer picks no letter." if given is None else f"The answer picks {given}."
        return one_score(self.name, float(given in wanted), reason, {"letter": given} if given else None)

    def _wanted(self, reference: str, letters: str, choices: list[str]) -> str:
        if reference in choices[: len(letters)]:
            return letters[choices.index(reference)]
        found = choice_letter(reference, letters)
        if found is None:
            raise Unscored(
                f"{self.name}: the reference {shown(reference)} is none of the letters {letters}.",
                reason="no_reference",
            )
        return found
