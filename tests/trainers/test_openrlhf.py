"""OpenRLHF's own executor gets the scores of `evaluate` from a reward file, and makes tensors of them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rm_gallery import RewardRegistry
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.integrations.openrlhf import openrlhf_reward, response_of
from tests.trainers.environments import run
from tests.trainers.rewards import FEW, ROWS, Parts, as_float32, expected

FILE = """
from rm_gallery.integrations.openrlhf import openrlhf_reward
from tests.trainers.rewards import Parts

reward_func = openrlhf_reward(Parts(), components=["length", "gold"], on_error={on_error!r})
"""


@pytest.fixture
def server() -> Iterator[str]:
    """The address of a server of our own that offers one rule."""
    command = [sys.executable, "-m", "rm_gallery", "serve", "--reward", "math_verify_reward", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        told = process.stderr
        assert told is not None
        try:
            yield next(line for line in told if "serving" in line).split()[-1]
        finally:
            process.terminate()
            told.read()


@pytest.mark.trainers
@pytest.mark.system("openrlhf")
def test_the_executor_gets_the_scores_of_evaluate_from_a_file_and_from_our_server(tmp_path: Path, server: str) -> None:
    policies, sizes = ("worst", "none", "raise"), (len(ROWS), len(FEW), len(FEW))
    files = [tmp_path / f"{name}.py" for name in policies]
    for file, on_error in zip(files, policies, strict=True):
        file.write_text(FILE.format(on_error=on_error), encoding="utf-8")
    where = [*map(str, files), f"{server}/get_reward?on_error=-0.25"]
    asked = {"where": list(zip(where, (*sizes, len(FEW)), strict=True)), "rows": ROWS}
    *answers, served = run("openrlhf", "in_openrlhf.py", asked)
    for on_error, size, answer in zip(policies, sizes, answers, strict=True):
        wanted = expected(Parts())[:size]
        none = -1.0 if on_error == "worst" else None
        assert [each["reward"] for each in answer["told"]] == [none if w.score is None else w.score for w in wanted]
        for told, each in zip(answer["told"], wanted, strict=True):
            if each.score is not None:
                assert told["scores"] == (each.score + 1) / 2
                assert told["extra_logs"] == {**each.components, "unscored": 0.0, "failed": 0.0}
            elif on_error != "raise":
                assert told["extra_logs"][each.status] == 1.0
        given = [w for w in wanted if w.score is not None or on_error == "worst"]
        assert [each["reward"] for each in answer["tensors"]] == [
            [as_float32(-1.0 if w.score is None else w.score)] for w in given
        ]
        assert {len(each["info"]) for each in answer["tensors"]} == {7}
    wanted = expected(RewardRegistry.create("math_verify_reward"), FEW)
    scores = [-0.25 if each.score is None else each.score for each in wanted]
    # OpenRLHF takes the server's list of one as it is and makes a tensor of it
    assert [each["reward"] for each in served["told"]] == [[score] for score in scores]
    assert [each["extra_logs"]["unscored"] for each in served["told"]] == [[float(e.score is None)] for e in wanted]
    assert [each["reward"] for each in served["tensors"]] == [[[as_float32(score)]] for score in scores]


TWICE = (
    "\nQ: Are you sure of that? Think about it once more.\nA: yes\nQ: Are you sure of that? Think about it once more."
)


@pytest.mark.parametrize(
    ("query", "prompt", "response"),
    [
        ("Q: 1?\nA: one<|im_end|>", "Q: 1?\nA:", " one"),
        ("Q: 1?\nA: one</s></s>\n", "Q: 1?\nA:", " one"),
        ("Q: 1?\nA: two </s> three", "Q: 1?\nA:", " two </s> three"),
        ("Q: 1?\nA: one\n<|im_end|>\n<|endoftext|>", "Q: 1?\nA:", " one\n"),
        ("Echo: Q: 1?\nA: one", "Q: 1?\nA:", None),
        ("<s> Q: 1?\nA:one", "Q: 1?\nA:", "one"),  # decoding put a token before it
        ("end of a long prompt\nA:one", "cut: end of a long prompt\nA:", None),
        ("x" * 60 + "\nA:one", "y" * 9 + "x" * 60 + "\nA:", "one"),  # its beginning was cut off
        ("<s> [INST] 2 + 2? [/INST] 4</s>", "<s>[INST] 2 + 2? [/INST]", " 4"),  # blanks that decoding put in
        ("<s><s> [INST] 2 + 2?[/INST]4 </s>", "<s>[INST] 2 + 2? [/INST]", "4 "),
        (f"one  thing{TWICE}\nA:four", f"one thing{TWICE}\nA:", "four"),  # the first turn that ends so is not the last
        (f"ing{TWICE}\nA:four", f"some other thing{TWICE}\nA:", "four"),
        ("Q: 1?\nA: write <s>old</s><|im_end|>", "Q: 1?\nA:", " write <s>old</s>"),
        ("Q: 1?\nA: Paris is the [MASK]<|eot_id|>", "Q: 1?\nA:", " Paris is the [MASK]"),
        ("Q: 1?\nA: it ends with [/INST]</s>", "Q: 1?\nA:", " it ends with [/INST]"),
        ("Q: 1?\nA:<｜tool▁calls▁end｜><｜end▁of▁sentence｜>", "Q: 1?\nA:", "<｜tool▁calls▁end｜>"),
        ("Q: 1?\nA:4<end_of_turn>\n<eos><pad>", "Q: 1?\nA:", "4"),
        ("something else", "Q: 1?\nA:", None),
        ("all of it", "", "all of it"),
        ("Q", "Q", ""),
    ],
)
def test_the_response_is_what_follows_the_prompt(query: str, prompt: str, response: str | None) -> None:
    assert response_of(query, prompt) == response


def test_a_query_without_its_prompt_fails_instead_of_being_judged_with_it() -> None:
    given = openrlhf_reward("math_verify_reward")(["4", "q 4"], ["q ", "q "], ["4", "4"])
    assert given["rewards"] == [0.0, 1.0]
    assert given["extra_logs"] == {"unscored": [0.0, 0.0], "failed": [1.0, 0.0]}


def test_a_prompt_that_the_labels_do_not_have_is_named() -> None:
    reward = openrlhf_reward("math_verify_reward", json_label=True, reference="gold", prompt="query")
    with pytest.raises(ConfigError, match=r"no key 'query' \(prompt=\); the keys are: gold, question"):
        reward(["q 4"], ["q "], ['{"gold": "4", "question": "2+2?"}'])


def test_labels_of_json_are_columns() -> None:
    reward = openrlhf_reward("math_verify_reward", json_label=True, reference="gold", prompt="question")
    given = reward(["q 4"], ["q "], ['{"gold": "4", "question": "2+2?"}'])
    assert given == {"rewards": 1.0, "scores": 1.0, "extra_logs": {"unscored": 0.0, "failed": 0.0}}
