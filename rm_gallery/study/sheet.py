"""Anybody's table, read and understood before anything is spent: which column is what, and which rows can be judged."""

from __future__ import annotations

import hashlib
import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson

from rm_gallery.core.data.load.base import LoadReport, create_loader, row_bytes
from rm_gallery.core.data.load.converters import nearest, shown
from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.utils.errors import ConfigError, DataError
from rm_gallery.core.utils.file import to_line
from rm_gallery.study.opened import SAMPLES

Cell = str | None
CONVERSATION_NAMES = frozenset({"conversation", "conversation_id", "session", "session_id", "thread", "thread_id", "dialog_id"})
"""Columns that probably say which rows belong together; whose repeats are pointed out."""
_LABELS = ("--labels", "--label-column")


@dataclass(frozen=True)
class Sheet:
    """A table in memory.

    Attributes:
        name: where it comes from.
        understood: how it was read: format, separator, encoding, sheet.
        columns: names in order.
        rows: the cells by column.
        places: per row what error messages call it.
        notes: what a reader of figures should know of the reading.
    """

    name: str
    understood: str
    columns: list[str]
    rows: list[dict[str, Any]]
    places: list[str]
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.rows)

    def column(self, name: str, role: str) -> list[Any]:
        """The cells of a column; ConfigError when there is none of that name, or when it is blank throughout."""
        if name not in self.columns:
            known = nearest(name, self.columns)
            tail = "" if known.startswith("known") else f" Its columns: {', '.join(self.columns[:12])}"
            raise ConfigError(f"{role} is '{name}', and {self.name} has no such column; {known}{tail}")
        cells = [blank_is_none(row.get(name)) for row in self.rows]
        if all(cell is None for cell in cells):
            raise ConfigError(f"{role} is '{name}', and that column is blank in all {len(self)} rows; name another one.")
        return cells

    def texts_or_numbers(self, name: str, role: str) -> list[Cell]:
        """The cells of a column as texts, whatever they are; None for a blank one."""
        return [_text(cell) for cell in self.column(name, role)]

    def texts(self, name: str, role: str) -> list[Cell]:
        """The texts of a column; ConfigError when it holds nothing but numbers, which are hardly what is to be judged."""
        filled = [cell for cell in self.column(name, role) if cell is not None]
        if all(number_of(cell) is not None for cell in filled):
            example = ", ".join(dict.fromkeys(str(cell) for cell in filled[:3]))
            raise ConfigError(
                f"{role} is '{name}', and that column holds numbers only ({example}), no text to judge; name another one, "
                "or say --numbers (numbers=True) where these numbers are the texts."
            )
        return self.texts_or_numbers(name, role)

    def values(
        self, name: str, role: str, read: Callable[[Any], float | None] | None = None, expected: str = "a number"
    ) -> list[float | None]:
        """The cells of a column as numbers, decimal commas included, or as `read` takes them; None for a blank cell.

        Raises ConfigError for a cell that cannot be read, saying what was `expected`.
        """
        cells = self.column(name, role)
        found = [None if cell is None else (read or number_of)(cell) for cell in cells]
        for place, cell, value in zip(self.places, cells, found, strict=True):
            if cell is not None and value is None:
                where = f"column '{name}'" if role in _LABELS else f"column '{name}' ({role})"
                raise ConfigError(f"{place}, {where}: expected {expected}, found {shown(cell)}")
        return found

    def digest(self) -> str:
        """Hash of all cells, which tells a table from another one of the same name."""
        digest = hashlib.sha256()
        for row, place in zip(self.rows, self.places, strict=True):
            digest.update(row_bytes(row, place))
        return digest.hexdigest()


def open_sheet(data: Any, *, limit: int | None = None, seed: int = 0, on_bad_row: str = "raise", **reading: Any) -> Sheet:
    """Read a file, a folder, a pandas frame or a list of rows as one table.

    `reading` are the loader's keys `encoding`, `separator`, `sheet`, `header_row` and `records_key`; what is None is found.

    Raises:
        ConfigError: a key is unknown; the data are samples, which `evaluate` takes, or no table at all.
        DataError: the source cannot be read, a row does not fit, or there is none.
    """
    path = isinstance(data, (str, os.PathLike))
    if not path and isinstance(data, Iterable) and not hasattr(data, "iloc") and not isinstance(data, Mapping):
        data = list(data)
        if data and isinstance(data[0], DataSample):
            raise ConfigError("data are samples already; judge them with evaluate(reward, samples).")
    config = {key: value for key, value in reading.items() if value is not None}
    config |= {"limit": limit, "seed": seed, "on_bad_row": on_bad_row, "path" if path else "data": data}
    loader = create_loader("table", "local", "*", config)
    name = str(data) if path else "the data"
    columns: dict[str, None] = {}
    rows, places, report = [], [], LoadReport()
    for where, row in loader.rows():
        report.rows += 1
        if isinstance(row, DataError):
            if on_bad_row == "raise":
                raise row
            report.skip(row)
            continue
        columns.update(dict.fromkeys(map(str, row)))
        rows.append(row)
        places.append(str(where))
    if not rows:
        raise DataError(f"{name}: no rows found; give a table with names in its first row and at least one row below.")
    understood = "; ".join(dict.fromkeys(source.understood() for source in loader.sources()))
    return Sheet(name, understood, list(columns), rows, places, tuple(report.notes()))


def blank_is_none(cell: Any) -> Any:
    """The cell, or None for one that holds nothing but white space or NaN."""
    if cell is None or (isinstance(cell, str) and not cell.strip()) or (isinstance(cell, float) and math.isnan(cell)):
        return None
    return cell


def _text(cell: Any) -> Cell:
    if cell is None or isinstance(cell, str):
        return cell
    return orjson.dumps(cell, default=str).decode() if isinstance(cell, (dict, list)) else str(cell)


WORDS = {
    **dict.fromkeys(("pass", "passed", "yes", "true", "correct", "good", "win", "safe"), 1.0),
    **dict.fromkeys(("fail", "failed", "no", "false", "incorrect", "wrong", "bad", "loss", "unsafe"), 0.0),
    "tie": 0.5,
}


def value_of(cell: Any) -> float | None:
    """A number, or a verdict in a word (pass, fail, yes, no, tie …) as a number 0..1; None for anything else."""
    number = number_of(cell)
    return WORDS.get(str(cell).strip().lower()) if number is None else number


def number_of(cell: Any) -> float | None:
    """A cell as a finite number: `3.5`, `3,5`, `1.234,5`, `12 %`; None for anything else. The last mark is the decimal one."""
    if isinstance(cell, bool):
        return float(cell)
    if isinstance(cell, (int, float)):
        return float(cell) if math.isfinite(cell) else None
    if not isinstance(cell, str):
        return None
    text = cell.strip().replace("\u00a0", "").replace("\u202f", "")
    share = text.endswith("%")
    text = text.rstrip("% ").replace("−", "-")
    if "," in text:
        text = text.replace(",", "") if text.rfind(",") < text.rfind(".") else text.replace(".", "").replace(",", ".")
    try:
        value = float(text)
    except ValueError:
        return None
    if not math.isfinite(value) or "_" in text:
        return None
    return value / 100 if share else value


@dataclass(frozen=True)
class TableSamples:
    """The rows of a table that can be judged, as samples, and what is known about all of its rows.

    Attributes:
        samples: one per row that can be judged; `metadata["row"]` is its place in the table, from 0.
        blank: why the other rows cannot, by place.
        clusters: per row the name of what it belongs to.
        clustered_by: in words; empty where every row stands alone.
        answers: names of the columns that hold answers.
        notes: what was noticed.
    """

    sheet: Sheet
    samples: list[DataSample]
    blank: dict[int, str]
    clusters: list[str]
    clustered_by: str
    answers: tuple[str, ...]
    notes: tuple[str, ...] = field(default=())

    def understood(
        self, prompt: str, reward: BaseReward, labels: Sequence[float | None] | None = None, early: bool = False
    ) -> list[str]:
        """How the table was read and what judging it will take, a line each; `early` when it may stop before the end."""
        judgements = sum(len(reward.plan(sample)) for sample in self.samples)
        what = "judgements, each a call unless its reply is in the cache" if reward.judged else "judgements, no calls"
        lines = [
            f"{self.sheet.name}: {len(self.sheet)} rows ({self.sheet.understood}); columns: {', '.join(self.sheet.columns)}",
            f"prompt '{prompt}', answers " + ", ".join(f"'{name}'" for name in self.answers),
            self.clustered_by,
            *self.notes,
            *self.sheet.notes,
            f"{len(self.blank)} rows cannot be judged; {next(iter(self.blank.values()))}" if self.blank else "",
            "" if labels is None else f"{sum(label is not None for label in labels)} rows have a label",
            f"{len(self.samples)} rows to judge with {reward.name}: {judgements:,} {what}"
            + (", fewer if it is decided earlier" if early else ""),
        ]
        return [line for line in lines if line]

    def blank_reason(self) -> dict[str, Any]:
        """How many rows could not be judged for want of text, with an example, as a report names reasons."""
        return {"n": len(self.blank), "example": next(iter(self.blank.values()))}

    def keep_blank(self, run_dir: str) -> None:
        """Keep the rows that could not be judged in samples.jsonl, beside those that were.

        A run leaves only its own samples there, so that these are written anew behind every one.
        """
        with (Path(run_dir) / SAMPLES).open("ab") as file:
            for place, why in self.blank.items():
                row = self.sheet.rows[place]
                record = {
                    "id": f"row {place + 1}",
                    "key": f"blank:{place}",
                    "cluster": self.clusters[place],
                    "status": "unscored",
                    "answers": [_text(blank_is_none(row.get(name))) or "" for name in self.answers],
                    "issues": [["unscored", "blank", why]],
                    "metadata": {"row": place, "columns": list(range(len(self.answers)))},
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
    numbers: bool = False,
    needed: int = 1,
) -> TableSamples:
    """The rows as samples with these columns; `answers` maps the option that names a column to its name.

    A row without a prompt, or with fewer than `needed` answers, is not judged. Rows that share a prompt are one cluster unless
    `cluster` names a column.

    Raises:
        ConfigError: a column is missing, blank or, without `numbers`, numeric; one is named twice; an id stands twice.
    """
    read = sheet.texts_or_numbers if numbers else sheet.texts
    doubled = [name for name, times in Counter([prompt, *answers.values()]).items() if times > 1]
    if doubled:
        raise ConfigError(f"column '{doubled[0]}' is named twice; prompt and answers are columns of their own.")
    prompts = read(prompt, "--prompt")
    columns = [read(name, role.split()[0]) for role, name in answers.items()]
    references = None if reference is None else sheet.texts_or_numbers(reference, "--reference")
    ids = row_ids(sheet, id_column) if id_column is not None else [f"row {place + 1}" for place in range(len(sheet))]
    clusters, clustered_by = _clusters(sheet, prompts, cluster)
    names = tuple(answers.values())
    samples, blank = [], {}
    for place, asked in enumerate(prompts):
        found = [(k, column[place]) for k, column in enumerate(columns) if column[place] is not None]
        missing = [prompt] if asked is None else [names[k] for k in range(len(names)) if columns[k][place] is None]
        if asked is None or len(found) < needed:
            blank[place] = f"{sheet.places[place]}: column '{missing[0]}' is blank"
            continue
        about: dict[str, Any] = {"row": place, "columns": [k for k, _ in found], "cluster": clusters[place]}
        if references is not None and references[place] is not None:
            about["reference"] = references[place]
        outputs = [{"answer": {"role": "assistant", "content": text}} for _, text in found]
        row = {"unique_id": ids[place], "input": [{"role": "user", "content": asked}], "output": outputs, "metadata": about}
        samples.append(DataSample.model_validate(row))
    if not samples:
        raise ConfigError(f"{sheet.name}: no row can be judged; the first: {next(iter(blank.values()))}")
    return TableSamples(sheet, samples, blank, clusters, clustered_by, names, _noticed(sheet, cluster))


def id_text(cell: Any) -> str:
    """An id as text: 7.0 and " 7" are 7."""
    return str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell).strip()


def row_ids(sheet: Sheet, column: str) -> list[str]:
    """The ids of a table's rows as text; ConfigError for a blank or doubled one."""
    cells = sheet.column(column, "--id")
    for place, cell in zip(sheet.places, cells, strict=True):
        if cell is None:
            raise ConfigError(f"{place}: column '{column}' (--id) is blank; every row needs its id.")
    ids = [id_text(cell) for cell in cells]
    doubled = [name for name, times in Counter(ids).items() if times > 1]
    if doubled:
        raise ConfigError(
            f"{sheet.name}: column '{column}' (--id) names {len(doubled)} rows more than once, such as "
            f"{doubled[0][:40]!r}; name a column that tells rows apart, or call this one --cluster."
        )
    return ids


def joined(sheet: Sheet, other: Sheet, column: str, id_column: str, prompt: str) -> tuple[Sheet, str]:
    """The table with a column of another one beside its own, by equal ids, and the name it has there.

    A row the other table lacks has a blank cell in it.

    Raises:
        ConfigError: an id is blank, doubled or only in the other table, or rows of one id have different prompts.
    """
    cells = other.column(column, "--b")
    hint = "answers are compared by equal ids only, so give files of the same questions."
    matched = _matched(sheet, other, id_column, hint)
    name = column if column not in sheet.columns else f"{column} ({Path(other.name).name})"
    rows = [{**row, name: None} for row in sheet.rows]
    for where, found, cell, (key, place) in zip(other.places, other.rows, cells, matched, strict=True):
        if prompt in other.columns and _text(found.get(prompt)) != _text(rows[place].get(prompt)):
            raise ConfigError(
                f"{where}: id {key[:40]!r} has another '{prompt}' than in {sheet.name}; give files of the same questions."
            )
        rows[place][name] = cell
    return replace(sheet, columns=[*sheet.columns, name], rows=rows, name=f"{sheet.name} with {other.name}"), name


def _matched(sheet: Sheet, other: Sheet, id_column: str, hint: str) -> list[tuple[str, int]]:
    """Per row of the other table its id and the place of that id in `sheet`; ConfigError with `hint` where there is none."""
    known = {name: place for place, name in enumerate(row_ids(sheet, id_column))}
    ids = row_ids(other, id_column)
    strange = [name for name in ids if name not in known]
    if strange:
        raise ConfigError(
            f"{other.name}: {len(strange)} of {len(ids)} ids are in no row of {sheet.name}, such as {strange[0][:40]!r}; {hint}"
        )
    return [(name, known[name]) for name in ids]


def _clusters(sheet: Sheet, prompts: Sequence[Cell], cluster: str | None) -> tuple[list[str], str]:
    if cluster is not None:
        cells = sheet.column(cluster, "--cluster")
        names = [f"row {place}" if cell is None else str(cell) for place, cell in enumerate(cells)]
        return names, f"column '{cluster}': {len(set(names))} clusters in {len(names)} rows"
    names = [f"row {place}" if text is None else " ".join(text.split()) for place, text in enumerate(prompts)]
    keys = [hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16] for name in names]
    n = len(set(keys))
    return keys, "" if n == len(keys) else f"rows with the same prompt count as one cluster: {n} in {len(keys)} rows"


def _noticed(sheet: Sheet, cluster: str | None) -> tuple[str, ...]:
    if cluster is not None:
        return ()
    for name in sheet.columns:
        if name.lower().replace(" ", "_").replace("-", "_") in CONVERSATION_NAMES:
            cells = [str(cell) for row in sheet.rows if (cell := blank_is_none(row.get(name))) is not None]
            if len(set(cells)) < len(cells):
                return (f"column '{name}' repeats: if its rows belong together, say --cluster {name}",)
    return ()


def groups_of(sheet: Sheet, columns: Sequence[str]) -> dict[str, list[Cell]]:
    """Per column that makes subgroups, the group of every row; None where the cell is blank."""
    return {name: sheet.texts_or_numbers(name, "--by") for name in columns}


def labels_of(
    sheet: Sheet,
    labels: str,
    read: Callable[[Any], float | None],
    expected: str,
    *,
    id_column: str | None = None,
    label_column: str | None = None,
) -> list[float | None]:
    """A label per row (None where there is none): from the column `labels`, or from the file `labels`, joined by the id.

    Raises:
        ConfigError: there is neither; ids of the file are unknown, blank or doubled; a label cannot be read.
    """
    if labels in sheet.columns:
        return sheet.values(labels, "--labels", read, expected)
    if not Path(labels).is_file():
        raise ConfigError(
            f"--labels is '{labels}': {sheet.name} has no such column, and there is no such file; "
            f"{nearest(labels, sheet.columns)}"
        )
    if id_column is None:
        raise ConfigError("labels in a file of their own are joined by an id; name its column with --id COL.")
    other = open_sheet(labels)
    rest = [name for name in other.columns if name != id_column]
    if label_column is None and len(rest) != 1:
        raise ConfigError(f"{labels} has the columns {', '.join(other.columns)}; say which holds labels: --label-column COL.")
    given = other.values(label_column or rest[0], "--label-column", read, expected)
    matched = _matched(sheet, other, id_column, "labels are joined by equal ids only, so mend or remove these.")
    found: list[float | None] = [None] * len(sheet)
    for value, (_, place) in zip(given, matched, strict=True):
        found[place] = value
    return found


def label_chances(sheet: Sheet, labels: Sequence[float | None] | None, column: str | None) -> list[float | None] | None:
    """Per row the probability with which it was chosen for labelling; None without such a column.

    Raises:
        ConfigError: there are no labels, a labelled row has no probability, or one is not within 0..1.
    """
    if column is None:
        return None
    if labels is None:
        raise ConfigError("--label-probability says how labelled rows were drawn; name the labels with --labels.")
    found = sheet.values(column, "--label-probability")
    for place, label, chance in zip(sheet.places, labels, found, strict=True):
        if (label is not None and chance is None) or (chance is not None and not 0.0 < chance <= 1.0):
            raise ConfigError(
                f"{place}, column '{column}' (--label-probability): expected a probability above 0 and at most 1 for every "
                f"labelled row, found {'a blank cell' if chance is None else f'{chance:g}'}"
            )
    return found
