"""The doors of a study, found by their signatures, take the same names and refuse others in the same
words.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import pkgutil
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import rm_gallery
import rm_gallery.study
from rm_gallery import (
    BaseGrader,
    BasePointWiseReward,
    BaseReward,
    ConfigError,
    DataSample,
    FunctionGrader,
    GradingRunner,
    RunOptions,
    evaluate,
)
from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.options import OPTIONS, RunKeywords
from rm_gallery.core.utils.defaults import MAX_WORKERS
from rm_gallery.study.doors import OF_REWARD, Asked, Keywords, door
from rm_gallery.study.select import judge_select
from rm_gallery.study.source import Source
from tests.cli.test_every_command import commands


def discovered() -> dict[str, Callable[..., Any]]:
    """Every public function of a study that takes `options`, by its name."""
    doors: dict[str, Callable[..., Any]] = {}
    for module in pkgutil.iter_modules(rm_gallery.study.__path__, "rm_gallery.study."):
        for name, function in vars(importlib.import_module(module.name)).items():
            if inspect.isfunction(function) and function.__module__ == module.name:
                if not name.startswith("_") and "options" in inspect.signature(function).parameters:
                    doors[name] = function
    return doors


DOORS = discovered()
OF_OPTIONS = {"begun", "sharded"}
"""What works on options that a door has made already."""
OF_TABLES = {"score_table", "winrate"}
"""What names columns by `Columns`, which has the limit and the bad rows."""
ROWS = [
    {"id": "a", "prompt": "p", "chosen": "good", "rejected": "bad", "query": "q", "response": "r"}
]


async def waits(*args: Any, **kwargs: Any) -> None:
    """Stands for the coroutine of a door, which waits."""
    library_loop.refuse_blocking()


def with_twins() -> dict[str, tuple[type, str, str]]:
    """Every public method of the package that blocks, by class and name, with its awaitable twin."""
    found: dict[str, tuple[type, str, str]] = {}
    root = Path(rm_gallery.__file__).parent
    for path in sorted(root.rglob("[!_]*.py")):
        module = ".".join(path.relative_to(root.parent).with_suffix("").parts)
        try:
            kinds = list(vars(importlib.import_module(module)).values())
        except ImportError:  # an extra that is not installed
            continue
        for kind in kinds:
            if not inspect.isclass(kind) or kind.__module__ != module:
                continue
            for twin in vars(kind):
                door = twin.removeprefix("async_") if twin[:6] == "async_" else twin[1:]
                if twin.startswith("a") and hasattr(kind, door) and not door.startswith("_"):
                    if kind.__name__ not in ASKS_FOR_NO_LOOP:
                        found.setdefault(f"{kind.__name__}.{door}", (kind, door, twin))
    return found


ASKS_FOR_NO_LOOP = {"WorkerPool"}
"""Its `submit` waits for a process, and not for the loop."""


class Asleep(BasePointWiseReward):
    """A reward that waits."""

    name: str = "asleep"

    async def _evaluate(self, sample: DataSample, **kwargs: Any) -> float:
        await asyncio.sleep(0)
        return 0.5


def on_the_loop(call: Callable[[], Any]) -> str:
    """How a call is refused that a coroutine on the library's loop makes."""

    async def here() -> Any:
        return call()

    with pytest.raises(ConfigError) as refused:
        library_loop.run(here())
    return str(refused.value)


@pytest.mark.parametrize("name", with_twins())
def test_a_door_that_blocks_names_itself_and_its_twin_on_the_loop(name: str) -> None:
    kind, door, twin = with_twins()[name]
    made: Any = Asleep() if issubclass(Asleep, kind) else None
    if made is None:
        unmade = dict.fromkeys(getattr(kind, "__abstractmethods__", ()), waits)
        made = object.__new__(type(kind.__name__, (kind,), {**unmade, twin: waits}))
    said = on_the_loop(lambda: getattr(made, door)([ROWS[0]] if "batch" in door else ROWS[0]))
    assert said.startswith(f"{type(made).__name__}.{door} blocks, "), said
    awaited = twin.replace("aeval", "async_eval") if isinstance(made, Asleep) else twin
    assert f"`await {awaited}(…)`" in said, said


@pytest.mark.parametrize("name", sorted({*DOORS, "judge_select"} - OF_OPTIONS))
def test_a_door_without_a_twin_names_itself_on_the_loop(name: str) -> None:
    called = DOORS.get(name, judge_select)
    said = on_the_loop(lambda: called(Asleep(), ROWS))  # type: ignore[no-untyped-call]
    assert said.startswith(f"{name} blocks, "), said
    assert f"`await asyncio.to_thread({name}, …)`" in said


def test_the_doors_with_twins_are_found() -> None:
    assert {"GradingRunner.run_multiple_datasets", "BaseReward.best_of_n"} <= set(with_twins())


def names_of(door: Callable[..., Any]) -> set[str]:
    return set(inspect.signature(door).parameters)


def test_every_door_is_found() -> None:
    assert len(DOORS) > 10 and {"evaluate", "audit", "conflicts", "grade", "winrate"} <= set(DOORS)
    assert OF_OPTIONS <= set(DOORS)


@pytest.mark.parametrize("name", sorted(set(DOORS) - OF_OPTIONS))
def test_a_door_takes_the_options_of_a_run_as_keywords(name: str) -> None:
    kinds = {p.kind for p in inspect.signature(DOORS[name]).parameters.values()}
    assert inspect.Parameter.VAR_KEYWORD in kinds


@pytest.mark.parametrize(
    "name", sorted(name for name in DOORS if "reward" in names_of(DOORS[name]))
)
def test_a_door_to_a_reward_takes_its_judge_and_the_data_in_the_same_words(name: str) -> None:
    own = names_of(DOORS[name])
    assert own >= {"options", *OF_REWARD}
    if "data" in own and name not in OF_TABLES:
        assert own >= set(Keywords.__annotations__) - OPTIONS
        assert own >= set(Source.__dataclass_fields__)
        assert "on_bad_row: `raise`" in (DOORS[name].__doc__ or "")


def test_keywords_are_the_fields_of_the_options() -> None:
    assert set(RunKeywords.__annotations__) == {field.name for field in fields(RunOptions)}


CALLS: dict[str, tuple[Any, ...]] = {
    "grade": (GradingRunner({"g": FunctionGrader(lambda response: 1.0)}), ROWS),
    "score_table": ("length_baseline", ROWS, "prompt", "chosen"),
    "winrate": ("length_baseline", ROWS, "prompt", ["chosen", "rejected"]),
    "check_reward": ("length_baseline",),
    "fuzz_reward": ("length_baseline",),
    "check_mix": ({"length_baseline": 1.0, "accuracy": 1.0},),
}


@pytest.mark.parametrize("name", sorted(set(DOORS) - OF_OPTIONS))
def test_an_unknown_keyword_is_named_with_the_nearest(name: str) -> None:
    more = {"repeats": 2} if name == "evaluate_repeatedly" else {}
    rows = {"limt": "limit"} if "data" in names_of(DOORS[name]) else {}
    for wrong, right in {"max_worker": "max_workers", **rows}.items():
        with pytest.raises(ConfigError, match=rf"'{wrong}'\. Did you mean {right}"):
            DOORS[name](*CALLS.get(name, ("length_baseline", ROWS)), **{wrong: 2}, **more)


def test_what_is_known_of_the_rows_is_said_once() -> None:
    rows = [{**ROWS[0], "id": str(n), "rejected": "b" * n} for n in range(20)]
    source = Source((row for row in rows), limit=5)
    assert evaluate("length_baseline", source).n == evaluate("length_baseline", source).n == 5
    assert evaluate("length_baseline", source, limit=7).n == 7
    assert evaluate("length_baseline", Source(rows)).n == 20


def test_a_source_wins_over_what_a_door_takes_by_default() -> None:
    @door(on_bad_row="skip", max_workers=3)
    def asked(asked: Asked) -> Asked:
        return asked

    given = asked("length_baseline", ROWS), asked("length_baseline", Source(ROWS))
    assert [each.source.on_bad_row for each in given] == ["skip", "raise"]
    assert [each.options.max_workers for each in given] == [3, 3]


def test_every_door_has_the_same_number_of_judgements_in_flight() -> None:
    assert RunOptions().max_workers == GradingRunner({"g": len}).options.max_workers == MAX_WORKERS
    for kind in (BaseReward, BaseGrader):
        assert kind.model_fields["max_workers"].default == MAX_WORKERS
    defaults = {
        name: option.default
        for name, command in commands().items()
        for option in command.params
        if option.name == "max_workers" and option.default is not None
    }
    assert len(defaults) > 8 and set(defaults.values()) == {MAX_WORKERS}
    given = GradingRunner({"g": len}, options=RunOptions(max_workers=3, deadline=2.0), deadline=4.0)
    assert (given.options.max_workers, given.options.deadline) == (3, 4.0)
