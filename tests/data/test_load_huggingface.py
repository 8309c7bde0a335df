"""The hub loader, against a stand-in for the `datasets` package."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2

from rm_gallery import ConfigError, DataError, create_loader
from rm_gallery.core.utils.errors import MissingExtra
from rm_gallery.core.utils.file import seeded_positions
from tests.data.loading import Row, ids, numbered


class StreamedSplit:
    """A split without a length."""

    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)


class Split(StreamedSplit):
    """A map-style split."""

    def __len__(self) -> int:
        return len(self.rows)

    def select(self, positions: list[int]) -> Split:
        return Split([self.rows[position] for position in positions])


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    seen: list[dict[str, Any]] = []

    def load_dataset(path: str, name: str | None = None, **options: Any) -> Any:
        seen.append({"path": path, "name": name, **options})
        if path == "gone/away":
            raise FileNotFoundError("no data set gone/away\nwith a long second line")
        kind = StreamedSplit if options["streaming"] else Split
        splits = {"test": kind(numbered(12 if path == "a/dozen" else 50))}
        if path == "two/splits":
            splits["train"] = kind(numbered(5))
        return splits if options["split"] is None else splits[options["split"]]

    module = ModuleType("datasets")
    module.load_dataset = load_dataset  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", module)
    return seen


def hub(name: str, **config: Any) -> Any:
    return create_loader(name, "huggingface", "*", config)


def test_only_split_is_taken_and_the_name_is_the_path(calls: list[dict[str, Any]]) -> None:
    found = hub("some/set").run()
    assert ids(found) == [f"r{n}" for n in range(50)]
    assert calls == [
        {"path": "some/set", "name": None, "split": None, "revision": None, "streaming": False}
    ]
    assert (found.metadata["path"], found.metadata["load_strategy"]) == ("some/set", "huggingface")


def test_config_reaches_the_hub(calls: list[dict[str, Any]]) -> None:
    found = hub("x", path="two/splits", split="train", dataset_config="en", revision="v1").run()
    assert (len(found), found.metadata["split"], found.metadata["revision"]) == (5, "train", "v1")
    assert calls[0] == {
        "path": "two/splits",
        "name": "en",
        "split": "train",
        "revision": "v1",
        "streaming": False,
    }


@pytest.mark.parametrize("streaming", [False, True])
def test_limit_is_a_seeded_sample_in_order(calls: list[dict[str, Any]], streaming: bool) -> None:
    first, second, other = (
        ids(hub("s/s", limit=8, seed=seed, streaming=streaming).run()) for seed in (1, 1, 2)
    )
    assert first == second != other
    assert len(first) == 8
    assert first == sorted(first, key=lambda name: int(name[1:]))
    assert len(hub("s/s", limit=80, streaming=streaming).run()) == 50


@pytest.mark.parametrize("limit", [1, 4, 11])
@pytest.mark.parametrize("sized", [True, False])
def test_a_sample_is_uniform(calls: list[dict[str, Any]], limit: int, sized: bool) -> None:
    """Chi-square over the rows kept by 1,500 seeds; a fair sampler fails it once in 100,000."""
    counts, seeds = [0] * 12, 1_500
    for seed in range(seeds):
        streamed = hub("a/dozen", limit=limit, seed=seed, streaming=True).stream
        found = (
            seeded_positions(12, limit, seed)
            if sized
            else [int(sample.unique_id[1:]) for sample in streamed()]
        )
        assert found == sorted(set(found)) and len(found) == limit
        for number in found:
            counts[number] += 1
    expected = seeds * limit / 12
    # the counts of one seed exclude each other, which narrows the statistic by (12 - limit) / 11
    statistic = sum((count - expected) ** 2 / expected for count in counts) * 11 / (12 - limit)
    assert chi2.cdf(statistic, 11) < 1 - 1e-5


def test_several_splits_must_be_named(calls: list[dict[str, Any]]) -> None:
    with pytest.raises(
        ConfigError, match="several splits; name one in config key 'split'; known: test, train"
    ):
        hub("two/splits").run()


def test_parts_and_all_splits_are_read_one_after_another(calls: list[dict[str, Any]]) -> None:
    found = hub("two/splits", parts=["some/set"], split="*").run()
    assert len(found) == 50 + 5 + 50
    assert [call["path"] for call in calls] == ["two/splits", "some/set"]
    assert {call["split"] for call in calls} == {None}


def test_hub_errors_name_the_data_set(calls: list[dict[str, Any]]) -> None:
    with pytest.raises(
        DataError,
        match=(
            "'gone/away' cannot be loaded: FileNotFoundError: no data set gone/away. Without a "
            "network, give files"
        ),
    ):
        hub("gone/away").run()


def test_bad_rows_name_set_split_and_row(
    calls: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: list[Row] = [{"prompt": "q", "models": np.array(["m"])}, {"prompt": None}]
    monkeypatch.setattr(
        sys.modules["datasets"], "load_dataset", lambda *_, **__: {"test": Split(rows)}
    )
    with pytest.raises(DataError, match=r"a/b\[test\], row 2, column 'prompt': expected"):
        hub("a/b").run()
    assert hub("a/b", on_bad_row="skip").run()[0].metadata == {"models": ["m"]}


def test_missing_package_names_the_install_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtra, match=r"pip install datasets"):
        hub("a/b").run()
