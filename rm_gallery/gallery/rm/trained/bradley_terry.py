"""A reward model that runs without a key: `bt:DIR` names the one trained into folder DIR."""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray
from pydantic import Field

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.reward.base import BasePointWiseReward
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.score import Score
from rm_gallery.core.utils.errors import ConfigError, DataError
from rm_gallery.core.utils.file import as_json, written_whole
from rm_gallery.gallery.rm.trained.conversation import preference_example, text_of_answer
from rm_gallery.gallery.rm.trained.features import (
    FEATURES_VERSION,
    HASH_BITS,
    Features,
    answer_features,
    dense_names,
    read_conversation,
)


@RewardRegistry.register("bt:")
class BradleyTerryReward(BasePointWiseReward):
    """Score of a trained linear Bradley–Terry model for an answer in its conversation.

    Unbounded, higher is better; 0 is the average answer of its training data. Only differences
    between answers to the same prompt mean something: score(a) - score(b) is the log-odds that a is
    preferred, P = 1 / (1 + exp(b - a)). The model is read when it is first needed, once per
    process.

    Raises:
        ConfigError: (on first use) there is no model in `path`, or it was made for another version.
        DataError: (on first use) its files are damaged.

    Source: R. A. Bradley and M. E. Terry, "Rank analysis of incomplete block designs", Biometrika
    39, 1952.
    """

    path: str = Field(min_length=1)
    """Folder written by `rm-gallery train bt`."""

    example = preference_example("a model in the folder DIR, as `rm-gallery train bt` writes it")

    def __init__(self, path: str | os.PathLike[str] | None = None, **settings: Any) -> None:
        """Take the model's folder, and the settings every reward has."""
        if not path:
            raise ConfigError(
                "BradleyTerryReward needs the folder of a trained model: BradleyTerryReward('DIR') "
                "or bt:DIR."
            )
        folder = os.fspath(path)
        # two models that score the same sample keep their scores apart by name
        super().__init__(**{"path": folder, "name": f"bt:{folder}", **settings})

    def check(self) -> None:
        """Raise ConfigError or DataError when the model cannot be read."""
        load_model(self.path)

    def describe(self) -> dict[str, Any]:
        """The settings and the hash of the weights: a model retrained into `path` is another
        reward.
        """
        return {
            **super().describe(),
            "weights_sha256": load_model(self.path).metadata["weights"]["sha256"],
        }

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> Score[Any]:
        """Score the answer; one without text that only calls tools is unscored."""
        answer = sample.output[0].answer
        text = text_of_answer(answer, answer.text, self.name)
        score = load_model(self.path).score(answer_features(read_conversation(sample.input), text))
        return Score(score)


KIND = "bradley_terry"
FORMAT_VERSION = 1
METADATA_FILE, WEIGHTS_FILE = "model.json", "weights.npz"
_DAMAGED = (
    ValueError,
    KeyError,
    OSError,
    EOFError,
    TypeError,
    ArithmeticError,
    MemoryError,
    zipfile.BadZipFile,
    zlib.error,
)
"""What a damaged .npz raises."""
_MAX_METADATA = 16 * 2**20
_RETRAIN = "train it again with `rm-gallery train bt DATA --out DIR`"


@dataclass(frozen=True)
class BradleyTerryModel:
    """A linear score of an answer. Immutable, so threads may share it.

    The difference of two answers' scores is the log-odds that the first is preferred:
    P(a over b) = 1 / (1 + exp(score(b) - score(a))).

    Source: R. A. Bradley and M. E. Terry, "Rank analysis of incomplete block designs", Biometrika
    39, 1952.
    """

    dense: NDArray[np.float32]
    """Weights of the dense features, shape (len(dense_names()),), to be used on the features as
    they are.
    """
    words: NDArray[np.float32]
    """Weights of hashed words and word pairs, shape (2**HASH_BITS,)."""
    offset: float = 0.0
    """Subtracted from every score; the mean of the training answers, so that 0 is an average
    answer.
    """
    metadata: dict[str, Any] = field(default_factory=dict)
    """Where the model comes from: seed, data hash, number of pairs, held-out figures; of a saved
    one the whole JSON.
    """

    def score(self, features: Features) -> float:
        """The answer's score: unbounded, higher is better."""
        words = float(self.words.take(features.hashed).sum(dtype=np.float64))
        return float(features.dense @ self.dense) + words - self.offset


def save_model(model: BradleyTerryModel, folder: str | Path) -> None:
    """Write the model into `folder`, replacing one that is there; equal models give equal files.

    Raises DataError when the folder cannot be written to.
    """
    packed = io.BytesIO()
    np.savez_compressed(packed, dense=model.dense, words=model.words)
    weights = packed.getvalue()
    about = {
        **model.metadata,
        "kind": KIND,
        "format_version": FORMAT_VERSION,
        "features": _own_features(),
        "offset": model.offset,
        "weights": {"file": WEIGHTS_FILE, "sha256": hashlib.sha256(weights).hexdigest()},
    }

    def write() -> None:
        for name, content in ((WEIGHTS_FILE, weights), (METADATA_FILE, as_json(about))):
            with written_whole(Path(folder) / name) as file:
                file.write(content)

    # in a thread of its own: what ends a program is raised in the main thread, and never between
    # the two files
    with ThreadPoolExecutor(1) as pool:
        pool.submit(write).result()


def _own_features() -> dict[str, Any]:
    """Which features a model of this version is made for."""
    return {"version": FEATURES_VERSION, "hash_bits": HASH_BITS, "dense": list(dense_names())}


def _damaged(path: object, what: str) -> DataError:
    return DataError(f"{path}: {what}; {_RETRAIN}.")


def load_model(folder: str | Path) -> BradleyTerryModel:
    """The model saved in `folder`; read once per process, and again when its files change.

    Raises:
        ConfigError: there is no model in the folder, or it was made for other features or by a
            later version.
        DataError: the files are damaged or do not belong together.
    """
    path = os.fspath(folder)
    try:
        stat = os.stat(os.path.join(path, METADATA_FILE))
    except OSError as error:
        raise ConfigError(
            f"There is no trained model in '{folder}' ({METADATA_FILE}: {error.strerror}); check "
            f"the folder, or {_RETRAIN}."
        ) from error
    return _load(path, (stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_size))


@lru_cache(maxsize=8)
def _load(folder: str, stamp: tuple[int, ...]) -> BradleyTerryModel:
    # the stamp is part of the cache key: changed files, and the same relative path in another
    # working directory, are read again
    about = _read_metadata(Path(folder) / METADATA_FILE)
    dense, words = _read_weights(Path(folder) / WEIGHTS_FILE, about)
    offset = about.get("offset")
    if isinstance(offset, bool) or not isinstance(offset, (int, float)):
        raise _damaged(folder, f"{METADATA_FILE} holds no number 'offset', found {offset!r}")
    return BradleyTerryModel(dense, words, float(offset), about)


def _read_metadata(path: Path) -> dict[str, Any]:
    try:
        about = orjson.loads(_read_bytes(path, _MAX_METADATA))
    except orjson.JSONDecodeError as error:
        raise _damaged(path, f"not readable as JSON ({error})") from error
    if not isinstance(about, dict) or about.get("kind") != KIND:
        raise _damaged(path, f"not the description of a {KIND} model")
    if about.get("format_version") != FORMAT_VERSION:
        raise ConfigError(
            f"{path}: format version {about.get('format_version')!r}, this version reads {FORMAT_VERSION}; {_RETRAIN}."
        )
    features = about.get("features")
    if features != _own_features():
        version = features.get("version") if isinstance(features, dict) else features
        raise ConfigError(
            f"{path}: made for features {version!r}, this version has {FEATURES_VERSION}; {_RETRAIN}."
        )
    return about


def _read_weights(
    path: Path, about: dict[str, Any]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    lengths = {"dense": len(dense_names()), "words": 1 << HASH_BITS}
    raw = _read_bytes(path, sum(map(_bytes_of, lengths.values())))
    expected = about["weights"].get("sha256") if isinstance(about.get("weights"), dict) else None
    if hashlib.sha256(raw).hexdigest() != expected:
        raise _damaged(path, f"damaged, or not the weights that {METADATA_FILE} describes")
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            # nothing is unpacked that is larger than what it has to be
            large = [
                part.filename
                for part in archive.infolist()
                if part.file_size > _bytes_of(max(lengths.values()))
            ]
        if large:
            raise _damaged(path, f"{large[0][:40]!r} is too large for the weights of a model")
        with np.load(io.BytesIO(raw), allow_pickle=False) as arrays:
            dense, words = arrays["dense"], arrays["words"]
    except _DAMAGED as error:
        raise _damaged(path, f"not a readable .npz with 'dense' and 'words' ({error})") from error
    for array, (name, length) in zip((dense, words), lengths.items(), strict=True):
        if array.shape != (length,) or array.dtype != np.float32 or not np.isfinite(array).all():
            raise _damaged(path, f"'{name}' is not {length} finite float32 numbers")
    return dense, words


def _bytes_of(length: int) -> int:
    """Most that an array of so many numbers of whatever type takes in a file, its header included."""
    return 8 * length + 4096


def _read_bytes(path: Path, limit: int) -> bytes:
    try:
        with path.open("rb") as file:
            raw = file.read(limit + 1)
    except OSError as error:
        raise _damaged(path, f"not readable ({error.strerror})") from error
    if len(raw) > limit:
        raise _damaged(path, f"larger than a model's file can be ({limit} bytes)")
    return raw
