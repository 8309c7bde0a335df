"""Does the answer keep to instructions a program can verify?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.reward.example import Example, sample_of
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.schema import RewardResult
from rm_gallery.core.text.reasoning import split_reasoning
from rm_gallery.core.utils.errors import Unscored
from rm_gallery.core.utils.models import unknown_name
from rm_gallery.gallery.rm.instruction import checks
from rm_gallery.gallery.rm.instruction.checks import Arguments, plain
from rm_gallery.gallery.rm.rule import RuleReward, answer_text, known, one_score, shown

Check = Callable[[str, Arguments], bool]

INSTRUCTIONS: dict[str, Check] = {
    "keywords:existence": checks.keywords_exist,
    "keywords:frequency": checks.keyword_frequency,
    "keywords:forbidden_words": checks.no_forbidden_words,
    "keywords:letter_frequency": checks.letter_frequency,
    "language:response_language": checks.response_language,
    "length_constraints:number_sentences": checks.number_of_sentences,
    "length_constraints:number_paragraphs": checks.number_of_paragraphs,
    "length_constraints:number_words": checks.number_of_words,
    "length_constraints:nth_paragraph_first_word": checks.nth_paragraph_first_word,
    "detectable_content:number_placeholders": checks.placeholders,
    "detectable_content:postscript": checks.postscript,
    "detectable_format:number_bullet_lists": checks.bullet_points,
    "detectable_format:constrained_response": checks.constrained_response,
    "detectable_format:number_highlighted_sections": checks.highlighted_sections,
    "detectable_format:multiple_sections": checks.multiple_sections,
    "detectable_format:json_format": checks.json_format,
    "detectable_format:title": checks.title,
    "combination:two_responses": checks.two_responses,
    "combination:repeat_prompt": checks.repeats_prompt,
    "startend:end_checker": checks.ends_with,
    "startend:quotation": checks.is_quoted,
    "change_case:capital_word_frequency": checks.capital_words,
    "change_case:english_capital": checks.english_capital,
    "change_case:english_lowercase": checks.english_lowercase,
    "punctuation:no_comma": checks.no_comma,
}


def follows(text: str, instruction_id: str, kwargs: Mapping[str, Any] | None = None, *, loose: bool = False) -> bool:
    """Whether a response follows an instruction; a blank one follows none.

    `loose` also accepts the response without its first line, its last line, both, and each of these without asterisks
    (IFEval's loose accuracy). Raises Unscored (`bad_instruction`) for an unknown id or an argument that cannot be used.
    """
    check = INSTRUCTIONS.get(instruction_id)
    if check is None:
        raise Unscored(unknown_name("instruction type", instruction_id, list(INSTRUCTIONS), ""), reason="bad_instruction")
    arguments = Arguments(instruction_id, kwargs or {})
    # asked even of a blank response: an argument that makes no sense is found whatever the response is
    if check(text, arguments) and text.strip():
        return True
    return loose and any(variant.strip() and check(variant, arguments) for variant in loose_variants(text)[1:])


def loose_variants(text: str) -> list[str]:
    """The response itself first, then its seven loosened forms."""
    lines = text.split("\n")
    cut = [text, *("\n".join(part).strip() for part in (lines[1:], lines[:-1], lines[1:-1]))]
    return cut + [part.replace("*", "") for part in cut]


@RewardRegistry.register("ifeval")
class IfevalReward(RuleReward):
    """Share of the sample's verifiable instructions that the answer follows; with `level="prompt"` 1 for all, else 0.

    Instructions come from answer.label or metadata as in IFEval's data: `instruction_id_list` with one of the 25 published
    ids each, and `kwargs` with one dict of arguments per id. `mode="loose"` also tries the answer without its first or last
    line and without asterisks. A thought in <think> tags is no part of the answer; an empty answer follows nothing.
    Range [0, 1], higher is better. Unscored without instructions (`no_instructions`), and for an unknown id or an argument
    that is missing or makes no sense (`bad_instruction`), never half judged.

    Source: Zhou et al. 2023, "Instruction-Following Evaluation for Large Language Models", arXiv 2311.07911. On purpose
    different from the published program: keywords are plain text, not patterns; sentences are split and languages told
    by rules of our own instead of models to download; a contraction is one capital word; commas of every script count; a
    character of an unspaced script is a word.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"instructions"})

    name: str = "ifeval"
    level: Literal["instruction", "prompt"] = "instruction"
    """Whether the score is the share of instructions followed, or 1 for all and else 0."""
    mode: Literal["strict", "loose"] = "strict"

    example = Example(
        sample_of(
            "Describe the sea in lower case and without commas.",
            "the sea is wide and never quite still",
            "The sea is wide and never quite still",
            "The sea, it is wide.",
            instruction_id_list=["change_case:english_lowercase", "punctuation:no_comma"],
            kwargs=[{}, {}],
        )
    )

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        """Check one instruction after the other."""
        instructions = self._instructions(sample)
        text = split_reasoning(answer_text(sample)).final
        verdicts = [follows(text, name, given, loose=self.mode == "loose") for name, given in instructions]
        failed = [name for (name, _), verdict in zip(instructions, verdicts, strict=True) if not verdict]
        reason = f"Not followed: {', '.join(failed)}." if failed else "Every instruction is followed."
        share = sum(verdicts) / len(verdicts)
        score = share if self.level == "instruction" else float(not failed)
        return one_score(self.name, score, reason, {"followed": verdicts})

    def _instructions(self, sample: DataSample) -> list[tuple[str, Mapping[str, Any]]]:
        names = plain(known(sample, "instruction_id_list"))
        if not isinstance(names, list | tuple) or not names:
            raise Unscored(
                f"{self.name} needs metadata['instruction_id_list'], a list of instruction ids; found {shown(names)}.",
                reason="no_instructions",
            )
        given = plain(known(sample, "kwargs"))
        given = [None] * len(names) if given is None else given
        if not isinstance(given, list | tuple) or len(given) != len(names):
            raise Unscored(
                f"{self.name}: metadata['kwargs'] is a list with one dict for each of the {len(names)} instructions.",
                reason="bad_instruction",
            )
        if not all(part is None or isinstance(part, Mapping) for part in given):
            raise Unscored(f"{self.name}: metadata['kwargs'] holds dicts, found {shown(given)}.", reason="bad_instruction")
        return [(str(name), part or {}) for name, part in zip(names, given, strict=True)]
