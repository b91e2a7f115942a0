"""The accuracies under Figure 1 as curves: ours and the paper's, by severity."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from ttabench_reports.formats.files import write_bytes
from ttabench_reports.paper import theirs
from ttabench_reports.paper.ours import Ours
from ttabench_reports.paper.sheets import METHOD, of_paper
from ttabench_reports.words import naming

COLOURS = {"Source": "#A6A6A6", "Quantile (paper)": "#0072B2"}  # Okabe and Ito's
WIDTHS = {"Source": 3.2, "Quantile (paper)": 1.0}
"""Points: the first line is seen behind the other one, where they are the same."""


def severity_curve(ours: Ours, to: Path, name: str) -> list[Path]:
    """``name.png`` and ``name.pdf`` in the folder `to`; none where no severity was measured."""
    frame = pd.DataFrame(_points(ours))
    if not frame["whose"].eq("ours").any():
        return []
    import seaborn as sns
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({"font.size": 8, "pdf.fonttype": 42, **sns.axes_style("ticks")}):
        figure = Figure(figsize=(3.3, 2.5), layout="constrained")
        axes = figure.subplots()
        sns.lineplot(
            frame, x="severity", y="accuracy", hue="method", palette=COLOURS, size="method", sizes=WIDTHS,
            style="whose", style_order=("ours", "paper"), dashes={"ours": "", "paper": (2, 1.5)},
            markers=True, ax=axes, errorbar=None,
        )  # fmt: skip
        axes.set(xlabel="Severity", ylabel="Accuracy (%)", xticks=sorted(frame["severity"].unique()))
        axes.legend(frameon=False, fontsize=7)
        sns.despine(ax=axes)
        png, pdf = io.BytesIO(), io.BytesIO()
        figure.savefig(png, format="png", dpi=220, metadata={"Software": None})
        figure.savefig(pdf, format="pdf", metadata={"CreationDate": None, "Creator": None, "Producer": None})
    return [write_bytes(to / f"{name}.png", png.getvalue()), write_bytes(to / f"{name}.pdf", pdf.getvalue())]


def _points(ours: Ours) -> Iterator[dict[str, object]]:
    for row in theirs.severities():
        severity = int(row["severity"])
        for method, printed in (("source", row["source"]), (METHOD, row["quantile"])):
            found = of_paper(ours, row["dataset"], row["arch"], method, severity)
            shared = {"severity": severity, "method": naming.method(method)}
            yield {**shared, "whose": "paper", "accuracy": float(printed)}
            value = found.value(row["corruption"])
            if not math.isnan(value):
                yield {**shared, "whose": "ours", "accuracy": value}
