"""Kill -9 at any moment, then the same command: every sample is there exactly once, none is lost once appended."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

from rm_gallery.core.engine.folder.store import RunStore
from tests.engine.child_processes import finish, kill_after_lines, start

RUNNER = """
    import os, sys
    from rm_gallery.core.engine.folder.store import RunStore
    with RunStore.open(sys.argv[1], {"seed": 0}) as store:
        done = store.finished()
        for number in range(int(sys.argv[2])):
            if str(number) in done:
                continue
            store.append({"id": str(number), "status": "scored", "text": "评" * (number % 4000)})
            os.write(1, b"%d\\n" % number)
"""


def test_every_sample_exactly_once(tmp_path: Path) -> None:
    rng, told = random.Random(11), []
    for _ in range(8):
        told += kill_after_lines(start(RUNNER, tmp_path, 4000), rng.randint(1, 300))
    finish(start(RUNNER, tmp_path, 4000))
    with RunStore.open(tmp_path, {"seed": 0}) as store:
        times = Counter(record["id"] for record in store.records())
    assert set(times.values()) == {1}, "a sample was done twice"
    assert len(times) == 4000
    assert set(told) <= set(times)
    assert len(told) == len(set(told))
