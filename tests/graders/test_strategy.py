"""Strategies ask anew for every vote, and a vote that was never asked is owed. What comes of votes
and orders is golden lines.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

from rm_gallery import (
    Budget,
    FunctionGrader,
    GraderConfig,
    GraderError,
    GraderRegistry,
    GraderScore,
    GradingRunner,
    OpenaiLLM,
    evaluate,
)
from rm_gallery.core.graders.strategy import (
    AverageGrader,
    VotingGrader,
)
from rm_gallery.core.runner.aggregator import WeightedSumAggregator
from tests.reward.rewards import Listening
from tests.support.judge_server import JudgeServer

ROW = {"query": "q", "response": "r"}


def strict(response: str) -> GraderScore:
    """A result of a scale that its function has not declared."""
    return GraderScore(
        name="strict", score=1 + len(response), range=(1, 5), higher_is_better=False, threshold=3
    )


def test_gradings_whose_results_name_their_own_scale_are_of_that_scale() -> None:
    grader = FunctionGrader(strict)
    runner = GradingRunner(
        {
            "once": grader,
            "twice": GraderConfig(grader, repeat=2),
            "average": AverageGrader(grader),
            "votes": VotingGrader(grader),
            "votes of averages": VotingGrader(AverageGrader(grader)),
        },
        aggregators=[WeightedSumAggregator("mean")],
        show_progress=False,
    )
    said = {"name", "score", "range", "higher_is_better", "threshold"}
    for response in ("", "a", "four"):
        found = {
            name: one.model_dump() for name, [one] in runner.run([{"response": response}]).items()
        }
        mean = found.pop("mean")
        once = {each: found["once"][each] for each in said}
        assert once["range"] == (1.0, 5.0) and not once["higher_is_better"]
        for name, one in found.items():
            assert {each: one[each] for each in said} == once, name
        assert mean["score"] == 1 - len(response) / 4


def test_gradings_of_different_scales_have_no_mean() -> None:
    tops = iter([1, 5])
    function = FunctionGrader(lambda response: GraderScore(score=1, range=(0, next(tops))))
    found = AverageGrader(function, n=2).evaluate(ROW)
    assert isinstance(found, GraderError) and found.cause == "rule"
    assert "different scales" in found.reason


def highest(tied: Any, votes: Any) -> float:
    return float(max(votes))


def test_votes_inside_an_average_are_calls_of_their_own_kept_apart_in_the_cache() -> None:
    with JudgeServer(
        [f"<score>{score}</score>" for score in (1, 2, 3, 4)], in_process=True
    ) as server:
        llm = OpenaiLLM("judge", base_url=server.base_url, seed=7)
        grader = AverageGrader(
            VotingGrader(GraderRegistry.create("relevance", model=llm), n=2), n=2
        )
        first, again = grader.evaluate(ROW), grader.evaluate(ROW)
        assert server.stats()["requests"] == 4, "asked again, all come from the cache"
        assert len({request["body"]["seed"] for request in server.recent_requests()}) == 4
        grader.evaluate_batch([ROW], repeat=1)
        assert server.stats()["requests"] == 8, "another repeat is another question"
        assert len({request["body"]["seed"] for request in server.recent_requests(9)}) == 8
    assert isinstance(first, GraderScore)
    assert isinstance(again, GraderScore)
    assert first.score == again.score
    voted = VotingGrader(
        GraderRegistry.create("relevance", model=Listening(reply="<score>3</score>")),
        tie_break=highest,
    )
    assert pickle.loads(pickle.dumps(voted)).settings_hash == voted.settings_hash


def test_votes_cut_short_by_a_budget_or_an_outage_are_owed_again(tmp_path: Path) -> None:
    rows = [
        {"id": f"q{n}", "prompt": f"q{n}?", "chosen": ["a"], "rejected": ["b"]} for n in range(3)
    ]
    states = []
    with JudgeServer("fixed:<score>3</score>", in_process=True) as server:
        llm = OpenaiLLM(
            "judge", base_url=server.base_url, max_attempts=1, max_outage=0.5, cache=False
        )
        reward = VotingGrader(GraderRegistry.create("relevance", model=llm, channel="text"), n=3)
        for calls, fault in ((7, {}), (100, {"always": 500, "sticky": True}), (200, {})):
            server.set(faults=fault)
            report = evaluate(
                reward,
                rows,
                "preferences",
                run_dir=str(tmp_path),
                max_workers=2,
                budget=Budget(max_calls=calls),
            )
            states.append((report.n_unscored, report.n_scored))
    assert states[0][0] == states[1][0] == 0, (
        "a sample without all its votes is not unscored: a resumed run judges it"
    )
    assert states[2] == (0, 3)


def test_scores_that_are_equally_far_from_the_mean_are_a_tie() -> None:
    """0.1 and 0.2 are so from 0.15, whatever floats make of it; the lower one counts."""
    said = iter([0.2, 0.1])
    voted = VotingGrader(
        FunctionGrader(lambda response: next(said)), n=2, tie_break="closest_to_mean"
    )
    assert voted.evaluate(response="a").score == 0.1
