"""What a GPU does with each method: milliseconds a step, kernels, waits of the host, and its busy share.

Random images and an untrained network: none of these numbers depends on them. The ceilings of the device
come first: copies in TB/s and products of matrices in TFLOP/s. On a CPU, only the time is measured.

    python scripts/gpu_probe.py --out probe.json [--archs resnet18,cct_7_3x1] [--methods tent,quantile]
"""

from __future__ import annotations

import argparse
import json
import statistics
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from bench_methods import Case, classifier, images, pixels, prepared
from bench_suite import Timer

from ttabench.measure.ordered_batches import Stream
from ttabench.registry import method as find_method

ONLINE = "source,bn_stats,tent,eata,sar,medbn,sotta,rotta,cotta"
METHODS = f"{ONLINE},quantile_paper,quantile"
WALL = 2  # more than one thread: time by the wall clock
MINIBATCH = 512  # of `quantile_paper`, as in its paper's tables
PRODUCTS = {
    "bf16": (torch.bfloat16, "highest"),
    "tf32": (torch.float32, "high"),
    "fp32": (torch.float32, "highest"),
}


def seconds(work: Callable[[], object], device: str, repeats: int) -> float:
    """The median of some repeats, after one that does not count."""
    timer = Timer(device, WALL)
    return statistics.median([timer(work) for _ in range(repeats + 1)][1:])


def ceilings(device: str, side: int, repeats: int) -> dict[str, float]:
    """TB/s of a copy in the device's memory, and TFLOP/s of products of matrices side × side."""
    here, there = torch.randn(side * side, device=device), torch.empty(side * side, device=device)
    found = {"copy": 8 * side**2 / seconds(lambda: there.copy_(here), device, repeats) / 1e12}
    before = torch.get_float32_matmul_precision()
    for name, (kind, precision) in PRODUCTS.items():
        a, b = (torch.randn(side, side, device=device, dtype=kind) for _ in range(2))
        torch.set_float32_matmul_precision(precision)
        found[name] = 2 * side**3 / seconds(lambda a=a, b=b: a @ b, device, repeats) / 1e12  # type: ignore[misc]
    torch.set_float32_matmul_precision(before)
    return found


def rows(
    archs: list[str], methods: list[str], device: str, repeats: int, count: int
) -> Iterator[dict[str, Any]]:
    """One row per network and method.

    count  images of an offline method's epoch.
    """
    for arch in archs:
        for name in methods:
            cls = find_method(name)
            settings = {"minibatch": min(MINIBATCH, count)} if name == "quantile_paper" else {}
            adapter = prepared(
                Case(name, settings=settings, source=count), classifier(arch).to(device), device
            )
            if isinstance(adapter, str):
                yield {"arch": arch, "method": name, "n/a": adapter}
                continue
            if cls.mode == "offline":
                stream = Stream(pixels(count), torch.arange(count).numpy(), min(512, count), device)
                step, steps = (lambda a=adapter, s=stream: a.fit(s, 1)), -(-count // adapter.config.minibatch)
            else:
                x = images(cls.batch_size, device)
                step, steps = (lambda a=adapter, x=x: a.adapt(x)), 1
            row = {"arch": arch, "method": name, "ms": 1e3 * seconds(step, device, repeats) / steps}
            yield row | (on_gpu(step, steps) if device.startswith("cuda") else {})


def on_gpu(step: Callable[[], object], steps: int) -> dict[str, Any]:
    """Kernels and waits of a step, the share of its time in which the GPU is busy, and peak memory in MB."""
    from torch.profiler import ProfilerActivity, profile

    torch.cuda.reset_peak_memory_stats()
    torch.cuda.set_sync_debug_mode("warn")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        step()
    torch.cuda.set_sync_debug_mode("default")
    waits = sum("synchroniz" in str(each.message) for each in said)
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        elapsed = Timer("cuda", WALL)(step)
    kernels = [event for event in profiled.events() if str(event.device_type).endswith("CUDA")]
    busy = sum(event.time_range.elapsed_us() for event in kernels) / 1e6 / elapsed
    peak = torch.cuda.max_memory_allocated() / 1e6
    return {"kernels": len(kernels) / steps, "waits": waits / steps, "busy": busy, "peak_mb": peak}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--archs", default="resnet18,cct_7_3x1")
    parser.add_argument("--methods", default=METHODS)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--images", type=int, default=1024, help="of an offline method's epoch")
    parser.add_argument("--side", type=int, default=8192, help="of the matrices")
    given = parser.parse_args()
    found: dict[str, Any] = {
        "device": given.device,
        "ceilings": ceilings(given.device, given.side, given.repeats),
    }
    print(found["ceilings"], flush=True)
    found["methods"] = []
    wanted = given.archs.split(","), given.methods.split(",")
    for row in rows(*wanted, given.device, given.repeats, given.images):
        found["methods"].append(row)
        given.out.write_text(json.dumps(found, indent=1))  # what is measured is kept if the time ends
        print(
            "  ".join(f"{value:.3g}" if isinstance(value, float) else f"{value}" for value in row.values()),
            flush=True,
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
