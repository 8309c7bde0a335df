"""The request format of reward-kit endpoints: `/evaluate`, `/reward` and `/v1/evaluations/{id}`, one conversation or many."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, Field, RootModel, TypeAdapter

from rm_gallery.core.outcome import Outcome, failed
from rm_gallery.core.sandbox.process import SandboxLimits
from rm_gallery.core.utils.errors import SandboxUnavailable, logger
from rm_gallery.evaluation.bundle import DamagedBundle
from rm_gallery.evaluation.live import LiveEvaluators, scored_of_result
from rm_gallery.evaluation.pool import LIMITS
from rm_gallery.evaluation.store import Store, StoreError, UnknownEvaluator
from rm_gallery.serve.formats import MAX_ITEMS, Ask, Codec, Format, Open, Params, Refused, Turn, invalid, read, target_of


class EvaluateRequest(Open):
    """A conversation; further keywords of the function stand in `kwargs` or beside the other fields."""

    messages: list[Turn]
    ground_truth: Any = Field(default=None, description="The reference, of any type.")
    original_messages: list[Turn] | None = None
    tools: list[Any] | None = None
    kwargs: dict[str, Any] | None = None


class MetricReply(BaseModel):
    """One component."""

    is_score_valid: bool
    score: float
    reason: str


class EvaluateReply(BaseModel):
    """A result. Where there is no score it is null and `is_score_valid` is false: with `error` the judging broke, without it
    there was nothing to judge by, as `reason` says.
    """

    score: float | None
    is_score_valid: bool
    reason: str | None
    metrics: dict[str, MetricReply]
    step_outputs: list[dict[str, Any]] | None
    error: str | None


class EvaluateBatch(RootModel[Annotated[list[EvaluateRequest], Field(min_length=1, max_length=MAX_ITEMS)]]):
    """Many conversations."""


class EvaluateReplies(RootModel[list[EvaluateReply]]):
    """One result per conversation, in their order."""


def _ask(body: Any, where: str = "") -> Ask:
    found = read(EvaluateRequest, body, where)
    row = {**(found.model_extra or {}), **(found.kwargs or {})}
    return Ask(
        messages=body["messages"],
        reference=found.ground_truth,
        row=row,
        original_messages=body.get("original_messages"),
        tools=found.tools,
    )


def _one(body: Any, params: Params) -> tuple[str, list[Ask]]:
    return target_of(params) or "evaluator:", [_ask(body)]


def _many(body: Any, params: Params) -> tuple[str, list[Ask]]:
    if not isinstance(body, list) or not 0 < len(body) <= MAX_ITEMS:
        raise invalid(f"the body is no list of 1 to {MAX_ITEMS} conversations.")
    asks = []
    for place, item in enumerate(body):
        try:
            asks.append(_ask(item, f"[{place}]"))
        except Refused as refused:
            asks.append(Ask(messages=[], problem=str(refused)))
    return target_of(params) or "evaluator:", asks


def _result(found: Outcome[float]) -> dict[str, Any]:
    """An outcome as an EvaluateResult; a result without a valid score has no number that could be taken for one."""
    said = found.message or None
    base: dict[str, Any] = {"score": found.score, "is_score_valid": found.score is not None, "reason": said}
    base |= {"metrics": {}, "step_outputs": None, "error": None}
    if found.status == "failed":
        return {**base, "error": f"{found.reason}: {found.message}"}
    metrics = {name: {"is_score_valid": True, "score": part, "reason": ""} for name, part in found.components.items()}
    told = found.extra.get("metrics")
    for name, metric in told.items() if isinstance(told, Mapping) else ():
        if isinstance(metric, Mapping) and "score" in metric:
            metrics[name] = {**metrics.get(name, {}), **metric}
    # what a function put there may be anything
    steps = _ANYTHING.dump_python(found.extra.get("step_outputs"), mode="json", fallback=str)
    return {**base, "metrics": metrics, "step_outputs": steps}


_ANYTHING: TypeAdapter[Any] = TypeAdapter(Any)


def _one_reply(asks: Sequence[Ask], found: Sequence[Outcome[float]]) -> tuple[int, Any]:
    return 504 if found[0].reason == "deadline" else 200, _result(found[0])


def _many_reply(asks: Sequence[Ask], found: Sequence[Outcome[float]]) -> tuple[int, Any]:
    return 200, list(map(_result, found))


_EXAMPLE = {
    "messages": [{"role": "user", "content": "What is 2 + 2?"}, {"role": "assistant", "content": "4"}],
    "ground_truth": "4",
    "kwargs": {"strict": True},
}
_FIELDS = (
    ("messages", "the conversation, its last assistant turn is scored"),
    ("ground_truth", "reference, of any type"),
    ("original_messages", "the prompt's messages"),
    ("tools", "tools"),
    ("kwargs, and every other field", "row: keywords of the function"),
    ("→ score, reason", "score, message"),
    ("→ metrics.NAME.score", "components"),
    ("→ is_score_valid", "false for unscored and failed"),
    ("→ error", "reason and message of what failed"),
)
_NO_SCORE = "`score` null and `is_score_valid` false; `error` where it failed"

FORMATS = (
    Format(
        "evaluate",
        "/evaluate",
        "reward-kit, eval-protocol",
        _FIELDS,
        _NO_SCORE,
        lambda name, path: Codec(
            name, path, _one, _one_reply, EvaluateRequest, EvaluateReply, _EXAMPLE,
            "Score one conversation in reward-kit's format.",
        ),
        (
            ("evaluate", "/evaluate"),
            ("evaluate_as_reward", "/reward"),
            ("evaluation", "/v1/evaluations/{id}"),
            ("evaluate_evaluation", "/v1/evaluations/{id}/evaluate"),
            ("evaluate_reward", "/v1/rewards/{name}/evaluate"),
        ),
    ),
    Format(
        "evaluate_batch",
        "/evaluate/batch",
        "the same, many at once",
        (("[i]", "as above; an item that does not fit is failed and costs no other one"),),
        _NO_SCORE,
        lambda name, path: Codec(
            name, path, _many, _many_reply, EvaluateBatch, EvaluateReplies, [_EXAMPLE],
            "Score many conversations in reward-kit's format, with a result for each.",
        ),
        (
            ("evaluate_batch", "/evaluate/batch"),
            ("evaluation_batch", "/v1/evaluations/{id}/batch"),
            ("evaluate_reward_batch", "/v1/rewards/{name}/evaluate/batch"),
        ),
    ),
)  # fmt: skip


LIST_SECONDS = 1.0
"""How old a list of what is deployed may be."""
STORE_SECONDS = 5.0
"""How long a list is waited for."""


class ServedEvaluators:
    """The evaluators of a store as `Handler` asks them.

    Args:
        store: an open one; it is closed with this.
        workers: processes per evaluator.
        limits: what one request may take.
        sandbox: as in `EvaluatorPool`.
        max_waiting: completions that may wait for one evaluator; more are refused with 429.
    """

    def __init__(
        self,
        store: Store,
        *,
        workers: int = 8,
        limits: SandboxLimits = LIMITS,
        sandbox: str = "auto",
        max_waiting: int = 8192,
    ) -> None:
        self._store = store
        self.shown = store.shown
        self._live = LiveEvaluators(store, workers=workers, limits=limits, sandbox=sandbox)
        self._max_waiting = max_waiting
        self.waiting: dict[str, int] = {}
        self._listed: list[dict[str, Any]] = []
        self._at = -LIST_SECONDS
        self._listing: asyncio.Task[list[dict[str, Any]]] | None = None
        self._problem = ""

    async def deployed(self) -> Sequence[Mapping[str, Any]]:
        """What is deployed, at most a second old; Refused (503) while the store cannot be read."""
        if time.monotonic() - self._at >= LIST_SECONDS:
            try:  # whoever comes meanwhile waits for the same list: an older one may name another target
                await asyncio.wait_for(asyncio.shield(self._look()), STORE_SECONDS)
            except (StoreError, asyncio.TimeoutError) as error:
                raise self._unreadable(error) from error
        return self._listed

    def _look(self) -> asyncio.Task[list[dict[str, Any]]]:
        """The list that is being read, begun if it is not."""
        if self._listing is None:
            self._listing = asyncio.ensure_future(asyncio.to_thread(self._live.list))
            self._listing.add_done_callback(self._looked)
        return self._listing

    def _looked(self, listing: asyncio.Task[list[dict[str, Any]]]) -> None:
        self._listing = None
        if not listing.cancelled() and listing.exception() is None:
            self._listed, self._at, self._problem = listing.result(), time.monotonic(), ""

    async def score(self, evaluator_id: str, asks: Sequence[Ask], seconds: float) -> list[Outcome[float]]:
        """The outcomes of the asks, in their order.

        Raises:
            Refused: there is no such evaluator (404), no room for the asks (429), or no sandbox or store (503).
        """
        waiting = self.waiting.get(evaluator_id, 0)
        if waiting + len(asks) > self._max_waiting:
            what = f"{waiting} conversations are waiting for {evaluator_id} already; at most {self._max_waiting} may."
            raise Refused(429, "busy", what, retry_after=1.0)
        places = [place for place, ask in enumerate(asks) if not ask.problem]
        found = [failed("invalid_item", ask.problem, "data") for ask in asks]
        self.waiting[evaluator_id] = waiting + len(asks)
        try:
            payloads = [payload_of(asks[place]) for place in places]
            results = await self._live.evaluate_batch(evaluator_id, payloads, seconds)
        except UnknownEvaluator as error:  # whose message is for the owner of the store: it says where that is
            what = f"There is no evaluator {evaluator_id!r:.80}. GET /v1/evaluations lists them."
            raise Refused(404, "unknown_evaluator", what) from error
        except StoreError as error:
            raise self._unreadable(error) from error
        except (SandboxUnavailable, DamagedBundle) as error:
            logger.error("evaluator {}: {}", evaluator_id, error)
            what = f"The evaluator {evaluator_id} cannot be run on this server; its log says why."
            raise Refused(503, "unavailable", what, retry_after=30.0) from error
        finally:
            left = self.waiting[evaluator_id] - len(asks)
            if left:
                self.waiting[evaluator_id] = left
            else:
                del self.waiting[evaluator_id]
        for place, result in zip(places, results, strict=True):
            found[place] = scored_of_result(result)
        return found

    def problem(self) -> str:
        """Why the store cannot be read, as it was last seen; empty while it can."""
        if self._problem:  # who hears of it may send no request that would find the store well again
            self._look()
        return self._problem

    async def close(self) -> None:
        """End the processes and close the store."""
        await self._live.close()
        self._store.close()

    def _unreadable(self, error: Exception) -> Refused:
        logger.error("{}", str(error) or f"the store {self.shown} does not answer")
        self._problem = "the store of evaluators cannot be read"
        return Refused(503, "store_unavailable", "The store of evaluators cannot be read now.", retry_after=5.0)


def payload_of(ask: Ask) -> dict[str, Any]:
    """What the function of an evaluator gets."""
    messages = ask.messages
    original = ask.original_messages
    if messages is None:
        asked = _turns(ask.prompt, "user")
        messages = [*asked, *_turns(ask.completion, "assistant")]
        original = original or asked
    payload: dict[str, Any] = {"messages": messages, "ground_truth": ask.reference}
    if original is not None:
        payload["original_messages"] = original
    if ask.tools is not None:
        payload["tools"] = ask.tools
    if ask.row:
        payload["kwargs"] = dict(ask.row)
    return payload


def _turns(said: str | list[dict[str, Any]] | None, speaker: str) -> list[dict[str, Any]]:
    if said is None:
        return []
    return [{"role": speaker, "content": said}] if isinstance(said, str) else said
