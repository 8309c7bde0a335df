"""The request formats of training: reward-kit, OpenRLHF's remote reward, slime's and miles'
remote_rm, NeMo-Gym's /verify, vLLM's /score and /classify.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, RootModel, TypeAdapter

from rm_gallery.core.data.load.rollouts import LAYOUTS
from rm_gallery.core.model.transport import Json
from rm_gallery.core.score import Score
from rm_gallery.core.utils.errors import DataError
from rm_gallery.gallery.rm.environments import VERDICT
from rm_gallery.integrations.causes import flags
from rm_gallery.integrations.openrlhf import response_of
from rm_gallery.serve.formats import (
    GIVEN,
    MAX_ITEMS,
    NULL,
    Answered,
    Ask,
    Codec,
    Open,
    Posted,
    Refused,
    Turn,
    conversation,
    described,
    invalid,
    one_length,
    read,
)

# -- reward-kit and eval-protocol ------------------------------------------------------------------


class EvaluateRequest(Open):
    """A conversation; further keywords of the function stand in `kwargs` or beside the other
    fields.
    """

    messages: list[Turn]
    ground_truth: Any = Field(default=None, description="The reference, of any type.")
    original_messages: list[Turn] | None = None
    tools: list[Any] | None = None
    kwargs: Json | None = None


class MetricReply(BaseModel):
    """One component."""

    is_score_valid: bool
    score: float
    reason: str


class EvaluateReply(BaseModel):
    """A result. Where there is no score it is null and `is_score_valid` is false: with `error` the
    judging broke, without it there was nothing to judge by, as `reason` says.
    """

    score: float | None
    is_score_valid: bool
    reason: str | None
    metrics: dict[str, MetricReply]
    step_outputs: list[Json] | None
    error: str | None


class EvaluateBatch(
    RootModel[Annotated[list[EvaluateRequest], Field(min_length=1, max_length=MAX_ITEMS)]]
):
    """Many conversations."""


class EvaluateReplies(RootModel[list[EvaluateReply]]):
    """One result per conversation, in their order."""


def _conversation_ask(body: Any, where: str = "") -> Ask:
    request = read(EvaluateRequest, body, where)
    return Ask(
        messages=body["messages"],
        reference=request.ground_truth,
        row={**(request.model_extra or {}), **(request.kwargs or {})},
        original_messages=body.get("original_messages"),
        tools=request.tools,
    )


def _conversation_asks(posted: Posted) -> list[Ask]:
    body = posted.body
    if not isinstance(body, list) or not 0 < len(body) <= MAX_ITEMS:
        raise invalid(f"the body is no list of 1 to {MAX_ITEMS} conversations.")
    asks = []
    for place, item in enumerate(body):
        try:
            asks.append(_conversation_ask(item, f"[{place}]"))
        except Refused as refused:
            asks.append(Ask(messages=[], problem=str(refused)))
    return asks


def _evaluate_result(outcome: Score[float]) -> Json:
    """An outcome as reward-kit's result; a result without a valid score has no number that could be
    taken for one.
    """
    broke = outcome.status == "failed"
    parts, extra = ({}, {}) if broke else (outcome.components, outcome.extra)
    metrics = {
        name: {"is_score_valid": True, "score": part, "reason": ""} for name, part in parts.items()
    }
    own_metrics = extra.get("metrics")
    for name, metric in own_metrics.items() if isinstance(own_metrics, Mapping) else ():
        if isinstance(metric, Mapping) and "score" in metric:
            metrics[name] = {**metrics.get(name, {}), **metric}
    # what a function put there may be anything
    steps = _ANYTHING.dump_python(extra.get("step_outputs"), mode="json", fallback=str)
    return {
        "score": outcome.value,
        "is_score_valid": outcome.value is not None,
        "reason": outcome.reason or None,
        "metrics": metrics,
        "step_outputs": steps,
        "error": f"{outcome.code}: {outcome.reason}" if broke else None,
    }


_ANYTHING: TypeAdapter[Any] = TypeAdapter(Any)


# -- OpenRLHF --------------------------------------------------------------------------------------


class OpenrlhfRequest(Open):
    """Texts with their prompts, special tokens included."""

    query: list[str] = Field(min_length=1, max_length=MAX_ITEMS)
    prompts: list[str] = Field(min_length=1, max_length=MAX_ITEMS)
    labels: list[Any] | None = None


class OpenrlhfReply(BaseModel):
    """One entry per text; `extra_logs` holds numbers only."""

    rewards: list[float]
    scores: list[float]
    extra_logs: dict[str, list[float]]


def _openrlhf(posted: Posted) -> list[Ask]:
    texts, prompts = posted.request.query, posted.request.prompts
    labels = posted.request.labels
    one_length("query, prompts and labels are", query=texts, prompts=prompts, labels=labels)
    asks = []
    for place, (text, prompt) in enumerate(zip(texts, prompts, strict=True)):
        answer, label = response_of(text, prompt), labels[place] if labels else None
        ask = Ask(prompt=prompt, completion=answer or "", reference=label, row={"label": label})
        if answer is None:
            what = f"query[{place}] does not begin with prompts[{place}]."
            ask = ask._replace(problem=what)
        asks.append(ask)
    return asks


def _openrlhf_reply(said: Answered) -> Json:
    # OpenRLHF takes the keys of its first sample for those of all, and asks for one sample at a
    # time
    logs = {
        name: [
            each.components.get(name, score if each.value is None else 0.0)
            for each, score in zip(said.outcomes, said.scores, strict=True)
        ]
        for name in filter(None, said.params.get("components", "").split(","))
    }
    for flag in flags(said.outcomes[0]):
        logs[flag] = [flags(each)[flag] for each in said.outcomes]
    return {"rewards": said.scores, "scores": said.scores, "extra_logs": logs}


# -- slime and miles -------------------------------------------------------------------------------


class RemoteRmRequest(Open):
    """One response with its prompt, a text or messages."""

    prompt: str | list[Turn] = ""
    response: str
    label: Any = None
    metadata: Json | None = None


class RemoteRmReply(RootModel[float | dict[str, float]]):
    """The reward itself; with `?keys=true` an object with score, components, unscored and failed,
    for --reward-key score.
    """


def _remote_rm(posted: Posted) -> list[Ask]:
    request, wanted = posted.request, posted.params.get("keys", "false")
    if wanted not in ("true", "false"):
        raise invalid(
            f"keys is {wanted!r:.60}; give true for an object with all components, or false."
        )
    return [
        Ask(
            prompt=conversation(posted.body.get("prompt"), "prompt"),
            completion=request.response,
            reference=request.label,
            row={**(request.metadata or {}), "label": request.label},
        )
    ]


def _remote_rm_reply(said: Answered) -> Any:
    [score], [outcome] = said.scores, said.outcomes
    if said.params.get("keys") != "true":
        return score
    return {**outcome.components, "score": score, **flags(outcome)}


# -- vLLM ------------------------------------------------------------------------------------------


class PoolingUsage(BaseModel):
    """No tokens are counted here."""

    prompt_tokens: int = 0
    total_tokens: int = 0
    completion_tokens: int | None = 0


class VllmScoreRequest(Open):
    """Prompts and answers: one to many, or many to as many; `queries` and `documents` are other
    names for them.
    """

    model_config = ConfigDict(
        json_schema_extra=described(
            *({a: GIVEN, b: GIVEN} for a in ("text_1", "queries") for b in ("text_2", "documents"))
        )
    )

    model: str | None = None
    text_1: str | list[str] | None = None
    text_2: str | list[str] | None = None
    queries: str | list[str] | None = None
    documents: str | list[str] | None = None


class VllmScoreEntry(BaseModel):
    """The score of one pair."""

    index: int
    object: str = "score"
    score: float


class PoolingReply(BaseModel):
    """What both replies begin with."""

    id: str
    object: str = "list"
    created: int
    model: str
    usage: PoolingUsage


class VllmScoreReply(PoolingReply):
    """Scores in the order of the pairs."""

    data: list[VllmScoreEntry]


class VllmClassifyRequest(Open):
    """Whole texts, or the messages of one conversation."""

    model_config = ConfigDict(
        json_schema_extra=described(
            {"input": GIVEN, "messages": NULL}, {"messages": GIVEN, "input": NULL}
        )
    )

    model: str | None = None
    input: str | list[str] | None = None
    messages: list[Turn] | None = None


class VllmClassifyEntry(BaseModel):
    """The score of one text, as the only number of `probs`."""

    index: int
    label: str | None = None
    probs: list[float] = Field(min_length=1)
    num_classes: int


class VllmClassifyReply(PoolingReply):
    """Scores in the order of the texts."""

    data: list[VllmClassifyEntry]


def _vllm_score(posted: Posted) -> list[Ask]:
    request = posted.request
    first = request.text_1 if request.text_1 is not None else request.queries
    second = request.text_2 if request.text_2 is not None else request.documents
    if first is None or second is None:
        raise invalid("the body lacks text_1 or text_2; give prompts and answers.")
    prompts, answers = _texts(first), _texts(second)
    if len(prompts) == 1:
        prompts = prompts * len(answers)
    one_length("text_1 and text_2 are", text_1=prompts, text_2=answers)
    return [Ask(prompt=p, completion=a) for p, a in zip(prompts, answers, strict=True)]


def _vllm_classify(posted: Posted) -> list[Ask]:
    request = posted.request
    if (request.input is None) == (request.messages is None):
        raise invalid("the body needs input (a text or several) or messages, and not both.")
    if request.messages is not None:
        return [Ask(messages=posted.body["messages"])]
    texts = _texts(request.input)
    one_length("input is", input=texts)
    return [Ask(completion=text) for text in texts]


def _texts(given: str | list[str]) -> list[str]:
    return [given] if isinstance(given, str) else given


def _pooled(what: str, said: Answered, entry: Callable[[float], Json]) -> Json:
    """The scores in the frame of vLLM's replies, each as an entry of its kind."""
    return {
        "id": f"{what}-{uuid.uuid4().hex}",
        "object": "list",
        "created": int(time.time()),
        "model": said.body.get("model") or "",
        "data": [{"index": place, **entry(score)} for place, score in enumerate(said.scores)],
        "usage": PoolingUsage().model_dump(),
    }


# -- NeMo-Gym --------------------------------------------------------------------------------------


class VerifyRequest(Open):
    """What NeMo-Gym asks of a resources server: what was asked, and the response in the layout of
    OpenAI's responses; further fields are those of the task's row.
    """

    responses_create_params: Json
    response: Json


class VerifyReply(Open):
    """The request again with its reward. Where there is no score, `reward` is 0, `mask_sample` is
    true, and `_ng_failure_class` keeps the row out of NeMo-Gym's figures until it is judged again.
    """

    reward: float
    reward_components: dict[str, float]
    mask_sample: bool
    failure_kind: str | None = Field(description="Who caused a missing score.")


def _verify(posted: Posted) -> list[Ask]:
    try:
        rollout = LAYOUTS["NeMo-Gym"].read(posted.body)
    except KeyError as error:
        raise invalid(f"the body is no rollout of NeMo-Gym: there is no {error}.") from error
    except (DataError, TypeError, AttributeError) as error:
        raise invalid(f"the body is no rollout of NeMo-Gym: {str(error)[:200]}.") from error
    return [
        Ask(
            prompt=rollout.prompt,
            completion=rollout.completion,
            reference=rollout.truth,
            row=_without_verdict(rollout.about),
            tools=rollout.tools,
        )
    ]


def _verify_reply(said: Answered) -> Json:
    [outcome] = said.outcomes
    missing = outcome.value is None
    verdict: Json = {
        "reward": outcome.value or 0.0,
        "reward_components": {} if missing else dict(outcome.components),
        "mask_sample": missing,
        "failure_kind": outcome.cause,
    }
    if missing:
        why = f"{outcome.code}: {outcome.reason}"
        verdict |= {"_ng_failure_class": "judge_failed", "_ng_failure_judge_error": why}
    return {**_without_verdict(said.body), **verdict}


def _without_verdict(rollout: Mapping[str, Any]) -> Json:
    """A rollout without what was made of it before."""
    return {name: value for name, value in rollout.items() if name not in VERDICT}


FORMATS = (
    Codec.of(
        "evaluate",
        lambda posted: [_conversation_ask(posted.body)],
        lambda said: _evaluate_result(said.outcomes[0]),
        EvaluateRequest,
        EvaluateReply,
    ),
    Codec.of(
        "evaluate_batch",
        _conversation_asks,
        lambda said: list(map(_evaluate_result, said.outcomes)),
        EvaluateBatch,
        EvaluateReplies,
    ),
    Codec.of("openrlhf", _openrlhf, _openrlhf_reply, OpenrlhfRequest, OpenrlhfReply),
    Codec.of("remote_rm", _remote_rm, _remote_rm_reply, RemoteRmRequest, RemoteRmReply),
    Codec.of("nemo_gym", _verify, _verify_reply, VerifyRequest, VerifyReply),
    Codec.of(
        "vllm_score",
        _vllm_score,
        lambda said: _pooled("score", said, lambda score: {"object": "score", "score": score}),
        VllmScoreRequest,
        VllmScoreReply,
        lambda request: request.model,
    ),
    Codec.of(
        "vllm_classify",
        _vllm_classify,
        lambda said: _pooled(
            "classify", said, lambda score: {"label": None, "probs": [score], "num_classes": 1}
        ),
        VllmClassifyRequest,
        VllmClassifyReply,
        lambda request: request.model,
    ),
)
"""The formats; docs/serving-formats.md says of each who sends it, and what its fields are here."""
