"""The request formats of hosted fine-tuning: Google's, Azure's, AWS's and OpenAI's graders.

Field names are those of the services' documents: google-genai types (reinforcement tuning,
v1beta1), Microsoft's endpoint grader, Amazon's reward functions for Nova, openai's
grader_run_response.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, RootModel

from rm_gallery.core.model.transport import Json
from rm_gallery.integrations.causes import flags
from rm_gallery.serve.formats import (
    GIVEN,
    MAX_ITEMS,
    PROMPTS,
    REFERENCES,
    SOME,
    Answered,
    Ask,
    Codec,
    Open,
    Posted,
    Row,
    Turn,
    column,
    conversation,
    described,
    invalid,
    json_text,
)

# -- Google ----------------------------------------------------------------------------------------


class GooglePart(Open):
    """A piece of a turn; other pieces, such as images, are kept as they are."""

    text: str | None = None
    thought: bool | None = None
    functionCall: Json | None = None
    functionResponse: Json | None = None


class GoogleContent(Open):
    """A turn."""

    role: str | None = None
    parts: list[GooglePart] = Field(default_factory=list)


class GoogleExample(Open):
    """What was asked, with its references."""

    contents: list[GoogleContent] = Field(default_factory=list)
    systemInstruction: GoogleContent | None = Field(
        default=None, validation_alias=AliasChoices("systemInstruction", "system_instruction")
    )
    references: dict[str, str] = Field(default_factory=dict)
    tools: list[Any] | None = None


class GoogleRequest(Open):
    """One rollout."""

    example: GoogleExample
    response: GoogleContent
    metadata: Json = Field(default_factory=dict)


class GoogleReply(BaseModel):
    """The service clips the reward to [-1, 1]."""

    reward: float
    user_requested_aux_info: str | None = None


_GOOGLE_ROLES = {"model": "assistant", "function": "tool", None: "user"}


def _google(posted: Posted) -> list[Ask]:
    example, rows = posted.request.example, posted.request.example.references
    system = example.systemInstruction
    before = [{**turn, "role": "system"} for turn in _google_turns(system)] if system else []
    for content in example.contents:
        before += _google_turns(content)
    answer = posted.request.response.model_copy(update={"role": "model"})
    ask = _of_row(
        posted, rows, prompt=before, completion=_google_turns(answer), tools=example.tools
    )
    if ask.reference is None and len(rows) == 1 and "reference" not in posted.params:
        return [ask._replace(reference=next(iter(rows.values())))]
    return [ask]


def _of_row(posted: Posted, row: Row, **fields: Any) -> Ask:
    """An ask with its row's reference, and where the format has it there, with its prompt."""
    return Ask(row=row, reference=column(row, posted.params, "reference", REFERENCES), **fields)


def _of_item(posted: Posted, **fields: Any) -> list[Ask]:
    """The ask of a request whose `item` is the row, prompt included."""
    row = posted.request.item or {}
    prompt = conversation(column(row, posted.params, "prompt", PROMPTS), "item's prompt")
    return [_of_row(posted, row, prompt=prompt, **fields)]


def _google_turns(content: GoogleContent) -> list[Json]:
    """A turn as chat messages: one, and one more for every answer of a tool."""
    role = _GOOGLE_ROLES.get(content.role, content.role)
    parts = [part for part in content.parts if not part.thought]
    others = [
        part
        for part in parts
        if part.text is None and not part.functionCall and not part.functionResponse
    ]
    texts = [part.text for part in parts if part.text is not None]
    shown: Any = "".join(texts)
    if others:
        shown = [{"type": "text", "text": text} for text in texts]
        shown += [{"type": "inline", **part.model_dump(exclude_none=True)} for part in others]
    turn: Json = {"role": role, "content": shown}
    thoughts = "".join(part.text or "" for part in content.parts if part.thought)
    if thoughts:
        turn["reasoning_content"] = thoughts
    calls = [part.functionCall for part in parts if part.functionCall]
    if calls:
        turn["tool_calls"] = [_call_of_openai(call) for call in calls]
    answers = [part.functionResponse for part in parts if part.functionResponse]
    tool_turns = [
        {"role": "tool", "name": json_text(a.get("name")), "content": json_text(a.get("response"))}
        for a in answers
    ]
    return tool_turns if tool_turns and not texts and not calls else [turn, *tool_turns]


def _call_of_openai(call: Json) -> Json:
    arguments = call.get("args")
    function = {
        "name": json_text(call.get("name")),
        "arguments": arguments if isinstance(arguments, dict) else {},
    }
    return {"id": json_text(call.get("id")), "type": "function", "function": function}


def _google_reply(said: Answered) -> Json:
    return {"reward": said.scores[0], "user_requested_aux_info": said.outcomes[0].reason or None}


# -- Azure -----------------------------------------------------------------------------------------


class AzureChoice(Open):
    """One choice of a chat completion."""

    message: Turn


class AzureSample(Open):
    """What the model gave: a chat completion, or its text."""

    model_config = ConfigDict(
        json_schema_extra=described(
            {"choices": SOME}, {"output_text": GIVEN}, {"output_tools": SOME}
        )
    )

    choices: list[AzureChoice] | None = None
    output_text: str | None = None
    output_tools: list[Json] | None = None


class AzureRequest(Open):
    """One rollout with its row."""

    sample: AzureSample
    item: Json | None = None
    trace_id: str | None = None


class AzureReply(BaseModel):
    """The grade."""

    score: float


def _azure(posted: Posted) -> list[Ask]:
    sample = posted.request.sample
    if sample.choices:
        answer = posted.body["sample"]["choices"][0]["message"]
    elif sample.output_text is not None or sample.output_tools:
        answer = {"role": "assistant", "content": sample.output_text or ""}
        answer |= {"tool_calls": sample.output_tools} if sample.output_tools else {}
    else:
        raise invalid("sample has neither choices nor output_text; give what the model said.")
    return _of_item(posted, completion=[answer], id=posted.request.trace_id or "")


# -- AWS -------------------------------------------------------------------------------------------


class AwsItem(Open):
    """One rollout; the reference answer stands in its metadata (Bedrock) or beside it (SageMaker)."""

    id: str
    messages: list[Turn] = Field(min_length=1)
    metadata: Json | None = None
    reference_answer: Any = None


class AwsRequest(RootModel[Annotated[list[AwsItem], Field(min_length=1, max_length=MAX_ITEMS)]]):
    """The rollouts."""


class AwsMetric(BaseModel):
    """A number beside the reward."""

    name: str
    value: float
    type: str


class AwsReplyItem(BaseModel):
    """The reward of one rollout."""

    id: str
    aggregate_reward_score: float
    metrics_list: list[AwsMetric]


class AwsReply(RootModel[list[AwsReplyItem]]):
    """One entry per rollout, in the order they came."""


def _aws(posted: Posted) -> list[Ask]:
    asks = []
    for raw, item in zip(posted.body, posted.request.root, strict=True):
        row = {**(item.metadata or {}), **(item.model_extra or {})}
        if item.reference_answer is not None:
            row["reference_answer"] = item.reference_answer
        asks.append(_of_row(posted, row, messages=raw["messages"], id=item.id))
    return asks


def _aws_reply(said: Answered) -> list[Json]:
    entries = []
    for ask, each, score in zip(said.asks, said.outcomes, said.scores, strict=True):
        metrics = [
            {"name": name, "value": value, "type": kind}
            for kind, values in (("Reward", each.components), ("Metric", flags(each)))
            for name, value in values.items()
        ]
        entries.append({"id": ask.id, "aggregate_reward_score": score, "metrics_list": metrics})
    return entries


# -- OpenAI ----------------------------------------------------------------------------------------


class OpenaiRequest(Open):
    """One rollout; `grader` names the reward where the path does not."""

    grader: Json | None = None
    model_sample: str
    item: Json | None = None


class OpenaiErrors(BaseModel):
    """What went wrong, as flags."""

    formula_parse_error: bool = False
    sample_parse_error: bool = False
    truncated_observation_error: bool = False
    unresponsive_reward_error: bool = False
    invalid_variable_error: bool = False
    other_error: bool = False
    python_grader_server_error: bool = False
    python_grader_server_error_type: str | None = None
    python_grader_runtime_error: bool = False
    python_grader_runtime_error_details: str | None = None
    model_grader_server_error: bool = False
    model_grader_refusal_error: bool = False
    model_grader_parse_error: bool = False
    model_grader_server_error_details: str | None = None


class OpenaiMetadata(BaseModel):
    """What the grade is made of."""

    name: str
    type: str
    errors: OpenaiErrors
    execution_time: float
    scores: Json
    token_usage: int | None = None
    sampled_model_name: str | None = None


class OpenaiReply(BaseModel):
    """A grade; null where there is none, with the flag that says why."""

    reward: float | None
    sub_rewards: Json
    metadata: OpenaiMetadata
    model_grader_token_usage_per_model: Json


_FLAGS = {
    "parse": "model_grader_parse_error",
    "content_filter": "model_grader_refusal_error",
    "truncated": "truncated_observation_error",
    "deadline": "unresponsive_reward_error",
    "invalid_item": "sample_parse_error",
    "no_reference": "invalid_variable_error",
    "rate_limit": "model_grader_server_error",
    "transient": "model_grader_server_error",
    "unreachable": "model_grader_server_error",
    "fatal": "model_grader_server_error",
    "error": "python_grader_runtime_error",
}
"""Our reasons for a missing score as flags of theirs; any other is other_error."""
_DETAILS = {"model_grader_server_error", "python_grader_runtime_error"}


def _openai_reply(said: Answered) -> Json:
    [each], grader = said.outcomes, said.body.get("grader") or {}
    wrong: Json = {}
    if each.value is None:
        flag = _FLAGS.get(each.code, "other_error")
        wrong = {flag: True, **({f"{flag}_details": each.reason} if flag in _DETAILS else {})}
    metadata = OpenaiMetadata(
        name=str(grader.get("name") or said.params.get("name", said.params.get("id", ""))),
        type=str(grader.get("type", "python")),
        errors=OpenaiErrors(**wrong),
        execution_time=0.0,
        scores=dict(each.components),
    )
    return {
        "reward": said.scores[0],
        "sub_rewards": each.components,
        "metadata": metadata.model_dump(),
        "model_grader_token_usage_per_model": {},
    }


FORMATS = (
    Codec.of("google", _google, _google_reply, GoogleRequest, GoogleReply),
    Codec.of("azure", _azure, lambda said: {"score": said.scores[0]}, AzureRequest, AzureReply),
    Codec.of("aws", _aws, _aws_reply, AwsRequest, AwsReply),
    Codec.of(
        "openai_run",
        lambda posted: _of_item(posted, completion=posted.request.model_sample),
        _openai_reply,
        OpenaiRequest,
        OpenaiReply,
        lambda request: (request.grader or {}).get("name"),
    ),
)
"""The formats; docs/serving-formats.md says of each who sends it, and what its fields are here."""
