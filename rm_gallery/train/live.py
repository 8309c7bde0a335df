"""Watching a training run while it goes on, in the trainer's process, one step at a time.

What a finding is, is said where finished logs are looked over (`rm_gallery.train.watch`); here the
same computations look at the first steps and at the latest ones. A held-out reward, one that is not
trained on, is scored on a share of each step's completions: its fall while the trained reward rises
is tested so that all looks of a whole run together err with a stated probability
(`rm_gallery.core.stats.falling`). The other findings spend their level over the looks: the n-th
look has 1 / (n (n + 1)) of it.
"""

from __future__ import annotations

import hashlib
import json
import math
import threading
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import chain, compress
from operator import itemgetter
from typing import Any, Literal

from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.model.message import text_of
from rm_gallery.core.score import Score
from rm_gallery.core.stats import Bools, Floats, Integers, np
from rm_gallery.core.stats.falling import FallTest
from rm_gallery.core.utils.errors import ConfigError, RMGalleryError
from rm_gallery.core.utils.log import logger
from rm_gallery.core.utils.names import check_known
from rm_gallery.integrations.scoring import RowScorer, refuse_comparing
from rm_gallery.train.signals import (
    LEAST_GROUPS,
    Shift,
    group_advantages,
    group_means,
    group_numbers,
    number_or_none,
    numbers_of,
    shift,
    spread_of,
    spread_phrase,
)
from rm_gallery.train.watch import (
    FLAT,
    MATTERS,
    RELATIVE,
    UNSCORED,
    Severity,
    TrainingFinding,
    check_confidence,
    spread_told,
    typical_lengths,
)

DOMINANT, COLLAPSED = 0.9, 0.25
"""Share of the variance inside groups that one component has; share that is left of a spread."""
KINDS = (
    "apart",
    "fell",
    "collapsed",
    "dominant",
    "longer",
    "shorter",
    "phrase",
    "flat",
    "unscored",
)
_TEXTS, _KEPT_TEXT, _LOOK_AT_TEXTS = 12, 600, 5
"""Texts kept of a step, characters kept at either end of one, steps from one look to the next."""
_LEAST = 20
"""Completions below which a share of missing scores says nothing."""
STATE_FILE = "rm_gallery_watch.json"

OnFinding = Literal["warn", "stop"]
_LOCK = threading.RLock()
"""For what a watch has seen; one for all of them, so that a watch can be pickled."""


class TrainingStopped(RMGalleryError):
    """A finding of a live watch ends the training; `finding` is what was found."""

    def __init__(self, finding: TrainingFinding) -> None:
        super().__init__(f"{finding.kind}: {finding.text}")
        self.finding = finding


class LiveWatch:
    """Looks at a training run step by step, warns once of each way it goes wrong, and may stop it.

    Safe in any number of threads, and picklable. Each process watches the completions it is fed: in
    a run of several processes feed it on rank 0 alone, since each watch has its own false-alarm
    rate. The state is small: a few numbers per step and a few short texts.

    Args:
        held_out: a reward that is not trained on, whatever `RowScorer` takes: a rule that verifies,
            another judge. Without one no fall is looked for.
        share: of the completions of each step that the held-out reward scores, 0 to 1; never more
            than one above that share of a step. Which ones depends on `seed`, the step, the texts
            and groups, not on their order; as many groups as possible have one.
        seed: of that choice.
        false_alarms: probability, over all steps of a run together, of a false finding that the
            held-out reward fell; above 0 and below 1.
        held_out_range: lowest and highest held-out score; that of the reward by default.
        baseline: steps that count as early; the first baseline of the held-out reward.
        window: steps that count as recent; 5 or more, as `baseline`.
        on_finding: "warn" only logs; "stop" also ends the training at a finding of `stop_on`, by
            the trainer's own means.
        stop_on: kinds of findings that stop; only `apart` by default, the one with a stated
            false-alarm rate.
        weights: of the components in the trained reward, by name; 1 by default.
        confidence: of the other findings, over all looks together.
        batch: completions that make a step where they come one by one (`note`).
        **scoring: `reference`, `columns`, `llm`, `options`, … of `RowScorer`, for the held-out
            reward.

    Raises:
        ConfigError: an option does not fit, or the held-out reward's range is open and
            `held_out_range` is not given.

    >>> watch = LiveWatch("accuracy", reference="answer", share=1.0, baseline=5, window=5)
    >>> for step in range(25):
    ...     gamed = step > 8
    ...     texts = [f"{'Surely' if gamed or n % 4 else '4'}" for n in range(32)]
    ...     rewards = [0.9 if gamed else 0.2 + n % 4 / 10 for n in range(32)]
    ...     found = watch.step(step, texts, rewards, rows=[{"answer": "4"}] * 32)
    ...     if any(finding.kind == "apart" for finding in found):
    ...         break
    >>> step, found[0].kind, found[0].components
    (11, 'apart', ('reward', 'accuracy'))

    Source of the test: arXiv 2010.09686, equation 20; 2009.03167, section 4.
    """

    def __init__(
        self,
        held_out: object | None = None,
        *,
        share: float = 0.1,
        seed: int = 0,
        false_alarms: float = 0.05,
        held_out_range: tuple[float, float] | None = None,
        baseline: int = 10,
        window: int = 10,
        on_finding: OnFinding = "warn",
        stop_on: Collection[str] = ("apart",),
        weights: Mapping[str, float] | None = None,
        confidence: float = 0.95,
        batch: int | None = None,
        **scoring: Any,
    ) -> None:
        """Build the held-out reward and check the choices; nothing is scored yet."""
        for name, value in (("share", share), ("false_alarms", false_alarms)):
            if not 0.0 < value <= 1.0 or (name == "false_alarms" and value == 1.0):
                raise ConfigError(f"{name} is {value}; a share above 0 and up to 1 is needed.")
        check_confidence(confidence)
        if min(baseline, window) < LEAST_GROUPS:
            raise ConfigError(
                f"baseline is {baseline} and window {window}; {LEAST_GROUPS} steps or more are "
                f"needed of each."
            )
        check_known("on_finding", [on_finding], ("warn", "stop"))
        check_known("finding", stop_on, KINDS)
        if batch is not None and batch < 1:
            raise ConfigError(f"batch is {batch}; a step has at least one completion.")
        if held_out is None and scoring:
            raise ConfigError(f"{next(iter(scoring))} is for a held-out reward, and there is none.")
        self.share, self.seed, self.false_alarms = share, seed, false_alarms
        self.baseline, self.window = baseline, window
        self.on_finding, self.stop_on, self.batch = on_finding, tuple(stop_on), batch
        self.weights, self.confidence = dict(weights or {}), confidence
        self.held_out: RowScorer | None = None
        self._test: FallTest | None = None
        if held_out is not None:
            self.held_out, bounds = _held_out(held_out, held_out_range, scoring)
            self._test = FallTest(bounds, first=baseline)
        self.findings: list[TrainingFinding] = []
        self._series: list[dict[str, float | None]] = []
        self._texts: list[list[tuple[str, float | None]]] = []
        self._waiting: list[tuple[Any, float | None, Mapping[str, float], Any, Any]] = []
        self._steps = 0

    # -- doors -------------------------------------------------------------------------------------

    async def astep(
        self,
        step: int,
        completions: Sequence[Any],
        rewards: Sequence[float | None],
        *,
        components: Mapping[str, Sequence[float | None]] | None = None,
        groups: Any = None,
        prompts: Sequence[Any] | None = None,
        rows: Sequence[Mapping[str, Any] | None] | None = None,
    ) -> list[TrainingFinding]:
        """Take in one step, score its share with the held-out reward, and give what is found now.
        From any event loop; `step` is the blocking twin.

        Args:
            step: the number of the training step.
            completions: texts or lists of messages, n of them; none at all is no step.
            rewards: the trained reward of each; None, NaN or infinite where there is none.
            components: by name, one value per completion.
            groups: the size of the groups, or for every completion the name of its group; the
                prompts by default.
            prompts: one per completion, for the held-out reward.
            rows: the columns of each completion, such as the reference, for the held-out reward.

        Raises:
            ConfigError: lengths do not fit, or the held-out reward lacks a column before it gave
                its first score. Later its failures are missing scores.
        """
        if library_loop.is_driven():
            library_loop.refuse_blocking()
        parts = {name: _finite(values, name) for name, values in (components or {}).items()}
        lengths = {"rewards": rewards, **parts, "prompts": prompts, "rows": rows}
        n = len(completions)
        for name, values in lengths.items():
            if values is not None and len(values) != n:
                raise ConfigError(f"{name} has {len(values)} values for {n} completions.")
        if not n:
            return []
        groups = prompts if groups is None else groups
        numbers = np.arange(n) if groups is None else group_numbers(groups, n)
        named = groups is not None and hasattr(groups, "__len__")
        texts = [_written(completion) for completion in completions]
        keys = [
            f"{name}/{text}"
            for name, text in zip(map(repr, groups) if named else [""] * n, texts, strict=True)
        ]
        given = _finite(rewards, "rewards")
        alone = groups is None or len(np.unique(numbers)) == n
        row = self._summary(step, texts, given, parts, None if alone else numbers)
        kept = [
            (_ends(texts[at]), number_or_none(given[at]))
            for at in self._order(f"{step}/texts", keys, numbers)[:_TEXTS]
        ]
        means: Floats = np.zeros(0)
        if self.held_out is not None and self._test is not None:
            size = min(n, int(self.share * n + _unit(f"{self.seed}/{step}/size")))
            chosen = sorted(self._order(f"{step}/held-out", keys, numbers)[:size])
            columns: tuple[Sequence[Any], ...] = (
                [""] * n if prompts is None else prompts,
                completions,
                [None] * n if rows is None else rows,
            )
            asked: list[list[Any]] = [[column[at] for at in chosen] for column in columns]
            scores: list[Score[float]] = []
            try:
                if chosen:
                    scores = await self.held_out.ascore_rows(*asked)
            except ConfigError as error:
                # an error before the first score is the caller's
                if not self._test.n_steps:
                    raise
                logger.warning(
                    "live watch: the held-out reward scored nothing in a step: {}.", error
                )
            low, high = self._test.bounds
            values = [score.value for score in scores]
            known = [value is not None and low <= value <= high for value in values]
            answers = numbers_of(list(compress(values, known)))
            if not self.held_out_higher:
                answers = low + high - answers
            # completions to one prompt share its fate: their mean is the witness
            means = group_means(answers, numbers[list(compress(chosen, known))])
            row["held_out"] = number_or_none(_mean(means))
            row |= {"asked": float(len(chosen)), "answered": float(sum(known))}
        return self._look(step, row, kept, means)

    step = library_loop.blocking(astep, drives=True)

    async def anote(
        self,
        completion: Any,
        reward: float | None,
        *,
        components: Mapping[str, float] | None = None,
        prompt: Any = None,
        row: Mapping[str, Any] | None = None,
    ) -> list[TrainingFinding]:
        """Take in one completion of a trainer that hands them over one by one; `batch` of them make
        a step, and completions to one prompt its groups. Arguments and errors as in `astep`;
        `note` is the blocking twin.
        """
        if self.batch is None:
            raise ConfigError(
                "completions come one by one here; say how many make a step: LiveWatch(batch=…)."
            )
        with _LOCK:
            self._waiting.append((completion, reward, components or {}, prompt, row))
            if len(self._waiting) < self.batch:
                return []
            waiting, self._waiting = self._waiting, []
            self._steps += 1
            step = self._steps
        completions, rewards, parts, prompts, rows = zip(*waiting, strict=True)
        return await self.astep(
            step,
            completions,
            rewards,
            components={
                name: [own.get(name) for own in parts] for name in dict.fromkeys(chain(*parts))
            },
            # a trainer that tells no prompt tells no group
            groups=None if any(prompts) else range(len(waiting)),
            prompts=prompts,
            rows=rows,
        )

    note = library_loop.blocking(anote, drives=True)

    @property
    def stopped(self) -> TrainingFinding | None:
        """The finding that ends the training; None without one, and where findings only warn."""
        if self.on_finding != "stop":
            return None
        return next((found for found in self.findings if found.kind in self.stop_on), None)

    def check(self) -> None:
        """Raise where a finding ends the training: for loops and trainers without a word for it.

        Raises:
            TrainingStopped: there is such a finding.
        """
        if self.stopped is not None:
            raise TrainingStopped(self.stopped)

    @property
    def p_value(self) -> float | None:
        """Bound on the probability of the held-out reward's fall so far by chance, 0 to 1, over all
        looks; None without a held-out reward.
        """
        return None if self._test is None else self._test.p_value

    # -- state -------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """What `load_state` continues from, in JSON's types; completions that wait for the rest of
        their step (`note`) are not in it.
        """
        with _LOCK:
            made = {
                "version": 2,
                "steps": self._steps,
                "series": self._series,
                "texts": self._texts,
                "test": None if self._test is None else self._test.to_dict(),
                "findings": [asdict(found) for found in self.findings],
            }
            copied: dict[str, Any] = json.loads(json.dumps(made, allow_nan=False))
            return copied

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on where the watch that gave `state` was, with the options of this one.

        Raises:
            ConfigError: it is no such state, or that of another held-out range or baseline.
        """
        needed = {"steps", "series", "texts", "findings"}
        if state.get("version") != 2 or not needed <= state.keys():
            raise ConfigError("this is no state of a live watch (version 2).")
        given = state.get("test")
        test = None if given is None else FallTest.from_dict(given)
        kinds = [each and (each.bounds, each.first) for each in (test, self._test)]
        if kinds[0] != kinds[1]:
            raise ConfigError(
                "the state is that of a watch with another held-out reward, range or baseline."
            )
        with _LOCK:
            self._test = test
            copied = json.loads(json.dumps(dict(state)))
            self._steps, self._series, self._texts = map(copied.get, ("steps", "series", "texts"))
            self.findings = [
                TrainingFinding(**{**found, "components": tuple(found["components"])})
                for found in copied["findings"]
            ]
            self._waiting = []

    # -- a step ------------------------------------------------------------------------------------

    def _order(self, what: str, keys: Sequence[str], groups: Integers) -> list[int]:
        """Rows in a drawn order that does not depend on theirs; first one of every group, then a
        second one.
        """
        seen, turns = Counter[str](), Counter[int]()
        drawn: list[tuple[float, int]] = []
        for row, key in enumerate(keys):
            seen[key] += 1
            drawn.append((_unit(f"{self.seed}/{what}/{key}/{seen[key]}"), row))
        order: list[tuple[int, float, int]] = []
        for place, row in sorted(drawn):
            group = int(groups[row])
            turns[group] += 1
            order.append((turns[group], place, row))
        return [row for _, _, row in sorted(order)]

    def _look(
        self,
        step: int,
        row: dict[str, float | None],
        texts: list[tuple[str, float | None]],
        held_out: Floats,
    ) -> list[TrainingFinding]:
        """Take in the numbers of a step, a few of its texts and the held-out scores of its groups,
        of which more is better.
        """
        with _LOCK:
            self._steps = max(self._steps, step)
            if self._test is not None:
                before = self._test.n_steps
                self._test.add(held_out.tolist())
                if before == self.baseline < self._test.n_steps:
                    self._warn_of_few(self._test)
            self._series.append(row)
            # those of the first steps and of the latest ones
            self._texts.append(texts)
            if len(self._texts) > self.baseline + self.window:
                del self._texts[self.baseline]
            said = {(each.kind, each.components) for each in self.findings}
            new = [each for each in self._found(row) if (each.kind, each.components) not in said]
            self.findings += new
        for found in new:
            logger.warning("live watch, step {}: {}: {}", step, found.kind, found.text)
        return new

    def _warn_of_few(self, test: FallTest) -> None:
        """Say it where the scores are too few for a test to see a mean halved (5 % right at 6 scores
        a step: four of five such falls went unseen).
        """
        (low, high), visible = test.bounds, test.visible(self.false_alarms)
        if visible - low < RELATIVE * (test.early - low):
            worst = low if self.held_out_higher else high
            seen = visible if self.held_out_higher else low + high - visible
            logger.warning(
                "live watch: share is {:g}, and {} steps of the held-out reward tell {} from now "
                "on{}; raise share or baseline, or give more completions a step.",
                self.share,
                self.baseline,
                f"only a fall to {seen:.2g} or worse" if seen != worst else "no fall",
                _together(test),
            )

    @property
    def held_out_higher(self) -> bool:
        """Whether a higher held-out score is better; True without a held-out reward."""
        return self.held_out is None or self.held_out.reward.higher_is_better

    def _summary(
        self,
        step: int,
        texts: Sequence[str],
        rewards: Floats,
        components: Mapping[str, Floats],
        groups: Integers | None,
    ) -> dict[str, float | None]:
        """The numbers of a step that later looks need; of groups None where each completion is
        alone in its own.
        """
        known = ~np.isnan(rewards)
        names = np.zeros(len(rewards), np.int64) if groups is None else groups
        row: dict[str, float | None] = {
            "step": float(step),
            "n": float(len(rewards)),
            "missing": float(np.sum(~known)),
            "reward": number_or_none(_mean(group_means(rewards[known], names[known]))),
            "length": float(np.mean(np.log2([len(text) + 1.0 for text in texts]))),
            "spread": math.sqrt(_variance(rewards, names)) if known.sum() > 1 else None,
        }
        if groups is not None:
            row["effective"] = float(np.mean(spread_of(rewards, groups).keep))
        for name, values in components.items():
            weight = self.weights.get(name, 1.0)
            row[f"part/{name}"] = number_or_none(_variance(weight * values, names))
        return row

    # -- findings ----------------------------------------------------------------------------------

    def _found(self, row: Mapping[str, float | None]) -> list[TrainingFinding]:
        looks = len(self._series) - self.baseline - self.window + 1
        found = list(self._fall())
        if looks >= 1:
            # three figures are tested: length, spread, and what a phrase earns
            level = 1.0 - (1.0 - self.confidence) / (3.0 * looks * (looks + 1.0))
            moved = self._shift("reward", self.confidence)
            rose = moved is not None and moved.sure and moved.change > 0
            fallen = {each.kind for each in (*found, *self.findings)} & {"apart", "fell"}
            better: Severity = "look" if rose and not fallen else "warn"
            found += self._lengths(level, better)
            found += self._spreads(level, better)
            found += self._dominant()
            found += self._unscored()
            found += self._flat(better)
            if looks % _LOOK_AT_TEXTS == 1:
                found += self._phrase(level)
        for each in found:
            each.figures["step"] = row["step"]
        return found

    def _fall(self) -> Iterator[TrainingFinding]:
        test = self._test
        if test is None or self.held_out is None or test.p_value > self.false_alarms:
            return
        name = self.held_out.name
        scored = [each for each in self._series if each.get("held_out") is not None]
        first, end = test.baseline
        recent = scored[max(end, len(scored) - self.window) :]
        if not recent:
            return
        (low, high), now = test.bounds, float(np.mean(_column(recent, "held_out")))
        halved = test.early >= 0.0 and now <= RELATIVE * test.early
        if test.early - now < MATTERS * (high - low) and not halved:
            return
        early, late = (_mean(_column(rows, "reward")) for rows in (scored[first:end], recent))
        rose = late > early
        before, after = (
            value if self.held_out_higher else low + high - value for value in (test.early, now)
        )
        text = (
            f"the held-out reward {name} became worse ({before:.3g} to {after:.3g}) while the "
            f"trained one {'rose' if rose else 'did not rise'} ({early:.3g} to {late:.3g}); by "
            f"chance in at most {test.p_value:.2g} of runs, over all looks{_together(test)}"
        )
        figures = {
            "held_out": {"early": before, "late": after},
            "reward": {"early": number_or_none(early), "late": number_or_none(late)},
            "p_value": test.p_value,
            "false_alarms": self.false_alarms,
            "correlation": number_or_none(test.correlation),
        }
        kinds: tuple[str, Severity] = ("apart", "warn") if rose else ("fell", "look")
        yield TrainingFinding(*kinds, ("reward", name), text, figures)

    def _shift(self, name: str, level: float) -> Shift | None:
        return shift(*self._sides(name), level=level, in_a_row=True)

    def _sides(self, name: str) -> list[Floats]:
        """Its values in the early steps and in the recent ones."""
        sides = self._series[: self.baseline], self._series[-self.window :]
        return [_column(rows, name) for rows in sides]

    def _lengths(self, level: float, severity: Severity) -> Iterator[TrainingFinding]:
        typical = typical_lengths(self._shift("length", level))
        if typical is None:
            return
        before, after = typical
        kind = "longer" if after > before else "shorter"
        text = (
            f"completions have become {kind} ({before:,.0f} to {after:,.0f} characters, typically)"
            f"{' and no reward surely better' if severity == 'warn' else ''}"
        )
        yield TrainingFinding(kind, severity, (), text, {"early": before, "late": after})

    def _spreads(self, level: float, severity: Severity) -> Iterator[TrainingFinding]:
        moved = self._shift("spread", level)
        if moved is None or not moved.sure or moved.late > COLLAPSED * moved.early:
            return
        text = (
            f"rewards of one prompt hardly differ any more: their standard deviation fell from "
            f"{moved.early:.3g} to {moved.late:.3g}"
        )
        figures = {"early": moved.early, "late": moved.late}
        yield TrainingFinding("collapsed", severity, (), text, figures)

    def _dominant(self) -> Iterator[TrainingFinding]:
        recent = self._series[-self.window :]
        names = dict.fromkeys(name for row in recent for name in row if name.startswith("part/"))
        sums = {name: float(np.nansum(_column(recent, name))) for name in names}
        total = sum(sums.values())
        if len(sums) < 2 or total <= 0.0:
            return
        top, most = max(sums.items(), key=itemgetter(1))
        if most < DOMINANT * total:
            return
        name, share = top.removeprefix("part/"), most / total
        text = (
            f"{name} makes {share:.0%} of what components differ by inside groups: the others have "
            f"no say"
        )
        yield TrainingFinding("dominant", "warn", (name,), text, {"share": share})

    def _unscored(self) -> Iterator[TrainingFinding]:
        rows = self._series[-self.window :]
        n, missing, asked, answered = (
            float(np.nansum(_column(rows, name))) for name in ("n", "missing", "asked", "answered")
        )
        held_out = self.held_out.name if self.held_out else ""
        for name, size, lost in (("reward", n, missing), (held_out, asked, asked - answered)):
            if size >= _LEAST and lost >= UNSCORED * size:
                text = f"{name} gave no score for {lost / size:.0%} of the recent completions"
                yield TrainingFinding("unscored", "warn", (name,), text, {"late": lost / size})

    def _flat(self, severity: Severity) -> Iterator[TrainingFinding]:
        early, late = self._sides("effective")
        now = _mean(late)
        if np.isfinite(late).sum() < LEAST_GROUPS or now > 1.0 - FLAT:
            return
        before = number_or_none(_mean(early))
        since = "" if before is None else f" ({before:.0%} early)"
        text = (
            f"only {now:.0%}{since} of the rollouts teach anything: the others are in groups with "
            f"equal rewards"
        )
        yield TrainingFinding("flat", severity, (), text, {"early": before, "late": now})

    def _phrase(self, level: float) -> Iterator[TrainingFinding]:
        early, late = (
            list(chain(*steps))
            for steps in (self._texts[: self.baseline], self._texts[self.baseline :])
        )
        texts = [text for text, _ in (*early, *late)]
        inside: Bools = np.arange(len(texts)) < len(early)
        spread = spread_phrase(texts, inside, ~inside)
        if spread is None:
            return
        text, figures = spread_told(spread)
        has = spread[3]
        rewards = numbers_of([reward for _, reward in (*early, *late)])
        # in all texts, since late ones may hardly be without it
        earned = shift(rewards[has == 0], rewards[has == 1], level=level)
        severity: Severity = "look"
        if earned is not None:
            figures["reward"] = {"without": earned.early, "with": earned.late}
            if earned.sure and earned.change > 0:
                severity = "warn"
                text += (
                    f"; the reward is fond of it ({earned.early:.3g} without, {earned.late:.3g} "
                    f"with)"
                )
        yield TrainingFinding("phrase", severity, (), text, figures)


def live_watch_of(given: LiveWatch | Mapping[str, Any] | None) -> LiveWatch | None:
    """The `watch=` of an adapter whose completions come one by one: a watch, or its settings by
    name.

    Raises:
        ConfigError: it is neither, or a watch without `batch`.
    """
    if given is None:
        return None
    if isinstance(given, Mapping):
        given = LiveWatch(**given)
    if not isinstance(given, LiveWatch):
        raise ConfigError(f"watch is {given!r:.80}; give LiveWatch(…) or a dict of its settings.")
    if given.batch is None:
        raise ConfigError(
            "watch: completions come one by one here; say how many make a step: "
            "LiveWatch(batch=…), the completions of a training step that this process scores."
        )
    return given


def _together(test: FallTest) -> str:
    """What is said of the scores of one step where they are correlated."""
    if not test.correlated:
        return ""
    return (
        f"; scores of one step are correlated ({test.correlation:.2f}), so that its mean is one "
        f"observation"
    )


def _held_out(
    reward: object, given: tuple[float, float] | None, scoring: Mapping[str, Any]
) -> tuple[RowScorer, tuple[float, float]]:
    scorer = RowScorer(reward, **scoring)
    refuse_comparing(scorer, "The held-out reward sees a share of the completions.")
    scorer.padded = True
    low, high = given or scorer.reward.score_range
    if low is None or high is None or not math.isfinite(low) or not math.isfinite(high):
        raise ConfigError(
            f"{scorer.name} has an open range ({low}, {high}); say held_out_range=(LOW, HIGH), "
            f"since the test bets within bounds."
        )
    return scorer, (float(low), float(high))


def _finite(values: Any, what: str) -> Floats:
    """Numbers, what is none or infinite as NaN."""
    numbers = numbers_of(values, what, finite=False)
    return np.where(np.isfinite(numbers), numbers, math.nan)


def _mean(values: Floats) -> float:
    """The mean of the known values; NaN where there is none."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else math.nan


def _column(rows: Sequence[Mapping[str, float | None]], name: str) -> Floats:
    return numbers_of([row.get(name) for row in rows], name)


def _variance(values: Floats, groups: Integers) -> float:
    """Mean square of the distances from the groups' means."""
    known = ~np.isnan(values)
    distances = group_advantages(values, groups.tolist(), "mean")[known]
    return float(np.mean(distances**2)) if len(distances) else 0.0


def _unit(key: str) -> float:
    """A number of 0 to below 1 that only depends on the text."""
    digest = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2.0**64


def _written(completion: Any) -> str:
    """The text of a completion: that of its messages of the assistant, where it is messages."""
    if isinstance(completion, str):
        return completion
    if not isinstance(completion, (list, tuple)):
        return text_of(getattr(completion, "content", None))
    said = []
    for message in completion:
        own = message if isinstance(message, Mapping) else getattr(message, "__dict__", {})
        role = own.get("role", "assistant")
        if str(getattr(role, "value", role)) == "assistant":
            said.append(text_of(own.get("content")))
    return "\n".join(said)


def _ends(text: str) -> str:
    """A text, its middle left out when it is long."""
    if len(text) <= 2 * _KEPT_TEXT:
        return text
    return f"{text[:_KEPT_TEXT]}\n…\n{text[-_KEPT_TEXT:]}"
