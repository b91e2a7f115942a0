"""Which settings of quantile matching help, on the four extra corruptions only.

Runs one sweep of the settings below (it goes on where it stopped), and writes a table: mean accuracy over
speckle noise, Gaussian blur, spatter and saturate, its standard deviation over seeds, the difference to the
default and the seconds per cell. A change is worth having where it gains more than the noise of the seeds.

Usage:  python scripts/study_quantile.py OUT --datasets D --archs A [any option of ttabench sweep]
        python scripts/study_quantile.py OUT --method quantile_paper …          (what the paper leaves open)
        python scripts/study_quantile.py OUT --only per_class=1 --only '' …     (some of the settings)
Writes OUT/study.csv, beside the results of the sweep in OUT/results.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pandas as pd
from bench_suite import arguments

from ttabench.store import load_frame

SETTINGS = {
    "quantile": (
        "",  # the default
        "views=false",
        "per_class=0,information=0",
        "per_class=0",
        "information=0",
        "information=0.3",
        "per_class=2",
        "start=identity",
        "proximity=0",
        "regulariser=0",
        "regulariser=10",
        "standardise=false",
        "quantiles_per_class=20",
        "lr=0.001",
        "lr=0.01",
        "warmup=0",
        "epochs=5",
        "epochs=20",
        "minibatch=25",
        "minibatch=128",
        "size=medium",
        "bank=epoch",
        "bank=none",
    ),
    # What the paper leaves open, and its own mini-batches.
    "quantile_paper": (
        "",
        "regulariser=0",
        "regulariser=1",
        "regulariser=100",
        "lr=0.001",
        "lr=0.01",
        "epochs=20",
        "minibatch=512",
    ),
}


def label(method: str, settings: str) -> str:
    return f"{method}[{settings}]" if settings else method


def sweep(out: Path, methods: list[str], options: list[str]) -> None:
    """Run what is missing, beside earlier settings. If it fails, the script ends with its exit code."""
    command = (sys.executable, "-c", "from ttabench.cli import main; main()", "sweep", "--out", str(out))
    grid = ("--methods", ",".join(methods), "--corruptions", "extra", "--extend")
    if code := subprocess.run([*command, *grid, *options], check=False).returncode:
        sys.exit(code)


def table(cells: pd.DataFrame, default: str) -> pd.DataFrame:
    """One row per setting; numbers in points of accuracy, `seconds` per cell."""
    cells = cells[cells["status"] == "ok"]
    by_seed = cells.groupby(["arch", "method", "seed"], sort=False)["accuracy"].mean().unstack("seed")
    seconds = cells.groupby(["arch", "method"], sort=False)["seconds"].mean()
    blocks = []
    for arch, block in by_seed.groupby(level="arch", sort=False):
        rows = block.droplevel("arch")
        gain = rows - rows.loc[default]
        blocks.append(
            pd.DataFrame(
                {
                    "arch": arch,
                    "seeds": rows.notna().sum(axis=1),
                    "mean": rows.mean(axis=1).round(2),
                    "std_over_seeds": rows.std(axis=1).round(2),
                    "against_default": gain.mean(axis=1).round(2),
                    "std_of_difference": gain.std(axis=1).round(2),
                    "seconds": seconds.loc[arch].round(1),
                }
            )
        )
    return pd.concat(blocks).rename_axis("method").reset_index()


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--method", choices=SETTINGS, default="quantile")
    parser.add_argument("--only", action="append", help="only these settings; repeatable, '' = the default")
    args, options = parser.parse_known_args()
    args.out.mkdir(parents=True, exist_ok=True)
    settings = dict.fromkeys(("", *(args.only or SETTINGS[args.method])))
    sweep(args.out / "results", [label(args.method, some) for some in settings], options)
    rows = table(load_frame(args.out / "results"), args.method)
    rows.to_csv(args.out / "study.csv", index=False)
    print(rows.to_string(index=False))
    tuned = rows[rows["method"].str.startswith("quantile")]
    best = tuned.loc[tuned["mean"].idxmax()]
    print(f"best={best['method']} mean={best['mean']} against_default={best['against_default']}")


if __name__ == "__main__":
    main()
