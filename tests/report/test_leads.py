"""What a report is worth: one sentence, worst news first, at the beginning of every rendering, and
no praise that people contradict.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rm_gallery import (
    BasePairWiseReward,
    BasePointWiseReward,
    BaseReward,
    DataSample,
    FunctionGrader,
    GradingRunner,
    Report,
    RewardResult,
    evaluate,
)
from rm_gallery.core.stats.constant import Constancy
from rm_gallery.core.stats.uncertainty import clustered_mean
from rm_gallery.gallery.benchmarks.lead import contradicted, lead_figure, may_praise, worth
from rm_gallery.report.formats import render
from rm_gallery.report.gate import QualityGate, held_against
from rm_gallery.report.tables import print_report
from rm_gallery.serve.view import ViewedRuns, create_viewer
from rm_gallery.study.audit import prepare
from rm_gallery.study.grading import grade
from rm_gallery.study.runs import OpenRun, open_run
from rm_gallery.study.summary import summarize
from rm_gallery.study.table import score_table
from rm_gallery.study.winrate import winrate
from tests.report.test_winrate import Length, Longer
from tests.reward.rewards import ranked, scored
from tests.support.command import command

N = 24


class Always(BasePointWiseReward):
    """The same for every answer."""

    name: str = "always"

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        return scored(self.name, 0.5)


ROWS = [
    {
        "prompt": f"q{k}",
        "query": f"q{k}",
        "new": "x" * (5 + k),
        "old": "x" * (1 if k > 2 else 9),
        "response": "x" * (k % 7),
    }
    for k in range(N)
]


def _tenths(response: str) -> float:
    return len(response) / 10


def _half(response: str) -> float:
    return 0.5


def _compared(folder: Path, label: Callable[[int], Any]) -> Report:
    rows = [{**row, "human": label(k)} for k, row in enumerate(ROWS)]
    return winrate(
        Longer(),
        rows,
        "prompt",
        ["new", "old"],
        labels="human",
        run_dir=str(folder),
        progress=False,
    )


def _scored(folder: Path, turn: int) -> Report:
    rows = [{**row, "human": turn * (k % 7)} for k, row in enumerate(ROWS)]
    return score_table(
        Length(), rows, "prompt", "response", labels="human", run_dir=str(folder), progress=False
    )


def _graded(folder: Path, turn: int) -> Report:
    rows = [{**row, "human": turn * (k % 7)} for k, row in enumerate(ROWS)]
    grader = FunctionGrader(_tenths, name="long")
    runner = GradingRunner({"long": grader}, show_progress=False)
    return grade(runner, rows, labels="human", run_dir=str(folder))


AGAINST: dict[str, Callable[[Path], Report]] = {
    "winrate": lambda folder: _compared(folder, lambda k: "b"),
    "winrate at chance": lambda folder: _compared(folder, lambda k: "ab"[k % 2]),
    "score": lambda folder: _scored(folder, -1),
    "grade": lambda folder: _graded(folder, -1),
    "eval": lambda folder: evaluate(
        Length(),
        [{"prompt": r["prompt"], "chosen": "x", "rejected": r["new"]} for r in ROWS],
        run_dir=str(folder),
        progress=False,
    ),
}
FOR: dict[str, Callable[[Path], Report]] = {
    "winrate": lambda folder: _compared(folder, lambda k: "ab"[k < 4]),
    "score": lambda folder: _scored(folder, 1),
    "grade": lambda folder: _graded(folder, 1),
}


def _text(page: str) -> str:
    """What of a page stands to be read without opening anything."""
    page = re.sub(r"(?s)<(style|script|head|details)\b.*?</\1>", " ", page)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).replace("\u00a0", " ").split())


def _plain(text: str) -> str:
    return " ".join(text.replace("\\", "").replace("*", "").split())


@dataclass
class Written:
    """A finished run in every rendering there is."""

    report: Report
    run: OpenRun
    shown: dict[str, str]


def written(report: Report, folder: Path, capsys: pytest.CaptureFixture[str]) -> Written:
    from fastapi.testclient import TestClient

    run = open_run(folder)
    capsys.readouterr()
    print_report(report)
    shown = {
        "terminal": _plain(capsys.readouterr().out),
        "str": _plain(str(report)),
        "notebook": _text(report._repr_html_()),
    }
    shown |= {
        "page": _text(render(run)),
        "pdf": _text(render(run, most=3)),
        "markdown": _plain(render(run, "md")),
    }
    shown["junit"] = html.unescape(render(run, "junit"))
    for name, content in (
        ("json", json.loads(render(run, "json"))),
        ("report.json", report.to_dict()),
    ):
        assert next(iter(content)) == "worth"
        shown[name] = _plain(content["worth"])
    with TestClient(
        create_viewer(runs := ViewedRuns([folder]), "secret"), base_url="http://127.0.0.1:1"
    ) as client:
        shown["viewer's list"] = _text(client.get("/secret/").text)
        shown["viewer's page"] = _text(client.get(f"/secret/run/{next(iter(runs.runs))}").text)
    return Written(report, run, shown)


@pytest.mark.parametrize(
    "made", [*(("against", n) for n in AGAINST), *(("for", n) for n in FOR)], ids=str
)
def test_every_rendering_begins_with_the_same_sentence(
    made: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    found = written((AGAINST if made[0] == "against" else FOR)[made[1]](folder), folder, capsys)
    said = found.report.worth()
    assert may_praise(found.report.to_dict()) == (made[0] == "for")
    places = {name: text.find(_plain(said)) for name, text in found.shown.items()}
    assert -1 not in places.values(), places
    assert all(places[name] == 0 for name in ("terminal", "str", "notebook", "json", "report.json"))
    score = found.shown["page"].partition("labels of people")[0]
    estimate = lead_figure(found.report.to_dict())["score"]
    shown = (
        f"{100 * estimate:.1f} %"
        if made[1].startswith(("winrate", "eval"))
        else f"{estimate:.4g}".replace("-", "−")
    )
    assert shown in score.replace("-", "−"), "the large figure is the corrected one"


@pytest.mark.parametrize("name", AGAINST)
def test_nothing_is_praised_that_people_contradict(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    report = AGAINST[name](folder)
    assert bool(contradicted(report.to_dict())) == (name != "eval") and not may_praise(
        report.to_dict()
    )
    run = open_run(folder)
    capsys.readouterr()
    print_report(report)
    for text in (
        render(run),
        render(run, most=3),
        render(run, "md"),
        render(run, "json"),
        capsys.readouterr().out,
    ):
        assert "✓" not in text.partition('<section id="samples">')[0]
        assert '"good"' not in text and "is better than" not in re.sub(
            r"does not show\s+that\s+new\s+is\s+better than", "", text
        )
    # the definition of the rule and what position did to the verdicts may say who wins
    assert not re.search(r"\b(?:wins|won|beats)\b", report.worth())


def test_praise_stays_where_people_agree(tmp_path: Path) -> None:
    FOR["winrate"](tmp_path / "run")
    page = _text(render(open_run(tmp_path / "run")))
    assert (
        "✓" in page
        and "old is 83.3 % (95 % interval 64.1 to 93.3 %), above 50 %" in page
        and "new wins 87.5 %" in page
    )


def test_it_is_said_why_there_is_no_interval_and_what_helps() -> None:
    rows: list[dict[str, Any]]
    rows = [{"prompt": "q", "response": "x" * (1 + k % 7)} for k in range(60)]
    said = score_table(Length(), rows, "prompt", "response", progress=False).worth()
    assert said.startswith("60 rows from 1 prompt: no interval; name a column with cluster=. ")
    rows = [{**row, "group": k % 4} for k, row in enumerate(rows)]
    told = score_table(Length(), rows, "prompt", "response", cluster="group", progress=False)
    assert told.worth().endswith(". 60 rows come from only 4 clusters.") and told.n_clusters == 4
    rows = [{**row, "prompt": f"q{k}"} for k, row in enumerate(rows)]
    said = score_table(Length(), rows, "prompt", "response", progress=False).worth()
    assert "interval;" not in said and "clusters" not in said


class Shorter(BasePointWiseReward):
    """The shorter, the better."""

    name: str = "shorter"

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        return scored(self.name, -len(sample.output[0].answer.text))


@pytest.mark.parametrize("shortest", [False, True])
def test_a_judge_that_goes_by_length_alone_is_named_first(shortest: bool) -> None:
    rows = [
        {"prompt": f"q{k}", "chosen": "x" * (2 + k), "rejected": "x" * (1 + (k % 3) * k)}
        for k in range(40)
    ]
    report = evaluate(Shorter() if shortest else Length(), rows, progress=False)
    n, side = report.lengths["n"], "shorter" if shortest else "longer"
    assert n > 30 and report.lengths[side] == n
    took = f"{report.reward} took the {side} answer in {n} of {n} rows"
    assert report.worth().startswith(f"{took}: it may measure length alone. ")


def test_an_even_run_says_what_it_could_have_seen() -> None:
    rows = [{**row, "old": "x" * (6 + k - 2 * (k % 2))} for k, row in enumerate(ROWS)]
    report = winrate(Longer(), rows, "prompt", ["new", "old"], progress=False)
    even = clustered_mean([k % 2 for k in range(N)])
    assert even is not None and report.detectable == pytest.approx(even.detectable())
    least = f"Only a distance of {100 * (report.detectable or 0):.3g} points or more would have"
    assert report.score == 0.5 and f"{least} been seen in 4 of 5 such runs" in report.worth()
    assert "cannot be told from 50 %" in report.worth()


FOUND = {"rule": "pair_strict", "reward": "judge", "n": 200, "n_scored": 188, "chance": 0.5}
MISSING = {"judge": 9, "endpoint": 3}


@pytest.mark.parametrize(
    ("bounds", "undone"), [([0.5076, 0.5676], False), ([0.4976, 0.5576], True), (None, True)]
)
def test_what_is_missing_is_told_with_whom_and_whether_it_could_undo_the_finding(
    bounds: Any, undone: bool
) -> None:
    figures = {**FOUND, "score": 0.54, "ci95": [0.51, 0.57], "missing": MISSING, "bounds": bounds}
    said = worth(figures)
    assert "12 of 200 rows are missing (9 by the judge, 3 by the endpoint)" in said
    assert ("above guessing (50.0 %), but what is missing could undo that" in said) == undone
    assert "above guessing (50.0 %)" in said


def test_a_report_of_an_earlier_version_is_read() -> None:
    said = worth({**FOUND, "score": 0.453, "ci95": [0.42, 0.49], "leads": [["tally", "x"]]})
    assert said.startswith("judge reaches 45.3 % (95 % interval 42.0 to 49.0 %)")
    assert said.endswith(". 12 of 200 rows are missing.") and "clusters" not in said
    assert worth({}) == "The reward has no score: there is no finished sample."


def test_an_unfinished_run_counts_clusters_and_no_rows(tmp_path: Path) -> None:
    rows = [
        {"prompt": f"q{k % 4}", "chosen": "x" * (1 + k % 4 // 2), "rejected": f"{k:02}"}
        for k in range(40)
    ]
    whole = evaluate(Length(), rows, run_dir=str(tmp_path / "run"), progress=False)
    (tmp_path / "run" / "report.json").unlink()
    so_far = json.loads(render(open_run(tmp_path / "run"), "json"))
    assert so_far["ci95"] == pytest.approx(whole.ci95) and so_far["n_clusters"] == 4
    assert "40 rows come from only 4 clusters" in so_far["worth"]
    [listed] = ViewedRuns([tmp_path / "run"]).listed()
    assert "40 rows come from only 4 clusters" in listed["worth"]


CONSTANT: dict[str, Callable[[], Report]] = {
    "eval": lambda: evaluate(
        Always(), [{"prompt": "q", "chosen": "a", "rejected": "b"}] * 3, progress=False
    ),
    "score": lambda: score_table(Always(), ROWS, "prompt", "response", progress=False),
    "winrate": lambda: winrate(Always(), ROWS, "prompt", ["new", "old"], progress=False),
    "grade": lambda: grade(
        GradingRunner({"flat": FunctionGrader(_half)}, show_progress=False), ROWS
    ),
}


@pytest.mark.parametrize("name", CONSTANT)
def test_a_constant_reward_is_named_beside_its_figure(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    report = CONSTANT[name]()
    said = re.search(
        r"Every one of the \d+ scores is 0.5: the reward tells none of these answers apart\.",
        report.constant,
    )
    assert said is not None
    print_report(report)
    assert _plain(said[0]).removesuffix(".") in _plain(capsys.readouterr().out)
    assert said[0].removesuffix(".") in report.worth().partition("; ")[0]


class First(BasePairWiseReward):
    """Whatever is shown first wins."""

    name: str = "first"

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        return ranked(self.name, 1.0, 0.0)


class Tie(BasePairWiseReward):
    """Nobody wins."""

    name: str = "tie"

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        return ranked(self.name, 0.0, 0.0)


@pytest.mark.parametrize("reward", [Always(), Tie()], ids=lambda reward: reward.name)
def test_a_trust_card_names_a_constant_reward(reward: BaseReward) -> None:
    card = prepare(reward, probes=["quality", "position"], limit=4).run()
    assert (
        "tells none of these answers apart" in card.constant
        and card.to_dict()["constant"] == card.constant
    )
    for text in (str(card), card.markdown(), card.html()):
        assert card.constant.removesuffix(".") in html.unescape(text)
    assert "constant" not in prepare(Length(), probes=["quality"], limit=4).run().to_dict()


def test_an_unfinished_run_names_a_constant_reward(tmp_path: Path) -> None:
    evaluate(
        Always(),
        [{"prompt": "q", "chosen": "a", "rejected": "b"}] * 3,
        run_dir=str(tmp_path / "run"),
        progress=False,
    )
    (tmp_path / "run" / "report.json").unlink()
    run = open_run(tmp_path / "run")
    assert summarize(run).n == 3 and "Every one of the 6 scores is 0.5" in _text(render(run))


@pytest.mark.parametrize(
    ("scores", "verdicts", "said"),
    [
        ([3.0, 3.0], [], "Every one of the 2 scores is 3: the reward"),
        ([3.0, None, float("nan")], [], ""),
        ([3.0, 3.0, 2.0], [], ""),
        (
            [],
            [(1, "a"), (1, "b")],
            "Every one of the 2 verdicts is for the answer shown first: the judge",
        ),
        (
            [],
            [(-1, "a"), (-1, "b")],
            "Every one of the 2 verdicts is for the answer shown second: the judge",
        ),
        ([], [(0, ""), (0, "")], "Every one of the 2 verdicts is a tie: the judge"),
        ([], [(1, "'new'"), (-1, "'new'")], "Every one of the 2 verdicts is for 'new'."),
        ([], [(1, ""), (-1, "")], ""),
        ([1.0, 1.0], [(1, "a"), (-1, "b")], ""),
    ],
)
def test_scores_verdicts_places_and_sides_that_are_all_the_same(
    scores: list[float | None], verdicts: list[tuple[int, str]], said: str
) -> None:
    seen = Constancy()
    for place in range(max(len(scores), len(verdicts))):
        seen.add(scores[place : place + 1], verdicts[place : place + 1])
    assert seen.sentence().startswith(said) and bool(seen.sentence()) == bool(said)


REFUTED: dict[str, tuple[Callable[[Path], Report], float, str]] = {
    # a run with labels, a limit that the judge alone reaches, and the option that names it
    "winrate": (AGAINST["winrate"], 0.5, "0.5"),
    "score": (AGAINST["score"], 1.0, "1"),
    "grade": (AGAINST["grade"], 0.1, "0.1"),
}


@pytest.mark.parametrize(("make", "limit", "typed"), REFUTED.values(), ids=REFUTED)
def test_gates_hold_the_figure_that_people_corrected(
    make: Callable[[Path], Report], limit: float, typed: str, tmp_path: Path
) -> None:
    report = make(tmp_path / "run")
    assert report.score is not None and report.score > limit
    told = report.to_dict()
    lead = lead_figure(told)
    assert told["corrected"] == {"score": lead["score"], "ci95": lead["ci95"], "n_labelled": N}
    own_unit, said = report.rule == "mean_score", f"the score corrected by {N} labels of people"
    heard: list[str] = []
    for gate in (
        QualityGate(limit, own_unit=own_unit),
        QualityGate(limit, surely=True, own_unit=own_unit),
    ):
        # blank rows of a table are a miss of their own
        why = dict(gate.missed(told, say=heard.append))["score"]
        assert why.startswith(said) and "the judge alone says" in why
    assert heard and all(line.startswith(f"held to the limits: {said}") for line in heard)
    beaten = {**told, "baselines": {"longest": limit}}
    why = dict(QualityGate(beats=["longest"], own_unit=own_unit).missed(beaten))["score"]
    assert said in why and "which is the baseline 'longest'" in why
    done = command("report", str(tmp_path / "run"), "--format", "json", "--fail-under", typed)
    assert (
        done.code == 1
        and said in done.err
        and json.loads(done.out)["corrected"]["score"] == lead["score"]
    )
    assert (
        command("report", str(tmp_path / "run"), "--format", "junit", "--fail-under", typed).code
        == 1
    )


@pytest.mark.parametrize("name", ["winrate", "score"])
def test_a_run_is_compared_by_the_figure_that_people_corrected(name: str, tmp_path: Path) -> None:
    FOR[name](tmp_path / "before")
    AGAINST[name](tmp_path / "after")
    before, after = open_run(tmp_path / "before"), open_run(tmp_path / "after")
    worse, said = held_against(after, before)
    assert worse and f"corrected by {N} labels of people" in said, said
    worse, said = held_against(before, after)
    # of blank rows nobody knows what they would have got where the range is open
    assert worse is (name == "score") and ("rows without a score" in said) is worse, said


@pytest.mark.parametrize("name", ["winrate", "score"])
def test_subsets_below_a_corrected_figure_are_headed_judge_alone(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = AGAINST[name](tmp_path)
    for form, text in written(report, tmp_path, capsys).shown.items():
        if form in ("terminal", "notebook", "md"):
            assert "subset, judge alone" in text, form
