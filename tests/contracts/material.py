"""Forty rows for every registered reward, made of the example on its class: the same material for
the contracts of every axis.

A row is what a person keeps in a table: `id`, `prompt`, `answer` (one answer) or `answers` (texts
to compare), what the example holds as metadata (`reference`, `tests`, `tool_calls`, …), and columns
no reward asks for. A column has one type, since most formats have columns with a type; each of its
cells may be a gap, which is an absent key. Rewards that read a `reference` of text have further
rows whose references are whole numbers or booleans.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from rm_gallery import DataSample, RewardRegistry
from tests.gallery.registry_cases import create, example_of

Row = dict[str, Any]
COUNT = 40
TEXTS = (
    "42", "007", "001", "1e5", "NA", "N/A", "null", "None", "nan", "true", "FALSE", "-", " padded ", "\ttab", "", "   ",
    "\u7b54\u6848\u662f\u56db\u5341\u4e8c\u3002", "\u067e\u0627\u0633\u062e \u0645\u06cc\u200c\u0634\u0648\u062f \u06f4\u06f2", "one\r\ntwo\r\n", "one\ntwo",
    "a\u2028b\u0085c", "\U0001f469\u200d\U0001f469\u200d\U0001f467", 'say "so", he; said\tit', "[1, 2]", '{"a": null}', "42.0", "\\boxed{42}", "caf\u00e9",
)  # fmt: skip
"""Answers and references that some format or reader may take for something else."""
UNUSED = ("note", "turn", "share", "flag", "tags", "extra_info")
"""Columns no reward asks for; a format that cannot hold one of them goes without it."""


class Material(NamedTuple):
    """Rows for one reward."""

    reward: str
    kind: str
    """Type of the references: `as written` (the example's own), `whole` or `flags`."""
    rows: list[Row]


def material() -> Iterator[Material]:
    """Rows for every registered reward."""
    for name in RewardRegistry.list():
        sample = example_of(name).sample
        yield Material(name, "as written", [_row(name, sample, place) for place in range(COUNT)])
        if isinstance((sample.metadata or {}).get("reference"), str):
            for kind, references in (
                ("whole", (42, None, -7, 0, 2**53 + 1)),
                ("flags", (True, False, None)),
            ):
                rows = [_row(name, sample, place) for place in range(COUNT)]
                yield Material(
                    name,
                    kind,
                    [
                        _with(row, references[at % len(references)], at % 2 > 0)
                        for at, row in enumerate(rows)
                    ],
                )


@cache
def _compares(name: str) -> bool:
    return create(name).compares


def _with(row: Row, reference: int | bool | None, right: bool) -> Row:
    """The row with another reference, or none, and where it is to be `right` with the same as its
    answer.
    """
    kept = {key: item for key, item in row.items() if key != "reference"}
    if reference is None:
        return kept
    return (
        kept
        | {"reference": reference}
        | ({"answer": str(reference)} if right and isinstance(kept.get("answer"), str) else {})
    )


def _row(name: str, sample: DataSample, place: int) -> Row:
    """The example for the first rows and for every third one, with other texts in its place
    elsewhere.
    """
    text = TEXTS[place % len(TEXTS)]
    changed = place > 3 and place % 3 > 0
    row: Row = {"id": f"r{place}", "prompt": sample.query_text()}
    outputs = [
        sample.output[(place + shift) % len(sample.output)] for shift in range(len(sample.output))
    ]
    texts = [
        text if changed and shift == 0 else output.answer.text
        for shift, output in enumerate(outputs)
    ]
    if _compares(name):
        row["answers"] = texts
    elif any(output.answer.label for output in sample.output):
        row["answer"] = {
            "role": "assistant",
            "content": texts[0],
            "label": _varied(outputs[0].answer.label, place),
        }
    else:
        row["answer"] = texts[0]
    for key, value in (sample.metadata or {}).items():
        if isinstance(value, str):
            if not (changed and place % 5 == 0):
                row[key] = text if changed and place % 2 else value
        elif place % 11 != 10:
            row[key] = _varied(value, place)
    row["extra_info"] = {"index": place, "deep": _varied({"a": {"b": "c"}, "d": [{"e": 1}]}, place)}
    unused = {
        "note": (text, 3), "turn": (place, 4), "share": (place / 7 + 0.01, 5), "flag": (place % 2 == 0, 6),
        "tags": ([text, "tag"], 7),
    }  # fmt: skip
    return row | {key: value for key, (value, gap) in unused.items() if place % gap}


def _varied(value: Any, place: int) -> Any:
    """The value with one more key in each of its dicts in every third row: the rows between lack
    it.
    """
    if isinstance(value, list):
        return [_varied(item, place) for item in value]
    if not isinstance(value, dict):
        return value
    fields = {key: _varied(item, place) for key, item in value.items()}
    return fields | (
        {f"other_{key}": item for key, item in list(fields.items())[:1]} if place % 3 == 1 else {}
    )
