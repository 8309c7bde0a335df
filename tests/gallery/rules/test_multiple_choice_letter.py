"""The letter is read from many wordings, and an article is no letter."""

from __future__ import annotations

import pytest

from rm_gallery.core.text.letters import choice_letter
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.gallery.rm.general.choice_letter import MultipleChoiceLetterReward
from tests.gallery.rules.support import result_of, sample_of, score_of, unscored
from tests.support.shared_data import labelled_cases


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("B", "B"),
        ("b.", "B"),
        ("(B)", "B"),
        ("**B**", "B"),
        ("Ｂ", "B"),
        ("B\r\n", "B"),
        ("B. Paris", "B"),
        ("B) Paris", "B"),
        ("B: Paris", "B"),
        ("The answer is B.", "B"),
        ("The answer is (b)", "B"),
        ("Answer: **C**", "C"),
        ("The correct option is D: Paris", "D"),
        ("Option C is correct.", "C"),
        ("(B) is the correct answer", "B"),
        (r"So \boxed{\text{(D)}}", "D"),
        ("Thinking about it.\n\nB", "B"),
        ("A. x\nB. y\nC. z\nThe answer is C", "C"),
        ("The answer is A. Wait, no. The answer is B.", "B"),
        ("<think>The answer is A</think>The answer is B", "B"),
        ("None of the others fits (C)", "C"),
        ("答案是B", "B"),
        ("答案：Ｂ。", "B"),
        ("选项A错误，所以选B", "B"),
        ("不选A，选D", "D"),
        ("A是正确的", "A"),
        ("The answer is A because it fits", "A"),
        ("Answer: A. A dog", "A"),
        ("The correct option is (A) A cat", "A"),
        pytest.param("A cat sat on the mat.", None, id="an_article_is_no_letter"),
        pytest.param("The answer is a cat", None, id="nor_in_an_announcement"),
        pytest.param("Answer: A dog", None, id="nor_in_capitals"),
        pytest.param("I think so", None, id="a_pronoun_is_no_letter"),
        pytest.param("A or B", None, id="two_letters"),
        pytest.param("The answer is A or B", None, id="two_announced"),
        pytest.param("Both (A) and (B)", None, id="two_in_brackets"),
        pytest.param("A. x\nB. y\nC. z", None, id="a_list_of_all"),
        pytest.param("<think>The answer is A", None, id="never_stopped_thinking"),
        pytest.param("The answer is C++", None, id="a_longer_name"),
        pytest.param("The answer is E-coli", None, id="a_word_that_starts_with_it"),
        ("Paris", None),
        ("", None),
    ],
)
def test_letter(text: str, letter: str | None) -> None:
    assert choice_letter(text) == letter


@pytest.mark.parametrize(
    ("answer", "reference", "expected"),
    [
        ("B", "B", 1.0),
        ("C", "B", 0.0),
        ("B", "(b)", 1.0),
        ("B", "B. Paris", 1.0),
        ("no idea", "B", 0.0),
        ("", "B", 0.0),
    ],
)
def test_score(answer: str, reference: str, expected: float) -> None:
    assert score_of(MultipleChoiceLetterReward(), answer, reference) == expected


def test_reference_as_text_of_a_choice() -> None:
    choices = ["London", "Paris", "Rome"]
    assert score_of(MultipleChoiceLetterReward(), "The answer is B", "Paris", choices=choices) == 1.0
    assert score_of(MultipleChoiceLetterReward(), "The answer is E", "Paris", choices=choices) == 0.0


@pytest.mark.parametrize("reference", [None, "Paris", "Z"])
def test_unscored(reference: str | None) -> None:
    assert unscored(MultipleChoiceLetterReward(), "B", reference) == "no_reference"


@pytest.mark.parametrize("letters", ["", "AAB", "A1", "甲乙"])
def test_bad_letters(letters: str) -> None:
    with pytest.raises(ConfigError, match="letters"):
        MultipleChoiceLetterReward(letters=letters)


A5_STATED = r"""
The answer is B because C would be too large.|B
Answer: B. C is a distractor.|B
The answer is (B), not (C).|B
The answer is B, not C.|B
The answer is not A but B.|B
The answer is not A; it's B.|B
The answer is not B.|None
The answer isn't B.|None
It's not A. It's B.|B
B or C|None
Either B or C.|None
The answer is either B or C.|None
Both A and B are correct.|None
Answer: A, C|None
The answer is B. Wait, no: C.|C
The answer is B. Actually, it's C.|C
The answer is B. Hmm, let me check A. A fails. So B.|B
{"answer": "B"}|B
```json\n{"answer": "B", "confidence": 0.9}\n```|B
{"reasoning": "A is wrong", "answer": "C"}|C
{'answer': 'C'}|C
<answer>(C)</answer>|C
<answer>C. Paris</answer>|C
<answer>The answer is C</answer>|C
\boxed{C}|C
\boxed{(C)}|C
\boxed{\textbf{(C)}}|C
$\boxed{\mathrm{C}}$|C
So the answer is \boxed{B. 12}|B
Die Antwort ist B.|B
Die richtige Antwort lautet B.|B
La réponse est B.|B
La bonne réponse est la B.|B
La réponse correcte est B) Paris|B
La respuesta correcta es la B.|B
La respuesta es la opción B.|B
Правильный ответ: B|B
Правильный ответ — B.|B
정답은 B입니다.|B
정답: B|B
答えはBです|B
正解はBです。|B
答案是B。|B
答案为B|B
正确答案是B，因为A不对。|B
因此选择B。|B
故选B。|B
本题选C|C
答案不是A，而是B。|B
选项B是正确的|B
A、C错误，故选B|B
综上所述，B正确。|B
Thus, (C) is the correct answer.|C
Therefore, the correct choice is (C).|C
Hence C.|C
=> C|C
So C|C
So, C.|C
C!|C
c|C
(c)|C
c)|C
The answer is c.|C
The correct option is: C|C
The correct answer is: (C) 42 meters|C
The answer is option (C).|C
The answer is choice C.|C
The best answer is C.|C
I would choose C.|C
I'd pick C|C
I'd say C.|C
I will go with option C.|C
I'm going with C.|C
I think it's C.|C
I think the answer is C.|C
My answer is C.|C
My final answer: C|C
**Final Answer: C**|C
**Answer**: C|C
### Answer\n\nC|C
Answer:\nC|C
Answer:C|C
ANSWER: C|C
answer c|C
Answer C|C
The correct letter is C.|C
C is correct.|C
C is right because A and B fail.|C
Option C is the best choice.|C
Option (C) is correct.|C
C) Paris is correct.|C
(C) seems best|C
A is wrong. B is wrong. D is wrong. So C.|C
Eliminating A and B, we are left with C.|C
This leaves C.|C
That leaves us with option C.|C
A. No.\nB. No.\nC. Yes.\n\nThe answer is C.|C
A) Too small\nB) Right\nC) Too big\n\nAnswer: B|B
(A) is wrong because...\n(B) is right.\n(C) is wrong.|B
Option A: incorrect.\nOption B: correct.\nOption C: incorrect.|B
A: incorrect\nB: correct\nC: incorrect|B
A - No\nB - Yes|B
I have no idea.|None
A dog is an animal.|None
I am not sure.|None
I think.|None
The answer is a mammal.|None
The answer is a.|A
The answer is A|A
The answer is I.|I
Vitamin C is important.|None
Vitamin C|None
Plan B is better.|None
The answer is vitamin C.|None
The answer is C++.|None
The answer is 5.|None
Class A|None
|None
None of the above.|None
The answer is B, which is Paris.|B
The answer is B – Paris|B
The answer is B - Paris|B
Answer: B (Paris)|B
Answer: (B) Paris|B
Answer: [B]|B
Answer: {B}|B
Answer: B\n\nA is incorrect because it is small. C is incorrect too.|B
The correct answer is B.\n\nA: wrong since x.\nC: wrong since y.|B
Correct Answer: B\nExplanation: (A) is not right|B
If we pick A, we fail. So the answer is B.|B
If x were 2, the answer would be C.|None
The answer could be B or C.|None
The answer might be B.|B
One might think the answer is A. However, the answer is B.|B
Some may say A, but B is correct.|B
You might think A is correct, but it's B.|B
The answer cannot be A. It must be B.|B
It can't be A, so it's B.|B
A common mistake is choosing A. The answer is B.|B
The wrong answers are A and C. The right answer is B.|B
The incorrect statement is B.|None
At first I thought it was A, but now I choose B.|B
Is the answer A? No. The answer is B.|B
Is it A? No, it's B.|B
My first guess was A. After checking, B.|None
The answer is D.\r\n\r\nBecause all hold.|D
Ａｎｓｗｅｒ：Ｂ|B
答案：（B）|B
答案是【B】|B
The answer is "B".|B
The answer is “B”.|B
The answer is **(B)**.|B
The answer is $B$.|B
The answer is $\text{B}$.|B
The answer is \text{B}|B
The answer is `B`|B
The answer is B/C|None
The answer is B & C|None
B and C|None
B, C|None
The answers are A and C.|None
The answer is B) and C)|None
The answer is B. C would also work.|B
Between B and C, the answer is C.|C
Among A, B and C, C is the correct one.|C
Therefore, the answer is:\n\n$$\boxed{D}$$|D
The correct answer is E: none of these.|E
Answer is D|D
Ans: D|D
Ans. D|D
Final answer is D|D
The final answer is (D).|D
Selection: D|D
Choice: D|D
Option: D|D
Option D|D
Option D.|D
D - Paris|D
D. |D
D.|D
 D |D
D\n|D
D\n\nBecause it is.|D
D because it is the largest.|D
D, because it is the largest.|D
A, because it is the largest.|A
A because it is the largest.|A
Let's think step by step. A is 1. B is 2. The largest is B.|B
The one that fits is B.|B
B it is.|B
The answer should be B.|B
The answer has to be B.|B
The answer is likely B.|B
The answer is probably B.|B
The answer is definitely B!|B
The answer is B?|B
The solution is B.|B
The result is B.|B
The correct response is B.|B
The right choice is B.|B
I select B.|B
I selected B.|B
Choose B.|B
Pick B|B
Select B.|B
Go with B.|B
The statement B is true.|B
Statement B is true.|B
B is true.|B
B is the only option that works.|B
Only B is correct.|B
Only option B works.|B
All but B are wrong.|None
Neither A nor B.|None
Answer: B and not C|B
Answer: B rather than C|B
Answer: B instead of C|B
The answer is (B): because x.|B
Answer: (B). The rest are wrong: A is too small, C is too big.|B
I think that B is the answer.|B
The right answer here is B!|B
B is my answer.|B
B would be correct.|B
My answer would be B.|B
Correct: B|B
Correct option: B|B
Correct choice is B|B
Final Answer: Option B|B
Final choice: (B)|B
The best option is B: it fits.|B
Answer choice B|B
Answer choice B is correct.|B
The answer is letter B.|B
The answer is the letter B.|B
Answer: B)|B
Answer: B.|B
ANSWER: (B)|B
answer:b|B
answer is b|B
Therefore the answer is option B|B
Hence, option B.|B
Hence option (B) is right.|B
So, the correct answer is **B) Paris**|B
So the correct answer is: **(B)**.|B
**The correct answer is B.**|B
The correct answer is B because A, C and D are wrong.|B
The correct answer is B, since A and C are too small.|B
The correct answer is B. A and C are too small, D is too big.|B
We can rule out A and C. That leaves B and D. D is too big, so B.|B
A, C, and D are incorrect, so the answer is B.|B
A and C are wrong. The answer is B.|B
Not A, not C, so B.|B
It is B.|B
It's (B).|B
It must be B.|B
It has to be B.|B
This is B.|B
I say B.|B
I'd say it's B.|B
I'm confident it's B.|B
I am sure the answer is B.|B
I pick B.|B
I chose B.|B
Going with B.|B
Let me go with B.|B
My final answer is B|B
My pick: B|B
My guess is B.|B
B?|B
B!|B
"B"|B
'B'|B
`B`|B
**B**.|B
_B_|B
(B)|B
[B]|B
<B>|B
B,|B
B;|B
B -|B
B\n\nA: wrong|B
B\nBecause C is wrong.|B
B) because A is wrong|B
B. A is wrong.|B
B (not A)|B
B, not A|B
B not A|B
B rather than A|B
B and not A|B
A or B|None
A/B|None
A & B|None
A, B|None
A,B|None
A and B|None
AB|None
A B|None
The answer is A or possibly B.|None
The answer is A, B, or C.|None
The answer is both A and C.|None
The answer is A/C.|None
Probably A, maybe B.|None
Could be A. Could be B.|None
A? B?|None
None|None
N/A|None
Unknown.|None
I cannot answer.|None
I don't know the answer.|None
There is no correct answer.|None
None of these.|None
The options are A, B, C and D.|None
Option A says x, option B says y.|None
Let's consider A.|None
Let's consider option A first.|None
A is a vowel.|None
An apple a day.|None
A.|A
A)|A
Answer: A|A
Answer: A.|A
Answer: A) Paris|A
Answer: A. Paris|A
Answer: A - Paris|A
Answer: A because x|A
Answer: a|A
The answer is A.|A
The answer is A, because x.|A
The answer is A, a big city.|A
The answer is A) a big city.|A
The answer is a big city.|None
I|I
Answer: I|I
The answer is I because it fits.|I
The answer is I think B.|B
I guess B|B
选项B|B
选择B|B
我选B|B
我选择B。|B
我认为是B|B
我认为答案是B|B
应该是B|B
应该选B|B
答案应该是B|B
答案应选B|B
答案选B|B
正确选项是B|B
正确选项为：B|B
本题答案：B|B
所以选B|B
因此，答案为B。|B
答案：B。解析：A错误。|B
答案：B\n解析：A选项错误，C选项正确吗？不。|B
B是正确答案|B
B选项正确|B
B项正确，A项错误|B
A项错误，B项正确|B
A错，B对|B
A不对，B对。|B
答案不是A，是B|B
答案是A还是B？答案是B。|B
答案是A吗？不，是B|B
选A或B|None
选A和C|None
答案是AC|None
答えはBだ。|B
正解：B|B
正答はBです。|B
정답은 B다.|B
답: B|B
정답은 B번입니다.|B
Richtige Antwort: B|B
Antwort B|B
Antwort B ist richtig.|B
Réponse B|B
Réponse : B|B
La réponse est (B)|B
C'est B.|B
Respuesta: B|B
La respuesta correcta es B.|B
Opción B|B
Es la B.|B
Ответ B|B
Ответ: (B)|B
Верный ответ B.|B
Правильный вариант: B|B
La risposta è B.|B
A resposta é B.|B
{"answer": "B", "reason": "A is wrong"}|B
{"choice": "B"}|B
{"option": "B. Paris"}|B
{"answer": "(B)"}|B
{"answer": "A or B"}|None
{"final_answer": "b"}|B
{"thought": "answer: A", "answer": "B"}|B
<answer>B.</answer>|B
<answer>Option B</answer>|B
<answer>B) Paris</answer>|B
<answer>A</answer><answer>B</answer>|B
<answer>A or B</answer>|None
<think>A</think><answer>B</answer>|B
\boxed{B}|B
\boxed{\text{B}}|B
\boxed{\text{(B)}}|B
\boxed{\mathbf{B}}|B
$\boxed{B}$.|B
\boxed{B) 5}|B
\boxed{A \text{ or } B}|None
\boxed{A}, \boxed{B}|None
\boxed{5}\n\nSo the answer is B.|B
#### B|B
The answer is A. But wait, C fits better. So the answer is C.|C
The answer is A. On second thought, it's C.|C
The answer is A. Correction: C.|C
I initially thought A, but the answer is C.|C
At first glance A seems right, but C is correct.|C
A seems right, but it's actually C.|C
A looks plausible; however, C is the best answer.|C
Although A is tempting, C is correct.|C
While A is true, the best answer is C.|C
A is true but C is the answer.|C
If the question asked for x, the answer would be A. But it asks for y, so the answer is C.|C
The answer is C. If it asked for x, the answer would be A.|C
The answer is C. Note that A is a common mistake.|C
The answer is C. Option A would be correct if x.|C
The answer is C. (A) is wrong. (B) is wrong.|C
The answer is not (A). The answer is (C).|C
The answer is not A or B.|None
A is not the answer.|None
A is incorrect.|None
The incorrect answer is A.|None
A is wrong; B is wrong; C is right.|C
The correct answer isn't A, it's C.|C
The answer could be A. It could also be B.|None
I don't think it's B.|None
I would not choose B.|None
Don't choose B.|None
Is the answer B?|None
It is unlikely that the answer is B.|None
B is the worst answer.|None
B is the best wrong answer.|None
B is correct only if the sign is flipped, which it is not.|None
The answer is anything but B.|None
{"answer": ["A", "B"]}|None
(A) Paris (B) London|None
A: maybe. C: maybe.|None
A as well as C.|None
A is wrong because it is too small. B is correct.|B
A. Incorrect. B. Incorrect. C. Correct. D. Incorrect.|C
A ✗\nB ✗\nC ✓|C
A. Hmm, actually C.|C
Not A. Not C. B.|B
Selected option: B|B
Definitely B.|B
B (Paris)|B
Only option C is consistent with the data.|C
La respuesta no es B.|None
La respuesta no es A, sino B.|B
B ist nicht richtig.|None
Ответ C неверный.|None
不选B|None
答案不是B|None
正确答案是B，不是A。|B
选A还是选C？|None
我不认为是C|None
【答案】B|B
答えはBではありません。|None
答えはAかBです。|None
答えはAではなくBです。|B
よって、Bが正解です。|B
정답은 A가 아니라 B입니다.|B
답은 A 또는 B입니다.|None
B가 정답입니다.|B
""".strip("\n").splitlines()
"""answer|letter; \\n and \\r are line ends."""


def test_a1_a5_a7_statements() -> None:
    rows = [line.rpartition("|")[::2] for line in A5_STATED]
    wrong = []
    for answer, letter in rows:
        text = answer.replace(r"\n", "\n").replace(r"\r", "\r")
        found = result_of(MultipleChoiceLetterReward(), sample_of(text, "A")).extra_data.get("letter")
        wrong += [(answer, letter, found)] if str(found) != letter else []
    assert wrong == []


def test_a5_labelled_cases() -> None:
    rows = labelled_cases("choice_letters")
    reward = MultipleChoiceLetterReward()
    assert [row for row in rows if score_of(reward, row["answer"], row["reference"]) != row["expected"]] == []
