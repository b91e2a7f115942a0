"""Features before and after correction (Figure 1): t-SNE at every severity, and the accuracies."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from matplotlib import patheffects
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from sklearn.manifold import TSNE
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from ttabench.errors import UserError
from ttabench.figure import Bench, at_least
from ttabench_methods.quantile import Quantile

from . import style
from .forms import form
from .style import Array, Labels

NAMED = 20  # classes, at most, that are named in the panels
NEIGHBOURS = 10  # of a class's median: most of them must be of the class, or its number is grey
GAP = 0.08  # of the panel's extent: numbers nearer to each other would overlap
MIXED = "#5A5A5A"


@dataclass(frozen=True)
class Seen:
    """features (n, k) of all test images and accuracy in percent."""

    features: NDArray[np.float32]
    accuracy: float


@dataclass(frozen=True)
class Embedding:
    """The t-SNE of all panels together, so that they compare; first raw, then corrected.

    places    (2, s, m, 2), of the same m images in each panel.
    accuracy  (2, s), percent, of all test images.
    labels    (m,).
    """

    title: str
    method: str
    severities: tuple[int, ...]
    places: Array
    accuracy: Array
    labels: Labels


def figure(
    bench: Bench, *, severities: str = "12345", images: int = 300, epochs: int = 0, method: str = "quantile"
) -> Figure:
    """t-SNE of raw and corrected features by severity, with accuracies (epochs: 0 = the method's own).

    method=quantile_paper shows the paper's form, quantile_strict its Algorithm 1 to the letter.
    """
    return draw(compute(bench, severities, images, epochs, method))


def compute(
    bench: Bench, severities: str = "12345", images: int = 300, epochs: int = 0, method: str = "quantile"
) -> Embedding:
    """`images` (m) of the test set are embedded, those at regular distances in the stream."""
    at_least(10, images=images)
    at_least(0, epochs=epochs)
    if not severities or not set(severities) <= set("12345"):
        raise UserError(f"severities is '{severities}'; expected digits from 1 to 5, e.g. 135.")
    cls, chosen = form(method), tuple(int(digit) for digit in severities)
    labels = bench.labels
    shown = np.linspace(0, len(labels) - 1, min(images, len(labels))).round().astype(int)
    columns = [correct(bench, severity, labels, epochs, cls) for severity in chosen]
    features = np.stack([[seen.features[shown] for seen in column] for column in zip(*columns, strict=True)])
    bench.tell("t-SNE", 0, features[..., 0].size)
    return Embedding(
        title=bench.title,
        method=method,
        severities=chosen,
        places=embed(features.reshape(-1, features.shape[-1]), bench.seed).reshape(*features.shape[:-1], 2),
        accuracy=np.array([[seen.accuracy for seen in column] for column in columns]).T,
        labels=labels[shown],
    )


def correct(
    bench: Bench, severity: int, labels: Labels, epochs: int, cls: type[Quantile] = Quantile
) -> tuple[Seen, Seen]:
    """What the classifier sees of one severity as it is, and after quantile matching."""
    method = bench.method(cls)
    images = bench.images(severity, method.batch_size)

    @torch.no_grad()
    def look() -> Seen:
        """The decorruptor is the identity until it is trained."""
        passes = [method.model.features_and_logits(method.decorruptor(x)) for x in images]
        features, logits = (torch.cat(parts).float().cpu().numpy() for parts in zip(*passes, strict=True))
        return Seen(features, 100 * float((logits.argmax(1) == labels).mean()))

    raw = look()
    torch.manual_seed(bench.seed)
    method.fit(images, epochs)
    return raw, look()


def embed(features: NDArray[np.float32], seed: int) -> Array:
    """t-SNE (van der Maaten & Hinton, 2008) of (n, k) in the plane; on one thread, to be repeatable."""
    perplexity = min(30.0, (len(features) - 1) / 3)
    with threadpool_limits(1):
        places: Array = TSNE(perplexity=perplexity, random_state=seed).fit_transform(features)
    return places


def draw(embedding: Embedding) -> Figure:
    """A row for each severity: raw on the left, corrected on the right; under each panel the accuracy."""
    number = len(embedding.severities)
    made = Figure(figsize=(style.COLUMN, 1.12 * number + 0.4), layout="constrained")
    panels = made.subplots(number, 2, squeeze=False, sharex=True, sharey=True)
    for axes, name in zip(panels[0], ("Raw", f"After {embedding.method}"), strict=True):
        axes.set_title(name, pad=3)
    for row, severity in zip(panels, embedding.severities, strict=True):
        row[0].set_ylabel(f"Severity {severity}")
    span = np.ptp(embedding.places.reshape(-1, 2), axis=0) + 1e-12
    for axes, x, accuracy in zip(
        panels.T.flat,
        embedding.places.reshape(-1, *embedding.places.shape[2:]),
        embedding.accuracy.flat,
        strict=True,
    ):
        axes.scatter(*x.T, s=2, c=style.colours(embedding.labels), linewidths=0, alpha=0.8)
        if len(np.unique(embedding.labels)) <= NAMED:
            _names(axes, x, embedding.labels, span)
        axes.set(xticks=[], yticks=[])
        axes.set_xlabel(f"accuracy {accuracy:.1f} %", size=7, labelpad=2)
        axes.spines[:].set_visible(True)
    made.suptitle(embedding.title, fontsize=8)
    return made


def _names(axes: Axes, x: Array, labels: Labels, span: Array) -> None:
    """The number of every class, so that it can be read without colours; grey where classes are mixed."""
    halo = [patheffects.withStroke(linewidth=1.5, foreground="white")]
    for label, (at, pure) in name_places(x, labels, span).items():
        axes.text(
            at[0], at[1], str(label), size=6, weight="bold", ha="center", va="center", path_effects=halo,
            color=style.BLACK if pure else MIXED,
        )  # fmt: skip


def name_places(x: Array, labels: Labels, span: Array) -> dict[int, tuple[Array, bool]]:
    """The place of each class's number among samples x (m, 2); whether most samples there are of the class.

    `span` (2,) is the extent of the panel.

    It stands at the median of the class if most samples around the median are of the class. Else it stands
    at the free sample that has most samples of the class around it.
    """
    scaled = x / span

    def share(at: Array, label: int) -> float:
        nearest = np.linalg.norm(scaled - at, axis=1).argsort(kind="stable")[:NEIGHBOURS]
        return float((labels[nearest] == label).mean())

    places: dict[int, tuple[Array, bool]] = {}
    mixed: list[int] = []
    for label in np.unique(labels).tolist():
        at = np.median(scaled[labels == label], axis=0)
        if share(at, label) > 0.5:
            places[label] = (at, True)
        else:
            mixed.append(label)
    for label in mixed:
        members = scaled[labels == label]
        ranked = members[np.argsort([-share(at, label) for at in members], kind="stable")]
        free = [at for at in ranked if all(np.linalg.norm(at - taken) > GAP for taken, _ in places.values())]
        places[label] = (free[0] if free else ranked[0], False)
    return {label: (at * span, pure) for label, (at, pure) in sorted(places.items())}
