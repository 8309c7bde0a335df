"""Inspect logs that are packed with Zstandard, as Inspect writes them, are read where something here unpacks them."""

from __future__ import annotations

import io
import json
import struct
import sys
import zipfile
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rm_gallery.core.data.load.readers import file_sources
from rm_gallery.core.utils.errors import DataError, MissingExtra

MODULES = ("compression.zstd", "backports.zstd", "zstandard")


class Damaged(Exception):
    """What the stand-ins below raise for bytes that are no frame."""


def frame(text: bytes) -> bytes:
    """A Zstandard frame that holds a short text as it is."""
    head = b"\x28\xb5\x2f\xfd\xa0" + struct.pack("<I", len(text))
    return head + struct.pack("<I", 1 | len(text) << 3)[:3] + text


def unpacked(data: bytes) -> bytes:
    if data[:5] != b"\x28\xb5\x2f\xfd\xa0":
        raise Damaged("no frame")
    return data[12 : 12 + struct.unpack("<I", data[5:9])[0]]


STANDARD = SimpleNamespace(ZstdFile=lambda file: io.BytesIO(unpacked(file.read())), ZstdError=Damaged)
BINDING = SimpleNamespace(
    ZstdDecompressor=lambda: SimpleNamespace(stream_reader=lambda data, read_across_frames: io.BytesIO(unpacked(data))),
    ZstdError=Damaged,
)


def log(path: Path, *members: tuple[bytes, bytes]) -> Path:
    """An Inspect log of (what a sample is, what stands in the file for it), marked as packed by method 93."""
    with zipfile.ZipFile(path, "w") as archive:
        for number, (_, packed) in enumerate(members):
            archive.writestr(f"samples/{number}.json", packed)
    data = bytearray(path.read_bytes())
    for mark, method, sizes in ((b"PK\x03\x04", 8, 14), (b"PK\x01\x02", 10, 16)):
        at = -1
        for text, packed in members:
            at = data.index(mark, at + 1)
            data[at + method : at + method + 2] = struct.pack("<H", 93)
            data[at + sizes : at + sizes + 12] = struct.pack("<III", zlib.crc32(text), len(packed), len(text))
    path.write_bytes(data)
    return path


def read(path: Path) -> list[Any]:
    (source,) = file_sources(path)
    return [str(row) if isinstance(row, DataError) else row["id"] for _, row in source.rows()]


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes one package the only one there is that unpacks Zstandard, or none."""

    def there(name: str = "", module: object = None) -> None:
        for each in MODULES:
            monkeypatch.setitem(sys.modules, each, module if each == name else None)

    return there


@pytest.mark.parametrize("module", MODULES)
def test_a_log_packed_with_zstandard_is_read_by_whatever_package_there_is(
    only: Any, module: str, tmp_path: Path
) -> None:
    only(module, BINDING if module == "zstandard" else STANDARD)
    texts = [json.dumps({"id": name, "input": "q"}).encode() for name in ("one", "two", "three")]
    members = [(text, frame(text)) for text in texts]
    members += [
        (texts[0], b"no frame at all"),
        (b"{}" + texts[1], frame(texts[1])),
        (texts[1], frame(texts[1][:-1] + b"]")),
    ]
    found = read(log(tmp_path / "log.eval", *members))
    assert found[:3] == ["one", "two", "three"]
    assert [text.rpartition(": ")[2] for text in found[3:]] == ["no frame", *["its checksum is wrong"] * 2]


def test_without_such_a_package_the_line_that_installs_one_is_named(only: Any, tmp_path: Path) -> None:
    only()
    with pytest.raises(
        MissingExtra, match=r"packed with Zstandard, needs the package 'zstandard'\. .*pip install zstandard$"
    ):
        read(log(tmp_path / "log.eval", (b"{}", frame(b"{}"))))


def test_a_log_packed_otherwise_names_the_command_that_converts_it(tmp_path: Path) -> None:
    path = log(tmp_path / "log.eval", (b"{}", b"{}"))
    path.write_bytes(path.read_bytes().replace(struct.pack("<H", 93), struct.pack("<H", 97)))
    with pytest.raises(DataError, match="inspect log convert --to json"):
        read(path)
