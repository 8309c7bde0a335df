"""How a judge is asked: one path from a prompt over a channel to a reply that was read, and asked
again where it cannot be.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, TypeVar

from pydantic import Field

from rm_gallery.core.engine.context import channel_trial, current_run, questions
from rm_gallery.core.engine.engine import awaitable
from rm_gallery.core.engine.repeat import become_vote
from rm_gallery.core.model.base import BaseLLM, Messages, as_messages
from rm_gallery.core.model.budget import Usage
from rm_gallery.core.model.decisions import NO, YES, Question, decided
from rm_gallery.core.model.message import ChatResponse, Decision
from rm_gallery.core.reward.channel import (
    FUNCTION,
    WEIGHED,
    Channel,
    decision_of,
    find_out,
    questions_of,
    request_fields,
    taken_by,
    token_form,
    ways,
)
from rm_gallery.core.reward.echo import without_echoes
from rm_gallery.core.reward.job import current_job
from rm_gallery.core.reward.template import (
    BasePromptTemplate,
    Described,
    OpenPrompt,
    read_text,
    verdict_fields,
)
from rm_gallery.core.reward.view import shown_text
from rm_gallery.core.score import score_of_error, scored
from rm_gallery.core.utils.errors import ConfigError, ParseError, ProviderError, Unscored
from rm_gallery.core.utils.models import copy_with
from rm_gallery.core.utils.shown import excerpt, redact

REPAIR = {
    "en": (
        "Your reply could not be read: {problem}\nReply again with your verdict, in this form and "
        "nothing else:\n{form}"
    ),
    "zh": "你的回复无法解析：{problem}\n请严格按以下格式重新给出结论，不要包含其他内容：\n{form}",
}


async def ask(
    llm: BaseLLM,
    template: type[BasePromptTemplate],
    prompt: Callable[[], Messages],
    read: Callable[[ChatResponse], Any],
    *,
    name: str,
    repair_attempts: int = 1,
    language: str = "en",
    channel: Channel = "auto",
    shown: int | None = None,
    about: Mapping[str, str] | None = None,
    **overrides: Any,
) -> Any:
    """What `read` makes of the model's reply to a prompt, awaited if it can be; every judgement of
    the library is made here.

    The prompt is made once, and filled in where the form of the reply is settled, by `channel` (see
    `BaseLLMReward.channel`). A reply that cannot be read is shown its problem and the form that was
    asked for, and asked for again, `repair_attempts` times; an empty one is asked for once more as
    it was. Probabilities are not. Each attempt goes into the run's trace. `shown` answers are there
    to choose from; `about` says more of some fields where each is a question of its own.
    `overrides` are fields of the request.

    Raises:
        ParseError: no attempt could be read; quotes what was found.
    """
    more = tuple(sorted(about.items())) if about else ()
    asking = _Asking(
        llm,
        template,
        OpenPrompt(prompt),
        read,
        name,
        repair_attempts,
        language,
        shown,
        more,
        overrides,
    )
    tried = ways(llm, template, channel)
    if not asking.prompt.is_open:
        tried = tried[-1:]  # a prompt that says itself how to reply is one for a text
    if (noted := questions.get()) is not None:
        # in its last form, whichever is taken: what `auto` finds out makes no other question
        noted.note(asking.messages(tried[-1]))
    way = tried[0] if len(tried) == 1 else taken_by(llm)
    if way is None:
        return await find_out(llm, tried, asking.by, asking.taken)
    return await asking.by(way)


@dataclass(eq=False)
class _Asking:
    """One question, whatever channel it goes by; `reply` is the last one that came."""

    llm: BaseLLM
    template: type[BasePromptTemplate]
    prompt: OpenPrompt
    read: Callable[[ChatResponse], Any]
    name: str
    repair_attempts: int
    language: str
    shown: int | None
    about: tuple[tuple[str, str], ...]
    overrides: Mapping[str, Any]
    reply: ChatResponse | None = None

    def messages(self, way: str) -> list[dict[str, Any]]:
        """The prompt in the form of a channel."""
        token = token_form(self.questions()[0], self.language)[0] if way == "logprobs" else ""
        return self.prompt.messages(way, token)

    def questions(self) -> tuple[Question, ...]:
        """What is asked, where each field of the verdict is a question of its own."""
        return questions_of(self.template, self.language, self.shown, self.about)

    async def by(self, way: str) -> Any:
        """Ask by a channel and read, as often as `_once_more` finds something to ask."""
        messages, fields = self.messages(way), self._request_fields(way)
        run = current_run.get()
        traces = run is not None and run.trace is not None
        self.silences = self.repairs = 0
        while True:
            begun, attempt, self.reply = time.monotonic(), self.silences + self.repairs, None
            told = self.name, messages, attempt, begun, way
            try:
                self.reply = await (
                    self._by_tokens(fields)
                    if way == "logprobs"
                    else self.llm.achat(messages, **fields)
                )
                found: Any = self.read(self._own_words(self.reply))
                result = await found if awaitable(found) else found
            except Exception as error:
                trace_call(*told, self.reply, error)
                more = self._once_more(error, way)
                if more is None:
                    raise
                messages = [*messages, *more]
            else:
                if traces:
                    trace_call(*told, self.reply)
                return result

    def _request_fields(self, way: str) -> dict[str, Any]:
        if way == "decision":
            return {**self.overrides, "questions": self.questions()}
        asked = request_fields(self.template, way, self.llm.enable_thinking, self.shown)
        return {**self.overrides, **asked}

    def _once_more(self, error: Exception, way: str) -> list[dict[str, Any]] | None:
        """What is added to a prompt that is asked again after this error; None where it is not.

        An empty reply is asked for once more as it was: servers under load give back nothing at
        random; where another channel is left to try, that one asks again. A reply that cannot be
        read is shown its problem and the form that was asked for. Probabilities are not asked for
        again.
        """
        reply, again = self.reply, way not in WEIGHED
        if reply is None:
            return None
        if again and no_text(error) and not self.silences and channel_trial.get() != "trial":
            self.silences += 1
            return []
        if not isinstance(error, ParseError):
            return None
        said = stated_text(reply)
        if not again or self.repairs == self.repair_attempts:
            message = str(error).rstrip(".") + quoted_reply(said)
            raise ParseError(message, reply_excerpt=error.reply_excerpt) from error
        self.repairs += 1
        chosen = {} if self.language == "en" else {"language": self.language}
        thinking = self.llm.enable_thinking
        form = OpenPrompt(lambda: self.template.schema(enable_thinking=thinking, **chosen))
        (asked,) = form.messages(way)
        question = REPAIR[self.language].format(problem=error, form=asked["content"])
        return [{"role": "assistant", "content": said}, {"role": "user", "content": question}]

    def _own_words(self, reply: ChatResponse) -> ChatResponse:
        """The reply without what it copies from the material."""
        text, material = reply.message.content, self.prompt.material
        if not material or reply.decisions is not None or not isinstance(text, str):
            return reply
        own = without_echoes(text, material, verdict_fields(self.template))
        if own is text:
            return reply
        return copy_with(reply, message=copy_with(reply.message, content=own))

    def taken(self, way: str) -> str:
        """The channel that the reply came by: an endpoint that does not know tools may leave them
        out without a word.
        """
        left_out = self.reply is not None and not self.reply.message.tool_calls
        return "text" if way == "tool" and left_out else way

    async def _by_tokens(self, fields: Mapping[str, Any]) -> ChatResponse:
        """Probabilities for every field of a chat model, one token each."""

        async def ask(question: Question) -> tuple[Decision, ChatResponse]:
            form, tokens = token_form(question, self.language)
            messages = self.prompt.messages("logprobs", form)
            reply = await self.llm.achat(messages, **fields)
            if reply.ended == "withheld":
                usable_text(reply)
            return decision_of(reply, question, tokens), reply

        asked, made, replies, usage = self.questions(), {}, list[ChatResponse](), Usage()
        done = await asyncio.gather(*map(ask, asked), return_exceptions=True)
        for question, one in zip(asked, done, strict=True):
            if isinstance(one, BaseException):
                raise one
            made[question.name], reply = one
            replies.append(reply)
            usage.add(reply.usage)
        return decided(made, usage, replies[0].model, replies[0].cached)


class TwoAndTwo(BasePromptTemplate):
    """A question that every judge can answer: what an endpoint takes is tried with it."""

    correct: Annotated[bool, Described(zh="回答是否正确")] = Field(
        default=..., description="Whether the answer is correct"
    )


async def channels(llm: BaseLLM) -> dict[str, str]:
    """By channel what stands against it, empty where the model's endpoint takes it; one small call
    for each.
    """
    problems: dict[str, str] = {}
    for way in ("decision",) if llm.decides else ("schema", "tool", "logprobs", "text"):
        prompt = OpenPrompt(lambda: f"2 + 2 = 4\n{TwoAndTwo.schema()}")
        read = partial(parsed, TwoAndTwo)
        asking = _Asking(llm, TwoAndTwo, prompt, read, "doctor", 0, "en", None, (), {})
        try:
            await asking.by(way)
            problems[way] = "" if asking.taken(way) == way else "the reply came without a call"
        except (ProviderError, ParseError, Unscored, ConfigError) as error:
            problems[way] = str(error)
    return problems


def told_of(reply: ChatResponse) -> dict[str, Any]:
    """What a record keeps of probabilities; empty for a reply in words."""
    if reply.decisions is None:
        return {}
    return {"decisions": {name: one.as_record() for name, one in reply.decisions.items()}}


def trace_call(
    name: str,
    messages: Messages,
    attempt: int,
    begun: float,
    channel: str,
    reply: ChatResponse | None,
    error: Exception | None = None,
) -> None:
    """Tell the run, where it keeps a trace, what was asked (at `begun`, by the monotonic clock) and
    what came of it.
    """
    run = current_run.get()
    if run is not None and run.trace is not None and not isinstance(error, ConfigError):
        about = {"reward": name, "attempt": attempt + 1, "channel": channel}
        run.trace({**_judgement(messages, time.monotonic() - begun, reply, error), **about})


def _judgement(
    messages: Messages, seconds: float, reply: ChatResponse | None, error: Exception | None
) -> dict[str, Any]:
    """What a trace holds of the current job's question and its reply."""
    job = current_job.get()
    whole, place = (None, None) if job is None else (job.of, job.place)
    outcome = scored(None) if error is None else score_of_error(error)
    told: dict[str, Any] = {
        "id": "" if whole is None else whole.sample_id,
        "sample_key": "" if whole is None else whole.sample_key,
        "place": list(place) if isinstance(place, tuple) else place,
        "status": outcome.status,
        "problem": outcome.reason,
        "seconds": round(seconds, 4),
        "cached": False,
        "tokens": {},
        "finish_reason": None,
        "model": None,
        "prompt": as_messages(messages),
        "reply": None,
    }
    if reply is not None:
        usage = reply.usage
        told |= {
            "cached": reply.cached,
            "tokens": {"input": usage.input_tokens, "output": usage.output_tokens},
            "finish_reason": reply.finish_reason,
            "model": reply.model,
            "reply": _reply_text(reply),
        }
    return told


def _reply_text(reply: ChatResponse) -> str:
    """What a reply states, or with its calls of tools where it calls others than that of a verdict."""
    calls = reply.message.tool_calls or ()
    acts = any(call.function.name != FUNCTION for call in calls)
    return shown_text(reply.message) if acts else stated_text(reply)


def parsed(
    template: type[BasePromptTemplate], reply: ChatResponse, shown: int | None = None
) -> Any:
    """A reply as an instance of its template; every way in which it does not fit becomes a
    ParseError.

    Of probabilities the most probable answers are the verdict, and its numbers the expected ones.
    Raises Unscored as `usable_text` does, and where a required question was refused.
    """
    text = usable_text(reply)
    try:
        verdict = (
            template.parse(text)
            if reply.decisions is None
            else _weighed_verdict(template, reply.decisions, shown)
        )
        if shown is not None and isinstance(verdict, BasePromptTemplate):
            verdict.check_choices(shown)
        return verdict
    except (KeyError, IndexError, ValueError, TypeError, AttributeError) as error:
        raise unreadable(error, template, text) from error


def _weighed_verdict(
    template: type[BasePromptTemplate], decisions: Mapping[str, Decision], shown: int | None
) -> Any:
    """The most probable answers as a verdict, whose numbers are the expected ones."""
    required = [name for name, info in template.model_fields.items() if info.is_required()]
    said: dict[str, Any] = dict.fromkeys(required, "")  # probabilities come without reasons
    numbers = {}
    for question in questions_of(template, "en", shown):
        name, one = question.name, decisions.get(question.name)
        if one is not None:
            said[name] = {YES: True, NO: False}.get(one.top, one.top)
            if question.kind == "score":
                numbers[name] = one.expected({level: float(level) for level in question.answers})
        elif name in required:
            raise _unusable("refused", f"The judge declined to decide <{name}>")
    verdict = template.parse(json.dumps(said, ensure_ascii=False))
    return verdict.model_copy(update=numbers)


def unreadable(error: Exception, template: type[BasePromptTemplate], text: str) -> Exception:
    """The ParseError for a reply that raised something while it was read; ParseError and
    ConfigError as they are.
    """
    if isinstance(error, ParseError | ConfigError):
        return error
    problem = f"The reply does not fit {template.__name__} ({type(error).__name__}: {error})."
    return ParseError(problem, reply_excerpt=excerpt(text))


def usable_text(reply: ChatResponse) -> str:
    """The reply's text when it may be read as a verdict.

    Raises:
        Unscored: it was cut at the token limit (truncated), filtered, refused, or empty.
    """
    if reply.message.tool_calls or reply.ended != "done" or not reply.text.strip():
        return _usable_statement(reply)
    return reply.message.read_text


def _usable_statement(reply: ChatResponse) -> str:
    """As `usable_text`, for a reply that calls tools, ended early or says nothing."""
    ended, said = reply.ended, reply.text
    refusal = reply.message.additional_kwargs.get("refusal")
    if ended == "withheld":
        raise _unusable(
            "content_filter", "The endpoint's content filter withheld the verdict", said
        )
    if refusal and not said.strip():
        raise _unusable("refused", "The judge refused", str(refusal))
    if ended == "cut":
        spent = reply.usage.output_tokens
        problem = f"The verdict was cut off after {spent} tokens; raise max_tokens"
        raise _unusable("truncated", problem, said)
    stated = stated_text(reply)
    if not stated.strip():
        raise _unusable("empty", "The judge's reply is empty")
    return stated if reply.message.tool_calls else reply.message.read_text


def _unusable(reason: str, problem: str, said: str = "") -> Unscored:
    return Unscored(f"{problem}{quoted_reply(said)}", reason=reason, cause="judge")


def no_text(error: BaseException) -> bool:
    """Whether a judge's reply held nothing at all."""
    return isinstance(error, Unscored) and error.reason == "empty" and error.cause == "judge"


def stated_text(reply: ChatResponse) -> str:
    """What a reply states: the arguments of its calls of `verdict`, or of its one call beside no
    text; else its text.
    """
    calls = reply.message.tool_calls or ()
    only = len(calls) == 1 and not reply.text.strip()
    functions = [call.function for call in calls if only or call.function.name == FUNCTION]
    # calls that differ are read as one text, whose verdicts contradict each other
    stated = dict.fromkeys(read_text(function.arguments) for function in functions)
    return "\n".join(stated) or reply.text


def quoted_reply(text: str) -> str:
    """What a reply said, for the end of a message: cleaned, bounded and without secrets; a full
    stop without a text.
    """
    return f". The reply: {redact(excerpt(text, 80))!r}" if text.strip() else "."


T = TypeVar("T")


async def side_by_side(
    askings: Iterable[tuple[int, Callable[[], Awaitable[T]]]],
) -> list[T | BaseException]:
    """What each asking gave or raised. Its number makes it another repeat of an equal question, in
    cache key and seed, so that a vote is never a copy of another; numbers inside numbers too.

    All end before anything is made of one: what is in flight is paid for, and belongs into the
    cache.
    """

    async def ask(number: int, once: Callable[[], Awaitable[T]]) -> T:
        become_vote(number)  # the context is this task's own
        return await once()

    return await asyncio.gather(*(ask(*one) for one in askings), return_exceptions=True)


async def voted(once: Callable[[], Awaitable[T]], times: int) -> list[T]:
    """What so many askings of one question gave; those that cannot be read are left out while half
    of them can.

    Raises what the first missing one raised where fewer can, and at once what is no reply's doing.
    """
    made = await side_by_side((number, once) for number in range(times))
    missing = [one for one in made if isinstance(one, BaseException)]
    read = [one for one in made if not isinstance(one, BaseException)]
    broke = [one for one in missing if not isinstance(one, ParseError | Unscored)]
    if broke or 2 * len(read) < times:
        raise (broke or missing)[0]
    return read
