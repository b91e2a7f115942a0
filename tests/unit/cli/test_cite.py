"""BibTeX entries: each kind of publication has its kind of entry."""

from __future__ import annotations

import re

import pytest

from ttabench.method import Paper
from ttabench.registry import methods


def paper(venue: str, url: str = "") -> Paper:
    return Paper(key="doe2026some", title="Some Title", authors="Doe, Jane", venue=venue, year=2026, url=url)


def rows(entry: str) -> dict[str, str]:
    return dict(re.findall(r"^  (\w+) *= {(.*)},$", entry, re.MULTILINE))


@pytest.mark.parametrize("venue", ["arXiv", "preprint"])
def test_a_preprint_is_misc_with_its_number(venue: str) -> None:
    entry = paper(venue, "https://arxiv.org/abs/2601.11022").bibtex()
    assert entry.startswith("@misc{doe2026some,\n")
    assert rows(entry)["eprint"] == "2601.11022"
    assert rows(entry)["archivePrefix"] == "arXiv"
    assert not {"booktitle", "journal"} & rows(entry).keys()


def test_an_old_arxiv_number_is_a_number_too() -> None:
    assert rows(paper("arXiv", "https://arxiv.org/abs/hep-th/9901001").bibtex())["eprint"] == "hep-th/9901001"


def test_a_preprint_without_a_number_says_that_it_is_one() -> None:
    entry = paper("preprint", "https://example.org/paper.pdf").bibtex()
    assert entry.startswith("@misc{")
    assert rows(entry)["note"] == "Preprint"
    assert "eprint" not in rows(entry)


def test_conferences_and_journals() -> None:
    url = "https://arxiv.org/abs/2006.10726"
    at_conference, in_journal = (paper(venue, url) for venue in ("ICLR", "TMLR"))
    assert at_conference.bibtex().startswith("@inproceedings{")
    assert rows(at_conference.bibtex())["booktitle"] == "ICLR"
    assert in_journal.bibtex().startswith("@article{")
    assert rows(in_journal.bibtex())["journal"] == "TMLR"


def test_every_preprint_that_we_cite_has_its_number() -> None:
    papers = {cls.paper for cls in methods().values() if cls.paper}
    assert papers
    for one in papers:
        result = rows(one.bibtex())
        assert result["title"] == one.title
        assert ("eprint" in result) == (one.venue == "arXiv"), one.key
        assert one.venue.lower() != "preprint", one.key
