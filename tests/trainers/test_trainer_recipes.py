"""The recipes of examples/trainers run, and their reward files give the numbers of the READMEs."""

from __future__ import annotations

import asyncio
import csv
import json
import re
import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from tests.support.checkpoints import NEEDS_TRL
from tests.support.children import ROOT, run_python
from tests.trainers.environments import run

RECIPES = ROOT / "examples" / "trainers"
DATA = runpy.run_path(str(RECIPES / "data.py"))
SAID = [row["completion"] for row in DATA["QUESTIONS"]]


def curves_of(folder: Path) -> dict[str, list[float]]:
    with (folder / "curves.csv").open(encoding="utf-8", newline="") as handle:
        rows = list(csv.DictReader(handle))
    return {name: [float(row[name]) for row in rows] for name in rows[0]}


@NEEDS_TRL
@pytest.mark.trainers
def test_grpo_has_the_same_curve_with_ours_and_with_a_plain_function(tmp_path: Path) -> None:
    script = str(RECIPES / "trl" / "train.py")
    done = run_python(script, str(tmp_path), "--steps", "24", cwd=tmp_path, timeout=280)
    assert done.returncode == 0, done.stderr[-2000:]
    found = curves_of(tmp_path)
    assert found["rm_gallery"] == found["plain"] and len(found["plain"]) == 24
    assert sum(found["plain"][-6:]) > sum(found["plain"][:6]) + 1.0
    assert "The curves are identical." in done.stdout and (tmp_path / "curves.svg").exists()


@pytest.mark.long("many runs of training")
def test_a_reward_for_each_turn_learns_sooner_than_the_final_one(tmp_path: Path) -> None:
    script = str(RECIPES / "turns" / "train.py")
    arguments = ("--seeds", "2", "--steps", "60")
    done = run_python(script, str(tmp_path), *arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    found = curves_of(tmp_path)
    assert found["each turn"][-1] > 0.9 and found["final alone"][-1] < 0.9
    assert done.stdout.startswith("each turn: ") and "2 of 2 seeds learnt" in done.stdout


def reward_of(trainer: str, name: str, file: str = "reward.py") -> Any:
    return runpy.run_path(str(RECIPES / trainer / file))[name]


def verl(rows: Any) -> list[Any]:
    score = reward_of("verl", "compute_score")
    given = [(r["data_source"], said, r["reward_model"]["ground_truth"], r["extra_info"]) for r, said in zip(rows, SAID, strict=True)]  # fmt: skip
    return [asyncio.run(score(*each))["score"] for each in given]


def openrlhf(rows: Any) -> list[Any]:
    score = reward_of("openrlhf", "reward_func")
    prompts = [row["prompt"][0]["content"] + "\n" for row in rows]
    told = zip(prompts, SAID, rows, strict=True)
    return [score([prompt + said], [prompt], [row["label"]])["rewards"] for prompt, said, row in told]  # fmt: skip


def slime(rows: Any) -> list[Any]:
    samples = [
        SimpleNamespace(prompt=row["prompt"], response=said, label=row["label"], metadata={})
        for row, said in zip(rows, SAID, strict=True)
    ]
    args = SimpleNamespace(reward_key=None, eval_reward_key=None)
    rewards: list[Any] = asyncio.run(reward_of("slime", "math", "my_rewards.py")(args, samples))
    assert [hasattr(each, "remove_sample") for each in samples] == [False, False, False, True]
    return rewards


def areal(rows: Any) -> list[Any]:
    score = reward_of("areal", "math")
    return [or_none(score, said, row) for row, said in zip(rows, SAID, strict=True)]


def verifiers(rows: Any) -> list[Any]:
    score = reward_of("verifiers", "correct")
    states: list[dict[str, Any]] = [{} for _ in rows]
    found = []
    for row, said, state in zip(rows, SAID, states, strict=True):
        asked = [{"role": "user", "content": row["prompt"]}]
        reply = [{"role": "assistant", "content": said}]
        given = {"prompt": asked, "completion": reply, "answer": row["answer"], "state": state}
        found.append(asyncio.run(score(**given)))
    return [None if "error" in state else value for value, state in zip(found, states, strict=True)]


def nemo_rl(rows: Any) -> list[Any]:
    score = reward_of("nemo_rl", "math")
    return [score(row["output"], said)[0] for row, said in zip(rows, SAID, strict=True)]


def skyrl(rows: Any) -> list[Any]:
    scorer = reward_of("skyrl", "maths").scorer
    return [
        scorer.numbers(scorer.score(row["prompt"], said, row["reward_spec"]))["score"]
        for row, said in zip(rows, SAID, strict=True)
    ]


def or_none(score: Any, said: str, row: dict[str, Any]) -> Any:
    from rm_gallery.integrations.causes import NoScore

    try:
        return score("p", said, [], [], **row)
    except NoScore:
        return None


CALLS = {each.__name__: each for each in (verl, openrlhf, slime, areal, verifiers, nemo_rl, skyrl)}


@pytest.mark.parametrize("trainer", CALLS)
def test_a_reward_file_gives_the_numbers_of_its_readme(trainer: str, tmp_path: Path) -> None:
    written = DATA["write"](trainer, tmp_path / "rows")
    if trainer in DATA["PARQUET"]:
        rows = json.loads(pd.read_parquet(written).to_json(orient="records"))
    else:
        rows = [json.loads(line) for line in written.read_text(encoding="utf-8").splitlines()]
    assert rows == DATA["rows_for"](trainer)
    shown = (RECIPES / trainer / "README.md").read_text(encoding="utf-8")
    numbers = re.findall(r"^\| \d \| `(.*)` \| ([\d.]+|none) \|$", shown, re.MULTILINE)
    assert [said for said, _ in numbers] == SAID
    found = ["none" if each is None else f"{each:.3f}" for each in CALLS[trainer](rows)]
    assert found == [number for _, number in numbers]


@pytest.mark.trainers
@pytest.mark.parametrize(
    "trainer",
    [pytest.param(name, marks=pytest.mark.system(name)) for name in ("skyrl", "openrlhf")],
)
def test_the_trainers_own_code_gets_the_same_numbers(trainer: str) -> None:
    rows = DATA["rows_for"](trainer)
    asked = {"file": str(RECIPES / trainer / "reward.py"), "rows": rows, "said": SAID}
    assert run(trainer, f"recipe_in_{trainer}.py", asked) == CALLS[trainer](rows)
