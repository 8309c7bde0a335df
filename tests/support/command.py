"""The command line in this process: the same entry point as the installed command, without starting
an interpreter.
"""

from __future__ import annotations

import contextlib
import io
import sys
from typing import NamedTuple
from unittest import mock

from rm_gallery.cli.main import main


class Done(NamedTuple):
    code: int
    out: str
    err: str


def command(*arguments: str, encoding: str = "") -> Done:
    """What the command printed; with `encoding`, to pipes that take just that and are strict, as
    Python makes them.
    """
    pipes = [io.BytesIO(), io.BytesIO()]
    out, err = (
        io.TextIOWrapper(pipe, encoding, "strict", "") if encoding else io.StringIO()
        for pipe in pipes
    )
    code: object = 0
    with (
        mock.patch.object(sys, "argv", ["rm-gallery", *arguments]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as exit_:
            code = exit_.code
    return Done(int(str(code or 0)), _printed(out, pipes[0]), _printed(err, pipes[1]))


def _printed(stream: io.StringIO | io.TextIOWrapper, pipe: io.BytesIO) -> str:
    if isinstance(stream, io.StringIO):
        return stream.getvalue()
    stream.flush()
    # click takes ASCII for a console that is set up wrong, and writes UTF-8 there
    return pipe.getvalue().decode("utf-8" if stream.encoding == "ascii" else stream.encoding)
