"""Chromium without a window, for tests of pages."""

import json
import shutil
from contextlib import contextmanager

import pytest

needs_chromium = pytest.mark.skipif(
    not (shutil.which("chromium") and shutil.which("chromedriver")),
    reason="needs Chromium and its driver: apt-get install chromium chromium-driver",
)


@contextmanager
def chromium():
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    for argument in ("headless=new", "no-sandbox", "disable-dev-shm-usage", "disable-gpu"):
        options.add_argument(f"--{argument}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))
    driver.set_script_timeout(60)
    try:
        yield driver
    finally:
        driver.quit()


def resize(driver, width, height=900):
    """Below 500 pixels as on a phone."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def prefer(driver, theme):
    """Set the theme of the system, light or dark; pages jump to where they are scrolled to."""
    preferences = {"prefers-color-scheme": theme, "prefers-reduced-motion": "reduce"}
    features = [{"name": name, "value": value} for name, value in preferences.items()]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def errors(driver):
    """Messages in the console since the last call, except for information."""
    return [entry["message"] for entry in driver.get_log("browser") if entry["level"] in ("WARNING", "SEVERE")]


def requests(driver):
    """Addresses that pages have asked for since the last call."""
    events = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    return [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]


def overflows(driver):
    """Whether the page can be scrolled sideways."""
    root = "document.documentElement"
    return driver.execute_script(f"return {root}.scrollWidth > {root}.clientWidth")


def accessibility_faults(driver):
    """Serious and critical findings of axe, one line each."""
    from axe_core_python.selenium import Axe

    found = Axe().run(driver, None, {"resultTypes": ["violations"]})["violations"]
    return [
        f"{fault['id']}: {node['html'][:200]}"
        for fault in found
        if fault["impact"] in ("serious", "critical")
        for node in fault["nodes"]
    ]
