"""Which benchmark format a file is in, from its columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rm_gallery.core.data.export import is_record
from rm_gallery.core.data.load.converters import DataConverterRegistry
from rm_gallery.core.data.load.readers import file_sources
from rm_gallery.core.utils.errors import DataError


def detect_format(path: Path) -> str:
    """Name of the converter that fits the first row; DataError lists the columns when none does."""
    row = _first_row(path)
    columns = set(row)
    rules: list[tuple[str, bool]] = [
        ("rmbbenchmark_pairwise", {"conversation_input", "chosen", "reject"} <= columns),
        ("rewardbench2", {"prompt", "chosen", "rejected"} <= columns and _is_list_of_text(row["chosen"])),
        ("rewardbench", {"prompt", "chosen", "rejected"} <= columns),
        ("hh_rlhf", {"chosen", "rejected"} == columns & {"chosen", "rejected", "prompt"}),
        ("*", is_record(row)),
        ("chat_message", "messages" in columns),
    ]
    for name, fits in rules:
        if fits:
            return name
    known = ", ".join(f"'{name}'" for name in DataConverterRegistry.list_sources())
    raise DataError(
        f"{path}: no benchmark format fits the columns {sorted(columns)}; say which with --format, one of {known}."
    )


def _first_row(path: Path) -> dict[str, Any]:
    for source in file_sources(path):
        for _, row in source.rows([0]):
            if isinstance(row, DataError):
                raise row
            return row
    raise DataError(f"{path}: no rows found; give a file with at least one row.")


def _is_list_of_text(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)
