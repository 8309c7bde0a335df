"""How classes of rewards are made, and the samples that show them."""

from __future__ import annotations

import importlib
import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar

from pydantic import BaseModel, Field
from pydantic.fields import FieldInfo

from rm_gallery.core.data.schema import (
    DataOutput,
    DataSample,
    Reward,
    RewardDimension,
    RewardDimensionWithRank,
    RewardDimensionWithScore,
    RewardIssue,
    Step,
)
from rm_gallery.core.model.message import ChatMessage
from rm_gallery.core.reward.founding import RewardResult
from rm_gallery.core.score import checked_bounds

R = TypeVar("R")
OF_SCORES = ("score_range", "higher_is_better", "threshold")
"""The fields of a reward that say what its scores are."""

__all__ = [
    "Reward",
    "RewardDimension",
    "RewardDimensionWithRank",
    "RewardDimensionWithScore",
    "RewardIssue",
    "RewardResult",
]


if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass
    from typing_extensions import dataclass_transform
else:
    ModelMetaclass = type(BaseModel)

    def dataclass_transform(**_: Any) -> Any:
        """For type checkers alone."""
        return lambda decorated: decorated


def _annotations(namespace: dict[str, Any]) -> dict[str, Any]:
    if "__annotations__" in namespace or "__annotate_func__" not in namespace:
        return dict(namespace.get("__annotations__", {}))
    # Python 3.14 evaluates annotations lazily
    annotationlib = importlib.import_module("annotationlib")
    annotate = annotationlib.get_annotate_from_class_namespace(namespace)
    if annotate is None:
        return {}
    return dict(annotationlib.call_annotate_function(annotate, annotationlib.Format.FORWARDREF))


# so that constructors complete and check
@dataclass_transform(kw_only_default=True, field_specifiers=(Field,))
class RewardMeta(ModelMetaclass):
    """Gives un-annotated class attributes the annotation pydantic asks for.

    `FACTS = {...}` becomes a class variable; `name = "x"`, where a base declares the field `name`,
    a new default for it. What scores are (`OF_SCORES`) is read off a class as well, and a property
    takes the place of the field.
    """

    def __new__(
        mcs, cls_name: str, bases: tuple[type, ...], namespace: dict[str, Any], **kwargs: Any
    ) -> Any:
        """Create the class."""
        inherited: dict[str, Any] = {}
        class_variables: set[str] = set()
        for base in bases:
            for name, info in getattr(base, "model_fields", {}).items():
                inherited.setdefault(name, _declared(info))
            class_variables |= set(getattr(base, "__class_vars__", ()))
        said = frozenset(OF_SCORES).intersection(namespace)
        if len(bases) > 1:
            namespace |= _of_several(bases, set(OF_SCORES) - said)
        annotations = _annotations(namespace)
        for name, value in list(namespace.items()):
            if name in annotations or name.startswith("_") or name == "model_config":
                continue
            if name in OF_SCORES and isinstance(value, property):
                annotations[name] = ClassVar[Any]
            elif name in inherited and (isinstance(value, type) or not _is_behaviour(value)):
                annotations[name] = inherited[name]
            elif name not in class_variables and not _is_behaviour(value):
                annotations[name] = ClassVar[Any]
        if isinstance(bounds := namespace.get("score_range"), Sequence):
            namespace["score_range"] = checked_bounds(bounds, f"score_range of {cls_name}")
        namespace["__annotations__"] = annotations
        with warnings.catch_warnings():  # that a base can be asked for it is on purpose
            warnings.filterwarnings("ignore", f'Field name "({"|".join(OF_SCORES)})" .* shadows')
            made: Any = super().__new__(mcs, cls_name, bases, namespace, **kwargs)
        type.__setattr__(made, "_said_here", said)
        # what scores are, where no instance says otherwise, is read off the class
        for name in made.model_fields.keys() & set(OF_SCORES):
            type.__setattr__(made, name, made.model_fields[name].default)
        return made


def _of_several(bases: tuple[type, ...], names: set[str]) -> dict[str, Any]:
    """What of scores a class inherits from several bases, as in the order of resolution: pydantic
    would take that of the first one, though another says more.
    """
    inherited: dict[str, Any] = {}
    for name in names:
        # per base those who say it, the nearest first
        sayers = [
            [k for k in base.__mro__ if name in vars(k).get("_said_here", vars(k))]
            for base in bases
        ]
        first = list(dict.fromkeys(each[0] for each in sayers if each))
        if len(first) > 1:
            later = {kind for each in sayers for kind in each[1:]}
            nearest = next(kind for kind in first if kind not in later)
            inherited[name] = vars(nearest).get(name, getattr(nearest, name))
    return inherited


def _declared(info: FieldInfo) -> Any:
    """A field's annotation with its bounds and its other name, which a new default leaves as they
    are.
    """
    notes = [
        *info.metadata,
        *([Field(validation_alias=info.validation_alias)] if info.validation_alias else []),
    ]
    form: Any = Annotated
    parts = (info.annotation, *notes)
    return form[parts] if notes else info.annotation


def _is_behaviour(value: Any) -> bool:
    """Whether a class attribute is a function, descriptor or nested class rather than data."""
    return (callable(value) and not isinstance(value, BaseModel)) or hasattr(value, "__get__")


PENALTY = "The scores are penalties: add them to a reward for the task itself."
EMPTY_IS_BEST = f"{PENALTY} Alone, they make an empty answer the best one."


@dataclass(frozen=True)
class PhraseJudge:
    """A scripted judge for examples and tests: it knows each answer by a phrase; `phrases` stand
    best first.

    One reply holds a verdict of every form: the best answer shown, a score from 9 (best) down to 3,
    a score per place, and whether it is equal.
    """

    phrases: tuple[str, ...]

    def __call__(self, prompt: str) -> str:
        """The reply to a prompt that shows one answer or more."""
        step = 6 / max(len(self.phrases) - 1, 1)
        shown = sorted((phrase for phrase in self.phrases if phrase in prompt), key=prompt.index)
        grades = [round(9 - step * self.phrases.index(phrase)) for phrase in shown]
        scores = json.dumps({place: grade / 10 for place, grade in enumerate(grades, 1)})
        best = grades.index(max(grades)) + 1
        equal = "yes" if max(grades) > 5 else "no"
        return f"<best>{best}</best>\n<score>{max(grades)}</score>\n<scores>{scores}</scores>\n<equal>{equal}</equal>"


@dataclass(frozen=True)
class Example:
    """A sample that fits a reward, with everything the reward needs to score it; stands on the
    class as `example`.
    """

    sample: DataSample
    params: dict[str, Any] = field(default_factory=dict)
    """Constructor fields; only where the defaults score nothing, or show too little."""
    judge: PhraseJudge | None = None
    """What replies in place of a model, for a reward that asks one."""
    environment: str = ""
    """What has to be there beside the package, such as bubblewrap; the output is then the recorded
    one.
    """
    recorded: tuple[str, ...] = ()
    """Lines the example prints where that environment is; none where they depend on more than the
    environment.
    """
    note: str = ""
    """What the reader has to know about it, such as what stands in for a model."""
    use: str = ""
    """What the scores are good for, when that is not what those of its kind usually are."""
    inputs: dict[str, str] = field(default_factory=dict)
    """By need, where the reward reads it, when that is not where such a thing usually stands; under
    `answer`, what of the outputs it looks at, when that is not the answer's text alone."""

    def create(self, reward: type[R], **settings: Any) -> R:
        """The reward as the example wants it, with the scripted judge where there is one."""
        from rm_gallery.core.model.base import FakeLLM

        judge = {"llm": FakeLLM(reply=self.judge)} if self.judge is not None else {}
        return reward(**{**judge, **self.params, **settings})


def sample_of(question: str, *answers: str | dict[str, Any], **metadata: Any) -> DataSample:
    """A sample with one user turn and these answers, given as texts or as the fields of a step."""
    fields = [{"content": answer} if isinstance(answer, str) else answer for answer in answers]
    outputs = [
        DataOutput(answer=Step.model_validate({"role": "assistant", **answer})) for answer in fields
    ]
    return DataSample(
        input=[ChatMessage(content=question)], output=outputs, metadata=metadata or None
    )
