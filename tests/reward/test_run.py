"""One run under every door: no way to hang, no option swallowed, nested runs are children, streams
stream.
"""

from __future__ import annotations

import asyncio
import gc
import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rm_gallery import (
    BaseReward,
    Budget,
    ConfigError,
    DataError,
    DataSample,
    FakeLLM,
    OpenaiLLM,
    ProviderError,
    RewardResult,
    RunOptions,
)
from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.context import RunControl
from rm_gallery.core.engine.folder import read_trace
from rm_gallery.core.model.budget import Price, PriceTable
from tests.reward.rewards import (
    AsyncRule,
    CpuBound,
    Listening,
    NumberTemplate,
    PairRule,
    PointJudge,
    Rule,
    longest,
    scored,
)
from tests.support.samples import issues, make_sample, scores, through

SAMPLE = make_sample("one", "one two")
LIMIT = 10.0


def samples(n: int) -> list[DataSample]:
    return [make_sample("a b", unique_id=str(k)) for k in range(n)]


BLOCKING: dict[str, Callable[[Rule], Any]] = {
    "evaluate": lambda reward: reward.evaluate(SAMPLE),
    "evaluate_batch": lambda reward: reward.evaluate_batch([SAMPLE]),
    "evaluate_stream": lambda reward: reward.evaluate_stream([SAMPLE]),
    "best_of_n": lambda reward: reward.best_of_n(SAMPLE),
    "chat": lambda reward: FakeLLM(reply="x").chat("hello"),
}


class Blocks(AsyncRule):
    door: Any = None

    async def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        self.door(Rule())
        return scored(self.name, 1.0)


class AwaitsInHook(PointJudge):
    async def _before_evaluate(self, sample: DataSample, **kwargs: Any) -> Any:  # type: ignore[override]
        done = await Rule().async_evaluate(sample)
        return {"answers": [str(scores(done)[0]), "one two three"]}

    async def _after_evaluate(self, response: Any, sample: DataSample, **kwargs: Any) -> Any:  # type: ignore[override]
        done = await Rule().async_evaluate(sample)
        return scored(self.name, response.score + (scores(done)[0] or 0.0))


@pytest.mark.parametrize("name", BLOCKING)
def test_a_door_that_would_block_the_loop_raises_and_names_its_twin(name: str) -> None:
    twin = "achat" if name == "chat" else f"async_{name}"
    with pytest.raises(ConfigError, match=f"await {twin}"):
        Blocks(door=BLOCKING[name]).evaluate(SAMPLE)
    with pytest.raises(ConfigError, match=f"await {twin}"):
        Blocks(door=BLOCKING[name]).evaluate_batch([SAMPLE])
    assert scores(AsyncRule().evaluate(SAMPLE)) == [1.0, 2.0], "the loop goes on"


def test_hooks_of_a_judge_may_be_async() -> None:
    assert scores(AwaitsInHook(llm=FakeLLM(reply=longest)).evaluate(SAMPLE)) == [4.0, 5.0]


class Unruly(AsyncRule):
    """What the third sample does is done on the library's own loop."""

    does: Any = None

    async def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        if sample.unique_id == "3":
            await self.does()
        await asyncio.sleep(0.01)
        return scored(self.name, 1.0)


async def stops_the_loop() -> None:
    asyncio.get_running_loop().stop()


async def exits(kind: type[BaseException]) -> None:
    async def leave() -> None:
        raise kind

    await asyncio.create_task(leave())


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, None])
def test_a_task_that_exits_costs_its_own_sample_and_a_stop_of_the_loop_nothing(
    kind: type[BaseException] | None,
) -> None:
    does = stops_the_loop if kind is None else partial(exits, kind)
    found = Unruly(does=does).evaluate_batch(samples(9), max_workers=3)
    assert [scores(sample)[0] for sample in found] == [
        None if k == 3 and kind else 1.0 for k in range(9)
    ]
    assert issues(found[3]) == ([("failed", "error")] if kind else [])


DOORS = "evaluate async_evaluate evaluate_batch evaluate_stream async_evaluate_batch".split()


class Named(Rule):
    def _evaluate(self, sample: DataSample, threshold: float = 0.0, **kwargs: Any) -> RewardResult:
        return scored(self.name, threshold + kwargs.get("bonus", 0.0))


WRONG: dict[str, tuple[list[Any], str]] = {
    "max_workers": (
        [2.5, -1, "8", True, False, float("nan"), 10**30],
        "max_workers is .*positive whole number",
    ),
    "deadline": ([0, -1, float("nan"), float("inf"), 10**400, "3"], "deadline is"),
    "cache": (["off"], "cache is 'off'; it is True or False"),
    "progress": (["no"], "progress is 'no'"),
    "budget": ([3], "budget is 3; it is a Budget"),
    "repeat": (["a", -1, 1 << 20], "repeat is .*whole number"),
    "max_worker": ([99], "'max_worker'. Did you mean max_workers"),
    "treshold": ([99], "'treshold'. Did you mean threshold"),
}


@pytest.mark.parametrize("option", WRONG)
@pytest.mark.parametrize("door", DOORS)
def test_a_value_that_an_option_does_not_take_is_refused(door: str, option: str) -> None:
    values, message = WRONG[option]
    for wrong in values:
        for reward in (Named(), AsyncNamed()):
            with pytest.raises(ConfigError, match=message):
                through(door, reward, [SAMPLE], **{option: wrong})


@pytest.mark.parametrize("door", DOORS)
def test_options_are_heard_at_every_door(door: str, tmp_path: Path) -> None:
    call = partial(through, door, samples=[SAMPLE])
    control = RunControl()
    judge = PointJudge(llm=FakeLLM(reply=longest, latency=0.001))
    how: dict[str, Any] = {"control": control, "run_dir": tmp_path / "run", "cache": False}
    call(reward=judge, options=RunOptions(repeat=1), **how)
    assert control.calls == 2 and (tmp_path / "run" / "results.jsonl").exists()
    [held] = call(reward=judge, budget=Budget(max_calls=1), cache=False)
    assert {reason for _, reason in issues(held)} == {"budget"}
    slow = PointJudge(llm=FakeLLM(reply=longest, latency=5.0, cache=False))
    assert issues(call(reward=slow, deadline=0.1)[0]) == [("failed", "deadline")] * 2


@pytest.mark.parametrize("door", DOORS)
def test_a_keyword_is_an_option_a_hooks_parameter_or_an_error(door: str) -> None:
    call = partial(through, door, samples=[SAMPLE])
    assert scores(call(reward=Named(), threshold=2.0)[0]) == [2.0, 2.0]
    assert scores(call(reward=Named(), threshold=2.0, hooks={"bonus": 1.0})[0]) == [3.0, 3.0]
    for reward in (AsyncRule(), CpuBound()):
        assert scores(call(reward=reward, hooks={"bonus": 10})[0]) == [11.0, 12.0]


class AsyncNamed(Named):
    async def _evaluate(  # type: ignore[override]
        self, sample: DataSample, threshold: float = 0.0, **kwargs: Any
    ) -> RewardResult:
        return super()._evaluate(sample, threshold, **kwargs)


class Nests(Rule):
    """A plain function that asks a judge, sample by sample or in a batch."""

    sub: Any = None
    batch: bool = False

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        done = self.sub.evaluate_batch([sample])[0] if self.batch else self.sub.evaluate(sample)
        found = scores(done)[0]
        return scored(self.name, -1.0 if found is None else found)


class NestsAwaited(Nests):
    async def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:  # type: ignore[override]
        [done] = await (
            self.sub.async_evaluate_batch([sample])
            if self.batch
            else asyncio.gather(self.sub.async_evaluate(sample))
        )
        found = scores(done)[0]
        return scored(self.name, -1.0 if found is None else found)


NESTED = pytest.mark.parametrize(
    ("outer", "batch"), [(o, b) for o in (Nests, NestsAwaited) for b in (False, True)]
)


@NESTED
def test_a_nested_run_is_a_child_of_the_run_around_it(
    outer: type[Nests], batch: bool, tmp_path: Path
) -> None:
    reward = outer(sub=PointJudge(llm=FakeLLM(reply=longest, cache=True)), batch=batch)
    first, again, uncached, repeated, spent = (RunControl() for _ in range(5))
    given = [make_sample(f"{outer.__name__} {batch}", unique_id="n")]
    reward.evaluate_batch(given, control=first)
    reward.evaluate_batch(given, control=again)
    kept: dict[str, Any] = {"run_dir": str(tmp_path / "run"), "trace": True}
    reward.evaluate_batch(given, control=uncached, cache=False, **kept)
    reward.evaluate_batch(given, control=repeated, repeat=7)
    assert [c.calls for c in (first, again, uncached, repeated)] == [1, 0, 1, 1]
    assert again.cached == 1
    [entry] = read_trace(tmp_path / "run")
    assert (entry["id"], entry["reward"]) == ("n", "PointJudge")
    limits: dict[str, Any] = {"budget": Budget(max_calls=3), "max_workers": 1}
    reward.evaluate_batch(samples(6), control=spent, cache=False, **limits)
    assert spent.calls == 3


def test_a_control_that_is_used_again_adds_nothing_to_the_trace_of_a_run_that_is_over(
    tmp_path: Path,
) -> None:
    reward, control, told = PointJudge(llm=FakeLLM(reply=longest)), RunControl(), list[Any]()
    kept: dict[str, Any] = {"run_dir": str(tmp_path / "run")}
    reward.evaluate_batch([make_sample("a")], **kept)
    reward.evaluate_batch([make_sample("a")], control=control, trace=True, **kept)
    reward.evaluate_batch([make_sample("b")], control=control)
    assert not (tmp_path / "run" / "trace.jsonl").exists()
    control.trace = told.append
    reward.evaluate_batch([make_sample("c")], control=control, run_dir=str(tmp_path / "other"))
    assert len(told) == 1 and control.trace == told.append, "the caller's own stays"


@NESTED
def test_a_nested_judge_that_is_refused_stops_the_run_around_it(
    outer: type[Nests], batch: bool
) -> None:
    """Each nested run makes one call: only together do they show that the key is refused."""

    def refuse(_: str) -> str:
        raise ProviderError("no such key", kind="fatal", status=401)

    control = RunControl()
    reward = outer(sub=PointJudge(llm=FakeLLM(reply=refuse)), batch=batch)
    reward.evaluate_batch(samples(60), control=control, max_workers=1)
    assert control.stopped is not None and "no such key" in control.stopped
    assert control.calls == 20


class Patient(FakeLLM):
    """Takes half a minute, and says when it was cut off."""

    cut: Any = None

    async def attempt(self, payload: dict[str, Any], timeout: float | None) -> dict[str, Any]:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            self.cut.set()
            raise
        return await super().attempt(payload, timeout)


@NESTED
def test_the_deadline_of_a_sample_ends_what_is_asked_for_it(
    outer: type[Nests], batch: bool
) -> None:
    cut = threading.Event()
    reward = outer(sub=PointJudge(llm=Patient(cut=cut)), batch=batch)
    reward.evaluate_batch([make_sample("a", unique_id="n")], deadline=0.2)
    assert cut.wait(LIMIT), "the call goes on for nobody"


def test_a_budget_inside_is_no_way_around_the_one_outside() -> None:
    class Generous(Nests):
        def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
            return scored(self.name, scores(self.sub.evaluate(sample, budget=inner))[0] or 0.0)

    judge = PointJudge(llm=FakeLLM(reply=longest, cache=False))
    many = [make_sample(str(k), unique_id=str(k)) for k in range(12)]
    for inside, outside in ((100, 3), (3, 100)):
        inner, outer, control = Budget(max_calls=inside), Budget(max_calls=outside), RunControl()
        Generous(sub=judge).evaluate_batch(many, budget=outer, control=control, max_workers=2)
        assert (inner.spent.calls, outer.spent.calls, control.calls) == (3, 3, 3)


def test_a_budget_that_knows_no_prices_hides_no_cost_from_the_one_around_it() -> None:
    class Bounded(Nests):
        def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
            inner = Budget(max_calls=9)
            return scored(self.name, scores(self.sub.evaluate(sample, budget=inner))[0] or 0.0)

    prices = PriceTable({"fake": Price(1.0, 1.0, 1.0)})
    budget, control = Budget(prices=prices), RunControl()
    judge = PointJudge(llm=FakeLLM(reply=longest, cache=False))
    Bounded(sub=judge).evaluate_batch([SAMPLE], budget=budget, control=control)
    assert control.usage.cost and control.usage.cost == budget.spent.cost


class Chats(AsyncRule):
    """Asks a model without a word about which repeat it is."""

    llm: Any = None

    async def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        return scored(self.name, float(len((await self.llm.achat("equal")).text)))


def test_a_run_that_is_a_repeat_asks_a_rules_own_model_anew() -> None:
    llm = FakeLLM(model="repeated", reply="yes", cache=True)
    for repeat, made in ((0, 1), (1, 1), (1, 0), (0, 0), (2, 1)):
        control = RunControl()
        Chats(llm=llm).evaluate_batch([SAMPLE], repeat=repeat, control=control)
        assert control.calls == made


def test_a_run_control_that_is_used_again_starts_fresh() -> None:
    control = RunControl()
    judge = PointJudge(llm=FakeLLM(reply=longest, cache=False))
    judge.evaluate_batch([SAMPLE], control=control)
    control.stop("enough", halt=True)
    assert scores(judge.evaluate_batch([SAMPLE], control=control)[0]) == [1.0, 2.0]
    assert (control.calls, control.stopped) == (2, None)


@pytest.mark.parametrize("reward", [Rule(), AsyncRule()], ids=["plain", "async"])
def test_a_consumer_may_feed_its_source(reward: BaseReward) -> None:
    waiting: queue.Queue[DataSample | None] = queue.Queue()
    waiting.put(make_sample("a", unique_id="0"))
    seen = []
    for sample in reward.evaluate_stream(iter(waiting.get, None)):
        seen.append(sample.unique_id)
        waiting.put(make_sample("a", unique_id=str(len(seen))) if len(seen) < 30 else None)
    assert seen == [str(k) for k in range(30)]
    assert reward.evaluate_batch([]) == reward.evaluate_batch(iter(())) == []
    assert list(reward.evaluate_stream([])) == []


@pytest.mark.long("much work")
def test_one_result_pays_for_few_calls_and_a_stream_that_is_left_lets_its_source_go() -> None:
    control, left = RunControl(), threading.Event()

    def source() -> Iterator[DataSample]:
        try:
            yield from samples(2000)
        finally:
            left.set()

    judge = PointJudge(llm=FakeLLM(reply=longest, cache=False))
    stream = judge.evaluate_stream(source(), max_workers=8, control=control)
    next(stream)
    time.sleep(0.2)
    assert control.calls <= 4 * 8 + 1
    stream.close()  # type: ignore[attr-defined]  # the iterator is a generator
    del stream
    for _ in range(100):
        gc.collect()
        if left.wait(0.5):
            break
    assert left.is_set(), "nobody waits for it any more"


@pytest.mark.parametrize("door", ["evaluate_batch", "evaluate_stream", "async_evaluate_batch"])
def test_a_source_that_raises_keeps_what_is_finished(door: str, tmp_path: Path) -> None:
    def broken() -> Iterator[DataSample]:
        yield from samples(150)
        raise OSError("the disk is gone")

    reward = PointJudge(llm=FakeLLM(reply=longest))
    with pytest.raises(OSError, match="the disk is gone"):
        found: Any = getattr(reward, door)(broken(), run_dir=tmp_path / "run")
        list(asyncio.run(found) if door.startswith("async") else found)
    assert len((tmp_path / "run" / "results.jsonl").read_bytes().splitlines()) == 150


class EmptyPrompt(NumberTemplate):
    @classmethod
    def format(cls, enable_thinking: bool = False, **kwargs: Any) -> str:
        return "" if "bad" in kwargs["answers"] else "\n".join(["?", *kwargs["answers"]])


FAKE = FakeLLM(reply=longest)
BREAKING: dict[str, tuple[BaseReward, Exception, str]] = {
    "format": (PointJudge(llm=FAKE, template=EmptyPrompt), KeyError(), "data"),
    "_before_evaluate": (PointJudge(llm=FAKE), DataError("column 'context' is missing"), "data"),
    "jobs": (Rule(), KeyError("context"), "error"),
    "merge": (Rule(), ZeroDivisionError(), "error"),
    "aggregate": (PairRule(), ZeroDivisionError(), "error"),
}
"""A method, of whom, what it raises for the bad sample, and what is told; the format gives an empty
prompt instead.
"""


@pytest.mark.parametrize("name", BREAKING)
def test_what_breaks_costs_its_own_sample(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reward, error, reason = BREAKING[name]
    of = type(reward.kind if name in ("jobs", "merge") else reward)
    method: Any = getattr(of, name)

    def breaks(self: Any, *given: Any, **named: Any) -> Any:
        what = given[isinstance(given[0], BaseReward)] if given else named["sample"]
        if what == 2 or isinstance(what, DataSample) and what.output[0].answer.text == "bad":
            raise error
        return method(self, *given, **named)

    if name != "format":
        monkeypatch.setattr(of, name, breaks)
    bad = make_sample("bad", "worse") if name == "aggregate" else make_sample("bad")
    good = [make_sample("a", "a b", "a b c", unique_id=str(k)) for k in range(5)]
    for folder in (None, tmp_path / "run"):
        found = reward.evaluate_batch([*good[:3], bad, *good[3:]], run_dir=folder)
        assert set(issues(found[3])) == {("failed", reason)}
        assert all(None not in scores(found[k]) for k in (0, 1, 2, 4, 5))
    assert set(issues(reward.evaluate(bad))) == {("failed", reason)}


def test_what_is_no_sample_is_found_before_anything_is_paid() -> None:
    judge = Listening(reply=longest)
    with pytest.raises(DataError, match="Sample 300"):
        PointJudge(llm=judge).evaluate_batch([SAMPLE] * 300 + [{"output": 3}])
    assert judge.asked == []


class Sometimes(Rule):
    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        if sample.unique_id in "12":
            raise ValueError("no luck")
        return scored(self.name, 1.0)


class Blocking(AsyncRule):
    async def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        time.sleep(0.2)
        return scored(self.name, 1.0)


def test_what_went_wrong_in_a_run_is_said_once(
    monkeypatch: pytest.MonkeyPatch, warned: list[str]
) -> None:
    """Nobody at the judge's address; samples that fail; async code that blocks the event loop."""
    control = RunControl()
    llm = OpenaiLLM("m", base_url="http://127.0.0.1:9/v1", api_key="k", max_attempts=1)
    nobody = PointJudge(llm=llm)
    given = [make_sample(str(k), unique_id=str(k)) for k in range(60)]
    nobody.evaluate_batch(given, max_workers=8, control=control)
    list(Sometimes().evaluate_stream(samples(9)))
    Rule().evaluate_batch(samples(3))
    monkeypatch.setattr("rm_gallery.core.engine.engine.BEAT_SECONDS", 0.1)
    monkeypatch.setattr(library_loop, "_still_said", -100.0)
    Blocking().evaluate_batch(samples(15), max_workers=3)
    # the loop looks at its clock when it turns again, which may be after the last sample
    library_loop.submit(asyncio.sleep(0.01)).result(LIMIT)
    gone, failed, blocked = warned
    assert "of 60 samples" in gone and "calls all failed" in gone
    assert control.calls == 0, "nobody was found, so nothing was paid for"
    assert "2 failed" in failed and "ValueError: no luck" in failed
    assert "something async blocks it" in blocked


class Renamed(FakeLLM):
    async def attempt(self, payload: dict[str, Any], timeout: float | None) -> dict[str, Any]:
        return {**await super().attempt(payload, timeout), "model": "another-9b"}


def test_that_another_model_answered_is_said(warned: list[str]) -> None:
    judge = PointJudge(llm=Renamed(model="asked-7b", reply=longest, cache=False))
    judge.evaluate_batch(samples(3))
    [said] = warned
    assert "model asked-7b was asked, and another-9b answered" in said


class Deep(Rule):
    def _evaluate(self, sample: DataSample, depth: int = 0, **kwargs: Any) -> RewardResult:
        inner = 0.0 if depth == 0 else scores(self.evaluate(sample, depth=depth - 1))[0]
        return scored(self.name, 1 + (inner or 0.0))


def test_a_plain_reward_that_calls_itself_finds_a_thread() -> None:
    with ThreadPoolExecutor(40) as pool:
        found = pool.map(lambda sample: Deep().evaluate(sample, depth=9), [SAMPLE] * 40)
        assert [scores(sample) for sample in found] == [[10.0] * 2] * 40
