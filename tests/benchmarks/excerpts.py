"""A few rows in the layout of every benchmark, written for the project: those of the golden files, and makers of more."""

from __future__ import annotations

from typing import Any

from tests.golden.golden import HERE, lines

Row = dict[str, Any]
SHORT, MIDDLE, LONG = "No.", "No, it is not.", "No, it is not, and here is at length why."


def turns(*texts: str) -> list[Row]:
    """A conversation that a user begins."""
    return [{"role": ("user", "assistant")[k % 2], "content": text} for k, text in enumerate(texts)]


def rewardbench(number: int, subset: str, chosen: str, rejected: str) -> Row:
    """A row of RewardBench 1."""
    models = {"chosen_model": "a", "rejected_model": "b"}
    return {"id": number, "prompt": f"q{number}", "chosen": chosen, "rejected": rejected, "subset": subset, **models}


def rewardbench2(name: str, subset: str, chosen: list[str], rejected: list[str]) -> Row:
    """A row of RewardBench 2."""
    counts = {"num_correct": len(chosen), "num_incorrect": len(rejected), "total_completions": 4}
    return {"id": name, "prompt": f"q {name}", "chosen": chosen, "rejected": rejected, "subset": subset, **counts}


def rm_bench(number: int, domain: str, chosen: list[str], rejected: list[str]) -> Row:
    """A row of RM-Bench."""
    return {"id": number, "prompt": f"q{number}", "chosen": chosen, "rejected": rejected, "domain": domain}


def judgebench(name: str, source: str, a: str, b: str, label: str) -> Row:
    """A row of JudgeBench."""
    answers = {"response_model": "m", "response_A": a, "response_B": b, "label": label}
    return {"pair_id": name, "original_id": None, "source": source, "question": f"q {name}", **answers}


def rmb_pair(name: str, path: str, chosen: str, rejected: str) -> Row:
    """A pair of RMB."""
    sides = {"chosen": {"llm_name": "x", "answer": chosen}, "reject": {"llm_name": "y", "answer": rejected}}
    return {
        "pair_uid": name,
        "conversation_input": turns(f"q {name}"),
        **sides,
        "category_path": f"Pairwise_set/{path}",
    }


def rmb_list(name: str, path: str, best: str, losers: list[str]) -> Row:
    """A list of RMB."""
    beaten = [{"llm_name": "y", "answer": loser} for loser in losers]
    asked = {"bon_uid": name, "conversation_input": turns(f"q {name}"), "category_path": f"BoN_set/{path}"}
    return {**asked, "bon_best": {"llm_name": "x", "answer": best}, "loser_list": beaten}


def hh_rlhf(question: str, chosen: str, rejected: str) -> Row:
    """A row of HH-RLHF."""
    return {
        side: f"\n\nHuman: {question}\n\nAssistant: {text}"
        for side, text in (("chosen", chosen), ("rejected", rejected))
    }


def llmbar(question: str, first: str, second: str, label: int) -> Row:
    """A row of LLMBar."""
    return {"input": question, "output_1": first, "output_2": second, "label": label}


def auto_j(question: str, first: str, second: str, label: int, scenario: str = "chitchat") -> Row:
    """A row of Auto-J's pairwise test."""
    return {"scenario": scenario, "label": label, "prompt": question, "response 1": first, "response 2": second}


def hhh(subset: str, question: str, better: str, worse: str) -> Row:
    """A row of HHH alignment."""
    return {"subset": subset, "input": question, "targets": {"choices": [better, worse], "labels": [1, 0]}}


def rows_of(name: str, excerpt: bool = False) -> list[Row]:
    """The plain rows of a benchmark's golden file, those without a `case`; or its excerpt, a few with figures done by hand."""
    found = [line for _, line in lines(HERE / "converters" / f"{name}.jsonl")]
    return [line["row"] for line in found if (line.get("excerpt") if excerpt else "case" not in line)]


EXCERPTS: dict[str, list[Row]] = {
    path.stem: rows
    for path in sorted((HERE / "converters").glob("*.jsonl"))
    if (rows := rows_of(path.stem, excerpt=True))
}
"""By benchmark; the id of an RM-Bench row is counted from 0 in each of its files."""
