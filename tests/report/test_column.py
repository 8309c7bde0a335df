"""`column:NAME`: what a judge wrote into a table is a reward at every command, and its accuracy and
kappa against people are those of the table counted by hand.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rm_gallery import ConfigError, RewardRegistry, evaluate
from rm_gallery.study.table import score_table
from rm_gallery.study.winrate import winrate
from tests.support.command import command

JUDGED = Path(__file__).parent.parent / "data" / "judged"
# of ten rows: both pass, the judge alone, people alone, neither
LAYOUTS: dict[str, tuple[str, str, float, float]] = {
    # 4 1 2 3: chance (5·6 + 5·4) / 100 = 0.50
    "judgegate.jsonl": ("judge_label", "human_label", 0.7, 0.2 / 0.50),
    # 5 0 1 4: chance (5·6 + 5·4) / 100 = 0.50
    "kunko_judge_audit.csv": ("decision", "label", 0.9, 0.4 / 0.50),
    # 3 3 1 3: chance (6·4 + 4·6) / 100 = 0.48
    "llm_judge_agreement.csv": ("judge", "human", 0.6, 0.12 / 0.52),
    # 6 2 0 2: chance (8·6 + 2·4) / 100 = 0.56
    "fewhumans.csv": ("judge_small", "human", 0.8, 0.24 / 0.44),
    # 2 1 1 6: chance (3·3 + 7·7) / 100 = 0.58
    "deepeval.csv": ("success", "reviewer", 0.8, 0.22 / 0.42),
    # 4 2 2 2: chance (6·6 + 4·4) / 100 = 0.52
    "inspect.json": ("score.model_graded_qa", "score.human", 0.6, 0.08 / 0.48),
}


def said(*arguments: str) -> dict[str, Any]:
    done = command(*arguments, "--json")
    assert done.code == 0, done.err
    told: dict[str, Any] = json.loads(done.out)
    return told


@pytest.mark.parametrize("name", LAYOUTS)
def test_accuracy_and_kappa_are_those_counted_by_hand(name: str) -> None:
    """Neither prompts nor answers are asked for: nothing of them is read."""
    judge, people, accuracy, kappa = LAYOUTS[name]
    told = said("score", f"column:{judge}", str(JUDGED / name), "--labels", people)
    about = told["extra"]["agreement"]
    assert about["n"] == told["n_scored"] == 10
    assert (about["accuracy"], about["kappa"]) == pytest.approx((accuracy, kappa))


def test_two_judges_of_one_table_are_compared() -> None:
    told = said(
        "judge-select",
        *("column:judge_small", "column:judge_large"),
        str(JUDGED / "fewhumans.csv"),
        *("--labels", "human"),
    )
    figures = {judge["name"]: judge["figures"] for judge in told["judges"]}
    # judge_large is wrong in rows 5 and 10, which are 1 and 0 by people: 6 and 4 pass by each
    assert figures["column:judge_large"]["accuracy"] == pytest.approx(0.8)
    assert figures["column:judge_small"]["kappa"] == pytest.approx(0.24 / 0.44)
    done = command("judge-select", "column:a", "column:b", str(JUDGED / "fewhumans.csv"))
    assert done.code == 2 and "--labels" in done.err


def test_both_orders_of_a_row_are_one_row_and_its_flips_are_told() -> None:
    """In the second column a letter or a place means the answer as it was shown, and a name the
    answer itself.
    """
    report = winrate(
        "column:first,second",
        JUDGED / "both_orders.csv",
        "prompt",
        ["old", "new"],
        labels="human",
        progress=False,
    )
    assert [report.extra[name] for name in ("wins", "losses", "ties")] == [3, 3, 2]
    assert (report.extra["flips"]["flips"], report.extra["flips"]["first_preferred"]) == (1, 1)
    about = report.extra["agreement"]
    # judge 3 old, 3 new, 2 ties; people 4, 3, 1: chance (12 + 9 + 2) / 64
    assert (about["agreement"], about["kappa"]) == pytest.approx((5 / 8, 17 / 41))
    # the longer answer is people's in rows 3, 4 and 8
    assert (about["chance"], about["longest"]) == pytest.approx((23 / 64, 3 / 8))


def test_answer_columns_called_a_and_b_are_no_letters_of_a_judge() -> None:
    """Row by row the judge prefers what is shown first: a flip, and no two wins of column A."""
    rows = [{"q": f"q{k}", "A": "x", "B": "yy", "one": "A", "two": "A"} for k in range(4)]
    report = winrate("column:one,two", rows, "q", ["A", "B"], progress=False)
    assert (report.score, report.extra["flips"]["flips"]) == (0.5, 4)


@pytest.mark.parametrize(
    "cell", ["a", "B<A", "[[A]]", "first", "1", 1, 1.0, "new", "[7, 4]", [7, 4], "A>>B", "0,9"]
)
def test_every_spelling_of_the_first_answer_wins(cell: Any) -> None:
    rows = [{"new": "x", "old": "y", "judge": cell}]
    report = winrate("column:judge", rows, None, ["new", "old"], progress=False)
    assert (report.score, report.n_scored) == (1.0, 1)


@pytest.mark.parametrize(
    ("cell", "says"),
    [
        ("", "column 'judge' is blank."),
        ("perhaps", "column 'judge': expected a, b, first"),
        ("perhaps", "found 'perhaps'."),
        ("[1, 2, 3]", "a list of 2 scores, found '[1, 2, 3]'"),
    ],
)
def test_what_is_blank_or_unreadable_is_no_verdict_and_the_datas_doing(
    cell: str, says: str
) -> None:
    rows = [{"judge": cell}, {"judge": "A"}]
    report = winrate("column:judge", rows, progress=False)
    assert (report.n, report.n_scored, report.missing) == (2, 1, {"data": 1})
    assert says in next(iter(report.reasons.values()))["example"]


def test_the_range_is_that_of_verdicts_where_all_cells_are_verdicts() -> None:
    """Else nothing is known of what a missing score might have been, unless `bounds` say it."""
    verdicts: list[dict[str, Any]] = [{"j": "yes"}, {"j": 0}, {"j": ""}]
    numbers: list[dict[str, Any]] = [{"j": 5}, {"j": 0}, {"j": ""}]
    assert score_table("column:j", verdicts, progress=False).bounds == pytest.approx((1 / 3, 2 / 3))
    assert score_table("column:j", numbers, progress=False).bounds is None
    held = score_table("column:j", numbers, params={"bounds": [0, 5]}, progress=False)
    assert held.bounds == pytest.approx((5 / 3, 10 / 3))
    outside = score_table("column:j", numbers, params={"bounds": [0, 4]}, progress=False)
    assert (outside.n_scored, outside.missing) == (1, {"data": 2})


def test_pairs_and_rows_take_it_as_any_reward() -> None:
    rows = [
        {"prompt": f"q{k}", "chosen": "right", "rejected": "wrong", "judge": word}
        for k, word in enumerate(("chosen", "rejected", "A", "tie"))
    ]
    report = evaluate("column:judge", rows, progress=False)
    assert (report.rule, report.n_scored, report.score) == ("pair_strict", 4, 0.5)
    judge = RewardRegistry.create("column:judge")
    assert [judge.evaluate(judge=cell).score for cell in ("Fail", "3,5")] == [0.0, 3.5]


@pytest.mark.parametrize(
    ("reward", "says"),
    [
        ("column:hum", "There is no column 'hum'. Did you mean human?"),
        ("column:label", "column 'label' is named for something else"),
        ("column:", "column: is a prefix"),
        ("column:a,b,c", "name one column, as in column:judge"),
        ("length_baseline", "length_baseline reads prompts and answers: name --prompt"),
    ],
)
def test_what_cannot_be_read_is_said_before_a_row_is(reward: str, says: str) -> None:
    rows = [{"human": 1, "label": 1}]
    with pytest.raises(ConfigError) as found:
        score_table(reward, rows, labels="label", progress=False)
    assert says in str(found.value)
