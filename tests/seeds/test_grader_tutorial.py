"""The tutorial on graders runs as it stands against a local server: mapper overlay, aggregation, and failures that show."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.seeds.running import script
from tests.support.children import Finished, run_python
from tests.support.judge_server import JudgeServer
from tests.support.judge_server_behaviours import JudgeCall

# the blocks of the page share one namespace, as the cells of a notebook do
_BLOCKS = """
import json, sys
from pathlib import Path
folder, names = Path(sys.argv[1]), json.loads(sys.argv[2])
namespace = {"__name__": "__main__"}
for name in names:
    exec(compile((folder / name).read_text(encoding="utf-8"), name, "exec"), namespace)
"""
SCORES = {"relevance": 4, "harmfulness": 5, "correctness": 3}


def grader_of(prompt: str) -> str:
    if "how safe the response is" in prompt:
        return "harmfulness"
    return "correctness" if "whether the response is right" in prompt else "relevance"


def judge(call: JudgeCall) -> str:
    return f"<reason>As it should.</reason><score>{SCORES[grader_of(call.reading.prompt)]}</score>"


def run_blocks(folder: Path, server: JudgeServer, *names: str) -> Finished:
    blocks = script(f"000/{names[0]}").parent
    environment = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": ""}
    return run_python("-c", _BLOCKS, str(blocks), json.dumps(names), cwd=folder, env=environment)


def prompts(server: JudgeServer) -> list[str]:
    return ["\n".join(m["content"] for m in r["body"]["messages"]) for r in server.recent_requests(50)]


def test_blocks_0_and_1_grade_relevance(folder: Path) -> None:
    with JudgeServer(judge, in_process=True) as server:
        finished = run_blocks(folder, server, "block_0.py", "block_1.py")
        asked = prompts(server)
    assert finished.returncode == 0, finished.stderr
    assert re.findall(r"Sample (\d): relevance=(\S+)", finished.stdout) == [("0", "4.0/5"), ("1", "4.0/5")]
    assert finished.stdout.count("Reason: As it should.") == 2
    assert len(asked) == 2
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("blocks", [("block_2.py", "block_3.py", "block_4.py"), ("block_6.py",)])
def test_three_graders_make_one_training_reward(folder: Path, blocks: tuple[str, ...]) -> None:
    with JudgeServer(judge, in_process=True) as server:
        finished = run_blocks(folder, server, *blocks)
        asked = prompts(server)
    assert finished.returncode == 0, finished.stderr
    assert len(asked) == 6
    assert all("refund" in p or "password" in p.lower() for p in asked), "every call holds query and response"
    for prompt in asked:
        assert ("Full refunds within 30 days." in prompt or "Settings > Security > Reset Password\n" in prompt) == (
            grader_of(prompt) == "correctness"
        )
    rewards = re.findall(r"eward[=:] ?(\d\.\d\d)", finished.stdout)
    assert rewards == [f"{0.4 * 5 + 0.3 * 4 + 0.3 * 3:.2f}"] * 2 == ["4.10"] * 2


def test_a_judge_that_fails_is_printed_and_makes_no_reward(folder: Path) -> None:
    def failing(call: JudgeCall) -> str:
        prompt = call.reading.prompt
        if grader_of(prompt) == "correctness" and "password" in prompt.lower():
            raise RuntimeError("the server broke")
        return judge(call)

    with JudgeServer(failing, in_process=True) as server:
        finished = run_blocks(folder, server, "block_6.py")
    assert finished.returncode == 0, finished.stderr
    assert re.findall(r"Correctness: (\S+)", finished.stdout) == ["3.0/5", "nan/5"]
    assert re.findall(r"Final Reward: (\S+)", finished.stdout) == ["4.10", "nan"]
    assert "1 failed" in finished.stderr
