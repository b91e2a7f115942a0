"""Time and memory of the quantile loss with its memory bank, ours against the direct formula.

The paper's case: 10,000 source features, k = 512, batches of 128, 1,000 points. One step is what a batch
costs on top of the classifier and the decorruptor: estimate the indices through the bank, the loss, and its
gradient with respect to the batch's features. The direct formula materialises the unit vectors, points ×
batch × k, and lets autograd do the rest. Time and memory are measured in processes of their own. Memory is
the peak, bank and all, over what was held before the bank was made: resident on the CPU (Linux), allocated
by torch on a GPU.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import subprocess
import sys
import time

# glibc then returns every larger block when it is freed, so that what is resident is what is in use.
RETURN_MEMORY = {"MALLOC_MMAP_THRESHOLD_": "262144", "MALLOC_TRIM_THRESHOLD_": "262144"}
PAPER = "paper (H100): about 2 ms per batch, about 570 MB"


def direct_bank(points, index, features):  # type: ignore[no-untyped-def]
    """The same estimator from Q × b × k unit vectors."""
    import torch

    def mean_unit(x):  # type: ignore[no-untyped-def]
        difference = points[:, None] - x[None]
        return (difference / difference.norm(dim=-1, keepdim=True)).mean(1)

    stored = features.clone()
    with torch.no_grad():
        mean = sum(len(part) * mean_unit(part) for part in stored.split(128)) / len(stored)

    def step(positions, x):  # type: ignore[no-untyped-def]
        now = mean_unit(x)
        with torch.no_grad():
            old = mean_unit(stored[positions])
        stored[positions] = x.detach()
        return (now + mean - old - index).square().sum(1).mean()

    return step


def our_bank(points, index, features):  # type: ignore[no-untyped-def]
    from ttabench_methods.quantile.bank import Bank

    bank = Bank(points, features.clone())
    return lambda positions, x: (bank.estimate(positions, x) - index).square().sum(1).mean()


def measure(which: str, args: argparse.Namespace) -> dict[str, float]:
    import torch

    from ttabench_methods.quantile.geometric import quantile_index

    device = torch.device(args.device)
    torch.manual_seed(0)
    torch.set_num_threads(args.threads or torch.get_num_threads())
    cuda = device.type == "cuda"
    source = torch.randn(args.source, args.features, device=device).relu()
    points = source[torch.randperm(args.source, device=device)[: args.points]].clone()
    index = quantile_index(points, source)
    target = (0.7 * torch.randn(args.source, args.features, device=device) + 0.1).relu()
    batches = [torch.randperm(args.source, device=device)[: args.batch] for _ in range(args.repeats + 2)]
    make = our_bank if which == "ours" else direct_bank
    # Code, threads and buffers of the libraries are loaded on first use; they belong to neither.
    tiny = source[:256, :8].clone().requires_grad_()
    make(points[:4, :8], index[:4, :8], tiny.detach())(torch.arange(256), tiny).backward()
    (points @ source[: args.batch].T).sum()
    if cuda:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    else:
        before = reset_peak()
    step = make(points, index, target)
    seconds, gradient = [], None
    for positions in batches:
        x = (target[positions] + 0.01).requires_grad_()
        if cuda:
            torch.cuda.synchronize()
        started = time.perf_counter()
        loss = step(positions, x)
        loss.backward()
        if cuda:
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - started)
        gradient = x.grad if gradient is None else gradient
    peak = torch.cuda.max_memory_allocated() if cuda else peak_resident()
    assert gradient is not None
    return {
        "ms": 1e3 * sorted(seconds[2:])[args.repeats // 2],
        "mb": (peak - before) / 1e6,
        "loss": loss.item(),
        "gradient": gradient.double().norm().item(),
    }


def reset_peak() -> int:
    """Give freed memory back to the system, forget the peak so far; bytes resident now (Linux)."""
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    return status("VmRSS")


def peak_resident() -> int:
    return status("VmHWM")


def status(field: str) -> int:
    with open("/proc/self/status") as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith(field))


def run(which: str, settings: dict[str, str]) -> dict[str, float]:
    command = [sys.executable, __file__, *sys.argv[1:], "--only", which]
    output = subprocess.run(
        command, check=True, capture_output=True, text=True, env={**os.environ, **settings}
    )
    measured: dict[str, float] = json.loads(output.stdout.splitlines()[-1])
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default, text in (
        ("source", 10_000, "source and target features"), ("features", 512, "k"),
        ("batch", 128, "images per batch"), ("points", 1000, "quantile points"),
        ("repeats", 21, "timed steps; the median counts"), ("threads", 0, "CPU threads, 0 = torch's choice"),
    ):  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=default, help=f"{text} (default {default})")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--only", choices=("ours", "direct"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.only:
        print(json.dumps(measure(args.only, args)))
        return
    seen = {}
    for which in ("direct", "ours"):
        row = seen[which] = run(which, {})
        row["mb"] = run(which, RETURN_MEMORY)["mb"]
        print(f"{which:7} {row['ms']:9.2f} ms per batch {row['mb']:9.1f} MB  loss {row['loss']:.6f}")
    print(PAPER)
    off = abs(seen["ours"]["gradient"] / seen["direct"]["gradient"] - 1)
    print(f"norms of the gradients differ by {off:.1e} (relative)")
    ratio = {key: seen["direct"][key] / seen["ours"][key] for key in ("ms", "mb")}
    print(f"time_ratio={ratio['ms']:.1f} memory_ratio={ratio['mb']:.1f}")


if __name__ == "__main__":
    main()
