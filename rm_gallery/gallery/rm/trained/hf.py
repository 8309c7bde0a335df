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
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from itertools import count
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeVar

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
    Activation,
    CheckpointSource,
    Head,
    TooLong,
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
from rm_gallery.gallery.rm.trained.local_model import LocalModel, TokenizedInput

LINGER_SECONDS = 0.001
"""How long a batch that is not full waits for others that are just being sent."""
Q = TypeVar("Q")
R = TypeVar("R")


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

    def __init__(self, request: Q) -> None:
        self.request = request
        self.future: asyncio.Future[list[float]] = asyncio.get_running_loop().create_future()
        self.number = 0
        self.encoded: E
        self.queued = ExitStack()
        """A sample's deadline pauses while it waits in the queue."""
        deadline = current_deadline.get()
        if deadline is not None:
            self.queued.enter_context(deadline.paused())

    def settle(self, result: list[float] | BaseException) -> None:
        """Hand the numbers, or why there are none, to whoever waits, if somebody still does."""
        if self.future.done():
            return
        if not isinstance(result, BaseException):
            self.future.set_result(result)
            return
        if not isinstance(result, Exception) or isinstance(result, StopIteration):
            # no future takes the one, and others would end the loop
            result = RuntimeError(f"{type(result).__name__} in the model: {result}")
        self.future.set_exception(result)


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
        self._open = cache(open_model)
        self._size, self._tokens = size, tokens
        self._thread = ThreadPoolExecutor(1, "rm-gallery-model")
        self._new: list[_Item[Q, E]] = []
        self._worker: asyncio.Task[None] | None = None
        self._numbers = count()

    async def score(self, request: Q) -> list[float]:
        """The model's numbers for a request, each finite; on the library loop only.

        Raises what `encode` says of the request, and ScoreError when a number is NaN or infinite.
        """
        item: _Item[Q, E] = _Item(request)
        self._new.append(item)
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())
        try:
            return await item.future
        finally:
            item.queued.close()

    async def _work(self) -> None:
        pool: list[_Item[Q, E]] = []
        while pool or self._new:
            while self._new:
                new, self._new = self._new, []
                encoded = await self._on_thread(self._encode, new)
                for item, tokens in zip(new, encoded, strict=True):
                    if isinstance(tokens, BaseException):
                        item.settle(tokens)
                    else:
                        item.encoded, item.number = tokens, next(self._numbers)
                        pool.append(item)
                if len(pool) < self._size:
                    await asyncio.sleep(LINGER_SECONDS)
            pool.sort(key=_length)
            if pool and (batch := self._next_batch(pool)):
                for item in batch:
                    item.queued.close()
                for item, numbers in zip(
                    batch, await self._on_thread(self._forward, batch), strict=True
                ):
                    item.settle(numbers)

    async def _on_thread(
        self, step: Callable[[list[_Item[Q, E]]], list[R]], items: list[_Item[Q, E]]
    ) -> list[R | BaseException]:
        """A step's result for each item, or the error that cost all of them."""
        try:
            loop = asyncio.get_running_loop()
            return [*await loop.run_in_executor(self._thread, step, items)]
        except BaseException as error:  # noqa: BLE001 - each of them is told
            return [error] * len(items)

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
        return [item for item in batch if not item.future.done()]

    # -- on the thread -----------------------------------------------------------------------------

    def _encode(self, new: list[_Item[Q, E]]) -> list[E | Exception]:
        encoded = self._open().encode([item.request for item in new])
        return [tokens for _, tokens in zip(new, encoded, strict=True)]

    def _forward(self, batch: list[_Item[Q, E]]) -> list[list[float] | BaseException]:
        try:
            numbers = self._open().forward([item.encoded for item in batch])
            return [_finite(own) for _, own in zip(batch, numbers, strict=True)]
        except BaseException as error:  # noqa: BLE001 - one input that breaks the model must not cost the others, nor a full memory
            half = len(batch) // 2
            if not half:
                return [error]
            return [*self._forward(batch[:half]), *self._forward(batch[half:])]


def _length(item: _Item[Any, Any]) -> int:
    return len(item.encoded)


def _finite(numbers: list[float]) -> list[float] | BaseException:
    odd = next((number for number in numbers if not math.isfinite(number)), None)
    return numbers if odd is None else ScoreError(f"The model gave {odd}, which is no score.")


# -- the rewards -----------------------------------------------------------------------------------

KEPT = 4
"""Models kept in memory; the oldest is dropped when another is needed."""
FILL = 16
"""Batches of inputs in flight, so that enough of them have about equal length."""

_KEY = "(model)"
_Key = tuple[CheckpointSource, int, int]
_models: dict[_Key, Batches[Dialogue, TokenizedInput]] = {}


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
        """The checkpoint as it is on disk now, and the settings that all of these rewards have."""
        return CheckpointSource(
            self.path,
            self.revision,
            self.dtype,
            self.device,
            self.trust_remote_code,
            self.chat_template,
            self.max_length,
            stamp_of(self.path),
        )

    def _renew_key(self) -> _Key:
        """The key of the model as it is on disk now; computed once per run, not per sample."""
        key: _Key = (self._source(), self.batch_size, self.batch_tokens)
        self.__dict__[_KEY] = key
        return key

    async def _model_numbers(self, dialogue: Dialogue) -> list[float]:
        """The model's numbers for one conversation; the model is loaded when it is first needed,
        once per process.
        """
        key: _Key = self.__dict__.get(_KEY) or self._renew_key()
        if key not in _models:
            source, size, tokens = key
            _models[key] = Batches(lambda: LocalModel(source), size, tokens)
            if len(_models) > KEPT:
                del _models[next(iter(_models))]
        return await _models[key].score(dialogue)


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
    activation: Activation = "auto"
    """What is made of the head's numbers: auto leaves one label and regression heads as they are,
    takes the softmax over several labels, and the sigmoid of multi-label heads."""
    head: Head = "auto"
    """Where the score comes from; auto asks the checkpoint."""
    tokens: list[str] = Field(default_factory=list, max_length=2)
    """A token, such as Yes, and its opposite: reads the score from a language model's next token.
    """
    too_long: TooLong = "unscored"
    """What becomes of a conversation longer than the model reads."""

    example = preference_example("a reward model's checkpoint, and the extra hf")

    def __init__(self, path: str | os.PathLike[str] | None = None, **settings: Any) -> None:
        super().__init__(path, **settings)

    def _source(self) -> CheckpointSource:
        return replace(
            super()._source(),
            head=self.head,
            tokens=tuple(self.tokens),
            labels=self._labels(),
            activation=self.activation,
            too_long=self.too_long,
        )

    def _labels(self) -> tuple[str | int, ...]:
        given = self.label
        return tuple(given) if isinstance(given, list) else () if given is None else (given,)

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
        return replace(
            super()._source(),
            head=self.head,
            per_token=True,
            tokens=tuple(self.tokens),
            labels=() if self.label is None else (self.label,),
            separator=self.separator,
        )

    async def _evaluate(self, sample: DataSample, **kwargs: Any) -> Score[Any]:
        dialogue = dialogue_of(sample, self.name, steps=True)
        return Score(tuple(await self._model_numbers(dialogue)))


# a forked child has their memory but not their threads
library_loop.after_fork(_models.clear)
