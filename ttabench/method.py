"""The contract a test-time adaptation method fulfils.

A method file imports from here and from `ttabench.nn`, and from nowhere else in the package.
"""

from __future__ import annotations

import copy
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import torch
from torch import Tensor

from ttabench.classifier import Architecture, Classifier
from ttabench.ranges import (
    Count,
    Momentum,
    Natural,
    NonNegative,
    Positive,
    Range,
    UnitInterval,
    check_ranges,
)

PREPRINTS = ("arxiv", "preprint")
JOURNALS = ("IJCV", "JMLR", "Neural Networks", "Pattern Recognition", "TIP", "TMLR", "TNNLS", "TPAMI")

__all__ = [
    "SOURCE_DATA",
    "Architecture",
    "Batches",
    "Count",
    "Method",
    "Momentum",
    "Natural",
    "Needs",
    "NoConfig",
    "NonNegative",
    "Paper",
    "Positive",
    "Range",
    "SourceData",
    "UnitInterval",
]


# What of the unlabelled source data a method sees, from least to most: nothing; numbers that sum it up, such
# as moments, quantiles or sorted entropies; its features; the images. Each includes those before it.
SOURCE_DATA = ("", "statistics", "features", "images")


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What a method cannot do without, so that a cell is "n/a" with a reason and never a silent Source.

    gradient     backpropagates at test time.
    source_data  one of :data:`SOURCE_DATA`: what of the unlabelled source data it must see.
    norm_layers  the model must have at least one of these kinds (see :class:`Architecture`).
    tags         the model must carry all of these.
    rules_out    the model must carry none of these tags.
    """

    gradient: bool = False
    source_data: str = ""
    norm_layers: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    rules_out: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.source_data not in SOURCE_DATA:
            known = ", ".join(repr(kind) for kind in SOURCE_DATA)
            raise ValueError(f"source_data is {self.source_data!r}; expected one of {known}")

    def unmet(self, arch: Architecture) -> str:
        """Why `arch` will not do, e.g. ``no batch norm``; "" if it will."""
        if self.norm_layers and not set(self.norm_layers) & set(arch.norm_layers):
            return "no " + " or ".join(f"{kind} norm" for kind in self.norm_layers)
        missing = [tag.replace("_", " ") for tag in self.tags if tag not in arch.tags]
        present = [tag.replace("_", " ") for tag in self.rules_out if tag in arch.tags]
        return f"not a {missing[0]}" if missing else present[0] if present else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Paper:
    """The publication a method comes from.

    key    its BibTeX key, e.g. ``wang2021tent``.
    venue  the short name of a conference or journal; ``arXiv`` (or ``preprint``) for what is in neither.
    url    where to read it; a preprint's arXiv number is taken from here.
    """

    key: str
    title: str
    authors: str  # "Wang, Dequan and Shelhamer, Evan and …"
    venue: str
    year: int
    url: str = ""

    @property
    def short(self) -> str:
        """``Wang et al., ICLR 2021``"""
        names = [a.split(",")[0] for a in self.authors.split(" and ")]
        who = names[0] + (" et al." if len(names) > 2 else f" and {names[1]}" if len(names) == 2 else "")
        return f"{who}, {self.venue} {self.year}"

    def bibtex(self) -> str:
        """The BibTeX entry: ``@misc`` with its number for a preprint, ``@article`` for a journal."""
        rows = {"title": self.title, "author": self.authors, "year": str(self.year)}
        if self.venue.lower() in PREPRINTS:
            kind = "misc"
            number = re.search(r"arxiv\.org/(?:abs|pdf)/(\d{4}\.\d{4,5}|[a-z-]+/\d{7})", self.url)
            rows |= {"eprint": number[1], "archivePrefix": "arXiv"} if number else {"note": "Preprint"}
        else:
            kind = "article" if self.venue in JOURNALS else "inproceedings"
            rows["journal" if kind == "article" else "booktitle"] = self.venue
        if self.url:
            rows["url"] = self.url
        width = max(map(len, rows))
        body = "".join(f"  {name:<{width}} = {{{value}}},\n" for name, value in rows.items())
        return f"@{kind}{{{self.key},\n{body}}}\n"


@dataclass(frozen=True, slots=True)
class NoConfig:
    """For methods without a setting."""


class SourceData(Protocol):
    """The unlabelled source data, as far as a method's `Needs.source_data` declares it.

    Every request says of how many training images, `limit` (0 = all), and is answered in eval mode with
    tensors of the caller's own. Layers go by their names in `classifier`. Asking for more than was declared
    raises PermissionError.

    served  what was asked for so far → the number of images it was made from.
    """

    served: dict[str, int]

    # ---- "images"

    def batches(self, batch_size: int, limit: int = 0, shuffle: bool = False) -> Iterator[Tensor]:
        """Clean training images (b, 3, H, W) in [0, 1]."""
        ...

    # ---- "features"

    def features(self, classifier: Classifier, limit: int = 0) -> Tensor:
        """Features (n, k), float32."""
        ...

    # ---- "statistics"

    def channels(self, limit: int = 0) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation (3,) of the channels of the images."""
        ...

    def norm_statistics(
        self, classifier: Classifier, limit: int = 0, per_location: bool = False
    ) -> dict[str, tuple[Tensor, Tensor]]:
        """Mean and unbiased variance of every norm layer's output, by the layer's name.

        (C,) each; with `per_location`, of the shape of one image's output.
        """
        ...

    def quantiles(
        self, classifier: Classifier, levels: tuple[float, ...], limit: int = 0
    ) -> dict[str, Tensor]:
        """Quantiles (C, Q) of every norm layer's output per channel, at Q ascending levels in (0, 1)."""
        ...

    def gaussian(self, classifier: Classifier, limit: int = 0) -> tuple[Tensor, Tensor]:
        """Mean (k,) and covariance (k, k), divided by the number of images, of the features."""
        ...

    def class_gaussians(self, classifier: Classifier, limit: int = 0) -> tuple[Tensor, Tensor, Tensor]:
        """Images (C,), means (C, k) and covariances (C, k, k) of the features by *predicted* class.

        Covariances are divided by the number of images; a class without one has zeros.
        """
        ...

    def entropies(self, classifier: Classifier, limit: int = 0, temperature: float = 1.0) -> Tensor:
        """Softmax entropies (n,), ascending, of the logits divided by `temperature`."""
        ...


class Batches(Protocol):
    """All unlabelled target images of a cell, for the offline mode. Can be gone through repeatedly."""

    @property
    def count(self) -> int:
        """The number of images n."""
        ...

    @property
    def batch_size(self) -> int: ...

    def __len__(self) -> int:
        """The number of batches in a pass; the last one may be short."""
        ...

    def __iter__(self) -> Iterator[Tensor]:
        """One pass in stream order: (b, 3, H, W) in [0, 1], on the method's device."""
        ...

    def shuffled(self) -> Iterator[tuple[Tensor, Tensor]]:
        """One pass in a fresh random order (torch's seed): (positions (b,) int64 in 0 … n−1, images)."""
        ...


C = TypeVar("C")


class Method(ABC, Generic[C]):
    """A test-time adaptation method around a classifier.

    Subclasses set the class data, write :meth:`adapt` and, where needed, :meth:`setup`, :meth:`fit`
    and :meth:`predict`. They work on ``self.model``, a private copy of the classifier in eval mode
    with every parameter frozen; ``self.config`` is an instance of `Config`, a frozen dataclass whose
    numeric settings state their ranges (`Count`, `UnitInterval` …); a value outside raises ValueError.
    Randomness comes from torch's global generator, which the harness seeds. No labels are ever seen.

    scores         which forward pass the logits of :meth:`adapt` come from, for `ttabench list methods`.
    scores_frozen  the same of :meth:`predict`, which offline and held-out protocols score.
    restores       what it puts back by itself, whatever the protocol resets, for `ttabench list methods`.
    deviations     where this differs from the paper or its official code, and why.
    family         a name for methods that belong together in a table, e.g. "alignment": those that bring
                   target features or activations to the source's; "" = none.
    mode           "online" or "offline": as the paper runs it (protocol mode *native*).
    batch_size     the paper's or its official code's for CIFAR; `imagenet_batch_size` for a thousand
                   classes and more, where it is another; `online_batch_size` for the online mode of a method
                   whose paper's is offline.

    ``self.served`` says what of the source data :meth:`setup` has asked for, and of how many images.
    ``self.counts`` counts what happens in one cell, for :meth:`alarms`: the harness clears it before each
    cell, and :meth:`reset` leaves it alone. Nothing of it may enter adaptation.
    """

    name: ClassVar[str]
    paper: ClassVar[Paper | None] = None
    needs: ClassVar[Needs] = Needs()
    Config: ClassVar[type[Any]] = NoConfig
    family: ClassVar[str] = ""
    mode: ClassVar[str] = "online"
    batch_size: ClassVar[int] = 200
    imagenet_batch_size: ClassVar[int] = 0
    online_batch_size: ClassVar[int] = 0
    scores: ClassVar[str] = "the forward pass before the update"
    scores_frozen: ClassVar[str] = "a forward pass after all updates"
    restores: ClassVar[str] = "nothing"
    deviations: ClassVar[str] = "none"

    model: Classifier
    config: C
    counts: Counter[str]
    served: dict[str, int]

    def __init__(self, classifier: Classifier, config: C | None = None) -> None:
        self.counts = Counter()
        self.served = {}
        self.config = self.Config() if config is None else config
        check_ranges(self.config)
        self.model = copy.deepcopy(classifier).eval().requires_grad_(False)

    # ---- what depends on the configuration, the dataset or the architecture

    @classmethod
    def needs_of(cls, config: C) -> Needs:
        """The needs of one configuration (default: the class's)."""
        return cls.needs

    @classmethod
    def for_dataset(cls, dataset: str, num_classes: int) -> Mapping[str, Any]:
        """Config values the paper or its official code sets for this dataset, in place of the defaults."""
        return {}

    @classmethod
    def for_architecture(cls, arch: Architecture) -> Mapping[str, Any]:
        """Config values for this kind of model; they show in the table's row label."""
        return {}

    @classmethod
    def papers_of(cls, config: C) -> tuple[Paper, ...]:
        """What to cite for one configuration (default: `paper`)."""
        return () if cls.paper is None else (cls.paper,)

    @classmethod
    def native_batch_size(cls, num_classes: int, mode: str = "") -> int:
        """Images per batch where the protocol names none; `mode` is the protocol's, "online" or "offline"."""
        if mode == "online" and cls.online_batch_size:
            return cls.online_batch_size
        return (num_classes >= 1000 and cls.imagenet_batch_size) or cls.batch_size

    # ---- the life of a method

    def prepare(self, source: SourceData | None = None) -> None:
        """Once per classifier: run :meth:`setup`, then remember the state that :meth:`reset` returns to."""
        self.setup(source)
        self.served = dict(getattr(source, "served", {}))
        self.__dict__.pop("_prepared", None)
        self._prepared = copy.deepcopy(self.__dict__)

    def setup(self, source: SourceData | None) -> None:
        """Prepare the model, the optimiser, source statistics … (override)."""

    @abstractmethod
    def adapt(self, x: Tensor) -> Tensor:
        """Online: update on one batch (B, 3, H, W) in [0, 1]; return the logits (B, C) that are scored."""

    def fit(self, batches: Batches, epochs: int = 0) -> None:
        """Offline: see all target images `epochs` times (0 = the method's own number; here once)."""
        for _ in range(epochs or 1):
            for x in batches:
                self.adapt(x)

    def predict(self, x: Tensor) -> Tensor:
        """Logits (B, C) of a batch; no state changes."""
        with torch.no_grad():
            return self.model(x)  # type: ignore[no-any-return]

    def reset(self) -> None:
        """Bitwise back to the state after :meth:`prepare`, optimiser and all; `counts` go on."""
        if "_prepared" not in self.__dict__:
            raise RuntimeError(f"{type(self).__name__}.reset() before prepare()")
        prepared, counts = self._prepared, self.counts
        self.__dict__ = copy.deepcopy(prepared)
        self._prepared, self.counts = prepared, counts

    def adapted(self) -> str:
        """What is adapted, for tables, e.g. ``20 BatchNorm2d: weight, bias (1,920 parameters)``."""
        return "nothing"

    def check(self, clean: Tensor) -> str:
        """What the unadapted classifier's logits (n, C) on clean images say against the settings, or "".

        For an alarm only: called on a prepared method, which it must leave as it is.
        """
        return ""

    def alarms(self) -> dict[str, Any]:
        """Values worth storing with the result of a cell, e.g. how often the model was restored."""
        return {}
