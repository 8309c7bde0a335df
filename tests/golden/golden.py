"""Golden files: one JSON object a line, what is given and what the library makes of it, changed
only on purpose.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rm_gallery import RMGalleryError

HERE = Path(__file__).parent
WRITING = os.environ.get("RM_GALLERY_GOLDEN") == "write"
"""`make golden` sets it: files are written anew, and the difference is for a person to read."""

LONG = ("math_verdicts", "runs", "commands")
"""Files whose lines take seconds."""

Line = dict[str, Any]


def files(folder: str) -> list[Any]:
    """The golden files of a folder as parameters of a test, each named after what it pins."""
    found = sorted((HERE / folder).rglob("*.jsonl"))
    return [
        pytest.param(
            path,
            id=path.relative_to(HERE / folder).with_suffix("").as_posix(),
            marks=pytest.mark.long("many lines") if path.stem in LONG else (),
        )
        for path in found
    ]


def lines(path: Path) -> Iterator[tuple[int, Line]]:
    """(line number, object) of each line that is not empty; AssertionError that says what to write
    where there is no such file.
    """
    for number, text in _texts(path):
        yield number, json.loads(text)


def _texts(path: Path) -> Iterator[tuple[int, str]]:
    assert path.exists(), (
        f"write {path.relative_to(HERE.parent.parent).as_posix()}: a JSON object a line, with the "
        f"given half of what the lines of its neighbours hold; `make golden` fills in the rest"
    )
    for number, text in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
        if text.strip():
            yield number, text


def check(path: Path, answer: Callable[[Line], Line], expected: tuple[str, ...]) -> None:
    """Hold `answer(what is given)` against the keys in `expected` of every line; all lines that
    differ are told at once.

    What `answer` leaves out, or gives as None, may be absent from the line. Numbers agree to eight
    digits: the ninth of a rounded one is another with another scipy.
    """
    kept, wrong = [], []
    for number, text in _texts(path):
        line = json.loads(text)
        given = {key: value for key, value in line.items() if key not in expected}
        wanted = {key: line[key] for key in expected if line.get(key) is not None}
        found = {key: _plain(value) for key, value in answer(given).items() if value is not None}
        assert found.keys() <= set(expected), (
            f"{path.name}: the runner tells {found.keys() - set(expected)} too"
        )
        same = _same(found, wanted)
        # 1 instead of 1.0, or keys in another order, would hide the lines that differ
        kept.append((text if same else json.dumps({**given, **found}, ensure_ascii=False)) + "\n")
        if not same:
            wrong.append(
                f"  line {number}: {_short(given)}\n    expected {wanted}\n    found    {found}"
            )
    assert kept, f"{path} has no lines"
    if WRITING:
        path.write_text("".join(kept), encoding="utf-8", newline="\n")
        return
    head = (
        f"{path.relative_to(HERE.parent.parent)}: {len(wrong)} of {len(kept)} lines differ (`make "
        f"golden` writes them anew)"
    )
    assert not wrong, "\n".join([head, *wrong])


def _short(given: Line) -> str:
    text = json.dumps(given, ensure_ascii=False)
    return text if len(text) < 400 else f"{text[:400]}…"


def _plain(value: Any) -> Any:
    """The value as JSON holds it; what JSON has no word for (nan, infinities) as a string."""
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _same(found: Any, wanted: Any) -> bool:
    if isinstance(found, dict) and isinstance(wanted, dict):
        return found.keys() == wanted.keys() and all(
            _same(found[key], wanted[key]) for key in found
        )
    if isinstance(found, list) and isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(_same, found, wanted))
    if isinstance(found, bool) or isinstance(wanted, bool):
        return found is wanted
    if isinstance(found, (int, float)) and isinstance(wanted, (int, float)):
        return math.isclose(found, wanted, rel_tol=1e-8, abs_tol=1e-12)
    return bool(found == wanted)


def runner(
    folder: str, answer: Callable[[str, Line], Line], *expected: str
) -> Callable[[Path], None]:
    """A test of every file of a folder: what `answer` makes of the file's name and a line is held
    against these keys.
    """

    @pytest.mark.parametrize("path", files(folder))
    def test(path: Path) -> None:
        check(path, lambda line: answer(path.stem, line), expected)

    return test


def decoded(value: Any) -> Any:
    """Numbers that JSON has no word for, which stand there as texts."""
    if isinstance(value, dict):
        return {name: decoded(each) for name, each in value.items()}
    if isinstance(value, list):
        return [decoded(each) for each in value]
    return float(value) if value in ("nan", "inf", "-inf") else value


def calls(folder: str, functions: Mapping[str, Callable[..., Any]]) -> Callable[[Path], None]:
    """A test of a folder whose files are named after functions, and whose lines are the arguments
    of a call each.
    """

    def answer(name: str, line: Line) -> Line:
        try:
            found = functions[name](**decoded(line))
        except (RMGalleryError, ValueError) as error:
            return {"error": str(error)}
        return {"is": "none" if found is None else found}

    return runner(folder, answer, "is", "error")


def kinds(folder: str) -> Callable[..., Callable[[Callable[[Line], Line]], Callable[[], None]]]:
    """A decorator for this folder: the function as a test that holds its answers against those in
    the file of its name.
    """

    def golden(*expected: str) -> Callable[[Callable[[Line], Line]], Callable[[], None]]:
        def made(answer: Callable[[Line], Line]) -> Callable[[], None]:
            path = HERE / folder / f"{answer.__name__.removeprefix('test_')}.jsonl"

            def test() -> None:
                check(path, answer, expected)

            test.__doc__ = answer.__doc__
            return test

        return made

    return golden


def unnamed(folder: str, tests: Mapping[str, Any]) -> set[str]:
    """The files of a folder that `kinds` has no test of among these names, and the tests without
    their file.
    """
    names = {name.removeprefix("test_") for name in tests if name.startswith("test_")}
    return {path.stem for path in (HERE / folder).glob("*.jsonl")} ^ names
