"""Entropy minimisation, written for the tests in the form that public repositories have."""

from copy import deepcopy

import torch
from torch import nn


class Tent(nn.Module):
    def __init__(self, model, optimizer, steps=1, episodic=False):
        super().__init__()
        self.model = model
        self.optimizer = optimizer
        self.steps = steps
        self.episodic = episodic
        self.model_state = deepcopy(model.state_dict())
        self.optimizer_state = deepcopy(optimizer.state_dict())

    def forward(self, x):
        if self.episodic:
            self.reset()
        for _ in range(self.steps):
            outputs = step(x, self.model, self.optimizer)
        return outputs

    def reset(self):
        self.model.load_state_dict(self.model_state, strict=True)
        self.optimizer.load_state_dict(self.optimizer_state)


def softmax_entropy(x):
    return -(x.softmax(1) * x.log_softmax(1)).sum(1)


@torch.enable_grad()
def step(x, model, optimizer):
    outputs = model(x)
    loss = softmax_entropy(outputs).mean(0)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return outputs


def collect_params(model):
    params, names = [], []
    for module_name, module in model.named_modules():
        if isinstance(module, nn.BatchNorm2d):
            for name, parameter in module.named_parameters():
                if name in ("weight", "bias"):
                    params.append(parameter)
                    names.append(f"{module_name}.{name}")
    return params, names


def configure_model(model):
    model.train()
    model.requires_grad_(False)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.requires_grad_(True)
            module.track_running_stats = False
            module.running_mean = None
            module.running_var = None
    return model
