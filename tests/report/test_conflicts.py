"""Contradictions and cycles are found, counted with what they rest on, and never read out of
garbage.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations, product
from typing import Any

import pytest

from rm_gallery import BaseListWiseReward, DataSample, FakeLLM, RewardResult, conflicts
from rm_gallery.core.reward.base import BaseListWiseRubricReward, BasePairWiseRubricReward
from rm_gallery.study.conflicts import EXAMPLES, cycles, transitive
from tests.reward.rewards import ranked
from tests.support.judge_server_prompts import extract_candidates
from tests.support.samples import make_sample

Judge = Callable[[str], str]


def samples(n: int, answers: int = 4) -> list[DataSample]:
    texts = [[f"answer {k} of {i}" for k in range(answers)] for i in range(n)]
    return [
        make_sample(*own, query=f"Question {i}", unique_id=f"s{i}") for i, own in enumerate(texts)
    ]


def number(text: str) -> int:
    return int(text.split()[1])


def prefers(better: Callable[[int, int], bool]) -> Judge:
    """Names the first answer where it is better than the second."""

    def judge(question: str) -> str:
        first, second = (number(text) for text in extract_candidates(question))
        return f"<best>{1 if better(first, second) else 2}</best>"

    return judge


SOUND = prefers(lambda a, b: a > b)
ALWAYS_FIRST = prefers(lambda a, b: True)
CIRCLE = prefers(lambda a, b: (a - b) % 4 == 1 if (a - b) % 2 else a > b)
"""1 beats 0, 2 beats 1, 3 beats 2 and 0 beats 3: whatever the order."""


def rates(
    judge: Judge, kind: type[Any] = BasePairWiseRubricReward, n: int = 12, **fields: Any
) -> dict[str, Any]:
    found = conflicts(
        kind(name="judge", llm=FakeLLM(reply=judge), **fields), samples(n), progress=False
    )
    return {
        "scored": found.n_scored,
        **{name: figure.value for name, figure in found.figures.items()},
    }


@pytest.mark.parametrize("kind", [BasePairWiseRubricReward, BaseListWiseRubricReward])
@pytest.mark.parametrize(("judge", "expected"), [
    (SOUND, {"conflict": 0.0, "symmetry": 1.0, "transitivity": 1.0, "cycle": 0.0, "first_place": None}),
    (ALWAYS_FIRST, {"conflict": 1.0, "symmetry": 0.0, "transitivity": 1.0, "cycle": 0.0, "first_place": 1.0}),
    (CIRCLE, {"conflict": 1.0, "symmetry": 1.0, "transitivity": 0.5, "cycle": 1.0, "first_place": None}),
], ids=["sound", "always first", "in a circle"])  # fmt: skip
def test_a_judge_is_described_by_its_rates(
    judge: Judge, expected: dict[str, Any], kind: type[Any]
) -> None:
    assert rates(judge, kind) == {"scored": 12, **expected}


def test_garbage_is_unscored_and_no_absence_of_conflicts() -> None:
    reward = BasePairWiseRubricReward(
        name="judge", llm=FakeLLM(reply="I would rather not."), repair_attempts=0
    )
    found = conflicts(reward, samples(5), progress=False)
    assert (found.n, found.n_scored, dict(found.lost)) == (5, 0, {"unscored": 5})
    assert {figure.value for figure in found.figures.values()} == {None}
    assert [(key, reason["n"]) for key, reason in found.reasons.items()] == [("unscored: parse", 5)]
    assert rates(ALWAYS_FIRST, both_orders=False)["symmetry"] == 0.0, (
        "one order alone is asked in both all the same"
    )


def test_a_sample_with_one_missing_verdict_is_left_out_and_intervals_count_samples() -> None:
    def judge(question: str) -> str:
        texts = extract_candidates(question)
        return (
            "no"
            if any(text.endswith("of 3") and number(text) == 2 for text in texts)
            else SOUND(question)
        )

    reward = BasePairWiseRubricReward(name="judge", llm=FakeLLM(reply=judge), repair_attempts=0)
    found = conflicts(reward, samples(13), progress=False)
    figure = found.figures["symmetry"]
    assert (found.n_scored, dict(found.lost), found.figures["conflict"].n) == (
        12,
        {"unscored": 1},
        12,
    )
    assert (figure.n, figure.clusters) == (72, 12) and figure.ci95 is not None
    # twelve clusters know less than twelve rows, of which it would be 12 / (12 + 1.96²) = .76
    assert 0.7 < figure.ci95.low < 0.75


class Positional(BaseListWiseReward):
    """A rule that favours what comes first."""

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        return ranked("p", *(float(-place) for place in range(len(sample.output))))


def test_a_rule_may_care_about_places_too() -> None:
    found = conflicts(
        Positional(name="positional"), samples(EXAMPLES + 1, answers=3), progress=False
    )
    assert (found.figures["symmetry"].value, found.figures["first_place"].value) == (0.0, 1.0)
    assert len(found.examples) == EXAMPLES
    assert found.examples[0] == {
        "id": "s0",
        "contradictory": [[1, 2], [1, 3], [2, 3]],
        "cycles": [],
    }


def test_two_answers_cannot_form_a_cycle_and_do_not_thin_the_rate() -> None:
    mixed = [*samples(6, answers=2), *samples(12)[6:]]
    reward = BasePairWiseRubricReward(name="judge", llm=FakeLLM(reply=CIRCLE))
    figures = conflicts(reward, mixed, progress=False).figures
    assert (figures["cycle"].n, figures["cycle"].value, figures["conflict"].n) == (6, 1.0, 12)


def brute_force(n: int, verdicts: dict[tuple[int, int], int]) -> bool:
    """Whether some assignment of places, equal ones allowed, gives these verdicts."""
    for places in product(range(n), repeat=n):
        if all(
            (places[j] > places[i]) - (places[j] < places[i]) == v for (i, j), v in verdicts.items()
        ):
            return True
    return False


def test_transitivity_of_three_is_that_some_order_fits() -> None:
    pairs = [(0, 1), (0, 2), (1, 2)]
    for verdicts in product((-1, 0, 1), repeat=3):
        graph = dict(zip(pairs, verdicts, strict=True))
        assert transitive(graph, 0, 1, 2) == brute_force(3, graph), graph


def test_without_ties_a_cycle_is_that_no_order_fits() -> None:
    pairs = list(combinations(range(4), 2))
    for verdicts in product((-1, 1), repeat=6):
        edges = [pair if v > 0 else pair[::-1] for pair, v in zip(pairs, verdicts, strict=True)]
        assert bool(cycles(4, edges)) != brute_force(4, dict(zip(pairs, verdicts, strict=True)))
    assert cycles(5, [(0, 1), (1, 2), (2, 0), (3, 4)]) == [[0, 1, 2]]
