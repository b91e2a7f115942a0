"""The contract of a test-time adaptation method.

A method file imports only this module and `ttabench.nn` of the package.
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
from ttabench.method.ranges import check_ranges
from ttabench.method.saved_state import Saved

PREPRINTS = ("arxiv", "preprint")
JOURNALS = ("IJCV", "JMLR", "Neural Networks", "Pattern Recognition", "TIP", "TMLR", "TNNLS", "TPAMI")

# The unlabelled source data that a method may see, from least to most: nothing; statistics, such as moments,
# quantiles or sorted entropies; features; images. Each kind includes the previous ones.
SOURCE_DATA = ("", "statistics", "features", "images")


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """The requirements of a method. If a model lacks one, the cell is "n/a" with the reason.

    gradient     the method computes gradients at test time.
    source_data  one of :data:`SOURCE_DATA`: the unlabelled source data that it must see.
    source_statistics  the statistics that it uses, by the names of the functions of :class:`SourceData`,
                 e.g. ``("quantiles",)``. `ttabench list methods` shows them, and `ttabench conform` reports
                 requests for others.
    norm_layers  the model must have at least one of these kinds (see ``Architecture``).
    tags         the model must have all of these tags.
    rules_out    the model must have none of these tags.
    """

    gradient: bool = False
    source_data: str = ""
    source_statistics: tuple[str, ...] = ()
    norm_layers: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    rules_out: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.source_data not in SOURCE_DATA:
            known = ", ".join(repr(kind) for kind in SOURCE_DATA)
            raise ValueError(f"source_data is {self.source_data!r}; expected one of {known}")

    def unmet(self, arch: Architecture) -> str:
        """Why the method cannot run on `arch`, e.g. ``no batch norm``; "" if it can."""
        if self.norm_layers and not set(self.norm_layers) & set(arch.norm_layers):
            return "no " + " or ".join(f"{kind} norm" for kind in self.norm_layers)
        missing = [tag.replace("_", " ") for tag in self.tags if tag not in arch.tags]
        present = [tag.replace("_", " ") for tag in self.rules_out if tag in arch.tags]
        return f"not a {missing[0]}" if missing else present[0] if present else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Paper:
    """The publication of a method.

    key    its BibTeX key, e.g. ``wang2021tent``.
    venue  the short name of a conference or journal; ``arXiv`` or ``preprint`` for a preprint.
    url    its address; the arXiv number of a preprint is taken from it.
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
        authors = names[0] + (" et al." if len(names) > 2 else f" and {names[1]}" if len(names) == 2 else "")
        return f"{authors}, {self.venue} {self.year}"

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

    Every function takes the number of training images, `limit` (0 = all), and computes in eval mode. The
    caller may change the returned tensors. Layers are named as in `classifier`. A request for data that was
    not declared raises PermissionError.

    served  request → the number of images that it was computed from, for all requests so far.
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
    """All unlabelled target images of a cell, for the offline mode. It can be iterated repeatedly."""

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
    and :meth:`predict`. They work on ``self.model``, a private copy of the classifier. It is in eval mode,
    and every parameter is frozen. ``self.config`` is an instance of `Config`, a frozen dataclass. Its
    numeric settings state their ranges (`Count`, `UnitInterval` …), and a value outside raises ValueError.
    Randomness comes from torch's global generator, which the harness seeds. No labels are ever seen.

    scores         which forward pass the logits of :meth:`adapt` come from, for `ttabench list methods`.
    scores_frozen  the same for :meth:`predict`, which offline and held-out protocols score.
    restores       what it resets by itself, in addition to the protocol, for `ttabench list methods`.
    deviations     where this differs from the paper or its official code, and why.
    per_class      what it estimates for each class, such as "prototypes"; "" = nothing, or only with some
                   settings. A sweep with few images of each class then warns.
    family         a group of methods in tables, e.g. "alignment": methods that align target features or
                   activations with the source's; "" = none.
    mode           "online" or "offline": the mode of the paper (protocol mode ``native``).
    batch_size     that of the paper or its official code for CIFAR; `imagenet_batch_size` for 1,000 classes
                   or more, if it differs; `online_batch_size` for the online mode of an offline method.

    ``self.served`` has the source data that :meth:`setup` requested, with the numbers of images. Count events
    of a cell in ``self.counts``, for :meth:`alarms`: the harness clears it before each cell, and
    :meth:`reset` does not change it. Adaptation must not depend on it.
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
    per_class: ClassVar[str] = ""

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
        """Config values of the paper or its official code for this dataset; they replace the defaults."""
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
        """Default batch size of a protocol whose mode is `mode`, "online" or "offline"."""
        if mode == "online" and cls.online_batch_size:
            return cls.online_batch_size
        return (num_classes >= 1000 and cls.imagenet_batch_size) or cls.batch_size

    # ---- preparation, adaptation, reset

    def prepare(self, source: SourceData | None = None) -> None:
        """Run :meth:`setup` once per classifier, then save the state that :meth:`reset` restores."""
        self.setup(source)
        self.served = dict(getattr(source, "served", {}))
        self.__dict__.pop("_prepared", None)
        self._prepared = Saved(self, kept=("counts",))

    def setup(self, source: SourceData | None) -> None:
        """Prepare the model, the optimiser, source statistics … (override)."""

    @abstractmethod
    def adapt(self, x: Tensor) -> Tensor:
        """Online: update on one batch (B, 3, H, W) in [0, 1]; return the logits (B, C) that are scored."""

    def fit(self, batches: Batches, epochs: int = 0) -> None:
        """Offline: see all target images `epochs` times (0 = the method's default; here once)."""
        for _ in range(epochs or 1):
            for x in batches:
                self.adapt(x)

    def predict(self, x: Tensor) -> Tensor:
        """Logits (B, C) of a batch; no state changes. The default is a forward pass of `self.model`.

        It is scored by offline and held-out protocols, and on batches that a method skips at a pace. If
        `adapt` computes its logits in another way, write `predict` too; else these scores leave that out.
        """
        with torch.no_grad():
            return self.model(x)  # type: ignore[no-any-return]

    def known_score(self, logits: Tensor) -> Tensor | None:
        """The method's own certainty (B,) that images with these logits (B, C) are of known classes.

        Higher is more certain. It is called on contaminated streams. It must not change the method or draw
        random numbers. None, the default: there is no such certainty; only softmax and energy are used.
        """
        return None

    def reset(self) -> None:
        """Restore the state after :meth:`prepare` bitwise, including the optimiser; `counts` stay."""
        if "_prepared" not in self.__dict__:
            raise RuntimeError(
                f"{type(self).__name__}.reset() was called before prepare(); call prepare() first"
            )
        prepared = self._prepared
        prepared.restore(self)
        self._prepared = prepared

    def adapted(self) -> str:
        """What is adapted, for tables, e.g. ``20 BatchNorm2d: weight, bias (1,920 parameters)``."""
        return "nothing"

    def check(self, clean: Tensor) -> str:
        """An alarm if the logits (n, C) of the unadapted classifier on clean images contradict the settings.

        "" if they do not. It is called on a prepared method and must not change it.
        """
        return ""

    def alarms(self) -> dict[str, Any]:
        """Values to store with the result of a cell, e.g. how often the model was reset."""
        return {}
