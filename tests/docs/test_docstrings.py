"""Every example in a docstring runs and prints what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.packaging.source import module_name, sources
from tests.support.children import ROOT, run_python

# in a process of its own, since an example may register a reward
CODE = """
import doctest, importlib, sys
for name in sys.argv[1:]:
    found = doctest.testmod(importlib.import_module(name))
    print(name, found.attempted, found.failed)
"""


@pytest.mark.long("a document")
def test_examples_of_docstrings_print_what_they_say(tmp_path: Path) -> None:
    files = [file for file in sources() if ">>> " in (ROOT / file).read_text(encoding="utf-8")]
    done = run_python("-c", CODE, *map(module_name, files), cwd=tmp_path)
    counts = [line.split()[-2:] for line in done.stdout.splitlines() if line.startswith("rm_")]
    assert len(counts) == len(files) > 3, done.stdout + done.stderr
    assert all(attempted != "0" and failed == "0" for attempted, failed in counts), done.stdout
