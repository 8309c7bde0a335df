"""How good the embedded model is on unseen prompts of published preferences."""

from __future__ import annotations

from pathlib import Path

import pytest

from rm_gallery.core.data.load.base import create_loader
from rm_gallery.core.model.message import MessageRole
from rm_gallery.train.bradley_terry.fit import train_bradley_terry
from rm_gallery.train.bradley_terry.pairs import held_out_keys, prompt_key
from tests.support.shared_data import shared_file


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "name", "subset", "least"),
    [
        ("hh_rlhf", "hh_rlhf_harmless_test", None, 0.63),
        ("rmbbenchmark_pairwise", "rmb_pairwise", "Harmlessness", 0.74),
        ("rmbbenchmark_pairwise", "rmb_pairwise", "Helpfulness", 0.67),
    ],
)
def test_it_beats_length_on_unseen_prompts(
    source: str, name: str, subset: str | None, least: float, tmp_path: Path
) -> None:
    loader = create_loader(name, "local", source, {"path": str(shared_file(f"{name}.parquet"))})
    samples = [s for s in loader.stream() if subset is None or (s.metadata or {}).get("subset") == subset]
    held = train_bradley_terry(samples, tmp_path).held_out
    assert (held["model"].accuracy or 0) >= least
    assert (held["model"].accuracy or 0) > max(held[rule].accuracy or 0 for rule in ("longest", "shortest")) + 0.03
    spoken = [(prompt_key(s), next(m.text for m in s.input if m.role == MessageRole.USER)) for s in samples]
    unseen = held_out_keys([key for key, _ in spoken], 0.2, 0)
    sides = [{text.strip().lower() for key, text in spoken if (key in unseen) is side} for side in (True, False)]
    assert all(sides) and not sides[0] & sides[1], "no opening is on both sides"
