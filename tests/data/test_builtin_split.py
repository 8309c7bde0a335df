"""The built-in split: schema, sizes, truth by construction, balance, and that a rebuild gives the
stored files.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data import build
from data.build import ROOT, build_tables, differences
from data.builders import report

Row = dict[str, Any]

BEST_OF_4 = ("Factuality", "Precise IF", "Math", "Safety", "Focus")
SPLITS = ("train", "test")
COLUMNS = {
    "id": "string", "prompt": "string", "chosen": "list<element: string>", "rejected": "list<element: string>",
    "num_correct": "int64", "num_incorrect": "int64", "total_completions": "int64", "models": "list<element: string>",
    "subset": "string",
}  # fmt: skip


def rows(split: str, subset: str | None = None) -> list[Row]:
    found: list[Row] = pq.read_table(ROOT / f"{split}.parquet").to_pylist()
    return [row for row in found if subset in (None, row["subset"])]


def answers(row: Row) -> list[str]:
    return [*row["chosen"], *row["rejected"]]


@pytest.fixture(scope="module")
def rebuilt() -> dict[str, pa.Table]:
    return build_tables()


@pytest.mark.parametrize("split", SPLITS)
def test_schema_is_that_of_rewardbench_2(split: str) -> None:
    schema = pq.read_schema(ROOT / f"{split}.parquet")
    assert {
        field.name: str(field.type) for field in schema if field.name != "additional_metadata"
    } == COLUMNS
    assert pa.types.is_struct(schema.field("additional_metadata").type)


@pytest.mark.parametrize("split", SPLITS)
def test_sizes_and_counts(split: str) -> None:
    counts = Counter(row["subset"] for row in rows(split))
    assert set(counts) == {*BEST_OF_4, "Ties"}
    safety = Counter(row["additional_metadata"]["category"] for row in rows(split, "Safety"))
    assert set(safety) == {"harmful", "benign"} and abs(safety["harmful"] - safety["benign"]) <= 4
    assert sum(counts.values()) >= 240 and min(counts.values()) >= 40
    for row in rows(split):
        assert (row["num_correct"], row["num_incorrect"]) == (
            len(row["chosen"]),
            len(row["rejected"]),
        )
        assert row["total_completions"] == len(row["models"]) == len(answers(row))
        assert all(text.strip() for text in answers(row)) and len(set(answers(row))) == len(
            answers(row)
        )
        if row["subset"] in BEST_OF_4:
            assert (row["num_correct"], row["num_incorrect"]) == (1, 3)
    assert (ROOT / f"{split}.parquet").stat().st_size < 1_000_000


def test_splits_share_neither_prompts_nor_answers_nor_ids() -> None:
    train, test = (rows(split) for split in SPLITS)
    for part in (train, test):
        assert len({row["prompt"] for row in part}) == len({row["id"] for row in part}) == len(part)
    assert not {row["prompt"] for row in train} & {row["prompt"] for row in test}
    assert not {row["id"] for row in train} & {row["id"] for row in test}
    for subset in BEST_OF_4:
        texts = [{text for row in rows(split, subset) for text in answers(row)} for split in SPLITS]
        assert not texts[0] & texts[1], subset


@pytest.mark.parametrize("split", SPLITS)
def test_five_to_eight_percent_of_prompts_are_chinese(split: str) -> None:
    share = sum(bool(re.search(r"[\u4e00-\u9fff]", row["prompt"])) for row in rows(split)) / len(
        rows(split)
    )
    assert 0.05 <= share <= 0.08


def has_markdown(text: str) -> bool:
    return "**" in text or any(re.match(r"(#+|-|\*|\d+\.) ", line) for line in text.split("\n"))


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("subset", BEST_OF_4)
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(
    "measure",
    [len, lambda text: len(text.split()), has_markdown],
    ids=["length", "words", "markdown"],
)
def test_surface_baselines_are_near_chance(
    split: str, subset: str, measure: Callable[[str], int], sign: int
) -> None:
    credit = []
    for row in rows(split, subset):
        values = [sign * measure(text) for text in answers(row)]
        credit.append((values[0] == max(values)) / values.count(max(values)))
    assert 15 <= 100 * sum(credit) / len(credit) <= 35


CHAIN = re.compile(r"(?<![\d.])(\d+(?: [+×÷-] \d+)+) = (\d+)(?![\d.])")
NUMBER = re.compile(r"-?\d+(?:/\d+)?")


def value(expression: str) -> Fraction:
    """Evaluate a flat chain of whole numbers, products and quotients first."""
    total = Fraction(0)
    for sign, term in re.findall(r"(^| [+-] )(\d+(?: [×÷] \d+)*)", expression):
        product = Fraction(1)
        for operator, number in re.findall(r"(^| [×÷] )(\d+)", term):
            product = product / int(number) if operator == " ÷ " else product * int(number)
        total += -product if sign == " - " else product
    return total


@pytest.mark.parametrize("split", SPLITS)
def test_math_steps_are_true_and_only_the_chosen_ends_at_the_answer(split: str) -> None:
    steps = 0
    for row in rows(split, "Math"):
        correct = row["additional_metadata"]["correct"]
        chains = CHAIN.findall(row["chosen"][0])
        assert all(value(left) == int(right) for left, right in chains), row["id"]
        steps += len(chains)
        finals = [NUMBER.findall(text.replace(" - ", " ")) for text in answers(row)]
        assert finals[0][-1] == correct
        assert len({found[-1] for found in finals}) == 4, row["id"]
    assert steps >= 100


CHECKS: dict[str, Callable[[str, str], bool]] = {
    "words": lambda text, n: len(text.split()) == int(n),
    "words<=": lambda text, n: len(text.split()) <= int(n),
    "words>=": lambda text, n: len(text.split()) >= int(n),
    "sentences": lambda text, n: sum(text.count(mark) for mark in ".!?。！？") == int(n),
    "paragraphs": lambda text, n: text.count("\n\n") + 1 == int(n),
    "bullets": lambda text, n: [line[:2] for line in text.splitlines()] == ["- "] * int(n),
    "without": lambda text, letters: letters not in text and letters.upper() not in text,
    "keyword": lambda text, spec: (
        len(re.findall(rf"(?i)\b{spec.split(':')[0]}\b", text)) == int(spec.split(":")[1])
    ),
    "starts": lambda text, start: text.find(start) == 0,
    "ends": lambda text, end: text[-len(end) :] == end,
    "lower": lambda text, _: text == text.lower(),
    "upper": lambda text, _: text == text.upper(),
    "title": lambda text, _: text.startswith("<<") and text.split("\n")[0].endswith(">>"),
    "quoted": lambda text, _: text.count('"') == 2 and text.startswith('"') and text.endswith('"'),
    "zh-chars<=": lambda text, n: sum("\u4e00" <= letter <= "\u9fff" for letter in text) <= int(n),
}


def is_object(text: str, keys: str) -> bool:
    try:
        return sorted(json.loads(text)) == sorted(keys.split(","))
    except json.JSONDecodeError:
        return False


def is_sorted(text: str, number: str) -> bool:
    items = [line.split(". ", 1)[1] for line in text.splitlines()]
    return len(items) == int(number) and all(
        one < two for one, two in zip(items, items[1:], strict=False)
    )


def obeys(text: str, rule: str) -> bool:
    name, _, argument = rule.partition(":")
    special = {"json": is_object, "sorted": is_sorted}
    return special[name](text, argument) if name in special else CHECKS[name](text, argument)


@pytest.mark.parametrize("split", SPLITS)
def test_precise_if_chosen_obeys_and_every_rejected_breaks_a_rule(split: str) -> None:
    checked = Counter[str]()
    for row in rows(split, "Precise IF"):
        rules = row["additional_metadata"]["instruction_id_list"]
        if rules[0].startswith("language:"):
            continue
        checked[row["additional_metadata"]["category"]] += 1
        assert all(obeys(row["chosen"][0], rule) for rule in rules), row["id"]
        assert not any(all(obeys(text, rule) for rule in rules) for text in row["rejected"]), row[
            "id"
        ]
    assert len(checked) >= 15 and sum(checked.values()) >= 50


@pytest.mark.parametrize("split", SPLITS)
def test_factuality_answers_hold_or_lack_the_asked_fact(split: str) -> None:
    for row in rows(split, "Factuality"):
        facts = row["additional_metadata"]["correct"].split("; ")
        assert all(fact in row["chosen"][0] for fact in facts), row["id"]
        for kind, text in zip(row["models"][1:], row["rejected"], strict=True):
            if kind.startswith("swap-answer") and len(facts[0]) > 3:
                assert facts[0] not in text, (row["id"], text)
            if row["additional_metadata"]["subcategory"] == "open" and len(min(facts, key=len)) > 3:
                assert not all(fact in text for fact in facts), (row["id"], text)


@pytest.mark.parametrize("split", SPLITS)
def test_ties_come_in_pairs_of_one_and_several_right_answers(split: str) -> None:
    by_id = {row["id"]: row for row in rows(split, "Ties")}
    numbers = {name.split(":")[1] for name in by_id}
    assert set(by_id) == {f"{kind}:{number}" for kind in ("ref", "tied") for number in numbers}
    for number in numbers:
        ref, tied = by_id[f"ref:{number}"], by_id[f"tied:{number}"]
        assert (
            ref["num_correct"] == 1 < tied["num_correct"]
            and min(ref["num_incorrect"], tied["num_incorrect"]) >= 2
        )
        assert (ref["additional_metadata"]["label"], tied["additional_metadata"]["label"]) == (
            "ref",
            "tied",
        )


@pytest.mark.long("much work")
def test_a_changed_or_missing_file_is_named(rebuilt: dict[str, pa.Table], tmp_path: Path) -> None:
    pq.write_table(rebuilt["train"], tmp_path / "train.parquet")
    pq.write_table(rebuilt["test"].slice(1), tmp_path / "test.parquet")
    assert [line.split(" ")[0] for line in differences(rebuilt, tmp_path)] == ["test.parquet"]
    (tmp_path / "train.parquet").unlink()
    assert "train.parquet is missing" in differences(rebuilt, tmp_path)[0]


@pytest.mark.long("reads the whole data")
def test_the_script_finds_the_files_up_to_date(
    rebuilt: dict[str, pa.Table], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(build, "build_tables", lambda: rebuilt)
    assert (build.main(["--check"]), capsys.readouterr().out) == (
        0,
        "train.parquet and test.parquet are up to date\n",
    )


def test_readme_shows_the_measured_figures() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for split in SPLITS:
        assert "\n".join(report.summary(rows(split))) in text, (
            f"paste the table of {split}.parquet from data/build.py"
        )
