"""The checks of the documents notice what is wrong."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from tests.docs.blocks import blocks_of, commands_of
from tests.docs.shell import problem_of
from tests.support.children import run_python

TEXT = """# Title

```python
x = 1
print(x + 1)
# 2
```

<!-- not run: needs a cluster -->

```python
start_cluster()
```

```bash
# a comment
make demo    # explained
rm-gallery eval x \\
    y && rm-gallery list
$ git clone url
```

1. In a list:

   ```python
   print("indented")
   ```
"""


def test_blocks_are_found_in_order_with_their_lines_and_opt_outs() -> None:
    found = blocks_of(TEXT)
    assert [(b.language, b.line, b.not_run) for b in found] == [
        ("python", 4, None),
        ("python", 12, "needs a cluster"),
        ("bash", 16, None),
        ("python", 26, None),
    ]
    assert found[3].code == 'print("indented")\n'
    assert commands_of(found[2]) == [
        ["make", "demo"],
        ["rm-gallery", "eval", "x", "y"],
        ["rm-gallery", "list"],
        ["git", "clone", "url"],
    ]


def test_an_open_block_is_an_error_and_an_opt_out_needs_a_reason() -> None:
    with pytest.raises(ValueError, match="line 1: a code block is never closed"):
        blocks_of("```python\nx = 1\n")
    assert [block.not_run for block in blocks_of("<!-- not run: -->\n```python\nx = 1\n```\n")] == [None]


CODE = [
    ("print(1)\n# 1\n", None),
    ("print([1.0,\n       2])\n# [1.0, 2]\n", None),
    ("print('a\\nb')\n# a\n# b\n", None),
    ("print(2)\n\n# a remark\n", None),
    ("import asyncio\nawait asyncio.sleep(0)\nprint(await asyncio.sleep(0, 3))\n# 3\n", None),
    ("x = 1\nprint(x)\n# 2\n", "line 12: printed '1\\n', the text promises '2'"),
    ("1 / 0\n", "ZeroDivisionError"),
    ("print('\n", "SyntaxError"),
]


def test_findings(tmp_path: Path) -> None:
    done = {"line": 20, "code": "done = True\n"}
    jobs = [{"name": code, "folder": str(tmp_path), "blocks": [{"line": 11, "code": code}, done]} for code, _ in CODE]
    finished = run_python("-m", "tests.docs.run_blocks", cwd=tmp_path, stdin=json.dumps(jobs))
    findings = json.loads(finished.stdout)
    for code, finding in CODE:
        assert len(findings[code]) == (finding is not None), code
        assert all(finding is not None and finding in found for found in findings[code]), code


COMMANDS = [
    ("make demo", None), ("make nothing", "no target nothing"), ("make test ARGS=-x", None),
    ("pip install .", None), ("pip install '.[text,hub]'", None), ("pip install .[surf]", "no extra surf"),
    ("python data/build.py --check", None), ("python nothing.py", "there is no nothing.py"),
    ("rm-gallery show accuracy", None), ("rm-gallery show acuracy", "exit code 2"),
    ("git clone https://example.invalid/x", None), ("git bisect", "git bisect is not known"), ("ls -l", None),
]  # fmt: skip


@pytest.mark.parametrize(("line", "problem"), COMMANDS)
def test_problems_of_commands(line: str, problem: str | None) -> None:
    found = problem_of(shlex.split(line))
    assert (found is None) == (problem is None)
    assert problem is None or problem in (found or "")
