"""An annotated copy of a table: its file with scores, reasons and causes in added columns."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from rm_gallery.core.data.load.readers import ReadOptions, RowSource, file_sources
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.utils.errors import ConfigError, DataError
from rm_gallery.core.utils.file import from_line
from rm_gallery.core.utils.shown import one_line
from rm_gallery.report.copies import Added, check_copy, write_copy
from rm_gallery.study.runs import SAMPLES, OpenRun, SampleRow, open_run, sound
from rm_gallery.study.source import file_sha256


@dataclass
class Annotation:
    """Where an annotated copy goes and what it holds; checked when made, before anything is judged.

    Attributes:
        target: the file to write, of the table's own form.
        data: the table's file.
        reading: how it is read.
        answers: its columns of answers; none where graders judge whole rows.
        reward: what judged them.
        compares: whether the answers were compared, so that a row has a winner.
        limit: whether rows were drawn.
        bad_rows: whether rows that cannot be read were passed over.
        other_files: further files that the command reads; the copy may not overwrite them.

    Raises:
        ConfigError: the table is no single file, or `target` is the table itself or has another
            form.
    """

    target: Path
    data: str
    reading: Mapping[str, Any] = field(default_factory=dict)
    answers: Sequence[str] = ()
    reward: BaseReward | None = None
    compares: bool = False
    limit: bool = False
    bad_rows: bool = False
    other_files: Sequence[str | Path | None] = ()

    def __post_init__(self) -> None:
        path = Path(self.data).expanduser()
        if not path.is_file():
            raise ConfigError(
                f"--annotate writes a copy of one file, and {self.data} is none; use --export."
            )
        self._source: RowSource = file_sources(path, ReadOptions(**self.reading))[0]
        check_copy(self._source, path, self.target)
        if self.target.exists() and any(
            self.target.samefile(one) for one in self.other_files if one and Path(one).exists()
        ):
            raise ConfigError(
                f"--annotate is {self.target}, which this command reads as well; name another file."
            )
        self._path, self._hash = path, file_sha256(path)

    def write(self, folder: str | Path) -> None:
        """Write the copy with what the run in `folder` says.

        Raises:
            DataError: the table was changed meanwhile, so that rows may have moved; nothing is
                written.
        """
        run = open_run(folder)
        with sound(run):
            if file_sha256(self._path) != self._hash:
                raise DataError(
                    f"{self._path} was changed while it was judged, so that {self.target} was not "
                    f"written; run again."
                )
            with (run.folder / SAMPLES).open("rb") as samples:
                results = _RowResults(self, run, samples, self._left_out(run))
                write_copy(self._source, self.target, Added(results.columns(), results.cells))

    def _left_out(self, run: OpenRun) -> dict[int, str | None]:
        """Rows of the file that were not judged or could not be read, and why that was, by their
        number.
        """
        if not (self.bad_rows or self.limit or run.report.get("n_stopped")):
            return {}
        return {
            where.number: str(row) if isinstance(row, DataError) else None
            for where, row in self._source.rows()
        }


class _RowResults:
    """Results of a run by row number; only file offsets are in memory, texts stay in the folder."""

    def __init__(
        self, note: Annotation, run: OpenRun, samples: BinaryIO, left_out: Mapping[int, str | None]
    ) -> None:
        self._note, self._file, self._left_out = note, samples, left_out
        extra, stopped = run.report.get("extra") or {}, run.report.get("stopped")
        self._graders: dict[str, Any] = (
            {} if note.answers else dict(extra.get("distributions") or {})
        )
        whys = {
            "not drawn by --limit": note.limit,
            "settled before its turn": (extra.get("until_decided") or {}).get("decided"),
            one_line(str(stopped)): stopped,
        }
        self._why = " or ".join(why for why, there in whys.items() if there) or "not judged"
        self._places, at = array("q"), 0
        for line in samples:
            number = ((from_line(line) or {}).get("metadata") or {}).get("number")
            if isinstance(number, int):
                self._places.extend([-1] * (number + 1 - len(self._places)))
                self._places[number] = at
            at += len(line)
        kind = note.reward and note.reward.kind
        self._flips = kind == "pairwise" and note.compares
        self._ranks = kind == "listwise" and len(note.answers) > 1
        self._turn = -1.0 if note.reward is not None and not note.reward.higher_is_better else 1.0

    def columns(self) -> dict[str, type]:
        """The added columns and what they hold."""
        answers, graders = self._note.answers, self._graders
        texts = [*(["winner"] if self._note.compares else []), *(["flip"] if self._flips else [])]
        numbers = [self._score_column(name) for name in (*answers, *graders)]
        numbers += [f"rank {name}" for name in answers] if self._ranks else []
        about = [f"verdict {name}" for name, about in graders.items() if "passed" in about]
        about += ["reason", "cause", "message"]
        return {
            **dict.fromkeys(texts, str),
            **dict.fromkeys(numbers, float),
            **dict.fromkeys(about, str),
        }

    def _score_column(self, name: str) -> str:
        return "score" if len(self._note.answers) == 1 else f"score {name}"

    def cells(self, number: int) -> dict[str, Any] | None:
        """The cells of the row with this number by column; None where there is no such row."""
        place = self._places[number] if number < len(self._places) else -1
        if place < 0:
            if number not in self._left_out:
                return None
            fault = self._left_out[number]
            why = ("caller", self._why) if fault is None else ("data", fault)
            return dict(zip(("cause", "message"), why, strict=True))
        self._file.seek(place)
        row = SampleRow.from_record(from_line(self._file.readline()) or {})
        cells = self._of_graders(row) if self._graders else self._of_answers(row)
        return {**cells, **dict(zip(("cause", "message"), row.why_missing(), strict=True))}

    def _of_graders(self, row: SampleRow) -> dict[str, Any]:
        about, words = row.metadata or {}, dict[Any, str]({True: "pass", False: "fail"})
        scores, passed = about.get("scores") or {}, about.get("passed") or {}
        return {
            **{f"score {name}": scores.get(name) for name in self._graders},
            **{f"verdict {name}": words.get(passed.get(name)) for name in self._graders},
            "reason": next(filter(None, row.reasons), None),
        }

    def _of_answers(self, row: SampleRow) -> dict[str, Any]:
        answers = self._note.answers
        shown = (row.metadata or {}).get("columns") or range(len(answers))
        names = [answers[column] for column in shown]
        scores = {
            n: score for n, score in zip(names, row.scores, strict=False) if score is not None
        }
        cells: dict[str, Any] = {
            self._score_column(name): self._turn * score for name, score in scores.items()
        }
        for name, score in scores.items():
            cells[f"rank {name}"] = 1.0 + sum(other > score for other in scores.values())
        if self._note.compares:
            cells |= {"winner": winner_of(row, names), "flip": flip_of(row)}
        reasons = {name: text for name, text in zip(names, row.reasons, strict=False) if text}
        if len(set(reasons.values())) > 1:
            reasons = {name: f"{name}: {text}" for name, text in reasons.items()}
        return {**cells, "reason": "\n\n".join(dict.fromkeys(reasons.values())) or None}


def winner_of(row: SampleRow, names: Sequence[str]) -> str | None:
    """The answer with most wins over the others, "tie" where several have, None where the row has
    no result.
    """
    if row.status != "scored":
        return None
    wins: list[float] = [0.0] * len(names)
    for first, second, verdict in row.verdicts:
        wins[first] += verdict or 0
        wins[second] -= verdict or 0
    if not row.verdicts:
        if len(row.scores) < len(names) or None in row.scores:
            return None
        wins = [score for score in row.scores if score is not None]
    best = [name for name, won in zip(names, wins, strict=True) if won == max(wins)]
    return best[0] if len(best) == 1 else "tie"


def flip_of(row: SampleRow) -> str | None:
    """Whether the two orders of a pair contradict each other; None where no pair was judged in
    both.
    """
    verdicts = {
        (first, second): verdict for first, second, verdict in row.verdicts if verdict is not None
    }
    both = [
        (verdict, verdicts[second, first])
        for (first, second), verdict in verdicts.items()
        if (second, first) in verdicts
    ]
    return ("yes" if any(one == other != 0 for one, other in both) else "no") if both else None
