"""The pages in a headless browser, over a release that was really built: search, model, verify, download, withdrawn."""

from __future__ import annotations

import hashlib
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import PLAIN_HOST, needs_browser, open_browser
from registry_release import Released, Running, cuvil

pytestmark = needs_browser
PHONE = {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True}


@pytest.fixture(scope="module")
def downloads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("downloads")


@pytest.fixture(scope="module")
def browser(downloads: Path) -> Iterator[Any]:
    yield from open_browser(downloads)


@pytest.fixture(scope="module")
def plain_browser() -> Iterator[Any]:
    """A browser that runs no scripts."""
    yield from open_browser(scripts=False)


@pytest.fixture
def root(running: Running, released: Released) -> str:
    cuvil("registry", "register", released.folder)
    return running.client.base.removesuffix("/fhir")


def find(browser: Any, selector: str) -> Any:
    return browser.find_element("css selector", selector)


def press(browser: Any, element: Any) -> None:
    """Press what leads to another page, and wait until that is there."""
    from selenium.webdriver.support.expected_conditions import staleness_of
    from selenium.webdriver.support.ui import WebDriverWait

    before = find(browser, "html")
    element.click()
    WebDriverWait(browser, 30).until(staleness_of(before))
    WebDriverWait(browser, 30).until(lambda _: browser.find_elements("css selector", "footer"))


def text_of(browser: Any) -> str:
    return str(find(browser, "body").text)


def wait_for(path: Path) -> bytes:
    until = time.monotonic() + 20
    while time.monotonic() < until and not path.exists():
        time.sleep(0.05)
    return path.read_bytes()


def search(browser: Any, root: str, words: str) -> None:
    browser.get(f"{root}/")
    find(browser, "#q").send_keys(words)
    press(browser, find(browser, "form.search button[type=submit]"))


def test_search_open_verify_download_withdrawn(browser: Any, root: str, released: Released, downloads: Path) -> None:
    search(browser, root, "made for tests")
    assert "q=made+for+tests" in browser.current_url
    press(browser, find(browser, ".card h3 a"))
    assert find(browser, "h1").text == "tiny 1.0.0" and "Active" in find(browser, ".title").text
    shown = text_of(browser)
    for expected in (
        "Finds nothing; made for tests.",
        "Example Hospital Devices",
        "tensor(float32)[1,1,8,8]",
        "0 … 1",
        "p_finding >= cutoff",
        "grey",
        "tuning report 7",
        "Refer to a radiologist.",
        "x86_64-linux-musl",
        "exposure > 0",
        "CA-1",
    ):
        assert expected in shown, expected
    assert len(browser.find_elements("css selector", "svg.wide rect.holds")) == 12
    assert not browser.find_elements("css selector", "rect.broken, rect.unknown")
    # the digests of the picture are those of the release
    digest = hashlib.sha3_512((released.folder / "inference-engine.bin").read_bytes()).hexdigest()
    drawn = [item.text for item in browser.find_elements("css selector", "svg.wide .step-digest")]
    assert f"{digest[:20]}…" in drawn
    (downloads / "inference-engine.proof.json").unlink(missing_ok=True)
    browser.find_element("link text", "inference-engine.proof.json").click()
    assert (
        wait_for(downloads / "inference-engine.proof.json")
        == (released.folder / "inference-engine.proof.json").read_bytes()
    )
    press(browser, find(browser, ".actions button.primary"))
    assert find(browser, ".verdict.good").text.startswith("✓ The release holds: all 27 checks passed")
    assert len(browser.find_elements("css selector", "table.checks tbody tr.good")) == 27
    press(browser, browser.find_element("link text", "Back to the model"))
    assert "This server verified the release at" in text_of(browser)
    cuvil("registry", "withdraw", "tiny|1.0.0", "--reason", "recalled, see notice 7")
    browser.refresh()
    alarm = find(browser, "main > section.alarm:first-child")
    assert "Withdrawn: do not use" in alarm.text and "recalled, see notice 7" in alarm.text
    assert "Active" not in text_of(browser)
    press(browser, find(browser, ".actions button.primary"))
    assert "the version be withdrawn" in find(browser, ".verdict").text
    assert not [e for e in browser.get_log("browser") if e["level"] == "SEVERE"]


def test_the_main_path_needs_no_script(plain_browser: Any, root: str) -> None:
    browser = plain_browser
    search(browser, root, "tiny")
    press(browser, find(browser, ".card h3 a"))
    assert not browser.find_elements("css selector", ".copy")
    press(browser, find(browser, ".actions button.primary"))
    assert find(browser, ".verdict.good").is_displayed()
    browser.get(f"{root}/engines")
    assert not find(browser, "#by-file").is_displayed()


def test_chinese_is_one_press_away_and_stays(browser: Any, root: str) -> None:
    browser.get(f"{root}/?q=tiny&lang=en")
    press(browser, browser.find_element("link text", "中文"))
    assert find(browser, "html").get_attribute("lang") == "zh-Hans" and "q=tiny" in browser.current_url
    press(browser, find(browser, ".card h3 a"))
    shown = text_of(browser)
    for expected in ("有效", "用途", "输入与输出", "证据链", "源模型", "立即验证", "Example Hospital Devices"):
        assert expected in shown, expected
    press(browser, find(browser, ".actions button.primary"))
    assert "全部 27 项检查通过" in find(browser, ".verdict.good").text
    cuvil("registry", "withdraw", "tiny|1.0.0", "--reason", "有误")
    browser.refresh()
    assert "已撤回：请勿使用此模型版本" in find(browser, "section.alarm").text
    browser.get(f"{root}/?lang=en")


@pytest.mark.parametrize(("host", "algorithm"), [("127.0.0.1", "sha256"), (PLAIN_HOST, "sha3_512")])
def test_a_file_is_digested_in_the_browser(
    browser: Any, root: str, released: Released, host: str, algorithm: str
) -> None:
    """By the browser itself where the page is served securely, else by the script of proof.html."""
    browser.get(f"{root.replace('127.0.0.1', host)}/engines?lang=en")
    find(browser, "#file").send_keys(str(released.folder / "inference-engine.bin"))
    until = time.monotonic() + 30
    while "digest=" not in browser.current_url and time.monotonic() < until:
        time.sleep(0.05)
    engine = (released.folder / "inference-engine.bin").read_bytes()
    assert browser.current_url.endswith(f"digest={hashlib.new(algorithm.replace('_', '-'), engine).hexdigest()}")
    assert "An engine: tiny for x86_64-linux-musl" in text_of(browser) and "tiny 1.0.0" in text_of(browser)


def test_whose_a_digest_is(browser: Any, root: str, released: Released) -> None:
    browser.get(f"{root}/?lang=en")
    for name, kind in (
        ("inference-engine.cdx.json", "A file of a release"),
        ("inference-engine.release.json", "A release statement"),
    ):
        digest = hashlib.sha3_512((released.folder / name).read_bytes()).hexdigest()
        browser.get(f"{root}/engines?digest=SHA3-512:{digest.upper()}")
        assert kind in text_of(browser) and "tiny 1.0.0" in text_of(browser)
    browser.get(f"{root}/engines?digest={'0' * 64}")
    assert "Nothing with this digest" in text_of(browser)
    browser.get(f"{root}/engines?digest=12")
    assert "This is no digest" in text_of(browser)


def test_a_phone_shows_everything_in_its_width_and_the_keyboard_reaches_it(browser: Any, root: str) -> None:
    from selenium.webdriver.common.keys import Keys

    browser.get(f"{root}/?lang=en")
    press(browser, find(browser, ".card h3 a"))
    address = browser.current_url
    try:
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PHONE)
        for page in (f"{root}/?status=active", f"{root}/engines", address, f"{address}/verify", f"{address}/history"):
            browser.get(page)
            assert browser.execute_script("return document.documentElement.scrollWidth") <= PHONE["width"], page
        browser.get(address)
        assert find(browser, "svg.narrow").is_displayed() and not find(browser, "svg.wide").is_displayed()
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.get(f"{root}/")
    find(browser, "body").send_keys(Keys.TAB)
    skip = browser.switch_to.active_element
    assert skip.text == "To the content" and skip.location["x"] >= 0
    assert browser.execute_script("return getComputedStyle(arguments[0]).outlineStyle", skip) == "solid"
    skip.send_keys(Keys.ENTER)
    browser.switch_to.active_element.send_keys(Keys.TAB)
    assert browser.switch_to.active_element.get_attribute("id") == "q"


def test_the_commands_on_the_page_verify_the_release_without_cuvil(
    browser: Any, root: str, released: Released, tmp_path: Path
) -> None:
    browser.get(f"{root}/?lang=en")
    press(browser, find(browser, ".card h3 a"))
    commands = find(browser, "#offline pre").text
    for name in ("trust-root.json", "sm2.pub.pem", "p384.pub.pem"):
        (tmp_path / name).write_bytes((released.home / "keys" / name).read_bytes())
    done = subprocess.run(
        ["sh", "-eu", "-c", commands], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "release.zip: OK" in done.stdout
