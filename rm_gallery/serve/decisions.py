"""Rewards as decision models: OpenAI's and System One's requests of typed questions, answered by
what a reward makes of the answer.

Field names are those of openai's `decisions` (beta) and of TypeSafe's System One. A score's share
of its range is the probability of yes, and the place on the levels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, Field

from rm_gallery.core.model.message import Decision
from rm_gallery.core.model.transport import Json
from rm_gallery.serve.formats import (
    MAX_ITEMS,
    Answered,
    Ask,
    Codec,
    Open,
    Outcomes,
    Posted,
    Refused,
    Turn,
    conversation,
    invalid,
    json_text,
    late_or_unavailable,
)

MOST = 400
"""Questions that one request may hold."""


class DecisionChoice(Open):
    """An answer to choose."""

    value: str | bool
    description: str | None = None


class DecisionLevel(Open):
    """A level; the lowest comes first."""

    label: str
    description: str | None = None


class OpenaiQuestion(Open):
    """A typed question."""

    type: Literal["predicate", "choice", "score"]
    instructions: str
    name: str | None = None
    choices: Annotated[list[DecisionChoice], Field(max_length=255)] = Field(default_factory=list)
    levels: list[DecisionLevel] = Field(default_factory=list)


class OpenaiDecisions(Open):
    """What is to be judged, a text or messages, and the questions about it."""

    model: str
    input: str | list[Turn]
    questions: list[OpenaiQuestion] = Field(min_length=1, max_length=MOST)


class SystemOneQuestion(Open):
    """A typed question; `criteria` are the two sides, the choices, or the levels with the lowest
    first.
    """

    type: Literal["noul", "choice", "score"]
    instructions: str | list[Any] | Json
    criteria: Json | list[Any] | None = None


class SystemOneRequest(Open):
    """What is to be judged, a text, messages or an object with its parts, and the questions about
    it by their ids.
    """

    model: str
    state: str | Json | list[Any]
    questions: dict[str, SystemOneQuestion] = Field(min_length=1, max_length=MOST)


class DecisionsReply(BaseModel):
    """An answer per question, or that it is declined."""

    model: str
    answers: list[Json] | dict[str, Json]
    usage: dict[str, int]


class _Asked(NamedTuple):
    """One question, for OpenAI's names of its kind."""

    name: str | None
    where: str
    kind: str
    instructions: str
    answers: Sequence[Any] = ()
    legend: Sequence[str] = ()
    """What is weighed for each answer."""


def _openai(body: Json) -> Iterator[_Asked]:
    for place, question in enumerate(body["questions"]):
        options = [(one["value"], one) for one in question.get("choices") or ()]
        options = options or [(one["label"], one) for one in question.get("levels") or ()]
        yield _Asked(
            question.get("name"),
            f"questions[{place}]",
            question["type"],
            question["instructions"],
            [answer for answer, _ in options],
            [_explained(answer, one.get("description")) for answer, one in options],
        )


def _systemone(body: Json) -> Iterator[_Asked]:
    for name, question in body["questions"].items():
        sides, kind, where = question.get("criteria"), question["type"], f"questions.{name:.60}"
        instructions = json_text(question["instructions"])
        of_sides = sides if isinstance(sides, dict) else {}
        if kind == "noul":
            lines = [f"{side}: {text}" for side, text in of_sides.items() if text]
            yield _Asked(name, where, "predicate", "\n".join([instructions, *lines]))
            continue
        if not isinstance(sides, dict if kind == "choice" else list):
            wanted = (
                "an object of choices" if kind == "choice" else "a list of levels, the lowest first"
            )
            raise invalid(f"{where}.criteria is {type(sides).__name__}; it is {wanted}.")
        answers = list(map(str, sides))
        legend = [_explained(each, json_text(of_sides.get(each))) for each in answers]
        yield _Asked(name, where, kind, instructions, answers, legend)


def _explained(answer: Any, description: str | None) -> str:
    return ": ".join(filter(None, (json_text(answer), description)))


Questions = Callable[[Json], Iterator[_Asked]]


def _asks(questions: Questions, state: Any, posted: Posted) -> list[Ask]:
    """One completion for a question about the answer; for a choice one for each of its answers."""
    asks: list[Ask] = []
    for asked in questions(posted.body):
        n = len(asked.answers)
        if asked.kind != "predicate" and n < 2:
            raise invalid(f"{asked.where} has {n} answers; a {asked.kind} has two or more.")
        criterion: Json = {"criterion": asked.instructions, "points": 1}
        if asked.kind == "score":
            criterion["levels"] = [
                {"label": text, "value": place / (n - 1)} for place, text in enumerate(asked.legend)
            ]
        row = {"instructions": asked.instructions, "criteria": [criterion]}
        if asked.kind == "choice":
            prompt = state if _is_messages(state) else json_text(state)
            asks += [Ask(prompt=prompt, completion=text, row=row) for text in asked.legend]
        else:
            asks.append(_about(state, row)._replace(id=asked.name or ""))
    if len(asks) > MAX_ITEMS:
        raise invalid(
            f"the questions have {len(asks)} answers to weigh; at most {MAX_ITEMS} are taken at "
            f"once."
        )
    return asks


def _about(state: Any, row: Json) -> Ask:
    """A state as a completion: messages whose last assistant turn is judged, an object's `query`
    and `response`, or a text.
    """
    if _is_messages(state):
        if any(turn["role"] == "assistant" for turn in state):
            return Ask(messages=state, row=row)
        said = state[-1].get("content") or ""
        if not isinstance(said, str):
            said = "".join(str(part.get("text", "")) for part in said if isinstance(part, dict))
        return Ask(prompt=state[:-1] or None, completion=said, row=row)
    given = state if isinstance(state, dict) else {}
    for answer in ("response", "completion", "answer", "output"):
        if isinstance(given.get(answer), str):
            return Ask(
                prompt=conversation(_first_of(given, _PROMPTS), "state"),
                completion=given[answer],
                reference=_first_of(given, ("reference", "reference_response")),
                row={**given, **row},
            )
    return Ask(completion=json_text(state), row=row)


_PROMPTS = ("query", "prompt", "question", "input")


def _first_of(state: Json, names: Sequence[str]) -> Any:
    return next((state[name] for name in names if state.get(name)), None)


def _is_messages(state: Any) -> bool:
    return (
        isinstance(state, list)
        and state != []
        and all(isinstance(turn, dict) and isinstance(turn.get("role"), str) for turn in state)
    )


def _decisions(
    questions: Questions, said: Answered
) -> Iterator[tuple[_Asked, Decision | None, str]]:
    """Each question with what is decided, and why nothing is.

    Refused (503) where something failed, which may not do so again; what is unscored is a question
    that is declined.
    """
    outcomes = iter(said.outcomes)
    for each in said.outcomes:
        if each.status == "failed" and each.code != "invalid_item":
            raise Refused(
                late_or_unavailable(each),
                "no_score",
                f"A question could not be answered ({each.code}): {each.reason}",
            )
    for asked in questions(said.body):
        own = list(islice(outcomes, len(asked.answers) if asked.kind == "choice" else 1))
        yield asked, _decided(asked, own), next((e.reason for e in own if e.value is None), "")


def _decided(asked: _Asked, outcomes: Outcomes) -> Decision | None:
    """How probable each answer is; None where one of them could not be judged."""
    shares = [min(1.0, max(0.0, each.value)) for each in outcomes if each.value is not None]
    if len(shares) < len(outcomes):
        return None
    if asked.kind == "predicate":
        return Decision({"yes": shares[0], "no": 1 - shares[0]})
    if asked.kind == "choice":
        total = sum(shares)
        shares = [share / total if total else 1 / len(shares) for share in shares]
    else:
        place = shares[0] * (len(asked.answers) - 1)
        shares = [max(0.0, 1 - abs(place - level)) for level in range(len(asked.answers))]
    return Decision({str(n): share for n, share in enumerate(shares)})


def _decisions_reply(said: Answered, answers: Any) -> Json:
    usage = dict.fromkeys(("input_tokens", "output_tokens", "total_tokens"), 0)
    return {"model": said.body["model"], "answers": answers, "usage": usage}


def _openai_reply(said: Answered) -> Json:
    answers = []
    for asked, decision, why in _decisions(_openai, said):
        answer: Json = {"type": asked.kind, "name": asked.name}
        if decision is None:
            answer["refusal"] = why or "It cannot be judged."
        elif asked.kind == "predicate":
            answer["probability"] = decision.probabilities["yes"]
        else:
            chosen = asked.kind == "choice"
            answer[asked.kind] = asked.answers[int(decision.top)] if chosen else _expected(decision)
            answer["confidence"] = decision.confidence
            answer["probabilities"] = [
                {"value": each, "probability": probability}
                if chosen
                else {"value": level, "label": each, "probability": probability}
                for level, (each, probability) in enumerate(
                    zip(asked.answers, decision.probabilities.values(), strict=True)
                )
            ]
        answers.append(answer)
    return _decisions_reply(said, answers)


def _systemone_reply(said: Answered) -> Json:
    answers: dict[str, Json] = {}
    for asked, decision, _ in _decisions(_systemone, said):
        if decision is None:
            continue
        name, shares = asked.name or "", dict(decision.probabilities)
        if asked.kind == "predicate":
            answers[name] = {"noul": shares["yes"]}
        elif asked.kind == "choice":
            answers[name] = {
                "choice": asked.answers[int(decision.top)],
                "confidence": decision.confidence,
                "probabilities": dict(zip(asked.answers, shares.values(), strict=True)),
            }
        else:
            answers[name] = {
                "score": _expected(decision),
                "probabilities": shares,
                "legend": {str(n): text for n, text in enumerate(asked.answers)},
                "confidence": decision.confidence,
            }
    return _decisions_reply(said, answers)


def _expected(decision: Decision) -> float:
    """The level, between the whole numbers."""
    return decision.expected({level: float(level) for level in decision.probabilities})


def _named(request: OpenaiDecisions | SystemOneRequest) -> str:
    """The reward that is asked; `default` is the only one there is."""
    return "" if request.model == "default" else request.model


FORMATS = (
    Codec.of(
        "decisions",
        lambda posted: _asks(_openai, conversation(posted.body["input"], "input"), posted),
        _openai_reply,
        OpenaiDecisions,
        DecisionsReply,
        _named,
    ),
    Codec.of(
        "systemone",
        lambda posted: _asks(_systemone, posted.body["state"], posted),
        _systemone_reply,
        SystemOneRequest,
        DecisionsReply,
        _named,
    ),
)
"""The formats; docs/serving-formats.md says of each who sends it, and what its fields are here."""
