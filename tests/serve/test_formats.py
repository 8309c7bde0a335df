"""Every format of others: what its requests ask for, what it answers, and what its sender gets
where there is no score.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rm_gallery import Score
from rm_gallery.core.score import scored
from rm_gallery.serve.app import CODECS, FORMATS, create_app
from rm_gallery.serve.formats import PROMPTS, REFERENCES, Ask
from rm_gallery.serve.handler import Handler
from tests.golden.golden import Line, check, files
from tests.serve.asking import post
from tests.support.children import ROOT

METRICS = {
    "a": {"score": 0.25, "is_score_valid": True, "reason": "low"},
    "c": {"score": 0.0, "is_score_valid": False, "reason": ""},
}
STEPS = [{"step_index": 0, "base_reward": 1.0, "metrics": {"odd": object}, "reason": None}]
FOUND = {
    "right": scored(1.0, "good", {"a": 0.25, "b": 0.75}),
    "wrong": scored(0.0, "", {"a": 1.0}),
    "told": scored(
        1.0, "good", {"a": 0.25, "b": 0.75}, {"metrics": METRICS, "step_outputs": STEPS}
    ),
    "odd": scored(1.0, "", {}, {"metrics": {"a": 3, "b": {"reason": "no score"}}}),
    "unscored": Score(None, "There is no reference.", status="unscored", code="no_reference"),
    "invalid": Score(None, "It does not fit.", status="failed", code="invalid_item"),
    "late": Score(None, "Out of time.", status="failed", code="deadline"),
}
"""What a handler finds, by the names that stand in the files; any other is a failure for that
reason.
"""


class Noting:
    """A handler that notes what it is asked, and finds what it is told to."""

    rewards: dict[str, Any] = {}
    lanes: dict[str, Any] = {}
    evaluators = None
    shares = Handler.shares

    def expect(self, names: Sequence[str]) -> None:
        self.names = names
        self.target: str | None = None
        self.asks: list[Ask] | None = None

    async def score(self, target: str, asks: Sequence[Ask], seconds: float) -> list[Score[float]]:
        self.target, self.asks = target, list(asks)
        names = [*self.names, *["right"] * len(asks)][: len(asks)]
        return [
            FOUND.get(name) or Score(None, "No luck.", status="failed", code=name) for name in names
        ]


HANDLER = Noting()
APP = create_app(HANDLER)  # type: ignore[arg-type]  # what of a handler an application needs


def answered(line: Line) -> Line:
    HANDLER.expect(line.get("found", ()))
    reply = post(APP, f"{line['path']}?{line.get('query', '')}".rstrip("?"), line["body"])
    said = reply.json()
    if isinstance(said, dict) and "error" in said and isinstance(said["error"], dict):
        said = {"code": said["error"]["code"], "message": said["error"]["message"]}
    elif isinstance(said, dict) and "created" in said:
        said |= {"id": said["id"].partition("-")[0], "created": said["created"] > 0}
    asks = None if HANDLER.asks is None else [_plain(ask) for ask in HANDLER.asks]
    return {"status": reply.status_code, "target": HANDLER.target, "asks": asks, "reply": said}


def _plain(ask: Ask) -> Line:
    """What an ask says, without what it leaves out."""
    fields = ask._replace(kept=None)._asdict().items()
    return {
        name: value
        for name, value in fields
        if value is not None and (value != "" or name == "completion")
    }


@pytest.mark.parametrize("path", files("formats"))
def test_requests_and_replies(path: Path) -> None:
    check(path, answered, ("status", "target", "asks", "reply"))


def test_every_format_has_a_file() -> None:
    assert {path.id for path in files("formats")} == {each.name for each in FORMATS} | {"native"}


def test_every_path_and_name_is_there_once() -> None:
    assert (
        len({codec.path for codec in CODECS})
        == len({codec.name for codec in CODECS})
        == len(CODECS)
    )


def mappings() -> dict[str, str]:
    """By path of a format, the rows that docs/serving-formats.md has of it."""
    page = (ROOT / "docs" / "serving-formats.md").read_text(encoding="utf-8")
    table = page.partition("| path | sent by | their field | here |")[2].partition("\n\n")[0]
    rows = re.split(r"^\| (?=`)", table, flags=re.MULTILINE)[1:]
    return {row[1:].partition("`")[0]: row for row in rows}


def test_the_page_shows_of_every_format_what_has_to_be_sent() -> None:
    shown = mappings()
    assert list(shown) == [each.path for each in FORMATS]
    assert ", ".join(REFERENCES) in shown["/run"] and ", ".join(PROMPTS) in shown["/run"]
    for each in FORMATS:
        assert each.request_model is not None and "*no score*" in shown[each.path]
        for name, field in each.request_model.model_fields.items():
            # those of a list stand at its items
            known = name in ("root", "questions") or name in shown[each.path]
            assert known or not field.is_required()
