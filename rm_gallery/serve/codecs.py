"""The formats of others that the server speaks: one table, which docs/serving-formats.md shows."""

from __future__ import annotations

from rm_gallery.serve import evaluations, hosted, trainers
from rm_gallery.serve.asking import Codec

FORMATS = (*evaluations.FORMATS, *trainers.FORMATS, *hosted.FORMATS)
"""Every format beside the server's own."""
CODECS: tuple[Codec, ...] = tuple(codec for each in FORMATS for codec in each.codecs())
"""Their codecs, one for every path."""
