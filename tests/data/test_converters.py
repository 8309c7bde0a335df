"""Converters are found by name: own ones, built-in ones, those of installed packages."""

from __future__ import annotations

from importlib import metadata
from typing import Any

import pytest

from rm_gallery import ChatMessage, ConfigError, DataError, DataSample, create_loader
from rm_gallery.core.data.load.base import DataConverter, DataConverterRegistry, RowRef


class Upper(DataConverter):
    """A converter as a user would write it."""

    def convert(self, row: dict[str, Any], where: RowRef) -> DataSample:
        return DataSample(
            unique_id=str(row["n"]), input=[ChatMessage(content=row["words"].upper())]
        )


class Several(DataConverter):
    """Two samples per row."""

    def convert(self, row: dict[str, Any], where: RowRef) -> list[DataSample]:
        return [DataSample(input=[ChatMessage(content=f"{row['n']}{side}")]) for side in "ab"]


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        DataConverterRegistry, "_registered", dict(DataConverterRegistry._registered)
    )


def load(source: str, rows: list[dict[str, Any]], **config: Any) -> list[DataSample]:
    return create_loader("x", data_source=source, config={"data": rows, **config}).run().datasamples


@pytest.mark.parametrize(
    "register",
    [
        lambda: DataConverterRegistry.register("up")(Upper),
        lambda: DataConverterRegistry.register("up", Upper),
    ],
)
def test_own_converter_as_decorator_and_by_call(register: Any) -> None:
    assert register() is Upper
    assert register() is Upper
    assert load("up", [{"n": 1, "words": "hi"}])[0].query_text() == "HI"


def test_own_converter_wins_over_a_built_in_one() -> None:
    DataConverterRegistry.register("rewardbench2", Upper)
    assert isinstance(DataConverterRegistry.get_converter("rewardbench2"), Upper)


def test_a_row_may_give_several_samples() -> None:
    DataConverterRegistry.register("several", Several)
    found = load("several", [{"n": 1}, {"n": 2}, {"n": 1}])
    assert [sample.query_text() for sample in found] == ["1a", "1b", "2a", "2b", "1a", "1b"]
    again = create_loader(
        "x", data_source="several", config={"data": [{"n": 1}, {"n": 2}, {"n": 1}]}
    ).run()
    assert again.metadata["duplicates"] == 2


@pytest.mark.parametrize(
    ("result", "found"), [(None, "found NoneType"), ([None], ""), ("text", "found str")]
)
def test_wrong_results_are_named(result: Any, found: str) -> None:
    class Wrong(DataConverter):
        def convert(self, row: dict[str, Any], where: RowRef) -> Any:
            return result

    DataConverterRegistry.register("wrong", Wrong)
    with pytest.raises(DataError, match=f"data, row 1: Wrong must return samples.*{found}"):
        load("wrong", [{"n": 1}])


def test_errors_inside_a_converter_are_bad_rows() -> None:
    DataConverterRegistry.register("up", Upper)
    rows: list[dict[str, Any]] = [{"n": 1, "words": "a"}, {"words": "b"}, {"n": 3, "words": 3}]
    with pytest.raises(DataError, match="data, row 2: Upper failed with KeyError: 'n'"):
        load("up", rows)
    assert [sample.unique_id for sample in load("up", rows, on_bad_row="skip")] == ["1"]


def entry(value: str) -> metadata.EntryPoint:
    return metadata.EntryPoint("third", value, "rm_gallery.converters")


def test_installed_packages_bring_converters(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [entry(f"{__name__}:Upper")]
    monkeypatch.setattr(
        metadata, "entry_points", lambda group: found if group == "rm_gallery.converters" else []
    )
    assert "third" in DataConverterRegistry.list_sources()
    assert load("third", [{"n": 1, "words": "hi"}])[0].query_text() == "HI"
    found[0] = entry("no_such_module_anywhere:X")
    with pytest.raises(
        ConfigError,
        match="converter 'third' names 'no_such_module_anywhere:X', which cannot be imported",
    ):
        DataConverterRegistry.get_converter("third")
