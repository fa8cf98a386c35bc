"""Pages in headless Chromium: they load from a file, sort, search, fold, print; no console error, no request."""

import base64
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tvm_ext
from tests.onnx_graphs import model, node, random, value
from tvm_ext.core.pages.page import Code, Facts, Figure, Fold, Note, Page
from tvm_ext.runtime.table import Cell, Markup, Table

pytestmark = pytest.mark.long
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--window-size=1300,900",
)  # fmt: skip
HOSTILE = "<script>document.title = 'taken over'</script>\"'\n\u202e"
SVG = Markup(
    '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><rect width="9" height="9" style="fill:red"/></svg>'
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A fresh browser."""
    pytest.importorskip("selenium", reason="selenium is not installed; it is in the extra dev")
    binary = next(filter(None, map(shutil.which, BROWSERS)), None)
    driver = shutil.which("chromedriver")
    if not (binary and driver):
        pytest.skip("no Chromium here: apt-get install chromium chromium-driver")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    chrome = webdriver.Chrome(options, webdriver.ChromeService(driver))
    yield chrome
    chrome.quit()


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with every part."""
    rows = [(f"kernel {i}", Cell(f"{i * 7 % 10} ms", i * 7 % 10), None if i == 3 else i * 1000) for i in range(10)]
    page = Page(f"a page {HOSTILE}")
    page.section("Kernels", Table(("name", "time", "bytes"), rows), Note("of one run"))
    page.section("Names", Facts([("hostile", HOSTILE)]), Table(("name",), [(HOSTILE,), ("needle in a row",)]))
    page.section(
        "Code", Fold("a pass", [Code("-old\n+new needle", "diff")]), Figure(lambda: SVG, "a square"), folded=True
    )
    path = tmp_path_factory.mktemp("pages") / "page.html"
    path.write_text(page.html(), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def report_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of a small model whose nodes have hostile names."""
    nodes = [node("MatMul", "x w", "a", HOSTILE), node("Relu", "a", "b", "relu & <b>"), node("Identity", "b", "y")]
    proto = model(nodes, [value("x", (5, 7))], [value("y", (5, 3))], {"w": random(7, 3)})
    path = tmp_path_factory.mktemp("reports") / "report.html"
    report = tvm_ext.report(proto, path, profile=False, cache=False)
    assert report.ok, report.failed
    return path


def opened(browser: Any, path: Path) -> list[str]:
    """Open a page; the addresses of what it asks for, besides itself."""
    browser.get("about:blank")
    browser.get_log("performance")
    browser.get_log("browser")
    browser.get(path.as_uri())
    browser.execute_async_script("setTimeout(arguments[0], 300)")
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [message["params"] for message in messages if message["method"] == "Network.requestWillBeSent"]
    return [request["request"]["url"] for request in asked if request.get("documentURL") == path.as_uri()]


def column(browser: Any, at: int) -> list[str]:
    script = "return [...document.querySelector('tbody').rows].map(row => row.cells[arguments[0]].textContent)"
    return list(browser.execute_script(script, at))


def shown(browser: Any, what: str) -> list[str]:
    """Texts of the elements that can be seen."""
    script = "return [...document.querySelectorAll('%s')].filter(e => e.checkVisibility()).map(e => e.textContent)"
    return list(browser.execute_script(script % what))


def search(browser: Any, text: str) -> str:
    """Type into the search box; what the count says."""
    box = browser.find_element("id", "search")
    box.clear()
    box.send_keys(text)
    browser.execute_async_script("setTimeout(arguments[0], 200)")
    return str(browser.find_element("id", "count").text)


@pytest.mark.parametrize("which", ["file", "report_file"])
def test_a_page_loads_without_errors_and_asks_for_nothing(browser: Any, which: str, request: Any) -> None:
    path = request.getfixturevalue(which)
    addresses = opened(browser, path)
    assert [address for address in addresses if address != path.as_uri() and not address.startswith("data:")] == []
    assert browser.get_log("browser") == []
    assert "taken over" not in browser.title or "<script>" in browser.title
    assert len(browser.find_elements("tag name", "script")) == 1
    assert browser.find_element("id", "search").is_displayed()


def test_columns_sort_by_clicks_and_keys(browser: Any, file: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    opened(browser, file)
    before = column(browser, 0)
    time = browser.find_elements("css selector", "thead th > span")[1]
    head = browser.find_elements("css selector", "thead th")[1]
    assert head.get_attribute("aria-sort") == "none"
    time.click()
    assert head.get_attribute("aria-sort") == "descending"
    assert column(browser, 1) == [f"{i} ms" for i in reversed(range(10))]
    time.send_keys(Keys.ENTER)
    assert head.get_attribute("aria-sort") == "ascending"
    assert column(browser, 1) == [f"{i} ms" for i in range(10)]
    time.send_keys(Keys.SPACE)
    assert head.get_attribute("aria-sort") == "none" and column(browser, 0) == before
    size = browser.find_elements("css selector", "thead th > span")[2]
    size.click()
    assert column(browser, 2)[0] == "9,000" and column(browser, 2)[-1] == ""
    size.click()
    assert column(browser, 2)[0] == "0" and column(browser, 2)[-1] == ""  # what is empty stays last
    name = browser.find_elements("css selector", "thead th > span")[0]
    name.click()
    assert column(browser, 0) == [f"kernel {i}" for i in range(10)]
    assert browser.get_log("browser") == []


def test_the_search_filters_rows_and_sections_and_counts(browser: Any, file: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    opened(browser, file)
    assert search(browser, "needle") == "2 of 16 in 2 sections"
    assert shown(browser, "h2") == ["Names", "Code"]
    assert shown(browser, "tbody tr") == ["needle in a row"]
    assert "new needle" in shown(browser, "pre")[0]  # folded before, and found
    assert search(browser, "KERNEL 7,000") == "1 of 16 in 1 sections"
    assert [text[:8] for text in shown(browser, "tbody tr")] == ["kernel 7"]
    assert search(browser, "code").endswith("in 1 sections")  # the title matches: all of the section shows
    assert search(browser, "no such thing") == "0 of 16 in 0 sections"
    assert browser.find_element("id", "nothing").is_displayed()
    browser.find_element("id", "search").send_keys(Keys.ESCAPE)
    assert browser.find_element("id", "count").text == ""
    assert len(shown(browser, "h2")) == 3 and shown(browser, "pre") == []  # folded again
    browser.find_element("tag name", "body").send_keys("/")
    assert browser.switch_to.active_element.get_attribute("id") == "search"
    assert browser.get_log("browser") == []


def test_sections_fold(browser: Any, file: Path) -> None:
    opened(browser, file)
    assert len(shown(browser, "tbody tr")) == 12
    browser.find_element("css selector", "#s0 > summary").click()
    assert len(shown(browser, "tbody tr")) == 2
    every = browser.find_element("id", "fold-all")
    every.click()
    assert shown(browser, "tbody tr") == [] and every.text == "Unfold all"
    every.click()
    assert len(shown(browser, "tbody tr")) == 12 and shown(browser, "figure")
    browser.find_element("id", "fold-all").click()
    browser.find_element("css selector", "nav a[href='#s2']").click()
    browser.execute_async_script("setTimeout(arguments[0], 100)")
    assert shown(browser, "figcaption") == ["a square"]  # a link opens its section


def test_a_print_has_everything_and_changes_nothing(browser: Any, file: Path) -> None:
    opened(browser, file)
    listen = "addEventListener('beforeprint', () => { window.printed = %s })"
    browser.execute_script(listen % "[...document.querySelectorAll('details')].every(one => one.open)")
    document = base64.b64decode(browser.execute_cdp_cmd("Page.printToPDF", {})["data"])
    assert document.startswith(b"%PDF")
    assert browser.execute_script("return window.printed") is True
    assert browser.execute_script("return document.getElementById('s2').open") is False
    assert browser.get_log("browser") == []


@pytest.mark.parametrize("width", [420, 1300])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_fits_every_window_and_scheme(browser: Any, file: Path, scheme: str, width: int) -> None:
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    feature = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", feature)
    try:
        opened(browser, file)
        assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")
        ink, paper = browser.execute_script(
            "const style = getComputedStyle(document.body); return [style.color, style.backgroundColor]"
        )
        light = [sum(map(int, color.strip("rgb()").split(","))) for color in (ink, paper)]
        assert abs(light[0] - light[1]) > 400 and (light[1] > light[0]) == (scheme == "light")
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
