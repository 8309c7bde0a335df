"""`rm-gallery preview`, `deploy` and `evaluators`: metric folders tried, and versions of evaluators in the local store."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from rm_gallery.cli import options as opt
from rm_gallery.core.utils.shown import one_line

Folders = Annotated[
    list[str] | None,
    typer.Option("--metrics-folders", "-m", metavar="NAME=PATH", help="A folder with main.py: evaluate; may be repeated."),
]
MoreFolders = Annotated[list[str] | None, typer.Argument(metavar="[NAME=PATH]...", help="Further metric folders.")]


def preview(
    more: MoreFolders = None,
    metrics_folders: Folders = None,
    samples: Annotated[
        Path | None, typer.Option("--samples", "-s", help="File with a column messages; others are keywords.")
    ] = None,
    max_samples: Annotated[int, typer.Option(min=1, help="Take the first this many.")] = 5,
    timeout: Annotated[float, typer.Option(min=0.001, help="Seconds one sample may take.")] = 10.0,
    memory: Annotated[int, typer.Option(min=64, help="Megabytes the code may use.")] = 512,
    sandbox: Annotated[
        str | None, typer.Option(help="bwrap, or subprocess for limits alone; default bwrap where there is one.")
    ] = None,
    max_failures: opt.MaxFailures = 0,
    json: opt.Json = False,
) -> None:
    """Run metric folders on samples as they would run when deployed, offline; exit 1 when one fails or none has a score."""
    from rm_gallery.evaluation.deploy import preview_evaluation
    from rm_gallery.evaluation.pool import LIMITS

    found = preview_evaluation(
        metric_folders=[*(metrics_folders or []), *(more or [])],
        sample_file=samples,
        max_samples=max_samples,
        sandbox=sandbox,
        limits=replace(LIMITS, wall_seconds=timeout, cpu_seconds=max(timeout, LIMITS.cpu_seconds), memory_mb=memory),
    )
    say_skipped(found.skipped)
    for line in found.printed.splitlines():
        sys.stderr.write(f"printed: {one_line(line)}\n")
    if found.sandbox == "subprocess" and sandbox is None:
        sys.stderr.write("rm-gallery: there is no bubblewrap here; the code ran with limits alone, as your own code does\n")
    if json:
        opt.print_json(found.as_dict())
    else:
        for line in found.lines():
            indent = line[: len(line) - len(line.lstrip())]
            typer.echo(indent + one_line(line))
    if found.count("failed") > max_failures or not found.count("scored"):
        sys.exit(1)


def say_skipped(skipped: object) -> None:
    """Name on stderr the files that are not part of an evaluator."""
    for name in skipped if isinstance(skipped, (list, tuple)) else ():
        sys.stderr.write(f"rm-gallery: left out {one_line(str(name))}\n")


evaluators_app = typer.Typer(help="Look at, roll back or delete deployed evaluators.", no_args_is_help=True)

StoreUrl = Annotated[
    str | None,
    typer.Option("--store", help="SQLite file or postgresql:// URL; RM_GALLERY_STORE, else your own, by default."),
]
EvaluatorId = Annotated[str, typer.Argument(metavar="ID", help="The evaluator's id.")]


def deploy(
    id: Annotated[str, typer.Option("--id", help="Up to 63 letters, digits, '-', '_' and '.'.")],
    more: MoreFolders = None,
    metrics_folders: Folders = None,
    display_name: Annotated[str, typer.Option(help="What people call it; the id by default.")] = "",
    description: Annotated[str, typer.Option(help="What it measures.")] = "",
    force: Annotated[bool, typer.Option("--force", "-f", help="Add a version where the id is there.")] = False,
    check: Annotated[bool, typer.Option(help="Load the code in the sandbox first, where there is one.")] = True,
    store: StoreUrl = None,
    json: opt.Json = False,
) -> None:
    """Store metric folders as a version of an evaluator, which `rm-gallery serve` then offers."""
    from rm_gallery.evaluation.deploy import create_evaluation

    found = create_evaluation(
        id,
        [*(metrics_folders or []), *(more or [])],
        display_name=display_name,
        description=description,
        force=force,
        store=store,
        check=check,
    )
    say_skipped(found["skipped"])
    if json:
        opt.print_json(found)
        return
    done = "created" if found["version"] == 1 else "updated"
    typer.echo(f"Successfully {done} evaluator: {found['name']} (version {found['version']}, hash {found['hash'][:12]})")


@evaluators_app.command("list")
def list_evaluators(store: StoreUrl = None, json: opt.Json = False) -> None:
    """Name the evaluators with the version that is served."""
    from rm_gallery.evaluation.store import Store

    with Store.open(store) as opened:
        found = opened.list()
    if json:
        opt.print_json([each.as_dict() for each in found])
    else:
        width = max((len(each.id) for each in found), default=0)
        for each in found:
            typer.echo(f"{each.id:{width}}  version {each.version}  {each.created[:16]}  {one_line(each.display_name)}")


@evaluators_app.command("show")
def show(
    id: EvaluatorId,
    version: Annotated[int | None, typer.Option(min=1, help="Another version than the one that is served.")] = None,
    store: StoreUrl = None,
    json: opt.Json = False,
) -> None:
    """Show one evaluator: what it is, its files, its versions."""
    from rm_gallery.evaluation.store import Store

    with Store.open(store) as opened:
        found, versions = opened.current(id, version=version), opened.versions(id)
    files = {path: len(data) for path, data in sorted(found.bundle.files.items())}
    if json:
        opt.print_json({**found.as_dict(), "files": files, "versions": [each.as_dict() for each in versions]})
        return
    facts = {
        "name": found.name,
        "version": f"{found.version}{' (served)' if found.is_current else ''}",
        "hash": found.hash,
        "deployed": found.created,
        "display name": found.display_name,
        "description": found.description or "-",
        "metrics": ", ".join(found.metrics),
        "requirements": ", ".join(found.requirements) or "-",
        "mode": found.mode,
        "versions": ", ".join(f"{each.version}{' (served)' if each.is_current else ''}" for each in versions),
    }
    for name, value in facts.items():
        typer.echo(f"{name:13} {one_line(value)}")
    for path, size in files.items():
        typer.echo(f"  {one_line(path)}  {size} bytes")


@evaluators_app.command("rollback")
def rollback(
    id: EvaluatorId,
    version: Annotated[int | None, typer.Option(min=1, help="To this version; default the one before.")] = None,
    store: StoreUrl = None,
) -> None:
    """Serve an older version again; no version is removed."""
    from rm_gallery.evaluation.store import Store

    with Store.open(store) as opened:
        found = opened.rollback(id, version)
    typer.echo(f"{found.name} is version {found.version} now (hash {found.hash[:12]})")


@evaluators_app.command("delete")
def delete(id: EvaluatorId, store: StoreUrl = None) -> None:
    """Remove an evaluator with all its versions."""
    from rm_gallery.evaluation.store import Store

    with Store.open(store) as opened:
        count = opened.delete(id)
    typer.echo(f"removed {id} with {count} version{'' if count == 1 else 's'}")
