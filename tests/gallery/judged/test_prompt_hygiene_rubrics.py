"""Rubrics reach the prompt under either name, and a keyword that is none is an error, not silence."""

from __future__ import annotations

import pytest

from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.utils.errors import ConfigError
from tests.gallery.judged.material import ONE_OF_EACH, judged
from tests.gallery.judged.prompts import FEW, FEW_ID, answers_for, first_prompt, prompts_of, sample_of, shown

OWN = ["QONEQ comes first.", "QTWOQ comes second."]
MISSPELT = {
    "rubrik": "rubrics",
    "principle": "principles",
    "descr": "desc",
    "languge": "language",
    "show_references": "show_reference",
}


@pytest.mark.parametrize("keyword", ["rubrics", "principles"])
@pytest.mark.parametrize(("name", "language"), FEW, ids=FEW_ID)
def test_own_rubrics_replace_the_scenarios(name: str, language: str, keyword: str) -> None:
    default = judged(name, language=language)
    reward = judged(name, language=language, **{keyword: OWN})
    sample = sample_of("asked", answers_for(name, ["one", "two", "three"]))
    for prompt in prompts_of(reward, sample):
        assert f"1. {OWN[0]}\n2. {OWN[1]}\n" in prompt.system
        assert not any(rubric in prompt.system for rubric in default.principles)  # type: ignore[attr-defined]
    assert reward.rubrics == reward.principles == OWN  # type: ignore[attr-defined]  # fields of a rubric reward


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_both_names_give_the_same_prompt(name: str) -> None:
    sample = sample_of("asked", answers_for(name, ["one", "two", "three"]))
    assert prompts_of(judged(name, rubrics=OWN), sample) == prompts_of(judged(name, principles=OWN), sample)


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_one_rubric_may_be_given_as_a_text(name: str) -> None:
    sample = sample_of("asked", answers_for(name, ["one", "two", "three"]))
    assert prompts_of(judged(name, rubrics=OWN[0]), sample) == prompts_of(judged(name, rubrics=OWN[:1]), sample)


@pytest.mark.parametrize(("name", "language"), FEW, ids=FEW_ID)
def test_without_rubrics_the_task_decides(name: str, language: str) -> None:
    sample = sample_of("asked", answers_for(name, ["one", "two", "three"]))
    prompt = shown(judged(name, language=language, rubrics=[]).format(sample))
    word = {"en": "rubric", "zh": "准则"}[language]
    assert word not in prompt.system.lower()
    assert word in first_prompt(name, language, sample).system.lower()


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_an_unknown_keyword_names_the_nearest(name: str) -> None:
    for wrong, right in MISSPELT.items():
        with pytest.raises(ConfigError, match=rf"'{wrong}'.*Did you mean.*\b{right}\b"):
            RewardRegistry.create(name, llm="fake:", **{wrong: "x"})
        with pytest.raises(ConfigError, match=rf"'{wrong}'.*Did you mean.*\b{right}\b"):
            RewardRegistry.get(name)(**{wrong: "x"})


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_rubrics_under_both_names_at_once_are_an_error(name: str) -> None:
    with pytest.raises(ConfigError, match="principles"):
        judged(name, rubrics=OWN, principles=OWN)
