"""`rm-gallery deploy` and `rm-gallery evaluators`: versions of evaluators in the local store."""

from __future__ import annotations

from typing import Annotated

import typer

from rm_gallery.cli import options as opt
from rm_gallery.cli.preview import Folders, MoreFolders, say_skipped
from rm_gallery.gallery.benchmarks.figures import one_line

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
    from rm_gallery.evaluation.create import create_evaluation

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
