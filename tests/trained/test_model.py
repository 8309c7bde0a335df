"""A saved model comes back the same, other folders are named as what they are, and features of any
text are finite and moderate.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rm_gallery import ConfigError, DataError
from rm_gallery.gallery.rm.trained.bradley_terry import BradleyTerryModel, load_model, save_model
from rm_gallery.gallery.rm.trained.features import (
    HASH_BITS,
    answer_features,
    cue_list,
    dense_names,
    hashed_features,
    read_conversation,
    sentences,
    tokenize,
)
from tests.train.preferences import turns

FEATURES = answer_features(read_conversation(turns("Why?")), "Because I said so. 我不能。")


def some_model(seed: int = 0) -> BradleyTerryModel:
    draw = np.random.default_rng(seed)
    dense = draw.normal(size=len(dense_names())).astype(np.float32)
    return BradleyTerryModel(
        dense, draw.normal(size=1 << HASH_BITS).astype(np.float32), 0.5, {"seed": seed}
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_model(some_model(), tmp_path / "deep" / "model")
    return tmp_path / "deep" / "model"


def test_round_trip(folder: Path) -> None:
    model, loaded = some_model(), load_model(folder)
    assert np.array_equal(loaded.dense, model.dense)
    assert np.array_equal(loaded.words, model.words)
    assert (loaded.offset, loaded.metadata["seed"]) == (0.5, 0)
    assert loaded.score(FEATURES) == model.score(FEATURES)
    assert sorted(os.listdir(folder)) == ["model.json", "weights.npz"]


def test_it_is_read_once_and_again_when_it_changes(folder: Path) -> None:
    first = load_model(folder)
    assert load_model(str(folder)) is first
    save_model(some_model(seed=11), folder)
    assert load_model(folder).metadata["seed"] == 11


def edited(**changes: Any) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        path = folder / "model.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return edit


def described(weights: bytes) -> Callable[[Path], None]:
    """Other weights, with a description that fits them."""

    def replace(folder: Path) -> None:
        (folder / "weights.npz").write_bytes(weights)
        edited(weights={"sha256": hashlib.sha256(weights).hexdigest()})(folder)

    return replace


def packed(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def bomb(size: int) -> bytes:
    """A small archive of zeros that unpacks to so many bytes."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("dense.npy", bytes(size))
    return file.getvalue()


def replaced(name: str, content: bytes) -> Callable[[Path], None]:
    def replace(folder: Path) -> None:
        (folder / name).write_bytes(content)

    return replace


DENSE, WORDS = np.zeros(len(dense_names()), np.float32), np.zeros(1 << HASH_BITS, np.float32)
OBJECTS = np.array([{"a": 1}], dtype=object)

DAMAGES: dict[str, tuple[Callable[[Path], None], type[Exception], str]] = {
    "no folder": (lambda f: os.rename(f, f.with_name("gone")), ConfigError, "There is no trained model"),
    "no description": (lambda f: (f / "model.json").unlink(), ConfigError, "There is no trained model"),
    "no weights": (lambda f: (f / "weights.npz").unlink(), DataError, "weights.npz: not readable"),
    "description not JSON": (replaced("model.json", b"\xff\x00"), DataError, "JSON"),
    "description a list": (replaced("model.json", b"[]"), DataError, "not the description"),
    "other kind": (edited(kind="neural"), DataError, "not the description"),
    "later format": (edited(format_version=99), ConfigError, "format version 99"),
    "later features": (edited(features={"version": 99}), ConfigError, "features 99"),
    "features a text": (edited(features="new"), ConfigError, "features 'new'"),
    "offset a text": (edited(offset="0"), DataError, "offset"),
    "no hash": (edited(weights=None), DataError, "not the weights"),
    "weights cut": (replaced("weights.npz", b"PK"), DataError, "damaged"),
    "weights of another model": (replaced("weights.npz", packed(dense=DENSE, words=WORDS)), DataError, "not the weights"),
    "weights no archive": (described(b"PK\x03\x04 not really"), DataError, "not a readable .npz"),
    "weights a bomb": (lambda f: described(bomb(300_000_000))(f), DataError, "'dense.npy' is too large"),
    "weights too long": (replaced("weights.npz", bytes(3_000_000)), DataError, "larger than"),
    "description too long": (replaced("model.json", b" " * 17_000_000), DataError, "larger than"),
    "pickled array": (described(packed(dense=OBJECTS, words=WORDS)), DataError, "not a readable .npz"),
    "wrong shape": (described(packed(dense=DENSE[1:], words=WORDS)), DataError, "'dense' is not"),
    "wrong type": (described(packed(dense=DENSE, words=WORDS.astype(np.float64))), DataError, "'words' is not"),
    "not finite": (described(packed(dense=DENSE, words=WORDS + np.float32("nan"))), DataError, "'words' is not"),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_not_a_model_is_named(damage: str, folder: Path) -> None:
    harm, error, message = DAMAGES[damage]
    harm(folder)
    with pytest.raises(error, match=message) as caught:
        load_model(folder)
    assert type(caught.value) is error
    assert "rm-gallery train bt" in str(caught.value)


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(DataError, match="cannot be written"):
        save_model(some_model(), tmp_path / "file")


ODD = {
    "empty": "", "blank": " \r\n\t ", "one letter": "x", "long word": "x" * 200_000, "long text": "Use the knife. " * 13_000,
    "lines": "- a\n" * 50_000, "quotes": "'" * 50_000, "Chinese": "我不能帮您。" * 10_000, "numbers": "1.5 " * 20_000,
    "half a pair": "\ud800 and \udfff", "null": "a\x00b",
}  # fmt: skip


@pytest.mark.parametrize("name", ODD)
def test_any_text_gives_finite_figures_of_moderate_size(name: str) -> None:
    found = answer_features(read_conversation(turns(ODD[name])), ODD[name]).dense.tolist()
    assert len(found) == len(dense_names()) == len(set(dense_names()))
    assert all(math.isfinite(value) and abs(value) < 20 for value in found)


def test_line_ends_do_not_matter() -> None:
    text = "# Title\n\n- **one**\n- two\n\nHuman: no\n"
    unix, windows = (
        answer_features(read_conversation([]), each) for each in (text, text.replace("\n", "\r\n"))
    )
    assert (
        unix.dense.tolist() == windows.dense.tolist()
        and unix.hashed.tolist() == windows.hashed.tolist()
    )


@pytest.mark.parametrize(
    "text", ["It's 4 o'clock_now:\n\n- a\n* b''c 'd' x_y", "".join(map(chr, range(128))) * 2]
)
def test_the_short_cut_for_ascii_changes_nothing(text: str) -> None:
    assert [*tokenize(text), "é"] == tokenize(f"{text} É"), (
        "a letter beyond ASCII makes the text take the long way"
    )


def test_half_a_surrogate_pair_is_a_token() -> None:
    assert tokenize("half \ud800 pair") == ["half", "\ud800", "pair"]
    assert hashed_features(tokenize("我不能 \ud800")).tolist() == [
        6026,
        38479,
        91223,
        99732,
        183457,
        198411,
        218858,
    ]


def test_every_section_of_cues_has_a_name_of_its_own() -> None:
    names = cue_list().names
    assert len(names) == len(set(names)) > 50
    assert sentences([]) == ([], [])
