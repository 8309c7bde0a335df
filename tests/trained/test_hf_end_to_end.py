"""A checkpoint judges a benchmark like any other reward: from Python, from the command line, and continued after a stop."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import rm_gallery
from tests.cli.rows import best_of_4
from tests.support.checkpoints import make_checkpoint, make_classifier, require_torch
from tests.support.command import command

pytestmark = pytest.mark.system("torch")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    require_torch()
    return make_classifier(tmp_path_factory.mktemp("hf") / "model")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return best_of_4(tmp_path / "data.jsonl")


def test_python_and_the_command_line_give_the_same_figures(folder: Path, data: Path, tmp_path: Path) -> None:
    report = rm_gallery.evaluate(f"hf:{folder}", str(data)).to_dict()
    assert (report["n"], report["n_scored"], report["calls"], report["reasons"]) == (12, 12, 0, {})
    done = command("eval", f"hf:{folder}", str(data), "--json", "--out", str(tmp_path / "run"))
    again = command("eval", f"hf:{folder}", str(data), "--json", "--out", str(tmp_path / "run"))
    assert (done.code, again.code) == (0, 0)
    for found in (json.loads(done.out), json.loads(again.out)):
        assert (found["score"], found["by_subset"]) == (report["score"], report["by_subset"])
        assert found["reward"] == f"hf:{folder}"
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text(encoding="utf-8"))
    assert len(manifest["reward"]["files_sha256"]) == 64


def test_bench_scores_pairs_and_steps(folder: Path, data: Path, tmp_path: Path) -> None:
    found = json.loads(command("bench", "rewardbench2", "--reward", f"hf:{folder}", "--data", str(data), "--json").out)
    assert (found["n"], found["n_scored"]) == (12, 12)
    row = {
        "idx": "prm_test_p1_0", "classification": "circular", "original_question": "q", "modified_question": "q",
        "original_process": ["a", "b"], "modified_process": ["a", "b", "c"], "modified_steps": [2], "error_steps": [2],
        "reason": "r", "question": "q",
    }  # fmt: skip
    steps = tmp_path / "steps.jsonl"
    steps.write_text(json.dumps(row) + "\n", encoding="utf-8")
    model = make_checkpoint(tmp_path / "prm", "LlamaForTokenClassification", num_labels=2)
    done = command("bench", "prmbench", "--reward", f"hf-prm:{model}", "--data", str(steps), "--json")
    found = json.loads(done.out)
    assert (done.code, found["n_scored"]) == (0, 1)
    assert sum(found["extra"][cell] for cell in ("TP", "FP", "TN", "FN")) == 3
