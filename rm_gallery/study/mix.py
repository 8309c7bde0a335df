"""Several rewards as the one number that trains: the sum is tried, and what games it is traced to
the part that pays for it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.options import RunKeywords, RunOptions
from rm_gallery.core.reward.compose import WeightedSum
from rm_gallery.core.reward.resolve import judges_for
from rm_gallery.core.score import Bounds
from rm_gallery.core.utils.defaults import CHECK_CEILING
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.gallery.benchmarks.figures import plain
from rm_gallery.study.attacks import read_texts
from rm_gallery.study.check import (
    Checking,
    RewardCheck,
    Weakness,
    reward_and_cases,
    with_forgeries,
)
from rm_gallery.study.check_cases import Tried

if TYPE_CHECKING:
    from typing_extensions import Unpack

_PORT = re.compile(r"[a-z-]+:\w+://(\[[^]]*\]|[^/:]+):\d+")
"""served:http://HOST:PORT, whose last number is no weight."""
_WEIGHTED = re.compile(r"(.+):([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)")


def weighted(target: str) -> tuple[str, float | None]:
    """The reward and the weight in NAME:WEIGHT or FILE:NAME:WEIGHT; None where no weight is given."""
    match = _WEIGHTED.fullmatch(target)
    if match is None or _PORT.fullmatch(target):
        return target, None
    weight = float(match[2])
    if not math.isfinite(weight):
        raise ConfigError(f"{target}: the weight is {match[2]}; give a finite number.")
    return match[1], weight


@dataclass(frozen=True)
class MixCheck:
    """The check of a weighted sum, beside the checks of its parts.

    Attributes:
        whole: of the sum; its faults are what a training run would exploit.
        parts: by name, of each part by itself. What is a fault there is a note: a part that shapes
            need not tell right from wrong.
        weights: by name.
        through: by finding of the sum, which parts pay for it.
        targets: by name, what was given for it.
        pays: by name, the least and the most that a part can add to the sum; None where its range
            is open.
        normalize: whether each part was mapped to [0, 1] before it was weighted.
        judge: `llm` and `base_url` as they were given.
    """

    whole: RewardCheck
    parts: Mapping[str, RewardCheck]
    weights: Mapping[str, float]
    through: Mapping[str, str]
    targets: Mapping[str, str]
    pays: Mapping[str, Bounds]
    normalize: bool = False
    judge: Mapping[str, Any] = field(default_factory=dict)

    @property
    def faults(self) -> list[Weakness]:
        """The findings of the sum that fail the check."""
        return self.whole.faults

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON types."""
        names = ("parts", "weights", "pays", "normalize", "through")
        return {**self.whole.to_dict(), **{name: plain(getattr(self, name)) for name in names}}

    def can_pay(self, name: str) -> str:
        """What a part adds to the sum, from its worst to its best score."""
        low, high = self.pays[name]
        if low is None or high is None:
            return "nobody knows what it can pay, since its range is open"
        return f"it pays {low:.3g} to {high:.3g}"

    def lines(self) -> list[str]:
        """How each trainer is given this sum: statements that run as they stand beside the files of
        its parts.
        """
        judge = "".join(f", {name}={value!r}" for name, value in self.judge.items())
        targets = ", ".join(map(repr, self.targets.values()))
        weights = ", ".join(f"{weight:g}" for weight in self.weights.values())
        by_name = ", ".join(f"{name!r}: {weight:g}" for name, weight in self.weights.items())
        parts = ", ".join(f"{name!r}: {target!r}" for name, target in self.targets.items())
        if self.normalize:
            by_trl = "trl_rewards([total])"
        else:  # TRL weighs scores as they are
            by_trl = f"trl_rewards([{targets}]{judge}); reward_weights = [{weights}]"
        total = f"{{{parts}}}, weights={{{by_name}}}{', normalize=True' * self.normalize}{judge}"
        return [line.format(total=total, by_trl=by_trl) for line in read_texts("trainers")]


@library_loop.blocks
def check_mix(
    targets: Mapping[str, float] | Sequence[tuple[str, float]],
    cases: Any = None,
    *,
    reference: str | None = None,
    full: float | None = None,
    ceiling: float = CHECK_CEILING,
    forge: bool = False,
    normalize: bool = False,
    llm: Any = None,
    base_url: str | None = None,
    options: RunOptions | None = None,
    **run_options: Unpack[RunKeywords],
) -> MixCheck:
    """Try a weighted sum of rewards, and each of them, on completions of known worth.

    Args:
        targets: rewards, as `check_reward` takes them, with their weights.
        cases: as for `check_reward`; by default those of the first part, which says what is right.
        reference: the column with the reference answer.
        full: the score of a completion without fault, of the sum.
        ceiling: as for `check_reward`, and so are `forge` and `options`.
        forge: see `ceiling`.
        normalize: map each part to [0, 1] by its range before it is weighted.
        llm: the judge, where a part needs one; `base_url` is its endpoint.
        base_url: see `llm`.
        options: see `ceiling`.
        **run_options: fields of `RunOptions`, which win over `options`.

    Raises:
        ConfigError: fewer than two parts, two of the same name, a part with an open range where
            they are normalised, or as `check_reward` says.
    """
    given = list(targets.items()) if isinstance(targets, Mapping) else list(targets)
    if len(given) < 2:
        raise ConfigError("a mix has two rewards or more; check a single one by itself.")
    judges = judges_for([target for target, _ in given], llm, base_url)
    made = [
        reward_and_cases(target, cases, reference, **judge)
        for (target, _), judge in zip(given, judges, strict=True)
    ]
    names = [reward.name for reward, _ in made]
    for place, name in enumerate(names):
        if name in names[:place]:
            raise ConfigError(f"two parts are called {name!r}; give each a name.")
    rewards = {reward.name: reward for reward, _ in made}
    targets_by_name = dict(zip(names, (target for target, _ in given), strict=True))
    weights = dict(zip(names, (weight for _, weight in given), strict=True))
    asked = [with_forgeries(case) for case in made[0][1]] if forge else made[0][1]
    total = WeightedSum(rewards, weights=weights, normalize=normalize, name="total")
    whole = Checking(total, asked, full, ceiling, options, run_options).run()
    parts = {
        name: shaping(Checking(reward, asked, None, ceiling, options, run_options).run())
        for name, reward in rewards.items()
    }
    through = {
        finding.name: payers
        for finding in whole.findings
        if (payers := _through(finding, whole.tried, weights))
    }
    named_judge = {"llm": llm, "base_url": base_url}
    judge = {name: value for name, value in named_judge.items() if value is not None}
    return MixCheck(whole, parts, weights, through, targets_by_name, total.pays(), normalize, judge)


def shaping(check: RewardCheck) -> RewardCheck:
    """The check of one of several parts: what it pays for is a fault only where the sum pays for
    it.
    """
    return replace(check, findings=[replace(one, level="note") for one in check.findings])


def _through(finding: Weakness, tried: Sequence[Tried], weights: Mapping[str, float]) -> str:
    """What the parts add to completions of a finding, the largest first."""
    components = [
        one.scored.components
        for one in tried
        if f"{one.case}: {one.kind}" in finding.where and one.scored.value is not None
    ]
    amounts = {
        name: sum(weight * (one.get(name) or 0.0) for one in components) / len(components)
        for name, weight in weights.items()
        if components
    }
    paying = sorted(amounts.items(), key=lambda amount: -amount[1])
    return ", ".join(f"{name} pays {amount:.3g}" for name, amount in paying if amount > 0)
