"""Defaults and names that the help of a command shows: said here, where reading them costs no
import.
"""

from __future__ import annotations

MAX_WORKERS = 64
"""Judgements in flight at once, at every door, where nobody says otherwise."""
PROBES = (
    "quality",
    "position",
    "length",
    "markdown",
    "verbosity",
    "self_praise",
    "authority",
    "no_answer",
    "stability",
    "repeats",
    "range",
    "length_correlation",
    "injection",
    "replies",
)
"""Every probe of an audit by name, in the order of the card."""
CHECK_CEILING = 0.25
"""Share of gold's score that a completion which deserves nothing may get, when a reward is tried."""
FUZZ_TEXTS = 200
"""Wrong texts that a case is tried with, when a reward is fuzzed."""
FUZZ_PASS = 0.5
"""Share of the right answer's score from which a wrong text is worth a pass."""
