"""Every benchmark has a page that says what its class says today, and what it says of length is what the files say."""

from __future__ import annotations

from pathlib import Path

import pytest

from rm_gallery.gallery.benchmarks.base import benchmarks
from rm_gallery.report.evaluate import evaluate
from tests.support.children import ROOT
from tests.support.shared_data import shared_file
from tools import benchmark_pages
from tools.cards import differences

OWN_DATA = {"preferences", "pairs", "lists"}


def test_no_page_is_missing_stale_or_left_over() -> None:
    found = differences(ROOT / "docs" / "benchmarks", benchmark_pages.pages())
    assert found == {"missing": [], "stale": [], "surplus": []}, "run `python tools/benchmark_pages.py`"


def test_pages_are_written_and_compared(tmp_path: Path) -> None:
    assert benchmark_pages.main([str(tmp_path), "--check"]) == 1
    assert (benchmark_pages.main([str(tmp_path)]), benchmark_pages.main([str(tmp_path), "--check"])) == (0, 0)


@pytest.mark.parametrize("name", sorted(benchmarks()))
def test_a_page_says_everything(name: str) -> None:
    found = benchmarks()[name]
    said = {
        what: getattr(found, what)
        for what in ("measures", "source", "licence", "version", "formula", "layout", "traps")
    }
    said |= {} if name in OWN_DATA else {"sizes": found.sizes}
    assert [what for what, value in said.items() if not value] == []
    assert all(len(line) == 3 for line in found.published)
    page = benchmark_pages.page(found)
    for section in ("Layout", "Rule", "Length alone", "Traps", "Published results", "Run it"):
        assert f"\n## {section}\n" in page
    assert all(f"--mode {mode}" in page for mode in found.modes)


FILES: dict[tuple[str, str], list[str]] = {
    ("judgebench", "gpt split"): ["judgebench_gpt4o"],
    ("judgebench", "claude split"): ["judgebench_claude"],
    ("rm_bench", "chat"): ["rm_bench_chat"],
    ("rm_bench", "code"): ["rm_bench_code"],
    ("rm_bench", "safety"): ["rm_bench_safety_refuse", "rm_bench_safety_response"],
    ("rmbbenchmark_pairwise", ""): ["rmb_pairwise"],
    ("rmbbenchmark_bestofn", ""): ["rmb_bon"],
    ("hh_rlhf", "harmless-base test"): ["hh_rlhf_harmless_test"],
    ("hhh", ""): ["hhh_alignment"],
    ("auto_j", "all"): ["autoj_pairwise"],
    **{("llmbar", part): [f"llmbar_{part}"] for part in benchmarks()["llmbar"].length},
}


@pytest.mark.parametrize(("name", "part"), FILES, ids=[f"{name} {part}".strip() for name, part in FILES])
def test_what_length_reaches_is_what_the_files_say(name: str, part: str) -> None:
    paths = [shared_file(f"{file}.parquet") for file in FILES[name, part]]
    report = evaluate("length_baseline", paths)
    assert report.benchmark == name
    parts = {part: report} if part else report.by_subset
    for label, figure in parts.items():
        claimed = benchmarks()[name].length[label]
        if figure.n != claimed[0]:
            pytest.skip(f"{figure.n} rows are here, and the page is about {claimed[0]}")
        longest, shortest = figure.baselines["longest"], figure.baselines["shortest"]
        assert longest is not None and shortest is not None
        assert (round(100 * longest, 1), round(100 * shortest, 1)) == claimed[1:]


def test_no_length_is_claimed_that_no_file_backs() -> None:
    claimed = {name for name, found in benchmarks().items() if found.length}
    assert claimed == {name for name, _ in FILES}
