"""Scores made elsewhere, joined to the samples of a benchmark; and samples of which only the judgements were kept."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from rm_gallery.core.data.load.converters import shown
from rm_gallery.core.data.schema import DataSample, RewardIssue, preference_of
from rm_gallery.core.utils.errors import ConfigError, DataError
from rm_gallery.core.utils.models import unknown_name
from rm_gallery.gallery.benchmarks.figures import Report
from rm_gallery.gallery.benchmarks.judgements import Candidate, Judged, Judgement, Pair, Verdict, sign
from rm_gallery.gallery.benchmarks.rules import Scorer

if TYPE_CHECKING:
    from rm_gallery.gallery.benchmarks.base import Benchmark


Row = Mapping[str, Any]
Group = dict[str, Any]
Place = tuple[str, str]
"""A candidate as its row names it, and the order it was shown in (empty, AB or BA)."""

COLUMNS = ("id", "candidate", "score")
ORDERS = ("", "AB", "BA")
_NAMED = 3


def joined(benchmark: Benchmark, rows: Iterable[Row], samples: Iterable[DataSample] | None) -> Iterator[tuple[Group, Judged]]:
    """Each sample with the scores that a file has for it, by its id.

    `candidate` is a position, counted from 0 in the chosen and then the rejected answers, or `A` or `B` as a pair's row names
    them. Rows that carry no id are known by their number, counted from 0, or by the hash of their texts. Rows of several `judge_model` are groups of their own.
    A sample without all its scores is unscored.

    Raises:
        ConfigError: no samples to join with.
        DataError: a column is absent, a value does not fit, or an id, candidate or order is unknown or occurs twice.
    """
    if samples is None:
        raise ConfigError(f"scores are joined to the rows of {benchmark.name}; say where they are with --data PATH.")
    by_model = _read(rows)
    unmet = {model: set(scores) for model, scores in by_model.items()}
    known: dict[str, int] = {}
    numbered = False
    for number, sample in enumerate(samples):
        if not number:
            numbered = sample.unique_id == sample.content_hash()
        names = (sample.unique_id, str(number)) if numbered else benchmark.ids(sample)
        texts = hash(tuple(output.answer.text for output in sample.output))
        for model, scores in by_model.items():
            name = next((name for name in names if name in scores), None)
            if name is not None:
                unmet[model].discard(name)
                if known.setdefault(name, texts) != texts:
                    raise DataError(
                        f"the data has different rows with the id '{name[:80]}', so its scores fit both; "
                        "give the scores of each file apart."
                    )
            yield ({} if model is None else {"judge_model": model}), _judged(sample, scores[name] if name else {})
        known.setdefault(names[0], texts)
    for model, missed in unmet.items():
        if missed:
            raise DataError(
                f"scores: {len(missed)} of {len(by_model[model])} ids are not in the data, such as {_some(sorted(missed))}; "
                f"the data has ids such as {_some(list(known))}."
            )


def _read(rows: Iterable[Row]) -> dict[str | None, dict[str, dict[Place, float | None]]]:
    """The scores by model, id and place."""
    found: dict[str | None, dict[str, dict[Place, float | None]]] = {}
    number = 0
    for number, row in enumerate(rows, 1):
        need(row, COLUMNS, number)
        order = "" if row.get("order") is None else str(row["order"]).strip().upper()
        if order not in ORDERS:
            raise DataError(f"recorded row {number}, column 'order': expected AB or BA, found {shown(row['order'])}.")
        name, place = named(row["id"], number), (_candidate(row["candidate"], number), order)
        model = row.get("judge_model")
        places = found.setdefault(None if model is None else str(model), {}).setdefault(name, {})
        if place in places:
            what = f"candidate {place[0]}" + (f" in order {order}" if order else "")
            raise DataError(f"recorded row {number}: {what} of id '{name[:80]}' was given before; keep one score of it.")
        places[place] = number_of(row["score"], "score", number)
    if not number:
        raise DataError("scores: no rows found; a row holds " + ", ".join(COLUMNS) + ".")
    return found


def peek(rows: Iterable[Row]) -> tuple[Row, Iterator[Row]]:
    """The first row, empty without any, and all rows again: what tells one layout of recorded judgements from another."""
    waiting = iter(rows)
    first = next(waiting, None)
    return (first or {}), chain(() if first is None else (first,), waiting)


def need(row: Row, columns: Sequence[str], number: int) -> None:
    """DataError for the first column that a recorded row does not have."""
    missing = [column for column in columns if column not in row]
    if missing:
        raise DataError(
            f"recorded row {number}: column '{missing[0]}' is missing; a row holds {', '.join(columns)}; "
            f"the row has: {', '.join(map(str, row)) or 'no columns'}."
        )


def named(value: Any, number: int, column: str = "id") -> str:
    """An id as text; DataError for what is none."""
    if isinstance(value, str) and value:
        return value
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise DataError(f"recorded row {number}, column '{column}': expected an id (text or whole number), found {shown(value)}.")


def whole(value: Any, number: int, column: str) -> int:
    """A whole number; DataError for anything else."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise DataError(f"recorded row {number}, column '{column}': expected a whole number, found {shown(value)}.")
    return value


def said(value: Any, number: int, column: str = "raw_text") -> str:
    """What a judge wrote, empty where it gave nothing; DataError for anything but text."""
    if value is not None and not isinstance(value, str):
        raise DataError(f"recorded row {number}, column '{column}': expected text, found {shown(value)}.")
    return value or ""


def number_of(value: Any, column: str, number: int) -> float | None:
    """A score, also as the text a csv file holds; None where there is none: empty, or no finite number."""
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        value = float(value)
    if value is None or (isinstance(value, str) and value.strip().lower() in ("", "nan")):
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise DataError(f"recorded row {number}, column '{column}': expected a number, found {shown(value)}.")
    return float(value) if math.isfinite(value) else None


_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def _candidate(value: Any, number: int) -> str:
    if isinstance(value, str) and value.strip().upper() in ("A", "B"):
        return value.strip().upper()
    if isinstance(value, str) and value.strip().isdecimal():
        return str(int(value))
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return str(value)
    wanted = "A, B or a position counted from 0"
    raise DataError(f"recorded row {number}, column 'candidate': expected {wanted}, found {shown(value)}.")


def _some(names: Sequence[str]) -> str:
    return ", ".join(f"'{name[:80]}'" for name in names[:_NAMED])


def _judged(sample: DataSample, scores: Mapping[Place, float | None]) -> Judged:
    """The sample with its scores; those of two orders also as the verdicts of two games."""
    positions = _positions(sample)
    by_order: dict[str, dict[int, float | None]] = {}
    for (candidate, order), score in scores.items():
        if candidate not in positions:
            raise DataError(
                f"scores: sample '{sample.sample_id[:80]}' has {len(sample.output)} candidates, found one named '{candidate}'; "
                + unknown_name("candidate", candidate, positions)
            )
        by_order.setdefault(order, {})[positions[candidate]] = score
    if len(by_order) > 1 and "" in by_order:
        raise DataError(f"scores: some of sample '{sample.sample_id[:80]}' name an order and some do not; name it in all.")
    if len(sample.output) != 2 and any(by_order):
        raise DataError(f"scores: sample '{sample.sample_id[:80]}' is no pair, so its scores have no order AB or BA.")
    means = [_mean([of.get(place) for of in by_order.values()]) for place in range(len(sample.output))]
    judgements = [
        Judgement(Candidate(place), "unscored" if score is None else "scored", score) for place, score in enumerate(means)
    ]
    for order, of in by_order.items():
        if order:
            judgements.append(game(order == "BA", sign(of.get(0), of.get(1))))
    lost = any(score is None for score in means)
    issue = RewardIssue(
        name="scores", status="unscored", reason="no_score", message="The file has no score for an answer.", cause="data"
    )
    return Judged(sample, judgements, "unscored" if lost else "scored", [issue] if lost else [])


def game(swapped: bool, verdict: Verdict) -> Judgement:
    """One game of a pair; `verdict` names its outputs (+1 the first), whichever was shown first."""
    if not swapped:
        return Judgement(Pair(0, 1), verdict=verdict)
    return Judgement(Pair(1, 0), verdict=None if verdict is None else -verdict)


def _positions(sample: DataSample) -> dict[str, int]:
    """The outputs by the names a scores file may give them: their place among chosen and then rejected ones, and A and B."""
    labels = [preference_of(output) == "rejected" for output in sample.output]
    found = {str(place): at for place, at in enumerate(sorted(range(len(labels)), key=labels.__getitem__))}
    return found | ({"A": 0, "B": 1} if len(labels) == 2 else {})


def _mean(scores: Sequence[float | None]) -> float | None:
    known = [score for score in scores if score is not None]
    return math.fsum(known) / len(known) if known and len(known) == len(scores) else None


def judged_pair(name: str, label: int, games: tuple[Verdict, Verdict], **metadata: Any) -> Judged:
    """A pair of which only the verdicts of two games were kept, +1 for its first output; `label` is 1, -1, or 0 for a tie."""
    preferences = {1: ("chosen", "rejected"), -1: ("rejected", "chosen"), 0: ("tie", "tie")}[label]
    outputs = [
        {"answer": {"role": "assistant", "content": "", "label": {"preference": preference}}} for preference in preferences
    ]
    sample = DataSample.model_validate({"unique_id": name, "output": outputs, "metadata": metadata})
    return Judged(sample, [game(False, games[0]), game(True, games[1])])


class Readable:
    """Counts recorded pairs under a rule and, beside it, those of which a text could not be read."""

    def __init__(self, counting: Scorer) -> None:
        self._counting = counting
        self._unreadable = 0

    def add(self, judged: Judged) -> float | None:
        """Count one sample."""
        self._unreadable += bool(judged.metadata.get("unreadable"))
        return self._counting.add(judged)

    def report(self) -> Report:
        """Report what was counted so far, with `extra["n_unreadable"]`."""
        report = self._counting.report()
        return replace(report, extra={**report.extra, "n_unreadable": self._unreadable})


Reader = Callable[[str], Verdict]

# -- JudgeBench, utils/judges.py -------------------------------------------------------------------------------------------

_ARENA_LABEL = re.compile(r"\[\[([AB<>=]+)\]\]")
_PROMETHEUS = re.compile(
    r"(?:\[RESULT\](?:\s+Response)?|\[RESULT:\s*|\[Response\s+|(?:^|\n)Result:?\s*)\s*(A|B)(?:\]|\s|$)",
    re.IGNORECASE | re.MULTILINE,
)
_COMPARED: Mapping[str, Verdict] = {"A>B": 1, "B>A": -1, "A=B": 0}


def arena_hard(text: str) -> Verdict:
    """All bracketed labels of both attempts have to be one and the same string; `>>` and `>` are two different ones."""
    labels = set(_ARENA_LABEL.findall(text))
    return _COMPARED.get(labels.pop().replace(">>", ">")) if len(labels) == 1 else None


def vanilla(text: str) -> Verdict:
    """The text is nothing but "Output (a)" or "Output (b)"."""
    return {"Output (a)": 1, "Output (b)": -1}.get(text.strip())


def panda_lm(text: str) -> Verdict:
    """The first line is 1 or 2; everything else is a tie."""
    return {"1": 1, "2": -1}.get(text.strip().split("\n")[0], 0)


def judge_lm(text: str) -> Verdict:
    """The first line is two numbers; everything else is a tie."""
    parts = text.split("\n")[0].replace(",", " ").split(" ")
    try:
        first, second = map(float, parts)
    except ValueError:
        return 0
    return sign(first, second) or 0


def auto_j(text: str) -> Verdict:
    """What follows the last "final decision is " begins with response 1, response 2 or tie."""
    _, found, decision = text.strip().rpartition("final decision is ")
    said = decision.strip().lower() if found else ""
    return next((v for name, v in (("response 1", 1), ("response 2", -1), ("tie", 0)) if said.startswith(name)), None)


def prometheus_2(text: str) -> Verdict:
    """A or B after a result mark; the first one counts."""
    found = _PROMETHEUS.search(text)
    return None if found is None else {"A": 1, "B": -1}[found[1].upper()]


def skywork_critic(text: str) -> Verdict:
    """Any capital A is a win of the first answer, else any capital B one of the second."""
    return 1 if "A" in text else -1 if "B" in text else None


JUDGEBENCH: Mapping[str, Reader] = {
    "arena_hard": arena_hard,
    "vanilla": vanilla,
    "panda_lm": panda_lm,
    "judge_lm": judge_lm,
    "auto_j": auto_j,
    "prometheus_2": prometheus_2,
    "skywork_critic": skywork_critic,
    "compass_judger": arena_hard,
}
"""By the name of the judge as JudgeBench has it."""


def judgebench_reader(judge: str) -> Reader:
    """The reader of a judge of JudgeBench; ConfigError with the nearest names for another."""
    if judge not in JUDGEBENCH:
        raise ConfigError(unknown_name("judge of JudgeBench", judge, JUDGEBENCH))
    return JUDGEBENCH[judge]


# -- LLMBar, LLMEvaluator/evaluators/config --------------------------------------------------------------------------------

_NAMED_FIRST = tuple(re.compile(rf"^ ?Output \({side}\)", re.MULTILINE) for side in "ab")
# the dot stands for any character but a line end: a text that ends in "better" is not read
_NAMED_BETTER = tuple(re.compile(rf"Output \({side}\) is better.") for side in "ab")

LLMBAR_METHODS = (
    "Vanilla",
    "Vanilla_NoRules",
    "Vanilla_1shot",
    "Vanilla_2shot",
    "CoT",
    "Metrics",
    "Reference",
    "Metrics_Reference",
    "Swap",
    "Swap_CoT",
    "Rating",
    "Rating_NoRules",
    "Rating_Metrics",
    "Rating_Reference",
    "Rating_Metrics_Reference",
)


def llmbar_answer(text: str) -> Verdict:
    """A line that begins with "Output (a)", else one with "Output (b)"."""
    return _first_of(_NAMED_FIRST, text)


def llmbar_explained(text: str) -> Verdict:
    """The sentence "Output (a) is better." anywhere, else the same of (b)."""
    return _first_of(_NAMED_BETTER, text)


def _first_of(patterns: tuple[re.Pattern[str], ...], text: str) -> Verdict:
    said = text.strip()
    return 1 if patterns[0].search(said) else -1 if patterns[1].search(said) else None


def llmbar_reader(evaluator: str, method: str, kind: str) -> Reader:
    """The reader of a text of LLMBar: what a judge explains at length names the better output, all else is the answer alone.

    `kind` is compare or synthesize, the second look of the swap methods. PaLM2 was asked for its answer first in every method.
    """
    if method not in LLMBAR_METHODS:
        raise ConfigError(unknown_name("method of LLMBar", method, LLMBAR_METHODS))
    if method == "CoT":
        return llmbar_answer if evaluator == "PaLM2" else llmbar_explained
    if method == "Swap":
        return llmbar_answer if kind == "synthesize" else llmbar_explained
    return llmbar_explained if method == "Swap_CoT" else llmbar_answer


def llmbar_ratings(first: str, second: str) -> tuple[Verdict, Verdict]:
    """The verdicts of two ratings in either order, both naming outputs: equal ones are right in exactly one order.

    So are two of which one is no whole number.
    """
    try:
        a, b = int(first), int(second)
    except ValueError:
        return 1, -1
    return (1 if a > b else -1), (-1 if b > a else 1)


# -- Auto-J ----------------------------------------------------------------------------------------------------------------

_RATING = re.compile(r"Rating: \[\[(\d+(?:\.\d+)?)\]\]")


def auto_j_rating(text: str) -> float | None:
    """The last "Rating: [[x]]"; None without one, where upstream gives 0."""
    found = _RATING.findall(text)
    return float(found[-1]) if found else None
