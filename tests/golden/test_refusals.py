"""What cannot be made or taken, and what is said about it, as the golden lines have it.

`made` is Python, with the names of the modules of its file's subject.
"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pandas
import pytest

from rm_gallery.core import models
from rm_gallery.core.graders import common, llm, registry, strategy
from rm_gallery.core.reward import function
from rm_gallery.core.runner import aggregator, build, grading_runner
from rm_gallery.core.utils.errors import ConfigError, DataError
from tests.golden import golden
from tests.graders import test_base, test_runner
from tests.reward import test_compose, test_function, test_registry, test_run

NAMES: dict[str, tuple[ModuleType, ...]] = {
    "compositions": (test_compose,),
    "functions": (function, test_function),
    "graders": (build, registry, llm, common, strategy, test_base),
    "runners": (common, registry, models, aggregator, grading_runner, test_runner),
    "registry": (test_registry,),
    "samples": (pandas, test_run),
}


@pytest.mark.parametrize("path", golden.files("refusals"))
def test_what_does_not_fit_is_named(path: Path) -> None:
    def answer(line: golden.Line) -> golden.Line:
        with pytest.raises((ConfigError, DataError)) as raised:
            eval(line["made"], {name: each for module in NAMES[path.stem] for name, each in vars(module).items()})
        return {"refused": str(raised.value)}

    golden.check(path, answer, ("refused",))
