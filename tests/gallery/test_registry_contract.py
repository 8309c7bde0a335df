"""What holds for every registered reward, judged or not: each is tried on the example on its class."""

from __future__ import annotations

import importlib
import math
import multiprocessing
import pickle
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

import pytest

from rm_gallery import BaseReward, ConfigError, DataSample, OpenaiLLM, RewardRegistry
from rm_gallery.core.utils.errors import MissingExtra, SandboxUnavailable
from rm_gallery.gallery import rm
from rm_gallery.gallery.rm import discover
from tests.gallery import registry_cases as cases
from tests.support.choice import apart
from tools.imports import module_names

NAMES = RewardRegistry.list()
SECRET = "sk-QsecretQ"
JUDGED = [name for name in NAMES if "llm" in cases.needs_of(name)]
WITH_REFERENCE = [name for name in NAMES if "reference" in cases.needs_of(name)]
WITH_MATERIAL = [
    name for name in NAMES if cases.needs_of(name) - cases.MACHINE - {"llm", "embeddings"}
]


def _created(name: str) -> BaseReward | None:
    """The reward; None for one that cannot be made, which its own tests tell about."""
    try:
        return cases.create(name)
    except (ConfigError, AssertionError):
        return None


def _runnable(name: str) -> BaseReward:
    reward = cases.create(name)
    absent = cases.missing(reward)
    if absent is not None:
        pytest.skip(absent)
    return reward


def _scores(reward: BaseReward, sample: DataSample) -> list[float | None]:
    return [reward.score_of(output.answer.reward) for output in sample.output]


@pytest.mark.parametrize("name", NAMES)
def test_its_class_says_what_it_does(name: str) -> None:
    reward = cases.create(name)
    low, high = reward.score_range
    assert (
        reward.kind in {"pointwise", "listwise", "pairwise", "stepwise", "trajectory"}
        and reward.name
    )
    assert low is None or high is None or low < high
    assert (type(reward).__doc__ or "").strip()
    assert reward.judged or "llm" not in reward.needs


@pytest.mark.parametrize("name", NAMES)
def test_a_fitting_sample_is_scored_within_the_range(name: str) -> None:
    reward = _runnable(name)
    low, high = reward.score_range
    for sample in reward.evaluate_batch(cases.fitting(name)):
        for output in sample.output:
            score = reward.score_of(output.answer.reward)
            assert score is not None, (
                f"the example of {name} gets no score: {output.answer.reward.issues}"
            )
            assert math.isfinite(score)
            assert (low is None or low <= score) and (high is None or score <= high)
            if low is not None and high is not None:
                assert 0.0 <= reward.normalized(score) <= 1.0


@pytest.mark.parametrize("name", apart(NAMES, "starts programs", "unisolated_command_judge"))
def test_the_same_whatever_the_door_the_order_the_place_and_how_often(name: str) -> None:
    reward, samples = _runnable(name), cases.fitting(name)
    batch = reward.evaluate_batch(samples)
    assert [reward.evaluate(sample) for sample in samples] == batch, "alone"
    assert [reward.evaluate(sample.model_dump()) for sample in samples] == batch, "as a dict"
    assert reward.evaluate_batch(samples[::-1])[::-1] == batch, "the other way round"
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(reward.evaluate, [samples[0]] * 8)) == [batch[0]] * 8, "on threads"
    assert samples == cases.fitting(name), "what is given stays as it is"
    assert reward.evaluate(batch[0]) == batch[0], "twice"
    assert [DataSample.model_validate_json(sample.model_dump_json()) for sample in batch] == batch
    given, turned, again = (_scores(reward, sample) for sample in batch)
    assert given == turned[::-1] == again, "wherever an answer stands"


@pytest.mark.parametrize("name", NAMES)
def test_it_can_be_described_and_pickled(name: str) -> None:
    reward = cases.create(name)
    copy = pickle.loads(pickle.dumps(reward))
    assert (type(copy), copy, copy.settings_hash) == (type(reward), reward, reward.settings_hash)
    assert reward.describe()["name"] == reward.name


@pytest.mark.long("much work")
def test_a_spawned_process_gets_the_same() -> None:
    """All in one process, whose start takes longer than its work."""
    able = {
        name: reward
        for name in NAMES
        if (reward := _created(name)) is not None and cases.missing(reward) is None
    }
    work = [
        (pickle.dumps(r), [s.model_dump_json() for s in cases.fitting(name)])
        for name, r in able.items()
    ]
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        there = pool.submit(cases.score_pickled, work)
        here = {
            name: [s.model_dump_json() for s in r.evaluate_batch(cases.fitting(name))]
            for name, r in able.items()
        }
        found = dict(zip(able, there.result(timeout=240), strict=True))
    assert {name: scored for name, scored in found.items() if scored != here[name]} == {}


@pytest.mark.parametrize(
    "name", [name for name in NAMES if {"llm", "api_key", "embeddings"} & cases.fields_of(name)]
)
def test_no_secret_is_shown(name: str) -> None:
    model: dict[str, Any] = {"model": "m", "api_key": SECRET, "default_headers": {"x": SECRET}}
    model["proxy"] = f"http://u:{SECRET}@127.0.0.1:9"
    secrets = {"llm": OpenaiLLM(**model), "api_key": SECRET, "embeddings": model}
    reward = cases.create(
        name, **{field: value for field, value in secrets.items() if field in cases.fields_of(name)}
    )
    for text in (repr(reward), str(reward), f"{reward}", str(reward.describe())):
        assert SECRET not in text


@pytest.mark.parametrize("name", JUDGED)
def test_without_a_judge_the_message_says_so(name: str) -> None:
    reward = RewardRegistry.create(name, **cases.example_of(name).params)
    with pytest.raises(ConfigError, match="llm="):
        reward.evaluate(cases.fitting(name)[0])


@pytest.mark.parametrize("name", WITH_REFERENCE)
def test_without_a_reference_there_is_no_score(name: str) -> None:
    reward = _runnable(name)
    for sample in reward.evaluate_batch(cases.without(cases.fitting(name), cases.REFERENCE_KEYS)):
        assert _scores(reward, sample) == [None] * len(sample.output)
        issues = [issue for output in sample.output for issue in output.answer.reward.issues]
        assert {(issue.status, issue.reason.partition("_")[0]) for issue in issues} == {
            ("unscored", "no")
        }
        assert all(issue.message for issue in issues)


@pytest.mark.parametrize("name", WITH_MATERIAL)
def test_without_what_it_needs_there_is_no_score(name: str) -> None:
    reward = _runnable(name)
    for sample in reward.evaluate_batch(cases.without(cases.fitting(name))):
        assert _scores(reward, sample) == [None] * len(sample.output)
        assert {issue.status for o in sample.output for issue in o.answer.reward.issues} == {
            "unscored"
        }


@pytest.mark.parametrize(
    "name",
    apart(sorted(set(NAMES) - set(WITH_REFERENCE)), "starts programs", "unisolated_command_judge"),
)
def test_what_decides_its_scores_is_among_its_needs(name: str) -> None:
    reward = _runnable(name)
    bare = cases.without(
        cases.fitting(name), cases.REFERENCE_KEYS if name in WITH_MATERIAL else None
    )
    found = [_scores(reward, sample) for sample in reward.evaluate_batch(bare)]
    assert found == [
        _scores(reward, sample) for sample in reward.evaluate_batch(cases.fitting(name))
    ], "say it in `needs`"


@pytest.mark.parametrize("name", sorted(set(WITH_REFERENCE) - set(JUDGED)))
def test_an_answer_without_a_reference_costs_only_itself(name: str) -> None:
    reward, sample = _runnable(name), cases.fitting(name)[0]
    (bare,) = cases.without([sample], cases.REFERENCE_KEYS)
    bare.output[0].answer.label = {
        key: value for key, value in (sample.metadata or {}).items() if key in cases.REFERENCE_KEYS
    }
    first, *others = _scores(reward, reward.evaluate(bare))
    assert first == _scores(reward, reward.evaluate(sample))[0] and set(others) == {None}


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_package_or_sandbox_is_named_before_anything_runs(name: str) -> None:
    reward = cases.create(name)
    if cases.missing(reward) is None:
        reward.check()
        return
    with pytest.raises((MissingExtra, SandboxUnavailable), match="nstall"):
        reward.evaluate(cases.fitting(name)[0])
    with pytest.raises((MissingExtra, SandboxUnavailable), match="nstall"):
        reward.evaluate_batch(cases.fitting(name))


@pytest.mark.long("much work")
def test_the_files_name_every_reward_that_importing_them_registers() -> None:
    for module in {target.partition(":")[0] for target in discover().values()}:
        importlib.import_module(module)
    for name in module_names(rm.__name__):
        importlib.import_module(name)
    registered = {
        n: f"{c.__module__}:{c.__qualname__}"
        for n, c in RewardRegistry._classes.items()
        if n in discover()
    }
    ours = {
        name
        for name, found in RewardRegistry._classes.items()
        if found.__module__.startswith(rm.__name__)
    }
    assert ours <= {*discover(), "judge:"}, (
        'write the decorator as @RewardRegistry.register("name") right above the class'
    )
    assert registered == {name: discover()[name] for name in registered}


@pytest.mark.long("much work")
def test_a_name_is_found_without_importing_other_rewards() -> None:
    code = (
        "import sys; from rm_gallery import RewardRegistry; RewardRegistry.get('accuracy'); "
        "RewardRegistry.list();print(sorted(m for m in sys.modules if "
        "m.startswith('rm_gallery.gallery.rm.') or m in ('yaml', 'jinja2')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert "general.match" in done.stdout
    assert not [
        word for word in ("rouge", "math", "alignment", "yaml", "jinja2") if word in done.stdout
    ]
