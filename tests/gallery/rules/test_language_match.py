"""Languages are told apart by script and common words."""

from __future__ import annotations

import time
from typing import Any

import pytest

from rm_gallery.core.text.language import language_shares
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.gallery.rm.general.language_match import LanguageMatchReward, prose
from tests.gallery.rules.support import score_of, unscored

TEXTS = {
    "en": "The weather is nice today, and we will go for a walk in the park.",
    "zh": "今天天气很好，我们去公园散步吧。",
    "ja": "今日は天気がいいので、公園へ散歩に行きましょう。",
    "ko": "오늘은 날씨가 좋아서 공원에 산책하러 갑니다.",
    "ru": "Сегодня хорошая погода, и мы пойдём гулять в парк.",
    "ar": "الطقس جميل اليوم وسنذهب للتنزه في الحديقة.",
    "es": "Hoy hace buen tiempo y vamos a dar un paseo por el parque con los niños.",
    "fr": "Il fait beau aujourd'hui et nous allons nous promener dans le parc avec les enfants.",
    "de": "Heute ist das Wetter schön und wir gehen mit den Kindern im Park spazieren.",
    "it": "Oggi il tempo è bello e andiamo a fare una passeggiata nel parco con i bambini.",
    "pt": "Hoje o tempo está bom e vamos passear no parque com as crianças.",
}


@pytest.mark.parametrize("wanted", TEXTS)
def test_each_against_each(wanted: str) -> None:
    reward = LanguageMatchReward(language=wanted)
    found = {spoken: score_of(reward, text) for spoken, text in TEXTS.items()}
    assert found == {spoken: float(spoken == wanted) for spoken in TEXTS}


@pytest.mark.parametrize(
    ("text", "language", "low", "high"),
    [
        pytest.param("使用Python编写一个函数，用pandas读取数据。", "zh", 0.85, 0.99, id="a_few_foreign_words"),
        pytest.param("代码：\n```python\nthe of and = to\n```\n就这样。", "zh", 1.0, 1.0, id="code_does_not_count"),
        pytest.param(r"所以 $$\frac{a}{b} = the$$ 见 https://a.b/the", "zh", 1.0, 1.0, id="nor_formulas_and_addresses"),
        pytest.param("<think>Let me think about it.</think>好的。", "zh", 1.0, 1.0, id="nor_a_thought"),
        pytest.param("你好\r\n世界", "zh", 1.0, 1.0, id="windows_line_ends"),
        pytest.param("東京都庁", "zh", 1.0, 1.0, id="han_alone_is_chinese"),
        pytest.param("xyzzy qwrt", "en", 1.0, 1.0, id="too_short_to_tell"),
        pytest.param("xyzzy qwrt plugh frobozz gnusto " * 5, "en", 0.0, 0.0, id="no_language"),
        pytest.param("Hello, the world. 你好世界", "en", 0.3, 0.6, id="half_and_half"),
    ],
)
def test_shares(text: str, language: str, low: float, high: float) -> None:
    assert low <= score_of(LanguageMatchReward(language=language), text) <= high


def test_a_thought_can_be_taken_in() -> None:
    reward = LanguageMatchReward(language="zh", include_thought=True)
    assert score_of(reward, "<think>Let me think about it.</think>好的。") < 0.5


def test_threshold() -> None:
    text = "使用Python编写一个函数。"
    assert score_of(LanguageMatchReward(language="zh", min_share=0.8), text) == 1.0
    assert score_of(LanguageMatchReward(language="zh", min_share=0.99), text) == 0.0


@pytest.mark.parametrize(
    ("prompt", "metadata", "expected"),
    [
        ("今天天气怎么样？", {}, 1.0),
        ("How is the weather today?", {}, 0.0),
        ("How is the weather today?", {"language": "zh-CN"}, 1.0),
    ],
)
def test_wanted_language(prompt: str, metadata: dict[str, Any], expected: float) -> None:
    assert score_of(LanguageMatchReward(), TEXTS["zh"], prompt=prompt, **metadata) == expected


@pytest.mark.parametrize(
    ("answer", "prompt", "metadata", "reason"),
    [
        ("", "你好", {}, "no_words"),
        ("42", "你好", {}, "no_words"),
        ("text", "", {}, "no_language"),
        ("text", "123", {}, "no_language"),
        ("text", "", {"language": "tlh"}, "no_language"),
    ],
)
def test_unscored(answer: str, prompt: str, metadata: dict[str, Any], reason: str) -> None:
    assert unscored(LanguageMatchReward(), answer, None, prompt, **metadata) == reason


@pytest.mark.parametrize("language", ["xx", "English", ""])
def test_unknown_language(language: str) -> None:
    with pytest.raises(ConfigError, match="language"):
        LanguageMatchReward(language=language)


def test_shares_by_script() -> None:
    found = language_shares("The end of the world is near. 你好 안녕 42")
    assert found.words == 10
    assert {name: found.shares[name] for name in ("en", "zh", "ko")} == pytest.approx({"en": 0.7, "zh": 0.2, "ko": 0.1})
    assert found.main == {"en"}


def test_no_words_no_shares() -> None:
    assert language_shares("42 …") == ({}, 0, frozenset())


@pytest.mark.parametrize(
    ("answer", "language", "expected"),
    [
        ("東京大学", "ja", 1.0),
        ("東京大学", "zh", 1.0),
        ("你好吗", "ja", 0.0),
        ("我们不在这里", "zh", 1.0),
        ("hi", "en", 1.0),
        ("OK", "de", 1.0),
        ("no", "fr", 1.0),
        ("да", "uk", 1.0),
        ("да", "en", 0.0),
        ("sí", "es", 1.0),
    ],
)
def test_texts_too_short_to_tell(answer: str, language: str, expected: float) -> None:
    assert score_of(LanguageMatchReward(language=language), answer) == expected


@pytest.mark.parametrize("piece", ["\\[", "\\(", "$$"])
def test_formulas_that_are_never_closed_take_no_time(piece: str) -> None:
    began = time.process_time()
    prose(piece * 100_000)
    assert time.process_time() - began < 0.3
