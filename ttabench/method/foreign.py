"""Use the official code of a method, unchanged, as a method of ttabench.

Most repositories have the form ``model = configure_model(model)``, then ``method = Tent(model, optimizer)``,
then ``logits = method(x)``. A subclass of :class:`Foreign` builds such an object around a network. The
official code is not changed.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn

from ttabench.classifier.buffers import buffers_kept
from ttabench.errors import warn_of_setting
from ttabench.method import Method, Needs, SourceData

C = TypeVar("C")


class Foreign(Method[C]):
    """A method whose code is that of its authors, unchanged. Tables mark it with "official code".

    Subclasses set `name` and `official`, and write :meth:`build`. They may also set `paper`, `needs`,
    `Config`, `batch_size` and `mode`; :meth:`build` can read ``self.config``.

    official  where the code is from: the address of its repository, and the commit.

    After :meth:`setup`, ``self.code`` is what :meth:`build` returned. :meth:`reset` restores it bitwise, with
    its optimiser and all other state; a reset of the official code is not used. Put files of
    the official code into the package of the subclass: then results become stale when they change. A warning
    names a file elsewhere.

    Two things are not the official code's, since the contract of a method needs them: images come in [0, 1],
    because the network contains its normalisation; and :meth:`predict`, which only offline and held-out
    protocols use, is a forward pass of :meth:`network` without a change of state.
    """

    official: ClassVar[str] = ""
    provenance: ClassVar[str] = "official code"
    needs = Needs(gradient=True)
    scores = "what the official code returns"
    scores_frozen = "a forward pass of its network after all updates"
    deviations = "none: the official code runs as it is"

    code: Any

    @abstractmethod
    def build(self, model: nn.Module, source: SourceData | None) -> Any:
        """The official method around `model`, a private copy in eval mode.

        The parameters of `model` require gradients if ``needs.gradient``. The returned object is called with
        a batch (B, 3, H, W) in [0, 1], and returns logits (B, C). `source` is the source data that `needs`
        declares; do not keep it.
        """

    def network(self) -> nn.Module:
        """The network that :meth:`predict` runs: the official object's `model`, if it has one."""
        network = getattr(self.code, "model", None)
        return network if isinstance(network, nn.Module) else self.model

    @torch.enable_grad()
    def setup(self, source: SourceData | None) -> None:
        self.model.requires_grad_(self.needs.gradient)
        self.code = self.build(self.model, source)
        here, there = type(self).__module__, type(self.code).__module__
        if here.partition(".")[0] != there.partition(".")[0]:
            warn_of_setting(
                self.name,
                f"its code is in the module {there}, outside of the package of {here}: unless it stands in a "
                "project folder, results do not become stale when it changes. Put the file into that package",
            )

    @torch.enable_grad()
    def adapt(self, x: Tensor) -> Tensor:
        if not callable(self.code):
            raise TypeError(
                f"build() returned {type(self.code).__name__}; return the official object, which is called "
                "with each batch"
            )
        logits = self.code(x)
        if not isinstance(logits, Tensor):
            raise TypeError(
                f"the official code returned {type(logits).__name__}; expected logits (B, C). Override "
                "adapt(), and return the logits among them"
            )
        return logits.detach()

    @torch.no_grad()
    def predict(self, x: Tensor) -> Tensor:
        network = self.network()
        with buffers_kept(network):
            logits: Tensor = network(x)
        return logits

    def adapted(self) -> str:
        learned = [p.numel() for p in self.model.parameters() if p.requires_grad]
        if not learned:
            return "no parameters by gradients (official code)"
        return f"{len(learned)} tensors with {sum(learned):,} parameters (official code)"

    def alarms(self) -> dict[str, Any]:
        return {"official_code": self.official}
