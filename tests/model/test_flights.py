"""Equal questions in flight share one call, and none of those who wait can spoil it for the others."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import pytest

from rm_gallery import Budget, ConfigError, FakeLLM, OpenaiLLM, ProviderError
from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.context import RunControl, current_deadline, current_run
from rm_gallery.core.engine.deadline import Deadline
from rm_gallery.core.model.client import complete
from rm_gallery.core.utils.errors import DeadlineExceeded, RequestError


class Slow(FakeLLM):
    """Answers after a while, and counts what it began, what it ended and what was cut."""

    cache: bool | None = True
    began: list[int] = []
    ended: list[int] = []
    cut: list[int] = []
    fails: bool = False

    async def attempt(self, payload: dict[str, Any], timeout: float | None) -> dict[str, Any]:
        self.began.append(1)
        try:
            await asyncio.sleep(0.05)
        except asyncio.CancelledError:
            self.cut.append(1)
            raise
        self.ended.append(1)
        if self.fails:
            raise ProviderError("no", kind="fatal", status=400)
        return await super().attempt(payload, timeout)

    async def asked(self, text: str = "hi") -> str:
        said: str = (await complete(self, self.payload(text))).text
        return said


def slow(name: str, **more: Any) -> Slow:
    return Slow(model=name, reply="yes", began=[], ended=[], cut=[], **more)


def on_the_loop(coroutine: Any) -> Any:
    return library_loop.submit(coroutine).result(timeout=20)


def test_equal_questions_share_a_call_and_so_do_their_failures() -> None:
    llm, broken = slow("shared"), slow("broken", fails=True)

    async def main(model: Slow) -> list[Any]:
        return await asyncio.gather(*(model.asked() for _ in range(5)), return_exceptions=True)

    assert on_the_loop(main(llm)) == ["yes"] * 5 and len(llm.began) == 1
    for calls in (1, 2):  # a failure is not remembered
        assert [type(end) for end in on_the_loop(main(broken))] == [ProviderError] * 5
        assert len(broken.began) == calls


@pytest.mark.parametrize("who", [{0}, {1}, {2}, {0, 1, 2}], ids=["first", "middle", "last", "all"])
def test_a_call_ends_with_the_last_who_waits_and_not_before(who: set[int]) -> None:
    llm = slow(f"cut-{sorted(who)}")

    async def main() -> list[Any]:
        tasks = [asyncio.ensure_future(llm.asked()) for _ in range(3)]
        await asyncio.sleep(0.01)
        for number in who:
            tasks[number].cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    ends = on_the_loop(main())
    for number in range(3):
        assert (
            isinstance(ends[number], asyncio.CancelledError)
            if number in who
            else ends[number] == "yes"
        )
    assert (len(llm.ended), len(llm.cut)) == ((0, 1) if len(who) == 3 else (1, 0))


def test_a_newcomer_does_not_join_a_call_that_is_being_cut() -> None:
    llm = slow("newcomer")

    async def main() -> str:
        first = asyncio.ensure_future(llm.asked())
        await asyncio.sleep(0.01)
        first.cancel()
        await asyncio.sleep(0)
        said = await llm.asked()
        assert first.cancelled()
        return said

    assert on_the_loop(main()) == "yes" and (len(llm.began), len(llm.cut)) == (2, 1)


class Late(FakeLLM):
    """Its time is over whenever it is asked."""

    cache: bool | None = True

    async def attempt(self, payload: dict[str, Any], timeout: float | None) -> dict[str, Any]:
        raise DeadlineExceeded("504")


@pytest.mark.parametrize("gap", range(1, 7))
def test_who_asks_as_a_call_has_just_ended_finds_it_no_more(gap: int) -> None:
    """A flight stood there until the next turn of the loop, and who joined it then joined for ever."""
    llm = Late(model=f"just-ended-{gap}", reply="x")

    async def ask(turns: int) -> Any:
        for _ in range(turns):
            await asyncio.sleep(0)
        return await complete(llm, llm.payload("equal"))

    async def main() -> list[Any]:
        return await asyncio.gather(*(ask(turns) for turns in range(gap)), return_exceptions=True)

    assert {type(end) for end in on_the_loop(main())} == {DeadlineExceeded}


class Limited(FakeLLM):
    """Takes a fifth of a second, and gives up where it has less; refuses one key."""

    cache: bool | None = True
    key: str = "good"
    max_attempts: int = 1
    unlisted: ClassVar[frozenset[str]] = FakeLLM.unlisted | {"key"}

    def account(self) -> str:
        return self.key

    async def attempt(self, payload: dict[str, Any], timeout: float | None) -> dict[str, Any]:
        assert timeout is not None
        await asyncio.sleep(min(timeout, 0.2))
        if self.key == "bad":
            raise ProviderError("no such key", kind="fatal", status=401)
        if timeout < 0.2:
            raise ProviderError(f"no answer within {timeout:.1f} s", kind="transient")
        return await super().attempt(payload, timeout)


@pytest.mark.parametrize(
    ("first", "deadline"), [({"key": "bad"}, 60.0), ({"timeout": 0.1}, 60.0), ({}, 0.1)],
    ids=["key", "timeout", "deadline"],
)  # fmt: skip
def test_who_joins_does_not_hear_of_the_key_and_the_limits_of_who_asked_first(
    first: dict[str, Any], deadline: float
) -> None:
    name = f"limits-{first}-{deadline}"

    async def ask(seconds: float, **settings: Any) -> str:
        current_deadline.set(Deadline(seconds))
        llm = Limited(model=name, reply="yes", **settings)
        said: str = (await complete(llm, llm.payload("equal"))).text
        return said

    async def main() -> list[Any]:
        begun = asyncio.ensure_future(ask(deadline, **first))
        await asyncio.sleep(0.02)
        joined = [asyncio.ensure_future(ask(60.0)) for _ in range(3)]
        return await asyncio.gather(begun, *joined, return_exceptions=True)

    failed, *others = on_the_loop(main())
    assert isinstance(failed, ProviderError) and others == ["yes"] * 3


def test_what_was_never_sent_is_no_call(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    cases: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({}, {}),
        ({"base_url": "http://127.0.0.1:9/v1"}, {"seed": {1}}),
    ]
    for settings, field in cases:
        llm = OpenaiLLM("m", cache=False, **settings)
        run = RunControl(budget=Budget(max_calls=5))

        async def ask() -> None:
            current_run.set(run)  # noqa: B023
            await llm.achat("x" * 400, **field)  # noqa: B023

        with pytest.raises((ConfigError, RequestError)):
            on_the_loop(ask())
        assert run.budget is not None
        assert run.usage.empty and run.budget.spent.empty and run.calls == 0
