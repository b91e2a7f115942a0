"""Networks by Python path: ``package.module:callable``."""

from __future__ import annotations

import importlib
import inspect
import sys
import sysconfig
import traceback
from collections.abc import Callable
from pathlib import Path, PurePath
from types import ModuleType
from typing import Any, ClassVar

from torch import nn

from ttabench.classifier import Classifier
from ttabench.data.dataset import Dataset
from ttabench.errors import UserError, is_sigterm, one_line, shortened, unknown
from ttabench.models.external.external_model import ExternalModel
from ttabench.models.external.packages import OF_ANOTHER_TORCH
from ttabench.models.soundness.last_layer import check_last
from ttabench.models.soundness.usable_tensors import check_state, check_tensors

LONGEST_REASON = 300  # characters of an exception's text
STANDARD = sysconfig.get_path("stdlib")


class PythonModel(ExternalModel):
    """``package.module:callable``: a function of the user that makes a network with its weights.

    It gets num_classes, image_size and dataset (its name) as keywords, if it has parameters of these names.
    A function with ``**kwargs`` always gets num_classes. It returns a Classifier, or any module for pixels
    in [0, 1].
    """

    if_close_to_chance: ClassVar[str] = (
        " If its weights are random: name a file with --checkpoint FILE, or train it with ttabench train."
    )

    def __init__(self, name: str, dataset: Dataset, *, normalize: str = "") -> None:
        _parts(name)
        super().__init__(name, dataset, normalize=normalize)

    def build(self) -> Classifier:
        net = make(self.name, self.dataset)
        check_tensors(net, self.name)
        check_state(net, self.name)
        classifier = self.wrap(net)
        if isinstance(net, Classifier):  # whose last layer was named by the user
            check_last(classifier, self.dataset.image_size, self.name)
        return classifier


def make(arch: str, dataset: Dataset) -> nn.Module:
    """Call ``package.module:callable``, see :class:`PythonModel`.

    Raises UserError if it cannot be imported, fails, or returns no network.
    """
    function = _find(arch)
    facts: dict[str, Any] = {
        "num_classes": dataset.num_classes, "image_size": dataset.image_size, "dataset": dataset.name,
    }  # fmt: skip
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # functions of compiled modules may have no signature
        parameters = {}  # type: ignore[assignment]
    given = {name: value for name, value in facts.items() if name in parameters}
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        given["num_classes"] = dataset.num_classes  # constructors pass it on to other constructors
    if lacking := [name for name, p in parameters.items() if name not in given and _is_required(p)]:
        raise UserError(
            f"{arch} needs the parameter '{lacking[0]}', which it does not get: ttabench gives "
            f"{', '.join(facts)}. Give it a default."
        )
    try:
        net = function(**given)
    except (Exception, SystemExit) as problem:
        if is_sigterm(problem):
            raise
        raise _failed(arch, given, problem) from None
    if not isinstance(net, nn.Module):
        raise UserError(f"{arch} returned a {type(net).__name__}; expected an nn.Module or a Classifier.")
    return net


def _failed(arch: str, given: dict[str, Any], problem: BaseException) -> UserError:
    """The error for an exception in the user's function, with file and line."""
    call = ", ".join(f"{name}={value!r}" for name, value in given.items())
    return UserError(
        f"{arch} failed when it was called as {arch.partition(':')[2]}({call}): {_brief(problem)}."
    )


def _brief(problem: BaseException) -> str:
    """An exception of the user's code in one line: its kind, the first line of its text, file and line.

    Lines after a first one that ends in a colon are the reason, as in torch's text about a state_dict.
    """
    whole = str(problem).strip()
    first = next(iter(whole.splitlines()), "")
    if first.endswith(":"):
        first = shortened(one_line(whole), LONGEST_REASON).removesuffix(".")
    if isinstance(problem, SyntaxError):
        return f"SyntaxError: {problem.msg} ({problem.filename}, line {problem.lineno})"
    text = f"{type(problem).__name__}: {first}" if first else type(problem).__name__
    if "torchvision::" in first:  # an operator of torchvision that torch did not get
        return f"{text}: {OF_ANOTHER_TORCH}"
    frames = traceback.extract_tb(problem.__traceback__)
    where = next((frame for frame in reversed(frames) if not _of_a_library(frame.filename)), frames[-1])
    return f"{text} ({where.filename}, line {where.lineno})"


def _of_a_library(file: str) -> bool:
    """Whether a file is of Python, of an installed package, or this one: no place where a user looks."""
    return file == __file__ or file.startswith(("<", STANDARD)) or "site-packages" in Path(file).parts


def _is_required(parameter: inspect.Parameter) -> bool:
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return parameter.default is inspect.Parameter.empty and parameter.kind not in variable


def _parts(arch: str) -> tuple[str, str]:
    """Module and name. Raises UserError if one of them is missing."""
    module, _, name = arch.partition(":")
    if module.endswith(".py") and name:
        dotted = ".".join(PurePath(module).with_suffix("").parts)
        raise UserError(f"'{arch}' names a file; expected a module, without .py: {dotted}:{name}.")
    if not (module and name):
        raise UserError(f"'{arch}' is not of the form package.module:callable, e.g. mynets:build.")
    return module, name


def _callables(module: ModuleType) -> list[str]:
    """The public functions and classes that a module defines; if there are none, those that it imports."""
    public = {n: v for n, v in vars(module).items() if callable(v) and not n.startswith("_")}
    return [n for n, v in public.items() if v.__module__ == module.__name__] or list(public)


def _find(arch: str) -> Callable[..., Any]:
    module_name, name = _parts(arch)
    if "" not in sys.path and "." not in sys.path:
        sys.path.append("")  # the current folder, which an installed command does not search
    _forget_of_another_folder(module_name)
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as problem:  # of the user's code
        if is_sigterm(problem):
            raise
        package, dot, _ = module_name.partition(".")
        if isinstance(problem, ImportError) and dot and package in sys.modules:
            _check_not_shadowed(package, sys.modules[package])
        says = f": {_brief(problem)}"
        if isinstance(problem, ModuleNotFoundError) and f"{module_name}.".startswith(f"{problem.name}."):
            says = f" ({problem}); run from the folder it is in, or install it"
        raise UserError(f"{module_name} of '{arch}' cannot be imported{says}.") from None
    _check_not_shadowed(module_name, module)
    function = getattr(module, name, None)
    if function is None:
        raise unknown(f"callable in {module_name}", name, _callables(module))
    if isinstance(function, nn.Module):
        raise UserError(
            f"{arch} is a network that is made already; expected a function or class that makes one: "
            f"def build(): return {name}."
        )
    if not callable(function):
        raise UserError(
            f"{arch} is a {type(function).__name__}; expected a function or class that makes a network."
        )
    return function  # type: ignore[no-any-return]


def _here(name: str) -> list[Path]:
    """The files of a module of this name in the current folder."""
    parts = Path(*name.split("."))
    return [file for file in (parts.with_suffix(".py"), parts / "__init__.py") if file.is_file()]


def _forget_of_another_folder(name: str) -> None:
    """Forget a module that was imported from a folder that was the current one before, if this one has it."""
    file = getattr(sys.modules.get(name), "__file__", None)
    if file is None or not (here := _here(name)) or any(each.samefile(file) for each in here):
        return
    above = 1 if Path(file).name == "__init__.py" else 0
    if str(Path(file).parents[above + name.count(".")]) not in sys.path:
        del sys.modules[name]


def _check_not_shadowed(name: str, module: ModuleType) -> None:
    """Raises UserError if the current folder has a module of this name, and Python imported another one."""
    here = _here(name)
    used = getattr(module, "__file__", None)
    if here and (used is None or not any(file.samefile(used) for file in here)):
        other = used or "a module that is built into Python"
        raise UserError(
            f"'{name}' is not {here[0]} of this folder: Python finds {other} first. Give your file another "
            "name."
        )
