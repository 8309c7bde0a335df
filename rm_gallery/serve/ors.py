"""Rewards as environments of the Open Reward Standard (ORS): a file of tasks, a session per rollout,
and one tool that returns the reward.

Written against openreward 0.1.167. A task's reference never leaves the server: what is listed names
split and index, by which a session finds its task again. A reward that is missing is null.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, Field

from rm_gallery._version import __version__
from rm_gallery.core.data.load.readers import placed_rows
from rm_gallery.core.data.schema import is_absent
from rm_gallery.core.model.message import text_of
from rm_gallery.core.model.transport import Json
from rm_gallery.core.score import Score
from rm_gallery.core.utils.errors import ConfigError, DataError
from rm_gallery.core.utils.identity import digest
from rm_gallery.core.utils.log import logger
from rm_gallery.core.utils.names import unknown_name
from rm_gallery.core.utils.shown import redact
from rm_gallery.serve.door import Found, Receive, RequestPipeline, Room, Scope, dumped
from rm_gallery.serve.formats import (
    PROMPTS,
    REFERENCES,
    Ask,
    Open,
    Outcomes,
    Refused,
    RequestHeaders,
    Row,
    Spoken,
    invalid,
    missing_said,
    read,
)
from rm_gallery.serve.policy import Send

SESSION_BYTES = 2048
"""What a session counts of the room for all requests, beside what it keeps."""
IDLE_SECONDS = 900.0
"""After this time without a word of its client a session may be dropped; a client pings every 10 s."""
BEAT_SECONDS = 10.0
"""Between signs of life while a judge is at work; a client gives up after 30 s of silence."""
TOOL, TERMINAL, ARGUMENT = "submit", "message", "answer"
"""The tool a model calls, the one a harness calls with a plain last message, and what both take."""
NO_SCORE = "no_score"
_TYPES = ("train", "validation", "test")
_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
_KINDS = ("text", "input_text", "output_text")


# -- tasks -----------------------------------------------------------------------------------------


class OrsTask(NamedTuple):
    """One task: what is asked, and what the reward knows about it."""

    split: str
    number: int
    prompt: Spoken
    reference: Any
    row: Row

    def spec(self) -> Json:
        """What a client learns of it beside the prompt."""
        given = self.row.get("id")
        known = {"id": given} if isinstance(given, str | int) else {}
        return {"split": self.split, "index": self.number, **known}

    def messages(self) -> list[Json]:
        """The prompt as turns of text blocks."""
        turns = (
            [{"role": "user", "content": self.prompt}]
            if isinstance(self.prompt, str)
            else self.prompt
        )
        return [
            {"role": _ROLES[turn["role"]], "blocks": [_block(text_of(turn.get("content")))]}
            for turn in turns
        ]


Tasks = Mapping[str, Sequence[OrsTask]]


def read_tasks(path: str | Path) -> dict[str, list[OrsTask]]:
    """The tasks of a file, by split.

    A row holds `prompt` or `messages` (text, or turns of text), a reference in the first of the
    columns every server format looks into (`reference`, `ground_truth`, `answer`, …), `split`
    ("train" by default), and the columns of the data set, which the reward gets.

    Args:
        path: a file or folder of any kind `evaluate` reads.

    Returns:
        The tasks of each split in their order; a split's order is what its indices count.

    Raises:
        DataError: a row cannot be read, or has no prompt that can be sent; it is named.
        ConfigError: there is no row.

    Example:
        >>> import json, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder, "tasks.jsonl")
        ...     _ = file.write_text(json.dumps({"prompt": "6 * 7?", "answer": "42"}))
        ...     tasks = read_tasks(file)
        >>> tasks["train"][0].spec(), tasks["train"][0].reference
        ({'split': 'train', 'index': 0}, '42')
    """
    tasks: dict[str, list[OrsTask]] = {}
    for where, row in placed_rows(Path(path)):
        asked, truth = _first(row, PROMPTS), _first(row, REFERENCES)
        problem = _problem(asked)
        if problem:
            raise DataError(f"{where}: {problem}")
        split = "train" if is_absent(row.get("split")) else str(row["split"])
        own = tasks.setdefault(split, [])
        own.append(OrsTask(split, len(own), asked, truth, row))
    if not tasks:
        raise ConfigError(f"{path}: no task found; give a row per task, with prompt and reference.")
    return tasks


def _first(row: Row, names: Sequence[str]) -> Any:
    return next((row[name] for name in names if not is_absent(row.get(name))), None)


def _problem(prompt: Any) -> str:
    """Why this is no prompt that ORS has a form for; empty where it is one."""
    if isinstance(prompt, str):
        return ""
    if prompt is None:
        return "there is no prompt; give a column prompt or messages."
    if not isinstance(prompt, list) or not prompt:
        return "the prompt is no text and no list of messages."
    for turn in prompt:
        if not isinstance(turn, Mapping) or turn.get("role") not in _ROLES:
            return f"a message of the prompt has none of the roles {', '.join(_ROLES)}."
        content = turn.get("content")
        parts = content if isinstance(content, list) else ()
        texts = all(isinstance(part, Mapping) and part.get("type") in _KINDS for part in parts)
        if turn.get("tool_calls") or not isinstance(content, str | list) or not texts:
            return "a message of the prompt is more than a text: it has tool calls or images."
    return ""


def _block(text: str) -> Json:
    return {"text": text, "detail": None, "type": "text"}


# -- bodies ----------------------------------------------------------------------------------------


class OrsOfSplit(Open):
    """Asks about the tasks of a split."""

    split: str


class OrsOfTask(OrsOfSplit):
    """Asks for one task."""

    index: int


class OrsOfRange(OrsOfSplit):
    """Asks for tasks as Python slices them."""

    start: int | None = None
    stop: int | None = None


class OrsCreate(Open):
    """Begins a session: with the `task_spec` that was listed, or with split and index."""

    env_name: str | None = None
    task_spec: Json | None = None
    split: str | None = None
    index: int | None = None
    toolset_name: str | None = None


class OrsToolCall(Open):
    """A call of the tool; `task_id` asks for the result of one that was begun."""

    name: str
    input: Json
    task_id: str | None = None


class OrsSaid(Open):
    """A turn of a candidate."""

    role: str
    blocks: list[Json]


class OrsCandidate(Open):
    """One completion of a group, as the turns of its rollout."""

    messages: list[OrsSaid]


class OrsGroup(Open):
    """The completions of one task, to be compared."""

    candidates: list[OrsCandidate] = Field(min_length=1)
    task_id: str | None = None


# -- sessions --------------------------------------------------------------------------------------


class _OrsRequest(NamedTuple):
    """What one request says."""

    headers: RequestHeaders
    env: str
    """The environment its path names; empty for none."""
    body: Any


class _Work(NamedTuple):
    """A judgement under way."""

    id: str
    of: str
    """Digest of what it answers: the same again gets the same result, not a second judgement. The
    answer itself is kept no longer than it is judged.
    """
    task: asyncio.Task[Any]


@dataclass
class OrsSession:
    """A rollout: the environment it is in and its task, and what was judged."""

    env: str
    task: OrsTask
    touched: float
    room: Room
    """What it takes up of the room for all: its answer while that is judged, then the reply."""
    works: dict[str, _Work] = field(default_factory=dict)
    """What was judged of it: the `answer`, and the last `group`."""
    open: bool = True


class OrsRoute(NamedTuple):
    """A path of ORS, and what answers it."""

    method: str
    path: str
    answer: Callable[[OrsEnvironments, _OrsRequest], Any]
    """What it says, or waits for."""
    body: type[BaseModel] | None = None
    summary: str = ""
    of_env: bool = True
    """Whether it is there once more below the environment's name."""
    session: bool = False
    """Whether it goes with the header X-Session-ID."""


class OrsEnvironments:
    """The rewards of a server as environments, each over the same tasks.

    Sessions are kept in this process. Each takes one answer: another one is refused, and the same
    one again (a client asks again where its connection broke) gets the same reward.
    """

    def __init__(self, door: RequestPipeline, tasks: Tasks) -> None:
        """Take the door that lets requests in; ConfigError where it has no reward."""
        if not door.handler.rewards:
            raise ConfigError("tasks need a reward that scores their answers; give --reward NAME.")
        self.door = door
        self.tasks = tasks
        self.rewards = door.handler.rewards
        self._sessions: dict[str, OrsSession] = {}
        """Those that were idle the longest come first."""

    async def answer(self, route: OrsRoute, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""

        async def found() -> Found:
            body = None
            if route.body is not None:
                body = read(route.body, await self.door.body(scope, receive))
            headers: RequestHeaders = dict(scope["headers"])
            env = scope["path_params"].get("env", "")
            said = route.answer(self, _OrsRequest(headers, env, body))
            return 200, await said if isinstance(said, Awaitable) else said

        await self.door.show(found, "evaluate", scope, receive, send)

    # what there is

    def splits(self, asked: _OrsRequest) -> list[Json]:
        """The splits of the tasks."""
        self._env(asked)
        return [
            {"name": name, "type": name if name in _TYPES else "validation"} for name in self.tasks
        ]

    def _split(self, name: str) -> Sequence[OrsTask]:
        """The tasks of a split; Refused where there is none."""
        if name not in self.tasks:
            raise invalid(unknown_name("split", name[:80], self.tasks))
        return self.tasks[name]

    def _task(self, split: str, index: int) -> OrsTask:
        """One task; Refused where there is none."""
        tasks = self._split(split)
        if not 0 <= index < len(tasks):
            raise invalid(f"index is {index}; the split {split:.80} has {len(tasks)} tasks.")
        return tasks[index]

    def get_tasks(self, asked: _OrsRequest, within: slice = slice(None)) -> Json:
        """The tasks of a split, or of a slice of it."""
        listed = self._split(asked.body.split)[within]
        return {"tasks": [task.spec() for task in listed], "env_name": self._env(asked)}

    def get_task(self, asked: _OrsRequest) -> Json:
        """One task."""
        task = self._task(asked.body.split, asked.body.index)
        return {"task": task.spec(), "env_name": self._env(asked)}

    def tools(self, asked: _OrsRequest) -> Json:
        """The tool."""
        env = self._env(asked)
        text = {"type": "string", "description": "The whole answer."}
        schema = {"type": "object", "properties": {ARGUMENT: text}, "required": [ARGUMENT]}
        submit = "Submit the answer to the task. It ends the episode."
        return {
            "tools": [{"name": TOOL, "description": submit, "input_schema": schema}],
            "terminal_tool": {"name": TERMINAL, "arg": ARGUMENT, "description": submit},
            "supports_score_group": self.rewards[env].compares,
            "message_block_types": ["text"],
        }

    # a rollout

    def create(self, asked: _OrsRequest) -> Json:
        """Begin a session."""
        sid, body = self._sid(asked), asked.body
        spec = body.task_spec if body.task_spec is not None else vars(body)
        split, index = spec.get("split"), spec.get("index")
        if not isinstance(split, str) or type(index) is not int:
            raise invalid("a session takes a task_spec as it was listed, or split and index.")
        if body.toolset_name is not None:
            raise invalid("there are no toolsets here; leave out toolset_name.")
        task, env = self._task(split, index), self._env(asked, body.env_name or "")
        if sid in self._sessions:
            raise Refused(400, "session_exists", "There is a session of this id already.")
        now = time.monotonic()
        while self._sessions:
            first = next(iter(self._sessions))
            if now - self._sessions[first].touched < IDLE_SECONDS:
                break
            self._drop(first)
        most, room = self.door.settings.max_sessions, self.door.room()
        if len(self._sessions) >= most:
            raise Refused(
                429, "busy", f"{most} sessions are open, the most that are kept.", retry_after=10.0
            )
        room.take(SESSION_BYTES)
        self._sessions[sid] = OrsSession(env, task, now, room)
        return {"sid": sid}

    def ping(self, asked: _OrsRequest) -> Json:
        """Keep a session."""
        self._session(asked)
        return {"status": "ok"}

    def delete(self, asked: _OrsRequest) -> Json:
        """End a session."""
        sid = self._sid(asked)
        self._drop(sid)
        return {"sid": sid}

    def prompt(self, asked: _OrsRequest) -> list[Json]:
        """What the session's task asks."""
        turns = self._session(asked).task.messages()
        return [block for turn in turns for block in turn["blocks"]]

    def messages(self, asked: _OrsRequest) -> list[Json]:
        """The same as turns."""
        return [{**turn, "detail": None} for turn in self._session(asked).task.messages()]

    async def call(self, asked: _OrsRequest) -> AsyncIterator[bytes]:
        """The outcome of a tool call, as a stream."""
        session, body = self._session(asked), asked.body
        work, given = session.works.get("answer"), body.input.get(ARGUMENT)
        if body.task_id is not None:
            return self._resumed(work, body.task_id)
        wrong = None
        if body.name not in (TOOL, TERMINAL):
            wrong = ("not_found", f"{body.name[:60]!r} is not a valid tool")
        elif not isinstance(given, str) or len(body.input) > 1:
            wrong = ("input_validation", f"{body.name} takes one text, {ARGUMENT}")
        elif work is not None and work.of != digest([given]):
            wrong = ("episode_finished", "the episode has ended: an answer was submitted before")
        if wrong is not None:
            return _told(dumped({"ok": False, "error": wrong[1], "reason": wrong[0]}))
        return await self._judge_once(session, "answer", [given], asked.headers, _output)

    async def score_group(self, asked: _OrsRequest) -> AsyncIterator[bytes]:
        """The scores of completions that are compared with each other, as a stream."""
        session, body = self._session(asked), asked.body
        if not self.rewards[session.env].compares:
            raise Refused(
                404,
                "unsupported",
                f"The reward {session.env} scores each completion by itself, by the tool {TOOL}.",
            )
        if body.task_id is not None:
            return self._resumed(session.works.get("group"), body.task_id)
        answers = [_last_said(candidate) for candidate in body.candidates]
        return await self._judge_once(session, "group", answers, asked.headers, _group)

    # judging

    async def _judge_once(
        self,
        session: OrsSession,
        kind: Literal["answer", "group"],
        answers: Sequence[str],
        headers: RequestHeaders,
        reply: Callable[[Outcomes], Json],
    ) -> AsyncIterator[bytes]:
        """The stream of a judgement, which is begun unless there is one of the same answers.

        What is refused at once leaves the session as it was, so that the client may come again.
        Once it is over, its session holds no more room than what is told.
        """
        work, of = session.works.get(kind), digest(answers)
        if work is None or work.of != of or (work.task.done() and _lost(work.task)):
            session.room.take(sum(map(len, answers)))
            target, known = f"reward:{session.env}", session.task
            ask = Ask(prompt=known.prompt, reference=known.reference, row=known.row, own=True)
            asks = [ask._replace(completion=answer) for answer in answers]

            async def judging() -> bytes:
                outcomes = await self.door.handler.score(target, asks, self.door.deadline(headers))
                self.door.metrics.scored(target, outcomes)
                return dumped(reply(outcomes))

            def over(task: asyncio.Task[bytes]) -> None:
                if session.open:  # else its room is given back
                    tasks = {task, *(work.task for work in session.works.values())}
                    told = [t.result() for t in tasks if t.done() and not _lost(t)]
                    session.room.shrink(SESSION_BYTES + sum(map(len, told)))

            task = asyncio.ensure_future(judging())
            task.add_done_callback(over)
            work = session.works[kind] = _Work(uuid.uuid4().hex, of, task)
        await asyncio.wait({work.task}, timeout=0.001)
        if work.task.done() and isinstance(error := _lost(work.task), Refused):
            session.works.pop(kind, None)
            if error.code != NO_SCORE:
                raise error
        return self._streamed(work)

    def _resumed(self, work: _Work | None, task_id: str) -> AsyncIterator[bytes]:
        if work is None or work.id != task_id:
            return _told(b"unknown task_id", "error")
        return self._streamed(work)

    async def _streamed(self, work: _Work) -> AsyncIterator[bytes]:
        self.door.metrics.in_flight += 1  # the server does not end before it is said
        try:
            yield _event("task_id", work.id.encode())
            while not (await asyncio.wait({work.task}, timeout=BEAT_SECONDS))[0]:
                yield b": judging\n\n"
            error = _lost(work.task)
            if isinstance(error, Refused):
                yield _event("error", " ".join(str(error).split()).encode())
            elif error is not None:
                logger.error("a call failed: {}", redact(f"{type(error).__name__}: {error}"))
                yield _event("error", b"The server failed.")
            else:
                yield _event("end", work.task.result())
        finally:
            self.door.metrics.in_flight -= 1

    # finding

    def _env(self, asked: _OrsRequest, named: str = "") -> str:
        """The environment a request is about: the one that is named, as by its path, else that of
        X-Deployment, else the only one.
        """
        named = named or asked.env
        told = asked.headers.get(b"x-deployment", b"").decode("latin-1").rpartition("/")[2]
        spelled = (named or told).lower()
        known = next((each for each in self.rewards if each.lower() == spelled), None)
        if known is not None:
            return known
        if named:
            raise Refused(
                404, "unknown_reward", unknown_name("environment", named[:80], self.rewards)
            )
        if len(self.rewards) > 1:
            there = ", ".join(list(self.rewards)[:10])
            raise Refused(
                404,
                "no_target",
                f"Several environments are here: {there}. Name one in the path: /NAME/splits.",
            )
        return next(iter(self.rewards))

    def _sid(self, asked: _OrsRequest) -> str:
        sid = asked.headers.get(b"x-session-id", b"").decode("latin-1").strip()
        if not 0 < len(sid) <= 128:
            raise Refused(400, "invalid_header", "X-Session-ID is no session's id.")
        return sid

    def _session(self, asked: _OrsRequest) -> OrsSession:
        sid = self._sid(asked)
        session = self._sessions.pop(sid, None)
        if session is None:
            raise Refused(404, "unknown_session", "There is no such session; it may have ended.")
        session.touched = time.monotonic()
        self._sessions[sid] = session
        return session

    def _drop(self, sid: str) -> None:
        session = self._sessions.pop(sid, None)
        if session is None:
            return
        session.open = False
        session.room.give_back()
        for work in session.works.values():
            work.task.cancel()

    def routes(self) -> list[tuple[str, OrsRoute, Any]]:
        """Every path with its route and what answers it."""
        return [
            (path, route, partial(self.answer, route))
            for route in ROUTES
            for path in ((route.path, f"/{{env}}{route.path}") if route.of_env else (route.path,))
        ]


def _event(kind: str, data: bytes) -> bytes:
    return b"event: %s\r\ndata: %s\r\n\r\n" % (kind.encode(), data)


def _lost(task: asyncio.Task[Any]) -> BaseException | None:
    """What a task that is over ended by, where it has no result."""
    return asyncio.CancelledError() if task.cancelled() else task.exception()


async def _told(said: bytes, kind: str = "end") -> AsyncIterator[bytes]:
    yield _event("task_id", str(uuid.uuid4()).encode())
    yield _event(kind, said)


def _output(outcomes: Outcomes) -> Json:
    """What the tool returns for an answer."""
    [outcome] = outcomes
    said = {**_rewarded(outcome), "blocks": [_block("The answer is taken.")], "finished": True}
    return {"ok": True, "output": said}


def _group(outcomes: Outcomes) -> Json:
    """What is said of a group; Refused where one has no score, for which it has no word."""
    missing = [place for place, each in enumerate(outcomes) if each.value is None]
    if missing:
        raise Refused(503, NO_SCORE, missing_said(outcomes, missing, missing[0], "candidates"))
    return {"scores": list(map(_rewarded, outcomes))}


def _rewarded(outcome: Score[float]) -> Json:
    said = outcome.to_dict()
    # a client reads lines of at most 128 KB
    return {"metadata": {**said, "message": said["message"][:2000]}, "reward": outcome.value}


def _last_said(candidate: OrsCandidate) -> str:
    """The text of a candidate's last turn of the model."""
    last = next((turn for turn in reversed(candidate.messages) if turn.role == "assistant"), None)
    if last is None:
        raise invalid("a candidate has no turn of an assistant.")
    return "\n".join(str(b.get("text", "")) for b in last.blocks if b.get("type") == "text")


_O = OrsEnvironments
ROUTES = (
    OrsRoute("GET", "/list_environments", lambda here, asked: list(here.rewards), summary="The environments.", of_env=False),
    OrsRoute("GET", "/version", lambda here, asked: {"version": __version__, "build_sha": None}, summary="The version of the server.", of_env=False),
    OrsRoute("GET", "/splits", _O.splits, summary="The splits of an environment."),
    OrsRoute("POST", "/tasks", _O.get_tasks, OrsOfSplit, "The tasks of a split."),
    OrsRoute("POST", "/num_tasks", lambda here, asked: {"num_tasks": len(here._split(asked.body.split))}, OrsOfSplit, "How many tasks a split has."),
    OrsRoute("POST", "/task", _O.get_task, OrsOfTask, "One task."),
    OrsRoute("POST", "/task_range", lambda here, asked: here.get_tasks(asked, slice(asked.body.start, asked.body.stop)), OrsOfRange, "The tasks of a slice."),
    OrsRoute("GET", "/tools", _O.tools, summary="The tool of an environment."),
    OrsRoute("GET", "/task_tools", _O.tools, summary="The tool of a session."),
    OrsRoute("POST", "/create_session", lambda here, asked: _told(b""), summary="A session's id, as a stream.", of_env=False),
    OrsRoute("POST", "/create", _O.create, OrsCreate, "Begin a session.", of_env=False, session=True),
    OrsRoute("POST", "/ping", _O.ping, summary="Keep a session.", of_env=False, session=True),
    OrsRoute("POST", "/delete", _O.delete, summary="End a session.", of_env=False, session=True),
    OrsRoute("POST", "/delete_session", _O.delete, summary="Give up a session's id.", of_env=False, session=True),
    OrsRoute("GET", "/prompt", _O.prompt, summary="What a session's task asks.", session=True),
    OrsRoute("GET", "/messages", _O.messages, summary="What it asks, as turns.", session=True),
    OrsRoute("POST", "/call", _O.call, OrsToolCall, "Submit an answer: its reward, as a stream.", session=True),
    OrsRoute("POST", "/score_group", _O.score_group, OrsGroup, "Compare completions, as a stream.", session=True),
)  # fmt: skip
