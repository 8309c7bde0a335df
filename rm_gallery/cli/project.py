"""`rm-gallery init`: a project with a reward, its test and a CI file."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from rm_gallery._version import __version__
from rm_gallery.cli import options as opt
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.core.utils.file import write_whole

REWARD = '''"""A reward of our own: the right number between <answer> tags, at the end."""

from rm_gallery import reward_function


@reward_function(score_range=(0, 1))
def right_answer(messages, ground_truth, **kwargs):
    """1 when the answer ends with the right value in its tags, else 0."""
    return float(messages[-1].text.strip().endswith(f"<answer>{ground_truth}</answer>"))
'''
TEST = '''"""The reward says what we mean, and orders labelled answers as people do."""

import pytest
from reward import right_answer

QUESTION = {"role": "user", "content": "What is 40 + 2?"}


@pytest.mark.parametrize(
    ("answer", "score"),
    [("It is <answer>42</answer>", 1.0), ("It is <answer>43</answer>", 0.0), ("42", 0.0), ("", 0.0)],
)
def test_what_an_answer_gets(answer, score):
    messages = [QUESTION, {"role": "assistant", "content": answer}]
    assert right_answer(messages=messages, ground_truth="42").score == score


@pytest.mark.reward_gate("func:reward.py:right_answer", "labelled.jsonl", at_least=0.9, beats=["longest", "shortest", "chance"])
def test_it_prefers_what_people_prefer(reward_gate):
    reward_gate()
'''
SETTINGS = """# Options of every command; `rm-gallery COMMAND --dry-run` prints what holds and where it comes from.
# llm = "qwen3-32b"
# base_url = "http://127.0.0.1:8000/v1"
seed = 0

[check-reward]
cases = "cases.jsonl"
strict = true
"""
WORKFLOW = """name: rewards
on: [push, pull_request]
jobs:
  rewards:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with:
          python-version: "3.12"
      - run: python -m pip install -r requirements.txt
      - run: python -m pytest
      - run: rm-gallery check-reward reward.py
"""
README = """# Our rewards

    python -m pytest                       # the reward's own test, and a gate on labelled answers
    rm-gallery check-reward reward.py      # tries the reward with answers that game it
    rm-gallery eval func:reward.py:right_answer labelled.jsonl

`reward.py` is the reward, `labelled.jsonl` answers with people's choice, `cases.jsonl` tasks with a right answer,
`rm-gallery.toml` the options of the commands, `.github/workflows/rewards.yml` what runs on each push.
"""
SUMS = [(40, 2), (7, 5), (12, 30), (9, 8), (16, 6), (21, 3)]


@opt.grouped()
def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR")],
) -> None:
    """Make a project: a reward, its test, labelled answers, settings and a CI file; nothing that is
    there is overwritten.

    Args:
        folder: Folder to make, or to add the files to.
    """
    files = {
        "reward.py": REWARD,
        "test_reward.py": TEST,
        "labelled.jsonl": _lines(_labelled(a, b) for a, b in SUMS),
        "cases.jsonl": _lines(_case(a, b) for a, b in SUMS[:3]),
        "rm-gallery.toml": SETTINGS,
        "requirements.txt": (
            f"# a wheel or a checkout will do as well: write its path "
            f"instead\nrm-gallery-rewards>={__version__}\npytest\n"
        ),
        "README.md": README,
        ".github/workflows/rewards.yml": WORKFLOW,
    }
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file; name a folder.")
    taken = [name for name in files if (folder / name).exists()]
    if taken:
        raise ConfigError(f"{folder} holds {', '.join(taken)} already; name another folder.")
    for name, text in files.items():
        try:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            write_whole(folder / name, text.encode())
        except OSError as error:
            raise ConfigError(f"{folder / name} cannot be written: {error.strerror}.") from None
        typer.echo(str(folder / name))
    typer.echo(
        f"Try it: cd {folder} && rm-gallery check-reward reward.py && python -m pip install -r "
        f"requirements.txt && python -m pytest",
        err=True,
    )


def _lines(rows: Iterable[dict[str, object]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def _labelled(a: int, b: int) -> dict[str, object]:
    right, wrong = (f"{a} + {b} = {n}, so <answer>{n}</answer>" for n in (a + b, a + b + 1))
    # length says nothing
    pair = ("Let me add. " + right, wrong) if a % 2 else (right, "Let me add. " + wrong)
    return {
        "prompt": f"What is {a} + {b}?",
        "chosen": pair[0],
        "rejected": pair[1],
        "ground_truth": str(a + b),
    }


def _case(a: int, b: int) -> dict[str, object]:
    return {
        "prompt": f"What is {a} + {b}?",
        "ground_truth": str(a + b),
        "gold": f"So it is.\n<answer>{a + b}</answer>",
    }
