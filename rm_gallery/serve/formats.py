"""What request formats have in common (where they are mounted, what they ask for, what becomes of a
missing score), and the server's own: one completion, or many with an outcome for each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rm_gallery.core.model.transport import Json
from rm_gallery.core.score import Score
from rm_gallery.core.utils.errors import RMGalleryError
from rm_gallery.core.utils.file import read_file

Scope = Literal["read", "evaluate", "deploy"]
Spoken: TypeAlias = str | list[Json]
"""A text, or messages."""
Row: TypeAlias = Mapping[str, Any]
"""What is known, by the names of a data set's columns."""
Outcomes: TypeAlias = Sequence[Score[float]]
"""Of completions, in their order."""
RequestHeaders: TypeAlias = Mapping[bytes, bytes]
"""Of a request as ASGI has them, by their names in small letters."""


class Ask(NamedTuple):
    """One completion to be scored, whatever format it came in.

    The conversation is `messages`, whose last assistant turn is judged, or `prompt` and
    `completion` apart, each a text or a list of messages.
    """

    messages: list[Json] | None = None
    prompt: Spoken | None = None
    completion: Spoken | None = None
    reference: Any = None
    row: Row | None = None
    """What else is known, by the names of a data set's columns; keywords of a deployed evaluator.
    """
    id: str = ""
    original_messages: list[Json] | None = None
    """For deployed evaluators, where the format has it."""
    tools: list[Any] | None = None
    problem: str = ""
    """Why this item of a batch cannot be scored: it becomes failed (invalid_item) and costs no
    other one.
    """
    own: bool | None = None
    """Whether the server's own files say what it holds beside the completion, as those of tasks do."""
    kept: Any = None
    """The request (`Posted`), of its first ask: what the codec needs again for its reply; nobody
    else reads it.
    """


class Refused(RMGalleryError):
    """A request that is not answered with scores: HTTP status, a short code, one sentence, and when
    to come again.
    """

    def __init__(
        self, status: int, code: str, message: str, *, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.retry_after = retry_after


def invalid(message: str) -> Refused:
    """The refusal of a body that does not fit its format; the message names field, what was found
    and what is taken.
    """
    return Refused(422, "invalid_request", message)


class Posted(NamedTuple):
    """A request of a format."""

    request: Any
    """The body as the format's model reads it."""
    body: Any
    """As it came."""
    params: Mapping[str, str]
    """Of path and query."""
    instead: float | None
    """Number to send where there is no score, as the query says; None for none."""


class Answered(NamedTuple):
    """A request and what came of it, for its reply."""

    asks: Sequence[Ask]
    outcomes: Outcomes
    """In the order of the asks."""
    scores: Sequence[Any]
    """Their values; where there is none, what the query says instead."""
    body: Any
    params: Mapping[str, str]


@dataclass(frozen=True)
class Codec:
    """One request format: how a JSON body becomes asks, and outcomes a reply. Pure functions, no
    I/O.
    """

    name: str
    path: str
    """As FastAPI writes it, with parameters in braces; of a format the one for the only target."""
    asks: Callable[[Posted], Sequence[Ask]]
    """What a request asks for; raises Refused."""
    reply: Callable[[Answered], Any]
    """The body of the reply."""
    request_model: type[BaseModel] | None = None
    response_model: Any = None
    request_example: Any = None
    summary: str = ""
    query: Mapping[str, tuple[Any, str]] = field(default_factory=dict)
    """Query parameters: type and meaning."""
    places: tuple[tuple[str, str], ...] = ()
    """Names and paths where the format is mounted; none for `PLACES`."""
    target: str = ""
    """Which of a server's targets is meant where neither path nor body names one."""
    named: Callable[[Any], Any] = lambda request: None
    """The reward that a body names, where the path names none."""
    numeric: bool = False
    """Whether a reply is numbers alone: what has no score is then refused, unless the query says
    what stands for it."""
    modelled: bool = True
    """Whether a body is read by its model first; else `asks` looks at what came by itself."""
    late: int = 200
    """Status of the reply to one completion that was not scored in time."""
    scaled: bool = False
    """Whether scores are shares of their range, 0 to 1 with 1 the best; a reward without bounds is
    then refused.
    """

    @classmethod
    def of(
        cls,
        name: str,
        asks: Callable[[Posted], Sequence[Ask]],
        reply: Callable[[Answered], Any],
        request_model: type[BaseModel],
        response_model: Any,
        named: Callable[[Any], Any] = lambda request: None,
    ) -> Codec:
        """The format of which formats.yaml says all that is no function."""
        facts = _FACTS[name]
        query = {each: QUERY[each] for each in facts.get("query", ())}
        functions = {"asks": asks, "reply": reply, "named": named}
        models = {"request_model": request_model, "response_model": response_model}
        return cls(name, **{**facts, **functions, **models, "query": query})

    def codecs(self) -> tuple[Codec, ...]:
        """The format at every place where it is mounted."""
        own = self.path.removeprefix("/v1")
        usual = tuple(
            (f"{self.name}{suffix}", f"{place}{own}" if place else self.path)
            for suffix, place in PLACES
        )
        return tuple(replace(self, name=name, path=path) for name, path in self.places or usual)

    def parse(self, body: Any, params: Mapping[str, str]) -> tuple[str, Sequence[Ask]]:
        """From body and parameters (of path and query) to the target (`reward:NAME`,
        `evaluator:ID`, or empty for the only one there is) and the asks; raises Refused.
        """
        request = read(self.request_model, body) if self.request_model and self.modelled else body
        posted = Posted(request, body, params, _instead(params))
        first, *others = self.asks(posted)
        name = params.get("name") or self.named(request)
        target = f"reward:{name}" if isinstance(name, str) and name else self.target
        if "id" in params:
            target = f"evaluator:{params['id']}"
        return target, [first._replace(kept=posted), *others]

    def render(self, asks: Sequence[Ask], outcomes: Outcomes) -> tuple[int, Any]:
        """From the asks and their outcomes, in the same order, to HTTP status and body."""
        posted: Posted = asks[0].kept
        scores = [posted.instead if each.value is None else each.value for each in outcomes]
        if self.numeric:
            _refuse_missing(scores, outcomes)
        late = len(outcomes) == 1 and outcomes[0].code == "deadline"
        answered = Answered(asks, outcomes, scores, posted.body, posted.params)
        return self.late if late else 200, self.reply(answered)


M = TypeVar("M", bound=BaseModel)
Params = Mapping[str, str]
MAX_ITEMS = 4096
"""Completions that are taken in one request."""
PLACES = (("", ""), ("_reward", "/v1/rewards/{name}"), ("_evaluation", "/v1/evaluations/{id}"))
"""A format is mounted for the only target of a server, for a reward and for a deployed evaluator.
"""


def described(*ways: Json) -> Json:
    """What a description adds to a model of which one of several ways has to be taken: fields by
    the schema they fit then.
    """
    return {
        "anyOf": [
            {
                "required": [name for name, fits in way.items() if fits is not NULL],
                "properties": dict(way),
            }
            for way in ways
        ]
    }


NULL: Json = {"type": "null"}
GIVEN: Json = {"not": NULL}
SOME: Json = {"type": "array", "minItems": 1}
"""Schemas of a field that is left out, of one that is there, and of a list with something in it."""


class Open(BaseModel):
    """An object of a foreign format: fields that are not read are let through."""

    model_config = ConfigDict(extra="allow", protected_namespaces=())


class Turn(Open):
    """A message as chat models take it."""

    role: str
    content: Spoken | None = None
    name: str | None = None
    tool_calls: list[Json] | None = None
    tool_call_id: str | None = None


_FACTS: dict[str, Json] = read_file(Path(__file__).with_name("formats.yaml"))
QUERY = {
    "on_error": (
        float,
        "The number to send where there is no score; without it such a request is refused.",
    ),
    "reference": (str, "The column that holds the reference answer."),
    "prompt": (str, "The column that holds the prompt, a text or messages."),
    "components": (
        str,
        "Components to log, separated by commas; always the same for all completions.",
    ),
    "keys": (bool, "Whether to answer with an object of all components."),
}
"""Parameters that a format may have, by type and meaning."""


def read(model: type[M], body: Any, where: str = "") -> M:
    """The body as its format has it; Refused (422) names the first field that does not fit."""
    try:
        return model.model_validate(body, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        place = "".join(
            f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]
        ).lstrip(".")
        given = "" if first["type"] == "missing" else f"; found {_describe_input(first['input'])}"
        raise invalid(
            f"{'.'.join(filter(None, (where, place))) or 'the body'}: {first['msg']}{given}."
        ) from None


_KINDS = {
    dict: "an object",
    list: "a list",
    type(None): "null",
    str: "a string",
    bool: "true or false",
    int: "a number",
    float: "a number",
}


def _describe_input(value: Any) -> str:
    plain = isinstance(value, str | int | float)
    return f"{value!r:.60}" if plain else _KINDS[type(value)]


def json_text(value: Any) -> str:
    """A text as it is, nothing as an empty text, any other value as JSON."""
    import orjson

    return (
        value if isinstance(value, str) else "" if value is None else orjson.dumps(value).decode()
    )


def _instead(params: Params) -> float | None:
    """The number for a missing score that the query has; Refused when it is none."""
    text = params.get("on_error")
    if not text:
        return None
    instead = finite(text)
    if instead is None:
        raise invalid(
            f"on_error is {text!r:.60}; give the number that stands for a missing score, or leave "
            f"it out to have such "
            "requests refused."
        )
    return instead


def finite(text: str | bytes) -> float | None:
    """The number that a text is; None for what is none, or no finite one."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _refuse_missing(scores: Sequence[float | None], outcomes: Outcomes) -> None:
    """Refused when there is no number to send: 503 where asking again may help, 504 after a
    deadline, 422 where there is nothing to judge by.
    """
    missing = [place for place, score in enumerate(scores) if score is None]
    if missing:
        # one that broke says more than one that cannot be judged anyway
        place = max(missing, key=lambda place: _status_of(outcomes[place]) > 422)
        said = missing_said(outcomes, missing, place, "completions")
        raise Refused(
            _status_of(outcomes[place]),
            "no_score",
            f"{said} This format has no field for that; add ?on_error=NUMBER to get a number of "
            "your choice in its place.",
        )


def missing_said(outcomes: Outcomes, missing: Sequence[int], place: int, what: str) -> str:
    """How many of a request have no score, and why the one at a place has none."""
    one = outcomes[place]
    return (
        f"{len(missing)} of {len(outcomes)} {what} have no score. Number {place} is {one.status} "
        f"({one.code}): {one.reason}"
    )


def late_or_unavailable(outcome: Score[float]) -> int:
    """The status of a reply that has no word for a failure: it may be asked for again."""
    return 504 if outcome.code == "deadline" else 503


def _status_of(outcome: Score[float]) -> int:
    """The status of a reply that lacks this score: 422 where asking again would not help."""
    fixed = outcome.code in ("invalid_item", "data", "invalid_request")
    return 422 if fixed or outcome.status != "failed" else late_or_unavailable(outcome)


def column(row: Row, params: Params, field: str, usual: Sequence[str]) -> Any:
    """The value for `field`: of the column that the query names, else of the first usual one that
    the row has, else None.
    """
    named = params.get(field)
    if named is None:
        return next((row[name] for name in usual if row.get(name) is not None), None)
    if named not in row:
        there = ", ".join(f"{name:.40}" for name in sorted(map(str, row))[:20]) or "none"
        raise invalid(f"?{field}={named[:60]} names a column that is not there; found: {there}.")
    return row[named]


REFERENCES = (
    "reference",
    "reference_answer",
    "ground_truth",
    "answer",
    "solution",
    "label",
    "target",
)
PROMPTS = ("messages", "prompt")


def conversation(value: Any, where: str) -> Spoken:
    """A prompt as text or messages; Refused for anything else."""
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, list) and value:
        for place, turn in enumerate(value):
            read(Turn, turn, f"{where}[{place}]")
        return value
    raise invalid(
        f"{where} is {_describe_input(value)}; it is a text or a list of messages with role and content."
    )


def one_length(where: str, **columns: list[Any] | None) -> int:
    """The length that these lists share; Refused where they differ, or hold nothing or too much."""
    lengths = {name: len(values) for name, values in columns.items() if values is not None}
    if len(set(lengths.values())) != 1:
        raise invalid(
            f"{where} of unlike length: {', '.join(f'{name} {n}' for name, n in lengths.items())}."
        )
    count = next(iter(lengths.values()))
    if not 0 < count <= MAX_ITEMS:
        raise invalid(
            f"{next(iter(lengths))} has {count} entries; 1 to {MAX_ITEMS} are taken at once."
        )
    return count


class ScoreRequest(BaseModel):
    """One completion: `messages`, whose last assistant turn is judged, or `prompt` and
    `completion`.
    """

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra=described(
            {"messages": GIVEN, "prompt": NULL, "completion": NULL},
            {"messages": NULL, "completion": GIVEN},
        ),
    )

    messages: list[Json] | None = None
    prompt: Spoken | None = None
    completion: Spoken | None = None
    reference: Any = Field(
        default=None, description="The reference answer, for rewards that read one."
    )
    row: Json | None = Field(default=None, description="What else is known, by column names.")
    id: str | None = Field(default=None, description="Given back in the reply.")


class ScoreReply(BaseModel):
    """A score, or why there is none."""

    id: str | None = None
    score: float | None = Field(description="null unless scored; never 0 for something that failed")
    status: Literal["scored", "unscored", "failed"]
    cause: Literal["endpoint", "judge", "answer", "data", "rule", "caller"] | None = Field(
        default=None, description="who brought it about that there is no score; null for a score"
    )
    reason: str = Field(description="a short code; empty for a score")
    message: str = Field(description="what the judge said, or one sentence about what is wrong")
    components: dict[str, float]


class BatchRequest(BaseModel):
    """Many completions."""

    model_config = ConfigDict(extra="forbid")

    items: list[ScoreRequest] = Field(min_length=1, max_length=MAX_ITEMS)


class BatchReply(BaseModel):
    """One outcome per item, in the order of the items."""

    results: list[ScoreReply]


FIELDS = frozenset(ScoreRequest.model_fields)


def ask_of(body: Any, where: str = "the body") -> Ask:
    """The ask of one object, whose fields are its own; Refused names the one that does not fit."""
    if not isinstance(body, dict):
        raise invalid(
            f"{where} is {_kind(body)}; it is an object with messages, or prompt and completion."
        )
    unknown = body.keys() - FIELDS
    if unknown:
        raise invalid(
            f"{where} has the unknown field {min(unknown)!r:.60}; known: "
            f"{', '.join(sorted(FIELDS))}."
        )
    given = {name: value for name, value in body.items() if value is not None}
    if "messages" not in given and "completion" not in given:
        raise invalid(f"{where} has neither messages nor completion; give one of them.")
    if "messages" in given and ("completion" in given or "prompt" in given):
        raise invalid(f"{where} has messages and prompt or completion; give one or the other.")
    for name, kind, what in (("row", dict, "an object of columns"), ("id", str, "a string")):
        if name in given and type(given[name]) is not kind:
            raise invalid(f"{where}: {name} is {_kind(given[name])}; it is {what}.")
    for name in ("messages", "prompt", "completion"):
        if name in given and (name == "messages" or type(given[name]) is not str):
            _check_turns(given[name], f"{where}: {name}")
    return Ask(**given)


def _check_turns(value: Any, where: str) -> None:
    """Refused for what is no list of messages."""
    if type(value) is not list or not value:
        raise invalid(
            f"{where} is {_kind(value)}; it is a text or a list of messages with role and content."
        )
    for place, turn in enumerate(value):
        if type(turn) is not dict or type(turn.get("role")) is not str:
            raise invalid(
                f"{where}[{place}] is no message; a message is an object with role and content."
            )


def _kind(value: Any) -> str:
    return "an empty list" if value == [] else _KINDS[type(value)]


def _many(body: Any) -> list[Ask]:
    items = body.get("items") if isinstance(body, dict) else None
    if type(items) is not list or not items or len(body) > 1:
        raise invalid(
            'the body is not {"items": [one object per completion, …]} with at least one item.'
        )
    if len(items) > MAX_ITEMS:
        raise invalid(f"items has {len(items)} entries; at most {MAX_ITEMS} are taken at once.")
    asks = []
    for place, item in enumerate(items):
        try:
            asks.append(ask_of(item, f"items[{place}]"))
        except Refused as error:
            given = item.get("id") if isinstance(item, dict) else None
            asks.append(Ask(problem=str(error), id=given if isinstance(given, str) else ""))
    return asks


def reply_of(ask: Ask, scored: Score[float]) -> Json:
    """An outcome as the server says it."""
    return {"id": ask.id or None, **scored.to_dict()}


NATIVE = (
    Codec.of(
        "reward",
        lambda posted: [ask_of(posted.body)],
        lambda said: reply_of(said.asks[0], said.outcomes[0]),
        ScoreRequest,
        ScoreReply,
    ),
    Codec.of(
        "reward_batch",
        lambda posted: _many(posted.body),
        lambda said: {"results": list(map(reply_of, said.asks, said.outcomes))},
        BatchRequest,
        BatchReply,
    ),
)
"""The server's own."""
