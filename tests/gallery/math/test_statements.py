"""How solutions state their answers, and what is read: through `math_verify_reward`."""

from __future__ import annotations

import pytest

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.reward.registry import RewardRegistry
from tests.gallery.rules.support import sample_of
from tests.support.shared_data import labelled_cases

STATED = r"""
The answer is 18. A common wrong answer is 7.|18|1
The answer is 18. A common wrong answer is 7.|7|0
The answer is 18, not 7.|7|0
The answer is 18!|18|1
The answer is 18! Great job.|18|1
$5!$|120|1
\boxed{5!}|120|1
The answer is 5!|120|1
=> 18|18|1
So 18.|18|1
So, 18|18|1
Ответ: 18|18|1
Ответ: 18.|18|1
Ответ — 18|18|1
*18*|18|1
**18**|18|1
答えは18です。|18|1
答え：18|18|1
{"answer": "18"}|18|1
{"answer": 18}|18|1
{"answer": 18.0}|18|1
{"reasoning": "9*2=18 and 7", "answer": "18"}|18|1
```json\n{"answer": "\\frac{1}{2}"}\n```|1/2|1
{"answer": "\frac{1}{2}"}|1/2|1
{"answer": "\sqrt{2}"}|\sqrt{2}|1
{'answer': '18'}|18|1
{"final_answer": "18", "check": 7}|18|1
<answer>18</answer>|18|1
<answer> 18 </answer>|18|1
<answer>\boxed{18}</answer>|18|1
<answer>$18</answer>|18|1
<answer>The answer is 18.</answer>|18|1
<answer>18 eggs</answer>|18|1
<think>17</think><answer>18</answer>|18|1
<answer>17</answer> no, <answer>18</answer>|18|1
<answer>18|18|1
The answer is 7. Wait, no: 18.|18|1
The answer is 7. Wait, no: 18.|7|0
The answer is 7. Wait, that's wrong. It should be 18.|18|1
The answer is 7. Actually, it's 18.|18|1
The answer is 7. Correction: 18|18|1
The answer is 7. Sorry, I meant 18.|18|1
The answer is 18. Wait, let me double check: 9*2 = 18. Yes.|18|1
The answer is 18. Let me verify: 18/2 = 9. Correct.|18|1
答案是7。不对，应该是18。|18|1
答案不是7，而是18。|18|1
答案不是7，而是18。|7|0
The answer is not 7 but 18.|18|1
The answer is not 7.|7|0
The answer isn't 7; it's 18.|18|1
The answer isn't 7.|7|0
The answer is 18 or 19.|18|0
The answer is either 18 or 19.|19|0
The answer is 18 or 19.|18, 19|1
Die Antwort ist 18.|18|1
Die Antwort lautet 18 Euro.|18|1
Die Antwort ist nicht 7, sondern 18.|18|1
Die Antwort ist nicht 7, sondern 18.|7|0
Die Lösung ist 18.|18|1
Die Antwort ist 3,5.|3.5|1
Das Ergebnis ist 18.|18|1
Antwort: 18|18|1
La réponse est 18.|18|1
La réponse est 3,5.|3.5|1
La réponse est 1 250.|1250|1
La réponse n'est pas 7 mais 18.|18|1
La réponse n'est pas 7 mais 18.|7|0
Réponse : 18|18|1
La respuesta es 18.|18|1
La respuesta no es 7 sino 18.|18|1
La respuesta no es 7 sino 18.|7|0
Respuesta: 18|18|1
Ответ не 7, а 18.|18|1
Ответ не 7, а 18.|7|0
Правильный ответ: 18|18|1
정답은 18입니다.|18|1
답은 18개입니다.|18|1
정답: 18|18|1
답은 7이 아니라 18입니다.|18|1
답은 7이 아니라 18입니다.|7|0
答えは7ではなく18です。|18|1
答えは7ではなく18です。|7|0
正解は18円です。|18|1
よって、18個です。|18|1
答案是18。|18|1
答案为18|18|1
所以，答案是 18 元。|18|1
因此答案是18，不是7。|18|1
答案是18，因为有7天。|18|1
\boxed{18~\text{cm}}|18|1
\boxed{18\text{ cm}}|18|1
\boxed{18^\circ}|18|1
\boxed{18^{\circ}}|18|1
\boxed{\approx 18}|18|1
\boxed{x \approx 18}|18|1
\boxed{x = 1{,}250}|1250|1
\boxed{\$1{,}250}|1250|1
\boxed{18\%}|18|1
\boxed{18 \, \Omega}|18|1
\boxed{18\,\mu\text{m}}|18|1
\boxed{18 \text{ or } 19}|18|0
\boxed{18}\text{ cm}|18|1
The answer is \boxed{18}, not \boxed{7}.|18|1
$x = 18$|18|1
x=18|18|1
x = 18|x = 18|1
The value of x is 18.|18|1
The total is 18, not 7.|18|1
The total is 18, not 7.|7|0
It costs $18 rather than $7.|18|1
It costs $18 (not $7).|18|1
The answer is 18 because 3 * 6 = 18.|18|1
The answer is 18 since there are 7 days in 2 weeks.|18|1
The answer is 18 (2 * 9).|18|1
The answer is 18 — see step 4.|18|1
The answer is 18 - see step 4.|18|1
The answer is: 18|18|1
The answer is:\n18|18|1
The answer is:\n\n$$18$$|18|1
Final answer:\n\n18|18|1
## Answer\n18|18|1
**Answer:** 18|18|1
Answer - 18|18|1
Answer → 18|18|1
Answer = 18|18|1
ans: 18|18|1
The final answer is $\boxed{18}$. I hope it is correct.|18|1
#### 18|18|1
blah 5\n#### 1,800|1800|1
A: 18|18|1
The result is 18.|18|1
The solution is x = 18.|18|1
We get 18.|18|1
That makes 18 eggs in total.|18|1
She has 18 apples left after 3 days.|18|0
Therefore, she makes $18 every day.|18|1
The answer is about 18.|18|1
The answer is approximately $18.5$.|18.5|1
The answer is roughly 18.|18|1
The answer would be 18.|18|1
The answer should be 18.|18|1
The answer must be 18.|18|1
Answer: eighteen|18|1
Answer: twenty-five|25|1
The answer is two hundred|200|0
The answer is 3 million.|3000000|1
The answer is 3 million.|3|0
The answer is 18%.|0.18|1
The answer is 1 1/2.|1.5|1
The answer is 1\frac{1}{2}.|1.5|1
1½|1.5|1
The answer is 2⁵.|32|1
The answer is 10⁻³|0.001|1
The answer is 1e-9|1e-9|1
The answer is 1e-9|2e-9|0
\boxed{1.6\times 10^{-19}}|1.6e-19|1
\boxed{1.6\times 10^{-19}}|1.7e-19|0
\boxed{6.63\times 10^{-34}}|6.626\times 10^{-34}|0
\boxed{0}|10^{-9}|0
0.00003|0.00004|0
0.0000300|0.00003|1
The answer is 3:30 AM.|3:30 PM|0
The answer is 3:30 PM.|3:30 PM|1
3:30 p.m.|3:30 PM|1
The answer is 2024-06-01|2024-06-01|1
2024-05-02|2024-06-01|0
3:30|1:10|0
\boxed{3:2}|6:4|1
The answer is (3, 4).|(3,4)|1
The answer is (4, 3).|(3,4)|0
The answer is $x > 3$.|(3,\infty)|1
\boxed{x < 3}|(3,\infty)|0
\boxed{x \ge 3}|[3,\infty)|1
\boxed{-1 < x < 3}|(-1,3)|1
\boxed{x \in (3,\infty)}|(3,\infty)|1
The answer is yes.|yes|1
The answer is Yes, because 3 > 2.|Yes|1
The answer is no.|yes|0
The answer is not yes.|yes|0
The answer is Monday.|Monday|1
The answer is obvious, namely 18.|18|1
If you forgot to carry, the answer would be 8. The answer is 18.|18|1
The answer is 18. If you forgot to carry, the answer would be 8.|18|1
The answer is 18. If you forgot to carry, the answer would be 8.|8|0
Suppose the answer is 5. Then 5 + 1 = 6, which fails. So x = 6.|6|1
Some students say the answer is 7, but it is 18.|18|1
One might think the answer is 7. It is 18.|18|1
A wrong answer is 7.|7|0
The wrong answer is 7. The right answer is 18.|18|1
The student's answer is 7, but the correct answer is 18.|18|1
My first answer was 7, but the correct answer is 18.|18|1
Is the answer 7? No, the answer is 18.|18|1
The answer is 18?|18|1
The answer is between 17 and 19.|18|0
The answer is between 17 and 19.|19|0
The answer is more than 18.|18|0
The answer is less than 18.|18|0
I don't know.|18|0
|18|0
The answer is unknown.|18|0
There is no answer.|18|0
The answer cannot be determined from 18 apples.|18|0
Step 1: add.\nStep 2: multiply.|2|0
1. First\n2. Second|2|0
The answer is 18\r\n\r\nThanks|18|1
The answer is 18\n\nNote: 7 is a common mistake.|18|1
The answer is 18.\n\nCheck: 18 - 7 = 11.|18|1
The answers are 3 and 5.|3,5|1
The answers are 3 and 5.|5,3|1
The answers are x = 3 and x = 5.|3,5|1
The answers are 3 and 5.|5|0
x = 3 or x = 5|3,5|1
x = 3 or x = 5|5|0
3, 5|5|0
\{3, 5\}|3,5|1
The answer is $\frac{18}{1}$|18|1
The answer is $3x + 2$.|2+3x|1
The answer is 3x + 2.|2+3x|1
The answer is sqrt(3).|\sqrt{3}|1
The answer is √3/2|\frac{\sqrt{3}}{2}|1
The answer is 5π.|5\pi|1
The answer is 5 pi|5\pi|1
The answer is 2^10|1024|1
The answer is ∞|\infty|1
The answer is -18.|18|0
The answer is −18.|-18|1
The answer is 0.1 + 0.2 = 0.3|0.3|1
The answer is 18 apples, 7 of which are red.|18|1
The answer is 18 apples and 7 pears.|18|1
The answer is 18 dollars and 50 cents|18.5|1
The answer is $18.50|18.5|1
The answer is $18.|18|1
The answer is USD 18|18|1
The answer is 18 USD.|18|1
The answer is £18|18|1
The answer is 18 km/h.|18|1
The answer is 18 cm^2|18|1
The answer is 18 square meters.|18|1
The answer is 1,800.|1800|1
The answer is 1.800|1800|0
The answer is 1 800|1800|1
\boxed{\frac{3}{4}}|0.75|1
\boxed{\frac{3}{4}}|0.7501|0
""".strip("\n").splitlines()
"""answer|reference|score; \\n and \\r are line ends."""


def _scores(samples: list[DataSample]) -> list[float | None]:
    reward = RewardRegistry.create("math_verify_reward")
    found = [sample.output[0].answer.reward.details for sample in reward.evaluate_batch(samples)]
    return [details[0].score if details else None for details in found]


def test_a1_a3_a4_a7_a8_statements() -> None:
    rows: list[tuple[str, str, float]] = []
    for line in STATED:
        answer, reference, score = line.split("|")
        rows.append((answer.replace(r"\n", "\n").replace(r"\r", "\r"), reference, float(score)))
    scores = _scores([sample_of(answer, reference) for answer, reference, _ in rows])
    assert [(row, score) for row, score in zip(rows, scores, strict=True) if score != row[2]] == []


def test_a_labelled_cases() -> None:
    rows = labelled_cases("math_answers")
    scores = _scores([sample_of(row["answer"], row["reference"]) for row in rows])
    assert [(row, score) for row, score in zip(rows, scores, strict=True) if score != row["expected"]] == []


SOLUTIONS = [
    (
        "Mia packs 4 crates of 12 jars. 4 * 12 = <<4*12=48>>48 jars. She breaks 3. 48 - 3 = <<48-3=45>>45.\n#### 45",
        "45",
        1,
    ),
    ("4 * 12 = 48. 48 + 3 = 51\nA: 51", "45", 0),
    ("A bus holds 52 people. 3 buses hold 3 * 52 = 156.\n\nTherefore, 156 people fit.\nA: 156", "#### 156", 1),
    ("She earns $14 an hour for 7.5 hours: 14 * 7.5 = $105.00\nA: $105.00", "105", 1),
    ("2 dozen eggs are 24 eggs, half of them is 12.\nA: 24", "12", 0),
    (
        "The tank loses 5% of 2,400 liters: 120 liters. 2400 - 120 = 2,280 liters remain.\n\nThe answer is 2,280.",
        "2280",
        1,
    ),
    ("x + 2x + 9 = 42, 3x = 33, x = 11. The younger one is 11 years old.", "11", 1),
    ("Let me think. 7 * 8 = 54. So the answer is 54.", "56", 0),
    ("First answer: 20. Wait, the ticket for adults costs double. The answer is 30.", "30", 1),
    ("Each of the 6 friends pays 54 / 6 = 9 dollars.\n\n**Final answer: 9 dollars**", "9", 1),
    ("It took 1 hour and 45 minutes, which is 105 minutes.\n\\boxed{105}", "105", 1),
    ("Half of 90 is 45, so 45 marbles are red and 45 - 20 = 25 of them are small.\nA: 25 small red marbles", "25", 1),
    ("He needs 13 / 4 = 3.25 cans, so he buys 4.\nA: 4", "4", 1),
    ("He needs 13 / 4 = 3.25 cans.\nA: 3.25", "4", 0),
    ("小明有15个苹果，吃了4个，还剩15-4=11个。\n答案：11个", "11", 1),
    ("The profit is 300 - 220 = 80, that is 80/220 = 36.4%.\n#### 36.4%", "36.4%", 1),
]
"""Solutions in the style of GSM8K, written for this project, with what a person says of them."""


def test_t3_solutions_written_for_the_project() -> None:
    scores = _scores([sample_of(solution, reference) for solution, reference, _ in SOLUTIONS])
    assert [row for row, score in zip(SOLUTIONS, scores, strict=True) if score != row[2]] == []


@pytest.mark.parametrize("reference", ["prose without a value", "between 3 and 4", ""])
def test_references_without_a_value_are_unscored(reference: str) -> None:
    assert _scores([sample_of("The answer is 18.", reference)]) == [None]
