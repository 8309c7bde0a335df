"""What calls used, and the file that keeps it while a run goes."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path

from rm_gallery.core.utils.errors import logger

SPEND_LOG = "spend.log"


@dataclass
class Usage:
    """What one or many calls used.

    `cached_tokens` (input the provider had in its own cache) are part of `input_tokens`,
    `reasoning_tokens` part of `output_tokens`. `calls` were paid for. `cost` is None where nothing
    is known about it, which one call without a price makes true of the whole sum.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    calls: int = 0
    cost: float | None = None

    @property
    def total_tokens(self) -> int:
        """Input and output tokens."""
        return self.input_tokens + self.output_tokens

    @property
    def empty(self) -> bool:
        """Whether nothing was paid for: neither calls nor tokens nor cost."""
        return not (self.calls or self.input_tokens or self.output_tokens or self.cost)

    def add(self, other: Usage, cost: float | None = None) -> None:
        """Count another usage in, at `cost` where it has none of its own."""
        cost = cost if other.cost is None else other.cost
        if self.empty:
            # Nothing paid for yet, so nothing unknown either.
            if self.cost is None or not other.empty:
                self.cost = cost
        elif not other.empty:
            self.cost = None if self.cost is None or cost is None else self.cost + cost
        self.input_tokens += other.input_tokens
        self.output_tokens += other.output_tokens
        self.cached_tokens += other.cached_tokens
        self.reasoning_tokens += other.reasoning_tokens
        self.calls += other.calls

    def copy(self) -> Usage:
        """An independent copy."""
        return replace(self)

    def since(self, before: Usage) -> Usage:
        """What came since an earlier copy; without a cost, which is no sum of what is unknown."""
        return Usage(
            *(
                getattr(self, each.name) - getattr(before, each.name)
                for each in fields(self)
                if each.name != "cost"
            )
        )


class Ledger:
    """An append-only file with a line before each call and one after it.

    `+ ID TOKENS COST` is what a call may use, `- ID CALLS INPUT OUTPUT CACHED REASONING COST` what
    it used (`?` for a cost nobody knows). A call that was begun and never ended, because the
    process was killed, counts with what it might use. The last line may be torn. One process writes
    it at a time: the run folder's lock sees to that.
    """

    def __init__(self, folder: Path | str, others: Iterable[Path] = ()) -> None:
        self.path = Path(folder) / SPEND_LOG
        self.name = str(self.path.absolute())
        self.before, self._last, self._whole = _read_ledger(self.path)
        for other in others:
            self.before.add(_read_ledger(other / SPEND_LOG)[0])
        """What the earlier parts of the run, and `others` of the same run, spent."""
        self.spent = self.before.copy()
        """With what this part spent so far."""
        self._lock = threading.Lock()
        self._lines: list[str] = []
        self._fd: int | None = None
        """None before the first call: a run that makes none leaves no file."""
        self._is_closed = False

    def begin(self, tokens: float, cost: float) -> int:
        """Note a call that is about to be made; the note survives a killed process when this
        returns.
        """
        with self._lock:
            self._last += 1
            # what ended meanwhile goes with it: should that be lost, the line of its begin stands
            # for it
            self._lines.append(f"+ {self._last} {tokens:.0f} {cost:.9g}\n")
            self._write_pending()
            return self._last

    def end(self, entry: int, usage: Usage) -> None:
        """Note what a call used; written with the next begin or `flush`."""
        cost = "?" if usage.cost is None else f"{usage.cost:.9g}"
        counts = f"{usage.calls:d} {usage.input_tokens} {usage.output_tokens} {usage.cached_tokens}"
        with self._lock:
            self.spent.add(usage)
            self._lines.append(f"- {entry} {counts} {usage.reasoning_tokens} {cost}\n")

    def flush(self) -> None:
        """Write what is pending."""
        with self._lock:
            self._write_pending()

    def close(self) -> None:
        """Write what is pending and close the file."""
        with self._lock:
            self._write_pending()
            if self._fd is not None and not self._is_closed:
                os.close(self._fd)
            self._is_closed = True

    def _write_pending(self) -> None:
        data = "".join(self._lines).encode()
        self._lines.clear()
        if self._is_closed or not data:
            return
        try:
            if self._fd is None:
                flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0)
                self._fd = os.open(self.path, flags, 0o600)
                data = data if self._whole else b"\n" + data
            while data:
                data = data[os.write(self._fd, data) :]
        except OSError as error:
            self._is_closed = True
            logger.warning("what the run spends is no longer kept in {}: {}", self.path, error)


def _read_ledger(path: Path) -> tuple[Usage, int, bool]:
    """What was spent, the last number given to a call, and whether the file ends with a whole line."""
    total, begun, last, whole = Usage(), dict[int, Usage](), 0, True
    with suppress(FileNotFoundError), path.open("rb") as file:
        for line in file:
            whole = line.endswith(b"\n")
            words = line.split()
            try:
                if len(words) == 4 and words[0] == b"+":
                    last = max(last, int(words[1]))
                    cost = float(words[3]) or None
                    begun[int(words[1])] = Usage(calls=1, input_tokens=int(words[2]), cost=cost)
                elif len(words) == 8 and words[0] == b"-":
                    calls, given, output, cached, reasoning = map(int, words[2:7])
                    spent = Usage(given, output, cached, reasoning, calls)
                    spent.cost = None if words[7] == b"?" else float(words[7])
                    if begun.pop(int(words[1]), None) is not None:
                        total.add(spent)
            except ValueError:
                continue  # torn
    for usage in begun.values():
        total.add(usage)
    return total, last, whole
