"""Every check of the battery can fail: a method with one fault fails that check, and no other."""

from __future__ import annotations

import copy
import random
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from ttabench.classifier import Classifier
from ttabench.classifier.norm_layers import norm_kind
from ttabench.conformance import Check, conform, run
from ttabench.conformance.case import Case
from ttabench.conformance.checks import CHECKS, bounded_memory, certainty
from ttabench.conformance.checks import reset as conformance_reset
from ttabench.conformance.nets import CLASSES, DropPath, _made, images, nets, settle
from ttabench.conformance.run import NORMS
from ttabench.conformance.state import difference, snapshot
from ttabench.errors import UserError
from ttabench.method import Batches, Method, Needs, NoConfig, Range, SourceData
from ttabench.nn import entropy, minimise, norm_affine, use_batch_statistics
from ttabench.provenance.forbidden_imports import forbidden_imports


class Sound(Method[NoConfig]):
    """Minimises entropy and keeps an average of its logits, seeded noise on top; has no fault."""

    name = "sound"
    needs = Needs(gradient=True)

    def setup(self, source: SourceData | None) -> None:
        self.parameters = norm_affine(self.model, "all")
        self.optimizer = torch.optim.Adam(self.parameters.values(), 1e-3)
        self.average: Tensor | None = None

    @torch.enable_grad()
    def adapt(self, x: Tensor) -> Tensor:
        logits: Tensor = self.model(x + 0.01 * torch.rand_like(x))
        minimise(entropy(logits).mean(), self.optimizer)
        new = logits.detach().mean(0)
        self.average = new if self.average is None else 0.9 * self.average + 0.1 * new
        return logits.detach() - 0.1 * self.average


class ForgetsToResetItsAverage(Sound):
    def reset(self) -> None:
        average = self.average
        super().reset()
        self.average = average


class ForgetsToResetMomentum(Sound):
    def setup(self, source: SourceData | None) -> None:
        super().setup(source)
        self.start = copy.deepcopy(self.model.state_dict())

    def reset(self) -> None:
        self.model.load_state_dict(self.start)
        self.average = None


class SortsByCertainty(Sound):
    def adapt(self, x: Tensor) -> Tensor:
        y = super().adapt(x)
        return y[y.amax(1).argsort()]


class TurnsTheBatchAround(Sound):
    def adapt(self, x: Tensor) -> Tensor:
        return super().adapt(x).flip(0)


class OverwritesReturnedLogits(Sound):
    def setup(self, source: SourceData | None) -> None:
        super().setup(source)
        self.board = torch.zeros(64, CLASSES)

    def adapt(self, x: Tensor) -> Tensor:
        board = self.board.to(x.dtype)
        board[: len(x)] = super().adapt(x)
        self.board = board
        return board[: len(x)]


class LooksAhead(Sound):
    """The first instance that sees a stream tells the later ones what comes."""

    future: ClassVar[dict[bytes, float]] = {}
    last: ClassVar[bytes] = b""

    def adapt(self, x: Tensor) -> Tensor:
        key = x.float().numpy().tobytes()
        LooksAhead.future[LooksAhead.last] = float(x.mean())
        LooksAhead.last = key
        return super().adapt(x) + LooksAhead.future.get(key, 0.0)


class KeepsAllBatches(Sound):
    def setup(self, source: SourceData | None) -> None:
        super().setup(source)
        self.seen: list[Tensor] = []

    def adapt(self, x: Tensor) -> Tensor:
        self.seen.append(x)
        return super().adapt(x)


class KeepsOneNumberPerBatch(Sound):
    def setup(self, source: SourceData | None) -> None:
        super().setup(source)
        self.losses: list[float] = []

    def adapt(self, x: Tensor) -> Tensor:
        logits = super().adapt(x)
        self.losses.append(float(logits.sum()))
        return logits


class KeepsEveryFifthBatch(Sound):
    def setup(self, source: SourceData | None) -> None:
        super().setup(source)
        self.number, self.seen = 0, list[Tensor]()

    def adapt(self, x: Tensor) -> Tensor:
        self.number += 1
        if self.number % 5 == 0:
            self.seen.append(x)
        return super().adapt(x)


class KeepsWhatComesLate(Sound):
    after: ClassVar[int] = 200

    def setup(self, source: SourceData | None) -> None:
        super().setup(source)
        self.number, self.seen = 0, list[Tensor]()

    def adapt(self, x: Tensor) -> Tensor:
        self.number += len(x)
        if self.number > self.after:
            self.seen.append(x)
        return super().adapt(x)


class KeepsWhatComesVeryLate(KeepsWhatComesLate):
    after = 1200


class KeepsItsGraph(Sound):
    """An average of losses that are not detached: of constant size, but with the graphs of all batches."""

    def setup(self, source: SourceData | None) -> None:
        super().setup(source)
        self.running: Tensor | None = None

    @torch.enable_grad()
    def adapt(self, x: Tensor) -> Tensor:
        self._keep(entropy(self.model(x)).mean())
        return super().adapt(x)

    def _keep(self, loss: Tensor) -> None:
        self.running = loss if self.running is None else 0.9 * self.running + 0.1 * loss


class KeepsItsGraphInItsClass(KeepsItsGraph):
    total: ClassVar[Tensor | float] = 0.0

    def _keep(self, loss: Tensor) -> None:
        KeepsItsGraphInItsClass.total = self.total + loss


class KeepsItsGraphInAGradient(KeepsItsGraph):
    def setup(self, source: SourceData | None) -> None:
        super().setup(source)
        self.scale = torch.ones((), requires_grad=True)

    def _keep(self, loss: Tensor) -> None:
        before = self.scale.grad
        loss = loss.to(self.scale.dtype)
        self.scale.grad = loss if before is None else before + loss


class KeepsItsLatestGraph(KeepsItsGraph):
    """Bounded: the graph of one batch."""

    def _keep(self, loss: Tensor) -> None:
        self.running = loss


class KeepsBatchesInItsClass(Sound):
    seen: ClassVar[list[Tensor]] = []

    def adapt(self, x: Tensor) -> Tensor:
        self.seen.append(x)
        return super().adapt(x)


class KeepsBatchesInACache(Sound):
    @cache  # noqa: B019 — that is the fault
    def adapt(self, x: Tensor) -> Tensor:
        return super().adapt(x)


class CountsEveryBatchByItsName(Sound):
    def adapt(self, x: Tensor) -> Tensor:
        self.counts[f"{float(x.mean()):.9f}"] += 1
        return super().adapt(x)


class WorksOnTheCallersModel(Sound):
    def __init__(self, classifier: Classifier, config: NoConfig | None = None) -> None:
        super().__init__(classifier, config)
        self.theirs = classifier

    def setup(self, source: SourceData | None) -> None:
        super().setup(source)
        with torch.no_grad():
            self.theirs.linear.bias.add_(1e-3)
        del self.theirs


class WritesIntoTheImages(Sound):
    def adapt(self, x: Tensor) -> Tensor:
        logits = super().adapt(x)
        x.mul_(0.5)
        return logits


class LeavesDropoutOn(Sound):
    def setup(self, source: SourceData | None) -> None:
        super().setup(source)
        for module in self.model.modules():
            if "Drop" in type(module).__name__:
                module.train()


class TrainsAllOfABatchNormNet(Sound):
    needs = Needs(gradient=True, norm_layers=("batch",))

    def setup(self, source: SourceData | None) -> None:
        super().setup(source)
        use_batch_statistics(self.model)  # so that nothing moves in train mode
        self.model.train()


class DrawsFromNumPy(Sound):
    def adapt(self, x: Tensor) -> Tensor:
        return super().adapt(x) + np.random.rand()  # noqa: NPY002 — that is the fault


class DrawsFromPython(Sound):
    def adapt(self, x: Tensor) -> Tensor:
        return super().adapt(x) + random.random()


class SeedsTorch(Sound):
    def adapt(self, x: Tensor) -> Tensor:
        torch.manual_seed(0)
        return super().adapt(x)


class SeedsTorchOffline(Sound):
    def fit(self, batches: Batches, epochs: int = 0) -> None:
        torch.manual_seed(0)
        super().fit(batches, epochs)


class KnowsABatchByItsId(Sound):
    """And has the logits of the latest one at hand."""

    def setup(self, source: SourceData | None) -> None:
        super().setup(source)
        self.known, self.logits = (0, torch.Size()), torch.empty(0)

    def adapt(self, x: Tensor) -> Tensor:
        if self.known != (id(x), x.shape):
            self.known, self.logits = (id(x), x.shape), super().adapt(x)
        return self.logits.clone()


class AlarmsWithANumber(Sound):
    def alarms(self) -> Any:
        return np.float64(0.5)


class AlarmsWithNaN(Sound):
    def alarms(self) -> dict[str, Any]:
        return {"loss": float("nan")}


class CannotBePickled(Sound):
    def setup(self, source: SourceData | None) -> None:
        super().setup(source)
        self.scale = lambda x: x


class LosesStateInPickles(Sound):
    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"average": None}


class WantsLabels(Sound):
    def fit(self, batches: Batches, epochs: int = 0) -> None:
        if hasattr(batches, "labels"):
            raise AssertionError
        super().fit(batches, epochs)


class WantsUndeclaredSource(Sound):
    def setup(self, source: SourceData | None) -> None:
        super().setup(source)
        try:
            assert source is not None
            source.features(self.model)
        except PermissionError:
            pass


class WantsUndeclaredStatistics(Sound):
    """It declares quantiles, and reads entropies besides."""

    needs = Needs(gradient=True, source_data="statistics", source_statistics=("quantiles",))

    def setup(self, source: SourceData | None) -> None:
        super().setup(source)
        assert source is not None
        source.quantiles(self.model, (0.25, 0.75))
        source.entropies(self.model)


class NamesNoStatistics(Sound):
    needs = Needs(gradient=True, source_data="statistics", source_statistics=("medians",))


class NamesStatisticsAsText(Sound):
    needs = Needs(gradient=True, source_data="statistics", source_statistics="quantiles")  # type: ignore[arg-type]


class DeclaresStatisticsWithoutSource(Sound):
    needs = Needs(gradient=True, source_statistics=("quantiles",))


class KeepsTheSource(Sound):
    def setup(self, source: SourceData | None) -> None:
        super().setup(source)
        self.source = source


class NeedsTwoImages(Sound):
    def adapt(self, x: Tensor) -> Tensor:
        return super().adapt(x) / (len(x) - 1)


class ExpectsFullBatches(Sound):
    def setup(self, source: SourceData | None) -> None:
        super().setup(source)
        self.size = 0

    def adapt(self, x: Tensor) -> Tensor:
        self.size = max(self.size, len(x))
        logits = super().adapt(x)
        return torch.cat([logits, logits[: self.size - len(x)]])


class ReturnsAttachedLogits(Sound):
    def adapt(self, x: Tensor) -> Tensor:
        super().adapt(x)
        return self.model(x)


class ReturnsNaN(Sound):
    def adapt(self, x: Tensor) -> Tensor:
        return super().adapt(x) * float("nan")


class ReturnsProbabilitiesOfOneClass(Sound):
    def adapt(self, x: Tensor) -> Tensor:
        return super().adapt(x)[:, :1]


class WorksInFloat32Only(Sound):
    def adapt(self, x: Tensor) -> Tensor:
        return super().adapt(x).float()


class NarrowsItsWeights(Sound):
    def adapt(self, x: Tensor) -> Tensor:
        logits = super().adapt(x)
        if logits.dtype == torch.bfloat16:
            self.model.linear.bias.data = self.model.linear.bias.data.bfloat16()
        return logits


class LearnsWhilePredicting(Sound):
    def predict(self, x: Tensor) -> Tensor:
        return self.adapt(x)


class PredictsAtRandom(Sound):
    def predict(self, x: Tensor) -> Tensor:
        return super().predict(x) + random.random()


class PredictsWithoutItsPrior(Method[NoConfig]):
    """Learns nothing; what it does to the logits is in adapt() alone."""

    name = "prior"

    def adapt(self, x: Tensor) -> Tensor:
        logits: Tensor = self.model(x).detach()
        return logits - logits.softmax(1).mean(0).log()


class SaysThatItPredictsWithoutItsPrior(PredictsWithoutItsPrior):
    scores_frozen = "a forward pass, without the prior"


class PredictsWithItsPrior(PredictsWithoutItsPrior):
    def predict(self, x: Tensor) -> Tensor:
        return self.adapt(x)


class HidesItsGradient(Sound):
    needs = Needs()


@dataclass
class Mutable:
    lr: float = 1e-3


@dataclass(frozen=True)
class WithList:
    lrs: list[float] = field(default_factory=lambda: [1e-3])


class HasMutableConfig(Sound):
    Config = Mutable


class HasListInConfig(Sound):
    Config = WithList


class RaisesAnError(Sound):
    def predict(self, x: Tensor) -> Tensor:
        raise ZeroDivisionError("no luck")


class ReturnsProbabilities(Sound):
    def adapt(self, x: Tensor) -> Tensor:
        return super().adapt(x).softmax(1)


class StaysInTrainMode(Sound):
    def adapt(self, x: Tensor) -> Tensor:
        logits = super().adapt(x)
        for module in self.model.modules():
            if isinstance(module, nn.Dropout | nn.modules.batchnorm._BatchNorm | nn.LayerNorm | nn.GroupNorm):
                module.training = True
        return logits


class ReadsTheDatasets(Sound):
    def setup(self, source: SourceData | None) -> None:
        import importlib

        self.known = len(importlib.import_module(".".join(("ttabench", "data", "catalog"))).NAMES)
        super().setup(source)


class LooksForAnomalies(Sound):
    """As scripts of research code do, for the whole process."""

    def setup(self, source: SourceData | None) -> None:
        super().setup(source)
        torch.autograd.set_detect_anomaly(True)


class HooksAllModules(Sound):
    def setup(self, source: SourceData | None) -> None:
        super().setup(source)
        nn.modules.module.register_module_forward_hook(lambda *_: None)


class IsCertainOfThree(Sound):
    def known_score(self, logits: Tensor) -> Tensor:
        return logits.amax(1)[:3]


class IsCertainInNumPy(Sound):
    def known_score(self, logits: Tensor) -> Any:
        return logits.amax(1).numpy()


class IsCertainOfNaN(Sound):
    def known_score(self, logits: Tensor) -> Tensor:
        return logits.amax(1) * torch.nan


class DrawsItsCertainty(Sound):
    def known_score(self, logits: Tensor) -> Tensor:
        return logits.amax(1) + torch.rand(len(logits))


class LearnsFromItsCertainty(Sound):
    def known_score(self, logits: Tensor) -> Tensor:
        self.average = logits.mean(0)
        return logits.amax(1)


class SortsTheLogitsItGets(Sound):
    def known_score(self, logits: Tensor) -> Tensor:
        return logits.copy_(logits.sort(1, descending=True).values)[:, 0]


class IsCertain(Sound):
    def known_score(self, logits: Tensor) -> Tensor:
        return logits.amax(1)


SOFTMAX = nn.functional.softmax


def as_softmax(*given: Any, **named: Any) -> Tensor:
    return SOFTMAX(*given, **named)


class ReplacesSoftmax(Sound):
    def setup(self, source: SourceData | None) -> None:
        super().setup(source)
        nn.functional.softmax = as_softmax  # type: ignore[assignment]


class ReplacesAForward(Sound):
    """Of a layer that inherits its own."""

    def adapt(self, x: Tensor) -> Tensor:
        nn.BatchNorm2d.forward = lambda layer, x: x  # type: ignore[method-assign]
        return super().adapt(x)


OF = {check.__name__: name for name, check in CHECKS.items()}
FAULTS = [
    (ForgetsToResetItsAverage, {"reset", "pickling"}),
    (ForgetsToResetMomentum, {"reset", "pickling"}),
    (OverwritesReturnedLogits, {"causality"}),
    (LooksAhead, {"causality", "determinism", "reset", "pickling", "dropout", "bounded_memory"}),
    (KeepsAllBatches, {"bounded_memory"}),
    (KeepsOneNumberPerBatch, {"bounded_memory"}),
    (KeepsEveryFifthBatch, {"bounded_memory"}),
    (KeepsWhatComesLate, {"bounded_memory"}),
    (KeepsWhatComesVeryLate, {"bounded_memory"}),
    (KeepsItsGraph, {"bounded_memory"}),
    (KeepsItsGraphInItsClass, {"bounded_memory"}),
    (KeepsItsGraphInAGradient, {"bounded_memory"}),
    (KeepsBatchesInItsClass, {"bounded_memory"}),
    (KeepsBatchesInACache, {"bounded_memory"}),
    (CountsEveryBatchByItsName, {"bounded_memory"}),
    (WorksOnTheCallersModel, {"inputs_left_alone"}),
    (WritesIntoTheImages, {"inputs_left_alone"}),
    (LeavesDropoutOn, {"dropout"}),
    (TrainsAllOfABatchNormNet, {"dropout"}),
    (DrawsFromNumPy, {"determinism", "causality", "reset", "pickling", "dropout"}),
    (DrawsFromPython, {"determinism", "causality", "reset", "pickling", "dropout"}),
    (SeedsTorch, {"seeds"}),
    (SeedsTorchOffline, {"seeds"}),
    (KnowsABatchByItsId, {"freed_images"}),
    (AlarmsWithANumber, {"declarations"}),
    (AlarmsWithNaN, {"declarations"}),
    (CannotBePickled, {"pickling"}),
    (LosesStateInPickles, {"pickling"}),
    (WantsLabels, {"no_labels"}),
    (WantsUndeclaredSource, {"no_labels"}),
    (WantsUndeclaredStatistics, {"no_labels"}),
    (NamesNoStatistics, {"declarations"}),
    (NamesStatisticsAsText, {"declarations"}),
    (DeclaresStatisticsWithoutSource, {"declarations"}),
    (KeepsTheSource, {"no_labels"}),
    (NeedsTwoImages, {"batch_of_one"}),
    (ExpectsFullBatches, {"logits", "short_last_batch", "precision"}),
    (SortsByCertainty, {"row_order"}),
    (TurnsTheBatchAround, {"row_order"}),
    (ReturnsAttachedLogits, {"logits"}),
    (ReturnsNaN, {"logits", "batch_of_one", "short_last_batch", "precision"}),
    (ReturnsProbabilitiesOfOneClass, {"logits", "batch_of_one", "short_last_batch", "precision"}),
    (WorksInFloat32Only, {"precision"}),
    (NarrowsItsWeights, {"precision"}),
    (LearnsWhilePredicting, {"offline"}),
    (PredictsAtRandom, {"offline"}),
    (PredictsWithoutItsPrior, {"offline"}),
    (HidesItsGradient, {"declarations"}),
    (HasMutableConfig, {"declarations"}),
    (HasListInConfig, {"declarations"}),
    (
        RaisesAnError,
        {"inputs_left_alone", "batch_of_one", "short_last_batch", "modes", "precision", "offline"},
    ),
    (ReturnsProbabilities, {"logits"}),
    (StaysInTrainMode, {"modes", "dropout"}),
    (ReadsTheDatasets, {"reach"}),
    (LooksForAnomalies, {"torch_settings"}),
    (HooksAllModules, {"torch_settings"}),
    (ReplacesSoftmax, {"torch_settings"}),
    (ReplacesAForward, {"torch_settings"}),
    (LearnsFromItsCertainty, {"certainty"}),
]


@pytest.fixture(scope="module", autouse=True)
def one_small_net() -> Iterator[None]:
    """Faults are looked for on one net, and those of memory alone in the whole of the long stream."""
    small = {"MLP": small_net()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "nets", lambda: small)
        patch.setattr(run, "Case", lambda *given, first: Case(*given, first=False))
        yield


def small_net() -> Classifier:
    """Cheap, with norm layer and dropout."""
    torch.manual_seed(0)
    pool, hidden, last = nn.AvgPool2d(2), nn.Linear(192, 8), nn.Linear(8, CLASSES)
    net = nn.Sequential(pool, nn.Flatten(), hidden, nn.LayerNorm(8), nn.ReLU(), nn.Dropout(0.3), last)
    return settle(Classifier(net, last="6").eval(), images(256, seed=1))


def failed(method: type[Method[Any]]) -> dict[str, str]:
    return {check.name: check.detail for check in conform(method) if not check.ok}


failed_once = cache(failed)  # where several tests look at the same fault, on the one small net


# These fail a check in the way of another one, or in that of a test below; they take most time.
AT_NIGHT = (
    KeepsEveryFifthBatch, KeepsWhatComesLate, KeepsItsGraph, KeepsItsGraphInItsClass, DrawsFromPython,
    SortsByCertainty,
)  # fmt: skip


def test_a_sound_method_passes_on_all_nets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ttabench.conformance.run.nets", nets)
    checks = conform(Sound)
    assert [check for check in checks if not check.ok] == []
    assert checks[0].detail == "BN CNN, GN CNN, LN ViT"
    assert len(checks) == 2 + len(CHECKS)


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        pytest.param(*fault, id=fault[0].__name__, marks=pytest.mark.slow if fault[0] in AT_NIGHT else ())
        for fault in FAULTS
    ],
)
def test_a_fault_is_found(
    method: type[Method[Any]], expected: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if method.needs.norm_layers:
        monkeypatch.setattr("ttabench.conformance.run.nets", nets)
    if "bounded_memory" in expected:
        monkeypatch.setattr(run, "Case", Case)
        result = failed(method)
    else:
        result = failed_once(method)
    assert set(result) == {OF[name] for name in expected}, result
    assert all(result.values())


class KeepsTheLatest(Sound):
    """Up to a thousand images, and of the last batch as many as it is sure of."""

    def setup(self, source: SourceData | None) -> None:
        super().setup(source)
        self.latest = deque[Tensor](maxlen=1000)
        self.sure = torch.empty(0)

    def adapt(self, x: Tensor) -> Tensor:
        logits = super().adapt(x)
        self.latest.extend(x.clone())
        self.sure = x[entropy(logits) < 0.5]
        return logits


def test_a_memory_that_fills_or_comes_and_goes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "Case", Case)
    assert failed(KeepsTheLatest) == {}


def test_the_graph_of_past_batches_is_named_on_every_net_and_that_of_the_latest_is_no_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run, "Case", Case)
    (detail,) = failed(KeepsItsGraph).values()
    assert detail == "MLP: running keeps the graph of past batches; detach it"
    case = Case(KeepsItsGraph, NoConfig(), "a later net", small_net(), first=False)
    assert bounded_memory(case) == "running keeps the graph of past batches; detach it"
    assert failed(KeepsItsLatestGraph) == {}


@dataclass(frozen=True)
class Rate:
    lr: float = 0.01


class DivergesOffline(Sound):
    Config = Rate
    limit: ClassVar[float] = 0.001  # the highest learning rate at which it does not

    def fit(self, batches: Batches, epochs: int = 0) -> None:
        super().fit(batches, epochs)
        self.diverged = self.config.lr > self.limit  # type: ignore[attr-defined]

    def predict(self, x: Tensor) -> Tensor:
        return super().predict(x) + (torch.nan if getattr(self, "diverged", False) else 0)


def test_untrained_nets_may_diverge_at_the_learning_rate_of_trained_ones_but_not_at_a_tenth(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert OF["offline"] not in failed(DivergesOffline)
    monkeypatch.setattr(DivergesOffline, "limit", 0.0001)
    assert "are not finite numbers" in failed(DivergesOffline)[OF["offline"]]


@pytest.mark.parametrize("method", [SaysThatItPredictsWithoutItsPrior, PredictsWithItsPrior])
def test_logits_beside_the_network_may_be_predicted_or_left_out_in_words(method: type[Method[Any]]) -> None:
    assert OF["offline"] not in failed(method)


def test_every_check_has_a_fault_that_fails_it() -> None:
    assert set().union(*(expected for _, expected in FAULTS)) == set(OF)


def test_details_say_what_where_and_by_how_much() -> None:
    forgetful, wet = (
        failed_once(ForgetsToResetItsAverage)[OF["reset"]],
        failed_once(LeavesDropoutOn)[OF["dropout"]],
    )
    assert forgetful == "MLP: reset() does not restore the state: average differs"
    assert wet.startswith("MLP: logits of batch 1 differ without dropout and stochastic depth, by up to ")
    raised = failed_once(RaisesAnError)[OF["offline"]]
    assert "ZeroDivisionError: no luck" in raised
    assert "test_battery.py, line " in raised


def test_statistics_that_are_not_declared_are_named_with_the_cure() -> None:
    (detail,) = failed_once(WantsUndeclaredStatistics).values()
    assert "entropies(), which its Needs do not declare" in detail
    assert "set Needs(source_data='statistics', source_statistics=('quantiles', 'entropies'))" in detail
    (detail,) = failed_once(NamesNoStatistics).values()
    assert "source_statistics names 'medians'; expected a tuple of names from channels, " in detail


class NamesNoNormLayer(Sound):
    needs = Needs(gradient=True, norm_layers=("batchnorm",))


def test_norm_layers_that_do_not_exist_are_named_with_the_kinds_that_do() -> None:
    (check,) = conform(NamesNoNormLayer)
    assert not check.ok
    assert "names 'batchnorm'; expected some of batch, group, layer, instance" in check.detail
    layers = nn.BatchNorm2d(2), nn.GroupNorm(1, 2), nn.LayerNorm(2), nn.InstanceNorm2d(2)
    assert tuple(map(norm_kind, layers)) == NORMS


class Plain:
    lr = 1e-3


@dataclass(frozen=True)
class Required:
    lr: float


@dataclass(frozen=True)
class OutOfRange:
    lr: Annotated[float, Range(above=0)] = 0.0


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (Plain, "its Config is <class '.*Plain'>, expected a frozen dataclass"),
        (Required, "its setting `lr` has no default, expected one for every setting"),
        (OutOfRange, r"its Config\(\) fails \(ValueError: lr is 0.0; .*\), expected defaults that are valid"),
    ],
)
def test_a_config_that_cannot_be_made_is_a_failed_check(config: type[Any], says: str) -> None:
    (check,) = conform(type("Odd", (Sound,), {"Config": config}))
    assert (check.name, check.ok) == (OF["declarations"], False)
    assert re.fullmatch(says, check.detail)


class NeedsMore(Sound):
    @classmethod
    def needs_of(cls, config: NoConfig) -> Needs:
        raise AttributeError("no such setting")


def test_a_declaration_that_raises_is_a_failed_check() -> None:
    (check,) = conform(NeedsMore)
    assert check == Check(OF["declarations"], False, check.detail)
    assert "raised AttributeError: no such setting (" in check.detail


class OnlyForSwins(Sound):
    needs = Needs(gradient=True, tags=("swin",))


def test_a_method_that_applies_nowhere_has_not_been_tried() -> None:
    (check,) = conform(OnlyForSwins)
    assert not check.ok
    assert check.detail == "no net; MLP n/a: not a swin"


def test_settings_are_those_of_the_method() -> None:
    with pytest.raises(UserError, match="unknown setting of sound"):
        conform(Sound, {"lr": "1"})


def test_the_global_generators_are_left_alone() -> None:
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()  # noqa: NPY002
    conform(OnlyForSwins)
    conform(DrawsFromNumPy)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]
    assert np.array_equal(np.random.get_state()[1], before[2])  # noqa: NPY002


def test_the_nets_are_tried_in_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    monkeypatch.setattr(run, "works", lambda case: str(seen.append(torch.get_num_threads()) or "stop"))
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        conform(Sound)
        assert (seen, torch.get_num_threads()) == ([1], 2)
    finally:
        torch.set_num_threads(before)


@pytest.fixture(params=["BN CNN", "GN CNN", "LN ViT"])
def net(request: pytest.FixtureRequest) -> Classifier:
    return nets()[request.param]


def test_the_nets_are_sure_of_half_of_their_images_and_use_all_classes(net: Classifier) -> None:
    x = images(256, seed=1)
    with torch.no_grad():
        logits = net(x)
    assert set(logits.argmax(1).tolist()) == set(range(CLASSES))
    sure = (entropy(logits) < 0.4 * np.log(CLASSES)).float().mean()
    assert 0.4 < sure < 0.65


@pytest.mark.parametrize("kind", [nn.Dropout, DropPath])
def test_every_net_has_dropout_and_stochastic_depth(net: Classifier, kind: type[nn.Module]) -> None:
    x = images(24, seed=2)
    torch.manual_seed(0)
    with torch.no_grad():
        still = net(x)
        for module in net.modules():
            if isinstance(module, kind):
                module.train()
        assert not torch.equal(net(x), still)


def test_the_nets_are_the_same_every_time_whatever_happens_to_those_before() -> None:
    hooks = ("_forward_pre_hooks", "_forward_pre_hooks_with_kwargs")  # torch counts all hooks of a process
    first = snapshot(changed := nets(), hooks)
    for net in changed.values():
        for tensor in [*net.parameters(), *net.buffers()]:
            tensor.data.fill_(7)
    assert difference(first, snapshot(nets(), hooks)) == ""
    _made.cache_clear()
    assert difference(first, snapshot(nets(), hooks)) == ""


def test_snapshots_tell_zero_from_minus_zero_and_know_nan() -> None:
    assert difference(snapshot({"a": float("nan")}), snapshot({"a": float("nan")})) == ""
    assert difference(snapshot([torch.tensor(0.0)]), snapshot([torch.tensor(-0.0)])) == "0 differs"
    assert difference(snapshot({"a": 1}), snapshot({"b": 1})) == "a is gone"
    assert difference(snapshot({}), snapshot({"b": 1})) == "b is new"
    assert difference(snapshot({"a": 1}), snapshot({"a": 1.0})) == "a differs"
    assert difference(snapshot(torch.float32), snapshot(torch.float64)) != ""
    assert difference(snapshot(random.Random(1)), snapshot(random.Random(2))) != ""
    ring: list[Any] = [1]
    ring.append(ring)
    assert difference(snapshot(ring), snapshot(ring)) == ""


class CrashesInSetup(Sound):
    def setup(self, source: SourceData | None) -> None:
        raise ZeroDivisionError("no setup")


class ReturnsNothing(Sound):
    def adapt(self, x: Tensor) -> Tensor:
        return None  # type: ignore[return-value]


class LearnsWhatIsFrozen(Sound):
    def setup(self, source: SourceData | None) -> None:
        pass

    @torch.enable_grad()
    def adapt(self, x: Tensor) -> Tensor:
        logits: Tensor = self.model(x)
        logits.sum().backward()  # type: ignore[no-untyped-call]
        return logits.detach()


def test_a_method_that_returns_nothing_is_told_so_once() -> None:
    ((_, detail),) = failed(ReturnsNothing).items()
    assert detail.endswith(": adapt() returned NoneType; expected the logits, a tensor (B, C)")


def test_a_method_that_learns_frozen_parameters_is_told_how_to_switch_them_on() -> None:
    ((_, detail),) = failed(LearnsWhatIsFrozen).items()
    assert "does not require grad" in detail
    assert "parameter.requires_grad_(True)" in detail


class Exits(Sound):
    def adapt(self, x: Tensor) -> Tensor:
        raise SystemExit(0)


class ExitsInItsNeeds(Sound):
    @classmethod
    def needs_of(cls, config: NoConfig) -> Needs:
        raise SystemExit


def test_a_method_that_exits_has_failed() -> None:
    ((name, detail),) = failed(Exits).items()
    assert name == "is prepared and adapts to a batch"
    assert "its code calls exit(0), which would end the whole process" in detail
    assert "test_battery.py, line" in detail
    assert "its code calls exit()" in failed(ExitsInItsNeeds)["declarations are sound"]


class Compiles(Sound):
    def setup(self, source: SourceData | None) -> None:
        super().setup(source)
        self.fast = torch.compile(self.model, backend="eager")

    @torch.enable_grad()
    def adapt(self, x: Tensor) -> Tensor:
        logits: Tensor = self.fast(x)
        minimise(entropy(logits).mean(), self.optimizer)
        return logits.detach()


class CompilesItsModel(Sound):
    def setup(self, source: SourceData | None) -> None:
        super().setup(source)
        self.model.compile(backend="eager")


class ForgetsToResetWhatItCompiled(ForgetsToResetMomentum):
    def setup(self, source: SourceData | None) -> None:
        self.fast = torch.compile(nn.Linear(2, 2), backend="eager")
        super().setup(source)

    def adapt(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.fast.bias += 1
        return super().adapt(x)


def test_a_compiled_module_has_the_state_of_its_original() -> None:
    for method in (Compiles, CompilesItsModel):
        assert failed(method) == {}
    forgetful = conformance_reset(Case(ForgetsToResetWhatItCompiled, NoConfig(), "MLP", small_net()))
    assert forgetful == "reset() does not restore the state: fast._parameters.bias differs"


class DeclaresNoGradient(Sound):
    needs = Needs()

    def setup(self, source: SourceData | None) -> None:
        self.parameters = dict(self.model.named_parameters())
        for parameter in self.parameters.values():
            parameter.requires_grad_(True)
        self.optimizer = torch.optim.Adam(self.parameters.values(), 1e-3)
        self.average = None


def test_gradients_have_to_be_declared() -> None:
    assert "needs = Needs(gradient=True)" in failed(DeclaresNoGradient)["declarations are sound"]


class GivesTorchATextAsRate(Sound):
    def setup(self, source: SourceData | None) -> None:
        self.optimizer = torch.optim.Adam(self.model.parameters(), "high")  # type: ignore[arg-type]


def test_the_place_of_an_exception_is_in_the_file_of_the_method() -> None:
    ((_, detail),) = failed(GivesTorchATextAsRate).items()
    assert "raised TypeError: " in detail
    assert f"({__file__}, line " in detail


def test_probabilities_are_not_logits() -> None:
    result = failed_once(ReturnsProbabilities)
    assert "returns probabilities" in result["logits have their shape, are finite and detached"]


def test_layers_left_in_train_mode_are_found() -> None:
    result = failed_once(StaysInTrainMode)
    assert "in train mode" in result["layers stay in the mode that prepare() left them in"]


def test_a_method_that_imports_the_datasets_while_it_runs_is_found() -> None:
    result = failed_once(ReadsTheDatasets)["reaches for no dataset, label or score"]
    assert "imports ttabench.data.catalog while it runs" in result


def test_settings_that_a_method_leaves_are_named_with_their_values() -> None:
    result = failed_once(LooksForAnomalies)["leaves torch as it was"]
    assert "changes a setting of torch, whether anomalies are detected, from False to True" in result
    assert not torch.is_anomaly_enabled()


@pytest.mark.parametrize(
    ("method", "fault"),
    [
        (IsCertain, ""),
        (IsCertainOfThree, "known_score() has shape (3,) for 24 images, not (24,)"),
        (IsCertainInNumPy, "known_score() is of type ndarray, not a tensor"),
        (IsCertainOfNaN, "known_score() is not finite for some images"),
        (LearnsFromItsCertainty, "known_score() changes the state: average differs"),
        (SortsTheLogitsItGets, "known_score() changes the logits that it gets"),
        (
            DrawsItsCertainty,
            "known_score() draws random numbers, which would change the results of the method",
        ),
    ],
)
def test_a_certainty_is_a_finite_number_per_image_without_a_trace(
    method: type[Method[Any]], fault: str
) -> None:
    assert certainty(Case(method, NoConfig(), "MLP", small_net())) == fault


def test_a_replaced_function_of_torch_is_named_and_put_back() -> None:
    result = failed_once(ReplacesSoftmax)["leaves torch as it was"]
    assert "it replaces torch.nn.functional.softmax, for all methods in the process; change only" in result
    assert nn.functional.softmax is SOFTMAX
    assert "torch.nn.BatchNorm2d.forward" in failed_once(ReplacesAForward)["leaves torch as it was"]
    assert "forward" not in vars(nn.BatchNorm2d)


def test_a_crash_in_setup_is_said_once() -> None:
    (name, detail), *others = failed(CrashesInSetup).items()
    assert name == "is prepared and adapts to a batch"
    assert "ZeroDivisionError: no setup" in detail
    assert not others
    assert len(conform(CrashesInSetup)) == 2


def test_a_method_whose_files_import_the_datasets_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "cheats"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "peek.py").write_text("def labels():\n    from ttabench.data.catalog import dataset\n")
    (package / "fine.py").write_text("from ttabench.nn import entropy\n")
    (package / "method.py").write_text("from cheats import peek\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert "cheats.peek imports ttabench.data.catalog" in forbidden_imports("cheats.method")
    assert forbidden_imports("cheats.fine") == []
    assert forbidden_imports("ttabench_methods.quantile") == []
