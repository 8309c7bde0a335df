"""What a reward is tried on: tasks with a completion that deserves full reward, completions with what is expected, and wrong texts."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from rm_gallery.core.data.conversation import sample_of_completion
from rm_gallery.core.data.load.readers import rows_in
from rm_gallery.core.data.schema import DataOutput, DataSample, Step
from rm_gallery.core.engine.options import RunOptions
from rm_gallery.core.reward.function import RewardFunction
from rm_gallery.core.reward.function_reward import load_module, split_target
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.runner.grading_runner import build_reward
from rm_gallery.core.utils.errors import ConfigError, DataError, Unscored
from rm_gallery.core.utils.file import seeded_positions
from rm_gallery.core.utils.models import copy_with, unknown_name
from rm_gallery.gallery.rm.alignment.harmlessness.refusal import refusal_in
from rm_gallery.gallery.rm.rule import known
from rm_gallery.integrations.scoring import scored_of
from rm_gallery.study.attacks import (
    REFUSAL,
    Injection,
    Truth,
    forged_answers,
    injections,
    mutations,
    others,
    statements,
    stuffed,
    text_of,
    with_text,
    wrong_texts,
)

OWN = ("prompt", "messages", "gold", "completions")
WORDS = ("full", "low", "unscored")
FORMS = (
    "Step by step, this is what comes out.\n<answer>{}</answer>",
    "Step by step, this is what comes out.\n\\boxed{{{}}}",
    "Step by step, this is what comes out.\n#### {}",
    "<think>Step by step, this is what comes out.</think>\n<answer>{}</answer>",
    "<think>Step by step, this is what comes out.</think>\n{}",
    "{}",
    "The answer is {}.",
)
"""How a right answer may have to be written; tried where a case says what is right and not how."""
BUILT_IN: tuple[tuple[str, str], ...] = (
    ("What is 17 + 25?", "42"),
    ("What is 9 times 8?", "72"),
    ("What is the capital of France?", "Paris"),
    ("法国的首都是哪里？", "巴黎"),
)
FILLER = "This point deserves further thought, and every aspect of it has been considered with great care."


class Expected(NamedTuple):
    """What a completion of the user's own should get."""

    lowest: float | None = None
    highest: float | None = None
    word: str = ""
    """`full`, `low` or `unscored`, in place of numbers."""

    def __str__(self) -> str:
        if self.word:
            return self.word
        if self.lowest == self.highest:
            return f"{self.lowest:g}"
        ends = ("at least", self.lowest), ("at most", self.highest)
        return " and ".join(f"{what} {end:g}" for what, end in ends if end is not None)


FULL = Expected(word="full")


class Written(NamedTuple):
    """A completion somebody wrote by hand."""

    name: str
    output: DataOutput
    expected: Expected | None


class Case(NamedTuple):
    """One task: the prompt and what is known about it (`sample`), and its completions."""

    name: str
    sample: DataSample
    gold: DataOutput | None
    written: tuple[Written, ...] = ()

    @property
    def truth(self) -> str:
        """The reference answer as text, the first of several; empty where there is none, or it is no short text."""
        return next(iter(self.references), "")

    @property
    def references(self) -> tuple[str, ...]:
        """Every reference answer that is a short text."""
        found = self.sample.reference() if self.gold is None else copy_with(self.sample, output=[self.gold]).reference()
        texts = [
            str(one).strip()
            for one in (found if isinstance(found, list | tuple) else [found])
            if isinstance(one, str | int | float)
        ]
        return tuple(text for text in texts if text and len(text) <= 200)


class Trial(NamedTuple):
    """One completion to try: of which kind it is, and what it should not get."""

    case: int
    kind: str
    output: DataOutput
    expected: Expected | None = None


# -- what is checked --------------------------------------------------------------------------------------------------------


def load_target(target: str) -> tuple[Any, Any]:
    """What a FILE, FILE:NAME or registered name stands for, and the file's own `CASES` (None without).

    Raises ConfigError when a file holds no reward, or several and none is named.
    """
    where, name = split_target(target)
    if not where.endswith(".py"):
        return target, None
    module = load_module(where)
    there = {key: value for key, value in vars(module).items() if _is_reward(value, module.__name__)}
    if not name:
        if len(there) != 1:
            held = f"it holds {', '.join(sorted(there))}" if there else "it holds none"
            kinds = "a class with compute_reward, a @reward_function or a reward class"
            raise ConfigError(f"{where}: say which reward is checked ({kinds}), as in {where}:NAME; {held}.")
        name = next(iter(there))
    if name not in there and not inspect.isfunction(getattr(module, name, None)):
        raise ConfigError(f"{target}: {unknown_name(f'reward in {where}', name, there)}")
    return getattr(module, name), getattr(module, "CASES", None)


def _is_reward(value: Any, module: str) -> bool:
    kind = value if isinstance(value, type) else type(value)
    if isinstance(value, RewardFunction):
        return bool(value.function.__module__ == module)
    hooks = any(callable(getattr(value, name, None)) for name in ("compute_reward", "compute_group_reward"))
    rewards = isinstance(value, BaseReward) or (isinstance(value, type) and issubclass(value, BaseReward))
    return (hooks or rewards) and (kind.__module__ == module or isinstance(value, BaseReward)) and not inspect.isabstract(kind)


# -- reading cases -----------------------------------------------------------------------------------------------------------


def read_cases(given: Any, reference: str | None = None) -> list[Case]:
    """Cases of a file (jsonl, csv, parquet, …) or of rows.

    A row holds `prompt` (text or messages), `gold` (a completion that deserves full reward: text or messages),
    `completions` (a list of texts, or of dicts with `completion`, `name` and `expect`), and the columns of the data set.

    Raises:
        DataError: a row does not fit; it is named.
        ConfigError: there is no row.
    """
    where = str(given) if isinstance(given, str | Path) else "cases"
    rows: Iterable[Any] = rows_in(Path(given)) if isinstance(given, str | Path) else given
    found = [_case(row, f"{where}, row {number}", number, reference) for number, row in enumerate(rows, 1)]
    if not found:
        raise ConfigError(f"{where}: no case found; give a row per task, with prompt, gold and the data set's columns.")
    return found


def _case(row: Any, where: str, number: int, reference: str | None) -> Case:
    if not isinstance(row, Mapping):
        raise DataError(f"{where}: expected a dict of columns, found {type(row).__name__}.")
    columns = {name: value for name, value in row.items() if name not in OWN}
    if reference is not None and reference not in columns:
        there = ", ".join(sorted(map(str, columns))) or "none"
        raise DataError(f"{where}: there is no column '{reference}' with the reference; the columns are: {there}.")
    truth = columns.get(reference) if reference is not None else columns.get("ground_truth", columns.get("reference"))
    prompt = row.get("prompt", row.get("messages"))

    def output(completion: Any) -> DataOutput:
        return sample_of_completion(prompt, completion, ground_truth=truth, row=columns).output[0]

    gold = None if row.get("gold") is None else output(row["gold"])
    sample = sample_of_completion(prompt, "", ground_truth=truth, row=columns, unique_id=f"case {number}")
    written = row.get("completions") or ()
    if isinstance(written, str | Mapping) or not isinstance(written, Sequence):
        raise DataError(f"{where}: completions is a {type(written).__name__}; it is a list of texts or of dicts.")
    own = tuple(_written(one, f"{where}, completion {place}", place, output) for place, one in enumerate(written, 1))
    return Case(f"case {number}", sample, gold, own)


def _written(one: Any, where: str, place: int, output: Callable[[Any], DataOutput]) -> Written:
    given = dict(one) if isinstance(one, Mapping) and "role" not in one else {"completion": one}
    for name in given:
        if name not in ("completion", "name", "expect"):
            raise DataError(f"{where}: {unknown_name('field', str(name), ('completion', 'name', 'expect'))}")
    if "completion" not in given:
        raise DataError(f"{where}: there is no field 'completion'; it holds {', '.join(given) or 'nothing'}.")
    name = str(given.get("name") or f"completion {place}")
    return Written(name, output(given["completion"]), _expected(given.get("expect"), where))


def _expected(given: Any, where: str) -> Expected | None:
    if given is None:
        return None
    if isinstance(given, str) and given in WORDS:
        return Expected(word=given)
    if isinstance(given, int | float):
        return Expected(float(given), float(given))
    if isinstance(given, Mapping) and given and set(given) <= {"at_least", "at_most"}:
        return Expected(given.get("at_least"), given.get("at_most"))
    raise DataError(
        f"{where}: expect is {given!r:.80}; it is a number, 'full', 'low', 'unscored', or a dict with at_least and at_most."
    )


def built_in_cases() -> list[Case]:
    """Four short questions with their answers."""
    return read_cases([{"prompt": prompt, "ground_truth": truth} for prompt, truth in BUILT_IN])


def cases_of_example(reward: type[BaseReward]) -> list[Case]:
    """The example of a registered reward as a case, whose completions are its answers; none where it has no example."""
    if reward.example is None:
        return []
    sample = reward.example.sample
    answers = tuple(Written(f"answer {n}", output, None) for n, output in enumerate(sample.output, 1))
    return [Case("example", copy_with(sample, output=sample.output[:1]), None, answers)]


# -- completions against a reward ----------------------------------------------------------------------------------------------


def forms(case: Case, steps: bool) -> list[DataOutput]:
    """The right answer written in each form."""
    empty = _empty(case)
    return [with_text(empty, form.format(case.truth), steps) for form in FORMS]


def trials(number: int, case: Case, gold: DataOutput | None, steps: bool) -> list[Trial]:
    """All completions of a case: the gold one and what is made of it, those that deserve nothing, and the user's own."""
    prompt, empty = case.sample.query_text(), _empty(case)

    def text(kind: str, said: str, base: DataOutput = empty) -> Trial:
        return Trial(number, kind, with_text(base, said, steps))

    found = [
        text("empty", ""),
        text("blank", " \n\t"),
        Trial(number, "null", copy_with(empty, answer=copy_with(empty.answer, additional_kwargs={"content": None}))),
        text("echo", prompt),
        text("stuffed", stuffed(f"{prompt} {text_of(gold) if gold is not None else ''} {case.truth}")),
    ]
    if gold is None or not refusal_in(text_of(gold)):  # a refusal may be what is right
        found.append(text("refusal", REFUSAL))
    if gold is not None:
        found += _of_gold(number, case, gold, steps)
    found += [Trial(number, f"own: {one.name}", one.output, one.expected) for one in case.written]
    return found


def _of_gold(number: int, case: Case, gold: DataOutput, steps: bool) -> list[Trial]:
    said, truth = text_of(gold), case.truth

    def changed(kind: str, text: str) -> Trial:
        if steps or gold.steps is None:
            return Trial(number, kind, with_text(gold, text, steps))
        return Trial(number, kind, copy_with(gold, answer=copy_with(gold.answer, content=text)))

    found = [Trial(number, "gold", gold if not steps or gold.steps else with_text(gold, said, steps))]
    if not said:  # it only calls tools
        return found
    found += [
        changed("line ends", said.replace("\r\n", "\n").replace("\n", "\r\n") + "\r\n"),
        changed("repeated", "\n".join([said] * 12)),
        changed("padded", "\n\n".join([said, *[FILLER] * 12])),
    ]
    stated = statements(truth)
    first = stated.search(said) if truth else None
    before = said[: first.start()] if first else "" if truth else said[: len(said) // 2]
    if before.strip():
        found.append(changed("truncated", before))
    if first and said != truth:
        wrong = others(truth)

        def saying(other: str) -> str:
            return stated.sub(lambda _: other, said)

        found += [
            changed("off-format", truth),
            changed("hollow", saying("")),
            changed("wrong", saying(wrong[0])),
            changed("all answers", "\n".join(map(saying, [*wrong[:2], truth, *wrong[2:]]))),
        ]
    return found


def _empty(case: Case) -> DataOutput:
    known = case.gold or (case.written[0].output if case.written else None)
    label = known.answer.label if known is not None else None
    return DataOutput(answer=Step(role="assistant", content="", label=label))


# -- wrong texts worth a pass --------------------------------------------------------------------------------------------------

CASES = 20
"""Cases that wrong texts are made of when no limit is given."""
SHAPES = 3
"""Right texts of a case that wrong ones are made of at most."""


class Passed(NamedTuple):
    """A wrong text with a score that passes."""

    mutation: str
    case: str
    text: str
    score: float


@dataclass(frozen=True)
class Fuzz:
    """Which wrong texts a reward lets pass.

    Attributes:
        passing: the score from which a text passes (down to which, where lower is better).
        cases: how many right answers wrong texts were made of.
        left_out: cases of which nothing could be made, and why.
        tried: by mutation, how many wrong texts were tried, passed, and have no score.
        passed: every wrong text that passes, by mutation.
    """

    reward: str
    passing: float
    cases: int
    left_out: Mapping[str, str]
    tried: Mapping[str, tuple[int, int, int]]
    passed: Sequence[Passed]

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON types."""
        counts = {
            name: {"why": mutations()[name], "tried": n, "passed": passed, "unscored": lost}
            for name, (n, passed, lost) in self.tried.items()
        }
        own = {"reward": self.reward, "passing": self.passing, "cases": self.cases, "left_out": dict(self.left_out)}
        return {**own, "mutations": counts, "passed": [one._asdict() for one in self.passed]}


def opened(
    reward: Any, cases: Any, reference: str | None, params: Mapping[str, Any] | None, llm: Any, base_url: str | None
) -> tuple[BaseReward, list[Case]]:
    """The reward that is asked for, and the cases: those given, its file's `CASES`, its example, or the built-in ones."""
    found, own = load_target(reward) if isinstance(reward, str) else (reward, None)
    example = None
    if isinstance(found, str) and cases is None and ":" not in found:
        example = RewardRegistry.get(found)
        params = {**(example.example.params if example.example is not None else {}), **(params or {})}
    built = build_reward(found, params, llm, base_url)
    if cases is not None or own is not None:
        return built, read_cases(own if cases is None else cases, reference)
    return built, (cases_of_example(example) if example is not None else []) or built_in_cases()


def fuzz_reward(
    reward: Any,
    cases: Any = None,
    *,
    reference: str | None = None,
    passing: float | None = None,
    limit: int | None = None,
    seed: int = 0,
    params: Mapping[str, Any] | None = None,
    llm: Any = None,
    base_url: str | None = None,
    options: RunOptions | None = None,
) -> Fuzz:
    """Make wrong texts out of right answers and say which of them the reward lets pass.

    A mutation is tried only where the kind of the right answer (number, quantity, letter, word, expression, code) makes
    certain that its text is wrong. The same seed makes the same texts.

    Args:
        reward: a FILE or FILE:NAME, or anything `build_reward` takes that scores each answer by itself.
        cases: as in `check_reward`; each needs a reference answer or code tests.
        reference: the column with the reference answer.
        passing: the score from which a text passes; by default the middle of the reward's range.
        limit: a seeded sample of this many cases; 20 by default.
        seed: decides that sample, and which texts of a mutation are tried where there are many.
        params: constructor fields of the reward.
        llm: the judge, where it needs one.
        base_url: the judge's endpoint.
        options: how the judging goes.

    Raises:
        ConfigError: the reward cannot be built or compares answers, it has no range and none is seen, or no case has a
            reference answer or code tests.
    """
    built, tasks = opened(reward, cases, reference, params, llm, base_url)
    if built.compares:
        raise ConfigError(f"{built.name} compares answers; fuzz-reward tries rewards that score each by itself.")
    chosen = options or RunOptions(progress=False, max_workers=built.max_workers)
    tasks = [tasks[place] for place in seeded_positions(len(tasks), limit or CASES, seed)]
    steps, turn = built.kind == "stepwise", 1.0 if built.higher_is_better else -1.0

    def judged(asked: Sequence[Sequence[DataOutput]]) -> list[list[float | None]]:
        samples = [copy_with(case.sample, output=list(own)) for case, own in zip(tasks, asked, strict=True)]
        done = built.evaluate_batch(samples, options=chosen)
        return [[scored_of(built, output).score for output in sample.output] for sample in done]

    rights = [_right_answers(case, steps) for case in tasks]
    if not any(case.truth or _forged(case) for case in tasks):
        raise ConfigError(f"{built.name}: of no case wrong texts can be made: {NO_TRUTH}.")
    given = judged(rights)
    level = passing if passing is not None else _middle(built, [score for own in given for score in own])
    commands, made, left_out = injections(built), list[dict[str, list[DataOutput]]](), dict[str, str]()
    for case, right, scores in zip(tasks, rights, given, strict=True):
        passes = [one for one, score in zip(right, scores, strict=True) if score is not None and turn * score >= turn * level]
        made.append(_wrong_answers(case, passes, built, commands, seed))
        if not made[-1]:
            left_out[case.name] = "no right answer passes" if case.truth or _forged(case) else NO_TRUTH
    scored = judged([[one for own in each.values() for one in own] for each in made])
    tried: dict[str, tuple[int, int, int]] = {}
    passed: list[Passed] = []
    for case, each, scores in zip(tasks, made, scored, strict=True):
        names = [(name, one) for name, own in each.items() for one in own]
        for (name, one), score in zip(names, scores, strict=True):
            through = score is not None and turn * score >= turn * level
            n, so_far, lost = tried.get(name, (0, 0, 0))
            tried[name] = (n + 1, so_far + through, lost + (score is None))
            if score is not None and through:
                passed.append(Passed(name, case.name, text_of(one), score))
    order = [name for name in mutations() if name in tried]
    passed.sort(key=lambda one: order.index(one.mutation))
    return Fuzz(built.name, level, len(tasks) - len(left_out), left_out, {name: tried[name] for name in order}, passed)


NO_TRUTH = "it has no reference answer and no code tests; give --cases with a reference"


def _middle(reward: BaseReward, seen: Sequence[float | None]) -> float:
    low, high = reward.score_range
    if low is not None and high is not None:
        return (low + high) / 2
    if all(score is None or 0 <= score <= 1 for score in seen):
        return 0.5
    raise ConfigError(f"{reward.name} has no range; say from which score a text passes with --pass.")


def _right_answers(case: Case, steps: bool) -> list[DataOutput]:
    """What is or may be right: the gold completion, those that somebody wrote, and the truth in each form."""
    said = [case.gold] if case.gold is not None else [one.output for one in case.written if one.expected in (None, FULL)]
    return [*said, *(forms(case, steps) if case.truth else [])]


def _forged(case: Case) -> list[DataOutput]:
    try:
        return [*forged_answers(case.sample).values()]
    except Unscored:
        return []


def _wrong_answers(
    case: Case, right: Sequence[DataOutput], reward: BaseReward, commands: Sequence[Injection], seed: int
) -> dict[str, list[DataOutput]]:
    if not right:
        return {}
    base, steps = _empty(case), reward.kind == "stepwise"
    if not case.truth:
        forged = _forged(case)
        nothing = ("", " \n\t", REFUSAL, "```python\n```", case.sample.query_text())
        empty = [with_text(base, text, steps) for text in nothing]
        return {"empty": empty, "forged programs": forged} if forged else {}
    texts = list(dict.fromkeys(text_of(one) for one in right))
    drawn = random.Random(f"{seed}").sample(commands, 12)
    choices = getattr(reward, "choices", None) or known(case.sample, "choices")
    truth = Truth(case.truth, case.references[1:], tuple(map(str, choices)) if isinstance(choices, list | tuple) else ())
    made = wrong_texts(truth, texts[:SHAPES], case.sample.query_text(), drawn, f"{seed}:{case.name}")
    return {name: [with_text(base, text, steps) for text in own] for name, own in made.items()}
