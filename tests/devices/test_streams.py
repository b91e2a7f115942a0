"""Long streams on an emulated second device: one that is stopped goes on there, from the state on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cases import each
from tests.devices.emulated import Emulated
from tests.devices.test_methods import pixels, prepared
from ttabench.cell.protocol import Protocol
from ttabench.conformance.nets import CLASSES
from ttabench.measure import scoring
from ttabench.measure.image_stream import Batch, ImageStream
from ttabench.measure.scoring import Evaluation
from ttabench.measure.streams.checkpoint import Checkpoint

BATCH, BATCHES = 16, 4
PROTOCOL = Protocol(batch_size=BATCH)


class Images(ImageStream):
    total = scored = BATCH * BATCHES

    def __init__(self) -> None:
        self.images = pixels(self.total, seed=2, shift=0.4)

    def read(self, start: int, stop: int) -> Batch:
        return Batch(self.images[start:stop], np.arange(start, stop) % CLASSES)


class Stopped(Exception):
    pass


def follow(name: str, checkpoint: Checkpoint | None, last: int = 0) -> tuple[Evaluation, int]:
    """Score the stream, or stop at image `last`; and the images seen after the first batch of this run."""
    seen: list[int] = []

    def report(images: int, *_: Any) -> None:
        seen.append(images)
        if images == last:
            raise Stopped

    method = prepared(name)
    method.reset()
    done = scoring.evaluate(method, Images(), PROTOCOL, 0, "cuda", report, saved=checkpoint)
    return done, seen[0]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ttabench.errors.Alarm")
# Fused Adam and batch norm, two copies of a network, a memory of images, supports that grow, a decorruptor
# with its bank, and CMA-ES in double precision.
@each("name", ["tent", "cotta", "rotta", "t3a", "quantile", "foa"])
def test_a_stopped_stream_goes_on_where_it_was(tmp_path: Path, name: str) -> None:
    with Emulated():
        whole, _ = follow(name, None)
        state = {"file": tmp_path / "state.npz", "identity": {}, "seconds": 0.0}
        with pytest.raises(Stopped):
            follow(name, Checkpoint(**state), last=3 * BATCH)
        resumed, first = follow(name, Checkpoint(**state))
    assert first == 3 * BATCH  # the state was that after two batches
    assert (resumed.correct == whole.correct).all()
    assert resumed.calibration == whole.calibration
