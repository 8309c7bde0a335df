"""What a reward is tried on: tasks with a completion that deserves full reward, and completions
with what is expected.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from rm_gallery.core.data.conversation import sample_of_completion
from rm_gallery.core.data.load.readers import rows_in
from rm_gallery.core.data.schema import DataOutput, DataSample, Step
from rm_gallery.core.engine.options import RunOptions
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.reward.run import options_of
from rm_gallery.core.score import Score
from rm_gallery.core.utils.errors import ConfigError, DataError
from rm_gallery.core.utils.models import copy_with
from rm_gallery.core.utils.names import unknown_name
from rm_gallery.gallery.benchmarks.figures import Record, plain
from rm_gallery.gallery.rm.alignment.harmlessness.refusal import refusal_in
from rm_gallery.integrations.scoring import scored_of
from rm_gallery.study.attacks import as_judged, stuffed, text_of, with_text

OWN = ("prompt", "messages", "gold", "completions")
NEAR = 1e-6
"""Scores that differ by less are equal."""
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
REFUSAL = "I'm sorry, but I can't help with that."
BREAKING = {"empty": "", "refusal": REFUSAL, "huge": "9" * 400, "long": "word " * 4_000}
"""Completions that a reward may break at; a huge one is a number beyond every float."""
FILLER = (
    "This point deserves further thought, and every aspect of it has been considered with great "
    "care."
)


class Expected(NamedTuple):
    """What a completion of the user's own should get."""

    lowest: float | None = None
    highest: float | None = None
    word: str = ""
    """`full`, `low` or `unscored`, in place of numbers."""

    def holds(self, score: float) -> bool:
        """Whether a score lies within the numbers."""
        low, high = self.lowest, self.highest
        return (low is None or score >= low - NEAR) and (high is None or score <= high + NEAR)

    def __str__(self) -> str:
        if self.word:
            return self.word
        if self.lowest == self.highest:
            return f"{self.lowest:g}"
        ends = ("at least", self.lowest), ("at most", self.highest)
        return " and ".join(f"{what} {end:g}" for what, end in ends if end is not None)


class Trial(NamedTuple):
    """One completion to try: its name, or of which kind it is, and what it should get."""

    kind: str
    output: DataOutput
    expected: Expected | None = None


class Case(NamedTuple):
    """One task: the prompt and what is known about it (`sample`), and its completions."""

    name: str
    sample: DataSample
    gold: DataOutput | None
    written: tuple[Trial, ...] = ()
    """Completions that somebody wrote by hand."""

    @property
    def truth(self) -> str:
        """The reference answer as text; empty where there is none, or it is no short text."""
        reference = (
            self.sample.reference()
            if self.gold is None
            else copy_with(self.sample, output=[self.gold]).reference()
        )
        if isinstance(reference, list) and reference:  # aliases of one answer
            reference = reference[0]
        text = str(reference) if isinstance(reference, str | int | float) else ""
        return text.strip() if len(text) <= 200 else ""


@dataclass(frozen=True)
class Tried(Record):
    """What the reward gave to one completion."""

    case: str
    kind: str
    text: str
    scored: Score[float]
    gain: float | None
    """Its score so that higher is better; None without one."""
    expected: Expected | None = None
    logs: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON types."""
        about = {"case": self.case, "kind": self.kind, "completion": self.text}
        more = {"expected": self.expected and str(self.expected), "logs": list(self.logs)}
        told = {name: value for name, value in more.items() if value}
        return {**plain({**about, **self.scored.to_dict()}), **told}


class Trials:
    """A reward that is tried: all completions in one batch, and the relation of two scores."""

    def __init__(
        self, reward: BaseReward, options: RunOptions | None, keywords: Mapping[str, Any]
    ) -> None:
        self.reward, self.steps = reward, reward.kind == "stepwise"
        self.options = options_of(reward, options, None, keywords)[0]
        self.turn = 1.0 if reward.higher_is_better else -1.0

    def judge(self, asked: Iterable[tuple[Case, Sequence[Trial]]], **changes: Any) -> list[Tried]:
        """What the reward gave to the completions of each case, in their order; `changes` are fields
        of its options.
        """
        known = [(case, own) for case, own in asked if own]
        samples = [
            copy_with(case.sample, output=[trial.output for trial in own]) for case, own in known
        ]
        options = replace(self.options, **changes)
        done = self.reward.evaluate_batch(samples, options=options) if samples else []
        return [
            self._tried(case, *pair)
            for (case, own), sample in zip(known, done, strict=True)
            for pair in zip(own, sample.output, strict=True)
        ]

    def _tried(self, case: Case, trial: Trial, output: DataOutput) -> Tried:
        judgement, text = output.answer.reward, text_of(trial.output)
        logs = judgement.extra_data.get(self.reward.key_in(judgement), {}).get("logs", ())
        scored = scored_of(self.reward, output)
        gain = None if scored.value is None else self.turn * scored.value
        return Tried(case.name, trial.kind, text, scored, gain, trial.expected, tuple(logs))

    def less(self, score: float | None, other: float) -> bool:
        """Whether a score is worse than another, and not near it."""
        if score is None:
            return False
        return self.turn * score < self.turn * other - NEAR * max(1.0, abs(other))


# -- reading cases ---------------------------------------------------------------------------------


def read_cases(given: Any, reference: str | None = None) -> list[Case]:
    """Cases of a file (jsonl, csv, parquet, …) or of rows.

    A row holds `prompt` (text or messages), `gold` (a completion that deserves full reward: text or
    messages), `completions` (a list of texts, or of dicts with `completion`, `name` and `expect`),
    and the columns of the data set.

    Raises:
        DataError: a row does not fit; it is named.
        ConfigError: there is no row, or no row holds a task or an answer.
    """
    where = str(given) if isinstance(given, str | Path) else "cases"
    rows = list[Any](rows_in(Path(given)) if isinstance(given, str | Path) else given)
    cases = [
        _case(row, f"{where}, row {number}", number, reference)
        for number, row in enumerate(rows, 1)
    ]
    if not cases:
        raise ConfigError(
            f"{where}: no case found; give a row per task, with prompt, gold and the data set's "
            f"columns."
        )
    found = list(dict.fromkeys(str(name) for row in rows for name in row))
    if not any(map(_tells, rows, cases)):
        raise ConfigError(
            f"{where}: there is neither a column 'prompt' (or 'messages') nor 'gold' or "
            f"'completions', nor a reference ('ground_truth', 'reference', or --reference); the "
            f"columns are: {', '.join(found) or 'none'}."
        )
    return cases


def _tells(row: Mapping[str, Any], case: Case) -> bool:
    """Whether a row holds something of a task or of an answer."""
    return bool(case.sample.input or case.gold or case.written or case.sample.reference())


def _case(row: Any, where: str, number: int, reference: str | None) -> Case:
    if not isinstance(row, Mapping):
        raise DataError(f"{where}: expected a dict of columns, found {type(row).__name__}.")
    columns = {name: value for name, value in row.items() if name not in OWN}
    if reference is not None and reference not in columns:
        there = ", ".join(sorted(map(str, columns))) or "none"
        raise DataError(
            f"{where}: there is no column '{reference}' with the reference; the columns are: "
            f"{there}."
        )
    truth = (
        columns.get(reference)
        if reference is not None
        else columns.get("ground_truth", columns.get("reference"))
    )
    prompt = row.get("prompt", row.get("messages"))

    def output(completion: Any) -> DataOutput:
        return sample_of_completion(prompt, completion, ground_truth=truth, row=columns).output[0]

    gold = None if row.get("gold") is None else output(row["gold"])
    sample = sample_of_completion(
        prompt, "", ground_truth=truth, row=columns, unique_id=f"case {number}"
    )
    written = row.get("completions") or ()
    if isinstance(written, str | Mapping) or not isinstance(written, Sequence):
        raise DataError(
            f"{where}: completions is a {type(written).__name__}; it is a list of texts or of "
            f"dicts."
        )
    own = tuple(
        _written_completion(one, f"{where}, completion {place}", place, output)
        for place, one in enumerate(written, 1)
    )
    return Case(f"case {number}", sample, gold, own)


def _written_completion(
    one: Any, where: str, place: int, output: Callable[[Any], DataOutput]
) -> Trial:
    given = dict(one) if isinstance(one, Mapping) and "role" not in one else {"completion": one}
    for name in given:
        if name not in ("completion", "name", "expect"):
            raise DataError(
                f"{where}: {unknown_name('field', str(name), ('completion', 'name', 'expect'))}"
            )
    if "completion" not in given:
        raise DataError(
            f"{where}: there is no field 'completion'; it holds {', '.join(given) or 'nothing'}."
        )
    name = str(given.get("name") or f"completion {place}")
    return Trial(name, output(given["completion"]), _expected(given.get("expect"), where))


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
        f"{where}: expect is {given!r:.80}; it is a number, 'full', 'low', 'unscored', or a dict "
        f"with at_least and at_most."
    )


def built_in_cases() -> list[Case]:
    """Four short questions with their answers."""
    return read_cases([{"prompt": prompt, "ground_truth": truth} for prompt, truth in BUILT_IN])


def cases_of_example(reward: type[BaseReward]) -> list[Case]:
    """The example of a registered reward as a case, whose completions are its answers; none where
    it has no example.
    """
    if reward.example is None:
        return []
    sample = reward.example.sample
    answers = tuple(Trial(f"answer {n}", output) for n, output in enumerate(sample.output, 1))
    return [Case("example", copy_with(sample, output=sample.output[:1]), None, answers)]


# -- completions against a reward ------------------------------------------------------------------


def forms(case: Case, steps: bool) -> list[DataOutput]:
    """The right answer written in each form."""
    empty = _empty(case)
    return [with_text(empty, form.format(case.truth), steps) for form in FORMS]


def trials(case: Case, gold: DataOutput | None, steps: bool) -> list[Trial]:
    """All completions of a case: the gold one and what is made of it, those that deserve nothing,
    and the user's own.
    """
    prompt, empty = case.sample.query_text(), _empty(case)
    answer = text_of(gold) if gold is not None else ""
    texts = {
        "empty": "",
        "blank": " \n\t",
        "null": "",
        "echo": prompt,
        "stuffed": stuffed(f"{prompt} {answer} {case.truth}"),
        "refusal": REFUSAL,
    }
    if refusal_in(answer):  # a refusal may be what is right
        del texts["refusal"]
    made = [
        Trial(kind, saying_nothing(empty) if kind == "null" else with_text(empty, text, steps))
        for kind, text in texts.items()
    ]
    if gold is not None:
        made.append(Trial("gold", as_judged(gold, steps)))
        variants = _variants(answer, case.truth) if answer else {}  # it may only call tools
        made += [Trial(kind, with_answer(gold, text, steps)) for kind, text in variants.items()]
    return made + [one._replace(kind=f"own: {one.kind}") for one in case.written]


def _variants(answer: str, truth: str) -> dict[str, str]:
    """What is made of a gold completion."""
    texts = {
        "line ends": answer.replace("\r\n", "\n").replace("\n", "\r\n") + "\r\n",
        "repeated": "\n".join([answer] * 12),
        "padded": "\n\n".join([answer, *[FILLER] * 12]),
    }
    stated, before = cut_off(answer, truth)
    if before.strip():
        texts["truncated"] = before
    if stated and answer != truth:
        others, form = other_answers(truth), stated.sub("\0", answer)
        texts |= {"off-format": truth, "hollow": form.replace("\0", "")}
        texts["wrong"] = form.replace("\0", others[0])
        named = (*others[:2], truth, *others[2:])
        texts["all answers"] = "\n".join(form.replace("\0", one) for one in named)
    return texts


def saying_nothing(empty: DataOutput) -> DataOutput:
    """An empty completion whose content is null, as of a model that was asked and did nothing."""
    return copy_with(empty, answer=copy_with(empty.answer, additional_kwargs={"content": None}))


def with_answer(gold: DataOutput, text: str, steps: bool) -> DataOutput:
    """The completion with another answer; steps that are not judged one by one stay."""
    if steps or gold.steps is None:
        return with_text(gold, text, steps)
    return copy_with(gold, answer=copy_with(gold.answer, content=text))


def cut_off(answer: str, truth: str) -> tuple[re.Pattern[str] | None, str]:
    """What finds the truth in the answer, None where it is not stated, and the answer up to there;
    where nobody knows the truth the first half.
    """
    if not truth:
        return None, answer[: len(answer) // 2]
    stated = statements(truth)
    first = stated.search(answer)
    return (stated, answer[: first.start()]) if first else (None, "")


def statements(truth: str) -> re.Pattern[str]:
    """Where a text states the answer: not as a piece of another word or number."""
    before = r"(?<![A-Za-z0-9À-ɏ])(?<!\d[.,])" if truth[:1].isalnum() and truth[:1] < "ɐ" else ""
    after = r"(?![A-Za-z0-9À-ɏ])(?![.,]\d)" if truth[-1:].isalnum() and truth[-1:] < "ɐ" else ""
    return re.compile(before + re.escape(truth) + after)


def _empty(case: Case) -> DataOutput:
    known = case.gold or (case.written[0].output if case.written else None)
    label = known.answer.label if known is not None else None
    return DataOutput(answer=Step(role="assistant", content="", label=label))


def other_answers(truth: str) -> list[str]:
    """Answers that look like the right one and are wrong."""
    if re.fullmatch(r"-?\d+", truth):
        return [str(int(truth) + step) for step in (1, 7, -3, 12, 100)]
    if re.fullmatch(r"[A-Za-z]", truth):
        first = ord("A" if truth.isupper() else "a")
        return [chr(first + (ord(truth) - first + step) % 5) for step in (1, 2, 3, 4)]
    if re.search(r"\d", truth):
        return [
            re.sub(r"\d", lambda hit, by=by: str((int(hit[0]) + by) % 10), truth)  # type: ignore[misc]
            for by in (1, 3, 5, 7, 9)
        ]
    cities = (
        "柏林 东京 伦敦 罗马 开罗"
        if re.search(r"[㐀-鿿]", truth)
        else "Berlin Tokyo London Rome Cairo"
    )
    return cities.split()
