"""What the adapters of verl, OpenRLHF, SkyRL, verifiers and NeMo-RL do without their trainers: forms, policies, misuse."""

from __future__ import annotations

import asyncio
import inspect
import json
import pickle
import subprocess
import sys
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from rm_gallery import BasePointWiseReward, ConfigError, DataSample, FakeLLM, RewardDimensionWithScore, RewardResult
from rm_gallery.integrations import nemo_rl, verl
from rm_gallery.integrations.nemo_rl import RewardEnvironment, nemo_rl_reward, register_nemo_rl
from rm_gallery.integrations.openrlhf import openrlhf_reward
from rm_gallery.integrations.scoring import NoScore, plain
from rm_gallery.integrations.skyrl import skyrl_reward
from rm_gallery.integrations.verifiers import verifiers_reward, verifiers_rubric
from rm_gallery.integrations.verl import verl_overrides, verl_reward
from tests.trainers.rewards import FEW, Parts, as_float32, expected

WANTED = expected(Parts(), FEW)


class Foreign:
    """Holds something as numpy or a configuration would."""

    def __init__(self, held: Any) -> None:
        self._held = held

    def tolist(self) -> Any:
        return self._held


def test_nothing_of_a_trainer_is_imported() -> None:
    code = (
        "import sys\nfrom rm_gallery.integrations import nemo_rl, openrlhf, skyrl, verifiers, verl\n"
        "names = {'verl', 'ray', 'torch', 'skyrl_gym', 'openrlhf', 'transformers'} & set(sys.modules)\n"
        "assert not names and 'verifiers' not in sys.modules, names"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# -- verl ------------------------------------------------------------------------------------------------------------------


def test_verl_tells_the_async_form_from_the_blocking_one_and_both_pickle() -> None:
    awaited, blocking = verl_reward(Parts()), verl_reward(Parts(), sync=True)
    assert inspect.iscoroutinefunction(awaited) and inspect.iscoroutinefunction(verl.compute_score)
    assert not inspect.iscoroutinefunction(blocking) and not inspect.iscoroutinefunction(verl.compute_score_sync)
    prompt, text, reference = FEW[0]
    asked = {"data_source": "x", "solution_str": text, "ground_truth": reference, "extra_info": {"question": prompt}}
    found = asyncio.run(pickle.loads(pickle.dumps(awaited))(**asked, reward_router_address="h:1"))
    assert found == pickle.loads(pickle.dumps(blocking))(**asked)
    assert found["score"] == WANTED[0].score


def test_verl_asks_with_the_first_prompt_there_is_and_verls_own_truth_wins() -> None:
    def told(messages: list[Any], ground_truth: Any = None, data_source: Any = None, **kwargs: Any) -> float:
        assert data_source == "x"
        return float({"p": 1, "r": 2, "q": 4}[messages[0].text] + 8 * (ground_truth == "own"))

    reward = verl_reward(told, sync=True)
    infos = [
        {"question": "q", "raw_prompt": "r", "prompt": "p"},
        {"question": "q", "raw_prompt": "r"},
        {"question": "q"},
    ]
    beside = {"ground_truth": "of the row", "data_source": "of the row"}
    assert [reward("x", "a", "own", {**info, **beside})["score"] for info in infos] == [9.0, 10.0, 12.0]


@pytest.mark.parametrize("make", [verl_reward, lambda reward: verl_reward(reward, on_error="worst")])
def test_verl_gets_the_worst_score_of_the_range_for_a_lost_completion(make: Any) -> None:
    found = asyncio.run(make(OutOfTen())("x", "no number", "4"))
    assert (found["score"], found["acc"], found["failed"]) == (-10.0, -10.0, 1.0)


def test_verls_router_is_an_endpoint_of_openais_kind() -> None:
    settings = {"reward": "base_helpfulness_pointwise", "llm": "some-model", "base_url": "router"}
    reward = verl._named({**settings, "reward_router_address": "10.0.0.1:80", "reward_model_tokenizer": object()})
    assert getattr(reward.scorer.reward, "llm").base_url == "http://10.0.0.1:80/v1"  # noqa: B009 - a reward has none


def test_verl_scores_a_batch_as_it_scores_one() -> None:
    settings = {"reward": "math_verify_reward"}
    texts, golds = [row.completion for row in FEW], [row.reference for row in FEW]
    batch = verl.compute_scores(["x"] * len(FEW), texts, golds, **settings)
    single = [verl.compute_score_sync("x", text, gold, **settings) for text, gold in zip(texts, golds, strict=True)]
    assert batch == single
    assert {tuple(each) for each in batch} == {("score", "unscored", "failed", "acc")}


def test_verl_does_not_compare_responses_of_unknown_prompts() -> None:
    """Rows of any prompts were compared with one another where their references were equal."""
    reward = verl.VerlReward("base_helpfulness_listwise", llm=FakeLLM(reply="<best>1</best>"))
    with pytest.raises(ConfigError, match="extra_info holds no prompt.*prompt=.*ground_truth"):
        reward.compute_scores(["x"] * 2, ["a", "b"], ["4", "4"])
    asked = [{"prompt": "2+2?"}] * 2
    assert sorted(each["score"] for each in reward.compute_scores(["x"] * 2, ["a", "b"], ["4", "4"], asked)) == [
        0.0,
        1.0,
    ]


def test_verl_columns_are_read_from_arrays_and_extra_info_is_left_alone() -> None:
    info = {"question": Foreign([{"role": "user", "content": "q"}]), "other": Foreign(7)}
    reward = verl_reward("math_verify_reward", reference="gold", columns={"id": "other"})
    with pytest.raises(
        ConfigError, match=r"no column 'gold'; the columns are: data_source, ground_truth, other, question"
    ):
        asyncio.run(reward("x", "4", None, info))
    info["gold"] = Foreign("4")
    before = dict(info)
    assert asyncio.run(reward("x", "4", None, info))["score"] == 1.0
    assert info == before
    # from then on a row without it is a failed one, and the training goes on
    assert asyncio.run(reward("x", "4", None, {"other": 1}))["failed"] == 1.0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "No reward is named; add .*reward_kwargs.reward=NAME"),
        ({"reward": "math_verify_reword"}, "math_verify_reward"),
        ({"reward": "math_verify_reward", "on_eror": 1}, "on_eror"),
        (
            {"reward": "math_verify_reward", "on_error": "none"},
            'on_error is \'none\'; give "raise", "worst" or a finite',
        ),
        ({"reward": "math_verify_reward", "on_error": float("nan")}, "on_error is nan"),
        ({"reward": "math_verify_reward", "base_url": "router"}, "verl serves no reward model"),
        (
            {"reward": "math_verify_reward", "prompt": "query"},
            "no key 'query' .*the keys are: data_source, ground_truth",
        ),
        ({"reward": "base_helpfulness_pointwise"}, "judged by a model and none is named"),
    ],
)
def test_verl_says_what_is_wrong_with_a_configuration(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        asyncio.run(verl.compute_score("x", "4", "4", None, **settings))


def test_verl_overrides_say_what_json_can_say() -> None:
    lines = verl_overrides("a'b", components=["x y"], columns={"id": "row"}, options={"deadline": 2.5}, sync=True)
    start = "+reward.custom_reward_function.reward_kwargs."
    assert lines == [
        "reward.custom_reward_function.path=pkg://rm_gallery.integrations.verl",
        "reward.custom_reward_function.name=compute_score_sync",
        f"{start}reward='a\\'b'",
        f"{start}components=['x y']",
        f"{start}columns={{id:'row'}}",
        f"{start}options={{deadline:2.5}}",
        "reward.reward_manager.name=remote",
    ]
    with pytest.raises(ConfigError, match="write a file with verl_reward"):
        verl_overrides("x", llm=object())


# -- NeMo-RL: its call as its source has it, for PyPI has only a placeholder --------------------------------------------------


def test_nemo_rl_steps_a_batch_of_dialogues() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    environment = RewardEnvironment({"reward": Parts(), "components": ["gold"], "observation": "scored"})
    logs = [
        [
            {"role": "user", "content": row.prompt, "token_ids": object()},
            {"role": "environment", "content": "go on"},
            {"role": "assistant", "content": row.completion, "token_ids": object()},
        ]
        for row in FEW
    ]
    metadata = [{"ground_truth": row.reference} for row in FEW]
    # calculate_rewards unpacks six fields by their order
    observations, kept, stops, rewards, done, answers = environment.step(logs, metadata, True)
    assert rewards.dtype == torch.float32 and rewards.shape == done.shape == (len(FEW),)
    assert rewards.tolist() == [as_float32(-1.0 if each.score is None else each.score) for each in WANTED]
    assert done.tolist() == [1.0] * len(FEW) and stops == [None] * len(FEW)
    assert answers == [row.completion for row in FEW]
    assert observations[0] == {"role": "environment", "content": "scored"}
    assert metadata == [{"ground_truth": row.reference} for row in FEW]
    assert [each["rm_gallery"]["failed"] for each in kept] == [float(each.status == "failed") for each in WANTED]
    batch, metrics = environment.global_post_process_and_metrics({"extra_env_info": kept})
    scores = [each.score for each in WANTED if each.score is not None]
    assert batch == {"extra_env_info": kept}
    assert metrics["score"] == pytest.approx(sum(scores) / len(scores))
    assert metrics["unscored"] == pytest.approx(sum(each.status == "unscored" for each in WANTED) / len(WANTED))
    assert environment.global_post_process_and_metrics({}) == ({}, {})


def test_nemo_rl_takes_a_function_of_ground_truth_and_response() -> None:
    function = pickle.loads(pickle.dumps(nemo_rl_reward("math_verify_reward", correct_from=1.0)))
    assert [function("4", "It is 4."), function("4", "5"), function(None, "4")] == [
        (1.0, True),
        (0.0, False),
        (0.0, False),
    ]
    assert nemo_rl_reward("math_verify_reward")("4", "4") == (1.0, None)
    with pytest.raises(NoScore, match="no_reference"):
        nemo_rl_reward("math_verify_reward", on_error="raise")(None, "4")


def test_nemo_rl_is_told_of_the_environment_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    actors: dict[str, str] = {}
    environments: dict[str, str] = {}
    modules: dict[str, dict[str, Any]] = {
        "nemo_rl": {},
        "nemo_rl.distributed": {},
        "nemo_rl.distributed.ray_actor_environment_registry": {"ACTOR_ENVIRONMENT_REGISTRY": actors},
        "nemo_rl.distributed.virtual_cluster": {"PY_EXECUTABLES": SimpleNamespace(SYSTEM="python")},
        "nemo_rl.environments": {},
        "nemo_rl.environments.utils": {"register_env": environments.__setitem__},
        "ray": {"remote": lambda **options: lambda kind: (kind, options)},
    }
    for name, content in modules.items():
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(__path__=[], **content))
    assert register_nemo_rl("ours") == "ours"
    (path,) = environments.values()
    assert environments == {"ours": path} and actors == {path: "python"}
    module, _, name = path.rpartition(".")
    try:
        # create_env looks the actor's class up by this path
        kind, options = getattr(sys.modules[module], name)
        assert kind is RewardEnvironment and options["max_restarts"] == -1
    finally:
        vars(nemo_rl).pop(name, None)


def test_nemo_rl_says_what_is_missing() -> None:
    with pytest.raises(ConfigError, match="no key 'reward'; its keys are: rewrad"):
        RewardEnvironment({"rewrad": "math_verify_reward"})
    with pytest.raises(ConfigError, match="github.com/NVIDIA-NeMo/RL"):
        register_nemo_rl()
    with pytest.raises(ConfigError, match="needs Ray"):
        _ = nemo_rl.RewardActor
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = nemo_rl.Nothing


# -- SkyRL, verifiers, OpenRLHF ------------------------------------------------------------------------------------------------


def test_what_a_trainer_makes_pickles_and_says_what_is_not_installed() -> None:
    made = [
        skyrl_reward(Parts()),
        verifiers_reward(Parts()),
        openrlhf_reward(Parts()),
        RewardEnvironment({"reward": Parts()}),
    ]
    for each in made:
        assert pickle.loads(pickle.dumps(each)).scorer.name == "Parts"
    with pytest.raises(ConfigError, match="pip install skyrl-gym"):
        skyrl_reward(Parts())(extras={})
    with pytest.raises(ConfigError, match="pip install 'verifiers<0.2'"):
        verifiers_rubric([Parts()])


@pytest.mark.parametrize("make", [skyrl_reward, openrlhf_reward, verifiers_reward, verl_reward])
def test_a_misspelt_option_is_refused_when_the_reward_is_made(make: Any) -> None:
    with pytest.raises(ConfigError, match="referense"):
        make("math_verify_reward", referense="gold")
    with pytest.raises(ConfigError, match="on_error is 'zero'"):
        make("math_verify_reward", on_error="zero")


class OutOfTen(BasePointWiseReward):
    """The number that is the answer, from -10 to 10; anything else is an error."""

    score_range: ClassVar[tuple[float | None, float | None]] = (-10.0, 10.0)

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        score = float(sample.output[0].answer.text)
        return RewardResult(name=self.name, details=[RewardDimensionWithScore(name=self.name, score=score)])


@pytest.mark.parametrize(
    ("settings", "lost", "share"), [({}, -10.0, 0.0), ({"on_error": "none"}, None, None), ({"on_error": 5}, 5.0, 0.75)]
)
def test_openrlhf_filters_by_a_share_and_a_lost_completion_has_the_number_that_was_asked_for(
    settings: Any, lost: Any, share: Any
) -> None:
    reward = openrlhf_reward(OutOfTen(), **settings)
    found = reward(["q5", "qx", "q-10"], ["q"] * 3, ["a"] * 3)
    assert (found["rewards"], found["scores"]) == ([5.0, lost, -10.0], [0.75, share, 0.0])
    assert found["extra_logs"]["failed"] == [0.0, 1.0, 0.0]
    alone = reward(["qx"], ["q"], ["a"])
    assert (alone["rewards"], alone["scores"], alone["extra_logs"]["failed"]) == (lost, share, 1.0)


def test_openrlhf_says_what_is_wrong_with_labels() -> None:
    with pytest.raises(ConfigError, match="json_label=True as well"):
        openrlhf_reward("math_verify_reward", prompt="question")
    for label in ("{", "[1]", "4"):
        with pytest.raises(ConfigError, match="json_label=True, but a label is"):
            openrlhf_reward("math_verify_reward", json_label=True)(["q"], ["q"], [label])


def test_a_v0_rubric_without_a_score_raises_when_asked_to() -> None:
    reward = verifiers_reward("math_verify_reward", on_error="raise")
    with pytest.raises(NoScore, match="math_verify_reward gave no score"):
        asyncio.run(reward(prompt="q", completion="4", answer="", info={}, state={}))


def test_data_of_a_trainer_becomes_plain() -> None:
    given = {"a": Foreign([Foreign(1.5), (2, "x")]), "b": {"c": Foreign("t")}, "d": None, "e": b"x"}
    found = plain(given)
    assert found == {"a": [1.5, [2, "x"]], "b": {"c": "t"}, "d": None, "e": b"x"}
    json.dumps({**found, "e": ""})
