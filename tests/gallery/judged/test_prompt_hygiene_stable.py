"""The same sample always gets the same prompt; only its id and the seed decide where a candidate stands."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.stats.chance import chance_interval
from tests.gallery.judged.material import LISTWISE, ONE_OF_EACH, PAIRWISE, judged, task
from tests.gallery.judged.prompts import EVERY, EVERY_ID, prompts_of, sample_of

ROOT = Path(__file__).resolve().parents[3]


def digest_of_all_prompts() -> str:
    """One number for every prompt of every judged reward in both languages."""
    whole = hashlib.sha256()
    for name, language in EVERY:
        for prompt in prompts_of(judged(name, language=language), task(3)):
            whole.update(prompt.whole.encode())
    return whole.hexdigest()


@pytest.mark.parametrize(("name", "language"), EVERY, ids=EVERY_ID)
def test_prompts_do_not_change(name: str, language: str) -> None:
    reward, sample = judged(name, language=language), task(1)
    prompts = prompts_of(reward, sample)
    assert prompts_of(reward, sample) == prompts
    assert (
        prompts_of(judged(name, language=language), DataSample.model_validate_json(sample.model_dump_json())) == prompts
    )


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_what_is_known_about_a_sample_does_not_change_its_prompt(name: str) -> None:
    reward, sample = judged(name), task(1)
    other = task(1).model_copy(update={"metadata": {"subset": "x"}, "source": "y", "task_category": "z"})
    for output in other.output:
        output.answer.label = {"preference": "chosen", "reference": "0"}
    assert prompts_of(reward, other) == prompts_of(reward, sample)


def test_prompts_are_the_same_in_another_process() -> None:
    code = "from tests.gallery.judged.test_prompt_hygiene_stable import digest_of_all_prompts as d; print(d())"
    environment = {**os.environ, "PYTHONHASHSEED": "12345"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == digest_of_all_prompts()


def _order(name: str, unique_id: str, seed: int = 0, mark: str = "") -> list[str]:
    """Numbers of the candidates in the order the first prompt shows them."""
    count = 2 if name in PAIRWISE else 6
    sample = sample_of("asked", [f"{mark}{i}" for i in range(count)], unique_id=unique_id)
    prompt = prompts_of(judged(name, seed=seed), sample)[0]
    return [text.removeprefix(mark) for tag, text in prompt.blocks if tag != "query"]


@pytest.mark.parametrize("name", [LISTWISE[0], PAIRWISE[0]])
def test_the_order_depends_on_id_and_seed_alone(name: str) -> None:
    assert _order(name, "s-1") == _order(name, "s-1", mark="another text ")
    assert len({tuple(_order(name, f"s-{i}")) for i in range(12)}) > 1
    assert len({tuple(_order(name, "s-1", seed)) for seed in range(12)}) > 1
    same_kind = LISTWISE[0] if name in LISTWISE else PAIRWISE[0]
    assert _order(name, "s-7", 5) == _order(same_kind, "s-7", 5)


@pytest.mark.parametrize("name", [LISTWISE[0], PAIRWISE[0]])
def test_every_candidate_comes_first_as_often_as_chance_has_it(name: str) -> None:
    firsts = Counter(_order(name, f"s-{i}")[0] for i in range(300))
    count = 2 if name in PAIRWISE else 6
    low, high = chance_interval([1 / count] * 300, level=0.999)
    assert sorted(firsts) == [str(i) for i in range(count)]
    assert all(low <= times / 300 <= high for times in firsts.values())
