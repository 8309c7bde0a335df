"""The command line in this process: the same entry point as the installed command, without starting an interpreter."""

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


def command(*arguments: str) -> Done:
    out, err = io.StringIO(), io.StringIO()
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
    return Done(int(str(code or 0)), out.getvalue(), err.getvalue())
