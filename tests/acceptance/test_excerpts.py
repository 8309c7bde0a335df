"""The headline claims on short texts written for this project: they hold where the public data sets are absent as well."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rm_gallery.core.reward.registry import RewardRegistry
from tests.support.children import run_python
from tests.support.command import command
from tests.support.samples import make_sample, scores
from tests.support.system import require_bubblewrap

pytestmark = pytest.mark.excerpt

# (solution in GSM8K's manner, reference, right)
SOLUTIONS = [
    ("She buys 3 bags of 12 apples, 3*12 = <<3*12=36>>36.\n#### 36", "36", True),
    ("He earns $18 an hour for 40 hours: $720.\n#### $720", "720", True),
    ("1,250 seats less 250 are 1,000.\n#### 1,000", "1000", True),
    ("Half of 7 is 3.5, so each gets 3.50 euros.\n#### 3.50", "3.5", True),
    ("Let x be the price. 2x + 4 = 20, x = 8. The answer is \\boxed{8}.", "8", True),
    ("<think>Is it 12? No, 4 * 4 = 16.</think>It is 16 in all.\n#### 16", "16", True),
    ("First 5, then 5 more: 10 and not 11. The answer is 10, not 11.", "10", True),
    ("<answer>42</answer>", "42", True),
    ("There are 24 pupils.\n#### 24", "23", False),
    ("3*12 = 36, but one is bad, so 35.\n#### 35", "36", False),
    ("The answer is 18. A common wrong answer is 7.", "7", False),
    ("I cannot tell.", "5", False),
    ("The answer is -4.", "4", False),
    ("#### 0.5", "5", False),
]
# (prompt, body, check) in HumanEval's manner
PROBLEMS = [
    (
        "def is_even(n):\n    '''Whether n is even.'''\n",
        "    return n % 2 == 0\n",
        "def check(candidate):\n    assert candidate(4)\n    assert not candidate(7)\n",
        "is_even",
    ),
    (
        "from typing import List\n\n\ndef running_max(values: List[int]) -> List[int]:\n    '''Largest so far.'''\n",
        "    found: List[int] = []\n    for value in values:\n        found.append(max(value, *found[-1:]) if found else value)\n"
        "    return found\n",
        "def check(candidate):\n    assert candidate([1, 3, 2]) == [1, 3, 3]\n    assert candidate([]) == []\n",
        "running_max",
    ),
    (
        "def helper(text):\n    return text[::-1]\n\n\ndef is_palindrome(text):\n    '''Same both ways, by helper.'''\n",
        "    return helper(text) == text\n",
        "def check(candidate):\n    assert candidate('abba')\n    assert not candidate('ab')\n",
        "is_palindrome",
    ),
]
# the imports and calls of the founding documents, as written there
DOCUMENTS = """
from rm_gallery.core.data.load.base import create_loader
from rm_gallery.core.data.schema import DataOutput, DataSample, Step
from rm_gallery.core.model.message import ChatMessage, MessageRole
from rm_gallery.core.model.openai_llm import OpenaiLLM
from rm_gallery.core.reward.base import BaseListWiseReward, BaseLLMReward, BasePointWiseReward
from rm_gallery.core.reward.principle.auto import AutoPrincipleGenerator
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.schema import RewardDimensionWithRank, RewardDimensionWithScore, RewardResult
from rm_gallery.core.reward.template import BasePromptTemplate
from rm_gallery.core.utils.file import split_samples
from rm_gallery.core.utils.prompt import format_messages
from rm_gallery.gallery.rm.alignment.base import BaseHarmlessnessListWiseReward
import rm_gallery.core.data
import rm_gallery.gallery.data


@RewardRegistry.register("capital")
class Capital(BasePointWiseReward):
    name = "capital"
    FACTS = {"france": "paris"}

    def _evaluate(self, sample, **kwargs):
        right = self.FACTS["france"] in sample.output[0].answer.content.lower()
        detail = RewardDimensionWithScore(name=self.name, score=float(right), reason="looked up")
        return RewardResult(name=self.name, details=[detail])


rows = [{"id": str(i), "prompt": "Capital of France?", "chosen": "Paris", "rejected": "Rome", "subset": "a"} for i in range(10)]
loader = create_loader(name="x", load_strategy_type="local", data_source="rewardbench", config={"data": rows})
first, rest = split_samples(loader.run().datasamples, 0.2)
scored = RewardRegistry.get("capital")().evaluate_batch(first + rest, max_workers=4)
print(len(first), [output.answer.reward.score for output in scored[0].output], BaseHarmlessnessListWiseReward().name)
"""


def test_gsm8k_manner() -> None:
    reward = RewardRegistry.create("math_verify_reward")
    found = reward.evaluate_batch([make_sample(text, reference=wanted) for text, wanted, _ in SOLUTIONS])
    wrong = [
        text for (text, _, right), sample in zip(SOLUTIONS, found, strict=True) if scores(sample) != [float(right)]
    ]
    assert wrong == []


@pytest.mark.system("bubblewrap")
def test_humaneval_manner() -> None:
    require_bubblewrap()
    samples = []
    for prompt, body, check, name in PROBLEMS:
        answers = [body, f"```python\n{prompt}{body}```", "    return None\n"]
        sample = make_sample(*answers, query=prompt)
        sample.metadata = {"test": check, "entry_point": name, "prompt": prompt}
        samples.append(sample)
    reward = RewardRegistry.create("code_execution", timeout=5.0)
    assert [scores(sample) for sample in reward.evaluate_batch(samples)] == [[1, 1, 0]] * len(samples)


def test_the_founding_documents_names(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(DOCUMENTS, encoding="utf-8")
    done = run_python("script.py", cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("2 [1.0, 0.0] base_harmlessness_listwise\n", "")


def test_a_benchmark_figure(tmp_path: Path) -> None:
    """RewardBench's rule by hand: chosen above rejected counts 1, a tie 0 here, the mean of the subset's pairs."""
    pairs = [("long answer", "short", 1), ("no", "longer", 0), ("same", "same", 0), ("the longest of all", "x", 1)]
    rows = [
        {"id": i, "prompt": f"q{i}", "chosen": a, "rejected": b, "subset": "alpacaeval-easy"}
        for i, (a, b, _) in enumerate(pairs)
    ]
    (tmp_path / "pairs.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    done = command("eval", "length_baseline", str(tmp_path / "pairs.jsonl"), "--json")
    assert done.code == 0, done.err
    figures = json.loads(done.out)
    assert (figures["score"], figures["n"]) == (sum(won for _, _, won in pairs) / len(pairs), len(pairs))
