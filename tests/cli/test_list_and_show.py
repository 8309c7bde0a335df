"""`rm-gallery list` and `show` tell what there is and what one reward does."""

from __future__ import annotations

from pathlib import Path

import pytest

from rm_gallery.core.reward.registry import RewardRegistry
from tests.support.children import run_python
from tests.support.command import command


def test_list_has_one_line_for_every_reward() -> None:
    done = command("list", "--long")
    assert (done.code, done.err) == (0, "")
    head, *lines = done.out.splitlines()
    assert head.split()[:4] == ["name", "kind", "needs", "range"]
    named = [line.split()[0] for line in lines if not line.startswith(" ")]
    assert named == RewardRegistry.list()
    safety = next(line for line in lines if line.startswith("safety_listwise_reward "))
    assert "listwise" in safety and "llm" in safety and "[0, 1]" in safety


def test_u3_the_list_fits_80_columns_and_a_screen_or_two(tmp_path: Path) -> None:
    # in a process of its own: rewards that other tests register would be listed as well
    done = run_python("-m", "rm_gallery", "list", cwd=tmp_path)
    lines = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (0, "")
    assert max(map(len, lines)) <= 80 and len(lines) < 100
    shown = {line.split()[0] for line in lines if line.startswith("  ")}
    whole = {name.replace("*", kind) for name in shown for kind in ("listwise", "pointwise", "pairwise")}
    assert {name for name in RewardRegistry._lazy_names() if not name.endswith(":")} <= whole
    one = command("list", "--task", "math", "--kind", "listwise").out
    assert "math_listwise_reward" in one and "*" not in one


def test_list_survives_another_packages_broken_reward(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {**RewardRegistry._lazy_names(), "broken": "no_such_package.rewards:Broken"}
    monkeypatch.setattr(RewardRegistry, "_lazy", names)
    done = command("list")
    assert done.code == 0
    assert "no_such_package" in next(line for line in done.out.splitlines() if line.startswith("broken:"))
    assert "length_baseline" in done.out


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        (
            "length_penalty",
            ["LengthPenaltyReward", "kind: pointwise", "needs: nothing", "range: [-inf, 0]", "max_length = 1000"],
        ),
        ("accuracy", ["needs: reference", "range: [0, 1], higher is better", "ignore_case = False"]),
        ("safety_listwise_reward", ["kind: listwise", "needs: llm", "1. ", "repair_attempts = 1", "seed = 0"]),
    ],
)
def test_show(name: str, parts: list[str]) -> None:
    done = command("show", name)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"{name}  (rm_gallery.")
    assert [part for part in parts if part not in done.out] == []


def test_show_of_an_unknown_name_lists_the_nearest() -> None:
    done = command("show", "safety_listwise")
    assert (done.code, done.out) == (2, "")
    assert "There is no reward 'safety_listwise'. Did you mean safety_listwise_reward" in done.err


@pytest.mark.parametrize("line", ["eval safety_lis", "show safety_lis"])
def test_a_shell_completes_the_names_of_rewards(line: str, tmp_path: Path) -> None:
    shell = {"_RM_GALLERY_COMPLETE": "complete_bash", "COMP_WORDS": f"rm-gallery {line}", "COMP_CWORD": "2"}
    start = "import sys; sys.argv[0] = 'rm-gallery'; from rm_gallery.cli.main import main; main()"
    done = run_python("-c", start, cwd=tmp_path, env=shell)
    assert done.stdout.split() == ["safety_listwise_reward"]
