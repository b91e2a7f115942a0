"""A table says where its cells were measured in several environments."""

from __future__ import annotations

import math

from tests.cases import each
from tests.unit.made_cells import cells
from ttabench_reports.evidence.report import Report

SAME = {"device": "cpu", "processor": "A, AVX2", "threads": 1, "versions": "python 3.11.7 torch 2.5.0"}


def remarks(**other: object) -> str:
    """What the table says where the cells of TENT have these other facts."""
    frame = cells(("source", "tent"), ("cct",))
    for name, value in SAME.items():
        frame[name] = frame["base"].map({"source": value, "tent": other.get(name, value)})
    return " ".join(Report(frame).tables[0].remarks)


def test_one_environment_is_not_mentioned() -> None:
    assert "environment" not in remarks()


@each(
    ("other", "says"),
    [
        ({"device": "cuda"}, "The cells were not all measured in one environment: device cpu or cuda."),
        ({"threads": 4}, "environment: threads 1 or 4."),
        ({"processor": "B, AVX512"}, "environment: processor A, AVX2 or B, AVX512."),
        ({"versions": "python 3.13.0 torch 2.5.0"}, "environment: python 3.11.7 or 3.13.0."),
        ({"device": "cuda", "versions": "python 3.11.7 torch 2.6.0"},
         "device cpu or cuda; torch 2.5.0 or 2.6.0."),
        ({"versions": "python 3.11.7 opencv not installed torch 2.6.0"},
         "environment: torch 2.5.0 or 2.6.0."),
    ],
)  # fmt: skip
def test_differences_are_named_with_their_values(other: dict[str, object], says: str) -> None:
    assert says in remarks(**other)


def test_what_only_some_cells_record_is_no_difference() -> None:
    assert "environment" not in remarks(versions="python 3.11.7 timm 1.0.0 torch 2.5.0")
    assert "environment" not in remarks(device="", processor="", threads=0, versions="")


def test_only_measured_cells_count() -> None:
    frame = cells(("source", "tent"), ("cct",)).assign(**SAME)
    failed = frame.index[frame["base"] == "tent"][0]
    frame.loc[failed, ["device", "accuracy", "status"]] = ["cuda", math.nan, "failed"]
    assert not any("environment" in remark for remark in Report(frame).tables[0].remarks)
