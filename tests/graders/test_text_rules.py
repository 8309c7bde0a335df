"""Text and format rules: equal to the reference packages, and right where others are known to be wrong."""

from __future__ import annotations

import math
import random
import time
from typing import Any

import pytest

from rm_gallery import ConfigError
from rm_gallery.core.graders.registry import GraderRegistry
from rm_gallery.core.graders.result import GraderError, GraderScore
from rm_gallery.gallery.graders.text import ALGORITHMS, cosine, gleu, meteor, sentence_bleu

VOCABULARY = "the cat sat on a mat and dogs ran fast over hills running runs".split()


def sentences(n: int) -> list[tuple[list[str], list[str]]]:
    draw = random.Random(7)
    return [([draw.choice(VOCABULARY) for _ in range(draw.randint(1, 14))] for _ in range(2)) for _ in range(n)]  # type: ignore[misc]


def graded(grader: str, response: Any, reference: Any = None, **settings: Any) -> Any:
    fields = {"response": response, **({} if reference is None else {"reference_response": reference})}
    found = GraderRegistry.create(grader, **settings).evaluate(fields)
    if isinstance(found, GraderError):
        return found.error_type
    assert isinstance(found, GraderScore)
    return pytest.approx(found.score, abs=1e-9)


# -- against the reference packages -------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_measures_equal_nltk() -> None:
    bleu_score = pytest.importorskip("nltk.translate.bleu_score")
    gleu_score = pytest.importorskip("nltk.translate.gleu_score")
    meteor_score = pytest.importorskip("nltk.translate.meteor_score")
    from nltk.stem.porter import PorterStemmer

    class NoWords:
        """A WordNet without words."""

        @staticmethod
        def synsets(word: str) -> list[Any]:
            return []

    smooth, stemmer = bleu_score.SmoothingFunction().method1, PorterStemmer()
    for own, other in map(tuple, sentences(200)):
        own, other = list(own), list(other)
        assert sentence_bleu(own, other) == pytest.approx(
            bleu_score.sentence_bleu([other], own, smoothing_function=smooth)
        )
        assert gleu(own, other) == pytest.approx(gleu_score.sentence_gleu([other], own))
        theirs = meteor_score.single_meteor_score(other, own, stemmer=stemmer, wordnet=NoWords)
        assert meteor(own, other, stemmer.stem) == pytest.approx(theirs)


def test_rouge_equals_rouge_score() -> None:
    rouge_scorer = pytest.importorskip("rouge_score.rouge_scorer")
    kinds = ["rouge1", "rouge2", "rouge3", "rouge4", "rouge5", "rougeL"]
    scorers = {stem: rouge_scorer.RougeScorer(kinds, use_stemmer=stem) for stem in (False, True)}
    for own, other in map(tuple, sentences(60)):
        mine, theirs = " ".join(own), " ".join(other)
        for kind in kinds:
            expected = scorers[False].score(theirs, mine)[kind].fmeasure
            if mine != theirs:
                assert graded("similarity", mine, theirs, algorithm=kind) == expected


def test_bleu_and_chrf_equal_sacrebleu_and_cosine_scikit_learn() -> None:
    sacrebleu = pytest.importorskip("sacrebleu")
    from sklearn.feature_extraction.text import TfidfVectorizer

    for own, other in map(tuple, sentences(40)):
        mine, theirs = " ".join(own), " ".join(other)
        if mine == theirs:
            continue
        assert graded("similarity", mine, theirs) == sacrebleu.sentence_bleu(mine, [theirs]).score / 100
        assert (
            graded("similarity", mine, theirs, algorithm="chrf") == sacrebleu.sentence_chrf(mine, [theirs]).score / 100
        )
        vectors = TfidfVectorizer(ngram_range=(1, 2), token_pattern=r"(?u)\b\w+\b").fit_transform([mine, theirs])
        assert cosine(list(own), list(other)) == pytest.approx(float((vectors[0] @ vectors[1].T).toarray()[0, 0]))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("text", ["a", "the cat sat", "退款政策", "Ünïcödé straße", "x " * 500, "\r\nline\r\n"])
def test_every_measure_finds_equal_texts_equal_and_an_empty_one_unlike(algorithm: str, text: str) -> None:
    assert graded("similarity", text, text, algorithm=algorithm) == 1.0
    assert graded("similarity", text.upper(), text, algorithm=algorithm) == 1.0
    assert graded("similarity", "", text, algorithm=algorithm) == 0.0
    assert graded("similarity", "", "", algorithm=algorithm) == 1.0


@pytest.mark.parametrize("algorithm", [name for name in ALGORITHMS if name not in ("bleu", "chrf")])
@pytest.mark.parametrize(("text", "other"), [("+", "-"), ("\U0001f44d", "\U0001f44e"), ("!!", "??")])
def test_different_texts_without_a_word_are_not_equal(algorithm: str, text: str, other: str) -> None:
    assert graded("similarity", text, other, algorithm=algorithm) == 0.0


def test_case_counts_where_it_is_asked_for_and_negations_are_words() -> None:
    for algorithm in ("fuzzy_match", "edit_distance", "f1_score", "rouge1"):
        assert graded("similarity", "HELLO", "hello", algorithm=algorithm, case_sensitive=True) == 0.0
    assert graded("similarity", "可以退款", "不可以退款", algorithm="f1_score") == 8 / 9
    assert graded("similarity", "not allowed", "allowed", algorithm="f1_score") == 2 / 3
    assert graded("similarity", "b", ["a", "b"]) == 1.0
    assert graded("similarity", "b", []) == "no_reference"
    assert graded("similarity", "cats running", "cat runs", algorithm="rouge1", stem=True) == 1.0


# -- matching -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "response", "reference", "expected"),
    [
        ({}, "Paris", "paris", 1.0),
        ({"case_sensitive": True}, "Paris", "paris", 0.0),
        ({"ignore_whitespace": True}, " Pa ris\r\n", "paris", 1.0),
        ({}, "", "", 1.0),
        ({}, "", "x", 0.0),
        ({"algorithm": "prefix_match"}, "Paris, of course", "paris", 1.0),
        ({"algorithm": "prefix_match"}, "anything", "", 0.0),
        ({"algorithm": "suffix_match"}, "It is Paris", "PARIS", 1.0),
        ({"algorithm": "substring_match"}, "in Paris now", "paris", 1.0),
        ({"algorithm": "substring_match"}, "paris", "in Paris now", 0.0),
        ({"algorithm": "substring_match", "bidirectional": True}, "paris", "in Paris now", 1.0),
        ({"algorithm": "regex_match", "pattern": r"\d{4}"}, "in 2024", None, 1.0),
        ({"algorithm": "regex_match"}, "in 2024", r"\d{5}", 0.0),
        ({"algorithm": "regex_match"}, "in 2024", "(", "invalid_pattern"),
        ({"algorithm": "contains_all", "substrings": ["a", "z"]}, "abc", None, 0.5),
        ({"algorithm": "contains_any", "substrings": ["z", "c"]}, "abc", None, 1.0),
        ({"algorithm": "word_overlap"}, "退款", "退款 政策", 0.5),
        ({"algorithm": "word_overlap"}, "a a a", "a b", 0.5),
        ({"algorithm": "char_overlap"}, "abc", "abcd", 0.75),
        ({}, "x", None, "missing_field"),
    ],
)
def test_string_match(settings: dict[str, Any], response: str, reference: str | None, expected: Any) -> None:
    assert graded("string_match", response, reference, **settings) == expected


@pytest.mark.parametrize(
    ("grader", "settings", "said"),
    [
        ("similarity", {"algorithm": "blue"}, "algorithm"),
        ("string_match", {"algorithm": "regex_match", "pattern": "("}, "regular expression"),
        ("string_match", {"algorithm": "contains_all"}, "substrings"),
        ("json_match", {"strict_oder": True}, "strict_order"),
    ],
)
def test_a_wrong_setting_is_named(grader: str, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        GraderRegistry.create(grader, **settings)


# -- formats ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ('{"a": 1}', 1.0),
        ("[]", 1.0),
        ("```json\n{}\n```", 1.0),
        ("<think>hm {</think>{}", 1.0),
        ('{"a": 1,}', 0.0),
        ("NaN", 0.0),
        ("", 0.0),
        ("Here: {}", 0.0),
        ("[" * 100_000, 0.0),
        ('{"键": "值"}\r\n', 1.0),
    ],
    ids=lambda value: str(value)[:20],
)
def test_json(response: str, expected: float) -> None:
    assert graded("json_validator", response) == expected


LOOSE = {"strict_order": False}


@pytest.mark.parametrize(
    ("settings", "response", "reference", "expected"),
    [
        ({}, '{"b": 2, "a": 1}', '{"a": 1, "b": 2}', 1.0),
        ({}, '{"a": 1.0}', {"a": 1}, 1.0),
        ({}, '{"a": true}', {"a": 1}, 0.0),
        ({}, '{"a": 1}', {"a": True}, 0.0),
        ({}, "{}", {"a": None}, 0.0),
        ({}, '{"a": null}', {}, 0.0),
        ({}, '{"a": 1, "x": 2}', {"a": 1}, 0.0),
        ({"ignore_extra_keys": True}, '{"a": 1, "x": 2}', {"a": 1}, 1.0),
        ({}, "[1, 2]", [2, 1], 0.0),
        (LOOSE, "[1, 2]", [2, 1], 1.0),
        (LOOSE, "[1, 1, 2]", [1, 2, 2], 0.0),
        # the first fit of {"a": 1} would take what only the second reference item fits
        ({**LOOSE, "ignore_extra_keys": True}, '[{"a": 1, "b": 2}, {"a": 1}]', [{"a": 1}, {"a": 1, "b": 2}], 1.0),
        ({"partial": True}, '{"a": 1, "b": [1, 3]}', {"a": 1, "b": [1, 2]}, 2 / 3),
        ({"partial": True}, "5", {"a": 1}, 0.0),
        ({}, "no json", {"a": 1}, 0.0),
        ({}, "{}", "no json", "no_reference"),
        ({}, '{"a": 1e300}', {"a": 1e300}, 1.0),
        ({}, '{"城市": "奥斯陆"}', {"城市": "奥斯陆"}, 1.0),
    ],
)
def test_json_match(settings: dict[str, Any], response: str, reference: Any, expected: Any) -> None:
    assert graded("json_match", response, reference, **settings) == expected


@pytest.mark.parametrize(
    ("markup", "response", "expected"),
    [
        ("xml", "<a><b>退款</b></a>", 1.0),
        ("xml", "```xml\n<a/>\n```", 1.0),
        ("xml", "<a><b></a>", 0.0),
        ("xml", "plain", 0.0),
        ("xml", '<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>', 0.0),
        ("yaml", "a: 1\nb: [1, 2]", 1.0),
        ("yaml", "- x\r\n- y", 1.0),
        ("yaml", "plain words", 0.0),
        ("yaml", "a: [1", 0.0),
        ("yaml", "", 0.0),
        ("yaml", "!!python/object/apply:os.system ['true']", 1.0),  # read, and nothing run
    ],
)
def test_markup(markup: str, response: str, expected: float) -> None:
    assert graded("markup_validator", response, markup=markup) == expected


# -- rewards under their graders' names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("grader", "fields", "expected"),
    [
        ("number_accuracy", {"response": "1,000", "reference_response": "1000"}, 1.0),
        ("number_accuracy", {"response": "1e5", "reference_response": "100000"}, 1.0),
        ("number_accuracy", {"response": ".5", "reference_response": "0.5"}, 1.0),
        ("code_syntax_check", {"response": "```python\nx = (\n```"}, 0.0),
        ("math_verify_reward", {"response": r"\(x \in (0, 1)\)", "reference_response": "(0,1)"}, 1.0),
        ("math_verify_reward", {"response": "I cannot say", "reference_response": "42"}, 0.0),
        ("reasoning_format", {"response": "<answer>1</answer><think>x</think>"}, 0.0),
        ("reasoning_tool_call_format", {"response": "<think>x</think><tool_call>5</tool_call>"}, 0.0),
        (
            "reasoning_tool_call_format",
            {"response": '<think>x</think><tool_call>["name", "arguments"]</tool_call>'},
            0.0,
        ),
        ("ngram_repetition_penalty", {"response": "a b c d e f g h"}, 0.0),
        ("json_schema", {"response": '{"a": 1}', "schema": {"required": ["b"]}}, 0.0),
        ("privacy_leakage", {"response": "Write to ada@lovelace.net."}, -0.5),
        ("regex_match", {"response": "abc", "pattern": "^b"}, 0.0),
        ("language_match", {"response": "这是中文的回答，没有别的语言。", "language": "zh"}, 1.0),
    ],
)
def test_rules_among_the_rewards_are_graders_by_their_names(
    grader: str, fields: dict[str, Any], expected: float
) -> None:
    found = GraderRegistry.create(grader).evaluate(fields)
    assert isinstance(found, GraderScore), found.reason
    assert found.score == pytest.approx(expected)
    assert math.isfinite(found.score)


def test_what_takes_for_ever_is_killed_at_the_deadline() -> None:
    """A pattern may stand in the data, and neither it nor a long comparison lets go of the interpreter by itself."""
    long = " ".join(f"w{i}" for i in range(6000))
    rows: list[tuple[dict[str, Any], dict[str, str]]] = [
        ({"algorithm": "regex_match"}, {"response": "a" * 40 + "!", "reference_response": "(a+)+$"}),
        ({"algorithm": "fuzzy_match", "method": "partial"}, {"response": long, "reference_response": long[1:] + "!"}),
    ]
    for settings, row in rows:
        name = "string_match" if settings["algorithm"] == "regex_match" else "similarity"
        found = GraderRegistry.create(name, deadline=1.0, **settings).evaluate(row)
        assert isinstance(found, GraderError) and found.error_type == "deadline"


def test_long_hostile_texts_are_graded_in_passing() -> None:
    """None of these takes time that grows with the square of the text."""
    began = time.monotonic()
    assert graded("markup_validator", "[" * 900_000, None, markup="yaml") == 0.0
    assert meteor([f"a{i}" for i in range(20_000)], [f"b{i}" for i in range(20_000)]) == 0.0
    steps = [f"abcd{i}" * 100_000 for i in range(6)]
    call = {"function": {"name": "look", "arguments": "{}"}}
    messages = [
        m for text in steps for m in ({"role": "assistant", "tool_calls": [call]}, {"role": "tool", "content": text})
    ]
    found = GraderRegistry.create("trajectory_step_efficiency").evaluate(messages=messages)
    assert found.ok and found.metadata["redundant"] == 5
    assert time.monotonic() - began < 8
