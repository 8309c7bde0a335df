"""Looking over a training run for rewards that are being gamed: drift of components against each
other and against length.

The run is cut into an early and a late part. A finding is a change or a correlation that chance
does not explain (intervals over groups, widened for the number of figures looked at) and that is
large enough to matter; each comes with completions to read.
"""

from __future__ import annotations

import math
import textwrap
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import combinations, product
from typing import Any, Literal

from rm_gallery.core.data.load.converters import listed
from rm_gallery.core.stats import Bools, Floats, np
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.core.utils.shown import plain_line
from rm_gallery.train.signals import (
    LEAST_GROUPS,
    GroupCorrelation,
    Shift,
    group_means,
    group_numbers,
    length_bias,
    link,
    number_or_none,
    shift,
    spread_of,
    spread_phrase,
    weighted_sum,
    weights_of,
)
from rm_gallery.train.training_log import STEPS, TrainingLog, read_training_log

MATTERS = 0.05
"""Share of its own range by which a mean has to change."""
RELATIVE = 0.5
"""A mean that falls to this share of what it was, or rises from it, has changed, however small it
is beside its range.
"""
LINKED, MIRRORED = 0.3, 0.99
LONGER, UNSCORED, FLAT, CUT, ALIKE = 0.25, 0.2, 0.5, 0.3, 0.5
EXCERPT = 240
_SHARES = ("/unscored", "/failed", "rewards/dropped")
"""Ends of charts beside those of rewards: shares of completions without a score."""
_CUT_OFF = "cut", CUT, "completions are cut off at the longest length"
_SHARE_CHARTS = {
    "frac_reward_zero_std": ("flat", FLAT, "groups have equal rewards and teach nothing"),
    "completions/clipped_ratio": _CUT_OFF,
    "response_length/clip_ratio": _CUT_OFF,
}
"""Charts of a share, with the kind of finding it is from which share on, and of what."""

Severity = Literal["warn", "look"]


@dataclass(frozen=True)
class TrainingFinding:
    """One thing to look at.

    Attributes:
        kind: apart, traded, length, longer, hollow, mirror, flat, unscored, alike, cut or phrase.
        severity: `warn` for what a reward should not do; `look` for what may well be meant.
        components: the rewards it is about.
        text: what was found, in a sentence with its figures.
        figures: these figures by name.
        examples: completions that show it.
    """

    kind: str
    severity: Severity
    components: tuple[str, ...]
    text: str
    figures: dict[str, Any] = field(default_factory=dict)
    examples: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class Watched:
    """What was seen of a run: what it is made of, how each reward moved, and the findings."""

    name: str
    n_completions: int
    n_groups: int
    steps: tuple[float, float]
    early: tuple[float, float]
    late: tuple[float, float]
    moved: dict[str, Shift | None] = field(default_factory=dict)
    by_length: dict[str, GroupCorrelation | None] = field(default_factory=dict)
    findings: list[TrainingFinding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    has_steps: bool = True
    """Whether the log says the steps; else they are the places of its rows."""

    @property
    def warned(self) -> bool:
        """Whether there is a finding of severity `warn`."""
        return any(finding.severity == "warn" for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """Everything in JSON's types."""
        return asdict(self)


def watch(
    log: Any,
    *,
    components: Sequence[str] | None = None,
    weights: Mapping[str, float] | None = None,
    window: float = 0.3,
    examples: int = 3,
    confidence: float = 0.95,
    **columns: str | None,
) -> Watched:
    """Look over the log of a training run for rewards that part ways, follow length, teach nothing
    or say nothing.

    Args:
        log: what `read_training_log` reads: a run's folder, a file, rows, or a log that was read
            already.
        components: the rewards to look at; all that the log has by default.
        weights: by name; a negative weight says that a component is a penalty, so that less of it
            is better.
        window: the share of the run's steps that is early, and that is late; at most 0.5.
        examples: completions shown with a finding.
        confidence: of a finding, over all figures of its kind together.
        **columns: names of columns, as in `read_training_log`.

    Raises:
        ConfigError: the log or an option does not fit.
    """
    if not 0.0 < window <= 0.5:
        raise ConfigError(f"window is {window}; a share above 0 and up to 0.5 is needed.")
    check_confidence(confidence)
    read = (
        log
        if isinstance(log, TrainingLog)
        else read_training_log(log, components=components, **columns)
    )
    weights = weights or {}
    weights_of(read.components or weights, weights)
    watched = _Look(read, weights, window, examples, confidence).all()
    if not watched.has_steps:
        columns_read = ", ".join(f"{role} from '{column}'" for role, column in read.read.items())
        watched.notes.append(
            f"no column says the step ({listed(STEPS)}), so rows are early and late by their order; "
            f"name it with step= (--step). Read: {columns_read}"
        )
    if read.left_out:
        watched.notes.append("the last line was still being written and is left out")
    return watched


def check_confidence(confidence: float) -> None:
    """Raise ConfigError for what is no confidence of findings."""
    if not 0.5 <= confidence < 1.0:
        raise ConfigError(f"confidence is {confidence}; a share from 0.5 to below 1 is needed.")


def typical_lengths(moved: Shift | None) -> tuple[float, float] | None:
    """Early and late, where logarithms of lengths have surely moved by as much as matters."""
    if moved is None or not moved.sure or abs(moved.change) < math.log2(1.0 + LONGER):
        return None
    return 2.0**moved.early - 1.0, 2.0**moved.late - 1.0


def spread_told(spread: tuple[str, float, float, Any]) -> tuple[str, dict[str, Any]]:
    """The sentence and the figures of a phrase that has spread (`spread_phrase`)."""
    phrase, before, after, _ = spread
    text = f"a phrase has spread from {before:.0%} to {after:.0%} of the completions: {phrase!r}"
    return text, {"early": before, "late": after, "phrase": phrase}


class _Look:
    """One look at one log."""

    def __init__(
        self,
        log: TrainingLog,
        weights: Mapping[str, float],
        window: float,
        examples: int,
        confidence: float,
    ) -> None:
        self.log, self.weights, self.shown = log, weights, examples
        self.ways: dict[str, int] = {}
        """1 for a reward that surely became better, -1 for one that became worse, else 0."""
        self.parts = log.components
        by_step = zip(log.steps.tolist(), log.prompts, strict=True)
        self.groups = group_numbers(list(by_step) if log.has_steps else log.prompts, len(log))
        total = log.total
        if total is None and self.parts:
            total = weighted_sum(self.parts, weights, missing="zero")
            total = np.where(np.isinf(total), math.nan, total)
        self.total: Floats = np.full(len(log), math.nan) if total is None else total
        self.values = dict(self.parts)
        if len(log):
            self.values.setdefault("reward", self.total)
        at_points = [at for points in log.charts.values() for at, _ in points]
        steps = np.unique(log.steps if len(log) else at_points).tolist()
        n = max(1, round(window * len(steps)))
        n_groups = len(np.unique(self.groups))
        early, late = (steps[0], steps[n - 1]), (steps[-n], steps[-1])
        self.seen = Watched(log.name, len(log), n_groups, (steps[0], steps[-1]), early, late)
        self.seen.has_steps = log.has_steps or not len(log)
        self.several_steps = len(steps) > 1
        self.early: Bools = (log.steps <= early[1]) & self.several_steps
        self.late: Bools = log.steps >= late[0]
        self.confidence = confidence
        # two figures (a change and a correlation) for each value and each pair
        n_values = len(self.values)
        self.level = self._level(n_values + math.comb(n_values, 2))

    def _level(self, figures: int) -> float:
        """Of each of so many figures, so that all of them together have the confidence."""
        return 1.0 - (1.0 - self.confidence) / max(1, figures)

    def all(self) -> Watched:
        """Everything there is to see."""
        seen = self.seen
        if len(self.log):
            self._completions()
        else:
            self._chart_rewards()
        self._chart_shares()
        # a run learned what it should where something got better and nothing worse: then its groups
        # are alike and equally good because they are right
        if len(self.log) and set(self.ways.values()) in ({1}, {0, 1}):
            seen.findings = [
                replace(f, severity="look") if f.kind in ("flat", "alike") else f
                for f in seen.findings
            ]
        seen.findings.sort(key=lambda finding: finding.severity != "warn")
        return seen

    # -- completions -------------------------------------------------------------------------------

    def _completions(self) -> None:
        seen = self.seen
        for name, values in self.values.items():
            seen.moved[name] = self._shift(values)
            seen.by_length[name] = self._by_length(values, self.late)
        self.ways = {
            name: self._way(name, seen.moved[name], MATTERS * self._range(name))
            for name in self.parts or self.values
        }
        if self.parts:
            self._compare_directions({})
        self._traded()
        self._length()
        self._says_nothing()
        self._teaches_nothing()
        self._alike()
        self._phrase()
        if np.isnan(self.total).all():
            seen.notes.append("no reward was found beside the completions; name its columns")
        if seen.n_groups == len(self.log):
            seen.notes.append(
                "every completion is alone with its prompt, so nothing is compared inside groups"
            )

    @property
    def better(self) -> bool:
        """Whether a reward surely became better."""
        return 1 in self.ways.values()

    def _shift(self, values: Floats) -> Shift | None:
        means = [group_means(values[rows], self.groups[rows]) for rows in (self.early, self.late)]
        return shift(*means, level=self.level)

    def _by_length(self, values: Floats, rows: Bools) -> GroupCorrelation | None:
        return length_bias(
            values[rows], self.log.lengths[rows], self.groups[rows], level=self.level
        )

    def _range(self, name: str) -> float:
        values = self.values[name][~np.isnan(self.values[name])]
        return float(values.max() / 2 - values.min() / 2) * 2 if len(values) else 0.0

    def _sign(self, name: str) -> float:
        return -1.0 if self.weights.get(name, 1.0) < 0 else 1.0

    def _way(self, name: str, moved: Shift | None, least: float) -> int:
        """1 when a reward surely became better by at least `least`, -1 when worse, 0 when neither."""
        if moved is None or not moved.sure:
            return 0
        # a verified reward that falls from .05 to .01 has lost most of what there was, though
        # little of its range
        low, high = sorted((moved.early, moved.late))
        if abs(moved.change) < least and not 0.0 <= low <= RELATIVE * high:
            return 0
        return 1 if moved.change * self._sign(name) > 0 else -1

    def _compare_directions(self, charts: Mapping[str, str]) -> None:
        """Each reward that became better with each that became worse; `charts` are those the
        figures are from, where no completions are there.
        """
        for up, down in product(self.ways, repeat=2):
            rose, fell = self.seen.moved[up], self.seen.moved[down]
            if self.ways[up] <= 0 or self.ways[down] >= 0 or rose is None or fell is None:
                continue
            text = (
                f"{up} became better ({rose.early:.3g} to {rose.late:.3g}) while {down} became "
                f"worse ({fell.early:.3g} to {fell.late:.3g})"
            )
            order = None
            if not charts:
                text += ": what is learned pays for one at the cost of the other"
                order = self._good(up) - self._good(down)
            figures = {charts.get(up, up): rose, charts.get(down, down): fell}
            self._add_finding("apart", text, figures, (up, down), order)

    def _traded(self) -> None:
        for first, second in combinations(self.parts, 2):
            sign = self._sign(first) * self._sign(second)
            early, late = (
                link(
                    self.parts[first][rows],
                    self.parts[second][rows],
                    self.groups[rows],
                    level=self.level,
                )
                for rows in (self.early, self.late)
            )
            if late is None:
                continue
            if abs(late.correlation) >= MIRRORED and (
                early is None or abs(early.correlation) >= MIRRORED
            ):
                text = (
                    f"{first} and {second} say the same ({late.correlation:+.3f}): the second adds "
                    f"weight, not information"
                )
                self._add_finding("mirror", text, {"late": late}, (first, second))
            elif early is not None and late.sure and sign * late.correlation <= -LINKED:
                fell = sign * (early.correlation - late.correlation)
                z_score = fell / math.sqrt(early.variance + late.variance) if fell > 0 else 0.0
                if z_score > 1.96 and fell >= LINKED:
                    text = (
                        f"{first} and {second} have come to exclude one another: correlation "
                        f"inside groups {early.correlation:+.2f} early, {late.correlation:+.2f} "
                        f"late"
                    )
                    figures = {"early": early, "late": late}
                    order = self._good(first) - self._good(second)
                    self._add_finding("traded", text, figures, (first, second), order)

    def _length(self) -> None:
        ranks = _ranked(self.log.lengths)
        for name, late in self.seen.by_length.items():
            if (
                late is None
                or not late.sure
                or abs(late.correlation) < LINKED
                or (name == "reward" and len(self.parts) == 1)
            ):
                continue
            early = self._by_length(self.values[name], self.early)
            way = "longer" if late.correlation > 0 else "shorter"
            since = f", {early.correlation:+.2f} early" if early is not None else ""
            text = (
                f"{name} follows length: of completions to one prompt the {way} ones score higher "
                f"(correlation {_shown(late)}{since}); a doubling is worth {late.slope:+.3g}"
            )
            order = self._ranks(name) + math.copysign(1.0, late.correlation) * ranks
            self._add_finding("length", text, {"late": late, "early": early}, (name,), order)
        typical = typical_lengths(self._shift(np.log2(self.log.lengths + 1.0)))
        if typical is not None and typical[1] > typical[0] and not self.better:
            before, after = typical
            text = (
                f"completions have become longer ({before:,.0f} to {after:,.0f} {self.log.unit}, "
                f"typically) and no reward "
                "better: length is paid for by something else, or by nothing"
            )
            self._add_finding("longer", text, {"early": before, "late": after}, order=ranks)

    def _says_nothing(self) -> None:
        # adapters write the total alone where a reward has no components
        for name, values in (self.parts or self.values).items():
            known = values[~np.isnan(values)]
            if len(known) >= 20 and self._range(name) <= 1e-12:
                text = (
                    f"{name} is {known[0]:g} for all of {len(known)} completions: it rewards "
                    f"nothing"
                )
                self._add_finding("hollow", text, {"value": float(known[0])}, (name,))
            missing = np.isnan(values[self.late])
            share = float(missing.mean()) if len(missing) else 0.0
            before = float(np.isnan(values[self.early]).mean()) if self.early.any() else share
            if share >= UNSCORED and len(missing) >= 20:
                text = (
                    f"{name} gave no score for {share:.0%} of the late completions ({before:.0%} "
                    f"of the early ones)"
                )
                figures = {"early": before, "late": share}
                order = np.isnan(values).astype(float)
                self._add_finding("unscored", text, figures, (name,), order)

    def _teaches_nothing(self) -> None:
        if not self.late.any():
            return
        spread = spread_of(self.total[self.late], self.groups[self.late])
        if spread.n_groups >= LEAST_GROUPS and spread.frac_reward_zero_std >= FLAT:
            figures = {
                "frac_reward_zero_std": spread.frac_reward_zero_std,
                "high": spread.flat_high,
                "low": spread.flat_low,
            }
            self._add_finding("flat", spread.hint.rstrip("."), figures)

    def _alike(self) -> None:
        shares = []
        for rows in (self.early, self.late):
            said = defaultdict[int, list[str]](list)
            for row in np.flatnonzero(rows):
                said[self.groups[row]].append(self.log.texts[row])
            several = [own for own in said.values() if len(own) > 1]
            shares.append([(len(set(own)) - 1) / (len(own) - 1) for own in several])
        late = shares[1]
        if len(late) < LEAST_GROUPS or np.mean(late) > ALIKE:
            return
        moved = shift(*shares, level=self.confidence)
        before = f" ({moved.early:.0%} early)" if moved is not None else ""
        text = (
            f"completions to one prompt are alike: only {np.mean(late):.0%} differ{before}, so there "
            f"is little to compare"
        )
        self._add_finding("alike", text, {"late": float(np.mean(late))})

    def _phrase(self) -> None:
        phrase_spread = spread_phrase(self.log.texts, self.early, self.late)
        if phrase_spread is not None:
            order = phrase_spread[3] + self._ranks("reward")
            self._add_finding("phrase", *spread_told(phrase_spread), (), order, severity="look")

    # -- charts ------------------------------------------------------------------------------------

    def _chart_rewards(self) -> None:
        """What the figures by step tell where there are no completions."""
        charts = self.log.charts
        level = self._level(len(charts))
        moved = {name: shift(*self._sides(name), level=level, in_a_row=True) for name in charts}
        rewards = {
            name.removeprefix("rewards/").removesuffix("/mean"): name
            for name in charts
            if name.startswith("rewards/") and not name.endswith(("/std", *_SHARES))
        }
        for short, name in rewards.items():
            self.seen.moved[short] = moved[name]
            values = [value for _, value in charts[name]]
            least = 2 * MATTERS * (max(values) - min(values))
            self.ways[short] = self._way(short, moved[name], least)
        self._compare_directions(rewards)
        for name in ("completions/mean_length", "response_length/mean"):
            grown = moved.get(name)
            if grown is None or not grown.sure or self.better:
                continue
            if grown.late >= (1.0 + LONGER) * grown.early:
                text = (
                    f"completions have become longer ({grown.early:,.0f} to {grown.late:,.0f} "
                    f"tokens) and no reward better"
                )
                self._add_finding("longer", text, {name: grown})

    def _chart_shares(self) -> None:
        """What charts of shares tell, where the completions have not told it already."""
        shares = _SHARE_CHARTS | {
            name: ("unscored", UNSCORED, f"completions got no score ({name})")
            for name in self.log.charts
            if name.startswith("rewards/") and name.endswith(_SHARES)
        }
        for name, (kind, limit, text) in shares.items():
            late = self._sides(name)[1]
            share = sum(late) / len(late) if late else 0.0
            if share >= limit and kind not in {finding.kind for finding in self.seen.findings}:
                self._add_finding(kind, f"{share:.0%} of the late {text}", {name: share})

    def _sides(self, name: str) -> tuple[list[float], list[float]]:
        """The values of a chart in the early steps and in the late ones."""
        points = self.log.charts.get(name, ())
        early = [value for at, value in points if self.several_steps and at <= self.seen.early[1]]
        return early, [value for at, value in points if at >= self.seen.late[0]]

    # -- findings ----------------------------------------------------------------------------------

    def _ranks(self, name: str) -> Floats:
        """Where each completion stands in a value, 0 to 1; a missing one at the bottom."""
        return _ranked(self.values.get(name, self.total))

    def _good(self, name: str) -> Floats:
        """The ranks of a reward; of a penalty, those of having little of it."""
        return self._sign(name) * self._ranks(name)

    def _add_finding(
        self,
        kind: str,
        text: str,
        figures: Mapping[str, Any],
        components: tuple[str, ...] = (),
        order: Floats | None = None,
        severity: Severity = "warn",
    ) -> None:
        shown = [] if order is None else self._examples(order)
        plain = {
            name: asdict(value) if isinstance(value, Shift | GroupCorrelation) else value
            for name, value in figures.items()
        }
        self.seen.findings.append(TrainingFinding(kind, severity, components, text, plain, shown))

    def _examples(self, order: Floats) -> list[dict[str, Any]]:
        """The late completions that come first by `order`, no two of them the same."""
        rows = np.flatnonzero(self.late)
        first: dict[str, int] = {}
        for row in rows[np.argsort(-order[rows], kind="stable")].tolist():
            if len(first) == self.shown:
                break
            first.setdefault(self.log.texts[row], row)
        return [
            {
                "row": row,
                "step": float(self.log.steps[row]),
                "rewards": {
                    name: number_or_none(column[row]) for name, column in self.values.items()
                },
                "length": number_or_none(self.log.lengths[row]),
                "prompt": _excerpt(self.log.prompts[row]),
                "completion": _excerpt(text),
            }
            for text, row in first.items()
        ]


def _shown(link: GroupCorrelation) -> str:
    return f"{link.correlation:+.2f} [{link.interval.low:+.2f}, {link.interval.high:+.2f}]"


def _ranked(values: Floats) -> Floats:
    from scipy.stats import rankdata

    ranks: Floats = rankdata(np.nan_to_num(values, nan=-math.inf)) / max(1, len(values))
    return ranks


def _excerpt(text: str) -> str:
    """A text, its middle left out when it is long."""
    return text if len(text) <= EXCERPT else f"{text[: EXCERPT * 2 // 3]} … {text[-EXCERPT // 3 :]}"


def watched_lines(watched: Watched) -> list[str]:
    """The findings with their completions, then how every reward moved; the verdict first."""
    warned = [finding for finding in watched.findings if finding.severity == "warn"]
    verdict = (
        f"{len(warned)} finding{'s' if len(warned) != 1 else ''}" if warned else "nothing found"
    )
    size = (
        f"{watched.n_completions:,} completions to {watched.n_groups:,} prompts"
        if watched.n_completions
        else "charts only"
    )
    unit = "steps" if watched.has_steps else "no steps: rows"
    lines = [
        f"{verdict}: {watched.name}, {size}, {unit} {watched.steps[0]:g} to {watched.steps[1]:g} "
        f"(early up to {watched.early[1]:g}, late from {watched.late[0]:g})"
    ]
    for finding in watched.findings:
        lines += ["", f"{finding.severity.upper()} {finding.kind}: {finding.text}"]
        for example in finding.examples:
            lines += _example(example)
    if watched.moved:
        width = max(map(len, watched.moved))
        lines += [
            "",
            f"{'reward':<{width}}    early     late  {'change':<28}with length, late",
        ]
        for name, moved in watched.moved.items():
            change = f"  {'too few groups to tell':<46}"
            if moved is not None:
                ci = f"[{moved.interval.low:+.3g}, {moved.interval.high:+.3g}]"
                change = f"{moved.early:9.3g}{moved.late:9.3g}  {f'{moved.change:+.3g} {ci}':<28}"
            link = watched.by_length.get(name)
            by_length = "" if link is None else _shown(link)
            lines.append(f"{name:<{width}}{change}{by_length}".rstrip())
    return [plain_line(line) for line in (*lines, *(f"note: {note}" for note in watched.notes))]


def _example(example: dict[str, Any]) -> list[str]:
    scores = ", ".join(
        f"{name} {'none' if value is None else format(value, '.3g')}"
        for name, value in example["rewards"].items()
    )
    text = textwrap.shorten(str(example["completion"]), 200, placeholder=" …") or "(empty)"
    return [f"  step {example['step']:g}, row {example['row']}: {scores}", f"    {text}"]
