"""Steps of the optimiser, and moving averages."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.optim.optimizer import ParamsT

from ttabench.errors import UserError


def make_optimizer(
    kind: str, parameters: ParamsT, lr: float, momentum: float = 0.9, weight_decay: float = 0.0
) -> torch.optim.Optimizer:
    """ "adam" and "adamw" (β₁ = momentum, β₂ = 0.999), "sgd" (heavy-ball momentum) or "nesterov".

    `parameters` are parameters or groups of them, as in torch. With momentum, all parameters of a group need
    their first gradient in the same step.
    Weight decay is an L2 term of the gradient; for "adamw" it is decoupled. The step is fused: norm layers
    have many small parameters, and one operation per parameter would be slow. Raises UserError for another
    `kind`.
    """
    if kind in ("adam", "adamw"):
        adam = torch.optim.Adam if kind == "adam" else torch.optim.AdamW
        return adam(parameters, lr, betas=(momentum, 0.999), weight_decay=weight_decay, fused=True)
    if kind in ("sgd", "nesterov"):
        nesterov = kind == "nesterov"
        return torch.optim.SGD(parameters, lr, momentum, 0, weight_decay, nesterov, fused=True)
    raise UserError(f"optimizer is '{kind}'; expected adam, adamw, sgd or nesterov.")


def minimise(loss: Tensor, optimizer: torch.optim.Optimizer) -> None:
    """One step of the optimiser on the gradient of `loss`."""
    optimizer.zero_grad()
    torch.autograd.backward(loss)
    optimizer.step()


def moving_average(average: Tensor | None, new: Tensor, momentum: float = 0.9) -> Tensor:
    """momentum · average + (1 − momentum) · new, detached; `new` itself if `average` is None."""
    new = new.detach()
    return new if average is None else momentum * average + (1 - momentum) * new


@torch.no_grad()
def average_parameters(teacher: nn.Module, student: nn.Module, momentum: float) -> None:
    """teacher ← momentum · teacher + (1 − momentum) · student, for all parameters and no buffers."""
    # lerp is exact where both are equal, so frozen parameters do not drift
    torch._foreach_lerp_(list(teacher.parameters()), list(student.parameters()), 1 - momentum)


def snapshot(parameters: Mapping[str, nn.Parameter]) -> dict[str, Tensor]:
    """Copies of the current values, by name."""
    return {name: p.detach().clone() for name, p in parameters.items()}


@torch.no_grad()
def pull(parameters: Mapping[str, nn.Parameter], anchor: Mapping[str, Tensor], share: float = 1.0) -> None:
    """θ ← (1 − share) θ + share θ₀, with θ₀ a :func:`snapshot`; a share of 1 restores θ₀ bitwise."""
    for name, p in parameters.items():
        if share == 1:
            p.copy_(anchor[name])
        else:
            p.lerp_(anchor[name], share)
