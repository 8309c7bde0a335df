"""What every reply of every server says to a browser, over all routes there are; and which files a
run folder may show.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import rm_gallery
from rm_gallery import DataError
from rm_gallery.core.utils.file import open_below, read_lines
from rm_gallery.serve.app import create_app
from rm_gallery.serve.door import ServeSettings
from rm_gallery.serve.handler import Handler
from rm_gallery.serve.policy import FOREIGN, HEADERS
from rm_gallery.serve.view import ViewedRuns, create_viewer
from rm_gallery.serve.view_review import REVIEW
from tests.report.runs import judged_run
from tests.serve.asking import asked, get

if TYPE_CHECKING:
    from fastapi.testclient import TestClient

SERVERS = {"serve/app.py", "serve/listen.py", "serve/view.py"}


def protected(reply: Any) -> None:
    """A reply carries the whole policy."""
    policy = reply.headers["content-security-policy"]
    assert {name: reply.headers[name] for name in HEADERS} == {
        **HEADERS,
        "content-security-policy": policy,
    }
    parts = dict(part.strip().partition(" ")[::2] for part in policy.split(";"))
    assert parts["default-src"] == parts["frame-ancestors"] == parts["base-uri"] == "'none'"
    scripts = parts.get("script-src", "'none'")
    assert scripts in ("'none'", "'self'") or scripts.startswith("'sha256-"), (
        "a script is ours, by its place or its hash"
    )
    assert parts["form-action"] in ("'none'", "'self'")
    assert reply.headers.get("content-type") or not reply.content


def test_every_server_of_the_package_is_known_here() -> None:
    package = Path(rm_gallery.__file__).parent
    words = (
        "(FastAPI)",
        "FastAPI(",
        "uvicorn.Config(",
        "= BoundedConfig(",
        "uvicorn.run(",
        "http.server",
        "Starlette(",
        "aiohttp.web",
    )
    found = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if any(word in path.read_text("utf-8") for word in words)
    }
    assert found - {"cli/machine.py", "cli/serve.py"} == SERVERS, (
        "a new server: serve it through `policy.guarded`, and add it here"
    )


@pytest.mark.long("a server process")
def test_every_reply_of_the_reward_server_carries_the_policy() -> None:
    app = create_app(Handler({}), ServeSettings())

    @app.get("/breaks")
    async def breaks() -> None:
        raise RuntimeError("broken")

    routes: list[Any] = list(app.routes)
    paths = [
        route.path.format(name="x", id="x")
        for route in routes
        if "{" not in route.path.replace("{name}", "").replace("{id}", "")
    ]
    assert len(paths) > 10
    requests = [
        {"method": method, "url": url, "content": b"{}"}
        for url in [*paths, "/none", "/docs/"]
        for method in METHODS
    ]
    replies = asked(app, *requests)
    for reply in replies:
        protected(reply)
    assert {200, 404, 405, 500} <= {reply.status_code for reply in replies}


METHODS = ("GET", "POST", "HEAD", "DELETE", "OPTIONS")


def test_every_reply_of_the_status_port_carries_the_policy() -> None:
    app = create_app(Handler({}), ServeSettings())
    for reply in asked(
        app.state.status, *(get(url) for url in ("/health", "/metrics", "/", "/docs"))
    ):
        protected(reply)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    judged_run(tmp_path / "runs" / "one", 6)
    judged_run(tmp_path / "elsewhere" / "two", 6)
    (tmp_path / "elsewhere" / "secret").write_text("a secret of this machine")
    (tmp_path / "runs" / "audit").mkdir()
    (tmp_path / "runs" / "audit" / "card.html").write_text("<script>alert(1)</script>a card")
    return tmp_path / "runs"


@pytest.fixture
def client(place: Path) -> Iterator[TestClient]:
    from fastapi.testclient import TestClient

    app = create_viewer(ViewedRuns([place]), "secret")
    with TestClient(
        app, base_url="http://127.0.0.1:8123", raise_server_exceptions=False, follow_redirects=False
    ) as found:
        yield found


@pytest.mark.long("a server process")
def test_every_reply_of_the_viewer_carries_the_policy(client: TestClient, place: Path) -> None:
    runs = ViewedRuns([place])
    (run,), (card,) = runs.runs, runs.cards
    routes: list[Any] = client.app._app.routes  # type: ignore[attr-defined]
    for route in routes:
        of = (
            card
            if route.path.startswith("/card")
            else "accuracy"
            if route.path.startswith("/gallery")
            else run
        )
        path = (
            route.path.replace(":path", "")
            .replace(":int", "")
            .format(name=of, place=0, answer=0, file="view.js")
        )
        for url in (f"/secret{path}", f"/secret{path}?page=x&annotator=me&a={run}&b={run}", path):
            for method in METHODS:
                protected(client.request(method, url))
    for url in ("/", "/secret", "/secret/none", f"/secret/run/{run}/row/99", "/secret/static/x"):
        protected(client.get(url))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ViewedRuns, "listed", lambda _: 1 / 0)
        broken = client.get("/secret/")
    assert broken.status_code == 500
    protected(broken)


def test_a_card_is_shown_in_a_box_without_scripts(client: TestClient, place: Path) -> None:
    (card,) = ViewedRuns([place]).cards
    reply = client.get(f"/secret/card/{card}")
    assert "a card" in reply.text
    assert reply.headers["content-security-policy"] == FOREIGN and FOREIGN.startswith("sandbox; ")
    assert "script" not in FOREIGN.replace("no script", "")


@pytest.mark.parametrize("site", ["cross-site", "same-site", "weird"])
def test_only_our_own_pages_may_post(client: TestClient, place: Path, site: str) -> None:
    (run,) = ViewedRuns([place]).runs
    body = "annotator=me&place=0&verdict=a"
    refused = client.post(
        f"/secret/run/{run}/review", content=body, headers={"sec-fetch-site": site}
    )
    assert refused.status_code == 403 and not (place / "one" / REVIEW).exists()
    assert (
        client.post(f"/secret/run/{run}/review", content="verdict=undo&annotator=me").status_code
        == 303
    )


# -- files -----------------------------------------------------------------------------------------


def link(path: Path, to: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(to)


@pytest.mark.parametrize(
    "name", ["samples.jsonl", "report.json", "manifest.json", "summary.json", "review.jsonl"]
)
def test_a_file_of_a_run_that_is_a_link_is_refused(
    client: TestClient, place: Path, name: str
) -> None:
    (run,) = ViewedRuns([place]).runs
    source = place.parent / "elsewhere" / "two" / name
    if not source.exists():
        source.write_text('{"annotator": "somebody else"}\n')
    link(place / "one" / name, source)
    texts = [
        client.get(f"/secret/run/{run}{more}")
        for more in ("", "/review", "/row/0", "/report", "/row/0/answer/0")
    ]
    assert any(reply.status_code == 404 and "is a link" in reply.text for reply in texts)
    assert not any("somebody else" in reply.text for reply in texts)
    assert client.get("/secret/").status_code == 200


def test_a_card_that_is_a_link_or_no_file_is_refused(client: TestClient, place: Path) -> None:
    (card,) = ViewedRuns([place]).cards
    path = place / "audit" / "card.html"
    client.get("/secret/")
    link(path, place.parent / "elsewhere" / "secret")
    replies = [client.get(f"/secret/card/{card}")]
    path.unlink()
    os.mkfifo(path)
    replies.append(client.get(f"/secret/card/{card}"))
    path.unlink()
    (place / "audit").rmdir()
    (place / "audit").symlink_to(place.parent / "elsewhere")
    link(place.parent / "elsewhere" / "card.html", place.parent / "elsewhere" / "secret")
    replies.append(client.get(f"/secret/card/{card}"))
    assert [reply.status_code for reply in replies] == [404] * 3
    assert not any("a secret" in reply.text for reply in replies)


def test_what_is_swapped_between_the_look_and_the_opening_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "root" / "run").mkdir(parents=True)
    (tmp_path / "out").mkdir()
    for folder in ("root/run", "out"):
        (tmp_path / folder / "file").write_text(folder)
    root, path = tmp_path / "root", tmp_path / "root" / "run" / "file"
    assert list(read_lines(path, root)) == [b"root/run"]
    real = os.open

    def swapping(name: Any, *given: Any, **more: Any) -> int:
        if name == "run" and not (root / "run").is_symlink():  # the attacker is as fast as can be
            (root / "run").rename(root / "old")
            (root / "run").symlink_to(tmp_path / "out")
        return real(name, *given, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "open", swapping)
        patch.setattr(os, "supports_dir_fd", {*os.supports_dir_fd, swapping})
        with pytest.raises(DataError, match="is a link"):
            open_below(root, path)
    with pytest.raises(DataError, match="is a link"):
        open_below(root, root / "old" / ".." / "old" / "file")
    with pytest.raises(FileNotFoundError):
        open_below(root, root / "old" / "none")


def test_where_nothing_can_be_opened_from_a_folder_the_open_file_is_looked_at(
    tmp_path: Path,
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "file").write_text("here")
    (tmp_path / "file").symlink_to(tmp_path / "run" / "file")
    (tmp_path / "folder").symlink_to(tmp_path / "run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "supports_dir_fd", set[Any]())
        with open_below(tmp_path, tmp_path / "run" / "file") as file:
            assert file.read() == b"here"
        for path in (tmp_path / "file", tmp_path / "folder" / "file"):
            with pytest.raises(DataError, match="is a link"):
                open_below(tmp_path, path)
