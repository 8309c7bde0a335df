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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
PARTS = ("components", "rewards", "metrics", "reward_extra_info", "reward_components", "extra_logs")
"""Columns that hold several components by name."""
NO_COMPONENT = frozenset(
    "advantage advantages epoch index idx id row rank seed time timestamp turn turns num_turns "
    "n_turns group group_id prompt_id sample_id rollout_id entropy kl logprob logprobs temperature __index_level_0__".split()
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
    rows: list[dict[str, Any]] = []
    charts: dict[str, list[tuple[float, float]]] = {}
    left_out = [0]
    name = "the rows" if not isinstance(log, (str, Path)) else str(log)
    columns: set[str] = set()
    for row in _rows(log, left_out):
        if (
            completion in row
            if completion is not None
            else any(name in row for name in COMPLETIONS)
        ):
            rows.append(row)
        else:
            columns.update(row)
            _chart(row, charts, step)
    for points in charts.values():
        points.sort()
    if not rows and completion is not None:
        raise ConfigError(
            f"completion is '{completion}', and {name} has no such column; "
            f"{nearest(completion, columns)}"
        )
    if not rows and not columns.isdisjoint(PROMPTS if prompt is None else (prompt,)):
        raise ConfigError(  # its charts alone would look like a run in which nothing is wrong
            f"{name} holds prompts and no column {listed(COMPLETIONS)}; say with completion= "
            f"(--completion) which of these it is: {listed(sorted(columns))}."
        )
    if not rows and not charts:
        raise ConfigError(
            f"{name} holds neither completions (a column {listed(COMPLETIONS)}) nor numbers by "
            f"step; give a file or folder of such."
        )
    return _completions(name, rows, charts, asked, components, left_out[0])


# -- rows ------------------------------------------------------------------------------------------


def _rows(log: Any, left_out: list[int]) -> Iterator[dict[str, Any]]:
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
        for row in _file_rows(file, left_out):
            if number is not None and not any(name in row for name in STEPS):
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


def _file_rows(file: Path, left_out: list[int]) -> Iterator[dict[str, Any]]:
    if file.suffix == ".json":
        yield from _of_json(file)
        return
    if file.suffix not in (".jsonl", ".ndjson", ".log"):
        plain = file.suffix in (".csv", ".tsv", ".txt")  # where numbers are texts
        for row in rows_in(file):
            yield {name: _cell(name, cell) for name, cell in row.items()} if plain else row
        return
    with file.open(encoding="utf-8", errors="replace") as lines:
        torn: DataError | None = None
        for number, line in enumerate(lines, 1):
            if torn is not None:
                raise torn
            if not line.strip():
                continue
            try:
                row = json.loads(line)  # which reads the NaN that trainers write
            except json.JSONDecodeError as error:
                torn = DataError(f"{file}, line {number}: no JSON: {error.msg}")
                continue
            if not isinstance(row, dict):
                raise DataError(
                    f"{file}, line {number}: expected an object, found {type(row).__name__}"
                )
            yield row
    left_out[0] += torn is not None


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


def _completions(
    name: str,
    rows: list[dict[str, Any]],
    charts: dict[str, list[tuple[float, float]]],
    asked: Mapping[str, str | None],
    components: Sequence[str] | None,
    left_out: int,
) -> TrainingLog:
    flat = [_flattened(row) for row in rows]
    columns = list(dict.fromkeys(column for row in flat for column in row))
    for option, column in asked.items():
        if column is not None and rows and column not in columns:
            raise ConfigError(
                f"{option} is '{column}', and {name} has no such column; {nearest(column, columns)}"
            )
    # the trainer's own charts say what is a reward
    named = [c for c in columns if f"rewards/{c}/mean" in charts]
    chosen = {
        role: asked[role]
        or next((column for column in names if column in columns and column not in named), None)
        for role, names in (
            ("step", STEPS),
            ("prompt", PROMPTS),
            ("completion", COMPLETIONS),
            ("length", LENGTHS),
        )
    }
    texts = [_plain_text(row.get(chosen["completion"] or "")) for row in flat]
    numbers = {
        column: np.array([_number_or_nan(row.get(column)) for row in flat]) for column in columns
    }
    summed = asked["total"] or next((column for column in TOTALS if column in columns), None)
    rewards, same = numbers, set[str]()
    if set(FLAGS) <= set(columns) and not set(FLAGS) & set(components or ()):
        missing = np.any([numbers[flag] == 1 for flag in FLAGS], axis=0)
        rewards = {c: np.where(missing, math.nan, n) for c, n in numbers.items()}
        # verl gets the score under several names
        same = {*FLAGS}
        for c in (*TOTALS, "acc"):
            if summed and c in columns and np.array_equal(rewards[c], rewards[summed], True):
                same.add(c)
    if components is not None:
        wrong = [column for column in components if column not in columns]
        if wrong and rows:
            raise ConfigError(
                f"components names '{wrong[0]}', and {name} has no such column; "
                f"{nearest(wrong[0], columns)}"
            )
        names = list(components)
    elif named:
        names = named
    else:
        known = {*STEPS, *LENGTHS, *NO_COMPONENT, *same, *chosen.values(), summed}
        names = [c for c in columns if c not in known and _is_numeric([row.get(c) for row in flat])]
    lengths, unit = _lengths(flat, texts, chosen["length"])
    # of charts alone no column is left
    steps = (
        numbers[chosen["step"]]
        if chosen["step"] in numbers
        else np.arange(len(rows), dtype=np.float64)
    )
    return TrainingLog(
        name,
        np.where(np.isnan(steps), 0.0, steps),
        [_plain_text(row.get(chosen["prompt"] or "")) for row in flat],
        texts,
        lengths,
        unit,
        {column: rewards[column] for column in names},
        rewards[summed] if summed else None,
        charts,
        left_out,
        chosen["step"] is not None,
    )


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


def _lengths(
    rows: list[dict[str, Any]], texts: list[str], column: str | None
) -> tuple[Floats, str]:
    if column is not None:
        return np.array([_number_or_nan(row.get(column)) for row in rows]), "tokens"
    ids = [row.get("completion_ids") for row in rows]
    if rows and all(hasattr(one, "__len__") and not isinstance(one, str) for one in ids):
        return np.array([float(len(one)) for one in ids if one is not None]), "tokens"
    return np.array([float(len(text)) for text in texts]), "characters"
