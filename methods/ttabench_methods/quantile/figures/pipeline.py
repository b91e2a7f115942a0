"""The pipeline (Section 1): the decorruptor before the frozen classifier, and what the loss compares."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text

from . import style

# Part → its place in the drawing, 33 × 16.5, and its words. Those of BOXES are computed.
PARTS: dict[str, tuple[float, float, str]] = {
    "test": (2.4, 12.9, "Test data\n$\\{x_j^{+}\\}$"),
    "T": (8.6, 12.9, "Decorruption\n$T_{\\theta}$"),
    "train": (5.2, 4.6, "Train data of\nthe classifier\n$\\{x_i\\}$"),
    "f": (15.2, 8.6, "Pre-trained,\nfrozen\nclassifier\n$f$"),
    "test features": (22.6, 12.9, "Decorrupted\ntest features\n$f(T_{\\theta}(x_j^{+}))$"),
    "train features": (22.6, 4.6, "Train features\n$f(x_i)$"),
    "loss": (30.1, 8.6, "Quantile\nloss\n$\\mathcal{L}_{quant}(\\theta)$"),
}
BOXES = ("T", "f", "test features", "train features", "loss")
FORWARD = (
    ("test", "T"), ("T", "f"), ("f", "test features"), ("test features", "loss"),
    ("train", "f"), ("f", "train features"), ("train features", "loss"),
)  # fmt: skip
BACKWARD = (("loss", "test features"), ("test features", "f"), ("f", "T"))
"""The gradient: to θ alone. f is frozen, and the features of the train data do not depend on θ."""


def figure() -> Figure:
    """The pipeline of quantile matching: forward propagation, and backpropagation to the decorruptor."""
    made = Figure(figsize=(style.COLUMN, 1.65))
    axes = made.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, 33), ylim=(0, 16.5))
    axes.axis("off")
    texts = {name: _part(axes, name) for name in PARTS}
    for start, end in FORWARD:
        _arrow(axes, texts[start], texts[end], "solid", style.BLACK, bend=0.0)
    for start, end in BACKWARD:
        _arrow(axes, texts[start], texts[end], "dotted", style.VERMILION, bend=0.3)
    axes.plot([], [], "-", color=style.BLACK, label="forward")
    axes.plot([], [], ":", color=style.VERMILION, label="backpropagation")
    axes.legend(loc="lower right", ncols=2, borderaxespad=0.2, columnspacing=1)
    return made


def _part(axes: Axes, name: str) -> Text:
    x, y, words = PARTS[name]
    boxed = name in BOXES
    return axes.text(
        x, y, words, ha="center", va="center", fontsize=6.5, linespacing=1.25,
        bbox={
            "boxstyle": "round,pad=0.3", "facecolor": "white", "linewidth": 0.8 if boxed else 0,
            "edgecolor": style.BLACK,
        },
    )  # fmt: skip


def _arrow(axes: Axes, start: Text, end: Text, line: str, colour: str, bend: float) -> None:
    """From the edge of one part to that of another."""
    axes.annotate("", end.get_position(), start.get_position(), arrowprops={
        "arrowstyle": "-|>", "mutation_scale": 6, "linewidth": 0.9, "linestyle": line, "color": colour,
        "patchA": start.get_bbox_patch(), "patchB": end.get_bbox_patch(), "shrinkA": 1, "shrinkB": 1,
        "connectionstyle": f"arc3,rad={bend}",
    })  # fmt: skip
