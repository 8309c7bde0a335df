"""verl's own reward loop gets the scores of `evaluate`, under the same keys for every completion;
its advantages are our formula's.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rm_gallery import RewardRegistry
from rm_gallery.integrations.trl import trl_reward
from rm_gallery.integrations.verl import VerlReward, verl_overrides
from rm_gallery.train.signals import group_advantages
from tests.integrations.test_missing_scores import GROUPS
from tests.support.judge_server import JudgeServer
from tests.trainers.environments import run
from tests.trainers.rewards import FEW, ROWS, Parts, as_float32, expected, flaky_judge, judged

pytestmark = [pytest.mark.trainers, pytest.mark.system("verl")]
FILE = """
from rm_gallery.integrations.verl import verl_reward
from tests.trainers.rewards import Parts, judged

compute_score = verl_reward(Parts(), components=["length", "gold"], on_error="worst")
judge_score = verl_reward(judged({base_url!r}), prompt="question", on_error=-7)
compute_score_blocking = verl_reward(Parts(), components=["length", "gold"], sync=True, on_error=-0.5)
"""


@pytest.fixture
def judge() -> Iterator[JudgeServer]:
    with flaky_judge() as server:
        yield server


def test_the_reward_loop_gets_the_scores_of_evaluate(tmp_path: Path, judge: JudgeServer) -> None:
    file = tmp_path / "my_reward.py"
    file.write_text(FILE.format(base_url=judge.base_url), encoding="utf-8")
    own = "reward.custom_reward_function"
    scored, blocking, asked = (
        [f"{own}.path={file}", f"{own}.name={name}"]
        for name in ("compute_score", "compute_score_blocking", "judge_score")
    )
    named = verl_overrides(
        "math_verify_reward", prompt="question", options={"deadline": 20.0}, on_error="worst"
    )
    jobs = [scored, [*scored, "reward.reward_manager.name=gdpo"], blocking, [*named], asked]
    sizes = [len(ROWS), *[len(FEW)] * 4]
    broken, texts, truth = GROUPS["broken"]
    four = [
        each["score"] for each in VerlReward(broken).compute_scores(["d"] * 4, texts, [truth] * 4)
    ]
    found = run(
        "verl",
        "in_verl.py",
        {"jobs": list(zip(jobs, sizes, strict=True)), "rows": ROWS, "group": four},
    )
    answers = found["loop"]
    for place, answer in enumerate(answers):
        other = {3: RewardRegistry.create("math_verify_reward"), 4: judged(judge.base_url)}
        wanted = expected(other.get(place, Parts()), ROWS if sizes[place] == len(ROWS) else FEW)
        none = (-1.0, -1.0, -0.5, 0.0, -7.0)[place]
        infos = answer["infos"]
        assert (
            infos["score"]
            == infos["acc"]
            == [none if each.score is None else each.score for each in wanted]
        )
        assert answer["tensor"] == [as_float32(score) for score in infos["score"]]
        for flag in ("unscored", "failed"):
            assert infos[flag] == [float(each.status == flag) for each in wanted]
        assert {"acc", "reward", "score", "unscored", "failed"} <= set(answer["validated"])
        assert sum(infos["failed"]) >= 1 or place == 3
        if place not in other:
            assert sum(infos["unscored"]) >= 2
            for part in ("length", "gold"):
                assert infos[part] == [each.part(part, none) for each in wanted]
    assert answers[0]["extra_info_keys"] == [
        "index",
        "num_turns",
        "question",
        "rollout_reward_scores",
    ]
    rules = expected(RewardRegistry.create("math_verify_reward"))
    assert found["batch"] == [-0.5 if each.score is None else each.score for each in rules]
    own = trl_reward(broken)(["q"] * 4, texts, reference=[truth] * 4)
    assert found["std"] == pytest.approx(group_advantages(own, 4, eps=1e-6), abs=1e-6)
    assert found["mean"] == pytest.approx(group_advantages(own, 4, "mean"), abs=1e-6)


GROUP_FILE = """
from rm_gallery.integrations.verl import verl_reward
from tests.integrations.test_adapters import shortest

compute_score = verl_reward(shortest)
one_by_one = verl_reward("math_verify_reward")
"""
SHORT = ("aaaa", "aa", "aaaaa", "aaaaaaaa")


def test_the_reward_loop_compares_the_rollouts_of_a_prompt(tmp_path: Path) -> None:
    file = tmp_path / "my_reward.py"
    file.write_text(GROUP_FILE, encoding="utf-8")
    path = f"reward.custom_reward_function.path={file}"
    named = verl_overrides("ruler", groups=True, llm="fake:<scores>[0.9, 0.1, 0.5, 0.3]</scores>")
    own = [path, *named[-3:]]
    # (prompt, completion, truth), uid, split; sixteen full groups, and one that lacks two
    rows = [[[f"q{at}", text, "4"], f"u{at}", None] for at in range(16) for text in SHORT] + [
        [["q", text, "4"], "few", None] for text in SHORT[:2]
    ]
    tested = [[row, uid, "test" if at % 2 else None] for at, (row, uid, _) in enumerate(rows[:4])]
    jobs = [
        ([*own, "+reward.group_timeout=3", "trainer.val_before_train=False"], rows),
        (named, [[row, uid, "train"] for row, uid, _ in rows[:8]]),
        (own, tested),
    ]
    refused = [
        [path, "reward.custom_reward_function.name=one_by_one", *named[-3:]],
        named[-3:],
        [*own, "actor_rollout_ref.rollout.n=1"],
    ]
    found = run("verl", "groups_in_verl.py", {"jobs": jobs, "refused": refused}, timeout=300)
    wanted = [share for _ in range(16) for share in (0.5, 1.0, 0.4, 0.25)] + [0.5, 1.0]
    for scored in (found["0"], found["ray"]):
        assert [each["reward_score"] for each in scored] == wanted
        told = [each["reward_extra_info"] for each in scored]
        assert [each["incomplete"] for each in told] == [0.0] * 64 + [1.0] * 2
        assert [each["score"] for each in told] == [each["acc"] for each in told] == wanted
        assert {(each["unscored"], each["failed"]) for each in told} == {(0.0, 0.0)}
    for group in (found["1"][:4], found["1"][4:]):
        assert sorted(each["reward_score"] for each in group) == [0.1, 0.3, 0.5, 0.9]
    # verl validates with one rollout a prompt, and where no split is named nothing tells them apart
    assert [isinstance(each, str) for each in found["2"]] == [True, False, True, False]
    assert "put `split` into extra_info" in found["2"][0]
    assert found["merged"] == [0.0, 1.0, 2.0, 3.0]
    assert [each.partition(";")[0] for each in found["refused"]] == [
        "GroupRewardManager needs a function of a batch",
        "GroupRewardManager needs a function of a batch",
        "actor_rollout_ref.rollout.n is 1",
    ]
