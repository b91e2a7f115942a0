"""Source classifiers on disk: where they live, what is written beside them, how they are checked.

A checkpoint is two files in ``<cache>/models/<dataset>/``:

``<member>-<recipe>-<plan>.json``      what was trained and how; names the weights file and its hash;
``<name>-brought-<hash>.json``         the same of a classifier trained elsewhere.
``<member or name>-<hash>.safetensors``   the weights.

and, made from the JSON file, a model card (``.md``) and on request the learning curve (``.png``).

``<plan>`` is a hash of everything that was asked for (architecture, recipe, training images, seed),
so that weights of an older recipe or another split are not found. The weights are named by their own
content and the JSON file is replaced last, so that two processes that train the same classifier never
leave one's weights beside the other's description.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ttabench.data.dataset import Dataset
from ttabench.env import cache_dir
from ttabench.errors import UserError
from ttabench.files import replace_file
from ttabench.models.architectures.names import resolve
from ttabench.models.checkpoints import cards
from ttabench.models.training.plans import Plan, plan

if TYPE_CHECKING:
    from ttabench.classifier import Classifier

__all__ = ["Loaded", "curve", "find", "keep", "load", "note", "recall", "save", "write_atomically"]


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A source classifier ready for use, in eval mode on the CPU.

    sha256           identity of weights and normalisation, see `weights.content_hash`.
    clean_accuracy   percent on the clean test set, as measured after training.
    recipe           the recipe's fields.
    note             all that was written beside the weights.
    path             the weights file.
    """

    classifier: Classifier
    sha256: str
    clean_accuracy: float
    recipe: Mapping[str, Any]
    note: Mapping[str, Any]
    path: Path


def note(arch: str, dataset: Dataset, **options: Any) -> dict[str, Any] | None:
    """What is written beside a trained classifier, None where there is none. Imports no torch.

    `options`, here and below: recipe, epochs and seed of `plans.plan`. Raises UserError where the
    description is there but damaged.
    """
    return _read(plan(arch, dataset, **options).path)


def find(arch: str, dataset: Dataset, **options: Any) -> Path | None:
    """The weights file of a trained classifier, None where there is none. Imports no torch."""
    what = plan(arch, dataset, **options)
    described = _read(what.path)
    return what.folder / described["weights"] if described else None


def load(arch: str, dataset: Dataset, **options: Any) -> Loaded:
    """A trained classifier, its hash verified.

    Raises UserError where it has not been trained, or its files are damaged or somebody else's.
    """
    what = plan(arch, dataset, **options)
    described = _read(what.path)
    if described is None:
        raise _untrained(what)
    return _open(described, what.path, dataset)


def recall(arch: str, dataset: Dataset, sha256: str) -> Loaded | None:
    """The classifier of exactly this identity, trained here or brought; None where the cache lacks it.

    `arch` is a general name, a member's, or the name something was brought under.
    """
    for path in sorted(_folder(dataset.name).glob("*.json")):
        described = _read(path)
        if described and described["sha256"] == sha256 and _is_called(arch, described["arch"], dataset):
            return _open(described, path, dataset)
    return None


def _is_called(arch: str, kept: str, dataset: Dataset) -> bool:
    try:
        return arch == kept or kept == resolve(arch, dataset=dataset.name, image_size=dataset.image_size).name
    except UserError:
        return False


def _open(described: Mapping[str, Any], path: Path, dataset: Dataset) -> Loaded:
    import torch

    from ttabench.classifier import Normalize
    from ttabench.models.checkpoints.read_weights import read_weights
    from ttabench.models.checkpoints.weights import content_hash, load_weights
    from ttabench.models.external.networks import construct

    weights = path.parent / described["weights"]
    with torch.random.fork_rng(devices=[]):  # fresh weights, soon replaced, must cost the caller no draws
        classifier = construct(described["arch"], dataset)
    classifier.normalize = Normalize(tuple(described["mean"]), tuple(described["std"]))
    load_weights(classifier.net, read_weights(weights), str(weights))
    if (found := content_hash(classifier)) != described["sha256"]:
        raise UserError(
            f"{weights} holds other weights than {path.name} says ({found[:12]}… instead of "
            f"{described['sha256'][:12]}…); delete both and train again."
        )
    return Loaded(
        classifier=classifier, sha256=found, clean_accuracy=described["clean_accuracy"],
        recipe=described["recipe"], note=described, path=weights,
    )  # fmt: skip


def curve(arch: str, dataset: Dataset, **options: Any) -> Path:
    """Plot the learning curve of a trained classifier; returns the PNG file, beside its weights."""
    what = plan(arch, dataset, **options)
    described = _read(what.path)
    if described is None:
        raise _untrained(what)
    file = what.path.with_suffix(".png")
    write_atomically(file, cards.curve(described))
    return file


def _untrained(what: Plan) -> UserError:
    arch, dataset = what.member.name, what.dataset
    return UserError(
        f"{arch} has not been trained on {dataset}; run ttabench train --archs {arch} --datasets {dataset}."
    )


def save(what: Plan, classifier: Classifier, described: Mapping[str, Any]) -> None:
    """Write the weights, then, beside them, `described` with the hash and all of the plan."""
    full = {
        "plan": what.digest, "recipe": asdict(what.recipe), "seed": what.seed, "training_data": what.data,
        **described,
    }  # fmt: skip
    _write(what.path, what.member.name, what.dataset, classifier, full)


def keep(arch: str, dataset: Dataset, classifier: Classifier, described: Mapping[str, Any]) -> Loaded:
    """Write a classifier that was trained elsewhere; returns it as it was stored."""
    from ttabench.models.checkpoints.weights import content_hash

    path = _folder(dataset.name) / f"{_file_name(arch)}-brought-{content_hash(classifier)[:12]}.json"
    full = _write(path, arch, dataset.name, classifier, {"recipe": {"name": "brought"}, **described})
    return _open(full, path, dataset)


def _write(
    path: Path, arch: str, dataset: str, classifier: Classifier, described: Mapping[str, Any]
) -> dict[str, Any]:
    from safetensors.torch import save as serialise

    from ttabench.models.checkpoints.weights import content_hash

    sha256 = content_hash(classifier)
    # Clones, because safetensors refuses tensors that share memory.
    tensors = {k: t.detach().cpu().contiguous().clone() for k, t in classifier.net.state_dict().items()}
    weights = f"{_file_name(arch)}-{sha256[:16]}.safetensors"
    write_atomically(path.parent / weights, serialise(tensors))
    full = {
        "arch": arch, "dataset": dataset, "weights": weights, "sha256": sha256,
        "mean": classifier.normalize.mean.flatten().tolist(),
        "std": classifier.normalize.std.flatten().tolist(), **described,
    }  # fmt: skip
    write_atomically(path.with_suffix(".md"), cards.card(full).encode())
    write_atomically(path, (json.dumps(full, indent=1) + "\n").encode())
    return full


def _file_name(arch: str) -> str:
    return re.sub(r"[^\w.-]", "_", arch)


def _folder(dataset: str) -> Path:
    return cache_dir() / "models" / dataset


def write_atomically(path: Path, data: bytes) -> None:
    """Write a temporary file beside `path`, then rename it: whole or not at all.

    Raises UserError where the folder cannot be written or the disk is full.
    """
    try:
        replace_file(path, data)
    except OSError as problem:
        raise UserError(
            f"{path} cannot be written ({problem.strerror or problem}); "
            "free some space or set TTABENCH_CACHE to another folder."
        ) from None


def _read(path: Path) -> dict[str, Any] | None:
    """The description in `path`, None where it or the weights it names are missing."""
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
