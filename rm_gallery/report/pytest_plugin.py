"""A judge held to a figure in a team's own tests: the fixture `reward_gate` and the marker of the
same name.

pytest loads this file in every run of an environment that has the package, so it imports nothing
but pytest until a gate is asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from rm_gallery.gallery.benchmarks.figures import Report
    from rm_gallery.report.gate import QualityGate

NAME = "reward_gate"
_MARKER = (
    f"{NAME}(reward, data, at_least=…, beats=…, not_worse_than=…, **arguments of "
    f"rm_gallery.evaluate): what the fixture `{NAME}` holds the reward to unless it is called with "
    f"something else"
)
_BASELINES = ("longest", "shortest", "chance")
_HELD = ("at_least", "beats", "not_worse_than")


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line("markers", _MARKER)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse a test that is marked and does not take the fixture: its gate would never close."""
    for item in items:
        if item.get_closest_marker(NAME) is not None and NAME not in getattr(
            item, "fixturenames", ()
        ):
            raise pytest.UsageError(
                f"{item.nodeid} is marked {NAME} and does not take the fixture; add the parameter "
                f"`{NAME}` and call it."
            )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line for every gate that was asked."""
    lines = [
        str(value)
        for kind in ("passed", "failed")
        for report in terminalreporter.stats.get(kind, ())
        if report.when == "call"
        for name, value in report.user_properties
        if name == NAME
    ]
    if lines:
        terminalreporter.section("reward gates")
        terminalreporter.line("\n".join(lines))


class RewardGate:
    """Judges data with a reward and fails the test when the figure is not what was asked for.

    What the marker says holds unless the call says otherwise.
    """

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._node: pytest.Item = request.node
        self._given: dict[str, Any] = {}
        if (marker := self._node.get_closest_marker(NAME)) is not None:
            named = dict(zip(("reward", "data"), marker.args, strict=False))
            self._given = {**marker.kwargs, **named}
        self.marked, self.asked = marker is not None, 0

    def __call__(
        self,
        reward: Any = None,
        data: Any = None,
        benchmark: Any = None,
        *,
        at_least: float | None = None,
        surely: bool | None = None,
        beats: str | list[str] | tuple[str, ...] | None = None,
        not_worse_than: str | Path | None = None,
        max_failures: int | None = None,
        max_unscored: int | None = None,
        **arguments: Any,
    ) -> Report:
        """Judge, hold the figure against what is asked, and give the report of a gate that passed.

        Args:
            reward: a registered name, a reward class or a reward.
            data: as in `rm_gallery.evaluate`; a path is looked for below the working folder, then
                beside the test's file.
            benchmark: its name; found from the columns by default.
            at_least: the lowest score that passes, 0..1. What has no score counts as wrong,
                whatever is allowed to be missing.
            surely: whether the lower end of the 95 % interval has to reach `at_least`, not the
                score alone.
            beats: baselines that the score has to exceed: longest, shortest, chance; what has no
                score counts as wrong.
            not_worse_than: run folder of an earlier run on the same samples. Fails when the paired
                difference is below 0 with its whole 95 % interval, what has no score counted at its
                worst.
            max_failures: samples that may fail; 0 unless given.
            max_unscored: samples that may be unscored; as many as may fail unless given.
            **arguments: further arguments of `rm_gallery.evaluate` (llm, params, seed, limit,
                run_dir, budget, …).

        A gate that cannot be asked (an unknown name or argument, a file or run that is not there)
        fails with one line.
        """
        from rm_gallery.core.utils.errors import RMGalleryError

        called = {
            "reward": reward, "data": data, "benchmark": benchmark, "at_least": at_least, "surely": surely, "beats": beats,
            "not_worse_than": not_worse_than, "max_failures": max_failures, "max_unscored": max_unscored,
        }  # fmt: skip
        asked = {
            **self._given,
            **arguments,
            **{name: value for name, value in called.items() if value is not None},
        }
        self.asked += 1
        wanted = {
            name: asked.pop(name, None)
            for name in (*_HELD, "surely", "max_failures", "max_unscored")
        }
        try:
            return self._hold_to_limits(asked, wanted)
        except RMGalleryError as error:
            return pytest.fail(f"{NAME}: {error}", pytrace=False)

    def _hold_to_limits(self, asked: dict[str, Any], wanted: dict[str, Any]) -> Report:
        from rm_gallery.core.utils.errors import ConfigError
        from rm_gallery.report.gate import check_fits
        from rm_gallery.study.benchmark import evaluate
        from rm_gallery.study.runs import open_run, run_folder
        from rm_gallery.study.source import Source

        _check_arguments(asked, wanted)
        asked["data"] = self._path(asked["data"])
        wanted["not_worse_than"] = self._path(wanted["not_worse_than"])
        gate, run_dir = _gate(wanted), asked.pop("run_dir", None) or None
        gate.check_other(run_dir, "run_dir is the run of not_worse_than")
        if gate.reference is not None:  # before anything is paid
            if isinstance(asked["data"], Iterator):
                asked["data"] = list(asked["data"])
            how = {name: asked[name] for name in Source.__dataclass_fields__ if name in asked}
            check_fits(gate.reference, Source(**how).open())
        with run_folder(run_dir, gate.reference is not None) as folder:
            report = evaluate(**{"progress": False, **asked, "run_dir": folder})
            figures = report.to_dict()
            run = None if gate.reference is None or folder is None else open_run(folder)
            missed = gate.missed(figures, finished=not report.n_stopped, run=run)
            problems = [f"{why}." for _, why in missed]
        if problems and report.reasons:
            reasons = (f"{entry['n']} {why}" for why, entry in list(report.reasons.items())[:3])
            problems.append(f"without a score: {'; '.join(reasons)}.")
        figure = f"{report.reward} {_figure_text(report)}"
        line = f"{self._node.nodeid}: {figure}{_threshold(wanted)}"
        self._node.user_properties.append((NAME, f"{'FAILED' if problems else 'passed'} {line}"))
        for name in ("score", "ci95", "n", "n_scored"):
            self._node.user_properties.append((f"{NAME}.{name}", figures[name]))
        if problems:
            pytest.fail("\n".join([figure, *problems, "", str(report)]), pytrace=False)
        if report.score is None:
            raise ConfigError(
                f"{report.reward} scored nothing, so there is no figure to hold it to."
            )
        return report

    def _path(self, data: Any) -> Any:
        """A path that is not below the working folder and stands beside the test's file; everything
        else as it is.
        """
        if isinstance(data, str | Path) and not Path(data).exists():
            sibling = self._node.path.parent / data
            return str(sibling) if sibling.exists() else data
        return data


def _check_arguments(asked: dict[str, Any], wanted: dict[str, Any]) -> None:
    from inspect import signature

    from rm_gallery.core.engine.options import RunOptions
    from rm_gallery.core.utils.errors import ConfigError
    from rm_gallery.core.utils.names import check_known, nearest
    from rm_gallery.study.benchmark import evaluate

    for name in ("reward", "data"):
        if asked.get(name) is None:
            raise ConfigError(
                f"there is no {name}; give it to the marker or the call: {NAME}(reward, data, …)."
            )
    if all(wanted[name] is None for name in _HELD):
        known = {*signature(evaluate).parameters, *RunOptions.__dataclass_fields__}
        near = "".join(
            f", found {name!r}" for name in sorted({*asked} - known) if nearest(name, _HELD)
        )
        raise ConfigError(
            f"nothing to hold the reward to{near}; give at_least=, beats= or not_worse_than=."
        )
    lowest = wanted["at_least"]
    if lowest is not None and not (isinstance(lowest, int | float) and 0 <= lowest <= 1):
        raise ConfigError(f"at_least is {lowest!r}; it is a share such as 0.8.")
    beats = wanted["beats"]
    wanted["beats"] = [beats] if isinstance(beats, str) else list(beats or ())
    check_known("baseline", wanted["beats"], _BASELINES)


def _gate(wanted: dict[str, Any]) -> QualityGate:
    """The gate; ConfigError for a limit or an earlier run that is none."""
    from rm_gallery.report.gate import QualityGate, reference_run

    failures, before = wanted["max_failures"] or 0, wanted["not_worse_than"]
    return QualityGate(
        wanted["at_least"],
        failures,
        failures if wanted["max_unscored"] is None else wanted["max_unscored"],
        None if before is None else reference_run(before, "not_worse_than"),
        wanted["beats"],
        bool(wanted["surely"]),
    )


def _figure_text(report: Report) -> str:
    if report.score is None:
        return f"has no score ({report.rule}, n = {report.n})"
    limits = f" [{report.ci95[0]:.4f}, {report.ci95[1]:.4f}]" if report.ci95 else ""
    return f"{report.score:.4f}{limits} ({report.rule}, n = {report.n_scored} of {report.n})"


def _threshold(wanted: dict[str, Any]) -> str:
    surely = " surely" if wanted["surely"] else ""
    parts = [] if wanted["at_least"] is None else [f"at least {wanted['at_least']:g}{surely}"]
    parts += [f"beats {name}" for name in wanted["beats"]]
    parts += [] if wanted["not_worse_than"] is None else ["not worse than before"]
    return f", asked: {', '.join(parts)}"


@pytest.fixture
def reward_gate(request: pytest.FixtureRequest) -> Iterator[RewardGate]:
    """Call it with a reward and data to judge them and fail below a threshold; see `RewardGate`."""
    gate = RewardGate(request)
    yield gate
    if gate.marked and not gate.asked:
        pytest.fail(
            f"the test is marked {NAME} and never called it; write {NAME}().", pytrace=False
        )
