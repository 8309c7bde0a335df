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
The answer is two hundred|200|1
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
Thus the probability is $\frac{7}{36}$.|\frac{7}{36}|1
The probability is 7/36.|\frac{7}{36}|1
\boxed{\frac{14}{72}}|\frac{7}{36}|1
\boxed{-\frac{1}{2}}|\frac{-1}{2}|1
\boxed{2 \frac{1}{3}}|\frac{7}{3}|1
The answer is 2 1/3.|7/3|1
The answer is 75%.|3/4|1
The answer is 0.75|75%|1
The answer is 12.5 percent|12.5|1
The answer is 100%.|1|1
\boxed{5\text{ km}}|5|1
The answer is 5km.|5|1
The answer is 5 kilometers per hour.|5|1
The answer is $1,234.50.|1234.5|1
The answer is 1,234.50 dollars.|1234.5|1
Answer: 20€|20|1
Answer: ¥20|20|1
Answer: 20 USD|20|1
Answer: Rs. 20|20|1
The answer is 5 billion|5|0
The answer is 2.5 million dollars.|2500000|1
\boxed{2.5 \text{ million}}|2500000|1
\boxed{2.5 \text{ million}}|2.5|0
\boxed{1{,}234{,}567}|1234567|1
\boxed{12\,345}|12345|1
The answer is 1 234 567.|1234567|1
The answer is 10,00.|1000|0
\boxed{3.14}|\pi|0
\boxed{3.14159265}|\pi|1
\boxed{1.5e3}|1500|1
\boxed{1.5E+3}|1500|1
1.5 × 10^3|1500|1
The answer is 1.5 x 10^3.|1500|1
The answer is 1.5*10^3|1500|1
\boxed{10^3}|1000|1
x=-5|-5|1
\boxed{x=-5}|5|0
The solution is x = 5, y = 3.|(5,3)|0
\boxed{x=5,y=3}|x=5,y=3|1
\boxed{y=x^2}|x^2|1
\boxed{f(x)=2x+3}|2x+3|1
\boxed{n = 12}|12|1
$x_1 = 1, x_2 = 2$|1,2|1
The roots are 1 and 2.|1,2|1
The roots are $1$ and $2$.|1,2|1
\boxed{1, 2, \text{ and } 3}|1,2,3|1
The answers are 1, 2, and 3.|1,2,3|1
\boxed{\{1,2,3\}}|3,2,1|1
\boxed{[0,\infty)}|[0,\infty)|1
\boxed{x\geq 0}|[0,\infty)|1
\boxed{x \in [0, \infty)}|[0,\infty)|1
\boxed{(0,1)}|[0,1]|0
\boxed{x<3}|x<3|1
\boxed{x<3}|x>3|0
\boxed{\varnothing}|\emptyset|1
\boxed{\begin{pmatrix}1&2\\3&4\end{pmatrix}}|\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}|1
\boxed{\begin{bmatrix}1&2\\3&4\end{bmatrix}}|\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}|1
\boxed{\pm 3}|3,-3|1
\boxed{x=\pm 3}|\pm 3|1
\boxed{3}|\pm 3|0
\boxed{1 \pm \sqrt{5}}|1\pm\sqrt5|1
\boxed{\text{Yes}}|Yes|1
\boxed{\text{yes}}|Yes|1
The answer is (B).|B|1
The answer is (C).|B|0
\boxed{B}|B|1
\boxed{\text{Sunday}}|Monday|0
\boxed{x^2+2x+1}|(x+1)^2|1
\boxed{\sqrt{8}}|2\sqrt{2}|1
\boxed{\frac{\sqrt{3}}{3}}|\frac{1}{\sqrt{3}}|1
\boxed{e^2}|e^2|1
\boxed{\log 8}|3\log 2|1
\boxed{\ln 8}|3\ln 2|1
\boxed{\log_2 8}|3|1
\boxed{90^\circ}|90|1
\boxed{\frac{\pi}{2}}|\pi/2|1
\boxed{2:3}|2:3|1
\boxed{2:3}|3:2|0
\boxed{1011_2}|1010_2|0
\boxed{-\infty}|\infty|0
\boxed{\frac{x}{y}}|x/y|1
\boxed{2i+3}|3+2i|1
\boxed{5!}|120|1
\boxed{\binom{5}{2}}|10|1
\boxed{0.\overline{3}}|1/3|1
\boxed{0.333...}|1/3|0
sqrt(16)|4|1
The answer is 2^5 = 32.|32|1
48 + 24 = 72|72|1
48 + 24 = 72 clips|72|1
She sold 72 clips altogether in April and May.|72|1
Natalia sold **72** clips.|72|1
The answer is $\boxed{72}$ clips.|72|1
The final answer is: $72$.|72|1
Therefore the answer is 72!|72|1
Final Answer: 72|72|1
FINAL ANSWER: 72|72|1
The answer, then, is 72.|72|1
The answer to this question is 72.|72|1
Our answer is 72.|72|1
my answer is 72|72|1
answer=72|72|1
[Answer] 72|72|1
[72]|72|1
(72)|72|1
"72"|72|1
'72'|72|1
`72`|72|1
72.|72|1
72.0|72|1
72.00|72|1
+72|72|1
- 72|-72|1
~72|72|1
≈72|72|1
>72|72|0
about 72|72|1
72 or so|72|1
seventy-two|72|1
The answer is seventy two.|72|1
72 (seventy-two)|72|1
The answer is 72 (seventy-two).|72|1
The answer is seventy-two (72).|72|1
Answer: $72|72|1
答案：72|72|1
答：72|72|1
答：一共72个。|72|1
最终答案：72|72|1
所以答案是 \boxed{72}|72|1
答案是七十二|72|0
合計72個です。|72|1
答えは 72 です|72|1
따라서 답은 72이다.|72|1
La réponse finale est $72$.|72|1
La respuesta final es $\boxed{72}$.|72|1
Die endgültige Antwort lautet: 72|72|1
Итак, ответ: 72.|72|1
The answer is 72. The answer to part (b) is 5.|72|1
The answer is 72 and not 70.|72|1
The answer is 72, which is more than 70.|72|1
The answer is 72 rather than 70.|72|1
The answer is 72 instead of 70.|72|1
The answer is 72 — not 70.|72|1
The answer isn't 70 but 72.|72|1
The answer was 70 but after correction it is 72.|72|1
I first got 70, but the answer is 72.|72|1
I got 70. Wait, I made a mistake: it should be 72.|72|1
The answer is 70. Oops, I mean 72.|72|1
The answer is 70. Hmm, no. 72.|72|1
The answer is 70. No, 72.|72|1
The answer is 70... actually 72.|72|1
The answer is 70, no wait, 72.|72|1
The answer is either 70 or 72.|72|0
The answer could be 70 or 72.|72|0
The answer might be 72.|72|1
The answer is 70 or 72.|70|0
The answer is at least 72.|72|1
It is not 72.|72|0
72 is wrong.|72|0
The answer 72 is wrong.|72|0
72 is not the answer.|72|0
The answer is 70. Many people think it is 72.|72|0
The answer is 70. 72 would be wrong.|72|0
The answer is 70. (Not 72.)|72|0
The answer is 70.\n\nNote: 72 is a common mistake.|72|0
The answer is 70, since 72 - 2 = 70.|72|0
If x = 72, then y = 70. The answer is 70.|72|0
Step 1: 72\nStep 2: 70\nAnswer: 70|72|0
<answer>70</answer> 72|72|0
{"answer": "70", "other": "72"}|72|0
{"answer": ["70", "72"]}|72|0
{"answer": null}|72|0
{"answer": ""}|72|0
<answer></answer>|72|0
\boxed{}|72|0
\boxed{70} and 72|72|0
\boxed{70}, 72|72|0
The answer is 2024-05-01.|2024-05-01|1
The answer is 05/01/2024.|05/01/2024|1
The time is 3:30.|3:30|1
It is 15:30.|3:30|0
3:30 PM|15:30|1
1/2 cup|1/2|1
0.5 cups|1/2|1
5 ft 3 in|63|0
5 hours 30 minutes|5.5|0
$5.00|5|1
5,000|5|0
5.000|5|1
5.000|5000|0
The answer might be 7. Or maybe 18.|7|0
The answer is unknown. There are 7 unknowns.|7|0
The answer can't be 18.|18|0
The answer is definitely not 18.|18|0
The answer is nowhere near 18.|18|0
It is unlikely that the answer is 18.|18|0
I don't believe it's 18.|18|0
Is the answer 18?|18|0
18? No. 24.|24|1
The answer is 18 — 7 less than 25.|25|0
18 is the final answer, which is 7 less than 25.|7|0
The answer is negative 5.|5|0
The answer is negative 5.|-5|1
<answer>not 18</answer>|18|0
#### not 18|18|0
\boxed{101_2}|101_3|0
The answer is x = 3 (x = -3 is extraneous).|-3|0
The answer is $\frac{1}{6}$, i.e. about 0.167.|1/6|1
✅ 27|27|1
<b>27</b>|27|1
「27」|27|1
My friend says the answer is 42, but I get 24.|24|1
She had 42, gave 18, so 24 remain.|24|1
We check 42: fails. We check 24: works.|42|0
24 (= 42 - 18)|24|1
3 + 4 = 7, 7 + 11 = 18|18|1
It's 18.|18|1
The answer is `18`.|18|1
The answer is (B) 42.|42|1
The answer is one third.|1/3|1
The answer is 3 dozen.|3|0
Many students answer 7, however the right answer is 18.|18|1
La respuesta correcta es 18, no 7.|18|1
La bonne réponse n'est pas 24, c'est 42.|42|1
La réponse ne peut pas être 42.|42|0
No creo que la respuesta sea 42.|42|0
Ich glaube nicht, dass die Antwort 42 ist.|42|0
Die Antwort ist 1.250,50 €.|1250.5|1
Ответ не 18.|18|0
Не 24, а 42.|42|1
答案可能是7，也可能是18。|18|0
答案不可能是42。|42|0
答えは18ではありません。|18|0
答えは7か18です。|7|0
24ではなく42です。|24|0
24가 아니라 42입니다.|42|1
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
