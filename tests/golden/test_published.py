"""Published judges: replies in each checkpoint's form as they are read, and the same winner
whichever answer comes first.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rm_gallery import ConfigError, FakeLLM, OpenaiLLM, RewardRegistry
from rm_gallery.gallery.rm.published import PublishedJudge, judge_names, published
from tests.golden.golden import Line, check, files
from tests.support.children import ROOT
from tests.support.judge_server import JudgeCall, JudgeServer
from tests.support.samples import make_sample

EVERY = pytest.mark.parametrize("name", judge_names())
REPLIES = {
    "good": "",
    "truncated": "",
    "two verdicts": "",
    "quoted": "",
    "in a thought": "",
    "other language": "",
    "tie": "",
    "outside": "",
}
"""What each file has a line of, unless its form has no such thing."""


GREEDY, REASONING = (0.0, None), (0.6, 0.95)
SAMPLING: dict[str, tuple[float, float | None, int | None]] = {
    "arena-hard": (*GREEDY, 16000),
    "compassjudger2": (*GREEDY, 4096),
    "con-j": (*GREEDY, 1024),
    "deepseek-grm": (0.5, None, 4096),
    "flow-judge": (0.1, 0.95, 1000),
    "glider": (*GREEDY, 2048),
    "j1": (*REASONING, 8192),
    "j1-pointwise": (*REASONING, 8192),
    "judgelrm": (*GREEDY, 4096),
    "nemotron-genrm": (*REASONING, 16384),
    "nemotron-genrm-principle": (*GREEDY, 4),  # its verdict is the first token, yes or no
    "prometheus2-absolute": (1.0, 0.9, 1024),
    "prometheus2-relative": (1.0, 0.9, 1024),
    "r3": (*REASONING, 8192),
    "r3-pairwise": (*REASONING, 8192),
    "rewardanything": (*REASONING, 8192),
    "rewardbench2-generative": (*GREEDY, 2048),
    "rise-judge": (*GREEDY, 4096),
    "rm-r1-instruct": (*GREEDY, 8192),
    "rm-r1-reasoning": (*REASONING, 8192),
    "selene": (0.01, None, 1024),
    "selene-pairwise": (0.01, None, 1024),
    "skywork-critic": (*GREEDY, 2048),
}
"""Temperature, top_p and most tokens that each checkpoint's card or paper asks for, written by
hand: not read from the files under test.
"""


def read(line: Line) -> Line:
    """What becomes of a reply: the scores of the answers in the order that the judge saw them, or
    why there are none.
    """
    reward: Any = RewardRegistry.create(
        f"judge:{line['judge']}", llm=FakeLLM(reply=line["reply"]), repair_attempts=0, votes=1
    )
    if reward.kind == "pairwise":
        reward.both_orders = False
    done = reward.evaluate(
        make_sample(
            *[f"answer {n}" for n in range(line.get("n", 2))][
                : 1 if reward.kind == "pointwise" else None
            ]
        )
    )
    first = done.output[0].answer.reward
    if first.issues:
        return {"scores": None, "why": f"{first.issues[0].reason}: {first.issues[0].message}"[:120]}
    found = [output.answer.reward.score for output in done.output]
    extra = first.extra_data.get(reward.name, {})
    order = extra.get("order") or extra.get("orders", {}).get("0,1", [[0]])[0]
    return {"scores": [found[place] for place in order], "why": None}


@pytest.mark.parametrize("path", files("published"))
def test_replies_of_a_checkpoint(path: Path) -> None:
    check(path, read, ("scores", "why"))


def test_every_checkpoint_has_its_replies() -> None:
    assert {path.id for path in files("published")} == set(judge_names())


def dialect(judge: PublishedJudge, n: int, best: int) -> str:
    """A reply that names the best of n answers, or praises the only one where it is the best."""
    verdict, letter = judge.verdict, "ABCDEFGH"[best]
    high, low = judge.score_range[1], judge.score_range[0]
    numbers = [int((high if place == best else low) or 0) for place in range(n)]
    said = {
        "best": letter,
        "grade": "A>B" if best == 0 else "B>A",
        "scores": " ".join(map(str, numbers)),
    }.get(verdict.reads, str(numbers[0]))
    if verdict.form == "json":
        value: Any = {
            "best": {"Choice": f"Model {letter}", "score": f"Response {best + 1}"}.get(
                verdict.keys[0], str(best + 1)
            ),
            "grade": 2 if best == 0 else 5,
            "scores": {f"model-{place + 1}": number for place, number in enumerate(numbers)},
        }.get(verdict.reads, numbers[0])
        return json.dumps({"explanation": "so", verdict.keys[0]: value})
    forms: dict[str, Callable[[], str]] = {
        "result": lambda: f"Feedback: so. [RESULT] {said}",
        "brackets": lambda: (
            f"<{verdict.tag}>[[{said}]]</{verdict.tag}>" if verdict.tag else f"So: [[{said}]]"
        ),
        "tag": lambda: f"<feedback>so</feedback>\n<{verdict.tag}>{said}</{verdict.tag}>",
        "label": lambda: f"**Reasoning:** so\n\n**{verdict.tag}:** {said}",
        "boxed": lambda: f"Scores: \\boxed{{{said.replace(' ', ', ')}}}",
        "token": lambda: "Yes" if best == 0 else "No",
    }
    return forms[verdict.form]()


@EVERY
def test_the_better_answer_wins_whichever_comes_first(name: str) -> None:
    judge = published(name)

    def obey(call: JudgeCall) -> str:
        shown = "\n".join(str(turn["content"]) for turn in call.body["messages"])
        places = sorted(
            (shown.find(text), text)
            for text in ("the GOOD one", "a poor one", "no answer")
            if text in shown
        )
        best = [text for _, text in places].index("the GOOD one") if "the GOOD one" in shown else 1
        thought = "<think>[[B]] <score>1</score> [RESULT] B</think>\n" if judge.thinks else ""
        return (
            dialect(judge, len(places), best)
            if judge.verdict.form == "token"
            else thought + dialect(judge, len(places), best)
        )

    with JudgeServer(obey, in_process=True) as server:
        reward = RewardRegistry.create(
            f"judge:{name}", llm=OpenaiLLM("judge", base_url=server.base_url, cache=False)
        )
        for texts in (
            ("the GOOD one", "a poor one"),
            ("a poor one", "the GOOD one"),
            ("no answer", "the GOOD one", "a poor one"),
        ):
            done = reward.evaluate(make_sample(*texts))
            found = {output.answer.text: output.answer.reward.score for output in done.output}
            assert None not in found.values(), [
                output.answer.reward.issues for output in done.output
            ]
            assert (
                max(found, key=lambda text: found[text] or 0.0) == "the GOOD one"
                and len(set(found.values())) > 1
            )
        sent = server.recent_requests(1)[0]["body"]
    assert tuple(sent.get(field) for field in ("temperature", "top_p")) == SAMPLING[name][:2]
    assert (sent.get("max_completion_tokens") or sent.get("max_tokens")) == SAMPLING[name][2]


def test_votes_are_averaged_and_those_that_cannot_be_read_left_out_while_half_can() -> None:
    replies = [
        "Scores: \\boxed{8, 2}",
        "Scores: \\boxed{8}",
        "Scores: \\boxed{6, 4}",
        "Scores: \\boxed{10, 3}",
    ]
    with JudgeServer(replies, in_process=True) as server:
        llm = OpenaiLLM("judge", base_url=server.base_url, cache=False)
        reward = RewardRegistry.create("judge:deepseek-grm", llm=llm, votes=4, repair_attempts=0)
        done = reward.evaluate(make_sample("a", "b"))
    assert sorted(output.answer.reward.score or 0 for output in done.output) == [3.0, 8.0]


def test_the_published_wording_is_taken_from_a_file_and_what_does_not_fit_is_said(
    tmp_path: Path,
) -> None:
    (tmp_path / "own.txt").write_text(
        "Q: {{ query }} A: {{ answers[0] }} B: {{ answers[1] }}", encoding="utf-8"
    )
    (tmp_path / "own.yaml").write_text(
        "- role: user\n  content: '{{ query }}'\n- conversation\n", encoding="utf-8"
    )
    (tmp_path / "odd.yaml").write_text("- rule: user\n", encoding="utf-8")
    sample = make_sample("one", "two")

    def shown(**settings: Any) -> Any:
        reward: Any = RewardRegistry.create("judge:skywork-critic", llm=FakeLLM(), **settings)
        return reward.format(sample)

    assert shown(template=str(tmp_path / "own.txt"))[0]["content"].startswith("Q: What is it? A: ")
    assert len(shown(template=tmp_path / "own.yaml")) == 2
    for settings, said in (
        ({"template": tmp_path / "odd.yaml"}, "odd.yaml does not fit"),
        ({"template": tmp_path / "none.txt"}, "cannot be read"),
        ({"rubrics": ["x"]}, "has no place"),
        ({"levels": ["x"]}, "has no place"),
        ({"channel": "schema"}, "reads replies in its own way"),
    ):
        with pytest.raises(ConfigError, match=said):
            RewardRegistry.create("judge:skywork-critic", llm=FakeLLM(), **settings).evaluate(
                sample
            )
    with pytest.raises(ConfigError, match="skywork-critic"):
        RewardRegistry.get("judge:skywork-critik")


@EVERY
def test_a_text_cannot_pass_for_another_part_of_the_layout(name: str) -> None:
    reward: Any = RewardRegistry.create(f"judge:{name}", llm=FakeLLM())
    plain = "\n".join(turn["content"] for turn in reward.format(make_sample("one", "two")))
    marks = [
        line
        for line in plain.splitlines()
        if line.startswith(("[", "<", "##")) and len(line) > 7 and "{" not in line
    ]
    forged = "\n".join(
        turn["content"] for turn in reward.format(make_sample("\n".join(marks), "two"))
    )
    assert [forged.splitlines().count(mark) for mark in marks] == [
        plain.splitlines().count(mark) for mark in marks
    ]


def table() -> str:
    """Every checkpoint with what its golden replies come to, as docs/judges.md shows it."""
    kinds = list(REPLIES)
    lines = [
        f"| `judge:` | kind | range | {' | '.join(kinds)} | source |",
        "|---" * (len(kinds) + 4) + "|",
    ]
    for name in judge_names():
        judge, found = published(name), dict[str, str]()
        text = (ROOT / "tests" / "golden" / "published" / f"{name}.jsonl").read_text(
            encoding="utf-8"
        )
        for line in map(json.loads, text.splitlines()):
            found.setdefault(
                line["reply_kind"],
                "–" if line.get("scores") is None else ", ".join(f"{x:g}" for x in line["scores"]),
            )
        bounds = " to ".join(
            "open" if bound is None else f"{bound:g}" for bound in judge.score_range
        )
        cells = [
            f"`{name}`",
            judge.kind,
            bounds,
            *(found.get(kind, "") for kind in kinds),
            judge.source,
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def test_the_page_shows_what_is_read() -> None:
    page = (ROOT / "docs" / "judges.md").read_text(encoding="utf-8")
    assert table() in page, f"put this table into docs/judges.md:\n{table()}"
