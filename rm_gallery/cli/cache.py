"""`rm-gallery cache`: the replies kept on this machine."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Annotated

import typer

from rm_gallery.core.engine.calls import cache as call_cache
from rm_gallery.core.engine.calls.cache import CallCache

cache_app = typer.Typer(help="Look at, shrink or empty the cache of judge replies.", no_args_is_help=True)


def _cache() -> CallCache:
    cache = call_cache.shared()
    if cache is None:
        typer.echo(f"The cache is switched off ({call_cache.VARIABLE}=off).", err=True)
        raise typer.Exit(2)
    return cache


@cache_app.command("stats")
def stats() -> None:
    """Print where the cache is and what it holds."""
    found = _cache().stats()
    typer.echo(f"path       {found.path}")
    typer.echo(f"entries    {found.entries:,}")
    typer.echo(f"bytes      {found.bytes:,}")
    for name, moment in (("oldest", found.oldest), ("newest", found.newest)):
        shown = "-" if moment is None else f"{datetime.fromtimestamp(moment, timezone.utc):%Y-%m-%d %H:%M} UTC"
        typer.echo(f"{name:10} {shown}")


@cache_app.command("prune")
def prune(
    max_bytes: Annotated[int | None, typer.Option(min=1, help="Keep at most this many bytes, the latest used.")] = None,
    max_days: Annotated[float | None, typer.Option(min=0.0, help="Remove replies older than this.")] = None,
) -> None:
    """Remove old replies."""
    removed = _cache().prune(max_bytes=max_bytes, max_age=None if max_days is None else max_days * 86400)
    typer.echo(f"{removed} replies removed")


@cache_app.command("clear")
def clear() -> None:
    """Remove every reply."""
    typer.echo(f"{_cache().clear()} replies removed")
