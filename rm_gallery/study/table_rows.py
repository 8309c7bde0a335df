"""The rows of a table as samples: which of them can be judged, what each belongs to, and what
judging them takes.
"""

from __future__ import annotations

import hashlib
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from rm_gallery.core.data.labels import number_of
from rm_gallery.core.data.load.converters import RowRef
from rm_gallery.core.data.load.padding import without_padding
from rm_gallery.core.data.schema import REFERENCE_KEYS, DataSample, TableSample
from rm_gallery.core.reward.judges import asks_a_model, models_of, most_calls
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.stats import Integers, np
from rm_gallery.core.stats.columns import first_seen
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.core.utils.file import to_line
from rm_gallery.core.utils.names import unknown_name
from rm_gallery.study.runs import SAMPLES
from rm_gallery.study.sheet import (
    MadeWhenAsked,
    Sheet,
    cell_of,
    id_text,
    open_sheet,
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


def _clusters(sheet: Sheet, hashes: Any, cluster: str | None) -> tuple[Clusters, str]:
    if cluster is not None:
        cells = sheet.column(cluster, "columns.cluster")
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


def _unused_cluster(sheet: Sheet, cluster: str | None) -> str:
    """Points out a column that probably says which rows belong together, where none is named."""
    for name in sheet.columns if cluster is None else ():
        if name.lower().replace(" ", "_").replace("-", "_") in _CONVERSATION_NAMES:
            cells = (cell_of(row, name) for row in sheet.rows)
            filled = [str(cell) for cell in cells if cell is not None]
            if len(set(filled)) < len(filled):
                return (
                    f"column '{name}' repeats: if its rows belong together, say --config "
                    f"columns.cluster={name}"
                )
    return ""


@dataclass(frozen=True)
class Columns:
    """How a table is read and which of its columns mean what, beside the prompt and the answers.

    Attributes:
        reference: column of reference answers, for rewards that read one.
        id: column of ids, which labels in a file of their own need.
        labels: column of people's labels for some rows, or a file that holds them by id.
        label_column: the file's column of labels, where it has several.
        label_probability: column of the probability with which a row was chosen for labelling,
            where that was no plain chance.
        cluster: column that says which rows belong together; rows with the same prompt do anyway.
        by: columns whose values are subgroups; p-values are corrected for all of them.
        numbers: take columns of numbers for texts.
        limit: judge a seeded sample of this many rows.
        shard: "2/4" judges the second of four equal shares of the rows, as in `evaluate`.
        seed: decides that sample.
        on_bad_row: `raise`, or `skip` and count.
        encoding: of csv files, `separator` their separator; found unless given.
        separator: see `encoding`.
        sheet: of a workbook, and `header_row` (from 1) where its names stand.
        header_row: see `sheet`.
    """

    reference: str | None = None
    id: str | None = None
    labels: str | None = None
    label_column: str | None = None
    label_probability: str | None = None
    cluster: str | None = None
    by: Sequence[str] = ()
    numbers: bool = False
    limit: int | None = None
    shard: str | None = None
    seed: int = 0
    on_bad_row: str = "raise"
    encoding: str | None = None
    separator: str | None = None
    sheet: str | None = None
    header_row: int | None = None

    @classmethod
    def out_of(cls, keywords: Mapping[str, Any]) -> tuple[Columns, dict[str, Any]]:
        """The keywords that are fields of this, and the others."""
        own = {field.name: keywords[field.name] for field in fields(cls) if field.name in keywords}
        return cls(**own), {name: value for name, value in keywords.items() if name not in own}

    def open(self, data: Any) -> Sheet:
        """Read the table."""
        names = ("limit", "seed", "on_bad_row", "encoding", "separator", "sheet", "header_row")
        return open_sheet(data, **{name: getattr(self, name) for name in names})


class TableSamples(MadeWhenAsked[TableSample]):
    """The rows of a table that can be judged, each made a sample when it is asked for, and what is
    known about all of its rows.

    A row without a prompt, or with fewer answers than `unnamed` has names, is not judged. Rows that
    share a prompt are one cluster unless `columns` name one. What has no meaning there is the
    samples' metadata, as `evaluate` has it; labels hold the truth and are in no sample.

    Args:
        sheet: the table.
        prompt: name of the column of prompts; None where none is named.
        roles: the option that names a column of answers to its name; empty where no column does.
        columns: what other columns mean.
        unnamed: what answers are called that no column holds.

    Raises:
        ConfigError: a column is missing, blank or, unless these are texts, numeric; one is named
            twice; an id stands twice.
    """

    def __init__(
        self,
        sheet: Sheet,
        prompt: str | None,
        roles: Mapping[str, str],
        columns: Columns,
        unnamed: tuple[str, ...],
    ) -> None:
        self.sheet, self.prompt, self.columns = sheet, prompt, columns
        self.has_answers = bool(roles)
        self.answers = tuple(roles.values()) or unnamed
        _check_named(sheet, prompt, roles, columns)
        self.blank: dict[int, str] = {}
        """The blank column of each row that cannot be judged, by place."""
        self.counts = Counter[int]()
        """How many rows have how many answers to judge."""
        hashes = array("Q")
        for place, row in enumerate(sheet.rows):
            asked = None if prompt is None else cell_of(row, prompt)
            cells = [cell_of(row, name) if roles else "" for name in self.answers]
            text = text_of_cell(asked)
            hashes.append(hash_of(f"row {place}" if text is None else " ".join(text.split())))
            filled = sum(cell is not None for cell in cells)
            if prompt is not None and asked is None:
                self.blank[place] = prompt
            elif filled < len(unnamed):
                self.blank[place] = self.answers[cells.index(None)]
            else:
                self.counts[filled] += 1
        if columns.reference is not None:
            sheet.column(columns.reference, "--reference")
        if columns.id is not None:
            row_ids(sheet, columns.id)
        self.clusters, self.clustered_by = _clusters(sheet, hashes, columns.cluster)
        if not self.counts:
            raise ConfigError(
                f"{sheet.name}: no row can be judged; the first: {self.why_blank(min(self.blank))}"
            )
        known = {prompt, *roles.values(), columns.reference, columns.id}
        known |= {columns.labels, columns.label_column, columns.label_probability}
        if columns.reference is not None:
            known.update(REFERENCE_KEYS)  # which would speak where the named column is blank
        self.others = tuple(name for name in sheet.columns if name not in known)
        """Names of the columns that the samples' metadata hold."""

    def __len__(self) -> int:
        return len(self.sheet) - len(self.blank)

    def __iter__(self) -> Iterator[TableSample]:
        for place, (where, row) in enumerate(self.sheet.rows.placed()):
            if place not in self.blank:
                yield self._sample_at(place, where, row)

    def made(self, place: int) -> TableSample:
        """The sample at a place among those that can be judged."""
        row = place
        while row != (further := place + bisect_right(self._left_out, row)):
            row = further
        return self._sample_at(row, self.sheet.rows.place(row), self.sheet.rows[row])

    @cached_property
    def _left_out(self) -> list[int]:
        return sorted(self.blank)

    def _sample_at(self, place: int, where: RowRef, row: Mapping[str, Any]) -> TableSample:
        columns = self.columns
        texts = [
            text_of_cell(cell_of(row, name)) if self.has_answers else "" for name in self.answers
        ]
        filled = [(k, text) for k, text in enumerate(texts) if text is not None]
        metadata = {name: without_padding(cell_of(row, name)) for name in self.others}
        if columns.reference is not None:
            reference = text_of_cell(cell_of(row, columns.reference))
            metadata |= {} if reference is None else {"reference": reference}
        asked = None if self.prompt is None else text_of_cell(cell_of(row, self.prompt))
        name = (
            self.sheet.rows.name(where) if columns.id is None else id_text(cell_of(row, columns.id))
        )
        return TableSample.model_validate(
            {
                "unique_id": name,
                "input": [] if self.prompt is None else [{"role": "user", "content": asked}],
                "output": [
                    {"answer": {"role": "assistant", "content": text}} for _, text in filled
                ],
                "metadata": metadata or None,
                "names": [self.answers[k] for k, _ in filled],
                "place": {
                    "row": place,
                    "number": where.number,
                    "columns": [k for k, _ in filled],
                    "cluster": self.clusters.name(place),
                },
            }
        )

    def understood(
        self,
        reward: BaseReward,
        labels: Sequence[float | None] | None = None,
        early: bool = False,
    ) -> list[str]:
        """How the table was read and what judging it will take, a line each; `early` when it may
        stop before the end.
        """
        judgements = self.judgements(reward)
        prompt = "no column of prompts" if self.prompt is None else f"prompt '{self.prompt}'"
        names = ", ".join(f"'{name}'" for name in self.answers)
        n_labels = None if labels is None else len(labels) - list(labels).count(None)
        lines = [
            f"{self.sheet.name}: {len(self.sheet)} rows ({self.sheet.understood}); columns: "
            f"{', '.join(self.sheet.columns)}",
            f"{prompt}, answers {names}" if self.has_answers else f"{prompt}, no column of answers",
            self.clustered_by,
            _unused_cluster(self.sheet, self.columns.cluster),
            *self.sheet.notes,
            "{n} rows cannot be judged; {example}".format(**self.blank_reason())
            if self.blank
            else "",
            "" if n_labels is None else f"{n_labels} rows have a label",
            f"{len(self)} rows to judge with {reward.name}: {judgements:,} judgements, "
            f"{self._calls(reward)}" + (", fewer if it is decided earlier" if early else ""),
        ]
        return [line for line in lines if line]

    def check(self, reward: BaseReward) -> None:
        """Raise ConfigError where no column holds what the reward reads."""
        missing = [] if self.prompt is not None else ["--prompt"]
        missing += [] if self.has_answers else ["the columns of answers"]
        if missing and not reward.reads:
            raise ConfigError(
                f"{reward.name} reads prompts and answers: name {' and '.join(missing)}."
            )
        for name in reward.reads:
            if name not in self.others:
                why = unknown_name("column", name, self.others)
                if name in self.sheet.columns:
                    why = f"column '{name}' is named for something else, and kept from rewards."
                raise ConfigError(f"{reward.name}: {why}")

    def judgements(self, reward: BaseReward, rows: Mapping[int, int] | None = None) -> int:
        """How many judgements a reward makes of the rows, or of so `rows` many by their number of
        answers.
        """
        return self._over_rows(
            lambda sample: len(reward.kind.jobs(reward, sample)) * reward.asked_times, rows
        )

    def one_call_each(self, reward: BaseReward) -> bool:
        """Whether a model is asked once for each judgement."""
        if not asks_a_model(reward) or reward.made_of_parts:
            return False
        calls = self._over_rows(lambda sample: most_calls(reward, sample))
        return calls == self.judgements(reward)

    def _calls(self, reward: BaseReward) -> str:
        """How many calls of which models the judgements of the rows are, in words."""
        if not asks_a_model(reward):
            return "no calls"
        names = ", ".join(m.model for m in models_of(reward))
        of = f" of {names}" if names else ""
        if self.one_call_each(reward):
            return f"each a call{of} unless its reply is in the cache"
        calls = self._over_rows(lambda sample: most_calls(reward, sample))
        return f"at most {calls:,} calls{of}, fewer where replies are in the cache"

    def _over_rows(
        self, count: Callable[[DataSample], int], rows: Mapping[int, int] | None = None
    ) -> int:
        """The sum of a count over the rows, which differ in their number of answers alone."""
        planned: dict[int, int] = {}
        for sample in self:
            if len(sample.output) not in planned:
                planned[len(sample.output)] = count(sample)
            if len(planned) == len(self.counts):
                break
        of_each = self.counts if rows is None else rows
        return sum(planned[answers] * n for answers, n in of_each.items())

    def why_blank(self, place: int) -> str:
        """Why a row cannot be judged, or not with all of its answers."""
        row = self.sheet.rows[place]
        column = self.blank.get(place) or next(
            name for name in self.answers if not text_of_cell(cell_of(row, name))
        )
        return f"{self.sheet.rows.place(place)}: column '{column}' is blank"

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
                    "answers": [text_of_cell(cell_of(row, name)) or "" for name in self.answers],
                    "issues": [["unscored", "blank", self.why_blank(place), "data"]],
                    "metadata": {
                        "row": place,
                        "number": where.number,
                        "columns": list(range(len(self.answers))),
                    },
                }
                file.write(to_line(record))


def _check_named(
    sheet: Sheet, prompt: str | None, roles: Mapping[str, str], columns: Columns
) -> None:
    """ConfigError where the columns of prompts, answers and references are not there, are one, or
    hold no texts.
    """
    times = Counter([*([] if prompt is None else [prompt]), *roles.values()])
    if doubled := [name for name, n in times.items() if n > 1]:
        raise ConfigError(
            f"column '{doubled[0]}' is named twice; prompt and answers are columns of their own."
        )
    named = {} if prompt is None else {prompt: "--prompt"}
    named |= {name: role.split()[0] for role, name in roles.items()}
    for name, role in named.items():
        sheet.require(name, role)
    if columns.reference is not None:
        sheet.require(columns.reference, "--reference")
    for name, role in named.items():
        _check_texts(sheet, name, role, columns.numbers)


def _check_texts(sheet: Sheet, name: str, role: str, numbers: bool) -> None:
    """ConfigError for a column that is blank, or holds nothing but numbers, which are hardly what is
    to be judged.
    """
    found = list[Any]()
    for row in sheet.rows:
        cell = cell_of(row, name)
        if cell is not None:
            if numbers or number_of(cell) is None:
                return
            found += [cell] if len(found) < 3 else []
    if not found:
        raise sheet.all_blank(name, role)
    example = ", ".join(dict.fromkeys(map(str, found)))
    raise ConfigError(
        f"{role} is '{name}', and that column holds numbers only ({example}), no text to judge; name "
        "another one, or say --config columns.numbers=true (numbers=True) where these numbers are the texts."
    )
