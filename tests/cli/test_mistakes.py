"""Slips of a first-time user: what is said names the thing and the next step."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from rm_gallery import ConfigError, WeightedSum
from rm_gallery.core.graders.llm import LLMGrader
from rm_gallery.core.runner.grading_runner import build_reward
from rm_gallery.core.utils.file import read_file
from rm_gallery.gallery.benchmarks.lead import contradicted
from rm_gallery.study.mix import check_mix
from rm_gallery.study.winrate import winrate
from tests.support.command import command

PLAIN = "def brief(messages):\n    return 0.5\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [one for one in sys.path if one not in ("", ".")])
    Path("t.csv").write_text("q,a\nq1,x\nq2,y\n")


SCORE = ("t.csv", "--prompt", "q", "--answer", "a")


def test_the_only_function_of_a_file_is_its_reward_and_of_several_all_are_named() -> None:
    Path("one.py").write_text(PLAIN + "def _helper():\n    pass\n")
    Path("two.py").write_text(PLAIN + PLAIN.replace("brief", "long"))
    assert command("score", "one.py", *SCORE).code == 0 and build_reward("one.py").name == "brief"
    with pytest.raises(ConfigError, match="as in two.py:NAME; it holds brief, long"):
        build_reward("two.py")
    with pytest.raises(ConfigError, match="Did you mean brief"):
        build_reward("two.py:breif")
    with pytest.raises(ConfigError, match="it holds none"):
        build_reward("env:one.py")


@pytest.mark.parametrize(
    "name", ["dec.py:0.2", "dec.py:0,2", "dec.py:2", "dec.py:brief:-0.5", "math_verify_reward:0.2"]
)
def test_a_weight_where_none_is_taken_is_called_one(name: str) -> None:
    Path("dec.py").write_text(PLAIN)
    done = command("score", name, *SCORE)
    assert done.code == 2 and f"{name} ends in a weight, which check-reward alone takes" in done.err
    assert "elsewhere name a FILE that holds a WeightedSum" in done.err and "prefix" not in done.err


def test_a_module_of_the_working_directory_is_taken_by_commands_too() -> None:
    Path("module_here.py").write_text(PLAIN)
    assert command("score", "func:module_here:brief", *SCORE).code == 0
    with pytest.raises(ConfigError, match="as a module it cannot be imported"):
        build_reward("func:module_nowhere:brief")


def test_a_variable_that_nothing_reads_is_named_once_with_the_nearest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert "nothing reads" not in command("list").err
    monkeypatch.setenv("RM_GALLERY_MAXCALLS", "10")
    monkeypatch.setenv("RM_GALLERY_XXQQ", "1")
    [line] = [line for line in command("list").err.splitlines() if "nothing reads" in line]
    assert (
        "RM_GALLERY_MAXCALLS is no setting (RM_GALLERY_MAX_CALLS is); RM_GALLERY_XXQQ is no "
        "setting." in line
    )


def test_labels_that_are_all_the_same_refute_nobody() -> None:
    rows = [
        {"q": f"q{k}", "new": "x" * (k + 2), "old": "x" if k else "xxx", "human": "a"}
        for k in range(12)
    ]
    told = winrate(
        "length_baseline", rows, "q", ["new", "old"], labels="human", progress=False
    ).to_dict()
    assert (
        told["extra"]["agreement"]["kappa"] is None
        and told["extra"]["agreement"]["agreement"] > 0.5
    )
    assert (
        not contradicted(told) and "agrees with people more than chance is unknown" in told["worth"]
    )
    unknown = {
        "rule": "mean_score",
        "score": 0.5,
        "extra": {"agreement": {"n": 9, "spearman": None}},
    }
    assert not contradicted(unknown)
    assert contradicted({**unknown, "extra": {"agreement": {"n": 9, "spearman": -0.2}}})


def test_a_part_inside_its_own_range_is_no_fault_and_the_uneven_weight_names_the_option() -> None:
    Path("stars.py").write_text(
        "from rm_gallery import reward_function\n\n@reward_function(score_range=(1, 10))\ndef "
        "stars(messages, **kwargs):\n"
        '    return 10.0 if "42" in messages[-1].text else 7.0\n'
    )
    found = check_mix({"math_verify_reward": 1.0, "stars.py": 0.1}).whole
    named = {finding.name: finding.what for finding in found.findings}
    assert "outside_0_1" not in named and "--normalize" in named["uneven_weights"]


def test_a_null_answer_is_a_bad_row_and_an_empty_one_is_judged() -> None:
    Path("rows.jsonl").write_text('{"prompt": "q", "chosen": "long", "rejected": ""}\n')
    assert '"n_scored": 1' in command(
        "eval", "length_baseline", "rows.jsonl", "--json"
    ).out.replace('":', '": ').replace(":  ", ": ")
    Path("rows.jsonl").write_text('{"prompt": "q", "chosen": "long", "rejected": null}\n')
    done = command("eval", "length_baseline", "rows.jsonl")
    assert done.code == 2 and "column 'rejected': expected an answer, found null" in done.err


@pytest.mark.parametrize(
    "call",
    [
        f"{call} {where}"
        for call in (
            "score length_baseline t.csv --prompt q --answer a --out",
            "score length_baseline t.csv --prompt q --answer a --export",
            "audit length_baseline --out",
            "init",
            "serve-token create me --tokens",
        )
        for where in ("taken", "taken/in.csv")
    ],
)
def test_a_place_that_cannot_be_written_is_a_line_without_numbers(call: str) -> None:
    """`[Errno 17]` is no word of a user's."""
    Path("taken").write_text("a file\n")
    done = command(*call.split())
    said = done.err.splitlines()[-1]
    assert done.code == 2 and "taken" in said and "Errno" not in done.err + done.out


@pytest.mark.parametrize("text", ["q,a\rq1,x\rq2,y\r", "q,a\nq1,x\ry\n"])
def test_line_ends_of_an_old_system_are_called_by_their_name(text: str) -> None:
    """Python's own words name a mode of its open() that is gone."""
    Path("old.csv").write_bytes(text.encode())
    done = command("score", "length_baseline", "old.csv", *SCORE[1:])
    assert done.code == 2 and done.err.endswith("save the file with line ends LF or CRLF\n")
    assert "carriage return" in done.err and "universal" not in done.err


def test_an_unknown_sample_is_answered_with_ids_that_are_there() -> None:
    assert command("score", "length_baseline", *SCORE, "--out", "run").code == 0
    done = command("explain", "run", "zzz")
    assert done.code != 0 and "has no sample 'zzz'; ids are such as " in done.err


@pytest.mark.parametrize(
    ("call", "text"),
    [
        ("grade {} t.csv", "graders:\n  brief: {}\n  brief: {grader: long}\n"),
        ("serve --config {}", "rewards:\n  brief: {reward: a}\n  brief: {reward: b}\n"),
        ("score accuracy t.csv --prompt q --answer a --prices {}", "# a\nbrief: {}\nbrief: {}\n"),
        ("list", "# a\nbrief: 1\nbrief: 2\n"),
        ("score rubric:{} t.csv --prompt q --answer a", "# a\nbrief: 1\nbrief: 2\n"),
    ],
)  # fmt: skip
def test_a_key_that_stands_twice_in_a_yaml_file_is_refused_by_line(
    call: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last one won, and a grader was dropped without a word."""
    Path("c.yaml").write_text(text)
    if "{}" not in call:
        monkeypatch.setenv("RM_GALLERY_CONFIG", "c.yaml")
    done = command(*call.format("c.yaml").split())
    assert done.code == 2
    assert "line 3: the key 'brief' stands there already in line 2; rename or remove" in done.err


def test_aliases_merged_mappings_and_keys_of_other_types_are_no_repetition(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("a: &a {x: 1, y: &y {z: 1}}\nb: {<<: *a, x: 2}\nc: [*a, *y]\n1: 0\n'1': 0\n")
    assert read_file(path)["b"] == {"x": 2, "y": {"z": 1}}
    path.write_text("{a: 1, a: 2}")
    with pytest.raises(ConfigError, match="a.yaml: line 1: the key 'a' stands there already"):
        read_file(path)


def test_a_file_that_is_nested_too_deep_ends_no_process(tmp_path: Path) -> None:
    """libyaml recurses in C: a segmentation fault."""
    path = tmp_path / "deep.yaml"
    path.write_text("[" * 100_000)
    with pytest.raises(ConfigError, match="deep.yaml: nested more than 100 levels deep"):
        read_file(path)


def test_two_spellings_of_one_field_are_refused_with_both() -> None:
    both: dict[str, Any] = {"prompt": "Rate {response}", "template": "Judge {response}"}
    with pytest.raises(ConfigError, match="LLMGrader: prompt and template are one field; give one"):
        LLMGrader(**both)


def test_weights_without_names_are_refused_with_the_names() -> None:
    with pytest.raises(
        ConfigError,
        match=r"weights is \[1, 0.2\]; give them by name: weights=\{'length_baseline': …, 'boxed_answer': …\}",
    ):
        WeightedSum(["length_baseline", "boxed_answer"], weights=[1, 0.2])  # type: ignore[arg-type]


@pytest.mark.parametrize("more", [(), ("--fuzz", "3")])
def test_cases_without_a_task_or_an_answer_name_the_columns(more: tuple[str, ...]) -> None:
    Path("one.py").write_text(PLAIN)
    Path("judged.csv").write_text("id,human,judge\nr0,pass,correct\n")
    done = command("check-reward", "one.py", "--cases", "judged.csv", *more)
    assert done.code == 2 and "nothing_scored" not in done.out
    for said in ("prompt", "gold", "--reference", "the columns are: id, human, judge"):
        assert said in done.err
    assert (
        command("check-reward", "one.py", "--cases", "judged.csv", "--reference", "human").code < 2
    )


TYPED = [
    ("score r t.csv --limit -5", "--limit: found -5; give a whole number of 1 or more."),
    ("check-reward r --fuzz 0", "--fuzz: found 0; give a whole number of 1 or more."),
    ("score r t.csv --fail-under abc", "--fail-under: found abc; give a number."),
    ("view run --port 99999", "--port: found 99999; give a whole number from 0 to 65535."),
    ("score r t.csv --limitt 3", "There is no option --limitt. Did you mean --limit"),
    ("score r t.csv --max-callz 3", "Did you mean --config budget.max_calls="),
    ("score r t.csv --limit", "'--limit' requires an argument."),
    ("score r t.csv b c", "(b c)."),
    ("score", "REWARD is missing."),
    ("evaluators deploy -m a=b", "--id is missing."),
    ("scor r", "There is no command 'scor'. Did you mean score"),
    ("serve-token creat", "There is no command 'creat'. Did you mean create"),
    ("--nope", "There is no option --nope."),
]


@pytest.mark.parametrize(("call", "fault"), TYPED, ids=[call for call, _ in TYPED])
def test_a_command_line_that_cannot_be_read_is_refused_in_one_line(call: str, fault: str) -> None:
    done = command(*call.split())
    words = [each for each in call.split()[:2] if each in ("serve-token", "evaluators", "deploy")]
    words = words or [each for each in call.split()[:1] if each[0] != "-" and each != "scor"]
    [line] = done.err.splitlines()
    assert done.code == 2 and done.out == "" and line.startswith("rm-gallery: ")
    assert fault in line and line.endswith(f"See {' '.join(['rm-gallery', *words])} --help")


def test_a_value_of_the_environment_that_is_refused_names_its_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RM_GALLERY_LIMIT", "few")
    [line] = command("score", "length_baseline", *SCORE).err.splitlines()
    assert "environment, RM_GALLERY_LIMIT: --limit: found few;" in line


@pytest.mark.parametrize(
    "call",
    [
        "winrate t.csv length_baseline --prompt q --a a --b a",
        "score t.csv column:a",
        "eval t.csv length_baseline",
        "audit t.csv length_baseline",
        "rejudge t.csv length_baseline",
        "conflicts t.csv dec.py",
        "bench rewardbench2 length_baseline",
    ],
)
def test_a_reward_behind_what_it_judges_is_put_first_by_every_command(call: str) -> None:
    name, data, reward, *_ = call.split()
    done = command(*call.split())
    assert done.code == 2 and done.err == (
        f"rm-gallery: {reward} is a reward, and the reward comes first: rm-gallery {name} {reward} "
        f"{data}. See rm-gallery {name} --help\n"
    )


def judged_rows() -> None:
    rows = [f"r{k},{'pass' if k % 3 else 'fail'},{'yes' if k % 2 else 'no'}\n" for k in range(12)]
    Path("judged.csv").write_text("id,human,judge\n" + "".join(rows))


@pytest.mark.parametrize(
    "call",
    [
        "judge-select column:judge column:judg judged.csv --labels human",
        "score column:judg judged.csv --labels human",
    ],
)
def test_a_misspelt_column_of_verdicts_is_named_with_the_nearest(call: str) -> None:
    judged_rows()
    done = command(*call.split())
    said = done.err.splitlines()[-1]
    assert done.code == 2
    assert said.startswith("rm-gallery: column:judg: There is no column 'judg'. Did you mean judge")


def test_missing_labels_name_their_option_and_a_strange_one_what_is_taken() -> None:
    judged_rows()
    call = ("judge-select", "column:judge", "column:human", "judged.csv")
    done = command(*call)
    assert done.code == 2 and "--labels" in done.err and "None" not in done.err
    Path("judged.csv").write_text("id,human,judge\nr0,pass,yes\nr1,maybe,no\n")
    for words in (call, ("score", "column:judge", "judged.csv")):
        done = command(*words, "--labels", "human")
        assert done.code == 2 and "'maybe'" in done.err
        assert all(word in done.err for word in ("a number", "pass", "good", "bad", "tie"))


def test_a_judge_that_cannot_be_read_has_no_score_before_any_correction() -> None:
    rows = [f"r{k},{'pass' if k % 3 else 'fail'},helpful\n" for k in range(12)]
    Path("judged.csv").write_text("id,human,judge\n" + "".join(rows))
    done = command("score", "column:judge", "judged.csv", "--labels", "human")
    assert done.out.startswith("column:judge has no score")
    assert "By 12 labels of people alone the figure is" in " ".join(done.out.split())


@pytest.mark.parametrize(("high", "low", "differ"), [("5", "2", True), ("1", "0", False)])
def test_labels_in_another_unit_than_the_scores_are_pointed_out(
    high: str, low: str, differ: bool
) -> None:
    rows = [f"r{k},{high if k % 3 else low},{k % 2}\n" for k in range(24)]
    Path("judged.csv").write_text("id,human,judge\n" + "".join(rows))
    done = command("score", "column:judge", "judged.csv", "--labels", "human", "--json")
    said = "24 labels lie outside the range of the scores (0 to 1): they may be in another unit"
    assert (said in done.out) is differ


OWN = "from rm_gallery import reward_function\n\n\n@reward_function\n"


def test_every_reward_that_misses_its_reference_names_the_option() -> None:
    Path("own.py").write_text(f"{OWN}def own(messages, ground_truth):\n    return 1.0\n")
    for name in ("own.py", "accuracy"):
        assert "name the column with --reference" in command("score", name, *SCORE).err


@pytest.mark.parametrize(
    ("parameter", "given", "found"),
    [
        ("limit=40", "limit=abc", "limit is 'abc'; give a number, as in --param limit=1."),
        ("limit: float = 1", "limit=true", "limit is True; give a number"),
        ("strict=False", "strict=maybe", "strict is 'maybe'; give true or false"),
    ],
)
def test_a_parameter_of_a_function_is_checked_before_the_first_row(
    parameter: str, given: str, found: str
) -> None:
    Path("own.py").write_text(f"{OWN}def own(messages, {parameter}):\n    return 1.0\n")
    done = command("score", "own.py", *SCORE, "--param", given)
    assert done.code == 2 and found in done.err and done.out == ""
    name = given.partition("=")[0]
    assert (
        command("score", "own.py", *SCORE, "--param", f"{name}=3").code == int(name == "strict") * 2
    )


def test_a_refused_parameter_of_a_rule_says_what_was_found() -> None:
    done = command("score", "length_baseline", *SCORE, "--param", "shortest=maybe")
    assert done.code == 2 and "shortest: " in done.err and "found 'maybe'" in done.err


@pytest.mark.parametrize(("option", "value"), [("--precision", "3"), ("--detect", "5")])
def test_a_plan_in_points_names_its_option_and_shares(option: str, value: str) -> None:
    done = command("plan", option, value)
    assert done.code == 2 and f"({option}) is {value}" in done.err
    assert "3 points are 0.03" in done.err and "--sd" in done.err


def test_what_a_check_could_not_try_is_said_with_the_reason() -> None:
    Path("own.py").write_text(
        f"{OWN}def own(messages, ground_truth):\n"
        "    return float(messages[-1].text.strip() == ground_truth)\n"
    )
    done = command("check-reward", "own.py")
    said = " ".join(done.out.split())
    assert (
        "not tried: truncated, hollow, wrong, all answers, off-format: no gold completion" in said
    )
    boxed = command("check-reward", "math_verify_reward")
    assert "not tried" not in boxed.out


def test_rows_that_all_have_one_id_are_counted() -> None:
    Path("same.csv").write_text("id,q,a\n" + "x,q,y\n" * 5)
    done = command("score", "length_baseline", "same.csv", *SCORE[1:], "--id", "id")
    assert (
        done.code == 2
        and "gives 5 of 5 rows an id that another has: 'x' stands 5 times" in done.err
    )


def test_a_benchmark_whose_rows_a_checkout_has_names_them() -> None:
    assert "data/test.parquet" in command("bench", "length_baseline", "rewardbench2").err
    [line] = [one for one in command("bench", "--list").out.splitlines() if "test.parquet" in one]
    assert line.startswith("rewardbench2 ")
