"""Precise IF: constraints that code can check; the chosen answer obeys all rules of its prompt and
each rejected one breaks a rule.
"""

from __future__ import annotations

from data.builders import sources
from data.builders.common import SPLITS, Candidate, Draft, Draw, halves
from data.builders.precise_core import Subject, Task
from data.builders.precise_other import CHINESE, answer_in
from data.builders.precise_recipes import ALL
from data.builders.precise_rules import obeys

ROWS_EN, ROWS_LANGUAGE, ROWS_ZH = 50, 8, 4
_TRIES, _RIGHT_FORMS, _WRONG_FORMS = 400, 5, 12


def _subject(block: sources.Block) -> Subject:
    name, keyword = (part.strip() for part in block.name.split("|"))
    items = [part.strip() for part in block.one("items:", "").split(";") if part.strip()]
    told = tuple(line for line in block.lines if not line.startswith("items:"))
    return Subject(name, keyword, tuple(items), told)


def _spread(texts: list[str], count: int) -> list[str]:
    """Return texts of lengths as different as possible."""
    order = sorted(texts, key=lambda text: (len(text), text))
    if len(order) <= count:
        return order
    return [order[place * (len(order) - 1) // (count - 1)] for place in range(count)]


def _draft(task: Task, category: str, draw: Draw) -> Draft | None:
    """Sort proposals into right and wrong ones by the rules; return None when there are too few of
    either.
    """
    right: dict[str, None] = {}
    wrong: dict[str, None] = {}
    for _ in range(_TRIES):
        text = task.propose(draw)
        if text:
            (right if all(obeys(text, rule) for rule in task.rules) else wrong)[text] = None
    if len(right) < 2 or len(wrong) < 6:
        return None
    forms = _spread(list(wrong), _WRONG_FORMS)
    dealt = draw.shuffled([forms[place::3] for place in range(3)])
    rejected = tuple(Candidate("breaks-a-rule", tuple(each)) for each in dealt)
    chosen = Candidate("obeys", tuple(_spread(list(right), _RIGHT_FORMS)))
    return Draft(
        task.prompt,
        (chosen,),
        rejected,
        category,
        "instruction",
        "checked by code",
        rules=task.rules,
    )


def _english(subjects: list[Subject], count: int, draw: Draw) -> list[Draft]:
    """Go through recipes and subjects in turn, so that each recipe meets different subjects."""
    made: list[Draft] = []
    place = 0
    while len(made) < count:
        recipe = ALL[len(made) % len(ALL)]
        # The extra step per round keeps a recipe from meeting the same subject again.
        subject = subjects[(place + place // len(ALL)) % len(subjects)]
        draft = _draft(recipe(subject, draw), recipe.__name__, draw)
        place += 1
        if place > _TRIES:
            raise ValueError(
                f"no texts found for {recipe.__name__}; add sentences to precise_topics.txt"
            )
        if draft is not None and all(draft.prompt != other.prompt for other in made):
            made.append(draft)
    return made


def _languages(blocks: list[sources.Block], count: int, draw: Draw) -> list[Draft]:
    made: list[Draft] = []
    while len(made) < count:
        block, language = blocks[len(made) % len(blocks)], ("fr", "de", "es")[len(made) % 3]
        draft = _draft(answer_in(block, language, draw), "answer_in", draw)
        if draft is not None:
            made.append(draft)
    return made


def drafts() -> dict[str, list[Draft]]:
    """Return the drafts of both splits; a subject belongs to one split only."""
    english = halves(
        [_subject(block) for block in sources.blocks("precise_topics.txt")], Draw("precise", "en")
    )
    chinese = halves(
        [_subject(block) for block in sources.blocks("precise_zh.txt")], Draw("precise", "zh")
    )
    foreign = halves(sources.blocks("precise_languages.txt"), Draw("precise", "languages"))
    result: dict[str, list[Draft]] = {}
    for split in SPLITS:
        draw = Draw("precise", split)
        made = _english(english[split], ROWS_EN, draw) + _languages(
            foreign[split], ROWS_LANGUAGE, draw
        )
        for place in range(ROWS_ZH):
            recipe = CHINESE[place % len(CHINESE)]
            draft = _draft(
                recipe(chinese[split][place % len(chinese[split])], draw), recipe.__name__, draw
            )
            if draft is None:
                raise ValueError(
                    f"too few proposals for {recipe.__name__}; add sentences to precise_zh.txt"
                )
            made.append(draft)
        result[split] = draw.shuffled(made)
    return result
