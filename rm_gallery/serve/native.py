"""The server's own format: one completion, or many with an outcome for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from rm_gallery.core.outcome import Outcome
from rm_gallery.serve.formats import MAX_ITEMS, Ask, Codec, Refused, invalid


class ScoreRequest(BaseModel):
    """One completion: `messages`, whose last assistant turn is judged, or `prompt` and `completion`."""

    model_config = ConfigDict(extra="forbid")

    messages: list[dict[str, Any]] | None = None
    prompt: str | list[dict[str, Any]] | None = None
    completion: str | list[dict[str, Any]] | None = None
    reference: Any = Field(default=None, description="The reference answer, for rewards that read one.")
    row: dict[str, Any] | None = Field(default=None, description="What else is known, by column names.")
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


_FIELDS = frozenset(ScoreRequest.model_fields)


def ask_of(body: Any, where: str = "the body") -> Ask:
    """The ask of one object; Refused names the field that does not fit."""
    if not isinstance(body, dict):
        raise invalid(f"{where} is {_kind(body)}; it is an object with messages, or prompt and completion.")
    unknown = body.keys() - _FIELDS
    if unknown:
        raise invalid(f"{where} has the unknown field {min(unknown)!r:.60}; known: {', '.join(sorted(_FIELDS))}.")
    messages, completion, prompt = body.get("messages"), body.get("completion"), body.get("prompt")
    if messages is None:
        if completion is None:
            raise invalid(f"{where} has neither messages nor completion; give one of them.")
    elif completion is not None or prompt is not None:
        raise invalid(f"{where} has messages and prompt or completion; give one or the other.")
    row, given = body.get("row"), body.get("id")
    if row is not None and type(row) is not dict:
        raise invalid(f"{where}: row is {_kind(row)}; it is an object of columns.")
    if given is not None and type(given) is not str:
        raise invalid(f"{where}: id is {_kind(given)}; it is a string.")
    return Ask(
        None if messages is None else turns(messages, f"{where}: messages"),
        prompt if prompt is None or type(prompt) is str else turns(prompt, f"{where}: prompt"),
        completion if completion is None or type(completion) is str else turns(completion, f"{where}: completion"),
        body.get("reference"),
        row,
        given or "",
    )


def turns(value: Any, where: str) -> list[dict[str, Any]]:
    """A list of messages; Refused for anything else."""
    if type(value) is not list or not value:
        raise invalid(f"{where} is {_kind(value)}; it is a text or a list of messages with role and content.")
    for place, turn in enumerate(value):
        if type(turn) is not dict or type(turn.get("role")) is not str:
            raise invalid(f"{where}[{place}] is no message; a message is an object with role and content.")
    return value


def _kind(value: Any) -> str:
    if value == []:
        return "an empty list"
    kinds = {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    return kinds.get(type(value), "a number")


def _one(body: Any, path: Mapping[str, str]) -> tuple[str, Sequence[Ask]]:
    return f"reward:{path['name']}", [ask_of(body)]


def _many(body: Any, path: Mapping[str, str]) -> tuple[str, Sequence[Ask]]:
    items = body.get("items") if isinstance(body, dict) else None
    if type(items) is not list or not items or len(body) > 1:
        raise invalid('the body is not {"items": [one object per completion, …]} with at least one item.')
    if len(items) > MAX_ITEMS:
        raise invalid(f"items has {len(items)} entries; at most {MAX_ITEMS} are taken at once.")
    return f"reward:{path['name']}", [_item(item, place) for place, item in enumerate(items)]


def _item(item: Any, place: int) -> Ask:
    try:
        return ask_of(item, f"items[{place}]")
    except Refused as error:
        given = item.get("id") if isinstance(item, dict) else None
        return Ask(problem=str(error), id=given if isinstance(given, str) else "")


def reply_of(ask: Ask, scored: Outcome[float]) -> dict[str, Any]:
    """An outcome as the server says it."""
    return {"id": ask.id or None, **scored.to_dict()}


def _render_one(asks: Sequence[Ask], found: Sequence[Outcome[float]]) -> tuple[int, Any]:
    return 504 if found[0].reason == "deadline" else 200, reply_of(asks[0], found[0])


def _render_many(asks: Sequence[Ask], found: Sequence[Outcome[float]]) -> tuple[int, Any]:
    return 200, {"results": list(map(reply_of, asks, found))}


_EXAMPLE = {"prompt": "What is 2 + 2?", "completion": "4", "reference": "4"}

NATIVE = (
    Codec(
        "reward",
        "/v1/rewards/{name}",
        _one,
        _render_one,
        ScoreRequest,
        ScoreReply,
        _EXAMPLE,
        "Score one completion with a reward.",
    ),
    Codec(
        "reward_batch",
        "/v1/rewards/{name}/batch",
        _many,
        _render_many,
        BatchRequest,
        BatchReply,
        {"items": [_EXAMPLE]},
        "Score many completions with a reward, with an outcome for each.",
    ),
)
