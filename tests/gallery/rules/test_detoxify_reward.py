"""The toxicity model is loaded once, and its absence is said clearly."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from rm_gallery.gallery.rm.alignment.harmlessness import detoxification
from rm_gallery.gallery.rm.alignment.harmlessness.detoxification import DetoxifyReward
from tests.support.samples import make_sample, scores

LOADED: list[str] = []


class Detoxify:
    """Rates a text by whether it curses; takes text alone, as the real one does."""

    def __init__(self, name: str, device: str) -> None:
        LOADED.append(f"{name} on {device}")

    def predict(self, text: str) -> dict[str, float]:
        assert isinstance(text, str)
        return {"toxicity": 0.75 if "damn" in text else 0.0, "insult": 0.5}


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    module: Any = ModuleType("detoxify")
    module.Detoxify = Detoxify
    monkeypatch.setitem(sys.modules, "detoxify", module)
    LOADED.clear()
    detoxification._model.cache_clear()
    yield
    detoxification._model.cache_clear()


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(("text", "expected"), [("damn", 0.25), ("lovely", 1.0), ("你好\r\n", 1.0), ("", 1.0)])
def test_score_is_one_minus_toxicity(text: str, expected: float) -> None:
    assert scores(DetoxifyReward().evaluate(make_sample(text))) == [expected]


@pytest.mark.usefixtures("package")
def test_loaded_once() -> None:
    for _ in range(3):
        DetoxifyReward().check()
        scored = DetoxifyReward().evaluate(make_sample("fine"))
    assert LOADED == ["unbiased on cpu"]
    assert scored.output[0].answer.reward.extra_data["detoxify_reward"] == {"toxicity": 0.0, "insult": 0.5}
    DetoxifyReward(model_name="original", device="cuda").evaluate(make_sample("fine"))
    assert LOADED[1:] == ["original on cuda"]
