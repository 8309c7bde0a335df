"""What a reward model reads of a sample: the conversation and an answer, as turns or as one text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from rm_gallery.core.data.schema import DataOutput, DataSample
from rm_gallery.core.model.message import ChatMessage
from rm_gallery.core.utils.errors import Unscored

Turns = list[dict[str, str]]
_ROLES = {"developer": "system", "function": "tool"}


class Dialogue(NamedTuple):
    """One thing to score: the turns before the answer, the answer, and its steps where they are scored."""

    turns: Turns
    answer: str
    steps: tuple[str, ...] = ()

    def messages(self) -> Turns:
        """All turns, the answer last."""
        return [*self.turns, {"role": "assistant", "content": self.answer}]

    def query(self) -> str:
        """The turns before the answer as text: a single user turn bare, several with their roles."""
        if len(self.turns) == 1:
            return self.turns[0]["content"]
        return "\n\n".join(f"{turn['role']}: {turn['content']}" for turn in self.turns)

    def plain(self) -> str:
        """The whole conversation as text, each turn with its role."""
        return "\n\n".join(f"{turn['role']}: {turn['content']}" for turn in self.messages())


def dialogue_of(sample: DataSample, name: str, steps: bool = False) -> Dialogue:
    """The conversation and the first output of a sample.

    Raises Unscored (`not_applicable`) for an answer that only calls tools, and for images and other parts that are no text:
    a score of the rest would be a score of something else.
    """
    output = sample.output[0]
    turns = [{"role": _role(message), "content": _text(message, name)} for message in sample.input]
    if steps:
        return Dialogue(turns, "", tuple(_text(step, name) for step in output.steps or ()))
    return Dialogue(turns, _answer(output, name))


def _answer(output: DataOutput, name: str) -> str:
    text = _text(output.answer, name)
    if not text and output.answer.tool_calls:
        raise Unscored(f"{name} reads text; this answer only calls tools.", reason="not_applicable")
    return text


def _text(message: ChatMessage, name: str) -> str:
    content = message.content
    if not isinstance(content, str):
        odd = next((part.get("type") for part in content if part.get("type") not in ("text", "input_text", None)), None)
        if odd is not None:
            raise Unscored(f"{name} reads text; the conversation holds {str(odd)[:40]!r}.", reason="not_applicable")
    # lone surrogates are no text any tokenizer or server takes
    return message.text.encode("utf-8", "replace").decode("utf-8")


def _role(message: ChatMessage) -> str:
    return _ROLES.get(message.role.value, message.role.value)


def without_marks(dialogue: Dialogue, marks: Iterable[str]) -> Dialogue:
    """The dialogue with a space put into every control mark of the model, such as <|im_end|>, that its texts hold.

    A tokenizer makes the mark itself of such text, with which an answer could end its own turn and write the next one.
    """
    marks = tuple(marks)

    def cleaned(text: str) -> str:
        for mark in marks:
            if mark in text:
                text = text.replace(mark, f"{mark[0]} {mark[1:]}")
        return text

    turns = [{"role": turn["role"], "content": cleaned(turn["content"])} for turn in dialogue.turns]
    return Dialogue(turns, cleaned(dialogue.answer), tuple(map(cleaned, dialogue.steps)))
