"""The page of `sil watch` in Chromium."""

import threading
from contextlib import contextmanager

import pytest
import recorded_run
from browser import accessibility_faults, chromium, errors, needs_chromium, overflows, prefer, resize

from self_imitation.storage.run_directory import RunDirectory
from self_imitation.watch import server, sites

pytestmark = needs_chromium
HTML = "<img src=x onerror=alert(1)><b>bold"
RIGHT, LEFT = "\ue014", "\ue012"


@pytest.fixture(scope="module")
def driver():
    with chromium() as opened:
        yield opened


@contextmanager
def opened(driver, run: RunDirectory):
    """The page of a run, on a desktop."""
    with server.create(sites.RunSite(run), 0) as pages:
        thread = threading.Thread(target=lambda: pages.serve_forever(poll_interval=0.01))
        thread.start()
        try:
            resize(driver, 1280)
            prefer(driver, "light")
            driver.get(pages.url)
            yield driver
            assert errors(driver) == []
        finally:
            driver.get("about:blank")
            pages.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def maze(driver, tmp_path_factory):
    """A run in a grid world with three snapshots, and its page, opened once."""
    run = recorded_run.create(tmp_path_factory.mktemp("maze") / "run", record=True)
    for step in (0, 400, 800):
        recorded_run.add_row(run, step, step / 400)
        recorded_run.add_snapshot(run, step)
    with opened(driver, run) as page:
        wait(page, "return document.querySelectorAll('#policy-maze .wedge').length > 100")
        yield run, page


def wait(driver, condition, seconds=30):
    """Until a JavaScript condition holds."""
    script = (
        "const done = arguments[1], end = Date.now() + 1000 * arguments[0];"
        f"const holds = () => {{ {condition} }};"
        "const ask = () => holds() ? done(true) : Date.now() > end ? done(false) : setTimeout(ask, 20); ask();"
    )
    assert driver.execute_async_script(script, seconds), condition


def text(driver, name):
    return driver.find_element("id", name).text


def shown_step(driver):
    return text(driver, "moment")


def choose(driver, name, value):
    button = driver.find_element("css selector", f"input[name={name}][value='{value}']")
    driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", button)  # bars at the top may cover it
    button.click()


def drawing(driver, name):
    return driver.find_element("id", name).get_attribute("innerHTML")


def points(driver, chart):
    return driver.execute_script("return document.getElementById(arguments[0]).data[0].x.length", chart)


def test_it_shows_curves_the_buffer_and_what_is_imitated(maze):
    _, page = maze
    assert shown_step(page) == "step 800"
    assert text(page, "state") == "training"
    assert page.execute_script("return document.querySelectorAll('.js-plotly-plot').length") == 7
    assert text(page, "returns-text") == "Seed 3: mean return 2 at step 800; its best episode so far earned 3."
    assert points(page, "memory-chart") == 8
    assert "R > V holds for 50 % of the stored steps; they get 90 % of the sampling." in text(page, "steps-text")
    assert "Return 1 in 3 steps, stored 7 steps ago." in text(page, "remembered-text")


def test_the_slider_shows_earlier_snapshots_and_the_button_the_newest(maze):
    _, page = maze
    before = drawing(page, "policy-maze")
    slider = page.find_element("id", "slider")
    slider.send_keys(LEFT)
    wait(page, "return document.getElementById('memory-chart').data[0].x.length === 4")
    assert shown_step(page) == "step 400"
    assert slider.get_attribute("aria-valuetext") == "step 400"
    assert drawing(page, "policy-maze") != before
    slider.send_keys(LEFT)
    wait(page, "return document.getElementById('memory-chart').data[0].x.length === 0")
    assert text(page, "remembered-text") == "No episode is stored yet."
    page.find_element("id", "newest").click()
    wait(page, "return document.getElementById('memory-chart').data[0].x.length === 8")
    assert drawing(page, "policy-maze") == before


def test_the_button_plays_the_training_from_the_start(maze):
    _, page = maze
    page.execute_script(
        "window.seen = [];"
        "new MutationObserver(() => seen.push(document.getElementById('moment').textContent))"
        ".observe(document.getElementById('moment'), {childList: true});"
        "document.getElementById('play').click();"
    )
    wait(page, "return seen.length >= 3 && document.getElementById('play').getAttribute('aria-pressed') === 'false'")
    assert page.execute_script("return seen") == ["step 0", "step 400", "step 800"]
    page.find_element("id", "newest").click()


def test_stages_apples_and_colours_change_the_maze(maze):
    _, page = maze
    seen = {drawing(page, "policy-maze")}
    for name, value in (("task", 1), ("apples", 3), ("heat", "visits"), ("heat", "remembered")):
        choose(page, name, value)
        seen.add(drawing(page, "policy-maze"))
    assert len(seen) == 5
    assert "Colour: steps in the replay buffer" in text(page, "policy-text")
    assert "what it did to open the door" in text(page, "remembered-text")
    for name, value in (("task", 0), ("apples", 0), ("heat", "values")):
        choose(page, name, value)


def test_the_best_episode_can_be_walked_through_by_keyboard(maze):
    _, page = maze
    walk = page.find_element("id", "walk")
    walk.send_keys(RIGHT * 3)
    assert walk.get_attribute("aria-valuetext") == "step 3 of 3"
    assert "After step 3 it has earned 1." in text(page, "remembered-text")
    walk.send_keys(LEFT * 3)


def test_it_follows_the_run_and_keeps_what_the_reader_chose(maze):
    run, page = maze
    choose(page, "task", 1)
    page.find_element("id", "seed").send_keys("4")
    recorded_run.add_row(run, 1200, 9.0)
    recorded_run.add_snapshot(run, 1200)
    wait(page, "return document.getElementById('memory-chart').data[0].x.length === 12")
    assert shown_step(page) == "step 1,200"
    assert "Seed 4: mean return 9 at step 1,200" in text(page, "returns-text")
    assert page.find_element("css selector", "input[name=task][value='1']").is_selected()
    slider = page.find_element("id", "slider")
    slider.send_keys(LEFT)
    recorded_run.add_row(run, 1600, 9.5)
    recorded_run.add_snapshot(run, 1600)
    wait(page, "return document.getElementById('slider').max === '4'")
    assert shown_step(page) == "step 800", "a reader who looks at an earlier snapshot stays there"


def test_faults_of_accessibility_in_both_themes_and_sideways_scrolling(maze):
    _, page = maze
    assert accessibility_faults(page) == []
    prefer(page, "dark")
    resize(page, 390)
    assert accessibility_faults(page) == []
    assert not overflows(page)
    resize(page, 1280)


@pytest.fixture(scope="module")
def other(driver, tmp_path_factory):
    """The page of a run elsewhere, with HTML in its names, two played episodes and a reason why there are no more."""
    run = recorded_run.create(tmp_path_factory.mktemp("other") / HTML, f"gym:{HTML}", record=True)
    recorded_run.add_row(run, 400, 1.0)
    recorded_run.add_played(run, 200, 70.0)
    recorded_run.add_played(run, 400, 50.0)
    recorded_run.add_snapshot(run, 400, note=f"{HTML} can't be rendered")
    with opened(driver, run) as page:
        wait(page, "return document.querySelectorAll('.film').length === 2")
        yield page


def test_names_with_html_stay_text(other):
    assert text(other, "title") == f"a2c+sil on gym:{HTML}"
    assert text(other, "run-name") == HTML
    assert text(other, "episodes-note") == f"No more episodes are played: {HTML} can't be rendered"
    assert not other.find_elements("css selector", "img, main b")


def test_played_episodes_are_shown_newest_and_best(other):
    assert "Seed 3 at step 400: return 50 in 9 steps." in text(other, "newest-film")
    assert "Seed 3 at step 200: return 70 in 9 steps." in text(other, "best-film")


def test_before_its_first_row_and_after_its_last(driver, tmp_path):
    run = recorded_run.create(tmp_path / "run", record=True)
    (run.path / "metrics.csv").unlink()
    recorded_run.add_snapshot(run, 0)
    with opened(driver, run) as page:
        wait(page, "return document.getElementById('state').textContent === 'training'")
        assert text(page, "returns-text") == "No episode has ended yet."
        assert text(page, "memory-text") == "The replay buffer is still empty."
        (run.path / "metrics.csv").write_text(recorded_run.COLUMNS + "\n")
        recorded_run.add_row(run, 1600, 7.0)
        run.summary.write_text('{"finished": true, "step": 1600}')
        wait(page, "return document.getElementById('state').textContent === 'finished'")


def test_a_run_without_a_record_shows_its_curves_and_says_how_to_record(driver, tmp_path):
    run = recorded_run.create(tmp_path / "run", agent="a2c")
    recorded_run.add_row(run, 400, 1.0)
    with opened(driver, run) as page:
        wait(page, "return document.querySelectorAll('.js-plotly-plot').length === 1")
        assert "trained with --record" in text(page, "no-record")
        assert not page.find_element("id", "maze").is_displayed()
