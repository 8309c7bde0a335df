"""How published protocols read a judge's text: their own readers, with their quirks, for texts that were recorded.

A judgement made here is read by `core/text`, which refuses what contradicts itself. These readers exist so that a published
figure comes out as published: they take a first match over a last one, and any capital letter for a verdict, where their
source does. A verdict is +1 for the answer shown first, -1 for the second, 0 for a tie, None where the text holds none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.core.utils.models import unknown_name
from rm_gallery.gallery.benchmarks.judgements import Verdict, sign

Reader = Callable[[str], Verdict]

# -- JudgeBench, utils/judges.py -------------------------------------------------------------------------------------------

_ARENA_LABEL = re.compile(r"\[\[([AB<>=]+)\]\]")
_PROMETHEUS = re.compile(
    r"(?:\[RESULT\](?:\s+Response)?|\[RESULT:\s*|\[Response\s+|(?:^|\n)Result:?\s*)\s*(A|B)(?:\]|\s|$)",
    re.IGNORECASE | re.MULTILINE,
)
_COMPARED: Mapping[str, Verdict] = {"A>B": 1, "B>A": -1, "A=B": 0}


def arena_hard(text: str) -> Verdict:
    """All bracketed labels of both attempts have to be one and the same string; `>>` and `>` are two different ones."""
    labels = set(_ARENA_LABEL.findall(text))
    return _COMPARED.get(labels.pop().replace(">>", ">")) if len(labels) == 1 else None


def vanilla(text: str) -> Verdict:
    """The text is nothing but "Output (a)" or "Output (b)"."""
    return {"Output (a)": 1, "Output (b)": -1}.get(text.strip())


def panda_lm(text: str) -> Verdict:
    """The first line is 1 or 2; everything else is a tie."""
    return {"1": 1, "2": -1}.get(text.strip().split("\n")[0], 0)


def judge_lm(text: str) -> Verdict:
    """The first line is two numbers; everything else is a tie."""
    parts = text.split("\n")[0].replace(",", " ").split(" ")
    try:
        first, second = map(float, parts)
    except ValueError:
        return 0
    return sign(first, second) or 0


def auto_j(text: str) -> Verdict:
    """What follows the last "final decision is " begins with response 1, response 2 or tie."""
    _, found, decision = text.strip().rpartition("final decision is ")
    said = decision.strip().lower() if found else ""
    return next((v for name, v in (("response 1", 1), ("response 2", -1), ("tie", 0)) if said.startswith(name)), None)


def prometheus_2(text: str) -> Verdict:
    """A or B after a result mark; the first one counts."""
    found = _PROMETHEUS.search(text)
    return None if found is None else {"A": 1, "B": -1}[found[1].upper()]


def skywork_critic(text: str) -> Verdict:
    """Any capital A is a win of the first answer, else any capital B one of the second."""
    return 1 if "A" in text else -1 if "B" in text else None


JUDGEBENCH: Mapping[str, Reader] = {
    "arena_hard": arena_hard,
    "vanilla": vanilla,
    "panda_lm": panda_lm,
    "judge_lm": judge_lm,
    "auto_j": auto_j,
    "prometheus_2": prometheus_2,
    "skywork_critic": skywork_critic,
    "compass_judger": arena_hard,
}
"""By the name of the judge as JudgeBench has it."""


def judgebench_reader(judge: str) -> Reader:
    """The reader of a judge of JudgeBench; ConfigError with the nearest names for another."""
    if judge not in JUDGEBENCH:
        raise ConfigError(unknown_name("judge of JudgeBench", judge, JUDGEBENCH))
    return JUDGEBENCH[judge]


# -- LLMBar, LLMEvaluator/evaluators/config --------------------------------------------------------------------------------

_NAMED_FIRST = tuple(re.compile(rf"^ ?Output \({side}\)", re.MULTILINE) for side in "ab")
# the dot stands for any character but a line end: a text that ends in "better" is not read
_NAMED_BETTER = tuple(re.compile(rf"Output \({side}\) is better.") for side in "ab")

LLMBAR_METHODS = (
    "Vanilla",
    "Vanilla_NoRules",
    "Vanilla_1shot",
    "Vanilla_2shot",
    "CoT",
    "Metrics",
    "Reference",
    "Metrics_Reference",
    "Swap",
    "Swap_CoT",
    "Rating",
    "Rating_NoRules",
    "Rating_Metrics",
    "Rating_Reference",
    "Rating_Metrics_Reference",
)


def llmbar_answer(text: str) -> Verdict:
    """A line that begins with "Output (a)", else one with "Output (b)"."""
    return _first_of(_NAMED_FIRST, text)


def llmbar_explained(text: str) -> Verdict:
    """The sentence "Output (a) is better." anywhere, else the same of (b)."""
    return _first_of(_NAMED_BETTER, text)


def _first_of(patterns: tuple[re.Pattern[str], ...], text: str) -> Verdict:
    said = text.strip()
    return 1 if patterns[0].search(said) else -1 if patterns[1].search(said) else None


def llmbar_reader(evaluator: str, method: str, kind: str) -> Reader:
    """The reader of a text of LLMBar: what a judge explains at length names the better output, all else is the answer alone.

    `kind` is compare or synthesize, the second look of the swap methods. PaLM2 was asked for its answer first in every method.
    """
    if method not in LLMBAR_METHODS:
        raise ConfigError(unknown_name("method of LLMBar", method, LLMBAR_METHODS))
    if method == "CoT":
        return llmbar_answer if evaluator == "PaLM2" else llmbar_explained
    if method == "Swap":
        return llmbar_answer if kind == "synthesize" else llmbar_explained
    return llmbar_explained if method == "Swap_CoT" else llmbar_answer


def llmbar_ratings(first: str, second: str) -> tuple[Verdict, Verdict]:
    """The verdicts of two ratings in either order, both naming outputs: equal ones are right in exactly one order.

    So are two of which one is no whole number.
    """
    try:
        a, b = int(first), int(second)
    except ValueError:
        return 1, -1
    return (1 if a > b else -1), (-1 if b > a else 1)


# -- Auto-J ----------------------------------------------------------------------------------------------------------------

_RATING = re.compile(r"Rating: \[\[(\d+(?:\.\d+)?)\]\]")


def auto_j_rating(text: str) -> float | None:
    """The last "Rating: [[x]]"; None without one, where upstream gives 0."""
    found = _RATING.findall(text)
    return float(found[-1]) if found else None
