"""The viewer: runs of this machine as pages of this machine, for whoever has the address with its
token.
"""

from __future__ import annotations

import hashlib
import hmac
import inspect
import os
import secrets
import socket
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qs, quote

from rm_gallery._version import __version__
from rm_gallery.core.model.transport import Json
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.schema import sample_of
from rm_gallery.core.stats import np
from rm_gallery.core.utils.errors import ConfigError, DataError, MissingExtra, RMGalleryError
from rm_gallery.core.utils.file import open_below
from rm_gallery.report.formats import render
from rm_gallery.report.page import page_policy
from rm_gallery.serve.policy import FOREIGN, NOTHING, OWN, QUIET, guarded
from rm_gallery.serve.view_index import RunIndex
from rm_gallery.serve.view_pages import (
    about_row,
    about_run,
    about_two,
    differences,
    page_of,
    page_text,
    rows_of,
    text_of,
)
from rm_gallery.serve.view_review import QUEUE, ReviewQueue, check_annotator
from rm_gallery.study.runs import OpenRun, is_run, open_run

if TYPE_CHECKING:
    from fastapi import Request, Response

HOSTS = (b"127.0.0.1", b"localhost")
"""Names this machine is asked by. A page elsewhere whose name was turned to this address is none of
them.
"""
MAX_FORM = 1 << 20
MOST_DEEP = 3
"""Folders below the ones that were named in which runs are looked for."""
MOST_RUNS = 1_000
CARD = "card.html"
_FILES = Path(__file__).parent / "templates"
_STATIC = {
    "page.css": (_FILES.parents[1] / "report" / "templates" / "page.css", "text/css"),
    "view.css": (_FILES / "view.css", "text/css"),
    "view.js": (_FILES / "view.js", "text/javascript"),
}


Asked = dict[str, str]
"""What a query or a form says."""


class Sent(NamedTuple):
    """What a browser is sent."""

    body: str | bytes
    kind: str = "text/html"
    status: int = 200
    policy: str = NOTHING
    """What a browser may load and run for it."""
    more: tuple[tuple[str, str], ...] = ()
    """Headers beside the policy's."""

    def response(self) -> Response:
        """The reply; what is no character is shown as one that says so."""
        from fastapi import Response

        body = self.body if isinstance(self.body, bytes) else self.body.encode("utf-8", "replace")
        headers = {**dict(self.more), "content-security-policy": self.policy}
        return Response(body, self.status, headers, media_type=f"{self.kind}; charset=utf-8")


def redirect(where: str) -> Sent:
    """Send a browser to a page that it is to read."""
    return Sent("", status=303, more=(("location", where),))


class Guard:
    """Lets nobody in who does not name this machine by its own name and the token as the first part
    of the path.
    """

    def __init__(self, app: Any, token: str) -> None:
        self._app, self._token = app, token.encode()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request; 403 for whoever is not let in."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        send = guarded(send)
        hosts = _values(scope, b"host")
        first, slash, rest = scope["path"][1:].partition("/")
        known = hmac.compare_digest(first.encode("utf-8", "replace"), self._token)
        own = len(hosts) == 1 and hosts[0].rpartition(b":")[0] in HOSTS
        # a page from elsewhere, or a card's own, which stands in an origin of its own, may not post
        # labels
        site = _values(scope, b"sec-fetch-site")[:1]  # none by what is no browser, or an old one
        foreign = scope["method"] != "GET" and site not in ([], [b"same-origin"], [b"none"])
        if not (known and own) or foreign:
            text = "Open the address that `rm-gallery view` printed; it holds a token.\n"
            answer: Any = Sent(text, "text/plain", 403).response()
        elif not slash:
            answer = redirect(f"/{first}/").response()
        else:
            answer, scope = (
                self._app,
                {**scope, "path": f"/{rest}", "raw_path": f"/{rest}".encode()},
            )
        await answer(scope, receive, send)


def _values(scope: Any, header: bytes) -> list[bytes]:
    return [value for name, value in scope["headers"] if name == header]


class ViewedRuns:
    """The runs and audit cards in the folders that were named, looked for anew at each look at the
    list.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        """Look for runs; ConfigError where a path is no folder, DataError where there are neither
        runs nor cards.
        """
        self._paths = list(paths)
        self._roots: dict[str, Path]
        """By name of a run or a card, the folder that was named: below it, no link is followed."""
        self._indexes: dict[str, RunIndex] = {}
        self.runs: dict[str, Path]
        self.cards: dict[str, Path]
        for path in self._paths:
            if not path.is_dir():
                raise ConfigError(
                    f"{path} is no folder; name folders of runs, as made with --out, or one that "
                    f"holds some."
                )
        self.look()

    def look(self) -> None:
        """Find what is there now."""
        roots, cards, runs = dict[str, Path](), dict[str, Path](), dict[str, Path]()
        for root in self._paths:
            for folder in _below(root, MOST_DEEP):
                name = _name(folder)
                roots[name] = root
                if (folder / CARD).is_file():
                    cards[name] = folder / CARD
                if is_run(folder):
                    runs[name] = folder
        self._roots, self.cards, self.runs = roots, cards, runs

    def open(self, name: str) -> tuple[OpenRun, RunIndex]:
        """A run as it is now; DataError for one that is not there."""
        if name not in self.runs:
            raise DataError("There is no such run any more; go back to the list.")
        root = self._roots[name]
        run = open_run(self.runs[name], root)
        return run, self._indexes.setdefault(
            name, RunIndex(run.folder, root, run.kept_figure)
        ).refresh()

    def card(self, name: str) -> bytes:
        """An audit card as it is now; DataError for one that is not there."""
        if name not in self.cards:
            raise DataError("There is no such card any more; go back to the list.")
        with open_below(self._roots[name], self.cards[name]) as file:
            return file.read()

    def listed(self) -> Iterator[Json]:
        """What the list says of each run; one that cannot be read says why."""
        self.look()
        for name, folder in sorted(self.runs.items(), key=lambda item: str(item[1])):
            known: Json = {"name": name, "folder": str(folder)}
            try:
                run = open_run(folder, self._roots[name])
                # where its figures are there, its rows need not be read
                index = RunIndex(folder, self._roots[name]) if run.report else self.open(name)[1]
                known |= about_run(run, index)
            except RMGalleryError as error:
                known["problem"] = str(error)
            # one odd folder hides no other run
            except (TypeError, ValueError, KeyError, AttributeError, IndexError):
                known["problem"] = (
                    "Its report or samples hold what no run writes; judge into another folder, or "
                    "remove this one."
                )
            yield known


def _name(folder: Path) -> str:
    return hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:10]


def _below(folder: Path, deep: int) -> Iterator[Path]:
    yield folder
    if deep and not is_run(folder):
        for each in sorted(folder.iterdir())[:MOST_RUNS]:
            if each.is_dir() and not each.is_symlink() and os.access(each, os.R_OK | os.X_OK):
                yield from _below(each, deep - 1)


class Viewer:
    """The pages, each as the text that a browser is sent."""

    def __init__(self, runs: ViewedRuns, token: str, *, seed: int = 0, size: int = QUEUE) -> None:
        self.runs, self.base, self._seed, self._size = runs, f"/{token}/", seed, size
        self._queues: dict[str, tuple[int, ReviewQueue | None]] = {}

    def page(self, template: str, *, live: bool = False, **about: Any) -> Sent:
        """A page of the viewer; a `live` one looks again by itself."""
        known = {"base": self.base, "version": __version__, "live": live}
        return Sent(page_text(template, **known, **about), policy=OWN)

    def list_page(self, asked: Asked) -> Sent:
        """The runs there are."""
        listed = list(self.runs.listed())
        cards = [(name, path.parent) for name, path in self.runs.cards.items()]
        live = any(not run.get("finished", True) for run in listed)
        return self.page("runs", title="Runs", runs=listed, cards=cards, live=live)

    def run_page(self, asked: Asked, name: str) -> Sent:
        """A run with its figures and a page of its rows."""
        run, index = self.runs.open(name)
        listed = rows_of(index, asked)
        about = about_run(run, index)
        damage = run.damage_of(len(index), len(index) + index.n_damaged)
        return self.page(
            "run", name=name, live=not run.finished, listed=listed, damage=damage, **about
        )

    def row_page(self, asked: Asked, name: str, place: int) -> Sent:
        """One row with everything about it; with `b`, beside the same row of another run."""
        run, index = self.runs.open(name)
        row = index.row(place)
        if row is None:
            raise DataError(f"The run has {len(index):,} rows, and none at place {place}.")
        one, other = about_row(run, row), None
        if second_name := asked.get("b"):
            second, theirs = self.runs.open(second_name)
            places = np.flatnonzero(theirs.same == row.same_as)
            their_row = theirs.row(int(places[0]) if len(places) else -1)
            if their_row is None:
                raise DataError("The other run has no such row.")
            other = about_row(second, their_row)
            for k, (mine, theirs_text) in enumerate(
                zip(row.answers, their_row.answers, strict=False)
            ):
                other["parts"][k] = differences(mine, theirs_text)[1]
        before, after = max(0, place - 1), min(len(index) - 1, place + 1)
        return self.page(
            "row", title=f"Row {row.id}", name=name, place=place, before=before, after=after, one=one, other=other,
        )  # fmt: skip

    def text_page(self, asked: Asked, name: str, place: int, answer: int) -> Sent:
        """The whole of one answer as plain text."""
        row = self.runs.open(name)[1].row(place)
        if row is None or not 0 <= answer < len(row.answers):
            raise DataError("There is no such answer.")
        return Sent(row.answers[answer], "text/plain")

    def compare_page(self, asked: Asked) -> Sent:
        """Two runs side by side."""
        names = asked.get("a", ""), asked.get("b", "")
        about = about_two(self.runs.open(names[0]), self.runs.open(names[1]), page_of(asked))
        folders = [self.runs.runs[name] for name in names]
        return self.page("compare", title="Two runs", names=names, folders=folders, **about)

    def report_page(self, asked: Asked, name: str) -> Sent:
        """The page that `rm-gallery report` writes; its script and style are known by their hashes."""
        return Sent(
            render(self.runs.open(name)[0]),
            policy=f"{page_policy()}; frame-ancestors 'none'",
        )

    def card_page(self, asked: Asked, name: str) -> Sent:
        """An audit card: whoever made the folder wrote it, so it is shown and nothing in it runs."""
        return Sent(self.runs.card(name), policy=FOREIGN)

    # -- review ------------------------------------------------------------------------------------

    def queue(self, name: str) -> ReviewQueue:
        """The rows of a run that people label."""
        run, index = self.runs.open(name)
        version, queue = self._queues.get(name, (-1, None))
        if queue is None or version != index.version:
            queue = ReviewQueue(run, index, size=self._size, seed=self._seed)
            self._queues[name] = index.version, queue
        return queue

    def review_page(self, asked: Asked, name: str) -> Sent:
        """The next row to be labelled, and what the labels so far make of the figure."""
        annotator = asked.get("annotator", "")
        run, index = self.runs.open(name)
        queue = self.queue(name)
        labels = queue.labels()
        n, counts = len(queue.places), {who: len(stands) for who, stands in labels.items()}
        if not annotator:
            return self.page("review", title="Review", name=name, annotator="", counts=counts, n=n)
        check_annotator(annotator)
        place = queue.next(annotator)
        row = None if place is None else index.row(place)
        swapped = place is not None and queue.swapped(annotator, place)
        answers = [] if row is None else list(row.answers[: 2 if queue.pairs else 1])
        shown = (
            differences(*answers[::-1] if swapped else answers)
            if len(answers) == 2
            else [[(text_of(a), False)] for a in answers]
        )
        done = counts.get(annotator, 0)
        return self.page(
            "review", title=f"{done} of {n} labelled", name=name, annotator=annotator, place=place, pairs=queue.pairs,
            row=row, shown=shown, done=done, n=n, corrected=queue.corrected(annotator),
            agreements=queue.agreements(annotator), folder=run.folder,
        )  # fmt: skip

    def say(self, form: Asked, name: str) -> Sent:
        """Keep a verdict, and go on to the next row."""
        place = form.get("place", "")
        annotator = form.get("annotator", "")
        if form.get("verdict") != "undo" and not (place.isascii() and place.isdigit()):
            raise ConfigError(f"place is {place!r:.40}; give the number of a row.")
        self.queue(name).say(annotator, int(place or 0), form.get("verdict", ""))
        return redirect(f"{self.base}run/{name}/review?annotator={quote(annotator)}")

    # -- the gallery -------------------------------------------------------------------------------

    def gallery_page(self, asked: Asked) -> Sent:
        """The rewards there are, or those whose name or description holds what is asked for."""
        text = asked.get("text", "")
        names, words, fit = RewardRegistry.list(), text.casefold().split(), []
        for name in names:
            reward = RewardRegistry.get(name)
            doc = " ".join((reward.__doc__ or "").split("\n\n")[0].split())
            if all(word in f"{name} {doc}".casefold() for word in words):
                fit.append((name, doc, reward))
        return self.page("gallery", title="Gallery", text=text, entries=fit, n=len(names))

    def reward_page(self, form: Asked | None, name: str) -> Sent:
        """A reward, and a box in which a rule is tried; nothing that calls a model is run."""
        reward = RewardRegistry.get(name)
        closed = reward.judged or reward.touches or reward.needs - {"reference"}
        free = not closed and reward.kind == "pointwise"
        result = None
        if form is not None:
            if not free:
                raise ConfigError(
                    f"{name} cannot be tried here: it needs more than an answer and a reference."
                )
            extra = {"reference": form["reference"]} if form.get("reference") else {}
            sample = sample_of(form.get("prompt", ""), form.get("answer", ""), **extra)
            scored = RewardRegistry.create(name).evaluate(sample)
            result = scored.output[0].answer.reward
        doc = inspect.cleandoc(reward.__doc__ or "")
        return self.page(
            "reward", title=name, name=name, reward=reward, doc=doc, free=free, form=form or {}, result=result,
        )  # fmt: skip


def create_viewer(runs: ViewedRuns, token: str, *, seed: int = 0, size: int = QUEUE) -> Guard:
    """The viewer as an ASGI application that answers below /TOKEN/ alone."""
    try:
        from fastapi import FastAPI
        from fastapi.concurrency import run_in_threadpool
    except ImportError as error:
        raise MissingExtra("fastapi", "serve", "The viewer") from error
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    viewer = Viewer(runs, token, seed=seed, size=size)

    def routed(path: str, make: Callable[..., Sent], method: str = "GET") -> None:
        async def answer(request: Request) -> Response:
            given = dict(request.query_params) if method == "GET" else await _form_fields(request)
            return (await run_in_threadpool(make, given, **request.path_params)).response()

        app.add_route(path, answer, methods=[method])

    routed("/", viewer.list_page)
    routed("/static/{file}", _static_file)
    routed("/compare", viewer.compare_page)
    routed("/gallery", viewer.gallery_page)
    routed("/card/{name}", viewer.card_page)
    routed("/gallery/{name:path}", lambda asked, name: viewer.reward_page(None, name))
    routed("/gallery/{name:path}", viewer.reward_page, "POST")
    routed("/run/{name}", viewer.run_page)
    routed("/run/{name}/report", viewer.report_page)
    routed("/run/{name}/review", viewer.review_page)
    routed("/run/{name}/review", viewer.say, "POST")
    routed("/run/{name}/row/{place:int}", viewer.row_page)
    routed("/run/{name}/row/{place:int}/answer/{answer:int}", viewer.text_page)

    async def refused(request: Request, error: Exception) -> Response:
        page = viewer.page("problem", title="That did not work", problem=error)
        return page._replace(status=404 if isinstance(error, DataError) else 400).response()

    app.add_exception_handler(RMGalleryError, refused)
    return Guard(app, token)


def _static_file(asked: Asked, file: str) -> Sent:
    if file not in _STATIC:
        raise DataError("There is no such file.")
    path, kind = _STATIC[file]
    return Sent(path.read_bytes(), kind)


async def _form_fields(request: Request) -> dict[str, str]:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_FORM:
            raise ConfigError(f"the form is larger than {MAX_FORM:,} bytes; shorten it.")
    fields = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=20)
    return {name: values[-1] for name, values in fields.items()}


def run_viewer(
    paths: Sequence[Path],
    ready: Callable[[str], None],
    *,
    port: int = 0,
    seed: int = 0,
    size: int = QUEUE,
) -> None:
    """Serve the viewer on 127.0.0.1 until Ctrl-C; `ready` is told the address, token included, when
    it can be opened.

    Raises:
        ConfigError: a path is no folder, or nothing can listen on the port.
        MissingExtra: uvicorn is not installed.
    """
    try:
        import uvicorn
    except ImportError as error:
        raise MissingExtra("uvicorn[standard]", "serve", "The viewer") from error
    token = secrets.token_urlsafe(24)
    app = create_viewer(ViewedRuns(paths), token, seed=seed, size=size)
    try:
        listening = socket.create_server(("127.0.0.1", port))
    except OSError as error:
        raise ConfigError(
            f"Nothing can listen on 127.0.0.1:{port} ({os.strerror(error.errno or 0)}); give "
            f"another --port."
        ) from error
    with listening:
        ready(f"http://127.0.0.1:{listening.getsockname()[1]}/{token}/")
        config = uvicorn.Config(app, lifespan="off", **QUIET)
        uvicorn.Server(config).run(sockets=[listening])
