"""The application: every format mounted through one door, the lists, health, and an OpenAPI description that is true."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from rm_gallery import __version__
from rm_gallery.core.utils.errors import MissingExtra
from rm_gallery.serve.asking import Codec, Refused
from rm_gallery.serve.codecs import CODECS
from rm_gallery.serve.door import Door, Receive, Scope, Send, refuse, request_id_of
from rm_gallery.serve.handler import Handler
from rm_gallery.serve.native import NATIVE
from rm_gallery.serve.settings import ServeSettings

if TYPE_CHECKING:
    from fastapi import FastAPI, Request
    from fastapi.responses import Response
    from fastapi.routing import APIRoute


class ErrorDetail(BaseModel):
    """Why a request was not answered."""

    code: str
    message: str
    request_id: str


class ErrorReply(BaseModel):
    """The body of every reply that is no answer."""

    error: ErrorDetail


REFUSALS: dict[int | str, dict[str, Any]] = {
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
        503: "The server is draining.",
    }.items()
}


@cache
def _mouth() -> type[APIRoute]:
    """The class of routes whose description is FastAPI's and whose requests go to the door at once."""
    from fastapi.routing import APIRoute

    class Mouth(APIRoute):
        async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
            described: Any = self.endpoint
            codec, door = described.codec, described.door
            if scope["method"] == codec.method:
                await door.answer(codec, scope, receive, send)
            else:
                refused = Refused(405, "method_not_allowed", f"This path takes {codec.method}.")
                await refuse(send, refused, request_id_of(dict(scope["headers"])))

    return Mouth


def create_app(
    handler: Handler, settings: ServeSettings | None = None, codecs: Sequence[Codec] | None = None
) -> FastAPI:
    """The application that serves a handler's rewards and evaluators; without `codecs` in every format there is."""
    try:
        from fastapi import FastAPI
        from fastapi.responses import JSONResponse
    except ImportError as error:
        raise MissingExtra("fastapi", "serve", "The server") from error
    settings = settings or ServeSettings()
    app = FastAPI(
        title="RM-Gallery rewards",
        version=__version__,
        description="Scores of completions by rewards and deployed evaluators. Unscored and failed are never a 0.",
    )
    door = Door(handler, settings)
    app.state.door = door
    for codec in (*NATIVE, *CODECS) if codecs is None else codecs:
        _mount(app, codec, door)

    @app.get("/health", summary="Whether the server takes requests.")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/v1/rewards", summary="The rewards that are offered.")
    async def rewards() -> dict[str, Any]:
        found = [
            {
                "name": name,
                "kind": reward.kind,
                "score_range": reward.score_range,
                "higher_is_better": reward.higher_is_better,
            }
            for name, reward in sorted(handler.rewards.items())
        ]
        return {"rewards": found}

    @app.get("/v1/evaluations", summary="The evaluators that are deployed.")
    async def evaluations() -> dict[str, Any]:
        return {"evaluations": list(handler.evaluators.deployed()) if handler.evaluators is not None else []}

    @app.exception_handler(404)
    @app.exception_handler(405)
    async def other(request: Request, error: Any) -> Response:
        request_id = request_id_of(dict(request.scope["headers"])).decode()
        code = "not_found" if error.status_code == 404 else "method_not_allowed"
        detail = {"code": code, "message": str(error.detail), "request_id": request_id}
        headers = {**(error.headers or {}), "X-Request-Id": request_id}
        return JSONResponse({"error": detail}, error.status_code, headers)

    return app


def _mount(app: FastAPI, codec: Codec, door: Door) -> None:
    """Add a codec's route, described by its models."""
    parameters = [
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=str)
        for name in re.findall(r"{(\w+)(?::\w+)?}", codec.path)
    ]
    if codec.request_model is not None:
        parameters.append(
            inspect.Parameter("body", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=codec.request_model)
        )
    from fastapi import Query

    for name, (kind, meaning) in codec.query.items():
        given = Query(default=None, description=meaning)
        parameters.append(
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind | None, default=given)
        )

    async def described() -> None:
        """Never called: the door answers."""

    described.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what FastAPI reads
    described.__doc__ = None
    described.codec, described.door = codec, door  # type: ignore[attr-defined]
    extra: dict[str, Any] = {}
    if codec.request_example is not None and codec.request_model is not None:
        extra = {"requestBody": {"content": {"application/json": {"example": codec.request_example}}}}
    app.router.add_api_route(
        codec.path,
        described,
        methods=[codec.method],
        name=codec.name,
        operation_id=codec.name,
        summary=codec.summary or None,
        response_model=codec.response_model,
        responses={**REFUSALS, 504: {"model": codec.response_model or ErrorReply, "description": "Out of time."}},
        openapi_extra=extra or None,
        route_class_override=_mouth(),
    )
