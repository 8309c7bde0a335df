"""Prompt templates: what a judge is asked, and how its reply becomes typed fields.

Prompts are Jinja2 files rendered once in a sandbox; sample texts are data behind a fence they
cannot forge.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import types
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Union, get_args, get_origin

from annotated_types import Le
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic.fields import FieldInfo

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

Prompt = str | list[dict[str, str]]
LANGUAGES = ("en", "zh")
FENCE_LENGTH = 8
FENCE = hashlib.sha256(b"what is judged stands between").hexdigest()[:FENCE_LENGTH]
Texts = Mapping[str, str | Sequence[str]]
STEP_PROMPTS = {"pointwise": "stepwise"}
"""The prompt that asks for a step where a template's own asks for an answer."""
REPLY_FORM = {
    "en": "Reply with exactly these tags and nothing after them:",
    "zh": "请严格使用以下标签回复，标签之后不要再写任何内容：",
}


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
    for note in info.metadata:
        if isinstance(note, Described) and language == "zh":
            return note.zh
    return info.description or name


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
        check_language(language)
        forms = _open_forms.get()
        return (
            _schema(cls, enable_thinking, language)
            if forms is None
            else forms.mark(cls, enable_thinking, language)
        )

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
        for name, info in cls.model_fields.items():
            if name not in contents and info.is_required():
                tags = ", ".join(f"<{key}>" for key in contents) or "no tag that was asked for"
                raise ParseError(
                    f"The reply holds no complete <{name}>; found {tags}.",
                    reply_excerpt=excerpt(text),
                )
        try:
            return cls(**contents)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise ParseError(f"<{where}>: {first['msg']}.", reply_excerpt=excerpt(text)) from error

    def check_choices(self, n: int) -> None:
        """Raise ParseError when the reply names an answer that is not among the `n` shown, or
        leaves one out it is to name.
        """
        best = getattr(self, "best", None)
        if isinstance(best, int) and not isinstance(best, bool) and not 1 <= best <= n:
            raise ParseError(f"<best> is {best}; it names one of the answers 1 to {n}.")


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
def _schema(cls: type[BasePromptTemplate], enable_thinking: bool, language: str) -> str:
    shown = asked_fields(cls, enable_thinking)
    parts = [
        f"<{name}>\n{described(name, cls.model_fields[name], language)}\n</{name}>"
        for name in shown
    ]
    return "\n".join([REPLY_FORM[language], *parts])


_MARK_START = f"<form {secrets.token_hex(8)} "
_MARK = f"{_MARK_START}%d>"


class ReplyForms:
    """The places in a prompt where the form of the reply stands, left open until it is settled how
    it is asked for.
    """

    def __init__(self) -> None:
        self._asked: list[tuple[type[BasePromptTemplate], bool, str]] = []

    def mark(self, cls: type[BasePromptTemplate], enable_thinking: bool, language: str) -> str:
        """What stands for a form meanwhile; no text of a sample can hold it."""
        self._asked.append((cls, enable_thinking, language))
        return _MARK % (len(self._asked) - 1)

    def __bool__(self) -> bool:
        return bool(self._asked)

    def stand_in(self, text: str) -> bool:
        """Whether the text leaves a place open."""
        return _MARK_START in text

    def filled(self, text: str, channel: str, token: str = "") -> str:
        """The text with the forms of a channel: tags, one JSON object, the arguments of a call, one
        token, or no text at all.
        """
        if _MARK_START not in text:
            return text
        for number, asked in enumerate(self._asked):
            if (mark := _MARK % number) in text:
                text = text.replace(mark, form_of(*asked, channel, token))
        return text


_open_forms: ContextVar[ReplyForms | None] = ContextVar("rm_gallery_reply_forms", default=None)
FORMS = {
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


@contextmanager
def open_forms() -> Iterator[ReplyForms]:
    """Inside the block `schema` leaves the form of the reply open."""
    forms = ReplyForms()
    before = _open_forms.set(forms)
    try:
        yield forms
    finally:
        _open_forms.reset(before)


def form_of(
    cls: type[BasePromptTemplate],
    enable_thinking: bool,
    language: str,
    channel: str,
    token: str = "",
) -> str:
    """What a judge is told about the form of its reply by a channel; `token` says what the one
    token is to be.
    """
    if channel not in FORMS:
        return _schema(cls, enable_thinking, language)
    keys = _keys(cls, enable_thinking, language) if channel in ("schema", "tool") else token
    return f"{FORMS[channel][language]}\n{keys}".rstrip()


@lru_cache(maxsize=256)
def _keys(cls: type[BasePromptTemplate], enable_thinking: bool, language: str) -> str:
    keys = {
        name: described(name, cls.model_fields[name], language)
        for name in asked_fields(cls, enable_thinking)
    }
    return json.dumps(keys, ensure_ascii=False, indent=2)


@lru_cache(maxsize=256)
def _form(cls: type[BasePromptTemplate]) -> Form:
    """How each field of a template is read: whole numbers, numbers, booleans and lists strictly,
    texts as they are.
    """
    fields = cls.model_fields.items()
    return Form(
        {
            name: VerdictField(_reader(info), name.lower() in REASONS, _highest(info))
            for name, info in fields
        }
    )


def _highest(info: FieldInfo) -> float | None:
    return next((float(note.le) for note in info.metadata if isinstance(note, Le)), None)  # type: ignore[arg-type]  # a number's


def _reader(info: FieldInfo) -> Callable[[Any], Any]:
    annotation = info.annotation
    own = next((note.read for note in info.metadata if isinstance(note, ReadBy)), None)
    if own is not None:
        return own
    if get_origin(annotation) in (Union, types.UnionType):
        options = [a for a in get_args(annotation) if a is not type(None)]
        annotation = options[0] if len(options) == 1 else None
    high = next(
        (
            float(note.le)
            for note in info.metadata
            if isinstance(note, Le) and isinstance(note.le, int)
        ),
        None,
    )
    scale = any(isinstance(note, OnScale) for note in info.metadata)
    if annotation is int:
        return lambda value: read_integer(value, high, scale)
    if annotation is float:
        return lambda value: read_number(value, high, scale)
    if annotation is list or get_origin(annotation) is list:
        return read_list
    return {bool: read_boolean, str: _read_text}.get(annotation, _as_is)  # type: ignore[arg-type]  # any annotation is a key


def _as_is(value: Any) -> Any:
    return value


def _read_text(value: Any) -> str:
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
        texts: dict[str, str | list[str]] = {
            "query": query,
            "context": context,
            "reference": reference,
        }
        texts |= (
            {"answers": list(answers or ())}
            if step is None
            else {"previous": previous, "steps": [step]}
        )
        return render(
            cls.prompt_name if step is None else STEP_PROMPTS.get(cls.prompt_name, cls.prompt_name),
            language,
            texts=texts,
            desc=desc,
            scenario=scenario,
            rubrics=list(rubrics or ()),
            examples=list(examples or ()),
            levels=list(levels or ()),
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


_RANKINGS: dict[str, Any] = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {
            name: {"type": "integer", "minimum": 1} for name in ("response_index", "rank")
        },
        "required": ["response_index", "rank"],
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
        clean = [
            {
                "response_index": read_integer(r.get("response_index")),
                "rank": read_integer(r.get("rank")),
            }
            for r in rankings
        ]
        indexes = sorted(r["response_index"] for r in clean)
        if indexes != list(range(1, len(clean) + 1)):
            raise ValueError(f"each response is ranked exactly once; found responses {indexes}")
        if not clean or any(not 1 <= r["rank"] <= len(clean) for r in clean):
            raise ValueError(
                f"ranks run from 1 to {len(clean)}; found {[r['rank'] for r in clean]}"
            )
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
        keep_trailing_newline=False,
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
    flat: list[str] = []
    for value in texts.values():
        flat += (value,) if isinstance(value, str) else value
    if FENCE not in "\x1f".join(flat):
        return FENCE
    digest = hashlib.sha256("\x1f".join(flat).encode("utf-8", "surrogatepass")).hexdigest()
    while True:
        fence = digest[:FENCE_LENGTH]
        if not any(fence in text for text in flat):
            return fence
        digest = hashlib.sha256(digest.encode()).hexdigest()


def fenced(tag: str, text: str, fence: str) -> str:
    """The text, with control marks of chat templates broken, between an opening and a closing tag
    that carry the fence.
    """
    return f"<{tag} {fence}>\n{broken(turn_text(text))}\n</{tag} {fence}>"


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
    blocks: list[str] = []
    for tag, value in texts.items():
        if isinstance(value, str):
            blocks += [fenced(tag, value, fence)] if value or tag in always else []
        elif len(value) == 1:
            blocks.append(fenced(tag.removesuffix("s"), value[0], fence))
        else:
            blocks += [
                fenced(f"{tag.removesuffix('s')}_{i}", text, fence)
                for i, text in enumerate(value, 1)
            ]
    frozen = tuple(
        [
            (key, tuple(value) if isinstance(value, list) else value)
            for key, value in instructions.items()
        ]
    )
    return [
        {"role": "system", "content": _instructions(name, language, frozen)},
        {"role": "user", "content": "\n\n".join(blocks)},
    ]


@lru_cache(maxsize=1024)
def _instructions(name: str, language: str, values: tuple[tuple[str, Any], ...]) -> str:
    """The rendered instructions: equal for all samples of a reward, so rendered once."""
    return _template(name, language).render(**dict(values)).strip()
