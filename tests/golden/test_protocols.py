"""What recorded texts and scores of judges are read as: the parsers of the published protocols, and
files of judgements.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rm_gallery import ConfigError, DataError
from rm_gallery.gallery.benchmarks.auto_j import auto_j_rating
from rm_gallery.gallery.benchmarks.base import get_benchmark
from rm_gallery.gallery.benchmarks.judgebench import judgebench_reader
from rm_gallery.gallery.benchmarks.judgements import Judged, StepOf
from rm_gallery.gallery.benchmarks.llmbar import llmbar_ratings, llmbar_reader
from rm_gallery.gallery.benchmarks.steps import StepRule
from rm_gallery.study.benchmark import recorded_json, score_recorded
from rm_gallery.study.source import Source
from tests.golden.golden import Line, check, files
from tests.golden.test_scoring import rounded


def read(given: Line) -> Any:
    """What the parser that a line names makes of it."""
    if "judge" in given:
        return judgebench_reader(given["judge"])(given["text"])
    if "method" in given:
        return llmbar_reader(
            given.get("evaluator", ""), given["method"], given.get("kind", "compare")
        )(given["text"])
    if "ratings" in given:
        return llmbar_ratings(*given["ratings"])
    if "step_rule" in given:
        rule = StepRule.parse(given["step_rule"])
        return [str(rule), rule.right(given["scores"])]
    return auto_j_rating(given["rating"])


def test_what_a_text_is_read_as() -> None:
    def answer(given: Line) -> Line:
        try:
            return {"read": read(given)}
        except ConfigError as error:
            return {"error": str(error)}

    for name in ("readers", "step_rules"):
        [path] = [each.values[0] for each in files("protocols") if each.id == name]
        check(path, answer, ("read", "error"))


def as_read(group: Line, judged: Judged) -> Line:
    """One sample of a file of judgements: whose it is, its status, games (1 for output 0) and
    scores.
    """
    if any(isinstance(judgement.place, StepOf) for judgement in judged.judgements):
        said: Line = {"steps": judged.steps(0)}
    elif judged.played_orders:
        swapped = judged.verdict(1, 0)
        said = {"games": [judged.verdict(0, 1), None if swapped is None else -swapped]}
    else:
        said = {"scores": judged.scores}
    lost = {} if judged.status == "scored" else {"status": judged.status}
    return {
        "of": " ".join(group.values()),
        "id": judged.sample_id,
        **said,
        **lost,
        "about": judged.metadata,
    }


@pytest.mark.parametrize(
    "path", [each for each in files("protocols") if each.id not in ("readers", "step_rules")]
)
def test_files_of_judgements(path: Path, tmp_path: Path) -> None:
    from tests.data.loading import write

    def answer(given: Line) -> Line:
        option = "replay" if "replay" in given else "scores"
        benchmark = get_benchmark(given.get("benchmark", path.stem), given.get("mode"))
        try:
            data = Source(list(given["data"]), benchmark).open() if "data" in given else None
            door = benchmark.replayed if option == "replay" else benchmark.recorded_scores
            rule = {key: given[key] for key in ("step_rule",) if key in given}
            judged = [
                as_read(*one)
                for one in door(given[option], None if data is None else data.rows(), **rule)
            ]
            file = write(tmp_path / "judgements.jsonl", given[option])
            files_of: Line = {option: file}
            found = score_recorded(benchmark, **files_of, data=data, rule=rule)
        except (ConfigError, DataError) as error:
            return {"error": str(error)}
        told = recorded_json(benchmark, found)
        dropped = {
            "seconds",
            "data",
            "source",
            "endpoint",
            "calls",
            "cached",
            "usage",
            "benchmark",
            "version",
        }
        lines = [
            {k: v for k, v in line.items() if k not in dropped}
            for line in ([told] if isinstance(told, dict) else told)
        ]
        return {"judged": judged, "told": rounded(lines)}

    check(path, answer, ("judged", "told", "error"))
