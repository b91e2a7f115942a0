"""Random numbers of a method, apart from those of the program around it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


class OwnGenerator:
    """States of torch's generators that only the code inside :meth:`used` draws from.

    So a method gives the same numbers whatever a program draws between two batches. And the program draws
    what it would draw without the method.
    """

    def __init__(self, device: str, seed: int) -> None:
        self._gpus = [torch.device(device)] if device.startswith("cuda") else []
        with torch.random.fork_rng(self._gpus):
            torch.manual_seed(seed)
            self._states = self._read()

    @contextmanager
    def used(self) -> Iterator[None]:
        """In the block, torch's generators go on from the end of the last block; it leaves them as before."""
        with torch.random.fork_rng(self._gpus):
            cpu, *gpus = self._states
            torch.set_rng_state(cpu)
            for device, state in zip(self._gpus, gpus, strict=True):
                torch.cuda.set_rng_state(state, device)
            try:
                yield
            finally:
                self._states = self._read()

    def _read(self) -> list[Tensor]:
        return [torch.get_rng_state(), *(torch.cuda.get_rng_state(device) for device in self._gpus)]
