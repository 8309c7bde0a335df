"""Runs held against each other: what is joined, what is refused, and what the difference is."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import ttest_ind

from rm_gallery import (
    BasePairWiseReward,
    BasePointWiseReward,
    ConfigError,
    DataSample,
    FakeLLM,
    RewardResult,
    evaluate,
)
from rm_gallery.report.formats import render
from rm_gallery.report.gate import held_against
from rm_gallery.report.run_table import render_table, run_table, save_results
from rm_gallery.serve.view_index import RunIndex
from rm_gallery.serve.view_pages import about_two
from rm_gallery.study.compare import compare
from rm_gallery.study.runs import open_run
from rm_gallery.study.table import score_table
from tests.report.runs import judged_run, report, row, write_run
from tests.reward.rewards import PointJudge, longest, ranked, scored
from tests.support.command import command


def pairs(n: int, subset: str = "") -> list[dict[str, Any]]:
    """Numbered pairs, two to a prompt."""
    part = {"subset": subset} if subset else {}
    return [
        {
            "id": f"{subset}{k}",
            "prompt": f"question {k // 2} {subset}",
            "chosen": f"right {k}",
            "rejected": f"wrong {k}",
        }
        | part
        for k in range(n)
    ]


class Knows(BasePointWiseReward):
    """Right on the rows whose number leaves a remainder below `right` of ten; fails on those above
    `fails_from`.
    """

    name: str = "knows"
    right: int = 5
    fails_from: int = 10_000

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        word, number = sample.output[0].answer.text.split()
        if int(number) >= self.fails_from:
            raise ValueError("no answer")
        good = (int(number) % 10 < self.right) == (word == "right")
        return scored(self.name, float(good), "because")


def run(folder: Path, data: Any, right: int, **more: Any) -> Path:
    fields = {key: more.pop(key) for key in ("fails_from",) if key in more}
    evaluate(Knows(right=right, **fields), data, run_dir=str(folder), progress=False, **more)
    return folder


class Renamed(FakeLLM):
    """Answers under a name of its own."""

    served: str = ""

    async def attempt(self, payload: dict[str, Any], timeout: float | None) -> dict[str, Any]:
        return {**await super().attempt(payload, timeout), "model": self.served}


def test_another_model_behind_the_name_that_was_asked_is_told(tmp_path: Path) -> None:
    for name in ("judge", "judge-1", "judge-2"):
        llm = Renamed(model="judge", reply=longest, served=name)
        evaluate(
            PointJudge(llm=llm), pairs(4), run_dir=str(tmp_path / f"of {name}"), progress=False
        )
    opened = [open_run(tmp_path / f"of {name}") for name in ("judge", "judge-1", "judge-2")]
    assert [run.served for run in opened] == [{}, {"judge": "judge-1"}, {"judge": "judge-2"}]
    assert "judge answered as: judge-1" in render(opened[1], "md")
    told = [
        [note for note in found.notes if "answered" in note]
        for found in compare(*opened[1:], opened[0])
    ]
    assert told == [
        [f"judge answered as judge-1 in of judge-1 and as {name} in of {name}"]
        for name in ("judge-2", "judge")
    ]


def test_the_difference_is_taken_sample_by_sample(tmp_path: Path) -> None:
    data = pairs(60, "a") + pairs(40, "b")
    worse, better = run(tmp_path / "one", data, 5), run(tmp_path / "two", data, 8)
    (found,) = compare(worse, better)
    assert (found.whole.first, found.whole.second) == (0.5, 0.8)
    assert found.whole.paired.difference == pytest.approx(0.3)
    assert found.whole.paired.interval is not None and found.whole.paired.interval.low > 0.1
    assert (found.n_both, found.n_first_only, found.n_second_only, found.n_unscored) == (
        100,
        0,
        0,
        0,
    )
    assert found.whole.paired.n_clusters == 50, "two rows ask the same"
    assert (found.only_first, found.only_second) == (0, 30)
    assert found.mcnemar_p is None, "rows of one prompt are no two witnesses"
    assert [part.name for part in found.by_subset] == ["a", "b"]
    for part in found.by_subset:
        assert part.p_adjusted is not None and part.paired.p_value is not None
        assert part.p_adjusted >= part.paired.p_value
    assert {one["better"] for one in found.examples} == {"second"} and len(found.examples) == 5
    assert (
        found.examples[0]["second"]["credit"] == 1.0
        and found.examples[0]["second"]["reasons"][0] == "because"
    )
    assert json.loads(json.dumps(found.to_dict()))["whole"]["difference"] == pytest.approx(0.3)
    worse_said, better_said = (
        held_against(open_run(worse), open_run(better)),
        held_against(open_run(better), open_run(worse)),
    )
    assert worse_said[0] and "worse than two by 30.0 points" in worse_said[1] and not better_said[0]


def test_runs_on_the_same_samples_are_corrected_together_and_else_by_holm(tmp_path: Path) -> None:
    """Two candidates that are nearly the same run cost one test, not two; subsets have other rows."""
    data = pairs(60, "a") + pairs(40, "b")
    one, two, three = (run(tmp_path / str(right), data, right) for right in (5, 6, 7))
    wholes = [found.whole for found in compare(one, two, three)]
    assert [part.correction for part in wholes] == ["max-T", "max-T"]
    for part in wholes:
        p, q = part.paired.p_value, part.p_adjusted
        assert p is not None and q is not None and p <= q <= 2 * p
    found = compare(one, two, three)[0]
    assert {part.correction for part in found.by_subset} == {"Holm"}
    assert found.to_dict()["whole"]["correction"] == "max-T"
    fewer = run(tmp_path / "fewer", data[:90], 7)
    assert [found.whole.correction for found in compare(one, two, fewer)] == ["Holm", "Holm"]
    assert compare(one, two)[0].whole.correction is None, "one difference needs none"
    told = command("compare", str(one), str(two), str(three)).out
    assert "p adj.: all by max-T, subsets by Holm" in " ".join(told.split())


def test_whether_the_difference_differs_between_subsets_and_what_would_have_been_seen(
    tmp_path: Path,
) -> None:
    about = {"benchmark": "b", "rule": "r", "data": "d"}
    number = np.arange(200)
    once = (number % 10 < 6) * 1.0
    credits = {"one": once, "two": np.where(number % 7 > 0, once, number % 4 > 0)}
    for name, credit in credits.items():
        rows = [
            row(k, credit=float(credit[k]), subset="xy"[k >= 100], prompt=f"q{k}", id=str(k))
            for k in range(200)
        ]
        write_run(tmp_path / name, rows, report(200), manifest=about)
    (found,) = compare(tmp_path / "one", tmp_path / "two")
    change = credits["two"] - credits["one"]
    by_hand = ttest_ind(change[:100], change[100:], equal_var=False).pvalue
    assert found.heterogeneity == pytest.approx(by_hand, abs=0.02)
    seen = (1.96 + 0.8416) * change.std() / math.sqrt(200)
    assert found.whole.paired.detectable == pytest.approx(seen, rel=0.05)
    assert found.to_dict()["whole"]["detectable"] == found.whole.paired.detectable
    told = " ".join(command("compare", str(tmp_path / "one"), str(tmp_path / "two")).out.split())
    assert "the difference is not shown to differ between subsets, p " in told
    assert (
        f"these would show one of {100 * (found.whole.paired.detectable or 0):.1f} points" in told
    )


def test_samples_that_are_missing_or_unscored_are_said_and_equal_rows_each_compared(
    tmp_path: Path,
) -> None:
    whole = run(tmp_path / "whole", pairs(40), 5)
    part = run(tmp_path / "part", pairs(40), 5, limit=30, fails_from=35)
    (found,) = compare(whole, part)
    failed = sum(row.status == "failed" for row in open_run(part).samples())
    assert failed > 0 and (found.n_both, found.n_first_only, found.n_unscored) == (
        30 - failed,
        10,
        failed,
    )
    assert found.missing == {"first": {}, "second": {"rule": failed}}
    assert found.whole.bounds is not None and found.whole.paired.difference is not None
    assert found.whole.bounds.low <= found.whole.paired.difference < found.whole.bounds.high
    assert "10 samples of whole not compared" in held_against(open_run(part), open_run(whole))[1]
    (found,) = compare(
        run(tmp_path / "one", pairs(20) * 2, 5), run(tmp_path / "two", pairs(20) * 2, 8)
    )
    assert (found.n_both, found.only_second) == (40, 12)


def test_runs_that_overlap_in_part_equal_a_recount_by_pandas(tmp_path: Path) -> None:
    data = pairs(60, "a") + pairs(40, "b")
    one, two = run(tmp_path / "one", data[:83], 5), run(tmp_path / "two", data[20:], 8)
    (found,) = compare(one, two)
    frames = [
        pd.read_json(folder / "samples.jsonl", lines=True)[["key", "subset", "credit"]]
        for folder in (one, two)
    ]
    both = frames[0].merge(frames[1], on=["key", "subset"], suffixes=("_1", "_2"))
    for part, own in [
        (found.whole, both),
        *((part, both[both.subset == part.name]) for part in found.by_subset),
    ]:
        assert (part.first, part.second) == pytest.approx(
            (own.credit_1.mean(), own.credit_2.mean())
        )
        assert part.paired.difference == pytest.approx(
            (own.credit_2 - own.credit_1).mean()
        ) and part.paired.n == len(own)
    assert (found.n_both, found.n_first_only, found.n_second_only) == (63, 20, 17)


@pytest.mark.long("many judgements")
def test_an_interval_that_nearly_holds_0_is_shown_with_the_digits_that_tell(tmp_path: Path) -> None:
    about = {"benchmark": "b", "rule": "r", "data": "d"}
    for name, lost in (("one", range(22)), ("two", range(22, 60))):
        write_run(
            tmp_path / name,
            [row(k, credit=float(k not in lost)) for k in range(2000)],
            report(2000),
            manifest=about,
        )
    said = held_against(open_run(tmp_path / "two"), open_run(tmp_path / "one"))
    assert said == (True, "worse than one by 0.80 points (95 % interval 0.04 to 1.56, n=2000)")


class Takes(BasePairWiseReward):
    """The right answer wins, or the wrong one."""

    name: str = "takes"
    word: str = "right"

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        return ranked(
            self.name, *(float(self.word in output.answer.text) for output in sample.output)
        )


def test_rows_that_were_judged_in_parts_are_compared_as_wholes(tmp_path: Path) -> None:
    styles = ("short", "plain", "# rich")
    data: list[dict[str, Any]] = [
        {"id": str(k), "prompt": f"q{k}", "domain": "chat"} for k in range(6)
    ]
    for k, one in enumerate(data):
        one |= {
            label: [f"{word} {style} {k}" for style in styles]
            for label, word in (("chosen", "right"), ("rejected", "wrong"))
        }
    folders = [tmp_path / word for word in ("wrong", "right")]
    for folder in folders:
        evaluate(Takes(word=folder.name), data, "rm_bench", run_dir=str(folder), progress=False)
    (found,) = compare(*folders)
    assert (found.whole.first, found.whole.second, found.n_both, found.n_unscored) == (
        0.0,
        1.0,
        6,
        0,
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"benchmark": "lists"}, "another benchmark 'pairs' and 'lists'"),
        ({"data": pairs(40, "other")}, "no sample in common"),
    ],
)
def test_runs_of_different_data_or_rules_are_refused(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    settings: dict[str, Any] = {"data": pairs(20), "benchmark": "pairs"}
    one = run(tmp_path / "one", right=5, **settings)
    two = run(tmp_path / "two", right=5, **{**settings, **change})
    with pytest.raises(ConfigError, match=said):
        compare(one, two)


def test_one_prompt_says_nothing_about_others(tmp_path: Path) -> None:
    data = [{**one, "prompt": "the same question"} for one in pairs(40)]
    folders = [run(tmp_path / str(right), data, right) for right in (5, 8)]
    (found,) = compare(*folders)
    paired = found.whole.paired
    assert (paired.interval, paired.p_value, paired.needed, paired.n_clusters) == (None,) * 3 + (1,)
    said = command("compare", *map(str, folders)).out
    assert "no interval from one cluster" in said and "samples would show" not in said


def ties_rows(n: int) -> list[dict[str, Any]]:
    rows = []
    for k in range(n):
        rows.append(
            {
                "id": f"ref:{k}",
                "prompt": f"q{k}",
                "chosen": [f"right {k}"],
                "rejected": [f"wrong {k}"],
            }
        )
        rows.append(
            {
                "id": f"tied:{k}",
                "prompt": f"q{k}",
                "chosen": [f"right {k}"] * 2,
                "rejected": [f"wrong {k}"],
            }
        )
    ties = [{**row, "subset": "Ties"} for row in rows]
    math = [
        {"id": f"m{k}", "prompt": f"m{k}", "chosen": [f"right {k}"], "rejected": [f"wrong {k}"] * 3}
        for k in range(n)
    ]
    return ties + [{**row, "subset": "Math"} for row in math]


def test_the_composite_of_ties_is_compared_as_what_it_is(tmp_path: Path) -> None:
    data = ties_rows(40)
    one, two = (
        run(tmp_path / str(right), data, right, benchmark="rewardbench2") for right in (5, 8)
    )
    (found,) = compare(one, two)
    scores = [open_run(folder).report["score"] for folder in (one, two)]
    assert found.whole.paired.difference == pytest.approx(scores[1] - scores[0])
    ties = next(part for part in found.by_subset if part.name == "Ties")
    assert ties.paired.difference == pytest.approx((ties.second or 0) - (ties.first or 0))
    assert ties.second == open_run(two).report["by_subset"]["Ties"]["score"]
    # runs that overlap in part: both sides are those of the shared rows, as another run of these
    # alone has them
    part = run(tmp_path / "part", data[20:60] + data[90:], 8, benchmark="rewardbench2")
    alone = [
        open_run(
            run(tmp_path / f"alone {k}", data[20:60] + data[90:], k, benchmark="rewardbench2")
        ).report
        for k in (5, 8)
    ]
    (found,) = compare(one, part)
    for difference, figures in [
        (found.whole, alone),
        *((d, [r["by_subset"][d.name] for r in alone]) for d in found.by_subset),
    ]:
        assert [difference.first, difference.second] == pytest.approx(
            [own["score"] for own in figures]
        )
        assert difference.paired.difference == pytest.approx(
            figures[1]["score"] - figures[0]["score"]
        )


def test_a_table_to_cite_holds_no_markup_of_the_data_and_is_saved_as_rewardbench_publishes(
    tmp_path: Path,
) -> None:
    folders = [judged_run(tmp_path / name).folder for name in ("one", "two & <b>")]
    table = run_table(*folders)
    latex, page, words = (render_table(table, form) for form in ("latex", "html", "md"))
    assert (
        re.findall(r"(?<!\\)[&%$#_^~](?! )", re.sub(r"^.*\\usepackage.*$", "", latex, flags=re.M))
        == []
    )
    assert "<script" not in page + words.replace(r"\<", "") and "<b>" not in words.replace(
        r"\<", ""
    )
    assert words.count("12 missing") == 2
    paths = save_results([open_run(folder) for folder in folders], tmp_path / "out")
    assert len(set(paths)) == 4 and {path.parent.name for path in paths} == {
        "eval-set",
        "eval-set-scores",
    }
    saved = [json.loads(path.read_text(encoding="utf-8")) for path in paths[:2]]
    assert saved[0]["Math"] == 0.8 and saved[0]["model"].startswith("judge")
    lengths = {
        len(saved[1][name])
        for name in ("id", "subset", "results", "scores_chosen", "scores_rejected")
    }
    assert lengths == {60} and saved[1]["results"][7] is None is saved[1]["scores_chosen"][7], (
        "missing is no 0"
    )


def test_a_table_says_what_is_not_in_it_and_what_was_not_tested(tmp_path: Path) -> None:
    subsets = ["alpacaeval-easy", "mt-bench-hard", "math-prm", "refusals-dangerous"]
    models = {"chosen_model": "a", "rejected_model": "b"}
    rows = [
        {
            "id": k,
            "prompt": f"q{k}",
            "chosen": "ab" * (k % 9),
            "rejected": "abcdefgh",
            "subset": subsets[k % 4],
            **models,
        }
        for k in range(40)
    ]
    for name, shortest in (("long", False), ("short", True)):
        params = {"shortest": shortest}
        evaluate(
            "length_baseline",
            rows,
            "rewardbench",
            params=params,
            run_dir=str(tmp_path / name),
            progress=False,
        )
    said = " ".join(run_table(tmp_path / "long", tmp_path / "short", sections=True).caption())
    assert said.count("none without a score; not in the figure: subsets: alpacaeval-hard, ") == 2
    assert "Only overall was tested." in said
    assert "Only overall" not in " ".join(
        run_table(tmp_path / "long", tmp_path / "short").caption()
    )


def test_scores_on_another_scale_are_refused_and_never_compared_in_part(tmp_path: Path) -> None:
    # some lengths are 0 or 1, and would be all that is compared
    rows = [{"q": f"q{k}", "a": "x" * (k % 9)} for k in range(40)]
    for name, shortest in (("long", False), ("short", True)):
        params = {"shortest": shortest}
        score_table(
            "length_baseline",
            rows,
            "q",
            "a",
            params=params,
            run_dir=str(tmp_path / name),
            progress=False,
        )
    with pytest.raises(ConfigError, match="no shares from 0 to 1"):
        compare(tmp_path / "long", tmp_path / "short")


def test_two_sets_of_answers_are_no_two_runs_over_the_same_rows(tmp_path: Path) -> None:
    rows = [
        {"q": f"q{k}", "a": "right" if k % 2 else "x", "b": "right" if k % 3 else "x", "r": "right"}
        for k in range(30)
    ]
    for answers in ("a", "b"):
        score_table(
            "accuracy",
            rows,
            "q",
            answers,
            reference="r",
            run_dir=str(tmp_path / answers),
            progress=False,
        )
    with pytest.raises(
        ConfigError, match="10 and 10 rows are in one of them only|rm-gallery winrate"
    ):
        compare(tmp_path / "a", tmp_path / "b")


LABELLED = [
    {"id": f"r{k}", "human": "pass" if k % 3 else "fail", "good": "pass" if k % 3 else "fail"}
    | {"strict": "pass", "a": f"x{k}", "b": "y", "won": "ab"[k % 2]}
    | {"same": "ab"[k % 2], "other": "aab"[k % 3]}
    for k in range(60)
]


def table_run(tmp_path: Path, name: str, *words: str) -> Path:
    """A command over `LABELLED`, kept under a name."""
    file, folder = tmp_path / "rows.csv", tmp_path / name
    pd.DataFrame(LABELLED).to_csv(file, index=False)
    words = tuple(str(file) if word == "FILE" else word for word in words)
    done = command(*words, "--out", str(folder))
    assert done.code in (0, 1), done.err
    return folder


def table_runs(tmp_path: Path, how: str) -> list[Path]:
    """Two judges of a table with labels, the first right in every row, the second in two thirds or
    half of them.
    """
    words: list[tuple[str, ...]]
    if how == "winrate":
        options = ("--labels", "won", "--id", "id")
        words = [("winrate", f"column:{name}", "FILE", *options) for name in ("same", "other")]
    elif how == "score":
        options = ("--labels", "human", "--id", "id")
        words = [("score", f"column:{name}", "FILE", *options) for name in ("good", "strict")]
    else:
        for name in ("good", "strict"):
            config = {"graders": {name: {"grader": f"column:{name}"}}, "labels": "human"}
            (tmp_path / f"{name}.yaml").write_text(json.dumps(config))
        words = [("grade", str(tmp_path / f"{name}.yaml"), "FILE") for name in ("good", "strict")]
    return [table_run(tmp_path, f"{how}{k}", *each) for k, each in enumerate(words)]


@pytest.mark.parametrize(
    ("how", "figure", "scores", "second"),
    [
        ("score", "mean score", ("0.6667", "1"), 2 / 3),
        ("winrate", "win rate", ("50.0", "66.7"), 0.5),
        ("grade", "mean score", ("0.6667", "1"), 2 / 3),
    ],
)
def test_what_a_table_scores_is_no_agreement_with_people(
    tmp_path: Path, how: str, figure: str, scores: tuple[str, str], second: float
) -> None:
    first, other = map(str, table_runs(tmp_path, how))
    done = command("compare", first, other)
    said = " ".join(done.out.split())
    assert f"all {scores[0]} {scores[1]} +" in said
    shown = f"the second has the higher {figure}" in said
    assert shown or "no difference is shown" in said
    assert "is better" not in said and "right in the first" not in said
    assert f"the first agrees more with people: 100.0 and {100 * second:.1f} % alike" in said
    (found,) = compare(first, other)
    assert found.mcnemar_p is None and found.agreement is not None
    assert found.agreement.first == 1.0 and found.agreement.second == pytest.approx(second)
    assert found.agreement.paired.n == 60 and (found.agreement.paired.p_value or 0.0) < 0.001
    # the share that the report of a run tells is that of its rows
    extra = open_run(other).report["extra"]
    about = extra["validation"]["strict"] if how == "grade" else extra["agreement"]
    assert about.get("accuracy", about.get("agreement")) == pytest.approx(second)
    for unfinished in (False, True):
        if unfinished:
            (Path(first) / "report.json").unlink()
        drifted = json.loads(command("drift", first, other, "--json").out)["agreement"]
        assert (drifted["old"], drifted["new"], drifted["n"]) == (1.0, pytest.approx(second), 60)
        assert "is better" not in command("compare", first, other).out


def test_without_labels_nothing_is_said_of_agreement_with_them(tmp_path: Path) -> None:
    runs = [
        str(table_run(tmp_path, name, "score", f"column:{name}", "FILE"))
        for name in ("good", "strict")
    ]
    assert "with people" not in command("compare", *runs).out
    assert "agreement" not in command("drift", *runs).out
    assert json.loads(command("drift", *runs, "--json").out)["agreement"] is None


def test_labels_that_are_numbers_are_no_verdicts_to_agree_with(tmp_path: Path) -> None:
    rows = [{"score": k % 2, "label": 1 + k % 5} for k in range(20)]
    for name in ("one", "two"):
        score_table("column:score", rows, labels="label", run_dir=str(tmp_path / name))
    (found,) = compare(tmp_path / "one", tmp_path / "two")
    assert found.agreement is None


def test_rows_are_the_same_whatever_columns_are_named_as_truth(tmp_path: Path) -> None:
    common = ("winrate", "length_baseline", "FILE", "--prompt", "id", "--a", "a", "--b", "b")
    more: dict[str, tuple[str, ...]] = {
        "plain": (), "reference": ("--reference", "good"), "labels": ("--labels", "won")
    }  # fmt: skip
    runs = [table_run(tmp_path, name, *common, *own) for name, own in more.items()]
    for found in compare(*runs):
        assert (found.n_both, found.n_first_only, found.n_second_only) == (60, 0, 0)
    assert len(run_table(*runs).rows) == 3
    (one, own), *others = [(open_run(folder), RunIndex(folder).refresh()) for folder in runs]
    for other in others:
        assert about_two((one, own), other, 0)["n"] == 60
    texts = table_run(tmp_path, "texts", *(name if name != "a" else "won" for name in common))
    with pytest.raises(ConfigError, match=r"answers \['a', 'b'\] and \['won', 'b'\]"):
        compare(runs[0], texts)
