"""What training says about the model: held-out accuracy beside what length alone would reach."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rm_gallery.core.stats.intervals import wilson_interval
from rm_gallery.train.bradley_terry.pairs import LabelledSample

RULE = "pair_strict"


@dataclass(frozen=True)
class Accuracy:
    """Share of held-out pairs whose chosen answer scores strictly higher; equal scores are wrong."""

    accuracy: float | None
    """In 0..1, higher is better; None without pairs."""
    ci95: tuple[float, float] | None
    """Wilson interval, which takes pairs as independent: with many pairs per prompt it is somewhat too narrow."""
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
    """`model`, and as baselines on the same pairs `longest` and `shortest`: the answer with more, or fewer, characters wins."""
    by_subset: dict[str, dict[str, Accuracy]] = field(default_factory=dict)
    """The same for each subset named in the samples' metadata."""
    rule: str = RULE
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready dict with the fields' names as keys."""
        return asdict(self)


def held_out_accuracy(samples: Sequence[LabelledSample], scores: Sequence[Sequence[float]]) -> dict[str, Accuracy]:
    """Accuracy of the scores (one list per sample, one score per output) and of both length baselines."""
    return {
        "model": _accuracy(samples, scores),
        "longest": _accuracy(samples, [sample.lengths for sample in samples]),
        "shortest": _accuracy(samples, [[-length for length in sample.lengths] for sample in samples]),
    }


def accuracy_by_subset(
    samples: Sequence[LabelledSample], scores: Sequence[Sequence[float]]
) -> dict[str, dict[str, Accuracy]]:
    """`held_out_accuracy` for each subset, by name; samples without one are left out."""
    members: dict[str, list[int]] = {}
    for place, sample in enumerate(samples):
        if sample.subset is not None:
            members.setdefault(sample.subset, []).append(place)
    return {
        name: held_out_accuracy([samples[place] for place in places], [scores[place] for place in places])
        for name, places in sorted(members.items())
    }


def _accuracy(samples: Sequence[LabelledSample], scores: Sequence[Sequence[float]]) -> Accuracy:
    games = [(own[c], own[r]) for sample, own in zip(samples, scores, strict=True) for c, r in sample.pairs]
    if not games:
        return Accuracy(None, None, 0)
    right = sum(chosen > rejected for chosen, rejected in games)
    low, high = wilson_interval(right, len(games))
    return Accuracy(right / len(games), (low, high), len(games))
