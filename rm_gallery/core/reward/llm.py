"""The judge: one path from a sample over a prompt and a checked reply to a result."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field, SerializeAsAny, field_serializer, field_validator

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.model.base import BaseLLM, Messages
from rm_gallery.core.model.message import ChatMessage, ChatResponse, MessageRole
from rm_gallery.core.model.reply import FILTER_REASONS
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.reward.schema import RewardResult
from rm_gallery.core.reward.template import BasePromptTemplate
from rm_gallery.core.text.values import excerpt
from rm_gallery.core.utils.errors import ConfigError, ParseError, Unscored

REPAIR = {
    "en": "Your reply could not be read: {problem}\nReply again with your verdict, in this form and nothing else:\n{form}",
    "zh": "你的回复无法解析：{problem}\n请严格按以下格式重新给出结论，不要包含其他内容：\n{form}",
}


class BaseLLMReward(BaseReward):
    """A model judges: prompt parameters in, parsed reply out.

    A subclass sets `template` and implements `_before_evaluate(sample) -> dict` and `_after_evaluate(response, sample) ->
    RewardResult`. Both see the sample as the judge sees it: in a seeded candidate order and without preference labels. An
    unreadable reply gets `repair_attempts` more tries that show the problem; then the sample is unscored.
    """

    judged: ClassVar[bool] = True
    needs: ClassVar[frozenset[str]] = frozenset({"llm"})

    llm: SerializeAsAny[BaseLLM] | None = None
    """The judge: a model object, a model's name, or a dict of its settings."""
    template: type[BasePromptTemplate] | None = None
    """What the judge is asked and how its reply is read."""
    repair_attempts: int = Field(default=1, ge=0)
    """How often the judge is asked again after a reply that cannot be read."""

    @field_serializer("template", when_used="json")
    def _template_name(self, template: Any) -> str | None:
        return None if template is None else f"{template.__module__}.{template.__qualname__}"

    @field_validator("llm", mode="before")
    @classmethod
    def _resolve(cls, value: Any) -> Any:
        if isinstance(value, str | dict):
            from rm_gallery.core.model.resolve import resolve_llm

            return resolve_llm(value)
        return value

    def check(self) -> None:
        """Raise ConfigError without a judge or a template, or when the judge could not be called at all."""
        if self.llm is None:
            raise ConfigError(f"{self.name} has no judge: pass llm=OpenaiLLM(model=…), or a model's name.")
        if self.template is None:
            raise ConfigError(f"{self.name} has no prompt: pass template=…, a subclass of BasePromptTemplate.")
        self.llm.check()

    def _before_evaluate(self, sample: DataSample, **kwargs: Any) -> dict[str, Any]:
        """The template's parameters for one job."""
        raise NotImplementedError(
            f"{type(self).__name__} implements _before_evaluate(sample) -> dict of prompt parameters."
        )

    def _after_evaluate(self, response: Any, sample: DataSample, **kwargs: Any) -> RewardResult:
        """The result for one job from the parsed reply."""
        raise NotImplementedError(
            f"{type(self).__name__} implements _after_evaluate(response, sample) -> RewardResult."
        )

    def format(self, sample: DataSample, **kwargs: Any) -> Any:
        """The very prompt a sample would be judged with, without calling the model; the first one where there are several."""
        jobs = self.plan(sample)
        if not jobs:
            raise Unscored(f"{self.name} would not call the judge for this sample.", reason="no_jobs")
        return self._prompt(jobs[0].sample, kwargs)

    def _prompt(self, sample: DataSample, kwargs: dict[str, Any]) -> Any:
        if self.template is None:
            raise ConfigError(f"{self.name} has no prompt: pass template=…, a subclass of BasePromptTemplate.")
        thinking = self.llm.enable_thinking if self.llm is not None else False
        parameters = self._before_evaluate(sample=sample, **kwargs)
        prompt = self.template.format(**{"enable_thinking": thinking, **parameters})
        if not prompt:
            raise ConfigError(f"{self.template.__name__}.format returned {prompt!r}; it returns the prompt.")
        return prompt

    async def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        """Ask, read, and if need be ask once more."""
        prompt = self._prompt(sample, kwargs)
        if self.llm is None or self.template is None:
            raise ConfigError(f"{self.name} has no judge: pass llm=OpenaiLLM(model=…), or a model's name.")
        messages = as_list(prompt)
        for attempt in range(self.repair_attempts + 1):
            reply = await self.llm.achat(messages, repeat=_repeat())
            text = usable_text(reply)
            try:
                return self._read(text, sample, kwargs)
            except ParseError as error:
                if attempt == self.repair_attempts:
                    raise
                language = getattr(self, "language", "en")
                chosen = {} if language == "en" else {"language": language}
                form = self.template.schema(enable_thinking=self.llm.enable_thinking, **chosen)
                question = ChatMessage(content=REPAIR[language].format(problem=error, form=form))
                messages = [*messages, ChatMessage(role=MessageRole.ASSISTANT, content=text), question]
        raise AssertionError("unreachable")

    def _read(self, text: str, sample: DataSample, kwargs: dict[str, Any]) -> RewardResult:
        """The result from a reply's text; every way in which a reply does not fit becomes a ParseError."""
        assert self.template is not None
        try:
            response = self.template.parse(text)
        except (KeyError, IndexError, ValueError, TypeError, AttributeError) as error:
            raise _unreadable(error, self.template, text) from error
        _check_menu(response, sample)
        try:
            return self._after_evaluate(**{"response": response, "sample": sample, **kwargs})
        except (KeyError, IndexError, ValueError) as error:
            raise _unreadable(error, self.template, text) from error


def _unreadable(error: Exception, template: type[BasePromptTemplate], text: str) -> Exception:
    if isinstance(error, ParseError | ConfigError):
        return error
    problem = f"The reply does not fit {template.__name__} ({type(error).__name__}: {error})."
    return ParseError(problem, reply_excerpt=excerpt(text))


def as_list(prompt: Messages) -> list[ChatMessage | dict[str, Any]]:
    """A prompt as a list of messages."""
    return [ChatMessage(content=prompt)] if isinstance(prompt, str) else list(prompt)


def usable_text(reply: ChatResponse) -> str:
    """The reply's text when it may be read as a verdict.

    Raises:
        Unscored: it was cut at the token limit (truncated), filtered, refused, or empty.
    """
    if reply.finish_reason in FILTER_REASONS:
        raise Unscored("The endpoint's content filter withheld the verdict.", reason="content_filter")
    refusal = reply.message.additional_kwargs.get("refusal")
    if refusal and not reply.text.strip():
        raise Unscored(f"The judge refused: {excerpt(str(refusal), 80)}", reason="refused")
    if reply.finish_reason == "length":
        spent = reply.usage.output_tokens
        raise Unscored(f"The verdict was cut off after {spent} tokens; raise max_tokens.", reason="truncated")
    if not reply.text.strip():
        raise Unscored("The judge's reply is empty.", reason="empty")
    return reply.text


def _check_menu(response: Any, sample: DataSample) -> None:
    best = getattr(response, "best", None)
    if isinstance(best, int) and not isinstance(best, bool) and not 1 <= best <= len(sample.output):
        raise ParseError(f"<best> is {best}; it names one of the answers 1 to {len(sample.output)}.")


def _repeat() -> int:
    from rm_gallery.core.engine.context import current_run

    run = current_run.get()
    return run.repeat if run is not None else 0
