"""The trust card: every figure of an audit with its interval and verdict, as text, JSON, Markdown and a page."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.core.utils.file import as_json, write_whole
from rm_gallery.core.utils.models import unknown_name
from rm_gallery.core.utils.shown import one_line
from rm_gallery.gallery.benchmarks.figures import plain
from rm_gallery.study.duels import VERDICTS, Finding, Verdict, number

if TYPE_CHECKING:
    from jinja2 import Template


NEVER_FULL = 400
"""Characters of an example that a card shows."""


@dataclass(frozen=True)
class Audit:
    """What an audit found out about a reward.

    Attributes:
        reward: its name, and `kind`.
        judge: the model that judged, and its `endpoint` without secrets; None where none did.
        data: where prompts and answers came from.
        prompts: how many prompts were used.
        questions: how many questions were asked, and `scored` how many of them got a score or verdict.
        findings: every figure, in the order of the probes.
        verdict: the worst verdict of all figures that have a limit.
        reasons: why questions have no score, "status: reason" to number and an example.
        calls: requests made to the judge; `cached` replies came from the cache; `usage` holds tokens and cost.
        seconds: wall time.
        seed: of the samples drawn.
        stopped: why the run ended early; None when it did not.
        notes: what was left out of the data, and what else a reader should know.
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
    calls: int = 0
    cached: int = 0
    usage: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    seed: int = 0
    stopped: str | None = None
    notes: tuple[str, ...] = ()

    def __getitem__(self, key: str) -> Finding:
        """The figure of this name, such as `position.flips`; ConfigError with the nearest names for an unknown one."""
        known = {finding.key: finding for finding in self.findings}
        if key not in known:
            raise ConfigError(unknown_name("figure", key, known))
        return known[key]

    def __contains__(self, key: object) -> bool:
        return any(finding.key == key for finding in self.findings)

    @property
    def verdict(self) -> Verdict:
        """The worst of fail, warn, not enough and pass; "not enough" where no figure has a limit."""
        given = {finding.verdict for finding in self.findings if finding.limit is not None or finding.value is not None}
        return next((verdict for verdict in VERDICTS[:4] if verdict in given), "not enough")

    @property
    def counts(self) -> dict[str, int]:
        """How many figures got each verdict, worst first."""
        every = [finding.verdict for finding in self.findings]
        return {verdict: every.count(verdict) for verdict in VERDICTS if verdict in every}

    def by_probe(self) -> Iterator[tuple[str, list[Finding]]]:
        """The figures of each probe."""
        for name, group in groupby(self.findings, key=lambda finding: finding.probe):
            yield name, list(group)

    def about(self) -> list[str]:
        """What the card rests on, a line each."""
        judge = f" · judge {self.judge} at {self.endpoint}" if self.judge else ""
        spent = [
            f"{name.replace('_', ' ')} {value:,}" if isinstance(value, int) else f"{name} {value:,.4f}"
            for name, value in self.usage.items()
            if value
        ]
        counts = ", ".join(f"{n} {verdict}" for verdict, n in self.counts.items())
        lines = [
            f"verdict: {self.verdict} ({counts})",
            f"{self.reward} ({self.kind}){judge}",
            f"data: {self.data} · {self.prompts} prompts · {self.questions} questions, {self.scored} with a verdict",
            " · ".join([f"{self.calls} calls", f"{self.cached} from the cache", *spent, f"{self.seconds:.1f} s"]),
            *self.notes,
            f"stopped: {self.stopped}" if self.stopped else "",
        ]
        return [one_line(line) for line in lines if line]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain JSON types."""
        own = {name: plain(value) for name, value in vars(self).items() if name != "findings"}
        shown = {finding.key: finding.to_dict() for finding in self.findings}
        return {"verdict": self.verdict, "counts": self.counts, **own, "findings": shown}

    def save(self, folder: str | Path) -> Path:
        """Write audit.json, card.md and card.html into a folder, each whole or not at all; gives the folder."""
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        write_whole(target / "audit.json", as_json(self.to_dict()))
        write_whole(target / "card.md", self.markdown().encode("utf-8", "replace"))
        write_whole(target / "card.html", self.html().encode("utf-8", "replace"))
        return target

    def markdown(self) -> str:
        """The card as Markdown; texts from outside cannot become markup."""
        lines = [f"# Trust card: {_md(self.reward)}", "", *(f"- {_md(line)}" for line in self.about()), ""]
        lines += ["| probe | figure | value | 95 % interval | n | prompts | limit | verdict |"]
        lines += ["|---|---|---:|---:|---:|---:|---|---|"]
        for f in self.findings:
            limit = f.limit.text(f.unit) if f.limit else ""
            cells = [f.probe, f.name, f.shown(), f.shown_interval(), str(f.n), str(f.clusters), limit, f.verdict]
            lines.append(f"| {' | '.join(_md(cell) for cell in cells)} |")
        lines += ["", "## What the figures count", ""]
        for f in self.findings:
            if not (f.what or f.why):
                continue
            parts = [f.what, f.why, f"left out: {_left_out(f)}" if f.lost else ""]
            lines.append(f"- **{_md(f.key)}**: {_md('; '.join(part for part in parts if part))}")
        if self.reasons:
            lines += ["", "## Without a verdict", ""]
            lines += [f"- {r['n']} × {_md(key)}: {_md(_cut(str(r['example'])))}" for key, r in self.reasons.items()]
        return "\n".join([*lines, ""])

    def html(self) -> str:
        """The card as one page that needs nothing else; every text is escaped."""
        return _page().render(
            audit=self,
            probes=list(self.by_probe()),
            weak=[f for verdict in ("fail", "warn") for f in self.findings if f.verdict == verdict],
            bar=_bar,
            left_out=_left_out,
            cut=_cut,
            title=one_line(f"Trust card: {self.reward}"),
        )

    def _repr_html_(self) -> str:
        cells = [[f.key, f.shown(), f.shown_interval(), str(f.n), f.verdict] for f in self.findings]
        rows = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in cells)
        head = "".join(f"<th>{name}</th>" for name in ("figure", "value", "95 % interval", "n", "verdict"))
        return f"<table><tr>{head}</tr>{rows}</table>" + "".join(f"<p>{html.escape(line)}</p>" for line in self.about())

    def __str__(self) -> str:
        rows = [(f.key, f.shown(), f.shown_interval(), f"n={f.n}", f.verdict) for f in self.findings]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)] if rows else []
        table = ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        return "\n".join([*table, *self.about()])


def _md(text: str) -> str:
    """Text for Markdown: one line in which nothing is markup, not even HTML."""
    return "".join(f"\\{c}" if c in "\\`*_{}[]|~#" else c for c in html.escape(one_line(text), quote=False))


def _cut(text: str) -> str:
    return text if len(text) <= NEVER_FULL else f"{text[: NEVER_FULL - 1]}…"


def _left_out(finding: Finding) -> str:
    return ", ".join(f"{n} {status}" for status, n in finding.lost.items())


def _bar(finding: Finding) -> dict[str, Any] | None:
    """Where value, interval and limits lie on a line from 0 to 100; None without a value or a unit with ends."""
    if finding.value is None or finding.ci95 is None or finding.unit == "points":
        return None
    low = 0.0 if finding.unit == "share" else -1.0

    def at(value: float) -> float:
        return round(100 * min(1.0, max(0.0, (value - low) / (1.0 - low))), 2)

    ends = {"from": number(low, finding.unit), "to": number(1.0, finding.unit)}
    where = {"value": at(finding.value), "low": at(finding.ci95[0]), "high": at(finding.ci95[1]), "zero": at(0.0)}
    return (
        ends
        | where
        | (
            {}
            if finding.limit is None
            else {
                "limits": [
                    (name, at(side * end))
                    for name, end in (("pass", finding.limit.good), ("fail", finding.limit.bad))
                    for side in ((1, -1) if finding.limit.sides == "both" else (1,))
                ]
            }
        )
    )


@lru_cache(maxsize=1)
def _page() -> Template:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string((files(__package__) / "card.html.jinja2").read_text(encoding="utf-8"))
