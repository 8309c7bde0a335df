"""How well scores follow labels on the same units: verdicts right, order kept, distance, each with its interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from rm_gallery.core.stats.agreement import cohen_kappa_estimate, complete_units
from rm_gallery.core.stats.clustered import clustered_mean
from rm_gallery.core.stats.correlation import spearman_estimate
from rm_gallery.core.stats.intervals import Interval
from rm_gallery.core.stats.resampling import bootstrapped

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rm_gallery.core.stats.clustered import ClusteredMean, Names

MOST_CATEGORIES = 20


@dataclass(frozen=True)
class Validation:
    """Scores held against labels; a figure that is not defined is None, and so is its interval.

    Attributes:
        n: units with a score and a label.
        threshold: from where on a score passes; None where verdicts were not asked for.
        accuracy: share of right verdicts; without a threshold, of scores equal to their label.
        precision: of what passes, the share that should; None without a threshold or when nothing passes.
        recall: of what should pass, the share that does.
        f1: harmonic mean of the two.
        kappa: Cohen's, of verdicts; without a threshold of whole scores and labels, weighted quadratically.
        spearman: rank correlation of score and label, above 0 when they rise together.
        mae: mean absolute distance of score and label, in the label's unit; None where their scales differ.
    """

    n: int
    threshold: float | None = None
    accuracy: float | None = None
    accuracy_ci95: Interval | None = None
    precision: float | None = None
    precision_ci95: Interval | None = None
    recall: float | None = None
    recall_ci95: Interval | None = None
    f1: float | None = None
    f1_ci95: Interval | None = None
    kappa: float | None = None
    kappa_ci95: Interval | None = None
    spearman: float | None = None
    spearman_ci95: Interval | None = None
    mae: float | None = None
    mae_ci95: Interval | None = None

    def to_dict(self) -> dict[str, Any]:
        """The figures as JSON types, without those that are not defined."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def validate(
    scores: Sequence[float | None],
    labels: Sequence[float | None],
    *,
    threshold: float | None = None,
    higher_is_better: bool = True,
    same_scale: bool = True,
    clusters: Names | None = None,
    seed: int = 0,
) -> Validation:
    """Hold scores against labels.

    Args:
        scores: one per unit, None or NaN where there is none; such units are left out.
        labels: 0 and 1 (1 is what should pass), or numbers on the scores' own scale.
        threshold: from where on a score passes, and a label that is not 0 or 1 as well; None compares the numbers.
        higher_is_better: whether scores pass from the threshold up, else down to it.
        same_scale: whether a score and a label are the same units, so that they can be equal and have a distance.
        clusters: what each unit belongs to; intervals are over clusters.
        seed: of the bootstrap.

    Raises:
        ConfigError: sequences of different lengths.
    """
    import numpy as np

    units = complete_units(scores, labels, clusters)
    if not units:
        return Validation(0, threshold)
    x, y = (np.array([unit[side] for unit in units], dtype=np.float64) for side in (0, 1))
    names = None if clusters is None else [str(name) for _, _, name in units]
    found: dict[str, ClusteredMean | None] = {}
    turn = 1.0 if higher_is_better else -1.0
    # labels of verdicts rise with quality, labels on the scores' scale with the score
    verdicts_given = set(np.unique(y)) <= {0.0, 1.0}
    found["spearman"] = spearman_estimate(list(turn * x if verdicts_given else x), list(y), clusters=names)
    if threshold is not None:
        said = turn * x >= turn * threshold
        wanted = y > 0.5 if verdicts_given else turn * y >= turn * threshold
        found |= _of_verdicts(said, wanted, names, seed)
        found["kappa"] = cohen_kappa_estimate(list(map(bool, said)), list(map(bool, wanted)), clusters=names, seed=seed)
    elif same_scale:
        found["accuracy"] = _mean((x == y).astype(np.float64), 1.0, names, seed)
        values = sorted({*x, *y})
        if len(values) <= MOST_CATEGORIES and all(value == int(value) for value in values):
            scale = [float(value) for value in range(int(values[0]), int(values[-1]) + 1)]
            if len(scale) <= MOST_CATEGORIES:
                found["kappa"] = cohen_kappa_estimate(
                    x.tolist(), y.tolist(), weights="quadratic", categories=scale, clusters=names, seed=seed
                )
    if same_scale:
        most = float(max(x.max(), y.max()) - min(x.min(), y.min())) or 1.0
        found["mae"] = _mean(np.abs(x - y), most, names, seed)
    figures: dict[str, Any] = {}
    for name, one in found.items():
        figures |= {name: one.estimate, f"{name}_ci95": one.interval()} if one is not None else {}
    return Validation(len(units), threshold, **figures)


def _mean(values: NDArray[np.float64], most: float, names: Names | None, seed: int) -> ClusteredMean | None:
    import numpy as np

    table = np.column_stack([values, np.ones(len(values))])
    return bootstrapped(table, lambda sums: sums[:, 0] / sums[:, 1], clusters=names, bounds=(0.0, most), seed=seed)


def _of_verdicts(
    said: NDArray[np.bool_], wanted: NDArray[np.bool_], names: Names | None, seed: int
) -> dict[str, ClusteredMean | None]:
    import numpy as np

    def among(kept: NDArray[np.bool_], right: NDArray[np.bool_]) -> ClusteredMean | None:
        own = None if names is None else [name for name, one in zip(names, kept, strict=True) if one]
        return clustered_mean(right[kept].astype(np.float64), own)

    def f1(sums: NDArray[np.float64]) -> NDArray[np.float64]:
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(2.0 * sums[:, 0] / (2.0 * sums[:, 0] + sums[:, 1]))

    counted = said | wanted  # what neither passes nor should says nothing of F1, and is no witness for it
    own = None if names is None else [name for name, one in zip(names, counted, strict=True) if one]
    table = np.column_stack([said & wanted, said != wanted])[counted].astype(np.float64)
    return {
        "accuracy": among(np.ones(len(said), dtype=bool), said == wanted),
        "precision": among(said, wanted),
        "recall": among(wanted, said),
        "f1": bootstrapped(table, f1, clusters=own, seed=seed),
    }
