"""Peak memory of every command over a table or a run folder of many short rows, beside the 300 MB
that are allowed.

Writes a table, scores it into a run folder, and runs each command in a process of its own; the peak
is that of the process.
"""

from __future__ import annotations

import argparse
import csv
import os
import pty
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

ALLOWED_MB = 300


def write_table(path: Path, rows: int) -> None:
    """Write questions, two answers and a reference."""
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["prompt", "chosen", "rejected", "reference"])
        for n in range(rows):
            table.writerow(
                [
                    f"What is {n} plus {n % 7}?",
                    f"It is {n + n % 7 + (n % 6 == 0)}.",
                    f"It is {n + n % 5}.",
                    n + n % 7,
                ]
            )


def measured(arguments: list[str]) -> tuple[int, float, float, float]:
    """Exit code, peak resident memory in MB, CPU seconds of one command, and seconds until it says
    something on a terminal.
    """
    command = [sys.executable, "-m", "rm_gallery", *arguments]
    began, first = time.monotonic(), 0.0
    terminal, side = pty.openpty()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=side)
    os.close(side)
    with suppress(OSError):  # the terminal's end
        while os.read(terminal, 65536):
            first = first or time.monotonic() - began
    os.close(terminal)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, used.ru_maxrss / 1024, used.ru_utime + used.ru_stime, first


def commands(folder: Path, table: str) -> list[list[str]]:
    """What is run, in order; the runs of the first commands are read by the last."""
    graders = folder / "graders.yaml"
    graders.write_text("graders:\n  same: {grader: number_accuracy, mapper: {response: chosen}}\n")
    one, two, three = (str(folder / name) for name in ("one", "two", "three"))
    rule = ["--reference", "reference"]
    score = ["score", "number_accuracy", table, "--prompt", "prompt", "--answer", "chosen", *rule]
    compared = ["--prompt", "prompt", "--a", "chosen", "--b", "rejected"]
    return [
        ["eval", "length_baseline", table],
        ["eval", "length_baseline", table, "--out", three],
        score,
        [*score, "--out", one],
        [*score, "--seed", "1", "--out", two],
        ["winrate", "length_baseline", table, *compared],
        ["grade", str(graders), table],
        ["report", one],
        ["compare", one, two],
        ["table", one, two],
    ]


def main() -> None:
    """Print a line for each command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        table = folder / "rows.csv"
        write_table(table, rows)
        print(f"{rows:,} rows | peak MB (of {ALLOWED_MB}) | CPU s | first words s")
        for arguments in commands(folder, str(table)):
            code, peak, cpu, first = measured(arguments)
            name = arguments[0] + (" --out" if "--out" in arguments else "")
            verdict = f"exit code {code}" if code else "" if peak <= ALLOWED_MB else "above"
            print(f"{name} | {peak:.0f} | {cpu:.1f} | {first:.2f} | {verdict}", flush=True)


if __name__ == "__main__":
    main()
