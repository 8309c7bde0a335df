"""The way of one sample through the package: modules, calls, changes of module, and CPU.

    python -m tools.way [--parts] [--check]

A rule's `evaluate`, a judge's (a model that answers in this process) and `evaluate` on one pair are
followed after three warm calls. `--parts` lists each module with its calls and its share of the
CPU; `--check` fails where a way has grown beyond what `LIMITS` allow.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import sys
import threading
from collections import Counter
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

os.environ["RM_GALLERY_CACHE"] = "off"

import rm_gallery
from rm_gallery import DataSample, FakeLLM, RewardRegistry, evaluate

ROOT = f"{Path(rm_gallery.__file__).parent}{os.sep}"


class Way(NamedTuple):
    """How far one call goes."""

    modules: int
    calls: int
    changes: int
    """How often the next call is in another module."""


LIMITS = {
    "rule": Way(12, 60, 30),
    "judge": Way(36, 260, 150),
    "pair": Way(48, 800, 300),
}
"""What a way may come to; lowered as it gets shorter. Comprehensions count as calls before Python
3.12."""


def _sample(number: int) -> DataSample:
    return DataSample.model_validate(
        {
            "input": [{"role": "user", "content": f"question {number}"}],
            "output": [{"answer": {"role": "assistant", "content": "4"}}],
            "metadata": {"reference": "4"},
        }
    )


def ways() -> dict[str, Callable[[int], Callable[[], object]]]:
    """By name, what makes a call that has not been made before."""
    rule = RewardRegistry.create("accuracy")
    reply = "<reason>ok</reason><score>7</score>"
    judge = RewardRegistry.create("base_helpfulness_pointwise", llm=FakeLLM(reply=reply))

    def pair(number: int) -> Callable[[], object]:
        row = {"prompt": f"2 + {number}?", "chosen": "It is 4, of course.", "rejected": "5"}
        return lambda: evaluate("length_baseline", [row], progress=False)

    def judged_by(reward: Any) -> Callable[[int], Callable[[], object]]:
        def call(number: int) -> Callable[[], object]:
            sample = _sample(number)
            return lambda: reward.evaluate(sample)

        return call

    return {"rule": judged_by(rule), "judge": judged_by(judge), "pair": pair}


class Recorder:
    """Notes the calls inside the package on every thread that is started after it, while it is on."""

    def __init__(self) -> None:
        self._on = False
        threading.setprofile(self._note)

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if not self._on or event != "call" or not code.co_filename.startswith(ROOT):
            return
        if code.co_name != "<module>":
            self._modules.append(code.co_filename[len(ROOT) :])

    def follow(self, call: Callable[[], object]) -> tuple[Way, Counter[str]]:
        """The way of a call, and the calls of each module."""
        self._modules: list[str] = []
        sys.setprofile(self._note)
        self._on = True
        try:
            call()
        finally:
            self._on = False
            sys.setprofile(None)
        calls = Counter(self._modules)
        changes = sum(1 for _ in groupby(self._modules))
        return Way(len(calls), len(self._modules), changes), calls


def cpu_shares(make: Callable[[int], Callable[[], object]], times: int = 200) -> Counter[str]:
    """By module of the package, its share of the CPU of so many calls on the calling thread."""
    made = [make(1000 + number) for number in range(times)]
    profile = cProfile.Profile()
    profile.enable()
    for call in made:
        call()
    profile.disable()
    seconds: Counter[str] = Counter()
    for (file, _, _), (_, _, own, *_) in pstats.Stats(profile).stats.items():  # type: ignore[attr-defined]
        seconds[file[len(ROOT) :] if file.startswith(ROOT) else "elsewhere"] += own
    return seconds


def main(arguments: list[str] | None = None) -> int:
    """Print the ways; 1 where `--check` is given and one is too long."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", action="store_true")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args(arguments)
    recorder = Recorder()  # before the first call, which starts the library's own thread
    too_long = []
    for name, make in ways().items():
        for number in range(3):
            make(number)()
        way, calls = recorder.follow(make(99))
        print(f"{name}: {way.modules} modules, {way.calls} calls, {way.changes} changes of module")
        if any(actual > most for actual, most in zip(way, LIMITS[name], strict=True)):
            too_long.append(f"{name}: at most {LIMITS[name]}")
        if options.parts:
            seconds = cpu_shares(make)
            total = seconds.total() or 1.0
            for module, count in calls.most_common():
                print(f"    {module:44} {count:4} calls {seconds[module] / total:6.1%} of the CPU")
    if options.check and too_long:
        print("\n".join(too_long))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
