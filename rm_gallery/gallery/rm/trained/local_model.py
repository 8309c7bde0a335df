"""A reward model in this process: from conversations to tokens, and from tokens to numbers."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

import numpy as np
from jinja2.exceptions import TemplateError

from rm_gallery.core.utils.errors import ConfigError, Unscored
from rm_gallery.core.utils.log import logger
from rm_gallery.gallery.rm.trained.checkpoint import (
    PROBE,
    CheckpointSource,
    Loaded,
    label_places,
    load,
)
from rm_gallery.gallery.rm.trained.conversation import Dialogue, any_of, without_marks

Padding = Literal["right", "left", "none"]
NO_LIMIT = 1 << 20
"""A tokenizer that names a longer limit than this has none."""
SHIFTED = frozenset(
    "roberta xlm_roberta xlm_roberta_xl camembert xmod mpnet longformer roberta_prelayernorm".split()
)
"""Models that number positions from behind their padding token."""
PLACE = "\u27e6answer\u27e7"
"""Placeholder for the steps while the chat template is applied, since templates rewrite assistant
turns.
"""


@dataclass(frozen=True)
class TokenizedInput:
    """One input of the model."""

    ids: list[int]
    at: tuple[int, ...]
    """The tokens whose numbers are read."""
    kinds: list[int] | None = None
    """Token types, where the model knows any."""

    def __len__(self) -> int:
        return len(self.ids)


class LocalModel:
    """A loaded checkpoint that scores conversations; one thread at a time.

    Batches are padded on the right behind a mask. Models whose scores change with that (they read
    the last position regardless of the mask) are padded on the left; if that changes scores too,
    only inputs of equal length share a batch.
    """

    def __init__(self, source: CheckpointSource) -> None:
        self.source = source
        self.loaded: Loaded = load(source)
        tokenizer = self.loaded.tokenizer
        self._marks = any_of(
            str(mark) for mark in tokenizer.all_special_tokens if len(str(mark)) > 2
        )
        self._template = _template(self.loaded, source)
        self._bare = self._template in ("pair", "plain")
        """Whether no chat template writes the conversation, and its control tokens."""
        self._limit = _limit(self.loaded, source.max_length)
        self._cuts = source.too_long != "unscored" and self._limit is not None
        if self._cuts:
            tokenizer.truncation_side = source.too_long.removeprefix("cut_")
        parameters = inspect.signature(self.loaded.model.forward).parameters
        self._kinds = (
            "token_type_ids" in parameters and "token_type_ids" in tokenizer.model_input_names
        )
        self._keeps = "logits_to_keep" in parameters
        self._separator = self._find_separator() if source.per_token else ""
        self._places: list[int] | None = None
        self.padding: Padding = self._find_padding()

    # -- conversations to tokens -------------------------------------------------------------------

    def encode(self, requests: list[Dialogue]) -> list[TokenizedInput | Exception]:
        """Each conversation as tokens, or why it cannot be scored."""
        texts: list[Any] = []
        for request in requests:
            try:
                texts.append(self._model_text(without_marks(request, self._marks)))
            except (TemplateError, TypeError, ValueError) as error:
                why = f"its chat template refuses the conversation: {str(error)[:200]}"
                texts.append(self._unscored("not_applicable", why))
        good = [text for text in texts if not isinstance(text, Exception)]
        encoded = iter(self._tokens(good) if good else ())
        return [text if isinstance(text, Exception) else next(encoded) for text in texts]

    def _model_text(self, dialogue: Dialogue) -> tuple[str, str | None, tuple[int, ...]]:
        """The text, a second one where the model reads pairs, and where each step ends in it."""
        if self.source.per_token:
            return self._with_steps(dialogue)
        if self._template == "pair":
            return dialogue.query(), dialogue.answer, ()
        asks = self.loaded.head == "tokens"
        return self._rendered(dialogue, add_generation_prompt=asks), None, ()

    def _rendered(self, dialogue: Dialogue, **more: Any) -> str:
        if self._bare:
            return dialogue.plain()
        own = {"chat_template": self.source.template} if self._template == "own" else {}
        text: str = self.loaded.tokenizer.apply_chat_template(
            dialogue.messages(), tokenize=False, **own, **more
        )
        return text

    def _with_steps(self, dialogue: Dialogue) -> tuple[str, str | None, tuple[int, ...]]:
        if PLACE in dialogue.query():
            raise ValueError("it holds the mark that stands for the answer")
        before, _, after = self._rendered(dialogue._replace(answer=PLACE)).partition(PLACE)
        if self._bare:
            before = f"{dialogue.query()}\n\n"
        ends, text = [], before
        for step in dialogue.steps:
            text += step + self._separator
            ends.append(len(text) - 1)
        return text + after, None, tuple(ends)

    def _tokens(
        self, texts: list[tuple[str, str | None, tuple[int, ...]]]
    ) -> list[TokenizedInput | Exception]:
        steps = self.source.per_token
        second = [pair for _, pair, _ in texts] if self._template == "pair" and not steps else None
        made = self.loaded.tokenizer(
            [text for text, _, _ in texts], second,
            # a chat template writes them itself
            add_special_tokens=self._bare,
            padding=False, truncation=self._cuts, max_length=self._limit if self._cuts else None,
            return_attention_mask=False, return_token_type_ids=self._kinds,
            return_offsets_mapping=steps, verbose=False,
        )  # fmt: skip
        inputs: list[TokenizedInput | Exception] = []
        for place, (_, _, ends) in enumerate(texts):
            ids = made["input_ids"][place]
            kinds = made["token_type_ids"][place] if self._kinds else None
            at = _tokens_at(made["offset_mapping"][place], ends) if steps else (len(ids) - 1,)
            inputs.append(self._refused(len(ids), at, ends) or TokenizedInput(ids, at, kinds))
        return inputs

    def _refused(self, n: int, at: tuple[int, ...], ends: tuple[int, ...]) -> Unscored | None:
        """Why an input of so many tokens cannot be scored."""
        if ends and len(set(at)) != len(ends):
            return self._unscored(
                "steps",
                f"two of {len(ends)} steps end in one token; give a separator that is a token "
                "of its own with separator=.",
            )
        if not n:
            return self._unscored("empty", "the conversation has no tokens.")
        if self._limit is not None and n > self._limit:
            return self._unscored(
                "too_long",
                f"the conversation has {n} tokens and the model reads {self._limit}; a "
                "part of it is scored with too_long=cut_left or cut_right.",
            )
        return None

    def _unscored(self, reason: str, why: str) -> Unscored:
        return Unscored(f"{self.source.named()}: {why}", reason=reason)

    def _find_separator(self) -> str:
        """The separator after every step: the given one, else the tokenizer's own mark."""
        vocabulary = self.loaded.tokenizer.get_vocab()
        marks = (mark for mark in ("<extra_0>", "<|step_end|>") if mark in vocabulary)
        given = self.source.separator or next(marks, None)
        if given is None:
            raise ConfigError(
                f"{self.source.named()}: say what stands behind every step in the model's training "
                f"with separator= (such as "
                '"\\n\\n", or a mark of its own).'
            )
        return given

    # -- tokens to numbers -------------------------------------------------------------------------

    def forward(self, batch: list[TokenizedInput]) -> list[list[float]]:
        """The score's numbers per input: one per wanted label, or one per step."""
        if self.padding != "none":
            return self._scores(batch, self.padding)
        rows: dict[int, list[float]] = {}
        by_length = sorted(range(len(batch)), key=lambda place: len(batch[place]))
        for _, group in groupby(by_length, key=lambda place: len(batch[place])):
            places = list(group)
            rows.update(
                zip(places, self._scores([batch[at] for at in places], "right"), strict=True)
            )
        return [rows[place] for place in range(len(batch))]

    def _scores(self, batch: list[TokenizedInput], padding: Padding) -> list[list[float]]:
        import torch

        with torch.inference_mode():
            numbers = self._head_numbers(batch, padding)  # (inputs, positions, width)
            if self._places is None:
                self._places = self._chosen(numbers.shape[-1])
            numbers = self._activated(numbers.float())[..., self._places]
            if self.source.per_token:
                steps = numbers[..., 0].tolist()
                return [row[: len(each.at)] for row, each in zip(steps, batch, strict=True)]
            whole: list[list[float]] = numbers[:, 0].tolist()
            return whole

    def _head_numbers(self, batch: list[TokenizedInput], padding: Padding) -> Any:
        """What the head gives at the positions that are read, as (inputs, positions, width); short
        rows repeat their last.
        """
        import torch

        loaded = self.loaded
        longest, wide = (max(map(len, own)) for own in (batch, [tokens.at for tokens in batch]))
        pad = self._free_token(batch) if loaded.pad is None else loaded.pad
        ids, mask, kinds = np.zeros((3, len(batch), longest), dtype=np.int64)
        ids[:] = pad
        places = []
        for row, tokens in enumerate(batch):
            start = longest - len(tokens) if padding == "left" else 0
            held = slice(start, start + len(tokens))
            ids[row, held], mask[row, held] = tokens.ids, 1
            if tokens.kinds is not None:
                kinds[row, held] = tokens.kinds
            places.append(start + np.pad(tokens.at, (0, wide - len(tokens.at)), "edge"))
        given = {"input_ids": ids, "attention_mask": mask}
        if self._kinds:
            given["token_type_ids"] = kinds
        arguments = {
            name: torch.from_numpy(values).to(loaded.device) for name, values in given.items()
        }
        at = torch.from_numpy(np.stack(places)).to(loaded.device)
        rows = torch.arange(len(batch), device=loaded.device)[:, None]
        if loaded.head == "value":
            assert loaded.value is not None
            weight, bias = loaded.value
            hidden = loaded.model(**arguments).last_hidden_state
            return hidden[rows, at].float() @ weight.T + bias
        if loaded.head == "tokens":
            if self._keeps:
                # logits over the vocabulary for every token do not fit into memory: compute only
                # the positions that are read
                arguments["logits_to_keep"], at = torch.unique(at, return_inverse=True)
            return _logits(loaded.model(**arguments))[rows, at][..., list(loaded.token_ids)]
        if loaded.pad is None and not self.source.per_token:
            # a sequence classifier finds the last token by the padding token of its configuration
            config = loaded.model.config
            for own in (config, getattr(config, "get_text_config", lambda: config)()):
                own.pad_token_id = pad
        numbers = _logits(loaded.model(**arguments))
        # a sequence classifier of somebody's own code may give a number for every token
        return numbers[rows, at] if numbers.dim() == 3 else numbers.reshape(len(batch), 1, -1)

    def _free_token(self, batch: list[TokenizedInput]) -> int:
        """A padding token that no input ends with: a classifier reads the last token that is not
        padding.
        """
        tokenizer = self.loaded.tokenizer
        taken: set[int] = {tokens.ids[-1] for tokens in batch}
        wanted = (tokenizer.pad_token_id, tokenizer.unk_token_id, *range(len(taken) + 1))
        return next(int(token) for token in wanted if token is not None and token not in taken)

    def _chosen(self, width: int) -> list[int]:
        """Which of the head's numbers are the score."""
        if self.loaded.head == "tokens":
            return [0]
        if self.source.per_token and not self.source.labels and width == 2:
            return [1]  # the second of two is the label of a right step
        return label_places(self.loaded, self.source.labels, self.source.named(), width)

    def _activated(self, numbers: Any) -> Any:
        """The head's numbers as scores: as they are, or as probabilities."""
        import torch

        way, width = self.source.activation, numbers.shape[-1]
        head, problem = self.loaded.head, self.loaded.problem
        if way == "auto" and self.source.per_token:
            way = "sigmoid" if width == 1 else "softmax"
        elif way == "auto":
            plain = head != "classification" or width == 1 or problem == "regression"
            several = problem == "multi_label_classification"
            way = "none" if plain else "sigmoid" if several else "softmax"
        if head == "tokens":
            # log-odds of the first token against the second, or its log-probability
            if way == "none":
                return numbers[..., :1] - numbers[..., 1:2] if width > 1 else numbers
            way = "softmax" if width > 1 else "sigmoid"
        if way == "sigmoid":
            return torch.sigmoid(numbers)
        return torch.softmax(numbers, dim=-1) if way == "softmax" else numbers

    def _find_padding(self) -> Padding:
        """The padding side that leaves the scores of two probe texts unchanged."""
        made = self.loaded.tokenizer(list(PROBE), padding=False, return_attention_mask=False)
        texts = [
            [*ids, *ids[-1:] * (size - len(ids))]
            for ids, size in zip(made["input_ids"], (2, 5), strict=True)
        ]
        if not all(texts) or len(texts[0]) == len(texts[1]):
            return "right"
        probes = [
            TokenizedInput(ids, (len(ids) - 1,), [0] * len(ids) if self._kinds else None)
            for ids in texts
        ]
        import torch

        near = 1e-3 if "float32" in str(getattr(self.loaded.model, "dtype", "")) else 5e-2
        with torch.inference_mode():
            separate = torch.cat([self._head_numbers([probe], "right").float() for probe in probes])
            sides: tuple[Padding, ...] = ("right", "left")
            for side in sides:
                together = self._head_numbers(probes, side).float()
                if torch.allclose(separate, together, rtol=near, atol=near, equal_nan=True):
                    return side
        logger.warning(
            "{}: padding changes its scores; only inputs of one length are scored together.",
            self.source.named(),
        )
        return "none"


def _logits(made: Any) -> Any:
    """The numbers a model gives; one of its own code may give a plain tuple."""
    return made.logits if hasattr(made, "logits") else made[0]


def _tokens_at(offsets: list[tuple[int, int]], ends: tuple[int, ...]) -> tuple[int, ...]:
    """The token that holds each of these characters; of byte tokens that share one the last."""
    begins, stops = np.array(offsets).reshape(-1, 2).T
    holding = [np.flatnonzero((begins <= end) & (end < stops)) for end in ends]
    return tuple(int(places[-1]) for places in holding if len(places))


def _template(loaded: Loaded, source: CheckpointSource) -> str:
    """How conversations are written: chat, own (a template that was given), pair or plain."""
    wanted, tokenizer = source.template, loaded.tokenizer
    if wanted in ("pair", "plain"):
        return wanted
    if wanted not in ("auto", "chat"):
        return "own"
    if getattr(tokenizer, "chat_template", None):
        return "chat"
    if wanted == "chat" or loaded.head == "tokens":
        raise ConfigError(
            f"{source.named()} has no chat template; give one with chat_template= (Jinja text or a "
            f".jinja file)."
        )
    fallback = "pair" if tokenizer.sep_token is not None and not source.per_token else "plain"
    how = (
        "question and answer as a text pair"
        if fallback == "pair"
        else "the turns as plain text with their roles"
    )
    logger.warning(
        "{} has no chat template: it is given {}; chat_template= says otherwise.",
        source.named(),
        how,
    )
    return fallback


def _limit(loaded: Loaded, max_length: int | None) -> int | None:
    """The most tokens the model reads; None where nothing says so."""
    config = loaded.model.config
    positions = getattr(config, "max_position_embeddings", None)
    if (
        isinstance(positions, int)
        and getattr(config, "model_type", "").replace("-", "_") in SHIFTED
    ):
        # their first position is the one behind the padding token's
        positions -= (config.pad_token_id or 0) + 1
    known = [loaded.tokenizer.model_max_length, positions, max_length]
    limits = [limit for limit in known if isinstance(limit, int) and 0 < limit < NO_LIMIT]
    return min(limits, default=None)
