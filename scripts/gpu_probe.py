"""What a GPU does with each method: milliseconds a step, kernels, waits of the host, and its busy share.

Random images and an untrained network: none of these numbers depends on them. The ceilings of the device
come first: copies in TB/s and products of matrices in TFLOP/s. On a CPU, only the time is measured.
Each row is stored at once, in every file of --out. If the first is of the same GPU and options, only what it
lacks is measured, then what ended in an error.

    python scripts/gpu_probe.py --out probe.json [--archs resnet18,cct_7_3x1] [--methods tent,quantile]
"""

from __future__ import annotations

import json
import statistics
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from bench_methods import Case, classifier, images, pixels, prepared
from bench_suite import Timer, arguments

from ttabench.errors import UserError, first_line
from ttabench.measure.order_and_batches import Stream
from ttabench.registry import method as find_method
from ttabench.run.gpu import check_gpu
from ttabench.system.environment import processor
from ttabench.system.files import replacing

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


def row(arch: str, name: str, device: str, repeats: int, count: int) -> dict[str, Any]:
    """What is measured of a method on a network, or why it is n/a.

    count  images of an offline method's epoch.
    """
    cls = find_method(name)
    settings = {"minibatch": min(MINIBATCH, count)} if name == "quantile_paper" else {}
    adapter = prepared(Case(name, settings=settings, source=count), classifier(arch).to(device), device)
    if isinstance(adapter, str):
        return {"n/a": adapter}
    step: Callable[[], object]
    if cls.mode == "offline":
        stream = Stream(pixels(count), torch.arange(count).numpy(), min(512, count), device)
        step, steps = partial(adapter.fit, stream, 1), -(-count // adapter.config.minibatch)
    else:
        step, steps = partial(adapter.adapt, images(cls.batch_size, device)), 1
    found = {"ms": 1e3 * seconds(step, device, repeats) / steps}
    return found | (on_gpu(step, steps) if device.startswith("cuda") else {})


def on_gpu(step: Callable[[], object], steps: int) -> dict[str, Any]:
    """Kernels and waits of a step, the share of its time in which the GPU is busy, and peak memory in MB."""
    from torch.profiler import ProfilerActivity, profile

    torch.cuda.reset_peak_memory_stats()
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True, action="always") as said:
            step()
    finally:  # else every wait of the rows after an error is a warning, and takes longer
        torch.cuda.set_sync_debug_mode("default")
    waits = sum("synchroniz" in str(each.message) for each in said)
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        elapsed = Timer("cuda", WALL)(step)
    kernels = [event for event in profiled.events() if str(event.device_type).endswith("CUDA")]
    busy = sum(event.time_range.elapsed_us() for event in kernels) / 1e6 / elapsed
    peak = torch.cuda.max_memory_allocated() / 1e6
    return {"kernels": len(kernels) / steps, "waits": waits / steps, "busy": busy, "peak_mb": peak}


class Measured:
    """The rows in files, which are written anew with each; other options or another GPU begin anew."""

    def __init__(self, files: list[Path], made_with: dict[str, Any]) -> None:
        self.files = files
        before = json.loads(files[0].read_text()) if files[0].exists() else {}
        anew: dict[str, Any] = {"made_with": made_with, "methods": []}
        self.found = before if before.get("made_with") == made_with else anew

    def left(self, archs: list[str], methods: list[str]) -> list[tuple[str, str]]:
        """(network, method) that have no row yet; then those with an error."""
        rows = {(row["arch"], row["method"]): "error" in row for row in self.found["methods"]}
        wanted = [(arch, method) for arch in archs for method in methods]
        return [one for one in wanted if one not in rows] + [one for one in wanted if rows.get(one)]

    def add(self, row: dict[str, Any]) -> None:
        name = row["arch"], row["method"]
        others = [old for old in self.found["methods"] if (old["arch"], old["method"]) != name]
        self.found["methods"] = [*others, row]
        self.write()

    def write(self) -> None:
        for file in self.files:
            with replacing(file) as part:
                part.write_text(json.dumps(self.found, indent=1))


def shown(row: dict[str, Any]) -> str:
    return "  ".join(f"{value:.3g}" if isinstance(value, float) else f"{value}" for value in row.values())


def main() -> int:
    parser = arguments(
        __doc__, device="cuda" if torch.cuda.is_available() else "cpu", archs="resnet18,cct_7_3x1", repeats=5
    )
    parser.add_argument("--out", type=Path, nargs="+", required=True)
    parser.add_argument("--methods", default=METHODS)
    parser.add_argument("--images", type=int, default=1024, help="of an offline method's epoch")
    parser.add_argument("--side", type=int, default=8192, help="of the matrices")
    given = parser.parse_args()
    options = {"repeats": given.repeats, "images": given.images, "side": given.side}
    made_with = {"device": processor(given.device), "torch": torch.__version__, **options}
    measured = Measured(given.out, made_with)
    if "ceilings" not in measured.found:
        measured.found["ceilings"] = ceilings(given.device, given.side, given.repeats)
        measured.write()
        print(shown(measured.found["ceilings"]), flush=True)
    failed = False
    for arch, name in measured.left(given.archs.split(","), given.methods.split(",")):
        try:
            found = row(arch, name, given.device, given.repeats, given.images)
        except Exception as problem:  # the other methods are measured all the same
            failed, found = True, {"error": first_line(problem)}
        measured.add({"arch": arch, "method": name, **found})
        print(shown(measured.found["methods"][-1]), flush=True)
        if "error" in found:
            check_gpu(given.device)
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except UserError as problem:
        raise SystemExit(str(problem)) from None
