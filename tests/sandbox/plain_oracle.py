"""Runs a check the plain way, in this very process: the verdict the sandbox is compared with. Started as a script.

stdin: JSON list of {prompt, test, entry_point, bodies}; stdout: JSON list of verdict lists, each ending with the first
body that fails. A body that takes longer than half a second has no verdict: null.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from typing import Any


class TooSlow(BaseException):
    """The body does not finish."""


def _stop(*_: object) -> None:
    raise TooSlow


def _passes(problem: dict[str, Any], body: str) -> bool | None:
    names: dict[str, Any] = {}
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    try:
        exec(problem["prompt"] + body + "\n" + problem["test"], names)
        names["check"](names[problem["entry_point"]])
    except TooSlow:
        return None
    except BaseException:  # noqa: BLE001 - any way to fail is a failure
        return False
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return True


def _verdicts(problem: dict[str, Any]) -> list[bool | None]:
    verdicts: list[bool | None] = []
    for body in problem["bodies"]:
        verdicts.append(_passes(problem, body))
        if verdicts[-1] is False:
            break
    return verdicts


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
    signal.signal(signal.SIGALRM, _stop)
    out = os.dup(1)
    os.dup2(2, 1)
    os.write(out, json.dumps([_verdicts(problem) for problem in json.load(sys.stdin)]).encode())
