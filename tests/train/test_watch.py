"""Watching a training run: each way of gaming a reward is found, chance is not, and what holds
whatever the rewards.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rm_gallery import ConfigError
from rm_gallery.train.signals import METHODS, Method, group_advantages, link
from rm_gallery.train.training_log import read_training_log
from rm_gallery.train.watch import Watched, watch, watched_lines
from tests.support.command import command
from tests.train.runs import run


def kinds(found: Watched) -> set[str]:
    return {finding.kind for finding in found.findings}


@pytest.mark.long("many runs of training")
def test_chance_is_no_finding() -> None:
    """Each way of gaming is one, which is golden (`watch/runs`)."""
    assert [kinds(watch(run(seed))) for seed in range(12)] == [set()] * 12


def test_a_finding_is_told_in_lines_and_as_json_with_rows_that_show_it() -> None:
    rows = run(2, "apart")
    found = watch(rows)
    (finding,) = found.findings
    assert found.warned and finding.severity == "warn"
    assert [rows[shown["row"]]["prompt"] for shown in finding.examples] == [
        e["prompt"] for e in finding.examples
    ]
    assert {(e["rewards"]["style"], e["rewards"]["right"]) for e in finding.examples} == {
        (1.0, 0.0)
    }
    assert f"WARN apart: {finding.text}" in "\n".join(watched_lines(found))
    json.dumps(found.to_dict(), allow_nan=False)
    (phrase,) = watch(run(1, "phrase")).findings
    assert (
        phrase.figures["phrase"] == "To answer your question in full," and phrase.severity == "look"
    )
    assert all(e["completion"].startswith(phrase.figures["phrase"]) for e in phrase.examples)
    assert "too few groups to tell" in "\n".join(watched_lines(watch(run(0, steps=1))))


def test_a_total_without_components_that_is_missing_is_found() -> None:
    """verl's rollouts hold score, acc (the same), unscored and failed where a reward has no
    components.
    """
    rng = np.random.default_rng(3)
    rows = []
    for step in range(20):
        for at in range(48):
            lost = rng.random() < 0.9 * step / 19
            score = 0.4 if lost else float(rng.random() < 0.4)
            flags = {"score": score, "acc": score, "unscored": 0.0, "failed": float(lost)}
            text = f"word {rng.random()} {at}"
            rows.append({"input": f"q{step}-{at // 8}", "output": text, "step": step + 1, **flags})
    assert "unscored" in kinds(watch(rows))


def test_what_is_sure_and_too_small_to_matter_is_no_finding() -> None:
    rng = np.random.default_rng(5)
    rows = run(3, steps=40, prompts=10)
    for at, row in enumerate(rows):
        late = row["step"] / 39
        row["up"] = (
            0.5
            + 0.02 * late
            + 0.005 * rng.normal()
            + (0.5 if at == 0 else -0.5 if at == 1 else 0.0)
        )
        row["down"] = (
            0.5
            - 0.02 * late
            + 0.005 * rng.normal()
            + (0.5 if at == 2 else -0.5 if at == 3 else 0.0)
        )
        # correlates, and says something of its own
        row["near"] = row["right"] + 0.13 * rng.normal()
        row["wordy"] = 0.5 + 0.004 * (len(row["completion"].split()) - 25) + 0.2 * rng.normal()
    found = watch(rows)
    assert (
        found.moved["up"] is not None and found.moved["up"].sure and found.moved["down"] is not None
    )
    assert (
        found.moved["down"].sure
        and found.by_length["wordy"] is not None
        and found.by_length["wordy"].sure
    )
    assert not {(f.kind, f.components) for f in found.findings} & {
        ("apart", ("up", "down")), ("mirror", ("right", "near")), ("length", ("wordy",)),
    }  # fmt: skip


def trl_folder(folder: Path, rows: list[dict[str, Any]]) -> Path:
    """What `log_completions=True` and the trainer's state leave behind."""
    (folder / "completions").mkdir(parents=True)
    said = {"prompt": "user", "completion": "assistant"}
    for step in sorted({row["step"] for row in rows}):
        own = [row for row in rows if row["step"] == step]
        talks = {
            name: [[{"role": role, "content": row[name]}] for row in own]
            for name, role in said.items()
        }
        table = {name: [row[name] for row in own] for name in ("step", "right", "style")} | talks
        table["advantage"] = [0.5] * len(own)
        pq.write_table(pa.table(table), folder / "completions" / f"completions_{step:05d}.parquet")
    history = [
        {"step": row["step"], "frac_reward_zero_std": 0.9, "loss": float("nan")}
        for row in rows[::32]
    ]
    (folder / "checkpoint-30").mkdir()
    (folder / "checkpoint-30" / "trainer_state.json").write_text(
        json.dumps({"log_history": history}), encoding="utf-8"
    )
    return folder


def jsonl_file(folder: Path, rows: list[dict[str, Any]], name: str = "log.jsonl") -> Path:
    folder.mkdir(exist_ok=True)
    nested = [
        {**row, "rewards": {"right": row["right"], "style": {"score": row["style"]}}}
        for row in rows
    ]
    lines = [
        json.dumps({k: v for k, v in row.items() if k not in ("right", "style")}) for row in nested
    ]
    (folder / name).write_bytes(("\r\n".join(lines) + '\r\n{"step": 30, "prom').encode())
    return folder / name


@pytest.mark.parametrize("write", [trl_folder, jsonl_file])
def test_every_log_tells_the_same(write: Any, tmp_path: Path) -> None:
    rows = run(1, "apart", steps=12)
    log = read_training_log(write(tmp_path / "run", rows))
    plain = read_training_log(rows)
    assert list(log.components) == ["right", "style"]
    assert (log.texts, log.prompts, log.unit) == (plain.texts, plain.prompts, "characters")
    for name in ("right", "style"):
        assert np.array_equal(log.components[name], plain.components[name])
    assert np.array_equal(log.steps, plain.steps) and np.array_equal(log.lengths, plain.lengths)
    found = watch(log)
    assert "apart" in kinds(found)
    assert ("flat" in kinds(found)) is (write is trl_folder)
    assert found.notes == (
        ["the last line was still being written and is left out"] if write is jsonl_file else []
    )


@pytest.mark.parametrize("odd", [
    {"big": [1e300, -1e300, 1.7e308, 0.0]},
    {"r": [float("nan"), None, float("inf"), True, np.float32(0.5), np.int64(1)]},
    {"step": [float("nan"), None, 1, 2]},
    {"prompt": [None]},
    {"completion": [None, "", "x", "y"]},
    {"completion": [[{"role": "assistant", "content": None, "tool_calls": []}, {"role": "tool", "content": "x"}]]},
])  # fmt: skip
def test_odd_values_raise_nothing(odd: dict[str, list[Any]]) -> None:
    rng = np.random.default_rng(0)
    said = [{"completion": "x" * int(rng.integers(1, 50)), "r": rng.random()} for _ in range(160)]
    rows = [{"step": i // 16, "prompt": f"p{i // 4}", **each} for i, each in enumerate(said)]
    values = [{name: each[i % len(each)] for name, each in odd.items()} for i in range(160)]
    found = watch([{**row, **other} for row, other in zip(rows, values, strict=True)])
    assert found.n_completions == 160 and watched_lines(found)
    assert json.dumps(found.to_dict(), allow_nan=False)


def test_without_steps_a_prompt_is_a_group() -> None:
    rows = [
        {name: value for name, value in row.items() if name != "step"} for row in run(1, "apart")
    ]
    assert kinds(watch(rows)) == {"apart"}


def test_files_of_a_folder_are_read_by_the_step_in_their_name_and_the_longest_state_wins(
    tmp_path: Path,
) -> None:
    for name, text in (
        ("10.jsonl", "c"),
        ("2.jsonl", "a"),
        ("completions_00007.jsonl", "b"),
        ("log.jsonl", "d"),
    ):
        (tmp_path / name).write_text(json.dumps({"completion": text}) + "\n\n", encoding="utf-8")
    for folder, points in (("a-1", 1), ("checkpoint-2", 3)):
        (tmp_path / folder).mkdir()
        state = {"log_history": [{"step": at, "loss": at} for at in range(points)]}
        (tmp_path / folder / "trainer_state.json").write_text(json.dumps(state), encoding="utf-8")
    (tmp_path / ".hidden.jsonl").write_text("[]", encoding="utf-8")
    log = read_training_log(tmp_path)
    table = pa.table({"completion": ["other"], "score": [1.0]})
    # of parquet files those of completions, unless there is nothing else
    pq.write_table(table, tmp_path / "a.parquet")
    assert read_training_log(tmp_path).texts == log.texts
    (tmp_path / "alone").mkdir()
    pq.write_table(table, tmp_path / "alone" / "a.parquet")
    assert read_training_log(tmp_path / "alone").texts == ["other"]
    (tmp_path / "b.csv").write_text(
        "step,prompt,completion,score,word\n1,12,34,0.5,\n2,12,35,,x\n", encoding="utf-8"
    )
    plain = read_training_log(tmp_path / "b.csv")
    assert (plain.prompts, plain.texts, list(plain.components)) == (["12", "12"], ["34", "35"], [])
    assert plain.total is not None and plain.total[0] == 0.5 and np.isnan(plain.total[1])
    assert (log.texts, log.steps.tolist()) == (["a", "b", "c", "d"], [2.0, 7.0, 10.0, 0.0])
    assert log.charts == {"loss": [(0.0, 0.0), (1.0, 1.0), (2.0, 2.0)]} and log.name == str(
        tmp_path
    )


def test_the_command(tmp_path: Path) -> None:
    gamed = str(jsonl_file(tmp_path, run(1, "apart", steps=12)))
    found = command("watch", gamed, "--examples", "1")
    assert found.code == 1
    assert found.out.startswith(f"1 finding: {gamed}, 384 completions to 96 prompts, steps 0 to 11")
    assert "WARN apart: style became better" in found.out and "  step " in found.out
    told = command(
        "watch",
        gamed,
        "--json",
        "--weight",
        "right=-1",
        "--component",
        "right",
        "--component",
        "style",
    )
    assert (told.code, json.loads(told.out)["findings"]) == (0, [])
    fine = command("watch", str(jsonl_file(tmp_path, run(1, steps=12), "fine.jsonl")))
    assert (fine.code, fine.out.splitlines()[0].split(":")[0]) == (0, "nothing found")
    with pytest.raises(ConfigError, match="log is a int; give a path or a list of rows"):
        watch(7)


def test_what_a_log_says_cannot_steer_the_terminal(tmp_path: Path) -> None:
    evil, name = "\x1b]0;evil\x07\x1b[2J\u202e", "re\x1b[2Jward\nx"
    rows = [{"step": s, "completion": evil, name: s / 50, "b": 1 - s / 50} for s in range(50)]
    log = tmp_path / "log.jsonl"
    log.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    lines = watched_lines(watch(log))
    assert any("evil" in line for line in lines)
    assert all(line.isprintable() for line in lines)


@pytest.mark.parametrize("method", METHODS)
def test_groups_add_up_to_nothing_in_any_order_and_under_any_name(method: Method) -> None:
    rng = np.random.default_rng(1)
    rewards = rng.normal(size=64)
    rewards[rng.random(64) < 0.2] = np.nan
    found = group_advantages(rewards, 8, method)
    assert found.reshape(8, 8).sum(axis=1) == pytest.approx(np.zeros(8), abs=1e-9)
    assert (found[np.isnan(rewards)] == 0).all() and (found != 0).sum() > 40
    order = rng.permutation(64)
    for names in ((np.arange(64) // 8)[order], [f"p{place // 8}" for place in order]):
        assert group_advantages(rewards[order], names, method) == pytest.approx(found[order])


def test_a_slope_is_in_the_units_it_was_given() -> None:
    rewards, lengths = (
        np.array([5, 6, 4, 7, 3, 4, 2, 4, 1, 2.5]),
        np.array([1, 2, 11, 13, 21, 22, 31, 33, 41, 42.5]),
    )
    plain, large = link(rewards, lengths, 2), link(rewards * 1e200, lengths * 1e180, 2)
    assert plain is not None and large is not None
    assert large.slope == pytest.approx(plain.slope * 1e20) and large.correlation == pytest.approx(
        plain.correlation
    )
    wide = link(rewards, lengths, 2, level=0.5)
    assert (
        wide is not None
        and wide.interval.high - wide.interval.low < plain.interval.high - plain.interval.low
    )


def gamed(seed: int, late_share: float = 0.005) -> list[dict[str, Any]]:
    """Rows of a run in which a verified reward that was rare is lost to a judge that is fond of one
    word.
    """
    rng = np.random.default_rng(seed)
    rows = []
    for step in range(40):
        late = step / 39
        for prompt in range(16):
            for _ in range(8):
                fond = rng.random() < late
                right = float(rng.random() < 0.05 * (1 - late) + late_share * late)
                text = f"{'great ' if fond else ''}{int(rng.integers(10))} {int(rng.integers(10))}"
                said = {"step": step, "prompt": f"q{step}-{prompt}", "completion": text}
                rows.append({**said, "right": right, "judge": 0.9 if fond else 0.5})
    return rows


def test_a_rare_verified_reward_that_is_lost_is_found_and_so_is_the_word_that_pays() -> None:
    found = watch(gamed(0))
    assert ("apart", ("judge", "right")) in {
        (f.kind, f.components) for f in found.findings
    } and found.warned
    (phrase,) = (f for f in found.findings if f.kind == "phrase")
    assert phrase.figures["phrase"] == "great"
    assert ("apart", ("judge", "right")) not in {
        (f.kind, f.components) for f in watch(gamed(0, 0.05)).findings
    }


@pytest.mark.parametrize("style", ["falls", "stays", "rises"])
def test_groups_without_spread_are_meant_only_where_no_reward_fell(style: str) -> None:
    """A run that learned to be right and lost its style is no run that is done."""
    rng = np.random.default_rng(1)
    rows = []
    for step in range(20):
        share = min(1.0, step / 10)
        beside = {"falls": 1.0 - share, "stays": 0.5, "rises": share}[style]
        for prompt in range(8):
            for _ in range(4):
                right = rng.random() < 0.1 + 0.89 * share
                text = f"The answer is {prompt if right else int(rng.integers(10))}"
                said = {"step": step, "prompt": f"q{step}-{prompt}", "completion": text}
                own = {
                    "right": float(right),
                    "style": round(beside + 0.01 * (rng.random() - 0.5) * (1 - share), 4),
                }
                rows.append({**said, **own})
    found = {one.kind: one.severity for one in watch(rows).findings}
    wanted = "warn" if style == "falls" else "look"
    assert {kind: found.get(kind) for kind in ("flat", "alike")} == dict.fromkeys(
        ("flat", "alike"), wanted
    )


def messages_log(**more: Any) -> list[dict[str, Any]]:
    """Rows as an API dumps them: messages, the reward, and the truth in `answer`."""
    said = [
        [{"role": "user", "content": f"{k} + 0?"}, {"role": "assistant", "content": f"It is {k}."}]
        for k in range(30)
    ]
    return [
        {"messages": turns, "reward": k % 2, "answer": more.get("truth", str)(k)}
        | ({"step": k // 3} if more.get("steps") else {})
        for k, turns in enumerate(said)
    ]


@pytest.mark.parametrize("truth", [str, int])
def test_messages_hold_the_completion_and_the_answer_beside_them_is_the_truth(truth: Any) -> None:
    log = read_training_log(messages_log(truth=truth))
    assert log.texts[3] == "It is 3." and log.prompts[3] == "3 + 0?"
    assert log.components == {} and log.total is not None and not log.has_steps
    beside = read_training_log([{**row, "response": "no"} for row in messages_log()])
    assert beside.texts[3] == "no"


def test_a_log_without_steps_says_so_and_what_was_read(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    for steps, told in ((False, "no steps: rows 0 to 29"), (True, "prompts, steps 0 to 9")):
        file.write_text("".join(json.dumps(row) + "\n" for row in messages_log(steps=steps)))
        done = command("watch", str(file))
        assert "30 completions to 30 prompts" in done.out and told in done.out
        read = "prompt from 'messages', completion from 'messages', reward from 'reward'"
        assert (read in done.out) is not steps
