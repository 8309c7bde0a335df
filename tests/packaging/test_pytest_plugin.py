"""The pytest plugin gates a judge in a team's own tests, and leaves every other run of pytest as it
is.
"""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import rm_gallery
from rm_gallery import FakeLLM
from tests.cli.rows import best_of_4
from tests.cli.test_gates import losing
from tests.support.children import ROOT, run_python

pytest_plugins = ["pytester"]
PLUGIN = "rm_gallery.report.pytest_plugin"


@pytest.fixture(scope="module", autouse=True)
def _loaded(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Load what gates use: an inner run forgets the modules that it loads itself, and C extensions
    cannot be loaded twice.

    Every reward is loaded, too: what a forgotten module registered could not be found by worker
    processes afterwards.
    """
    for name in rm_gallery.RewardRegistry.list():
        rm_gallery.RewardRegistry.get(name)
    data = best_of_4(tmp_path_factory.mktemp("data") / "data.jsonl", 2)
    rm_gallery.evaluate(
        "base_helpfulness_pointwise", str(data), llm=FakeLLM(reply="<score>5</score>")
    )
    import_module("scipy.stats")


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No plugin but ours, which is then named: it may be installed or not."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


def outcome(pytester: pytest.Pytester, source: str, *arguments: str) -> tuple[dict[str, int], str]:
    """Counts of outcomes and the output of a team's test file."""
    best_of_4(pytester.path / "anchors.jsonl")
    pytester.makepyfile(source)
    done = pytester.runpytest_inprocess("--strict-markers", "-p", PLUGIN, *arguments)
    return done.parseoutcomes(), done.stdout.str()


GATED = """
import pytest

@pytest.mark.reward_gate("length_baseline", "anchors.jsonl", {marked})
def test_gate(reward_gate):
    report = reward_gate({called})
    assert report.n == 12
"""


@pytest.mark.parametrize(("marked", "called", "says"), [
    ("at_least=0.5", "", None),
    ("at_least=0.9", "at_least=0.4", None),
    ("beats=['chance']", "", None),
    ("at_least=0.9", "", "the score 50.0 % is below 90.0 %; its 95 % interval is below it, too."),
    ("at_least=0.45, surely=True", "", "the score 50.0 % has an interval from"),
    ("beats='longest'", "", "the score 50.0 % does not exceed 50.0 %, which is the baseline 'longest'"),
])  # fmt: skip
def test_a_gate_passes_or_says_what_is_missing(
    marked: str, called: str, says: str | None, pytester: pytest.Pytester
) -> None:
    counts, shown = outcome(pytester, GATED.format(marked=marked, called=called))
    assert counts == ({"passed": 1} if says is None else {"failed": 1})
    assert "reward gates" in shown
    assert "length_baseline 0.5000 [" in shown and "n = 12 of 12" in shown
    if says is not None:
        assert says in shown
        assert "Traceback" not in shown


@pytest.mark.parametrize(("marked", "called", "says"), [
    ("", "", "nothing to hold the reward to; give at_least="),
    ("at_least=80", "", "at_least is 80; it is a share"),
    ("beats='longst'", "", "There is no baseline 'longst'. Did you mean longest"),
    ("at_least=0.5, limt=3", "", "limt"),
    ("atleast=0.5", "", "found 'atleast'; give at_least="),
    ("not_worse_than='runs/none'", "", "runs/none is no folder"),
    ("not_worse_than='other'", "'base_helpfulness_pointwise', llm='nobody asks it'", "another benchmark"),
    ("at_least=0.5", "'length_baselin'", "Did you mean length_baseline"),
    ("at_least=0.5", "data='anchor.jsonl'", "anchor.jsonl: no such file"),
])  # fmt: skip
def test_a_gate_that_cannot_be_asked_is_one_line(
    marked: str, called: str, says: str, pytester: pytest.Pytester
) -> None:
    if "other" in marked:
        pairs = [{"prompt": "q", "chosen": "a", "rejected": "b"}]
        rm_gallery.evaluate(
            "length_baseline", pairs, run_dir=str(pytester.path / "other"), progress=False
        )
    counts, shown = outcome(pytester, GATED.format(marked=marked, called=called))
    assert counts == {"failed": 1}
    assert says in shown.replace("\n", " ")
    assert "rm_gallery/" not in shown and "reward_gate: " in shown


JUDGE = """
import pytest
from rm_gallery.core.model.base import FakeLLM

def reply(prompt):
    return {reply}

def test_gate(reward_gate):
    reward_gate("base_helpfulness_pointwise", "anchors.jsonl", llm=FakeLLM(reply=reply), at_least=0.0{more})
"""


@pytest.mark.parametrize(
    ("more", "lost"),
    [("", 2), (", max_failures=1", 2), (", max_failures=2", 0), (", max_failures=11", 12)],
)
def test_as_many_samples_may_be_lost_as_the_gate_says(
    more: str, lost: int, pytester: pytest.Pytester
) -> None:
    # what asks it to mend its reply names no answer, and gets none either
    reads = (
        "('right' in prompt or 'wrong' in prompt) and not ('right 3' in prompt or 'wrong 8' in "
        "prompt)"
    )
    reply = "'no idea'" if lost == 12 else f"'<score>5</score>' if {reads} else '?'"
    counts, shown = outcome(pytester, JUDGE.format(reply=reply, more=more))
    assert counts == ({"failed": 1} if lost else {"passed": 1}), shown
    assert not lost or f"{lost} samples are unscored; {more[-2:].strip('=') or 0} may be." in shown


@pytest.mark.parametrize(
    ("asked", "passes"),
    [("at_least=0.8", False), ("at_least=0.5", True), ("beats='chance'", False)],
)
def test_a_judge_that_refuses_what_loses_passes_no_gate(
    asked: str, passes: bool, pytester: pytest.Pytester
) -> None:
    rows = [
        {"prompt": r["prompt"], "chosen": r["new"], "rejected": r["old"]} for r in losing(hole=True)
    ]
    (pytester.path / "hole.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8"
    )
    gate = "from tests.cli.test_gates import RefusesWhatLoses\ndef test_gate(reward_gate):\n"
    gate += f"    reward_gate(RefusesWhatLoses(), 'hole.jsonl', max_unscored=80, {asked})\n"
    counts, shown = outcome(pytester, gate)
    assert counts == ({"passed": 1} if passes else {"failed": 1}), shown
    if not passes:
        for said in (
            "the score 83.3 %",
            "50.0 %",
            "80 of 200 are missing (80 by the judge)",
            "missing scores go with",
        ):
            assert said in shown


def test_a_judge_is_held_against_an_earlier_run(pytester: pytest.Pytester) -> None:
    best = "f'<score>{10 if chr(34) not in prompt and \"right\" in prompt else 1}</score>'"
    counts, _ = outcome(pytester, JUDGE.format(reply=best, more=", run_dir='before'"))
    assert counts == {"passed": 1}
    same, _ = outcome(pytester, JUDGE.format(reply=best, more=", not_worse_than='before'"))
    assert same == {"passed": 1}
    worst = "f'<score>{1 if \"right\" in prompt else 9}</score>'"
    counts, shown = outcome(pytester, JUDGE.format(reply=worst, more=", not_worse_than='before'"))
    assert counts == {"failed": 1}
    assert "worse than before by 100.0 points (95 % interval" in shown and "n=12)" in shown


def test_a_gate_that_is_never_asked_is_noticed(pytester: pytest.Pytester) -> None:
    counts, shown = outcome(
        pytester,
        "import pytest\n@pytest.mark.reward_gate('accuracy', 'x', at_least=1)\ndef "
        "test_a(reward_gate):\n    pass\n",
    )
    assert counts == {"passed": 1, "errors": 1}
    assert "never called it" in shown
    pytester.makepyfile(
        test_forgotten="import pytest\n@pytest.mark.reward_gate('a', 'x', at_least=1)\ndef test_a(): pass\n"
    )
    done = pytester.runpytest_inprocess("-p", PLUGIN, "test_forgotten.py")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["*does not take the fixture*"])


def test_loading_it_imports_next_to_nothing(tmp_path: Path) -> None:
    code = (
        "import sys, json, pytest, _pytest.terminal\n"
        "before = set(sys.modules)\n"
        f"import {PLUGIN}\n"
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    loaded: list[Any] = json.loads(run_python("-c", code, cwd=tmp_path).stdout)
    assert {name for name in loaded if not name.startswith("rm_gallery")} <= {"tempfile"}
    assert set(loaded) == {"rm_gallery", "rm_gallery._version", "rm_gallery.report", PLUGIN}


def test_ordinary_runs_are_as_they_were_and_gates_have_figures_in_the_junit_file(
    pytester: pytest.Pytester,
) -> None:
    counts, shown = outcome(pytester, "def test_a():\n    assert True\n", "-W", "error")
    assert counts == {"passed": 1} and "reward" not in shown
    outcome(pytester, GATED.format(marked="at_least=0.5", called=""), "--junitxml=junit.xml")
    text = (pytester.path / "junit.xml").read_text(encoding="utf-8")
    assert (
        'name="reward_gate.score" value="0.5"' in text
        and 'name="reward_gate.ci95" value="[0.' in text
    )
    assert f'rm_gallery = "{PLUGIN}"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
