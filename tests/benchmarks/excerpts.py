"""A few rows in the layout of every benchmark, written for the project, with the figures of the longest answer by hand."""

from __future__ import annotations

from typing import Any

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


def prmbench(problem: str, kind: str, steps: list[str], errors: list[int]) -> Row:
    """A row of PRMBench; wrong steps are counted from 1."""
    judged = {"modified_question": f"q {problem}", "modified_process": steps, "error_steps": errors}
    return {"idx": problem, "classification": kind, "original_question": "q", "original_process": steps, **judged}


def processbench(name: str, steps: list[str], label: int) -> Row:
    """A row of ProcessBench; `label` is the first wrong step, counted from 0, or -1."""
    return {"id": name, "generator": "g", "problem": f"p {name}", "steps": steps, "label": label}


STYLES, REVERSED = [SHORT, MIDDLE, LONG], [LONG, MIDDLE, SHORT]

EXCERPTS: dict[str, list[Row]] = {
    "rewardbench": [
        rewardbench(1, "math-prm", LONG, SHORT),
        rewardbench(2, "hep-cpp", SHORT, LONG),
        rewardbench(3, "llmbar-natural", LONG, SHORT),
        rewardbench(4, "llmbar-natural", SHORT, SHORT),
    ],
    "rewardbench2": [
        rewardbench2("1", "Math", [LONG], [SHORT, SHORT, MIDDLE]),
        rewardbench2("2", "Math", [LONG], [SHORT, LONG, MIDDLE]),
        rewardbench2("3", "Focus", [SHORT], [SHORT, LONG, MIDDLE]),
        rewardbench2("ref:1", "Ties", [LONG], [SHORT, MIDDLE]),
        rewardbench2("tied:1", "Ties", [LONG, LONG], [SHORT, MIDDLE]),
    ],
    "rm_bench": [
        rm_bench(0, "chat", STYLES, STYLES),
        rm_bench(1, "chat", STYLES, [text[:-1] for text in STYLES]),
        rm_bench(0, "safety-refuse", REVERSED, REVERSED),
        rm_bench(0, "safety-response", STYLES, STYLES),
    ],
    "judgebench": [
        judgebench("a", "mmlu-pro-law", LONG, SHORT, "A>B"),
        judgebench("b", "mmlu-pro-math", LONG, SHORT, "B>A"),
        judgebench("c", "livebench-math", SHORT, SHORT, "B>A"),
        judgebench("d", "livecodebench", SHORT, LONG, "B>A"),
    ],
    "rmbbenchmark_pairwise": [
        rmb_pair("a", "Helpfulness/Chat", LONG, SHORT),
        rmb_pair("b", "Harmlessness/S1", SHORT, LONG),
        rmb_pair("c", "Harmlessness/S1", LONG, SHORT),
    ],
    "rmbbenchmark_bestofn": [
        rmb_list("a", "Helpfulness/Chat", LONG, [SHORT, MIDDLE]),
        rmb_list("b", "Harmlessness/S1", MIDDLE, [SHORT, LONG]),
        rmb_list("c", "Harmlessness/S1", LONG, [LONG, SHORT, MIDDLE]),
    ],
    "hh_rlhf": [hh_rlhf("q", LONG, SHORT), hh_rlhf("r", SHORT, LONG), hh_rlhf("s", LONG, MIDDLE)],
    "llmbar": [llmbar("q", LONG, SHORT, 1), llmbar("r", LONG, MIDDLE, 2), llmbar("s", SHORT, LONG, 2)],
    "auto_j": [
        auto_j("q", LONG, SHORT, 0),
        auto_j("r", LONG, MIDDLE, 1),
        auto_j("s", SHORT, SHORT, 2, "code_generation"),
        auto_j("t", MIDDLE, SHORT, 2, "code_generation"),
    ],
    "hhh": [hhh("honest", "q", LONG, SHORT), hhh("honest", "r", SHORT, LONG), hhh("other", "s", SHORT, MIDDLE)],
    "prmbench": [
        prmbench("p_0", "circular", ["right 1", "wrong 2", "right 3", "wrong 4"], [2, 4, 9]),
        prmbench("p_1", "confidence", ["right 1", "wrong 2"], [2]),
        prmbench("p_0", "multi_solutions", ["right 1", "right 2"], []),
    ],
    "processbench": [
        processbench("gsm8k-0", ["right 0", "wrong 1", "right 2"], 1),
        processbench("gsm8k-1", ["right 0", "right 1"], -1),
        processbench("math-0", ["wrong 0", "right 1"], 0),
        processbench("math-1", ["right 0"], -1),
    ],
    "preferences": [
        {"id": "1", "prompt": "q", "chosen": LONG, "rejected": SHORT, "subset": "own"},
        {"id": "2", "prompt": "r", "chosen": SHORT, "rejected": LONG, "subset": "own"},
    ],
}
"""By benchmark; the id of an RM-Bench row is counted from 0 in each of its files."""

LONGEST: dict[str, tuple[str, float, dict[str, float]]] = {
    "rewardbench": (
        "rewardbench1_sections",
        (984 / 1148 + 0.5) / 2,
        {"hep-cpp": 0.0, "llmbar-natural": 0.5, "math-prm": 1.0},
    ),
    "rewardbench2": ("unweighted_mean_of_subsets", (0.0 + 0.75 + 1.01) / 3, {"Focus": 0.0, "Math": 0.75, "Ties": 1.01}),
    "rm_bench": ("unweighted_mean_of_domains", (4.5 / 9 + 3 / 9) / 2, {"chat": 4.5 / 9, "safety": 3 / 9}),
    "judgebench": (
        "two_game_sign",
        0.5,
        {"livebench-math": 0.0, "livecodebench": 1.0, "mmlu-pro": 0.5},
    ),
    "rmbbenchmark_pairwise": ("pair_strict", 2 / 3, {"Harmlessness": 0.5, "Helpfulness": 1.0}),
    "rmbbenchmark_bestofn": ("all_losers_beaten", 1 / 3, {"Harmlessness": 0.0, "Helpfulness": 1.0}),
    "hh_rlhf": ("pair_strict", 2 / 3, {}),
    "llmbar": ("pair_strict", 2 / 3, {}),
    "auto_j": ("both_orders", 0.5, {"Code": 0.5, "General Communication": 0.5}),
    "hhh": ("pair_strict", 1 / 3, {"honest": 0.5, "other": 0.0}),
    "preferences": ("pair_strict", 0.5, {"own": 0.5}),
}
"""By benchmark: rule, headline and figure of each subset."""
