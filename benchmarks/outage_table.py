"""What an endpoint costs that goes away in the middle of a run: time, samples lost, calls made.

    python -m benchmarks.outage_table [--in-flight 32] [--only TEXT …] [--quick]

Every row judges the same samples against a local server with 100 ms latency that is in trouble from
second 3 on. `over` is what the run took beyond the time it takes without trouble: an outage may
cost its own length and 3 s, and no sample.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from typing import Any

from tests.faults.outages import Outage, go_through

BEGIN = 3.0
ROWS: list[tuple[str, float, dict[str, Any]]] = [
    *(
        (trouble, length, {})
        for trouble in ("refuses connections", "answers 503")
        for length in (1.0, 10.0, 60.0)
    ),
    *((trouble, 10.0, {}) for trouble in ("answers 500", "drops connections")),
    ("answers 429", 10.0, {}),
    ("answers 429, Retry-After 1", 10.0, {}),
    ("Retry-After 3600 once", 0.02, {}),
    ("never answers", 3600.0, {"deadline": 10.0, "max_outage": 30.0}),
    ("refuses connections", 3600.0, {"max_outage": 30.0}),
]


def line(trouble: str, length: float, found: Outage, alone: float) -> str:
    """One line of the table."""
    ran = found.ran
    end = (ran.control.stopped or "went on")[:60]
    return (
        f"{trouble:28} {length:>7.4g} {ran.seconds:>8.1f} {ran.seconds - alone:>7.1f} "
        f"{found.lost:>6} {found.calls:>7}  {end}"
    )


def main() -> None:
    """Run and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--in-flight", type=int, default=32)
    parser.add_argument("--samples", type=int, default=3000)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--quick", action="store_true", help="skip what lasts longer than 20 s")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["RM_GALLERY_CACHE"] = folder
        size: dict[str, Any] = {"samples": chosen.samples, "in_flight": chosen.in_flight}
        alone = go_through("answers 500", 3600.0, 0.0, **size).ran.seconds
        print(
            f"{chosen.samples} samples, {chosen.in_flight} in flight; {alone:.1f} s without "
            f"trouble\n"
        )
        print(
            f"{'the endpoint':28} {'for s':>7} {'took s':>8} {'over':>7} {'lost':>6} {'calls':>7}  end"
        )
        for trouble, length, settings in ROWS:
            if (chosen.only and not any(text in trouble for text in chosen.only)) or (
                chosen.quick and length > 20
            ):
                continue
            found = go_through(trouble, BEGIN, length, **size, **settings)
            print(line(trouble, length, found, alone), flush=True)


if __name__ == "__main__":
    main()
