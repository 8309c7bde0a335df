"""Every scenario exists in three kinds under its names, importable, documented, and with texts in
both languages.
"""

from __future__ import annotations

import importlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rm_gallery import DataError, RewardRegistry
from rm_gallery.gallery.rm import KINDS, discover, judged_class_name, judged_name, scenario_keys
from rm_gallery.gallery.rm.alignment import base
from rm_gallery.gallery.rm.alignment.base import scenario

KEYS = scenario_keys()
RANGES = {"listwise": (0.0, 1.0), "pointwise": (1.0, 10.0), "pairwise": (0.0, 1.0)}


def test_twenty_scenarios_in_three_kinds() -> None:
    assert len(KEYS) >= 20 and {judged_name(key, kind) for key in KEYS for kind in KINDS} <= set(
        RewardRegistry.list()
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("key", KEYS)
def test_a_class_is_what_its_name_says(key: str, kind: str) -> None:
    name = judged_name(key, kind)
    module, _, attribute = discover()[name].partition(":")
    found: Any = getattr(importlib.import_module(module), attribute)
    assert RewardRegistry.get(name) is found
    assert (found.__module__, found.__qualname__) == (module, judged_class_name(key, kind))
    assert (found.kind, found.score_range, found.judged) == (
        kind,
        RANGES[kind],
        True,
    ) and found().name == name
    assert all(rubric in str(found.__doc__) for rubric in scenario(key).texts("en").rubrics)


@pytest.mark.parametrize("key", KEYS)
def test_a_scenario_says_the_same_in_both_languages_and_has_an_example(key: str) -> None:
    rubric = scenario(key)
    assert rubric.model_fields_set - {"family", "work"} == {"en", "zh", "example"}
    for language, stop in (("en", "."), ("zh", "。")):
        entry = rubric.texts(language)
        assert entry.model_fields_set == {"scenario", "desc", "criteria", "levels"}
        assert 3 <= len(entry.rubrics) <= 5 == len(entry.levels)
        assert stop in entry.scenario[:-1], "a title comes first, then a line about it"
        assert all(
            isinstance(text, str) and text.endswith(stop)
            for text in (*entry.rubrics, *entry.levels, entry.desc)
        )
    assert len(rubric.texts("en").rubrics) == len(rubric.texts("zh").rubrics)
    example = rubric.example
    assert example is not None
    assert [phrase in example.better for phrase in example.phrases] == [True, False]
    assert [phrase in example.worse for phrase in example.phrases] == [False, True]
    assert not any(phrase in example.question for phrase in example.phrases)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_no_two_scenarios_share_a_sentence(language: str) -> None:
    entries = [scenario(key).texts(language) for key in KEYS]
    sentences = Counter(
        text for entry in entries for text in (entry.desc, *entry.rubrics, *entry.levels)
    )
    assert [sentence for sentence, times in sentences.items() if times > 1] == []


@pytest.mark.parametrize(
    "text", ["en: {scenario: A. B., desc: C., rubrics: []}", "- a", "en: [", "en: text"]
)
def test_a_broken_scenario_is_named(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "half.yaml").write_text(text, encoding="utf-8")
    monkeypatch.setattr(base, "SCENARIOS", tmp_path)
    with pytest.raises(DataError, match=r"half\.yaml: not a judged scenario"):
        scenario("half")
