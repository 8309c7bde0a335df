"""What a run has done so far: counted, and shown in one line."""

from __future__ import annotations

import shutil
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from rm_gallery.core.engine.context import RunControl
from rm_gallery.core.score import Score, counted_as, deciding
from rm_gallery.core.utils.log import logger

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

    done = unscored = failed = stopped = reused = _written = 0
    compared = ""
    """How many records of a continued run were compared with today's code, of how many."""

    def __init__(
        self, control: RunControl, total: int | None, enabled: bool | None, label: str
    ) -> None:
        self._live = sys.stderr.isatty() or "ipykernel" in sys.modules
        self.shown = self._live if enabled is None else enabled
        """Whether anything is shown at all."""
        self._control, self._total, self.label = control, total, label
        self._started = time.monotonic()
        self._next = self._started + (REFRESH_SECONDS if self._live else FIRST_LINE_SECONDS)
        self._causes: Counter[str] = Counter()
        self._messages: dict[str, str] = {}

    def count(self, outcomes: Sequence[Score[Any]], more: int = 1) -> None:
        """Count what has no score among the jobs of a sample's round (`counted_as`); -1 takes back
        what was counted.
        """
        missing = [part for outcome in outcomes for part in _outcomes_in(outcome) if not part.ok]
        if not missing:
            return
        counted = counted_as((part.status, part.code) for part in missing)
        if counted == "unscored":
            self.unscored += more
        elif counted == "stopped":
            self.stopped += more
        else:
            worst = deciding(missing)
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
            model = _family(asked)
            if others := sorted(name for name in names if not _family(name).startswith(model)):
                logger.warning(
                    "{}: model {} was asked, and {} answered.", self.label, asked, ", ".join(others)
                )
        if self.failed or stopped:
            why = f" {control.stopped}" if control.stopped else ""
            common = self.most_common(why) if self.failed else ""
            # a door that says it itself can leave this line out
            logger.bind(account=True).warning(
                "{}: of {} samples {} failed, {} not begun.{}{}",
                self.label, self.done + control.unread, self.failed, stopped, why, common,
            )  # fmt: skip

    def most_common(self, text: str) -> str:
        """The most common reason of failure, with its first message; nothing where `text` holds it
        already.
        """
        reason, count = self._causes.most_common(1)[0]
        message = self._messages[reason]
        return "" if message and message in text else f" Most often ({count}) {reason}: {message}"

    def tick(self, end: bool = False) -> None:
        """Refresh what is shown when it is time to, or at the `end`."""
        now = time.monotonic()
        if not self.shown or (now < self._next and not end):
            return
        live = self._live
        self._next = now + (REFRESH_SECONDS if live else LINE_SECONDS)
        text = self.facts(shutil.get_terminal_size((WIDTH, 24)).columns - 1 if live else None)
        shown = f"\r{text.ljust(self._written)}" if live else text
        sys.stderr.write(shown + ("\n" if end or not live else ""))
        self._written = len(text)
        sys.stderr.flush()

    def facts(self, width: int | None = WIDTH - 1) -> str:
        """The state in one line of at most `width` characters: what matters least is left out,
        failures and cost never.
        """
        control, cost = self._control, self._control.usage.cost
        done, stopped = self.done - self.stopped, self.stopped + control.unread
        rate = max(0, done - self.reused) / max(time.monotonic() - self._started, 1e-9)
        rest = max(0, (self._total or 0) - done - stopped)
        total = "" if self._total is None else f"/{self._total:,}"
        facts = (
            (0, f"{done:,}{total}", "{}"),
            (3 if total else 0, " done", "{}"),
            (1, rate and rest and _duration(rest / rate), " · {} left"),
            (0, self.failed, " · {:,} failed"),
            (0, stopped, " · {:,} stopped"),
            (2, True, f" · {self.unscored:,} unscored"),
            (0, cost is not None and f"{cost:.{2 if cost >= 1 else 4}f}", " · cost {}"),
            (4, f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}", " · {}/s"),
            (5, control.in_flight, " · {:,} in flight"),
            (6, control.retries, " · {:,} retries"),
            (7, control.cached, " · {:,} cached"),
            (7, control.skipped_by_gate, " · {:,} spared"),
            (8, self.reused, " · {:,} reused"),
            (8, self.compared, " · {} compared"),
            (9, control.usage.total_tokens, " · {:,} tokens"),
        )
        label, most = self.label, 9
        while True:
            shown = (text.format(fact) for rank, fact, text in facts if fact and rank <= most)
            line = f"{label}: {''.join(shown)}"
            if width is None or len(line) <= width or not most:
                return line[:width]
            if most == 2 and len(label) > SHORT_LABEL:
                label = label[: max(SHORT_LABEL, width - len(line) + len(label)) - 1] + "…"
            else:
                most -= 1


def _outcomes_in(outcome: Score[Any]) -> list[Score[Any]]:
    """The outcomes inside a job's: a job that judges a whole group, or components, scores even
    where they have no score.
    """
    values = outcome.value if type(outcome.value) is list else ()
    return [each for each in values if isinstance(each, Score)] or [outcome]


def _family(model: str) -> str:
    """What a model's name has in common with those of its dated versions (gpt-4o,
    gpt-4o-2024-08-06): they begin so.
    """
    return model.rpartition("/")[2].lower()


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    if not minutes:
        return f"{rest} s"
    return f"{minutes}:{rest:02d} min" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02d} h"
