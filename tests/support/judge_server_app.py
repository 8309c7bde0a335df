"""The judge itself: what it is told, which fault a request meets, and from a request to a reply."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from math import ceil
from typing import Any, Literal

import orjson

from tests.support.judge_server_behaviours import (
    NAMED,
    BehaviourSpec,
    JudgeCall,
    behaviour_of,
    write_answer,
)
from tests.support.judge_server_channels import (
    CAPABILITIES,
    answer_among,
    as_call,
    decided,
    lacking,
    one_token,
)
from tests.support.judge_server_prompts import read_prompt
from tests.support.judge_server_replies import chat_body, embeddings_body
from tests.support.judge_server_stats import Request, Stats, sent_key


@dataclass(frozen=True)
class Faults:
    """Shares (0 to 1, together at most 1) of requests that go wrong, and events that hit all
    connections.

    The draw is seeded by (seed, messages, attempt), so it does not depend on the order of arrival;
    `sticky` leaves the attempt out: the same messages always meet the same fate. `first_attempts`
    limits share faults to that many attempts of the same messages. Event times are seconds after
    the first request since start, reset or change of faults.
    """

    # order matters: a request's one seeded draw falls into the first share it fits
    rate_limit: float = 0.0
    server_error: float = 0.0
    unavailable: float = 0.0
    drop_before_reply: float = 0.0
    drop_mid_body: float = 0.0
    nonsense: float = 0.0
    non_json: float = 0.0
    missing_choices: float = 0.0
    null_content: float = 0.0
    finish_length: float = 0.0
    finish_content_filter: float = 0.0
    hang: float = 0.0
    slow_drip: float = 0.0
    always: int | None = None
    sticky: bool = False
    first_attempts: int | None = None
    retry_after: Literal["seconds", "ms", "none"] = "seconds"
    retry_after_s: float = 1.0
    hang_s: float = 60.0
    drip_s: float = 5.0
    stall_at_s: float | None = None
    stall_s: float = 5.0
    outage_at_s: float | None = None
    outage_s: float = 10.0

    def __post_init__(self) -> None:
        shares = self.shares
        if min(shares.values()) < 0 or sum(shares.values()) > 1 + 1e-9:
            raise ValueError(f"fault shares must be 0 or more and sum to at most 1, found {shares}")

    @property
    def shares(self) -> dict[str, float]:
        names = [item.name for item in fields(self)]
        return {name: float(getattr(self, name)) for name in names[: names.index("always")]}


@dataclass(frozen=True)
class ServerConfig:
    """Everything that can be set; `latency` in seconds before each reply."""

    behaviour: BehaviourSpec = "perfect"
    latency: float = 0.0
    seed: int = 0
    faults: Faults = field(default_factory=Faults)
    oracle: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    candidate_pattern: str | None = None
    score_range: tuple[float, float] = (1, 10)
    require_key: str | None = None
    lacks: tuple[str, ...] = ()
    """What of `CAPABILITIES` the endpoint does not know."""
    declines: str = ""
    """A word; questions with it are declined one by one by a decision model."""

    def changed(self, changes: Mapping[str, Any]) -> ServerConfig:
        """A copy with these fields replaced, values as they come out of JSON. Raises TypeError for
        an unknown field.
        """
        values = dict(changes)
        if "faults" in values and not isinstance(values["faults"], Faults):
            values["faults"] = Faults(**(values["faults"] or {}))
        if "score_range" in values:
            values["score_range"] = tuple(values["score_range"])
        if "lacks" in values:
            values["lacks"] = tuple(values["lacks"])
            if unknown := set(values["lacks"]) - CAPABILITIES:
                raise ValueError(f"no capability: {', '.join(sorted(unknown))}")
        return replace(self, **values)


Headers = dict[str, str]


def error_body(status: int, message: str = "Something went wrong.") -> bytes:
    kind = "server_error" if status >= 500 else "invalid_request_error"
    return orjson.dumps(
        {"error": {"message": message, "type": kind, "param": None, "code": str(status)}}
    )


def retry_headers(faults: Faults) -> Headers:
    seconds = faults.retry_after_s
    told = {
        "ms": {"retry-after-ms": str(round(seconds * 1000))},
        "seconds": {"Retry-After": str(ceil(seconds))},
    }
    return told.get(faults.retry_after, {})


Delivery = Literal["whole", "drop_before", "drop_mid", "drip"]
_API_PATH = re.compile(
    r"(?:/v1|/openai/v1|/openai/deployments/(?P<deployment>[^/]+))/(?P<call>chat/completions"
    r"|embeddings|decisions|systemone)"
)
_STATUS_FAULTS = {"rate_limit": 429, "server_error": 500, "unavailable": 503}
_DROPS: dict[str, Delivery] = {
    "drop_before_reply": "drop_before",
    "drop_mid_body": "drop_mid",
    "slow_drip": "drip",
}
_FINISH = {"finish_length": "length", "finish_content_filter": "content_filter"}


@dataclass(slots=True)
class Reply:
    """What to send and how; `delay` in seconds from arrival."""

    status: int
    body: bytes
    headers: Headers = field(default_factory=dict)
    delivery: Delivery = "whole"
    delay: float = 0.0


class Refused(Exception):
    """A request that is answered with an error status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class JudgeApp:
    """Decides replies; lives on one event loop and is called from there only."""

    def __init__(self, config: ServerConfig, cpu_clock: Callable[[], float]) -> None:
        self.stats = Stats(cpu_clock)
        self.stalled_until = 0.0
        self.on_outage: Callable[[float], None] = lambda seconds: None
        self._timers: list[asyncio.TimerHandle] = []
        self._configure(config)

    def _configure(self, config: ServerConfig) -> None:
        self._behave = behaviour_of(config.behaviour)
        self._shares = {name: share for name, share in config.faults.shares.items() if share}
        self.config = config
        self._restart()

    def _restart(self) -> None:
        self._order = 0
        self._clock_started = False
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    def _start_clock(self) -> None:
        self._clock_started = True
        faults, loop = self.config.faults, asyncio.get_running_loop()
        if faults.stall_at_s is not None:
            ended = loop.time() + faults.stall_at_s + faults.stall_s
            self._timers.append(
                loop.call_later(faults.stall_at_s, setattr, self, "stalled_until", ended)
            )
        if faults.outage_at_s is not None:
            self._timers.append(
                loop.call_later(faults.outage_at_s, self.on_outage, faults.outage_s)
            )

    def respond(self, request: Request, number: int) -> Reply:
        """The reply to the request of this number, which has arrived."""
        if not self._clock_started:
            self._start_clock()
        try:
            return self._respond(request, number)
        except Refused as refusal:
            return Reply(
                refusal.status, error_body(refusal.status, str(refusal)), delay=self.config.latency
            )
        except Exception as error:  # noqa: BLE001 - a behaviour under test may raise anything; it is shown in the statistics
            self.stats.counts.errors.append(f"{type(error).__name__}: {error}")
            return Reply(
                500, error_body(500, f"the judge server's behaviour failed: {type(error).__name__}")
            )

    def _respond(self, request: Request, number: int) -> Reply:
        api = _API_PATH.fullmatch(request.path)
        if api is None:
            raise Refused(404, f"no such path: {request.path}")
        if self.config.require_key not in (None, sent_key(request.headers)):
            raise Refused(401, "Incorrect API key provided.")
        always = self.config.faults.always
        body = orjson.loads(request.body)
        if api["deployment"] is not None:
            body.setdefault("model", api["deployment"])
        told = orjson.dumps(body.get("messages", body.get("input")), option=orjson.OPT_SORT_KEYS)
        digest = hashlib.sha256(told).digest()
        attempt = self.stats.counted(digest, hashlib.sha256(request.body).digest())
        if always is not None:
            self.stats.counts.by_fault[f"always_{always}"] += 1
            headers = retry_headers(self.config.faults) if always == 429 else {}
            return Reply(always, error_body(always), headers, delay=self.config.latency)
        if api["deployment"] is not None and "api-version" not in request.query:
            raise Refused(404, "api-version is missing")
        if api["call"] in self.config.lacks:
            raise Refused(404, f"no such path: {request.path}")
        if field := lacking(body, self.config.lacks):
            raise Refused(400, f"Unknown parameter: {field}")

        def made(fault: str | None) -> Reply:
            if api["call"] == "embeddings":
                return self._embed(body)
            if api["call"] in ("decisions", "systemone"):
                return self._decide(body, api["call"], digest, attempt)
            return self._chat(body, digest, attempt, number, fault)

        return self._with_faults(digest, attempt, made)

    def _fault(self, digest: bytes, attempt: int) -> str | None:
        faults = self.config.faults
        if not self._shares or (
            faults.first_attempts is not None and attempt >= faults.first_attempts
        ):
            return None
        text = f"{self.config.seed}|fault|{None if faults.sticky else attempt}|".encode() + digest
        left = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") / 2**64
        for name, share in self._shares.items():
            left -= share
            if left < 0:
                return name
        return None

    def _with_faults(
        self, digest: bytes, attempt: int, make: Callable[[str | None], Reply]
    ) -> Reply:
        config, fault = self.config, self._fault(digest, attempt)
        if fault is None:
            reply = make(None)
        elif fault in _STATUS_FAULTS:
            status = _STATUS_FAULTS[fault]
            reply = Reply(
                status,
                error_body(status),
                retry_headers(config.faults) if status in (429, 503) else {},
            )
        elif fault == "non_json":
            reply = Reply(
                200,
                b"<html><body>upstream said nothing</body></html>",
                {"Content-Type": "text/html"},
            )
        else:
            reply = make(fault)
            reply.delivery = _DROPS.get(fault, "whole")
        if fault is not None:
            self.stats.counts.by_fault[fault] += 1
        reply.delay = config.latency + (config.faults.hang_s if fault == "hang" else 0.0)
        return reply

    def _embed(self, body: Mapping[str, Any]) -> Reply:
        made = embeddings_body(body)
        self.stats.counts.totals["prompt_tokens"] += made["usage"]["prompt_tokens"]
        return Reply(200, orjson.dumps(made))

    def _decide(self, body: dict[str, Any], path: str, digest: bytes, attempt: int) -> Reply:
        config, dialect = self.config, "openai" if path == "decisions" else path
        told = (
            body["input"] if dialect == "openai" else [{"role": "user", "content": body["state"]}]
        )
        call = self._call({**body, "messages": told}, digest, attempt)
        found = self._behave(call)

        def answer(instructions: str, options: Sequence[str]) -> str | None:
            if config.declines and config.declines in instructions:
                return None
            return answer_among(
                options, replace(call, reading=call.reading._replace(asked=instructions)), found
            )

        return Reply(200, orjson.dumps(decided(body, dialect, answer)))

    def _call(self, body: dict[str, Any], digest: bytes, attempt: int) -> JudgeCall:
        config = self.config
        reading = read_prompt(body, config.candidate_pattern)
        self._order += 1
        return JudgeCall(
            body, reading, config.oracle, config.score_range, digest, attempt, self._order - 1
        )

    def _chat(
        self, body: dict[str, Any], digest: bytes, attempt: int, number: int, fault: str | None
    ) -> Reply:
        totals = self.stats.counts.totals
        call = self._call(body, digest, attempt)
        reading, logprobs = call.reading, None
        behave = NAMED["garbage"] if fault == "nonsense" else self._behave
        texts: list[str | None] = []
        for call.choice in range(int(body.get("n") or 1)):
            found = behave(call)
            if body.get("logprobs") and (not isinstance(found, str) or found.isalpha()):
                said, logprobs = one_token(reading.asked, call, found)
                texts.append(said)
            else:
                texts.append(write_answer(found, call))
        totals["hits"] += call.known.count(True)
        totals["misses"] += call.known.count(False)
        finish = _FINISH.get(fault or "", "stop")
        if finish == "length":  # a cut-off reply ends before its verdict
            texts = [(text or "")[: len(text or "") // 3] for text in texts]
        elif fault in ("null_content", "finish_content_filter"):
            texts = [None] * len(texts)
        made = chat_body(body, texts, reading.prompt, number=number, finish_reason=finish)
        for choice, text in zip(made["choices"], texts, strict=True):
            choice["logprobs"] = logprobs
            if "tools" in body and text:
                choice["message"] |= {"content": None, "tool_calls": as_call(body, text)}
        for kind in ("prompt_tokens", "completion_tokens"):
            totals[kind] += made["usage"][kind]
        if fault == "missing_choices":
            del made["choices"]
        return Reply(200, orjson.dumps(made))

    def control(self, what: str, arguments: Mapping[str, Any]) -> Any:
        if what == "stats":
            return self.stats.snapshot(detail=str(arguments.get("detail", "1")) != "0")
        if what == "requests":
            return [request.shown() for request in list(self.stats.recent)[-int(arguments["n"]) :]]
        if what == "set":
            self._configure(self.config.changed(arguments))
        else:
            self.stats.reset()
            self._restart()
        return None
