"""Syntax and style of Python blocks, and the likeness of patches, without running anything."""

from __future__ import annotations

import warnings

import pytest

from rm_gallery.gallery.rm.code.patch import PatchSimilarityReward, patch_similarity
from rm_gallery.gallery.rm.code.style import CodeStyleReward
from rm_gallery.gallery.rm.code.syntax import SyntaxCheckReward, python_blocks
from tests.gallery.rules.support import result_of, sample_of, score_of, unscored


def block(code: str, language: str = "python") -> str:
    return f"Here:\n```{language}\n{code}\n```\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (block("x = 1"), 1.0),
        (block("x = = 1"), 0.0),
        (block("x = 1") + block("def f(:"), 0.5),
        (block("x = 1", "py"), 1.0),
        (block("x = 1", ""), 1.0),
        (block("x = 1\ny = 2").replace("\n", "\r\n"), 1.0),
        pytest.param(
            block("x = 1") + block("$ ls -l", "") + block("{", "json"), 1.0, id="other_languages_do_not_count"
        ),
        pytest.param("- item:\n  ```python\n  x = 1\n  ```\n", 1.0, id="indented_in_a_list"),
        pytest.param(block("return 1"), 0.0, id="return_outside_a_function"),
        pytest.param("~~~python\n变量 = 1\n~~~", 1.0, id="tildes_and_chinese_names"),
        pytest.param("```python\nx = 1", 1.0, id="never_closed"),
        pytest.param(block("x = '\0'"), 0.0, id="null_byte"),
        pytest.param(block("(" * 5000), 0.0, id="too_deep"),
        pytest.param(block("x = '\\d'"), 1.0, id="a_warning_is_no_error"),
    ],
)
def test_syntax(text: str, expected: float) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert score_of(SyntaxCheckReward(), text) == expected


@pytest.mark.parametrize("text", ["", "no code", block(" "), block("int x;", "c"), "`x = 1`"])
def test_no_code(text: str) -> None:
    assert unscored(SyntaxCheckReward(), text) == "no_code"
    assert unscored(CodeStyleReward(), text) == "no_code"


@pytest.mark.parametrize(
    ("code", "indentation", "naming"),
    [
        ("x = 1", 1.0, 1.0),
        ("def f(a):\n    return a", 1.0, 1.0),
        pytest.param("a == b\nf(keyWord=1)", 1.0, 1.0, id="comparisons_and_keywords_are_no_names"),
        pytest.param("MAX_SIZE = 3", 1.0, 1.0, id="constants_are_fine"),
        pytest.param("Vector = list[float]", 1.0, 1.0, id="types_are_fine"),
        pytest.param("class MyClass:\n    def go(self):\n        pass", 1.0, 1.0, id="classes_are_cap_words"),
        pytest.param("class my_class:\n    pass", 1.0, 0.0, id="a_class_in_snake_case"),
        pytest.param("def doIt(someArg):\n    return someArg", 1.0, 0.0, id="camel_case"),
        pytest.param("def f():\n    myVar = 1\n    other = 2", 1.0, 2 / 3, id="one_of_three_names"),
        pytest.param("if a:\n    b()\nif c:\n  d()", 0.5, 1.0, id="two_widths"),
        pytest.param("if a:\n    b()\nelif c:\n    d()\nelse:\n    e()", 1.0, 1.0, id="elif"),
        pytest.param("try:\n\ta()\nexcept E:\n\tb()", 1.0, 1.0, id="tabs_throughout"),
        pytest.param("变量 = 1", 1.0, 1.0, id="chinese"),
    ],
)
def test_style(code: str, indentation: float, naming: float) -> None:
    found = result_of(CodeStyleReward(), sample_of(block(code))).extra_data
    assert found == pytest.approx({"indentation": indentation, "naming": naming})


def test_style_score_is_the_mean() -> None:
    assert score_of(CodeStyleReward(), block("def doIt():\n    pass")) == 0.5
    assert score_of(CodeStyleReward(), block("def doIt():\n    pass") + block("x = = 1")) == 0.5


def test_style_of_broken_code_is_unscored() -> None:
    assert unscored(CodeStyleReward(), block("x = = 1")) == "syntax_error"


PATCH = "--- a/f.py\n+++ b/f.py\n@@ -1,2 +1,2 @@\n-x = 1\n+x = 2\n y = 3\n"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (PATCH, 1.0),
        (PATCH.replace("\n", "\r\n"), 1.0),
        (f"The fix:\n```diff\n{PATCH}```\nDone.", 1.0),
        (f"```diff\n{PATCH}```\n```\nlog\n```", 1.0),
        pytest.param(PATCH.replace("-1,2 +1,2", "-9,2 +9,2"), 1.0, id="moved_hunk"),
        pytest.param("diff --git a/f.py b/f.py\nindex 1a..2b 100644\n" + PATCH, 1.0, id="git_header"),
        ("", 0.0),
        ("```diff\n```", 0.0),
    ],
)
def test_patches(answer: str, expected: float) -> None:
    assert score_of(PatchSimilarityReward(), answer, PATCH) == expected


def test_patch_similarity_values() -> None:
    # the longest common subsequence of "abcd" and "abxd" is "abd": 2 * 3 / 8
    assert patch_similarity("abcd", "abxd") == 0.75
    assert patch_similarity("补丁一", "补丁二") == pytest.approx(2 / 3)
    assert 0 < patch_similarity(PATCH, PATCH.replace("x = 2", "x = 22")) < 1


def test_best_patch_counts() -> None:
    assert score_of(PatchSimilarityReward(), PATCH, ["-something\n+else", PATCH]) == 1.0


def test_patch_without_reference() -> None:
    assert unscored(PatchSimilarityReward(), PATCH) == "no_reference"


def test_blocks_in_order() -> None:
    assert python_blocks(block("a") + block("b", "python3")) == ["a\n", "b\n"]
