"""The contract of a figure, the common style of figures, and writing them to files.

A figure is a function registered under ``ttabench.figures``. It returns a matplotlib ``Figure`` that was
made without pyplot. Its keyword-only parameters, each with a default, are the options it takes. If it has
a parameter `bench`, it is handed a trained classifier with its data, see :class:`Bench`. An option `method`
names the one method that it shows.
"""

from __future__ import annotations

import inspect
import io
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ttabench.errors import UserError
from ttabench.system.files import replace_file, writing

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.figure import Figure, FigureBase
    from numpy.typing import NDArray

    from ttabench.method import Batches, Method

KINDS = ("png", "pdf")
STYLE = {
    "font.family": "DejaVu Sans", "font.size": 8, "axes.titlesize": 8, "axes.labelsize": 8,
    "xtick.labelsize": 7, "ytick.labelsize": 7, "legend.fontsize": 7, "legend.frameon": False,
    "axes.linewidth": 0.6, "xtick.major.width": 0.6, "ytick.major.width": 0.6, "lines.linewidth": 1.3,
    "axes.spines.top": False, "axes.spines.right": False, "figure.dpi": 220, "pdf.fonttype": 42,
}  # fmt: skip

M = TypeVar("M", bound="Method[Any]")


class Bench(Protocol):
    """A trained classifier with its source and target data, for figures that show adaptation at work."""

    @property
    def title(self) -> str:
        """Classifier, dataset and corruption, e.g. ``resnet18 on digits-c, gaussian_noise``."""
        ...

    @property
    def seed(self) -> int: ...

    @property
    def labels(self) -> NDArray[np.int64]:
        """(n,), in the order of :meth:`images`. For scores and colours; methods never see them."""
        ...

    def method(self, cls: type[M], **settings: Any) -> M:
        """A method prepared on the classifier, with the dataset's defaults, as a sweep does it.

        `settings` are those of the figure; settings on the command line override them.
        """
        ...

    def images(self, severity: int, batch_size: int) -> Batches:
        """The test images under the corruption; clean at severity 0. Always in the same order."""
        ...

    def tell(self, what: str, done: int, total: int) -> None:
        """Report progress; a total of 0 means unknown."""
        ...


def takes_bench(make: Callable[..., Figure]) -> bool:
    return "bench" in inspect.signature(make).parameters


def options(make: Callable[..., Figure]) -> Mapping[str, Any]:
    """The options of a figure and their defaults."""
    parameters = inspect.signature(make).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}


def at_least(least: float, **values: float) -> None:
    """Raises UserError if an option is below `least` or not finite."""
    for name, value in values.items():
        if not least <= value < math.inf:
            raise UserError(f"{name} is {value}; expected at least {least}.")


@contextmanager
def figure_style() -> Iterator[None]:
    """Use ttabench's settings of Matplotlib inside the block, independently of the user's."""
    from matplotlib import style

    with style.context(["default", STYLE]):
        yield


def write(figure: Figure, name: str, folder: Path) -> list[Path]:
    """Write ``name.png`` and ``name.pdf`` to `folder`; returns their paths.

    The same figure gives the same bytes. Both are rendered before one is written. Raises UserError if the
    folder cannot be written.
    """
    _settle(figure)
    pictures = {folder / f"{name}.{kind}": _render(figure, kind) for kind in KINDS}
    for path, picture in pictures.items():
        with writing(path, "choose another --out"):
            replace_file(path, picture)
    return list(pictures)


def _settle(figure: Figure) -> None:
    """Fix the layout, rounded to a millionth: the last bits of the layout solver differ between runs."""
    from matplotlib.transforms import Bbox

    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    parts: list[FigureBase] = [figure]
    while parts:
        inner = parts.pop().subfigs
        for part in inner:
            part.bbox_relative.set_points(part.bbox_relative.get_points().round(6))
        parts += inner
    for axes in figure.axes:
        place = axes.get_position(original=True)
        axes.set_position(Bbox(place.get_points().round(6)))


def _render(figure: Figure, kind: str) -> bytes:
    clocks = {"png": ("Software",), "pdf": ("CreationDate", "Creator", "Producer")}[kind]
    file = io.BytesIO()
    figure.savefig(file, format=kind, metadata=dict.fromkeys(clocks))
    return file.getvalue()
