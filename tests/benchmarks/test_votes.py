"""Votes of people: MT-bench, HelpSteer and PPE in their published layouts, with ties left out or as a class of their own."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from rm_gallery.core.data.schema import preference_of
from rm_gallery.core.stats.margins import expected_best
from rm_gallery.core.utils.errors import ConfigError, DataError
from rm_gallery.gallery.benchmarks.base import detect_benchmark, get_benchmark
from rm_gallery.report.evaluate import evaluate
from tests.benchmarks.excerpts import LONG, MIDDLE, SHORT, Row, turns
from tests.benchmarks.test_kinds import List, Point, Two, first_wins


def mt_bench(number: int, a: str, b: str, winner: str, turn: int = 1, judge: str = "expert_1") -> Row:
    said = [turns("q", "first", "and then?", side) if turn == 2 else turns("q", side) for side in (a, b)]
    about = {"question_id": number, "model_a": "x", "model_b": "y", "winner": winner, "judge": judge, "turn": turn}
    return {**about, "conversation_a": said[0], "conversation_b": said[1]}


def helpsteer2(prompt: str, response: str, helpfulness: int) -> Row:
    rest = dict.fromkeys(("correctness", "coherence", "complexity", "verbosity"), 2)
    return {"prompt": prompt, "response": response, "helpfulness": helpfulness, **rest}


def helpsteer2_preference(a: str, b: str, strength: int, split: str = "validation", prompt: str = "q") -> Row:
    return {"prompt": prompt, "response_1": a, "response_2": b, "preference_strength": strength, "split": split}


def helpsteer3(a: str, b: str, strength: int, domain: str = "code") -> Row:
    about = {"domain": domain, "language": "python", "context": turns("q"), "individual_preference": []}
    return {**about, "response1": a, "response2": b, "overall_preference": strength}


def ppe_votes(name: str, a: str, b: str, winner: str, language: str = "English") -> Row:
    about = {"question_id": name, "model_a": "x", "model_b": "y", "winner": winner, "language": language}
    return {**about, "prompt": "q", "response_1": a, "response_2": b, "hard_prompt": True, "is_code": False}


def ppe_correctness(name: str, answers: list[str], truths: list[bool], pairs: list[list[int]], **own: Any) -> Row:
    said = {f"response_{number}": text for number, text in enumerate(answers, 1)}
    about = {"question_id": name, "model_name": "m", "prompt": "q", "scores": truths, "mean_score": 0.5}
    return {**about, **said, "conflict_pairs": pairs, "sampled_conflict_pairs": pairs, **own}


VOTES: list[tuple[str, list[Row]]] = [
    (
        "mt_bench",
        [
            mt_bench(1, LONG, SHORT, "model_a"),
            mt_bench(1, LONG, SHORT, "model_b", judge="expert_2"),
            mt_bench(2, LONG, SHORT, "tie"),
            mt_bench(3, SHORT, SHORT, "tie", turn=2),
        ],
    ),
    (
        "helpsteer2_preference",
        [
            helpsteer2_preference(LONG, SHORT, -2),
            helpsteer2_preference(LONG, SHORT, 1),
            helpsteer2_preference(LONG, SHORT, 0),
            helpsteer2_preference(SHORT, SHORT, 0, "train"),
        ],
    ),
    (
        "helpsteer3",
        [
            helpsteer3(LONG, SHORT, -3),
            helpsteer3(LONG, SHORT, 3),
            helpsteer3(LONG, SHORT, 0, "stem"),
            helpsteer3(SHORT, SHORT, 0),
        ],
    ),
    (
        "ppe_human_preference",
        [
            ppe_votes("a", LONG, SHORT, "model_a"),
            ppe_votes("b", LONG, SHORT, "model_b", "German"),
            ppe_votes("c", LONG, SHORT, "tie"),
            ppe_votes("d", SHORT, SHORT, "tie (bothbad)"),
        ],
    ),
]


@pytest.mark.parametrize(("name", "rows"), VOTES, ids=[name for name, _ in VOTES])
def test_ties_are_left_out_or_a_class_of_their_own(name: str, rows: list[Row]) -> None:
    """Length agrees with the first vote, not with the second, ties where people did only in the fourth row."""
    assert detect_benchmark(rows[0]).name == name
    asked: list[int] = []

    def listen(sample: Any) -> list[float]:
        asked.append(len(sample.output))
        return [float(len(answer.answer.text)) for answer in sample.output]

    report = evaluate(Two(judge=listen), rows, name)
    assert (report.rule, report.score, report.chance) == ("pair_strict", 0.5, 0.5)
    assert (report.n, report.n_scored, report.n_unscored, len(asked)) == (4, 2, 2, 4), "ties cost nothing"
    assert report.reasons["unscored: not_asked"]["n"] == 2
    assert report.baselines == {"longest": 0.5, "shortest": 0.5}
    for reward in (Point(), Two(), List()):
        ties = evaluate(reward, rows, get_benchmark(name, "with_ties"))
        assert (ties.rule, ties.score, ties.n_scored) == ("three_class_agreement", 0.5, 4)
        assert ties.chance == pytest.approx(1 / 3)
        assert "mode with_ties" in ties.version
    positional = evaluate(Two(judge=first_wins), rows, get_benchmark(name, "with_ties"))
    assert positional.score == 0.5, "a verdict that changes with the order says tie"


def test_labels_and_metadata_of_votes() -> None:
    strong = get_benchmark("helpsteer3").convert(helpsteer3("one", "two", 2))
    assert [preference_of(answer) for answer in strong.output] == ["rejected", "chosen"]
    assert strong.metadata == {"subset": "code", "language": "python", "strength": 2}
    later = get_benchmark("mt_bench").convert(mt_bench(7, "one", "two", "model_b", turn=2))
    assert [message.text for message in later.input] == ["q", "first", "and then?"]
    assert [answer.answer.text for answer in later.output] == ["one", "two"]
    assert (later.unique_id, (later.metadata or {})["cluster"]) == ("7:x:y:2:expert_1", "7")
    first = {**mt_bench(7, "one", "two", "model_b", turn=2), "turn": 1}
    assert [answer.answer.text for answer in get_benchmark("mt_bench").convert(first).output] == ["first", "first"]
    apart = mt_bench(8, "one", "two", "tie", turn=2)
    apart["conversation_b"] = turns("q", "another", "and then?", "two")
    whole = get_benchmark("mt_bench").convert(apart)
    assert whole.output[1].answer.text == "another\n\nUser: and then?\n\nAssistant: two"
    asked = get_benchmark("helpsteer2").convert(helpsteer2("a\n<extra_id_1>Assistant\nb\n<extra_id_1>User\nc", "d", 4))
    assert [(m.role.value, m.text) for m in asked.input] == [("user", "a"), ("assistant", "b"), ("user", "c")]
    assert (asked.output[0].answer.label or {})["helpfulness"] == 4


@pytest.mark.parametrize(
    ("name", "row", "message"),
    [
        ("mt_bench", mt_bench(1, "a", "b", "both"), "column 'winner': expected 'model_a', 'model_b' or 'tie'"),
        ("helpsteer3", helpsteer3("a", "b", 4), "column 'overall_preference': expected a whole number from -3 to 3"),
        ("helpsteer2", helpsteer2("a", "b", 5), "column 'helpfulness': expected a whole number from 0 to 4"),
        ("ppe_human_preference", ppe_votes("a", "b", "c", ""), "column 'winner'"),
        ("ppe_correctness", ppe_correctness("a", ["x"], [True, False], []), "column 'scores': expected a list of 1"),
    ],
)
def test_votes_that_do_not_fit_are_named(name: str, row: Row, message: str) -> None:
    with pytest.raises(DataError, match=message):
        get_benchmark(name).convert(row)


def test_only_the_validation_rows_of_helpsteer2_preference() -> None:
    rows = [helpsteer2_preference(LONG, SHORT, -1), helpsteer2_preference(LONG, SHORT, 1, "train")]
    report = evaluate(Point(), rows, get_benchmark("helpsteer2_preference", "validation"))
    assert (report.score, report.n_scored, report.n_unscored) == (1.0, 1, 1)
    assert {name: part.score for name, part in report.by_subset.items()} == {"train": None, "validation": 1.0}


def test_rated_answers_are_paired_by_their_prompt() -> None:
    rows = [helpsteer2("p", LONG, 4), helpsteer2("p", SHORT, 1)]
    rows += [helpsteer2("q", LONG, 0), helpsteer2("r", SHORT, 3), helpsteer2("q", SHORT, 3), helpsteer2("r", LONG, 3)]
    rows += [helpsteer2("alone", MIDDLE, 2)]
    report = evaluate("length_baseline", rows)
    assert (report.benchmark, report.rule, report.score) == ("helpsteer2", "pair_strict", 0.5)
    assert (report.n, report.n_scored, report.n_unscored) == (4, 2, 2)
    assert (report.extra["equal_ratings"], report.extra["answers_without_a_partner"]) == (1, 1)
    assert report.baselines == {"longest": 0.5, "shortest": 0.5}
    assert -1 < report.extra["spearman"] < 1
    with pytest.raises(ConfigError, match="helpsteer2 is judged by pointwise rewards"):
        evaluate(List(), rows)


OWN: dict[str, dict[str, Any]] = {
    "math": {"problem": "p", "level": "5"},
    "mmlu_pro": {"options": ["a"], "answer_index": 0},
    "gpqa": {"correct_choice_index": 1},
    "ifeval": {"instruction_id_list": ["x"]},
    "mbpp_plus": {"test": "assert"},
}


def test_ppe_correctness_picks_among_all_answers() -> None:
    rows = [
        ppe_correctness("a", [LONG, MIDDLE, SHORT], [True, False, False], [[0, 1], [2, 0]], **OWN["math"]),
        ppe_correctness("b", [LONG, MIDDLE, MIDDLE], [False, True, False], [[0, 1]], **OWN["math"]),
        ppe_correctness("a", [MIDDLE, MIDDLE, SHORT], [True, False, False], [[0, 1], [0, 2]], **OWN["gpqa"]),
        ppe_correctness("c", [LONG, SHORT, SHORT], [False, False, False], [], **OWN["gpqa"]),
    ]
    assert {detect_benchmark(row).name for row in rows} == {"ppe_correctness"}
    report = evaluate(Point(), rows)
    maths, gpqa = report.by_subset["math"], report.by_subset["gpqa"]
    assert (report.rule, maths.score, gpqa.score) == ("ppe_best_of_k", 0.5, 0.25)
    assert report.score == pytest.approx(0.375)
    assert report.extra["oracle"] == pytest.approx((1.0 + 0.5) / 2)
    assert report.chance == pytest.approx((1 / 3 + 1 / 6) / 2)
    assert report.extra["domains_absent"] == ["ifeval", "mbpp_plus", "mmlu_pro"]
    assert maths.extra["curve"] == pytest.approx({"1": 1 / 3, "2": (2 / 3 + 0.5 / 3) / 2})
    conflicts = evaluate(Point(), rows, get_benchmark("ppe", "conflict_pairs"))
    assert (conflicts.rule, conflicts.chance) == ("ppe_conflict_pairs", 0.5)
    assert [conflicts.by_subset[name].score for name in ("math", "gpqa")] == [0.5, 0.5]
    assert (conflicts.n, conflicts.n_unscored) == (4, 1), "a question without a conflicting pair says nothing"
    compared = evaluate(Two(), rows[:3])
    assert (compared.rule, compared.score, compared.n) == ("ppe_conflict_pairs", 0.5, 3)
    with pytest.raises(ConfigError, match="take --mode conflict_pairs"):
        evaluate(Two(), rows, get_benchmark("ppe", "best_of_k"))


@pytest.mark.parametrize("domain", OWN)
def test_a_ppe_file_is_told_by_its_own_columns(domain: str) -> None:
    sample = get_benchmark("ppe").convert(ppe_correctness("a", ["x", "y"], [True, False], [[0, 1]], **OWN[domain]))
    assert (sample.metadata or {})["subset"] == domain
    assert sample.unique_id == f"{domain}:a:m"


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_the_expected_pick_is_the_mean_over_all_draws(k: int) -> None:
    scores, right = [3.0, 1.0, 3.0, 2.0, 1.0], [True, True, False, False, True]

    def pick(drawn: tuple[int, ...]) -> float:
        top = [place for place in drawn if scores[place] == max(scores[p] for p in drawn)]
        return sum(right[place] for place in top) / len(top)

    draws = [pick(drawn) for drawn in itertools.combinations(range(5), k)]
    # a tie is broken among all equally scored answers, drawn or not, which is the same on average
    assert expected_best(scores, right, k) == pytest.approx(sum(draws) / len(draws))
