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

from rm_gallery.gallery.benchmarks.base import Benchmark, benchmarks  # noqa: E402
from tools.cards import as_cell, as_markdown, table, write_or_compare  # noqa: E402

MARK = "<!-- Made by `python tools/benchmark_pages.py`; change the benchmark's class instead. -->"
INTRODUCTION = """# Benchmarks

{count} benchmarks with their official rules, one page for each: what it measures, sizes, layout, rule, chance, what length alone
reaches, traps and published results. `rm-gallery bench NAME --reward R --data PATH` scores one, `--hub` downloads it where
there is a network, `rm-gallery bench --list` names them."""
NO_LENGTH = (
    "Not measured here. Every report holds both figures on its own rows; `rm-gallery bench {name} --reward length_baseline` "
    "gives them by part."
)
STEPS = "Answers are judged step by step, so the length of an answer says nothing."
COUNTED = "counted from the rows: the share of right answers among all"


def pages() -> dict[str, str]:
    """Every page: path -> Markdown; the same on every machine."""
    known = benchmarks()
    return {"README.md": _index(known), **{f"{name}.md": page(found) for name, found in known.items()}}


def page(benchmark: type[Benchmark]) -> str:
    """The page of one benchmark."""
    sections = [
        MARK,
        f"# {benchmark.name}",
        _sentence(f"Measures {benchmark.measures}") if benchmark.measures else "",
        _facts(benchmark),
        _sizes(benchmark),
        _section("Layout", table(["column", "holds"], [[f"`{c}`", as_cell(t)] for c, t in benchmark.layout.items()]))
        if benchmark.layout
        else "",
        _section("Rule", _rule(benchmark)),
        _modes(benchmark),
        _section("Length alone", _length(benchmark)),
        _list("Traps", benchmark.traps),
        _list("Figures that follow another rule", [f"{who}: {how}" for who, how in benchmark.peers]),
        _section("Published results", _published(benchmark)),
        _section("Run it", _commands(benchmark)),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _facts(benchmark: type[Benchmark]) -> str:
    where = [f"`{name}`" for name in (benchmark.hub, *benchmark.hub_parts) if name]
    split = {"": "", "*": ", all splits"}.get(benchmark.split, f", split `{benchmark.split}`")
    config = f", configuration `{benchmark.hub_config}`" if benchmark.hub_config else ""
    rows = [
        ["source of the rule", as_cell(benchmark.source)],
        ["version of the rule", as_cell(benchmark.version)],
        ["data", f"{', '.join(where)}{config}{split}" if where else "files; on no hub that `--hub` reads"],
        ["licence of the data", as_cell(benchmark.licence)],
        ["judged by", f"{' or '.join(sorted(benchmark.kinds))} rewards"],
        ["chance", _chance(benchmark)],
        ["other names", ", ".join(f"`{name}`" for name in benchmark.aliases) or "none"],
    ]
    return table(["", ""], rows)


def _chance(benchmark: type[Benchmark]) -> str:
    if benchmark.chance is not None:
        return f"{100 * benchmark.chance:.1f} %"
    return as_cell(benchmark.chance_note or COUNTED)


def _sizes(benchmark: type[Benchmark]) -> str:
    if not benchmark.sizes:
        return ""
    rows = [[name, f"{n:,}"] for name, n in benchmark.sizes.items()]
    whole = [["all", f"{sum(benchmark.sizes.values()):,}"]] if len(rows) > 1 else []
    return _section("Sizes", table(["part", "rows"], [*rows, *whole]))


def _rule(benchmark: type[Benchmark]) -> str:
    formula = as_markdown(_sentence(benchmark.formula)) if benchmark.formula else ""
    body = as_markdown(inspect.cleandoc(benchmark.__doc__ or ""))
    return "\n\n".join(part for part in (formula, body) if part)


def _modes(benchmark: type[Benchmark]) -> str:
    rows = [[f"`--mode {name}`", as_cell(what)] for name, what in benchmark.modes.items()]
    return _section("Modes", table(["mode", "protocol"], rows)) if rows else ""


def _length(benchmark: type[Benchmark]) -> str:
    if not benchmark.baselines:
        return STEPS
    if not benchmark.length:
        return NO_LENGTH.format(name=benchmark.name)
    rows = [[part, f"{n:,}", f"{long:.1f}", f"{short:.1f}"] for part, (n, long, short) in benchmark.length.items()]
    shown = table(["part", "rows measured", "longest answer %", "shortest answer %"], rows)
    return f"{shown}\n\nLength is the number of characters. A reward has to beat both figures to have learnt more than length."


def _published(benchmark: type[Benchmark]) -> str:
    rows = [[as_cell(cell) for cell in line] for line in benchmark.published]
    if rows:
        return table(["who", "figure in %", "source"], rows)
    return "None that follow this rule are known here."


def _commands(benchmark: type[Benchmark]) -> str:
    reward = "length_baseline" if benchmark.baselines else "hf-prm:ID_OR_PATH --step-rule threshold:0.5"
    hub = [f"rm-gallery bench {benchmark.name} --reward {reward} --hub"] if benchmark.hub else []
    mode = [f"rm-gallery bench {benchmark.name} --reward R --llm MODEL --data PATH --mode {m}" for m in benchmark.modes]
    lines = [f"rm-gallery bench {benchmark.name} --reward {reward} --data PATH", *hub, *mode]
    return "```\n" + "\n".join(lines) + "\n```"


def _section(title: str, body: str) -> str:
    return f"## {title}\n\n{body}"


def _list(title: str, items: Sequence[str]) -> str:
    return _section(title, "\n".join(f"- {as_markdown(_sentence(item))}" for item in items)) if items else ""


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


def _index(known: dict[str, type[Benchmark]]) -> str:
    rows = [
        [
            f"[`{name}`]({name}.md)",
            as_cell(found.measures or found.version),
            f"{sum(found.sizes.values()):,}" if found.sizes else "yours",
            ", ".join(f"`{mode}`" for mode in found.modes) or "-",
            as_cell(found.licence),
        ]
        for name, found in known.items()
    ]
    head = ["name", "measures", "rows", "modes", "licence"]
    return "\n\n".join(chain([MARK, INTRODUCTION.format(count=len(known))], [table(head, rows)])) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Write or compare; exit code 1 where `--check` finds a difference."""
    folder = Path(next((a for a in arguments if not a.startswith("-")), ROOT / "docs" / "benchmarks"))
    return write_or_compare(folder, pages(), "--check" in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
