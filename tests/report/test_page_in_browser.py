"""The page and the trust card in a browser: nothing from the data runs, the table filters, every
plot can be seen on every screen.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rm_gallery import BasePointWiseReward, DataSample, RewardResult, audit
from rm_gallery.report.formats import render
from tests.report.browser import chromium, console
from tests.report.runs import HOSTILE, judged_run
from tests.reward.rewards import scored

if TYPE_CHECKING:
    from selenium.webdriver.chrome.webdriver import WebDriver

pytestmark = pytest.mark.system("chromium")
HERE = Path(__file__).parent
N = 60


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebDriver]:
    with chromium(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("run")
    page = folder / "report.html"
    page.write_text(render(judged_run(folder, N)), encoding="utf-8")
    return page.as_uri()


@pytest.fixture
def page(browser: WebDriver, address: str) -> Iterator[WebDriver]:
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.get(address)
    yield browser
    assert console(browser) == [], "no console message"


def js(browser: WebDriver, script: str, *arguments: Any) -> Any:
    return browser.execute_script(script, *arguments)


def count(browser: WebDriver) -> str:
    return str(js(browser, "return document.getElementById('count').textContent"))


def choose(browser: WebDriver, name: str, value: str) -> None:
    change = (
        "const e = document.getElementById(arguments[0]); e.value = arguments[1]; "
        "e.dispatchEvent(new Event('change'))"
    )
    js(browser, change, name, value)


def search(browser: WebDriver, text: str) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import WebDriverWait

    field = browser.find_element(By.ID, "search")
    field.clear()
    field.send_keys(text)
    js(browser, "document.getElementById('controls').requestSubmit()")
    WebDriverWait(browser, 5).until(lambda _: count(browser))


def test_nothing_from_the_data_runs_or_is_loaded(page: WebDriver) -> None:
    js(page, "for (const e of document.querySelectorAll('.sample')) e.open = true")
    js(page, "for (let k = 0; k < 9; k++) document.getElementById('next').click()")
    js(page, "for (const e of document.querySelectorAll('.sample, details')) e.open = true")
    assert js(page, "return window.hacked") is None
    assert js(page, "return document.querySelectorAll('script').length") == 2
    assert (
        js(
            page,
            "return document.querySelectorAll('main img, main style, main iframe, main "
            "object').length",
        )
        == 0
    )
    assert js(page, "return performance.getEntriesByType('resource').length") == 0, (
        "the page loads nothing"
    )
    assert js(page, "return getComputedStyle(document.body).display") != "none"
    shown = js(page, "return document.body.innerText")
    assert (
        HOSTILE[1] in shown and "⟦U+202E⟧" in shown and "{{ 7 * 7 }}" in shown and "第二行" in shown
    )
    assert "\u202e" not in js(page, "return document.documentElement.outerHTML")


def test_the_policy_keeps_out_scripts_that_are_not_the_page_s_own(page: WebDriver) -> None:
    js(
        page,
        "const s = document.createElement('script'); s.textContent = 'window.hacked = 9'; "
        "document.body.append(s)",
    )
    js(
        page,
        "document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.hacked = "
        "9\">')",
    )
    assert js(page, "return window.hacked") is None
    refused = console(page)
    assert refused and all("Content Security Policy" in message for message in refused)


def test_search_filters_sorting_and_pages(page: WebDriver) -> None:
    assert count(page) == f"{N} of {N} samples"
    search(page, "Question 17:")
    assert count(page) == f"1 of {N} samples"
    search(page, "<SCRIPT>window.hacked = 1")
    assert count(page) != f"0 of {N} samples", "the search ignores case and takes any text"
    search(page, "no such text")
    assert count(page) == f"0 of {N} samples"
    assert js(page, "return document.getElementById('nothing').hidden") is False
    js(page, "document.getElementById('clear').click()")
    choose(page, "outcome", "failed")
    assert count(page) == f"6 of {N} samples"
    choose(page, "outcome", "")
    choose(page, "subset", "安全")
    assert count(page) == f"20 of {N} samples"
    choose(page, "subset", "")
    choose(page, "sort", "-gap")
    gaps = js(page, "return [...document.querySelectorAll('.sample .gap')].map(e => e.textContent)")
    numbers = [float(gap.removeprefix("gap ").replace("−", "-")) for gap in gaps]
    assert len(numbers) == 25 and numbers == sorted(numbers, reverse=True)
    js(page, "document.getElementById('next').click()")
    assert js(page, "return document.getElementById('page').textContent") == "page 2 of 3"
    choose(page, "size", "100")
    assert js(page, "return document.querySelectorAll('.sample').length") == N


def test_a_sample_opened_by_keyboard_shows_everything_about_it(page: WebDriver) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.support.ui import WebDriverWait

    search(page, "Question 3:")
    page.find_element(By.CSS_SELECTOR, ".sample > summary").send_keys(Keys.ENTER)
    sample = page.find_element(By.CSS_SELECTOR, ".sample")
    WebDriverWait(page, 5).until(
        lambda _: "Answer 2" in js(page, "return arguments[0].innerText", sample)
    )
    shown = js(page, "return arguments[0].innerText", sample)
    for text in (
        "Question 3: ",
        "Answer 1",
        "chosen",
        "rejected",
        "a reason: ",
        "answer 1 shown before answer 2",
    ):
        assert text in shown, text
    js(page, "arguments[0].querySelector('.body details').open = true", sample)
    assert "<best>1</best>" in js(page, "return arguments[0].innerText", sample)


@pytest.mark.parametrize(
    ("scheme", "width"), [("light", 1280), ("dark", 1280), ("light", 375), ("dark", 320)]
)
def test_every_plot_is_seen_on_every_screen(page: WebDriver, scheme: str, width: int) -> None:
    page.execute_cdp_cmd(
        "Emulation.setEmulatedMedia",
        {"features": [{"name": "prefers-color-scheme", "value": scheme}]},
    )
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    plots = js(page, (HERE / "plots.js").read_text(encoding="utf-8"))
    names = {plot[0] for plot in plots}
    assert names >= {
        "plot-scores",
        "plot-gaps",
        "plot-reliability",
        "plot-length",
        "plot-position",
        "plot-latency",
    }
    assert names >= {"plot-best-of-n", "plot-position-4"}
    for name, w, h, marks, labels, outside, title, says in plots:
        assert w > 240 and h > 100 and marks and labels and title and not outside, name
        assert "n = " in says, name
    assert js(page, "return document.documentElement.scrollWidth") <= width, "nothing sticks out"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_what_is_behind_it(page: WebDriver, scheme: str) -> None:
    page.execute_cdp_cmd(
        "Emulation.setEmulatedMedia",
        {"features": [{"name": "prefers-color-scheme", "value": scheme}]},
    )
    js(page, "document.querySelector('.sample').open = true")
    weak = js(page, (HERE / "contrast.js").read_text(encoding="utf-8"))
    assert weak == [], "WCAG AA"


@pytest.mark.smoke("a browser")
def test_it_prints_without_controls_which_have_names_and_headings_are_in_order(
    page: WebDriver,
) -> None:
    assert (
        js(
            page,
            "return [...document.querySelectorAll('input, select')].filter(e => "
            "!e.labels.length).length",
        )
        == 0
    )
    levels = js(
        page, "return [...document.querySelectorAll('h1, h2, h3')].map(e => Number(e.tagName[1]))"
    )
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after - before <= 1 for before, after in zip(levels, levels[1:], strict=False))
    ids = js(page, "return [...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(ids) == len(set(ids))
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    for hidden in ("nav", "#controls"):
        assert (
            js(
                page,
                "return getComputedStyle(document.querySelector(arguments[0])).display",
                hidden,
            )
            == "none"
        )
    assert (
        js(page, "return document.querySelector('svg.plot').getBoundingClientRect().height") > 100
    )


SCRIPT = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>"


class Longest(BasePointWiseReward):
    """Longer is better; some answers break it with a hostile message."""

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        text = sample.output[0].answer.text
        if "no 3" in text:
            raise ValueError(f"broken {SCRIPT}")
        return scored("l", float(len(text)))


@pytest.mark.long("a browser")
@pytest.mark.parametrize("width", [1280, 390])
def test_the_card_shows_every_figure_and_runs_nothing(
    browser: WebDriver, tmp_path: Path, width: int
) -> None:
    # fmt: skip
    rows = [
        {
            "prompt": f"Q{i} {SCRIPT}",
            "chosen": f"yes {i} {SCRIPT} and more",
            "rejected": f"no {i} {SCRIPT}",
        }
        for i in range(20)
    ]
    found = audit(Longest(name=f"longest {SCRIPT}"), rows, progress=False)
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get((found.save(tmp_path) / "card.html").as_uri())
    js(browser, "for (const e of document.querySelectorAll('details')) e.open = true")
    assert js(browser, "return window.hacked") is None
    assert js(browser, "return document.querySelectorAll('script, img').length") == 0
    assert js(browser, "return document.querySelectorAll('article').length") == len(found.findings)
    assert js(browser, "return document.documentElement.scrollWidth") <= width
    heights = js(
        browser,
        "return [...document.querySelectorAll('svg')].map(e => e.getBoundingClientRect().height)",
    )
    assert len(heights) == sum(f.ci95 is not None for f in found.findings) and min(heights) >= 20
    assert console(browser) == []
