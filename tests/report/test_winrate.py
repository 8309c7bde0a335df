"""Win rates and scores of tables: every row is counted once, people's labels mend them, and
stopping early is valid.
"""

from __future__ import annotations

import json
import random
import time
import tracemalloc
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest

from rm_gallery import (
    BaseListWiseReward,
    BasePairWiseReward,
    BasePointWiseReward,
    BaseReward,
    ConfigError,
    DataSample,
    OpenaiLLM,
    RewardRegistry,
    RewardResult,
    Unscored,
)
from rm_gallery.core.engine.context import RunControl
from rm_gallery.core.stats.corrected import corrected_mean
from rm_gallery.gallery.benchmarks.judgements import judged
from rm_gallery.study.runs import open_run
from rm_gallery.study.table import Columns, Scoring, score_table
from rm_gallery.study.winrate import _UntilDecided, winrate
from rm_gallery.study.winrate_figures import ComparedRows, flips_of
from tests.benchmarks.judges import lengths
from tests.reward.rewards import ranked, scored
from tests.support.judge_server import Answer, JudgeCall, Judgement, JudgeServer


class Length(BasePointWiseReward):
    """Characters of an answer; the answer FAIL breaks it."""

    name: str = "length"

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        text = sample.output[0].answer.text
        if text == "FAIL":
            raise RuntimeError("broken")
        return scored(self.name, float(len(text)))


class Longer(BasePairWiseReward):
    """The longer answer wins."""

    name: str = "longer"

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        return ranked(self.name, *lengths(sample))


class Longest(BaseListWiseReward):
    """All answers by length."""

    name: str = "longest"

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        return ranked(self.name, *lengths(sample))


def rows(*answers: tuple[str, ...], **more: list[Any]) -> list[dict[str, Any]]:
    names = ("x", "y", "z")
    made = [
        {"q": f"question {k}", **dict(zip(names, texts, strict=False))}
        for k, texts in enumerate(answers)
    ]
    for name, values in more.items():
        for row, value in zip(made, values, strict=True):
            row[name] = value
    return made


WON, LOST, TIED = ("long", "l"), ("s", "short"), ("same", "also")


@pytest.mark.parametrize("reward", [Length(), Longer(), Longest()])
@pytest.mark.parametrize("frame", [False, True])
def test_every_kind_counts_wins_losses_and_ties(reward: Any, frame: bool) -> None:
    data: Any = rows(*[WON] * 5, *[LOST] * 2, *[TIED] * 3)
    found = winrate(reward, pd.DataFrame(data) if frame else data, "q", ["x", "y"])
    assert (found.score, found.n, found.n_scored) == (0.65, 10, 10)
    assert {name: found.extra[name] for name in ("wins", "losses", "ties")} == {
        "wins": 5,
        "losses": 2,
        "ties": 3,
    }
    assert found.ci95 is not None and found.ci95.low < 0.65 < found.ci95.high
    assert found.baselines == {"longest": 0.65, "shortest": pytest.approx(0.35)}
    assert (found.extra["test"]["p_value"] < 0.05) == (not found.ci95.covers(0.5))


def test_blank_and_failed_rows_are_counted_and_kept(tmp_path: Path) -> None:
    data = rows(WON, ("", "b"), ("FAIL", "b"), LOST, WON, ("   ", ""))
    found = winrate(Length(), data, "q", ["x", "y"], run_dir=str(tmp_path / "run"))
    assert (found.n, found.n_scored, found.n_unscored, found.n_failed) == (6, 3, 2, 1)
    assert found.score == pytest.approx(2 / 3)
    assert found.reasons["unscored: blank row"] == {
        "n": 2,
        "example": "data, row 2: column 'x' is blank",
    }
    kept = list(open_run(tmp_path / "run").samples())
    assert sorted(sample.status for sample in kept) == [
        "failed",
        "scored",
        "scored",
        "scored",
        "unscored",
        "unscored",
    ]
    again = winrate(Length(), data, "q", ["x", "y"], run_dir=str(tmp_path / "run"))
    assert len(list(open_run(tmp_path / "run").samples())) == 6
    assert again.to_dict() | {"seconds": 0} == found.to_dict() | {"seconds": 0}


def test_rows_of_one_prompt_count_together() -> None:
    one = winrate(Length(), rows(*[WON] * 30, *[LOST] * 10), "q", ["x", "y"])
    data = [
        row | {"q": f"question {k // 4}"} for k, row in enumerate(rows(*[WON] * 30, *[LOST] * 10))
    ]
    noticed = winrate(Length(), data, "q", ["x", "y"])
    talks = rows(*[WON] * 30, *[LOST] * 10, talk=[k // 4 for k in range(40)])
    declared = winrate(Length(), talks, "q", ["x", "y"], cluster="talk")
    assert one.score == noticed.score == declared.score == 0.75 and noticed.ci95 == declared.ci95
    assert one.ci95 is not None and noticed.ci95 is not None
    assert noticed.ci95.high - noticed.ci95.low > 1.5 * (one.ci95.high - one.ci95.low)


PEOPLE = ["x", "b", "Tie", 1, 0.5, "0,0", "A", "y", None, "1.0"]


def test_labels_stand_in_a_column_or_in_a_file(tmp_path: Path) -> None:
    data = rows(*[WON] * 10, people=PEOPLE, id=[f"i{k}" for k in range(10)])
    column = winrate(Length(), data, "q", ["x", "y"], labels="people")
    assert (column.extra["agreement"]["n"], column.extra["agreement"]["agreement"]) == (
        9,
        pytest.approx(4 / 9),
    )
    corrected = column.extra["corrected"]
    assert corrected["labels_alone"] == pytest.approx(5 / 9)
    assert (corrected["n"], corrected["n_labelled"], corrected["judge_alone"]) == (10, 9, 1.0)
    people = pd.DataFrame({"id": [f"i{k}" for k in range(10)], "verdict": PEOPLE}).dropna()[::-1]
    people.to_excel(tmp_path / "people.xlsx", index=False)
    bare = [{key: value for key, value in row.items() if key != "people"} for row in data]
    file = winrate(Length(), bare, "q", ["x", "y"], labels=str(tmp_path / "people.xlsx"), id="id")
    assert file.extra["corrected"] == corrected


def test_two_tables_are_compared_by_their_ids() -> None:
    def answers(*texts: str, asked: str = "question") -> list[dict[str, Any]]:
        return [{"id": k, "q": f"{asked} {k}", "x": text} for k, text in enumerate(texts)]

    a = answers("long", "s", "same", "more")
    found = winrate(Length(), a, "q", ["x", "x"], other=answers("l", "short", "also"))
    assert (found.score, found.n, found.n_scored, found.n_unscored) == (0.5, 4, 3, 1)
    assert found.extra["a"] == "x" and found.extra["b"].startswith("x (")
    with pytest.raises(ConfigError, match="1 of 5 ids are in no row of .*such as '4'"):
        winrate(Length(), a, "q", ["x", "x"], other=answers(*"lmnop"))
    with pytest.raises(ConfigError, match="id '0' has another 'q' than in"):
        winrate(Length(), a, "q", ["x", "x"], other=answers("l", asked="other"))


def test_corrections_know_how_labels_were_drawn_and_what_belongs_together() -> None:
    draw = random.Random(2)
    wins = [float(draw.random() < 0.6) for _ in range(80)]
    known: list[float | None] = [draw.choice([1.0, 0.0, None, None]) for _ in range(80)]
    chance, talk = (
        [draw.choice([0.2, 0.4, 0.5, 0.6, 0.8]) for _ in range(80)],
        [k // 4 for k in range(80)],
    )
    kind = ["p" if k < 40 else "r" for k in range(75)] + ["few"] * 5
    known[75:] = [1.0, 0.0, 1.0, 0.0, None]
    data = rows(
        *[WON if won else LOST for won in wins], people=known, p=chance, talk=talk, kind=kind
    )
    found = winrate(
        Length(),
        data,
        "q",
        ["x", "y"],
        labels="people",
        label_probability="p",
        cluster="talk",
        by=["kind"],
    )
    for part, rows_of in (
        (found.extra, range(80)),
        (found.extra["subgroups"]["kind = p"], range(40)),
    ):
        of = slice(rows_of.stop)
        expected = corrected_mean(wins[of], known[of], clusters=talk[of], probabilities=chance[of])
        assert (part["corrected"]["estimate"], part["corrected"]["ci95"]) == (
            expected.estimate,
            expected.ci95,
        )
    assert "corrected" not in found.extra["subgroups"]["kind = few"], "four labels correct nothing"


def test_results_take_their_turn_however_they_come_in() -> None:
    draw = random.Random(0)
    wins = [float(draw.random() < 0.85) if k % 7 else None for k in range(400)]
    turns = [[k, k + 1] for k in range(0, 400, 2)]
    stops = []
    for order in (list(range(400)), sorted(range(400), key=lambda k: -(wins[k] or 0))):
        control = RunControl()
        until = _UntilDecided(turns, control)
        for row in order:
            until.add(row, wins[row], "scored")
        assert control.stopped == "decided: the comparison is settled"
        stops.append((until.decided, until.sequence.n, until.sequence.interval))
    assert stops[0] == stops[1]
    waiting = _UntilDecided(turns, RunControl())
    for row in range(1, 400):
        waiting.add(row, wins[row], "scored")
    waiting.add(0, None, "stopped")
    assert waiting.sequence.n == 0, "nothing behind a row that was not judged counts"


def test_a_sorted_table_is_not_decided_by_its_first_rows() -> None:
    found = winrate(Length(), rows(*[WON] * 40, *[LOST] * 40), "q", ["x", "y"], until_decided=True)
    assert not found.extra["until_decided"]["decided"] and found.n_scored == 80


def a_mostly(call: JudgeCall) -> Answer:
    ranking = sorted(range(1, 3), key=lambda k: "good" not in call.reading.candidates[k - 1])
    return Judgement(tuple(ranking), ())


def test_a_settled_comparison_saves_calls(tmp_path: Path) -> None:
    draw = random.Random(5)
    data = rows(*[("good", "bad") if draw.random() < 0.8 else ("bad", "good") for _ in range(400)])
    with JudgeServer(a_mostly, latency=0.03, in_process=True) as server:
        judge = OpenaiLLM(model="judge-1", base_url=server.base_url, api_key="none")
        reward = RewardRegistry.create("base_helpfulness_pairwise", llm=judge)
        options: Any = {
            "until_decided": True,
            "max_workers": 4,
            "progress": False,
            "run_dir": str(tmp_path / "r"),
        }
        found = winrate(reward, data, "q", ["x", "y"], **options)
        requests = server.stats()["requests"]
        again = winrate(reward, data, "q", ["x", "y"], **options)
        assert server.stats()["requests"] == requests, "what is settled is not asked about again"
    assert (again.score, again.ci95, again.n, again.stopped) == (
        found.score,
        found.ci95,
        found.n,
        None,
    )
    said = found.extra["until_decided"]
    assert said["decided"] and found.stopped is None and found.n_stopped == 0
    assert found.n == found.n_scored == 400 - said["rows_saved"]
    assert said["judgements_saved"] + requests == 800, "what was in flight is not saved"
    assert 2 * found.n <= requests <= 2 * found.n + 8
    assert said["rows_saved"] > 200
    assert found.ci95 is not None and found.ci95.low > 0.5 and found.ci95.covers(0.8)
    assert "test" not in found.extra
    assert json.loads((tmp_path / "r" / "report.json").read_text())["extra"]["until_decided"][
        "decided"
    ]


@pytest.mark.parametrize("kind", [Length, Longer, Longest])
@pytest.mark.parametrize("seed", [0, 1])
def test_judgements_saved_are_those_that_nobody_made(
    kind: type[BaseReward], seed: int, tmp_path: Path
) -> None:
    """Rows that finished behind the stop counted as saved, or rows that were counted did."""
    asked: list[str] = []

    class Counting(kind):  # type: ignore[misc, valid-type]
        fingerprint: ClassVar[Any] = "the same"

        def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
            asked.append(sample.unique_id)
            if len(asked) == 4:
                first.stop("enough")
            time.sleep(0.002 * (len(asked) % 3))
            return super()._evaluate(sample, **kwargs)  # type: ignore[no-any-return]

    draw, first = random.Random(seed), RunControl()
    data = rows(*[WON if draw.random() < 0.8 else LOST for _ in range(120)])
    each = 2 if kind is Length else 1
    options: Any = {"until_decided": True, "max_workers": 8, "run_dir": str(tmp_path / "r")}
    halted = winrate(Counting(), data, "q", ["x", "y"], control=first, **options)
    assert halted.extra["until_decided"]["judgements_saved"] == 0, "nothing is settled"
    found = winrate(Counting(), data, "q", ["x", "y"], **options)
    said, made = found.extra["until_decided"], len(asked)
    assert said["decided"] and made < 120 * each
    # a row that the halt left half judged is judged again as a whole
    again = len(asked) - len(set(asked)) if each == 1 else halted.n_stopped > 0
    assert 0 <= said["judgements_saved"] + made - 120 * each <= again
    last = winrate(Counting(), data, "q", ["x", "y"], **options)
    kept = last.extra["until_decided"]["judgements_saved"]
    assert len(asked) == made and 0 <= kept - said["judgements_saved"] < each + 8


class Unsure(Longer):
    """Says nothing of some; nothing is scored again to see whether the code is the same."""

    fingerprint: ClassVar[Any] = "the same"
    asked: ClassVar[list[str]] = []

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        self.asked.append(sample.unique_id)
        if any(output.answer.text == "unsure" for output in sample.output):
            raise Unscored("hard to say", reason="unsure")
        return super()._evaluate(sample, **kwargs)


@pytest.mark.long("many judgements")
def test_a_row_without_a_verdict_holds_up_no_decision_of_a_continued_run(tmp_path: Path) -> None:
    data = rows(*[("long" if number % 3 else "unsure", "b") for number in range(4000)])
    for _ in range(2):
        found = winrate(
            Unsure(),
            data,
            "q",
            ["x", "y"],
            until_decided=True,
            run_dir=str(tmp_path / "r"),
            max_workers=1,
        )
        before, Unsure.asked = len(Unsure.asked), []
    assert (
        before == 0
        and found.extra["until_decided"]["decided"]
        and found.extra["until_decided"]["rows_saved"] > 0
    )


@pytest.mark.long("many judgements")
def test_a_judge_that_is_silent_where_it_would_say_lost_decides_nothing() -> None:
    decided = 0
    for seed in range(20):
        draw = random.Random(seed)
        until = _UntilDecided([[row] for row in range(1500)], RunControl())
        for row in range(1500):
            won = draw.random() < 0.5
            until.add(row, None if not won and draw.random() < 0.7 else float(won), "scored")
        decided += until.decided
    assert decided <= 1


def test_what_is_missing_on_either_side_is_allowed_for_and_no_more() -> None:
    for share, missing, decided in (
        (0.8, 0.1, True),
        (0.2, 0.1, True),
        (0.6, 0.3, False),
        (0.4, 0.3, False),
    ):
        draw = random.Random(1)
        until = _UntilDecided([[row] for row in range(1000)], RunControl())
        for row in range(1000):
            until.add(
                row, None if draw.random() < missing else float(draw.random() < share), "scored"
            )
        assert until.decided is decided, (share, missing)


def test_all_figures_of_a_comparison_that_stopped_early_are_those_of_the_rows_looked_at() -> None:
    draw, texts, prompts = random.Random(3), [], []
    for cluster in range(300):
        for _ in range(draw.choice([1, 1, 1, 5])):
            won = draw.random() < 0.8
            kind = draw.random()
            texts.append(
                ("FAIL", "b") if kind < 0.03 else ("", "b") if kind < 0.06 else WON if won else LOST
            )
            prompts.append(f"prompt {cluster}")
    data = [
        row | {"q": prompt}
        for row, prompt in zip(rows(*texts, kind=["p"] * len(texts)), prompts, strict=True)
    ]
    found = winrate(Length(), data, "q", ["x", "y"], until_decided=True, by=["kind"], max_workers=1)
    again = winrate(
        Length(), data, "q", ["x", "y"], until_decided=True, by=["kind"], max_workers=16
    )
    said, part = found.extra["until_decided"], found.by_subset["kind = p"]
    won, lost, tied = (found.extra[name] for name in ("wins", "losses", "ties"))
    assert (
        said["decided"]
        and found.n == said["rows"] - said["rows_saved"] < len(data)
        and found.n_stopped == 0
    )
    assert (
        found.n_scored == won + lost + tied == found.n - found.n_unscored - found.n_failed < found.n
    )
    assert found.score is not None and found.score == pytest.approx(
        (won + tied / 2) / found.n_scored
    )
    assert (
        found.bounds is not None
        and found.bounds.low > 0.5
        and found.ci95 is not None
        and found.ci95.covers(found.score)
    )
    assert found.bounds == pytest.approx(
        (won / found.n, (won + found.n - found.n_scored) / found.n)
    )
    assert (part.n, part.n_scored, part.score, part.bounds) == (
        found.n,
        found.n_scored,
        found.score,
        found.bounds,
    )
    assert sum(found.missing.values()) == found.n - found.n_scored
    assert (
        found.suspicion["n"] == found.n - found.reasons["unscored: blank row"]["n"]
        and found.missing["data"] > 0
    )
    # how many judgements were in flight at the stop, and are not saved, is another each time
    differing = ("seconds", "calls", "usage", "extra", "says")
    one, other = (
        {k: v for k, v in x.to_dict().items() if k not in differing} for x in (found, again)
    )
    assert one == other


def test_scores_have_the_unit_of_their_reward() -> None:
    texts = [("aaaa", "b"), ("aa", "bb"), ("", "b"), ("FAIL", "b")]
    data = rows(*texts, people=[2, 1, None, 3], kind=["p", "p", "r", "r"])
    found = score_table(Length(), data, "q", "x", labels="people", by=["kind"])
    assert (found.score, found.n, found.n_scored, found.n_unscored, found.n_failed) == (
        3.0,
        4,
        2,
        1,
        1,
    )
    assert [row[:2] for row in found.rows()] == [("kind = p", "3"), ("kind = r", "-"), ("all", "3")]
    assert (found.extra["spread"]["min"], found.extra["agreement"]["n"]) == (2.0, 2)
    assert found.to_pandas()["score"].tolist()[-1] == 3.0
    with pytest.raises(ConfigError, match="longer is pairwise and one column of answers"):
        score_table(Longer(), data, "q", "x")


@pytest.mark.parametrize(
    "more",
    [{}, {"until_decided": True}, {"labels": "people", "by": ["kind"], "length_controlled": True}],
)
@pytest.mark.parametrize(
    "texts", [[("FAIL",) * 3] * 3, [("same",) * 3] * 3, [("aa", "b", "c")], [("a", "", "bb")] * 2]
)
def test_little_to_go_on_is_said_and_no_interval_is_a_point(
    texts: Any, more: dict[str, Any]
) -> None:
    columns = ["x", "z"] if "" in texts[0] else ["x", "y", "z"]
    data = rows(*texts, people=["a", "b", None][: len(texts)], kind=["p", None, "r"][: len(texts)])
    report = winrate(Length(), data, "q", columns, **more)
    assert (report.score is None) == (texts[0][0] == "FAIL")
    assert report.ci95 is None or report.ci95.low < report.ci95.high
    assert str(report) and json.dumps(report.to_dict())
    if not more.get("until_decided"):
        scores = score_table(
            Length(), data, "q", columns, **{k: v for k, v in more.items() if k == "by"}
        )
        assert scores.ci95 is None or scores.ci95.low < scores.ci95.high
        assert str(scores) and json.dumps(scores.to_dict())


def test_flips_of_one_conversation_do_not_count_as_many() -> None:
    places, intervals = np.arange(40), []
    for size in (1, 4):
        compared = ComparedRows(places // size, columns=2)
        compared.orders[:, 0] = [(1, 1) if k % 8 < 4 else (1, -1) for k in places]
        intervals.append(flips_of(compared)["ci95"])
    alone, together = intervals
    assert together.high - together.low > 1.5 * (alone.high - alone.low)


def test_a_mean_corrected_by_labels_stays_on_the_scale_of_the_judge() -> None:
    class Stars(Length):
        """One to five characters."""

        name: str = "stars"
        score_range: tuple[float | None, float | None] = (1.0, 5.0)

    data = rows(
        *[("x" * (5 if n % 9 else 4),) for n in range(60)], people=[5] * 11 + [1] + [None] * 48
    )
    found = score_table(Stars(), data, "q", "x", labels="people").extra["corrected"]
    low, high = found["ci95"]
    assert 1.0 <= low < found["estimate"] < high <= 5.0


@pytest.mark.long("many judgements")
def test_the_texts_of_a_long_table_do_not_stay_in_memory(tmp_path: Path) -> None:
    table, n = tmp_path / "long.jsonl", 2_400
    with table.open("w") as file:
        file.writelines(
            json.dumps({"q": f"q{k}", "x": f"{k} " * 2_000, "y": "short"}) + "\n" for k in range(n)
        )
    assert table.stat().st_size > 20_000_000
    tracemalloc.start()
    try:
        samples = Scoring.read(str(table), "q", ["x", "y"], Columns(cluster="y")).samples
        assert sum(len(sample.output[0].answer.text) for sample in samples) > 20_000_000
        assert len(samples) == n and samples[-1].sample_id == f"line {n}"
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8_000_000  # a block of rows, and a few numbers of each


def test_a_counted_row_stays_in_memory_as_a_few_bytes() -> None:
    def held(n: int) -> int:
        """Bytes of a count of n rows."""
        task = Scoring.read([{"q": "q", "x": "x"}] * n, "q", ["x"])
        one = judged(Length(), Length().evaluate_batch([task.samples[0]])[0])
        tracemalloc.start()
        try:
            counter = task.scorer()
            for row in range(n):
                one.metadata["row"] = row
                counter.add(one)
            return tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()

    # a score and a status are 9 bytes; a status that was a tuple made 72 of them
    assert held(6_000) - held(2_000) < 18 * 4_000


def test_labels_made_on_the_pages_of_a_run_are_joined_by_where_rows_stand(tmp_path: Path) -> None:
    sheet, labels = tmp_path / "s.csv", tmp_path / "labels.csv"
    sheet.write_text("q,x,y\n" + "".join(f"q{k},{'long' * (k % 3)}.,yy\n" for k in range(12)))
    winrate(Length(), sheet, "q", ["x", "y"], run_dir=str(tmp_path / "run"))
    named = [row.id for row in open_run(tmp_path / "run").samples()]
    labels.write_text(
        "id,label\n" + "".join(f"{name},{k % 2}\n" for k, name in enumerate(named[:6]))
    )
    assert (
        winrate(Length(), sheet, "q", ["x", "y"], labels=str(labels)).extra["agreement"]["n"] == 6
    )
    labels.write_text("id,label\nline 99,1\n")
    with pytest.raises(ConfigError, match="line 99"):
        winrate(Length(), sheet, "q", ["x", "y"], labels=str(labels))
