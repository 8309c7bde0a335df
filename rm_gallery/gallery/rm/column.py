"""`column:NAME`: what a judge has said already, read from a column of the data."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from pydantic import Field

from rm_gallery.core.data.labels import VALUE, VERDICT, number_of, value_of, verdict_of
from rm_gallery.core.data.schema import DataSample, TableSample, blank_is_none, preference_of
from rm_gallery.core.graders.results import OWN
from rm_gallery.core.reward.base_kinds import PerOutputReward
from rm_gallery.core.reward.kinds import Kind, Together, sign
from rm_gallery.core.reward.registry import class_for
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.score import Bounds, Score
from rm_gallery.core.utils.errors import ConfigError, Unscored
from rm_gallery.core.utils.names import unknown_name

_ONE_VERDICT = Together("pointwise", each=True)
_BOTH_ORDERS = Together("pairwise", each=True, compares=True, trial_size=2)
_OPEN: Bounds = (None, None)
_VERDICTS: Bounds = (0.0, 1.0)


class ColumnReward(PerOutputReward):
    """The score that a column of the data holds: nothing is judged, and no text is read.

    Of one answer it is a number, or a verdict in a word (pass and fail, yes and no, true and false,
    correct and incorrect); of several answers the verdict which of them is better (a letter, first
    or second, `A>B`, tie, the name of an answer column), or a list of scores. Two columns are the
    verdicts on the same two answers in both orders: what the judge said when the first was shown
    first, and when the second was. There a letter or a place means the answer as it was shown.

    Range [0, 1] where all cells are verdicts (0 and 1 are), else open; `bounds` says another one.
    Higher is better unless `higher_is_better` says otherwise.

    Raises:
        ConfigError: no column is named, or more than two.
        Unscored: a cell is blank or cannot be read (cause `data`).

    >>> from rm_gallery import RewardRegistry
    >>> judge = RewardRegistry.create("column:verdict")
    >>> judge.evaluate(verdict="Pass").score, judge.evaluate(verdict="3.5").score
    (1.0, 3.5)
    """

    takes_scale: ClassVar[bool] = True

    columns: tuple[str, ...] = Field(min_length=1)
    """The column of verdicts or scores; of both orders the two columns."""

    def __init__(
        self, columns: str | Sequence[str] = (), bounds: Any = None, **settings: Any
    ) -> None:
        """Take the column, or the two of both orders as `FIRST,SECOND`."""
        given = columns.split(",") if isinstance(columns, str) else columns
        names = tuple(name.strip() for name in given)
        if not 1 <= len(names) <= 2 or not all(names):
            raise ConfigError(
                f"column:{','.join(names)}: name one column, as in column:judge, or the two of both "
                f"orders, as in column:FIRST,SECOND."
            )
        usual = bounds if bounds is not None else _VERDICTS if len(names) == 2 else _OPEN
        own = {"columns": names, "name": f"column:{','.join(names)}", "score_range": usual}
        super().__init__(**{**own, **settings})

    @property
    def kind(self) -> Kind:  # type: ignore[override]  # it depends on the columns
        """`pairwise` where both orders are told, else `pointwise`."""
        return _BOTH_ORDERS if self.compares else _ONE_VERDICT

    @property
    def compares(self) -> bool:
        """Whether it is about two answers always."""
        return len(self.columns) == 2

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns."""
        return self.columns

    @property
    def inputs(self) -> dict[str, bool]:
        """The columns."""
        return dict.fromkeys(self.columns, True)

    def range_over(self, rows: Iterable[Mapping[str, Any]]) -> Bounds:
        """[0, 1] where every cell that can be read is a verdict."""
        cells = (row.get(name) for row in rows for name in self.columns)
        worded = self.score_range == _OPEN and all(map(_is_verdict, cells))
        return _VERDICTS if worded else self.score_range

    def _graded(self, fields: Mapping[str, Any]) -> Score[Any]:
        [column] = self.columns
        cell = self._told(fields, column)
        scale = self.range_over([fields])
        extra = {} if scale == self.score_range else {OWN: {"range": scale}}
        return Score(self._value(column, cell), extra=extra)

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> list[Score[Any]]:
        known, names = sample.metadata or {}, _answer_names(sample)
        first = self.columns[0]
        if self.compares:
            return self._both_orders(known, names)
        cell = self._told(known, first)
        if len(names) == 1:
            return [Score(self._value(first, cell))]
        return list(map(Score, self._verdict(first, cell, names)))

    def _both_orders(self, known: Mapping[str, Any], names: Sequence[str]) -> list[Score[Any]]:
        if len(names) != 2:
            raise Unscored(
                f"{self.name} holds verdicts on two answers, and there are {len(names)}.",
                reason="answers",
                cause="data",
            )
        # an answer column that is called A is not what a judge means by A
        names = [name if verdict_of(name, ("", "")) is None else "" for name in names]
        margins = []
        for column, shown, turn in zip(self.columns, (names, names[::-1]), (1, -1), strict=True):
            one, other = self._verdict(column, self._told(known, column), shown)
            margins.append(turn * (one - other))
        signs = {*map(sign, margins)}
        won = signs.pop() if len(signs) == 1 else 0
        extra = {
            "pairs": {"0,1": margins},
            "orders": {"0,1": [[0, 1], [1, 0]]},
            "flip_rate": float(len({*map(sign, margins)}) > 1),
        }
        return [Score((1.0 + turn * won) / 2, extra=extra) for turn in (1, -1)]

    def _told(self, known: Mapping[str, Any], column: str) -> Any:
        if column not in known:
            raise Unscored(unknown_name("column", column, known), reason="column", cause="data")
        if (cell := blank_is_none(known[column])) is None:
            raise Unscored(f"column '{column}' is blank.", reason="blank", cause="data")
        return cell

    def _value(self, column: str, cell: Any) -> float:
        value = value_of(cell)
        low, high = self.score_range
        if (
            value is None
            or not (low is None or low <= value)
            or not (high is None or value <= high)
        ):
            within = "" if self.score_range == _OPEN else f" within {self.score_range}"
            raise _unreadable(column, f"{VALUE}{within}", cell)
        return value

    def _verdict(self, column: str, cell: Any, names: Sequence[str]) -> Sequence[float]:
        scores = _scores(cell, len(names)) or verdict_of(cell, names)
        if scores is None:
            raise _unreadable(column, f"{VERDICT}, or a list of {len(names)} scores", cell)
        return scores


def class_of_column(columns: str) -> type[BaseReward]:
    """What `column:NAME` and `column:FIRST,SECOND` stand for."""
    return class_for(ColumnReward, ColumnReward, partial(ColumnReward, columns))


def _unreadable(column: str, expected: str, cell: Any) -> Unscored:
    message = f"column '{column}': expected {expected}, found {cell!r:.60}."
    return Unscored(message, reason="unreadable", cause="data")


def _is_verdict(cell: Any) -> bool:
    value, number = value_of(cell), number_of(cell)
    return value is None or number in (None, 0.0, 1.0)


def _answer_names(sample: DataSample) -> Sequence[str]:
    """What each answer is called: by its column in a table, as chosen or rejected in a pair."""
    if isinstance(sample, TableSample):
        return sample.names
    return [preference_of(output) or "" for output in sample.output]


def _scores(cell: Any, n: int) -> list[float] | None:
    """A score for each of the answers, where the cell lists them."""
    if isinstance(cell, str) and cell.lstrip().startswith("["):
        try:
            cell = json.loads(cell)
        except ValueError:
            return None
    if not isinstance(cell, list) or len(cell) != n:
        return None
    scores = [value for each in cell if (value := value_of(each)) is not None]
    return scores if len(scores) == n else None
