"""The function tutorial's preview and deployment, with its import lines' package renamed, offline and without any key."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest

from rm_gallery.evaluation import EvaluatorPool, Store
from tests.seeds.running import script, stdout_of
from tests.support.children import Finished, run_command, run_python
from tests.support.system import require_bubblewrap

FOLDER = "relevance=./metrics/relevance"
NAMED = [
    "--display-name",
    "Response Relevance Evaluator",
    "--description",
    "Evaluates how well a response addresses it",
]


@pytest.fixture
def tutorial(folder: Path) -> Path:
    """The tutorial's folder, importing this library."""
    shutil.copytree(script("003/test_reward.py").parent, folder, dirs_exist_ok=True)
    for name in ("metrics/relevance/main.py", "deploy_relevance.py"):
        text = (folder / name).read_text(encoding="utf-8")
        (folder / name).write_text(text.replace("from reward_kit", "from rm_gallery"), "utf-8")
    return folder


def run(tutorial: Path, *arguments: str) -> Finished:
    return run_command(*arguments, cwd=tutorial, env={"RM_GALLERY_STORE": str(tutorial / "store.db")})


def test_preview_prints_the_true_scores(tutorial: Path) -> None:
    printed = stdout_of(run(tutorial, "preview", "--metrics-folders", FOLDER, "--samples", "./samples.jsonl"))
    scores = [line.split()[1] for line in printed.splitlines() if line.startswith("  Score:")]
    assert scores == ["0.33", "0.00", "0.49"]
    assert "  keyword_overlap: 0.29 - Keyword overlap ratio: 0.29 (2/7 keywords)" in printed


def test_an_id_is_taken_once_and_a_version_more_by_force(tutorial: Path) -> None:
    deploy = ["deploy", "--id", "relevance-evaluator", "--metrics-folders", FOLDER, *NAMED]
    assert "created evaluator: accounts/local/evaluators/relevance-evaluator (version 1" in stdout_of(
        run(tutorial, *deploy)
    )
    again = run(tutorial, *deploy)
    assert (again.returncode, again.stdout) == (2, "") and "there is an evaluator 'relevance-evaluator'" in again.stderr
    assert "(version 2" in stdout_of(run(tutorial, *deploy, "--force"))


@pytest.mark.system("bubblewrap")
def test_the_script_deploys_and_the_sandbox_gives_the_tutorials_score(tutorial: Path) -> None:
    require_bubblewrap()
    store = {"RM_GALLERY_STORE": str(tutorial / "store.db")}
    for _ in range(2):  # it says force
        printed = stdout_of(run_python("deploy_relevance.py", cwd=tutorial, env=store)).splitlines()
        assert printed == [
            "Deploying relevance evaluator...",
            "Successfully deployed evaluator: accounts/local/evaluators/relevance-evaluator",
            "Use this ID for training jobs: relevance-evaluator",
        ]
    samples = [json.loads(line) for line in (tutorial / "samples.jsonl").read_text("utf-8").splitlines()]

    async def evaluated() -> list[float]:
        pool = EvaluatorPool(opened.current("relevance-evaluator"), workers=1)
        try:
            return [result.score for result in await pool.evaluate_batch(samples)]
        finally:
            await pool.close()

    with Store.open(tutorial / "store.db") as opened:
        assert asyncio.run(evaluated()) == [1 / 3, 0.0, 2 / 7 + 0.2]
