"""Price files that are none; what the others say is in the golden files."""

from __future__ import annotations

from pathlib import Path

import pytest

from rm_gallery.core.engine.calls.prices import PriceTable
from rm_gallery.core.utils.errors import ConfigError

LINE = b"a: {input: 1, output: 2}\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read"),
        (b"\xff\xfe\xfa", "cannot be read"),
        (LINE + b"#" * ((1 << 20) + 1 - len(LINE)), "larger than 1,048,576 bytes"),
        (b"[" * 50_000, "not valid YAML"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "prices.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=f"price file .*prices.yaml .*{message}"):
        PriceTable.from_yaml(path)


def test_a_file_of_a_megabyte_and_with_a_mark_of_its_byte_order_is_read(tmp_path: Path) -> None:
    path = tmp_path / "prices.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + LINE + b"#" * ((1 << 20) - len(LINE) - 3))
    assert PriceTable.from_yaml(str(path)).source == f"price file {path}"
