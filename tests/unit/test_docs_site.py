"""The documentation site builds without a warning, and its reference pages name all that there is."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pages_from_code
import pytest

import ttabench
from ttabench.cli import command
from ttabench.registry import method_names

DOCS = pages_from_code.DOCS


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for package in ("sphinx", "myst_parser", "furo"):
        pytest.importorskip(package, reason="the site needs the extra 'docs'")
    out = tmp_path_factory.mktemp("site")
    build = ("-m", "sphinx", "-q", "-W", "--keep-going", "-n", "-b", "html", str(DOCS), str(out))
    done = subprocess.run([sys.executable, *build], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return out


def identifiers(page: Path) -> set[str]:
    return set(re.findall(r'id="([^"]+)"', page.read_text()))


def test_every_command_and_option_has_its_place(site: Path) -> None:
    text = re.sub(r"<[^>]+>", "", (site / "commands.html").read_text())
    for verb, result in command().commands.items():
        assert f"ttabench {verb}" in text
        for option in result.params:
            if getattr(option, "hidden", False):
                continue  # of processes that ttabench starts itself
            assert all(name in text for name in option.opts if name.startswith("--")), (verb, option.opts)


def test_every_method_has_a_section(site: Path) -> None:
    sections = identifiers(site / "methods.html")
    assert {name.replace("_", "-") for name in method_names()} <= sections


def test_the_public_interface_has_sections(site: Path) -> None:
    sections = identifiers(site / "api.html")
    for name in ttabench.__all__:
        assert f"ttabench-{name.lower().replace('_', '-')}" in sections, name


def test_a_broken_link_fails_the_build(site: Path, tmp_path: Path) -> None:
    (tmp_path / "conf.py").write_text('extensions = ["myst_parser"]\n')
    (tmp_path / "index.md").write_text("# Start\n\n[nowhere](nowhere.md)\n")
    build = ("-m", "sphinx", "-q", "-W", "-n", str(tmp_path), str(tmp_path / "out"))
    assert subprocess.run([sys.executable, *build], capture_output=True, check=False).returncode != 0


def test_every_page_is_in_the_contents() -> None:
    listed = (DOCS / "index.md").read_text()
    for page in DOCS.glob("*.md"):
        assert page.stem == "index" or re.search(rf"^{page.stem}$", listed, re.MULTILINE), page.name


@pytest.mark.parametrize("name", pages_from_code.PAGES)
def test_the_lists_are_those_of_the_code(name: str) -> None:
    """`python scripts/pages_from_code.py` makes them new."""
    text = (DOCS / f"{name}.md").read_text(encoding="utf-8")
    assert pages_from_code.BLOCK.search(text)
    assert pages_from_code.fill(text) == text
    assert "\\`" not in text  # names between backticks are code


def test_a_list_that_differs_from_the_code_is_written_anew() -> None:
    text = (DOCS / "methods.md").read_text(encoding="utf-8")
    assert pages_from_code.fill(text.replace("| `lr` | 0.001 |", "| `lr` | 0.002 |")) == text
    assert "before" in pages_from_code.fill(f"before\n{text}")
