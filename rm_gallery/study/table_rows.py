"""The rows of a table as samples: which of them can be judged, what each belongs to, and what
judging them takes.
"""

from __future__ import annotations

import hashlib
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, overload

from rm_gallery.core.data.load.converters import RowRef
from rm_gallery.core.data.load.padding import without_padding
from rm_gallery.core.data.schema import REFERENCE_KEYS, DataSample, TableSample
from rm_gallery.core.reward.judges import asks_a_model, models_of, most_calls
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.stats import Integers, np
from rm_gallery.core.stats.clustered import first_seen
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.core.utils.file import to_line
from rm_gallery.study.runs import SAMPLES
from rm_gallery.study.sheet import (
    Cell,
    Sheet,
    blank_is_none,
    id_text,
    number_of,
    row_ids,
    text_of_cell,
)

_CONVERSATION_NAMES = frozenset(
    {"conversation", "conversation_id", "session", "session_id", "thread", "thread_id", "dialog_id"}
)
"""Columns that probably say which rows belong together; whose repeats are pointed out."""


class Clusters:
    """What each row of a table belongs to, as a number that counts from 0 in the order in which
    clusters first appear.
    """

    def __init__(self, codes: Integers, name: Callable[[int], str]) -> None:
        self.codes = codes
        self.name = name
        """The name of what a row belongs to, by the row's place."""
        self.n = int(codes.max()) + 1 if len(codes) else 0

    @classmethod
    def of_hashes(cls, hashes: Any) -> Clusters:
        """Rows with equal hashes of 64 bits are one cluster."""
        hashes = np.asarray(hashes, dtype=np.uint64)
        return cls(first_seen(hashes), lambda place: f"{int(hashes[place]):016x}")

    @classmethod
    def of_names(cls, names: Iterable[str]) -> Clusters:
        """Rows with equal names are one cluster."""
        known: dict[str, int] = {}
        codes = np.fromiter((known.setdefault(name, len(known)) for name in names), dtype=np.int64)
        each = list(known)
        return cls(codes, lambda place: each[codes[place]])


def hash_of(name: str) -> int:
    """The first 64 bits of a name's SHA-256."""
    return int.from_bytes(hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()[:8], "big")


def _prompt_hash(text: Cell, place: int) -> int:
    return hash_of(f"row {place}" if text is None else " ".join(text.split()))


def _clusters(sheet: Sheet, hashes: Any, cluster: str | None) -> tuple[Clusters, str]:
    if cluster is not None:
        cells = sheet.column(cluster, "--cluster")
        placed = zip(sheet.places, cells, strict=True)
        clusters = Clusters.of_names(
            sheet.rows.name(where) if cell is None else str(cell) for where, cell in placed
        )
        return clusters, f"column '{cluster}': {clusters.n} clusters in {len(sheet)} rows"
    clusters = Clusters.of_hashes(hashes)
    same = clusters.n < len(sheet)
    return (
        clusters,
        f"rows with the same prompt count as one cluster: {clusters.n} in {len(sheet)} rows"
        if same
        else "",
    )


def _noticed(sheet: Sheet, cluster: str | None) -> tuple[str, ...]:
    if cluster is not None:
        return ()
    for name in sheet.columns:
        if name.lower().replace(" ", "_").replace("-", "_") in _CONVERSATION_NAMES:
            seen: set[str] = set()
            filled = (
                str(cell)
                for row in sheet.rows
                if (cell := blank_is_none(row.get(name))) is not None
            )
            if any(cell in seen or seen.add(cell) for cell in filled):  # type: ignore[func-returns-value]
                return (
                    f"column '{name}' repeats: if its rows belong together, say --cluster {name}",
                )
    return ()


@dataclass(frozen=True)
class TableSamples:
    """The rows of a table that can be judged, as samples, and what is known about all of its rows.

    Attributes:
        samples: one per row that can be judged.
        blank: the blank column of each row that cannot be judged, by place.
        clusters: what each row belongs to.
        clustered_by: in words; empty where every row is its own cluster.
        answers: names of the columns that hold answers.
        counts: how many rows have how many answers to judge.
        notes: what was noticed.
    """

    sheet: Sheet
    samples: RowSamples
    blank: dict[int, str]
    clusters: Clusters
    clustered_by: str
    answers: tuple[str, ...]
    counts: Mapping[int, int] = field(default_factory=dict)
    notes: tuple[str, ...] = field(default=())

    def understood(
        self,
        prompt: str,
        reward: BaseReward,
        labels: Sequence[float | None] | None = None,
        early: bool = False,
    ) -> list[str]:
        """How the table was read and what judging it will take, a line each; `early` when it may
        stop before the end.
        """
        judgements = self.judgements(reward)
        lines = [
            f"{self.sheet.name}: {len(self.sheet)} rows ({self.sheet.understood}); columns: "
            f"{', '.join(self.sheet.columns)}",
            f"prompt '{prompt}', answers " + ", ".join(f"'{name}'" for name in self.answers),
            self.clustered_by,
            *self.notes,
            *self.sheet.notes,
            f"{len(self.blank)} rows cannot be judged; {self.why_blank(next(iter(self.blank)))}"
            if self.blank
            else "",
            ""
            if labels is None
            else f"{sum(label is not None for label in labels)} rows have a label",
            f"{len(self.samples)} rows to judge with {reward.name}: {judgements:,} judgements, "
            f"{self._calls(reward, judgements)}"
            + (", fewer if it is decided earlier" if early else ""),
        ]
        return [line for line in lines if line]

    def judgements(self, reward: BaseReward) -> int:
        """How many judgements a reward makes of the rows."""
        return self._over_rows(lambda sample: len(reward.plan(sample)) * reward.asked_times)

    def _calls(self, reward: BaseReward, judgements: int) -> str:
        """How many calls of which models the judgements are, in words."""
        if not asks_a_model(reward):
            return "no calls"
        calls, names = (
            self._over_rows(lambda sample: most_calls(reward, sample)),
            ", ".join(m.model for m in models_of(reward)),
        )
        of = f" of {names}" if names else ""
        if calls == judgements and not reward.made_of_parts:
            return f"each a call{of} unless its reply is in the cache"
        return f"at most {calls:,} calls{of}, fewer where replies are in the cache"

    def _over_rows(self, count: Callable[[DataSample], int]) -> int:
        """The sum of a count over the rows, which differ in their number of answers alone."""
        planned: dict[int, int] = {}
        for sample in self.samples:
            if len(sample.output) not in planned:
                planned[len(sample.output)] = count(sample)
            if len(planned) == len(self.counts):
                break
        return sum(planned[answers] * rows for answers, rows in self.counts.items())

    def why_blank(self, place: int) -> str:
        """Why a row cannot be judged."""
        return _why_blank(self.sheet, place, self.blank[place])

    def blank_reason(self) -> dict[str, Any]:
        """How many rows could not be judged for want of text, with an example, as a report names
        reasons.
        """
        return {"n": len(self.blank), "example": self.why_blank(next(iter(self.blank)))}

    def keep_blank(self, run_dir: str) -> None:
        """Keep the rows that could not be judged in samples.jsonl, beside those that were.

        A run removes lines that are not its own samples, so these are appended after every run.
        """
        with (Path(run_dir) / SAMPLES).open("ab") as file:
            for place in self.blank:
                where, row = self.sheet.rows.place(place), self.sheet.rows[place]
                record = {
                    "id": self.sheet.rows.name(where),
                    "key": f"blank:{place}",
                    "cluster": self.clusters.name(place),
                    "status": "unscored",
                    "answers": [
                        text_of_cell(blank_is_none(row.get(name))) or "" for name in self.answers
                    ],
                    "issues": [["unscored", "blank", self.why_blank(place), "data"]],
                    "metadata": {
                        "row": place,
                        "number": where.number,
                        "columns": list(range(len(self.answers))),
                    },
                }
                file.write(to_line(record))


def questions_of(
    sheet: Sheet,
    prompt: str,
    answers: Mapping[str, str],
    *,
    reference: str | None = None,
    id_column: str | None = None,
    cluster: str | None = None,
    withheld: Collection[str | None] = (),
    numbers: bool = False,
    needed: int = 1,
) -> TableSamples:
    """The rows as samples with these columns; `answers` maps the option that names a column to its
    name.

    A row without a prompt, or with fewer than `needed` answers, is not judged. Rows that share a
    prompt are one cluster unless `cluster` names a column. The other columns are the samples'
    metadata, as `evaluate` has them, but for those in `withheld`, which hold the truth.

    Raises:
        ConfigError: a column is missing, blank or, without `numbers`, numeric; one is named twice;
            an id stands twice.
    """
    doubled = [name for name, times in Counter([prompt, *answers.values()]).items() if times > 1]
    if doubled:
        raise ConfigError(
            f"column '{doubled[0]}' is named twice; prompt and answers are columns of their own."
        )
    roles = {prompt: "--prompt", **{name: role.split()[0] for role, name in answers.items()}}
    texts = {name: _TextColumn(sheet, name, role, numbers) for name, role in roles.items()}
    if reference is not None:
        sheet.require(reference, "--reference")
    names, counts, blank, hashes, referenced = (
        tuple(answers.values()),
        Counter[int](),
        dict[int, str](),
        array("Q"),
        False,
    )
    for place, row in enumerate(sheet.rows):
        asked, *cells = (texts[name].look(row) for name in (prompt, *names))
        hashes.append(_prompt_hash(text_of_cell(asked), place))
        filled = sum(cell is not None for cell in cells)
        if asked is None or filled < needed:
            blank[place] = (
                prompt
                if asked is None
                else names[next(k for k, cell in enumerate(cells) if cell is None)]
            )
        else:
            counts[filled] += 1
        referenced = (
            referenced or reference is not None and blank_is_none(row.get(reference)) is not None
        )
    for column in texts.values():
        column.check()
    if reference is not None and not referenced:
        raise sheet.all_blank(reference, "--reference")
    if id_column is not None:
        row_ids(sheet, id_column)
    clusters, clustered_by = _clusters(sheet, hashes, cluster)
    if not counts:
        first = next(iter(blank))
        raise ConfigError(
            f"{sheet.name}: no row can be judged; the first: "
            f"{_why_blank(sheet, first, blank[first])}"
        )
    own = {prompt, *names, reference, id_column, *withheld}
    if reference is not None:
        own.update(REFERENCE_KEYS)  # which would speak where the named column is blank
    others = tuple(name for name in sheet.columns if name not in own)
    samples = RowSamples(sheet, blank, clusters, prompt, names, reference, id_column, others)
    return TableSamples(
        sheet, samples, blank, clusters, clustered_by, names, counts, _noticed(sheet, cluster)
    )


class _TextColumn:
    """A column that should hold texts, looked at row by row."""

    def __init__(self, sheet: Sheet, name: str, role: str, numbers: bool) -> None:
        sheet.require(name, role)
        self._sheet, self._name, self._role, self._numbers = sheet, name, role, numbers
        self._filled, self._a_text = list[Any](), False

    def look(self, row: Mapping[str, Any]) -> Any:
        """The row's cell, None for a blank one."""
        cell = blank_is_none(row.get(self._name))
        if cell is not None and not self._a_text:
            self._a_text = number_of(cell) is None
            self._filled += [cell] if len(self._filled) < 3 else []
        return cell

    def check(self) -> None:
        """ConfigError for a column that is blank, or holds nothing but numbers, which are hardly
        what is to be judged.
        """
        if not self._filled:
            raise self._sheet.all_blank(self._name, self._role)
        if not self._a_text and not self._numbers:
            example = ", ".join(dict.fromkeys(str(cell) for cell in self._filled))
            raise ConfigError(
                f"{self._role} is '{self._name}', and that column holds numbers only ({example}), "
                f"no text to judge; name "
                "another one, or say --config columns.numbers=true (numbers=True) where these numbers are the texts."
            )


class RowSamples(Sequence[TableSample]):
    """The rows of a table that can be judged, each made a sample when it is asked for."""

    def __init__(
        self,
        sheet: Sheet,
        blank: Mapping[int, str],
        clusters: Clusters,
        prompt: str,
        answers: Sequence[str],
        reference: str | None,
        id_column: str | None,
        others: Sequence[str] = (),
    ) -> None:
        self._others = others
        self._sheet, self._blank, self._clusters = sheet, sorted(blank), clusters
        self._prompt, self._answers, self._reference, self._id = (
            prompt,
            answers,
            reference,
            id_column,
        )

    def __len__(self) -> int:
        return len(self._sheet) - len(self._blank)

    def __iter__(self) -> Iterator[TableSample]:
        left_out = frozenset(self._blank)
        placed = enumerate(self._sheet.rows.placed())
        return (
            self._sample_at(place, where, row)
            for place, (where, row) in placed
            if place not in left_out
        )

    @overload
    def __getitem__(self, number: int) -> TableSample: ...
    @overload
    def __getitem__(self, number: slice) -> list[TableSample]: ...
    def __getitem__(self, number: int | slice) -> TableSample | list[TableSample]:
        if isinstance(number, slice):
            return [self[each] for each in range(*number.indices(len(self)))]
        place = range(len(self))[number]
        while place != (further := range(len(self))[number] + bisect_right(self._blank, place)):
            place = further
        return self._sample_at(place, self._sheet.rows.place(place), self._sheet.rows[place])

    def _sample_at(self, place: int, where: RowRef, row: Mapping[str, Any]) -> TableSample:
        cells = [text_of_cell(blank_is_none(row.get(name))) for name in self._answers]
        filled = [k for k, cell in enumerate(cells) if cell is not None]
        given = {name: without_padding(blank_is_none(row.get(name))) for name in self._others}
        if (
            self._reference is not None
            and (text := text_of_cell(blank_is_none(row.get(self._reference)))) is not None
        ):
            given["reference"] = text
        asked = text_of_cell(blank_is_none(row.get(self._prompt)))
        outputs = [
            {"answer": {"role": "assistant", "content": cell}} for cell in cells if cell is not None
        ]
        name = (
            self._sheet.rows.name(where)
            if self._id is None
            else id_text(blank_is_none(row.get(self._id)))
        )
        made = {
            "unique_id": name,
            "input": [{"role": "user", "content": asked}],
            "output": outputs,
            "metadata": given or None,
            "place": {
                "row": place,
                "number": where.number,
                "columns": filled,
                "cluster": self._clusters.name(place),
            },
        }
        return TableSample.model_validate(made)


def _why_blank(sheet: Sheet, place: int, column: str) -> str:
    return f"{sheet.rows.place(place)}: column '{column}' is blank"
