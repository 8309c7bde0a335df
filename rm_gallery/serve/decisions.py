"""Rewards as decision models: OpenAI's and System One's requests of typed questions, answered by
what a reward makes of the answer.

Field names are those of openai's `decisions` (beta) and of TypeSafe's System One. A score's share
of its range is the probability of yes, and the place on the levels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, Field

from rm_gallery.core.model.message import Decision
from rm_gallery.core.score import Score
from rm_gallery.serve.formats import (
    MAX_ITEMS,
    Ask,
    Format,
    Open,
    Params,
    Refused,
    Turn,
    conversation,
    invalid,
    json_text,
    read,
    target_of,
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
    instructions: str | list[Any] | dict[str, Any]
    criteria: dict[str, Any] | list[Any] | None = None


class SystemOneRequest(Open):
    """What is to be judged, a text, messages or an object with its parts, and the questions about
    it by their ids.
    """

    model: str
    state: str | dict[str, Any] | list[Any]
    questions: dict[str, SystemOneQuestion] = Field(min_length=1, max_length=MOST)


class DecisionsReply(BaseModel):
    """An answer per question, or that it is declined."""

    model: str
    answers: list[dict[str, Any]] | dict[str, dict[str, Any]]
    usage: dict[str, int]


class _Asked(NamedTuple):
    """One question, and which of the completions it is about."""

    name: str | None
    kind: str
    answers: tuple[Any, ...]
    legend: tuple[str, ...] = ()


class _Kept(NamedTuple):
    asked: _Asked
    model: str
    first: bool
    """Whether the question begins with this completion: a choice has one for each of its answers.
    """


def _openai(body: Any, params: Params) -> tuple[str, list[Ask]]:
    request = read(OpenaiDecisions, body)
    state = conversation(body["input"], "input")
    asks: list[Ask] = []
    for place, question in enumerate(request.questions):
        options: list[tuple[Any, str | None]] = [
            (one.value, one.description) for one in question.choices
        ]
        options = options or [(one.label, one.description) for one in question.levels]
        answers = [answer for answer, _ in options]
        texts = [
            ": ".join(filter(None, (json_text(answer), description)))
            for answer, description in options
        ]
        asked = _Asked(question.name, question.type, tuple(answers), tuple(texts))
        asks += _asks(asked, question.instructions, state, request.model, f"questions[{place}]")
    return _target(params, request.model), _few(asks)


def _systemone(body: Any, params: Params) -> tuple[str, list[Ask]]:
    request = read(SystemOneRequest, body)
    asks: list[Ask] = []
    for name, question in request.questions.items():
        sides = question.criteria
        if question.type == "noul":
            described = (
                [f"{side}: {text}" for side, text in sides.items() if text]
                if isinstance(sides, dict)
                else []
            )
            instructions = "\n".join([json_text(question.instructions), *described])
            asked = _Asked(name, "predicate", ())
        else:
            if not isinstance(sides, dict if question.type == "choice" else list):
                wanted = (
                    "an object of choices"
                    if question.type == "choice"
                    else "a list of levels, the lowest first"
                )
                raise invalid(
                    f"questions.{name:.60}.criteria is {type(sides).__name__}; it is {wanted}."
                )
            instructions, answers = json_text(question.instructions), tuple(map(str, sides))
            texts = (
                [": ".join(filter(None, (a, json_text(sides[a])))) for a in sides]
                if isinstance(sides, dict)
                else answers
            )
            asked = _Asked(name, question.type, answers, tuple(texts))
        asks += _asks(asked, instructions, request.state, request.model, f"questions.{name:.60}")
    return _target(params, request.model), _few(asks)


def _target(params: Params, model: str) -> str:
    """What the path names, else the model; `default` is the only one there is."""
    return target_of(params) or ("" if model in ("", "default") else f"reward:{model}")


def _few(asks: list[Ask]) -> list[Ask]:
    if len(asks) > MAX_ITEMS:
        raise invalid(
            f"the questions have {len(asks)} answers to weigh; at most {MAX_ITEMS} are taken at "
            f"once."
        )
    return asks


def _asks(asked: _Asked, instructions: str, state: Any, model: str, where: str) -> list[Ask]:
    """One completion for a question about the answer; for a choice one for each of its answers."""
    if asked.kind != "predicate" and len(asked.answers) < 2:
        raise invalid(f"{where} has {len(asked.answers)} answers; a {asked.kind} has two or more.")
    criterion: dict[str, Any] = {"criterion": instructions, "points": 1}
    if asked.kind == "score":
        top = len(asked.answers) - 1
        criterion["levels"] = [
            {"label": text, "value": place / top} for place, text in enumerate(asked.legend)
        ]
    row = {"instructions": instructions, "criteria": [criterion]}
    if asked.kind != "choice":
        return [_about(state, row)._replace(id=asked.name or "", kept=_Kept(asked, model, True))]
    prompt = state if _is_messages(state) else json_text(state)
    return [
        Ask(prompt=prompt, completion=text, row=row, kept=_Kept(asked, model, not place))
        for place, text in enumerate(asked.legend)
    ]


def _about(state: Any, row: dict[str, Any]) -> Ask:
    """A state as a completion: messages whose last assistant turn is judged, an object's `query`
    and `response`, or a text.
    """
    if _is_messages(state):
        if any(turn["role"] == "assistant" for turn in state):
            return Ask(messages=state, row=row)
        return Ask(
            prompt=state[:-1] or None,
            completion="".join(_content_texts(state[-1].get("content"))),
            row=row,
        )
    if isinstance(state, dict):
        for answer in ("response", "completion", "answer", "output"):
            if isinstance(state.get(answer), str):
                prompt = next(
                    (
                        state[name]
                        for name in ("query", "prompt", "question", "input")
                        if state.get(name)
                    ),
                    None,
                )
                reference = next(
                    (
                        state[name]
                        for name in ("reference", "reference_response")
                        if state.get(name)
                    ),
                    None,
                )
                return Ask(
                    prompt=conversation(prompt, "state"),
                    completion=state[answer],
                    reference=reference,
                    row={**state, **row},
                )
    return Ask(completion=json_text(state), row=row)


def _is_messages(state: Any) -> bool:
    turns = state if isinstance(state, list) else []
    return bool(turns) and all(
        isinstance(turn, dict) and isinstance(turn.get("role"), str) for turn in turns
    )


def _content_texts(content: Any) -> list[str]:
    return (
        [content]
        if isinstance(content, str)
        else [str(part.get("text", "")) for part in content or () if isinstance(part, dict)]
    )


def _questions(
    asks: Sequence[Ask], outcomes: Sequence[Score[float]]
) -> list[tuple[_Asked, list[Score[float]]]]:
    """Each question with the shares that its completions have.

    Refused (503) where something failed, which may not do so again; what is unscored is a question
    that is declined.
    """
    grouped: list[tuple[_Asked, list[Score[float]]]] = []
    for ask, each in zip(asks, outcomes, strict=True):
        if each.status == "failed" and each.code != "invalid_item":
            late = 504 if each.code == "deadline" else 503
            raise Refused(
                late,
                "no_score",
                f"A question could not be answered ({each.code}): {each.reason}",
            )
        if ask.kept.first:
            grouped.append((ask.kept.asked, []))
        grouped[-1][1].append(each)
    return grouped


def _decided(asked: _Asked, outcomes: Sequence[Score[float]]) -> Decision | None:
    """How probable each answer is; None where one of them could not be judged."""
    shares = [each.value for each in outcomes if each.value is not None]
    if len(shares) < len(outcomes):
        return None
    shares = [min(1.0, max(0.0, share)) for share in shares]
    if asked.kind == "choice":
        total = sum(shares)
        return Decision(
            {str(n): share / total if total else 1 / len(shares) for n, share in enumerate(shares)}
        )
    if asked.kind == "predicate":
        return Decision({"yes": shares[0], "no": 1 - shares[0]})
    place = shares[0] * (len(asked.answers) - 1)
    return Decision(
        {str(level): max(0.0, 1 - abs(place - level)) for level in range(len(asked.answers))}
    )


def _decisions_reply(asks: Sequence[Ask], answers: Any) -> tuple[int, Any]:
    return 200, {
        "model": asks[0].kept.model,
        "answers": answers,
        "usage": {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0},
    }


def _openai_reply(asks: Sequence[Ask], scores: Sequence[Score[float]]) -> tuple[int, Any]:
    answers = []
    for asked, outcomes in _questions(asks, scores):
        decision = _decided(asked, outcomes)
        answer: dict[str, Any] = {"type": asked.kind, "name": asked.name}
        if decision is None:
            why = next((each.reason for each in outcomes if each.value is None), "")
            answers.append({**answer, "refusal": why or "It cannot be judged."})
        elif asked.kind == "predicate":
            answers.append({**answer, "probability": decision.probabilities["yes"]})
        else:
            values = list(decision.probabilities.values())
            named = asked.answers if asked.kind == "choice" else range(len(asked.answers))
            probabilities = [
                {
                    "value": value,
                    **({} if asked.kind == "choice" else {"label": asked.answers[n]}),
                    "probability": values[n],
                }
                for n, value in enumerate(named)
            ]
            top = (
                asked.answers[int(decision.top)] if asked.kind == "choice" else _expected(decision)
            )
            answers.append(
                {
                    **answer,
                    asked.kind: top,
                    "confidence": decision.confidence,
                    "probabilities": probabilities,
                }
            )
    return _decisions_reply(asks, answers)


def _systemone_reply(asks: Sequence[Ask], scores: Sequence[Score[float]]) -> tuple[int, Any]:
    answers: dict[str, dict[str, Any]] = {}
    for asked, outcomes in _questions(asks, scores):
        decision = _decided(asked, outcomes)
        if decision is None:
            continue
        name, shares = asked.name or "", decision.probabilities
        if asked.kind == "predicate":
            answers[name] = {"noul": shares["yes"]}
        elif asked.kind == "choice":
            probabilities = {answer: shares[str(n)] for n, answer in enumerate(asked.answers)}
            answers[name] = {
                "choice": asked.answers[int(decision.top)],
                "confidence": decision.confidence,
                "probabilities": probabilities,
            }
        else:
            legend = {str(n): text for n, text in enumerate(asked.answers)}
            answers[name] = {
                "score": _expected(decision),
                "probabilities": dict(shares),
                "legend": legend,
                "confidence": decision.confidence,
            }
    return _decisions_reply(asks, answers)


def _expected(decision: Decision) -> float:
    """The level, between the whole numbers."""
    return decision.expected({level: float(level) for level in decision.probabilities})


def _mounted_at(name: str) -> tuple[tuple[str, str], ...]:
    at = (("", "/v1"), ("_reward", "/v1/rewards/{name}"), ("_evaluation", "/v1/evaluations/{id}"))
    return tuple((f"{name}{suffix}", f"{place}/{name}") for suffix, place in at)


_DECLINED = "the question is declined; HTTP 503 for failed"
_SAME = (
    ("model", "name of the reward, where the path names none; `default` is the only one"),
    (
        "instructions of a question",
        "row `instructions`, and `criteria` for `grader:checklist`, which then answers it",
    ),
)
FORMATS = (
    Format(
        "decisions", "/v1/decisions", _openai, _openai_reply, OpenaiDecisions, DecisionsReply,
        {
            "model": "default",
            "input": [{"role": "user", "content": "What is 2 + 2?"}, {"role": "assistant", "content": "4"}],
            "questions": [{"type": "predicate", "name": "right", "instructions": "Is the answer right?"}],
        },
        "Answer typed questions about an answer in the format of OpenAI's decisions.",
        title="OpenAI decisions (beta), as a decision model is asked",
        fields=(
            *_SAME,
            ("input", "the conversation, its last assistant turn is judged; without one its last turn"),
            ("choices", "a completion each"),
            ("→ probability", "the score's share of its range"),
            ("→ score, probabilities", "the level at that share; of choices each one's part of all shares"),
        ),
        no_score=_DECLINED,
        places=_mounted_at("decisions"),
        scaled=True,
    ),
    Format(
        "systemone", "/v1/systemone", _systemone, _systemone_reply, SystemOneRequest, DecisionsReply,
        {
            "model": "default",
            "state": {"query": "What is 2 + 2?", "response": "4"},
            "questions": {"right": {"type": "noul", "instructions": "Is the answer right?"}},
        },
        "Answer typed questions about an answer in the format of System One.",
        title="TypeSafe System One, as a decision model is asked",
        fields=(
            *_SAME,
            ("state", "a text, messages, or an object with `query` and `response`"),
            ("→ noul, score, choice", "as above"),
        ),
        no_score=_DECLINED,
        places=_mounted_at("systemone"),
        scaled=True,
    ),
)  # fmt: skip
