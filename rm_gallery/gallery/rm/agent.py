"""Rewards for agents: tool calls made, loops, and cost of a trajectory."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from itertools import groupby
from operator import eq
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

from rm_gallery.core.data.schema import DataOutput, DataSample
from rm_gallery.core.reward.rule import known, rule, shown
from rm_gallery.core.reward.schema import Example, sample_of
from rm_gallery.core.score import Score
from rm_gallery.core.text.blocks import read_json
from rm_gallery.core.text.canonical import fold
from rm_gallery.core.text.language import words
from rm_gallery.core.utils.errors import Unscored
from rm_gallery.gallery.rm.bounds import Count
from rm_gallery.gallery.rm.tool_calls import MadeCall, Untyped, as_call, listed_calls, tool_calls_of


@rule(
    "tool_call_match",
    needs="reference",
    looks_at="characters",
    example=Example(
        sample_of(
            "What is the weather in Oslo?",
            '<tool_call>{"name": "weather", "arguments": {"city": "Oslo"}}</tool_call>',
            '<tool_call>{"name": "weather", "arguments": {"city": "Rome"}}</tool_call>',
            tool_calls=[{"name": "weather", "arguments": {"city": "Oslo"}}],
        ),
        inputs={
            "answer": (
                "the tool calls of each `output[i].answer`, with `trajectory` also those of "
                "`output[i].steps`"
            ),
            "reference": "`tool_calls`, `expected_tool_calls` or `reference` in `answer.label` or `metadata`",
        },
    ),
)
def tool_call_match(
    sample: DataSample,
    *,
    ordered: bool = False,
    partial: bool = False,
    tolerant: bool = True,
    trajectory: bool = False,
) -> Score[float]:
    """1 when the answer makes exactly the expected tool calls, else 0; with `partial` F1 of the
    calls that fit.

    A call fits when name and arguments do: no argument missing or added. Expected calls come from
    answer.label or metadata, key `tool_calls`, `expected_tool_calls` or `reference`: OpenAI's
    layout, `{"name", "arguments"}`, or BFCL's possible answers
    `{"name": {"argument": [value, value, ""]}}`, where "" makes an argument optional. An empty list
    means that no call is expected. With tool definitions in metadata `tools`, an argument may be left out or given where
    it has its default.

    With `tolerant`, numbers are compared by value (5 equals 5.0, where BFCL takes 5 for 5.0 and not
    the reverse), and strings as BFCL does, without case, spaces and ,./-_*^ signs; true is never 1
    and "5" is never 5. Calls may come in any order unless `ordered`. The answer's calls are its
    `tool_calls` field, else `<tool_call>` tags, JSON or Python calls in its text; `trajectory` adds
    those of the steps.

    Range [0, 1], higher is better; unscored without expected calls. Source: the AST evaluation of
    the Berkeley Function Calling Leaderboard (Patil et al. 2025,
    https://gorilla.cs.berkeley.edu/leaderboard.html).
    """
    wanted = _expected_calls(sample)
    given, problems = tool_calls_of(sample.output[0], trajectory, sample.answer_text())
    defaults = tool_defaults((sample.metadata or {}).get("tools"))
    table = [
        [fits(call, want, tolerant, defaults.get(want.name, {})) for want in wanted]
        for call in given[:MOST_CALLS]
    ]
    pairs = in_order(table) if ordered else in_any_order(table)
    made = len(given) + len(problems)
    scored = match_score(pairs, made, len(wanted))
    unread = f" Unreadable: {problems[0][:120]}" if problems else ""
    score = scored.value if partial else float(pairs == len(wanted) == made)
    return Score(score, scored.reason + unread, extra=scored.extra)


Metric = Literal["f1", "precision", "recall", "jaccard"]


def match_score(
    matched: int, made: int, wanted: int, found: str = "made", metric: Metric = "f1"
) -> Score[float]:
    """The share of calls that fit; where none is made and none expected, nothing is missing."""
    whole = {
        "f1": (made + wanted) / 2,
        "jaccard": made + wanted - matched,
        "precision": made,
        "recall": wanted,
    }[metric]
    return Score(
        matched / whole if whole else float(made == wanted),
        f"{matched} of {wanted} expected calls {found}; {made} calls in all.",
        extra={"matched": matched, "made": made, "expected": wanted},
    )


def _expected_calls(sample: DataSample) -> list[ExpectedCall]:
    value = known(sample, "tool_calls", "expected_tool_calls", "reference", "ground_truth")
    if value is None:
        raise Unscored(
            "it needs the expected calls: set answer.label['tool_calls'] or metadata['tool_calls'].",
            reason="no_reference",
        )
    wanted = read_wanted(value)
    if not isinstance(wanted, str) and len(wanted) > MOST_CALLS:
        wanted = f"there are {len(wanted):,}, and at most {MOST_CALLS} are compared."
    if isinstance(wanted, str):
        raise Unscored(
            f"the expected calls cannot be read: {shown(value)}: {wanted}",
            reason="no_reference",
        )
    return wanted


MOST_CALLS = 500
"""So many calls of an answer are held against the expected ones; each further one matches nothing.
Work and memory grow with the product: 20,000 against 5,000 took two gigabytes.
"""


def in_order(table: Sequence[Sequence[int]]) -> int:
    """The most that fits when rows and columns are paired without crossing: of True and False the
    length of the longest common subsequence.
    """
    best = [0] * (len(table[0]) + 1 if table else 1)
    for row in table:
        before = best[:]
        for column, fit in enumerate(row):
            best[column + 1] = max(before[column] + fit, before[column + 1], best[column])
    return best[-1]


def in_any_order(table: list[list[bool]]) -> int:
    """Size of a maximum matching: possible answers may overlap, so a greedy match can miss one."""
    taken: dict[int, int] = {}
    return sum(_assign(row, table, taken, set()) for row in range(len(table)))


def _assign(row: int, table: list[list[bool]], taken: dict[int, int], seen: set[int]) -> bool:
    for column, fit in enumerate(table[row]):
        if fit and column not in seen:
            seen.add(column)
            if column not in taken or _assign(taken[column], table, taken, seen):
                taken[column] = row
                return True
    return False


_IGNORED = str.maketrans("'", '"', " ,./-_*^")


class ExpectedCall(NamedTuple):
    """An expected call: the accepted values of each argument, and the optional arguments."""

    name: str
    arguments: dict[str, list[Any]]
    optional: frozenset[str] = frozenset()


def read_wanted(value: Any) -> list[ExpectedCall] | str:
    """The expected calls in any layout that `tool_call_match` names, or what is wrong with them."""
    if isinstance(value, str):
        try:
            value = read_json(value)
        except ValueError as error:
            return f"no JSON ({error})."
    wanted = []
    for entry in listed_calls(value):
        call = _possible_answers(entry) or as_call(entry)
        if isinstance(call, str):
            return call
        if isinstance(call, MadeCall):
            call = ExpectedCall(
                call.name, {key: [argument] for key, argument in call.arguments.items()}
            )
        wanted.append(call)
    return wanted


def _possible_answers(entry: Any) -> ExpectedCall | None:
    """A call in BFCL's layout, None when it is in another one."""
    if not isinstance(entry, dict) or len(entry) != 1:
        return None
    name, arguments = next(iter(entry.items()))
    listed = isinstance(arguments, dict) and all(
        isinstance(values, list) for values in arguments.values()
    )
    if not listed or name in ("name", "arguments", "parameters", "function"):
        return None
    return ExpectedCall(
        name, arguments, frozenset(key for key, values in arguments.items() if "" in values)
    )


def tool_defaults(tools: Any) -> dict[str, dict[str, Any]]:
    """Each tool's arguments that have a default in its definition (OpenAI's layout)."""
    defaults: dict[str, dict[str, Any]] = {}
    for tool in tools if isinstance(tools, list | tuple) else ():
        function = _object(_object(tool).get("function", tool))
        properties = _object(function.get("parameters")).get("properties")
        if isinstance(properties, dict):  # else another definition of the tool may say it
            defaults[str(function.get("name"))] = {
                name: about["default"]
                for name, about in properties.items()
                if "default" in _object(about)
            }
    return defaults


def _object(value: Any) -> dict[str, Any]:
    """A JSON object; an empty one for what is none."""
    return value if isinstance(value, dict) else {}


def fits(call: MadeCall, wanted: ExpectedCall, tolerant: bool, defaults: dict[str, Any]) -> bool:
    """Whether a call has the wanted name and arguments."""
    missing = wanted.arguments.keys() - call.arguments.keys() - wanted.optional
    if call.name != wanted.name or not missing <= defaults.keys():
        return False
    given = call.arguments | {key: defaults[key] for key in missing}
    options = {key: [value] for key, value in defaults.items()} | wanted.arguments
    return all(
        any(same(value, option, tolerant) for option in options.get(key, ()))
        for key, value in given.items()
    )


def same(given: Any, wanted: Any, tolerant: bool) -> bool:
    """Whether two argument values are equal; `tolerant` as in `tool_call_match`."""
    if isinstance(given, Untyped):
        return same(str(given), wanted, tolerant) or (
            not isinstance(wanted, str) and same(_typed(given), wanted, tolerant)
        )
    if isinstance(given, bool) or isinstance(wanted, bool):
        return given is wanted
    if isinstance(given, int | float) and isinstance(wanted, int | float):
        return (
            nearly_equal(given, wanted)
            if tolerant
            else type(given) is type(wanted) and given == wanted
        )
    if isinstance(given, str) and isinstance(wanted, str):
        texts = [fold(given), fold(wanted)]
        if tolerant:
            texts = [text.translate(_IGNORED).lower() for text in texts]
        return texts[0] == texts[1]
    if isinstance(given, list | tuple) and isinstance(wanted, list | tuple):
        return len(given) == len(wanted) and all(
            same(a, b, tolerant) for a, b in zip(given, wanted, strict=True)
        )
    if isinstance(given, dict) and isinstance(wanted, dict):
        return _same_objects(given, wanted, tolerant)
    return bool(given == wanted)


def _typed(text: str) -> Any:
    """The JSON or Python value that a text between tags spells, else the text."""
    try:
        return read_json({"True": "true", "False": "false", "None": "null"}.get(text, text))
    except ValueError:
        return text


def _same_objects(given: dict[str, Any], wanted: dict[str, Any], tolerant: bool) -> bool:
    if given.keys() == wanted.keys() and all(
        same(given[key], wanted[key], tolerant) for key in wanted
    ):
        return True
    # BFCL lists the possible values of nested keys as well
    return (
        all(isinstance(options, list) for options in wanted.values())
        and given.keys() <= wanted.keys()
        and all("" in wanted[key] for key in wanted.keys() - given.keys())
        and all(
            any(same(value, option, tolerant) for option in wanted[key])
            for key, value in given.items()
        )
    )


def nearly_equal(given: float, wanted: float, tolerance: float = 1e-9) -> bool:
    """Whether two numbers differ by no more than this share of the larger one."""
    if given == wanted:
        return True
    try:
        return math.isclose(given, wanted, rel_tol=tolerance)
    except OverflowError:  # an integer beyond the range of floats
        return False


_MIN_LOOP_WORDS = 20


@rule(
    "loop_detection",
    looks_at="thought",
    example=Example(
        sample_of(
            "Find the error in the log.",
            "I open the log.\nLine 40 says that the disk is full.",
            "I open the log.\n" * 6 + "Line 40 says that the disk is full.",
        ),
        inputs={"answer": "the texts and tool calls of each `output[i]`, its steps and its answer"},
    ),
)
def loop_detection(
    sample: DataSample,
    *,
    min_repeats: Annotated[int, Field(ge=2)] = 3,
    max_period: Count = 10,
    max_word_period: Annotated[int, Field(ge=1, le=1000)] = 50,
) -> Score[float]:
    """1 - the largest share of repeated items, among a trajectory's tool calls, lines or words.

    A loop is a group of up to `max_period` items (`max_word_period` for words) that occurs
    `min_repeats` times or more in direct succession; all rounds but the first are repetition. Word
    loops are at least 20 words long, so "ha ha ha ha" is no loop. Tool calls are equal when name
    and arguments are. The trajectory is the texts and calls of the output's steps and its answer.
    Range [0, 1], higher is better: 1 is free of loops; an output without text and calls is unscored
    (`empty`).
    """
    output = sample.output[0]
    sequences = _sequences(output)
    if not any(sequences.values()):
        raise Unscored(
            "the output has neither text nor tool calls.",
            reason="empty",
            cause="answer",
        )
    shares = {}
    for sort, items in sequences.items():
        if items:
            most, least = (max_word_period, _MIN_LOOP_WORDS) if sort == "words" else (max_period, 1)
            shares[sort] = looping(items, min_repeats, most, least) / len(items)
    worst = max(shares, key=shares.__getitem__)
    reason = (
        f"{shares[worst]:.1%} of the {worst} repeat themselves."
        if shares[worst]
        else "No loop found."
    )
    return Score(1 - shares[worst], reason, extra=shares)


def _sequences(output: DataOutput) -> dict[str, list[str]]:
    messages = [*(output.steps or ()), output.answer]
    text = "\n".join(message.text for message in messages)
    calls = tool_calls_of(output, trajectory=True).calls
    return {
        "calls": [call.signature for call in calls],
        "lines": [
            line for line in map(str.strip, text.splitlines()) if any(map(str.isalnum, line))
        ],
        "words": words(text),
    }


def looping(
    items: Sequence[Hashable], min_repeats: int, max_period: int, min_items: int = 1
) -> int:
    """How many items repeat the items right before them.

    A loop is a group of up to `max_period` items that stands `min_repeats` times or more in direct
    succession, all its rounds together at least `min_items` long; every item after the first round
    counts, once however many loops it is in.
    """
    repeated = bytearray(len(items))
    for period in range(1, min(max_period, len(items) // min_repeats) + 1):
        position = period
        for same, run in groupby(map(eq, items[period:], items)):
            length = sum(1 for _ in run)
            if same and length >= max((min_repeats - 1) * period, min_items - period):
                repeated[position : position + length] = b"\x01" * length
            position += length
    return sum(repeated)


@rule(
    "trajectory_cost",
    needs="budget",
    example=Example(
        sample_of(
            "Book a table for two.",
            {"content": "Booked.", "label": {"steps": 4, "tokens": 800}},
            {"content": "Booked at last.", "label": {"steps": 9, "tokens": 4000}},
            budget={"steps": 6, "tokens": 2000},
        ),
        inputs={
            "answer": (
                "what each `output[i]` is recorded to have spent, in its label, its steps or its "
                "answer"
            )
        },
    ),
)
def trajectory_cost(
    sample: DataSample,
    *,
    max_cost: Annotated[float | None, Field(gt=0, allow_inf_nan=False)] = None,
    max_latency: Annotated[float | None, Field(gt=0, allow_inf_nan=False)] = None,
    max_steps: Annotated[int | None, Field(gt=0)] = None,
    max_tokens: Annotated[int | None, Field(gt=0)] = None,
    input_price: Annotated[float | None, Field(ge=0, allow_inf_nan=False)] = None,
    output_price: Annotated[float | None, Field(ge=0, allow_inf_nan=False)] = None,
) -> Score[float]:
    """How well a trajectory keeps its budgets: the minimum of min(1, budget / spent) over the
    budgets set.

    The score is 1 within every budget and 0.5 at twice a budget. Budgets are the fields (`max_cost`
    in any currency, `max_latency` in seconds, `max_steps`, `max_tokens` of input and output), else
    those in metadata `budget`, such as {"steps": 10}.

    What was spent is the first record of: the total in answer.label (`cost`, `latency`, `steps`,
    `tokens`); the sum over the output's steps and answer, of `cost`, `latency` and OpenAI's `usage`
    in their additional_kwargs; the total in the sample's metadata; for the cost, tokens at
    `input_price` and `output_price` per million. Range [0, 1], higher is better; unscored without a
    budget (`no_budget`) or when what it limits was not recorded (`no_record`).

    Args:
        max_cost: Budget for the cost, in any currency.
        max_latency: Budget for the time, in seconds.
        max_steps: Budget for the number of steps.
        max_tokens: Budget for tokens of input and output.
        input_price: Price of a million tokens of input, where the cost itself is not recorded.
        output_price: Price of a million tokens of output.
    """
    own = {"cost": max_cost, "latency": max_latency, "steps": max_steps, "tokens": max_tokens}
    budgets = _budgets((sample.metadata or {}).get("budget"), own)
    prices = None if input_price is None or output_price is None else (input_price, output_price)
    amounts = {metric: spent(sample, metric, prices) for metric in _NAMES}
    known = {metric: value for metric, value in amounts.items() if value is not None}
    shares = {}
    for metric, budget in budgets.items():
        if metric not in known:
            raise Unscored(f"no {metric} is recorded with the trajectory.", reason="no_record")
        shares[metric] = min(1.0, budget / known[metric]) if known[metric] else 1.0
    worst = min(shares, key=shares.__getitem__)
    reason = f"{worst}: {known[worst]:g} spent of {budgets[worst]:g}."
    return Score(shares[worst], reason, extra=known)


def _budgets(given: Any, own: Mapping[str, float | None]) -> dict[str, float]:
    limits = {
        metric: number(_object(given).get(metric)) if limit is None else limit
        for metric, limit in own.items()
    }
    budgets = {metric: float(limit) for metric, limit in limits.items() if limit}
    if not budgets:
        raise Unscored(
            "it needs a budget: set max_steps, max_tokens, max_cost, max_latency or "
            "metadata['budget'].",
            reason="no_budget",
        )
    return budgets


_NAMES = {
    "cost": ("cost", "cost_usd", "total_cost"),
    "latency": ("latency", "latency_seconds", "duration", "elapsed"),
    "steps": ("steps", "num_steps", "turns"),
    "tokens": ("tokens", "total_tokens"),
}
"""By metric, the keys it is recorded under."""


def spent(
    sample: DataSample, metric: str, prices: tuple[float, float] | None = None
) -> float | None:
    """How much of a metric the sample's one output spent, None when no record says.

    The first record counts: the total in answer.label; the sum over the steps and the answer (of
    their additional_kwargs; steps are counted); the total in the sample's metadata; for the cost,
    tokens times `prices` per million of input and of output.
    """
    output, metadata, names = sample.output[0], sample.metadata or {}, _NAMES[metric]
    records = [message.additional_kwargs for message in (*(output.steps or ()), output.answer)]
    used, told = _total_usage(records), _total_usage([metadata])
    parts: Sequence[float]
    priced: float | None = None
    if metric == "tokens":
        parts = used or ()
        priced = sum(told) if told else None
    elif metric == "steps":
        parts = [1.0] * len(output.steps or ())
    else:
        parts = [part for record in records if (part := _first_number(record, names)) is not None]
        if metric == "cost" and prices and (tokens := used or told):
            priced = (tokens[0] * prices[0] + tokens[1] * prices[1]) / 1e6
    totals = (
        _first_number(output.answer.label or {}, names),
        math.fsum(parts) if parts else None,
        _first_number(metadata, names),
        priced,
    )
    return next((total for total in totals if total is not None), None)


def number(value: Any) -> float | None:
    """A finite number that is not negative, else None."""
    fits = type(value) is not bool and isinstance(value, int | float) and 0 <= value < math.inf
    return float(value) if fits else None


def _total_usage(records: list[dict[str, Any]]) -> tuple[float, float] | None:
    usages = [usage for record in records if (usage := _token_usage(record)) is not None]
    if not usages:
        return None
    given, made = map(math.fsum, zip(*usages, strict=True))
    return given, made


def _token_usage(source: dict[str, Any]) -> tuple[float, float] | None:
    """Input and output tokens recorded as OpenAI's `usage`; a total alone counts as input."""
    usage = _object(source.get("usage"))
    given = _first_number(usage, ("input_tokens", "prompt_tokens"))
    made = _first_number(usage, ("output_tokens", "completion_tokens"))
    if given is None and made is None:
        total = number(usage.get("total_tokens"))
        return None if total is None else (total, 0.0)
    return given or 0.0, made or 0.0


def _first_number(source: dict[str, Any], names: tuple[str, ...]) -> float | None:
    return next(
        (amount for name in names if (amount := number(source.get(name))) is not None), None
    )
