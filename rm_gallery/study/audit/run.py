"""One run of all probes: what is asked, what it costs, and the card that comes of it."""

from __future__ import annotations

import inspect
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

from rm_gallery.core.engine.calls.budget import PriceTable, Usage
from rm_gallery.core.engine.context import RunControl, snapshot
from rm_gallery.core.engine.options import RunOptions, whole
from rm_gallery.core.model.base import BaseLLM
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.reward.run import options_of, run_unordered
from rm_gallery.core.runner.grading_runner import build_reward
from rm_gallery.core.utils.errors import ConfigError, Unscored
from rm_gallery.core.utils.models import unknown_name
from rm_gallery.gallery.benchmarks.base import Benchmark
from rm_gallery.study.audit import scales
from rm_gallery.study.audit.attacks import BUILT_IN, Material, built_in, from_samples
from rm_gallery.study.audit.card import Audit
from rm_gallery.study.audit.probes import (
    Authority,
    Discernment,
    Injected,
    Length,
    Markdown,
    NoAnswers,
    Pairs,
    Place,
    Probe,
    SelfPraise,
    Stability,
    Verbosity,
)
from rm_gallery.study.conflicts import reasons_of
from rm_gallery.study.duels import Finding, Sheet
from rm_gallery.study.task import asks_a_model, judge_of, open_data

PROMPTS = 60
"""Prompts taken out of data when no limit is given."""
REPLY = 100
"""Tokens of a reply that the estimate of money goes by."""
PROBE = 20
"""Questions whose prompts are measured for the estimate."""
_PROBES: tuple[type[Probe], ...] = (
    Discernment,
    Place,
    Length,
    Markdown,
    Verbosity,
    SelfPraise,
    Authority,
    NoAnswers,
    Stability,
    scales.Repeats,
    scales.Range,
    scales.LengthCorrelation,
    Injected,
)
PROBES = (*(probe.name for probe in _PROBES), scales.Replies.name)
"""Every probe by name, in the order of the card."""
_OWN = "params llm base_url limit seed on_bad_row columns hooks options benchmark probes data".split()


def audit(
    reward: str | BaseReward | type[BaseReward],
    data: Any = None,
    benchmark: str | Benchmark | None = None,
    *,
    probes: Sequence[str] | None = None,
    params: Mapping[str, Any] | None = None,
    llm: str | dict[str, Any] | BaseLLM | None = None,
    base_url: str | None = None,
    limit: int | None = None,
    seed: int = 0,
    on_bad_row: str = "raise",
    columns: Mapping[str, str | None] | None = None,
    hooks: Mapping[str, Any] | None = None,
    options: RunOptions | None = None,
    **run_options: Any,
) -> Audit:
    """Try to move a reward by everything that should not move it, and say how far that went.

    Args:
        reward: a registered name, a reward class or any reward: judge, rule, function or trained model, of any kind.
        data: what `evaluate` takes, with preferences; by default forty built-in questions in English and Chinese.
        benchmark: layout of the data; found from the columns by default.
        probes: names out of `PROBES`; all of them by default.
        params: fields of a reward that is given by name or class.
        llm: its judge.
        base_url: the judge's endpoint.
        limit: a seeded sample of this many prompts; of data sixty by default.
        seed: decides that sample, the candidate order and the bootstrap.
        on_bad_row: `raise`, or `skip` and count.
        columns: {wanted: actual} column names.
        hooks: values for the reward's hooks.
        options: how the run goes. With `run_dir` the same call continues an unfinished audit, and audit.json, card.md and
            card.html are kept there.
        **run_options: fields of `RunOptions` as keywords.

    Raises:
        ConfigError: as `evaluate`, and for a probe that does not exist.
    """
    ready = prepare(
        reward,
        data,
        benchmark,
        probes=probes,
        params=params,
        llm=llm,
        base_url=base_url,
        limit=limit,
        seed=seed,
        on_bad_row=on_bad_row,
        columns=columns,
    )
    return ready.run(options, hooks, **run_options)


@dataclass(frozen=True)
class Cost:
    """What an audit takes before any reply comes out of a cache."""

    prompts: int
    questions: int
    calls: int
    """Calls of the judge; 0 where no model judges."""
    input_tokens: int | None
    """About four characters each, of the prompts as they are sent; None where no model judges."""
    money: float | None = None
    """At the given prices, with replies of a hundred tokens; None without prices."""

    def __str__(self) -> str:
        asked = f"{self.questions:,} questions about {self.prompts} prompts"
        if not self.calls:
            return f"{asked}, no model calls"
        tokens = "" if self.input_tokens is None else f", about {self.input_tokens:,} input tokens"
        money = "" if self.money is None else f", some {self.money:,.2f} at replies of {REPLY} tokens"
        return f"{asked}: up to {self.calls:,} model calls{tokens}{money}, fewer where replies are cached"


@dataclass
class Prepared:
    """An audit whose questions are known and not yet asked."""

    pairs: Pairs
    probes: list[Probe]
    data: str
    seed: int
    identity: dict[str, Any]
    notes: tuple[str, ...] = ()

    @property
    def reward(self) -> BaseReward:
        """Whose audit it is."""
        return self.pairs.reward

    def _rounds(self) -> list[tuple[Sheet, int]]:
        """The sheets to ask, with the number of the repeat."""
        again = [probe.second.sheet for probe in self.probes if isinstance(probe, scales.Repeats)]
        return [(self.pairs.sheet, 0), *((sheet, number) for number, sheet in enumerate(again, 1))]

    def cost(self, prices: PriceTable | None = None) -> Cost:
        """What it takes, from the questions themselves."""
        sheets = [sheet for sheet, _ in self._rounds()]
        questions = sum(len(sheet.questions) for sheet in sheets)
        if not asks_a_model(self.reward):
            return Cost(len(self.pairs.materials), questions, 0, None)
        calls = sum(sheet.calls() for sheet in sheets)
        tokens = _tokens(self.reward, self.pairs.sheet, calls)
        model, money = judge_of(self.reward)[0], None
        if prices is not None and model is not None and tokens is not None:
            money = prices.cost(model, Usage(input_tokens=tokens, output_tokens=REPLY * calls))
        return Cost(len(self.pairs.materials), questions, calls, tokens, money)

    def run(self, options: RunOptions | None = None, hooks: Mapping[str, Any] | None = None, **keywords: Any) -> Audit:
        """Ask everything and make the card; options as in `audit`."""
        chosen, values = options_of(self.reward, options, hooks, keywords, progress=None, beside=_OWN)
        control, started = chosen.control or RunControl(), time.monotonic()
        spent: dict[str, Any] = {"calls": 0, "cached": 0, "usage": {}}
        for sheet, repeat in self._rounds():
            if control.stopped:
                break
            one = replace(
                chosen,
                control=control,
                total=len(sheet.questions),
                repeat=chosen.repeat + repeat,
                run_dir=_inside(chosen.run_dir, repeat),
                manifest={"audit": 1, **self.identity, **(chosen.manifest or {})},
            )
            with closing(run_unordered(self.reward, sheet.questions.values(), one, values)) as scored:
                sheet.hear(scored)
            _add(spent, control)
        judge, endpoint = judge_of(self.reward)
        said = [one for sheet, _ in self._rounds() for one in sheet.said.values()]
        card = Audit(
            reward=self.reward.name,
            kind=self.reward.kind,
            judge=judge,
            endpoint=endpoint,
            data=self.data,
            prompts=len(self.pairs.materials),
            questions=sum(len(sheet.questions) for sheet, _ in self._rounds()),
            scored=sum(one.status == "scored" for one in said),
            findings=tuple(chain.from_iterable(_findings(probe) for probe in self.probes)),
            reasons=reasons_of(said),
            seconds=time.monotonic() - started,
            seed=self.seed,
            stopped=control.stopped,
            notes=self.notes,
            **spent,
        )
        if chosen.run_dir is not None:
            card.save(chosen.run_dir)
        return card


def prepare(
    reward: str | BaseReward | type[BaseReward],
    data: Any = None,
    benchmark: str | Benchmark | None = None,
    *,
    probes: Sequence[str] | None = None,
    params: Mapping[str, Any] | None = None,
    llm: str | dict[str, Any] | BaseLLM | None = None,
    base_url: str | None = None,
    limit: int | None = None,
    seed: int = 0,
    on_bad_row: str = "raise",
    columns: Mapping[str, str | None] | None = None,
) -> Prepared:
    """Put down every question of an audit without asking any; arguments as in `audit`."""
    wanted = _named(probes)
    if limit is not None:
        whole("limit", limit, 1)
    built = build_reward(reward, params, llm, base_url, seed)
    materials: list[Material]
    notes: Sequence[str] = ()
    if data is None:
        if benchmark is not None or columns:
            raise ConfigError("benchmark and columns describe data; give data as well, or leave them out.")
        materials, name, identity = (
            built_in(limit, seed),
            BUILT_IN,
            {"data": BUILT_IN, "limit": limit, "data_seed": seed},
        )
    else:
        opened = open_data(data, benchmark, limit=limit or PROMPTS, seed=seed, on_bad_row=on_bad_row, columns=columns)
        materials, without = from_samples(opened.rows(), opened.name)
        name, identity = opened.name, opened.identity()
        loaded = opened.loader.report if opened.loader is not None else None
        notes = loaded.notes() if loaded is not None else ()
        notes = (*notes, f"{without} samples without a chosen and a rejected answer were left out") if without else notes
    pairs = Pairs(built, materials, seed)
    made: list[Probe] = [probe(pairs) for probe in _PROBES if probe.name in wanted and probe is not Injected]
    plain_keys = list(pairs.sheet.questions)
    made += [Injected(pairs)] if Injected.name in wanted else []
    made += [scales.Replies(pairs, plain_keys)] if scales.Replies.name in wanted else []
    return Prepared(pairs, made, name, seed, {**identity, "probes": sorted(wanted)}, tuple(notes))


def _named(probes: Sequence[str] | None) -> set[str]:
    given = PROBES if probes is None else ([probes] if isinstance(probes, str) else list(probes))
    for name in given:
        if name not in PROBES:
            raise ConfigError(unknown_name("probe", str(name), PROBES))
    if not given:
        raise ConfigError(f"probes is empty; name some of {', '.join(PROBES)}.")
    return set(given)


def _findings(probe: Probe) -> Iterable[Finding]:
    return probe.findings()


def _inside(run_dir: str | None, repeat: int) -> str | None:
    return run_dir if run_dir is None or not repeat else str(Path(run_dir) / f"repeat-{repeat}")


def _add(spent: dict[str, Any], control: RunControl) -> None:
    """Add what one round took; its counters begin anew with the next."""
    spent["calls"] += control.calls
    spent["cached"] += control.cached
    for name, value in snapshot(control).items():
        if name in ("input_tokens", "output_tokens", "cost") and value is not None:
            spent["usage"][name] = spent["usage"].get(name, 0) + value


def _tokens(reward: BaseReward, sheet: Sheet, calls: int) -> int | None:
    """Input tokens of all calls, from the prompts of evenly chosen questions; None where no prompt can be made ahead of the run."""
    formatted = getattr(reward, "format", None)
    if formatted is None or inspect.iscoroutinefunction(getattr(reward, "_before_evaluate", None)):
        return None
    step = max(1, len(sheet.questions) // PROBE)
    sizes = []
    for sample in islice(sheet.questions.values(), 0, None, step):
        try:
            sizes.append(_size(formatted(sample)))
        except (Unscored, ConfigError, KeyError, IndexError, TypeError, ValueError, AttributeError):
            continue  # a hook that cannot make a prompt of this one: the run says so, the estimate goes by the others
    return round(calls * sum(sizes) / len(sizes) / 4) if sizes else None


def _size(prompt: Any) -> int:
    if isinstance(prompt, str):
        return len(prompt)
    parts = [part.get("content") if isinstance(part, Mapping) else getattr(part, "content", part) for part in prompt]
    return sum(len(str(part)) for part in parts)
