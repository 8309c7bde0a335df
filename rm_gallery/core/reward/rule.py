'''A rule: a typed function that scores one answer, made a reward by `@rule`.

>>> @rule("ends_politely", source="house style")
... def ends_politely(answer: str, *, word: str = "thanks") -> float:
...     """1 when the answer ends with a word of thanks, else 0. Range [0, 1], higher is better."""
...     return float(answer.rstrip(" .!").lower().endswith(word))
>>> ends_politely("Here you are. Thanks!")
1.0
>>> RewardRegistry.create("ends_politely", word="cheers").word
'cheers'
'''

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache, partial
from itertools import starmap
from typing import Any, ClassVar, Literal, TypeVar

from pydantic import Field
from pydantic.fields import FieldInfo

from rm_gallery.core.data.conversation import turns_after
from rm_gallery.core.data.schema import DataSample, no_reference
from rm_gallery.core.model.message import MessageRole, how_it_ended
from rm_gallery.core.reward.base_kinds import (
    BaseListWiseReward,
    BasePointWiseReward,
    BaseStepWiseReward,
)
from rm_gallery.core.reward.founding import checked, is_plain, score_of_result, settled
from rm_gallery.core.reward.kinds import EACH_TOGETHER, POINTWISE, TURNWISE, TURNWISE_UNHEARD
from rm_gallery.core.reward.registry import RewardRegistry, rule_class_name
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.reward.schema import Example, RewardMeta
from rm_gallery.core.reward.view import conversation_text
from rm_gallery.core.score import Bounds, Detail, Score, checked_bounds, score_of_error
from rm_gallery.core.text.answer import Extraction
from rm_gallery.core.text.canonical import OPENED, Form, compared, fold, split_reasoning
from rm_gallery.core.utils.docstrings import documentation
from rm_gallery.core.utils.errors import ConfigError, Unscored
from rm_gallery.core.utils.identity import is_users
from rm_gallery.core.utils.models import copy_with

F = TypeVar("F", bound=Callable[..., Any])
Scorer = Callable[[DataSample], Any]
"""What scores a sample of one output: it gives a `Score`, a number, or what else `@rule` takes."""
Reader = Callable[[DataSample, str], Any]
"""What a parameter is given of a sample, for the rule of a name."""


class RuleReward(BasePointWiseReward):
    """Base of the pointwise rewards that follow a rule: text, references and metadata decide, no
    judge.

    Scores lie in [0, 1] unless a reward says otherwise.
    """

    score_range: Bounds = (0.0, 1.0)
    inline: ClassVar[bool] = False
    """Whether it is over at once, and called on the thread that asks for it: nothing watches its
    clock.
    """

    def scorer(self) -> Scorer:
        """What scores a sample of one output with these settings. An inline rule has one."""
        raise NotImplementedError

    def at_once(self) -> Callable[[DataSample], list[Score[Any]]] | None:
        """`_scores` with these settings, where the rule is over at once."""
        return partial(_scores, self, self.scorer()) if _is_inline(type(self)) else None


class KillableRule(RuleReward):
    """Base of rules that a text can keep busy for ever: each answer runs in a process that can be
    killed.
    """

    cpu_bound: ClassVar[bool] = True

    timeout: float = Field(default=5.0, gt=0)
    """Seconds one answer may take; one that takes longer, where another answer does not, has the
    worst score.
    """

    @property
    def kill_after(self) -> float:  # type: ignore[override]  # a class has no setting yet
        """The timeout."""
        return self.timeout


# -- rules that are over at once --------------------------------------------------------------------

# The library's own rules are bounded in time by a contract, so that nothing has to watch their
# clock. A rule of one's own may wait for a service or never end: it runs on the engine's threads
# unless it is declared `@rule(..., inline=True)`.


@lru_cache(maxsize=1024)
def _is_inline(reward: Any) -> bool:
    """Whether rewards of this class are called at once; a subclass with a method of its own is not."""
    declared = next(cls for cls in reward.__mro__ if "inline" in vars(cls))
    own = reward._evaluate, reward.plan, reward.kind
    return declared.inline and own == (declared._evaluate, BaseReward.plan, POINTWISE)


def _scores(reward: RuleReward, score: Scorer, sample: DataSample) -> list[Score[Any]]:
    """The score of each output.

    Raises ConfigError for an error of the run, which no other sample would escape.
    """
    outputs, scores = sample.output, []
    for output in outputs:
        part = sample if len(outputs) == 1 else copy_with(sample, output=[output])
        try:
            found = checked(reward, score_of_rule(score(part), reward.name))
        except KeyboardInterrupt:  # of the person who waits
            raise
        except BaseException as error:  # noqa: BLE001 - recorded; an error of the run is raised again
            found = score_of_error(_named(reward.name, error))
        scores.append(found if found.ok else settled(reward, found))
    return scores


# -- what a rule sees ------------------------------------------------------------------------------


def final_answer(sample: DataSample) -> str:
    """What the sample's one output says when it has finished thinking, folded as references are."""
    return fold(split_reasoning(sample.answer_text()).final)


def extraction_of(sample: DataSample, extraction: Extraction) -> Extraction:
    """The `extraction` that fits the sample's one output: of one that was cut off, the last
    sentence asserts nothing.

    Its `finish_reason` stands with the answer in the words of an endpoint or a trainer.
    """
    ended = how_it_ended(sample.output[0].answer.additional_kwargs.get("finish_reason"))
    return extraction if extraction != "any" or ended == "done" else "announced"


def references_of(
    sample: DataSample, reward: str, plain: Callable[[str], str] = compared
) -> list[str]:
    """All reference answers of the sample as text; a list stands for several answers that are
    equally right.

    They are folded as `final_answer` is; `plain=turn_text` keeps their characters, for what is
    executed.

    Raises:
        Unscored: there is no reference, or only blank ones (reason `no_reference`).
    """
    value = sample.reference()
    if isinstance(value, str):  # as most are
        references = [plain(value)] if value and not value.isspace() else []
    else:
        values = value if isinstance(value, list | tuple) else [] if value is None else [value]
        references = [plain(text) for text in map(str, values) if text.strip()]
    if not any(references):
        raise no_reference(reward)
    return references


def known(sample: DataSample, *keys: str) -> Any:
    """The first of `keys` that the answer's label, else the sample's metadata, has a value for;
    None without one.
    """
    for source in (sample.output[0].answer.label, sample.metadata):
        for key in keys:
            if source and source.get(key) is not None:
                return source[key]
    return None


def shown(value: object, limit: int = 60) -> str:
    """A value as a reason may quote it: on one line, printable, shortened in the middle."""
    if isinstance(value, str) and len(value) > 4 * limit:
        value = value[: 2 * limit] + value[-2 * limit :]
    text = repr(value)
    return text if len(text) <= limit else f"{text[: limit // 2]}…{text[-limit // 2 :]}"


_VIEW: Mapping[str, Reader] = {
    "answer": lambda sample, name: final_answer(sample),
    "response": lambda sample, name: final_answer(sample),
    "text": lambda sample, name: sample.answer_text(),
    OPENED: lambda sample, name: sample.thought_opened(),
    "references": references_of,
    "reference": lambda sample, name: references_of(sample, name)[0],
    "prompt": lambda sample, name: conversation_text(sample.input),
    "query": lambda sample, name: conversation_text(sample.input),
    "messages": lambda sample, name: sample.input,
    "output": lambda sample, name: sample.output[0],
    "metadata": lambda sample, name: sample.metadata or {},
    "sample": lambda sample, name: sample,
}
"""By the name of a parameter, what a rule is given; any other name is a column of the answer's
label or the sample's metadata."""


def _results(sample: DataSample, name: str) -> list[str]:
    heard = turns_after(sample.output[0])
    return [turn.text for turn in heard if turn.role is MessageRole.TOOL]


def _each_answer(read: Reader) -> Reader:
    return lambda sample, name: [
        read(copy_with(sample, output=[output]), name) for output in sample.output
    ]


_OF_STEPS: Mapping[str, Reader] = {
    **_VIEW,
    "step": _VIEW["answer"],
    "results": _results,
    "history": lambda sample, name: [*sample.input, *(sample.output[0].steps or ())],
}
_OF_ANSWERS: Mapping[str, Reader] = {
    "answers": _each_answer(_VIEW["answer"]),
    "responses": _each_answer(_VIEW["answer"]),
    "texts": _each_answer(_VIEW["text"]),
    "outputs": lambda sample, name: sample.output,
}
_OF_GROUPS: Mapping[str, Reader] = {
    **_OF_ANSWERS,
    **{name: _VIEW[name] for name in ("references", "reference", "prompt", "query", "messages")},
    **{name: _VIEW[name] for name in ("metadata", "sample")},
}
Mode = Literal["pointwise", "stepwise", "batch"]
_MODES: Mapping[Mode, tuple[Any, Mapping[str, Reader]]] = {
    "pointwise": (RuleReward, _VIEW),
    "stepwise": (BaseStepWiseReward, _OF_STEPS),
    "batch": (BaseListWiseReward, _OF_GROUPS),
}
"""By mode, the base of the reward and what its function is given by which name."""


# -- the decorator ---------------------------------------------------------------------------------


def rule(
    name: str,
    *,
    mode: Mode = "pointwise",
    needs: str | Collection[str] = (),
    source: str = "",
    example: Example | None = None,
    score_range: Bounds = (0.0, 1.0),
    looks_at: Form | Collection[Form] = (),
    killable: bool = False,
    inline: bool | None = None,
    validate: Callable[..., None] | None = None,
    check: Callable[..., object] | None = None,
    replace: bool = False,
) -> Callable[[F], F]:
    """Register a function as the reward `name`; the function itself stays as it is.

    Parameters by name are what it sees of a sample: `answer` or `response` (after a thought, folded
    as references are), `text` (all of it), `thought_opened` (by the prompt: then `text` begins with
    that tag), `references`, `reference` (the first), `prompt` or
    `query`, `messages`, `output`, `metadata`, `sample`; any other name is a column of the answer's
    label or the metadata, and missing is unscored where the parameter has no default. Keyword-only parameters are settings: fields of the reward, checked by
    their annotations (`Annotated[int, Field(ge=1)]`), explained in the docstring under `Args:`.

    It returns a `Score`, a number, a bool, numbers by name, or None for what it does not apply to;
    it raises `Unscored` where there is nothing to judge by. Plain or async.

    With `mode="stepwise"` it scores each turn of a trajectory, or each step of a solution: `step`
    (or `answer`, `text`, `output`) is the turn, `results` are the texts that its tools answered, and
    `history` the messages before it. With `mode="batch"` it is given all answers to one prompt, as
    `answers`, `texts` or `outputs`, and returns something for each. Where scores train, what it
    gives no score is tried with other answers in its place, and may have the worst one: of a step
    that is not to be judged it raises `Unscored(…, cause="data")`.

    Args:
        name: what `RewardRegistry` holds it under. The class of rewards, such as `F1ScoreReward` for
            `f1_score`, stands in the function's module.
        mode: what one call judges: an answer, a step (`stepwise`), or all answers to a prompt
            (`batch`).
        needs: what it cannot do without beside the answer: an extra; `reference`, where no parameter
            says so.
        source: the paper or the benchmark's rule it follows; the last sentence of its documentation.
        example: a sample that fits it.
        score_range: lowest and highest score; None where there is no bound.
        looks_at: forms of a text that matter to it; others are the same to it by a contract.
        killable: whether a text can keep it busy for ever: it runs in a process that is killed after
            the setting `timeout`.
        inline: whether it is over at once and may be called on the thread that asks for it, where
            nothing watches its clock. None is True for the library's own rules, and False for
            others: they run on the engine's threads, under its deadline.
        validate: called with the settings it names when a reward is made; raises ConfigError for
            settings that do not fit together.
        check: called with the settings it names before a run; raises MissingExtra, or ConfigError
            where no answer could be scored at all.
        replace: take the place of another reward of this name.

    Raises:
        ConfigError: the range is empty, or the name is another reward's, as `RewardRegistry.register`
            says; the mode is none, is no answer's and the rule killable, or is `batch` and the
            function names nothing that holds all answers.
    """
    facts: dict[str, Any] = {
        "score_range": checked_bounds(score_range, f"rule: score_range of {name}"),
        "needs": frozenset([needs] if isinstance(needs, str) else needs),
        "looks_at": frozenset([looks_at] if isinstance(looks_at, str) else looks_at),
    }
    if mode not in _MODES or (killable and mode != "pointwise"):
        problem = f"rule '{name}': mode is {mode!r:.80}"
        raise ConfigError(
            f"{problem}; killable=True takes 'pointwise'."
            if mode in _MODES
            else f"{problem}; give one of {', '.join(_MODES)}."
        )
    base = KillableRule if killable else _MODES[mode][0]
    if example is not None:
        facts["example"] = example
    if check is not None:
        facts["check"] = _with_settings(check)
    if validate is not None:
        validated = _with_settings(validate)

        def model_post_init(self: Any, context: Any) -> None:
            base.model_post_init(self, context)
            validated(self)

        facts["model_post_init"] = model_post_init

    def decorated(function: F) -> F:
        waits = inspect.iscoroutinefunction(function)
        at_once = not is_users(function.__module__) if inline is None else inline
        own: dict[str, Any] = {"_evaluate": _evaluate_async if waits else _evaluate}
        if mode == "pointwise":
            own["inline"] = at_once and not killable and not waits
        if mode == "stepwise":
            heard = "results" in inspect.signature(function).parameters
            own["kind"] = TURNWISE if heard else TURNWISE_UNHEARD
        if mode == "batch":
            own["kind"] = EACH_TOGETHER
        made = _reward_class(function, name, mode, base, source, facts | own)
        RewardRegistry.register(name, made, replace=replace)
        # where pickles, and whoever imports the class by its name, look for it
        setattr(sys.modules[function.__module__], made.__name__, made)
        function.__dict__["rule_class"] = made
        return function

    return decorated


def rule_class_of(value: object) -> type[BaseReward] | None:
    """The class of rewards of a function under `@rule`; None for anything else."""
    made: type[BaseReward] | None = getattr(value, "__dict__", {}).get("rule_class")
    return made if inspect.isfunction(value) else None


def _reward_class(
    function: Callable[..., Any],
    name: str,
    mode: Mode,
    base: Any,
    source: str,
    facts: Mapping[str, Any],
) -> Any:
    # not typing.get_type_hints: before Python 3.11 it makes `None` a type of what it defaults to
    parameters = inspect.signature(function, eval_str=True).parameters.values()
    text, explained = documentation(inspect.getdoc(function) or "")
    settings = [p for p in parameters if p.kind is p.KEYWORD_ONLY]
    seen, known_names = [p for p in parameters if p.kind is not p.KEYWORD_ONLY], _MODES[mode][1]
    if mode == "batch" and _OF_ANSWERS.keys().isdisjoint(p.name for p in seen):
        raise ConfigError(
            f"rule '{name}': mode='batch' gives it all answers to a prompt, and it names none of "
            f"{', '.join(_OF_ANSWERS)}."
        )
    readers = [known_names.get(p.name) or _reader(p) for p in seen]

    def scorer(self: Any) -> Scorer:
        own = self.name
        chosen = {setting.name: getattr(self, setting.name) for setting in settings}
        if len(readers) == 1:
            [read] = readers
            return lambda sample: function(read(sample, own), **chosen)
        return lambda sample: function(*[read(sample, own) for read in readers], **chosen)

    body: dict[str, Any] = {
        "__module__": function.__module__,
        "__qualname__": rule_class_name(name),
        "__doc__": f"{text} Source: {source}." if source and text else text,
        "__annotations__": {
            p.name: Any if p.annotation is p.empty else p.annotation for p in settings
        },
        "name": name,
        "rule": staticmethod(function),
        "scorer": scorer,
        **facts,
        "needs": facts["needs"] | ({"reference"} & {p.name.removesuffix("s") for p in seen}),
    }
    for setting in settings:
        default = setting.default
        if default is setting.empty:
            raise ConfigError(f"rule '{name}': the setting '{setting.name}' has no default.")
        if not isinstance(default, FieldInfo):
            default = Field(default, description=explained.get(setting.name))
        body[setting.name] = default
    return RewardMeta(rule_class_name(name), (base,), body)


def _evaluate(self: Any, sample: DataSample, **kwargs: Any) -> Any:
    try:
        return _scores_returned(self, self.scorer()(sample), sample)
    except Unscored as error:
        raise _named(self.name, error) from error


async def _evaluate_async(self: Any, sample: DataSample, **kwargs: Any) -> Any:
    try:
        return _scores_returned(self, await self.scorer()(sample), sample)
    except Unscored as error:
        raise _named(self.name, error) from error


def _scores_returned(reward: Any, returned: Any, sample: DataSample) -> Any:
    """What a rule returned, as a score, or as one for each of several answers."""
    if not reward.kind.each:
        return score_of_rule(returned, reward.name)
    n = len(sample.output)
    many = isinstance(returned, Sequence) and not isinstance(returned, str | bytes)
    if not many or len(returned) != n:
        gave = f"{len(returned)} results" if many else type(returned).__name__
        raise TypeError(f"{reward.name} returned {gave} for {n} answers; it returns one for each.")
    return [_score_or_none(reward.name, one) for one in returned]


def _score_or_none(name: str, value: Any) -> Score[Any]:
    try:
        return score_of_rule(value, name)
    except Unscored as error:
        return score_of_error(_named(name, error))


def _with_settings(function: Callable[..., object]) -> Callable[[Any], None]:
    names = tuple(inspect.signature(function).parameters)

    def called(self: Any) -> None:
        function(**{name: getattr(self, name) for name in names})

    return called


def _reader(parameter: inspect.Parameter) -> Reader:
    column = parameter.name

    def read(sample: DataSample, reward: str) -> Any:
        value = known(sample, column)
        if value is not None:
            return value
        if parameter.default is parameter.empty:
            message = f"{reward} needs '{column}' in answer.label or metadata."
            raise Unscored(message, reason=f"no_{column}")
        return parameter.default

    return read


def _named(name: str, error: BaseException) -> BaseException:
    """The error; one that says that there is nothing to judge by names the rule."""
    if not isinstance(error, Unscored):
        return error
    message = str(error)
    return Unscored(
        message if message.startswith(name) else f"{name}: {message}",
        reason=error.reason,
        cause=error.cause,
    )


def score_of_rule(value: Any, name: str) -> Score[Any]:
    """What the rule of this name returned, as a score; Unscored where it says that there is none."""
    if type(value) is float:
        return Score(value)
    if isinstance(value, Score):
        return value if is_plain(value) else score_of_result(value, name)
    if value is None:
        raise Unscored("the rule does not apply to this answer.")
    if isinstance(value, Mapping):
        return score_of_result(Score(details=tuple(starmap(Detail, value.items()))), name)
    return score_of_result(Score(value), name)
