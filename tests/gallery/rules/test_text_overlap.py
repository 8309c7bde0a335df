"""Rewards that count what two texts have in common give what the packages and scripts they are named after give."""

from __future__ import annotations

import re
import string
import sys
from collections import Counter
from typing import Any

import pytest

from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.utils.errors import MissingExtra
from tests.support.samples import make_sample, scores

PAIRS = [
    ("the cat is on the mat", "the cat sat on the mat"),
    ("The dog bit the man.", "The dog had bit the man."),
    ("It was not unexpected.", "No one was surprised."),
    ("short", "a rather longer reference sentence"),
    ("the the the cat", "the cat"),
    ("It's $1,000.50 — isn't it?", "it is 1000.50, is it not"),
    ("café naïve résumé", "cafe naïve resume"),
    ("snake_case and kebab-case", "snake case and kebab case"),
    ("a\r\nb\tc", "a b c"),
    ("x y z", "z y x"),
    ("An owl saw the fox; a fox saw an owl.", "the owl saw a fox"),
]


def score(name: str, answer: str, reference: str, **settings: Any) -> float | None:
    return scores(RewardRegistry.create(name, **settings).evaluate(make_sample(answer, reference=reference)))[0]


@pytest.mark.parametrize(("answer", "reference"), PAIRS)
def test_bleu_and_chrf_equal_sacrebleu(answer: str, reference: str) -> None:
    sacrebleu = pytest.importorskip("sacrebleu")
    expected = sacrebleu.sentence_bleu(answer, [reference]).score / 100
    assert score("bleu", answer, reference) == pytest.approx(expected, abs=1e-12)
    for order in (0, 2):
        expected = sacrebleu.sentence_chrf(answer, [reference], word_order=order).score / 100
        assert score("chrf", answer, reference, word_order=order) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("variant", ["rouge1", "rouge2", "rougeL"])
@pytest.mark.parametrize(("answer", "reference"), PAIRS)
def test_rouge_equals_its_package(answer: str, reference: str, variant: str) -> None:
    scorer = pytest.importorskip("rouge_score.rouge_scorer").RougeScorer([variant], use_stemmer=False)
    expected = scorer.score(reference, answer)[variant]
    for measure in ("fmeasure", "precision", "recall"):
        assert score("rouge", answer, reference, variant=variant, measure=measure) == getattr(expected, measure)


@pytest.mark.parametrize(("answer", "reference"), PAIRS)
def test_f1_equals_the_formula_of_squads_script(answer: str, reference: str) -> None:
    def normal(text: str) -> list[str]:
        text = "".join(c for c in text.lower() if c not in set(string.punctuation))
        return re.sub(r"\b(a|an|the)\b", " ", text).split()

    given, wanted = normal(answer), normal(reference)
    common = sum((Counter(given) & Counter(wanted)).values())
    expected = 2 * common / (len(given) + len(wanted)) if common else 0.0
    assert score("f1_score", answer, reference, tokenizer="squad") == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("name", "settings", "package"),
    [("bleu", {}, "sacrebleu"), ("chrf", {}, "sacrebleu"), ("f1_score", {"tokenizer": "jieba"}, "jieba")],
)
def test_a_missing_package_is_named(
    name: str, settings: dict[str, Any], package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=f"pip install {package}"):
        RewardRegistry.create(name, **settings).check()
