"""The formats of others that the server speaks: one table, which docs/serving-formats.md shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rm_gallery.serve import evaluations, hosted, trainers
from rm_gallery.serve.asking import Ask, Codec
from rm_gallery.serve.formats import target_of
from rm_gallery.serve.native import NATIVE

FORMATS = (*evaluations.FORMATS, *trainers.FORMATS, *hosted.FORMATS)
"""Every format beside the server's own."""


def _of_evaluators(codec: Codec) -> Codec:
    """The server's own format for a deployed evaluator."""

    def parse(body: Any, params: Mapping[str, str]) -> tuple[str, Sequence[Ask]]:
        return target_of(params), codec.parse(body, {"name": ""})[1]

    path = codec.path.replace("/v1/rewards/{name}", "/v1/evaluations/{id}/outcome")
    summary = codec.summary.replace("a reward", "a deployed evaluator")
    return replace(codec, name=codec.name.replace("reward", "outcome"), path=path, parse=parse, summary=summary)


CODECS: tuple[Codec, ...] = (
    *map(_of_evaluators, NATIVE),
    *(codec for each in FORMATS for codec in each.codecs()),
)
"""Their codecs, one for every path, and the server's own format for evaluators."""
