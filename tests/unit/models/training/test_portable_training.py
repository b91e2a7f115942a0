"""A portable recipe makes the same weights on every x86-64 processor with AVX2."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.unit.conftest import Run
from tests.unit.models.training.test_training import TINY, Bars
from tests.unit.models_by_name import train
from ttabench.errors import UserError
from ttabench.models.architectures.arch_names import resolve
from ttabench.models.training import recipes
from ttabench.models.training.portable import KERNELS, check_kernels
from ttabench.models.training.recipes import portable, recipe_for

ROOT = Path(__file__).resolve().parents[4]
AVX2 = torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512")
needs_avx2 = pytest.mark.skipif(not AVX2, reason="a portable recipe needs a processor with AVX2")

TORCH = "2.13.0"
WEIGHTS = {
    "resnet18_w8": "9957790c631d394229c4e90a01cf386c7a2f92f53c98633868cc94f3b2239af6",
    "cct_2_3x2_32": "8d9c0a864f37648bcf1bb53ee84d647593a7a65cf973ccdeadce2cbf76ea473a",
    "vit_2_4_32": "6469815f81f655f356c0324c8f4cfc7e1c423c923e39e98e327a1d100965f4d5",
}
"""Hashes with this version of torch: the same on an AMD processor with AVX-512 and on emulated ones that
have AVX2 alone: Intel Haswell, Intel Skylake and the first AMD EPYC (`qemu-x86_64 -cpu Haswell python …`)."""


def weights(arch: str, cache: Path, **variables: str) -> str:
    """The hash of weights that a process with the fixed kernels trains on a few images."""
    code = f"from {__name__} import show; show({arch!r})"
    environment = {**os.environ, **variables, **KERNELS, "TTABENCH_CACHE": str(cache)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def show(arch: str) -> None:
    """Print the hash; in a process of its own, so the recipe is replaced for good."""
    from ttabench.models.training import weights_identity

    part = 0 if arch.startswith("resnet") else 8
    weights_identity.recipe_for = lambda *_: portable(replace(TINY, randaugment=0), part)
    print(train(arch, Bars()).sha256)


@needs_avx2
@pytest.mark.skipif(torch.__version__.partition("+")[0] != TORCH, reason=f"the hashes are those of {TORCH}")
@pytest.mark.parametrize(
    "arch",
    ["resnet18_w8", *(pytest.param(name, marks=pytest.mark.slow) for name in ("cct_2_3x2_32", "vit_2_4_32"))],
)
def test_the_weights_are_the_same_on_all_processors(arch: str, tmp_path: Path) -> None:
    assert weights(arch, tmp_path, OMP_NUM_THREADS="2") == WEIGHTS[arch]


@pytest.mark.slow
@needs_avx2
def test_the_number_of_threads_changes_no_weight(tmp_path: Path) -> None:
    one, three = (
        weights("vit_2_4_32", tmp_path / threads, OMP_NUM_THREADS=threads) for threads in ("1", "3")
    )
    assert one == three


@pytest.mark.slow
@needs_avx2
def test_train_gives_its_workers_the_kernels(
    ttabench: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TTABENCH_CACHE", str(tmp_path))
    options = ("--archs", "resnet18_w8", "--recipe", "fast-portable", "--epochs", "1", "--workers", "1")
    out = ttabench("train", *options)
    assert out.code == 0
    assert "To use these weights: --archs resnet18 --datasets digits-c --checkpoint " in out.out
    (file,) = (tmp_path / "models/digits-c").glob("resnet18_w8-fast-portable-*.json")
    note = json.loads(file.read_text())
    assert note["recipe"]["portable"] == 2
    assert note["processor"].endswith("AVX2")
    assert note["threads"] == 1
    assert set(KERNELS.items()).isdisjoint(os.environ.items())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--precision", "bfloat16"), "a portable recipe is trained in float32, not in bfloat16"),
        (("--workers", "0"), "a portable recipe needs a worker process; train with --workers 1 or more."),
        (("--recipe", "fast-portabel"), "did you mean 'fast-portable'?"),
    ],
)
def test_what_a_portable_recipe_cannot_do_is_refused(
    options: tuple[str, ...], message: str, ttabench: Run,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("TTABENCH_CACHE", str(tmp_path))
    recipe = () if "--recipe" in options else ("--recipe", "fast-portable")
    out = ttabench("train", "--archs", "resnet18_w8", *recipe, *options)
    assert out.code == 2
    assert message in out.err
    assert not list(tmp_path.rglob("*.safetensors"))


def test_a_process_without_the_kernels_or_without_avx2_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="needs a worker process"):
        check_kernels({**KERNELS, "MKL_CBWR": "AUTO"})
    monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda: "DEFAULT")
    with pytest.raises(UserError, match="needs an x86-64 processor with AVX2; torch has kernels for DEFAULT"):
        check_kernels(KERNELS)


def test_the_portable_form_of_a_recipe_differs_in_nothing_but_how_it_is_computed() -> None:
    member = resolve("resnet18", dataset="x-local", image_size=32, num_classes=10)
    plain, ours = recipe_for(member, "x-local", "paper"), recipe_for(member, "x-local", "paper-portable")
    assert plain.identity().items() - ours.identity().items() == {("name", "paper"), ("compile", True)}
    assert ours.identity().items() - plain.identity().items() == {
        ("name", "paper-portable"), ("portable", 2), ("precision", "float32"), ("threads", 1),
    }  # fmt: skip
    cct = resolve("cct_2", dataset="x-local", image_size=32, num_classes=10)
    valid = (
        r"Valid: cross-entropy, cross-entropy-portable, fast, fast-portable, paper\."  # RandAugment has none
    )
    with pytest.raises(UserError, match=valid):
        recipe_for(cct, "x-local", "portable")
    plain, ours = recipe_for(cct, "x-local", "fast"), recipe_for(cct, "x-local", "fast-portable")
    assert ("part", 32) in ours.identity().items() - plain.identity().items()
    assert recipe_for(member, "x-local").name == recipes.FAST
