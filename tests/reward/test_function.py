"""A decorated function is called as a function and scores as a reward, whatever its annotations,
kind and result.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import copy
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
from pydantic import BaseModel

from rm_gallery import (
    BaseReward,
    ConfigError,
    DataError,
    DataSample,
    EvaluateResult,
    Message,
    MetricResult,
    RewardRegistry,
    StepOutput,
    reward_function,
)
from rm_gallery.core.data.conversation import sample_of_completion, sample_of_messages
from rm_gallery.core.data.schema import RewardIssue
from rm_gallery.core.reward.function import RewardFunction
from rm_gallery.core.runner.grading_runner import build_reward
from rm_gallery.integrations.trl import trl_reward
from tests.golden import golden
from tests.reward import function_rewards as functions
from tests.support.samples import issues, scores

ASK: dict[str, Any] = {"role": "user", "content": "q?"}
SAYS: dict[str, Any] = {"role": "assistant", "content": "四四"}
TURNS = [ASK, SAYS]


def sample(*answers: Any, **row: Any) -> DataSample:
    made = [
        sample_of_messages([ASK, {**SAYS, "content": answer}], row=row)
        for answer in answers or ("四四",)
    ]
    made[0].output = [one.output[0] for one in made]
    return made[0]


def score(reward: Any, *answers: Any, **row: Any) -> Any:
    return scores(build_reward(reward).evaluate(sample(*answers, **row)))[0]


def issue_of(reward: BaseReward, asked: DataSample) -> RewardIssue:
    (found,) = reward.evaluate(asked).output[0].answer.reward.issues
    return found


MESSAGES = [
    TURNS,
    [Message(**turn) for turn in TURNS],
    [ASK, Message(**SAYS)],
    [SimpleNamespace(**SAYS)],
]


@pytest.mark.parametrize(
    "name",
    ["optional", "union", "sequence", "unknown_beside", "dicts", "untyped", "plain", "waits"],
)
def test_every_annotation_gets_messages_in_its_form_through_every_door(name: str) -> None:
    function = getattr(functions, name)
    expected = 0.5 if name == "plain" else 2.0
    called = function if isinstance(function, RewardFunction) else reward_function(function)
    for messages in MESSAGES:
        calls = called(messages=messages), called(messages)
        found: list[Any] = [asyncio.run(each) if called.is_async else each for each in calls]
        assert found[0] == found[1] and isinstance(found[0], EvaluateResult)
        assert found[0].score == found[0]["score"] == expected
    reward, asked = build_reward(function), sample("四四", "", None)
    through = [
        reward.evaluate(asked),
        reward.evaluate_batch([asked] * 3)[2],
        pickle.loads(pickle.dumps(reward)).evaluate(asked),
    ]
    through += [
        asyncio.run(reward.async_evaluate(asked)),
        asyncio.run(reward.async_evaluate_batch([asked] * 300))[299],
    ]
    assert [scores(one) for one in through] == [[expected, 0.0, 0.0]] * 5


class Said(BaseModel):
    role: str
    content: str


class Called:
    def __call__(self, messages: list[Said]) -> float:
        return float(len(messages[-1].content))


def test_an_object_that_is_called_and_models_of_ones_own_are_taken_too() -> None:
    class Result(BaseModel):
        score: float

    @reward_function
    def own(messages: list[Said], **kwargs: Any) -> Result:
        assert all(type(message) is Said for message in messages)
        return Result(score=len(messages[-1].content))

    for given in (*MESSAGES, [Said(**turn) for turn in TURNS]):
        assert own(messages=given).score == 2.0
    assert repr(own) == "<reward function own>" and copy.deepcopy(own) is own
    called = reward_function(Called())
    assert (called.name, called(messages=MESSAGES[1]).score) == ("Called", 2.0)
    assert own.reward().settings_hash != own.reward(name="other").settings_hash


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
    def typed(messages: list[Turn], original_messages: list[dict[str, Any]], **rest: Any) -> float:
        seen.extend([type(messages[0]), type(original_messages[0])])
        return 1.0

    @reward_function
    def compares(messages: list[Message], ground_truth: list[Message] | str, **rest: Any) -> float:
        truth = ground_truth if isinstance(ground_truth, str) else ground_truth[-1].text
        return float(messages[-1].text == truth)

    beside(messages=MESSAGES[1])
    typed(messages=MESSAGES[1], original_messages=MESSAGES[1])
    assert seen == [dict, dict, dict]
    for truth, wanted in ((TURNS, 1), ("四四", 1), ("x", 0)):
        assert compares(messages=TURNS, ground_truth=truth).score == wanted
    assert score(compares, reference=TURNS) == 1
    assert functions.optional(messages=None).score == -1, "None is handed on where it is annotated"
    for message, told in (({"content": "x"}, "a message with role"), ("x", "a message")):
        with pytest.raises(DataError, match=rf"messages\[0\]: expected {told}"):
            functions.optional(messages=[message])


def test_a_result_reads_as_object_and_as_mapping() -> None:
    metric = MetricResult(score=1, reason="why")
    step = StepOutput(step_index=0, base_reward=1)
    result = EvaluateResult(score=0.5, reason="r", metrics={"m": metric}, step_outputs=[step])
    assert result["score"] == result.score == result.get("score") == 0.5
    assert "score" in result
    assert "nothing" not in result
    assert result.get("nothing", 3) == 3
    assert bool(result) is True
    names = "score is_score_valid reason metrics step_outputs error".split()
    assert list(result) == list(result.keys()) == names
    assert dict(result)["metrics"] == {"m": metric}
    assert dict(result.items())["reason"] == list(result.values())[2] == "r"
    wire = result.model_dump()
    assert wire["metrics"] == {"m": {"score": 1.0, "is_score_valid": True, "reason": "why"}}
    assert (
        EvaluateResult.model_validate(wire)
        == result
        == EvaluateResult.model_validate_json(result.model_dump_json())
    )
    with pytest.raises(KeyError):
        result["nothing"]
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


METRICS = {"m": {"score": 1}}


def scored(line: golden.Line) -> golden.Line:
    """What becomes of the result that a function returns."""
    reward = returning(eval(line["returns"])).reward()
    said = reward.evaluate(sample()).output[0].answer.reward
    if said.issues:
        return {
            "status": said.issues[0].status,
            "reason": said.issues[0].reason,
            "why": said.issues[0].message,
        }
    assert reward.score_of(said) == said.score
    return {"score": said.score}


@pytest.mark.parametrize("path", golden.files("functions"))
def test_results(path: Path) -> None:
    golden.check(path, scored, ("score", "status", "reason", "why"))


def test_components() -> None:
    reward = functions.graded.reward()
    answer = reward.evaluate(sample("xx", ground_truth="x")).output[0].answer.reward
    assert (answer.score, answer.details[0].reason, reward.score_range) == (0.5, "r", (0, 1))
    right = {"score": 0.0, "is_score_valid": True, "reason": "equal"}
    seen = {"score": 0.0, "is_score_valid": False, "reason": ""}
    assert answer.extra_data["graded"] == {"metrics": {"right": right, "seen": seen}}
    given = returning({"score": 1, "step_outputs": [{"step_index": 0, "base_reward": 2}]})
    extra = given.reward().evaluate(sample()).output[0].answer.reward.extra_data
    assert extra["returns"]["step_outputs"][0]["base_reward"] == 2.0


def test_a_group_is_scored_in_one_call_and_one_invalid_result_costs_its_own_answer() -> None:
    found = functions.share.reward().evaluate(sample("aa", "", "a"))
    assert scores(found) == [1.0, None, 0.5]
    assert [(i.status, i.message) for i in found.output[1].answer.reward.issues] == [
        ("unscored", "empty")
    ]
    assert scores(functions.share_later.reward().evaluate(sample("a", "b"))) == [2, 2]
    assert [one.score for one in functions.share(rollouts_messages=[TURNS, TURNS])] == [1.0, 1.0]
    named_by = f"func:{functions.__name__}:share"
    for named in (functions.share, named_by, functions.share.reward_class()):
        assert scores(build_reward(named, seed=7).evaluate(sample("aa", "a"))) == [1.0, 0.5]


@pytest.mark.parametrize("found", [[], [1.0], 1.0, {"score": 1}, "xx", RuntimeError("no")])
def test_a_group_of_another_size_is_failed(found: Any) -> None:
    @reward_function(mode="batch")
    def group(rollouts_messages: Any, **kwargs: Any) -> Any:
        if isinstance(found, Exception):
            raise found
        return found

    outputs = group.reward().evaluate(sample("a", "b")).output
    assert [output.answer.reward.issues[0].status for output in outputs] == ["failed", "failed"]
    assert (
        isinstance(found, Exception)
        or "for 2 rollouts" in outputs[0].answer.reward.issues[0].message
    )


def test_a_function_gets_what_it_names_and_kwargs_get_the_rest() -> None:
    seen: list[Any] = []

    @reward_function
    def named(
        messages: Any,
        original_messages: list[Message],
        solution: str,
        ground_truth: Any = "default",
    ) -> float:
        seen.append((original_messages[0].content, solution, ground_truth))
        return 1.0

    @reward_function
    def rest(messages: list[Message], **kwargs: Any) -> float:
        seen.append(kwargs)
        return 1.0

    named.reward().evaluate(sample(solution="s", other=1))
    rest.reward().evaluate(sample(ground_truth=0, other=1, messages="of the row"))
    earlier = [{"role": "user", "content": "7"}]
    row = {"solution": "s"}
    named.reward().evaluate(sample_of_messages(TURNS, original_messages=earlier, row=row))
    given = {"ground_truth": 0, "other": 1, "original_messages": [ASK]}
    assert seen == [("q?", "s", "default"), given, ("7", "s", "default")]
    reward, asked = functions.graded.reward(near=0.25), sample("xx", ground_truth="x", near=0.75)
    assert scores(reward.evaluate(asked)) == [0.25], "what is fixed wins over the row"
    assert scores(reward.evaluate(asked, hooks={"near": 0.125})) == [0.125], (
        "and what a run says over both"
    )


def test_what_is_missing_is_told() -> None:
    @reward_function
    def needs(messages: list[Message], solution: str) -> float:
        return 1.0

    for row in ({}, {"reference": None}):
        issue = issue_of(functions.graded.reward(), sample(**row))
        assert (issue.status, issue.reason) == ("unscored", "no_reference")
        assert issue.message.startswith("graded needs a reference: ")
    issue = issue_of(needs.reward(), sample(answer="a", level=3))
    assert (issue.status, issue.reason) == ("failed", "data")
    assert (
        issue.message
        == "needs needs 'solution', which the sample does not have; its columns are: answer, level."
    )


class Held:
    """Notes what is done with it."""

    def __init__(self, calls: list[str], name: str = "", broken: str = "") -> None:
        self.calls, self.name, self.broken = calls, name, broken

    def _note(self, what: str) -> None:
        self.calls.append(f"{self.name}{what}")
        if self.broken == what:
            raise RuntimeError("no room")

    def setup(self) -> None:
        time.sleep(0.02)  # long enough for a second caller to come
        self._note("setup")

    def cleanup(self) -> None:
        self._note("cleanup")


def uses(**resources: Any) -> RewardFunction[Any]:
    @reward_function(resources=resources)
    def used(messages: list[Message], resources: Any) -> float:
        return float(len(resources))

    return used


def test_resources_are_set_up_at_the_first_call_once_and_cleaned() -> None:
    calls: list[str] = []
    used, gate = uses(shop=[Held(calls)]), threading.Barrier(8)
    assert calls == []
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        found = pool.map(lambda _: (gate.wait(), used(messages=TURNS))[1], range(8))
        assert [each.score for each in found] == [1.0] * 8
    assert score(used) == 1.0 and calls == ["setup"]
    used.close()
    used.close()
    used(messages=TURNS)
    used.close()
    assert calls == ["setup", "cleanup"] * 2


def test_resources_are_cleaned_last_first_whatever_one_of_them_does() -> None:
    calls: list[str] = []
    used = uses(a=[Held(calls, "1 "), Held(calls, "2 ", "cleanup")], b=[Held(calls, "3 ")])
    used(messages=TURNS)
    calls.clear()
    used.close()
    assert calls == ["3 cleanup", "2 cleanup", "1 cleanup"]
    calls.clear()
    issue = issue_of(uses(a=[Held(calls, "1 ")], b=[Held(calls, "2 ", "setup")]).reward(), sample())
    assert (issue.status, issue.message) == ("failed", "RuntimeError: no room")
    assert calls == ["1 setup", "2 setup", "1 cleanup"]


@pytest.mark.long("much work")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_sets_up_resources_of_its_own_and_every_process_cleans_its_own(
    tmp_path: Path,
) -> None:
    script = tmp_path / "forks.py"
    script.write_text(
        "import os\nfrom rm_gallery import reward_function\n"
        "class Shop:\n    def setup(self): self.of = os.getpid()\n"
        "    def cleanup(self): print('own' if self.of == os.getpid() else 'of another', "
        "flush=True)\n@reward_function(resources={'shop': [Shop()]})\n"
        "def scored(messages, resources, **kwargs): return float(resources['shop'][0].of == "
        "os.getpid())\nsaid = [{'role': 'user', 'content': 'x'}]\nassert scored(said).score == "
        "1.0\nidle = os.fork()\nchild = os.fork() if idle else None\n"
        "if idle: assert scored(said).score == 1.0\n"
        "if child: assert [os.waitpid(each, 0)[1] for each in (idle, child)] == [0, 0]\n",
        encoding="utf-8",
    )
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split("\n") == ["own", "own", ""]


def test_a_function_is_registered_like_a_class(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RewardRegistry, "_classes", dict(RewardRegistry._classes))
    assert RewardRegistry.register("graded_function")(functions.graded) is functions.graded
    RewardRegistry.register("graded_function", functions.graded)
    assert "graded_function" in RewardRegistry.list()
    reward = RewardRegistry.create("graded_function", near=0.25)
    assert reward.name == "graded_function"
    assert score(reward, "xx", ground_truth="x") == 0.25
    assert reward.max_workers == 64
    assert issubclass(RewardRegistry.get("graded_function"), BaseReward)
    assert RewardRegistry.get("graded_function").score_range == (0, 1)
    with pytest.raises(ConfigError, match="taken by tests.reward.function_rewards.graded"):
        RewardRegistry.register("graded_function", functions.share)


FILE = """
from rm_gallery import reward_function, RewardRegistry
import helper
@reward_function
def evaluate(messages, **kwargs):
    return helper.SCORE
def plain(messages):
    return 2 * helper.SCORE
exact = RewardRegistry.create('accuracy')
"""


def metric(folder: Path, number: float) -> Path:
    folder.mkdir()
    (folder / "helper.py").write_text(f"SCORE = {number}\n", encoding="utf-8")
    (folder / "main.py").write_bytes(FILE.replace("\n", "\r\n").encode())
    return folder / "main.py"


def test_functions_of_files_are_rewards_each_with_its_own_modules(tmp_path: Path) -> None:
    first, second = metric(tmp_path / "a", 0.25), metric(tmp_path / "指标 b", 0.5)
    assert score(f"func:{first}:evaluate") == 0.25
    for target in (f"{second}:evaluate", f"{second}", f"{second.parent}", f"{first}:plain"):
        assert score(f"func:{target}") == 0.5
    assert score(f"func:{functions.__name__}:waits") == 2.0
    reward = build_reward(f"func:{first}:evaluate")
    assert pickle.loads(pickle.dumps(reward)).settings_hash == reward.settings_hash
    first.write_text(FILE.replace("helper.SCORE", "0.75", 1), encoding="utf-8")
    assert score(f"func:{first}:evaluate") == 0.75, "a file that has changed is loaded again"
    kept = first.read_text(encoding="utf-8")
    first.write_text("1 / 0", encoding="utf-8")
    with pytest.raises(ConfigError, match="cannot be loaded: ZeroDivisionError"):
        build_reward(f"func:{first}:evaluate")
    assert scores(pickle.loads(pickle.dumps(reward.evaluate(sample())))) == [0.25], (
        "and what was loaded before still works"
    )
    first.write_text(kept, encoding="utf-8")
    assert build_reward(f"func:{first}:exact", {"name": "mine"}).name == "mine"
    with pytest.raises(ConfigError, match="is built already; give threshold where it is made"):
        build_reward(f"func:{first}:exact", {"threshold": 1})


@pytest.mark.parametrize(("target", "told"), [
    ("{0}/nothing.py:evaluate", "cannot be read (No such file or directory); give the path of a Python file"),
    ("{0}/broken.py:evaluate", "broken.py cannot be loaded: ZeroDivisionError"),
    ("{0}/text.txt:evaluate", "text.txt is no Python file; its name ends in .py"),
    ("{0}/two.py", "as in {0}/two.py:NAME; it holds first, second"),
    ("{0}/none.py", "as in {0}/none.py:NAME; it holds none"),
    ("{0}/two.py:frist", "There is no reward in {0}/two.py 'frist'. Did you mean first?"),
    ("no_such_module_anywhere:evaluate", "no such file, and as a module it cannot be imported"),
])  # fmt: skip
def test_what_a_name_does_not_find_is_told(tmp_path: Path, target: str, told: str) -> None:
    two = "from rm_gallery import reward_function\n"
    for name in ("first", "second"):
        two += f"@reward_function\ndef {name}(messages): return 1\n"
    texts = {"broken.py": "1 / 0\n", "text.txt": "", "none.py": "", "two.py": two}
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as raised:
        build_reward(f"func:{target.format(tmp_path)}")
    assert told.format(tmp_path) in str(raised.value)


def test_the_same_code_is_the_same_reward_and_other_code_or_another_declaration_another() -> None:
    def made(bonus: float = 1.0, **declared: Any) -> str:
        def scored(messages: list[Message], extra: float = 0.0) -> float:
            return bonus

        decorate: Any = reward_function(**declared) if declared else reward_function
        return str(decorate(scored).reward(name="same").settings_hash)

    def other() -> str:
        @reward_function
        def scored(messages: list[Message], extra: float = 0.0) -> float:
            return 1.0 + 1.0

        return scored.reward(name="same").settings_hash

    ranges = [made(score_range=(low, 5)) for low in (0, 1)]
    hashes = [made(), made(2.0), *ranges, made(requirements=["numpy"]), other()]
    assert made() == hashes[0] and len(set(hashes)) == len(hashes)
    assert made(requirements="numpy") == made(requirements=["numpy"])
    assert (
        functions.graded.reward(near=0.1).settings_hash != functions.graded.reward().settings_hash
    )
    assert functions.waits.requirements == ["numpy"]
    named = reward_function(id="by-id")(functions.plain)
    assert named.name == "by-id"
    assert named.reward().name == "by-id"
    assert named.reward(name="other").name == "other"


def scored_elsewhere(reward: BaseReward) -> float | None:
    return scores(reward.evaluate(sample()))[0]


@pytest.mark.long("much work")
def test_pickles_are_names_and_another_process_scores_the_same() -> None:
    assert pickle.loads(pickle.dumps(functions.graded)) is functions.graded
    assert len(pickle.dumps(functions.graded)) < 100
    assert score(pickle.loads(pickle.dumps(build_reward(functions.plain)))) == 0.5
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=spawn) as pool:
        assert pool.submit(scored_elsewhere, functions.waits.reward()).result(60) == 2.0


@pytest.mark.parametrize(("completion", "response", "last"), [
    ("4", "4", "assistant"),
    ("", "", "assistant"),
    ([], "", "assistant"),
    ([{"role": "tool", "content": "42", "tool_call_id": "1"}], "", "assistant"),
    ([{"role": "assistant", "content": "4"}, {"role": "tool", "content": "42", "tool_call_id": "1"}], "4", "tool"),
])  # fmt: skip
def test_nobody_elses_words_pass_for_the_answer(completion: Any, response: str, last: str) -> None:
    seen: list[Any] = []

    def pointwise(messages: list[dict[str, Any]], response: str, **columns: Any) -> float:
        seen.append((response, messages[-1]["role"]))
        return 1.0

    def batch(
        rollouts_messages: list[list[dict[str, Any]]], responses: list[str], **columns: Any
    ) -> list[float]:
        seen.append((responses[0], rollouts_messages[0][-1]["role"]))
        return [1.0]

    row = {"response": "a column", "responses": "another"}
    sample = sample_of_completion("What is 2 + 2?", completion, row=row)
    both: list[RewardFunction[Any]] = [RewardFunction(pointwise), RewardFunction(batch, "batch")]
    for reward in both:
        assert reward.reward().evaluate(sample).output[0].answer.reward.score == 1.0
    assert seen == [(response, last)] * 2


COLUMNS = "self cls args kwargs function messages response sample name prompts completions row params".split()


@pytest.mark.parametrize("column", COLUMNS)
def test_a_column_may_have_any_name(column: str) -> None:
    """Also those that parameters of the library's own functions have."""

    @reward_function(score_range=(0.0, 9.0))
    def seen(messages: list[Any], **kwargs: Any) -> EvaluateResult:
        return EvaluateResult(score=float(len(messages)), reason=str(kwargs.get(column)))

    talk = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    done = seen.reward().evaluate(sample_of_messages(talk, row={column: 7}))
    assert scores(done) == [2.0], issues(done)
    if column not in ("prompts", "completions"):  # which are the trainer's own
        assert trl_reward(seen)(prompts=["q"], completions=["a"], **{column: [7]}) == [2.0]
