"""The function tutorial's code, with its import line's package renamed, prints what its own arithmetic gives."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.seeds.running import script, stdout_of
from tests.support.children import run_python

PRINTED = """Loaded 3 sample conversations.

Sample 1:
User: What is machine learning?...
Assistant: Machine learning is a subset of artificial intelli...
Overall Score: 0.33
Reason: Relevance score: 0.33
Metrics:
  keyword_overlap: 0.33 - Keyword overlap ratio: 0.33 (1/3 keywords)
  direct_answer: 0.00 - No explicit answer indicators

Sample 2:
User: What is machine learning?...
Assistant: Artificial intelligence has many applications in t...
Overall Score: 0.00
Reason: Relevance score: 0.00
Metrics:
  keyword_overlap: 0.00 - Keyword overlap ratio: 0.00 (0/3 keywords)
  direct_answer: 0.00 - No explicit answer indicators

Sample 3:
User: How can I improve my cooking skills?...
Assistant: To answer your question about improving cooking sk...
Overall Score: 0.49
Reason: Relevance score: 0.49
Metrics:
  keyword_overlap: 0.29 - Keyword overlap ratio: 0.29 (2/7 keywords)
  direct_answer: 1.00 - Response explicitly addresses the query
"""
SCORES = [1 / 3, 0.0, 2 / 7 + 0.2]
SCORE_ALL = """
import json
from rm_gallery import RewardRegistry
from rm_gallery.core.data.conversation import sample_of_messages

reward = RewardRegistry.create("func:metrics/relevance/main.py")
lines = [json.loads(line) for line in open("samples.jsonl", encoding="utf-8")]
scored = reward.evaluate_batch([sample_of_messages(line["messages"]) for line in lines])
print(json.dumps([sample.output[0].answer.reward.score for sample in scored]))
"""


@pytest.fixture
def tutorial(folder: Path) -> Path:
    """The tutorial's folder, importing this library."""
    shutil.copytree(script("003/test_reward.py").parent, folder, dirs_exist_ok=True)
    main = folder / "metrics" / "relevance" / "main.py"
    main.write_text(
        main.read_text(encoding="utf-8").replace("from reward_kit import", "from rm_gallery import"), "utf-8"
    )
    return folder


@pytest.mark.parametrize("future", ["", "from __future__ import annotations\n"])
def test_it_prints_the_true_block(tutorial: Path, future: str) -> None:
    main = tutorial / "metrics" / "relevance" / "main.py"
    main.write_text(future + main.read_text(encoding="utf-8"), "utf-8")
    assert stdout_of(run_python("test_reward.py", cwd=tutorial)) == PRINTED


def test_the_file_is_a_reward(tutorial: Path) -> None:
    printed = stdout_of(run_python("-c", SCORE_ALL, cwd=tutorial))
    assert printed == f"[{', '.join(map(repr, SCORES))}]\n"
