"""A judge in C that needs a tenth of the processor that one in Python does: what is measured beside
it is the library.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def light_judge(text: str, milliseconds: int) -> Iterator[str | None]:
    """The base URL of a judge that says `text` after so many milliseconds; None where no C compiler
    is installed.
    """
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        yield None
        return
    with tempfile.TemporaryDirectory() as folder:
        program = str(Path(folder) / "judge")
        subprocess.run(
            [
                compiler,
                "-O2",
                "-D_GNU_SOURCE",
                "-o",
                program,
                str(Path(__file__).with_name("judge.c")),
            ],
            check=True,
        )
        with subprocess.Popen(
            [program, str(milliseconds), text], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as judge:
            assert judge.stdin is not None and judge.stdout is not None
            yield f"http://127.0.0.1:{int(judge.stdout.readline())}/v1"
            judge.stdin.close()
