"""Token F1 counts tokens as often as both texts hold them."""

from __future__ import annotations

import re
import string
import sys
from collections import Counter

import pandas as pd
import pytest

from rm_gallery.core.text.tokens import TokenizerName
from rm_gallery.core.utils.errors import ConfigError, MissingExtra
from rm_gallery.gallery.rm.general.f1 import F1ScoreReward
from tests.gallery.rules.support import result_of, sample_of, score_of, unscored
from tests.support.shared_data import shared_file


@pytest.mark.parametrize(
    ("answer", "reference", "expected"),
    [
        ("the cat", "the cat", 1.0),
        ("THE Cat!", "the cat", 1.0),
        # a set of words would give 1.0: P = 2/4, R = 2/2
        pytest.param("the the the cat", "the cat", 2 / 3, id="repeated_words_count"),
        pytest.param("a b c d", "a b", 2 * 0.5 * 1 / 1.5, id="precision_half_recall_one"),
        ("dog", "cat", 0.0),
        ("", "cat", 0.0),
        ("   \r\n", "cat", 0.0),
        ("the\r\ncat", "the cat", 1.0),
        pytest.param("北京大学", "北京", 2 * 0.5 * 1 / 1.5, id="chinese_characters_are_words"),
        ("ＡＢＣ １２", "abc 12", 1.0),
        pytest.param("Grüße", "grüsse", 1.0, id="sharp_s"),
        pytest.param("हिन्दी भाषा", "हिन्दी", 2 / 3, id="vowel_signs_do_not_split_words"),
    ],
)
def test_values(answer: str, reference: str, expected: float) -> None:
    assert score_of(F1ScoreReward(), answer, reference) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("tokenizer", "answer", "reference", "expected"),
    [
        ("squad", "The Eiffel Tower.", "eiffel tower", 1.0),
        ("words", "The Eiffel Tower.", "eiffel tower", 0.8),
        ("whitespace", "tower.", "tower", 0.0),
        ("chars", "ab c", "abc", 1.0),
    ],
)
def test_tokenizers(tokenizer: TokenizerName, answer: str, reference: str, expected: float) -> None:
    assert score_of(F1ScoreReward(tokenizer=tokenizer), answer, reference) == pytest.approx(expected)


def test_negation_counts() -> None:
    assert score_of(F1ScoreReward(), "可以退款", "不可以退款") < 1.0


def test_best_reference_counts() -> None:
    assert score_of(F1ScoreReward(), "the cat", ["a dog", "the cat"]) == 1.0


def test_extra_data() -> None:
    result = result_of(F1ScoreReward(), sample_of("a b c d", "a b"))
    assert result.extra_data == {"precision": 0.5, "recall": 1.0}
    result = result_of(F1ScoreReward(), sample_of("a a b", "a b b"))
    assert result.extra_data == {"precision": 2 / 3, "recall": 2 / 3}, "tokens count as often as they occur"


@pytest.mark.parametrize("reference", [None, "", "  ", "?!", [], ["", " "]])
def test_unscored_without_reference(reference: object) -> None:
    assert unscored(F1ScoreReward(), "the cat", reference) == "no_reference"


def test_unknown_tokenizer() -> None:
    with pytest.raises(ConfigError, match="tokenizer"):
        F1ScoreReward(tokenizer="tiktoken")  # type: ignore[arg-type]


def test_missing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jieba", None)
    with pytest.raises(MissingExtra, match="pip install jieba"):
        F1ScoreReward(tokenizer="jieba").check()


def _squad_f1(answer: str, reference: str) -> float:
    """The formula of SQuAD's script, written out."""

    def normal(text: str) -> list[str]:
        text = "".join(c for c in text.lower() if c not in set(string.punctuation))
        return re.sub(r"\b(a|an|the)\b", " ", text).split()

    given, wanted = normal(answer), normal(reference)
    common = sum((Counter(given) & Counter(wanted)).values())
    return 2 * common / (len(given) + len(wanted)) if common else 0.0


def test_equals_squad_formula_on_real_texts() -> None:
    rows = pd.read_parquet(shared_file("gsm8k_model_solutions.parquet")).head(300)
    reward = F1ScoreReward(tokenizer="squad")
    for answer, reference in zip(rows.solution, rows.ground_truth, strict=True):
        assert score_of(reward, answer, reference) == pytest.approx(_squad_f1(answer, reference), abs=1e-12)
