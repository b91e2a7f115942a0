"""Try a method on the tiny nets, check by check."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ttabench.conformance.case import Case
from ttabench.conformance.checks import CHECKS, works
from ttabench.conformance.nets import CLASSES, nets
from ttabench.errors import UserError, exit_is_an_error
from ttabench.measure.torch_defaults import own_settings
from ttabench.method import Method
from ttabench.method.settings import make_config, usual_settings
from ttabench.nn import norm_needs
from ttabench.registry import config_fault
from ttabench.run.failed_at import reason_and_place
from ttabench.run.other_generators import kept_generators
from ttabench.run.replaced_torch import parts_kept
from ttabench.system.cores import torch_threads


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check. `detail` names the problem and its net, or the nets that passed."""

    name: str
    ok: bool
    detail: str


NORMS = norm_needs("all")
SOUND = "declarations are sound"
FROZEN = (
    "Every parameter of self.model is frozen: setup() has to switch on what is learned, with norm_affine() "
    "or parameter.requires_grad_(True); and adapt() needs @torch.enable_grad()."
)


def conform(method: type[Method[Any]], settings: Mapping[str, str] | None = None) -> list[Check]:
    """Try a method on tiny nets with batch, group and layer norm; nets that its needs exclude are skipped.

    `settings` are texts, as in ``tent[norms=all]``. Raises UserError for one the method does not have.
    The global random generators, the threads, and the functions and layers of torch are left as they were.
    """
    if fault := config_fault(method):
        return [Check(SOUND, False, fault)]
    try:
        with exit_is_an_error():
            cases, tried = _cases(method, settings or {})
    except UserError:
        raise
    except Exception as raised:  # of what the method declares by functions
        return [Check(SOUND, False, told(raised))]
    checks = [Check("applies to at least one net", bool(cases), tried)]
    # One thread: the nets are so small that several would only wait for each other.
    with torch.random.fork_rng(), kept_generators(), parts_kept(), torch_threads(1):
        if cases:
            checks.append(Check("is prepared and adapts to a batch", *_judge(works, cases)))
        if checks[-1].ok:  # otherwise all other checks would fail in the same way
            checks += [Check(name, *_judge(check, cases)) for name, check in CHECKS.items()]
    return checks


def _cases(method: type[Method[Any]], settings: Mapping[str, str]) -> tuple[list[Case], str]:
    """The method on the nets that it can run on; their names, and why it cannot run on the others."""
    cases: list[Case] = []
    skipped = []
    for name, classifier in nets().items():
        arch = classifier.architecture()
        config = make_config(method, settings, usual_settings(method, "conformance", CLASSES, arch))
        if reason := method.needs_of(config).unmet(arch):
            skipped.append(f"{name} n/a: {reason}")
        else:
            cases.append(Case(method, config, name, classifier, first=not cases))
    strange = [kind for kind in method.needs_of(config).norm_layers if kind not in NORMS]
    if strange and not cases:
        return [], f"norm_layers of its Needs names {strange[0]!r}; expected some of {', '.join(NORMS)}"
    return cases, "; ".join([", ".join(case.name for case in cases) or "no net", *skipped])


def _judge(check: Callable[[Case], str], cases: Sequence[Case]) -> tuple[bool, str]:
    for case in cases:
        try:
            with exit_is_an_error(), own_settings():
                problem = check(case)
        except Exception as raised:  # an exception in a method is a result of the check
            problem = told(raised)
            if "does not require grad" in str(raised):
                problem += f". {FROZEN}"
        if problem:
            return False, f"{case.name}: {problem}"
    return True, ", ".join(case.name for case in cases)


def told(raised: Exception) -> str:
    """An exception of a method's code, with file and line, as of a failed cell."""
    trace = "".join(traceback.format_exception(raised))
    return f"raised {reason_and_place(f'{type(raised).__name__}: {raised}', {'traceback': trace})}"
