"""Published judge checkpoints, `judge:NAME`: one YAML file each in `judges/` with prompt layout,
sampling and verdict form.

Roles, order and tags are those of the checkpoint's training; the wording is this project's, and
`template=FILE` gives the published one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from rm_gallery.core.data.schema import DataOutput, DataSample, Step
from rm_gallery.core.model.decisions import NO, YES, Question
from rm_gallery.core.model.message import ChatMessage, ChatResponse
from rm_gallery.core.reward.asking import ask, usable_text
from rm_gallery.core.reward.base import BaseListWiseReward, BasePairWiseReward, BasePointWiseReward
from rm_gallery.core.reward.channel import decision_of
from rm_gallery.core.reward.judge import JUDGE, BaseLLMReward, required
from rm_gallery.core.reward.registry import class_for
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.reward.rubric import RubricFile, Texts, rubric_file
from rm_gallery.core.reward.schema import (
    Example,
)
from rm_gallery.core.reward.template import BasePromptTemplate, prompt_environment
from rm_gallery.core.score import Bounds, Score
from rm_gallery.core.text.answer import last_boxed
from rm_gallery.core.text.blocks import object_at
from rm_gallery.core.text.canonical import split_reasoning
from rm_gallery.core.text.language import broken
from rm_gallery.core.text.values import read_number
from rm_gallery.core.utils.errors import ConfigError, ParseError, reason_of
from rm_gallery.core.utils.file import read_file
from rm_gallery.core.utils.models import error_message
from rm_gallery.core.utils.names import unknown_name
from rm_gallery.core.utils.shown import excerpt
from rm_gallery.gallery.rm.bounds import Count
from rm_gallery.gallery.rm.trained.conversation import any_of

HERE = Path(__file__).parent / "judges"
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
LONGEST_REPLY = 200_000

LayoutMessages = Annotated[
    list[dict[Literal["role", "content"], str] | Literal["conversation"]], Field(min_length=1)
]


class StatedVerdict(BaseModel):
    """How a checkpoint states its verdict: the `form` it writes, and what it `reads` from it
    (score, scores, best answer or grade).

    Forms: `result` is `[RESULT] x` at the very end; `brackets` the last `[[x]]`, inside `tag` where
    there is one; `tag` the last `<tag>x</tag>`; `label` the last `tag: x`; `boxed` the last box;
    `json` the last object with one of the `keys`; `token` the odds of yes against no. `grades` maps
    a word to the margin of the first answer over the second, 0 for a tie.
    """

    model_config = ConfigDict(extra="forbid")

    form: Literal["result", "brackets", "tag", "label", "boxed", "json", "token"]
    reads: Literal["score", "scores", "best", "grade"] = "score"
    tag: str = ""
    keys: list[str] = Field(default_factory=list)
    grades: dict[str, float] = Field(default_factory=dict)


class PublishedJudge(RubricFile):
    """A checkpoint: its prompt, how its reply is read, and the rubric where nothing is given.

    Attributes:
        messages: each with role and content (Jinja over query, answers, answer, named, reference,
            rubrics, levels); the word `conversation` stands for the turns themselves.
        form: the description of the reply's form in a repair message.
        thinks: whether a block of thought comes before the verdict.
        sampling: request fields the authors used; those that a model is given itself win.
    """

    checkpoint: str
    kind: Literal["pointwise", "pairwise", "listwise"]
    messages: LayoutMessages
    verdict: StatedVerdict
    form: str
    thinks: bool = False
    sampling: dict[str, Any] = Field(default_factory=dict)
    votes: Count = 1
    ties: str = ""
    source: str
    licence: str

    def numbered(self, texts: Texts) -> list[int] | None:
        """As for every rubric; a list has a text for each score, the lowest first."""
        if isinstance(texts.levels, dict) or not texts.levels:
            return super().numbered(texts)
        return [int(self.scale[0] or 0) + place for place in range(len(texts.levels))]

    @property
    def score_range(self) -> Bounds:
        """The scale, under its older name."""
        return self.scale

    @property
    def reward_range(self) -> Bounds:
        """Lowest and highest score of an answer: the scale where the checkpoint scores each."""
        scored = self.kind != "pairwise" and self.verdict.reads in ("score", "scores")
        return self.scale if scored else (0.0, 1.0)


def judge_names() -> list[str]:
    """The checkpoints there are files for."""
    return sorted(path.stem for path in HERE.glob("*.yaml"))


@lru_cache(maxsize=128)
def published(name: str) -> PublishedJudge:
    """What a checkpoint's name, or a file of the same kind, stands for; ConfigError with the
    nearest names.
    """
    path = HERE / f"{name}.yaml" if name in judge_names() else Path(name)
    if path.suffix not in (".yaml", ".yml"):
        raise ConfigError(
            unknown_name("judge", name, judge_names(), "A file of your own ends in .yaml.")
        )
    return rubric_file(path, "a published judge", PublishedJudge)


# -- what is sent ----------------------------------------------------------------------------------

_MARKS = re.compile(
    r"<\|[^|<>\n]{1,60}\|>|\[\[[^\[\]\n]{1,20}\]\]|\[[^\[\]\n]{6,400}\]|</?[A-Za-z][\w ]{0,40}>"
    r"|^#{2,}[^\n]{1,60}$",
    re.MULTILINE,
)


@lru_cache(maxsize=256)
def _marks_of(
    layouts: tuple[str, ...],
    n: int,
    rubrics: tuple[str, ...],
    levels: tuple[str, ...],
    referenced: bool,
) -> re.Pattern[str]:
    """The delimiters of a layout: an answer that holds one could forge another part of the prompt."""
    texts = _layout_values("", [""] * n, "-" * referenced)
    rendered = [
        _rendered(layout, **texts, rubrics=list(rubrics), levels=list(levels)) for layout in layouts
    ]
    return any_of({mark for text in rendered for mark in _MARKS.findall(text)})


@lru_cache(maxsize=512)
def _compiled(layout: str) -> Any:
    return prompt_environment().from_string(layout)


def _rendered(layout: str, **values: Any) -> str:
    return str(_compiled(layout).render(**values)).strip()


def _layout_values(query: str, answers: list[str], reference: str) -> dict[str, Any]:
    named = {f"model-{number}": text for number, text in enumerate(answers, 1)}
    return {
        "query": query,
        "answers": answers,
        "answer": answers[0],
        "named": named,
        "reference": reference,
    }


def shown_messages(
    messages: Sequence[dict[str, str] | str],
    query: str,
    answers: Sequence[str],
    turns: Sequence[dict[str, str]],
    reference: str,
    rubrics: Sequence[str],
    levels: Sequence[str],
) -> list[dict[str, str]]:
    """The layout filled with texts in which the layout's own delimiters are neutralised."""
    layouts = tuple(m["content"] for m in messages if not isinstance(m, str))
    marks = _marks_of(layouts, len(answers), tuple(rubrics), tuple(levels), bool(reference))

    def shown(text: str) -> str:
        return broken(broken(text), marks)

    own = {"rubrics": list(rubrics), "levels": list(levels)}
    texts = _layout_values(shown(query), list(map(shown, answers)), shown(reference)) | own
    made: list[dict[str, str]] = []
    for message in messages:
        if isinstance(message, str):
            made += [{**turn, "content": shown(turn["content"])} for turn in turns]
        else:
            content = _rendered(message["content"], **texts)
            made.append({"role": message["role"], "content": content})
    return made


class PublishedPrompt(BasePromptTemplate):
    """Placeholder for a checkpoint's layout; the reward itself reads the reply, since it knows the
    number of answers.
    """

    @classmethod
    def _parse(cls, text: str) -> dict[str, Any]:
        return {}


@lru_cache(maxsize=128)
def _template_with_form(form: str) -> type[BasePromptTemplate]:
    """A prompt whose repair message describes this form."""
    return type(
        "PublishedForm",
        (PublishedPrompt,),
        {"schema": classmethod(lambda cls, **kwargs: form), "__module__": __name__},
    )


# -- what came -------------------------------------------------------------------------------------

_QUOTED = re.compile(
    r'"[^"\n]{0,2000}"|“[^”]{0,2000}”|「[^」]{0,2000}」|`[^`\n]{0,2000}`|^>.*$', re.MULTILINE
)
_FENCED = re.compile(r"^(`{3,}|~{3,}).*?^\1[ \t]*$", re.DOTALL | re.MULTILINE)


def stated(reply: str, verdict: StatedVerdict) -> str | dict[str, Any]:
    """What a reply states last, as words or as an object; thoughts and quotations left out.

    Raises:
        ParseError: it states nothing in this form, or was cut off while it thought.
    """
    reasoned = split_reasoning(reply[-LONGEST_REPLY:], later=False)
    if not reasoned.finished:
        raise ParseError("The reply was cut off while it thought.", reply_excerpt=excerpt(reply))
    body = reasoned.final.strip()
    if verdict.form == "json":
        value: Any = _last_object(body, verdict.keys)
    elif verdict.form == "boxed":
        value = last_boxed(_unquoted(body))
    else:
        value = _last_match(
            body, _verdict_pattern(verdict.form, verdict.tag), verdict.form == "result"
        )
    if value is None:
        raise ParseError("The reply states no verdict in its form.", reply_excerpt=excerpt(reply))
    return value if isinstance(value, dict) else str(value).strip()


_INSIDE = r"\[\[\s*([^\[\]\n]{1,20}?)\s*\]\]"
_FORMS = {
    "result": r"\[RESULT\]\s*[(\[]?\s*([A-Za-z0-9.]{1,8}?)\s*[)\]]?\s*\.?\s*\Z",
    "brackets": rf"(?i)<TAG>\s*{_INSIDE}\s*</TAG>",
    "tag": r"(?i)<TAG>\s*([^<>]{1,80}?)\s*</TAG>",
    "label": r"(?im)^[ \t*]*TAG\**[ \t]*[:：][ \t*]*([^\s*]{1,20}(?:[ \t][^\s*]{1,20})?)[ \t*]*$",
}
"""By form, where the verdict stands; TAG is the checkpoint's own."""


@lru_cache(maxsize=64)
def _verdict_pattern(form: str, tag: str) -> re.Pattern[str]:
    pattern = _INSIDE if form == "brackets" and not tag else _FORMS[form]
    return re.compile(pattern.replace("TAG", re.escape(tag)))


def _unquoted(body: str) -> str:
    return _QUOTED.sub(" ", _FENCED.sub(" ", body))


def _last_match(body: str, pattern: re.Pattern[str], ends: bool) -> str | None:
    """The last match outside quotations; a reply that ends with nothing but a quoted or fenced
    verdict counts too.
    """
    matches = pattern.findall(_unquoted(body))
    if matches:
        return str(matches[-1])
    if ends:
        whole = pattern.search(body.strip("`~ \n"))
    else:
        last = body.strip().strip("`~").rstrip().rpartition("\n")[2]
        whole = pattern.fullmatch(last.strip(" \t\"'“”`*."))
    return None if whole is None else str(whole[1])


def _last_object(body: str, keys: Sequence[str]) -> dict[str, Any] | None:
    """The last object in a text that has one of these keys."""
    last, at = None, body.find("{")
    for _ in range(200):
        if at < 0:
            break
        found, end = object_at(body, at) or ({}, at + 1)
        named = {key.lower(): value for key, value in found.items()}
        last = last if named.keys().isdisjoint(map(str.lower, keys)) else named
        at = body.find("{", end)
    return last


def _named_place(word: str, n: int) -> int:
    """The place of the answer that a word names: A, 1, "Model A", "Response 2", "Output (b)"."""
    name = re.fullmatch(
        r"(?:(?:model|response|output|answer|assistant|chatbot)[\s_-]*)?[(\[]?([A-Za-z]"
        r"|\d{1,2})[)\]]?\.?",
        word.strip(),
        re.IGNORECASE,
    )
    if name is not None:
        place = int(name[1]) - 1 if name[1].isdigit() else LETTERS.find(name[1].upper())
        if 0 <= place < n:
            return place
    raise ParseError(f"The verdict names {excerpt(word, 40)!r}, which is none of the {n} answers.")


def _number_in_range(value: Any, bounds: Bounds) -> float:
    low, high = bounds
    number = read_number(value, high, True)
    if (
        not math.isfinite(number)
        or (low is not None and number < low)
        or (high is not None and number > high)
    ):
        least, most = ("any number" if end is None else f"{end:g}" for end in bounds)
        raise ParseError(f"The verdict is {number:g}; it lies between {least} and {most}.")
    return number


def numbers_of(stated_value: str | dict[str, Any], judge: PublishedJudge, n: int) -> list[float]:
    """One number per answer shown, larger for the better; ParseError for what is no verdict on `n`
    answers.
    """
    verdict, bounds = judge.verdict, judge.scale
    value: Any = stated_value
    if isinstance(stated_value, dict):
        value = next(
            stated_value[key] for key in map(str.lower, verdict.keys) if key in stated_value
        )
    if verdict.reads == "score":
        return [_number_in_range(value, bounds)]
    if verdict.reads == "best":
        if type(value) not in (str, int):
            raise ParseError(f"The verdict is {excerpt(str(value), 40)!r}, which names no answer.")
        if str(value).strip().lower() in verdict.grades:
            return [0.5] * n
        best = _named_place(str(value), n)
        return [float(place == best) for place in range(n)]
    if verdict.reads == "grade":
        if isinstance(stated_value, dict):  # a place on a scale whose lower half is for the first
            low, high = bounds
            assert low is not None and high is not None
            grade = (low + high) / 2 - _number_in_range(value, bounds)
        else:
            grade = verdict.grades.get(re.sub(r"\s+", "", stated_value).upper(), math.nan)
            if math.isnan(grade):
                raise ParseError(
                    f"The verdict is {excerpt(stated_value, 40)!r}; it is one of "
                    f"{', '.join(verdict.grades)}."
                )
        return [grade, -grade]
    if isinstance(value, dict):
        named = [f"model-{number}" for number in range(1, n + 1)]
        if set(value) != set(named):
            raise ParseError(
                f"The scores name {', '.join(map(str, value))[:80]}; they cover "
                f"{', '.join(named)[:80]} and no other."
            )
        return [_number_in_range(value[name], bounds) for name in named]
    if len(parts := re.split(r"[\s,，;；]+", str(value).strip(" []()"))) != n:
        raise ParseError(f"{len(parts)} numbers are stated for {n} answers.")
    return [_number_in_range(part, bounds) for part in parts]


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


_PRIMES = [DataOutput(answer=Step(role="assistant", content=text)) for text in ("7", "8")]


class _OfCheckpoint(BaseLLMReward):
    """Common base of pointwise, pairwise and listwise checkpoints."""

    example = Example(
        DataSample(
            unique_id="a-prime", input=[ChatMessage(content="Name a prime.")], output=_PRIMES
        )
    )

    template = PublishedPrompt
    judge: str
    """The checkpoint's name, or a YAML file like those of the gallery."""
    rubrics: Annotated[list[str], BeforeValidator(_as_list)] = Field(default_factory=list)
    """What is judged by; the checkpoint's own unless given. Refused where its layout has no place
    for them.
    """
    levels: Annotated[list[str], BeforeValidator(_as_list)] = Field(default_factory=list)
    """What each score means, the lowest first; refused where the layout has no place for them."""
    wording: str = ""
    """The published layout as a file: Jinja text of one user message, or YAML with `messages`;
    given as `template=FILE`.
    """

    def __init__(self, judge: str = "", **settings: Any) -> None:
        """Take the checkpoint's name; `name` is `judge:` and it unless given."""
        named = {"judge": judge, **settings} if judge else settings
        super().__init__(**{"name": f"judge:{named.get('judge', '')}", **named})

    @model_validator(mode="before")
    @classmethod
    def _file_of_wording(cls, given: Any) -> Any:
        if isinstance(given, dict) and isinstance(given.get("template"), str | Path):
            given = {**given, "wording": str(given["template"])}
            del given["template"]
        return given

    def model_post_init(self, context: Any) -> None:
        """Refuse rubrics and levels that the layout does not show."""
        super().model_post_init(context)
        layouts = " ".join(
            message["content"] for message in self._layout if not isinstance(message, str)
        )
        for field in ("rubrics", "levels"):
            if getattr(self, field) and field not in layouts:
                raise ConfigError(
                    f"{field}: judge:{self.judge} has no place for them in its layout; leave them "
                    f"out."
                )

    @property
    def _layout(self) -> Sequence[Any]:
        return _read_wording(self.wording) if self.wording else self.spec.messages

    @property
    def spec(self) -> PublishedJudge:
        """What the checkpoint's file says."""
        return published(self.judge)

    @property  # type: ignore[misc]
    def score_range(self) -> Bounds:  # type: ignore[override]  # a class has none before it has a checkpoint
        """The checkpoint's range where it scores each answer."""
        return self.spec.reward_range

    def _before_evaluate(self, sample: DataSample, **kwargs: Any) -> dict[str, Any]:
        """Values for the layout's placeholders."""
        view, spec, reference = self.kind.view(sample), self.spec, sample.reference()
        return {
            "query": view.query,
            "answers": view.answers,
            "turns": [{"role": turn.role.value, "content": turn.text} for turn in sample.input],
            "reference": "" if reference is None else str(reference),
            "rubrics": self.rubrics or spec.rubrics,
            "levels": self.levels or spec.level_lines,
        }

    def _formatted(self, parameters: dict[str, Any]) -> Any:
        return shown_messages(self._layout, **parameters)

    @property
    def asked_times(self) -> int:
        """The votes, or as many as its authors take."""
        return self.votes or self.spec.votes

    async def _vote(self, sample: DataSample, **kwargs: Any) -> Score[Any]:
        llm, spec, known = (
            required(self.llm, self.name, JUDGE),
            self.spec,
            self._before_evaluate(sample),
        )
        fields = {
            name: value for name, value in spec.sampling.items() if name not in llm.model_fields_set
        }
        if spec.verdict.form == "token":
            fields |= {"logprobs": True, "top_logprobs": 20, "max_tokens": 4}

        def read(reply: ChatResponse) -> tuple[list[float], str]:
            if spec.verdict.form == "token":
                share = decision_of(
                    reply, Question("verdict", "predicate", ""), {YES: YES, NO: NO}
                ).probabilities[YES]
                share = min(max(share, 1e-9), 1 - 1e-9)
                return [math.log(share / (1 - share))], ""
            text = usable_text(reply)
            return numbers_of(stated(text, spec.verdict), spec, len(known["answers"])), text

        numbers, reason = await ask(
            llm,
            _template_with_form(spec.form),
            lambda: self._asked(known, sample),
            read,
            name=self.name,
            repair_attempts=0 if spec.verdict.form == "token" else self.repair_attempts,
            channel=self.channel,
            **fields,
        )
        return Score(numbers[0] if spec.kind == "pointwise" else tuple(numbers), reason)


@lru_cache(maxsize=128)
def _read_wording(file: str) -> list[Any]:
    path = Path(file)
    try:
        if path.suffix not in (".yaml", ".yml"):
            return [{"role": "user", "content": path.read_text(encoding="utf-8")}]
        given = read_file(path)
        return list(
            TypeAdapter(LayoutMessages).validate_python(
                given.get("messages") if isinstance(given, dict) else given
            )
        )
    except ValidationError as error:
        raise ConfigError(f"template: {path} does not fit: {error_message(error)}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"template: {path} cannot be read: {reason_of(error)}") from error


class PublishedPointJudge(_OfCheckpoint, BasePointWiseReward):
    """A checkpoint that scores an answer by itself, in its own range."""


class PublishedPairJudge(_OfCheckpoint, BasePairWiseReward):  # type: ignore[override]  # as above
    """A checkpoint that compares two answers; a score is the share of pairs won, by default in both
    orders.
    """


class PublishedListJudge(_OfCheckpoint, BaseListWiseReward):
    """A checkpoint that sees all answers at once: a score for each, or 1 for the best and 0 for the
    others.
    """


_KINDS: dict[str, Any] = dict(
    pointwise=PublishedPointJudge, pairwise=PublishedPairJudge, listwise=PublishedListJudge
)


def class_of_checkpoint(name: str) -> type[BaseReward]:
    """`judge:NAME`: the class of a checkpoint's kind, bound to it; ConfigError with the nearest
    names.
    """
    spec = published(name)
    kind = _KINDS[spec.kind]
    # an object tells its range by a property, which a class has not
    made: type[BaseReward] = class_for(
        kind, kind, partial(kind, name), score_range=spec.reward_range
    )
    made.__doc__ = (
        f"{spec.checkpoint} as a judge, in its own layout and form of "
        f"verdict.\n\n{kind.__doc__}\n\nSource: {spec.source}."
    )
    return made
