"""The request format of reward-kit endpoints: `/evaluate`, `/reward` and `/v1/evaluations/{id}`, one conversation or many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, Field, RootModel, TypeAdapter

from rm_gallery.core.outcome import Outcome
from rm_gallery.serve.asking import Ask, Codec, Refused, invalid
from rm_gallery.serve.formats import MAX_ITEMS, Format, Open, Params, Turn, read, target_of


class EvaluateRequest(Open):
    """A conversation; further keywords of the function stand in `kwargs` or beside the other fields."""

    messages: list[Turn]
    ground_truth: Any = Field(default=None, description="The reference, of any type.")
    original_messages: list[Turn] | None = None
    tools: list[Any] | None = None
    kwargs: dict[str, Any] | None = None


class MetricReply(BaseModel):
    """One component."""

    is_score_valid: bool
    score: float
    reason: str


class EvaluateReply(BaseModel):
    """A result. Where there is no score it is null and `is_score_valid` is false: with `error` the judging broke, without it
    there was nothing to judge by, as `reason` says.
    """

    score: float | None
    is_score_valid: bool
    reason: str | None
    metrics: dict[str, MetricReply]
    step_outputs: list[dict[str, Any]] | None
    error: str | None


class EvaluateBatch(RootModel[Annotated[list[EvaluateRequest], Field(min_length=1, max_length=MAX_ITEMS)]]):
    """Many conversations."""


class EvaluateReplies(RootModel[list[EvaluateReply]]):
    """One result per conversation, in their order."""


def _ask(body: Any, where: str = "") -> Ask:
    found = read(EvaluateRequest, body, where)
    row = {**(found.model_extra or {}), **(found.kwargs or {})}
    return Ask(
        messages=body["messages"],
        reference=found.ground_truth,
        row=row,
        original_messages=body.get("original_messages"),
        tools=found.tools,
    )


def _one(body: Any, params: Params) -> tuple[str, list[Ask]]:
    return target_of(params) or "evaluator:", [_ask(body)]


def _many(body: Any, params: Params) -> tuple[str, list[Ask]]:
    if not isinstance(body, list) or not 0 < len(body) <= MAX_ITEMS:
        raise invalid(f"the body is no list of 1 to {MAX_ITEMS} conversations.")
    asks = []
    for place, item in enumerate(body):
        try:
            asks.append(_ask(item, f"[{place}]"))
        except Refused as refused:
            asks.append(Ask(messages=[], problem=str(refused)))
    return target_of(params) or "evaluator:", asks


def _result(found: Outcome[float]) -> dict[str, Any]:
    """An outcome as an EvaluateResult; a result without a valid score has no number that could be taken for one."""
    said = found.message or None
    base: dict[str, Any] = {"score": found.score, "is_score_valid": found.score is not None, "reason": said}
    base |= {"metrics": {}, "step_outputs": None, "error": None}
    if found.status == "failed":
        return {**base, "error": f"{found.reason}: {found.message}"}
    metrics = {name: {"is_score_valid": True, "score": part, "reason": ""} for name, part in found.components.items()}
    told = found.extra.get("metrics")
    for name, metric in told.items() if isinstance(told, Mapping) else ():
        if isinstance(metric, Mapping) and "score" in metric:
            metrics[name] = {**metrics.get(name, {}), **metric}
    # what a function put there may be anything
    steps = _ANYTHING.dump_python(found.extra.get("step_outputs"), mode="json", fallback=str)
    return {**base, "metrics": metrics, "step_outputs": steps}


_ANYTHING: TypeAdapter[Any] = TypeAdapter(Any)


def _one_reply(asks: Sequence[Ask], found: Sequence[Outcome[float]]) -> tuple[int, Any]:
    return 504 if found[0].reason == "deadline" else 200, _result(found[0])


def _many_reply(asks: Sequence[Ask], found: Sequence[Outcome[float]]) -> tuple[int, Any]:
    return 200, list(map(_result, found))


_EXAMPLE = {
    "messages": [{"role": "user", "content": "What is 2 + 2?"}, {"role": "assistant", "content": "4"}],
    "ground_truth": "4",
    "kwargs": {"strict": True},
}
_FIELDS = (
    ("messages", "the conversation, its last assistant turn is scored"),
    ("ground_truth", "reference, of any type"),
    ("original_messages", "the prompt's messages"),
    ("tools", "tools"),
    ("kwargs, and every other field", "row: keywords of the function"),
    ("→ score, reason", "score, message"),
    ("→ metrics.NAME.score", "components"),
    ("→ is_score_valid", "false for unscored and failed"),
    ("→ error", "reason and message of what failed"),
)
_NO_SCORE = "`score` null and `is_score_valid` false; `error` where it failed"

FORMATS = (
    Format(
        "evaluate",
        "/evaluate",
        "reward-kit, eval-protocol",
        _FIELDS,
        _NO_SCORE,
        lambda name, path: Codec(
            name, path, _one, _one_reply, EvaluateRequest, EvaluateReply, _EXAMPLE,
            "Score one conversation in reward-kit's format.",
        ),
        (
            ("evaluate", "/evaluate"),
            ("evaluate_as_reward", "/reward"),
            ("evaluation", "/v1/evaluations/{id}"),
            ("evaluate_evaluation", "/v1/evaluations/{id}/evaluate"),
            ("evaluate_reward", "/v1/rewards/{name}/evaluate"),
        ),
    ),
    Format(
        "evaluate_batch",
        "/evaluate/batch",
        "the same, many at once",
        (("[i]", "as above; an item that does not fit is failed and costs no other one"),),
        _NO_SCORE,
        lambda name, path: Codec(
            name, path, _many, _many_reply, EvaluateBatch, EvaluateReplies, [_EXAMPLE],
            "Score many conversations in reward-kit's format, with a result for each.",
        ),
        (
            ("evaluate_batch", "/evaluate/batch"),
            ("evaluation_batch", "/v1/evaluations/{id}/batch"),
            ("evaluate_reward_batch", "/v1/rewards/{name}/evaluate/batch"),
        ),
    ),
)  # fmt: skip
