"""What a run has to reach for a build to go on: `--fail-under` and `--fail-if-worse-than`, exit code 1."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.gallery.benchmarks.figures import Report
from rm_gallery.report.compare import check_fits, held_against, reference_run, under
from rm_gallery.report.opened import OpenRun, open_run
from rm_gallery.report.task import Data


@dataclass
class Gates:
    """The gates of one command, and which of them a run missed."""

    least: float | None = None
    """Lowest score that passes, 0..1."""
    reference: OpenRun | None = None
    """The run that it must not be shown to be worse than."""
    missed: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, fail_under: float | None, fail_if_worse_than: Path | None) -> Gates:
        """The gates these options set; ConfigError, before anything is paid, for a limit or a run that is none."""
        if fail_under is not None:
            under(1.0, None, fail_under)
        return cls(fail_under, None if fail_if_worse_than is None else reference_run(fail_if_worse_than))

    @contextmanager
    def keeping(self, run_dir: str | None) -> Iterator[str | None]:
        """The run folder to judge into: the one given, or where runs are compared one that is gone in the end."""
        if self.reference is None or run_dir is not None:
            if self.reference is not None and Path(run_dir or "").resolve() == self.reference.folder.resolve():
                raise ConfigError("--out is the run of --fail-if-worse-than; a run cannot be held against itself.")
            yield run_dir
            return
        with TemporaryDirectory(prefix="rm-gallery-") as spare:
            yield str(Path(spare) / "run")

    def fits(self, data: Data) -> None:
        """Raise ConfigError, before anything is paid, where the data or the rule are not those of the run compared with."""
        if self.reference is not None:
            check_fits(self.reference, data)

    def check(self, report: Report, run_dir: str | None) -> None:
        """Note what the run misses."""
        if self.least is not None and (why := under(report.score, report.ci95, self.least)) is not None:
            self.missed.append(why)
        if self.reference is None or run_dir is None or not report.n_scored:
            return
        worse, said = held_against(open_run(run_dir), self.reference)
        if worse:
            self.missed.append(said)
        else:
            sys.stderr.write(f"{said}\n")

    def conclude(self, code: int) -> int:
        """Say on stderr what was missed; the exit code, which is 1 then."""
        for why in self.missed:
            sys.stderr.write(f"rm-gallery: {why}.\n")
        return 1 if self.missed else code
