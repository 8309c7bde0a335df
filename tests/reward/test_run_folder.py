"""What a run's folder keeps: odd lines cost only their own sample, and what the run did not get to is counted apart."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import orjson
import pytest

from rm_gallery.core.data.schema import DataSample, Step
from rm_gallery.core.engine.context import current_run
from rm_gallery.core.model.fake import FakeLLM
from rm_gallery.core.reward.base import BaseReward
from rm_gallery.core.reward.compose import Gate
from rm_gallery.core.reward.schema import RewardResult
from rm_gallery.core.utils.log import logger
from tests.reward.rewards import (
    AsyncRule,
    ListJudge,
    ListRule,
    PairJudge,
    PairRule,
    PointJudge,
    Rule,
    StepJudge,
    StepRule,
    longest,
)
from tests.support.samples import make_sample

SCORED: list[str] = []


class Share(Rule):
    """Notes what it scores; its scores lie between 0 and 10."""

    score_range: ClassVar[tuple[float | None, float | None]] = (0.0, 10.0)

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        SCORED.append(sample.unique_id)
        return super()._evaluate(sample, **kwargs)


def rows() -> list[DataSample]:
    return [make_sample("a", "a b", unique_id=f"s{n}", query=f"q{n}") for n in range(3)]


@pytest.fixture
def warnings() -> Iterator[list[str]]:
    said: list[str] = []
    handler = logger.add(said.append, level="WARNING", format="{message}")
    yield said
    logger.remove(handler)


def _changed(**fields: Any) -> Any:
    return lambda record: json.dumps({**record, **fields})


def _reward(**fields: Any) -> Any:
    """The line with the first output's entry replaced."""

    def change(record: dict[str, Any]) -> str:
        return json.dumps({**record, "rewards": [{**record["rewards"][0], **fields}, record["rewards"][1]]})

    return change


def _score(text: str) -> Any:
    return lambda record: json.dumps(record).replace('"score": 1.0', f'"score": {text}', 1)


ODD = {
    "a list": lambda record: "[1, 2]",
    "a number": lambda record: "3",
    "a deep list": lambda record: "[" * 100_000,
    "no rewards": lambda record: json.dumps({key: value for key, value in record.items() if key != "rewards"}),
    "rewards of another kind": _changed(rewards={"0": 1}),
    "too few rewards": lambda record: json.dumps({**record, "rewards": record["rewards"][:1]}),
    "a reward that is a text": _changed(rewards=["x", None]),
    "a score of text": _score('"1.0"'),
    "a score of true": _score("true"),
    "an endless score": _score("1e999"),
    "a score out of range": _score("11"),
    "a score a little out of range": _score("10.1"),
    "nothing said": _changed(rewards=[None, None]),
    "nothing in what is said": _reward(details=[]),
    "an unknown field": _reward(surprise=1, details="x"),
    "an issue without its fields": _reward(issues=[{}]),
    "extra data that is a list": _reward(extra_data=[1]),
    "a status of another kind": _changed(status=["scored"]),
    "an unknown status": _changed(status="perfect"),
    "a key of another kind": _changed(key=7),
    "a number of another kind": _changed(n="1"),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_lines_are_judged_again_and_counted(tmp_path: Path, name: str, warnings: list[str]) -> None:
    folder, reward = tmp_path / "run", Share()
    expected = reward.evaluate_batch(rows(), run_dir=str(folder))
    path = folder / "results.jsonl"
    lines = path.read_text().splitlines()
    changed = ODD[name](orjson.loads(lines[1]))
    assert changed != lines[1]
    path.write_text("\n".join([lines[0], changed, lines[2]]) + "\n")
    SCORED.clear()
    assert reward.evaluate_batch(rows(), run_dir=str(folder)) == expected
    assert set(SCORED) == {orjson.loads(lines[1])["id"]}
    assert [line for line in warnings if "1 lines of results.jsonl hold no usable result" in line]
    warnings.clear()
    SCORED.clear()
    reward.evaluate_batch(rows(), run_dir=str(folder))
    assert SCORED == [], "the new record counts"


@pytest.mark.parametrize("content", ["[1]", "{broken", '{"spent": [1]}', '{"spent": {"calls": "many"}}'])
def test_an_odd_summary_is_written_anew(tmp_path: Path, content: str) -> None:
    folder = tmp_path / "run"
    Share().evaluate_batch(rows(), run_dir=str(folder))
    (folder / "summary.json").write_text(content)
    Share().evaluate_batch(rows(), run_dir=str(folder))
    assert orjson.loads((folder / "summary.json").read_bytes())["spent"]["calls"] == 0


def test_the_parts_of_a_run_are_summed(tmp_path: Path) -> None:
    """What a part took from the cache counts with the parts before it, beside what the last one took."""
    judge, folder = PointJudge(llm=FakeLLM(reply=longest, cache=True)), tmp_path / "run"
    judge.evaluate_batch(rows())
    for number, last in ((1, 1), (3, 2)):
        judge.evaluate_batch(rows()[:number], run_dir=str(folder))
        summary = orjson.loads((folder / "summary.json").read_bytes())
        assert (summary["spent"]["cached"], summary["last"]["cached"]) == (2 * number, 2 * last)
        assert (summary["samples"]["scored"], summary["samples"]["reused"]) == (last, number - last)


class Stops(Share):
    """Ends its run with the first sample."""

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        run = current_run.get()
        assert run is not None
        run.stop("enough")
        return super()._evaluate(sample, **kwargs)


def test_what_the_run_did_not_get_to_is_counted_apart(tmp_path: Path) -> None:
    Stops().evaluate_batch(
        [make_sample("a", unique_id=f"s{n}") for n in range(3)], max_workers=1, run_dir=str(tmp_path / "run")
    )
    summary = orjson.loads((tmp_path / "run" / "summary.json").read_bytes())
    counts = {key: summary["samples"][key] for key in ("scored", "failed", "stopped")}
    assert (counts, summary["stopped"]) == ({"scored": 1, "failed": 0, "stopped": 2}, "enough")
    assert len((tmp_path / "run" / "results.jsonl").read_bytes().splitlines()) == 1


def gated() -> Gate:
    return Gate(Rule(), ListRule(), threshold=2.0, otherwise=0.0)


@pytest.mark.parametrize(
    "kind", [Rule, AsyncRule, ListRule, PairRule, StepRule, PointJudge, ListJudge, PairJudge, StepJudge, gated]
)
def test_every_kind_comes_back_as_it_was(tmp_path: Path, kind: Any) -> None:
    """Scores, reasons, extra data and the outputs nobody could judge; a sample with one output cannot be compared."""
    reward: BaseReward = kind(llm=FakeLLM(reply=longest)) if getattr(kind, "judged", False) else kind()
    given = [*rows(), make_sample("only", unique_id="one")]
    for output in given[0].output:
        output.steps = [Step(content="x y"), Step(content="z")]
    for _ in range(2):
        assert reward.evaluate_batch(given, run_dir=str(tmp_path / "run")) == reward.evaluate_batch(given)
    counts = orjson.loads((tmp_path / "run" / "summary.json").read_bytes())["samples"]
    assert {name: count for name, count in counts.items() if count} == {"reused": 4}
