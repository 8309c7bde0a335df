"""Tokens: what the golden files cannot hold (`tests/golden/train`)."""

from __future__ import annotations

import pytest

from rm_gallery.gallery.rm.trained.tokens import (
    cue_list,
    hashed_features,
    sentences,
    tokenize,
)


@pytest.mark.parametrize("text", ["It's 4 o'clock_now:\n\n- a\n* b''c 'd' x_y", "".join(map(chr, range(128))) * 2])
def test_the_short_cut_for_ascii_changes_nothing(text: str) -> None:
    assert [*tokenize(text), "é"] == tokenize(f"{text} É"), "a letter beyond ASCII makes the text take the long way"


def test_half_a_surrogate_pair_is_a_token() -> None:
    assert tokenize("half \ud800 pair") == ["half", "\ud800", "pair"]
    assert hashed_features(tokenize("我不能 \ud800")).tolist() == [6026, 38479, 91223, 99732, 183457, 198411, 218858]


def test_every_section_of_cues_has_a_name_of_its_own() -> None:
    names = cue_list().names
    assert len(names) == len(set(names)) > 50
    assert sentences([]) == ([], [])
