"""A headless Chromium for the tests of pages. Debian's packages chromium and chromium-driver bring it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--hide-scrollbars", "--force-prefers-reduced-motion",
)  # fmt: skip
NEEDED = os.environ.get("TTABENCH_BROWSER") == "required"
"""Set where the browser was installed for the tests: then its absence is a failure, no reason to skip."""


@contextmanager
def chromium(profile: Path) -> Iterator[Any]:
    """A selenium driver; skips the test, with the reason, where there is no browser or no selenium."""
    browsers = ("chromium", "chromium-browser", "google-chrome")
    programs = (next(filter(None, map(shutil.which, browsers)), None), shutil.which("chromedriver"))
    if None in programs and not NEEDED:
        pytest.skip("no Chromium: apt-get install chromium chromium-driver")
    if not NEEDED:
        pytest.importorskip("selenium", reason="no selenium: pip install 'ttabench[browser]'")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = programs[0] or "chromium"
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(executable_path=programs[1] or "chromedriver")
    driver = webdriver.Chrome(options=options, service=service)
    try:
        driver.set_page_load_timeout(60)
        driver.set_script_timeout(60)
        yield driver
    finally:
        driver.quit()


def resize(driver: Any, width: int, height: int) -> None:
    """The size of the page's viewport, also below the smallest window."""
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 700},
    )


def scheme(driver: Any, name: str) -> None:
    """``light`` or ``dark``, as the reader's system prefers."""
    feature = {"name": "prefers-color-scheme", "value": name}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})


def complaints(driver: Any) -> list[str]:
    """What the console holds since it was last asked: errors, warnings, breaches of the security policy."""
    return [entry["message"] for entry in driver.get_log("browser") if entry["level"] != "INFO"]
