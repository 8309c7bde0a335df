"""The formats of others that the server speaks: one table, and what it says to people."""

from __future__ import annotations

from rm_gallery.serve import evaluations, hosted, trainers
from rm_gallery.serve.asking import Codec

FORMATS = (*evaluations.FORMATS, *trainers.FORMATS, *hosted.FORMATS)
"""Every format beside the server's own."""
CODECS: tuple[Codec, ...] = tuple(codec for each in FORMATS for codec in each.codecs())
"""Their codecs, one for every path."""


def table() -> str:
    """The formats with their field mappings as a Markdown table."""
    lines = ["| path | sent by | their field | here |", "|---|---|---|---|"]
    for each in FORMATS:
        head = f"| `{each.path}` | {each.title} |"
        for theirs, ours in each.fields:
            lines.append(f"{head} {theirs} | {ours} |")
            head = "| | |"
        lines.append(f"{head} *no score* | {each.no_score} |")
    return "\n".join(lines) + "\n"
