"""The headline claims on short texts written for this project."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from rm_gallery.core.reward.registry import RewardRegistry
from tests.support.samples import make_sample, scores
from tests.support.system import require_bubblewrap

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


def test_gsm8k_manner() -> None:
    """In a batch past an answer that explodes, and from eight threads that share the reward."""
    samples = [make_sample(text, reference=wanted) for text, wanted, _ in SOLUTIONS]
    right = [[float(label)] for _, _, label in SOLUTIONS]
    reward = RewardRegistry.create("math_verify_reward", timeout=2.5)
    exploding = make_sample(r"\boxed{9^{9^{9^{9}}}}", reference="18")
    first, *found = reward.evaluate_batch([exploding, *samples])
    assert (scores(first), [scores(sample) for sample in found]) == ([0.0], right)
    with ThreadPoolExecutor(8) as pool:
        assert [scores(sample) for sample in pool.map(reward.evaluate, samples * 8)] == right * 8


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
