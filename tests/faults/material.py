"""Judged samples with a known verdict, a judge to ask, and runs over them, for tests of what may go
wrong.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from rm_gallery import (
    BaseReward,
    ChatMessage,
    DataOutput,
    DataSample,
    OpenaiLLM,
    RewardRegistry,
    RunOptions,
    Step,
)
from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.context import RunControl
from rm_gallery.core.model import client, transport
from rm_gallery.core.model.limits import RetryPolicy
from rm_gallery.core.reward.run import run_list
from tests.support.judge_server import JudgeServer, make_query_oracle

SHARES = {
    "rate_limit": 0.20, "server_error": 0.10, "drop_before_reply": 0.03, "drop_mid_body": 0.02, "nonsense": 0.05,
    "hang": 0.02,
}  # fmt: skip
"""Share of requests with each fault in the full matrix, here and in the benchmark."""


REWARD = "safety_listwise_reward"
ANSWERS = 4


def open_connections() -> int:
    """Connections held by all sessions of this process, idle ones included."""
    total = 0
    for session in list(transport._sessions.values()):
        connector = session.connector
        if connector is not None:
            idle = [
                protocol
                for kept in list(getattr(connector, "_conns", {}).values())
                for protocol, *_ in list(kept)
            ]
            taken = list(getattr(connector, "_acquired", ()))
            # one that is being made is held by a placeholder that has nothing to ask
            asked = [getattr(protocol, "is_connected", None) for protocol in (*idle, *taken)]
            total += sum(bool(ask()) for ask in asked if ask is not None)
    return total


def calls_in_flight() -> int:
    return sum(endpoint.in_flight for endpoint in list(client._shared.endpoints.values()))


def quick_retries(attempts: int = 6) -> RetryPolicy:
    """The library's retries with a tenth of its patience, the same waits in every run."""
    return RetryPolicy(max_attempts=attempts, base=0.05, cap=1.0, rng=random.Random(0))


def texts(number: int) -> list[str]:
    """Four answers to question `number`; which one is right changes from question to question."""
    values = [7 * number + 5 + (0 if k == number % ANSWERS else k + 1) for k in range(ANSWERS)]
    return [f"{7 * number} plus 5 is {value}." for value in values]


def make_samples(count: int, first: int = 0) -> list[DataSample]:
    """Additions with one right answer each; the same numbers give the same samples."""
    return [
        DataSample(
            unique_id=f"sum-{number}",
            input=[ChatMessage(content=f"What is {7 * number} plus 5?")],
            output=[DataOutput(answer=Step(content=text)) for text in texts(number)],
        )
        for number in range(first, first + count)
    ]


def truth(samples: Iterable[DataSample]) -> list[list[float | None]]:
    numbers = [int(sample.unique_id.removeprefix("sum-")) for sample in samples]
    return [[float(k == number % ANSWERS) for k in range(ANSWERS)] for number in numbers]


def oracle_for(samples: Sequence[DataSample]) -> dict[str, dict[str, Any]]:
    return make_query_oracle(
        (
            sample.input[0].text,
            [o.answer.text for o in sample.output],
            [score == 1.0 for score in scores],
        )
        for sample, scores in zip(samples, truth(samples), strict=True)
    )


def make_judge(
    url: str, *, timeout: float = 20.0, max_workers: int = 8, channel: str = "auto", **llm: Any
) -> BaseReward:
    """A reward that asks the judge at this URL; one call per sample."""
    model = OpenaiLLM("judge-1", base_url=url, timeout=timeout, **llm)
    return RewardRegistry.create(REWARD, llm=model, max_workers=max_workers, channel=channel)


@dataclass(frozen=True)
class Ran:
    samples: list[DataSample]
    control: RunControl
    seconds: float

    @property
    def scores(self) -> list[list[float | None]]:
        return scores_of(self.samples)

    @property
    def outcomes(self) -> Counter[tuple[str, str]]:
        """Samples by (status, reason); ("scored", "") for those with a verdict."""
        return outcomes_of(self.samples)

    @property
    def messages(self) -> set[str]:
        return {i.message for s in self.samples for o in s.output for i in o.answer.reward.issues}

    @property
    def causes(self) -> set[str | None]:
        return {i.cause for s in self.samples for o in s.output for i in o.answer.reward.issues}


def scores_of(samples: Iterable[DataSample]) -> list[list[float | None]]:
    return [[output.answer.reward.score for output in sample.output] for sample in samples]


def outcomes_of(samples: Iterable[DataSample]) -> Counter[tuple[str, str]]:
    """Samples by (status, reason); ("scored", "") for those with a verdict, ("lost", "") for those
    with nothing at all.
    """
    return Counter(_outcome(sample) for sample in samples)


def _outcome(sample: DataSample) -> tuple[str, str]:
    issues = {(i.status, i.reason) for o in sample.output for i in o.answer.reward.issues}
    if issues:
        return min(issues)
    return ("lost" if None in (o.answer.reward.score for o in sample.output) else "scored", "")


def run(
    reward: BaseReward,
    samples: Sequence[DataSample],
    *,
    retry: RetryPolicy | None = None,
    **options: Any,
) -> Ran:
    """One batch through the engine; `options` are those of a run."""
    control = RunControl(retry=retry)
    began = time.perf_counter()
    done = library_loop.drive(run_list(reward, samples, RunOptions(control=control, **options), {}))
    return Ran(done, control, time.perf_counter() - began)


def write_data(path: Path, count: int) -> Path:
    """The samples as a file that `rm-gallery eval` reads, with the right answer first."""
    with path.open("wb") as file:
        for number in range(count):
            answers = texts(number)
            right = answers.pop(number % ANSWERS)
            row = {
                "id": f"sum-{number}",
                "prompt": f"What is {7 * number} plus 5?",
                "chosen": [right],
            }
            file.write(orjson.dumps({**row, "rejected": answers, "subset": "Math"}) + b"\n")
    return path


def eval_arguments(data: Path, server: JudgeServer, folder: Path | None, *more: str) -> list[str]:
    """Arguments of `rm-gallery eval` that judge `data` with this server into this run folder."""
    endpoint = ["--llm", "judge-1", "--base-url", server.base_url, "--json"]
    kept = ["--out", str(folder)] if folder is not None else []
    return ["eval", REWARD, str(data), *endpoint, *kept, *more]


def records(folder: Path) -> list[dict[str, Any]]:
    """The lines of a run's results; every one of them has to be whole."""
    return [orjson.loads(line) for line in (folder / "results.jsonl").read_bytes().splitlines()]
