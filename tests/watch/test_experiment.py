"""The page of an experiment: a table of its runs, with a link to the page of each."""

import json
import os

import browser
import pytest
import recorded_run
from selenium.webdriver.support.ui import WebDriverWait
from watch.serving import ask, served

from self_imitation.experiments import status
from self_imitation.experiments.status import Board, RunStatus
from self_imitation.watch import sites

NAME = "Maze_<b>a2c</b>"


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "runs"
    place.mkdir()
    recorded_run.add_row(recorded_run.create(place / "first", record=True), 800, 2.0)
    recorded_run.create(tmp_path / "outside", record=False)
    (place / "link").symlink_to(tmp_path / "outside")
    names = ["first", NAME, "../outside", "link"]
    board = Board("An <i>experiment</i>", "sil reproduce my.toml", [RunStatus(name, 2, 1600) for name in names])
    board.update("first", state="running", made=800, rate=40.0, attempts=2)
    status.write(board.publish(), place)
    return place


def test_it_gives_the_table_and_the_pages_of_runs_that_have_begun(folder):
    with served(sites.ExperimentSite(folder)) as pages:
        found = json.loads(ask(pages, "/status.json")[1])
        assert [run["has_page"] for run in found["runs"]] == [True, False, False, False]
        assert (found["rate"], found["current"]) == (40.0, True)
        assert json.loads(ask(pages, "/runs/0/run.json")[1])["step"] == 800
        for path in ("/runs/1/", "/runs/2/run.json", "/runs/3/run.json", "/runs/9/", "/runs/0", "/runs/00/", "/x"):
            assert ask(pages, path)[0].status == 404, path


def test_a_damaged_status_is_named(folder):
    with served(sites.ExperimentSite(folder)) as pages:
        (folder / status.FILE).write_text("{}")
        answer, body = ask(pages, "/status.json")
        assert answer.status == 503
        assert b"is damaged" in body


def wait(driver, condition):
    WebDriverWait(driver, 20).until(lambda d: d.execute_script(condition))


@browser.needs_chromium
def test_the_page_follows_the_runs_and_shows_names_as_text(folder):
    with served(sites.ExperimentSite(folder)) as pages, browser.chromium() as driver:
        driver.get(pages.url)
        wait(driver, "return document.querySelectorAll('#runs tr').length === 4")
        # The page makes its rows anew every moment: a script reads them at one time.
        rows = driver.execute_script("return [...document.querySelectorAll('#runs tr')].map((row) => row.innerText)")
        assert rows[0].split() == ["first", "running", "(start", "2)", "800", "of", "1,600", "40", "40", "s"]
        assert rows[1].startswith(NAME)
        assert driver.find_element("id", "title").text == "An <i>experiment</i>"
        assert driver.find_element("id", "summary").text.startswith(
            "3 waiting, 1 running, 0 done, 0 failed; 40 steps/s"
        )
        for width, theme in ((1280, "light"), (390, "dark")):
            browser.resize(driver, width)
            browser.prefer(driver, theme)
            assert not browser.overflows(driver)
            assert browser.accessibility_faults(driver) == []
        if shots := os.environ.get("SCREENSHOTS"):
            driver.save_screenshot(f"{shots}/experiment.png")
        board = Board("", "sil reproduce my.toml", [RunStatus("first", 2, 1600, "done", 1600)])
        status.write(board.publish(active=False), folder)
        wait(driver, "return document.getElementById('state').textContent === 'finished'")
        driver.execute_script("document.querySelector('#runs a').click()")
        wait(driver, "return document.getElementById('run-name') !== null")
        assert browser.errors(driver) == []
