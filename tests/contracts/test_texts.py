"""What a text says counts, and not how its characters are written: for every registered rule, on
the answer's side and on the reference's.

Rules come from the registry. One whose score depends on a text's form says so in `looks_at`, and is
left out of those changes alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import pytest

from rm_gallery import BaseReward, DataSample, RewardRegistry
from rm_gallery.core.text.canonical import (
    Form,
    fold,
    normalized,
    readable,
    split_reasoning,
    turn_text,
    visible,
    whole_word,
)
from tests.gallery import registry_cases
from tests.gallery.registry_cases import example_of
from tests.support.choice import apart

RULES = [name for name in RewardRegistry.list() if example_of(name).judge is None]

TURN_ENDS = {
    "ChatML, Qwen, Yi, Kimi": "<|im_end|>", "GPT-2, Falcon, GLM": "<|endoftext|>", "Llama 2, Mistral": "</s>", "Llama 3": "<|eot_id|>",
    "Llama 3, base": "<|end_of_text|>", "Llama 3, tools": "<|eom_id|>", "Llama 4": "<|eot|>", "Gemma": "<end_of_turn>", "Gemma, base": "<eos>",
    "DeepSeek": "<｜end▁of▁sentence｜>", "GLM": "<|user|>", "GLM, tools": "<|observation|>", "Phi": "<|end|>", "Cohere": "<|END_OF_TURN_TOKEN|>",
    "harmony": "<|return|>", "Kimi": "[EOS]", "InternLM": "<eoa>", "EXAONE": "[|endofturn|]", "MiniMax": "[e~[", "Seed": "<seed:eos>",
    "SmolVLM": "<end_of_utterance>", "padding": "</s><pad><pad>", "on lines": "<|im_end|>\n<|endoftext|>\n",
}  # fmt: skip
THOUGHTS = {
    "think": "<think>Perhaps 987 or H.</think>\n\n{}", "thinking": "<thinking>Perhaps 987.</thinking>{}", "reasoning": "<reasoning>987?</reasoning>\n{}",
    "square": "[THINK]987?[/THINK]{}", "kimi": "◁think▷987?◁/think▷{}", "closing tag": "Perhaps 987 or H.\n</think>\n\n{}",
    "twice": "<think>987</think>\n<think>988</think>\n{}", "inside": "<think>a <think>987</think> b</think>\n{}",
    "harmony": "<|channel|>analysis<|message|>987?<|end|><|start|>assistant<|channel|>final<|message|>{}<|return|>",
    "joined": "<th\u200bink>987</think>\n\n{}",
}  # fmt: skip
JOINED = {
    "Persian": "می\u200cخواهم بروم خانه", "Hindi": "क्\u200dष और हिन्दी", "Khmer": "ខ្ញុំ\u200bស្រលាញ់\u200bភាសា\u200bខ្មែរ",
    "emoji": "👩\u200d👩\u200d👧 ❤\ufe0f", "German": "Donau\u00addampf\u00adschiff",
}  # fmt: skip
DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63\uff0d"


class Change(NamedTuple):
    """A way of writing a text, and what of its form it changes."""

    name: str
    write: Callable[[str], str]
    form: Form


def _ends_with(mark: str) -> Callable[[str], str]:
    return lambda text: text + mark


ENDS = [Change(name, _ends_with(mark), "ends") for name, mark in TURN_ENDS.items()]
ANSWERS = [
    *ENDS,
    Change("BOM", lambda text: "\ufeff" + text, "ends"),
    Change("ZWSP behind", lambda text: text + "\u200b", "ends"),
    Change("CRLF", lambda text: text.replace("\n", "\r\n"), "ends"),
    *(Change(f"thought: {name}", form.format, "thought") for name, form in THOUGHTS.items()),
    Change(
        "soft hyphens", lambda text: re.sub(r"(?<=[a-z])(?=[a-z])", "\u00ad", text), "characters"
    ),
    Change("no-break spaces", lambda text: text.replace(" ", "\u00a0"), "characters"),
]
REFERENCES = [
    Change("BOM", lambda text: "\ufeff" + text, "ends"),
    Change("ZWSP behind", lambda text: text + "\u200b", "ends"),
    Change("CRLF", lambda text: text.replace("\n", "\r\n"), "ends"),
]
WORDS = [
    Change("line end", lambda text: text + "\r\n", "ends"),
    Change("turn's end", lambda text: text + "<|im_end|>", "ends"),
    Change("joiners", lambda text: re.sub(r"(?<=\w)(?=\w)", "\u200c", text), "characters"),
]
WORDED = ("reference", "references", "choices", "aliases", "label")
"""Keys of texts that are compared as text; others hold code, patterns or names."""


@cache
def _reward(name: str) -> BaseReward:
    reward = registry_cases.create(name)
    if reason := registry_cases.missing(reward):
        pytest.skip(reason)
    return reward


def _scores(name: str, samples: list[DataSample]) -> list[list[tuple[float | None, list[str]]]]:
    done = _reward(name).evaluate_batch(samples)
    places = [[output.answer.reward for output in sample.output] for sample in done]
    return [
        [(place.score, [issue.reason for issue in place.issues]) for place in sample]
        for sample in places
    ]


def _answered(sample: DataSample, write: Callable[[str], str]) -> DataSample:
    copy = sample.model_copy(deep=True)
    for output in copy.output:
        output.answer.content = write(output.answer.text)
    return copy


def _written(value: Any, write: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return write(value)
    return [_written(item, write) for item in value] if isinstance(value, list) else value


def _referred(sample: DataSample, change: Change) -> DataSample:
    copy = sample.model_copy(deep=True)
    for known in (copy.metadata or {}, *(output.answer.label or {} for output in copy.output)):
        for key in known:
            if key in WORDED or (change in REFERENCES and key != "instruction_id_list"):
                known[key] = _written(known[key], change.write)
    return copy


def _alike(name: str, samples: dict[str, DataSample]) -> None:
    """Every sample has the scores of the first one."""
    wanted, *found = _scores(name, list(samples.values()))
    differ = {
        key: scores for key, scores in zip([*samples][1:], found, strict=True) if scores != wanted
    }
    assert not differ, (wanted, differ)


@pytest.mark.parametrize("name", apart(RULES, "starts programs", "unisolated_command_judge"))
def test_a_rule_reads_an_answer_however_it_is_written(name: str) -> None:
    sample, looks = registry_cases.fitting(name)[0], _reward(name).looks_at
    changes = {
        change.name: _answered(sample, change.write)
        for change in ANSWERS
        if change.form not in looks
    }
    _alike(name, {"": sample, **changes})


@pytest.mark.parametrize("name", apart(RULES, "starts programs", "unisolated_command_judge"))
def test_a_rule_reads_what_it_compares_with_however_it_is_written(name: str) -> None:
    sample, looks = registry_cases.fitting(name)[0], _reward(name).looks_at
    changes = {
        change.name: _referred(sample, change)
        for change in [*REFERENCES, *WORDS]
        if change.form not in looks
    }
    _alike(name, {"": sample, **changes})


def _same_text(name: str, given: str, wanted: str) -> DataSample | None:
    """The example with `wanted` for its reference, and in its first answer `given` for that; None
    where it has no reference of words.
    """
    sample = registry_cases.fitting(name)[0]
    known = sample.metadata or {}
    reference = known.get("reference")
    reference = reference[0] if isinstance(reference, list) else reference
    if not isinstance(reference, str):
        return None
    known["reference"] = wanted
    if "choices" in known:
        known["choices"] = [wanted, *known["choices"]]
    answer = sample.output[0].answer
    answer.content = answer.text.replace(reference, given) if reference in answer.text else given
    return sample


@pytest.mark.parametrize("name", RULES)
def test_a_text_equals_itself_with_and_without_its_joiners(name: str) -> None:
    if "characters" in _reward(name).looks_at or _same_text(name, "", "") is None:
        return
    for text in JOINED.values():
        bare = visible(text)
        assert bare != text
        pairs = {
            "": (text, text),
            "answer": (bare, text),
            "reference": (text, bare),
            "both": (bare, bare),
        }
        samples = {key: _same_text(name, *pair) for key, pair in pairs.items()}
        _alike(name, {key: sample for key, sample in samples.items() if sample is not None})


@pytest.mark.parametrize(
    "name", ["accuracy", "f1_score", "rouge", "bleu", "chrf", "search_answer", "choice_match"]
)
def test_a_text_in_any_script_is_right_against_itself(name: str) -> None:
    for text in JOINED.values():
        sample = _same_text(name, text, text)
        assert sample is not None
        score = _scores(name, [sample])[0][0][0]
        if score is None:
            assert name in ("f1_score", "rouge") and not re.search(r"\w", text), text
        else:
            assert score > 0.999, text


@pytest.mark.parametrize("name", RULES)
def test_every_dash_before_a_number_is_a_minus(name: str) -> None:
    if "characters" in _reward(name).looks_at or _same_text(name, "", "") is None:
        return
    for wanted in ("-42", "42"):
        pairs = {"": ("-42", wanted)} | {
            f"U+{ord(dash):04X}": (f"{dash}42", wanted) for dash in DASHES
        }
        pairs |= {
            f"{key}, reference": (given, wanted.replace("-", given[0]))
            for key, (given, _) in pairs.items()
            if key
        }
        samples = {key: _same_text(name, *pair) for key, pair in pairs.items()}
        _alike(name, {key: sample for key, sample in samples.items() if sample is not None})


@pytest.mark.parametrize("text", JOINED.values(), ids=JOINED)
def test_values_of_json_compare_as_texts_do(text: str) -> None:
    bare = visible(text)
    for given, wanted in ((text, text), (bare, text), (text, bare)):
        schema = registry_cases.fitting("json_schema")[0]
        schema.metadata = {"schema": {"properties": {"a": {"const": wanted}}}}
        schema.output[0].answer.content = json.dumps({"a": given}, ensure_ascii=False)
        call = registry_cases.fitting("tool_call_match")[0]
        call.metadata = {"tool_calls": [{"name": "post", "arguments": {"text": wanted}}]}
        arguments = json.dumps({"text": given}, ensure_ascii=False)
        call.output[
            0
        ].answer.content = f'<tool_call>{{"name": "post", "arguments": {arguments}}}</tool_call>'
        for name, sample in (("json_schema", schema), ("tool_call_match", call)):
            assert _scores(name, [sample])[0][0] == (1.0, []), (name, given, wanted)


def test_code_runs_as_it_is_written() -> None:
    text = JOINED["emoji"]
    sample = registry_cases.fitting("code_unit_tests")[0]
    sample.metadata = {"tests": [f"assert family() == {ascii(text)}"]}
    sample.output[
        0
    ].answer.content = f"```python\ndef family():\n    return '{text}'\n```<|im_end|>"
    assert _scores("code_unit_tests", [sample])[0][0] == (1.0, [])


def test_paragraphs_are_those_of_the_final_text() -> None:
    sample = registry_cases.fitting("ifeval")[0]
    first = {"num_paragraphs": 2, "nth_paragraph": 1, "first_word": "sea"}
    sample.metadata = {
        "instruction_id_list": ["length_constraints:nth_paragraph_first_word"],
        "kwargs": [first],
    }
    for thought in (
        "",
        *(form.partition("{}")[0] for form in THOUGHTS.values()),
        "<think>a\n\nb</think>\n\n",
        "\n\n",
    ):
        sample.output[0].answer.content = f"{thought}Sea and sky.\n\nSky and sea.\n\n"
        assert _scores("ifeval", [sample])[0][0] == (1.0, []), thought


def test_the_text_itself_keeps_its_characters() -> None:
    for text in JOINED.values():
        assert turn_text(text) == text
        assert split_reasoning(f"<think>{text}</think>{text}<|im_end|>").final == text


@pytest.mark.parametrize("mark", TURN_ENDS.values())
def test_a_mark_of_a_turns_end_inside_a_text_stays(mark: str) -> None:
    text = f"The mark {mark} ends a turn."
    assert turn_text(text) == text
    assert turn_text(f"{text}{mark}") == text


def test_what_only_looks_like_the_end_of_a_turn_stays() -> None:
    kept = (
        "It is <s>5</s>",
        "a[i]",
        "<|tool_call_end|>",
        "x<|end_of_box|>",
        "<answer>5</answer>",
        "<|end_of_thought|>",
    )
    for text in kept:
        assert turn_text(text) == text


def test_a_word_is_whole_in_every_script() -> None:
    def holds(text: str, word: str) -> bool:
        return re.search(whole_word(word), text) is not None

    inside = (
        ("недостоверно", "верно"),
        ("unwahr", "wahr"),
        ("हिंदी", "हिंद"),
        ("naïvely", "na"),
        ("٤٢٣", "٤٢"),
    )
    whole = (
        ("это верно.", "верно"),
        ("答案是好的", "好"),
        ("我选yes了", "yes"),
        ("हिंदी।", "हिंदी"),
        ("a_b", "b"),
    )
    assert not any(holds(*pair) for pair in inside)
    assert all(holds(*pair) for pair in whole)


@pytest.mark.parametrize("word", ["हिंदी", "কী", "தமிழ்", "తెలుగు", "كَتَبَ", "שָׁלוֹם", "e\u0301te\u0301"])
def test_a_word_that_ends_in_a_mark_ends_there(word: str) -> None:
    """A vowel sign, a virama, harakat, niqqud or an accent is a part of its word, at either end of
    it.
    """
    letter = word[0]
    pattern = re.compile(whole_word(word))
    for text in (word, f"({word})", f"{letter} {word}, {letter}", f"_{word}_", f"选{word}了"):
        assert pattern.search(text), text
    for text in (f"{word}{letter}", f"{letter}{word}", f"{word}{word[-1]}", f"{word}4", f"4{word}"):
        assert not pattern.search(text), text
    # without its last mark it is another word
    bare = word[:-1]
    assert not re.search(whole_word(bare), word) and not re.search(whole_word(word), bare)
    mark = word[-1]
    assert not re.search(whole_word(f"{mark}{letter}"), f"{letter}{mark}{letter}")


def test_what_is_folded() -> None:
    assert readable("−5 –5 3–5 ‑.5 a–b –\\frac12") == "-5 -5 3–5 -.5 a–b -\\frac12"
    assert readable("٤٢ ۴۲ ४२ ৪২ ๔๒ ４２ 𝟒𝟐") == " ".join(["42"] * 7)
    assert readable("x²\u00a0½") == "x² ½"
    assert fold("don’t “say” e\u0301") == 'don\'t "say" é'


def test_many_marks_on_one_letter_are_normalized_in_linear_time() -> None:
    """The standard library sorts them by insertion: the pieces show that it never gets more than a
    few at once.
    """
    text = "a" + "\u0301\u0323" * 100_000
    assert len(normalized("NFC", text)) >= 100_000
