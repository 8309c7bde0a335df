"""The runner: rows of any kind, the mapper laid over them, results in order, and what failed beside
what did not.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest

from rm_gallery import (
    BaseGrader,
    Budget,
    ConfigError,
    FakeLLM,
    FunctionGrader,
    GraderConfig,
    GraderError,
    GraderRank,
    GraderRegistry,
    GraderScore,
    GradingRunner,
    RewardRegistry,
    WeightedSum,
    reward_function,
    rule,
)
from rm_gallery.core.engine.context import RunControl
from rm_gallery.core.graders.base import GraderResult
from rm_gallery.core.runner.aggregator import (
    CallableAggregator,
    WeightedSumAggregator,
)
from rm_gallery.core.runner.grading_runner import build_reward, rows_of
from rm_gallery.core.utils import errors
from tests.golden import golden
from tests.support.samples import make_sample

ROWS = [{"query": f"q{n}", "response": "x" * n, "meta": {"gold": [f"g{n}"]}} for n in range(5)]


def length(response: str) -> float:
    return len(response) / 10


async def alength(response: str) -> float:
    await asyncio.sleep(0)
    return len(response) / 10


def runner(*graders: Any, **settings: Any) -> GradingRunner:
    return GradingRunner(
        {f"g{i}": g for i, g in enumerate(graders)}, show_progress=False, **settings
    )


def scores(results: Mapping[str, list[GraderResult]], name: str = "g0") -> list[float]:
    return [round(getattr(result, "score", math.nan), 6) for result in results[name]]


def test_every_kind_of_data_set_gives_the_same_results_in_row_order(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    jsonl, parquet = tmp_path / "rows.jsonl", tmp_path / "rows.parquet"
    jsonl.write_bytes(b"\n".join(orjson.dumps(row) for row in ROWS))
    pd.DataFrame(ROWS).to_parquet(parquet)
    for dataset in (ROWS, iter(ROWS), jsonl, str(parquet), pd.DataFrame(ROWS)):
        assert scores(runner(length).run(dataset)) == [0.0, 0.1, 0.2, 0.3, 0.4]
    assert runner(length, aggregators=WeightedSumAggregator("all")).run([]) == {"g0": [], "all": []}
    nan, lists = float("nan"), [[1], {"k": [2]}, None]
    gaps = pd.DataFrame({"text": ["a", pd.NA, nan], "number": [1.5, nan, 2.0], "list": lists})
    gaps["text"] = gaps["text"].astype(object)
    (*rows,) = rows_of(gaps)
    assert [row["text"] for row in rows] == ["a", None, None]
    assert [row["number"] for row in rows] == [1.5, None, 2.0]
    assert [row["list"] for row in rows] == [[1], {"k": [2]}, None]


def test_a_patient_grader_is_not_cut_short_by_an_impatient_one() -> None:
    async def slow(response: str) -> float:
        await asyncio.sleep(0.6)
        return 1.0

    impatient, *patient = (
        FunctionGrader(slow, name=str(limit), deadline=limit) for limit in (0.2, 30.0, None)
    )
    for each in patient:
        found = runner(impatient, each).run([{"response": "x"}])
        assert found["g1"][0].ok, found["g1"][0].reason


def test_several_data_sets_come_back_apart() -> None:
    first, second, third = runner(length).run_multiple_datasets([ROWS[:2], [], ROWS[2:]])
    assert (scores(first), scores(second), scores(third)) == ([0.0, 0.1], [], [0.2, 0.3, 0.4])
    again = asyncio.run(runner(length).arun_multiple_datasets([ROWS[:2], ROWS[2:]]))
    assert [scores(part) for part in again] == [[0.0, 0.1], [0.2, 0.3, 0.4]]


@pytest.mark.parametrize(
    "aggregators", [WeightedSumAggregator("r"), [WeightedSumAggregator("r")], lambda found: 0.5]
)
def test_aggregators_are_one_several_or_a_function_and_never_hide_what_is_missing(
    aggregators: Any,
) -> None:
    found = runner(length, aggregators=aggregators).run([{"response": "xxxxx"}, {}])
    (column,) = [name for name in found if name != "g0"]
    named = isinstance(aggregators, (WeightedSumAggregator, list))
    assert column == ("r" if named else "aggregate")
    assert getattr(found[column][0], "score", None) == 0.5
    assert found[column][1].ok is not named


@pytest.mark.parametrize(("on_error", "expected"), [("skip", [0.5, 0.75]), (0.0, [0.5, 0.375])])
def test_a_grader_that_fails_does_not_change_the_scale_of_its_row(
    on_error: Any, expected: list[float]
) -> None:
    def short(response: str) -> float:
        return 0.25 if len(response) < 5 else 1 / 0

    stars = FunctionGrader(lambda response: 4, name="stars", score_range=(1, 5))
    rows = [{"response": "x"}, {"response": "long answer"}]
    combined = WeightedSumAggregator("r", on_error=on_error)
    found = runner(stars, short, aggregators=combined).run(rows)
    assert [getattr(result, "range", None) for result in found["r"]] == [(0.0, 1.0)] * 2
    assert scores(found, "r") == pytest.approx(expected)
    # a number on the scale of what is combined, which is none of [0, 1]
    raw = WeightedSumAggregator("r", {"g0": 1.0}, on_error=5)
    assert runner(stars, short, aggregators=raw).aggregators == [raw]


@pytest.mark.parametrize(
    ("higher", "passed"), [(True, [False, True, True]), (False, [True, True, False])]
)
def test_a_score_passes_in_its_own_direction(higher: bool, passed: list[bool]) -> None:
    made = [
        GraderScore(name="g", score=s, range=(1, 5), threshold=3, higher_is_better=higher)
        for s in (2, 3, 4)
    ]
    assert [score.passed() for score in made] == passed and made[2].passed(4)
    assert [score.normalized for score in made] == (
        [0.25, 0.5, 0.75] if higher else [0.75, 0.5, 0.25]
    )
    unbounded: list[dict[str, Any]] = [{}, {"range": (0, None)}, {"range": (1, 1)}]
    for given in unbounded:
        broken = GraderScore(score=1, **given)
        with pytest.raises(ConfigError, match="no two bounds"):
            broken.normalized  # noqa: B018
        with pytest.raises(ConfigError, match="no threshold"):
            broken.passed()
    assert GraderRank(rank=[2, 1, 2]).order == [1, 0, 2]


def test_a_stream_is_drawn_as_it_is_read() -> None:
    drawn = 0

    def endless() -> Iterator[dict[str, str]]:
        nonlocal drawn
        while True:
            drawn += 1
            yield {"response": "x"}

    async def first_ten() -> list[float]:
        found = []
        async for row in runner(alength, max_concurrency=2).astream(endless()):
            found.append(row["g0"].score)
            if len(found) == 10:
                break
        return found

    assert asyncio.run(first_ten()) == [0.1] * 10 and drawn < 100


def seen(query: str, response: str, reference_response: str = "none") -> dict[str, Any]:
    return {"score": 1.0, "seen": [query, response, reference_response]}


ROW: dict[str, Any] = {"query": "q", "response": "r", "gold": "g", "a.b": "flat", "extra": 1}
ROW |= {"a": {"b": [{"c": "deep"}, "last"], "empty": {}}}


class Odd(BaseGrader):
    """Returns what the row says, out of a tuple where it would else count as absent."""

    def _grade(self, value: Any) -> Any:
        if isinstance(value, tuple):
            [value] = value
        if isinstance(value, Exception):
            raise value
        return value


def told(line: golden.Line) -> golden.Line:
    """What becomes of what a grader returns, of what an aggregator makes of its 5, and of a mapper
    over a row.
    """
    if "returns" in line:
        found: GraderResult = Odd().evaluate(
            value=(eval(line["returns"], {**vars(errors), **globals()}),)
        )
    elif "aggregates" in line:
        found = CallableAggregator(eval(line["aggregates"]), "mine")({"a": GraderScore(score=5)})
    else:
        (found,) = runner(GraderConfig(FunctionGrader(seen), eval(line["mapper"]))).run([ROW])["g0"]
    if isinstance(found, GraderError):
        assert (math.isnan(found.score), found.ok, found.passed(0)) == (True, False, False), (
            "never a zero"
        )
        why = found.reason.partition(" [type=")[0]
        return {"status": found.status, "error_type": found.error_type, "why": why}
    ranked = {"score": getattr(found, "score", None), "rank": getattr(found, "rank", None)}
    return {**ranked, "name": found.name, "seen": found.metadata.get("seen")}


@pytest.mark.parametrize("path", golden.files("runners"))
def test_rows(path: Path) -> None:
    golden.check(path, told, ("score", "rank", "name", "seen", "status", "error_type", "why"))


def test_configs_of_every_form_and_one_broken_row_that_costs_no_other() -> None:
    mapped = (FunctionGrader(length), {"response": "query"})
    found = runner(mapped, {"grader": length}, length).run(ROWS[:1])
    assert (scores(found, "g0"), scores(found, "g1"), scores(found, "g2")) == ([0.2], [0.0], [0.0])
    rows = [{"value": 0.1}, {"value": ValueError("no")}, {}, {"value": 0.3}]
    assert [result.ok for result in runner(Odd()).run(rows)["g0"]] == [True, False, False, True]


def test_an_error_may_raise_or_stand_for_a_number_that_says_so() -> None:
    rows = [{"value": 0.1}, {"value": ValueError("no")}]
    (_, stand_in) = runner(GraderConfig(Odd(), on_error=0.0)).run(rows)["g0"]
    assert isinstance(stand_in, GraderScore)
    assert (stand_in.score, stand_in.metadata["on_error"]["error_type"]) == (0.0, "error")
    with pytest.raises(ConfigError, match="no"):
        runner(GraderConfig(Odd(), on_error="raise")).run(rows)
    earlier: Any = "propagate"
    assert GraderConfig(Odd(), on_error=earlier) == GraderConfig(Odd())
    assert WeightedSumAggregator("r", on_error=earlier).on_error == "none"


def test_a_repeat_asks_anew_and_keeps_the_spread() -> None:
    replies = iter(["<score>1</score>", "<score>5</score>", "<score>3</score>"])
    grader = GraderRegistry.create("correctness", model=FakeLLM(reply=lambda prompt: next(replies)))
    control = RunControl()
    rows = [{"query": "q", "response": "r"}]
    (found,) = runner(GraderConfig(grader, repeat=3)).run(rows, control=control)["g0"]
    assert isinstance(found, GraderScore) and control.calls == 3
    assert (found.score, found.metadata["std"]) == (3.0, 2.0)


def test_settings_may_name_the_judge() -> None:
    reply = "fake:<reason>so</reason><score>4</score>"
    judged = build_reward("grader:relevance", {"model": reply}).evaluate(make_sample("x"))
    assert judged.output[0].answer.reward.score == 4.0


@pytest.mark.parametrize("on_error", [3.0, "none"])
def test_rows_the_run_did_not_get_to_never_get_the_number_of_the_policy(on_error: Any) -> None:
    llm = FakeLLM(reply='{"score": 4, "reason": "so"}')
    config = GraderConfig(GraderRegistry.create("correctness", model=llm), on_error=on_error)
    average = WeightedSumAggregator("average", on_error="skip" if on_error == "none" else 3.0)
    runner = GradingRunner({"right": config}, aggregators=average)
    rows = [{"query": f"q{k}", "response": "r", "reference_response": "r"} for k in range(12)]
    results = runner.run(rows, budget=Budget(max_calls=5), max_workers=1)
    for name in ("right", "average"):
        graded = [isinstance(result, GraderScore) for result in results[name]]
        assert graded == [True] * 5 + [False] * 7, name


def test_a_row_that_raises_is_named_by_its_id_else_its_number() -> None:
    def odd(response: str) -> float:
        return 1 / len(response.strip("x"))

    raising = runner(GraderConfig(odd, on_error="raise"))  # type: ignore[arg-type]
    for row, named in (({}, "1"), ({"id": "a"}, "a"), ({"row_id": 7}, "7")):
        with pytest.raises(ConfigError, match=rf"odd of row {named}: ZeroDivisionError"):
            raising.run([{"response": "0.5" * 4}, {"response": "x", **row}])


@pytest.mark.parametrize("blank", [None, math.nan])
@pytest.mark.parametrize("kind", ["reward", "function", "text"])
def test_a_blank_cell_is_no_word_to_grade(kind: str, blank: Any) -> None:
    graders: dict[str, Any] = {
        "reward": RewardRegistry.create("length_baseline"),
        "function": lambda response: 1.0,
        "text": GraderRegistry.create("string_match"),
    }
    row = {"query": "q", "response": blank, "reference_response": "a"}
    [result] = GradingRunner({"g": graders[kind]}).run([row])["g"]
    assert isinstance(result, GraderError)
    assert (result.error_type, result.cause) == ("blank", "data")


def test_functions_under_rule_and_reward_function_are_the_rewards_they_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(RewardRegistry, "_classes", dict(RewardRegistry._classes))

    @rule("short_so")
    def short_so(answer: str) -> float:
        """1 for one character. Range [0, 1]."""
        return float(len(answer) == 1)

    @reward_function
    def short_too(messages: Any, **kwargs: Any) -> float:
        return 0.25

    text = "<think>so</think>4"
    sample, row = make_sample(text), {"response": text}
    for function, score in ((short_so, 1.0), (short_too, 0.25)):
        [result] = GradingRunner({"g": function}).run([row])["g"]
        assert isinstance(result, GraderScore) and result.score == score
        for made in (build_reward(function), WeightedSum({"a": function})):
            assert made.evaluate(sample).output[0].answer.reward.score == score
    file = tmp_path / "mine.py"
    file.write_text(
        "from rm_gallery import rule\n\n\n@rule('from_file')\ndef mine(answer: str) -> float:\n"
        "    'Half. Range [0, 1].'\n    return 0.5\n"
    )
    for name in (f"{file}:mine", f"func:{file}:mine", str(file)):
        assert build_reward(name).evaluate(sample).output[0].answer.reward.score == 0.5
