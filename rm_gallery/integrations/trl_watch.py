"""A live watch as a callback of TRL's trainers, which sees completions and rewards by standing
around the reward functions.

    watching = TrlWatch(LiveWatch("math_verify_reward", reference="solution", on_finding="stop"))
    trainer = GRPOTrainer(..., reward_funcs=watching.around([trl_reward("my_judge")]),
    callbacks=[watching])

TRL calls the reward functions with a whole batch and `on_step_end` after each optimizer step; a
batch that is used for several optimizer steps is one step of the watch. Nothing of TRL or of
transformers is imported here.
"""

from __future__ import annotations

import copy
import inspect
import json
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.core.utils.log import logger
from rm_gallery.integrations.scoring import rows_of
from rm_gallery.integrations.trl import HELPERS, TrlReward
from rm_gallery.train.live import STATE_FILE, LiveWatch
from rm_gallery.train.signals import weighted_sum

_EVENT = "on_"
_MOST_BATCHES = 64
"""Batches that wait for the end of their step; older ones are left out."""


class TrlWatch:
    """A `transformers.TrainerCallback` by its methods, for `callbacks=[…]` of GRPO, RLOO and online
    DPO.

    At the end of a step the completions and rewards of the batch go to the watch, with the reward
    functions as components and TRL's sum of them, None counting 0 beside a number, as the trained
    reward; completions to one prompt are a group. A finding that stops sets
    `control.should_training_stop`. Each checkpoint folder gets the watch's state
    (`rm_gallery_watch.json`), and a trainer that resumes from it goes on with it.

    In a run of several processes the watch of rank 0 sees the completions of rank 0 alone; where
    torch.distributed is there, all processes learn of its stop. Batches of an evaluation, which
    stand between the end of a step and the beginning of the next, are left out. Asynchronous GRPO scores in another process, where this callback sees nothing.

    Args:
        watch: the watch, or its settings by name.
        reward_weights: of the reward functions, as in the trainer's config; 1.0 each by default.

    Raises:
        ConfigError: `watch` is none.

    >>> from types import SimpleNamespace as Made
    >>> watching = TrlWatch(LiveWatch())
    >>> def brief(completions, **columns):
    ...     return [1.0 / (1 + len(text)) for text in completions]
    >>> (reward,) = watching.around([brief])
    >>> reward(prompts=["?", "?"], completions=["yes", "n"])
    [0.25, 0.5]
    >>> state = Made(global_step=1, is_world_process_zero=True)
    >>> control = Made(should_training_stop=False)
    >>> watching.on_step_end(Made(), state, control).should_training_stop
    False
    >>> watching.watch.state()["steps"]
    1
    """

    def __init__(
        self,
        watch: LiveWatch | Mapping[str, Any],
        *,
        reward_weights: Sequence[float] | None = None,
    ) -> None:
        """Take the watch; nothing is watched before `around`."""
        made = LiveWatch(**watch) if isinstance(watch, Mapping) else watch
        if not isinstance(made, LiveWatch):
            raise ConfigError(f"watch is {watch!r:.80}; give LiveWatch(…) or its settings.")
        self.watch = made
        self._weights = None if reward_weights is None else [float(each) for each in reward_weights]
        self._names: list[str] = []
        self._lock = threading.Lock()
        self._batches: list[_TrlBatch] = []
        self._evaluating = False

    def __getattr__(self, name: str) -> Any:
        # events of the trainer that say nothing to a watch, those of later versions too
        if name.startswith(_EVENT):
            return _nothing
        raise AttributeError(f"{type(self).__name__} has no attribute '{name}'")

    def around(self, reward_funcs: Any) -> list[Any]:
        """The reward functions, in their order and under their names, seen by this watch.

        Raises:
            ConfigError: one is no function (a reward model, which TRL calls otherwise), or the
                weights do not fit.
        """
        given = list(reward_funcs) if isinstance(reward_funcs, list | tuple) else [reward_funcs]
        for func in given:
            if not callable(func) or isinstance(func, type) or hasattr(func, "forward"):
                raise ConfigError(
                    f"{func!r:.80} is no function; a reward model is trained on beside the watch, "
                    f"which cannot see its scores. Give it as a reward function."
                )
        if self._weights is not None and len(self._weights) != len(given):
            raise ConfigError(
                f"There are {len(self._weights)} reward_weights for {len(given)} functions."
            )
        names = [_name_of(func) for func in given]
        self._names = [
            name if names.count(name) == 1 else f"{name}_{place + 1}"
            for place, name in enumerate(names)
        ]
        watched: list[Any] = []
        for place, func in enumerate(given):
            if isinstance(func, TrlReward):
                # it shows itself, since it is called plainly and awaited, as the trainer likes
                watched.append(copy.copy(func))
                watched[-1].seen_by = partial(self.see, place)
            else:
                watched.append(_WatchedFunction(self, place, func))
        return watched

    def see(
        self,
        place: int,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        values: Any,
        columns: Any,
    ) -> None:
        """Keep what one function gave for a batch, until the step ends."""
        with self._lock:
            if self._evaluating:
                return
            batch = next((each for each in self._batches if each.completions is completions), None)
            if batch is None or place in batch.values:
                batch = _TrlBatch(prompts, completions, columns, {})
                self._batches = [*self._batches[1 - _MOST_BATCHES :], batch]
            batch.values[place] = list(values)

    # -- events ------------------------------------------------------------------------------------

    def on_train_begin(self, args: Any, state: Any, control: Any, **beside: Any) -> Any:
        """Go on with the state that the checkpoint holds."""
        self._evaluating = True
        step, folder = getattr(state, "global_step", 0), getattr(args, "output_dir", None)
        if step and folder is not None:
            file = Path(folder) / f"checkpoint-{step}" / STATE_FILE
            if file.is_file():
                self.watch.load_state(json.loads(file.read_text(encoding="utf-8")))
            else:
                logger.warning("live watch: {} is missing; it begins anew at step {}.", file, step)
        return control

    def on_step_begin(self, args: Any, state: Any, control: Any, **beside: Any) -> Any:
        """Training goes on after an evaluation."""
        self._evaluating = False
        return control

    def on_step_end(self, args: Any, state: Any, control: Any, **beside: Any) -> Any:
        """Hand the batches of the step to the watch, and stop the training where it says so."""
        with self._lock:
            batches, self._batches = self._batches, []
            # an evaluation may follow; the next step says that it is over
            self._evaluating = True
        if batches and getattr(state, "is_world_process_zero", True):
            self._hand_over(int(state.global_step), batches)
        if _any_process(self.watch.stopped is not None, self.watch.on_finding, args):
            control.should_training_stop = True
        return control

    def on_save(self, args: Any, state: Any, control: Any, **beside: Any) -> Any:
        """Write the state into the checkpoint's folder."""
        if getattr(state, "is_world_process_zero", True):
            folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            folder.mkdir(parents=True, exist_ok=True)
            text = json.dumps(self.watch.state(), ensure_ascii=False, allow_nan=False)
            (folder / STATE_FILE).write_text(text, encoding="utf-8")
        return control

    def _hand_over(self, step: int, batches: Sequence[_TrlBatch]) -> None:
        weights = self._weights or [1.0] * len(self._names)
        completions: list[Any] = []
        prompts: list[Any] = []
        rows: list[Any] = []
        parts: dict[str, list[float | None]] = {name: [] for name in self._names}
        for batch in batches:
            n = len(batch.completions)
            completions += list(batch.completions)
            prompts += list(batch.prompts)
            rows += rows_of(batch.columns, n, HELPERS)
            for place, name in enumerate(self._names):
                values = batch.values.get(place, [None] * n)
                parts[name] += [None if value is None else float(value) for value in values]
        by_name = dict(zip(self._names, weights, strict=True))
        total = weighted_sum(parts, by_name, missing="zero")
        self.watch.weights = by_name
        self.watch.step(
            step,
            completions,
            total.tolist(),
            components=parts if len(parts) > 1 else None,
            prompts=prompts,
            rows=rows,
        )


class _TrlBatch(NamedTuple):
    """What the reward functions were called with, and what each gave."""

    prompts: Sequence[Any]
    completions: Sequence[Any]
    columns: Any
    values: dict[int, list[Any]]


class _WatchedFunction:
    """A reward function that shows the watch what it was asked and what it gave."""

    def __init__(self, watching: TrlWatch, place: int, func: Callable[..., Any]) -> None:
        self._watching, self._place, self._func = watching, place, func
        self.__name__ = _name_of(func)
        if _is_async(func):
            # TRL looks at the instance's attribute to learn whether to await
            self.__dict__["__call__"] = self._later

    def __repr__(self) -> str:
        return f"watched({self._func!r})"

    def __call__(self, /, prompts: Any, completions: Any, **columns: Any) -> Any:
        if _is_async(self._func):
            return self._later(prompts, completions, **columns)
        values = self._func(prompts=prompts, completions=completions, **columns)
        self._watching.see(self._place, prompts, completions, values, columns)
        return values

    async def _later(self, /, prompts: Any, completions: Any, **columns: Any) -> Any:
        values = await self._func(prompts=prompts, completions=completions, **columns)
        self._watching.see(self._place, prompts, completions, values, columns)
        return values


def _name_of(func: Any) -> str:
    """What TRL calls a function in its charts."""
    while hasattr(func, "func") and not hasattr(func, "__name__"):
        func = func.func
    return str(getattr(func, "__name__", type(func).__name__))


def _is_async(func: Any) -> bool:
    return (
        inspect.iscoroutinefunction(func)
        or inspect.iscoroutinefunction(getattr(func, "__dict__", {}).get("__call__"))
        or inspect.iscoroutinefunction(type(func).__call__)
    )


def _nothing(*args: Any, **beside: Any) -> None:
    """An event that changes nothing."""


def _any_process(stops: bool, on_finding: str, args: Any) -> bool:
    """Whether a process stops: all of them have to at once, or the others wait for ever."""
    torch = sys.modules.get("torch")
    group = getattr(torch, "distributed", None)
    if on_finding != "stop" or torch is None or group is None:
        return stops
    if not (group.is_available() and group.is_initialized()):
        return stops
    flag = torch.tensor([float(stops)], device=getattr(args, "device", "cpu"))
    group.all_reduce(flag)
    return bool(flag.item() > 0)
