"""Settings of torch that a user's program has made change no number."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import ttabench

STATE = '''
import torch
from torch import backends

def state():
    """The settings of torch on which numbers depend; what torch refuses to read is "refused"."""
    def read(value):
        try:
            return str(value())
        except RuntimeError:
            return "refused"
    matmul = backends.cuda.matmul
    places = (backends, matmul, backends.cudnn, backends.mkldnn)
    return [read(value) for value in (
        torch.get_default_dtype, torch.get_default_device, torch.is_grad_enabled,
        torch.is_inference_mode_enabled, lambda: torch.is_autocast_enabled("cpu"),
        torch.get_float32_matmul_precision, lambda: matmul.allow_tf32, lambda: backends.cudnn.allow_tf32,
        lambda: backends.cudnn.enabled, lambda: backends.cudnn.benchmark,
        lambda: backends.cudnn.deterministic, lambda: backends.mkldnn.enabled,
        torch.get_deterministic_debug_mode,
        lambda: [getattr(place, "fp32_precision", "") not in ("tf32", "bf16") for place in places],
    )]

FRESH = state()
'''
SETTINGS = (
    "torch.set_default_dtype(torch.float64)",
    "torch.set_default_device('meta')",
    "torch.set_grad_enabled(False)",
    "(mode := torch.inference_mode()).__enter__()",
    "torch.autocast('cpu', torch.bfloat16).__enter__()",
    "torch.set_float32_matmul_precision('medium')",
    "torch.backends.cuda.matmul.allow_tf32 = True",
    "torch.backends.cudnn.allow_tf32 = False",
    "torch.backends.cudnn.benchmark = True",
    "torch.backends.cudnn.deterministic = True",
    "torch.backends.mkldnn.enabled = False",
    "torch.use_deterministic_algorithms(True, warn_only=True)",
    "torch.backends.fp32_precision = 'tf32'",
    "torch.backends.cuda.matmul.fp32_precision = 'tf32'",
    "torch.backends.cudnn.fp32_precision = 'ieee'",
)


def run(path: Path, code: str) -> str:
    path.write_text(STATE + code)
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_in_the_block_and_in_a_worker_torch_is_as_in_a_new_process_and_afterwards_as_before(
    tmp_path: Path,
) -> None:
    """Python runs the top of the main script in each worker process."""
    settings = "\n".join(one for one in SETTINGS if "fp32_precision" not in one)
    said = run(tmp_path / "script.py", f"""
import os
from ttabench.measure.torch_defaults import default_kernels, default_modes

for setting in {SETTINGS!r} if __name__ == "__main__" else ():
    pid = os.fork()  # each setting in a process of its own
    if not pid:
        if "fp32_precision" not in setting or hasattr(torch.backends, "fp32_precision"):  # since torch 2.9
            exec(setting)
        before = state()
        if "fp32_precision" not in setting:
            assert before != FRESH, setting
        with default_modes(), default_kernels():
            inside = state()
        print(setting, inside == FRESH, state() == before, flush=True)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0, setting


class Job:
    def __call__(self, emit, where):
        return state()

    def __reduce__(self):
        return Job, ()

{settings}
assert state() != FRESH
if __name__ == "__main__":
    from ttabench.run.executors import local
    (inside,) = local.run([Job()], 1)
    assert inside == FRESH, inside
    print("fine")
""")  # fmt: skip
    assert said.splitlines() == [*(f"{setting} True True" for setting in SETTINGS), "fine"]


@pytest.mark.parametrize("method", ["cotta", "tent"])
def test_the_default_type_changes_no_score(method: str) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 4),
    )
    images = np.random.default_rng(0).integers(0, 256, (40, 16, 16, 3), dtype=np.uint8)

    def score() -> dict[str, list[float]]:
        adapted = ttabench.adapt(net, method, image_size=16)
        return ttabench.evaluate(adapted, images, np.arange(40) % 4, batch_size=10).calibration

    expected = score()
    try:
        torch.set_default_dtype(torch.float64)
        assert score() == expected
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


NOTED: set[str] = set()


class Noting(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        NOTED.add(torch.get_float32_matmul_precision())
        return super().forward(x)


def test_a_score_has_the_precision_of_its_protocol_and_not_that_of_the_program() -> None:
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), Noting(8, 4))
    images = np.random.default_rng(0).integers(0, 256, (20, 16, 16, 3), dtype=np.uint8)
    NOTED.clear()
    try:
        torch.set_float32_matmul_precision("high")
        adapted = ttabench.adapt(net, "neo", image_size=16, source=[torch.rand(9, 3, 16, 16)])
        ttabench.evaluate(adapted, images, np.arange(20) % 4, batch_size=10)
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision("highest")
    assert sorted(NOTED) == ["highest"]


def test_gradients_and_autograd_of_the_caller_do_not_count() -> None:
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)
    )
    images = np.random.default_rng(0).integers(0, 256, (20, 16, 16, 3), dtype=np.uint8)

    def score() -> dict[str, list[float]]:
        adapted = ttabench.adapt(net, "tent", image_size=16)
        return ttabench.evaluate(adapted, images, np.arange(20) % 4, batch_size=10).calibration

    expected = score()
    with torch.inference_mode():
        assert score() == expected
