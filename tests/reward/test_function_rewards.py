"""A decorated function is called as a function and scores as a reward, whatever its annotations, kind and result."""

from __future__ import annotations

import asyncio
import concurrent.futures
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypedDict

import pytest

from rm_gallery import ConfigError, EvaluateResult, Message, MetricResult, RewardRegistry, StepOutput, reward_function
from rm_gallery.core.data.conversation import sample_of_messages
from rm_gallery.core.data.schema import DataSample, RewardIssue
from rm_gallery.core.reward.function import RewardFunction
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.runner.build import build_reward
from rm_gallery.core.utils.errors import DataError
from tests.reward import function_rewards as functions

ASK: dict[str, Any] = {"role": "user", "content": "q?"}
SAYS: dict[str, Any] = {"role": "assistant", "content": "四四"}
TURNS = [ASK, SAYS]


def sample(*answers: Any, **row: Any) -> DataSample:
    made = [
        sample_of_messages([ASK, {"role": "assistant", "content": answer}], row=row) for answer in answers or ("四四",)
    ]
    made[0].output = [one.output[0] for one in made]
    return made[0]


def issue_of(reward: BaseReward, asked: DataSample) -> RewardIssue:
    (found,) = reward.evaluate(asked).output[0].answer.reward.issues
    return found


@pytest.mark.parametrize(
    "name", ["optional", "union", "sequence", "unknown_beside", "dicts", "untyped", "plain", "waits"]
)
@pytest.mark.parametrize("messages", [TURNS, [Message(**turn) for turn in TURNS], [ASK, Message(**SAYS)]])
def test_every_annotation_gets_messages_in_its_form(name: str, messages: Any) -> None:
    function = getattr(functions, name)
    called = function if isinstance(function, RewardFunction) else reward_function(function)
    found: Any = called(messages=messages)
    if called.is_async:
        found = asyncio.run(found)
    assert isinstance(found, EvaluateResult)
    assert found.score == found["score"] == 2.0
    positional = asyncio.run(called(messages)) if called.is_async else called(messages)
    assert positional == found


@pytest.mark.parametrize("name", ["optional", "dicts", "untyped", "waits", "plain"])
def test_one_definition_same_score_through_every_door(name: str) -> None:
    reward = build_reward(getattr(functions, name))
    asked = sample("四四", "", None)
    found = [
        reward.evaluate(asked),
        reward.evaluate_batch([asked] * 3)[2],
        pickle.loads(pickle.dumps(reward)).evaluate(asked),
        asyncio.run(reward.async_evaluate(asked)),
        asyncio.run(reward.async_evaluate_batch([asked] * 300))[299],
    ]
    for one in found:
        assert [output.answer.reward.score for output in one.output] == [2.0, 0.0, 0.0]
        assert [output.answer.reward.issues for output in one.output] == [[], [], []]


class Turn(TypedDict):
    role: str
    content: str


def test_an_annotation_that_means_nothing_costs_the_others_nothing() -> None:
    seen: list[type] = []

    @reward_function
    def beside(messages: list[dict[str, Any]], thing: "Nowhere" = None, **kwargs: Any) -> float:  # type: ignore[name-defined]  # noqa: F821, UP037
        seen.append(type(messages[0]))
        return 1.0

    @reward_function
    def typed(messages: list[Turn], original_messages: list[dict[str, Any]], **kwargs: Any) -> float:
        seen.extend([type(messages[0]), type(original_messages[0])])
        return 1.0

    asked = [Message(**turn) for turn in TURNS]
    beside(messages=asked)
    typed(messages=asked, original_messages=asked)
    assert seen == [dict, dict, dict]


def test_a_ground_truth_of_messages_is_read_as_messages() -> None:
    @reward_function
    def compares(messages: list[Message], ground_truth: list[Message] | str, **kwargs: Any) -> float:
        return float(messages[-1].text == (ground_truth if isinstance(ground_truth, str) else ground_truth[-1].text))

    assert (
        compares(messages=TURNS, ground_truth=TURNS).score == compares(messages=TURNS, ground_truth="四四").score == 1
    )
    assert compares.reward().evaluate(sample(reference=TURNS)).output[0].answer.reward.score == 1


def test_none_is_handed_on_where_it_is_annotated() -> None:
    assert functions.optional(messages=None).score == -1


@pytest.mark.parametrize(
    ("message", "told"),
    [({"content": "x"}, r"messages\[0\]: expected a message with role"), ("x", r"messages\[0\]: expected a message")],
)
def test_a_message_that_is_none_is_named(message: Any, told: str) -> None:
    with pytest.raises(DataError, match=told):
        functions.optional(messages=[message])


# -- results -----------------------------------------------------------------------------------------------------------------


def test_a_result_reads_as_object_and_as_mapping() -> None:
    metric = MetricResult(score=1, reason="why")
    result = EvaluateResult(
        score=0.5, reason="r", metrics={"m": metric}, step_outputs=[StepOutput(step_index=0, base_reward=1)]
    )
    assert result["score"] == result.score == result.get("score") == 0.5
    assert ("score" in result, "nothing" in result, result.get("nothing", 3), bool(result)) == (True, False, 3, True)
    assert (
        list(result) == list(result.keys()) == ["score", "is_score_valid", "reason", "metrics", "step_outputs", "error"]
    )
    assert dict(result)["metrics"] == {"m": metric}
    assert dict(result.items())["reason"] == list(result.values())[2] == "r"
    assert (metric["reason"], metric.is_score_valid) == ("why", True)
    wire = result.model_dump()
    assert wire["metrics"] == {"m": {"score": 1.0, "is_score_valid": True, "reason": "why"}}
    assert EvaluateResult.model_validate(wire) == result
    assert EvaluateResult.model_validate_json(result.model_dump_json()) == result
    with pytest.raises(KeyError):
        result["nothing"]


@pytest.mark.parametrize("score", [float("nan"), float("inf"), "0.5", None, [1.0]])
@pytest.mark.parametrize("model", [EvaluateResult, MetricResult])
def test_a_score_is_a_finite_number(model: Any, score: Any) -> None:
    with pytest.raises(ValueError, match="score"):
        model(score=score)


def test_a_misspelt_field_is_an_error() -> None:
    with pytest.raises(ValueError, match="is_valid"):
        EvaluateResult(score=1, is_valid=True)  # type: ignore[call-arg]


def returning(value: Any) -> RewardFunction[Any]:
    @reward_function
    def returns(messages: list[Message], **kwargs: Any) -> Any:
        if isinstance(value, Exception):
            raise value
        return value

    return returns


def _nan_later() -> EvaluateResult:
    result = EvaluateResult(score=0.0)
    result.score = float("nan")
    return result


@pytest.mark.parametrize(
    ("value", "score"),
    [
        (0.25, 0.25),
        (True, 1.0),
        (3, 3.0),
        ({"score": 0.5, "metrics": {"m": {"score": 1}}}, 0.5),
        (EvaluateResult(score=-2), -2.0),
        (1e300, 1e300),
    ],
)
def test_results_that_are_scores(value: Any, score: float) -> None:
    reward = returning(value).reward()
    answer = reward.evaluate(sample()).output[0].answer.reward
    assert (answer.score, reward.score_of(answer)) == (score, score)


@pytest.mark.parametrize(
    ("value", "status", "reason", "told"),
    [
        (None, "unscored", "invalid_score", "returned None"),
        (EvaluateResult(score=0, is_score_valid=False, reason="too short"), "unscored", "invalid_score", "too short"),
        (EvaluateResult(score=0, is_score_valid=False), "unscored", "invalid_score", "its score is not valid"),
        (EvaluateResult(score=0, error="judge is down"), "failed", "function_error", "judge is down"),
        (float("nan"), "failed", "error", "finite number"),
        ({"score": float("inf")}, "failed", "error", "finite number"),
        (_nan_later(), "failed", "error", "finite number"),
        ({"reason": "no score"}, "failed", "error", "score"),
        ("1.0", "failed", "error", "returned str"),
        ((1.0, {}), "failed", "error", "returned tuple"),
        (RuntimeError("boom"), "failed", "error", "RuntimeError: boom"),
    ],
)
def test_results_that_are_no_scores(value: Any, status: str, reason: str, told: str) -> None:
    issue = issue_of(returning(value).reward(), sample())
    assert (issue.status, issue.reason) == (status, reason)
    assert told in issue.message


def test_a_result_made_unfit_after_it_was_made_is_refused_where_the_function_is_called() -> None:
    with pytest.raises(ValueError, match="returns gave the score nan"):
        returning(_nan_later())(messages=TURNS)


def test_components_and_range() -> None:
    reward = functions.graded.reward()
    answer = reward.evaluate(sample("xx", ground_truth="x")).output[0].answer.reward
    assert (answer.score, answer.details[0].reason, reward.score_range) == (0.5, "r", (0, 1))
    assert answer.extra_data["graded"]["metrics"] == {
        "right": {"score": 0.0, "is_score_valid": True, "reason": "equal"},
        "seen": {"score": 0.0, "is_score_valid": False, "reason": ""},
    }
    outside = functions.graded.reward(near=2.0)
    assert "outside the declared range" in issue_of(outside, sample("xx", ground_truth="x")).message


def test_a_group_is_scored_in_one_call_and_one_invalid_result_costs_its_own_answer() -> None:
    reward = functions.share.reward()
    outputs = reward.evaluate(sample("aa", "", "a")).output
    assert [output.answer.reward.score for output in outputs] == [1.0, None, 0.5]
    assert [(i.status, i.message) for i in outputs[1].answer.reward.issues] == [("unscored", "empty")]
    assert [
        functions.share_later.reward().evaluate(sample("a", "b")).output[i].answer.reward.score for i in (0, 1)
    ] == [2, 2]
    assert [one.score for one in functions.share(rollouts_messages=[TURNS, TURNS])] == [1.0, 1.0]


@pytest.mark.parametrize("named", [functions.share, f"func:{functions.__name__}:share", functions.share.reward_class()])
def test_a_function_of_groups_is_built_by_name(named: Any) -> None:
    outputs = build_reward(named, seed=7).evaluate(sample("aa", "a")).output
    assert [output.answer.reward.score for output in outputs] == [1.0, 0.5]


@pytest.mark.parametrize("found", [[], [1.0], 1.0, {"score": 1}, "xx"])
def test_a_group_of_another_size_is_failed(found: Any) -> None:
    @reward_function(mode="batch")
    def group(rollouts_messages: Any, **kwargs: Any) -> Any:
        return found

    outputs = group.reward().evaluate(sample("a", "b")).output
    assert [output.answer.reward.issues[0].status for output in outputs] == ["failed", "failed"]
    assert "for 2 rollouts" in outputs[0].answer.reward.issues[0].message


# -- what a function is given ------------------------------------------------------------------------------------------------


def test_a_function_gets_what_it_names_and_kwargs_get_the_rest() -> None:
    seen: list[Any] = []

    @reward_function
    def named(
        messages: list[Message], original_messages: list[Message], solution: str, ground_truth: Any = "default"
    ) -> float:
        seen.append((original_messages[0].content, solution, ground_truth))
        return 1.0

    @reward_function
    def rest(messages: list[Message], **kwargs: Any) -> float:
        seen.append(kwargs)
        return 1.0

    named.reward().evaluate(sample(solution="s", other=1))
    assert seen.pop() == ("q?", "s", "default")
    rest.reward().evaluate(sample(ground_truth=0, other=1, messages="of the row"))
    assert seen.pop() == {"ground_truth": 0, "other": 1, "original_messages": [ASK]}


def test_what_is_fixed_wins_over_the_row_and_what_a_run_says_over_both() -> None:
    reward, asked = functions.graded.reward(near=0.25), sample("xx", ground_truth="x", near=0.75)
    found = reward.evaluate(asked), reward.evaluate(asked, hooks={"near": 0.125})
    assert [one.output[0].answer.reward.score for one in found] == [0.25, 0.125]


def test_a_prompt_that_is_told_apart_is_the_one_a_function_gets() -> None:
    @reward_function
    def prompt(messages: list[Message], original_messages: list[Message], **kwargs: Any) -> float:
        return float(original_messages[-1].text)

    apart = sample_of_messages(TURNS, original_messages=[{"role": "user", "content": "7"}])
    assert prompt.reward().evaluate(apart).output[0].answer.reward.score == 7.0


@pytest.mark.parametrize(
    ("row", "reason", "told"),
    [({}, "no_reference", "graded needs a ground_truth"), ({"reference": None}, "no_reference", "no reference")],
)
def test_without_a_reference_there_is_no_score(row: dict[str, Any], reason: str, told: str) -> None:
    issue = issue_of(functions.graded.reward(), sample(**row))
    assert (issue.status, issue.reason) == ("unscored", reason)
    assert told in issue.message


def test_a_missing_column_names_the_columns_there_are() -> None:
    @reward_function
    def needs(messages: list[Message], solution: str) -> float:
        return 1.0

    issue = issue_of(needs.reward(), sample(answer="a", level=3))
    assert (issue.status, issue.reason) == ("failed", "data")
    assert issue.message == "needs needs 'solution', which the sample does not have; its columns are: answer, level."


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: functions.graded.reward(naer=1), "no setting of graded 'naer'. Did you mean name, near?"),
        (lambda: functions.graded.reward(messages=[]), "no setting of graded 'messages'"),
        (lambda: functions.graded.reward(max_workers=0), "max_workers"),
        (
            lambda: reward_function(mode="pairwise"),  # type: ignore[call-overload]
            "mode is 'pairwise'; 'pointwise' or 'batch'",
        ),
        (lambda: reward_function(lambda prompt: 1.0), "has no parameter 'messages', found prompt"),
        (lambda: reward_function(mode="batch"), "has no parameter 'rollouts_messages'"),
        (
            lambda: reward_function(7),  # type: ignore[call-overload]
            "is given 7; write @reward_function above a function",
        ),
        (lambda: reward_function(score_range=(1, 0)), "score_range of plain is"),
        (lambda: reward_function(score_range=(1, 1)), "score_range of plain is"),
    ],
)
def test_what_does_not_fit_is_named(make: Any, told: str) -> None:
    with pytest.raises(ConfigError) as raised:
        made = make()
        made(functions.plain)
    assert told in str(raised.value)


# -- resources ---------------------------------------------------------------------------------------------------------------


class Counted:
    def __init__(self, broken: bool = False) -> None:
        self.calls: list[str] = []
        self.broken = broken

    def setup(self) -> None:
        self.calls.append("setup")
        time.sleep(0.02)  # long enough for a second caller to come
        if self.broken:
            raise RuntimeError("no room")

    def cleanup(self) -> None:
        self.calls.append("cleanup")


def test_resources_are_set_up_at_the_first_call_once_and_cleaned() -> None:
    held = Counted()

    @reward_function(resources={"shop": [held]})
    def uses(messages: list[Message], **kwargs: Any) -> float:
        assert kwargs["resources"]["shop"] == [held]
        return 1.0

    assert held.calls == []
    gate = threading.Barrier(8)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        scores = list(pool.map(lambda _: (gate.wait(), uses(messages=TURNS).score)[1], range(8)))
    assert scores == [1.0] * 8
    assert uses.reward().evaluate(sample()).output[0].answer.reward.score == 1.0
    assert held.calls == ["setup"]
    uses.close()
    uses.close()
    assert held.calls == ["setup", "cleanup"]
    uses(messages=TURNS)
    uses.close()
    assert held.calls == ["setup", "cleanup"] * 2


def test_resources_are_cleaned_last_first_and_one_that_fails_keeps_no_other_from_it() -> None:
    order: list[str] = []

    class Named(Counted):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

        def cleanup(self) -> None:
            order.append(self.name)
            if self.name == "second":
                raise RuntimeError("stuck")

    @reward_function(resources={"a": [Named("first"), Named("second")], "b": [Named("third")]})
    def uses(messages: list[Message], **kwargs: Any) -> float:
        return 1.0

    uses(messages=TURNS)
    uses.close()
    assert order == ["third", "second", "first"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_sets_up_resources_of_its_own(tmp_path: Path) -> None:
    script = tmp_path / "forks.py"
    script.write_text(
        "import os\nfrom rm_gallery import reward_function\n"
        "class Shop:\n    def setup(self): self.of = os.getpid()\n"
        "    def cleanup(self): print('own' if self.of == os.getpid() else 'of another', flush=True)\n"
        "@reward_function(resources={'shop': [Shop()]})\n"
        "def scored(messages, resources, **kwargs): return float(resources['shop'][0].of == os.getpid())\n"
        "said = [{'role': 'user', 'content': 'x'}]\nassert scored(said).score == 1.0\n"
        "idle = os.fork()\nchild = os.fork() if idle else None\n"
        "if idle: assert scored(said).score == 1.0\n"
        "if child: assert [os.waitpid(each, 0)[1] for each in (idle, child)] == [0, 0]\n",
        encoding="utf-8",
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split("\n") == ["own", "own", ""]


def test_resources_are_cleaned_when_the_process_ends(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from rm_gallery import reward_function\n"
        "class Shop:\n    def setup(self): pass\n    def cleanup(self): print('cleaned')\n"
        "@reward_function(resources={'shop': [Shop()]})\ndef scored(messages, **kwargs): return 1.0\n"
        "print(scored(messages=[]).score)\n",
        encoding="utf-8",
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["1.0", "cleaned"]


def test_a_resource_that_cannot_be_set_up_fails_its_samples_and_frees_the_others() -> None:
    held, broken = Counted(), Counted(broken=True)

    @reward_function(resources={"a": [held], "b": [broken]})
    def uses(messages: list[Message], resources: Any) -> float:
        return 1.0

    issue = issue_of(uses.reward(), sample())
    assert (issue.status, issue.message) == ("failed", "RuntimeError: no room")
    assert held.calls == ["setup", "cleanup"]


# -- names, files, processes ---------------------------------------------------------------------------------------------------


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RewardRegistry, "_classes", dict(RewardRegistry._classes))


@pytest.mark.usefixtures("registry")
def test_a_function_is_registered_like_a_class() -> None:
    registered = RewardRegistry.register("graded_function")(functions.graded)
    assert registered is functions.graded
    RewardRegistry.register("graded_function", functions.graded)
    assert "graded_function" in RewardRegistry.list()
    reward = RewardRegistry.create("graded_function", near=0.25)
    answer = reward.evaluate(sample("xx", ground_truth="x")).output[0].answer.reward
    assert (reward.name, answer.score, reward.max_workers) == ("graded_function", 0.25, 8)
    assert issubclass(RewardRegistry.get("graded_function"), BaseReward)
    assert RewardRegistry.get("graded_function").score_range == (0, 1)
    with pytest.raises(ConfigError, match="taken by tests.reward.function_rewards.graded"):
        RewardRegistry.register("graded_function", functions.share)


FILE = """
from rm_gallery import reward_function
import helper
@reward_function
def evaluate(messages, **kwargs):
    return helper.SCORE
def plain(messages):
    return 2 * helper.SCORE
"""


def metric(folder: Path, score: float) -> Path:
    folder.mkdir()
    (folder / "helper.py").write_text(f"SCORE = {score}\n", encoding="utf-8")
    (folder / "main.py").write_bytes(FILE.replace("\n", "\r\n").encode())
    return folder / "main.py"


def score(reward: Any) -> float | None:
    return build_reward(reward).evaluate(sample()).output[0].answer.reward.score


def test_functions_of_files_are_rewards_each_with_its_own_modules(tmp_path: Path) -> None:
    first, second = metric(tmp_path / "a", 0.25), metric(tmp_path / "指标 b", 0.5)
    assert score(f"func:{first}:evaluate") == 0.25
    assert score(f"func:{second}:evaluate") == 0.5
    assert score(f"func:{second}") == score(f"func:{second.parent}") == 0.5
    assert score(f"func:{first}:plain") == 0.5
    assert score("func:tests.reward.function_rewards:waits") == 2.0
    reward = build_reward(f"func:{first}:evaluate")
    assert pickle.loads(pickle.dumps(reward)).settings_hash == reward.settings_hash
    first.write_text(FILE.replace("helper.SCORE", "0.75", 1), encoding="utf-8")
    assert score(f"func:{first}:evaluate") == 0.75


def test_a_built_reward_of_a_file_takes_no_further_settings(tmp_path: Path) -> None:
    file = tmp_path / "built.py"
    file.write_text("from rm_gallery import RewardRegistry\nexact = RewardRegistry.create('accuracy')\n", "utf-8")
    assert build_reward(f"func:{file}:exact", {"name": "mine"}).name == "mine"
    with pytest.raises(ConfigError, match="is built already; give threshold where it is made"):
        build_reward(f"func:{file}:exact", {"threshold": 1})


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("{0}/nothing.py:evaluate", "cannot be read (No such file or directory); give the path of a Python file"),
        ("{0}/broken.py:evaluate", "broken.py cannot be loaded: ZeroDivisionError"),
        ("{0}/two.py", "say which reward function, as in func:{0}/two.py:NAME; it holds first, second"),
        ("{0}/two.py:frist", "There is no reward function in {0}/two.py 'frist'. Did you mean first?"),
        ("no_such_module_anywhere:evaluate", "no such file, and as a module it cannot be imported"),
    ],
)
def test_what_a_name_does_not_find_is_told(tmp_path: Path, target: str, told: str) -> None:
    (tmp_path / "broken.py").write_text("1 / 0\n", encoding="utf-8")
    two = "from rm_gallery import reward_function\n@reward_function\ndef first(messages): return 1\n"
    (tmp_path / "two.py").write_text(f"{two}@reward_function\ndef second(messages): return 1\n", encoding="utf-8")
    with pytest.raises(ConfigError) as raised:
        build_reward(f"func:{target.format(tmp_path)}")
    assert told.format(tmp_path) in str(raised.value)


def test_the_same_code_is_the_same_reward_and_other_code_another() -> None:
    def made(bonus: float) -> BaseReward:
        @reward_function
        def scored(messages: list[Message], extra: float = 0.0) -> float:
            return bonus

        return scored.reward()

    def other(low: float, **declared: Any) -> BaseReward:
        def scored(messages: list[Message], extra: float = 0.0) -> float:
            return 1.0

        def twice(messages: list[Message], extra: float = 0.0) -> float:
            return 1.0 + 1.0

        twice.__name__, twice.__qualname__ = scored.__name__, scored.__qualname__
        return reward_function(score_range=(low, 5))(twice if declared else scored).reward()

    assert made(1.0).settings_hash == made(1.0).settings_hash != made(2.0).settings_hash
    assert other(0).settings_hash == other(0).settings_hash
    assert len({other(0).settings_hash, other(1).settings_hash, other(0, twice=True).settings_hash}) == 3
    assert functions.graded.reward(near=0.1).settings_hash != functions.graded.reward().settings_hash


def test_an_id_is_the_name_of_the_reward() -> None:
    named = reward_function(id="by-id")(functions.plain)
    assert (named.name, named.reward().name, named.reward(name="other").name) == ("by-id", "by-id", "other")


def test_pickles_are_names() -> None:
    assert pickle.loads(pickle.dumps(functions.graded)) is functions.graded
    assert len(pickle.dumps(functions.graded)) < 100
    undecorated = pickle.loads(pickle.dumps(build_reward(functions.plain)))
    assert undecorated.evaluate(sample()).output[0].answer.reward.score == 2.0


def scored_elsewhere(reward: BaseReward) -> float | None:
    return reward.evaluate(sample()).output[0].answer.reward.score


def test_another_process_scores_the_same() -> None:
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
        assert pool.submit(scored_elsewhere, functions.waits.reward()).result(60) == 2.0


def test_messages_of_foreign_objects() -> None:
    assert functions.optional(messages=[SimpleNamespace(role="assistant", content="abc")]).score == 3.0
