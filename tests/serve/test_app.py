"""What every route of the server keeps, found by walking the application: a route that forgets one
of these is named here.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest

from rm_gallery import (
    BasePointWiseReward,
    DataSample,
    RewardDimensionWithScore,
    RewardResult,
    Score,
)
from rm_gallery.core.data.conversation import sample_of_completion
from rm_gallery.serve.app import CODECS, REFUSALS, create_app
from rm_gallery.serve.door import ServeSettings
from rm_gallery.serve.formats import MAX_ITEMS, NATIVE, Ask, Refused
from rm_gallery.serve.handler import Handler, RewardLane
from rm_gallery.serve.nemo_gym import AGGREGATE_EXAMPLE
from rm_gallery.serve.tokens import TokenFile, create_token
from tests.serve.asking import asked, code_of
from tests.support.children import ROOT
from tests.support.choice import some

Make = Callable[[Sequence[str]], Any]


class Number(BasePointWiseReward):
    """The number an answer is; none for "none", an error for other texts, and time for "sleep"."""

    async def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        text = sample.output[0].answer.text
        if text == "sleep":
            await asyncio.sleep(60)
        details: list[Any] = (
            [] if text == "none" else [RewardDimensionWithScore(name=self.name, score=float(text))]
        )
        return RewardResult(name=self.name, details=details)


class Share(Number):
    """One whose numbers have bounds, for formats that want shares of a range."""

    score_range = (0.0, 1.0)


class Deployed:
    """Evaluators: the one named "math" scores as the reward does, and none is listed, so that short
    paths are the reward's.
    """

    def __init__(self) -> None:
        self.lane = RewardLane("math", Number(), max_waiting=MAX_ITEMS)

    async def deployed(self) -> Sequence[dict[str, Any]]:
        return []

    async def score(
        self, evaluator_id: str, asks: Sequence[Ask], seconds: float
    ) -> list[Score[float]]:
        if evaluator_id != "math":
            raise Refused(404, "unknown_evaluator", "There is no such evaluator.")
        return await self.lane.score(asks, seconds)

    def problem(self) -> str:
        return ""

    async def close(self) -> None:
        self.lane.close()


def app_of(path: str = "", tokens: TokenFile | None = None, **settings: Any) -> Any:
    """An application with the reward "math" and the route of a path (with all routes, where none is
    named).
    """
    codecs = [CODEC[path]] if path in CODEC else [] if path else None
    reward = Share() if path in CODEC and CODEC[path].scaled else Number()
    return create_app(
        Handler({"math": reward}, Deployed()), ServeSettings(**settings), codecs, tokens
    )


CODEC = {codec.path: codec for codec in (*NATIVE, *CODECS)}
ASKING = [pytest.param(path, id=path) for path in CODEC]
PLAIN = app_of()
BESIDE = {"/seed_session": {}, "/aggregate_metrics": AGGREGATE_EXAMPLE}
"""What NeMo-Gym posts beside a format's bodies."""
WITHOUT_TOKEN = {"/health"}
UNDESCRIBED = {"/docs", "/openapi.json"}
FOUND = [
    (method, route.path) for route in PLAIN.routes for method in sorted(route.methods - {"HEAD"})
]
ROUTES = [pytest.param(*each, id=" ".join(each)) for each in FOUND]
DESCRIBED = PLAIN.openapi()


def url_of(path: str) -> str:
    return path.replace("{name}", "math").replace("{id}", "math")


def example(path: str) -> bytes:
    if path in BESIDE:
        return json.dumps(BESIDE[path]).encode()
    return json.dumps(CODEC[path].request_example).encode() if path in CODEC else b""


def as_described(method: str, path: str, reply: httpx.Response) -> None:
    """The reply has a status that the description names, the body that it describes for it, and no
    path of the machine.
    """
    if path in UNDESCRIBED:
        return
    replies = DESCRIBED["paths"][path][method.lower()]["responses"]
    assert str(reply.status_code) in replies, (
        f"{reply.status_code} is not described: {reply.text[:200]}"
    )
    assert str(ROOT) not in reply.text
    schema = (
        replies[str(reply.status_code)].get("content", {}).get("application/json", {}).get("schema")
    )
    if schema is not None:
        jsonschema.validate(reply.json(), {**schema, "components": DESCRIBED["components"]})


def refused(method: str, path: str, reply: httpx.Response, status: int, code: str) -> None:
    assert code_of(reply) == (status, code)
    as_described(method, path, reply)


def test_every_route_is_described() -> None:
    described = {
        (method.upper(), path) for path, methods in DESCRIBED["paths"].items() for method in methods
    }
    assert described == {(method, path) for method, path in FOUND if path not in UNDESCRIBED}
    assert {path for method, path in described if method == "POST"} == {*CODEC, *BESIDE}


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_who_has_no_token_or_one_for_something_else_is_refused(
    method: str, path: str, tmp_path: Path
) -> None:
    file = tmp_path / "tokens.json"
    given = {scope: create_token(file, scope, [scope]) for scope in ("read", "evaluate", "deploy")}
    app = app_of(path, TokenFile(file))
    ask = {"method": method, "url": url_of(path), "content": example(path)}
    bearers = [{"Authorization": f"Bearer {token}"} for token in given.values()]
    named: list[dict[str, str]] = [{}, *bearers, {"X-Api-Key": "rmg_0_0"}]
    # of another site's page, which a server that has tokens need not mind
    replies = asked(
        app, *({**ask, "headers": more | {"Origin": "https://elsewhere.example"}} for more in named)
    )
    found = [reply.status_code for reply in replies]
    needed = None if path in WITHOUT_TOKEN else {"GET": "read", "POST": "evaluate"}[method]
    expected = [200 if needed in (None, scope) else 403 for scope in given]
    assert found == [200 if needed is None else 401, *expected, 200 if needed is None else 401]
    for reply in replies:
        if reply.status_code in (401, 403):
            refused(
                method,
                path,
                reply,
                *((401, "unauthorized") if reply.status_code == 401 else (403, "forbidden")),
            )
            assert (reply.headers.get("www-authenticate") == "Bearer") is (reply.status_code == 401)


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_a_rate_is_kept_to_the_completion(method: str, path: str, tmp_path: Path) -> None:
    if path in WITHOUT_TOKEN:
        return
    n = (
        len(CODEC[path].parse(json.loads(example(path)), {"name": "math", "id": "math"})[1])
        if path in CODEC
        else 1
    )
    token = create_token(tmp_path / "tokens.json", "few", ["read", "evaluate"], 2 * n)
    ask = {
        "method": method,
        "url": url_of(path),
        "content": example(path),
        "headers": {"X-Api-Key": token},
    }
    replies = asked(app_of(path, TokenFile(tmp_path / "tokens.json")), *[ask] * 3)
    assert sorted(reply.status_code for reply in replies) == [200, 200, 429]
    late = next(reply for reply in replies if reply.status_code == 429)
    refused(method, path, late, 429, "rate_limited")
    assert 1 <= int(late.headers["retry-after"]) <= 30


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_pages_of_other_sites_other_methods_and_a_server_that_ends(method: str, path: str) -> None:
    app = app_of(path)
    ask = {"method": method, "url": url_of(path), "content": example(path)}
    foreign = {**ask, "headers": {"Origin": "https://elsewhere.example"}}
    other = {**ask, "method": "DELETE", "headers": {"X-Request-Id": "r-7"}}
    plain, page, deleted = asked(app, ask, foreign, other)
    assert plain.status_code == 200 and code_of(deleted) == (405, "method_not_allowed")
    assert method in deleted.headers["allow"] and deleted.headers["x-request-id"] == "r-7"
    as_described(method, path, plain)
    assert plain.headers["x-request-id"] != deleted.headers["x-request-id"]
    door = app.state.door
    door.closing = True
    (last,) = asked(app, ask)
    assert last.headers["connection"] == "close"
    as_described(method, path, last)
    if path in WITHOUT_TOKEN:
        assert (page.status_code, last.status_code, last.json()["status"]) == (200, 503, "closing")
        return
    assert last.status_code == 200
    refused(method, path, page, 403, "forbidden")
    door.refusing = True
    (refusal,) = asked(app, ask)
    refused(method, path, refusal, 503, "closing")
    assert (refusal.headers["retry-after"], refusal.headers["connection"]) == ("1", "close")


# -- routes that take a body -----------------------------------------------------------------------


NO_JSON = [
    b"", b"{", b"nonsense", b"\xff\xfe\x00", b'{"messages": "\xff"}', b'"\\ud800"', b'{"completion": NaN}', b"[Infinity]",
]  # fmt: skip


@pytest.mark.parametrize("path", ASKING)
def test_what_is_no_json_or_does_not_fit_is_refused(path: str) -> None:
    ask = {"url": url_of(path)}
    for reply in asked(PLAIN, *({**ask, "content": body} for body in NO_JSON)):
        refused("POST", path, reply, 400, "invalid_json")
        assert len(reply.content) < 1000
    wrong = (b"null", b"7", b'"text"', b"{}", b"[]", b'{"unheard": 1}')
    for reply in asked(PLAIN, *({**ask, "content": body} for body in wrong)):
        refused("POST", path, reply, 422, "invalid_request")


@pytest.mark.parametrize("path", ASKING)
def test_a_body_may_be_as_large_as_the_limit_and_no_byte_larger(path: str) -> None:
    body = example(path)
    app = app_of(path, max_body=len(body) + 10)

    async def pieces(size: int) -> AsyncIterator[bytes]:
        yield body
        yield b" " * (size - len(body))

    ask = {"url": url_of(path)}
    for size, status in ((len(body) + 10, 200), (len(body) + 11, 413)):
        for content in (body + b" " * (size - len(body)), pieces(size)):
            (reply,) = asked(app, {**ask, "content": content})
            as_described("POST", path, reply)
            assert reply.status_code == status
            if status == 413:
                refused("POST", path, reply, 413, "too_large")
                assert reply.headers["connection"] == "close"
    assert (app.state.door.metrics.bytes, app.state.door.metrics.in_flight) == (0, 0)


def depth_of(value: Any) -> int:
    inner = (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    )
    return 0 if inner is None else 1 + max(map(depth_of, inner), default=0)


@pytest.mark.parametrize("path", ASKING)
def test_nesting_is_allowed_up_to_the_limit_and_not_one_level_more(path: str) -> None:
    depth = depth_of(CODEC[path].request_example)
    for limit, status in ((depth, 200), (depth - 1, 400)):
        if limit >= 2:  # a bound below that is none a server takes
            (reply,) = asked(
                app_of(path, max_depth=limit), {"url": url_of(path), "content": example(path)}
            )
            assert reply.status_code == status, reply.text
            as_described("POST", path, reply)
    for body in (
        b"[" * 20_000 + b"]" * 20_000,
        b'{"a":' * 20_000 + b"1" + b"}" * 20_000,
        b"[" * 65 + b"]" * 65,
    ):
        refused(
            "POST", path, asked(PLAIN, {"url": url_of(path), "content": body})[0], 400, "too_deep"
        )


@pytest.mark.parametrize("path", ASKING)
def test_a_body_that_never_comes_is_given_up(path: str) -> None:
    async def endless() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.sleep(60)

    (reply,) = asked(app_of(path, read_timeout=0.05), {"url": url_of(path), "content": endless()})
    refused("POST", path, reply, 408, "slow")
    assert reply.headers["connection"] == "close"


@pytest.mark.parametrize("path", ASKING)
def test_a_name_that_is_not_offered_is_told_with_where_the_names_are(path: str) -> None:
    url = path.replace("{name}", "mathh").replace("{id}", "mathh")
    several = create_app(
        Handler({"math": Number(), "other": Number()}, Deployed()), codecs=[CODEC[path]]
    )
    (reply,) = asked(several, {"url": url, "content": json.dumps(FORMS[form_of(path)][0](["4"]))})
    code = (
        "no_target"
        if url == path
        else "unknown_reward"
        if "{name}" in path
        else "unknown_evaluator"
    )
    refused("POST", path, reply, 404, code)
    said = reply.json()["error"]["message"].replace("mathh", "")
    assert code == "unknown_evaluator" or "math" in said
    assert code != "no_target" or "there are 2: reward math, reward other." in said


@pytest.mark.parametrize("path", ASKING)
def test_a_query_is_taken_as_described_and_a_misspelt_one_refused(path: str) -> None:
    described = {
        each["name"]
        for each in DESCRIBED["paths"][path]["post"].get("parameters", ())
        if each["in"] == "query"
    }
    assert described == set(CODEC[path].query)
    for name in ("on_eror", "name", "id"):
        (reply,) = asked(PLAIN, {"url": f"{url_of(path)}?{name}=0", "content": example(path)})
        refused("POST", path, reply, 422, "invalid_request")
        assert repr(name) in reply.json()["error"]["message"]
    if "on_error" in described:
        for value, status in (("0", 200), ("-1.5", 200), ("x", 422), ("nan", 422), ("inf", 422)):
            (reply,) = asked(
                PLAIN, {"url": f"{url_of(path)}?on_error={value}", "content": example(path)}
            )
            assert reply.status_code == status, value


@pytest.mark.parametrize("path", ASKING)
def test_unknown_fields_are_refused_where_the_description_says_so(path: str) -> None:
    content = DESCRIBED["paths"][path]["post"]["requestBody"]["content"]["application/json"]
    assert content["example"] == CODEC[path].request_example
    model = DESCRIBED["components"]["schemas"][content["schema"]["$ref"].rpartition("/")[2]]
    body = json.loads(example(path))
    if model.get("type") == "array":
        model = DESCRIBED["components"]["schemas"][model["items"]["$ref"].rpartition("/")[2]]
        body[0]["unheard_of"] = 1
    else:
        body["unheard_of"] = 1
    (reply,) = asked(app_of(path), {"url": url_of(path), "content": json.dumps(body)})
    assert model["additionalProperties"] in (True, False)
    assert reply.status_code == (200 if model["additionalProperties"] else 422), reply.text


ODD: list[Any] = [
    True, 1e300, 10**40, [None], [[]], [{}], {"messages": None}, {"messages": [None]}, {"messages": [{"role": None, "content": 1}]},
    {"messages": [{"role": "user", "content": [{"type": 3}]}]}, {"messages": [{"role": "assistant", "content": {"a": 1}}]},
    {"messages": [{"role": "assistant", "tool_calls": [3]}]}, {"messages": [{"role": "\x00", "content": "\x00"}]},
    {"prompt": 1, "completion": 2, "response": 3}, {"items": [None, 3, "x", {}]}, {"items": {}}, {"query": 1, "prompts": 2, "labels": 3},
    {"text_1": {}, "text_2": []}, {"input": 3}, {"example": 3, "response": 4}, {"sample": 3}, {"grader": 3, "model_sample": "x"},
    [{"id": 3, "messages": 4}], [{"id": "x", "messages": [3]}], {"completion": "4", "reference": {"a": [1e308, -0.0, 10**18]}},
    {"responses_create_params": {"input": 3}, "response": {"output": {}}}, {"responses_create_params": {"input": []}, "response": {"output": [[], {"role": 3}]}},
    {"completion": "4", "row": {"": None, "a" * 5000: [[]]}}, {"completion": "4", "id": "x" * 10_000}, {"messages": [{"role": "u" * 9999}]},
]  # fmt: skip


@pytest.mark.parametrize("path", ASKING)
def test_values_of_wrong_types_are_no_fault_of_the_server(path: str) -> None:
    for query in ("", "?on_error=%ff", "?reference=x&prompt=%00&keys=2", "?on_error=1"):
        for reply in asked(
            PLAIN, *({"url": url_of(path) + query, "content": json.dumps(body)} for body in ODD)
        ):
            assert (
                reply.status_code != 500
                and "Traceback" not in reply.text
                and '.py"' not in reply.text
            )
            as_described("POST", path, reply)


# -- what each format makes of completions and scores ----------------------------------------------

SAID = {"role": "assistant", "content": "4"}


def said(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "?"}, {**SAID, "content": text}]}


FORMS: dict[str, tuple[Make, Callable[[Any], list[Any]]]] = {
    "reward": (lambda texts: {"completion": texts[0]}, lambda reply: [reply["score"]]),
    "reward_batch": (
        lambda texts: {"items": [{"completion": text} for text in texts]},
        lambda reply: [each["score"] for each in reply["results"]],
    ),
    "evaluate": (lambda texts: said(texts[0]), lambda reply: [reply["score"]]),
    "evaluate_batch": (lambda texts: list(map(said, texts)), lambda reply: [each["score"] for each in reply]),
    "openrlhf": (lambda texts: {"query": [f"q{t}" for t in texts], "prompts": ["q"] * len(texts)}, lambda reply: reply["scores"]),
    "remote_rm": (lambda texts: {"response": texts[0]}, lambda reply: [reply]),
    "nemo_gym": (
        lambda texts: {"responses_create_params": {"input": "?"}, "response": {"output": [{**SAID, "content": texts[0]}]}},
        lambda reply: [None if reply["mask_sample"] else reply["reward"]],
    ),
    "vllm_score": (lambda texts: {"text_1": "q", "text_2": texts}, lambda reply: [each["score"] for each in reply["data"]]),
    "vllm_classify": (lambda texts: {"input": texts}, lambda reply: [each["probs"][0] for each in reply["data"]]),
    "google": (lambda texts: {"example": {}, "response": {"parts": [{"text": texts[0]}]}}, lambda reply: [reply["reward"]]),
    "azure": (lambda texts: {"sample": {"output_text": texts[0]}}, lambda reply: [reply["score"]]),
    "aws": (
        lambda texts: [{"id": str(n), **said(text)} for n, text in enumerate(texts)],
        lambda reply: [each["aggregate_reward_score"] for each in reply],
    ),
    "decisions": (
        lambda texts: {"model": "default", "input": texts[0], "questions": [{"type": "predicate", "instructions": "?"}]},
        lambda reply: [reply["answers"][0].get("probability")],
    ),
    "systemone": (
        lambda texts: {"model": "default", "state": texts[0], "questions": {"a": {"type": "noul", "instructions": "?"}}},
        lambda reply: [reply["answers"].get("a", {}).get("noul")],
    ),
    "openai_run": (lambda texts: {"model_sample": texts[0]}, lambda reply: [reply["reward"]]),
}  # fmt: skip
"""How a format says several completions (or the first one), and where its reply has their scores;
by the name of its model.
"""
BY_MODEL = {
    CODEC[path].request_model: name for name in FORMS for path in CODEC if CODEC[path].name == name
}
SAYING = {"reward_batch", "evaluate_batch", "openai_run", "nemo_gym"}
"""Formats that say of each completion that its score failed, so that the request itself did not."""
MANY = {"reward_batch", "evaluate_batch", "openrlhf", "vllm_score", "vllm_classify", "aws"}


def form_of(path: str) -> str:
    return BY_MODEL[CODEC[path].request_model]  # a format that is new gets its line in FORMS


def scores(app: Any, path: str, texts: Sequence[str], query: str = "") -> list[Any]:
    make, scores_of = FORMS[form_of(path)]
    (reply,) = asked(app, {"url": url_of(path) + query, "content": json.dumps(make(list(texts)))})
    assert reply.status_code in (200, 504), reply.text
    as_described("POST", path, reply)
    return scores_of(reply.json())


@pytest.mark.parametrize("path", ASKING)
def test_the_score_is_that_of_evaluate_to_the_last_bit(path: str) -> None:
    texts = ["0.1", repr(0.1 + 0.2), "1e-320", "-2.5", "1.7976931348623157e308", "3", repr(1 / 3)]
    reward, app = Number(), app_of(path)
    for text in (
        texts if not CODEC[path].scaled else ["0.1", repr(0.1 + 0.2), "1e-320", "1", repr(1 / 3)]
    ):
        own = reward.evaluate(sample_of_completion("q", text)).output[0].answer.reward.score
        assert repr(float(scores(app, path, [text])[0])) == repr(own), text


@pytest.mark.parametrize("path", [path for path in CODEC if form_of(path) in MANY])
def test_a_batch_with_one_bad_row_at_each_place_equals_single_calls(path: str) -> None:
    instead = "?on_error=-7" if "on_error" in CODEC[path].query else ""
    for bad in ("none", "boom"):
        for place in range(3):
            texts = ["1", "2", "3"]
            texts[place] = bad
            found = scores(PLAIN, path, texts, instead)
            assert found == [scores(PLAIN, path, [text], instead)[0] for text in texts]
            assert found == [
                (-7.0 if instead else None) if text == bad else float(text) for text in texts
            ]
            if instead:  # a format without a word for it refuses all of them
                body = json.dumps(FORMS[form_of(path)][0](texts))
                (reply,) = asked(PLAIN, {"url": url_of(path), "content": body})
                refused("POST", path, reply, 422 if bad == "none" else 503, "no_score")


@pytest.mark.parametrize(
    "path", ["/v1/rewards/{name}/batch", "/v1/evaluations/{id}/outcome/batch", "/evaluate/batch"]
)
def test_a_row_that_does_not_fit_costs_no_other_one(path: str) -> None:
    for place in range(3):
        body = FORMS[form_of(path)][0](["1", "2", "3"])
        (body["items"] if isinstance(body, dict) else body)[place] = 7
        (reply,) = asked(PLAIN, {"url": url_of(path), "content": json.dumps(body)})
        found = FORMS[form_of(path)][1](reply.json())
        assert found == [None if n == place else n + 1.0 for n in range(3)]
        assert f"[{place}]" in reply.text


@pytest.mark.parametrize("path", some((path for path in CODEC if form_of(path) in MANY), 5))
def test_as_many_completions_as_the_limit_and_not_one_more(path: str) -> None:
    make, there = (
        FORMS[form_of(path)][0],
        [other for other in CODEC if form_of(other) == form_of(path)],
    )
    # one codec scores at all its places
    counts = {MAX_ITEMS + 1: 422, 0: 422, **({MAX_ITEMS: 200} if path == there[0] else {})}
    replies = asked(
        PLAIN,
        *({"url": url_of(path), "content": json.dumps(make(["1"] * count))} for count in counts),
    )
    assert [reply.status_code for reply in replies] == [*counts.values()], replies[-1].text[:300]
    for refusal in replies[:2]:
        as_described("POST", path, refusal)


@pytest.mark.parametrize("path", ASKING)
def test_out_of_time_is_said_as_the_format_says_it(path: str) -> None:
    body = json.dumps(FORMS[form_of(path)][0](["sleep"]))
    ask = {"url": url_of(path), "content": body}
    (reply,) = asked(app_of(path, deadline=0.05), {**ask, "headers": {"X-Timeout-Seconds": "1000"}})
    (shorter,) = asked(
        app_of(path, deadline=1000), {**ask, "headers": {"X-Timeout-Seconds": "0.05"}}
    )
    for each in (reply, shorter):
        as_described("POST", path, each)
        if CODEC[path].scaled and each.status_code == 200:
            # the run saw it first: too slow is the answer's doing, and the worst
            assert FORMS[form_of(path)][1](each.json()) == [0.0]
            continue
        assert each.status_code == (200 if form_of(path) in SAYING else 504)
        assert b"deadline" in each.content or b"unresponsive_reward_error" in each.content
    for value in ("0", "-1", "nan", "inf", "soon", "1e400", ""):
        (wrong,) = asked(PLAIN, {**ask, "headers": {"X-Timeout-Seconds": value}})
        refused("POST", path, wrong, 400, "invalid_header")


# -- the pages -------------------------------------------------------------------------------------


def test_refusals_are_described_in_words_of_their_own() -> None:
    assert len({each["description"] for each in REFUSALS.values()}) == len(REFUSALS)


def test_lists_and_health() -> None:
    health, rewards, evaluations, nothing = asked(
        PLAIN,
        *(
            {"method": "GET", "url": url}
            for url in ("/health", "/v1/rewards", "/v1/evaluations", "/v1/nothing")
        ),
    )
    assert health.json() == {"status": "ok", "problems": []}
    entry = {
        "name": "math",
        "kind": "pointwise",
        "score_range": [None, None],
        "higher_is_better": True,
    }
    assert rewards.json() == {"rewards": [entry]} and evaluations.json() == {"evaluations": []}
    assert code_of(nothing) == (404, "not_found")


def test_the_documentation_shows_every_path_and_loads_nothing_from_elsewhere() -> None:
    docs, redoc = asked(
        PLAIN, {"method": "GET", "url": "/docs"}, {"method": "GET", "url": "/redoc"}
    )
    assert all(path in docs.text for path in DESCRIBED["paths"])
    assert "://" not in docs.text and "<script" not in docs.text and redoc.status_code == 404
