"""Every request of one judgement is counted, billed and another one: votes, both orders, images,
repairs and second looks, of every way to judge that the registry knows.

Equal requests would be one reply that counts several times: with a seed no two may be the same, and
without one their numbers keep them apart in the cache.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, ClassVar

import pytest

import rm_gallery
from rm_gallery import (
    BasePointWiseReward,
    BaseReward,
    Budget,
    ChatMessage,
    DataSample,
    GradingRunner,
    RewardRegistry,
    RewardResult,
    Step,
    Unscored,
    WeightedSum,
)
from rm_gallery.core.engine.context import RunControl
from rm_gallery.core.graders.strategy import AverageGrader, VotingGrader
from rm_gallery.core.reward.base import BaseStepWiseRubricReward
from rm_gallery.core.reward.channel import forget
from rm_gallery.gallery.rm.published import judge_names, published
from tests.contracts.doors import METHODS, RUNNER
from tests.gallery import registry_cases
from tests.graders.material import make as make_grader
from tests.reward.rewards import Listening, scored
from tests.support.samples import issues, make_sample

MUMBLED = "I would rather talk about the weather."
CLAIM = {"number": 1, "evidence": "", "verdict": "unsupported"}
SCORES = {str(place): 0.2 * place for place in (1, 2, 3)}
SAID = f"""<reason>so</reason><best>1</best><score>3</score><scores>{json.dumps(SCORES)}</scores>
<equal>yes</equal><c1>yes</c1><c2>no</c2><claims>{json.dumps([CLAIM])}</claims>"""
"""A verdict in every form."""
PICTURE = "https://pictures.example/1.png"
Made = Callable[..., BaseReward]


class Judge(Listening):
    """Mumbles never, once in each conversation, or always."""

    remote: ClassVar[bool] = True
    mumbles: str = "never"
    cache: bool | None = True
    temperature: float | None = 0.0

    async def attempt(self, payload: dict[str, Any], timeout: float | None) -> dict[str, Any]:
        """Note the request; once it was asked to repeat itself it answers what came before."""
        self.asked.append(payload)
        turns = payload["messages"]
        told = any(MUMBLED in str(turn["content"]) for turn in turns)
        if self.mumbles == "always" or (self.mumbles == "once" and not told):
            return await Listening(reply=MUMBLED).attempt(payload, timeout)
        asked = {**payload, "messages": turns[: -2 if told else None]}
        return await Listening(reply=self.reply).attempt(asked, timeout)


def way_to_judge(kind: Any) -> tuple[str, ...]:
    """A kind, and the classes whose code asks and reads."""
    steps = ("_evaluate", "_vote", "_after_evaluate", "_prompt", "_asked", "plan")
    owner = {name: one.__name__ for one in reversed(kind.__mro__) for name in vars(one)}
    return (kind.kind, *(owner.get(step, "") for step in steps))


@cache
def judged() -> list[str]:
    """The first judged reward of the registry in every way to judge, and the first published judge
    of every kind and form of verdict.
    """
    names = [n for n in RewardRegistry.list() if "llm" in registry_cases.needs_of(n)]
    ways = {way_to_judge(RewardRegistry.get(name)): name for name in reversed(names)}
    forms = {
        (found.kind, found.verdict.form): f"judge:{name}"
        for name in reversed(judge_names())
        for found in [published(name)]
    }
    return [*ways.values(), *forms.values()]


def of_registry(name: str) -> Made:
    def made(judge: Any, votes: int = 3) -> BaseReward:
        if name.startswith("judge:"):
            return RewardRegistry.create(name, llm=judge, votes=votes)
        given = {"votes": votes} if "votes" in registry_cases.fields_of(name) else {}
        return registry_cases.create(name, llm=judge, **given)

    return made


def of_grader(name: str, *around: Any, **settings: Any) -> Made:
    def made(judge: Any) -> BaseReward:
        grader = make_grader(name, judge, **settings)
        for strategy in around:
            grader = strategy(grader)
        return grader

    return made


def of_two(judge: Any) -> BaseReward:
    return WeightedSum({name: of_registry(name)(judge) for name in TWO}, dict.fromkeys(TWO, 0.5))


class Within(BasePointWiseReward):
    """Asks another reward, in a run of its own."""

    inner: BaseReward
    judged: ClassVar[bool] = True

    async def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        (done,) = await self.inner.async_evaluate_batch([sample])
        score = done.output[0].answer.reward.score
        if score is None:
            raise Unscored("The inner reward has none.", cause="judge")
        return scored(self.name, score)


TWO = ("base_helpfulness_pointwise", "base_honesty_pointwise")
REWARDS: dict[str, Made] = {
    **{name: of_registry(name) for name in judged()},
    "steps": lambda judge: BaseStepWiseRubricReward(llm=judge, votes=3),
    "a sum": of_two,
    "a run in a run": lambda judge: Within(inner=of_registry(TWO[0])(judge)),
    "a grader": of_grader("relevance"),
    "a grader's mean": of_grader("relevance", AverageGrader),
    "a grader's vote": of_grader("relevance", VotingGrader),
    "a grader's vote of means": of_grader("relevance", partial(AverageGrader, n=2), VotingGrader),
    "a grader's claims": of_grader("hallucination", VotingGrader, claims=True),
    "a grader's checklist": of_grader("checklist", samples=3),
    "a grader's mean of checklists": of_grader("checklist", partial(AverageGrader, n=2), samples=2),
}


def name_of_images(name: str) -> bool:
    """Whether images are sent: a grader is shown texts, and who acts looks for itself."""
    return name != "agent_judge" and "grader" not in name


def sample_for(name: str) -> DataSample:
    """The example of a reward, with a picture beside its question where images are sent."""
    if name in RewardRegistry.list():
        sample = registry_cases.fitting(name)[0]
    else:
        sample = make_sample("A cat, I think.", "A dog, I think.", reference="A cat.")
    if name == "agent_judge":  # it sees no answer before it looks for one: both are one question
        sample.output = sample.output[:1]
    if name == "steps":
        for output in sample.output:
            output.steps = [Step(content=f"{output.answer.text} {at}") for at in range(2)]
    if name_of_images(name):
        text = {"type": "text", "text": sample.query_text()}
        picture = {"type": "image_url", "image_url": {"url": PICTURE}}
        sample.input = [ChatMessage.model_validate({"role": "user", "content": [text, picture]})]
    return sample


def judge_for(name: str, mumbles: str, seed: int | None) -> Judge:
    forget()  # what is known of the endpoint of another test
    acts = name == "agent_judge"
    says: Any = registry_cases.example_of(name).judge if acts else SAID
    # replies are kept by the model, too, so that no run finds those of another
    return Judge(reply=says, mumbles=mumbles, seed=seed, model=f"{mumbles}-{seed}")


def text_of(requests: list[dict[str, Any]]) -> list[str]:
    return [json.dumps(each, sort_keys=True) for each in requests]


@pytest.mark.parametrize(
    ("name", "mumbles"),
    [
        (name, mumbles)
        for name in REWARDS
        for mumbles in ("never", "once", "always")
        if mumbles == "always" or not name.startswith("judge:")  # whose forms are their own
    ],
)
def test_every_request_of_one_judgement_is_counted_billed_and_another_one(
    name: str, mumbles: str
) -> None:
    found = []
    for seed in (7, None):
        judge, control, budget = judge_for(name, mumbles, seed), RunControl(), Budget()
        options: Any = {"control": control, "budget": budget, "blame": "probe"}
        (done,) = REWARDS[name](judge).evaluate_batch([sample_for(name)], **options)
        assert control.calls == control.usage.calls == budget.spent.calls == len(judge.asked) > 0
        assert control.usage == budget.spent and control.cached == 0
        if mumbles != "always":
            assert issues(done) == []
        found.append(text_of(judge.asked))
    with_seed, without = found
    assert len(set(with_seed)) == len(with_seed) == len(without)
    assert not name_of_images(name) or all(PICTURE in each for each in with_seed)


@pytest.mark.parametrize(
    "name", [name for name in REWARDS if "votes" in registry_cases.fields_of(name)]
)
def test_each_question_is_asked_as_often_as_there_are_votes(name: str) -> None:
    """And each time the same but for its seed, so that votes are of one question."""
    once, thrice = judge_for(name, "never", 7), judge_for(name, "never", 7)
    for judge, votes in ((once, 1), (thrice, 3)):
        of_registry(name)(judge, votes).evaluate(sample_for(name), cache=False)
    questions = Counter(str(each["messages"]) for each in once.asked)
    assert Counter(str(each["messages"]) for each in thrice.asked) == Counter(
        {question: 3 * n for question, n in questions.items()}
    )
    for question in questions:
        seeds = [e["seed"] for e in thrice.asked if str(e["messages"]) == question]
        assert len(set(seeds)) == len(seeds)


@pytest.mark.parametrize("held", ["seed", "extra_body"])
def test_votes_of_all_repeats_have_seeds_of_their_own(held: str) -> None:
    """Wherever the judge's settings have the seed; the first vote has the judge's own."""
    name = TWO[0]
    own = {"seed": 7} if held == "seed" else {"extra_body": {"seed": 7}}
    judge = judge_for(name, "never", None).model_copy(update={**own, "asked": []})
    sample = sample_for(name)
    sample.output = sample.output[:1]
    for repeat in range(4):
        of_registry(name)(judge, 6).evaluate(sample, repeat=repeat)
    seeds = [each["seed"] for each in judge.asked]
    assert len(set(seeds)) == len(seeds) == 4 * 6 and seeds[0] == 7
    assert all(0 <= seed < 2**31 for seed in seeds)


# -- doors -----------------------------------------------------------------------------------------

PAIR = ("A cat, I think.", "A dog, I think.")


def method(name: str) -> Callable[[BaseReward, dict[str, Any]], Any]:
    """A method of a reward that takes one sample, or several."""
    several = "batch" in name or "stream" in name

    def call(reward: BaseReward, options: dict[str, Any]) -> Any:
        sample = make_sample(*PAIR)
        return drained(getattr(reward, name)([sample] if several else sample, **options))

    return call


def drained(found: Any) -> Any:
    """What a door gives, waited for and read to its end."""

    async def read() -> Any:
        return [each async for each in found] if hasattr(found, "__aiter__") else await found

    if hasattr(found, "__aiter__") or hasattr(found, "__await__"):
        return asyncio.run(read())
    return list(found) if hasattr(found, "__next__") else found


def runner(name: str) -> Callable[[BaseReward, dict[str, Any]], Any]:
    def call(reward: BaseReward, options: dict[str, Any]) -> Any:
        rows = [{"query": "What is it?", "response": text} for text in PAIR]
        made = GradingRunner({"it": reward}, show_progress=False, **options)
        return drained(getattr(made, name)(rows))

    return call


def benchmark(reward: BaseReward, options: dict[str, Any]) -> Any:
    rows = [{"prompt": "What is it?", "chosen": PAIR[:1], "rejected": PAIR[1:]}]
    return rm_gallery.evaluate(reward, rows, progress=False, **options)


DOORS: dict[str, Callable[[BaseReward, dict[str, Any]], Any]] = {
    **{name: method(name) for name in METHODS},
    **{name: runner(name.rpartition(".")[2]) for name in RUNNER},
    "rm_gallery.evaluate": benchmark,
}


@pytest.mark.parametrize("mumbles", ["once", "always"])
@pytest.mark.parametrize("door", DOORS)
def test_the_bill_of_every_door_is_what_was_asked(door: str, mumbles: str) -> None:
    """Votes, repairs and second looks, where answers cannot be judged."""
    judge, control, budget = judge_for(TWO[0], mumbles, 7), RunControl(), Budget()
    options: dict[str, Any] = {"control": control, "budget": budget, "blame": "probe"}
    with contextlib.suppress(Unscored):  # best-of-n has no best one
        DOORS[door](of_registry(TWO[0])(judge), options)
    requests = text_of(judge.asked)
    assert control.calls == budget.spent.calls == len(requests) == len(set(requests))
    assert len(requests) == 12 if mumbles == "once" else len(requests) > 12


def test_a_second_look_at_votes_within_votes_of_a_grader_asks_other_questions() -> None:
    """Numbers of votes within votes grow beyond those of seeds."""
    judge, control, budget = judge_for("a grader", "always", 7), RunControl(), Budget()
    grader: Any = make_grader("checklist", judge, samples=2)
    for _ in range(2):
        grader = AverageGrader(grader, n=2)
    options: dict[str, Any] = {"control": control, "budget": budget, "blame": "probe"}
    rows = [{"query": "What is it?", "response": text} for text in PAIR]
    GradingRunner({"it": grader}, show_progress=False, **options).run(rows)
    assert control.calls == budget.spent.calls == len(judge.asked) > 2 * 8 * 2
    assert len(set(text_of(judge.asked))) == len(judge.asked)


def test_the_bill_of_a_run_folder_is_what_was_asked_also_where_it_goes_on(tmp_path: Path) -> None:
    budget, control, requests = Budget(), RunControl(), list[str]()
    options: dict[str, Any] = {"run_dir": str(tmp_path / "run"), "control": control}
    first, second = make_sample(*PAIR), make_sample("A cow.", unique_id="2")
    for samples in ([first], [first, second]):
        judge = judge_for(TWO[0], "once", 7)
        of_registry(TWO[0])(judge).evaluate_batch(samples, budget=budget, cache=False, **options)
        requests += text_of(judge.asked)
        summary = json.loads((tmp_path / "run" / "summary.json").read_text())
        assert summary["last"]["calls"] == control.calls == len(judge.asked) > 0
        assert summary["spent"]["calls"] == budget.spent.calls == len(requests)
        assert summary["spent"]["input_tokens"] == budget.spent.input_tokens
    assert len(set(requests)) == len(requests) == 12 + 6
