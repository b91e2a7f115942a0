"""Whether the tensors of a network have values, can be learned from, and are all that it keeps."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from ttabench.errors import UserError


def check_tensors(model: nn.Module, name: str) -> None:
    """Raise UserError for a network that has no values, or values that nothing can be learned for."""
    if any(is_lazy(tensor) for tensor in (*model.parameters(), *model.buffers())):
        raise UserError(f"{name} has lazy layers without sizes; call it with images once.")
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.is_meta:
            raise UserError(
                f"{name} is on the device meta, where tensors have no values; make it with its weights, for "
                "example with model.to_empty(device=…) and model.load_state_dict(…)."
            )
        if tensor.is_inference():
            raise UserError(
                f"{name} was made inside torch.inference_mode(), and no method can learn with such tensors; "
                "make the network, or load its weights into a new one, outside of it."
            )


def short_parameters(model: nn.Module, name: str) -> str:
    """What happens to small updates of parameters that learn and have a short type; "" if none has."""
    learned = (p.dtype for p in model.parameters() if p.requires_grad)
    short = next((dtype for dtype in learned if dtype in (torch.float16, torch.bfloat16)), None)
    if short is None:
        return ""
    return (
        f"adapted parameters of {name} are {short}, which rounds small updates away; convert the network "
        "with model.float(), and call the method inside torch.autocast for a shorter type"
    )


def check_state(model: nn.Module, name: str) -> None:
    """Raise UserError where the state dict of a network holds what is no tensor: weights files have none."""
    for key, value in model.state_dict().items():
        if not isinstance(value, Tensor):
            raise UserError(
                f"the state dict of {name} holds a {type(value).__name__} in {key}; expected tensors alone: "
                "leave get_extra_state out, or keep in buffers what it returns."
            )
