"""`rm-gallery serve`: rewards over HTTP."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from rm_gallery.cli import options as opt
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.runner.build import build_reward
from rm_gallery.core.utils.errors import ConfigError


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
    host: Annotated[str, typer.Option(help="Where to listen; only this machine by default.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8000,
    deadline: Annotated[float, typer.Option(min=0.001, help="Seconds one request may take at most.")] = 60.0,
    log_level: opt.LogLevel = "warning",
) -> None:
    """Serve rewards over HTTP until SIGTERM or Ctrl-C."""
    from rm_gallery.serve.app import create_app
    from rm_gallery.serve.handler import Handler
    from rm_gallery.serve.server import run_server
    from rm_gallery.serve.settings import ServeSettings

    opt.set_log_level(log_level)
    rewards = named_rewards(reward or [], config, llm, base_url)
    settings = ServeSettings(host=host, port=port, deadline=deadline)
    app = create_app(Handler(rewards), settings)

    def ready(url: str) -> None:
        sys.stderr.write(f"rm-gallery: serving {len(rewards)} rewards on {url}\n")
        sys.stderr.flush()

    run_server(app, settings, ready)


def named_rewards(
    names: list[str], config: Path | None, llm: str | None, base_url: str | None
) -> dict[str, BaseReward]:
    """The rewards to offer, by the names they are offered under; ConfigError names the entry that does not fit."""
    entries: list[tuple[str, Mapping[str, Any]]] = []
    for given in names:
        name, equals, registered = given.partition("=")
        entries.append((name, {"reward": registered if equals else name}))
    entries += _entries(config)
    found: dict[str, BaseReward] = {}
    for name, entry in entries:
        if not name or "/" in name:
            raise ConfigError(
                f"--reward {name!r:.60} is no name to offer a reward under; give NAME=REWARD without '/'."
            )
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
        raise ConfigError(f"--config {config}: {str(error).splitlines()[0]}") from error
    rewards = read.get("rewards") if isinstance(read, dict) else None
    if not isinstance(rewards, dict) or len(read) > 1:
        raise ConfigError(f"--config {config} holds no rewards; write rewards: {{NAME: {{reward: REGISTERED}}}}.")
    for name, entry in rewards.items():
        if not isinstance(entry, dict) or not isinstance(entry.get("reward"), str) or entry.keys() - _ENTRY:
            raise ConfigError(
                f"--config {config}: rewards.{name} takes reward (a registered name), params, llm and base_url."
            )
    return [(str(name), entry) for name, entry in rewards.items()]


def _built(name: str, entry: Mapping[str, Any], llm: str | None, base_url: str | None) -> BaseReward:
    from rm_gallery.core.reward.registry import RewardRegistry

    registered, params = entry["reward"], entry.get("params") or {}
    own_llm, own_url = entry.get("llm"), entry.get("base_url")
    if own_llm is None and own_url is None:
        # the judge named for all is for those that ask one
        kind = RewardRegistry.get(registered)
        grader = getattr(kind, "grader_class", None)
        if "llm" in kind.model_fields or (grader is not None and "llm" in grader.needs):
            own_llm, own_url = llm, base_url
    try:
        return build_reward(registered, params, own_llm, own_url)
    except ConfigError as error:
        raise ConfigError(f"--reward {name}: {error}") from error
