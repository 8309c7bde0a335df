"""A tokenizer may be a name, a function, or an object as transformers, tokenizers and others have them."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from rm_gallery.core.reward.registry import RewardRegistry
from tests.support.samples import make_sample, scores


class Encoder:
    """With special tokens, unless they are left out."""

    name_or_path = "toy"

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return [0] * add_special_tokens + [1] * len(text.split())

    def add_special_tokens(self) -> None:
        raise AssertionError("only its presence is looked at")


class Encoded(NamedTuple):
    ids: list[int]


class Plain:
    def encode(self, text: str) -> Encoded:
        return Encoded([5] * len(text.split()))


@pytest.mark.parametrize("tokenizer", ["whitespace", str.split, Encoder(), Plain()])
def test_tokens_are_counted(tokenizer: Any) -> None:
    reward = RewardRegistry.create(
        "dapo_soft_overlong_punishment", unit="tokens", tokenizer=tokenizer, max_length=10, cache=10
    )
    assert scores(reward.evaluate(make_sample("one two three"))) == [pytest.approx(-0.3)]


@pytest.mark.parametrize("tokenizer", [lambda text: [5] * 5, Plain()])
def test_repetitions_are_counted_in_its_tokens(tokenizer: Any) -> None:
    reward = RewardRegistry.create("ngram_repetition_penalty", n=2, tokenizer=tokenizer)
    assert scores(reward.evaluate(make_sample("a b c d e"))) == [pytest.approx(-0.45)]


def test_its_name_stands_in_the_description() -> None:
    reward = RewardRegistry.create("dapo_soft_overlong_punishment", unit="tokens", tokenizer=Encoder())
    assert reward.describe()["tokenizer"]["name_or_path"] == "toy"
    assert "Encoder(toy)" in reward.model_dump_json()
