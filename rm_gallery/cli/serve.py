"""What others are offered: `rm-gallery serve`, `serve-token`, `view` and `evaluators`."""

from __future__ import annotations

import importlib.util
import sys
import webbrowser
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rm_gallery.cli import options as opt
from rm_gallery.core.utils.errors import (
    ConfigError,
    Inapplicable,
    MissingExtra,
    RMGalleryError,
    reason_of,
)
from rm_gallery.core.utils.file import read_yaml
from rm_gallery.core.utils.shown import one_line

if TYPE_CHECKING:
    from fastapi import FastAPI

    from rm_gallery.core.reward.reward import BaseReward
    from rm_gallery.evaluation.store import Version
    from rm_gallery.serve.door import ServeSettings
    from rm_gallery.serve.handler import ServedEvaluators
    from rm_gallery.serve.ors import Tasks
    from rm_gallery.serve.tokens import TokenFile

Tokens = Annotated[opt.T, typer.Option("--tokens", envvar="RM_GALLERY_TOKENS")]
Port = Annotated[opt.T, typer.Option(min=0, max=65535)]
StoreUrl = Annotated[
    str | None,
    typer.Option(
        "--store",
        help="SQLite file or postgresql:// URL; RM_GALLERY_STORE, else your own, by default.",
    ),
]
_NEEDED = ("fastapi", "uvicorn", "sqlalchemy", "prometheus_client")


@dataclass(frozen=True)
class Listening:
    """Where the server listens, whom it answers, and how much it takes on: the fields of
    `ServeSettings`.

    Attributes:
        host: Where to listen; only this machine by default.
        port: 0 takes a free one.
        open: Let other machines ask without a token.
        deadline: Seconds one request may take at most.
        max_workers: Judgements of one reward in flight; its own max_workers by default.
        max_waiting: Completions that may wait for one reward.
        max_body: Bytes of a request's body at most.
        status_port: A port for /health and /metrics alone, answered however busy the server is.
        access_log: Write a JSON line a request to this file, or - for stdout.
        certificate: PEM file with the certificate, for TLS.
        key: PEM file with its key.
    """

    host: str = "127.0.0.1"
    port: Port[int] = 8000
    open: bool = False
    deadline: Annotated[float, typer.Option(min=0.001)] = 60.0
    max_workers: opt.Count[int | None] = None
    max_waiting: opt.Count[int] = 8192
    max_body: opt.Count[int] = 8 << 20
    status_port: Port[int | None] = None
    access_log: Annotated[str | None, typer.Option(metavar="FILE")] = None
    certificate: str | None = None
    key: str | None = None


@dataclass(frozen=True)
class Offer:
    """What the command is asked to serve; every process makes its application of it.

    Attributes:
        config: YAML file: rewards: {NAME: {reward: REWARD, params: {…}, llm: MODEL, base_url: URL,
            root: FOLDER, hosts: [HOST]}}.
        evaluators: Serve what `rm-gallery evaluators deploy` stored.
        workers: Processes of one evaluator at most.
        processes: Server processes behind the port; limits, rates and counters are each one's own.
        sandbox: bwrap, or subprocess: limits alone, for code you would run yourself.
        tasks: File of tasks with prompt and reference: each reward is an environment of the Open
            Reward Standard over them.
        tokens: File with the tokens of those who may ask.
        log_level: error, warning, info, debug, or http to trace calls.
    """

    reward: Annotated[
        list[str] | None,
        typer.Option(
            "--reward",
            "-r",
            metavar="[NAME=]REWARD",
            autocompletion=opt.reward_names,
            help=(
                f"The reward: {opt.SPELLED}; offered under a name of its own if one is given. May "
                f"be repeated."
            ),
        ),
    ] = None
    config: Path | None = None
    llm: opt.Llm = None
    base_url: opt.BaseUrl = None
    evaluators: bool = True
    store: StoreUrl = None
    workers: opt.Count[int] = 8
    processes: opt.Count[int] = 1
    sandbox: str = "auto"
    tasks: Path | None = None
    tokens: Tokens[Path | None] = None
    log_level: str = "warning"

    def checked(
        self, settings: ServeSettings
    ) -> tuple[dict[str, BaseReward], ServedEvaluators | None, TokenFile | None, Tasks | None]:
        """The rewards, evaluators, tokens and tasks; ConfigError says what does not fit."""
        from rm_gallery.evaluation.store import Store
        from rm_gallery.serve.handler import ServedEvaluators
        from rm_gallery.serve.ors import read_tasks
        from rm_gallery.serve.tokens import TokenFile

        tokens = None if self.tokens is None else TokenFile(self.tokens)
        settings.check_access(tokens is not None)
        tasks = None if self.tasks is None else read_tasks(self.tasks)
        rewards = named_rewards(self.reward or [], self.config, self.llm, self.base_url)
        served = None
        if self.evaluators:
            if self.sandbox not in ("auto", "bwrap", "subprocess"):
                raise ConfigError(
                    f"--sandbox is {self.sandbox!r:.40}; give auto, bwrap or subprocess."
                )
            served = ServedEvaluators(
                Store.open(self.store),
                workers=self.workers,
                sandbox=self.sandbox,
                max_waiting=settings.max_waiting,
            )
        elif not rewards:
            raise ConfigError(
                "there is nothing to serve; name a reward with --reward NAME, or leave out "
                "--no-evaluators."
            )
        return rewards, served, tokens, tasks

    def application(
        self,
        settings: ServeSettings,
        rewards: Mapping[str, BaseReward],
        served: ServedEvaluators | None,
        tokens: TokenFile | None,
        tasks: Tasks | None,
    ) -> FastAPI:
        """The application that serves what `checked` gave."""
        from rm_gallery.serve.app import create_app
        from rm_gallery.serve.foreign import Allowed
        from rm_gallery.serve.handler import Handler

        handler = Handler(
            rewards,
            served,
            max_waiting=settings.max_waiting,
            max_workers=settings.max_workers,
            allowed={
                name: Allowed(entry.get("root"), frozenset(map(str.lower, entry.get("hosts", ()))))
                for name, entry in _entries(self.config)
            },
            max_seconds=settings.max_seconds,
        )
        return create_app(handler, settings, tokens=tokens, tasks=tasks)

    def in_process(self, settings: ServeSettings) -> FastAPI:
        """The application of one process of several; one that cannot start ends the server."""
        from rm_gallery.serve.listen import STARTUP_FAILURE

        opt.set_log_level(self.log_level)
        try:
            app = self.application(settings, *self.checked(settings))
        except RMGalleryError as error:
            opt.say(f"rm-gallery: {one_line(str(error))}")
            sys.exit(STARTUP_FAILURE)
        app.state.owns_process = True
        return app


@opt.grouped()
def serve(*, offer: Offer, listening: Listening) -> None:
    """Serve rewards over HTTP until SIGTERM or Ctrl-C."""
    absent = [
        module.replace("_", "-") for module in _NEEDED if importlib.util.find_spec(module) is None
    ]
    if absent:  # all at once: each would be asked for in a run of its own
        raise MissingExtra(" ".join(absent), "serve", "The server")
    from rm_gallery.serve.door import ServeSettings
    from rm_gallery.serve.listen import run_processes, run_server

    opt.set_log_level(offer.log_level)
    settings, processes = ServeSettings(**vars(listening)), offer.processes
    if offer.tasks is not None and processes > 1:
        raise Inapplicable(
            "--tasks keeps a session per rollout in one process; leave out --processes.", "tasks"
        )
    rewards, served, *_ = offered = offer.checked(settings)
    what = f"{len(rewards)} reward{'' if len(rewards) == 1 else 's'}"
    what += f" and the evaluators of {served.shown}" if served is not None else ""

    def ready(url: str, status_url: str) -> None:
        opt.say(f"rm-gallery: serving {what} on {url}")
        if status_url:
            opt.say(f"rm-gallery: /health and /metrics also on {status_url}")
        sys.stderr.flush()

    if processes == 1:
        run_server(offer.application(settings, *offered), settings, ready)
    else:
        opt.say(
            f"rm-gallery: {processes} processes: every limit, every rate, /metrics and /health "
            f"are each process's own"
        )
        run_processes(partial(offer.in_process, settings), settings, processes, ready)


@opt.grouped()
def view(
    runs: Annotated[list[Path] | None, typer.Argument(metavar="RUN")] = None,
    port: Port[int] = 0,
    browser: bool = False,
    queue: opt.Count[int] = 200,
    seed: int = 0,
) -> None:
    """Show runs in the browser, live and on this machine alone: figures, rows, two runs side by
    side, review by people.

    Args:
        runs: Run folders, or folders that hold some; this one by default.
        port: 0 takes a free one.
        browser: Open the address in the browser of this machine.
        queue: Rows of a run that are drawn for people to label.
        seed: Decides which rows are drawn and in which order they come.
    """
    from rm_gallery.serve.view import run_viewer

    def ready(url: str) -> None:
        opt.say(
            f"rm-gallery: whoever has this address sees these runs; Ctrl-C ends the "
            f"viewer.\nrm-gallery: showing runs on {url}"
        )
        sys.stderr.flush()
        if browser:
            webbrowser.open(url)

    run_viewer(runs or [Path(".")], ready, port=port, seed=seed, size=queue)


def named_rewards(
    names: list[str], config: Path | None, llm: str | None, base_url: str | None
) -> dict[str, BaseReward]:
    """The rewards to offer, by the names they are offered under; ConfigError names the entry that
    does not fit.
    """
    from rm_gallery.core.reward.resolve import judges_for, resolve

    parts = (given.partition("=") for given in names)
    entries: list[tuple[str, Mapping[str, Any]]] = [
        (name, {"reward": registered if equals else name}) for name, equals, registered in parts
    ]
    entries += _entries(config)
    offered = [name for name, _ in entries]
    for name in offered:
        if not name or "/" in name:
            raise ConfigError(
                f"--reward {name!r:.60} is no name to offer a reward under; give NAME=REWARD "
                f"without '/'."
            )
        if offered.count(name) > 1:
            raise ConfigError(
                f"two rewards are to be offered as {name!r:.60}; give one of them another NAME=."
            )
    open_ = [entry["reward"] for _, entry in entries if not entry.keys() & _OWN_JUDGE]
    judges = iter(judges_for(open_, llm, base_url))
    rewards: dict[str, BaseReward] = {}
    for name, entry in entries:
        judge = {key: entry[key] for key in _OWN_JUDGE & entry.keys()} or next(judges)
        try:
            rewards[name] = resolve(entry["reward"], entry.get("params") or {}, **judge)
            rewards[name].check()
        except ConfigError as error:
            raise ConfigError(f"--reward {name}: {error}") from error
    return rewards


_OWN_JUDGE = frozenset({"llm", "base_url"})
_ENTRY = _OWN_JUDGE | {"reward", "params", "root", "hosts"}


def _entries(config: Path | None) -> list[tuple[str, Mapping[str, Any]]]:
    if config is None:
        return []
    import yaml

    try:
        read = read_yaml(config.read_text(encoding="utf-8"), f"--config {config}")
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"--config {config}: {' '.join(reason_of(error).split())}") from error
    rewards = read.get("rewards") if isinstance(read, dict) else None
    if not isinstance(rewards, dict) or len(read) > 1:
        raise ConfigError(
            f"--config {config} holds no rewards; write rewards: {{NAME: {{reward: REWARD}}}}."
        )
    for name, entry in rewards.items():
        if (
            not isinstance(entry, dict)
            or entry.keys() - _ENTRY
            or not all(isinstance(entry.get(key, ""), str) for key in ("root", "reward"))
            or "reward" not in entry
            or not isinstance(hosts := entry.get("hosts", []), list)
            or not all(isinstance(host, str) for host in hosts)
        ):
            given = ", ".join(map(str, entry)) if isinstance(entry, dict) else repr(entry)
            raise ConfigError(
                f"--config {config}: rewards.{name} takes reward (a name), params, llm, "
                f"base_url, root (a folder) and hosts (a list); found {given or 'nothing'}."
            )
    return [(str(name), entry) for name, entry in rewards.items()]


@opt.grouped()
def create(
    name: str,
    tokens: Tokens[Path],
    scope: list[str] | None = None,
    per_minute: opt.Count[int | None] = None,
) -> None:
    """Print a new token. It is shown once: the file keeps its hash.

    Args:
        name: Whose token it is.
        scope: read (lists, metrics), evaluate (scores), deploy; may be repeated. read and evaluate
            by default.
        tokens: File with the tokens.
        per_minute: Completions a minute at most.
    """
    from rm_gallery.serve.tokens import create_token

    typer.echo(create_token(tokens, name, scope or ["read", "evaluate"], per_minute))


@opt.grouped()
def list_tokens(tokens: Tokens[Path], json: opt.Json = False) -> None:
    """Print the names of the tokens with their scopes and rates.

    Args:
        tokens: File with the tokens.
    """
    from rm_gallery.serve.tokens import read_tokens

    shown, lines = [], []
    for each in read_tokens(tokens).values():
        facts = {name: getattr(each, name) for name in ("id", "name", "per_minute", "created")}
        shown.append({**facts, "scopes": sorted(each.scopes)})
        rate = "" if each.per_minute is None else f"  {each.per_minute} a minute"
        lines.append(f"{each.id}  {each.name}  {','.join(sorted(each.scopes))}{rate}")
    opt.show(json, shown, lines)


@opt.grouped()
def revoke(name: str, tokens: Tokens[Path]) -> None:
    """Remove a token; a running server refuses it within a second.

    Args:
        name: Name or id of the token.
        tokens: File with the tokens.
    """
    from rm_gallery.serve.tokens import revoke_token

    revoke_token(tokens, name)


# -- evaluators ------------------------------------------------------------------------------------

Folders = Annotated[
    list[str] | None,
    typer.Option(
        "--metrics-folders",
        "-m",
        metavar="NAME=PATH",
        help="A folder with main.py: evaluate; may be repeated.",
    ),
]
MoreFolders = Annotated[
    list[str] | None, typer.Argument(metavar="[NAME=PATH]...", help="Further metric folders.")
]


@opt.grouped()
def preview(
    more: MoreFolders = None,
    metrics_folders: Folders = None,
    samples: Annotated[Path | None, typer.Option("--samples", "-s")] = None,
    max_samples: opt.Count[int] = 5,
    timeout: Annotated[float, typer.Option("--deadline", min=0.001)] = 10.0,
    memory: Annotated[int, typer.Option(min=64)] = 512,
    sandbox: str | None = None,
    max_failures: opt.MaxFailures = 0,
    json: opt.Json = False,
) -> None:
    """Run metric folders on samples as they would run when deployed, offline; exit 1 when one fails
    or none has a score.

    Args:
        samples: File with a column messages; others are keywords.
        max_samples: Take the first this many.
        timeout: Seconds one sample may take.
        memory: Megabytes the code may use.
        sandbox: bwrap, or subprocess for limits alone; default bwrap where there is one.
    """
    from rm_gallery.evaluation.deploy import preview_evaluation
    from rm_gallery.evaluation.pool import LIMITS

    previewed = preview_evaluation(
        metric_folders=[*(metrics_folders or []), *(more or [])],
        sample_file=samples,
        max_samples=max_samples,
        sandbox=sandbox,
        limits=replace(
            LIMITS,
            wall_seconds=timeout,
            cpu_seconds=max(timeout, LIMITS.cpu_seconds),
            memory_mb=memory,
        ),
    )
    say_skipped(previewed.skipped)
    for line in previewed.printed.splitlines():
        opt.say(f"printed: {one_line(line)}")
    if previewed.sandbox == "subprocess" and sandbox is None:
        opt.say(
            "rm-gallery: there is no bubblewrap here; the code ran with limits alone, as your own "
            "code does"
        )
    opt.show(
        json,
        previewed.as_dict(),
        (line[: len(line) - len(line.lstrip())] + one_line(line) for line in previewed.lines()),
    )
    if previewed.count("failed") > max_failures or not previewed.count("scored"):
        sys.exit(1)


def say_skipped(skipped: object) -> None:
    """Name on stderr the files that are not part of an evaluator."""
    for name in skipped if isinstance(skipped, (list, tuple)) else ():
        opt.say(f"rm-gallery: left out {one_line(str(name))}")


EvaluatorId = Annotated[str, typer.Argument(metavar="ID", help="The evaluator's id.")]


@opt.grouped()
def deploy(
    id: opt.Named[str],
    more: MoreFolders = None,
    metrics_folders: Folders = None,
    display_name: str = "",
    description: str = "",
    force: Annotated[bool, typer.Option("--force", "-f")] = False,
    check: bool = True,
    store: StoreUrl = None,
    json: opt.Json = False,
) -> None:
    """Store metric folders as a version of an evaluator, which `rm-gallery serve` then offers.

    Args:
        id: Up to 63 letters, digits, '-', '_' and '.'.
        display_name: What people call it; the id by default.
        description: What it measures.
        force: Add a version where the id is there.
        check: Load the code in the sandbox first, where there is one.
    """
    from rm_gallery.evaluation.deploy import create_evaluation

    deployed = create_evaluation(
        id,
        [*(metrics_folders or []), *(more or [])],
        display_name=display_name,
        description=description,
        force=force,
        store=store,
        check=check,
    )
    say_skipped(deployed["skipped"])
    version = deployed["version"]
    line = (
        f"Successfully {'created' if version == 1 else 'updated'} evaluator: {deployed['name']} "
        f"(version {version}, hash {deployed['hash'][:12]})"
    )
    opt.show(json, deployed, [line])


@opt.grouped()
def list_evaluators(store: StoreUrl = None, json: opt.Json = False) -> None:
    """Name the evaluators with the version that is served."""
    from rm_gallery.evaluation.store import Store

    with Store.open(store) as open_store:
        evaluators = open_store.list()
    width = max((len(each.id) for each in evaluators), default=0)
    lines = (
        f"{e.id:{width}}  version {e.version}  {e.created[:16]}  {one_line(e.display_name)}"
        for e in evaluators
    )
    opt.show(json, [each.as_dict() for each in evaluators], lines)


@opt.grouped()
def show(
    id: EvaluatorId,
    version: opt.Count[int | None] = None,
    store: StoreUrl = None,
    json: opt.Json = False,
) -> None:
    """Show one evaluator: what it is, its files, its versions.

    Args:
        version: Another version than the one that is served.
    """
    from rm_gallery.evaluation.store import Store

    with Store.open(store) as open_store:
        evaluator, versions = open_store.current(id, version=version), open_store.versions(id)
    files = {path: len(data) for path, data in sorted(evaluator.bundle.files.items())}

    def named(each: Version) -> str:
        return f"{each.version}{' (served)' if each.is_current else ''}"

    facts = {
        "name": evaluator.name,
        "version": named(evaluator),
        "hash": evaluator.hash,
        "deployed": evaluator.created,
        "display name": evaluator.display_name,
        "description": evaluator.description or "-",
        "metrics": ", ".join(evaluator.metrics),
        "requirements": ", ".join(evaluator.requirements) or "-",
        "mode": evaluator.mode,
        "versions": ", ".join(map(named, versions)),
    }
    lines = [f"{name:13} {one_line(value)}" for name, value in facts.items()]
    lines += [f"  {one_line(path)}  {size} bytes" for path, size in files.items()]
    shown = {
        **evaluator.as_dict(),
        "files": files,
        "versions": [each.as_dict() for each in versions],
    }
    opt.show(json, shown, lines)


@opt.grouped()
def rollback(
    id: EvaluatorId,
    version: opt.Count[int | None] = None,
    store: StoreUrl = None,
) -> None:
    """Serve an older version again; no version is removed.

    Args:
        version: To this version; default the one before.
    """
    from rm_gallery.evaluation.store import Store

    with Store.open(store) as open_store:
        evaluator = open_store.rollback(id, version)
    typer.echo(f"{evaluator.name} is version {evaluator.version} now (hash {evaluator.hash[:12]})")


@opt.grouped()
def delete(id: EvaluatorId, store: StoreUrl = None) -> None:
    """Remove an evaluator with all its versions."""
    from rm_gallery.evaluation.store import Store

    with Store.open(store) as open_store:
        count = open_store.delete(id)
    typer.echo(f"removed {id} with {count} version{'' if count == 1 else 's'}")
