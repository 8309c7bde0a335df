"""Text and format rules: equal to the reference packages, and right where others are known to be
wrong.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from rm_gallery import GraderError, GraderRegistry, GraderScore, RewardRegistry
from rm_gallery.gallery.graders.text import ALGORITHMS, cosine, gleu, meteor, sentence_bleu
from tests.support.cpu import grows
from tests.support.samples import make_sample

VOCABULARY = "the cat sat on a mat and dogs ran fast over hills running runs".split()


def sentences(n: int) -> list[tuple[list[str], list[str]]]:
    draw = random.Random(7)
    return [
        ([draw.choice(VOCABULARY) for _ in range(draw.randint(1, 14))] for _ in range(2))  # type: ignore[misc]
        for _ in range(n)
    ]


def graded(grader: str, response: Any, reference: Any = None, **settings: Any) -> Any:
    fields = {
        "response": response,
        **({} if reference is None else {"reference_response": reference}),
    }
    found = GraderRegistry.create(grader, **settings).evaluate(fields)
    if isinstance(found, GraderError):
        return found.error_type
    assert isinstance(found, GraderScore)
    return pytest.approx(found.score, abs=1e-9)


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


def test_cosine_equals_scikit_learn() -> None:
    text = pytest.importorskip("sklearn.feature_extraction.text")
    for own, other in sentences(40):
        vectorizer = text.TfidfVectorizer(ngram_range=(1, 2), token_pattern=r"(?u)\b\w+\b")
        mine, theirs = vectorizer.fit_transform([" ".join(own), " ".join(other)])
        assert cosine(own, other) == pytest.approx(float((mine @ theirs.T).toarray()[0, 0]))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize(
    "text", ["a", "the cat sat", "退款政策", "Ünïcödé straße", "x " * 500, "\r\nline\r\n"]
)
def test_every_measure_finds_equal_texts_equal_and_an_empty_one_unlike(
    algorithm: str, text: str
) -> None:
    assert graded("similarity", text, text, algorithm=algorithm) == 1.0
    folded = {"algorithm": algorithm, "case_sensitive": False}
    assert graded("similarity", text.upper(), text, **folded) == 1.0
    assert graded("similarity", "", text, algorithm=algorithm) == 0.0
    assert graded("similarity", "", "", algorithm=algorithm) == 1.0


@pytest.mark.parametrize(("algorithm", "reward", "settings"), [
    ("bleu", "bleu", {}), ("chrf", "chrf", {}), ("rouge", "rouge", {}), ("f1_score", "f1_score", {}), ("token_f1", "f1_score", {}),
    *((variant, "rouge", {"variant": variant}) for variant in ("rouge1", "rouge2", "rougeL")),
])  # fmt: skip
def test_a_metric_gives_one_number_by_its_name_as_a_reward_and_as_a_grader(
    algorithm: str, reward: str, settings: dict[str, Any]
) -> None:
    texts = ["The Cat sat on a mat.", "the cat sat", "mat", "A-1, b_2", "x" * 400]
    texts[2:2] = ["Üniçödé straße naïf", "今天天气很好", "今天天气不好"]
    for text, references in product(texts, [[text] for text in texts] + [texts[:2], texts[2:5]]):
        if text not in references:
            sample = make_sample(text, metadata={"reference": references})
            (as_reward,) = RewardRegistry.create(reward, **settings).evaluate(sample).output
            told = graded("similarity", text, references, algorithm=algorithm)
            assert told == as_reward.answer.reward.score


@pytest.mark.parametrize("algorithm", [name for name in ALGORITHMS if name not in ("bleu", "chrf")])
@pytest.mark.parametrize(
    ("text", "other"), [("+", "-"), ("\U0001f44d", "\U0001f44e"), ("!!", "??")]
)
def test_different_texts_without_a_word_are_not_equal(
    algorithm: str, text: str, other: str
) -> None:
    assert graded("similarity", text, other, algorithm=algorithm) == 0.0


@pytest.mark.long("hostile texts")
def test_what_takes_for_ever_is_killed_at_the_deadline() -> None:
    """A pattern may stand in the data, and neither it nor a long comparison lets go of the
    interpreter by itself.
    """
    long = " ".join(f"w{i}" for i in range(6000))
    cases: list[tuple[str, dict[str, str], str, str]] = [
        ("string_match", {"algorithm": "regex_match"}, "a" * 40 + "!", "(a+)+$"),
        ("similarity", {"algorithm": "fuzzy_match", "method": "partial"}, long, long[1:] + "!"),
    ]
    for name, settings, text, reference in cases:
        assert graded(name, text, reference, deadline=1.0, **settings) == "deadline"


def no_word_in_common(text: str) -> float:
    """METEOR of two texts of as many words as the text has characters."""
    one, other = ([f"{letter}{i}" for i in range(len(text))] for letter in "ab")
    return meteor(one, other)


def alike_steps(text: str) -> Any:
    """Six calls of a tool whose results are the text, but for their ends."""
    call = {"function": {"name": "look", "arguments": "{}"}}
    turns: list[dict[str, Any]] = []
    for i in range(6):
        turns.append({"role": "assistant", "tool_calls": [call]})
        turns.append({"role": "tool", "content": f"{text}{i}"})
    return GraderRegistry.create("trajectory_step_efficiency").evaluate(messages=turns)


@pytest.mark.long("hostile texts")
def test_long_hostile_texts_are_graded_in_passing() -> None:
    """None of these takes time that grows with the square of the text."""
    assert graded("markup_validator", "[" * 900_000, None, markup="yaml") == 0.0
    assert graded("json_validator", "[" * 100_000) == 0.0
    for n, wanted in ((200, 1.0), (201, 0.0)):
        assert graded("markup_validator", "[" * n + "]" * n, None, markup="yaml") == wanted
    assert no_word_in_common("x" * 20_000) == 0.0
    found = alike_steps("abcd" * 120_000)
    assert found.ok and found.metadata["redundant"] == 5
    work: dict[str, tuple[Callable[[str], object], int]] = {
        "yaml": (lambda text: graded("markup_validator", text, None, markup="yaml"), 900_000),
        "json": (lambda text: graded("json_validator", text), 100_000),
        "words": (no_word_in_common, 20_000),
        "steps": (alike_steps, 600_000),
    }
    assert [name for name, (grade, size) in work.items() if grows(grade, "[", size)] == []
