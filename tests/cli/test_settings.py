"""Settings come from flags, then the environment, then `rm-gallery.toml`; `--dry-run` tells each
and its origin.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer

from rm_gallery.cli.main import app
from rm_gallery.cli.settings import MOVED, defaults, group_of, options_of, walk
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
    (EVAL, {}, "REWARD = length_baseline  (command line)"),
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
    (
        "max_workers = 'many'",
        "rm-gallery.toml: --max-workers: found many; give a whole number of 1 or more.",
    ),
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
        "length_baseline",
        "t.csv",
        "--prompt",
        "prompt",
        "--a",
        "a",
        "--b",
        "b",
        "--dry-run",
    )
    assert (
        done.code == 0
        and "--seed = 0  (default)" in done.err
        and "1 rows to judge" in done.err
        and not done.out
    )


WINRATE = ("winrate", "length_baseline", "t.csv", "--prompt", "prompt", "--a", "a")


@pytest.mark.parametrize(
    ("earlier", "now", "notice"),
    [
        (
            ["--b", "b", "--seed", "3"],
            ["--b", "b", "--config", "run.seed=3"],
            "--config run.seed=3",
        ),
        (["--b", "b", "--no-cache"], ["--b", "b", "--config", "cache=false"], "run.cache=false"),
        (["--other", "c", "--b", "b"], ["--b", "b", "--b", "c"], "--other is spelled --b now"),
        (
            ["--b", "b", "--fail-under", "0", "--surely"],
            ["--b", "b", "--fail-under", "0", "--use-ci"],
            "--surely is spelled --use-ci now",
        ),
    ],
)
def test_earlier_spellings_do_the_same_and_say_the_new_one(
    earlier: list[str], now: list[str], notice: str
) -> None:
    Path("t.csv").write_text("prompt,a,b,c\nq,long,x,xy\nz,e,xcc,qqwe\n")
    before, after = command(*WINRATE, *earlier, "--json"), command(*WINRATE, *now, "--json")
    timed = re.compile(r'"seconds": [^,}]+')
    assert (before.code, timed.sub("", before.out)) == (after.code, timed.sub("", after.out))
    assert notice in before.err.splitlines()[-1] and " now" not in after.err


CONFIGS = [
    ("deadline: 30\n", "--deadline = 30.0  (own.yaml)"),
    ("run: {deadline: 30}\n", "--deadline = 30.0  (own.yaml)"),
    ("eval: {run: {deadline: 30}, deadline: 20}\n", "--deadline = 20.0  (own.yaml)"),
    ("surely: true\n", "--use-ci = True  (own.yaml)"),
    ("run: {part: 1/2}\n", "--shard = 1/2  (own.yaml)"),
    ("run: {engine: ray}\n", "--engine = ray  (own.yaml)"),
    ("param: [a=1, b=2]\n", "--param = ['a=1', 'b=2']  (own.yaml)"),
]


@pytest.mark.parametrize(("text", "line"), CONFIGS)
def test_a_config_file_comes_before_the_environment_and_after_what_is_typed(
    text: str, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("own.yaml").write_text(text)
    monkeypatch.setenv("RM_GALLERY_DEADLINE", "50")
    monkeypatch.setenv("RM_GALLERY_SEED", "4")
    done = command(*EVAL, "--config", "own.yaml", "--config", "run.seed=5", "--dry-run")
    assert line in done.out.splitlines() and "--seed = 5  (--config)" in done.out
    typed = command(*EVAL, "--config", "own.yaml", "--deadline", "1", "--dry-run")
    assert "--deadline = 1.0  (command line)" in typed.out


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("max_cals=3", "There is no setting 'max_cals'. Did you mean max_calls"),
        ("budget.max_cals=3", "There is no setting of budget 'max_cals'. Did you mean max_calls"),
        ("run.max_calls=3", "There is no setting of run 'max_calls'."),
        ("bugdet.max_calls=3", "There is no command 'bugdet'. Did you mean budget"),
        ("until_decided=true", "There is no setting 'until_decided'."),
        ("gone.yaml", "--config names gone.yaml, which cannot be read"),
        ("trace=true", "name one with --out RUN"),
        ("budget.max_cost=1", "max_cost needs prices"),
    ],
)
def test_a_typed_setting_that_cannot_apply_is_refused(given: str, said: str) -> None:
    done = command(*EVAL, "--config", given)
    assert (done.code, done.out, len(done.err.splitlines())) == (2, "", 1) and said in done.err


COMMANDS = dict(walk(typer.main.get_command(app)))
PLACES = [(words, place) for words in COMMANDS for place in (words, words[:-1])] + [
    (tuple(new.partition(" --")[0].split()), (old,)) for old, new in MOVED.items()
]


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("dashes", [0, 1, -1])
def test_what_passes_the_check_of_a_file_takes_effect(dashes: int, grouped: bool) -> None:
    """Every setting of every command, below its words, its group of commands and its earlier name,
    with `_`, `-` or both in it.
    """
    command_line = typer.main.get_command(app)
    for words, place in PLACES:
        options, lines = options_of(COMMANDS[words]), list[str]()
        for name, option in options.items():
            group = group_of(option) if grouped else None
            path = (*place, *([group] if group else []), name.replace("_", "-", dashes))
            lines.append(f'{".".join(path)} = "x"')
        Path("rm-gallery.toml").write_text("\n".join(lines))
        values, _ = defaults(command_line)
        for word in words:
            values = values.get(word, {})
        assert options.keys() <= values.keys(), (words, place)
