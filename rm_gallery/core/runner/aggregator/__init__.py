"""Aggregators: one training reward out of several graders' results, without hiding what is missing."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, TypeAlias, TypeVar

from rm_gallery.core.graders.base import GraderError, GraderResult, GraderScore
from rm_gallery.core.reward.compose import Combination
from rm_gallery.core.score import (
    Bounds,
    Missing,
    Score,
    failed,
    missing_policy,
    out_of_range,
    scored,
)
from rm_gallery.core.utils.errors import ConfigError, ScoreError
from rm_gallery.core.utils.models import unknown_name

T = TypeVar("T")
Scale: TypeAlias = tuple[Bounds, bool]
"""Range of a grader's scores, and whether a higher one is better."""


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
    and what was skipped.
    """

    takes_weights: ClassVar[bool] = False

    def __init__(
        self, name: str, on_error: Missing = "none", normalize: bool | None = None
    ) -> None:
        if not isinstance(name, str) or not name:
            raise ConfigError(
                f"An aggregator's name is a non-empty string, its column; found {name!r}."
            )
        self.name, self.normalize = name, normalize
        self.on_error = missing_policy(on_error, name, "none", "skip")

    @property
    def __name__(self) -> str:
        return self.name

    def check(self, graders: Collection[str]) -> None:
        """Raise ConfigError when it cannot work with graders of these names."""

    def check_scales(self, scales: Mapping[str, Scale]) -> None:
        """Raise ConfigError for an `on_error` outside the range of what it combines of graders of
        these scales.
        """
        own = set(self.wanted(scales).values())
        # of scales that differ, and are to stay as they are, each row says that they do
        alone: Bounds = next(iter(own))[0] if len(own) == 1 else (None, None)
        bounds: Bounds = (0.0, 1.0) if self._normalizes(own) else alone
        if not isinstance(self.on_error, str) and out_of_range(self.name, self.on_error, bounds):
            raise ConfigError(
                f"{self.name}: on_error is {self.on_error}, and it combines scores of "
                f"{bounds[0]} to {bounds[1]}; give a number of that range, none or skip."
            )

    def combine(self, scores: Mapping[str, float]) -> float:
        """One number from the scores by grader name, never empty."""
        raise NotImplementedError(f"{type(self).__name__} implements combine(scores) -> float.")

    def wanted(self, results: Mapping[str, T]) -> Mapping[str, T]:
        """The components."""
        return results

    def __call__(self, results: Mapping[str, GraderResult], **_: Any) -> GraderResult:
        """The row's combined result; a GraderError where it has none."""
        components = self.wanted(results)
        outcomes = {name: _outcome(result) for name, result in components.items()}
        missing = {name: score.reason for name, score in outcomes.items() if not score.ok}
        metadata: dict[str, Any] = {"components": {}, "missing": missing}
        whole = failed("aggregate", "no grader gave a score", "rule")
        if components:
            combine = partial(self._combined, components, metadata)
            lost_all = self.on_error == "skip" and len(missing) == len(components)
            combined = Combination(combine, self.on_error)(outcomes)
            whole = combined.without_value(whole.reason) if lost_all else combined
        if whole.value is None:
            return GraderError.of(self.name, whole).model_copy(update={"metadata": metadata})
        return GraderScore(
            name=self.name,
            score=whole.value,
            reason=whole.reason,
            metadata=metadata,
            **self._scale(components),
        )

    def _combined(
        self,
        components: Mapping[str, GraderResult],
        metadata: dict[str, Any],
        scores: Mapping[str, float],
    ) -> tuple[float, str]:
        graded = {n: each for n, each in components.items() if isinstance(each, GraderScore)}
        try:
            raw = self._scale(components) != _NORMALIZED
            values = {n: each.score if raw else each.normalized for n, each in graded.items()}
        except ConfigError as error:
            raise NotCombined(str(error)) from error
        metadata["components"] = {
            name: {"score": each.score, "value": values[name], "reason": each.reason}
            for name, each in graded.items()
        }
        values = {**values, **{n: score for n, score in scores.items() if n not in graded}}
        try:
            value = self.combine(values)
        except OverflowError:
            value = math.inf  # costs this row its score, not the run
        if not math.isfinite(value):
            raise NotCombined(f"the combined score is {value}")
        parts = ", ".join(f"{name} {score:g}" for name, score in values.items())
        what = "skipped" if self.on_error == "skip" else f"taken as {self.on_error}"
        without = f"; {what}: {', '.join(missing)}" if (missing := metadata["missing"]) else ""
        return value, f"{type(self).__qualname__.removesuffix('Aggregator')} of {parts}{without}"

    def _scale(self, components: Mapping[str, GraderResult]) -> dict[str, Any]:
        """Range and direction of the result: as they are where all graders share them, else
        normalised.
        """
        # an error knows its grader's scale: which one of them failed must not decide the scale of a
        # row
        scales = {
            (each.range, each.higher_is_better)
            for each in components.values()
            if isinstance(each, GraderScore)
            or (isinstance(each, GraderError) and each.range != (None, None))
        }
        if self._normalizes(scales):
            return _NORMALIZED
        if len(scales) <= 1:
            bounds, higher = next(iter(scales), ((None, None), True))
            return {"range": bounds, "higher_is_better": higher}
        ranges = ", ".join(
            f"{name} {each.range}"
            for name, each in components.items()
            if isinstance(each, GraderScore)
        )
        raise NotCombined(
            f"the graders' ranges or directions differ ({ranges}); leave out normalize=False"
        )

    def _normalizes(self, scales: Collection[Scale]) -> bool:
        alike = len(scales) <= 1 and all(higher for _, higher in scales)
        return self.normalize or (self.normalize is None and not alike)


_NORMALIZED = {"range": (0.0, 1.0)}


class NotCombined(ScoreError):
    """Results of graders make no one number."""

    reason = "aggregate"
    cause = "rule"


def _outcome(result: GraderResult) -> Score[Any]:
    if isinstance(result, GraderScore):
        return scored(result.score)
    why = result.reason or type(result).__name__
    if isinstance(result, GraderError):
        return replace(result.outcome(), reason=why)
    return failed("aggregate", why, "rule")


class WeightedSumAggregator(BaseAggregator):
    """The weighted average; weights are normalised to sum 1, and equal where none are given.

    With weights only the graders they name count; a name that is no grader's is a ConfigError when
    the runner is built.
    """

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
                or not 0 <= weight < math.inf
            ):
                raise ConfigError(
                    f"{name}: the weight of '{grader}' is {weight!r}; it is a number of 0 or more."
                )
        if weights is not None and not sum(weights.values()) > 0:
            raise ConfigError(
                f"{name}: the weights {dict(weights)} sum to 0; one at least is above 0."
            )
        self.weights = (
            None
            if weights is None
            else {grader: float(weight) for grader, weight in weights.items()}
        )

    def check(self, graders: Collection[str]) -> None:
        """Raise ConfigError for a weight of a grader there is not."""
        for grader in self.weights or {}:
            if grader not in graders:
                raise ConfigError(f"{self.name}: " + unknown_name("grader", grader, graders))

    def wanted(self, results: Mapping[str, T]) -> Mapping[str, T]:
        """Those with a weight above 0."""
        if self.weights is None:
            return results
        return {
            name: results[name]
            for name, weight in self.weights.items()
            if weight > 0 and name in results
        }

    def combine(self, scores: Mapping[str, float]) -> float:
        """The mean by weight."""
        weights = {name: 1.0 if self.weights is None else self.weights[name] for name in scores}
        return math.fsum(weights[name] * score for name, score in scores.items()) / math.fsum(
            weights.values()
        )


class MinAggregator(BaseAggregator):
    """The lowest score."""

    def __init__(
        self, name: str = "min", on_error: Missing = "none", normalize: bool | None = None
    ) -> None:
        super().__init__(name, on_error, normalize)

    def combine(self, scores: Mapping[str, float]) -> float:
        """The lowest."""
        return min(scores.values())


class MaxAggregator(BaseAggregator):
    """The highest score."""

    def __init__(
        self, name: str = "max", on_error: Missing = "none", normalize: bool | None = None
    ) -> None:
        super().__init__(name, on_error, normalize)

    def combine(self, scores: Mapping[str, float]) -> float:
        """The highest."""
        return max(scores.values())


class GeometricMeanAggregator(BaseAggregator):
    """The geometric mean of the normalised scores, [0, 1]: one that is 0 makes it 0."""

    def __init__(self, name: str = "geometric_mean", on_error: Missing = "none") -> None:
        super().__init__(name, on_error, normalize=True)

    def combine(self, scores: Mapping[str, float]) -> float:
        """The n-th root of the product."""
        values = list(scores.values())
        return (
            0.0
            if min(values) <= 0
            else math.exp(math.fsum(math.log(value) for value in values) / len(values))
        )


class GatedAggregator(BaseAggregator):
    """The secondary graders count only where the primary one passes; elsewhere the score is the
    lowest.

    Args:
        primary: the grader that decides.
        threshold: from where on it passes, in its own units; its own threshold where none is given.
        secondary: makes the score of the other graders; their mean by default.
    """

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
        self.secondary = secondary or WeightedSumAggregator(
            f"{name}_secondary", on_error=on_error, normalize=True
        )

    def check(self, graders: Collection[str]) -> None:
        """Raise ConfigError when there is no such primary grader, or no other one."""
        if self.primary not in graders:
            raise ConfigError(f"{self.name}: " + unknown_name("grader", self.primary, graders))
        if len(graders) < 2:
            raise ConfigError(
                f"{self.name}: '{self.primary}' is the only grader; a gate needs another one "
                f"behind it."
            )
        self.secondary.check([name for name in graders if name != self.primary])

    def check_scales(self, scales: Mapping[str, Scale]) -> None:
        """As every aggregator's, for the secondary one as well, and for a threshold that no score
        of the primary grader can have.
        """
        super().check_scales(scales)
        self.secondary.check_scales({n: each for n, each in scales.items() if n != self.primary})
        bounds = scales[self.primary][0]
        if self.threshold is not None and out_of_range(self.primary, self.threshold, bounds):
            raise ConfigError(
                f"{self.name}: threshold is {self.threshold}, and {self.primary} gives {bounds[0]} "
                f"to {bounds[1]}; give a score of that range."
            )

    def __call__(self, results: Mapping[str, GraderResult], **_: Any) -> GraderResult:
        """0 where the primary grader does not pass, else the secondary score in [0, 1]."""
        gate = results[self.primary]
        if not isinstance(gate, GraderScore):
            return super().__call__({self.primary: gate})
        if not gate.passed(self.threshold):
            reason = f"{self.primary} is {gate.score:g} and does not pass"
            return GraderScore(
                name=self.name,
                score=0.0,
                reason=reason,
                range=(0.0, 1.0),
                metadata={"passed": False},
            )
        score = self.secondary(
            {name: result for name, result in results.items() if name != self.primary}
        )
        return score.model_copy(
            update={"name": self.name, "metadata": {**score.metadata, "passed": True}}
        )

    def combine(self, scores: Mapping[str, float]) -> float:
        """The stand-in for a primary grader without a score."""
        return next(iter(scores.values()))


class CallableAggregator(BaseAggregator):
    """Any function of {grader name: result} that returns a number or a result; what it raises is
    that row's error.
    """

    def __init__(self, function: Callable[..., Any], name: str = "") -> None:
        own = getattr(function, "__name__", "")
        super().__init__(name or (own if own and not own.startswith("<") else "aggregate"))
        self.function = function

    def __call__(self, results: Mapping[str, GraderResult], **_: Any) -> GraderResult:
        """What the function makes of the results."""
        from rm_gallery.core.graders.base import as_result

        try:
            value = self.function(dict(results))
            if isinstance(value, GraderError):
                return value
            about = {
                "name": self.name,
                "range": (None, None),
                "higher_is_better": True,
                "threshold": None,
            }
            return as_result(value, about)
        except Exception as error:  # noqa: BLE001 - it costs its own row only, and is told there
            lost = failed("aggregate", f"{type(error).__name__}: {error}", "rule")
            return GraderError.of(self.name, lost)
