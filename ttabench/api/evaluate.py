"""Score a method on images, as a sweep does."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from numpy.typing import ArrayLike

from ttabench.api.adapted import Adapted, device_of, dtype_of
from ttabench.api.image_size import of_size
from ttabench.api.labelled_images import of_arrays, of_batches
from ttabench.api.lookup import check_seed
from ttabench.api.own_generator import OwnGenerator
from ttabench.api.scored_images import check_scored, scored_of
from ttabench.cell.protocol import Protocol
from ttabench.data.foreign import coded, foreign_of_size
from ttabench.errors import UserError, unknown, warn_of_network
from ttabench.measure import scoring
from ttabench.measure.image_stream import Part
from ttabench.measure.torch_defaults import default_kernels, default_modes, matrix_products
from ttabench.method import Method
from ttabench.models.soundness.even_threads import even_threads
from ttabench.models.soundness.torch_errors import explained
from ttabench.observe.decline import Course
from ttabench.run.other_generators import seeded_generators
from ttabench.sweep.batch_rate import settings_for_batch
from ttabench.sweep.options_to_grid import contamination_spelling
from ttabench.sweep.pace import no_pace

WHOLE = ("batch_size", "epochs", "limit")
PROTOCOL_FIELDS = tuple(field.name for field in dataclasses.fields(Protocol))


class Evaluation(scoring.Evaluation):
    """The result of a method on a test set. It prints in one line.

    accuracy     in percent.
    correct      (N,) bool, in the order in which the images were given, for those that were scored.
    seconds      to adapt and score.
    alarm        why the number may be misleading, such as a collapse to few classes; "" if there is no alarm.
    calibration  how confident the predictions were: counts, right ones and confidences of bins.
    windows      accuracy in the windows of a long stream; empty for `evaluate`.
    """

    def __repr__(self) -> str:
        """``Evaluation(61.30 %, 613 of 1,000 images right, 0.4 s)``, with the alarm if there is one."""
        counts = f"{int(self.correct.sum()):,} of {len(self.correct):,} images right"
        alarm = f", alarm: {self.alarm}" if self.alarm else ""
        return f"Evaluation({self.accuracy:.2f} %, {counts}, {self.seconds:.1f} s{alarm})"


@default_modes()
@default_kernels()
def evaluate(
    adapted: Adapted,
    images: ArrayLike | Iterable[Any],
    labels: ArrayLike | None = None,
    *,
    seed: int = 0,
    scored_classes: Sequence[int] = (),
    **protocol: Any,
) -> Evaluation:
    """Score a method on images as a sweep does. It starts from the network before any adaptation.

    images    (N, H, W, 3) uint8. Or, without `labels`, batches (images, labels) such as a DataLoader gives:
              images (b, 3, H, W) in [0, 1] with pixels of 8 bits, as torchvision's ToTensor makes them, not
              normalised. All are read first; then batches and order are those of the protocol.
    labels    (N,) whole numbers 0 … C−1; only the score sees them.
    seed      the seed of the order of the images and of random numbers. A sweep with this seed gives the same
              number if ttabench.adapt got this seed too.
    scored_classes  the classes that predictions are chosen from, such as ``scored_classes`` of a dataset;
              () = all.
    protocol  fields of :class:`ttabench.Protocol`: batch_size, mode, order, reset …; by default, batch size
              and mode are the method's own.

    Settings of torch that your program has changed, such as the precision of matrix products, have no effect.

    Returns accuracy in percent, which images were right (N,), seconds, and an alarm ("" if there is none).
    Raises UserError on images, labels or a protocol that cannot be scored.
    """
    if not isinstance(adapted, Adapted):
        raise UserError(
            f"evaluate got a {type(adapted).__name__}; expected what ttabench.adapt(model, method) returns."
        )
    check_seed(seed)
    method = adapted.method
    if (dtype := dtype_of(method.model)) != torch.float32:
        raise UserError(
            f"the network is {dtype}, and evaluate makes float32 images of the pixels; convert the network "
            'with model.float(), and pass precision="bfloat16" to evaluate in bfloat16.'
        )
    own = method.native_batch_size(method.model.num_classes, protocol.get("mode", method.mode))
    chosen = _protocol(method, own, protocol)
    classes = method.model.num_classes
    if labels is None:
        data = of_batches(images, seed, classes)
    else:
        data = of_arrays(images, labels, classes)
    check_scored(data, chosen, classes)
    scored = scored_of(scored_classes, data.labels, classes)
    if not adapted._rate_given:
        warn_of_network(method.name, _other_in_a_sweep(method, own, chosen.batch_size))
    device, (_, height, width, _) = device_of(method.model), data.images.shape
    foreign_of_size(chosen.contamination, height, width)
    chosen = coded(chosen)
    method.reset()
    with (
        OwnGenerator(device, seed).used(),
        seeded_generators(seed),
        of_size(height, width, adapted._image_size),
        explained(),
        matrix_products(chosen.precision, device),
        even_threads(method.model),
    ):
        course = Course()
        scored_cell = scoring.evaluate(
            method, Part(data, chosen, seed), chosen, seed, device, course.note, scored_classes=scored
        )
    adapted._follow()
    falls = course.alarm() if chosen.order == "iid" else ""
    alarm = "; ".join(filter(None, (scored_cell.alarm, falls)))
    return Evaluation(**{**vars(scored_cell), "alarm": alarm})


def _protocol(method: Method[Any], own: int, given: Mapping[str, Any]) -> Protocol:
    """The protocol of the `given` fields, with the method's mode and its `own` batch size.

    Raises UserError where there is no such protocol, or evaluate does not have it.
    """
    for name, value in given.items():
        if name not in PROTOCOL_FIELDS:
            raise unknown("field of a protocol", name, PROTOCOL_FIELDS)
        if name in WHOLE and type(value) is not int:
            raise UserError(f"a field of the protocol has a value of the wrong type: {name}={value!r}.")
    if stream := given.get("stream"):
        raise UserError(f"stream={stream!r}: a stream is made of a dataset; use ttabench.run_sweep for it.")
    fields: dict[str, Any] = {"mode": method.mode, "batch_size": own, **given}
    if isinstance(foreign := given.get("contamination"), str):
        fields["contamination"] = contamination_spelling(foreign)
    try:
        protocol = Protocol(**fields)
    except ValueError as problem:
        raise UserError(f"{problem}.") from None
    except TypeError:
        values = ", ".join(f"{name}={value!r}" for name, value in given.items())
        raise UserError(f"a field of the protocol has a value of the wrong type: {values}.") from None
    if protocol.reset == "continual":
        raise UserError(
            "reset continual goes on from one corruption to the next, and evaluate starts from the network "
            "as it was; use ttabench.run_sweep for it."
        )
    if protocol.pace and "pace_ratio" not in given:
        raise UserError(
            "pace needs pace_ratio: the time of the method per batch over that of Source. ttabench.run_sweep "
            "measures it."
        )
    if why := no_pace(type(method), protocol):
        raise UserError(f"{method.name} cannot have pace {protocol.pace:g}: {why}.")
    return protocol


def _other_in_a_sweep(method: Method[Any], own: int, batch_size: int) -> str:
    """What a sweep sets at a batch size that is not the method's `own`; "" if that is what it has."""
    arch = method.model.architecture()
    changed = settings_for_batch(type(method), method.config, arch, own, batch_size)
    given = ", ".join(f"{name}={value!r}" for name, value in changed.items())
    return given and (
        f"at batch size {batch_size}, a sweep uses {given}; evaluate uses the value for batch size {own}. "
        "Pass the value that you want to ttabench.adapt"
    )
