"""Environments of others as rewards: `nemo-gym:URL` and `ors:URL`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

from pydantic import Field

from rm_gallery.core.data.conversation import messages_of
from rm_gallery.core.data.load.rollouts import RECORDED
from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.model.environment_servers import NemoGymServer, OrsServer
from rm_gallery.core.model.message import part_text, picture_of, text_of
from rm_gallery.core.model.transport import check_url
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.schema import Example, sample_of
from rm_gallery.core.utils.errors import Unscored
from rm_gallery.gallery.rm.trained.served import BehindServer, row_of

VERDICT = (
    "reward",
    "reward_components",
    "mask_sample",
    "failure_kind",
    "failure_reason",
    "_ng_failure_class",
    "_ng_failure_judge_error",
)
"""What an earlier judgement by NeMo-Gym may have left in a row that is verified again."""
_NOT_OF_THE_ROW = ("reference", "tools", "original_messages", RECORDED, *VERDICT)


@RewardRegistry.register("nemo-gym:")
class NemoGymReward(BehindServer):
    """Reward of a NeMo-Gym resources server: what its `/verify` says of a rollout.

    The URL is that of the server, http://HOST:PORT. It is sent what NeMo-Gym's agents send: what was
    asked (`responses_create_params`), the rollout as a `response` with its tool calls, and the other
    columns of the row; the reference stands in `expected_answer` unless `reference_column` names
    another. Range is the environment's own, higher is better; `reward_components` are the metrics of
    the result. A row with `mask_sample`, or one labelled as judged in vain, is unscored (`masked`)
    and never its 0; the cause is `failure_kind` where that is one of ours, else the judge where it
    failed, else the rule. A row that the server refuses (400, 413, 422) is failed, and the data's
    fault. `/seed_session` is not called: an environment whose reward needs the session it went on
    in, which `/reverify_mode` says, is a ConfigError. Calls share retries, limits, outages and
    budget with those of judges.

    Raises:
        ConfigError: no URL, or a server that verifies no recorded rollout.
    """

    SCHEME = "nemo-gym:"
    SERVER = NemoGymServer

    reference_column: str = Field(default="expected_answer", min_length=1)
    """Column in which the server looks for the reference."""

    example = Example(
        sample_of("How much is 2 + 2?", "4", "5", reference="4"),
        use=(
            "An environment of NeMo-Gym is audited, and compared with a reward of ours on the same "
            "rollouts, before it trains."
        ),
        environment="a resources server of NeMo-Gym",
    )

    def __init__(self, url: str | None = None, **settings: Any) -> None:
        super().__init__(url, **settings)

    @classmethod
    def place_of(cls, url: str) -> tuple[str, str]:
        """The server's URL, with or without /verify."""
        return check_url(url, "the URL of nemo-gym:").removesuffix("/verify"), "verify"

    def item(self, sample: DataSample) -> dict[str, Any]:
        """The body of /verify."""
        known = row_of(sample)
        row = {name: value for name, value in known.items() if name not in _NOT_OF_THE_ROW}
        reference = sample.reference()
        if reference is not None:
            row.setdefault(self.reference_column, reference)
        output, begins = sample.output[0], len(sample.input)
        turns = messages_of(sample, output)
        tools = [_flat_tool(tool) for tool in known.get("tools") or () if isinstance(tool, Mapping)]
        asked = {"input": list(response_items(turns[:begins]))}
        response = {
            "id": f"resp_{sample.sample_id}",
            "object": "response",
            "created_at": 0.0,
            "model": "",
            "output": list(response_items(turns[begins:])),
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": tools,
        }
        if tools:
            asked["tools"] = tools
        return {**row, "responses_create_params": asked, "response": response}


def response_items(turns: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """OpenAI's turns as items of its responses API; a turn keeps its text byte for byte.

    Args:
        turns: messages with role and content, tool calls and results as in chat completions.

    Returns:
        One item per message, thought, tool call and result, in order.

    Example:
        >>> [item["type"] for item in response_items([{"role": "assistant", "content": "4"}])]
        ['message']
    """
    for number, turn in enumerate(turns):
        role, content = turn["role"], turn.get("content")
        if role == "tool":
            call = str(turn.get("tool_call_id") or "")
            yield {"type": "function_call_output", "call_id": call, "output": text_of(content)}
            continue
        if role != "assistant":
            yield {"type": "message", "role": role, "content": _input_content(content)}
            continue
        calls = turn.get("tool_calls") or ()
        if thought := turn.get("reasoning_content"):
            summary = [{"type": "summary_text", "text": thought}]
            yield {"type": "reasoning", "id": f"rs_{number}", "summary": summary}
        if (text := text_of(content)) or not calls:
            parts = [{"type": "output_text", "text": text, "annotations": []}]
            said = {"type": "message", "role": role, "status": "completed", "content": parts}
            yield {**said, "id": f"msg_{number}"}
        for place, call in enumerate(calls):
            made = call["function"]
            own = {"name": made["name"], "arguments": made["arguments"], "status": "completed"}
            id = str(call.get("id") or f"call_{number}_{place}")
            yield {"type": "function_call", "id": f"fc_{number}_{place}", "call_id": id, **own}


def _input_content(content: Any) -> Any:
    if not isinstance(content, list):
        return content or ""
    parts = []
    for part in content:
        if url := picture_of(part):
            parts.append({"type": "input_image", "image_url": url, "detail": "auto"})
        elif (text := part_text(part)) is not None:
            parts.append({"type": "input_text", "text": text})
    return parts


def _flat_tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    """A tool's definition as the responses API has it: without `function` around it."""
    inner = tool.get("function")
    if not isinstance(inner, Mapping):
        return dict(tool)
    return {"strict": False, "parameters": None, **inner, "type": "function"}


@RewardRegistry.register("ors:")
class OrsReward(BehindServer):
    """Reward of an environment of the Open Reward Standard (ORS): what its answering tool says.

    The URL is http://HOST:PORT/ENVIRONMENT; the name may be left out where the server has one. Each
    answer gets a session of its own for the task that the sample's metadata name: `split` and
    `index`, a `task_spec`, or an `id` that the server lists (the sample's own id else). Its text is
    submitted once, by the terminal tool or the only one, and the session is closed; steps are not
    played again. Range is the environment's own, higher is better. A reward that is null is unscored
    (`no_reward`), a sample that names no task too (`no_task`); a tool that raises, or refuses the
    answer, is failed, and the rule's fault. Without `api_key` the token is OPENREWARD_API_KEY. Calls
    share retries, limits, outages and budget with those of judges.

    Raises:
        ConfigError: no URL, an environment that is not there, or several tools or fields and no
            `tool` or `argument` that says which takes the answer.
    """

    SCHEME = "ors:"
    EXAMPLE_URL = "http://127.0.0.1:8000/math"
    SERVER = OrsServer

    split: str = ""
    """The split of samples that name none; the environment's only one where this is empty."""
    tool: str = ""
    """The tool that takes the answer; empty for the terminal tool, else the only one."""
    argument: str = ""
    """What the tool calls the answer; empty for its only field."""

    example = Example(
        sample_of("How much is 2 + 2?", "4", "5", split="train", index=0),
        use=(
            "An environment of ORS is audited, and compared with a reward of ours on the same "
            "answers, before it trains."
        ),
        environment="a server of ORS environments",
    )

    def __init__(self, url: str | None = None, **settings: Any) -> None:
        super().__init__(url, **settings)

    @classmethod
    def place_of(cls, url: str) -> tuple[str, str]:
        """The server's URL, and the environment's name; empty for the only one."""
        known = check_url(url, "the URL of ors:")
        name = urlsplit(known).path.rpartition("/")[2]
        return known.removesuffix(f"/{name}") if name else known, unquote(name)

    def _own_settings(self, target: str) -> dict[str, Any]:
        own = {"env": target, "tool": self.tool, "argument": self.argument}
        return {**super()._own_settings(target), **own}

    def item(self, sample: DataSample) -> dict[str, Any]:
        """The task and the answer."""
        known, answer = row_of(sample), {"answer": sample.output[0].answer.text}
        if isinstance(known.get("task_spec"), Mapping):
            return {**answer, "task_spec": dict(known["task_spec"])}
        split, index = str(known.get("split") or self.split), _whole(known.get("index"))
        if index is not None:
            return {**answer, "index": index, **({"split": split} if split else {})}
        id = known.get("id", sample.unique_id)
        if id is None or id == "":
            raise Unscored(
                f"{self.name}: the sample names no task; give it split and index, or an id.",
                reason="no_task",
            )
        return {**answer, "id": str(id)}


def _whole(value: Any) -> int | None:
    """A whole number, as tables may have written it; None for what is none."""
    try:
        return int(value) if not isinstance(value, bool) and float(value).is_integer() else None
    except (TypeError, ValueError, OverflowError):
        return None
