"""Breaking the judge never pays, and costs no neighbour: every kind of reward that compares
answers, at every door.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from itertools import product
from typing import Any, NamedTuple

import pytest

from rm_gallery import (
    BasePointWiseReward,
    BaseReward,
    BaseStepWiseReward,
    Cascade,
    Combined,
    ConfigError,
    DataSample,
    FakeLLM,
    Gate,
    RewardRegistry,
    RewardResult,
    Stage,
    Step,
    TurnRewards,
    WeightedSum,
    reward_function,
    rule,
)
from rm_gallery.core.data.conversation import sample_of_completion
from rm_gallery.core.engine.context import RunControl
from rm_gallery.core.reward.blame import TRIALS
from rm_gallery.core.reward.compose import Composition
from rm_gallery.core.reward.outputs import NEUTRAL
from rm_gallery.core.reward.schema import PhraseJudge, sample_of
from rm_gallery.core.reward.turn_rewards import turn_rewards_of
from rm_gallery.core.runner.grading_runner import build_reward
from rm_gallery.integrations.episodes import EpisodeRewards
from rm_gallery.integrations.trl import trl_components, trl_reward
from rm_gallery.serve.app import create_app
from rm_gallery.serve.door import ServeSettings
from rm_gallery.serve.formats import NATIVE
from rm_gallery.serve.handler import Handler
from tests.gallery.registry_cases import example_of
from tests.integrations.adapters import ADAPTERS, Row, one_by_one, waited
from tests.integrations.packages import installed
from tests.reward.rewards import scored
from tests.serve.asking import post
from tests.support.choice import covering

GROUP = ("a good answer", "another good one", "a wrong answer")
WRONG, BREAKER = "the wrong reply", "BREAKER"
CONDITIONAL = "breaks beside good ones"


class Judge:
    """Ranks answers by a phrase, counts what it is asked, and gives no verdict where it is shown
    the breaker.
    """

    def __init__(self, *phrases: str) -> None:
        self._judge, self.asked = PhraseJudge((*phrases, WRONG, NEUTRAL)), 0

    def __call__(self, prompt: str) -> str:
        self.asked += 1
        return "I would rather not say." if BREAKER in prompt else self._judge(prompt)


def judged(name: str, judge: Judge) -> BaseReward:
    params = {**example_of(name).params, "llm": FakeLLM(reply=judge), "repair_attempts": 0}
    return RewardRegistry.create(name, **params)


@cache
def comparing() -> list[str]:
    """Every registered reward that compares answers by a judge."""
    names = [name for name in RewardRegistry.list() if example_of(name).judge is not None]
    return [
        name
        for name in names
        if issubclass(RewardRegistry.get(name), BaseReward)
        and RewardRegistry.get(name).kind in ("listwise", "pairwise")
    ]


def worth(text: str) -> float:
    if BREAKER in text:
        raise ValueError("cannot be read")
    return float("good" in text)


@reward_function(mode="batch", score_range=(0.0, 1.0))
def batch(rollouts_messages: list[Any], responses: list[str], **kwargs: Any) -> list[float]:
    return [worth(text) for text in responses]


@reward_function(mode="batch", score_range=(0.0, 1.0))
async def async_batch(
    rollouts_messages: list[Any], responses: list[str], **kwargs: Any
) -> list[float]:
    return [worth(text) for text in responses]


@reward_function(mode="batch", score_range=(0.0, 1.0))
def batch_of_one_size(
    rollouts_messages: list[Any], responses: list[str], **kwargs: Any
) -> list[float | None]:
    """Says itself that it has no score for one."""
    return [None if BREAKER in text else worth(text) for text in responses]


@reward_function(mode="batch", score_range=(0.0, 1.0))
def beside_good_ones(
    rollouts_messages: list[Any], responses: list[str], **kwargs: Any
) -> list[float]:
    """Breaks where the breaker would lose."""
    if any(BREAKER in text for text in responses) and any("good" in text for text in responses):
        raise ValueError("cannot be compared")
    return [float("good" in text) for text in responses]


@reward_function(score_range=(0.0, 1.0))
def single(messages: list[Any], response: str, **kwargs: Any) -> float:
    return worth(response)


class Group:
    score_range: tuple[float, float] = (0.0, 1.0)

    def compute_group_reward(
        self, rollout_ids: list[str], messages_list: list[Any], tasks: list[Any], **kwargs: Any
    ) -> list[Any]:
        return [{"good": worth(messages[-1]["content"])} for messages in messages_list]


def by_judge(name: str) -> Callable[[], BaseReward]:
    return lambda: judged(name, Judge("a good answer", "another good one", "a wrong answer"))


PAIRS, LIST = "base_helpfulness_pairwise", "base_helpfulness_listwise"
PARTS: dict[str, Callable[[], BaseReward]] = {
    "pairs": by_judge(PAIRS), "list": by_judge(LIST), "batch": batch.reward,
}  # fmt: skip
COMPOSED: dict[type[Composition], Callable[[BaseReward], BaseReward]] = {
    WeightedSum: lambda part: WeightedSum({"a": single.reward(), "b": part}),
    Combined: lambda part: Combined({"a": single.reward(), "b": part}, how="geometric_mean"),
    Gate: lambda part: Gate(part, single.reward(), threshold=0.0),
    Cascade: lambda part: Cascade(Stage(single.reward(), stop_above=2.0, stop_below=-1.0), part),
    TurnRewards: lambda part: TurnRewards(outcome=part, credit="equal"),
}


def composed(kind: type[Composition], part: Callable[[], BaseReward]) -> BaseReward:
    return COMPOSED[kind](part())


KINDS: dict[str, Callable[[], BaseReward]] = {
    **{name: by_judge(name) for name in (PAIRS, LIST, "ruler", "group_win_rate", "group_elo", "group_copeland", "group_bradley_terry")},
    "batch function": batch.reward, "async batch function": async_batch.reward, "valid for some": batch_of_one_size.reward,
    CONDITIONAL: beside_good_ones.reward,
    "environment": lambda: build_reward(Group(), {"worst": 0.0}),
    **{f"{kind.__name__} of {name}": partial(composed, kind, part)
       for kind in COMPOSED for name, part in PARTS.items()},
}  # fmt: skip


def in_batch(reward: BaseReward, texts: Sequence[str]) -> list[float | None]:
    [done] = reward.evaluate_batch([sample_of("Which?", *texts)], blame="probe")
    return [reward.score_of_output(output) for output in done.output]


def by_itself(reward: BaseReward, texts: Sequence[str]) -> list[float | None]:
    done = reward.evaluate(sample_of("Which?", *texts), blame="probe")
    return [reward.score_of_output(output) for output in done.output]


BATCHES = [codec for codec in NATIVE if codec.name == "reward_batch"]


def over_http(reward: BaseReward, texts: Sequence[str]) -> list[float | None]:
    app = create_app(Handler({"it": reward}), ServeSettings(), BATCHES)
    reply = post(
        app,
        "/v1/rewards/it/batch",
        {"items": [{"prompt": "Which?", "completion": text} for text in texts]},
    )
    assert reply.status_code == 200, reply.text
    return [each["score"] for each in reply.json()["results"]]


def in_trainer(name: str) -> Callable[[BaseReward, Sequence[str]], list[float | None]]:
    adapter = ADAPTERS[name]

    def scores(reward: BaseReward, texts: Sequence[str]) -> list[float | None]:
        try:
            made = adapter.make(reward)
        except ConfigError as error:
            pytest.skip(f"it takes no reward that compares: {error}"[:100])
        assert adapter.batch is not None
        return [
            adapter.score(each)
            for each in waited(adapter.batch(made, [Row("Which?", text) for text in texts]))
        ]

    return scores


DOORS = {
    "evaluate": by_itself, "evaluate_batch": in_batch, "HTTP": over_http,
    **{name: in_trainer(name) for name, adapter in ADAPTERS.items() if adapter.batch is not None},
}  # fmt: skip


def best_of(scores: Sequence[float | None]) -> int:
    return max(range(len(scores)), key=lambda place: scores[place] or 0.0)


def compositions(kind: type[Composition] = Composition) -> Iterator[type[Composition]]:
    for each in kind.__subclasses__():
        if each.__module__.startswith("rm_gallery.") and not each.__name__.startswith("_"):
            yield each
        yield from compositions(each)


def test_every_composition_is_among_the_kinds() -> None:
    assert set(compositions()) == set(COMPOSED)


@pytest.mark.parametrize(
    ("kind", "door"),
    covering(
        product(KINDS, DOORS),
        lambda kind, door: kind,
        lambda kind, door: (door, kind.partition(" of ")[0] if " of " in kind else ""),
    ),
)
def test_a_breaker_gets_no_more_than_an_honest_wrong_answer_and_costs_no_neighbour(
    kind: str, door: str
) -> None:
    *others, honest = DOORS[door](KINDS[kind](), [*GROUP, WRONG])
    *neighbours, breaker = DOORS[door](KINDS[kind](), [*GROUP, BREAKER])
    assert honest is not None and breaker is not None and breaker <= honest
    assert None not in neighbours and best_of(neighbours) == best_of(others)
    if kind == CONDITIONAL:  # two of them beside two good ones might be either two
        return
    *neighbours, one, two = DOORS[door](KINDS[kind](), [*GROUP, BREAKER, f"another {BREAKER}"])
    assert (
        None not in neighbours and one is not None and two is not None and max(one, two) <= honest
    )


@pytest.mark.parametrize("name", comparing())
def test_every_registered_one_finds_its_breaker_in_a_bounded_number_of_calls(name: str) -> None:
    example = example_of(name)
    assert example.judge is not None
    phrases = example.judge.phrases

    def asked(last: str, **options: Any) -> tuple[list[float | None], int]:
        judge = Judge(*phrases)
        sample = example.sample.model_copy(deep=True)
        outputs = [output.model_copy(deep=True) for output in (*sample.output, sample.output[-1])]
        outputs[-1].answer.content, outputs[-1].steps = last, None
        reward = judged(name, judge)
        done = reward.evaluate(sample.model_copy(update={"output": outputs}), **options)
        return [reward.score_of_output(output) for output in done.output], judge.asked

    scores, calls = asked(WRONG)
    assert asked(WRONG, blame="probe") == (scores, calls), (
        "nothing failed, and nothing more is asked"
    )
    honest, (*neighbours, breaker), most = scores[-1], *asked(BREAKER, blame="probe")
    assert (
        honest is not None and breaker is not None and breaker <= honest and None not in neighbours
    )
    pair = RewardRegistry.get(name).kind == "pairwise"
    assert most - calls <= (2 * (TRIALS + 1) if pair else len(scores) + 4)


def test_who_caused_it_is_said_of_the_breaker_alone() -> None:
    reward = batch.reward()
    done = reward.evaluate(sample_of("Which?", *GROUP, BREAKER), blame="probe")
    said = [
        output.answer.reward.extra_data.get("batch", {}).get("caused_by") for output in done.output
    ]
    assert said == [None, None, None, "answer"]
    open_range = reward_function(mode="batch", score_range=(None, 1.0))(batch.function).reward()
    done = open_range.evaluate(sample_of("Which?", *GROUP, BREAKER), blame="probe")
    assert [[issue.cause for issue in output.answer.reward.issues] for output in done.output] == [
        [],
        [],
        [],
        ["answer"],
    ]


class Steps(BaseStepWiseReward):
    score_range: tuple[float | None, float | None] = (0.0, 1.0)

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        return scored(self.name, worth((sample.output[0].steps or [])[-1].text))


def test_a_step_that_breaks_its_reward_has_the_worst_score() -> None:
    output = {
        "answer": {"role": "assistant", "content": "a"},
        "steps": [{"content": "good"}, {"content": BREAKER}, {"content": "good"}],
    }
    done = Steps().evaluate(
        {"input": [{"role": "user", "content": "q"}], "output": [output]}, blame="probe"
    )
    assert [step.reward.score for step in done.output[0].steps or []] == [1.0, 0.0, 1.0]


# -- what only malformed answers raise ---------------------------------------------------------------


def parsed(text: str) -> float:
    return float(json.loads(text)["score"])


def found(text: str) -> float:
    return float(re.search(r"score: ([\d.]+)", text).group(1))  # type: ignore[union-attr]


def executed(text: str) -> float:
    names: dict[str, Any] = {}
    exec(text, names)
    return float(names["score"])


def attribute(text: str) -> float:
    shape = re.match(r"a score", text)
    return float(text.split()[-1]) if shape.string else 0.0  # type: ignore[union-attr]


def divided(text: str) -> float:
    whole, part = text.split("/")
    return float(whole) / float(part)


MALFORMED: dict[str, tuple[Callable[[str], float], list[str], str]] = {
    "json.loads": (parsed, ['{"score": 0.9}', '{"score": 0.5}', '{"score": 0.7}'], "no JSON"),
    "re.search": (found, ["score: 0.9", "score: 0.5", "score: 0.7"], "none given"),
    "exec": (executed, ["score = 0.9", "score = 0.5", "score = 0.7"], "score ="),
    "attribute of None": (attribute, ["a score 0.9", "a score 0.5", "a score 0.7"], "words"),
    "division by zero": (divided, ["9/10", "1/2", "7/10"], "1/0"),
}


def plain(function: Callable[[str], float]) -> Callable[..., float]:
    def reads(messages: list[Any], response: str, **kwargs: Any) -> float:
        return function(response)

    return reads


def ruled(function: Callable[[str], float]) -> BaseReward:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(RewardRegistry, "_classes", dict(RewardRegistry._classes))

        def reads(response: str) -> float:
            return function(response)

        rule("malformed")(reads)
        return RewardRegistry.create("malformed")


WRITTEN: dict[str, Callable[[Callable[[str], float]], BaseReward]] = {
    "@reward_function": lambda f: reward_function(score_range=(0.0, 1.0))(plain(f)).reward(),
    "@rule": ruled,
    "plain callable": lambda f: build_reward(plain(f), {}),
}


def one_after_another(name: str) -> Callable[[BaseReward, Sequence[str]], list[float | None]]:
    """An adapter that is given row after row."""
    adapter = ADAPTERS[name]

    def scores(reward: BaseReward, texts: Sequence[str]) -> list[float | None]:
        rows = [Row("Which?", text) for text in texts]
        with installed():
            made = adapter.make(reward)
            return [adapter.score(each) for each in one_by_one(adapter, made, rows)]

    return scores


ALL_DOORS = {
    **DOORS,
    **{
        name: one_after_another(name)
        for name, each in ADAPTERS.items()
        if each.batch is None and each.chooses
    },
}


@pytest.mark.parametrize("door", ALL_DOORS)
@pytest.mark.parametrize("way", MALFORMED)
def test_an_answer_that_raises_where_its_neighbours_do_not_has_the_worst_score(
    way: str, door: str
) -> None:
    function, sound, broken = MALFORMED[way]
    scores = ALL_DOORS[door](WRITTEN["@reward_function"](function), [*sound, broken])
    assert scores == [0.9, 0.5, 0.7, 0.0]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("written", WRITTEN)
def test_however_the_function_is_written_and_whoever_comes_first(written: str, door: str) -> None:
    function, sound, broken = MALFORMED["json.loads"]
    assert DOORS[door](WRITTEN[written](function), [broken, *sound]) == [0.0, 0.9, 0.5, 0.7]


def test_a_function_that_fails_for_all_is_the_rules_fault() -> None:
    reward = WRITTEN["@rule"](parsed)
    done = reward.evaluate_batch([sample_of("q", text) for text in GROUP], blame="probe")
    assert [s.output[0].answer.reward.issues[0].cause for s in done] == ["rule"] * len(GROUP)


def test_trls_components_of_a_breaker_are_the_worst_score() -> None:
    reward = WRITTEN["@reward_function"](parsed)
    texts = [*MALFORMED["json.loads"][1], "no JSON"]
    [words, *_] = trl_components(reward, ["words"])
    assert words(prompts=["q"] * 4, completions=texts) == [None, None, None, 0.0]


# -- all that the candidate made ---------------------------------------------------------------------


@pytest.mark.parametrize("place", ["label", "metadata"])
def test_a_workspace_that_breaks_its_judge_is_the_candidates_own_doing(place: str) -> None:
    class Looks(BasePointWiseReward):
        score_range: tuple[float | None, float | None] = (0.0, 1.0)

        def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
            assert sample.reference() == "r", "what belongs to the question stays"
            known = {**(sample.metadata or {}), **(sample.output[0].answer.label or {})}
            return scored(self.name, worth(known["workspace"]["total.txt"]))

    def sample(said: str) -> DataSample:
        made = {"workspace": {"total.txt": said}}
        label: dict[str, Any] = {"reference": "r"}
        metadata: dict[str, Any] = {}
        (label if place == "label" else metadata).update(made)
        one = sample_of("q", {"content": "Done.", "label": label})
        one.metadata = metadata
        return one

    reward = Looks()
    done = reward.evaluate_batch([sample(text) for text in (*GROUP, BREAKER)], blame="probe")
    assert [s.output[0].answer.reward.score for s in done] == [1.0, 1.0, 0.0, 0.0]
    assert done[-1].output[0].answer.reward.extra_data["Looks"]["caused_by"] == "answer"


class Judged(BaseStepWiseReward):
    """Reads a turn with all that came before it, and its calls."""

    score_range: tuple[float | None, float | None] = (0.0, 1.0)

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        steps = sample.output[0].steps or []
        return scored(self.name, worth("good" + " ".join(str(s.to_openai()) for s in steps)))


def turn(content: str | None, arguments: str = "") -> dict[str, Any]:
    if not arguments:
        return {"role": "assistant", "content": content}
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    return {"role": "assistant", "content": content, "tool_calls": [call]}


def tool(said: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": "c", "content": said}


TURNS: dict[str, tuple[list[dict[str, Any]], list[float]]] = {
    "an early turn": ([turn(BREAKER), {"role": "user", "content": "go on"}, turn("end")], [0.0, 0.0]),
    "a late turn": ([turn("look"), {"role": "user", "content": "go on"}, turn(BREAKER)], [1.0, 0.0]),
    "a tool's output": ([turn(None, "{}"), tool(BREAKER), turn("end")], [1.0, 0.0]),
    "a tool call": ([turn("look", f'{{"a": "{BREAKER}"}}'), tool("7"), turn("end")], [0.0, 0.0]),
    "nothing": ([turn(None, "{}"), tool("7"), turn("end")], [1.0, 1.0]),
}  # fmt: skip


@pytest.mark.parametrize("way", ["method", "TurnRewards", "trl", "episode"])
@pytest.mark.parametrize("broken", TURNS)
def test_a_turn_that_breaks_the_judge_costs_itself_and_those_not_judged_for_it(
    broken: str, way: str
) -> None:
    talk, expected = TURNS[broken]
    mean = sum(expected) / len(expected)
    if way == "trl":
        skipped = TurnRewards(steps=Judged(), missing="skip", total="mean")
        adapter = ADAPTERS["trl.trl_reward"]
        [given] = one_by_one(adapter, adapter.make(skipped), [Row("q", talk)])
        assert adapter.score(given) == mean
    elif way == "episode":
        episode = EpisodeRewards(Judged()).episode("q", {})
        for at, message in enumerate(talk):
            if message["role"] == "assistant":
                episode.step(message, done=at == len(talk) - 1)
            else:
                episode.observe([message])
        assert list(episode.rewards) == expected
    else:
        sample = sample_of_completion("q", talk)
        reward: BaseReward = TurnRewards(steps=Judged()) if way == "TurnRewards" else Judged()
        done = reward.evaluate(sample, blame="probe")
        assert turn_rewards_of(reward, done.output[0]) == expected


HEARD: list[Any] = []
"""What step rewards were asked about a turn that breaks them, and about others."""


class Sees(BaseStepWiseReward):
    """Reads everything of its sample."""

    score_range: tuple[float | None, float | None] = (0.0, 1.0)

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        [output] = sample.output
        steps = output.steps or []
        HEARD.append((steps[-1].text, str([output.answer.text, *(s.to_openai() for s in steps)])))
        return scored(self.name, worth("good " + steps[-1].text))


def hears() -> BaseReward:
    @rule("hears", mode="stepwise", score_range=(0.0, 1.0), replace=True)
    def hears(answer: str, results: list[str], messages: list[dict[str, Any]]) -> float:
        HEARD.append((answer, str([results, messages])))
        return worth("good " + answer + results[0][:0] if "call" in answer else "good")

    return RewardRegistry.create("hears")


def hears_nothing() -> BaseReward:
    @rule("hears_nothing", mode="stepwise", score_range=(0.0, 1.0), replace=True)
    def hears_nothing(answer: str, messages: list[dict[str, Any]]) -> float:
        HEARD.append((answer, str(messages)))
        return worth("good " + answer)

    return RewardRegistry.create("hears_nothing")


def shapes(text: str) -> Iterator[tuple[list[dict[str, Any]], list[dict[str, Any]] | None]]:
    """What the policy does, with this text at an early or a late turn, and the steps of solutions."""
    called = turn(f"call {text}", "{}")
    yield [called, tool("7"), turn("call more", "{}"), tool("8"), turn("end")], None
    yield [turn("call first", "{}"), tool("7"), called, tool("8"), tool("9"), turn("end")], None
    yield [turn("hello"), {"role": "user", "content": "go on"}, called, tool("8")], None
    yield [turn("end")], [{"content": "one"}, {"content": f"call {text}"}, {"content": "three"}]


STEP_REWARDS: dict[str, Callable[[], BaseReward]] = {
    "method": Sees, "rule": hears_nothing, "rule with results": hears,
}  # fmt: skip


@pytest.mark.parametrize("kind", STEP_REWARDS)
@pytest.mark.parametrize("shape", range(4))
def test_a_turn_that_is_tried_again_is_asked_about_in_the_words_of_the_first_time(
    shape: int, kind: str
) -> None:
    reward, samples = STEP_REWARDS[kind](), []
    for text in (BREAKER, "fine", "good", "well"):
        talk, steps = [*shapes(text)][shape]
        sample = sample_of_completion(f"q {text}", talk)
        if steps is not None:
            sample.output[0] = sample.output[0].model_copy(
                update={"steps": [Step.model_validate(each) for each in steps]}
            )
        samples.append(sample)
    HEARD.clear()
    [broken, *others] = reward.evaluate_batch(samples, blame="probe", progress=False)
    asked = [whole for said, whole in HEARD if BREAKER in said]
    if not (kind == "rule with results" and steps is not None):  # whose steps nobody answers
        assert len(asked) > 1 and len(set(asked)) == 1
        scores = [each.reward.score for each in broken.output[0].turns]
        assert scores.count(0.0) == 1 and None not in scores
        assert all(e.reward.score == 1.0 for other in others for e in other.output[0].turns)


def test_an_environment_tries_a_turn_again_in_the_words_of_the_first_time() -> None:
    HEARD.clear()
    episode = EpisodeRewards(Sees()).episode("q", {})
    for at, message in enumerate([turn("look", "{}"), tool("7"), turn(BREAKER)]):
        if message["role"] == "assistant":
            episode.step(message, done=at == 2)
        else:
            episode.observe([message])
    asked = [whole for said, whole in HEARD if BREAKER in said]
    assert len(asked) > 1 and len(set(asked)) == 1 and list(episode.rewards) == [1.0, 0.0]


# -- the bill ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "method", ["evaluate_batch", "async_evaluate_batch", "evaluate_stream", "async_evaluate_stream"]
)
def test_calls_of_the_second_look_are_on_the_bill_of_the_run(method: str) -> None:  # fmt: skip
    judge = Judge("a good answer", "another good one", "a wrong answer")
    control = RunControl()
    reward = judged(LIST, judge)
    given = getattr(reward, method)(
        [sample_of("Which?", *GROUP, BREAKER)], blame="probe", control=control, cache=False
    )

    async def listed() -> list[Any]:
        return [each async for each in given]

    if hasattr(given, "__aiter__"):
        asyncio.run(listed())
    else:
        list(waited(given))
    assert control.calls == judge.asked > 2


# -- chance, and networks --------------------------------------------------------------------------


class Seen(NamedTuple):
    """What became of honest answers."""

    worst: int
    missing: int
    calls: int


class Chance:
    """Every n-th call breaks, whatever it is about: one counter for a run, so that a seed is not
    needed.
    """

    def __init__(self, share: float) -> None:
        self.calls, self._share, self._state = 0, share, 1

    def breaks(self) -> bool:
        self.calls += 1
        self._state = self._state * 48271 % (2**31 - 1)  # Park and Miller's generator
        return self._state / (2**31 - 1) < self._share


def honest(reward: BaseReward, chance: Chance, n: int) -> Seen:
    done = reward.evaluate_batch(
        [sample_of(f"q {i}", f"an answer {i}") for i in range(n)], blame="probe"
    )
    scores = [reward.score_of_output(sample.output[0]) for sample in done]
    return Seen(scores.count(reward.worst_score), scores.count(None), chance.calls)


def test_a_network_that_fails_costs_no_honest_answer_its_score_and_is_not_probed() -> None:
    chance = Chance(1 / 3)

    @reward_function(score_range=(0.0, 1.0))
    def own_client(messages: list[Any], **kwargs: Any) -> float:
        if chance.breaks():
            raise TimeoutError("the judge timed out")
        return 0.9

    seen = honest(own_client.reward(), chance, 2000)
    assert seen.worst == 0 and seen.calls == 2000 and 0 < seen.missing < 800


@pytest.mark.long("much work")
def test_a_judge_that_is_unreadable_at_random_costs_no_honest_answer_its_score() -> None:
    chance = Chance(0.2)
    judge = FakeLLM(reply=lambda prompt: "Hard to say." if chance.breaks() else "<score>4</score>")
    seen = honest(RewardRegistry.create("base_helpfulness_pointwise", llm=judge), chance, 2000)
    assert seen.worst == 0 and seen.missing < 20
    assert seen.calls < 2000 * (1.2 + 0.15), "one repair for a fifth, and the trials"


@pytest.mark.parametrize("name", [PAIRS, LIST])
def test_a_judge_that_is_unreadable_at_random_blames_nobody_in_a_group(name: str) -> None:
    chance = Chance(0.2)
    judge = FakeLLM(reply=lambda prompt: "Hard to say." if chance.breaks() else "<best>1</best>")
    reward = RewardRegistry.create(name, llm=judge)
    done = reward.evaluate_batch(
        [sample_of(f"q {i}", *(f"answer {i} {j}" for j in range(4))) for i in range(100)],
        blame="probe",
    )
    said = [
        output.answer.reward.extra_data.get(reward.name, {})
        for sample in done
        for output in sample.output
    ]
    assert not any("caused_by" in each for each in said)


def test_an_answer_that_silences_a_judge_sometimes_is_not_asked_about_until_a_verdict_pleases() -> (
    None
):
    replies = iter(["no verdict", "<score>10</score>", "no verdict", "<score>10</score>"])
    judge = FakeLLM(reply=lambda prompt: next(replies))
    reward: Any = RewardRegistry.create("base_helpfulness_pointwise", llm=judge, repair_attempts=0)
    said = reward.evaluate(sample_of("q", "an answer"), blame="probe").output[0].answer.reward
    assert (
        said.score is None
        and said.issues[0].cause == "judge"
        and next(replies) == "<score>10</score>"
    )


def test_an_outage_in_a_group_is_nobodys_doing() -> None:
    calls: list[int] = []

    @reward_function(mode="batch", score_range=(0.0, 1.0))
    def away(rollouts_messages: list[Any], **kwargs: Any) -> list[float]:
        calls.append(len(rollouts_messages))
        raise ConnectionRefusedError("nobody listens")

    done = away.reward().evaluate(sample_of("q", *GROUP), blame="probe")
    assert [output.answer.reward.issues[0].cause for output in done.output] == [
        "endpoint"
    ] * 3 and calls == [3]


class Raises(BasePointWiseReward):
    """A reward that opens what the answer names."""

    score_range: tuple[float | None, float | None] = (0.0, 1.0)

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        if "/" in sample.output[0].answer.text:
            raise FileNotFoundError(2, "no such file", sample.output[0].answer.text)
        return scored(self.name, 1.0)


def test_a_file_that_the_answer_names_is_its_own_doing() -> None:
    said = Raises().evaluate(sample_of("q", "see /nowhere"), blame="probe").output[0].answer.reward
    assert said.score == 0.0


@pytest.mark.parametrize("gated", ["no format", "right", ""])
def test_a_service_that_is_gone_is_no_answers_doing_where_some_answers_never_ask_it(
    gated: str,
) -> None:
    """A function settles what has no format itself, and asks a service about the others."""

    @reward_function(score_range=(0, 1))
    def asks(messages: list[Any], **kwargs: Any) -> float:
        text = messages[-1].text
        if not text.startswith("ANS"):
            return 0.0
        if text == "ANS right":
            return 1.0
        return {"error": "invalid key"}["score"]  # type: ignore[return-value]

    texts = [f"ANS {number}" for number in range(7)]
    texts += ["what?"] if gated == "no format" else ["ANS right"] if gated else []
    found = trl_reward(asks)(
        prompts=["q"] * len(texts), completions=texts, ground_truth=["ANS right"] * len(texts)
    )
    assert found[:7] == [None] * 7


def test_a_function_that_calls_itself_is_a_reward() -> None:
    def made() -> Any:
        def nested(messages: list[Any], depth: int = 0, **kwargs: Any) -> float:
            return nested(messages, depth + 1) if depth < 2 else 1.0

        return nested

    assert trl_reward(made())(prompts=["q"], completions=["a"]) == [1.0]
