"""How the CPU time of some work grows with the text it is given: a ratio within one process, which
no other load changes.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable


def spent(work: Callable[[str], object], text: str) -> float:
    """Seconds of CPU for the text, without the collector, which walks through all that the test
    process holds.
    """
    gc.disable()
    try:
        began = time.process_time()
        work(text)
        return time.process_time() - began
    finally:
        gc.enable()


def grows(work: Callable[[str], object], piece: str, size: int) -> bool:
    """Whether eight times the text takes more than 32 times the time: what grows with the square
    takes 64 times, what grows with the text and whose memory other processes drive out of the
    caches up to 24. What takes next to none is not asked.
    """
    text = (piece * (size // len(piece) + 1))[:size]
    whole, eighth = spent(work, text), text[: size // 8]
    if whole < 0.15:
        return False
    part = min(spent(work, eighth) for _ in range(3))
    return whole > 32 * part and min(spent(work, text), spent(work, text)) > 32 * part
