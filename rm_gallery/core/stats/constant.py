"""Detects a judge or reward that is constant, or that may go by length alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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


@dataclass
class LengthCount:
    """Counts in how many rows the longer answer won, so that length taken for quality is seen."""

    n: int = 0
    """Rows with one winner and answers that are not all equally long."""
    longer: int = 0
    """Those whose winner is longer than every other answer, and `shorter` than every other."""
    shorter: int = 0

    def add(
        self,
        lengths: Sequence[int],
        scores: Sequence[float | None],
        verdicts: Iterable[tuple[int, int, int | None]] = (),
    ) -> None:
        """Add one row.

        Args:
            lengths: of its answers, in characters.
            scores: of its answers, higher is better.
            verdicts: of its pairs, each as the places of two answers and +1 where the first won, -1
                or 0; where there are any, they decide and not the scores.
        """
        points = dict(enumerate(scores))
        if games := [game for game in verdicts if game[2] is not None]:
            points = dict.fromkeys(range(len(lengths)), 0.0)
            for first, second, won in games:
                points[first] = (points.get(first) or 0.0) + (won or 0)
                points[second] = (points.get(second) or 0.0) - (won or 0)
        known = [value for value in points.values() if value is not None and value == value]
        if len(known) != len(lengths) or len(known) < 2 or known.count(best := max(known)) > 1:
            return
        winner = known.index(best)
        others = [length for place, length in enumerate(lengths) if place != winner]
        if len({lengths[winner], *others}) > 1:
            self.n += 1
            self.longer += lengths[winner] > max(others)
            self.shorter += lengths[winner] < min(others)

    def counts(self) -> dict[str, int]:
        """The counts by name; empty without such a row."""
        return dict(vars(self)) if self.n else {}


_PLACES = {1: "for the answer shown first", -1: "for the answer shown second", 0: "a tie"}
_BLIND = "tells none of these answers apart"
