"""A data set judged by Ray Data on two nodes gives the report of one process, a row for each row,
and limits that hold for all.
"""

from __future__ import annotations

import runpy
import shlex
import sys
from pathlib import Path
from typing import Any

import orjson
import pandas as pd
import pytest
import yaml

from rm_gallery.core.engine.calls.budget import Budget
from rm_gallery.core.reward import channel
from rm_gallery.core.utils.errors import ConfigError, DataError
from rm_gallery.study.benchmark import evaluate
from rm_gallery.study.ray_data import AT_ONCE, evaluate_dataset
from tests.faults.material import make_judge, write_data
from tests.faults.rewards import OnGpu
from tests.support.children import ROOT
from tests.support.command import command
from tests.support.judge_server import JudgeServer

# what Ray warns of while it starts is not ours
pytestmark = pytest.mark.filterwarnings("ignore")
N = 300
EXAMPLES = ROOT / "examples" / "ray"


def plain(report: Any, *apart: str) -> dict[str, Any]:
    return {
        name: value for name, value in report.to_dict().items() if name not in {"seconds", *apart}
    }


@pytest.fixture(scope="module")
def frame(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    """Rows of which one is there twice, one has the id of another one, and one cannot be used."""
    rows = [
        orjson.loads(line)
        for line in write_data(tmp_path_factory.mktemp("rows") / "d.jsonl", N)
        .read_bytes()
        .splitlines()
    ]
    return pd.DataFrame(
        [
            *rows,
            rows[0],
            {**rows[1], "prompt": "Another one?"},
            {**rows[2], "id": "bad", "chosen": []},
        ]
    )


@pytest.mark.parametrize("form", ["jsonl", "csv", "dataset"])
def test_a_rule_gives_the_report_of_one_process(
    form: str, cluster: Any, frame: pd.DataFrame, tmp_path: Path
) -> None:
    import ray

    data = tmp_path / f"rows.{'parquet' if form == 'dataset' else form}"
    if form == "csv":
        as_text = {
            name: frame[name].map(lambda texts: orjson.dumps(texts).decode())
            for name in ("chosen", "rejected")
        }
        frame.assign(**as_text).to_csv(data, index=False)
    elif form == "jsonl":
        frame.to_json(data, orient="records", lines=True)
    else:
        frame.to_parquet(data)
    here = evaluate("length_baseline", data, on_bad_row="skip")
    given = ray.data.read_parquet(str(data)) if form == "dataset" else data
    out = f"file://{tmp_path}/out" if form == "dataset" else tmp_path / "out"
    there, scored = evaluate_dataset("length_baseline", given, out=out, part_rows=64)
    # which row it was is not known in a block of Ray's
    apart = ("notes", "data") if form == "dataset" else ()
    assert plain(here, *apart) == plain(there, *apart)
    found = scored.to_pandas()
    assert sorted(found["rm_id"].dropna()) == sorted(frame["id"][:-1])
    bad = found[found["rm_status"] == "skipped"]
    assert len(found) == len(frame) and len(bad) == 1 and "'chosen'" in bad["rm_message"].iloc[0]
    assert set(found["rm_status"]) == {"scored", "skipped"} and list(bad["rm_cause"]) == ["data"]
    if form == "jsonl":
        with pytest.raises(DataError, match="'chosen'"):
            evaluate_dataset("length_baseline", data, on_bad_row="raise")
        with pytest.raises(ConfigError, match="another run: reward differ"):
            evaluate_dataset("length_penalty", data, out=tmp_path / "out")


def test_a_judge_has_one_budget_one_cache_and_loses_a_node(
    cluster: Any, server: JudgeServer, tmp_path: Path
) -> None:
    data, out = write_data(tmp_path / "d.jsonl", N), tmp_path / "out"
    reward = make_judge(server.base_url)
    how: dict[str, Any] = {"max_workers": 16, "part_rows": 20, "cache": False}
    here = evaluate(reward, data, cache=False)
    report, _ = evaluate_dataset(reward, data, budget=Budget(max_calls=40), **how)
    assert (report.calls, report.n_scored, report.n_stopped) == (40, 40, N - 40) and report.stopped
    assert server.stats()["requests"] == N + 40
    # a node is lost once some parts are there
    server.set(latency=0.1)
    lost = False

    def lose(one: Any, credit: Any) -> None:
        nonlocal lost
        if not lost:
            lost = True
            cluster.remove_node(cluster.lost, allow_graceful=False)

    before = server.stats()["requests"]
    channel.forget()  # which only the actors find out
    report, scored = evaluate_dataset(reward, data, out=out, on_judged=lose, **how)
    assert N <= server.stats()["requests"] - before <= N + AT_ONCE * how["part_rows"]
    assert lost and plain(report, "calls", "usage") == plain(here, "calls", "usage")
    assert sorted(scored.to_pandas()["rm_id"]) == sorted(f"sum-{number}" for number in range(N))
    # what is there is taken over; a part that is gone is judged again
    next(iter(out.glob("part-*.parquet"))).unlink()
    before = server.stats()["requests"]
    report, scored = evaluate_dataset(reward, data, out=out, **how)
    assert plain(report, "calls", "usage") == plain(here, "calls", "usage") and scored.count() == N
    assert 0 < server.stats()["requests"] - before <= 20
    # equal rows are one call, and a row each, in parts that are equal as well
    before = server.stats()["requests"]
    twice = tmp_path / "twice.parquet"
    pd.concat([pd.read_json(data, lines=True)[:100]] * 2).to_parquet(twice)
    report, scored = evaluate_dataset(
        reward, twice, out=tmp_path / "twice", **{**how, "cache": True}
    )
    assert server.stats()["requests"] - before == 100 and report.n_scored == scored.count() == 200


def test_actors_get_the_gpus_they_claim(cluster: Any, tmp_path: Path) -> None:
    cluster.add_node(num_cpus=1, num_gpus=1, object_store_memory=200 << 20)
    data = write_data(tmp_path / "d.jsonl", 40)
    report, scored = evaluate_dataset(OnGpu(), data, num_gpus=0.5, part_rows=10)
    assert report.to_dict()["score"] == evaluate(OnGpu(), data).score
    assert all(said.count('"reason":"GPU 0"') == 4 for said in scored.to_pandas()["rm_said"])


def test_the_examples_run(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    data = write_data(tmp_path / "preferences.jsonl", 20)
    monkeypatch.setattr(
        sys, "argv", ["evaluate_dataset.py", "length_baseline", str(data), str(tmp_path / "scored")]
    )
    runpy.run_path(str(EXAMPLES / "evaluate_dataset.py"), run_name="__main__")
    assert "scored" in capsys.readouterr().out
    job = yaml.safe_load((EXAMPLES / "rayjob.yaml").read_text(encoding="utf-8"))
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    nodes = [
        job["spec"]["rayClusterSpec"]["headGroupSpec"],
        *job["spec"]["rayClusterSpec"]["workerGroupSpecs"],
    ]
    assert all(
        {"name": "data", "mountPath": "/data"}
        in node["template"]["spec"]["containers"][0]["volumeMounts"]
        for node in nodes
    )
    pd.read_json(data, lines=True).to_parquet(tmp_path / "preferences.parquet")
    name, *call = shlex.split(job["spec"]["entrypoint"].replace("/data", str(tmp_path)))
    code, said, _ = command(*call, "--dry-run")
    assert name == "rm-gallery" and code == 0 and "ray" in said
