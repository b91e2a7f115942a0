"""Source and target data for a method under test: they record requests outside of the contract."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from ttabench.conformance.nets import images
from ttabench.measure.declared_source import STATISTICS, undeclared
from ttabench.measure.source_access import SourceTensors
from ttabench.method import Batches, Needs, SourceData


class WatchedSource(SourceTensors):
    """Source data that serve declared requests and record all others."""

    def __init__(self, needs: Needs, dtype: torch.dtype = torch.float32) -> None:
        super().__init__((), needs)
        self._images = images(128, seed=3).to(dtype)  # SourceTensors would make them float32
        self._needs = needs
        self.offences: list[str] = []

    def __getattribute__(self, name: str) -> Any:
        if name in STATISTICS and name not in self._needs.source_statistics:
            self.offences.append(undeclared(self._needs, name))
        return super().__getattribute__(name)

    def _serve(self, kind: str, what: str, limit: int) -> None:
        try:
            super()._serve(kind, what, limit)
        except PermissionError:
            self.offences.append(f"source data: {kind}, which its Needs do not declare")
            raise

    def __getattr__(self, name: str) -> Any:
        return _refuse(self.__dict__, "source data", name)


class Target:
    """All target images, for the offline mode; records requests outside of the contract."""

    def __init__(self, stream: Sequence[Tensor]) -> None:
        self._images = torch.cat(list(stream))
        self.count = len(self._images)
        self.batch_size = len(stream[0])
        self.offences: list[str] = []

    def __len__(self) -> int:
        return -(-self.count // self.batch_size)

    def __iter__(self) -> Iterator[Tensor]:
        return iter(split(self._images, self.batch_size))

    def shuffled(self) -> Iterator[tuple[Tensor, Tensor]]:
        for chosen in split(torch.randperm(self.count), self.batch_size):
            yield chosen, self._images[chosen]

    def __getattr__(self, name: str) -> Any:
        return _refuse(self.__dict__, "target data", name)


def _refuse(attributes: dict[str, Any], whose: str, name: str) -> Any:
    if not name.startswith("__") and "offences" in attributes:  # Python itself looks up dunder names
        attributes["offences"].append(f"{whose}: '{name}', which the contract does not have")
    raise AttributeError(f"{whose} have no '{name}'")


def split(x: Tensor, sizes: int | list[int]) -> list[Tensor]:
    return list(torch.split(x, sizes))


_: tuple[type[SourceData], type[Batches]] = (WatchedSource, Target)  # they fulfil the protocols
