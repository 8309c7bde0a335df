"""Samples as data sets for TRL's trainers: preference pairs, unpaired judgements, and steps, from
labels or from a reward.

    rows = preference_rows(samples, "math_verify_reward")
    trainer = DPOTrainer(..., train_dataset=datasets.Dataset.from_list(rows))

Samples without a score give no row; `rows.left_out` counts them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, product
from typing import Any, Literal, NamedTuple

from rm_gallery.core.data.conversation import dict_of, messages_of
from rm_gallery.core.data.schema import DataOutput, DataSample, preference_of
from rm_gallery.core.reward.resolve import resolve
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.reward.run import as_sample
from rm_gallery.core.utils.errors import ConfigError, DataError
from rm_gallery.integrations.scoring import scored_of

Samples = Iterable[DataSample | dict[str, Any]]


class TrainingRows(list[dict[str, Any]]):
    """Rows for `datasets.Dataset.from_list`; `left_out` counts by reason the samples (of steps and
    unpaired: answers) that gave none.
    """

    def __init__(self) -> None:
        """Begin without rows."""
        super().__init__()
        self.left_out: Counter[str] = Counter()


class _ScoredAnswer(NamedTuple):
    output: DataOutput
    score: float | None
    """Larger is better, whatever the reward says; None without one."""
    why: str


def preference_rows(
    samples: Samples,
    reward: object = None,
    *,
    pairs: Literal["extremes", "all"] = "extremes",
    gap: float = 0.0,
    margin: bool = False,
    chat: bool = True,
    **building: Any,
) -> TrainingRows:
    """Rows of `prompt`, `chosen` and `rejected`, for DPOTrainer, RewardTrainer and CPO-like
    trainers.

    Args:
        samples: with several outputs each.
        reward: whose scores decide, as `resolve` takes it; without one the labels `preference`
            do, and every chosen output is paired with every rejected one.
        pairs: of scored outputs the best with the worst, or all that differ.
        gap: by how much scores must differ, in the reward's own unit; equal ones never make a pair.
        margin: add `margin`, the difference of the scores, which RewardTrainer takes into its loss.
        chat: prompts and completions as lists of messages; otherwise as texts, which only fits
            prompts of one user turn.
        **building: `llm`, `base_url` and `options` (of the run), and constructor fields of the
            reward.

    Raises:
        ConfigError: an option does not fit, or the reward cannot be built.
        DataError: `chat=False`, and a prompt is more than one user turn.
    """
    if pairs not in ("extremes", "all"):
        raise ConfigError(f"pairs is {pairs!r:.80}; give 'extremes' or 'all'.")
    if margin and reward is None:
        raise ConfigError(
            "margin is the difference of two scores, and labels have none: give a reward as well."
        )
    rows = TrainingRows()
    built, run = _reward_and_options(reward, building)
    for sample, answers, why in _scored_answers(samples, built, run):
        given = len(rows)
        ranked = _labelled(answers) if built is None else _ranked(answers, pairs, gap)
        for better, worse in ranked:
            row = {
                "prompt": _prompt(sample, chat),
                "chosen": _completion(sample, better, chat),
                "rejected": _completion(sample, worse, chat),
            }
            if row["chosen"] == row["rejected"]:
                why = "same text"
                continue
            if margin and better.score is not None and worse.score is not None:
                row["margin"] = better.score - worse.score
            rows.append(row)
        if len(rows) == given:
            rows.left_out[
                why or ("no preference label" if reward is None else "no difference")
            ] += 1
    return rows


def unpaired_rows(
    samples: Samples,
    reward: object = None,
    *,
    threshold: float | None = None,
    chat: bool = True,
    **building: Any,
) -> TrainingRows:
    """Rows of `prompt`, `completion` and `label` (whether the completion is desirable), for
    KTOTrainer.

    Args:
        samples: with any number of outputs each.
        reward: whose scores decide; without one the labels `preference` do.
        threshold: the score from which on (or down to which, where lower is better) a completion is
            desirable; the reward's own by default, else the middle of its range.
        chat: as in `preference_rows`, as is what is raised.
        **building: as in `preference_rows`.
    """
    rows = TrainingRows()
    built, run = _reward_and_options(reward, building)
    limit = _limit(built, threshold)
    for sample, answers, _ in _scored_answers(samples, built, run):
        for answer in answers:
            preference = preference_of(answer.output) if built is None else answer.score
            if preference is None:
                rows.left_out[answer.why or "no preference label"] += 1
                continue
            label = preference == "chosen" if isinstance(preference, str) else preference >= limit
            completion = _completion(sample, answer, chat)
            rows.append({"prompt": _prompt(sample, chat), "completion": completion, "label": label})
    return rows


def step_rows(
    samples: Samples, reward: object = None, *, threshold: float | None = None, **building: Any
) -> TrainingRows:
    """Rows of `prompt` (text), `completions` (texts of the steps) and `labels` (whether each is
    right), for PRM trainers.

    Steps come from the outputs; their label `correctness`, or a stepwise reward's score of at least
    `threshold`, says whether they are right. What follows the first step that nothing is known
    about is left off. Arguments as in `unpaired_rows`. TRL had such a trainer up to version 1.13.
    """
    rows = TrainingRows()
    built, run = _reward_and_options(reward, building)
    if built is not None and built.kind != "stepwise":
        raise ConfigError(f"{built.name} is {built.kind}; steps are scored by stepwise rewards.")
    limit = _limit(built, threshold)
    for sample, answers, _ in _scored_answers(samples, built, run):
        for answer in answers:
            completions: list[str] = []
            labels: list[bool] = []
            for step in answer.output.steps or ():
                known = (step.label or {}).get("correctness")
                if built is not None:
                    score = _raised(built, built.score_of(step.reward))
                    known = None if score is None else score >= limit
                if known is None:
                    break
                completions.append(step.text)
                labels.append(bool(known))
            if completions:
                prompt = "\n\n".join(message.text for message in sample.input)
                rows.append({"prompt": prompt, "completions": completions, "labels": labels})
            else:
                rows.left_out[
                    answer.why or ("no steps" if not answer.output.steps else "no step label")
                ] += 1
    return rows


# -- scores ----------------------------------------------------------------------------------------


def _reward_and_options(
    reward: object, building: dict[str, Any]
) -> tuple[BaseReward | None, dict[str, Any]]:
    """The reward, and the options of its run."""
    if reward is None:
        if building:
            raise ConfigError(
                f"Without a reward there is nothing to take {', '.join(sorted(building))}; leave "
                f"it out."
            )
        return None, {}
    llm, base_url, options = (building.pop(name, None) for name in ("llm", "base_url", "options"))
    run = {"progress": False} if options is None else {"options": options}
    return resolve(reward, building, llm, base_url), run


def _scored_answers(
    samples: Samples, built: BaseReward | None, run: dict[str, Any]
) -> Iterator[tuple[DataSample, list[_ScoredAnswer], str]]:
    """Samples with their answers and scores, and why where fewer than two have one."""
    for place, raw in enumerate(samples if built is None else built.evaluate_batch(samples, **run)):
        sample = raw if isinstance(raw, DataSample) else as_sample(raw, place)
        answers = [_scored_answer(built, output) for output in sample.output]
        unscored = [answer.why for answer in answers if answer.score is None]
        yield sample, answers, unscored[0] if len(answers) - len(unscored) < 2 and unscored else ""


def _scored_answer(built: BaseReward | None, output: DataOutput) -> _ScoredAnswer:
    if built is None:
        return _ScoredAnswer(output, None, "")
    outcome = scored_of(built, output)
    return _ScoredAnswer(output, _raised(built, outcome.value), outcome.code)


def _raised(reward: BaseReward, score: float | None) -> float | None:
    """A score of which more is better."""
    return score if score is None or reward.higher_is_better else -score


def _limit(reward: BaseReward | None, threshold: float | None) -> float:
    """The score from which on a completion is desirable, of which more is better."""
    if reward is None:
        return 0.0
    low, high = reward.score_range
    if threshold is None:
        threshold = reward.threshold
    if threshold is None:
        if low is None or high is None:
            raise ConfigError(
                f"{reward.name} has no bounded score range ({low}, {high}): give threshold=…."
            )
        threshold = (low + high) / 2
    return threshold if reward.higher_is_better else -threshold


def _labelled(answers: Sequence[_ScoredAnswer]) -> list[tuple[_ScoredAnswer, _ScoredAnswer]]:
    chosen, rejected = (
        [answer for answer in answers if preference_of(answer.output) == label]
        for label in ("chosen", "rejected")
    )
    return list(product(chosen, rejected))


def _ranked(
    answers: Sequence[_ScoredAnswer], pairs: str, gap: float
) -> list[tuple[_ScoredAnswer, _ScoredAnswer]]:
    known = [(answer.score, answer) for answer in answers if answer.score is not None]
    known.sort(key=lambda each: -each[0])
    if pairs == "extremes":
        known = [*known[:1], *known[1:][-1:]]
    return [
        (better, worse)
        for (high, better), (low, worse) in combinations(known, 2)
        if high > low and high - low >= gap
    ]


# -- texts and messages ----------------------------------------------------------------------------


def _prompt(sample: DataSample, chat: bool) -> Any:
    if chat:
        return [dict_of(message) for message in sample.input]
    if len(sample.input) != 1 or sample.input[0].role.value != "user":
        turns = ", ".join(message.role.value for message in sample.input) or "none"
        raise DataError(
            f"sample {sample.sample_id[:80]}: the prompt has these turns: {turns}; use chat=True."
        )
    return sample.input[0].text


def _completion(sample: DataSample, answer: _ScoredAnswer, chat: bool) -> Any:
    output = answer.output
    if not chat:
        return output.answer.text
    # turns with tools lead to an answer and belong to it; the steps of a solution are the answer's
    # own text once more
    if not output.is_trajectory:
        return [dict_of(output.answer)]
    return messages_of(sample, output)[len(sample.input) :]
