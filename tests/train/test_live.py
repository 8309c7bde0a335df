"""A run that is watched while it goes on: a gamed judge is stopped, honest runs are left alone, and
what is missing is no fall.
"""

from __future__ import annotations

import asyncio
import json
import math
import pickle
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rm_gallery import ConfigError, Score, Unscored, reward_function
from rm_gallery.core.stats.falling import FallTest
from rm_gallery.core.utils.log import logger
from rm_gallery.integrations.trl import trl_reward
from rm_gallery.integrations.trl_watch import TrlWatch
from rm_gallery.integrations.verifiers import verifiers_reward
from rm_gallery.integrations.verl import VerlReward
from rm_gallery.train.live import STATE_FILE, LiveWatch, TrainingStopped
from tests.support.choice import some
from tests.train.bandit import WORD, Step, bandit


@reward_function(score_range=(0.0, 1.0))
def ends_right(messages: Sequence[Any], **kwargs: Any) -> float:
    """1 when the answer ends with 4; broken for one that says so."""
    text = messages[-1].text
    if "no reference" in text:
        raise Unscored("nothing to judge by", reason="no_reference")
    return float(text.split()[-1:] == ["4"])


def watched(watch: LiveWatch, steps: Any) -> int | None:
    """The step after which the watch stops a run; None for one that goes on to its end."""
    for each in steps:
        watch.step(each.step, each.completions, each.rewards, groups=each.groups, rows=each.rows)
        if watch.stopped is not None:
            return int(each.step)
    return None


def live(**options: Any) -> LiveWatch:
    return LiveWatch(ends_right, **{"share": 0.25, "on_finding": "stop", **options})


def quickly(watch: LiveWatch) -> LiveWatch:
    """The watch, with the same held-out scores without the engine that gives them."""

    async def ascore_rows(prompts: Any, completions: Any, rows: Any) -> list[Score[float]]:
        return [Score(float(text.endswith(" 4"))) for text in completions]

    assert watch.held_out is not None
    watch.held_out.ascore_rows = ascore_rows  # type: ignore[method-assign, assignment]
    return watch


def kinds(watch: LiveWatch) -> list[str]:
    return [found.kind for found in watch.findings]


# -- acceptance ------------------------------------------------------------------------------------


@pytest.mark.long("many runs of training")
def test_a_judge_fond_of_a_word_is_stopped_within_forty_steps_in_every_run() -> None:
    stops = []
    for seed in range(20):
        watch = live(seed=seed)
        stops.append(watched(watch, bandit(seed, fond=True, steps=40)))
        assert "apart" in kinds(watch)
    assert all(stop is not None and stop <= 40 for stop in stops), stops


@pytest.mark.long("many runs of training")
def test_honest_runs_are_left_alone() -> None:
    alarms = 0
    for seed in range(20):
        # one half flat at 5 %, the other half learns
        watch = quickly(live(seed=seed))
        steps = bandit(seed, fond=False, steps=40, learns=0.3 * (seed % 2))
        alarms += watched(watch, steps) is not None or "fell" in kinds(watch)
    assert alarms <= 1


@pytest.mark.long("many runs of training")
def test_the_false_alarm_rate_holds_over_all_looks_of_many_runs() -> None:
    rng = np.random.default_rng(7)
    runs, alarms = 200, 0
    for _ in range(runs):
        test = FallTest(first=10)
        ease = rng.beta(0.5, 9.5, (120, 16))
        alarms += any(test.add(rng.binomial(4, own) / 4) >= 20.0 for own in ease)
    # 5 % are promised; a binomial of 200 with that rate is above 17 in 1 of 50 cases
    assert alarms <= 17


@pytest.mark.long("many runs of training")
def test_the_capital_of_bettors_is_one_on_average_at_the_true_mean() -> None:
    rng = np.random.default_rng(11)
    values = []
    for _ in range(4000):
        test = FallTest(first=2)
        for _ in range(4):
            test.add(rng.binomial(1, 0.3, 3).astype(float).tolist())
        values.append(test.e_value)
    assert float(np.mean(np.array(values) >= 4.0)) <= 0.25


def test_a_fall_from_a_later_height_is_seen() -> None:
    rng = np.random.default_rng(2)
    chances = [0.1] * 15 + [0.6] * 45 + [0.2] * 40
    test = FallTest(first=10)
    crossed = next(
        at
        for at, chance in enumerate(chances)
        if test.add(rng.binomial(1, chance, 32).astype(float).tolist()) >= 20.0
    )
    assert 60 <= crossed < 75 and test.baseline[0] >= 10


@pytest.mark.parametrize("every", [1, 3])
def test_steps_without_observations_change_nothing(every: int) -> None:
    """Steps in which all scores are missing are no baseline and no evidence, wherever they stand."""
    rng = np.random.default_rng(5)
    steps = [rng.binomial(1, 0.7 if at < 8 else 0.1, 4).tolist() for at in range(20)]
    plain, gaps = FallTest(first=4), FallTest(first=4)
    gaps.add([])
    for at, step in enumerate(steps):
        plain.add(step)
        gaps.add(step)
        for _ in range(every if at % every == 0 else 0):
            assert gaps.add([]) == plain.e_value
        assert gaps.to_dict() == plain.to_dict()
        assert (gaps.e_value, gaps.p_value, gaps.baseline) == (
            plain.e_value,
            plain.p_value,
            plain.baseline,
        )
    assert plain.p_value < 0.01


def test_scores_on_another_range_and_those_of_which_less_is_better() -> None:
    low, high = FallTest((-1.0, 3.0), first=5), FallTest(first=5)
    for step in range(15):
        values = [0.25, 0.5, 0.75] if step < 6 else [0.0, 0.25, 0.25]
        high.add(values)
        low.add([4.0 * value - 1.0 for value in values])
    assert low.e_value == pytest.approx(high.e_value) and low.early == pytest.approx(1.0)
    for wrong in (2.0, math.nan):
        before = high.to_dict()
        with pytest.raises(ConfigError, match="outside"):
            high.add([0.5, wrong])
        assert high.to_dict() == before
    with pytest.raises(ConfigError, match="bounds"):
        FallTest((1.0, 0.0))


def said_by(watch: LiveWatch, rates: Sequence[float], n: int, icc: float = 0.0) -> list[str]:
    """What a watch logs while so many of the completions of each step are right."""
    lines: list[str] = []
    rng, sink = np.random.default_rng(1), logger.add(lines.append, format="{message}")
    try:
        for step, rate in enumerate(rates):
            odds = (1 - icc) / (icc or 1.0)
            chance = rng.beta(rate * odds, (1 - rate) * odds) if icc else rate
            texts = [f"{at} {'4' if rng.random() < chance else '5'}" for at in range(n)]
            watch.step(step, texts, [0.3 + step / 1000] * n)
    finally:
        logger.remove(sink)
    return lines


def test_a_share_too_small_to_see_a_fall_is_told_once_the_baseline_is_over() -> None:
    blind = quickly(LiveWatch(ends_right))
    (line,) = [line for line in said_by(blind, [0.05] * 14, 64) if "share" in line]
    assert "share is 0.1, and 10 steps" in line and "no fall" in line and "raise share" in line
    seeing = quickly(LiveWatch(ends_right, share=1.0))
    assert not [line for line in said_by(seeing, [0.5] * 14, 64) if "share is" in line]


def test_a_correlation_within_steps_is_said_with_the_finding() -> None:
    watch = quickly(LiveWatch(ends_right, share=1.0))
    lines = said_by(watch, [0.6] * 20 + [0.2] * 60, 64, 0.1)
    (found,) = [each for each in watch.findings if each.kind == "apart"]
    assert "correlated (0." in found.text and 0.02 < found.figures["correlation"] < 0.3
    assert any(found.text in line for line in lines)


# -- what is missing -------------------------------------------------------------------------------


def test_a_held_out_reward_that_fails_is_no_fall() -> None:
    watch = live(share=1.0)
    for step in range(40):
        tail = "4" if step < 15 else "4 no reference"
        texts = [f"sum {row} {tail}" for row in range(32)]
        watch.step(step, texts, [0.3 + step / 100 + row / 1000 for row in range(32)])
    assert watch.p_value == 1.0
    (found,) = [each for each in watch.findings if each.kind == "unscored"]
    assert found.components == ("ends_right",) and found.figures["late"] >= 0.2


def test_missing_scores_nan_an_empty_step_and_a_single_completion() -> None:
    watch = live(share=1.0)
    assert watch.step(0, [], []) == [] and watch.state()["series"] == []
    watch.step(1, ["4"], [None])
    watch.step(2, ["4", "", "5"], [math.nan, math.inf, None], groups=3)
    watch.step(3, ["4"], [0.5])
    first, second, third = watch.state()["series"]
    assert first["reward"] is None and second["missing"] == 3.0 and third["reward"] == 0.5
    json.dumps(watch.state(), allow_nan=False)
    with pytest.raises(ConfigError, match="2 values for 1"):
        watch.step(4, ["4"], [0.1, 0.2])
    for step in range(5, 40):
        watch.step(step, [f"{row} 4" for row in range(8)], [None] * 4 + [0.1, 0.2, 0.3, 0.4])
    assert ("unscored", ("reward",)) in {(f.kind, f.components) for f in watch.findings}


def test_a_column_that_no_row_has_is_told_at_the_first_step_and_no_later() -> None:
    watch = LiveWatch("accuracy", reference="answer", share=1.0)
    with pytest.raises(ConfigError, match="answer"):
        watch.step(1, ["4", "5"], [0.1, 0.2])
    watch.step(1, ["4", "5"], [0.1, 0.2], rows=[{"answer": "4"}] * 2)
    watch.step(2, ["4", "5"], [0.1, 0.2])
    assert [row.get("answered") for row in watch.state()["series"]] == [2.0, 0.0]


# -- other findings --------------------------------------------------------------------------------


def run_of(step: int, kind: str, rng: np.random.Generator) -> dict[str, Any]:
    """One step of 8 groups of 4, with what goes wrong from step 20 on."""
    late = step >= 20
    right = rng.normal(0.5, 0.1, 32)
    style = rng.normal(0.5, 0.1, 32)
    words = ["".join(rng.choice(list("abcdefgh"), 5)) for _ in range(32 * 12)]
    texts = [" ".join(words[row * 12 : row * 12 + 12]) for row in range(32)]
    components: dict[str, Any] = {"right": right, "style": style}
    if kind == "dominant":
        components["style"] = style * 20
    if late and kind == "collapsed":
        components = {name: 0.5 + (values - 0.5) / 20 for name, values in components.items()}
    if late and kind in ("longer", "shorter"):
        texts = [text * 2 if kind == "longer" else text[: len(text) // 2] for text in texts]
    if late and kind == "flat":
        components = {name: np.repeat(values[::4], 4) for name, values in components.items()}
    if kind == "chinese":
        texts = [f"我们先把两边相加{row}{'真是个好问题' if late else ''}" for row in range(32)]
    if kind == "persian":
        texts = [
            f"پاسخ برابر است با {row} {'چه پرسش بسیار خوبی' if late else ''}" for row in range(32)
        ]
    if kind in ("chinese", "persian") and late:
        components["style"] = components["style"] + 0.5
    total = sum(components.values())
    return {
        "completions": texts, "rewards": list(total), "components": components,
        "groups": [f"{step}-{row // 4}" for row in range(32)],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "found"),
    some([
        ("none", []), ("dominant", ["dominant"]), ("collapsed", ["collapsed"]),
        ("longer", ["longer"]), ("shorter", ["shorter"]), ("flat", ["collapsed", "flat"]),
        ("chinese", ["longer", "phrase"]), ("persian", ["longer", "phrase"]),
    ], 3),
)  # fmt: skip
def test_each_finding_is_said_once(kind: str, found: list[str]) -> None:
    rng, watch = np.random.default_rng(3), LiveWatch()
    for step in range(50):
        watch.step(step, **run_of(step, kind, rng))
    assert sorted(kinds(watch)) == found
    assert all(each.figures["step"] >= 19 and each.text for each in watch.findings)
    for each in watch.findings:
        if each.kind == "phrase":
            expected = "真是个好问题" if kind == "chinese" else "چه پرسش بسیار خوبی"
            assert each.figures["phrase"] in expected and each.severity == "warn"
            assert each.figures["reward"]["with"] > each.figures["reward"]["without"]


@pytest.mark.long("many runs of training")
def test_the_word_that_a_judge_is_fond_of_is_named() -> None:
    watch = live(on_finding="warn")
    watched(watch, bandit(1, fond=True, steps=40))
    (phrase,) = [each for each in watch.findings if each.kind == "phrase"]
    assert phrase.figures["phrase"] == WORD and "fond" in phrase.text and watch.stopped is None
    watch.check()
    rng, chance = np.random.default_rng(4), LiveWatch()
    for step in range(120):
        chance.step(step, **run_of(step, "none", rng))
    assert chance.findings == []


# -- choice, state, threads ------------------------------------------------------------------------


def seen_by(watch: LiveWatch, steps: Sequence[Step]) -> list[set[str]]:
    """The completions of each step that a held-out reward was asked about."""
    asked: list[set[str]] = []
    assert watch.held_out is not None
    scored = watch.held_out.ascore_rows

    async def ascore_rows(prompts: Any, completions: Any, rows: Any) -> Any:
        asked.append(set(completions))
        return await scored(prompts, completions, rows)

    watch.held_out.ascore_rows = ascore_rows  # type: ignore[method-assign, assignment]
    for each in steps:
        watch.step(each.step, each.completions, each.rewards, groups=each.groups)
    return asked


def test_the_choice_depends_on_the_seed_and_the_step_and_not_on_the_order() -> None:
    steps = list(bandit(0, fond=False, steps=3, prompts=8))
    backwards = [
        each._replace(
            completions=each.completions[::-1],
            rewards=each.rewards[::-1],
            groups=each.groups[::-1],
        )
        for each in steps[::-1]
    ]
    chosen = seen_by(live(share=0.125), steps)
    assert seen_by(live(share=0.125), backwards)[::-1] == chosen
    assert seen_by(live(share=0.125, seed=1), steps) != chosen
    for own, each in zip(chosen, steps, strict=True):
        # one of every group, and no more than the share
        groups = [each.groups[each.completions.index(text)] for text in own]
        assert len(groups) == 8 == len(set(groups))


@pytest.mark.long("many runs of training")
def test_a_run_that_starts_again_goes_on_as_if_it_had_not_ended() -> None:
    steps = list(bandit(5, fond=True, steps=24))
    whole, first, second = live(), live(), live()
    watched(whole, steps)
    watched(first, steps[:9])
    second.load_state(json.loads(json.dumps(first.state())))
    watched(second, steps[9:])
    assert second.state() == whole.state() and second.stopped == whole.stopped is not None
    assert pickle.loads(pickle.dumps(second)).state() == whole.state()
    for wrong in ({}, {**first.state(), "test": None}):
        with pytest.raises(ConfigError):
            live().load_state(wrong)


def test_steps_from_several_threads_are_all_counted() -> None:
    watch, steps = live(), list(bandit(0, fond=False, steps=12, prompts=8))

    def feed(own: Sequence[Step]) -> None:
        watched(watch, own)

    threads = [threading.Thread(target=feed, args=(steps[at::3],)) for at in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(row["step"] for row in watch.state()["series"]) == list(range(1, 13))


@pytest.mark.parametrize(
    "options",
    [
        {"share": 0.0}, {"false_alarms": 1.0}, {"baseline": 2}, {"on_finding": "halt"},
        {"stop_on": ["appart"]}, {"batch": 0}, {"confidence": 0.1},
    ],
)  # fmt: skip
def test_options_that_do_not_fit_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        LiveWatch(ends_right, **options)


def test_a_held_out_reward_without_a_range_needs_one() -> None:
    @reward_function(score_range=(None, None))
    def open_ended(messages: Sequence[Any], **kwargs: Any) -> float:
        return 1.0

    with pytest.raises(ConfigError, match="held_out_range"):
        LiveWatch(open_ended)
    assert LiveWatch(open_ended, held_out_range=(0.0, 2.0)).p_value == 1.0
    with pytest.raises(ConfigError, match="reference"):
        LiveWatch(reference="answer")


# -- trainers --------------------------------------------------------------------------------------


def fond(completions: Sequence[str], **columns: Any) -> list[float]:
    """A reward function of TRL that likes a word."""
    return [0.9 if WORD in text else 0.1 + len(text) / 1000 for text in completions]


async def brief(completions: Sequence[str], **columns: Any) -> list[float | None]:
    """An asynchronous one that has no score for a text."""
    return [None if "none" in text else 1.0 / (1 + len(text)) for text in completions]


@reward_function(score_range=(0.0, 1.0))
def likes(messages: Sequence[Any], **kwargs: Any) -> float:
    """A judge that likes a word."""
    return 0.9 if WORD in messages[-1].text else 0.1 + len(messages[-1].text) / 1000


class Trainer:
    """What transformers and TRL do with a callback and with reward functions."""

    def __init__(self, watching: TrlWatch, funcs: Sequence[Any], folder: Path, at: int = 0) -> None:
        self.watching, self.funcs = watching, funcs
        self.args = SimpleNamespace(output_dir=str(folder))
        self.state = SimpleNamespace(global_step=at, is_world_process_zero=True)
        self.control = SimpleNamespace(should_training_stop=False)
        self.event("on_init_end")
        self.event("on_train_begin")

    def event(self, name: str) -> None:
        given = getattr(self.watching, name)(self.args, self.state, self.control, model=None)
        assert given is None or given is self.control

    def score(self, each: Step) -> None:
        """As TRL does: functions that look asynchronous are awaited on a loop."""
        call = {
            "prompts": each.groups, "completions": each.completions, "answer": ["4"] * len(each.groups),
            "trainer_state": self.state, "log_metric": print,
        }  # fmt: skip
        for func in self.funcs:
            if asyncio.iscoroutinefunction(getattr(func, "__call__", None)):  # noqa: B004

                async def awaited(func: Any = func) -> Any:
                    return await func(**call)

                asyncio.run(awaited())
            else:
                func(**call)

    def train(self, steps: Any) -> int | None:
        for each in steps:
            self.event("on_step_begin")
            self.score(each)
            self.state.global_step += 1
            self.event("on_step_end")
            # an evaluation is not watched
            self.score(each)
            self.event("on_evaluate")
            if self.control.should_training_stop:
                return int(self.state.global_step)
        return None


@pytest.mark.long("many runs of training")
def test_trl_is_stopped_by_its_own_control_and_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    steps = list(bandit(3, fond=True, steps=40))

    def made() -> tuple[TrlWatch, list[Any]]:
        watching = TrlWatch(live(), reward_weights=[1.0, 0.5, 0.1])
        return watching, watching.around([fond, trl_reward(likes, logs=False), brief])

    watching, funcs = made()
    assert [func.__name__ for func in funcs] == ["fond", "likes", "brief"]
    trainer = Trainer(watching, funcs, tmp_path)
    assert trainer.train(steps[:10]) is None
    trainer.event("on_save")
    assert (tmp_path / "checkpoint-10" / STATE_FILE).is_file()
    row = watching.watch.state()["series"][0]
    assert row["n"] == 512.0 and row["asked"] == 128.0
    assert {"part/fond", "part/likes", "part/brief"} <= row.keys()
    again, funcs = made()
    stopped = Trainer(again, funcs, tmp_path, at=10).train(steps[10:])
    assert stopped is not None and stopped <= 40 and "apart" in kinds(again.watch)
    with pytest.raises(AttributeError):
        watching.nothing_like_that  # noqa: B018
    for wrong in (SimpleNamespace(forward=1), "a model"):
        with pytest.raises(ConfigError, match="no function"):
            watching.around([wrong])
    with pytest.raises(ConfigError, match="reward_weights"):
        watching.around([fond])


def test_other_processes_than_the_first_do_not_watch(tmp_path: Path) -> None:
    watching = TrlWatch({"held_out": ends_right})
    trainer = Trainer(watching, watching.around(fond), tmp_path)
    trainer.state.is_world_process_zero = False
    assert trainer.train(bandit(0, fond=True, steps=3)) is None
    assert watching.watch.state()["series"] == []


def one_by_one(seed: int) -> list[tuple[str, Mapping[str, Any]]]:
    """The completions of a gamed run in their order, with what verl knows of each."""
    return [
        (text, {"prompt": group, "split": "train"})
        for each in bandit(seed, fond=True, steps=40, prompts=16)
        for text, group in zip(each.completions, each.groups, strict=True)
    ]


SETTINGS = {"held_out": ends_right, "share": 1.0, "batch": 128, "on_finding": "stop"}


@pytest.mark.long("many runs of training")
@pytest.mark.parametrize("way", ["sync", "async", "batch"])
def test_verl_is_ended_by_a_named_error(way: str) -> None:
    reward = VerlReward(likes, watch=SETTINGS)
    rows = one_by_one(4)
    assert reward.watch is not None

    async def awaited() -> None:
        for text, info in rows:
            await reward.compute_score("s", text, "4", info)

    def called() -> None:
        if way == "batch":
            texts, infos = zip(*rows, strict=True)
            reward.compute_scores(["s"] * len(rows), list(texts), ["4"] * len(rows), infos)
        for text, info in rows:
            reward.compute_score_sync("s", text, "4", info)

    reward.compute_score_sync("s", "4", "4", {"split": "test"})
    with pytest.raises(TrainingStopped) as stop:
        asyncio.run(awaited()) if way == "async" else called()
    assert stop.value.finding.kind == "apart" and "ends_right" in str(stop.value)
    assert pickle.loads(pickle.dumps(stop.value)).finding == stop.value.finding
    assert reward.watch.state()["steps"] <= 40
    with pytest.raises(ConfigError, match="batch"):
        VerlReward(likes, watch=LiveWatch())
    with pytest.raises(ConfigError, match="watch"):
        VerlReward(likes, watch=3)  # type: ignore[arg-type]


@pytest.mark.long("many runs of training")
def test_verifiers_rollouts_fail_and_are_labelled_once_the_watch_stops() -> None:
    reward = verifiers_reward(likes, watch=SETTINGS)
    state: dict[str, Any] = {}

    async def rollouts() -> None:
        for text, info in one_by_one(6):
            said = [{"role": "assistant", "content": text}]
            await reward(prompt=info["prompt"], completion=said, answer="4", state=state)

    with pytest.raises(TrainingStopped):
        asyncio.run(rollouts())
    assert "apart" in str(state["error"])
