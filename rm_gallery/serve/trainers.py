"""The request formats of training: reward-kit, OpenRLHF's remote reward, slime's and miles'
remote_rm, NeMo-Gym's /verify, vLLM's /score and /classify.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, RootModel, TypeAdapter

from rm_gallery.core.data.load.rollouts import LAYOUTS
from rm_gallery.core.score import Score
from rm_gallery.core.utils.errors import DataError
from rm_gallery.gallery.rm.environments import VERDICT
from rm_gallery.integrations.causes import flags
from rm_gallery.integrations.openrlhf import response_of
from rm_gallery.serve.formats import (
    GIVEN,
    MAX_ITEMS,
    NULL,
    ON_ERROR,
    Ask,
    Format,
    Kept,
    Open,
    Params,
    Refused,
    Turn,
    conversation,
    described,
    invalid,
    kept_of,
    numbers,
    one_length,
    read,
    target_of,
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
    kwargs: dict[str, Any] | None = None


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
    step_outputs: list[dict[str, Any]] | None
    error: str | None


class EvaluateBatch(
    RootModel[Annotated[list[EvaluateRequest], Field(min_length=1, max_length=MAX_ITEMS)]]
):
    """Many conversations."""


class EvaluateReplies(RootModel[list[EvaluateReply]]):
    """One result per conversation, in their order."""


def _conversation_ask(body: Any, where: str = "") -> Ask:
    request = read(EvaluateRequest, body, where)
    row = {**(request.model_extra or {}), **(request.kwargs or {})}
    return Ask(
        messages=body["messages"],
        reference=request.ground_truth,
        row=row,
        original_messages=body.get("original_messages"),
        tools=request.tools,
    )


def _parse_one(body: Any, params: Params) -> tuple[str, list[Ask]]:
    return target_of(params) or "evaluator:", [_conversation_ask(body)]


def _parse_many(body: Any, params: Params) -> tuple[str, list[Ask]]:
    if not isinstance(body, list) or not 0 < len(body) <= MAX_ITEMS:
        raise invalid(f"the body is no list of 1 to {MAX_ITEMS} conversations.")
    asks = []
    for place, item in enumerate(body):
        try:
            asks.append(_conversation_ask(item, f"[{place}]"))
        except Refused as refused:
            asks.append(Ask(messages=[], problem=str(refused)))
    return target_of(params) or "evaluator:", asks


def _evaluate_result(outcome: Score[float]) -> dict[str, Any]:
    """An outcome as an EvaluateResult; a result without a valid score has no number that could be
    taken for one.
    """
    reason = outcome.reason or None
    base: dict[str, Any] = {
        "score": outcome.value,
        "is_score_valid": outcome.value is not None,
        "reason": reason,
    }
    base |= {"metrics": {}, "step_outputs": None, "error": None}
    if outcome.status == "failed":
        return {**base, "error": f"{outcome.code}: {outcome.reason}"}
    metrics = {
        name: {"is_score_valid": True, "score": part, "reason": ""}
        for name, part in outcome.components.items()
    }
    own_metrics = outcome.extra.get("metrics")
    for name, metric in own_metrics.items() if isinstance(own_metrics, Mapping) else ():
        if isinstance(metric, Mapping) and "score" in metric:
            metrics[name] = {**metrics.get(name, {}), **metric}
    # what a function put there may be anything
    steps = _ANYTHING.dump_python(outcome.extra.get("step_outputs"), mode="json", fallback=str)
    return {**base, "metrics": metrics, "step_outputs": steps}


_ANYTHING: TypeAdapter[Any] = TypeAdapter(Any)


def _one_reply(asks: Sequence[Ask], outcomes: Sequence[Score[float]]) -> tuple[int, Any]:
    return 504 if outcomes[0].code == "deadline" else 200, _evaluate_result(outcomes[0])


def _many_reply(asks: Sequence[Ask], outcomes: Sequence[Score[float]]) -> tuple[int, Any]:
    return 200, list(map(_evaluate_result, outcomes))


_EXAMPLE = {
    "messages": [
        {"role": "user", "content": "What is 2 + 2?"},
        {"role": "assistant", "content": "4"},
    ],
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


def _openrlhf(body: Any, params: Params) -> tuple[str, list[Ask]]:
    request = read(OpenrlhfRequest, body)
    kept = kept_of(params, [name for name in params.get("components", "").split(",") if name])
    one_length(
        "query, prompts and labels are",
        query=request.query,
        prompts=request.prompts,
        labels=request.labels,
    )
    labels = request.labels or [None] * len(request.query)
    asks = []
    for place, (text, prompt, label) in enumerate(
        zip(request.query, request.prompts, labels, strict=True)
    ):
        answer = response_of(text, prompt)
        problem = (
            "" if answer is not None else f"query[{place}] does not begin with prompts[{place}]."
        )
        row = {"label": label}
        asks.append(
            Ask(
                prompt=prompt,
                completion=answer or "",
                reference=label,
                row=row,
                problem=problem,
                kept=kept,
            )
        )
    return target_of(params), asks


def _openrlhf_reply(asks: Sequence[Ask], outcomes: Sequence[Score[float]]) -> tuple[int, Any]:
    scores = numbers(asks, outcomes)
    # OpenRLHF takes the keys of its first sample for those of all, and asks for one sample at a
    # time
    logs = {
        name: [
            each.components.get(name, score if each.value is None else 0.0)
            for each, score in zip(outcomes, scores, strict=True)
        ]
        for name in asks[0].kept.of
    }
    for flag in flags(outcomes[0]):
        logs[flag] = [flags(each)[flag] for each in outcomes]
    return 200, {"rewards": scores, "scores": scores, "extra_logs": logs}


# -- slime and miles -------------------------------------------------------------------------------


class RemoteRmRequest(Open):
    """One response with its prompt, a text or messages."""

    prompt: str | list[Turn] = ""
    response: str
    label: Any = None
    metadata: dict[str, Any] | None = None


class RemoteRmReply(RootModel[float | dict[str, float]]):
    """The reward itself; with `?keys=true` an object with score, components, unscored and failed,
    for --reward-key score.
    """


def _remote_rm(body: Any, params: Params) -> tuple[str, list[Ask]]:
    request = read(RemoteRmRequest, body)
    wanted = params.get("keys", "false")
    if wanted not in ("true", "false"):
        raise invalid(
            f"keys is {wanted!r:.60}; give true for an object with all components, or false."
        )
    kept = kept_of(params, wanted == "true")
    row = {**(request.metadata or {}), "label": request.label}
    prompt = conversation(body.get("prompt"), "prompt")
    return target_of(params), [
        Ask(prompt=prompt, completion=request.response, reference=request.label, row=row, kept=kept)
    ]


def _remote_rm_reply(asks: Sequence[Ask], outcomes: Sequence[Score[float]]) -> tuple[int, Any]:
    score = numbers(asks, outcomes)[0]
    if not asks[0].kept.of:
        return 200, score
    return 200, {**outcomes[0].components, "score": score, **flags(outcomes[0])}


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


def _model_target(model: str | None, params: Params) -> str:
    return target_of(params) or (f"reward:{model}" if model else "")


def _vllm_score(body: Any, params: Params) -> tuple[str, list[Ask]]:
    request, kept = read(VllmScoreRequest, body), None
    first = request.text_1 if request.text_1 is not None else request.queries
    second = request.text_2 if request.text_2 is not None else request.documents
    if first is None or second is None:
        raise invalid("the body lacks text_1 or text_2; give prompts and answers.")
    answers = [second] if isinstance(second, str) else second
    prompts = [first] * len(answers) if isinstance(first, str) else first
    if len(prompts) == 1:
        prompts = prompts * len(answers)
    one_length("text_1 and text_2 are", text_1=prompts, text_2=answers)
    kept = kept_of(params, request.model or "")
    pairs = zip(prompts, answers, strict=True)
    return _model_target(request.model, params), [
        Ask(prompt=p, completion=a, kept=kept) for p, a in pairs
    ]


def _vllm_classify(body: Any, params: Params) -> tuple[str, list[Ask]]:
    request = read(VllmClassifyRequest, body)
    kept = kept_of(params, request.model or "")
    if (request.input is None) == (request.messages is None):
        raise invalid("the body needs input (a text or several) or messages, and not both.")
    if request.messages is not None:
        asks = [Ask(messages=body["messages"], kept=kept)]
    else:
        texts = [request.input] if isinstance(request.input, str) else request.input or []
        one_length("input is", input=texts)
        asks = [Ask(completion=text, kept=kept) for text in texts]
    return _model_target(request.model, params), asks


def _pooled(prefix: str, asks: Sequence[Ask], data: list[dict[str, Any]]) -> tuple[int, Any]:
    usage = {"prompt_tokens": 0, "total_tokens": 0, "completion_tokens": 0}
    head = {"id": f"{prefix}-{uuid.uuid4().hex}", "object": "list", "created": int(time.time())}
    return 200, {**head, "model": asks[0].kept.of, "data": data, "usage": usage}


def _vllm_score_reply(asks: Sequence[Ask], outcomes: Sequence[Score[float]]) -> tuple[int, Any]:
    scores = enumerate(numbers(asks, outcomes))
    return _pooled(
        "score", asks, [{"index": i, "object": "score", "score": score} for i, score in scores]
    )


def _vllm_classify_reply(asks: Sequence[Ask], outcomes: Sequence[Score[float]]) -> tuple[int, Any]:
    scores = enumerate(numbers(asks, outcomes))
    data = [{"index": i, "label": None, "probs": [score], "num_classes": 1} for i, score in scores]
    return _pooled("classify", asks, data)


# -- NeMo-Gym --------------------------------------------------------------------------------------


class VerifyRequest(Open):
    """What NeMo-Gym asks of a resources server: what was asked, and the response in the layout of
    OpenAI's responses; further fields are those of the task's row.
    """

    responses_create_params: dict[str, Any]
    response: dict[str, Any]


class VerifyReply(Open):
    """The request again with its reward. Where there is no score, `reward` is 0, `mask_sample` is
    true, and `_ng_failure_class` keeps the row out of NeMo-Gym's figures until it is judged again.
    """

    reward: float
    reward_components: dict[str, float]
    mask_sample: bool
    failure_kind: str | None = Field(description="Who caused a missing score.")


def _verify(body: Any, params: Params) -> tuple[str, list[Ask]]:
    read(VerifyRequest, body)
    try:
        rollout = LAYOUTS["NeMo-Gym"].read(body)
    except KeyError as error:
        raise invalid(f"the body is no rollout of NeMo-Gym: there is no {error}.") from error
    except (DataError, TypeError, AttributeError) as error:
        raise invalid(f"the body is no rollout of NeMo-Gym: {str(error)[:200]}.") from error
    row = {name: value for name, value in rollout.about.items() if name not in VERDICT}
    ask = Ask(
        prompt=rollout.prompt,
        completion=rollout.completion,
        reference=rollout.truth,
        row=row,
        tools=rollout.tools,
        kept=Kept(of=body),
    )
    return target_of(params), [ask]


def _verify_reply(asks: Sequence[Ask], outcomes: Sequence[Score[float]]) -> tuple[int, Any]:
    outcome, body = outcomes[0], asks[0].kept.of
    asked = {name: value for name, value in body.items() if name not in VERDICT}
    verdict: dict[str, Any] = {
        "reward": 0.0 if outcome.value is None else outcome.value,
        "reward_components": {} if outcome.value is None else dict(outcome.components),
        "mask_sample": outcome.value is None,
        "failure_kind": outcome.cause,
    }
    if outcome.value is None:
        why = f"{outcome.code}: {outcome.reason}"
        verdict |= {"_ng_failure_class": "judge_failed", "_ng_failure_judge_error": why}
    return 200, {**asked, **verdict}


REFUSED = "HTTP 503 for failed, 422 for unscored; with `?on_error=NUMBER` that number"

FORMATS = (
    Format(
        "evaluate", "/evaluate", _parse_one, _one_reply, EvaluateRequest, EvaluateReply, _EXAMPLE,
        "Score one conversation in reward-kit's format.",
        title="reward-kit, eval-protocol",
        fields=_FIELDS,
        no_score=_NO_SCORE,
        places=(
            ("evaluate", "/evaluate"),
            ("evaluate_as_reward", "/reward"),
            ("evaluation", "/v1/evaluations/{id}"),
            ("evaluate_evaluation", "/v1/evaluations/{id}/evaluate"),
            ("evaluate_reward", "/v1/rewards/{name}/evaluate"),
        ),
    ),
    Format(
        "evaluate_batch", "/evaluate/batch", _parse_many, _many_reply, EvaluateBatch, EvaluateReplies, [_EXAMPLE],
        "Score many conversations in reward-kit's format, with a result for each.",
        title="the same, many at once",
        fields=(("[i]", "as above; an item that does not fit is failed and costs no other one"),),
        no_score=_NO_SCORE,
        places=(
            ("evaluate_batch", "/evaluate/batch"),
            ("evaluation_batch", "/v1/evaluations/{id}/batch"),
            ("evaluate_reward_batch", "/v1/rewards/{name}/evaluate/batch"),
        ),
    ),
    Format(
        "openrlhf", "/get_reward", _openrlhf, _openrlhf_reply, OpenrlhfRequest, OpenrlhfReply,
        {"query": ["What is 2 + 2?4</s>"], "prompts": ["What is 2 + 2?"], "labels": ["4"]},
        "Score completions in OpenRLHF's format.",
        {**ON_ERROR, "components": (str, "Components to log, separated by commas; always the same for all completions.")},
        title="OpenRLHF (`--reward.remote_url`)",
        fields=(
            ("prompts[i]", "prompt"),
            ("query[i] behind prompts[i], special tokens at its ends left out", "completion"),
            ("labels[i]", "reference, and label of the row"),
            ("→ rewards[i], scores[i]", "score"),
            ("→ extra_logs", "unscored and failed (0 or 1), and the components that `?components=a,b` names"),
        ),
        no_score=REFUSED,
    ),
    Format(
        "remote_rm", "/rm", _remote_rm, _remote_rm_reply, RemoteRmRequest, RemoteRmReply,
        {"prompt": "What is 2 + 2?", "response": "4", "label": "4"},
        "Score one completion in the format of slime's and miles' remote_rm.",
        {**ON_ERROR, "keys": (bool, "Whether to answer with an object of all components.")},
        title="slime, miles (`--rm-type remote_rm`)",
        fields=(
            ("prompt", "prompt"),
            ("response, special tokens at its end left out", "completion"),
            ("label", "reference, and label of the row"),
            ("metadata", "row"),
            ("→ the body", (
                "score; with `?keys=true` an object with score, components, unscored and failed (0 "
                "or 1)"
            )),
        ),
        no_score=REFUSED,
    ),
    Format(
        "nemo_gym", "/verify", _verify, _verify_reply, VerifyRequest, VerifyReply,
        {
            "responses_create_params": {"input": "What is 2 + 2?"},
            "response": {"output": [{"type": "message", "role": "assistant", "content": "4"}]},
            "expected_answer": "4",
        },
        "Score one rollout in the format of NeMo-Gym's /verify.",
        title="NeMo-Gym (a resources server)",
        fields=(
            ("responses_create_params.input", "prompt"),
            ("responses_create_params.tools", "tools"),
            ("response.output", "completion, with its steps: calls of tools and what they returned"),
            ("expected_answer", "reference"),
            ("every other field", "row"),
            ("→ reward, reward_components", "score, components"),
            ("→ failure_kind", "cause of a missing score"),
        ),
        no_score="`mask_sample` true with `reward` 0, and `_ng_failure_class`, by which NeMo-Gym leaves the row out",
    ),
    Format(
        "vllm_score", "/score", _vllm_score, _vllm_score_reply, VllmScoreRequest, VllmScoreReply,
        {"text_1": "What is 2 + 2?", "text_2": ["4", "5"]},
        "Score pairs of prompt and answer in the format of vLLM's /score.",
        ON_ERROR,
        title="clients of vLLM `/score`",
        fields=(
            ("model", "name of the reward, where the path names none"),
            ("text_1 (queries)", "prompt; one for all, or one each"),
            ("text_2 (documents)", "completion"),
            ("→ data[i].score", "score"),
        ),
        no_score=REFUSED,
    ),
    Format(
        "vllm_classify", "/classify", _vllm_classify, _vllm_classify_reply, VllmClassifyRequest, VllmClassifyReply,
        {"messages": [{"role": "user", "content": "What is 2 + 2?"}, {"role": "assistant", "content": "4"}]},
        "Score texts or a conversation in the format of vLLM's /classify.",
        ON_ERROR,
        title="clients of vLLM `/classify`, verl's reward router",
        fields=(
            ("model", "name of the reward, where the path names none"),
            ("input", "completion, without a prompt"),
            ("messages", "the conversation, its last assistant turn is scored"),
            ("→ data[i].probs[0]", "score"),
        ),
        no_score=REFUSED,
    ),
)  # fmt: skip
