"""MT-bench human judgements: experts' votes on two conversations of one or two turns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rm_gallery.core.data.load.converters import RowRef, identity, json_cell, required, text, turns, wrong
from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.utils.errors import DataError
from rm_gallery.gallery.benchmarks.base import ROW
from rm_gallery.gallery.benchmarks.preferences import Votes, voted_outputs

_VOTE = {"model_a": 1, "model_b": -1, "tie": 0, "tie (inconsistent)": 0}


class MTBench(Votes):
    """Agreement with each vote of a person, pooled; several people vote on one pair, and a question has many pairs.

    Conversations are cut after the turn that was voted on, and their last answer is judged. Where the earlier turns of both models are the same they join the
    input; where they differ, as they mostly do, the whole conversation is the answer, its turns marked by speaker.
    """

    name = "mt_bench"
    aliases = ("mt-bench", "mt_bench_human", "mt_bench_human_judgments")
    hub = "lmsys/mt_bench_human_judgments"
    split = "human"
    source = "Zheng et al., Judging LLM-as-a-Judge with MT-Bench and Chatbot Arena, arXiv 2306.05685, section 4.2"
    licence = "CC-BY-4.0"
    version = "votes as published; the paper's setups S1 (with ties) and S2 (without)"
    measures = "how often a judge agrees with an expert's vote on two chat answers"
    sizes = {"human": 3355, "gpt4_pair": 2400}
    layout = {
        "question_id": "whole number; 80 questions",
        "model_a, model_b": "who answered; six models",
        "winner": "model_a, model_b or tie",
        "judge": "who voted",
        "conversation_a, conversation_b": "messages of both turns, whichever was voted on",
        "turn": "1 or 2: the turn the vote is about",
    }
    formula = "without ties: votes that the judge's strict preference is / votes that are no tie; with ties: equal verdicts of three / votes"
    traps = (
        "several people vote on a pair and a question has many pairs, so rows are not independent; intervals are by question",
        "people agree with each other in 81 % of the votes without ties: nothing can be expected far above that",
        "the paper leaves the judge's own ties out, too; here a tie of the judge is no agreement and stays in the denominator",
        "a row about the first turn holds the second one as well; judged whole, the vote is about something else",
        "the split gpt4_pair holds GPT-4's votes, not people's",
        "published as RewardBench's mtbench_human (3,355) and mtbench_gpt4 (2,400)",
    )
    published = (
        ("GPT-4, pairs, with experts", "85 without ties", "arXiv 2306.05685, section 4.2"),
        ("experts with each other", "81 without ties", "arXiv 2306.05685, section 4.2"),
    )

    def detect(self, columns: Mapping[str, Any]) -> bool:
        """Two conversations with a winner."""
        return {"conversation_a", "conversation_b", "winner", "model_a", "model_b"} <= columns.keys()

    def convert(self, row: dict[str, Any], where: RowRef = ROW) -> DataSample:
        """Outputs: conversation a, then b, labelled by the vote; metadata: `subset` (the turn), models, who voted, `cluster`."""
        winner = text(row, "winner", where)
        if winner not in _VOTE:
            raise wrong(where, "winner", "'model_a', 'model_b' or 'tie'", winner)
        said = [_said(row, f"conversation_{side}", where) for side in "ab"]
        shared, answers = _split(*said)
        turn, question = _turn(row, where), identity(row, "question_id", where)
        about = {"subset": f"turn {turn}" if turn else None, "cluster": question or None, "turn": turn}
        about |= {name: row.get(name) for name in ("question_id", "model_a", "model_b", "judge")}
        parts = [question or None, row.get("model_a"), row.get("model_b"), turn, row.get("judge")]
        return DataSample.model_validate(
            {
                "unique_id": ":".join(str(part) for part in parts if part is not None),
                "input": shared,
                "output": voted_outputs(*answers, _VOTE[winner]),
                "task_category": "conversation",
                "source": self.name,
                "metadata": {key: value for key, value in about.items() if value is not None}
                | ({"tie": True} if _VOTE[winner] == 0 else {}),
            }
        )


def _turn(row: Mapping[str, Any], where: RowRef) -> int | None:
    """The turn that was voted on; a table of texts, or of numbers with gaps, may hold it as "1" or 1.0."""
    value = row.get("turn")
    found = int(value) if isinstance(value, str) and value.isdecimal() else value
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, (int, float)) or found != int(found) or found < 1:
        raise wrong(where, "turn", "a whole number of at least 1", value)
    return int(found)


def _said(row: Mapping[str, Any], column: str, where: RowRef) -> list[dict[str, Any]]:
    said = turns(json_cell(required(row, column, where)), column, where)
    turn = _turn(row, where)
    # the vote is about the answer of that turn, and the file holds the later one, too
    said = said[: 2 * turn] if turn else said
    if said[-1]["role"] != "assistant":
        raise DataError(f"{where}, column '{column}': the last turn must be the assistant's, found {said[-1]['role']}")
    return said


def _split(a: list[dict[str, Any]], b: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], tuple[str, str]]:
    """The turns both conversations share, and what each adds: its answer, or all further turns with their speakers."""
    limit = min(len(a), len(b)) - 1
    shared = next((place for place in range(limit) if a[place] != b[place]), limit)
    return a[:shared], (_rest(a[shared:]), _rest(b[shared:]))


def _rest(said: list[dict[str, Any]]) -> str:
    first, *later = [(turn["role"].capitalize(), turn["content"]) for turn in said]
    head = first[1] if first[0] == "Assistant" else f"{first[0]}: {first[1]}"
    return "\n\n".join([head, *(f"{speaker}: {words}" for speaker, words in later)])
