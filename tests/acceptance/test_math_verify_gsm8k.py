"""`math_verify_reward` on recorded solutions: right in a batch, right in eight threads, and never stopped by one answer."""

from __future__ import annotations

import threading

import pyarrow.parquet as pq
import pytest

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.reward.registry import RewardRegistry
from tests.support.samples import issues, make_sample, scores
from tests.support.shared_data import shared_file

THREADS = 8
EXPLODING = r"\boxed{9^{9^{9^{9}}}}"


@pytest.fixture(scope="module")
def labelled() -> list[tuple[DataSample, bool]]:
    """Solutions ending in `A: x`, with the worked answer ending in `#### x` as reference, and the recorded label."""
    rows = pq.read_table(shared_file("gsm8k_model_solutions.parquet")).to_pylist()
    assert len(rows) >= 2638
    return [
        (
            make_sample(r["solution"], query=r["question"], unique_id=f"{r['model']}/{i}", reference=r["ground_truth"]),
            bool(r["is_correct"]),
        )
        for i, r in enumerate(rows)
    ]


def agreement(scored: list[DataSample], labels: list[bool]) -> float:
    found = [scores(sample) for sample in scored]
    assert all(score in ([0.0], [1.0]) for score in found), "every solution gets a verdict"
    return sum(score == [float(label)] for score, label in zip(found, labels, strict=True)) / len(labels)


def test_a_batch_agrees_with_the_recorded_labels(labelled: list[tuple[DataSample, bool]]) -> None:
    samples, labels = [sample for sample, _ in labelled], [label for _, label in labelled]
    scored = RewardRegistry.create("math_verify_reward").evaluate_batch(samples, max_workers=32)
    assert [sample.unique_id for sample in scored] == [sample.unique_id for sample in samples]
    assert agreement(scored, labels) >= 0.999


def test_eight_threads_share_one_reward(labelled: list[tuple[DataSample, bool]]) -> None:
    reward = RewardRegistry.create("math_verify_reward")
    parts = [labelled[k::THREADS] for k in range(THREADS)]
    agreed: dict[int, float] = {}

    def work(k: int) -> None:
        samples = [sample for sample, _ in parts[k]]
        # singly and in a batch: both doors are used from several threads at once
        scored = [reward.evaluate(sample) for sample in samples[:20]] + reward.evaluate_batch(samples[20:])
        agreed[k] = agreement(scored, [label for _, label in parts[k]])

    threads = [threading.Thread(target=work, args=(k,)) for k in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(agreed) == THREADS
    assert sum(agreed.values()) / THREADS >= 0.999


def test_an_exploding_expression_costs_its_deadline_only(labelled: list[tuple[DataSample, bool]]) -> None:
    reward = RewardRegistry.create("math_verify_reward", timeout=2.5, in_process=False)
    some = labelled[:30]
    samples = [sample for sample, _ in some]
    samples.insert(7, make_sample(EXPLODING, unique_id="exploding", reference="18"))
    scored = reward.evaluate_batch(samples, max_workers=8)
    bad = scored.pop(7)
    assert (scores(bad), issues(bad)) == ([0.0], []), "what cannot be worked out gains nothing by it"
    assert agreement(scored, [label for _, label in some]) == 1.0
