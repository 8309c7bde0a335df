"""Run folders: the samples that a run appends line by line, and a run opened for reading."""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import orjson

from rm_gallery.core.data.schema import DataSample, preference_of
from rm_gallery.core.engine.folder import MANIFEST, SUMMARY, read_trace, shards_of, traces_of
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.reward.view import conversation_text
from rm_gallery.core.utils.errors import ConfigError, DataError, RMGalleryError, reason_of
from rm_gallery.core.utils.file import (
    as_json,
    from_line,
    mend_tail,
    opened_file,
    read_lines,
    replacing,
    to_line,
    write_whole,
)
from rm_gallery.core.utils.shown import number
from rm_gallery.gallery.benchmarks.figures import plain
from rm_gallery.gallery.benchmarks.judgements import NOT_ASKED, Judged, Pair
from rm_gallery.gallery.benchmarks.lead import HELD_TO_NO_LABELS
from rm_gallery.study.cards import EARLIER

SAMPLES = "samples.jsonl"
REPORT = "report.json"
HELD_SECONDS = 0.25
"""Lines that finish within this time are written together: one write per line would slow a fast run."""
RowChange = Callable[[dict[str, Any]], dict[str, Any]] | None
"""Makes of the record of a sample the one that stays, once all are judged."""
_RULES_OF_TABLES = {"scores": "mean_score", "rollouts": "mean_score", "winrate": "win_rate"}
"""The rules of what is no benchmark, which an unfinished run does not name yet."""
_KEPT = ("scored", "unscored")
"""What a continued run does not judge again."""


class KeptFigure(NamedTuple):
    """What the figure of a run is. Its manifest says so from the start, since an unfinished run has
    no report to name its rule and unit.
    """

    rule: str = ""
    """Its name; empty where the figure is no mean over rows, and in runs of earlier versions."""
    mean_of: str = "credit"
    """What it is the mean of: `credit`, `scores`, or the score of the grader of this name."""
    scale: tuple[float, float] = (0.0, 1.0)
    """The lowest and the highest value of a row; infinite where it is open."""
    turn: float = 1.0
    """-1 where the reward's lower scores are better: those of samples.jsonl are turned."""
    n: int | None = None
    """How many samples the whole run has; None where nobody counted."""
    answers: int = 1
    """How many scores a row needs."""

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Any]) -> KeptFigure:
        """That of a manifest; of one of an earlier version the mean credit under no rule."""
        if not isinstance(held := manifest.get("figure"), dict):
            return cls()
        columns = manifest.get("columns")
        named = columns.get("answers") if isinstance(columns, dict) else None
        low, high = held.get("scale") or (None, None)
        return cls(
            str(held.get("rule") or ""),
            str(held.get("mean_of") or "credit"),
            (number(low, -math.inf), number(high, math.inf)),
            number(held.get("turn"), 1.0),
            None if held.get("n") is None else int(number(held["n"])),
            max(1, len(named)) if isinstance(named, list) else 1,
        )

    def value(
        self,
        status: str,
        credit: float | None,
        scores: Sequence[float | None],
        metadata: Mapping[str, Any] | None,
    ) -> float | None:
        """What a row of samples.jsonl adds to the mean; None where nothing."""
        if self.mean_of == "credit":
            return credit
        if status != "scored":
            return None
        if self.mean_of == "scores":
            known = [score for score in scores if score is not None]
            enough = len(known) == len(scores) >= self.answers
            return self.turn * math.fsum(known) / len(known) if enough else None
        said = ((metadata or {}).get("scores") or {}).get(self.mean_of)
        return float(said) if isinstance(said, int | float) else None

    def cause(self, status: str, cause: str | None) -> str | None:
        """Who caused that a row adds nothing; the data, where one that is scored does not and has
        to.
        """
        needed = self.rule and self.mean_of in ("credit", "scores")
        return "data" if status == "scored" and needed else cause


class Verdict(NamedTuple):
    """A pair as it was shown: `first` before `second`, by answer number from 0."""

    first: int
    second: int
    verdict: int | None
    """+1 the answer shown first won, -1 the one shown second, 0 a tie, None without a usable
    verdict.
    """


class StepScore(NamedTuple):
    """One step of an answer with its score."""

    text: str
    score: float | None
    label: dict[str, Any]
    """What is known about it, such as `correctness`."""


class Issue(NamedTuple):
    """Why a judgement is missing."""

    status: str
    reason: str
    message: str
    cause: str | None = None
    """Who caused it: endpoint, judge, answer, data, rule or caller; None in runs of earlier versions."""


@dataclass(frozen=True)
class SampleRow:
    """One sample of a run with its scores and reasons; sequences about answers have one entry per
    answer.

    Attributes:
        id: the sample's id.
        key: id and content hash; what tells it from others with its id, and finds it in the trace.
        subset: the part of the benchmark, empty where there are none.
        cluster: equal for samples that ask the same and are no independent draws.
        status: scored, unscored or failed; a sample that was not begun has no line.
        prompt: the conversation as one text.
        answers: texts.
        labels: chosen, rejected or None.
        scores: higher is better; None where there is none.
        reasons: what the judge gave as its reason.
        verdicts: of compared answers, one per pair and order.
        order: of a list that a judge saw at once, the answer numbers in the order shown; empty
            otherwise.
        steps: empty where answers were not judged step by step.
        credit: what the sample earned under the rule, 0..1; None where it earned nothing countable.
        agrees: of a row of a table, 1 where the reward's verdict is that of people and 0 where it is
            not; None where there is no verdict of both.
        issues: why judgements are missing.
        metadata: the sample's own.
    """

    id: str
    key: str = ""
    subset: str = ""
    cluster: str = ""
    status: str = "scored"
    prompt: str = ""
    answers: tuple[str, ...] = ()
    labels: tuple[str | None, ...] = ()
    scores: tuple[float | None, ...] = ()
    reasons: tuple[str | None, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    order: tuple[int, ...] = ()
    steps: tuple[tuple[StepScore, ...], ...] = ()
    credit: float | None = None
    agrees: float | None = None
    issues: tuple[Issue, ...] = ()
    metadata: dict[str, Any] | None = None

    def why_missing(self) -> tuple[str | None, str | None]:
        """Who caused what it lacks, and the message of each issue, once."""
        cause = self.cause or next((issue.cause for issue in self.issues if issue.cause), None)
        why = dict.fromkeys(f"{issue.reason}: {issue.message}" for issue in self.issues)
        return cause, "; ".join(why) or None

    @property
    def same_as(self) -> int:
        """What it is the same by in other runs, as `hash_of_sample` has it."""
        return hash_of_sample(self.id, self.subset, self.prompt, self.answers)

    @property
    def cause(self) -> str | None:
        """Who caused the missing score; None where there is a score, and where the protocol does not
        ask for one.
        """
        own = [issue for issue in self.issues if issue.status == self.status]
        if self.status == "scored" or any(issue.reason == NOT_ASKED for issue in own):
            return None
        return next(
            (issue.cause for issue in own if issue.cause),
            "endpoint" if self.status == "failed" else "judge",
        )

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> SampleRow:
        """The row in a line of samples.jsonl; TypeError or ValueError when it holds none."""
        return cls(**{name: read(record[name]) for name, read in _READ.items() if name in record})


def hash_of_sample(id: str, subset: str, prompt: str, answers: Iterable[str]) -> int:
    """A hash, of this process, of what was asked and answered, which is equal in every run of a
    sample: its key differs where another column was named as reference or labels.
    """
    return hash((id, subset, prompt, tuple(answers)))


def _each(read: Callable[[Any], Any]) -> Callable[[Iterable[Any]], tuple[Any, ...]]:
    return lambda values: tuple(map(read, values))


_STEPS = _each(lambda step: StepScore(*step))
_READ: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("id", "key", "subset", "cluster", "status", "prompt"), str),
    "answers": _each(str),
    **dict.fromkeys(("labels", "scores", "reasons"), tuple),
    "verdicts": _each(lambda verdict: Verdict(*verdict)),
    "order": _each(int),
    "steps": _each(_STEPS),
    **dict.fromkeys(("credit", "agrees"), lambda share: share),
    "issues": _each(lambda issue: Issue(*issue)),
    "metadata": lambda metadata: metadata or None,
}
"""How each field of a `SampleRow` is read from its line."""


def sample_record(
    reward: BaseReward | None, one: Judged, credit: float | None, agrees: float | None = None
) -> dict[str, Any]:
    """The line of samples.jsonl for a judged sample, as JSON types without empty fields. `reward` is
    None for recorded scores.
    """
    sample, order = one.sample, ()
    if reward is not None and reward.kind == "listwise" and sample.output:
        judgement = sample.output[0].answer.reward
        order = judgement.extra_data.get(reward.key_in(judgement), {}).get("order", ())
    record: dict[str, Any] = {
        "id": sample.sample_id,
        "key": sample.sample_key,
        "subset": one.subset,
        "cluster": one.cluster,
        "status": one.status,
        "prompt": conversation_text(sample.input),
        "answers": [output.answer.text for output in sample.output],
        "labels": [preference_of(output) for output in sample.output],
        "scores": one.scores,
        "reasons": [] if reward is None else _reasons(reward, sample),
        "verdicts": [[*j.place, j.verdict] for j in one.judgements if isinstance(j.place, Pair)],
        "order": list(order),
        "steps": _steps(one) if reward is None or reward.kind == "stepwise" else [],
        "credit": credit,
        "agrees": agrees,
        "issues": [
            [*i]
            for i in dict.fromkeys((i.status, i.reason, i.message, i.cause) for i in one.issues)
        ],
        "metadata": one.metadata,
    }
    return without_empty(record)


def without_empty(record: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a record that hold something."""
    return {name: value for name, value in record.items() if value not in (None, [], "", {})}


def _reasons(reward: BaseReward, sample: DataSample) -> list[str | None]:
    reasons: list[str | None] = []
    for judgement in (output.answer.reward for output in sample.output):
        key = reward.key_in(judgement)
        each = [str(d.reason) for d in judgement.details if d.source == key and d.reason]
        reasons.append("\n".join(dict.fromkeys(each)) or None)
    return reasons if any(reasons) else []


def _steps(one: Judged) -> list[list[list[Any]]]:
    """The steps of each answer; where only their scores were recorded, without texts. Empty where
    no answer has any.
    """
    by_answer = []
    for place, output in enumerate(one.sample.output):
        steps = output.turns if output.steps else ()
        by_answer.append(
            [
                ["", score, {}] if step is None else [step.text, score, step.label or {}]
                for step, score in zip_longest(steps, one.steps(place))
            ]
        )
    return by_answer if any(by_answer) else []


def kept_in(run_dir: str | Path | None) -> AbstractContextManager[SampleFile | None]:
    """What keeps a run in a folder; nothing where none is named.

    Whatever judges under `--out` or `run_dir` writes a line for every sample as it finishes, and
    ends with `finish`: `report`, `view`, `explain`, `table` and `compare` read these two files alone.
    """
    return nullcontext() if run_dir is None else closing(SampleFile(run_dir))


def keep_figures(folder: Path, figures: Mapping[str, Any]) -> None:
    """Write report.json, whole or not at all: from then on the run is finished."""
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / REPORT, as_json(figures))


class SampleFile:
    """Appends every finished sample of a run to samples.jsonl, and its figures to report.json.

    Opened with the first sample, when the run folder is locked. A continued run goes through all
    its samples again: what is there already is not written twice, and what a killed process held
    back for a moment is written then. Failed samples leave the file first, for they are judged
    again. One thread writes it.
    """

    def __init__(self, folder: Path | str) -> None:
        self._path = Path(folder) / SAMPLES
        self._fd = -1
        self._known: Counter[int] = Counter()
        self._waiting: list[bytes] = []
        self._written = 0.0
        self._n = 0

    def add(self, record: dict[str, Any]) -> None:
        """Keep one sample, unless it is there; one that was not begun has no line.

        Raises:
            ConfigError: the file cannot be written.
        """
        try:
            if self._fd < 0:
                self._open_file()
            line = _line_of(record)
            self._n += record["status"] != "stopped"
            if self._known.get(hash(line)):
                self._known[hash(line)] -= 1
            elif record["status"] != "stopped":
                self._waiting.append(line)
                if time.monotonic() - self._written > HELD_SECONDS:
                    self._flush()
        except OSError as error:
            raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> ConfigError:
        return ConfigError(
            f"{self._path} cannot be written: {error.strerror or error}. All results so far are "
            f"saved; mend that, then run "
            "the same command to continue."
        )

    def _flush(self) -> None:
        lines, self._waiting = self._waiting, []
        data, start, written = b"".join(lines), os.fstat(self._fd).st_size, 0
        try:
            while written < len(data):
                written += os.write(self._fd, data[written:])
        except OSError:
            os.ftruncate(self._fd, start)  # half a line would swallow the next one
            raise
        self._written = time.monotonic()

    def finish(self, figures: Mapping[str, Any], change: RowChange = None) -> None:
        """Save the figures (`Report.to_dict`), and remove lines of an earlier run that no sample matches any more:
        those judged again with another outcome. What is known of a sample only now, `change` puts
        into its line.
        """
        left = +self._known
        if left:
            self._rewrite(lambda line: b"" if _counted_down(left, line) else line)
        if change is not None:
            self._rewrite(lambda line: _line_of(change(from_line(line) or {})))
        keep_figures(self._path.parent, {**figures, "n_lines": self._n})

    def _open_file(self) -> None:
        if any(_status(line) not in _KEPT for line in read_lines(self._path)):
            self._rewrite(lambda line: line if _status(line) in _KEPT else b"")
        flags = (
            os.O_RDWR
            | os.O_CREAT
            | os.O_APPEND
            | getattr(os, "O_BINARY", 0)
            | getattr(os, "O_NOFOLLOW", 0)
        )
        self._fd = os.open(self._path, flags, 0o644)
        mend_tail(self._fd)
        self._known = Counter(map(hash, read_lines(self._path)))

    def _rewrite(self, becomes: Callable[[bytes], bytes]) -> None:
        with replacing(self._path) as file:
            file.writelines(
                becomes(line) for line in read_lines(self._path) if line.endswith(b"\n")
            )

    def close(self) -> None:
        """Write what was held back and release the file; raises like `add`."""
        if self._fd < 0:
            return
        try:
            self._flush()
        except OSError as error:
            raise self._unwritable(error) from error
        finally:
            os.close(self._fd)
            self._fd = -1


def _line_of(record: dict[str, Any]) -> bytes:
    try:
        return to_line(record)
    except DataError:  # only metadata come from users and may not fit JSON
        return to_line({**record, "metadata": plain(record.get("metadata"))})


def _status(line: bytes) -> str:
    return str((from_line(line) or {}).get("status"))


def _counted_down(left: Counter[int], line: bytes) -> bool:
    if not left.get(hash(line)):
        return False
    left[hash(line)] -= 1
    return True


@dataclass(frozen=True)
class OpenRun:
    """A run folder, opened to be read; it may be unfinished.

    Attributes:
        folder: where it is.
        manifest: what was asked; empty where scores came from elsewhere.
        report: the figures as saved (`Report.to_dict`); empty while the run is unfinished.
        summary: how many samples and what was spent, of all parts of the run.
        root: where the folder comes from elsewhere, the one below which no link is followed.
    """

    folder: Path
    manifest: dict[str, Any]
    report: dict[str, Any]
    summary: dict[str, Any]
    root: Path | None = None

    @property
    def finished(self) -> bool:
        """Whether its report is there and it did not stop early."""
        return bool(self.report) and not self.report.get("stopped")

    @property
    def rule(self) -> str:
        """The rule of its figures; empty where nothing says, as of a benchmark that is unfinished."""
        what = "scores" if "graders" in self.manifest else self.manifest.get("benchmark")
        return str(self.report.get("rule") or _RULES_OF_TABLES.get(str(what), ""))

    @property
    def by_labels(self) -> bool:
        """Whether credits say how far the reward agrees with labels; else `SampleRow.agrees` does."""
        return self.rule not in HELD_TO_NO_LABELS

    def agreement(self, row: SampleRow) -> float | None:
        """How far the reward agrees with the labels of a row, 0..1; None where it has none."""
        return row.credit if self.by_labels else row.agrees

    @property
    def holds(self) -> str:
        """What the folder holds, for a reader that cannot show it."""
        rule, reward = (self.report.get(name) or f"no {name}" for name in ("rule", "reward"))
        return f"{self.folder.name} holds {rule} of {reward}"

    @property
    def served(self) -> dict[str, str]:
        """By the model that was asked, the names of those that answered, where they are others."""
        names = self.summary.get("served")
        return {
            name: ", ".join(map(str, ids))
            for name, ids in (names if isinstance(names, dict) else {}).items()
        }

    def answered_as(self, model: str) -> str:
        """The names under which a model that was asked answered; empty where it was not asked."""
        return self.served.get(model) or (model if self.report.get("judge") == model else "")

    @cached_property
    def kept_figure(self) -> KeptFigure:
        """What its figure is, as the manifest says."""
        return KeptFigure.from_manifest(self.manifest)

    @cached_property
    def damage(self) -> str:
        """How many samples can be read where not all can, in a sentence; else empty."""
        lines = [_row_of_line(line) is not None for line in self._lines()]
        return self.damage_of(sum(lines), len(lines))

    def damage_of(self, readable: int, lines: int) -> str:
        """`damage`, where so many of the lines hold a sample.

        Lines that are gone since the run finished count: figures that are saved stand beside
        samples that are not.
        """
        n = max(lines, int(number(self.report.get("n_lines"))))
        if readable == n:
            return ""
        return (
            f"{readable:,} of {n:,} samples in {self.folder.name} can be read; the same command "
            f"writes the others anew"
        )

    def caveats(self) -> Iterator[str]:
        """What holds of any figure that is made of its samples: that they are not all."""
        if not self.finished:
            why = self.report.get("stopped") or "there is no report"
            yield f"{self.folder.name} is not finished: {why}"
        if self.damage:
            yield self.damage

    def _lines(self) -> Iterator[bytes]:
        """The lines about samples; of a run of shards that was not put together yet, those of
        its shards.
        """
        own = self.folder / SAMPLES
        for path in [own] if own.is_file() else [each / SAMPLES for each in shards_of(self.folder)]:
            yield from read_lines(path, self.root)

    def samples(self) -> Iterator[SampleRow]:
        """Every finished sample once, in the order they finished; reads the file anew each time, a
        line at a time.
        """
        for line in self._lines():
            row = _row_of_line(line)
            if row is not None:
                yield row

    @property
    def traced(self) -> bool:
        """Whether prompts and replies were kept."""
        return bool(traces_of(self.folder))

    def trace(self) -> Iterator[dict[str, Any]]:
        """Every judgement with prompt and reply, in the order made; none where the run kept no
        trace.
        """
        return read_trace(self.folder, root=self.root) if self.traced else iter(())


def _row_of_line(line: bytes) -> SampleRow | None:
    record = from_line(line)
    try:
        return None if record is None else SampleRow.from_record(record)
    except (KeyError, TypeError, ValueError):
        return None


@contextmanager
def run_folder(run_dir: str | None, needed: bool) -> Iterator[str | None]:
    """The folder to keep a run in: `run_dir`, or a temporary one where one is `needed` and none is
    named.
    """
    if run_dir is not None or not needed:
        yield run_dir
        return
    with TemporaryDirectory(prefix="rm-gallery-") as spare:
        yield str(Path(spare) / "run")


@contextmanager
def sound(run: OpenRun) -> Iterator[None]:
    """Turn errors over damaged run files, such as a text in place of figures, into DataError."""
    try:
        yield
    except (AttributeError, KeyError, IndexError, TypeError, ValueError, OverflowError) as error:
        if isinstance(error, RMGalleryError):
            raise
        raise DataError(
            f"{run.folder}: its files hold what no run writes ({type(error).__name__}: "
            f"{str(error)[:200]}); run the same "
            "command again to write them anew."
        ) from error


def open_run(path: str | Path, root: Path | None = None) -> OpenRun:
    """Open a run folder for reading, finished or not.

    With `root`, a folder above it, no link below that is followed.

    Raises:
        DataError: there is none at `path`, or one of its files is damaged.
    """
    folder = Path(path)
    if not is_run(folder):
        below = (
            sorted(path.name for path in folder.iterdir() if is_run(path))
            if folder.is_dir()
            else []
        )
        if below:
            raise DataError(
                f"{folder} holds several runs; name one of them: {', '.join(below[:20])}."
            )
        problem = "is no folder" if not folder.is_dir() else f"holds no {MANIFEST}"
        raise DataError(
            f"{folder} {problem}; name the folder of a run, as made with --out RUN or run_dir=."
        )
    manifest, report, summary = (
        _read_object(folder / name, root) for name in (MANIFEST, REPORT, SUMMARY)
    )
    run = OpenRun(folder, manifest, report, summary, root=root)
    for name, told in EARLIER.items() if not report else ():
        if card := _read_object(folder / name, root):
            with sound(run):
                return replace(run, report=told(card))
    return run


def is_run(folder: str | Path) -> bool:
    """Whether a folder holds a run, finished or not."""
    return any((Path(folder) / name).is_file() for name in (MANIFEST, REPORT, SAMPLES))


def _read_object(path: Path, root: Path | None) -> dict[str, Any]:
    try:
        with opened_file(path, root) as file:
            content = orjson.loads(file.read())
    except FileNotFoundError:
        return {}
    except (OSError, orjson.JSONDecodeError) as error:
        raise DataError(f"{path} cannot be read: {reason_of(error)}; {_anew(path)}.") from None
    if not isinstance(content, dict):
        raise DataError(
            f"{path} holds a {type(content).__name__}; expected one JSON object: {_anew(path)}."
        )
    return content


def _anew(path: Path) -> str:
    """What writes a damaged file of a run anew; without a manifest nobody knows what made the rest."""
    if path.name != MANIFEST:
        return "run the same command again to write it anew"
    return (
        "run the command again with --config run.force_new=true, which moves the folder aside and "
        "starts anew"
    )
