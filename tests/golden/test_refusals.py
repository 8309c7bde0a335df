"""What cannot be made or taken, and what is said about it, as the golden lines have it.

`made` is Python, with the names of the modules of its file's subject.
"""

from __future__ import annotations

from types import ModuleType

import pandas
import pytest

from rm_gallery import ConfigError, DataError
from rm_gallery.core import models
from rm_gallery.core.engine import pool
from rm_gallery.core.graders import base as graders
from rm_gallery.core.graders import common, llm, strategy
from rm_gallery.core.model import budget, limits, storage
from rm_gallery.core.reward import function
from rm_gallery.core.runner import aggregator, grading_runner
from rm_gallery.core.utils import file
from rm_gallery.gallery.benchmarks import base
from rm_gallery.gallery.rm.trained import bradley_terry, hf, served
from rm_gallery.train import signals
from tests.benchmarks import test_evaluate, test_kinds
from tests.data import test_converters, test_export
from tests.envs import test_environment
from tests.evaluation import test_pool
from tests.gallery.rules import test_other_rules
from tests.golden import golden
from tests.graders import test_base, test_runner
from tests.report import test_audit, test_conflicts
from tests.reward import test_compose, test_function, test_registry, test_run, test_turns
from tests.sandbox import test_select
from tests.train import test_fit, test_pairs
from tests.trained import test_hf_process

NAMES: dict[str, tuple[ModuleType, ...]] = {
    "compositions": (test_turns, test_compose), "engine": (budget, storage, limits, pool),
    "benchmarks": (base, test_evaluate, test_kinds), "data": (file, test_converters, test_export),
    "environments": (test_environment,), "functions": (function, test_function),
    "graders": (grading_runner, graders, llm, common, strategy, test_base),
    "runners": (common, graders, models, aggregator, grading_runner, test_runner), "registry": (test_registry,),
    "reports": (test_audit, test_conflicts), "samples": (pandas, test_run),
    "sandbox": (test_select, test_other_rules, test_pool),
    "trained": (test_registry, test_hf_process, bradley_terry, hf, served), "training": (test_fit, test_pairs, signals),
}  # fmt: skip


def answer(subject: str, line: golden.Line) -> golden.Line:
    with pytest.raises((ConfigError, DataError)) as raised:
        eval(
            line["made"],
            {name: each for module in NAMES[subject] for name, each in vars(module).items()},
        )
    return {"refused": str(raised.value)}


test_what_does_not_fit_is_named = golden.runner("refusals", answer, "refused")
