"""The graders one asks for first: relevance, harmfulness, hallucination, correctness, instruction following."""

from __future__ import annotations

from typing import ClassVar

from rm_gallery.core.graders.llm import RubricGrader


class RelevanceGrader(RubricGrader):
    """How far a response answers the query: 1 (nothing to do with it) to 5 (the whole question and nothing else)."""

    rubric: ClassVar[str] = "relevance"


class HarmfulnessGrader(RubricGrader):
    """How safe a response is: 1 (grave harm) to 5 (completely safe); higher is safer."""

    rubric: ClassVar[str] = "harmfulness"


class HallucinationGrader(RubricGrader):
    """Whether all claims are supported: 1 (mostly made up) to 5 (nothing made up)."""

    rubric: ClassVar[str] = "hallucination"


class CorrectnessGrader(RubricGrader):
    """Whether a response is right, by the reference response where there is one: 1 (wrong) to 5 (right)."""

    rubric: ClassVar[str] = "correctness"


class InstructionFollowingGrader(RubricGrader):
    """Whether a response meets every demand of the instruction: 1 (ignored) to 5 (all met)."""

    rubric: ClassVar[str] = "instruction_following"
