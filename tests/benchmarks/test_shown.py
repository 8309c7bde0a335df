"""What a judge is shown of a benchmark's rows where a mode says so."""

from __future__ import annotations

from typing import Any

from rm_gallery import DataSample, evaluate
from rm_gallery.gallery.benchmarks.base import get_benchmark
from tests.benchmarks.excerpts import rows_of
from tests.benchmarks.judges import Two


def shown_to_a_judge(name: str, mode: str | None) -> tuple[list[DataSample], tuple[str, ...]]:
    """The samples that a comparing judge is asked about, and the notes of its report."""
    seen: list[DataSample] = []

    def judge(sample: DataSample) -> list[float]:
        seen.append(sample)
        return [1.0, 0.0]

    reward: Any = Two(judge=judge)
    report = evaluate(reward, rows_of(name)[:1], get_benchmark(name, mode), progress=False)
    return seen, report.notes


def test_a_transcript_holds_every_turn_of_a_trajectory() -> None:
    seen, notes = shown_to_a_judge("planrewardbench", "transcript")
    whole = (
        '[{"name": "weather", "arguments": "{\\"town\\": \\"Bath\\"}"}]\n\n'
        "Tool: Bath: rain\n\nAssistant: It rains in Bath, so take an umbrella."
    )
    assert whole in [output.answer.text for output in seen[0].output] and notes == ()


def test_steps_stand_apart_and_the_report_says_so() -> None:
    seen, notes = shown_to_a_judge("planrewardbench", None)
    by_answer = {output.answer.text: output.steps or [] for output in seen[0].output}
    call, result = by_answer["It rains in Bath, so take an umbrella."]
    assert call.tool_calls and call.tool_calls[0].function.arguments == '{"town": "Bath"}'
    assert (result.role.value, result.name, result.text) == ("tool", "weather", "Bath: rain")
    assert (seen[0].metadata or {})["tools"][0]["function"]["name"] == "weather"
    assert "--mode transcript" in notes[0]


def test_rubrics_of_people_are_shown_by_their_mode_alone() -> None:
    contexts = {
        mode: shown_to_a_judge("rubricbench", mode)[0][0].input[-1].additional_kwargs.get("context")
        for mode in (None, "human_rubrics")
    }
    assert contexts == {None: None, "human_rubrics": "1. Is ask 1 met?\n2. Is it short?"}
