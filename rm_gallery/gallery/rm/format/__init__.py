"""Format rewards: tagged thought and answer, tool calls, JSON that fits a schema."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import lru_cache
from itertools import islice
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, Field

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.reward.rule import (
    known,
    rule,
    shown,
)
from rm_gallery.core.reward.schema import Example, sample_of
from rm_gallery.core.score import Score
from rm_gallery.core.text.blocks import read_json, tagged
from rm_gallery.core.text.canonical import folded, split_reasoning
from rm_gallery.core.utils.errors import ConfigError, Unscored
from rm_gallery.gallery.rm.bounds import AS_WRITTEN, Share
from rm_gallery.gallery.rm.tool_calls import Calls, ToolCalls, read_call, recorded_calls, unfenced


def _format_score(problem: str | None) -> Score[float]:
    return Score(float(problem is None), problem or "The format is right.")


class Section(NamedTuple):
    """A tagged section: its content, and where it begins and ends, tags included."""

    content: str
    start: int
    end: int


def the_section(text: str, tag: str) -> Section | str:
    """The only `<tag>…</tag>` of a text, or a sentence that says why there is not exactly one."""
    opening, closing = f"<{tag}>", f"</{tag}>"
    counts = text.count(opening), text.count(closing)
    if counts != (1, 1):
        return f"{counts[0]} {opening} and {counts[1]} {closing}; one of each is expected."
    start, stop = text.index(opening), text.index(closing)
    if stop < start:
        return f"{closing} stands before {opening}."
    return Section(text[start + len(opening) : stop], start, stop + len(closing))


def tag_name(value: str) -> str:
    """A field's tag name, checked: ConfigError unless it is a plain name without brackets."""
    if not value or any(c in "<>/ \t\r\n" for c in value):
        raise ConfigError(f"{value!r} is no tag name; give it without brackets, such as 'think'.")
    return value


TagName = Annotated[str, AfterValidator(tag_name)]


@rule(
    "xml_tag_count",
    looks_at=AS_WRITTEN,
    example=Example(
        sample_of(
            "What is six times seven?",
            "<think>6 · 7 = 42</think><answer>42</answer>",
            "<think>6 · 7 = 42</think>42",
        )
    ),
)
def xml_tag_count(
    text: str,
    *,
    tags: Annotated[tuple[TagName, ...], Field(min_length=1)] = ("think", "answer"),
    own_lines: bool = False,
) -> Score[float]:
    """Share of the wanted opening and closing tags that occur exactly once.

    For the default tags think and answer each of the four is worth 0.25, as in open-r1's
    `tag_count_reward`; with `own_lines` a tag counts only if it stands on a line of its own. Order
    does not matter; reasoning_format checks it. Range [0, 1], higher is better.

    Args:
        tags: Names of the wanted tags.
    """
    wanted = [tag for name in tags for tag in (f"<{name}>", f"</{name}>")]
    if own_lines:
        text = f"\n{text}\n"
        missing = [tag for tag in wanted if text.count(f"\n{tag}\n") != 1 or text.count(tag) != 1]
    else:
        missing = [tag for tag in wanted if text.count(tag) != 1]
    reason = f"Not exactly once: {', '.join(missing)}." if missing else "Each tag occurs once."
    return Score(1 - len(missing) / len(wanted), reason)


_LENIENT = re.compile(r"<think>(?!.*<think>)(.*?)</think>.*", re.DOTALL)


@rule(
    "think_format",
    looks_at=AS_WRITTEN,
    example=Example(
        sample_of(
            "What is six times seven?",
            "<think>6 · 7 = 42</think>42",
            "42",
            "<think>6 · 7 = 42</think>",
        )
    ),
)
def think_format(
    text: str,
    thought_opened: bool = False,
    *,
    strict: bool = True,
    prefilled: bool = False,
) -> Score[float]:
    """1 when the text starts with one thought, `<think>…</think>`, and an answer follows, else 0.

    Strict: each tag occurs exactly once, the thought begins the text, and neither the thought nor
    what follows is blank. With `strict=False` the rule is that of TRL's `think_format_reward`,
    which also takes an empty thought, a second `</think>` and no answer. `prefilled` is for prompts
    that already end in `<think>` and of which the data do not say so (`thought_opened`). Range
    [0, 1], higher is better. Source: the format of DeepSeek-R1 (arXiv 2501.12948).
    """
    text = f"<think>{text}" if prefilled and not thought_opened else text
    thought, problem = the_section(text, "think"), None
    if not strict:
        if not _LENIENT.match(text):
            problem = "The text does not start with one <think>…</think>."
    elif isinstance(thought, str):
        problem = thought
    elif thought.start:
        problem = "There is text before <think>."
    elif not thought.content.strip():
        problem = "The thought is empty."
    elif not text[thought.end :].strip():
        problem = "No answer follows the thought."
    return _format_score(problem)


@rule(
    "reasoning_format",
    looks_at=AS_WRITTEN,
    example=Example(
        sample_of(
            "What is six times seven?",
            "<think>6 · 7 = 42</think><answer>42</answer>",
            "<think>6 · 7 = 42</think>42",
        )
    ),
)
def reasoning_format(
    text: str,
    thought_opened: bool = False,
    *,
    think_token: TagName = "think",
    answer_token: TagName = "answer",
    allow_outside: bool = False,
    allow_empty: bool = False,
    prefilled: bool = False,
) -> Score[float]:
    """1 when the answer is one thought followed by one answer,
    `<think>…</think><answer>…</answer>`, else 0.

    Each tag occurs exactly once and in this order, both sections have text in them (`allow_empty`
    lifts that for the thought) and nothing but white space stands outside (`allow_outside` lifts
    that). `prefilled` is for prompts that already end in the opening think tag, where the data do not
    say so (`thought_opened`). Range [0, 1],
    higher is better. Source: the format reward of DeepSeek-R1 (arXiv 2501.12948, section 2.2.2).

    Args:
        think_token: Name of the thought's tag.
        answer_token: Name of the answer's tag.
    """
    text = f"<{think_token}>{text}" if prefilled and not thought_opened else text
    thought, answer = the_section(text, think_token), the_section(text, answer_token)
    problem = None
    if isinstance(thought, str):
        problem = thought
    elif isinstance(answer, str):
        problem = answer
    elif answer.start < thought.end:
        problem = f"<{answer_token}> does not come after </{think_token}>."
    elif not allow_empty and not thought.content.strip():
        problem = "The thought is empty."
    elif not answer.content.strip():
        problem = "The answer is empty."
    elif (
        not allow_outside
        and (text[: thought.start] + text[thought.end : answer.start] + text[answer.end :]).strip()
    ):
        problem = "There is text outside the two sections."
    return _format_score(problem)


@rule(
    "reasoning_tool_call_format",
    looks_at=AS_WRITTEN,
    example=Example(
        sample_of(
            "What is the weather in Oslo?",
            '<think>I look it up.</think><tool_call>{"name": "weather", "arguments": {"city": '
            '"Oslo"}}</tool_call>',
            "<think>I look it up.</think><tool_call>weather in Oslo</tool_call>",
        )
    ),
)
def reasoning_tool_call_format(
    sample: DataSample,
    text: str,
    thought_opened: bool = False,
    *,
    allow_empty: bool = False,
    prefilled: bool = False,
) -> Score[float]:
    """1 when one thought is followed by either one `<answer>` or one or more `<tool_call>`s, else
    0.

    Tool calls hold a JSON object with a name and an object of arguments; calls in the answer's
    `tool_calls` field stand for those in the text. Tags occur in pairs, no section is blank (a
    thought may be with `allow_empty`), and nothing but white space stands outside. `prefilled` is
    for prompts that already end in `<think>` and of which the data do not say so
    (`thought_opened`). Range [0, 1], higher is better.
    """
    recorded = recorded_calls(sample.output[0].answer)
    text = f"<think>{text}" if prefilled and not thought_opened else text
    return _format_score(
        _first_problem(recorded)
        or format_problem(text, allow_empty=allow_empty, calls_elsewhere=bool(recorded))
    )


def _first_problem(read: Calls) -> str | None:
    return next(iter(ToolCalls.of(read).problems), None)


def format_problem(
    text: str, *, allow_empty: bool = False, calls_elsewhere: bool = False
) -> str | None:
    """What is wrong with the format of a text, or None.

    Args:
        text: the whole text.
        allow_empty: whether the thought may be blank.
        calls_elsewhere: whether the tool calls are given outside the text, which then holds the
            thought alone.
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
    return (
        "There is text outside the sections."
        if (rest[: answer.start] + rest[answer.end :]).strip()
        else None
    )


def _calls_problem(rest: str) -> str | None:
    if "<answer>" in rest or "</answer>" in rest:
        return "There are both an answer and a tool call."
    calls, outside = tagged(rest, "tool_call")
    if outside.strip():
        return "A tool_call tag is not closed, or there is text outside the sections."
    return _first_problem(list(map(read_call, calls)))


_MAX_PROBLEMS = 5


def _is_schema(value: dict[str, Any] | bool | None) -> dict[str, Any] | bool | None:
    if value is not None and (problem := schema_problem(value)):
        raise ConfigError(problem)
    return value


@rule(
    "json_schema",
    needs="schema",
    looks_at="characters",
    killable=True,
    example=Example(
        sample_of(
            "Give name and age as JSON.",
            '{"name": "Ada", "age": 36}',
            '{"name": "Ada", "age": "36"}',
            "Ada is 36.",
            schema={
                "type": "object",
                "properties": {"age": {"type": "integer"}},
                "required": ["name", "age"],
            },
        ),
        inputs={
            "schema": (
                "the field `json_schema`, else `schema` or `json_schema` in `answer.label` or "
                "`metadata`"
            )
        },
    ),
)
def json_schema(
    sample: DataSample,
    text: str,
    *,
    json_schema: Annotated[dict[str, Any] | bool | None, AfterValidator(_is_schema)] = None,
    syntax_credit: Share = 0.0,
    allow_fence: bool = True,
    check_formats: bool = False,
) -> Score[float]:
    """1 when the answer is JSON that fits the schema, `syntax_credit` when it is JSON that does
    not, else 0.

    The schema is the field `json_schema`, else `schema` in answer.label or metadata; its dialect is
    that of its `$schema`, else draft 2020-12. References to other documents are not fetched. The
    JSON is the whole answer after a thought, or its single fenced block (`allow_fence`); an answer
    with other text around the JSON gets 0. `check_formats` also checks formats such as "date".
    Range [0, 1], higher is better; unscored without a schema (`no_schema`) or with a broken one in
    the sample (`invalid_schema`). `extra_data` lists the first problems with their paths.

    Args:
        syntax_credit: The score of JSON that does not fit the schema.
    """
    schema = _wanted_schema(sample, json_schema=json_schema)
    try:
        value = read_json(json_part(text, allow_fence))
    except ValueError as error:
        return Score(0.0, f"The answer is no JSON: {error}")
    problems = schema_problems(value, schema, check_formats)
    # a constant may hold a joiner that the answer does not
    if problems and isinstance(schema, dict):
        problems = schema_problems(folded(value), folded(schema), check_formats) and problems
    if not problems:
        return Score(1.0, "The answer fits the schema.")
    return Score(syntax_credit, f"It is JSON, but {problems[0]}", extra={"problems": problems})


def _wanted_schema(
    sample: DataSample, *, json_schema: dict[str, Any] | bool | None
) -> dict[str, Any] | bool:
    schema = json_schema if json_schema is not None else known(sample, "schema", "json_schema")
    if isinstance(schema, str):
        try:
            schema = read_json(schema)
        except ValueError as error:
            raise Unscored(
                f"the sample's schema is no JSON: {error}", reason="invalid_schema"
            ) from None
    if schema is None:
        raise Unscored(
            "it needs a schema: set the field json_schema or metadata['schema'].",
            reason="no_schema",
        )
    if problem := schema_problem(schema):
        raise Unscored(problem, reason="invalid_schema")
    checked: dict[str, Any] | bool = schema
    return checked


def json_part(text: str, allow_fence: bool = True) -> str:
    """The part of an answer that is to be JSON: what follows a thought, without the fence around
    all of it.
    """
    text = split_reasoning(text).final.strip()
    return unfenced(text) if allow_fence else text


def schema_problem(schema: Any) -> str | None:
    """Why a value is not a JSON Schema, or None."""
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import Draft202012Validator, validator_for

    if not isinstance(schema, dict | bool):
        return f"A schema is an object or a boolean; found {type(schema).__name__}."
    try:
        validator_for(schema, default=Draft202012Validator).check_schema(schema)
    except SchemaError as error:
        return f"The schema is broken at {error.json_path}: {error.message[:200]}"
    return None


def schema_problems(
    value: Any, schema: dict[str, Any] | bool, check_formats: bool = False
) -> list[str]:
    """The first problems of a JSON value with a valid schema, as "path: message"."""
    from referencing.exceptions import Unresolvable

    try:
        errors_of = _schema_validator(json.dumps(schema, sort_keys=True), check_formats)
        errors = list(islice(errors_of(value), _MAX_PROBLEMS))
    except Unresolvable as error:
        raise Unscored(
            f"The schema refers to {shown(error.ref)}, which it does not hold.",
            reason="invalid_schema",
        ) from None
    except RecursionError:
        return ["$: nested too deeply to be checked"]
    return [f"{error.json_path[:200]}: {error.message[:200]}" for error in errors]


@lru_cache(maxsize=128)
def _schema_validator(schema_text: str, check_formats: bool) -> Callable[[Any], Any]:
    from jsonschema import FormatChecker
    from jsonschema.validators import Draft202012Validator, validator_for
    from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]  # it has no stubs

    schema = json.loads(schema_text)
    validator = validator_for(schema, default=Draft202012Validator)
    # without a registry the library would fetch references from the network
    errors: Callable[[Any], Any] = validator(
        schema, registry=REGISTRY, format_checker=FormatChecker() if check_formats else None
    ).iter_errors
    return errors
