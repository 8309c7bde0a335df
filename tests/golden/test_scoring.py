"""What judgements earn under every benchmark's rule: judges of known quality on its rows, and
judgements made by hand.
"""

from __future__ import annotations

from typing import Any

from rm_gallery import DataSample, Report, evaluate
from rm_gallery.gallery.benchmarks.base import Benchmark, get_benchmark
from rm_gallery.gallery.benchmarks.figures import COUNTS
from rm_gallery.gallery.benchmarks.judgements import Candidate, Judged, Judgement, Pair, StepOf
from tests.benchmarks.excerpts import rows_of
from tests.benchmarks.judges import KINDS, judge_named
from tests.golden.golden import Line, runner


def answer(name: str, given: Line) -> Line:
    """The figures of a line's judge on the rows of the benchmark, or of the judgements it holds."""
    benchmark = get_benchmark(name, given.get("mode"))
    if "step_rule" in given:
        benchmark = benchmark.under(step_rule=given["step_rule"])
    if "judge" in given:
        return {
            "figures": figures(
                report_of(benchmark, given["judge"], given["kind"], **given.get("params", {}))
            )
        }
    judged = [by_line(number, line) for number, line in enumerate(given["judged"])]
    scorer = benchmark.scorer()
    credits = [scorer.add(one) for one in judged]
    return {"figures": figures(benchmark.score(judged)), "credits": rounded(credits)}


def report_of(benchmark: Benchmark, judge: str, kind: str, **params: Any) -> Report:
    """The report of a judge of this name and kind on the golden rows of a benchmark."""
    rows = rows_of(benchmark.name)
    reward = KINDS[kind](judge=judge_named(judge, map(benchmark.convert, rows)), **params)
    return evaluate(reward, rows, benchmark, progress=False)


def by_line(number: int, line: Line) -> Judged:
    """A sample judged by hand: labels (1, 0, or null for none), scores, verdicts of two games (1
    for output 0), or scores of steps.
    """
    known: dict[int | None, Line] = {
        1: {"preference": "chosen"},
        0: {"preference": "rejected"},
        None: {},
    }
    labels = [{**known[one], **line.get("label", {})} for one in line.get("labels", [1, 0])]
    sample = DataSample.model_validate(
        {
            "unique_id": line.get("id", f"s{number}"),
            "input": [{"role": "user", "content": line.get("prompt", f"prompt {number}")}],
            "output": [
                {"answer": {"role": "assistant", "content": "x", "label": label}}
                for label in labels
            ],
            "metadata": {
                key: line[key] for key in ("subset", "cluster", "tie", "pairs") if key in line
            },
        }
    )
    status = line.get("status", "scored")
    if "steps" in line:
        return Judged(
            sample,
            [Judgement(StepOf(0, k), score=score) for k, score in enumerate(line["steps"])],
            status,
        )
    judgements = [
        Judgement(Candidate(k), score=score)
        for k, score in enumerate(line.get("scores", [0.5, 0.5]))
    ]
    for sign, place, verdict in zip(
        (1, -1), (Pair(0, 1), Pair(1, 0)), line.get("games", ()), strict=False
    ):
        if verdict != "not played":
            judgements.append(Judgement(place, verdict=None if verdict is None else sign * verdict))
    return Judged(sample, judgements, status)


def figures(report: Report) -> Line:
    """All that a report says of the figure: rule, counts, interval, chance, what stands beside it,
    and the same of its parts.

    Who caused what is missing, and where the figure lies whatever it would have got, stand there
    where something is missing.
    """

    def of(part: Any) -> Line:
        counts = {count: getattr(part, count) for count in COUNTS if getattr(part, count)}
        lost = {"missing": dict(part.missing), "bounds": part.bounds} if part.missing else {}
        found = {
            "rule": part.rule,
            "score": part.score,
            **counts,
            **lost,
            "ci95": part.ci95,
            "chance": part.chance,
        }
        extra = {
            key: of(value) if hasattr(value, "rule") else value for key, value in part.extra.items()
        }
        for name in ("categories", "sections"):
            if name in extra:
                extra[name] = {key: of(value) for key, value in extra[name].items()}
        return {**found, **({"extra": extra} if extra else {})}

    parts = (
        {"by_subset": {name: of(part) for name, part in report.by_subset.items()}}
        if report.by_subset
        else {}
    )
    beside = {name: value for name in ("baselines", "notes") if (value := getattr(report, name))}
    told: Line = rounded({**of(report), **parts, **beside, "version": report.version})
    return told


def rounded(value: Any) -> Any:
    """The value without what is None in objects, numbers to six digits, intervals to four."""
    if isinstance(value, dict):
        return {
            key: interval(one) if key == "ci95" else rounded(one)
            for key, one in value.items()
            if one is not None
        }
    if isinstance(value, (list, tuple)):
        return [rounded(one) for one in value]
    return round(value, 6) if isinstance(value, float) else value


def interval(value: Any) -> Any:
    """An interval, or several by name, to four digits: as far as the draws of another platform
    agree.
    """
    if isinstance(value, dict):
        return {key: interval(one) for key, one in value.items()}
    return [round(one, 4) for one in value] if value else value


test_what_judgements_earn = runner("scoring", answer, "figures", "credits")
