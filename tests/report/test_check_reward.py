"""`check_reward` and `rm-gallery check-reward`: each flaw of a reward is found by its name, and a sound reward has none."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent, indent
from typing import Any, ClassVar

import pytest

from rm_gallery import BasePointWiseReward, DataSample, RewardDimensionWithScore, RewardResult, reward_function
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.report.check.run import Check, check_reward
from tests.seeds.running import script
from tests.support.command import command

HEAD = """
import asyncio, math, re
from rm_gallery import BasePointWiseReward, EvaluateResult, MetricResult, RewardDimensionWithScore, RewardResult, reward_function
from rm_gallery.envs.reward_helpers import extract_completion_text, extract_strict_answer

def answer(messages):
    return extract_strict_answer(extract_completion_text(messages, which="last"))

def truth(task):
    return (task or {}).get("ground_truth", "-")
"""
ENV = """
class Env:
    async def compute_reward(self, rollout_id, messages, task, **kwargs):
"""
RIGHT = "float(answer(messages) == truth(task))"
ENVIRONMENTS = {
    "sound": (f'return {{"correct": {RIGHT}}}', set()),
    "gated": (
        f'right = {RIGHT}\nreturn {{"correct": right, "short": right * (len(extract_completion_text(messages)) < 90)}}',
        set(),
    ),
    "constant component": (f'return {{"correct": {RIGHT}, "style": 0.5}}', {"constant", "gold_below_full"}),
    "constant": ('return {"style": 0.5}', {"constant", "gold_below_full"}),
    "mirror": (f'right = {RIGHT}\nreturn {{"correct": right, "exact": right}}', {"mirrors"}),
    "below full": (f'return {{"correct": 0.8 * {RIGHT}}}', {"gold_below_full"}),
    "empty": (f'return {{"correct": max({RIGHT}, not extract_completion_text(messages))}}', {"empty_rewarded"}),
    "blank": (f'return {{"correct": max({RIGHT}, not extract_completion_text(messages).strip())}}', {"blank_rewarded"}),
    "stuffed": ('return {"correct": float(truth(task) in extract_completion_text(messages))}', {"stuffed_rewarded"}),
    "all answers": (
        'return {"correct": float(truth(task) in re.findall("<answer>(.*?)</answer>", extract_completion_text(messages)))}',
        {"all_answers_rewarded"},
    ),
    "form only": ('return {"form": float("<answer>" in extract_completion_text(messages))}', {"wrong_rewarded"}),
    "length": (f'return {{"correct": {RIGHT}, "long": len(extract_completion_text(messages)) / 50}}', {"outside_0_1"}),
    "padding": (
        f'return {{"correct": {RIGHT} * min(1, len(extract_completion_text(messages)) / 900)}}',
        {"gold_below_full", "padded_rewarded"},
    ),
    "raises": (
        f'return {{"correct": {RIGHT} / len(extract_completion_text(messages))}}',
        {"raises", "gold_below_full"},
    ),
    "not finite": (f'return {{"correct": {RIGHT} or math.nan}}', {"non_finite"}),
    "no dict": (f"return {RIGHT}", {"invalid_result"}),
    "no score": ("return None", {"nothing_scored"}),
    "needs a task": ('return {"correct": float(answer(messages) == task["ground_truth"])}', {"raises_without_task"}),
}


def written(folder: Path, body: str, name: str = "env.py") -> str:
    (folder / name).write_text(HEAD + body, encoding="utf-8")
    return str(folder / name)


def env(folder: Path, body: str, more: str = "") -> str:
    return written(folder, ENV + indent(body, " " * 8) + "\n" + more)


def names(found: Check) -> set[str]:
    return {finding.name for finding in found.faults}


@pytest.mark.parametrize("flaw", ENVIRONMENTS)
def test_each_flaw_of_an_environment_is_named(tmp_path: Path, flaw: str) -> None:
    body, expected = ENVIRONMENTS[flaw]
    found = names(check_reward(env(tmp_path, body)))
    assert found >= expected
    assert bool(found) is bool(expected)


def test_weights_of_the_training_config_count(tmp_path: Path) -> None:
    file = env(
        tmp_path, f'return {{"correct": {RIGHT}, "empty": float(not extract_completion_text(messages).strip())}}'
    )
    assert {"empty_rewarded", "gold_below_full"} <= names(check_reward(file))
    found = check_reward(file, params={"weights": {"empty": -1.0}})
    assert (names(found), found.full) == (set(), 1.0)


@pytest.mark.parametrize(
    ("gold", "truth", "made"),
    [
        (
            "2+2 is 4: <answer>4</answer>, checked 14 times.",
            "4",
            {
                "truncated": "2+2 is ",
                "hollow": "2+2 is : <answer></answer>, checked 14 times.",
                "wrong": "2+2 is 5: <answer>5</answer>, checked 14 times.",
            },
        ),
        (
            "<answer>C</answer>, as Canada is",
            "C",
            {"truncated": "<answer>", "wrong": "<answer>D</answer>, as Canada is"},
        ),
        ("Paris is it: <answer>Paris</answer>", "Paris", {"hollow": " is it: <answer></answer>", "truncated": None}),
        ("It is 1,000, so <answer>1,000</answer>", "1000", {"truncated": None, "wrong": None, "hollow": None}),
        (
            "答案是巴黎<answer>巴黎</answer>",
            "巴黎",
            {"truncated": "答案是", "wrong": "答案是柏林<answer>柏林</answer>"},
        ),
    ],
)
def test_made_completions_are_what_they_are_called(
    tmp_path: Path, gold: str, truth: str, made: dict[str, str | None]
) -> None:
    found = check_reward(
        env(tmp_path, ENVIRONMENTS["sound"][0]), [{"prompt": "q", "gold": gold, "ground_truth": truth}]
    )
    texts = {one.kind: one.text for one in found.tried}
    assert {kind: texts.get(kind) for kind in made} == made
    assert not [finding for finding in found.faults if finding.name != "gold_below_full" and truth != "1000"]


def test_a_refusal_that_is_right_is_not_called_worthless() -> None:
    cases = [{"prompt": "How do I build a bomb?", "gold": "I cannot help with this request."}]
    found = check_reward("refusal_detection", cases, params={"want": "refusal"})
    assert "refusal_rewarded" not in names(found)


FUNCTIONS = {
    "sound": ('return EvaluateResult(score=float(answer(messages) == ground_truth), reason="")', set()),
    "a number": ("return answer(messages) == ground_truth", set()),
    "lenient": (
        "return float((ground_truth or '-') in messages[-1].text)",
        {"stuffed_rewarded", "all_answers_rewarded"},
    ),
    "raises": ("return 1 / 0", {"raises"}),
}


@pytest.mark.parametrize("flaw", FUNCTIONS)
@pytest.mark.parametrize("mode", ["def", "async def"])
def test_reward_functions_are_checked(tmp_path: Path, flaw: str, mode: str) -> None:
    body, expected = FUNCTIONS[flaw]
    file = written(tmp_path, f"@reward_function\n{mode} score(messages, ground_truth=None, **kwargs):\n    {body}\n")
    assert names(check_reward(file)) == expected


REWARD = """
class Mine(BasePointWiseReward):
    score_range = (-1.0, 1.0)
    def _evaluate(self, sample, **kwargs):
        text = sample.output[0].answer.text
        right = f"[{sample.reference()}]" in text
        return RewardResult(name=self.name, details=[RewardDimensionWithScore(name=self.name, score=1.0 if right else -1.0)])
"""


def test_a_reward_class_with_its_own_cases(tmp_path: Path) -> None:
    cases = 'CASES = [{"prompt": "2 + 2?", "reference": 4, "gold": "so [4]"}, {"prompt": "1 + 1?", "reference": 2, "gold": "[2]"}]'
    found = check_reward(written(tmp_path, REWARD + cases))
    assert names(found) == {"all_answers_rewarded"}
    assert [one.scored.score for one in found.tried if one.kind == "gold"] == [1.0, 1.0]


EXPECT: list[tuple[Any, Any, bool]] = [
    ("<answer>4</answer>", "full", True),
    ("<answer>5</answer>", "full", False),
    ("<answer>5</answer>", "low", True),
    ("<answer>4</answer>", "low", False),
    ("<answer>5</answer>", 0.0, True),
    ("<answer>4</answer>", {"at_most": 0.5}, False),
    ("<answer>4</answer>", {"at_least": 0.5}, True),
    ("<answer>4</answer>", "unscored", False),
    ([{"role": "assistant", "content": None}, {"role": "assistant", "content": "<answer>4</answer>"}], 1, True),
]


@pytest.mark.parametrize(("completion", "expect", "met"), EXPECT)
def test_completions_of_one_s_own_are_held_against_what_is_expected(
    tmp_path: Path, completion: Any, expect: Any, met: bool
) -> None:
    own = {"completion": completion, "name": "mine", "expect": expect}
    case = {"prompt": "2 + 2?", "answer": "4", "gold": "<answer>4</answer>", "completions": [own]}
    (tmp_path / "cases.jsonl").write_text(json.dumps(case) + "\n", encoding="utf-8")
    found = check_reward(env(tmp_path, ENVIRONMENTS["sound"][0]), tmp_path / "cases.jsonl", reference="answer")
    assert names(found) == (set() if met else {"unexpected"})


def test_a_group_of_completions_is_scored_together(tmp_path: Path) -> None:
    more = """
    async def compute_group_reward(self, rollout_ids, messages_list, tasks, **kwargs):
        return [{"place": float(answer(messages) == truth(task)) / 2} for messages, task in zip(messages_list, tasks)]
"""
    found = check_reward(env(tmp_path, 'return {"form": float("<answer>" in extract_completion_text(messages))}', more))
    assert "gold_below_full" in names(found)
    assert {one.kind for one in found.tried} >= {"gold", "empty", "stuffed", "truncated", "repeated", "off-format"}


@pytest.mark.parametrize(
    "name", ["accuracy", "math_verify_reward", "think_format", "boxed_answer", "multiple_choice_letter"]
)
def test_gallery_rewards_pass_on_their_examples(name: str) -> None:
    assert names(check_reward(name)) <= {"repeated_rewarded"}


def test_the_document_s_environments(tmp_path: Path) -> None:
    document = script("004_compute_reward.py")
    sound, lenient = (check_reward(f"{document}:{name}") for name in ("CorrectEnv", "TwoComponentEnv"))
    assert names(sound) == set()
    assert [finding.name for finding in sound.findings] == ["rewarded_without_task"]
    assert names(lenient) == {"stuffed_rewarded", "all_answers_rewarded"}


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda folder: check_reward(str(folder / "absent.py")), "absent.py"),
        (lambda folder: check_reward(written(folder, "x = 1")), "holds none"),
        (
            lambda folder: check_reward(written(folder, ENV + "        return {}\nclass Other(Env): pass\n")),
            "Env, Other",
        ),
        (lambda folder: check_reward(written(folder, ENV + "        return {}\n") + ":Evn"), "Env"),
        (lambda folder: check_reward("no_such_reward"), "no_such_reward"),
        (lambda folder: check_reward("accuracy", []), "no case"),
        (lambda folder: check_reward("accuracy", ["text"]), "row 1"),
        (lambda folder: check_reward("accuracy", [{"prompt": "x", "b": 1}], reference="a"), "columns are: b"),
        (lambda folder: check_reward("accuracy", [{"completions": "x"}]), "completions"),
        (lambda folder: check_reward("accuracy", [{"completions": [{"completion": "", "expct": 1}]}]), "expect"),
        (lambda folder: check_reward("accuracy", [{"completions": [{"completion": "", "expect": "most"}]}]), "'most'"),
        (lambda folder: check_reward("accuracy", ceiling=1.5), "ceiling"),
    ],
)
def test_wrong_use_is_said(tmp_path: Path, make: Any, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        make(tmp_path)


# -- the command -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("flaw", "code"), [("sound", 0), ("stuffed", 1)])
def test_the_command_s_exit_code_and_json(tmp_path: Path, flaw: str, code: int) -> None:
    file = env(tmp_path, ENVIRONMENTS[flaw][0])
    shown = command("check-reward", file)
    assert (shown.code, "stuffed_rewarded" in shown.out) == (code, bool(code))
    done = command("check-reward", file, "--json", "--param", 'weights={"correct": 2}')
    said = json.loads(done.out)
    assert (done.code, said["passed"], said["full"]) == (code, not code, 2.0)
    assert {one["kind"] for one in said["completions"]} >= {"gold", "empty", "stuffed"}


CASE: dict[str, Any] = {"prompt": "What is 40 + 2?", "ground_truth": "42", "gold": "So it is.\n<answer>42</answer>"}


def right(text: str, truth: str) -> float:
    return float(text.strip().endswith(f"<answer>{truth}</answer>"))


def tried(rule: Any, *cases: Any, **settings: Any) -> Check:
    """The check of a function of the answer's text and the truth."""

    @reward_function(score_range=(0, 1))
    def scores(messages: list[Any], ground_truth: str = "", **kwargs: Any) -> Any:
        return rule(messages[-1].text, ground_truth)

    return check_reward(scores, list(cases) or [CASE], **settings)


def notes(found: Check) -> set[str]:
    return {finding.name for finding in found.findings} - names(found)


def worth(share: float, *, of: Any) -> Any:
    return lambda text, truth: share if of(text) else right(text, truth)


def wrong(text: str) -> bool:
    return "<answer>" in text and not right(text, "42")


@pytest.mark.parametrize(
    ("rule", "faults", "also"),
    [
        (right, set(), set()),
        (worth(0.2, of=lambda text: not text), set(), set()),
        (worth(0.3, of=lambda text: not text), {"empty_rewarded", "null_rewarded"}, set()),
        (worth(0.5, of=wrong), set(), {"wrong_rewarded", "all_answers_rewarded", "hollow_rewarded"}),
        (
            worth(0.92, of=wrong),
            {"wrong_rewarded", "all_answers_rewarded", "hollow_rewarded", "truncated_rewarded"},
            set(),
        ),
        (lambda text, truth: right(text, truth) * ("\r" not in text), set(), {"line_ends"}),
        (lambda text, truth: max(right(text, truth), float(text == truth)), set(), {"off_format_accepted"}),
        (lambda text, truth: None if "sorry" in text else right(text, truth), set(), {"unscored"}),
        (lambda text, truth: None if right(text, truth) else 0.0, {"gold_unscored", "constant"}, {"unscored"}),
    ],
    ids=[
        "sound",
        "below the ceiling",
        "above it",
        "half",
        "as good",
        "line ends",
        "bare answer",
        "silent",
        "silent on gold",
    ],
)
def test_what_is_a_fault_and_what_a_note(rule: Any, faults: set[str], also: set[str]) -> None:
    found = tried(rule)
    assert names(found) == faults
    assert notes(found) - {"not_picklable", "rewarded_without_task", "padded_rewarded"} >= also
    assert also or notes(found) <= {"not_picklable"}
    assert "not_picklable" in notes(found)  # a function inside another one
    assert {one.kind for one in found.tried} >= {"gold", "null", "empty", "blank", "wrong", "all answers", "off-format"}


class Distance(BasePointWiseReward):
    """Lower is better: 0 for the right answer, and for an empty one where that is what is wrong with it."""

    score_range: ClassVar[tuple[float | None, float | None]] = (0.0, 1.0)
    higher_is_better: ClassVar[bool] = False
    lenient: bool = False

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        text = sample.output[0].answer.text
        near = right(text, str(sample.reference())) or (self.lenient and not text)
        return RewardResult(name=self.name, details=[RewardDimensionWithScore(name=self.name, score=1.0 - near)])


def test_a_reward_of_which_less_is_better_is_read_the_other_way_round() -> None:
    assert names(check_reward(Distance(), [CASE])) == set()
    assert names(check_reward(Distance(lenient=True), [CASE])) == {"empty_rewarded", "null_rewarded"}


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (f'return {{"correct": {RIGHT}, "missed": 1 - {RIGHT}}}', "mirrors"),
        (f'return {{"correct": {RIGHT}, "minus": -0.5 * (1 - {RIGHT})}}', "outside_0_1"),
    ],
)
def test_components_that_mirror_or_leave_the_range_downwards_are_named(tmp_path: Path, body: str, fault: str) -> None:
    assert fault in names(check_reward(env(tmp_path, body)))


@pytest.mark.parametrize(
    ("expect", "score", "meets"),
    [
        (0.5, 0.5, True), (0.5, 1.0, False), (0.5, 0.0, False), ("full", 1.0, True), ("full", 0.9, False),
        ("low", 0.2, True), ("low", 0.3, False), ("unscored", None, True), ("unscored", "fails", False),
        ({"at_most": 0.5}, 0.6, False), ({"at_least": 0.5}, 0.4, False), ({"at_least": 0.5}, None, False),
    ],
)  # fmt: skip
def test_what_is_expected_of_a_completion_is_held_against_its_outcome(expect: Any, score: Any, meets: bool) -> None:
    own = {"completion": "mine", "name": "own", "expect": expect}
    found = tried(lambda text, truth: score if text == "mine" else right(text, truth), {**CASE, "completions": [own]})
    assert ("unexpected" not in names(found)) is meets


def test_given_cases_win_over_those_of_the_file_and_a_ceiling_is_below_all(tmp_path: Path) -> None:
    file = env(tmp_path, f"return {{'correct': {RIGHT}}}", f"CASES = [{CASE!r}, {CASE!r}]\n")
    assert {one.case for one in check_reward(file).tried} == {"case 1", "case 2"}
    assert {one.case for one in check_reward(file, [CASE]).tried} == {"case 1"}
    with pytest.raises(ConfigError, match="ceiling is 1"):
        tried(right, ceiling=1)


def test_strict_fails_on_notes_too(tmp_path: Path) -> None:
    body = f'bare = extract_completion_text(messages) == truth(task)\nreturn {{"correct": max({RIGHT}, float(bare))}}'
    file = env(tmp_path, body, f"CASES = [{CASE!r}]\n")
    assert [command("check-reward", file, *more).code for more in ((), ("--strict",))] == [0, 1]


def test_wrong_use_of_the_command_is_one_line_and_exit_2(tmp_path: Path) -> None:
    done = command("check-reward", written(tmp_path, dedent(REWARD) + "class Other(Mine): pass\n"))
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert "Mine, Other" in done.err
