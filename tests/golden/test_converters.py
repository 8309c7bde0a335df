"""Rows in the layout of every benchmark, what they are detected as, and the samples they become."""

from __future__ import annotations

from typing import Any

import pytest

from rm_gallery import DataError, DataSample, Step
from rm_gallery.core.data.load.converters import DataConverterRegistry, RowRef
from rm_gallery.gallery.benchmarks.base import benchmarks, detect_benchmark
from tests.golden.golden import HERE, Line, runner


def answer(name: str, given: Line) -> Line:
    """What a row is detected as, and the sample it becomes or the error that names it."""
    where = RowRef(given.get("where", "rows"), 7, untyped=given.get("untyped", False))
    found: Line = {}
    if name in benchmarks():
        try:
            found["found"] = detect_benchmark(given["row"], untyped=where.untyped).name
        except DataError as error:
            found["found"] = str(error).partition(";")[0]
    if given.get("only") == "detection":
        return found
    try:
        sample = DataConverterRegistry.get_converter({"any": "*"}.get(name, name)).convert(
            given["row"], where
        )
    except DataError as error:
        return {**found, "error": str(error)}
    assert isinstance(sample, DataSample)
    return {**found, "sample": shown(sample)}


def shown(sample: DataSample) -> Line:
    """A sample in few words: its turns as text, and each answer with its labels and steps."""

    def said(step: Step) -> Line:
        calls = (
            {"tool_calls": [call.function.name for call in step.tool_calls]}
            if step.tool_calls
            else {}
        )
        beside = {"reasoning": step.reasoning_content} if step.reasoning_content else {}
        return {
            "text": step.text,
            **(step.label or {}),
            **calls,
            **beside,
            **step.additional_kwargs,
        }

    found: dict[str, Any] = {
        "id": sample.unique_id,
        "category": sample.task_category,
        "source": sample.source,
        "input": [f"{message.role.value}: {message.text}" for message in sample.input],
        "output": [
            {
                **said(output.answer),
                **({"steps": [*map(said, output.steps)]} if output.steps else {}),
            }
            for output in sample.output
        ],
        "metadata": sample.metadata,
    }
    return {key: value for key, value in found.items() if value is not None}


test_rows_become_samples = runner("converters", answer, "found", "sample", "error")


OWED = {
    "converters": "a few rows of your own, some with a `case` and with `wins`",
    "scoring": 'a line {"judge": "perfect", "kind": "pointwise"} for each judge of a neighbour',
}


@pytest.mark.parametrize("folder", OWED)
def test_every_benchmark_has_a_golden_file(folder: str) -> None:
    there = {path.stem for path in (HERE / folder).glob("*.jsonl")}
    missing = [
        f"write tests/golden/{folder}/{name}.jsonl: {OWED[folder]}"
        for name in sorted(set(benchmarks()) - there)
    ]
    assert missing == []
    assert there - set(benchmarks()) <= {"any", "chat_message"}, "a file that no benchmark needs"
