"""Every door to a reward: how samples go in, and what the caller reads of each answer. The material
of `test_siblings.py`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple

import rm_gallery
from rm_gallery import (
    BaseReward,
    ConfigError,
    DataSample,
    GraderError,
    GraderRank,
    GradingRunner,
    Unscored,
)
from rm_gallery.core.graders.base import GraderResult
from rm_gallery.core.reward.outputs import said_of
from rm_gallery.integrations.scoring import RowScorer
from rm_gallery.serve.client import RewardClient
from tests.integrations.adapters import ADAPTERS, Adapter, Row, one_by_one, waited
from tests.support.command import command

Scores = list[float | None]


class Read(NamedTuple):
    """What a caller reads of one sample."""

    scores: Scores
    """By answer, None where there is no score."""
    causes: list[str | None] | frozenset[str | None] | None = None
    """By answer, or all of the sample where it does not say which answer's they are; None where the
    door has no word for them.
    """


class Ask(NamedTuple):
    """What a door is asked."""

    reward: BaseReward
    name: str
    """Its registered name."""
    samples: Sequence[DataSample]
    folder: Path
    """An empty one, for files."""
    url: str
    """A server of the reward."""


class Door(NamedTuple):
    """`call` gives what is read of each sample, and raises ConfigError for a reward that it does
    not take.
    """

    call: Callable[[Ask], list[Read]]
    blame: Literal["off", "probe"] = "off"
    """Whether it finds out of a missing score if the answer is to blame."""
    groups: bool = True
    """Whether it hands over the answers to one prompt together; else it refuses rewards that
    compare them.
    """
    steps: bool = True
    """Whether it takes rewards of steps; else it is a benchmark's, of whole answers."""


DOORS: dict[str, Door] = {}


def read(reward: BaseReward, sample: DataSample) -> Read:
    """What an evaluated sample says."""
    outcomes = [said_of(reward, output) for output in sample.output]
    return Read([outcome.value for outcome in outcomes], [outcome.cause for outcome in outcomes])


# -- methods of a reward ---------------------------------------------------------------------------


def _each(method: str) -> Callable[[Ask], list[Read]]:
    def call(ask: Ask) -> list[Read]:
        return [
            read(ask.reward, waited(getattr(ask.reward, method)(sample))) for sample in ask.samples
        ]

    return call


def _all(method: str) -> Callable[[Ask], list[Read]]:
    async def listed(stream: Any) -> list[DataSample]:
        return [sample async for sample in stream]

    def call(ask: Ask) -> list[Read]:
        found = getattr(ask.reward, method)(iter(ask.samples))
        done = asyncio.run(listed(found)) if hasattr(found, "__aiter__") else list(waited(found))
        return [read(ask.reward, sample) for sample in done]

    return call


def _best(method: str) -> Callable[[Ask], list[Read]]:
    """The best answers come first, those without a score not at all: put back in their places by
    their texts.
    """

    def call(ask: Ask) -> list[Read]:
        found = []
        for sample in ask.samples:
            try:
                done = waited(getattr(ask.reward, method)(sample, n=len(sample.output)))
            except Unscored:
                found.append(Read([None] * len(sample.output)))
                continue
            kept = {
                output.answer.text: ask.reward.score_of_output(output) for output in done.output
            }
            found.append(Read([kept.get(output.answer.text) for output in sample.output]))
        return found

    return call


def _scores(method: str) -> Callable[[Ask], list[Read]]:
    def call(ask: Ask) -> list[Read]:
        done = waited(getattr(ask.reward, method)(iter(ask.samples)))
        return [Read([one.value for one in each], [one.cause for one in each]) for each in done]

    return call


METHODS: dict[str, Door] = {
    **{name: Door(_scores(name)) for name in ("score_batch", "async_score_batch")},
    **{name: Door(_each(name)) for name in ("evaluate", "async_evaluate")},
    **{
        name: Door(_all(name))
        for name in (
            "evaluate_batch",
            "async_evaluate_batch",
            "evaluate_stream",
            "async_evaluate_stream",
        )
    },
    **{name: Door(_best(name)) for name in ("best_of_n", "async_best_of_n")},
}
DOORS |= METHODS


# -- tables, graders, the command line -------------------------------------------------------------


def pairs(samples: Sequence[DataSample]) -> list[dict[str, Any]]:
    """Rows of the layout `preferences`: the first answer is the chosen one."""
    return [
        {
            "id": sample.unique_id,
            "prompt": sample.query_text(),
            "chosen": texts[:1],
            "rejected": texts[1:],
        }
        for sample in samples
        for texts in ([output.answer.text for output in sample.output],)
    ]


def evaluated(ask: Ask) -> list[Read]:
    """`rm_gallery.evaluate`."""
    seen: dict[str, Read] = {}

    def note(judged: Any, credit: float | None) -> None:
        seen[judged.sample.unique_id] = read(ask.reward, judged.sample)

    rm_gallery.evaluate(ask.reward, pairs(ask.samples), on_judged=note, progress=False)
    return [seen[sample.unique_id] for sample in ask.samples]


DOORS["rm_gallery.evaluate"] = Door(evaluated, steps=False)


def _graded(reward: BaseReward, found: Sequence[GraderResult]) -> Read:
    rank = found[0]
    if isinstance(rank, GraderRank):
        own = rank.metadata.get("scores")
        n = len(rank.rank)
        shares = [
            (sum(o > r for o in rank.rank) + (rank.rank.count(r) - 1) / 2) / max(1, n - 1)
            for r in rank.rank
        ]
        return Read(list(own or shares), [None] * n)
    errors = [each if isinstance(each, GraderError) else None for each in found]
    return Read(
        [None if error else each.score for each, error in zip(found, errors, strict=True)],
        [error.cause if error else None for error in errors],
    )


def runner(method: str) -> Callable[[Ask], list[Read]]:
    """A `GradingRunner`, with a row per answer, or one per prompt for a reward that compares."""

    def call(ask: Ask) -> list[Read]:
        rows: list[dict[str, Any]] = []
        for sample in ask.samples:
            texts = [output.answer.text for output in sample.output]
            rows += (
                [{"query": sample.query_text(), "responses": texts}]
                if ask.reward.compares
                else [
                    {"query": sample.query_text(), "response": text, "steps": [text]}
                    for text in texts
                ]
            )
        going = getattr(GradingRunner({"it": ask.reward}, show_progress=False), method)(rows)
        if hasattr(going, "__aiter__"):

            async def listed() -> list[Any]:
                return [row async for row in going]

            going = asyncio.run(listed())
        done = waited(going)
        found = done["it"] if isinstance(done, dict) else [row["it"] for row in done]
        if ask.reward.compares:
            return [
                _graded(
                    ask.reward, [one] if isinstance(one, GraderRank) else [one] * len(sample.output)
                )
                for one, sample in zip(found, ask.samples, strict=True)
            ]
        answers = iter(found)
        return [
            _graded(ask.reward, [next(answers) for _ in sample.output]) for sample in ask.samples
        ]

    return call


RUNNER = {
    f"GradingRunner.{name}": Door(runner(name)) for name in ("run", "arun", "stream", "astream")
}
DOORS |= RUNNER


def _lines(path: Path, rows: Sequence[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def _written(ask: Ask, *arguments: str) -> list[Read]:
    """What a command's run folder holds; a refusal is a ConfigError."""
    done = command(*arguments, "--out", str(ask.folder / "run"), "--no-cache")
    if done.code == 2:
        raise ConfigError(done.err)
    records = map(
        json.loads, (ask.folder / "run" / "samples.jsonl").read_text(encoding="utf-8").splitlines()
    )
    known = {record["prompt"]: record for record in records}
    found = []
    for sample in ask.samples:
        record = known[sample.query_text()]
        found.append(
            Read(record["scores"], frozenset(issue[3] for issue in record.get("issues", ())))
        )
    return found


def cli_eval(ask: Ask) -> list[Read]:
    return _written(ask, "eval", ask.name, _lines(ask.folder / "rows.jsonl", pairs(ask.samples)))


def _table(ask: Ask) -> tuple[str, list[str]]:
    """A file with a column per place, and the columns; rows with fewer answers than the others are
    left out by the caller.
    """
    rows = [
        {
            "prompt": s.query_text(),
            **{f"a{at}": output.answer.text for at, output in enumerate(s.output)},
        }
        for s in ask.samples
    ]
    return _lines(ask.folder / "table.jsonl", rows), [
        f"a{at}" for at in range(max(len(s.output) for s in ask.samples))
    ]


def cli_score(ask: Ask) -> list[Read]:
    path, columns = _table(ask)
    answers = [word for column in columns for word in ("--answer", column)]
    return _written(ask, "score", ask.name, path, "--prompt", "prompt", *answers)


def cli_winrate(ask: Ask) -> list[Read]:
    path, (a, b, *others) = _table(ask)
    others = [word for column in others for word in ("--other", column)]
    return _written(
        ask,
        "winrate",
        ask.name,
        path,
        "--prompt",
        "prompt",
        "--a",
        a,
        "--b",
        b,
        *others,
    )


CLI = {
    "eval": Door(cli_eval, steps=False),
    "score": Door(cli_score),
    "winrate": Door(cli_winrate, steps=False),
}
DOORS |= {f"rm-gallery {name}": door for name, door in CLI.items()}


# -- rows, as trainers and servers have them -------------------------------------------------------


def rows_of(samples: Sequence[DataSample]) -> list[Row]:
    return [
        Row(sample.query_text(), output.answer.text)
        for sample in samples
        for output in sample.output
    ]


def _by_sample(
    samples: Sequence[DataSample], scores: Sequence[Any], causes: Sequence[str | None] | None = None
) -> list[Read]:
    found, start = [], 0
    for sample in samples:
        end = start + len(sample.output)
        found.append(
            Read(list(scores[start:end]), None if causes is None else list(causes[start:end]))
        )
        start = end
    return found


def served(ask: Ask) -> list[Read]:
    items = [{"prompt": row.prompt, "completion": row.completion} for row in rows_of(ask.samples)]
    outcomes = RewardClient(ask.url).evaluate_batch(ask.name, items)
    return _by_sample(ask.samples, [one.value for one in outcomes], [one.cause for one in outcomes])


DOORS["HTTP server"] = Door(served, "probe")


def row_scorer(method: str) -> Callable[[Ask], list[Read]]:
    def call(ask: Ask) -> list[Read]:
        rows = rows_of(ask.samples)
        scorer = RowScorer(ask.reward)
        outcomes = waited(
            getattr(scorer, method)([row.prompt for row in rows], [row.completion for row in rows])
        )
        return _by_sample(
            ask.samples, [one.value for one in outcomes], [one.cause for one in outcomes]
        )

    return call


DOORS |= {f"RowScorer.{name}": Door(row_scorer(name)) for name in ("score_rows", "ascore_rows")}


def adapted(adapter: Adapter) -> Callable[[Ask], list[Read]]:
    """A trainer's adapter: a whole batch where it takes one, else row by row."""

    def call(ask: Ask) -> list[Read]:
        rows = rows_of(ask.samples)
        settings: dict[str, Any] = {"on_error": "raise"} if adapter.silent else {}
        made = adapter.make(ask.reward, **adapter.given, **settings)
        found = (
            waited(adapter.batch(made, rows)) if adapter.batch else one_by_one(adapter, made, rows)
        )
        return _by_sample(
            ask.samples, [None if each is None else adapter.score(each) for each in found]
        )

    return call


ONE_BY_ONE = frozenset({"openrlhf.openrlhf_reward"})
"""Adapters that take a batch and may still not see all answers to one prompt."""


NONE = -9.0
"""What stands for a missing score where a hook has to give numbers for all of a group."""


async def _group(made: Any, adapter: str, rows: list[Row]) -> list[Any]:
    """The group hook of benchmax' contract."""
    ids = [f"r{at}" for at in range(len(rows))]
    if adapter.endswith("3"):
        rollouts = [
            SimpleNamespace(rollout_id=i, messages=row.talk, example_args=row.columns)
            for i, row in zip(ids, rows, strict=True)
        ]
        found = await made.compute_group_rewards(rollouts)
        return [found[i] for i in ids]
    if adapter.endswith("1"):
        prompts = {"prompt": rows[0].prompt}
        return list(
            await made.compute_group_reward(
                ids, [row.completion for row in rows], [row.solution for row in rows], **prompts
            )
        )
    return list(
        await made.compute_group_reward(
            ids, [row.talk for row in rows], [row.columns for row in rows]
        )
    )


def grouped(name: str, adapter: Adapter) -> Callable[[Ask], list[Read]]:
    """Benchmax: a hook for rollouts by themselves, and one for groups."""

    def call(ask: Ask) -> list[Read]:
        if not ask.reward.compares:
            return adapted(adapter)(ask)
        made = adapter.make(ask.reward, on_error=NONE, **adapter.given)
        groups = [asyncio.run(_group(made, name, rows_of([sample]))) for sample in ask.samples]
        return [
            Read([None if value["r"] == NONE else value["r"] for value in values])
            for values in groups
        ]

    return call


DOORS |= {
    name: Door(grouped(name, adapter), "probe")
    if name.startswith("benchmax.")
    else Door(
        adapted(adapter),
        "probe" if adapter.chooses else "off",
        groups=adapter.batch is not None and name not in ONE_BY_ONE,
    )
    for name, adapter in ADAPTERS.items()
}
