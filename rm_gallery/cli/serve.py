"""`rm-gallery serve`: rewards over HTTP."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml

from rm_gallery.cli import options as opt
from rm_gallery.cli.deploy import StoreUrl
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.runner.grading_runner import asks_for_judge, build_reward
from rm_gallery.core.utils.errors import ConfigError, MissingExtra

if TYPE_CHECKING:
    from rm_gallery.serve.handler import ServedEvaluators

TokensFile = Annotated[Path | None, typer.Option(envvar="RM_GALLERY_TOKENS", help="File with the tokens of those who may ask.")]
_NEEDED = ("fastapi", "uvicorn", "sqlalchemy", "prometheus_client")
token_app = typer.Typer(help="Make, list and revoke the tokens of those who may ask a server.", no_args_is_help=True)


def serve(
    reward: Annotated[
        list[str] | None,
        typer.Option(
            "--reward",
            "-r",
            metavar="[NAME=]REWARD",
            help="A registered reward or grader to offer, under a name of its own if one is given; may be repeated.",
            autocompletion=opt.reward_names,
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(help="YAML file: rewards: {NAME: {reward: REGISTERED, params: {…}, llm: MODEL, base_url: URL}}."),
    ] = None,
    llm: opt.Llm = None,
    base_url: opt.BaseUrl = None,
    evaluators: Annotated[bool, typer.Option(help="Serve what `rm-gallery deploy` stored.")] = True,
    store: StoreUrl = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes of one evaluator at most.")] = 8,
    sandbox: Annotated[str, typer.Option(help="bwrap, or subprocess: limits alone, for code you would run yourself.")] = "auto",
    host: Annotated[str, typer.Option(help="Where to listen; only this machine by default.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8000,
    tokens: TokensFile = None,
    open: Annotated[bool, typer.Option("--open", help="Let other machines ask without a token.")] = False,
    deadline: Annotated[float, typer.Option(min=0.001, help="Seconds one request may take at most.")] = 60.0,
    max_workers: Annotated[
        int | None,
        typer.Option(min=1, help="Judgements of one reward in flight; its own max_workers, else 128, by default."),
    ] = None,
    max_waiting: Annotated[int, typer.Option(min=1, help="Completions that may wait for one reward.")] = 8192,
    max_body: Annotated[int, typer.Option(min=1, help="Bytes of a request's body at most.")] = 8 << 20,
    certificate: Annotated[str | None, typer.Option(help="PEM file with the certificate, for TLS.")] = None,
    key: Annotated[str | None, typer.Option(help="PEM file with its key.")] = None,
    log_level: opt.LogLevel = "warning",
) -> None:
    """Serve rewards over HTTP until SIGTERM or Ctrl-C."""
    absent = [module.replace("_", "-") for module in _NEEDED if importlib.util.find_spec(module) is None]
    if absent:  # all at once: each would be asked for in a run of its own
        raise MissingExtra(" ".join(absent), "serve", "The server")
    from rm_gallery.serve.app import create_app, run_server
    from rm_gallery.serve.door import ServeSettings
    from rm_gallery.serve.handler import Handler
    from rm_gallery.serve.tokens import TokenFile

    opt.set_log_level(log_level)
    settings = ServeSettings(
        host=host,
        port=port,
        open=open,
        deadline=deadline,
        max_workers=max_workers,
        max_waiting=max_waiting,
        max_body=max_body,
        certificate=certificate,
        key=key,
    )
    known = None if tokens is None else TokenFile(tokens)
    settings.check_access(known is not None)
    rewards = named_rewards(reward or [], config, llm, base_url)
    served = _served(store, workers, sandbox, max_waiting) if evaluators else None
    if served is None and not rewards:
        raise ConfigError("there is nothing to serve; name a reward with --reward NAME, or leave out --no-evaluators.")
    handler = Handler(rewards, served, max_waiting=max_waiting, max_workers=max_workers)

    def ready(url: str) -> None:
        what = f"{len(rewards)} reward{'' if len(rewards) == 1 else 's'}"
        beside = f" and the evaluators of {served.shown}" if served is not None else ""
        sys.stderr.write(f"rm-gallery: serving {what}{beside} on {url}\n")
        sys.stderr.flush()

    run_server(create_app(handler, settings, tokens=known), settings, ready)


def _served(store: str | None, workers: int, sandbox: str, max_waiting: int) -> ServedEvaluators:
    from rm_gallery.evaluation.store import Store
    from rm_gallery.serve.handler import ServedEvaluators

    if sandbox not in ("auto", "bwrap", "subprocess"):
        raise ConfigError(f"--sandbox is {sandbox!r:.40}; give auto, bwrap or subprocess.")
    opened = Store.open(store)
    return ServedEvaluators(opened, workers=workers, sandbox=sandbox, max_waiting=max_waiting)


def named_rewards(names: list[str], config: Path | None, llm: str | None, base_url: str | None) -> dict[str, BaseReward]:
    """The rewards to offer, by the names they are offered under; ConfigError names the entry that does not fit."""
    entries: list[tuple[str, Mapping[str, Any]]] = []
    for given in names:
        name, equals, registered = given.partition("=")
        entries.append((name, {"reward": registered if equals else name}))
    entries += _entries(config)
    found: dict[str, BaseReward] = {}
    for name, entry in entries:
        if not name or "/" in name:
            raise ConfigError(f"--reward {name!r:.60} is no name to offer a reward under; give NAME=REWARD without '/'.")
        if name in found:
            raise ConfigError(f"two rewards are to be offered as {name!r:.60}; give one of them another NAME=.")
        found[name] = _built(name, entry, llm, base_url)
    return found


_ENTRY = frozenset({"reward", "params", "llm", "base_url"})


def _entries(config: Path | None) -> list[tuple[str, Mapping[str, Any]]]:
    if config is None:
        return []
    try:
        read = yaml.safe_load(config.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"--config {config}: {' '.join(str(error).split())}") from error
    rewards = read.get("rewards") if isinstance(read, dict) else None
    if not isinstance(rewards, dict) or len(read) > 1:
        raise ConfigError(f"--config {config} holds no rewards; write rewards: {{NAME: {{reward: REGISTERED}}}}.")
    for name, entry in rewards.items():
        if not isinstance(entry, dict) or not isinstance(entry.get("reward"), str) or entry.keys() - _ENTRY:
            found = ", ".join(map(str, entry)) if isinstance(entry, dict) else repr(entry)
            raise ConfigError(
                f"--config {config}: rewards.{name} takes reward (a registered name), params, llm and base_url; "
                f"found {found or 'nothing'}."
            )
    return [(str(name), entry) for name, entry in rewards.items()]


def _built(name: str, entry: Mapping[str, Any], llm: str | None, base_url: str | None) -> BaseReward:
    registered, params = entry["reward"], entry.get("params") or {}
    own_llm, own_url = entry.get("llm"), entry.get("base_url")
    if own_llm is None and own_url is None and asks_for_judge(registered):
        own_llm, own_url = llm, base_url  # the judge named for all is for those that ask one
    try:
        return build_reward(registered, params, own_llm, own_url)
    except ConfigError as error:
        raise ConfigError(f"--reward {name}: {error}") from error


Tokens = Annotated[Path, typer.Option("--tokens", envvar="RM_GALLERY_TOKENS", help="File with the tokens.")]


@token_app.command("create")
def create(
    name: Annotated[str, typer.Argument(help="Whose token it is.")],
    tokens: Tokens,
    scope: Annotated[
        list[str] | None,
        typer.Option(help="read (lists, metrics), evaluate (scores), deploy; may be repeated. read and evaluate by default."),
    ] = None,
    per_minute: Annotated[int | None, typer.Option(min=1, help="Requests a minute at most.")] = None,
) -> None:
    """Print a new token. It is shown once: the file keeps its hash."""
    from rm_gallery.serve.tokens import create_token

    typer.echo(create_token(tokens, name, scope or ["read", "evaluate"], per_minute))


@token_app.command("list")
def list_tokens(tokens: Tokens, json: opt.Json = False) -> None:
    """Print the names of the tokens with their scopes and rates."""
    from rm_gallery.serve.tokens import read_tokens

    found = read_tokens(tokens).values()
    if json:
        fields = ("id", "name", "per_minute", "created")
        opt.print_json([{**{f: getattr(each, f) for f in fields}, "scopes": sorted(each.scopes)} for each in found])
        return
    for each in found:
        rate = "" if each.per_minute is None else f"  {each.per_minute} a minute"
        typer.echo(f"{each.id}  {each.name}  {','.join(sorted(each.scopes))}{rate}")


@token_app.command("revoke")
def revoke(name: Annotated[str, typer.Argument(help="Name or id of the token.")], tokens: Tokens) -> None:
    """Remove a token; a running server refuses it within a second."""
    from rm_gallery.serve.tokens import revoke_token

    revoke_token(tokens, name)
