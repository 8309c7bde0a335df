"""The founding documents' own code runs as it stands and prints what its text shows; tests/seeds
has documents of our own like them.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rm_gallery import check_reward
from tests.seeds.test_documents import judge
from tests.support.benchmarks import load_samples, oracle_of
from tests.support.children import ROOT, run_command, run_python
from tests.support.judge_server import JudgeCall, JudgeServer
from tests.support.shared_data import shared_root

# the blocks of a page share one namespace, as the cells of a notebook do; texts that a document
# leaves blank are filled in
DRIVER = """
import json, pathlib, sys, types
job = json.loads(sys.stdin.readline())
folder = pathlib.Path(job["folder"])
sys.path.insert(0, str(folder))

def source(name):
    text = (folder / name).read_text(encoding="utf-8")
    for old, new in job["filled"].items():
        text = text.replace(old, new)
    return compile(text, name, "exec")

for name in job["patched"]:
    module = sys.modules[name] = types.ModuleType(name)
    exec(source(f"{name}.py"), module.__dict__)
namespace = sys.modules["__main__"].__dict__
for name in job["names"]:
    exec(source(name), namespace)
"""


def documents() -> Path:
    return shared_root() / "seeds" / "runnable"


def printed(
    cwd: Path,
    folder: str,
    *names: str,
    filled: Mapping[str, str] | None = None,
    patched: tuple[str, ...] = (),
) -> str:
    """What scripts of a document print, run in one namespace in an empty folder."""
    job = {
        "folder": str(documents() / folder),
        "names": names,
        "filled": dict(filled or {}),
        "patched": patched,
    }
    done = run_python("-c", DRIVER, cwd=cwd, stdin=json.dumps(job) + "\n")
    assert done.returncode == 0, done.stderr
    return done.stdout


LOWER = {"if fact_key in question": "if fact_key.lower() in question"}


@pytest.mark.parametrize(("filled", "right", "accuracy"), [({}, 1, "66.7%"), (LOWER, 3, "100.0%")])
def test_the_rule_and_its_batch(
    tmp_path: Path, filled: dict[str, str], right: int, accuracy: str
) -> None:
    scored = printed(tmp_path, "001", "factuality_reward.py", filled=filled)
    assert (scored.count("Score: 1.0"), scored.count("Score: 0.0")) == (right, 6 - right)
    counted = printed(
        tmp_path, "001", "evaluate_all.py", filled=filled, patched=("factuality_reward",)
    )
    assert counted.splitlines()[-1].strip() == f"Accuracy: {accuracy}"


def test_the_judge_and_the_comparing_reward(tmp_path: Path) -> None:
    reply = "<reason>It is.</reason><factual>true</factual><confidence>0.9</confidence>"
    with JudgeServer([reply], in_process=True, require_key="dummy-key") as server:
        filled = {"your_api_key_here": "dummy-key", "your_base_url_here": server.base_url}
        said = printed(tmp_path, "001", "llm_factuality_reward.py", filled=filled)
        template = {
            "from typing import List": (
                "from typing import List\nfrom rm_gallery.core.reward.template import "
                "ComparativeTemplate"
            )
        }
        steps = (
            "factuality_reward.py",
            "llm_factuality_reward.py",
            "step5_comparative.py",
            "step6_register.py",
        )
        printed(tmp_path, "001", *steps, filled=filled | template)
    assert re.findall(r"Score: (\S+)", said) == ["0.90", "0.90"]


def test_the_pipeline(tmp_path: Path) -> None:
    place = tmp_path / "data/reward-bench-2/data/test-00000-of-00001.parquet"
    place.parent.mkdir(parents=True)
    shutil.copy(ROOT / "data" / "test.parquet", place)
    with JudgeServer(
        judge, oracle=oracle_of(load_samples(place, "rewardbench2")), in_process=True
    ) as server:
        url = 'os.environ["BASE_URL"] = ""'
        said = printed(
            tmp_path, ".", "002_pipeline.py", filled={url: url.replace('""', repr(server.base_url))}
        ).splitlines()
        assert server.stats()["by_status"] == {"200": 10 + 1 + 3 * 90}
    assert said[:3] == [
        "Successfully loaded 100 data items",
        "Training set size: 10",
        "Test set size: 90",
    ]
    assert len({line.partition("Accuracy: ")[2] for line in said[-3:]}) == 1


def test_the_graders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def reply(call: JudgeCall) -> str:
        safe, right = (
            words in call.reading.prompt
            for words in ("how safe the response is", "whether the response is right")
        )
        return f"<reason>As it should.</reason><score>{5 if safe else 3 if right else 4}</score>"

    with JudgeServer(reply, in_process=True) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        relevance = printed(tmp_path, "000", "block_0.py", "block_1.py")
        rewards = [
            printed(tmp_path, "000", *names)
            for names in (("block_2.py", "block_3.py", "block_4.py"), ("block_6.py",))
        ]
    assert re.findall(r"relevance=(\S+)", relevance) == ["4.0/5"] * 2
    assert [re.findall(r"eward[=:] ?(\d\.\d\d)", text) for text in rewards] == [["4.10"] * 2] * 2


def test_the_function(tmp_path: Path) -> None:
    shutil.copytree(documents() / "003", tmp_path, dirs_exist_ok=True)
    for name in ("metrics/relevance/main.py", "deploy_relevance.py"):
        text = (tmp_path / name).read_text(encoding="utf-8")
        (tmp_path / name).write_text(text.replace("from reward_kit", "from rm_gallery"), "utf-8")
    said = run_python("test_reward.py", cwd=tmp_path).stdout
    assert re.findall(r"Overall Score: (\S+)", said) == ["0.33", "0.00", "0.49"]
    call = (
        "preview",
        "--metrics-folders",
        "relevance=./metrics/relevance",
        "--samples",
        "./samples.jsonl",
    )
    assert re.findall(
        r"^  Score: (\S+)", run_command(*call, cwd=tmp_path).stdout, re.MULTILINE
    ) == ["0.33", "0.00", "0.49"]
    for _ in range(2):  # it says force
        told = run_python(
            "deploy_relevance.py",
            cwd=tmp_path,
            env={"RM_GALLERY_STORE": str(tmp_path / "store.db")},
        ).stdout
        assert told.splitlines()[-1] == "Use this ID for training jobs: relevance-evaluator"


@pytest.mark.parametrize(
    ("name", "faults"),
    [("CorrectEnv", set()), ("TwoComponentEnv", {"stuffed_rewarded", "all_answers_rewarded"})],
)
def test_the_environments(name: str, faults: set[str]) -> None:
    found: Any = check_reward(f"{documents() / '004_compute_reward.py'}:{name}")
    assert {finding.name for finding in found.faults} == faults
