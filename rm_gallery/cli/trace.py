"""`rm-gallery trace`: what a judge was asked about a sample, and what it replied."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from rm_gallery.core.engine.folder.trace import read_trace
from rm_gallery.core.utils.errors import DataError
from rm_gallery.core.utils.models import nearest


def trace(
    run: Annotated[str, typer.Argument(help="Folder of a run that was made with --trace.")],
    sample: Annotated[str | None, typer.Argument(metavar="ID", help="Id of a sample; without one all ids are listed.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the judgements as JSON lines.")] = False,
) -> None:
    """Print every judgement of one sample: prompt, reply, tokens, seconds and what became of it."""
    if sample is None:
        for known in dict.fromkeys(str(entry.get("id")) for entry in read_trace(run)):
            typer.echo(_printable(known))
        return
    found = list(read_trace(run, sample))
    if not found:
        near = nearest(sample, {str(entry.get("id")) for entry in read_trace(run)})
        raise DataError(f"{run} has no judgement of sample '{sample}'{'; near are ' + ', '.join(near) if near else ''}.")
    for number, entry in enumerate(found):
        typer.echo(json.dumps(entry, ensure_ascii=False) if as_json else ("\n" if number else "") + _shown(entry))


def _shown(entry: dict[str, Any]) -> str:
    head = f"{entry.get('reward')} · place {entry.get('place')} · attempt {entry.get('attempt')} · {entry.get('status')}"
    if entry.get("problem"):
        head += f": {entry['problem']}"
    tokens = entry.get("tokens") or {}
    cost = f"{tokens.get('input', 0)} + {tokens.get('output', 0)} tokens, {entry.get('seconds', 0):.2f} s"
    parts = [f"=== {_printable(head)}", f"    {cost}{', from the cache' if entry.get('cached') else ''}"]
    prompt = entry.get("prompt")
    for message in prompt if isinstance(prompt, list) else []:
        parts.append(f"--- {message.get('role')}\n{_printable(message.get('content'))}")
    parts.append(f"--- reply\n{_printable(entry.get('reply'))}")
    return "\n".join(parts)


def _printable(text: Any) -> str:
    """A text as a terminal may show it: control characters, which could steer it, are left out."""
    text = text if isinstance(text, str) else json.dumps(text, ensure_ascii=False)
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text.replace("\r\n", "\n"))
