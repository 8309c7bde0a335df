"""Counts how often a verifier is wrong on the labelled answers below `tests/golden/labelled`,
beside other verifiers.

python tools/scorecards.py writes what Math-Verify and TRL say of them into the files, where they
are installed as named below.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

from scipy.stats import binomtest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from rm_gallery import DataOutput, DataSample, RewardRegistry, RunOptions, Step  # noqa: E402

Case = dict[str, Any]
LABELLED = ROOT / "tests" / "golden" / "labelled"
PASS = 0.5


def last_number(case: Case) -> bool:
    """Whether the last number of the answer, or its last line, is the reference."""
    numbers = re.findall(r"-?\d+(?:\.\d+)?", case["answer"].replace(",", ""))
    return case["reference"] in (*numbers[-1:], *case["answer"].strip().splitlines()[-1:])


def last_letter(case: Case) -> bool:
    """Whether the last capital letter that stands alone is the reference."""
    return re.findall(r"\b[A-D]\b", case["answer"])[-1:] == [case["reference"]]


def contained(case: Case) -> bool:
    """Whether the answer holds the reference."""
    return str(case["reference"]).lower() in case["answer"].lower()


SETS: dict[str, tuple[str, str, Callable[[Case], bool]]] = {
    "math_verify_reward": ("maths", "the last number is the reference", last_number),
    "multiple_choice_letter": ("letters", "the last letter is the reference", last_letter),
    "tolerance_number_match": ("quantities", "the reference stands in the answer", contained),
    "choice_match": ("choices", "the reference stands in the answer", contained),
}
"""By reward: its labelled answers, and the naive rule beside it, in words and in code."""
OTHERS = {
    "math_verify": ("math-verify", "0.9.0", "Math-Verify"),
    "trl": ("trl", "1.16.0", "`accuracy_reward` of TRL"),
}
"""Verifiers whose verdicts stand in the files, since not every machine has them: package, version
and name.
"""


def labelled(name: str) -> list[Case]:
    """The labelled answers of one file."""
    return [
        json.loads(line)
        for line in (LABELLED / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    ]


def verdicts(reward: str, cases: Iterable[Case]) -> list[bool]:
    """Whether the reward lets each answer pass; what it cannot score does not."""
    asked = [
        DataSample(
            unique_id=str(number),
            output=[DataOutput(answer=Step(role="assistant", content=case["answer"]))],
            metadata={
                name: value for name, value in case.items() if name in ("reference", "choices")
            },
        )
        for number, case in enumerate(cases)
    ]
    built = RewardRegistry.create(reward)
    done = built.evaluate_batch(asked, options=RunOptions(progress=False))
    scores = [built.score_of_output(sample.output[0]) for sample in done]
    return [score is not None and score >= PASS for score in scores]


def scorecard(reward: str) -> tuple[str, list[list[str]]] | None:
    """What the figures rest on, and a row per verifier: wrong answers that pass and right ones that
    do not, with 95 % intervals.

    None for a reward without labelled answers.
    """
    if reward not in SETS:
        return None
    name, words, naive = SETS[reward]
    cases = labelled(name)
    said = {f"`{reward}`": verdicts(reward, cases)}
    said |= {
        f"{shown} {version}": [bool(case[key]) for case in cases]
        for key, (_, version, shown) in OTHERS.items()
        if key in cases[0]
    }
    said[f"naive: {words}"] = [naive(case) for case in cases]
    right = [bool(case["right"]) for case in cases]
    rows = []
    for shown, passed in said.items():
        pairs = list(zip(passed, right, strict=True))
        false_1, false_0 = sum(p and not r for p, r in pairs), sum(r and not p for p, r in pairs)
        rows.append(
            [shown, *_rate(false_1, right.count(False)), *_rate(false_0, right.count(True))]
        )
    return f"{right.count(True)} right and {right.count(False)} wrong answers", rows


def _rate(count: int, n: int) -> list[str]:
    low, high = binomtest(count, n).proportion_ci(method="wilson")
    return [f"{count} of {n}", f"{100 * low:.0f} – {100 * high:.0f} %"]


def others_say(case: Case) -> dict[str, int]:
    """What those verifiers that are installed here in that version say of a mathematical answer: 1
    right, 0 wrong or nothing.
    """
    wanted, answer = f"${case['reference']}$", case["answer"]
    found = {}
    for key, (package, version, _) in OTHERS.items():
        if _version(package) != version:
            continue
        if key == "trl":
            from trl.rewards import accuracy_reward  # type: ignore[import-not-found,import-untyped,unused-ignore]

            found[key] = int(
                accuracy_reward([[{"role": "assistant", "content": answer}]], [wanted])[0] or 0
            )
        else:
            from math_verify import parse, verify  # type: ignore[import-untyped,unused-ignore]

            found[key] = int(verify(parse(wanted), parse(answer)))
    return found


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def main() -> None:
    """Write down what the others say."""
    cases = [{**case, **others_say(case)} for case in labelled("maths")]
    lines = [json.dumps(case, ensure_ascii=False) + "\n" for case in cases]
    (LABELLED / "maths.jsonl").write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
