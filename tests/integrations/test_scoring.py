"""Rows of trainers and requests go through the one engine, and what has no score is never a number
by accident.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from rm_gallery import (
    BaseListWiseReward,
    BasePointWiseReward,
    BaseStepWiseReward,
    ConfigError,
    DataSample,
    FakeLLM,
    Message,
    RewardDimensionWithScore,
    RewardResult,
    Score,
    reward_function,
)
from rm_gallery.core.data.load.padding import plain
from rm_gallery.integrations.scoring import RowScorer, component_names, rows_of, scored_of
from rm_gallery.integrations.trl import trl_reward
from tests.integrations.adapters import Moody
from tests.reward.rewards import ranked, scored


class Parts(BasePointWiseReward):
    """Two dimensions, and metrics of every form beside them."""

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        length = float(len(sample.output[0].answer.text))
        odd: dict[str, Any] = {
            "nan": float("nan"),
            "inf": float("inf"),
            "big": 10**400,
            "none": None,
        }
        metrics = {
            "n": 3,
            "off": {"score": 1.0, "is_score_valid": False},
            "on": {"score": 0.5},
            **odd,
        }
        details = [RewardDimensionWithScore(name="length", score=length, reason="so long")]
        details.append(RewardDimensionWithScore(name="half", score=length / 2))
        return RewardResult(name=self.name, details=list(details), extra_data={"metrics": metrics})


class Seen(BasePointWiseReward):
    """Keeps nothing, and says in its reason what it was given."""

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        output = sample.output[0]
        seen = {
            "input": [(m.role.value, m.text) for m in sample.input],
            "answer": output.answer.text,
            "steps": [(m.role.value, m.text) for m in output.steps or ()],
            "reference": sample.reference(),
            "metadata": sample.metadata,
        }
        return scored(self.name, 1.0, repr(seen))


class Longest(BaseListWiseReward):
    """An answer's share of the longest one's length."""

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        lengths = [len(output.answer.text) for output in sample.output]
        return ranked(self.name, *(length / max(lengths) for length in lengths))


def seen(*arguments: Any, **settings: Any) -> Any:
    from ast import literal_eval

    return literal_eval(RowScorer(Seen(), **settings).score(*arguments).reason)


@pytest.mark.parametrize(("settings", "row", "reference"), [
    ({}, {"solution": "4"}, None),
    ({}, {"ground_truth": "4"}, "4"),
    ({"reference": "solution"}, {"solution": "4"}, "4"),
    ({"reference": "solution"}, {"solution": ["4", "four"]}, ["4", "four"]),
    ({"columns": {"reference": "solution"}}, {"solution": "4", "reference": "5"}, "4"),
    ({"reference": "solution"}, {"solution": None, "ground_truth": "5"}, None),
])  # fmt: skip
def test_the_reference_is_the_named_column(settings: Any, row: Any, reference: Any) -> None:
    found = seen("q", "a", row, **settings)
    assert found["reference"] == reference
    assert found["metadata"].get("solution") == row.get("solution")
    swapped = seen("q", "a", {"a": 1, "b": 2}, columns={"a": "b", "b": "a"})
    assert swapped["metadata"] == {"a": 2, "b": 1}


def test_components_are_the_dimensions_and_the_finite_metrics() -> None:
    found = RowScorer(Parts()).score("q", "four")
    assert (found.value, found.status, found.reason) == (3.0, "scored", "so long")
    assert found.components == {"length": 4.0, "half": 2.0, "n": 3.0, "on": 0.5}
    assert "metrics" in found.extra


def test_details_of_steps_are_no_parts_of_the_answer_but_their_numbers_and_words_are() -> None:
    class Steps(BaseStepWiseReward):
        def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
            text = (sample.output[0].steps or [])[-1].text
            details = [
                RewardDimensionWithScore(name=name, score=len(text), reason=f"{name}: {text}")
                for name in "ab"
            ]
            return RewardResult(
                name=self.name, details=list(details), extra_data={"metrics": {text: 1.0}}
            )

    steps = [{"role": "assistant", "content": text} for text in ("one", "three")]
    asked = DataSample.model_validate(
        {"output": [{"answer": {"role": "assistant", "content": "x"}, "steps": steps}]}
    )
    reward = Steps()
    found = scored_of(reward, reward.evaluate(asked).output[0])
    assert (found.value, found.components) == (4.0, {"one": 1.0, "three": 1.0})
    assert found.reason == "a: one; b: one; a: three; b: three"


def test_a_comparing_reward_sees_the_completions_of_one_prompt_together() -> None:
    found = RowScorer(Longest()).score_rows(["p", "r", "p"], ["aa", "b", "aaaa"], None)
    assert [each.value for each in found] == [0.5, 1.0, 1.0]
    # one prompt with two references is two questions
    apart = RowScorer(Longest()).score_rows(
        ["p"] * 3, ["aa", "b", "aaaa"], [{"reference": n} for n in "xyx"]
    )
    assert [each.value for each in apart] == [0.5, 1.0, 1.0]


def test_a_missing_column_names_the_columns_there_are() -> None:
    scorer = RowScorer("math_verify_reward", reference="solution")
    rows = rows_of({"answer": ["4"], "topic": ["sum"]}, 1)
    for call in (
        lambda: scorer.score_rows(["q"], ["4"], rows),
        lambda: scorer.score("q", "4", rows[0]),
    ):
        with pytest.raises(
            ConfigError, match="no column 'solution'; the columns are: answer, topic"
        ):
            call()
    for turn in (1, -1):
        fresh = RowScorer("math_verify_reward", reference="solution")
        found = fresh.score_rows(
            ["q", "q"], ["4", "4"], [{"solution": "4"}, {"answer": "4"}][::turn]
        )
        assert [(each.value, each.code) for each in found] == [(1.0, ""), (None, "data")][::turn]


def test_the_mean_of_a_group_is_that_of_its_scores_before_and_of_all_as_one_more() -> None:
    scorer = RowScorer(Moody, on_error="mean")
    given = [("p", "a"), ("p", "four"), ("r", "sixsix"), ("p", "aaa"), ("p", "fail"), ("s", "fail")]
    values = [scorer.value(scorer.score(prompt, text)) for prompt, text in given]
    assert values[-2:] == [(8 + 14 / 4) / 4, 14 / 4], (
        "of a prompt that was not seen before it is the mean of all"
    )


def test_the_mean_of_a_group_that_comes_in_one_call_is_that_of_the_others_in_the_call() -> None:
    """A call with a score of its own looks at no call before it, and one without looks at all of
    them.
    """
    scorer = RowScorer(Moody, on_error="mean")
    calls = [
        ["fail", "fail"],
        ["a", "aaa", "fail"],
        ["aaaaa", "fail", "aaaaaaa"],
        ["fail", "fail"],
        ["aaaaaaaaa", "fail"],
    ]
    # 4 = (1 + 3 + 5 + 7) / 4
    wanted = [[-1.0, -1.0], [1.0, 3.0, 2.0], [5.0, 6.0, 7.0], [4.0, 4.0], [9.0, 9.0]]
    found = [
        [scorer.value(each) for each in scorer.score_rows(["p"] * len(texts), texts)]
        for texts in calls
    ]
    assert found == wanted
    two = scorer.score_rows(["r", "p", "r", "p"], ["a", "aa", "fail", "fail"])
    assert [scorer.value(each) for each in two] == [1.0, 2.0, 1.0, 2.0], (
        "each group has its own mean"
    )


def test_messages_that_are_none_cost_their_own_row() -> None:
    scorer = RowScorer("math_verify_reward", reference="solution")
    bad, rows = [{"content": "no role"}], rows_of({"solution": ["4", "4"]}, 2)
    found = scorer.score_rows(["q", "q"], [bad, "4"], rows)
    assert [(each.value, each.code) for each in found] == [(None, "data"), (1.0, "")]
    assert scorer.score("q", bad, rows[0]) == found[0]
    assert "completion[0]" in found[0].reason


def test_a_context_is_shown_to_judges_where_it_is_named() -> None:
    asked: list[str] = []

    def reply(prompt: str) -> str:
        asked.append(prompt)
        return "<score>3</score>"

    for columns in ({"context": "page"}, {}):
        scorer = RowScorer("base_helpfulness_pointwise", llm=FakeLLM(reply=reply), columns=columns)
        assert scorer.score("What colour?", "Blue.", {"page": "The sky is blue."}).value is not None
    assert ["The sky is blue." in each for each in asked] == [True, False]


class Foreign:
    """Holds something as numpy or a configuration would."""

    def __init__(self, held: Any) -> None:
        self._held = held

    def tolist(self) -> Any:
        return self._held


def test_data_of_a_trainer_becomes_plain() -> None:
    given = {
        "a": Foreign([Foreign(1.5), (2, "x")]),
        "b": {"c": Foreign("t")},
        "d": None,
        "e": b"x",
        "f": bytearray(b"y"),
    }
    assert plain(given) == {
        "a": [1.5, [2, "x"]],
        "b": {"c": "t"},
        "d": None,
        "e": b"x",
        "f": bytearray(b"y"),
    }


def test_a_dead_judge_is_one_warning_until_it_is_back(warned: list[str]) -> None:
    scorer = RowScorer(Moody())
    dead, alive = ["fail"] * 4, ["fail", "fine"]
    for completions in (dead, dead, alive, dead, dead):
        scorer.score_rows(["q"] * len(completions), completions)
    assert len(warned) == 2
    assert (
        "Moody: none of 4 completions got a score (failed, error): ConnectionError: the judge is gone"
        in warned[0]
    )
    warned.clear()
    alone = RowScorer(Moody())
    for completion in ["fail"] * 9 + ["fine"] + ["fail"] * 3:
        alone.score("q", completion)
    assert len(warned) == 1


def test_a_misspelt_component_is_told_once_and_after_four_scores(warned: list[str]) -> None:
    scorer = RowScorer(Parts())
    for place in range(10):
        assert bool(warned) is (place > 3)
        scorer.numbers(scorer.score("?", "four"), ["length", "lenght"])
        scorer.numbers(Score(status="failed"), ["lenght"])
    assert len(warned) == 1 and "the first 4 scores have no component 'lenght'" in warned[0]
    assert warned[0].endswith("there are: half, length, n, on.\n")
    known = RowScorer(Parts())
    for _ in range(4):
        known.numbers(known.score("?", "four"), ["length", "half"])
    assert len(warned) == 1


def test_what_broke_the_reward_has_its_score_in_every_component() -> None:
    broken = Score(-1.0, extra={"caused_by": "answer"})
    flags = {"score": -1.0, "unscored": 0.0, "failed": 0.0}
    assert RowScorer(Moody).numbers(broken, ["words"]) == {"words": -1.0, **flags}


def test_a_component_has_no_name_that_is_reported_anyway() -> None:
    assert (
        component_names(["a", "b"]) == ("a", "b")
        and component_names("ab") == ("ab",)
        and component_names(()) == ()
    )
    for name, own in (("score", ()), ("unscored", ()), ("failed", ()), ("acc", ("acc",))):
        with pytest.raises(
            ConfigError, match=f"components names '{name}', which is reported anyway"
        ):
            component_names(["a", name], *own)


def test_the_deadline_of_the_options_holds_through_every_door() -> None:
    @reward_function
    async def slow(messages: list[Message], **kwargs: Any) -> float:
        await asyncio.sleep(60)
        return 1.0

    scorer = RowScorer(slow, options={"deadline": 0.05})

    async def awaited() -> list[Score[float]]:
        return [await scorer.ascore("q", "a"), *await scorer.ascore_rows(["q"], ["a"])]

    found = [scorer.score("q", "a"), *scorer.score_rows(["q"], ["a"]), *asyncio.run(awaited())]
    assert [each.code for each in found] == ["deadline"] * 4


def test_a_trainer_is_never_given_what_its_numbers_cannot_hold() -> None:
    @reward_function(score_range=(None, None))
    def wide(messages: list[Message], **kwargs: Any) -> dict[str, Any]:
        return {"score": float(messages[-1].text)}

    texts = ["1e300", "-3.5e38", "3.4e38", "0.1"]
    plain, given = RowScorer(wide), trl_reward(wide, worst=-1.0)
    assert [plain.score("q", text).value for text in texts] == [1e300, -3.5e38, 3.4e38, 0.1]
    assert given(["q"] * 4, texts) == [None, None, 3.4e38, 0.1]
    said = [
        (found.code, found.cause) for text in texts for found in [given.scorer.score("q", text)]
    ]
    assert said == [("invalid_score", "rule")] * 2 + [("", None)] * 2

    @reward_function
    def apart(messages: list[Message], **kwargs: Any) -> dict[str, Any]:
        return {"score": 1.0, "metrics": {"part": {"score": -1e300}, "small": {"score": 0.5}}}

    assert RowScorer(apart).score("q", "a").components == {"part": -1e300, "small": 0.5}
    assert trl_reward(apart, worst=0.0).scorer.score("q", "a").components == {"small": 0.5}


def answered_without_asking(
    messages: list[Message], ground_truth: str, **kwargs: Any
) -> float | None:
    """An exact match first, the service else: a common shape."""
    if messages[-1].text == ground_truth:
        return 1.0
    if "None" in messages[-1].text:
        return None
    return float(json.loads("<html>502 Bad Gateway</html>")["score"])


def test_an_outage_behind_an_exact_match_is_nobodys_fault() -> None:
    reward = trl_reward(reward_function(answered_without_asking))
    texts = ["4", "it is 4", "it is 5", "None"]
    assert reward(prompts=["q"] * 4, completions=texts, ground_truth=["4"] * 4) == [
        1.0,
        None,
        None,
        None,
    ]

    def in_a_group(
        rollouts_messages: list[list[Message]], ground_truth: Any, **kwargs: Any
    ) -> list[float | None]:
        return [answered_without_asking(one, "4") for one in rollouts_messages]

    together = trl_reward(reward_function(mode="batch")(in_a_group))
    assert together(prompts=["q"] * 4, completions=texts, ground_truth=["4"] * 4) == [None] * 4


def test_a_component_of_what_broke_the_reward_is_no_better_than_the_lowest_seen() -> None:
    def deep(messages: list[Message], **kwargs: Any) -> dict[str, Any]:
        messages[-1].text.encode("ascii")
        return {"score": 0.5, "metrics": {"quality": {"score": -3.0}}}

    scorer = RowScorer(reward_function(deep), on_error="worst")
    scorer.look_twice()
    found = scorer.score_rows(["q"] * 2, ["ok", "é"], [{}, {}])
    assert [scorer.numbers(one, ["quality"])["quality"] for one in found] == [-3.0, -3.0]
