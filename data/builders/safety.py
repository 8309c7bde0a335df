"""Safety: harmful requests, where a refusal with an offer is right, and harmless ones with an
alarming word, where an answer is right.

Wrong answers to harmful requests only sound willing: they hold general phrases and no information
at all. Wrong answers to harmless requests refuse, lecture, suspect or say nothing.
"""

from __future__ import annotations

from data.builders import balance, sources
from data.builders.common import Candidate, Draft, Draw, Style, halves, sentence_case
from data.builders.layout import lengths

_ONLY_ONE_SPLIT = {"train": (0, 1), "test": (2, 3)}


class _Writer:
    """Writes the drafts of one split with the sentence frames that this split may use."""

    def __init__(self, split: str, draw: Draw) -> None:
        self.draw = draw
        self.frames = {name: _share(frames, split) for name, frames in sources.phrases().items()}

    def say(self, section: str, **values: str) -> str:
        """Fill a random frame of a section."""
        return sentence_case(self.draw.pick(self.frames[section]).format(**values))

    def several(self, section: str, count: int) -> list[str]:
        """Return different frames of a section that need no values."""
        return self.draw.sample(self.frames[section], count)

    def willing(self, noun: str, style: tuple[bool, ...]) -> list[Candidate]:
        """Return three wrong answers to a harmful request: eager, hedged and evasive."""
        eager = [
            self.say("comply_open", noun=noun),
            *self.several("comply_body", 3),
            *self.several("comply_close", 1),
        ]
        hedged = [self.say("hedge_open", noun=noun), *self.several("comply_body", 3)]
        evasive = [self.say("evade_open", noun=noun), *self.several("evade_body", 4)]
        made = zip(("eager", "hedged", "evasive"), (eager, hedged, evasive), style, strict=True)
        return [
            Candidate(kind, lengths(sentences, 2, markdown, self.draw))
            for kind, sentences, markdown in made
        ]

    def unhelpful(self, scare: str, style: tuple[bool, ...]) -> list[Candidate]:
        """Return three wrong answers to a harmless request."""
        made = []
        kinds = (
            ("refusal", "over_refuse"),
            ("lecture", "lecture_open"),
            ("suspicion", "suspect_open"),
            ("empty", ""),
        )
        for (kind, section), markdown in zip(self.draw.sample(kinds, 3), style, strict=True):
            if section:
                sentences = [self.say(section, scare=scare), *self.several("over_body", 4)]
            else:
                sentences = [self.say("empty_open"), *self.several("empty_body", 4)]
            made.append(Candidate(kind, lengths(sentences, 2, markdown, self.draw)))
        return made

    def harmful(self, line: str, style: Style) -> Draft:
        """Return the draft of a harmful request from its source line."""
        action, noun, why, help_ = (part.strip() for part in line.split("|"))
        sentences = [
            self.say("refuse", noun=noun, why=why),
            self.say("offer", help=help_),
            *self.several("care", 2),
        ]
        right = Candidate("refusal-with-offer", lengths(sentences, 2, style[0], self.draw))
        prompt = self.say("harmful_prompt", action=action)
        return Draft(
            prompt,
            (right,),
            tuple(self.willing(noun, style[1:])),
            "harmful",
            noun,
            "refusal is right",
        )

    def benign(self, block: sources.Block, style: Style) -> Draft:
        """Return the draft of a harmless question from its source block."""
        answer = [line for line in block.lines if not line.startswith("! ")]
        right = Candidate("answer", lengths(answer, 2, style[0], self.draw))
        scare = block.one("! ")
        return Draft(
            block.name,
            (right,),
            tuple(self.unhelpful(scare, style[1:])),
            "benign",
            scare,
            "answer is right",
        )

    def chinese(self, block: sources.Block, style: Style) -> Draft:
        """Return the draft of a Chinese request, whose answers are all written out."""
        right, *_ = (line.split("|") for line in block.tagged("+ "))
        wrong = [line.split("|") for line in block.tagged("- ")]
        category = block.one("= ")
        return Draft(
            block.name,
            (
                Candidate(
                    "answer" if category == "benign" else "refusal-with-offer",
                    self.shown(right, style[0]),
                ),
            ),
            tuple(
                Candidate("written", self.shown(each, mark))
                for each, mark in zip(wrong, style[1:], strict=True)
            ),
            category,
            "zh",
            "answer is right" if category == "benign" else "refusal is right",
        )

    def shown(self, sentences: list[str], markdown: bool) -> tuple[str, ...]:
        """Print the sentences in lengths from two sentences on."""
        return lengths(sentences, 2, markdown, self.draw)


def _share(frames: list[str], split: str) -> list[str]:
    """Keep the frames of a split: two in five belong to each split alone, so that frames learnt by
    heart help little.
    """
    other = _ONLY_ONE_SPLIT["test" if split == "train" else "train"]
    return [frame for place, frame in enumerate(frames) if place % 5 not in other]


def drafts() -> dict[str, list[Draft]]:
    """Return the drafts of both splits; a request belongs to one split only."""
    harmful = halves(sources.lines("safety_harmful.txt"), Draw("safety", "harmful"))
    benign = halves(sources.blocks("safety_benign.txt", mark="? "), Draw("safety", "benign"))
    chinese = sources.blocks("safety_zh.txt", mark="? ")
    zh = {"train": chinese[0::2], "test": chinese[1::2]}
    result: dict[str, list[Draft]] = {}
    for split in ("train", "test"):
        draw = Draw("safety", split)
        writer = _Writer(split, draw)
        plan = iter(balance.styles(len(harmful[split]) + len(benign[split]) + len(zh[split]), draw))
        made = [writer.harmful(line, next(plan)) for line in harmful[split]]
        made += [writer.benign(block, next(plan)) for block in benign[split]]
        made += [writer.chinese(block, next(plan)) for block in zh[split]]
        result[split] = draw.shuffled(made)
    return result
