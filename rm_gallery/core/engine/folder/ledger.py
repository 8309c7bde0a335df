"""What a run spent, kept in its folder while it runs: it survives `kill -9` and counts when the run is continued."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from rm_gallery.core.engine.calls.prices import Usage
from rm_gallery.core.utils.log import logger

FILE_NAME = "spend.log"


class Ledger:
    """An append-only file with a line before each call and one after it.

    `+ ID TOKENS COST` is what a call may use, `- ID CALLS INPUT OUTPUT CACHED REASONING COST` what it used (`?` for a cost
    nobody knows). A call that was begun and never ended, because the process was killed, counts with what it might use. The
    last line may be torn. One process writes it at a time: the run folder's lock sees to that.
    """

    def __init__(self, folder: Path | str) -> None:
        self.path = Path(folder) / FILE_NAME
        self.name = str(self.path.absolute())
        self.before, self._last, self._whole = _read(self.path)
        """What the earlier parts of the run spent."""
        self.spent = self.before.copy()
        """With what this part spent so far."""
        self._lock = threading.Lock()
        self._lines: list[str] = []
        self._fd: int | None = None
        """None before the first call: a run that makes none leaves no file."""
        self._closed = False

    def begin(self, tokens: float, cost: float, *, at_once: bool = True) -> int:
        """Note a call that is about to be made.

        With `at_once` the note survives a killed process when this returns; without, after the next `flush`, which spares
        the call a trip to the operating system.
        """
        with self._lock:
            self._last += 1
            # what ended meanwhile goes with it: should that be lost, the line of its begin stands for it
            self._lines.append(f"+ {self._last} {tokens:.0f} {cost:.9g}\n")
            if at_once:
                self._write()
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
            self._write()

    def close(self) -> None:
        """Write what is pending and close the file."""
        with self._lock:
            self._write()
            if self._fd is not None and not self._closed:
                os.close(self._fd)
            self._closed = True

    def _write(self) -> None:
        data = "".join(self._lines).encode()
        self._lines.clear()
        if self._closed or not data:
            return
        try:
            if self._fd is None:
                flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0)
                self._fd = os.open(self.path, flags, 0o600)
                data = data if self._whole else b"\n" + data
            while data:
                data = data[os.write(self._fd, data) :]
        except OSError as error:
            self._closed = True
            logger.warning("what the run spends is no longer kept in {}: {}", self.path, error)


def _read(path: Path) -> tuple[Usage, int, bool]:
    """What was spent, the last number given to a call, and whether the file ends with a whole line."""
    total, begun, last, whole = Usage(), dict[int, Usage](), 0, True
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return total, last, whole
    with file:
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
