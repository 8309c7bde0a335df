"""The direct comparison of plain numbers agrees with Math-Verify's, and what explodes costs its
deadline alone.
"""

from __future__ import annotations

import random
import subprocess
import sys

import pytest

from rm_gallery.core.engine.pool import WorkerPool
from rm_gallery.core.text.expressions import find_answer, find_reference
from rm_gallery.core.text.maths import fast_verdict, verify_answer
from rm_gallery.core.utils.errors import DeadlineExceeded

PIECES = [
    *"0123456789{}$\\[]().,:;= -+*/^%#\n",
    *(
        r"\boxed{",
        r"\frac",
        r"\text{",
        "answer is ",
        "A: ",
        "####",
        "<think>",
        "</think>",
        "答案",
        "，",
        "。",
        "eggs ",
    ),
    *("\x00", "\ud800"),
]


def number(rng: random.Random) -> str:
    whole = rng.choice(
        [rng.randint(0, 3), rng.randint(0, 20), rng.randint(0, 10**6), rng.randint(0, 10**13)]
    )
    sign = rng.choice(["", "", "-", "+"])
    digits = rng.choice(
        ["0", "5", "50", "333333", "3333333", "000000", "0000001", "1" * rng.randint(1, 20)]
    )
    forms = [
        f"{whole}",
        f"{whole:,}",
        f"{whole}.{digits}",
        f"{rng.randint(0, 6)}/{rng.randint(0, 6)}",
        f"{whole}%",
    ]
    return sign + rng.choice([*forms, f"00{whole}"])


@pytest.mark.long("waits for a deadline")
@pytest.mark.parametrize("seed", range(2))
def test_the_direct_comparison_agrees_on_random_numbers(seed: int) -> None:
    rng = random.Random(seed)
    decided = 0
    for _ in range(500):
        gold = number(rng)
        answer = rng.choice(
            [gold, gold + ".0", gold + "0", gold + ".0000001", gold + ".000001", number(rng)]
        )
        quick = fast_verdict(answer, gold)
        decided += quick is not None
        assert quick is None or quick == verify_answer(answer, gold), (gold, answer)
    assert decided > 100


def test_the_direct_comparison_needs_no_sympy() -> None:
    source = (
        "import sys\n"
        "from rm_gallery.core.text.maths import fast_verdict\n"
        "assert fast_verdict('A: 18', '#### 18').status == 'correct'\n"
        "assert 'sympy' not in sys.modules and 'math_verify' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", source], check=True, timeout=60)


@pytest.mark.long("waits for a deadline")
def test_an_expression_that_explodes_costs_its_deadline_only() -> None:
    with WorkerPool(2) as pool:
        for expression in (
            r"\boxed{9^{9^{9^{9}}}}",
            r"\boxed{\sum_{k=1}^{10^{9}} \frac{1}{k}}",
            "$((10!)!)!$",
        ):
            answers = ("A: 18", expression, "A: 18")
            first, stuck, last = (
                pool.submit(verify_answer, answer, "18", deadline=1.0) for answer in answers
            )
            assert isinstance(stuck.exception(), DeadlineExceeded)
            assert first.result() == last.result() == verify_answer("A: 18", "18")


@pytest.mark.long("waits for a deadline")
def test_random_texts_are_read_without_an_error() -> None:
    rng = random.Random(0)
    for _ in range(3000):
        text = "".join(rng.choices(PIECES, k=rng.randint(0, 30)))
        found = find_answer(text)
        assert found is None or found.text != ""
        find_reference(text)


@pytest.mark.parametrize(
    ("answer", "gold", "equal"),
    [
        (r"(1/2)^{2023}", r"(1/2)^{2024}", False),
        (r"1-2^{-101}", r"1-2^{-100}", False),
        (r"\frac{1}{2006!}", r"\frac{1}{2004!}", False),
        (r"\sqrt{10^{40}+1}", r"10^{20}", False),
        (r"\{1, 2^{-60}\}", r"\{1, 2^{-61}\}", False),
        (r"\sqrt{2}+\sqrt{3}", r"\sqrt{5+2\sqrt6}", True),
        (r"3^{200}", r"9^{100}", True),
        (r"\sqrt{12}", "3.4641016", True),
        (r"2+3\mathrm{i}", "2+3i", True),
        ("5", r"2+3\mathrm{i}", False),
        ("3", r"3\mathrm{e}^2", False),
        (r"1-\frac{1}{\mathrm{e}}", r"1-\frac1e", True),
        (r"18\text{ minutes}", r"18\text{ hours}", False),
        (r"5\text{ km}", r"5\text{ m}", False),
        ("f(3)=5", "f(2)=5", False),
        (r"m \geq \sqrt{2}", r"m \in [\sqrt{2}, +\infty)", True),
        (r"x<-1 \text{ or } x>1", r"(-\infty,-1)\cup(1,\infty)", True),
        (r"x<-1 \text{ or } x>2", r"(-\infty,-1)\cup(1,\infty)", False),
    ],
)
def test_values_are_compared_exactly_and_by_what_they_are(
    answer: str, gold: str, equal: bool
) -> None:
    assert (verify_answer(rf"\boxed{{{answer}}}", gold).status == "correct") is equal
