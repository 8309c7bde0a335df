"""The trust card in a browser: nothing from the data runs, every bar can be seen, a narrow screen needs no sideways scrolling."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rm_gallery import DataSample, audit
from rm_gallery.core.reward.base import BasePointWiseReward
from rm_gallery.core.reward.schema import RewardDimensionWithScore, RewardResult
from tests.report.browser import chromium, console

pytestmark = pytest.mark.system("chromium")
SCRIPT = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>"


class Longest(BasePointWiseReward):
    """Longer is better; some answers break it with a hostile message."""

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        text = sample.output[0].answer.text
        if "no 3" in text:
            raise ValueError(f"broken {SCRIPT}")
        return RewardResult(name="l", details=[RewardDimensionWithScore(name="l", score=float(len(text)))])


def test_the_card_shows_every_figure_and_runs_nothing(tmp_path: Path) -> None:
    rows = [
        {"prompt": f"Q{i} {SCRIPT}", "chosen": f"yes {i} {SCRIPT} and more", "rejected": f"no {i} {SCRIPT}"}
        for i in range(20)
    ]
    found = audit(Longest(name=f"longest {SCRIPT}"), rows, progress=False)
    page = found.save(tmp_path) / "card.html"
    with chromium(tmp_path / "profile") as browser:
        for width in (1280, 390):
            size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
            browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
            browser.get(page.as_uri())
            browser.execute_script("for (const e of document.querySelectorAll('details')) e.open = true")
            assert browser.execute_script("return window.hacked") is None
            assert browser.execute_script("return document.querySelectorAll('script, img').length") == 0
            assert browser.execute_script("return document.querySelectorAll('article').length") == len(found.findings)
            assert browser.execute_script("return document.documentElement.scrollWidth") <= width
            heights = browser.execute_script(
                "return [...document.querySelectorAll('svg')].map(e => e.getBoundingClientRect().height)"
            )
            assert len(heights) == sum(f.ci95 is not None for f in found.findings)
            assert min(heights) >= 20
        assert console(browser) == []
