"""Final-state checks against workspaces that are right, wrong and hostile."""

from __future__ import annotations

import asyncio
import hashlib
import http.server
import io
import itertools
import os
import pickle
import socket
import sqlite3
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from rm_gallery import ConfigError, DataError, DataSample, MessageRole, RewardRegistry
from rm_gallery.core.reward.schema import sample_of
from rm_gallery.core.sandbox import bwrap
from rm_gallery.core.sandbox.workspace import StateFault, workspace_state
from rm_gallery.gallery.rm.agentic.final_state import FinalStateReward
from tests.support.state_tasks import make_tasks
from tests.support.system import require_bubblewrap


def _sample(workspace: Any, *checks: dict[str, Any], **metadata: Any) -> DataSample:
    given = str(workspace) if isinstance(workspace, Path) else workspace
    return sample_of("Do it.", "Done.", workspace=given, checks=list(checks), **metadata)


def _score(
    workspace: Any, *checks: dict[str, Any], start: Any = None, **settings: Any
) -> tuple[float | None, str]:
    """The score and its reason; without a score the cause and the message."""
    sample = _sample(workspace, *checks, **({} if start is None else {"start": start}))
    found = FinalStateReward(**settings).evaluate(sample).output[0].answer.reward
    if found.score is None:
        (issue,) = found.issues
        return None, f"{issue.cause} {issue.reason}: {issue.message}"
    return found.score, found.details[0].reason or ""


@pytest.mark.parametrize("sandbox", ["bwrap", "subprocess"])
def test_the_verdict_is_the_truth_whatever_the_agent_claims(tmp_path: Path, sandbox: Any) -> None:
    if sandbox == "bwrap":
        require_bubblewrap()
    tasks = make_tasks(60, 7, tmp_path)
    reward = FinalStateReward(all_or_nothing=True, sandbox=sandbox)
    scored = reward.evaluate_batch([task.sample for task in tasks])
    assert {task.done for task in tasks} == {task.honest for task in tasks} == {True, False}
    wrong = [
        (task.sample.input[0].content, task.done, sample.output[0].answer.reward)
        for task, sample in zip(tasks, scored, strict=True)
        if sample.output[0].answer.reward.score != float(task.done)
    ]
    assert wrong == []


A_FILE: dict[str, Any] = {"kind": "file", "path": "a.txt"}


@pytest.mark.parametrize(
    ("files", "check", "holds"),
    [
        ({"a.txt": "x"}, {}, True),
        ({}, {}, False),
        ({}, {"exists": False}, True),
        ({"a.txt": ""}, {"exists": False}, False),
        ({"a.txt": "\ufeff1\r\n2\r\n"}, {"equals": "1\n2"}, True),
        ({"a.txt": "1\n2\n3"}, {"equals": "1\n2"}, False),
        ({"a.txt": "one two"}, {"contains": ["one", "two"], "lacks": "three"}, True),
        ({"a.txt": "one two"}, {"contains": "two", "lacks": ["one"]}, False),
        ({"a.txt": "total: 12"}, {"matches": r"total:\s*\d+"}, True),
        ({"a.txt": "total: "}, {"matches": r"total:\s*\d+"}, False),
        ({"a.txt": '{"a/b": [1, {"x": 2.0}]}'}, {"pointer": "/a~1b/1/x", "value": 2}, True),
        ({"a.txt": '{"x": true}'}, {"pointer": "/x", "value": 1}, False),
        ({"a.txt": '{"x": null}'}, {"pointer": "/x", "value": None}, True),
        ({"a.txt": "{}"}, {"pointer": "/x", "value": None}, False),
        ({"a.txt": "{"}, {"pointer": "/x", "value": 1}, False),
        ({"a.txt": b"\xff\xfe"}, {"contains": ""}, False),
        ({"a.txt": "one"}, {"sha256": hashlib.sha256(b"one").hexdigest()}, True),
        ({"a.txt": "one\n"}, {"sha256": hashlib.sha256(b"one").hexdigest()}, False),
        ({"a.txt/b": ""}, {}, False),
        ({"سلام/文件.txt": "好"}, {"path": "سلام/文件.txt", "equals": "好"}, True),
        ({"cafe\u0301.txt": "x"}, {"path": "caf\u00e9.txt"}, True),
        ({"a\nb": "x"}, {"path": "a\nb"}, True),
    ],
)
def test_a_file(files: dict[str, Any], check: dict[str, Any], holds: bool) -> None:
    assert _score(files, {**A_FILE, **check})[0] == float(holds)


@pytest.mark.parametrize(
    ("files", "check", "holds"),
    [
        ({"a": "1", "b": "2"}, {"allowed": []}, True),
        ({"a": "1", "b": "3"}, {"allowed": ["b"]}, True),
        ({"a": "0", "b": "3"}, {"allowed": ["b"]}, False),
        ({"a": "1", "b": "2", "out/x/y": ""}, {"allowed": ["out/**"]}, True),
        ({"a": "1", "b": "2", "out/x/y": ""}, {"allowed": ["out/*"]}, False),
        ({"a": "1", "b": "2", "x": ""}, {"allowed": ["?"]}, True),
        ({"b": "2", "c": ""}, {"added": ["c"], "removed": ["a"], "changed": []}, True),
        ({"b": "2", "c": ""}, {"changed": ["c"]}, False),
        ({"a": "1", "b": "2", "a\nb": ""}, {"allowed": ["a"]}, False),
        ({"a": "1", "b": "2", ".git/x": ""}, {"allowed": ["*"]}, False),
    ],
)
def test_changes(files: dict[str, Any], check: dict[str, Any], holds: bool) -> None:
    found = _score(files, {"kind": "changes", **check}, start={"a": "1", "b": "2"})
    assert found[0] == float(holds), found


def test_a_start_is_kept_before_the_agent_works(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    (tmp_path / "l").symlink_to("a")
    start = workspace_state(tmp_path)
    check = {"kind": "changes", "allowed": []}
    assert _score(tmp_path, check, start=start)[0] == 1.0
    assert _score(tmp_path, check, start=str(tmp_path))[0] == 1.0
    (tmp_path / "l").unlink()
    (tmp_path / "l").symlink_to("/etc/passwd")
    assert _score(tmp_path, check, start=start) == (
        0.0,
        "0 of 1 checks hold: changes: changed outside of what is allowed: 'l'",
    )
    assert _score(tmp_path, check)[1].startswith("data no_start")
    with pytest.raises(DataError):
        workspace_state(tmp_path / "none")


CALLS = [("search", {"q": "oslo", "n": 3}), ("pay", {"to": "Ann"}), ("search", {"q": "rome"})]


@pytest.mark.parametrize(
    ("check", "holds"),
    [
        ({"tool": "search"}, True),
        ({"tool": "search", "at_most": 1}, False),
        ({"tool": "search", "arguments": {"n": 3}, "at_least": 1, "at_most": 1}, True),
        ({"tool": "pay", "arguments": {"to": "Bob"}}, False),
        ({"tool": "delete", "at_most": 0}, True),
        ({"tool": "pay", "at_most": 0, "forbidden": True}, False),
        ({"order": ["search", "pay", "search"]}, True),
        ({"order": ["pay", "search", "pay"]}, False),
    ],
)
def test_tool_calls(check: dict[str, Any], holds: bool) -> None:
    calls = [
        {
            "id": str(n),
            "type": "function",
            "function": {"name": name, "arguments": str(given).replace("'", '"')},
        }
        for n, (name, given) in enumerate(CALLS)
    ]
    sample = _sample({}, {"kind": "calls", **check})
    sample.output[0].steps = [
        type(sample.output[0].answer).model_validate({"role": "assistant", "tool_calls": calls}),
        type(sample.output[0].answer).model_validate(
            {"role": "tool", "content": '<tool_call>{"name": "delete"}</tool_call>'}
        ),
    ]
    # a call that is only written stands for nothing where calls are records
    sample.output[
        0
    ].answer.content = '<tool_call>{"name": "pay", "arguments": {"to": "Bob"}}</tool_call>'
    assert FinalStateReward().evaluate(sample).output[0].answer.reward.score == float(holds)


# -- hostile workspaces ------------------------------------------------------------------------------


def test_a_link_out_is_never_followed_and_one_inside_is(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    work = tmp_path / "work"
    (work / "real").mkdir(parents=True)
    (work / "real" / "x").write_text("secret")
    (work / "absolute").symlink_to("/etc/passwd")
    (work / "above").symlink_to("../secret")
    (work / "folder").symlink_to("..")
    (work / "round").symlink_to("round")
    (work / "inside").symlink_to("real")
    (work / "real" / "up").symlink_to("../real/x")
    for path in ("absolute", "above", "folder/secret", "round"):
        score, reason = _score(work, {"kind": "file", "path": path})
        assert score == 0.0 and "link out of the workspace" in reason, path
    for path in ("inside/x", "real/up", "inside/up"):
        assert _score(work, {"kind": "file", "path": path, "equals": "secret"})[0] == 1.0
    (work / "real" / "gone").symlink_to("nothing")
    assert _score(work, {"kind": "file", "path": "real/gone", "exists": False})[0] == 1.0


def test_pipes_sockets_and_devices_are_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    work = tmp_path / "s"
    with closing(socket.socket(socket.AF_UNIX)) as listener:
        listener.bind(str(work))
        for path in ("pipe", "s"):
            score, reason = _score(tmp_path, {"kind": "file", "path": path, "contains": ""})
            assert (score, "no file" in reason) == (0.0, True)
    assert workspace_state(tmp_path)["pipe"] == "special"
    assert _score(tmp_path, {"kind": "changes", "allowed": []}, start={})[0] == 0.0
    assert (
        _score(tmp_path, {"kind": "query", "path": "pipe", "query": "SELECT 1", "rows": []})[0]
        == 0.0
    )


@pytest.mark.long("waits for a deadline")
def test_huge_sparse_and_many_files_are_bounded(tmp_path: Path) -> None:
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(1 << 30)
    score, reason = _score(tmp_path, {"kind": "file", "path": "huge", "contains": "x"})
    assert score == 0.0 and "larger than what is read" in reason
    start = workspace_state(tmp_path)
    assert start == {"huge": f"large:{1 << 30}"}
    many = tmp_path / "many"
    many.mkdir()
    for number in range(10_000):
        (many / str(number)).touch()
    check = {"kind": "changes", "allowed": ["many/*"]}
    assert _score(many, {"kind": "changes", "allowed": ["*"]}, start={})[0] == 1.0
    score, reason = _score(many, {"kind": "changes", "allowed": ["*"]}, start={}, max_files=100)
    assert score == 0.0 and "more than 100 files" in reason
    # the state of what was not read cannot be told: that is no fault of the agent
    assert _score(tmp_path, check, start=start)[1].startswith("data data")


def test_deep_folders_and_odd_names(tmp_path: Path) -> None:
    deep = tmp_path
    for _ in range(150):
        deep = deep / "d"
    deep.mkdir(parents=True)
    (deep / "x").write_text("hidden")
    os.close(os.open(os.fsencode(tmp_path) + b"/\xff\n\x1b[31m", os.O_CREAT | os.O_WRONLY))
    score, reason = _score(tmp_path, {"kind": "changes", "allowed": ["*"]}, start={})
    assert score == 0.0 and reason.isprintable()
    assert _score(tmp_path, {"kind": "file", "path": "/".join("d" * 150) + "/x"})[0] == 0.0


def test_what_may_not_be_read_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rm_gallery.core.sandbox.workspace import Workspace

    (tmp_path / "a").write_text("x")

    def refused(*_: Any, **__: Any) -> int:
        raise PermissionError(13, "Permission denied")

    with Workspace(str(tmp_path)) as workspace:
        monkeypatch.setattr("rm_gallery.core.sandbox.workspace._regular", refused)
        assert workspace.state() == {"a": "unreadable"}
        with pytest.raises(StateFault, match="cannot be read"):
            workspace.read("a")


def test_archives_are_read_and_lead_nowhere(tmp_path: Path) -> None:
    good, bad, link = (tmp_path / name for name in ("good.tar.gz", "bad.tar", "link.tar"))

    def add(
        archive: tarfile.TarFile,
        name: str,
        text: str = "",
        to: str = "",
        kind: bytes = tarfile.REGTYPE,
    ) -> None:
        member = tarfile.TarInfo(name)
        member.type, member.linkname, member.size = kind, to, len(text)
        archive.addfile(member, io.BytesIO(text.encode()))

    with tarfile.open(good, "w:gz") as archive:
        add(archive, "./a.txt", "4")
        add(archive, "pipe", kind=tarfile.FIFOTYPE)
    with tarfile.open(bad, "w") as archive:
        add(archive, "../out.txt", "4")
    with tarfile.open(link, "w") as archive:
        add(archive, "d", to=str(tmp_path), kind=tarfile.SYMTYPE)
        add(archive, "d/out.txt", "4")
    check = {**A_FILE, "equals": "4"}
    assert _score(good, check)[0] == 1.0
    assert _score(good, {"kind": "changes", "allowed": ["a.txt"]}, start={})[0] == 0.0
    assert _score(bad, check)[0] == 0.0
    assert _score(link, {"kind": "file", "path": "d/out.txt"})[0] == 1.0
    assert not (tmp_path / "out.txt").exists() and not (tmp_path.parent / "out.txt").exists()
    packed = tmp_path / "a.zip"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as zipped:
        zipped.writestr("a.txt", "4")
        zipped.writestr("bomb", "0" * 3_000_000)
    assert _score(packed, check)[0] == 1.0
    assert _score(packed, check, max_file_mb=1)[1].startswith("data too_large")
    assert _score(packed, check, max_file_mb=1, start={})[0] == 0.0
    packed.write_bytes(b"no archive")
    assert _score(packed, check)[1].startswith("data data")
    for path in ("../x", "/x", "\ud800", "x" * 300, "a\0b", "."):
        assert _score({path: "4", "a.txt": "4"}, check)[0] == 0.0, path


def test_a_text_that_is_hard_to_read_fails() -> None:
    value = {**A_FILE, "pointer": "/x", "value": 1}
    for text in ("[" * 100_000, '{"x": ' + "9" * 10_000 + "}", '{"x": NaN}', "\0" * 1000):
        assert _score({"a.txt": text}, value)[0] == 0.0


@pytest.mark.long("waits for a deadline")
def test_a_pattern_that_runs_for_ever_fails() -> None:
    check = {**A_FILE, "matches": r"^(a+)+$"}
    score, reason = _score({"a.txt": "a" * 40 + "b"}, check, timeout=0.5)
    assert score == 0.0 and "too long" in reason


# -- programs ----------------------------------------------------------------------------------------

PLANTED = "import os\nprint('ok', flush=True)\nos._exit(0)\n"
START_FILES = (
    "sitecustomize.py",
    "usercustomize.py",
    "conftest.py",
    "json.py",
    "unittest.py",
    "site.py",
)
CHECK = "import json\nassert json.load(open('a.json')) == [4]\nprint('ok')\n"
OWN: dict[str, Any] = {
    "kind": "command",
    "run": ["python", "tests/check.py"],
    "files": {"tests/check.py": CHECK},
    "stdout": "ok",
}


@pytest.fixture(params=["bwrap", "subprocess"])
def sandbox(request: pytest.FixtureRequest) -> Any:
    if request.param == "bwrap":
        require_bubblewrap()
    return request.param


@pytest.mark.parametrize(
    "planted",
    [
        dict.fromkeys(START_FILES, PLANTED),
        {f"tests/{name}": PLANTED for name in START_FILES},
        {"tests/check.py": PLANTED},
        {"tests/check.py/x": PLANTED},
        {"tests": PLANTED},
        {
            ".bashrc": "exit 0",
            ".profile": "exit 0",
            "bin/python": "#!/bin/sh\nexit 0",
            "pyvenv.cfg": "home = .",
        },
        {
            "reward.txt": "1.0",
            "result.json": '{"score": 1}',
            "pytest.ini": "[pytest]\naddopts = --co",
        },
    ],
)
def test_nothing_planted_decides(
    planted: dict[str, str], sandbox: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONSTARTUP", "sitecustomize.py")
    assert _score({**planted, "a.json": "[5]"}, OWN, sandbox=sandbox)[0] == 0.0
    assert _score({**planted, "a.json": "[4]"}, OWN, sandbox=sandbox)[0] == 1.0


def test_what_a_program_does_and_says(sandbox: Any) -> None:
    def run(code: str, **check: Any) -> tuple[float | None, str]:
        program = {"kind": "command", "run": ["python", "main.py", "7"], **check}
        return _score({"main.py": code, "lib.py": "x = 3"}, program, sandbox=sandbox, timeout=3)

    assert (
        run("import sys, lib\nprint(sys.argv[1], lib.x, input())", stdin="in\n", stdout="7 3 in")[0]
        == 1.0
    )
    assert run("raise SystemExit(3)", exit_code=3)[0] == 1.0
    assert run("raise SystemExit(3)")[0] == 0.0
    assert run("print('a\\r\\nb  ')", stdout="a\nb")[0] == 1.0
    assert run("print('abc')", stdout_contains=["a", "d"])[0] == 0.0
    assert run("import os\nos.kill(os.getpid(), 9)")[0] == 0.0
    assert run("while True: print('x' * 10000)", exit_code=None)[0] == 0.0
    assert run("while True: pass", exit_code=None) == (
        0.0,
        "0 of 1 checks hold: command main.py: it was stopped: deadline",
    )
    assert run("x = bytearray(4 << 30)")[0] == 0.0
    assert (
        run(
            "import os\nprint({k for k in os.environ if 'PYTHON' in k} - {'PYTHONUTF8', 'PYTHONHASHSEED', 'PYTHONDONTWRITEBYTECODE', 'PYTHONNOUSERSITE'})",
            stdout="set()",
        )[0]
        == 1.0
    )
    assert run("import tests_missing")[0] == 0.0


def test_a_program_works_on_a_copy_without_network_or_files(tmp_path: Path) -> None:
    require_bubblewrap()
    (tmp_path / "a").write_text("kept")
    (tmp_path / "out").symlink_to("/etc/passwd")
    code = (
        "import os, socket\nfound = []\n"
        "for work in (lambda: open('a', 'w'), lambda: socket.socket(), lambda: open('out'), lambda: open('/etc/passwd'), "
        f"lambda: open({str(tmp_path / 'a')!r})):\n"
        "    try:\n        work()\n        found.append(work)\n    except OSError:\n        pass\n"
        "print(len(found), open('a').read())"
    )
    check = {"kind": "command", "run": ["python", "-c", code], "stdout": "0 kept"}
    assert _score(tmp_path, check) == (1.0, "1 of 1 checks hold.")
    assert (tmp_path / "a").read_text() == "kept"


def test_tests_stand_out_of_the_reach_of_the_code(sandbox: Any) -> None:
    check = {
        "kind": "tests",
        "path": "s.py",
        "tests": ["from s import double\nassert double(2) == 4", "assert double(3) == 6"],
    }
    for code, wanted in [
        ("def double(x):\n    return 2 * x\n", 1.0),
        ("def double(x):\n    return 4\n", 0.0),
        (PLANTED, 0.0),
        ("import sys\nsys.exit(0)\n", 0.0),
        ("import builtins\nbuiltins.AssertionError = None\ndef double(x): return 0\n", 0.0),
    ]:
        assert _score({"s.py": code}, check, sandbox=sandbox)[0] == wanted, code
    assert _score({}, check, sandbox=sandbox)[0] == 0.0
    vacuous = {**check, "tests": ["double(2)"]}
    assert _score({"s.py": "def double(x): return 1"}, vacuous, sandbox=sandbox)[1].startswith(
        "data bad_tests"
    )


def test_without_a_sandbox_nothing_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rm_gallery.core.sandbox.bwrap.shutil.which", lambda name: None)
    monkeypatch.setattr(bwrap, "_WORKING", {})
    there = {**A_FILE, "weight": 3}
    for check in (OWN, {"kind": "tests", "path": "a.txt", "tests": "assert f() == 1"}):
        score, message = _score({"a.txt": ""}, there, check)
        assert (
            score is None
            and message.startswith("caller sandbox")
            and "between 0.75 and 1" in message
        )
        # what was made decides
        assert _score({}, {**there, "forbidden": True}, check)[0] == 0.0
        assert _score({}, there, check, all_or_nothing=True)[0] == 0.0


# -- queries, servers --------------------------------------------------------------------------------


@pytest.mark.long("waits for a deadline")
def test_rows_of_a_database(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    keep = sqlite3.connect(path)
    keep.execute("PRAGMA journal_mode = WAL")
    keep.execute("CREATE TABLE t (x, y)")
    keep.execute("INSERT INTO t VALUES (2, 'b'), (1, 'a')")
    keep.commit()

    def ask(query: str, rows: list[Any], **more: Any) -> tuple[float | None, str]:
        check = {"kind": "query", "path": "shop.db", "query": query, "rows": rows, **more}
        return _score(tmp_path, check, timeout=2)

    before = workspace_state(tmp_path)
    assert ask("SELECT * FROM t", [[1, "a"], [2, "b"]])[0] == 1.0, "committed, and in the log alone"
    assert ask("SELECT * FROM t", [[1, "a"], [2, "b"]], ordered=True)[0] == 0.0
    assert ask("SELECT * FROM t ORDER BY x", [[1, "a"], [2, "b"]], ordered=True)[0] == 1.0
    assert ask("SELECT * FROM t", [[1], [2]])[0] == 0.0
    assert ask("SELECT * FROM t WHERE x > 5", [])[0] == 1.0
    assert ask("SELECT * FROM none", [])[0] == 0.0
    slow = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT max(x) FROM c"
    assert ask(slow, [[1]])[0] == 0.0
    for query in (
        "DELETE FROM t",
        "SELEC 1",
        "SELECT 1; SELECT 2",
        "ATTACH 'x' AS y",
        "PRAGMA user_version",
    ):
        assert ask(query, [])[1].startswith("data bad_check"), query
    assert workspace_state(tmp_path) == before
    keep.close()
    path.write_text("no database")
    assert ask("SELECT count(*) FROM t", [[2]])[0] == 0.0
    path.unlink()
    path.symlink_to("/etc/passwd")
    assert ask("SELECT count(*) FROM t", [[2]])[0] == 0.0


class _State(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b'{"items": [{"open": false}]}' if self.path == "/state" else b"no such page"
        if self.path == "/away":
            self.send_response(302)
            self.send_header("Location", "http://example.invalid/")
        else:
            self.send_response(200 if self.path == "/state" else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _State) as serving:
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{serving.server_port}"
        serving.shutdown()


def test_the_state_of_a_server(server: str) -> None:
    def ask(path: str, **check: Any) -> tuple[float | None, str]:
        return _score({}, {"kind": "http", "url": server + path, **check})

    assert ask("/state", pointer="/items/0/open", value=False)[0] == 1.0
    assert ask("/state", pointer="/items/0/open", value=0)[0] == 0.0
    assert ask("/state", contains="items")[0] == 1.0
    assert ask("/none")[0] == 0.0
    assert ask("/none", status=404, contains="no such")[0] == 1.0
    assert ask("/away", status=302)[0] == 1.0, "nobody is led elsewhere"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    score, message = _score({}, {"kind": "http", "url": f"http://localhost:{port}/"})
    assert score is None and message.startswith("endpoint unreachable")
    elsewhere = {"kind": "http", "url": "http://example.invalid/?key=sk-secret"}
    score, message = _score({}, elsewhere)
    assert score is None and message.startswith("data bad_check") and "sk-secret" not in message
    score, message = _score({}, elsewhere, hosts=["example.invalid"])
    assert score is None and message.startswith("endpoint") and "sk-secret" not in message


# -- the whole ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("check", "said"),
    [
        ("file", "check 2: found 'file'; a check is a mapping"),
        ({"kind": "fil"}, "check 2: field 'kind': There is no kind 'fil'. Did you mean file"),
        ({"kind": "file"}, "check 2: field 'path': it is missing; add it."),
        (
            {**A_FILE, "contain": "x"},
            "check 2: field 'contain': There is no field 'contain'. Did you mean contains",
        ),
        (
            {**A_FILE, "path": "/etc/passwd"},
            "check 2: field 'path': found '/etc/passwd'; give a path relative",
        ),
        ({**A_FILE, "path": "a/../../b"}, "check 2: field 'path': found"),
        ({**A_FILE, "weight": 0}, "check 2: field 'weight': found 0;"),
        ({**A_FILE, "matches": "("}, "check 2: field 'matches': found '('; no regular expression"),
        (
            {**A_FILE, "exists": False, "equals": ""},
            "check 2: kind 'file': a file that does not exist",
        ),
        ({**A_FILE, "pointer": "/x"}, "check 2: kind 'file': pointer and value belong together"),
        ({"kind": "changes"}, "check 2: kind 'changes': give allowed"),
        (
            {"kind": "command", "run": ["sh", "x"]},
            "check 2: field 'run': found ['sh', 'x']; there is only Python",
        ),
        ({"kind": "command", "run": ["python", "-m", "x"]}, "check 2: field 'run'"),
        ({"kind": "tests", "path": "a", "tests": 3}, "check 2: field 'tests"),
        (
            {"kind": "http", "url": "ftp://x"},
            "check 2: field 'url': found 'ftp://x'; give an address",
        ),
        (
            {"kind": "http", "url": "http://10.0.0.1/"},
            "check 2: field 'url': found the host '10.0.0.1'",
        ),
        ({"kind": "calls"}, "check 2: kind 'calls': give tool or order"),
    ],
)
def test_a_malformed_check_is_named(check: Any, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        RewardRegistry.create(
            "final_state",
            checks=[A_FILE, check] if isinstance(check, dict) else [A_FILE, {"kind": 3}],
        )
    assert "check 2: field" in str(caught.value) or said in str(caught.value)
    score, message = _score({"a.txt": ""}, A_FILE, check)
    assert score is None and message.startswith("data bad_check") and said in message, message
    assert "between 0.5 and 1" in message


def test_the_value_counts_the_checks_that_there_are() -> None:
    checks: list[dict[str, Any]] = [
        {**A_FILE, "weight": 3, "name": "there"},
        {"kind": "file", "path": "b"},
        {"kind": "file", "path": "b"},
    ]
    sample = _sample({"a.txt": "", "c": "", "d": ""}, *checks)
    done = FinalStateReward().evaluate(sample).output[0].answer.reward
    assert done.score == 0.6
    assert done.extra_data["final_state"]["metrics"] == {
        "there": 1.0,
        "file b (2)": 0.0,
        "file b (3)": 0.0,
    }
    assert _score({"a.txt": ""}, checks[0], {**checks[1], "forbidden": True})[0] == 0.0
    assert _score({"a.txt": ""}, *checks, all_or_nothing=True)[0] == 0.0
    assert _score({"a.txt": "", "b": ""}, *checks, all_or_nothing=True)[0] == 1.0


def test_bounds_hold_every_outcome_of_the_checks_that_could_not_be_made() -> None:
    """One that is forbidden and missing can still make it 0, whatever the others weigh."""
    down = {"kind": "http", "url": "http://127.0.0.1:9/"}
    bad = {"kind": "file", "path": "../a"}
    ways = [
        (A_FILE, (1.0,)),
        ({"kind": "file", "path": "b"}, (0.0,)),
        (down, (0.0, 1.0)),
        (bad, (0.0, 1.0)),
    ]
    cases = itertools.product(ways, ways[2:], (1, 3), (False, True), (False, True))
    for (first, a), (second, b), weight, forbids, whole in cases:
        checks = [{**first, "weight": weight}, {**second, "forbidden": forbids}]
        reward = FinalStateReward(all_or_nothing=whole)
        verdict = asyncio.run(reward.examine(_sample({"a.txt": ""}, *checks)))
        filled = [
            0.0 if forbids and y < 1 else min(x, y) if whole else (weight * x + y) / (weight + 1)
            for x, y in itertools.product(a, b)
        ]
        assert verdict.bounds == pytest.approx((min(filled), max(filled))), checks
        assert not forbids or verdict.bounds[0] == 0.0


@pytest.mark.parametrize("before", ["absent", "text", "digest", "large:2000000", "unreadable"])
def test_what_was_not_read_is_never_unchanged(tmp_path: Path, before: str) -> None:
    (tmp_path / "big").write_bytes(b"x" * 2_000_000)
    deep = "d/" * 101
    (tmp_path / deep).mkdir(parents=True)
    after = workspace_state(tmp_path, max_file_mb=1)
    assert after == {"big": "large:2000000", deep: "unreadable"}
    digest = f"sha256:{hashlib.sha256(b'x' * 2_000_000).hexdigest()}"
    state = {"text": "x", "digest": digest}.get(before, before)
    start = {} if before == "absent" else dict.fromkeys(after, state)
    checks: list[dict[str, Any]] = [
        {"allowed": []},
        {"changed": []},
        {"added": [], "changed": [], "removed": []},
        *({"changed": [path]} for path in after),  # neither one hides the other
    ]
    for check in checks:
        if before == "absent" and "added" not in check and "allowed" not in check:
            continue
        score, why = _score(tmp_path, {"kind": "changes", **check}, start=start, max_file_mb=1)
        assert score == 0.0 or (score is None and before.startswith("large:")), why


PREFIXES = ["{}", "functions.{}", "default_api.{}", "mcp__files__{}", "functions.{}:0"]


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("given", ['{"path": "/"}', "{broken", "", "[1]"])
def test_a_made_call_counts_under_any_prefix_and_with_any_arguments(
    prefix: str, given: str
) -> None:
    function = {"name": prefix.format("rm"), "arguments": given}
    made = {"role": "assistant", "tool_calls": [{"type": "function", "function": function}]}

    def score(**check: Any) -> Any:
        sample = _sample({}, {"kind": "calls", "tool": "rm", **check})
        answer = sample.output[0].answer
        sample.output[0].steps = [type(answer).model_validate(made)]
        return FinalStateReward().evaluate(sample).output[0].answer.reward.score

    assert (score(), score(at_most=0)) == (1.0, 0.0)
    # what cannot be read may be the forbidden call, and is not the one that was wanted
    fits = given == '{"path": "/"}'
    assert score(arguments={"path": "/"}) == float(fits)
    assert score(arguments={"path": "/"}, at_most=0) == float(given == "")


@pytest.mark.parametrize("role", ["tool", "user", "none"])
def test_a_call_that_is_only_written_was_not_made(role: str) -> None:
    sample = _sample({}, {"kind": "calls", "tool": "pay"})
    output, step = sample.output[0], type(sample.output[0].answer)
    text = '<tool_call>{"name": "pay", "arguments": {}}</tool_call>'
    after = {"tool": "paid", "user": "<tool_response>paid</tool_response>", "none": ""}[role]
    output.steps = [step(role=MessageRole.ASSISTANT, content=text)] if role != "none" else []
    output.steps += [step(role=MessageRole(role), content=after)] if role != "none" else []
    output.answer.content = text if role == "none" else "Done."
    score = FinalStateReward().evaluate(sample).output[0].answer.reward.score
    assert score == float(role != "none")


def test_checks_of_the_reward_and_of_a_label() -> None:
    reward = pickle.loads(pickle.dumps(FinalStateReward(checks=[A_FILE])))
    sample = sample_of(
        "?",
        {"content": "Done", "label": {"workspace": {"a.txt": ""}}},
        {"content": "Done", "label": {"workspace": {}}},
    )
    assert [one.answer.reward.score for one in reward.evaluate(sample).output] == [1.0, 0.0]
    text = sample_of(
        "?", "Done", workspace={"a.txt": ""}, checks='[{"kind": "file", "path": "a.txt"}]'
    )
    assert reward.evaluate(text).output[0].answer.reward.score == 1.0
    for workspace in (None, 3, "/no/such/folder"):
        assert _score(workspace, A_FILE)[1].startswith("data ")
