"""Lays out the documents for the site, and checks the built one.

python -m tools.site_pages pages FOLDER    writes the sources: documents, gallery, commands,
reference, llms.txt python -m tools.site_pages check FOLDER    looks over the built site: dead
links, and what a page would fetch from elsewhere
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
import shutil
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import typer

from rm_gallery.cli.main import app
from rm_gallery.cli.settings import explained, walk

ROOT = Path(__file__).resolve().parent.parent
SINGLE = {
    "README.md": "index.md",
    "data/README.md": "data.md",
    "benchmarks/README.md": "speed.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
"""Documents outside `docs/` and `gallery/`, and their pages."""
MODULES = {
    "rewards": ("core.reward.reward", "core.reward.base", "core.reward.compose", "core.reward.function", "core.reward.schema",
                "core.reward.registry", "core.reward.template", "envs.environment"),
    "judges": ("core.models", "core.model.message", "core.model.base", "core.model.model_call"),
    "data": ("core.data.schema", "core.data.load.base"),
    "runs": ("core.engine.options", "core.model.budget", "core.score", "core.utils.errors"),
    "studies": ("study.benchmark", "study.estimate", "study.winrate", "study.grading", "study.compare", "study.audit", "study.conflicts",
                "study.drift", "study.check", "study.fuzz", "gallery.benchmarks.figures"),
    "statistics": tuple(f"core.stats.{path.stem}" for path in sorted((ROOT / "rm_gallery/core/stats").glob("[!_]*.py"))),
    "graders": ("core.graders.base", "core.graders.common", "core.runner.grading_runner", "core.runner.aggregator"),
    "trainers": tuple(f"integrations.{path.stem}" for path in sorted((ROOT / "rm_gallery/integrations").glob("[!_]*.py"))),
    "training": ("train.bradley_terry", "train.signals", "train.training_log", "train.watch"),
    "server": ("serve.client",),
}  # fmt: skip
"""The pages of the reference, and the modules each tells about."""
_LINK = re.compile(r"(?<!!)\[(?P<text>(?:[^\[\]]|\[[^\]]*\])*)\]\((?P<target>[^)\s]+)\)")
_FENCE = re.compile(r"(^ *```.*?^ *```$)", re.DOTALL | re.MULTILINE)


def pages() -> dict[str, str]:
    """Every page of the site: path -> text; the same on every machine.

    Raises:
        ValueError: a link in a document leads nowhere.
    """
    sources = {name: place for name, place in SINGLE.items()}
    for path in sorted([*(ROOT / "docs").rglob("*.md"), *(ROOT / "gallery").rglob("*.md")]):
        name = path.relative_to(ROOT).as_posix()
        sources[name] = re.sub(r"(^|/)README\.md$", r"\1index.md", name.removeprefix("docs/"))
    found = {
        place: _moved((ROOT / name).read_text(encoding="utf-8"), name, sources)
        for name, place in sources.items()
    }
    found |= {"commands.md": _commands(), **_reference()}
    return {**found, "llms.txt": _llms(found)}


def _moved(text: str, name: str, sources: dict[str, str]) -> str:
    """The document with links that fit the site; what is no page of it becomes its path."""

    def moved(link: re.Match[str]) -> str:
        target, hash_, anchor = link["target"].partition("#")
        if not target or "://" in target or target.startswith("mailto:"):
            return link[0]
        path = os.path.normpath(os.path.join(os.path.dirname(name), target))
        if not (ROOT / path).exists():
            raise ValueError(f"{name}: the link to {link['target']} leads nowhere.")
        page = sources.get(path) or sources.get(f"{path}/README.md")
        if page is None:
            return link["text"] if link["text"].strip("`") == path else f"{link['text']} (`{path}`)"
        return f"[{link['text']}]({os.path.relpath(page, os.path.dirname(sources[name]) or '.')}{hash_}{anchor})"

    parts = _FENCE.split(text)
    return "".join(
        part if part.lstrip().startswith("```") else _LINK.sub(moved, part) for part in parts
    )


def commands() -> dict[str, Any]:
    """Every command by its words, in the order of `rm-gallery --help`."""
    return {" ".join(words): inner for words, inner in walk(explained(typer.main.get_command(app)))}


def _commands() -> str:
    sections = ["# Commands", "What `rm-gallery COMMAND --help` prints."]
    for words, command in commands().items():
        name = f"rm-gallery {words}"
        shown = command.get_help(command.context_class(command, info_name=name, terminal_width=100))
        sections += [f"## {name}", f"```text\n{shown.strip()}\n```"]
    return "\n\n".join(sections) + "\n"


def _reference() -> dict[str, str]:
    """Pages made from docstrings, and one that leads to them."""
    found, rows = {}, []
    for title, modules in MODULES.items():
        sections = [f"# Reference: {title}"]
        for module in modules:
            here = importlib.import_module(f"rm_gallery.{module}")
            parts = [_described(name, thing) for name, thing in _public(here)]
            if parts:
                sections += [f"## rm_gallery.{module}", _docstring(here), *parts]
                rows.append(
                    f"- [`rm_gallery.{module}`]({title}.md): {_docstring(here).partition('.')[0]}."
                )
        found[f"reference/{title}.md"] = "\n\n".join(filter(None, sections)) + "\n"
    index = [
        "# Reference",
        "Made from the docstrings. What `rm_gallery` itself exports is told where it is defined.",
        *rows,
    ]
    return {
        "reference/index.md": "\n".join([*index[:1], "", index[1], "", *index[2:]]) + "\n",
        **found,
    }


def _public(module: Any) -> list[tuple[str, Any]]:
    """The classes and functions of a module that have a docstring; those a door re-exports count as
    its own.
    """
    doors = module.__name__.rpartition(".")[2] in ("base", "models", "common")
    return [
        (name, thing)
        for name, thing in vars(module).items()
        if not name.startswith("_") and (inspect.isclass(thing) or inspect.isfunction(thing)) and thing.__doc__
        and (thing.__module__ == module.__name__ or (doors and thing.__module__.startswith("rm_gallery") and inspect.isclass(thing)))
    ]  # fmt: skip


def _described(name: str, thing: Any) -> str:
    """A class with its public methods, or a function: signature and docstring."""
    parts = [f"### {name}", _signature(name, thing), _docstring(thing)]
    for method, found in vars(thing).items() if inspect.isclass(thing) else ():
        plain = found.__func__ if isinstance(found, (staticmethod, classmethod)) else found
        if not method.startswith("_") and inspect.isfunction(plain) and plain.__doc__:
            parts += [f"**{name}.{method}**", _signature(method, plain), _docstring(plain)]
    return "\n\n".join(filter(None, parts))


def _signature(name: str, thing: Callable[..., Any]) -> str:
    try:
        shown = str(inspect.signature(thing)).replace("typing.", "")
    except (TypeError, ValueError):
        return ""
    # annotations are texts there
    shown = re.sub(r"(: |-> )(?:ForwardRef\()?'([^']*)'\)?", r"\1\2", shown)
    shown = re.sub(r"<(?:factory|object object at 0x\w+)>", "…", re.sub(r" at 0x\w+", "", shown))
    return f"```text\n{name}{shown if len(shown) < 1500 else '(…)'}\n```"


def _docstring(thing: Any) -> str:
    """The docstring as Markdown: its sections are bold, what stands indented below them are lists."""
    lines = []
    for line in inspect.cleandoc(thing.__doc__ or "").splitlines():
        if re.fullmatch(
            r"(Args|Arguments|Returns|Raises|Yields|Attributes|Example|Examples|Note):", line
        ):
            lines += ["", f"**{line[:-1]}**", ""]
        elif match := re.match(r" {4}(\*{0,2}\w+(?: \([^)]*\))?): (.*)", line):
            lines.append(f"- `{match[1]}`: {match[2]}")
        else:
            lines.append(line if not line.startswith("    ") else "    " + line.strip())
    return re.sub(r"(?<!!)\[([^\]]*)\](?=\(|\[)", r"\\[\1]", "\n".join(lines)).replace("<", "&lt;")


def _llms(found: dict[str, str]) -> str:
    """The site in one file of links, for programs that read it: title and first sentence of each
    page.
    """

    def entry(place: str) -> str:
        body = re.sub(r"<!--.*?-->", "", found[place], flags=re.DOTALL)
        title = re.search(r"^# (.+)$", body, re.MULTILINE)
        text = next(
            (part for part in body.split("\n\n") if re.match(r"(?!```)[^\s#|<-]", part)), ""
        )
        sentence = re.split(r"(?<=[.!?:])\s", " ".join(text.split()))[0]
        return (
            f"- [{title[1] if title else place}]({place}): "
            f"{_LINK.sub(lambda link: link['text'], sentence)}"
        )

    parts = {
        "Documents": [place for place in found if "/" not in place],
        "Design": [place for place in found if place.startswith("design/")],
        "Benchmarks": [place for place in found if place.startswith("benchmarks/")],
        "Rewards and graders": [place for place in found if place.startswith("gallery/")],
        "Reference": [place for place in found if place.startswith("reference/")],
    }
    head = (
        "# RM-Gallery\n\n> Define a reward for language models once, find out how good it is, and "
        "use the same object everywhere.\n"
    )
    return "\n".join(
        [
            head,
            *(
                f"## {name}\n\n" + "\n".join(map(entry, places)) + "\n"
                for name, places in parts.items()
            ),
        ]
    )


class Looked(HTMLParser):
    """What a built page links to, fetches, and can be linked to by."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the attributes that name a place."""
        given = dict(attrs)
        self.anchors |= {value for key in ("id", "name") if (value := given.get(key))}
        for key in ("href", "src"):
            if value := given.get(key):
                (self.links if tag == "a" else self.fetched).append(value)


def problems(site: Path) -> list[str]:
    """What is wrong with a built site: links and assets that are not there, and assets of other
    hosts.
    """
    looked = {}
    for path in sorted(site.rglob("*.html")):
        looked[path] = Looked()
        looked[path].feed(path.read_text(encoding="utf-8"))
    found = []
    for path, page in looked.items():
        here = path.relative_to(site)
        if here.name == "404.html":
            continue  # it stands at any depth, so its links begin at the root
        found += [f"{here} fetches {url}" for url in page.fetched if urlsplit(url).netloc]
        for url in [*page.links, *page.fetched]:
            parts = urlsplit(url)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            wanted = unquote(parts.fragment)
            if not target.exists() or (
                wanted and target in looked and wanted not in looked[target].anchors
            ):
                found.append(f"{here} links to {url}")
    return found


def main(arguments: list[str]) -> int:
    """Write the sources, or check the built site; exit code 1 where a problem is found."""
    if len(arguments) != 2 or arguments[0] not in ("pages", "check"):
        sys.stderr.write(__doc__ or "")
        return 2
    folder = Path(arguments[1]).resolve()
    if arguments[0] == "check":
        found = problems(folder)
        sys.stdout.write("".join(f"{problem}\n" for problem in found))
        return int(bool(found))
    shutil.rmtree(folder, ignore_errors=True)
    for place, text in pages().items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_text(text, encoding="utf-8", newline="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
