"""Judged graders that are more than one rubric: checklists, preferences, expected scores, trajectories step by step, searches."""

from __future__ import annotations

import asyncio
import inspect
import math
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from itertools import accumulate, islice
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field, create_model

from rm_gallery.core.graders.base import FunctionGrader, GraderScore
from rm_gallery.core.graders.bridge import RewardGrader
from rm_gallery.core.graders.common import ClaimGrader
from rm_gallery.core.graders.llm import LLMGrader, RubricGrader, last_what_differs, shown, usage_of
from rm_gallery.core.graders.run import agraded
from rm_gallery.core.model.message import ChatResponse
from rm_gallery.core.outcome import Bounds
from rm_gallery.core.reward.asking import parsed
from rm_gallery.core.reward.channel import Channel
from rm_gallery.core.reward.judge import BaseListWiseRubricReward, BasePairWiseRubricReward
from rm_gallery.core.reward.template import BasePromptTemplate, Described, render
from rm_gallery.core.utils.errors import ConfigError, Unscored
from rm_gallery.gallery.graders.agent import actions_of, messages_of

PARTS_FOLDER = Path(__file__).parent / "parts"
SEARCHED = 500
"""Characters of a response that are searched for at once: search engines take no more."""


# -- preferences --------------------------------------------------------------------------------------------------------------


class _PreferenceGrader(RewardGrader):
    """A comparison by rubrics as a grader."""

    def __init__(self, reward: Any = None, *, model: Any = None, **settings: Any) -> None:
        """Take the judge as `model` or `llm`, and rubrics, desc and language as the rewards do."""
        if reward is None:
            own = {key: value for key, value in settings.items() if key not in type(self).model_fields}
            beside = {key: value for key, value in settings.items() if key in type(self).model_fields}
            judge = own.pop("llm", model)
            made: Any = type(self).kind
            reward = made(llm=judge, name=beside.get("name") or self.registered_name(), **own)
            settings = beside
        super().__init__(reward, **settings)


class PairwisePreferenceGrader(_PreferenceGrader):
    """Which of several responses is better, every pair compared in both orders; a GraderRank, places by pairs won.

    Fields: `responses`, `query`, `context`. Metadata: `scores`, the share of pairs won.
    """

    kind: ClassVar[Any] = BasePairWiseRubricReward


class ListwisePreferenceGrader(_PreferenceGrader):
    """Which of several responses, shown at once in a seeded order, is best; a GraderRank, all others in second place.

    Fields: `responses`, `query`, `context`.
    """

    kind: ClassVar[Any] = BaseListWiseRubricReward


# -- expected scores ----------------------------------------------------------------------------------------------------------


class GEvalGrader(LLMGrader):
    """The expected score over the scale, weighted by the probabilities the judge gives to each number.

    Fields: `fields`, by default query and response. The judge writes its reasons and a number; the endpoint says how probable
    the other numbers were at that place (`logprobs`), which gives a score between the levels and fewer ties. Range
    `score_range`, whole levels of one token each, 1 to 5 by default. Unscored (`no_logprobs`) where the endpoint gives no
    probabilities. Source: G-Eval (arXiv 2303.16634), equation 1.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"llm", "logprobs"})
    unheard: ClassVar[frozenset[str]] = frozenset({"prompt", "channel"})
    channel: Channel = "text"
    name: str = "g_eval"
    desc: str = "Judge how good the response is."
    """The question."""
    steps: list[str] = Field(default_factory=list)
    """What the judge does one after the other before it scores; the paper has a model write them once for a question."""
    fields: dict[str, bool] = Field(default_factory=lambda: {"query": False, "response": True})
    """The fields it takes, and whether each is required."""
    top_logprobs: int = Field(default=20, ge=1, le=20)

    @property
    def inputs(self) -> dict[str, bool]:
        """`fields`."""
        return dict(self.fields)

    def _messages(self, fields: Mapping[str, Any], form: str) -> list[dict[str, Any]]:
        """The question and rubrics, then the fenced fields."""
        return render(
            "grader",
            self.language,
            texts={name: shown(fields.get(name)) for name in last_what_differs(self.fields)},
            always=[name for name, required in self.fields.items() if required],
            desc=self.desc,
            scenario="",
            rubrics=list(self.rubrics),
            examples=[],
            steps=list(self.steps),
            scale=_anchors(*self.score_range, self.language),
            fields=[f"`{name}`" for name in self.fields],
            output_form=form,
        )

    async def _grade(self, /, **fields: Any) -> Any:
        return await self._ask(fields, self._read, logprobs=True, top_logprobs=self.top_logprobs)

    def _read(self, reply: ChatResponse) -> GraderScore:
        said = super()._read(reply)
        low, high = self.score_range
        assert low is not None and high is not None
        shares = level_shares(reply.logprobs, said.score, low, high)
        if shares is None:
            raise Unscored(
                f"{self.name}: the endpoint gave no probabilities for its score; use an endpoint with logprobs.",
                reason="no_logprobs",
                cause="judge",
            )
        total = math.fsum(shares.values())
        expected = math.fsum(level * share for level, share in shares.items()) / total
        metadata = {"said": said.score, "shares": {f"{k:g}": v / total for k, v in sorted(shares.items())}}
        return said.model_copy(update={"score": min(high, max(low, expected)), "metadata": metadata})


_MEANINGS = {
    "en": ("there is nothing of weight to mend", "good, with slight faults", "good in the main, with clear faults",
           "good only in a part", "hardly good in anything"),
    "zh": ("没有值得修改之处", "好，略有瑕疵", "大体上好，但有明显的缺陷", "只有一部分好", "几乎没有好的地方"),
}  # fmt: skip


def _anchors(low: Any, high: Any, language: str) -> list[str]:
    """What the levels mean, where five or more of them are evenly spaced; else the two ends."""
    even = (high - low) % 4 == 0
    places = range(5) if even else (0, 4)
    return [f"{high - (high - low) * place / 4:g}: {_MEANINGS[language][place]}" for place in places]


def level_shares(logprobs: Any, said: float, low: float, high: float) -> dict[float, float] | None:
    """The probabilities of the levels at the place of the score: the last tag or key of that name that the number said follows.

    None without one: the same number elsewhere, in a reason or behind the verdict, tells nothing about the score.
    """
    content = logprobs.get("content") if isinstance(logprobs, Mapping) else None
    content = content if isinstance(content, list) else []
    entries = [entry for entry in content if isinstance(entry, Mapping) and isinstance(entry.get("token"), str)]
    starts = list(accumulate((len(entry["token"]) for entry in entries), initial=0))
    places = [found.end() - 1 for found in _SCORE.finditer("".join(entry["token"] for entry in entries))]
    for place in reversed(places):
        entry = entries[bisect_right(starts, place) - 1]
        if _level(entry["token"], low, high) != said:
            continue
        shares: dict[float, float] = {}
        options = entry.get("top_logprobs") or [entry]
        for option in options if isinstance(options, list) else ():
            level = _level(option.get("token"), low, high) if isinstance(option, Mapping) else None
            value = option.get("logprob") if isinstance(option, Mapping) else None
            if level is not None and isinstance(value, (int, float)) and value is not True and -1e4 < value <= 0:
                shares[level] = shares.get(level, 0.0) + math.exp(value)
        return shares if 0 < math.fsum(shares.values()) < 1.01 else None  # beyond 1 they are no probabilities
    return None


_SCORE = re.compile(r"(?:<score[^<>]{0,40}>|[\"']score[\"']\s*:)[\s\"'*_`]{0,20}\d", re.I)


def _level(token: Any, low: float, high: float) -> float | None:
    text = token.strip(" \n\t<>\"'*_`:") if isinstance(token, str) else ""
    if not text.isascii() or not text.isdigit() or len(text) > 3:
        return None
    return float(text) if low <= float(text) <= high else None


# -- trajectories and searches ------------------------------------------------------------------------------------------------

PARTS = {
    "contribution": ("how far it brings the task forward", "对任务的推进程度"),
    "relevance": ("how far it belongs to the task", "与任务的相关程度"),
    "accuracy": ("whether call and parameters are right", "调用和参数是否正确"),
    "efficiency": ("whether it was needed and not done before", "是否必要且未曾做过"),
}


@lru_cache(maxsize=1)
def _step_reply() -> type[BasePromptTemplate]:
    fields: dict[str, Any] = {
        name: (
            Annotated[int, Described(zh=f"{zh}，1（最差）到 5（最好）的整数")],
            Field(default=..., ge=1, le=5, description=f"A whole number from 1 (worst) to 5 (best): {en}"),
        )
        for name, (en, zh) in PARTS.items()
    }
    made: type[BasePromptTemplate] = create_model("StepReply", __base__=BasePromptTemplate, __module__=__name__, **fields)
    return made


class TrajectoryComprehensiveGrader(RubricGrader):
    """Every step of a trajectory for contribution, relevance, accuracy and efficiency; the mean of all, 0 to 1.

    Fields: `messages`, optional `query`. One call per tool call, each from 1 to 5 and mapped to [0, 1]. Metadata: `steps`,
    and `is_resolved`, whether the score reaches the threshold. Unscored without tool calls; one step that cannot be judged
    leaves the trajectory without a score.
    """

    unheard: ClassVar[frozenset[str]] = frozenset({"prompt", "whole"})
    rubric: ClassVar[str] = "trajectory_step"
    folder: ClassVar[Path] = PARTS_FOLDER
    name: str = "trajectory_comprehensive"
    score_range: Bounds = (0.0, 1.0)
    threshold: float | None = 0.8

    @property
    def inputs(self) -> dict[str, bool]:
        """`messages`, and `query` where it is not in them."""
        return {"messages": True, "query": False}

    @property
    def reply(self) -> type[BasePromptTemplate]:
        """Four numbers."""
        return _step_reply()

    async def _grade(self, messages: Any, query: str = "") -> GraderScore:
        read = messages_of(messages, self.name)
        asked = query or next((shown(m.get("content")) for m in read if m["role"] == "user"), "")
        actions = actions_of(read)
        if not actions:
            raise Unscored(f"{self.name}: the trajectory holds no tool calls.", reason="no_tool_calls", cause="answer")
        told = [{"call": action.signature, "result": action.observation or ""} for action in actions]
        steps, usages = [], []
        for number, step in enumerate(told):
            fields = {"query": asked, "history": told[:number], "step": step}
            found, usage = await self._ask(fields, self._read_step)
            steps.append(found)
            usages.append(usage)
        score = math.fsum((value - 1) / 4 for step in steps for value in step["scores"].values()) / (4 * len(steps))
        usage = {name: math.fsum(one[name] for one in usages) for name in usages[0]}
        metadata = {"steps": steps, "is_resolved": self.threshold is not None and score >= self.threshold}
        return GraderScore(score=score, reason=steps[-1]["reason"], metadata=metadata, usage=usage, **self.about())

    def _read_step(self, reply: ChatResponse) -> tuple[dict[str, Any], dict[str, float]]:
        found = parsed(self.reply, reply)
        scores = {name: getattr(found, name) for name in PARTS}
        return {"scores": scores, "reason": found.reason or ""}, usage_of(reply)


class SearchCorrectnessGrader(ClaimGrader):
    """Whether a response is true by what a search finds: 1 (false) to 5 (confirmed).

    Fields: `query`, `response`. `search` is your function, plain or async, of a text that returns texts (or anything that can be
    written as JSON): nothing is searched for otherwise. It is asked for the query and for the response, a long one piece by piece.
    """

    rubric: ClassVar[str] = "search_correctness"
    folder: ClassVar[Path] = PARTS_FOLDER
    search: Callable[[str], Any] | None = None
    max_searches: int = Field(default=10, ge=1)
    """For how many pieces of the response, of up to 500 characters each, is searched at most; what follows them is not."""

    @property
    def inputs(self) -> dict[str, bool]:
        """`query` and `response`."""
        return {"query": True, "response": True}

    def check(self) -> None:
        """Raise ConfigError without a search."""
        if self.search is None:
            raise ConfigError(f"{self.name} has nothing to search with: pass search=FUNCTION of a text that returns texts.")
        super().check()

    async def _grade(self, query: str, response: str) -> GraderScore:
        texts = [query, *islice(pieces_of(response, SEARCHED), self.max_searches)]
        found = await asyncio.gather(*map(self._found, texts))
        if not any(found):
            raise Unscored(f"{self.name}: the search found nothing.", reason="no_results")
        return await self._one({"query": query, "response": response, "search_results": list(found)})

    async def _found(self, text: str) -> Any:
        search = self.search
        if search is None:
            raise ConfigError(f"{self.name} has nothing to search with: pass search=FUNCTION of a text that returns texts.")
        if inspect.iscoroutinefunction(search):
            return await search(text)
        # what blocks is run on a thread of the engine, as a plain grader is
        beside = FunctionGrader(lambda text: GraderScore(score=0.0, metadata={"found": search(text)}), name="search")
        return (await agraded(beside, {"text": text})).metadata["found"]


_ENDS = re.compile(r"[.!?](?=\s)|[。！？\n]")


def pieces_of(text: str, longest: int) -> Iterator[str]:
    """The text in pieces of at most so many characters, cut where a sentence ends, or a word, if that is in a piece's second half."""
    rest = text.strip()
    while len(rest) > longest:
        start = rest[:longest]
        ends = (max((found.end() for found in _ENDS.finditer(start)), default=0), start.rfind(" ") + 1)
        cut = next((end for end in ends if end > longest // 2), longest)
        yield start[:cut].strip()
        rest = rest[cut:].strip()
    if rest:
        yield rest
