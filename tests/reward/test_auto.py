"""Principles are proposed sample by sample, merged by one call, and nothing paid for is thrown
away.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from rm_gallery import ConfigError, DataSample, ParseError
from rm_gallery.core.reward.principle.auto import AutoPrincipleGenerator
from tests.reward.rewards import Listening
from tests.support.samples import make_sample

SAMPLES = [
    make_sample("right", "wrong", query=f"q{i}", unique_id=str(i), chosen=0) for i in range(6)
]
UNLABELLED = make_sample("a", "b")
PROPOSED = '<principles>{"Truth": "It is right.", "Tone": "It is polite."}</principles>'
THREE = '{"Truth": "It is right.", "Care": "It is careful.", "More": "One too many."}'
MERGED = f"```json\n{THREE}\n```"


def run(
    proposal: Any, merged: str, samples: list[DataSample] = SAMPLES, **settings: Any
) -> tuple[dict[str, str], Listening]:
    def reply(question: str) -> str:
        if "<proposals " in question:
            return merged
        return str(proposal(question) if callable(proposal) else proposal)

    judge = Listening(reply=reply)
    settings = {"generate_number": 5, "cluster_number": 2, **settings}
    made = AutoPrincipleGenerator(llm=judge, scenario="chat", **settings)
    with ThreadPoolExecutor(max_workers=1) as pool:
        found = made.run_batch(samples, pool)
        assert (
            found
            == made.run_batch(samples, thread_pool=pool)
            == made.run_batch(samples, executor=pool)
        )
    return found, judge


def test_at_most_the_asked_number_comes_back_in_order() -> None:
    assert run(PROPOSED, MERGED)[0] == {"Truth": "It is right.", "Care": "It is careful."}
    assert run(PROPOSED, MERGED, cluster_number=1)[0] == {"Truth": "It is right."}
    _, judge = run(PROPOSED, MERGED, [*SAMPLES, UNLABELLED], generate_number=1)
    merges = [prompt for prompt in judge.prompts if "<proposals " in prompt]
    assert len(judge.prompts) == 3 * 7
    assert all(prompt.count("Truth: ") == 6 and "Tone" not in prompt for prompt in merges)


def test_the_best_answer_is_named_by_its_place_in_a_seeded_order() -> None:
    places = set()
    for seed in range(8):
        _, judge = run(PROPOSED, MERGED, SAMPLES[:1], seed=seed)
        first = judge.prompts[0].partition("<answer_1 ")[2].splitlines()[1]
        assert f"preferred answer {1 if first == 'right' else 2} to" in judge.prompts[0]
        places.add(first)
    assert places == {"right", "wrong"}


def test_without_a_merged_list_the_most_frequent_proposals_stand_in() -> None:
    def proposal(question: str) -> str:
        odd = {"q0": '{"Rare": "Said once."}', "q1": "no idea"}
        return next((odd[query] for query in odd if query in question), PROPOSED)

    assert run(proposal, "I cannot say.")[0] == {"Truth": "It is right.", "Tone": "It is polite."}
    assert list(run(proposal, "I cannot say.", cluster_number=3)[0]) == ["Truth", "Tone", "Rare"]


@pytest.mark.parametrize(("samples", "error", "message"), [
    (SAMPLES, ParseError, "None of 6 replies held a principle; the first says: .*no principles"),
    ([UNLABELLED], ConfigError, "None of the 1 samples has a chosen and a rejected"),
    ([], ConfigError, "0 samples"),
])  # fmt: skip
def test_failures_are_errors_and_not_an_empty_dict(
    samples: list[DataSample], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        run("nothing of use", "nothing of use", samples)
