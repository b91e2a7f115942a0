"""Source classifiers on disk: their files, and how they are written, found and checked.

A checkpoint is two files in ``<cache>/models/<dataset>/``, or in ``ttabench/models/pretrained/<dataset>/`` if
it comes with the package:

``<member>-<recipe>-<plan>.json``      what was trained and how; names the weights file and its hash;
``<name>-brought-<hash>.json``         the same for a classifier trained elsewhere.
``<member or name>-<hash>.safetensors``   the weights.

A model card (``.md``) and on request the learning curve (``.png``) are made from the JSON file.

``<plan>`` is a hash of architecture, recipe, training images and seed, so weights of an older recipe or
another split are never used by mistake. The name of the weights contains their hash, and the JSON file is
replaced last. So two processes that train the same classifier never mix their weights and descriptions.
A classifier that was trained here precedes the same one of the package.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ttabench.errors import UserError
from ttabench.models.checkpoints import model_card
from ttabench.system.environment import cache_dir
from ttabench.system.files import replace_file, writing

if TYPE_CHECKING:
    from ttabench.classifier import Classifier
    from ttabench.models.training.weights_identity import TrainingPlan


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A source classifier ready for use, in eval mode on the CPU.

    sha256           identity of weights and normalisation, see `weights.content_hash`; for a network from
                     elsewhere also of its logits, see `soundness.noise_logits`.
    clean_accuracy   percent on the clean test set, as measured after training.
    recipe           the recipe's fields.
    note             the content of the JSON file.
    path             the weights file.
    """

    classifier: Classifier
    sha256: str
    clean_accuracy: float
    recipe: Mapping[str, Any]
    note: Mapping[str, Any]
    path: Path

    @property
    def pretrained(self) -> bool:
        """Whether it comes with the package."""
        return PRETRAINED in self.path.parents


PRETRAINED = Path(__file__).resolve().parents[1] / "pretrained"
"""Checkpoints that come with the package: the default classifiers of digits-c."""


def folder(dataset: str) -> Path:
    return cache_dir() / "models" / dataset


def file_name(arch: str) -> str:
    return re.sub(r"[^\w.-]", "_", arch)


@dataclass(frozen=True)
class Described:
    """A checkpoint on disk: the content of its JSON file, and the path of that file."""

    note: Mapping[str, Any]
    path: Path

    @property
    def weights(self) -> Path:
        return self.path.parent / str(self.note["weights"])


def read(path: Path) -> Described | None:
    """The checkpoint that the file `path` of the cache describes, or the file with its name in the package.

    None if neither exists. Raises UserError if a file is damaged. Imports no torch.
    """
    for file in (path, PRETRAINED / path.parent.name / path.name):
        if (described := _read(file)) is not None:
            return Described(described, file)
    return None


def with_package() -> dict[str, list[str]]:
    """The architectures whose weights come with the package, by dataset."""
    notes = [described.note for file in PRETRAINED.glob("*/*.json") if (described := read(file))]
    return {
        dataset: sorted(note["arch"] for note in notes if note["dataset"] == dataset)
        for dataset in {note["dataset"] for note in notes}
    }


def with_hash(dataset: str, names: Collection[str], sha256: str) -> Described | None:
    """The checkpoint with this hash, stored under one of `names`; None if there is none.

    Weights that were trained here and brought as a file too are described as trained.
    """
    matching = [
        described
        for path in (*sorted(folder(dataset).glob("*.json")), *sorted((PRETRAINED / dataset).glob("*.json")))
        if (described := read(path))
        and described.note["sha256"] == sha256
        and described.note["arch"] in names
    ]
    return min(matching, key=lambda described: described.note["recipe"]["name"] == "brought", default=None)


def with_weights(dataset: str, names: Collection[str], weights: str) -> list[Described]:
    """The brought classifiers under one of `names` whose weights have this hash, whatever they compute."""
    return [
        described
        for path in sorted(folder(dataset).glob("*-brought-*.json"))
        if (described := read(path)) and described.note["arch"] in names
        if of_weights(described.note) == weights
    ]


def of_weights(note: Mapping[str, Any]) -> str:
    """The hash of the weights alone, from a JSON file; see `soundness.noise_logits` for what else counts."""
    return str(note.get("weights_sha256", note["sha256"]))


def open_described(described: Described, build: Callable[[], Classifier]) -> Loaded:
    """The classifier that `build` makes, with the weights of the checkpoint, its hash verified.

    Raises UserError if the files are damaged or do not belong together.
    """
    import torch

    from ttabench.classifier import Normalize
    from ttabench.models.checkpoints.read_weights import read_weights, rewrapped
    from ttabench.models.checkpoints.weights import content_hash, load_weights

    note, weights = described.note, described.weights
    with torch.random.fork_rng(devices=[]):  # the initial weights must not change the caller's generator
        classifier = build()
    classifier.normalize = Normalize(tuple(note["mean"]), tuple(note["std"]))
    try:
        stored = read_weights(weights)
    except UserError as problem:  # whose advice is for a file that a user names
        what = str(problem).partition("; ")[0].removesuffix(".")
        raise UserError(f"{what}; delete it, and train again, or give its --checkpoint again.") from None
    tensors = rewrapped(stored, classifier.net.state_dict(), str(weights))
    load_weights(classifier.net, tensors, str(weights))
    if (actual := content_hash(classifier)) != of_weights(note):
        raise UserError(
            f"{weights} holds other weights than {described.path.name} says ({actual[:12]}… instead of "
            f"{of_weights(note)[:12]}…); delete both and train again."
        )
    return Loaded(
        classifier=classifier, sha256=note["sha256"], clean_accuracy=note["clean_accuracy"],
        recipe=note["recipe"], note=note, path=weights,
    )  # fmt: skip


def plot_curve(described: Described) -> Path:
    """Write the learning curve of a trained classifier into the cache; returns the PNG file."""
    file = folder(described.note["dataset"]) / described.path.with_suffix(".png").name
    write_atomically(file, model_card.curve(described.note))
    return file


def save_trained(plan: TrainingPlan, classifier: Classifier, described: Mapping[str, Any]) -> None:
    """Write the weights, then a JSON file with the plan, the hash and `described`."""
    full = {
        "plan": plan.digest, "recipe": asdict(plan.recipe), "seed": plan.seed, "training_data": plan.data,
        **described,
    }  # fmt: skip
    _write(plan.path, plan.member.name, plan.dataset, classifier, full)


def save_external(name: str, dataset: str, classifier: Classifier, described: Mapping[str, Any]) -> Described:
    """Write the weights and the JSON file of a classifier that was trained elsewhere.

    `described` may have its identity, ``sha256``, if that is not the hash of its weights.
    """
    from ttabench.models.checkpoints.weights import content_hash

    sha256 = described.get("sha256") or content_hash(classifier)
    path = folder(dataset) / f"{file_name(name)}-brought-{sha256[:12]}.json"
    full = _write(path, name, dataset, classifier, {"recipe": {"name": "brought"}, **described})
    return Described(full, path)


def _write(
    path: Path, arch: str, dataset: str, classifier: Classifier, described: Mapping[str, Any]
) -> dict[str, Any]:
    from safetensors.torch import save as serialise

    from ttabench.models.checkpoints.weights import content_hash

    sha256 = content_hash(classifier)
    # Clones, because safetensors refuses tensors that share memory.
    tensors = {k: t.detach().cpu().contiguous().clone() for k, t in classifier.net.state_dict().items()}
    weights = f"{file_name(arch)}-{sha256[:16]}.safetensors"
    write_atomically(path.parent / weights, serialise(tensors))
    full = {
        "arch": arch, "dataset": dataset, "weights": weights, "sha256": sha256,
        "mean": classifier.normalize.mean.flatten().tolist(),
        "std": classifier.normalize.std.flatten().tolist(), **described,
    }  # fmt: skip
    write_atomically(path.with_suffix(".md"), model_card.card(full).encode())
    write_atomically(path, (json.dumps(full, indent=1) + "\n").encode())
    return full


def write_atomically(path: Path, data: bytes) -> None:
    """Write `path` through a temporary file, so that it is complete or does not exist.

    Raises UserError if the folder cannot be written or the disk is full.
    """
    with writing(path, "free some space or set TTABENCH_CACHE to another folder"):
        replace_file(path, data)


def _read(path: Path) -> dict[str, Any] | None:
    """The content of the JSON file `path`; None if it or its weights file is missing."""
    try:
        described: dict[str, Any] = json.loads(path.read_text())
        weights, sha256, accuracy = (described[key] for key in ("weights", "sha256", "clean_accuracy"))
        valid = Path(weights).name == weights and len(sha256) == 64 and 0 <= accuracy <= 100
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        valid = False
    if not valid:
        raise UserError(f"{path} is damaged; delete it and train again.")
    return described if (path.parent / weights).exists() else None
