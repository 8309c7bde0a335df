"""`samples.jsonl`: one line per finished sample, each once, whatever became of the run; the folder
opened again, and its gaps.
"""

from __future__ import annotations

import json
import math
import os
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from rm_gallery import (
    BasePointWiseReward,
    BaseStepWiseReward,
    Budget,
    ConfigError,
    DataError,
    DataOutput,
    DataSample,
    RewardRegistry,
    RewardResult,
    Step,
    evaluate,
)
from rm_gallery.gallery.benchmarks.judgements import judged
from rm_gallery.study.runs import SAMPLES, SampleFile, SampleRow, open_run, sample_record
from rm_gallery.study.summary import Summary
from tests.benchmarks.excerpts import EXCERPTS
from tests.reward.rewards import scored
from tests.support.judge_server import JudgeServer, judge_fixture
from tests.support.samples import make_sample


class Fails(BasePointWiseReward):
    """Scores with the length; fails on the answer the environment names, for another reward would
    be another run.
    """

    name = "fails"

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        text = sample.output[0].answer.text
        if text == os.environ.get("BROKEN_ANSWER"):
            raise RuntimeError("broken")
        return scored("n", len(text), "counted")


server = judge_fixture("first", in_process=True)


def rows(folder: Path) -> dict[str, SampleRow]:
    found = list(open_run(folder).samples())
    assert len({row.id for row in found}) == len(found), "each sample once"
    return {row.id: row for row in found}


def test_a_row_holds_what_was_asked_and_said(tmp_path: Path) -> None:
    samples = [
        make_sample(
            "abc",
            "ab",
            query="问?\r\nWhy",
            unique_id="a",
            chosen=0,
            metadata={"subset": "s", "x": 1},
        )
    ]
    report = evaluate(Fails(), samples, run_dir=str(tmp_path))
    run = open_run(tmp_path)
    assert (
        run.finished
        and run.report["score"] == report.score == 1.0
        and run.manifest["reward"]["class"]
    )
    row = rows(tmp_path)["a"]
    assert (row.prompt, row.answers, row.labels) == (
        "问?\r\nWhy",
        ("abc", "ab"),
        ("chosen", "rejected"),
    )
    assert (row.scores, row.reasons, row.status, row.subset) == (
        (3.0, 2.0),
        ("counted", "counted"),
        "scored",
        "s",
    )
    assert (row.verdicts, row.steps, row.issues, row.metadata) == (
        (),
        (),
        (),
        {"subset": "s", "x": 1},
    )
    assert (
        len(row.cluster) == 16
        and row.key.startswith("a:")
        and not run.traced
        and not list(run.trace())
    )


def test_a_pair_judged_in_both_orders(server: JudgeServer, tmp_path: Path) -> None:
    reward = RewardRegistry.create(
        "safety_pairwise_reward", llm={"model": "judge-1", "base_url": server.base_url}
    )
    samples = [
        make_sample("a" * n, "b", query="q", unique_id=str(n), chosen=0) for n in range(2, 6)
    ]
    evaluate(reward, samples, run_dir=str(tmp_path), trace=True)
    for row in rows(tmp_path).values():
        assert {(v.first, v.second) for v in row.verdicts} == {(0, 1), (1, 0)}
        assert {v.verdict for v in row.verdicts} == {1}, "the judge prefers what is shown first"
        assert row.scores == (0.5, 0.5) and all(row.reasons)
    entries = list(open_run(tmp_path).trace())
    assert {entry["sample_key"] for entry in entries} == {
        row.key for row in rows(tmp_path).values()
    }


class Steps(BaseStepWiseReward):
    """Scores a step with its length."""

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        return scored("n", len((sample.output[0].steps or [])[-1].text))


def test_steps_have_their_texts_and_scores() -> None:
    steps = [
        Step(role="assistant", content="1+1", label={"correctness": 1}),
        Step(role="assistant", content="2"),
    ]
    output = DataOutput(answer=Step(role="assistant", content="2"), steps=steps)
    sample, reward = DataSample(unique_id="s", output=[output], metadata={"cluster": 7}), Steps()
    row = SampleRow.from_record(
        json.loads(json.dumps(sample_record(reward, judged(reward, reward.evaluate(sample)), None)))
    )
    assert [tuple(step) for step in row.steps[0]] == [
        ("1+1", 3.0, {"correctness": 1}),
        ("2", 1.0, {}),
    ]
    assert (row.cluster, row.credit) == ("7", None)


def test_failed_samples_leave_the_file_when_they_are_judged_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = [make_sample("x" * n, "y", unique_id=str(n), chosen=0) for n in range(2, 6)]
    monkeypatch.setenv("BROKEN_ANSWER", "xxx")
    evaluate(Fails(), samples, run_dir=str(tmp_path))
    assert {row.id: row.status for row in rows(tmp_path).values()}["3"] == "failed"
    assert rows(tmp_path)["3"].issues[0].status == "failed"
    monkeypatch.delenv("BROKEN_ANSWER")
    evaluate(Fails(), samples, run_dir=str(tmp_path))
    assert {row.status for row in rows(tmp_path).values()} == {"scored"}
    before = (tmp_path / SAMPLES).read_bytes()
    evaluate(Fails(), samples, run_dir=str(tmp_path))
    assert (tmp_path / SAMPLES).read_bytes() == before, "a finished run writes nothing"


@pytest.mark.parametrize("kept", [0.0, 0.4, 0.97])
def test_a_torn_or_shortened_file_is_completed(kept: float, tmp_path: Path) -> None:
    samples = [make_sample("x" * n, "y", unique_id=str(n), chosen=0) for n in range(2, 12)]
    samples += samples[:2]  # equal samples have a line each
    evaluate(Fails(), samples, run_dir=str(tmp_path))
    path = tmp_path / SAMPLES
    whole = path.read_bytes()
    path.write_bytes(whole[: int(kept * len(whole))])
    (tmp_path / "report.json").unlink()
    assert not open_run(tmp_path).finished
    evaluate(Fails(), samples, run_dir=str(tmp_path))
    assert sorted(path.read_bytes().splitlines()) == sorted(whole.splitlines())
    path.write_bytes(whole.replace(b'"scores":[2.0,1.0]', b'"scores":[9.0,1.0]'))
    evaluate(Fails(), samples, run_dir=str(tmp_path))
    assert sorted(path.read_bytes().splitlines()) == sorted(whole.splitlines()), (
        "a line that says otherwise is replaced"
    )


def test_a_stopped_run_has_lines_of_what_was_judged(server: JudgeServer, tmp_path: Path) -> None:
    reward = RewardRegistry.create(
        "safety_listwise_reward", llm={"model": "judge-1", "base_url": server.base_url}
    )
    data = EXCERPTS["rewardbench2"] * 2
    stopped = evaluate(
        reward, data, run_dir=str(tmp_path), budget=Budget(max_calls=2), cache=False, max_workers=1
    )
    assert (
        stopped.n_stopped
        and sum(1 for _ in open_run(tmp_path).samples()) == stopped.n - stopped.n_stopped
    )
    assert not open_run(tmp_path).finished
    whole = evaluate(reward, data, run_dir=str(tmp_path), cache=False)
    assert sum(1 for _ in open_run(tmp_path).samples()) == whole.n == whole.n_scored


def test_texts_and_numbers_no_json_has_a_form_for(tmp_path: Path) -> None:
    strange = make_sample(
        "\ud800 \x00", "", unique_id="a", chosen=0, metadata={"f": math.nan, "n": 10**30}
    )
    evaluate(Fails(), [strange], run_dir=str(tmp_path))
    assert rows(tmp_path)["a"].answers == ("\ud800 \x00", "")


def test_no_run_folder_and_a_damaged_one(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is no folder"):
        open_run(tmp_path / "none")
    with pytest.raises(DataError, match="holds no manifest.json"):
        open_run(tmp_path)
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "report.json").write_bytes(b"{}")
    with pytest.raises(DataError, match="several runs; name one of them: below"):
        open_run(tmp_path)
    (tmp_path / SAMPLES).write_bytes(b'{"id":"a"}\r\n[]\nnot json\n{"id":"b","steps":[1]}\n')
    run = open_run(tmp_path)
    assert ([row.id for row in run.samples()], run.finished) == (["a"], False)
    assert run.damage.startswith("1 of 4 samples")
    (tmp_path / "report.json").write_bytes(b"[]")
    with pytest.raises(DataError, match="expected one JSON object: run the same command again"):
        open_run(tmp_path)
    for damaged in (b"{", b"[]"):  # the same command refuses to go on with it
        (tmp_path / "manifest.json").write_bytes(damaged)
        with pytest.raises(
            DataError, match="manifest.json .* again with --config run.force_new=true"
        ):
            open_run(tmp_path)


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / SAMPLES).mkdir()
    with (
        pytest.raises(ConfigError, match="run the same command to continue"),
        closing(SampleFile(tmp_path)) as file,
    ):
        file.add({"id": "a", "key": "a", "status": "scored"})


PAIR = ("chosen", "rejected")


def summary(*rows: tuple[tuple[float | None, ...], tuple[str | None, ...]]) -> Summary:
    found = Summary()
    for number, (scores, labels) in enumerate(rows):
        name, answers = str(number), tuple("a" for _ in scores)
        status = "unscored" if None in scores else "scored"
        found.add(
            SampleRow(
                id=name, cluster=name, status=status, answers=answers, scores=scores, labels=labels
            )
        )
    return found


def test_only_what_is_scored_whole_and_labelled_has_a_gap() -> None:
    found = summary(
        ((2.0, 1.0), PAIR), ((1.0, 1.0), PAIR), ((1.0, None), PAIR), ((math.inf, 1.0), PAIR),
        ((3.0, 1.0, 2.0), ("chosen", "rejected", "chosen")), ((1.0, 2.0), (None, None)),
    )  # fmt: skip
    assert list(found.gaps) == [1.0, 0.0, 2.0]
    assert [point.n for point in found.best_of_n()][:1] == [1]
    assert summary().held_out() is None
