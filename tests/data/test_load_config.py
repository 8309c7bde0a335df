"""A wrong config is an error before anything is read, with the nearest names."""

from __future__ import annotations

from typing import Any

import pytest

from rm_gallery.core.data.load.base import create_loader
from rm_gallery.core.utils.errors import ConfigError, DataError
from tests.data.loading import answers, load_rows, numbered, spoken


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, "needs the config key 'path' or 'data', found neither"),
        ({"path": "a", "data": []}, "needs the config key 'path' or 'data', found both"),
        ({"path": ""}, "must be a file or folder, found ''"),
        ({"path": [1]}, "must be a file or folder"),
        ({"data": "rows.jsonl"}, "must be a pandas DataFrame or a list of dicts, found str"),
        ({"data": iter([])}, "found list_iterator"),
        ({"data": [], "limits": 3}, "unknown config key 'limits' for load strategy 'local'; did you mean 'limit'"),
        ({"data": [], "split": "test"}, "unknown config key 'split'"),
        ({"data": [], "limit": 0}, "'limit' must be a whole number of at least 1, or None for all; found 0"),
        ({"data": [], "limit": -5}, "'limit' must be"),
        ({"data": [], "limit": 2.5}, "'limit' must be"),
        ({"data": [], "limit": True}, "'limit' must be"),
        ({"data": [], "seed": "x"}, "'seed' must be a whole number, found 'x'"),
        ({"data": [], "on_bad_row": "ignore"}, "'on_bad_row' must be 'raise' or 'skip', found 'ignore'"),
        ({"data": [], "columns": ["a"]}, "'columns' must map wanted to actual column names"),
        ({"data": [], "columns": {"a": 1}}, "'columns' must map"),
        ({"path": "a", "records_key": 1}, "'records_key' must be text"),
    ],
)
def test_config_that_does_not_fit(config: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        create_loader("x", config=config).run()


def test_unknown_strategy_and_source() -> None:
    with pytest.raises(ConfigError, match="unknown load strategy 'locale'; did you mean 'local'"):
        create_loader("x", "locale", config={"data": []})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="unknown data source 'rewardbench3'; did you mean .*'rewardbench2'"):
        create_loader("x", data_source="rewardbench3", config={"data": []})


def test_columns_are_renamed_swapped_and_dropped() -> None:
    rows = [{"problem": "q", "solution": "s", "response": "r", "note": "n", "kept": 1}]
    found = load_rows(
        rows, columns={"prompt": "problem", "response": "solution", "reference": "response", "note": None}
    )
    assert spoken(found[0]) == [("user", "q")]
    assert answers(found[0]) == [("s", None)]
    assert found[0].metadata == {"reference": "r", "kept": 1}
    assert found[0].reference() == "r"


def test_renaming_from_a_missing_column_names_it() -> None:
    with pytest.raises(
        DataError, match=r"data, row 1: column 'answr' \(mapped to 'response'\) is missing; the row has: id"
    ):
        load_rows(numbered(1), columns={"response": "answr"})
