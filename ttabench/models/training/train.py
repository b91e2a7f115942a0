"""Training of source classifiers.

Training is deterministic for a seed, on one kind of processor and with one number of threads. A portable
recipe makes the same weights on all processors with AVX2, and with any number of threads. All generators are
seeded again at the start of each epoch, so a killed training run continues bitwise from its last saved epoch.
torch's global generators do not change.
"""

from __future__ import annotations

import io
import math
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ttabench.data.dataset import Dataset
from ttabench.errors import UserError, first_line, out_of_memory
from ttabench.models.checkpoints.cache import read, save_trained, write_atomically
from ttabench.models.clean_accuracy import accuracy_warning, clean_accuracy
from ttabench.models.soundness.even_threads import even_threads
from ttabench.models.training.augment import Sampler, mix
from ttabench.models.training.linear_as_convolution import LinearAsConvolution
from ttabench.models.training.parts import Parts
from ttabench.models.training.portable import check_kernels, check_options
from ttabench.models.training.randaugment import randaugment
from ttabench.models.training.recipes import Recipe
from ttabench.models.training.weights_identity import TrainingPlan
from ttabench.system.cores import torch_threads
from ttabench.system.environment import machine, pick_device, processor, versions

SAVE_EVERY = 30.0  # seconds between saved training states
REPORT_EVERY = 0.1  # seconds between progress reports, at least
EVALUATIONS = 10  # of the clean test set over a training run, for the learning curve


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingProgress:
    """The state of a training run. `epoch` and `step` count from 1; the loss is that of this epoch so far."""

    epoch: int
    epochs: int
    step: int
    loss: float
    seconds_left: float


def train(
    plan: TrainingPlan,
    dataset: Dataset,
    *,
    device: str = "cpu",
    precision: str = "auto",
    on_progress: Callable[[TrainingProgress], None] | None = None,
) -> None:
    """Train a classifier on the clean training images, and store it.

    A killed run of the same plan is continued. Where another process has stored this classifier meanwhile,
    its weights stay: those made here can differ, and cells may name its weights already.

    precision    "auto" = the recipe's, "float32" or "bfloat16" (autocast).
    on_progress  called at the end of each epoch, and up to ten times per second during it.

    Raises UserError on bad names, an unwritable cache, or a loss that is not finite.
    """
    place = torch.device(pick_device(device))
    if plan.recipe.portable:
        check_options(place.type, precision)
        check_kernels()
    with _isolated(plan.recipe.threads, place) as threads:
        run = _Run(plan, dataset, place, precision, threads)
        run.resume()
        with even_threads(run.classifier, run.batch_size):
            while run.epoch < plan.recipe.epochs:
                run.train_one_epoch(on_progress or (lambda _: None))
            run.finish()


class _Run:
    """A training run: the network, its optimiser, and how far it has come."""

    def __init__(
        self, plan: TrainingPlan, dataset: Dataset, device: torch.device, precision: str, threads: int
    ) -> None:
        self.plan, self.recipe, self.device = plan, plan.recipe, device
        self.precision = resolve_precision(precision, self.recipe, device)
        self.test = dataset.test()
        train = dataset.train()
        self.sampler = Sampler(train.images, device, shift=self.recipe.shift, flip=self.recipe.flip)
        self.labels = torch.tensor(train.labels, device=device)
        self.batch_size = min(self.recipe.batch_size, len(train))
        self.steps_per_epoch = len(train) // self.batch_size
        self.steps = self.steps_per_epoch * self.recipe.epochs

        torch.manual_seed(plan.seed)
        self.classifier = plan.build().to(device)
        self.optimizer = make_optimizer(self.recipe, self.classifier.net, device)
        compiled = self.recipe.compile and device.type == "cuda" and find_spec("triton")
        self.forward: Callable[[Tensor], Tensor] = Compiled(self.classifier) if compiled else self.classifier
        part = self.recipe.part
        self.parts = Parts(self.classifier.net, part, threads) if part else None
        self.stored_before = read(plan.path)
        self.epoch = 0
        self.seconds = 0.0
        self.curve: list[dict[str, float]] = []
        self.saved_at = time.perf_counter()

    def train_one_epoch(self, on_progress: Callable[[TrainingProgress], None]) -> None:
        began = reported = time.perf_counter()
        seed = int(np.random.SeedSequence((self.plan.seed, self.epoch)).generate_state(1)[0])
        torch.manual_seed(seed)  # dropout and stochastic depth
        generator = torch.Generator(self.device).manual_seed(seed)
        draw = np.random.default_rng(seed)
        order = torch.randperm(len(self.labels), device=self.device, generator=generator)
        self.classifier.train()
        sums = torch.zeros(2, device=self.device)  # of the loss, of images right
        for i, index in enumerate(torch.split(order, self.batch_size)[: self.steps_per_epoch], start=1):
            step = self.epoch * self.steps_per_epoch + i
            x = self.sampler.batch(index, generator)
            for group in self.optimizer.param_groups:
                group["lr"] = learning_rate(self.recipe, step - 1, self.steps)
            sums += self._update(x, self.labels[index], draw, seed=(seed, i))
            # Reading the sums makes a GPU wait, so not at every step.
            if (now := time.perf_counter()) - reported > REPORT_EVERY or i == self.steps_per_epoch:
                reported = now
                loss, right = sums.tolist()
                on_progress(
                    TrainingProgress(
                        epoch=self.epoch + 1, epochs=self.recipe.epochs, step=step, loss=loss / i,
                        seconds_left=(self.seconds + now - began) / step * (self.steps - step),
                    )
                )  # fmt: skip
        self._end_epoch(loss / self.steps_per_epoch, 100 * right / (self.steps_per_epoch * self.batch_size))
        self.seconds += time.perf_counter() - began
        if time.perf_counter() - self.saved_at >= SAVE_EVERY and self.epoch < self.recipe.epochs:
            self.save_state()

    def _update(self, x: Tensor, labels: Tensor, draw: np.random.Generator, seed: tuple[int, ...]) -> Tensor:
        """One step of the optimiser; returns (loss, number of images right)."""
        recipe = self.recipe
        if recipe.randaugment:
            x = randaugment(x, recipe.randaugment, draw)
        targets = F.one_hot(labels, self.plan.num_classes).float()
        if self.epoch < recipe.mix_until * recipe.epochs:
            x, targets = mix(x, targets, draw, recipe.mixup, recipe.cutmix)

        def loss_of(part: slice) -> tuple[Tensor, Tensor]:
            """The part's share of the mean loss; what is reported of it."""
            half = self.precision == "bfloat16"
            with (
                LinearAsConvolution() if recipe.portable else nullcontext(),
                torch.autocast(self.device.type, torch.bfloat16) if half else nullcontext(),
            ):
                logits = self.forward(x[part])
            if not isinstance(logits, Tensor):
                raise UserError(
                    f"{self.plan.member.name} returns a value of type {type(logits).__name__} while it is "
                    "trained; expected only logits: switch its auxiliary outputs off, such as with "
                    "aux_logits=False."
                )
            loss = F.cross_entropy(logits.float(), targets[part], label_smoothing=recipe.label_smoothing)
            loss = loss * (len(logits) / len(x))
            right = (logits.detach().argmax(1) == labels[part]).sum()
            return loss, torch.stack((loss.detach(), right.float()))

        def set_gradients() -> Tensor:
            self.optimizer.zero_grad(set_to_none=True)
            if self.parts:
                return self.parts.backward(loss_of, len(x), seed)
            loss, noted = loss_of(slice(None))
            torch.autograd.backward(loss)
            return noted

        forward = self.forward
        noted = forward.attempt(set_gradients) if isinstance(forward, Compiled) else set_gradients()
        if recipe.clip:
            nn.utils.clip_grad_norm_(self.classifier.net.parameters(), recipe.clip)
        self.optimizer.step()
        return noted

    def _end_epoch(self, loss: float, train_accuracy: float) -> None:
        """Count the epoch and add a point to the learning curve."""
        if not math.isfinite(loss):
            raise UserError(
                f"the training loss of {self.plan.member.name} is {loss} in epoch {self.epoch + 1}; "
                "try float32 precision, or another seed."
            )
        self.epoch += 1
        point = {"epoch": float(self.epoch), "loss": loss, "train_accuracy": train_accuracy}
        every = max(1, self.recipe.epochs // EVALUATIONS)
        if self.epoch % every == 0 and self.epoch < self.recipe.epochs:
            point["clean_accuracy"] = self._clean_accuracy()
        self.curve.append(point)

    def _clean_accuracy(self) -> float:
        return clean_accuracy(self.classifier.eval(), self.test, str(self.device))

    # ---- saved states

    @property
    def state_file(self) -> Path:
        return self.plan.path.with_suffix(".training.pt")

    def save_state(self) -> None:
        state = {
            "plan": self.plan.digest, "precision": self.precision,
            "epoch": self.epoch, "seconds": self.seconds, "curve": self.curve,
            "net": self.classifier.net.state_dict(), "optimizer": self.optimizer.state_dict(),
        }  # fmt: skip
        buffer = io.BytesIO()
        torch.save(state, buffer)
        write_atomically(self.state_file, buffer.getvalue())
        self.saved_at = time.perf_counter()

    def resume(self) -> None:
        """Load the saved state of a killed run of the same plan, if there is one."""
        if not self.state_file.exists():
            return
        try:
            state: dict[str, Any] = torch.load(self.state_file, map_location=self.device, weights_only=True)
            if state["plan"] != self.plan.digest:
                raise UserError("it belongs to another plan")
            if state["precision"] != self.precision:
                raise UserError(f"it is in {state['precision']}, not {self.precision}")
            self.classifier.net.load_state_dict(state["net"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.epoch, self.seconds, self.curve = state["epoch"], state["seconds"], state["curve"]
        except Exception as problem:  # torch has many exceptions for a damaged file
            if out_of_memory(problem):
                raise
            why = str(problem) if isinstance(problem, UserError) else "it is damaged"
            raise UserError(
                f"the interrupted training in {self.state_file} cannot be continued: {why}; delete this "
                "file, and the training begins again."
            ) from None

    def finish(self) -> None:
        began = time.perf_counter()
        clean = self._clean_accuracy()
        self.curve[-1]["clean_accuracy"] = clean
        described = {
            "clean_accuracy": clean,
            "warning": accuracy_warning(self.classifier, self.test, clean, str(self.device)),
            "test_images": len(self.test), "epochs": self.recipe.epochs,
            "seconds": round(self.seconds + time.perf_counter() - began, 1),
            "device": self.device.type, "machine": machine(), "processor": processor(str(self.device)),
            "threads": torch.get_num_threads(),
            "precision": self.precision, "parameters": sum(p.numel() for p in self.classifier.parameters()),
            "versions": versions(), "curve": self.curve,
        }  # fmt: skip
        if read(self.plan.path) in (None, self.stored_before):
            save_trained(self.plan, self.classifier, described)
        self.state_file.unlink(missing_ok=True)


class Compiled:
    """A network by torch.compile; as it is, with a warning, where that fails, as without a C compiler."""

    def __init__(self, net: nn.Module) -> None:
        self._net = net
        self._forward: Callable[[Tensor], Tensor] = torch.compile(net)
        self._worked = False

    def __call__(self, x: Tensor) -> Tensor:
        return self._forward(x)

    def attempt(self, step: Callable[[], Tensor]) -> Tensor:
        """What `step` returns, which goes through the network, forwards and backwards.

        Both are compiled when first used, so the first step that fails is made again, uncompiled.
        """
        if self._worked:
            return step()
        before = [buffer.clone() for buffer in self._net.buffers()]
        try:
            noted = step()
        except UserError:
            raise
        except Exception as problem:  # torch has many exceptions for this
            warnings.warn(
                f"torch.compile does not work here ({first_line(problem)}); training goes on without it, "
                "more slowly.",
                stacklevel=2,
            )
            self._forward = self._net
            with torch.no_grad():  # the statistics of norm layers, which forwards alone may have changed
                for buffer, value in zip(self._net.buffers(), before, strict=True):
                    buffer.copy_(value)
            noted = step()
        self._worked = True
        return noted


def learning_rate(recipe: Recipe, step: int, steps: int) -> float:
    """Linear warm-up over the first `warmup` of the steps, then a cosine down to `final_lr`."""
    warm = recipe.warmup * steps
    if step < warm:
        return recipe.lr * (step + 1) / (warm + 1)
    done = (step - warm) / max(1.0, steps - warm)
    return recipe.final_lr + (recipe.lr - recipe.final_lr) * (1 + math.cos(math.pi * done)) / 2


def make_optimizer(recipe: Recipe, net: nn.Module, device: torch.device) -> torch.optim.Optimizer:
    """SGD or AdamW. Weight decay of norms and biases is set by the recipe."""
    trained = [p for p in net.parameters() if p.requires_grad]
    if not trained:
        raise UserError("no parameter of the network requires a gradient, so that nothing can be trained.")
    groups = [
        {"params": [p for p in trained if p.ndim > 1], "weight_decay": recipe.weight_decay},
        {
            "params": [p for p in trained if p.ndim <= 1],
            "weight_decay": recipe.weight_decay if recipe.decay_all else 0.0,
        },
    ]
    fused = device.type in ("cpu", "cuda")
    if recipe.optimizer == "sgd":
        return torch.optim.SGD(groups, lr=recipe.lr, momentum=0.9, nesterov=True, fused=fused)
    return torch.optim.AdamW(groups, lr=recipe.lr, fused=fused)


def resolve_precision(precision: str, recipe: Recipe, device: torch.device) -> str:
    """Resolve "auto": the recipe's precision; if this is "auto" too, bfloat16 on GPUs that support it."""
    if precision == "auto":
        precision = recipe.precision
    if precision == "auto":
        return "bfloat16" if device.type == "cuda" and torch.cuda.is_bf16_supported() else "float32"
    check_precision(precision)
    return precision


def check_precision(precision: str) -> None:
    """Raises UserError for what is no precision of a training."""
    if precision not in ("auto", "float32", "bfloat16"):
        raise UserError(f"precision is '{precision}'; expected auto, float32 or bfloat16.")


@contextmanager
def _isolated(threads: int, device: torch.device) -> Iterator[int]:
    """Restore torch's global generators and number of threads after the block; yields this number."""
    before = torch.get_num_threads()
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices), torch_threads(threads or before):
        yield before
