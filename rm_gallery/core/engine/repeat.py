"""Which of several equal questions one is. Its number is a part of the key under which the reply is
kept, and moves the seed of the sampling, so that no repeat is a copy of another.

A number says by its first 20 bits which of equal runs it is of, by the next twelve which round of
trials, from bit 32 on which vote, and of votes within votes which at each depth. Callers give the
first bits alone.
"""

from __future__ import annotations

from contextvars import ContextVar

from rm_gallery.core.engine.context import current_run

_ROUND, _VOTE = 20, 32
MOST_REPEATS = 1 << _ROUND
_VOTES_AT_A_DEPTH = 1024
_PRIME = 7919
"""So far apart the seeds of two votes are: no vote of one run has that of another vote in the next,
and numbers of votes within votes are not lost."""
_MOST = (1 << 31) - 1
_vote: ContextVar[int] = ContextVar("rm_gallery_vote", default=0)
"""Which of several votes on the same question this is, inside one run."""


def current_repeat() -> int:
    """The number of what is asked here."""
    run = current_run.get()
    return (run.repeat if run is not None else 0) + (_vote.get() << _VOTE)


def become_vote(number: int) -> None:
    """Have what is asked from here on in this context be another vote on the same question."""
    _vote.set(_vote.get() * _VOTES_AT_A_DEPTH + number)


class InRound(int):
    """The repeat of a run's trials, which no caller can give."""


def in_round(repeat: int, number: int) -> int:
    """The repeat of a run's trials in this round, which are asked anew."""
    return InRound(repeat + (number << _ROUND))


def seed_of(seed: int, repeat: int) -> int:
    """The seed of a repeat.

    >>> seed_of(7, 0), seed_of(7, 2)
    (7, 9)
    """
    if not repeat:
        return seed
    return (seed + repeat % (1 << _VOTE) + (repeat >> _VOTE) * _PRIME) % _MOST
