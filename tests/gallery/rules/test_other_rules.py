"""What golden lines cannot hold about rules: deadlines, absent packages, and values JSON has no word for."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.text import quantities
from rm_gallery.core.text.language import known_language
from rm_gallery.core.utils.errors import ConfigError, MissingExtra
from rm_gallery.gallery.rm.instruction.ifeval import INSTRUCTIONS
from tests.golden.golden import HERE, lines
from tests.support.samples import issues, make_sample, scores


def test_a_pattern_that_takes_for_ever_costs_its_deadline() -> None:
    pattern = r"(a+)+$"
    reward = RewardRegistry.create("regex_match", pattern=pattern)
    assert scores(reward.evaluate(make_sample("aaa"))) == [1.0]  # starts the worker, which takes its time
    stuck = RewardRegistry.create("regex_match", pattern=pattern, deadline=1.0).evaluate(make_sample("a" * 40 + "!"))
    assert issues(stuck) == [("failed", "deadline")]
    assert scores(reward.evaluate(make_sample("aaa"))) == [1.0]


def test_without_pint_plain_numbers_work_and_units_name_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pint", None)
    quantities.forget_units()
    reward = RewardRegistry.create("tolerance_number_match")
    try:
        for answer, reference in [("The answer is 18 eggs.", "18"), ("50%", "0.5"), ("$1,000", "1000 USD")]:
            assert scores(reward.evaluate(make_sample(answer, reference=reference))) == [1.0]
        with pytest.raises(MissingExtra, match="pint"):
            reward.evaluate(make_sample("5 km", reference="5000 m"))
    finally:
        quantities.forget_units()


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_numbers_that_are_none_are_refused_or_unscored(number: float) -> None:
    for name, field in (("tolerance_number_match", "absolute_tolerance"), ("number_accuracy", "tolerance")):
        with pytest.raises(ConfigError, match=f"{field}: Input should be a finite number"):
            RewardRegistry.create(name, **{field: number})
    for metadata in ({"budget": {"cost": 1}, "cost": number}, {"budget": {"cost": number}, "cost": 1}):
        scored = RewardRegistry.create("trajectory_cost").evaluate(make_sample("a", metadata=metadata))
        assert [status for status, _ in issues(scored)] == ["unscored"]


def test_instructions_in_the_arrays_of_a_table_are_read() -> None:
    ids = np.array(["keywords:existence", "length_constraints:number_words"], dtype=object)
    kwargs = np.array([{"keywords": np.array(["a"])}, {"num_words": np.int64(2), "relation": "at least"}], dtype=object)
    sample = make_sample("a b", "b", metadata={"instruction_id_list": ids, "kwargs": kwargs})
    assert scores(RewardRegistry.create("ifeval").evaluate(sample)) == [1.0, 0.0]


def test_every_instruction_has_lines_that_follow_it_and_lines_that_do_not() -> None:
    verdicts = {(line["instruction_id"], line["found"]) for _, line in lines(HERE / "readers/instructions.jsonl")}
    assert verdicts == {(name, verdict) for name in INSTRUCTIONS for verdict in (True, False)}
    assert len(INSTRUCTIONS) == 25


def test_every_language_that_is_told_has_a_line() -> None:
    told = {code for _, line in lines(HERE / "readers/languages.jsonl") for code in line["found"]}
    assert {known_language(line["code"]) for _, line in lines(HERE / "readers/language_codes.jsonl")} - {None} <= told


def test_the_reason_of_a_leak_holds_no_data() -> None:
    scored = RewardRegistry.create("privacy_leakage").evaluate(make_sample("mail zhang@qq.com or 8.8.8.8"))
    told = scored.output[0].answer.reward.model_dump_json()
    assert '"email"' in told and "zhang" not in told
