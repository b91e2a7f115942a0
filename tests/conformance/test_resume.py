"""The state of every method can be stored, and a fresh method with it goes on bit for bit."""

from __future__ import annotations

import copy
import json

import pytest
import torch

from tests.conformance.test_all_methods import LIGHTER, imported, net_of, others_at_night
from ttabench.classifier import Classifier
from ttabench.conformance.case import Case, Run
from ttabench.conformance.nets import CLASSES, nets
from ttabench.conformance.state import difference, snapshot
from ttabench.measure.streams import method_state
from ttabench.method.settings import make_config
from ttabench.registry import method_names

# Each kind of state: none, an optimiser, a second network, memories of images and of features, moments of
# classes, what CMA-ES has found, a network beside the classifier, and methods within a method.
KINDS = ("source", "tent", "eata", "cotta", "rotta", "t3a", "ttac", "foa", "quantile", "come", "stack")


@pytest.mark.filterwarnings("ignore::ttabench.errors.Alarm")  # thresholds that are wrong for tiny nets
@pytest.mark.parametrize("name", others_at_night(KINDS))  # the others have states of the same kinds
def test_a_method_with_a_stored_state_goes_on_as_the_one_it_was_stored_from(name: str) -> None:
    goes_on_as_stored(name, net_of(name))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ttabench.errors.Alarm")
@pytest.mark.parametrize("name", method_names())
def test_it_does_on_all_nets(name: str) -> None:
    goes_on_as_stored(name, nets())


def goes_on_as_stored(name: str, some: dict[str, Classifier]) -> None:
    cls = imported(name)
    for net, classifier in some.items():
        arch = classifier.architecture()
        usual = {**cls.for_dataset("conformance", CLASSES), **cls.for_architecture(arch)}
        config = make_config(cls, LIGHTER.get(name, {}), usual)
        if cls.needs_of(config).unmet(arch):
            continue
        case = Case(cls, config, net, classifier)
        method = case.fresh()
        Run(method, case.stream[:2])
        method_state.check(method)
        node, arrays = method_state.store(method)
        node = json.loads(json.dumps(node))
        arrays = {key: array.copy() for key, array in arrays.items()}
        before = snapshot(method)

        resumed = case.fresh()
        resumed.reset()
        method_state.restore(resumed, node, arrays)
        assert difference(before, snapshot(resumed)) == "", net

        goes_on = [Run(m, copy.deepcopy(case.stream[2:]), seed=8) for m in (method, resumed)]
        for expected, result in zip(goes_on[0].logits, goes_on[1].logits, strict=True):
            assert torch.equal(expected, result), net
        assert difference(snapshot(method), snapshot(resumed)) == "", net
        resumed.reset()
        assert difference(snapshot(case.fresh(), ("_prepared", "counts")), snapshot(resumed)) == "", net
