"""An audit: all probes of a reward in one run, what it costs, and the trust card that comes of it."""

from __future__ import annotations

import html
import inspect
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rm_gallery.core.engine.context import RunControl
from rm_gallery.core.engine.options import RunOptions, whole
from rm_gallery.core.model.budget import PriceTable, Usage
from rm_gallery.core.reward.compose import Composition
from rm_gallery.core.reward.judges import asks_a_model, models_of
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.reward.run import options_of, run_unordered
from rm_gallery.core.stats.constant import Constancy
from rm_gallery.core.stats.denominator import worst_case_bounds
from rm_gallery.core.utils.defaults import PROBES
from rm_gallery.core.utils.errors import ConfigError, Unscored
from rm_gallery.core.utils.file import write_whole
from rm_gallery.core.utils.names import check_known, unknown_name
from rm_gallery.core.utils.shown import ended, one_line
from rm_gallery.gallery.benchmarks.figures import Record, html_lines, html_table
from rm_gallery.gallery.benchmarks.judgements import Status
from rm_gallery.gallery.benchmarks.lead import worth
from rm_gallery.study.attacks import BUILT_IN, TEXTS, Material, built_in, from_samples
from rm_gallery.study.cards import audit_figures
from rm_gallery.study.doors import Asked, Keywords, door
from rm_gallery.study.pairwise_comparisons import (
    VERDICTS,
    Finding,
    Questionnaire,
    Verdict,
    figure_text,
    kept_when_interrupted,
    lost,
    missing_of,
    reasons_of,
)
from rm_gallery.study.probes import READ, AnswerPairs, Probe
from rm_gallery.study.runs import keep_figures
from rm_gallery.study.source import Source
from rm_gallery.study.task import begun, judge_of, repeat_folder, usage_of

if TYPE_CHECKING:
    from jinja2 import Template
    from typing_extensions import Unpack

PROMPTS = 60
"""Prompts taken out of data when no limit is given."""
REPLY = 100
"""Tokens of a reply that the estimate of money goes by."""
PROBE = 20
"""Questions whose prompts are measured for the estimate."""


@door(needs_data=False)
def audit(
    asked: Asked, *, probes: Sequence[str] | None = None, **keywords: Unpack[Keywords]
) -> Audit:
    """Try to move a reward by everything that should not move it, and say how far that went.

    `data` have preferences; by default they are forty built-in questions in English and Chinese,
    and `limit` is sixty prompts of others. With `run_dir` report.json, card.md and card.html are
    kept there.

    Args:
        probes: names out of `PROBES`; all of them by default.
    """
    return Prepared(asked, probes).run()


@dataclass(frozen=True)
class AuditCost:
    """What an audit takes before any reply comes out of a cache, and before anything is asked again
    that worked.
    """

    prompts: int
    questions: int
    calls: int
    """Calls of the judge; 0 where no model judges."""
    input_tokens: int | None
    """About four characters each, of the prompts as they are sent; None where no model judges."""
    money: float | None = None
    """At the given prices, with replies of a hundred tokens; None without prices."""

    def __str__(self) -> str:
        parts = [
            "{questions:,} questions about {prompts} prompts",
            ": {calls:,} model calls" if self.calls else ", no model calls",
            "" if self.input_tokens is None else ", about {input_tokens:,} input tokens",
            "" if self.money is None else f", some {{money:,.2f}} at replies of {REPLY} tokens",
            "; fewer where replies are cached, more where an attack works" if self.calls else "",
        ]
        return "".join(parts).format_map(vars(self))


@dataclass(frozen=True)
class Audit(Record):
    """What an audit found out about a reward.

    Attributes:
        reward: its name, and `kind`.
        judge: the model that judged, and its `endpoint` without secrets; None where none did.
        data: where prompts and answers came from.
        prompts: how many prompts were used.
        questions: how many questions were asked, and `scored` how many of them got a score or
            verdict.
        findings: every figure, in the order of the probes.
        verdict: the worst verdict of all figures that have a limit.
        missing: how many questions have no score by who caused it (endpoint, judge, answer, data,
            rule, caller), and `lost` by outcome.
        reasons: why questions have no score, "status: reason" to number and an example.
        calls: requests made to the judge; `cached` replies came from the cache; `usage` holds
            tokens and cost.
        seconds: wall time.
        seed: of the samples drawn.
        stopped: why the run ended early; None when it did not.
        notes: what was left out of the data, and what else a reader should know.
        constant: what every score or verdict was, in a sentence, where all are the same; empty
            elsewhere.
    """

    reward: str
    kind: str
    judge: str | None
    endpoint: str | None
    data: str
    prompts: int
    questions: int
    scored: int
    findings: tuple[Finding, ...]
    reasons: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    missing: Mapping[str, int] = field(default_factory=dict)
    lost: Mapping[str, int] = field(default_factory=dict)
    calls: int = 0
    cached: int = 0
    usage: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    seed: int = 0
    stopped: str | None = None
    notes: tuple[str, ...] = ()
    constant: str = ""

    def __getitem__(self, key: str) -> Finding:
        """The figure of this name, such as `position.flips`; ConfigError with the nearest names for
        an unknown one.
        """
        known = {finding.key: finding for finding in self.findings}
        if key not in known:
            raise ConfigError(unknown_name("figure", key, known))
        return known[key]

    def __contains__(self, key: object) -> bool:
        return any(finding.key == key for finding in self.findings)

    @property
    def verdict(self) -> Verdict:
        """The worst of fail, warn, not enough and pass; "not enough" where no figure has a limit."""
        given = {
            finding.verdict
            for finding in self.findings
            if finding.limit is not None or finding.value is not None
        }
        return next((verdict for verdict in VERDICTS[:4] if verdict in given), "not enough")

    @property
    def counts(self) -> dict[str, int]:
        """How many figures got each verdict, worst first."""
        every = [finding.verdict for finding in self.findings]
        return {verdict: every.count(verdict) for verdict in VERDICTS if verdict in every}

    def by_probe(self) -> list[tuple[str, list[Finding]]]:
        """The figures of each probe."""
        return [
            (name, list(group))
            for name, group in groupby(self.findings, key=lambda finding: finding.probe)
        ]

    def about(self) -> list[str]:
        """What the card rests on, a line each."""
        spent = "".join(
            f" · {name.replace('_', ' ')} {value:{',' if isinstance(value, int) else ',.4f'}}"
            for name, value in self.usage.items()
            if value
        )
        lines = [
            (_OF_REWARD + (_OF_JUDGE if self.judge else "")).format_map(vars(self)),
            _OF_DATA.format_map(vars(self)),
            _OF_CALLS.format_map({**vars(self), "spent": spent}),
            *self.notes,
            f"stopped: {self.stopped}" if self.stopped else "",
        ]
        return [one_line(line) for line in lines if line]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain JSON types."""
        own = super().to_dict()
        del own["findings"]
        for name in ("constant", "lost"):
            if not own[name]:
                del own[name]
        shown = {finding.key: finding.to_dict() for finding in self.findings}
        card = {"verdict": self.verdict, "counts": self.counts, **own, "findings": shown}
        return {"worth": worth(audit_figures(card)), **card}

    @property
    def worth(self) -> str:
        """What a reader may conclude, in the sentences that every rendering begins with."""
        return one_line(self.to_dict()["worth"])

    def save(self, folder: str | Path) -> Path:
        """Write card.md, card.html and report.json into a folder, each whole or not at all; gives
        the folder.
        """
        target = Path(folder)
        keep_figures(target, audit_figures(self.to_dict()))
        write_whole(target / "card.md", self.markdown().encode("utf-8", "replace"))
        write_whole(target / "card.html", self.html().encode("utf-8", "replace"))
        return target

    def markdown(self) -> str:
        """The card as Markdown; texts from outside cannot become markup."""
        return _card("md").render(audit=self)

    def html(self) -> str:
        """The card as one page that needs nothing else; every text is escaped."""
        return _card("html").render(audit=self)

    def _repr_html_(self) -> str:
        head = ("figure", "value", "95 % interval", "n", "verdict")
        table = html_table(head, self._cells(""))
        return f"{html_lines([self.worth])}{table}{html_lines(self.about())}"

    def _cells(self, before_n: str) -> list[list[str]]:
        return [
            [f.key, f.shown(), f.shown_interval(), f"{before_n}{f.n}", f.verdict]
            for f in self.findings
        ]

    def __str__(self) -> str:
        rows = self._cells("n=")
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        table = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        return "\n".join([self.worth, *table, *self.about()])


_OF_REWARD, _OF_JUDGE = "{reward} ({kind})", " · judge {judge} at {endpoint}"
_OF_DATA = "data: {data} · {prompts} prompts · {questions} questions, {scored} with a verdict"
_OF_CALLS = "{calls} calls · {cached} from the cache{spent} · {seconds:.1f} s"


def _md(text: str) -> str:
    """Text for Markdown: one line in which nothing is markup, not even HTML."""
    return "".join(
        f"\\{c}" if c in "\\`*_{}[]|~#" else c for c in html.escape(one_line(text), quote=False)
    )


@lru_cache(maxsize=2)
def _card(kind: str) -> Template:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=kind == "html",
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=kind == "md",
    )
    environment.filters |= {
        "md": _md,
        "one_line": one_line,
        "ended": ended,
        "figure_text": figure_text,
    }
    return environment.from_string((TEXTS / f"card.{kind}.jinja2").read_text(encoding="utf-8"))


class Prepared:
    """An audit whose questions are known and not yet asked."""

    def __init__(self, asked: Asked, probes: Sequence[str] | None) -> None:
        names = [probes] if isinstance(probes, str) else list(PROBES if probes is None else probes)
        check_known("probe", names, PROBES)
        if not names:
            raise ConfigError(f"probes is empty; name some of {', '.join(PROBES)}.")
        self.asked, self.reward = asked, asked.reward
        materials, self.data, self.identity, self.notes = _materials(asked.source)
        self.identity |= {"probes": sorted(set(names))}
        self.pairs = AnswerPairs(asked.reward, materials)
        self.rounds = self.pairs.rounds
        made = [Probe(name, self.pairs, steps) for name, steps in READ.items() if name in names]
        self.probes = sorted(made, key=lambda probe: PROBES.index(probe.name))

    @property
    def n_questions(self) -> int:
        """Questions so far; what an attack's first answers make worth asking comes in the run."""
        return sum(len(sheet.questions) for sheet in self.rounds)

    def cost(self, prices: PriceTable | None = None) -> AuditCost:
        """What it takes, from the questions themselves."""
        prompts = len(self.pairs.first)
        if not asks_a_model(self.reward):
            return AuditCost(prompts, self.n_questions, 0, None)
        calls = sum(sheet.calls() for sheet in self.rounds)
        tokens = _tokens(self.reward, self.pairs, calls)
        models, money = models_of(self.reward), None
        if prices is not None and len(models) == 1 and tokens is not None:
            money = prices.cost(
                models[0].model, Usage(input_tokens=tokens, output_tokens=REPLY * calls)
            )
        return AuditCost(prompts, self.n_questions, calls, tokens, money)

    def run(self, options: RunOptions | None = None) -> Audit:
        """Ask everything and make the card, by default with the options it was prepared with."""
        chosen, values = options_of(
            self.reward, options or self.asked.options, self.asked.hooks, {}
        )
        chosen, control = begun(chosen, {"audit": 1, **self.identity})
        started = time.monotonic()
        # each with its repeat and its folder; what the first answers make worth asking comes right
        # after them
        asking = [(sheet, repeat, repeat) for repeat, sheet in enumerate(self.rounds)]
        asking.insert(1, (self.pairs, 0, len(self.rounds)))
        spent: dict[str, Any] = {"calls": 0, "cached": 0, "usage": {}}

        def card() -> Audit:
            return self._card(
                chosen.run_dir, seconds=time.monotonic() - started, stopped=control.stopped, **spent
            )

        with kept_when_interrupted(control, card):
            for turn, (sheet, repeat, folder) in enumerate(asking):
                if control.stopped:
                    break
                if turn == 1:
                    for probe in self.probes:
                        probe.go(True)
                questions = [
                    question
                    for key, question in sheet.questions.items()
                    if key not in sheet.outcomes
                ]
                if not questions:
                    continue
                one = replace(
                    chosen,
                    total=len(questions),
                    repeat=chosen.repeat + repeat,
                    run_dir=repeat_folder(chosen.run_dir, folder),
                )
                try:
                    with closing(run_unordered(self.reward, questions, one, values)) as scored:
                        sheet.collect(scored)
                finally:
                    _add(spent, control)
        return card()

    def _card(self, run_dir: str | None, **spent: Any) -> Audit:
        """The card of what is answered by now, kept where the run is."""
        judge, endpoint = judge_of(self.reward)
        outcomes = [one for sheet in self.rounds for one in sheet.outcomes.values()]
        n_questions = self.n_questions
        n_scored = sum(one.status == "scored" for one in outcomes)
        never: list[Status] = ["stopped"] * (n_questions - len(outcomes))
        card = Audit(
            reward=self.reward.name,
            kind=self.reward.kind,
            judge=judge,
            endpoint=endpoint,
            data=self.data,
            prompts=len(self.pairs.first),
            questions=n_questions,
            scored=n_scored,
            missing=worst_case_bounds(n_questions, n_scored, 0.0, missing_of(outcomes)).missing,
            lost=lost([*(one.status for one in outcomes), *never]),
            findings=tuple(finding for probe in self.probes for finding in probe.findings()),
            reasons=reasons_of(outcomes),
            seed=self.asked.source.seed,
            notes=(
                *self.notes,
                *(self.reward.notes() if isinstance(self.reward, Composition) else ()),
            ),
            constant=_constant(self.rounds, 1.0 if self.reward.higher_is_better else -1.0),
            **spent,
        )
        if run_dir is not None:
            card.save(run_dir)
        return card


def _add(spent: dict[str, Any], control: RunControl) -> None:
    """Count what a round took: the counters begin anew with every one."""
    spent["calls"] += control.calls
    spent["cached"] += control.cached
    for name, value in usage_of(control).items():
        if value is not None:
            spent["usage"][name] = spent["usage"].get(name, 0) + value


def _constant(sheets: Sequence[Questionnaire], turn: float) -> str:
    """What every score or verdict was, in a sentence, where all are the same."""
    seen = Constancy()
    for sheet in sheets:
        for one in sheet.outcomes.values():
            verdicts = (g.verdict if g.first == 0 else -g.verdict for g in sheet.shown(one))
            seen.add(one.complete() or (), ((verdict, "") for verdict in verdicts))
    return seen.sentence(turn)


@door(needs_data=False)
def prepare(
    asked: Asked, *, probes: Sequence[str] | None = None, **keywords: Unpack[Keywords]
) -> Prepared:
    """Put down every question of an audit without asking any; arguments as in `audit`."""
    return Prepared(asked, probes)


def _materials(source: Source) -> tuple[list[Material], str, dict[str, Any], list[str]]:
    """Prompts with two answers, where they come from, what identifies them, and what was left out."""
    if source.limit is not None:
        whole("limit", source.limit, 1)
    if source.data is None:
        if source.benchmark is not None or source.columns:
            raise ConfigError(
                "benchmark and columns describe data; give data as well, or leave them out."
            )
        about = {"data": BUILT_IN, "limit": source.limit, "data_seed": source.seed}
        return built_in(source.limit, source.seed), BUILT_IN, about, []
    dataset = replace(source, limit=source.limit or PROMPTS).open()
    materials, without = from_samples(dataset.rows(), dataset.name)
    notes = dataset.met.notes()
    if without:
        notes.append(f"{without} samples without a chosen and a rejected answer were left out")
    return materials, dataset.name, dataset.identity(), notes


def _tokens(reward: BaseReward, sheet: Questionnaire, calls: int) -> int | None:
    """Input tokens of all calls, from the prompts of evenly chosen questions; None where no prompt
    can be made ahead of the run.
    """
    formatted = getattr(reward, "format", None)
    if formatted is None or inspect.iscoroutinefunction(getattr(reward, "_before_evaluate", None)):
        return None
    step = max(1, len(sheet.questions) // PROBE)
    sizes = []
    for sample in islice(sheet.questions.values(), 0, None, step):
        try:
            sizes.append(_size(formatted(sample)))
        except (Unscored, ConfigError, KeyError, IndexError, TypeError, ValueError, AttributeError):
            # a hook that cannot make a prompt of this one: the run says so, the estimate goes by
            # the others
            continue
    return round(calls * sum(sizes) / len(sizes) / 4) if sizes else None


def _size(prompt: Any) -> int:
    if isinstance(prompt, str):
        return len(prompt)
    parts = [
        part.get("content") if isinstance(part, Mapping) else getattr(part, "content", part)
        for part in prompt
    ]
    return sum(len(str(part)) for part in parts)
