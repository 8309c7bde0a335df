"""How a run goes: the options that every door takes."""

from __future__ import annotations

import math
import operator
import re
import shutil
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from os import PathLike
from typing import Any, Literal, TypedDict

from rm_gallery.core.engine.context import RunControl
from rm_gallery.core.model.budget import Budget
from rm_gallery.core.score import NOT_BEGUN, Score, deciding
from rm_gallery.core.utils.errors import ConfigError, Inapplicable, logger
from rm_gallery.core.utils.models import unknown_name

MAX_WORKERS = 64
"""Judgements in flight at once, at every door, where nobody says otherwise."""


@dataclass(frozen=True)
class RunOptions:
    """How a run goes. Every door takes these names as keywords, too; they win over `options=`."""

    max_workers: int = MAX_WORKERS
    """Judgements of one reward in flight at once, in this process."""
    deadline: float | None = None
    """Seconds one sample may take; None takes the reward's own."""
    progress: bool | None = False
    """True shows progress on stderr, None only on a terminal or in a notebook."""
    cache: bool | None = None
    """None caches replies at temperature 0, False neither reads nor writes the cache."""
    budget: Budget | None = None
    run_dir: str | None = None
    """Folder that keeps every finished sample; the same run continues there."""
    manifest: dict[str, Any] | None = None
    """What else identifies the run (data file and its hash, protocol); compared when the run is
    continued.
    """
    force_new: bool = False
    """Set an existing run with another manifest aside instead of refusing."""
    repeat: int = 0
    """Which of several equal runs this is; judge replies are cached per number."""
    total: int | None = None
    """Number of samples where it is known and the iterable has no length."""
    control: RunControl | None = None
    """Counters and stop switch, begun anew with the run; given by a caller that wants to read them
    afterwards.
    """
    engine: Literal["ray"] | None = None
    """"ray" has actors of a Ray cluster judge, with one set of limits, one budget and one cache;
    `max_workers` is for all of them together. None judges in this process."""
    address: str | None = None
    """Of the Ray cluster; None is the one that RAY_ADDRESS names, else one that is begun here, with
    the cores of this machine.
    """
    processes: int | None = None
    """Actors with `engine="ray"`, one a processor by default; else the killable processes of a
    reward that is `cpu_bound`, one a processor by default. Nothing else has processes."""
    batch: Literal["openai", "anthropic"] | None = None
    """Judge by the batch API of this provider, at half the price and within a day. Needs `run_dir`:
    there it is kept what was sent, so that the same call waits for it after a restart."""
    submit: bool = False
    """With `batch`: end once what can be asked now is sent; the same call without it collects."""
    blame: Literal["probe", "off"] | None = None
    """"probe" tries an answer that could not be judged again, and then others that were in its
    place; where only those can be judged the answer caused it, and has the worst score of the
    range. None is "probe" wherever a score trains, else "off"."""
    trace: bool = False
    """Keep prompt, reply, tokens and seconds of every judgement in the run folder."""

    def __post_init__(self) -> None:
        """Raise ConfigError for a value that its option does not take."""
        object.__setattr__(self, "max_workers", whole("max_workers", self.max_workers, 1))
        object.__setattr__(self, "repeat", whole("repeat", self.repeat, 0))
        if self.processes is not None:
            object.__setattr__(self, "processes", whole("processes", self.processes, 1))
        for name, (kind, what) in _KINDS.items():
            value = getattr(self, name)
            if value is not None and not isinstance(value, kind):
                raise ConfigError(f"{name} is {value!r:.80}; it is {what}.")
        seconds = self.deadline
        if seconds is not None and not (
            isinstance(seconds, int | float) and 0 < seconds < math.inf
        ):
            raise ConfigError(f"deadline is {seconds!r}; give a positive number of seconds.")
        if self.blame not in (None, "probe", "off"):
            raise ConfigError(f"blame is {self.blame!r:.80}; it is 'probe' or 'off'.")
        self._check_ray()
        if self.run_dir is not None:
            object.__setattr__(self, "run_dir", _on_a_disk(str(self.run_dir)))
        if self.batch is not None:
            self._check_batch()
        elif self.submit:
            raise Inapplicable(
                "submit=True sends batches: give batch='openai' or batch='anthropic' as well.",
                "submit",
            )
        if self.trace and self.run_dir is None:
            raise Inapplicable(
                "trace=True keeps judgements in the run folder: give run_dir=… as well.", "trace"
            )

    def _check_ray(self) -> None:
        if self.engine not in (None, "ray"):
            raise ConfigError(
                f"engine is {self.engine!r:.80}; it is 'ray', or left out for this machine."
            )
        if self.address is not None and self.engine is None:
            raise Inapplicable(
                "address is that of a Ray cluster: give engine='ray' as well.", "address"
            )

    def _check_batch(self) -> None:
        if self.batch not in BATCH_PROVIDERS:
            raise ConfigError(
                f"batch is {self.batch!r:.80}; it is {' or '.join(map(repr, BATCH_PROVIDERS))}."
            )
        if self.run_dir is None:
            raise Inapplicable(
                "batch= keeps what was sent in the run folder, for a restart: give run_dir= "
                "(--out RUN) as well.",
                "batch",
            )
        for name in ("deadline", "processes", "engine"):
            if getattr(self, name) is not None:
                raise Inapplicable(
                    f"{name}= is for calls of their own: leave it out with batch=, whose calls "
                    f"take up to a day.",
                    name,
                    "batch",
                )


class RunKeywords(TypedDict, total=False):
    """The fields of `RunOptions` as keywords; None leaves an option as it is."""

    max_workers: int | None
    deadline: float | None
    progress: bool | None
    cache: bool | None
    budget: Budget | None
    run_dir: str | PathLike[str] | None
    manifest: dict[str, Any] | None
    force_new: bool | None
    repeat: int | None
    total: int | None
    control: RunControl | None
    processes: int | None
    engine: Literal["ray"] | None
    address: str | None
    batch: Literal["openai", "anthropic"] | None
    submit: bool | None
    blame: Literal["probe", "off"] | None
    trace: bool | None


BATCH_PROVIDERS = {"openai": 50_000, "anthropic": 100_000}
"""By name, the most requests of one batch."""
BATCH_PRICE_SHARE = 0.5
"""Of the online price, what a call in a batch costs (OpenAI and Anthropic, 2026)."""


def detached_options(options: RunOptions, **changes: Any) -> RunOptions:
    """How something is judged beside a run: in this process, by calls of its own, and keeping
    nothing.
    """
    local: dict[str, Any] = {
        "processes": None,
        "engine": None,
        "address": None,
        "batch": None,
        "submit": False,
    }
    return replace(
        options, **{**local, "run_dir": None, "trace": False, "progress": False, **changes}
    )


def _on_a_disk(folder: str) -> str:
    if re.match(
        r"[a-z][a-z0-9+.-]+:/", folder
    ):  # a path has lost one of the slashes; C:/ is no URL
        raise ConfigError(
            f"run_dir is {folder!r:.80}, and a run folder stands on a disk: name a folder, "
            f"and copy it when the run is over."
        )
    return folder


_SWITCH = bool, "True or False"
_KINDS: dict[str, tuple[type, str]] = {
    "progress": _SWITCH,
    "cache": _SWITCH,
    "force_new": _SWITCH,
    "trace": _SWITCH,
    "submit": _SWITCH,
    "budget": (Budget, "a Budget(max_calls=…, max_tokens=…, max_cost=…)"),
    "control": (RunControl, "a RunControl()"),
}


def whole(name: str, value: Any, least: int) -> int:
    """A whole number of at least `least`; ConfigError for anything else."""
    try:
        number = least - 1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = least - 1
    if number < least:
        raise ConfigError(
            f"{name} is {value!r:.80}; give a "
            f"{'positive whole number' if least else 'whole number, 0 or more'}."
        )
    return number


OPTIONS = frozenset(field.name for field in fields(RunOptions))


EARLIER = {"part": "shard"}
"""Keywords of callers that have another name now."""


def chosen_options(
    options: RunOptions | None,
    default: RunOptions,
    given: Mapping[str, Any],
    known: Iterable[str] | None = (),
    other_parameters: Collection[str] = (),
) -> tuple[RunOptions, dict[str, Any]]:
    """`options`, else `default`, with the keywords of a call on top, and those of them that are
    `known` to the hooks (None where there are none).

    A keyword that is None leaves the option as it is, and so does max_workers=0, the default of
    0.1. `other_parameters` are the caller's own keywords, suggested when an unknown one looks like
    them.
    Raises ConfigError: a keyword is neither an option nor known; names the nearest ones.
    """
    hooks = {name: value for name, value in given.items() if name not in OPTIONS}
    of_hooks = frozenset(known or ())
    for name in hooks:
        if name not in of_hooks:
            if (now := EARLIER.get(name)) in other_parameters:
                raise ConfigError(f"{name}= is spelled {now}= now.")
            what, hint = "option", ""
            if known is not None:
                what = "option or hook parameter"
                hint = "Values for hooks that only take **kwargs are passed as hooks={…}."
            raise ConfigError(
                unknown_name(what, name, OPTIONS | of_hooks | {*other_parameters}, hint)
            )
    changes = {
        name: value for name, value in given.items() if name in OPTIONS and value is not None
    }
    if changes.get("max_workers") == 0 and changes["max_workers"] is not False:
        del changes["max_workers"]
    if options is not None and not isinstance(options, RunOptions):
        raise ConfigError(f"options is a {type(options).__name__}; it is RunOptions(…).")
    chosen = default if options is None else options
    return (replace(chosen, **changes) if changes else chosen), hooks


LINE_SECONDS = 10.0
FIRST_LINE_SECONDS = 2.0
REFRESH_SECONDS = 0.1
WIDTH = 80
SHORT_LABEL = 6


class Progress:
    """Counts outcomes, and shows done/total, time left, failed, stopped, unscored, cost, rate and
    what else there is room for.

    `enabled=None` shows it only where somebody looks: on a terminal, or in a notebook.
    """

    def __init__(
        self, control: RunControl, total: int | None, enabled: bool | None, label: str
    ) -> None:
        self._live = sys.stderr.isatty() or "ipykernel" in sys.modules
        self.shown = self._live if enabled is None else enabled
        """Whether anything is shown at all."""
        self.label = label
        self._control = control
        self._total = total
        self._started = time.monotonic()
        self._next = self._started + (REFRESH_SECONDS if self._live else FIRST_LINE_SECONDS)
        self._written = 0
        self._causes: Counter[str] = Counter()
        self._messages: dict[str, str] = {}
        self.done = self.unscored = self.failed = self.stopped = self.reused = 0
        self.compared = ""
        """How many records of a continued run were compared with today's code, of how many."""

    def count(self, outcomes: Sequence[Score[Any]], more: int = 1) -> None:
        """Count a merged sample that was not scored, by the outcome that decides; -1 takes back
        what was counted.
        """
        outcomes = [part for outcome in outcomes for part in _outcomes_in(outcome)]
        if all(outcome.status == "scored" for outcome in outcomes):
            return
        worst = deciding(outcome for outcome in outcomes if not outcome.ok)
        if worst.status == "unscored":
            self.unscored += more
        elif worst.code in NOT_BEGUN:
            self.stopped += more
        else:
            self.failed += more
            self._causes[worst.code] += more
            self._messages.setdefault(worst.code, worst.reason)

    def account(self) -> None:
        """Say once, at the end, what nobody may overlook: a run that stopped, samples that failed,
        another model's answers.
        """
        control, stopped = self._control, self.stopped + self._control.unread
        if control.quiet or control.parent is not None:
            return
        for asked, names in control.served.items():
            if others := sorted(name for name in names if not _same_model(asked, name)):
                logger.warning(
                    "{}: model {} was asked, and {} answered.", self.label, asked, ", ".join(others)
                )
        if not (self.failed or stopped):
            return
        why = f" {control.stopped}" if control.stopped else ""
        common = self.most_common(why) if self.failed else ""
        counts = f"{self.failed} failed, {stopped} not begun"
        marked = logger.bind(account=True)  # a door that says it itself can leave this line out
        marked.warning(
            "{}: of {} samples {}.{}{}", self.label, self.done + control.unread, counts, why, common
        )

    def most_common(self, text: str) -> str:
        """The most common reason of failure, with its first message; nothing where `said` holds it
        already.
        """
        reason, count = self._causes.most_common(1)[0]
        message = self._messages[reason]
        return "" if message and message in text else f" Most often ({count}) {reason}: {message}"

    def tick(self) -> None:
        """Refresh what is shown when it is time to."""
        now = time.monotonic()
        if self.shown and now >= self._next:
            self._next = now + (REFRESH_SECONDS if self._live else LINE_SECONDS)
            self._show_line(end=False)

    def close(self) -> None:
        """Show the last state and give the line back."""
        if self.shown:
            self._show_line(end=True)

    def _show_line(self, end: bool) -> None:
        if self._live:
            text = self.facts(shutil.get_terminal_size((WIDTH, 24)).columns - 1)
            sys.stderr.write("\r" + text.ljust(self._written) + ("\n" if end else ""))
            self._written = len(text)
        else:
            sys.stderr.write(self.facts(None) + "\n")
        sys.stderr.flush()

    def facts(self, width: int | None = WIDTH - 1) -> str:
        """The state in one line of at most `width` characters: what matters least is left out,
        failures and cost never.
        """
        control, seconds = self._control, max(time.monotonic() - self._started, 1e-9)
        done, stopped = self.done - self.stopped, self.stopped + control.unread
        rate = max(0, done - self.reused) / seconds
        total = f"/{self._total:,}" if self._total is not None else ""
        tokens = control.usage.input_tokens + control.usage.output_tokens
        left = (
            None
            if not self._total or rate <= 0 or done + stopped >= self._total
            else (self._total - done - stopped) / rate
        )
        cost = control.usage.cost

        def counted(*ranked: tuple[int, int, str]) -> list[tuple[int, str]]:
            return [
                (rank, f"{value:,} {name}")
                for rank, value, name in ranked
                if value or name == "unscored"
            ]

        parts = [
            (0, f"{done:,}{total} done"),
            *([] if left is None else [(1, f"{_duration(left)} left")]),
            *counted(
                (0, self.failed, "failed"), (0, stopped, "stopped"), (2, self.unscored, "unscored")
            ),
            *([] if cost is None else [(0, f"cost {cost:.{2 if cost >= 1 else 4}f}")]),
            (3, f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.1f}/s"),
            *counted((4, control.in_flight, "in flight"), (5, control.retries, "retries")),
            *counted(
                (6, control.cached, "cached"),
                (6, control.skipped_by_gate, "spared"),
            ),
            *counted((7, self.reused, "reused")),
            *([(7, f"{self.compared} compared")] if self.compared else []),
            *counted((8, tokens, "tokens")),
        ]
        label = self.label
        while True:
            line = f"{label}: " + " · ".join(text for _, text in parts)
            if width is None or len(line) <= width:
                return line
            least = max(rank for rank, _ in parts)
            if total and least <= 2 and parts[0][1].endswith(" done"):
                parts[0] = (0, parts[0][1].removesuffix(" done"))
            elif least > 2 or (least and len(label) <= SHORT_LABEL):
                parts = [part for part in parts if part[0] != least]
            elif len(label) > SHORT_LABEL:
                label = label[: max(SHORT_LABEL - 1, len(label) - (len(line) - width) - 1)] + "…"
            else:
                return line[:width]


def _outcomes_in(outcome: Score[Any]) -> Iterator[Score[Any]]:
    """The outcomes inside a job's: a job that judges a whole group, or components, scores even
    where they have no score.
    """
    value = outcome.value
    inside = [each for each in value if isinstance(each, Score)] if type(value) is list else []
    yield from inside or [outcome]


def _same_model(asked: str, answered: str) -> bool:
    """Whether an answer's model is the one that was asked, or a dated version of it (gpt-4o,
    gpt-4o-2024-08-06).
    """
    return answered.rpartition("/")[2].lower().startswith(asked.rpartition("/")[2].lower())


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    if not minutes:
        return f"{rest} s"
    return f"{minutes}:{rest:02d} min" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02d} h"
