"""What every target gets for a completion that is scored, unscored or failed, and what misuse says: one table."""

from __future__ import annotations

import asyncio
import importlib
import json
import pickle
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from loguru import logger

from rm_gallery import (
    BasePointWiseReward,
    ConfigError,
    DataSample,
    RewardDimensionWithScore,
    RewardResult,
    Unscored,
)
from rm_gallery.integrations.areal import areal_reward, areal_workflow
from rm_gallery.integrations.benchmax import BenchmaxRewards
from rm_gallery.integrations.callables import endpoint_function, langfuse_evaluator, langsmith_evaluator
from rm_gallery.integrations.nemo_rl import RewardEnvironment
from rm_gallery.integrations.openenv import RolloutReward, openenv_rubric
from rm_gallery.integrations.openrlhf import openrlhf_reward
from rm_gallery.integrations.scoring import NoScore, RowScorer
from rm_gallery.integrations.slime import slime_reward
from rm_gallery.integrations.trl import trl_reward
from rm_gallery.integrations.verifiers import verifiers_reward
from rm_gallery.integrations.verl import verl_reward

ROOT = Path(__file__).resolve().parents[2]
DEAD = "http://127.0.0.1:9/v1"
"""Where nobody listens."""


class Moody(BasePointWiseReward):
    """The length of an answer, with a part; unscored for "none", an error for "fail"."""

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        text = sample.output[0].answer.text
        if "none" in text:
            raise Unscored("nothing to judge by", reason="no_reference")
        if "fail" in text:
            raise RuntimeError("the judge is gone")
        details = [RewardDimensionWithScore(name=self.name, score=float(len(text)))]
        return RewardResult(name=self.name, details=list(details), extra_data={"metrics": {"words": 1.0}})


Row = Mapping[str, Any]


class Target(NamedTuple):
    """How its object is made, how the target calls it for one completion, and what it then reads."""

    make: Callable[..., Any]
    call: Callable[[Any, str, Row], Any]
    scored: Any
    unscored: Any
    failed: Any


NO_SCORE = "NoScore"
"""The call raised, which is the target's own way to leave a completion out."""


def sample(text: str, row: Row) -> SimpleNamespace:
    """A sample of slime's."""
    return SimpleNamespace(prompt="q", response=text, label=None, metadata=dict(row), remove_sample=False)


def slime(made: Any, text: str, row: Row) -> Any:
    one = sample(text, row)
    reward = asyncio.run(made(SimpleNamespace(reward_key="score", eval_reward_key=None), one))
    return reward, one.remove_sample


class Env(BenchmaxRewards):
    """A user's environment, told its rewards where it is made."""

    def __init__(self, reward: Any, **settings: Any) -> None:
        self.on_error = settings.pop("on_error", "raise")
        self.rewards = {"r": {"reward": reward, **settings}}


def conversation(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": "q"}, {"role": "assistant", "content": text}]


def endpoint(made: Any, text: str, row: Row) -> Any:
    found = made(conversation(text), **row)
    return found.score, found.is_score_valid, found.error


def flagged(score: float, words: float, **flags: float) -> dict[str, float]:
    """The fixed keys of targets that have no word for "no score"."""
    return {"words": words, "score": score, "unscored": 0.0, "failed": 0.0, **flags}


def nemo(made: Any, text: str, row: Row) -> Any:
    pytest.importorskip("torch", reason="torch is not installed")
    found = made.step([conversation(text)], [dict(row)])
    return found.rewards.tolist(), found.metadata[0]["rm_gallery"]


def v0(made: Any, text: str, row: Row) -> Any:
    state: dict[str, Any] = {}
    asked, said = conversation(text)[:1], conversation(text)[1:]
    value = asyncio.run(made(prompt=asked, completion=said, state=state, info=dict(row), answer=""))
    return value, "error" in state


def v1(made: Any, text: str, row: Row) -> Any:
    turns = [SimpleNamespace(model_dump=partial(dict, turn), role=turn["role"]) for turn in conversation(text)]
    nodes = [SimpleNamespace(sampled=turn.role == "assistant", message=turn) for turn in turns]
    metrics: dict[str, float] = {}
    trace = SimpleNamespace(branches=[SimpleNamespace(nodes=nodes)], record_metrics=metrics.update)
    return asyncio.run(made(task=row, trace=trace)), metrics


TARGETS = {
    "verl": Target(
        partial(verl_reward, components=["words"]),
        lambda made, text, row: asyncio.run(made("data", text, None, dict(row))),
        flagged(4.0, 1.0, acc=4.0), flagged(0.0, 0.0, unscored=1.0, acc=0.0), flagged(0.0, 0.0, failed=1.0, acc=0.0),
    ),
    "OpenRLHF": Target(
        partial(openrlhf_reward, json_label=True),
        lambda made, text, row: made([f"q{text}<|im_end|>\n"], ["q"], [json.dumps(row)]),
        {"rewards": 4.0, "scores": 1.0, "extra_logs": {"unscored": 0.0, "failed": 0.0}},
        {"rewards": 0.0, "scores": 0.0, "extra_logs": {"unscored": 1.0, "failed": 0.0}},
        {"rewards": 0.0, "scores": 0.0, "extra_logs": {"unscored": 0.0, "failed": 1.0}},
    ),
    "verifiers v0": Target(verifiers_reward, v0, (4.0, False), (0.0, True), (0.0, True)),
    "verifiers v1": Target(
        verifiers_reward, v1,
        (4.0, {"Moody/words": 1.0, "Moody/unscored": 0.0, "Moody/failed": 0.0}), NO_SCORE, NO_SCORE,
    ),
    "NeMo-RL": Target(
        lambda reward, **settings: RewardEnvironment({"reward": reward, "components": ["words"], **settings}), nemo,
        ([4.0], flagged(4.0, 1.0)), ([0.0], flagged(0.0, 0.0, unscored=1.0)), ([0.0], flagged(0.0, 0.0, failed=1.0)),
    ),
    "TRL": Target(
        trl_reward,
        lambda made, text, row: made(prompts=["q"], completions=[text], **{k: [v] for k, v in row.items()}),
        [4.0], [None], [None],
    ),
    "TRL's OpenEnv harness": Target(
        RolloutReward, lambda made, text, row: rollout(made, text, row), 4.0, None, None,
    ),
    "AReaL": Target(
        areal_reward, lambda made, text, row: made("q", text, [1], [2], **row), 4.0, NO_SCORE, NO_SCORE
    ),
    "slime": Target(
        slime_reward, slime,
        ({"score": 4.0, "words": 1.0, "unscored": 0.0, "failed": 0.0}, False),
        ({"score": 0.0, "unscored": 1.0, "failed": 0.0}, True),
        ({"score": 0.0, "unscored": 0.0, "failed": 1.0}, True),
    ),
    "benchmax": Target(
        Env, lambda made, text, row: asyncio.run(made.compute_reward("id", conversation(text), dict(row))),
        {"r": 4.0}, NO_SCORE, NO_SCORE,
    ),
    "LangSmith": Target(
        langsmith_evaluator, lambda made, text, row: made({"question": "q"}, {"answer": text}, row)["results"],
        [{"key": "Moody", "score": 4.0, "comment": None}, {"key": "Moody.words", "score": 1.0}],
        [{"key": "Moody", "score": None, "comment": "no_reference: nothing to judge by"}],
        NO_SCORE,
    ),
    "Langfuse": Target(
        langfuse_evaluator, lambda made, text, row: asyncio.run(made(input="q", output=text, metadata=row)),
        [{"name": "Moody", "value": 4.0, "comment": None}, {"name": "Moody.words", "value": 1.0, "comment": None}],
        [{"name": "Moody.unscored", "value": 1.0, "comment": "no_reference: nothing to judge by"}],
        NO_SCORE,
    ),
    "reward-kit": Target(
        endpoint_function, endpoint,
        (4.0, True, None),
        (0.0, False, "unscored (no_reference): nothing to judge by"),
        (0.0, False, "failed (error): RuntimeError: the judge is gone"),
    ),
}  # fmt: skip
FIXED = {"LangSmith", "Langfuse", "reward-kit"}
"""Targets that can always say that there is no score, so that nothing is to be chosen."""


def rollout(made: Any, text: str, row: Row) -> Any:
    made._row = row
    return made(SimpleNamespace(completion=conversation(text)))


def called(target: Target, made: Any, text: str, row: Row) -> Any:
    try:
        return target.call(made, text, row)
    except NoScore:
        return NO_SCORE


@pytest.fixture
def warned() -> Iterator[list[str]]:
    lines: list[str] = []
    sink = logger.add(lambda message: lines.append(message.record["message"]), level="WARNING")
    yield lines
    logger.remove(sink)


@pytest.mark.parametrize("name", TARGETS)
def test_what_a_target_gets(name: str) -> None:
    target = TARGETS[name]
    made = pickle.loads(pickle.dumps(target.make(Moody)))  # as workers and trainers' own processes get it
    found = [called(target, made, text, {"answer": "4"}) for text in ("four", "none", "fail")]
    assert found == [target.scored, target.unscored, target.failed]


@pytest.mark.parametrize("name", sorted(set(TARGETS) - FIXED))
def test_a_number_or_an_error_may_be_chosen_instead(name: str) -> None:
    target = TARGETS[name]
    assert "-3.0" in repr(called(target, target.make(Moody, on_error=-3.0), "none", {}))
    assert called(target, target.make(Moody, on_error="raise"), "none", {}) == NO_SCORE
    for wrong in ("skip", float("nan"), float("inf"), True):
        with pytest.raises(ConfigError, match="on_error is"):
            called(target, target.make(Moody, on_error=wrong), "none", {})


@pytest.mark.parametrize("name", sorted(FIXED))
def test_on_error_is_no_choice_where_no_score_can_be_said(name: str) -> None:
    with pytest.raises(ConfigError, match="on_error is no choice here"):
        TARGETS[name].make(Moody, on_error=0.0)


@pytest.mark.parametrize("name", TARGETS)
def test_a_missing_column_names_those_that_are_there(name: str) -> None:
    target = TARGETS[name]
    made = target.make("math_verify_reward", reference="gold")
    with pytest.raises(ConfigError, match=r"no column 'gold'; the columns are: .*\banswer\b") as caught:
        target.call(made, "four", {"answer": "4", "题目": "加法"})
    assert "题目" in str(caught.value)


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"refrence": "answer"}, "refrence"),
        ({"columns": {"context": 3}}, "columns maps 'context' to 3"),
        ({"options": {"dead_line": 3}}, "dead_line"),
        ({"llm": "gpt-4o"}, "calls no model"),
    ],
)
def test_misspelt_and_idle_options_are_refused(name: str, settings: dict[str, Any], said: str) -> None:
    target = TARGETS[name]
    with pytest.raises(ConfigError, match=said):
        called(target, target.make("math_verify_reward", **settings), "four", {"answer": "4"})
    with pytest.raises(ConfigError, match="math_verify_reward"):
        called(target, target.make("math_verfy_reward"), "four", {"answer": "4"})


class Costly(Moody):
    """The length, of which less is better."""

    higher_is_better = False


@pytest.mark.parametrize("name", TARGETS)
def test_a_trainer_that_would_raise_a_cost_is_warned_of(name: str, warned: list[str]) -> None:
    called(TARGETS[name], TARGETS[name].make(Costly), "four", {})
    said = [line for line in warned if ": a lower score is better" in line]
    assert len(said) == (0 if name in FIXED else 1), warned


@pytest.mark.parametrize("name", TARGETS)
def test_a_dead_judge_is_said_once(name: str, warned: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-a-test")
    target = TARGETS[name]
    made = target.make(
        "base_helpfulness_pointwise", llm={"model": "m", "base_url": DEAD, "max_outage": 0, "max_attempts": 1}
    )
    for _ in range(3):
        called(target, made, "four", {"answer": "4"})
    dead = [line for line in warned if DEAD in line or "127.0.0.1:9" in line]
    assert len(dead) == 1, warned
    assert not any("sk-of-a-test" in line for line in warned)


def test_every_object_works_in_another_process(tmp_path: Path) -> None:
    """By pickle into a process that has seen none of them, which imports no trainer for it."""
    objects = {
        name: target.make("math_verify_reward", reference="answer")
        for name, target in TARGETS.items()
        if name != "benchmax"
    }
    file = tmp_path / "objects.pickle"
    file.write_bytes(pickle.dumps(objects))
    code = (
        "import json, pickle, sys\n"
        "made = pickle.load(open(sys.argv[1], 'rb'))\n"
        "scores = {name: getattr(one, '__self__', one).scorer.score('q', '\\\\boxed{4}', {'answer': '4'}).score for name, one in made.items()}\n"
        "assert not {'trl', 'torch', 'openenv', 'areal', 'langfuse', 'langsmith'} & set(sys.modules)\n"
        "print(json.dumps(scores))\n"
    )
    done = subprocess.run([sys.executable, "-c", code, file], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == dict.fromkeys(objects, 1.0)


def test_a_scorer_is_what_all_of_them_share() -> None:
    for name, target in TARGETS.items():
        made = target.make("math_verify_reward", reference="answer")
        made = getattr(made, "__self__", made)
        scorers = made.scorers().values() if isinstance(made, Env) else [made.scorer]
        assert all(type(scorer) is RowScorer for scorer in scorers), name


def test_the_table_of_the_documents_names_what_there_is() -> None:
    text = (ROOT / "docs" / "adapters.md").read_text(encoding="utf-8")
    shown = {name for line in text.splitlines() if line.startswith("| ") for name in re.findall(r"\b(\w+)[(,]", line)}
    modules = [file.stem for file in (ROOT / "rm_gallery" / "integrations").glob("*.py")]
    public = {module: set(vars(importlib.import_module(f"rm_gallery.integrations.{module}"))) for module in modules}
    assert [module for module in modules if module != "scoring" and not public[module] & shown] == []
    called = {name for name in shown if re.search(rf"`[^`|]*\b{name}\(", text)}
    assert called - {"register", "Maths"} <= set().union(*public.values())


@pytest.mark.parametrize(
    ("package", "make"),
    [
        ("openenv", lambda: openenv_rubric("math_verify_reward")),
        ("areal", lambda: areal_workflow("math_verify_reward", None, None)),
    ],
)
def test_what_is_not_installed_is_named_with_its_pip_line(
    package: str, make: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not there
    with pytest.raises(ConfigError, match=f"pip install {package}"):
        make()
    module = importlib.import_module(f"rm_gallery.integrations.{package}")
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = module.nothing
