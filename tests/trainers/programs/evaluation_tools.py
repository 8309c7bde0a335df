"""Runs where LangSmith and Langfuse are installed: their own code calls our evaluators."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import uuid
from datetime import datetime, timezone
from typing import Any

from langfuse.experiment import _run_evaluator
from langsmith.evaluation import run_evaluator
from langsmith.schemas import Example, Run

from rm_gallery.integrations.callables import langfuse_evaluator, langsmith_evaluator
from rm_gallery.integrations.causes import NoScore
from tests.integrations.adapters import Moody

logging.getLogger("langfuse").setLevel(logging.CRITICAL)


def run_of(row: list[Any]) -> tuple[Run, Example]:
    prompt, completion, reference = row
    now, ids = datetime.now(timezone.utc), [uuid.uuid4() for _ in range(3)]
    asked, said = {"question": prompt}, {"answer": completion}
    run = Run(
        id=ids[0], name="app", start_time=now, run_type="chain", inputs=asked, outputs=said, trace_id=ids[0], dotted_order=""
    )  # fmt: skip
    return run, Example(
        id=ids[1], inputs=asked, outputs={"answer": reference}, dataset_id=ids[2], created_at=now
    )


def langsmith(evaluator: Any, row: list[Any]) -> Any:
    try:
        found = run_evaluator(evaluator).evaluate_run(*run_of(row))
    except NoScore as error:
        return str(error)
    return [[one.key, one.score, one.comment] for one in found["results"]]


async def langfuse(evaluator: Any, row: list[Any]) -> Any:
    prompt, completion, reference = row
    found = await _run_evaluator(
        evaluator, input=prompt, output=completion, expected_output=reference, metadata=None
    )
    return [[type(one).__name__, one.name, one.value, one.comment] for one in found]


async def main(rows: list[Any]) -> dict[str, Any]:
    outcomes = [["q", text, "4"] for text in ("four", "none", "fail")]
    smith = langsmith_evaluator("math_verify_reward", reference="answer")
    fuse = langfuse_evaluator("math_verify_reward")
    awaited = [await run_evaluator(smith).aevaluate_run(*run_of(row)) for row in rows]
    moody = langsmith_evaluator(Moody)
    return {
        "langsmith": [(await asyncio.to_thread(langsmith, smith, row))[0][1] for row in rows],
        "alangsmith": [found["results"][0].score for found in awaited],
        "langsmith outcomes": [await asyncio.to_thread(langsmith, moody, row) for row in outcomes],
        "langfuse": [(await langfuse(fuse, row))[0][1:3] for row in rows],
        "langfuse outcomes": [await langfuse(langfuse_evaluator(Moody), row) for row in outcomes],
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(main(json.loads(sys.stdin.read())))) + "\n")
