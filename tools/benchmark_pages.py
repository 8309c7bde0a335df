"""Writes `docs/benchmarks/`: one page per benchmark, made from its class. `--check` only compares.

python tools/benchmark_pages.py [--check] [FOLDER]
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from rm_gallery.core.data.schema import DataSample  # noqa: E402
from rm_gallery.gallery.benchmarks import rules  # noqa: E402
from rm_gallery.gallery.benchmarks.base import Benchmark, benchmarks  # noqa: E402
from rm_gallery.gallery.benchmarks.figures import RULES  # noqa: E402
from rm_gallery.gallery.benchmarks.judgements import Candidate, Judged, Judgement, Pair  # noqa: E402
from tools.cards import as_cell, as_markdown, table, write_or_compare  # noqa: E402

MARK = "<!-- Made by `python tools/benchmark_pages.py`; change the benchmark's class instead. -->"
INTRODUCTION = """# Benchmarks

{count} benchmarks with their official rules, one page for each: what it measures, sizes, layout, rule, chance, what length alone
reaches, traps and published results. `rm-gallery bench REWARD NAME --data PATH` scores one, `--hub` downloads it where
there is a network, `rm-gallery bench --list` names them. [Which accuracy is which](rules.md) holds their rules side by side."""
NO_LENGTH = (
    "Not measured here. Every report holds both figures on its own rows; `rm-gallery bench "
    "length_baseline {name}` gives them by part."
)
STEPS = "Answers are judged step by step, so the length of an answer says nothing."
VERDICTS = "Each answer gets a verdict of its own, so its length is compared with that of no other."
WHICH = """# Which accuracy is which

"Accuracy" on the same benchmark has several definitions, and judges change places by which one is used. A figure is comparable
with another one only under the same rule, the same mode and the same version of the data. Every report here names its rule.

The tables are made from the rules in the code; the credits in them are what those rules gave when this page was written.
A row without a credit ("-") is unscored and counted; it is never wrong, and never out of sight."""
GAMES = {"right": 1, "tie": 0, "wrong": -1, "missing": None}
PLAYED = [(a, b) for a in GAMES for b in GAMES if list(GAMES).index(a) <= list(GAMES).index(b)]
RATED: list[tuple[str, list[float], list[bool]]] = [
    ("right 3, wrong 2", [3, 2], [True, False]),
    ("right 2, wrong 2", [2, 2], [True, False]),
    ("right 2, wrong 3", [2, 3], [True, False]),
    ("right 3, wrong 3, 2, 1", [3, 3, 2, 1], [True, False, False, False]),
    ("right 3, 1, wrong 2, 2", [3, 1, 2, 2], [True, True, False, False]),
    ("all four 2, one right", [2, 2, 2, 2], [True, False, False, False]),
]
"""What a judge says of answers, by what the tables of credits show it as."""
COUNTED = "counted from the rows: the share of right answers among all"


def pages() -> dict[str, str]:
    """Every page: path -> Markdown; the same on every machine."""
    known = benchmarks()
    return {
        "README.md": _index(known),
        "rules.md": _rules(known),
        **{f"{name}.md": page(found) for name, found in known.items()},
    }


def page(benchmark: type[Benchmark]) -> str:
    """The page of one benchmark."""
    sections = [
        MARK,
        f"# {benchmark.name}",
        _sentence(f"Measures {benchmark.page().measures}"),
        _facts(benchmark),
        _sizes(benchmark),
        _section(
            "Layout",
            table(
                ["column", "holds"],
                [[f"`{c}`", as_cell(t)] for c, t in benchmark.page().layout.items()],
            ),
        ),
        _section("Rule", _rule(benchmark)),
        _modes(benchmark),
        _section("Length alone", _length(benchmark)),
        _list("Traps", benchmark.page().traps),
        _list(
            "Figures that follow another rule",
            [f"{who}: {how}" for who, how in benchmark.page().peers],
        ),
        _section("Published results", _published(benchmark)),
        _section("Run it", _commands(benchmark)),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _facts(benchmark: type[Benchmark]) -> str:
    where = [f"`{name}`" for name in (benchmark.hub, *benchmark.hub_parts) if name]
    split = {"": "", "*": ", all splits"}.get(benchmark.split, f", split `{benchmark.split}`")
    config = f", configuration `{benchmark.hub_config}`" if benchmark.hub_config else ""
    rows = [
        ["source of the rule", as_cell(benchmark.page().source)],
        ["version of the rule", as_cell(benchmark.version)],
        [
            "data",
            f"{', '.join(where)}{config}{split}"
            if where
            else "files; on no hub that `--hub` reads",
        ],
        ["licence of the data", as_cell(benchmark.page().licence)],
        ["judged by", f"{' or '.join(sorted(benchmark.kinds))} rewards"],
        ["chance", _chance(benchmark)],
        ["other names", ", ".join(f"`{name}`" for name in benchmark.aliases) or "none"],
    ]
    return table(["", ""], rows)


def _chance(benchmark: type[Benchmark]) -> str:
    if benchmark.chance is not None:
        return f"{100 * benchmark.chance:.1f} %"
    return as_cell(benchmark.page().chance_note or COUNTED)


def _sizes(benchmark: type[Benchmark]) -> str:
    sizes = benchmark.page().sizes
    if not sizes:
        return ""
    rows = [[name, f"{n:,}"] for name, n in sizes.items()]
    whole = [["all", f"{sum(sizes.values()):,}"]] if len(rows) > 1 else []
    return _section("Sizes", table(["part", "rows"], [*rows, *whole]))


def _rule(benchmark: type[Benchmark]) -> str:
    formula = as_markdown(_sentence(benchmark.page().formula))
    return f"{formula}\n\n{as_markdown(inspect.cleandoc(benchmark.__doc__ or ''))}"


def _modes(benchmark: type[Benchmark]) -> str:
    rows = [[f"`--mode {name}`", as_cell(what)] for name, what in benchmark.modes.items()]
    return _section("Modes", table(["mode", "protocol"], rows)) if rows else ""


def _length(benchmark: type[Benchmark]) -> str:
    if not benchmark.baselines:
        return STEPS if benchmark.kinds == {"stepwise"} else VERDICTS
    if not benchmark.page().length:
        return NO_LENGTH.format(name=benchmark.name)
    rows = [
        [part, f"{n:,}", f"{long:.1f}", f"{short:.1f}"]
        for part, (n, long, short) in benchmark.page().length.items()
    ]
    shown = table(["part", "rows measured", "longest answer %", "shortest answer %"], rows)
    return (
        f"{shown}\n\nLength is the number of characters. A reward has to beat both figures to have "
        f"learnt more than length."
    )


def _published(benchmark: type[Benchmark]) -> str:
    rows = [[as_cell(cell) for cell in line] for line in benchmark.page().published]
    if rows:
        return table(["who", "figure in %", "source"], rows)
    return "None that follow this rule are known here."


def _commands(benchmark: type[Benchmark]) -> str:
    call = f"rm-gallery bench length_baseline {benchmark.name}"
    if not benchmark.baselines:
        stepwise = benchmark.kinds == {"stepwise"}
        reward, llm = ("hf-prm:ID_OR_PATH", "") if stepwise else ("REWARD", " --llm MODEL")
        call = f"rm-gallery bench {reward} {benchmark.name}{llm} --step-rule threshold:0.5"
    hub = [f"{call} --hub"] if benchmark.hub else []
    mode = [
        f"rm-gallery bench REWARD {benchmark.name} --llm MODEL --data PATH --mode {m}"
        for m in benchmark.modes
    ]
    lines = [f"{call} --data PATH", *hub, *mode]
    return "```\n" + "\n".join(lines) + "\n```"


def _section(title: str, body: str) -> str:
    return f"## {title}\n\n{body}"


def _list(title: str, items: Sequence[str]) -> str:
    return (
        _section(title, "\n".join(f"- {as_markdown(_sentence(item))}" for item in items))
        if items
        else ""
    )


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


def _index(known: dict[str, type[Benchmark]]) -> str:
    rows = [
        [
            f"[`{name}`]({name}.md)",
            as_cell(found.page().measures),
            f"{sum(found.page().sizes.values()):,}" if found.page().sizes else "yours",
            ", ".join(f"`{mode}`" for mode in found.modes) or "-",
            as_cell(found.page().licence),
        ]
        for name, found in known.items()
    ]
    head = ["name", "measures", "rows", "modes", "licence"]
    return (
        "\n\n".join(chain([MARK, INTRODUCTION.format(count=len(known))], [table(head, rows)]))
        + "\n"
    )


def _rules(known: dict[str, type[Benchmark]]) -> str:
    two = [
        rules.two_game_credit,
        rules.both_orders_credit,
        rules.mean_of_orders_credit,
        rules.consistency_credit,
    ]
    games = [
        [
            f"{first}, {second}",
            *(
                _credit(rule, _judged([], [True, False], (GAMES[first], GAMES[second])))
                for rule in two
            ),
        ]
        for first, second in PLAYED
    ]
    one = [
        rules.pair_credit,
        rules.best_of_n_credit,
        rules.all_losers_credit,
        rules.single_game_credit,
    ]
    rated = [
        [
            name,
            *(
                _credit(rule, _judged(scores, right)) if len(right) == 2 or rule in one[1:3] else ""
                for rule in one
            ),
        ]
        for name, scores, right in RATED
    ]
    said = [
        [f"`{rule.__name__}`", as_cell(" ".join((rule.__doc__ or "").split()))]
        for rule in (*one, *two)
    ]
    headline = [
        [f"[`{name}`]({name}.md)", as_cell(_sentence(found.page().formula)), as_cell(found.version)]
        for name, found in known.items()
    ]
    parts = [
        MARK,
        WHICH,
        _section("Answers that are scored", "What one row earns by the scores of its answers, the right ones first.\n\n" + _earned(one, rated)),
        _section("Two answers in both orders", "The verdicts of both orders, and what the pair earns.\n\n" + _earned(two, games)),
        _section("What a row earns", table(["credit", "rule"], said)),
        _section("What a report names", table(["rule", "meaning"], [[f"`{name}`", as_cell(what)] for name, what in RULES.items()])),
        _section("By benchmark", table(["benchmark", "formula", "version of the rule"], headline)),
        _list("Figures elsewhere that follow another rule",
              [f"`{name}`, {who}: {how}" for name, found in known.items() for who, how in found.page().peers]),
    ]  # fmt: skip
    return "\n\n".join(part for part in parts if part) + "\n"


def _earned(credits: Sequence[rules.Credit], rows: list[list[str]]) -> str:
    return table(
        ["the judge says", *(f"`{rule.__name__.removesuffix('_credit')}`" for rule in credits)],
        rows,
    )


def _judged(
    scores: list[float], right: list[bool], games: tuple[int | None, int | None] | None = None
) -> Judged:
    outputs = [
        {
            "answer": {
                "role": "assistant",
                "content": "",
                "label": {"preference": ("rejected", "chosen")[r]},
            }
        }
        for r in right
    ]
    sample = DataSample.model_validate(
        {"unique_id": "", "input": [{"role": "user", "content": ""}], "output": outputs}
    )
    judgements = [Judgement(Candidate(place), score=score) for place, score in enumerate(scores)]
    if games is not None:
        swapped = None if games[1] is None else -games[1]
        judgements += [
            Judgement(Pair(0, 1), verdict=games[0]),
            Judgement(Pair(1, 0), verdict=swapped),
        ]
    return Judged(sample, judgements)


def _credit(rule: rules.Credit, judged: Judged) -> str:
    found = rule(judged)
    return "-" if found is None else f"{found:g}"


def main(arguments: Sequence[str]) -> int:
    """Write or compare; exit code 1 where `--check` finds a difference."""
    folder = Path(
        next((a for a in arguments if not a.startswith("-")), ROOT / "docs" / "benchmarks")
    )
    return write_or_compare(folder, pages, "--check" in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
