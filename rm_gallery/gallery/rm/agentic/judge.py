"""A judge that acts, as a reward: what it may look at, what it may spend, and what its verdict is
worth.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import (
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    SerializeAsAny,
    ValidationError,
    field_validator,
)

from rm_gallery.core.data.schema import DataSample, Step
from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.context import current_deadline, questions
from rm_gallery.core.engine.deadline import Deadline
from rm_gallery.core.model.base import BaseLLM
from rm_gallery.core.model.message import ChatMessage
from rm_gallery.core.reward.asking import trace_call, usable_text
from rm_gallery.core.reward.base import BaseTrajectoryReward
from rm_gallery.core.reward.compose import metric
from rm_gallery.core.reward.judge import JUDGE, judge_of, required
from rm_gallery.core.reward.outputs import METRICS
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.reward import prompts_hash
from rm_gallery.core.reward.rubric import Rubric
from rm_gallery.core.reward.rubric_shapes import read_rubric, rubric_of_setting
from rm_gallery.core.reward.rule import known
from rm_gallery.core.reward.schema import Example, PhraseJudge, sample_of
from rm_gallery.core.reward.template import fence_for, fenced, render
from rm_gallery.core.reward.view import conversation_text, turns_text
from rm_gallery.core.sandbox.workspace import ReadBounds, StateFault, WorkspaceTooLarge, whose_size
from rm_gallery.core.score import Score
from rm_gallery.core.utils.errors import Cause, ConfigError, DataError, Unscored
from rm_gallery.gallery.graders.checklist import criterion_line
from rm_gallery.gallery.rm.agentic.tools import Toolbox, ToolRefusal, copied_workspace, maps_texts
from rm_gallery.gallery.rm.agentic.verdict import (
    SUBMIT,
    CriterionDecision,
    Decided,
    VerdictProblem,
    read_verdict,
    says_twice,
    submit_tool,
)
from rm_gallery.gallery.rm.bounds import Count
from rm_gallery.gallery.rm.tool_calls import Calls, MadeCall, calls_alone, recorded_calls

if TYPE_CHECKING:
    from rm_gallery.core.reward.judge import Judge

TRANSCRIPT = "transcript"
"""Key of the extra data: the judge's messages and the outputs it was given, in OpenAI's layout."""
VERDICT_FILE = "rm_gallery_verdict.json"
"""Where a command leaves its verdict; nobody but a forger writes it into a workspace."""
REMINDER = {
    "en": "Call a tool, or end with submit_verdict.",
    "zh": "请调用一个工具，或用 submit_verdict 结束。",
}
NO_MORE = {
    "en": "No calls are left. Submit your verdict by what you have seen.",
    "zh": "调用次数已用完。请根据已看到的内容提交判定。",
}
_SHOWN_TURNS = 8_000
"""Characters of the trajectory that are shown at once; more of it is read by a tool."""


LEFT = sample_of(
    "Write the total of the bill to total.txt.",
    *(
        {"content": "Done.", "label": {"workspace": {"bill.txt": "3\n4\n", "total.txt": total}}}
        for total in ("7\n", "34\n")
    ),
)
"""For examples: what two agents left, and say of it."""
INPUTS = {
    "workspace": "`workspace` in `answer.label` or `metadata`: a folder, an archive, or a mapping of "
    "path to text; in its place or beside it `store`, texts by name",
    "answer": "the turns of each `output[i]`: its steps and its answer",
}


class ReadsTotal(PhraseJudge):
    """For the example: an agent that reads a file and decides by it."""

    def __call__(self, prompt: str) -> str:
        """Read the file, then decide by what it says."""
        if "<call_1 " not in prompt:
            return _as_text(MadeCall("read_file", {"path": "total.txt"}))
        total = prompt.splitlines()[1]
        evidence = [{"source": "file:total.txt", "quote": total}]
        reason = f"3 + 4 is 7, and the file says {total}."
        met = total in self.phrases
        row = {"criterion": 1, "verdict": met, "reason": reason, "evidence": evidence}
        return _as_text(MadeCall(SUBMIT, {"verdicts": [row]}))


def _as_text(call: MadeCall) -> str:
    return f"<tool_call>\n{json.dumps(call._asdict())}\n</tool_call>"


class ActingJudge(BaseTrajectoryReward):
    """What judges that act share: criteria, a copy of the workspace, evidence that is checked, and
    what a judgement without a verdict means.
    """

    judged = True
    needs = frozenset({"workspace"})
    touches = {"files": ("workspace", "start"), "programs": ()}
    deterministic = False
    score_range = (0.0, 1.0)
    sandbox: ClassVar[str] = "auto"
    """Where programs of the judge run; a reward of another name has another one."""

    criteria: Rubric = Field(
        default_factory=lambda: read_rubric(["The task is done as it was asked."]),
        validate_default=True,
    )
    """What is decided: texts, items in any format of `read_rubric`, a Rubric or the path of a file."""
    store: dict[str, str] = Field(default_factory=dict)
    """Documents by name that the judge may fetch, where a sample has no `store` of its own."""
    max_seconds: PositiveFloat = 300.0
    """Seconds that the judge's own work may take; what it waits for its model does not count."""
    max_file_mb: PositiveFloat = 16.0
    """Megabytes that are read of one file; sixteen times as much of all."""
    max_files: PositiveInt = 100_000
    """Files that a workspace may hold."""
    language: str = Field(default="en", pattern="^(en|zh)$")
    """Language of the instructions."""

    _any_shape = field_validator("criteria", mode="before")(rubric_of_setting)

    async def _evaluate(self, sample: DataSample, **kwargs: Any) -> Score[Any]:
        return await self._decided(sample, None)

    async def _decided(self, sample: DataSample, recorded: list[Any] | None) -> Score[Any]:
        rubric = self._rubric_of(sample)
        store = known(sample, "store") or self.store
        if not maps_texts(store):
            raise DataError(f"{self.name}: store is no mapping of names to texts.")
        output, given = sample.output[0], known(sample, "workspace")
        of_state = any(one.of == "state" for one in rubric.leaves())
        if given is None and not store and of_state:
            raise Unscored(
                f"{self.name} needs something to look at: set 'workspace' in answer.label or metadata "
                "to a folder, an archive or a mapping of path to text, or 'store' to documents by "
                "name; criteria with of: text are judged by the turns alone.",
                reason="no_workspace",
            )
        bounds = ReadBounds(int(self.max_file_mb * (1 << 20)), self.max_files)
        with ExitStack() as stack:
            copying = copied_workspace(given, bounds)
            try:
                folder, left_out = await asyncio.to_thread(stack.enter_context, copying)
            except WorkspaceTooLarge as error:
                cause = await asyncio.to_thread(whose_size, known(sample, "start"), bounds)
                raise self.no_verdict(error.reason, str(error), cause) from error
            except StateFault as error:
                raise self.no_verdict("state", str(error), "answer") from error
            if folder is not None and os.path.lexists(os.path.join(folder, VERDICT_FILE)):
                forged = (
                    f"the workspace holds {VERDICT_FILE}, a verdict that the judge has not written."
                )
                raise self.no_verdict("forged_verdict", forged, "answer")
            turns = [*(output.steps or ()), output.answer]
            tools = Toolbox(folder, turns, store, self.sandbox, bounds, left_out=left_out)
            decisions, transcript = await self._decide(sample, rubric, tools, recorded)
        return self._scored_rubric(rubric, decisions, transcript)

    async def _decide(
        self, sample: DataSample, rubric: Rubric, tools: Toolbox, recorded: list[Any] | None
    ) -> Decided:
        """The decision of each criterion, and the transcript in OpenAI's layout."""
        raise NotImplementedError(f"{type(self).__name__} says how its judge decides.")

    def no_verdict(self, code: str, problem: str, cause: Cause = "judge") -> Unscored:
        """Why there is no verdict; the judge's doing unless another cause is given."""
        return Unscored(f"{self.name}: {problem}", reason=code, cause=cause)

    def _rubric_of(self, sample: DataSample) -> Rubric:
        given = known(sample, "criteria")
        try:
            rubric = self.criteria if given is None else read_rubric(given)
        except ConfigError as error:
            raise DataError(f"{self.name}: criteria: {error}") from error
        if rubric.aggregate == "implicit" or not any(one.points > 0 for one in rubric.criteria):
            raise Unscored(
                f"{self.name}: no criterion has points above 0 and is decided by itself.",
                reason="no_criteria",
            )
        return rubric

    def _prompt(
        self, sample: DataSample, rubric: Rubric, tools: Toolbox, calls: int = 0
    ) -> list[dict[str, Any]]:
        leaves, output = rubric.leaves(), sample.output[0]
        whole = turns_text(tools.turns)
        shown = {"turns": whole} if len(whole) <= _SHOWN_TURNS else {"answer": output.answer.text}
        return render(
            "agent",
            self.language,
            texts={"query": conversation_text(sample.input), **shown},
            criteria=[criterion_line(one, self.language) for one in leaves],
            graded=any(one.levels or one.scale for one in leaves),
            written=[number for number, one in enumerate(leaves, 1) if one.of == "text"],
            calls=calls,
        )

    def _scored_rubric(
        self, rubric: Rubric, decisions: list[CriterionDecision], transcript: list[dict[str, Any]]
    ) -> Score[Any]:
        leaves = rubric.leaves()
        made = rubric.score([decision.value for decision in decisions])
        metrics = {
            one.name or f"c{number}": metric(decision.value, decision.reason)
            for number, (one, decision) in enumerate(zip(leaves, decisions, strict=True), 1)
        }
        records = [d.record(one) for one, d in zip(leaves, decisions, strict=True)]
        reason = "\n".join(
            f"{number}. {decision.reason}" for number, decision in enumerate(decisions, 1)
        )
        extra = {METRICS: metrics, "criteria": records, TRANSCRIPT: transcript}
        return Score(made.clipped, reason, extra=extra)

    def replay(self, sample: DataSample, transcript: list[dict[str, Any]]) -> Score[Any]:
        """The result of a recorded judgement without a model: its calls are made again on the
        sample's workspace, and its verdict is read and its evidence checked again.

        `transcript` is what `extra_data` kept under "transcript". Raises Unscored where the verdict
        cannot be taken any more, such as after a change of the workspace (`changed`: a call that it
        cites gives something else now), DataError for what is no transcript.
        """
        if not isinstance(transcript, list) or not all(
            isinstance(each, Mapping) and isinstance(each.get("content") or "", str)
            for each in transcript
        ):
            raise DataError(f"{self.name}: a transcript is a list of messages with texts.")
        made: Score[Any] = library_loop.run(
            self._decided(sample, transcript),
            f"{type(self).__name__}.replay",
            "asyncio.to_thread(reward.replay, …)",
        )
        return made


@RewardRegistry.register("agent_judge")
class AgentJudge(ActingJudge):
    """A model with tools decides criteria by what it finds in what the agent left.

    The judge gets a copy of `workspace` (in `answer.label` or metadata: a folder, an archive, or a
    mapping of path to text), the documents of `store`, and the trajectory, read-only; `criteria` may
    come with the sample. Its tools list, read and search files, run Python in the sandbox, query
    SQLite, fetch documents and read turns; it must end with one verdict for each criterion, each with
    evidence: words that are checked to stand where it says, in what it opened. What the agent says of
    its own work is no evidence, but for a criterion `of: text`. Programs run in bubblewrap, without network, on a copy of
    the copy; `unisolated_agent_judge` runs them without walls.

    Range [0, 1], higher is better: the points of the criteria met over the sum of the positive ones,
    by the rubric's own arithmetic. No score with cause `judge` where there is no verdict
    (`no_verdict`), two (`two_verdicts`), one that cannot be taken (`verdict`), or the calls, tokens
    or seconds of its own work are spent (`exhausted`); with cause `answer`, which is the worst
    score, where the workspace holds a verdict of its own (`forged_verdict`) or cannot be looked at
    (`state`); with cause `data` where it is too large (`too_large`), unless the sample's `start`
    fitted, so that the candidate made it so. Extra
    data: `criteria` with evidence, `transcript`, which `replay` reads without a model.

    Sources: judges with tools over judges that read (AJ-Bench, arXiv 2604.18240, about 13 points of
    F1); a sandbox that is part of the name, as in verifiers' `agentic_judge`.
    """

    needs = frozenset({"llm", "workspace"})
    name = "agent_judge"

    if TYPE_CHECKING:
        llm: Judge = Judge()
    else:
        llm: SerializeAsAny[BaseLLM] | None = Field(
            default=None,
            description="The judge: a model object, a model's name, or a dict of its settings.",
        )
    max_calls: Count = 20
    """Calls of tools that one judgement may make."""
    program_seconds: PositiveFloat = 10.0
    """Seconds that one program of the judge may run."""
    repair_attempts: NonNegativeInt = 2
    """How often a verdict that cannot be taken, or a reply without a call, is asked for again."""
    max_tokens: int | None = Field(default=None, gt=0)
    """Tokens, read and written, that one judgement may take; None for no limit."""

    example = Example(
        LEFT,
        judge=ReadsTotal(("7",)),
        note="A script stands in for the model: it reads total.txt and decides by what stands there.",
        use="They filter trajectories and train where no rule can tell whether work was done.",
        inputs=INPUTS,
    )

    _resolve = field_validator("llm", mode="before")(judge_of)

    @property
    def asked_times(self) -> int:
        """The most calls of the model that one judgement plans: one for each tool, and the verdict."""
        return self.max_calls + 1

    def describe(self) -> dict[str, Any]:
        """As of every reward, and the prompt."""
        return {**super().describe(), "prompts": prompts_hash("agent")}

    def check(self) -> None:
        """Raise ConfigError without a judge, or where it could not be called at all."""
        required(self.llm, self.name, JUDGE).check()

    async def _decide(
        self, sample: DataSample, rubric: Rubric, tools: Toolbox, recorded: list[Any] | None
    ) -> Decided:
        tools.seconds = self.program_seconds
        prompt = self._prompt(sample, rubric, tools, self.max_calls)
        if (noted := questions.get()) is not None:
            noted.note(prompt)
        session = _JudgeSession(self, rubric, tools, prompt)
        replies = None if recorded is None else iter(recorded)
        outer = current_deadline.get()
        # what waits for its turn at the sandbox waits for the library, and works no more than one
        # that waits for its endpoint
        with nullcontext() if outer is None else session.clock.following(outer):
            while session.decisions is None:
                said = await self._reply(session, replies)
                if replies is not None:  # a replay takes the time it takes
                    await session.take(said)
                elif not await _in_time(session.take(said), session.clock):
                    raise self.exhausted(f"{self.max_seconds:g} seconds (max_seconds)")
        if recorded is not None:
            session.refuse_changed(session.decisions, recorded)
        return session.decisions, session.spoken

    async def _reply(self, session: _JudgeSession, recorded: Iterator[Any] | None) -> ChatMessage:
        if recorded is not None:
            said = next((each for each in recorded if each.get("role") == "assistant"), None)
            if said is None:
                raise self.no_verdict("no_verdict", "the transcript holds no verdict.")
            try:
                return ChatMessage.model_validate(said)
            except ValidationError as error:
                raise DataError(f"{self.name}: a message of the transcript is none.") from error
        self._spent(session)
        assert self.llm is not None
        begun, messages = time.monotonic(), session.messages
        with session.clock.paused():
            reply = await self.llm.achat(messages, tools=session.definitions)
        # what was said before stands in the records of the calls before
        new, session.traced = messages[session.traced :], len(messages) + 1
        trace_call(self.name, new, session.asked, begun, "tool", reply)
        session.asked += 1
        session.tokens += reply.usage.input_tokens + reply.usage.output_tokens
        if not reply.message.tool_calls:
            usable_text(reply)
        return reply.message

    def _spent(self, session: _JudgeSession) -> None:
        """Raise Unscored where nothing is left to spend."""
        if session.clock.left <= 0:
            raise self.exhausted(f"{self.max_seconds:g} seconds (max_seconds)")
        if self.max_tokens is not None and session.tokens >= self.max_tokens:
            raise self.exhausted(f"{self.max_tokens} tokens (max_tokens)")
        if session.asked > self.max_calls + 2 * self.repair_attempts + 1:
            raise self.exhausted(f"{self.max_calls} calls (max_calls)")

    def exhausted(self, what: str) -> Unscored:
        """That nothing is left of what it may spend."""
        return self.no_verdict("exhausted", f"the judge spent its {what} without a verdict.")


async def _in_time(work: Coroutine[Any, Any, None], clock: Deadline) -> bool:
    """Do it within a clock's time; False where that ends first."""
    doing = asyncio.ensure_future(work)
    try:
        while not doing.done() and clock.left > 0:
            await asyncio.wait({doing}, timeout=clock.left)
        if doing.done():
            doing.result()
            return True
        return False
    finally:
        if doing.cancel():
            await asyncio.wait({doing})


class _JudgeSession:
    """One judgement: what was said, and what is left."""

    def __init__(
        self, judge: AgentJudge, rubric: Rubric, tools: Toolbox, prompt: list[dict[str, Any]]
    ) -> None:
        self._judge, self._leaves, self._tools = judge, rubric.leaves(), tools
        self.definitions = [*tools.definitions(), submit_tool()]
        self.spoken: list[dict[str, Any]] = []
        self._prompt = prompt
        self.asked, self.tokens, self.traced = 0, 0, 0
        self.clock = Deadline(judge.max_seconds)
        self._made, self._repairs, self._told = 0, 0, False
        self._has_tools = False
        self._shown: dict[str, str] = {}
        self.decisions: list[CriterionDecision] | None = None

    @property
    def messages(self) -> list[dict[str, Any]]:
        """What the judge is asked next."""
        return [*self._prompt, *self.spoken]

    async def take(self, said: ChatMessage) -> None:
        """Do what a reply asks for; sets `decisions` where it holds a verdict that can be taken."""
        self.spoken.append(said.to_openai())
        read = recorded_calls(said)
        by_field = bool(read)
        self._has_tools = self._has_tools or by_field
        if not self._has_tools:  # else a call in a text is a quote
            alone = calls_alone(Step(**said.model_dump()).read_text)
            read = [*alone.calls, *alone.problems]
        self._refuse_two(said, read)
        reminder = REMINDER[self._judge.language]
        if not any(isinstance(each, MadeCall) for each in read):
            self._repair("no_verdict", "the judge called no tool and left no verdict")
            read = [f"{each}; {reminder}" for each in read] or [reminder]
        outputs = [each if isinstance(each, str) else await self._output_of(each) for each in read]
        if by_field:
            made = zip(said.tool_calls or (), outputs, strict=True)
            self.spoken += [
                {"role": "tool", "tool_call_id": call.id or "", "content": output}
                for call, output in made
            ]
        else:
            self.spoken.append({"role": "user", "content": "\n\n".join(outputs)})

    def _refuse_two(self, said: ChatMessage, calls: Calls) -> None:
        """Raise Unscored where a reply says one thing and another: in two calls, or in one call that
        says it twice.
        """
        verdicts = [
            json.dumps(call.arguments, sort_keys=True)
            for call in calls
            if isinstance(call, MadeCall) and call.name == SUBMIT
        ]
        twice = any(
            call.function.name == SUBMIT
            and isinstance(call.function.arguments, str)
            and says_twice(call.function.arguments)
            for call in said.tool_calls or ()
        )
        if twice or len(set(verdicts)) > 1:
            raise self._judge.no_verdict(
                "two_verdicts", "the judge submitted more than one verdict at once."
            )

    async def _output_of(self, call: MadeCall) -> str:
        """What a call gives the judge to read."""
        if call.name == SUBMIT:
            if self.decisions is not None:
                return ""
            try:
                self.decisions = await asyncio.to_thread(
                    read_verdict, call.arguments, self._leaves, self._tools
                )
            except VerdictProblem as problem:
                self._repair("verdict", str(problem))
                return str(problem)
            return ""
        if self._made >= self._judge.max_calls:
            if self._told:
                raise self._judge.exhausted(f"{self._judge.max_calls} calls (max_calls)")
            self._told = True
            return NO_MORE[self._judge.language]
        self._made += 1
        try:
            output = await self._tools.call(call.name, call.arguments)
        except ToolRefusal as refusal:
            return str(refusal)
        tag = f"call_{len(self._tools.outputs)}"
        shown = self._shown[tag] = fenced(tag, output, fence_for({tag: output}))
        return shown

    def refuse_changed(
        self, decisions: Sequence[CriterionDecision], recorded: Sequence[Mapping[str, Any]]
    ) -> None:
        """Raise Unscored where a call that a verdict cites gives something else than it gave."""
        given = [str(each.get("content")) for each in recorded if each.get("role") != "assistant"]
        for source in {each.source for decision in decisions for each in decision.evidence}:
            kind, _, number = source.strip().partition(":")
            if kind == "call" and not any(
                self._shown[f"call_{int(number)}"] in text for text in given
            ):
                raise Unscored(
                    f"{self._judge.name}: {source} gives something else than it gave the judge.",
                    reason="changed",
                )

    def _repair(self, code: str, problem: str) -> None:
        self._repairs += 1
        if self._repairs > self._judge.repair_attempts:
            raise self._judge.no_verdict(code, problem)


@RewardRegistry.register("unisolated_agent_judge")
class UnisolatedAgentJudge(AgentJudge):
    """`agent_judge` whose programs run without walls, where there is no bubblewrap: they have limits,
    and can read this machine's files and use its network. For workspaces you trust.

    Range [0, 1], higher is better; everything else is as in `agent_judge`.
    """

    sandbox = "subprocess"
    name = "unisolated_agent_judge"
