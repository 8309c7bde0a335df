"""Functions held against golden files of calls: of training and its monitors, of environments, of
adapters, of audits, and small ones from all over.
"""

from __future__ import annotations

import dataclasses
from array import array
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from rm_gallery import (
    BasePointWiseReward,
    BaseStepWiseReward,
    ChatMessage,
    DataSample,
    RewardDimensionWithScore,
    RewardRegistry,
    RewardResult,
    Unscored,
)
from rm_gallery.core.data.labels import number_of, verdict_of
from rm_gallery.core.stats.labelled import mended, verdict_numbers
from rm_gallery.core.text.canonical import turn_text
from rm_gallery.core.utils.file import deeper, split_samples
from rm_gallery.core.utils.identity import digest
from rm_gallery.core.utils.names import nearest, unknown_name
from rm_gallery.core.utils.shown import cut, told_apart
from rm_gallery.envs import reward_helpers
from rm_gallery.gallery.benchmarks.judgements import sign, worst
from rm_gallery.gallery.benchmarks.rewardbench2 import margin_term
from rm_gallery.gallery.rm.trained import features as cut_up
from rm_gallery.gallery.rm.trained.features import CueList, cue_list, sentences, tokenize
from rm_gallery.integrations import trl_data
from rm_gallery.integrations.openrlhf import response_of
from rm_gallery.integrations.slime import post_process
from rm_gallery.integrations.verl import verl_overrides
from rm_gallery.report.gate import QualityGate
from rm_gallery.study.attacks import DRESSES, NO_ANSWERS, Material, from_samples, injections, relaid
from rm_gallery.study.summary import Summary
from rm_gallery.study.winrate_figures import ComparedRows, flips_of
from rm_gallery.train import signals
from rm_gallery.train.bradley_terry import prompt_key
from rm_gallery.train.signals import spread_phrase
from rm_gallery.train.training_log import read_training_log
from rm_gallery.train.watch import watch
from tests.golden import golden
from tests.train.preferences import labelled
from tests.train.runs import run


def spread_of(**given: Any) -> dict[str, Any]:
    found = signals.spread_of(**given)
    return {
        **dataclasses.asdict(found),
        "frac_reward_zero_std": found.frac_reward_zero_std,
        "hint": found.hint,
    }


def changes(function: Callable[..., Any]) -> Callable[..., Any]:
    """The fields and properties of a link or a shift."""

    def told(**given: Any) -> Any:
        found = function(**given)
        own = found and {**dataclasses.asdict(found), "sure": found.sure}
        return own and {
            **own,
            **({"change": found.change} if isinstance(found, signals.Shift) else {}),
        }

    return told


def counted(cues: CueList, text: str) -> dict[str, int]:
    tokens = tokenize(text)
    counts = cues.count(tokens, sentences(tokens)[0]).tolist()
    return {name: count for name, count in zip(cues.names, counts, strict=True) if count}


def cues(
    text: str, notation: list[str] | None = None, names: list[str] | None = None
) -> dict[str, int]:
    found = counted(cue_list() if notation is None else CueList("\n".join(notation)), text)
    return found if names is None else {name: found.get(name, 0) for name in names}


def features(
    answer: str, names: list[str] | None = None, conversation: list[Any] | None = None
) -> dict[str, float]:
    """The named figures, or all that are not 0."""
    spoken = [ChatMessage.model_validate(turn) for turn in conversation or ()]
    dense = cut_up.answer_features(cut_up.read_conversation(spoken), answer).dense
    found = dict(zip(cut_up.dense_names(), dense.tolist(), strict=True))
    return {
        name: value for name, value in found.items() if (value if names is None else name in names)
    }


def same_prompt(one: list[dict[str, str]], other: list[dict[str, str]]) -> bool:
    keys = [
        prompt_key(labelled([ChatMessage.model_validate(m) for m in turns], []))
        for turns in (one, other)
    ]
    return keys[0] == keys[1]


ALONE = ("group_advantages", "component_advantages", "weighted_sum", "whitened", "clipped")
test_training = golden.calls(
    "train",
    {
        **{name: getattr(signals, name) for name in ALONE},
        "spread_of": spread_of,
        "link": changes(signals.link),
        "length_bias": changes(signals.length_bias),
        "shift": changes(signals.shift),
        "group_means": lambda values, names: signals.group_means(
            np.array(values, float), np.array(names, int)
        ),
        "tokenize": tokenize,
        "sentences": lambda text: sentences(tokenize(text)),
        "hashed_features": lambda text: cut_up.hashed_features(tokenize(text)),
        "cues": cues,
        "features": features,
        "same_prompt": same_prompt,
    },
)


def test_every_method_of_advantages_has_a_line() -> None:
    path = golden.HERE / "train" / "group_advantages.jsonl"
    assert {line.get("method", "std") for _, line in golden.lines(path)} >= set(signals.METHODS)


def looked_over(log: Any, **options: Any) -> dict[str, Any]:
    found = watch(log, **options)
    return {
        "findings": [
            [f.severity, f.kind, *f.components, f.text, [e["row"] for e in f.examples]]
            for f in found.findings
        ],
        "moved": {
            name: each and [each.early, each.late, *each.interval]
            for name, each in found.moved.items()
        },
        "by_length": {
            name: each and [each.correlation, *each.interval]
            for name, each in found.by_length.items()
        },
        "windows": [found.n_completions, found.n_groups, *found.steps, *found.early, *found.late],
        "notes": found.notes,
    }


def runs(of: dict[str, Any], turned: str = "", **options: Any) -> dict[str, Any]:
    """A made-up run; the component that is turned is a penalty: the same number below 0."""
    return looked_over(
        [
            {name: -value if name == turned else value for name, value in row.items()}
            for row in run(**of)
        ],
        **options,
    )


def charts(values: dict[str, Any], steps: int, **options: Any) -> dict[str, Any]:
    """Of each chart its first and last value, between which it goes straight, and how far it swings
    from step to step.
    """
    rows = [
        {
            "step": at,
            **{
                n: a + (b - a) * at / (steps - 1) + swing * (-1) ** at
                for n, (a, b, swing) in values.items()
            },
        }
        for at in range(steps)
    ]
    return looked_over(rows, **options)


def rows(rows: list[Any], **options: Any) -> dict[str, Any]:
    log = read_training_log(rows, **options)
    arrays = {"steps": log.steps, "lengths": log.lengths, "total": log.total}
    return {
        **{name: None if column is None else column.tolist() for name, column in arrays.items()},
        "components": {name: column.tolist() for name, column in log.components.items()},
        "about": [log.name, log.unit, log.has_steps, log.left_out],
        "prompts": log.prompts,
        "texts": log.texts,
        "charts": {name: [list(point) for point in points] for name, points in log.charts.items()},
    }


def phrases(early: list[str], late: list[str], times: int = 10, filling: Any = ("", 0)) -> Any:
    """The texts stand there over and over, so many times in all; "…" is the filling, so many times
    over.
    """
    word, many = filling
    texts = [
        [text.replace("…", word * many) for text in (side * times)[:times]]
        for side in (early, late)
    ]
    is_late = np.repeat([False, True], times)
    found = spread_phrase([*texts[0], *texts[1]], ~is_late, is_late)
    return found and [*found[:3], found[3].astype(int).tolist()]


def groups(given: list[Any]) -> dict[str, Any]:
    """Groups of rewards, each so many steps long, one a step."""
    of = [rewards for rewards, times in given for _ in range(times)]
    found = looked_over(
        [
            {"step": at, "prompt": f"q{at}", "completion": "x", "right": reward}
            for at, each in enumerate(of)
            for reward in each
        ]
    )
    return {"findings": [finding[1] for finding in found["findings"]], "windows": found["windows"]}


test_watch = golden.calls(
    "watch", {"groups": groups, "runs": runs, "charts": charts, "rows": rows, "phrases": phrases}
)


def helper(name: str) -> Callable[..., Any]:
    def call(**given: Any) -> Any:
        if how := given.get("canonicalize"):
            given["canonicalize"] = lambda each: getattr(str, how)(each.strip())
        return getattr(reward_helpers, name)(**given)

    return call


HELPERS = {name: helper(name) for name in reward_helpers.__all__}
test_helpers_of_compute_reward = golden.calls("envs", HELPERS)


def test_every_helper_has_golden_lines() -> None:
    assert {path.stem for path in (golden.HERE / "envs").glob("*.jsonl")} == set(HELPERS)


class Length(BasePointWiseReward):
    """The length of the answer, 0 to 10; no score for an empty one."""

    score_range: tuple[float | None, float | None] = (0.0, 10.0)

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        output = sample.output[0]
        text = (
            output.steps[-1].text
            if self.kind == "stepwise" and output.steps
            else output.answer.text
        )
        if not text:
            raise Unscored("nothing there", reason="empty")
        return RewardResult(
            name=self.name,
            details=[RewardDimensionWithScore(name=self.name, score=float(len(text)))],
        )


class Shortness(Length):
    """The same, and less is better."""

    higher_is_better = False


class Lifted(Length):
    """The same, in a range that does not begin at 0."""

    score_range = (2.0, 10.0)


class Unbounded(Length):
    """The same, without bounds."""

    score_range = (None, None)


class StepLength(BaseStepWiseReward):
    """The length of the last step; no score for an empty one."""

    _evaluate = Length._evaluate


class StepShortness(StepLength):
    """The same, and less is better."""

    higher_is_better = False


REWARDS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (Length, Shortness, Lifted, Unbounded, StepLength, StepShortness)
}


def sample(answers: list[Any], turns: int = 1) -> DataSample:
    """Answers are texts, [text, preference], {"steps": [[text, right], …]} or outputs."""
    outputs: list[Any] = []
    for answer in answers:
        if isinstance(answer, dict) and "steps" in answer and isinstance(answer["steps"][0], list):
            steps = [
                {
                    "role": "assistant",
                    "content": text,
                    "label": {} if right is None else {"correctness": right},
                }
                for text, right in answer["steps"]
            ]
            outputs.append({"answer": {"role": "assistant", "content": "x"}, "steps": steps})
        elif isinstance(answer, dict):
            outputs.append(answer)
        else:
            text, preference = answer if isinstance(answer, list) else (answer, None)
            label = {"preference": preference} if preference else {}
            outputs.append({"answer": {"role": "assistant", "content": text, "label": label}})
    asked = [{"role": "user", "content": "问?"}] * turns
    return DataSample.model_validate({"unique_id": "s", "input": asked, "output": outputs})


def data_set(make: Callable[..., trl_data.TrainingRows]) -> Callable[..., Any]:
    def made(samples: list[Any], reward: str | None = None, turns: int = 1, **settings: Any) -> Any:
        given = [sample(each, turns) for each in samples]
        rows = make(given, REWARDS.get(reward or "", reward), **settings)
        return {"rows": rows, "left_out": dict(rows.left_out)}

    return made


def normalised(rewards: list[float | None], size: int, key: str | None = None, **args: Any) -> Any:
    """What slime trains on, of samples in groups of a size; None has no score."""
    usual = {
        "advantage_estimator": "grpo",
        "rewards_normalization": True,
        "grpo_std_normalization": True,
    }
    batch = {"n_samples_per_prompt": size, "rollout_batch_size": len(rewards) // max(1, size)}
    samples = [
        SimpleNamespace(
            get_reward_value=lambda args, value=value: 0.0 if value is None else value,
            metadata={"reward_status": "failed: error"}
            if value is None
            else {}
            if value > 1
            else None,
        )
        for value in rewards
    ]
    return post_process(SimpleNamespace(**{**usual, **batch, **args}), samples)


test_integrations = golden.calls(
    "integrations",
    {
        "response_of": response_of,
        "turn_text": turn_text,
        "verl_overrides": verl_overrides,
        "post_process": normalised,
        "preference_rows": data_set(trl_data.preference_rows),
        "unpaired_rows": data_set(trl_data.unpaired_rows),
        "step_rows": data_set(trl_data.step_rows),
    },
)


def numbered(text: str, fewest: int) -> dict[str, Any]:
    """Of rows such as "1x 0 -": a verdict (- for none), followed by x where there is a label."""
    rows = text.split()
    verdicts = np.array([np.nan if row[0] == "-" else float(row[0]) for row in rows])
    found = verdict_numbers(verdicts, np.array([row.endswith("x") for row in rows]), fewest=fewest)
    return {"numbers": found, "mended": mended(verdicts, found)}


def flips(played: list[int]) -> dict[str, Any]:
    """One row that was judged in both orders, beside one that is blank and one that nobody judged."""
    compared = ComparedRows(np.arange(3), columns=2)
    compared.orders[0, 0] = played
    return flips_of(compared)


def held_out(gaps: list[list[float]]) -> Any:
    """Gaps, each so many times over: on how many the curve was fitted, and what it makes of the
    first gap.
    """
    given = [gap for gap, times in gaps for _ in range(int(times))]
    found = Summary(gaps=array("d", given), clusters=array("q", range(len(given)))).held_out()
    return found and [found.n_fitted, round(float(found.map([abs(given[0])])[0]), 3)]


test_small_functions = golden.calls(
    "small",
    {
        "cut": lambda text, times, limit: cut(text * times, limit),
        "digest": digest,
        "deeper": lambda value: [deeper(value, most) for most in range(5)],
        "flips_of": flips,
        "held_out": held_out,
        "label_of": lambda cell: (verdict_of(cell, ("gpt", "llama")) or (None,))[0],
        "margin_term": margin_term,
        "missed": lambda least, gate=None, **figures: dict(
            QualityGate(least, **gate or {}).missed(figures)
        ),
        "nearest": nearest,
        "number_of": number_of,
        "sign": sign,
        "split_samples": lambda size, ratio: [
            len(part) for part in split_samples(range(size), ratio)
        ],
        "told_apart": lambda value, limit: told_apart(
            value, limit, lambda number, digits: f"{number:.{digits}f}", 1
        ),
        "unknown_name": unknown_name,
        "verdict_numbers": numbered,
        "worst": worst,
    },
)


def material(question: str, good: str, worse: str, reference: str | None = None) -> Material:
    """A question with a good and a worse answer, as an audit asks about it."""
    given = sample([[good, "chosen"], [worse, "rejected"]])
    given.input[0].content, given.metadata = question, {"reference": reference}
    return from_samples([given], "golden")[0][0]


def injected(reward: str, answer: str, place: int = 1, **params: Any) -> dict[str, str]:
    """The answer with each injection."""
    return {
        each.name: each.on(answer)
        for each in injections(RewardRegistry.create(reward, **params), place)
    }


test_audit = golden.calls(
    "audit",
    {
        "dressed": lambda dress, answer, turn, of: DRESSES[dress][1](material(**of), answer, turn),
        "no_answers": lambda name, of: NO_ANSWERS[name][1](material(**of)),
        "relaid": relaid,
        "injected": injected,
    },
)
