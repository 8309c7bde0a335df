"""What a reward judges at a time, and how it sees it."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, Literal, NamedTuple, TypeAlias

from rm_gallery.core.data.schema import DataSample

AnyReward: TypeAlias = Any
"""A `BaseReward`. It is made of the modules that name it so, and they do not import it."""


class Job(NamedTuple):
    """One judgement to make: what the hooks see, and where its result belongs."""

    sample: DataSample
    place: Any
    """Meaning is the kind's: an output index, a permutation, a pair, a step."""
    of: DataSample | None = None
    """The whole sample it is a part of."""


current_job: ContextVar[Job | None] = ContextVar("current_job", default=None)
"""The job a judge is at, for its trace."""


Touches = Mapping[Literal["files", "programs", "network", "templates"], tuple[str, ...]]
"""What of the machine a reward touches, and the fields of a sample that say what exactly."""
PICTURES = "pictures"
"""In the place of a field: the pictures of a sample, wherever they stand."""
