"""The three of this package as methods of ttabench."""

from dataclasses import dataclass

import torch

from ttabench.method import Needs, NonNegative
from ttabench.method.foreign import Foreign

from . import norm, teacher, tent


@dataclass(frozen=True, kw_only=True)
class Rate:
    lr: NonNegative = 1e-3


class OfficialTent(Foreign[Rate]):
    name = "official_tent"
    official = "written for the tests"
    needs = Needs(gradient=True, norm_layers=("batch",))
    batch_size = 200
    Config = Rate

    def build(self, model, source):
        model = tent.configure_model(model)
        parameters, _ = tent.collect_params(model)
        return tent.Tent(model, torch.optim.Adam(parameters, lr=self.config.lr))


class OfficialNorm(Foreign):
    name = "official_norm"
    official = "written for the tests"
    needs = Needs(norm_layers=("batch",))

    def build(self, model, source):
        return norm.Norm(model)


class OfficialTeacher(Foreign[Rate]):
    name = "official_teacher"
    official = "written for the tests"
    Config = Rate

    def build(self, model, source):
        return teacher.Teacher(model, self.config.lr)

    def network(self):
        return self.code.model_ema
