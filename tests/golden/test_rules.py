"""Every rule reward, held against its golden lines: parameters and a sample, and the score, status
and reason it gets.

A line gives `params`, `answer` (a text, pieces of one such as ["yes ", 100], or the fields of a
step), and what else the sample has: `question` or `input`, `steps`, `reference` (in the answer's
label), `label`, `metadata`. Expected are a `score` or a `status` ("unscored", "failed", or
"refused" for parameters) with its `reason`; `tell` asks for a score's reason and extra data, too.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from rm_gallery import BaseReward, ConfigError, DataSample, RewardRegistry
from rm_gallery.core.reward.schema import OF_SCORES
from rm_gallery.core.utils.errors import MissingExtra
from tests.golden.golden import HERE, Line, check, files, lines
from tests.support.system import require_bubblewrap

OUTCOME = ("score", "status", "cause", "reason", "extra")
MODELS = frozenset({"llm", "embeddings", "toxicity", "hub", "train"})
"""What a rule may need that no file can hold: it is then pinned by tests of its own."""
SHARED = frozenset({"name", "max_workers", "deadline", "worst", *OF_SCORES})
"""Fields every reward has; the contracts of rewards are about them."""
SAME_SCORES = {
    "math_verify_reward.in_process": "where plain numbers are compared changes no verdict",
    "calibrated_math.in_process": "where plain numbers are compared changes no verdict",
    "code_execution.packages": "needs a Python of its own to be installed",
    "code_unit_tests.packages": "needs a Python of its own to be installed",
    "final_state.packages": "needs a Python of its own to be installed",
    "final_state.sandbox": "where programs run changes no verdict",
    "code_execution.sandbox": "where code runs changes no verdict",
    "code_unit_tests.sandbox": "where code runs changes no verdict",
    **dict.fromkeys(
        (
            "code_style.timeout",
            "code_syntax_check.timeout",
            "json_schema.timeout",
            "regex_match.timeout",
        ),
        "holds in a process of its own; tests/acceptance/test_no_way_out.py",
    ),
}
"""Fields that change no score, and why."""


@cache
def rules() -> dict[str, type[BaseReward]]:
    """Every registered reward that needs no judge."""
    found = {name: RewardRegistry.get(name) for name in RewardRegistry.list()}
    return {
        name: reward
        for name, reward in found.items()
        if not (reward.needs & MODELS or reward.judged)
    }


def text_of(given: Any) -> Any:
    """A text; a list stands for its pieces one after the other, [piece, times] for one that is
    repeated.
    """
    if isinstance(given, list) and all(isinstance(piece, (str, list)) for piece in given):
        return "".join(piece if isinstance(piece, str) else piece[0] * piece[1] for piece in given)
    return given


def sample_of(line: Line) -> DataSample:
    """The sample a golden line describes."""
    answer = text_of(line.get("answer", ""))
    step = answer if isinstance(answer, dict) else {"content": answer}
    label = {
        **line.get("label", {}),
        **({"reference": line["reference"]} if "reference" in line else {}),
    }
    asked = (
        line.get("input") or [{"role": "user", "content": text_of(line["question"])}]
        if "question" in line
        else []
    )
    return DataSample.model_validate(
        {
            "unique_id": "s",
            "input": line.get("input", asked),
            "output": [
                {
                    "answer": {"role": "assistant", **step, "label": label or None},
                    "steps": line.get("steps"),
                }
            ],
            "metadata": line.get("metadata"),
        }
    )


def outcome(name: str, line: Line) -> Line:
    """What the reward makes of a line, through the registry and `evaluate`."""
    try:
        reward = RewardRegistry.create(name, **line.get("params", {}))
    except ConfigError as error:
        return {"status": "refused", "reason": str(error)}
    given = reward.evaluate(sample_of(line)).output[0].answer.reward
    if given.issues:
        return {
            "status": given.issues[0].status,
            "cause": given.issues[0].cause,
            "reason": given.issues[0].reason,
        }
    extra = given.extra_data.get(reward.name)
    return {
        "score": given.score,
        **({"reason": given.details[0].reason, "extra": extra} if line.get("tell") else {}),
    }


def rows(name: str) -> list[Line]:
    path = HERE / "rules" / f"{name}.jsonl"
    return [line for _, line in lines(path)] if path.exists() else []


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules that keep a processor busy are otherwise sent to another process, which the contracts
    of rewards try.
    """
    for reward in rules().values():
        monkeypatch.setattr(reward, "cpu_bound", False)


def need(name: str) -> None:
    """Skips where a rule's extra or its sandbox is absent."""
    if "sandbox" in RewardRegistry.get(name).model_fields:
        require_bubblewrap()
    try:
        RewardRegistry.create(name).check()
    except MissingExtra as error:
        pytest.skip(str(error))


@pytest.mark.long("much work")
@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize("path", files("rules"))
def test_scores_statuses_and_reasons(path: Path) -> None:
    need(path.stem)
    check(path, lambda line: outcome(path.stem, line), OUTCOME)


@pytest.mark.parametrize("name", rules())
def test_a_rule_has_lines_for_both_ends_and_for_no_score(name: str) -> None:
    if "sandbox" in RewardRegistry.get(name).model_fields:
        require_bubblewrap()
    reward, found = rules()[name], rows(name)
    assert found, f"write tests/golden/rules/{name}.jsonl"
    beyond = [line for line in found if line.get("reason") == "invalid_result"]
    assert not beyond, f"{name} leaves its range {reward.score_range}: {beyond}"
    scores = {line["score"] for line in found if "score" in line}
    low, high = reward.score_range
    if low is not None and high is not None:
        near = (high - low) / 4
        missing = (
            f"no line of {name} comes near {low} or reaches {high}: add one, or mend its "
            f"score_range"
        )
        assert high in scores and min(scores) <= low + near, missing
    else:
        assert {score > 0 for score in scores} | {score < 0 for score in scores} == {True, False}, (
            name
        )
    if unscorable(name):
        assert any(line.get("status") == "unscored" for line in found), (
            f"no line of {name} is unscored"
        )


def unscorable(name: str) -> bool:
    """Whether the example without what it knows, or an empty answer, gets no score."""
    example = rules()[name].example
    assert example is not None
    bare = example.sample.model_copy(deep=True, update={"metadata": None})
    for output in bare.output:
        output.answer.label = None
    empty = example.sample.model_copy(deep=True)
    empty.output[0].answer.content = ""
    samples = rules()[name](**example.params).evaluate_batch([bare, empty])
    return any(
        issue.status == "unscored"
        for s in samples
        for o in s.output
        for issue in o.answer.reward.issues
    )


@pytest.mark.parametrize("name", rules())
def test_two_values_of_each_field_change_what_comes_out(name: str) -> None:
    """Two golden lines of one sample differ in this field alone, and not in it alone: in their
    scores as well.
    """
    fields = rules()[name].model_fields
    silent = []
    for field in (
        fields.keys()
        - SHARED
        - {key.partition(".")[2] for key in SAME_SCORES if key.startswith(f"{name}.")}
    ):
        outcomes: dict[str, dict[str, set[str]]] = {}
        for line in rows(name):
            given = {
                key: value for key, value in line.items() if key not in (*OUTCOME, "params", "tell")
            }
            params = dict(line.get("params", {}))
            default = fields[field].get_default(call_default_factory=True)
            value = json.dumps(params.pop(field, default), default=str)
            found = json.dumps([line.get(key) for key in ("score", "status")])
            outcomes.setdefault(json.dumps([given, params], sort_keys=True), {}).setdefault(
                value, set()
            ).add(found)
        if not any(
            len(set.union(*values.values())) > 1 for values in outcomes.values() if len(values) > 1
        ):
            silent.append(field)
    assert not silent, (
        f"rules/{name}.jsonl: no two lines differ in {sorted(silent)} alone and score differently"
    )


@pytest.mark.parametrize("name", rules())
def test_every_setting_is_part_of_the_description(name: str) -> None:
    for line in rows(name):
        if line.get("status") != "refused":
            described = RewardRegistry.create(name, **line.get("params", {})).describe()
            for field, value in line.get("params", {}).items():
                other = rules()[name].model_fields[field].get_default(call_default_factory=True)
                if value != other:
                    assert described[field] != RewardRegistry.create(name).describe()[field], (
                        f"{name}: {field}"
                    )
