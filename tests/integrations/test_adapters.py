"""What every trainer adapter promises, found below `rm_gallery.integrations`: one that forgets a
promise is named here.

What each gives for a completion is golden (`tests/golden/adapters`), that its score is that of
`evaluate` in `test_same_score.py`.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import pickle
import pkgutil
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import pytest

from rm_gallery import (
    ConfigError,
    DataSample,
    EvaluateResult,
    FakeLLM,
    RewardRegistry,
    RewardResult,
    integrations,
    reward_function,
)
from rm_gallery.core.reward.schema import PhraseJudge
from rm_gallery.integrations.causes import NoScore
from tests.golden import golden
from tests.integrations.adapters import ADAPTERS, Adapter, Cost, Moody, Row, one_by_one, waited
from tests.reward.rewards import scored
from tests.support.children import ROOT, run_python

NO_ADAPTERS = {
    "causes.Trainer", "causes.given", "causes.table", "episodes.Episode", "harbor.write_harbor_reward", "trl_watch.TrlWatch",
    "nemo_rl.EnvironmentReturn", "nemo_rl.register_nemo_rl", "openenv.RubricScore", "openenv.RubricTree",
    "openenv.RubricReward", "openrlhf.response_of", "slime.post_process", "trl_data.TrainingRows",
    "trl_data.preference_rows", "trl_data.unpaired_rows", "trl_data.step_rows", "verifiers.verifiers_rubric",
    "verl.verl_overrides", "verl.compute_score", "verl.compute_score_sync", "verl.compute_scores", "verl.GroupRewardManager",
    "verl.RolloutGroups", "trl.trl_components",
}  # fmt: skip
"""Public names that score nothing for a trainer, or through an adapter of the table
(`test_verl.py`, `test_trl.py`).
"""
pytestmark = pytest.mark.usefixtures("there")
CHOOSING = sorted(name for name, adapter in ADAPTERS.items() if adapter.chooses)
BATCHES = sorted(name for name, adapter in ADAPTERS.items() if adapter.batch)
PICKLING = sorted(name for name, adapter in ADAPTERS.items() if adapter.pickles)


def called(adapter: Adapter, made: Any, row: Row) -> Any:
    return waited(adapter.call(made, row))


def scorers_of(made: Any) -> list[Any]:
    """What an adapter scores with."""
    made = getattr(made, "__self__", made)
    return list(made.scorers().values()) if hasattr(made, "scorers") else [made.scorer]


def test_every_public_name_below_integrations_is_in_the_table_or_said_to_be_no_adapter() -> None:
    rubric = ADAPTERS["openenv.openenv_rubric"]
    # which makes a kind of component as well
    waited(rubric.call(rubric.make(Moody), Row("q", "four")))
    made = {
        type(getattr(each := adapter.make(Moody), "__self__", each)).__mro__
        for adapter in ADAPTERS.values()
    }
    component = vars(importlib.import_module("rm_gallery.integrations.openenv"))["Component"]
    kinds = {kind for line in made for kind in line} | {component}
    known = {entry.partition("-")[0] for entry in ADAPTERS} | NO_ADAPTERS
    found, missing = set[str](), []
    for module in pkgutil.iter_modules(integrations.__path__):
        content = vars(importlib.import_module(f"rm_gallery.integrations.{module.name}"))
        path = content["__name__"]
        public = {
            name
            for name, each in content.items()
            if name[0] != "_" and getattr(each, "__module__", None) == path
        }
        found |= {f"{module.name}.{name}" for name in public if callable(content[name])}
        if module.name not in ("scoring", "causes"):
            missing += (
                [] if any(entry.startswith(f"{module.name}.") for entry in known) else [module.name]
            )
            missing += [
                f"{module.name}.{name}"
                for name in public
                if callable(content[name]) and content[name] not in kinds
            ]
    assert sorted(set(missing) - known) == [], (
        "add a row to ADAPTERS in tests/integrations/adapters.py"
    )
    assert NO_ADAPTERS <= found


def test_every_adapter_has_golden_lines() -> None:
    assert {path.stem for path in (golden.HERE / "adapters").glob("*.jsonl")} == set(ADAPTERS)


@pytest.mark.parametrize("name", ADAPTERS)
def test_a_missing_score_is_never_taken_for_a_bad_one(name: str) -> None:
    adapter = ADAPTERS[name]
    given = one_by_one(
        adapter, adapter.make(Moody), [Row("q", text) for text in ("", "none", "fail", "huge none")]
    )
    assert adapter.score(given[0]) == 0.0
    for lost in given[1:]:
        assert adapter.silent or (
            lost != given[0] and (lost is None or adapter.score(lost) is None)
        )


@pytest.mark.parametrize("worst", ["none", "0.5", True, [0.0], float("nan"), 10**400])
@pytest.mark.parametrize("name", [*ADAPTERS, "registry", "class"])
def test_worst_is_a_finite_number_at_every_door(name: str, worst: Any) -> None:
    """True was taken for 1.0: the best score, for the text that breaks the reward."""
    doors: dict[str, Callable[..., Any]] = {
        "registry": lambda reward, **settings: RewardRegistry.create("accuracy", **settings),
        "class": lambda reward, **settings: reward(**settings),
    }
    with pytest.raises(ConfigError, match=r"worst is .+; give a finite number") as refused:
        made = (doors.get(name) or ADAPTERS[name].make)(Moody, worst=worst)
        scorers_of(made)  # an environment that names its rewards builds them when it is first used
    assert "\n" not in str(refused.value)


class Everything(Moody):
    """Of each row its own: the lengths of answer, prompt and reference."""

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        parts = (sample.output[0].answer.text, sample.query_text(), str(sample.reference()))
        return scored(
            self.name, sum(len(text) / share for text, share in zip(parts, (1, 4, 8), strict=True))
        )


@pytest.mark.parametrize("name", ADAPTERS)
def test_each_completion_is_scored_with_its_own_prompt_and_columns_to_the_last_bit(
    name: str,
) -> None:
    adapter = ADAPTERS[name]
    made = adapter.make(Everything, **adapter.given)
    rows = [Row("q", "a" * n, "r" * (5 - n)) for n in (1, 2, 3)]
    # the one is told none, the other is itself what asks
    prompt = {"nemo_rl.nemo_rl_reward": 0.0, "areal.areal_workflow": 2.25}.get(name, 0.25)
    wanted = [len(row.completion) + prompt + len(row.solution or "") / 8 for row in rows]
    assert [adapter.score(called(adapter, made, row)) for row in rows] == wanted
    if adapter.batch is not None:
        assert list(map(adapter.score, waited(adapter.batch(made, rows)))) == wanted


@pytest.mark.parametrize("name", CHOOSING)
def test_the_number_for_a_missing_score_is_the_one_that_was_chosen(name: str) -> None:
    adapter = ADAPTERS[name]
    given = {
        repr(called(adapter, adapter.make(Moody, on_error=number), Row("q", "fail")))
        for number in (-3.0, -4.0)
    }
    assert len(given) == 2


class Waiting(Moody):
    """1.0 once the caller's loop has gone on while it was scoring, else 0.0."""

    going: ClassVar[threading.Event] = threading.Event()

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        return scored(self.name, float(self.going.wait(10)))


BLOCKING = {
    "episodes.EpisodeRewards", "openrlhf.openrlhf_reward", "nemo_rl.RewardEnvironment", "nemo_rl.nemo_rl_reward", "skyrl.skyrl_reward", "areal.areal_reward",
    "openenv.RolloutReward", "callables.langsmith_evaluator", "callables.endpoint_function",
}  # fmt: skip
"""What its target calls and waits for, on a thread or in a process of its own."""


@pytest.mark.parametrize("name", sorted(ADAPTERS.keys() - BLOCKING))
def test_a_loop_that_awaits_an_adapter_goes_on_while_it_scores(name: str) -> None:
    adapter = ADAPTERS[name]
    made = adapter.make(Waiting, **({"on_error": -3.0} if adapter.chooses else {}))
    Waiting.going.clear()

    async def in_a_loop() -> Any:
        task = asyncio.ensure_future(adapter.call(made, Row("q", "four")))
        for _ in range(3):
            await asyncio.sleep(0)
        Waiting.going.set()
        return await task

    assert adapter.score(asyncio.run(in_a_loop())) == 1.0


MIXED = [
    Row("q", text, "4", {"n": place})
    for place, text in enumerate(("four", "none", "sixsix", "fail", "huge"))
]


@pytest.mark.parametrize("name", BATCHES)
@pytest.mark.parametrize("bad", ["none", "fail", "huge"])
def test_a_batch_with_one_bad_row_anywhere_equals_single_calls(name: str, bad: str) -> None:
    adapter = ADAPTERS[name]
    made = adapter.make(Moody, on_error=-3.0)
    assert adapter.batch is not None
    for place in range(4):
        rows = [Row(f"q{at}", bad if at == place else "x" * at, "4", {"n": at}) for at in range(4)]
        together = waited(adapter.batch(made, rows))
        alone = [waited(adapter.batch(made, [row]))[0] for row in rows]
        assert repr(list(together)) == repr(alone)


@pytest.mark.parametrize("name", ADAPTERS)
def test_calls_at_once_and_in_a_running_loop_give_what_single_calls_give(name: str) -> None:
    adapter = ADAPTERS[name]
    # a mean depends on who came before
    made = adapter.make(Moody, **({"on_error": -3.0} if adapter.chooses else {}))
    rows = MIXED * 6
    wanted = [repr(each) for each in one_by_one(adapter, made, rows)]

    async def one(row: Row) -> Any:
        try:
            found = adapter.call(made, row)
            return await found if inspect.isawaitable(found) else found
        except NoScore:
            return None

    async def in_a_loop() -> list[Any]:
        return await asyncio.gather(*map(one, rows))

    assert [repr(each) for each in asyncio.run(in_a_loop())] == wanted
    with ThreadPoolExecutor(8) as threads:
        assert [
            repr(each)
            for each in threads.map(lambda row: one_by_one(adapter, made, [row])[0], rows)
        ] == wanted


@pytest.mark.parametrize("name", PICKLING)
def test_a_pickled_one_gives_the_same(name: str) -> None:
    adapter = ADAPTERS[name]
    made = adapter.make(Moody)
    again = pickle.loads(pickle.dumps(made))
    assert repr(one_by_one(adapter, again, MIXED)) == repr(one_by_one(adapter, made, MIXED))


@pytest.mark.long("much work")
def test_every_object_works_in_another_process_which_imports_no_trainer_for_it(
    tmp_path: Path,
) -> None:
    objects = {
        name: ADAPTERS[name].make("math_verify_reward", reference="answer")
        for name in PICKLING
        if not name.startswith(("benchmax", "openenv", "callables.langfuse"))
    }
    (tmp_path / "objects.pickle").write_bytes(pickle.dumps(objects))
    code = (
        "import json, pickle, sys\n"
        "made = pickle.load(open('objects.pickle', 'rb'))\n"
        "scores = {name: getattr(one, '__self__', one).scorer.score('q', '\\\\boxed{4}', "
        "{'answer': '4'}).value for name, one in made.items()}\nassert not {'trl', 'torch', 'ray', "
        "'skyrl_gym', 'openenv', 'areal', 'verifiers', 'langsmith'} & "
        "set(sys.modules)\nprint(json.dumps(scores))\n"
    )
    done = run_python("-c", code, cwd=tmp_path)
    assert done.returncode == 0 and json.loads(done.stdout) == dict.fromkeys(objects, 1.0), (
        done.stderr
    )


@pytest.mark.parametrize("name", CHOOSING)
@pytest.mark.parametrize("wrong", ["skip", float("nan"), float("inf"), True])
def test_on_error_is_a_word_that_is_known_or_a_finite_number(name: str, wrong: Any) -> None:
    with pytest.raises(ConfigError, match="on_error is"):
        called(ADAPTERS[name], ADAPTERS[name].make(Moody, on_error=wrong), Row("q", "none"))


@pytest.mark.parametrize("name", ADAPTERS)
@pytest.mark.parametrize(("reward", "settings", "said"), [
    ("math_verify_reward", {"refrence": "answer"}, "'refrence' may be meant as reference="),
    ("math_verify_reward", {"columns": {"context": 3}}, "columns maps 'context' to 3"),
    ("math_verify_reward", {"options": {"dead_line": 3}}, "dead_line"),
    ("math_verify_reward", {"llm": "gpt-4o"}, "calls no model"),
    ("math_verfy_reward", {}, "math_verify_reward"),
    ("base_helpfulness_pointwise", {}, "judged by a model and none is named"),
    ("math_verify_reward", {"reference": "gold"}, r"no column 'gold'; the columns are: .*\banswer\b.*题目"),
])  # fmt: skip
def test_mistakes_are_named(name: str, reward: str, settings: dict[str, Any], said: str) -> None:
    adapter = ADAPTERS[name]
    row = Row("q", "four", "4", {"answer": "4", "题目": "加法"})
    if "gold" in settings.values() and name in (
        "nemo_rl.nemo_rl_reward",
        "callables.langfuse_evaluator",
    ):
        # there is one column, or it is the key of a truth that is no dict
        said = "no column 'gold'"
    with pytest.raises(ConfigError, match=said):
        called(adapter, adapter.make(reward, **settings), row)


@pytest.mark.parametrize("name", ADAPTERS)
def test_a_name_columns_and_options_are_taken(name: str) -> None:
    adapter = ADAPTERS[name]
    made = adapter.make(Moody, name="mine", options={"deadline": 7.0}, columns={})
    (scorer, *_) = scorers_of(made)
    assert (
        scorer.name if not name.startswith("benchmax") else "mine"
    ) == "mine" and scorer.options.deadline == 7.0


@pytest.mark.parametrize("name", ADAPTERS)
def test_a_trainer_that_would_raise_a_cost_is_warned_of_once(name: str, warned: list[str]) -> None:
    called(ADAPTERS[name], ADAPTERS[name].make(Cost), Row("q", "four"))
    said = [line for line in warned if ": a lower score is better" in line]
    assert len(said) == ADAPTERS[name].chooses, warned


@pytest.mark.parametrize("name", ADAPTERS)
def test_a_dead_judge_is_said_once(
    name: str, warned: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-a-test")
    llm = {"model": "m", "base_url": "http://127.0.0.1:9/v1", "max_outage": 0, "max_attempts": 1}
    made = ADAPTERS[name].make("base_helpfulness_pointwise", llm=llm)
    one_by_one(ADAPTERS[name], made, [Row("q", "four")] * 3)
    assert (
        len([line for line in warned if "127.0.0.1:9" in line and "This is said once" in line]) == 1
    ), warned
    assert not any("sk-of-a-test" in line for line in warned)


def test_the_table_of_the_documents_names_what_there_is() -> None:
    text = (ROOT / "docs" / "adapters.md").read_text(encoding="utf-8")
    shown = {
        name
        for line in text.splitlines()
        if line.startswith("| ")
        for name in re.findall(r"\b(\w+)[(,]", line)
    }
    modules = [info.name for info in pkgutil.iter_modules(integrations.__path__)]
    public = {
        module: set(vars(importlib.import_module(f"rm_gallery.integrations.{module}")))
        for module in modules
    }
    assert [
        module
        for module in modules
        if module not in ("scoring", "causes") and not public[module] & shown
    ] == []
    called = {name for name in shown if re.search(rf"`[^`|]*\b{name}\(", text)}
    assert called - {"register", "Maths"} <= set().union(*public.values())


@reward_function(mode="batch", score_range=(0.0, 1.0))
def shortest(rollouts_messages: list[list[Any]], **kwargs: Any) -> list[EvaluateResult]:
    """The share that the shortest answer has of each."""
    lengths = [len(messages[-1].text) for messages in rollouts_messages]
    return [EvaluateResult(score=min(lengths) / length) for length in lengths]


COMPARING: dict[str, Callable[[], Any]] = {
    "a batch function": lambda: shortest,
    "a listwise judge": lambda: RewardRegistry.create(
        "base_helpfulness_listwise", llm=FakeLLM(reply="<best>1</best>")
    ),
    "a round robin": lambda: RewardRegistry.create(
        "group_win_rate", llm=FakeLLM(reply=PhraseJudge(("bbbb", "dd")))
    ),
}


@pytest.mark.parametrize("kind", COMPARING)
@pytest.mark.parametrize("name", sorted(ADAPTERS))
def test_what_compares_is_refused_where_each_completion_comes_by_itself(
    name: str, kind: str
) -> None:
    adapter, reward = ADAPTERS[name], COMPARING[kind]()
    if not adapter.groups:
        with pytest.raises(
            ConfigError, match="compares the completions of a prompt, and here each comes by itself"
        ):
            adapter.make(reward)
    elif adapter.batch is not None and not name.endswith("trl_rewards"):
        found = waited(
            adapter.batch(adapter.make(reward), [Row("q", text) for text in ("a", "bbbb", "dd")])
        )
        assert len({json.dumps(each) for each in found}) > 1, "no constant"
    if name.startswith("slime."):
        with pytest.raises(ConfigError, match="--group-rm"):
            waited(adapter.call(adapter.make(reward), Row("q", "a")))
