"""Previews run the real code and give real scores; deployments are what was previewed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rm_gallery import ConfigError, DataError
from rm_gallery.evaluation import Store, create_evaluation, preview_evaluation
from rm_gallery.evaluation.deploy import PreviewResult
from rm_gallery.evaluation.pool import EvaluatorBroken
from tests.support.command import command

MakeFolder = Callable[..., Path]
LENGTH = """
from rm_gallery import EvaluateResult, MetricResult
def evaluate(messages, ground_truth=None, tag="", **kwargs):
    text = messages[-1].content
    print("read", text)
    if not text:
        return None
    if tag == "bad":
        raise KeyError("nothing")
    metrics = {"length": MetricResult(score=len(text) / 10, reason=f"{len(text)} characters")}
    return EvaluateResult(score=len(text) / 10, reason=f"truth {ground_truth}", metrics=metrics)
"""


def said(answer: str | None, **more: Any) -> dict[str, Any]:
    return {
        "messages": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": answer}],
        **more,
    }


SAMPLES = [said("四个汉字", ground_truth={"a": 1}, id="first"), said(None), said("x", tag="bad")]


@pytest.fixture(params=["bwrap", pytest.param("subprocess")])
def sandbox(request: pytest.FixtureRequest) -> str:
    if request.param == "bwrap":
        from tests.support.system import require_bubblewrap

        require_bubblewrap()
    return str(request.param)


def test_outcomes_of_a_preview(make_folder: MakeFolder, sandbox: str) -> None:
    found = preview_evaluation(
        [f"length={make_folder('length', LENGTH)}"], samples=SAMPLES, sandbox=sandbox
    )
    assert [(each.status, each.score) for each in found.results] == [
        ("scored", 0.4),
        ("unscored", None),
        ("failed", None),
    ]
    first, second, third = found.results
    assert (first.id, first.metrics, first.reason) == ("first", {"length": 0.4}, "truth {'a': 1}")
    assert "returned None" in second.reason
    assert third.reason == "function_error: KeyError: 'nothing' (length/main.py, line 9)"
    assert (found.total_samples, found.mean, found.sandbox) == (3, 0.4, sandbox)
    text = found.display()
    assert (
        "Score: 0.40" in text
        and "Score: none, unscored" in text
        and "length: 0.40 - 4 characters" in text
    )
    assert text.endswith("1 scored, 1 unscored, 1 failed; mean 0.4000 of 1 scored")
    assert (
        json.loads(json.dumps(found.as_dict()))["results"][0]["metrics"]["length"]["reason"]
        == "4 characters"
    )


def test_samples_that_do_not_fit_are_named(make_folder: MakeFolder, tmp_path: Path) -> None:
    folders = [f"m={make_folder()}"]
    file = tmp_path / "s.jsonl"
    for text, message in [
        ('{"message": []}\n', "line 1.*messages"),
        ('{"messages": []}\n{"messages": [{"content": "x"}]}\n', r"line 2, messages\[0\]"),
        ('{"messages": []}\nnot json\n', "line 2"),
    ]:
        file.write_text(text)
        with pytest.raises(DataError, match=message):
            preview_evaluation(folders, sample_file=file)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"samples": []}, "no sample"), ({"samples": ["text"]}, "row 1: expected a mapping"), ({}, "in one way"),
        ({"samples": SAMPLES, "sample_file": file}, "in one way"), ({"samples": SAMPLES, "max_samples": 0}, "max_samples"),
        ({"samples": SAMPLES, "sandbox": "docker"}, "docker"),
    ]  # fmt: skip
    for given, message in wrong:
        with pytest.raises(ConfigError, match=message):
            preview_evaluation(folders, **given)


def test_only_the_first_samples_are_read(make_folder: MakeFolder, tmp_path: Path) -> None:
    file = tmp_path / "s.jsonl"
    file.write_text(
        f"{json.dumps(said('x'))}\r\n\r\n{json.dumps(said('y'))}\r\nbroken\n", encoding="utf-8"
    )
    assert (
        preview_evaluation([f"m={make_folder()}"], sample_file=file, max_samples=2).total_samples
        == 2
    )


def test_deploying_stores_what_was_previewed(make_folder: MakeFolder, tmp_path: Path) -> None:
    folder = make_folder("length", LENGTH, **{"helper.py": "", ".env": "KEY=1"})
    store = tmp_path / "s.db"
    first = create_evaluation(
        "length", [f"length={folder}"], display_name="长度", description="d", store=store
    )
    assert first["name"] == "accounts/local/evaluators/length" and first["version"] == 1
    assert first["skipped"] == ["length/.env (hidden)"] and len(first["hash"]) == 64
    with pytest.raises(ConfigError, match="--force"):
        create_evaluation("length", folder=folder, store=str(store))
    with Store.open(store) as opened:
        again = create_evaluation(
            "length", folder=folder, force=True, store=opened, account_id="a", api_key="k"
        )
        assert (again["version"], again["hash"]) == (2, first["hash"])
        assert set(opened.current("length").bundle.files) == {"length/main.py", "length/helper.py"}


def test_code_that_does_not_load_is_not_deployed(tmp_path: Path) -> None:
    from tests.support.system import require_bubblewrap

    require_bubblewrap()
    broken = "import nowhere\ndef evaluate(messages, **kwargs):\n    return 1\n"
    with Store.open(tmp_path / "s.db") as store:
        create_evaluation(
            "a", python_code_to_evaluate="def evaluate(messages, **kw): return 1\n", store=store
        )
        with pytest.raises(EvaluatorBroken, match="No module named 'nowhere'"):
            create_evaluation("a", python_code_to_evaluate=broken, force=True, store=store)
        assert [version.version for version in store.versions("a")] == [1]
        assert (
            create_evaluation(
                "a", python_code_to_evaluate=broken, force=True, store=store, check=False
            )["version"]
            == 2
        )


def test_without_bubblewrap_ones_own_folder_is_previewed_all_the_same(
    make_folder: MakeFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "s.jsonl").write_text(json.dumps(SAMPLES[0]))
    monkeypatch.setenv("PATH", str(tmp_path))
    done = command(
        "evaluators",
        "preview",
        "-m",
        f"length={make_folder('length', LENGTH)}",
        "-s",
        str(tmp_path / "s.jsonl"),
    )
    assert done.code == 0 and "Score: 0.40" in done.out and "limits alone" in done.err
    assert "printed: read 四个汉字" in done.err


def test_the_time_is_told_in_milliseconds() -> None:
    assert PreviewResult([], 1.5, "bwrap").total_runtime_ms == 1500


@pytest.mark.parametrize("said_where", ["mode='stepwise'", "mode=MODE"])
def test_a_function_of_steps_is_no_evaluator(
    make_folder: MakeFolder, sandbox: str, said_where: str
) -> None:
    code = (
        "from rm_gallery import reward_function\nMODE = 'stepwise'\n\n\n"
        f"@reward_function({said_where})\ndef evaluate(messages, **kwargs):\n    return 1.0\n"
    )
    with pytest.raises((ConfigError, EvaluatorBroken), match=r"'stepwise'"):
        preview_evaluation(
            [f"steps={make_folder('steps', code)}"], samples=SAMPLES, sandbox=sandbox
        )
