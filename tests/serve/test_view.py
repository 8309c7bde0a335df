"""The viewer: whom it lets in, what its pages say, and what people's labels come to."""

from __future__ import annotations

import asyncio
import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rm_gallery import ConfigError, RMGalleryError
from rm_gallery.core.stats.agreement import cohen_kappa
from rm_gallery.core.utils.file import to_line
from rm_gallery.serve.view import ViewedRuns, create_viewer
from rm_gallery.serve.view_index import RowFilter, RunIndex
from rm_gallery.serve.view_pages import differences
from rm_gallery.serve.view_review import ReviewQueue
from rm_gallery.study.runs import open_run
from rm_gallery.study.winrate import winrate
from tests.report.runs import HOSTILE, judged_run, report, row, write_run

if TYPE_CHECKING:
    from fastapi.testclient import TestClient

HOST = "http://127.0.0.1:8123"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    from fastapi.testclient import TestClient

    judged_run(tmp_path / "one", 60)
    write_run(tmp_path / "going", [row(k) for k in range(7)])
    judged_run(tmp_path / "two", 60)
    (tmp_path / "audit").mkdir()
    (tmp_path / "audit" / "card.html").write_text("a card")
    # as an earlier version kept it
    kept: dict[str, object] = {"reward": "short", "verdict": "pass", "questions": 4, "scored": 4}
    (tmp_path / "audit" / "audit.json").write_text(json.dumps({**kept, "findings": {}, "counts": {"pass": 1}, "data": "d"}))  # fmt: skip
    (tmp_path / "audit" / "manifest.json").write_text("{}")
    with TestClient(create_viewer(ViewedRuns([tmp_path]), "secret"), base_url=HOST) as found:
        yield found


def name_of(folder: Path) -> str:
    return next(name for name, path in ViewedRuns([folder]).runs.items() if path == folder)


@pytest.mark.parametrize(
    ("path", "host", "status"),
    [
        ("/secret/", "127.0.0.1:8123", 200),
        ("/secret/", "localhost:8123", 200),
        ("/secret/gallery", "127.0.0.1:8123", 200),
        ("/secre/", "127.0.0.1:8123", 403),
        ("/", "127.0.0.1:8123", 403),
        ("/geheim-ü/", "127.0.0.1:8123", 403),
        ("/static/view.js", "127.0.0.1:8123", 403),
        ("/secret/", "evil.example:8123", 403),
        ("/secret/", "127.0.0.1.evil.example:8123", 403),
        ("/secret/nothing", "127.0.0.1:8123", 404),
        ("/secret/static/..%2Fview.py", "127.0.0.1:8123", 404),
        ("/secret/run/unknown", "127.0.0.1:8123", 404),
    ],
)
def test_only_who_has_the_token_and_asks_this_machine_by_name_is_let_in(
    client: TestClient, path: str, host: str, status: int
) -> None:
    reply = client.get(path, headers={"host": host})
    assert reply.status_code == status
    assert status != 403 or "token" in reply.text
    if status == 200:
        assert "default-src 'none'" in reply.headers["content-security-policy"]
        assert reply.headers["referrer-policy"] == "no-referrer", (
            "the address, which holds the token, goes nowhere"
        )


@pytest.mark.parametrize(
    ("hosts", "status"),
    [
        ([b"127.0.0.1:8123"], 200),
        ([], 403),
        ([b""], 403),
        ([b"127.0.0.1:8123", b"127.0.0.1:8123"], 403),
        ([b"127.0.0.1:8123", b"evil.example:8123"], 403),
        ([b"evil.example:8123", b"127.0.0.1:8123"], 403),
        ([b"evil.example:8123"], 403),
    ],
)
def test_a_request_names_this_machine_once(tmp_path: Path, hosts: list[bytes], status: int) -> None:
    """A page whose name was turned to this address may leave out Host or send two of them (DNS
    rebinding, RFC 9112 3.2).
    """
    judged_run(tmp_path, 10)
    answered = []

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            answered.append(message["status"])

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    path = "/secret/gallery"
    asked = {
        "type": "http",
        "method": "GET",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
    }
    scope = {
        **asked,
        "http_version": "1.1",
        "scheme": "http",
        "headers": [(b"host", host) for host in hosts],
    }
    asyncio.run(create_viewer(ViewedRuns([tmp_path]), "secret")(scope, receive, send))
    assert answered == [status]


def test_runs_are_looked_for_below_what_was_named_and_nowhere_else(tmp_path: Path) -> None:
    """A link in a folder of runs, as one that was unpacked may hold, shows nothing of the rest of
    the disk.
    """
    judged_run(tmp_path / "elsewhere" / "private", 10)
    judged_run(tmp_path / "runs" / "own", 10)
    judged_run(tmp_path / "runs" / "group" / "deeper", 10)
    (tmp_path / "runs" / "link").symlink_to(tmp_path / "elsewhere" / "private")
    (tmp_path / "runs" / "above").symlink_to(tmp_path)
    (tmp_path / "runs" / "broken").symlink_to(tmp_path / "nothing")
    (tmp_path / "runs" / "file.txt").write_text("no folder")
    names = {
        str(path.relative_to(tmp_path)) for path in ViewedRuns([tmp_path / "runs"]).runs.values()
    }
    assert names == {"runs/own", "runs/group/deeper"}
    named = ViewedRuns([tmp_path / "runs" / "link"])
    assert len(named.runs) == 1, "whoever names a link means what it leads to"


def test_every_page_is_there_and_escapes_what_it_shows(client: TestClient, tmp_path: Path) -> None:
    one, two, going = (name_of(tmp_path / name) for name in ("one", "two", "going"))
    card = next(iter(ViewedRuns([tmp_path]).cards))
    pages = {
        "": ("not finished", "75.0 %", "one"),
        f"run/{one}": ("70.0 – 80.0", "judge 6", "endpoint 6", "60 of 60 rows"),
        f"run/{one}?cause=endpoint": ("6 of 60 rows",),
        f"run/{one}?text=question+17%3A": ("1 of 60 rows",),
        f"run/{going}": ("not finished", "7 of 7 rows"),
        f"run/{one}/row/3": (
            "&lt;best&gt;1&lt;/best&gt;",
            "answer 1 shown before answer 2",
            "a reason: ",
        ),
        f"run/{one}/row/3?b={two}": ("Second run",),
        f"compare?a={one}&b={two}": ("neither is shown to be better",),
        f"run/{one}/report": ("<!doctype html>",),
        f"run/{one}/review": ("Your name",),
        f"card/{card}": ("a card",),
        f"run/{card}": ("The trust card says pass: 1 pass.",),
        "gallery?text=ACCURACY": ("accuracy",),
        "gallery/accuracy": ("Try it",),
        "gallery/safety_listwise_reward": ("needs more than an answer",),
    }
    for path, said in pages.items():
        text = client.get(f"/secret/{path}").text
        assert all(each in text for each in said), path
        assert path.endswith("/report") or "<script>window" not in text, path
    plain = client.get(f"/secret/run/{one}/row/0/answer/0")
    assert HOSTILE[0] in plain.text and plain.headers["content-type"].startswith("text/plain")
    tried = client.post("/secret/gallery/accuracy", content="answer=4&reference=4").text
    assert "The answer equals the reference." in tried
    for path in (
        "?low=x",
        "?page=0",
        f"?page={'9' * 5000}",
        "?sort=zz",
        "/row/999",
        "/review?annotator=a/b",
    ):
        assert client.get(f"/secret/run/{one}{path}").status_code in (400, 404), path


def test_rows_are_filtered_and_sorted_as_a_plain_count_says(tmp_path: Path) -> None:
    run = judged_run(tmp_path / "run", 60)
    index, rows = RunIndex(run.folder).refresh(), list(run.samples())
    nan = float("-inf")
    first = [nan if not each.scores or each.scores[0] is None else each.scores[0] for each in rows]
    for wanted, fits in (
        (RowFilter(), [True] * 60),
        (RowFilter(status="failed"), [each.status == "failed" for each in rows]),
        (RowFilter(cause="judge"), [each.cause == "judge" for each in rows]),
        (
            RowFilter(subset="安全", low=0.0),
            [each.subset == "安全" and score >= 0 for each, score in zip(rows, first, strict=True)],
        ),
        (RowFilter(high=-0.5), [nan < score <= -0.5 for score in first]),
        (RowFilter(text="ANSWER B OF 17"), ["Answer B of 17" in each.answers[1] for each in rows]),
        (RowFilter(text="a reason"), [bool(each.reasons) for each in rows]),
        (RowFilter(text="prompt"), [False] * 60),
    ):
        assert index.chosen(wanted).tolist() == [k for k, fit in enumerate(fits) if fit], wanted
    falling = [first[k] for k in index.chosen(RowFilter(sort="-score")).tolist()]
    assert falling == sorted(first, reverse=True)
    assert [index.ids[k] for k in index.chosen(RowFilter(sort="id")).tolist()] == sorted(
        each.id for each in rows
    )
    assert index.row(17) == rows[17] and index.row(60) is None
    with pytest.raises(ConfigError, match="sort is 'size'"):
        RowFilter(sort="size")


def test_what_a_run_adds_or_writes_anew_is_seen_and_half_a_line_is_not(tmp_path: Path) -> None:
    run = write_run(tmp_path, [row(0)])
    index = RunIndex(run.folder).refresh()
    lines = [to_line(row(k)) for k in (1, 2)]
    with index.path.open("ab") as file:
        file.write(lines[0] + b"no row\n" + lines[1][:40])
    assert index.refresh().ids == ["s0", "s1"]
    with index.path.open("ab") as file:
        file.write(lines[1][40:])
    assert index.refresh().ids == ["s0", "s1", "s2"] and index.chosen(
        RowFilter(text="question 2?")
    ).tolist() == [2]
    write_run(tmp_path, [row(9)])
    assert index.refresh().ids == ["s9"]


@pytest.mark.parametrize(
    ("first", "second", "marked"),
    [
        ("the cat sat", "the dog sat", (["cat"], ["dog"])),
        ("same", "same", ([], [])),
        ("", "new", ([], ["new"])),
        ("x " * 4_000, "y " * 4_000, ([], [])),
    ],
)
def test_words_that_differ_are_marked(first: str, second: str, marked: Any) -> None:
    found = differences(first, second)
    assert tuple("".join(part.text for part in side) for side in found) == (first, second)
    assert tuple([part.text for part in side if part.differs] for side in found) == marked


def press(queue: ReviewQueue, annotator: str, verdicts: list[str]) -> None:
    for verdict in verdicts:
        place = queue.next(annotator)
        queue.say(annotator, -1 if place is None else place, verdict)


def queue_of(folder: Path, **keywords: Any) -> ReviewQueue:
    return ReviewQueue(open_run(folder), RunIndex(folder).refresh(), **keywords)


def test_labels_give_the_figure_that_winrate_gives_of_their_file(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    lines = [f"r{k},q{k % 30},{'long ' * (k % 5)}a,{'long ' * (k % 3)}b" for k in range(40)]
    table.write_text("id,q,x,y\n" + "\n".join(lines) + "\nr40,q1,,b\n")
    asked: dict[str, Any] = {"prompt": "q", "answers": ["x", "y"], "id": "id", "progress": None}
    winrate("length_baseline", table, run_dir=str(tmp_path / "run"), **asked)
    queue = queue_of(tmp_path / "run", size=30, seed=5)
    press(queue, "eva", [["a", "b", "tie"][k % 3] for k in range(30)])
    found = queue.corrected("eva")
    judged = winrate(
        "length_baseline", table, labels=str(tmp_path / "run" / "labels-eva.csv"), **asked
    )
    said = judged.extra["corrected"]
    assert [found.n, found.n_labelled, found.estimate, *(found.ci95 or ())] == pytest.approx(
        [41, 30, said["estimate"], *said["ci95"]]
    )
    assert queue.probability == 30 / 40


def test_a_verdict_counts_once_can_be_undone_and_is_blind_to_sides(tmp_path: Path) -> None:
    judged_run(tmp_path, 60)
    queue = queue_of(tmp_path, size=12)
    assert queue.places != sorted(queue.places), "the order says nothing"
    sides = {queue.swapped(who, place) for who in ("eva", "ben") for place in queue.places}
    assert sides == {True, False}
    press(queue, "eva", ["a", "skip", "b"])
    queue.say("eva", queue.places[0], "b")  # a key pressed twice
    queue.say("eva", 0, "undo")
    assert [one.place for one in queue.labels()["eva"]] == queue.places[:2] and queue.next(
        "eva"
    ) == queue.places[2]
    first = 0.0 if queue.swapped("eva", queue.places[0]) else 1.0
    assert [one.label for one in queue.labels()["eva"]] == [first, None]
    with (tmp_path / "labels-eva.csv").open() as file:
        assert [float(line["label"]) for line in csv.DictReader(file)] == [first]
    for who, place, verdict, why in (
        ("eva/../x", queue.places[3], "a", "annotator"),
        ("eva", queue.places[3], "A", "verdict"),
        ("eva", next(k for k in range(60) if k not in queue.places), "a", "not among"),
    ):
        with pytest.raises(RMGalleryError, match=why):
            queue.say(who, place, verdict)
    assert queue_of(tmp_path, size=12).labels() == queue.labels(), (
        "another start goes on where this one ended"
    )


def test_two_annotators_agree_as_kappa_says(tmp_path: Path) -> None:
    judged_run(tmp_path, 60)
    queue = queue_of(tmp_path, size=20)
    for who, turned in (("eva", 0), ("ben", 4)):
        for k, place in enumerate(queue.places):
            better = "ab"[(k % 3 > 0) ^ (k < turned) ^ queue.swapped(who, place)]
            queue.say(who, place, better)
    mine, theirs = ([one.label for one in queue.labels()[who]] for who in ("eva", "ben"))
    (found,) = queue.agreements("eva")
    assert (
        found["kappa"] == cohen_kappa(mine, theirs)
        and found["n"] == 20
        and 0.3 < found["kappa"] < 0.9
    )


def test_a_single_answer_is_called_good_or_bad(tmp_path: Path) -> None:
    rows = [row(k, f"answer {k}", labels=[], scores=[k % 5 / 4]) for k in range(40)]
    write_run(tmp_path, rows, report(40, rule="mean_score"))
    queue = queue_of(tmp_path)
    assert not queue.pairs and len(queue.places) == 40
    press(queue, "eva", ["a"] * 10 + ["b"] * 5)
    assert [one.label for one in queue.labels()["eva"]] == [1.0] * 10 + [0.0] * 5
    assert queue.corrected("eva").n_labelled == 15


ODD_ROWS = [
    {"status": ["scored"]},
    {"subset": {"a": 1}},
    {"key": 5},
    {"key": ["x"]},
    {"cluster": [1]},
    {"answers": 7},
    {"id": None},
]
ODD_REPORTS: list[dict[str, object]] = [
    {"score": "x"},
    {"n": "many"},
    {"ci95": "ab"},
    {"by_subset": [1]},
    {"bounds": 3},
    {"missing": []},
]


@pytest.mark.parametrize("odd", [*ODD_ROWS, *ODD_REPORTS], ids=str)
def test_one_odd_folder_hides_no_other_run(tmp_path: Path, odd: dict[str, object]) -> None:
    judged_run(tmp_path / "good", 6)
    folder = judged_run(tmp_path / "odd", 6).folder if odd in ODD_REPORTS else tmp_path / "odd"
    if odd in ODD_ROWS:
        folder.mkdir()
        (folder / "manifest.json").write_text("{}", encoding="utf-8")
        row = {"id": "a", "status": "scored", "answers": ["x"], "scores": [1.0], "credit": 1.0}
        lines = [json.dumps({**row, **odd}), json.dumps({**row, "id": "b", "subset": "s"})]
        (folder / "samples.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    else:
        report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
        (folder / "report.json").write_text(json.dumps({**report, **odd}), encoding="utf-8")
    listed = list(ViewedRuns([tmp_path]).listed())
    assert len(listed) == 2 and all(
        "problem" not in one for one in listed if one["folder"].endswith("good")
    )
    if odd in ODD_ROWS:
        index = RunIndex(folder).refresh()
        assert [index.ids[place] for place in index.chosen(RowFilter(subset="s")).tolist()] == [
            "b"
        ], "no column is shifted"


@pytest.mark.parametrize("path", ["nothing", "file.txt"])
def test_what_is_no_folder_is_said_at_once(tmp_path: Path, path: str) -> None:
    (tmp_path / "file.txt").write_text("")
    with pytest.raises(ConfigError, match="no folder"):
        ViewedRuns([tmp_path / path])
