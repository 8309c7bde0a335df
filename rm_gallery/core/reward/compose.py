"""Rewards made of rewards: gates, cascades and weighted sums, in which what need not be asked is
not asked.
"""

from __future__ import annotations

import asyncio
import math
import operator
from collections import Counter
from collections.abc import (
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextvars import ContextVar, copy_context
from dataclasses import replace
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias, TypeVar

from pydantic import Field, SerializeAsAny, field_validator, model_validator

from rm_gallery.core.data.schema import DataOutput, DataSample
from rm_gallery.core.engine.context import current_deadline, current_run
from rm_gallery.core.engine.repeat import current_repeat
from rm_gallery.core.reward.judges import asks_a_model, lacking, resolved_judge
from rm_gallery.core.reward.kinds import EACH_ALONE, EACH_IN_PAIRS, EACH_TOGETHER, Kind
from rm_gallery.core.reward.outputs import METRICS, PARTS, inside, said_of
from rm_gallery.core.reward.resolve import as_part
from rm_gallery.core.reward.reward import KIND, BaseReward
from rm_gallery.core.reward.run import scores_of_one
from rm_gallery.core.score import (
    NOT_BEGUN,
    Bounds,
    Missing,
    Score,
    check_inside,
    deciding,
    finite_score,
    missing_policy,
    score_of_error,
    scored,
    unscored,
    worst_of,
)
from rm_gallery.core.utils.errors import ConfigError, ScoreError
from rm_gallery.core.utils.models import Configured, copy_with
from rm_gallery.core.utils.names import check_known

STAGES, TURNS = "stages", "turns"
"""Further keys of a composition's extra data: what became of each stage, and the reward of each turn.
"""
NOT_ASKED = "not asked"
"""What became of a stage behind the one that decided."""
NEAR = 1e-9
R = TypeVar("R")
Hooks = dict[str, Any]
Scores = Mapping[str, Score[Any]]
"""What was said of one output, by part."""


class Savings(NamedTuple):
    """How often a part was asked and how often it did not have to be."""

    asked: int
    saved: int

    @property
    def share(self) -> float:
        """Share of the judgements saved, [0, 1]."""
        return self.saved / max(1, self.asked + self.saved)


class Composition(BaseReward):
    """What all compositions share: how parts are asked, and how what comes of it gets to the
    outputs.

    A composition of rewards that score answers by themselves is one of those (`pointwise`). With a
    part that compares it is a `listwise` one: that part is then asked once about all the answers
    that reached it.

    Parts that are judged by a model and have no judge yet, such as those given by name, take `llm`
    (and its `base_url`) when it is built, or later the judge of what uses it: an adapter, a
    command, a server. Used without one it raises ConfigError.
    """

    def parts(self) -> dict[str, BaseReward]:
        """The rewards it is made of, by the name under which each is reported."""
        raise NotImplementedError(f"{type(self).__name__} says what its parts are.")

    made_of_parts: ClassVar[bool] = True

    @property
    def kind(self) -> Kind:  # type: ignore[override]  # it follows from the parts
        """`listwise` where a part compares, tried in pairs where a part compares pairs."""
        kind: Kind | None = self.__dict__.get(KIND)
        if kind is None:
            sizes = {part.kind.trial_size for part in self.parts().values()}
            kind = EACH_ALONE if sizes <= {1} else EACH_IN_PAIRS if 2 in sizes else EACH_TOGETHER
            self.__dict__[KIND] = kind
        return kind

    @property
    def least_workers(self) -> int:
        """The most that a part needs."""
        return max(part.least_workers for part in self.parts().values())

    @property
    def llm(self) -> Any:
        """The model that judges for the first part that has one, None where none does."""
        judges = (getattr(part, "llm", None) for part in self.parts().values())
        return next((judge for judge in judges if judge is not None), None)

    @classmethod
    def _with_judge(cls, parts: str, settings: dict[str, Any]) -> dict[str, Any]:
        """The settings without `llm` and `base_url`, which are the judge of those parts that lack
        one.
        """
        judge = settings.pop("llm", None), settings.pop("base_url", None)
        if parts in settings:
            settings[parts] = resolved_judge(settings[parts], *judge, cls.__name__)
        return settings

    def describe(self) -> dict[str, Any]:
        """As of every reward; the parts tell their own models."""
        identity = super().describe()
        identity.pop("llm", None)
        return identity

    def notes(self) -> tuple[str, ...]:
        """What a reader of its scores has to know about its parts, a sentence each."""
        return ()

    def check(self) -> None:
        """Raise ConfigError when one of the parts could score nothing at all."""
        if missing := lacking(self):
            are = "is" if len(missing) == 1 else "are"
            raise ConfigError(
                f"{self.name}: {', '.join(dict.fromkeys(missing))} {are} judged by a model and "
                f"none is named; say which with --llm MODEL, or llm= of {type(self).__name__} or "
                f"of what uses it."
            )
        for part in self.parts().values():
            part.check()

    def kept_parts(self, extras: Mapping[int, Any]) -> Iterator[tuple[BaseReward, list[int]]]:
        """Its parts, and in the place of compositions in which a model is asked the parts of those."""
        for name, part in self.parts().items():
            reached = [at for at, extra in extras.items() if inside(extra, METRICS, name)]
            if part.made_of_parts and asks_a_model(part):
                yield from part.kept_parts({at: inside(extras[at], PARTS, name) for at in reached})
            elif reached:
                yield part, reached

    async def _evaluate(self, sample: DataSample, **kwargs: Any) -> list[Score[float]]:
        outer = _asked_parts.get()
        if outer is not None and outer.is_about(sample):
            return await self._composed(sample, kwargs)
        asked = _AskedParts(sample)
        token = _asked_parts.set(asked)
        try:
            return await self._composed(sample, kwargs)
        finally:
            _asked_parts.reset(token)
            asked.cancel()

    async def _composed(self, sample: DataSample, hooks: Hooks) -> list[Score[float]]:
        """The score of each output; asks all parts at once about all outputs."""
        parts, everyone = self.parts(), list(range(len(sample.output)))
        asked = [self._asked(part, sample, everyone, hooks) for part in parts.values()]
        by_output = zip(*await together_or_none(asked), strict=True)
        return [
            self._made_whole(dict(zip(parts, scores, strict=True)), output)
            for scores, output in zip(by_output, sample.output, strict=True)
        ]

    def _made_whole(self, scores: Scores, output: DataOutput) -> Score[float]:
        """The score of one output from those of the parts."""
        raise NotImplementedError

    def _refused(self, why: str) -> ConfigError:
        return ConfigError(f"{type(self).__name__}: {why}")

    async def _asked(
        self, part: BaseReward, sample: DataSample, at: list[int], hooks: Hooks
    ) -> list[Score[Any]]:
        """What a part says of these outputs of the sample."""
        chosen = (
            sample
            if len(at) == len(sample.output)
            else copy_with(sample, output=[sample.output[i] for i in at])
        )
        run = current_run.get()
        if not (self.finds_blame_in_parts and run is not None and run.probes):
            return await self._asked_once(part, chosen, hooks)
        judged = await part.async_evaluate(chosen, hooks=hooks or None, blame="probe")
        return [said_of(part, output) for output in judged.output]

    async def _asked_once(
        self, part: BaseReward, sample: DataSample, hooks: Hooks
    ) -> list[Score[Any]]:
        """What a part says, which stands under several names, and at any depth, of one composition."""
        asked = _asked_parts.get()
        if asked is None or not part.deterministic:
            return await scores_of_one(part, sample, hooks)
        # another part may ask the same judge about some of the answers; rules are asked together,
        # which costs less than what it would spare
        if len(sample.output) > 1 and not part.compares and asks_a_model(part):
            alone = [copy_with(sample, output=[output]) for output in sample.output]
            each = [self._asked_once(part, one, hooks) for one in alone]
            return [score for [score] in await together_or_none(each)]
        # who runs out of time leaves it to the others
        return await asyncio.shield(asked.of(part, sample, hooks))


class _AskedParts:
    """What the parts of one composition say of one sample, each of which is asked once however often
    it stands there.
    """

    def __init__(self, sample: DataSample) -> None:
        self._sample, self._run, self._deadline = sample, current_run.get(), current_deadline.get()
        self._asked: dict[Any, list[tuple[BaseReward, asyncio.Future[list[Score[Any]]]]]] = {}

    def is_about(self, sample: DataSample) -> bool:
        """Whether a composition that judges this sample is a part of the one that is asked: a part of
        a user's own may ask a composition about texts that it made up, or with another reference.
        """
        ours = self._sample.__dict__
        return current_run.get() is self._run and all(
            {*map(id, value)} <= {*map(id, ours[name])} if name == "output" else value is ours[name]
            for name, value in sample.__dict__.items()
        )

    def of(
        self, part: BaseReward, sample: DataSample, hooks: Hooks
    ) -> asyncio.Future[list[Score[Any]]]:
        """What the part says of the sample, or will."""
        key = part.settings_hash, current_repeat(), *map(id, sample.output)
        asked = self._asked.setdefault(key, [])
        for other, scores in asked:
            if _is_same(part, other) and part.says_the_same:
                return scores
        # not in the time of the one who asks first: another may have more
        context = copy_context()
        context.run(current_deadline.set, self._deadline)
        scores = context.run(asyncio.ensure_future, scores_of_one(part, sample, hooks))
        asked.append((part, scores))
        return scores

    def cancel(self) -> None:
        """Nobody waits any more."""
        for asked in self._asked.values():
            for _, scores in asked:
                scores.cancel()


def _is_same(one: BaseReward, other: BaseReward) -> bool:
    """Whether both say the same of everything, in the same time.

    Equal settings are not enough: two classes or functions that one function made have one name,
    and private attributes are no settings.
    """
    try:
        return one is other or bool(one == other)
    except Exception:  # noqa: BLE001 - what cannot be compared, such as arrays, is another one
        return False


_asked_parts: ContextVar[_AskedParts | None] = ContextVar("rm_gallery_asked_parts", default=None)
"""The parts of the composition that is judged, as far as they were asked."""


class Combination(NamedTuple):
    """How several scores become one."""

    combine: Callable[[Mapping[str, float]], tuple[float, str]]
    """One number out of scores by name, and how it is made up; ScoreError where it is none."""
    missing: Missing = "none"
    """For a score there is not: `none` gives none, `skip` combines the others, a number stands in.
    """
    least: int = 1
    """So many scores there have to be where others are skipped."""

    def __call__(self, scores: Mapping[str, Score[float]]) -> Score[float]:
        """The whole, or why there is none: of several missing scores one decides who caused it."""
        lost = {name: score for name, score in scores.items() if score.value is None}
        values = {name: score.value for name, score in scores.items() if score.value is not None}
        # what the run did not get to is judged when it is continued, and no policy is for it
        not_begun = any(score.code in NOT_BEGUN for score in lost.values())
        none = self.missing == "none" or not_begun
        if lost and (none or (self.missing == "skip" and len(values) < self.least)):
            why = "; ".join(_by(name, score.reason) for name, score in lost.items())
            return deciding(lost.values()).without_value(why)
        if not isinstance(self.missing, str):
            values |= dict.fromkeys(lost, float(self.missing))
        try:
            return scored(*self.combine(values))
        except ScoreError as error:
            return score_of_error(error)


How = Literal["weighted_mean", "min", "max", "geometric_mean"]
"""How scores become one, by name."""
Scale: TypeAlias = tuple[Bounds, bool]
"""Range of scores, and whether a higher one is better."""
NORMALIZED: Scale = (0.0, 1.0), True
OPEN: Scale = (None, None), True


def _mean(weights: Sequence[float], scores: Iterable[float]) -> float:
    return math.fsum(map(operator.mul, weights, scores)) / math.fsum(weights)


def _geometric_mean(weights: Sequence[float], scores: Iterable[float]) -> float:
    return math.exp(_mean(weights, [math.log(s) if s > 0 else -math.inf for s in scores]))


_FORMULAS: Mapping[How, Callable[[Sequence[float], Sequence[float]], float]] = {
    "weighted_mean": _mean,
    "min": lambda weights, scores: min(scores),
    "max": lambda weights, scores: max(scores),
    "geometric_mean": _geometric_mean,
}


def combined(how: How, terms: Mapping[str, tuple[float, float]]) -> float:
    """One number out of (weight, score) by name; weights are 0 or more, and count relative to each
    other. A geometric mean is 0 where a score is 0 or less. ScoreError where it is no finite number.

    >>> combined("weighted_mean", {"a": (3.0, 1.0), "b": (1.0, 0.0)})
    0.75
    """
    weights, scores = zip(*terms.values(), strict=True)
    try:
        value = _FORMULAS[how](weights, scores)
    except OverflowError:
        value = math.inf
    if not math.isfinite(value):
        raise ScoreError(f"The combined score is {value}.")
    return value


def common_scale(scales: Collection[Scale], normalize: bool | None) -> Scale | None:
    """The scale on which scores of these are combined: theirs where all share one on which higher is
    better, else [0, 1], 1 being best; always that where `normalize` is True. None where they differ
    and it is False.
    """
    alike = len(scales) <= 1
    as_it_is = alike and all(higher for _, higher in scales)
    if normalize or (normalize is None and not as_it_is):
        return NORMALIZED
    return next(iter(scales), OPEN) if alike else None


def noted(
    outcome: Score[float],
    scores: Scores,
    stages: Mapping[str, str] | None = None,
    turns: Sequence[float | None] = (),
) -> Score[float]:
    """A composition's outcome with what its parts said, what became of each stage, and the reward of
    each turn.
    """
    found_out = {name: _found_out(score) for name, score in scores.items()}
    extra = {
        METRICS: {name: metric(score.value, _reason(score)) for name, score in scores.items()},
        STAGES: stages,
        PARTS: {name: extra for name, extra in found_out.items() if extra},
        TURNS: turns,
    }
    return replace(outcome, extra={key: value for key, value in extra.items() if value})


def _reason(score: Score[Any]) -> str:
    """Why a part gave this score, or none; of steps, why the last one did."""
    return score.reason if score.value is None else _last(score).reasons


def _last(score: Score[Any]) -> Score[Any]:
    return score.steps[-1] if score.steps else score


def _found_out(score: Score[Any]) -> dict[str, Any]:
    """What a part found out besides its score: of steps, the last one and who caused that any is
    missing.
    """
    extra = {**_last(score).components, **_last(score).extra}
    if any("caused_by" in step.extra for step in score.steps):
        extra["caused_by"] = "answer"
    return extra


def metric(score: float | None, reason: str = "") -> dict[str, Any]:
    """A component of a score in the layout of a function reward's metrics; None where it could not
    be told.
    """
    return {
        "score": 0.0 if score is None else score,
        "is_score_valid": score is not None,
        "reason": reason,
    }


def _by(name: str, reason: str) -> str:
    """The reason with the name of the part that gave it, once."""
    return reason if reason.startswith((f"{name}:", f"{name} ")) else f"{name}: {reason}"


def _best_of(part: BaseReward) -> float | None:
    return worst_of(part.score_range, not part.higher_is_better)


def _scale_of(part: BaseReward) -> Scale:
    return part.score_range, part.higher_is_better


def _on_scale(part: BaseReward, value: float, scale: Scale) -> float:
    """A part's score on the scale of its composition, which is its own or [0, 1]."""
    return part.normalized(value) if scale == NORMALIZED else value


def _reaches(score: float, limit: float, higher_is_better: bool) -> bool:
    return score >= limit - NEAR if higher_is_better else score <= limit + NEAR


class Stage(Configured):
    """One reward of a cascade, and when the cascade ends with it.

    Args:
        reward: anything `as_part` takes.
        stop_below: a score worse than this ends the cascade with its `otherwise`, in the units of
            the reward. In a stage before the last that has neither limit it is the best score the
            reward can give: a plain gate.
        stop_above: a score this good or better ends the cascade with this score: the stage is sure.
        no_score: what an answer without a score here means: `stop` ends the cascade without a
            score, `next` goes on, for a small judge in front of a larger one.
    """

    reward: SerializeAsAny[BaseReward]
    stop_below: float | None = Field(default=None, allow_inf_nan=False)
    stop_above: float | None = Field(default=None, allow_inf_nan=False)
    no_score: Literal["stop", "next"] = "stop"

    def __init__(self, reward: Any = None, **limits: Any) -> None:
        """Take the reward and its limits."""
        super().__init__(**{"reward": reward, **limits})

    @field_validator("reward", mode="before")
    @classmethod
    def _as_part(cls, value: Any) -> BaseReward:
        return as_part(value)

    @model_validator(mode="after")
    def _in_order(self) -> Stage:
        low, high, part = self.stop_below, self.stop_above, self.reward
        if low is None:
            return self
        best, better = _best_of(part), part.higher_is_better
        if best is not None and not _reaches(best, low, better):
            raise ValueError(
                f"stop_below is {low:g} (threshold of a Gate), and the best score of {part.name} "
                f"is {best:g}, so that nothing would pass; give a score that it reaches"
            )
        if high is not None and not _reaches(high, low, better):
            raise ValueError(
                f"stop_below is {low} and stop_above {high}; for {part.name} the second "
                f"must be the better score"
            )
        return self


class Cascade(Composition):
    """Asks rewards one after another, the cheap ones first, and ends with the first that decides.

    `Cascade(format_rule, Stage(small_judge, stop_below=0.2, stop_above=0.8), large_judge)`: a stage
    before the last is a `Stage`, or a reward alone, which is then a gate: what does not get its
    best score stops there.

    An answer's score is `otherwise` where a stage stopped it, else the score of the stage that
    decided. Where the deciding stages have different ranges or directions their scores are
    normalised to [0, 1]. A stage without a score ends the cascade without a score, for the stage's
    reason, unless its `no_score` is `next`; a score is never made of a missing one. The extra data
    hold every part's score (`metrics`) and what became of each stage (`stages`); `savings` counts
    them.
    """

    stages: list[Stage] = Field(min_length=2)
    otherwise: float = Field(default=math.nan)
    """The score of an answer that a stage stopped; by default the worst score there is."""

    def __init__(self, *stages: Any, **settings: Any) -> None:
        """Take the stages in their order, and the settings of any reward."""
        if "otherwise" in settings:  # NaN, the default, is the worst score there is
            settings["otherwise"] = finite_score("otherwise", settings["otherwise"])
        if stages:
            settings["stages"] = [
                stage if isinstance(stage, Stage) else Stage(stage) for stage in stages
            ]
        super().__init__(**self._with_judge("stages", settings))

    def model_post_init(self, context: Any) -> None:
        """Fill in limits, range and the score of what is stopped."""
        *before, last = self.stages
        if last.stop_below is not None or last.stop_above is not None:
            raise self._refused(
                f"{last.reward.name} comes last and decides anyway; drop its limits."
            )
        object.__setattr__(self, "stages", [*map(self._filled, before), last])
        scale = self._scale()
        if scale == NORMALIZED:
            for part in self._deciding():
                part.normalized(0.0)  # raises for a range without bounds
        if math.isnan(self.otherwise):
            worst = worst_of(*scale)
            if worst is None:
                raise self._refused(
                    f"the scores of {last.reward.name} have no worst one; say with otherwise= what "
                    f"an answer gets that is stopped."
                )
            object.__setattr__(self, "otherwise", float(worst))
        super().model_post_init(context)

    def _filled(self, stage: Stage) -> Stage:
        """The stage as a plain gate, where it has neither limit."""
        if stage.stop_below is not None or stage.stop_above is not None:
            return stage
        part = stage.reward
        limit = _best_of(part) if part.threshold is None else part.threshold
        if limit is None:
            raise self._refused(
                f"the scores of {part.name} have no best one; say from which score on an answer "
                f"passes (threshold= of a Gate, stop_below= of a Stage)."
            )
        return stage.model_copy(update={"stop_below": float(limit)})

    def parts(self) -> dict[str, BaseReward]:
        """The stages' rewards."""
        return _named([stage.reward for stage in self.stages])

    def _deciding(self) -> list[BaseReward]:
        *before, last = self.stages
        return [*(stage.reward for stage in before if stage.stop_above is not None), last.reward]

    def _scale(self) -> Scale:
        """That of the deciding stages, [0, 1] where they differ."""
        scales = {_scale_of(part) for part in self._deciding()}
        return scales.pop() if len(scales) == 1 else NORMALIZED

    @property  # type: ignore[misc]  # it follows from the parts
    def score_range(self) -> Bounds:  # type: ignore[override]
        """The range of the deciding stages, widened by `otherwise`."""
        (low, high), _ = self._scale()
        return (
            None if low is None else min(low, self.otherwise),
            None if high is None else max(high, self.otherwise),
        )

    @property  # type: ignore[misc]  # it follows from the parts
    def higher_is_better(self) -> bool:  # type: ignore[override]
        """The direction of the deciding stages; higher where they were normalised."""
        return self._scale()[1]

    async def _composed(self, sample: DataSample, hooks: Hooks) -> list[Score[float]]:
        scores: list[dict[str, Score[Any]]] = [{} for _ in sample.output]
        states: list[dict[str, str]] = [{} for _ in sample.output]
        done: dict[int, Score[float]] = {}
        skipped = 0
        for (name, part), stage in zip(self.parts().items(), self.stages, strict=True):
            for i in done:
                states[i][name] = NOT_ASKED
            skipped += len(done)
            going_on = [i for i in range(len(sample.output)) if i not in done]
            if not going_on:
                continue
            for i, score in zip(
                going_on, await self._asked(part, sample, going_on, hooks), strict=True
            ):
                scores[i][name] = score
                states[i][name], outcome = self._after(stage, name, score)
                if outcome is not None:
                    done[i] = outcome
        run = current_run.get()
        if run is not None and skipped:
            run.count("skipped_by_gate", skipped)
        return [noted(done[i], scores[i], states[i]) for i in range(len(sample.output))]

    def _after(self, stage: Stage, name: str, score: Score[Any]) -> tuple[str, Score[float] | None]:
        """What becomes of an output in a stage, and its score if the cascade ends with that."""
        part, value, is_last = stage.reward, score.value, stage is self.stages[-1]
        if value is None:
            goes_on = stage.no_score == "next" and not is_last
            return score.status, None if goes_on else score.without_value(_by(name, score.reason))
        better = part.higher_is_better
        if stage.stop_below is not None and not _reaches(value, stage.stop_below, better):
            reason = f"{name} is {value:g}, {'below' if better else 'above'} {stage.stop_below:g}"
            return "stopped", scored(self.otherwise, reason)
        is_sure = stage.stop_above is not None and _reaches(value, stage.stop_above, better)
        if not is_sure and not is_last:
            return "passed", None
        return "decided", scored(_on_scale(part, value, self._scale()), _reason(score))

    def savings(self, samples: Iterable[DataSample]) -> dict[str, Savings]:
        """Per part, how many answers of samples this cascade has scored it was asked about, and how
        many it was spared.
        """
        written = [output.answer.reward for sample in samples for output in sample.output]
        counts = Counter(
            (name, state == NOT_ASKED)
            for reward in written
            for name, state in inside(reward.extra_data, self.key_in(reward), STAGES).items()
        )
        return {name: Savings(counts[name, False], counts[name, True]) for name in self.parts()}


class Gate(Cascade):
    """A reward behind a cheap condition: where the condition fails, the score is the worst one and
    the reward is not asked.

    `Gate("think_format", judge)`. The score is the guarded reward's, in its units. A condition
    without a score gives none: the answer is unscored or failed as the condition was, and the
    guarded reward is not asked either.

    Args:
        condition: the cheap reward; anything `as_part` takes.
        then: the reward behind it.
        threshold: the score from which on the condition holds, in its own units; by default its
            best score, of a grader its own threshold.
        otherwise: the score where it does not hold; by default the worst one of `then`.
        name: the name under which scores are recorded.
    """

    def __init__(
        self,
        condition: Any = None,
        then: Any = None,
        threshold: float | None = None,
        **settings: Any,
    ) -> None:
        """Take the condition and what it guards."""
        if "stages" in settings:  # a copy of one
            super().__init__(**settings)
        elif condition is None or then is None:
            raise ConfigError(
                "Gate: it takes a condition and a reward behind it: Gate(condition, then)."
            )
        else:
            super().__init__(Stage(condition, stop_below=threshold), Stage(then), **settings)


class _Weighted(Composition):
    """What compositions of named parts with weights share.

    A subclass says how a part's score is scaled (`_scaled`), how the whole is made (`_combined`,
    a `Combination`), and its `score_range`. Weights are any finite numbers, 1 where none is given:
    what else a formula wants of weights and ranges it checks in `model_post_init`, as `Combined`.
    """

    rewards: dict[str, SerializeAsAny[BaseReward]] = Field(min_length=1)
    weights: dict[str, float] = Field(default_factory=dict)

    def __init__(
        self, parts: Any = None, weights: Mapping[str, float] | None = None, **settings: Any
    ) -> None:
        """Take the parts and their weights."""
        if parts is not None:
            given = (
                parts if isinstance(parts, Mapping) else _named([as_part(part) for part in parts])
            )
            settings["rewards"] = {name: as_part(part) for name, part in given.items()}
        unnamed: Any = weights
        if unnamed is not None and not isinstance(unnamed, Mapping):
            by_name = ", ".join(f"{name!r}: …" for name in settings.get("rewards", ()))
            raise self._refused(
                f"weights is {weights!r:.80}; give them by name: weights={{{by_name}}}."
            )
        super().__init__(
            **{"weights": dict(weights or {}), **self._with_judge("rewards", settings)}
        )

    def model_post_init(self, context: Any) -> None:
        """Check the weights."""
        object.__setattr__(
            self, "weights", checked_weights(type(self).__name__, self.weights, self.rewards)
        )
        super().model_post_init(context)

    def parts(self) -> dict[str, BaseReward]:
        """The rewards by their names."""
        return dict(self.rewards)

    def _made_whole(self, scores: Scores, output: DataOutput) -> Score[float]:
        scaled = {name: self._scaled(name, score) for name, score in scores.items()}
        return noted(self._combined(scaled), scaled)

    def _scaled(self, name: str, score: Score[Any]) -> Score[Any]:
        """What a part said, as it is combined."""
        raise NotImplementedError

    def _combined(self, scores: Scores) -> Score[float]:
        """The whole of an output."""
        raise NotImplementedError


class Combined(_Weighted):
    """Several rewards as one, by a formula: `Combined(parts, how="geometric_mean")`.

    Scores are combined as they are where all parts have one range, on which higher is better; else
    each is first mapped to [0, 1], 1 being best. The formulas are those of the aggregators of
    graders: equal names give equal figures. Range: that of the common scale. All parts are asked at
    once.

    Args:
        parts: rewards by name, or a list of them; anything `as_part` takes.
        how: `weighted_mean`, `min`, `max` or `geometric_mean` (of scores in [0, 1]: one that is 0
            makes it 0).
        weights: by name, 0 or more; 1 where none is given. A part with the weight 0 is asked and
            reported, and does not count.
        missing: for a part without a score: `none` gives none, `skip` combines the others, a number
            on the common scale stands in.
        least: with `skip`, so many parts have to have a score.
        normalize: True maps each score to [0, 1] always, False never: ranges that differ are then a
            ConfigError.

    Raises:
        ConfigError: a weight below 0, or none above 0; a range without bounds that is to be mapped;
            a number for `missing` outside the common scale.

    >>> mixed = Combined({"form": "think_format", "right": "accuracy"}, how="min")
    >>> mixed.score_range
    (0.0, 1.0)
    """

    how: How = "weighted_mean"
    missing: Missing = "none"
    least: int = Field(default=1, ge=1)
    normalize: bool | None = None

    def __init__(
        self, parts: Any = None, weights: Mapping[str, float] | None = None, **settings: Any
    ) -> None:
        """Take the parts and their weights."""
        super().__init__(parts, weights, **settings)

    def model_post_init(self, context: Any) -> None:
        """Check that the parts can be combined."""
        super().model_post_init(context)
        if min(self.weights.values()) < 0 or not any(self.weights.values()):
            raise self._refused(
                f"the weights are {self.weights}; each is 0 or more, and one above 0."
            )
        what = f"{type(self).__name__}: missing"
        object.__setattr__(self, "missing", missing_policy(self.missing, what, "none", "skip"))
        counted = self._counted()
        if self.least > len(counted):
            raise self._refused(f"least is {self.least}, and {len(counted)} parts count.")
        scale = self._scale()
        if scale is None:
            ranges = ", ".join(f"{n} {part.score_range}" for n, part in counted.items())
            raise self._refused(
                f"the ranges or directions of the parts differ, or are not those of the formula "
                f"({ranges}); leave out normalize=False."
            )
        for part in counted.values():
            _on_scale(part, 0.0, scale)  # raises for a range without bounds
        instead = "a number of that range, none or skip"
        check_inside(what, self.missing, "it combines scores of", scale[0], instead)

    def _counted(self) -> dict[str, BaseReward]:
        return {name: part for name, part in self.rewards.items() if self.weights[name]}

    def _scale(self) -> Scale | None:
        scales = {_scale_of(part) for part in self._counted().values()}
        if self.how != "geometric_mean":
            return common_scale(scales, self.normalize)
        return None if self.normalize is False and scales != {NORMALIZED} else NORMALIZED

    @property  # type: ignore[misc]  # it follows from the parts
    def score_range(self) -> Bounds:  # type: ignore[override]
        """That of the common scale."""
        return (self._scale() or OPEN)[0]

    @property  # type: ignore[misc]  # it follows from the parts
    def higher_is_better(self) -> bool:  # type: ignore[override]
        """The direction of the common scale."""
        return (self._scale() or OPEN)[1]

    def _scaled(self, name: str, score: Score[Any]) -> Score[Any]:
        if score.value is None or not self.weights[name]:
            return score
        return replace(
            score, value=_on_scale(self.rewards[name], score.value, self._scale() or OPEN)
        )

    def _combined(self, scores: Scores) -> Score[float]:
        counted = {name: scores[name] for name in self._counted()}
        return Combination(self._of_values, self.missing, self.least)(counted)

    def combine(self, scores: Mapping[str, float]) -> float:
        """One number from the scores of the parts that count, on the common scale, by name; a formula of
        your own stands in its place. ScoreError where it is no finite number.
        """
        return combined(self.how, {name: (self.weights[name], scores[name]) for name in scores})

    def _of_values(self, values: Mapping[str, float]) -> tuple[float, str]:
        terms = ", ".join(f"{name} {value:g}" for name, value in values.items())
        is_own = type(self).combine is not Combined.combine
        return self.combine(values), f"{type(self).__name__ if is_own else self.how} of {terms}"


class WeightedSum(_Weighted):
    """The sum of rewards, each times its weight, as trainers add up the components of a reward; the
    founding `WeightedSumAggregator` averages instead, as `Combined` does by "weighted_mean".

    A weight of 2 counts twice. A penalty is a reward that says how much of a flaw is there, higher
    for more, with a negative weight; it is not turned round as well. A part of which lower is
    better therefore takes a negative weight. The sum is unscored or failed as soon as one part is:
    a missing part is never a 0. All parts are asked at once. A weight counts in the part's own
    units: 0.1 of a judge on 1..10 moves the sum by 0.9, nearly as much as 1 of a rule on 0..1.
    `pays` says what each part can pay, `notes` where that turns the order of the weights round.

    Args:
        parts: rewards by name, or a list of them; anything `as_part` takes.
        weights: by name; 1 where none is given. A part with the weight 0 is asked and reported, and
            does not count.
        normalize: map each part to [0, 1] by its range before it is weighted and reported, so that
            weights compare. A part keeps its direction: a penalty stays one. ConfigError for a part
            with an open range.
    """

    said_if_given: ClassVar[frozenset[str]] = frozenset({*Composition.said_if_given, "normalize"})

    normalize: bool = False

    def __init__(
        self, parts: Any = None, weights: Mapping[str, float] | None = None, **settings: Any
    ) -> None:
        """Take the parts and their weights."""
        super().__init__(parts, weights, **settings)

    def model_post_init(self, context: Any) -> None:
        """Check that the weights fit the parts."""
        super().model_post_init(context)
        for name, part in self.rewards.items():
            if not part.higher_is_better and self.weights[name] > 0:
                raise self._refused(
                    f"lower is better for '{name}' and its weight is {self.weights[name]:g}; give "
                    f"it a negative weight, which makes it a penalty."
                )
            if self.normalize and None in part.score_range:
                raise self._refused(
                    f"normalize maps '{name}' to [0, 1], and its range {part.score_range} is open; "
                    f"give the reward a score_range, or leave out normalize."
                )

    @property  # type: ignore[misc]  # it follows from the parts
    def score_range(self) -> Bounds:  # type: ignore[override]
        """The lowest and the highest sum there can be."""
        ends = list(zip(*self.pays().values(), strict=True))
        lowest, highest = (None if None in end else math.fsum(filter(None, end)) for end in ends)
        return lowest, highest

    def pays(self) -> dict[str, Bounds]:
        """By part the least and the most that it can add to the sum: its weight times its range;
        None where that is open.
        """
        ends = {}
        for name, part in self.rewards.items():
            weight, scale = self.weights[name], (0.0, 1.0) if self.normalize else part.score_range
            # a weight of 0 pays nothing, however far the range goes; -0.0 is no number people read
            low, high = (
                0.0 if not weight else None if bound is None else weight * bound + 0.0
                for bound in scale
            )
            ends[name] = (low, high) if weight >= 0 else (high, low)
        return ends

    def notes(self) -> tuple[str, ...]:
        """What each part can pay, and which one has a larger say than its weight looks like."""
        paid = ", ".join(
            f"{name} {' to '.join('open' if end is None else f'{end:.3g}' for end in ends)}"
            for name, ends in self.pays().items()
        )
        return f"{self.name} is paid by parts: {paid}", *self.uneven()

    def uneven(self) -> list[str]:
        """A sentence for each part whose say (weight times width of its range) is larger than its
        weight looks like.

        That is a part that outweighs one of a larger weight, or whose share of all that can be paid
        is more than twice its share of the weights. Parts with an open range are left out.
        """
        widths = {
            name: high - low
            for name, (low, high) in self.pays().items()
            if low is not None and high is not None
        }
        weights = {name: abs(self.weights[name]) for name in widths}
        whole, total, sentences = math.fsum(widths.values()), math.fsum(weights.values()), []
        for name, width in widths.items():
            larger = [other for other in widths if weights[other] > weights[name] > 0]
            below = [other for other in larger if widths[other] < width - NEAR]
            if below or (larger and width * total > 2 * whole * weights[name] + NEAR):
                other = max(below or larger, key=lambda one: weights[one])
                sentences.append(
                    f"'{name}' has the weight {self.weights[name]:g} and moves the sum by up to "
                    f"{width:.3g}; '{other}' has {self.weights[other]:g} and moves it by "
                    f"{widths[other]:.3g}. With --normalize (normalize=True) weights compare."
                )
        return sentences

    def _scaled(self, name: str, score: Score[Any]) -> Score[Any]:
        part, value, extra = self.rewards[name], score.value, score.extra
        if value is None:
            return score
        if extra.get("caused_by") == "answer" and self.weights[name] < 0 and part.higher_is_better:
            # the least of a penalty would be the most there is for an answer that breaks it
            value = part.score_range[1]
        if value is None:
            lost = unscored(extra["reason"], f"{name} could not judge the answer", "answer")
            return replace(lost, extra=extra)
        if self.normalize:
            share = part.normalized(value)  # 1 is best, and a penalty is to stay one
            value = share if part.higher_is_better else 1.0 - share
        return replace(score, value=value)

    def _combined(self, scores: Scores) -> Score[float]:
        return Combination(
            lambda values: weighted_sum({n: (self.weights[n], v) for n, v in values.items()})
        )(scores)


def weighted_sum(terms: Mapping[str, tuple[float, float]]) -> tuple[float, str]:
    """The sum of weight × score over named terms, and how it is made up; ScoreError where it is no
    finite number.
    """
    reason = " + ".join(f"{weight:g}×{name} {score:g}" for name, (weight, score) in terms.items())
    try:
        total = math.fsum(weight * score for weight, score in terms.values())
    except (OverflowError, ValueError):  # ValueError: inf - inf
        total = math.inf
    if not math.isfinite(total):
        raise ScoreError(f"The weighted sum {reason} is no finite number.")
    return total, reason


async def together_or_none(coroutines: Sequence[Coroutine[Any, Any, R]]) -> list[R]:
    """The results of all, which run at once; what one of them raises ends the others, so that none
    goes on asking.
    """
    tasks = [asyncio.ensure_future(each) for each in coroutines]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()


def checked_weights(
    what: str, weights: Mapping[str, Any], names: Iterable[str]
) -> dict[str, float]:
    """A weight per name, 1 where none is given; ConfigError for one that is no finite number or has
    no such name.
    """
    known = list(names)
    check_known("component", weights, known, f"{what}: weights: ")
    for name, weight in weights.items():
        if (
            isinstance(weight, bool)
            or not isinstance(weight, int | float)
            or not math.isfinite(weight)
        ):
            raise ConfigError(
                f"{what}: the weight of '{name}' is {weight!r:.80}; it is a finite number."
            )
    return {name: float(weights.get(name, 1.0)) for name in known}


def _named(parts: Sequence[BaseReward]) -> dict[str, BaseReward]:
    """Rewards by their names; a name that comes again is numbered."""
    named: dict[str, BaseReward] = {}
    for part in parts:
        name, number = part.name, 2
        while name in named:
            name, number = f"{part.name} {number}", number + 1
        named[name] = part
    return named
