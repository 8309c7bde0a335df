"""How a question is asked of a reward: the keywords of every door, collected in one place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import wraps
from inspect import Parameter, cleandoc, signature
from typing import Any, Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar

from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.options import OPTIONS, RunKeywords, RunOptions
from rm_gallery.core.model.base import BaseLLM
from rm_gallery.core.reward.resolve import resolve
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.reward.run import options_of
from rm_gallery.gallery.benchmarks.base import Benchmark
from rm_gallery.study.source import Source

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Keywords(RunKeywords, total=False):
    """The arguments that every door takes.

    reward: a registered name, a reward class or any reward: judge, rule, function, trained model.
    data: a file or folder (or several), a pandas frame, a list of rows or samples, a data set, the
        hub name of a known benchmark, or a `Source`, over which the keywords below win.
    benchmark: name or object; found from the columns by default, which have to be the benchmark's
        own.
    params: fields of a reward that is given by name or class.
    llm: its judge: a model name, a dict of settings or a model. There is no default.
    base_url: the judge's endpoint; OPENAI_BASE_URL by default.
    columns: {wanted: actual} column names.
    limit: a seeded sample of this many rows.
    seed: decides that sample, the candidate order of a reward built here, and the bootstrap.
    on_bad_row: `raise`, or `skip` and count.
    hooks: values for the reward's hooks.
    options: how the run goes. With `run_dir` the same call continues an unfinished run, and the
        folder keeps what was judged and what came of it.
    **run_options: fields of `RunOptions`, which win over `options`, and named parameters of the
        reward's hooks.

    Raises ConfigError for what the caller has to change, before anything is paid: an unknown
    benchmark or keyword, data that no benchmark or that two fit, a judged reward without a judge.
    """

    params: Mapping[str, Any] | None
    llm: str | dict[str, Any] | BaseLLM | None
    base_url: str | None
    columns: Mapping[str, str | None] | None
    limit: int | None
    seed: int
    on_bad_row: str
    hooks: Mapping[str, Any] | None
    options: RunOptions | None


OF_REWARD = ("params", "llm", "base_url")


class Asked(NamedTuple):
    """What a door is asked, checked and ready."""

    reward: BaseReward
    source: Source
    options: RunOptions
    hooks: dict[str, Any]
    """Values for the reward's hooks."""


class Door(Protocol[P, R_co]):
    """What `door` makes of a core: the arguments of every door, then the core's own."""

    def __call__(
        self,
        reward: Any,
        data: Any = None,
        benchmark: str | Benchmark | None = None,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R_co:
        """Ask."""


_SHARED = {
    name: getattr(Source, name, None) for name in Keywords.__annotations__ if name not in OPTIONS
}
"""The keywords of every door that are no run options, with their defaults."""


def door(
    *, needs_data: bool = True, **defaults: Any
) -> Callable[[Callable[Concatenate[Asked, P], R]], Door[P, R]]:
    """Make a door of a function that takes what it is `Asked` and keywords of its own.

    Its last parameter, `**keywords: Unpack[Keywords]`, tells type checkers which keywords the door
    takes beside; the function never gets them. `defaults` are keywords that differ at this door;
    what a given `Source` says wins over them.
    """
    ask = [Parameter("reward", Parameter.POSITIONAL_OR_KEYWORD)]
    ask.append(ask[0].replace(name="data", default=Parameter.empty if needs_data else None))
    ask.append(ask[0].replace(name="benchmark", default=None))
    of_source = {name: defaults.pop(name) for name in _SHARED if name in defaults}
    shared = {**_SHARED, **of_source}

    def make(core: Callable[Concatenate[Asked, P], R]) -> Door[P, R]:
        parameters = signature(core).parameters.values()
        own = [each for each in parameters if each.kind is Parameter.KEYWORD_ONLY]
        keywords = [Parameter(k, Parameter.KEYWORD_ONLY, default=v) for k, v in shared.items()]
        keywords.append(Parameter("run_options", Parameter.VAR_KEYWORD))
        shape = signature(core).replace(parameters=[*ask, *own, *keywords])

        ask_core: Callable[..., R] = core

        @library_loop.blocks
        @wraps(core)
        def call(*args: Any, **keywords: Any) -> Any:
            given = shape.bind(*args, **{**defaults, **keywords}).arguments
            run_options = given.pop("run_options", {})
            of_core = {each.name: given.pop(each.name) for each in own if each.name in given}
            if not isinstance(given.get("data"), Source):
                given = {**of_source, **given}
            given = {name: value for name, value in given.items() if value is not None}
            judge = {name: given.pop(name) for name in OF_REWARD if name in given}
            reward, data = given.pop("reward", None), given.pop("data", None)
            options, hooks = given.pop("options", None), given.pop("hooks", None)
            source = replace(data, **given) if isinstance(data, Source) else Source(data, **given)
            built = resolve(reward, **judge, seed=source.seed)
            # the names are suggested for an unknown one
            names = shape.parameters
            chosen = options_of(built, options, hooks, run_options, progress=None, beside=names)
            return ask_core(Asked(built, source, *chosen), **of_core)

        call.__signature__ = shape  # type: ignore[attr-defined]  # read by help() and completion
        call.__doc__ = "\n\n".join(cleandoc(text.__doc__ or "") for text in (core, Keywords))
        return call

    return make
