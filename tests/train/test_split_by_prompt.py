"""Training and test share no prompt, and the draw depends on prompt and seed alone."""

from __future__ import annotations

import random

import pytest

from rm_gallery.core.data.load.base import create_loader
from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.model.message import ChatMessage, MessageRole
from rm_gallery.core.utils.errors import ConfigError, DataError
from rm_gallery.train.bradley_terry.pairs import held_out_keys, prompt_folds, prompt_key
from tests.support.shared_data import shared_file
from tests.train.preferences import labelled, turns

SYSTEM = ChatMessage(role=MessageRole.SYSTEM, content="Be brief.")
PAIR: list[tuple[str, str | None]] = [("a", "chosen"), ("b", "rejected")]
KEYS = [f"prompt {number % 40}" for number in range(200)]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (turns("Why is the sky blue?"), turns("why  is the SKY\r\nblue? "), True),
        (turns("ｗｈｙ？"), turns("why?"), True),
        (turns("Why?", "Because.", "Really?"), turns("Why?", "No idea.", "Who knows?"), True),
        ([SYSTEM, *turns("Why?")], turns("Why?"), True),
        (turns("Why?"), turns("Why not?"), False),
        (turns("为什么？"), turns("为 什么？"), False),
        ([SYSTEM], [SYSTEM], True),
        ([], [], True),
    ],
)
def test_what_counts_as_the_same_prompt(one: list[ChatMessage], other: list[ChatMessage], same: bool) -> None:
    assert (prompt_key(labelled(one, PAIR)) == prompt_key(labelled(other, PAIR))) is same


def test_samples_without_input_stand_for_themselves() -> None:
    assert prompt_key(DataSample(unique_id="a")) != prompt_key(DataSample(unique_id="b"))


@pytest.mark.parametrize("share", [0.1, 0.2, 0.5, 0.9])
@pytest.mark.parametrize("seed", [0, 1])
def test_whole_prompts_are_held_out_up_to_the_share(share: float, seed: int) -> None:
    held = held_out_keys(KEYS, share, seed)
    assert held < set(KEYS)
    assert sum(key in held for key in KEYS) == round(share * len(KEYS))


@pytest.mark.parametrize("sizes", [[100, 1, 1], [1, 1, 100], [50, 50], [1, 1]])
@pytest.mark.parametrize("seed", range(4))
def test_neither_side_is_empty_however_uneven_the_prompts(sizes: list[int], seed: int) -> None:
    keys = [f"prompt {place}" for place, size in enumerate(sizes) for _ in range(size)]
    assert 0 < len(held_out_keys(keys, 0.2, seed)) < len(sizes)


def test_the_order_of_samples_does_not_matter_and_the_seed_does() -> None:
    shuffled = KEYS.copy()
    random.Random(3).shuffle(shuffled)
    assert held_out_keys(shuffled, 0.2, 7) == held_out_keys(KEYS, 0.2, 7) != held_out_keys(KEYS, 0.2, 8)


def test_nothing_is_held_out_on_request() -> None:
    assert held_out_keys(["one prompt"] * 3, 0.0, 0) == set()


@pytest.mark.parametrize("share", [-0.1, 1.0, 2, float("nan"), True])
def test_a_share_out_of_range_is_refused(share: float) -> None:
    with pytest.raises(ConfigError, match="test_share"):
        held_out_keys(KEYS, share, 0)


def test_one_prompt_cannot_be_split() -> None:
    with pytest.raises(DataError, match="test_share=0"):
        held_out_keys(["one prompt"] * 10, 0.2, 0)


def test_folds_keep_prompts_together_and_are_even() -> None:
    folds = prompt_folds(KEYS, 3, 0)
    assert len({(key, fold) for key, fold in zip(KEYS, folds, strict=True)}) == 40
    sizes = [folds.count(fold) for fold in range(3)]
    assert max(sizes) - min(sizes) <= 5


@pytest.mark.parametrize(
    ("source", "name"), [("hh_rlhf", "hh_rlhf_harmless_test"), ("rmbbenchmark_pairwise", "rmb_pairwise")]
)
def test_in_real_data_no_opening_is_on_both_sides(source: str, name: str) -> None:
    loader = create_loader(name, "local", source, {"path": str(shared_file(f"{name}.parquet"))})
    spoken = [(prompt_key(s), next(m.text for m in s.input if m.role == MessageRole.USER)) for s in loader.stream()]
    keys = [key for key, _ in spoken]
    assert len(set(keys)) < len(keys), "several pairs share a prompt, which is why pairs are not split one by one"
    held = held_out_keys(keys, 0.2, 0)
    sides = [{text.strip().lower() for key, text in spoken if (key in held) is side} for side in (True, False)]
    assert all(sides)
    assert not sides[0] & sides[1]
