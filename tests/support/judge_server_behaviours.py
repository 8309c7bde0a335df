"""How the judge decides: named behaviours and the way a decision is written in the shape a prompt
asks for.
"""

from __future__ import annotations

import json
import re
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Union

from tests.support.judge_server_prompts import Oracle, Reading, ReplyShape, oracle_entry

NO_OPINION = "I have looked at the material and I would rather not commit myself to a verdict here."


class Judgement(NamedTuple):
    """A decision: candidate numbers (from 1) best first, and one score per candidate in prompt
    order.
    """

    ranking: tuple[int, ...]
    scores: tuple[float, ...]
    tie: bool = False
    reason: str = "Compared on the points the instructions name."


@dataclass(slots=True)
class JudgeCall:
    """What a behaviour may look at.

    `digest` is the sha256 of the messages (a seed that does not depend on arrival), `attempt`
    counts calls with these messages from 0, `choice` is the index among `n` choices, `order` counts
    all calls from 0.
    """

    body: Mapping[str, Any]
    reading: Reading
    oracle: Oracle
    score_range: tuple[float, float]
    digest: bytes
    attempt: int
    order: int
    choice: int = 0
    known: list[bool] = field(default_factory=list)
    """Of each candidate that was looked up, whether the oracle knew it."""


Answer = Union[str, None, Judgement]
Behaviour = Callable[[JudgeCall], Answer]
BehaviourSpec = Union[str, Sequence[str], Behaviour]


def _by_oracle(call: JudgeCall, *, invert: bool) -> Answer:
    low, high = call.score_range
    scores: list[float] = []
    for text in call.reading.candidates:
        entry = oracle_entry(call.oracle, call.reading, text)
        call.known.append(entry is not None)
        score = low if entry is None else float(entry.get("score", high if entry["good"] else low))
        scores.append(low + high - score if invert and entry is not None else score)
    if not any(call.known):
        return NO_OPINION
    ranking = tuple(sorted(range(1, len(scores) + 1), key=lambda k: -scores[k - 1]))
    tie = (
        len(scores) == 2
        and scores[0] == scores[1]
        and re.search(r"(?i)\btie\b", call.reading.asked) is not None
    )
    return Judgement(ranking, tuple(scores), tie)


def _by_position(call: JudgeCall, *, last: bool) -> Answer:
    order = range(1, max(1, len(call.reading.candidates)) + 1)
    return Judgement(tuple(order[::-1] if last else order), (call.score_range[1],) * len(order))


def _garbage(call: JudgeCall) -> Answer:
    """A reply without a verdict; the same digest and choice always give the same text."""
    options = garbage_kinds(len(call.reading.candidates), call.reading.shape)
    return options[(int.from_bytes(call.digest[:8], "big") + 7919 * call.choice) % len(options)]


def _scripted(replies: Sequence[str], call: JudgeCall) -> Answer:
    return replies[min(call.order, len(replies) - 1)]


NAMED: dict[str, Behaviour] = {
    "perfect": partial(_by_oracle, invert=False),
    "worst": partial(_by_oracle, invert=True),
    "first": partial(_by_position, last=False),
    "last": partial(_by_position, last=True),
    "garbage": _garbage,
    "empty": lambda call: "",
    "echo": lambda call: call.reading.prompt,
}


def behaviour_of(spec: BehaviourSpec) -> Behaviour:
    """The behaviour a spec names.

    A name of `NAMED`, `fixed:TEXT`, a list of replies given in order of arrival (the last one
    stays), or a function of a `JudgeCall`. Raises ValueError for a name that is none of these.
    """
    if callable(spec):
        return spec
    if not isinstance(spec, str):
        return partial(_scripted, list(spec))
    if spec in NAMED:
        return NAMED[spec]
    name, colon, rest = spec.partition(":")
    if name == "fixed" and colon:
        return partial(_scripted, [rest])
    raise ValueError(
        f"unknown behaviour {spec!r}; known: {', '.join(NAMED)}, fixed:TEXT, [replies]"
    )


def write_answer(answer: Answer, call: JudgeCall) -> str | None:
    if not isinstance(answer, Judgement):
        return answer
    fields, as_json, schema = call.reading.shape
    values = {name: _value(name, answer) for name in fields}
    if as_json:
        rules = schema or dict.fromkeys(["reason", *fields], {"type": "string"})
        found = {
            name: values.get(name)
            if name in values
            else _filled(rule, answer, sum(call.score_range) / 2)
            for name, rule in rules.items()
        }
        return json.dumps(found, ensure_ascii=False)
    texts = {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in values.items()
    }
    return "\n".join(
        f"<{name}>{text}</{name}>" for name, text in {"reason": answer.reason, **texts}.items()
    )


def _value(name: str, answer: Judgement) -> Any:
    ranking = answer.ranking
    if name == "best":
        return ranking[0]
    if name == "score":
        return int(answer.scores[0]) if float(answer.scores[0]).is_integer() else answer.scores[0]
    if name == "preference":
        return "tie" if answer.tie else string.ascii_uppercase[(ranking[0] - 1) % 26]
    if name == "rank":
        return [ranking.index(k) + 1 for k in range(1, len(ranking) + 1)]
    return [{"response_index": k, "rank": place} for place, k in enumerate(ranking, 1)]


def _filled(rule: Mapping[str, Any], answer: Judgement, middle: float) -> Any:
    """A value of the type that a schema wants of another field."""
    score = answer.scores[0] if answer.scores else middle
    fillers: dict[str, Any] = {
        "integer": int(score),
        "number": score,
        "boolean": score >= middle,
        "array": [],
        "object": {},
    }
    return (
        rule["enum"][0] if rule.get("enum") else fillers.get(str(rule.get("type")), answer.reason)
    )


_PROSE = (
    "Both have something to be said for them, and a lot depends on what the reader is after.",
    "The question touches on several fields. A careful treatment would start with the definitions.",
    "As a language model I try to be helpful in all situations and to consider every point of "
    "view.",
    "两个回答都有各自的优点,很难说哪一个更好,需要根据具体情况来判断。",
    "我认为这个问题很有意思,但是目前还无法给出结论。",
    "Sure! Here is a poem about autumn: leaves fall, the wind calls, and the river remembers them "
    "all.",
    "I'm sorry, but I can't assist with that.",
    *("", "  \n\n ", "<think>Let me think. The first one looks right, but then again"),
)
_TAG_GARBAGE = {
    "best": ("{off_menu}", "0", "-1", "A or B", "1 or 2", "both", "NaN", "the longer one"),
    "score": ("NaN", "99999", "-3", "inf", "high", "seven or so", ""),
    "preference": ("A or B", "neither", "Z9", "第一个还是第二个", ""),
    "rankings": ("first, then the rest", "{off_menu}", ""),
    "rank": ("first, then the rest", "{off_menu}", ""),
}
_JSON_GARBAGE = {
    "best": ("{off_menu}", '"A or B"', "null", "0"),
    "score": ("NaN", '"high"', "null", "99999"),
}


def garbage_kinds(n_candidates: int, shape: ReplyShape) -> list[str]:
    options = list(_PROSE)
    for name in shape.fields:
        options.append(f"<think>I would go for <{name}>1</{name}></think>")
        kinds = (_JSON_GARBAGE if shape.as_json else _TAG_GARBAGE).get(name, ())
        values = [value.format(off_menu=max(9, n_candidates + 1)) for value in kinds]
        if shape.as_json:
            options += [f'{{"{name}": {value}}}' for value in values]
            options += ['{"verdict": "ok"}', f'{{"reason": "good", "{name}": ']
        else:
            options += [
                f"<reason>Weighed with care.</reason>\n<{name}>{value}</{name}>" for value in values
            ]
            options += [
                f"<reason>Weighed with care.</reason>\n<{name}>1",
                f"<{name}",
                f"</{name}>1<{name}>",
            ]
    return options
