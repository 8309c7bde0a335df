"""A fitting sample for every registered reward: the example on its class, and what the tests vary
about it.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

from rm_gallery import BaseReward, ConfigError, DataSample, RewardRegistry
from rm_gallery.cli import catalogue
from rm_gallery.core.reward.schema import Example
from rm_gallery.core.utils.errors import MissingExtra, SandboxUnavailable

REFERENCE_KEYS = ("reference", "ground_truth", "tool_calls")
MACHINE = frozenset({"text", "zh", "toxicity", "train", "hub", "sandbox"})
"""What a machine has to offer, in contrast to a sample."""


def _class(name: str) -> Any:
    # whether it can be imported is for its tests to tell, not for collecting them
    try:
        return RewardRegistry.get(name)
    except ConfigError:
        return None


def needs_of(name: str) -> frozenset[str]:
    """What the reward says it needs."""
    return getattr(_class(name), "needs", frozenset())


def fields_of(name: str) -> set[str]:
    """Names of a reward's constructor fields."""
    return set(getattr(_class(name), "model_fields", ()))


def example_of(name: str) -> Example:
    """The example of a reward; ConfigError tells what to add when there is none."""
    return catalogue.example_of(catalogue.Entry(name, RewardRegistry.get(name)))


_AS_WRITTEN = {
    name: found.example.sample.model_copy(deep=True)
    for name in RewardRegistry.list()
    if (found := _class(name)) is not None and found.example is not None
}
"""The examples before anything was evaluated: a reward that changes what it is given would change
its own as well.
"""


def create(name: str, **settings: Any) -> BaseReward:
    """The reward as its example wants it, with the scripted judge where it has one."""
    return example_of(name).create(RewardRegistry.get(name), **settings)


def fitting(name: str) -> list[DataSample]:
    """Three samples the reward can score: the example, the example with its answers turned round,
    and the example again.
    """
    example_of(name)
    sample = _AS_WRITTEN[name]
    turned = sample.model_copy(update={"output": sample.output[::-1]})
    samples = [given.model_copy(deep=True) for given in (sample, turned, sample)]
    for number, given in enumerate(samples, 1):
        given.unique_id = f"fit-{number}"
    return samples


def without(samples: list[DataSample], keys: Sequence[str] | None = None) -> list[DataSample]:
    """The samples without these keys in labels and metadata, without any of them by default."""
    bare = []
    for sample in samples:
        copy = sample.model_copy(deep=True)
        copy.metadata = _less(copy.metadata, keys)
        for output in copy.output:
            output.answer.label = _less(output.answer.label, keys)
        bare.append(copy)
    return bare


def _less(known: dict[str, Any] | None, keys: Sequence[str] | None) -> dict[str, Any]:
    return (
        {}
        if keys is None
        else {key: value for key, value in (known or {}).items() if key not in keys}
    )


def missing(reward: BaseReward) -> str | None:
    """Why this machine cannot run the reward: a package or a sandbox that is absent; None when it
    can.
    """
    try:
        reward.check()
    except (MissingExtra, SandboxUnavailable) as error:
        return str(error)
    return None


def score_pickled(work: list[tuple[bytes, list[str]]]) -> list[list[str] | str]:
    """What another process makes of pickled rewards and samples: scored samples as JSON, or the
    error as text.
    """
    found: list[list[str] | str] = []
    for reward, samples in work:
        try:
            parsed = [DataSample.model_validate_json(sample) for sample in samples]
            found.append(
                [sample.model_dump_json() for sample in pickle.loads(reward).evaluate_batch(parsed)]
            )
        except Exception as error:  # noqa: BLE001 - one reward's trouble must not hide the others' results
            found.append(f"{type(error).__name__}: {error}")
    return found
