"""Functions that the front pages show as rewards pass the check that the pages send readers to."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from rm_gallery import check_reward
from tests.docs.blocks import blocks_of
from tests.support.children import ROOT

MAKERS = ("reward_function", "rule")


def examples() -> list[tuple[str, str, str]]:
    """Page, function, and the code of it with the page's imports, for each decorated function."""
    found = []
    for page in ("README.md", "docs/functions.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        python = [block.code for block in blocks_of(text) if block.language == "python"]
        trees = [statement for code in python for statement in ast.parse(code).body]
        imports = [each for each in trees if isinstance(each, ast.Import | ast.ImportFrom)]
        for each in trees:
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and any(
                maker in ast.unparse(decorator)
                for decorator in each.decorator_list
                for maker in MAKERS
            ):
                code = "\n".join(ast.unparse(one) for one in [*imports, each])
                found.append((page, each.name, code))
    return found


EXAMPLES = examples()


def test_both_pages_show_rewards() -> None:
    assert {page for page, _, _ in EXAMPLES} == {"README.md", "docs/functions.md"}
    assert len(EXAMPLES) >= 4


@pytest.mark.parametrize(("page", "name", "code"), EXAMPLES, ids=[each[1] for each in EXAMPLES])
def test_an_example_tells_right_from_wrong(page: str, name: str, code: str, tmp_path: Path) -> None:
    """A reader's first copy of an example must not pay for an empty answer."""
    (tmp_path / "reward.py").write_text(code + "\n", encoding="utf-8")
    found = check_reward(f"{tmp_path / 'reward.py'}:{name}", progress=False)
    assert [fault.what for fault in found.faults] == []
