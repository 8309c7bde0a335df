"""RewardBench 2: one prompt, usually one right answer of four; in Ties several right ones."""

from __future__ import annotations

from typing import Any

from rm_gallery.core.data.load.converters import DataConverter, DataConverterRegistry
from rm_gallery.core.data.load.fields import (
    RowRef,
    identity,
    json_cell,
    preference_outputs,
    required,
    text,
    text_list,
    turns,
)
from rm_gallery.core.data.schema import DataSample

_EXTRA_COLUMNS = ("models", "total_completions")


@DataConverterRegistry.register("rewardbench2")
class RewardBench2Converter(DataConverter):
    """Reads id, prompt, chosen, rejected (lists), subset, the counts, models and additional_metadata.

    Outputs: all chosen, then all rejected, as the benchmark's scores expect them. Metadata: `subset`, `num_correct`,
    `num_incorrect` (in some files `num_rejected`), `total_completions`, `models`, `additional_metadata`; for Math rows
    its field `correct` also as `reference`. The id is the benchmark's: pairs of Ties rows are `ref:<n>` and `tied:<n>`.

    Source: Malik et al., RewardBench 2, data set allenai/reward-bench-2.
    """

    def convert(self, row: dict[str, Any], where: RowRef) -> DataSample:
        """The row as one sample."""
        chosen, rejected = text_list(row, "chosen", where), text_list(row, "rejected", where)
        subset = text(row, "subset", where) if row.get("subset") is not None else None
        return DataSample.model_validate(
            {
                "unique_id": identity(row, "id", where),
                "input": turns(required(row, "prompt", where), "prompt", where),
                "output": preference_outputs(chosen, rejected),
                "task_category": category(subset),
                "source": "rewardbench2",
                "metadata": _metadata(row, subset, len(chosen), len(rejected)),
            }
        )


def category(subset: str | None) -> str | None:
    """The subset's name in lower case with underscores: `precise_if`."""
    return subset.lower().replace(" ", "_") if subset else None


def _metadata(row: dict[str, Any], subset: str | None, chosen: int, rejected: int) -> dict[str, Any]:
    given = row.get("num_incorrect")
    metadata: dict[str, Any] = {
        "subset": subset,
        "num_correct": _count(row.get("num_correct"), chosen),
        "num_incorrect": _count(row.get("num_rejected") if given is None else given, rejected),
    }
    for column in _EXTRA_COLUMNS:
        if row.get(column) is not None:
            metadata[column] = row[column]
    extra = json_cell(row.get("additional_metadata"))
    if extra is not None:
        metadata["additional_metadata"] = extra
    if category(subset) == "math" and isinstance(extra, dict) and extra.get("correct") not in (None, ""):
        metadata["reference"] = extra["correct"]
    return metadata


def _count(value: Any, counted: int) -> int:
    return value if isinstance(value, int) else counted
