"""The checks: each returns what is wrong with a method on one net, "" if nothing is."""

from __future__ import annotations

import contextlib
import copy
import json
import math
import pickle
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ttabench.cell.protocol import MODES
from ttabench.conformance.case import SEED, Case, Run, seed_torch
from ttabench.conformance.nets import CLASSES, DropPath, images
from ttabench.conformance.state import Snapshot, deepest_graph, difference, holds, size, snapshot
from ttabench.conformance.watched_data import Target, WatchedSource, split
from ttabench.measure.declared_source import STATISTICS
from ttabench.measure.torch_defaults import changed_setting, settings
from ttabench.method import Method, Needs
from ttabench.method.unrestored import unrestored
from ttabench.observe.unknown_classes import certainty_fault
from ttabench.provenance.forbidden_imports import forbidden_imports, watched_imports
from ttabench.run.replaced_torch import replaced_part

NOT_FINITE = "are not finite numbers"


def works(case: Case) -> str:
    """prepare() and adapt() run, adapt() returns a tensor, and a reset can restore what prepare() made."""
    method = case.fresh()
    if lost := unrestored(method, case.classifier):
        return lost
    returned: object = method.adapt(case.stream[0].clone())
    if not isinstance(returned, Tensor):
        return f"adapt() returned {type(returned).__name__}; expected the logits, a tensor (B, C)"
    return ""


def declarations(case: Case) -> str:
    """Config is a frozen dataclass of scalars; the declarations of the method can be stored."""
    kind = case.method.Config
    if not is_dataclass(kind) or not kind.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        return f"Config is not a frozen dataclass: {kind}"
    for field in fields(case.config):
        if not isinstance(getattr(case.config, field.name), (str, int, float, bool, type(None))):
            return f"Config.{field.name} is not a scalar, so it has no place in a cell's identity"
    if case.method.mode not in MODES:
        return f"mode is {case.method.mode!r}; expected one of {', '.join(MODES)}"
    if problem := _statistics_declared(case.needs):
        return problem
    made = case.online.method
    if not isinstance(made.adapted(), str):
        return "adapted() is not a text"
    alarms = made.alarms()
    if not isinstance(alarms, dict):
        return f"alarms() returns a {type(alarms).__name__}; expected a dict"
    try:
        json.dumps(alarms, allow_nan=False)
    except (TypeError, ValueError) as problem:
        return (
            f"alarms() cannot be stored: {problem}; expected texts, whole numbers and finite floats of Python"
        )
    if not case.needs.gradient:
        made = case.fresh()
        try:
            with torch.inference_mode():
                Run(made, case.stream)
        except RuntimeError:  # without inference mode it ran
            return "the method computes gradients, and its Needs do not say so: needs = Needs(gradient=True)"
    return ""


def _statistics_declared(needs: Needs) -> str:
    names = needs.source_statistics
    if isinstance(names, str) or (unknown := [name for name in names if name not in STATISTICS]):
        wrong = names if isinstance(names, str) else unknown[0]
        return f"source_statistics names {wrong!r}; expected a tuple of names from {', '.join(STATISTICS)}"
    if names and not needs.source_data:
        return f"source_statistics names {names[0]!r}, and source_data is ''; set source_data=\"statistics\""
    return ""


def logits(case: Case) -> str:
    return (
        _sound(case.online.logits, case.stream)
        or _detached(case.online.returned)
        or _probabilities(case.online.logits)
    )


def _probabilities(logits: Sequence[Tensor]) -> str:
    """Softmax outputs instead of logits: their arg max does not show the difference."""
    rows = torch.cat([y.float() for y in logits])
    if (rows >= 0).all() and (rows.sum(1) - 1).abs().max() < 1e-3:
        return "adapt() returns probabilities; expected logits, e.g. their logarithm"
    return ""


def _detached(returned: Sequence[Tensor]) -> str:
    attached = [n for n, y in enumerate(returned, 1) if y.requires_grad]
    return f"logits of batch {attached[0]} require grad; return logits.detach()" if attached else ""


def _sound(logits: Sequence[Tensor], stream: Sequence[Tensor]) -> str:
    for number, (y, x) in enumerate(zip(logits, stream, strict=True), 1):
        if y.shape != (len(x), CLASSES):
            return f"logits of batch {number} have shape {tuple(y.shape)}; expected {(len(x), CLASSES)}"
        if not y.is_floating_point() or not torch.isfinite(y).all():
            return f"logits of batch {number} {NOT_FINITE}"
    return ""


def inputs_left_alone(case: Case) -> str:
    """Neither the caller's model nor the images change."""
    classifier, stream = copy.deepcopy(case.classifier), [x.clone() for x in case.stream]
    before = snapshot(classifier)
    method = case.fresh(classifier)
    for x in stream:
        method.adapt(x)
    method.fit(Target(stream), 1)
    method.predict(stream[-1])
    if changed := difference(before, snapshot(classifier)):
        return f"the caller's model changed: {changed}"
    return _same(stream, case.stream, "once the method has seen them", what="images")


def causality(case: Case) -> str:
    """Logits of a batch do not depend on later ones, and do not change once returned."""
    if problem := _same(case.online.returned, case.online.logits, "from when they were returned"):
        return problem
    other = split(images(48, seed=4), 24)
    changed = Run(case.fresh(), [*case.stream[:2], *other]).logits[:2]
    return _same(changed, case.online.logits[:2], "with other batches after it")


def batch_of_one(case: Case) -> str:
    method, alone = case.fresh(), split(case.stream[0][:3], 1)
    return _sound(Run(method, alone).logits, alone) or _sound(_predict(method, alone), alone)


def short_last_batch(case: Case) -> str:
    """A short batch gets logits of its own size, also after a full batch and in offline mode."""
    method, stream = case.fresh(), [case.stream[0], case.stream[-1]]
    problem = _sound(Run(method, stream).logits, stream)
    method.fit(Target(stream))
    return problem or _sound(_predict(method, stream), stream)


def row_order(case: Case) -> str:
    """Row i of the logits is that of image i: where one image is another one, its row changes the most.

    What all rows share, such as a step of a gradient, is their median and is taken away. Others may change
    more now and then, so the share of rows that change less is averaged over images: 1 for most methods, 0.5
    where rows have nothing to do with images.
    """
    method, usual = case.fresh(), case.stream[0]

    def logits_of(x: Tensor) -> Tensor:
        method.reset()
        seed_torch()
        return method.adapt(x.clone()).detach().float()

    before, shares = logits_of(usual), []
    for row in range(0, len(usual), 3):
        changed = usual.clone()
        changed[row] = case.stream[1][row]
        change = logits_of(changed) - before
        moved = (change - change.median(0).values).norm(dim=1)
        shares.append(float((moved < moved[row]).sum()) / (len(usual) - 1))
    if moved.isfinite().all() and moved.any() and sum(shares) < 0.75 * len(shares):
        return (
            "when one image of a batch was replaced, its logits did not change more than those of the other "
            "images; return the logits in the order of the images"
        )
    return ""


def determinism(case: Case) -> str:
    """The same torch seed gives the same logits, whatever other generators and instances did before."""
    return _same(case.again.logits, case.online.logits, "in a second run with the same seed")


def seeds(case: Case) -> str:
    """Another torch seed stays another one: the method does not set torch's generator while it learns."""
    method, x = case.fresh(), case.stream[0]
    for name, learn in (
        ("adapt()", lambda: method.adapt(x.clone())),
        ("fit()", lambda: method.fit(Target([x]), 1)),
    ):
        ends = []
        for seed in (SEED, SEED + 1):
            method.reset()
            seed_torch(seed)
            learn()
            ends.append(torch.get_rng_state())
        if torch.equal(*ends):
            return f"{name} seeds torch's generator, so all seeds of a sweep draw the same; leave it as it is"
    return ""


def freed_images(case: Case) -> str:
    """What was kept of a batch is not taken for a later one: Python gives the id of a freed tensor again."""
    if determinism(case):
        return ""  # they differ anyway
    method, x = case.fresh(), torch.empty(0)
    seed_torch()
    logits = []
    for batch in case.stream:
        if sys.getrefcount(x) <= 2 and not x.requires_grad:  # nothing else has it
            x.data = batch.clone()
        else:
            x = batch.clone()
        logits.append(method.adapt(x).detach().clone())
    return _same(logits, case.online.logits, "where images have the id() of earlier ones, which were freed")


def reset(case: Case) -> str:
    """After online and offline adaptation, reset() restores the state after prepare() bitwise."""
    method = case.fresh()
    prepared = snapshot(method)
    for adapt in (lambda: Run(method, case.stream), lambda: method.fit(Target(case.stream), 2)):
        adapt()
        method.reset()
        if changed := difference(prepared, snapshot(method)):
            return f"reset() does not restore the state: {changed}"
    return _same(Run(method, case.stream).logits, case.online.logits, "after reset()")


def pickling(case: Case) -> str:
    """A pickled copy made during the stream continues as the original does, and can be reset."""
    method = case.fresh()
    prepared = snapshot(method)
    Run(method, case.stream[:2])
    twin: Method[Any] = pickle.loads(pickle.dumps(method))  # these bytes are made here
    copied, original = (Run(m, case.stream[2:], seed=8).logits for m in (twin, method))
    if problem := _same(copied, original, "in a pickled copy"):
        return problem
    twin.reset()
    changed = difference(prepared, snapshot(twin))
    return f"reset() of a pickled copy does not restore the state: {changed}" if changed else ""


def dropout(case: Case) -> str:
    """Logits are those of the same net without dropout and stochastic depth."""
    bare = copy.deepcopy(case.classifier)
    for module in bare.modules():
        if isinstance(module, (nn.Dropout, DropPath)):
            module.p = 0.0
    method = case.fresh(bare)
    return _same(Run(method, case.stream).logits, case.online.logits, "without dropout and stochastic depth")


def modes(case: Case) -> str:
    """Each layer is in the mode, train or eval, in which prepare() left it; dropout never trains."""
    method = case.fresh()
    prepared = {name: module.training for name, module in method.model.named_modules()}
    for when, adapt in (
        ("adapt()", lambda: Run(method, case.stream)),
        ("fit()", lambda: method.fit(Target(case.stream), 1)),
        ("predict()", lambda: _predict(method, case.stream[:1])),
    ):
        adapt()
        for name, module in method.model.named_modules():
            if module.training != prepared.get(name, module.training):
                mode = "train" if module.training else "eval"
                return f"{when} leaves '{name or 'the model'}' in {mode} mode, other than prepare()"
    return ""


def torch_settings(case: Case) -> str:
    """Settings and functions of torch, which hold for the whole process, are as before the method ran."""
    before = settings()
    method = case.fresh()
    Run(method, case.stream[:2])
    method.fit(Target(case.stream), 1)
    if changed := changed_setting(before):
        return (
            f"it changes {changed}, for all that runs later in the process; set it back in setup(), adapt() "
            "and fit()"
        )
    if part := replaced_part():
        return f"it replaces {part}, for all methods in the process; change only the layers of self.model"
    return ""


def reach(case: Case) -> str:
    """The method imports no datasets, labels or scoring, in its files or while it runs."""
    if forbidden := forbidden_imports(case.method.__module__):
        return f"{forbidden[0]}, which a method may not"
    with watched_imports() as noted:
        method = case.fresh()
        Run(method, case.stream)
        method.fit(Target(case.stream), 1)
    return f"it imports {noted[0]} while it runs, which a method may not" if noted else ""


def no_labels(case: Case) -> str:
    """It requests only data of the contract and its Needs, and keeps no reference to them."""
    seed_torch()
    source, target = WatchedSource(case.needs), Target(case.stream)
    method = case.method(case.classifier, case.config)
    with contextlib.suppress(PermissionError, AttributeError):
        method.prepare(source)
        method.fit(target, 1)
    if requests := source.offences + target.offences:
        return f"it asked for {requests[0]}"
    kept = holds(method, WatchedSource) or holds(method, Target)
    return f"it keeps a reference to the data, as {kept}" if kept else ""


def precision(case: Case) -> str:
    """float64 stays float64; under bfloat16 autocast, parameters stay float32 and logits finite."""
    stream = [x.double() for x in case.stream]
    wide = Run(case.fresh(copy.deepcopy(case.classifier).double(), torch.float64), stream).logits
    if problem := _sound(wide, stream):
        return f"float64: {problem}"
    if wide[0].dtype != torch.float64:
        return f"float64: logits are {wide[0].dtype}"
    method = case.fresh()
    with torch.autocast("cpu", torch.bfloat16):
        run = Run(method, case.stream)
        method.fit(Target(case.stream), 1)
        run.logits += _predict(method, case.stream[:1])
    if problem := _sound(run.logits, [*case.stream, case.stream[0]]):
        return f"bfloat16: {problem}"
    narrow = [name for name, p in method.model.named_parameters() if p.dtype != torch.float32]
    return f"bfloat16: {narrow[0]} is no longer float32" if narrow else ""


def bounded_memory(case: Case) -> str:
    """The state is not larger in the last quarter of a long stream than in its first half.

    The stream has 2,048 images in batches of 32; fewer for methods with smaller batches, which take longer.
    The smallest size at the end is compared with the largest one before, since sizes may vary. One net gets
    the whole stream; on the others, the first quarter is enough if the size never changes in it.

    The graph of a kept tensor has no part in the size: its nodes are compared in the same way.
    """
    method = case.fresh()
    batch = min(32, method.batch_size)
    count = max(64, 512 // batch)
    held, graphs = [], []
    for number in range(1, count + 1):
        method.adapt(images(batch, seed=100 + number))
        if number % (count // 64) == 0:
            held.append(size(snapshot(method, skip=("_prepared",))) + size(snapshot(_own_classes(method))))
        if number % (count // 8) == 0:
            graphs.append(max(map(deepest_graph, (method, *_own_classes(method)))))
        if number == count // 4 and len(set(held)) == len(set(graphs)) == 1 and not case.first:
            return ""
    (before, _), (after, kept) = max(graphs[: len(graphs) // 2]), min(graphs[-(len(graphs) // 4) :])
    if after > before:
        return f"{kept} keeps the graph of past batches; detach it"
    half, seen = batch * (count // 2), batch * count
    most, least = max(held[: len(held) // 2]), min(held[-(len(held) // 4) :])
    return f"still growing, by {least - most:,} bytes from image {half:,} to {seen:,}" if least > most else ""


def _own_classes(method: Method[Any]) -> list[Mapping[str, Any]]:
    """The attributes of the method's class, and of its base classes below `Method`."""
    return [vars(kind) for kind in type(method).__mro__ if kind not in Method.__mro__]


def offline(case: Case) -> str:
    """After fit(), predict() scores every image; it changes nothing and is deterministic for a seed.

    The net is not trained, so a learning rate for trained ones can make it diverge: then a tenth counts.
    """
    problem = _offline(case)
    if problem.endswith(NOT_FINITE) and (slower := case.slower()):
        return _offline(slower)
    return problem


def _offline(case: Case) -> str:
    method = case.fresh()
    method.fit(Target(case.stream), 2)
    stream = case.stream[-2:]
    for frozen in (method, case.online.method):
        before = snapshot(frozen)
        first = _predict(frozen, stream)
        if changed := difference(before, snapshot(frozen)):
            return f"predict() changes the state: {changed}"
        if problem := _sound(first, stream) or _detached(first):
            return f"predict(): {problem}"
        if problem := _same(_predict(frozen, stream), first, "when predict() is called again"):
            return problem
    return _predicts_without(case)


def _predicts_without(case: Case) -> str:
    """What adapt() does beside a network that it leaves as it is, an inherited predict() leaves out."""
    method, x = case.fresh(), case.stream[0]
    kind = type(method)
    if kind.predict is not Method.predict or kind.scores_frozen not in (kind.scores, Method.scores_frozen):
        return ""
    before = snapshot(method.model)
    (adapted,) = Run(method, [x]).logits
    (predicted,) = _predict(method, [x])
    if difference(before, snapshot(method.model)) or torch.allclose(adapted, predicted, atol=1e-4):
        return ""
    return (
        "adapt() changes the logits outside the network, but offline and held-out protocols score predict(), "
        "which only runs the network; write predict(), too"
    )


def _predict(method: Method[Any], stream: Sequence[Tensor]) -> list[Tensor]:
    seed_torch()
    return [method.predict(x.clone()) for x in stream]


def certainty(case: Case) -> str:
    """known_score() gives a finite number per image; it changes nothing and draws nothing."""
    if case.method.known_score is Method.known_score:
        return ""
    method, (learned, seen) = case.fresh(), case.stream[:2]
    for logits in (Run(method, [learned]).logits[0], *_predict(method, [seen])):
        before, generators, given = snapshot(method), _generators(), logits.clone()
        with torch.no_grad():
            own: object = method.known_score(given)
        if own is None:
            return ""
        if fault := certainty_fault(own, len(logits)):
            return f"known_score() {fault}"
        if isinstance(own, Tensor) and not torch.isfinite(own).all():
            return "known_score() is not finite for some images"
        if changed := difference(before, snapshot(method)):
            return f"known_score() changes the state: {changed}"
        if not torch.equal(given, logits):
            return "known_score() changes the logits that it gets"
        if difference(generators, _generators()):
            return "known_score() draws random numbers, which would change the results of the method"
    return ""


def _generators() -> Snapshot:
    """The states of the global random generators."""
    return snapshot((torch.get_rng_state(), np.random.get_state(), random.getstate()))  # noqa: NPY002


CHECKS: dict[str, Callable[[Case], str]] = {
    "declarations are sound": declarations,
    "logits have their shape, are finite and detached": logits,
    "the caller's model and images are left alone": inputs_left_alone,
    "causality: no batch depends on a later one": causality,
    "a batch of one image": batch_of_one,
    "a short last batch": short_last_batch,
    "logits are in the order of the images": row_order,
    "determinism under a seed": determinism,
    "other seeds give other random numbers": seeds,
    "images that are freed are forgotten": freed_images,
    "reset() restores bitwise": reset,
    "state survives pickling": pickling,
    "independent of dropout and stochastic depth": dropout,
    "layers stay in the mode that prepare() left them in": modes,
    "leaves torch as it was": torch_settings,
    "reaches for no dataset, label or score": reach,
    "sees no labels, and only the data its Needs declare": no_labels,
    "float64, float32 and bfloat16 autocast": precision,
    "memory of past batches is bounded": bounded_memory,
    "offline: fit, then predict without change": offline,
    "certainty of known classes: one finite number per image": certainty,
}


def _same(actual: Sequence[Tensor], expected: Sequence[Tensor], when: str, what: str = "logits") -> str:
    for number, (y, z) in enumerate(zip(actual, expected, strict=True), 1):
        if not torch.equal(y.nan_to_num(nan=math.inf), z.nan_to_num(nan=math.inf)):
            return f"{what} of batch {number} differ {when}, by up to {(y - z).abs().max():.2g}"
    return ""
