"""``ttabench compare-code``: two methods batch by batch, such as ours and the official code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

if TYPE_CHECKING:
    from ttabench.data.dataset import Labelled
    from ttabench.method import Method
    from ttabench.models.model import Model


def compare_code(
    first: Annotated[str, Argument(metavar="METHOD", help="A method, with settings as in tent\\[lr=0.01].")],
    second: Annotated[str, Argument(metavar="METHOD", help="Another one, such as its official code.")],
    arch: Annotated[str, Option(metavar="NAME", help="The network.")] = "resnet18",
    dataset: Annotated[str, Option(metavar="NAME", help="The dataset, by name or path.")] = "digits-c",
    corruption: Annotated[str, Option(metavar="NAME", help="Its corruption.")] = "fog",
    severity: Annotated[int, Option(metavar="NUMBER", help="From 1 to 5.", min=0, max=5)] = 5,
    batch_size: Annotated[
        int, Option(metavar="COUNT", help="Images per batch; 0 = that of the first method.", min=0)
    ] = 0,
    batches: Annotated[int, Option(metavar="COUNT", help="How many batches; 0 = all.", min=0)] = 5,
    seed: Annotated[
        int, Option(metavar="NUMBER", help="The seed of the order and of random numbers.", min=0)
    ] = 0,
    tolerance: Annotated[
        float,
        Option(
            metavar="NUMBER",
            help="Differences up to this share of the largest value count as rounding.",
            min=0,
        ),
    ] = 1e-4,
    device: Annotated[str, Option(metavar="DEVICE", help="auto, cpu, cuda, cuda:1 …")] = "auto",
) -> None:
    """Run two methods side by side on the same batches, and name the first difference.

    Both begin with the same network, and each batch with the same random state. Exit code 1 if they differ, 2
    if one of them fails.
    """
    import torch

    from ttabench.data.published.own_head import settled_classes
    from ttabench.measure.torch_defaults import default_modes
    from ttabench.method.spelling import parse_method
    from ttabench.registry import method
    from ttabench.system.environment import pick_device

    methods = [(method(name), settings) for name, settings in map(parse_method, (first, second))]
    model, shifted = _opened(arch, dataset, corruption, severity)
    place = pick_device(device)
    torch.set_num_threads(1)
    with default_modes():
        pair = [_prepared(cls, texts, model, place, seed) for cls, texts in methods]
        size = batch_size or pair[0].native_batch_size(settled_classes(model.dataset), "online")
        differing, images = _run(pair, shifted, size, batches, seed, tolerance)
    if differing is not None:
        print(f"{first} and {second} differ; {differing} of {images} images get other classes.")
        raise typer.Exit(1)
    print(f"{first} and {second} agree on {images} images, up to {tolerance:g} of the largest value.")


def _run(
    pair: list[Method[Any]], shifted: Labelled, size: int, batches: int, seed: int, tolerance: float
) -> tuple[int | None, int]:
    """Print a line per batch. (images whose classes differ, None if nothing at all differs; all images)"""
    import torch

    from ttabench.conformance.compare_code import compare
    from ttabench.measure.order_and_batches import Stream, arrange

    device = next((str(p.device) for p in pair[0].model.parameters()), "cpu")
    order = arrange("iid", shifted.labels, seed)[: size * batches or None]
    labels = torch.from_numpy(shifted.labels[order])
    first, differing, seen = "", 0, 0
    for each in compare(pair[0], pair[1], Stream(shifted.images, order, size, device), tolerance, seed):
        if each.number:
            truth = labels[seen : seen + each.images]
            right = [100 * float((p.cpu() == truth).double().mean()) for p in each.predictions]
            print(
                f"batch {each.number:>3}: {right[0]:6.2f} % and {right[1]:6.2f} % right, logits differ by up "
                f"to {each.logits:.1e} of the largest, {each.differing} of {each.images} predictions differ"
            )
        differing, seen = differing + each.differing, seen + each.images
        if each.difference and not first:
            first = f"in batch {each.number}, {each.difference}" if each.number else each.difference
            print(f"first difference: {first}.")
    return differing if first else None, len(order)


def _opened(arch: str, dataset: str, corruption: str, severity: int) -> tuple[Model, Labelled]:
    """The network, and the corrupted images. Raises UserError for what is not there."""
    from ttabench.data.catalog import dataset as open_dataset
    from ttabench.errors import UserError, unknown
    from ttabench.models.resolve import resolve_model

    data = open_dataset(dataset)
    if corruption not in data.corruptions:
        raise unknown(f"corruption of {data.name}", corruption, data.corruptions)
    model = resolve_model(arch, data)
    if not model.ready:
        train = f"ttabench train --archs {arch} --datasets {dataset}"
        raise UserError(f"{model} has no weights yet; train it first: {train}.")
    return model, data.corrupted(corruption, severity)


def _prepared(
    cls: type[Method[Any]], texts: dict[str, str], model: Model, device: str, seed: int
) -> Method[Any]:
    """A method around the network, with its settings there. Raises UserError if it cannot run there.

    So too where its own code fails.
    """
    from ttabench.conformance.compare_code import failures_named
    from ttabench.data.published.own_head import settled_classes
    from ttabench.errors import UserError
    from ttabench.method.settings import make_config, usual_settings
    from ttabench.run.prepared_method import prepared_method

    data, classifier = model.dataset, model.load(device).classifier
    arch = classifier.architecture()
    with failures_named(cls.name, "when it was prepared"):
        config = make_config(cls, texts, usual_settings(cls, data.name, settled_classes(data), arch))
        if unmet := cls.needs_of(config).unmet(arch):
            raise UserError(f"{cls.name} cannot run on {model.name}: {unmet}; choose another --arch.")
        return prepared_method(cls, classifier, config, seed, data, device)
