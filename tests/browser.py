"""A headless Chromium for the tests of pages (a module of its own: several folders have a ``conftest``)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("selenium", reason="selenium is in the test extra")
DRIVER = shutil.which("chromedriver")
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PLAIN_HOST = "hospital.test"
needs_browser = pytest.mark.skipif(not (DRIVER and BROWSER), reason="chromium and chromedriver are not installed")


def open_browser(downloads: Path | None = None, scripts: bool = True) -> Iterator[Any]:
    """A browser until the caller is done. ``downloads``: where it saves; ``scripts``: whether JavaScript runs."""
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    options = Options()
    options.binary_location = BROWSER or ""
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--lang=en-US", "--window-size=1240,1500"):
        options.add_argument(flag)
    preferences: dict[str, Any] = {"profile.managed_default_content_settings.javascript": 1 if scripts else 2}
    # A name whose pages are not served securely, as those of 127.0.0.1 are taken to be.
    options.add_argument(f"--host-resolver-rules=MAP {PLAIN_HOST} 127.0.0.1")
    if downloads is not None:
        preferences["download.default_directory"] = str(downloads)
    options.add_experimental_option("prefs", preferences)
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    driver.set_page_load_timeout(60)
    yield driver
    driver.quit()
