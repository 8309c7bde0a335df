"""What `from rm_gallery import …` offers, and that types help at it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

import rm_gallery
from rm_gallery.core.model.message import MessageRole, RoleName
from tests.support.children import ROOT, run_python

WANTED = (
    "BaseLLMReward BaseListWiseReward BasePairWiseReward BasePointWiseReward BaseStepWiseReward Budget ChatMessage DataOutput "
    "DataSample FakeLLM OpenaiLLM RewardDimensionWithRank RewardDimensionWithScore RewardRegistry RewardResult RunOptions Step "
    "create_loader evaluate"
).split()
# each line's finding, empty where there is none
TYPED = {
    "AccuracyReward(ignore_case=True, max_workers=2, name='x')": "",
    "AccuracyReward(ignore_cas=True)": 'Unexpected keyword argument "ignore_cas"',
    "AccuracyReward(ignore_case='yes')": 'expected "bool"',
    "reveal_type(RewardRegistry.get('accuracy'))": "type[rm_gallery.core.reward.reward.BaseReward]",
    "RewardRegistry.get('accuracy')(ignore_case=True).evaluate(DataSample()).output[0].answer.reward.score": "",
    "RewardRegistry.get('accuracy')().evaluat(DataSample())": 'no attribute "evaluat"',
    "RewardRegistry.create('accuracy', ignore_case=True).best_of_n(DataSample(), n='1')": 'expected "int"',
    "DataSample(unique_i='x')": 'Unexpected keyword argument "unique_i"',
    "GroupWinRateReward(llm='openai:some-model', both_orders=False)": "",
    "GroupWinRateReward(llm=3)": 'Argument "llm"',
    "FakeLLM(repl='x')": 'Unexpected keyword argument "repl"',
    "OpenaiLLM('m', base_url='http://127.0.0.1:1/v1', temperature=0.5)": "",
    "OpenaiLLM(modl='m')": 'Unexpected keyword argument "modl"',
    "Step(role='assistant', content='4')": "",
    "Step(role='asistant')": 'Argument "role"',
    "reveal_type(Step(role=MessageRole.TOOL).role)": "rm_gallery.core.model.message.MessageRole",
    "RunOptions(max_worker=3)": 'Unexpected keyword argument "max_worker"',
}


def test_the_front_door_is_complete_and_shows_nothing_else() -> None:
    assert set(WANTED) <= set(rm_gallery.__all__) == set(dir(rm_gallery))
    assert rm_gallery.__all__ == sorted(rm_gallery.__all__)
    assert all(getattr(rm_gallery, name) is not None for name in rm_gallery.__all__)
    assert set(get_args(RoleName)) == {role.value for role in MessageRole}
    with pytest.raises(AttributeError, match="'rm_gallery' has no attribute 'Nothing'"):
        _ = rm_gallery.Nothing


def test_types_complete_and_check(tmp_path: Path) -> None:
    head = (
        "from typing import reveal_type\n"
        "from rm_gallery import DataSample, FakeLLM, MessageRole, OpenaiLLM, RewardRegistry, RunOptions, Step\n"
        "from rm_gallery.gallery.rm.general.accuracy import AccuracyReward\n"
        "from rm_gallery.gallery.rm.group.pairwise import GroupWinRateReward\n"
    )
    (tmp_path / "user.py").write_text(head + "\n".join(TYPED) + "\n", encoding="utf-8")
    options = ["--strict", "--python-version=3.11", "--no-error-summary", "--hide-error-context", "--no-pretty"]
    command = [sys.executable, "-m", "mypy", "--config-file=", *options, str(tmp_path / "user.py")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)
    found: dict[int, str] = {}
    for line in done.stdout.splitlines():
        if "user.py:" in line:
            place, message = line.split("user.py:")[1].split(":", 1)
            found[int(place)] = found.get(int(place), "") + message
    for number, (code, part) in enumerate(TYPED.items(), start=head.count("\n") + 1):
        assert part in found.get(number, ""), (code, done.stdout)
        assert bool(part) == bool(found.get(number)), (code, done.stdout)


@pytest.mark.parametrize("arguments", [["--version"], ["list"], ["show", "accuracy"], ["--help"], ["doctor"]])
def test_python_m_works_without_a_terminal(arguments: list[str], tmp_path: Path) -> None:
    done = run_python("-W", "error", "-m", "rm_gallery", *arguments, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip()
