"""Which models a reward asks, at any depth, and who names the judge of a part that was given by
name.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rm_gallery import (
    Cascade,
    ConfigError,
    Gate,
    GraderRegistry,
    OpenaiLLM,
    RewardRegistry,
    Stage,
    WeightedSum,
    reward_function,
)
from rm_gallery.cli.serve import named_rewards
from rm_gallery.core.reward.judges import asks_a_model, lacking, models_of, most_calls, with_judge
from rm_gallery.core.runner.grading_runner import build_reward, judges_for
from rm_gallery.integrations.openrlhf import openrlhf_reward
from rm_gallery.integrations.trl import trl_rewards
from rm_gallery.integrations.verl import verl_reward
from rm_gallery.study.mix import check_mix
from rm_gallery.study.task import judge_of
from tests.support.command import command
from tests.support.samples import make_sample

JUDGED = "base_helpfulness_pointwise"
REPLY = "fake:<score>7</score>"


def model(name: str) -> OpenaiLLM:
    """A judge that is never called."""
    return OpenaiLLM(model=name, api_key="k", base_url="http://127.0.0.1:1/v1")


JUDGE = RewardRegistry.create(JUDGED, llm=model("a"))


@reward_function
def rule(messages: Any, **kwargs: Any) -> float:
    """No model."""
    return 1.0


def _helper() -> Any:
    return JUDGE


@reward_function
def through_a_helper(messages: Any, **kwargs: Any) -> float:
    """A judge that a helper of this file asks."""
    return float(_helper() is not None)


def _closing_over(judge: Any) -> Any:
    @reward_function
    def closing(messages: Any, **kwargs: Any) -> float:
        return float(judge is not None)

    return closing


class Environment:
    """Keeps its judge in an attribute."""

    def __init__(self) -> None:
        self.tools = [JUDGE]

    def compute_reward(self, messages: Any, **kwargs: Any) -> float:
        """No call here."""
        return 1.0


def grader() -> Any:
    return GraderRegistry.create("relevance", llm=model("a"))


ASKING: dict[str, Any] = {
    "reward": lambda: JUDGE,
    "sum": lambda: WeightedSum({"g": rule, "j": JUDGE}),
    "gate": lambda: Gate("boxed_answer", JUDGE),
    "cascade": lambda: Cascade(Stage(rule, stop_above=0.9), JUDGE),
    "nested": lambda: WeightedSum({"a": Gate(rule, WeightedSum({"x": JUDGE}), otherwise=0.0)}),
    "grader": grader,
    "grader in a sum": lambda: WeightedSum({"g": rule, "j": grader()}),
    "closure": lambda: build_reward(_closing_over(JUDGE)),
    "partial in a closure": lambda: build_reward(_closing_over(partial(JUDGE.evaluate))),
    "helper": lambda: build_reward(through_a_helper),
    "environment": lambda: build_reward(Environment()),
}


@pytest.mark.parametrize("made", ASKING.values(), ids=ASKING)
def test_a_model_is_known_wherever_it_is_held(made: Any) -> None:
    reward = made()
    assert asks_a_model(reward) and [one.model for one in models_of(reward)] == ["a"]
    assert judge_of(reward)[0] == "a"
    with pytest.raises(ConfigError, match=r"is built already|asks a already"):
        build_reward(reward, llm="fake:other")
    with pytest.raises(ConfigError, match="a already, named where it is made; leave out --llm"):
        judges_for([reward], "fake:other", None)
    assert most_calls(reward, make_sample("a", "b")) == 2


@pytest.mark.parametrize(
    "made", [lambda: build_reward(rule), lambda: WeightedSum({"a": rule, "b": "length_penalty"})]
)
def test_a_rule_asks_nobody(made: Any) -> None:
    assert not asks_a_model(made()) and models_of(made()) == [] and judge_of(made()) == (None, None)
    with pytest.raises(ConfigError, match="no model; leave out --llm"):
        judges_for([made()], "fake:a", None)


class Silent:
    """Asks nobody."""

    def compute_reward(self, messages: Any, **kwargs: Any) -> float:
        """One for everything."""
        return 1.0


@pytest.mark.parametrize(
    "spelled",
    [rule, f"func:{__name__}:rule", Silent, Silent(), f"env:{__name__}:Silent"],
    ids=["function", "its name", "class", "object", "name of its class"],
)
def test_a_judge_in_vain_is_refused_alike_however_a_reward_is_spelled(spelled: Any) -> None:
    for refuse in (build_reward, lambda one, llm: judges_for([one], llm, None)):
        with pytest.raises(ConfigError, match="calls no model; leave out --llm and --base-url"):
            refuse(spelled, llm="fake:a")


def test_two_judges_are_both_named() -> None:
    total = WeightedSum({"a": JUDGE, "b": RewardRegistry.create(JUDGED, llm=model("b"))})
    assert judge_of(total)[0] == "a, b"


BY_NAME: dict[str, Any] = {
    "sum": lambda **judge: WeightedSum({"g": rule, "j": JUDGED}, **judge),
    "list": lambda **judge: WeightedSum([rule, JUDGED], **judge),
    "normalized": lambda **judge: WeightedSum({"g": rule, "j": JUDGED}, normalize=True, **judge),
    "gate": lambda **judge: Gate(rule, JUDGED, **judge),
    "cascade": lambda **judge: Cascade(
        Stage(rule, stop_above=2.0, stop_below=-1.0), JUDGED, **judge
    ),
    "nested": lambda **judge: WeightedSum({"a": Gate(rule, JUDGED)}, **judge),
    "grader": lambda **judge: WeightedSum({"j": "grader:relevance"}, **judge),
}


@pytest.mark.parametrize("made", BY_NAME.values(), ids=BY_NAME)
def test_parts_given_by_name_take_their_judge_when_built_or_from_what_uses_them(made: Any) -> None:
    bare = made()
    assert lacking(bare) and asks_a_model(bare)
    with pytest.raises(ConfigError, match="a model and none is named; say which with --llm MODEL"):
        bare.check()
    for reward in (
        made(llm=model("m")),
        build_reward(bare, llm=model("m")),
        build_reward(bare, **judges_for([bare], model("m"), None)[0]),
    ):
        assert not lacking(reward) and [one.model for one in models_of(reward)] == ["m"]
        reward.check()
    assert lacking(bare), "the reward that was given stays as it is"
    assert (
        made(llm=model("m")).settings_hash
        == build_reward(bare, llm=model("m")).settings_hash
        != bare.settings_hash
    )
    with pytest.raises(ConfigError, match="asks m already"):
        WeightedSum({"x": made(llm=model("m"))}, llm="fake:other")


def test_a_judge_that_is_named_is_kept_and_only_what_lacks_one_is_filled() -> None:
    total = WeightedSum({"a": JUDGE, "b": JUDGED}, llm=model("b"))
    assert [one.model for one in models_of(total)] == ["a", "b"]
    assert with_judge(rule, model("c")) is rule


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text("q,a,b\n" + "".join(f"q{i},answer {i},other {i}\n" for i in range(6)))
    Path("mix.py").write_text(
        "from rm_gallery import RewardRegistry, WeightedSum\n"
        f"named = WeightedSum({{'g': 'length_penalty', 'j': {JUDGED!r}}})\n"
        f"total = WeightedSum({{'g': 'length_penalty', 'j': RewardRegistry.create({JUDGED!r}, "
        f"llm={REPLY!r})}})\n"
    )
    return tmp_path


TABLES = (("score", "--answer", "a"), ("winrate", "--a", "a", "--b", "b"))


@pytest.mark.parametrize("words", TABLES, ids=lambda words: words[0])
def test_a_table_command_announces_the_calls_of_a_part_and_names_its_judge(
    table: Path, words: tuple[str, ...]
) -> None:
    asked = ("t.csv", "--prompt", "q", *words[1:])
    answers = 6 * (1 if words[0] == "score" else 2)
    done = command(words[0], "mix.py:total", *asked, "--dry-run")
    assert f"at most {answers} calls of fake" in done.out + done.err
    assert "no calls" not in done.out + done.err
    done = command(words[0], "mix.py:total", *asked, "--llm", "fake:other")
    assert done.code == 2 and "mix.py:total asks fake already" in done.err
    done = command(words[0], "mix.py:named", *asked)
    assert (
        done.code == 2
        and "mix.py:named is judged by a model and none is named; say which with --llm MODEL"
        in done.err
    )
    done = command(words[0], "mix.py:named", *asked, "--llm", REPLY, "--json")
    assert f"at most {answers} calls of fake" in done.err
    assert '"judge": "fake"' in done.out.replace('":"', '": "')


def test_the_line_for_a_server_runs_as_it_stands(table: Path) -> None:
    mix = check_mix({"boxed_answer": 1.0, JUDGED: 0.1}, CASES, llm=REPLY)
    Path("pasted.py").write_text("\n".join(mix.lines()[:2]) + "\n")
    [line] = [line for line in mix.lines() if line.startswith("server ")]
    reward = line.partition(" --reward ")[2].partition(",")[0].replace("FILE", "pasted.py")
    named_rewards([reward], None, None, None)["total"].check()


CASES = [{"prompt": "q", "gold": "an answer", "reference": "an answer"}]


def test_adapters_name_the_judge_of_a_composition_and_the_first_use_without_one_says_so() -> None:
    bare = WeightedSum({"g": rule, "j": JUDGED})
    for make in (
        verl_reward,
        openrlhf_reward,
        lambda reward, **judge: trl_rewards([reward], **judge),
    ):
        make(bare, llm=REPLY)
        with pytest.raises(ConfigError, match="none is named"):
            make(bare)
    with pytest.raises(ConfigError, match="none is named"):
        bare.evaluate(make_sample("a"))
