"""Seeded samples and splits of lists, and files that are written whole or not at all."""

from __future__ import annotations

import errno
import json
import os
import random
import secrets
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeVar

import orjson

from rm_gallery.core.utils.errors import ConfigError, DataError

T = TypeVar("T")


def seeded_positions(size: int, count: int, seed: int) -> list[int]:
    """A uniform sample of `count` positions out of `size`, sorted; all of them when `count` is larger.

    Samples of one seed are nested: a larger one contains the smaller, so work done for the smaller can be reused.
    """
    generator, moved = random.Random(seed), dict[int, int]()
    chosen = []
    # The first steps of a Fisher-Yates shuffle, holding only the places that moved.
    for place in range(min(count, size)):
        other = generator.randrange(place, size)
        chosen.append(moved.get(other, other))
        moved[other] = moved.get(place, place)
    return sorted(chosen)


def split_samples(
    samples: Sequence[T],
    ratio: float = 0.1,
    seed: int = 0,
    by: Literal["prompt"] | Callable[[T], Hashable] | None = None,
) -> tuple[list[T], list[T]]:
    """Split into (first, rest), both in the original order; the samples themselves are not copied.

    `first` holds round(ratio * n) samples, at least 1 (and at most n - 1) when there are two or more. With `by`, samples
    of equal key stay together, so that nothing learned from one side is on the other; `first` then comes as near to its
    size as whole groups allow. `by="prompt"` groups by the conversation before the answer, white space aside.
    Raises ConfigError for a ratio outside 0 to 1.
    """
    if isinstance(ratio, bool) or not isinstance(ratio, (int, float)) or not 0 < ratio < 1:
        raise ConfigError(f"ratio must lie between 0 and 1, found {ratio!r}")
    size = len(samples)
    wanted = min(max(round(ratio * size), 1), size - 1) if size > 1 else round(ratio * size)
    if by is None:
        chosen = set(seeded_positions(size, wanted, seed))
    else:
        chosen = _grouped_positions([_key(sample, by) for sample in samples], wanted, seed)
    first = [sample for position, sample in enumerate(samples) if position in chosen]
    rest = [sample for position, sample in enumerate(samples) if position not in chosen]
    return first, rest


def _key(sample: Any, by: Literal["prompt"] | Callable[[Any], Hashable]) -> Hashable:
    if callable(by):
        return by(sample)
    if by != "prompt":
        raise ConfigError(f"by must be 'prompt' or a function of a sample, found {by!r}")
    try:
        return tuple((str(message.role), " ".join(message.text.split())) for message in sample.input)
    except AttributeError:
        raise ConfigError(f"by='prompt' needs samples with an input, found {type(sample).__name__}") from None


def _grouped_positions(keys: list[Hashable], wanted: int, seed: int) -> set[int]:
    groups: dict[Hashable, list[int]] = {}
    for position, key in enumerate(keys):
        groups.setdefault(key, []).append(position)
    order = list(groups.values())
    random.Random(seed).shuffle(order)
    chosen: set[int] = set()
    for group in order:
        # Overshooting is right only where stopping short would miss the size by more.
        if len(chosen) + len(group) - wanted <= wanted - len(chosen) and len(chosen) + len(group) < len(keys):
            chosen.update(group)
    if not chosen and len(order) > 1 and wanted:
        smallest = min(order, key=len)
        chosen.update(smallest)
    return chosen


@contextmanager
def replacing(path: str | Path) -> Iterator[BinaryIO]:
    """Give a new file beside `path`; on success it takes the place of `path` in one step, else it is removed.

    A reader, or a process killed midway, never leaves or sees half a file, and a power cut keeps the old one or the new. The
    new file's name is a random one that must not exist yet, so that no planted link is followed. Raises OSError.
    """
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(temporary, flags, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    _sync_folder(target.parent)


def as_json(value: Any) -> bytes:
    """JSON types as indented JSON with a line end; what is no valid Unicode in a text becomes a question mark."""
    try:
        return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    except TypeError:  # lone surrogates and integers beyond 64 bits, which orjson refuses
        return json.dumps(value, ensure_ascii=False, indent=2).encode("utf-8", "replace") + b"\n"


def deeper(value: Any, most: int) -> bool:
    """Whether a JSON value has more levels of objects and lists than `most`."""
    level = [value]
    for _ in range(most + 1):
        inside = [each for each in level if type(each) in (dict, list)]
        if not inside:
            return False
        level = [child for each in inside for child in (each.values() if type(each) is dict else each)]
    return True


def write_whole(path: str | Path, data: bytes) -> None:
    """Replace a file by `data`, as `replacing` does; raises OSError."""
    with replacing(path) as file:
        file.write(data)


@contextmanager
def written_whole(path: str | Path) -> Iterator[BinaryIO]:
    """`replacing` for a file a user named: folders are made as needed, and DataError says where nothing can be written."""
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            yield file
    except OSError as error:
        raise DataError(f"{path}: cannot be written: {error.strerror or error}") from error


def _sync_folder(folder: Path) -> None:
    """Make a rename in it last through a power cut, where the system can."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # not every file system can
            raise
    finally:
        os.close(descriptor)
