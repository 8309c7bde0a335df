"""`rm-gallery list`, `show`, `doctor` and `cache` tell what there is, by every filter, and do what
their options ask.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from unittest import mock

import pytest

from rm_gallery import RewardRegistry
from rm_gallery.cli.machine import EXTRAS
from rm_gallery.core.model.storage import ReplyCache
from tests.support.children import run_python
from tests.support.command import command


def names(*options: str) -> list[str]:
    done = command("list", "--json", *options)
    assert (done.code, done.err) == (0, "")
    return [entry["name"] for entry in json.loads(done.out)]


@pytest.mark.parametrize(
    ("options", "among", "not_among"),
    [
        ("", "accuracy math_listwise_reward", ""),
        (
            "--task math",
            "math_verify_reward math_pointwise_reward",
            "code_pointwise_reward accuracy",
        ),
        ("--task math --no-llm", "math_verify_reward", "math_pointwise_reward"),
        (
            "--task math --kind pointwise",
            "math_verify_reward math_pointwise_reward",
            "math_listwise_reward",
        ),
        (
            "--task alignment",
            "refusal_detection safety_listwise_reward base_honesty_pointwise",
            "accuracy",
        ),
        ("--task alignment/harmlessness", "refusal_detection", "chat_listwise_reward"),
        ("--needs reference", "accuracy rouge", "think_format safety_listwise_reward"),
        ("--kind pairwise", "chat_pairwise_reward", "chat_listwise_reward accuracy"),
        ("--no-llm", "accuracy think_format", "ruler chat_pairwise_reward"),
    ],
)
def test_filters_narrow_the_list(options: str, among: str, not_among: str) -> None:
    found = names(*options.split())
    assert set(among.split()) <= set(found) and not set(not_among.split()) & set(found)
    assert found == sorted(found)


def test_the_long_list_has_a_line_for_every_reward() -> None:
    done = command("list", "--long")
    head, *lines = done.out.splitlines()
    assert (done.code, done.err, head.split()[:4]) == (0, "", ["name", "kind", "needs", "range"])
    assert (
        [line.split()[0] for line in lines if not line.startswith(" ")]
        == RewardRegistry.list()
        == names()
    )


@pytest.mark.long("several commands")
def test_the_list_fits_80_columns_and_a_screen_or_two(tmp_path: Path) -> None:
    # in a process of its own: rewards that other tests register would be listed as well
    done = run_python("-m", "rm_gallery", "list", cwd=tmp_path)
    lines = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (0, "")
    assert max(map(len, lines)) <= 80 and 40 < len(lines) < 110
    one = command("list", "--task", "math", "--kind", "listwise").out
    assert "math_listwise_reward" in one and "*" not in one


def test_a_broken_reward_of_another_package_does_not_end_the_list(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        RewardRegistry,
        "_lazy",
        {**RewardRegistry._known_names, "broken": "no_such_package.x:Broken"},
    )
    done = command("list")
    assert done.code == 0 and "length_baseline" in done.out
    assert "no_such_package" in next(
        line for line in done.out.splitlines() if line.startswith("broken:")
    )


@pytest.mark.parametrize(
    "name", ["safety_listwise_reward", "math_pointwise_reward", "chat_pairwise_reward", "ruler"]
)
def test_the_prompt_is_the_one_a_judge_gets(name: str) -> None:
    example = RewardRegistry.get(name).example
    assert example is not None
    expected = example.create(RewardRegistry.get(name)).format(example.sample)  # type: ignore[attr-defined]  # it is a judge
    assert json.loads(command("show", name, "--prompt", "--json").out) == expected
    shown = command("show", name, "--prompt").out
    assert (
        shown.startswith("[system]\n")
        and "\n[user]\n" in shown
        and example.sample.output[0].answer.text in shown
    )


@pytest.mark.long("several commands")
@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("eval safety_lis", "safety_listwise_reward"),
        ("bench accuracy rewardbench2", "rewardbench2"),
        ("audit x --probe verb", "verbosity"),
    ],
)
def test_a_shell_completes_names(line: str, completed: str, tmp_path: Path) -> None:
    count = str(len(line.split()))
    shell = {
        "_RM_GALLERY_COMPLETE": "complete_bash",
        "COMP_WORDS": f"rm-gallery {line}",
        "COMP_CWORD": count,
    }
    start = "import sys; sys.argv[0] = 'rm-gallery'; from rm_gallery.cli.main import main; main()"
    done = run_python("-c", start, cwd=tmp_path, env=shell)
    assert done.stdout.split() == [completed]


def test_what_is_there_is_ok_and_what_is_not_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = command("doctor").out.splitlines()
    assert "-    OPENAI_API_KEY is not set" in lines and any(
        line.startswith("ok   cache: ") for line in lines
    )
    assert "-    endpoint: the default, https://api.openai.com/v1" in lines
    for extra, modules in EXTRAS.items():
        missing = [name for name in modules if importlib.util.find_spec(name) is None]
        told = (
            f"-    extra {extra}: pip install {' '.join(missing)}"
            if missing
            else f"ok   extra {extra}: installed"
        )
        assert told in lines
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    monkeypatch.setenv("BASE_URL", "http://judge/v1")
    monkeypatch.setenv("RM_GALLERY_CACHE", "off")
    lines = command("doctor").out.splitlines()
    assert "ok   OPENAI_API_KEY is set" in lines and "ok   endpoint: http://judge/v1" in lines
    assert (
        "-    cache: switched off (RM_GALLERY_CACHE=off)" in lines
        and command("cache", "stats").code == 2
    )


def test_the_cache_is_counted_shrunk_and_emptied() -> None:
    shown = command("cache", "stats").out.splitlines()
    assert [line.split()[0] for line in shown] == ["path", "entries", "bytes", "oldest", "newest"]
    assert [shown[1].split()[1], *(line.split()[1] for line in shown[3:])] == ["0", "-", "-"]
    with mock.patch.object(ReplyCache, "prune", return_value=3) as prune:
        assert (
            command("cache", "prune", "--max-days", "2", "--max-bytes", "5").out
            == "3 replies removed\n"
        )
        command("cache", "prune")
    assert [call.kwargs for call in prune.call_args_list] == [
        {"max_bytes": 5, "max_age": 172_800.0},
        {"max_bytes": None, "max_age": None},
    ]
    assert command("cache", "clear").out == "0 replies removed\n"
