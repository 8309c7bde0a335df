"""NeMo-RL: a reward as an environment of one turn, and as a function of (ground_truth, response).

NeMo-RL adds up the rewards that `step` gives for a batch of dialogues and has no word for "no
score": a completion without one has `on_error`'s number, with `unscored` or `failed` beside it in
its metadata and in the validation metrics. The default is the mean of its group, which moves
nobody's advantage: raising would end the training. What the completion broke itself is the worst
score of the range, or `worst=`, so that breaking the reward never pays.

Its package on PyPI is a placeholder, the trainer comes from its repository; nothing of it, of Ray
or of torch is imported until it is used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rm_gallery.core.data.load.padding import fields_in, plain
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.integrations.causes import OnError
from rm_gallery.integrations.scoring import TrainerReward, made_when_asked, needed

KEPT = "rm_gallery"
"""Key of a dialogue's metadata that holds its score, components and flags."""
ACTOR = "rm_gallery.integrations.nemo_rl.RewardActor"


class EnvironmentReturn(NamedTuple):
    """What a step returns, with NeMo-RL's fields; NeMo-RL's own class is used where it is
    installed.
    """

    observations: list[dict[str, str]]
    metadata: list[Any]
    next_stop_strings: list[Any]
    rewards: Any
    terminateds: Any
    answers: list[str | None] | None


class RewardEnvironment(TrainerReward):
    """A reward as NeMo-RL's `EnvironmentInterface`; `RewardActor` is the same as a Ray actor.

    Args:
        cfg: `reward`, whatever `RowScorer` takes (a registered name, in a configuration file);
            `components`, names of the parts of the score that go into metadata and metrics;
            `on_error`, "mean" (by default), "worst", "raise" or a number; `observation`, the text
            that the model is shown after its answer; and `reference`, `columns`, `llm`, `options`,
            … of `RowScorer`.

    The answer is the last assistant message, what comes before it the prompt; the columns are the
    dialogue's metadata, whose `ground_truth` is the reference unless another is named.

    Raises:
        ConfigError: as `RowScorer` does.
    """

    reported = ()

    def __init__(self, cfg: Mapping[str, Any]) -> None:
        """Build the reward; nothing is scored yet."""
        settings = {key: plain(value) for key, value in cfg.items()}
        if "reward" not in settings:
            there = ", ".join(sorted(settings)) or "none"
            raise ConfigError(
                f"The environment's configuration has no key 'reward'; its keys are: {there}."
            )
        self._observation = str(settings.pop("observation", ""))
        super().__init__(settings.pop("reward"), **settings)

    def step(
        self,
        message_log_batch: Sequence[Any],
        metadata: Sequence[Any],
        return_extracted_answer: bool = False,
    ) -> Any:
        """Score the last turn of every dialogue in one run; every episode ends.

        Returns:
            `EnvironmentReturn` with a float32 tensor of rewards, shape (n,).
        """
        import torch

        talks = [_split_log(log) for log in message_log_batch]
        rows = [plain(fields_in(row)) for row in metadata]
        prompts, answers = ([talk[part] for talk in talks] for part in (0, 1))
        scores = self.scorer.score_rows(prompts, answers, rows)
        numbers = [self.scorer.numbers(each, self.components) for each in scores]
        kept = [{**fields_in(row), KEPT: each} for row, each in zip(metadata, numbers, strict=True)]
        rewards = torch.tensor([each["score"] for each in numbers], dtype=torch.float32)
        try:
            from nemo_rl.environments.interfaces import EnvironmentReturn as made
        except ImportError:
            made = EnvironmentReturn
        return made(
            observations=[{"role": "environment", "content": self._observation} for _ in scores],
            metadata=kept,
            next_stop_strings=[None] * len(scores),
            rewards=rewards,
            terminateds=torch.ones_like(rewards),
            answers=list(map(_answer_text, answers)) if return_extracted_answer else None,
        )

    def global_post_process_and_metrics(self, batch: Any) -> tuple[Any, dict[str, float]]:
        """The batch as it is, and the means of what `step` kept in `extra_env_info`."""
        kept = [
            row[KEPT] for row in map(fields_in, batch.get("extra_env_info") or ()) if KEPT in row
        ]
        scored = [each for each in kept if not each["unscored"] and not each["failed"]]
        means = {name: [each[name] for each in scored] for name in ("score", *self.components)}
        flags = {name: [each[name] for each in kept] for name in ("unscored", "failed")}
        return batch, {
            name: sum(values) / len(values) for name, values in {**means, **flags}.items() if values
        }

    def shutdown(self) -> None:
        """Nothing is left running."""


def register_nemo_rl(name: str = "rm_gallery") -> str:
    """Make `env.NAME` of a NeMo-RL configuration a `RewardEnvironment`; call it before
    `create_env`.

    Raises:
        ConfigError: NeMo-RL is not installed.
        ValueError: NeMo-RL has an environment of that name.
    """
    with needed(
        "register_nemo_rl needs NeMo-RL ({}). Install it from https://github.com/NVIDIA-NeMo/RL; "
        "the package of that name on PyPI is a placeholder."
    ):
        from nemo_rl.distributed.ray_actor_environment_registry import ACTOR_ENVIRONMENT_REGISTRY
        from nemo_rl.distributed.virtual_cluster import PY_EXECUTABLES
        from nemo_rl.environments.utils import register_env
    register_env(name, ACTOR)
    # the actor runs in the driver's environment, where rm_gallery is installed
    ACTOR_ENVIRONMENT_REGISTRY[ACTOR] = PY_EXECUTABLES.SYSTEM
    return name


class NemoRLFunction(TrainerReward):
    """A function `(ground_truth, response) -> (score, correct)`, as NeMo-RL's
    `combine_reward_functions` takes; picklable.

    Args:
        reward: whatever `RowScorer` takes.
        correct_from: the score from which on a response counts as correct; without it `correct` is
            None, which NeMo-RL leaves out.
        on_error: what a response without a score gets: "mean" (by default; responses come one by
            one and without a prompt, so of all before), "worst", "raise" (which NeMo-RL makes a
            0.0) or a number.
        **scoring: `llm`, `options`, … of `RowScorer`.

    Raises:
        ConfigError: as `RowScorer` does.
    """

    one_by_one = "`RewardEnvironment` gets whole batches."

    def __init__(
        self,
        reward: object,
        *,
        correct_from: float | None = None,
        on_error: OnError = "mean",
        **scoring: Any,
    ) -> None:
        """Build the reward; nothing is scored yet."""
        super().__init__(reward, on_error=on_error, **scoring)
        self._from = correct_from

    def __call__(self, ground_truth: Any, response: Any) -> tuple[float, bool | None]:
        """Score one response."""
        score = self.scorer.score(None, response, {"ground_truth": ground_truth})
        value = self.scorer.numbers(score)["score"]
        return (
            value,
            None if self._from is None else score.value is not None and score.value >= self._from,
        )


nemo_rl_reward = NemoRLFunction


def _split_log(
    log: Sequence[Mapping[str, Any]],
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Prompt and answer of a message log, without its tensors."""
    turns = [
        {
            "role": "user" if each["role"] == "environment" else each["role"],
            "content": plain(each.get("content")),
        }
        for each in log
    ]
    last = next(
        (at for at in reversed(range(len(turns))) if turns[at]["role"] == "assistant"), len(turns)
    )
    return turns[:last], turns[last:]


def _answer_text(answer: Sequence[Mapping[str, Any]]) -> str | None:
    content = answer[0]["content"] if answer else None
    return content if isinstance(content, str) else None


def _actor_class() -> Any:
    import ray

    return ray.remote(max_restarts=-1, max_task_retries=-1)(RewardEnvironment)


__getattr__ = made_when_asked(
    globals(), "RewardActor", _actor_class, f"{ACTOR} needs Ray ({{}}), which comes with NeMo-RL."
)
"""Gives `RewardActor`, the environment as a Ray actor, when a configuration asks for it by name."""
