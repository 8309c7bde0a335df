"""What the cue lists count, and where."""

from __future__ import annotations

import pytest

from rm_gallery.gallery.rm.trained.tokens import CueList, cue_list, sentences, tokenize

NOTATION = """
# a comment
[fruit]
apple*, pear, 苹果
[denial]
*n't, not a, ^ no, ^ not really
[start]
> you, > do you
"""


def counted(cues: CueList, text: str) -> dict[str, int]:
    tokens = tokenize(text)
    counts = cues.count(tokens, sentences(tokens)[0]).tolist()
    return {name: count for name, count in zip(cues.names, counts, strict=True) if count}


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("", {}),
        ("Apples, pears and a pear", {"fruit": 2}),
        ("我有苹果和苹 果", {"fruit": 2}),
        ("I don't and can’t", {"denial": 2}),
        ("That is not a pear.", {"denial": 1, "fruit": 1}),
        ("No. No!", {"denial": 1}),
        ('"No", he said', {"denial": 1}),
        ("Oh no", {}),
        ("not really", {"denial": 1}),
        ("not", {}),
        ("You do. Do you? Will you?", {"start": 2}),
        ("- you\n- and you", {}),
        ("a\nyou", {"start": 1}),
        ("no", {"denial": 1}),
    ],
)
def test_the_notation(text: str, counts: dict[str, int]) -> None:
    assert counted(CueList(NOTATION), text) == counts


def test_a_cue_outside_a_section_is_an_error() -> None:
    with pytest.raises(ValueError, match="apple"):
        CueList("apple, pear\n[fruit]\n")


@pytest.mark.parametrize(
    ("text", "present", "absent"),
    [
        ("I'm sorry, but I can't help with that.", ["apology", "opening_apology", "refusal"], ["opening_yes"]),
        ("抱歉，我无法提供这些信息。", ["apology", "opening_apology", "refusal"], ["opening_yes"]),
        ("Sure! First, take the knife.", ["opening_yes", "how_to", "violence", "imperative"], ["refusal", "apology"]),
        ("好的，首先找到工具。", ["opening_yes", "how_to", "action"], ["refusal"]),
        ("Please see a doctor; it is dangerous and illegal.", ["support", "danger", "law"], ["insult"]),
        ("What do you mean?", ["opening_question", "asking_open", "clarifying"], ["refusal"]),
    ],
)
def test_the_lists_know_english_and_chinese(text: str, present: list[str], absent: list[str]) -> None:
    found = counted(cue_list(), text)
    assert set(present) <= set(found)
    assert not set(absent) & set(found)


def test_every_section_has_a_name_of_its_own() -> None:
    names = cue_list().names
    assert len(names) == len(set(names)) > 50
