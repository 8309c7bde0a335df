"""Rewards as the callables that evaluation tools and endpoints take: LangSmith, Langfuse,
reward-kit.

Nothing of these tools is imported: each callable answers in the plain form its tool reads.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rm_gallery.core.data.conversation import divided
from rm_gallery.core.data.load.padding import fields_in
from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.reward.function_result import evaluated, told_as
from rm_gallery.core.score import Score
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.integrations.causes import NoScore
from rm_gallery.integrations.scoring import RowScorer, picked, refuse_comparing

_TEXTS = ("output", "answer", "response", "completion", "text", "content", "result")
_ASKED = ("messages", "prompt", "question", "query", "input")


class _Callable:
    """A reward that reports what has no score as such."""

    reports = "what has no score is reported as such, never as a number."
    one_by_one = "An evaluator sees one run."
    """What to say, or do instead, where the reward compares completions."""

    def __init__(self, reward: object, **scoring: Any) -> None:
        """Take what `RowScorer` takes."""
        if "on_error" in scoring:
            raise ConfigError(f"on_error is no choice here: {self.reports}")
        self.scorer = RowScorer(reward, **scoring)
        refuse_comparing(self.scorer, self.one_by_one)
        self.__name__ = self.scorer.name


class _Evaluator(_Callable):
    """Common base: which of a run's values is the prompt, the answer, the reference."""

    def __init__(
        self,
        reward: object,
        *,
        prompt: str | None = None,
        completion: str | None = None,
        **scoring: Any,
    ) -> None:
        super().__init__(reward, **scoring)
        self._prompt, self._completion = prompt, completion

    def _asked_and_said(self, given: Any, output: Any) -> tuple[Any, Any]:
        """The prompt of a run's input, and the answer of its output."""
        asked = _picked_or_only(given, self._prompt, _ASKED, "input", "prompt=")
        return asked, _picked_or_only(output, self._completion, _TEXTS, "output", "completion=")

    def _findings(self, score: Score[float], unscored: dict[str, Any]) -> list[dict[str, Any]]:
        """Name, value and comment of the score, and of each component; those of `unscored` where
        there was nothing to judge by, NoScore where judging failed.
        """
        name = self.scorer.name
        if score.status == "failed":
            raise NoScore(f"{name} failed ({score.code}): {score.reason}", score.code)
        if score.value is None:
            return [{**unscored, "comment": f"{score.code}: {score.reason}"}]
        parts = [{"name": f"{name}.{k}", "value": v} for k, v in score.components.items()]
        return [{"name": name, "value": score.value, "comment": score.reason or None}, *parts]


class LangSmithEvaluator(_Evaluator):
    """An evaluator of LangSmith:
    `evaluate(app, data=…, evaluators=[langsmith_evaluator("rouge_l", reference="answer")])`.

    It is called as `f(inputs, outputs, reference_outputs) -> {"results": […]}`, by `aevaluate` as
    well.

    A score is one feedback under the reward's name with the judge's words as comment, components
    are feedbacks of their own. Where there was nothing to judge by, the feedback has the score None
    and says why; where judging failed, it raises, which LangSmith records as the evaluator's error.
    Rows are the inputs, the reference outputs over them.
    """

    def __call__(
        self,
        inputs: Mapping[str, Any],
        outputs: Any,
        reference_outputs: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Score one run.

        Raises:
            NoScore: judging failed.
        """
        row = {**inputs, **(reference_outputs or {})}
        score = self.scorer.score(*self._asked_and_said(inputs, outputs), row)
        found = self._findings(score, {"name": self.scorer.name, "value": None})
        return {
            "results": [
                {"key": each.pop("name"), "score": each.pop("value"), **each} for each in found
            ]
        }


class LangfuseEvaluator(_Evaluator):
    """An evaluator of Langfuse:
    `langfuse.run_experiment(…, evaluators=[langfuse_evaluator("rouge_l")])`.

    Awaitable, called as `f(*, input, output, expected_output, metadata, **kwargs)`.

    Gives one `Evaluation` under the reward's name and one per component. Where there was nothing to
    judge by there is only an evaluation `NAME.unscored`, so that no invented number is in the mean;
    where judging failed, it raises, which Langfuse records on the evaluator's span. Rows are the
    item's metadata; `expected_output` is the reference, or its keys are columns.
    """

    def __init__(self, reward: object, *, reference: str | None = None, **settings: Any) -> None:
        """Take what `RowScorer` takes, and `prompt` and `completion`, the keys of inputs and
        outputs that are dicts.
        """
        super().__init__(reward, reference=reference or "expected_output", **settings)

    async def __call__(
        self,
        *,
        input: Any = None,
        output: Any,
        expected_output: Any = None,
        metadata: Any = None,
        **kwargs: Any,
    ) -> list[Any]:
        """Score one item.

        Raises:
            NoScore: judging failed.
        """
        row = {**fields_in(metadata), **fields_in(expected_output)}
        row["expected_output"] = expected_output
        score = await self.scorer.ascore(*self._asked_and_said(input, output), row)
        found = self._findings(score, {"name": f"{self.scorer.name}.unscored", "value": 1.0})
        # Langfuse's own objects where it is imported (it is when it calls us)
        made = getattr(sys.modules.get("langfuse"), "Evaluation", dict)
        return [made(**{"comment": None, **each}) for each in found]


class EndpointFunction(_Callable):
    """A reward as reward-kit calls one:
    `f(messages, ground_truth=None, original_messages=None, **row)`, with a result in its form.

    Without a score `is_score_valid` is False, `score` is 0.0 because the field must be a number,
    and `error` says why: trainers that know the flag leave the rollout out. `await f.acall(…)` is
    its awaitable twin. The reference is `ground_truth` unless `reference` names a column of the
    row.
    """

    reports = "is_score_valid says that there is no score."
    one_by_one = "The server's batch path (`/v1/rewards/NAME/batch`) takes groups."

    @told_as(evaluated)
    async def acall(
        self,
        /,
        messages: Sequence[Any],
        ground_truth: Any = None,
        original_messages: Any = None,
        **row: Any,
    ) -> Score[float]:
        """Score a conversation by its last assistant turn; DataError for messages that do not fit.

        Calling the object itself does the same and blocks.
        """
        turns, begins, prompt = divided(messages, original_messages)
        if ground_truth is not None:
            row["ground_truth"] = ground_truth
        if prompt is not None:
            row["original_messages"] = prompt
        score = await self.scorer.ascore(turns[:begins], turns[begins:], row)
        error = None if score.ok else f"{score.status} ({score.code}): {score.reason}"
        metrics = {name: {"score": part} for name, part in score.components.items()}
        return replace(score, extra={"reason": score.reason, "metrics": metrics, "error": error})

    __call__ = library_loop.blocking(acall, "__call__", drives=True)


langsmith_evaluator, langfuse_evaluator, endpoint_function = (
    LangSmithEvaluator,
    LangfuseEvaluator,
    EndpointFunction,
)


def _picked_or_only(
    given: Any, key: str | None, usual: Sequence[str], what: str, argument: str
) -> Any:
    """The text or messages in a run's input or output; ConfigError lists the keys where the choice
    is ambiguous.
    """
    if not isinstance(given, Mapping):
        return given if key is None else getattr(given, key, None)
    if key is not None:
        return picked(given, key, (), f"the {what}", argument)
    there = ", ".join(map(str, given)) or "none"
    keys = [name for name in usual if name in given] if len(given) != 1 else list(given)
    if len(keys) != 1:
        raise ConfigError(
            f"which key of the {what} is meant? Say it with {argument}…; its keys: {there}."
        )
    return given[keys[0]]
