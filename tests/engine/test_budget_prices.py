"""The price file: what it may hold, what it costs, and which line to mend."""

from __future__ import annotations

from pathlib import Path

import pytest

from rm_gallery.core.engine.calls.prices import Price, PriceTable, Usage
from rm_gallery.core.utils.errors import ConfigError

FILE = """\
# per million tokens
gpt-4o-mini: {input: 0.15, output: 0.60, cached_input: 0.075}
qwen*: {input: 1, output: 2}
qwen-max:
  input: 10
  output: 20
"*": {input: 100, output: 100}
"""


def table(tmp_path: Path, text: str) -> PriceTable:
    path = tmp_path / "prices.yaml"
    path.write_text(text, encoding="utf-8")
    return PriceTable.from_yaml(path)


@pytest.mark.parametrize(
    ("model", "price"),
    [
        ("gpt-4o-mini", Price(0.15, 0.60, 0.075)),
        ("qwen-plus", Price(1, 2, 1)),
        ("qwen-max", Price(10, 20, 10)),
        ("something", Price(100, 100, 100)),
    ],
    ids=["exact", "first pattern", "exact wins over an earlier pattern", "last resort"],
)
def test_which_line_holds(tmp_path: Path, model: str, price: Price) -> None:
    assert table(tmp_path, FILE).find(model) == price


def test_models_not_listed_have_no_price(tmp_path: Path) -> None:
    prices = table(tmp_path, "a: {input: 1, output: 2}")
    assert prices.find("b") is None
    assert prices.cost("b", Usage(calls=1)) is None


@pytest.mark.parametrize(
    ("usage", "cost"),
    [
        (Usage(), 0.0),
        (Usage(input_tokens=1_000_000), 0.15),
        (Usage(output_tokens=2_000_000), 1.2),
        (Usage(input_tokens=1_000_000, cached_tokens=400_000), 0.6 * 0.15 + 0.4 * 0.075),
        (Usage(input_tokens=1_000_000, cached_tokens=9_000_000), 0.075),
        (Usage(output_tokens=1_000_000, reasoning_tokens=900_000), 0.6),
    ],
    ids=["nothing", "input", "output", "partly cached", "more cached than sent", "reasoning is part of the output"],
)
def test_cost_of_a_usage(tmp_path: Path, usage: Usage, cost: float) -> None:
    assert table(tmp_path, FILE).cost("gpt-4o-mini", usage) == pytest.approx(cost)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: {input: 1}", ["model a", "field output", "found nothing"]),
        ("a: {input: 1, output: '2'}", ["field output", "'2'"]),
        ("a: {input: -1, output: 2}", ["field input", "-1"]),
        ("a: {input: .nan, output: 2}", ["field input", "nan"]),
        ("a: {input: yes, output: 2}", ["field input", "True"]),
        ("a: {input: 1, output: 2, cached: 1}", ["model a", "unknown field cached"]),
        ("a: 3", ["model a", "found 3"]),
        ("- a", ["no mapping"]),
        ("", ["no mapping"]),
        ("a: {input: 1", ["not valid YAML"]),
        ("a: !!python/object:os.system {}", ["not valid YAML"]),
        ("a: {input: 1" + "0" * 400 + ", output: 1}", ["model a", "field input"]),
    ],
)
def test_a_wrong_file_is_refused_with_the_place(tmp_path: Path, text: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        table(tmp_path, text)
    assert all(word in str(caught.value) for word in ["prices.yaml", *words]), str(caught.value)


def test_a_missing_file_is_named() -> None:
    with pytest.raises(ConfigError, match=r"price file /no/such\.yaml cannot be read"):
        PriceTable.from_yaml("/no/such.yaml")
