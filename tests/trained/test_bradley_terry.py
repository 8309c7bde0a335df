"""`bt:DIR` is an ordinary reward: what it says is the trained model's score, through every door."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from rm_gallery import ConfigError, DataOutput, DataSample, MessageRole, Step
from rm_gallery.gallery.rm.trained.bradley_terry import BradleyTerryReward, load_model
from rm_gallery.gallery.rm.trained.features import HASH_BITS
from rm_gallery.train.bradley_terry import pair_matrix, read_samples, train_bradley_terry
from tests.support.samples import issues, make_sample, scores
from tests.train.preferences import labelled, polite_samples, turns

SAMPLES = polite_samples(80, seed=4)
CALLS = [{"function": {"name": "f", "arguments": "{}"}}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("bt") / "model"
    train_bradley_terry(SAMPLES, out)
    return out


def test_scores_are_the_training_features_times_the_weights(folder: Path) -> None:
    model = load_model(folder)
    odd = [
        labelled(
            turns("Why?", "我不能。", "And now?"), [("I can’t.\r\n- a", "chosen"), ("", "rejected")]
        ),
        labelled([], [("**yes** 42", "chosen"), ("no \ud800", "rejected")]),
    ]
    samples = [*SAMPLES, *odd]
    pairs = pair_matrix(read_samples(samples).samples, 1 << HASH_BITS)
    margins = pairs.dense @ model.dense.astype(float) + pairs.words @ model.words.astype(float)
    for sample, margin in zip(
        BradleyTerryReward(str(folder)).evaluate_batch(samples), margins, strict=True
    ):
        by_label = {
            (o.answer.label or {})["preference"]: o.answer.reward.score or 0.0
            for o in sample.output
        }
        assert by_label["chosen"] - by_label["rejected"] == pytest.approx(margin, abs=1e-5)


def test_threads_pickles_and_batches_agree(folder: Path) -> None:
    reward = BradleyTerryReward(folder)
    expected = [scores(reward.evaluate(sample)) for sample in SAMPLES]
    again: BradleyTerryReward = pickle.loads(pickle.dumps(reward))
    assert again == reward
    assert [scores(sample) for sample in again.evaluate_batch(SAMPLES, max_workers=16)] == expected
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda sample: scores(reward.evaluate(sample)), SAMPLES)) == expected


def test_two_models_keep_their_scores_apart(folder: Path, tmp_path: Path) -> None:
    train_bradley_terry(SAMPLES[:20], tmp_path / "other", test_share=0)
    sample = make_sample("Thank you.", "Shut up.")
    first, second = BradleyTerryReward(folder), BradleyTerryReward(tmp_path / "other")
    both = second.evaluate(first.evaluate(sample)).output[0].answer.reward
    assert [detail.source for detail in both.details] == [first.name, second.name]
    was = second.describe()["weights_sha256"]
    assert first.describe()["weights_sha256"] != was
    train_bradley_terry(SAMPLES, tmp_path / "other", regularization=1.0)
    assert second.describe()["weights_sha256"] != was, (
        "a model that is trained anew is another reward"
    )
    assert scores(second.evaluate(sample)) != [detail.score for detail in both.details[1:]]


@pytest.mark.parametrize(("answer", "outcome"), [
    ({"content": ""}, []),
    ({"content": "a" * 200_000}, []),
    ({"content": [{"type": "text", "text": "Thank you."}]}, []),
    ({"content": None, "tool_calls": CALLS}, [("unscored", "not_applicable")]),
])  # fmt: skip
def test_answers_of_other_kinds(
    answer: dict[str, Any], outcome: list[tuple[str, str]], folder: Path
) -> None:
    step = Step(role=MessageRole.ASSISTANT, **answer)
    scored = BradleyTerryReward(folder).evaluate(DataSample(output=[DataOutput(answer=step)]))
    assert issues(scored) == outcome
    assert (scores(scored)[0] is None) is bool(outcome)


def test_making_one_reads_nothing_and_using_one_names_what_is_missing(tmp_path: Path) -> None:
    reward = BradleyTerryReward(tmp_path / "nowhere")
    for use in (reward.check, reward.describe, lambda: reward.evaluate(make_sample("a"))):
        with pytest.raises(ConfigError, match="nowhere.*rm-gallery train bt"):
            use()
