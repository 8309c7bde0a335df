"""Prompt templates: what a judge is asked, and how its reply becomes typed fields.

Prompts are Jinja2 files rendered once in a sandbox; sample texts are data behind a fence they
cannot forge.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar, Union, get_args, get_origin

from annotated_types import Le
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic.fields import FieldInfo

from rm_gallery.core.model.base import Messages, as_messages
from rm_gallery.core.reward.rubric import LANGUAGES
from rm_gallery.core.text.canonical import turn_text
from rm_gallery.core.text.language import broken
from rm_gallery.core.text.statements import REASONS, Form, VerdictField
from rm_gallery.core.text.values import read_boolean, read_integer, read_list, read_number
from rm_gallery.core.text.verdict import read_verdict
from rm_gallery.core.utils.errors import ConfigError, ParseError
from rm_gallery.core.utils.shown import excerpt

if TYPE_CHECKING:
    from jinja2 import Template
    from jinja2.sandbox import SandboxedEnvironment

N = TypeVar("N")
Prompt = str | list[dict[str, str]]
FENCE_LENGTH = 8
FENCE = hashlib.sha256(b"what is judged stands between").hexdigest()[:FENCE_LENGTH]
Texts = Mapping[str, str | Sequence[str]]
STEP_PROMPTS = {"pointwise": "stepwise"}
"""The prompt that asks for a step where a template's own asks for an answer."""


@dataclass(frozen=True)
class Described:
    """A field's description in another language than English, as
    `Annotated[int, Described(zh="…")]`.
    """

    zh: str


@dataclass(frozen=True)
class OnScale:
    """Marks a number as a level of a scale, and no choice among numbered answers, as
    `Annotated[int, OnScale()]`.
    """


@dataclass(frozen=True)
class ReadBy:
    """How a field of a kind of its own is read, as `Annotated[Any, ReadBy(function)]`, and its
    answers where they are few.
    """

    read: Callable[[Any], Any]
    answers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Shaped:
    """The JSON schema of a field that is more than one value, as `Annotated[list[…], Shaped({…})]`."""

    schema: dict[str, Any]


def described(name: str, info: FieldInfo, language: str) -> str:
    """What the judge is told about a field: in the language where the field has it, else its one
    description or name.
    """
    own = note_at(info, Described) if language == "zh" else None
    return own.zh if own else info.description or name


def note_at(info: FieldInfo, kind: type[N]) -> N | None:
    """What is annotated at a field: its note of a kind."""
    return next((note for note in info.metadata if isinstance(note, kind)), None)


def kind_of(info: FieldInfo) -> Any:
    """The type of a field, of one that may be left out too; None where it may have several."""
    if get_origin(info.annotation) not in (Union, types.UnionType):
        return info.annotation
    options = [each for each in get_args(info.annotation) if each is not type(None)]
    return options[0] if len(options) == 1 else None


class BasePromptTemplate(BaseModel):
    """A judge's reply as typed fields, with the prompt that asks for it.

    A subclass adds fields and implements `format`. Replies may use XML tags named like the fields,
    or one JSON object; reasoning, reasons and whatever is quoted is no verdict, verdicts that
    contradict each other are a ParseError, and so is one that does not fit its field: never a
    default.
    """

    model_config = ConfigDict(extra="ignore")

    reason: Annotated[str | None, Described(zh="你的理由，用几句话说明")] = Field(
        default=None, description="Your reasoning, in a few sentences"
    )

    @classmethod
    def format(cls, enable_thinking: bool = False, **kwargs: Any) -> Any:
        """The prompt for one job: a text, or messages with role and content."""
        raise NotImplementedError(
            f"{cls.__name__}.format(**parameters) returns the prompt for one judgement."
        )

    @classmethod
    def schema(cls, enable_thinking: bool = False, language: str = "en", **kwargs: Any) -> str:  # type: ignore[override]  # pydantic's old alias
        """What the judge is told about the form of its reply: one XML tag per field, reasons first.

        The optional reason field is left out for models that think before they answer. Raises
        ConfigError for a language there are no prompts in.
        """
        prompt = _rendered.get()
        form = form_of if prompt is None else prompt.mark
        return form(cls, enable_thinking, language)

    @classmethod
    def _parse(cls, text: str) -> dict[str, Any]:
        """The fields a reply states, by name; absent fields are absent."""
        return read_verdict(text, _form(cls))

    @classmethod
    def parse(cls, text: str) -> Any:
        """The reply as an instance.

        Raises:
            ParseError: a required field is missing, contradictory, or its text does not fit; the
                message names the field.
        """
        contents = cls._parse(text)
        try:
            return cls(**contents)
        except ValidationError as error:
            raise ParseError(_misfit(error, contents), reply_excerpt=excerpt(text)) from error

    def check_choices(self, n: int) -> None:
        """Raise ParseError when the reply names an answer that is not among the `n` shown, or
        leaves one out it is to name.
        """
        best = getattr(self, "best", None)
        if isinstance(best, int) and not isinstance(best, bool) and not 1 <= best <= n:
            raise ParseError(f"<best> is {best}; it names one of the answers 1 to {n}.")


def _misfit(error: ValidationError, contents: Collection[str]) -> str:
    """What is wrong with the fields that a reply states; first of all what it leaves out."""
    first = min(error.errors(), key=lambda item: item["type"] != "missing")
    where = ".".join(map(str, first["loc"]))
    return f"<{where}>: {first['msg']}." if first["type"] != "missing" else no_tag(where, contents)


def no_tag(name: str, found: Collection[str]) -> str:
    """What is wrong with a reply that leaves out a field, and the fields that it states."""
    tags = ", ".join(f"<{key}>" for key in found) or "no tag that was asked for"
    return f"The reply holds no complete <{name}>; found {tags}."


def asked_fields(cls: type[BasePromptTemplate], enable_thinking: bool) -> list[str]:
    """The fields a judge is asked for, its working and reasons first, which one that thinks before
    it answers does not need.
    """
    names = sorted(cls.model_fields, key=lambda name: (name not in REASONS, name != "work"))
    return [
        n
        for n in names
        if n not in ("work", "reason") or not enable_thinking or cls.model_fields[n].is_required()
    ]


@lru_cache(maxsize=256)
def verdict_fields(cls: type[BasePromptTemplate]) -> tuple[str, ...]:
    """The fields that state the verdict, and not the reasons for it."""
    return tuple(name for name in cls.model_fields if name.lower() not in REASONS)


class OpenPrompt:
    """A prompt, rendered once: the form of the reply is left open in it until it is settled how it
    is asked for, and the texts it shows between fences are known.
    """

    def __init__(self, prompt: Callable[[], Messages]) -> None:
        self._forms: dict[str, tuple[type[BasePromptTemplate], bool, str]] = {}
        self.material: list[tuple[str, str]] = []
        """What the prompt shows between fences, each text with its tag."""
        before = _rendered.set(self)
        try:
            self._messages = as_messages(prompt())
        finally:
            _rendered.reset(before)
        contents = [str(message.get("content")) for message in self._messages]
        self.is_open = any(mark in content for mark in self._forms for content in contents)
        # what stands for it was changed on its way into the prompt
        if self._forms and not self.is_open:
            self._messages = as_messages(prompt())

    def mark(self, cls: type[BasePromptTemplate], enable_thinking: bool, language: str) -> str:
        """What stands for a form meanwhile; no text of a sample can hold it."""
        mark = f"{_MARK}{len(self._forms)}>"
        self._forms[mark] = cls, enable_thinking, language
        return mark

    def messages(self, channel: str, token: str = "") -> list[dict[str, Any]]:
        """The prompt with the forms of a channel: tags, one JSON object, the arguments of a call,
        one token, or no text at all.
        """
        if not self.is_open:
            return self._messages
        forms = {mark: form_of(*form, channel, token) for mark, form in self._forms.items()}
        return [{**m, "content": _filled(m.get("content"), forms)} for m in self._messages]


def _filled(content: Any, forms: Mapping[str, str]) -> Any:
    """A message's content, or the texts of its parts, with what stands for the marks."""
    if isinstance(content, list):
        return [{**p, "text": _filled(p["text"], forms)} if "text" in p else p for p in content]
    if isinstance(content, str):
        for mark, form in forms.items():
            content = content.replace(mark, form)
    return content


_MARK = f"<form {secrets.token_hex(8)} "
_rendered: ContextVar[OpenPrompt | None] = ContextVar("rm_gallery_open_prompt", default=None)
"""The prompt that is being rendered, where its form is to stay open."""
FORMS = {
    "text": {
        "en": "Reply with exactly these tags and nothing after them:",
        "zh": "请严格使用以下标签回复，标签之后不要再写任何内容：",
    },
    "schema": {
        "en": "Reply with one JSON object with exactly these keys, and nothing else:",
        "zh": "请只回复一个 JSON 对象，恰好包含以下键，不要写其他内容：",
    },
    "tool": {
        "en": "Call the function `verdict` with exactly these arguments, and write nothing else:",
        "zh": "请调用函数 `verdict`，恰好给出以下参数，不要写其他内容：",
    },
    "logprobs": {
        "en": "Reply with one letter, digit or word and nothing else, without a reason:",
        "zh": "请只回复一个字母、数字或单词，不写理由，也不写其他内容：",
    },
    "decision": {
        "en": "Answer each question by itself.",
        "zh": "请分别回答每个问题。",
    },
}


@lru_cache(maxsize=256)
def form_of(
    cls: type[BasePromptTemplate],
    enable_thinking: bool,
    language: str,
    channel: str = "text",
    below: str = "",
) -> str:
    """What a judge is told about the form of its reply by a channel; `below` says what the one
    token is to be, where the reply is one.
    """
    check_language(language)
    fields = {
        name: described(name, cls.model_fields[name], language)
        for name in asked_fields(cls, enable_thinking)
    }
    if channel == "text":
        below = "\n".join(f"<{name}>\n{about}\n</{name}>" for name, about in fields.items())
    elif channel in ("schema", "tool"):
        below = json.dumps(fields, ensure_ascii=False, indent=2)
    return f"{FORMS[channel][language]}\n{below}".rstrip()


@lru_cache(maxsize=256)
def _form(cls: type[BasePromptTemplate]) -> Form:
    """How each field of a template is read: whole numbers, numbers, booleans and lists strictly,
    texts as they are.
    """
    return Form({name: _read_as(name, info) for name, info in cls.model_fields.items()})


def _read_as(name: str, info: FieldInfo) -> VerdictField:
    kind = kind_of(info)
    own, most = note_at(info, ReadBy), note_at(info, Le)
    high: Any = most and most.le
    # only a whole number is the end of a scale that a reply may name, as in "8/10"
    end, scale = high if isinstance(high, int) else None, bool(note_at(info, OnScale))
    readers: dict[Any, Callable[[Any], Any]] = {
        int: partial(read_integer, high=end, scale=scale),
        float: partial(read_number, high=end, scale=scale),
        list: read_list,
        bool: read_boolean,
        str: read_text,
    }
    read = own.read if own else readers.get(get_origin(kind) or kind, _as_is)
    return VerdictField(read, name.lower() in REASONS, None if high is None else float(high))


def _as_is(value: Any) -> Any:
    return value


def read_text(value: Any) -> str:
    """A text as it is, and of anything else its JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


class RubricTemplate(BasePromptTemplate):
    """Asks for a judgement by rubrics; the sample's texts come last, fenced with a marker they
    cannot contain.
    """

    prompt_name: ClassVar[str] = ""

    @classmethod
    def format(  # type: ignore[override]  # a concrete template names its parameters
        cls,
        desc: str = "",
        scenario: str = "",
        rubrics: list[str] | None = None,
        examples: list[str] | None = None,
        query: str = "",
        context: str = "",
        answers: list[str] | None = None,
        previous: str = "",
        step: str | None = None,
        reference: str = "",
        levels: list[str] | None = None,
        language: str = "en",
        enable_thinking: bool = False,
        **kwargs: Any,
    ) -> Prompt:
        """System and user message: task, rubrics and form of the reply first, the sample's texts
        last.

        With `step` that step is judged, seen with the `previous` ones, instead of whole answers.
        `levels` say what the scores of one answer mean.
        """
        prompt, judged = cls.prompt_name, dict[str, Any](answers=list(answers or ()))
        if step is not None:
            prompt, judged = (
                STEP_PROMPTS.get(prompt, prompt),
                {"previous": previous, "steps": [step]},
            )
        return render(
            prompt,
            language,
            {"query": query, "context": context, "reference": reference, **judged},
            desc=desc,
            scenario=scenario,
            rubrics=rubrics or [],
            examples=examples or [],
            levels=levels or [],
            output_form=cls.schema(enable_thinking=enable_thinking, language=language),
            **kwargs,
        )


class RubricPointWiseTemplate(RubricTemplate):
    """One answer is scored from 1 (worst) to 10 (best)."""

    prompt_name: ClassVar[str] = "pointwise"

    score: Annotated[int, Described(zh="从 1（最差）到 10（最好）的一个整数")] = Field(
        default=...,
        ge=1,
        le=10,
        description="A whole number from 1 (worst) to 10 (best), nothing else",
    )


class RubricListWiseTemplate(RubricTemplate):
    """The best of several answers is named by its number."""

    prompt_name: ClassVar[str] = "listwise"

    best: Annotated[int, Described(zh="最好的回答的编号，不写其他内容")] = Field(
        default=..., ge=1, description="The number of the best answer, nothing else"
    )


class RubricPairWiseTemplate(RubricTemplate):
    """The better of two answers is named by its number."""

    prompt_name: ClassVar[str] = "pairwise"

    best: Annotated[int, Described(zh="1 或 2，即更好的回答的编号，不写其他内容")] = Field(
        default=..., ge=1, le=2, description="1 or 2: the number of the better answer, nothing else"
    )


_RANKED = ("response_index", "rank")
_RANKINGS: dict[str, Any] = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {name: {"type": "integer", "minimum": 1} for name in _RANKED},
        "required": list(_RANKED),
        "additionalProperties": False,
    },
}


class ComparativeTemplate(BasePromptTemplate):
    """A full ranking of several responses: `rankings` holds one {"response_index", "rank"} per
    response, both from 1.
    """

    rankings: Annotated[
        list[dict[str, Any]],
        Shaped(_RANKINGS),
        Described(zh='JSON 列表，每个回答一项 {"response_index": n, "rank": n}；rank 为 1 的最好'),
    ] = Field(
        default=...,
        description='A JSON list with one {"response_index": n, "rank": n} per response; rank 1 is the best',
    )
    explanation: Annotated[str, Described(zh="如此排序的理由，用几句话说明")] = Field(
        default="", description="Why the responses rank like this, in a few sentences"
    )

    @field_validator("rankings")
    @classmethod
    def _each_response_once(cls, rankings: list[dict[str, Any]]) -> list[dict[str, Any]]:
        clean = [{name: read_integer(one.get(name)) for name in _RANKED} for one in rankings]
        indexes, ranks = ([one[name] for one in clean] for name in _RANKED)
        places = range(1, len(clean) + 1)
        if sorted(indexes) != list(places):
            raise ValueError(
                f"each response is ranked exactly once; found responses {sorted(indexes)}"
            )
        if not clean or not set(ranks) <= set(places):
            raise ValueError(f"ranks run from 1 to {len(clean)}; found {ranks}")
        return clean

    def check_choices(self, n: int) -> None:
        """Raise ParseError unless each of the `n` responses is ranked."""
        if len(self.rankings) != n:
            raise ParseError(
                f"<rankings> ranks {len(self.rankings)} of {n} responses; each is ranked exactly "
                f"once."
            )

    @classmethod
    def format(  # type: ignore[override]  # a concrete template names its parameters
        cls,
        question: str,
        responses: list[str],
        language: str = "en",
        enable_thinking: bool = False,
        **kwargs: Any,
    ) -> Prompt:
        """System and user message that ask for a ranking of the responses."""
        form = cls.schema(enable_thinking=enable_thinking, language=language)
        return render(
            "ranking",
            language,
            texts={"query": question, "answers": list(responses)},
            output_form=form,
        )


# -- prompts ---------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def prompt_environment() -> SandboxedEnvironment:
    """Where prompts are rendered: a sandbox in which a name that is not given is an error; `json`
    writes JSON as it stands.
    """
    from jinja2 import FileSystemLoader, StrictUndefined
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(
        loader=FileSystemLoader(Path(__file__).parent / "prompts"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
    )
    environment.filters["json"] = lambda value: json.dumps(value, ensure_ascii=False)
    return environment


def check_language(language: str) -> None:
    """Raise ConfigError for a language there are no prompts in."""
    if language not in LANGUAGES:
        raise ConfigError(f"language is {language!r}; prompts exist in {', '.join(LANGUAGES)}.")


@lru_cache(maxsize=64)
def _template(name: str, language: str) -> Template:
    check_language(language)
    return prompt_environment().get_template(f"{name}.{language}.jinja2")


def fence_for(texts: Texts) -> str:
    """A marker that none of the texts contains; the same texts always get the same one, so that
    replies can be cached.

    It is one and the same unless a text holds it, so that prompts which begin alike stay alike as
    far as their texts do.
    """
    lists = ([text] if isinstance(text, str) else text for text in texts.values())
    together = "\x1f".join(text for each in lists for text in each)
    fence, source = FENCE, together
    while fence in together:
        source = hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()
        fence = source[:FENCE_LENGTH]
    return fence


def fenced(tag: str, text: str, fence: str) -> str:
    """The text, with control marks of chat templates broken, between an opening and a closing tag
    that carry the fence.
    """
    shown = broken(turn_text(text))
    if (prompt := _rendered.get()) is not None:
        prompt.material.append((tag, shown))
    return f"<{tag} {fence}>\n{shown}\n</{tag} {fence}>"


def render(
    name: str, language: str, texts: Texts, always: Collection[str] = (), **instructions: Any
) -> list[dict[str, str]]:
    """System and user message of a prompt file.

    The file's text holds the instructions and becomes the system message: the same for every sample
    of a reward, which is what prefix caches need. The texts follow in the user message, each
    exactly once, fenced. Substitution is a single pass: template syntax inside a text stays text. A
    text that is empty is left out, unless it is among those that are `always` there.
    """
    fence = fence_for(texts)
    blocks = [
        fenced(tag, text, fence)
        for name_of_texts, value in texts.items()
        if value or name_of_texts in always
        for tag, text in _tagged(name_of_texts, value)
    ]
    frozen = tuple(
        (key, tuple(value) if isinstance(value, list) else value)
        for key, value in instructions.items()
    )
    return [
        {"role": "system", "content": _instructions(name, language, frozen)},
        {"role": "user", "content": "\n\n".join(blocks)},
    ]


def _tagged(name: str, value: str | Sequence[str]) -> list[tuple[str, str]]:
    """A text, or several numbered ones, each with its tag."""
    if isinstance(value, str):
        return [(name, value)]
    one = name.removesuffix("s")
    if len(value) == 1:
        return [(one, value[0])]
    return [(f"{one}_{place}", text) for place, text in enumerate(value, 1)]


@lru_cache(maxsize=1024)
def _instructions(name: str, language: str, values: tuple[tuple[str, Any], ...]) -> str:
    """The rendered instructions: equal for all samples of a reward, so rendered once."""
    return _template(name, language).render(**dict(values)).strip()
