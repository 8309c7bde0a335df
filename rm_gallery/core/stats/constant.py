"""Detects a constant judge or reward: the same score or verdict for every answer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass
class _Same:
    """Whether all values so far are equal."""

    n: int = 0
    value: float | str | None = None
    varies: bool = False

    def add(self, value: float | str) -> None:
        """Add one value."""
        self.varies |= self.n > 0 and value != self.value
        self.value = value
        self.n += 1

    @property
    def constant(self) -> bool:
        """Whether there are two or more, and all are equal."""
        return self.n > 1 and not self.varies


@dataclass
class Constancy:
    """Collects the scores and verdicts of a run and warns in a sentence if all are equal.

    A constant judge has an accuracy of 0.0 % by a strict rule, 50 % where ties count half, and a
    kappa of 0: figures that look like those of a judge that was asked something hard.
    """

    _scores: _Same = field(default_factory=_Same)
    _places: _Same = field(default_factory=_Same)
    _sides: _Same = field(default_factory=_Same)
    _samples: int = 0

    def add(self, scores: Iterable[float | None], verdicts: Iterable[tuple[int, str]] = ()) -> None:
        """Add one sample.

        Args:
            scores: of its answers or steps; None for what has none.
            verdicts: of its pairs, each as +1 (the answer shown first won), -1 or 0, and whose
                answer won, empty for nobody's.
        """
        self._samples += 1
        seen = self._scores
        for score in scores:
            if score is not None and score == score:
                # speed: as `_Same.add`, once an answer of every run
                seen.varies = seen.varies or (seen.n > 0 and score != seen.value)
                seen.value = score
                seen.n += 1
        for verdict, winner in verdicts:
            self._places.add(_PLACES[verdict])
            self._sides.add(winner if verdict else "a tie")

    def sentence(self, turn: float = 1.0) -> str:
        """The constant score or verdict; "" where they differ or are fewer than two.

        Args:
            turn: -1 where scores were turned since lower is better.
        """
        places, sides, scores = self._places, self._sides, self._scores
        if places.constant:
            said = f"verdicts is {places.value}: the judge {_BLIND}"
        elif sides.constant and self._samples > 1 and sides.value:
            said = f"verdicts is for {sides.value}"
        elif not places.n and scores.constant and not isinstance(scores.value, str | None):
            said = f"scores is {turn * scores.value + 0.0:.4g}: the reward {_BLIND}"
        else:
            return ""
        return f"Every one of the {places.n or scores.n:,} {said}."


_PLACES = {1: "for the answer shown first", -1: "for the answer shown second", 0: "a tie"}
_BLIND = "tells none of these answers apart"
