"""Each published instruction type: a response that follows it, and one that does not."""

from __future__ import annotations

from typing import Any

import pytest

from rm_gallery.gallery.rm.instruction.ifeval import INSTRUCTIONS, follows

PUBLISHED = """
keywords:existence keywords:frequency keywords:forbidden_words keywords:letter_frequency language:response_language
length_constraints:number_sentences length_constraints:number_paragraphs length_constraints:number_words
length_constraints:nth_paragraph_first_word detectable_content:number_placeholders detectable_content:postscript
detectable_format:number_bullet_lists detectable_format:constrained_response detectable_format:number_highlighted_sections
detectable_format:multiple_sections detectable_format:json_format detectable_format:title combination:two_responses
combination:repeat_prompt startend:end_checker startend:quotation change_case:capital_word_frequency
change_case:english_capital change_case:english_lowercase punctuation:no_comma
""".split()

KEYWORDS = {"keywords": ["river", "C++ (new)"]}
ONCE = {"keyword": "cat", "frequency": 2, "relation": "at least"}
FEWER = {"keyword": "cat", "frequency": 2, "relation": "less than"}
FORBIDDEN = {"forbidden_words": ["art", "C++", "战争"]}
LETTER = {"letter": "E", "let_frequency": 3, "let_relation": "at least"}
SENTENCES = {"num_sentences": 2, "relation": "at least"}
WORDS = {"num_words": 4, "relation": "less than"}
THIRD = {"num_paragraphs": 3, "nth_paragraph": 3, "first_word": "Finally"}
CAPITALS = {"capital_frequency": 3, "capital_relation": "at least"}
SECTIONS = {"section_spliter": "PART", "num_sections": 2}

CASES: list[tuple[str, dict[str, Any], str, bool]] = [
    ("keywords:existence", KEYWORDS, "The RIVERS of c++ (New)", True),
    ("keywords:existence", KEYWORDS, "The river of C", False),
    ("keywords:frequency", ONCE, "Cats concatenate.", True),
    ("keywords:frequency", ONCE, "A cat.", False),
    ("keywords:frequency", FEWER, "A cat.", True),
    ("keywords:frequency", FEWER, "cat cat", False),
    ("keywords:forbidden_words", FORBIDDEN, "The party of arts, C+", True),
    ("keywords:forbidden_words", FORBIDDEN, "Fine ART.", False),
    ("keywords:forbidden_words", FORBIDDEN, "written in c++.", False),
    ("keywords:forbidden_words", FORBIDDEN, "没有战争的世界", False),
    ("keywords:letter_frequency", LETTER, "Eve slept", True),
    ("keywords:letter_frequency", LETTER, "Eve", False),
    ("keywords:letter_frequency", {"letter": "#", "let_frequency": 1, "let_relation": "less than"}, "# a", False),
    ("language:response_language", {"language": "de"}, "Das ist ein Haus und kein Boot.", True),
    ("language:response_language", {"language": "de"}, "This is a house and not a boat.", False),
    ("language:response_language", {"language": "zh-cn"}, "这是一座房子。", True),
    ("language:response_language", {"language": "kn"}, "42!", True),
    ("length_constraints:number_sentences", SENTENCES, "Dr. Who left. She ran!", True),
    ("length_constraints:number_sentences", SENTENCES, "Dr. Who left at 3.30 p.m. by car", False),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "one\n***\ntwo\n***", True),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "one\n***\n***\ntwo", False),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "one\n\ntwo", False),
    ("length_constraints:number_words", WORDS, "don't stop", True),
    ("length_constraints:number_words", WORDS, "one two three four", False),
    ("length_constraints:number_words", WORDS, "四个汉字", False),
    ("length_constraints:nth_paragraph_first_word", THIRD, 'One.\n\nTwo.\n\n"FINALLY," she said.', True),
    ("length_constraints:nth_paragraph_first_word", THIRD, "One.\n\nTwo.\n\nAnd finally three.", False),
    ("length_constraints:nth_paragraph_first_word", THIRD, "One.\n\nFinally two.", False),
    ("length_constraints:nth_paragraph_first_word", THIRD, "One.\n\n\n\nTwo.\n\nFinally three.", False),
    ("detectable_content:number_placeholders", {"num_placeholders": 2}, "Dear [name], [city]", True),
    ("detectable_content:number_placeholders", {"num_placeholders": 2}, "Dear [name], [ci\nty]", False),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, "Bye.\n\np. s. more", True),
    ("detectable_content:postscript", {"postscript_marker": "P.P.S"}, "Bye.\nP.S. more", False),
    ("detectable_content:postscript", {"postscript_marker": "P.P.S"}, "Bye.\nP. P. S more", True),
    ("detectable_content:postscript", {"postscript_marker": "N.B. (end)"}, "Bye.\nn.b. (END) more", True),
    ("detectable_format:number_bullet_lists", {"num_bullets": 3}, "Points:\n* a\n  * b\n- c", True),
    ("detectable_format:number_bullet_lists", {"num_bullets": 3}, "**Points**\n* a\n* b", False),
    ("detectable_format:number_bullet_lists", {"num_bullets": 1}, "* a\n* b", False),
    ("detectable_format:constrained_response", {}, "Well. My answer is maybe.", True),
    ("detectable_format:constrained_response", {}, "My answer is yes!", False),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 2}, "*a* and **b**", True),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 2}, "*a* and ** ** and *b\nc*", False),
    ("detectable_format:multiple_sections", SECTIONS, "PART 1\na\nPART 2\nb\nPART 3", True),
    ("detectable_format:multiple_sections", SECTIONS, "Part 1\na\nPART 2\nb", False),
    ("detectable_format:json_format", {}, '```json\n{"a": [1, "é"]}\n```', True),
    ("detectable_format:json_format", {}, "[1, 2]", True),
    ("detectable_format:json_format", {}, 'Here: {"a": 1}', False),
    ("detectable_format:title", {}, "<<A poem>>\ntext", True),
    ("detectable_format:title", {}, "<< >>\n<<a\n>>", False),
    ("combination:two_responses", {}, "yes\n******\nno", True),
    ("combination:two_responses", {}, "******\nyes\n******\nno\n******", True),
    ("combination:two_responses", {}, "yes\n******\nyes", False),
    ("combination:two_responses", {}, "a******b******c", False),
    ("combination:repeat_prompt", {"prompt_to_repeat": "Say (hi)."}, " say (hi). Hi!", True),
    ("combination:repeat_prompt", {"prompt_to_repeat": "Say (hi)."}, "Hi! Say (hi).", False),
    ("startend:end_checker", {"end_phrase": " Any questions? "}, 'That is it. "any questions?"\n', True),
    ("startend:end_checker", {"end_phrase": "Any questions?"}, "Any questions? Bye", False),
    ("startend:quotation", {}, ' "all of it" ', True),
    ("startend:quotation", {}, '"', False),
    ("change_case:capital_word_frequency", CAPITALS, "I SAW STATE-OF-THE-ART work", True),
    ("change_case:capital_word_frequency", CAPITALS, "DON'T touch THE Art", False),
    ("change_case:capital_word_frequency", {"capital_frequency": 1, "capital_relation": "less than"}, "no", True),
    ("change_case:english_capital", {}, "THIS IS THE HOUSE OF THE CAT.", True),
    ("change_case:english_capital", {}, "THIS IS THE HOUSE of THE CAT.", False),
    ("change_case:english_capital", {}, "DAS IST DAS HAUS DER KATZE UND DES HUNDES.", False),
    ("change_case:english_lowercase", {}, "this is the house of the cat.", True),
    ("change_case:english_lowercase", {}, "This is the house of the cat.", False),
    ("change_case:english_lowercase", {}, "123", False),
    ("punctuation:no_comma", {}, "One; two.", True),
    ("punctuation:no_comma", {}, "One, two.", False),
    ("punctuation:no_comma", {}, "一，二。", False),
]


def test_every_published_id_is_known_and_tested() -> None:
    assert sorted(INSTRUCTIONS) == sorted(PUBLISHED)
    assert {name for name, _, _, verdict in CASES if verdict} == set(PUBLISHED)
    assert {name for name, _, _, verdict in CASES if not verdict} == set(PUBLISHED)


@pytest.mark.parametrize(("name", "kwargs", "text", "verdict"), CASES)
def test_verdict(name: str, kwargs: dict[str, Any], text: str, verdict: bool) -> None:
    assert follows(text, name, kwargs) is verdict


@pytest.mark.parametrize(("name", "kwargs", "text", "verdict"), [c for c in CASES if c[3]])
def test_nothing_follows_from_a_blank_response(name: str, kwargs: dict[str, Any], text: str, verdict: bool) -> None:
    assert not follows(" \n", name, kwargs)
    assert not follows("", name, kwargs, loose=True)
