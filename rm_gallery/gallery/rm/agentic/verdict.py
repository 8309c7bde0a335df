"""The verdict of a judge that acts: one typed decision for each criterion, with evidence that stands
where it is said to stand.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rm_gallery.core.reward.echo import is_copied
from rm_gallery.core.reward.rubric import Criterion
from rm_gallery.gallery.graders.checklist import question_of, verdict_of
from rm_gallery.gallery.rm.agentic.tools import Toolbox, tool_definitions

SUBMIT = "submit_verdict"
_MOST_PROBLEMS = 5
_MOST_EVIDENCE = 20


class Evidence(NamedTuple):
    """Words and the source they stand in: `call:N`, `turn:N`, `file:PATH` or `store:NAME`."""

    source: str
    quote: str


class CriterionDecision(NamedTuple):
    """What was decided of one criterion."""

    value: float | None
    """The share of its points, 0 to 1; None where it does not apply."""
    evidence: list[Evidence]
    reason: str = ""

    def record(self, one: Criterion) -> dict[str, Any]:
        """As records keep it."""
        evidence = [each._asdict() for each in self.evidence]
        return {"text": one.text, "value": self.value, "reason": self.reason, "evidence": evidence}


Decided = tuple[list[CriterionDecision], list[dict[str, Any]]]
"""The decision of each criterion, and the judge's transcript in OpenAI's layout."""


class VerdictProblem(Exception):
    """A verdict that cannot be taken; the judge is told why, and may submit it again."""


def submit_tool() -> dict[str, Any]:
    """The tool that takes the verdict, in OpenAI's layout."""
    return tool_definitions()["verdict"][0]


def says_twice(text: str) -> bool:
    """Whether an object of a JSON text has a key twice, of which readers take either."""
    repeated = []

    def once(pairs: list[tuple[str, Any]]) -> None:
        repeated.append(len(dict(pairs)) < len(pairs))

    try:
        json.JSONDecoder(object_pairs_hook=once).raw_decode(text.lstrip())
    except (ValueError, RecursionError):
        return False
    return any(repeated)


def read_verdict(
    given: Any, criteria: Sequence[Criterion], tools: Toolbox
) -> list[CriterionDecision]:
    """The decision of each criterion, in their order.

    Raises:
        VerdictProblem: the verdict is a copy of what the judge read; a criterion is left out,
            decided twice or by what it does not take, or its evidence does not stand; names each,
            so that all can be mended at once.
    """
    rows = given.get("verdicts") if isinstance(given, Mapping) else given
    if is_copied(json.dumps(rows, ensure_ascii=False), tools.read_texts()):
        raise VerdictProblem("The verdict stands word for word in what you check; write your own.")
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
        raise VerdictProblem("verdicts is a list with an object for each criterion.")
    decided: dict[int, CriterionDecision] = {}
    problems: list[str] = []
    for row in rows:
        number = row.get("criterion")
        if type(number) is not int or not 0 < number <= len(criteria):
            problems.append(f"there is no criterion {number!r:.40}")
        elif number in decided:
            problems.append(f"criterion {number} is decided twice")
        else:
            one = criteria[number - 1]
            found = _evidence(row.get("evidence"), number, one, tools, problems)
            value = _value(one, row.get("verdict"), number, problems)
            decided[number] = CriterionDecision(value, found, str(row.get("reason") or "")[:2000])
    absent = sorted(set(range(1, len(criteria) + 1)) - decided.keys())
    if absent:
        problems.append(f"criterion {', '.join(map(str, absent))} is not decided")
    if problems:
        more = len(problems) - _MOST_PROBLEMS
        shown = "; ".join(problems[:_MOST_PROBLEMS]) + (f"; and {more} more" if more > 0 else "")
        raise VerdictProblem(f"The verdict cannot be taken: {shown}.")
    return [decided[number] for number in sorted(decided)]


def _value(one: Criterion, said: Any, number: int, problems: list[str]) -> float | None:
    if said is None:
        if not one.not_applicable:
            problems.append(f"criterion {number} applies to everything, and its verdict is null")
        return None
    asked, low, high, _ = question_of(one)
    types, what = {
        "level": ((int,), f"a level from {low}"),
        "number": ((int, float), f"a number from {low:g} to {high:g}"),
        "verdict": ((bool,), "true or false"),
    }[asked]
    if type(said) not in types or not low <= said <= high:
        problems.append(f"criterion {number} takes {what}, and its verdict is {said!r:.40}")
        return None
    return verdict_of(one, said)[1]


def _evidence(
    given: Any, number: int, one: Criterion, tools: Toolbox, problems: list[str]
) -> list[Evidence]:
    found = [
        Evidence(str(row.get("source", "")), str(row.get("quote", "")))
        for row in (given if isinstance(given, list) else ())
        if isinstance(row, Mapping)
    ]
    if len(found) > _MOST_EVIDENCE:
        problems.append(f"criterion {number} has more than {_MOST_EVIDENCE} pieces of evidence")
        return []
    wrong = [problem for each in found if (problem := tools.stands(*each))]
    if not found:
        problems.append(f"criterion {number} has no evidence")
    elif wrong:
        problems.append(f"criterion {number}: {wrong[0]}")
    elif one.of == "state" and not any(tools.independent(each.source) for each in found):
        # a candidate's word for its own work is what the judge is there to check
        problems.append(f"criterion {number} rests on the agent's own turns alone")
    return found
