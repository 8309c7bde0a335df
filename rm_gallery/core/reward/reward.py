"""`BaseReward`: the doors through which every reward is called."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.reward.abstract import AbstractReward
from rm_gallery.core.reward.run import (
    RunOptions,
    Samples,
    checked_samples,
    options_of,
    run_list,
    run_one,
    run_stream,
    scores_of,
)
from rm_gallery.core.score import Score
from rm_gallery.core.utils.errors import ConfigError, Unscored
from rm_gallery.core.utils.models import copy_with


class BaseReward(AbstractReward):
    """A named way to score a sample's outputs.

    A subclass picks a kind (pointwise, listwise, pairwise, stepwise, trajectory) and implements
    `_evaluate(sample, **kwargs)`, plain or async, returning a `Score` of a number, or of a tuple
    with one for each output where they are compared; a `RewardResult` will do as well. It may raise
    `Unscored` when there is nothing to judge by. Instances keep nothing of a call: one object
    serves any number of threads and calls at once, and it can be pickled.

    A plain `_evaluate` runs on threads. An async one runs on the library's event loop with all
    others: what blocks in it (a sleep, a long computation) holds up every call in flight, so such
    work belongs in a plain or `cpu_bound` reward.
    """

    # a class taken from the registry is known as a reward alone, and takes settings of its own
    if TYPE_CHECKING:

        def __init__(self, **settings: Any) -> None: ...

    # -- doors -------------------------------------------------------------------------------------

    # All of them take the names of RunOptions as keywords (max_workers, deadline, progress, cache,
    # budget, run_dir, repeat, trace, …), which win over `options=`, and the named parameters of the
    # reward's hooks. A keyword that is neither is a ConfigError; values for hooks that only take
    # **kwargs go into `hooks={…}`. A call inside a run is a part of that run.

    def evaluate(
        self,
        sample: DataSample | dict[str, Any],
        thread_pool: Any = None,
        *,
        options: RunOptions | None = None,
        hooks: Mapping[str, Any] | None = None,
        **keywords: Any,
    ) -> DataSample:
        """Score one sample and return a scored copy; the given sample stays as it is.

        A judgement that fails is recorded in the outputs' `answer.reward.issues`, not raised. Only
        errors of the caller's making (ConfigError) are raised. `thread_pool` is accepted for
        compatibility and not used.
        """
        return library_loop.drive(run_one(self, sample, options, hooks, keywords))

    async def async_evaluate(
        self,
        sample: DataSample | dict[str, Any],
        semaphore: Any = None,
        *,
        options: RunOptions | None = None,
        hooks: Mapping[str, Any] | None = None,
        **keywords: Any,
    ) -> DataSample:
        """Awaitable twin of `evaluate`, from any event loop; `semaphore` bounds calls you start
        yourself.
        """
        if semaphore is None:
            return await run_one(self, sample, options, hooks, keywords)
        async with semaphore:
            return await run_one(self, sample, options, hooks, keywords)

    def evaluate_batch(
        self,
        samples: Iterable[DataSample | dict[str, Any]],
        max_workers: int | None = None,
        *,
        options: RunOptions | None = None,
        hooks: Mapping[str, Any] | None = None,
        thread_pool: Any = None,
        **keywords: Any,
    ) -> list[DataSample]:
        """Score many samples, at most `max_workers` judgements at a time, and return scored copies
        in the given order.

        One failing sample never costs another. Works in scripts, threads and under a running event
        loop.

        Args:
            samples: samples, or dicts of their fields.
            max_workers: the true number in flight; None or 0 takes the reward's own.
            options: how the run goes; keywords win over it.
            hooks: values handed to the reward's hooks.
            thread_pool: accepted for compatibility, not used.
            **keywords: options by name, such as `deadline` (seconds one sample may take),
                `progress`, `run_dir` (a folder that keeps results as they come; the same call
                continues an unfinished run), `budget`, `cache`; and named parameters of the hooks.
        """
        library_loop.refuse_blocking(
            f"{type(self).__name__}.evaluate_batch", "async_evaluate_batch"
        )
        given = {**keywords, "max_workers": max_workers}
        return library_loop.drive(run_list(*self._run_of(samples, options, hooks, given)))

    async def async_evaluate_batch(
        self,
        samples: Iterable[DataSample | dict[str, Any]],
        max_workers: int | None = None,
        *,
        options: RunOptions | None = None,
        hooks: Mapping[str, Any] | None = None,
        **keywords: Any,
    ) -> list[DataSample]:
        """Awaitable twin of `evaluate_batch`, from any event loop."""
        given = {**keywords, "max_workers": max_workers}
        return await run_list(*self._run_of(samples, options, hooks, given))

    def score_batch(
        self,
        samples: Iterable[DataSample | dict[str, Any]],
        max_workers: int | None = None,
        *,
        options: RunOptions | None = None,
        hooks: Mapping[str, Any] | None = None,
        **keywords: Any,
    ) -> list[list[Score[Any]]]:
        """As `evaluate_batch`, and gives the scores alone: for each sample, in the given order, what
        is said of each of its outputs. No copy is made that they would be written to.

        >>> from rm_gallery import DataSample, RewardRegistry
        >>> row = {"input": [{"role": "user", "content": "2 + 2?"}], "metadata": {"reference": "4"}}
        >>> said = [{"answer": {"role": "assistant", "content": text}} for text in ("4", "five")]
        >>> [scores] = RewardRegistry.create("accuracy").score_batch([{**row, "output": said}])
        >>> [score.value for score in scores]
        [1.0, 0.0]
        """
        library_loop.refuse_blocking(f"{type(self).__name__}.score_batch", "async_score_batch")
        given = {**keywords, "max_workers": max_workers}
        run = self._run_of(samples, options, hooks, given, "score_batch")
        return library_loop.drive(scores_of(*run))

    async def async_score_batch(
        self,
        samples: Iterable[DataSample | dict[str, Any]],
        max_workers: int | None = None,
        *,
        options: RunOptions | None = None,
        hooks: Mapping[str, Any] | None = None,
        **keywords: Any,
    ) -> list[list[Score[Any]]]:
        """Awaitable twin of `score_batch`, from any event loop."""
        given = {**keywords, "max_workers": max_workers}
        return await scores_of(*self._run_of(samples, options, hooks, given, "score_batch"))

    def _run_of(
        self,
        samples: Iterable[DataSample | dict[str, Any]],
        options: RunOptions | None,
        hooks: Mapping[str, Any] | None,
        keywords: Mapping[str, Any],
        door: str = "evaluate_batch",
    ) -> tuple[BaseReward, Samples, RunOptions, dict[str, Any]]:
        progress = False if door == "evaluate_stream" else None
        chosen, values = options_of(self, options, hooks, keywords, progress)
        return self, checked_samples(samples, door), chosen, values

    def evaluate_stream(
        self,
        samples: Iterable[DataSample | dict[str, Any]],
        max_workers: int | None = None,
        *,
        options: RunOptions | None = None,
        hooks: Mapping[str, Any] | None = None,
        **keywords: Any,
    ) -> Iterator[DataSample]:
        """Score an endless or huge iterable as it comes, in order and in flat memory; arguments as
        in `evaluate_batch`.

        At most a few times `max_workers` samples are begun before their turn to be taken. The
        iterable is drawn from on a thread of its own, so it may wait for what the caller does with
        earlier results.
        """
        library_loop.refuse_blocking(
            f"{type(self).__name__}.evaluate_stream", "async_evaluate_stream"
        )
        given = {**keywords, "max_workers": max_workers}
        run = self._run_of(samples, options, hooks, given, "evaluate_stream")
        return library_loop.driven(run_stream(*run, streaming=True))

    def async_evaluate_stream(
        self,
        samples: Iterable[DataSample | dict[str, Any]],
        max_workers: int | None = None,
        *,
        options: RunOptions | None = None,
        hooks: Mapping[str, Any] | None = None,
        **keywords: Any,
    ) -> AsyncGenerator[DataSample, None]:
        """Twin of `evaluate_stream` for `async for`, from any event loop."""
        given = {**keywords, "max_workers": max_workers}
        run = self._run_of(samples, options, hooks, given, "evaluate_stream")
        return run_stream(*run, streaming=True)

    def best_of_n(
        self, sample: DataSample | dict[str, Any], n: int = 1, **keywords: Any
    ) -> DataSample:
        """Score a sample and keep its `n` best outputs, best first; keywords as in `evaluate`.

        Outputs without a score are never chosen; equal scores keep their order. Raises Unscored
        when no output got a score, ConfigError when `n` is below 1.
        """
        _check_count(n)
        return self._best(self.evaluate(sample, **keywords), n)

    async def async_best_of_n(
        self, sample: DataSample | dict[str, Any], n: int = 1, **keywords: Any
    ) -> DataSample:
        """Awaitable twin of `best_of_n`."""
        _check_count(n)
        return self._best(await self.async_evaluate(sample, **keywords), n)

    def _best(self, result: DataSample, n: int) -> DataSample:
        ranked = [o for o in result.output if self.score_of_output(o) is not None]
        if not ranked:
            raise Unscored(
                f"{self.name} gave none of the {len(result.output)} outputs a score.",
                reason="all_unscored",
            )
        sign = -1.0 if self.higher_is_better else 1.0
        ranked.sort(key=lambda output: sign * (self.score_of_output(output) or 0.0))
        return copy_with(result, output=ranked[:n])


def _check_count(n: int) -> None:
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise ConfigError(
            f"n is {n!r:.80}; best_of_n keeps a whole number of outputs, at least one."
        )
