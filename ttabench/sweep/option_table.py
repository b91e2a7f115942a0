"""Every option of a sweep, once: default, help, and the values it takes. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from ttabench.cell.protocol import PRECISIONS, RESETS
from ttabench.cell.stream_spec import STREAM_FORMS
from ttabench.corruptions import corruption_names
from ttabench.sweep.option_kinds import Choice, Count, Kind, Names, Number, Numbers, Settings, Text

MODES = ("native", "online", "offline")
BATCH_RATES = ("official", "fixed")
CLASSES = ("first", "balanced")
SCORES = ("cheap", "all")
ACTIVATIONS = ("keep", "recompute")
OVERWRITE = ("never", "failed", "stale", "always")
"""Which stored cells are computed again: none, failed ones, failed and stale ones, or all."""
GROUPS = {
    "all": corruption_names.CORRUPTIONS,
    "extra": corruption_names.EXTRA_CORRUPTIONS,
    "every": corruption_names.ALL_CORRUPTIONS,
    "bar": corruption_names.BAR_CORRUPTIONS,
}
SINGLE = (*corruption_names.KNOWN_CORRUPTIONS, corruption_names.NATURAL, "mixed")
CCC_PART = r"[0-9]{5}-[0-9]+"
"""Parts of the published CCC: shard, part of the shard."""
STREAM = r" *(ccc|cdc|(recurring|gradual|ccc|cdc|dirichlet) *\(.*\)) *"
NUMBER = r"[0-9]*\.?[0-9]+([eE][+-]?[0-9]+)?"


@dataclass(frozen=True)
class Option:
    """An option of ``ttabench sweep``, and a key of sweep files.

    default  as text or number.
    metavar  what ``--help`` calls its value.
    help     one sentence.
    kind     the values that a sweep file may have.
    scope    axis (its values are crossed) | method (how a method runs) | data (what is measured) |
             run (how the sweep runs; changes no number).
    """

    name: str
    default: Any
    metavar: str
    help: str
    kind: Kind
    scope: Literal["axis", "method", "data", "run"]

    @property
    def flag(self) -> str:
        return f"--{self.name.replace('_', '-')}"


_TABLE = (
    Option(
        "methods", "quantile,tent", "NAMES",
        "Names, with settings as in tent[norms=all]; all; or alignment: the methods of this family.",
        Names('["quantile", "tent"]'), "axis",
    ),
    Option(
        "archs", "resnet18,cct", "NAMES",
        "Architectures; also timm/, torchvision/, hf/, robustbench/ or official/NAME, or MODULE:CALLABLE.",
        Names('["resnet18", "cct"]'), "axis",
    ),
    Option(
        "datasets", "digits-c", "NAMES", "Datasets, by name or path.", Names('["cifar10-c"]'), "axis",
    ),
    Option(
        "corruptions", "all", "NAMES",
        "all (the 15 common ones, or else whatever the dataset has), extra (the 4), "
        "every (the 19), bar (the 10 of cifar10-c-bar), natural, mixed (the 15 in one stream), or names.",
        Names('["fog", "snow"]', (*GROUPS, *SINGLE), CCC_PART), "axis",
    ),
    Option(
        "severities", "5", "NUMBERS", "Severities from 1 to 5; a natural shift has none.",
        Numbers(1, 5, "[1, 3, 5]"), "axis",
    ),
    Option(
        "seeds", "0", "NUMBERS", "Each cell is run once with each of these seeds.",
        Numbers(0, 2**63 - 1, "[0, 1, 2]"), "axis",
    ),
    Option(
        "mode", "native", "MODE", "native (each method as in its paper or usual code), online or offline.",
        Choice(MODES), "method",
    ),
    Option(
        "reset", "", "WHEN",
        "When methods are reset: per_corruption (default), continual (never; default for a long stream), "
        "episodic (before each batch), or every(N) batches.",
        Choice(("", *RESETS), rf"every\({NUMBER}\)", "every(N) with N batches"), "method",
    ),
    Option(
        "order", "iid", "ORDER",
        "Order of the images: iid, or dirichlet(δ): classes come in bursts; with δ = 0, class after class.",
        Choice(("iid",), rf"dirichlet\({NUMBER}\)", "dirichlet(δ) with δ ≥ 0"), "data",
    ),
    Option(
        "contamination", "", "SOURCE",
        "Add a share ε of foreign images of unknown classes: noise(ε), DATASET(ε) or FOLDER(ε).",
        Choice(("",), rf".+\({NUMBER}\)", "NAME(ε) with 0 < ε < 1, e.g. noise(0.2)"), "data",
    ),
    Option(
        "held_out", 0.0, "SHARE", "Score only this share of the images, and adapt to the others.",
        Number(below=1), "data",
    ),
    Option(
        "batch_size", 0, "COUNT", "Images per batch; 0 = each method's own number.", Count(), "method",
    ),
    Option(
        "batch_rate", "official", "RULE",
        "Learning rate if --batch-size is not the method's own: official (scaled as in official scripts), "
        "or fixed.",
        Choice(BATCH_RATES), "method",
    ),
    Option(
        "epochs", 0, "COUNT", "Passes of offline methods over the images; 0 = each method's own number.",
        Count(), "method",
    ),
    Option("limit", 0, "COUNT", "Use only so many test images; 0 = all.", Count(), "data"),
    Option(
        "classes", "first", "RULE",
        "How --limit chooses images: first, or balanced (drawn, equally many per class; always for "
        "imagenet-c).",
        Choice(CLASSES), "data",
    ),
    Option(
        "subset", "", "NAME",
        "Draw so many images, equally many per class: 1000, or 1000@3 with seed 3. For imagenet-c, also "
        "robustbench-5k, or a file of names.",
        Text("a number, robustbench-5k or a file"), "run",
    ),
    Option(
        "precision", "float32", "TYPE", "float32, bfloat16 or tf32 (only on a GPU).",
        Choice(PRECISIONS), "data",
    ),
    Option(
        "stream", "", "KIND",
        "One long stream: recurring(K), gradual, mixed, cdc(δ, rounds=K), or ccc(accuracy, length=…, "
        "speed=…, baseline=ARCH). dirichlet(δ) is the same as --order.",
        Choice(("", "gradual", "mixed"), STREAM, STREAM_FORMS), "data",
    ),
    Option(
        "pace", 0.0, "NUMBER",
        "Speed of the stream, relative to Source: slower methods skip batches. 0 = the stream waits.",
        Number(), "data",
    ),
    Option(
        "pace_ratio", "", "METHOD=RATIO",
        "Compute ratios for --pace, separated by commas. Ratios that you do not give are measured.",
        Text("METHOD=RATIO, …"), "data",
    ),
    Option(
        "checkpoint", "", "FILE", "Weights for the architecture, which is then not trained.",
        Text("a file"), "data",
    ),
    Option(
        "normalize", "", "NAME",
        "Normalisation that the network expects: none, half, imagenet, cifar10 … Default: that of the "
        "dataset; for your own network, none (pixels from 0 to 1).",
        Text("a name"), "data",
    ),
    Option(
        "set", [], "METHOD.KEY=VALUE",
        "A setting. Separate several values by commas. All combinations of values are run. Repeatable.",
        Settings(), "data",
    ),
    Option("out", "results", "DIR", "The results folder.", Text("a folder"), "run"),
    Option(
        "executor", "local", "NAME", "Where cells run: local (this machine), ray or slurm (clusters).",
        Text("a name"), "run",
    ),
    Option(
        "executor_options", "", "KEY=VALUE,…",
        "Options of the executor, such as partition=gpu,time=240 for slurm.",
        Text("KEY=VALUE, …"), "run",
    ),
    Option(
        "workers", "auto", "COUNT", "Worker processes: auto = one per core or GPU; 0 = run in this process.",
        Count(word="auto"), "run",
    ),
    Option("device", "auto", "DEVICE", "auto, cpu, cuda, cuda:1 …", Text("a device"), "run"),
    Option(
        "per_gpu", 1, "COUNT", "Workers on each GPU; use more for small networks.", Count(least=1), "run",
    ),
    Option(
        "cell_timeout", 0.0, "SECONDS",
        "A cell that runs longer is stopped and recorded as failed; 0 = unlimited.", Number(), "run",
    ),
    Option(
        "cell_memory", 0.0, "GB",
        "A cell whose process needs more host memory is recorded as failed; 0 = unlimited.", Number(), "run",
    ),
    Option(
        "device_memory", 0.0, "GB",
        "A cell that needs more memory of its GPU is recorded as failed; 0 = unlimited.", Number(), "run",
    ),
    Option(
        "activations", "keep", "WHAT",
        "What a network does with its activations until the backward pass: keep, or recompute (half the "
        "memory, and 1.3 to 1.5 times the time).",
        Choice(ACTIVATIONS), "run",
    ),
    Option(
        "scores", "cheap", "WHICH",
        "Label-free scores: cheap, or all: also view consistency and source accuracy (more forward passes).",
        Choice(SCORES), "run",
    ),
    Option(
        "overwrite", "stale", "WHAT",
        "Which stored cells to compute again: never, failed, stale (failed or stale ones), always (all).",
        Choice(OVERWRITE), "run",
    ),
    Option(
        "log", "", "NAMES",
        "Also log results to tensorboard, mlflow or wandb.", Text("names"), "run",
    ),
    Option(
        "shard", "", "I/N",
        "Run only the i-th of n slices, from 1; auto reads i and n from Slurm or torchrun.",
        Choice(("", "auto"), "[1-9][0-9]*/[1-9][0-9]*", "I/N with 1 ≤ I ≤ N, e.g. 2/5"), "run",
    ),
)  # fmt: skip

OPTIONS = {option.name: option for option in _TABLE}
DEFAULTS: dict[str, Any] = {option.name: option.default for option in _TABLE}
"""The options of a sweep at their defaults; see also :func:`ttabench.sweep.options_to_grid.make_grid`."""
