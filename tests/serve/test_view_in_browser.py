"""The viewer in a browser: nothing from the data runs, nothing is asked of another machine, and
keys alone do everything.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rm_gallery.core.stats.agreement import cohen_kappa
from rm_gallery.core.stats.corrected import corrected_mean
from rm_gallery.core.utils.file import from_line, read_lines
from rm_gallery.serve.view_index import RunIndex
from rm_gallery.serve.view_pages import number_of
from tests.report.browser import chromium, console
from tests.report.runs import HOSTILE, judged_run, row, write_run
from tests.support.serving import Serving

if TYPE_CHECKING:
    from selenium.webdriver.chrome.webdriver import WebDriver

pytestmark = pytest.mark.system("chromium")
CONTRAST = (Path(__file__).parents[1] / "report" / "contrast.js").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("runs")
    judged_run(found / "one", 60)
    judged_run(found / "two", 60)
    huge = [
        row(k, f"{bad} " * (1 << 20 >> k), bad, prompt=f"{bad} \u202e", id=bad)
        for k, bad in enumerate(HOSTILE)
    ]
    write_run(found / "huge", huge)
    return found


@pytest.fixture(scope="module")
def address(place: Path) -> Iterator[str]:
    with Serving(".", cwd=place, command="view") as running:
        yield running.url


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebDriver]:
    with chromium(tmp_path_factory.mktemp("profile")) as found:
        found.execute_cdp_cmd("Network.enable", {})
        yield found


@pytest.fixture
def browser(opened: WebDriver) -> Iterator[WebDriver]:
    yield opened
    assert console(opened) == [], "no console message"


def js(browser: WebDriver, script: str, *arguments: Any) -> Any:
    return browser.execute_script(script, *arguments)


def name_of(browser: WebDriver, address: str, folder: str) -> str:
    browser.get(address)
    links = (
        "return [...document.querySelectorAll('.runs tbody th')].map(e => "
        "[e.querySelector('a').href, e.querySelector('.note').textContent])"
    )
    return str(next(link for link, path in js(browser, links) if path.endswith(folder)))


def keys(browser: WebDriver, *pressed: str) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    ActionChains(browser).send_keys(*pressed).perform()


def heading(browser: WebDriver) -> str:
    return str(js(browser, "return document.querySelector('h1').textContent"))


def label(browser: WebDriver, pressed: str, n: int) -> None:
    """Press a key, and wait for the page that counts it."""
    from selenium.common.exceptions import WebDriverException
    from selenium.webdriver.support.ui import WebDriverWait

    keys(browser, pressed)
    wait = WebDriverWait(browser, 10, poll_frequency=0.02, ignored_exceptions=[WebDriverException])
    wait.until(lambda _: heading(browser).startswith(f"{n} of "))


@pytest.mark.parametrize(
    ("scheme", "width"), [("light", 1400), ("dark", 1400), ("light", 390), ("dark", 390)]
)
def test_every_page_fits_can_be_read_and_loads_nothing_from_elsewhere(
    browser: WebDriver, address: str, scheme: str, width: int
) -> None:
    one, two = (name_of(browser, address, folder) for folder in ("one", "two"))
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia",
        {"features": [{"name": "prefers-color-scheme", "value": scheme}]},
    )
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    a, b = (link.rpartition("/")[2] for link in (one, two))
    pages = [
        "",
        "run/" + a,
        f"run/{a}/row/3",
        f"run/{a}/row/3?b={b}",
        f"run/{a}/review",
        f"run/{a}/review?annotator=nobody",
    ]
    pages += [f"compare?a={a}&b={b}", "gallery?text=length", "gallery/accuracy"]
    for page in pages:
        browser.get(address + page)
        js(browser, "for (const e of document.querySelectorAll('details')) e.open = true")
        loaded = js(browser, "return performance.getEntriesByType('resource').map(e => e.name)")
        assert all(name.startswith((address, "data:")) for name in loaded), page
        assert js(browser, "return document.documentElement.scrollWidth") <= width, page
        assert js(browser, CONTRAST) == [], page
        unnamed = (
            "return [...document.querySelectorAll('input:not([type=hidden]), select, "
            "textarea')].filter(e => !e.labels.length).length"
        )
        assert js(browser, unnamed) == 0, page
        levels = js(
            browser,
            "return [...document.querySelectorAll('h1, h2, h3, h4')].map(e => "
            "Number(e.tagName[1]))",
        )
        assert levels[0] == 1 and levels.count(1) == 1, page
        assert all(
            after - before <= 1 for before, after in zip(levels, levels[1:], strict=False)
        ), (page, levels)
        ids = js(browser, "return [...document.querySelectorAll('[id]')].map(e => e.id)")
        assert len(ids) == len(set(ids)), page


def test_nothing_from_the_data_runs(browser: WebDriver, address: str) -> None:
    run = name_of(browser, address, "huge")
    for page in (
        address,
        run,
        f"{run}?sort=id",
        f"{run}/review?annotator=nobody",
        *(f"{run}/row/{k}" for k in range(len(HOSTILE))),
    ):
        browser.get(page)
        js(browser, "for (const e of document.querySelectorAll('details')) e.open = true")
        assert js(browser, "return window.hacked") is None, page
        assert js(browser, "return document.querySelectorAll('script').length") == 1, page
        assert (
            js(
                browser,
                "return document.querySelectorAll('main img, main style, main iframe').length",
            )
            == 0
        ), page
        assert "\u202e" not in js(browser, "return document.documentElement.outerHTML"), page


def test_thirty_rows_reviewed_by_keys_alone_give_the_interval_the_library_computes(
    browser: WebDriver, address: str, place: Path
) -> None:
    browser.get(name_of(browser, address, "one") + "/review")
    from selenium.webdriver.common.keys import Keys

    keys(browser, "eva", Keys.ENTER)
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(browser, 10).until(lambda _: heading(browser).startswith("0 of "))
    for k in range(30):
        label(browser, "abts"[k % 4] if k % 8 else "b", k + 1)
    label(browser, "u", 29)
    label(browser, "a", 30)
    index = RunIndex(place / "one").refresh()
    said: list[dict[str, Any]] = []
    for line in read_lines(place / "one" / "review.jsonl"):
        entry = from_line(line) or {}
        said = said[:-1] if entry["verdict"] == "undo" else [*said, entry]
    assert len(said) == 30 and len({entry["row"] for entry in said}) == 30
    labels: list[float | None] = [None] * len(index)
    for entry in said:
        labels[entry["row"]] = entry["label"]
    found = corrected_mean(index.wins, labels, clusters=index.clusters)
    assert found.estimate is not None and found.ci95 is not None
    js(browser, "document.querySelector('details').open = true")
    assert (
        js(browser, "return document.getElementById('estimate').textContent")
        == f"{100 * found.estimate:.1f} %"
    )
    interval = f"{100 * found.ci95.low:.1f} – {100 * found.ci95.high:.1f}"
    assert js(browser, "return document.getElementById('interval').textContent") == interval
    shown = js(
        browser,
        "return [...document.querySelectorAll('main > section')].slice(0, 2).map(e => "
        "e.innerText).join()",
    )
    assert "Answer A" in shown and not any(
        word in shown for word in ("chosen", "rejected", "score", "reason")
    ), "blind"

    browser.get(browser.current_url.replace("annotator=eva", "annotator=ben"))
    for k in range(12):
        label(browser, "aab"[k % 3], k + 1)
    theirs = {entry["row"]: entry["label"] for entry in map(from_line, read_lines(place / "one" / "review.jsonl"))
              if entry and entry["annotator"] == "ben"}  # fmt: skip
    kappa = cohen_kappa([labels[k] for k in theirs], list(theirs.values()))
    js(browser, "document.querySelector('details').open = true")
    assert js(browser, "return document.getElementById('kappa').textContent") == number_of(kappa)


@pytest.mark.long("a browser")
def test_a_run_that_goes_on_is_seen_to(browser: WebDriver, address: str, place: Path) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    write_run(place / "going", [row(k) for k in range(5)])
    browser.get(name_of(browser, address, "going"))
    rows = "return document.querySelector('.tiles').innerText"
    assert "\n5" in js(browser, rows)
    with (place / "going" / "samples.jsonl").open("a") as file:
        file.writelines(json.dumps(row(k)) + "\n" for k in range(5, 12))
    WebDriverWait(browser, 10).until(lambda _: "\n12" in js(browser, rows))


CARD = """<!doctype html><html><head><title>a card</title>
<meta http-equiv="refresh" content="0; url=gone">
<meta name="referrer" content="unsafe-url"><base href="/">
<script>document.title = "script ran"; fetch("TARGET", {method: "POST", body: "VERDICT"})</script></head>
<body onload="document.title = 'handler ran'"><h1>a card</h1>
<img src="x:" onerror="document.title = 'error ran'"><img src="ELSEWHERE/image"><iframe src="TARGET"></iframe>
<svg onload="document.title = 'svg ran'"><script>document.title = "svg script ran"</script></svg>
<link rel="stylesheet" href="ELSEWHERE/style"><script src="STATIC"></script><object data="ELSEWHERE/object"></object>
<details ontoggle="document.title = 'toggle ran'" open>x</details>
<a id="js" href="javascript:document.title = 'link ran'">js</a>
<a id="out" href="ELSEWHERE/link" referrerpolicy="unsafe-url">out</a>
<form id="form" method="post" action="TARGET"><input name="annotator" value="me"><input name="place" value="PLACE">
<input name="verdict" value="a"><button id="send" autofocus>send</button></form>
<input autofocus onfocus="document.getElementById('form').submit()"></body></html>"""
"""Every way in which a page does something by itself or at a click."""


@pytest.mark.long("a browser")
def test_a_planted_card_does_nothing(browser: WebDriver, tmp_path: Path) -> None:
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
    from threading import Thread

    asked: list[tuple[str, str | None]] = []

    class Elsewhere(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append((self.path, self.headers["Referer"]))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    judged_run(tmp_path / "one", 6)
    (tmp_path / "audit").mkdir()
    elsewhere = ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere)
    Thread(target=elsewhere.serve_forever, daemon=True).start()
    try:
        with Serving(".", cwd=tmp_path, command="view") as running:
            target = name_of(browser, running.url, "one") + "/review"
            card = (
                CARD.replace("TARGET", target)
                .replace("VERDICT", "annotator=me&place=0&verdict=a")
                .replace("PLACE", "0")
            )
            card = card.replace("ELSEWHERE", f"http://127.0.0.1:{elsewhere.server_port}").replace(
                "STATIC", f"{running.url}static/view.js"
            )
            (tmp_path / "audit" / "card.html").write_text(card)
            browser.get(running.url)
            address = js(browser, "return document.querySelector('a[href*=\"card/\"]').href")
            browser.get(address)
            for clicked in ("js", "send"):
                browser.find_element("id", clicked).click()
            assert (browser.title, browser.current_url) == ("a card", address)
            assert js(browser, "return document.querySelector('h1').textContent") == "a card", (
                "it is shown all the same"
            )
            assert asked == [], "nothing is asked of another machine"
            browser.find_element("id", "out").click()
            assert asked[0] == ("/link", None), (
                "and where a person goes on, the address with its token stays here"
            )
            browser.get("about:blank")
    finally:
        elsewhere.shutdown()
        elsewhere.server_close()
    assert not [*(tmp_path / "one").glob("review*"), *(tmp_path / "one").glob("labels*")]
    refused = console(browser)
    assert refused and all(
        "sandbox" in line or "Content Security Policy" in line or "net::ERR" in line
        for line in refused
    )
