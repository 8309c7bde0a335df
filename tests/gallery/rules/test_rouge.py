"""ROUGE equals the rouge-score package, and sees scripts that package does not."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.gallery.rm.general.rouge import Measure, RougeReward, Variant, rouge
from tests.gallery.rules.support import result_of, sample_of, score_of, unscored
from tests.support.shared_data import shared_file

VARIANTS: tuple[Variant, ...] = ("rouge1", "rouge2", "rougeL")
PAIRS = [
    ("the quick brown fox", "the quick brown dog"),
    ("police killed the gunman", "police kill the gunman"),
    ("the the the cat", "the cat"),
    ("It's $1,000.50 — isn't it?", "it is 1000.50, is it not"),
    ("café naïve résumé", "cafe naïve resume"),
    ("Temperature 300 K", "temperature 300 k"),
    ("snake_case and kebab-case", "snake case and kebab case"),
    ("one", "one two three"),
    ("a\r\nb\tc", "a b c"),
    ("", "something"),
    ("x y z", "z y x"),
]


def _package(answer: str, reference: str, variant: Variant) -> Any:
    scorer = pytest.importorskip("rouge_score.rouge_scorer")
    return scorer.RougeScorer([variant], use_stemmer=False).score(reference, answer)[variant]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("answer", "reference"), PAIRS)
def test_equals_package(answer: str, reference: str, variant: Variant) -> None:
    expected = _package(answer, reference, variant)
    assert score_of(RougeReward(variant=variant), answer, reference) == expected.fmeasure
    extra = result_of(RougeReward(variant=variant), sample_of(answer, reference)).extra_data
    assert extra == {"precision": expected.precision, "recall": expected.recall}


@pytest.mark.parametrize("variant", VARIANTS)
def test_equals_package_on_real_texts(variant: Variant) -> None:
    scorer = pytest.importorskip("rouge_score.rouge_scorer").RougeScorer([variant], use_stemmer=False)
    rows = pd.read_parquet(shared_file("gsm8k_model_solutions.parquet")).head(200)
    for answer, reference in zip(rows.solution, rows.ground_truth, strict=True):
        expected = scorer.score(reference, answer)[variant].fmeasure
        assert score_of(RougeReward(variant=variant), answer, reference) == expected


def test_worked_example() -> None:
    # Lin 2004, section 3: S2 "police kill the gunman" has an LCS of 3 with S1 "police killed the gunman"
    assert rouge("police kill the gunman".split(), "police killed the gunman".split()).fmeasure == 0.75
    assert rouge("the gunman kill police".split(), "police killed the gunman".split()).fmeasure == 0.5


@pytest.mark.parametrize(
    ("answer", "reference", "expected"),
    [
        pytest.param("北京大学很好", "北京大学", 0.8, id="chinese_without_spaces"),
        pytest.param("привет мир", "привет", 2 / 3, id="cyrillic"),
        pytest.param("猫 cat", "猫 cat", 1.0, id="mixed"),
    ],
)
def test_other_scripts(answer: str, reference: str, expected: float) -> None:
    assert score_of(RougeReward(), answer, reference) == pytest.approx(expected)


@pytest.mark.parametrize(("measure", "expected"), [("precision", 2 / 4), ("recall", 1.0), ("fmeasure", 2 / 3)])
def test_measures(measure: Measure, expected: float) -> None:
    assert score_of(RougeReward(measure=measure), "the the the cat", "the cat") == pytest.approx(expected)


def test_best_reference_counts() -> None:
    assert score_of(RougeReward(), "the cat", ["a dog", "the cat"]) == 1.0


@pytest.mark.parametrize("reference", [None, " ", "!?"])
def test_unscored_without_reference(reference: str | None) -> None:
    assert unscored(RougeReward(), "the cat", reference) == "no_reference"


def test_unknown_variant() -> None:
    with pytest.raises(ConfigError, match="variant"):
        RougeReward(variant="rouge9")  # type: ignore[arg-type]
