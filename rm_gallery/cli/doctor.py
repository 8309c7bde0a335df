"""`rm-gallery doctor`: what this machine offers."""

from __future__ import annotations

import importlib.util
import os
import platform
import sys

import typer

from rm_gallery import __version__
from rm_gallery.core.engine.calls import cache as call_cache
from rm_gallery.core.sandbox.select import doctor as sandbox_checks

EXTRAS = {
    "text": ("sacrebleu",),
    "zh": ("jieba",),
    "hub": ("datasets",),
    "toxicity": ("detoxify",),
    "units": ("pint",),
    "serve": ("fastapi", "uvicorn", "sqlalchemy", "prometheus_client"),
    "postgres": ("sqlalchemy", "psycopg"),
}


def doctor() -> None:
    """Show which sandboxes, keys, caches and optional packages are available."""
    typer.echo(f"rm-gallery {__version__}, Python {platform.python_version()}, {sys.platform}, {os.cpu_count()} processors")
    for check in sandbox_checks():
        typer.echo(f"{_mark(check.ok)} {check.name}: {check.detail}")
    typer.echo(f"{_mark(bool(os.environ.get('OPENAI_API_KEY')))} OPENAI_API_KEY is {_set('OPENAI_API_KEY')}")
    url = os.environ.get("OPENAI_BASE_URL") or os.environ.get("BASE_URL")
    typer.echo(f"{_mark(bool(url))} endpoint: {url or 'the default, https://api.openai.com/v1'}")
    cache = call_cache.shared()
    if cache is None:
        typer.echo(f"{_mark(False)} cache: switched off ({call_cache.VARIABLE}=off)")
    else:
        typer.echo(f"{_mark(cache.writable)} cache: {cache.path}")
    for extra, modules in EXTRAS.items():
        missing = [name for name in modules if importlib.util.find_spec(name) is None]
        hint = "installed" if not missing else f"pip install {' '.join(missing)}"
        typer.echo(f"{_mark(not missing)} extra {extra}: {hint}")


def _mark(ok: bool) -> str:
    return "ok  " if ok else "-   "


def _set(name: str) -> str:
    return "set" if os.environ.get(name) else "not set"
