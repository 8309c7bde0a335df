"""Training: what is learned, what is counted, what is refused, and what is left behind by one that
is stopped.
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import pytest

from rm_gallery import ConfigError
from rm_gallery.core.stats.uncertainty import clustered_mean
from rm_gallery.gallery.benchmarks.rewardbench2 import RewardBench2, split_folder
from rm_gallery.gallery.rm.trained.bradley_terry import load_model
from rm_gallery.gallery.rm.trained.features import sample_features
from rm_gallery.study.source import Source
from rm_gallery.train.bradley_terry import (
    DEFAULT_STRENGTH,
    STRENGTHS,
    Accuracy,
    LabelledSample,
    held_out_accuracy,
    held_out_keys,
    prompt_key,
    read_samples,
    train_bradley_terry,
)
from tests.support.children import run_python
from tests.train.preferences import labelled, polite_samples

SAMPLES = polite_samples(120, seed=1, prompts=60)


def test_a_plain_preference_is_learned_and_length_is_not_it(tmp_path: Path) -> None:
    report = train_bradley_terry(SAMPLES, tmp_path / "model")
    held = report.held_out
    assert held["model"].accuracy == 1.0
    assert all((held[name].accuracy or 0) < 0.9 for name in ("longest", "shortest"))
    assert (report.n_samples, report.n_train_pairs, report.n_test_pairs) == (120, 96, 24)
    assert (report.n_train_prompts, report.n_test_prompts) == (48, 12)
    prompts = clustered_mean([1.0] * 12)
    assert prompts is not None and held["model"].ci95 is not None
    assert held["model"].ci95.low <= prompts.interval().low, (  # type: ignore[union-attr]
        "two pairs of one prompt are no two witnesses"
    )
    assert report.regularization in STRENGTHS and report.seconds > 0
    few = train_bradley_terry(SAMPLES[:10], tmp_path, regularization=None)
    assert few.regularization == DEFAULT_STRENGTH, "ten prompts are too few to choose by"


@pytest.mark.smoke("training")
def test_the_built_in_split_is_learned_better_than_length(tmp_path: Path) -> None:
    rows = list(Source(split_folder() / "train.parquet", RewardBench2.name).open().rows())
    reports = [
        train_bradley_terry(rows, tmp_path / str(seed), seed=seed).held_out for seed in (0, 1)
    ]
    reached = {
        rule: statistics.fmean(held[rule].accuracy or 0.0 for held in reports)
        for rule in reports[0]
    }
    assert (
        reached["model"] > 0.57
        and reached["model"] > max(reached["longest"], reached["shortest"]) + 0.03
    )


def test_equal_scores_are_wrong_and_where_all_agree_prompts_are_counted() -> None:
    samples = [
        LabelledSample("a", "", None, [], [5, 5], [(0, 1)]),
        LabelledSample("a", "", None, [], [9, 2, 4], [(0, 1), (0, 2)]),
        LabelledSample("b", "", None, [], [1, 2], [(0, 1)]),
    ]
    found = held_out_accuracy(samples, [[1.0, 1.0], [0.0, 2.0, 1.0], [0.5, 0.5]])
    model = found["model"]
    assert (model.accuracy, model.n) == (0.0, 4)
    assert model.ci95 is not None and model.ci95.low == 0.0 and model.ci95.high > 0.84
    assert held_out_accuracy(samples[:2], [[1.0, 1.0], [0.0, 2.0, 1.0]])["model"].ci95 is None, (
        "one prompt says nothing of others"
    )
    assert (found["longest"].accuracy, found["shortest"].accuracy) == (0.5, 0.25)
    assert held_out_accuracy([], [])["longest"] == Accuracy(None, None, 0)


def test_what_is_reported_is_what_the_saved_model_does_and_what_it_keeps(tmp_path: Path) -> None:
    report = train_bradley_terry(SAMPLES, tmp_path, seed=3, regularization=0.1)
    held = held_out_keys([prompt_key(sample) for sample in SAMPLES], 0.2, 3)
    sides = {
        side: [s for s in SAMPLES if (prompt_key(s) in held) is side] for side in (True, False)
    }
    model = load_model(tmp_path)
    scores = {
        side: [[model.score(f) for f in sample_features(s)] for s in own]
        for side, own in sides.items()
    }
    assert report.held_out == held_out_accuracy(read_samples(sides[True]).samples, scores[True])
    assert sum(map(sum, scores[False])) == pytest.approx(0, abs=1e-6), (
        "the average training answer scores 0"
    )
    written = json.loads(json.dumps(report.to_dict()))
    kept = {name: value for name, value in written.items() if name not in ("out", "seconds")}
    assert {name: model.metadata[name] for name in kept} == kept and not {"out", "seconds"} & set(
        model.metadata
    )
    assert (report.seed, report.test_share, report.regularization) == (3, 0.2, 0.1)


@pytest.mark.long("many runs of training")
def test_same_samples_and_seed_same_files_whatever_the_order(tmp_path: Path) -> None:
    train_bradley_terry(SAMPLES, tmp_path / "one", seed=5)
    train_bradley_terry(iter(SAMPLES), tmp_path / "two", seed=5)
    other = train_bradley_terry(SAMPLES, tmp_path / "three", seed=6)
    for name in ("model.json", "weights.npz"):
        one, two, three = (
            (tmp_path / folder / name).read_bytes() for folder in ("one", "two", "three")
        )
        assert one == two != three
    shuffled = train_bradley_terry(SAMPLES[::-1], tmp_path / "four", seed=6)
    assert (shuffled.data_sha256, shuffled.held_out) == (other.data_sha256, other.held_out)


def test_everything_can_be_trained_on_and_a_handful_is_enough(tmp_path: Path) -> None:
    report = train_bradley_terry(SAMPLES, tmp_path, test_share=0)
    assert (report.n_train_pairs, report.n_test_pairs, report.n_test_prompts) == (120, 0, 0)
    polite, rude = sample_features(
        labelled("q", [("Thank you, gladly.", None), ("Shut up, stupid.", None)])
    )
    sizes = []
    for n, strength in ((2, 0.001), (3, 0.1), (5, 10.0)):
        few = train_bradley_terry(SAMPLES[:n], tmp_path, test_share=0, regularization=strength)
        model = load_model(tmp_path)
        assert few.n_train_pairs == n and model.score(polite) > model.score(rude)
        sizes.append(float(abs(model.words).sum()))
    assert sizes == sorted(sizes), "the weaker the penalty the larger the weights"


def test_figures_by_subset_add_up_and_what_has_none_is_in_none(tmp_path: Path) -> None:
    named = [
        polite_samples(40, seed=seed, metadata={"subset": name})
        for seed, name in ((1, "b"), (2, "a"))
    ]
    report = train_bradley_terry(
        [*named[0], *named[1], *polite_samples(20, seed=3)], tmp_path, test_share=0.5
    )
    parts = [figures["model"].n for figures in report.by_subset.values()]
    assert list(report.by_subset) == ["a", "b"] and min(parts) > 0
    assert sum(parts) < report.n_test_pairs == report.held_out["model"].n


def test_a_file_in_place_of_the_folder_is_refused_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    samples = iter(SAMPLES)
    with pytest.raises(ConfigError, match="is a file"):
        train_bradley_terry(samples, tmp_path / "file")
    assert next(samples) is SAMPLES[0]


STOPPED = """
import os, signal, sys
import rm_gallery.cli.main as command
def stop(function):
    def stopping(*given, **named):
        done = function(*given, **named)
        # once: a second one ends a command that is about to leave at once, as it should
        setattr(module, name, function)
        os.kill(os.getpid(), signal.SIGTERM)
        return done
    return stopping
if sys.argv[1] == "fitting":
    import scipy.optimize as module
    name = "minimize"
else:
    import os as module
    name = "replace"
function = getattr(module, name)
setattr(module, name, stop(function))
sys.argv[1:] = ["train", "bt", *sys.argv[2:]]
command.main()
"""


@pytest.mark.long("many runs of training")
@pytest.mark.parametrize("moment", ["fitting", "writing"])
def test_a_training_that_is_stopped_ends_and_leaves_a_whole_model(
    moment: str, tmp_path: Path
) -> None:
    data, out = tmp_path / "data.jsonl", tmp_path / "model"
    rows = [
        {"prompt": f"p{n}", "chosen": f"Thank you {n}", "rejected": f"Shut up {n}"}
        for n in range(40)
    ]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    train_bradley_terry(SAMPLES, out, seed=5)
    before = load_model(out).metadata
    done = run_python("-c", STOPPED, moment, str(data), "--out", str(out), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (143, ""), done.stderr
    assert "Traceback" not in done.stderr
    # the one that was there, or the new one as a whole; a file of one with a file of the other is
    # refused
    assert (load_model(out).metadata == before) is (moment == "fitting")
    assert sorted(path.name for path in out.iterdir()) == ["model.json", "weights.npz"]
