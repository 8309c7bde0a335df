"""RewardBench: pairs of one chosen and one rejected answer, in 23 subsets of four sections."""

from __future__ import annotations

from typing import Any

from rm_gallery.core.data.load.converters import DataConverter, DataConverterRegistry
from rm_gallery.core.data.load.fields import RowRef, identity, json_cell, required, turns, wrong
from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.utils.errors import DataError

_SECTION_OF_PREFIX = {
    "alpacaeval": "chat",
    "mt-bench-hard": "chat_hard",
    "mt-bench": "chat",
    "llmbar": "chat_hard",
    "refusals": "safety",
    "xstest": "safety",
    "donotanswer": "safety",
    "math-prm": "reasoning",
    "hep-": "reasoning",
}
_EXTRA_COLUMNS = ("subset", "chosen_model", "rejected_model")

Turns = list[dict[str, Any]]


@DataConverterRegistry.register("rewardbench")
class RewardBenchConverter(DataConverter):
    """Reads prompt (text or messages), chosen, rejected (text or turns), subset, the models and id.

    Outputs: chosen, then rejected. Of an answer of several turns the last one, which the assistant must speak, is the
    answer; turns that both sides share join the input, the others stay as the output's steps. Metadata: `subset`,
    `chosen_model`, `rejected_model`. The task category is the section (chat, chat_hard, safety, reasoning).

    Source: Lambert et al., RewardBench, data set allenai/reward-bench; also the prior preference sets in its layout.
    """

    def convert(self, row: dict[str, Any], where: RowRef) -> DataSample:
        """The row as one sample."""
        prompt = turns(json_cell(required(row, "prompt", where)), "prompt", where)
        chosen, rejected = _answer_turns(row, "chosen", where), _answer_turns(row, "rejected", where)
        shared = _shared_turns(chosen, rejected)
        # Some files repeat the prompt at the head of both answers.
        spoken = (
            chosen[:shared] if chosen[: len(prompt)] == prompt and shared >= len(prompt) else prompt + chosen[:shared]
        )
        subset = row.get("subset")
        return DataSample.model_validate(
            {
                "unique_id": identity(row, "id", where),
                "input": spoken,
                "output": [_output(chosen[shared:], "chosen"), _output(rejected[shared:], "rejected")],
                "task_category": section(subset) if isinstance(subset, str) else None,
                "source": "rewardbench",
                "metadata": {column: row[column] for column in _EXTRA_COLUMNS if row.get(column) is not None},
            }
        )


def section(subset: str) -> str | None:
    """The section a subset belongs to; None for the prior preference sets and unknown ones."""
    return next((name for prefix, name in _SECTION_OF_PREFIX.items() if subset.startswith(prefix)), None)


def _answer_turns(row: dict[str, Any], column: str, where: RowRef) -> Turns:
    value = required(row, column, where)
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str):
        value = value[0]
    if isinstance(value, str):
        return [{"role": "assistant", "content": value}]
    if not isinstance(value, (list, dict)) or not value:
        raise wrong(where, column, "text or a list of turns", value)
    answer = turns(value, column, where)
    if answer[-1]["role"] != "assistant":
        raise DataError(
            f"{where}, column '{column}': the last turn must be the assistant's, found {answer[-1]['role']}"
        )
    return answer


def _shared_turns(chosen: Turns, rejected: Turns) -> int:
    """Number of leading turns equal on both sides, leaving each side at least its last turn."""
    limit = min(len(chosen), len(rejected)) - 1
    return next((place for place in range(limit) if chosen[place] != rejected[place]), limit)


def _output(answer: Turns, preference: str) -> dict[str, Any]:
    final = {**answer[-1], "label": {"preference": preference}}
    return {"answer": final, "steps": answer[:-1]} if len(answer) > 1 else {"answer": final}
