"""Scores that a judge has given already: two versions of it held against each other, and what a
pilot's tell for a plan.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from rm_gallery.core.data.labels import VALUE, value_of
from rm_gallery.core.stats import np
from rm_gallery.core.stats.changes import SAME
from rm_gallery.core.stats.consistency import Drift, drift
from rm_gallery.core.stats.intervals import Interval
from rm_gallery.core.stats.planning import correlation_within
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.gallery.benchmarks.figures import plain
from rm_gallery.study.runs import SAMPLES, open_run
from rm_gallery.study.sheet import Sheet, cell_of, filled_ids, id_text, labels_of, open_sheet

_ASKED = ("prompt", "question", "input")
"""Columns that say what was asked: anchors with the same text belong together."""
_TEXTS = (*_ASKED, "answer", "response", "output", "completion")
"""Columns that say what an anchor is; where both files have one, it must be the same."""
FEWEST = 10
"""Rows of a pilot at least."""


class Anchor(NamedTuple):
    """What one run of a judge said about an anchor."""

    score: float | None = None
    """Higher is better; None where the judge gave none."""
    texts: Mapping[str, str] = {}
    """What it is, by column, as far as the file says."""
    label: float | None = None
    """What people say."""
    credit: float | None = None
    """How far the judge agreed with the labels of its run, 0..1."""
    cluster: str | None = None
    """What it belongs to."""


class Anchors(NamedTuple):
    """What one run of a judge, which comes from `name`, said about its anchors, by their names."""

    name: str
    by_name: Mapping[str, Anchor]
    notes: tuple[str, ...] = ()
    """What a reader has to know of the run."""

    def anchor(self, name: str) -> Anchor:
        """What was said about one; of one that is not there nothing."""
        return self.by_name.get(name, Anchor())


def read_anchors(
    path: str | Path,
    *,
    id: str = "id",
    score: str = "score",
    labels: str | None = None,
    label_column: str | None = None,
    cluster: str | None = None,
    optional: bool = False,
) -> Anchors:
    """Read a run folder, or a table with one row per anchor.

    Args:
        path: folder of a run, or a csv, xlsx, parquet or jsonl file.
        id: the table's column that names anchors; with columns `candidate` or `order` these are
            part of the name.
        score: its column of scores or verdicts (numbers, or words such as pass and fail).
        labels: its column of labels, or a file of them by id.
        label_column: the label file's column, where it has several.
        cluster: its column that says which anchors belong together; by default those with the same
            prompt do.
        optional: whether the columns of labels and clusters may be missing, because another file
            has them.

    Raises:
        ConfigError, DataError: there is no such file or column, an id is blank or doubled, a score
            cannot be read.
    """
    if (Path(path) / SAMPLES).is_file():
        return _of_run(Path(path))
    if Path(path).is_dir():
        raise ConfigError(
            f"{path} is a folder without {SAMPLES}; give the folder of a run, or a file of scores"
        )
    sheet = open_sheet(str(path))
    names = _names(sheet, id)
    scores = sheet.values(score, "--score", value_of, VALUE)
    shared = [column for column in _TEXTS if column in sheet.columns and column != score]
    people: Sequence[float | None] = [None] * len(names)
    if labels is not None and (labels in sheet.columns or not optional):
        expected = "a number or a verdict"
        people = labels_of(
            sheet, labels, value_of, expected, id_column=id, label_column=label_column
        )
    # candidates of one prompt are one witness: as independent ones they made any judge drift
    together = cluster or next((name for name in _ASKED if name in shared), None)
    if cluster is not None and (cluster in sheet.columns or not optional):
        sheet.column(cluster, "--cluster")
    anchors = {}
    for name, row, value, label in zip(names, sheet.rows, scores, people, strict=True):
        group = None if together is None else cell_of(row, together)
        anchors[name] = Anchor(
            value,
            {column: str(row.get(column)) for column in shared},
            label,
            cluster=None if group is None else " ".join(str(group).split()),
        )
    return Anchors(str(path), anchors)


def compare_versions(
    old: Anchors,
    new: Anchors,
    *,
    old_again: Sequence[Anchors] = (),
    new_again: Sequence[Anchors] = (),
    bounds: tuple[float, float] | None = None,
    tolerance: float = 0.0,
    confidence: float = 0.95,
    seed: int = 0,
) -> Drift:
    """Join the runs by the names of their anchors and say what has changed.

    Without `bounds` scores within 0..1 are taken to be on that scale, and others on one without
    ends.

    Raises:
        ConfigError: the runs have other anchors, or other texts or labels for the same anchors.
    """
    runs = [old, new, *old_again, *new_again]
    for other in runs[1:]:
        _same_texts(old, other)
    if not old.by_name.keys() & new.by_name.keys():
        raise ConfigError(
            f"{old.name} and {new.name} have no anchor in common; compare runs on the same anchors"
        )
    names = list({**old.by_name, **new.by_name})
    scores = [[run.anchor(name).score for name in names] for run in runs]
    if bounds is None:
        known = [score for column in scores for score in column if score is not None]
        within = all(0.0 <= score <= 1.0 for score in known)
        bounds = (0.0, 1.0) if within else (-math.inf, math.inf)
    both = [(old.anchor(name), new.anchor(name)) for name in names]
    labels = _where_known(
        now.label if before.label is None else before.label for before, now in both
    )
    first, second = (_where_known(one.credit for one in side) for side in zip(*both, strict=True))
    n_old = 2 + len(old_again)
    change = drift(
        *scores[:2],
        labels=labels,
        credits=(first, second) if first and second and not labels else None,
        old_again=scores[2:n_old],
        new_again=scores[n_old:],
        clusters=[
            before.cluster or now.cluster or name
            for (before, now), name in zip(both, names, strict=True)
        ],
        bounds=bounds,
        tolerance=tolerance,
        confidence=confidence,
        seed=seed,
    )
    notes = dict.fromkeys(note for run in runs for note in run.notes)
    return replace(change, notes=(*change.notes, *notes))


def _where_known(values: Iterable[float | None]) -> list[float | None] | None:
    """The values of all anchors; None where there is none at all."""
    known = list(values)
    return known if any(value is not None for value in known) else None


def drift_dict(comparison: Drift) -> dict[str, Any]:
    """The comparison as plain JSON types."""
    own = vars(comparison)
    changes = {name: own[name] and own[name]._asdict() for name in ("shift", "agreement")}
    return dict(plain({**own, **changes}))


def drift_lines(comparison: Drift, old: str, new: str) -> list[str]:
    """The comparison in words, the verdict first."""
    noise = comparison.noise
    repeats = "" if noise is None else f"; repeats of one version differ on {noise:.1%}"
    known = {**vars(comparison), "old": old, "new": new, "repeats": repeats}
    known["flip_ends"] = _ends(comparison.flip_ci95, ".1%") + _worst_to_best(
        comparison.flip_bounds, ".1%"
    )
    for name, form in (("shift", "+.4g"), ("agreement", "+.1%")):
        if (change := known[name]) is not None:
            p = "" if change.p_value is None else f", p = {change.p_value:.3g}"
            limits = _worst_to_best(change.bounds, form)
            known[f"{name}_sure"] = f"{_ends(change.ci95, form)}{p}{limits}"
    where = " where both versions gave a score" if comparison.n_missing else ""
    return [
        "drift: " + "; ".join(comparison.findings)
        if comparison.findings
        else f"no drift found{where}",
        *(text.format_map(known) for name, text in _SENTENCES if known[name] is not None),
        *comparison.notes,
    ]


def _ends(interval: Interval | None, form: str) -> str:
    """An interval behind its figure; nothing where none is known."""
    return "" if interval is None else f" [{interval.low:{form}}, {interval.high:{form}}]"


def _worst_to_best(bounds: Interval | None, form: str) -> str:
    """What lies between worst and best; nothing where nothing is missing or the scale has no ends."""
    if bounds is None or bounds.high - bounds.low < SAME:
        return ""
    return (
        f" ({bounds.low:{form}} to {bounds.high:{form}} with what is missing at worst and at best)"
    )


_SENTENCES = (
    ("n", "old {old}, new {new}: {n} anchors scored by both, {n_missing} by one or neither"),
    (
        "shift",
        "mean score {shift.old:.4g} to {shift.new:.4g}: change {shift.change:+.4g}{shift_sure}",
    ),
    (
        "flip_rate",
        "changed on {flip_rate:.1%} of the anchors{flip_ends}{repeats}",
    ),
    ("excess_p", "farther apart than repeats by {excess:+.3g}, p = {excess_p:.3g}"),
    (
        "agreement",
        "agreement with labels {agreement.old:.1%} to {agreement.new:.1%}: change "
        "{agreement.change:+.1%}{agreement_sure}, n = {agreement.n}",
    ),
)
"""What is said of each figure of a `Drift` that is known."""


def _of_run(folder: Path) -> Anchors:
    anchors, times = dict[str, Anchor](), Counter[str]()
    run = open_run(folder)
    for row in run.samples():
        times[row.id] += 1
        name = row.id if times[row.id] == 1 else f"{row.id} ({times[row.id]})"
        texts = {"conversation": row.prompt, "answers": "\0".join(row.answers)}
        scores = {str(place): score for place, score in enumerate(row.scores)}
        if all(score is None for score in row.scores):
            for first, second, verdict in row.verdicts:
                win = None if verdict is None else (verdict + 1) / 2
                scores[f"{first}-{second}"] = win
        credit = run.agreement(row)
        for part, score in scores.items():
            anchors[f"{name}/{part}"] = Anchor(score, texts, None, credit, row.cluster or row.id)
            credit = None  # that of the row counts once
    if not anchors:
        raise ConfigError(f"{folder}: no sample of this run has a score or a verdict")
    return Anchors(str(folder), anchors, tuple(run.caveats()))


def _names(sheet: Sheet, column: str) -> list[str]:
    parts = [filled_ids(sheet, column, "anchor needs its name")]
    for more in ("candidate", "order"):
        if more in sheet.columns and more != column:
            parts.append(sheet.column(more, more))
    names = [
        "/".join(id_text(cell) for cell in cells if cell is not None)
        for cells in zip(*parts, strict=True)
    ]
    doubled, times = Counter(names).most_common(1)[0]
    if times > 1:
        raise ConfigError(
            f"{sheet.name}: anchor {doubled[:40]!r} has several rows; give each run a file of its own"
        )
    return names


def _same_texts(first: Anchors, other: Anchors) -> None:
    moved, relabelled = [], []
    for name, anchor in first.by_name.items():
        again = other.anchor(name)
        if any(again.texts.get(column, text) != text for column, text in anchor.texts.items()):
            moved.append(name)
        if len({anchor.label, again.label} - {None}) > 1:
            relabelled.append(name)
    for names, other_what, hint in (
        (moved, "other texts", "that is another question, not another judge"),
        (
            relabelled,
            "another label",
            "the labels changed, not the judge; compare under one set of labels",
        ),
    ):
        if names:
            raise ConfigError(
                f"{len(names)} anchors have {other_what} in {other.name} than in {first.name}, such "
                f"as {names[0][:40]!r}: {hint}"
            )


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
        ConfigError, DataError: there is no such file or column, a cell cannot be read, or too few
            rows are filled.
    """
    if score is None and label is None:
        raise ConfigError(
            "--pilot needs to know its columns: --score of judge scores, --label of labels, or both"
        )
    sheet = open_sheet(str(path))
    columns = np.array(
        [
            sheet.values(name, role, value_of, VALUE)
            for role, name in (("--score", score), ("--label", label))
            if name is not None
        ],
        dtype=np.float64,
    )
    known = np.flatnonzero(~np.isnan(columns).any(axis=0))
    n = len(known)
    if n < FEWEST:
        raise ConfigError(
            f"{path}: {n} rows have what the plan is made from; a pilot needs at least {FEWEST}"
        )
    judge, values = columns[0][known], columns[-1][known]
    sd = float(values.std(ddof=1))
    if sd == 0.0:
        raise ConfigError(
            f"{path}: all {n} values are equal, which says nothing about their spread; use --rate "
            f"or --sd"
        )
    pilot = Pilot(n, sd)
    if len(columns) == 2:
        r = float(np.corrcoef(judge, values)[0, 1]) if judge.std() > 0.0 else 0.0
        pilot = replace(pilot, correlation=r)
    if cluster is None:
        return pilot
    cells = list(sheet.column(cluster, "--cluster"))
    names = [f"row {i}" if cells[i] is None else str(cells[i]) for i in known.tolist()]
    per_cluster = n / len(set(names))
    if per_cluster == 1.0:
        return pilot
    within = correlation_within(values.tolist(), names)
    return replace(pilot, rows_per_cluster=per_cluster, icc=within)
