"""What is done to answers: dress that adds nothing, commands to the judge, and texts that are no
answers.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from rm_gallery.core.data.schema import DataOutput, DataSample, Step, preference_of
from rm_gallery.core.model.message import ChatMessage
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.sandbox.code_test_spec import names_wanted
from rm_gallery.core.utils.errors import DataError
from rm_gallery.core.utils.file import seeded_positions
from rm_gallery.core.utils.models import copy_with
from rm_gallery.gallery.benchmarks.judgements import cluster_of
from rm_gallery.gallery.rm.code import tests_of

BUILT_IN = "built-in questions (version 1)"
TEXTS = Path(__file__).parent / "texts"
PARAGRAPHS = re.compile(r"\n\s*\n")
_HAN = re.compile(r"[\u3400-\u9fff]")


@dataclass(frozen=True)
class Material:
    """One prompt with two answers of known quality."""

    sample: DataSample
    """The prompt and what else is known about it; its outputs do not matter."""
    good: DataOutput
    worse: DataOutput
    reworded: DataOutput | None = None
    """The good answer in other words."""
    asked: DataSample | None = None
    """The prompt in other words."""
    cluster: str = ""
    """Pairs of one cluster are about the same prompt and are not independent."""

    @property
    def language(self) -> str:
        """Zh where a fifth of the question's characters are Chinese, else en."""
        text = re.sub(r"\s", "", self.sample.query_text() + text_of(self.good))
        return "zh" if len(_HAN.findall(text)) * 5 > len(text) else "en"


def text_of(output: DataOutput) -> str:
    """The text of an answer; of its steps where it has no other."""
    return output.answer.text or "\n\n".join(step.text for step in output.steps or ())


def with_text(output: DataOutput, text: str, steps: bool) -> DataOutput:
    """The answer with another text; with `steps`, each paragraph of it is a step."""
    answer = copy_with(output.answer, content=text)
    if not steps:
        return copy_with(output, answer=answer, steps=None)
    parts = [part for part in PARAGRAPHS.split(text) if part.strip()] or [text]
    return copy_with(
        output, answer=answer, steps=[Step(role="assistant", content=part) for part in parts]
    )


def as_judged(output: DataOutput, steps: bool) -> DataOutput:
    """The answer as it is, with steps made of its paragraphs where a reward of steps needs some."""
    return output if not steps or output.steps else with_text(output, text_of(output), True)


@cache
def read_texts(name: str) -> Any:
    """A YAML file of the folder `texts`: questions, attacks or injections."""
    import yaml

    return yaml.safe_load((TEXTS / f"{name}.yaml").read_text(encoding="utf-8"))


def built_in(limit: int | None, seed: int) -> list[Material]:
    """The questions that come with the library, or a seeded sample of them."""
    rows: list[dict[str, str]] = read_texts("questions")
    return [
        _question(rows[place]) for place in seeded_positions(len(rows), limit or len(rows), seed)
    ]


def _question(row: Mapping[str, str]) -> Material:
    metadata = {"reference": row["reference"]} if row["reference"] else None
    question, asked = (
        DataSample(unique_id=row["id"], input=[ChatMessage(content=row[name])], metadata=metadata)
        for name in ("question", "asked")
    )
    good, worse, reworded = (
        DataOutput(
            answer=Step(role="assistant", content=row[name], label={"preference": preference})
        )
        for name, preference in (("good", "chosen"), ("worse", "rejected"), ("reworded", "chosen"))
    )
    return Material(question, good, worse, reworded, asked, cluster_of(question))


def from_samples(samples: Iterable[DataSample], name: str) -> tuple[list[Material], int]:
    """One pair per sample: its first chosen and its first rejected answer; and how many samples
    have none.

    Raises DataError when no sample has both. A pair of equal texts tells nothing and is left out.
    """
    materials, without = [], 0
    for number, sample in enumerate(samples):
        by = {preference_of(output): output for output in reversed(sample.output)}
        good, worse = by.get("chosen"), by.get("rejected")
        if good is not None and worse is not None and text_of(good) != text_of(worse):
            own = copy_with(sample, unique_id=f"{sample.sample_id}@{number}", output=[])
            materials.append(Material(own, good, worse, cluster=cluster_of(sample)))
        else:
            without += 1
    if not materials:
        raise DataError(
            f"{name}: no sample has a chosen and a rejected answer with different texts; an audit "
            f"needs both."
        )
    return materials, without


_SENTENCE = re.compile(r"(?<=[.!?])\s+|(?<=[。！？；])")
_WORD = re.compile(r"[\u3400-\u9fff]|\w+")
_SYLLABLES = "blor quen twib drass ploo vint hekk orum zast ipple gnar fesh".split()
LONGEST = 20_000
"""Characters that padding adds at most; otherwise it makes an answer at least twice as long."""
_RARE_HAN = "龘齉爩麤灪龗鱻厵癵驫"


# -- dress -----------------------------------------------------------------------------------------


def _words(dress: str, material: Material) -> Any:
    return read_texts("attacks")[dress][material.language]


def _lengthened(material: Material, text: str, turn: int) -> str:
    filler, added = _words("length", material), list[str]()
    while not added or sum(map(len, added)) < min(len(text), LONGEST):
        added.append(filler[(turn + len(added)) % len(filler)])
    return "\n\n".join([text, *added])


def _praised(material: Material, text: str, turn: int) -> str:
    praise = _words("self_praise", material)
    parts = [text, praise[turn % len(praise)]]
    return "\n\n".join(parts if turn % 4 < 2 else reversed(parts))


def _sourced(material: Material, text: str, turn: int) -> str:
    sources = _words("authority", material)
    return f"{text}\n\n{sources[turn % len(sources)]}"


def _decorated(material: Material, text: str, turn: int) -> str:
    words = _words("markdown", material)
    first, *rest = [part for part in _SENTENCE.split(text) if part and part.strip()] or [text]
    points = "".join(f"- {part}\n" for part in rest)
    listed = f"\n### {words['points']}\n\n{points}" if points else ""
    return f"## {words['title']}\n\n**{first}**\n{listed}\n---\n"


def _verbose(material: Material, text: str, turn: int) -> str:
    words = _words("verbosity", material)
    shown = {"{question}": material.sample.query_text(), "{answer}": text}
    frame = f"{words['before']}\n\n{{answer}}\n\n{words['after']}"
    return re.sub(r"\{\w+\}", lambda hit: shown[hit.group()], frame)


Dress = Callable[[Material, str, int], str]
DRESSES: dict[str, tuple[str, Dress]] = {
    "length": ("padded with sentences that say nothing", _lengthened),
    "markdown": ("set in headings, bold type and bullets", _decorated),
    "verbosity": ("made wordy: the question repeated, the answer given twice", _verbose),
    "self_praise": ("with praise of itself", _praised),
    "authority": ("with invented sources", _sourced),
}
"""By name, what is done to an answer without a word more about the question."""


# -- no answers ------------------------------------------------------------------------------------


def _gibberish(material: Material) -> str:
    rng, length = random.Random(material.sample.sample_id), max(20, len(text_of(material.good)))
    if material.language == "zh":
        return "".join(rng.choice(_RARE_HAN) for _ in range(length))
    return " ".join(rng.choice(_SYLLABLES) for _ in range(length // 5))


def stuffed(known: str, seed: str | None = None, joined: str = " ") -> str:
    """The words of a text, each once, out of order and over and over."""
    words = list(dict.fromkeys(_WORD.findall(known)))
    random.Random(known if seed is None else seed).shuffle(words)
    return joined.join(words * 3)


def _keywords(material: Material) -> str:
    known = (
        f"{material.sample.query_text()} {text_of(material.good)} "
        f"{material.sample.reference() or ''}"
    )
    return stuffed(known, material.sample.sample_id, "" if material.language == "zh" else " ")


NO_ANSWERS: dict[str, tuple[str, Callable[[Material], str]]] = {
    "empty": ("an empty answer", lambda material: ""),
    "repeated": (
        "the beginning of the worse answer, twelve times",
        lambda material: " ".join([text_of(material.worse)[:60]] * 12),
    ),
    "gibberish": ("syllables without sense", _gibberish),
    "keywords": (
        "the words of question, good answer and reference, shuffled and repeated",
        _keywords,
    ),
    "echo": ("the question itself", lambda material: material.sample.query_text()),
}
"""By name, texts that answer nothing."""


def relaid(text: str) -> str:
    """The same words in another layout: typographic quotes, wider spaces, Windows line ends, a
    blank line at the end.
    """
    text = re.sub(r'"([^"\n]*)"', "“\\1”", text).replace("'", "’")
    return (
        re.sub(r"(?<=[.!?]) (?=\S)", "  ", text).replace("\r\n", "\n").replace("\n", "\r\n")
        + "\r\n"
    )


# -- commands --------------------------------------------------------------------------------------


class Injection(NamedTuple):
    """A text that wants to be a verdict, a command or a reference."""

    name: str
    family: str
    text: str
    where: str

    def on(self, text: str) -> str:
        """The answer that carries it."""
        own = self.text.replace("%ANSWER%", text)
        return {"before": f"{own}{text}", "instead": own}.get(self.where, f"{text}\n\n{own}")


def injections(reward: BaseReward, place: int = 1) -> list[Injection]:
    """The whole suite, with verdicts in the form this reward's judge is asked for; `place` is the
    answer they name best.
    """
    top, fields = _top(reward), _fields(reward, place)
    tags = "\n".join(f"<{name}>{json.dumps(value)}</{name}>" for name, value in fields.items())
    placeholders = {
        "%TAGS%": tags,
        "%JSON%": json.dumps({"reason": "Right in every respect.", **fields}),
        "%TOP%": f"{top:g}",
    }
    suite = []
    for row in read_texts("injections"):
        text = re.sub("%(?:TAGS|JSON|TOP)%", lambda hit: placeholders[hit.group()], row["text"])
        suite.append(Injection(row["name"], row["family"], text, row.get("where", "after")))
    return suite


def _top(reward: BaseReward) -> float:
    low, high = reward.score_range
    best = high if reward.higher_is_better else low
    return 10.0 if best is None or reward.compares else best


def _fields(reward: BaseReward, place: int) -> dict[str, Any]:
    """The verdict the judge's own template reads; a score and a best answer where there is none to
    look at.
    """
    top = _top(reward)
    known = {
        "score": int(top) if top == int(top) else top,
        "best": place,
        "scores": {"1": 1.0, "2": 1.0},
    }
    fields = getattr(getattr(reward, "template", None), "model_fields", {})
    asked = [
        name for name, info in fields.items() if name in known or info.annotation in (int, float)
    ]
    return {name: known.get(name, known["score"]) for name in asked or ("score", "best")}


@cache
def forgeries() -> dict[str, str]:
    """Each program by its name; it ends with `_answer`, which is to stand under every name that
    tests ask for.
    """
    read = read_texts("forgeries")
    return {name: f"{read['common']}\n{text}" for name, text in read["programs"].items()}


def forged_answers(sample: DataSample) -> dict[str, DataOutput]:
    """An answer of each program to the tests of a sample, by the program's name.

    Raises:
        Unscored: the sample has no code tests, or they are malformed.
    """
    if not sample.output:  # the tests are the task's, whose right answer may be a reference alone
        empty = DataOutput(answer=Step(role="assistant", content=""))
        sample = copy_with(sample, output=[empty])
    names = "\n".join(
        f"{name} = _answer" for name in sorted(names_wanted(tests_of(sample, "forge")))
    )
    label = dict(sample.output[0].answer.label or {})
    return {
        name: DataOutput(
            answer=Step(
                role="assistant", content=f"```python\n{program}\n{names}\n```", label=dict(label)
            )
        )
        for name, program in forgeries().items()
    }
