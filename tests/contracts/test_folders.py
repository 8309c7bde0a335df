"""One contract of run folders: what any command kept with `--out` every reader reads, with the same
figure, the same n and the same that is missing, or refuses in one line that says what it holds.
"""

from __future__ import annotations

import csv
import html
import io
import json
import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import pytest
import typer

from rm_gallery.cli.main import app
from rm_gallery.gallery.benchmarks.figures import Report
from rm_gallery.gallery.benchmarks.lead import worth
from rm_gallery.serve.view import ViewedRuns, Viewer, create_viewer
from rm_gallery.study.benchmark import evaluate
from rm_gallery.study.runs import open_run
from tests.support.command import Done, command
from tests.support.judge_server import JudgeCall, JudgeServer

N = 6
BROKEN = "FAIL"
"""A text at which every reward here says nothing: the third of each file has it."""
LENGTH = (
    "from rm_gallery import Unscored, reward_function\n\n\n@reward_function(score_range=(0, 1))\ndef own(messages, **kwargs):\n"
    f"    if '{BROKEN}' in messages[-1].text:\n        raise Unscored('it says nothing')\n"
    "    return min(1.0, len(messages[-1].text) / 9)\n"
)
PAIRS = "pairs.jsonl --max-failures 9"
TABLE = "func:own.py table.csv --prompt q --max-failures 9"
WAYS = {
    "eval": f"eval func:own.py {PAIRS}",
    "bench": f"bench func:own.py preferences --data {PAIRS}",
    "winrate": f"winrate {TABLE} --a x --b y",
    "score": f"score {TABLE} --answer x",
    "grade": "grade graders.yaml rows.jsonl --max-failures 9",
    "judge-select": "judge-select judges.yaml rows.jsonl",
    "rejudge": "rejudge func:own.py rollouts.jsonl --max-failures 9",
    "conflicts": "conflicts safety_listwise_reward lists.jsonl --llm m --base-url URL --max-failures 9",
    "audit": "audit func:own.py pairs.jsonl --probe repeats",
}
"""By command that keeps a run, a call that scores all but one of its samples."""
MORE = {
    "eval, nothing scored": "eval func:own.py broken.jsonl --max-failures 9",
    "eval, traced": "eval safety_listwise_reward lists.jsonl --llm m --base-url URL --trace --max-failures 9",
    "bench, scores": "bench preferences --data pairs.jsonl --scores scores.jsonl",
    "bench, repeats": f"bench func:own.py preferences --data {PAIRS} --repeats 2",
    "winrate, labels": f"winrate {TABLE} --a x --b y --labels people",
    "score, labels": f"score {TABLE} --answer x --labels number",
    "judge-select, one broken": "judge-select half.yaml rows.jsonl",
    "judge-select, first broken": "judge-select first.yaml rows.jsonl",
    "judge-select, all broken": "judge-select none.yaml rows.jsonl",
    "audit, traced": "audit safety_listwise_reward pairs.jsonl --probe position --llm m --base-url URL --trace",
}
"""Other calls of them that keep something else."""
ALL = WAYS | MORE


def silent_at_broken(call: JudgeCall) -> str:
    return "no verdict" if BROKEN in call.reading.prompt else "<best>1</best>"


def write(name: str, rows: list[dict[str, Any]]) -> None:
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


class Kept(NamedTuple):
    """What a command printed as JSON and on a terminal, and the two equal folders it kept."""

    done: Done
    told: Done
    folder: Path
    twin: Path


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the files of the calls above, in which they were made."""
    place = tmp_path_factory.mktemp("folders")
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(place)
        patched.setenv("RM_GALLERY_CACHE", "off")
        texts = [BROKEN if k == 2 else "word" * (1 + k % 3) for k in range(N)]
        Path("own.py").write_text(LENGTH)
        pairs = [{"id": f"s{k}", "prompt": f"q{k}", "chosen": text, "rejected": "six"} for k, text in enumerate(texts)]  # fmt: skip
        write("pairs.jsonl", pairs)
        write("broken.jsonl", [{**pair, "chosen": BROKEN} for pair in pairs])
        three = [{**pair, "chosen": [pair["chosen"]], "rejected": ["aa", "b"]} for pair in pairs]
        write("lists.jsonl", three)
        Path("table.csv").write_text(
            "q,x,y,people,number\n"
            + "".join(f"q{k},{text},six,{'ab'[k % 2]},{k}\n" for k, text in enumerate(texts))
        )
        truth = [{"query": f"q{k}", "response": "a", "ok": k % 3 > 0} for k in range(N)]
        write("rows.jsonl", [row | ({} if k == 2 else {"truth": "ab"[k % 2]}) for k, row in enumerate(truth)])  # fmt: skip
        for name, columns in (
            ("graders", "truth"),
            ("judges", "truth ok"),
            ("half", "truth absent"),
            ("first", "absent truth"),
            ("none", "absent gone"),
        ):
            each = ", ".join(f"{c}: {{grader: string_match, mapper: {{reference_response: {c}}}}}" for c in columns.split())  # fmt: skip
            labels = "" if name == "graders" else "labels: ok\n"
            Path(f"{name}.yaml").write_text(f"graders: {{{each}}}\n{labels}")
        turns = [[{"role": "user", "content": f"q{k}"}, {"role": "assistant", "content": text}] for k, text in enumerate(texts)]  # fmt: skip
        write("rollouts.jsonl", [{"messages": t, "reward": k / N} for k, t in enumerate(turns)])
        write("scores.jsonl", [{"id": f"s{k}", "candidate": side, "score": None if k == 2 and not side else 0.5 if side else k % 2} for k in range(N) for side in (0, 1)])  # fmt: skip
        with JudgeServer(silent_at_broken, in_process=True) as judge:
            patched.setenv("OPENAI_API_KEY", "k")
            for name, call in ALL.items():
                words = call.replace("URL", judge.base_url).split()
                for folder in (name, f"{name} again"):
                    done = command(*words, "--json", "--out", folder)
                    Path(f"{folder}.json").write_text(json.dumps(done))
                Path(f"{name}.told").write_text(
                    json.dumps(command(*words, "--out", f"{name} told"))
                )
        yield place


@pytest.fixture(params=ALL)
def kept(request: pytest.FixtureRequest, place: Path, monkeypatch: pytest.MonkeyPatch) -> Kept:
    monkeypatch.chdir(place)
    name = request.param
    done = Done(*json.loads(Path(f"{name}.json").read_text()))
    assert done.out, done.err
    told = Done(*json.loads(Path(f"{name}.told").read_text()))
    return Kept(done, told, Path(name), Path(f"{name} again"))


def test_every_command_that_keeps_a_run_is_called_here() -> None:
    def keeping(here: Any, words: tuple[str, ...] = ()) -> Iterator[str]:
        for name, inner in getattr(here, "commands", {}).items():
            yield from keeping(inner, (*words, name))
        options = {option: one for one in here.params for option in one.opts}
        if (options["--out"].help if "--out" in options else "").startswith("Run folder"):
            yield " ".join(words)

    assert set(keeping(typer.main.get_command(app))) == WAYS.keys()


def figures_of(kept: Kept) -> dict[str, Any]:
    """What `report --format json` says."""
    done = command("report", str(kept.folder), "--format", "json")
    assert done.code == 0, done.err
    figures: dict[str, Any] = json.loads(done.out)
    return figures


def shown(figures: dict[str, Any]) -> str:
    """The main figure as people see it."""
    score = figures.get("corrected", figures)["score"]
    if score is None:
        return "–"
    own = figures["rule"] in ("mean_score", "label_correlation")
    return f"{score:.4g}" if own else f"{100 * score:.1f}"


def values(data: Any) -> Iterator[Any]:
    """Every value in JSON."""
    inner = data.values() if isinstance(data, dict) else data if isinstance(data, list) else ()
    for one in inner:
        yield from values(one)
    if not isinstance(data, dict | list):
        yield data


def refused(done: Done, kept: Kept) -> bool:
    """Whether a reader refused in one line that says what the folder holds, and what to use."""
    lines = done.err.splitlines()
    what = str(kept.folder).partition(",")[0]
    return (
        (done.code, len(lines)) == (2, 1)
        and what in lines[0]
        and "Traceback" not in done.err
        and bool(re.search(r"rm-gallery \w+", lines[0]))
    )


def test_the_report_is_finished_and_has_the_figure_that_the_command_told(kept: Kept) -> None:
    figures, told = figures_of(kept), [*values(json.loads(kept.done.out))]
    assert figures["finished"] is True
    assert figures["score"] in told and figures["n"] in told
    assert sum(figures["missing"].values()) == figures["n"] - figures["n_scored"]
    lost = {"nothing": N, "judge-select, all broken": N}
    if figures["rule"] != "trust_card":
        assert figures["n"] == N
        expected = next((n for name, n in lost.items() if name in str(kept.folder)), 1)
        assert sum(figures["missing"].values()) == expected


def pages_of(kept: Kept) -> dict[str, str]:
    """What a run's report and card show below their title, by form, as plain text."""
    pages = {form: command("report", str(kept.folder), "--format", form, "--out", "page") and Path("page").read_text(encoding="utf-8") for form in ("md", "html")}  # fmt: skip
    for card in kept.folder.glob("card.*"):
        pages[card.name] = card.read_text(encoding="utf-8")
    for form, text in pages.items():
        below = text.partition("</h1>")[2] if "</h1>" in text else text.partition("\n")[2]
        plain = html.unescape(re.sub(r"<[^>]*>|[\\*]", " " if "html" in form else "", below))
        pages[form] = " ".join(plain.split())
    return pages


def test_what_a_rule_finds_out_beside_its_figure_is_shown_in_every_form(kept: Kept) -> None:
    lines, forms = figures_of(kept).get("says", []), pages_of(kept)
    assert lines or not str(kept.folder).startswith(("winrate", "score", "rejudge"))
    forms["terminal"] = " ".join(kept.told.out.split())
    forms["json"] = kept.done.out
    for line in lines:
        for form, text in forms.items():
            assert line in text, (form, line, text[:3000])


def test_everything_that_shows_a_run_begins_with_the_same_sentence(kept: Kept) -> None:
    figures, told = figures_of(kept), json.loads(kept.done.out)
    said = worth(figures)
    for one in (figures, told, open_run(kept.folder).report):
        assert [*one.items()][0] == ("worth", said)
    assert " ".join(kept.told.out.split()).startswith(said), kept.told.out
    for form, text in pages_of(kept).items():
        before, found, _ = text.partition(said)
        assert found and len(before) < 12, (form, text[:600])  # the large figure or verdict
    [listed] = ViewedRuns([kept.folder]).listed()
    assert listed["worth"] == said


@pytest.mark.parametrize("form", ["md", "html", "junit"])
def test_every_form_of_the_report_has_the_same_figure(kept: Kept, form: str) -> None:
    figures, out = figures_of(kept), kept.folder / "page"
    done = command("report", str(kept.folder), "--format", form, "--out", str(out))
    text = out.read_text(encoding="utf-8")
    assert "not finished" not in text
    assert shown(figures) in text or (figures["score"] is None and "no score" in text)
    assert f"{figures['n']:,}" in text
    gone = figures["n"] - figures["n_scored"]
    assert not gone or re.search(rf"\b{gone:,} (unscored|failed|samples)", text), text
    if form == "junit":
        root = ElementTree.fromstring(text)
        assert root.find(".//testcase[@name='finished']/failure") is None
    else:
        assert done.code == 0, done.err


def test_the_viewer_lists_and_shows_the_same_figure(kept: Kept) -> None:
    from fastapi.testclient import TestClient

    figures, runs = figures_of(kept), ViewedRuns([kept.folder])
    [listed] = runs.listed()
    assert "problem" not in listed, listed
    assert (listed["finished"], listed["n"]) == (True, figures["n"])
    assert shown(figures) == listed["score"].removesuffix(" %")
    gone = figures["n"] - figures["n_scored"]
    assert not gone or any(line.startswith(f"{gone:,} ") for line in listed["lost"])
    with TestClient(create_viewer(runs, "t"), base_url="http://127.0.0.1:1") as client:
        page = client.get(f"/t/run/{listed['name']}").text
    assert f'<p class="score">{listed["score"]}</p>' in page and "not finished" not in page
    assert all(f"{word} {n:,}" in page or n == 0 for word, n in figures["missing"].items()), page


def test_a_sample_is_explained_or_it_is_said_what_to_use(kept: Kept) -> None:
    kept_run, figures = open_run(kept.folder), figures_of(kept)
    ids = [row.id for row in kept_run.samples()]
    assert len(ids) == (0 if figures["rule"] == "trust_card" else figures["n"])
    for one in ids:
        done = command("explain", str(kept.folder), one)
        assert done.code == 0 and one in done.out and "credit" in done.out
    done = command("explain", str(kept.folder), "nobody")
    if kept_run.traced:
        known = [*kept_run.trace()][0]["id"]
        assert done.code == 2 and known in done.err, done
        assert command("explain", str(kept.folder), known).code == 0
    else:
        assert ids or refused(done, kept), done


def test_the_table_has_the_same_figure_or_says_what_the_folder_holds(kept: Kept) -> None:
    done, figures = command("table", str(kept.folder), "--format", "csv"), figures_of(kept)
    if figures["rule"] == "trust_card":
        assert refused(done, kept), done
        return
    assert done.code == 0, done.err
    [*_, overall] = csv.DictReader(io.StringIO(done.out))
    score = figures.get("corrected", figures)["score"]
    assert overall["score"] == ("" if score is None else str(score))
    assert int(overall["n"]) == figures["n"]
    assert int(overall["missing"]) == sum(figures["missing"].values())


def test_two_folders_are_compared_or_it_is_said_what_they_hold(kept: Kept) -> None:
    done = command("compare", str(kept.folder), str(kept.twin), "--json")
    if done.code == 0:
        [difference] = json.loads(done.out)
        figures = figures_of(kept)
        assert difference["whole"]["difference"] in (0.0, None)
        assert difference["whole"]["first"] == pytest.approx(figures["score"])
    else:
        assert refused(done, kept), done


@pytest.mark.parametrize("form", ["md", "html"])
def test_a_page_of_conflicts_has_the_figures_of_the_command_and_no_others(
    form: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two orders that disagree are its symmetry, which the samples' own flips stood beside."""
    monkeypatch.chdir(place)
    told = json.loads(json.loads(Path("conflicts.json").read_text())[1])
    done = command("report", "conflicts", "--format", form, "--out", "page")
    text = (
        html.unescape(Path("page").read_text(encoding="utf-8"))
        .replace("\\", "")
        .replace("\xa0", " ")
    )
    assert done.code == 0 and "order is swapped" not in text and "is shown first wins" not in text
    for name, found in told["figures"].items():
        if found["value"] is not None:
            assert f"{name}: {100 * found['value']:.1f} % (n = {found['n']:,}" in text, name


STOPS = {"budget": 1, "interrupt": 130, "endpoint": 1}
"""What ends a run early, and the exit code."""


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("name", ["audit", "conflicts", "eval"])
def test_a_run_that_stopped_is_read_says_so_and_goes_on(
    name: str, stop: str, place: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whatever ended it: readers say that and how much is missing, and the same command does the rest."""
    seen: list[JudgeCall] = []

    def stopping(call: JudgeCall) -> Any:
        seen.append(call)
        if stop == "interrupt" and len(seen) == 4:
            signal.raise_signal(signal.SIGINT)
        return "<best>1</best>"

    shutil.copy(place / "lists.jsonl", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RM_GALLERY_CACHE", "off")
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    probes = "--probe position --probe repeats --probe injection --probe replies"
    with JudgeServer(stopping, in_process=True) as judge:
        base = "http://127.0.0.1:9/v1" if stop == "endpoint" else judge.base_url
        line = f"{name} safety_listwise_reward lists.jsonl --llm m --base-url {base} --max-workers 1 --out run"
        line += f" {probes}" if name == "audit" else ""
        budget = " --config budget.max_calls=4" if stop == "budget" else ""
        done = command(*(line + budget).split())
        assert done.code == STOPS[stop], done
        figures = json.loads(command("report", "run", "--format", "json").out)
        if stop == "endpoint" and name == "eval":
            return  # six calls are too few to tell that it is gone: samples fail, one by one
        assert figures["finished"] is False and figures["worth"].startswith("Unfinished: ")
        assert re.match(
            r"Unfinished: \d+ of [\d,]+ (samples|questions) were asked", figures["worth"]
        )
        page = command("report", "run", "--format", "md").out
        assert "This run is not finished" in page
        [listed] = ViewedRuns([Path("run")]).listed()
        assert (listed["worth"], listed["finished"]) == (figures["worth"], False)
        if name != "eval":
            assert figures["n_scored"] + figures["n_failed"] + figures["n_stopped"] == figures["n"]
        for key, part in figures["by_subset"].items() if name == "audit" else ():
            low, high = part.get("bounds") or (part["score"], part["score"])
            assert low == high or low <= (part["score"] or low) <= high, (key, part)
            assert (part["verdict"] in ("pass", "fail")) <= (part["n_scored"] == part["n"]), (
                key,
                part,
            )
            assert part["n_unscored"] == 0, key
        for reader in ("explain run nobody", "table run", "compare run run"):
            read = command(*reader.split())
            assert "Traceback" not in read.err and len(read.err.splitlines()) <= 1, read
            assert read.code == 2 or name != "audit", read
            assert name != "audit" or "run holds trust_card" in read.err, read
        if stop == "endpoint":
            return
        asked = len(seen)
        rest = command(*line.split())
        assert "Unfinished" not in rest.out + rest.err, rest
        assert json.loads(command("report", "run", "--format", "json").out)["finished"] is True
        assert asked >= 4 and len({call.reading.prompt for call in seen}) <= len(seen)


EARLIER = {
    "audit": "audit.json",
    "conflicts": "conflicts.json",
    "rejudge": "rejudged.json",
}


@pytest.mark.parametrize("name", EARLIER)
def test_a_folder_of_an_earlier_version_has_the_same_figure(
    name: str, place: Path, tmp_path: Path
) -> None:
    told = json.loads(json.loads((place / f"{name}.json").read_text())[1])
    figures = json.loads((place / name / "report.json").read_text())
    shutil.copy(place / name / "manifest.json", tmp_path)
    (tmp_path / EARLIER[name]).write_text(json.dumps(told))
    done = command("report", str(tmp_path), "--format", "json")
    found = json.loads(done.out)
    names = ("reward", "rule", "n", "n_scored", "missing", "score", "reasons")
    assert found["finished"] is True
    assert {each: found[each] for each in names} == {each: figures[each] for each in names}
    assert [one["finished"] for one in ViewedRuns([tmp_path]).listed()] == [True]
    assert "keeps no samples; rm-gallery report" in command("explain", str(tmp_path), "s1").err
    (tmp_path / EARLIER[name]).write_text('{"n": 1}')
    done = command("report", str(tmp_path))
    assert (done.code, len(done.err.splitlines())) == (2, 1) and "run the same" in done.err, done


def test_a_row_without_a_label_is_in_no_figure_of_a_judge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [{"query": f"q{k}", "response": "ab"[k % 2], "truth": "a", "other": "b", "ok": None if k > 5 else k % 2} for k in range(8)]  # fmt: skip
    write("rows.jsonl", rows)
    each = ", ".join(f"{c}: {{grader: string_match, mapper: {{reference_response: {c}}}}}" for c in ("truth", "other"))  # fmt: skip
    Path("judges.yaml").write_text(f"graders: {{{each}}}\nlabels: ok\n")
    for _ in range(2):  # the second call continues a run that is finished
        assert command("judge-select", "judges.yaml", "rows.jsonl", "--out", "run").code == 0
        run = open_run("run")
        kept = [*run.samples()]
        assert (run.report["reward"], run.report["n"], run.report["score"]) == ("other", 6, 1.0)
        assert [row.credit for row in kept] == [1.0] * 6 + [None] * 2
        assert [row.scores for row in kept] == [(0.0,), (1.0,)] * 4
        assert [row.status for row in kept] == ["scored"] * 6 + ["unscored"] * 2
        assert {row.cause for row in kept} == {None}


def test_a_run_is_finished_only_with_all_that_its_command_adds(tmp_path: Path) -> None:
    """A table's figures once stood in the folder before its labels were counted: a run that was
    killed in between was read as finished, without them.
    """

    def killed(report: Report) -> Report:
        raise KeyboardInterrupt

    rows = [{"prompt": "q", "chosen": "long", "rejected": "x"}]
    with pytest.raises(KeyboardInterrupt):
        evaluate("length_baseline", rows, run_dir=str(tmp_path), progress=False, conclude=killed)
    run = open_run(tmp_path)
    assert not run.finished and len([*run.samples()]) == 1


FIGURES = ("rule", "score", "ci95", "n", "n_scored", "n_unscored", "n_failed", "missing", "bounds")
NO_MEAN = ("judge-select", "conflicts", "audit")
"""Runs whose figure is no mean over their samples: it is known when the last one is there."""


def test_an_unfinished_run_has_the_figures_of_a_finished_one(kept: Kept, tmp_path: Path) -> None:
    """A kill leaves no report: rule, unit and who caused what is missing stand in the other files.
    A mean score was once "33 %", and every sample that earned nothing missing "by the judge".
    """
    finished = figures_of(kept)
    folder = Path(shutil.copytree(kept.folder, tmp_path / "killed"))
    (folder / "report.json").unlink()
    if not (folder / "manifest.json").is_file():
        return
    found = figures_of(kept._replace(folder=folder))
    assert found["finished"] is False and found["worth"].startswith("Unfinished: ")
    if str(kept.folder).startswith(NO_MEAN):
        lost = found["n"] - found["n_scored"]
        assert found["score"] is None or found["rule"] == "", found
        assert sum(found["missing"].values()) <= lost
        return
    differing = {name for name in FIGURES if found[name] != finished[name]}
    expected = set[str]()
    if found["rule"] == "":  # the samples that come decide it
        expected |= {"rule"}
    assert differing <= expected, {n: (found[n], finished[n]) for n in differing}


def test_samples_that_cannot_be_read_are_said_by_every_reader(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that was full cuts the last line, an editor one in the middle, a copy loses whole ones."""
    monkeypatch.chdir(place)
    whole = Path("eval", "samples.jsonl").read_bytes().splitlines(keepends=True)
    for name, lines in {
        "torn": [*whole[:-1], whole[-1][:20]],
        "cut": [whole[0], whole[1][:20] + b"\n", *whole[2:]],
        "short": whole[:-1],
    }.items():
        folder = Path(shutil.copytree("eval", tmp_path / name))
        (folder / "samples.jsonl").write_bytes(b"".join(lines))
        said = f"{N - 1} of {N} samples in {name} can be read"
        run = str(folder)
        for words in (
            *(("report", run, "--format", form) for form in ("md", "json", "junit")),
            ("explain", run, "s0"),
            ("table", run),
            ("compare", "eval", run),
            ("drift", "eval", run),
        ):
            done = command(*words)
            assert said in done.out + done.err, (words, done)
        command("report", run)
        assert said in (folder / "report.html").read_text()
        viewed = ViewedRuns([folder])
        viewed.look()
        assert said in Viewer(viewed, "t").run_page({}, next(iter(viewed.runs))).body


def test_reasons_add_up_to_what_is_missing_of_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows a table leaves blank once stood in place of the judge's own reason of that name, and
    a row with one of two answers was scored by half.
    """
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text("q,x,y,judge\nq0,aa,b,a\nq1,,b,a\nq2,aa,b,\nq3,aa,b,\nq4,a,bb,b\n")
    for name, call, expected in (
        ("win", "winrate column:judge t.csv --prompt q --a x --b y", {"unscored: blank": 2, "unscored: blank row": 1}),
        ("score", "score length_baseline t.csv --prompt q --answer x --answer y", {"unscored: blank answer": 1}),
        ("three", "winrate length_baseline t.csv --prompt q --a x --b y --b judge", {"unscored: blank answer": 1}),
    ):  # fmt: skip
        done = command(*call.split(), "--json", "--out", name, "--max-failures", "9")
        report = json.loads(done.out)
        n = {reason: told["n"] for reason, told in report["reasons"].items()}
        assert n == expected, (name, report)
        assert report["n"] - report["n_scored"] == sum(n.values()) == report["missing"]["data"]
        assert "missing (" in report["worth"]
        (tmp_path / name / "report.json").unlink()
        found = json.loads(command("report", name, "--format", "json").out)
        assert [found[each] for each in ("n_scored", "score", "missing")] == [report[each] for each in ("n_scored", "score", "missing")]  # fmt: skip


def test_samples_that_are_in_no_figure_are_said_and_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RewardBench 2 needs both rows of a tie: without a complete pair the samples are judged, and the
    figure rests on the others alone.
    """
    monkeypatch.chdir(tmp_path)
    rows = [{"id": str(k), "prompt": f"q{k}", "chosen": ["good"], "rejected": ["no"] * 3, "subset": "Math"} for k in range(4)]  # fmt: skip
    rows += [{"id": f"tied:{k}", "prompt": f"t{k}", "chosen": ["good", "fine"], "rejected": ["no"] * 3, "subset": "Ties"} for k in range(2)]  # fmt: skip
    write("rows.jsonl", [{**row, "num_correct": len(row["chosen"]), "num_incorrect": 3, "total_completions": len(row["chosen"]) + 3, "models": []} for row in rows])  # fmt: skip
    call = "bench length_baseline rewardbench2 --data rows.jsonl --out run --json"
    report = json.loads(command(*call.split()).out)
    assert report["by_subset"]["Ties"]["score"] is None, report
    said = "2 judged samples are not in the figure: Ties has no score of its own"
    for form in ("md", "json", "junit"):
        assert said in command("report", "run", "--format", form).out
    suite = ElementTree.fromstring(command("report", "run", "--format", "junit").out)
    [ties] = [case for case in suite.iter("testcase") if case.get("name") == "subset Ties"]
    assert ties.find("failure") is None
