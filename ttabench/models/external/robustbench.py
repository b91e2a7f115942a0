"""RobustBench: its model zoo and its CIFAR-C loaders. Only this module imports the package.

Croce et al.: RobustBench, a standardized adversarial robustness benchmark, NeurIPS 2021 Datasets and
Benchmarks. Version 1.1.1 cannot be imported as installed from PyPI; see `_package`.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ttabench.classifier import Classifier
from ttabench.data.dataset import Dataset, Labelled
from ttabench.errors import UserError, unknown
from ttabench.models.checkpoints.read_weights import read_weights
from ttabench.models.checkpoints.weights import load_weights
from ttabench.models.external import packages
from ttabench.models.external.download_weights import PublishedWeights, WeightsFile
from ttabench.models.external.external_model import ExternalModel

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = [
    "CLAIMS",
    "CONSTANTS",
    "PREFIX",
    "RobustBenchModel",
    "cifar_c",
    "network",
    "renamed",
]

PREFIX = "robustbench/"
DATASETS = {10: "cifar10", 100: "cifar100", 1000: "imagenet"}  # RobustBench's names, by number of classes
THREATS = ("corruptions", "Linf", "L2")  # its leaderboards; a name without one belongs to the first

DRIVES = (  # addresses of Google Drive for files of any size, by id
    "https://drive.usercontent.google.com/download?export=download&confirm=t&id=",
    "https://docs.google.com/uc?export=download&confirm=t&id=",
)

CONSTANTS = ("mu", "sigma", "mean", "std")
"""Buffers of the normalisation inside its networks, which some of its files lack."""

CLAIMS: dict[str, dict[str, float]] = {
    "cifar10": {
        "Addepalli2021Towards_WRN34": 85.32,
        "Addepalli2022Efficient_WRN_34_10": 88.71,
        "Diffenderfer2021Winning_LRR": 96.66,
        "Hendrycks2020AugMix_ResNeXt": 95.83,
        "Hendrycks2020AugMix_WRN": 95.08,
        "Kireev2021Effectiveness_AugMixNoJSD": 94.97,
        "Kireev2021Effectiveness_Gauss50percent": 93.24,
        "Kireev2021Effectiveness_RLAT": 93.10,
        "Kireev2021Effectiveness_RLATAugMix": 94.75,
        "Kireev2021Effectiveness_RLATAugMixNoJSD": 94.77,
        "Modas2021PRIMEResNet18": 93.06,
        "Rebuffi2021Fixing_70_16_cutmix_extra_L2": 95.74,
        "Rebuffi2021Fixing_70_16_cutmix_extra_Linf": 92.23,
        "Standard": 94.78,
    },
    "cifar100": {
        "Addepalli2021Towards_PARN18": 62.02,
        "Addepalli2021Towards_WRN34": 65.73,
        "Addepalli2022Efficient_WRN_34_10": 68.75,
        "Diffenderfer2021Winning_LRR": 78.41,
        "Gowal2020Uncovering_Linf": 60.86,
        "Gowal2020Uncovering_extra_Linf": 69.15,
        "Hendrycks2020AugMix_ResNeXt": 78.90,
        "Hendrycks2020AugMix_WRN": 76.28,
        "Modas2021PRIMEResNet18": 77.60,
    },
    "imagenet": {
        "Erichson2022NoisyMix": 76.98,
        "Erichson2022NoisyMix_new": 76.90,
        "Geirhos2018_SIN": 60.08,
        "Geirhos2018_SIN_IN": 74.98,
        "Geirhos2018_SIN_IN_IN": 77.56,
        "Hendrycks2020AugMix": 77.34,
        "Hendrycks2020Many": 76.86,
        "Salman2020Do_50_2_Linf": 68.64,
    },
}
"""Clean accuracy in percent on the corruption leaderboards, for the networks that ttabench can use."""


class RobustBenchModel(ExternalModel):
    """``robustbench/NAME``: a network of RobustBench's model zoo, which normalises inside."""

    def build(self) -> Classifier:
        return self.wrap(network(self.name, self.dataset))

    def published_weights(self) -> PublishedWeights:
        return PublishedWeights(
            file=weights_file(self.name, self.dataset),
            source="robustbench",
            claimed=claimed(self.name, self.dataset),
        )

    def fill(self, classifier: Classifier, file: Path) -> None:
        load_weights(classifier.net, renamed(classifier.net, read_weights(file)), str(file), CONSTANTS)


def network(arch: str, dataset: Dataset) -> nn.Module:
    """The network that `arch`, ``robustbench/NAME`` or ``robustbench/Linf/NAME``, is for this dataset.

    It has random weights, is in eval mode, and takes pixels in [0, 1]: RobustBench's networks contain their
    normalisation. Raises UserError for an unknown name or an ensemble, or if RobustBench is missing.
    """
    net: nn.Module = _entry(arch, dataset)["model"]()
    return net.eval()


def weights_file(arch: str, dataset: Dataset) -> WeightsFile:
    """The weights file: RobustBench stores it on Google Drive, without checksums."""
    drive = _entry(arch, dataset)["gdrive_id"]
    threat, name = _parts(arch)
    return WeightsFile(
        file=f"{DATASETS[dataset.num_classes]}-{threat}-{name}.pt",
        urls=tuple(f"{address}{drive}" for address in DRIVES),
        folder="",
    )


def renamed(net: nn.Module, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A file's tensors under the names they have in `net`.

    As in RobustBench's own loader, the prefixes ``module.`` and ``model.`` are removed. ``model.`` is added
    if the network contains a layer that normalises first.
    """
    behind = "model." if any(name.startswith("model.") for name in net.state_dict()) else ""
    return {
        behind + name.removeprefix("module.").removeprefix("model."): value for name, value in tensors.items()
    }


def claimed(arch: str, dataset: Dataset) -> float | None:
    """Clean accuracy in percent that the leaderboard states; None if it is not in `CLAIMS`."""
    threat, name = _parts(arch)
    known = CLAIMS.get(DATASETS.get(dataset.num_classes, ""), {})
    return known.get(name) if threat == THREATS[0] else None


def cifar_c(dataset: Dataset, root: Path, corruption: str, severity: int) -> Labelled:
    """Images and labels that RobustBench's loader of CIFAR-10-C or CIFAR-100-C reads from files below `root`.

    They are the same as those of ``dataset.corrupted(corruption, severity)``. Nothing is downloaded, because
    RobustBench unpacks archives without checks. Raises UserError if the files are missing.
    """
    import numpy as np

    data = _package("robustbench.data")
    loaders = {10: ("CIFAR-10-C", data.load_cifar10c), 100: ("CIFAR-100-C", data.load_cifar100c)}
    if dataset.num_classes not in loaders:
        raise UserError(f"RobustBench has CIFAR-10-C and CIFAR-100-C; {dataset.name} is neither.")
    folder, load = loaders[dataset.num_classes]
    for file in ("labels.npy", f"{corruption}.npy"):
        if not (root / folder / file).is_file():
            raise UserError(f"there is no {root / folder / file}; run ttabench data fetch {dataset.name}.")
    pixels, labels = load(
        n_examples=10_000, severity=severity, data_dir=str(root), shuffle=False, corruptions=(corruption,)
    )
    images = (pixels * 255).round().byte().permute(0, 2, 3, 1).contiguous().numpy()
    return Labelled(images, labels.numpy().astype(np.int64))


# ---- the model zoo


def _parts(arch: str) -> tuple[str, str]:
    """``robustbench/Linf/NAME`` → ("Linf", "NAME"). Raises UserError on an unknown leaderboard."""
    threat, slash, name = arch.removeprefix(PREFIX).rpartition("/")
    if slash and threat not in THREATS:
        raise unknown("RobustBench leaderboard", threat, THREATS)
    return threat or THREATS[0], name


def _entry(arch: str, dataset: Dataset) -> dict[str, Any]:
    """The entry of a network in RobustBench's model zoo."""
    threat, name = _parts(arch)
    benchmark = DATASETS.get(dataset.num_classes)
    if benchmark is None:
        raise UserError(
            f"RobustBench has networks of CIFAR-10, CIFAR-100 and ImageNet (10, 100 and 1000 classes), but "
            f"{dataset.name} has {dataset.num_classes}."
        )
    zoo, enums = _package("robustbench.model_zoo"), _package("robustbench.model_zoo.enums")
    boards = zoo.model_dicts[enums.BenchmarkDataset(benchmark)]
    models: dict[str, dict[str, Any]] = boards.get(enums.ThreatModel(threat), {})
    if name not in models:
        board = f"of {benchmark}" if threat == THREATS[0] else f"of {benchmark} ({threat})"
        usable = [other for other, entry in models.items() if isinstance(entry["gdrive_id"], str)]
        raise unknown(f"RobustBench network {board}", name, usable, "robustbench.github.io")
    drive = models[name]["gdrive_id"]
    if isinstance(drive, list):
        raise UserError(
            f"{arch} is an ensemble of {len(drive)} networks, which has no last linear layer of its own; "
            "use one network."
        )
    if not drive:
        raise UserError(f"{arch} is a network of timm or torchvision; use it as timm/NAME.")
    return models[name]


# ---- the package as installed


@lru_cache
def _package(name: str) -> ModuleType:
    """A module of RobustBench. Raises UserError if the package is missing or cannot be imported.

    Version 1.1.1 imports ``autoattack``, but the package on PyPI and its modules are called pyautoattack. It
    also imports ``pkg_resources``, which setuptools 82 removed. Both names exist only during this import.
    """
    with _missing_modules(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # old names of timm's modules, which it imports
        try:
            return importlib.import_module(name)
        except (ImportError, RuntimeError) as problem:
            says = packages.missing_or_broken(problem, "pip install 'ttabench[robustbench]'")
            raise UserError(f"RobustBench cannot be imported {says}.") from None


@contextmanager
def _missing_modules() -> Iterator[None]:
    added: dict[str, ModuleType] = {}
    if _missing("autoattack") and not _missing("pyautoattack"):
        added["autoattack"] = importlib.import_module("pyautoattack")
        added["autoattack.state"] = importlib.import_module("pyautoattack.state")
    if _missing("pkg_resources"):
        added["pkg_resources"] = ModuleType("pkg_resources")
        added["pkg_resources"].resource_filename = _resource_filename  # type: ignore[attr-defined]
    sys.modules.update(added)
    try:
        yield
    finally:
        for name in added:
            del sys.modules[name]


def _missing(name: str) -> bool:
    return name not in sys.modules and find_spec(name) is None


def _resource_filename(module: str, path: str) -> str:
    """The path of a data file beside a module. RobustBench uses nothing else of pkg_resources."""
    module_file = sys.modules[module].__file__
    assert module_file is not None
    return str(Path(module_file).parent / path)
