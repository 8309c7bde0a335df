"""Aggregators: one training reward out of several graders' results, without hiding what is missing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

from rm_gallery.core.graders.base import as_result, score_of
from rm_gallery.core.graders.results import finite
from rm_gallery.core.reward.compose import (
    NORMALIZED,
    OPEN,
    Combination,
    How,
    Scale,
    combined,
    common_scale,
)
from rm_gallery.core.score import (
    Missing,
    Score,
    check_inside,
    deciding,
    failed,
    finite_score,
    missing_policy,
    out_of_range,
)
from rm_gallery.core.utils.errors import ConfigError, ScoreError
from rm_gallery.core.utils.names import check_known

T = TypeVar("T")


class BaseAggregator:
    """Makes one result per row out of the results of the row's graders.

    Args:
        name: the column it makes.
        on_error: for a grader without a score: `none` (the default, earlier `propagate`) gives an
            error that names it; `skip` goes on with the others, reweighted, and says so in the reason; a number
            stands in for its score, on the common scale.
        normalize: None normalises each score to [0, 1], 1 being best, when the graders' ranges or
            directions differ or lower is better, so that a failed grader changes no scale; True
            always, False never (ranges that differ are then an error).

    The result's metadata hold every component: score, normalised score where there is one, weight,
    and what was skipped. What is no score of the common scale is an error of cause `rule`.
    """

    formula: ClassVar[How | None] = None
    """How scores are combined, where `combine` is not a class's own."""

    def __init__(
        self, name: str, on_error: Missing = "none", normalize: bool | None = None
    ) -> None:
        if not isinstance(name, str) or not name:
            raise ConfigError(
                f"An aggregator's name is a non-empty string, its column; found {name!r}."
            )
        self.name, self.normalize = name, normalize
        self.on_error = missing_policy(on_error, f"{name}: on_error", "none", "skip")

    @property
    def __name__(self) -> str:
        return self.name

    def check(self, graders: Collection[str]) -> None:
        """Raise ConfigError when it cannot work with graders of these names."""

    def check_scales(self, scales: Mapping[str, Scale]) -> None:
        """Raise ConfigError for an `on_error` outside the range of what it combines of graders of
        these scales.
        """
        # of scales that differ, and are to stay as they are, each row says that they do
        bounds, _ = common_scale({*self.wanted(scales).values()}, self.normalize) or OPEN
        what, instead = f"{self.name}: on_error", "a number of that range, none or skip"
        check_inside(what, self.on_error, "it combines scores of", bounds, instead)

    def combine(self, scores: Mapping[str, float]) -> float:
        """One number from the scores by grader name, never empty."""
        if self.formula is None:
            raise NotImplementedError(f"{type(self).__name__} implements combine(scores) -> float.")
        weights = self._weights(scores)
        return combined(self.formula, {name: (weights[name], scores[name]) for name in scores})

    def wanted(self, results: Mapping[str, T]) -> Mapping[str, T]:
        """The components: what has a weight above 0."""
        weights = self._weights(results)
        return {name: results[name] for name in weights if weights[name] > 0 and name in results}

    def _weights(self, names: Iterable[str]) -> Mapping[str, float]:
        """By grader what its score counts: all alike here."""
        return dict.fromkeys(names, 1.0)

    def __call__(self, results: Mapping[str, Any], **_: Any) -> Any:
        """The row's combined result; a GraderError where it has none."""
        components = self.wanted(results)
        outcomes = {name: _outcome(each) for name, each in components.items()}
        graded = {name: each for name, each in components.items() if outcomes[name].ok}
        missing = {name: score.reason for name, score in outcomes.items() if not score.ok}
        metadata: dict[str, Any] = {"components": {}, "missing": missing}
        # an error knows its grader's scale: which one of them failed must not decide the scale of a
        # row
        scale = common_scale(
            {
                (each.range, each.higher_is_better)
                for each in components.values()
                if each.kind == "score" or (not each.ok and each.range != (None, None))
            },
            self.normalize,
        )

        def made_of(scores: Mapping[str, float]) -> tuple[float, str]:
            if not scores:
                raise NotCombined(NOTHING)
            if scale is None:
                ranges = ", ".join(f"{name} {each.range}" for name, each in graded.items())
                differ = f"the graders' ranges or directions differ ({ranges})"
                raise NotCombined(f"{differ}; leave out normalize=False")
            values = dict(scores)  # a number that stands in is on the common scale already
            try:
                if scale == NORMALIZED:
                    values |= {name: each.normalized for name, each in graded.items()}
            except ConfigError as error:
                raise NotCombined(str(error)) from error
            metadata["components"] = {
                name: {"score": each.score, "value": values[name], "reason": each.reason}
                for name, each in graded.items()
            }
            try:
                value = finite(self.combine(values), "the combined score")
            except (OverflowError, ScoreError) as error:  # costs this row its score, not the run
                raise NotCombined("the combined score is inf") from error
            except ValueError as error:
                raise NotCombined(str(error)) from error
            if outside := out_of_range(self.name, value, scale[0]):
                raise NotCombined(outside.reason)
            parts = ", ".join(f"{name} {score:g}" for name, score in values.items())
            what = "skipped" if self.on_error == "skip" else f"taken as {self.on_error}"
            without = f"; {what}: {', '.join(missing)}" if missing else ""
            kind = type(self).__qualname__.removesuffix("Aggregator")
            return value, f"{kind} of {parts}{without}"

        whole = Combination(made_of, self.on_error)(outcomes)
        about: dict[str, Any] = {"name": self.name}
        if whole.ok and scale is not None:
            about["range"], about["higher_is_better"] = scale
        elif self.on_error == "skip" and not graded:
            whole = whole.without_value(NOTHING)
        return as_result(replace(whole, extra=metadata), about)


NOTHING = "no grader gave a score"


class NotCombined(ScoreError):
    """Results of graders make no one number."""

    reason = "aggregate"
    cause = "rule"


def _outcome(result: Any) -> Score[Any]:
    score = score_of(result)
    if isinstance(score.value, tuple):  # why the responses are in this order is no matter here
        return failed("aggregate", type(result).__name__, "rule")
    return score if score.ok else replace(score, reason=result.reason or type(result).__name__)


class WeightedSumAggregator(BaseAggregator):
    """The weighted average; weights are normalised to sum 1, and equal where none are given.

    The name is a founding one: `WeightedSum`, a composition of rewards, sums and does not average.

    With weights only the graders they name count; a name that is no grader's is a ConfigError when
    the runner is built.
    """

    formula = "weighted_mean"

    def __init__(
        self,
        name: str = "weighted_sum",
        weights: Mapping[str, float] | None = None,
        on_error: Missing = "none",
        normalize: bool | None = None,
    ) -> None:
        super().__init__(name, on_error, normalize)
        for grader, weight in (weights or {}).items():
            if (
                isinstance(weight, bool)
                or not isinstance(weight, (int, float))
                or not 0 <= weight <= sys.float_info.max
            ):
                raise ConfigError(
                    f"{name}: the weight of '{grader}' is {weight!r}; it is a number of 0 or more."
                )
        if weights is not None and not sum(weights.values()) > 0:
            raise ConfigError(
                f"{name}: the weights {dict(weights)} sum to 0; one at least is above 0."
            )
        self.weights = None if weights is None else dict(weights)

    def check(self, graders: Collection[str]) -> None:
        """Raise ConfigError for a weight of a grader there is not."""
        check_known("grader", self.weights or (), graders, f"{self.name}: ")

    def _weights(self, names: Iterable[str]) -> Mapping[str, float]:
        return super()._weights(names) if self.weights is None else self.weights


class MinAggregator(BaseAggregator):
    """The lowest score."""

    formula = "min"

    def __init__(
        self, name: str = "min", on_error: Missing = "none", normalize: bool | None = None
    ) -> None:
        super().__init__(name, on_error, normalize)


class MaxAggregator(BaseAggregator):
    """The highest score."""

    formula = "max"

    def __init__(
        self, name: str = "max", on_error: Missing = "none", normalize: bool | None = None
    ) -> None:
        super().__init__(name, on_error, normalize)


class GeometricMeanAggregator(BaseAggregator):
    """The geometric mean of the normalised scores, [0, 1]: one that is 0 makes it 0."""

    formula = "geometric_mean"

    def __init__(self, name: str = "geometric_mean", on_error: Missing = "none") -> None:
        super().__init__(name, on_error, normalize=True)


class GatedAggregator(BaseAggregator):
    """The secondary graders count only where the primary one passes; elsewhere the score is the
    lowest.

    Args:
        primary: the grader that decides.
        threshold: from where on it passes, in its own units; its own threshold where none is given.
        secondary: makes the score of the other graders; their mean by default.
    """

    formula = "min"  # of one alone: what stands in for a primary grader without a score

    def __init__(
        self,
        name: str,
        primary: str,
        threshold: float | None = None,
        secondary: BaseAggregator | None = None,
        on_error: Missing = "none",
    ) -> None:
        super().__init__(name, on_error, normalize=True)
        self.primary, self.threshold = primary, threshold
        if threshold is not None:
            finite_score(f"{name}: threshold", threshold)
        self.secondary = secondary or WeightedSumAggregator(
            f"{name}_secondary", on_error=on_error, normalize=True
        )

    def _others(self, by_grader: Mapping[str, T]) -> dict[str, T]:
        return {name: each for name, each in by_grader.items() if name != self.primary}

    def check(self, graders: Collection[str]) -> None:
        """Raise ConfigError when there is no such primary grader, or no other one."""
        check_known("grader", [self.primary], graders, f"{self.name}: ")
        if len(graders) < 2:
            raise ConfigError(
                f"{self.name}: '{self.primary}' is the only grader; a gate needs another one "
                f"behind it."
            )
        gate = graders[self.primary] if isinstance(graders, Mapping) else None
        unsaid = self.threshold is None and getattr(gate, "threshold", 0.0) is None
        # a user's grader may give a threshold with each of its results
        if unsaid and getattr(gate, "declares_missing", False):
            raise ConfigError(
                f"{self.name}: '{self.primary}' has no threshold; give threshold=, the score from "
                f"where on it passes."
            )
        self.secondary.check(self._others(dict.fromkeys(graders)))

    def check_scales(self, scales: Mapping[str, Scale]) -> None:
        """As every aggregator's, for the secondary one as well, and for a threshold that no score
        of the primary grader can have.
        """
        super().check_scales(scales)
        self.secondary.check_scales(self._others(scales))
        what, who = f"{self.name}: threshold", f"{self.primary} gives"
        check_inside(what, self.threshold, who, scales[self.primary][0], "a score of that range")

    def __call__(self, results: Mapping[str, Any], **_: Any) -> Any:
        """0 where the primary grader does not pass, else the secondary score in [0, 1]."""
        gate = results[self.primary]
        if gate.kind != "score":
            return super().__call__({self.primary: gate})
        try:
            passed = gate.passed(self.threshold)
        except ConfigError as error:  # of a user's grader this is known row by row
            return as_result(failed("aggregate", str(error), "rule"), {"name": self.name})
        if not passed:
            reason = f"{self.primary} is {gate.score:g} and does not pass"
            score = Score(0.0, reason, extra={"passed": False})
            return as_result(score, {"name": self.name, "range": (0.0, 1.0)})
        made = self.secondary(self._others(results))
        noted = {**made.metadata, "passed": True}
        return made.model_copy(update={"name": self.name, "metadata": noted})


def made_by(aggregator: BaseAggregator, results: Mapping[str, Any]) -> Any:
    """What an aggregator makes of a row, read as what a grader returns; also of one with a `__call__`
    of its own.
    """
    about = {"name": aggregator.name}
    try:
        return as_result(score_of(aggregator(results)), about)
    except (ValueError, TypeError) as error:
        return as_result(failed("aggregate", f"{aggregator.name}: {error}", "rule"), about)


class CallableAggregator(BaseAggregator):
    """Any function of {grader name: result} that returns a number or a result; what it raises is
    that row's error.
    """

    def __init__(self, function: Callable[..., Any], name: str = "") -> None:
        own = getattr(function, "__name__", "")
        super().__init__(name or (own if own and not own.startswith("<") else "aggregate"))
        self.function = function

    def __call__(self, results: Mapping[str, Any], **_: Any) -> Any:
        """What the function makes of the results."""
        try:
            whole = score_of(self.function(dict(results)))
        except Exception as error:  # noqa: BLE001 - it costs its own row only, and is told there
            why = f"{type(error).__name__}: {error}"
            lost = {name: score_of(each) for name, each in results.items() if not each.ok}
            whole = failed("aggregate", why, "rule")
            if lost:  # what is made of NaN is not the function's doing
                reasons = "; ".join(f"{name}: {score.reason}" for name, score in lost.items())
                whole = deciding(lost.values()).without_value(f"{why} ({reasons})")
        return as_result(whole, {"name": self.name})
