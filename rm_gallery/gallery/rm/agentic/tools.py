"""What a judge that acts may do: list, read and search files, run Python, query SQLite, fetch from a
given store, read the agent's turns. All of it on a copy, and all of it read-only.
"""

from __future__ import annotations

import asyncio
import io
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from inspect import iscoroutinefunction
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from rm_gallery.core.data.schema import Step
from rm_gallery.core.reward.view import shown_text
from rm_gallery.core.sandbox.command import Program, run_on_copy
from rm_gallery.core.sandbox.process import SandboxLimits
from rm_gallery.core.sandbox.sql import run_file_query_in_worker
from rm_gallery.core.sandbox.workspace import (
    ReadBounds,
    StateFault,
    Workspace,
    copy_database,
    dropped_links,
    inner_path,
    temporary_folder,
    unpack,
)
from rm_gallery.core.utils.errors import (
    DataError,
    RMGalleryError,
    SandboxUnavailable,
    Unscored,
)
from rm_gallery.core.utils.file import read_file
from rm_gallery.core.utils.shown import one_line

V = TypeVar("V")

OUTPUT_CHARS = 20_000
"""Characters of one output that a judge is shown."""
_MOST_LINES, _MOST_HITS, _MOST_FILES, _MOST_ROWS = 400, 100, 500, 100
"""Of lines tools.yaml says so too."""
_SQL_SECONDS = 5.0
_KEPT_TEXTS = 4
_LETTER = r"[\dA-Za-z\u00c0-\u058f]"  # of scripts that put spaces between words
_NO_FILE = "There is no file {!r}; list_files shows what there is."


class ToolRefusal(Exception):
    """A call that cannot be made; the judge is told why, and may make another."""


@lru_cache(maxsize=1)
def tool_definitions() -> dict[str, list[dict[str, Any]]]:
    """The tools of tools.yaml in OpenAI's layout, by what there has to be for them."""
    found: dict[str, list[dict[str, Any]]] = read_file(Path(__file__).with_name("tools.yaml"))
    return found


class Copied(NamedTuple):
    """A copy of a workspace."""

    folder: str | None
    left_out: Mapping[str, str]
    """Paths that are not in it, and why."""


@contextmanager
def copied_workspace(given: Any, bounds: ReadBounds) -> Iterator[Copied]:
    """A copy of what an agent left: of a folder, an archive or a mapping of path to text; no folder
    of nothing. No link in it leads out.

    Raises DataError for what is none of these, StateFault for what cannot be copied as it is.
    """
    if given is None:
        yield Copied(None, {})
        return
    with temporary_folder() as target:
        source = os.fspath(given) if isinstance(given, os.PathLike) else given
        if isinstance(source, Mapping) or (isinstance(source, str) and os.path.isfile(source)):
            unpack(source, target, bounds)
            absent = dropped_links(target)
        elif isinstance(source, str):
            with Workspace(source, bounds) as workspace:
                absent = workspace.copy_to(target)
        else:
            raise DataError(
                f"the workspace is a {type(source).__name__}; give a folder, an archive or a mapping "
                f"of path to text."
            )
        yield Copied(target, absent)


def maps_texts(value: object) -> bool:
    """Whether a value maps texts to texts."""
    return isinstance(value, Mapping) and all(
        isinstance(part, str) for pair in value.items() for part in pair
    )


@dataclass
class Toolbox:
    """The tools of one judgement, and what was seen through them.

    Attributes:
        folder: the copy of the workspace; None where there is none.
        turns: the trajectory, the answer last.
        store: documents by name.
        left_out: paths of the workspace that are not in the copy, and why.
        sandbox: where programs run, as `get_runner` takes it.
        seconds: how long one program may run.
        outputs: what each call gave, in order; the sources `call:1`, `call:2`, … of evidence.
        names: the tool of each call.
    """

    folder: str | None
    turns: Sequence[Step]
    store: Mapping[str, str]
    sandbox: str
    bounds: ReadBounds
    seconds: float = 10.0
    outputs: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    left_out: Mapping[str, str] = field(default_factory=dict)
    opened: set[str] | None = field(default_factory=set)
    """Files that were opened, as paths; None where the judge opens them by itself, unseen."""
    _texts: dict[str, str] = field(default_factory=dict)

    def definitions(self) -> list[dict[str, Any]]:
        """The tools there are, in OpenAI's layout."""
        there = {"files": self.folder is not None, "store": bool(self.store), "turns": True}
        known = tool_definitions()
        return [tool for of, is_there in there.items() if is_there for tool in known[of]]

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """What a call gives, kept for evidence.

        Raises:
            ToolRefusal: there is no such tool, an argument does not fit, or it leads out.
            Unscored: there is no sandbox to run a program in.
        """
        known = {tool["function"]["name"]: tool["function"] for tool in self.definitions()}
        if name not in known:
            raise ToolRefusal(f"There is no tool {name[:60]!r}; there are {', '.join(known)}.")
        wanted = known[name]["parameters"]
        odd = [each for each in arguments if each not in wanted["properties"]]
        absent = [each for each in wanted["required"] if not arguments.get(each)]
        if odd or absent:
            what = f"has no argument {odd[0][:60]!r}" if odd else f"needs {absent[0]!r}"
            raise ToolRefusal(f"{name} {what}; it takes {', '.join(wanted['properties'])}.")
        for each, value in arguments.items():
            kind = wanted["properties"][each]["type"]
            fits = isinstance(value, str) if kind == "string" else _is_integer(value)
            if not fits and value is not None:
                raise ToolRefusal(f"{name}: {each} is of type {kind}.")
        try:
            tool = getattr(self, f"_{name}")
            made = (
                tool(**arguments)
                if iscoroutinefunction(tool)
                else asyncio.to_thread(tool, **arguments)
            )
            output: str = await made
        except StateFault as error:
            raise ToolRefusal(str(error)) from error
        except SandboxUnavailable as error:
            # nothing that the judge could mend: it would decide without having looked
            raise Unscored(str(error), reason="sandbox", cause="caller") from error
        except RMGalleryError:
            raise
        except (TypeError, ValueError) as error:
            raise ToolRefusal(f"{name}: {error}") from error
        if len(output) > OUTPUT_CHARS:
            output = (
                f"{output[:OUTPUT_CHARS]}\n[{len(output) - OUTPUT_CHARS:,} characters left out]"
            )
        self.outputs.append(output)
        self.names.append(name)
        return output

    # -- evidence ---------------------------------------------------------------------------------

    def stands(self, source: str, quote: str) -> str:
        """Why a quote is no evidence, '' where its words stand in the source."""
        text = self._words_of(source)
        if text is None:
            return (
                f"there is no source {source[:80]!r}; write call:N, turn:N, file:PATH or store:NAME"
            )
        kind, _, name = source.strip().partition(":")
        path = _spelled(name) if kind == "file" else source.strip()
        if kind in ("file", "store") and self.opened is not None and path not in self.opened:
            # what a claim says of a file would else be quoted from it by a judge that never looked
            return f"{source[:80]} was not opened here; read it first, or cite what a call gave"
        if not one_line(quote):
            return "the quote is empty"
        if not _whole(" ".join(quote.split())).search(text):
            return f"its words do not stand in {source[:80]}: {quote[:80]!r}"
        return ""

    def read_texts(self) -> Iterator[str]:
        """What the judge was given to read of the candidate."""
        yield from self.outputs
        yield from map(shown_text, self.turns)

    def _note_opened(self, name: str) -> None:
        if self.opened is not None:
            self.opened.add(name)

    def _words_of(self, source: str) -> str | None:
        """A source's text with one space between words; the last ones are kept, as many rows of a
        verdict may name the same.
        """
        text = self._texts.pop(source, None)
        if text is None and (found := self._source(source)) is not None:
            text = " ".join(found.split())
        if text is not None:
            self._texts[source] = text
        if len(self._texts) > _KEPT_TEXTS:
            del self._texts[next(iter(self._texts))]
        return text

    def _source(self, source: str) -> str | None:
        kind, _, name = source.strip().partition(":")
        if kind == "call":
            return _numbered(name, self.outputs)
        if kind == "turn":
            turn = _numbered(name, self.turns)
            return None if turn is None else shown_text(turn)
        if kind == "store":
            return self.store.get(name)
        if kind == "file" and self.folder is not None:
            try:
                return self._text_of(name)
            except (ToolRefusal, StateFault):
                return None
        return None

    def independent(self, source: str) -> bool:
        """Whether a source is more than what the agent said."""
        kind, _, name = source.strip().partition(":")
        if kind == "call":
            return self.names[int(name) - 1] != "read_turns"
        return kind in ("file", "store")

    # -- the tools --------------------------------------------------------------------------------

    def _list_files(self, folder: str = "") -> str:
        files = list(self._files(folder))
        shown = [f"{_shown_name(path)}  {size} bytes" for path, size in files[:_MOST_FILES]]
        more = len(files) - len(shown)
        below = _start(folder)
        absent = [path for path in self.left_out if path.startswith(below)]
        shown += [
            f"{_shown_name(path)}  left out: {self.left_out[path]}" for path in absent[:_MOST_FILES]
        ]
        more += len(absent[_MOST_FILES:])
        return "\n".join([*shown, *([f"… and {more} more"] if more else [])]) or "no files"

    def _files(self, below: str) -> Iterator[tuple[str, int]]:
        assert self.folder is not None
        start = _start(below)
        for folder, folders, names in os.walk(self.folder):
            folders.sort()
            for name in sorted(names):
                path = os.path.relpath(os.path.join(folder, name), self.folder)
                if path.startswith(start):
                    yield path, os.lstat(os.path.join(self.folder, path)).st_size

    def _text_of(self, path: str) -> str:
        assert self.folder is not None
        self._inner(path)
        with Workspace(self.folder, self.bounds) as workspace:
            raw = workspace.read(path)
        if raw is None:
            why = self.left_out.get(path.removeprefix("./"))
            absent = f"{path[:80]!r} is left out of the copy: {why}."
            raise ToolRefusal(absent if why else _NO_FILE.format(path[:80]))
        return raw.decode("utf-8", "replace")

    def _inner(self, path: str) -> None:
        if not inner_path(path.removeprefix("./")):
            raise ToolRefusal(f"{path[:80]!r} is no path below the workspace.")

    def _read_file(self, path: str, first: int = 1, last: int | None = None) -> str:
        lines = self._text_of(path).split("\n")
        self._note_opened(_spelled(path))
        lines = lines if lines[-1] else lines[:-1]
        begin = max(1, int(first))
        end = min(int(last or len(lines)), begin + _MOST_LINES - 1, len(lines))
        rest = f"\n[lines {begin} to {end} of {len(lines)}]" if end - begin + 1 < len(lines) else ""
        return "\n".join(lines[begin - 1 : end]) + rest

    def _search(self, text: str, folder: str = "") -> str:
        hits: list[str] = []
        for path, _ in self._files(folder):
            try:
                lines = io.StringIO(self._text_of(path))
            except (ToolRefusal, StateFault):
                continue
            for number, line in enumerate(lines, 1):
                if text in line:
                    self._note_opened(_spelled(path))
                    hits.append(f"{_shown_name(path)}:{number}: {_on_one_line(line[:400])}")
                if len(hits) > _MOST_HITS:
                    return "\n".join([*hits[:_MOST_HITS], "… and more"])
        return "\n".join(hits) or "no line holds it"

    async def _run_python(self, code: str) -> str:
        assert self.folder is not None
        limits = SandboxLimits(wall_seconds=self.seconds, cpu_seconds=self.seconds)
        program = Program(["-c", code], {})
        ended = await run_on_copy(
            self.folder,
            program,
            sandbox=self.sandbox,
            packages=(),
            limits=limits,
            bounds=self.bounds,
        )
        how = f"stopped: {ended.stopped}" if ended.stopped else f"exit code {ended.exit_code}"
        last = f"\nlast line of errors: {ended.last_line}" if ended.last_line else ""
        return f"{how}{last}\n{ended.stdout}"

    async def _query_sql(self, path: str, query: str) -> str:
        assert self.folder is not None
        self._inner(path)
        with temporary_folder() as own:
            if not await asyncio.to_thread(copy_database, self.folder, self.bounds, path, own):
                raise ToolRefusal(_NO_FILE.format(path[:80]))
            found = await run_file_query_in_worker(
                f"{own}/database", query, deadline=_SQL_SECONDS, max_rows=_MOST_ROWS
            )
        self._note_opened(_spelled(path))
        if found.error:
            return f"error: {_on_one_line(found.error)}"  # in part the workspace's words
        return "\n".join(" | ".join(map(_cell, row)) for row in (found.columns, *found.rows))

    def _fetch(self, name: str) -> str:
        if name not in self.store:
            there = ", ".join(list(self.store)[:20])
            raise ToolRefusal(f"The store has no {name[:60]!r}; it has {there}.")
        self._note_opened(f"store:{name}")
        return self.store[name]

    def _read_turns(self, first: int = 1, last: int | None = None) -> str:
        turns = islice(
            enumerate(self.turns, 1), max(0, int(first) - 1), max(0, int(last or len(self.turns)))
        )
        return "\n\n".join(
            f"[turn {number}, {turn.role.value}]\n{shown_text(turn)}" for number, turn in turns
        )


def _is_integer(value: Any) -> bool:
    """A whole number as a model may write one."""
    if isinstance(value, str):
        return re.fullmatch(r"\s*-?[0-9]{1,9}\s*", value) is not None
    return isinstance(value, int) or (isinstance(value, float) and value.is_integer())


def _numbered(number: str, of: Sequence[V]) -> V | None:
    """The item of a number from 1, None where there is none."""
    written = re.fullmatch(r"\s*[0-9]{1,9}\s*", number)
    return of[int(number) - 1] if written and 0 < int(number) <= len(of) else None


def _whole(words: str) -> re.Pattern[str]:
    """Finds the words as whole words: `7` does not stand in 17 or 7.5, nor `t` in total."""
    if not any(map(str.isalnum, words)):
        return re.compile(rf"(?<!\S){re.escape(words)}(?!\S)")
    before = f"(?<!{_LETTER})" if re.match(_LETTER, words) else ""
    after = f"(?!{_LETTER})" if re.match(_LETTER, words[-1]) else ""
    before += r"(?<!\d\.)" if words[0].isdigit() else ""
    after += r"(?!\.\d)" if words[-1].isdigit() else ""
    return re.compile(f"{before}{re.escape(words)}{after}")


def _spelled(path: str) -> str:
    return os.path.normpath(path.strip())


def _start(folder: str | None) -> str:
    below = (folder or "").strip("/").removeprefix("./")
    return f"{below}/" if below not in ("", ".") else ""


def _shown_name(path: str) -> str:
    """A path as it is, or quoted where it could pass for something else in a list."""
    return path if path.isprintable() and not re.search(r"[\s'\"]", path) else repr(path)


def _on_one_line(line: str) -> str:
    """A line that stays one, whatever it holds."""
    return " ".join(line.splitlines())


def _cell(value: object) -> str:
    text = str(value)
    return text if text.isprintable() and "|" not in text else repr(value)
