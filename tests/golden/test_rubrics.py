"""Rubrics in every format: what each document is read as, scores by the source's arithmetic, and
the document written back.

A line holds `rubric`, `values` of the criteria judged (null for one that does not apply), and a
`shape` where it is named; a file of `written` holds rubrics to write in another `shape`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rm_gallery import ConfigError, Unscored
from rm_gallery.core.reward.rubric import mean_of_rows
from rm_gallery.core.reward.rubric_shapes import SHAPES, read_rubric, write_rubric
from tests.golden.golden import HERE, Line, lines, runner


def scored(name: str, line: Line) -> Line:
    try:
        rubric = read_rubric(line["rubric"], line.get("shape") if name != "written" else None)
        if name == "written":
            return {"written": write_rubric(rubric, line["shape"])}
        again = read_rubric(write_rubric(rubric), rubric.shape).model_copy(
            update={"notes": rubric.notes}
        )
        assert again == rubric, "written and read again it is another rubric"
        made: dict[str, Any] = {"read_as": rubric.shape, "bounds": list(rubric.bounds())}
        found = rubric.score(line["values"])
    except ConfigError as error:
        return {"refused": str(error)}
    except Unscored as error:
        return {**made, "unscored": error.reason}
    made |= {
        "raw": found.raw,
        "clipped": found.clipped,
        "gates": list(found.gates) or None,
        "tags": dict(found.tags) or None,
    }
    low, high = rubric.bounds()
    assert low is None or low <= found.raw or rubric.clip
    assert high is None or found.raw <= high
    return made


test_rubrics = runner(
    "rubrics",
    scored,
    "read_as",
    "bounds",
    "raw",
    "clipped",
    "gates",
    "tags",
    "unscored",
    "refused",
    "written",
)


def test_every_format_has_lines_of_its_own() -> None:
    found = {
        line.get("read_as")
        for path in (HERE / "rubrics").glob("*.jsonl")
        for _, line in lines(path)
    }
    assert set(SHAPES) <= found


def test_a_rubric_is_read_from_a_file_and_only_the_mean_of_its_scores_is_cut(
    tmp_path: Path,
) -> None:
    written = {
        "json": '["a", "b"]',
        "jsonl": '"a"\n\n"b"\n',
        "yaml": "- a\n- b\n",
        "toml": 'criteria = ["a", "b"]\n',
    }
    for suffix, text in written.items():
        (tmp_path / f"rubric.{suffix}").write_text(text, encoding="utf-8")
        assert [one.text for one in read_rubric(tmp_path / f"rubric.{suffix}").criteria] == [
            "a",
            "b",
        ]
    assert [mean_of_rows(scores) for scores in ([-0.5, 0.25], [0.5, 1.0], [1.5, 1.0])] == [
        0.0,
        0.75,
        1.0,
    ]
