"""Data over a door is data: no request in any format reaches a file, a program or a host that a client
names. Formats, rewards and the places where a format takes columns are found, not listed.
"""

from __future__ import annotations

import copy
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rm_gallery import BaseReward, FakeLLM, GraderRegistry, RewardRegistry, RMGalleryError
from rm_gallery.core.reward.job import PICTURES
from rm_gallery.core.reward.judges import touched_by
from rm_gallery.serve.app import CODECS, create_app
from rm_gallery.serve.foreign import Allowed
from rm_gallery.serve.formats import NATIVE, Codec, Refused
from rm_gallery.serve.handler import Handler
from tests.gallery.registry_cases import create, fitting, missing
from tests.serve.asking import asked, post

TOKEN = "hunter2-canary"
KINDS = {"files", "programs", "network", "templates"}
CHECKS = [{"kind": "file", "path": "a.txt", "equals": "4"}]

# -- what the machine is asked for, as Python's audit events tell it --------------------------------

_SEEN: list[tuple[str, str]] | None = None


def _note(event: str, args: tuple[Any, ...]) -> None:
    if _SEEN is None:
        return
    if event in ("open", "os.listdir", "os.scandir") and args and isinstance(args[0], str | bytes):
        place = args[0] if isinstance(args[0], str) else args[0].decode("utf-8", "replace")
        _SEEN.append(("files", place))
    elif event in ("subprocess.Popen", "os.posix_spawn", "os.exec", "os.system"):
        _SEEN.append(("programs", str(args[0])))
    elif event == "socket.connect":
        _SEEN.append(("network", str(args[1])))


sys.addaudithook(_note)


class Watch:
    """What is touched between entering and leaving."""

    def __enter__(self) -> list[tuple[str, str]]:
        global _SEEN
        _SEEN = []
        return _SEEN

    def __exit__(self, *_: object) -> None:
        global _SEEN
        _SEEN = None


OWN = tuple(
    str(Path(place).resolve())
    for place in {sys.prefix, sys.base_prefix, str(Path(__file__).parents[2])}
)
"""Where code and its data lie, which anything may read."""


def test_the_watch_sees_files_programs_and_hosts(machine: Machine) -> None:
    with Watch() as seen:
        Path(machine.folder, "secret.txt").read_text()
        subprocess.run(["true"], check=True)
    assert {kind for kind, _ in seen} == {"files", "programs"}


@pytest.mark.parametrize("name", RewardRegistry.list())
def test_what_touches_the_machine_says_so(name: str) -> None:
    reward = create(name)
    declared = touched_by(reward)
    assert set(declared) <= KINDS
    if why := missing(reward):
        pytest.skip(why)
    samples = fitting(name)
    reward.evaluate(samples[0])  # imports, worker processes and data of packages
    with Watch() as seen:
        reward.evaluate(samples[1])
    undeclared = [
        (kind, what)
        for kind, what in seen
        if kind not in declared
        and not (kind == "files" and (what.startswith((*OWN, "/proc/", "/dev/", "/usr/"))))
        and not ("programs" in declared and kind == "files")  # the copy that a program is shown
    ]
    assert not undeclared


def test_graders_declare_in_the_same_words() -> None:
    for name in GraderRegistry.list():
        assert set(GraderRegistry.get(name).touches) <= KINDS


# -- what is served ---------------------------------------------------------------------------------


class Machine(NamedTuple):
    folder: str
    """Holds the canaries."""
    port: int
    hits: list[str]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    folder = tmp_path_factory.mktemp("victim")
    (folder / "secret.txt").write_text(TOKEN)
    (folder / "p.png").write_bytes(b"\x89PNG\r\n\x1a\n" + TOKEN.encode())
    (folder / "run.sh").write_text(f"#!/bin/sh\ntouch {folder}/ran\n")
    (folder / "run.sh").chmod(0o755)
    hits: list[str] = []

    class Counting(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            hits.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(TOKEN.encode())

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Counting)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield Machine(str(folder), server.server_port, hits)
    server.shutdown()
    server.server_close()


TOLD: list[str] = []
"""What the judges were shown."""


def _reply(prompt: str) -> str:
    TOLD.append(prompt)
    return "<score>3</score>"


def _made(name: str) -> BaseReward | None:
    """The reward with a judge that notes what it is shown; None where it cannot be made here."""
    judge = FakeLLM(reply=_reply)
    params: dict[str, dict[str, Any]] = {"final_state": {"checks": CHECKS}}
    params["unisolated_command_judge"] = {"command": ["/no/such/program", "{verdict}"]}
    for settings in ({}, {"llm": judge}, {"model": judge}):
        try:
            made = RewardRegistry.create(name, **params.get(name, {}), **settings)
            made.check()
        except (RMGalleryError, TypeError, ValueError):
            continue
        return made
    return None


def _touching() -> dict[str, BaseReward]:
    """Every registered reward and grader of which a sample can name what it touches."""
    found = {}
    for name in (*RewardRegistry.list(), *(f"grader:{each}" for each in GraderRegistry.list())):
        kind = RewardRegistry.get(name)
        if any(kind.touches.values()) or name.startswith("grader:"):
            made = _made(name)
            if made is not None and any(touched_by(made).values()):
                found[name] = made
    return found


REWARDS = _touching()
GROUPS: dict[str, list[str]] = {}
for each_name, each_reward in REWARDS.items():
    GROUPS.setdefault(repr(sorted(touched_by(each_reward).items())), []).append(each_name)


def test_the_rewards_are_found() -> None:
    assert {"final_state", "agent_judge", "unisolated_agent_judge", "unisolated_command_judge"} <= (
        set(REWARDS)
    )
    assert {"grader:image_quality", "grader:text_to_image", "grader:final_state"} <= set(REWARDS)


class Lure(NamedTuple):
    """What a client names: a column, or a part of a message where `field` is empty."""

    kind: str
    field: str
    value: Any


def lures(machine: Machine) -> list[Lure]:
    """Files, programs, hosts and templates by every name that a reward may go by."""
    folder, url = machine.folder, f"http://127.0.0.1:{machine.port}/admin"
    secret, picture = f"{folder}/secret.txt", f"{folder}/p.png"
    paths = [
        folder, secret, f"{folder}/", f"{folder}/../victim0", f"file://{folder}", "/proc/self",
        "/", "..", ".", "~", "", "relative", f"{folder}\0", [folder], 3, True,
    ]  # fmt: skip
    made = [Lure("files", field, path) for field in ("workspace", "start") for path in paths]
    checks: list[Any] = [
        {"kind": "file", "path": secret, "matches": "^h"},
        {"kind": "changes", "allowed": [], "start": folder},
        {"kind": "command", "run": ["python", "-c", f"open({secret!r})"], "stdout": "x"},
        {"kind": "command", "run": [f"{folder}/run.sh"]},
        {"kind": "tests", "path": "a.py", "tests": [f"assert open({secret!r})"]},
        {"kind": "query", "path": "db.sqlite", "query": f"attach '{secret}' as v", "rows": []},
        {"kind": "http", "url": url, "contains": TOKEN},
    ]
    made += [Lure("programs", "checks", [check]) for check in checks]
    made += [Lure("programs", "checks", json.dumps(checks)), Lure("programs", "checks", [])]
    made += [
        Lure("", field, {name: value})
        for field in ("label", "metadata", "extra_info")
        for name, value in (("workspace", folder), ("checks", checks))
    ]
    pictures: list[dict[str, Any]] = [
        {"path": picture}, {"path": secret}, {"path": [picture]}, {"url": url}, {"url": f"file://{picture}"},
        {"url": picture}, {"type": "image", "path": picture}, {"type": "image", "image": url},
        {"type": "image_url", "image_url": {"url": url}}, {"type": "image_url", "image_url": url},
        {"type": "input_image", "image_url": f"HTTP://127.0.0.1:{machine.port}/x"},
        {"type": None, "url": url}, {"type": "image_url", "image_url": {"url": picture}},
    ]  # fmt: skip
    made += [Lure("pictures", field, p) for field in ("image", "response") for p in pictures]
    made += [Lure("pictures", "", {"type": "image", **part}) for part in pictures]
    made += [
        Lure("", "criteria", secret), Lure("", "template", secret), Lure("", "hosts", ["127.0.0.1"]),
        Lure("", "sandbox", "subprocess"), Lure("", "packages", [folder]), Lure("", "command", [f"{folder}/run.sh"]),
        Lure("", "store", folder), Lure("", "llm", secret), Lure("", "schema", {"$ref": url}),
    ]  # fmt: skip
    return made


def named(lure: Lure, reward: BaseReward) -> bool:
    """Whether the reward says that a sample names it so: then the request has to be refused."""
    touches = touched_by(reward)
    if lure.kind == "pictures":
        if lure.field and PICTURES not in touches.get("files", ()):
            return False  # a judge is sent the pictures of messages, and no column's
        value = lure.value
        path = value.get("path") is not None and PICTURES in touches.get("files", ())
        urls = [value.get(key) for key in ("url", "image_url", "image")]
        urls = [each["url"] if isinstance(each, dict) else each for each in urls if each]
        return path or bool(urls and PICTURES in touches.get("network", ()))
    inner = lure.value if isinstance(lure.value, dict) else {lure.field: lure.value}
    return any(field in fields for fields in touches.values() for field in inner)


# -- formats, and where they take columns and messages ----------------------------------------------

FORMATS = {
    codec.name: codec
    for codec in (*NATIVE, *CODECS)
    if codec.path.startswith("/v1/rewards/{name}") and codec.request_example is not None
}
MARK = "mark-of-the-column"


def _places(value: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield way
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, each in inner:
        yield from _places(each, (*way, key))


def _with(body: Any, way: tuple[Any, ...], value: Any) -> Any:
    made = copy.deepcopy(body)
    here = made
    for key in way[:-1]:
        here = here.setdefault(key, {}) if isinstance(here, dict) else here[key]
    here[way[-1]] = value
    return made


def _is_object(body: Any, way: tuple[Any, ...]) -> bool:
    for key in way:
        body = body[key]
    return isinstance(body, dict)


def _reads(codec: Codec, body: Any, *fields: str) -> bool:
    """Whether the mark arrives in one of these fields of an ask."""
    try:
        _, asks = codec.parse(body, {"name": "x"})
    except Refused:
        return False
    return any(not ask.problem and MARK in repr([getattr(ask, f) for f in fields]) for ask in asks)


def _arrives(codec: Codec, body: Any, lure: Lure) -> bool:
    """Whether a body of the format brings it to the reward: a field may have another meaning there."""
    try:
        _, asks = codec.parse(json.loads(json.dumps(body)), {"name": "x"})
    except Refused:
        return False
    if lure.field:
        rows = [ask.row or {} for ask in asks if not ask.problem]
        return any(row.get(lure.field) == lure.value for row in rows)
    return any(
        repr(lure.value)[1:-1] in repr([ask.messages, ask.prompt, ask.completion])
        for ask in asks
        if not ask.problem
    )


def carriers(codec: Codec) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """Where a body of the format holds columns, and where the content of a message."""
    body, columns, contents = codec.request_example, [], []
    for way in list(_places(body)):
        here = body
        for key in way:
            here = here[key]
        if isinstance(here, dict):
            fresh = ((), ("row",), ("kwargs",), ("metadata",), ("item",))
            ways = [(*way, *more, "any_column") for more in fresh]
            columns += [each for each in ways if _reads(codec, _with(body, each, MARK), "row")]
        elif isinstance(here, str) and way and way[-1] in ("content", "prompt", "completion"):
            part = {"type": "image", "path": MARK}
            if _reads(codec, _with(body, way, [part]), "messages", "prompt", "completion"):
                contents.append(way)
    return columns, contents


OTHERS = {
    name: [way for way in _places(codec.request_example) if _is_object(codec.request_example, way)]
    for name, codec in FORMATS.items()
}


def test_formats_take_columns_and_pictures() -> None:
    takes = {name: carriers(codec) for name, codec in FORMATS.items()}
    assert len(takes) > 12
    assert sum(bool(columns) for columns, _ in takes.values()) > 8
    assert sum(bool(contents) for _, contents in takes.values()) > 4


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_no_request_reaches_what_it_names(name: str, machine: Machine) -> None:
    codec, every = FORMATS[name], lures(machine)
    assert len(every) >= 60
    columns, contents = carriers(codec)
    turn = sorted(FORMATS).index(name)
    requests, meant, used = [], [], set()
    for number, lure in enumerate(every):
        members = [each[(number + turn) % len(each)] for each in GROUPS.values()]
        chosen = [each for each in members if named(lure, REWARDS[each])] or members
        reward = chosen[(number + turn) % len(chosen)]
        ways = [(*way[:-1], lure.field) for way in columns] if lure.field else contents
        # where a format takes no columns and no pictures, a turn and the body itself are tried
        ways = ways or [(*way, lure.field) for way in OTHERS[name]]
        value = lure.value if lure.field else [{"type": "text", "text": "see"}, lure.value]
        body = _with(codec.request_example, ways[number % len(ways)], value)
        due = named(lure, REWARDS[reward]) and _arrives(codec, body, lure)
        target = {"url": codec.path.replace("{name}", reward), "content": json.dumps(body)}
        requests.append(target)
        meant.append((lure, reward, due))
        used.add(reward)
    app = create_app(Handler({each: REWARDS[each] for each in used}))
    TOLD.clear()
    with Watch() as seen:
        replies = asked(app, *requests)
    reached = [each for each in seen if machine.folder in each[1] or str(machine.port) in each[1]]
    assert not reached and not machine.hits and not Path(machine.folder, "ran").exists()
    assert not [each for each in seen if each[0] == "programs"]
    for reply, (lure, reward, due) in zip(replies, meant, strict=True):
        assert TOKEN not in reply.text.replace(json.dumps(lure.value), "")
        if due:
            assert reply.status_code == 422, (lure, reward, reply.text)
            error = reply.json()["error"]
            assert error["code"] == "not_content" and "\n" not in error["message"]
            assert (lure.field or "content") in error["message"]
    assert TOKEN not in "".join(TOLD)


# -- what the server's own configuration names ------------------------------------------------------


def scored(row: dict[str, Any], allowed: Allowed | None = None) -> Any:
    reward = RewardRegistry.create("final_state", checks=CHECKS)
    app = create_app(Handler({"it": reward}, allowed={"it": allowed} if allowed else None))
    return post(app, "/v1/rewards/it", {"completion": "Done", "row": row})


def test_content_is_judged_by_the_servers_checks() -> None:
    assert scored({"workspace": {"a.txt": "4"}}).json()["score"] == 1.0
    assert scored({"workspace": {"a.txt": "5"}}).json()["score"] == 0.0


@pytest.mark.long("starts programs")
def test_a_folder_below_the_servers_root_is_judged_and_no_other(tmp_path: Path) -> None:
    root, other = tmp_path / "root", tmp_path / "root2"
    for folder in (root / "run", other):
        folder.mkdir(parents=True)
        (folder / "a.txt").write_text("4")
    (root / "out").symlink_to(other)
    allowed = Allowed(root=str(root))
    for given in ("run", str(root / "run"), "./run/../run"):
        assert scored({"workspace": given}, allowed).json()["score"] == 1.0
    for given in ("", ".", str(root), "../root2", str(other), "out", "run/../../root2", "run\0"):
        reply = scored({"workspace": given}, allowed)
        assert reply.status_code == 422
        assert "row.workspace names a file of the server" in reply.json()["error"]["message"]


def test_a_picture_is_fetched_from_the_servers_hosts_alone() -> None:
    judge = RewardRegistry.create("base_helpfulness_pointwise", llm=FakeLLM(reply=_reply))
    app = create_app(
        Handler({"it": judge}, allowed={"it": Allowed(hosts=frozenset({"a.example"}))})
    )

    def status(url: str) -> int:
        part = {"type": "image_url", "image_url": {"url": url}}
        turns = [{"role": "user", "content": [part]}]
        return post(app, "/v1/rewards/it", {"prompt": turns, "completion": "A cat."}).status_code

    assert status("https://a.example/c.png") == status("data:image/png;base64,AA==") == 200
    odd = ("http://b.example/c.png", "http://a.example@b.example/", "http://b.example\\@a.example/")
    assert [status(url) for url in (*odd, "ftp://a.example/c.png", "http://[a.example")] == [
        422
    ] * 5
