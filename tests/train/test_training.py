"""Training: what is learned, what is counted, what is refused, and the same files for the same seed."""

from __future__ import annotations

import json
import random
import statistics
from pathlib import Path
from typing import Any

import pytest

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.stats.intervals import wilson_interval
from rm_gallery.core.utils.errors import ConfigError, DataError
from rm_gallery.gallery.rm.trained.features import sample_features
from rm_gallery.gallery.rm.trained.model import load_model
from rm_gallery.gallery.rm.trained.tokens import HASH_BITS
from rm_gallery.train.bradley_terry.fit import Accuracy, held_out_accuracy, train_bradley_terry
from rm_gallery.train.bradley_terry.pairs import LabelledSample, held_out_keys, pair_matrix, prompt_key, read_samples
from rm_gallery.train.bradley_terry.regression import DEFAULT_STRENGTH, STRENGTHS
from tests.train.preferences import labelled, polite_samples

SAMPLES = polite_samples(120, seed=1, prompts=60)


def test_a_plain_preference_is_learned_and_length_is_not_it(tmp_path: Path) -> None:
    report = train_bradley_terry(SAMPLES, tmp_path / "model")
    held = report.held_out
    assert held["model"].accuracy == 1.0
    assert all((held[name].accuracy or 0) < 0.9 for name in ("longest", "shortest"))
    assert (report.n_samples, report.n_train_pairs, report.n_test_pairs) == (120, 96, 24)
    assert (report.n_train_prompts, report.n_test_prompts) == (48, 12)
    assert held["model"].ci95 == tuple(wilson_interval(12, 12)), "two pairs of one prompt are no two witnesses"


def test_l2_the_interval_is_as_wide_as_pairs_of_one_prompt_make_it() -> None:
    rng = random.Random(7)

    def accuracy() -> Accuracy:
        """150 prompts of four pairs each, and a model that is right 70 % of the time, on easy prompts more often."""
        samples, scores = [], []
        for prompt in range(150):
            right = rng.betavariate(1.05, 0.45)
            pairs = [(2 * place, 2 * place + 1) for place in range(4)]
            samples.append(LabelledSample(f"{prompt}", "", None, [], [0] * 8, pairs))
            scores.append([value for _ in pairs for value in ((1, 0) if rng.random() < right else (0, 1))])
        return held_out_accuracy(samples, scores)["model"]

    runs = [accuracy() for _ in range(80)]
    found = [run.accuracy or 0.0 for run in runs]
    true_width = 2 * 1.96 * statistics.stdev(found)
    mean_width = statistics.fmean(high - low for run in runs for low, high in [run.ci95 or (0.0, 0.0)])
    by_pair = wilson_interval(0.7 * 600, 600)
    assert mean_width == pytest.approx(true_width, rel=0.15)
    assert 1.4 < mean_width / (by_pair.high - by_pair.low) < 1.7
    covered = sum(low <= 0.7 <= high for run in runs for low, high in [run.ci95 or (0.0, 0.0)])
    assert covered >= 0.9 * len(runs)


def test_what_is_reported_is_what_the_saved_model_does(tmp_path: Path) -> None:
    report = train_bradley_terry(SAMPLES, tmp_path, seed=3)
    held = held_out_keys([prompt_key(sample) for sample in SAMPLES], 0.2, 3)
    model = load_model(tmp_path)
    wins = longer = n = 0
    for sample in SAMPLES:
        if prompt_key(sample) not in held:
            continue
        chosen = [(output.answer.label or {})["preference"] for output in sample.output].index("chosen")
        scores = [model.score(features) for features in sample_features(sample)]
        lengths = [len(output.answer.text) for output in sample.output]
        n, wins = n + 1, wins + (scores[chosen] > scores[1 - chosen])
        longer += lengths[chosen] > lengths[1 - chosen]
    assert report.held_out["model"].accuracy == wins / n
    assert report.held_out["longest"].accuracy == longer / n


def test_same_samples_and_seed_same_files_whatever_the_order(tmp_path: Path) -> None:
    train_bradley_terry(SAMPLES, tmp_path / "one", seed=5)
    train_bradley_terry(iter(SAMPLES), tmp_path / "two", seed=5)
    other = train_bradley_terry(SAMPLES, tmp_path / "three", seed=6)
    for name in ("model.json", "weights.npz"):
        one, two, three = ((tmp_path / folder / name).read_bytes() for folder in ("one", "two", "three"))
        assert one == two != three
    shuffled = train_bradley_terry(SAMPLES[::-1], tmp_path / "four", seed=6)
    assert shuffled.data_sha256 == other.data_sha256
    assert shuffled.held_out == other.held_out


def test_the_model_file_keeps_where_it_comes_from(tmp_path: Path) -> None:
    report = train_bradley_terry(SAMPLES, tmp_path, seed=2, regularization=0.1)
    about = load_model(tmp_path).metadata
    written = json.loads(json.dumps(report.to_dict()))
    for name in ("seed", "data_sha256", "n_train_pairs", "n_test_pairs", "held_out", "regularization", "rule"):
        assert about[name] == written[name]
    assert (about["seed"], about["regularization"]) == (2, 0.1)
    assert not {"out", "seconds"} & set(about), "nothing that differs between equal trainings"


def test_everything_can_be_trained_on(tmp_path: Path) -> None:
    report = train_bradley_terry(SAMPLES, tmp_path, test_share=0)
    assert (report.n_train_pairs, report.n_test_pairs, report.n_test_prompts) == (120, 0, 0)
    assert report.held_out["model"].accuracy is None
    assert report.held_out["model"].ci95 is None


def test_figures_by_subset_add_up(tmp_path: Path) -> None:
    samples = [
        *polite_samples(40, seed=1, metadata={"subset": "a"}),
        *polite_samples(40, seed=2, metadata={"subset": "b"}),
        *polite_samples(20, seed=3),
    ]
    report = train_bradley_terry(samples, tmp_path, test_share=0.5)
    assert set(report.by_subset) == {"a", "b"}
    parts = [figures["model"].n for figures in report.by_subset.values()]
    assert min(parts) > 0
    assert sum(parts) <= report.n_test_pairs


def test_every_chosen_meets_every_rejected_and_a_sample_counts_once(tmp_path: Path) -> None:
    many: list[tuple[str, str | None]] = [(f"Thank you {n}", "chosen") for n in range(3)]
    many += [(f"Shut up {n}", "rejected") for n in range(4)] + [("unlabelled", None)]
    samples = [*SAMPLES, labelled("many", many), labelled("lone", [("a", "chosen")]), labelled("none", [])]
    report = train_bradley_terry(samples, tmp_path, test_share=0)
    assert (report.n_samples, report.n_without_pair, report.n_train_pairs) == (121, 2, 120 + 12)
    pairs = pair_matrix(read_samples(samples).samples, 1 << HASH_BITS)
    assert pairs.weights[:120].tolist() == [1.0] * 120
    assert pairs.weights[120:].tolist() == [1 / 12] * 12


def test_equal_answers_are_never_a_win(tmp_path: Path) -> None:
    equal = [labelled(f"equal {n}", [("same", "chosen"), ("same", "rejected")]) for n in range(30)]
    samples = [*SAMPLES, *equal]
    held = held_out_keys([prompt_key(sample) for sample in samples], 0.5, 0)
    n_equal = sum(prompt_key(sample) in held for sample in equal)
    figures = train_bradley_terry(samples, tmp_path, test_share=0.5).held_out
    wins = {rule: round((figure.accuracy or 0) * figure.n) for rule, figure in figures.items()}
    assert n_equal > 0
    assert wins["model"] == figures["model"].n - n_equal
    assert wins["longest"] + wins["shortest"] <= figures["model"].n - n_equal


def test_the_penalty_is_chosen_from_the_data_or_given(tmp_path: Path) -> None:
    assert train_bradley_terry(SAMPLES, tmp_path).regularization in STRENGTHS
    few = train_bradley_terry(SAMPLES[:10], tmp_path)
    assert few.regularization == DEFAULT_STRENGTH, "ten prompts are too few to choose by"
    sizes = []
    for strength in (0.001, 0.1, 10.0):
        train_bradley_terry(SAMPLES, tmp_path, regularization=strength)
        sizes.append(float(abs(load_model(tmp_path).words).sum()))
    assert sizes == sorted(sizes)


def test_the_average_training_answer_scores_zero(tmp_path: Path) -> None:
    train_bradley_terry(SAMPLES, tmp_path, test_share=0)
    model = load_model(tmp_path)
    scores = [model.score(features) for sample in SAMPLES for features in sample_features(sample)]
    assert sum(scores) / len(scores) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(
    ("samples", "options", "error", "message"),
    [
        ([], {}, DataError, "none of 0 samples"),
        ([labelled("q", [("a", None), ("b", None)])], {}, DataError, "chosen and a rejected"),
        ([labelled("q", [("a", "chosen")])] * 3, {}, DataError, "none of 3 samples"),
        (SAMPLES[:1] * 5, {}, DataError, "test_share=0"),
        (SAMPLES[:1], {"test_share": 0}, DataError, "at least 2 pairs"),
        ([labelled("q", [("a", "chosen"), ("a", "rejected")])] * 4, {"test_share": 0}, DataError, "nothing to learn"),
        (SAMPLES, {"test_share": 1.0}, ConfigError, "test_share"),
        (SAMPLES, {"seed": "7"}, ConfigError, "seed"),
        (SAMPLES, {"regularization": 0}, ConfigError, "regularization"),
        (SAMPLES, {"regularization": float("nan")}, ConfigError, "regularization"),
    ],
)
def test_what_cannot_be_trained_is_refused(
    samples: list[DataSample], options: dict[str, Any], error: type[Exception], message: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=message) as caught:
        train_bradley_terry(samples, tmp_path / "model", **options)
    assert type(caught.value) is error
    assert not (tmp_path / "model").exists()


def test_a_file_in_place_of_the_folder_is_refused_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")

    samples = iter(SAMPLES)
    with pytest.raises(ConfigError, match="is a file"):
        train_bradley_terry(samples, tmp_path / "file")
    assert next(samples) is SAMPLES[0]


@pytest.mark.parametrize("n", [2, 3, 5])
def test_a_handful_of_pairs_is_enough_to_train(n: int, tmp_path: Path) -> None:
    report = train_bradley_terry(SAMPLES[:n], tmp_path, test_share=0)
    assert report.n_train_pairs == n
    polite, rude = sample_features(labelled("q", [("Thank you, gladly.", None), ("Shut up, stupid.", None)]))
    assert load_model(tmp_path).score(polite) > load_model(tmp_path).score(rude)
