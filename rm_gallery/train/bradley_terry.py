"""Training the embedded reward model: samples with preferences in, a model folder and an honest
report out.

Samples are split by prompt: what is learned about a prompt is not tested on it.
"""

from __future__ import annotations

import hashlib
import math
import random
import time
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from rm_gallery._version import __version__
from rm_gallery.core.data.schema import DataSample, preference_of
from rm_gallery.core.model.message import MessageRole
from rm_gallery.core.stats import Floats, Integers
from rm_gallery.core.stats.intervals import Interval
from rm_gallery.core.stats.uncertainty import clustered_mean
from rm_gallery.core.utils.errors import ConfigError, DataError
from rm_gallery.gallery.rm.trained.bradley_terry import BradleyTerryModel, save_model
from rm_gallery.gallery.rm.trained.features import HASH_BITS, Features, dense_names, sample_features

STRENGTHS = (0.001, 0.004, 0.016, 0.064, 0.25, 1.0, 4.0)
"""Inverse penalties C to choose from, strongest penalty first."""
DEFAULT_STRENGTH = 0.016
FOLDS = 3
CHOSEN_BY = 20_000
"""Pairs at most by which the penalty is chosen, of prompts that the seed draws: the prior's width,
which it is, wants no more.
"""
_FEWEST_PROMPTS = 20
"""Below this, folds are too small to choose by, and the default stands."""
_SHAPE_PRIOR = 1.5
"""Length and form get a wider prior than single words and cues: they are few, and seen in every
pair.
"""
_DAMPING = 20.0
"""Dense features seen in far fewer pairs than this are shrunk: one pair must not decide a weight.
"""


def prompt_key(sample: DataSample) -> str:
    """Hash of what opens the conversation: the first user turn's text, case, width and white space
    aside.

    Dialogues that begin alike share a key however they go on. Without a user turn the first message
    counts, and a sample without input stands for itself.
    """
    opening = next((m.text for m in sample.input if m.role == MessageRole.USER), None)
    if opening is None and sample.input:
        opening = sample.input[0].text
    if opening is None:
        return f"sample:{sample.sample_id}"
    normal = " ".join(unicodedata.normalize("NFKC", opening).casefold().split())
    return hashlib.sha256(normal.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def held_out_keys(keys: Sequence[str], share: float, seed: int) -> set[str]:
    """The prompts to hold out: whole groups, in an order drawn from the seed, until `share` of all
    samples is reached.

    The draw depends on prompt and seed alone, not on the order of the samples.

    Args:
        keys: one prompt key per sample.
        share: share of the samples to hold out, 0 (none) up to, but below, 1.
        seed: decides which prompts.

    Raises:
        ConfigError: the share is out of range.
        DataError: all samples share one prompt, so that they cannot be split.
    """
    if isinstance(share, bool) or not 0.0 <= share < 1.0:
        raise ConfigError(f"test_share must be at least 0 and below 1, found {share!r}")
    counts = Counter(keys)
    if share == 0.0:
        return set()
    if len(counts) < 2:
        raise DataError(
            f"the {len(keys)} samples with a preference have {len(counts)} different prompts, and "
            f"a split by prompt needs 2; "
            "add data, or train on all of it with test_share=0"
        )
    wanted = share * len(keys)
    chosen: set[str] = set()
    held = 0
    for key in _drawn(counts, seed)[:-1]:
        # a group goes in while that brings the size nearer to the wanted one
        if chosen and abs(held + counts[key] - wanted) > abs(held - wanted):
            continue
        chosen.add(key)
        held += counts[key]
        if held >= wanted:
            break
    return chosen


def prompt_folds(keys: Sequence[str], folds: int, seed: int) -> list[int]:
    """A fold in 0..folds-1 for each sample, the same for all samples of a prompt, folds of nearly
    equal size.
    """
    counts = Counter(keys)
    sizes = [0] * folds
    fold_of: dict[str, int] = {}
    for key in _drawn(counts, seed):
        smallest = sizes.index(min(sizes))
        fold_of[key] = smallest
        sizes[smallest] += counts[key]
    return [fold_of[key] for key in keys]


def _drawn(keys: dict[str, int], seed: int) -> list[str]:
    return sorted(
        keys,
        key=lambda key: hashlib.sha256(
            f"{seed}\x1f{key}".encode("utf-8", "surrogatepass")
        ).digest(),
    )


@dataclass(frozen=True)
class LabelledSample:
    """What training and testing need of a sample; its texts are gone."""

    key: str
    """Its prompt."""
    digest: str
    """Hash of texts and labels."""
    subset: str | None
    features: list[Features]
    lengths: list[int]
    """Characters per answer."""
    pairs: list[tuple[int, int]]
    """Every (chosen, rejected) combination of its outputs."""


@dataclass
class Labelled:
    """All samples with at least one pair, and how many had none."""

    samples: list[LabelledSample] = field(default_factory=list)
    n_without_pair: int = 0


def read_samples(samples: Iterable[DataSample]) -> Labelled:
    """Features and pairs of every sample whose outputs are labelled `preference`: chosen or
    rejected.

    Raises DataError when no sample has both a chosen and a rejected output.
    """
    labelled = Labelled()
    for sample in samples:
        labels = [preference_of(output) for output in sample.output]
        chosen = [place for place, label in enumerate(labels) if label == "chosen"]
        rejected = [place for place, label in enumerate(labels) if label == "rejected"]
        if not chosen or not rejected:
            labelled.n_without_pair += 1
            continue
        subset = (sample.metadata or {}).get("subset")
        labelled.samples.append(
            LabelledSample(
                key=prompt_key(sample),
                digest=f"{sample.content_hash()}:{labels}",
                subset=None if subset is None else str(subset),
                features=sample_features(sample),
                lengths=[len(output.answer.text) for output in sample.output],
                pairs=list(product(chosen, rejected)),
            )
        )
    if not labelled.samples:
        raise DataError(
            f"none of {labelled.n_without_pair} samples has both a chosen and a rejected output; "
            "set answer.label['preference'], as the loaders of preference data do"
        )
    return labelled


def data_hash(samples: Iterable[LabelledSample]) -> str:
    """Sha256 of texts and labels, whatever the order of the samples."""
    return hashlib.sha256(
        "\n".join(sorted(sample.digest for sample in samples)).encode()
    ).hexdigest()


@dataclass(frozen=True)
class PairMatrix:
    """Chosen minus rejected, one row per pair."""

    dense: Floats
    """Shape (pairs, dense features)."""
    words: Any
    """Scipy CSR matrix of shape (pairs, 2**HASH_BITS) with entries -1 and 1."""
    weights: Floats
    """Per pair 1 / number of pairs of its sample, so that a sample with many outputs counts once.
    """
    sample: Integers
    """Per pair the position of its sample."""

    @property
    def n(self) -> int:
        """Number of pairs."""
        return len(self.weights)


def pair_matrix(samples: list[LabelledSample], width: int) -> PairMatrix:
    """The feature differences of all pairs; `width` is the size of the table of words."""
    from scipy import sparse

    rows = [(sample.features[c], sample.features[r]) for sample in samples for c, r in sample.pairs]
    chosen, rejected = ([row[side] for row in rows] for side in (0, 1))
    n_pairs = [len(sample.pairs) for sample in samples]

    def table(side: list[Features]) -> Any:
        ends = np.cumsum([0, *(len(f.hashed) for f in side)])
        places = np.concatenate([f.hashed for f in side])
        return sparse.csr_matrix((np.ones(len(places)), places, ends), shape=(len(side), width))

    words = table(chosen) - table(rejected)
    words.eliminate_zeros()
    return PairMatrix(
        dense=np.array([f.dense for f in chosen]) - np.array([f.dense for f in rejected]),
        words=words,
        weights=np.repeat(1.0 / np.array(n_pairs), n_pairs),
        sample=np.repeat(np.arange(len(samples), dtype=np.int64), n_pairs),
    )


@dataclass(frozen=True)
class Design:
    """The matrix that is fitted, and how to get from its columns back to features."""

    matrix: Any
    """Scipy CSR, one row per pair, only columns that occur."""
    columns: Integers
    """Places of these columns among dense features followed by words."""
    scale: Floats
    """Factor of each dense feature."""
    width: int
    """Dense features and words together."""


def build_design(pairs: PairMatrix) -> Design:
    """Scale the dense differences to unit size and put them beside the words."""
    from scipy import sparse

    seen = np.count_nonzero(pairs.dense, axis=0)
    square = np.mean(pairs.dense**2, axis=0) * (1.0 + _DAMPING / np.maximum(seen, 1))
    scale = np.divide(1.0, np.sqrt(square), out=np.zeros_like(square), where=seen > 0)
    scale[[name.startswith("shape.") for name in dense_names()]] *= _SHAPE_PRIOR
    full = sparse.hstack([sparse.csr_matrix(pairs.dense * scale), pairs.words], format="csr")
    # by a table and not by sorting and slicing, which take many seconds in one call where there are
    # many pairs
    occurs = np.zeros(full.shape[1], np.bool_)
    occurs[full.indices] = True
    columns = np.flatnonzero(occurs).astype(np.int64)
    place = np.cumsum(occurs, dtype=np.int64) - 1
    matrix = sparse.csr_matrix(
        (full.data, place[full.indices], full.indptr), shape=(full.shape[0], len(columns))
    )
    return Design(matrix, columns, scale, full.shape[1])


def random_order(n: int, seed: int) -> Integers:
    """Which answer of each pair comes first: 1 the chosen, -1 the rejected; as many of one as of
    the other, give or take one.

    Without an intercept the order does not change the fitted weights; drawing it keeps the classes
    balanced.
    """
    signs = [1 if place % 2 == 0 else -1 for place in range(n)]
    random.Random(seed).shuffle(signs)
    return np.array(signs, np.int64)


def fit_weights(design: Design, weights: Floats, strength: float, seed: int) -> Floats:
    """Weights of dense features and words, to be used on unscaled features, shape (width,)."""
    full = np.zeros(design.width)
    full[design.columns] = _fit(_regression(strength, 1e-4), design.matrix, weights, seed)
    full[: len(design.scale)] *= design.scale
    return full


def choose_strength(design: Design, pairs: PairMatrix, keys: Sequence[str], seed: int) -> float:
    """The inverse penalty with the best likelihood on held-out folds of prompts.

    Args:
        design: of all training pairs.
        pairs: the same pairs.
        keys: prompt of each sample.
        seed: decides folds and orders.
    """
    if len(set(keys)) < _FEWEST_PROMPTS:
        return DEFAULT_STRENGTH
    number = np.array(prompt_folds(keys, FOLDS * math.ceil(pairs.n / CHOSEN_BY), seed))[
        pairs.sample
    ]
    matrix, weights = design.matrix, pairs.weights
    # cut once, because slicing costs as much as a step of the fit
    parts = []
    for fold in range(FOLDS):
        train, test = (number != fold) & (number < FOLDS), number == fold
        cut = (matrix[train], weights[train], matrix[test], weights[test])
        parts.append((_regression(STRENGTHS[0], 1e-3), *cut))
    best, least = STRENGTHS[0], float("inf")
    for strength in STRENGTHS:
        loss = 0.0
        for model, train, train_weights, test, test_weights in parts:
            coefficients = _fit(model.set_params(C=strength), train, train_weights, seed)
            loss += float(np.logaddexp(0.0, -(test @ coefficients)) @ test_weights)
        if loss >= least:
            break
        best, least = strength, loss
    return best


def _regression(strength: float, tolerance: float) -> Any:
    from sklearn.linear_model import LogisticRegression

    # a fitted object starts its next fit from the solution before, which lies near
    return LogisticRegression(
        C=strength, fit_intercept=False, max_iter=5000, tol=tolerance, warm_start=True
    )


def _fit(model: Any, matrix: Any, weights: Floats, seed: int) -> Floats:
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    first = random_order(matrix.shape[0], seed)
    # each row times 1 or -1, with the places of the entries shared
    data = matrix.data * np.repeat(first.astype(np.float64), np.diff(matrix.indptr))
    signed = type(matrix)((data, matrix.indices, matrix.indptr), shape=matrix.shape)
    # the vectors are too short for threads to pay off: on a busy machine, waiting for one another
    # takes most of the time
    with threadpool_limits(limits=1, user_api="blas"):
        model.fit(signed, first, sample_weight=weights)
    coefficients: Floats = model.coef_[0]
    return coefficients


@dataclass(frozen=True)
class Accuracy:
    """Share of held-out pairs whose chosen answer scores strictly higher; equal scores are wrong."""

    accuracy: float | None
    """In 0..1, higher is better; None without pairs."""
    ci95: Interval | None
    """Over prompts, because the pairs of a prompt win and lose together; None for one prompt."""
    n: int
    """Number of pairs."""


@dataclass(frozen=True)
class TrainingReport:
    """A finished training."""

    out: str
    """The model's folder; `bt:` before it names the reward."""
    seed: int
    test_share: float
    """The share asked for; whole prompts are held out."""
    regularization: float
    """Inverse strength C of the ridge penalty."""
    n_samples: int
    n_without_pair: int
    """Samples left out because no output is chosen or none is rejected."""
    n_train_pairs: int
    n_train_prompts: int
    n_test_pairs: int
    n_test_prompts: int
    data_sha256: str
    """Texts and labels of the training part."""
    held_out: dict[str, Accuracy]
    """`model`, and as baselines on the same pairs `longest` and `shortest`: the answer with more,
    or fewer, characters wins.
    """
    by_subset: dict[str, dict[str, Accuracy]] = field(default_factory=dict)
    """The same for each subset named in the samples' metadata."""
    rule: str = "pair_strict"
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready dict with the fields' names as keys."""
        return asdict(self)


def held_out_accuracy(
    samples: Sequence[LabelledSample], scores: Sequence[Sequence[float]]
) -> dict[str, Accuracy]:
    """Accuracy of the scores (one list per sample, one score per output) and of both length
    baselines.
    """
    lengths = [sample.lengths for sample in samples]
    rules: dict[str, Sequence[Sequence[float]]] = {
        "model": scores,
        "longest": lengths,
        "shortest": [[-length for length in own] for own in lengths],
    }
    prompts = [sample.key for sample in samples for _ in sample.pairs]
    accuracies = {}
    for rule, scored in rules.items():
        right = [
            float(own[c] > own[r])
            for sample, own in zip(samples, scored, strict=True)
            for c, r in sample.pairs
        ]
        share = clustered_mean(right, prompts)
        accuracies[rule] = (
            Accuracy(None, None, 0)
            if share is None
            else Accuracy(share.estimate, share.interval(), len(right))
        )
    return accuracies


def accuracy_by_subset(
    samples: Sequence[LabelledSample], scores: Sequence[Sequence[float]]
) -> dict[str, dict[str, Accuracy]]:
    """`held_out_accuracy` for each subset, by name; samples without one are left out."""
    pairs = list(zip(samples, scores, strict=True))
    return {
        name: held_out_accuracy(
            *zip(*(each for each in pairs if each[0].subset == name), strict=True)
        )
        for name in sorted({sample.subset for sample in samples if sample.subset is not None})
    }


_FEWEST_PAIRS = 2


def train_bradley_terry(
    samples: Iterable[DataSample],
    out: Path | str,
    *,
    seed: int = 0,
    test_share: float = 0.2,
    regularization: float | None = None,
) -> TrainingReport:
    """Fit a Bradley–Terry model on labelled samples, save it in `out`, and test it on prompts it
    has not seen.

    Every chosen answer of a sample is paired with every rejected one; each sample weighs the same
    however many pairs it has. The saved model is the one that was tested: the held-out prompts are
    not trained on.

    Args:
        samples: samples whose outputs carry `label["preference"]`; those without a pair are counted
            and left out.
        out: folder for the model, made if needed; a model there is replaced. `bt:OUT` then names
            the reward.
        seed: decides the split by prompt and the order within pairs. Same samples and seed, same
            files.
        test_share: share of the samples held out, by whole prompts; 0 trains on everything and
            tests nothing.
        regularization: inverse strength C of the ridge penalty; by default chosen by likelihood on
            folds of the training prompts.

    Raises:
        ConfigError: an option is out of range or `out` is a file.
        DataError: there is no pair to learn from, the split is impossible, or `out` cannot be
            written to.

    Source: logistic regression without intercept on feature differences is the maximum-likelihood
    fit of Bradley and Terry (1952) with linear strengths; one weight per sample follows Ouyang et
    al. (2022), equation 1.
    """
    began = time.perf_counter()
    _check_settings(out, seed, regularization)
    labelled = read_samples(samples)
    keys = [sample.key for sample in labelled.samples]
    held = held_out_keys(keys, test_share, seed)
    train = [sample for sample in labelled.samples if sample.key not in held]
    test = [sample for sample in labelled.samples if sample.key in held]
    model, strength = _fit_model(train, seed, regularization)
    scores = [[model.score(features) for features in sample.features] for sample in test]
    report = TrainingReport(
        out=str(out),
        seed=seed,
        test_share=test_share,
        regularization=strength,
        n_samples=len(labelled.samples),
        n_without_pair=labelled.n_without_pair,
        n_train_pairs=sum(len(sample.pairs) for sample in train),
        n_train_prompts=len({sample.key for sample in train}),
        n_test_pairs=sum(len(sample.pairs) for sample in test),
        n_test_prompts=len(held),
        data_sha256=data_hash(train),
        held_out=held_out_accuracy(test, scores),
        by_subset=accuracy_by_subset(test, scores),
        seconds=time.perf_counter() - began,
    )
    # the model file keeps everything that is the same when training is repeated elsewhere
    kept = {key: value for key, value in report.to_dict().items() if key not in ("out", "seconds")}
    metadata = {"rm_gallery_version": __version__, **kept}
    save_model(replace(model, metadata=metadata), out)
    return report


def _check_settings(out: Path | str, seed: int, regularization: float | None) -> None:
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise ConfigError(f"seed must be a whole number, found {seed!r}")
    if regularization is not None and not 0.0 < regularization < float("inf"):
        raise ConfigError(
            f"regularization must be a positive number, or None to choose one; found "
            f"{regularization!r}"
        )
    if Path(out).exists() and not Path(out).is_dir():
        raise ConfigError(f"'{out}' is a file; give a folder for the model")


def _fit_model(
    train: list[LabelledSample], seed: int, regularization: float | None
) -> tuple[BradleyTerryModel, float]:
    pairs = pair_matrix(train, 1 << HASH_BITS)
    if pairs.n < _FEWEST_PAIRS:
        raise DataError(
            f"training needs at least {_FEWEST_PAIRS} pairs, found {pairs.n}; add data or lower "
            f"test_share"
        )
    design = build_design(pairs)
    if not len(design.columns):
        raise DataError(
            f"in all {pairs.n} pairs the chosen and the rejected answer are equal; there is "
            f"nothing to learn"
        )
    strength = regularization or choose_strength(
        design, pairs, [sample.key for sample in train], seed
    )
    weights = fit_weights(design, pairs.weights, strength, seed)
    size = len(dense_names())
    # what is saved has single precision, so that is what is tested
    model = BradleyTerryModel(weights[:size].astype(np.float32), weights[size:].astype(np.float32))
    scores = [model.score(features) for sample in train for features in sample.features]
    return replace(model, offset=float(np.mean(scores))), strength
