"""Every option that a message or a page names is one that a command shows today."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from rm_gallery.cli.main import app
from rm_gallery.cli.settings import group_of, walk

ROOT = Path(__file__).parents[2]
OPTION = re.compile(r"(?<![\w<-])--[a-z][a-z0-9-]*[a-z0-9](?![\w.-])")
OF_OTHERS = (
    "rm_gallery/core/sandbox/",  # bubblewrap and docker
    "rm_gallery/report/pdf.py",  # chromium
    "rm_gallery/integrations/",  # trainers
    "docs/adapters.md",
)
"""Places that name the options of other programs."""
OTHERS = frozenset(
    "--help --version --reward-key --rm-type --git --single_game --to --output-dir --prompt-file "
    "--write --trials --cli --directory --rm-gallery".split()
)
"""Options of other programs, by name."""
SPELLINGS = ("docs/migration.md", "rm_gallery/cli/settings.py")
"""Where earlier spellings stand beside today's."""
EARLIER = {"docs/settings.md": {"--max-calls"}}
"""Earlier spellings that a page calls so."""


def _shown() -> set[str]:
    return {
        name
        for _, command in walk(typer.main.get_command(app))
        for option in command.params
        if not group_of(option) and option.name != "other"
        for name in (*option.opts, *option.secondary_opts)
    }


def _texts(path: Path) -> Iterator[str]:
    """What a page says; of a module its texts without the holes in them."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield text
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield "".join(
                str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values
            )


def _places() -> list[str]:
    found = [
        *ROOT.glob("rm_gallery/**/*.py"),
        *ROOT.glob("rm_gallery/**/*.yaml"),
        *ROOT.glob("docs/**/*.md"),
        ROOT / "README.md",
    ]
    names = sorted(path.relative_to(ROOT).as_posix() for path in found)
    return [name for name in names if not name.startswith((*OF_OTHERS, *SPELLINGS))]


@pytest.mark.long("reads every module and page")
def test_every_option_that_a_message_or_a_page_names_is_shown_by_a_command() -> None:
    """`--force-new` stood in refusals when it had long become run.force_new."""
    shown = _shown() | OTHERS
    unknown = {
        f"{name}: {option}"
        for name in _places()
        for text in _texts(ROOT / name)
        for option in OPTION.findall(text)
        if option not in shown | EARLIER.get(name, set())
    }
    assert not unknown


@pytest.mark.long("reads every module and page")
def test_every_setting_that_a_message_or_a_page_names_is_one() -> None:
    groups: dict[str, set[str]] = {}
    for _, command in walk(typer.main.get_command(app)):
        for option in command.params:
            if group := group_of(option):
                groups.setdefault(group, set()).add(option.name)
    named = re.compile(r"--config ({})\.([a-z_]+)".format("|".join(groups)))
    unknown = {
        f"{name}: {group}.{key}"
        for name in _places()
        for text in _texts(ROOT / name)
        for group, key in named.findall(text)
        if key not in groups[group] and not key.endswith("_")
    }
    assert not unknown
