"""Citations are read in their forms and held against the sources."""

from __future__ import annotations

from typing import Any

import pytest

from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.gallery.rm.general.citation_precision_recall import CitationPrecisionRecallReward, cited_sentences
from tests.gallery.rules.support import result_of, sample_of, score_of, unscored

SOURCES = ["Paris is the capital of France.", "The Seine flows through Paris.", "Berlin lies on the Spree."]


@pytest.mark.parametrize(
    ("text", "cited"),
    [
        ("One [1]. Two [2].", [[1], [2]]),
        ("One.[1] Two.[2]", [[1], [2]]),
        ("One. [1] Two. [2]", [[1], [2]]),
        ("One [1, 2]. Two [1-3]. Three [1][3].", [[1, 2], [1, 2, 3], [1, 3]]),
        ("第一句[1]。第二句【2】。", [[1], [2]]),
        ("第一句。[1]第二句。[2]", [[1], [2]]),
        ("Line one [1]\r\nLine two [2]", [[1], [2]]),
        ("No citation. Nor here.", [[], []]),
        ("Same twice [1][1].", [[1]]),
        ("`a[1]` is code [2].", [[2]]),
        ("A link [1](http://a.b).", [[1]]),
        ("Range [9-2] is none.", [[]]),
        ("[1]", []),
        ("", []),
    ],
)
def test_reading(text: str, cited: list[list[int]]) -> None:
    assert [sentence.cited for sentence in cited_sentences(text.replace("\r\n", "\n"))] == cited


@pytest.mark.parametrize(
    ("answer", "precision", "recall"),
    [
        ("Right [1]. Also right [3].", 1.0, 1.0),
        ("Right [1]. Wrong [2].", 0.5, 0.5),
        ("Right [1].", 1.0, 0.5),
        ("All [1-3].", 2 / 3, 1.0),
        ("No such source [9].", 0.0, 0.0),
        ("None.", 0.0, 0.0),
    ],
)
def test_by_number(answer: str, precision: float, recall: float) -> None:
    extra = result_of(
        CitationPrecisionRecallReward(), sample_of(answer, sources=SOURCES, relevant_sources=[1, 3])
    ).extra_data
    assert (extra["precision"], extra["recall"]) == pytest.approx((precision, recall))


@pytest.mark.parametrize(
    ("answer", "precision", "recall"),
    [
        ("Paris is the capital of France [1].", 1.0, 1.0),
        ("Paris is the capital of France [1]. The Seine flows through Paris [2].", 1.0, 1.0),
        pytest.param("Paris is the capital of France [3].", 0.0, 0.0, id="wrong_source"),
        pytest.param("Paris is the capital of France. The Seine flows through Paris [2].", 1.0, 0.5, id="one_uncited"),
        pytest.param("Paris is the capital of France [1][3].", 0.5, 1.0, id="one_source_too_many"),
        pytest.param("Paris is the capital of France [9].", 0.0, 0.0, id="no_such_source"),
        ("Paris is the capital of France.", 0.0, 0.0),
    ],
)
def test_by_text(answer: str, precision: float, recall: float) -> None:
    extra = result_of(CitationPrecisionRecallReward(), sample_of(answer, sources=SOURCES)).extra_data
    assert (extra["precision"], extra["recall"]) == pytest.approx((precision, recall))


def test_two_sources_can_support_a_sentence_together() -> None:
    sources = ["Paris is the capital of France.", "Its population is two million people."]
    answer = "Paris, the French capital of France, has a population of two million people [1][2]."
    extra = result_of(CitationPrecisionRecallReward(min_overlap=0.8), sample_of(answer, sources=sources)).extra_data
    assert (extra["precision"], extra["recall"]) == (1.0, 1.0)


@pytest.mark.parametrize(("measure", "expected"), [("f1", 2 / 3), ("precision", 0.5), ("recall", 1.0)])
def test_measures(measure: Any, expected: float) -> None:
    answer = "Paris is the capital of France [1][3]."
    assert score_of(CitationPrecisionRecallReward(measure=measure), answer, sources=SOURCES) == pytest.approx(expected)


@pytest.mark.parametrize(
    "sources", [{"1": SOURCES[0]}, [{"title": "Paris", "text": SOURCES[0]}], [{"content": SOURCES[0]}]]
)
def test_layouts_of_sources(sources: Any) -> None:
    assert score_of(CitationPrecisionRecallReward(), "Paris is the capital of France [1].", sources=sources) == 1.0


def test_chinese() -> None:
    assert score_of(CitationPrecisionRecallReward(), "巴黎是法国首都[1]。", sources=["巴黎是法国的首都。"]) == 1.0


@pytest.mark.parametrize(
    ("answer", "metadata", "reason"),
    [("Text [1].", {}, "no_sources"), ("", {"sources": SOURCES}, "empty"), ("[1]", {"sources": SOURCES}, "empty")],
)
def test_unscored(answer: str, metadata: dict[str, Any], reason: str) -> None:
    assert unscored(CitationPrecisionRecallReward(), answer, **metadata) == reason


def test_bad_settings() -> None:
    with pytest.raises(ConfigError, match="min_overlap"):
        CitationPrecisionRecallReward(min_overlap=0)


@pytest.mark.parametrize("label", [["a"], [True], [1.5], [None], {"1": 2}, "all"])
def test_odd_labels_are_unscored(label: object) -> None:
    assert unscored(CitationPrecisionRecallReward(), "It is so [1].", relevant_sources=label) == "bad_label"


@pytest.mark.parametrize("label", [[1], ["1"], ["[1]"], [1.0], 1, "1", (1,)])
def test_a_source_number_in_any_writing(label: object) -> None:
    assert score_of(CitationPrecisionRecallReward(), "It is so [1].", relevant_sources=label) == 1.0
