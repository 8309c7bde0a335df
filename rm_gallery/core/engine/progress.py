"""What a run looks like while it goes: one line that is rewritten on a terminal, a line now and then elsewhere; on stderr."""

from __future__ import annotations

import shutil
import sys
import time
from collections import Counter
from collections.abc import Sequence

from rm_gallery.core.engine.context import RunControl
from rm_gallery.core.outcome import NOT_BEGUN, Outcome

LINE_SECONDS = 10.0
FIRST_LINE_SECONDS = 2.0
REFRESH_SECONDS = 0.1
WIDTH = 80
SHORT_LABEL = 6


class Progress:
    """Counts outcomes, and shows done/total, time left, failed, stopped, unscored, cost, rate and what else there is room for.

    `enabled=None` shows it only where somebody looks: on a terminal, or in a notebook.
    """

    def __init__(self, control: RunControl, total: int | None, enabled: bool | None, label: str) -> None:
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

    def count(self, outcomes: Sequence[Outcome[object]]) -> None:
        """Count a merged sample that was not scored, by the worst of its outcomes."""
        if len(outcomes) == 1 and outcomes[0].status == "scored":
            return
        for outcome in outcomes:
            if outcome.status != "scored":
                break
        else:
            return
        worst = min(outcomes, key=lambda o: ("failed", "unscored", "scored").index(o.status))
        if worst.status == "unscored":
            self.unscored += 1
        elif worst.reason in NOT_BEGUN:
            self.stopped += 1
        else:
            self.failed += 1
            self._causes[worst.reason] += 1
            self._messages.setdefault(worst.reason, worst.message)

    def most_common(self, said: str) -> str:
        """The most common reason of failure, with its first message; nothing where `said` holds it already."""
        reason, count = self._causes.most_common(1)[0]
        message = self._messages[reason]
        return "" if message and message in said else f" Most often ({count}) {reason}: {message}"

    def tick(self) -> None:
        """Refresh what is shown when it is time to."""
        now = time.monotonic()
        if self.shown and now >= self._next:
            self._next = now + (REFRESH_SECONDS if self._live else LINE_SECONDS)
            self._line(end=False)

    def close(self) -> None:
        """Show the last state and give the line back."""
        if self.shown:
            self._line(end=True)

    def _line(self, end: bool) -> None:
        if self._live:
            text = self.facts(shutil.get_terminal_size((WIDTH, 24)).columns - 1)
            sys.stderr.write("\r" + text.ljust(self._written) + ("\n" if end else ""))
            self._written = len(text)
        else:
            sys.stderr.write(self.facts(None) + "\n")
        sys.stderr.flush()

    def facts(self, width: int | None = WIDTH - 1) -> str:
        """The state in one line of at most `width` characters: what matters least is left out, failures and cost never."""
        control, seconds = self._control, max(time.monotonic() - self._started, 1e-9)
        rate = (self.done - self.reused) / seconds
        total = f"/{self._total:,}" if self._total is not None else ""
        tokens = control.usage.input_tokens + control.usage.output_tokens
        left = None if not self._total or rate <= 0 or self.done >= self._total else (self._total - self.done) / rate
        parts: list[tuple[int, str]] = [(0, f"{self.done:,}{total} done")]
        counts = [(0, self.failed, "failed"), (0, self.stopped, "stopped"), (2, self.unscored, "unscored")]
        if left is not None:
            parts.append((1, f"{_duration(left)} left"))
        parts += [(rank, f"{value:,} {name}") for rank, value, name in counts if value or name == "unscored"]
        if control.usage.cost is not None:
            parts.append((0, f"cost {control.usage.cost:.{2 if control.usage.cost >= 1 else 4}f}"))
        parts.append((3, f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.1f}/s"))
        counts = [(4, control.in_flight, "in flight"), (5, control.retries, "retries"), (5, control.asked_again, "asked again")]
        counts += [
            (6, control.cached, "cached"),
            (6, control.spared, "spared"),
            (7, self.reused, "reused"),
            (8, tokens, "tokens"),
        ]
        parts += [(rank, f"{value:,} {name}") for rank, value, name in counts if value]
        label = self.label
        while width is not None and len(line := _joined(label, parts)) > width:
            least = max(rank for rank, _ in parts)
            if total and least <= 2 and parts[0][1].endswith(" done"):
                parts[0] = (0, parts[0][1].removesuffix(" done"))
            elif least > 2 or (least and len(label) <= SHORT_LABEL):
                parts = [part for part in parts if part[0] != least]
            elif len(label) > SHORT_LABEL:
                label = label[: max(SHORT_LABEL - 1, len(label) - (len(line) - width) - 1)] + "…"
            else:
                return line[:width]
        return _joined(label, parts)


def _joined(label: str, parts: list[tuple[int, str]]) -> str:
    return f"{label}: " + " · ".join(text for _, text in parts)


def _duration(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02d} min"
    return f"{whole // 3600}:{whole % 3600 // 60:02d} h"
