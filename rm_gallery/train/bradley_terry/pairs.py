"""From labelled samples to pairs of feature vectors, split by prompt: what is learned about a prompt is not tested on it."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from rm_gallery.core.data.schema import DataSample, preference_of
from rm_gallery.core.model.message import MessageRole
from rm_gallery.core.utils.errors import ConfigError, DataError
from rm_gallery.gallery.rm.trained.features import Features, sample_features

K = TypeVar("K", bound=Hashable)


def prompt_key(sample: DataSample) -> str:
    """Hash of what opens the conversation: the first user turn's text, case, width and white space aside.

    Dialogues that begin alike share a key however they go on. Without a user turn the first message counts, and a sample
    without input stands for itself.
    """
    opening = next((m.text for m in sample.input if m.role == MessageRole.USER), None)
    if opening is None and sample.input:
        opening = sample.input[0].text
    if opening is None:
        return f"sample:{sample.sample_id}"
    normal = " ".join(unicodedata.normalize("NFKC", opening).casefold().split())
    return hashlib.sha256(normal.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def held_out_keys(keys: Sequence[str], share: float, seed: int) -> set[str]:
    """The prompts to hold out: whole groups, in an order drawn from the seed, until `share` of all samples is reached.

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
    counts: dict[str, int] = {}
    for key in keys:
        counts[key] = counts.get(key, 0) + 1
    if share == 0.0:
        return set()
    if len(counts) < 2:
        raise DataError(
            f"the {len(keys)} samples with a preference have {len(counts)} different prompts, and a split by prompt needs 2; "
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
    """A fold in 0..folds-1 for each sample, the same for all samples of a prompt, folds of nearly equal size."""
    counts: dict[str, int] = {}
    for key in keys:
        counts[key] = counts.get(key, 0) + 1
    sizes = [0] * folds
    fold_of: dict[str, int] = {}
    for key in _drawn(counts, seed):
        smallest = sizes.index(min(sizes))
        fold_of[key] = smallest
        sizes[smallest] += counts[key]
    return [fold_of[key] for key in keys]


def _drawn(keys: dict[str, int], seed: int) -> list[str]:
    return sorted(keys, key=lambda key: hashlib.sha256(f"{seed}\x1f{key}".encode("utf-8", "surrogatepass")).digest())


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
    """Features and pairs of every sample whose outputs are labelled `preference`: chosen or rejected.

    Raises DataError when no sample has both a chosen and a rejected output.
    """
    found = Labelled()
    for sample in samples:
        labels = [preference_of(output) for output in sample.output]
        chosen = [place for place, label in enumerate(labels) if label == "chosen"]
        rejected = [place for place, label in enumerate(labels) if label == "rejected"]
        if not chosen or not rejected:
            found.n_without_pair += 1
            continue
        subset = (sample.metadata or {}).get("subset")
        found.samples.append(
            LabelledSample(
                key=prompt_key(sample),
                digest=f"{sample.content_hash()}:{labels}",
                subset=None if subset is None else str(subset),
                features=sample_features(sample),
                lengths=[len(output.answer.text) for output in sample.output],
                pairs=list(product(chosen, rejected)),
            )
        )
    if not found.samples:
        raise DataError(
            f"none of {found.n_without_pair} samples has both a chosen and a rejected output; "
            "set answer.label['preference'], as the loaders of preference data do"
        )
    return found


def data_hash(samples: Iterable[LabelledSample]) -> str:
    """Sha256 of texts and labels, whatever the order of the samples."""
    return hashlib.sha256("\n".join(sorted(sample.digest for sample in samples)).encode()).hexdigest()


@dataclass(frozen=True)
class PairMatrix:
    """Chosen minus rejected, one row per pair."""

    dense: NDArray[np.float64]
    """Shape (pairs, dense features)."""
    words: Any
    """Scipy CSR matrix of shape (pairs, 2**HASH_BITS) with entries -1 and 1."""
    weights: NDArray[np.float64]
    """Per pair 1 / number of pairs of its sample, so that a sample with many outputs counts once."""
    sample: NDArray[np.int64]
    """Per pair the position of its sample."""

    @property
    def n(self) -> int:
        """Number of pairs."""
        return len(self.weights)


def pair_matrix(samples: list[LabelledSample], width: int) -> PairMatrix:
    """The feature differences of all pairs; `width` is the size of the table of words."""
    from scipy import sparse

    rows = [(place, c, r) for place, sample in enumerate(samples) for c, r in sample.pairs]
    chosen = [samples[place].features[c] for place, c, _ in rows]
    rejected = [samples[place].features[r] for place, _, r in rows]

    def table(side: list[Features]) -> Any:
        ends = np.cumsum([0, *(len(f.hashed) for f in side)])
        places = np.concatenate([f.hashed for f in side])
        return sparse.csr_matrix((np.ones(len(places)), places, ends), shape=(len(side), width))

    words = table(chosen) - table(rejected)
    words.eliminate_zeros()
    return PairMatrix(
        dense=np.array([f.dense for f in chosen]) - np.array([f.dense for f in rejected]),
        words=words,
        weights=np.array([1.0 / len(samples[place].pairs) for place, _, _ in rows]),
        sample=np.array([place for place, _, _ in rows], np.int64),
    )
