"""A weighted sum tried as what trains: what games it, through which part, and how trainers are
given it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rm_gallery import ConfigError, WeightedSum
from rm_gallery.core.reward.schema import sample_of
from rm_gallery.study.mix import check_mix, weighted
from tests.integrations.adapters import ADAPTERS, Row, waited
from tests.support.command import command

BRIEF = """from rm_gallery import reward_function


@reward_function(score_range=(0, 1))
def brief(messages, **kwargs):
    return min(1.0, 20 / max(1, len(messages[-1].text.split())))
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("brief.py").write_text(BRIEF)


def test_weights_are_told_from_names() -> None:
    assert weighted("math:1") == ("math", 1.0) and weighted("file.py:brief:-0.2") == (
        "file.py:brief",
        -0.2,
    )
    assert weighted("file.py:brief") == ("file.py:brief", None) and weighted("bt:model:1e-3") == (
        "bt:model",
        0.001,
    )
    with pytest.raises(ConfigError, match="finite"):
        weighted("math:1e999")


def test_a_heavy_part_games_the_sum_and_is_named() -> None:
    light, heavy = (
        check_mix({"math_verify_reward": 1.0, "brief.py": weight}) for weight in (0.1, 0.9)
    )
    assert light.faults == [] and light.whole.full == pytest.approx(1.1)
    wrong = next(finding for finding in heavy.faults if finding.name == "empty_rewarded")
    assert heavy.through[wrong.name] == "brief pays 0.9" and "47 %" in wrong.what
    assert all(
        finding.level == "note" for part in heavy.parts.values() for finding in part.findings
    )
    assert heavy.to_dict()["passed"] is False and heavy.to_dict()["weights"] == {
        "math_verify": 1.0,
        "brief": 0.9,
    }


def test_the_lines_for_trainers_are_code_that_works() -> None:
    lines = check_mix([("math_verify_reward", 1.0), ("boxed_answer", 0.5)]).lines()
    known: dict[str, Any] = {}
    for line in (*lines[:2], *(line.split(None, 1)[1] for line in lines[2:5])):
        exec(line, known)
    assert isinstance(known["total"], WeightedSum)
    assert known["reward_weights"] == [1, 0.5] and len(known["reward_funcs"]) == 2
    assert callable(known["compute_score"]) and callable(known["reward_func"])


@pytest.mark.parametrize("normalize", [False, True])
def test_the_lines_of_a_mix_with_a_judge_score_alike_in_every_trainer(normalize: bool) -> None:
    """Each line is run as it is printed, and what it makes is called."""
    mixed = [("brief.py", 1.0), ("safety_pointwise_reward", 0.5)]
    judge = "fake:<score>3</score>"
    lines = check_mix(mixed, llm=judge, normalize=normalize, progress=False).lines()
    known: dict[str, Any] = {}
    for line in (*lines[:2], *(line.split(None, 1)[1] for line in lines[2:5])):
        exec(line, known)
    row = Row("6 * 7?", "42", "42")
    paid = {
        "verl.verl_reward": [(known["compute_score"], 1.0)],
        "openrlhf.openrlhf_reward": [(known["reward_func"], 1.0)],
        "trl.trl_reward": list(
            zip(known["reward_funcs"], known.get("reward_weights", [1.0]), strict=True)
        ),
    }
    (whole,) = known["total"].evaluate(sample_of(row.prompt, row.completion, reference="42")).output
    for name, functions in paid.items():
        call, score = ADAPTERS[name].call, ADAPTERS[name].score
        scores = [(score(waited(call(made, row))), weight) for made, weight in functions]
        assert sum(value * weight for value, weight in scores) == pytest.approx(
            whole.answer.reward.score
        ), name


@pytest.mark.long("many judgements")
def test_the_command_takes_several_files_weights_and_roles() -> None:
    done = command("check-reward", "math_verify_reward:1", "brief.py:0.2")
    assert done.code == 0 and "brief (weight 0.2) by itself: empty_rewarded" in done.out, done.err
    assert command("check-reward", "math_verify_reward:1", "brief.py:0.9").code == 1
    told = json.loads(command("check-reward", "math_verify_reward:1", "brief.py:0.2", "--json").out)
    assert told["passed"] and told["parts"]["brief"]["reward"] == "brief"
    both = command("check-reward", "brief.py", "math_verify_reward", "--json")
    assert both.code == 1 and [one["passed"] for one in json.loads(both.out)] == [False, True]
    assert command("check-reward", "brief.py", "--role", "shaping").code == 0
    for wrong in (
        ["math_verify_reward:1"],
        ["brief.py:1", "brief.py:2"],
        ["brief.py", "--role", "minor"],
        ["a:1", "b:1", "--param", "x=1"],
    ):
        assert command("check-reward", *wrong).code == 2


STARS = """from rm_gallery import reward_function


@reward_function(score_range=(1, 10))
def stars(messages, **kwargs):
    return 10.0 if "42" in messages[-1].text else 7.0


@reward_function(score_range=(0, None))
def open_ended(messages, **kwargs):
    return float(len(messages[-1].text))
"""


def test_a_small_weight_with_the_larger_say_is_named_and_normalising_takes_it_away() -> None:
    Path("stars.py").write_text(STARS)
    mix = {"math_verify_reward": 1.0, "brief.py": 0.2, "stars.py:stars": 0.1}
    raw, even = check_mix(mix), check_mix(mix, normalize=True)
    assert raw.pays == {"math_verify": (0.0, 1.0), "brief": (0.0, 0.2), "stars": (0.1, 1.0)}
    assert even.pays == {"math_verify": (0.0, 1.0), "brief": (0.0, 0.2), "stars": (0.0, 0.1)}
    [said] = [finding.what for finding in raw.whole.findings if finding.name == "uneven_weights"]
    assert said.startswith(
        "'stars' has the weight 0.1 and moves the sum by up to 0.9; 'brief' has 0.2 and moves it "
        "by 0.2"
    )
    assert not [
        finding
        for finding in even.whole.findings
        if finding.name in ("uneven_weights", "outside_0_1")
    ]
    assert raw.whole.full == pytest.approx(2.2) and even.whole.full == pytest.approx(1.3)
    assert raw.to_dict()["pays"]["stars"] == [0.1, 1.0] and even.to_dict()["normalize"] is True
    lines = even.lines()
    assert (
        lines[1].endswith("normalize=True)")
        and "trl_rewards([total])" in lines[2]
        and "normalize" not in raw.lines()[1]
    )


def test_the_command_says_what_each_part_pays_and_normalises() -> None:
    Path("stars.py").write_text(STARS)
    parts = ("math_verify_reward:1", "stars.py:stars:0.1")
    done = command("check-reward", *parts)
    assert (
        "in the sum it pays 0.1 to 1" in done.out
        and "note: uneven_weights: 'stars' has the weight 0.1" in done.out
    )
    done = command("check-reward", *parts, "--normalize")
    assert "in the sum it pays 0 to 0.1" in done.out and "uneven_weights" not in done.out
    done = command("check-reward", "math_verify_reward:1", "stars.py:open_ended:0.1", "--normalize")
    assert (
        done.code == 2
        and "normalize maps 'open_ended' to [0, 1], and its range (0, None) is open" in done.err
    )
    assert len(done.err.strip().splitlines()) == 1
    done = command("check-reward", "math_verify_reward", "--normalize")
    assert done.code == 2 and "--normalize maps the parts of a sum" in done.err
    done = command("check-reward", "math_verify_reward:1", "stars.py:open_ended:0.1")
    assert "nobody knows what it can pay, since its range is open" in done.out
