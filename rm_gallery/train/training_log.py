"""Logs of training runs, read: completions with the components of their reward, and charts by step.

Understood are TRL's output folder (`completions/completions_*.parquet` of `log_completions=True`,
`trainer_state.json`), verl's folder of rollouts (`N.jsonl` with input, output, score) and the lines
of its file logger, and jsonl, parquet or csv files with one completion or one step per row.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rm_gallery.core.data.conversation import split_rollout
from rm_gallery.core.data.load.converters import listed, nearest
from rm_gallery.core.data.load.readers import rows_in
from rm_gallery.core.model.message import text_of
from rm_gallery.core.stats import Floats, np
from rm_gallery.core.utils.errors import ConfigError, DataError

STEPS = ("step", "global_step", "_step", "global_steps", "training_step")
PROMPTS = ("prompt", "input", "question", "query", "prompts")
COMPLETIONS = ("completion", "output", "response", "answer", "completions", "text")
TOTALS = ("reward", "score", "total_reward", "total")
LENGTHS = (
    "completion_length",
    "response_length",
    "completion_tokens",
    "num_tokens",
    "length",
    "n_tokens",
)
_BESIDE_MESSAGES = ("completion", "completions", "output", "response")
"""Columns beside which `messages` are no completion."""
PARTS = ("components", "rewards", "metrics", "reward_extra_info", "reward_components", "extra_logs")
"""Columns that hold several components by name."""
NO_COMPONENT = frozenset(
    "advantage advantages epoch index idx id row rank seed time timestamp turn turns num_turns "
    "n_turns answer gold reference ground_truth target expected_answer group group_id prompt_id sample_id rollout_id entropy kl logprob logprobs temperature __index_level_0__".split()
)
FLAGS = ("unscored", "failed")
"""Columns that this package's adapters write together: with a 1 in one of them the row's rewards
only stand for a missing one.
"""
_NAMES = re.compile(r"completions?_0*(\d+)|(?:^|[-_])(\d+)$")


@dataclass
class TrainingLog:
    """What a log holds: completions, one entry per row in every field, and charts.

    Attributes:
        name: where it comes from.
        steps: the training step of each completion; its place in the log where `has_steps` is
            False.
        prompts: text of the prompt, the name of its group within a step.
        texts: text of the completion.
        lengths: in `unit`; NaN where unknown.
        unit: `tokens` where the log counts them, else `characters`.
        components: the rewards by name; NaN where a completion has none.
        total: the sum the trainer used where the log has it, else None.
        charts: for every chart its (step, value) points, in order.
        left_out: lines that could not be read because the run is still writing them.
        read: the columns that were taken for the prompt, the completion and so on, by what for.
    """

    name: str
    steps: Floats
    prompts: list[str]
    texts: list[str]
    lengths: Floats
    unit: str
    components: dict[str, Floats]
    total: Floats | None
    charts: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    left_out: int = 0
    has_steps: bool = True
    read: Mapping[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.texts)


def read_training_log(
    log: Any,
    *,
    components: Sequence[str] | None = None,
    step: str | None = None,
    prompt: str | None = None,
    completion: str | None = None,
    total: str | None = None,
    length: str | None = None,
) -> TrainingLog:
    """Read a log: a file, a folder of a run, or its rows.

    Args:
        log: a path, or rows as dicts.
        components: columns that are rewards; by default all columns of numbers that are not known
            to be something else.
        step: the column of the training step, where it is called otherwise than usual; so are the
            next ones.
        prompt: that of the prompt.
        completion: that of the completion.
        total: that of the reward the components add up to.
        length: that of the completion's length.

    Raises:
        ConfigError: there is no such file or column, or nothing that a monitor could look at.
        DataError: a line in the middle of a file cannot be read.
    """
    asked = {
        "step": step,
        "prompt": prompt,
        "completion": completion,
        "total": total,
        "length": length,
    }
    nothing = np.zeros(0)
    name = str(log) if isinstance(log, (str, Path)) else "the rows"
    found = TrainingLog(
        name, nothing, [], [], nothing, "characters", {}, None, has_steps=step is not None
    )
    rows: list[dict[str, Any]] = []
    columns: set[str] = set()
    for given in _rows(log, found):
        row = _divided(given)
        if row is not given:
            found.read = dict.fromkeys(("completion", *({"prompt"} - given.keys())), "messages")
        if row.keys().isdisjoint(COMPLETIONS if completion is None else (completion,)):
            columns.update(row)
            _chart(row, found.charts, step)
        else:
            rows.append(_flattened(row))
    for points in found.charts.values():
        points.sort()
    if rows:
        return _with_completions(found, rows, asked, components)
    if completion is not None:
        raise ConfigError(
            f"completion is '{completion}', and {name} has no such column; "
            f"{nearest(completion, columns)}"
        )
    if not columns.isdisjoint(PROMPTS if prompt is None else (prompt,)):
        raise ConfigError(  # its charts alone would look like a run in which nothing is wrong
            f"{name} holds prompts and no column {listed(COMPLETIONS)}; say with completion= "
            f"(--completion) which of these it is: {listed(sorted(columns))}."
        )
    if not found.charts:
        raise ConfigError(
            f"{name} holds neither completions (a column {listed(COMPLETIONS)}) nor numbers by "
            f"step; give a file or folder of such."
        )
    return found


# -- rows ------------------------------------------------------------------------------------------


def _rows(log: Any, found: TrainingLog) -> Iterator[dict[str, Any]]:
    if not isinstance(log, (str, Path)):
        if isinstance(log, Mapping) or not isinstance(log, Iterable):
            raise ConfigError(f"log is a {type(log).__name__}; give a path or a list of rows.")
        for row in log:
            if not isinstance(row, Mapping):
                raise ConfigError(f"log holds a {type(row).__name__}; its rows are dicts.")
            yield {str(key): value for key, value in row.items()}
        return
    path = Path(log).expanduser()
    if not path.exists():
        raise ConfigError(f"{path}: there is no such file or folder; give a training log.")
    for file in _files(path):
        number = _step_in_name(file)
        for row in _file_rows(file, found):
            if number is not None and row.keys().isdisjoint(STEPS):
                row = {"step": number, **row}
            yield row


def _files(path: Path) -> list[Path]:
    """The files of a run's folder, by the steps in their names; of several trainer states the
    longest.
    """
    if not path.is_dir():
        return [path]
    files = [
        file for file in sorted(path.rglob("*")) if file.is_file() and not file.name.startswith(".")
    ]
    states = [file for file in files if file.name == "trainer_state.json"]
    logs = [file for file in files if file.suffix in (".jsonl", ".parquet", ".ndjson")]
    logs = [file for file in logs if "completion" in file.name or file.suffix != ".parquet"] or logs
    if states:
        logs.append(max(states, key=lambda file: file.stat().st_size))
    if not logs:
        raise ConfigError(
            f"{path} holds no jsonl or parquet file and no trainer_state.json; give the folder of "
            f"a run."
        )
    return sorted(logs, key=lambda file: (_step_in_name(file, math.inf), str(file)))


def _step_in_name(file: Path, default: float | None = None) -> float | None:
    match = _NAMES.search(file.stem)
    return int(match[1] or match[2]) if match else default


def _file_rows(file: Path, found: TrainingLog) -> Iterator[dict[str, Any]]:
    if file.suffix == ".json":
        yield from _of_json(file)
        return
    if file.suffix not in (".jsonl", ".ndjson", ".log"):
        plain = file.suffix in (".csv", ".tsv", ".txt")  # where numbers are texts
        for row in rows_in(file):
            yield {name: _cell(name, cell) for name, cell in row.items()} if plain else row
        return
    with file.open(encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)  # which reads the NaN that trainers write
            except json.JSONDecodeError as error:
                if next(lines, None) is None:
                    found.left_out += 1
                    return
                raise DataError(f"{file}, line {number}: no JSON: {error.msg}") from error
            if not isinstance(row, dict):
                raise DataError(
                    f"{file}, line {number}: expected an object, found {type(row).__name__}"
                )
            yield row


def _cell(name: str, cell: Any) -> Any:
    if name in COMPLETIONS or name in PROMPTS or not isinstance(cell, str):
        return cell
    try:
        return float(cell)
    except ValueError:
        return cell or None


def _of_json(file: Path) -> Iterator[dict[str, Any]]:
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{file}: no JSON: {error}") from error
    rows = document.get("log_history") if isinstance(document, dict) else document
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise DataError(f"{file}: expected a list of rows, or an object with log_history.")
    yield from rows


# -- charts and completions ------------------------------------------------------------------------


def _chart(
    row: dict[str, Any], charts: dict[str, list[tuple[float, float]]], step: str | None
) -> None:
    at = _number_or_nan(
        next((row[name] for name in ((step,) if step else STEPS) if name in row), None)
    )
    inner = row.get("data")
    for name, value in {**row, **(inner if isinstance(inner, dict) else {})}.items():
        number = _number_or_nan(value)
        if name not in STEPS and not math.isnan(number) and not name.startswith(("eval", "val")):
            points = charts.setdefault(name, [])
            points.append((at if not math.isnan(at) else float(len(points)), number))


def _unboxed(value: Any) -> Any:
    """A number of numpy or torch as Python's own."""
    return value.item() if hasattr(value, "item") else value


def _number_or_nan(value: Any) -> float:
    """A number, NaN for everything else; what is infinite is no value either."""
    value = _unboxed(value)
    number = float(value) if isinstance(value, (int, float)) else math.nan
    return number if math.isfinite(number) else math.nan


def _with_completions(
    log: TrainingLog,
    rows: list[dict[str, Any]],
    asked: Mapping[str, str | None],
    components: Sequence[str] | None,
) -> TrainingLog:
    """The log with what its rows of completions hold."""
    columns = list(dict.fromkeys(column for row in rows for column in row))

    def check_column(option: str, verb: str, column: str) -> None:
        if column not in columns:
            raise ConfigError(
                f"{option} {verb} '{column}', and {log.name} has no such column; "
                f"{nearest(column, columns)}"
            )

    for option, column in asked.items():
        if column is not None:
            check_column(option, "is", column)
    for column in components or ():
        check_column("components", "names", column)
    # the trainer's own charts say what is a reward
    named = [c for c in columns if f"rewards/{c}/mean" in log.charts]

    def chosen(role: str, names: Sequence[str], taken: Sequence[str] = named) -> str | None:
        known = (name for name in names if name in columns and name not in taken)
        return asked[role] or next(known, None)

    step, prompt, completion, length = (
        chosen(role, names)
        for role, names in (
            ("step", STEPS),
            ("prompt", PROMPTS),
            ("completion", COMPLETIONS),
            ("length", LENGTHS),
        )
    )
    prompts, texts = (
        [_plain_text(row.get(column or "")) for row in rows] for column in (prompt, completion)
    )
    numbers = {
        column: np.array([_number_or_nan(row.get(column)) for row in rows]) for column in columns
    }
    steps = np.arange(len(rows), dtype=np.float64) if step is None else numbers[step]
    ids = [row.get("completion_ids") for row in rows]
    counted = all(hasattr(one, "__len__") and not isinstance(one, str) for one in ids)
    lengths = (
        np.array([float(len(one or ())) for one in (ids if counted else texts)])
        if length is None
        else numbers[length]
    )
    summed = chosen("total", TOTALS, ())
    rewards, same = numbers, set[str]()
    if set(FLAGS) <= set(columns) and not set(FLAGS) & set(components or ()):
        missing = np.any([numbers[flag] == 1 for flag in FLAGS], axis=0)
        rewards = {c: np.where(missing, math.nan, n) for c, n in numbers.items()}
        # verl gets the score under several names
        same = {*FLAGS}
        for c in (*TOTALS, "acc"):
            if summed and c in columns and np.array_equal(rewards[c], rewards[summed], True):
                same.add(c)
    known = {*STEPS, *LENGTHS, *NO_COMPONENT, *same, step, prompt, completion, length, summed}
    read = {"prompt": prompt, "completion": completion, "length": length, "reward": summed}
    names = named or [
        c for c in columns if c not in known and _is_numeric([row.get(c) for row in rows])
    ]
    return replace(
        log,
        steps=np.nan_to_num(steps, nan=0.0),
        prompts=prompts,
        texts=texts,
        lengths=lengths,
        unit="characters" if length is None and not counted else "tokens",
        components={c: rewards[c] for c in (names if components is None else components)},
        total=rewards[summed] if summed else None,
        has_steps=step is not None,
        read={
            role: log.read.get(role, column) if column == role else column
            for role, column in read.items()
            if column is not None
        },
    )


def _divided(row: dict[str, Any]) -> dict[str, Any]:
    """A row whose `messages` end with what was completed, with prompt and completion of their own: a
    column `answer` beside them is the truth, as in `rejudge`.
    """
    messages = row.get("messages")
    if not isinstance(messages, list) or not row.keys().isdisjoint(_BESIDE_MESSAGES):
        return row
    if not all(isinstance(turn, Mapping) for turn in messages):
        return row
    prompt, completion = split_rollout([dict(turn) for turn in messages])
    return {"prompt": prompt, **row, "completion": completion} if completion else row


def _flattened(row: dict[str, Any]) -> dict[str, Any]:
    """The row with the components that stand in an object of their own."""
    flat = dict(row)
    for part in PARTS:
        inner = flat.get(part)
        if isinstance(inner, dict):
            del flat[part]
            for name, value in inner.items():
                # the number of a metric that could not be judged stands for nothing
                if isinstance(value, dict):
                    value = value.get("score") if value.get("is_score_valid", True) else None
                flat.setdefault(str(name), value)
    return flat


def _is_numeric(cells: Iterable[Any]) -> bool:
    given = [cell for cell in cells if cell is not None]
    return bool(given) and all(isinstance(_unboxed(cell), (int, float)) for cell in given)


def _plain_text(value: Any) -> str:
    """A text, or what the messages of a conversation say."""
    if isinstance(value, str) or value is None:
        return value or ""
    turns = list(value) if isinstance(value, (list, tuple)) or hasattr(value, "tolist") else [value]
    texts = [
        text_of(turn.get("content")) if isinstance(turn, Mapping) else str(turn) for turn in turns
    ]
    return "\n".join(texts)
