"""Are these the tool calls that were wanted?"""

from __future__ import annotations

from typing import Any, ClassVar

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.reward.example import Example, sample_of
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.schema import RewardResult
from rm_gallery.core.utils.errors import Unscored
from rm_gallery.gallery.rm.agent.expected_calls import Wanted, fits, read_wanted, tool_defaults
from rm_gallery.gallery.rm.agent.tool_calls import ToolCall, tool_calls_of
from rm_gallery.gallery.rm.rule import RuleReward, known, one_score, shown


@RewardRegistry.register("tool_call_match")
class ToolCallMatchReward(RuleReward):
    """1 when the answer makes exactly the expected tool calls, else 0; with `partial` F1 of the calls that fit.

    A call fits when name and arguments do: no argument missing or added. Expected calls come from answer.label or
    metadata, key `tool_calls`, `expected_tool_calls` or `reference`: OpenAI's layout, `{"name", "arguments"}`, or
    BFCL's possible answers `{"name": {"argument": [value, value, ""]}}`, where "" makes an argument optional. An empty
    list says that no call is right. With tool definitions in metadata `tools`, an argument may be left out or given
    where it has its default.

    With `tolerant`, values are compared as BFCL does: 5 equals 5.0, and strings ignore case, spaces and ,./-_*^ signs;
    true is never 1 and "5" is never 5. Calls may come in any order unless `ordered`. The answer's calls are its
    `tool_calls` field, else `<tool_call>` tags, JSON or Python calls in its text; `trajectory` adds those of the steps.

    Range [0, 1], higher is better; unscored without expected calls. Source: the AST evaluation of the Berkeley Function
    Calling Leaderboard (Patil et al. 2025, https://gorilla.cs.berkeley.edu/leaderboard.html).
    """

    score_range: ClassVar[tuple[float | None, float | None]] = (0.0, 1.0)
    needs: ClassVar[frozenset[str]] = frozenset({"reference"})

    name: str = "tool_call_match"
    ordered: bool = False
    partial: bool = False
    tolerant: bool = True
    trajectory: bool = False

    example = Example(
        sample_of(
            "What is the weather in Oslo?",
            '<tool_call>{"name": "weather", "arguments": {"city": "Oslo"}}</tool_call>',
            '<tool_call>{"name": "weather", "arguments": {"city": "Rome"}}</tool_call>',
            tool_calls=[{"name": "weather", "arguments": {"city": "Oslo"}}],
        ),
        inputs={
            "answer": "the tool calls of each `output[i].answer`, with `trajectory` also those of `output[i].steps`",
            "reference": "`tool_calls`, `expected_tool_calls` or `reference` in `answer.label` or `metadata`",
        },
    )

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        """Pair the calls made with those expected."""
        wanted = self._wanted(sample)
        given, problems = tool_calls_of(sample.output[0], self.trajectory)
        defaults = tool_defaults((sample.metadata or {}).get("tools"))
        table = [[fits(call, want, self.tolerant, defaults.get(want.name, {})) for want in wanted] for call in given]
        pairs = _in_order(table) if self.ordered else _in_any_order(table)
        made = len(given) + len(problems)
        total = made + len(wanted)
        f1 = 2 * pairs / total if total else 1.0
        reason = f"{pairs} of {len(wanted)} expected calls made; {made} calls in all."
        if problems:
            reason += f" Unreadable: {problems[0][:120]}"
        score = f1 if self.partial else float(pairs == len(wanted) == made)
        return one_score(self.name, score, reason, {"matched": pairs, "expected": len(wanted), "made": made})

    def _wanted(self, sample: DataSample) -> list[Wanted]:
        value = known(sample, "tool_calls", "expected_tool_calls", "reference", "ground_truth")
        if value is None:
            raise Unscored(
                f"{self.name} needs the expected calls: set answer.label['tool_calls'] or metadata['tool_calls'].",
                reason="no_reference",
            )
        wanted = read_wanted(value)
        if isinstance(wanted, str):
            raise Unscored(
                f"{self.name} cannot read the expected calls {shown(value)}: {wanted}", reason="no_reference"
            )
        return wanted


def match_count(given: list[ToolCall], wanted: list[Wanted], *, ordered: bool = False, tolerant: bool = True) -> int:
    """How many of the calls fit a wanted one, each used once."""
    table = [[fits(call, want, tolerant, {}) for want in wanted] for call in given]
    return _in_order(table) if ordered else _in_any_order(table)


def _in_order(table: list[list[bool]]) -> int:
    """Length of the longest common subsequence."""
    best = [0] * (len(table[0]) + 1 if table else 1)
    for row in table:
        before = best[:]
        for column, fit in enumerate(row):
            best[column + 1] = before[column] + 1 if fit else max(before[column + 1], best[column])
    return best[-1]


def _in_any_order(table: list[list[bool]]) -> int:
    """Size of a maximum matching: possible answers may overlap, so the first fit is not always the right one."""
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
