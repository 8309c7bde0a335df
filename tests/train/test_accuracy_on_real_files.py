"""How good the embedded model is on unseen prompts of published preferences, in the mean over seeds."""

from __future__ import annotations

from pathlib import Path
from statistics import mean

import pytest

from rm_gallery.core.data.load.base import create_loader
from rm_gallery.train.bradley_terry.fit import train_bradley_terry
from tests.support.shared_data import shared_file

CASES = {
    "HH-RLHF harmless": ("hh_rlhf", "hh_rlhf_harmless_test.parquet", None, range(2), 0.63),
    "RMB harmlessness": ("rmbbenchmark_pairwise", "rmb_pairwise.parquet", "Harmlessness", range(1), 0.74),
    "RMB helpfulness": ("rmbbenchmark_pairwise", "rmb_pairwise.parquet", "Helpfulness", range(1), 0.67),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_it_beats_length_on_unseen_prompts(case: str, tmp_path: Path) -> None:
    source, name, subset, seeds, least = CASES[case]
    loader = create_loader(case, "local", source, {"path": str(shared_file(name))})
    samples = [s for s in loader.stream() if subset is None or (s.metadata or {}).get("subset") == subset]
    reports = [train_bradley_terry(samples, tmp_path / str(seed), seed=seed) for seed in seeds]
    reached = [report.held_out["model"].accuracy or 0.0 for report in reports]
    assert mean(reached) >= least
    for report, accuracy in zip(reports, reached, strict=True):
        assert accuracy > max(report.held_out[rule].accuracy or 0.0 for rule in ("longest", "shortest")) + 0.03
        assert report.seconds < 60
