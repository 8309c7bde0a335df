"""Errors that come whole out of another process, copies of models that are not validated anew,
source that one thread reads at a time.
"""

from __future__ import annotations

import ast
import gc
import hashlib
import importlib
import pickle
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from pydantic import BaseModel

from rm_gallery.core.utils import errors
from rm_gallery.core.utils.identity import ONE_GO, hashed, syntax_tree
from rm_gallery.core.utils.models import build, copy_with, remake
from tools.imports import module_names


def families() -> list[type[errors.RMGalleryError]]:
    for package in ("rm_gallery.core.engine", "rm_gallery.core.model"):
        for name in module_names(package):
            importlib.import_module(name)
    found, open_ = list[type[errors.RMGalleryError]](), [errors.RMGalleryError]
    while open_:
        found.append(open_.pop())
        open_ += found[-1].__subclasses__()
    return sorted(
        {cls for cls in found if cls.__module__.startswith("rm_gallery.")},
        key=lambda cls: cls.__name__,
    )


@pytest.mark.parametrize("cls", families(), ids=lambda cls: cls.__name__)
def test_it_comes_whole_out_of_another_process(cls: type[errors.RMGalleryError]) -> None:
    error = cls.__new__(cls)
    error.args, error.__dict__["told"] = ("what happened", 3), {"more": 1}
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), copy.args, copy.__dict__) == (cls, error.args, error.__dict__)


class Thing(BaseModel):
    one: int = 1
    two: list[int] = []


def test_copies_share_what_is_not_changed() -> None:
    thing = Thing(one=3)
    copy = copy_with(thing, two=[5])
    assert (copy, copy.model_fields_set, thing.model_fields_set) == (
        Thing(one=3, two=[5]),
        {"one", "two"},
        {"one"},
    )
    assert copy_with(thing).two is thing.two
    assert (build(Thing, {"one": 2, "two": []}), remake(thing, {"one": 2, "two": []})) == (
        Thing(one=2, two=[]),
    ) * 2
    assert build(Thing, {"one": 2, "two": []}).model_fields_set == {"one", "two"}
    assert remake(thing, {"one": 2, "two": []}).model_fields_set == {"one"}


@pytest.mark.long("much work")
def test_syntax_trees_are_made_by_one_thread_at_a_time() -> None:
    """Two at once ended in a SystemError now and then: the first samples of a reward of one's own
    had failed then.
    """
    source = "".join(f"def f{n}(a):\n    return [a, (a + {n}) * 2]\n" for n in range(80))
    before, often = gc.get_threshold(), sys.getswitchinterval()
    callback = lambda *_: time.sleep(0)  # noqa: E731 - gives the other threads a turn in the middle of a tree
    gc.callbacks.append(callback)
    gc.set_threshold(50)
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            assert (
                len(
                    [
                        tree
                        for tree in pool.map(syntax_tree, [source] * 60)
                        if isinstance(tree, ast.Module)
                    ]
                )
                == 60
            )
    finally:
        sys.setswitchinterval(often)
        gc.set_threshold(*before)
        gc.callbacks.remove(callback)


@pytest.mark.long("much work")
def test_what_is_hashed_on_the_loop_keeps_the_interpreter_lock() -> None:
    class Watched:
        sizes: list[int] = []

        def __init__(self) -> None:
            self.true = hashlib.sha256()

        def update(self, data: bytes) -> None:
            self.sizes.append(len(data))
            self.true.update(data)

        def hexdigest(self) -> str:
            return self.true.hexdigest()

    for length in (0, 1, ONE_GO, ONE_GO + 1, 3 * ONE_GO, 10 * ONE_GO):
        data = bytes(range(256)) * (length // 256) + bytes(length % 256)
        assert hashed(Watched(), data) == hashlib.sha256(data).hexdigest()
    assert max(Watched.sizes) == ONE_GO  # hashlib lets other threads run from 2,048 bytes on
