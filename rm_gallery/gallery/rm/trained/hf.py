"""Reward models of the transformers library, in this process: `hf:ID_OR_PATH` and
`hf-prm:ID_OR_PATH`.

Inputs from any number of samples in flight are scored together, in batches of about equal length:
every job of every run awaits its own score, and one thread per model takes what is waiting and runs
the model. So every entry point uses a model in the same way, and none needs its own batch code.
"""

from __future__ import annotations

import asyncio
import math
import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Protocol, TypeVar

from pydantic import Field, field_validator

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.context import current_deadline
from rm_gallery.core.reward.base import BasePointWiseReward
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.reward.schema import Example
from rm_gallery.core.score import Detail, Score, scored_by
from rm_gallery.core.utils.errors import ConfigError, ScoreError
from rm_gallery.gallery.rm.bounds import Count
from rm_gallery.gallery.rm.trained.checkpoint import (
    CheckpointSource,
    Head,
    check_path,
    identity,
    need_packages,
    stamp_of,
)
from rm_gallery.gallery.rm.trained.conversation import (
    STEPPED,
    Dialogue,
    ProcessReward,
    dialogue_of,
    preference_example,
    template_text,
)

if TYPE_CHECKING:
    from rm_gallery.gallery.rm.trained.local_model import InputSettings, TokenizedInput

IDLE_SECONDS = 0.2
LINGER_SECONDS = 0.001
"""How long a batch that is not full waits for others that are just being sent."""
Q = TypeVar("Q")


class Encoded(Protocol):
    """An input as the model takes it."""

    def __len__(self) -> int:
        """Its length in tokens."""


E = TypeVar("E", bound=Encoded)


class BatchedModel(Protocol[Q, E]):
    """A model in this process; used by one thread at a time."""

    def encode(self, requests: list[Q]) -> list[E | Exception]:
        """Each request as the model takes it, or why it cannot be scored."""

    def forward(self, batch: list[E]) -> list[list[float]]:
        """The numbers of each input of a batch."""


class _Item(Generic[Q, E]):
    """One request that waits for its numbers."""

    __slots__ = ("encoded", "future", "gone", "loop", "number", "paused", "request")

    def __init__(self, request: Q, loop: asyncio.AbstractEventLoop) -> None:
        self.request = request
        self.loop = loop
        self.future: asyncio.Future[list[float]] = loop.create_future()
        self.gone = False
        self.number = 0
        self.encoded: E
        deadline = current_deadline.get()
        # a sample's deadline pauses while it waits in the queue
        self.paused: AbstractContextManager[None] | None = (
            None if deadline is None else deadline.paused()
        )
        if self.paused is not None:
            self.paused.__enter__()

    def resume(self) -> None:
        """Let the sample's clock go on; on the loop only."""
        paused, self.paused = self.paused, None
        if paused is not None:
            paused.__exit__(None, None, None)


_Result = tuple[_Item[Q, E], list[float] | BaseException]


class Batches(Generic[Q, E]):
    """The waiting inputs of one model, and the thread that scores them.

    The input that has waited longest is always in the next batch, with those nearest to it in
    length, so that padding is short and no input starves.

    Args:
        open_model: makes the model, on that thread, when it is first needed. What it raises, every
            waiting input gets.
        size: inputs in a batch, at most.
        tokens: length of a batch's longest input times the number of its inputs, at most; one input
            may be longer.
    """

    def __init__(
        self, open_model: Callable[[], BatchedModel[Q, E]], size: int, tokens: int
    ) -> None:
        self._open = open_model
        self._model: BatchedModel[Q, E] | None = None
        self._size, self._tokens = size, tokens
        self._ready = threading.Condition()
        self._new: list[_Item[Q, E]] = []
        self._running = False
        self._count = 0

    async def score(self, request: Q) -> list[float]:
        """The model's numbers for a request, each finite; on the library loop only.

        Raises what `encode` says of the request, and ScoreError when a number is NaN or infinite.
        """
        item: _Item[Q, E] = _Item(request, asyncio.get_running_loop())
        try:
            with self._ready:
                self._new.append(item)
                start, self._running = not self._running, True
                self._ready.notify()
            if start:
                library_loop.start_thread(self._work)
            return await item.future
        finally:
            item.gone = True
            item.resume()

    # -- on the thread -----------------------------------------------------------------------------

    def _work(self) -> None:
        pool: list[_Item[Q, E]] = []
        try:
            while True:
                new = self._arrived(wait=not pool)
                if new is None:
                    return
                if new:
                    pool += self._encoded(new)
                    while len(pool) < self._size and (more := self._arrived(LINGER_SECONDS)):
                        pool += self._encoded(more)
                    pool.sort(key=_length)
                if pool:
                    self._run_batch(self._next_batch(pool))
        except BaseException as error:  # noqa: BLE001 - whoever waits is told, whatever it is
            with self._ready:
                left, self._new, self._running = pool + self._new, [], False
            self._hand_out([(item, error) for item in left])

    def _arrived(self, linger: float = 0.0, *, wait: bool = False) -> list[_Item[Q, E]] | None:
        """The requests since the last call; with `wait`, waits for the first and returns None when
        none comes.
        """
        with self._ready:
            if not self._new and (wait or linger):
                self._ready.wait(linger or IDLE_SECONDS)
                if not self._new and wait:
                    self._running = False
                    return None
            new, self._new = self._new, []
            return new

    def _encoded(self, new: list[_Item[Q, E]]) -> list[_Item[Q, E]]:
        kept: list[_Item[Q, E]] = []
        refused: list[_Result[Q, E]] = []
        try:
            if self._model is None:
                self._model = self._open()
            encoded = list(
                zip(new, self._model.encode([item.request for item in new]), strict=True)
            )
        except BaseException as error:  # noqa: BLE001 - each of them is told
            self._hand_out([(item, error) for item in new])
            return []
        for item, tokens in encoded:
            if isinstance(tokens, Exception):
                refused.append((item, tokens))
                continue
            item.encoded = tokens
            item.number = self._count = self._count + 1
            kept.append(item)
        self._hand_out(refused)
        return kept

    def _next_batch(self, pool: list[_Item[Q, E]]) -> list[_Item[Q, E]]:
        """Take the oldest input and its neighbours in length out of the pool, which is sorted by
        length.
        """
        low = min(range(len(pool)), key=lambda at: pool[at].number)
        high = low + 1
        while high - low < self._size:
            longest = _length(pool[high]) if high < len(pool) else math.inf
            grown = high - low + 1
            if longest * grown <= self._tokens:
                high += 1
            elif low > 0 and _length(pool[high - 1]) * grown <= self._tokens:
                low -= 1
            else:
                break
        batch = pool[low:high]
        del pool[low:high]
        return [item for item in batch if not item.gone]

    def _run_batch(self, batch: list[_Item[Q, E]]) -> None:
        if not batch:
            return None
        assert self._model is not None

        def resume() -> None:
            for item in batch:
                item.resume()

        self._post(batch[0].loop, resume)
        try:
            numbers = self._model.forward([item.encoded for item in batch])
            results = [(item, _finite(own)) for item, own in zip(batch, numbers, strict=True)]
        except BaseException as error:  # noqa: BLE001 - one input that breaks the model must not cost the others, nor a full memory
            if len(batch) == 1:
                return self._hand_out([(batch[0], error)])
            half = len(batch) // 2
            self._run_batch(batch[:half])
            return self._run_batch(batch[half:])
        return self._hand_out(results)

    def _hand_out(self, results: list[_Result[Q, E]]) -> None:
        """Hand results to their waiters, with one wake-up per event loop."""
        by_loop: dict[Any, list[_Result[Q, E]]] = {}
        for result in results:
            by_loop.setdefault(result[0].loop, []).append(result)
        for loop, own in by_loop.items():
            self._post(loop, partial(_resolve, own))

    @staticmethod
    def _post(loop: asyncio.AbstractEventLoop, callback: Callable[[], Any]) -> None:
        with suppress(RuntimeError):  # that loop is closed, so nobody waits
            library_loop.post(loop, callback)


def _length(item: _Item[Any, Any]) -> int:
    return len(item.encoded)


def _finite(numbers: list[float]) -> list[float] | BaseException:
    odd = next((number for number in numbers if not math.isfinite(number)), None)
    return numbers if odd is None else ScoreError(f"The model gave {odd}, which is no score.")


def _resolve(results: list[_Result[Any, Any]]) -> None:
    for item, result in results:
        if item.future.done():
            continue
        if not isinstance(result, BaseException):
            item.future.set_result(result)
        elif isinstance(result, Exception) and not isinstance(result, StopIteration):
            item.future.set_exception(result)
        else:  # no future takes the one, and others would end the loop
            item.future.set_exception(
                RuntimeError(f"{type(result).__name__} in the model: {result}")
            )


# -- the rewards -----------------------------------------------------------------------------------

KEPT = 4
"""Models kept in memory; the oldest is dropped when another is needed."""
FILL = 16
"""Batches of inputs in flight, so that enough of them have about equal length."""

_KEY = "(model)"
_Key = tuple[CheckpointSource, "InputSettings", int, int]
_models: dict[_Key, Batches[Dialogue, TokenizedInput]] = {}
_guard = threading.Lock()


class _LocalReward(BaseReward):
    """A checkpoint and how it is used; what `hf:` and `hf-prm:` share."""

    SCHEME: ClassVar[str] = "hf:"
    deterministic = False  # another batch adds in another order
    needs = frozenset({"hf"})

    path: str = Field(min_length=1)
    """Folder of a checkpoint, or its name on the hub."""
    revision: str | None = None
    """Branch, tag or commit on the hub."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Numbers the model computes in; auto takes those it was saved in."""
    device: str = "auto"
    """auto (a GPU where there is one), cpu, cuda or cuda:1."""
    batch_size: Count = 32
    """Inputs scored together, at most."""
    batch_tokens: Count = 32768
    """The longest input of a batch times their number, at most; halved by itself where memory does
    not suffice.
    """
    max_length: int | None = Field(default=None, ge=1)
    """Tokens of a conversation that are read; None for what the model was made for."""
    chat_template: str = "auto"
    """How a conversation is written: auto (the tokenizer's chat template, else pair or plain, with
    a warning), chat, pair (question and answer as a text pair), plain (turns with their roles), or
    a Jinja chat template or the file of one."""
    trust_remote_code: bool = False
    """Whether Python code inside the checkpoint may run, with all your rights."""

    def __init__(self, path: str | os.PathLike[str] | None = None, **settings: Any) -> None:
        """Take the checkpoint, and the settings."""
        if not path:
            cls = type(self).__name__
            raise ConfigError(
                f"{cls} needs a checkpoint: {self.SCHEME}ID_OR_PATH, or {cls}('ID_OR_PATH')."
            )
        checkpoint = os.fspath(path)
        super().__init__(**{"path": checkpoint, "name": f"{self.SCHEME}{checkpoint}", **settings})

    @field_validator("chat_template")
    @classmethod
    def _read_template(cls, value: str) -> str:
        return template_text(value, ("auto", "chat", "pair", "plain"))

    @property
    def least_workers(self) -> int:
        """Enough inputs in flight to fill batches with inputs of about equal length."""
        return FILL * self.batch_size

    def check(self) -> None:
        """Raise ConfigError without torch or transformers, or for a folder that holds no
        checkpoint; loads nothing.
        """
        need_packages(f"The reward '{self.name}'")
        check_path(self.path)
        self._renew_key()

    def describe(self) -> dict[str, Any]:
        """The settings and which weights, tokenizer and template they were used with; not how
        batches are made.
        """
        settings = super().describe()
        for name in ("batch_size", "batch_tokens", "device"):
            settings.pop(name, None)
        return {**settings, **identity(self._source())}

    def _source(self) -> CheckpointSource:
        raise NotImplementedError

    def _checkpoint(self, head: Head, tokens: list[str], *, per_token: bool) -> CheckpointSource:
        how = (self.revision, self.dtype, self.device, head, per_token, tuple(tokens))
        stamp = stamp_of(self.path)
        return CheckpointSource(self.path, *how, self.trust_remote_code, stamp)

    def _input_settings(self) -> InputSettings:
        raise NotImplementedError

    def _renew_key(self) -> _Key:
        """The key of the model as it is on disk now; computed once per run, not per sample."""
        key: _Key = (self._source(), self._input_settings(), self.batch_size, self.batch_tokens)
        self.__dict__[_KEY] = key
        return key

    async def _model_numbers(self, dialogue: Dialogue) -> list[float]:
        """The model's numbers for one conversation; the model is loaded when it is first needed,
        once per process.
        """
        key: _Key = self.__dict__.get(_KEY) or self._renew_key()
        batches = _models.get(key)
        if batches is None:
            from rm_gallery.gallery.rm.trained.local_model import LocalModel

            source, reading = key[:2]
            with _guard:
                batches = _models.setdefault(
                    key,
                    Batches(
                        lambda: LocalModel(source, reading), self.batch_size, self.batch_tokens
                    ),
                )
                while len(_models) > KEPT:
                    del _models[next(iter(_models))]
        return await batches.score(dialogue)


@RewardRegistry.register("hf:")
class HFReward(_LocalReward, BasePointWiseReward):
    """Score of a reward model checkpoint for an answer in its conversation, computed in this
    process by transformers.

    Unbounded unless `activation` bounds it, higher is better; of most models only differences
    between answers to the same prompt mean something. Reads sequence classifiers (the number of a
    one-label head as it is; of several labels those named by `label`), language models with a value
    head (`v_head`), and with `tokens` a language model's log-odds of the first token against the
    second. Texts cannot end their turn: a control mark of the model inside them is broken up. A
    conversation too long for the model is unscored (`too_long`) unless it may be cut; NaN and
    infinite scores are failed. All samples in flight share batches, so `max_workers` has no effect;
    scores of one input in different batches differ by rounding.

    Raises:
        ConfigError: (on first use) no checkpoint, one without a score head, a label it has not, or
            no torch.

    Source: L. Ouyang et al., "Training language models to follow instructions", arXiv 2203.02155,
    equation 1.
    """

    label: str | int | list[str | int] | None = None
    """Name or number of the head's label that is the score; several become dimensions, whose mean
    is the score.
    """
    activation: Literal["auto", "none", "sigmoid", "softmax"] = "auto"
    """What is made of the head's numbers: auto leaves one label and regression heads as they are,
    takes the softmax over several labels, and the sigmoid of multi-label heads."""
    head: Head = "auto"
    """Where the score comes from; auto asks the checkpoint."""
    tokens: list[str] = Field(default_factory=list, max_length=2)
    """A token, such as Yes, and its opposite: reads the score from a language model's next token.
    """
    too_long: Literal["unscored", "cut_left", "cut_right"] = "unscored"
    """What becomes of a conversation longer than the model reads."""

    example = preference_example("a reward model's checkpoint, and the extra hf")

    def __init__(self, path: str | os.PathLike[str] | None = None, **settings: Any) -> None:
        super().__init__(path, **settings)

    def _source(self) -> CheckpointSource:
        return self._checkpoint(self.head, self.tokens, per_token=False)

    def _labels(self) -> tuple[str | int, ...]:
        given = self.label
        return tuple(given) if isinstance(given, list) else () if given is None else (given,)

    def _input_settings(self) -> InputSettings:
        from rm_gallery.gallery.rm.trained.local_model import InputSettings

        return InputSettings(
            self.chat_template, self._labels(), self.activation, self.max_length, self.too_long
        )

    async def _evaluate(self, sample: DataSample, **kwargs: Any) -> Score[Any]:
        """Score the answer; one without text that only calls tools is unscored."""
        numbers = await self._model_numbers(dialogue_of(sample, self.name))
        names = [str(label) for label in self._labels()] if len(numbers) > 1 else [self.name]
        return scored_by(Detail(*each) for each in zip(names, numbers, strict=True))


@RewardRegistry.register("hf-prm:")
class HFProcessReward(_LocalReward, ProcessReward):
    """P(step is right) of a process reward model checkpoint for every step of an answer, computed
    in this process.

    Range [0, 1], higher is better. Steps are written one after another, `separator` behind each,
    and the score of a step is read at the last token of its separator: the softmax of a token
    classifier (its second of two labels, or `label`), the sigmoid of a head with one number or of a
    value head, or with `tokens` (such as + and -) the probability of the first token against the
    second. `step_score` (mean, min, last, product) makes the answer's number of them. A
    conversation too long for the model is unscored (`too_long`), a trajectory as well
    (`trajectory`).

    Raises:
        ConfigError: (on first use) no checkpoint, no score head, no separator where the tokenizer
            has no mark, or no torch.

    Source: P. Wang et al., "Math-Shepherd", arXiv 2312.08935 (tokens); Z. Zhang et al., "The
    Lessons of Developing Process Reward Models in Mathematical Reasoning", arXiv 2501.07301
    (classifier).
    """

    SCHEME = "hf-prm:"

    separator: str | None = Field(default=None, min_length=1)
    """What stands behind every step, as in the model's training; None takes the tokenizer's own
    mark, such as <extra_0>.
    """
    label: str | int | None = None
    """The label of a right step, in a head of more than two."""
    head: Head = "auto"
    """Where the scores come from; auto asks the checkpoint."""
    tokens: list[str] = Field(default_factory=list, max_length=2)
    """With a language model: the token of a right step and that of a wrong one."""

    example = Example(
        STEPPED,
        use=(
            "The scores say where a solution goes wrong, and which of several solutions is the "
            "soundest."
        ),
        environment="a process reward model's checkpoint, and the extra hf",
    )

    def __init__(self, path: str | os.PathLike[str] | None = None, **settings: Any) -> None:
        super().__init__(path, **settings)

    def _source(self) -> CheckpointSource:
        return self._checkpoint(self.head, self.tokens, per_token=True)

    def _input_settings(self) -> InputSettings:
        from rm_gallery.gallery.rm.trained.local_model import InputSettings

        labels = () if self.label is None else (self.label,)
        return InputSettings(
            self.chat_template, labels, max_length=self.max_length, separator=self.separator
        )

    async def _evaluate(self, sample: DataSample, **kwargs: Any) -> Score[Any]:
        dialogue = dialogue_of(sample, self.name, steps=True)
        return Score(tuple(await self._model_numbers(dialogue)))


def _forget_models() -> None:
    """Drop the models in a forked child, which has their memory but not their threads."""
    global _guard
    _guard = threading.Lock()
    _models.clear()


library_loop.after_fork(_forget_models)
