"""The samples of a run as the data of a page: chosen, made visible, cut to what there is room for, and safe inside it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson

from rm_gallery.core.utils.file import seeded_positions
from rm_gallery.report.opened import OpenRun, SampleRow
from rm_gallery.report.summary import Summary, gap_of, number
from rm_gallery.report.words import cut, visible

MAX_SAMPLES = 2_000
"""Samples in the table; of a larger run those without a score come first, then a seeded draw of the others."""
MAX_LOST = 500
MAX_BYTES = 3_800_000
"""Of the table's data, so that the page stays below 5 MB."""
LONGEST_TEXT = 20_000
"""Bytes of one text; shorter where many texts share the room."""
SHORTEST_TEXT = 120


def table_data(run: OpenRun, summary: Summary, compared: bool = False) -> tuple[str, int, int]:
    """The samples as JSON that is safe inside a page, the longest text in bytes, and how many samples it holds.

    With `compared` a credit is a win of the first answer, not a right verdict.
    """
    rows = _chosen_rows(run, summary)
    said: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    keys = {row.key for row in rows}
    for entry in run.trace():
        if (key := entry.get("sample_key")) in keys:
            said[str(key)].append(_reply(entry))
    limit = LONGEST_TEXT
    while True:
        data = _safe([_record(row, said.get(row.key, []), limit, compared) for row in rows])
        if len(data) <= MAX_BYTES or not rows:
            return data.decode(), limit, len(rows)
        if limit <= SHORTEST_TEXT:  # so many answers or steps that even cut short they are too much
            rows = rows[: int(0.9 * len(rows) * MAX_BYTES / len(data))]
            continue
        limit = max(SHORTEST_TEXT, min(limit // 2, int(limit * 1.2 * MAX_BYTES / len(data))))


def _safe(data: Any) -> bytes:
    """JSON in which nothing ends a script element or opens a comment."""
    raw = orjson.dumps(data)
    return raw.replace(b"<", b"\\u003c").replace(b">", b"\\u003e").replace(b"&", b"\\u0026")


def _chosen_rows(run: OpenRun, summary: Summary) -> list[SampleRow]:
    rows: list[SampleRow] = []
    kept = None
    if summary.n > MAX_SAMPLES:
        lost = min(MAX_LOST, summary.n - summary.statuses["scored"])
        kept = set(seeded_positions(summary.statuses["scored"], MAX_SAMPLES - lost, 0))
    asked = run.manifest.get("columns")
    columns = asked.get("answers") if isinstance(asked, dict) else None
    place = left = 0
    for row in run.samples():
        if kept is not None:
            if row.status == "scored":
                place += 1
                if place - 1 not in kept:
                    continue
            else:
                left += 1
                if left > MAX_LOST:
                    continue
        rows.append(_shortened(row, columns))
    return rows


def names_of(row: SampleRow, columns: Any) -> list[str]:
    """What the answers are called where they are columns of a table; empty elsewhere."""
    places = (row.metadata or {}).get("columns")
    if not isinstance(columns, list) or not isinstance(places, list):
        return []
    fits = all(isinstance(place, int) and 0 <= place < len(columns) for place in places)
    return [str(columns[place]) for place in places] if fits and len(places) == len(row.answers) else []


def _shortened(row: SampleRow, columns: Any) -> SampleRow:
    """The row with texts as the page may show them at most, so that a huge one is not kept in memory."""
    return replace(
        row,
        prompt=_text(row.prompt, LONGEST_TEXT),
        answers=tuple(_text(text, LONGEST_TEXT) for text in row.answers),
        reasons=tuple(None if text is None else _text(text, LONGEST_TEXT) for text in row.reasons),
        metadata={"lengths": [len(text) for text in row.answers], "names": names_of(row, columns)},
    )


def _text(text: Any, limit: int) -> str:
    """A text made visible and cut; what is far too long is cut before it is looked at."""
    text = text if isinstance(text, str) else str(text)
    if len(text) > 4 * limit:
        text = cut(text, 2 * limit)
    return cut(visible(text), limit)


def _reply(entry: Mapping[str, Any]) -> dict[str, Any]:
    tokens = entry.get("tokens") if isinstance(entry.get("tokens"), dict) else {}
    return {
        "place": _place(entry.get("place")),
        "attempt": int(number(entry.get("attempt"), 1)),
        "status": str(entry.get("status")),
        "problem": _text(entry.get("problem") or "", 400),
        "seconds": round(number(entry.get("seconds")), 3),
        "cached": bool(entry.get("cached")),
        "tokens": [int(number((tokens or {}).get(name))) for name in ("input", "output")],
        "reply": None if entry.get("reply") is None else _text(entry["reply"], LONGEST_TEXT),
    }


def _place(place: Any) -> int | list[int] | None:
    if isinstance(place, list) and all(type(one) is int for one in place):
        return place[:40]
    return place if type(place) is int else None


def _record(row: SampleRow, replies: Sequence[dict[str, Any]], limit: int, compared: bool) -> dict[str, Any]:
    lengths = (row.metadata or {}).get("lengths", ())
    reasons = row.reasons or (None,) * len(row.answers)
    record: dict[str, Any] = {
        "id": _text(row.id, 200),
        "subset": _text(row.subset, 200),
        "status": _text(row.status, 40),
        "outcome": outcome_of(row, compared),
        "gap": _number(gap_of(row)),
        "prompt": _text(row.prompt, limit),
        "answers": [
            {
                "text": cut(text, limit),
                "length": length,
                **_known(label=label, score=_number(score), reason=reason and cut(reason, limit)),
            }
            for text, length, label, score, reason in zip(
                row.answers,
                lengths,
                _padded(row.labels, row),
                _padded(row.scores, row),
                _padded(reasons, row),
                strict=False,
            )
        ],
        "names": [_text(name, 100) for name in (row.metadata or {}).get("names", ())],
        "verdicts": [list(verdict) for verdict in row.verdicts],
        "steps": [
            [[cut(visible(str(text)), limit // 4), _number(score), _label(label)] for text, score, label in steps[:60]]
            for steps in row.steps
        ],
        "issues": [[i.status, visible(i.reason), _text(i.message, 600)] for i in row.issues],
        "replies": [
            {**reply, "reply": None if reply["reply"] is None else cut(reply["reply"], limit)} for reply in replies[:24]
        ],
    }
    return {name: value for name, value in record.items() if value not in (None, [], "", ())}


def _padded(values: Sequence[Any], row: SampleRow) -> list[Any]:
    return [*values, *(None for _ in range(len(row.answers) - len(values)))]


def _known(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None and value != ""}


def _label(label: Any) -> str:
    return _text(", ".join(f"{k}: {v}" for k, v in label.items()), 120) if isinstance(label, Mapping) else ""


def _number(value: Any) -> float | None:
    fits = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if fits else None


def outcome_of(row: SampleRow, compared: bool = False) -> str:
    """What became of a sample in one word: right, partly, wrong, scored (it earned nothing countable), or its status.

    With `compared` the first answer wins, ties or loses.
    """
    if row.status != "scored":
        return row.status if row.status in ("unscored", "failed", "stopped") else "unscored"
    if row.credit is None:
        return "scored"
    if compared:
        return "wins" if row.credit > 0.5 else "loses" if row.credit < 0.5 else "tie"
    return "right" if row.credit > 1 - 1e-9 else "wrong" if row.credit < 1e-9 else "partly"
