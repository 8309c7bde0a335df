"""Converts OpenAI-style conversations into samples and back, for every door.

Functions, environments, trainers and the server hold a list of messages; rewards hold a
`DataSample`. A message keeps everything on the way there and back: null content, content parts,
tool calls, unknown keys.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, Mapping, Sequence, ValuesView
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rm_gallery.core.data.load.converters import ROLES, role_of, shown
from rm_gallery.core.data.schema import (
    CONVERSATION,
    TURN,
    DataOutput,
    DataSample,
    Reward,
    Step,
    is_absent,
    misfit,
    without_nan,
)
from rm_gallery.core.model.message import ChatMessage, ToolCall, ToolFunction, text_of
from rm_gallery.core.text.canonical import turn_text
from rm_gallery.core.utils.errors import DataError
from rm_gallery.core.utils.models import build, copy_with

M = TypeVar("M", bound=ChatMessage)
_PLAIN = frozenset({"role", "content"})
_AFTER, _ABSENT = "(after)", "(absent)"
"""Keys of an answer's `additional_kwargs`: the turns after it, and a mark that there is no answer."""
_OWN = frozenset({_AFTER, _ABSENT, CONVERSATION, TURN})


class MappingRecord(BaseModel):
    """A record that reads as an object (`result.score`) and as a mapping of its fields
    (`result["score"]`, `dict(result)`).
    """

    def _fields(self) -> dict[str, Any]:
        return {**self.__dict__, **(self.__pydantic_extra__ or {})}

    def __getitem__(self, name: str) -> Any:
        return self._fields()[name]

    def __len__(self) -> int:
        return len(self._fields())

    def __iter__(self) -> Iterator[str]:  # type: ignore[override]  # as a mapping does, so that dict(record) works
        return iter(self._fields())

    def get(self, name: str, default: Any = None) -> Any:
        """The field's value, `default` where there is no such field."""
        return self._fields().get(name, default)

    def keys(self) -> KeysView[str]:
        """Names of the fields."""
        return self._fields().keys()

    def values(self) -> ValuesView[Any]:
        """Values of the fields, in order."""
        return self._fields().values()

    def items(self) -> ItemsView[str, Any]:
        """Names and values of the fields."""
        return self._fields().items()


class CalledFunction(MappingRecord, ToolFunction):
    """Name and arguments of a called function, as an object and as a mapping."""


class MessageToolCall(MappingRecord, ToolCall):
    """A tool call of a `Message`, as an object and as a mapping."""

    function: CalledFunction = Field(default_factory=CalledFunction)


class Message(MappingRecord):
    """One turn of a conversation as a reward function reads it; keys beyond these fields are kept
    as fields.

    `content` is text, None (a turn that only calls tools) or a list of OpenAI content parts; `text`
    is always text.
    """

    model_config = ConfigDict(extra="allow", hide_input_in_errors=True)

    role: str
    content: str | list[dict[str, Any]] | None = ""
    name: str | None = None
    tool_calls: list[MessageToolCall] | None = None
    tool_call_id: str | None = None
    function_call: dict[str, Any] | None = None

    @property
    def text(self) -> str:
        """The text of the turn: its content, or its text parts joined by newlines; empty without
        any.
        """
        return text_of(self.content)


# -- reading messages ------------------------------------------------------------------------------


def message_dicts(messages: Any, what: str = "messages") -> list[dict[str, Any]]:
    """Messages of any make (dicts, models of this or another package, objects with role and
    content) as fresh dicts.

    Raises DataError naming the message and the key that does not fit.
    """
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Sequence):
        raise DataError(
            f"{what}: expected a list of messages with role and content, found {shown(messages)}."
        )
    return [_as_dict(message, f"{what}[{position}]") for position, message in enumerate(messages)]


def _as_dict(message: Any, where: str) -> dict[str, Any]:
    if isinstance(message, ChatMessage):
        return dict_of(message)
    if isinstance(message, Mapping):
        fields = dict(message)
    elif isinstance(message, BaseModel):
        fields = message.model_dump(exclude_unset=True)
        # a role, and the type of a part, may be defaults of their classes
        fields |= {
            name: value for name in ("role", "content") if (value := getattr(message, name, None))
        }
    else:
        fields = {
            name: value
            for name, value in getattr(message, "__dict__", {}).items()
            if not name.startswith("_")
        }
    if not isinstance(fields.get("role"), str):
        raise DataError(
            f"{where}: expected a message with role and content, found {shown(message)}."
        )
    content = fields.setdefault(
        "content", None if fields.get("tool_calls") or fields.get("function_call") else ""
    )
    if content is not None and not isinstance(content, str):
        if not isinstance(content, (list, tuple)):
            raise DataError(
                f"{where}.content: expected text, null or a list of content parts, found "
                f"{shown(content)}."
            )
        fields["content"] = [
            _part(part, f"{where}.content[{number}]") for number, part in enumerate(content)
        ]
    if fields.get("tool_calls") is not None:
        fields["tool_calls"] = _calls(fields["tool_calls"], f"{where}.tool_calls")
    return fields


def _part(part: Any, where: str) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if isinstance(part, BaseModel):
        return part.model_dump(exclude_none=True)
    if isinstance(part, Mapping):
        return {str(key): value for key, value in part.items()}
    raise DataError(f"{where}: expected a content part, found {shown(part)}.")


def _calls(calls: Any, where: str) -> list[dict[str, Any]]:
    """Tool calls in OpenAI's layout; a bare `{"name", "arguments"}` becomes the call's function."""
    if not isinstance(calls, (list, tuple)):
        raise DataError(f"{where}: expected a list of tool calls, found {shown(calls)}.")
    tool_calls = []
    for position, call in enumerate(calls):
        one = call.model_dump(exclude_none=True) if isinstance(call, BaseModel) else call
        if not isinstance(one, Mapping):
            raise DataError(f"{where}[{position}]: expected a tool call, found {shown(one)}.")
        fields = dict(one)
        if "function" not in fields and "name" in fields:
            fields["function"] = {
                "name": fields.pop("name"),
                "arguments": fields.pop("arguments", ""),
            }
        function = fields.get("function")
        if isinstance(function, Mapping) and function.get("arguments", "") is None:
            fields["function"] = {**function, "arguments": ""}
        tool_calls.append(fields)
    return tool_calls


def as_messages(messages: Any, what: str = "messages") -> list[Message]:
    """Messages of any make as `Message` objects; existing `Message` objects stay the same.

    Raises DataError naming the message and the key that does not fit.
    """
    if isinstance(messages, list) and all(type(message) is Message for message in messages):
        return messages
    made = []
    for position, fields in enumerate(message_dicts(messages, what)):
        try:
            made.append(Message.model_validate(fields))
        except ValidationError as error:
            raise DataError(f"{misfit(error, f'{what}[{position}]')}.") from error
    return made


# -- messages and samples --------------------------------------------------------------------------


def sample_of_messages(
    messages: Any,
    *,
    ground_truth: Any = None,
    original_messages: Any = None,
    tools: Any = None,
    row: Mapping[str, Any] | None = None,
    unique_id: str = "",
) -> DataSample:
    """A conversation as a sample with one output.

    The last assistant turn is the answer, what came before it in the same completion are its steps,
    and everything before that is the input. The completion begins where `original_messages` (the
    prompt) ends when the conversation begins with these, else at the first assistant turn after the
    last system or user turn. Without an assistant turn in it the answer is empty; what follows the
    last one is kept. `messages_of` gives the very conversation back.

    Args:
        messages: dicts or message objects.
        ground_truth: the right answer, of any type; the sample's `reference()`.
        original_messages: the prompt the completion answers.
        tools: definitions of the tools there were; the metadata's `tools`.
        row: other columns of the data set; they become metadata, where rewards find tests, schemas
            and patterns.
        unique_id: identity; empty for a hash of the content.

    Raises:
        DataError: a message does not fit; it is named by its position.
    """
    turns, begins, prompt = divided(messages, original_messages)
    metadata = _metadata(row, ground_truth, tools)
    if prompt is not None:
        metadata["original_messages"] = prompt
    return _sample_of_turns(turns, begins, metadata, unique_id)


def sample_of_completion(
    prompt: Any,
    completion: Any,
    *,
    ground_truth: Any = None,
    tools: Any = None,
    row: Mapping[str, Any] | None = None,
    unique_id: str = "",
) -> DataSample:
    """A trainer's row as a sample: prompt and completion, each a text, a message or messages.

    A text becomes one turn of the user or the assistant; a prompt may be None. The last assistant
    turn of the completion is the answer, the turns before it are its steps. The rest is as in
    `sample_of_messages`.
    """
    asked = [] if prompt is None else turns_said(prompt, "user", "prompt")
    spoken = turns_said("" if completion is None else completion, "assistant", "completion")
    return _sample_of_turns(
        [*asked, *spoken], len(asked), _metadata(row, ground_truth, tools), unique_id
    )


def _metadata(row: Mapping[str, Any] | None, ground_truth: Any, tools: Any) -> dict[str, Any]:
    metadata = without_nan(row or {})
    if not is_absent(ground_truth):
        metadata["reference"] = ground_truth
    if tools is not None:
        metadata["tools"] = tools
    return metadata


def turns_said(turns: Any, speaker: str, what: str) -> list[dict[str, Any]]:
    """A text of the speaker, a message or messages as turns; errors as in `message_dicts`."""
    if isinstance(turns, str):
        return [{"role": speaker, "content": turns}]
    return message_dicts([turns] if isinstance(turns, Mapping) else turns, what)


def _sample_of_turns(
    turns: list[dict[str, Any]], begins: int, metadata: dict[str, Any], unique_id: str
) -> DataSample:
    """The sample of a conversation whose completion begins at turn `begins`."""
    answer = _last_answer(turns, begins)
    steps = None
    if answer is None:
        last, after = _step({"role": "assistant", "content": ""}, "completion"), turns[begins:]
        last.additional_kwargs[_ABSENT] = True
    else:
        last, after = _step(turns[answer], f"messages[{answer}]"), turns[answer + 1 :]
        steps = [_step(turns[at], f"messages[{at}]") for at in range(begins, answer)] or None
    if after:
        last.additional_kwargs[_AFTER] = after
    output = build(DataOutput, {"answer": last, "steps": steps})
    if steps and not output.is_trajectory:
        # two turns in a row, or a user's first: not the steps of a solution
        last.additional_kwargs[CONVERSATION] = True
    fields: dict[str, Any] = {
        "unique_id": unique_id,
        "input": [_chat(turn, f"messages[{at}]") for at, turn in enumerate(turns[:begins])],
        "output": [output],
        "metadata": metadata or None,
    }
    return build(DataSample, {**fields, "task_category": None, "source": None, "created_at": None})


def _speaker(turn: Mapping[str, Any]) -> str:
    role: str = turn["role"]
    return role.strip().lower()


def _last_answer(turns: list[dict[str, Any]], begins: int) -> int | None:
    return next(
        (at for at in range(len(turns) - 1, begins - 1, -1) if _speaker(turns[at]) in _ANSWERS),
        None,
    )


_ANSWERS = frozenset({"assistant", "gpt", "bot", "model"})
_ASKS = frozenset({"user", "human", "system", "developer"})


def _prompt_ends(turns: list[dict[str, Any]], prompt: list[dict[str, Any]] | None) -> int | None:
    """The end of the given prompt; None if the conversation begins otherwise or the prompt holds
    the answer.
    """
    if prompt is None or turns[: len(prompt)] != prompt:
        return None
    # a prompt that is the whole conversation ends with the answer
    whole = turns != [] and turns == prompt and _last_answer(turns, len(turns) - 1) is not None
    return None if whole else len(prompt)


def _completion_begins(turns: list[dict[str, Any]]) -> int:
    """The begin of the completion with the answer: the first assistant turn after the last turn of a
    user or system.
    """
    begins = answer = _last_answer(turns, 0)
    if begins is None or answer is None:
        return len(turns)
    for at in range(answer, -1, -1):
        if _speaker(turns[at]) in _ASKS:
            break
        if _speaker(turns[at]) in _ANSWERS:
            begins = at
    return begins


def chat_messages(messages: Any) -> list[ChatMessage]:
    """Messages of any make as the `ChatMessage`s that a sample's input holds; errors as in
    `message_dicts`.
    """
    return [_chat(turn, f"messages[{at}]") for at, turn in enumerate(message_dicts(messages))]


def split_turns(
    messages: Any, original_messages: Any = None
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """A conversation as prompt and completion, divided where `sample_of_messages` divides it."""
    turns, begins, _ = divided(messages, original_messages)
    return turns[:begins], turns[begins:]


def split_rollout(
    turns: list[dict[str, Any]], prompt: list[dict[str, Any]] | None = None
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """A recorded rollout as prompt and what followed, divided where the given prompt ends, else
    before the agent's first turn.

    Later turns of a user belong to the rollout: what the agent did before them is part of its work
    (dialogues of tau-bench lost every call before the user's "thanks").
    """
    begins = _prompt_ends(turns, prompt)
    if begins is None:
        spoken = (at for at, turn in enumerate(turns) if _speaker(turn) in _ANSWERS)
        begins = next(spoken, len(turns))
    return turns[:begins], turns[begins:]


def divided(
    messages: Any, original: Any
) -> tuple[list[dict[str, Any]], int, list[dict[str, Any]] | None]:
    """The turns, the begin of the completion, and the given prompt if the conversation does not begin
    with it.
    """
    turns = message_dicts(messages)
    prompt = None if original is None else message_dicts(original, "original_messages")
    begins = _prompt_ends(turns, prompt)
    return (turns, _completion_begins(turns), prompt) if begins is None else (turns, begins, None)


def group_of(sample: DataSample) -> str:
    """The key of a group of completions to compare: the turns of the prompt and the reference."""
    return repr(([dict_of(message) for message in sample.input], sample.reference()))


def turns_after(output: DataOutput) -> list[ChatMessage]:
    """What tools, users and environments said after the answer, such as the result of a last call."""
    after = output.answer.additional_kwargs.get(_AFTER, ())
    return [_chat(dict(turn), "after the answer") for turn in after]


def at_turn(output: DataOutput, number: int) -> DataOutput:
    """The output when one of its `turns` had been taken, and heard what tools and others said to it:
    that turn is the answer, and what came before it the steps. It keeps the label of the whole.
    """
    spoken, places = [*(output.steps or ()), output.answer], output.turn_places
    place = places[number]
    if number + 1 < len(places):
        heard = [dict_of(said) for said in spoken[place + 1 : places[number + 1]]]
    else:
        heard = list(output.answer.additional_kwargs.get(_AFTER, ()))
    turn = spoken[place]
    about = {**turn.additional_kwargs, **({_AFTER: heard} if heard else {})}
    label = {**(output.answer.label or {}), **(turn.label or {})}
    answer = copy_with(turn, label=label or None, additional_kwargs={**about, CONVERSATION: True})
    return build(DataOutput, {"answer": answer, "steps": spoken[:place] or None})


def judged_at(output: DataOutput, number: int) -> DataOutput:
    """The output, of which step rewards judge the turn of this number alone, or its last."""
    number = min(number, len(output.turn_places) - 1)
    marked = {**output.answer.additional_kwargs, TURN: number}
    return copy_with(output, answer=copy_with(output.answer, additional_kwargs=marked))


def messages_of(sample: DataSample, output: DataOutput) -> list[dict[str, Any]]:
    """The conversation that leads to an output: input, steps, answer and what followed it, as
    OpenAI-style dicts.

    If the model said nothing, its empty turn ends the conversation: nobody else's words may pass for
    its answer.
    """
    turns = [dict_of(message) for message in (*sample.input, *(output.steps or ()))]
    answer = output.answer
    if isinstance(answer.content, str) and (content := turn_text(answer.content)) != answer.content:
        answer = answer.model_copy(update={"content": content})
    if not answer.additional_kwargs:
        return [*turns, dict_of(answer)]
    after = [dict(turn) for turn in answer.additional_kwargs.get(_AFTER, ())]
    given = dict_of(answer)
    return (
        [*turns, *after, given] if _ABSENT in answer.additional_kwargs else [*turns, given, *after]
    )


def response_in(messages: Sequence[Mapping[str, Any]]) -> str:
    """The text of the model's last turn; empty where it has none."""
    last = next((turn for turn in reversed(messages) if _speaker(turn) == "assistant"), None)
    return "" if last is None else _chat(dict(last), "messages").text


def dict_of(message: ChatMessage) -> dict[str, Any]:
    """A message as an OpenAI-style dict, with the reasoning and the further keys it came with."""
    fields = message.to_openai()
    if message.reasoning_content:
        fields["reasoning_content"] = message.reasoning_content
    kept = message.additional_kwargs
    return (
        {**fields, **{name: value for name, value in kept.items() if name not in _OWN}}
        if kept
        else fields
    )


def _chat(turn: dict[str, Any], where: str) -> ChatMessage:
    return _made(ChatMessage, turn, where, {})


def _step(turn: dict[str, Any], where: str) -> Step:
    return _made(Step, turn, where, {"label": {}, "reward": Reward()})


def _made(kind: type[M], turn: dict[str, Any], where: str, own: dict[str, Any]) -> M:
    """The message of a turn with the further fields `own`; a plain turn is not validated again."""
    if turn.keys() == _PLAIN and type(turn["content"]) is str and turn["role"] in ROLES:
        fields: dict[str, Any] = {
            "role": ROLES[turn["role"]],
            "content": turn["content"],
            "additional_kwargs": {},
        }
        return build(kind, {**_EMPTY, **fields, **own})
    try:
        return kind.model_validate(_kept(turn, where))
    except ValidationError as error:
        raise DataError(f"{misfit(error, where)}.") from error


_EMPTY = {"name": None, "reasoning_content": "", "tool_calls": None, "tool_call_id": None}
_FIELDS = frozenset({*ChatMessage.model_fields, "role"} - {"additional_kwargs"})


def _kept(turn: dict[str, Any], where: str) -> dict[str, Any]:
    """The fields of a message; unknown keys and original values of changed fields go into
    `additional_kwargs`.
    """
    extras = {
        name: value for name, value in turn.items() if name not in _FIELDS and name not in _OWN
    }
    fields: dict[str, Any] = {name: value for name, value in turn.items() if name in _FIELDS}
    role = role_of(turn["role"], f"{where}.role")
    if role != turn["role"]:
        extras["role"] = turn["role"]
    if turn["content"] is None:
        extras["content"] = None
    return {**fields, "role": role, "additional_kwargs": extras}
