"""How far one sample goes through the package: modules, calls, changes of module, CPU by part.

    python -m tools.way [--modules] [--check NAME=MODULES/CALLS/CHANGES ...]

Three calls are followed: `rule`, a rule's `evaluate`; `judge`, a judge's, with a model that answers
in this process; `pair`, `evaluate` on one pair. `--modules` prints a line a module instead of a
line a folder. `--check` exits with 1 where a call goes further than its limit. Comprehensions count
as calls before Python 3.12.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import groupby
from operator import gt, itemgetter
from pathlib import Path
from threading import get_ident
from types import FrameType
from typing import NamedTuple

os.environ["RM_GALLERY_CACHE"] = "off"

import rm_gallery
from rm_gallery import DataSample, FakeLLM, RewardRegistry, evaluate
from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.reward.reward import BaseReward

ROOT = f"{Path(rm_gallery.__file__).parent}{os.sep}"
ELSEWHERE = "(outside the package)"
TIMES = 100
FOLLOWED = 25

Call = Callable[[], object]


class Way(NamedTuple):
    """How far one call goes."""

    modules: int
    calls: int
    changes: int
    """How often the next call is in another module."""


def ways() -> dict[str, Callable[[int], Call]]:
    """By name, what makes the n-th call; no two ask the same."""
    rule = RewardRegistry.create("accuracy")
    reply = "<reason>ok</reason><score>7</score>"
    judge = RewardRegistry.create("base_helpfulness_pointwise", llm=FakeLLM(reply=reply))

    def scoring(reward: BaseReward, number: int) -> Call:
        sample = DataSample.model_validate(
            {
                "input": [{"role": "user", "content": f"2 + {number}?"}],
                "output": [{"answer": {"role": "assistant", "content": "4"}}],
                "metadata": {"reference": "4"},
            }
        )
        return lambda: reward.evaluate(sample)

    def pair(number: int) -> Call:
        row = {"prompt": f"2 + {number}?", "chosen": "It is 4, of course.", "rejected": "5"}
        return lambda: evaluate("length_baseline", [row], progress=False)

    return {
        "rule": lambda number: scoring(rule, number),
        "judge": lambda number: scoring(judge, number),
        "pair": pair,
    }


class Recorder:
    """The package's calls on the calling thread and on the library's loop, with their CPU."""

    def __init__(self) -> None:
        self.modules: list[str] = []
        """The module of each call, in order."""
        self.nanoseconds: Counter[str] = Counter()
        """By module; what other packages take counts for the module that called them."""
        self._on = False
        self._at: dict[int, tuple[str, int]] = {}

    @contextmanager
    def following(self) -> Iterator[None]:
        """Follow what is called inside the block."""

        async def on_loop(profile: Callable[[FrameType, str, object], None] | None) -> None:
            sys.setprofile(profile)

        library_loop.run(on_loop(self._note))
        sys.setprofile(self._note)
        self._on = True
        try:
            yield
        finally:
            self._on = False
            sys.setprofile(None)
            library_loop.run(on_loop(None))

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        if not self._on:
            return
        thread, now = get_ident(), time.thread_time_ns()
        module, since = self._at.get(thread, (ELSEWHERE, now))
        self.nanoseconds[module] += now - since
        if event == "call":
            module = _module_of(frame)
            code = frame.f_code
            if code.co_filename.startswith(ROOT) and code.co_name != "<module>":
                self.modules.append(module)
        elif event == "return":
            module = _module_of(frame.f_back)
        # the clock is read again, so that the time of this function counts for nobody
        self._at[thread] = module, time.thread_time_ns()


def _module_of(frame: FrameType | None) -> str:
    """The innermost module of the package on the stack."""
    while frame is not None:
        if frame.f_code.co_filename.startswith(ROOT):
            return frame.f_code.co_filename[len(ROOT) :]
        frame = frame.f_back
    return ELSEWHERE


def way_of(modules: list[str]) -> Way:
    """How far the calls go whose modules these are."""
    return Way(len(set(modules)), len(modules), sum(1 for _ in groupby(modules)))


def shortest(make: Callable[[int], Call]) -> Recorder:
    """The call with the fewest calls inside: on a busy machine a call may also wait and report."""
    traces = []
    for number in range(FOLLOWED):
        trace, call = Recorder(), make(100 + number)
        with trace.following():
            call()
        traces.append(trace)
    return min(traces, key=lambda trace: len(trace.modules))


def microseconds(make: Callable[[int], Call]) -> dict[str, float]:
    """The CPU of one call by module: its share when followed, of what a call costs when it is not."""
    calls = [make(1000 + number) for number in range(2 * TIMES)]
    begun = time.process_time()
    for call in calls[:TIMES]:
        call()
    each = (time.process_time() - begun) * 1e6 / TIMES
    trace = Recorder()
    with trace.following():
        for call in calls[TIMES:]:
            call()
    total = trace.nanoseconds.total() or 1
    return {module: each * spent / total for module, spent in trace.nanoseconds.items()}


def folder_of(module: str) -> str:
    """The folder that a module counts for: `core/reward`, `gallery/rm`, `study`."""
    return "/".join(Path(module).parent.parts[:2]) if module != ELSEWHERE else module


def limit(text: str) -> tuple[str, Way]:
    """A limit as it is written: rule=12/60/30."""
    match = re.fullmatch(r"(\w+)=(\d+)/(\d+)/(\d+)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"write NAME=MODULES/CALLS/CHANGES, not {text!r}")
    return match[1], Way(*map(int, match.groups()[1:]))


def main(arguments: list[str] | None = None) -> int:
    """Print the ways; 1 where one is longer than its limit."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--modules", action="store_true", help="a line a module")
    parser.add_argument("--check", nargs="+", type=limit, default=[], metavar="LIMIT")
    options = parser.parse_args(arguments)
    limits, known = dict(options.check), ways()
    if unknown := limits.keys() - known.keys():
        parser.error(f"no way is called {min(unknown)}; there are {', '.join(known)}")
    part_of: Callable[[str], str] = str if options.modules else folder_of
    too_long = []
    for name, make in known.items():
        for number in range(3):  # what a first call imports and remembers is no part of the way
            make(number)()
        trace = shortest(make)
        way, by_module = way_of(trace.modules), microseconds(make)
        print(
            f"{name}: {way.modules} modules, {way.calls} calls, {way.changes} changes of module, "
            f"{sum(by_module.values()):.0f} µs of CPU"
        )
        calls, cpu = Counter(map(part_of, trace.modules)), defaultdict[str, float](float)
        for module, spent in by_module.items():
            cpu[part_of(module)] += spent
        for part, spent in sorted(cpu.items(), key=itemgetter(1), reverse=True):
            print(f"    {part:44} {calls[part]:5} calls {spent:7.1f} µs")
        if name in limits and any(map(gt, way, limits[name])):
            shown, most = ("/".join(map(str, each)) for each in (way, limits[name]))
            too_long.append(f"{name}: {shown} is over its limit, {most}")
    print(*too_long, sep="\n", end="\n" if too_long else "")
    return 1 if too_long else 0


if __name__ == "__main__":
    sys.exit(main())
