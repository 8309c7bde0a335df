"""Verdicts otherwise than in a text: arguments of a call, probabilities of one token, and both
dialects of decisions.
"""

from __future__ import annotations

import json
import math
import re
import string
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.support.judge_server_behaviours import JudgeCall, Judgement

CAPABILITIES = frozenset({"schema", "tools", "logprobs", "decisions", "systemone", "images"})
SURE = 0.98
"""The share of the answer that a judge gives; the rest goes to what was not asked for."""


def lacking(body: Mapping[str, Any], lacks: Sequence[str]) -> str | None:
    """The field of a request that the endpoint does not know."""
    wanted = body.get("response_format") or {}
    asked = {
        "response_format": "schema" if wanted.get("type") == "json_schema" else "",
        "tools": "tools" if "tools" in body else "",
        "logprobs": "logprobs" if body.get("logprobs") else "",
    }
    contents = [
        m.get("content") for m in body.get("messages", ()) if isinstance(m.get("content"), list)
    ]
    asked["image_url"] = (
        "images"
        if any(part.get("type") == "image_url" for content in contents for part in content)
        else ""
    )
    return next((field for field, capability in asked.items() if capability in lacks), None)


def as_call(body: dict[str, Any], text: str | None) -> list[dict[str, Any]]:
    """The calls that state a verdict which was written as JSON."""
    name = body["tools"][0]["function"]["name"]
    return [
        {"id": "call_1", "type": "function", "function": {"name": name, "arguments": text or "{}"}}
    ]


def one_token(asked: str, call: JudgeCall, found: Any) -> tuple[str, dict[str, Any]]:
    """The token that answers the question at the end of a prompt, and its logprobs."""
    legend = dict(re.findall(r"([A-T]) = ([^,\n]+?)(?=, [A-T] = |\n|$)", asked))
    plain = re.findall(r"(?m)^(\S+(?: / \S+)+)$", asked)
    options = list(legend.values()) if legend else plain[-1].split(" / ") if plain else []
    answer = (answer_among(options, call, found) if options else found) or "hm"
    token = next((letter for letter, meant in legend.items() if meant == answer), answer)
    shares = [(token, SURE), ("hm", 1 - SURE)]
    entries = [
        {"token": f" {text}", "logprob": math.log(share), "bytes": None} for text, share in shares
    ]
    return token, {"content": [{**entries[0], "top_logprobs": entries}], "refusal": None}


def answer_among(options: Sequence[str], call: JudgeCall, found: Any) -> str | None:
    """What a judgement says to a question with these answers; None where it says nothing."""
    if isinstance(found, Mapping):
        found = next(
            (str(value) for name, value in found.items() if name in call.reading.asked), None
        )
    if not isinstance(found, Judgement):
        return found if found in options else None
    best = found.ranking[0]
    high = found.scores[0] >= sum(call.score_range) / 2
    said = ["yes" if high else "no", "true" if high else "false"]
    said += ["tie" if found.tie else string.ascii_uppercase[best - 1]]
    said += [str(best)] if len(call.reading.candidates) > 1 else []
    said += [f"{found.scores[0]:g}", f"Answer {best}"]
    return next((each for each in said if each in options), None)


def decided(
    body: Mapping[str, Any], dialect: str, answer: Callable[[str, Sequence[str]], str | None]
) -> dict[str, Any]:
    """The reply to typed questions; `answer` gives one of the answers to instructions, None
    declines.
    """
    named = (
        body["questions"].items()
        if dialect == "systemone"
        else [(q.get("name"), q) for q in body["questions"]]
    )
    answers = [(name, _answered(question, name, dialect, answer)) for name, question in named]
    usage = {"input_tokens": len(json.dumps(body)) // 4, "output_tokens": len(answers)}
    if dialect == "systemone":
        return {
            "model": body["model"],
            "answers": {name: one for name, one in answers if one},
            "usage": usage,
        }
    refused = {"refusal": "I cannot decide this."}
    return {
        "model": body["model"],
        "answers": [one or {"name": name, **refused} for name, one in answers],
        "usage": usage,
    }


def _answered(
    question: Mapping[str, Any], name: str, dialect: str, answer: Callable[..., str | None]
) -> dict[str, Any] | None:
    kind, instructions = question["type"], question["instructions"]
    if kind in ("predicate", "noul"):
        options = ["yes", "no"]
    elif dialect == "systemone":
        options = list(question["criteria"])
    else:
        options = [
            one.get("value", one.get("label"))
            for one in question.get("choices") or question["levels"]
        ]
    said = answer(instructions, options)
    if said is None:
        return None
    shares = {option: 1.0 if option == said else 0.0 for option in options}
    if kind == "noul":
        return {"noul": shares["yes"]}
    if kind == "predicate":
        return {"name": name, "probability": shares["yes"]}
    levels = {str(place): share for place, share in enumerate(shares.values())}
    if dialect == "systemone":
        return {"probabilities": levels if kind == "score" else shares, "confidence": 1.0}
    listed = [{"value": int(place), "probability": share} for place, share in levels.items()]
    chosen = [{"value": option, "probability": share} for option, share in shares.items()]
    return {"name": name, "probabilities": listed if kind == "score" else chosen, "confidence": 1.0}
