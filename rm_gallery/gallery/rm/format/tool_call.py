"""The format `<think>…</think>` followed by an answer or by tool calls."""

from __future__ import annotations

from typing import Any

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.reward.example import Example, sample_of
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.schema import RewardResult
from rm_gallery.core.text.blocks import tagged
from rm_gallery.gallery.rm.agent.tool_calls import calls_of_message, read_call
from rm_gallery.gallery.rm.format.tags import the_section
from rm_gallery.gallery.rm.rule import RuleReward, answer_text, one_score


@RewardRegistry.register("reasoning_tool_call_format")
class ReasoningToolCallFormatReward(RuleReward):
    """1 when one thought is followed by either one `<answer>` or one or more `<tool_call>`s, else 0.

    Tool calls hold a JSON object with a name and an object of arguments; calls in the answer's `tool_calls` field stand
    for those in the text. Tags occur in pairs, no section is blank (a thought may be with `allow_empty`), and nothing
    but white space stands outside. `prefilled` is for prompts that already end in `<think>`. Range [0, 1], higher is
    better.
    """

    name: str = "reasoning_tool_call_format"
    allow_empty: bool = False
    prefilled: bool = False

    example = Example(
        sample_of(
            "What is the weather in Oslo?",
            '<think>I look it up.</think><tool_call>{"name": "weather", "arguments": {"city": "Oslo"}}</tool_call>',
            "<think>I look it up.</think><tool_call>weather in Oslo</tool_call>",
        )
    )

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        """Look for the sections."""
        message = sample.output[0].answer
        text = answer_text(sample)
        field = calls_of_message(message) if message.tool_calls else None
        if field is not None and field.problems:
            problem: str | None = field.problems[0]
        else:
            text = f"<think>{text}" if self.prefilled else text
            problem = format_problem(text, allow_empty=self.allow_empty, calls_elsewhere=field is not None)
        return one_score(self.name, 0.0 if problem else 1.0, problem or "The format is right.")


def format_problem(text: str, *, allow_empty: bool = False, calls_elsewhere: bool = False) -> str | None:
    """What is wrong with the format of a text; None when it is right.

    Args:
        text: the whole text.
        allow_empty: whether the thought may be blank.
        calls_elsewhere: whether the tool calls are given outside the text, which then holds the thought alone.
    """
    thought = the_section(text, "think")
    if isinstance(thought, str):
        return thought
    if text[: thought.start].strip():
        return "There is text before the thought."
    if not allow_empty and not thought.content.strip():
        return "The thought is empty."
    if any(tag in thought.content for tag in ("<answer>", "<tool_call>")):
        return "The thought holds an answer or a tool call."
    rest = text[thought.end :]
    if calls_elsewhere:
        return "There is text beside the tool calls." if rest.strip() else None
    if "<tool_call>" in rest or "</tool_call>" in rest:
        return _calls_problem(rest)
    answer = the_section(rest, "answer")
    if isinstance(answer, str):
        return answer
    if not answer.content.strip():
        return "The answer is empty."
    return "There is text outside the sections." if (rest[: answer.start] + rest[answer.end :]).strip() else None


def _calls_problem(rest: str) -> str | None:
    if "<answer>" in rest or "</answer>" in rest:
        return "There are both an answer and a tool call."
    calls, outside = tagged(rest, "tool_call")
    if outside.strip():
        return "A tool_call tag is not closed, or there is text outside the sections."
    return next((call for call in map(read_call, calls) if isinstance(call, str)), None)
