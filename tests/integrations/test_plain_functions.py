"""A plain function is a reward of [0, 1] in every trainer and at every door, and one that leaves
its range is told how to declare it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from rm_gallery import (
    EvaluateResult,
    FunctionGrader,
    GraderError,
    GraderScore,
    RewardResult,
    RunOptions,
    Score,
    check_reward,
    reward_function,
)
from rm_gallery.core.reward.function import RewardFunction
from rm_gallery.core.reward.outputs import said_of
from rm_gallery.core.reward.schema import sample_of
from rm_gallery.core.runner.grading_runner import build_reward
from rm_gallery.core.score import UNDECLARED
from rm_gallery.evaluation.worker import _metric_results
from rm_gallery.integrations.causes import NoScore
from rm_gallery.integrations.scoring import RowScorer
from rm_gallery.serve.app import create_app
from rm_gallery.serve.formats import NATIVE
from rm_gallery.serve.handler import Handler
from tests.integrations.adapters import ADAPTERS, Row, waited
from tests.serve.asking import post

pytestmark = pytest.mark.usefixtures("there")


def undecorated(messages: list[Any], **kwargs: Any) -> float:
    return min(1.0, 3 / max(1, len(messages[-1].text.split())))


@pytest.mark.parametrize("name", ADAPTERS)
def test_a_plain_function_trains_in_every_adapter_as_it_is(name: str) -> None:
    adapter = ADAPTERS[name]
    made = adapter.make(undecorated)
    for answer, expected in (("one two three four five 1", 0.5), ("1", 1.0)):
        found = adapter.score(waited(adapter.call(made, Row("q", answer, "1"))))
        assert found == pytest.approx(expected)


@pytest.mark.parametrize("name", ADAPTERS)
@pytest.mark.parametrize("number", [2.0, -1.0])
def test_no_adapter_gives_a_trainer_a_score_outside_the_range(name: str, number: float) -> None:
    def points(messages: list[Any], **kwargs: Any) -> float:
        return number if "good" in messages[-1].text else 0.5

    adapter = ADAPTERS[name]
    made = adapter.make(points, **({"on_error": "raise"} if adapter.silent else {}))
    try:
        given = waited(adapter.call(made, Row("q", "good", "1")))
    except NoScore as error:
        assert advice("points", number, str(error))
    else:
        assert adapter.score(given) is None, "neither the number nor a clipped one, nor the worst"


def advice(name: str, number: float, message: str) -> bool:
    """Whether a message names the function and the value, and says how to declare the range."""
    return (
        f"{name} gave the score {number:g}, outside its range [0, 1]" in message
        and "score_range=(low, high)" in message
    )


# -- every kind of function at every door ----------------------------------------------------------

FORMS: dict[str, Callable[[float], Any]] = {
    "number": float,
    "dict": lambda number: {"score": number, "reason": "r"},
    "result": lambda number: EvaluateResult(score=number),
}
NO_RESULTS: dict[str, Callable[[], Any]] = {
    "RewardResult": lambda: RewardResult(name="r", details=[]),
    "GraderScore": lambda: GraderScore(name="r", score=0.5),
    "str": lambda: "0.5",
    "list": lambda: [0.5],
}
Door = Callable[[RewardFunction[Any], str], Score[float]]


def made(form: str, mode: str, waits: bool, declared: Any = None) -> RewardFunction[Any]:
    """A function that returns a number of points: the number in the answer, in one form."""

    def one(messages: Any) -> Any:
        text = messages[-1].text
        return (
            None
            if text == "none"
            else text == "true"
            if text in ("true", "false")
            else FORMS[form](float(text) if text[-1:].isdigit() else 0.5)
        )

    def points(messages: Any, **kwargs: Any) -> Any:
        return one(messages)

    def group(rollouts_messages: Any, **kwargs: Any) -> Any:
        return [one(messages) for messages in rollouts_messages]

    async def points_later(messages: Any, **kwargs: Any) -> Any:
        return one(messages)

    async def group_later(rollouts_messages: Any, **kwargs: Any) -> Any:
        return [one(messages) for messages in rollouts_messages]

    if mode == "batch":
        return RewardFunction(
            group_later if waits else group, "batch", "points", score_range=declared
        )
    return RewardFunction(
        points_later if waits else points, "pointwise", "points", score_range=declared
    )


def evaluated(function: RewardFunction[Any], answer: str) -> Score[float]:
    reward = function.reward()
    return said_of(
        reward, reward.evaluate(sample_of("q", answer), options=RunOptions(blame="probe")).output[0]
    )


def in_a_batch(function: RewardFunction[Any], answer: str) -> Score[float]:
    reward = build_reward(function)
    done = reward.evaluate_batch(
        [sample_of("q", answer), sample_of("other", "0.5")], progress=False, blame="probe"
    )
    assert said_of(reward, done[1].output[0]).value == 0.5, "nobody else pays"
    return said_of(reward, done[0].output[0])


def best_of_n(function: RewardFunction[Any], answer: str) -> Score[float]:
    reward = function.reward()
    done = reward.evaluate(sample_of("q", "0.25", answer, "0.75"))
    others = [said_of(reward, done.output[place]).value for place in (0, 2)]
    assert others == [0.25, 0.75], "the answers beside it keep their scores"
    return said_of(reward, done.output[1])


def by_rows(function: RewardFunction[Any], answer: str) -> Score[float]:
    return RowScorer(function, options=RunOptions(blame="probe")).score_rows(["q"], [answer])[0]


def over_http(function: RewardFunction[Any], answer: str) -> Score[float]:
    batches = [codec for codec in NATIVE if codec.name == "reward_batch"]
    app = create_app(Handler({"points": function.reward()}), codecs=batches)
    item = {"prompt": "q", "completion": answer}
    # one by itself is not compared with itself
    told = post(app, "/v1/rewards/points/batch", {"items": [item, item]}).json()["results"][0]
    return Score(
        told["score"],
        told.get("message") or "",
        status=told["status"],
        cause=told.get("cause"),
        code=told.get("reason"),
    )


def deployed(function: RewardFunction[Any], answer: str) -> Score[float]:
    talk = [{"role": "user", "content": "q"}, {"role": "assistant", "content": answer}]
    return _metric_results(function, [{"messages": talk}])[0]


DOORS: Sequence[Door] = (evaluated, in_a_batch, best_of_n, by_rows, over_http, deployed)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("waits", [False, True], ids=["plain", "async"])
@pytest.mark.parametrize("mode", ["pointwise", "batch"])
@pytest.mark.parametrize("form", FORMS)
def test_a_value_outside_is_the_rules_error_and_says_what_to_declare(
    form: str, mode: str, waits: bool, door: Door
) -> None:
    function = made(form, mode, waits)
    assert list(function.score_range) == [0, 1]
    for answer, score in (("0", 0.0), ("1", 1.0), ("0.25", 0.25), ("true", 1.0), ("false", 0.0)):
        assert door(function, answer).value == score
    assert door(function, "none").value in (None, 0.0), (
        "no score, or the worst one where the answer turned out to be the cause"
    )
    for number in (2.0, -1.0, 1.0001):
        found = door(function, f"{number}")
        assert (found.status, found.value, found.code, found.cause) == (
            "failed",
            None,
            UNDECLARED,
            "rule",
        )
        assert advice("points", number, found.reason)


@pytest.mark.parametrize("door", [evaluated, in_a_batch, by_rows, over_http])
@pytest.mark.parametrize("waits", [False, True], ids=["plain", "async"])
@pytest.mark.parametrize("form", FORMS)
def test_an_answer_that_drives_a_score_out_of_a_declared_range_has_the_worst_score(
    form: str, waits: bool, door: Door
) -> None:
    function = made(form, "pointwise", waits, (0, 1))
    for number in (2.0, -1.0):
        assert door(function, f"{number}").value == 0.0


@pytest.mark.parametrize("door", [evaluated, by_rows, over_http, deployed])
def test_a_function_that_leaves_its_declared_range_with_every_answer_is_the_rules_error(
    door: Door,
) -> None:
    @reward_function(score_range=(0, 1))
    def points(messages: Any, **kwargs: Any) -> float:
        return 7.0

    found = door(points, "good")
    assert (found.status, found.code, found.cause) == ("failed", "invalid_result", "rule")
    assert "points gave the score 7, outside its declared range [0, 1]." in found.reason


@pytest.mark.parametrize("mode", ["pointwise", "batch"])
@pytest.mark.parametrize("returned", NO_RESULTS)
def test_what_is_no_result_of_a_function_is_an_error_that_says_so(returned: str, mode: str) -> None:
    def points(messages: Any, **kwargs: Any) -> Any:
        return NO_RESULTS[returned]()

    def group(rollouts_messages: Any, **kwargs: Any) -> Any:
        return [NO_RESULTS[returned]() for _ in rollouts_messages]

    function: RewardFunction[Any] = RewardFunction(
        group if mode == "batch" else points, "batch" if mode == "batch" else "pointwise"
    )
    found = evaluated(function, "good")
    assert (found.status, found.value, found.cause) == ("failed", None, "rule"), found
    assert returned in found.reason, found.reason


@pytest.mark.parametrize(
    ("declared", "inside"),
    [((-5, 5), True), ((None, None), True), ((0, None), True), ((0, 1), False)],
)
def test_a_declared_range_holds(declared: Any, inside: bool) -> None:
    @reward_function(score_range=declared)
    def points(messages: Any, **kwargs: Any) -> float:
        return float(messages[-1].text)

    for door in (evaluated, in_a_batch, by_rows, over_http, deployed):
        found = door(points, "4")
        assert found.value == (4.0 if inside else None if door is deployed else 0.0), (
            "a server of evaluators asks once"
        )


def test_check_reward_names_it(tmp_path: Path) -> None:
    def points(messages: list[Any], **kwargs: Any) -> float:
        return float(len(messages[-1].text))

    case = {"prompt": "q", "gold": "a long answer", "completions": ["a wrong answer"]}
    (tmp_path / "cases.jsonl").write_text(json.dumps(case), encoding="utf-8")
    found = asyncio.run(asyncio.to_thread(check_reward, points, tmp_path / "cases.jsonl"))
    (weakness,) = [each for each in found.findings if each.name == "invalid_result"]
    assert weakness.level == "fault" and "score_range=(low, high)" in weakness.what


def test_a_run_folder_of_a_function_without_a_declared_range_continues(tmp_path: Path) -> None:
    def points(messages: Any, **kwargs: Any) -> float:
        return 0.5

    def described(**declared: Any) -> dict[str, Any]:
        return RewardFunction(points, "pointwise", "points", **declared).describe()

    # the manifests of earlier versions name a range where one is declared, and nothing where none
    # is
    assert "range" not in described() and "range" not in described(score_range=(None, None))
    assert described(score_range=(0, 1))["range"] == [0, 1]
    for _ in range(2):
        done = (
            RewardFunction(points, "pointwise", "points")
            .reward()
            .evaluate_batch([sample_of("q", "a")], progress=False, run_dir=str(tmp_path / "run"))
        )
        assert done[0].output[0].answer.reward.score == 0.5


@pytest.mark.parametrize("declared", [False, True])
def test_a_grader_that_leaves_its_range_pays_only_where_it_declares_one(declared: bool) -> None:
    def points(response: str) -> float:
        return 7.0 if response == "good" else 0.5

    grader = FunctionGrader(points, **({"score_range": (0, 1)} if declared else {}))
    found = grader.evaluate(response="good", blame="probe")
    if declared:
        assert (
            isinstance(found, GraderScore)
            and found.score == 0.0
            and "outside its declared range [0, 1]" in found.reason
        )
    else:
        assert isinstance(found, GraderError) and (found.error_type, found.cause) == (
            "undeclared_range",
            "rule",
        )
        assert advice("points", 7.0, found.error)
