"""TRL's own trainers call our reward functions: what they log and train on are the scores of
`evaluate`.
"""

from __future__ import annotations

import asyncio
import math
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rm_gallery import EvaluateResult, MetricResult, OpenaiLLM, reward_function
from rm_gallery.core.reward.schema import sample_of
from rm_gallery.integrations.trl import TrlReward, trl_components, trl_reward, trl_rewards
from rm_gallery.integrations.trl_data import preference_rows, unpaired_rows
from tests.support.checkpoints import NEEDS_TRL, config_for, make_tokenizer
from tests.trainers.rewards import as_float32, flaky_judge

pytestmark = [NEEDS_TRL, pytest.mark.trainers, pytest.mark.filterwarnings("ignore")]

QUESTIONS = [
    {"prompt": [{"role": "user", "content": f"What is {n}+{n}?"}], "solution": str(2 * n)}
    for n in range(8)
]


@reward_function(score_range=(0.0, 1.0))
def letters(messages: list[Any], **kwargs: Any) -> EvaluateResult:
    """The share of letters, and beside it the length."""
    text = messages[-1].text
    share = sum(letter.isalpha() for letter in text) / max(1, len(text))
    metrics = {"length": MetricResult(score=float(len(text))), "share": MetricResult(score=share)}
    return EvaluateResult(score=share, reason=f"{share:.2f}", metrics=metrics)


@pytest.fixture(scope="module", autouse=True)
def _accelerate() -> None:
    from accelerate import PartialState

    PartialState()  # TRL's loggers ask it which process they are in


def tiny_model() -> Any:
    import torch
    from transformers import LlamaForCausalLM

    torch.manual_seed(0)
    tokenizer = make_tokenizer(padding_side="left")
    return LlamaForCausalLM(config_for(tokenizer)), tokenizer


def trained(
    kind: str, folder: Path, rows: list[Any], settings: dict[str, Any], **given: Any
) -> Any:
    """A trainer of TRL after a short run on the CPU that keeps nothing, and the entries of its
    steps.
    """
    import trl
    from datasets import Dataset

    quiet = {
        "output_dir": str(folder),
        "logging_steps": 1,
        "report_to": "none",
        "save_strategy": "no",
    }
    quiet |= {"use_cpu": True, "bf16": False, "disable_tqdm": True, "max_steps": 1}
    config = getattr(trl, f"{kind}Config")(**{**quiet, **settings})
    model, tokenizer = tiny_model()
    given = {"model": model, "processing_class": tokenizer, **given}
    trainer = getattr(trl, f"{kind}Trainer")(
        args=config, train_dataset=Dataset.from_list(rows), **given
    )
    trainer.train()
    steps = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert len(steps) == config.max_steps and all(math.isfinite(entry["loss"]) for entry in steps)
    return trainer, steps


def test_grpo_trains_on_a_rule_a_function_and_a_judge_that_fails_at_times(tmp_path: Path) -> None:
    sizes = {
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 2,
        "num_generations": 4,
    }
    settings = {**sizes, "max_steps": 3, "max_completion_length": 12}
    with flaky_judge() as judge:
        llm = OpenaiLLM(model="judge", base_url=judge.base_url, api_key="k", max_attempts=1)
        rules = [{"reward": "math_verify_reward", "reference": "solution"}, letters]
        rewards = trl_rewards(
            [*rules, {"reward": "base_helpfulness_pointwise", "llm": llm, "name": "helpful"}]
        )
        trainer, steps = trained("GRPO", tmp_path, QUESTIONS, settings, reward_funcs=rewards)
        logs = trainer._logs
        for reward in rewards:
            told = [*map(none_or, logs["rewards"][reward.__name__])]
            assert told == single_precision(same_by_evaluate(reward, logs))
        assert judge.stats()["by_status"]["500"] >= 1
    for entry in steps:
        assert math.isfinite(entry["reward"]) and entry["rewards/letters/length"] > 0
        for name in ("math_verify_reward", "letters", "helpful"):
            assert {
                f"rewards/{name}/{part}" for part in ("mean", "std", "unscored", "failed")
            } <= entry.keys()
        assert entry["rewards/dropped"] == entry["rewards/helpful/failed"]
    assert 0 < sum(entry["rewards/helpful/failed"] for entry in steps) / 3 < 1
    assert set(logs["extra"]["helpful/outcome"]) <= {"scored", "transient", "fatal"}
    assert all(map(math.isfinite, logs["advantages"]))


def test_rloo_trains_on_the_components_of_a_function(tmp_path: Path) -> None:
    sizes = {"per_device_train_batch_size": 4, "num_generations": 4, "max_completion_length": 8}
    parts = trl_components(letters, ["length", "share"])
    weights = {"beta": 0.0, "reward_weights": [-0.1, 1.0]}
    _, (step,) = trained("RLOO", tmp_path, QUESTIONS, {**sizes, **weights}, reward_funcs=parts)
    assert step["rewards/letters/failed"] == 0.0
    assert step["rewards/letters/length/mean"] > 0 and 0 <= step["rewards/letters/share/mean"] <= 1


def none_or(value: float) -> float | None:
    """TRL's NaN is our None."""
    return None if math.isnan(value) else value


def single_precision(values: list[float | None]) -> list[float | None]:
    """Numbers as TRL's tensors hold them."""
    return [None if value is None else as_float32(value) for value in values]


def same_by_evaluate(reward: TrlReward, logs: Any) -> list[float | None]:
    """What the reward's other doors say of the last batch, where nothing was dropped."""
    solutions = {row["prompt"][0]["content"]: row["solution"] for row in QUESTIONS}  # type: ignore[index]
    rows = zip(logs["prompt"], logs["completion"], logs["extra"]["helpful/outcome"], strict=True)
    return [
        reward.scorer.score(prompt, said, {"solution": solutions[prompt[0]["content"]]}).value if outcome == "scored" else None
        for prompt, said, outcome in rows
    ]  # fmt: skip


PROMPTS = [[{"role": "user", "content": "What is 2+2?"}]] * 4
COMPLETIONS = [
    [{"role": "assistant", "content": text}] for text in ("\\boxed{4}", "5", "no idea", "4")
]
SOLUTIONS = ["4", "4", "4", None]
EXPECTED: dict[str, list[float | None]] = {
    "math_verify_reward": [1.0, 0.0, 0.0, None],
    "letters": [5 / 9, 0.0, 6 / 7, 0.0],
    "broken": [None] * 4,
}


@reward_function(score_range=(0.0, 1.0))
def broken(messages: list[Any], **kwargs: Any) -> float:
    """Never judges."""
    raise RuntimeError("gone")


def three_rewards() -> list[TrlReward]:
    return [
        trl_reward("math_verify_reward", reference="solution"),
        trl_reward(letters),
        trl_reward(broken),
    ]


def trainer_like(rewards: list[TrlReward], loop: Any, logged: dict[str, Any]) -> Any:
    """What the method that calls rewards looks at of its trainer."""
    import torch

    return SimpleNamespace(
        accelerator=SimpleNamespace(device=torch.device("cpu"), is_main_process=True),
        args=SimpleNamespace(report_to=[]),
        state=SimpleNamespace(global_step=1),
        environments=None,
        reward_funcs=rewards,
        reward_func_names=[reward.__name__ for reward in rewards],
        reward_processing_classes=[None] * len(rewards),
        reward_weights=None,
        async_loop=loop,
        _log_completion_extra=logged.__setitem__,
        _log_metric=logged.__setitem__,
    )


def test_online_dpo_which_awaits_nothing_iterates_over_the_same_object() -> None:
    from trl.experimental.online_dpo import OnlineDPOTrainer

    def called() -> Any:
        trainer = trainer_like(three_rewards(), None, {})
        score = OnlineDPOTrainer._calculate_rewards_from_functions
        return score(trainer, PROMPTS, COMPLETIONS, [[1]] * 4, solution=SOLUTIONS)

    async def in_a_notebook() -> Any:  # whose thread has a running loop
        return called()

    for found in (called(), asyncio.run(in_a_notebook())):
        assert found.tolist() == single_precision([1 + 5 / 9, 0.0, 6 / 7, 0.0])


def test_asynchronous_grpo_takes_them_to_its_child_process() -> None:
    from trl.experimental.async_grpo import async_rollout_worker as worker

    rewards: list[TrlReward] = pickle.loads(pickle.dumps(three_rewards()))
    sequence = worker.TrainingSequence([1, 2], [0, 1], [0.0, 0.0], 0)
    group = worker.RolloutGroup(
        PROMPTS,
        {"solution": SOLUTIONS},
        COMPLETIONS,
        [[1]] * 4,
        [[sequence]] * 4,
        [0] * 4,
        [0] * 4,
        0,
        0,
        [],
        [],
    )
    loop = SimpleNamespace(
        reward_funcs=rewards,
        reward_func_names=[*EXPECTED],
        _env_reward_types=[],
        _provides_rollout_reward=False,
    )
    samples = asyncio.run(worker._AsyncRolloutLoop._score_group(loop, group))
    for name, expected in EXPECTED.items():
        assert [none_or(sample.metrics[f"rewards/{name}"]) for sample in samples] == expected
    assert all(math.isfinite(sample.advantage) for sample in samples)


@pytest.mark.parametrize("kind", ["DPO", "Reward", "KTO"])
def test_trainers_take_the_data_sets_made_of_scored_samples(kind: str, tmp_path: Path) -> None:
    from transformers import LlamaForSequenceClassification

    samples = [sample_of("What is 2+2?", "The answer is 4.", "It is 5.", "4", reference="4")] * 2
    if kind == "KTO":
        rows = unpaired_rows(samples, "math_verify_reward")
    else:
        rows = preference_rows(samples, "math_verify_reward", margin=kind == "Reward")
    model = tiny_model()[0]
    given = (
        {"model": LlamaForSequenceClassification(model.config)}
        if kind == "Reward"
        else {"ref_model": model}
    )
    _, (step,) = trained(kind, tmp_path, rows, {"per_device_train_batch_size": 2}, **given)
    # the loss counts the margin of 1: without it a model that knows nothing is near ln 2
    if kind == "Reward":
        assert step["loss"] > 1.0


def completions_by_length(n: int) -> dict[str, Any]:
    """A batch as TRL hands it over, with completions of 0 to 2n - 2 tokens; half of them are right."""
    texts = [rf"\boxed{{{42 if number % 2 else 41}}}" for number in range(n)]
    ids = [[7] * (2 * number) for number in range(n)]
    return {
        "prompts": ["q"] * n,
        "completions": texts,
        "completion_ids": ids,
        "solution": ["$42$"] * n,
    }


def test_length_rewards_in_tokens_are_trls_own() -> None:
    from trl import rewards

    batch = completions_by_length(200)
    overlong = rewards.get_soft_overlong_punishment(max_completion_len=300, soft_punish_cache=60)
    ours = trl_reward(
        "dapo_soft_overlong_punishment", unit="tokens", max_length=300, cache=60, logs=False
    )(**batch)
    assert ours == pytest.approx(overlong(**batch), abs=1e-9)
    scaled = getattr(rewards, "get_cosine_scaled_reward", None)
    if scaled is None:
        pytest.skip("this version of TRL has no cosine-scaled reward")
    theirs = scaled(max_len=300)(
        **{
            **batch,
            "completions": [[{"role": "assistant", "content": t}] for t in batch["completions"]],
        }
    )
    ours = trl_reward(
        "cosine_length_scaling",
        unit="tokens",
        correctness="math",
        max_length=300,
        reference="solution",
        logs=False,
    )(**batch)
    assert ours == pytest.approx(theirs, abs=1e-9)
