"""Docstrings as the manual: what a function does, and what each of its arguments is for."""

from __future__ import annotations

import re

_SECTION = re.compile(r"\n\s*(?:Args|Attributes|Returns|Raises):\s*\n|\n\s*>{3} ")
_ARGUMENT = re.compile(r"^ {4}(\w+): ((?:.*\n?)(?: {8,}.*\n?)*)", re.MULTILINE)


def documentation(docstring: str) -> tuple[str, dict[str, str]]:
    """The text before sections and examples, and the explanation of each argument."""
    section = _SECTION.search(docstring)
    text = docstring[: section.start()] if section else docstring
    arguments = docstring[section.end() :] if section else ""
    explained = {match[1]: " ".join(match[2].split()) for match in _ARGUMENT.finditer(arguments)}
    return text.strip(), explained
