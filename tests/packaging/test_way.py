"""`python -m tools.way` follows a sample on every thread, and holds it to limits."""

from __future__ import annotations

import re

import pytest

from tests.support.children import ROOT, Finished, run_python

_HEAD = re.compile(r"^(\w+): (\d+) modules, (\d+) calls, (\d+) changes of module, (\d+) µs of CPU$")
_PART = re.compile(r"^ {4}(\S.*?) +(\d+) calls +([\d.]+) µs$")


def way(*arguments: str) -> Finished:
    return run_python("-m", "tools.way", *arguments, cwd=ROOT)


def test_parts_add_up_and_what_runs_on_the_loop_is_counted() -> None:
    done = way("--check", "rule=999/999/999")
    assert done.returncode == 0, done.stderr
    heads: dict[str, tuple[int, ...]] = {}
    parts: dict[str, dict[str, tuple[int, float]]] = {}
    name = ""
    for line in done.stdout.splitlines():
        if head := _HEAD.match(line):
            name = head[1]
            heads[name], parts[name] = tuple(map(int, head.groups()[1:])), {}
        else:
            part = _PART.match(line)
            assert part, line
            parts[name][part[1]] = (int(part[2]), float(part[3]))
    assert list(heads) == ["rule", "judge", "pair"]
    for name, (modules, calls, changes, cpu) in heads.items():
        assert 1 <= modules <= changes <= calls
        assert sum(n for n, _ in parts[name].values()) == calls
        spent = sum(microseconds for _, microseconds in parts[name].values())
        assert spent == pytest.approx(cpu, abs=2.0)
    # the model is called on the library's own thread
    calls, spent = parts["judge"]["core/model"]
    assert calls > 10 and spent > 0


@pytest.mark.parametrize(
    ("limit", "code", "message"),
    [
        ("judge=999/10/999", 1, "is over its limit, 999/10/999"),
        ("judge=many", 2, "write NAME=MODULES/CALLS/CHANGES, not 'judge=many'"),
        ("jury=1/1/1", 2, "no way is called jury; there are rule, judge, pair"),
    ],
)
def test_a_limit_that_does_not_hold_or_cannot_be_read_fails(
    limit: str, code: int, message: str
) -> None:
    done = way("--check", limit)
    assert done.returncode == code and message in done.stdout + done.stderr
