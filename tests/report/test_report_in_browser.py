"""The page of `sil report` in Chromium."""

import pytest
import sample_results
from browser import accessibility_faults, chromium, errors, needs_chromium, overflows, prefer, requests, resize
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.support.ui import WebDriverWait

pytestmark = needs_chromium
CURVES = "experiment-sample-curves-0"


@pytest.fixture(scope="module")
def file(reported):
    return reported / "report.html"


@pytest.fixture(scope="module")
def driver(file):
    with chromium() as opened:
        opened.get(file.as_uri())
        yield opened


@pytest.fixture
def page(driver, file):
    """The page as it opens, on a desktop, with all figures drawn."""
    resize(driver, 1280)
    prefer(driver, "light")
    for form in driver.find_elements("css selector", "form"):
        driver.execute_script("arguments[0].reset(); arguments[0].dispatchEvent(new Event('input'))", form)
    _scroll_through(driver)
    # Figures follow the width of the page a moment later.
    driver.execute_async_script(
        "const done = arguments[0];"
        "Promise.all([...document.querySelectorAll('.js-plotly-plot')].map((chart) => Plotly.Plots.resize(chart)))"
        ".then(() => requestAnimationFrame(() => requestAnimationFrame(() => done())));"
    )
    return driver


def _scroll_through(driver):
    driver.execute_async_script(
        "const done = arguments[0];"
        "const charts = [...document.querySelectorAll('.chart')];"
        "const next = () => { const chart = charts.find((one) => !one.data);"
        "  if (!chart) return done(); chart.scrollIntoView({behavior: 'instant'}); setTimeout(next, 20); };"
        "next();"
    )


def _lines(driver, chart=CURVES):
    """Shapes of the drawn lines, in order."""
    lines = "[...document.getElementById(arguments[0]).querySelectorAll('path.js-line')]"
    return driver.execute_script(f"return {lines}.map((line) => line.getAttribute('d'))", chart)


def _control(driver, name, at=0):
    return driver.find_elements("css selector", f"#experiment-sample-controls [name={name}]")[at]


def _colour(driver, css="background-color", of="body"):
    return driver.find_element("css selector", of).value_of_css_property(css)


@pytest.mark.parametrize("width", [1280, 390])
def test_it_opens_without_errors_or_requests_and_does_not_scroll_sideways(driver, file, width):
    requests(driver), errors(driver)
    resize(driver, width)
    driver.get(file.as_uri())
    _scroll_through(driver)
    assert errors(driver) == []
    assert {address for address in requests(driver) if not address.startswith(("data:", "blob:"))} == {file.as_uri()}
    assert not overflows(driver)
    assert len(_lines(driver)) > 2
    assert driver.find_elements("css selector", ".bars .barlayer path")


def test_agents_are_switched_off_and_on_by_keyboard(page):
    before = _lines(page)
    _control(page, "agent").send_keys(" ")
    fewer = _lines(page)
    assert 0 < len(fewer) < len(before)
    _control(page, "agent").send_keys(" ")
    assert _lines(page) == before


def test_single_seeds_and_the_best_episodes_are_lines_that_can_be_hidden(page):
    agents, seeds = 2, 3
    assert _control(page, "seeds").is_selected(), "with three seeds, each is drawn"
    assert len(_lines(page)) == 2 * agents * (seeds + 1)
    _control(page, "best").click()
    assert len(_lines(page)) == agents * (seeds + 1)
    _control(page, "seeds").click()
    assert len(_lines(page)) == agents


def test_the_slider_smooths_the_lines(page):
    before = _lines(page)
    _control(page, "smoothing").send_keys("\ue014\ue014")  # arrow to the right, twice
    assert page.find_element("css selector", "output").text == "over 5 points"
    assert len(_lines(page)) == len(before)
    assert _lines(page) != before


def test_the_horizontal_axis_can_be_wall_time(page):
    title = "return document.getElementById(arguments[0]).layout.xaxis.title.text"
    assert page.execute_script(title, CURVES) == "environment steps per seed"
    _control(page, "x", 1).click()
    assert page.execute_script(title, CURVES) == "wall time in minutes"
    assert page.execute_script("return document.getElementById(arguments[0]).data.at(-1).x.at(-1)", CURVES) == 500 / 60


def test_pointing_at_a_curve_shows_mean_interval_and_n(page):
    texts = page.execute_script(
        "return document.getElementById(arguments[0]).data.filter((t) => t.text).map((t) => t.text.at(-1))", CURVES
    )
    assert texts[0] == "a2c: 0.33 (−1.10 to 1.77), n = 3"


def test_it_follows_the_theme_of_the_system_and_the_button(page):
    button = page.find_element("id", "theme")

    def colours():
        return _colour(page), _colour(page, "fill", "text.xtitle")

    light, wait = colours(), WebDriverWait(page, 10, ignored_exceptions=[StaleElementReferenceException])
    prefer(page, "dark")
    wait.until(lambda _: all(now != before for now, before in zip(colours(), light, strict=True)), "figures follow")
    assert button.get_attribute("aria-pressed") == "true"
    button.click()
    wait.until(lambda _: colours() == light, "and back")
    page.execute_script("delete document.documentElement.dataset.theme")


def test_html_in_names_stays_text(page):
    assert page.execute_script("return window.hacked") is None
    assert page.execute_script("return document.querySelectorAll('main img, main b').length") == 0
    inside = ("h2", ".prose", "h4", "> .scroll tbody th", "dd", "pre")
    places = [".claim", *(f"#experiment-sample {part}" for part in inside)]
    for place in places:
        assert sample_results.HOSTILE in page.find_element("css selector", place).get_attribute("textContent"), place
    ticks = [tick.text for tick in page.find_elements("css selector", ".bars .ytick text")]
    assert sample_results.FREEWAY in ticks


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious(page, theme):
    prefer(page, theme)
    page.execute_script("document.querySelectorAll('details').forEach((one) => (one.open = true))")
    assert accessibility_faults(page) == []


def test_tables_can_be_saved_from_the_page_alone(page, file):
    page.execute_script("URL.createObjectURL = (blob) => { window.saved = blob; return '#' }")
    page.find_element("css selector", "[data-table=sample-scores][data-format=tex]").click()
    text = page.execute_async_script("window.saved.text().then(arguments[0])")
    assert text == (file.with_name("report_files") / "sample-scores.tex").read_text()
