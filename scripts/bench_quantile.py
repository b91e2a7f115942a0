"""Time and memory of the quantile loss with its memory bank, ours against the direct formula.

The paper's case: 10,000 source features, k = 512, batches of 128, 1,000 points. One step is what a batch
costs on top of the classifier and the decorruptor: estimate the indices through the bank, the loss, and its
gradient with respect to the batch's features. The direct formula materialises the unit vectors, points ×
batch × k, and lets autograd do the rest. Time and memory are measured in processes of their own. Memory is
the peak, bank and all, over what was held before the bank was made: resident on the CPU (Linux), allocated
by torch on a GPU.

The main case has almost no close pairs, which are computed one by one. Features in tight clusters have many,
all pairs within a class; they get a row of their own. `--profile` says what bounds one of our steps instead.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import time

from bench_suite import arguments, fresh_process, last_line

# glibc then returns every larger block when it is freed, so that what is resident is what is in use.
RETURN_MEMORY = {"MALLOC_MMAP_THRESHOLD_": "262144", "MALLOC_TRIM_THRESHOLD_": "262144"}
PAPER = "paper (H100): about 2 ms per batch, about 570 MB"
CLASSES, SPREAD = 10, 0.1  # of the clustered features: standard normal centres, and the spread around them
PROFILED = 10  # steps
# Operations of torch by what they do here: the indexing is that of close pairs, and of the bank; what is in
# none goes element by element over points × batch, or over the close pairs.
WORK = {
    "matrix_products": ("mm", "bmm", "addmm", "baddbmm"),
    "indexing": ("index", "index_put_", "_index_put_impl_", "nonzero"),
    "copies": ("copy_", "_to_copy", "cat", "clone"),
}


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


def make_case(args: argparse.Namespace):  # type: ignore[no-untyped-def]
    """Source features, points among them with their indices, target features, and batches of positions."""
    import torch

    from ttabench_methods.quantile.geometric import quantile_index

    device = torch.device(args.device)
    torch.manual_seed(0)
    torch.set_num_threads(args.threads or torch.get_num_threads())
    shape = args.source, args.features
    if args.data == "clustered":
        centres = torch.randn(CLASSES, args.features, device=device)
        source, target = (
            centres[torch.randint(CLASSES, shape[:1], device=device)]
            + SPREAD * torch.randn(shape, device=device)
            for _ in range(2)
        )
    else:
        source = torch.randn(shape, device=device).relu()
        target = (0.7 * torch.randn(shape, device=device) + 0.1).relu()
    points = source[torch.randperm(args.source, device=device)[: args.points]].clone()
    batches = [torch.randperm(args.source, device=device)[: args.batch] for _ in range(args.repeats + 2)]
    return source, points, quantile_index(points, source), target, batches


def measure(which: str, args: argparse.Namespace) -> dict[str, float]:
    import torch

    source, points, index, target, batches = make_case(args)
    cuda = source.device.type == "cuda"
    make = our_bank if which == "ours" else direct_bank
    # Code, threads and buffers of the libraries are loaded on first use; they belong to neither.
    tiny = source[:256, :8].clone().requires_grad_()
    make(points[:4, :8], index[:4, :8], tiny.detach())(torch.arange(len(tiny)), tiny).backward()
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
        "close": close_share(points, target[batches[0]]),
    }


def close_share(points, x) -> float:  # type: ignore[no-untyped-def]
    """The share of pairs that the index computes one by one."""
    from ttabench_methods.quantile import geometric

    places, pairs = geometric._places, []
    geometric._places = lambda chosen: (pairs.append(len(chosen)), places(chosen))[1]
    geometric.quantile_index(points, x)
    geometric._places = places
    return sum(pairs) / (len(points) * len(x))


def profile(args: argparse.Namespace) -> None:
    """Where the time of our step goes, operation by operation, and by kind of work."""
    import torch
    from torch.profiler import ProfilerActivity

    _source, points, index, target, batches = make_case(args)
    cuda = points.device.type == "cuda"
    step = our_bank(points, index, target)

    def go(positions) -> None:  # type: ignore[no-untyped-def]
        step(positions, (target[positions] + 0.01).requires_grad_()).backward()

    def run_all(some) -> float:  # type: ignore[no-untyped-def]
        started = time.perf_counter()
        for positions in some:
            go(positions)
        if cuda:
            torch.cuda.synchronize()
        return time.perf_counter() - started

    run_all(batches[:3])
    some = [batches[i % len(batches)] for i in range(PROFILED)]
    unprofiled = run_all(some)
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
    with torch.profiler.profile(activities=activities, with_flops=True) as seen:
        run_all(some)
    rows = seen.key_averages()
    time_of = f"self_{'device' if cuda else 'cpu'}_time_total"
    print(rows.table(sort_by=time_of, row_limit=12, max_name_column_width=40))
    # Kernels are rows of their own, beside the operations that launch them.
    operations = [row for row in rows if row.key.startswith("aten::") or not cuda]
    total = sum(getattr(row, time_of) for row in operations) / 1e6
    kinds, flops = dict.fromkeys([*WORK, "element_wise"], 0.0), 0
    for row in operations:
        name = row.key.removeprefix("aten::")
        kind = next((kind for kind, names in WORK.items() if name in names), "element_wise")
        kinds[kind] += getattr(row, time_of) / 1e6
        flops += row.flops if kind == "matrix_products" else 0
    print(f"{close_share(points, target[batches[0]]):.2%} of pairs are close; by kind of work, per step:")
    for kind, seconds in sorted(kinds.items(), key=lambda pair: -pair[1]):
        rate = f", {flops / seconds / 1e9:.0f} GFLOP/s" if kind == "matrix_products" else ""
        print(f"  {kind:16} {1e3 * seconds / PROFILED:8.3f} ms {seconds / total:6.1%}{rate}")
    if cuda:
        print(
            f"the GPU is busy {total / unprofiled:.0%} of the time; the rest of the time it waits for the CPU"
        )
    shares = " ".join(f"{kind}={seconds / total:.3f}" for kind, seconds in kinds.items())
    print(f"step_ms={1e3 * unprofiled / PROFILED:.3f} {shares}")


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


def run(which: str, settings: dict[str, str], *more: object) -> dict[str, float]:
    words = fresh_process("--only", which, *more, env=settings)
    measured: dict[str, float] = json.loads(" ".join(words))
    return measured


def main() -> None:
    parser = arguments(__doc__)
    for name, default, text in (
        ("source", 10_000, "source and target features"), ("features", 512, "k"),
        ("batch", 128, "images per batch"), ("points", 1000, "quantile points"),
        ("repeats", 21, "timed steps; the median counts"), ("threads", 0, "CPU threads, 0 = torch's choice"),
    ):  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=default, help=f"{text} (default {default})")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--data", choices=("relu", "clustered"), default="relu", help="kind of features")
    parser.add_argument("--profile", action="store_true", help="what bounds our step, and no comparison")
    parser.add_argument("--only", choices=("ours", "direct"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.only:
        print(json.dumps(measure(args.only, args)))
        return
    if args.profile:
        profile(args)
        return
    seen = {}
    for which in ("direct", "ours"):
        row = seen[which] = run(which, {})
        row["mb"] = run(which, RETURN_MEMORY)["mb"]
        print(f"{which:7} {row['ms']:9.2f} ms per batch {row['mb']:9.1f} MB  loss {row['loss']:.6f}")
    print(PAPER)
    off = abs(seen["ours"]["gradient"] / seen["direct"]["gradient"] - 1)
    print(f"norms of the gradients differ by {off:.1e} (relative)")
    if args.data == "relu":
        few = "--data", "clustered", "--repeats", min(args.repeats, 5)
        tight = {which: run(which, {}, *few) for which in ("direct", "ours")}
        print(
            f"{CLASSES} clusters of spread {SPREAD}, {tight['ours']['close']:.1%} of pairs close "
            f"(above: {seen['ours']['close']:.2%}): direct {tight['direct']['ms']:.2f} ms, "
            f"ours {tight['ours']['ms']:.2f} ms, {tight['direct']['ms'] / tight['ours']['ms']:.1f} × faster"
        )
    ratio = {key: seen["direct"][key] / seen["ours"][key] for key in ("ms", "mb")}
    last_line(1, time_ratio=ratio["ms"], memory_ratio=ratio["mb"])


if __name__ == "__main__":
    main()
