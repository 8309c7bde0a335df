"""TRL's own trainers call our reward functions: what they log and train on are the scores of `evaluate`."""

from __future__ import annotations

import asyncio
import math
import pickle
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rm_gallery import EvaluateResult, MetricResult, OpenaiLLM, reward_function
from rm_gallery.core.reward.example import sample_of
from rm_gallery.integrations.trl import TrlReward, trl_components, trl_reward, trl_rewards
from rm_gallery.integrations.trl_data import preference_rows, unpaired_rows
from tests.support.checkpoints import config_for, make_tokenizer, require_torch
from tests.support.judge_server import JudgeServer

pytestmark = [pytest.mark.trainers, pytest.mark.filterwarnings("ignore")]
require_torch()
pytest.importorskip("trl", reason="trl is not installed (extra train)")

QUESTIONS = [{"prompt": [{"role": "user", "content": f"What is {n}+{n}?"}], "solution": str(2 * n)} for n in range(8)]


@reward_function
def letters(messages: list[Any], **kwargs: Any) -> EvaluateResult:
    """The share of letters, and beside it the length."""
    text = messages[-1].text
    share = sum(letter.isalpha() for letter in text) / max(1, len(text))
    length = MetricResult(score=float(len(text)), is_score_valid=True, reason="characters")
    return EvaluateResult(
        score=share, reason=f"{share:.2f}", metrics={"length": length, "share": MetricResult(score=share)}
    )


@pytest.fixture(scope="module")
def judge() -> Iterator[JudgeServer]:
    with JudgeServer("fixed:<score>4</score>", faults={"server_error": 1 / 3, "sticky": True}) as server:
        yield server


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


def quiet(folder: Path, **settings: Any) -> dict[str, Any]:
    """Settings of a short run on the CPU that keeps nothing."""
    return {
        "output_dir": str(folder),
        "max_steps": 3,
        "logging_steps": 1,
        "report_to": "none",
        "save_strategy": "no",
        "use_cpu": True,
        "bf16": False,
        "disable_tqdm": True,
        **settings,
    }


def test_grpo_trains_on_a_rule_a_function_and_a_judge_that_fails_at_times(judge: JudgeServer, tmp_path: Path) -> None:
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    llm = OpenaiLLM(model="judge", base_url=judge.base_url, api_key="k", max_attempts=1)
    rules = [{"reward": "math_verify_reward", "reference": "solution"}, letters]
    rewards = trl_rewards([*rules, {"reward": "base_helpfulness_pointwise", "llm": llm, "name": "helpful"}])
    sizes = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "num_generations": 4}
    config = GRPOConfig(**quiet(tmp_path, **sizes, max_completion_length=12))
    model, tokenizer = tiny_model()
    trainer = GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        reward_funcs=rewards,
        train_dataset=Dataset.from_list(QUESTIONS),
        args=config,
    )
    trainer.train()
    steps = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert len(steps) == 3
    for entry in steps:
        assert math.isfinite(entry["loss"]) and math.isfinite(entry["reward"])
        for name in ("math_verify_reward", "letters", "helpful"):
            assert {f"rewards/{name}/{part}" for part in ("mean", "std", "unscored", "failed")} <= entry.keys()
        assert entry["rewards/letters/length"] > 0
        assert entry["rewards/dropped"] == entry["rewards/helpful/failed"]
    assert 0 < sum(entry["rewards/helpful/failed"] for entry in steps) / 3 < 1
    assert judge.stats()["by_status"]["500"] >= 1
    logs: Any = trainer._logs
    for reward in rewards:
        assert [*map(none_or, logs["rewards"][reward.__name__])] == single_precision(same_by_evaluate(reward, logs))
    assert set(logs["extra"]["helpful/outcome"]) <= {"scored", "transient", "fatal"}
    assert all(map(math.isfinite, logs["advantages"]))


def test_rloo_trains_on_the_components_of_a_function(tmp_path: Path) -> None:
    from datasets import Dataset
    from trl import RLOOConfig, RLOOTrainer

    sizes = {"per_device_train_batch_size": 4, "num_generations": 4, "max_completion_length": 8}
    model, tokenizer = tiny_model()
    trainer = RLOOTrainer(
        model=model,
        processing_class=tokenizer,
        reward_funcs=trl_components(letters, ["length", "share"]),
        train_dataset=Dataset.from_list(QUESTIONS),
        args=RLOOConfig(**quiet(tmp_path, **sizes, max_steps=1, beta=0.0, reward_weights=[-0.1, 1.0])),
    )
    trainer.train()
    (step,) = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert math.isfinite(step["loss"]) and step["rewards/letters/failed"] == 0.0
    assert step["rewards/letters/length/mean"] > 0 and 0 <= step["rewards/letters/share/mean"] <= 1


def none_or(value: float) -> float | None:
    """TRL's NaN is our None."""
    return None if math.isnan(value) else value


def single_precision(values: list[float | None]) -> list[float | None]:
    """Numbers as TRL's tensors hold them."""
    import numpy as np

    return [None if value is None else float(np.float32(value)) for value in values]


def same_by_evaluate(reward: TrlReward, logs: Any) -> list[float | None]:
    """What the reward's other doors say of the last batch, where nothing was dropped."""
    solutions = {row["prompt"][0]["content"]: row["solution"] for row in QUESTIONS}  # type: ignore[index]
    found: list[float | None] = []
    for prompt, completion, outcome in zip(
        logs["prompt"], logs["completion"], logs["extra"]["helpful/outcome"], strict=True
    ):
        row = {"solution": solutions[prompt[0]["content"]]}
        score = reward.scorer.score(prompt, completion, row).score
        found.append(score if outcome == "scored" else None)
    return found


COMPLETIONS = ["\\boxed{4}", "5", "no idea", "4"]
SOLUTIONS = ["4", "4", "4", None]
EXPECTED: dict[str, list[float | None]] = {
    "math_verify_reward": [1.0, 0.0, 0.0, None],
    "letters": [5 / 9, 0.0, 6 / 7, 0.0],
    "broken": [None] * 4,
}


@reward_function
def broken(messages: list[Any], **kwargs: Any) -> float:
    """Never judges."""
    raise RuntimeError("gone")


def three_rewards() -> list[TrlReward]:
    return [trl_reward("math_verify_reward", reference="solution"), trl_reward(letters), trl_reward(broken)]


def prompts_and_completions() -> tuple[list[Any], list[Any]]:
    prompts = [[{"role": "user", "content": "What is 2+2?"}]] * 4
    return prompts, [[{"role": "assistant", "content": text}] for text in COMPLETIONS]


@pytest.fixture
def loop_thread() -> Iterator[asyncio.AbstractEventLoop]:
    import threading

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


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


@pytest.mark.parametrize("name", ["GRPOTrainer", "RLOOTrainer"])
def test_batch_trainers_await_our_rewards_and_get_none_for_no_score(name: str, loop_thread: Any) -> None:
    import trl
    from trl.trainer.utils import get_callable_name, is_async_callable

    rewards, logged = three_rewards(), dict[str, Any]()
    assert all(map(is_async_callable, rewards)) and [*map(get_callable_name, rewards)] == [*EXPECTED]
    prompts, completions = prompts_and_completions()
    inputs = [{"prompt": prompt, "solution": text} for prompt, text in zip(prompts, SOLUTIONS, strict=True)]
    trainer = trainer_like(rewards, loop_thread, logged)
    found = getattr(trl, name)._calculate_rewards(trainer, inputs, prompts, completions, [[1]] * 4)
    for place, expected in enumerate(EXPECTED.values()):
        assert [*map(none_or, found[:, place].tolist())] == single_precision(expected)
    assert logged["rewards/broken/failed"] == 1.0 and logged["rewards/math_verify_reward/unscored"] == 0.25
    assert logged["math_verify_reward/outcome"] == ["scored"] * 3 + ["no_reference"]
    assert logged["letters/length"] == [9.0, 1.0, 7.0, 1.0]


def test_online_dpo_which_awaits_nothing_iterates_over_the_same_object() -> None:
    from trl.experimental.online_dpo import OnlineDPOTrainer

    prompts, completions = prompts_and_completions()

    async def in_a_notebook() -> Any:  # whose thread has a running loop
        return OnlineDPOTrainer._calculate_rewards_from_functions(
            trainer_like(three_rewards(), None, {}), prompts, completions, [[1]] * 4, solution=SOLUTIONS
        )

    for found in (
        OnlineDPOTrainer._calculate_rewards_from_functions(
            trainer_like(three_rewards(), None, {}), prompts, completions, [[1]] * 4, solution=SOLUTIONS
        ),
        asyncio.run(in_a_notebook()),
    ):
        assert found.tolist() == single_precision([1 + 5 / 9, 0.0, 6 / 7, 0.0])


def test_asynchronous_grpo_takes_them_to_its_child_process() -> None:
    from trl.experimental.async_grpo import async_rollout_worker as worker

    rewards: list[TrlReward] = pickle.loads(pickle.dumps(three_rewards()))
    prompts, completions = prompts_and_completions()
    sequence = worker.TrainingSequence([1, 2], [0, 1], [0.0, 0.0], 0)
    group = worker.RolloutGroup(
        prompts, {"solution": SOLUTIONS}, completions, [[1]] * 4, [[sequence]] * 4, [0] * 4, [0] * 4, 0, 0, [], []
    )
    loop = SimpleNamespace(
        reward_funcs=rewards, reward_func_names=[*EXPECTED], _env_reward_types=[], _provides_rollout_reward=False
    )
    samples = asyncio.run(worker._AsyncRolloutLoop._score_group(loop, group))
    for name, expected in EXPECTED.items():
        assert [none_or(sample.metrics[f"rewards/{name}"]) for sample in samples] == expected
    assert all(math.isfinite(sample.advantage) for sample in samples)


@pytest.mark.parametrize("kind", ["DPO", "Reward", "KTO"])
def test_trainers_take_the_data_sets_made_of_scored_samples(kind: str, tmp_path: Path) -> None:
    import torch
    import trl
    from datasets import Dataset
    from transformers import LlamaForSequenceClassification

    answers = ["The answer is 4.", "It is 5.", "4"]
    samples = [sample_of("What is 2+2?", *answers, reference="4")] * 2
    model, tokenizer = tiny_model()
    if kind == "KTO":
        rows = unpaired_rows(samples, "math_verify_reward")
        assert [row["label"] for row in rows] == [True, False, True] * 2
    else:
        rows = preference_rows(samples, "math_verify_reward", margin=kind == "Reward")
        assert [(row["chosen"][0]["content"], row["rejected"][0]["content"]) for row in rows] == [
            tuple(answers[:2])
        ] * 2
    if kind == "Reward":
        torch.manual_seed(0)
        model = LlamaForSequenceClassification(model.config)
    config = getattr(trl, f"{kind}Config")(**quiet(tmp_path, max_steps=1, per_device_train_batch_size=2))
    trainer = getattr(trl, f"{kind}Trainer")(
        model=model,
        args=config,
        processing_class=tokenizer,
        train_dataset=Dataset.from_list(rows),
        **({} if kind == "Reward" else {"ref_model": tiny_model()[0]}),
    )
    trainer.train()
    (step,) = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert math.isfinite(step["loss"])
    if kind == "Reward":  # the loss counts the margin of 1: without it a model that knows nothing is near ln 2
        assert step["loss"] > 1.0
