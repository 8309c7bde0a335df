"""Rows in the layout of every benchmark, what they are detected as, and the samples they become."""

from __future__ import annotations

from typing import Any

import pytest

from rm_gallery.core.data.load.converters import DataConverterRegistry, RowRef
from rm_gallery.core.data.schema import DataSample, Step
from rm_gallery.core.utils.errors import DataError
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


@pytest.mark.parametrize("folder", ["converters", "scoring"])
def test_every_benchmark_has_a_golden_file(folder: str) -> None:
    there = {path.stem for path in (HERE / folder).glob("*.jsonl")}
    assert set(benchmarks()) - there == set(), (
        f"write tests/golden/{folder}/NAME.jsonl with a few rows of your own"
    )
    assert there - set(benchmarks()) <= {"any", "chat_message"}, "a file that no benchmark needs"
