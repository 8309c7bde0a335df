"""A model that answers from a script: for tests, documentation and dry runs, through the same call path as a real one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar

from pydantic import ConfigDict, Field

from rm_gallery.core.model.base import BaseLLM
from rm_gallery.core.model.providers import provider
from rm_gallery.core.utils.errors import ConfigError

Script = str | list[str] | Callable[[str], str]


@provider("fake")
class FakeLLM(BaseLLM):
    """Answers with a fixed text, with texts from a list chosen by the question's hash, or with what a function returns.

    The function is given the text of the last message. It may raise, which is how failures are rehearsed. The same
    question always gets the same answer unless the function decides otherwise.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    remote: ClassVar[bool] = False

    model: str = "fake"
    reply: Script = ""
    latency: float = 0.0
    """Seconds every answer takes."""
    finish_reason: str = "stop"
    cache: bool | None = False
    max_outage: float = Field(default=0.0, ge=0)
    """A script does not come back by itself: every failure counts."""

    @classmethod
    def from_name(cls, name: str, **settings: Any) -> FakeLLM:
        """`fake:TEXT` always answers TEXT."""
        return cls(reply=name, **settings)

    async def attempt(self, payload: dict[str, Any], timeout: float | None) -> dict[str, Any]:
        """One scripted answer in the OpenAI layout, with token counts of about four characters each."""
        if self.latency:
            await asyncio.sleep(self.latency)
        question = payload["messages"][-1]["content"] if payload.get("messages") else ""
        question = question if isinstance(question, str) else str(question)
        texts = [self._answer(question, i) for i in range(int(payload.get("n", 1)))]
        choices = [
            {"index": i, "message": {"role": "assistant", "content": text}, "finish_reason": self.finish_reason}
            for i, text in enumerate(texts)
        ]
        usage = {"prompt_tokens": len(question) // 4 + 1, "completion_tokens": sum(len(t) for t in texts) // 4 + 1}
        return {"model": self.model, "choices": choices, "usage": usage}

    def _answer(self, question: str, index: int) -> str:
        if callable(self.reply):
            return self.reply(question)
        if isinstance(self.reply, str):
            return self.reply
        if not self.reply:
            raise ConfigError("FakeLLM.reply is an empty list; give it at least one text.")
        # a stable hash: Python's own differs from process to process
        position = sum(question.encode("utf-8", "surrogatepass")) + index
        return self.reply[position % len(self.reply)]

    def endpoint_key(self) -> str:
        """A name of its own, so that fake and real calls never share a limit."""
        return f"fake:{self.model}"
