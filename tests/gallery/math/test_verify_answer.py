"""Which answers equal which references."""

from __future__ import annotations

import pytest

from rm_gallery.core.text.maths import fast_verdict, verify_answer

_RIGHT = [
    ("18", "18", "the same integer"),
    ("18", "A: 18", "final line of GSM8K solutions"),
    ("18", "first #### 17\nthen #### 18\nbye", "last mark counts"),
    ("Job A: 2000 hours\nA: 8400", "A: 8400", "the last A: of a reference, not the first"),
    ("2 + 16 = 18\n#### 1,234", r"so \boxed{1234}", "reference is a whole GSM8K solution"),
    ("18", "The answer is 18.", "phrase and full stop"),
    ("18", "The answer is 18. I used 3 steps.", "the sentence after the answer holds a number"),
    ("18", "**Answer:** 18", "bold phrase"),
    ("18", "**Final answer: 18**", "bold line"),
    ("18", "Answer:\n$$18$$", "display formula on the next line"),
    ("18", "答案：18", "Chinese phrase and colon"),
    ("18", "所以答案为 １８。", "full-width digits and full stop"),
    ("1000", "答案是１，０００元", "full-width thousands separator and unit"),
    ("18", "一共18个", "number between Chinese letters"),
    ("18", "He has 18 eggs.\n\nSo that makes 18 eggs.", "last number of unmarked text"),
    ("18", "A: 17\r\n\r\nA: 18\r\n", "Windows line ends"),
    (r"\frac{1}{2}", "0.5", "fraction and decimal"),
    (r"\frac{1}{2}", r"\boxed{\frac12}", "short LaTeX fraction"),
    ("1/2", r"$\frac{2}{4}$", "unreduced fraction"),
    ("1/3", "0.333333", "six decimals are enough"),
    ("50%", "0.5", "percent as a share"),
    ("50%", r"\boxed{50\%}", "escaped percent"),
    ("0.5", "50 percent", "percent as a word"),
    ("{1,2,3}", r"\boxed{\{3,2,1\}}", "sets have no order"),
    (r"\{1,2\}", r"x=\boxed{1} or x=\boxed{2}", "two boxes, one answer"),
    ("1,2", "$x=1$ and $x=2$", "two formulas, one answer"),
    ("(2,3)", r"\boxed{(2, 3)}", "pair"),
    ("[0,1)", r"\boxed{[0,1)}", "half-open interval"),
    ("x=5", "5", "reference with a variable"),
    ("5", "x = 5", "answer with a variable"),
    ("2x+1", r"\boxed{1+2x}", "order of terms"),
    ("x^2-1", r"\boxed{(x-1)(x+1)}", "factored"),
    (r"2\sqrt{3}", r"\sqrt{12}", "roots"),
    ("√12", r"\boxed{2\sqrt{3}}", "root as a character"),
    ("π", "3.14159265", "pi as a character"),
    ("5 meters", "5", "unit in the reference"),
    (r"5 \text{ cm}", r"\boxed{5\text{ cm}}", "LaTeX unit"),
    ("5 m^2", r"\boxed{5}", "squared unit"),
    ("18", "$18", "dollars"),
    ("18", r"\$18", "escaped dollars"),
    ("18.5", "The total is $18.50.", "dollars in a sentence"),
    ("18", r"\boxed{18 eggs}", "words in the box"),
    ("-5", "−5", "typographic minus"),
    ("-5", "-$5", "minus before the currency"),
    ("5", "+5", "explicit plus"),
    ("1234567", "1,234,567", "comma separators"),
    ("1234567", "1 234 567", "space separators"),
    ("1234567", r"$1\,234\,567$", "LaTeX separators"),
    ("1e3", "1000", "exponent"),
    ("0.0015", "1.5e-3", "negative exponent"),
    ("1500", "1.5 × 10^3", "scientific notation"),
    ("1 1/2", "1.5", "mixed number"),
    ("1/3", r"\boxed{0.\overline{3}}", "repeating decimal"),
    (".5", "0.50", "no leading zero"),
    ("C", "The answer is (C).", "choice"),
    ("Monday", "The answer is Monday.", "word"),
    (r"\text{even}", "even", "word in LaTeX"),
    (r"90^\circ", "90", "degrees"),
    ("120", "5!", "factorial"),
    ("81", "9**2", "Python power"),
    ("x>3", r"\boxed{3<x}", "turned relation"),
    (
        "\\begin{pmatrix}\n1\\\\\n2\n\\end{pmatrix}",
        r"\boxed{\begin{pmatrix}1\\2\end{pmatrix}}",
        "matrix over several lines",
    ),
    ("$$\n18\n$$", "18", "reference as a display formula"),
    ("+".join(f"x^{n}" for n in range(2, 80)), "+".join(f"x^{n}" for n in range(79, 1, -1)), "long formula"),
    ("18", "The answer is clear: we get 18", "phrase before the value"),
    ("18", "The answer is obvious.\nWe get 18.", "phrase without a value"),
    ("18", "My answer would be 18 eggs for 3 days", "the number next to the phrase"),
    ("10", "20% of 50 is 10", "result at the end of a sentence"),
    ("18", r"\boxed{18", "text ends inside the box"),
    ("18", r"\boxed 18", "box without braces"),
    ("18", "\\boxed{17} no wait\n\n\\boxed{18}", "last box"),
    ("18", "<think>17</think>18", "reasoning left out"),
]

_WRONG = [
    ("18", "19", "another integer"),
    ("Job A: 2000 hours\nA: 8400", "A: 2000", "first A: of the reference is not the reference"),
    ("1/3", "0.33", "two decimals are not enough"),
    ("(2,3)", r"\boxed{(3, 2)}", "pairs have an order"),
    ("[0,1)", r"\boxed{(0,1)}", "open is not half open"),
    (r"\pi", r"\boxed{3.14}", "rounded pi"),
    ("0", r"\boxed{0.\overline{3}}", "repeating digits are not dropped"),
    ("C", r"\boxed{B}", "another choice"),
    ("Monday", "Tuesday", "another word"),
    ("18", r"\boxed{18} or \boxed{19}", "hedging with two boxes"),
    ("18", r"<think>\boxed{18}</think>\boxed{19}", "a box inside the reasoning does not count"),
    ("12", "Options:\nA: 12\nB: 15\nSo it is 15", "an option is no final line"),
    ("18", "18 at first.\nA: unknown", "a final line is final even without a value"),
    ("1", "1/0", "division by zero"),
    ("18", "9" * 1900, "a very long number"),
]

_UNSCORED = [
    ("", "18", "no_gold", "empty"),
    ("   ", "18", "no_gold", "blank"),
    ("???", "18", "no_gold", "no formula"),
    ("see above", "18", "no_gold", "prose"),
    ("3 hours 20 minutes", "3", "no_gold", "two numbers"),
    ("between 3 and 4 apples", "4", "no_gold", "a range in words"),
    ("Line one has 3.\nLine two has 4.", "4", "no_gold", "derivation without a marked result"),
    (r"\frac{", "18", "no_gold", "broken LaTeX"),
    ("", "", "no_gold", "nothing on either side"),
    (r"\frac{", "", "no_gold", "a broken reference is told also where the answer is missing"),
    ("18", "", "no_answer", "empty"),
    ("18", "  \n", "no_answer", "blank"),
    ("x+1", "", "no_answer", "empty, against a formula"),
    ("18", "I do not know.", "no_answer", "prose"),
    ("18", "<think>18", "no_answer", "ends inside the reasoning"),
    ("18", r"\boxed{}", "no_answer", "empty box"),
    ("9" * 5000, "9" * 5001, "no_gold", "a reference longer than Python converts"),
    ("9" * 1900, "9" * 5000, "no_answer", "an answer longer than Python converts"),
]

_CASES = [
    *((gold, answer, "correct", why) for gold, answer, why in _RIGHT),
    *((gold, answer, "wrong", why) for gold, answer, why in _WRONG),
    *_UNSCORED,
]


@pytest.mark.parametrize(("gold", "answer", "expected", "why"), _CASES, ids=[case[3] for case in _CASES])
def test_verdict(gold: str, answer: str, expected: str, why: str) -> None:
    verdict = verify_answer(answer, gold)
    assert verdict.status == expected, why
    quick = fast_verdict(answer, gold)
    assert quick is None or quick == verdict


@pytest.mark.parametrize(
    ("answer", "gold", "extracted"),
    [
        ("2 and 3, so\nA: $26", "steps\n#### 27", ("26", "27")),
        (r"thus $x = \boxed{\frac{1}{2}}$ in 3 steps", "0.5", (r"\frac{1}{2}", "0.5")),
        ("There are 4 rows.\nThere are 12 seats.", "12", ("12", "12")),
        ("", "12", ("", "12")),
    ],
)
def test_verdict_shows_what_was_compared(answer: str, gold: str, extracted: tuple[str, str]) -> None:
    assert verify_answer(answer, gold)[1:] == extracted
