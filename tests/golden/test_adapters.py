"""Pins what a trainer gets: each file is an adapter, each line a reward, its settings and a
completion, or several in one call.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rm_gallery import ConfigError
from rm_gallery.integrations.causes import NoScore
from tests.golden import golden
from tests.integrations.adapters import ADAPTERS, Cost, Moody, Row, Unbounded, waited
from tests.integrations.packages import installed

REWARDS: dict[str, Any] = {"moody": Moody, "cost": Cost, "unbounded": Unbounded}
"""Lengths of answers, within -1 and 9 but for the last; unscored for "none", an error for "fail",
too large for "huge".
"""


@pytest.mark.parametrize("path", golden.files("adapters"))
def test_adapters_golden(path: Path) -> None:
    adapter = ADAPTERS[path.stem]

    def answer(line: golden.Line) -> golden.Line:
        texts = line["text"] if isinstance(line["text"], list) else [line["text"]]
        rows = [Row("q", text, line.get("solution"), line.get("more", {})) for text in texts]
        try:
            made = adapter.make(
                REWARDS.get(line["reward"], line["reward"]), **line.get("settings", {})
            )
            together = adapter.batch and isinstance(line["text"], list)
            found = waited(
                adapter.batch(made, rows)
                if together and adapter.batch
                else adapter.call(made, rows[0])
            )
        except (NoScore, ConfigError) as error:
            return {"error": f"{type(error).__name__}: {error}"}
        return {"trainer gets": "None" if found is None else json.loads(json.dumps(found))}

    with installed():
        golden.check(path, answer, ("trainer gets", "error"))
