"""Agreement of scores with labels (verdicts, order, distance) and calibration, with intervals.

Ours: scikit-learn gives the same figures without intervals over clusters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

from rm_gallery.core.stats import Array, ArrayLike, Floats, Names, Numbers, np
from rm_gallery.core.stats.agreement import complete_units, label_kappa_estimate, spearman_estimate
from rm_gallery.core.stats.columns import check_columns, cluster_numbers, numbers
from rm_gallery.core.stats.intervals import Interval
from rm_gallery.core.stats.uncertainty import Estimate, clustered_mean, share_of
from rm_gallery.core.utils.errors import ConfigError

MOST_CATEGORIES = 20


@dataclass(frozen=True)
class Validation:
    """Agreement of scores with labels; an undefined figure is None, and so is its interval;
    there is none either where all units are of one cluster.

    Attributes:
        n: units with a score and a label.
        threshold: from where on a score passes; None where verdicts were not asked for.
        accuracy: share of right verdicts; None without a threshold.
        exact_agreement: share of scores equal to their label; None with a threshold, or where their
            scales differ.
        precision: of what passes, the share that should; None without a threshold or when nothing
            passes.
        recall: of what should pass, the share that does.
        f1: harmonic mean of the two.
        kappa: Cohen's, of verdicts; None without a threshold.
        weighted_kappa: Cohen's, of whole scores and labels, weighted quadratically; None with a
            threshold.
        spearman: rank correlation of score and label, above 0 when they rise together.
        mae: mean absolute distance of score and label, in the label's unit; None where their scales
            differ.
    """

    n: int
    threshold: float | None = None
    accuracy: float | None = None
    accuracy_ci95: Interval | None = None
    exact_agreement: float | None = None
    exact_agreement_ci95: Interval | None = None
    precision: float | None = None
    precision_ci95: Interval | None = None
    recall: float | None = None
    recall_ci95: Interval | None = None
    f1: float | None = None
    f1_ci95: Interval | None = None
    kappa: float | None = None
    kappa_ci95: Interval | None = None
    weighted_kappa: float | None = None
    weighted_kappa_ci95: Interval | None = None
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
) -> Validation:
    """Compare scores with labels on the same units.

    Args:
        scores: one per unit, None or NaN where there is none; such units are left out.
        labels: 0 and 1 (1 is what should pass), or numbers on the scores' own scale.
        threshold: from where on a score passes, and a label that is not 0 or 1 as well; None
            compares the numbers.
        higher_is_better: whether scores pass from the threshold up, else down to it.
        same_scale: whether a score and a label are the same units, so that they can be equal and
            have a distance.
        clusters: what each unit belongs to; intervals are over clusters.

    Raises:
        ConfigError: sequences of different lengths.
    """
    units = complete_units(scores, labels, clusters)
    if not units:
        return Validation(0, threshold)
    table = np.array([unit[:2] for unit in units], dtype=np.float64)
    (x, y), low, high = table.T, float(table.min()), float(table.max())
    names = None if clusters is None else [str(name) for *_, name in units]
    estimates: dict[str, Estimate | None] = {}
    turn = 1.0 if higher_is_better else -1.0
    # labels of verdicts rise with quality, labels on the scores' scale with the score
    verdicts_given = {*y} <= {0.0, 1.0}
    estimates["spearman"] = spearman_estimate(turn * x if verdicts_given else x, y, clusters=names)
    if threshold is not None:
        passed = turn * x >= turn * threshold
        wanted = y > 0.5 if verdicts_given else turn * y >= turn * threshold
        estimates["accuracy"] = clustered_mean(passed == wanted, names)
        estimates |= precision_recall_f1(passed, wanted, names)
        estimates["kappa"] = label_kappa_estimate(passed.tolist(), wanted.tolist(), clusters=names)
    elif same_scale:
        estimates["exact_agreement"] = clustered_mean(x == y, names)
        if high - low < MOST_CATEGORIES and (table == np.floor(table)).all():
            estimates["weighted_kappa"] = label_kappa_estimate(
                x.tolist(),
                y.tolist(),
                weights="quadratic",
                categories=np.arange(low, high + 1.0).tolist(),
                clusters=names,
            )
    if same_scale:
        estimates["mae"] = clustered_mean(np.abs(x - y), names, bounds=(0.0, high - low or 1.0))
    figures: dict[str, Any] = {}
    for name, one in estimates.items():
        figures |= {name: one.estimate, f"{name}_ci95": one.interval()} if one is not None else {}
    return Validation(len(units), threshold, **figures)


def precision_recall_f1(
    said: Numbers, truth: Numbers, clusters: Names | None = None
) -> dict[str, Estimate | None]:
    """Precision, recall and F1 of verdicts, by name; None where undefined.

    Args:
        said: 1 for what was called positive, else 0; None where there is no verdict, and the row
            does not count.
        truth: the same for what is positive.
        clusters: one name per row.

    Returns:
        `precision`, of what was called positive the share that is; `recall`, of what is positive
        the share that was called so; `f1`, their harmonic mean, to which rows that neither is nor
        was called positive say nothing.

    Raises:
        ConfigError: columns of different lengths.

    >>> found = precision_recall_f1([1, 1, 1, 0, 0], [1, 1, 0, 1, 0])
    >>> {name: round(figure.estimate, 3) for name, figure in found.items()}
    {'precision': 0.667, 'recall': 0.667, 'f1': 0.667}
    """
    check_columns(s := numbers(said, "said"), t := numbers(truth, "truth"), "said", "truth")
    known = ~(np.isnan(s) | np.isnan(t))
    s, t = np.where(known, s, 0.0), np.where(known, t, 0.0)
    codes = cluster_numbers(clusters, len(s))
    return {
        "precision": share_of(s * t, s, codes),
        "recall": share_of(s * t, t, codes),
        "f1": share_of(2.0 * s * t, s + t, codes),
    }


Method = Literal["isotonic", "platt"]
_DRAWS = 200


class CalibrationBin(NamedTuple):
    """Mean prediction and observed rate of predictions of about the same probability; the rate has no
    interval where they are of one cluster.
    """

    low: float
    high: float
    predicted: float
    observed: float
    ci95: Interval | None
    n: int


@dataclass(frozen=True)
class Calibration:
    """How well probabilities fit outcomes.

    Attributes:
        bins: the reliability curve, by rising probability, empty bins left out.
        ece: expected calibration error, 0..1: mean distance of predicted and observed, weighted by
            the bins' sizes.
        ece_by_chance: 95th percentile of the ECE of perfect probabilities with as many predictions
            and the same intraclass correlation; an ECE below it is no sign of bad calibration.
        brier: mean squared distance of probability and outcome, 0..1, lower is better; always
            predicting one half gives 0.25.
        brier_ci95: its interval over clusters; None of one cluster.
        n: predictions.
    """

    bins: tuple[CalibrationBin, ...]
    ece: float
    ece_by_chance: float
    brier: float
    brier_ci95: Interval | None
    n: int


def calibration_curve(
    probabilities: ArrayLike,
    outcomes: ArrayLike,
    *,
    clusters: Names | None = None,
    bins: int = 10,
    equal: Literal["width", "size"] = "width",
    seed: int = 0,
) -> Calibration | None:
    """Compare predicted probabilities with outcomes: reliability curve, ECE and Brier score.

    Args:
        probabilities: shape (n,), 0..1, of the outcome being 1.
        outcomes: shape (n,), 0..1; a half for a tie.
        clusters: one name per prediction (the prompt); the intervals count clusters.
        bins: number of bins.
        equal: bins of the same width, as the ECE of the literature has them, or with as many
            predictions in each.
        seed: seed of `ece_by_chance`.

    Returns:
        The calibration; None without predictions.

    Raises:
        ConfigError: for lengths that differ, values outside 0..1, or less than one bin.

    Source: C. Guo et al., "On calibration of modern neural networks", 2017, eq. 5; G. Brier, 1950.
    """
    p, y = _pair(probabilities, outcomes, "probabilities")
    if bins < 1:
        raise ConfigError(f"bins must be at least 1, got {bins!r}")
    if not len(p):
        return None
    names = cluster_numbers(clusters, len(p))
    grid = np.linspace(0.0, 1.0, bins + 1)
    edges = grid if equal == "width" else np.unique(np.quantile(p, grid))
    # the right edge belongs to a bin, as in the paper
    places = np.clip(np.searchsorted(edges, p, side="left") - 1, 0, max(len(edges) - 2, 0))
    curve = []
    for place in np.unique(places):
        inside = places == place
        mean = clustered_mean(y[inside], names[inside])
        assert mean is not None
        low, high = float(edges[place]), float(edges[min(place + 1, len(edges) - 1)])
        curve.append(
            CalibrationBin(
                low,
                high,
                float(p[inside].mean()),
                mean.estimate,
                mean.interval(),
                int(inside.sum()),
            )
        )
    brier = clustered_mean((p - y) ** 2, names)
    assert brier is not None
    rng = np.random.default_rng(seed)
    icc = _excess_correlation(p, y, names)
    chance = [_ece(p, _outcomes(p, names, icc, rng), places) for _ in range(_DRAWS)]
    limit = float(np.quantile(chance, 0.95))
    return Calibration(
        tuple(curve), _ece(p, y, places), limit, brier.estimate, brier.interval(), len(p)
    )


def _ece(p: Floats, y: Floats, places: Array) -> float:
    return float(np.sum(np.abs(np.bincount(places, weights=p - y))) / len(p))


def _excess_correlation(p: Floats, y: Floats, names: Array) -> float:
    """Intraclass correlation of outcomes beyond their probabilities, 0..1, raised for few clusters."""
    n_clusters = int(names.max()) + 1
    seen, most = (
        float(np.sum(np.bincount(names, weights=x) ** 2) - np.sum(x**2))
        for x in (y - p, np.sqrt(p * (1.0 - p)))
    )
    if n_clusters == len(p) or most <= 0.0:
        return 0.0
    icc = min(max(seen / most, 0.0), 1.0)
    return icc + (1.0 - icc) / n_clusters


def _outcomes(p: Floats, names: Array, icc: float, rng: np.random.Generator) -> Floats:
    """Random outcomes of the probabilities, with this intraclass correlation."""
    luck = rng.random(len(p))
    if icc > 0.0:
        shared = rng.random(int(names.max()) + 1)[names]
        luck = np.where(rng.random(len(p)) < np.sqrt(icc), shared, luck)
    return (luck < p).astype(np.float64)


def _pair(first: ArrayLike, second: ArrayLike, name: str) -> tuple[Floats, Floats]:
    """Both as arrays of the same length; outcomes, and probabilities, within 0..1."""
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    check_columns(a, b, name, "outcomes")
    for values, what in ((a, name), (b, "outcomes")):
        if not np.isfinite(values).all():
            raise ConfigError(f"{what} have to be finite; leave out what has none")
        if what != "scores" and len(values) and not (values.min() >= 0.0 and values.max() <= 1.0):
            raise ConfigError(
                f"{what} have to be within 0..1, got {values.min():.15g} to {values.max():.15g}"
            )
    return a, b


@dataclass(frozen=True)
class ProbabilityMap:
    """Maps scores to probabilities; never falls where scores rise."""

    method: Method
    x: tuple[float, ...]
    """Isotonic: where the map bends. Platt: (slope, intercept) of the logistic curve."""
    y: tuple[float, ...] = ()

    def __call__(self, scores: ArrayLike) -> Floats:
        """Probabilities of scores; beyond the fitted ones the isotonic map is constant."""
        from scipy.special import expit

        given = np.asarray(scores, dtype=np.float64)
        if self.method == "platt":
            return np.asarray(expit(self.x[0] * given + self.x[1]))
        return np.asarray(np.interp(given, self.x, self.y))


def fit_map(scores: ArrayLike, outcomes: ArrayLike, method: Method = "isotonic") -> ProbabilityMap:
    """Fit a map from scores to the probability of the outcome.

    Isotonic regression is scikit-learn's; its Platt scaling may fall, ours does not.

    Args:
        scores: shape (n,), finite, of any range; higher has to mean more likely.
        outcomes: shape (n,), 0..1.
        method: "isotonic", any rising curve, which needs some hundreds of outcomes; "platt", a
            logistic curve, does with few.

    Raises:
        ConfigError: without outcomes, for lengths that differ, or an unknown method.

    Source: B. Zadrozny and C. Elkan, 2002 (isotonic); J. Platt, "Probabilistic outputs for support
    vector machines", 1999, whose targets keep the curve finite where scores separate the outcomes.
    """
    x, y = _pair(scores, outcomes, "scores")
    if not len(x):
        raise ConfigError("a map needs at least one score with its outcome")
    if method == "isotonic":
        from sklearn.isotonic import IsotonicRegression

        fitted = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip").fit(x, y)
        return ProbabilityMap(
            "isotonic",
            tuple(fitted.X_thresholds_.tolist()),
            tuple(fitted.y_thresholds_.astype(float).tolist()),
        )
    if method != "platt":
        raise ConfigError(f"method is {method!r}; give isotonic or platt")
    from scipy.optimize import minimize
    from scipy.special import expit

    right, wrong = float(y.sum()), float(len(y) - y.sum())
    targets = y * (right + 1.0) / (right + 2.0) + (1.0 - y) / (wrong + 2.0)
    middle, scale = float(x.mean()), float(x.std()) or 1.0
    z = (x - middle) / scale

    def loss(at: Floats) -> tuple[float, Floats]:
        line = at[0] * z + at[1]
        off = expit(line) - targets
        return float(np.sum(np.logaddexp(0.0, line) - targets * line)), np.array(
            [np.sum(off * z), np.sum(off)]
        )

    optimum = minimize(
        loss, np.zeros(2), jac=True, method="L-BFGS-B", bounds=[(0.0, None), (None, None)]
    ).x
    slope = float(optimum[0]) / scale
    return ProbabilityMap("platt", (slope, float(optimum[1]) - slope * middle))


class HeldOut(NamedTuple):
    """A map fitted on one half of the clusters, and how its probabilities do on the other."""

    map: ProbabilityMap
    calibration: Calibration
    n_fitted: int


def held_out_calibration(
    scores: ArrayLike,
    outcomes: ArrayLike,
    method: Method = "isotonic",
    *,
    clusters: Names | None = None,
    bins: int = 10,
    seed: int = 0,
) -> HeldOut | None:
    """Fit a map on a seeded half of the clusters and judge it on the other half; None with fewer
    than two clusters.

    Arguments and errors as in `fit_map` and `calibration_curve`.
    """
    x, y = _pair(scores, outcomes, "scores")
    names = cluster_numbers(clusters, len(x))
    n_clusters = int(names.max()) + 1 if len(names) else 0
    if n_clusters < 2:
        return None
    first = np.random.default_rng(seed).permutation(n_clusters) < n_clusters / 2
    fitting = first[names]
    fitted_map = fit_map(x[fitting], y[fitting], method)
    shown = calibration_curve(
        fitted_map(x[~fitting]), y[~fitting], clusters=names[~fitting], bins=bins, seed=seed
    )
    assert shown is not None
    return HeldOut(fitted_map, shown, int(fitting.sum()))
