"""Data sets come back from parquet and JSON lines as they were, or are refused with the field
named.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from datetime import timezone
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rm_gallery import (
    ChatMessage,
    DataError,
    DataOutput,
    DataSample,
    MessageRole,
    RewardDimensionWithScore,
    Step,
)
from rm_gallery.core.data.schema import (
    BaseDataSet,
    Reward,
    RewardIssue,
    from_parquet,
    from_record,
    to_jsonl,
    to_parquet,
)
from rm_gallery.core.model.message import ToolCall, ToolFunction
from tests.data.loading import load, numbered, write

texts = st.one_of(
    st.text(max_size=20),
    st.sampled_from(["", "法国的首都是哪里？", "a\r\n\0b", "👩‍👩‍👧", "<best>1</best>", "[1]"]),
)
numbers = st.one_of(
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
)
values = st.recursive(
    st.one_of(st.none(), numbers, texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=6,
)
objects = st.dictionaries(texts, values, max_size=3)
calls = st.builds(
    ToolCall,
    id=st.one_of(st.none(), texts),
    function=st.builds(ToolFunction, name=texts, arguments=st.one_of(texts, objects)),
)
parts = st.lists(
    st.fixed_dictionaries({"type": st.just("text"), "text": texts}, optional={"extra": values}),
    max_size=2,
)
spoken: dict[str, Any] = {
    "role": st.sampled_from(MessageRole), "name": st.one_of(st.none(), texts), "content": st.one_of(texts, parts),
    "reasoning_content": texts, "tool_calls": st.one_of(st.none(), st.lists(calls, max_size=2)),
    "tool_call_id": st.one_of(st.none(), texts), "additional_kwargs": objects,
}  # fmt: skip
scores = st.builds(
    RewardDimensionWithScore,
    name=texts,
    reason=st.one_of(st.none(), texts),
    score=st.floats(-1e9, 1e9),
)
issues = st.builds(
    RewardIssue,
    name=texts,
    status=st.sampled_from(["unscored", "failed"]),
    reason=texts,
    message=texts,
)
rewards = st.builds(
    Reward, score=st.one_of(st.none(), st.floats(-1e9, 1e9)), details=st.lists(scores, max_size=2),
    issues=st.lists(issues, max_size=1), extra_data=st.dictionaries(texts, objects, max_size=1),
    sources=st.dictionaries(texts, texts, max_size=1),
)  # fmt: skip
steps = st.builds(Step, **spoken, label=st.one_of(st.none(), objects), reward=rewards)
samples = st.builds(
    DataSample,
    unique_id=texts,
    input=st.lists(st.builds(ChatMessage, **spoken), max_size=2),
    output=st.lists(
        st.builds(
            DataOutput, answer=steps, steps=st.one_of(st.none(), st.lists(steps, max_size=1))
        ),
        max_size=2,
    ),
    task_category=st.one_of(st.none(), texts),
    source=st.one_of(st.none(), texts),
    created_at=st.one_of(st.none(), st.datetimes(), st.datetimes(timezones=st.just(timezone.utc))),
    metadata=st.one_of(st.none(), objects),
)
datasets = st.builds(
    BaseDataSet, name=texts, datasamples=st.lists(samples, max_size=3), metadata=objects
)


@pytest.mark.long("much work")
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(dataset=datasets)
def test_round_trips_lose_nothing(dataset: BaseDataSet) -> None:
    with tempfile.TemporaryDirectory() as folder:
        assert from_parquet(to_parquet(dataset, Path(folder, "a.parquet"))) == dataset
        lines = to_jsonl(dataset, Path(folder, "a.jsonl")).read_bytes().splitlines()
        assert [from_record(orjson.loads(line)) for line in lines] == dataset.datasamples
        assert BaseDataSet.model_validate(dataset.model_dump(mode="json")) == dataset


def lost(write_dataset: Callable[[BaseDataSet, Path], object], metadata: dict[Any, Any]) -> None:
    """Write a sample of which something would be lost."""
    with tempfile.TemporaryDirectory() as folder:
        write_dataset(
            BaseDataSet(name="d", datasamples=[DataSample(unique_id="x", metadata=metadata)]),
            Path(folder, "a"),
        )


def test_the_largest_and_the_smallest_integers_come_back(tmp_path: Path) -> None:
    dataset = BaseDataSet(
        name="d", datasamples=[DataSample(unique_id="x", metadata={"n": [-(2**63), 2**64 - 1]})]
    )
    assert from_parquet(to_parquet(dataset, tmp_path / "a.parquet")) == dataset


@pytest.mark.parametrize("name", ["a.parquet", "a.jsonl"])
def test_a_failed_write_leaves_the_old_file(tmp_path: Path, name: str) -> None:
    good = BaseDataSet(name="d", datasamples=[DataSample(unique_id="x")])
    bad = BaseDataSet(name="d", datasamples=[*good.datasamples, DataSample(metadata={"a": {1}})])
    write_dataset = to_parquet if name.endswith("parquet") else to_jsonl
    path = write_dataset(good, tmp_path / "new" / name)
    before = path.read_bytes()
    with pytest.raises(DataError, match="sample without id, metadata.a: a value of type set"):
        write_dataset(bad, path)
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [name]


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(DataError, match="cannot be written"):
        to_jsonl(BaseDataSet(name="d"), tmp_path / "file" / "a.jsonl")


@pytest.mark.long("much work")
@pytest.mark.parametrize("name", ["a.parquet", "a.jsonl"])
def test_loaders_read_what_export_wrote(tmp_path: Path, name: str) -> None:
    dataset = load(write(tmp_path / "in.jsonl", numbered(2_100)))
    path = (to_parquet if name.endswith("parquet") else to_jsonl)(dataset, tmp_path / name)
    assert load(path).datasamples == dataset.datasamples


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_text("text")
    with pytest.raises(DataError, match="not a readable parquet file"):
        from_parquet(tmp_path / "a.parquet")
    with pytest.raises(DataError, match="not a sample written by this library, at prompt"):
        from_record({"prompt": "q"})


def test_other_parquet_files_are_refused_and_missing_files_named(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match="not a data set written by to_parquet; read it with create_loader"
    ):
        from_parquet(write(tmp_path / "a.parquet", numbered(2)))
    with pytest.raises(DataError, match="gone"):
        from_parquet(tmp_path / "gone")
