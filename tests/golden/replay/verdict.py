"""Compares a replay with its trace."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor, nn

from ttabench.errors import Alarm

from .registry import REPLAYS, Replayed, Unsupported
from .trace import Trace

# The only traces that may be reported unsupported.
OPTIONAL = ("cotta-bn_cnn-E", "cotta_transform", "sottarepo_")


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """float64, float32  largest absolute logit difference in each precision (NaN: not run).
    norms             largest difference of a parameter's norm, in float64, after any batch.
    bound             what rounding alone may do to the float32 run; no verdict.
    decisions         recorded decisions (filters, resets) that came out otherwise in float64.
    status            "ok", "FAIL" or "unsupported"; `reason` for the latter two, or of a float32 run
                      that stopped.
    """

    trace: str
    float64: float = math.nan
    float32: float = math.nan
    norms: float = math.nan
    bound: float = math.nan
    decisions: tuple[str, ...] = ()
    status: str
    reason: str = ""

    def __str__(self) -> str:
        reason = f" ({self.reason})" if self.reason else ""
        return (
            f"{self.trace:<28} f64 {self.float64:8.1e}  f32 {self.float32:8.1e}  norms {self.norms:8.1e}  "
            f"f32 bound {self.bound:8.1e}  {self.status}{reason}"
        )


def judge(trace: Trace, float32: bool = True) -> Verdict:
    """Replay `trace` in float64, which decides, and in float32, if wanted.

    Whatever goes wrong with one trace is its failure, and does not keep the others from being replayed.
    """
    try:
        return _judge(trace, float32)
    except Unsupported as why:
        status = "unsupported" if trace.name.startswith(OPTIONAL) else "FAIL"
        return Verdict(trace=trace.name, status=status, reason=str(why))
    except Exception as problem:
        return Verdict(trace=trace.name, status="FAIL", reason=in_short(problem))


def in_short(problem: Exception) -> str:
    return ": ".join([type(problem).__name__, *str(problem).splitlines()[:1]])


def _judge(trace: Trace, float32: bool) -> Verdict:
    entry = REPLAYS.get(trace.method)
    if entry is None:
        raise Unsupported(f"no replay for a method called '{trace.method}'")
    stopped = ""
    with warnings.catch_warnings(action="ignore", category=Alarm):  # traces with settings we warn about
        runs = {dtype: entry.replay(trace, dtype) for dtype in {torch.float64, entry.dtype}}
        if float32 and torch.float32 not in runs:
            try:  # rounding may part from the recorded draws, which decides nothing
                runs[torch.float32] = entry.replay(trace, torch.float32)
            except Exception as problem:
                stopped = f"float32 stopped: {in_short(problem)}"
    differences = {dtype: logit_difference(trace, run, dtype) for dtype, run in runs.items()}
    deciding = differences[entry.dtype]
    close = deciding <= entry.tolerance  # and not NaN
    decisions = changed_decisions(trace, runs[torch.float64])
    good = close and not set(decisions) & set(runs[torch.float64].required)
    reason = f"logits differ by {deciding:.1e}, " + ("within" if close else "more than")
    reason += f" {entry.tolerance:.0e}"
    if decisions:
        reason += f"; {', '.join(decisions)} {'differ' if close else 'too'}"
    return Verdict(
        trace=trace.name,
        float64=differences[torch.float64],
        float32=differences.get(torch.float32, math.nan),
        norms=norm_difference(trace, runs[torch.float64]),
        bound=float32_bound(trace),
        decisions=decisions,
        status="ok" if good else "FAIL",
        reason=stopped if good else reason,
    )


class _Departed(Exception):
    """Raised by a replay at the first batch whose logits are not the recorded ones."""


def departs(trace: Trace) -> bool:
    """Whether the replay in float64 leaves the recorded logits; it ends with the first batch that does."""
    entry, recorded, add = REPLAYS[trace.method], trace.recorded("logits", torch.float64), Replayed.add
    assert entry.dtype == torch.float64
    seen = 0

    def watched(run: Replayed, logits: Tensor, model: nn.Module, **decisions: float) -> None:
        nonlocal seen
        expected = recorded[seen : seen + len(logits)]
        assert logits.shape == expected.shape
        seen += len(logits)
        if (logits.detach() - expected).abs().max() > entry.tolerance:
            raise _Departed
        add(run, logits, model, **decisions)

    with warnings.catch_warnings(), patch.object(Replayed, "add", watched):
        warnings.simplefilter("ignore", Alarm)  # settings we warn about
        try:
            run = entry.replay(trace, torch.float64)
        except _Departed:
            return True
    assert run.expected is None  # otherwise the recorded logits are not what it is compared with
    return False


def logit_difference(trace: Trace, run: Replayed, dtype: torch.dtype) -> float:
    """Largest absolute difference; NaN where the run's is not finite or has another shape."""
    ours = torch.cat([logits.double() for logits in run.logits])
    theirs = trace.recorded("logits", dtype) if run.expected is None else run.expected.double()
    return (ours - theirs).abs().max().item() if ours.shape == theirs.shape else math.nan


def norm_difference(trace: Trace, run: Replayed) -> float:
    """Largest difference of a parameter's L2 norm, after every batch where recorded, else at the end."""
    if "param_names" not in trace or not run.norms:
        return math.nan
    names = [str(name) for name in trace["param_names"]]
    ours = np.array([[row[name] for name in names] for row in run.norms])
    worst = np.abs(ours[-1] - trace.recorded("param_l2", torch.float64).numpy()).max()
    if "f64_param_l2_per_batch" in trace:
        worst = max(worst, np.abs(ours - trace["f64_param_l2_per_batch"]).max())
    return float(worst)


def changed_decisions(trace: Trace, run: Replayed) -> tuple[str, ...]:
    """Names of recorded decisions that came out otherwise; those without a float64 twin are float32's.

    Where nothing was ever decided, the trace has no field.
    """
    changed = []
    for name, ours in run.decisions.items():
        result = np.asarray(ours, np.float64)
        there = name in trace or f"f64_{name}" in trace
        recorded = trace.recorded(name, torch.float64).numpy() if there else np.empty(0)
        if result.shape != recorded.shape or not np.allclose(
            result, recorded, rtol=0, atol=1e-6, equal_nan=True
        ):
            changed.append(name)
    return tuple(changed)


def float32_bound(trace: Trace) -> float:
    """max(1e-4, 4 × the largest movement of the official code under a perturbation of rounding size)."""
    if "probe_maxdiff_per_batch" not in trace:
        return 1e-4
    return max(1e-4, 4 * float(trace["probe_maxdiff_per_batch"].max()))
