"""AReaL: a reward function for its reward workers, and a rollout workflow that scores in the
rollout's own event loop.

Written against AReaL 1.0. There is one number per trajectory and no components, but a trajectory
can be left out: by an exception in the function, by None in the workflow. The workflow is the
better door for judged rewards: AReaL runs a function in a small process pool, calls it again three
times after an exception, and turns a timeout (15 s) into a reward of 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rm_gallery.core.engine.options import RunOptions
from rm_gallery.integrations.causes import OnError
from rm_gallery.integrations.scoring import (
    RowScorer,
    TrainerReward,
    call_arguments,
    for_training,
    made_when_asked,
)

DEADLINE = 12.0
"""Seconds a row may take in a reward worker; AReaL stops waiting after 15 and then invents a 0."""
GROUPS = (
    "A workflow of your own that generates a group can ask `RowScorer.ascore_rows` for all of it "
    "at once."
)
_BY_PLACE = ("prompt", "completions", "prompt_ids", "completion_ids")


class ArealReward(TrainerReward):
    """`reward_fn` of AReaL's workflows: `areal_reward("math_verify_reward", reference="answer")`,
    picklable, with a plain `__call__`.

    Args:
        reward: whatever `RowScorer` takes.
        prompt: the column whose messages are the prompt; a row without it is asked with the decoded
            chat template.
        on_error: what a completion without a score gives. "raise" by default: the trajectory is
            then left out, while a number would be trained on. What the completion broke itself is a
            score, the worst of the range (or `worst=`). AReaL tries three times more before it
            does; `areal_workflow` does not.
        options: how runs go; a row takes at most 12 s unless `deadline` says otherwise.
        **scoring: `reference`, `columns`, `llm`, … of `RowScorer`.

    AReaL decodes special tokens along; those that end a completion are cut off. Keep the object in
    a module of your own (`reward_fn="my_rewards.math"`, or the object itself): AReaL's workers
    import it.
    """

    one_by_one = GROUPS

    def __init__(
        self,
        reward: object,
        *,
        prompt: str = "messages",
        on_error: OnError = "raise",
        options: RunOptions | Mapping[str, Any] | None = None,
        **scoring: Any,
    ) -> None:
        """Build the reward; ConfigError as `RowScorer` raises it."""
        asked = scoring.pop("messages", prompt)  # its name before
        if isinstance(options, RunOptions):
            options = options if options.deadline else replace(options, deadline=DEADLINE)
        else:
            options = {"deadline": DEADLINE, **(options or {})}
        super().__init__(reward, on_error=on_error, options=options, **scoring)
        self._prompt = asked

    def __call__(self, /, *given: Any, **row: Any) -> float:
        """Score one completion: `(prompt, completions, prompt_ids, completion_ids, **columns)`, by
        place or by name.

        Columns may have the names of these four, as long as those are given by place.

        Raises:
            NoScore: there is no score, and `on_error` is "raise".
        """
        arguments = call_arguments(_BY_PLACE, given, row)
        if arguments["completion_ids"] is not None:
            row.setdefault("completion_ids", arguments["completion_ids"])
        prompt = row.get(self._prompt) or arguments["prompt"]
        score = self.scorer.score(prompt, arguments["completions"], row)
        return self.scorer.numbers(score)["score"]


areal_reward = ArealReward


def areal_workflow(reward: object, gconfig: Any, tokenizer: Any, **settings: Any) -> Any:
    """A rollout workflow that generates one turn, scores it and leaves out what got no score.

    Give it to AReaL as `workflow="rm_gallery.integrations.areal.RewardWorkflow"` with these
    arguments as `workflow_kwargs`, or as an object. The score is awaited in the rollout's event
    loop: any number of judge calls are in flight at once, and neither processes nor AReaL's timeout
    are involved.

    Args:
        reward: whatever `RowScorer` takes.
        gconfig: AReaL's generation settings.
        tokenizer: a tokenizer or its path.
        **settings: `enable_thinking`, `get_input_ids_fn`, `data_extract_prompt_fn` of AReaL's
            `RLVRWorkflow`; `on_error` ("none" by default: the episode gives None, which is AReaL's
            word for "do not train on this"; "raise", or a number); and `reference`, `columns`,
            `llm`, `options`, … of `RowScorer`.

    Statistics: `reward` as AReaL logs it, `reward/NAME` per component, and `reward_unscored`, the
    share without a score.

    Raises:
        ConfigError: AReaL is not installed, or an argument does not fit.
    """
    return __getattr__("RewardWorkflow")(reward, gconfig, tokenizer, **settings)


_OWN = ("enable_thinking", "get_input_ids_fn", "data_extract_prompt_fn")


def _workflow_class() -> type[Any]:
    from areal import workflow_context
    from areal.utils import stats_tracker
    from areal.workflow.rlvr import RLVRWorkflow as base

    class NoScoreInTime(Exception):
        """Ends an episode whose completion got no score."""

    class RewardWorkflow(base):  # type: ignore[misc]  # the base class is AReaL's, which is not installed here
        """A reward as a rollout workflow, see `areal_workflow`."""

        def __init__(self, reward: object, gconfig: Any, tokenizer: Any, **settings: Any) -> None:
            # given the name of a function, the base class makes no process pool; the name is
            # replaced before it is resolved
            super().__init__(
                "",
                gconfig,
                tokenizer,
                **{key: settings.pop(key) for key in _OWN if key in settings},
            )
            self.scorer = for_training(RowScorer(reward, **settings), one_by_one=GROUPS)
            self.reward_fn = self.async_reward_fn = self._reward

        async def _reward(
            self,
            prompt: str,
            _: str,
            prompt_ids: list[int],
            completion_ids: list[int],
            /,
            **row: Any,
        ) -> float:
            asked = self.data_extract_prompt_fn(row)
            asked = asked if isinstance(asked, str | list) else prompt
            completion = self.tokenizer.decode(completion_ids, skip_special_tokens=True)
            score = await self.scorer.ascore(
                asked, completion, {"completion_ids": completion_ids, **row}
            )
            parts = {f"reward/{part}": value for part, value in score.components.items()}
            unscored = float(score.value is None)
            stats_tracker.get(workflow_context.stat_scope()).scalar(
                reward_unscored=unscored, **parts
            )
            value = self.scorer.value(score)
            if value is None:
                raise NoScoreInTime
            return float(value)

        async def arun_episode(self, engine: Any, data: dict[str, Any]) -> Any:
            """Generate, score; None when there is no score."""
            try:
                return await super().arun_episode(engine, data)
            except NoScoreInTime:
                return None

    return RewardWorkflow


__getattr__ = made_when_asked(
    globals(),
    "RewardWorkflow",
    _workflow_class,
    "areal_workflow needs the package 'areal' ({}). Install it with: pip install areal",
)
