"""Runs the Python blocks of documents, each document in one namespace; started as a process of its
own with jobs on stdin.

Comment lines directly below a `print` are its output: a print that writes something else is
reported. Blocks may use `await` at the top level, as in a notebook. Each document has a process of
its own, forked when the package is there already.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import json
import os
import subprocess
import sys
import traceback
from typing import Any


def expected_output(statement: ast.stmt, lines: list[str]) -> str | None:
    """What the comment lines below a print promise; None when there are none."""
    if not isinstance(statement, ast.Expr) or not ast.unparse(statement.value).startswith("print("):
        return None
    at = statement.end_lineno or statement.lineno
    promised = []
    while at < len(lines) and lines[at].startswith("#"):
        promised.append(lines[at][1:].removeprefix(" "))
        at += 1
    return "\n".join(promised) if promised else None


def run_statement(statement: ast.stmt, name: str, namespace: dict[str, Any]) -> str:
    """Run one statement and give back what it printed."""
    code = compile(
        ast.Module([statement], []),
        name,
        "exec",
        flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT,
        dont_inherit=True,
    )
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        result = eval(code, namespace)
        if inspect.iscoroutine(result):
            asyncio.run(result)
    return printed.getvalue()


def run_block(code: str, line: int, name: str, namespace: dict[str, Any]) -> str | None:
    """What is wrong with a block, or None."""
    lines = code.splitlines()
    try:
        tree = ast.parse(code)
        for statement in tree.body:
            promised = expected_output(statement, lines)
            where = f"line {line + statement.lineno - 1}"
            printed = run_statement(ast.increment_lineno(statement, line - 1), name, namespace)
            if promised is not None and printed.rstrip("\n") != promised:
                return f"{where}: printed {printed!r}, the text promises {promised!r}"
    except Exception:  # noqa: BLE001 - whatever a document's code raises is the finding
        return f"block at line {line}:\n{traceback.format_exc()}"
    return None


def run_document(job: dict[str, Any]) -> list[str]:
    """What is wrong with the blocks of one document, run in its folder."""
    os.chdir(job["folder"])
    namespace = sys.modules["__main__"].__dict__
    found = (
        run_block(block["code"], block["line"], job["name"], namespace) for block in job["blocks"]
    )
    return [finding for finding in found if finding is not None]


def in_process_of_its_own(job: dict[str, Any]) -> list[str]:
    """The same, in a fork of this process, or where there is no fork in a new one."""
    if not hasattr(os, "fork"):
        fresh = [sys.executable, "-m", "tests.docs.run_blocks"]
        done = subprocess.run(
            fresh, input=json.dumps([job]), capture_output=True, encoding="utf-8", check=True
        )
        findings: list[str] = json.loads(done.stdout)[job["name"]]
        return findings
    reading, writing = os.pipe()
    if os.fork() == 0:
        with open(writing, "w", encoding="utf-8") as out:
            json.dump(run_document(job), out)
        sys.stderr.flush()
        os._exit(0)
    os.close(writing)
    with open(reading, encoding="utf-8") as told:
        text = told.read()
    os.wait()
    found: list[str] = json.loads(text) if text else ["the process that ran it ended"]
    return found


def main() -> None:
    """Read jobs, run each, write the findings by the names of the documents."""
    jobs = json.load(sys.stdin)
    if len(jobs) > 1:
        import rm_gallery.cli.main
        import rm_gallery.core.models  # noqa: F401

        findings = {job["name"]: in_process_of_its_own(job) for job in jobs}
    else:
        findings = {job["name"]: run_document(job) for job in jobs}
    sys.stdout.write(json.dumps(findings))


if __name__ == "__main__":
    main()
