"""Pins what training and its monitors compute: each file is a function, each line one call of it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rm_gallery.core.model.message import ChatMessage
from rm_gallery.core.utils.errors import RMGalleryError
from rm_gallery.gallery.rm.trained.features import answer_features, dense_names, read_conversation
from rm_gallery.gallery.rm.trained.tokens import CueList, cue_list, hashed_features, sentences, tokenize
from rm_gallery.train import advantages, signals
from rm_gallery.train.bradley_terry.pairs import prompt_key
from tests.golden import golden
from tests.train.preferences import labelled


def spread_of(**given: Any) -> dict[str, Any]:
    found = advantages.spread_of(**given)
    return {**dataclasses.asdict(found), "frac_reward_zero_std": found.frac_reward_zero_std, "hint": found.hint}


def changes(function: Callable[..., Any]) -> Callable[..., Any]:
    """The fields and properties of a link or a shift."""

    def told(**given: Any) -> Any:
        found = function(**given)
        own = found and {**dataclasses.asdict(found), "sure": found.sure}
        return own and {**own, **({"change": found.change} if isinstance(found, signals.Shift) else {})}

    return told


def counted(cues: CueList, text: str) -> dict[str, int]:
    tokens = tokenize(text)
    counts = cues.count(tokens, sentences(tokens)[0]).tolist()
    return {name: count for name, count in zip(cues.names, counts, strict=True) if count}


def cues(text: str, notation: list[str] | None = None, names: list[str] | None = None) -> dict[str, int]:
    found = counted(cue_list() if notation is None else CueList("\n".join(notation)), text)
    return found if names is None else {name: found.get(name, 0) for name in names}


def features(answer: str, names: list[str] | None = None, conversation: list[Any] | None = None) -> dict[str, float]:
    """The named figures, or all that are not 0."""
    spoken = [ChatMessage.model_validate(turn) for turn in conversation or ()]
    dense = answer_features(read_conversation(spoken), answer).dense
    found = dict(zip(dense_names(), dense.tolist(), strict=True))
    return {name: value for name, value in found.items() if (value if names is None else name in names)}


def same_prompt(one: list[dict[str, str]], other: list[dict[str, str]]) -> bool:
    keys = [prompt_key(labelled([ChatMessage.model_validate(m) for m in turns], [])) for turns in (one, other)]
    return keys[0] == keys[1]


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "group_advantages": advantages.group_advantages,
    "component_advantages": advantages.component_advantages,
    "weighted_sum": advantages.weighted_sum,
    "whitened": advantages.whitened,
    "clipped": advantages.clipped,
    "spread_of": spread_of,
    "link": changes(signals.link),
    "length_bias": changes(signals.length_bias),
    "shift": changes(signals.shift),
    "group_means": lambda values, names: signals.group_means(np.array(values, float), np.array(names, int)),
    "tokenize": tokenize,
    "sentences": lambda text: sentences(tokenize(text)),
    "hashed_features": lambda text: hashed_features(tokenize(text)),
    "cues": cues,
    "features": features,
    "same_prompt": same_prompt,
}


def decoded(value: Any) -> Any:
    """Numbers that JSON has no word for, which stand there as texts."""
    if isinstance(value, dict):
        return {name: decoded(each) for name, each in value.items()}
    if isinstance(value, list):
        return [decoded(each) for each in value]
    return float(value) if value in ("nan", "inf", "-inf") else value


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


@pytest.mark.parametrize("path", golden.files("train"))
def test_training_golden(path: Path) -> None:
    def answer(line: golden.Line) -> golden.Line:
        try:
            found = plain(FUNCTIONS[path.stem](**decoded(line)))
        except (RMGalleryError, ValueError) as error:
            return {"error": str(error)}
        return {"is": "none" if found is None else found}

    golden.check(path, answer, ("is", "error"))


def test_every_method_of_advantages_has_a_line() -> None:
    path = golden.HERE / "train" / "group_advantages.jsonl"
    assert {line.get("method", "std") for _, line in golden.lines(path)} >= set(advantages.METHODS)
    assert math.inf == decoded("inf")
