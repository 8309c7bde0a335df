"""The quality gate of the command line, JUnit and pytest: the limits a run has to reach, and which of
them it misses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rm_gallery.core.stats.uncertainty import NO_INTERVAL
from rm_gallery.core.utils.errors import ConfigError, DataError
from rm_gallery.core.utils.shown import percent, show, told_apart
from rm_gallery.gallery.benchmarks.lead import (
    OWN_UNIT,
    by_cause,
    change_in_unit,
    corrected_figure,
    count_of,
    ends_of,
    in_unit,
    lead_figure,
    missing_of,
)
from rm_gallery.report.run_figures import single_line
from rm_gallery.study.compare import check_same, compare, left_out
from rm_gallery.study.runs import OpenRun, open_run, run_folder
from rm_gallery.study.source import Data


@dataclass(frozen=True)
class QualityGate:
    """What a run has to reach.

    Attributes:
        fail_under: lowest score that passes, a share from 0 to 1 or, with `own_unit`, in the
            reward's own unit; None for any.
        max_failures: failed samples that still pass.
        max_unscored: unscored samples that still pass; by default none where a figure is held to
            something, else any number.
        reference: the run that it must not be shown to be worse than.
        beats: what the score has to exceed, by name (longest, shortest, chance).
        surely: whether the lower end of the 95 % interval has to reach `fail_under`, too.
        own_unit: whether the figure is no share.
    """

    fail_under: float | None = None
    max_failures: int = 0
    max_unscored: int | None = None
    reference: OpenRun | None = None
    beats: Sequence[str] = ()
    surely: bool = False
    own_unit: bool = False

    def __post_init__(self) -> None:
        least = self.fail_under
        if least is not None and not (
            math.isfinite(least) if self.own_unit else 0.0 <= least <= 1.0
        ):
            unit = "a number in the reward's own unit" if self.own_unit else "a share from 0 to 1"
            raise ConfigError(f"--fail-under is {least!r}; the lowest score that passes is {unit}.")
        if self.reference is not None:
            self._check_reference(self.reference)

    def _check_reference(self, reference: OpenRun) -> None:
        """Raise ConfigError for a reference that drops more rows than a run may: counted as right,
        they would fail whatever follows.
        """
        figures = reference.report
        for n, allowed, option, key in (
            (count_of(figures, "n_failed"), self.max_failures, "--max-failures ", "max_failures"),
            (
                _unscored(figures),
                self.unscored_allowed,
                "--config result.max_unscored=",
                "max_unscored",
            ),
        ):
            if n > allowed:
                raise ConfigError(
                    f"{reference.folder} cannot be compared with: it has no score for {n:,} of its "
                    f"{count_of(figures, 'n'):,} rows{_causes(figures)}, and counted as right they "
                    "would fail any run that follows it. Run the command that made it once more to "
                    "judge them, name another run, or allow so "
                    f"many with {option}{n} ({key}={n})."
                )

    @property
    def unscored_allowed(self) -> float:
        """Unscored samples that still pass."""
        if self.max_unscored is not None:
            return self.max_unscored
        held = self.fail_under is not None or self.reference is not None or self.beats
        return 0 if held else math.inf

    def missed(
        self,
        figures: Mapping[str, Any],
        *,
        finished: bool = True,
        run: OpenRun | None = None,
        say: Callable[[str], object] | None = None,
    ) -> Iterator[tuple[str, str]]:
        """(part, why) of everything that does not pass; parts are `score`, `failed`, `unscored`,
        `worse` and `finished`.

        `figures` are those of a report, saved or as `Report.to_dict` gives them; where labels of
        people correct the figure, the corrected one is held. `run` is its folder, for a gate with a
        reference. `say` hears which figure was held where that is a corrected one, and how the run
        compares where it passes.
        """
        score = figures.get("score")
        if score is None:
            yield "score", "no sample could be scored, so there is no score"
        else:
            yield from (("score", why) for why in self._score_misses(figures))
        failed, unscored = count_of(figures, "n_failed"), _unscored(figures)
        if failed > self.max_failures:
            samples = "1 sample" if failed == 1 else f"{failed:,} samples"
            yield "failed", f"{samples} failed; {self.max_failures:,} may"
        if unscored > self.unscored_allowed:
            samples = "1 sample is" if unscored == 1 else f"{unscored:,} samples are"
            yield "unscored", f"{samples} unscored; {self.unscored_allowed:,} may be"
        held = self.fail_under is not None or self.beats
        if say is not None and held and (people := corrected_figure(figures)):
            say(
                f"held to the limits: {_figure_in_words(people, figures)}, and not the judge alone "
                f"({in_unit(figures, score)})"
            )
        if self.reference is not None and run is not None and score is not None:
            worse, sentence = held_against(run, self.reference)
            if worse:
                yield "worse", sentence
            elif say is not None:
                say(sentence)
        if not finished:
            stopped = figures.get("stopped") or "the run is not finished; continue it"
            yield "finished", single_line(str(stopped))

    def _score_misses(self, figures: Mapping[str, Any]) -> Iterator[str]:
        if self.fail_under is not None and (why := under(figures, self.fail_under, self.surely)):
            yield why
        baselines = {**(figures.get("baselines") or {}), "chance": figures.get("chance")}
        for name in self.beats:
            level = baselines.get(name)
            if level is None:
                yield f"there is no baseline '{name}' for {figures.get('benchmark') or 'these data'} to be beaten"
            elif why := under(figures, level, strict=True):
                yield f"{why}, which is the baseline '{name}'"

    @contextmanager
    def keeping(self, run_dir: str | None) -> Iterator[str | None]:
        """The run folder to judge into: the one given, or where runs are compared one that is gone
        in the end.
        """
        self.check_other(run_dir, "--out is the run of --fail-if-worse-than")
        with run_folder(run_dir, self.reference is not None) as folder:
            yield folder

    def check_other(self, run_dir: str | Path | None, what: str) -> None:
        """Raise ConfigError, which begins with `what`, where the folder is that of the reference."""
        if (
            self.reference is not None
            and run_dir
            and Path(run_dir).resolve() == self.reference.folder.resolve()
        ):
            raise ConfigError(f"{what}; a run cannot be held against itself.")


def under(
    figures: Mapping[str, Any], least: float, surely: bool = False, strict: bool = False
) -> str | None:
    """Why a figure does not reach the least that passes, or None; where scores are missing its
    worst case decides.

    Where labels of people correct the figure, the corrected one and its interval are held: a gate
    once passed on the figure of a judge that people had refuted.

    Args:
        figures: those of a report with a score.
        least: the limit, in the figure's unit.
        surely: hold the lower end of the 95 % interval to it, moved down as far as the worst case
            lies below the score.
        strict: whether it has to lie above the limit.
    """
    judge_score, people, missing = figures["score"], corrected_figure(figures), missing_of(figures)
    lead = people or figures
    score, ci95 = lead["score"], lead.get("ci95")
    # labels move the figure by as much, whatever the missing rows would have got
    worst, best = (end + (score - judge_score) for end in ends_of(figures))
    name = _by_labels(people, "the score")
    if surely and not ci95:  # rows of one prompt say nothing of others
        return f"{name} has {NO_INTERVAL}, so it may lie below what passes"
    lower = worst - (score - ci95[0]) if surely and ci95 else worst
    if lower > least or (lower == least and not strict):
        return None
    shown, digits = (show, 4) if figures.get("rule") in OWN_UNIT else (percent, 1)
    known = next((value for value in (score, worst, lower) if value < least), least)
    sentence, at_worst = f"{name} {shown(score, digits)}", shown(worst, digits)
    figure, limit = (
        told_apart(known, least, shown, digits)
        if math.isfinite(known)
        else ("", shown(least, digits))
    )
    if known == least:
        low = "" if worst == score else f" is {at_worst} at worst and"
        sentence += f"{low} does not exceed {shown(least, digits)}"
    elif known == score:
        chance = ci95 is not None and ci95[1] >= least
        word = "holds the limit, so chance may explain it" if chance else "is below it, too"
        sentence = f"{name} {figure} is below {limit}"
        sentence += "" if ci95 is None else f"; its 95 % interval {word}"
    elif known == lower and known != worst:
        sentence += f" has an interval from {figure}, below {limit}"
    else:
        low = f"is {figure} at worst" if figure else "has no lower end known"
        sentence += f" {low}, below {limit}"
    if people is not None:
        sentence += f"; the judge alone says {shown(judge_score, digits)}"
    if missing:
        n = count_of(figures, "n")
        sentence += f"; {missing:,} of {n:,} are missing{_causes(figures)}"
        if math.isfinite(worst) and math.isfinite(best):
            sentence += f", so it lies from {at_worst} to {shown(best, digits)}"
    return sentence


def _causes(figures: Mapping[str, Any]) -> str:
    causes = by_cause(figures.get("missing") or {})
    return f" ({causes})" if causes else ""


def _unscored(figures: Mapping[str, Any]) -> int:
    """Unscored samples that the rule asks about."""
    unscored, n, scored = (count_of(figures, name) for name in ("n_unscored", "n", "n_scored"))
    return unscored - max(0, n - scored - missing_of(figures))


def check_fits(reference: OpenRun, data: Data) -> None:
    """Raise ConfigError, before anything is paid, where the data or the rule are not those of the
    run compared with.
    """
    rule = {"benchmark": data.benchmark.name, "rule": data.benchmark.protocol}
    check_same(reference, OpenRun(Path("this run"), {**rule, **data.identity()}, {}, {}))


def held_against(run: OpenRun, reference: OpenRun) -> tuple[bool, str]:
    """Whether a run is worse than the reference, and by how much it differs, what is missing
    counted at its worst.

    It is worse when the 95 % interval of the paired difference lies wholly below 0: a score that is
    lower by chance does not count, and a large drop on few samples may not either. Samples without
    a score in this run count as wrong, those without one in the reference as right there. Where
    labels of people correct the figure of a run, that one is compared, with an interval as of two
    independent figures, which is wider than that of the same rows.

    Raises:
        ConfigError: runs that cannot be compared, or without a sample scored in both.
    """
    if corrected_figure(run.report) or corrected_figure(reference.report):
        check_same(reference, run)
        return _held_corrected(run, reference)
    comparison = compare(reference, run, examples=0)[0]
    whole, name, missing = comparison.whole, reference.folder.name, left_out(comparison)
    difference, interval, n = whole.paired.difference or 0.0, whole.paired.interval, whole.paired.n
    if interval is None:
        raise ConfigError(f"{run.folder.name} and {name} have no sample scored in both.")
    scale, start, unit = (1, 4, "") if run.report.get("rule") in OWN_UNIT else (100, 1, " points")
    points = change_in_unit(run.report, difference)
    low, high = (scale * end for end in whole.at_worst or interval)
    if high < 0.0:
        worst = difference if whole.bounds is None else whole.bounds.low
        least, _ = told_apart(-high, 0.0, lambda points, digits: f"{points:.{digits}f}", start)
        digits = len(least.partition(".")[2])
        seen = f"; it is {points} where both have a score, {missing}" if missing else ""
        return True, (
            f"worse than {name} by {-scale * worst:.{digits}f}"
            f"{unit}{' at worst' if missing else ''} (95 % interval {least} to {-low:.{digits}f}, "
            f"n={n}{seen})"
        )
    ends = " to ".join(change_in_unit(run.report, end) for end in interval)
    alone = comparison.n_first_only
    other = f", {alone} samples of {name} not compared" if alone else ""
    return False, (
        f"not shown to be worse than {name}: {points}{unit} (95 % interval {ends}, "
        f"n={n}{other}{f', {missing}' if missing else ''})"
    )


def _held_corrected(run: OpenRun, reference: OpenRun) -> tuple[bool, str]:
    """`held_against` by the figures that lead, of which at least one is corrected by labels of
    people.
    """
    pair = []
    for one, side in ((run, 0), (reference, 1)):
        figures, lead = one.report, lead_figure(one.report)
        if lead.get("score") is None or not lead.get("ci95"):
            raise ConfigError(f"{one.folder.name} has no figure with an interval to be compared.")
        words = _figure_in_words(corrected_figure(figures), lead)
        pair.append(
            (lead["score"], *lead["ci95"], ends_of(figures)[side] - figures["score"], words)
        )
    (own, own_low, own_high, down, own_words), (other, low, high, up, words) = pair
    difference, name = own - other, reference.folder.name
    below, above = math.hypot(own - own_low, high - other), math.hypot(own_high - own, other - low)
    ends = " to ".join(
        in_unit(run.report, value) for value in (difference - below, difference + above)
    )
    worse = (own + down) - (other + up) + above < 0.0
    if worse and (lost := missing_of(run.report) + missing_of(reference.report)):
        ends += f", and at worst lower for {lost:,} rows without a score"
    return worse, (
        f"{'' if worse else 'not shown to be '}worse than {name}: {own_words}, against {words} of "
        f"{name} (95 % interval of the difference {ends})"
    )


def _figure_in_words(people: Mapping[str, Any] | None, figures: Mapping[str, Any]) -> str:
    """The figure that is held, with what corrected it."""
    by = _by_labels(people, "the score of the judge")
    return f"{by}, {in_unit(figures, (people or figures)['score'])}"


def _by_labels(people: Mapping[str, Any] | None, alone: str) -> str:
    """What the figure is called, with the labels that correct it or `alone`."""
    if people is None:
        return alone
    return f"the score corrected by {people['n_labelled']:,} labels of people"


def reference_run(path: str | Path, option: str = "--fail-if-worse-than") -> OpenRun:
    """The run that another is to be held against; ConfigError, before anything is paid, where there
    is none.
    """
    try:
        run = open_run(path)
    except DataError as error:
        raise ConfigError(f"{option}: {error}") from None
    if next(run.samples(), None) is None:
        raise ConfigError(
            f"{option}: {path} holds no samples; make it with eval or bench and --out RUN."
        )
    if not run.finished:
        why = str(run.report.get("stopped") or "there is no report").partition(". ")[0]
        raise ConfigError(
            f"{option}: {path} is not finished ({why}); finish it first with the command that made it."
        )
    return run
