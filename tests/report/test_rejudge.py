"""Recorded rollouts judged again: the new score is that of every other door, the old one is kept."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from rm_gallery import Budget, DataError, DataSample, RewardRegistry, reward_function
from rm_gallery.core.data.load.converters import RowRef
from rm_gallery.core.data.load.rollouts import RECORDED, RolloutConverter
from rm_gallery.study.rejudge import rejudge
from rm_gallery.study.runs import open_run
from tests.data.rollouts import CRASHED, DIALOGUES, ROLLOUTS, Row, nemo_gym, openai_dump
from tests.support.command import command
from tests.support.judge_server import JudgeServer


def rows(n: int = 12) -> list[Row]:
    """NeMo-Gym rollouts of `n` prompts, each answered twice, recorded with 0 or 1."""
    made = []
    for at in range(2 * n):
        row = json.loads(json.dumps(nemo_gym()))
        row["responses_create_params"]["input"][1]["content"] += f" ({at // 2})"
        row["response"]["output"][-1]["content"][0]["text"] = f"It has {3 + at % 4} rows."
        made.append({**row, "reward": float(at % 3 == 0), "_ng_task_index": at // 2})
        made[-1]["_ng_rollout_index"] = at % 2
    return made


def sample(row: Row) -> DataSample:
    return RolloutConverter().convert(row, RowRef("log", 1))


def test_the_new_score_is_that_of_the_reward_on_the_same_sample() -> None:
    log = [*rows(), *ROLLOUTS.values()]
    report = rejudge("number_accuracy", log, progress=False)
    reward = RewardRegistry.create("number_accuracy")
    direct = [reward.evaluate(sample(row)).output[0].answer.reward.score for row in log]
    assert [one.new for one in report.rollouts] == direct
    assert [one.old for one in report.rollouts][:24] == [row["reward"] for row in rows()]
    assert None in direct and 1.0 in direct and 0.0 in direct  # ATIF records no truth


def test_figures_are_of_the_rollouts_with_both() -> None:
    log = [*rows(2), {**nemo_gym(), "mask_sample": True}, ROLLOUTS["ATIF"]]
    report = rejudge("number_accuracy", log, progress=False)
    # recorded 1 0 0 1, and 3, 4, 5, 6 rows said of 3
    assert [(one.old, one.new) for one in report.rollouts[:4]] == [(1, 1), (0, 0), (0, 0), (1, 0)]
    assert (report.n, report.n_scored, report.n_recorded, report.n_both) == (6, 5, 4, 4)
    assert (report.old_mean, report.new_mean, report.changed) == (0.5, 0.25, 1)
    gap = report.difference
    assert gap.estimate == -0.25 and gap.ci95 is not None
    assert gap.ci95.low < -0.25 < gap.ci95.high
    assert report.spearman == pytest.approx(1 / math.sqrt(3))  # by hand: phi of 1001 and 1000
    assert dict(report.missing) == {"data": 1}
    assert dict(report.kept) == {"right": 5, "short": 5}


def test_rank_correlations_have_intervals_over_prompts() -> None:
    report = rejudge("number_accuracy", rows(20), progress=False)
    for value, ends in (
        (report.spearman, report.spearman_ci95),
        (report.kendall, report.kendall_ci95),
    ):
        assert value is not None and ends is not None and ends.low < value < ends.high
    assert report.to_dict()["spearman_ci95"] == [*(report.spearman_ci95 or ())]


def test_one_prompt_says_nothing_about_others(tmp_path: Path) -> None:
    log = [{**row, "_ng_rollout_index": at} for at, row in enumerate(rows(6))]
    for row in log:
        row["responses_create_params"]["input"][1]["content"] = "How many rows?"
    report = rejudge("number_accuracy", log, progress=False)
    gap = report.difference
    assert (gap.ci95, gap.p_value, report.spearman_ci95, report.kendall_ci95) == (None,) * 4
    file = tmp_path / "log.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in log))
    said = command("rejudge", "number_accuracy", str(file)).out
    assert "no interval from one cluster" in said and "p " not in said.split("changed")[1]
    assert "no interval from one cluster" in str(report.extra["verdict"])


def test_rows_that_are_skipped_are_counted() -> None:
    report = rejudge("number_accuracy", [*rows(2), {"a": 1}], on_bad_row="skip", progress=False)
    assert (report.n, report.skipped) == (4, 1)


def test_a_reward_of_the_way_sees_the_steps() -> None:
    seen: list[list[str]] = []

    @reward_function
    def turns(messages: list[dict[str, Any]], **kwargs: Any) -> float:
        """Whether a tool was used."""
        seen.append([turn["role"] for turn in messages])
        return float(any(turn["role"] == "tool" for turn in messages))

    report = rejudge(turns, list(ROLLOUTS.values()), progress=False)
    assert [one.new for one in report.rollouts] == [1.0] * len(ROLLOUTS)
    assert seen == [["system", "user", "assistant", "tool", "assistant"]] * len(ROLLOUTS)


def test_a_run_that_a_budget_stopped_goes_on(tmp_path: Path) -> None:
    with JudgeServer("fixed:<reason>so</reason><score>1</score>") as judge:
        how: dict[str, Any] = {"llm": {"model": "m", "base_url": judge.base_url, "api_key": "k"}}
        how |= {"progress": False, "max_workers": 1, "cache": False, "run_dir": str(tmp_path / "r")}
        name = "base_helpfulness_pointwise"
        first = rejudge(name, rows(4), budget=Budget(max_calls=3), **how)
        assert (first.n, first.n_scored, first.calls) == (8, 3, 3)
        assert first.stopped is not None
        second = rejudge(name, rows(4), **how)
        assert (second.n_scored, second.calls, second.stopped) == (8, 5, None)
    kept = open_run(tmp_path / "r")
    assert (kept.report["n"], len([*kept.samples()]), kept.report["judge"]) == (8, 8, "m")
    recorded = [(row.metadata or {})[RECORDED]["reward"] for row in kept.samples()]
    assert sorted(recorded) == sorted(row["reward"] for row in rows(4))


def test_rewards_beyond_shares_have_a_difference_too() -> None:
    log = [{**row, "reward": 100.0 * at} for at, row in enumerate(rows(4))]
    report = rejudge("length_baseline", log, progress=False)
    assert report.difference.estimate == pytest.approx(
        sum(len(f"It has {3 + at % 4} rows.") - 100.0 * at for at in range(8)) / 8
    )


def test_nothing_to_judge_is_said() -> None:
    with pytest.raises(DataError, match="rollout"):
        rejudge("length_baseline", [{"a": 1}], progress=False)


def test_the_command_prints_old_beside_new(tmp_path: Path) -> None:
    log = tmp_path / "rollouts.jsonl"
    log.write_text("".join(json.dumps(row) + "\n" for row in [*rows(3), openai_dump()]))
    done = command("rejudge", "number_accuracy", str(log), "--out", str(tmp_path / "run"))
    assert done.code == 0, done.err
    assert "new − recorded" in done.out and "kept as recorded: right (6), short (6)" in done.out
    told = command("rejudge", "number_accuracy", str(log), "--json")
    assert json.loads(told.out)["n_both"] == 7


@pytest.mark.parametrize("name", DIALOGUES)
def test_a_call_before_a_later_turn_of_the_user_counts(name: str) -> None:
    checks = [{"kind": "calls", "tool": "sql"}]
    reward = RewardRegistry.create("final_state", checks=checks)
    report = rejudge(reward, [DIALOGUES[name]], progress=False)
    assert [one.new for one in report.rollouts] == [1.0]


@pytest.mark.parametrize("name", CRASHED)
def test_a_crashed_rollout_is_missing_and_not_the_end_of_the_log(name: str) -> None:
    log = [*CRASHED[name], ROLLOUTS[name]]
    report = rejudge("length_baseline", log, progress=False)
    assert [one.new is None for one in report.rollouts] == [True] * (len(log) - 1) + [False]
    assert {one.cause for one in report.rollouts[:-1]} == {"data"}
    assert (report.n, report.n_scored, dict(report.missing)) == (
        len(log),
        1,
        {"data": len(log) - 1},
    )


def test_every_row_twice_has_the_interval_of_the_rows_once() -> None:
    """Rollouts of one prompt are one witness: as independent ones they would be 1.4 times as sure."""
    alone = rows()[::2]  # one of each prompt
    once, twice = (rejudge("number_accuracy", log, progress=False) for log in (alone, alone * 2))
    for one, other in (
        (once.difference.ci95, twice.difference.ci95),
        (once.ci95, twice.ci95),
    ):
        assert one is not None and other is not None
        assert 0.95 < (other.high - other.low) / (one.high - one.low) < 1.25


def test_every_mean_is_over_the_rows_it_names(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    made = [{**row, "reward": None if at < 2 else 1.0} for at, row in enumerate(rows(3))]
    log.write_text("".join(json.dumps(row) + "\n" for row in made))
    report = rejudge("number_accuracy", str(log), progress=False)
    both = [one for one in report.rollouts if one.old is not None and one.new is not None]
    assert report.new_mean == sum(one.new or 0.0 for one in both) / len(both)
    done = command("rejudge", "number_accuracy", str(log))
    ends = [line.split()[-1] for line in done.out.splitlines() if "recorded" in line][:2]
    assert ends == ["4", "4"] and "number_accuracy, all" in done.out


@pytest.mark.parametrize("layout", ["messages", "nemo_gym"])
def test_the_column_of_the_truth_can_be_named(layout: str, tmp_path: Path) -> None:
    turns = [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}]
    row = {"messages": turns} if layout == "messages" else {**nemo_gym(), "expected_answer": None}
    file = tmp_path / "log.jsonl"
    file.write_text(
        "".join(
            json.dumps({**row, "reward": 0.0, "gold": "4", "id": str(k)}) + "\n" for k in (1, 2)
        )
    )
    assert rejudge("number_accuracy", str(file), progress=False).n_scored == 0
    done = command("rejudge", "number_accuracy", str(file), "--reference", "gold", "--json")
    assert done.code == 0 and json.loads(done.out)["n_scored"] == 2
    done = command("rejudge", "number_accuracy", str(file), "--reference", "golf")
    assert done.code != 0 and "golf" in done.err and "gold" in done.err
