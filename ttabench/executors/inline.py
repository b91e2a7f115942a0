"""Jobs in this very process, one after the other: for debugging and for tests."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from ttabench.executors import Job


def run(jobs: Sequence[Job], workers: int = 0) -> Generator[Any]:
    """Run `jobs` on one thread, like every worker does, so that the numbers are the same."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for job in jobs:
            emitted: list[Any] = []
            done = job(emitted.append)
            yield from emitted
            yield done
    finally:
        torch.set_num_threads(threads)
