"""Focus: the chosen answer is about the question; the rejected ones answer a neighbouring question
or drift away.
"""

from __future__ import annotations

from dataclasses import dataclass

from data.builders import balance, sources
from data.builders.common import Candidate, Draft, Draw, Style, halves, is_chinese
from data.builders.layout import lengths


@dataclass(frozen=True)
class Topic:
    """A topic with true asides and question-answer pairs; no answer fits another question of the
    topic.
    """

    name: str
    asides: tuple[str, ...]
    answers: dict[str, list[str]]


def _topic(block: sources.Block) -> Topic:
    answers: dict[str, list[str]] = {}
    question = ""
    for line in block.lines:
        if line.startswith("? "):
            question = line[2:]
            answers[question] = []
        elif not line.startswith("* "):
            answers[question].append(line)
    return Topic(block.name, tuple(block.tagged("* ")), answers)


class _Writer:
    """Writes the drafts of one split."""

    def __init__(self, topics: list[Topic], draw: Draw) -> None:
        self.topics = topics
        self.draw = draw
        self.frames = sources.phrases()

    def prompt(self, question: str) -> str:
        """Return the question, at times with a sentence of context before or after it."""
        if is_chinese(question) or self.draw.chance(0.4):
            return question
        if self.draw.chance(0.5):
            return f"{self.draw.pick(self.frames['focus_before'])} {question}"
        return f"{question} {self.draw.pick(self.frames['focus_after'])}"

    def echo(self, topic: Topic, question: str) -> str:
        """Return an opening that repeats the question or the topic without answering anything."""
        section = "focus_restate" if self.draw.chance(0.6) else "focus_echo"
        if is_chinese(question):
            section = "focus_restate_zh"
        return self.draw.pick(self.frames[section]).format(topic=topic.name, question=question)

    def right(self, topic: Topic, question: str, markdown: bool) -> Candidate:
        """Answer the question, sometimes after an opening of the kind that wrong answers have too."""
        sentences = topic.answers[question]
        if self.draw.chance(0.35):
            return Candidate(
                "on-topic",
                lengths([self.echo(topic, question), *sentences], 2, markdown, self.draw),
            )
        return Candidate("on-topic", lengths(sentences, 1, markdown, self.draw))

    def wrong(
        self, kind: str, topic: Topic, question: str, other: str, markdown: bool
    ) -> Candidate:
        """Answer another question in the way named by kind."""
        draw = self.draw
        if kind == "other-topic":
            topic = draw.pick(
                [each for each in self.topics if each is not topic and not is_chinese(each.name)]
            )
            sentences = topic.answers[draw.pick(list(topic.answers))]
            return Candidate(kind, lengths(sentences, 1, markdown, draw))
        neighbour = topic.answers[other]
        if kind == "neighbour":
            return Candidate(kind, lengths(neighbour, 1, markdown, draw))
        if kind == "echo":
            return Candidate(
                kind, lengths([self.echo(topic, question), *neighbour], 2, markdown, draw)
            )
        opening = [draw.pick(topic.asides)]
        if not is_chinese(question) and draw.chance(0.5):
            opening.append(draw.pick(self.frames["focus_segue"]))
        return Candidate(kind, lengths(opening + neighbour, len(opening) + 1, markdown, draw))

    def draft(self, topic: Topic, question: str, style: Style) -> Draft:
        """Return the draft of one question."""
        kinds = ["neighbour", "echo", "aside", "other-topic"]
        if is_chinese(question):
            kinds = ["neighbour", "echo", "aside"]
        others = self.draw.shuffled([each for each in topic.answers if each != question])
        wrong = [
            self.wrong(kind, topic, question, other, markdown)
            for kind, other, markdown in zip(
                self.draw.sample(kinds, 3), others, style[1:], strict=True
            )
        ]
        right = self.right(topic, question, style[0])
        return Draft(
            self.prompt(question), (right,), tuple(wrong), topic.name, "drift", "other question"
        )


def drafts() -> dict[str, list[Draft]]:
    """Return the drafts of both splits; a topic belongs to one split only."""
    topics = [_topic(block) for block in sources.blocks("focus.txt")]
    english = halves([topic for topic in topics if not is_chinese(topic.name)], Draw("focus", "en"))
    chinese = halves([topic for topic in topics if is_chinese(topic.name)], Draw("focus", "zh"))
    result: dict[str, list[Draft]] = {}
    for split in ("train", "test"):
        draw = Draw("focus", split)
        mine = english[split] + chinese[split]
        writer = _Writer(mine, draw)
        questions = draw.shuffled(
            [(topic, question) for topic in mine for question in topic.answers]
        )
        plan = balance.styles(len(questions), draw)
        result[split] = [
            writer.draft(topic, question, style)
            for (topic, question), style in zip(questions, plan, strict=True)
        ]
    return result
