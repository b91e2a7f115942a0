"""Compares a replay with its trace."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import torch

from .registry import REPLAYS, Entry, Replayed, Unsupported
from .trace import Trace

# The only traces that may be reported unsupported.
OPTIONAL = ("cotta-bn_cnn-E", "cotta_transform", "sottarepo_")


@dataclass(frozen=True)
class Verdict:
    """float64, float32  largest absolute logit difference in each precision (NaN: not run).
    norms             largest difference of a parameter's norm, in float64, after any batch.
    bound             what rounding alone may do to the float32 run; no verdict.
    status            "ok", "FAIL" or "unsupported"; `reason` for the latter two.
    """

    trace: str
    float64: float
    float32: float
    norms: float
    bound: float
    status: str
    reason: str = ""

    def __str__(self) -> str:
        reason = f" ({self.reason})" if self.reason else ""
        return (
            f"{self.trace:<28} f64 {self.float64:8.1e}  f32 {self.float32:8.1e}  norms {self.norms:8.1e}  "
            f"f32 bound {self.bound:8.1e}  {self.status}{reason}"
        )


def judge(trace: Trace) -> Verdict:
    """Replay `trace` in float64 and float32; the verdict is that of float64."""
    bound = float32_bound(trace)
    entry = REPLAYS.get(trace.method)
    try:
        if entry is None:
            raise Unsupported(f"no replay for a method called '{trace.method}'")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # traces with settings we warn about
            runs = {dtype: entry.replay(trace, dtype) for dtype in (torch.float64, torch.float32)}
    except Unsupported as why:
        allowed = trace.name.startswith(OPTIONAL)
        return Verdict(
            trace.name, *(float("nan"),) * 3, bound, "unsupported" if allowed else "FAIL", str(why)
        )
    wide, narrow = (logit_difference(trace, runs[dtype], dtype) for dtype in runs)
    norms = norm_difference(trace, runs[torch.float64])
    deciding = wide if entry.dtype == torch.float64 else narrow
    reason = _failure(entry, deciding, norms)
    return Verdict(trace.name, wide, narrow, norms, bound, "FAIL" if reason else "ok", reason)


def _failure(entry: Entry, difference: float, norms: float) -> str:
    if not difference <= entry.tolerance:
        return f"logits differ by {difference:.1e}, more than {entry.tolerance:.0e}"
    return ""


def logit_difference(trace: Trace, run: Replayed, dtype: torch.dtype) -> float:
    """Largest absolute difference; NaN where the run's is not finite or has another shape."""
    ours = torch.cat([logits.double() for logits in run.logits])
    theirs = trace.recorded("logits", dtype) if run.expected is None else run.expected.double()
    return (ours - theirs).abs().max().item() if ours.shape == theirs.shape else float("nan")


def norm_difference(trace: Trace, run: Replayed) -> float:
    """Largest difference of a parameter's L2 norm, after every batch where recorded, else at the end."""
    if "param_names" not in trace or not run.norms:
        return float("nan")
    names = [str(name) for name in trace["param_names"]]
    ours = np.array([[row[name] for name in names] for row in run.norms])
    worst = np.abs(ours[-1] - trace.recorded("param_l2", torch.float64).numpy()).max()
    if "f64_param_l2_per_batch" in trace:
        worst = max(worst, np.abs(ours - trace["f64_param_l2_per_batch"]).max())
    return float(worst)


def float32_bound(trace: Trace) -> float:
    """max(1e-4, 4 × the largest movement of the official code under a perturbation of rounding size)."""
    if "probe_maxdiff_per_batch" not in trace:
        return 1e-4
    return max(1e-4, 4 * float(trace["probe_maxdiff_per_batch"].max()))
