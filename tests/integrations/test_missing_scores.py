"""What a missing score does to training: breaking a reward never pays, and an outage moves nobody's
advantage.
"""

from __future__ import annotations

import pickle
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rm_gallery import (
    BaseReward,
    EvaluateResult,
    OpenaiLLM,
    RewardRegistry,
    Score,
    Unscored,
    reward_function,
)
from rm_gallery.core.score import failed, scored
from rm_gallery.core.utils.recent import LATELY
from rm_gallery.integrations.causes import GROUP_MEAN, TRAINERS, GroupMeans, given
from rm_gallery.integrations.trl import trl_reward
from rm_gallery.integrations.verl import VerlReward
from rm_gallery.train.signals import group_advantages
from tests.integrations.adapters import ADAPTERS, Adapter, Moody, Row, Unbounded, one_by_one, waited
from tests.integrations.packages import installed
from tests.integrations.test_adapters import scorers_of
from tests.support.choice import some
from tests.support.judge_server import JudgeCall, JudgeServer
from tests.support.samples import make_sample

pytestmark = pytest.mark.usefixtures("there")
CODE = "```python\n{}\n```".format
BREAKS = ("divide", "nan", "3.5e38", "invalid", "unscored")
ARMS = ("1", "0", *BREAKS)


@reward_function(score_range=(0.0, 1.0))
def breakable(messages: list[Any], **kwargs: Any) -> EvaluateResult:
    """The number an answer says; five ways lead around it."""
    text = messages[-1].text
    if text == "divide":
        raise ZeroDivisionError(text)
    if text == "unscored":
        raise Unscored("cannot be read")
    return EvaluateResult(
        score=0.0 if text == "invalid" else float(text), is_score_valid=text != "invalid", reason=""
    )


GROUPS: dict[str, tuple[Any, list[str], str]] = {
    "no code": ("code_syntax_check", [CODE("x = 1"), CODE("x ="), "no block", CODE("y = 2")], "x"),
    "empty": ("language_match", ["It is four.", "It is the number four.", "", "Es ist die Zahl vier, und das ist so."], "x"),
    "broken": (breakable, ["1", "0", "divide", "0.5"], "1"),
}  # fmt: skip


@pytest.mark.parametrize("name", GROUPS)
def test_a_group_with_an_answer_that_breaks_its_reward_has_the_same_advantages_in_trl_and_verl(
    name: str,
) -> None:
    reward, texts, truth = GROUPS[name]
    own = trl_reward(reward)(["What is 2+2?"] * 4, texts, reference=[truth] * 4)
    infos = [{"prompt": "What is 2+2?"}] * 4
    theirs = [
        each["score"]
        for each in VerlReward(reward).compute_scores(["d"] * 4, texts, [truth] * 4, infos)
    ]
    assert own == theirs and None not in own and own[2] == min(map(float, theirs)) < max(theirs)
    assert group_advantages(own, 4)[2] < 0


def test_the_table_of_causes_says_what_the_adapters_do_by_default() -> None:
    for trainer in TRAINERS.values():
        (scorer,) = scorers_of(ADAPTERS[trainer.adapter].make(Moody))
        assert scorer.on_error == trainer.on_error
    choosing = {name for name, adapter in ADAPTERS.items() if adapter.chooses}
    twins = {"benchmax.BenchmaxRewards-1", "benchmax.BenchmaxRewards-2", "nemo_rl.nemo_rl_reward"}
    twins |= {
        "trl.trl_rewards",
        "verifiers.verifiers_reward-v1",
        "verifiers.verifiers_group_reward",
    }
    assert choosing - twins == {trainer.adapter for trainer in TRAINERS.values()}
    assert [given(Moody, cause, "mean") for cause in ("answer", "endpoint")] == ["-1", "mean"]
    assert given(Unbounded, "answer", "mean") == "refused"


def graded(call: JudgeCall) -> str:
    """A score from 1 to 5 that depends on the whole question."""
    return f"<score>{call.digest[0] % 5 + 1}</score>"


def judged(base_url: str, **settings: Any) -> BaseReward:
    llm = OpenaiLLM(
        **{"model": "m", "base_url": base_url, "api_key": "k", "max_attempts": 1, **settings}
    )
    return RewardRegistry.create("base_helpfulness_pointwise", llm=llm, repair_attempts=0)


@pytest.mark.parametrize("name", [name for name, adapter in ADAPTERS.items() if adapter.batch])
def test_an_outage_for_a_third_of_a_step_moves_nobodys_advantage(name: str) -> None:
    adapter = ADAPTERS[name]
    assert adapter.batch is not None
    rows = [Row(f"Question {place // 8}?", f"Answer {place}.") for place in range(64)]
    faults = {"server_error": 1 / 3, "sticky": True}
    with JudgeServer(graded, faults=faults, in_process=True) as server:
        given = waited(adapter.batch(adapter.make(judged(server.base_url)), rows))
    honest = [adapter.score(each) for each in given]
    number = {"openrlhf": "rewards", "verifiers": "reward"}.get(name.partition(".")[0], "score")
    numbers = [value_of(adapter, each, number) for each in given]
    lost = [place for place, score in enumerate(honest) if score is None]
    assert 12 < len(lost) < 32
    found, wanted = (group_advantages(each, 8, "mean") for each in (numbers, honest))
    assert found == pytest.approx(wanted, abs=1e-6) and not np.any(found[lost] > 1e-6)


def value_of(adapter: Adapter, given: Any, number: str) -> float | None:
    """The number a trainer goes on with, flagged or not."""
    held = (
        next((part for part in given if isinstance(part, dict)), given[0])
        if isinstance(given, list)
        else given
    )
    if not isinstance(held, dict):
        value: float | None = held
    else:  # a state of verifiers with an error is not to be used
        value = None if held.get("error") else held[number]
    return value


@pytest.mark.parametrize(
    "name",
    some(
        (
            name
            for name, adapter in ADAPTERS.items()
            if adapter.chooses and not name.startswith("callables")
        ),
        1,
    ),
)
def test_no_policy_comes_to_prefer_breaking_the_reward(name: str) -> None:
    """Softmax policies over a right answer, a wrong one and five that break the reward, trained on
    an adapter's numbers.
    """
    adapter = ADAPTERS[name]
    made = adapter.make(breakable, **adapter.given)
    kept: dict[tuple[int, ...], list[float]] = {}

    def rewards(arms: tuple[int, ...]) -> list[float]:
        if arms not in kept:
            rows = [Row("q", ARMS[arm], "1") for arm in arms]
            given = (
                waited(adapter.batch(made, rows))
                if adapter.batch
                else one_by_one(adapter, made, rows)
            )
            kept[arms] = [np.nan if each is None else reward_in(adapter, each) for each in given]
        return kept[arms]

    policies, draws = 20, np.random.default_rng(0)
    logits = np.zeros((policies, len(ARMS)))
    for _ in range(150):
        shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        beyond = shares.cumsum(axis=1)[:, None, :-1] < draws.random((policies, 4, 1))
        arms = np.sort(beyond.sum(axis=2), axis=1)
        found = group_advantages(
            [each for group in arms.tolist() for each in rewards(tuple(group))], 4, "mean"
        )
        steps = found.reshape(policies, 4, 1) * (np.eye(len(ARMS))[arms] - shares[:, None, :])
        logits += 0.3 * steps.sum(axis=1)
    for share in np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True):
        assert share[2:].sum() < 5 / 7 and share.argmax() == 0, dict(
            zip(ARMS, share.round(2), strict=True)
        )


def reward_in(adapter: Adapter, given: Any) -> float:
    value = adapter.score(given)
    return np.nan if value is None else float(value)


PATIENCE = 3.0
"""Seconds of `deadline` that a trainer gives: a step whose judge dies ends about then, where it
took twice as long and more.
"""
HANGS: dict[str, Any] = {"hang": 1.0, "hang_s": 3600.0}
BUSY: dict[str, Any] = {"rate_limit": 1.0, "retry_after_s": 3600.0}
DEATHS: dict[str, tuple[float, dict[str, Any]]] = {
    "refuses after a while": (0.3, {"outage_at_s": 0.0, "outage_s": 60.0}),
    "hangs after a while": (0.3, HANGS),
    "503 after a while": (0.3, {"unavailable": 1.0, "retry_after": "none"}),
    "asks for an hour after a while": (0.3, BUSY),
    "refuses at once": (0.0, {"outage_at_s": 0.0, "outage_s": 60.0}),
    "hangs at once": (0.0, HANGS),
    "503 at once": (0.0, {"unavailable": 1.0, "retry_after": "none"}),
    "asks for an hour at once": (0.0, BUSY),
}
JUDGING = [
    (name, several)
    for name, adapter in sorted(ADAPTERS.items())
    for several in ((False, True) if adapter.batch else (False,))
    if name not in ("trl.trl_rewards", "nemo_rl.nemo_rl_reward")
]
"""Adapters, and whether they get a batch or single completions; two have a twin, or take no prompt.
"""


def seconds_of(name: str, several: bool, death: str) -> float:
    """How long an adapter takes at most for a batch, or for a completion, whose judge dies after
    0.3 s, or is dead.
    """
    adapter, (after, faults) = ADAPTERS[name], DEATHS.get(death, (0.0, {}))
    rows = [Row(f"Question {place // 8}?", f"Answer {place}.") for place in range(24)]

    def seconds(call: Callable[[], Any]) -> float:
        began = time.monotonic()
        if began > died + 0.5:  # another step
            return 0.0
        call()
        return time.monotonic() - max(began, died)

    with JudgeServer(graded, latency=0.1, in_process=True) as server:
        reward = judged(server.base_url, max_attempts=5).model_copy(update={"max_workers": 4})
        made = adapter.make(reward, options={"deadline": PATIENCE})
        dies = threading.Timer(after, lambda: server.set(faults=faults))
        dies.start()
        if not after:
            dies.join()
        died = time.monotonic() + after
        if several and (batch := adapter.batch) is not None:
            return seconds(lambda: waited(batch(made, rows)))
        # the trainer has as many tasks or workers of its own
        with ThreadPoolExecutor(4) as callers:
            return max(
                callers.map(lambda row: seconds(lambda: one_by_one(adapter, made, [row])), rows)
            )


@pytest.fixture(scope="module")
def warm() -> None:
    """What is imported or made at a first call is no part of a step."""
    with installed(), JudgeServer(graded, in_process=True) as server:
        judged(server.base_url).evaluate(make_sample("an answer"))
        for name, _ in JUDGING:
            one_by_one(ADAPTERS[name], ADAPTERS[name].make(Moody), [Row("q", "a")])


@pytest.mark.usefixtures("warm")
@pytest.mark.parametrize("death", DEATHS)
def test_a_deadline_bounds_the_step_of_every_adapter_whose_judge_dies(death: str) -> None:
    def longest(death: str) -> dict[tuple[str, bool], float]:
        with ThreadPoolExecutor(20) as steps:
            return dict(
                zip(
                    JUDGING,
                    steps.map(lambda how: seconds_of(how[0], how[1], death), JUDGING),
                    strict=True,
                )
            )

    # how long the same steps take on this machine when nothing dies
    most = 1.5 * PATIENCE + 2 * max(longest("none").values())
    assert {
        how: round(seconds, 1) for how, seconds in longest(death).items() if seconds > most
    } == {}


def stands_in(means: GroupMeans, group: str) -> float:
    """What a score of the group is replaced by that is missing now."""
    found: Score[float] = failed("error", "", "endpoint")
    means.note({group: [found]})
    return float(found.extra[GROUP_MEAN])


def test_old_scores_are_forgotten() -> None:
    means = GroupMeans()
    for number in range(400):
        means.note({f"prompt {number}": [scored(0.0)]})
    for number in range(LATELY):
        means.note({f"later {number}": [scored(1.0)]})
    assert stands_in(means, "new") == 1.0 and stands_in(means, "prompt 3") == 1.0
    means.note({"hard": [scored(0.0)]})
    # the group's own score, and the mean of the last 128 as one more
    assert stands_in(means, "hard") == pytest.approx((0.0 + 127 / 128) / 2)


def test_workers_of_one_job_share_what_they_saw_and_others_do_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("fcntl", reason="files are not locked on this system")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("RAY_JOB_ID", "01000000")
    first, second, other = GroupMeans("one reward"), GroupMeans("one reward"), GroupMeans("another")
    first.note({"q": [scored(0.25)]})
    assert stands_in(pickle.loads(pickle.dumps(second)), "q") == 0.25
    other.note({"q": [scored(1.0)]})
    assert stands_in(second, "q") == 0.25
    monkeypatch.delenv("RAY_JOB_ID")
    alone = GroupMeans("one reward")
    alone.note({"q": [scored(0.5)]})
    assert stands_in(alone, "q") == 0.5
    (folder,) = tmp_path.iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700
