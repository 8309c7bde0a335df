"""What an audit asks about: prompts with a good and a worse answer, built in or out of anybody's data."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

from rm_gallery.core.data.schema import DataOutput, DataSample, Step, preference_of
from rm_gallery.core.model.message import ChatMessage
from rm_gallery.core.utils.errors import DataError
from rm_gallery.core.utils.file import seeded_positions
from rm_gallery.core.utils.models import copy_with

BUILT_IN = "built-in questions (version 1)"
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
    return copy_with(output, answer=answer, steps=[Step(role="assistant", content=part) for part in parts])


def as_judged(output: DataOutput, steps: bool) -> DataOutput:
    """The answer as it is, with steps made of its paragraphs where a reward of steps needs some."""
    return output if not steps or output.steps else with_text(output, text_of(output), True)


@lru_cache(maxsize=1)
def _built_in() -> list[dict[str, str]]:
    return read_yaml("questions.yaml")  # type: ignore[no-any-return]


def read_yaml(name: str) -> Any:
    """A file of this folder."""
    import yaml

    return yaml.safe_load((files(__package__) / name).read_text(encoding="utf-8"))


def built_in(limit: int | None, seed: int) -> list[Material]:
    """The questions that come with the library, or a seeded sample of them."""
    rows = _built_in()
    return [_question(rows[place]) for place in seeded_positions(len(rows), limit or len(rows), seed)]


def _question(row: Mapping[str, str]) -> Material:
    def answer(text: str, preference: str | None = None) -> DataOutput:
        label = {"preference": preference} if preference else {}
        return DataOutput(answer=Step(role="assistant", content=text, label=label))

    def asked(text: str) -> DataSample:
        metadata = {"reference": row["reference"]} if row["reference"] else None
        return DataSample(unique_id=row["id"], input=[ChatMessage(content=text)], metadata=metadata)

    return Material(
        asked(row["question"]),
        answer(row["good"], "chosen"),
        answer(row["worse"], "rejected"),
        answer(row["reworded"], "chosen"),
        asked(row["asked"]),
    )


def from_samples(samples: Iterable[DataSample], name: str) -> tuple[list[Material], int]:
    """One pair per sample: its first chosen and its first rejected answer; and how many samples have none.

    Raises DataError when no sample has both. A pair of equal texts tells nothing and is left out.
    """
    found, without = [], 0
    for number, sample in enumerate(samples):
        by = {preference_of(output): output for output in reversed(sample.output)}
        good, worse = by.get("chosen"), by.get("rejected")
        if good is not None and worse is not None and text_of(good) != text_of(worse):
            own = copy_with(sample, unique_id=f"{sample.sample_id}@{number}", output=[])
            found.append(Material(own, good, worse))
        else:
            without += 1
    if not found:
        raise DataError(f"{name}: no sample has a chosen and a rejected answer with different texts; an audit needs both.")
    return found, without
