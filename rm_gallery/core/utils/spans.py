"""OpenTelemetry spans of runs and of calls to models, where the program that uses the library has
set a tracer provider.

Nothing is imported for it and nothing leaves but by that provider: without one a span costs a look
into `sys.modules`. Prompts and replies are no part of a span. Names follow the semantic conventions
for generative AI.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any
from urllib.parse import urlsplit


def _trace() -> Any:
    """OpenTelemetry's module where a provider was set, else None."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None or isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return None
    return trace


class RunSpan:
    """The span of a run, from where it is made until it is ended; `context` is where what belongs
    to it is told to stand.
    """

    def __init__(self, name: str, attributes: Mapping[str, Any], inside: Any = None) -> None:
        """Begin it inside that of the run around it, or the current span of whoever begins the run;
        nothing without a provider.
        """
        trace = _trace()
        self._span = self.context = None
        if trace is not None:
            self._span = trace.get_tracer("rm_gallery").start_span(
                name, inside, attributes=_known(attributes)
            )
            self.context = trace.set_span_in_context(self._span)

    def end(self, attributes: Mapping[str, Any]) -> None:
        """End it with what came of the run."""
        if self._span is not None:
            self._span.set_attributes(_known(attributes))
            self._span.end()


_SILENT: Any = nullcontext(lambda reply: None)


def call_span(
    model: str, endpoint: Callable[[], str], payload: Mapping[str, Any], inside: Any
) -> AbstractContextManager[Callable[[Any], None]]:
    """A span around a call to a model, inside that of its run; the function it gives takes the
    reply.
    """
    trace = _trace()
    return _SILENT if trace is None else _traced(trace, model, endpoint, payload, inside)


@contextmanager
def _traced(
    trace: Any, model: str, endpoint: Callable[[], str], payload: Mapping[str, Any], inside: Any
) -> Iterator[Callable[[Any], None]]:
    where = urlsplit(endpoint())
    operation = (
        "chat" if "messages" in payload else "embeddings" if "input" in payload else "decision"
    )
    asked = {
        "gen_ai.operation.name": operation,
        "gen_ai.request.model": model,
        "gen_ai.request.temperature": payload.get("temperature"),
        "gen_ai.request.max_tokens": payload.get("max_tokens"),
        "server.address": where.hostname,
        "server.port": where.port,
    }
    tracer, kind = trace.get_tracer("rm_gallery"), trace.SpanKind.CLIENT
    with tracer.start_as_current_span(
        f"{operation} {model}", inside, kind, _known(asked), record_exception=False
    ) as span:

        def tell(reply: Any) -> None:
            usage = getattr(reply, "usage", None)
            attributes = {
                "gen_ai.response.model": getattr(reply, "model", None) or None,
                "gen_ai.usage.input_tokens": getattr(usage, "input_tokens", None),
                "gen_ai.usage.output_tokens": getattr(usage, "output_tokens", None),
                "rm_gallery.cached": getattr(reply, "cached", None),
            }
            span.set_attributes(_known(attributes))

        try:
            yield tell
        except BaseException as error:
            span.set_attribute("error.type", type(error).__name__)
            raise


def _known(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if value is not None}
