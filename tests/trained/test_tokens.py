"""Tokens: what the golden files cannot hold (`tests/golden/train`)."""

from __future__ import annotations

import pytest

from rm_gallery.gallery.rm.trained.tokens import (
    HASH_BITS,
    TokenTable,
    cue_list,
    hashed_features,
    sentences,
    tokenize,
    word_hash,
)


@pytest.mark.parametrize("text", ["It's 4 o'clock_now:\n\n- a\n* b''c 'd' x_y", "".join(map(chr, range(128))) * 2])
def test_the_short_cut_for_ascii_changes_nothing(text: str) -> None:
    assert [*tokenize(text), "é"] == tokenize(f"{text} É"), "a letter beyond ASCII makes the text take the long way"


def test_half_a_surrogate_pair_is_a_token() -> None:
    assert tokenize("half \ud800 pair") == ["half", "\ud800", "pair"]
    assert hashed_features(tokenize("我不能 \ud800")).tolist() == [6026, 38479, 91223, 99732, 183457, 198411, 218858]


def test_hashed_features_are_distinct_words_and_pairs_in_range() -> None:
    once, twice = (hashed_features(["a", "b"] * times).tolist() for times in (1, 2))
    assert len(once) == 3 and 0 <= once[0] < once[1] < once[2] < 1 << HASH_BITS
    assert set(once) < set(twice) and len(twice) == 4, "the pair b a is new"
    assert word_hash("help") == 143088812


def test_the_table_of_known_tokens_is_bounded() -> None:
    asked: list[str] = []

    def compute(token: str) -> int:
        asked.append(token)
        return len(token)

    table = TokenTable(compute)
    table.LIMIT = 3
    long, longer = "x" * 64, "x" * 65
    assert [table[token] for token in ("a", long, "a", longer, longer, long)] == [1, 64, 1, 65, 65, 64]
    assert asked == ["a", long, longer, longer], "longer tokens are not kept"
    for number in range(100):
        assert table[str(number)] == len(str(number))
        assert len(table) <= 3


def test_every_section_of_cues_has_a_name_of_its_own() -> None:
    names = cue_list().names
    assert len(names) == len(set(names)) > 50
    assert sentences([]) == ([], [])
