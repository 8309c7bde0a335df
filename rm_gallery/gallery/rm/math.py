"""Math rewards: equality with the reference by rule, by rule and judge, and calibrated by stated
confidence.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveFloat

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.engine.context import within_deadline
from rm_gallery.core.engine.pool import WorkerCrashed, get_pool
from rm_gallery.core.reward.base_kinds import BasePointWiseReward
from rm_gallery.core.reward.judge import BaseLLMReward
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.rule import RuleReward, extraction_of, references_of, shown
from rm_gallery.core.reward.schema import Example, PhraseJudge, sample_of
from rm_gallery.core.reward.template import BasePromptTemplate, Described, render
from rm_gallery.core.score import Score
from rm_gallery.core.text.answer import Extraction, final_text
from rm_gallery.core.text.maths import MathVerdict, fast_verdict, verify_answer
from rm_gallery.core.utils.errors import DeadlineExceeded, Unscored


@RewardRegistry.register("math_verify_reward")
class MathVerifyReward(RuleReward):
    """1 when the answer's final result equals the reference's mathematically, else 0.

    Boxed answers, announced answers ("A: 18", "#### 18", "the answer is …") and what the closing
    sentence asserts are read, as far as `extraction` allows; a value that is taken back, supposed
    or cut off does not count. Equality is Math-Verify's. Plain numbers are compared directly,
    everything else in killable worker processes: an expression that exceeds `timeout` gets 0, a
    reference that does is unscored. With several references, one match is enough. A reference that
    cannot be parsed is unscored, an answer that holds no result is 0. Range {0, 1}, higher is
    better.
    """

    needs = frozenset({"reference"})
    name = "math_verify"
    timeout: PositiveFloat = 5.0
    """Seconds one comparison may take."""
    in_process: bool = True
    """Whether plain numbers are compared without a worker process; the verdicts are the same."""
    extraction: Extraction = "any"
    """What counts as the answer's conclusion: a box alone, whatever announces an answer, or any
    closing sentence that asserts.
    """

    example = Example(
        sample_of(
            "A shirt of 40 dollars is sold at 25 % off. What does it cost?",
            "40 · 0.75 = 30, so it costs \\boxed{30} dollars.",
            "It costs \\boxed{\\frac{60}{2}} dollars.",
            "The answer is 10 dollars.",
            reference="30",
        )
    )

    async def _evaluate(self, sample: DataSample, **kwargs: Any) -> Score[Any]:
        verdict, reason = await self._verdict_and_reason(sample)
        return Score(float(verdict.status == "correct"), reason)

    async def _verdict_and_reason(self, sample: DataSample) -> tuple[MathVerdict, str]:
        """The verdict on an answer and its reason; Unscored without a mathematical reference."""
        first, *further = references_of(sample, self.name)
        extraction, answer = extraction_of(sample, self.extraction), sample.answer_text()
        verdict = await self._compare(answer, first, extraction)
        for gold in further:
            if verdict.status == "correct":
                break
            other = await self._compare(answer, gold, extraction)
            verdict = other if verdict.status == "no_gold" or other.status == "correct" else verdict
        if verdict.status == "no_gold":
            raise Unscored(
                f"The reference holds no mathematical result: {verdict.gold[:80]!r}.",
                reason="no_gold",
            )
        reasons = {
            "correct": f"{verdict.answer} equals {verdict.gold}.",
            "wrong": f"{verdict.answer} does not equal {verdict.gold}.",
            "exploding": (
                f"The answer cannot be worked out within {self.timeout:g} s; the reference is "
                f"{verdict.gold}."
            ),
            "no_answer": f"The answer holds no result; the reference is {verdict.gold}.",
        }
        return verdict, reasons[verdict.status]

    async def _compare(self, answer: str, gold: str, extraction: Extraction) -> MathVerdict:
        quick = fast_verdict(answer, gold, extraction) if self.in_process else None
        verdict = quick or await self._verified(answer, gold, extraction)
        if verdict is not None:
            return verdict
        # if the reference alone can be computed, the answer made the comparison explode and gets 0
        alone = await self._verified(gold, gold, urgent=True)
        if alone is None:
            raise Unscored(
                f"{self.name}: the reference cannot be worked out within {self.timeout:g} s: "
                f"{shown(gold)}.",
                reason="bad_reference",
            )
        return alone if alone.status == "no_gold" else MathVerdict("exploding", gold=alone.gold)

    async def _verified(self, *texts: str, **how: bool) -> MathVerdict | None:
        """The verdict of a process that can be killed; None where it was."""
        limit = within_deadline(self.timeout)
        try:
            return await get_pool().asubmit(verify_answer, *texts, deadline=limit, **how)
        except (DeadlineExceeded, MemoryError, WorkerCrashed):
            return None


_CONFIDENCE = re.compile(
    r"<confidence>\s*(?P<tag>[^<]{1,20}?)\s*</confidence>|(?:confidence|置信度|信心)\s*(?:is|of"
    r"|为)?\s*[:：=]?\s*\**\s*(?P<plain>\d{1,3}(?:\.\d{1,6})?\s*%?)",
    re.IGNORECASE,
)


def stated_confidence(text: str) -> float | None:
    """The confidence that an answer states last, 0 to 1; None where it states none. A number above
    1 or with % is a percentage.
    """
    matches = list(_CONFIDENCE.finditer(text[-20_000:]))
    if not matches:
        return None
    word = (matches[-1]["tag"] or matches[-1]["plain"]).strip()
    try:
        number = float(word.rstrip("% "))
    except ValueError:
        return None
    number = number / 100 if word.endswith("%") or number > 1 else number
    return number if 0 <= number <= 1 else None


@RewardRegistry.register("calibrated_math")
class CalibratedMathReward(MathVerifyReward):
    """Correctness minus the Brier score of the confidence that the answer states: c - (q - c)^2, c
    in {0, 1}, q in [0, 1].

    c is `math_verify_reward`'s verdict, q stands in `<confidence>0.8</confidence>` or as
    "Confidence: 80%", the last one counts. An answer without a confidence has the worst score.
    Expected reward is highest where q is the share of answers that are right. With `brier_only` the
    reward is -(q - c)^2. Range [-1, 1], higher is better. Source: RLCR (arXiv 2507.16806), equation
    2; Brier (1950).
    """

    score_range = (-1.0, 1.0)
    name = "calibrated_math"
    brier_only: bool = False
    """Whether the score leaves out correctness."""

    example = Example(
        sample_of(
            "What is 15 % of 80?",
            "\\boxed{12} <confidence>0.9</confidence>",
            "\\boxed{14} <confidence>0.2</confidence>",
            "\\boxed{14} <confidence>0.9</confidence>",
            reference="12",
        )
    )

    async def _evaluate(self, sample: DataSample, **kwargs: Any) -> Score[Any]:
        verdict, reason = await self._verdict_and_reason(sample)
        right = float(verdict.status == "correct")
        confidence = stated_confidence(final_text(sample.answer_text()))
        if confidence is None:
            return Score(-1.0, f"{reason} The answer states no confidence.")
        brier = (confidence - right) ** 2
        score = -brier if self.brier_only else right - brier
        return Score(
            score,
            f"{reason} It is stated with confidence {confidence:g}.",
            extra={"correct": right, "brier": brier},
        )


class EquivalenceTemplate(BasePromptTemplate):
    """Whether an answer's final result equals the reference's: yes or no."""

    equal: Annotated[bool, Described(zh="最终结果是否与参考结果相同：是或否，不写其他内容")] = (
        Field(
            default=...,
            description="Whether the final result is the same as the reference: yes or no, nothing else",
        )
    )

    @classmethod
    def format(  # type: ignore[override]  # a concrete template names its parameters
        cls,
        query: str = "",
        reference: str = "",
        answer: str = "",
        language: str = "en",
        enable_thinking: bool = False,
    ) -> Any:
        """System and user message: rules and form of the reply first, then question, reference and
        the end of the answer.
        """
        return render(
            "equivalence",
            language,
            texts={"query": query, "reference": reference, "answer": answer},
            always=("answer",),
            output_form=cls.schema(enable_thinking=enable_thinking, language=language),
        )


_END = 2000
"""Characters from the end of an answer that the judge sees: only the conclusion is compared."""


@RewardRegistry.register("hybrid_math")
class HybridMathReward(BaseLLMReward, BasePointWiseReward):
    """1 when the answer's final result is the reference's, by `math_verify_reward` or else by a
    judge.

    The rule comes first and costs no call. A judge is asked whether both are the same only where
    the rule finds them different, or reads no result on one side; it sees the question, the
    reference and the last 2,000 characters of the answer. An expression that explodes gets 0
    without a call. With several references, one match is enough. Range {0, 1}, higher is better.
    Idea: rule first, model where the rule says no, as in big-math-rl-verified and xVerify (arXiv
    2504.10481).
    """

    score_range = (0.0, 1.0)
    needs = frozenset({"llm", "reference"})
    name = "hybrid_math"
    template = EquivalenceTemplate
    language: Literal["en", "zh"] = "en"
    """Language of the instructions; question and answer may be in any."""
    extraction: Extraction = "any"
    """What the rule reads as the answer's conclusion; the judge always sees the end of the answer.
    """

    example = Example(
        sample_of(
            "How many solutions has x^2 = -1 among the real numbers?",
            "There is none, so the number of solutions is \\boxed{0}.",
            "Squares are not negative: not a single one.",
            "\\boxed{2}",
            reference="0",
        ),
        judge=PhraseJudge(("\\boxed{0}", "not a single one", "\\boxed{2}")),
    )

    async def _evaluate(self, sample: DataSample, **kwargs: Any) -> Score[Any]:
        """The rule's verdict where it is one for the answer, else the judge's."""
        try:
            verdict, reason = await MathVerifyReward(
                extraction=self.extraction
            )._verdict_and_reason(sample)
        except Unscored as error:
            if error.reason != "no_gold":
                raise
        else:
            if verdict.status in ("correct", "exploding"):
                return Score(float(verdict.status == "correct"), reason)
        return await super()._evaluate(sample, **kwargs)

    def _before_evaluate(self, sample: DataSample, **kwargs: Any) -> dict[str, Any]:
        """Question, references and the end of the answer."""
        view = self.kind.view(sample)
        return {
            "query": view.query,
            "reference": "\n".join(references_of(sample, self.name)),
            "answer": final_text(view.answers[0])[-_END:],
            "language": self.language,
        }

    def _after_evaluate(self, response: Any, sample: DataSample, **kwargs: Any) -> Score[Any]:
        """1 where the judge finds them equal."""
        return Score(float(response.equal), response.reason or "The judge says so.")
