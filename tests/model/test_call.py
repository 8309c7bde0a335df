"""What every model promises on the one call path, for each class that is found: a provider that
forgets something is named.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import pickle
import re
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import orjson
import pytest
from pydantic import PrivateAttr

from rm_gallery import Budget, ConfigError, FakeLLM, ProviderError, RMGalleryError
from rm_gallery.core.engine.context import RunControl, current_run
from rm_gallery.core.model import storage, transport
from rm_gallery.core.model.base import BaseLLM, registered
from rm_gallery.core.model.decisions import DecisionLLM, Question
from rm_gallery.core.model.embeddings import BaseEmbeddings
from rm_gallery.core.model.environment_servers import NemoGymServer, OrsServer
from rm_gallery.core.model.limits import RateLimit, RetryPolicy
from rm_gallery.core.model.model_call import BaseModelCall
from rm_gallery.core.model.reward_servers import RewardServer, ServedScorer
from rm_gallery.core.utils.shown import is_credential
from tests.reward.rewards import PointJudge
from tests.support.samples import make_sample

SECRET = "sk-hunter2-0123456789"
Ask = Callable[..., Awaitable[Any]]


def chat(content: Any = "<score>3</score>", finish: str = "stop") -> dict[str, Any]:
    usage = {"prompt_tokens": 40, "completion_tokens": 10}
    return {"choices": [{"message": {"content": content}, "finish_reason": finish}], "usage": usage}


ANSWER = {"status": "scored", "score": 1.0, "reason": "", "message": "", "components": {}}
VECTOR = {"data": [{"embedding": [1.0, 2.0]}], "usage": {"prompt_tokens": 50}}
FOUND = ("vllm/score", {"data": [{"score": 1.0}], "usage": {"prompt_tokens": 50}})
DECIDED = {
    "answers": [{"name": "c1", "probability": 0.9}],
    "usage": {"input_tokens": 50},
    "asked": 1,
}
WAYS: list[tuple[Any, Ask, Any, int]] = [
    (
        DecisionLLM,
        lambda llm, text: llm.achat(text, questions=[Question("c1", "predicate", "Is it?")]),
        DECIDED,
        50,
    ),
    (BaseLLM, lambda llm, question, **more: llm.achat(question, **more), chat(), 50),
    (BaseEmbeddings, lambda model, text: model.aembed([text]), VECTOR, 50),
    (
        NemoGymServer,
        lambda model, text: model.ascore([{"completion": text}]),
        {"reward": 0.5},
        0,
    ),
    (
        OrsServer,
        lambda model, text: model.ascore([{"answer": text, "index": 0}]),
        [("end", '{"ok": true, "output": {"reward": 0.5}}')],
        0,
    ),
    (
        RewardServer,
        lambda model, text: model.ascore([{"completion": text}]),
        {"results": [ANSWER]},
        0,
    ),
    (
        ServedScorer,
        lambda model, text: model.ascore("pair", {"query": "q", "answer": text}),
        FOUND,
        50,
    ),
]
"""How a kind of model is asked, a raw answer of it, and the tokens which that one costs."""
NEEDED: dict[str, dict[str, Any]] = {
    "ServedScorer": {"endpoint": "vllm/score"},
    "RewardServer": {"model": "reward:r"},
    "OrsServer": {"env": "sums", "tool": "submit"},
}
NOT_THE_QUESTION = {
    "enable_thinking",
    "thought_opened",
    "batch",
    "proxy",
    "ca_bundle",
    "api_key",
    "cache",
}
"""Settings that change how one asks, and nothing of what an equal request is answered."""
OF_A_SCRIPT = {
    "FakeLLM": {"reply", "latency", "finish_reason"}, "ServedScorer": {"named"}, "DecisionLLM": {"dialect"},
}  # fmt: skip
WITHOUT = {
    "DecisionLLM": {"temperature", "top_p", "max_tokens", "stop", "seed", "n", "enable_thinking"}
}
"""Settings that a model refuses, since they have no effect on it."""
OTHERS: dict[str, Any] = {
    "base_url": "http://127.0.0.1:2/v1",
    "default_headers": {"x-deployment": "b"},
    "default_query": {"api-version": "2"},
    "extra_body": {"logprobs": True},
    "endpoint": "vllm/rerank",
    "dialect": "systemone",
}


def models() -> list[type[BaseModelCall]]:
    """Every registered class, and every other model of the package that can be made."""
    found = {cls for _, cls in registered()}
    classes: list[Any] = [BaseModelCall]
    while classes:
        cls = classes.pop()
        classes += cls.__subclasses__()
        found |= set() if inspect.isabstract(cls) else {cls}
    return sorted(
        (cls for cls in found if cls.__module__.startswith("rm_gallery.")),
        key=lambda cls: cls.__name__,
    )


CHATS = [cls for cls in models() if issubclass(cls, BaseLLM) and not cls.decides]
every_model = pytest.mark.parametrize("cls", models(), ids=lambda cls: cls.__name__)


def settings(cls: type[BaseModelCall], **more: Any) -> dict[str, Any]:
    place = {"base_url": "http://127.0.0.1:1/v1"} if "base_url" in cls.model_fields else {}
    return {"model": "m", **place, **NEEDED.get(cls.__name__, {}), **more}


def way(cls: type[BaseModelCall]) -> tuple[Ask, Any, int]:
    for base, ask, good, tokens in WAYS:
        if issubclass(cls, base):
            return ask, good, tokens
    raise AssertionError(
        f"{cls.__name__} is a new kind of model: say in WAYS how one asks it and what it answers"
    )


def recorded(cls: type[BaseModelCall], *ends: Any) -> tuple[Any, list[dict[str, Any]]]:
    """The class with a script instead of its requests (the last end stays), and the payloads it was
    asked for.
    """
    made: list[dict[str, Any]] = []

    async def attempt(
        self: BaseModelCall, payload: dict[str, Any], timeout: float | None
    ) -> dict[str, Any]:
        made.append(payload)
        end = ends[min(len(made), len(ends)) - 1]
        if isinstance(end, Exception):
            raise end
        found: dict[str, Any] = end
        return found

    return type(cls.__name__, (cls,), {"attempt": attempt, "__module__": __name__}), made


def asked(
    model: BaseModelCall, question: str = "hi", control: RunControl | None = None, **more: Any
) -> Any:
    """The answer of a model, or its error; as a part of a run where there is one."""

    async def main() -> Any:
        current_run.set(control)
        try:
            return await way(type(model))[0](model, question, **more)
        except RMGalleryError as error:
            return error

    return asyncio.run(main())


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RetryPolicy, "jitter", lambda *_: 0.0)


@every_model
def test_it_names_its_endpoint(cls: type[BaseModelCall]) -> None:
    assert not inspect.isabstract(cls), (
        f"{cls.__name__} lacks {', '.join(sorted(cls.__abstractmethods__))}"
    )
    model = cls(**settings(cls))
    assert model.endpoint_key() and model.route().startswith(model.endpoint_key())
    assert model.model_copy().route() == model.route()
    told = model.describe()
    assert told["type"] == cls.__name__ and model.endpoint_key() in told.values()
    assert not told.keys() & cls.unlisted, "patience and limits make no other model"


def shown(cls: type[BaseModelCall]) -> list[str]:
    """The views of a model that show a secret it was given, wherever it takes one."""
    given: dict[str, Any] = {"extra_body": {"api_key": SECRET, "stop_token_ids": [3, 5]}}
    texts = [name for name in cls.model_fields if is_credential(name) and not name.endswith("_ids")]
    given |= dict.fromkeys(texts, SECRET)
    more = {
        "default_headers": {"X-Gateway-Auth": SECRET, "x-tenant": f"Bearer {SECRET}"},
        "default_query": {"subscription-key": SECRET},
        "proxy": f"http://user:{SECRET}@127.0.0.1:1",
    }
    given |= {name: value for name, value in more.items() if name in cls.model_fields}
    model = cls(**settings(cls, **given))
    pickled = pickle.dumps(model)
    assert SECRET.encode() not in pickled, (
        "a pickle lies in files and queues; keys are read where it is loaded"
    )
    copy = pickle.loads(pickled)
    assert (type(copy), copy.model) == (cls, model.model)
    views: dict[str, Callable[[], object]] = {
        "repr": model.__repr__,
        "str": model.__str__,
        "repr of a pickled copy": copy.__repr__,
    }
    views |= {
        name: getattr(model, name)
        for name in ("describe", "model_dump_json", "route", "endpoint_key", "account")
    }
    found = [name for name, view in views.items() if SECRET in str(view())]
    with pytest.raises(ConfigError) as caught:
        cls(**settings(cls, **given, api_keys=SECRET, timeout=-1))
    assert "timeout" in str(caught.value)
    assert all("[3, 5]" in str(view()) for view in (model.describe, lambda: repr(model))), (
        "numbers are no secret"
    )
    return found + ["the error of a wrong setting"] * (SECRET in str(caught.value))


@every_model
def test_no_view_shows_a_secret(cls: type[BaseModelCall]) -> None:
    assert shown(cls) == []


@pytest.mark.parametrize("status", [200, 401, 500])
@every_model
def test_an_endpoint_that_repeats_the_key_is_not_quoted(
    cls: type[BaseModelCall], status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "base_url" not in cls.model_fields:
        return  # it asks nobody

    async def echo(*_: object) -> transport.HttpAnswer:
        said = {
            "error": {"message": f"you sent {SECRET}"},
            "choices": [{"message": {"content": SECRET}}],
        }
        return transport.HttpAnswer(status, {}, orjson.dumps(said))

    monkeypatch.setattr(transport, "exchange", echo)
    found = asked(cls(**settings(cls, api_key=SECRET, max_attempts=1, cache=False)))
    assert SECRET not in repr(found) + str(found)
    assert status == 200 or "you sent ***" in str(found)


def other(cls: type[BaseModelCall], name: str, given: dict[str, Any]) -> Any:
    """Another value for a setting: one that the field takes."""
    known = getattr(cls(**given), name)
    for value in (
        *([OTHERS[name]] if name in OTHERS else []),
        3,
        0.5,
        "other",
        ["x"],
        [1],
        {"x": "y"},
        False,
        True,
    ):
        try:
            if getattr(cls(**{**given, name: value}), name) != known:
                return value
        except ConfigError:
            continue
    raise AssertionError(f"{cls.__name__}.{name}: give another value for it in OTHERS")


def parts(cls: type[BaseModelCall]) -> dict[str, int]:
    """How many calls two models make that differ in one setting, by setting."""
    calls, given = {}, settings(cls, cache=True)
    for name in cls.model_fields.keys() - {"cache"} - WITHOUT.get(cls.__name__, set()):
        kind, made = recorded(cls, way(cls)[1])
        for changes in ({}, {name: other(cls, name, given)}, {}):
            asked(kind(**{**given, **changes}), name)
        calls[name] = len(made)
    return calls


@every_model
def test_each_setting_makes_another_question_or_is_known_not_to(cls: type[BaseModelCall]) -> None:
    same = cls.unlisted | NOT_THE_QUESTION | OF_A_SCRIPT.get(cls.__name__, set())
    found = parts(cls)
    assert {name for name, calls in found.items() if calls != 2} == found.keys() & same and set(
        found.values()
    ) == {1, 2}


@pytest.mark.parametrize(
    "cls",
    [cls for _, cls in registered() if "base_url" in cls.model_fields],
    ids=lambda cls: cls.__name__,
)
def test_every_setting_of_the_question_reaches_the_endpoint_in_one_request(
    cls: type[BaseModelCall], monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[Any] = []

    async def refuse(*request: Any) -> transport.HttpAnswer:
        *said, timeout, _ = request
        sent.append(said)
        assert 0 < timeout <= 7
        return transport.HttpAnswer(500, {}, b"{}")

    monkeypatch.setattr(transport, "exchange", refuse)
    given = settings(cls, cache=False, max_attempts=1, max_outage=0, timeout=7.0)
    told = [{"role": "system", "content": "s"}, {"role": "user", "content": "hi"}]
    ways: list[tuple[str, dict[str, Any], tuple[Any, ...], dict[str, Any]]] = [
        (name, {name: other(cls, name, given)}, (), {})
        for name in cls.model_fields.keys()
        - cls.unlisted
        - NOT_THE_QUESTION
        - WITHOUT.get(cls.__name__, set())
    ]
    if cls in CHATS:
        ways += [
            ("messages", {}, (told,), {}),
            ("a schema", {}, (), {"response_format": {"type": "json_object"}}),
        ]
    for name, changes, question, more in ways:
        sent.clear()
        for found in (asked(cls(**given)), asked(cls(**{**given, **changes}), *question, **more)):
            assert isinstance(found, ProviderError)
        assert len(sent) == 2 and sent[0] != sent[1], name


@every_model
def test_another_question_is_another_call_and_an_equal_one_is_none(
    cls: type[BaseModelCall],
) -> None:
    kind, made = recorded(cls, way(cls)[1])
    model = kind(**settings(cls, cache=True))
    first = asked(model, "one")
    for question, calls in (("one", 1), ("two", 2), ("one", 2)):
        again = asked(model, question)
        assert getattr(again, "text", again) is not None and len(made) == calls
    if cls in CHATS:
        assert (first.cached, asked(model, "one").cached) == (False, True)
        changes: list[dict[str, Any]] = [
            {"repeat": 1},
            {"response_format": {"type": "json_object"}},
            {"temperature": None},
        ]
        for number, change in enumerate(changes, 3):
            for _ in range(2):
                asked(model, "one", **change)
            assert len(made) == number, change


@every_model
def test_equal_questions_in_flight_share_a_call(cls: type[BaseModelCall]) -> None:
    kind, made = recorded(cls, way(cls)[1])
    model, ask = kind(**settings(cls, cache=True)), way(cls)[0]

    async def several() -> list[Any]:
        return list(await asyncio.gather(*(ask(model, "hi") for _ in range(9))))

    assert len(asyncio.run(several())) == 9 and len(made) == 1


@every_model
def test_a_row_that_cannot_be_read_is_asked_for_anew(cls: type[BaseModelCall]) -> None:
    kind, made = recorded(cls, way(cls)[1])
    model = kind(**settings(cls, cache=True))
    for row in (b"", b"[1]", b"{}", b"\xff" * 9, b"nothing"):
        made.clear()
        asked(model)
        cache = storage.shared()
        assert cache is not None
        (key,) = re.findall("[0-9a-f]{64}", cache.path.read_text("utf-8", "replace"))
        cache.put(key, row)
        assert not isinstance(asked(model), Exception)
        assert made, f"{row!r} is no answer"
        cache.clear()


@pytest.mark.parametrize(
    ("own", "of_the_run", "temperature", "variable", "calls"),
    [
        *[
            (None, None, 0, "", 1),
            (True, None, 0, "", 1),
            (False, None, 0, "", 2),
            (None, False, 0, "", 2),
        ],
        *[
            (True, False, 0, "", 2),
            (False, True, 0, "", 1),
            (None, None, 0.0, "", 1),
            (None, None, 0.5, "", 2),
        ],
        *[(None, None, None, "", 2), (True, None, 0, "OFF", 2)],
    ],
)
def test_who_decides_whether_replies_are_kept(
    own: bool | None, of_the_run: bool | None, temperature: float | None, variable: str, calls: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Without a word only those at temperature 0; the environment switches the cache off for all."""
    if variable:
        monkeypatch.setenv("RM_GALLERY_CACHE", variable)
    kind, made = recorded(FakeLLM, chat())
    for number in range(2):
        control = RunControl()
        control.begin(max_workers=2, budget=None, cache=of_the_run, repeat=0)
        asked(kind(cache=own, temperature=temperature), control=control)
        assert control.cached == number * (calls == 1)
    assert len(made) == calls


def failure(kind: Any, status: int | None = None) -> ProviderError:
    return ProviderError("no luck", kind=kind, status=status)


@pytest.mark.parametrize(
    ("cause", "status", "attempts", "read"),
    [
        ("transient", 500, 3, 0),
        ("transient", None, 3, 1),
        ("rate_limit", 429, 3, 0),
        ("fatal", 401, 1, 0),
    ]
    + [("unreachable", None, 3, 0)],
)
@every_model
def test_a_failure_is_tried_again_by_its_cause_and_counted(
    cls: type[BaseModelCall],
    cause: str,
    status: int | None,
    attempts: int,
    read: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By its cause: the attempts that are made, and whether what was asked counts as read."""
    end = failure(cause, status)
    settled: list[tuple[int, int]] = []
    monkeypatch.setattr(
        RateLimit, "settle", lambda _, reserved, used: settled.append((reserved, used))
    )
    control, budget = RunControl(), Budget(max_calls=20)
    control.begin(max_workers=2, budget=budget, cache=True, repeat=0)
    kind, made = recorded(cls, *[end] * attempts, way(cls)[1])
    model = kind(**settings(cls, max_attempts=3, max_outage=0, tokens_per_minute=1e12))
    question = "x" * 400
    found = asked(model, question, control)
    assert (found.kind, found.status, len(made)) == (end.kind, end.status, attempts)
    paid = 0 if end.kind == "unreachable" else attempts
    expected = {reserved for reserved, _ in settled}.pop()
    # four characters a token, and one; texts of embeddings count with their quotes
    assert expected == (
        101 if issubclass(cls, BaseLLM) else 102 if issubclass(cls, BaseEmbeddings) else 1
    )
    assert settled == [(expected, read * expected)] * attempts
    assert (control.calls, control.retries, budget.spent.calls) == (paid, attempts - 1, paid)
    assert budget.spent.total_tokens == control.usage.total_tokens == read * attempts * expected
    # nothing of it was kept: the next one is asked, paid and kept
    tokens = way(cls)[2]
    for calls, cached in ((paid + 1, 0), (paid + 1, 1)):
        assert not isinstance(asked(model, question, control), Exception)
        assert (len(made), control.calls, control.cached) == (attempts + 1, calls, cached)
    assert (
        settled[-1] == (expected, tokens)
        and budget.spent.total_tokens == read * attempts * expected + tokens
    )


@pytest.mark.parametrize(
    ("served", "status", "routed", "attempts"),
    [
        (True, 404, False, 3),  # a server that is being replaced
        (True, 405, False, 3),
        (False, 404, False, 1),  # a wrong URL or model name
        (True, 404, True, 1),  # a router that has nobody for a field of the request
        (True, 401, False, 1),
        (True, 400, False, 1),
    ],
)
@every_model
def test_not_found_is_tried_again_where_answers_came_before_and_no_field_is_meant(
    cls: type[BaseModelCall], served: bool, status: int, routed: bool, attempts: int
) -> None:
    gone = failure("fatal", status)
    gone.routed = routed
    kind, made = recorded(cls, *[way(cls)[1]] * served, gone)
    # the state of an endpoint outlives a test: a name of its own keeps what others learned out
    model = kind(
        **settings(
            cls, model=f"gone-{served}-{status}-{routed}", max_attempts=3, max_outage=0, cache=False
        )
    )
    if served:
        assert not isinstance(asked(model), Exception)
    found = asked(model)
    assert (found.status, len(made) - served) == (status, attempts)


@pytest.mark.parametrize(
    ("raw", "kept"),
    [
        (chat(), True),
        (chat(finish="length"), False),
        (chat(finish="content_filter"), False),
        (chat(""), False),
    ]
    + [(chat(" \n"), False), (chat(None), False), (chat(finish="tool_calls"), True)],
)
@pytest.mark.parametrize("cls", CHATS, ids=lambda cls: cls.__name__)
def test_only_whole_replies_are_kept(
    cls: type[BaseModelCall], raw: dict[str, Any], kept: bool
) -> None:
    kind, made = recorded(cls, raw)
    model = kind(**settings(cls, cache=True))
    for _ in range(2):
        assert asked(model).finish_reason == raw["choices"][0]["finish_reason"]
    assert len(made) == (1 if kept else 2)


def test_a_question_that_the_endpoint_refuses_has_no_verdict_and_is_no_failure() -> None:
    filtered = failure("fatal", 400)
    filtered.filtered = True
    kind, made = recorded(FakeLLM, filtered)
    control = RunControl()
    found = [asked(kind(), control=control) for _ in range(30)]
    assert {(type(each).__name__, each.reason) for each in found} == {
        ("Unscored", "content_filter")
    }
    assert (len(made), control.stopped) == (30, None)


def test_a_call_claims_what_it_may_use_and_waits_no_longer_than_its_sample(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    claims: list[tuple[Any, ...]] = []
    reserve = Budget.try_reserve

    def claimed(self: Budget, *given: Any) -> Any:
        claims.append(given)
        return reserve(self, *given)

    monkeypatch.setattr(Budget, "try_reserve", claimed)
    waits: list[float | None] = []

    class Noting(FakeLLM):
        async def attempt(self, payload: dict[str, Any], timeout: float | None) -> dict[str, Any]:
            waits.append(timeout)
            return chat()

    for max_tokens, most in ((None, None), (9, 110)):
        control = RunControl()
        control.begin(max_workers=2, budget=Budget(), cache=None, repeat=0)
        asked(Noting(model="m", max_tokens=max_tokens), "x" * 400, control)
        assert claims.pop() == ("m", 101, most)
    assert waits == [120.0, 120.0]
    for timeout, least, longest in ((120.0, 1.0, 50.0), (0.5, 0.5, 0.5)):
        PointJudge(llm=Noting(timeout=timeout)).evaluate(make_sample("a"), deadline=50.0)
        assert least <= (waits.pop() or 0) <= longest


def test_a_call_outside_of_any_run_retries_as_its_model_says() -> None:
    kind, made = recorded(FakeLLM, failure("transient", 500))
    assert "gave up after 2 attempts" in str(asked(kind(max_attempts=2))) and len(made) == 2


def test_a_call_outside_of_any_run_is_not_bound_by_the_runs_beside_it() -> None:
    begun, came, met = threading.Event(), asyncio.Event(), list[bool]()

    class Meeting(FakeLLM):
        async def attempt(self, payload: dict[str, Any], timeout: float | None) -> dict[str, Any]:
            if payload["messages"][-1]["content"] == "outside":
                came.set()
            else:
                begun.set()
                met.append(await asyncio.wait_for(came.wait(), 5.0))
            return await super().attempt(payload, timeout)

    llm = Meeting(reply="<score>3</score>", max_attempts=1)
    samples = [make_sample("a")]
    judged = threading.Thread(
        target=lambda: PointJudge(llm=llm).evaluate_batch(samples, max_workers=1, progress=False)
    )
    judged.start()
    assert begun.wait(10.0) and llm.chat("outside").text
    judged.join(10.0)
    assert met == [True]
    # and the runs that come later are bound as they ask to be
    most, going = [0], [0]

    class Counting(FakeLLM):
        async def attempt(self, payload: dict[str, Any], timeout: float | None) -> dict[str, Any]:
            going[0] += 1
            most[0] = max(*most, *going)
            await asyncio.sleep(0.02)
            going[0] -= 1
            return await super().attempt(payload, timeout)

    later = PointJudge(llm=Counting(reply="<score>3</score>"))
    given = [[make_sample(f"{run} {number}") for number in range(5)] for run in "ab"]
    with ThreadPoolExecutor(2) as beside:
        list(beside.map(lambda one: later.evaluate_batch(one, max_workers=1), given))
    assert most == [1]


ONE_A_MINUTE: dict[str, Any] = {"requests_per_minute": 1}


@pytest.mark.parametrize(
    ("others", "wait"),
    [
        ([{}, {}], False),
        ([ONE_A_MINUTE, ONE_A_MINUTE], True),
        ([ONE_A_MINUTE, {}], False),
        ([ONE_A_MINUTE, {**ONE_A_MINUTE, "model": "n"}], False),
        (
            [{**ONE_A_MINUTE, "api_key": "sk-one-one"}, {**ONE_A_MINUTE, "api_key": "sk-two-two"}],
            False,
        ),
        ([{"tokens_per_minute": 60}, {"tokens_per_minute": 60}], True),
    ],
)
def test_limits_belong_to_the_account_and_to_the_model_object_that_has_them(
    others: list[dict[str, Any]], wait: bool
) -> None:
    """A second call that waits would wait for a minute."""
    cls = next(
        cls for prefix, cls in registered() if prefix == "openai" and issubclass(cls, BaseLLM)
    )
    kind, made = recorded(cls, chat())

    async def main() -> int:
        calls = [
            asyncio.ensure_future(kind(**settings(cls, cache=False, **each)).achat("hi"))
            for each in others
        ]
        await asyncio.wait(
            calls, timeout=30, return_when="FIRST_COMPLETED" if wait else "ALL_COMPLETED"
        )
        await asyncio.sleep(0.2)
        done = sum(bool(call.done()) for call in calls)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        return done

    assert asyncio.run(main()) == len(made) == (1 if wait else 2)


_names = itertools.count()


class Picky(FakeLLM):
    """Refuses some fields the way endpoints do, one at a time."""

    reply: Any = "ok"
    refuses: dict[str, str] = {}
    status: int = 400
    _sent: list[dict[str, Any]] = PrivateAttr(default_factory=list)

    async def attempt(self, payload: dict[str, Any], timeout: float | None) -> dict[str, Any]:
        self._sent.append(payload)
        for name, message in self.refuses.items():
            if name in payload:
                raise ProviderError(
                    f"x answered {self.status}: {message}", kind="fatal", status=self.status
                )
        return await super().attempt(payload, timeout)


def picky(**fields: Any) -> Picky:
    """A model of its own: what an endpoint refused is remembered by model."""
    return Picky(model=f"picky-{next(_names)}", **fields)


TEMPERATURE = {
    "temperature": "Unsupported value: 'temperature' does not support 0 with this model."
}
LENGTH = {
    "max_tokens": "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead."
}


def test_it_is_said_once_and_remembered_only_when_it_helped(warned: list[str]) -> None:
    llm = picky(refuses=LENGTH, max_tokens=9)
    for question in ("one", "two"):
        llm.chat(question)
    (said,) = warned
    assert (
        f"model {llm.model} refused 'max_tokens', which is sent as 'max_completion_tokens' from "
        f"now on" in said
    )
    broken = picky(refuses={**TEMPERATURE, "messages": "The question cannot be answered."})
    for question in ("one", "two"):
        with pytest.raises(ProviderError):
            broken.chat(question)
    assert "temperature" in broken._sent[2], "nothing was learned from a request that failed anyway"
    assert len(warned) == 1


def test_what_finds_out_a_form_has_the_deadline_of_its_call() -> None:
    waits = list[float]()

    class Hurried(Picky):
        async def attempt(self, payload: dict[str, Any], timeout: float | None) -> dict[str, Any]:
            waits.append(timeout or 0.0)
            await asyncio.sleep(0.2)
            return await super().attempt(payload, timeout)

    llm = Hurried(model=f"picky-{next(_names)}", refuses=TEMPERATURE, timeout=0.3)
    PointJudge(llm=llm).evaluate(make_sample("a"), deadline=0.4)
    assert len(waits) == 2 and waits[0] == 0.3 and waits[1] <= 0.2
