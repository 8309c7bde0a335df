"""What holds for every command, found by walking the command line: help, spelling, missing files,
JSON and exit codes.
"""

from __future__ import annotations

import inspect
import json
import re
import shutil
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, get_args, get_type_hints
from unittest.mock import Mock

import pytest
import typer

from rm_gallery import RewardRegistry, RMGalleryError
from rm_gallery.cli import main, options
from rm_gallery.cli.help import SECTIONS
from rm_gallery.cli.main import app
from rm_gallery.cli.settings import MOVED, group_of, options_of
from rm_gallery.core.data.load.converters import DataConverterRegistry
from rm_gallery.evaluation.deploy import create_evaluation
from tests.cli.rows import best_of_4
from tests.golden.golden import HERE, Line, lines
from tests.support.children import ROOT
from tests.support.choice import apart, covering, some
from tests.support.command import Done, command
from tests.support.judge_server import JudgeCall, JudgeServer
from tests.support.spelled import OWN, SOUND, SPELLED, WRONG, write_files
from tests.train import runs as training

FINE = {line["command"]: line["call"] for _, line in lines(HERE / "every_command" / "works.jsonl")}
"""A call of every command that works in the folder below; those of `serve` and `view` are only
begun, for they have no end.
"""
ENDLESS = ("serve", "view")
OUTPUTS = ("--out", "--export", "--store", "--save", "--annotate", "--pdf")
INSTEAD = {
    ("bench", "--scores"): "bench preferences --data pairs.jsonl",
    ("bench", "--replay"): "bench judgebench",
    ("check-reward", "--env"): "check-reward sound.py",
    ("serve-token create", "--tokens"): None,  # it makes the file
    ("serve-token list", "--tokens"): "serve-token list",
}
"""The call to which an option that names a file is added, where it does not go with the one above.
"""

GATES = [line for _, line in lines(HERE / "every_command" / "gates.jsonl")]
"""Both sides of every gate: the call, its exit code, and what it says on stderr."""

FALTERS = (
    'if "FAIL" in messages[-1].text:\n        raise ValueError("no answer")\n    return min(1.0, '
    "len(messages[-1].text) / 99)"
)
REWARDS = {
    "sound.py": SOUND,
    "bare.py": (
        "said = messages[-1].text.strip()\n    return float(said == ground_truth or "
        'said.endswith(f"<answer>{ground_truth}</answer>"))'
    ),
    "lenient.py": "return float(str(ground_truth) in messages[-1].text)",
}
CASE = {"prompt": "What is 40 + 2?", "ground_truth": "42", "gold": "So it is.\n<answer>42</answer>"}


def commands() -> dict[str, Any]:
    """Every command by its words, as the command line knows it."""

    def walk(here: Any, words: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
        for name, inner in here.commands.items():
            if hasattr(inner, "commands"):
                yield from walk(inner, (*words, name))
            else:
                yield " ".join((*words, name)), inner

    return dict(walk(typer.main.get_command(app), ()))


COMMANDS = commands()


def jsonl(name: str, rows: list[dict[str, Any]]) -> None:
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def falters(call: JudgeCall) -> str:
    if "FAIL" in call.reading.prompt:
        raise RuntimeError("no answer")
    return "<best>1</best>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with all that the calls above name."""
    place = tmp_path_factory.mktemp("work")
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(place)
        patched.setenv("RM_GALLERY_CACHE", "off")
        pairs = [
            {"id": str(k), "prompt": f"q{k}", "chosen": "long" * (k % 4), "rejected": "xx"}
            for k in range(40)
        ]
        jsonl("pairs.jsonl", pairs)
        jsonl(
            "broken.jsonl",
            [{**row, "chosen": "FAIL" if row["id"] == "3" else "fine"} for row in pairs[:5]],
        )
        best_of_4(Path("lists.jsonl"), 4)
        jsonl(
            "broken-lists.jsonl",
            [
                {"prompt": f"q{k}", "chosen": ["ab"], "rejected": ["FAIL" if k else "b"]}
                for k in range(2)
            ],
        )
        rollouts = [
            {
                "messages": [
                    {"role": "user", "content": f"q{k}"},
                    {"role": "assistant", "content": "FAIL" if k else "fine"},
                ],
                "reward": k,
            }
            for k in range(2)
        ]
        jsonl("rollouts.jsonl", [rollouts[0], {**rollouts[0], "reward": 3}])
        jsonl("broken-rollouts.jsonl", rollouts)
        Path("table.csv").write_text(
            "q,x,y\n" + "".join(f"q{k},{'long' * (k % 4)}a,xx\n" for k in range(8))
        )
        Path("broken.csv").write_text("q,x,y\nq1,fine,xx\nq2,FAIL,xx\nq3,well,yy\n")
        for name, body in REWARDS.items():
            Path(name).write_text(OWN.format("own", "ground_truth='', ", body))
        Path("falters.py").write_text(OWN.format("falters", "", FALTERS))
        for name, body in (("fine", "return 0.5"), ("falters", FALTERS)):
            Path(name).mkdir()
            Path(name, "main.py").write_text(OWN.format("evaluate", "", body))
        jsonl("cases.jsonl", [CASE])
        turns = [{"role": "user", "content": CASE["prompt"]}, {"role": "assistant"}]
        said = {"gold": CASE["gold"], "hacked": "It is 41 or 42."}
        canaries = [
            {"canary": mark, "messages": [turns[0], {**turns[1], "content": text}]}
            for mark, text in said.items()
        ]
        jsonl("canaries.jsonl", [{**one, "reference": "42"} for one in canaries])
        jsonl(
            "samples.jsonl",
            [
                {
                    "messages": [
                        {"role": "user", "content": "q"},
                        {"role": "assistant", "content": text},
                    ]
                }
                for text in ("fine", "FAIL")
            ],
        )
        Path("graders.yaml").write_text(
            "graders: {long: {grader: string_match, mapper: {reference_response: truth}}}\n"
        )
        judges = ", ".join(
            f"{name}: {{grader: string_match, mapper: {{reference_response: truth}}}}"
            for name in ("long", "other")
        )
        Path("judges.yaml").write_text(f"graders: {{{judges}}}\nlabels: ok\n")
        labelled = [{"query": f"q{k}", "response": "a", "truth": "ab"[k % 2]} for k in range(40)]
        jsonl(
            "labelled.jsonl",
            [{**row, "ok": (k % 2 == 0) != (k % 5 == 0)} for k, row in enumerate(labelled)],
        )
        graded = [{"query": "q", "response": "a", "truth": "ab"[k % 2]} for k in range(4)]
        jsonl("graded.jsonl", graded)
        jsonl("half-graded.jsonl", [*graded, {"query": "q", "response": "a"}])
        scores = [float(k % 3 != 0) for k in range(120)]
        for name, values in (
            ("old", scores),
            ("same", scores),
            ("moved", [0.0 if k % 2 else score for k, score in enumerate(scores)]),
        ):
            jsonl(
                f"{name}.jsonl",
                [
                    {"id": f"a{k}", "prompt": f"q{k}", "score": score}
                    for k, score in enumerate(values)
                ],
            )
        Path("pilot.csv").write_text("s\n" + "".join(f"{score}\n" for score in scores))
        jsonl("varied.jsonl", training.run(0, steps=12))
        jsonl("mirrored.jsonl", training.run(0, "mirror", steps=12))
        for name, more in (("longest", ""), ("shortest", "--param shortest=true"), ("stopped", "")):
            assert run(f"eval length_baseline pairs.jsonl --out {name} {more}").code == 0
        Path("stopped", "report.json").unlink()
        assert run("eval func:falters.py broken.jsonl --out falters --max-failures 1").code == 0
        assert (
            run(
                "eval safety_listwise_reward lists.jsonl --llm fake:<best>1</best> --out traced "
                "--trace"
            ).code
            == 0
        )
        Path("serve.yaml").write_text("rewards: {exact: {reference: accuracy}}\n")
        yield place


def run(line: str, *more: str) -> Done:
    return command(*line.split(), *more)


@pytest.fixture(autouse=True)
def _there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "80")


@pytest.fixture
def stored(folder: Path, name: str) -> None:
    """For commands about them: two evaluators, one of them in two versions, and the tokens of two."""
    if not name.startswith(("evaluators", "serve")):
        return
    for name in ("own", "own", "gone"):
        create_evaluation(name, ["fine=fine"], force=True, check=False)
    Path("tokens").unlink(missing_ok=True)
    for name in ("me", "gone"):
        assert run(f"serve-token create {name} --tokens tokens").code == 0


def test_every_command_is_called_here() -> None:
    assert FINE.keys() == COMMANDS.keys(), (
        "give a new command a call that works, and its exit codes to docs/gates.md"
    )


def names(parameter: Any) -> list[str]:
    return [name for name in (*parameter.opts, *parameter.secondary_opts) if name.startswith("-")]


@pytest.mark.parametrize("name", COMMANDS)
def test_help_explains_the_command_and_every_option(name: str) -> None:
    done = run(f"{name} --help")
    assert (done.code, done.err) == (0, "")
    assert (COMMANDS[name].help or "").strip(), f"{name} has no help"
    shown = " ".join(done.out.split())
    for parameter in COMMANDS[name].params:
        assert (parameter.help or "").strip(), f"{name}: {parameter.name} has no help"
        if not getattr(parameter, "hidden", False):
            assert all(option in shown for option in names(parameter)), parameter.name
        elif group_of(parameter):  # a setting: its name stands behind its group
            assert str(parameter.name) in shown, parameter.name
    assert (
        "…" not in done.out.replace("RUN_B …", "").replace("{…}", "")
        and max(map(len, done.out.splitlines())) <= 80
    )


@pytest.mark.long("several commands")
def test_every_command_has_an_example_that_parses_and_a_place_in_the_help() -> None:
    shown = {name: call for section in SECTIONS.values() for name, call in section.items()}
    assert shown.keys() == COMMANDS.keys()
    assert sum(map(len, SECTIONS.values())) == len(shown), "in one section each"
    said = command("--help").out
    assert all(f"\n{title}:\n" in said for title in SECTIONS) and "Other commands" not in said
    for name, call in shown.items():
        words = call.split()
        assert " ".join(words[: len(name.split())]) == name
        # an unknown option or a missing one raises
        COMMANDS[name].make_context(name, words[len(name.split()) :])
        known = [*RewardRegistry.list(), *DataConverterRegistry.list_sources()]
        named = [
            word
            for word in (each.rpartition("=")[2] for each in words)
            if word.endswith("_reward") or word in known
        ]
        assert all(word in known for word in named), call
        assert f"rm-gallery {call}" in " ".join(command(*name.split(), "--help").out.split())


@pytest.mark.parametrize(
    "name", ["eval", "score", "winrate", "grade", "report", "compare", "table"]
)
def test_what_is_large_is_named_before_it_is_read(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "reading " not in run(FINE[name]).err
    monkeypatch.setattr(options, "LARGE", 1)
    assert run(FINE[name]).err.startswith("reading ")


def test_shared_options_stand_together() -> None:
    said = command("winrate", "--help").out
    places = [said.index(text) for text in ("  --until-decided", "\nTable:", "  --labels", "\nJudge:", "  --llm",
        "\nRows and results:", "  --out", "\nGates:", "  --fail-under", "\nScale and machines:", "  --engine", "\nMore settings", "  budget", "Example: ")]  # fmt: skip
    assert places == sorted(places)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_misspelt_option_is_an_error(name: str) -> None:
    done = run(f"{name} --no-such-option")
    assert (done.code, done.out) == (2, "") and "--no-such-option" in done.err


@pytest.mark.parametrize(
    "name",
    apart((name for name in FINE if name not in ENDLESS), "starts processes", "evaluators preview"),
)
@pytest.mark.usefixtures("stored")
def test_a_call_that_works_ends_with_0_and_json_is_all_there_is_on_stdout(name: str) -> None:
    if name == "demo":
        return  # a test of its own
    done = run(FINE[name])
    assert done.code == 0, done.err
    if any("--json" in parameter.opts for parameter in COMMANDS[name].params):
        again = run(f"{FINE[name]} --json")
        assert again.code == 0 and json.loads(again.out, parse_constant=pytest.fail) is not None, (
            again.err
        )


FOREIGN = "问题 پرسش 😀 "


@pytest.fixture
def foreign(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder with rows in Chinese and Persian."""
    place = tmp_path / "پوشه"
    shutil.copytree(folder, place)
    monkeypatch.chdir(place)
    for path in place.glob("*.jsonl"):
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        texts = {name for name in ("prompt", "query", "subset") if any(name in row for row in rows)}
        changed = [
            {**row, **{name: f"{FOREIGN}{row[name]}" for name in texts & row.keys()}}
            for row in rows
        ]
        path.write_text(
            "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in changed), encoding="utf-8"
        )
    for path in (place / "table.csv", place / "broken.csv"):
        path.write_text(
            path.read_text(encoding="utf-8").replace("\nq", f"\n{FOREIGN}q"), encoding="utf-8"
        )


@pytest.mark.parametrize(
    ("name", "encoding"),
    covering(
        product((name for name in FINE if name not in ENDLESS), ["ascii", "cp1252"]),
        lambda name, encoding: name,
        long=lambda name, encoding: name in ("demo", "evaluators preview"),
    ),
)
@pytest.mark.usefixtures("stored", "foreign")
def test_every_command_prints_to_a_pipe_of_any_encoding(name: str, encoding: str) -> None:
    shutil.rmtree("made", ignore_errors=True)  # what init made before
    done = command(*FINE[name].split(), encoding=encoding)
    assert done.code == 0, done.err


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "utf-8"])
@pytest.mark.usefixtures("foreign")
def test_what_a_pipe_cannot_hold_is_written_as_json_writes_it(encoding: str) -> None:
    row = {"id": "é😀", "prompt": FOREIGN, "chosen": "长", "rejected": "x"}
    Path("row.jsonl").write_text(json.dumps(row, ensure_ascii=False) + "\n", encoding="utf-8")
    assert run("eval length_baseline row.jsonl --out رد").code == 0
    done = command("explain", "رد", "é😀", encoding=encoding)
    written = {
        "utf-8": ["问题"],
        "cp1252": ["\\u95ee\\u9898"],
        "ascii": ["问题", "\\u95ee\\u9898"],
    }[encoding]  # click mends ASCII
    assert done.code == 0 and any(text in done.out for text in written)
    done = command("eval", "length_baseline", "چنین نیست.jsonl", encoding=encoding)
    shown = "چنین" if encoding == "utf-8" else "\\u0686\\u0646"
    assert done.code == 2 and shown in done.err
    done = command("report", "رد", "--format", "json", encoding=encoding)
    assert done.code == 0 and json.loads(done.out)
    for path in Path("رد").glob("*.json*"):
        path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in FINE
        if any("--limit" in parameter.opts for parameter in COMMANDS[name].params)
    ],
)
def test_the_same_call_tells_the_same_and_a_limit_is_heard(name: str) -> None:
    def told(*more: str) -> str:
        return re.sub(r'"seconds": [\d.e-]+', "", run(FINE[name], "--json", *more).out)

    assert told() == told() != told("--limit", "1")


def paths_of(name: str) -> list[tuple[str, str]]:
    """(option or word, call with a path that is not there in its place) for each parameter of a
    command that names a file.
    """
    found = []
    for number, word in enumerate(words := FINE[name].split()):
        if word in ("longest", "shortest", "traced", "tokens", "fine=fine") or (
            re.search(r"\.[a-z]{2,6}$", word) and words[number - 1] not in OUTPUTS
        ):
            absent = "fine=absent.x" if "=" in word else "absent.x"
            if (name, words[number - 1]) not in INSTEAD:
                found.append((word, " ".join([*words[:number], absent, *words[number + 1 :]])))
    hints = get_type_hints(COMMANDS[name].callback)
    for parameter in COMMANDS[name].params:
        options = names(parameter)
        if (
            options
            and Path in (hints[parameter.name], *get_args(hints[parameter.name]))
            and options[0] not in OUTPUTS
        ):
            call = INSTEAD.get((name, options[0]), FINE[name])
            found += [] if call is None else [(options[0], f"{call} {options[0]} absent.x")]
    return found


@pytest.mark.parametrize(
    ("name", "call"),
    [
        pytest.param(name, call, id=f"{name} {what}")
        for name in FINE
        for what, call in paths_of(name)
    ],
)
@pytest.mark.usefixtures("stored")
def test_a_missing_and_a_damaged_file_are_named_with_exit_code_2(name: str, call: str) -> None:
    done = run(call)
    assert (done.code, done.out) == (2, "") and "absent.x" in done.err.splitlines()[-1]
    assert len(done.err.splitlines()) <= 2
    assert "Traceback" not in done.err and "Errno" not in done.err
    Path("absent.x").write_bytes(b"\x00\xff{[damaged")
    try:
        done = run(call)
    finally:
        Path("absent.x").unlink()
    assert (done.code, done.out) == (2, "") and "absent.x" in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize("gate", GATES, ids=lambda gate: str(gate["call"]))
def test_a_gate_has_two_sides(gate: Line) -> None:
    with JudgeServer(falters, in_process=True) as server:
        llm = json.dumps({"model": "judge-1", "base_url": server.base_url, "max_attempts": 1})
        done = command(
            *(f"llm={llm}" if word == "JUDGE" else word for word in gate["call"].split())
        )
    assert done.code == gate["code"], done.err
    assert gate.get("said", "") in done.err
    assert done.code != 2 or "done" not in done.err, "wrong use is said before anything is judged"


def gates_of(name: str) -> set[str]:
    """The options of a command that decide its exit code, by how their names begin."""
    found = {names(parameter)[0] for parameter in COMMANDS[name].params if names(parameter)}
    return {option for option in found if re.match("--(fail|strict|max-failures)", option)}


@pytest.mark.parametrize("name", COMMANDS)
def test_exit_codes_are_documented_and_both_sides_of_each_gate_are_tried(name: str) -> None:
    section = (
        (ROOT / "docs" / "gates.md")
        .read_text(encoding="utf-8")
        .split("## Exit codes")[1]
        .split("\n## ")[0]
    )
    rows = [line.split("|")[1:-1] for line in section.splitlines() if line.startswith("| `")]
    said_of = [row[1].strip() for row in rows if f"`{name}`" in row[0]]
    assert len(said_of) == 1, (
        f"{name} has {len(said_of)} rows in the table of exit codes in docs/gates.md"
    )
    (said,) = said_of
    told = [(line["call"], line["code"]) for line in GATES]
    codes = {code for call, code in told if f"{call} ".startswith(f"{name} ")}
    assert (1 in codes) == (said != "–"), f"{name}: docs/gates.md says of exit code 1: {said}"
    callback, ends = COMMANDS[name].callback, re.compile(r"\bexit\((\d+)\)", re.I)
    module = inspect.getsource(sys.modules[callback.__module__])
    assert set(ends.findall(module)) <= {"0", "1", "2"}, (
        f"{name} ends with a code that docs/gates.md does not tell"
    )
    assert said != "–" or "1" not in ends.findall(inspect.getsource(callback)), (
        f"{name} ends with 1: say in docs/gates.md when"
    )
    for gate in gates_of(name):
        both = {code for call, code in told if call.startswith(f"{name} ") and gate in call.split()}
        assert both >= {0, 1}, f"{name} {gate}: a call that passes and one that fails are needed"


def test_no_command_shows_the_help_and_an_unknown_one_is_an_error() -> None:
    assert (run("").code, run("--help").code, run("evaluate").code) == (2, 0, 2) and "eval" in run(
        "--help"
    ).out


def test_what_goes_wrong_in_a_run_is_one_line_and_exit_code_1(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(main, "_command", Mock(side_effect=RMGalleryError("the judge is gone")))
    assert run("doctor") == Done(1, "", "rm-gallery: the judge is gone\n")


TAKES = {
    "eval": "eval REWARD pairs.jsonl",
    "bench": "bench REWARD preferences --data pairs.jsonl",
    "score": "score REWARD table.csv --prompt q --answer x --reference y",
    "winrate": "winrate REWARD table.csv --prompt q --a x --b y --reference y",
    "show": "show REWARD",
    "audit": "audit REWARD --estimate",
    "check-reward": "check-reward REWARD",
    "conflicts": "conflicts REWARD pairs.jsonl",
    "rejudge": "rejudge REWARD rollouts.jsonl",
    "serve": "serve --port 0 --no-evaluators -r REWARD",
}
"""How each command is given a reward."""


@pytest.fixture
def _named(folder: Path) -> None:
    write_files(Path())


def test_every_command_with_a_reward_is_named_here() -> None:
    takes = {
        name
        for name, found in COMMANDS.items()
        for each in found.params
        if each.name in ("reward", "rewards")
    }
    assert takes | {"show"} == TAKES.keys()


def test_every_command_says_how_a_reward_is_named_in_the_same_words() -> None:
    for name, taken in COMMANDS.items():
        for each in taken.params:
            if each.name in ("reward", "rewards") or name == "show" and each.name == "name":
                assert options.SPELLED in each.help, name


@pytest.mark.parametrize("name", some((name for name in TAKES if name not in ENDLESS), 2))
@pytest.mark.usefixtures("_named")
def test_every_spelling_of_a_name_is_known_to_every_command(name: str) -> None:
    for spelled in SPELLED:
        done = run(TAKES[name].replace("REWARD", spelled))
        assert "There is no" not in done.err and "cannot be read" not in done.err, (
            spelled,
            done.err,
        )
    shown = {run(TAKES[name].replace("REWARD", each)).code for each in SPELLED[:4]}
    assert len(shown) == 1, "the same reward however it is spelled"


@pytest.mark.parametrize("name", TAKES)
@pytest.mark.usefixtures("_named")
def test_a_wrong_name_is_one_line_and_the_same_at_every_command(name: str) -> None:
    for wrong, said in WRONG.items():
        done = run(TAKES[name].replace("REWARD", wrong))
        assert (done.code, done.out) == (2, "") and said in done.err, (wrong, done.err)
        assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize("spelled", SPELLED)
def test_every_spelling_is_known_in_a_config_of_graders(spelled: str) -> None:
    Path("named.yaml").write_text(
        f"graders: {{a: {{grader: '{spelled}', mapper: {{reference_response: truth}}}}}}\n"
    )
    done = run("grade named.yaml graded.jsonl")
    assert done.code == 0, done.err


SETTINGS = {
    "llm": "fake:x",
    "base_url": "http://127.0.0.1:9/v1",
    "batch": "openai",
    "address": "local",
    "shard": "1/2",
    "split": "test",
    "title": "a page",
    "blame": "probe",
    "max_calls": "1000",
    "max_unscored": "99",
    "max_tokens": "1000000",
    "max_cost": "5",
    "correlation": "0.4",
    "discordance": "0.2",
    "log_level": "error",
    "on_bad_row": "skip",
    "export": "exported.csv",
    "repeats": "2",
    "ceiling": "0.9",
    "confidence": "0.9",
    "rows_per_cluster": "2",
    "memory": "512",
    "deadline": "30",
    "timeout": "30",
    "window": "0.5",
    "fail_if_worse_than": "longest",
    "prices": "prices.yaml",
    "judged": "2000",
    "role": "shaping",
}
"""A value that fits where it applies, for each setting whose type alone does not give one."""
OF_TYPE = {bool: "true", int: "2", float: "0.05"}
OF_DATA = frozenset(
    "a annotate answer b bounds by cases certificate cluster completion component config data "
    "description display_name encoding header_row id key label label_column label_probability "
    "labels length metrics_folders mode new_again numbers old_again other param pilot prompt "
    "reference reward samples score scores replay second second_labels separator sheet step step_rule total "
    "weight benchmark judge scope task kind needs probe form as_format env".split()
)
"""Settings that name something in the data, or a choice, of one command; nobody sets them for all.
"""
OF_MACHINE = frozenset(
    "access_log browser cache engine host hub open out pdf port processes queue sandbox save status_port store tasks tokens".split()
)
"""Settings that need something of the machine, or write where other calls read."""
FLAGGED = frozenset({"list_all", "json", "as_json", "dry_run"})


def settings_of(name: str) -> dict[str, str]:
    """A fitting value for every setting that this command takes."""
    hints = get_type_hints(COMMANDS[name].callback)
    found = {}
    for option in options_of(COMMANDS[name]).values():
        if (name, option.name) == ("judge-select", "fail_under"):
            found[option.name] = "kappa=-1"
        elif option.name in SETTINGS:
            found[option.name] = SETTINGS[option.name]
        elif option.name not in OF_DATA | OF_MACHINE:
            kinds = {hints[option.name], *get_args(hints[option.name])}
            found[option.name] = next(
                (value for kind, value in OF_TYPE.items() if kind in kinds), ""
            )
    return found


def test_every_setting_has_a_value_or_a_reason_why_it_has_none() -> None:
    listed = [*SETTINGS, *OF_DATA, *OF_MACHINE]
    keys = {key for command in COMMANDS.values() for key in options_of(command)}
    misses = [
        f'{name} --{key.replace("_", "-")}: add "{key}" to SETTINGS (with a value), OF_DATA or '
        f"OF_MACHINE in this file"
        for name in COMMANDS
        for key, value in settings_of(name).items()
        if not value
    ]
    misses += [f'"{key}": no command has this option; remove it' for key in {*listed} - keys]
    misses += [
        f'"{key}": it stands in more than one of SETTINGS, OF_DATA and OF_MACHINE; keep one'
        for key in {*listed}
        if listed.count(key) > 1
    ]
    assert not misses, "\n".join(["", *sorted(misses)])


@pytest.fixture
def _priced(folder: Path) -> None:
    Path("prices.yaml").write_text("'*': {input: 1, output: 1}\n")


def untyped(name: str) -> dict[str, str]:
    typed = FINE[name].split()
    words = {
        option
        for each in COMMANDS[name].params
        if {*names(each)} & {*typed}
        for option in [each.name]
    }
    return {key: value for key, value in settings_of(name).items() if key not in words}


RUNS = [name for name in FINE if name not in (*ENDLESS, "demo", "init")]


@pytest.mark.parametrize("name", some(RUNS, 5))
@pytest.mark.usefixtures("stored", "_priced")
def test_a_setting_that_nobody_typed_is_never_refused(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = {}
    for key, value in untyped(name).items():
        if key == "max_cost" and "--llm" in FINE[name]:
            continue  # refused, see below
        with monkeypatch.context() as patched:
            patched.setenv(f"RM_GALLERY_{key.upper()}", value)
            done = run(FINE[name])
        if done.code == 2 or "Traceback" in done.err:
            refused[key] = done.err
    assert refused == {}


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.usefixtures("stored", "_priced")
def test_a_file_that_sets_everything_stops_no_command(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    keys = {
        key: value
        for each in RUNS
        for key, value in settings_of(each).items()
        if key not in FLAGGED
    }
    own = untyped(name)
    lines_ = [
        f"{key} = {json.dumps(own.get(key, value))}"
        for key, value in keys.items()
        if key != "param"
    ]
    (tmp_path / "own.toml").write_text("\n".join(lines_))
    monkeypatch.setenv("RM_GALLERY_CONFIG", str(tmp_path / "own.toml"))
    done = run(FINE[name])
    assert done.code != 2, done.err


JUDGED = "eval safety_listwise_reward lists.jsonl --llm fake:<best>1</best>"


def test_a_limit_of_cost_without_prices_stops_what_calls_a_model_and_no_rule(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refused = run(JUDGED + " --max-cost 1")
    assert (refused.code, "max_cost needs prices" in refused.err) == (2, True)
    monkeypatch.setenv("RM_GALLERY_MAX_COST", "1")
    assert run(FINE["eval"]).code == 0
    refused = run(JUDGED)
    assert (
        refused.code == 2
        and "max_cost is set, but a run without budget.prices has no price for" in refused.err
    )
    monkeypatch.setenv("RM_GALLERY_PRICES", "prices.yaml")
    Path("prices.yaml").write_text("'*': {input: 1, output: 1}\n")
    assert run(JUDGED).code == 0


def test_an_endpoint_for_a_model_without_one_is_refused_where_it_is_typed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refused = run(JUDGED + " --base-url http://127.0.0.1:9/v1")
    assert (refused.code, "fake: has no endpoint; leave out --base-url" in refused.err) == (2, True)
    monkeypatch.setenv("RM_GALLERY_BASE_URL", "http://127.0.0.1:9/v1")
    assert run(JUDGED).code == 0


def test_what_is_read_is_said_once_also_where_a_setting_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(options, "LARGE", 1)
    monkeypatch.setenv("RM_GALLERY_LLM", "fake:x")
    assert run(FINE["eval"]).err.count("reading ") == 1


def test_a_setting_may_have_the_name_of_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("own.toml").write_text('llm = "fake:x"\ntrace = true\nsurely = true\n')
    monkeypatch.setenv("RM_GALLERY_CONFIG", "own.toml")
    assert run("eval length_baseline pairs.jsonl").code == 0
    typed = run("eval length_baseline pairs.jsonl --llm fake:x")
    assert (typed.code, typed.err.splitlines()[0]) == (
        2,
        "rm-gallery: length_baseline calls no model; leave out --llm and --base-url.",
    )


MIXED = "check-reward sound.py:1 base_helpfulness_pointwise:0.1"


@pytest.mark.parametrize("call", [MIXED, MIXED.replace(":1 ", " ").replace(":0.1", "")])
def test_a_judge_is_for_those_of_several_rewards_that_ask_one(call: str) -> None:
    assert "base_helpfulness_pointwise is judged by a model and none is named" in run(call).err
    assert run(call, "--llm", "fake:<score>4</score>").code in (0, 1)
    refused = run(call.replace("base_helpfulness_pointwise", "accuracy"), "--llm", "fake:x")
    assert (refused.code, "call no model; leave out --llm" in refused.err) == (2, True)


def test_a_judge_that_no_grader_asks_is_refused() -> None:
    refused = run("grade graders.yaml graded.jsonl --llm fake:x")
    assert (refused.code, "none is judged by it; leave out --llm" in refused.err) == (2, True)


JUDGING = [
    name
    for name, found in COMMANDS.items()
    if any(parameter.name == "blame" for parameter in found.params)
]
"""What judges samples in a run."""
OTHER_ORDERS = {
    "bench": ["REWARD", "BENCHMARK"],
    "grade": ["CONFIG", "DATA"],
    "judge-select": ["JUDGE", "DATA"],
    "check-reward": ["REWARD"],
}
"""A benchmark is known by its name; a config names several rewards; a check takes several, each with
answers that it makes itself.
"""


def arguments_of(name: str) -> list[Any]:
    return [each for each in COMMANDS[name].params if each.param_type_name == "argument"]


@pytest.mark.parametrize("name", JUDGING)
def test_what_judges_takes_a_reward_and_then_data(name: str) -> None:
    order = [each.metavar for each in arguments_of(name)]
    assert order == OTHER_ORDERS.get(name, ["REWARD", "DATA"])
    assert FINE[name].split()[: len(name.split())] == name.split()


def earlier_calls() -> Iterator[tuple[str, str, str]]:
    """An earlier call, the same as it is written now, and what is said of it."""
    for name in JUDGING:
        taken = [each.name for each in arguments_of(name)]
        _, first, *rest = FINE[name].split()
        more = " ".join(rest)
        if taken[0] == "reward":
            for old in (
                f"{more} --reward {first}",
                f"--reward={first} {more}",
                f"-r {first} {more}",
            ):
                yield f"{name} {old}", FINE[name], f"rm-gallery {name} {first}"
        if taken[1:] == ["data"]:
            data, *options = rest
            old = " ".join([name, first, *options, "--data", data])
            yield old, FINE[name], f"rm-gallery {name} {first} {data}"
    for old, new in MOVED.items():
        name = new.partition(" --")[0]
        more = FINE[name].removeprefix(name)
        yield old + more, new + more, f"{old} is {new} now."


@pytest.mark.parametrize(("earlier", "now", "notice"), [*earlier_calls()])
@pytest.mark.long("several commands")
def test_an_earlier_call_does_the_same_and_says_the_new_one(
    earlier: str, now: str, notice: str, folder: Path
) -> None:
    create_evaluation("own", ["fine=fine"], force=True, check=False)

    def said(done: Done) -> tuple[int, str, list[str]]:
        out = re.sub(r"\b\d+(\.\d+)? (ms|s)\b|version \d+", "…", done.out)
        return done.code, out, [line for line in done.err.splitlines() if "rm-gallery: " in line]

    before, after = said(run(earlier)), said(run(now))
    assert before[:2] == after[:2] and before[0] == 0
    [line] = [line for line in before[2] if line not in after[2]]
    assert notice in line and "--reward" not in line.partition("rm-gallery ")[2]


def test_words_behind_two_dashes_stay_in_their_place() -> None:
    done = run("winrate --prompt q --a x --b y --reward length_baseline -- table.csv")
    assert done.code == 0 and "rm-gallery winrate length_baseline table.csv …" in done.err


def test_a_reward_given_twice_and_one_alone_are_refused() -> None:
    twice = run("score length_baseline table.csv --prompt q --answer x --reward accuracy")
    assert twice.code == 2 and "unexpected extra argument" in twice.err
    alone = run("bench preferences --data pairs.jsonl")
    assert (alone.code, "rm-gallery bench REWARD preferences" in alone.err) == (2, True)
    for more in ("--forge", "--full 1", "--strict", "--role shaping", "--env canaries.jsonl"):
        assert run(f"check-reward sound.py --fuzz 3 {more}").code == 2


def test_a_command_without_reward_or_data_has_no_earlier_spelling() -> None:
    for name in set(COMMANDS) - set(JUDGING) - {"serve", "train bt", "init"}:
        done = run(f"{name} --reward accuracy")
        assert done.code == 2 and "--reward" in done.err, name


def test_earlier_commands_are_not_listed_and_show_the_help_of_what_they_are() -> None:
    listed = run("--help").out
    for old, new in MOVED.items():
        assert f"\n  {old} " not in listed
        assert run(f"{old} --help").out == run(f"{new} --help").out


def test_settings_below_an_earlier_command_hold_for_what_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rm-gallery.toml").write_text("evaluators = false\n[preview]\nmemory = 640\n")
    assert "--memory = 640 " in run("evaluators preview --dry-run").out
    monkeypatch.setenv("RM_GALLERY_PREVIEW_MEMORY", "704")
    assert "--memory = 704 " in run("preview --dry-run").out
    Path("rm-gallery.toml").write_text("[preview]\nmemry = 640\n")
    refused = run("evaluators preview --dry-run")
    assert refused.code == 2 and "Did you mean memory" in refused.err
