"""Reward models of the transformers library, in this process: `hf:ID_OR_PATH` and `hf-prm:ID_OR_PATH`."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, field_validator

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.reward.base import BasePointWiseReward
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.reward.schema import Example, RewardDimensionWithScore, RewardResult, sample_of
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.gallery.rm.trained.batches import Batches
from rm_gallery.gallery.rm.trained.checkpoint import Source, check_path, identity, need_packages, stamp_of
from rm_gallery.gallery.rm.trained.conversation import STEPPED, Dialogue, ProcessReward, dialogue_of, template_text

if TYPE_CHECKING:
    from rm_gallery.gallery.rm.trained.local_model import Reading, Tokens

KEPT = 4
"""Models kept in memory; the one that was made first goes when another is needed."""
FILL = 16
"""Batches' worth of inputs that are in flight: among so many there are enough of about equal length."""

_KEY = "(model)"
_Key = tuple[Source, "Reading", int, int]
_models: dict[_Key, Batches[Dialogue, Tokens]] = {}
_guard = threading.Lock()


class _LocalReward(BaseReward):
    deterministic: ClassVar[bool] = False  # another batch adds in another order
    """A checkpoint and how it is used; what `hf:` and `hf-prm:` share."""

    needs: ClassVar[frozenset[str]] = frozenset({"hf"})

    path: str = Field(min_length=1)
    """Folder of a checkpoint, or its name on the hub."""
    revision: str | None = None
    """Branch, tag or commit on the hub."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Numbers the model computes in; auto takes those it was saved in."""
    device: str = "auto"
    """auto (a GPU where there is one), cpu, cuda or cuda:1."""
    batch_size: int = Field(default=32, ge=1)
    """Inputs scored together, at most."""
    batch_tokens: int = Field(default=32768, ge=1)
    """The longest input of a batch times their number, at most; halved by itself where memory does not suffice."""
    max_length: int | None = Field(default=None, ge=1)
    """Tokens of a conversation that are read; None for what the model was made for."""
    chat_template: str = "auto"
    """How a conversation is written: auto (the tokenizer's chat template, else pair or plain, with a warning), chat, pair
    (question and answer as a text pair), plain (turns with their roles), or a Jinja chat template or the file of one."""
    trust_remote_code: bool = False
    """Whether Python code inside the checkpoint may run, with all your rights."""

    @field_validator("chat_template")
    @classmethod
    def _read(cls, value: str) -> str:
        return template_text(value, ("auto", "chat", "pair", "plain"))

    @property
    def least_workers(self) -> int:
        """Enough inputs in flight to fill batches with inputs of about equal length."""
        return FILL * self.batch_size

    def check(self) -> None:
        """Raise ConfigError without torch or transformers, or for a folder that holds no checkpoint; loads nothing."""
        need_packages(f"The reward '{self.name}'")
        check_path(self.path)
        self._look()

    def describe(self) -> dict[str, Any]:
        """The settings and which weights, tokenizer and template they were used with; not how batches are made."""
        told = super().describe()
        for name in ("batch_size", "batch_tokens", "device"):
            told.pop(name, None)
        return {**told, **identity(self._source())}

    def _source(self) -> Source:
        raise NotImplementedError

    def _reading(self) -> Reading:
        raise NotImplementedError

    def _look(self) -> _Key:
        """What tells the model that is to be used from others, as it is now; every door looks once, and not every sample."""
        key: _Key = (self._source(), self._reading(), self.batch_size, self.batch_tokens)
        self.__dict__[_KEY] = key
        return key

    async def _numbers(self, dialogue: Dialogue) -> list[float]:
        """The model's numbers for one conversation; the model is loaded when it is first needed, once per process."""
        key: _Key = self.__dict__.get(_KEY) or self._look()
        batches = _models.get(key)
        if batches is None:
            from rm_gallery.gallery.rm.trained.local_model import LocalModel

            source, reading = key[:2]
            with _guard:
                batches = _models.setdefault(
                    key, Batches(lambda: LocalModel(source, reading), self.batch_size, self.batch_tokens)
                )
                while len(_models) > KEPT:
                    del _models[next(iter(_models))]
        return await batches.score(dialogue)


def _path_of(cls: type[BaseReward], scheme: str, path: str | os.PathLike[str] | None) -> str:
    if not path:
        raise ConfigError(f"{cls.__name__} needs a checkpoint: {scheme}ID_OR_PATH, or {cls.__name__}('ID_OR_PATH').")
    return os.fspath(path)


@RewardRegistry.register("hf:")
class HFReward(_LocalReward, BasePointWiseReward):
    """Score of a reward model checkpoint for an answer in its conversation, computed in this process by transformers.

    Unbounded unless `activation` bounds it, higher is better; of most models only differences between answers to the same
    prompt mean something. Reads sequence classifiers (the number of a one-label head as it is; of several labels those named
    by `label`), language models with a value head (`v_head`), and with `tokens` a language model's log-odds of the first
    token against the second. Texts cannot end their turn: a control mark of the model inside them is broken up.
    A conversation too long for the model is unscored (`too_long`) unless it may be cut; NaN and infinite scores are failed.
    All samples in flight, from whatever door, are scored in common batches, so that `max_workers` sets nothing; scores of
    one input in unlike batches differ by rounding.

    Raises:
        ConfigError: (on first use) no checkpoint, one without a score head, a label it has not, or no torch.

    Source: L. Ouyang et al., "Training language models to follow instructions", arXiv 2203.02155, equation 1.
    """

    label: str | int | list[str | int] | None = None
    """Name or number of the head's label that is the score; several become dimensions, whose mean is the score."""
    activation: Literal["auto", "none", "sigmoid", "softmax"] = "auto"
    """What is made of the head's numbers: auto leaves one label and regression heads as they are, takes the softmax over
    several labels, and the sigmoid of multi-label heads."""
    head: Literal["auto", "classification", "value", "tokens"] = "auto"
    """Where the score comes from; auto asks the checkpoint."""
    tokens: list[str] = Field(default_factory=list, max_length=2)
    """A token, such as Yes, and its opposite: reads the score from a language model's next token."""
    too_long: Literal["unscored", "cut_left", "cut_right"] = "unscored"
    """What becomes of a conversation longer than the model reads."""

    example = Example(
        sample_of(
            "How do I get a coffee stain out of a cotton shirt?",
            "Rinse it from the back with cold water, rub in dish soap, wait ten minutes, then wash as usual.",
            "idk",
        ),
        use="The scores say which of several answers to the same prompt is better: take them for best-of-N and preference "
        "pairs, and in training only within a group.",
        environment="a reward model's checkpoint, and the extra hf",
    )

    def __init__(self, path: str | os.PathLike[str] | None = None, **settings: Any) -> None:
        """Take the checkpoint, and the settings."""
        found = _path_of(type(self), "hf:", path)
        super().__init__(**{"path": found, "name": f"hf:{found}", **settings})

    def _source(self) -> Source:
        return Source(
            self.path, self.revision, self.dtype, self.device, self.head, False, tuple(self.tokens), self.trust_remote_code,
            stamp_of(self.path),
        )  # fmt: skip

    def _labels(self) -> tuple[str | int, ...]:
        given = self.label
        return tuple(given) if isinstance(given, list) else () if given is None else (given,)

    def _reading(self) -> Reading:
        from rm_gallery.gallery.rm.trained.local_model import Reading

        return Reading(self.chat_template, self._labels(), self.activation, self.max_length, self.too_long)

    async def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        """Score the answer; one without text that only calls tools is unscored."""
        numbers = await self._numbers(dialogue_of(sample, self.name))
        names = [str(label) for label in self._labels()] if len(numbers) > 1 else [self.name]
        found = zip(names, numbers, strict=True)
        return RewardResult(name=self.name, details=[RewardDimensionWithScore(name=n, score=s) for n, s in found])


@RewardRegistry.register("hf-prm:")
class HFProcessReward(_LocalReward, ProcessReward):
    """P(step is right) of a process reward model checkpoint for every step of an answer, computed in this process.

    Range [0, 1], higher is better. Steps are written one after another, `separator` behind each, and the score of a step is
    read at the last token of its separator: the softmax of a token classifier (its second of two labels, or `label`), the
    sigmoid of a head with one number or of a value head, or with `tokens` (such as + and -) the probability of the first
    token against the second. `step_score` (mean, min, last, product) makes the answer's number of them. A conversation too
    long for the model is unscored (`too_long`), an output without steps as well (`no_steps`).

    Raises:
        ConfigError: (on first use) no checkpoint, no score head, no separator where the tokenizer has no mark, or no torch.

    Source: P. Wang et al., "Math-Shepherd", arXiv 2312.08935 (tokens); Z. Zhang et al., "The Lessons of Developing Process
    Reward Models in Mathematical Reasoning", arXiv 2501.07301 (classifier).
    """

    separator: str | None = Field(default=None, min_length=1)
    """What stands behind every step, as in the model's training; None takes the tokenizer's own mark, such as <extra_0>."""
    label: str | int | None = None
    """The label of a right step, in a head of more than two."""
    head: Literal["auto", "classification", "value", "tokens"] = "auto"
    """Where the scores come from; auto asks the checkpoint."""
    tokens: list[str] = Field(default_factory=list, max_length=2)
    """With a language model: the token of a right step and that of a wrong one."""

    example = Example(
        STEPPED,
        use="The scores say where a solution goes wrong, and which of several solutions is the soundest.",
        environment="a process reward model's checkpoint, and the extra hf",
    )

    def __init__(self, path: str | os.PathLike[str] | None = None, **settings: Any) -> None:
        """Take the checkpoint, and the settings."""
        found = _path_of(type(self), "hf-prm:", path)
        super().__init__(**{"path": found, "name": f"hf-prm:{found}", **settings})

    def _source(self) -> Source:
        return Source(
            self.path, self.revision, self.dtype, self.device, self.head, True, tuple(self.tokens), self.trust_remote_code,
            stamp_of(self.path),
        )  # fmt: skip

    def _reading(self) -> Reading:
        from rm_gallery.gallery.rm.trained.local_model import Reading

        labels = () if self.label is None else (self.label,)
        return Reading(self.chat_template, labels, max_length=self.max_length, separator=self.separator)

    async def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        """Score every step of the answer."""
        dialogue = dialogue_of(sample, self.name, steps=True)
        return self.steps_result(await self._numbers(dialogue))


def _forget() -> None:
    """A forked child has the memory of the models and not their threads."""
    global _guard
    _guard = threading.Lock()
    _models.clear()


library_loop.after_fork(_forget)
