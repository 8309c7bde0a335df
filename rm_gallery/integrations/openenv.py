"""OpenEnv rubrics in both directions: a reward as a rubric of an environment, and a rubric as a
reward.

Written against openenv 0.10. Its containers do arithmetic with what a rubric returns: `Gate` and
`WeightedSum` break on None and let NaN through, so a rubric of ours gives a finite number or
raises, and the outcome is reported as well: on the number (`.outcome`), on the rubric, and in
`observation.metadata`.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

from pydantic import Field

from rm_gallery.core.data.conversation import split_turns
from rm_gallery.core.data.load.padding import fields_in
from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.reward.base_kinds import BasePointWiseReward
from rm_gallery.core.reward.outputs import METRICS
from rm_gallery.core.score import Score
from rm_gallery.core.utils.errors import ConfigError, ScoreError, Unscored
from rm_gallery.core.utils.identity import plain_form
from rm_gallery.integrations.causes import OnError, checked_on_error
from rm_gallery.integrations.scoring import (
    RowScorer,
    TrainerReward,
    finite,
    for_training,
    made_when_asked,
    picked,
)

SCORES = "rubric_scores"
"""Key of an observation's metadata with the scores and components of this step, by rubric name."""
OUTCOMES = "rubric_outcomes"
"""Key of an observation's metadata that says why a rubric gave no score: status, reason and
message.
"""
_RESERVED = ("metadata", "reward", "done")
_PLAIN = (str, int, float, bool, type(None), list, tuple, dict)
_INNER = frozenset(
    ("_rubric_children", "_forward_hooks", "_forward_pre_hooks", "last_score", "_trajectory")
)

Step = tuple[Any, Any]
"""An action and the observation it led to."""


class RubricScore(float):
    """The number a rubric returns, with the outcome it stands for."""

    outcome: Score[float]

    def __new__(cls, value: float, outcome: Score[float]) -> RubricScore:
        """Take the number and what it stands for."""
        made = super().__new__(cls, value)
        made.outcome = outcome
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return RubricScore, (float(self), self.outcome)


# -- a reward as a rubric --------------------------------------------------------------------------


def openenv_rubric(
    reward: object,
    *,
    completion: str | Callable[[Any], Any] | None = None,
    prompt: str | Callable[[Any], Any] = "prompt",
    final_only: bool = False,
    on_error: OnError = "raise",
    **scoring: Any,
) -> Any:
    """A rubric of an OpenEnv environment that scores with `reward`; it is async, picklable and can
    be deep-copied.

    Args:
        reward: whatever `RowScorer` takes.
        completion: the action's field that is the answer, or a function of the action. Without it
            the action itself where it is a text, else its only text field.
        prompt: the observation's field (or key of its metadata) that is the prompt, or a function
            of the observation; a text or messages. An observation without it has an empty prompt.
        final_only: score only the step whose observation is `done`; the others give 0.0, as
            OpenEnv's `TrajectoryRubric` does, and are not judged.
        on_error: what a step without a score gives. "raise" by default, OpenEnv's own rule: a
            rubric has no word for "no score", and a 0.0 would train on it. A number replaces the
            score, and the outcome is reported as well.
        **scoring: `reference`, `columns`, `llm`, `options`, … of `RowScorer`; columns are the
            fields of the observation and the keys of its and the action's metadata.

    After a call `observation.metadata["rubric_scores"]` holds score and components of this step,
    and `["rubric_outcomes"]` why there is no score; `rubric.outcome` is that of the last call to
    finish. Components appear as children, so `named_rubrics()` lists them.

    Raises:
        ConfigError: openenv is not installed, or `RowScorer` refuses its arguments.
    """
    scorer = RowScorer(
        reward, on_error=checked_on_error(on_error, "openenv_rubric", none=False), **scoring
    )
    for_training(scorer, one_by_one="A rubric sees one step.")
    return __getattr__("OpenEnvRubric")(scorer, completion, prompt, final_only)


def _rubric_class() -> type[Any]:
    from openenv.core.rubrics import Rubric as base

    class Component(base):  # type: ignore[misc]  # the base class is openenv's, which is not installed here
        """A component of the reward's score as a child rubric; it scores nothing itself."""

        def forward(self, action: Any, observation: Any) -> float:
            if self.last_score is None:
                raise ConfigError(
                    "a component has a score after its rubric was called, and none of its own."
                )
            return float(self.last_score)

    class OpenEnvRubric(base):  # type: ignore[misc]
        """A reward as a rubric, see `openenv_rubric`."""

        def __init__(
            self, scorer: RowScorer, completion: Any, prompt: Any, final_only: bool
        ) -> None:
            super().__init__()
            self.scorer, self.final_only = scorer, final_only
            self._completion, self._prompt = completion, prompt
            self.outcome: Score[float] | None = None

        async def forward(self, action: Any, observation: Any) -> float:
            if self.final_only and not getattr(observation, "done", False):
                return 0.0
            about = _step_columns(action, observation)
            asked = self._prompt(observation) if callable(self._prompt) else about.get(self._prompt)
            score = await self.scorer.ascore(asked, _answer(action, self._completion), about)
            self.outcome = score
            _write_outcome(observation, self.scorer.name, score)
            for part, value in score.components.items():
                # put into the table of children alone: as an attribute a part called "reset" would
                # hide the method
                child = self._rubric_children.setdefault(part.replace(".", "_"), Component())
                child.last_score = value
            return RubricScore(self.scorer.numbers(score)["score"], score)

    Component.__module__, Component.__qualname__ = __name__, "Component"
    globals()["Component"] = Component
    return OpenEnvRubric


__getattr__ = made_when_asked(
    globals(),
    "OpenEnvRubric",
    _rubric_class,
    "openenv_rubric needs the package 'openenv' ({}). Install it with: pip install openenv",
)


def _fields(thing: Any) -> dict[str, Any]:
    if isinstance(thing, Mapping):
        return dict(thing)
    names = getattr(type(thing), "model_fields", None) or getattr(thing, "__dict__", {})
    return {name: getattr(thing, name) for name in names if not name.startswith("_")}


def _step_columns(action: Any, observation: Any) -> dict[str, Any]:
    """A step's columns: plain values of the action's metadata, the observation's metadata and its
    fields; the last wins.
    """
    seen = _fields(observation)
    row: dict[str, Any] = {}
    for part in (_fields(action).get("metadata"), seen.get("metadata"), seen):
        row |= fields_in(part)
    hidden = (*_RESERVED, SCORES, OUTCOMES)
    return {
        key: value for key, value in row.items() if key not in hidden and isinstance(value, _PLAIN)
    }


def _answer(action: Any, completion: Any) -> Any:
    """The text or messages of an action; ConfigError lists the fields where the choice is
    ambiguous.
    """
    if callable(completion):
        return completion(action)
    if isinstance(action, str | list):
        return action
    fields = {name: value for name, value in _fields(action).items() if name not in _RESERVED}
    if completion is not None:
        what = f"the {type(action).__name__}"
        return picked(fields, completion, (), what, "completion=", "field")
    there = ", ".join(sorted(fields)) or "none"
    texts = [name for name, value in fields.items() if isinstance(value, str)]
    if len(texts) != 1:
        raise ConfigError(
            f"which field of the {type(action).__name__} is the answer? Say it with completion=; "
            f"its fields: {there}"
        )
    return fields[texts[0]]


def _write_outcome(observation: Any, name: str, score: Score[float]) -> None:
    """Write an outcome to the observation's metadata, which goes over the wire as it is."""
    metadata = getattr(observation, "metadata", None)
    if not isinstance(metadata, dict):
        return
    if score.value is None:
        why = {"status": score.status, "reason": score.code, "message": score.reason}
        metadata.setdefault(OUTCOMES, {})[name] = why
        return
    parts = {f"{name}/{part}": value for part, value in score.components.items()}
    metadata.setdefault(SCORES, {}).update({name: score.value, **parts})


class RolloutReward(TrainerReward):
    """`rollout_reward_fn` of TRL's OpenEnv harness: None where there is no score, which TRL keeps
    out of the group.

    Picklable, as TRL's rollout process needs. The rollout's messages are divided into prompt and
    completion as everywhere.
    """

    takes_none = True
    one_by_one = "`trl_reward` gets whole batches."

    def __init__(
        self,
        reward: object,
        *,
        row: Mapping[str, Any] | Callable[[Any], Mapping[str, Any]] | None = None,
        on_error: OnError = "none",
        **scoring: Any,
    ) -> None:
        """Take what `RowScorer` takes, and `row`: the columns, or a module-level function of the
        outcome that gives them.
        """
        super().__init__(reward, on_error=on_error, **scoring)
        self._row = row

    def __call__(self, outcome: Any) -> float | None:
        """Score the rollout's messages."""
        row = self._row(outcome) if callable(self._row) else self._row
        return self.scorer.value(self.scorer.score(*split_turns(outcome.completion), row))


# -- a rubric as a reward --------------------------------------------------------------------------


class _Shown(SimpleNamespace):
    """Attributes for rules to read; a judge's prompt shows only the text, so labels cannot leak
    into it.
    """

    def __str__(self) -> str:
        return str(self._text)


class RubricTree:
    """A rubric, identified by its classes and settings."""

    def __init__(self, rubric: Any) -> None:
        """Take the root; ConfigError for what is no rubric."""
        if not callable(rubric) or not callable(getattr(rubric, "named_rubrics", None)):
            raise ConfigError(
                f"rubric is {rubric!r:.80}; give an object of a class derived from openenv's "
                f"Rubric."
            )
        self.root = rubric

    def all(self) -> Iterator[tuple[str, Any]]:
        """Every rubric with its dotted name, the root's being empty."""
        yield "", self.root
        yield from self.root.named_rubrics()

    def describe(self) -> dict[str, Any]:
        """Class, code and settings of every rubric; ConfigError for a setting that cannot be
        identified.
        """
        return {
            name: {
                "class": plain_form(type(rubric)),
                **plain_form(
                    {
                        name: value
                        for name, value in vars(rubric).items()
                        if name not in _INNER and not _holds_rubrics(value)
                    },
                    f"rubric '{name}'",
                ),
            }
            for name, rubric in self.all()
        }

    def fresh(self) -> Any:
        """A copy for one sample: rubrics and their collected state are new, clients and settings
        are shared.
        """
        shared = (
            value
            for _, rubric in self.all()
            for value in vars(rubric).values()
            if not _holds_rubrics(value)
        )
        made = copy.deepcopy(
            self.root, {id(value): value for value in shared if not isinstance(value, list | dict)}
        )
        for _, rubric in RubricTree(made).all():
            rubric.last_score = None  # so that a member that is skipped has none of an earlier call
        made.reset()
        return made


def _holds_rubrics(value: Any) -> bool:
    parts = (
        value.values()
        if isinstance(value, dict)
        else value
        if isinstance(value, list | tuple)
        else (value,)
    )
    return any(callable(getattr(part, "named_rubrics", None)) for part in parts)


class RubricReward(BasePointWiseReward):
    """An OpenEnv rubric as a reward: `RubricReward(rubric)`, or
    `RubricReward(rubric, to_step=function)`.

    `to_step(sample)` gives the action and the observation of a sample with one output. Without it
    the action has the answer's text as `message` (or as the field `action_field` names) and the
    observation is `done`, with `prompt`, `messages` and `metadata` (the sample's, and the
    `reference`). Each sample is scored by a copy of the rubric, so that scores of members are its
    own. None is unscored, a number that is not finite or an error fails the sample alone.
    """

    rubric: RubricTree
    to_step: Callable[[DataSample], Step] | None = None
    action_field: str = Field(default="message", min_length=1)

    def __init__(self, rubric: Any, **settings: Any) -> None:
        """Take the rubric and, by name, `to_step` or `action_field`."""
        tree = rubric if isinstance(rubric, RubricTree) else RubricTree(rubric)
        super().__init__(**{"rubric": tree, "name": type(tree.root).__name__, **settings})

    async def _evaluate(self, sample: DataSample, **kwargs: Any) -> Score[float]:
        action, observation = (
            self.to_step(sample) if self.to_step is not None else self._step(sample)
        )
        rubric = self.rubric.fresh()
        if inspect.iscoroutinefunction(rubric.forward):
            returned = await rubric(action, observation)
        else:
            returned = await asyncio.to_thread(rubric, action, observation)
            returned = await returned if inspect.isawaitable(returned) else returned
        if returned is None:
            raise Unscored(f"{self.name} gave None.", reason="no_score")
        outcome = getattr(returned, "outcome", None)
        if isinstance(outcome, Score) and outcome.value is None:
            raise Unscored(outcome.reason, reason=outcome.code)
        members = {name: finite(r.last_score) for name, r in RubricTree(rubric).all() if name}
        score = finite(returned)
        if score is None:
            raise ScoreError(f"{self.name} gave {returned!r:.80}; a rubric gives a finite number.")
        metrics = {name: value for name, value in members.items() if value is not None}
        return Score(score, extra={METRICS: metrics})

    def _step(self, sample: DataSample) -> Step:
        answer = sample.output[0].answer
        metadata = {**(sample.metadata or {})}
        reference = sample.reference()
        if reference is not None:
            metadata.setdefault("reference", reference)
        messages = [message.to_openai() for message in sample.input]
        action = _Shown(_text=answer.text, metadata={}, **{self.action_field: answer.text})
        asked = sample.query_text()
        return action, _Shown(
            _text=asked, prompt=asked, messages=messages, metadata=metadata, done=True, reward=None
        )
