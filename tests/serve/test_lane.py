"""The lane of a reward: what is asked together, what stops and what breaks, and that the next
request goes on.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from rm_gallery import (
    BaseListWiseReward,
    BasePointWiseReward,
    ConfigError,
    DataSample,
    EvaluateResult,
    RewardResult,
    Score,
    reward_function,
)
from rm_gallery.core.engine.context import current_run
from rm_gallery.integrations.scoring import RowScorer
from rm_gallery.serve import handler as module
from rm_gallery.serve.formats import Ask, Refused
from rm_gallery.serve.handler import Handler, RewardLane, sample_of
from tests.reward.rewards import ranked, scored


class Plain(BasePointWiseReward):
    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        return _obey(self.name, sample.output[0].answer.text)


class Awaiting(BasePointWiseReward):
    async def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        text = sample.output[0].answer.text
        if text.startswith("wait "):
            await asyncio.sleep(float(text.removeprefix("wait ")))
            text = "1"
        return _obey(self.name, text)


def _obey(name: str, text: str) -> RewardResult:
    if text.startswith("wait "):
        time.sleep(float(text.removeprefix("wait ")))
        return scored(name, 1.0)
    if text == "misconfigured":
        raise ConfigError("the key of the judge is missing")
    if text == "stop":
        run = current_run.get()
        assert run is not None
        run.stop("the judge is away", halt=True)
        raise ValueError("away")
    if text == "raise":
        raise ValueError("no")
    return scored(name, float(text))


def asked(reward: Any, go: Callable[[RewardLane], Awaitable[Any]], **settings: Any) -> Any:
    async def main() -> Any:
        lane = RewardLane("r", reward, **{"max_waiting": 100, "max_workers": 8, **settings})
        try:
            return await asyncio.wait_for(go(lane), 120)
        finally:
            lane.close()

    return asyncio.run(main())


def asks(*texts: str) -> list[Ask]:
    return [Ask(prompt="q", completion=text) for text in texts]


@pytest.mark.parametrize("given", [0, -3, 2.5])
def test_max_workers_of_a_server_is_a_positive_whole_number(given: Any) -> None:
    with pytest.raises(ConfigError, match=r"max_workers is .+; give a positive whole number"):
        RewardLane("r", Plain(), max_waiting=1, max_workers=given)


BOTH = pytest.mark.parametrize("reward", [Plain(), Awaiting()], ids=["plain", "async"])


def told(found: list[Score[float]]) -> list[Any]:
    return [each.value if each.value is not None else each.code for each in found]


@BOTH
def test_each_ask_has_its_own_outcome(reward: Any) -> None:
    async def go(lane: RewardLane) -> Any:
        one = asyncio.gather(*(lane.score(asks(str(i)), 60) for i in range(50)))
        many = lane.score(asks("7", "raise", "8"), 60)
        return [told(each) for each in await one], told(await many)

    one, many = asked(reward, go)
    assert one == [[float(i)] for i in range(50)]
    assert many == [7.0, "error", 8.0]


@BOTH
def test_what_is_late_costs_only_itself(reward: Any) -> None:
    async def go(lane: RewardLane) -> Any:
        slow, quick = await asyncio.gather(
            lane.score(asks("1", "wait 8"), 3.0), lane.score(asks("2"), 60)
        )
        return told(slow), told(quick), lane.waiting

    assert asked(reward, go) == ([1.0, "deadline"], [2.0], 0)


@BOTH
def test_who_waits_in_vain_is_not_judged(reward: Any) -> None:
    async def go(lane: RewardLane) -> Any:
        first = asyncio.ensure_future(lane.score(asks("wait 0.6"), 60))
        await asyncio.sleep(0.1)
        late = told(await lane.score(asks("wait 90"), 0.2))
        # the next one has its turn at once: who waited in vain would take all its time
        return told(await first), late, told(await lane.score(asks("3"), 60))

    assert asked(reward, go, max_workers=1) == ([1.0], ["deadline"], [3.0])


@BOTH
@pytest.mark.parametrize(("text", "reason"), [("misconfigured", "config"), ("stop", "error")])
def test_a_run_that_ends_is_followed_by_another(reward: Any, text: str, reason: str) -> None:
    async def go(lane: RewardLane) -> Any:
        found = [told(await lane.score(asks("1"), 60)), told(await lane.score(asks(text), 60))]
        broken = bool(lane.broken)
        return [*found, told(await lane.score(asks("2", "3"), 60))], broken, lane.broken

    assert asked(reward, go) == ([[1.0], [reason], [2.0, 3.0]], text == "misconfigured", "")


@reward_function(score_range=(0.0, 1.0))
def opens(messages: list[Any], **kwargs: Any) -> EvaluateResult:
    """Breaks in the words of its answer."""
    raise RuntimeError(messages[-1].text)


@pytest.mark.parametrize(("said", "told"), [
    ("[Errno 2] No such file: '/srv/keys/of/us.json'", "[Errno 2] No such file: '…/us.json'"),
    ("C:\\Users\\me\\data.csv is missing", "…/data.csv is missing"),
    ("~/models/secret/x.bin, line 3", "…/x.bin, line 3"),
    ("https://example.com/a/b gave 1/2/3 and a/b/c", "https://example.com/a/b gave 1/2/3 and a/b/c"),
])  # fmt: skip
def test_a_client_is_told_no_path_of_the_server_and_the_log_is(
    said: str, told: str, warned: list[str]
) -> None:
    async def go(lane: RewardLane) -> Any:
        return await lane.score(asks(said), 60)

    (found,) = asked(opens.reward(), go)
    assert found.reason == f"RuntimeError: {told}"
    assert any(said in line for line in warned) == (said != told)


def test_no_room_says_when_to_come_again() -> None:
    async def go(lane: RewardLane) -> Any:
        going = [
            asyncio.ensure_future(lane.score(asks("wait 0.6", "wait 0.6"), 60)) for _ in range(2)
        ]
        await asyncio.sleep(0.05)
        with pytest.raises(
            Refused, match="4 completions are waiting for r already; at most 4 may"
        ) as full:
            await lane.score(asks("1"), 60)
        with pytest.raises(
            Refused, match="5 completions are asked for at once; at most 4 are taken"
        ) as never:
            await lane.score(asks(*"12345"), 60)
        await asyncio.gather(*going)
        fits = told(await lane.score(asks(*"1234"), 60))
        return full.value.status, full.value.retry_after, never.value.status, fits, lane.waiting

    assert asked(Awaiting(), go, max_waiting=4) == (429, 1.0, 413, [1.0, 2.0, 3.0, 4.0], 0)


def test_when_to_come_again_follows_what_was_done_lately(monkeypatch: pytest.MonkeyPatch) -> None:
    """Virtual time: four completions in two seconds make four more take two seconds, and none is
    sent away for over thirty.
    """
    clock = SimpleNamespace(now=100.0)
    clock.monotonic = lambda: clock.now
    monkeypatch.setattr(module, "time", clock)

    async def go(lane: RewardLane) -> Any:
        told_first = lane.seconds_to_wait(200)
        clock.now += 2.0
        await lane.score(asks(*"1234"), 60)
        return told_first, [lane.seconds_to_wait(n) for n in (100, 101, 104, 120, 200)]

    assert asked(Awaiting(), go) == (1.0, [1.0, 1.0, 2.0, 10.0, 30.0])


class Longest(BaseListWiseReward):
    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        lengths = [float(len(output.answer.text)) for output in sample.output]
        return ranked(self.name, *(float(length == max(lengths)) for length in lengths))


def test_completions_of_one_prompt_are_compared() -> None:
    mixed = [
        Ask(prompt="a", completion="xx"), Ask(prompt="b", completion="x"), Ask(prompt="a", completion="x"),
        Ask(prompt="b", completion="xxx"), Ask(problem="items[4] is a number"),
    ]  # fmt: skip
    found = asked(Longest(), lambda lane: lane.score(mixed, 60))
    assert told(found) == [1.0, 0.0, 0.0, 1.0, "invalid_item"]


def called(tool: str, answer: str) -> list[dict[str, Any]]:
    call = {"id": "1", "type": "function", "function": {"name": tool, "arguments": "{}"}}
    spoken = {"role": "assistant", "content": None, "tool_calls": [call]}
    return [
        spoken,
        {"role": "tool", "content": tool, "tool_call_id": "1"},
        {"role": "assistant", "content": answer},
    ]


ASKED: list[dict[str, Any]] = [{"role": "user", "content": "q"}]


@pytest.mark.parametrize(("rows", "scores"), [
    ([("q", "xx", "1"), (ASKED, "x", "1")], [1.0, 0.0]),  # a text is what the user says
    ([(ASKED, called("a", "xx"), "1"), (ASKED, called("b", "x"), "1")], [1.0, 0.0]),
    ([("q", "xx", "1"), ("q", "x", "2")], [1.0, 1.0]),  # another reference is another question
], ids=["form of the prompt", "tool calls", "reference"])  # fmt: skip
def test_every_door_compares_the_same_completions(rows: Any, scores: list[float]) -> None:
    prompts, completions, references = map(list, zip(*rows, strict=True))
    columns = [{"reference": reference} for reference in references]
    assert told(RowScorer(Longest()).score_rows(prompts, completions, columns)) == scores
    apart = [
        Ask(prompt=p, completion=c, row=row)
        for p, c, row in zip(prompts, completions, columns, strict=True)
    ]
    said = [[{"role": "assistant", "content": c}] if isinstance(c, str) else c for c in completions]
    turns = [
        [*(ASKED if isinstance(p, str) else p), *spoken]
        for p, spoken in zip(prompts, said, strict=True)
    ]
    whole = [
        Ask(messages=each, reference=reference)
        for each, reference in zip(turns, references, strict=True)
    ]
    for items in (apart, whole):
        assert told(asked(Longest(), partial(RewardLane.score, asks=items, seconds=60))) == scores


def test_a_reward_that_cannot_score_is_named_when_the_server_starts() -> None:
    class Unready(BasePointWiseReward):
        def check(self) -> None:
            raise ConfigError("no key")

        def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
            return scored(self.name, 1.0)

    with pytest.raises(ConfigError, match="reward mine: no key"):
        Handler({"mine": Unready()})


def test_the_rewards_own_deadline_comes_first_where_it_is_shorter() -> None:
    for own, seconds in ((0.3, 600.0), (600.0, 0.3)):
        (found,) = asked(
            Awaiting(deadline=own),
            partial(RewardLane.score, asks=asks("wait 600"), seconds=seconds),
        )
        assert found.code == "deadline"


def test_all_of_an_ask_arrives_in_its_sample() -> None:
    turns = [*ASKED, {"role": "assistant", "content": "4"}]
    known: dict[str, Any] = {"reference": "r", "row": {"k": 1}, "id": "i", "tools": [{"x": 1}]}
    apart, whole = (
        sample_of(Ask(prompt="q", completion="4", **known)),
        sample_of(Ask(messages=turns, **known)),
    )
    assert apart.model_dump() == whole.model_dump()
    text = apart.model_dump_json()
    assert apart.unique_id == "i" and all(
        part in text for part in ('"k":1', '"x":1', '"r"', '"4"', '"q"')
    )
    one = sample_of(Ask(messages=turns, original_messages=turns[:1]))
    assert [message.content for message in one.input] == ["q"]


def test_no_thread_is_left_waiting_for_a_closed_loop() -> None:
    before = threading.active_count()
    for _ in range(3):
        asked(Plain(), lambda lane: lane.score(asks("1"), 60))
    time.sleep(0.1)
    assert threading.active_count() <= before + 4


def test_a_completion_by_itself_is_not_compared_with_itself() -> None:
    """Each would get the same number: `remote:` sends completions one by one."""
    ask = Ask(prompt="q", completion="xx", row={})
    assert told(asked(Longest(), partial(RewardLane.score, asks=[ask], seconds=60))) == [
        "single_output"
    ]
