"""Group rewards: all answers judged in one prompt, or pairwise with win rate, Copeland, Elo or
Bradley–Terry.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from itertools import takewhile
from textwrap import indent
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, PositiveFloat, field_validator

from rm_gallery.core.data.schema import DataOutput, DataSample, Step
from rm_gallery.core.reward.base import (
    BaseListWiseReward,
    BasePairWiseRubricReward,
    BaseRubricReward,
)
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.schema import (
    Example,
    PhraseJudge,
    sample_of,
)
from rm_gallery.core.reward.template import (
    Described,
    Prompt,
    RubricTemplate,
    render,
)
from rm_gallery.core.score import Score
from rm_gallery.core.stats import ranking
from rm_gallery.core.text.blocks import object_at
from rm_gallery.core.text.values import read_integer, read_number
from rm_gallery.core.utils.errors import ParseError, Unscored
from rm_gallery.gallery.rm.alignment.base import scenario_texts

Aggregation = Literal["win_rate", "copeland", "elo", "bradley_terry"]
_ELO_START = 1000.0
_STAIN_JUDGE = PhraseJudge(("cold water", "Wash it twice", "many products"))
_STAIN = sample_of(
    "How do I get a coffee stain out of a cotton shirt?",
    "There are many products on the market for that.",
    "Rinse it from the back with cold water, rub in dish soap, wait ten minutes, then wash as "
    "usual.",
    "Wash it twice.",
)


class GroupPairWiseReward(BasePairWiseRubricReward):
    """Compares every pair of answers in both orders and turns the wins into one score per answer by
    `aggregation`.

    A draw, and a pair that two orders decide differently, is half a win for both. Range [0, 1],
    higher is better, within the group only: scores of different groups cannot be compared. n
    answers cost n(n - 1) calls, half of that with `both_orders=False`. A single answer has no
    score, nor does one with less than half of its pairs judged.

    Without rubrics of your own it judges general helpfulness. `extra_data` holds the verdicts by
    pair and the flip rate.
    """

    score_range = (0.0, 1.0)
    scenario_texts = scenario_texts("base_helpfulness")

    name = "group_pairwise"
    aggregation: Aggregation = "win_rate"
    """How wins become scores; each reward of this family has its own."""
    prior: PositiveFloat = 1.0
    """Bradley–Terry: drawn games of each answer against an average one; the more, the nearer scores
    are to 0.5.
    """

    example = Example(_STAIN, judge=_STAIN_JUDGE)

    def aggregate(self, n: int, margins: dict[tuple[int, int], list[float]]) -> list[float]:
        """One score per output from the wins of each pair."""
        wins = wins_of(n, margins)
        rules: dict[str, tuple[Callable[[], list[float | None]], Callable[[float], float]]] = {
            "win_rate": (lambda: ranking.win_rate(wins), lambda share: share),
            "copeland": (lambda: ranking.copeland(wins), lambda net: (1 + net) / 2),
            "elo": (
                lambda: ranking.elo(wins, initial=_ELO_START, seed=self.seed),
                lambda r: ranking.expected_win(r - _ELO_START),
            ),
            "bradley_terry": (
                lambda: ranking.bradley_terry_group(wins, prior=self.prior),
                lambda s: 1 / (1 + math.exp(-s)),
            ),
        }
        ranked, share = rules[self.aggregation]
        # every answer has a judged pair, so no score is missing
        return [share(strength) for strength in ranked() if strength is not None]


@RewardRegistry.register("group_win_rate")
class GroupWinRateReward(GroupPairWiseReward):
    """Share of its comparisons that an answer won, draws half: a judge asks about every pair in
    both orders.

    Range [0, 1], higher is better, within the group only. Needs two answers or more; see
    GroupPairWiseReward.
    """

    name = "group_win_rate"


@RewardRegistry.register("group_copeland")
class GroupCopelandReward(GroupPairWiseReward):
    """Copeland score of an answer: (1 + (answers beaten - answers lost to) / other answers) / 2.

    How clearly an answer is beaten does not matter; in a cycle all get 0.5. A judge asks about
    every pair in both orders. Range [0, 1], higher is better, within the group only. Source:
    Copeland 1951. Needs two answers or more.
    """

    name = "group_copeland"
    aggregation = "copeland"


@RewardRegistry.register("group_elo")
class GroupEloReward(GroupPairWiseReward):
    """Elo rating of an answer as its expected score against an average one: 1 / (1 + 10^(-(R -
    1000) / 400)).

    Ratings start at 1000 with k = 32 and are the mean over seeded orders of play, which the order
    of the answers does not change; beating a strong answer is worth more than beating a weak one. A
    judge asks about every pair in both orders. Range [0, 1], higher is better, within the group
    only. Source: Elo 1978. Needs two answers or more.
    """

    name = "group_elo"
    aggregation = "elo"


@RewardRegistry.register("group_bradley_terry")
class GroupBradleyTerryReward(GroupPairWiseReward):
    """Bradley–Terry strength of an answer as its probability to beat an average one.

    The log-strengths s with P(i beats j) = 1 / (1 + exp(s_j - s_i)) are fitted to all verdicts at
    once, with `prior` drawn games each that keep an undefeated answer finite; the score is 1 / (1 +
    exp(-s)), so s = log(score / (1 - score)). A judge asks about every pair in both orders. Range
    [0, 1], higher is better, within the group only. Source: Bradley and Terry 1952; Hunter 2004.
    Needs two answers or more.
    """

    name = "group_bradley_terry"
    aggregation = "bradley_terry"


def wins_of(n: int, margins: dict[tuple[int, int], list[float]]) -> list[list[float]]:
    """The matrix of wins for `n` outputs, a draw counting half for both; positive margins are wins
    of the first.
    """
    wins = [[0.0] * n for _ in range(n)]
    for (i, j), seen in margins.items():
        for margin in seen:
            won = (1 + (margin > 0) - (margin < 0)) / 2
            wins[i][j] += won
            wins[j][i] += 1 - won
    return wins


TEXTS: dict[str, dict[str, Any]] = {
    "en": {
        "scenario": "Several attempts at the same goal, to be told apart.",
        "desc": (
            "Judge how well each attempt reaches the goal of the query, compared with the other "
            "attempts."
        ),
        "rubrics": [
            "An attempt that reaches the goal stands clearly above every attempt that does not.",
            "Of those that reach it, the one with fewer detours, calls and words stands somewhat "
            "higher.",
            "Of those that fail, the one that came closer stands higher; partial success earns "
            "part of the score.",
            "Slight differences in quality make slight differences in score, large ones large "
            "differences.",
        ],
    },
    "zh": {
        "scenario": "针对同一目标的多次尝试，需要区分高下。",
        "desc": "与其他尝试相比，判断每次尝试在多大程度上达到了问题的目标。",
        "rubrics": [
            "达到目标的尝试明显高于所有未达到目标的尝试。",
            "同样达到目标的，弯路、调用和字数较少的略高。",
            "同样未达到目标的，更接近目标的较高；部分成功得部分分数。",
            "质量差别小，分数差别也小；质量差别大，分数差别也大。",
        ],
    },
}


LONGEST = 10_000
"""Longest text of scores that is read as loose JSON, in characters."""


class GroupTemplate(RubricTemplate):
    """Every answer of a group is scored from 0 to 1: `scores` by the answer's number, from 1."""

    prompt_name = "group"

    scores: Annotated[
        dict[int, float],
        Described(
            zh='一个 JSON 对象：每个回答的编号及其 0 到 1 的分数，如 {"1": 0.85, "2": 0.4}，不写其他内容'
        ),
    ] = Field(
        default=...,
        description='One JSON object: the number of every answer with its score from 0 to 1, such as {"1": 0.85, "2": 0.4}, '
        "nothing else",
    )

    @field_validator("scores", mode="before")
    @classmethod
    def _by_number(cls, value: Any) -> dict[int, float]:
        scores: dict[int, float] = {}
        for key, score in _entries(value):
            number, points = read_integer(key), read_number(score)
            if number in scores:
                raise ParseError(f"answer {number} is scored twice")
            if not 0 <= points <= 1:
                raise ParseError(f"the score of answer {number} is {score}; scores run from 0 to 1")
            scores[number] = points
        return scores

    @classmethod
    def format(  # type: ignore[override]  # a concrete template names its parameters
        cls,
        query: str = "",
        context: str = "",
        reference: str = "",
        tools: str = "",
        shared: str = "",
        answers: list[str] | None = None,
        rubrics: list[str] | None = None,
        examples: list[str] | None = None,
        language: str = "en",
        enable_thinking: bool = False,
        **kwargs: Any,
    ) -> Prompt:
        """System and user message: task, rubrics and form of the reply first, what all answers
        share, then each answer.
        """
        return render(
            cls.prompt_name,
            language,
            texts={
                "query": query,
                "context": context,
                "reference": reference,
                "tools": tools,
                "shared": shared,
                "answers": list(answers or ()),
            },
            rubrics=list(rubrics or ()),
            examples=list(examples or ()),
            output_form=cls.schema(enable_thinking=enable_thinking, language=language),
            **kwargs,
        )


@RewardRegistry.register("ruler")
class RulerReward(BaseRubricReward, BaseListWiseReward):
    """Shows a judge all answers of a group in one prompt, in a seeded order; it scores each from 0
    to 1 relative to the others.

    With steps, the whole trajectory is judged; the beginning that all trajectories share is shown
    once. Equal outputs are shown once and get the same score. Range [0, 1], higher is better;
    scores of different groups cannot be compared; group-relative training (GRPO) does not need
    that. One call per sample. Unscored when the reply does not score every answer exactly once
    (`parse`), for one output alone (`single_output`), and when all are the same
    (`identical_outputs`).

    Without rubrics of your own it judges by goal, economy and partial success. Tool definitions in
    metadata `tools` are shown. Idea: RULER, relative universal LLM-elicited rewards (OpenPipe ART,
    https://art.openpipe.ai/fundamentals/ruler).
    """

    score_range = (0.0, 1.0)
    scenario_texts = TEXTS

    name = "ruler"
    template = GroupTemplate

    example = Example(
        _STAIN,
        judge=_STAIN_JUDGE,
        inputs={"answer": "all `output[i]` together, each with its steps"},
    )

    def _before_evaluate(self, sample: DataSample, **kwargs: Any) -> dict[str, Any]:
        """Task, rubrics, and the different outputs."""
        group = as_group(sample.output)
        if len(group.distinct) == 1:
            raise Unscored(
                "All outputs are the same; there is nothing to tell apart.",
                reason="identical_outputs",
            )
        tools = (sample.metadata or {}).get("tools")
        return {
            **super()._before_evaluate(sample, **kwargs),
            "tools": tools
            if isinstance(tools, str)
            else json.dumps(tools, ensure_ascii=False)
            if tools
            else "",
            "shared": group.shared,
            "answers": group.distinct,
        }

    def _after_evaluate(self, response: Any, sample: DataSample, **kwargs: Any) -> Score[Any]:
        """The scores by output."""
        group = as_group(sample.output)
        wanted, given = set(range(1, len(group.distinct) + 1)), set(response.scores)
        if given != wanted:
            absent = wanted - given
            what = "no score for answer" if absent else "there is no answer"
            numbers = ", ".join(map(str, sorted(absent or given - wanted)))
            raise ParseError(
                f"<scores> holds one score for each of the {len(wanted)} answers; {what} {numbers}."
            )
        scores = tuple(response.scores[place + 1] for place in group.shown_as)
        return Score(scores, response.reason or "")


def _entries(value: Any) -> Iterable[tuple[Any, Any]]:
    """Number and score of each answer from JSON: an object by number, a list of objects, or a list
    of scores in order.
    """
    if isinstance(value, str):
        text = value.strip().strip("`").removeprefix("json").strip()
        try:
            # pairs, because a dict would drop a number that is given twice
            value = json.loads(text, object_pairs_hook=_Pairs)
        except (ValueError, RecursionError) as error:
            loose = object_at(text, 0) if text.startswith("{") and len(text) < LONGEST else None
            if loose is None or text[loose[1] :].strip():
                raise ParseError("expected a JSON object of numbers and scores") from error
            value = loose[0]
    if isinstance(value, _Pairs | dict):
        return list(value.items()) if isinstance(value, dict) else value
    if not isinstance(value, list):
        raise ParseError("expected a JSON object of numbers and scores")
    return [_entry(part, place) for place, part in enumerate(value, 1)]


class _Pairs(list[tuple[str, Any]]):
    """A JSON object's entries in order, equal keys kept."""


def _entry(part: Any, place: int) -> tuple[Any, Any]:
    if not isinstance(part, _Pairs | dict):
        return place, part
    fields = dict(part)
    number = next(
        (fields[key] for key in ("answer", "number", "id", "index") if key in fields), None
    )
    if number is None or "score" not in fields:
        raise ParseError("an entry of the list lacks the answer's number or its score")
    return number, fields["score"]


class Group(NamedTuple):
    """The outputs of a sample as texts.

    `distinct` holds each different output once, in order of first appearance; `shown_as[i]` is the
    place of output i there.
    """

    shared: str
    distinct: list[str]
    shown_as: list[int]


def as_group(outputs: list[DataOutput]) -> Group:
    """Outputs as texts; the longest common beginning of their steps is taken out."""
    ways = [[turn_text(step) for step in output.steps or ()] for output in outputs]
    length = sum(1 for _ in takewhile(lambda turns: len(set(turns)) == 1, zip(*ways, strict=False)))
    texts = []
    for output, way in zip(outputs, ways, strict=True):
        own = way[length:]
        # an answer without steps needs no label
        texts.append(
            "\n\n".join([*own, turn_text(output.answer)]) if own else _content(output.answer)
        )
    places = {text: place for place, text in enumerate(dict.fromkeys(texts))}
    return Group(
        "\n\n".join(ways[0][:length] if ways else ()),
        list(places),
        [places[text] for text in texts],
    )


def turn_text(step: Step) -> str:
    """A turn for the judge: role, text and tool calls as JSON; indented, so that a text cannot
    forge a second turn.
    """
    return f"[{step.role.value}]\n{indent(_content(step), '    ')}"


def _content(step: Step) -> str:
    # call ids differ between attempts and would make equal outputs differ
    calls = [
        json.dumps(call.function.model_dump(), ensure_ascii=False) for call in step.tool_calls or ()
    ]
    return "\n".join([*([step.text] if step.text or not calls else []), *calls])
