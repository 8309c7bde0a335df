"""People label rows of a run blind: which row comes next, what was said, and what that makes of the
judge's figure.
"""

from __future__ import annotations

import csv
import hashlib
import io
import re
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timezone

from rm_gallery.core.model.transport import Json
from rm_gallery.core.stats import Floats, np
from rm_gallery.core.stats.agreement import label_kappa_estimate
from rm_gallery.core.stats.corrected import Corrected, corrected_mean
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.core.utils.file import (
    AppendedFile,
    from_line,
    read_lines,
    seeded_positions,
    to_line,
    write_whole,
)
from rm_gallery.gallery.benchmarks.lead import COMPARED
from rm_gallery.serve.view_index import RunIndex
from rm_gallery.study.runs import OpenRun

REVIEW = "review.jsonl"
QUEUE = 200
"""Rows that are drawn for labelling, by default."""
VALUES = {"a": 1.0, "tie": 0.5, "b": 0.0}
"""What a verdict is worth to the answer shown first."""
_NAME = re.compile(r"[\w-]{1,40}\Z")


@dataclass(frozen=True)
class RowLabel:
    """What one annotator said of one row.

    Attributes:
        place: of the row in the run.
        label: 1 for the row's first answer (or a good one), 0 for its second (or a bad one), 0.5
            between; None for a skipped row.
    """

    place: int
    label: float | None


class ReviewQueue:
    """The rows of a run that people label, the same for every annotator, and the file in which
    their labels are kept.

    The rows are a seeded plain draw, shown in a seeded order. Which of two answers stands first is
    drawn per annotator and row. Every verdict, skip and undo is a line of review.jsonl, which only
    ever grows; what stands in the end is written to labels-ANNOTATOR.csv (id, label), which
    `--labels` of `winrate` and `score` reads.
    """

    def __init__(self, run: OpenRun, index: RunIndex, *, size: int = QUEUE, seed: int = 0) -> None:
        self._run, self._index, self._seed = run, index, seed
        self._lock = threading.Lock()
        answers = index.answers
        there = answers[answers > 0]
        self.pairs = len(there) > 0 and int(np.median(there)) >= 2
        """Whether two answers are compared; else each answer is called good or bad."""
        fit = np.flatnonzero(answers >= (2 if self.pairs else 1))
        drawn = [int(fit[place]) for place in seeded_positions(len(fit), size, seed)]
        self.places = sorted(
            drawn, key=lambda place: self._hash("order", index.ids[place], str(place))
        )
        self.probability = len(drawn) / len(fit) if len(fit) else 0.0
        """With which a row was drawn."""

    def _hash(self, *parts: str) -> bytes:
        return hashlib.sha256(
            "\0".join((str(self._seed), *parts)).encode("utf-8", "replace")
        ).digest()

    def swapped(self, annotator: str, place: int) -> bool:
        """Whether an annotator sees the row's second answer first."""
        return self.pairs and self._hash("side", annotator, self._index.ids[place])[0] % 2 == 1

    def labels(self) -> dict[str, list[RowLabel]]:
        """By annotator, what stands: undone verdicts are left out; in the order given."""
        labels: dict[str, list[RowLabel]] = {}
        for line in read_lines(self._run.folder / REVIEW, self._run.root):
            entry = from_line(line) or {}
            name, place = str(entry.get("annotator")), self._place_of(entry)
            stands = labels.setdefault(name, [])
            if entry.get("verdict") == "undo":
                del stands[-1:]
            elif place is not None:
                stands.append(RowLabel(place, entry.get("label")))
        return labels

    def _place_of(self, entry: Json) -> int | None:
        """Where the row stands now: rows that are equal share a key, and a run that was continued
        may have another order.
        """
        place, ids = entry.get("row"), self._index.ids
        if isinstance(place, int) and 0 <= place < len(ids) and ids[place] == entry.get("id"):
            return place
        return self._index.keys.get(str(entry.get("key")))

    def next(self, annotator: str) -> int | None:
        """The row to be labelled next; None when all are."""
        done = {label.place for label in self.labels().get(annotator, ())}
        return next((place for place in self.places if place not in done), None)

    def say(self, annotator: str, place: int, verdict: str) -> None:
        """Keep a verdict: a, b or tie of the answers as shown, skip, or undo for the last one.

        A row that has one already, as after a key pressed twice, is left as it is.

        Raises:
            ConfigError: the annotator's name or the verdict is none, or the row is not in the
                queue.
        """
        check_annotator(annotator)
        if verdict not in (*VALUES, "skip", "undo"):
            raise ConfigError(f"the verdict is {verdict!r:.40}; give a, b, tie, skip or undo.")
        with self._lock:
            stands = self.labels().get(annotator, [])
            if verdict == "undo":
                if not stands:
                    return
                place = stands[-1].place
            elif place not in self.places:
                raise ConfigError(
                    f"row {place} is not among the {len(self.places)} drawn for labelling; go on "
                    f"from the queue."
                )
            elif any(label.place == place for label in stands):
                return
            self._append(annotator, place, verdict)
            self._write_labels(annotator)

    def _append(self, annotator: str, place: int, verdict: str) -> None:
        row = self._index.row(place)
        if row is None:
            raise ConfigError(
                f"row {place} is gone; the run was written anew. Open the queue again."
            )
        swapped, value = self.swapped(annotator, place), VALUES.get(verdict)
        entry = {
            "annotator": annotator,
            "id": row.id,
            "key": row.key,
            "row": place,
            "verdict": verdict,
            "swapped": swapped,
            "label": 1.0 - value if swapped and value is not None else value,
            "probability": self.probability,
            "seed": self._seed,
            "at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        }
        path = self._run.folder / REVIEW
        try:
            with closing(AppendedFile(path, 0o644)) as file:
                file.write(to_line(entry))
        except OSError as error:
            raise ConfigError(
                f"{path} cannot be written: {error.strerror or error}; mend that, then label on."
            ) from error

    def _write_labels(self, annotator: str) -> None:
        text = io.StringIO()
        rows = [["id", "label"]]
        for one in self.labels().get(annotator, []):
            if one.label is not None:
                rows.append([self._index.ids[one.place], f"{one.label:g}"])
        csv.writer(text, lineterminator="\n").writerows(rows)
        write_whole(
            self._run.folder / f"labels-{annotator}.csv", text.getvalue().encode("utf-8", "replace")
        )

    def judged(self) -> Floats:
        """What the judge says of every row, as people say it: the win of the first answer, or the
        score of the only one.
        """
        if not self.pairs:
            return self._index.scores
        return self._index.credits if self._run.report.get("rule") == COMPARED else self._index.wins

    def corrected(self, annotator: str) -> Corrected:
        """The mean label of all rows of the run, from one annotator's labels and the judge's
        verdict on all.
        """
        labels = np.full(len(self._index), np.nan)
        for one in self.labels().get(annotator, ()):
            labels[one.place] = np.nan if one.label is None else one.label
        return corrected_mean(self.judged(), labels, clusters=self._index.clusters)

    def agreements(self, annotator: str) -> Iterator[Json]:
        """Cohen's kappa of this annotator with each other one, over the rows that both labelled."""
        labels = {
            name: {one.place: one.label for one in stands} for name, stands in self.labels().items()
        }
        mine = labels.pop(annotator, {})
        for name, theirs in sorted(labels.items()):
            both = [p for p in self.places if mine.get(p) is not None and theirs.get(p) is not None]
            if both:
                kappa = label_kappa_estimate([mine[p] for p in both], [theirs[p] for p in both])
                yield {
                    "name": name,
                    "n": len(both),
                    "kappa": kappa and kappa.estimate,
                    "ci95": kappa and kappa.interval(),
                }


def check_annotator(name: str) -> str:
    """The name; ConfigError where it is none that a file can be named by."""
    if not _NAME.match(name):
        raise ConfigError(
            f"the annotator is {name!r:.60}; give a name of letters, digits, _ and -, 40 at most."
        )
    return name
