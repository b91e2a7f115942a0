"""Yes or no, computed on a GPU and read without letting the host wait for it at once."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class LateAnswer:
    """A truth value () on any device.

    late   whether it is better read later: on a GPU it is fetched while the host goes on.
    """

    def __init__(self, value: Tensor) -> None:
        self._value, self._fetched = value, None
        self.late = value.device.type == "cuda"
        if self.late:
            self._value = torch.empty((), dtype=torch.bool, pin_memory=True)
            self._value.copy_(value, non_blocking=True)
            self._fetched = _event(value.device)

    def read(self) -> bool:
        """The value. Waits until it is here."""
        if self._fetched is not None:
            self._fetched.synchronize()
        return bool(self._value)

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy, also in another process, has the value itself: what waits for a GPU cannot be copied."""
        return LateAnswer, (torch.tensor(self.read()),)


class LateCheck:
    """A check of each batch, whose answer may be read at the next call."""

    _waiting: LateAnswer | None = None

    def _was_sound(self) -> bool:
        """Read the answer that waits. True if there is none."""
        answer, self._waiting = self._waiting, None
        return answer is None or answer.read()

    def forget(self) -> None:
        """What was learned from the last batch is gone."""
        self._waiting = None


def _event(device: torch.device) -> Any:
    """What tells when the GPU has done all that it was given until now."""
    done = torch.cuda.Event()  # type: ignore[no-untyped-call]
    done.record(torch.cuda.current_stream(device))
    return done
