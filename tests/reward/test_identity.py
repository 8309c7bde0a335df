"""What counts as the same question: whatever a reward can read gives a new score or a refusal, and
nothing else does.
"""

from __future__ import annotations

import copy
import importlib
import json
import math
import re
import shutil
import sys
import zlib
from dataclasses import dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import orjson
import pytest
from pydantic import BaseModel, Field

from rm_gallery import (
    BaseLLMReward,
    BasePointWiseReward,
    BasePromptTemplate,
    ChatMessage,
    ConfigError,
    DataOutput,
    DataSample,
    FakeLLM,
    FunctionGrader,
    LLMGrader,
    MessageRole,
    RewardRegistry,
    RewardResult,
    Step,
    WeightedSum,
    reward_function,
)
from rm_gallery.core.graders.base import as_reward
from rm_gallery.core.model.base import BaseLLM
from rm_gallery.core.reward.reward import prompts_hash
from rm_gallery.core.runner.grading_runner import build_reward
from tests.reward.rewards import Rule, scored
from tests.support.samples import make_sample

CALLS: list[dict[str, Any]] = []


def number(value: Any) -> int:
    """A number that differs for different JSON."""
    return zlib.crc32(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)) % 1_000_003


class Echo(BaseLLM):
    """Answers with a number made of the request and of what is sent along; every call is noted."""

    model: str = "echo"
    base_url: str = "http://one"
    default_headers: dict[str, str] = Field(default_factory=dict)
    default_query: dict[str, str] = Field(default_factory=dict)

    def endpoint_key(self) -> str:
        return self.base_url

    def route(self) -> str:
        shown = {
            name: value for name, value in self.default_headers.items() if name != "Authorization"
        }
        return f"{self.base_url} {shown} {self.default_query}"

    async def attempt(self, payload: dict[str, Any], timeout: float | None) -> dict[str, Any]:
        CALLS.append(payload)
        told = number([payload, self.route()])
        message = {"role": "assistant", "content": f"<score>{told}</score>"}
        return {
            "model": self.model,
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        }


class Ask(BasePromptTemplate):
    score: int = Field(default=...)

    @classmethod
    def format(cls, enable_thinking: bool = False, **kwargs: Any) -> str:
        return f"Score this: {kwargs['read']}"


class AskAnother(Ask):
    @classmethod
    def format(cls, enable_thinking: bool = False, **kwargs: Any) -> str:
        return f"Grade this: {kwargs['read']}"


class Reader(BaseLLMReward, BasePointWiseReward):
    """Reads all there is to read: its score differs when anything does."""

    template: type[BasePromptTemplate] | None = Ask
    rubrics: tuple[str, ...] = ("be right",)
    language: str = "en"
    scale: float = 1.0

    def _before_evaluate(self, sample: DataSample, **kwargs: Any) -> dict[str, Any]:
        return {
            "read": number(
                [sample.query_text(), sample.output[0].answer.text, self.rubrics, self.language]
            )
        }

    def _after_evaluate(self, response: Any, sample: DataSample, **kwargs: Any) -> RewardResult:
        read = sample.model_dump(
            mode="json", exclude={"created_at": True, "output": {"__all__": {"answer": {"reward"}}}}
        )
        return scored(self.name, self.scale * (response.score + number([read, kwargs])))


def samples() -> list[DataSample]:
    steps = [Step(content="one", label={"source": "a"}), Step(content="two", label={"source": "b"})]
    answer = Step(role=MessageRole.ASSISTANT, content="4", label={"reference": "4"})
    first = DataSample(
        unique_id="a",
        input=[
            ChatMessage(content="Be brief.", role=MessageRole.SYSTEM),
            ChatMessage(content="2+2?"),
        ],
        output=[DataOutput(answer=answer, steps=steps)],
        metadata={"level": 3, "none": None},
        task_category="math",
        source="test",
    )
    return [first, make_sample("x", "y", unique_id="b")]


class Case:
    """One evaluation: the samples, the reward's settings, the model's and the keywords of the
    hooks.
    """

    def __init__(self) -> None:
        self.samples = samples()
        self.reward: dict[str, Any] = {}
        self.llm: dict[str, Any] = {
            "default_headers": {"x-deployment": "a", "Authorization": "Bearer 12345678"}
        }
        self.hooks: dict[str, Any] = {"threshold": 1}
        self.options: dict[str, Any] = {}

    def run(self, folder: Path) -> list[list[float | None]]:
        CALLS.clear()
        reward = Reader(llm=Echo(**self.llm), **self.reward)
        done = reward.evaluate_batch(
            self.samples, run_dir=str(folder), hooks=self.hooks, **self.options
        )
        return [[output.answer.reward.score for output in sample.output] for sample in done]


SAMPLE: dict[str, Any] = {
    "input[1].content": "2+3?", "input[0].role": MessageRole.DEVELOPER, "output[0].answer.content": "5",
    "output[0].answer.label": {"reference": 4}, "metadata['level']": float("nan"), "output[0].steps[0].content": "eins",
    "output[0].steps[1].label": {"source": "c"}, "output[0].answer.tool_calls": [{"id": "c", "function": {"name": "f"}}],
    "output[0].answer.tool_call_id": "c", "output[0].answer.reasoning_content": "hm",
    "input[1].additional_kwargs": {"context": "a table"}, "input[1].name": "Eve", "task_category": "code", "source": "other",
}  # fmt: skip
"""What a reward may read of a sample, and another value of it."""
SETTINGS: dict[str, tuple[str, Any]] = {
    "hooks['threshold']": ("hooks.threshold", 0), "reward['template']": ("template", AskAnother),
    "reward['rubrics']": ("rubrics", ("be kind",)), "reward['language']": ("language", "zh"),
    "reward['scale']": ("scale", 2.0), "llm['model']": ("llm.model", "other"), "llm['temperature']": ("llm.temperature", 0.5),
    "llm['extra_body']": ("llm.extra_body", {"top_k": 3}), "llm['base_url']": ("llm.endpoint", "http://two"),
    "llm['default_headers']": ("llm.headers.x-deployment", {"x-deployment": "b"}),
    "llm['default_query']": ("llm.query", {"api-version": "2"}), "options['repeat']": ("repeat", 1),
}  # fmt: skip
"""What a reward is made of, how a refusal calls it, and another value."""
UNRELATED: dict[str, Any] = {
    "hooks": {"threshold": 1}, "options['deadline']": 99.0, "options['max_workers']": 3,
    "reward": {"max_workers": 2, "deadline": 5.0}, "llm['default_headers']['Authorization']": "Bearer 87654321",
    "llm['timeout']": 7.0, "samples": samples()[::-1], "samples[0].metadata": {"none": None, "level": 3},
}  # fmt: skip


def changed(path: str, value: Any) -> Case:
    """The case with one thing in it changed, such as `samples[0].metadata['level']`."""
    case = Case()
    exec(f"case.{path} = value", {"case": case, "value": value})
    return case


@pytest.fixture
def first(tmp_path: Path) -> tuple[Path, list[list[float | None]]]:
    """A finished run."""
    folder = tmp_path / "run"
    return folder, Case().run(folder)


@pytest.mark.parametrize("path", SAMPLE)
def test_another_sample_gets_another_score(
    first: tuple[Path, list[list[float | None]]], path: str
) -> None:
    folder, before = first
    case = changed(f"samples[0].{path}", SAMPLE[path])
    for scores in (case.run(folder), case.run(folder)):
        assert scores[0] != before[0] and scores[1] == before[1]
    assert CALLS == [], "the third run finds both"
    assert Case().run(folder) == before and CALLS == []


@pytest.mark.parametrize("path", SETTINGS)
def test_other_settings_are_refused_by_name(
    first: tuple[Path, list[list[float | None]]], path: str
) -> None:
    folder, before = first
    name, value = SETTINGS[path]
    case = changed(path, value)
    with pytest.raises(ConfigError, match=rf"(?s){folder} holds a different run.*{name}[^\n]*→"):
        case.run(folder)
    assert CALLS == []
    elsewhere = case.run(folder.with_name("another"))
    assert len(CALLS) == 3 if name == "repeat" else elsewhere != before, (
        "no cached reply answers another question"
    )


@pytest.mark.parametrize("path", UNRELATED)
def test_what_does_not_matter_calls_nothing(
    first: tuple[Path, list[list[float | None]]], path: str
) -> None:
    folder, before = first
    scores = changed(path, UNRELATED[path]).run(folder)
    assert CALLS == [] and sorted(scores, key=len) == sorted(before, key=len)


def test_a_folder_elsewhere_is_the_same_run(first: tuple[Path, list[list[float | None]]]) -> None:
    folder, before = first
    shutil.copytree(folder, folder.with_name("copied"))
    folder.rename(folder.with_name("moved"))
    for name in ("copied", "moved"):
        assert Case().run(folder.with_name(name)) == before and CALLS == []


def test_the_words_of_the_librarys_prompt_count(monkeypatch: pytest.MonkeyPatch) -> None:
    def hashes() -> list[str]:
        prompts_hash.cache_clear()
        names = ("base_helpfulness_pointwise", "base_helpfulness_listwise")
        return [RewardRegistry.create(name, llm="fake:x").settings_hash for name in names]

    before, read = hashes(), Path.read_text
    with monkeypatch.context() as patched:
        other = {"pointwise.en.jinja2": "And be kind."}
        patched.setattr(
            Path, "read_text", lambda file, **how: read(file, **how) + other.get(file.name, "")
        )
        now = hashes()
    assert (now[0] != before[0], now[1] == before[1]) == (True, True) and hashes() == before


def test_where_a_class_of_the_library_stands_is_no_part_of_its_identity(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kinds = (type(RewardRegistry.create("accuracy")), LLMGrader, Rule)

    def hashes(module: str) -> list[str]:
        for kind in kinds:
            monkeypatch.setattr(kind, "__module__", module)
        grader = LLMGrader(model="fake:x", name="x", prompt="{{response}}")
        made = (kinds[0](), grader, Rule(), Holds(held=kinds[0]))
        return [each.settings_hash for each in made]

    ours, elsewhere, users = map(hashes, ("rm_gallery.one", "rm_gallery.two.three", "users.own"))
    assert ours == elsewhere and not set(ours) & set(users)


class Holds(Rule):
    """A reward with a setting of any kind."""

    model_config = {"arbitrary_types_allowed": True}

    held: Any = None


def power(base: float, exponent: float = 2.0) -> float:
    return float(base**exponent)


class Lens:
    """Told apart by its strength."""

    def __init__(self, strength: int) -> None:
        self.strength = strength

    def describe(self) -> dict[str, int]:
        return {"strength": self.strength}

    def see(self) -> None:
        """Look through it."""


@dataclass
class Point:
    x: int


class Word(str): ...


class Settings(BaseModel, extra="allow"):
    held: int = 1


def tokenizer(name: str) -> Any:
    return type("Tokenizer", (), {"name_or_path": name})()


# all different from each other
VALUES: list[Any] = [
    None, math.nan, math.inf, -math.inf, 0, 1, 1.5, True, False, "1", "None", 2**70, 2**71, "\ud800", "ud800",
    b"ab", b"cd", [b"ab"], {"a": 1}, {"a": 2}, {1: 1}, {"1": 1}, {1, 2}, {1, 3}, [1, 2], [2, 1],
    Decimal("1"), Fraction(1), Path("1"), date(2026, 1, 1), date(2026, 1, 2), MessageRole.USER, MessageRole.SYSTEM,
    re.compile("a"), re.compile("a", re.IGNORECASE), re.compile("b"), power,
    partial(power, 1), partial(power, 2), partial(power, exponent=1), partial(power, exponent=2), Lens, Lens(1), Lens(2),
    Lens(1).see, Lens(2).see, Point(1), Point(2), Word("1"), Word("2"), Settings(held=1), Settings(held=2), Settings.model_validate({"more": 1}),
    tokenizer("a"), tokenizer("b"), UUID(int=1), UUID(int=2), time(1), timedelta(1), 1j, len, abs, bytearray(b"ef"), {None: 1},
    -(2**63) - 1, 2**63 - 1, 2**63, {"\ud800": 1}, {1.5: 2}, {"a": math.nan}, np.array([1, 2], "int8"), np.array([1, 2], "int64"), np.array([1, 3], "int64"),
]  # fmt: skip


def test_settings_of_any_kind_are_told_apart() -> None:
    hashes = [Holds(held=value).settings_hash for value in VALUES]
    same = [VALUES[k] for k, found in enumerate(hashes) if hashes.count(found) > 1]
    assert same == [] and [Holds(held=copy.copy(value)).settings_hash for value in VALUES] == hashes
    # in a table of eight places these two stand in the order in which they came
    assert len({Holds(held=held).settings_hash for held in ({0, 8}, {8, 0})}) == 1


def test_what_holds_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(ConfigError, match="holds itself"):
        Holds().evaluate_batch([make_sample("a")], run_dir="unused", hooks={"held": endless})


class Opaque:
    """Nothing tells two of them apart."""


@pytest.mark.parametrize(("settings", "hooks", "metadata", "message"), [
    ({"held": lambda text: text}, {}, {}, "setting 'held' is a lambda"),
    ({"held": {"deep": [Opaque()]}}, {}, {}, r"setting 'held'\.deep\[0\] is an object of .*Opaque"),
    ({}, {"clean": lambda text: text}, {}, "keyword 'clean' is a lambda"),
    ({}, {"clean": Opaque()}, {}, "keyword 'clean' is an object of .*Opaque"),
    ({}, {}, {"made": Opaque()}, r"sample 's'\.metadata\.made is an object of .*Opaque"),
])  # fmt: skip
def test_what_cannot_be_told_apart_is_refused(
    tmp_path: Path,
    settings: dict[str, Any],
    hooks: dict[str, Any],
    metadata: dict[str, Any],
    message: str,
) -> None:
    reward, sample = Holds(**settings), make_sample("a b", metadata=metadata)
    assert reward.evaluate_batch([sample], hooks=hooks)[0].output[0].answer.reward.score == 2.0
    with pytest.raises(ConfigError, match=message):
        reward.evaluate_batch([sample], run_dir=str(tmp_path / "run"), hooks=hooks)


def test_equal_samples_and_ids_used_twice_are_all_scored_and_all_restored(tmp_path: Path) -> None:
    """Three equal samples without an id, one that differs in its reference only, and an id with two
    contents.
    """
    rows = [make_sample("4", unique_id="", reference=r) for r in ("4", "4", "5", "4")]
    rows += [make_sample(text, unique_id="x", reference="4") for text in ("4", "5")]
    for _ in range(3):
        done = RewardRegistry.create("accuracy").evaluate_batch(rows, run_dir=str(tmp_path / "run"))
        found = [sample.output[0].answer.reward.score for sample in done]
        assert found == [1.0, 1.0, 0.0, 1.0, 1.0, 0.0]
    kept = (tmp_path / "run" / "results.jsonl").read_bytes().splitlines()
    lines = [orjson.loads(line) for line in kept]
    assert len(lines) == len({(line["key"], line.get("n", 0)) for line in lines}) == 6
    counts = orjson.loads((tmp_path / "run" / "summary.json").read_bytes())["samples"]
    assert (counts["reused"], counts["duplicates"], counts["id_collisions"]) == (6, 2, 2)


def test_two_rewards_of_one_name_stand_beside_each_other() -> None:
    strict, loose = (RewardRegistry.create("accuracy", ignore_case=how) for how in (False, True))
    sample = make_sample("Yes", reference="yes")
    for order in ((strict, loose), (loose, strict)):
        found = order[1].evaluate(order[0].evaluate(sample))
        for _ in range(2):  # again: each replaces its own
            found = order[0].evaluate(order[1].evaluate(found))
        reward = found.output[0].answer.reward
        assert len(reward.details) == 2 and (strict.score_of(reward), loose.score_of(reward)) == (
            0.0,
            1.0,
        )
        keys = {order[0].key_in(reward), order[1].key_in(reward)}
        assert keys == {"accuracy", f"accuracy#{order[1].settings_hash[:8]}"}
        assert RewardRegistry.create("rouge").score_of(reward) is None, "it said nothing"


def test_issues_and_run_folders_know_their_own_reward_too(tmp_path: Path) -> None:
    strict, loose = (RewardRegistry.create("accuracy", ignore_case=how) for how in (False, True))
    unscored = loose.evaluate(strict.evaluate(make_sample("Yes")))
    names = [issue.name for issue in unscored.output[0].answer.reward.issues]
    assert names == ["accuracy", f"accuracy#{loose.settings_hash[:8]}"]
    begun = strict.evaluate(make_sample("Yes", reference="yes"))
    for _ in range(2):
        [done] = loose.evaluate_batch([begun], run_dir=str(tmp_path / "run"))
        found = done.output[0].answer.reward
        assert (strict.score_of(found), loose.score_of(found)) == (0.0, 1.0)


# -- code is told by what it does ------------------------------------------------------------------

CHANGES = [
    json.loads(line)
    for line in (Path(__file__).parent / "changes.jsonl").read_text(encoding="utf-8").splitlines()
]
"""What `Mine` is made of and reads, and `then` what is changed before the run is continued; `same`
where it does the same.
"""
FUNCTION = (
    "@reward_function({declared})\n{decorator}\ndef mine(messages, {parameters}**kwargs):\n    "
    "return {score}\nMine = mine.reward\n"
)
EVALUATE = (
    "class Mine({bases}BasePointWiseReward):\n    {members}\n    def _evaluate(self, sample, "
    "**kwargs):\n        return scored(self.name, {score})\n"
)
ENVIRONMENT = (
    "class Env:\n    {members}\n    async def compute_reward(self, rollout_id, messages, task, "
    "**kwargs):\n        return {{'reward': {score}}}\nMine = lambda: build_reward(Env())\n"
)
GRADER = (
    "def mine(query, response): return {score}\nMine = lambda: as_reward(FunctionGrader(mine))\n"
)
JUDGE = (
    "class Prompt(Ask):\n    @classmethod\n    def format(cls, enable_thinking=False, **kwargs): "
    "return {score}\nMine = lambda: Reader(llm=Echo(), template=Prompt)\n"
)
COMPOSED = JUDGE + "judge = Mine\nMine = lambda: WeightedSum({{'a': judge(), 'b': Rule()}})\n"
ASKING = (
    "Mine = lambda: as_reward(LLMGrader(name='g', model=FakeLLM(reply='<score>1</score>'), "
    "prompt={score} + ' {{response}}'))\n"
)
SCRIPTED = "Mine = lambda: Reader(llm=FakeLLM(reply={score}))\n"
KINDS = {
    "function": FUNCTION, "class": EVALUATE, "environment": ENVIRONMENT, "grader": GRADER, "judge": JUDGE,
    "composed": COMPOSED, "asking grader": ASKING, "scripted": SCRIPTED,
}  # fmt: skip
IN_REACH = (
    Ask, BasePointWiseReward, Echo, FakeLLM, FunctionGrader, LLMGrader, Path, Reader, Rule, WeightedSum, as_reward,
    reward_function, scored,
)  # fmt: skip


def written(case: dict[str, Any], text: str) -> Any:
    """A reward as a fresh process makes it that runs the case's text."""
    for name in {"h", "g", "pack", "pack.m", "pack.n"} & sys.modules.keys():
        del sys.modules[name]
    importlib.invalidate_caches()
    scope: dict[str, Any] = {found.__name__: found for found in IN_REACH}
    scope |= {"__name__": "__main__", "build_reward": build_reward}
    exec(compile("from __future__ import annotations\n" + text, "<string>", "exec"), scope)
    return scope["Mine"]()


@pytest.mark.parametrize("case", CHANGES, ids=lambda case: case["name"])
def test_a_continued_run_gives_what_a_new_one_would_or_refuses_with_an_example(
    case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    blank = dict.fromkeys(("declared", "decorator", "parameters", "bases"), "")
    given = {**blank, "members": "pass", **case}
    given["parameters"] += ", " if given["parameters"] else ""
    text = f"{case.get('before', '')}\n{KINDS[case.get('kind', 'function')].format(**given)}{case.get('after', '')}\n"

    def settle(state: dict[str, Any]) -> None:
        for name, value in state.get("env", {}).items():
            monkeypatch.setenv(name, value)
        if "argv" in state:
            monkeypatch.setattr(sys, "argv", ["mine.py", *state["argv"]])

    def score(folder: str) -> float | None:
        reward = written(case, text)
        [done] = reward.evaluate_batch([make_sample("abc")], run_dir=str(tmp_path / folder))
        found: float | None = reward.score_of_output(done.output[0])
        return found

    def put(files: dict[str, str]) -> None:
        for name, content in files.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(content, encoding="utf-8")

    put(case.get("files", {}))
    settle(case)
    before = score("run")
    assert before is not None
    assert score("run") == before, "nothing has changed"
    then = case["then"]
    put({name: content for name, content in then.items() if name not in ("env", "argv")})
    settle(then)
    if case.get("same"):
        assert score("run") == before
        return
    with pytest.raises(
        ConfigError, match="holds results of something else .*'s'|holds a different run"
    ):
        score("run")
    assert case.get("kind") == "asking grader" or score("another") != before
