"""verl: which form is async, which prompt is asked with, and what a configuration on the command
line may say.
"""

from __future__ import annotations

import asyncio
import inspect
import random
import sys
import threading
import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from rm_gallery import ConfigError, FakeLLM, reward_function
from rm_gallery.integrations import verl
from rm_gallery.integrations.verl import (
    GroupRewardManager,
    RolloutGroups,
    verl_overrides,
    verl_reward,
)
from tests.integrations.adapters import Moody
from tests.integrations.test_adapters import shortest
from tests.support.judge_server import JudgeServer


def test_the_async_form_is_told_from_the_blocking_one() -> None:
    awaited, blocking = verl_reward(Moody), verl_reward(Moody, sync=True)
    assert inspect.iscoroutinefunction(awaited) and inspect.iscoroutinefunction(verl.compute_score)
    assert not inspect.iscoroutinefunction(blocking) and not inspect.iscoroutinefunction(
        verl.compute_score_sync
    )
    asked = {
        "data_source": "x",
        "solution_str": "four",
        "ground_truth": "4",
        "extra_info": {"question": "q"},
    }
    found = asyncio.run(awaited(**asked, reward_router_address="h:1"))
    assert found == blocking(**asked, reward_router_address="h:1") and found["score"] == 4.0


def test_it_asks_with_the_first_prompt_there_is_and_verls_own_truth_wins() -> None:
    @reward_function(score_range=(0, 13))
    def told(
        messages: list[Any], ground_truth: Any = None, data_source: Any = None, **kwargs: Any
    ) -> float:
        assert data_source == "x"
        return float(
            {"p": 1, "r": 2, "q": 4, "o": 5}[messages[0].text] + 8 * (ground_truth == "own")
        )

    reward = verl_reward(told, worst=0.0, sync=True)
    infos: list[dict[str, Any]] = [
        {"question": "q", "raw_prompt": "r", "prompt": "p"},
        {"question": "q", "raw_prompt": "r", "prompt": None},
        {"question": "q"},
    ]
    beside = {"ground_truth": "of the row", "data_source": "of the row"}
    assert [reward("x", "a", "own", {**info, **beside})["score"] for info in infos] == [
        9.0,
        10.0,
        12.0,
    ]
    named = verl_reward(told, worst=0.0, sync=True, prompt="other")
    assert named("x", "a", "own", {"prompt": "p", "other": "o"})["score"] == 13.0
    with pytest.raises(
        ConfigError,
        match=r"no key 'other' \(prompt=\); its keys: data_source, ground_truth, prompt",
    ):
        named("x", "a", "own", {"prompt": "p"})


def test_a_batch_is_scored_as_one_by_one_without_infos_too() -> None:
    texts, golds = ["\\boxed{4}", "5", "4"], ["4", "4", None]
    batch = verl.compute_scores(["x"] * 3, texts, golds, reward="math_verify_reward")
    rows = zip(texts, golds, strict=True)
    single = [
        verl.compute_score_sync("x", text, gold, reward="math_verify_reward") for text, gold in rows
    ]
    assert batch == single and [each["score"] for each in batch] == [1.0, 0.0, 0.5]
    assert (
        asyncio.run(verl.compute_score("x", "4", "4", None, reward="math_verify_reward"))
        == batch[0]
    )


def test_responses_of_unknown_prompts_are_not_compared() -> None:
    reward = verl.VerlReward("base_helpfulness_listwise", llm=FakeLLM(reply="<best>1</best>"))
    with pytest.raises(ConfigError, match="extra_info holds no prompt.*prompt=.*ground_truth"):
        reward.compute_scores(["x"] * 2, ["a", "b"], ["4", "4"])
    found = reward.compute_scores(["x"] * 2, ["a", "b"], ["4", "4"], [{"prompt": "2+2?"}] * 2)
    assert sorted(each["score"] for each in found) == [0.0, 1.0]


def test_extra_info_is_read_from_arrays_and_left_alone() -> None:
    import numpy as np

    info = {
        "question": np.array([{"role": "user", "content": "q"}], dtype=object),
        "other": np.int64(7),
    }
    reward = verl_reward("math_verify_reward", reference="gold", columns={"id": "other"}, sync=True)
    there = "data_source, ground_truth, other, question"
    with pytest.raises(ConfigError, match=f"no column 'gold'; the columns are: {there}"):
        reward("x", "4", None, info)
    info["gold"] = np.array(["4"])
    before = dict(info)
    assert reward("x", "4", None, info)["score"] == 1.0 and info == before
    # from then on a row without it is a failed one, and the training goes on
    assert reward("x", "4", None, {"other": 1})["failed"] == 1.0


@pytest.mark.parametrize(("settings", "message"), [
    ({}, "No reward is named; add .*reward_kwargs.reward=NAME"),
    ({"reward": "math_verify_reward", "base_url": "router"}, "verl serves no reward model; set reward.reward_model"),
    ({"reward": "math_verify_reward", "components": ["acc"]}, "components names 'acc'"),
])  # fmt: skip
def test_what_is_wrong_with_a_configuration_is_said(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        verl.compute_score_sync("x", "4", "4", None, **settings)
    with pytest.raises(ConfigError, match="write a file with verl_reward"):
        verl_overrides("x", llm=object())


def test_the_router_of_verl_is_an_endpoint_of_openais_kind() -> None:
    with (
        JudgeServer("fixed:<score>4</score>") as router,
        JudgeServer("fixed:<score>2</score>") as other,
    ):
        settings = {"reward": "base_helpfulness_pointwise", "llm": "a-model", "base_url": "router"}
        found = [
            verl.compute_score_sync(
                "x", "4", None, None, **settings, reward_model_tokenizer=object(),
                reward_router_address=server.base_url.removeprefix("http://").removesuffix("/v1"),
            )["score"]
            for server in (router, other, router)
        ]  # fmt: skip
    assert found == [4.0, 2.0, 4.0]


# -- groups ----------------------------------------------------------------------------------------


class Calls:
    """A function of a batch: of each text the share that the shortest has of it. Notes its calls."""

    def __init__(self, error: Exception | None = None) -> None:
        self.groups: list[tuple[str, ...]] = []
        self.kwargs: dict[str, Any] = {}
        self.error = error

    def __call__(
        self,
        data_sources: Sequence[Any],
        solution_strs: Sequence[str],
        ground_truths: Sequence[Any],
        extra_infos: Sequence[Any],
        **kwargs: Any,
    ) -> list[dict[str, float]]:
        self.groups.append(tuple(solution_strs))
        self.kwargs = kwargs
        time.sleep(0.01)
        if self.error is not None:
            raise self.error
        assert {len(data_sources), len(ground_truths), len(extra_infos)} == {len(solution_strs)}
        shortest_one = min(map(len, solution_strs))
        return [{"score": shortest_one / len(text)} for text in solution_strs]


def said(text: str, **more: Any) -> dict[str, Any]:
    own = {"data_source": "d", "solution_str": text, "ground_truth": "4", "extra_info": {}}
    return {**own, **more}


def gathering(calls: Calls, scenario: Callable[[RolloutGroups], Any], wait: float = 30.0) -> Any:
    """What the scenario gives, with groups in a loop of its own."""

    async def run() -> Any:
        return await scenario(RolloutGroups(lambda: calls, wait))

    return asyncio.run(run())


TEXTS = ("aaaa", "aa", "aaaaa", "aaaaaaaa")
SHARES = (0.5, 1.0, 0.4, 0.25)


NAIVE = "verl.experimental.reward_loop.reward_manager.naive"


class NaiveManager:
    """verl's manager: hands over the sample of a batch of one."""

    def __init__(self, config: Any, tokenizer: Any, compute_score: Any, **served: Any) -> None:
        self.compute_score = compute_score

    async def run_single(self, data: Any) -> Any:
        return await self.compute_score(**data[-1:][0].sample)


def rollout(sample: dict[str, Any]) -> Any:
    return [SimpleNamespace(non_tensor_batch={"uid": "u"}, sample=sample)]


class Config(SimpleNamespace):
    """Settings by their names, as verl's configuration has them."""

    def get(self, name: str, default: Any) -> Any:
        return getattr(self, name, default)


def manager_config(trained: int, validated: int) -> Config:
    rollouts = Config(n=trained, val_kwargs=Config(n=validated))
    return Config(
        reward=Config(custom_reward_function=Config(path="here"), num_workers=1, group_timeout=60),
        actor_rollout_ref=Config(rollout=rollouts),
        trainer=Config(test_freq=1, val_before_train=True, val_only=False),
        data=Config(train_batch_size=4),
    )


@pytest.mark.parametrize("seed", range(8))
def test_rollouts_of_many_prompts_come_in_any_order_and_at_once(seed: int) -> None:
    calls, rolling = Calls(), random.Random(seed)
    wanted = [(f"u{group}", place) for group in range(20) for place in range(4)]
    rolling.shuffle(wanted)

    async def all_at_once(groups: RolloutGroups) -> Any:
        async def one(group: str, place: int) -> Any:
            await asyncio.sleep(rolling.random() / 50)
            return await groups.score(group, 4, said(TEXTS[place]))

        return await asyncio.gather(*(one(*each) for each in wanted))

    found = gathering(calls, all_at_once)
    assert [each["score"] for each in found] == [SHARES[place] for _, place in wanted]
    assert {each["incomplete"] for each in found} == {0.0}
    assert len(calls.groups) == 20 and {tuple(sorted(each)) for each in calls.groups} == {
        tuple(sorted(TEXTS))
    }


def test_a_group_that_does_not_fill_up_is_compared_as_far_as_it_came() -> None:
    calls = Calls()

    async def two_of_four(groups: RolloutGroups) -> Any:
        both = asyncio.gather(*(groups.score("u", 4, said(text)) for text in TEXTS[::2]))
        full = asyncio.gather(*(groups.score("v", 4, said(text)) for text in TEXTS))
        return [*await both, *await full]

    found = gathering(calls, two_of_four, wait=0.1)
    assert [(each["score"], each["incomplete"]) for each in found] == [
        (1.0, 1.0),
        (0.8, 1.0),
        *((share, 0.0) for share in SHARES),
    ]


def test_the_wait_begins_anew_with_each_rollout() -> None:
    async def slowly(groups: RolloutGroups) -> Any:
        async def one(place: int) -> Any:
            await asyncio.sleep(0.25 * place)
            return await groups.score("u", 4, said(TEXTS[place]))

        return await asyncio.gather(*map(one, range(4)))

    found = gathering(Calls(), slowly, wait=0.6)
    assert [(each["score"], each["incomplete"]) for each in found] == [
        (share, 0.0) for share in SHARES
    ]


def test_the_last_rollout_may_come_as_the_wait_ends() -> None:
    async def at_the_edge(groups: RolloutGroups) -> Any:
        async def one(place: int) -> Any:
            await asyncio.sleep(place * 0.02)
            return await groups.score("u", 2, said(TEXTS[place]))

        return await asyncio.gather(*map(one, range(2)))

    for wait in (0.0185, 0.019, 0.0195, 0.02, 0.0205, 0.021) * 3:
        first, second = gathering(Calls(), at_the_edge, wait=wait)
        # together, or the second is late and is compared with the first
        assert second["score"] == 1.0 and second["incomplete"] == 0.0
        assert (first["score"], first["incomplete"]) in {(0.5, 0.0), (1.0, 1.0)}


def test_a_late_rollout_is_compared_with_those_before_it() -> None:
    calls = Calls()

    async def late(groups: RolloutGroups) -> Any:
        early = asyncio.gather(*(groups.score("u", 4, said(text)) for text in TEXTS[1:3]))
        return [*await early, *[await groups.score("u", 4, said(text)) for text in TEXTS[3:] * 2]]

    found = gathering(calls, late, wait=0.05)
    assert [(each["score"], each["incomplete"]) for each in found] == [
        (1.0, 1.0),
        (0.4, 1.0),
        (0.25, 1.0),
        (0.25, 1.0),
    ]
    assert [len(each) for each in calls.groups] == [2, 3, 3]

    async def one_more(groups: RolloutGroups) -> Any:
        await asyncio.gather(*(groups.score("u", 4, said(text)) for text in TEXTS))
        return await groups.score("u", 4, said("aa"))

    assert gathering(Calls(), one_more) == {"score": 1.0, "incomplete": 0.0}


@pytest.mark.parametrize("cancelled", [0, 1, 3])
def test_a_cancelled_rollout_leaves_the_others_to_be_compared(cancelled: int) -> None:
    calls = Calls()

    async def one_cancelled(groups: RolloutGroups) -> Any:
        tasks = [asyncio.ensure_future(groups.score("u", 4, said(text))) for text in TEXTS[:3]]
        await asyncio.sleep(0)
        if cancelled < 3:
            tasks[cancelled].cancel()
        tasks.append(asyncio.ensure_future(groups.score("u", 4, said(TEXTS[3]))))
        await asyncio.sleep(0)
        if cancelled == 3:  # while they are scored
            tasks[3].cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    found = gathering(calls, one_cancelled)
    assert isinstance(found.pop(cancelled), asyncio.CancelledError)
    assert [each["score"] for each in found] == [
        share for place, share in enumerate(SHARES) if place != cancelled
    ]
    assert calls.groups == [TEXTS]


def test_a_group_of_one_does_not_wait() -> None:
    calls = Calls()

    async def alone(groups: RolloutGroups) -> Any:
        sample = said("aa", reward_router_address="h:1")
        return [await groups.score("u", 1, sample) for _ in range(2)]

    assert gathering(calls, alone) == [{"score": 1.0, "incomplete": 0.0}] * 2
    assert calls.groups == [("aa",), ("aa",)] and calls.kwargs == {"reward_router_address": "h:1"}


def test_what_the_function_raises_reaches_all_of_the_group_and_no_other() -> None:
    calls = Calls(error=RuntimeError("stop"))

    async def broken(groups: RolloutGroups) -> Any:
        first = await asyncio.gather(
            *(groups.score("u", 4, said(text)) for text in TEXTS), return_exceptions=True
        )
        calls.error = None
        second = await asyncio.gather(*(groups.score("v", 4, said(text)) for text in TEXTS))
        return first, second

    first, second = gathering(calls, broken)
    assert [str(each) for each in first] == ["stop"] * 4 and len(calls.groups) == 2
    assert [each["score"] for each in second] == list(SHARES)


def test_groups_are_scored_at_once_beside_the_loop() -> None:
    there, going = threading.Barrier(3, timeout=20), threading.Event()

    class Meeting(Calls):
        def __call__(self, *given: Any, **kwargs: Any) -> list[dict[str, float]]:
            there.wait()
            assert going.wait(20)
            return super().__call__(*given, **kwargs)

    async def three(groups: RolloutGroups) -> Any:
        asked = [groups.score(f"u{at}", 2, said(text)) for at in range(3) for text in TEXTS[:2]]
        tasks = asyncio.gather(*asked)
        await asyncio.sleep(0)
        going.set()
        return await tasks

    assert [each["score"] for each in gathering(Meeting(), three)] == [0.5, 1.0] * 3


def test_old_groups_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verl, "_KEPT_GROUPS", 2)
    calls = Calls()

    async def four_groups(groups: RolloutGroups) -> Any:
        for at in range(4):
            await asyncio.gather(*(groups.score(f"u{at}", 2, said(text)) for text in TEXTS[:2]))
        return [await groups.score(f"u{at}", 2, said("a")) for at in (0, 3)]

    forgotten, kept = gathering(calls, four_groups, wait=0.05)
    assert (forgotten["incomplete"], kept["incomplete"]) == (1.0, 0.0)
    assert calls.groups[-2:] == [("a",), ("aaaa", "aa", "a")]


def test_a_reward_that_compares_is_called_with_the_group() -> None:
    reward = verl_reward(shortest)
    assert reward.__name__ == "compute_scores" and not inspect.iscoroutinefunction(reward)

    async def group(groups: RolloutGroups) -> Any:
        asked = {"extra_info": {"prompt": "2+2?"}}
        return await asyncio.gather(*(groups.score("u", 4, said(text, **asked)) for text in TEXTS))

    async def run() -> Any:
        return await group(RolloutGroups(lambda: reward, 30.0))

    found = asyncio.run(run())
    assert found == [
        {"score": share, "acc": share, "unscored": 0.0, "failed": 0.0, "incomplete": 0.0}
        for share in SHARES
    ]


@pytest.mark.parametrize(("split", "size"), [("test", 3), ("val", 3), ("train", 2)])
def test_a_group_of_validation_is_as_large_as_validation_makes_it(
    split: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scored as soon as it is full, and not before: nothing comes after it, and the wait is long."""
    calls = Calls()
    config = manager_config(trained=2, validated=3)
    monkeypatch.setitem(sys.modules, NAIVE, SimpleNamespace(NaiveRewardManager=NaiveManager))
    manager = GroupRewardManager(config, None, calls)

    async def all_but_one_then_it() -> Any:
        info = {"extra_info": {"split": split}}
        first = [
            asyncio.ensure_future(manager.run_single(rollout(said(text, **info))))
            for text in TEXTS[: size - 1]
        ]
        await asyncio.sleep(0.02)
        assert calls.groups == []
        last = await manager.run_single(rollout(said(TEXTS[size - 1], **info)))
        return [*(await asyncio.gather(*first)), last]

    found = asyncio.run(all_but_one_then_it())
    assert calls.groups == [TEXTS[:size]]
    assert [each["incomplete"] for each in found] == [0.0] * size


def test_the_overrides_for_groups_name_the_manager() -> None:
    assert verl_overrides("ruler", groups=True, llm="a-model") == [
        "reward.custom_reward_function.path=pkg://rm_gallery.integrations.verl",
        "reward.custom_reward_function.name=compute_scores",
        "+reward.custom_reward_function.reward_kwargs.reward='ruler'",
        "+reward.custom_reward_function.reward_kwargs.llm='a-model'",
        "reward.reward_manager.source=importlib",
        "reward.reward_manager.name=GroupRewardManager",
        "reward.reward_manager.module.path=pkg://rm_gallery.integrations.verl",
    ]


@pytest.mark.parametrize("asked", [
    lambda: verl_reward(shortest, sync=True),
    lambda: asyncio.run(verl.VerlReward(shortest).compute_score("d", "a", "4")),
    lambda: verl.VerlReward(shortest).compute_score_sync("d", "a", "4"),
    lambda: verl_reward(shortest)("d", solution_str="a", ground_truth="4", extra_info={}),
])  # fmt: skip
def test_one_sample_of_what_compares_is_refused_in_a_line(asked: Callable[[], Any]) -> None:
    with pytest.raises(ConfigError, match="`compute_scores`.*GroupRewardManager") as refused:
        asked()
    assert "\n" not in str(refused.value)


def test_the_remote_manager_knows_no_groups() -> None:
    with pytest.raises(ConfigError, match=r"remote manager \(sync=\) knows no groups"):
        verl_overrides("ruler", groups=True, sync=True)
