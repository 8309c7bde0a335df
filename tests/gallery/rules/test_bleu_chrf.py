"""BLEU and chrF are sacrebleu's, on a scale to 1."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from rm_gallery.core.utils.errors import ConfigError, MissingExtra
from rm_gallery.gallery.rm.general.bleu import BleuReward, tokenization_of
from rm_gallery.gallery.rm.general.chrf import ChrfReward
from tests.gallery.rules.support import score_of, unscored

PAIRS = [
    ("the cat is on the mat", "the cat sat on the mat"),
    ("The dog bit the man.", "The dog had bit the man."),
    ("It was not unexpected.", "No one was surprised."),
    ("short", "a rather longer reference sentence"),
]


@pytest.fixture
def sacrebleu() -> Any:
    return pytest.importorskip("sacrebleu")


@pytest.mark.parametrize(("answer", "reference"), PAIRS)
def test_bleu_equals_sacrebleu(sacrebleu: Any, answer: str, reference: str) -> None:
    expected = sacrebleu.sentence_bleu(answer, [reference]).score / 100
    assert score_of(BleuReward(), answer, reference) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("word_order", [0, 2])
@pytest.mark.parametrize(("answer", "reference"), PAIRS)
def test_chrf_equals_sacrebleu(sacrebleu: Any, answer: str, reference: str, word_order: int) -> None:
    expected = sacrebleu.sentence_chrf(answer, [reference], word_order=word_order).score / 100
    assert score_of(ChrfReward(word_order=word_order), answer, reference) == pytest.approx(expected, abs=1e-12)


@pytest.mark.usefixtures("sacrebleu")
def test_worked_bleu() -> None:
    # precisions 5/6, 3/5, 1/4 and, without a match, 1/2 of 1/3: geometric mean, no brevity penalty
    expected = (5 / 6 * 3 / 5 * 1 / 4 * 1 / 6) ** 0.25
    assert score_of(BleuReward(), "the cat is on the mat", "the cat sat on the mat") == pytest.approx(expected)


@pytest.mark.usefixtures("sacrebleu")
def test_worked_chrf() -> None:
    # up to bigrams: precision (3/4 + 2/3) / 2, recall (3/3 + 2/2) / 2, F with beta 2
    precision, recall = (3 / 4 + 2 / 3) / 2, 1.0
    expected = 5 * precision * recall / (4 * precision + recall)
    assert score_of(ChrfReward(char_order=2), "abcd", "abc") == pytest.approx(expected)


@pytest.mark.usefixtures("sacrebleu")
@pytest.mark.parametrize("reward", [BleuReward(), ChrfReward()], ids=["bleu", "chrf"])
@pytest.mark.parametrize(
    ("answer", "reference", "expected"),
    [
        ("The same sentence.", "The same sentence.", 1.0),
        ("今天天气很好。", "今天天气很好。", 1.0),
        ("one", "one", 1.0),
        ("xyz", "abc", 0.0),
        ("", "abc", 0.0),
        ("The same\r\nsentence.", "The same sentence.", 1.0),
    ],
)
def test_ends_of_the_scale(reward: BleuReward | ChrfReward, answer: str, reference: str, expected: float) -> None:
    assert score_of(reward, answer, reference) == pytest.approx(expected)


@pytest.mark.usefixtures("sacrebleu")
@pytest.mark.parametrize("reward", [BleuReward(), ChrfReward()], ids=["bleu", "chrf"])
def test_several_references_and_none(reward: BleuReward | ChrfReward) -> None:
    assert score_of(reward, "the second one here", ["a first one here", "the second one here"]) == pytest.approx(1.0)
    assert unscored(reward, "text") == "no_reference"


@pytest.mark.parametrize(
    ("text", "tokenizer"),
    [("English", "13a"), ("Ünïcode", "13a"), ("中文", "zh"), ("日本語です", "char"), ("ไทย", "char")],
)
def test_tokenization_by_script(text: str, tokenizer: str) -> None:
    assert tokenization_of(text) == tokenizer


def test_chinese_is_not_one_word() -> None:
    pytest.importorskip("sacrebleu")
    assert score_of(BleuReward(), "今天天气非常好", "今天天气很好") > 0.3


@pytest.mark.parametrize("reward", [BleuReward(), ChrfReward()], ids=["bleu", "chrf"])
def test_missing_package(reward: BleuReward | ChrfReward, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    with pytest.raises(MissingExtra, match="pip install sacrebleu"):
        reward.check()


def test_bad_settings() -> None:
    with pytest.raises(ConfigError, match="tokenize"):
        BleuReward(tokenize="words")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="char_order"):
        ChrfReward(char_order=0)
