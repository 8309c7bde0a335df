"""Data sets for TRL's trainers: every row has a verdict behind it, and what has none is counted."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from rm_gallery import (
    BasePointWiseReward,
    BaseStepWiseReward,
    ConfigError,
    DataSample,
    RewardDimensionWithScore,
    RewardResult,
    Unscored,
)
from rm_gallery.core.utils.errors import DataError
from rm_gallery.integrations.trl_data import preference_rows, step_rows, unpaired_rows


class Length(BasePointWiseReward):
    """The length of the answer; no score for an empty one."""

    score_range: ClassVar[tuple[float | None, float | None]] = (0.0, 10.0)

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        text = sample.output[0].answer.text
        if not text:
            raise Unscored("nothing there", reason="empty")
        return RewardResult(name=self.name, details=[RewardDimensionWithScore(name=self.name, score=float(len(text)))])


class Shortness(Length):
    """The same, and less is better."""

    higher_is_better = False


class Lifted(Length):
    """The same, in a range that does not begin at 0."""

    score_range = (2.0, 10.0)


class Unbounded(Length):
    """The same, without bounds."""

    score_range = (None, None)


class StepLength(BaseStepWiseReward):
    """The length of the step; no score for an empty one."""

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        text = (sample.output[0].steps or [])[-1].text
        if not text:
            raise Unscored("nothing there", reason="empty")
        return RewardResult(name=self.name, details=[RewardDimensionWithScore(name=self.name, score=float(len(text)))])


class StepShortness(StepLength):
    """The same, and less is better."""

    higher_is_better = False


def sample(*answers: Any, question: str = "问?", **fields: Any) -> DataSample:
    """A sample whose answers are texts, (text, preference) or fields of an output."""
    outputs = []
    for answer in answers:
        text, preference = answer if isinstance(answer, tuple) else (answer, None)
        step = {"role": "assistant", "content": text, "label": {"preference": preference} if preference else {}}
        outputs.append(answer if isinstance(answer, dict) else {"answer": step})
    return DataSample.model_validate({"input": [{"role": "user", "content": question}], "output": outputs, **fields})


def said(message: str) -> list[dict[str, Any]]:
    return [{"role": "assistant", "content": message}]


PROMPT = [{"role": "user", "content": "问?"}]
LABELLED = sample(("good", "chosen"), ("bad", "rejected"), ("worse", "rejected"))
THREE = sample("a", "bbb", "cc")


@pytest.mark.parametrize(
    ("given", "reward", "settings", "expected", "left_out"),
    [
        ([LABELLED], None, {}, [("good", "bad"), ("good", "worse")], {}),
        ([sample("a", "b")], None, {}, [], {"no preference label": 1}),
        ([sample(("same", "chosen"), ("same", "rejected"))], None, {}, [], {"same text": 1}),
        ([THREE], Length(), {}, [("bbb", "a")], {}),
        ([THREE], Shortness(), {}, [("a", "bbb")], {}),
        ([THREE], Length(), {"pairs": "all"}, [("bbb", "cc"), ("bbb", "a"), ("cc", "a")], {}),
        ([THREE], Length(), {"pairs": "all", "gap": 2}, [("bbb", "a")], {}),
        ([THREE], Length(), {"gap": 3}, [], {"no difference": 1}),
        ([sample("a", "b")], Length(), {}, [], {"no difference": 1}),
        ([sample("a", "", "bb"), sample("a", ""), sample("", "")], Length(), {}, [("bb", "a")], {"empty": 2}),
        ([sample("a")], Length(), {}, [], {"no difference": 1}),
        ([], Length(), {}, [], {}),
    ],
)
def test_preference_pairs(given: Any, reward: Any, settings: Any, expected: Any, left_out: Any) -> None:
    rows = preference_rows(given, reward, **settings)
    assert rows == [{"prompt": PROMPT, "chosen": said(good), "rejected": said(bad)} for good, bad in expected]
    assert dict(rows.left_out) == left_out


def test_the_margin_is_the_difference_of_the_scores() -> None:
    for reward in (Length(), Shortness()):
        assert [row["margin"] for row in preference_rows([THREE], reward, margin=True)] == [2.0]


def test_texts_only_where_the_prompt_is_one() -> None:
    (row,) = preference_rows([THREE], Length(), chat=False)
    assert row == {"prompt": "问?", "chosen": "bbb", "rejected": "a"}
    talk = THREE.model_copy(update={"input": [*THREE.input, *THREE.input]})
    with pytest.raises(DataError, match="has these turns: user, user; use chat=True"):
        preference_rows([talk], Length(), chat=False)


def test_turns_with_tools_belong_to_a_completion_and_steps_of_a_solution_do_not() -> None:
    call = {"role": "assistant", "content": "", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": ""}}]}
    tool = {"role": "tool", "content": "7", "tool_call_id": "1"}
    answer = {"role": "assistant", "content": "It is 7."}
    with_tools = {"answer": answer, "steps": [call, tool]}
    solution = {"answer": {"role": "assistant", "content": "a\n\nb"}, "steps": said("a") + said("b")}
    (row,) = preference_rows([sample(with_tools, solution)], Length())
    assert [turn["role"] for turn in row["chosen"]] == ["assistant", "tool", "assistant"]
    assert row["rejected"] == said("a\n\nb")


@pytest.mark.parametrize(
    ("reward", "settings", "expected", "left_out"),
    [
        (None, {}, [("good", True), ("bad", False), ("worse", False)], {"no preference label": 1}),
        (Length(), {}, [("good", False), ("bad", False), ("worse", True)], {"empty": 1}),
        (Lifted(), {}, [("good", False), ("bad", False), ("worse", False)], {"empty": 1}),
        (Length(), {"threshold": 4}, [("good", True), ("bad", False), ("worse", True)], {"empty": 1}),
        (Shortness(), {"threshold": 4}, [("good", True), ("bad", True), ("worse", False)], {"empty": 1}),
    ],
)
def test_unpaired_judgements(reward: Any, settings: Any, expected: Any, left_out: Any) -> None:
    given = sample(("good", "chosen"), ("bad", "rejected"), ("worse", "rejected"), "")
    rows = unpaired_rows([given], reward, **settings)
    assert [(row["completion"], row["label"]) for row in rows] == [(said(text), label) for text, label in expected]
    assert all(row["prompt"] == PROMPT for row in rows) and dict(rows.left_out) == left_out


def test_steps() -> None:
    def step(text: str, right: bool | None) -> dict[str, Any]:
        return {"role": "assistant", "content": text, "label": {} if right is None else {"correctness": right}}

    one = {"answer": said("x")[0], "steps": [step("aa", True), step("b", False), step("", None), step("cc", True)]}
    rows = step_rows([sample(one, "no steps", {"answer": said("x")[0], "steps": [step("a", None)]})])
    assert rows == [{"prompt": "问?", "completions": ["aa", "b"], "labels": [True, False]}]
    assert dict(rows.left_out) == {"no steps": 1, "no step label": 1}
    assert step_rows([sample(one)], StepLength(), threshold=2) == rows
    assert step_rows([sample(one)], StepShortness(), threshold=1)[0]["labels"] == [False, True]
    with pytest.raises(ConfigError, match="Length is pointwise"):
        step_rows([sample(one)], Length())


MISUSE: list[tuple[Any, dict[str, Any], str]] = [
    (preference_rows, {"pairs": "best"}, "give 'extremes' or 'all'"),
    (preference_rows, {"margin": True}, "give a reward as well"),
    (preference_rows, {"marign": True}, "nothing to take marign"),
    (preference_rows, {"reward": "lenght_penalty"}, "Did you mean"),
    (preference_rows, {"reward": "length_penalty", "max_lenght": 3}, "no parameter of"),
    (unpaired_rows, {"reward": Unbounded()}, "give threshold="),
]


@pytest.mark.parametrize(("function", "settings", "message"), MISUSE)
def test_what_does_not_fit_is_an_error(function: Any, settings: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        function([THREE], **settings)
