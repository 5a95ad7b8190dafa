"""The page in a browser: its plots, console, width and keyboard control, in both colour schemes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ftfile.tools.report.report import render
from tests.unit.tools.report.browser import Browser, Page
from tests.unit.tools.report.samples import contents_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow

CHARTS = 6
DRAWN = (
    "[...document.querySelectorAll('.line, .marks, .band')].filter(p => p.getBoundingClientRect().width > 100).length"
)
# The width by which the content exceeds the window; if it is positive, the window scrolls horizontally.
WIDE = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
FOCUSED = "(e => e.getAttribute('aria-label') || e.textContent.trim())(document.activeElement)"
# The least contrast ratio of all texts and their backgrounds, as defined by WCAG 2.
CONTRAST = """(() => {
  const parts = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (e) => {
    const colour = parts(getComputedStyle(e).backgroundColor);
    return colour.length === 4 && colour[3] === 0 ? behind(e.parentElement) : colour;
  };
  const found = [...document.querySelectorAll("body *")]
    .filter((e) => [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()) && e.checkVisibility())
    .map((e) => [light(parts(getComputedStyle(e).color)), light(behind(e))])
    .map(([a, b]) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05));
  return Math.min(...found);
})()"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("page") / "report.html"
    file.write_text(render(contents_of(100_000)))
    return file


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1_920])
def test_plots_are_drawn_within_the_window(browser: Browser, file: Path, width: int, scheme: str) -> None:
    page = Page(browser, file, width, scheme)
    assert page.value(DRAWN) == 2 * (CHARTS - 1) + 3  # lines and bands, and three kinds of events
    assert page.value(WIDE) == 0
    assert page.value("document.querySelectorAll('details').forEach(e => e.open = true)") is None
    assert page.value(WIDE) == 0
    assert page.requests() == [file.as_uri()]
    assert page.complaints() == []
    assert page.value(CONTRAST) >= 4.5
    is_dark = page.value("getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0] < 128")
    assert is_dark == (scheme == "dark")


def test_the_keyboard_reaches_all_in_order(browser: Browser, file: Path) -> None:
    page, focused = Page(browser, file), [""]
    while focused[-1] != "Checks of the machine" and len(focused) < 60:
        page.press("Tab")
        focused.append(page.value(FOCUSED))
    del focused[0]
    assert focused[:3] == ["Skip to what needs attention", "Attention", "Over the versions"]
    titles = page.value("[...document.querySelectorAll('.chart h3')].map(e => e.textContent)")
    assert len(titles) == CHARTS
    sliders = [name for name in focused if name.endswith(": read the values")]
    assert sliders == [*(f"{title}: read the values" for title in titles[:-1]), "Events: read the values"]
    first = focused.index(sliders[0])
    assert focused[first + 1] == "Values of \u201cRows per version\u201d as a table"
    assert "Open files" in focused
    assert focused[-1] == "Checks of the machine"
    assert all(focused)


def test_arrow_keys_read_the_values_of_all_figures(browser: Browser, file: Path) -> None:
    page = Page(browser, file)
    page.value("document.querySelector('#chart-rows input').focus()")
    assert page.value("getComputedStyle(document.querySelector('#chart-rows .area')).outlineStyle") == "solid"
    page.press("Home")
    outputs = page.value("[...document.querySelectorAll('output')].map(e => e.textContent)")
    assert len(outputs) == CHARTS
    assert all("versions 0\u2013249, " in text for text in outputs)
    page.press("ArrowRight")
    assert set(page.value("[...document.querySelectorAll('input')].map(e => e.value)")) == {"1"}
    assert "versions 250\u2013499, " in page.value("document.querySelector('#chart-seconds output').textContent")
    shown = page.value("document.querySelector('#chart-bytes input').getAttribute('aria-valuetext')")
    cells = page.value(
        "[...document.querySelectorAll('#chart-bytes tbody tr')[1].cells].map(e => e.textContent.trim())"
    )
    assert shown == f"versions {cells[0]}: least {cells[2]}, mean {cells[3]}, greatest {cells[4]}"
    page.press("End")
    assert "99,750\u201399,999" in page.value("document.querySelector('#chart-pauses output').textContent")


def test_all_that_is_used_or_drawn_has_a_name(browser: Browser, file: Path) -> None:
    nodes = Page(browser, file).call("Accessibility.getFullAXTree")["nodes"]
    roles = {"slider", "image", "img", "link", "region", "table", "DisclosureTriangle", "figure"}
    found = [node for node in nodes if not node["ignored"] and node["role"]["value"] in roles]
    assert {"slider", "image", "link", "region"} <= {node["role"]["value"] for node in found}
    named = {"slider", "image", "img", "link", "region", "DisclosureTriangle"}
    assert [node for node in found if node["role"]["value"] in named and not node["name"].get("value")] == []


def test_one_version_and_none(browser: Browser, tmp_path: Path) -> None:
    for versions, lines in ((1, CHARTS - 2), (0, 0)):  # the first version has no version before it
        file = tmp_path / f"{versions}.html"
        file.write_text(render(contents_of(versions)))
        page = Page(browser, file, 360)
        assert page.value(DRAWN) == lines
        assert page.value(WIDE) == 0
        assert page.complaints() == []
