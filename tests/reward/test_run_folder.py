"""What a run's folder keeps: odd lines cost only their own sample, and what the run did not get to
is counted apart.
"""

from __future__ import annotations

import json
import time
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import orjson
import pytest

from rm_gallery import (
    BasePointWiseReward,
    BaseReward,
    Budget,
    ConfigError,
    DataSample,
    FakeLLM,
    RewardResult,
    Step,
    Unscored,
)
from rm_gallery.core.engine.context import current_run
from rm_gallery.core.model.budget import Price, PriceTable
from tests.reward.rewards import PointJudge, Rule, longest, scored
from tests.reward.test_doors import REWARDS
from tests.support.samples import make_sample

SCORED: list[str] = []


class Share(Rule):
    """Notes what it scores; its scores lie between 0 and 10."""

    score_range: tuple[float | None, float | None] = (0.0, 10.0)
    fingerprint: ClassVar[Any] = "nothing is scored again"

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        SCORED.append(sample.unique_id)
        return super()._evaluate(sample, **kwargs)


def rows() -> list[DataSample]:
    return [make_sample("a", "a b", unique_id=f"s{n}", query=f"q{n}") for n in range(3)]


ODD = json.loads((Path(__file__).parent / "odd_records.json").read_text(encoding="utf-8"))
"""Lines instead of a record; or, by path, what stands in the record instead."""


def odd(record: Any, change: Any) -> str:
    if isinstance(change, str):
        return change
    for path, value in change.items():
        *inner, last = path.split("/")
        found = record
        for key in inner:
            found = found[int(key)] if isinstance(found, list) else found[key]
        found[last] = value
    return json.dumps(record).replace("Infinity", "1e999")


@pytest.mark.parametrize("name", ODD)
def test_odd_lines_are_judged_again_and_counted(
    tmp_path: Path, name: str, warned: list[str]
) -> None:
    folder, reward = tmp_path / "run", Share()
    expected = reward.evaluate_batch(rows(), run_dir=str(folder))
    path = folder / "results.jsonl"
    lines = path.read_text().splitlines()
    changed = odd(orjson.loads(lines[1]), ODD[name])
    assert changed != lines[1]
    path.write_text("\n".join([lines[0], changed, lines[2]]) + "\n")
    SCORED.clear()
    assert reward.evaluate_batch(rows(), run_dir=str(folder)) == expected
    assert set(SCORED) == {orjson.loads(lines[1])["id"]}
    assert [line for line in warned if "1 lines of results.jsonl hold no usable result" in line]
    SCORED.clear()
    reward.evaluate_batch(rows(), run_dir=str(folder))
    assert SCORED == [], "the new record counts"


@pytest.mark.parametrize(
    "content", ["[1]", "{broken", '{"spent": [1]}', '{"spent": {"calls": "many"}}']
)
def test_an_odd_summary_is_written_anew(tmp_path: Path, content: str) -> None:
    folder = tmp_path / "run"
    Share().evaluate_batch(rows(), run_dir=str(folder))
    (folder / "summary.json").write_text(content)
    Share().evaluate_batch(rows(), run_dir=str(folder))
    assert orjson.loads((folder / "summary.json").read_bytes())["spent"]["calls"] == 0


def test_the_parts_of_a_run_are_summed(tmp_path: Path) -> None:
    """What a part took from the cache counts with the parts before it, beside what the last one
    took.
    """
    judge, folder = PointJudge(llm=FakeLLM(reply=longest, cache=True)), tmp_path / "run"
    judge.evaluate_batch(rows())
    for number, last in ((1, 1), (3, 2)):
        judge.evaluate_batch(rows()[:number], run_dir=str(folder))
        summary = orjson.loads((folder / "summary.json").read_bytes())
        assert (summary["spent"]["cached"], summary["last"]["cached"]) == (2 * number, 2 * last)
        assert (summary["samples"]["scored"], summary["samples"]["reused"]) == (last, number - last)


def test_a_part_that_was_killed_before_its_summary_counts_with_its_calls_and_cost(
    tmp_path: Path,
) -> None:
    judge, spent = PointJudge(llm=FakeLLM(reply=longest)), []
    for folder, number in (("whole", 3), ("parts", 1), ("parts", 3)):
        budget = Budget(prices=PriceTable({"fake": Price(1.0, 4.0, 0.5)}))
        judge.evaluate_batch(rows()[:number], run_dir=str(tmp_path / folder), budget=budget)
        spent.append(orjson.loads((tmp_path / folder / "summary.json").read_bytes())["spent"])
        (tmp_path / folder / "summary.json").unlink()
    assert [each["calls"] for each in spent] == [6, 2, 6]
    assert all(each["cost"] > 0 for each in spent)
    assert spent[2]["cost"] == pytest.approx(spent[0]["cost"])


def test_a_judge_may_have_been_asked_more_and_is_not_asked_other_things(tmp_path: Path) -> None:
    judge, folder = PointJudge(llm=FakeLLM(reply=longest)), tmp_path / "run"
    expected = judge.evaluate_batch(rows(), run_dir=str(folder))
    path = folder / "results.jsonl"
    kept = [orjson.loads(line) for line in path.read_text().splitlines()]
    for asked in ([*kept[0]["asked"], "0" * len(kept[0]["asked"][0])], kept[0]["asked"][1:]):
        changed = [{**kept[0], "asked": asked}, *kept[1:]]
        path.write_text("".join(json.dumps(record) + "\n" for record in changed))
        if len(asked) > len(kept[0]["asked"]):
            assert judge.evaluate_batch(rows(), run_dir=str(folder)) == expected
        else:
            with pytest.raises(ConfigError, match="the judge was asked something else"):
                judge.evaluate_batch(rows(), run_dir=str(folder))


class Stops(Share):
    """Ends its run with the first sample."""

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        run = current_run.get()
        assert run is not None
        run.stop("enough")
        return super()._evaluate(sample, **kwargs)


def test_what_the_run_did_not_get_to_is_counted_apart(tmp_path: Path) -> None:
    Stops().evaluate_batch(
        [make_sample("a", unique_id=f"s{n}") for n in range(3)],
        max_workers=1,
        run_dir=str(tmp_path / "run"),
    )
    summary = orjson.loads((tmp_path / "run" / "summary.json").read_bytes())
    counts = {key: summary["samples"][key] for key in ("scored", "failed", "stopped")}
    assert (counts, summary["stopped"]) == ({"scored": 1, "failed": 0, "stopped": 2}, "enough")
    assert len((tmp_path / "run" / "results.jsonl").read_bytes().splitlines()) == 1


class Reads(PointJudge):
    """Asks about every answer but one, by which there is nothing to judge."""

    def _before_evaluate(self, sample: DataSample, **kwargs: Any) -> dict[str, Any]:
        if sample.output[0].answer.text == "nothing":
            raise Unscored("nothing to judge by", reason="no_reference")
        return super()._before_evaluate(sample, **kwargs)


def test_a_sample_that_the_run_left_half_judged_is_one_it_did_not_get_to(tmp_path: Path) -> None:
    judge = Reads(llm=FakeLLM(reply=longest), max_workers=1)
    sample = make_sample("nothing", "a", "b")
    for budget, lines, counted in ((Budget(max_calls=1), 0, "stopped"), (None, 1, "unscored")):
        judge.evaluate_batch([sample], run_dir=str(tmp_path), budget=budget)
        summary = orjson.loads((tmp_path / "summary.json").read_bytes())
        assert {key for key, n in summary["samples"].items() if n} == {counted}
        assert len((tmp_path / "results.jsonl").read_bytes().splitlines()) == lines


def test_what_another_reward_could_not_score_is_no_failure_of_this_one(tmp_path: Path) -> None:
    class Breaks(Rule):
        def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
            raise KeyError("not this one")

    given = Breaks().evaluate_batch(rows())
    for counted in ("scored", "reused"):
        Share().evaluate_batch(given, run_dir=str(tmp_path))
        summary = orjson.loads((tmp_path / "summary.json").read_bytes())
        assert {key: n for key, n in summary["samples"].items() if n} == {counted: 3}


@pytest.mark.parametrize("reward", REWARDS, ids=lambda reward: reward.name)
def test_every_kind_comes_back_as_it_was(tmp_path: Path, reward: BaseReward) -> None:
    """Scores, reasons, extra data and the outputs nobody could judge; a sample with one output
    cannot be compared.
    """
    given = [*rows(), make_sample("only", unique_id="one")]
    for output in given[0].output:
        output.steps = [Step(content="x y"), Step(content="z")]
    for _ in range(2):
        kept = reward.evaluate_batch(given, run_dir=str(tmp_path / "run"))
        assert kept == reward.evaluate_batch(given)
    counts = orjson.loads((tmp_path / "run" / "summary.json").read_bytes())["samples"]
    assert {name: count for name, count in counts.items() if count} == {"reused": 4}


class Drifting(Rule):
    """Its code changes for the rows of one subset; then it takes so long that not all records can
    be compared.
    """

    changed: ClassVar[bool] = False

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        if self.changed:
            time.sleep(0.02)
        found = super()._evaluate(sample, **kwargs)
        found.details[0].score += self.changed and sample.unique_id.startswith("z")  # type: ignore[union-attr]
        return found


def test_changed_code_that_alters_only_the_last_rows_of_a_sorted_file_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looked at in the order of the file, the records of the first subset alone were compared."""
    subsets = [("a", n) for n in range(200)] + [("z", n) for n in range(100)]
    given = [make_sample("a", unique_id=f"{name}{n:03}", query=f"q{n}") for name, n in subsets]
    Drifting().evaluate_batch(given, run_dir=str(tmp_path / "run"))
    monkeypatch.setattr(Drifting, "changed", True)
    with pytest.raises(ConfigError, match="of 'z[0-9]+' .* had 1, and now gets 2"):
        Drifting().evaluate_batch(given, run_dir=str(tmp_path / "run"), max_workers=1)


@pytest.mark.parametrize("statuses", list(product(("scored", "unscored", "failed"), repeat=2)))
def test_a_sample_is_judged_again_where_any_of_its_answers_failed(
    statuses: tuple[str, str], tmp_path: Path
) -> None:
    down = [True, False]

    class Says(BasePointWiseReward):
        score_range: tuple[float | None, float | None] = (0.0, 1.0)

        def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
            said = sample.output[0].answer.text
            if said == "failed" and down[0]:
                raise ConnectionError("refused")
            if said == "unscored":
                raise Unscored("nothing to judge by", reason="no_reference")
            return scored(self.name, 1.0)

    for want in ({"scored": 1.0}, {"scored": 1.0, "failed": 1.0}):
        [done] = Says().evaluate_batch([make_sample(*statuses)], run_dir=str(tmp_path / "run"))
        assert [output.answer.reward.score for output in done.output] == [*map(want.get, statuses)]
        down.pop(0)
