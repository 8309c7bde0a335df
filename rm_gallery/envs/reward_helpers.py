"""Small helpers for `compute_reward`: the text to score, its answer block, citations, overlap and
tool calls.

They read a completion as trainers hand it over: a text, or a list of messages (dicts or objects
with `role` and `content`). A null content, a list of content parts and structured tool calls are
read too. Nothing here raises over what a model wrote.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any, Literal

from rm_gallery.core.model.message import text_of
from rm_gallery.core.text.canonical import compared, fold, split_reasoning
from rm_gallery.core.utils.errors import ConfigError

__all__ = [
    "citation_score",
    "clip01",
    "count_search_calls",
    "extract_answer_block",
    "extract_completion_text",
    "extract_strict_answer",
    "overlap_reward",
    "percent_of_text_a_in_text_b",
    "search_within_budget",
    "tool_call_efficiency",
]

Completion = str | Sequence[Any] | None
_OPENING, _CLOSING = (re.compile(tag, re.IGNORECASE) for tag in ("<answer>", "</answer>"))
_SOURCE = re.compile(r"\[source:", re.IGNORECASE)
_CALL = "<tool_call>"
MANY_CALLS = 4
"""Tool calls in one message from which on `overlap_reward` takes the overlap for bought."""


def _field(message: Any, name: str) -> Any:
    return message.get(name) if isinstance(message, Mapping) else getattr(message, name, None)


def _role(message: Any) -> str:
    role = _field(message, "role")
    return str(getattr(role, "value", role))


def _message_text(message: Any) -> str:
    return text_of(_field(message, "content"))


def _as_messages(completion: Completion) -> Sequence[Any]:
    return (
        completion
        if isinstance(completion, Sequence) and not isinstance(completion, str | bytes)
        else ()
    )


def _spoken(completion: Completion, by_model: bool = True) -> list[Any]:
    """The messages of the assistant, or those of all others."""
    messages = _as_messages(completion)
    return [message for message in messages if (_role(message) == "assistant") is by_model]


def extract_completion_text(completion: Completion, which: Literal["all", "last"] = "all") -> str:
    """The text a model wrote.

    Args:
        completion: a text, a list of messages, or None.
        which: `all` joins the texts of all assistant messages that are not blank with newlines, and
            leaves a text as it is. `last` gives the last message's text, stripped, and nothing when
            somebody else speaks last: earlier turns are then the way to the answer and not the
                answer.

    Returns:
        The text; "" where there is none.

    Raises:
        ConfigError: `which` is neither.
    """
    if which not in ("all", "last"):
        raise ConfigError(f"extract_completion_text: which is {which!r}; it is 'all' or 'last'.")
    if isinstance(completion, str):
        return completion if which == "all" else completion.strip()
    if which == "last":
        messages = _as_messages(completion)
        return (
            _message_text(messages[-1]).strip()
            if messages and _role(messages[-1]) == "assistant"
            else ""
        )
    texts = map(_message_text, _spoken(completion))
    return "\n".join(text for text in texts if text.strip())


def extract_answer_block(text: str | None) -> str:
    """What stands in the first `<answer>…</answer>`, stripped; the whole stripped text where there
    is none.

    It suits a model that is still to learn the tags. It can be played by writing the answer into
    the reasoning: `extract_strict_answer` cannot.
    """
    text = text or ""
    return next(_blocks(text), text).strip()


def _blocks(text: str) -> Iterator[str]:
    """The closed blocks, one after the other; in one pass, since a model in a loop writes a tag
    thousands of times.
    """
    at = 0
    while (opening := _OPENING.search(text, at)) and (
        closing := _CLOSING.search(text, opening.end())
    ):
        yield text[opening.end() : closing.start()]
        at = closing.end()


def extract_strict_answer(text: str | None) -> str:
    """What stands in the last closed `<answer>…</answer>`, else after the last `<answer>`, else "":
    never the reasoning.

    What stands in a thought (`<think>`, `[THINK]`, `<思考>`, …), also one that never ends, is no
    answer.
    """
    text = split_reasoning(text or "").final
    blocks = list(_blocks(text))
    if blocks:
        # an opening tag inside a block starts the answer anew
        return _OPENING.split(blocks[-1])[-1].strip()
    return _OPENING.split(text)[-1].strip() if _OPENING.search(text) else ""


def clip01(value: Any) -> float:
    """The value as a float in [0, 1]; 0.0 for what is no finite number."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return 0.0
    return max(0.0, min(1.0, number)) if math.isfinite(number) else 0.0


def count_search_calls(completion: Completion) -> int:
    """Number of tool calls the model made: `<tool_call>` tags in its text, or structured
    `tool_calls`.

    A message that has both, as servers that parse the tags leave behind, counts the larger number.
    """
    if isinstance(completion, str):
        return completion.count(_CALL)
    return sum(map(_calls, _spoken(completion)))


def _calls(message: Any) -> int:
    structured = _field(message, "tool_calls")
    return max(
        _message_text(message).count(_CALL),
        len(structured) if isinstance(structured, Sequence) else 0,
    )


def search_within_budget(calls: int, max_calls: int) -> bool:
    """Whether at most `max_calls` calls were made."""
    return calls <= max_calls


def percent_of_text_a_in_text_b(text_a: str | None, text_b: str | None) -> float:
    """The share of `text_a` found in `text_b`, in order, [0, 1]: difflib's matching blocks over the
    length of `text_a`.

    1.0 where `text_b` holds `text_a` as it is, 0.0 for an empty `text_a`. As difflib does,
    characters that make up more than one per cent of a `text_b` of 200 characters and more begin no
    match, so that unrelated prose stays near 0.
    """
    if not text_a or not text_b:
        return 0.0
    if text_a in text_b:
        return 1.0
    matched = sum(
        block.size for block in SequenceMatcher(None, text_a, text_b).get_matching_blocks()
    )
    return matched / len(text_a)


def overlap_reward(
    completion: Completion,
    ground_truth: Any = None,
    *,
    reference_chunks: Sequence[Any] | None = None,
    minimum_overlap: float = 0.25,
    **_: Any,
) -> float:
    """How much of the reference the tools brought back, [0, 1].

    The reference is `reference_chunks` (texts, or dicts with `content`), else `ground_truth`. What
    it is looked for in is everything that is not the assistant's, of a plain text all of it. 0.0
    for an overlap below `minimum_overlap`, and where one assistant message holds four tool calls or
    more.

    Raises:
        ConfigError: `minimum_overlap` lies outside [0, 1].
    """
    if not 0 <= minimum_overlap <= 1:
        raise ConfigError(
            f"overlap_reward: minimum_overlap is {minimum_overlap!r}; it is a share, 0 to 1."
        )
    chunks = [
        str(chunk.get("content") or "") if isinstance(chunk, Mapping) else str(chunk)
        for chunk in reference_chunks or ()
    ]
    reference = " ".join(chunks) if chunks else str(ground_truth or "")
    if isinstance(completion, str):
        searched = completion
    else:
        if max(map(_calls, _spoken(completion)), default=0) >= MANY_CALLS:
            return 0.0
        searched = " ".join(map(_message_text, _spoken(completion, by_model=False)))
    share = percent_of_text_a_in_text_b(fold(reference), fold(searched))
    return share if share >= minimum_overlap else 0.0


def citation_score(
    completion: Completion,
    reference_chunks: Sequence[Any] | None,
    *,
    source_field: str | Sequence[str] = "source_id",
    canonicalize: Callable[[str], str] | None = None,
) -> dict[str, float]:
    """Precision and recall of the sources an answer cites as `[Source: id]`, upper or lower case.

    Args:
        completion: a text, or messages, of which the assistant's count.
        reference_chunks: the chunks to be cited, each a dict with `metadata`.
        source_field: the field of `metadata` with a chunk's id; of several the first that is
            filled.
        canonicalize: applied to cited ids and chunks' ids alike, such as `str.casefold`; ids are
            stripped without one.

    Returns:
        {"precision": …, "recall": …}, each in [0, 1]; both 0.0 where nothing is cited or nothing is
        to be cited.
    """
    fields = [source_field] if isinstance(source_field, str) else list(source_field)
    normal = canonicalize or compared
    cited = {normal(source) for source in _cited(extract_completion_text(completion))} - {""}
    known = {normal(_source(chunk, fields)) for chunk in reference_chunks or ()} - {""}
    if not cited or not known:
        return {"precision": 0.0, "recall": 0.0}
    right = len(cited & known)
    return {"precision": right / len(cited), "recall": right / len(known)}


def _cited(text: str) -> Iterator[str]:
    """What stands in each `[Source: …]`; in one pass, as in `_blocks`."""
    for part in text.split("]")[:-1]:
        begins = _SOURCE.search(part)
        if begins and begins.end() < len(part):
            yield part[begins.end() :]


def _source(chunk: Any, fields: Sequence[str]) -> str:
    metadata = _field(chunk, "metadata")
    if not isinstance(metadata, Mapping):
        return ""
    filled = (metadata[field] for field in fields if metadata.get(field) not in (None, ""))
    return str(next(filled, ""))


def tool_call_efficiency(
    completion: Completion,
    *,
    correctness: float = 1.0,
    correctness_raw: float | None = None,
    reference_chunk_count: int = 0,
    max_calls: int = 10,
    decay_rate: float = 0.2,
    ranges: Sequence[tuple[int, int | None, float]] | None = None,
) -> float:
    """How few tool calls a right answer took, [0, 1].

    The score is `correctness × exp(-decay_rate × max(0, calls - (reference_chunk_count + 2)))`; 0.0
    for a wrong answer (`correctness` of 0 or less) and above `max_calls`. With `ranges` it is the
    score of the first range `(fewest, most or None, score)` that holds the number of calls, 0.0
    where none does.

    Args:
        completion: a text, or messages; see `count_search_calls`.
        correctness: how right the answer is, clipped to [0, 1].
        correctness_raw: its other name, which wins where it is given.
        reference_chunk_count: how many chunks there were to be found.
        max_calls: more calls than these are worth nothing.
        decay_rate: how much each further call costs.
        ranges: a table instead of the formula.

    Raises:
        ConfigError: `reference_chunk_count`, `max_calls` or `decay_rate` is negative.
    """
    numbers = {
        "reference_chunk_count": reference_chunk_count,
        "max_calls": max_calls,
        "decay_rate": decay_rate,
    }
    for name, number in numbers.items():
        if not number >= 0:
            raise ConfigError(
                f"tool_call_efficiency: {name} is {number!r}; it is a number of 0 or more."
            )
    calls = count_search_calls(completion)
    if ranges is not None:
        fitting = (
            score for low, high, score in ranges if calls >= low and (high is None or calls <= high)
        )
        return clip01(next(fitting, 0.0))
    right = clip01(correctness if correctness_raw is None else correctness_raw)
    if calls > max_calls:
        return 0.0
    return right * math.exp(-decay_rate * max(0, calls - (reference_chunk_count + 2)))
