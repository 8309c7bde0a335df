"""Peak memory of every command over a table or a run folder of many short rows, beside the 300 MB
that are allowed.

Writes a table, scores it into a run folder, and runs each command in a process of its own; the peak
is that of the process.
"""

from __future__ import annotations

import argparse
import csv
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ALLOWED_MB = 300


def write_table(path: Path, rows: int) -> None:
    """Write questions, two answers and a reference."""
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["q", "a", "b", "ref"])
        for n in range(rows):
            table.writerow(
                [
                    f"What is {n} plus {n % 7}?",
                    f"It is {n + n % 7 + (n % 6 == 0)}.",
                    f"It is {n + n % 5}.",
                    n + n % 7,
                ]
            )


def measured(arguments: list[str]) -> tuple[int, float, float]:
    """Exit code, peak resident memory in MB, and CPU seconds of one command."""
    command = [sys.executable, "-m", "rm_gallery", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, used.ru_maxrss / 1024, used.ru_utime + used.ru_stime


def main() -> None:
    """Print a line for each command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as folder:
        table, one, two = (str(Path(folder) / name) for name in ("rows.csv", "one", "two"))
        write_table(Path(table), rows)
        score = [
            "score",
            table,
            "--prompt",
            "q",
            "-r",
            "number_accuracy",
            "--reference",
            "ref",
            "--answer",
        ]
        commands = [
            [*score, "a"],
            [*score, "a", "--out", one],
            [*score, "a", "--seed", "1", "--out", two],
            [
                "winrate",
                table,
                "--prompt",
                "q",
                "--a",
                "a",
                "--b",
                "b",
                "-r",
                "length_baseline",
                "--numbers",
            ],
            ["report", one],
            ["compare", one, two],
        ]
        print(f"{rows:,} rows | peak MB (of {ALLOWED_MB}) | CPU s | wall s")
        for arguments in commands:
            start = time.monotonic()
            code, peak, cpu = measured(arguments)
            name = arguments[0] + (" --out" if "--out" in arguments else "")
            verdict = f"exit code {code}" if code else "" if peak <= ALLOWED_MB else "above"
            print(
                f"{name} | {peak:.0f} | {cpu:.1f} | {time.monotonic() - start:.1f} | {verdict}",
                flush=True,
            )


if __name__ == "__main__":
    main()
