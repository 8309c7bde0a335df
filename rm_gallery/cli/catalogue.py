"""`rm-gallery list` and `rm-gallery show`: the registered rewards and graders, and one of them."""

from __future__ import annotations

import ast
import inspect
import math
import re
import sys
import textwrap
import types
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from enum import Enum
from functools import cache
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

import typer

from rm_gallery.cli.options import Json, Reward, grouped, parse_params, print_json, show
from rm_gallery.core.utils.errors import ConfigError, Inapplicable
from rm_gallery.core.utils.names import unknown_name
from rm_gallery.core.utils.shown import ended

if TYPE_CHECKING:
    from rm_gallery.core.graders.base import BaseGrader
    from rm_gallery.core.reward.reward import BaseReward
    from rm_gallery.core.reward.schema import Example
    from rm_gallery.core.score import Bounds

GALLERY = "rm_gallery.gallery.rm."
GRADERS = "rm_gallery.gallery.graders"
CALLS = {
    "pointwise": "n calls",
    "listwise": "one call",
    "pairwise": "pairs × 2 calls",
    "stepwise": "one call per step",
    "trajectory": "n calls",
}
COMMON = ("threshold", "name", "max_workers", "deadline")
"""Fields that every reward has."""
OF_GRADERS = ("score_range", "higher_is_better", "mode", "description", "seed", "worst")
"""Fields that every grader has beside those."""
FOREIGN = ("builtins", "pydantic", "abc", "typing")
SHORT, LONG = 80, 200
_SENTENCE_END = re.compile(
    r"(?<!\bal\.)(?<!\be\.g\.)(?<!\bi\.e\.)(?<!\b[A-Z]\.)(?<=[.!?])\s+(?=[A-Z`\"(])"
)
_SIGNS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}


class Entry(NamedTuple):
    """A registered name with the facts people choose a reward by."""

    name: str
    reward: type[BaseReward]

    @property
    def task(self) -> str:
        """Folder or file under gallery/rm, such as general, math or alignment/helpfulness; of
        graders graders/FAMILY; the package's name for what is from elsewhere.
        """
        if self.grader is not None:
            return f"graders/{_family_of(self.grader)}"
        module = self.reward.__module__
        if not module.startswith(GALLERY):
            return module.partition(".")[0]
        *folders, file = module.removeprefix(GALLERY).split(".")
        return "/".join(filter(None, [*(folders or [file]), _family(self.scenario)]))

    @property
    def grader(self) -> type[BaseReward] | None:
        """The grader that this name stands for, None for a reward."""
        own = self.reward if self.name.startswith("grader:") else None
        grader: type[BaseReward] | None = getattr(self.reward, "grader_class", own)
        return grader

    @property
    def named(self) -> type[BaseReward]:
        """The class that the name is of."""
        return self.grader or self.reward

    @property
    def scenario(self) -> str | None:
        """Key of the judged scenario this is one of the kinds of, None for every other reward."""
        return _scenarios().get(self.name) if self.reward.__module__.startswith(GALLERY) else None

    @property
    def cost(self) -> str:
        """What judging one sample with n answers costs."""
        from rm_gallery.core.reward.judges import asks_a_model

        if asks_a_model(self.reward):
            acts = "max_calls" in self.reward.model_fields
            return "n × max_calls calls" if acts else CALLS[self.reward.kind]
        if "embeddings" in self.reward.needs:
            return "embeddings calls"
        return "sandbox" if self.reward.needs & {"tests", "sandbox"} else "free"

    @property
    def _range(self) -> Bounds:
        """The range of its class; open where it follows from what an instance is made of."""
        known = self.reward.score_range
        return (None, None) if isinstance(known, property) else known

    @property
    def bounds(self) -> str:
        """The range of scores, such as [0, 1]."""
        low, high = self._range
        low, high = -math.inf if low is None else low, math.inf if high is None else high
        return f"[{low:g}, {high:g}]"

    @property
    def direction(self) -> str:
        """Which end of the range is good."""
        return "higher is better" if self.reward.higher_is_better else "lower is better"

    @property
    def summary(self) -> str:
        """The first sentence of the docstring."""
        return next(iter(sentences((self.reward.__doc__ or "").strip().partition("\n\n")[0])), "")

    def as_dict(self) -> dict[str, Any]:
        """The facts as JSON."""
        return {
            "name": self.name,
            "task": self.task,
            "kind": self.reward.kind,
            "needs": sorted(self.reward.needs),
            "cost": self.cost,
            "score_range": list(self._range),
            "higher_is_better": bool(self.reward.higher_is_better),
            "class": f"{self.named.__module__}.{self.named.__qualname__}",
            "summary": self.summary,
        }


class Parameter(NamedTuple):
    """One constructor field."""

    name: str
    type: str
    default: str
    description: str


@grouped()
def list_rewards(
    task: str | None = None,
    kind: str | None = None,
    no_llm: bool = False,
    needs: str | None = None,
    graders: bool = False,
    long: bool = False,
    json: Json = False,
) -> None:
    """List the registered rewards and graders, or those that fit every filter.

    Args:
        task: A folder such as general, a part of one, or a judged scenario such as math.
        kind: pointwise, listwise, pairwise, stepwise or trajectory.
        no_llm: Leave out what calls a model.
        needs: What the reward needs, such as reference.
        graders: Graders only, which take named fields.
        long: One row per name, with kind, needs, range and cost.
    """
    from rm_gallery.core.reward.registry import RewardRegistry
    from rm_gallery.core.utils.plugins import entries
    from rm_gallery.gallery.rm.published import judge_names

    known, broken = _survey(grader_names() if graders else RewardRegistry.list())
    chosen = select(known, task, kind, needs, llm=not no_llm)
    if task or kind or needs or no_llm:
        broken = {}
    if json:
        problems = [{"name": name, "problem": problem} for name, problem in broken.items()]
        return print_json([*(entry.as_dict() for entry in chosen), *problems])
    if not chosen:
        return typer.echo("No reward fits all of these filters.", err=True)
    if long:
        return _print_table(chosen, broken)
    if graders or len(chosen) < len(known):
        return typer.echo(_short(chosen, broken))
    typer.echo(_short(chosen, broken, grader_names()))
    others = {"Published judges, as judge:NAME (see docs/judges.md)": judge_names()}
    for group in ("benchmarks", "converters", "providers", "adapters"):
        others[f"{group.capitalize()} of installed packages"] = sorted(entries(group))
    for what, names in others.items():
        if names:
            typer.echo(textwrap.fill(f"{what}: {', '.join(names)}", SHORT))
    return None


def select(
    known: Iterable[Entry],
    task: str | None = None,
    kind: str | None = None,
    needs: str | None = None,
    llm: bool = True,
) -> list[Entry]:
    """The entries that fit every filter.

    `task` is a folder, a part of one, or a judged scenario: "math" has math_verify_reward and
    math_listwise_reward, and "alignment" all of its folders. `llm=False` leaves out what calls a
    model. Raises ConfigError with the nearest names for a task, kind or need that no entry has.
    """
    chosen = every = list(known)
    filters: list[tuple[str, str | None, Callable[[Entry], Collection[str]], Collection[str]]] = [
        ("task", task, _tasks, ()),
        ("kind", kind, lambda entry: {entry.reward.kind}, CALLS),
        ("need", needs, lambda entry: entry.reward.needs, ()),
    ]
    for what, wanted, names_of, more in filters:
        if wanted is None:
            continue
        names = {name for entry in every for name in names_of(entry)} | {*more}
        if wanted not in names:
            raise ConfigError(unknown_name(what, wanted, names, shown=len(names)))
        chosen = [entry for entry in chosen if wanted in names_of(entry)]
    return [entry for entry in chosen if llm or not entry.reward.judged]


@grouped()
def show_reward(
    name: Reward[str],
    prompt: bool = False,
    param: list[str] | None = None,
    json: Json = False,
) -> None:
    """Show one reward or grader: what it does, what it needs, and its parameters.

    Args:
        prompt: Print the exact prompt of the reward's example.
        param: With --prompt: k=v sets a field of the reward, such as language=zh.
    """
    from rm_gallery.core.reward.registry import RewardRegistry

    name = RewardRegistry.spelled(name)
    entry = Entry(name, RewardRegistry.get(name))
    if param and not prompt:
        raise Inapplicable("--param changes the prompt of an example; add --prompt.", "param")
    if prompt:
        messages = _prompt_of(entry, parse_params(param or []))
        text = "\n\n".join(f"[{message['role']}]\n{message['content']}" for message in messages)
        return show(json, messages, [text])
    facts = {
        **entry.as_dict(),
        "description": inspect.cleandoc(entry.reward.__doc__ or ""),
        "parameters": [parameter._asdict() for parameter in parameters_of(entry.reward)],
    }
    return show(json, facts, _as_text(entry))


def example_of(entry: Entry) -> Example:
    """The example of a reward; ConfigError that says where to add one when it has none."""
    if entry.reward.example is None:
        step = (
            f'`example=Example(…)` to `@rule("{entry.name}", …)`'
            if "rule" in vars(entry.reward)  # a function with @rule made it
            else f"`example = Example(…)` to the class {entry.reward.__qualname__}"
        )
        file = inspect.getsourcefile(sys.modules[entry.reward.__module__])
        raise ConfigError(f"{entry.name} has no example: add {step} in {file}.")
    return entry.reward.example


def parameters_of(reward: type[BaseReward]) -> list[Parameter]:
    """The constructor fields in the order of their declaration, those that every reward has last."""
    grader: type[BaseGrader] | None = getattr(reward, "grader_class", None)
    reward, common = (grader, (*OF_GRADERS, *COMMON)) if grader is not None else (reward, COMMON)
    fixed = () if reward.takes_scale else ("score_range", "higher_is_better")
    own = [name for name in reward.model_fields if name not in (*common, *fixed)]
    declared = grader.declared() if grader is not None else {}
    parameters = []
    for name in filter(reward.model_fields.__contains__, (*own, *common)):
        info, default = reward.model_fields[name], "required"
        if name in declared:
            default = _shown_value(declared[name])
        elif not info.is_required():
            default = _shown_value(info.get_default(call_default_factory=True))
        text = info.description or _docstring_of(reward, name) or _mention(reward, name)
        limits = ", ".join(
            f"{sign} {getattr(note, key):g}"
            for note in info.metadata
            for key, sign in _SIGNS.items()
            if hasattr(note, key)
        )
        shown = type_text(info.annotation) + (limits and f" ({limits})")
        parameters.append(Parameter(name, shown, default, text))
    return parameters


def type_text(annotation: Any) -> str:
    """An annotation as people write it, without what only validation needs."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return type_text(arguments[0])
    if origin is Literal:
        return " | ".join(map(repr, arguments))
    if origin in (Union, types.UnionType):
        return " | ".join(map(type_text, arguments))
    if origin is not None:
        inner = ", ".join("…" if part is ... else type_text(part) for part in arguments)
        return f"{getattr(origin, '__name__', origin)}[{inner}]"
    return "None" if annotation is type(None) else getattr(annotation, "__name__", str(annotation))


def sentences(paragraph: str) -> list[str]:
    """The sentences of a paragraph, each on one line."""
    return [part for part in _SENTENCE_END.split(" ".join(paragraph.split())) if part]


def _survey(names: Iterable[str]) -> tuple[list[Entry], dict[str, str]]:
    """Every one of these names as an entry, in order, and by name the problem of those that cannot
    be imported.
    """
    from rm_gallery.core.reward.registry import RewardRegistry

    entries, broken = [], {}
    for name in names:
        try:
            entries.append(Entry(name, RewardRegistry.get(name)))
        except ConfigError as error:  # another package's broken entry must not hide the others
            broken[name] = str(error)
    return entries, broken


def grader_names() -> list[str]:
    """`grader:NAME` of every grader that is no reward of the same name already."""
    from rm_gallery.core.graders.base import GraderRegistry
    from rm_gallery.core.reward.registry import RewardRegistry

    rewards = set(RewardRegistry.list())
    return [f"grader:{name}" for name in GraderRegistry.list() if name not in rewards]


def _family_of(grader: type[BaseReward]) -> str:
    """Folder of its rubric, else the module it is in, else the package it is from."""
    *package, module = grader.__module__.split(".")
    if grader.__module__ == f"{GRADERS}":
        return str(getattr(grader, "folder").name)  # noqa: B009 - only a rubric's grader has it
    return module if package[:1] == ["rm_gallery"] else (package or [module])[0]


def _tasks(entry: Entry) -> set[str]:
    return {entry.task, *entry.task.split("/"), *([entry.scenario] if entry.scenario else [])}


@cache
def _scenarios() -> dict[str, str]:
    from rm_gallery.gallery.rm import KINDS, judged_name, scenario_keys

    return {judged_name(key, kind): key for key in scenario_keys() for kind in KINDS}


def _family(key: str | None) -> str:
    from rm_gallery.gallery.rm.alignment.base import scenario

    return scenario(key).family if key else ""


def _short(chosen: list[Entry], broken: dict[str, str], graders: Iterable[str] = ()) -> str:
    """A line per reward below its task, the kinds of a judged scenario on one line, and one per
    family of `graders`; no line is longer than 80 columns.
    """
    from rm_gallery.core.reward.registry import RewardRegistry

    lines, hint = list[str](), list[str]()
    groups: defaultdict[str, defaultdict[str, list[Entry]]] = defaultdict(lambda: defaultdict(list))
    for entry in sorted(chosen, key=lambda e: (e.task, e.scenario or e.name)):
        groups[entry.task][entry.scenario or entry.name].append(entry)
    for task, members in groups.items():
        lines += ["", task]
        for first, *others in members.values():
            name, summary = first.name.removeprefix("grader:"), first.summary
            if others:
                name = name.replace(first.reward.kind, "*")
                hint = ["* stands for listwise, pairwise or pointwise."]
            if first.scenario:
                summary = summary.partition(":")[0]
            lines.append(ended(f"  {name:<29} {summary}", SHORT))
    lines += [""] if broken else []
    lines += [ended(f"{name}: {problem}", SHORT) for name, problem in broken.items()]
    if any(entry.grader for entry in chosen):
        hint.append("A grader is a reward as grader:NAME.")
    tasks = Counter(
        Entry(name, RewardRegistry.get(name)).task.removeprefix("graders/") for name in graders
    )
    if tasks:
        families = ", ".join(f"{task} ({n})" for task, n in sorted(tasks.items()))
        indented = textwrap.wrap(families, SHORT, initial_indent="  ", subsequent_indent="  ")
        lines += ["", "graders, listed by --graders", *indented]
    return "\n".join([*lines[1:], "", *hint, "`--long` tells more, `rm-gallery show NAME` all."])


def _print_table(chosen: list[Entry], broken: dict[str, str]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in ("name", "kind", "needs", "range", "task", "cost", "what it does"):
        table.add_column(column, no_wrap=column in ("name", "range"))
    rows = [(name, *"-----", problem) for name, problem in broken.items()]
    for e in chosen:
        needs = " ".join(sorted(e.reward.needs)) or "-"
        rows.append((e.name, e.reward.kind, needs, e.bounds, e.task, e.cost, e.summary))
    for row in sorted(rows):
        table.add_row(*map(escape, row))
    Console(width=None if Console().is_terminal else LONG).print(table)


def _prompt_of(entry: Entry, params: dict[str, Any]) -> list[dict[str, Any]]:
    """The messages a judge is sent for the reward's example; ConfigError for a reward that asks no
    model.
    """
    from rm_gallery.core.reward.resolve import asks_for_judge

    if not asks_for_judge(entry.reward):
        raise ConfigError(
            f"{entry.name} asks no model, so it has no prompt; `rm-gallery show {entry.name}` "
            f"tells its rule."
        )
    if hasattr(entry.grader, "messages"):  # each field's name in braces in its place
        kind: Any = entry.grader
        grader = kind(**params)
        fields = {name: f"{{{name}}}" for name in grader.inputs if name != "*"}
        return list(map(dict, grader.messages(**fields)))
    example = example_of(entry)
    prompt = example.create(entry.reward, **params).format(example.sample)  # type: ignore[attr-defined]  # it is a judge
    return list(
        map(dict, [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt)
    )


def fields_of_grader(kind: type[BaseReward]) -> dict[str, bool] | None:
    """The fields a grader takes and whether each is required; None for one that cannot be built
    without settings.
    """
    try:
        return kind().inputs
    except ConfigError:
        return None


def _as_text(entry: Entry) -> Iterator[str]:
    """The facts, to be read in a terminal."""
    reward = entry.named
    yield f"{entry.name}  ({reward.__module__}.{reward.__qualname__})\n"
    yield inspect.cleandoc(reward.__doc__ or "") + "\n"
    yield f"task: {entry.task}"
    yield f"kind: {entry.reward.kind}"
    if entry.grader is not None and (fields := fields_of_grader(entry.grader)) is not None:
        named = (
            ("any other" if name == "*" else name) + ("" if must else " (may be absent)")
            for name, must in fields.items()
        )
        yield f"fields: {', '.join(named)}"
    yield f"needs: {', '.join(sorted(reward.needs)) or 'nothing'}"
    touches = (kind + (f" ({','.join(by)})" if by else "") for kind, by in reward.touches.items())
    yield f"touches: {', '.join(touches) or 'nothing'}"
    yield f"cost: {entry.cost} per sample of n answers"
    yield f"range: {entry.bounds}, {entry.direction}\n"
    yield "parameters:"
    for parameter in parameters_of(entry.reward):
        yield f"  {parameter.name} = {parameter.default}  ({parameter.type})"
        if parameter.description:
            yield f"      {parameter.description}"


def _shown_value(value: Any) -> str:
    if isinstance(value, Enum):
        return repr(value.value)
    if isinstance(value, frozenset | set):
        return "{" + ", ".join(repr(part) for part in sorted(value)) + "}"
    return value.__name__ if isinstance(value, type) else repr(value)


def _docstring_of(reward: type, name: str) -> str:
    """The string that follows a field's declaration, in the nearest class that has one."""
    ours = [owner for owner in reward.__mro__ if owner.__module__.partition(".")[0] not in FOREIGN]
    return next((text for owner in ours if (text := _field_docstrings(owner).get(name))), "")


@cache
def _field_docstrings(owner: type) -> dict[str, str]:
    try:
        (tree,) = ast.parse(inspect.cleandoc("\n" + inspect.getsource(owner))).body
    except (OSError, TypeError, SyntaxError, ValueError):  # made by code, or without its source
        return {}
    docstrings = {}
    for before, after in pairwise(getattr(tree, "body", [])):
        match before, after:
            case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                docstrings[name] = " ".join(text.split())
    return docstrings


def _mention(reward: type, word: str) -> str:
    """The first sentence of the docstring that has a field's name in backticks."""
    named = re.compile(rf"`{re.escape(word)}\b[^`]*`")
    paragraphs = (reward.__doc__ or "").split("\n\n")
    return next(filter(named.search, chain.from_iterable(map(sentences, paragraphs))), "")
