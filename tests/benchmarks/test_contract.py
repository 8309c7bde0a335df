"""What every registered benchmark promises, held against its own golden rows: a new one is held to
it by being there.
"""

from __future__ import annotations

import json
import math
import random
from collections import defaultdict
from contextlib import suppress
from itertools import product
from typing import Any

import numpy as np
import pytest

from rm_gallery import ConfigError, DataError, DataSample, Report, Unscored, evaluate
from rm_gallery.core.data.load.converters import RowRef
from rm_gallery.core.data.schema import preference_of
from rm_gallery.gallery.benchmarks.base import (
    Benchmark,
    benchmarks,
    detect_benchmark,
    find_benchmark,
    get_benchmark,
)
from rm_gallery.gallery.benchmarks.figures import RULES, Figure, missing_parts
from rm_gallery.gallery.benchmarks.page import Page
from rm_gallery.study.source import Source
from tests.benchmarks.excerpts import Row, rows_of
from tests.benchmarks.judges import KINDS, Judge, judge_named
from tests.golden.golden import HERE, lines
from tests.support.children import ROOT
from tests.support.choice import covering, some
from tools import benchmark_pages
from tools.cards import differences

NAMES = sorted(benchmarks())
WHERE = RowRef("mine.jsonl", 42)
OWN_DATA = {"preferences", "pairs", "lists"}


def asked_for(found: type[Benchmark]) -> bool:
    """Whether a benchmark is never found by columns and has to be named."""
    return not any(found().detect(row) for row in rows_of(found.name))


def first_kind(name: str) -> str:
    return next(kind for kind in KINDS if kind in benchmarks()[name].kinds)


def report_of(
    name: str, judge: str | Judge, rows: list[Row] | None = None, kind: str = ""
) -> Report:
    rows = rows_of(name) if rows is None else rows
    judge = (
        judge_named(judge, map(get_benchmark(name).convert, rows))
        if isinstance(judge, str)
        else judge
    )
    return evaluate(KINDS[kind or first_kind(name)](judge=judge), rows, name, progress=False)


@pytest.mark.parametrize("name", NAMES)
def test_it_says_where_it_comes_from_and_what_it_is(name: str) -> None:
    found = benchmarks()[name]
    assert found.page() != Page(), f"write rm_gallery/gallery/benchmarks/{name}.yaml"
    assert found.version and found.__doc__ and (found.page().sizes or name in OWN_DATA)
    assert all(
        find_benchmark(alias) is found for alias in (name, found.hub, *found.aliases) if alias
    )
    page = benchmark_pages.page(found)
    kept = ROOT / "docs" / "benchmarks" / f"{name}.md"
    assert page == kept.read_text(encoding="utf-8"), "run `python tools/benchmark_pages.py`"
    for section in ("Layout", "Rule", "Length alone", "Traps", "Published results", "Run it"):
        assert f"\n## {section}\n" in page
    assert all(f"--mode {mode}" in page for mode in found.modes)


def test_the_guide_lists_every_benchmark() -> None:
    guide = (ROOT / "docs" / "guide.md").read_text(encoding="utf-8")
    rows = guide.partition("| name | data | rule |")[2].partition("\n\n")[0]
    missing = [name for name in NAMES if f"`{name}`" not in rows]
    assert missing == [], "add a row to the table `| name | data | rule |` of docs/guide.md"


def test_no_page_is_missing_stale_or_left_over(tmp_path: Any) -> None:
    found = differences(ROOT / "docs" / "benchmarks", benchmark_pages.pages())
    assert found == {"missing": [], "stale": [], "surplus": []}, (
        "run `python tools/benchmark_pages.py`"
    )
    done = [benchmark_pages.main([str(tmp_path), *more]) for more in (["--check"], [], ["--check"])]
    assert done == [1, 0, 0], "what is written is what is compared"


@pytest.mark.parametrize("name", NAMES)
def test_its_columns_are_found_and_taken_for_no_other_benchmark(name: str) -> None:
    found = benchmarks()[name]
    for row in rows_of(name):
        taken_by = [
            n for n, other in benchmarks().items() if not other.general and other().detect(row)
        ]
        if asked_for(found):
            continue
        assert taken_by == ([] if found.general else [name])
        assert detect_benchmark(row).name == name
        for other in benchmarks().values():
            related = issubclass(other, found) or issubclass(found, other)
            if not (related or other.general or found.general):
                with pytest.raises(DataError, match="has the columns of"):
                    Source([row], other.name).open()


@pytest.mark.parametrize("name", NAMES)
def test_rows_of_nobody_are_looked_at_without_an_error(name: str) -> None:
    benchmark = get_benchmark(name)
    assert not benchmark.detect({})
    for row in rows_of(name):
        assert not any(benchmark.detect({column: row[column]}) for column in row), (
            "one column is anybody's"
        )
        values: list[Any] = [None, [], [1], {}, "", 7, True]
        for value in values:
            assert benchmark.detect(dict.fromkeys(row, value)) in (True, False)
            for column in row:
                assert benchmark.detect({**row, column: value}) in (True, False)


def told_of(sample: DataSample) -> dict[str, bool]:
    """Whether an answer is a chosen one, by text, where a preference is known."""
    return {
        output.answer.text: told == "chosen"
        for output in sample.output
        if (told := preference_of(output)) is not None
    }


@pytest.mark.parametrize("name", NAMES)
def test_a_row_that_does_not_fit_is_named_with_its_column(name: str) -> None:
    """Each column left out, and each of every wrong type: a sample all the same, or the row and the
    column are told.
    """
    benchmark, refused = get_benchmark(name), set()
    for row in rows_of(name):
        known = told_of(benchmark.convert(row, WHERE))
        for column in row:
            changed = [{key: value for key, value in row.items() if key != column}]
            changed += [
                {**row, column: value}
                for value in (None, 7, 2.5, True, [], [1], ["a"], {}, {"a": 1}, "", "x")
            ]
            for one in changed:
                try:
                    now = told_of(benchmark.convert(one, WHERE))
                    unknown = one.get(column) == "x" and now.keys() == known.keys()
                    assert (
                        not unknown or {text for text in now if now[text] > known[text]} == set()
                    ), "a label nobody knows"
                except DataError as error:
                    told = str(error)
                    assert "mine.jsonl, row 42" in told and any(
                        f"'{each}" in told for each in row
                    ), (column, one)
                    refused.add(column)
    assert len(refused) >= 2, "a benchmark needs a question and answers"


def cells(value: Any) -> list[str]:
    """Every text in a row, at any depth, also in a column of JSON."""
    if isinstance(value, str) and value[:1] in ("[", "{"):
        with suppress(ValueError):
            return [value, *cells(json.loads(value))]
    inner = (
        value.values()
        if isinstance(value, dict)
        else value
        if isinstance(value, (list, tuple))
        else ()
    )
    return [value] if isinstance(value, str) else [text for each in inner for text in cells(each)]


@pytest.mark.parametrize("name", NAMES)
def test_what_is_shown_to_a_reward_stands_in_the_row_word_for_word(name: str) -> None:
    """A mark, a blank or a note that is added could tell the label."""
    for row in rows_of(name):
        sample = get_benchmark(name).convert(row)
        shown = [
            text
            for turn in sample.input
            for text in (turn.text, *map(str, turn.additional_kwargs.values()))
        ]
        shown += [
            step.text for output in sample.output for step in (output.steps or [output.answer])
        ]
        assert [text for text in shown if not any(text in cell for cell in cells(row))] == []


def near(found: float | None, wanted: float | None) -> bool:
    return found == wanted or (
        found is not None and wanted is not None and math.isclose(found, wanted, abs_tol=1e-12)
    )


def parts_of(report: Report) -> list[Figure]:
    return [report, *report.by_subset.values()]


@pytest.mark.parametrize("name", NAMES)
def test_perfect_is_best_worst_is_worst_and_nobody_else_is_beyond_them(name: str) -> None:
    best, worst = report_of(name, "perfect"), report_of(name, "worst")
    for judge in ("first", "equal", "longest", "perfect", "worst"):
        report = report_of(name, judge)
        assert report.n == report.n_scored + report.n_unscored + report.n_failed + report.n_stopped
        for part in parts_of(report):
            assert part.rule in RULES
            if part.score is not None:  # one cluster has no interval
                low, high = part.ci95 or (part.score - 1.0, part.score + 1.0)
                assert low <= part.score <= high and low < high, "a few rows prove nothing"
        assert report.score is not None and worst.score is not None and best.score is not None
        assert worst.score <= report.score <= best.score
        assert report.benchmark == name and get_benchmark(name).version in report.version


@pytest.mark.parametrize("name", NAMES)
def test_what_cannot_be_read_is_unscored_and_counted(name: str) -> None:
    rows, judge = (
        rows_of(name),
        judge_named("perfect", map(get_benchmark(name).convert, rows_of(name))),
    )
    whole = report_of(name, judge)
    none = report_of(name, "silent")
    assert (none.score, none.ci95, none.n, none.n_scored) == (None, None, whole.n, 0)
    assert none.n_unscored == whole.n and whole.n_scored > 0
    prompts = {get_benchmark(name).convert(row).query_text() for row in rows}
    for prompt in prompts:

        def silent_once(sample: DataSample, prompt: str = prompt) -> list[float]:
            if sample.query_text() == prompt:
                raise Unscored("no verdict", reason="parse")
            return judge(sample)

        some = report_of(name, silent_once)
        assert some.n == whole.n and some.n_unscored >= whole.n_unscored
        assert some.n_scored < whole.n_scored or name == "helpsteer2" or whole.n_unscored


LOOSE = {"rewardbench2", "helpsteer2"}
"""The limits of each part of the Ties composite by itself, and answers whose pair is lost with
either: never too narrow.
"""


@pytest.mark.parametrize("name", some(NAMES, 8))
def test_the_bounds_are_the_least_and_the_most_of_all_fillings_of_what_is_missing(
    name: str,
) -> None:
    samples = [get_benchmark(name).convert(row) for row in rows_of(name)]
    perfect, worst, middle = (
        judge_named(judge, samples) for judge in ("perfect", "worst", "longest")
    )
    turned: Judge = lambda sample: [1.0 - score for score in perfect(sample)]  # noqa: E731
    asked = [sample for sample in samples if not (sample.metadata or {}).get("tie")]
    hidden = sorted({sample.query_text() for sample in asked})[:2]

    def filled(*judges: Judge) -> Report:
        def judge(sample: DataSample) -> list[float]:
            by_prompt = dict(zip(hidden, judges, strict=False))
            return by_prompt.get(sample.query_text(), middle)(sample)

        return report_of(name, judge)

    silent = judge_named("silent", samples)
    some = filled(*[silent] * len(hidden))
    scores = [
        filled(*judges).score
        for judges in product((perfect, worst, turned, middle), repeat=len(hidden))
    ]
    known = [score for score in scores if score is not None]
    assert some.bounds is not None and known
    assert some.bounds.low <= min(known) + 1e-9 and some.bounds.high >= max(known) - 1e-9
    if name not in LOOSE:
        assert (some.bounds.low, some.bounds.high) == pytest.approx((min(known), max(known)))
    assert set(some.missing) == {"data"} and 0 < some.missing["data"] <= some.n - some.n_scored
    for part in parts_of(filled(*[perfect] * len(hidden))):
        assert name == "helpsteer2" or part.missing == {}
        assert name == "helpsteer2" or (
            part.score is None or part.bounds == pytest.approx((part.score, part.score))
        )


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("judge", ["longest", "perfect", "silent"])
def test_the_order_of_rows_changes_nothing(name: str, judge: str) -> None:
    rows = rows_of(name)
    told = []
    for order in (rows, rows[::-1], random.Random(1).sample(rows, len(rows))):
        shown = report_of(name, judge, order).to_dict()
        del shown["seconds"], shown["reasons"]
        told.append(json.dumps(shown["by_subset"]) + json.dumps(shown, sort_keys=True))
    assert told[0] == told[1] == told[2]


@pytest.mark.parametrize("name", NAMES)
def test_chance_is_a_share_or_it_is_said_why_there_is_none(name: str) -> None:
    benchmark, chance = get_benchmark(name), report_of(name, "perfect").chance
    assert benchmark.page().chance_note if chance is None else 0 < chance < 1
    assert benchmark.chance in (None, chance)


AVERAGES = {
    "first_error_f1",
    "ppe_best_of_k",
    "ppe_conflict_pairs",
    "rewardbench1_leaderboard",
    "rewardbench1_sections",
    "unweighted_mean_of_subsets",
}
"""Rules whose headline is a mean of the parts beside it, by `extra["subset_weights"]` where there
are any.
"""


def counted(report: Report) -> dict[str, float]:
    """The weight of each part in the headline."""
    outside = report.extra.get("subsets_outside_the_mean", ())
    alike = {part: 1.0 for part in report.by_subset if part not in outside}
    return report.extra.get("subset_weights") or alike


def subset_of(sample: DataSample) -> Any:
    return (sample.metadata or {}).get("subset")


def only_for(name: str, part: str, judge: str, other: str) -> Judge:
    """One judge for the prompts of a part, another for the rest."""
    samples = [get_benchmark(name).convert(row) for row in rows_of(name)]
    asked = {s.query_text() for s in samples if subset_of(s) == part}
    inside, outside = judge_named(judge, samples), judge_named(other, samples)
    return lambda sample: (inside if sample.query_text() in asked else outside)(sample)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["pointwise", "pairwise"])
def test_the_chance_of_a_mean_is_the_mean_of_the_chance_of_its_parts(name: str, kind: str) -> None:
    if kind not in benchmarks()[name].kinds:
        return
    for part in report_of(name, "perfect").by_subset:
        rows = rows_of(name)
        rows += [row for row in rows if subset_of(get_benchmark(name).convert(row)) == part]
        for judge in ("first", only_for(name, part, "first", "perfect")):
            report = report_of(name, judge, rows, kind)
            if report.rule not in AVERAGES or report.chance is None:
                continue
            parts = [(report.by_subset[each], weight) for each, weight in counted(report).items()]
            known = [
                (p.chance, w) for p, w in parts if p.score is not None and p.chance is not None
            ]
            assert report.chance == pytest.approx(
                math.fsum(chance * w for chance, w in known) / math.fsum(w for _, w in known)
            ), part


@pytest.mark.parametrize("name", NAMES)
def test_a_part_without_a_score_that_leaves_the_mean_is_named(name: str) -> None:
    for part in counted(report_of(name, "perfect")):
        report = report_of(name, only_for(name, part, "silent", "perfect"))
        if report.rule in AVERAGES and report.by_subset[part].score is None:
            assert part in missing_parts(report.extra)


MODES = [(name, mode) for name in NAMES for mode in (None, *benchmarks()[name].modes)]


def guessers(samples: list[DataSample], ties: bool) -> list[Judge]:
    """Judges of whom each answer comes out on top in as many, and either of two in half; with ties,
    in a third each and neither in a third.
    """
    asked: dict[str, list[str]] = {}
    for sample in samples:
        own = asked.setdefault(sample.query_text(), [])
        own += [output.answer.text for output in sample.output if output.answer.text not in own]
    times = math.lcm(*map(len, asked.values()))

    def judge(turn: int, sign: int) -> Judge:
        def judged(sample: DataSample) -> list[float]:
            own = asked[sample.query_text()]
            places = [own.index(output.answer.text) for output in sample.output]
            return [float(sign * ((place + turn) % len(own))) for place in places]

        return judged

    made = [judge(turn, sign) for turn in range(times) for sign in (1, -1)]
    return made + [judge_named("equal", samples)] * (len(made) // 2 if ties else 0)


@pytest.mark.parametrize(("name", "mode"), MODES)
def test_the_chance_of_the_whole_and_of_every_part_is_what_guessers_earn(
    name: str, mode: str | None
) -> None:
    benchmark = get_benchmark(name, mode)
    if "pointwise" not in benchmark.kinds:
        assert report_of(name, "perfect").chance is None and benchmark.page().chance_note
        return
    samples = [benchmark.convert(row) for row in rows_of(name)]
    kind = KINDS["listwise" if mode == "ranking" else "pointwise"]
    known = evaluate(
        kind(judge=judge_named("perfect", samples)), rows_of(name), benchmark, progress=False
    )
    judges = guessers(samples, known.rule == "three_class_agreement")
    reports = [
        evaluate(kind(judge=judge), rows_of(name), benchmark, progress=False) for judge in judges
    ]
    for part in ("", *known.by_subset):
        figures = [report.by_subset[part] if part else report for report in reports]
        earned = [figure.score for figure in figures if figure.score is not None]
        levels = [
            figure.chance
            for figure in figures
            if figure.chance is not None and figure.score is not None
        ]
        if levels and earned:
            assert math.fsum(earned) / len(earned) == pytest.approx(
                math.fsum(levels) / len(levels)
            ), part
        assert levels or benchmark.page().chance_note or not earned, part


def random_scores(seed: int, values: int) -> Judge:
    """Scores that know nothing: of 0 as many as there are (without ties), of 1 the same for all,
    else that many different ones. The same for the same answers, whatever the order in which
    threads ask."""

    def judged(sample: DataSample) -> list[float]:
        rng = random.Random(
            f"{seed} {sample.query_text()} {[output.answer.text for output in sample.output]}"
        )
        return [rng.random() if not values else float(rng.randrange(values)) for _ in sample.output]

    return judged


@pytest.mark.parametrize(
    ("name", "mode", "values"),
    covering(
        ((*each, values) for each in MODES for values in (0, 1, 3)),
        lambda name, mode, values: (name, mode),
    ),
)
def test_a_reward_that_knows_nothing_earns_no_more_than_the_chance_printed(
    name: str, mode: str | None, values: int
) -> None:
    benchmark = get_benchmark(name, mode)
    if not {"pointwise", "listwise"} & benchmark.kinds or report_of(name, "perfect").chance is None:
        return
    kind = KINDS["listwise" if mode == "ranking" else "pointwise"]
    more: defaultdict[str, list[float]] = defaultdict(list)
    for seed in range(20 if values != 1 else 1):  # equal scores are the same with every seed
        found = evaluate(
            kind(judge=random_scores(seed, values)), rows_of(name), benchmark, progress=False
        )
        for part, figure in (("", found), *found.by_subset.items()):
            if figure.score is not None and figure.chance is not None:
                more[part].append(figure.score - figure.chance)
    for part, apart in more.items():
        assert np.mean(apart) <= 3.5 * np.std(apart) / math.sqrt(len(apart)) + 1e-9, part


@pytest.mark.parametrize("name", NAMES)
def test_every_kind_it_names_can_judge_it_and_another_is_refused_before_it_costs(name: str) -> None:
    kinds = benchmarks()[name].kinds
    assert [kind for kind in kinds if not report_of(name, "perfect", kind=kind).n_scored] == []
    for kind in KINDS.keys() - kinds:
        with pytest.raises(
            ConfigError,
            match=f"is {kind} and {name} is judged by {' or '.join(sorted(kinds))} rewards",
        ):
            report_of(name, "equal", kind=kind)
    with pytest.raises(
        ConfigError, match=f"(There is no mode of {name} 'no_such'|{name} has no modes)"
    ):
        get_benchmark(name, "no_such")


@pytest.mark.parametrize(
    "name", [name for name in NAMES if benchmarks()[name].baselines and name != "helpsteer2"]
)
def test_scores_made_elsewhere_earn_what_a_reward_does(name: str, tmp_path: Any) -> None:
    from rm_gallery.study.benchmark import score_recorded
    from tests.data.loading import write

    benchmark = get_benchmark(name)
    data = Source(rows_of(name), benchmark).open()
    rows = []
    for number, sample in enumerate(data.rows()):
        name_of = sample.unique_id if sample.unique_id != sample.content_hash() else number
        outputs = sorted(sample.output, key=lambda output: preference_of(output) == "rejected")
        scores = [float(len(output.answer.text)) for output in outputs]
        rows += [
            {"id": name_of, "candidate": place, "score": score}
            for place, score in enumerate(scores)
        ]
    [(group, report)] = score_recorded(
        benchmark, scores=write(tmp_path / "s.jsonl", rows), data=data
    )
    wanted = report_of(name, "longest", kind="pointwise")
    same = (
        "rule",
        "n",
        "n_scored",
        "score",
        "ci95",
        "benchmark",
        "version",
        "chance",
        "baselines",
        "by_subset",
    )
    if not wanted.n_unscored:
        assert {field: getattr(report, field) for field in same} == {
            field: getattr(wanted, field) for field in same
        }
    assert group == {} and near(report.score, wanted.score)


@pytest.mark.parametrize("name", NAMES)
def test_the_answers_and_steps_that_have_to_win_do(name: str) -> None:
    """Lines that name their winners, out of what the benchmark says of its columns: swapped labels
    would pass all else.
    """
    marked = [line for _, line in lines(HERE / "converters" / f"{name}.jsonl") if "wins" in line]
    assert marked, (
        f"write a line into tests/golden/converters/{name}.jsonl with a `case`, a `row` and, under "
        f"`wins`, the texts of its answers or steps that have to win"
    )
    winners = {text for line in marked for text in line["wins"]}

    def by_name(sample: DataSample) -> list[float]:
        judged = [output.steps[-1] if output.steps else output.answer for output in sample.output]
        return [float(step.text in winners) for step in judged]

    for kind in sorted(benchmarks()[name].kinds):
        report, swapped = (
            report_of(name, judge, [line["row"] for line in marked], kind)
            for judge in (by_name, lambda sample: [-score for score in by_name(sample)])
        )
        assert report.score == 1.0 and swapped.score is not None and swapped.score < 0.5, kind
