"""Several rewards as the one number that trains: the sum is tried, and what games it is traced to
the part that pays for it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from rm_gallery.core.engine.options import RunKeywords, RunOptions
from rm_gallery.core.reward.compose import WeightedSum
from rm_gallery.core.reward.resolve import judges_for
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.score import Bounds
from rm_gallery.core.utils.defaults import CHECK_CEILING
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.gallery.benchmarks.figures import plain
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
        parts = ", ".join(f"{name!r}: {target!r}" for name, target in self.targets.items())
        by_name = ", ".join(f"{name!r}: {weight:g}" for name, weight in self.weights.items())
        total = (
            f"WeightedSum({{{parts}}}, "
            f"weights={{{by_name}}}{', normalize=True' if self.normalize else ''}{judge})"
        )
        funcs = ", ".join(map(repr, self.targets.values()))
        weights = ", ".join(f"{weight:g}" for weight in self.weights.values())
        # TRL weighs scores as they are
        each = (
            "trl_rewards([total])"
            if self.normalize
            else f"trl_rewards([{funcs}]{judge}); reward_weights = [{weights}]"
        )
        return [
            "from rm_gallery import WeightedSum",
            f"total = {total}",
            f"TRL        from rm_gallery.integrations.trl import trl_rewards; reward_funcs = "
            f"{each}",
            "verl       from rm_gallery.integrations.verl import verl_reward; compute_score = "
            "verl_reward(total)",
            "OpenRLHF   from rm_gallery.integrations.openrlhf import openrlhf_reward; reward_func "
            "= openrlhf_reward(total)",
            "server     rm-gallery serve --reward total=FILE:total, with the first two lines in "
            "FILE",
        ]


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
    rewards, weights, named = dict[str, BaseReward](), dict[str, float](), dict[str, str]()
    for (target, weight), (reward, _) in zip(given, made, strict=True):
        if reward.name in rewards:
            raise ConfigError(f"two parts are called {reward.name!r}; give each a name.")
        rewards[reward.name], weights[reward.name], named[reward.name] = reward, weight, target
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
    return MixCheck(whole, parts, weights, through, named, total.pays(), normalize, judge)


def shaping(check: RewardCheck) -> RewardCheck:
    """The check of one of several parts: what it pays for is a fault only where the sum pays for
    it.
    """
    return replace(check, findings=[replace(one, level="note") for one in check.findings])


def _through(finding: Weakness, tried: Sequence[Tried], weights: Mapping[str, float]) -> str:
    """What the parts add to completions of a finding, the largest first."""
    own = [
        one
        for one in tried
        if f"{one.case}: {one.kind}" in finding.where and one.scored.value is not None
    ]
    if not own:
        return ""
    added = {
        name: sum(weight * (one.scored.components.get(name) or 0.0) for one in own) / len(own)
        for name, weight in weights.items()
    }
    paying = sorted(
        (name for name, value in added.items() if value > 0), key=lambda name: -added[name]
    )
    return ", ".join(f"{name} pays {added[name]:.3g}" for name in paying)
