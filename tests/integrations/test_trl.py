"""The reward functions for TRL: one object for every way of calling, honest about what has no
score.
"""

from __future__ import annotations

import asyncio
import math
import pickle
from importlib.metadata import PackageNotFoundError
from inspect import isawaitable, iscoroutinefunction
from types import SimpleNamespace
from typing import Any

import pytest

from rm_gallery import (
    ConfigError,
    DataSample,
    EvaluateResult,
    FakeLLM,
    MetricResult,
    RewardResult,
    Unscored,
    reward_function,
)
from rm_gallery.integrations import trl as adapter
from rm_gallery.integrations.trl import trl_components, trl_reward, trl_rewards
from tests.integrations.adapters import Cost, Moody

CALL: dict[str, Any] = {
    "prompts": ["What is 2+2?"] * 4, "completions": ["\\boxed{4}", "5", "fail", "none"],
    "completion_ids": [[1], [1, 2], [1], [1]], "solution": ["4", "4", "4", None], "trainer_state": object(),
    "environments": [object()] * 4, "some_new_helper": print,
}  # fmt: skip
MATH = [1.0, 0.0, 0.0, None]


CALLS: list[str] = []


@reward_function(score_range=(0.0, 1.0))
def parts(messages: list[Any], **kwargs: Any) -> EvaluateResult:
    """Two metrics; the second only for short answers."""
    text = messages[-1].text
    CALLS.append(text)
    metrics = {"length": MetricResult(score=float(len(text)))}
    if len(text) < 2:
        metrics["short"] = MetricResult(score=1.0)
    return EvaluateResult(score=0.5, reason="", metrics=metrics)


def test_called_plainly_it_returns_a_list_and_in_a_loop_what_can_be_awaited_or_iterated_over() -> (
    None
):
    reward = trl_reward("math_verify_reward", reference="solution")
    assert reward(**CALL) == MATH

    async def in_a_loop() -> list[Any]:
        later = reward(**CALL)
        assert isawaitable(later) and not iscoroutinefunction(reward)
        other = reward(**CALL)
        return [
            await later,
            list(other),
            len(other),
            other[0],
            other[-1:],
            await asyncio.gather(reward(**CALL)),
        ]

    assert asyncio.run(in_a_loop()) == [MATH, MATH, 4, 1.0, [None], [MATH]]
    # what TRL >= 1.14 looks at, in its rollout process too
    for one in (reward, *trl_components(parts, ["length", "short"])):
        again = pickle.loads(pickle.dumps(one))
        assert iscoroutinefunction(one.__call__) and iscoroutinefunction(again.__call__)
        assert again(**CALL) == one(**CALL) and again.__name__ == one.__name__


def test_the_outcomes_stand_in_the_charts_and_the_table() -> None:
    metrics, table = dict[str, float](), dict[str, list[Any]]()
    trl_reward(parts, name="p")(**CALL, log_metric=metrics.__setitem__, log_extra=table.__setitem__)
    trl_reward(Moody)(**CALL, log_metric=metrics.__setitem__, log_extra=table.__setitem__)
    wanted = {
        "p": {"unscored": 0.0, "failed": 0.0, "length": 4.5, "short": 1.0},
        "Moody": {"unscored": 0.25, "failed": 0.25, "words": 1.0},
    }
    assert metrics == {
        f"rewards/{name}/{key}": value for name, own in wanted.items() for key, value in own.items()
    }
    assert table["p/short"] == [None, 1.0, None, None]
    assert table["Moody/outcome"] == ["scored", "scored", "error", "no_reference"]
    assert table["Moody/message"] == [
        "",
        "",
        "ConnectionError: the judge is gone",
        "nothing to judge by",
    ]
    trl_reward(parts, logs=False)(**CALL, log_metric=pytest.fail)


@pytest.mark.parametrize(
    ("processes", "installed", "components"),
    [
        ("2", "1.13.0", False),
        ("2", "1.14.0", True),
        ("2", "1.16.0.dev0", True),
        ("2", None, False),
        ("1", None, True),
    ],
)
def test_processes_that_must_log_the_same_names_log_no_components(
    processes: str, installed: str | None, components: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def version(package: str) -> str:
        if installed is None:
            raise PackageNotFoundError(package)
        return installed

    monkeypatch.setenv("WORLD_SIZE", processes)
    monkeypatch.setattr(adapter, "version", version)
    adapter._names_may_differ.cache_clear()
    metrics = dict[str, float]()
    trl_reward(parts)(**CALL, log_metric=metrics.__setitem__)
    adapter._names_may_differ.cache_clear()
    assert ("rewards/parts/length" in metrics) is components and "rewards/parts/failed" in metrics


def test_a_completion_that_one_reward_failed_at_has_no_reward_from_any() -> None:
    metrics = dict[str, float]()
    together = trl_rewards(
        [Moody, {"reward": "math_verify_reward", "reference": "solution"}, parts]
    )
    found = [reward(**CALL, log_metric=metrics.__setitem__) for reward in together]
    assert found == [[9.0, 1.0, None, None], [1.0, 0.0, None, None], [0.5, 0.5, None, 0.5]]
    assert metrics["rewards/dropped"] == 0.25 and metrics["rewards/parts/failed"] == 0.0

    async def gathered() -> Any:
        return await asyncio.gather(*(reward(**CALL) for reward in together))

    assert asyncio.run(gathered()) == found
    number = trl_rewards(
        [{"reward": Moody, "on_error": -1}, "math_verify_reward"], reference="solution"
    )
    assert [reward(**CALL) for reward in number] == [[9.0, 1.0, -1.0, -1.0], MATH]
    alone = trl_rewards([Moody, "math_verify_reward"], reference="solution", together=False)
    assert [reward(**CALL) for reward in alone] == [[9.0, 1.0, None, None], MATH]


def test_a_verdict_that_could_not_be_read_drops_the_completion_and_one_not_asked_for_does_not() -> (
    None
):
    class Unread(Moody):
        def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
            raise Unscored("no verdict", reason=sample.output[0].answer.text)

    reasons = ["parse", "truncated", "content_filter", "no_logprobs", "no_reference"]
    found = [
        reward(prompts=["q"] * 5, completions=reasons) for reward in trl_rewards([parts, Unread()])
    ]
    assert found == [[None] * 4 + [0.5], [None] * 5]


def test_names_are_apart_and_a_judge_is_for_those_that_ask() -> None:
    rewards = trl_rewards(
        [
            "math_verify_reward",
            "math_verify_reward",
            {"reward": Moody, "name": "mood"},
            "base_helpfulness_pointwise",
        ],
        llm=FakeLLM(reply="<score>3</score>"),
    )
    names = ["math_verify_reward", "math_verify_reward_2", "mood", "base_helpfulness_pointwise"]
    assert [reward.__name__ for reward in rewards] == names
    assert rewards[3](prompts=["q"], completions=["a"]) == [3.0]
    assert repr(rewards[1]) == "trl_reward('math_verify_reward_2')"
    made = trl_rewards(
        [
            trl_reward(Moody),
            trl_reward("math_verify_reward", reference="solution"),
            {"reward": Moody},
        ]
    )
    assert [reward.__name__ for reward in made] == ["Moody", "math_verify_reward", "Moody_2"]
    assert [reward(**CALL) for reward in made] == [
        [9.0, 1.0, None, None],
        [1.0, 0.0, None, None],
        [9.0, 1.0, None, None],
    ]
    with pytest.raises(ConfigError, match="use trl_reward for one"):
        trl_rewards("accuracy")


def test_a_function_of_trls_own_kind_goes_to_the_trainer_as_it_is() -> None:
    def native(completions: list[str], **kwargs: Any) -> list[float]:
        return [1.0 for _ in completions]

    for make in (lambda: trl_reward(native), lambda: trl_rewards([native])):
        with pytest.raises(
            ConfigError, match="native takes completions, so it is a reward function of TRL already"
        ):
            make()

    def both(messages: list[Any], completions: Any = None, **kwargs: Any) -> float:
        return 1.0

    assert trl_reward(both, worst=0.0)(prompts=["q"], completions=["a"]) == [1.0]


def test_components_are_scored_once() -> None:
    CALLS.clear()
    rewards = trl_components(parts, ["length", "short"])
    for _ in range(2):
        assert [reward(**CALL) for reward in rewards] == [
            [9.0, 1.0, 4.0, 4.0],
            [None, 1.0, None, None],
        ]
    assert len(CALLS) == 8

    async def gathered() -> Any:
        return await asyncio.gather(*(reward(**CALL) for reward in rewards))

    assert asyncio.run(gathered())[0] == [9.0, 1.0, 4.0, 4.0]
    assert len(CALLS) == 12
    given = [{**CALL, "completions": [*CALL["completions"]]} for _ in range(66)]
    for call in given:
        rewards[0](**call)
    CALLS.clear()
    for call in given[2:]:
        rewards[1](**call)
    assert not CALLS, "64 batches are kept for the function that has not asked yet"
    rewards[1](**given[0])
    assert len(CALLS) == 4
    with pytest.raises(ConfigError, match="each once"):
        trl_components(parts, ["length", "length"])
    (part,) = trl_components("accuracy", "words")
    assert part.__name__ == "accuracy/words"
    for reward in trl_components("math_verify_reward", ["a", "b"], reference="gold"):
        with pytest.raises(
            ConfigError, match="no column 'gold'; the columns are: completion_ids, solution"
        ):
            reward(**CALL)


@pytest.mark.parametrize("cancelled", [0, 1])
def test_a_function_that_is_cancelled_costs_the_others_nothing(cancelled: int) -> None:
    @reward_function(score_range=(0.0, 1.0))
    async def slow(messages: list[Any], **kwargs: Any) -> float:
        await asyncio.sleep(0.1)
        return 1.0

    async def main() -> Any:
        going = [
            asyncio.ensure_future(reward.ascored(**CALL)) for reward in trl_rewards([slow, parts])
        ]
        await asyncio.sleep(0.05)
        going[cancelled].cancel()
        return await asyncio.gather(*going, return_exceptions=True)

    found = asyncio.run(main())
    assert isinstance(found[cancelled], asyncio.CancelledError)
    assert found[1 - cancelled] == [[1.0] * 4, [0.5] * 4][1 - cancelled]


def test_what_may_be_a_mistake_is_said_once(warned: list[str]) -> None:
    reward = trl_components(parts, ["lenght"])[0]
    assert [reward(**CALL), reward(**CALL)] == [[None] * 4] * 2
    trl_reward(Cost)
    assert len(warned) == 2
    assert (
        "no completion of a batch has the component 'lenght'; there are: length, short" in warned[0]
    )
    assert "set a negative weight" in warned[1]


def test_token_ids_are_a_column_and_environments_only_where_they_are_named() -> None:
    seen: list[Any] = []

    def looks(messages: list[Any], **columns: Any) -> float:
        seen.append(columns)
        return 1.0

    one = {
        name: values[:1] if isinstance(values, list) else values for name, values in CALL.items()
    }
    trl_reward(looks, worst=0.0)(**one)
    trl_reward(looks, worst=0.0, columns={"world": "environments"})(**one)
    assert {name: seen[0].get(name) for name in CALL} == {
        **dict.fromkeys(CALL),
        "completion_ids": [1],
        "solution": "4",
    }
    assert seen[1]["world"] is CALL["environments"][0]


def test_length_rewards_measure_by_the_trainers_tokens() -> None:
    n = 200
    right = [number % 2 == 1 for number in range(n)]
    lengths = [2 * number for number in range(n)]
    batch: dict[str, Any] = {
        "prompts": ["q"] * n,
        "completions": ["42" if each else "41" for each in right],
        "completion_ids": [[7] * length for length in lengths],
        "solution": ["42"] * n,
    }
    # DAPO (arXiv 2503.14476), equation 13, and arXiv 2502.03373, appendix C.1, with TRL's constants
    overlong = [0.0 if m <= 240 else -1.0 if m > 300 else (240 - m) / 60 for m in lengths]
    cosine = []
    for m, good in zip(lengths, right, strict=True):
        wave = (1 + math.cos(math.pi * min(m / 300, 1))) / 2
        cosine.append(0.5 + 0.5 * wave if good else -0.5 - 0.5 * wave)
    ours = trl_reward(
        "dapo_soft_overlong_punishment", unit="tokens", max_length=300, cache=60, logs=False
    )(**batch)
    assert ours == pytest.approx(overlong, abs=1e-9)
    ours = trl_reward(
        "cosine_length_scaling", unit="tokens", max_length=300, reference="solution", logs=False
    )(**batch)
    assert ours == pytest.approx(cosine, abs=1e-9)


@pytest.mark.parametrize("kind", ["plain", "async", "batch"])
def test_the_trainers_state_reaches_functions_that_name_it_and_no_others(kind: str) -> None:
    state = SimpleNamespace(global_step=7)

    def plain(messages: Any, trainer_state: Any = None) -> float:
        return trainer_state.global_step / 10 if trainer_state else 0.0

    async def later(messages: Any, trainer_state: Any = None) -> float:
        return plain(messages, trainer_state)

    def batch(rollouts_messages: Any, trainer_state: Any = None, **_: Any) -> list[float]:
        return [plain(messages, trainer_state) for messages in rollouts_messages]

    def other(messages: Any, **kwargs: Any) -> float:
        return float("trainer_state" in kwargs)

    given: Any = {"plain": plain, "async": later, "batch": reward_function(mode="batch")(batch)}[
        kind
    ]
    asked: dict[str, Any] = {
        "prompts": ["q", "q"],
        "completions": ["a", "b"],
        "trainer_state": state,
    }
    assert trl_reward(given, worst=0.0)(**asked) == [0.7, 0.7]
    assert trl_reward(other)(**asked) == [0.0, 0.0]
