"""A student learns from a moving average of itself, in the form that public repositories have."""

from copy import deepcopy

import torch
from torch import nn


class Teacher(nn.Module):
    def __init__(self, model, lr, mt=0.99):
        super().__init__()
        self.model = model
        self.mt = mt
        self.model_ema = deepcopy(model)
        for parameter in self.model_ema.parameters():
            parameter.detach_()
        self.optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)

    @torch.enable_grad()
    def forward(self, x):
        outputs = self.model(x)
        with torch.no_grad():
            target = self.model_ema(x)
        loss = -(target.softmax(1) * outputs.log_softmax(1)).sum(1).mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        with torch.no_grad():
            for slow, fast in zip(self.model_ema.parameters(), self.model.parameters(), strict=True):
                slow.mul_(self.mt).add_(fast, alpha=1 - self.mt)
        return target
