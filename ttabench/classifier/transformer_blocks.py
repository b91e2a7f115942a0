"""The blocks of a vision transformer, found by the structure of the network."""

from __future__ import annotations

from torch import nn

from ttabench.classifier.norm_layers import norm_kind

LISTS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)


def transformer_blocks(model: nn.Module) -> list[nn.Module]:
    """The longest list of modules of one type that contain a layer norm; empty if there is no such list."""
    lists = [list(module.children()) for module in model.modules() if isinstance(module, LISTS)]
    lists = [
        blocks
        for blocks in lists
        if len({type(block) for block in blocks}) == 1
        and any(norm_kind(inner) == "layer" for inner in blocks[0].modules() if inner is not blocks[0])
    ]
    return max(lists, key=len, default=[])
