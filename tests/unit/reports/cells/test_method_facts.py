"""What results say of their method beside the number."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path

import numpy as np

from tests.unit.made_cells import cells, facts
from tests.unit.stored_results import CELL, fill, measured
from ttabench.method.facts_for_reports import facts_of
from ttabench.registry import methods
from ttabench.store import Store
from ttabench_reports.cells.frames import checked
from ttabench_reports.cells.load import read, read_csv
from ttabench_reports.cells.method_facts import method_facts
from ttabench_reports.evidence.given import given
from ttabench_reports.formats.csv_files import write_cells
from ttabench_reports.tables import build as tables

RIGHT = np.ones(8, bool)


def test_of_every_method_the_defaults_and_where_they_are_from_are_known() -> None:
    for name, cls in methods().items():
        known = method_facts(json.dumps(facts_of(cls)))
        usual = cls.Config()
        assert known.stored
        assert bool(known.settings_from) == bool(fields(cls.Config)), name
        assert known.defaults == {setting: getattr(usual, setting) for setting in known.defaults}, name
        assert len(fields(cls.Config)) - len(known.defaults) <= 1, name  # a default may be computed
        assert (known.source_data, known.deviations) == (cls.needs.source_data, cls.deviations), name


def test_a_result_has_the_facts_of_its_method_and_of_those_in_its_settings(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "r", {"methods": ["stack"]})
    cell = replace(CELL, method="stack", label="stack", config=(("first", "quantile"), ("second", "tent")))
    fill(store, measured(cell, RIGHT), measured(replace(cell, method="nosuch", label="nosuch"), RIGHT))

    def stored() -> dict[str, str]:
        frame = read([tmp_path / "r"])
        return dict(zip(frame["base"], frame["about_method"], strict=True))

    before = stored()
    stack = method_facts(before["stack"])
    assert stack.parts.keys() == {"quantile", "tent"}
    assert stack.parts["tent"].settings_from == method_facts(facts("tent")).settings_from
    assert before["nosuch"] == ""
    assert store.merge() is not None
    assert stored() == before


def test_cells_that_do_not_say_it_have_the_facts_of_the_same_code_or_method(tmp_path: Path) -> None:
    frame = cells(("tent", "source")).assign(code="a")
    other = json.dumps({"deviations": "other code"})
    frame.loc[frame["arch"] == "cct", ["code", "about_method"]] = ["b", other]
    frame.loc[frame["corruption"] == "fog", "about_method"] = ""
    whole = checked(frame)
    assert set(whole.loc[(whole["arch"] == "cct"), "about_method"]) == {other}
    assert "" not in set(whole["about_method"])
    again = checked(read_csv(write_cells(frame, tmp_path / "cells.csv")))
    for arch in ("cct", "resnet18"):
        texts = [set(each.loc[each["arch"] == arch, "about_method"]) for each in (whole, again)]
        assert texts[0] == texts[1], arch
    assert (tmp_path / "cells.csv").read_text().count("other code") == 2  # once per method and code


def test_what_is_not_stored_is_said_and_damaged_facts_are_none() -> None:
    (row,) = [row for row in tables.tables(cells(("tent",), ("cct",)))[0].rows if row.measured]
    assert given({**row.about, "about_method": ""}).deviations == "not stored"
    for text in ("", "[1]", "{", '"text"', "[" * 100_000):
        assert not method_facts(text).stored
    odd = method_facts('{"deviations": 5, "defaults": [1], "parts": {"tent": 3}}')
    assert (odd.deviations, odd.defaults, odd.parts["tent"].stored) == ("5", {}, False)
