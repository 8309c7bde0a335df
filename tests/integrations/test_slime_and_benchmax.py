"""slime and benchmax are on no package index: their documented calls are made here as their sources make them."""

from __future__ import annotations

import asyncio
import pickle
import statistics
import sys
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from rm_gallery import (
    BaseListWiseReward,
    BasePointWiseReward,
    ConfigError,
    DataSample,
    RewardDimensionWithRank,
    RewardDimensionWithScore,
    RewardResult,
    Unscored,
)
from rm_gallery.integrations.benchmax import BenchmaxRewards
from rm_gallery.integrations.scoring import NoScore
from rm_gallery.integrations.slime import post_process, slime_reward


class Sometimes(BasePointWiseReward):
    """The length of the answer; unscored for "none", an error for "fail"."""

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        text = sample.output[0].answer.text
        if "none" in text:
            raise Unscored("there is nothing to judge by", reason="no_reference")
        if "fail" in text:
            raise RuntimeError("the judge is gone")
        details = [RewardDimensionWithScore(name=self.name, score=float(len(text)))]
        return RewardResult(
            name=self.name, details=list(details), extra_data={} if text == "bare" else {"metrics": {"words": 1.0}}
        )


class Longest(BaseListWiseReward):
    """An answer's share of the longest one's length."""

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        lengths = [len(output.answer.text) for output in sample.output]
        rank = [length / max(lengths) for length in lengths]
        return RewardResult(name=self.name, details=[RewardDimensionWithRank(name=self.name, rank=rank)])


# -- slime -------------------------------------------------------------------------------------------------------------------


@dataclass
class Sample:
    """The fields of slime's sample that a reward touches."""

    response: str = ""
    prompt: Any = "q"
    label: Any = None
    metadata: Any = field(default_factory=dict)
    reward: Any = None
    remove_sample: bool = False

    def get_reward_value(self, args: Any) -> float:
        found = self.reward if not args.reward_key else self.reward[args.reward_key]
        return float(found)


def arguments(**given: Any) -> SimpleNamespace:
    usual: dict[str, Any] = {
        "reward_key": None,
        "eval_reward_key": None,
        "rewards_normalization": True,
        "grpo_std_normalization": True,
    }
    usual |= {"advantage_estimator": "grpo", "n_samples_per_prompt": 4, "rollout_batch_size": 1}
    return SimpleNamespace(**{**usual, **given})


def one(reward: Any, sample: Any, **args: Any) -> Any:
    """slime awaits what it called."""
    return asyncio.run(reward(arguments(**args), sample, evaluation=False))


def test_slime_one_sample_or_a_list() -> None:
    reward = slime_reward("math_verify_reward")
    assert one(reward, Sample("\\boxed{4}", label="4")) == 1.0
    assert one(reward, [Sample("\\boxed{4}", label="4"), Sample("\\boxed{5}", label="4")]) == [1.0, 0.0]
    assert one(reward, []) == []
    assert one(slime_reward(Sometimes), Sample("four<|im_end|>")) == 4.0
    # a prompt may be messages, metadata anything
    asked = [{"role": "user", "content": "2+2?"}]
    assert one(reward, Sample("\\boxed{4}", prompt=asked, label="4", metadata=None)) == 1.0
    assert one(slime_reward("math_verify_reward", reference="gold"), Sample("4", metadata={"gold": "4"})) == 1.0


def test_slime_scores_a_sample_again_as_it_did_before() -> None:
    """What an earlier call wrote into the metadata is no column."""

    def noted(messages: list[Any], **kwargs: Any) -> float:
        return float(any(name.startswith("reward_") for name in kwargs))

    sample = Sample("x", metadata={"own": 1})
    assert [one(slime_reward(noted), sample) for _ in range(2)] == [0.0, 0.0]
    assert sample.metadata["reward_status"] == "scored" and sample.metadata["own"] == 1


def test_slime_takes_a_batch_that_is_not_full_as_one_group() -> None:
    samples = [Sample(reward=float(value)) for value in (1, 0, 5)]
    args = arguments(n_samples_per_prompt=2, rollout_batch_size=2, grpo_std_normalization=False)
    assert post_process(args, samples) == ([1.0, 0.0, 5.0], [-1.0, -2.0, 3.0])
    full = [*samples, Sample(reward=1.0)]
    assert post_process(args, full)[1] == [0.5, -0.5, 2.0, -2.0]


def test_slime_has_no_word_for_no_score() -> None:
    with pytest.raises(ConfigError, match='on_error is "none"; slime needs a number'):
        slime_reward(Sometimes, on_error="none")


def test_slime_components_and_flags_under_a_reward_key() -> None:
    reward, samples = slime_reward(Sometimes), [Sample("four"), Sample("none"), Sample("fail"), Sample("sixsix")]
    assert one(reward, samples, reward_key="score") == [
        {"words": 1.0, "score": 4.0, "unscored": 0.0, "failed": 0.0},
        {"score": 5.0, "unscored": 1.0, "failed": 0.0},
        {"score": 5.0, "unscored": 0.0, "failed": 1.0},
        {"words": 1.0, "score": 6.0, "unscored": 0.0, "failed": 0.0},
    ]
    assert [sample.remove_sample for sample in samples] == [False, True, True, False]
    statuses = [sample.metadata["reward_status"] for sample in samples]
    assert statuses == ["scored", "unscored: no_reference", "failed: error", "scored"]
    assert samples[1].metadata["reward_components"] == {"score": None}
    # train on a component: one without a score has a number under that key too
    assert one(reward, Sample("none"), reward_key="words")["words"] == 0.0
    with pytest.raises(ConfigError, match="--reward-key accuracy: Sometimes gives failed, score, unscored, words;"):
        one(reward, Sample("four"), reward_key="accuracy")


def test_slime_a_trained_component_that_a_score_lacks() -> None:
    reward, samples = slime_reward(Sometimes), [Sample("four"), Sample("bare"), Sample("none")]
    found = one(reward, samples, reward_key="words", eval_reward_key="score")
    # those without it stand at the mean of those that have it, out of the loss
    assert [each["words"] for each in found] == [1.0, 1.0, 1.0]
    assert [sample.remove_sample for sample in samples] == [False, True, True]
    assert samples[1].metadata["reward_status"] == "unscored: no words"
    other = [Sample("four"), Sample("bare")]
    one(reward, other, reward_key="score", eval_reward_key="words")
    assert [sample.remove_sample for sample in other] == [False, False]


@pytest.mark.parametrize(("on_error", "found"), [("mean", [4.0, 4.0]), (-1.0, [4.0, -1.0]), (0, [4.0, 0.0])])
def test_slime_on_error(on_error: Any, found: list[float]) -> None:
    samples = [Sample("four"), Sample("none")]
    assert one(slime_reward(Sometimes, on_error=on_error), samples) == found
    assert samples[1].remove_sample


def test_slime_on_error_raise_and_misspelt() -> None:
    with pytest.raises(NoScore, match="unscored, no_reference"):
        one(slime_reward(Sometimes, on_error="raise"), Sample("none"))
    for wrong in ("none", "zero", float("nan"), True):
        with pytest.raises(ConfigError, match="on_error is"):
            slime_reward(Sometimes, on_error=wrong)


def test_slime_groups_are_compared_by_prompt() -> None:
    samples = [Sample("ab", prompt="p"), Sample("abcd", prompt="p"), Sample("x", prompt="other")]
    assert one(slime_reward(Longest), samples) == [0.5, 1.0, 1.0]


def scored(values: list[float | None]) -> list[Sample]:
    status = [{"reward_status": "scored" if value is not None else "failed: error"} for value in values]
    return [
        Sample(reward=0.0 if value is None else value, metadata=own) for value, own in zip(values, status, strict=True)
    ]


def test_slime_post_process_is_its_own_normalisation_where_all_is_scored() -> None:
    values = [1.0, 0.0, 0.25, 1.0, 0.0, 0.0, 0.0, 2.0]
    raw, done = post_process(arguments(rollout_batch_size=2), scored([*values]))
    assert raw == values
    wanted = []
    for group in (values[:4], values[4:]):
        wanted += [(v - statistics.fmean(group)) / (statistics.stdev(group) + 1e-6) for v in group]
    assert done == pytest.approx(wanted, rel=1e-12)
    assert post_process(arguments(rewards_normalization=False), scored([1.0, 0.0])) == ([1.0, 0.0], [1.0, 0.0])
    assert post_process(arguments(advantage_estimator="ppo"), scored([1.0, 0.0])) == ([1.0, 0.0], [1.0, 0.0])
    assert post_process(arguments(advantage_estimator="rloo"), scored([1.0, 0.0, 0.0, 1.0]))[1] == [
        0.5,
        -0.5,
        -0.5,
        0.5,
    ]
    assert post_process(arguments(), []) == ([], [])


@pytest.mark.parametrize(
    ("group", "wanted"),
    [
        # the two without a score change neither the mean nor the deviation, and get no advantage
        ([1.0, None, 0.0, None], [0.7071, 0.0, -0.7071, 0.0]),
        ([None, None, None, 1.0], [0.0, 0.0, 0.0, 0.0]),
        ([None, None, None, None], [0.0, 0.0, 0.0, 0.0]),
        ([1.0, 1.0, 1.0, None], [0.0, 0.0, 0.0, 0.0]),
    ],
)
def test_slime_post_process_keeps_the_unscored_out_of_the_group(group: list[float | None], wanted: list[float]) -> None:
    assert post_process(arguments(), scored(group))[1] == pytest.approx(wanted, abs=1e-4)


# -- benchmax ------------------------------------------------------------------------------------------------------------------


class Maths(BenchmaxRewards):
    """An environment of a user's: benchmax' own base class adds no reward."""

    rewards = {"correct": "math_verify_reward", "length": Sometimes, "longest": Longest}


class OnlyNumbers(Maths):
    on_error = -1.0


ASKED = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "2+2?"}]
SAID = [{"role": "assistant", "content": "\\boxed{4}"}]


def rollout(name: str, said: str = "\\boxed{4}", **args: Any) -> SimpleNamespace:
    messages = [*ASKED, {"role": "assistant", "content": said}]
    return SimpleNamespace(rollout_id=name, messages=messages, example_args={"ground_truth": "4", **args})


CALLS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "1, text": (("r", "\\boxed{4}", "4"), {"topic": "sums"}),
    "1, by name": ((), {"rollout_id": "r", "completion": SAID, "ground_truth": "4", "prompt": ASKED}),
    "2": (("r", [*ASKED, *SAID], {"ground_truth": "4"}), {}),
    "2, by name": ((), {"rollout_id": "r", "messages": [*ASKED, *SAID], "task": {"ground_truth": "4"}}),
    "2, prompt with shots": (
        ("r", [*ASKED, *SAID, *ASKED, *SAID], {"ground_truth": "4", "prompt_messages": [*ASKED, *SAID, *ASKED]}),
        {},
    ),
    "3": ((rollout("r"),), {}),
}


@pytest.mark.parametrize("call", CALLS)
def test_benchmax_generations(call: str) -> None:
    given, named = CALLS[call]
    found = asyncio.run(Maths().compute_reward(*given, **named))
    assert found == {"correct": 1.0, "length": 9.0}


def test_benchmax_group_hooks_compare_and_share_no_key_with_the_others() -> None:
    env, texts = Maths(), ["ab", "abcd"]
    conversations = [[*ASKED, {"role": "assistant", "content": text}] for text in texts]
    tasks = [{"ground_truth": "4"}, None]
    wanted = [{"longest": 0.5}, {"longest": 1.0}]
    assert asyncio.run(env.compute_group_reward(["a", "b"], conversations, [{"ground_truth": "4"}] * 2)) == wanted
    first = asyncio.run(env.compute_group_reward(["a", "b"], texts, ["4", "4"]))
    assert first == wanted
    third = asyncio.run(env.compute_group_rewards([rollout("a", "ab"), rollout("b", "abcd")]))
    assert third == {"a": {"longest": 0.5}, "b": {"longest": 1.0}}
    alone = type("Alone", (BenchmaxRewards,), {"rewards": [Sometimes]})()
    assert asyncio.run(alone.compute_group_reward(["a", "b"], conversations, tasks)) == [{}, {}]
    assert asyncio.run(alone.compute_group_rewards([rollout("a")])) is None


def test_benchmax_no_task_and_no_score() -> None:
    conversation = [*ASKED, *SAID]
    with pytest.raises(NoScore, match="correct gave no score .unscored, no_reference"):
        asyncio.run(Maths().compute_reward("r", conversation, None))
    # the same keys every time, so that the training configuration's weights hold
    assert asyncio.run(OnlyNumbers().compute_reward("r", conversation, None)) == {"correct": -1.0, "length": 9.0}
    failed = [*ASKED, {"role": "assistant", "content": "fail"}]
    assert asyncio.run(OnlyNumbers().compute_reward("r", failed, {"ground_truth": "4"})) == {
        "correct": 0.0,
        "length": -1.0,
    }


def test_benchmax_labels_a_rollout_with_what_went_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    class RolloutFailure(RuntimeError):
        def __init__(self, termination_reason: str, message: str) -> None:
            super().__init__(message)
            self.termination_reason = termination_reason

    module = ModuleType("benchmax.envs.shared_types")
    module.RolloutFailure = RolloutFailure  # type: ignore[attr-defined]
    for name in ("benchmax", "benchmax.envs"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "benchmax.envs.shared_types", module)
    for said, truth, reason in (("fail", "4", "judge_error"), ("4", None, "reward_error")):
        with pytest.raises(RolloutFailure) as caught:
            asyncio.run(Maths().compute_reward(rollout("r", said, ground_truth=truth)))
        assert caught.value.termination_reason == reason


def test_benchmax_misuse_and_pickling() -> None:
    env = Maths()
    asyncio.run(env.compute_reward(*CALLS["2"][0]))
    again = pickle.loads(pickle.dumps(env))
    assert asyncio.run(again.compute_reward(*CALLS["3"][0])) == {"correct": 1.0, "length": 9.0}
    cases: list[tuple[Any, str]] = [
        ({}, "rewards is empty"),
        ([Sometimes, Sometimes], "two rewards are called 'Sometimes'"),
        ({"a": {"llm": "x"}}, "rewards\\['a'\\] names no reward; its keys: llm"),
        (["math_verify"], "math_verify_reward"),
    ]
    for rewards, said in cases:
        with pytest.raises(ConfigError, match=said):
            type("Wrong", (BenchmaxRewards,), {"rewards": rewards})().scorers()
    missing = type("Missing", (BenchmaxRewards,), {"rewards": [Sometimes], "reference": "gold"})()
    with pytest.raises(ConfigError, match="no column 'gold'; the columns are: ground_truth"):
        asyncio.run(missing.compute_reward("r", [*ASKED, *SAID], {"ground_truth": "4"}))
