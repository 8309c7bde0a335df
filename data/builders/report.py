"""What can be won on a split without reading for meaning: baselines on length, markdown and order,
by subset.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from data.builders.common import BEST_OF_4, SUBSETS, has_markdown, is_chinese

Row = dict[str, Any]
Score = Callable[[str], float]

BASELINES: dict[str, Score] = {
    "longest": lambda text: len(text),
    "shortest": lambda text: -len(text),
    "most words": lambda text: len(text.split()),
    "fewest words": lambda text: -len(text.split()),
    "markdown": lambda text: has_markdown(text),
    "plain": lambda text: not has_markdown(text),
}


def best_of_4(rows: Sequence[Row], score: Score) -> float:
    """Return the RewardBench 2 score in percent: 1/k when the chosen answer shares the highest of
    four scores with k - 1 others.
    """
    total = 0.0
    for row in rows:
        values = [score(text) for text in (*row["chosen"], *row["rejected"])]
        best = max(values)
        total += (values[0] == best) / values.count(best)
    return 100 * total / len(rows)


def _gap(row: Row, score: Score) -> tuple[float, float]:
    """Return how far the worst right answer is above the best wrong one, and the spread of the
    right ones.
    """
    right = [float(score(text)) for text in row["chosen"]]
    return min(right) - max(float(score(text)) for text in row["rejected"]), max(right) - min(right)


def _margin(gap: float, spread: float) -> float:
    if spread == 0:
        return 0.0 if gap == 0 else math.copysign(1.0, gap)
    return math.tanh(gap / spread - 1)


def ties(rows: Sequence[Row], score: Score) -> float:
    """Return the Ties score in percent by the RewardBench 2 formula over the ref/tied pairs."""
    found = {row["id"]: _gap(row, score) for row in rows}
    pairs = [
        (found[f"ref:{name[5:]}"][0], *found[name]) for name in found if name.startswith("tied:")
    ]
    count = len(pairs)
    value = 0.30 * sum(tied > 0 for _, tied, _ in pairs) + 0.30 * sum(
        ref > 0 for ref, _, _ in pairs
    )
    value += 0.20 * sum(tied > spread for _, tied, spread in pairs)
    value += 0.20 * sum(min(ref, tied) > spread for ref, tied, spread in pairs)
    value += 0.01 * sum(_margin(min(ref, tied), spread) for ref, tied, spread in pairs)
    return 100 * value / count


def length_ranks(rows: Sequence[Row]) -> list[int]:
    """Return how often the chosen answer is the longest, second, third and shortest."""
    counts = [0, 0, 0, 0]
    for row in rows:
        counts[sum(len(text) > len(row["chosen"][0]) for text in row["rejected"])] += 1
    return counts


def longest_places(rows: Sequence[Row]) -> list[int]:
    """Return how often the longest wrong answer is the first, second and third in the list of wrong
    answers.
    """
    counts = [0, 0, 0]
    for row in rows:
        sizes = [len(text) for text in row["rejected"]]
        counts[sizes.index(max(sizes))] += 1
    return counts


def summary(rows: Sequence[Row]) -> list[str]:
    """Return the lines of a markdown table with one line per subset; figures are percent, chance is
    25 for best of 4.
    """
    names = list(BASELINES)
    lines = [
        "| subset | rows | Chinese | mean length | "
        + " | ".join(names)
        + " | length rank | longest wrong |",
        "|---|---:|---:|---:|" + "---:|" * len(names) + "---|---|",
    ]
    for subset in SUBSETS:
        part = [row for row in rows if row["subset"] == subset]
        rule = best_of_4 if subset in BEST_OF_4 else ties
        texts = [text for row in part for text in (*row["chosen"], *row["rejected"])]
        scores = [f"{rule(part, BASELINES[name]):.1f}" for name in names]
        ranks = ["-", "-"]
        if subset in BEST_OF_4:
            ranks = ["/".join(map(str, counts(part))) for counts in (length_ranks, longest_places)]
        chinese = sum(is_chinese(row["prompt"]) for row in part)
        mean = sum(map(len, texts)) / len(texts)
        lines.append(
            f"| {subset} | {len(part)} | {chinese} | {mean:.0f} | "
            + " | ".join(scores + ranks)
            + " |"
        )
    return lines
