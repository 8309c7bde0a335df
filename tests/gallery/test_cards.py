"""Every reward has an example that tells its answers apart, and a page in `gallery/` that says what
the code says today.
"""

from __future__ import annotations

import contextlib
import io
from functools import cache
from pathlib import Path

import pytest

from rm_gallery import ConfigError, RewardRegistry
from rm_gallery.cli.catalogue import Entry, parameters_of
from rm_gallery.gallery.rm import discover
from tests.docs.blocks import blocks_of
from tests.gallery.registry_cases import create, example_of
from tests.support.children import ROOT
from tools import cards, scorecards

NAMES = sorted(map(cards.shown_name, discover()))
SHARING: dict[str, list[Entry]] = {}
for entry in [Entry(name, RewardRegistry.get(name)) for name in NAMES]:
    SHARING.setdefault(cards.path_of(entry), []).append(entry)
RUNNING = [name for name in NAMES if not example_of(name).environment]


@cache
def pages() -> dict[str, str]:
    return cards.catalogue()


@cache
def page(path: str) -> str:
    return cards.page(SHARING[path])


@pytest.mark.long("much work")
def test_no_page_is_missing_stale_or_left_over() -> None:
    found = cards.differences(ROOT / "gallery", pages())
    assert found == {"missing": [], "stale": [], "surplus": []}, "run `python tools/cards.py`"


@pytest.mark.long("much work")
@pytest.mark.parametrize("reward", scorecards.SETS)
def test_a_scorecard_counts_the_labelled_answers_and_what_others_say_of_them_still_holds(
    reward: str,
) -> None:
    cases = scorecards.labelled(scorecards.SETS[reward][0])
    assert len({(case["reference"], case["answer"]) for case in cases}) == len(cases) >= 20
    passed = scorecards.verdicts(reward, cases)
    false_1 = [
        case["answer"] for case, one in zip(cases, passed, strict=True) if one and not case["right"]
    ]
    false_0 = [
        case["answer"] for case, one in zip(cases, passed, strict=True) if case["right"] and not one
    ]
    assert (false_1, false_0) == ([], [])
    found = scorecards.scorecard(reward)
    assert (
        found is not None
        and f"| `{reward}` | 0 of {sum(not case['right'] for case in cases)} |"
        in page(Entry(reward, RewardRegistry.get(reward)).task + f"/{reward}.md")
    )
    if reward == "math_verify_reward":
        assert [case | scorecards.others_say(case) for case in cases] == cases


@pytest.mark.long("every page")
def test_pages_are_written_compared_and_taken_away(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pages()  # kept, before it is what it asks
    monkeypatch.setattr(cards, "catalogue", pages)
    folder = tmp_path / "cards"
    folder.mkdir()
    assert cards.main([str(folder), "--check"]) == 1 and not list(folder.iterdir())
    assert (cards.main([str(folder)]), cards.main([str(folder), "--check"])) == (0, 0)
    (folder / "general/accuracy.md").write_text("old\n", encoding="utf-8")
    (folder / "general/gone.md").write_text(cards.MARK, encoding="utf-8")
    (folder / "notes.md").write_text("my own notes\n", encoding="utf-8")
    capsys.readouterr()
    assert cards.main([str(folder)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "written: general/accuracy.md",
        "removed: general/gone.md",
    ]
    assert cards.differences(folder, pages()) == {"missing": [], "stale": [], "surplus": []}
    assert (folder / "notes.md").exists() and not (folder / "general/gone.md").exists()


@pytest.mark.long("much work")
@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("accuracy", 'add `example=Example(…)` to `@rule("accuracy", …)` in {}match.py.'),
        ("ruler", "add `example = Example(…)` to the class {}"),
    ],
)
def test_a_reward_without_an_example_is_one_line_that_says_where_to_add_it(
    name: str, step: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RewardRegistry.get(name), "example", None)
    assert cards.main(["--check"]) == 2
    out, err = capsys.readouterr()
    before, after = step.split("{}")
    assert err.startswith(f"{name} has no example: {before}") and after in err
    assert (out, err.count("\n")) == ("", 1)


@pytest.mark.parametrize("path", sorted(SHARING))
def test_a_pages_code_prints_what_it_shows(path: str) -> None:
    (block,) = blocks_of(page(path))
    if block.not_run:
        assert any(example_of(name).environment for name in NAMES if f"`{name}`" in page(path))
        return
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(block.code, path, "exec"), {})
    shown = [
        line.removeprefix("# ").removeprefix("#")
        for line in block.code.splitlines()
        if line.startswith("#")
    ]
    assert [line.rstrip() for line in printed.getvalue().splitlines()] == shown


@pytest.mark.parametrize("name", RUNNING)
def test_an_example_tells_its_answers_apart(name: str) -> None:
    reward, sample = create(name), example_of(name).sample
    scored = reward.evaluate(sample)
    scores = [reward.score_of(output.answer.reward) for output in scored.output]
    assert 2 <= len(set(scores)) <= len(sample.output) <= 4 and None not in scores
    assert reward.evaluate(sample) == scored


@pytest.mark.parametrize("name", [name for name in NAMES if example_of(name).recorded])
def test_what_was_recorded_is_what_it_prints(name: str) -> None:
    example = example_of(name)
    try:
        create(name).check()
    except ConfigError as error:
        pytest.skip(f"{example.environment}: {error}")
    assert cards.printed(name, example) == list(example.recorded)


@pytest.mark.parametrize("name", NAMES)
def test_every_need_and_every_field_is_explained(name: str) -> None:
    reward = RewardRegistry.get(name)
    assert reward.needs <= set(cards.NEEDS)
    silent = [parameter.name for parameter in parameters_of(reward) if not parameter.description]
    assert silent == [], (
        "write a string below each field, or name it in backticks in the class's docstring"
    )
