"""`rm-gallery grade`: graders out of a file over a table, with labels, repeats, a run folder and
its page.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rm_gallery import FunctionGrader, GraderRank, GradingRunner
from rm_gallery.core.runner.aggregator import WeightedSumAggregator
from rm_gallery.report.formats import render
from rm_gallery.study.grading import grade
from rm_gallery.study.runs import open_run
from tests.support.command import command
from tests.support.judge_server import JudgeServer, judge_fixture

CONFIG = """
judge: fake-judge
graders:
  relevance: {{repeat: 2}}
  right: {{grader: string_match, mapper: {{reference_response: gold}}}}
  mine: {{grader: llm, params: {{prompt: "Is {{response}} kind?", score_range: [1, 5]}}}}
  accuracy: {{mapper: {{reference_response: gold}}}}
aggregators:
  - {{kind: weighted_sum, name: reward, weights: {{relevance: 0.5, right: 0.5}}}}
labels: {{right: ok, relevance: human}}
{more}
"""


server = judge_fixture("fixed:<reason>fine</reason><score>4</score>")


def write(folder: Path, more: str = "", config: str = CONFIG) -> list[str]:
    rows: list[dict[str, Any]] = []
    for n in range(12):
        said, ok = (str(n), "pass") if n % 3 else ("no", "fail")
        asked = {"id": f"r{n}", "query": f"q{n // 2}", "response": said, "gold": str(n)}
        rows.append({**asked, "ok": ok, "human": 1 + n % 5})
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "graders.yaml").write_text(config.format(more=more), encoding="utf-8")
    return ["grade", str(folder / "graders.yaml"), str(folder / "rows.jsonl")]


def test_a_limit_draws_by_the_seed_and_an_export_has_what_was_drawn(tmp_path: Path) -> None:
    config = "graders: {{right: {{grader: string_match, mapper: {{reference_response: gold}}}}}}"
    arguments, drawn = write(tmp_path, config=config), []
    for seed in ("1", "1", "2"):
        table = tmp_path / "table.jsonl"
        done = command(*arguments, "--limit", "5", "--seed", seed, "--export", str(table))
        assert done.code == 0, done.err
        drawn.append([json.loads(line)["id"] for line in table.read_text().splitlines()])
    assert len(drawn[0]) == 5 and drawn[0] == drawn[1] != drawn[2]
    assert drawn[0] != [f"r{n}" for n in range(5)]


def test_a_run_with_its_figures_and_its_page(server: JudgeServer, tmp_path: Path) -> None:
    run = tmp_path / "run"
    arguments = [*write(tmp_path), "--base-url", server.base_url, "--out", str(run)]
    arguments += ["--trace", "--no-cache"]
    done = command(*arguments, "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert (found["n_scored"], found["judge"]) == (12, "fake-judge")
    assert found["score"] == pytest.approx(0.5 * 0.75 + 0.5 * 8 / 12)
    assert found["by_subset"]["right"]["score"] == pytest.approx(8 / 12)
    assert set(found["by_subset"]) == {"relevance", "right", "mine", "accuracy", "reward"}
    right = found["extra"]["validation"]["right"]
    assert (right["accuracy"], right["f1"], right["kappa"], right["n"]) == (1.0, 1.0, 1.0, 12)
    assert right["accuracy_ci95"][0] < 0.9 and found["extra"]["validation"]["relevance"]["n"] == 12
    assert found["extra"]["agreement"]["right and accuracy"]["spearman"] == pytest.approx(1.0)
    consistency = {**found["extra"]["consistency"]["relevance"], "judge_share": None}
    assert consistency == {"repeats": 2, "n": 12, "unstable": 0.0, "sd": 0.0, "judge_share": None}
    opened = open_run(run)
    rows = list(opened.samples())
    assert [row.id for row in rows] == [f"r{n}" for n in range(12)]
    assert rows[1].metadata is not None and rows[1].metadata["scores"]["right"] == 1.0
    assert {row.cluster for row in rows} == {f"q{n}" for n in range(6)}
    page = render(opened)
    assert "relevance" in page and "mean score" in page and "consistency" in page
    assert "| right |" in render(opened, "md")
    asked = server.stats()["requests"]
    assert command(*arguments).code == 0
    assert server.stats()["requests"] == asked, "a finished run is not judged again"
    assert len(list(open_run(run).samples())) == 12


def test_failures_are_said_and_never_scored(tmp_path: Path) -> None:
    with JudgeServer("garbage") as broken:
        done = command(*write(tmp_path), "--base-url", broken.base_url, "--json", "--no-cache")
    assert done.code == 1
    found = json.loads(done.out)
    assert found["by_subset"]["relevance"]["score"] is None and found["score"] is None
    assert found["by_subset"]["right"]["n_scored"] == 12 and "relevance" in done.err


def first(responses: list[str]) -> GraderRank:
    return GraderRank(rank=[1, *[2] * (len(responses) - 1)])


def lower(response: str) -> float:
    return len(response) / 10


def test_ranks_and_lower_is_better(tmp_path: Path) -> None:
    rows = [
        {"query": f"q{n}", "responses": ["a", "bb"], "response": "x" * n, "bad": n < 3}
        for n in range(8)
    ]
    graders: dict[str, Any] = {
        "lower": FunctionGrader(lower, higher_is_better=False, threshold=0.2),
        "first": FunctionGrader(first, mode="listwise"),
    }
    runner = GradingRunner(graders, show_progress=False)
    report = grade(runner, rows, labels={"lower": "bad"}, run_dir=str(tmp_path))
    validation = report.extra["validation"]["lower"]
    assert (validation["accuracy"], validation["threshold"]) == (1.0, 0.2)
    assert validation["spearman"] > 0.8
    assert (report.by_subset["first"].n_scored, report.by_subset["first"].score) == (8, None)
    assert report.score == pytest.approx(0.35)


def test_labels_on_another_scale_say_only_how_scores_are_ordered() -> None:
    short = FunctionGrader(lambda response: len(response) / 10, name="short", threshold=0.5)
    stars = FunctionGrader(
        lambda response: 1 + len(response) // 2, name="stars", score_range=(1, 5)
    )
    rows = [{"response": "x" * n, "human": 1 + n // 2} for n in range(9)]
    found = grade(
        GradingRunner({"short": short, "stars": stars}, show_progress=False), rows, labels="human"
    )
    validation = found.extra["validation"]
    assert set(validation["short"]) == {"label", "n", "spearman", "spearman_ci95"}
    assert (validation["stars"]["exact_agreement"], validation["stars"]["mae"]) == (1.0, 0.0)
    verdicts = [{"response": "x" * n, "human": n > 3} for n in range(9)]
    found = grade(GradingRunner({"stars": stars}, show_progress=False), verdicts, labels="human")
    assert found.extra["validation"]["stars"]["threshold"] == 3.0, "the middle of the range"


@pytest.mark.long("hostile texts")
def test_a_config_cannot_blow_up_or_call(tmp_path: Path) -> None:
    nested = "".join(f", &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12))
    configs = [
        f"graders: {{x: {{params: {{extra: [&a0 [x]{nested}]}}}}}}", "graders: &h {x: *h}", "[" * 100_000, "[1",
        "graders: !!python/object/apply:os.getcwd []",
    ]  # fmt: skip
    (tmp_path / "data.jsonl").write_text('{"query": "q", "response": "r"}\n')
    for config in configs:
        (tmp_path / "config.yaml").write_text(config)
        done = command("grade", str(tmp_path / "config.yaml"), str(tmp_path / "data.jsonl"))
        assert done.code == 2 and "config.yaml" in done.err and len(done.err) < 500


def test_numbers_outside_a_scale_are_refused_in_one_line(tmp_path: Path) -> None:
    grader = "graders: {{right: {{grader: string_match}}}}\n"
    for kind in ("weighted_sum", "min", "max", "geometric_mean"):
        item = f"aggregators: [{{{{kind: {kind}, name: reward, on_error: -1.5}}}}]"
        done = command(*write(tmp_path, config=grader + item))
        assert done.code == 2 and done.err.count("\n") == 1
        assert "reward: on_error is -1.5, and it combines scores of 0.0 to 1.0" in done.err


def test_the_sentence_of_worth_names_whose_figure_it_is() -> None:
    rows = [{"query": f"{n}", "response": "x" * n, "ok": n % 2} for n in range(9)]
    graders = {"short": lambda response: len(response) / 10, "half": lambda response: 0.5}
    two = GradingRunner(graders, show_progress=False)
    both = GradingRunner(graders, WeightedSumAggregator("both"), show_progress=False)
    for runner, whose in ((two, "short"), (both, "both")):
        for labels in (None, "ok", {"half": "ok"}):
            said = grade(runner, rows, labels=labels).worth()
            assert f"{whose} has a mean score of" in said and "short, half" not in said, said


@pytest.mark.parametrize("words", [["so so", "great stuff"], ["so so", ""]])
def test_words_of_a_column_that_nobody_can_read_are_named_with_their_rows(
    words: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "rows.jsonl"
    rows = [{"query": n, "j": "yes", "k": word, "ok": n} for n, word in enumerate(words)]
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    done = command("judge-select", "column:j", "column:k", str(file), "--labels", "ok")
    said = done.err.splitlines()[-1]
    assert done.code == 2 and "threshold" not in said
    assert "column:k scored none of the 2 rows" in said and "one of pass, passed, yes" in said
    assert "line 1, column 'k': expected" in said and "'so so'" in said
    assert "line 2: " in said and (repr(words[1]) in said or "is blank" in said), said
