"""The package of a new method: what its files say, and how they are written."""

from __future__ import annotations

import keyword
import re
import tempfile
from importlib.util import find_spec
from pathlib import Path
from string import Template

from ttabench.errors import UserError
from ttabench.registry import METHODS, entry_points
from ttabench.system.files import writing

PYPROJECT = Template("""\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "$project"
version = "0.1.0"
description = "The test-time adaptation method $name, for ttabench."
requires-python = ">=3.11"
dependencies = ["ttabench"]

[project.optional-dependencies]
test = ["pytest"]

[project.entry-points."ttabench.methods"]
$name = "$name:$cls"

[tool.hatch.build.targets.wheel]
packages = ["$name"]
""")

INIT = Template("""\
\"\"\"The method $name.\"\"\"

from .method import $cls

__all__ = ["$cls"]
""")

METHOD = Template('''\
"""$cls: what the method does, in a sentence, and its paper.

Scored: the forward pass before the update.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from ttabench.method import Method, Needs, NonNegative, UnitInterval
from ttabench.nn import make_optimizer, minimise, norm_affine, use_batch_statistics


@dataclass(frozen=True, kw_only=True)
class ${cls}Config:
    """Where these values are from."""

    lr: NonNegative = 1e-3  # learning rate of Adam
    threshold: UnitInterval = 0.9  # only images of at least this confidence are learned from


class $cls(Method[${cls}Config]):
    name = "$name"
    paper = None  # Paper(key=…, title=…, authors=…, venue=…, year=…)
    needs = Needs(gradient=True)
    batch_size = 200
    Config = ${cls}Config

    def setup(self, source):
        """self.model is a private copy of the network. Attributes set here are restored by reset()."""
        use_batch_statistics(self.model)
        self.optimizer = make_optimizer("adam", norm_affine(self.model, "all").values(), self.config.lr)

    @torch.enable_grad()
    def adapt(self, x: Tensor) -> Tensor:
        """Learn from images (B, 3, H, W) in [0, 1], and return the logits (B, C) that are scored."""
        logits = self.model(x)
        confidence, label = logits.detach().softmax(1).max(1)
        sure = confidence >= self.config.threshold
        if sure.any():
            minimise(cross_entropy(logits[sure], label[sure]), self.optimizer)
        return logits.detach()
''')

TEST = Template('''\
"""The method keeps the contract of ttabench, and is found by its name."""

from ttabench.conformance import conform
from ttabench.registry import method

from $name import $cls


def test_it_keeps_the_contract() -> None:
    assert [f"{check.name}: {check.detail}" for check in conform($cls) if not check.ok] == []


def test_it_is_installed() -> None:
    assert method("$name") is $cls
''')

FILES = {
    "pyproject.toml": PYPROJECT,
    "{name}/__init__.py": INIT,
    "{name}/method.py": METHOD,
    "tests/test_{name}.py": TEST,
}


def write_package(name: str, parent: Path) -> Path:
    """The folder `parent`/`name` with a package that installs and passes `ttabench conform`.

    Raises UserError for a name that cannot be one, or is taken, and where the folder is there already.
    """
    check_name(name)
    folder = parent / name
    if folder.exists():
        raise UserError(f"{folder} is there already; name another method, or another --out.")
    words = {"name": name, "cls": class_name(name), "project": name.replace("_", "-")}
    with writing(folder):
        parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=parent, prefix=f".{name}-") as made:
            for path, template in FILES.items():
                file = Path(made, "package", path.format(name=name))
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(template.substitute(words), encoding="utf-8")
            Path(made, "package").rename(folder)  # fails where another process has made the folder meanwhile
    return folder


def check_name(name: str) -> None:
    """Raises UserError unless `name` can be a method, a package and a module, and is none yet."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        fixed = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
        hint = f", e.g. {fixed}" if re.fullmatch(r"[a-z][a-z0-9_]*", fixed) and fixed != name else ""
        raise UserError(
            f"'{name}' is no name of a method; expected lower-case letters, digits and underscores{hint}."
        )
    if name in entry_points(METHODS):
        raise UserError(f"there is a method '{name}' already; name another one.")
    if find_spec(name) is not None:
        raise UserError(f"'{name}' is a Python package already, which would hide yours; name another one.")


def class_name(name: str) -> str:
    """``pseudo_label`` → ``PseudoLabel``"""
    return "".join(word[:1].upper() + word[1:] for word in name.split("_"))
