"""What users hand to graders that is no row, no list, no number or no name, and what it must not become."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from rm_gallery import (
    Budget,
    Combined,
    ConfigError,
    DataError,
    FakeLLM,
    FunctionGrader,
    GraderConfig,
    GraderError,
    GraderRank,
    GraderScore,
    GradingRunner,
    LLMGrader,
    RewardRegistry,
    Score,
    environment_reward,
    reward_function,
)
from rm_gallery.cli.judge import runner_of
from rm_gallery.core.data.load.readers import memory_source
from rm_gallery.core.graders.base import as_grader, score_of
from rm_gallery.core.graders.strategy import BothOrdersGrader, TournamentGrader, VotingGrader
from rm_gallery.core.runner.aggregator import (
    BaseAggregator,
    CallableAggregator,
    GatedAggregator,
    WeightedSumAggregator,
)
from rm_gallery.core.runner.grading_runner import rows_of
from rm_gallery.study.grading import grade, status_of
from rm_gallery.study.select import judge_select
from rm_gallery.study.table import score_table
from tests.support.samples import issues, make_sample, scores

ASKED: list[str] = []


def half(response: str) -> float:
    ASKED.append(response)
    return 0.5


def odd(response: Any) -> dict[str, Any]:
    return {"score": 0.5, "seen": ODD[response]}


def gone(response: str) -> float:
    raise OSError("the endpoint went away")


def fourth(prompt: str) -> str:
    return "<score>4</score>"


ODD: dict[str, Any] = {
    "large": 10**400,
    "larger": 10**5000,
    "half a pair": "\ud800",
    "keys": {(1, 2): 3},
    "set": {1},
}


def runner(**graders: Any) -> GradingRunner:
    return GradingRunner(graders, show_progress=False)


class Shortest:
    def compute_group_reward(
        self, rollout_ids: Any, messages_list: Any, tasks: Any, **kwargs: Any
    ) -> list[dict[str, float]]:
        return [{"short": 1 / (1 + len(each[-1]["content"]))} for each in messages_list]


# -- tables ----------------------------------------------------------------------------------------


def test_a_whole_number_beside_a_gap_is_the_same_reference_in_a_frame_a_file_and_a_list(
    tmp_path: Path,
) -> None:
    rows = [
        {"response": "4", "reference_response": 4, "share": 0.5},
        {"response": "5", "reference_response": None, "share": None},
    ]
    frame = pd.DataFrame(rows)
    frame.to_parquet(tmp_path / "rows.parquet")
    told = [
        [
            (each.score, each.ok)
            for each in runner(a=RewardRegistry.create("accuracy")).run(data)["a"][:1]
        ]
        for data in (rows, frame, tmp_path / "rows.parquet")
    ]
    assert told == [[(1.0, True)]] * 3
    assert [row["share"] for row in rows_of(frame)] == [0.5, None]


def test_a_frame_gives_the_same_rows_and_scores_through_every_door(tmp_path: Path) -> None:
    """Of a struct Arrow holds each field in every row; a gap is NaN in floats and NaT in times."""
    shown: list[tuple[Any, ...]] = []

    @reward_function
    def noted(
        messages: Any,
        share: Any = None,
        info: Any = None,
        when: Any = None,
        n: Any = None,
        **row: Any,
    ) -> float:
        shown.append((messages[-1]["content"], share, info, when, n))
        return 0.5 if share is None else share / 10

    frame = pd.DataFrame(
        {
            "prompt": ["p", "q", "r"],
            "response": ["a", "b", "c"],
            "share": [0.5, math.nan, 2.25],
            "n": [1, math.nan, 3],
            "info": [{"city": "Oslo", "symbol": None}, {"city": None, "symbol": "X"}, None],
            "when": pd.to_datetime(["2020-01-01", "NaT", "2021-01-01"]),
        }
    )
    frame.to_parquet(tmp_path / "rows.parquet")
    graders = GradingRunner({"noted": noted}, show_progress=False)
    doors: dict[str, Callable[[], Any]] = {
        "run": lambda: [each.score for each in graders.run(frame)["noted"]],
        "grade": lambda: grade(graders, frame).score,
        "score": lambda: score_table(as_grader(noted), frame, "prompt", "response").score,
        "run of a file": lambda: [
            each.score for each in graders.run(tmp_path / "rows.parquet")["noted"]
        ],
    }
    found, told = {}, {}
    for name, door in doors.items():
        shown.clear()
        scores_found = door()
        found[name] = sorted(shown, key=lambda row: row[0])
        told[name] = pytest.approx(sum(scores_found) / 3 if name[:3] == "run" else scores_found)
    expected = [
        ("a", 0.5, {"city": "Oslo"}, datetime.fromisoformat("2020-01-01"), 1),
        ("b", None, {"symbol": "X"}, None, None),
        ("c", 2.25, None, datetime.fromisoformat("2021-01-01"), 3),
    ]
    assert all(rows == expected for rows in found.values()), found
    assert len({each.expected for each in told.values()}) == 1, told
    assert [row for _, row in memory_source(frame).rows()] == list(rows_of(frame))


def test_one_data_set_in_the_place_of_several_is_refused_and_its_folder_never_read() -> None:
    # a path is a sequence of letters, the first of which names the root of the disk
    made = runner(h=half)
    wrong: list[Any] = ["/tmp/rows.csv", Path("/tmp"), {"a": []}, pd.DataFrame(), 5]
    for given in wrong:
        with pytest.raises(DataError, match="give a list of them"):
            made.run_multiple_datasets(given)


@pytest.mark.parametrize("row", [["a"], "a", 5])
def test_what_is_no_row_is_named(row: Any) -> None:
    with pytest.raises(DataError, match="a row is a dict"):
        FunctionGrader(half).evaluate(row)


# -- fields ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["ab", {"a": 1, "b": 2}, None, [], ["a", None], [math.nan, "b"]])
def test_letters_keys_and_blanks_are_no_responses_to_compare(given: Any) -> None:
    shortest = as_grader(environment_reward(Shortest()))
    for made in (shortest, TournamentGrader(shortest), BothOrdersGrader(shortest)):
        found = made.evaluate(responses=given)
        assert (found.kind, found.cause) == ("error", "data"), found
    assert shortest.evaluate(responses=("a", "bbb")).rank == [1, 2]


def test_columns_named_metadata_and_steps_cost_no_rule_its_name() -> None:
    rule = RewardRegistry.create("accuracy")
    row = {"response": "4", "reference_response": "4"}
    assert rule.evaluate({**row, "metadata": "batch 3"}).score == 1.0
    for steps in ("abc", ["one", None]):
        found = rule.evaluate({**row, "steps": steps})
        assert (found.error_type, found.cause) == ("data", "data")
    held: list[Any] = []
    held.append(held)
    judge = LLMGrader(model=FakeLLM(reply=fourth), prompt="{response}")
    assert judge.evaluate(response=held).cause == "data"


# -- graders ---------------------------------------------------------------------------------------


@dataclass
class Longer:
    than: int = 1

    def __call__(self, response: str) -> float:
        return float(len(response) > self.than)


def test_an_object_that_has_no_hash_grades_and_a_builtin_without_names_is_refused() -> None:
    assert FunctionGrader(Longer()).evaluate(response="ab").score == 1.0
    with pytest.raises(ConfigError, match="no names"):
        FunctionGrader(max).evaluate(response="ab")


def test_a_number_beyond_floats_is_no_usable_result() -> None:
    for given in (10**400, {"score": 10**400}):
        found = FunctionGrader(lambda response, given=given: given).evaluate(response="a")
        assert found.error_type == "invalid_result"


def test_a_judge_on_a_scale_between_whole_numbers_is_asked_again_or_refused() -> None:
    replies = iter(["<score>0</score>", "<score>4</score>"])
    judge = FakeLLM(reply=lambda prompt: next(replies))
    grader = LLMGrader(model=judge, prompt="{response}", score_range=(0.5, 4.5))
    assert grader.evaluate(response="a").score == 4.0
    with pytest.raises(ConfigError, match="whole=False"):
        LLMGrader(model=judge, prompt="{response}", score_range=(0, 0.5))
    with pytest.raises(ConfigError, match="no prompt"):
        LLMGrader(model=judge, prompt=[]).evaluate(response="a")


def test_settings_that_nothing_can_meet_are_refused_before_a_row_is_paid_for() -> None:
    judge = LLMGrader(model=FakeLLM(reply=fourth), prompt="{response}")
    rule = RewardRegistry.create("accuracy")
    with pytest.raises(ConfigError, match="least is 4"):
        VotingGrader(judge, n=3, least=4).evaluate(response="a")
    with pytest.raises(ConfigError, match="orders responses"):
        order = FunctionGrader(lambda responses: GraderRank(rank=[1]), mode="listwise")
        GradingRunner({"g": GraderConfig(order, repeat=2)}).run([{"responses": ["a"]}])
    with pytest.raises(ConfigError, match="least is 2"):
        Combined({"a": rule}, missing="skip", least=2)
    with pytest.raises(ConfigError, match=r"Combined: missing is 'mean'"):
        Combined({"a": rule}, missing="mean")
    with pytest.raises(ConfigError, match="normalize=False"):
        Combined({"a": judge}, how="geometric_mean", normalize=False)
    with pytest.raises(ConfigError, match="weight"):
        WeightedSumAggregator(weights={"a": 10**400})
    for threshold in (10**400, "0.1", True):
        with pytest.raises(ConfigError, match="threshold"):
            GatedAggregator("g", "a", threshold=threshold)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="has no threshold"):
        GradingRunner({"a": rule, "b": half}, GatedAggregator("g", "a"), show_progress=False)
    with pytest.raises(ConfigError, match="same text"):
        GradingRunner({1: half, "1": half})  # type: ignore[dict-item]
    for mapper in (["x"], "x"):
        with pytest.raises(ConfigError, match="mapper"):
            GraderConfig(rule, mapper=mapper)  # type: ignore[arg-type]


def test_a_gate_on_a_users_grader_without_a_threshold_costs_rows_and_not_the_run() -> None:
    made = GradingRunner({"a": half, "b": half}, GatedAggregator("g", "a"), show_progress=False)
    [found] = made.run([{"response": "x"}])["g"]
    assert "has no threshold" in found.reason


def test_a_function_of_results_is_not_blamed_for_the_one_that_is_missing() -> None:
    made = GradingRunner(
        {"a": half, "b": gone},
        [lambda found: found["a"].score + found["b"].score, lambda_that_divides],
        show_progress=False,
    )
    found = made.run([{"response": "x"}])
    assert score_of(found["aggregate"][0]).code == score_of(found["b"][0]).code
    assert "b: " in found["aggregate"][0].reason


def lambda_that_divides(found: Any) -> float:
    return float(found["a"].score / 2)


class Combines(BaseAggregator):
    """An aggregator whose formula is its user's."""

    def __init__(self, made: Any) -> None:
        super().__init__("made")
        self.made = made

    def combine(self, scores: Any) -> Any:
        return self.made


class Calls(Combines):
    """One whose whole call is its user's."""

    def __call__(self, results: Any, **_: Any) -> Any:
        return self.made


BESIDE = GraderScore(score=3.0, range=(0.0, 1.0))
"""A result outside its own range."""
NO_SCORES = [1.5, -0.5, math.nan, math.inf, 10**400, None, "0.5", [1.0], BESIDE]


def givers(made: Any) -> dict[str, tuple[dict[str, Any], Any]]:
    """Graders, and an aggregator of them, that give this for the answer "odd" and half else, by kind."""

    def given(response: str) -> Any:
        return made if response == "odd" else 0.5

    def answered(messages: Any, **kwargs: Any) -> Any:
        return given(messages[-1]["content"])

    found: dict[str, tuple[dict[str, Any], Any]] = {
        "function": ({"made": given}, None),
        "grader": ({"made": FunctionGrader(given, score_range=(0, 1))}, None),
        "aggregating function": ({"half": half}, CallableAggregator(lambda _: made, "made")),
        "combine": ({"half": half}, Combines(made)),
        "call": ({"half": half}, Calls(made)),
    }
    if made in (1.5, -0.5):  # of an aggregating function and call nobody stated a range
        del found["aggregating function"], found["call"]
    if not isinstance(made, GraderScore):  # rewards return no result of a grader
        found["reward"] = ({"made": reward_function(answered)}, None)
    return found


@pytest.mark.parametrize("kind", givers(BESIDE) | givers(1.5))
@pytest.mark.parametrize("made", NO_SCORES, ids=lambda made: f"{made!r:.20}")
def test_what_is_no_score_of_its_scale_is_missing_at_every_door(kind: str, made: Any) -> None:
    if (given := givers(made).get(kind)) is None:
        return
    graders, aggregator = given
    going = GradingRunner(graders, aggregator, show_progress=False)
    [found] = going.run([{"query": "q", "response": "odd", "ok": 1}])["made"]
    assert isinstance(found, GraderError) and found.cause == "rule", found
    report = grade(going, [{"query": "q", "response": "odd"}] * 3)
    assert (report.score, report.n, report.n_scored) == (None, 3, 0)
    assert report.missing == {"rule": 3}
    if aggregator is None:
        (grader,) = going.grader_configs.values()
        rows = [{"query": f"{n}", "response": "odd", "ok": 1} for n in range(2)]
        rows.append({"query": "q", "response": "even", "ok": 1})
        judges = GradingRunner({**graders, "half": half}, show_progress=False)
        first, _ = judge_select(judges, rows, "ok").judges
        assert (first.n_scored, first.missing) == (1, {"rule": 2})
        assert grader.grader.evaluate(response="odd").kind == "error"


def test_a_result_outside_its_own_range_is_no_score() -> None:
    assert status_of(BESIDE) == "failed"
    assert status_of(BESIDE.model_copy(update={"score": 1.0})) == "scored"


def test_results_of_ranges_of_their_own_have_a_mean_within_all_of_them() -> None:
    def told(response: str) -> GraderScore:
        low, high = (0.0, 1.0) if len(response) % 2 else (1.0, 5.0)
        return GraderScore(score=high, range=(low, high))

    def nearly(response: str) -> float:
        return 1.0 + 5e-10

    rows = [{"query": f"{n}", "response": "x" * n} for n in range(1, 5)]
    found = grade(runner(told=told, nearly=nearly), rows)
    assert (found.score, found.n_scored) == (3.0, 4)
    assert found.by_subset["nearly"].n_scored == 4


# -- run folders -----------------------------------------------------------------------------------


def test_a_run_of_two_judges_goes_on_however_often_its_budget_ends_between_them(
    tmp_path: Path,
) -> None:
    judge = FakeLLM(reply=fourth)
    rows = [{"response": f"r{n}", "query": "q"} for n in range(6)]
    made = runner(
        one=LLMGrader(model=judge, prompt="{response} {query}"),
        two=LLMGrader(model=judge, prompt="Rate {response}"),
    )
    for calls in (5, 10, 15, 20):
        found = made.run(rows, run_dir=tmp_path, budget=Budget(max_calls=calls), cache=False)
    assert [each.score for column in found.values() for each in column] == [4.0] * 12


def test_rows_without_an_id_that_differ_in_what_no_grader_reads_are_each_kept(
    tmp_path: Path,
) -> None:
    rows = [{"response": "a", "topic": topic} for topic in "xyz"]
    made = runner(h=half)
    first = made.run(rows, run_dir=tmp_path)
    lines = len((tmp_path / "results.jsonl").read_bytes().splitlines())
    assert made.run(rows, run_dir=tmp_path) == first
    assert lines == len((tmp_path / "results.jsonl").read_bytes().splitlines()) == 3


def test_metadata_that_json_cannot_hold_end_no_run(tmp_path: Path) -> None:
    rows = [{"response": name} for name in ODD]
    made = runner(odd=odd)
    for _ in range(2):
        assert [each.score for each in made.run(rows, run_dir=tmp_path)["odd"]] == [0.5] * len(ODD)


# -- configs ---------------------------------------------------------------------------------------


def test_a_config_that_does_not_fit_is_named_and_a_gate_may_have_an_aggregator_of_its_own() -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"graders": {"accuracy": {"params": [1]}}}, "params"),
        ({"graders": {"accuracy": {"mapper": ["x"]}}}, "mapper"),
        ({"graders": [{"name": "accuracy"}, {"name": "accuracy"}]}, "2 times"),
    ]
    for config, said in wrong:
        with pytest.raises(ConfigError, match=said):
            runner_of(config)
    gate = {"kind": "gated", "name": "g", "primary": "accuracy", "threshold": 1}
    made = runner_of({
        "graders": {"accuracy": {}, "f1_score": {}, "rouge": {}},
        "aggregators": [{**gate, "secondary": {"kind": "min"}}],
    })  # fmt: skip
    [found] = made.run([{"response": "a", "reference_response": "a"}])["g"]
    assert found.score == 1.0


def test_a_misspelt_cluster_and_labels_that_are_no_columns_are_refused() -> None:
    rows = [{"response": "a", "topic": "x"}]
    with pytest.raises(ConfigError, match="There is no column 'topics'"):
        grade(runner(h=half), rows, cluster="topics")
    with pytest.raises(ConfigError, match="labels"):
        grade(runner(h=half), rows, labels=["good"])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "number", [math.nan, math.inf, 10**400, None], ids=["nan", "inf", "large", "none"]
)
def test_a_number_that_is_none_gives_no_place_in_an_order(number: Any) -> None:
    def shortest(responses: list[str]) -> Score[Any]:
        return Score((*[-float(len(each)) for each in responses[:-1]], number))

    grader = FunctionGrader(shortest, mode="listwise")
    row = {"responses": ["a", "bb"]}
    for asked in (grader, BothOrdersGrader(grader), TournamentGrader(grader)):
        [found] = GradingRunner({"shortest": asked}, show_progress=False).run([row])["shortest"]
        assert isinstance(found, GraderError)
        assert (found.error_type, found.cause) == ("invalid_result", "rule")
        assert "a score is a" in found.reason
    sample = make_sample("a", "bb")
    assert scores(grader.evaluate(sample)) == [None, None]
    assert issues(grader.evaluate(sample)) == [("failed", "invalid_result")] * 2


def lowest_of_five(response: str) -> GraderScore:
    return GraderScore(score=1, range=(1, 5))


def lower_is_better(response: str) -> GraderScore:
    return GraderScore(score=1, range=(0, 1), higher_is_better=False)


@pytest.mark.parametrize(
    ("function", "declared"),
    [(lowest_of_five, {"score_range": (1, 5)}), (lower_is_better, {"higher_is_better": False})],
)
def test_a_result_of_another_scale_is_no_score_of_a_sample(
    function: Any, declared: dict[str, Any]
) -> None:
    """The lowest of [1, 5] was the highest of [0, 1]."""
    sample, grader = make_sample("a"), FunctionGrader(function)
    assert grader.evaluate(response="a").score == 1
    assert issues(grader.evaluate(sample)) == [("failed", "undeclared_range")]
    for settings in (declared, {**declared, "score_range": (None, None)}):
        assert scores(FunctionGrader(function, **settings).evaluate(sample)) == [1.0]


def test_an_order_where_a_score_is_needed_is_told_as_one() -> None:
    def better(responses: list[str]) -> GraderRank:
        return GraderRank(rank=[2, 1], reason="the second is right")

    grader = FunctionGrader(better)
    runner = GradingRunner(
        {"order": grader, "twice": GraderConfig(grader, repeat=2)},
        aggregators=WeightedSumAggregator("mean", weights={"order": 1}),
        show_progress=False,
    )
    found = runner.run([{"responses": ["a", "b"]}])
    for name, said in (
        ("twice", "0 of 2 gradings gave a score, 2 are needed: it gave a GraderRank"),
        ("mean", "order: GraderRank"),
    ):
        assert [result.reason for result in found[name]] == [said]


def test_one_answer_alone_has_no_place_among_others() -> None:
    """It was the worst one there is."""
    grader = FunctionGrader(lambda responses: GraderRank(rank=[1]), mode="listwise")
    [issue] = grader.evaluate(make_sample("a")).output[0].answer.reward.issues
    assert (issue.status, issue.reason, issue.cause) == ("unscored", "single_output", "data")
    assert grader.evaluate(responses=["a"]).rank == [1]


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_a_component_of_a_graders_score_is_finite_or_named(number: float) -> None:
    grader = FunctionGrader(lambda response: Score(0.5, components={"fine": 1.0, "margin": number}))
    for found in (grader.evaluate(response="a"), *grader.evaluate_batch([{"response": "a"}])):
        assert (found.kind, found.error_type) == ("error", "invalid_result")
        assert f"the component 'margin' is a finite number, found {number}" in found.reason
