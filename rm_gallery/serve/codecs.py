"""The request formats of others."""

from __future__ import annotations

from rm_gallery.serve.asking import Codec

CODECS: tuple[Codec, ...] = ()
