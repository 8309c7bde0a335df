"""Loads a reward checkpoint of the transformers library, finds its score head and computes its
identity.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal

import orjson

from rm_gallery.core.utils.errors import ConfigError, MissingExtra
from rm_gallery.gallery.rm.trained.conversation import place_of_label

Head = Literal["auto", "classification", "value", "tokens"]
Activation = Literal["auto", "none", "sigmoid", "softmax"]
TooLong = Literal["unscored", "cut_left", "cut_right"]
PROBE = ("a", "a b c d e f g h")
"""Two texts of unlike length: scored alone and together they show whether a model minds padding."""
HASHED_WHOLE = 1 << 30
"""A file up to this size is hashed whole, a larger one by samples of it."""
SAMPLES, SAMPLE_BYTES = 256, 1 << 20
_VALUE_KEYS = (("v_head.summary.weight", "v_head.summary.bias"), ("v_head.weight", "v_head.bias"))


@dataclass(frozen=True)
class CheckpointSource:
    """Which checkpoint, how it is loaded, how a conversation is put to it, and which of its numbers
    are the score.
    """

    path: str
    revision: str | None
    dtype: str
    device: str
    trust_remote_code: bool
    template: str
    """auto, chat, pair, plain, or a Jinja chat template."""
    max_length: int | None
    stamp: tuple[int, ...]
    """Modification times of the files, so that a retrained checkpoint is loaded again."""
    head: Head = "auto"
    per_token: bool = False
    """Whether every token has a score (process reward models), not the sequence alone."""
    tokens: tuple[str, ...] = ()
    """With head `tokens`: the token whose probability is the score, and its opposite."""
    labels: tuple[str | int, ...] = ()
    activation: Activation = "auto"
    too_long: TooLong = "unscored"
    separator: str | None = None
    """Stands behind every step, for a process reward model."""

    def named(self) -> str:
        """For messages."""
        return f"hf:{self.path}"

    def where(self) -> dict[str, Any]:
        """Arguments of every from_pretrained."""
        return {"revision": self.revision, "trust_remote_code": self.trust_remote_code}


@dataclass(frozen=True)
class Loaded:
    """A checkpoint in memory; used by one thread at a time."""

    model: Any
    tokenizer: Any
    head: Head
    labels: dict[int, str]
    """Of a head of several numbers, their names."""
    problem: str | None
    """What the head was trained for: regression, single_label_classification,
    multi_label_classification.
    """
    device: Any
    value: tuple[Any, Any] | None = None
    """Weight (1 x width) and bias of a value head."""
    token_ids: tuple[int, ...] = ()
    pad: int | None = None
    """The padding token the model was made for; None where any will do."""


def need_packages(what: str) -> None:
    """Raise MissingExtra without torch or transformers."""
    for package in ("torch", "transformers"):
        if importlib.util.find_spec(package) is None:
            raise MissingExtra(package, "hf", what)


def check_path(path: str) -> Path | None:
    """The folder of a checkpoint on disk, None for a name on the hub; ConfigError for a folder that
    is none.
    """
    folder = Path(path).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise ConfigError(
                f"hf:{path}: there is no config.json in it; give the folder of a transformers "
                f"checkpoint."
            )
        return folder
    looks_local = path.startswith((".", "~", os.sep)) or path.count("/") > 1 or "\\" in path
    if looks_local or folder.is_absolute() or folder.exists():
        raise ConfigError(
            f"hf:{path}: no such folder; give the folder of a transformers checkpoint, or a hub "
            f"name."
        )
    return None


def stamp_of(path: str) -> tuple[int, ...]:
    """When a checkpoint on disk was last written; empty for one on the hub."""
    times: list[int] = []
    weights = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin")
    for name in ("", "config.json", *weights):
        with suppress(OSError):
            times.append(os.stat(os.path.join(path, name)).st_mtime_ns)
    return tuple(times)


def identity(source: CheckpointSource) -> dict[str, str]:
    """The identity of a checkpoint's weights, configuration, tokenizer and chat template.

    The commit on the hub; on disk a hash of the files, of which those over 1 GiB count by their
    size and 256 samples of 1 MiB.
    """
    folder = check_path(source.path)
    if folder is not None:
        return {"files_sha256": _folder_hash(str(folder), stamp_of(source.path))}
    need_packages(f"The reward '{source.named()}'")
    from transformers import AutoConfig

    with _quiet(), _explained(source):
        config = AutoConfig.from_pretrained(source.path, **source.where())
    commit = getattr(config, "_commit_hash", None)
    if not commit:
        raise ConfigError(
            f"{source.named()}: its commit on the hub cannot be told; name one with revision=."
        )
    return {"commit": str(commit)}


@lru_cache(maxsize=16)
def _folder_hash(folder: str, stamp: tuple[int, ...]) -> str:
    digest = hashlib.sha256()
    kept = (".json", ".safetensors", ".bin", ".jinja", ".model", ".txt", ".py")
    for path in sorted(
        path for path in Path(folder).iterdir() if path.is_file() and path.suffix in kept
    ):
        size = path.stat().st_size
        digest.update(f"{path.name}\0{size}\0".encode())
        with path.open("rb") as file:
            if size <= HASHED_WHOLE:
                while block := file.read(SAMPLE_BYTES):
                    digest.update(block)
            else:
                for place in range(SAMPLES):
                    file.seek(place * (size - SAMPLE_BYTES) // (SAMPLES - 1))
                    digest.update(file.read(SAMPLE_BYTES))
    return digest.hexdigest()


def load(source: CheckpointSource) -> Loaded:
    """The checkpoint in memory, ready to score.

    Raises ConfigError where it cannot be loaded, or has no score head: a freshly initialised head
    gives random scores.
    """
    check_path(source.path)
    need_packages(f"The reward '{source.named()}'")
    import torch
    from transformers import AutoConfig, AutoTokenizer

    with _quiet(), _explained(source):
        config = AutoConfig.from_pretrained(source.path, **source.where())
        tokenizer = AutoTokenizer.from_pretrained(source.path, **source.where())
        head = _head_of(source, config)
        device = _device(source.device)
        dtype = source.dtype if source.dtype == "auto" else getattr(torch, source.dtype)
        model = _model(source, config, head, dtype)
        value = _value_head(source, device) if head == "value" else None
    model.eval().to(device)
    classifies = head == "classification"
    known = (getattr(config, "id2label", None) or {}) if classifies else {}
    texts = source.tokens if head == "tokens" else ()
    own = getattr(config, "get_text_config", lambda: config)()
    return Loaded(
        model,
        tokenizer,
        head,
        {int(key): str(name) for key, name in known.items()},
        getattr(config, "problem_type", None),
        device,
        value,
        tuple(_token_id(source, tokenizer, text) for text in texts),
        own.pad_token_id if classifies and not source.per_token else None,
    )


def _device(name: str) -> Any:
    import torch

    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"device is {name!r}; give auto, cpu, cuda or cuda:1.") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            f"device is {name!r} and this machine has no usable GPU; leave it out, or give cpu."
        )
    return device


def _head_of(source: CheckpointSource, config: Any) -> Head:
    """The head that gives the score: the one asked for, else the checkpoint's own."""
    if source.head != "auto":
        if source.head == "tokens" and not source.tokens:
            raise ConfigError(
                "head=tokens reads the odds of a token: name it, and its opposite, with "
                "tokens=['Yes','No']."
            )
        return source.head
    if source.tokens:
        return "tokens"
    made_for = " ".join(getattr(config, "architectures", None) or ())
    wanted, other = ("Token", "Sequence") if source.per_token else ("Sequence", "Token")
    if f"{wanted}Classification" not in made_for and f"{other}Classification" in made_for:
        scheme, what = ("hf:", "whole answers") if source.per_token else ("hf-prm:", "steps")
        raise ConfigError(
            f"{source.named()} is a {made_for}, which scores {what}: name it {scheme}{source.path}."
        )
    if "ForCausalLM" in made_for and any(
        _weight(source, key) is not None for key, _ in _VALUE_KEYS
    ):
        return "value"
    return "classification"


def _model(source: CheckpointSource, config: Any, head: Head, dtype: Any) -> Any:
    import transformers

    classifier = (
        "AutoModelForTokenClassification"
        if source.per_token
        else "AutoModelForSequenceClassification"
    )
    name = {"value": "AutoModel", "tokens": "AutoModelForCausalLM"}.get(head, classifier)
    own = getattr(config, "auto_map", None) or {}
    if head == "classification" and name not in own and "AutoModel" in own:
        name = "AutoModel"  # code of its own, whose model gives scores
    loaded, info = getattr(transformers, name).from_pretrained(
        source.path, dtype=dtype, output_loading_info=True, **source.where()
    )
    missing = [
        str(key)
        for lack in ("missing_keys", "mismatched_keys")
        for key in sorted(info.get(lack) or (), key=str)
    ]
    if missing and head != "value":
        raise ConfigError(
            f"{source.named()} holds no weights for {', '.join(missing[:3])}: without them its "
            f"scores would be random. Give a checkpoint that was trained as a reward model; "
            f"tokens=['Yes','No'] reads a language model's odds of a token instead."
        )
    return loaded


def _value_head(source: CheckpointSource, device: Any) -> tuple[Any, Any]:
    import torch

    for weight_name, bias_name in _VALUE_KEYS:
        weight = _weight(source, weight_name)
        if weight is not None:
            stored = _weight(source, bias_name)
            bias = torch.zeros(weight.shape[0]) if stored is None else stored
            return weight.float().to(device), bias.float().to(device)
    raise ConfigError(
        f"{source.named()} has no value head: none of its safetensors files holds "
        f"{_VALUE_KEYS[0][0]}."
    )


def _weight(source: CheckpointSource, name: str) -> Any:
    """One tensor of the checkpoint's safetensors files; None where there is none."""
    from safetensors import safe_open
    from transformers.utils import cached_file

    where = partial(
        cached_file,
        source.path,
        revision=source.revision,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
    for file in ("model.safetensors.index.json", "model.safetensors", "value_head.safetensors"):
        found = where(filename=file)
        if found is not None and file.endswith(".json"):
            shard = orjson.loads(Path(found).read_bytes()).get("weight_map", {}).get(name)
            found = shard and cached_file(source.path, shard, revision=source.revision)
        if found is not None:
            with safe_open(found, framework="pt") as tensors:
                if name in tensors.keys():
                    return tensors.get_tensor(name)
    return None


def _token_id(source: CheckpointSource, tokenizer: Any, text: str) -> int:
    """The one token a text is; tried with and without a space before it."""
    for form in (text, f" {text}"):
        ids = tokenizer(form, add_special_tokens=False)["input_ids"]
        if len(ids) == 1 and ids[0] != tokenizer.unk_token_id:
            return int(ids[0])
    raise ConfigError(
        f"{source.named()}: tokens: {text!r} is not one token of its tokenizer; give one that is."
    )


def label_places(
    loaded: Loaded, wanted: tuple[str | int, ...], named: str, width: int
) -> list[int]:
    """The places of the wanted numbers among the `width` ones of the head; ConfigError for a label
    it has not.
    """
    names = [loaded.labels.get(at, str(at)) for at in range(width)]
    if wanted:
        return [place_of_label(label, names, named) for label in wanted]
    if width == 1:
        return [0]
    known = ", ".join([*names[:12], *(["…"] if width > 12 else [])])
    raise ConfigError(
        f"{named} gives {width} numbers ({known}); say which is the score with label=NAME, or "
        f"several with label=[…]."
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """Loading without progress bars and advice; restores the process's settings afterwards."""
    from transformers.utils import logging as hf_logging

    bars, level = hf_logging.is_progress_bar_enabled(), hf_logging.get_verbosity()
    hf_logging.set_verbosity_error()
    hf_logging.disable_progress_bar()
    try:
        yield
    finally:
        hf_logging.set_verbosity(level)
        if bars:
            hf_logging.enable_progress_bar()


@contextmanager
def _explained(source: CheckpointSource) -> Iterator[None]:
    """Turns the libraries' errors for a checkpoint they cannot load into a ConfigError."""
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:
        first = next(filter(None, map(str.strip, str(error).splitlines())), type(error).__name__)
        raise ConfigError(f"{source.named()} cannot be loaded: {first[:300]}") from error
