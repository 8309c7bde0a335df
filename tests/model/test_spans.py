"""OpenTelemetry spans of runs and calls, seen by the exporter of a provider that was set."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from rm_gallery import (
    OpenaiLLM,
    RewardRegistry,
    RewardResult,
)
from tests.faults.material import make_samples
from tests.reward.rewards import AsyncRule
from tests.support.children import run_python
from tests.support.judge_server import JudgeServer


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    provider, exporter = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    yield exporter
    provider.shutdown()


def test_calls_stand_in_their_run_and_the_run_in_what_began_it(spans: InMemorySpanExporter) -> None:
    with JudgeServer("fixed:<score>3</score>", in_process=True) as server:
        llm = OpenaiLLM("judge-1", base_url=server.base_url, cache=False, max_attempts=1)
        reward = RewardRegistry.create("base_helpfulness_pointwise", llm=llm, channel="text")
        with trace.get_tracer("test").start_as_current_span("training step"):
            reward.evaluate_batch(make_samples(2), progress=False)
        server.set(faults={"server_error": 1.0})
        reward.evaluate_batch(make_samples(1), progress=False)
        port = int(server.base_url.rsplit(":", 1)[1].split("/")[0])
    ended: list[Any] = list(spans.get_finished_spans())
    calls = [span for span in ended if span.name == "chat judge-1"]
    first, second = (span for span in ended if span.name.startswith("rm_gallery.run"))
    (step,) = (span for span in ended if span.name == "training step")
    assert first.parent.span_id == step.context.span_id and second.parent is None
    assert {span.parent.span_id for span in calls[:8]} == {first.context.span_id} and len(
        calls
    ) == 12
    about = calls[0].attributes
    assert about["gen_ai.operation.name"] == "chat" and about["gen_ai.request.model"] == "judge-1"
    assert (about["server.address"], about["server.port"]) == ("127.0.0.1", port)
    assert (
        about["gen_ai.usage.input_tokens"] > 0
        and about["rm_gallery.cached"] is False
        and "error.type" not in about
    )
    assert first.attributes["rm_gallery.calls"] == 8 and first.attributes["rm_gallery.samples"] == 2
    broken = calls[-1]
    assert (
        broken.attributes["error.type"] == "ProviderError"
        and broken.status.status_code is trace.StatusCode.ERROR
    )
    said = str([(span.attributes, span.events, span.status.description) for span in calls[:8]])
    assert "plus 5" not in said, "prompts and replies stay where they are"


class Outer(AsyncRule):
    async def _evaluate(self, sample: Any, **kwargs: Any) -> RewardResult:
        await AsyncRule(name="inner").async_evaluate_batch([sample], progress=False)
        return await super()._evaluate(sample)


def test_a_run_inside_a_run_stands_in_it(spans: InMemorySpanExporter) -> None:
    Outer(name="outer").evaluate_batch(make_samples(1)[:1], progress=False)
    ended = {span.name: span for span in spans.get_finished_spans()}
    inner, outer = ended["rm_gallery.run inner"], ended["rm_gallery.run outer"]
    assert inner.parent is not None and inner.parent.span_id == outer.context.span_id


@pytest.mark.long("much work")
def test_without_a_provider_nothing_is_imported(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom rm_gallery import RewardRegistry\n"
        "RewardRegistry.get('length_baseline')().evaluate_batch([])\n"
        "print([name for name in sys.modules if 'opentelemetry' in name])"
    )
    done = run_python("-c", code, cwd=tmp_path)
    assert done.stdout.strip() == "[]", done.stderr
    assert sys.modules["opentelemetry.trace"] is trace
