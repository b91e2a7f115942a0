"""What ``ttabench figure`` does once its options are read."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ttabench import registry
from ttabench.cli._folders import check_folder
from ttabench.errors import UserError, unknown
from ttabench.figure import figure_style, options, takes_bench, write
from ttabench.sweep.progress.display import Meter
from ttabench.system.files import user_path
from ttabench.system.progress import OnProgress

if TYPE_CHECKING:
    from ttabench.figure.classifier_and_data import ClassifierAndData

# The papers show gaussian_noise. On these datasets it hardly lowers the accuracy; they show another one.
DEFAULT_CORRUPTIONS = {"digits-c": "fog"}
SEEDS = 2**32  # figures draw with scikit-learn too, which takes no larger seeds


def make(
    name: str, out: Path, given: Mapping[str, Any], bench: Mapping[str, Any], settings: Sequence[str]
) -> list[Path]:
    """Compute, draw and write a figure; the files.

    Mistakes raise UserError before anything is computed. Which methods a figure without an option ``method``
    shows is known once it is computed: settings of another raise UserError before anything is written.

    given      flags that the user gave: fields of `ttabench.cli._bench.BENCH`.
    bench      all these fields, with their defaults.
    settings   ``option=value`` each, or ``method.key=value`` as for a sweep.
    """
    if not name:
        raise UserError(f"which figure? There are {', '.join(registry.figure_names())}.")
    if name not in registry.figure_names() and name in registry.view("plots"):
        raise UserError(f"{name} is a plot of results, which ttabench report DIR draws.")
    function = registry.figure(name)
    known = options(function)
    of_figure = {flag: value for flag, value in given.items() if flag in known}
    of_methods = [text for text in settings if "." in text.partition("=")[0]]
    set_ = _parse(name, [text for text in settings if text not in of_methods], known)
    for flag, value in of_figure.items():
        if set_.get(flag, value) != value:
            raise UserError(f"--{flag} is {value} and --set {flag} is {set_[flag]}; leave one of them out.")
    values = {**of_figure, **set_}
    for seed in (bench["seed"], values.get("seed", 0)):
        if isinstance(seed, int) and not 0 <= seed < SEEDS:  # a figure's own option may be anything
            raise UserError(f"seed {seed}: expected a whole number from 0 to {SEEDS - 1:,}.")
    shown = {flag: value for flag, value in given.items() if flag not in known}
    if shown and not takes_bench(function):
        raise UserError(f"figure {name} takes no --{next(iter(shown))}; its options are {', '.join(known)}.")
    if of_methods and not takes_bench(function):
        raise UserError(f"figure {name} shows no method; leave --set {of_methods[0]} out.")
    methods = _of_methods(of_methods)
    if chosen := {**known, **values}.get("method"):
        _refuse_unshown(name, methods, {chosen})
    check_folder(out)
    if not takes_bench(function):
        with figure_style():
            return write(function(**values), name, out)
    with_progress = _bench(**bench)
    with figure_style(), Meter("images") as meter:
        made = with_progress(report=_progress(meter), settings=methods)
        figure = function(made, **values)
        _refuse_unshown(name, methods, made.shown)
        return write(figure, name, out)


def _refuse_unshown(name: str, methods: Mapping[str, object], shown: Collection[str]) -> None:
    """Raises UserError for settings of a method that is not among those that the figure shows."""
    if idle := methods.keys() - {*shown}:
        raise UserError(
            f"figure {name} does not show {min(idle)}, but {' and '.join(sorted(shown)) or 'no method'}; "
            f"leave the --set of {min(idle)} out."
        )


def _parse(name: str, settings: Sequence[str], known: Mapping[str, Any]) -> dict[str, Any]:
    from ttabench.method.settings import parse_value

    values = {}
    for text in settings:
        key, equals, value = text.partition("=")
        if not equals:
            raise UserError(f"--set {text} is not of the form option=value.")
        if key not in known:
            raise unknown(f"option of figure {name}", key, known)
        values[key] = parse_value(name, key, value, type(known[key]))
    return values


def _of_methods(settings: Sequence[str]) -> dict[str, dict[str, str]]:
    """``tent.lr=1e-3`` → ``{"tent": {"lr": "1e-3"}}``. Raises UserError on what a method would not take."""
    from ttabench.method.settings import make_config
    from ttabench.sweep.chosen_methods import parse_settings

    methods: dict[str, dict[str, str]] = {}
    for method, values in parse_settings(settings, registry.method_names()).items():
        for key, texts in values.items():
            if len(texts) > 1:
                raise UserError(f"--set {method}.{key} has {len(texts)} values; a figure takes one.")
        methods[method] = {key: texts[0] for key, texts in values.items()}
        make_config(registry.method(method), methods[method], {})
    return methods


def _bench(
    *, arch: str, dataset: str, corruption: str, device: str, seed: int, checkpoint: str, normalize: str
) -> Callable[..., ClassifierAndData]:
    """A `ClassifierAndData` but for `report` and `settings`; the classifier is trained if it is missing.

    Warns as a sweep does of a network that sees its images otherwise than it should.
    """
    import torch

    from ttabench.data.catalog import dataset as open_dataset
    from ttabench.figure.classifier_and_data import ClassifierAndData
    from ttabench.models.resolve import resolve_model
    from ttabench.models.trained_model import note_on_mirrors
    from ttabench.run.executors import inline
    from ttabench.sweep.progress.training import train_all
    from ttabench.sweep.train_sources import TrainJob
    from ttabench.system.environment import pick_device

    data, place = open_dataset(dataset), pick_device(device)
    corruption = corruption or DEFAULT_CORRUPTIONS.get(data.name, "gaussian_noise")
    if corruption not in data.corruptions:
        raise unknown(f"corruption of {data.name}", corruption, data.corruptions)
    file = user_path(checkpoint) if checkpoint else None
    model = resolve_model(arch, data, checkpoint=file, normalize=normalize)
    if not model.ready:
        print(f"No source classifier yet for {model}: training.", file=sys.stderr)
        if note := note_on_mirrors([model]):
            print(note, file=sys.stderr)
        train_all([TrainJob(arch, dataset, place)], inline.run, 0)
    classifier = model.load_with_warnings(place).classifier.to(place).eval()
    torch.set_num_threads(1)  # as in a sweep's workers, whose numbers these are
    return partial(ClassifierAndData, arch, data, corruption, classifier, seed=seed, device=place)


def _progress(meter: Meter) -> OnProgress:
    """Progress of a figure: the meter, and without a terminal a line when a new step begins."""
    begun: set[str] = set()

    def show(step: str, done: int, total: int) -> None:
        if step not in begun and not meter.console.is_terminal:
            meter.console.print(f"{step} …", soft_wrap=True, markup=False)
        begun.add(step)
        meter(step, done, total)

    return show
