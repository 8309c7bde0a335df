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
from rm_gallery.integrations.scoring import NoScore
from tests.trainers.programs.rewards_of_tests import Sometimes

logging.getLogger("langfuse").setLevel(logging.CRITICAL)


def run_of(row: dict[str, Any]) -> tuple[Run, Example]:
    now = datetime.now(timezone.utc)
    asked = {"question": row["prompt"]}
    ids = [uuid.uuid4() for _ in range(3)]
    run = Run(
        id=ids[0], name="app", start_time=now, run_type="chain", inputs=asked, outputs={"answer": row["completion"]},
        trace_id=ids[0], dotted_order=""
    )  # fmt: skip
    return run, Example(
        id=ids[1], inputs=asked, outputs={"answer": row["reference"]}, dataset_id=ids[2], created_at=now
    )


def langsmith(evaluator: Any, row: dict[str, Any]) -> Any:
    try:
        found = run_evaluator(evaluator).evaluate_run(*run_of(row))
    except NoScore as error:
        return str(error)
    return [[one.key, one.score, one.comment] for one in found["results"]]


async def alangsmith(evaluator: Any, row: dict[str, Any]) -> Any:
    found = await run_evaluator(evaluator).aevaluate_run(*run_of(row))
    return [[one.key, one.score] for one in found["results"]]


async def langfuse(evaluator: Any, row: dict[str, Any]) -> Any:
    found = await _run_evaluator(
        evaluator, input=row["prompt"], output=row["completion"], expected_output=row["reference"], metadata=None
    )
    return [[type(one).__name__, one.name, one.value, one.comment] for one in found]


async def main(request: dict[str, Any]) -> dict[str, Any]:
    rows = request["rows"]
    outcomes = [{"prompt": "q", "completion": text, "reference": "4"} for text in ("four", "none", "fail")]
    smith = langsmith_evaluator("math_verify_reward", reference="answer")
    fuse = langfuse_evaluator("math_verify_reward")
    return {
        "langsmith": [await asyncio.to_thread(langsmith, smith, row) for row in rows],
        "alangsmith": [await alangsmith(smith, row) for row in rows],
        "langsmith outcomes": [
            await asyncio.to_thread(langsmith, langsmith_evaluator(Sometimes), row) for row in outcomes
        ],
        "langfuse": [await langfuse(fuse, row) for row in rows],
        "langfuse outcomes": [await langfuse(langfuse_evaluator(Sometimes), row) for row in outcomes],
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(main(json.loads(sys.stdin.read())))) + "\n")
