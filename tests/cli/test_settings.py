"""Settings come from flags, then the environment, then `rm-gallery.toml`; `--dry-run` tells each
and its origin.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command import command

FILE = """
llm = "general"
max-workers = 64
[eval]
deadline = 30
param = "shortest=true"
[train.bt]
seed = 3
"""
EVAL = ("eval", "length_baseline", "rows.jsonl")
TOLD = [
    (EVAL, {}, "--llm = general  (rm-gallery.toml)"),
    (EVAL, {}, "--max-workers = 64  (rm-gallery.toml)"),
    (EVAL, {}, "--deadline = 30.0  (rm-gallery.toml [eval])"),
    (EVAL, {}, "reward = length_baseline  (command line)"),
    (EVAL, {}, "--seed = 0  (default)"),
    (EVAL, {}, "--param = ['shortest=true']  (rm-gallery.toml [eval])"),
    ((*EVAL, "--llm", "mine"), {"RM_GALLERY_LLM": "env"}, "--llm = mine  (command line)"),
    (EVAL, {"RM_GALLERY_LLM": "env"}, "--llm = env  (environment, RM_GALLERY_LLM)"),
    (EVAL, {"RM_GALLERY_LLM": "env", "RM_GALLERY_EVAL_LLM": "own"}, "--llm = own  (environment, RM_GALLERY_EVAL_LLM)"),
    (EVAL, {"RM_GALLERY_EVAL_LLM": "", "RM_GALLERY_CACHE": "off"}, "--cache = not set  (default)"),
    (EVAL, {"RM_GALLERY_BASE_URL": "http://me:secret@h/v1"}, "--base-url = http://***@h/v1  (environment, RM_GALLERY_BASE_URL)"),
    (EVAL, {"RM_GALLERY_LMM": "x"}, "RM_GALLERY_LMM is no setting (RM_GALLERY_LLM is)."),
    (("train", "bt", "rows.jsonl", "--out", "m"), {}, "--seed = 3  (rm-gallery.toml [train.bt])"),
    (("list",), {"RM_GALLERY_JSON": "true"}, "--json = True  (environment, RM_GALLERY_JSON)"),
]  # fmt: skip
WRONG = [
    (
        "max_worker = 3",
        "rm-gallery.toml: There is no setting 'max_worker'. Did you mean max_workers",
    ),
    ("[evil]\nllm = 1", "rm-gallery.toml: There is no command 'evil'. Did you mean eval"),
    ("[eval]\nout-put = 1", "rm-gallery.toml [eval]: There is no setting 'out-put'."),
    (
        "llm = 2026-01-01",
        "rm-gallery.toml: llm is a date; give text, a number, true, false or a list.",
    ),
    ("llm =", "rm-gallery.toml is no TOML file"),
    ("max_workers = 'many'", "--max-workers"),
    ("max_workers = 'many'", "Settings were also read from: rm-gallery.toml."),
]


@pytest.fixture(autouse=True)
def _there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rows.jsonl").write_text('{"prompt": "q", "chosen": "long", "rejected": "b"}\n')


@pytest.mark.parametrize(("call", "environment", "line"), TOLD)
def test_a_dry_run_tells_each_setting_and_its_origin(
    call: tuple[str, ...], environment: dict[str, str], line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("rm-gallery.toml").write_text(FILE)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    done = command(*call, "--dry-run")
    assert (done.code, done.err) == (0, "") and line in done.out.splitlines()
    assert "secret" not in done.out and sorted(path.name for path in Path().iterdir()) == [
        "rm-gallery.toml",
        "rows.jsonl",
    ]


@pytest.mark.parametrize(("text", "said"), WRONG)
def test_what_is_no_setting_is_an_error_that_names_the_nearest(text: str, said: str) -> None:
    Path("rm-gallery.toml").write_text(text)
    done = command(*EVAL)
    assert (done.code, done.out) == (2, "") and said in done.err


def test_the_file_decides_what_a_run_does_and_another_one_can_be_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shortest = '[eval]\njson = true\nparam = ["shortest=true"]\n'
    assert '"score": 1.0' in command(*EVAL, "--json").out
    Path("rm-gallery.toml").write_text(shortest, encoding="utf-8-sig")  # as some editors save it
    assert '"score": 0.0' in command(*EVAL).out
    Path("rm-gallery.toml").rename("other.toml")
    monkeypatch.setenv("RM_GALLERY_CONFIG", "other.toml")
    assert '"score": 0.0' in command(*EVAL).out
    monkeypatch.setenv("RM_GALLERY_CONFIG", "gone.toml")
    assert command(*EVAL).err == (
        "rm-gallery: RM_GALLERY_CONFIG names gone.toml, which cannot be read: No such file or "
        "directory.\n"
    )


def test_a_table_command_says_its_settings_beside_what_it_understood() -> None:
    Path("t.csv").write_text("prompt,a,b\nq,long,x\n")
    done = command(
        "winrate",
        "t.csv",
        "--prompt",
        "prompt",
        "--a",
        "a",
        "--b",
        "b",
        "-r",
        "length_baseline",
        "--dry-run",
    )
    assert (
        done.code == 0
        and "--seed = 0  (default)" in done.err
        and "1 rows to judge" in done.err
        and not done.out
    )
