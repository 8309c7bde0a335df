"""Math: generated problems with worked steps; a wrong answer follows the same way with one
realistic slip.
"""

from __future__ import annotations

from data.builders import balance, math_algebra, math_amounts, math_arithmetic, math_zh
from data.builders.common import Candidate, Draft, Draw, Style
from data.builders.layout import render
from data.builders.math_core import Problem

ROWS_EN, ROWS_ZH = 58, 4

_OPENERS = (
    "Let me work through this step by step.",
    "I start with what is given.",
    "We can solve this in a few short steps.",
    "First sort out what we know and what is asked.",
    "Here is the calculation.",
    "This looks harder than it is, so let us go slowly and write down every step.",
)
_REMARKS = (
    "The size of this number is plausible.",
    "It is worth checking each line once more before going on.",
    "With these values the rest is short.",
    "Nothing else has to be taken into account here.",
    "From here only one thing is left to do.",
)
_OPENERS_ZH = (
    "我们一步一步来算。",
    "先看题目给了什么条件。",
    "解题过程如下。",
    "这道题可以分几步来做，不用着急。",
)
_REMARKS_ZH = ("这样剩下的就简单了。", "每一步都可以再检查一遍。", "其他条件在这里用不到。")


def _forms(problem: Problem, steps: list[str], markdown: bool, draw: Draw) -> tuple[str, ...]:
    """Print the steps bare, with an opening, with a remark before the last step, and with both."""
    opener = draw.pick(_OPENERS_ZH if problem.chinese else _OPENERS)
    remark = draw.pick(_REMARKS_ZH if problem.chinese else _REMARKS)
    with_remark = [*steps[:-1], remark, steps[-1]]
    return tuple(
        render(sentences, markdown, draw)
        for sentences in (steps, [opener, *steps], with_remark, [opener, *with_remark])
    )


def _wrong(problem: Problem, right: str, draw: Draw) -> list[tuple[str, list[str]]]:
    """Return three slips with different wrong results, or fewer when the numbers do not allow
    three.
    """
    found: dict[str, tuple[str, list[str]]] = {}
    for slip in draw.shuffled(problem.slips):
        steps, answer = problem.work(slip, draw)
        if answer not in (right, *found) and not (answer.startswith("-") and slip != "signs"):
            found[answer] = (slip, steps)
    return list(found.values())[:3]


def _draft(kind: str, problem: Problem, style: Style, draw: Draw) -> Draft | None:
    steps, answer = problem.work("", draw)
    wrong = _wrong(problem, answer, draw)
    if len(wrong) < 3:
        return None
    right = Candidate("worked", _forms(problem, steps, style[0], draw))
    rejected = tuple(
        Candidate(f"slip:{slip}", _forms(problem, made, markdown, draw))
        for (slip, made), markdown in zip(wrong, style[1:], strict=True)
    )
    return Draft(
        problem.prompt, (right,), rejected, kind, "word problem", "one slip", correct=answer
    )


def drafts() -> dict[str, list[Draft]]:
    """Return the drafts of both splits; no problem text is used twice."""
    result: dict[str, list[Draft]] = {}
    seen: set[str] = set()
    for split in ("train", "test"):
        draw = Draw("math", split)
        plan = balance.styles(ROWS_EN + ROWS_ZH, draw)
        made: list[Draft] = []
        while len(made) < len(plan):
            chinese = len(made) >= ROWS_EN
            pool = (
                math_zh.ALL
                if chinese
                else math_arithmetic.ALL + math_amounts.ALL + math_algebra.ALL
            )
            generate = pool[len(made) % len(pool)]
            problem = generate(draw)
            draft = _draft(generate.__name__, problem, plan[len(made)], draw)
            if draft is not None and draft.prompt not in seen:
                seen.add(draft.prompt)
                made.append(draft)
        result[split] = draw.shuffled(made)
    return result
