"""Statistics of the test batch, written for the tests in the form that public repositories have."""

from torch import nn


class Norm(nn.Module):
    def __init__(self, model, momentum=0.1):
        super().__init__()
        self.model = configure(model, momentum)

    def forward(self, x):
        return self.model(x)


def configure(model, momentum):
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.train()
            module.momentum = momentum
    return model
