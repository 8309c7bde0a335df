"""Writes the catalogue people browse, `gallery/`: one page per reward, made from the registry.
`--check` only compares.

python tools/cards.py [--check] [FOLDER]
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from textwrap import indent
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from rm_gallery.cli.catalogue import (  # noqa: E402
    COMMON,
    Entry,
    Parameter,
    example_of,
    fields_of_grader,
    grader_names,
    parameters_of,
)
from rm_gallery.core.reward.registry import RewardRegistry  # noqa: E402
from rm_gallery.core.reward.schema import Example  # noqa: E402
from rm_gallery.core.utils.errors import ConfigError, RMGalleryError  # noqa: E402
from rm_gallery.gallery.rm import discover  # noqa: E402
from tools.scorecards import SETS, scorecard  # noqa: E402

MARK = "<!-- Made by `python tools/cards.py`; change the reward's docstring or its example instead. -->"
GRADERS = """Take one by its name, `GraderRegistry.create("NAME", model=…)`, or as a reward, `RewardRegistry.create("grader:NAME")`.
`rm-gallery show NAME --prompt` prints what a judge is sent; [docs/graders.md](../../docs/graders.md) tells how graders are run."""
WIDTH, DIGITS = 100, 4
INTRODUCTION = """# Rewards

{count} ready-made rewards, one page for each; the kinds of a judged scenario share one. Take one by its name:
`RewardRegistry.create("accuracy")`. `rm-gallery list --task math --kind pointwise --no-llm` filters this list,
`rm-gallery show NAME --prompt` prints the prompt of a judged one.

Cost is that of judging one sample with n answers: *free* runs on this machine alone, *calls* are those to the judge, *sandbox*
runs the answer's code apart from everything else."""
_OWN = "in `answer.label` or `metadata`"
NEEDS = {
    "llm": "the judge: `llm=`, a model object, a model's name, or a dict of its settings",
    "embeddings": "an OpenAI-compatible endpoint for embeddings",
    "reference": (
        'the reference answer: `answer.label["reference"]`, else `reference` or `ground_truth` in '
        "`metadata`"
    ),
    "schema": f"`schema` {_OWN}",
    "pattern": f"`pattern` {_OWN}",
    "choices": f"the field `choices`, else `choices` {_OWN}",
    "sources": (
        f"the texts of the sources as `sources`, or the numbers of the right ones as "
        f"`relevant_sources`, {_OWN}"
    ),
    "instructions": f"`instruction_id_list` and `kwargs`, as in IFEval's data, {_OWN}",
    "budget": (
        "the fields `max_cost`, `max_latency`, `max_steps` and `max_tokens`, else `budget` in "
        "`metadata`"
    ),
    "tests": f"the tests {_OWN}: `test` with `entry_point`, `tests`, or `inputs_outputs`",
    "checks": f"the field `checks`, else `checks` {_OWN}",
    "workspace": f"`workspace` {_OWN}",
    "sandbox": "bubblewrap, or another sandbox by `sandbox=`",
    "text": "the package of the extra `text`: `pip install sacrebleu`",
    "server": "a server with a reward model: vLLM, SGLang or Text Embeddings Inference",
    "reward_server": "a server that `rm-gallery serve` started",
    "hf": "the packages of the extra `hf`: `pip install torch transformers`",
    "toxicity": "the package of the extra `toxicity`: `pip install detoxify`",
}
"""Where a reward reads what it needs."""
SEEN = {
    "pointwise": "the text of each `output[i].answer`, by itself",
    "listwise": "the texts of all `output[i].answer` together",
    "pairwise": "the texts of every two `output[i].answer`",
    "stepwise": "each of `output[i].steps`, with the steps before it",
    "trajectory": "all turns of each `output[i]`: its steps and its answer",
}
"""By kind, what of a sample's outputs is looked at."""
JUDGE_SEES = (
    "The judge sees the conversation in `input`, `context` in the last message's "
    "`additional_kwargs`, and the answers in an order that the sample's id and `seed` decide. It "
    "never sees preference labels, and the reference only with `show_reference=True`. A judgement "
    "without a score, such as a reply that cannot be read, is recorded in `answer.reward.issues` "
    "and is never a 0."
)
_RANKS = (
    "The scores say how an answer stands among the others of its sample: take them for best-of-N "
    "and preference pairs, and in training only within a group."
)
USES = {
    "pointwise": (
        "The scores are absolute: they fit reinforcement learning, best-of-N and filtering by a "
        "threshold."
    ),
    "listwise": _RANKS,
    "pairwise": _RANKS,
    "stepwise": "Each step has a score of its own: take them for process supervision.",
    "trajectory": "The scores compare: they filter trajectories, rank them, or train.",
}


def catalogue() -> dict[str, str]:
    """Every page of the catalogue: path -> Markdown; the same on every machine."""
    names = [shown_name(name) for name in sorted(discover())]
    known = sorted(
        (Entry(name, RewardRegistry.get(name)) for name in names),
        key=lambda e: (e.task, path_of(e), e.name),
    )
    pages = {path: page(list(members)) for path, members in groupby(known, key=path_of)}
    return {"README.md": index(known), **pages, **grader_pages()}


def grader_pages() -> dict[str, str]:
    """A page per family of graders, with what each takes and says."""
    entries = sorted(
        (Entry(name, RewardRegistry.get(name)) for name in grader_names()),
        key=lambda e: (e.task, e.name),
    )
    return {
        f"{task}.md": grader_page(task, list(members))
        for task, members in groupby(entries, key=lambda e: e.task)
    }


def grader_page(task: str, entries: Sequence[Entry]) -> str:
    """The page of one family."""
    sections = [MARK, f"# Graders: {task.partition('/')[2].replace('_', ' ')}", GRADERS]
    for entry in entries:
        kind = entry.grader
        assert kind is not None
        fields = fields_of_grader(kind) or {}
        shown = [
            f"`{n}`{'' if must else ' (may be absent)'}" for n, must in fields.items() if n != "*"
        ]
        shown += ["any other column"] if "*" in fields else []
        facts = [
            ["fields", ", ".join(shown) or "see below"],
            ["range", f"{entry.bounds}, {entry.direction}"],
        ]
        facts += [["needs", _needs(entry)], ["class", f"`{kind.__module__}.{kind.__qualname__}`"]]
        body = as_markdown(inspect.cleandoc(kind.__doc__ or ""))
        sections += [f"## `{entry.name.removeprefix('grader:')}`", body, table(["", ""], facts)]
        by_rubrics: Any = kind if getattr(kind, "rubric", "") else None
        for language in ("en", "zh") if by_rubrics else ():
            own = by_rubrics.texts().texts(language)
            levels = [f"- {as_markdown(line)}" for line in own.level_lines]
            rubrics = [f"{n}. {as_markdown(text)}" for n, text in enumerate(own.rubrics, 1)]
            sections += [as_markdown(own.desc), "\n".join(rubrics), "\n".join(levels)]
    return "\n\n".join(sections) + "\n"


def shown_name(name: str) -> str:
    """A registered name; of a scheme such as bt: one with what stands behind the colon."""
    return (
        f"{name}{'URL' if name.startswith(('served', 'remote')) else 'DIR'}"
        if name.endswith(":")
        else name
    )


def path_of(entry: Entry) -> str:
    """Path of a reward's page in the catalogue; the kinds of one scenario share a page."""
    return f"{entry.task}/{entry.scenario or entry.name.partition(':')[0]}.md"


def page(entries: Sequence[Entry]) -> str:
    """The page that these entries share."""
    first = entries[0]
    title, body = f"`{first.name}`", inspect.cleandoc(first.reward.__doc__ or "")
    if first.scenario:
        texts = first.reward.scenario_texts  # type: ignore[attr-defined]  # it judges by rubrics
        title = texts["en"]["scenario"].partition(". ")[0]
        effects = [f"- `{e.name}`: {_scores_line(e)}" for e in entries]
        rubrics = [_rubric(texts[language]) for language in ("en", "zh")]
        body = "\n\n".join([texts["en"]["desc"], "\n".join(effects), "## Rubric", *rubrics])
    else:
        body = as_markdown(body)
    facts = [
        [f"`{e.name}`", e.reward.kind, e.cost, f"{e.bounds}, {e.direction}", _needs(e), _class(e)]
        for e in entries
    ]
    head = table(["name", "judges", "cost per sample", "range", "needs", "class"], facts)
    use = example_of(entries[-1]).use or USES[entries[-1].reward.kind]
    sections = [
        MARK,
        f"# {title}",
        head,
        body,
        _inputs(entries),
        _parameters(entries),
        _example(entries),
    ]
    sections += [counted] if (counted := _scorecard(first.name)) else []
    return "\n\n".join([*sections, f"## Use\n\n{use}"]) + "\n"


def _scorecard(name: str) -> str:
    """How often the reward is wrong on labelled answers; empty where there are none."""
    found = scorecard(name)
    if found is None:
        return ""
    of, rows = found
    columns = [
        "verifier",
        "wrong ones that pass",
        "95 % interval",
        "right ones that do not",
        "95 % interval",
    ]
    where = f"`tests/golden/labelled/{SETS[name][0]}.jsonl`"
    what = (
        f"On {of} ({where}), written for this project and labelled by hand; other answers give "
        f"other figures."
    )
    return f"## Scorecard\n\n{what}\n\n{table(columns, rows)}"


def index(entries: Sequence[Entry]) -> str:
    """The catalogue's front page: every reward by task."""
    sections = [MARK, INTRODUCTION.format(count=len(entries))]
    for task, members in groupby(entries, key=lambda e: e.task):
        rows = []
        for path, same in groupby(members, key=path_of):
            kinds = list(same)
            first = kinds[0]
            what = first.reward.scenario_texts["en"]["desc"] if first.scenario else first.summary  # type: ignore[attr-defined]
            columns: list[list[str]] = [
                [f"[`{e.name}`]({path})" for e in kinds],
                [e.reward.kind for e in kinds],
                [_needs(first)],
                [e.cost for e in kinds],
                [e.bounds for e in kinds],
                [as_cell(what)],
            ]
            rows.append(["<br>".join(column) for column in columns])
        sections += [
            f"## {task}",
            table(["name", "kind", "needs", "cost", "range", "what it scores"], rows),
        ]
    families = sorted({Entry(name, RewardRegistry.get(name)).task for name in grader_names()})
    sections += [
        "## graders",
        "Beside these there are graders, which take named fields: "
        + ", ".join(f"[{family.partition('/')[2]}]({family}.md)" for family in families)
        + ".",
    ]
    return "\n\n".join(sections) + "\n"


def printed(name: str, example: Example) -> list[str]:
    """What the example's code prints when it runs here."""
    reward = example.create(RewardRegistry.get(name))
    outputs = reward.evaluate(example.sample).output
    if any(output.answer.reward.issues for output in outputs):
        problems = [
            f"{issue.reason}: {issue.message}"
            for output in outputs
            for issue in output.answer.reward.issues
        ]
        raise ConfigError(
            f"The example of {name} gets no score, so it does not fit ({'; '.join(problems)})."
        )
    scores = [round(output.answer.reward.score or 0.0, DIGITS) for output in outputs]
    if example.judge is not None:
        return [f"{name} {scores}"]
    reasons = [output.answer.reward.details[0].reason or "" for output in outputs]
    return [f"{score} {reason}".rstrip() for score, reason in zip(scores, reasons, strict=True)]


def literal(value: Any, indent: int = 0, used: int = 0) -> str:
    """A value as Python source, broken into lines where one would be too long; `used` columns
    precede it on its line.
    """
    flat = _flat(value)
    if (
        len(flat) + indent + used <= WIDTH
        or not isinstance(value, dict | list | tuple)
        or not value
    ):
        return flat
    inner = indent + 4
    if isinstance(value, dict):
        parts = [(f"{_flat(key)}: ", part) for key, part in value.items()]
    else:
        parts = [("", part) for part in value]
    lines = [f"{' ' * inner}{head}{literal(part, inner, len(head) + 1)}," for head, part in parts]
    opening, closing = (
        ("{", "}")
        if isinstance(value, dict)
        else ("[", "]")
        if isinstance(value, list)
        else ("(", ")")
    )
    return "\n".join([opening, *lines, " " * indent + closing])


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _example(entries: Sequence[Entry]) -> str:
    example = example_of(entries[0])
    fields = example.sample.model_dump(mode="json", exclude_defaults=True)
    settings = [f"{key}={literal(value)}" for key, value in example.params.items()]
    imports, notes, judge = ["from rm_gallery import RewardRegistry"], [example.note], ""
    if example.judge is not None:
        imports = [
            "from rm_gallery import FakeLLM, RewardRegistry",
            f"from {type(example.judge).__module__} import {type(example.judge).__name__}",
        ]
        notes.append(
            "A scripted judge stands in for a model; a real one is `llm=` with a model object or a "
            "model's name."
        )
        scripted = f"{type(example.judge).__name__}({literal(example.judge.phrases)})"
        judge = f"judge = FakeLLM(reply={scripted})\n"
        settings.insert(0, "llm=judge")
    code = ["\n".join(imports), "", f"sample = {literal(fields, 0, 9)}", judge]
    for entry in entries:
        own = example_of(entry)
        given = [literal(entry.name), *settings]
        create = f"reward = RewardRegistry.create({', '.join(given)})"
        if "\n" in create:
            inner = "".join(indent(f"{each},\n", "    ") for each in given)
            create = f"reward = RewardRegistry.create(\n{inner})"
        score = f"round(output.answer.reward.score, {DIGITS})"
        if own.judge is not None:
            loop = [f"scores = [{score} for output in reward.evaluate(sample).output]"]
            loop += ["print(reward.name, scores)"]
        else:
            loop = ["for output in reward.evaluate(sample).output:"]
            loop += [f'    print({score}, output.answer.reward.details[0].reason or "")']
        lines = own.recorded if own.environment else printed(entry.name, own)
        code += [create, *loop, *(f"# {line}" for line in lines)]
    if example.environment:
        shown = (
            "output recorded where that is present" if example.recorded else "output not shown here"
        )
        notes.append(
            f"Needs {example.environment}; {shown}.\n\n<!-- not run: it needs more than the "
            f"package -->"
        )
    notes = [note for note in notes if note]
    return "\n\n".join(["## Example", *notes]) + "\n\n```python\n" + "\n".join(code) + "\n```"


def _inputs(entries: Sequence[Entry]) -> str:
    own = {need: text for entry in entries for need, text in example_of(entry).inputs.items()}
    seen = dict.fromkeys(own.get("answer") or SEEN[entry.reward.kind] for entry in entries)
    needs = dict.fromkeys(need for entry in entries for need in sorted(entry.reward.needs))
    lines = [
        f"- {text}" for text in (*seen, *(own.get(need) or NEEDS.get(need, need) for need in needs))
    ]
    judged = [JUDGE_SEES] if any(entry.reward.judged for entry in entries) else []
    return "\n\n".join(["## Inputs", "\n".join(lines), *judged])


def _parameters(entries: Sequence[Entry]) -> str:
    found: dict[str, dict[str, Parameter]] = {}
    for entry in entries:
        for parameter in parameters_of(entry.reward):
            found.setdefault(parameter.name, {})[entry.reward.kind] = parameter
    texts = getattr(entries[0].reward, "scenario_texts", {}).get("en", {})
    rows = []
    for name, by_kind in sorted(found.items(), key=lambda item: item[0] in COMMON):
        first = next(iter(by_kind.values()))
        only = "" if len(by_kind) == len(entries) else f" ({' and '.join(by_kind)} only)"
        default = " or ".join(dict.fromkeys(f"`{p.default}`" for p in by_kind.values()))
        default = "the scenario's own" if name in texts else default
        default = "the registered name" if name == "name" and len(entries) > 1 else default
        rows.append(
            [
                f"`{name}`",
                as_cell(f"`{first.type}`"),
                as_cell(default),
                (as_cell(first.description) + only).strip(),
            ]
        )
    return "\n\n".join(
        ["## Parameters", table(["parameter", "type", "default", "what it does"], rows)]
    )


def _rubric(texts: dict[str, Any]) -> str:
    return "\n".join(
        [
            f"{texts['scenario']}",
            "",
            *(f"{i}. {rubric}" for i, rubric in enumerate(texts["rubrics"], 1)),
        ]
    )


def _scores_line(entry: Entry) -> str:
    return next(
        part
        for part in inspect.cleandoc(entry.reward.__doc__ or "").split("\n\n")
        if part.endswith("is better.")
    )


def _needs(entry: Entry) -> str:
    return ", ".join(sorted(entry.reward.needs)) or "nothing"


def _class(entry: Entry) -> str:
    return f"`{entry.reward.__module__}.{entry.reward.__qualname__}`"


def _flat(value: Any) -> str:
    if isinstance(value, str):
        double = json.dumps(value, ensure_ascii=False)
        return (
            "'" + double[1:-1].replace('\\"', '"') + "'"
            if '"' in value and "'" not in value
            else double
        )
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_flat(key)}: {_flat(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list | tuple):
        inside = ", ".join(map(_flat, value))
        return f"[{inside}]" if isinstance(value, list) else f"({inside}{',' * (len(value) == 1)})"
    return repr(value)


def as_markdown(text: str) -> str:
    """A docstring's text as Markdown: what stands in backticks is code, all other signs are
    themselves.
    """
    parts = re.split(r"(`+[^`]+`+)", text)
    return "".join(
        part if place % 2 else re.sub(r"([<*$|])", r"\\\1", part)
        for place, part in enumerate(parts)
    )


def as_cell(text: str) -> str:
    """A text for one cell of a table, where a bar would end the cell even inside code."""
    return re.sub(r"(?<!\\)\|", r"\\|", as_markdown(" ".join(text.split())))


def differences(folder: Path, pages: dict[str, str]) -> dict[str, list[str]]:
    """Pages of a folder that do not fit the code: missing, stale, and surplus ones of rewards that
    are no more.
    """
    here = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*.md"))}
    texts = {
        name: path.read_text(encoding="utf-8", errors="replace") for name, path in here.items()
    }
    return {
        "missing": sorted(pages.keys() - here.keys()),
        "stale": sorted(name for name in pages.keys() & here.keys() if texts[name] != pages[name]),
        "surplus": sorted(
            name for name in here.keys() - pages.keys() if texts[name].startswith("<!-- Made by ")
        ),
    }


def main(arguments: Sequence[str]) -> int:
    """Write or compare; exit code 1 where `--check` finds a difference."""
    folder = Path(next((a for a in arguments if not a.startswith("-")), ROOT / "gallery"))
    return write_or_compare(folder, catalogue, "--check" in arguments)


DONE = {"missing": "written", "stale": "written", "surplus": "removed"}


def write_or_compare(folder: Path, pages: Callable[[], dict[str, str]], only_compare: bool) -> int:
    """Write the pages of a folder that do not fit and say which, or say what does not fit; 1 where
    a comparison fails, 2 with one line where a page cannot be made.
    """
    try:
        wanted = pages()
    except RMGalleryError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    found = differences(folder, wanted)
    for what, paths in found.items():
        for path in paths:
            if not only_compare:
                target = folder / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.unlink(missing_ok=True)
                if what != "surplus":
                    target.write_text(wanted[path], encoding="utf-8", newline="\n")
            sys.stdout.write(f"{what if only_compare else DONE[what]}: {path}\n")
    return int(only_compare and any(found.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
