"""Half-written and damaged lines cost only their own sample."""

from __future__ import annotations

from pathlib import Path

import pytest

from rm_gallery.core.engine.folder.store import RunStore

MANIFEST = {"seed": 0}
A = b'{"id":"a","status":"scored"}\n'
B = b'{"id":"b","status":"scored"}\n'


@pytest.mark.parametrize(
    ("content", "found", "kept"),
    [
        (b"", [], b""),
        (A + B, ["a", "b"], A + B),
        (A + b'{"id":"b","sta', ["a"], A),
        (A + B[:-1], ["a", "b"], A + B),
        (b'{"id":"a"', [], b""),
        (A + b"\x00" * 100, ["a"], A),
        (A + '{"id":"评'.encode()[:-1], ["a"], A),
        (A + b"{}broken\n" + B, ["a", "b"], A + b"{}broken\n" + B),
        (A + b"\n\n" + B, ["a", "b"], A + b"\n\n" + B),
        (A.replace(b"\n", b"\r\n") + B.replace(b"\n", b"\r\n"), ["a", "b"], None),
        (A + b"3\n[1]\n" + B, ["a", "b"], None),
        (A + b'{"id": 5, "status": "scored"}\n', ["a"], None),
        (A + b'{"id":"b","status":"scored","text":"' + b"x" * 3_000_000, ["a"], A),
    ],
    ids=[
        "empty", "whole", "torn", "line end missing", "only a torn line", "zeros after a power cut", "cut inside a character",
        "damage in the middle", "empty lines", "Windows line ends", "lines of another kind", "id of another kind",
        "a torn line of megabytes",
    ],
)  # fmt: skip
def test_what_a_start_makes_of_it(tmp_path: Path, content: bytes, found: list[str], kept: bytes | None) -> None:
    RunStore.open(tmp_path, MANIFEST).close()
    path = tmp_path / "results.jsonl"
    path.write_bytes(content)
    with RunStore.open(tmp_path, MANIFEST) as store:
        assert list(store.finished()) == found
        if kept is not None:
            assert path.read_bytes() == kept
        store.append({"id": "new", "status": "scored"})
        assert list(store.finished()) == [*found, "new"]


def test_a_manifest_half_written_before_a_kill_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "manifest.json.tmp").write_bytes(b'{"se')
    RunStore.open(tmp_path, MANIFEST).close()
    RunStore.open(tmp_path, MANIFEST).close()
