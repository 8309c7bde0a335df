"""The summary of a run on one page of paper, printed by the browser that is there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from rm_gallery.core.utils.errors import ConfigError, DataError
from rm_gallery.core.utils.file import written_whole
from rm_gallery.report.formats import render
from rm_gallery.study.runs import OpenRun

BROWSERS = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
    "microsoft-edge",
    "msedge",
)
_PLACES = {
    "darwin": ("/Applications/Google Chrome.app/Contents/MacOS/Google Chrome", "/Applications/Chromium.app/Contents/MacOS/Chromium",
               "/Applications/Microsoft Edge.app/Contents/MacOS/Microsoft Edge"),
    "win32": (r"C:\Program Files\Google\Chrome\Application\chrome.exe", r"C:\Program Files (x86)\Microsoft\Edge\Application\msedge.exe",
              r"C:\Program Files\Microsoft\Edge\Application\msedge.exe"),
}  # fmt: skip
_FLAGS = (
    "--headless", "--disable-gpu", "--no-first-run", "--disable-extensions", "--disable-background-networking", "--disable-sync",
    "--disable-component-update", "--disable-dev-shm-usage", "--no-pdf-header-footer", "--host-resolver-rules=MAP * ~NOTFOUND",
)  # fmt: skip
"""A browser that resolves no name reaches no network, whatever it would like to load on its own."""
SECONDS = 60.0
_PAGE = re.compile(rb"/Type\s*/Page(?![a-zA-Z])")


def find_browser() -> str:
    """The program that prints; ConfigError where none of `BROWSERS` is there."""
    browser = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    browser = browser or next(
        (path for path in _PLACES.get(sys.platform, ()) if Path(path).is_file()), None
    )
    if browser is None:
        raise ConfigError(
            "--pdf is printed by Chromium, Chrome or Edge, and none is installed or on the PATH; "
            "install one, or print report.html from any browser."
        )
    return browser


def print_summary(run: OpenRun, path: str | Path, browser: str, title: str | None = None) -> None:
    """Print the head of the report, its findings, subsets and misses on one A4 page; those for
    which there is no room are counted.

    Raises:
        DataError: the browser does not print, or the file cannot be written.
    """
    for most in (12, 6, 3, 0):
        printed = _printed(render(run, title=title, most=most), browser)
        if len(_PAGE.findall(printed)) == 1:
            break
    with written_whole(path) as file:
        file.write(printed)


def _printed(page: str, browser: str) -> bytes:
    with TemporaryDirectory(prefix="rm-gallery-") as folder:
        given, made = Path(folder) / "page.html", Path(folder) / "page.pdf"
        given.write_text(page, encoding="utf-8")
        # the sandbox of a browser cannot be set up by root, as in most containers
        rooted = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
        call = [
            browser,
            *_FLAGS,
            *rooted,
            f"--user-data-dir={folder}/profile",
            f"--print-to-pdf={made}",
            given.as_uri(),
        ]
        try:
            done = subprocess.run(call, capture_output=True, timeout=SECONDS, check=False)
        except subprocess.TimeoutExpired:
            why = f"it did not end within {SECONDS:.0f} s"
        except OSError as error:  # also of a browser that is not there any more
            why = error.strerror or str(error)
        else:
            if made.is_file():
                return made.read_bytes()
            printed = done.stderr.decode("utf-8", "replace").strip()[-300:]
            why = printed or f"exit code {done.returncode}"
    raise DataError(f"{browser} printed no page: {why}; print report.html from a browser by hand.")
