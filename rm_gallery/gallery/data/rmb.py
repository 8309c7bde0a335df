"""RMB: pairs of answers to conversations, by helpfulness scenario or kind of harm."""

from __future__ import annotations

from typing import Any

from rm_gallery.core.data.load.converters import DataConverter, DataConverterRegistry
from rm_gallery.core.data.load.fields import RowRef, identity, json_cell, output, required, text, turns, wrong
from rm_gallery.core.data.schema import DataSample


@DataConverterRegistry.register("rmbbenchmark_pairwise")
class RMBPairwiseConverter(DataConverter):
    """Reads pair_uid, conversation_input, chosen and reject ({llm_name, answer}), category_path.

    Outputs: chosen, then rejected. Metadata: `subset` (Helpfulness or Harmlessness, which the benchmark reports apart),
    `category` (the scenario below it), `category_path`, `chosen_model`, `rejected_model`, and `language` where given.

    Source: Zhou et al., RMB: Comprehensively Benchmarking Reward Models in LLM Alignment.
    """

    def convert(self, row: dict[str, Any], where: RowRef) -> DataSample:
        """The pair as one sample."""
        spoken = turns(json_cell(required(row, "conversation_input", where)), "conversation_input", where)
        languages = [turn.pop("language", None) for turn in spoken]
        chosen, chosen_model = _candidate(row, "chosen", where)
        rejected, rejected_model = _candidate(row, "reject", where)
        metadata = _category(row, where)
        metadata.update(chosen_model=chosen_model, rejected_model=rejected_model)
        if languages[0] is not None:
            metadata["language"] = languages[0]
        subset = metadata.get("subset")
        return DataSample.model_validate(
            {
                "unique_id": identity(row, "pair_uid", where),
                "input": spoken,
                "output": [output(chosen, "chosen"), output(rejected, "rejected")],
                "task_category": subset.lower() if subset else None,
                "source": "rmb",
                "metadata": metadata,
            }
        )


def _candidate(row: dict[str, Any], column: str, where: RowRef) -> tuple[str, str | None]:
    value = json_cell(required(row, column, where))
    if not isinstance(value, dict) or not isinstance(value.get("answer"), str):
        raise wrong(where, column, "an object with llm_name and answer", value)
    return value["answer"], value.get("llm_name")


def _category(row: dict[str, Any], where: RowRef) -> dict[str, Any]:
    if row.get("category_path") is None:
        return {}
    path = text(row, "category_path", where)
    # "Pairwise_set/Helpfulness/Open QA/Factual"; the first part names the set, not the row.
    parts = [part for part in path.split("/") if part]
    if parts and parts[0].lower().endswith("_set"):
        parts = parts[1:]
    metadata: dict[str, Any] = {"category_path": path}
    if parts:
        metadata["subset"] = parts[0]
    if len(parts) > 1:
        metadata["category"] = "/".join(parts[1:])
    return metadata
