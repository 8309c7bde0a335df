"""Benchmark samples for tests: loaded, judged by a server that knows the truth, or judged by hand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from rm_gallery import DataSample, create_loader
from rm_gallery.core.data.schema import preference_of
from rm_gallery.gallery.benchmarks.judgements import (
    Candidate,
    Judged,
    Judgement,
    Pair,
    Status,
    Verdict,
)
from tests.support.judge_server import make_query_oracle


def load_samples(path: Path, data_source: str, **config: Any) -> list[DataSample]:
    settings = {"path": str(path), **config}
    return (
        create_loader(name=data_source, data_source=data_source, config=settings).run().datasamples
    )


def oracle_of(samples: Iterable[DataSample]) -> dict[str, dict[str, Any]]:
    """What a judge server has to know to tell the chosen answers."""
    return make_query_oracle(
        (
            s.query_text(),
            [o.answer.text for o in s.output],
            [preference_of(o) == "chosen" for o in s.output],
        )
        for s in samples
    )


_prompts = count()


def by_hand(
    scores: Sequence[float | None],
    chosen: Sequence[bool] = (True, False),
    *,
    subset: str = "",
    status: Status = "scored",
    sample_id: str = "s",
    games: tuple[Verdict, Verdict] | None = None,
    prompt: str | None = None,
    **metadata: Any,
) -> Judged:
    """A sample with these scores and labels, of a prompt of its own or the one named.

    `games` are the verdicts on a pair as given and swapped, +1 for output 0.
    """
    labels = [{"preference": "chosen" if label else "rejected"} for label in chosen]
    outputs = [
        {"answer": {"role": "assistant", "content": "x", "label": label}} for label in labels
    ]
    about = {**metadata, **({"subset": subset} if subset else {})}
    asked = [{"role": "user", "content": f"prompt {next(_prompts)}" if prompt is None else prompt}]
    sample = DataSample.model_validate(
        {"unique_id": sample_id, "input": asked, "output": outputs, "metadata": about}
    )
    judgements = [Judgement(Candidate(place), score=score) for place, score in enumerate(scores)]
    if games is not None:
        first, second = games
        judgements.append(Judgement(Pair(0, 1), verdict=first))
        judgements.append(Judgement(Pair(1, 0), verdict=None if second is None else -second))
    return Judged(sample, judgements, status)
