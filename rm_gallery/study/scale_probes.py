"""Probes of the numbers themselves: range, saturation, length, noise, and replies that cannot be
read.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rm_gallery.core.data.schema import DataOutput
from rm_gallery.core.reward.judges import asks_a_model
from rm_gallery.core.stats import Floats, Integers, np
from rm_gallery.core.stats.agreement import spearman_estimate
from rm_gallery.core.stats.uncertainty import Estimate, difference, of_sums
from rm_gallery.study.attacks import NO_ANSWERS, text_of
from rm_gallery.study.pairwise_comparisons import Finding
from rm_gallery.study.probes import AnswerPairs, Probe

RESAMPLES = 1000


class Range(Probe):
    """Whether the scale is used, and whether it runs out where it should tell answers apart."""

    name = "range"

    def inapplicable(self) -> str:
        """Verdicts have no scale."""
        return "answers are compared, and a verdict has no scale" if self.pairs.comparing else ""

    def ask(self) -> None:
        """Texts that are no answers belong to the lower end of the scale."""
        self.poor = [
            [
                self.pairs.text(material.worse, NO_ANSWERS[name][1](material))
                for name in ("gibberish", "echo")
            ]
            for material in self.pairs.materials
        ]
        for material, outputs in zip(self.pairs.materials, self.poor, strict=True):
            for output in outputs:
                self.pairs.sheet.ask(material.sample, [output])

    def read(self) -> list[Finding]:
        """Pairs with equal scores, poor answers at the top, and the part of the scale that is used."""
        pairs = self.pairs
        scores: list[list[float]] = []
        poor: list[tuple[float, int]] = []
        for number, texts in enumerate(self.poor):
            given = [
                pairs.score(output, number)
                for output in (pairs.good[number], pairs.worse[number], *texts)
            ]
            scores.append([score for score in given if score is not None])
            poor += [(score, number) for score in given[1:] if score is not None]
        every = [score for own in scores for score in own]
        low, high = pairs.reward.score_range
        if not pairs.reward.higher_is_better:
            low, high = (None if end is None else -end for end in (high, low))
        top = max(every, default=0.0) if high is None else high  # without a bound the best seen
        # scores are kept so that higher is better; people are shown the reward's own
        turn, end = (1.0, "highest") if self.pairs.reward.higher_is_better else (-1.0, "lowest")
        values = [float(score == top) for score, _ in poor]
        own = [turn * score for score in every]
        counts = Counter(own)
        extra: dict[str, Any] = {
            "levels": len(counts),
            "lowest": min(own, default=None),
            "highest": max(own, default=None),
        }
        for score, times in counts.most_common(1):
            extra["most_common"] = {"score": score, "share": times / len(own)}
        where = [pairs.plain[n].cluster for _, n in poor]
        self.words = {"end": end, "top": turn * top}
        at_top = self._mean_figure("saturation", values, where)
        return [
            self._rate("ties", pairs.plain, lambda margin: float(margin == 0), extra=extra),
            at_top if every else replace(at_top, what=""),
            self._used(scores, None if high is None else low, top),
        ]

    def _used(self, scores: list[list[float]], low: float | None, top: float) -> Finding:
        if low is None or top <= low:
            return self._figure("used", verdict="does not apply", why="the scale has no bounds")
        kept = [own for own in scores if own]
        if not kept:
            return self._figure("used", verdict="not enough")
        every = np.array([score for own in kept for score in own])
        prompts = np.repeat(np.arange(len(kept)), [len(own) for own in kept])
        figure = _range_used((every - low) / (top - low), prompts)
        return self._figure(
            "used",
            value=figure.estimate,
            ci95=figure.interval(),
            n=len(every),
            clusters=len(kept),
        )


def _range_used(scores: Floats, prompts: Integers) -> Estimate:
    """Distance of the 5th and the 95th percentile of scores within 0..1.

    A score pulls a quantile by whether it lies below, over the density there, which the quantiles
    beside it give: leaving prompts out covers 66 % instead of 95 with few of them.
    """
    n, estimate, pulls = len(scores), 0.0, np.zeros(len(scores))
    for share, sign in ((0.95, 1.0), (0.05, -1.0)):
        beside = math.sqrt(share * (1.0 - share) / n)
        ends = [max(0.0, share - beside), min(1.0, share + beside)]
        at, below, above = np.quantile(scores, [share, *ends])
        under = scores <= at
        pulls += sign * (above - below) / (ends[1] - ends[0]) * (under.mean() - under) / n
        estimate += sign * float(at)
    return Estimate(estimate, pulls, np.full(n, 1.0 / n), prompts)


class LengthCorrelation(Probe):
    """Whether longer answers do better, beyond what the labels say of these answers."""

    name = "length_correlation"

    def read(self) -> list[Finding]:
        """Rank correlation of score (or verdict) and length, and how far it exceeds that of the
        labels.
        """
        blocks = [
            block for number in range(len(self.pairs.materials)) if (block := self._block(number))
        ]
        of = "verdict and difference in length" if self.pairs.comparing else "score and length"
        self.words = {"of": of}
        if len(blocks) < 5:
            n = 2 * len(blocks)
            return [self._figure(name, n=n, verdict="not enough") for name in ("rank", "excess")]
        scores, lengths, labels = np.array(blocks, dtype=np.float64).reshape(-1, 3).T
        names = np.repeat(np.arange(len(blocks)), 2)
        rank, of_labels = (
            spearman_estimate(side, lengths, clusters=names) for side in (scores, labels)
        )
        if rank is None or of_labels is None:
            why = "all scores, or all lengths, are equal"
            return [self._figure("rank", verdict="does not apply", why=why)]
        excess = difference(rank, of_labels)
        shared: dict[str, Any] = {"n": len(scores), "clusters": len(blocks)}
        own = {"labels": of_labels.estimate}
        return [
            self._figure("rank", value=rank.estimate, ci95=rank.interval(), **shared),
            self._figure(
                "excess", value=excess.estimate, ci95=excess.interval(), extra=own, **shared
            ),
        ]

    def _block(self, number: int) -> list[tuple[float, float, float]]:
        """Score, length and label of a prompt's two answers; for a comparing reward the
        differences, both ways round.
        """
        pairs = self.pairs
        outputs: list[DataOutput] = [pairs.good[number], pairs.worse[number]]
        lengths = [float(len(text_of(output))) for output in outputs]
        if pairs.comparing:
            margin = pairs.sheet.margin(pairs.plain[number])
            difference = lengths[0] - lengths[1]
            return (
                [] if margin is None else [(margin, difference, 1.0), (-margin, -difference, -1.0)]
            )
        scores = [pairs.score(output, number) for output in outputs]
        if scores[0] is None or scores[1] is None:
            return []
        return [(scores[0], lengths[0], 1.0), (scores[1], lengths[1], 0.0)]


class Repeatability(Probe):
    """Whether the same question gets the same verdict when it is asked again."""

    name = "repeats"

    def ask(self) -> None:
        """The plain pairs are asked a second time in a round of their own."""
        self.second = AnswerPairs(self.pairs.reward, self.pairs.materials, self.pairs.seed)

    def read(self) -> list[Finding]:
        """Share of verdicts that change, and what part of the scores' variance is noise."""
        pairs = self.pairs
        both = list(zip(pairs.plain, self.second.plain, strict=True))
        return [self._changes("changed", both, self.second.sheet), self._noise()]

    def _noise(self) -> Finding:
        """The share of one score's variance around the answer's own in the variance of all scores."""
        if self.pairs.comparing:
            return self._figure(
                "noise", verdict="does not apply", why="a verdict has no variance of its own"
            )
        blocks = [
            block for number in range(len(self.pairs.materials)) if (block := self._twice(number))
        ]
        table = np.array(blocks, dtype=np.float64)  # prompt, answer, time
        if len(blocks) < 2 or np.ptp(table) == 0.0:
            if len(blocks) > 1:
                return self._figure("noise", verdict="does not apply", why="all scores are equal")
            return self._figure("noise", verdict="not enough")
        # scores near the end of what a float holds have squares beyond it
        scale = float(np.abs(table).max())
        table, n = table / scale, len(table)
        twice = table.reshape(-1, 2)
        apart = np.diff(twice)[:, 0] ** 2 / 2.0
        columns = [apart, twice.sum(axis=1), (twice**2).sum(axis=1), np.full(len(twice), 2.0)]
        figure = of_sums(np.column_stack(columns), _noise_share, np.arange(2 * n) // 2)
        assert figure is not None
        deviation = scale * math.sqrt(float((np.diff(twice) ** 2).mean() / 2))
        return self._figure(
            "noise",
            value=figure.estimate,
            ci95=figure.interval(),
            n=len(twice),
            clusters=n,
            why=f"one score varies by {deviation:.2g} (standard deviation)",
            extra={"score_sd": deviation},
        )

    def _twice(self, number: int) -> list[list[float]]:
        """Both scores of both answers to a prompt; empty where one is missing."""
        pairs = self.pairs
        scores = [
            [pairs.score(o[number], number), self.second.score(o[number], number)]
            for o in (pairs.good, pairs.worse)
        ]
        known = [[score for score in both if score is not None] for both in scores]
        return known if all(len(both) == 2 for both in known) else []


def _noise_share(sums: Floats) -> Floats:
    """Half the mean squared difference of two scores over the variance of all, at most 1; 0 where
    all are equal. From sums of those halves, of scores, of their squares, and how many they are.
    """
    apart, total, squares, n = sums.T
    variance = (squares - total**2 / n) / (n - 1.0)
    share: Floats = np.where(variance > 0.0, 2.0 * apart / n / variance, 0.0)
    return np.minimum(share, 1.0)


class Replies(Probe):
    """How often there is no verdict, injected answers aside."""

    name = "replies"

    def __init__(self, pairs: AnswerPairs, keys: Sequence[str]) -> None:
        super().__init__(pairs)
        self.keys = list(keys)
        self.group = "replies" if asks_a_model(pairs.reward) else "replies_of_rules"

    def read(self) -> list[Finding]:
        """Questions without a verdict: those whose reply could not be read, and those that broke."""
        outcomes = [
            (key, one)
            for key in self.keys
            if (one := self.pairs.sheet.outcomes.get(key)) and one.status != "stopped"
        ]
        figures = []
        for name, status in (("unread", "unscored"), ("failed", "failed")):
            reasons = Counter(one.reason for _, one in outcomes if one.status == status)
            why = ", ".join(f"{n} × {reason}" for reason, n in reasons.most_common(3))
            credits = [float(one.status == status) for _, one in outcomes]
            asked = [key for key, _ in outcomes]
            extra = {"reasons": dict(reasons)}
            figures.append(self._mean_figure(name, credits, asked, extra=extra, why=why))
        return figures
