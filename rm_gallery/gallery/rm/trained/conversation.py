"""What a reward model reads of a sample: the conversation and an answer, as turns or as one text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from rm_gallery.core.data.schema import DataOutput, DataSample
from rm_gallery.core.model.message import TEXT_PARTS, ChatMessage
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
    turns = [{"role": _role(message), "content": _text(message, name, asked=True)} for message in sample.input]
    if steps:
        return Dialogue(turns, "", tuple(_text(step, name) for step in output.steps or ()))
    return Dialogue(turns, _answer(output, name))


def _answer(output: DataOutput, name: str) -> str:
    text = _text(output.answer, name)
    if not text and output.answer.tool_calls:
        raise Unscored(f"{name} reads text; this answer only calls tools.", reason="not_applicable", cause="answer")
    return text


def _text(message: ChatMessage, name: str, asked: bool = False) -> str:
    content = message.content
    if not isinstance(content, str):
        odd = next((part.get("type") for part in content if part.get("type") not in TEXT_PARTS), None)
        if odd is not None:
            why = f"{name} reads text; the conversation holds {str(odd)[:40]!r}."
            raise Unscored(why, reason="not_applicable", cause="rule" if asked else "answer")
    # lone surrogates are no text any tokenizer or server takes
    return message.text.encode("utf-8", "replace").decode("utf-8")


def _role(message: ChatMessage) -> str:
    return _ROLES.get(message.role.value, message.role.value)


def without_marks(dialogue: Dialogue, marks: re.Pattern[str]) -> Dialogue:
    """The dialogue with a space put into every control mark of the model, such as <|im_end|>, that its texts hold.

    A tokenizer makes the mark itself of such text, with which an answer could end its own turn and write the next one.
    """
    texts = [*(turn["content"] for turn in dialogue.turns), dialogue.answer, *dialogue.steps]
    if not any(map(marks.search, texts)):
        return dialogue

    def cleaned(text: str) -> str:
        return marks.sub(lambda found: f"{found[0][0]} {found[0][1:]}", text)

    turns = [{"role": turn["role"], "content": cleaned(turn["content"])} for turn in dialogue.turns]
    return Dialogue(turns, cleaned(dialogue.answer), tuple(map(cleaned, dialogue.steps)))


def any_of(marks: Iterable[str]) -> re.Pattern[str]:
    """A pattern of these texts, the longest first; of nothing where there are none."""
    return re.compile("|".join(re.escape(mark) for mark in sorted(marks, key=len, reverse=True)) or r"(?!)")


COMMON_MARKS = re.compile(
    r"<\|[^|<>\s]{1,40}\|>|<｜[^｜<>\s]{1,40}｜>|</?s>|<<SYS>>"
    r"|<(?:bos|eos|pad|unk|mask|sop|eop|eoa|eoh|start_of_turn|end_of_turn|extra_(?:id_)?\d{1,3}|SPECIAL_\d{1,4}|reserved_\d{1,4})>"
    r"|\[/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_RESULTS|TOOL_CALLS|TOOL_CONTENT|THINK|CLS|SEP|MASK|PAD|UNK|gMASK|BOS|EOS)\]"
)
"""Control marks of wide-spread models, for a server whose tokenizer cannot be asked."""


def rendered(template: str, turns: Turns) -> str:
    """Turns in a Jinja chat template, as transformers would render it; raises jinja2's TemplateError where it refuses them.

    Special tokens that the template takes from a tokenizer (bos_token, eos_token) are empty here: the server adds its own.
    """
    return str(_compiled(template).render(messages=turns, add_generation_prompt=False, bos_token="", eos_token=""))


@lru_cache(maxsize=16)
def _compiled(template: str) -> Any:
    from jinja2.exceptions import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def refuse(message: str) -> None:
        raise TemplateError(message)

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    environment.globals["raise_exception"] = refuse
    return environment.from_string(template)


def template_text(value: str, names: Iterable[str]) -> str:
    """One of the names, Jinja text, or the text of a file; ValueError for anything else."""
    names = tuple(names)
    if value in names or "{{" in value or "{%" in value:
        return value
    try:
        return Path(value).read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"{value[:200]!r} is neither {', '.join(names)}, nor a Jinja template or the file of one") from error
