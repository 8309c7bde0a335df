"""What a small first run says about a large one: spread, how well the judge follows the labels, how alike rows of a cluster are."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rm_gallery.core.stats.planning import correlation_within
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.report.drifting import values_of
from rm_gallery.report.sheet import open_sheet

_FEWEST = 10


@dataclass(frozen=True)
class Pilot:
    """Figures of a pilot; None where it does not tell.

    Attributes:
        n: rows it rests on.
        sd: standard deviation of the labels, else of the scores.
        correlation: of score and label.
        rows_per_cluster: mean rows per cluster.
        icc: how alike rows of a cluster are.
    """

    n: int = 0
    sd: float | None = None
    correlation: float | None = None
    rows_per_cluster: float = 1.0
    icc: float = 0.0

    def to_dict(self) -> dict[str, Any] | None:
        """The figures as JSON types; None without a pilot."""
        return asdict(self) if self.n else None

    def lines(self) -> list[str]:
        """What was taken from the pilot, in words."""
        if not self.n:
            return []
        parts = [f"standard deviation {self.sd:.3g}"]
        if self.correlation is not None:
            parts.append(f"correlation of judge and label {self.correlation:.3g}")
        if self.rows_per_cluster > 1.0:
            parts.append(f"{self.rows_per_cluster:.3g} rows per cluster, correlated {self.icc:.3g}")
        return [f"from {self.n} rows of the pilot: {', '.join(parts)}"]


def read_pilot(path: Path, *, score: str | None, label: str | None, cluster: str | None) -> Pilot:
    """Read a table with judge scores, labels or both, and clusters if wanted.

    Raises:
        ConfigError, DataError: there is no such file or column, a cell cannot be read, or too few rows are filled.
    """
    import numpy as np

    if score is None and label is None:
        raise ConfigError("--pilot needs to know its columns: --score of judge scores, --label of labels, or both")
    sheet = open_sheet(str(path))
    columns = {
        role: np.array([math.nan if v is None else v for v in values_of(sheet, name, role)])
        for role, name in (("--score", score), ("--label", label))
        if name is not None
    }
    known = ~np.isnan(np.stack(list(columns.values()))).any(axis=0)
    n = int(known.sum())
    if n < _FEWEST:
        raise ConfigError(f"{path}: {n} rows have what the plan is made from; a pilot needs at least {_FEWEST}")
    values = columns["--label" if label is not None else "--score"][known]
    sd = float(values.std(ddof=1))
    if sd == 0.0:
        raise ConfigError(f"{path}: all {n} values are equal, which says nothing about their spread; use --rate or --sd")
    correlation = None
    if len(columns) == 2:
        judge = columns["--score"][known]
        correlation = float(np.corrcoef(judge, values)[0, 1]) if judge.std() > 0.0 else 0.0
    if cluster is None:
        return Pilot(n, sd, correlation)
    cells = sheet.column(cluster, "--cluster")
    names = [f"row {i}" if cell is None else str(cell) for i, (cell, kept) in enumerate(zip(cells, known, strict=True)) if kept]
    if len(set(names)) == n:
        return Pilot(n, sd, correlation)
    return Pilot(n, sd, correlation, n / len(set(names)), correlation_within(values.tolist(), names))
