"""A run folder belongs to one run: another reward, model or data is refused with what differs, or set aside on request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.run import RunOptions
from rm_gallery.core.utils.errors import ConfigError
from tests.faults.material import REWARD, make_judge, make_samples, records, run, truth
from tests.support.judge_server import JudgeServer

N = 8


@pytest.fixture
def folder(server: JudgeServer, tmp_path: Path) -> Path:
    """The folder of a run that is over."""
    run(make_judge(server.base_url), make_samples(N), run_dir=str(tmp_path / "run"))
    server.reset()
    return tmp_path / "run"


CHANGES: list[tuple[dict[str, Any], str]] = [
    ({"temperature": 0.5}, "llm.temperature: 0.0 → 0.5"),
    ({"extra_body": {"top_k": 3}}, "top_k"),
    ({"base_url": "http://127.0.0.1:1/v1"}, "http://127.0.0.1:1/v1"),
    ({"default_headers": {"x-deployment": "b"}}, "route"),
]


@pytest.mark.parametrize(("changed", "named"), CHANGES)
def test_another_model_is_refused(server: JudgeServer, folder: Path, changed: dict[str, Any], named: str) -> None:
    url = changed.pop("base_url", server.base_url)
    with pytest.raises(ConfigError) as refused:
        run(make_judge(url, **changed), make_samples(N), run_dir=str(folder))
    assert named in str(refused.value) and str(folder) in str(refused.value)


def test_another_reward_is_refused(server: JudgeServer, folder: Path) -> None:
    other = RewardRegistry.create(REWARD, llm=make_judge(server.base_url).llm, desc="Be strict.")  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match=r"Be strict\."):
        run(other, make_samples(N), run_dir=str(folder))
    with pytest.raises(ConfigError, match="length_baseline|class"):
        run(RewardRegistry.create("length_baseline"), make_samples(N), run_dir=str(folder))
    assert len(records(folder)) == N, "a refusal touches nothing"


def test_patience_is_no_other_run(server: JudgeServer, folder: Path) -> None:
    patience: dict[str, Any] = {"timeout": 3.0, "max_attempts": 2, "requests_per_minute": 6000.0, "max_outage": 1.0}
    again = run(make_judge(server.base_url, **patience), make_samples(N), run_dir=str(folder), max_workers=3)
    assert again.scores == truth(make_samples(N))
    assert server.stats()["requests"] == 0


def test_a_new_run_on_request_keeps_the_old_one_aside(server: JudgeServer, folder: Path) -> None:
    before = records(folder)
    run(make_judge(server.base_url, temperature=0.5), make_samples(N), run_dir=str(folder), force_new=True)
    (kept,) = [path.parent for path in folder.parent.rglob("results.jsonl") if path.parent != folder]
    assert records(kept) == before
    assert len(records(folder)) == N


def test_a_sample_whose_text_changed_is_judged_again(server: JudgeServer, folder: Path) -> None:
    samples = make_samples(N)
    samples[3].output[0].answer.content = "Something else."
    again = run(make_judge(server.base_url), samples, run_dir=str(folder))
    assert server.stats()["requests"] == 1
    assert again.scores[:3] == truth(samples[:3])


def test_two_runs_at_once_cannot_share_a_folder(server: JudgeServer, tmp_path: Path) -> None:
    judge, options = make_judge(server.base_url), RunOptions(run_dir=str(tmp_path / "run"))
    first = judge.evaluate_stream(make_samples(N), options=options)
    next(first)
    with pytest.raises(ConfigError, match="run"):
        judge.evaluate_batch(make_samples(N), options=options)
    assert len(list(first)) == N - 1
    assert len(judge.evaluate_batch(make_samples(N), options=options)) == N
