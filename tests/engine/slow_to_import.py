"""A module that takes long to import, as one does that imports much on a busy machine."""

from __future__ import annotations

import time
from dataclasses import dataclass

SECONDS = 3.0
time.sleep(SECONDS)


@dataclass
class Labelled:
    label: str
