"""How a judge is asked: one path from a prompt over a channel to a reply that was read, and asked
again where it cannot be.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from itertools import count
from typing import Annotated, Any, TypeVar

from pydantic import Field

from rm_gallery.core.engine.context import current_run, on_trial, questions
from rm_gallery.core.engine.engine import awaitable
from rm_gallery.core.model.base import BaseLLM
from rm_gallery.core.model.budget import Usage
from rm_gallery.core.model.decisions import Question, decided
from rm_gallery.core.model.message import ChatMessage, ChatResponse
from rm_gallery.core.reward.abstract import current_job
from rm_gallery.core.reward.channel import (
    FUNCTION,
    Channel,
    by_channel,
    decision_of,
    expected,
    questions_of,
    request_fields,
    stated,
    token_form,
    ways,
)
from rm_gallery.core.reward.echo import fenced_texts, without_echoes
from rm_gallery.core.reward.kinds import shown_text
from rm_gallery.core.reward.template import BasePromptTemplate, Described, open_forms
from rm_gallery.core.score import score_of_error, scored
from rm_gallery.core.text.statements import REASONS
from rm_gallery.core.utils.errors import ConfigError, ParseError, ProviderError, Unscored
from rm_gallery.core.utils.shown import excerpt, redact

Messages = Sequence[ChatMessage | dict[str, Any]]
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

    The prompt is made where the form of the reply is settled, by `channel` (see
    `BaseLLMReward.channel`). A reply that cannot be read is shown its problem and the form that was
    asked for, and asked for again, `repair_attempts` times; an empty one is asked for once more as
    it was. Probabilities are not. Each attempt goes into the run's trace. `shown` answers are there
    to choose from; `about` says more of some fields where each is a question of its own.
    `overrides` are fields of the request.

    Raises:
        ParseError: no attempt could be read; quotes what was found.
    """
    asking = _Asking(
        llm,
        template,
        prompt,
        name,
        language,
        shown,
        tuple(sorted((about or {}).items())),
        overrides,
    )
    tried = ways(llm, template, channel)
    if len(tried) > 1 and not asking.form_is_open:
        tried = ("text",)  # a prompt that says itself how to reply
    if (noted := questions.get()) is not None:
        # in its last form, whichever is taken: what `auto` finds out makes no other question
        noted.note(asking.messages(tried[-1]))
    return await by_channel(
        llm, tried, lambda way: asking.ask_and_repair(way, read, repair_attempts), asking.taken
    )


class _Asking:
    """One question, whatever channel it goes by."""

    def __init__(
        self,
        llm: BaseLLM,
        template: type[BasePromptTemplate],
        prompt: Callable[[], Messages],
        name: str,
        language: str,
        shown: int | None,
        about: tuple[tuple[str, str], ...],
        overrides: Mapping[str, Any],
    ) -> None:
        self.llm, self.template, self.name, self.language = llm, template, name, language
        self.shown, self.about, self.overrides = shown, about, overrides
        self._called = True
        with open_forms() as self.forms:
            self._open = plain_messages(prompt())
        self.form_is_open = False
        for message in self._open:
            if self.forms.stand_in(str(message.get("content"))):
                self.form_is_open = True
        # what stands for it was changed on its way into the prompt
        if self.forms and not self.form_is_open:
            self._open = plain_messages(prompt())
        self._material = fenced_texts(self._open)

    def messages(self, way: str, token: str = "") -> list[dict[str, Any]]:
        """The prompt in the form of a channel; rendered once, whatever is found out about the
        endpoint.
        """
        if way == "logprobs" and not token:
            token = token_form(self.questions()[0], self.language)[0]

        def filled(content: Any) -> Any:
            if isinstance(content, str):
                return self.forms.filled(content, way, token)
            if not isinstance(content, list):
                return content
            return [
                {**p, "text": self.forms.filled(p["text"], way, token)} if "text" in p else p
                for p in content
            ]

        return (
            [{**m, "content": filled(m.get("content"))} for m in self._open]
            if self.form_is_open
            else self._open
        )

    def questions(self) -> tuple[Question, ...]:
        return questions_of(self.template, self.language, self.shown, self.about)

    async def ask_and_repair(
        self, way: str, read: Callable[[ChatResponse], Any], repair_attempts: int
    ) -> Any:
        """Ask by a channel and read; an empty reply is asked for once more, an unreadable one `repair_attempts`
        times.
        """
        messages = self.messages(way)
        fields = {
            **self.overrides,
            **request_fields(self.template, way, self.llm.enable_thinking, self.shown),
        }
        repeat = current_repeat()
        weighed = way in ("decision", "logprobs")
        repairs, silent = 0, False
        for attempt in count():
            begun = time.monotonic()
            reply: ChatResponse | None = None
            try:
                if weighed:
                    reply = await self._weighed(way, fields, repeat)
                else:
                    reply = await self.llm.achat(messages, repeat=repeat, **fields)
                self._called = bool(reply.message.tool_calls)
                found_now: Any = read(reply if weighed else self._own_words(reply))
                result = await found_now if awaitable(found_now) else found_now
            except Exception as error:
                trace_call(
                    self.name, messages, reply, attempt, time.monotonic() - begun, error, way
                )
                # servers under load give back nothing at random; where another way is left to try,
                # that one asks again
                if (
                    no_text(error)
                    and reply is not None
                    and not silent
                    and not weighed
                    and on_trial.get() != "trial"
                ):
                    silent = True
                    continue
                if reply is None or not isinstance(error, ParseError):
                    raise
                if weighed or repairs == repair_attempts:
                    message = str(error).rstrip(".") + quoted_reply(stated_text(reply))
                    raise ParseError(message, reply_excerpt=error.reply_excerpt) from error
                repairs += 1
                chosen = {} if self.language == "en" else {"language": self.language}
                with open_forms() as forms:
                    form = forms.filled(
                        self.template.schema(enable_thinking=self.llm.enable_thinking, **chosen),
                        way,
                    )
                question = REPAIR[self.language].format(problem=error, form=form)
                turn = {"role": "assistant", "content": stated_text(reply)}
                messages = [*messages, turn, {"role": "user", "content": question}]
            else:
                run = current_run.get()
                if run is not None and run.trace is not None:
                    trace_call(
                        self.name, messages, reply, attempt, time.monotonic() - begun, None, way
                    )
                return result
        raise AssertionError("unreachable")

    def _own_words(self, reply: ChatResponse) -> ChatResponse:
        """The reply without what it copies from the material."""
        text = reply.message.content
        if not isinstance(text, str) or not self._material.texts:
            return reply
        own = without_echoes(
            text,
            self._material,
            [name for name in self.template.model_fields if name.lower() not in REASONS],
        )
        return (
            reply
            if own is text
            else reply.model_copy(
                update={"message": reply.message.model_copy(update={"content": own})}
            )
        )

    def taken(self, way: str) -> str:
        """The channel that the reply came by: an endpoint that does not know tools may leave them
        out without a word.
        """
        return way if self._called or way != "tool" else "text"

    async def _weighed(self, way: str, fields: dict[str, Any], repeat: int) -> ChatResponse:
        """Probabilities for every field: of a decision model in one request, of a chat model one
        token each.
        """
        if way == "decision":
            return await self.llm.achat(
                self.messages(way), repeat=repeat, **{**fields, "questions": self.questions()}
            )
        fields = {**fields, "logprobs": True, "top_logprobs": 20, "max_tokens": ONE_TOKEN}
        forms = [token_form(question, self.language) for question in self.questions()]
        asked = (
            self.llm.achat(self.messages(way, form), repeat=repeat, **fields) for form, _ in forms
        )
        replies = await asyncio.gather(*asked, return_exceptions=True)
        made, usage = {}, Usage()
        for question, (_, tokens), reply in zip(self.questions(), forms, replies, strict=True):
            if isinstance(reply, BaseException):
                raise reply
            if reply.ended == "withheld":
                usable_text(reply)
            usage.add(reply.usage)
            made[question.name] = decision_of(reply, question, tokens)
        first = replies[0]
        assert isinstance(first, ChatResponse)
        return decided(made, usage, first.model, first.cached)


ONE_TOKEN = 4
"""Tokens a reply of one token may have: some models begin with a space or a line break."""


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
        asking = _Asking(
            llm,
            TwoAndTwo,
            lambda: [{"role": "user", "content": f"2 + 2 = 4\n{TwoAndTwo.schema()}"}],
            "doctor",
            "en",
            None,
            (),
            {},
        )
        try:
            await asking.ask_and_repair(way, lambda reply: parsed(TwoAndTwo, reply), 0)
            problems[way] = "" if asking.taken(way) == way else "the reply came without a call"
        except (ProviderError, ParseError, Unscored, ConfigError) as error:
            problems[way] = str(error)
    return problems


def plain_messages(messages: Messages) -> list[dict[str, Any]]:
    """Messages as a request holds them."""
    return [m.to_openai() if isinstance(m, ChatMessage) else dict(m) for m in messages]


def told_of(reply: ChatResponse) -> dict[str, Any]:
    """What a record keeps of probabilities; empty for a reply in words."""
    return (
        {}
        if reply.decisions is None
        else {"decisions": {name: one.as_record() for name, one in reply.decisions.items()}}
    )


def trace_call(
    name: str,
    messages: Messages,
    reply: ChatResponse | None,
    attempt: int,
    seconds: float,
    error: Exception | None,
    channel: str,
) -> None:
    """Tell the run, where it keeps a trace, what was asked and what came of it."""
    run = current_run.get()
    if run is None or run.trace is None or isinstance(error, ConfigError):
        return
    job = current_job.get()
    whole = job.of if job is not None else None
    outcome = scored(None) if error is None else score_of_error(error)
    run.trace(
        {
            "id": whole.sample_id if whole is not None else "",
            "sample_key": whole.sample_key if whole is not None else "",
            "reward": name,
            "place": list(job.place)
            if job is not None and isinstance(job.place, tuple)
            else job and job.place,
            "attempt": attempt + 1,
            "status": outcome.status,
            "problem": outcome.reason,
            "seconds": round(seconds, 4),
            "cached": reply is not None and reply.cached,
            "tokens": {}
            if reply is None
            else {"input": reply.usage.input_tokens, "output": reply.usage.output_tokens},
            "finish_reason": None if reply is None else reply.finish_reason,
            "model": None if reply is None else reply.model,
            "channel": channel,
            "prompt": plain_messages(messages),
            "reply": None if reply is None else _reply_text(reply),
        }
    )


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
        if reply.decisions is None:
            return template.parse(text)
        asked = questions_of(template, "en", shown)
        refused = [
            q.name
            for q in asked
            if q.name not in reply.decisions and template.model_fields[q.name].is_required()
        ]
        if refused:
            raise Unscored(
                f"The judge declined to decide <{refused[0]}>.", reason="refused", cause="judge"
            )
        blank = {
            name: ""
            for name, info in template.model_fields.items()
            if info.is_required() and name.lower() in REASONS
        }
        verdict = template.parse(
            json.dumps({**blank, **stated(reply.decisions)}, ensure_ascii=False)
        )
        return expected(verdict, reply.decisions, asked)
    except (KeyError, IndexError, ValueError, TypeError, AttributeError) as error:
        raise unreadable(error, template, text) from error


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
    ended = reply.ended
    if ended == "withheld":
        raise Unscored(
            f"The endpoint's content filter withheld the verdict{quoted_reply(reply.text)}",
            reason="content_filter",
            cause="judge",
        )
    refusal = reply.message.additional_kwargs.get("refusal")
    if refusal and not reply.text.strip():
        raise Unscored(
            f"The judge refused{quoted_reply(str(refusal))}", reason="refused", cause="judge"
        )
    if ended == "cut":
        spent = reply.usage.output_tokens
        raise Unscored(
            f"The verdict was cut off after {spent} tokens; raise max_tokens{quoted_reply(reply.text)}",
            reason="truncated",
            cause="judge",
        )
    text = stated_text(reply)
    if not text.strip():
        raise Unscored("The judge's reply is empty.", reason="empty", cause="judge")
    return text if reply.message.tool_calls else reply.message.read_text


def no_text(error: BaseException) -> bool:
    """Whether a judge's reply held nothing at all."""
    return isinstance(error, Unscored) and error.reason == "empty" and error.cause == "judge"


def stated_text(reply: ChatResponse) -> str:
    """What a reply states: the arguments of its calls of `verdict`, or of its one call beside no
    text; else its text.
    """
    calls = reply.message.tool_calls
    if not calls:
        return reply.text
    stating = [call for call in calls if call.function.name == FUNCTION]
    if not reply.text.strip() and len(calls) == 1:
        stating = calls
    arguments = (call.function.arguments for call in stating)
    # calls that differ are read as one text, whose verdicts contradict each other
    texts = dict.fromkeys(
        one if isinstance(one, str) else json.dumps(one, ensure_ascii=False) for one in arguments
    )
    return "\n".join(texts) or reply.text


def quoted_reply(text: str) -> str:
    """What a reply said, for the end of a message: cleaned, bounded and without secrets; a full
    stop without a text.
    """
    return f". The reply: {redact(excerpt(text, 80))!r}" if text.strip() else "."


T = TypeVar("T")
repeat_index: ContextVar[int] = ContextVar("rm_gallery_repeat", default=0)
"""Which of several votes on the same question this is, inside one run."""


async def voted(once: Callable[[], Awaitable[T]], times: int) -> list[T]:
    """What so many askings of one question gave; those that cannot be read are left out while half
    of them can.

    Raises what the first missing one raised where fewer can, and at once what is no reply's doing.
    """

    async def vote(number: int) -> T:
        repeat_index.set(repeat_index.get() * 1024 + number)  # the context is this task's own
        return await once()

    made = await asyncio.gather(*map(vote, range(times)), return_exceptions=True)
    missing = [one for one in made if isinstance(one, BaseException)]
    read = [one for one in made if not isinstance(one, BaseException)]
    broke = [one for one in missing if not isinstance(one, ParseError | Unscored)]
    if broke or 2 * len(read) < times:
        raise (broke or missing)[0]
    return read


def current_repeat() -> int:
    """Which of all equal questions this is: the vote's number beside the run's."""
    run = current_run.get()
    return (run.repeat if run is not None else 0) + (repeat_index.get() << 32)
