"""The application: every format and every list mounted behind one door, with an OpenAPI description
that is true.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from functools import cache, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel

from rm_gallery._version import __version__
from rm_gallery.core.model.transport import Json
from rm_gallery.core.utils.errors import MissingExtra
from rm_gallery.serve import decisions, hosted, nemo_gym, trainers
from rm_gallery.serve.access_log import AccessLog, Logged
from rm_gallery.serve.door import (
    Found,
    Read,
    Receive,
    RequestPipeline,
    Scope,
    ServeSettings,
    request_id_of,
)
from rm_gallery.serve.formats import NATIVE, Codec
from rm_gallery.serve.formats import read as read_body
from rm_gallery.serve.handler import Handler
from rm_gallery.serve.listen import answer_status, health_reply, process_owned
from rm_gallery.serve.ors import OrsEnvironments, Tasks
from rm_gallery.serve.policy import Send, guarded
from rm_gallery.serve.tokens import TokenFile

if TYPE_CHECKING:
    from fastapi import FastAPI, Request
    from fastapi.responses import Response
    from fastapi.routing import APIRoute


FORMATS = (*trainers.FORMATS, *hosted.FORMATS, *decisions.FORMATS)
"""Every format beside the server's own."""


CODECS: tuple[Codec, ...] = (
    *(
        replace(
            each,
            name=each.name.replace("reward", "outcome"),
            path=each.path.replace("/v1/rewards/{name}", "/v1/evaluations/{id}/outcome"),
            summary=each.summary.replace("a reward", "a deployed evaluator"),
        )
        for each in NATIVE
    ),
    *(codec for each in FORMATS for codec in each.codecs()),
)
"""Their codecs, one for every path, and the server's own format for evaluators."""


Answer = Callable[[Scope, Receive, Send], Awaitable[None]]
Replies = Mapping[int | str, Json]


class ErrorDetail(BaseModel):
    """Why a request was not answered."""

    code: str
    message: str
    request_id: str


class ErrorReply(BaseModel):
    """The body of every reply that is no answer."""

    error: ErrorDetail


class Health(BaseModel):
    """Whether the server works, and what does not."""

    status: Literal["ok", "unhealthy", "closing"]
    problems: list[str]


class RewardEntry(BaseModel):
    """A reward that is offered."""

    name: str
    kind: str
    score_range: tuple[float | None, float | None]
    higher_is_better: bool


class RewardList(BaseModel):
    """The rewards that are offered."""

    rewards: list[RewardEntry]


class EvaluationList(BaseModel):
    """The evaluators that are deployed."""

    evaluations: list[Json]


REFUSALS: dict[int | str, Json] = {
    status: {"model": ErrorReply, "description": what}
    for status, what in {
        400: "The body is no JSON, or nested too deep.",
        401: "A token is missing or not known.",
        403: "The token lacks the scope.",
        404: "There is no such reward or evaluator.",
        408: "The body took too long to arrive.",
        413: "The body is too large.",
        422: "The body does not fit the format.",
        429: "Too many requests; come again after Retry-After seconds.",
        503: "The server is about to end.",
    }.items()
}


LISTED: Replies = {status: REFUSALS[status] for status in (401, 403, 429, 503)}
"""Of a list, which takes no body."""


@cache
def _mouth() -> type[APIRoute]:
    """The class of routes whose description is FastAPI's and whose requests go to the door at once."""
    from fastapi.routing import APIRoute

    class Mouth(APIRoute):
        async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
            described: Any = self.endpoint
            right = scope["method"] in (self.methods or ())
            await (described.answer if right else super().handle)(scope, receive, send)

    return Mouth


def create_app(
    handler: Handler,
    settings: ServeSettings | None = None,
    codecs: Sequence[Codec] | None = None,
    tokens: TokenFile | None = None,
    tasks: Tasks | None = None,
) -> FastAPI:
    """The application that serves a handler's rewards and evaluators.

    Args:
        handler: what is served; it is closed when the application ends.
        settings: limits.
        codecs: the formats that are spoken; all there are by default.
        tokens: who may ask; None lets everybody who can connect.
        tasks: what the rewards are environments of the Open Reward Standard over, as `read_tasks`
            gives it; None for none.

    Raises:
        MissingExtra: FastAPI is not installed.
        ConfigError: there are tasks and no reward.
    """
    try:
        from fastapi import FastAPI
        from fastapi.responses import JSONResponse
    except ImportError as error:
        raise MissingExtra("fastapi", "serve", "The server") from error

    settings = settings or ServeSettings()
    log = None if settings.access_log is None else AccessLog(settings.access_log)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with process_owned(door) if app.state.owns_process else nullcontext():
            yield
        await handler.close()
        if log is not None:
            log.close()

    class Application(FastAPI):
        """Around all there is, FastAPI's own replies to errors included, so that no reply is
        without the policy.
        """

        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "http":
                scope["path"] = nemo_gym.OF_ROLLOUT.sub("", scope["path"])
            await super().__call__(scope, receive, guarded(send))

    app = Application(
        title="RM-Gallery rewards",
        version=__version__,
        description=(
            "Scores of completions by rewards and deployed evaluators. Unscored and failed are "
            "never a 0."
        ),
        lifespan=lifespan,
        docs_url=None,  # those load scripts from other machines
        redoc_url=None,
        openapi_url=None,  # that asks for no token
    )
    door = app.state.door = RequestPipeline(handler, settings, tokens)
    app.state.owns_process = False
    if log is not None:
        app.add_middleware(Logged, log=log)
    for codec in (*NATIVE, *CODECS) if codecs is None else codecs:
        _mount_codec(app, codec, door)
    _mount_lists(app, door)
    _mount_gym(app, door)
    if tasks is not None:
        _mount_environments(app, OrsEnvironments(door, tasks))

    @app.exception_handler(404)
    @app.exception_handler(405)
    async def other(request: Request, error: Any) -> Response:
        request_id = request_id_of(dict(request.scope["headers"])).decode()
        headers = {**(error.headers or {}), "X-Request-Id": request_id}
        code, message = "not_found", str(error.detail)
        if error.status_code == 405:
            code, message = "method_not_allowed", f"This path takes {headers['Allow']}."
        detail = {"code": code, "message": message, "request_id": request_id}
        return JSONResponse({"error": detail}, error.status_code, headers)

    return app


_ANYWHERE = inspect.Parameter.POSITIONAL_OR_KEYWORD


def _mount(
    app: FastAPI,
    path: str,
    answer: Answer,
    replies: Replies = REFUSALS,
    *,
    method: str = "GET",
    body: type[BaseModel] | None = None,
    example: Any = None,
    fields: Mapping[str, tuple[Any, Any]] = MappingProxyType({}),
    **described: Any,
) -> None:
    """Add a route that `answer` answers, described by its body, its replies, and by type and
    meaning the `fields` of query and header. Without a `name` it has the last part of its path.
    """

    async def endpoint() -> None:
        """Never called: `answer` is."""

    parameters = [
        inspect.Parameter(name, _ANYWHERE, annotation=str) for name in re.findall(r"{(\w+)}", path)
    ]
    if body is not None:
        parameters.append(inspect.Parameter("body", _ANYWHERE, annotation=body))
    for name, (kind, given) in fields.items():
        parameters.append(
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=given)
        )
    if example is not None:
        shown = {"content": {"application/json": {"example": example}}}
        described["openapi_extra"] = {"requestBody": shown}
    endpoint.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what FastAPI reads
    endpoint.__doc__ = None
    endpoint.answer = answer  # type: ignore[attr-defined]
    described = {"name": path.rpartition("/")[2], **described}
    app.router.add_api_route(
        path, endpoint, responses=dict(replies), methods=[method],
        operation_id=described["name"], route_class_override=_mouth(), **described,
    )  # fmt: skip


def _mount_codec(app: FastAPI, codec: Codec, door: RequestPipeline) -> None:
    """Add a codec's route, described by its models."""
    from fastapi import Query

    # a format that has no word for a missing score is refused in our words, whatever the reason
    wordless = codec.scaled or "on_error" in codec.query or codec.response_model is None
    late = {
        "model": ErrorReply if wordless else codec.response_model,
        "description": "Out of time.",
    }
    _mount(
        app,
        codec.path,
        partial(door.answer, codec),
        {**REFUSALS, 504: late},
        method="POST",
        body=codec.request_model,
        example=codec.request_example,
        fields={
            name: (kind | None, Query(default=None, description=meaning))
            for name, (kind, meaning) in codec.query.items()
        },
        name=codec.name,
        summary=codec.summary or None,
        response_model=codec.response_model,
    )


def _mount_gym(app: FastAPI, door: RequestPipeline) -> None:
    """Add what NeMo-Gym asks beside /verify."""

    async def aggregate_metrics(scope: Scope, receive: Receive, send: Send) -> None:
        async def found() -> Found:
            body = read_body(nemo_gym.AggregateRequest, await door.body(scope, receive))
            return 200, nemo_gym.aggregated(body.verify_responses)

        await door.show(found, "evaluate", scope, receive, send)

    _mount(
        app, "/seed_session", partial(door.show, lambda: (200, {}), "evaluate"), method="POST",
        summary="Begin a rollout of NeMo-Gym: nothing is kept of it.",
    )  # fmt: skip
    _mount(
        app, "/reverify_mode", partial(door.show, lambda: (200, "stateless"), "read"),
        summary="Tell NeMo-Gym that a rollout may be verified again.", response_model=str,
    )  # fmt: skip
    _mount(
        app, "/aggregate_metrics", aggregate_metrics, method="POST",
        summary="NeMo-Gym's figures over what was verified.", response_model=nemo_gym.AggregateReply,
        body=nemo_gym.AggregateRequest, example=nemo_gym.AGGREGATE_EXAMPLE,
    )  # fmt: skip


def _mount_environments(app: FastAPI, environments: OrsEnvironments) -> None:
    """Add the routes of the Open Reward Standard."""
    from fastapi import Header

    session = {"sid": (str, Header(alias="X-Session-ID"))}
    for path, route, answer in environments.routes():
        _mount(
            app,
            path,
            answer,
            method=route.method,
            body=route.body,
            fields=session if route.session else {},
            name=f"ors{path.replace('{env}', 'of').replace('/', '_')}",
            summary=route.summary,
        )


def _mount_lists(app: FastAPI, door: RequestPipeline) -> None:
    """Add what is read: health, metrics, what is offered, and the description of all."""
    from fastapi.responses import PlainTextResponse

    handler = door.handler

    def health() -> Found:
        return health_reply(door.closing, door.problems())

    def rewards() -> Found:
        fields = ("kind", "score_range", "higher_is_better")
        listed = [
            {"name": name, **{field: getattr(reward, field) for field in fields}}
            for name, reward in sorted(handler.rewards.items())
        ]
        return 200, {"rewards": listed}

    async def evaluations() -> Found:
        deployed = [] if handler.evaluators is None else await handler.evaluators.deployed()
        return 200, {"evaluations": deployed}

    def metrics() -> Found:
        return 200, door.metrics.exposed(handler)

    def docs() -> Found:
        from rm_gallery.serve.view_pages import page_text

        return 200, page_text("openapi", **app.openapi()).encode("utf-8", "replace")

    def listed(path: str, read: Read, replies: Replies = LISTED, **described: Any) -> None:
        page = path == "/docs"
        _mount(app, path, partial(door.show, read, "read", page=page), replies, **described)

    app.state.status = partial(answer_status, door, health, metrics)
    listed("/openapi.json", lambda: (200, app.openapi()), {}, include_in_schema=False)
    listed("/docs", docs, {}, include_in_schema=False)
    listed(
        "/v1/rewards", rewards, summary="The rewards that are offered.", response_model=RewardList
    )
    listed(
        "/v1/evaluations", evaluations, summary="The evaluators that are deployed.",
        response_model=EvaluationList,
    )  # fmt: skip
    listed(
        "/metrics", metrics, summary="Counters in Prometheus' text format.",
        response_class=PlainTextResponse,
    )  # fmt: skip
    _mount(
        app,
        "/health",
        partial(door.show, health, None),
        {503: {"model": Health, "description": "It does not work, or is about to end."}},
        summary="Whether the server works; needs no token.",
        response_model=Health,
    )
