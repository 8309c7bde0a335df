"""Pins the helpers of `compute_reward`: each file is a function of `rm_gallery.envs.reward_helpers`, each line one call of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.envs import reward_helpers
from tests.golden import golden
from tests.golden.test_train import decoded


@pytest.mark.parametrize("path", golden.files("envs"))
def test_envs_golden(path: Path) -> None:
    function = getattr(reward_helpers, path.stem)

    def answer(line: golden.Line) -> golden.Line:
        given: dict[str, Any] = decoded(line)
        if "canonicalize" in given:
            given["canonicalize"] = lambda name: getattr(str, line["canonicalize"])(name.strip())
        try:
            return {"is": function(**given)}
        except ConfigError as error:
            return {"error": str(error)}

    golden.check(path, answer, ("is", "error"))


def test_every_helper_has_golden_lines() -> None:
    assert {path.stem for path in (golden.HERE / "envs").glob("*.jsonl")} == set(reward_helpers.__all__)
