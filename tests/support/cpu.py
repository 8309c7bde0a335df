"""How the CPU time of some work grows with the text it is given: a ratio within one process, which
no other load changes.
"""

from __future__ import annotations

import time
from collections.abc import Callable


def spent(work: Callable[[str], object], text: str) -> float:
    began = time.process_time()
    work(text)
    return time.process_time() - began


def grows(work: Callable[[str], object], piece: str, size: int) -> bool:
    """Whether four times the text takes much more than four times the time; what takes next to none
    is not asked.
    """
    text = (piece * (size // len(piece) + 1))[:size]
    whole, quarter = spent(work, text), text[: size // 4]
    if whole < 0.15:
        return False
    part = min(spent(work, quarter) for _ in range(2))
    if whole <= 6 * part:
        return False
    # a collection of the whole test process may fall into one of the tries
    return min(whole, spent(work, text), spent(work, text)) > 8 * min(part, spent(work, quarter))
