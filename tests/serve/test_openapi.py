"""What schemathesis finds when it throws at the server all that its OpenAPI description allows, and
what it does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from rm_gallery import EvaluateResult, MetricResult, reward_function
from tests.support.reward_server import RewardServer

schemathesis: Any = pytest.importorskip("schemathesis")
EXAMPLES = 3
"""Requests of each kind per route."""
ON_PURPOSE = {503, 504}
"""No score in a format that has no word for it, and no time: said on purpose, with a code."""


@reward_function
def reads_all(
    messages: list[Any], ground_truth: Any = None, tools: Any = None, **kwargs: Any
) -> EvaluateResult | None:
    """A reward that looks at everything it is given."""
    text = "".join(message.text for message in messages)
    calls = [call.function.name for message in messages for call in message.tool_calls or ()]
    if "0" in text:
        raise ValueError(f"a zero in {text!r}")
    if not text and not calls:
        return None
    length = MetricResult(
        score=len(text) + len(repr((ground_truth, tools, sorted(kwargs)))), reason=text[:20]
    )
    return EvaluateResult(score=1.0, reason=text, metrics={"length": length, text[:5]: length})


@pytest.fixture(scope="module")
def server() -> Iterator[RewardServer]:
    with RewardServer({"it": reads_all.reward()}, max_body=200_000, deadline=5.0) as running:
        yield running


@pytest.fixture(scope="module")
def schema(server: RewardServer) -> Any:
    return schemathesis.openapi.from_url(f"{server.url}/openapi.json")


@pytest.mark.long("a server process")
@pytest.mark.parametrize("mode", ["positive", "negative"])
def test_no_request_breaks_the_server(schema: Any, mode: str) -> None:
    from schemathesis import checks

    checked = [
        checks.not_a_server_error, checks.response_schema_conformance, checks.status_code_conformance,
        checks.content_type_conformance,
    ]  # fmt: skip
    answered: dict[str, set[int]] = {}

    def ask(case: Any) -> None:
        if "name" in (case.path_parameters or {}):
            case.path_parameters["name"] = "it"
        reply = case.call()
        answered.setdefault(case.operation.label, set()).add(reply.status_code)
        case.validate_response(
            reply, checks=checked[1:] if reply.status_code in ON_PURPOSE else checked
        )

    quick = settings(
        max_examples=EXAMPLES, deadline=None, database=None, derandomize=True, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    operations = [found.ok() for found in schema.get_all_operations()]
    # one codec reads a format at all its places: what is right goes to the short path, what is
    # wrong to the reward's own, where it has one; what takes nothing can be given nothing wrong
    there = {each.path for each in operations}
    own = {path for path in there if path.startswith("/v1/rewards/")}
    short = {path for path in there if f"/v1/rewards/{{name}}{path}" in own}
    left_out = short if mode == "negative" else {f"/v1/rewards/{{name}}{path}" for path in short}
    asked = [
        each
        for each in operations
        if each.path not in left_out
        and "{id}/" not in each.path
        and (mode == "positive" or (each.method == "post" and each.path != "/seed_session"))
    ]
    assert len(asked) >= 14
    for operation in asked:
        quick(
            given(case=operation.as_strategy(generation_mode=schemathesis.GenerationMode(mode)))(
                ask
            )
        )()
    assert len(answered) == len(asked)
    assert 500 not in set().union(*answered.values())
