"""The direct comparison of plain numbers gives what Math-Verify gives, or nothing."""

from __future__ import annotations

import random
import subprocess
import sys

import pytest

from rm_gallery.core.text.maths import fast_verdict, verify_answer


def _number(rng: random.Random) -> str:
    whole = rng.choice([rng.randint(0, 3), rng.randint(0, 20), rng.randint(0, 10**6), rng.randint(0, 10**13)])
    sign = rng.choice(["", "", "-", "+"])
    digits = rng.choice(["0", "5", "50", "333333", "3333333", "000000", "0000001", "1" * rng.randint(1, 20)])
    return rng.choice(
        [
            f"{sign}{whole}",
            f"{sign}{whole:,}",
            f"{sign}{whole}.{digits}",
            f"{sign}{rng.randint(0, 6)}/{rng.randint(0, 6)}",
            f"{'0' * rng.randint(1, 3)}{whole}",
            f"{sign}{whole}%",
        ]
    )


def _variant(number: str, rng: random.Random) -> str:
    return rng.choice([number, number + ".0", number + "0", number + ".0000001", number + ".000001", _number(rng)])


@pytest.mark.parametrize("seed", range(4))
def test_agrees_with_math_verify_on_random_numbers(seed: int) -> None:
    rng = random.Random(seed)
    decided = 0
    for _ in range(500):
        gold = _number(rng)
        answer = _variant(gold, rng)
        quick = fast_verdict(answer, gold)
        if quick is not None:
            decided += 1
            assert quick == verify_answer(answer, gold), (gold, answer)
    assert decided > 100


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        (r"\boxed{\frac{1}{2}}", "0.5"),
        ("50%", "50"),
        ("0.3333333", "1/3"),
        ("18.0000001", "18"),
        ("1" * 1200, "1" * 1200),
        ("", "x+1"),
        ("1/0", "1"),
    ],
)
def test_leaves_to_math_verify(answer: str, gold: str) -> None:
    assert fast_verdict(answer, gold) is None


def test_needs_no_sympy() -> None:
    source = (
        "import sys\n"
        "from rm_gallery.core.text.maths import fast_verdict\n"
        "assert fast_verdict('A: 18', '#### 18').status == 'correct'\n"
        "assert 'sympy' not in sys.modules and 'math_verify' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", source], check=True, timeout=60)
