"""A continued run of rules and judges in one: every part is compared, though no judge may be asked
and no reply is in the cache.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from rm_gallery import (
    BaseGrader,
    BasePointWiseReward,
    BaseReward,
    BaseStepWiseReward,
    Cascade,
    Combined,
    ConfigError,
    DataSample,
    FakeLLM,
    Gate,
    GraderRank,
    GradingRunner,
    LLMGrader,
    RewardResult,
    Stage,
    TurnRewards,
    WeightedSum,
    reward_function,
)
from rm_gallery.core.engine.folder import RunFolder
from rm_gallery.core.graders.strategy import (
    AverageGrader,
    BothOrdersGrader,
    TournamentGrader,
    VotingGrader,
    _Wrapper,
)
from rm_gallery.core.reward.compose import Composition
from rm_gallery.core.runner.grading_runner import build_reward
from tests.reward import rewards as r
from tests.reward.rewards import longest
from tests.support.choice import some
from tests.support.samples import make_sample

N = 40
CODE = {"rule": 0.0, "prompt": 0.0}
"""What the code adds to a rule's score, and to the judge's question."""


@pytest.fixture(autouse=True)
def unchanged() -> Iterator[None]:
    CODE.update(rule=0.0, prompt=0.0)
    yield
    CODE.update(rule=0.0, prompt=0.0)


class Remote(FakeLLM):
    """A judge that a comparison may not ask, and whose replies are not kept."""

    remote: ClassVar[bool] = True


class Rule(BasePointWiseReward):
    """A rule whose code changes."""

    score_range: tuple[float, float] = (0.0, 10.0)

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        return r.scored(self.name, len(sample.output[0].answer.text) % 5 + 1 + CODE["rule"])


class StepRule(BaseStepWiseReward):
    """One of steps, whose code changes."""

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        text = (sample.output[0].steps or [])[-1].text
        return r.scored(self.name, len(text) % 5 + 1 + CODE["rule"])


class ListRule(r.ListRule):
    """One that compares, whose code changes."""

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        ranks = [len(output.answer.text) + CODE["rule"] for output in sample.output]
        return r.ranked(self.name, *ranks)


class Asks:
    """Asks what the code says."""

    def _before_evaluate(self, sample: DataSample, **kwargs: Any) -> dict[str, Any]:
        found: dict[str, Any] = super()._before_evaluate(sample, **kwargs)  # type: ignore[misc]
        return found if not CODE["prompt"] else {"answers": [*found["answers"], "And the tone?"]}


class Judge(Asks, r.PointJudge):
    score_range: tuple[float, float] = (0.0, 10.0)


class ListJudge(Asks, r.ListJudge): ...


def judge() -> BaseReward:
    return Judge(llm=Remote(reply=longest))


def list_judge() -> BaseReward:
    return ListJudge(llm=Remote(reply=longest))


class Own(BasePointWiseReward):
    """A reward of one's own with a judge inside."""

    llm: Any = None

    async def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        inner = judge()
        asked, _ = await asyncio.gather(inner.async_evaluate(sample), asyncio.sleep(0))
        return r.scored(self.name, (inner.score_of_output(asked.output[0]) or 0.0) + CODE["rule"])


@reward_function(score_range=(0, 20))
def own_function(messages: Any, **kwargs: Any) -> float:
    """A function of one's own with a judge inside."""
    inner = judge()
    done = inner.evaluate(make_sample(messages[-1].text))
    return (inner.score_of_output(done.output[0]) or 0.0) + CODE["rule"]


COMPOSED: dict[type[Composition], list[Callable[[], BaseReward]]] = {
    WeightedSum: [
        lambda: WeightedSum({"g": Rule(), "j": judge()}, weights={"j": 0.1}),
        lambda: WeightedSum({"j": judge(), "g": Rule()}, weights={"j": 0.1}, normalize=True),
        lambda: WeightedSum({"g": ListRule(), "j": list_judge()}),
        lambda: WeightedSum(
            {"in": WeightedSum({"g": Rule(), "j": judge()}), "j": judge()}, weights={"j": 0.5}
        ),
        lambda: WeightedSum({"in": Gate(Rule(), judge(), threshold=2), "k": judge()}),
        lambda: WeightedSum({"g": Rule(), "j": judge()}),
    ],
    Combined: [
        lambda: Combined({"g": Rule(), "j": judge()}, weights={"g": 0.5}, normalize=False),
        lambda: Combined({"g": ListRule(), "j": list_judge()}, how="max", normalize=False),
    ],
    Cascade: [
        lambda: Cascade(Stage(judge(), stop_below=1), Rule()),
        lambda: Cascade(Stage(Rule(), stop_above=5), Stage(judge(), stop_below=1), judge()),
        lambda: Cascade(Stage(Rule(), stop_below=2), list_judge(), otherwise=0),
        lambda: Cascade(
            Stage(Judge(llm=Remote(reply="?")), stop_below=1, no_score="next"),
            Stage(Rule(), stop_below=2),
            judge(),
        ),
        lambda: Cascade(Stage(judge(), stop_below=1), WeightedSum({"g": Rule(), "j": judge()})),
    ],
    Gate: [lambda: Gate(Rule(), judge(), threshold=2), lambda: Gate(judge(), Rule(), threshold=1)],
    TurnRewards: [
        lambda: TurnRewards(steps=StepRule(), outcome=judge(), credit="equal"),
        lambda: TurnRewards(outcome=WeightedSum({"g": Rule(), "j": judge()})),
    ],
}


def cases(table: dict[Any, list[Callable[[], Any]]]) -> list[Any]:
    return [
        pytest.param(make, id=f"{kind.__name__} {k}")
        for kind, makes in table.items()
        for k, make in enumerate(makes)
    ]


CASES = cases(COMPOSED)


def samples(n: int = N) -> list[DataSample]:
    return [
        make_sample("a b " * (k % 4 + 1), f"c d {'e' * k}", unique_id=f"s{k}", query=f"q{k}")
        for k in range(n)
    ]


def refused(reward: BaseReward, folder: Path, what: str) -> None:
    with pytest.raises(ConfigError, match=f"holds results of something else .*{what}"):
        reward.evaluate_batch(samples(), run_dir=str(folder))


def ours(kind: type[Any]) -> set[type[Any]]:
    """All public classes of the library below this one."""
    below = {found for each in kind.__subclasses__() for found in (each, *ours(each))}
    named = {each for each in below if each.__module__.startswith("rm_gallery")}
    return {each for each in named if not each.__name__.startswith("_")}


def test_no_composition_is_forgotten() -> None:
    assert ours(Composition) == set(COMPOSED)


@pytest.mark.parametrize("make", some(CASES, 3))
@pytest.mark.parametrize("kept", some([N, N - 10], 1))
def test_a_part_whose_code_changed_is_refused(
    make: Callable[[], BaseReward], kept: int, tmp_path: Path
) -> None:
    """Whether it is a rule, which is scored again, or a judge, of whom the question is compared."""
    for _ in range(2):
        make().evaluate_batch(samples()[:kept], run_dir=str(tmp_path))
    CODE["rule"] = 1.0
    refused(make(), tmp_path, "answer [12].* had .* and now gets|would be asked something else")
    CODE.update(rule=0.0, prompt=1.0)
    refused(make(), tmp_path, "asked something else")
    CODE["prompt"] = 0.0
    make().evaluate_batch(samples(), run_dir=str(tmp_path))


@pytest.mark.long("several runs")
@pytest.mark.parametrize("make", [
    lambda: Own(llm=Remote()),
    lambda: build_reward(own_function),
    lambda: WeightedSum({"o": Own(llm=Remote()), "f": own_function}),
])  # fmt: skip
def test_what_a_judge_inside_of_ones_own_code_is_asked_is_compared(
    make: Callable[[], BaseReward], tmp_path: Path
) -> None:
    for _ in range(2):
        make().evaluate_batch(samples(), run_dir=str(tmp_path))
    CODE["prompt"] = 1.0
    refused(make(), tmp_path, "asked something else")


@pytest.mark.parametrize("make", CASES)
def test_a_question_is_compared_of_every_record(
    make: Callable[[], BaseReward], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of those that are not drawn to be scored again."""
    monkeypatch.setattr(RunFolder, "draw_check", lambda self: None)
    for _ in range(2):
        make().evaluate_batch(samples(), run_dir=str(tmp_path))
    CODE["prompt"] = 1.0
    refused(make(), tmp_path, "asked something else")


# -- graders ---------------------------------------------------------------------------------------


class AsksGrader(LLMGrader):
    def _messages(self, fields: Any, form: str) -> list[dict[str, Any]]:
        text = f"{fields} {'And the tone?' if CODE['prompt'] else ''} {form}"
        return [*super()._messages(fields, form)[:-1], {"role": "user", "content": text}]


class Compares(AsksGrader):
    async def _grade(self, /, **fields: Any) -> Any:
        await self._one(fields)
        return GraderRank(name=self.name, rank=[1, 2], reason="")


def grader() -> BaseGrader:
    return AsksGrader(model=Remote(reply="<score>3</score>"), prompt="{query} {response}", name="g")


def comparing() -> BaseGrader:
    return Compares(model=Remote(reply="<score>3</score>"), prompt="{query} {responses}", name="g")


WRAPPED: dict[type[Any], list[Callable[[], BaseGrader]]] = {
    AverageGrader: [
        lambda: AverageGrader(grader(), n=2),
        lambda: AverageGrader(VotingGrader(grader(), n=2), n=2),
    ],
    VotingGrader: [lambda: VotingGrader(grader(), n=2)],
    BothOrdersGrader: [lambda: BothOrdersGrader(comparing())],
    TournamentGrader: [lambda: TournamentGrader(comparing())],
}


def test_no_strategy_is_forgotten() -> None:
    assert ours(_Wrapper) == set(WRAPPED)


@pytest.mark.parametrize("make", cases(WRAPPED))
@pytest.mark.parametrize("drawn", [True, False])
def test_a_judge_in_a_grader_in_a_grader_is_compared_by_its_question(
    make: Callable[[], BaseGrader], drawn: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not drawn:
        monkeypatch.setattr(RunFolder, "draw_check", lambda self: None)
    rows = [
        {"id": f"r{k}", "query": f"q{k}", "response": "x" * k, "responses": ["x", "y" * k]}
        for k in range(N)
    ]

    def grade() -> None:
        GradingRunner({"g": make()}, show_progress=False).run(rows, run_dir=str(tmp_path / "grade"))

    for _ in range(2):
        grade()
        make().evaluate_batch(samples(), run_dir=str(tmp_path / "score"))
    CODE["prompt"] = 1.0
    with pytest.raises(ConfigError, match="asked something else"):
        grade()
    refused(make(), tmp_path / "score", "asked something else")
