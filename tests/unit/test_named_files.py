"""What workflows and pages name exists: extras of the package, and files of tests and scripts."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RUN = [ROOT / ".ci/run", *ROOT.glob(".github/workflows/*.yml")]


def test_every_extra_that_is_named_for_an_install_exists() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    files = [*RUN, *ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("ttabench/**/*.py")]
    named = {
        name
        for file in files
        for listed in re.findall(r"(?:ttabench|['\"]\.)\[([a-z][a-z,]*)\]", file.read_text())
        for name in listed.split(",")
    }
    assert {"dev", "hf", "robustbench"} <= named
    assert not named - extras.keys()


def test_every_test_and_script_that_ci_runs_exists() -> None:
    named = {
        name
        for file in RUN
        for name in re.findall(r"\b(?:tests|scripts)/[\w./-]+\.(?:py|toml|csv|ini)", file.read_text())
    }
    assert len(named) > 5
    assert not [name for name in sorted(named) if not (ROOT / name).is_file()]
