"""Constraint recipes in Chinese and the tasks that ask for an answer in a given language."""

from __future__ import annotations

from data.builders.common import Draw
from data.builders.precise_core import Recipe, Subject, Task
from data.builders.sources import Block

_NAMES = {"en": "English", "fr": "French", "de": "German", "es": "Spanish"}
_NUMBERS = {3: "三", 4: "四", 5: "五"}


def answer_in(block: Block, language: str, draw: Draw) -> Task:
    """Return a task that asks for one language; wrong proposals are in others or change the
    language on the way.
    """
    texts = {name: block.tagged(f"{name}:") for name in _NAMES}
    wish = draw.pick(
        (
            f"Say something about {block.name}, in {_NAMES[language]} only.",
            f"Write a few sentences on {block.name}. Answer in {_NAMES[language]}.",
            f"The subject is {block.name}. Every sentence of your reply must be in "
            f"{_NAMES[language]}.",
        )
    )

    def propose(say: Draw) -> str:
        count = say.between(1, 3)
        made = (
            texts[language][:count] if say.chance(0.5) else texts[say.pick(sorted(texts))][:count]
        )
        if say.chance(0.4):
            place = say.below(count)
            made = [*made[:place], texts[say.pick(sorted(texts))][place], *made[place + 1 :]]
        return " ".join(made)

    return Task(wish, (f"language:{language}",), propose)


def zh_characters(subject: Subject, draw: Draw) -> Task:
    """A limit on Chinese characters with a word that must not occur."""
    count = draw.between(32, 40)
    prompt = f"请写一段关于{subject.name}的话，不超过{count}个汉字，而且不要用“了”字。"
    return Task(
        prompt,
        (f"zh-chars<=:{count}", "without:了"),
        lambda say: "".join(subject.compose(say, 1, 4)),
    )


def zh_sentences(subject: Subject, draw: Draw) -> Task:
    """An exact number of sentences."""
    count = draw.between(3, 4)
    prompt = f"用正好{_NUMBERS[count]}句话描写{subject.name}，每句话用句号结尾。"
    return Task(
        prompt,
        (f"sentences:{count}",),
        lambda say: "".join(subject.compose(say, max(2, count - 2), count + 2)),
    )


def zh_bullets(subject: Subject, draw: Draw) -> Task:
    """An exact number of points."""
    count = draw.between(3, 4)
    prompt = (
        f"请分{_NUMBERS[count]}点介绍{subject.name}，每一点单独一行，用“- ”开头，不要写别的内容。"
    )

    def propose(say: Draw) -> str:
        mark = say.pick(("- ", "- ", "- ", "* "))
        return "\n".join(f"{mark}{each}" for each in subject.compose(say, count - 1, count + 1))

    return Task(prompt, (f"bullets:{count}",), propose)


def zh_opening(subject: Subject, draw: Draw) -> Task:
    """A given beginning and ending."""
    opening, closing = draw.pick(("你知道吗？", "听我说。")), draw.pick(("就是这样。", "真好。"))
    prompt = f"写几句话介绍{subject.name}，必须以“{opening}”开头，以“{closing}”结尾。"

    def propose(say: Draw) -> str:
        made = "".join(subject.compose(say, 2, 4))
        whole = f"{opening}{made}{closing}"
        return (
            whole
            if say.chance(0.4)
            else say.pick((f"{opening}{made}", f"{made}{closing}", f"{closing}{made}{opening}"))
        )

    return Task(prompt, (f"starts:{opening}", f"ends:{closing}"), propose)


CHINESE: tuple[Recipe, ...] = (zh_characters, zh_sentences, zh_bullets, zh_opening)
