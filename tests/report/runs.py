"""Run folders for tests of the report: written as the library writes them, without judging
anything.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson

from rm_gallery.core.utils.file import to_line
from rm_gallery.study.runs import OpenRun, open_run

HOSTILE = (
    "<script>window.hacked = 1</script>",
    "</script><script>window.hacked = 2</script>",
    "<!-- <script> --!> </ScRiPt > <style>body{display:none}</style>",
    "\"'><img src=x onerror=\"window.hacked = 3\"><svg onload='window.hacked = 4'>",
    "{{ 7 * 7 }} {% raw %} ${7 * 7} &lt;b&gt; &#x3c;",
    "\u202egnirts desrever\u202c \u2066\u200b\ufeff end",
    "lone \ud800 surrogate, NUL \x00, bell \x07, escape \x1b[31m, \u2028 separators \u2029",
    "第一行\r\n第二行\rthird 🙂 é",
)
"""Texts that try to break out of the page, or that no page can show as they are."""


def row(number: int, *answers: str, **fields: Any) -> dict[str, Any]:
    """A line of samples.jsonl; the first answer is the chosen one and scores lower the longer it
    is.
    """
    answers = answers or (f"right {number}", f"wrong answer {number}")
    record: dict[str, Any] = {
        "id": f"s{number}", "key": f"s{number}:0", "cluster": str(number), "status": "scored", "prompt": f"Question {number}?",
        "answers": list(answers), "labels": ["chosen", *["rejected"] * (len(answers) - 1)],
        "scores": [1.0, *[0.25 * k for k in range(len(answers) - 1)]], "credit": 1.0,
    }  # fmt: skip
    return {**record, **fields}


def report(n: int, **fields: Any) -> dict[str, Any]:
    """What report.json holds, as far as the page reads it."""
    saved: dict[str, Any] = {
        "reward": "a_reward", "judge": None, "endpoint": None, "benchmark": "preferences", "version": "1", "data": "x",
    }  # fmt: skip
    saved |= {
        "rule": "pair_strict",
        "n": n,
        "n_scored": n,
        "n_unscored": 0,
        "n_failed": 0,
        "n_stopped": 0,
    }
    saved |= {"score": 0.75, "ci95": [0.7, 0.8], "by_subset": {}, "chance": 0.5, "stopped": None}
    saved |= {
        "baselines": {"longest": 0.4, "shortest": 0.6},
        "reasons": {},
        "notes": [],
        "seconds": 2.0,
        "calls": 0,
    }
    return {**saved, **fields}


def write_run(
    folder: Path,
    rows: Iterable[dict[str, Any]] = (),
    saved: dict[str, Any] | None = None,
    trace: Iterable[dict[str, Any]] | None = None,
    manifest: dict[str, Any] | None = None,
) -> OpenRun:
    """A run folder with these lines, and opened."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "manifest.json").write_bytes(
        orjson.dumps(manifest or {"reward": {"name": "a_reward"}, "benchmark": "b"})
    )
    with (folder / "samples.jsonl").open("wb") as file:
        file.writelines(map(to_line, rows))
    if saved is not None:
        (folder / "report.json").write_bytes(to_line(saved))
    if trace is not None:
        with (folder / "trace.jsonl").open("wb") as file:
            file.writelines(map(to_line, trace))
    return open_run(folder)


def reply(number: int, text: str, **fields: Any) -> dict[str, Any]:
    """A line of trace.jsonl."""
    entry = {
        "id": f"s{number}",
        "sample_key": f"s{number}:0",
        "place": [0, 1],
        "attempt": 1,
        "status": "scored",
    }
    return {
        **entry,
        "seconds": 0.5,
        "cached": False,
        "tokens": {"input": 9, "output": 4},
        "reply": text,
        **fields,
    }


def judged_run(folder: Path, n: int = 60) -> OpenRun:
    """A run with everything a report can show: subsets, misses, both orders, a trace, and hostile
    texts all over.
    """
    draw = random.Random(3)
    rows, trace = [], []
    for k in range(n):
        bad = HOSTILE[k % len(HOSTILE)]
        right = draw.random() < 0.7
        answers = [
            f"Answer A of {k}. {bad} " + "because " * draw.randint(1, 90),
            f"Answer B of {k}. {bad}",
        ]
        fields: dict[str, Any] = {
            "subset": ("Math", f"Safety {HOSTILE[0]}", "安全")[k % 3],
            "prompt": f"Question {k}: {bad}",
            "scores": [draw.gauss(1.0 if right else -1.0, 0.5), draw.gauss(0, 0.4)],
            "reasons": [f"a reason: {bad}", None],
            "verdicts": [[0, 1, 1 if right else -1], [1, 0, -1 if right and k % 4 else 1]],
            "credit": float(right),
        }
        if k % 10 == 7:
            fields |= {"status": "unscored", "scores": [None, None], "credit": None, "verdicts": []}
            fields["issues"] = [["unscored", "parse", f"unreadable: {bad}"]]
        if k % 10 == 8:
            fields |= {"status": "failed", "scores": [None, None], "credit": None, "verdicts": []}
            fields["issues"] = [["failed", "deadline", "the deadline of 1 s passed"]]
        if k % 5 == 1:  # a list that was shown at once
            fields |= {
                "order": [2, 0, 1, 3],
                "scores": [draw.gauss(0.8, 1), *(draw.gauss(0, 1) for _ in range(3))],
            }
            answers += ["C", "D"]
            fields |= {"labels": ["chosen", *["rejected"] * 3], "reasons": []}
        rows.append(row(k, *answers, **fields))
        trace.append(
            reply(k, f"<think>{bad}</think><best>1</best>", seconds=draw.lognormvariate(0, 0.5))
        )
    failed = sum(line["status"] == "failed" for line in rows)
    unscored = sum(line["status"] == "unscored" for line in rows)
    scored = n - failed - unscored
    parts = {
        name: {
            "rule": "pair_strict",
            "n": n // 3,
            "n_scored": n // 3,
            "score": score,
            "ci95": [score - 0.1, score + 0.1],
        }
        for name, score in (("Math", 0.8), (f"Safety {HOSTILE[0]}", 0.6), ("安全", 0.7))
    }
    saved = report(
        n, n_scored=scored, n_unscored=unscored, n_failed=failed, by_subset=parts, judge=f"judge {HOSTILE[0]}", calls=n,
        reward=f"a_reward {HOSTILE[1]}", notes=[HOSTILE[5]], extra={"orders": {"n": scored, "consistency": 0.7}},
        reasons={f"unscored: parse {HOSTILE[0]}": {"n": unscored, "example": HOSTILE[1]}, "failed: deadline": {"n": failed}},
    )  # fmt: skip
    return write_run(folder, rows, saved, trace)
