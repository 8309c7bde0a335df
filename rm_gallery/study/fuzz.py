"""Wrong texts that a reward takes for right: each made from a right answer, wrong for a stated
reason, and what it gets.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from string import Formatter
from typing import TYPE_CHECKING, Any

from rm_gallery.core.data.schema import DataOutput
from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.options import RunKeywords, RunOptions, whole
from rm_gallery.core.utils.defaults import FUZZ_PASS, FUZZ_TEXTS
from rm_gallery.core.utils.errors import ConfigError, Unscored
from rm_gallery.gallery.benchmarks.figures import Record
from rm_gallery.gallery.rm.alignment.harmlessness.refusal import refusal_in
from rm_gallery.study.attacks import forged_answers, read_texts, stuffed, text_of
from rm_gallery.study.check import Checking, reward_and_cases
from rm_gallery.study.check_cases import (
    REFUSAL,
    Case,
    Trial,
    cut_off,
    other_answers,
    statements,
    with_answer,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

MUTATIONS: Mapping[str, str] = read_texts("wrong")["mutations"]
"""Ways to make a wrong text, and why it is wrong."""
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_QUANTITY = re.compile(r"(-?\d+(?:\.\d+)?) ?([a-z]+)")


@dataclass(frozen=True)
class PassedText(Record):
    """A wrong text that is worth a pass.

    Attributes:
        case: the task it was tried on.
        mutation: how it was made; `MUTATIONS` says why it is wrong.
        text: the text itself.
        score: what it got.
        share: that as a share of what the right answer gets above the lowest score.
    """

    case: str
    mutation: str
    text: str
    score: float
    share: float


@dataclass(frozen=True)
class Fuzzed(Record):
    """What a reward gave to wrong texts.

    Attributes:
        reward: its name.
        cases: how many tasks were tried, and `left_out` the names of those without a right answer
            that gets a score.
        tried: wrong texts by mutation.
        passed: those worth a pass, by mutation and shortest first.
        missing: how many wrong texts have no score, by who caused it.
        ceiling: the share from which a text passes.
        seed: of the texts that were drawn.
    """

    reward: str
    cases: int
    tried: Mapping[str, int]
    passed: tuple[PassedText, ...]
    left_out: tuple[str, ...] = ()
    missing: Mapping[str, int] | None = None
    ceiling: float = FUZZ_PASS
    seed: int = 0


@library_loop.blocks
def fuzz_reward(
    reward: Any,
    cases: Any = None,
    *,
    reference: str | None = None,
    texts: int = FUZZ_TEXTS,
    ceiling: float = FUZZ_PASS,
    seed: int = 0,
    params: Mapping[str, Any] | None = None,
    llm: Any = None,
    base_url: str | None = None,
    options: RunOptions | None = None,
    **run_options: Unpack[RunKeywords],
) -> Fuzzed:
    """Try a reward on texts that are wrong for a stated reason, and name every one that is worth a
    pass.

    Args:
        reward: anything `build_reward` takes; it scores answers by themselves.
        cases: a file of tasks or rows, see `read_cases`. By default the file's own `CASES`, the
            example of a registered reward, or four built-in questions.
        reference: the column with the reference answer.
        texts: how many wrong texts a case is tried with; all ways come first, then what the seed
            draws from their mixtures.
        ceiling: the share of the right answer's score above the lowest one from which a wrong text
            passes.
        seed: of that draw.
        params: constructor fields of the reward.
        llm: the judge, where it needs one.
        base_url: the judge's endpoint.
        options: how the judging goes.
        **run_options: fields of `RunOptions`, which win over `options`.

    Raises:
        ConfigError: the reward cannot be built, it compares answers, a case does not fit, or no
            case has a right answer that the reward gives more than its lowest score.
    """
    whole("texts", texts, 1)
    built, known = reward_and_cases(
        reward, cases, reference, params=params, llm=llm, base_url=base_url
    )
    if built.compares:
        raise ConfigError(
            f"{built.name} compares answers, and a wrong one may be the best there is; audit it "
            f"instead."
        )
    checking = Checking(built, known, None, ceiling, options, run_options)
    answered = [(case, gold) for case, gold in zip(known, checking.golds(), strict=True) if gold]
    asked: list[tuple[Case, list[Trial]]] = []
    for case, gold in answered:
        others = [text_of(one) for its, one in answered if its.truth != case.truth]
        made = [
            Trial(mutation, with_answer(gold, text, checking.steps))
            for mutation, text in _drawn(case, gold, others, texts, seed)
        ]
        asked.append((case, [Trial("gold", gold), *made, *_forged(case)]))
    checking.settle(asked)
    right = [one for one in checking.tried if one.kind == "gold"]
    taken = {one.case for one in right if (checking.share(one) or 0.0) > ceiling}
    if not taken:
        got = "no case has a right answer"
        if right:
            scored = right[0].scored
            worth = f"no score ({scored.code})" if scored.value is None else f"{scored.value:g}"
            got = f"the right answer of {right[0].case} gets {worth}"
        raise ConfigError(
            f"{built.name}: {got}, so nothing can be taken for it; give cases with `gold` in a "
            f"form that it takes."
        )
    wrong = [one for one in checking.tried if one.kind != "gold" and one.case in taken]
    tried, order = Counter(one.kind for one in wrong), list(MUTATIONS)
    passed = [
        PassedText(one.case, one.kind, one.text, one.scored.value, share)
        for one in wrong
        if one.scored.value is not None and (share := checking.share(one) or 0.0) > ceiling
    ]
    passed.sort(key=lambda one: (order.index(one.mutation), len(one.text)))
    return Fuzzed(
        built.name,
        len(taken),
        {name: tried[name] for name in order if tried[name]},
        tuple(passed),
        tuple(sorted({case.name for case in known} - taken)),
        Counter(one.scored.cause or "rule" for one in wrong if one.scored.value is None),
        ceiling,
        seed,
    )


def _forged(case: Case) -> list[Trial]:
    """Programs that want to pass the code tests of a case; none without tests."""
    try:
        return [Trial("forged", output) for output in forged_answers(case.sample).values()]
    except Unscored:
        return []


def _drawn(
    case: Case, gold: DataOutput, others: list[str], texts: int, seed: int
) -> list[tuple[str, str]]:
    """So many different wrong texts, each with its mutation: every way first, then mixtures."""
    right = {_one_spaced(text_of(gold)), _one_spaced(case.truth)}
    mutations, ranks, seen = dict[str, str](), dict[str, int](), Counter[str]()
    for mutation, text in wrong_texts(case, text_of(gold), others):
        if text not in mutations and _one_spaced(text) not in right:
            seen[mutation] += 1
            mutations[text], ranks[text] = mutation, seen[mutation]
    # the first of every way before the second of any
    drawn = {text: mutations[text] for text in sorted(mutations, key=ranks.__getitem__)[:texts]}
    values, ways = _other_values(case.truth), read_texts("wrong")["dressed"]
    rng = random.Random(f"{seed} {case.name} {case.truth}")
    for _ in range(20 * texts if values else 0):
        if len(drawn) >= texts:
            break
        before, after, mark = (rng.choice(ways[where]) for where in ("before", "after", "between"))
        shown = mark.format(rng.choice(values))
        drawn.setdefault(before.format(case.truth) + shown + after.format(case.truth), "dressed")
    return [(mutation, text) for text, mutation in drawn.items()]


def _one_spaced(text: str) -> str:
    return " ".join(text.split())


def wrong_texts(case: Case, gold: str, others: list[str]) -> Iterator[tuple[str, str]]:
    """Every way to be wrong that is certain for this case, as its mutation and the text: `gold` is
    its right answer as text, `others` those of other cases.
    """
    prompt, truth, texts = case.sample.query_text(), case.truth, read_texts("wrong")
    states_it = bool(truth and statements(truth).search(prompt))
    stated, before = cut_off(gold, truth)
    without_answer: dict[str, list[str]] = {
        "nothing": texts["nothing"],
        "no answer": [
            *([] if states_it else [prompt]),
            stuffed(f"{prompt} {gold}"),
            *([] if refusal_in(gold) else [REFUSAL]),
        ],
        "another case": others,
        "cut off": [before] if before.strip() else [],
    }
    for mutation, whole_texts in without_answer.items():
        for text in whole_texts:
            yield mutation, text
    if not truth:
        return

    def phrasings(content: str) -> list[str]:
        """In the form of the right answer, in a sentence, and by itself."""
        formed = [stated.sub(lambda _: content, gold)] if stated else []
        return [*formed, f"The answer is {content}.", content]

    values = _other_values(truth)
    for mutation, content in _filled(texts["contents"], _parts_of_forms(truth, values)):
        for text in phrasings(content):
            yield mutation, text
    for text in (*texts["hollow"], *(phrasings("")[:1] if stated else ())):
        yield "hollow", text
    for other in values[:2]:
        contents = {
            "right": truth,
            "wrong": other,
            "last": values[-1],
            "phantom": f"{other}\\phantom{{{truth}}}",
        }
        parts = {name: phrasings(content)[:1] for name, content in contents.items()}
        yield from _filled(texts["statements"], {**parts, "truth": [truth], "other": [other]})


def _filled(
    forms: Iterable[tuple[str, str]], parts: Mapping[str, Sequence[str]]
) -> Iterator[tuple[str, str]]:
    """Each form with each value of its parts, under its mutation; none where a part has no value."""
    for mutation, form in forms:
        names = [name for _, name, _, _ in Formatter().parse(form) if name]
        for values in product(*(parts.get(name, ()) for name in names)):
            yield mutation, form.format(**dict(zip(names, values, strict=True)))


def _other_values(truth: str) -> list[str]:
    """Other answers of the same kind."""
    opposite = read_texts("wrong")["opposites"].get(truth.lower())
    if opposite is not None:
        return [opposite.capitalize() if truth[:1].isupper() else opposite]
    others = other_answers(truth) if truth else []
    if _NUMBER.fullmatch(truth):
        value = float(truth)
        others += [f"{value + 1:g}", f"{10 * value + 3:g}"] if abs(value) < 1e5 else []
    return [other for other in dict.fromkeys(others) if other.lower() != truth.lower()]


def _parts_of_forms(truth: str, values: list[str]) -> dict[str, Sequence[str]]:
    """What the forms of `contents` are filled with; `texts/wrong.yaml` says what each part is."""
    texts = read_texts("wrong")
    parts: dict[str, Sequence[str]] = {
        "truth": [truth],
        "other": values[:1],
        "others": values,
        "some": [", ".join([*values[:2], truth, *values[2:3]])],
        "all": [" / ".join([truth, *values[:2]])],
    }
    quantity = _QUANTITY.fullmatch(truth)
    if _NUMBER.fullmatch(truth):
        value, digits = float(truth), truth.lstrip("-")
        parts |= {"number": [truth], "factor": [truth if value else ""]}
        if value:
            parts["near"] = [
                f"-{truth}" if digits == truth else truth[1:],
                f"1{digits}" if "." in truth else f"{truth}000",
                f"7{digits}",
            ]
        if value not in (-1, 0, 1):
            parts["base"] = [truth]
    elif quantity and quantity[2] in texts["units"] and float(quantity[1]):
        parts["quantity"] = [
            f"{quantity[1]} {unit}" for unit in texts["units"] if unit != quantity[2]
        ]
    elif len(truth) > 3 and truth.lower() not in texts["opposites"]:
        parts["half"] = [truth[: len(truth) // 2].strip()]
    return parts
