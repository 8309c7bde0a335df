"""A continued run whose code changed for rows that come late in the file: it is refused at every
door, for every kind.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rm_gallery import (
    BaseReward,
    ConfigError,
    DataSample,
    FakeLLM,
    FunctionGrader,
    GradingRunner,
    OpenaiLLM,
    RewardDimensionWithRank,
    RewardDimensionWithScore,
    RewardResult,
    Step,
)
from rm_gallery.core.engine import folder as run_folder
from rm_gallery.core.engine.context import RunControl
from rm_gallery.study.grading import grade
from tests.reward import rewards as r
from tests.reward.rewards import longest
from tests.support.choice import some
from tests.support.command import command
from tests.support.judge_server import JudgeServer
from tests.support.samples import make_sample, through

N, LATE = 320, 288
"""Samples, and from which on the code says something else."""
SIGN = {"late": 1.0}
JUDGED: list[str] = []


class Signed:
    """Turns the sign of late samples' scores where the code has changed."""

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> Any:
        found = super()._evaluate(sample, **kwargs)  # type: ignore[misc]
        return self._later(found, sample) if hasattr(found, "__await__") else _signed(found, sample)

    async def _later(self, found: Any, sample: DataSample) -> RewardResult:
        return _signed(await found, sample)


class SignedHook:
    """The same in the hook that reads a judge's reply."""

    def _after_evaluate(self, response: Any, sample: DataSample, **kwargs: Any) -> RewardResult:
        return _signed(super()._after_evaluate(response, sample, **kwargs), sample)  # type: ignore[misc]


def _signed(result: RewardResult, sample: DataSample) -> RewardResult:
    JUDGED.append(sample.unique_id)
    if sample.unique_id.startswith("late") and SIGN["late"] < 0:
        for detail in result.details:
            if isinstance(detail, RewardDimensionWithScore):
                detail.score += 1.0
            elif isinstance(detail, RewardDimensionWithRank):
                detail.rank = detail.rank[::-1]
    return result


def signed(kind: type[BaseReward]) -> type[BaseReward]:
    """A kind whose code changes: in its scorer, or in the hook of one that asks a judge."""
    return type(f"Signed{kind.__name__}", (SignedHook if kind.judged else Signed, kind), {})


PLAIN: list[type[BaseReward]] = [r.Rule, r.AsyncRule, r.ListRule, r.PairRule, r.StepRule]
PLAIN += [r.PointJudge, r.ListJudge, r.PairJudge, r.StepJudge]
KINDS = [signed(kind) for kind in PLAIN]
RULE = KINDS[0]


def made(kind: type[BaseReward]) -> BaseReward:
    return kind(llm=FakeLLM(reply=longest, cache=True)) if kind.judged else kind()


def samples(n: int = N) -> list[DataSample]:
    found = []
    for k in range(n):
        name, texts = f"{'late' if k >= LATE else 'early'}{k}", ("a b", f"c d {k}")
        one = make_sample(*texts, unique_id=name, query=f"q{k}", chosen=1)
        for output in one.output:
            output.steps = [Step(content=f"x {k}")]
        found.append(one)
    return found


DOORS = "evaluate_batch evaluate_stream async_evaluate_batch async_evaluate_stream".split()


def judged(kind: type[BaseReward], door: str, n: int, folder: str) -> None:
    given = samples()[:n]
    if door == "an iterator":
        through("evaluate_batch", made(kind), iter(given), run_dir=folder)
    else:
        through(door, made(kind), given, run_dir=folder)


@pytest.fixture(autouse=True)
def unchanged() -> Iterator[None]:
    SIGN["late"] = 1.0
    yield
    SIGN["late"] = 1.0


CASES = [(kind, "evaluate_batch") for kind in KINDS[1:]]
CASES += [(RULE, door) for door in (*DOORS, "an iterator")]
CASES += [(KINDS[-2], "async_evaluate_stream"), (KINDS[-1], "evaluate_stream")]
REFUSED = "holds results of something else"


@pytest.mark.parametrize(
    ("kind", "door"), some(CASES, 2), ids=lambda value: getattr(value, "__name__", value)
)
def test_a_change_for_late_samples_is_refused(
    kind: type[BaseReward], door: str, tmp_path: Path
) -> None:
    """Both where some are still owed and where the run is complete."""
    for kept in (N - 20, N):
        folder = str(tmp_path / str(kept))
        for _ in range(2):
            judged(kind, door, kept, folder)
        SIGN["late"] = -1.0
        with pytest.raises(ConfigError, match=rf"{REFUSED} .*'late\d+' answer \d had"):
            judged(kind, door, N, folder)
        SIGN["late"] = 1.0


@pytest.mark.long("several runs")
def test_a_bounded_number_of_records_from_all_over_the_file_is_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_folder, "SECONDS", 1e9)
    given = samples(1500)
    for drawn, seconds, cheap in ((1500, 1e9, 1e9), (512, 1e9, 0.0), (32, 1e-9, 0.0)):
        folder = tmp_path / str(drawn)
        made(RULE).evaluate_batch(given, run_dir=str(folder))
        monkeypatch.setattr(run_folder, "SECONDS", seconds)
        monkeypatch.setattr(run_folder, "CHEAP", cheap)
        before: list[str] = []
        for _ in range(2):
            JUDGED.clear()
            control = RunControl()
            list(made(RULE).evaluate_stream(iter(given), run_dir=str(folder), control=control))
            compared = len({*JUDGED})
            places = sorted(int(name.lstrip("earlyt")) for name in {*JUDGED})
            # a first look at three records says how long one takes
            assert min(drawn, 1480) <= compared <= drawn + 8 and len(places) == compared
            assert 450 < places[len(places) // 2] < 1050, "as many in each half"
            assert drawn == 1500 or {*before} != {*JUDGED}, (
                "what one continued run leaves out, another one compares"
            )
            before = [*JUDGED]
            summary = json.loads((folder / "summary.json").read_text())
            assert summary["compared"] == {"records": compared, "of": 1500, "scores": 2 * compared}
            assert f"{compared:,} of 1,500 compared" in control.progress.facts(None)


@pytest.mark.long("several runs")
def test_every_record_is_compared_some_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that a draw leaves out is not left out by all: a change in 1 of 100 rows is seen in the
    end.
    """
    monkeypatch.setattr(run_folder, "CHEAP", 0.0)
    monkeypatch.setattr(run_folder, "SECONDS", 1e-9)
    given = samples(80)
    made(RULE).evaluate_batch(given, run_dir=str(tmp_path))
    JUDGED.clear()
    for _ in range(40):
        made(RULE).evaluate_batch(given, run_dir=str(tmp_path))
    assert {*JUDGED} == {one.unique_id for one in given}


def test_nothing_that_was_judged_before_the_refusal_is_lost(tmp_path: Path) -> None:
    given, folder = samples(), str(tmp_path / "run")
    made(RULE).evaluate_batch(given[20:], run_dir=folder)
    SIGN["late"] = -1.0
    JUDGED.clear()
    with pytest.raises(ConfigError, match=REFUSED):
        list(made(RULE).evaluate_stream(iter(given), run_dir=folder))
    lines = (tmp_path / "run" / "results.jsonl").read_text().splitlines()
    kept = [json.loads(line)["id"] for line in lines]
    assert sorted(kept) == sorted(one.unique_id for one in given), "what the first rows got is kept"


def test_replies_that_came_from_the_cache_are_kept_beside_the_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run is compared without asking anybody, also once the cache is gone."""
    folder = str(tmp_path / "run")
    monkeypatch.setenv("RM_GALLERY_CACHE", str(tmp_path / "cache"))
    with JudgeServer("fixed:<score>5</score>", in_process=True) as server:
        llm = OpenaiLLM("judge-1", base_url=server.base_url)
        judge = signed(r.PointJudge)(llm=llm)
        given = [make_sample("a", unique_id=f"late{k}") for k in range(3)]
        judge.evaluate_batch(given, cache=True)
        judge.evaluate_batch(given, cache=True, run_dir=folder)
        asked = server.stats()["requests"]
        monkeypatch.setenv("RM_GALLERY_CACHE", "off")
        SIGN["late"] = -1.0
        with pytest.raises(ConfigError, match=rf"{REFUSED} .*had 5, and now gets 6"):
            judge.evaluate_batch(given, run_dir=folder)
        assert server.stats()["requests"] == asked


# -- tables, benchmarks and graders ----------------------------------------------------------------

CODE = """
from pathlib import Path
from rm_gallery import reward_function

def sign(text):
    return float(Path(__file__).with_name("sign").read_text()) if text.startswith("late") else 1.0

@reward_function
def rew(messages, **kwargs):
    return 0.5 + sign(messages[-1].text) * len(messages[-1].text) / 100

def grader(query, response):
    return 0.5 + sign(response) * len(response) / 100
"""
OF_TABLES = "func:rew.py:rew rows.jsonl --prompt prompt"
COMMANDS = {
    "eval": "eval func:rew.py:rew rows.jsonl",
    "eval parquet": "eval func:rew.py:rew rows.parquet",
    "score": f"score {OF_TABLES} --answer chosen",
    "winrate": f"winrate {OF_TABLES} --a chosen --b rejected",
}


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    import pandas as pd

    rows: list[dict[str, Any]] = []
    for k in range(N):
        chosen = ("late " if k >= LATE else "chat ") + "g" * (5 + k % 7)
        rows.append({"id": f"r{k}", "prompt": f"Q{k}?", "chosen": chosen, "rejected": "bb"})
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pd.DataFrame(rows).to_parquet(tmp_path / "rows.parquet")
    (tmp_path / "rew.py").write_text(CODE)
    (tmp_path / "sign").write_text("1")
    monkeypatch.chdir(tmp_path)
    return rows


def refused(*arguments: str) -> None:
    told = command(*arguments)
    assert (told.code, told.out) == (2, "") and REFUSED in told.err


@pytest.mark.long("several runs")
@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_prints_the_figure_of_the_old_code(
    name: str, table: list[dict[str, Any]]
) -> None:
    whole = [*COMMANDS[name].split(), "--json", "--out", "whole"]
    first = command(*whole)
    assert first.code == 0 and command(*whole).code == 0, first.err
    parts = [*whole[:-1], "parts"]
    assert [command(*parts, "--shard", f"{k}/2").code for k in (1, 2)] == [0, 0]
    Path("sign").write_text("-1")
    refused(*whole)
    refused(*parts, "--shard", "2/2")
    refused(*parts)


GRADERS: dict[str, Callable[[GradingRunner, list[dict[str, Any]]], Any]] = {
    "run": lambda runner, rows: runner.run(rows, run_dir="run"),
    "arun": lambda runner, rows: asyncio.run(runner.arun(rows, run_dir="run")),
    "stream": lambda runner, rows: list(runner.stream(rows, run_dir="run")),
    "grade": lambda runner, rows: grade(runner, rows, run_dir="run"),
    "a shard": lambda runner, rows: grade(runner, rows, run_dir="run", shard="1/2"),
}


@pytest.mark.parametrize("door", GRADERS)
def test_graders_are_compared(door: str, table: list[dict[str, Any]]) -> None:
    scope: dict[str, Any] = {"__file__": str(Path("rew.py").absolute()), "__name__": "rew"}
    exec(CODE, scope)
    runner = GradingRunner({"g": FunctionGrader(scope["grader"])}, show_progress=False)
    rows = [{"id": row["id"], "query": row["prompt"], "response": row["chosen"]} for row in table]
    GRADERS[door](runner, rows)
    Path("sign").write_text("-1")
    with pytest.raises(ConfigError, match=REFUSED):
        GRADERS[door](runner, rows)
