"""Source is read by one thread at a time."""

from __future__ import annotations

import ast
import gc
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from rm_gallery.core.utils.identity import syntax_tree


def test_syntax_trees_are_made_by_one_thread_at_a_time() -> None:
    """Two at once ended in a SystemError now and then: the first samples of a reward of one's own had failed then."""
    source = "".join(f"def f{n}(a):\n    return [a, (a + {n}) * 2]\n" for n in range(80))
    before, often = gc.get_threshold(), sys.getswitchinterval()
    callback = lambda *_: time.sleep(0)  # noqa: E731 - gives the other threads a turn in the middle of a tree
    gc.callbacks.append(callback)
    gc.set_threshold(50)
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            assert len([tree for tree in pool.map(syntax_tree, [source] * 60) if isinstance(tree, ast.Module)]) == 60
    finally:
        sys.setswitchinterval(often)
        gc.set_threshold(*before)
        gc.callbacks.remove(callback)
