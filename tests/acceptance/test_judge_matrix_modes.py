"""Six judges behind real HTTP on every benchmark in every mode: each gets the figure it deserves, and none without a verdict."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rm_gallery.core.models import OpenaiLLM
from rm_gallery.core.reward.judge import BaseStepWiseRubricReward
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.stats.chance import chance_interval
from rm_gallery.gallery.benchmarks.base import benchmarks, get_benchmark
from rm_gallery.gallery.benchmarks.figures import Report
from rm_gallery.report.evaluate import evaluate
from tests.benchmarks import excerpts
from tests.benchmarks import test_votes as votes
from tests.support.benchmarks import oracle_of
from tests.support.command import command
from tests.support.judge_server import JudgeServer
from tests.support.judge_server_prompts import make_oracle

KINDS = {
    "listwise": "safety_listwise_reward",
    "pairwise": "base_helpfulness_pairwise",
    "pointwise": "base_helpfulness_pointwise",
}
N = 8
Row = excerpts.Row
Made = Callable[[int, str, str, list[str]], list[Row]]
"""Rows for number k with a right answer, a wrong one and three wrong ones of the same length."""


def flipped(k: int, right: str, wrong: str) -> tuple[str, str]:
    """The right answer first in every other row."""
    return (wrong, right) if k % 2 else (right, wrong)


def ppe(k: int, right: str, wrong: str, wrongs: list[str]) -> list[Row]:
    answers = [wrongs[0], wrongs[1], right, wrongs[2]]
    truths = [answer == right for answer in answers]
    own: dict[str, Any] = {**votes.OWN["math"], "prompt": f"q {k}"}
    return [votes.ppe_correctness(str(k), answers, truths, [[0, 2], [2, 3]], **own)]


def mt_bench(k: int, right: str, wrong: str, wrongs: list[str]) -> list[Row]:
    row = votes.mt_bench(k, *flipped(k, right, wrong), "model_b" if k % 2 else "model_a")
    for side in "ab":
        row[f"conversation_{side}"][0]["content"] = f"q {k}"
    return [row]


def ppe_vote(k: int, right: str, wrong: str, wrongs: list[str]) -> list[Row]:
    row = votes.ppe_votes(str(k), *flipped(k, right, wrong), "model_b" if k % 2 else "model_a")
    return [{**row, "prompt": f"q {k}"}]


def helpsteer3(k: int, right: str, wrong: str, wrongs: list[str]) -> list[Row]:
    row = votes.helpsteer3(*flipped(k, right, wrong), 2 if k % 2 else -2)
    return [{**row, "context": excerpts.turns(f"q {k}")}]


def rewardbench_prior(k: int, right: str, wrong: str, wrongs: list[str]) -> list[Row]:
    return [{"id": k, "prompt": excerpts.turns(f"q {k}"), "chosen": right, "rejected": wrong, "subset": "shp"}]


def own(k: int, right: str, wrong: str, wrongs: list[str]) -> list[Row]:
    return [{"id": str(k), "prompt": f"q {k}", "chosen": right, "rejected": wrong}]


ROWS: dict[str, Made] = {
    "rewardbench": lambda k, right, wrong, wrongs: [excerpts.rewardbench(k, "math-prm", right, wrong)],
    "rewardbench_prior_sets": rewardbench_prior,
    "rewardbench2": lambda k, right, wrong, wrongs: [excerpts.rewardbench2(str(k), "Math", [right], wrongs)],
    "rm_bench": lambda k, right, wrong, wrongs: [
        excerpts.rm_bench(
            k, "chat", [f"{right}, style {i}" for i in range(3)], [f"{wrong}, style {i}" for i in range(3)]
        )
    ],
    "judgebench": lambda k, right, wrong, wrongs: [
        excerpts.judgebench(str(k), "mmlu-pro", *flipped(k, right, wrong), "B>A" if k % 2 else "A>B")
    ],
    "rmbbenchmark_pairwise": lambda k, right, wrong, wrongs: [
        excerpts.rmb_pair(str(k), "Helpfulness/Chat", right, wrong)
    ],
    "rmbbenchmark_bestofn": lambda k, right, wrong, wrongs: [
        excerpts.rmb_list(str(k), "Helpfulness/Chat", right, wrongs)
    ],
    "hh_rlhf": lambda k, right, wrong, wrongs: [excerpts.hh_rlhf(f"q {k}", right, wrong)],
    "llmbar": lambda k, right, wrong, wrongs: [excerpts.llmbar(f"q {k}", *flipped(k, right, wrong), 1 + k % 2)],
    "auto_j": lambda k, right, wrong, wrongs: [excerpts.auto_j(f"q {k}", *flipped(k, right, wrong), k % 2)],
    "hhh": lambda k, right, wrong, wrongs: [excerpts.hhh("honest", f"q {k}", right, wrong)],
    "mt_bench": mt_bench,
    "helpsteer2": lambda k, right, wrong, wrongs: [
        votes.helpsteer2(f"q {k}", wrong, 0),
        votes.helpsteer2(f"q {k}", right, 4),
    ],
    "helpsteer2_preference": lambda k, right, wrong, wrongs: [
        votes.helpsteer2_preference(*flipped(k, right, wrong), 1 if k % 2 else -1, prompt=f"q {k}")
    ],
    "helpsteer3": helpsteer3,
    "ppe_correctness": ppe,
    "ppe_human_preference": ppe_vote,
    "preferences": own,
    "pairs": own,
    "lists": lambda k, right, wrong, wrongs: [
        {"id": str(k), "prompt": f"q {k}", "chosen": [right], "rejected": wrongs}
    ],
}
STEPWISE = {"prmbench", "processbench"}
"""They judge steps, which no judge of answers does."""


def rows_of(name: str) -> list[Row]:
    """N questions of a benchmark; all answers to one are equally long."""
    made: list[Row] = []
    for k in range(N):
        right, wrong = f"right answer to {k}", f"wrong answer to {k}"
        made += ROWS[name](k, right, wrong, [f"{wrong}, {place}" for place in "xyz"])
    return made


def cases() -> list[tuple[str, str | None, str]]:
    """Every benchmark in every mode with every kind of judge that fits."""
    found = []
    for name, benchmark in benchmarks().items():
        for mode in (None, *benchmark.modes):
            for kind in KINDS:
                wrong_kind = (mode in ("ratings", "best_of_k") and kind != "pointwise") or (
                    (mode == "ranking" and kind == "pointwise") or (mode == "two_games" and kind == "listwise")
                )
                if name not in STEPWISE and kind in benchmark.kinds and not wrong_kind:
                    found.append((name, mode, kind))
    return found


CASES = cases()


def test_every_benchmark_is_in_the_matrix() -> None:
    assert ROWS.keys() | STEPWISE >= benchmarks().keys()


@pytest.fixture(scope="module")
def server() -> Iterator[JudgeServer]:
    known = [get_benchmark(name).convert(row) for name in ROWS for row in rows_of(name) if name != "helpsteer2"]
    with JudgeServer("perfect", oracle=oracle_of(known)) as running:
        yield running


def judge(case: tuple[str, str | None, str], server: JudgeServer, behaviour: str) -> Report:
    name, mode, kind = case
    server.set(behaviour=behaviour)
    llm = OpenaiLLM("judge-1", base_url=server.base_url, cache=False, max_attempts=1)
    return evaluate(
        RewardRegistry.create(KINDS[kind], llm=llm), rows_of(name), get_benchmark(name, mode), max_workers=64
    )


@pytest.mark.parametrize("case", CASES, ids=["-".join(str(part) for part in case if part) for case in CASES])
def test_each_judge_gets_the_figure_it_deserves(case: tuple[str, str | None, str], server: JudgeServer) -> None:
    found = {
        behaviour: judge(case, server, behaviour) for behaviour in ("perfect", "worst", "first", "last", "garbage")
    }
    perfect, worst, garbage = found["perfect"], found["worst"], found["garbage"]
    assert (perfect.score, perfect.n, perfect.n_scored) == (1.0, N, N)
    assert (worst.score, worst.n_scored) == (0.0, N)
    assert (garbage.score, garbage.ci95, garbage.n, garbage.n_unscored) == (None, None, N, N)
    # no row here is a tie, and a judge by position never says so: where ties are a class it guesses between two
    guesses = case[0] == "auto_j" or perfect.rule == "three_class_agreement"
    chance = 0.5 if guesses else perfect.chance
    assert chance is not None and 0 < chance < 1
    low, high = chance_interval([chance] * N)
    for behaviour in ("first", "last"):
        report = found[behaviour]
        assert report.n_scored == N and report.score is not None
        # a judge that sees both orders contradicts itself, and one that sees one answer says the same of each
        contradicts = case[2] != "listwise" and report.score == 0.0
        assert contradicts or low <= report.score <= high


def test_ties_reach_what_the_formula_allows() -> None:
    rows = [
        row
        for k in range(N)
        for row in (
            excerpts.rewardbench2(f"ref:{k}", "Ties", [f"right answer to {k}"], [f"wrong answer to {k}"]),
            excerpts.rewardbench2(f"tied:{k}", "Ties", [f"right answer to {k}", f"right, too, {k}"], [f"wrong, {k}"]),
        )
    ]
    known = [get_benchmark("rewardbench2").convert(row) for row in rows]
    with JudgeServer("perfect", oracle=oracle_of(known)) as own_server:
        reward = RewardRegistry.create(
            KINDS["pointwise"], llm=OpenaiLLM("judge-1", base_url=own_server.base_url, cache=False, max_attempts=1)
        )
        scores = {}
        for behaviour in ("perfect", "worst"):
            own_server.set(behaviour=behaviour)
            scores[behaviour] = evaluate(reward, rows, get_benchmark("rewardbench2", "ratings")).score
    assert scores == {"perfect": pytest.approx(1.01), "worst": pytest.approx(-0.01)}


@pytest.mark.parametrize("name", [name for name in ROWS if name != "helpsteer2"])
@pytest.mark.parametrize(
    ("fault", "said"), [(0, ""), (500, "answered 500"), (401, "answered 401: Incorrect API key provided.")]
)
def test_nothing_scored_is_no_score_and_no_success(
    name: str, fault: int, said: str, server: JudgeServer, tmp_path: Path
) -> None:
    """However many failures are allowed, a run in which nothing could be scored has not worked."""
    data = tmp_path / "rows.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows_of(name)), encoding="utf-8")
    llm = json.dumps({"model": "judge-1", "base_url": server.base_url, "max_attempts": 1})
    server.set(behaviour="garbage", faults={"always": fault} if fault else {})
    arguments = ["bench", name, "--reward", KINDS["pointwise"], "--data", str(data), "--param", f"llm={llm}", "--json"]
    try:
        done = command(*arguments, "--no-cache", "--max-failures", "1000")
    finally:
        server.set(faults={})
    printed = json.loads(done.out)
    assert (done.code, printed["score"], printed["ci95"], printed["n"], printed["n_scored"]) == (1, None, None, N, 0)
    lost = printed["n_failed"] + printed["n_stopped"] if fault else printed["n_unscored"]
    assert lost == N and bool(printed["n_failed"]) is bool(fault)
    assert "no sample could be scored" in done.err and said in done.err


STEP = r"<step \S+>\n(?P<text>.*?)\n</step"
EXTREMES = {"prmbench": (1.0, -1.0), "processbench": (1.0, 0.0)}


@pytest.mark.parametrize("name", sorted(STEPWISE))
def test_each_judge_of_steps_gets_the_figure_it_deserves(name: str) -> None:
    rows = excerpts.EXCERPTS[name]
    steps = {text for row in rows for text in row.get("modified_process") or row["steps"]}
    oracle = make_oracle((text, text.startswith("right")) for text in steps)
    benchmark = get_benchmark(name).under(step_rule="threshold:5")
    with JudgeServer("perfect", oracle=oracle, candidate_pattern=STEP) as running:
        llm = OpenaiLLM("judge-1", base_url=running.base_url, cache=False, max_attempts=1)
        reward = BaseStepWiseRubricReward(name="steps", llm=llm, rubrics=["be right"])
        found = {}
        for behaviour in ("perfect", "worst", "garbage"):
            running.set(behaviour=behaviour)
            found[behaviour] = evaluate(reward, rows, benchmark)
        running.set(faults={"always": 500})
        failing = evaluate(reward, rows, benchmark)
    best, least = EXTREMES[name]
    assert (found["perfect"].score, found["worst"].score) == (best, least)
    assert found["perfect"].n_scored == found["worst"].n_scored == found["perfect"].n > 0
    for lost in (found["garbage"], failing):
        assert (lost.score, lost.n_scored, lost.n) == (None, 0, found["perfect"].n)
    assert failing.n_failed + failing.n_stopped == failing.n
