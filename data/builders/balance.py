"""Choosing one length per answer so that neither length nor markdown tells the right answer.

Within a subset the chosen answer is the longest, second, third and shortest of the four equally
often, and the plan of styles makes "take the answer in markdown" succeed in one case out of four.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from data.builders.common import Draft, Draw, Style

Picked = tuple[tuple[str, ...], tuple[str, ...]]
"""The texts of the chosen and of the rejected answers."""

_MAX_FORMS = 5


def styles(count: int, draw: Draw) -> list[Style]:
    """Return which answers are in markdown, for count rows.

    In every four rows the same number m of answers is in markdown, and the chosen one is among them
    in m rows.
    """
    plan: list[Style] = []
    for index in range(count):
        marked = (2, 1, 3, 0)[(index // 4) % 4]
        first = index % 4 < marked
        rest = draw.shuffled([place < marked - first for place in range(3)])
        plan.append((first, rest[0], rest[1], rest[2]))
    return draw.shuffled(plan)


def _combinations(draft: Draft) -> Iterator[tuple[int, Picked]]:
    """Yield every choice of lengths with the rank of the chosen text, 0 being the longest."""
    rejected = [candidate.forms[:_MAX_FORMS] for candidate in draft.rejected]
    for first in draft.chosen[0].forms:
        for others in product(*rejected):
            sizes = [len(other) for other in others]
            # An equal length would leave the rank undefined.
            if len({first, *others}) == 1 + len(others) and len(first) not in sizes:
                yield sum(size > len(first) for size in sizes), ((first,), others)


def _same_rank_in_words(rank: int, found: list[Picked]) -> list[Picked]:
    """Keep the choices in which counting words gives the same rank as counting characters, if there
    are any.
    """
    kept = []
    for picked in found:
        (first, *_), others = ([len(text.split()) for text in texts] for texts in picked)
        if first not in others and sum(size > first for size in others) == rank:
            kept.append(picked)
    return kept or found


def settle(drafts: Sequence[Draft], draw: Draw) -> list[Picked]:
    """Choose the texts of best-of-4 drafts with evenly spread length ranks; raises ValueError if a
    draft has no choice.
    """
    options: list[dict[int, list[Picked]]] = []
    for draft in drafts:
        by_rank: dict[int, list[Picked]] = {}
        for rank, picked in _combinations(draft):
            by_rank.setdefault(rank, []).append(picked)
        if not by_rank:
            raise ValueError(
                f"no four different texts for the prompt {draft.prompt[:60]!r}; add forms"
            )
        options.append({rank: _same_rank_in_words(rank, found) for rank, found in by_rank.items()})
    used = [0, 0, 0, 0]
    result: list[Picked | None] = [None] * len(drafts)
    # The drafts with the fewest possible ranks go first, so that the others can fill up what is
    # missing.
    for index in sorted(range(len(drafts)), key=lambda place: (len(options[place]), place)):
        ranks = sorted(options[index], key=lambda rank: (used[rank], rank))
        used[ranks[0]] += 1
        result[index] = draw.pick(options[index][ranks[0]])
    return [picked for picked in result if picked is not None]


def only_texts(draft: Draft) -> Picked:
    """Return the texts of a draft whose answers exist in one length each."""
    return tuple(each.forms[0] for each in draft.chosen), tuple(
        each.forms[0] for each in draft.rejected
    )
