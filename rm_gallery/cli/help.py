"""What `--help` says: commands by what they are for, options by what they decide, and an example
for each command.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from rm_gallery.cli.settings import group_of

SECTIONS: Mapping[str, Mapping[str, str]] = {
    "Find and write rewards": {
        "list": "list --task math --no-llm",
        "show": "show safety_listwise_reward --prompt",
        "init": "init my-rewards",
        "check-reward": "check-reward my_reward.py",
    },
    "Judge": {
        "eval": "eval safety_listwise_reward pairs.jsonl --llm gpt-4o --out run",
        "winrate": "winrate length_baseline answers.xlsx --prompt q --a new --b old",
        "score": "score length_baseline answers.csv --prompt question --answer reply",
        "grade": "grade graders.yaml rows.jsonl --out run",
        "bench": "bench safety_listwise_reward rewardbench2 --hub --llm gpt-4o",
        "rejudge": "rejudge math_verify_reward rollouts.jsonl --out run",
        "demo": "demo",
    },
    "Can the judge be trusted": {
        "audit": "audit safety_listwise_reward pairs.jsonl --llm gpt-4o",
        "conflicts": "conflicts chat_pairwise_reward lists.jsonl --llm gpt-4o",
        "drift": "drift old.jsonl new.jsonl --old-again again.jsonl",
        "judge-select": "judge-select judges.yaml labelled.csv --fail-under kappa=0.6",
        "plan": "plan --precision 0.05 --pilot pilot.csv --score score",
    },
    "Look at runs": {
        "report": "report run --format md",
        "compare": "compare run-a run-b",
        "table": "table run-a run-b --format latex",
        "view": "view run",
        "explain": "explain run row-17",
    },
    "Serve": {
        "serve": "serve --reward math=math_verify_reward",
        "evaluators preview": "evaluators preview -m relevance=./metrics/relevance -s samples.jsonl",
        "evaluators deploy": "evaluators deploy --id relevance -m relevance=./metrics/relevance",
        "evaluators list": "evaluators list",
        "evaluators show": "evaluators show relevance",
        "evaluators rollback": "evaluators rollback relevance",
        "evaluators delete": "evaluators delete relevance",
        "serve-token create": "serve-token create trainer --tokens tokens",
        "serve-token list": "serve-token list --tokens tokens",
        "serve-token revoke": "serve-token revoke trainer --tokens tokens",
    },
    "Train, and this machine": {
        "train bt": "train bt pairs.jsonl --out model",
        "watch": "watch rewards.jsonl",
        "doctor": "doctor --llm gpt-4o",
        "cache stats": "cache stats",
        "cache prune": "cache prune --max-days 30",
        "cache clear": "cache clear",
    },
}
"""Every command with a call of it, by what it is for."""
PANELS: Mapping[str, Sequence[str]] = {
    "Table": ("reference", "labels", "id", "by"),
    "Judge": ("llm", "base_url", "param"),
    "Rows and results": ("limit", "estimate", "out", "trace", "json", "export", "annotate"),
    "Gates": ("max_failures", "fail_under", "use_ci", "fail_if_worse_than"),
    "Scale and machines": ("max_workers", "engine", "address", "shard"),
    "At every command": ("settings", "dry_run", "help"),
}
"""The options that commands share, by what they decide; a command's own stand before them."""


def arranged(command: Any) -> Any:
    """The command line with its help in sections."""
    examples = {name: call for section in SECTIONS.values() for name, call in section.items()}

    def arrange(words: tuple[str, ...], inner: Any) -> None:
        example = examples.get(" ".join(words))
        inner.epilog = example and f"Example: rm-gallery {example}"
        inner.format_options = partial(_write, partial(_panels, inner))

    command.each(arrange)
    command.format_commands = partial(_write, partial(_commands, command))
    return command


Rows = Iterator[tuple[str, list[tuple[str, str]]]]
"""Titles of sections, and the names in each with what is said of them."""


def _write(sections: Callable[[Any, Any], Rows], context: Any, formatter: Any) -> None:
    for title, rows in sections(context, formatter):
        if rows:
            with formatter.section(title):
                formatter.write_dl(rows)


def _commands(command: Any, context: Any, formatter: Any) -> Rows:
    """The commands by what they are for, and those that nobody has put into a section."""
    left = [*command.commands]
    width = formatter.width - 6 - max(map(len, left))
    for title, names in (*SECTIONS.items(), ("Other commands", tuple(left))):
        here = [name for name in dict.fromkeys(each.split()[0] for each in names) if name in left]
        yield title, [(name, command.summary(name, width)) for name in here]
        left = [name for name in left if name not in here]


def _panels(command: Any, context: Any, formatter: Any) -> Rows:
    """Arguments, the command's own options, and those it shares with others, as click shows each."""
    known = [
        (param, record)
        for param in command.get_params(context)
        if (record := param.get_help_record(context))
    ]
    yield "Arguments", [record for param, record in known if param.param_type_name == "argument"]
    options = {param.name: record for param, record in known if param.param_type_name == "option"}
    shared = {}
    for title, of in PANELS.items():
        names = [name for name in of if name in options]
        if len(names) > 2:  # a command with two of them has its own
            shared[title] = [options.pop(name) for name in names]
    yield "Options", list(options.values())
    yield from shared.items()
    settings: defaultdict[str, list[str]] = defaultdict(list)
    for param in command.params:
        if group := group_of(param):
            settings[group].append(param.name)
    yield (
        "More settings, as --config GROUP.KEY=VALUE or in a file (docs/settings.md)",
        [(group, ", ".join(names)) for group, names in settings.items()],
    )
