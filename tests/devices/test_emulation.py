"""The emulated device refuses what a GPU refuses, allows what it allows, and counts the waits of the host."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn

from tests.cases import each
from tests.devices.emulated import Emulated, MixedDevices


@pytest.fixture
def gpu() -> Iterator[Emulated]:
    with Emulated() as emulated:
        yield emulated


def ones(*shape: int) -> Tensor:
    return torch.ones(shape, device="cuda")


MIXED: dict[str, Callable[[], object]] = {
    "a factory without a device": lambda: ones(3) + torch.ones(3),
    "matrix product": lambda: ones(3, 3) @ torch.ones(3, 3),
    "linear": lambda: nn.functional.linear(ones(2, 3), torch.ones(4, 3)),
    "a network left on the host": lambda: nn.Conv2d(3, 4, 3)(ones(1, 3, 8, 8)),
    "batch norm buffers": lambda: nn.functional.batch_norm(ones(2, 3), torch.zeros(3), ones(3)),
    "cat": lambda: torch.cat([ones(3), torch.ones(3)]),
    "stack of scalars": lambda: torch.stack([ones(), torch.ones(())]),
    "gather": lambda: ones(3).gather(0, torch.zeros(2, dtype=torch.long)),
    "index_add": lambda: ones(3).index_add_(0, torch.zeros(3, dtype=torch.long), ones(3)),
    "an index there, the data here": lambda: torch.ones(3)[ones(2).long()],
    "values put at an index": lambda: ones(3).index_put_((ones(2).long(),), torch.ones(2)),
    "a host tensor in place": lambda: torch.ones(3).add_(ones(3)),
    "a host scalar in place": lambda: torch.ones(()).add_(ones()),
    "where": lambda: torch.where(ones(3) > 0, torch.ones(3), ones(3)),
    "cross entropy": lambda: nn.functional.cross_entropy(ones(2, 3), torch.zeros(2, dtype=torch.long)),
    "foreach": lambda: torch._foreach_add([ones(3)], [torch.ones(3)]),
    "a generated view": lambda: ones(4).view(2, 2).T[0] * torch.ones(2),
    "a copy of a network": lambda: copy.deepcopy(nn.Linear(3, 3).to("cuda"))(torch.ones(1, 3)),
    "numpy": lambda: torch.ones(3) * torch.from_numpy(ones(3).cpu().numpy()) * ones(3),
}


@pytest.mark.parametrize("mix", MIXED.values(), ids=MIXED)
def test_a_planted_mixture_is_refused(gpu: Emulated, mix: Callable[[], object]) -> None:
    with pytest.raises(MixedDevices, match="device tensors meet host tensors"):
        mix()


ALLOWED: dict[str, Callable[[], Tensor]] = {
    "a number": lambda: ones(3) * 2.0,
    "a host scalar": lambda: ones(3) * torch.tensor(2.0),
    "a host scalar in where": lambda: torch.where(ones(3) > 0, ones(3), torch.tensor(0.0)),
    "a host index": lambda: ones(3)[torch.tensor([0, 1])],
    "a list": lambda: ones(3)[[0, 2]],
    "a copy to the device": lambda: ones(3).copy_(torch.zeros(3)),
    "like": lambda: ones(3) + torch.zeros_like(ones(3)) + ones(3).new_zeros(3) + ones(3).new_tensor([1.0]),
    "to another tensor": lambda: torch.ones(3).to(ones(1)) + ones(3),
    "the same device": lambda: torch.arange(3, device=ones(1).device) + ones(3),
    "one hot": lambda: nn.functional.one_hot(ones(3).long(), 4) * ones(3, 4),
    "moved network": lambda: nn.Linear(3, 3).to("cuda")(ones(1, 3)),
    "copied network": lambda: copy.deepcopy(nn.Linear(3, 3).to("cuda"))(ones(1, 3)),
    "tensor": lambda: torch.tensor([1.0, 2.0, 3.0], device="cuda") + ones(3),
}


@pytest.mark.parametrize("run", ALLOWED.values(), ids=ALLOWED)
def test_what_torch_allows_is_allowed_and_does_not_wait(gpu: Emulated, run: Callable[[], Tensor]) -> None:
    out = run()
    assert out.device.type == "cuda"
    assert out.is_cuda
    assert gpu.waits == []


WAITS: dict[str, Callable[[Tensor], object]] = {
    "item": lambda x: x.sum().item(),
    "bool": lambda x: bool((x > 0).any()),
    "float": lambda x: float(x.sum()),
    "int": lambda x: int(x.sum()),
    "tolist": lambda x: x.tolist(),
    "cpu": lambda x: x.cpu(),
    "to": lambda x: x.to("cpu"),
    "copy": lambda x: torch.zeros(3).copy_(x),
    "nonzero": lambda x: x.nonzero(),
    "mask": lambda x: x[x > 0],
    "mask assigned": lambda x: x.__setitem__(x > 0, 2 * x),
    "masked_select": lambda x: x.masked_select(x > 0),
    "unique": lambda x: x.unique(),
    "bincount": lambda x: x.long().bincount(),
    "equal": lambda x: torch.equal(x, x),
    "print": lambda x: repr(x),
}


@pytest.mark.parametrize("read", WAITS.values(), ids=WAITS)
def test_what_makes_the_host_wait_is_counted_once(gpu: Emulated, read: Callable[[Tensor], object]) -> None:
    read(torch.ones(3))
    assert gpu.waits == []
    read(ones(3))
    assert len(gpu.waits) == 1
    assert "tests/devices/test_emulation.py:" in gpu.waits[0]


COPIES: dict[str, Callable[[Tensor], object]] = {
    "to": lambda x: torch.ones(3).to("cuda"),
    "cuda": lambda x: torch.ones(3).cuda(),
    "like another": lambda x: torch.ones(3).to(x),
    "tensor": lambda x: torch.tensor([1.0, 2.0], device="cuda"),
    "as_tensor": lambda x: torch.as_tensor([1.0, 2.0], device="cuda"),
    "new_tensor": lambda x: x.new_tensor([1.0]),
    "copy_": lambda x: x.copy_(torch.zeros(3)),
    "a host index": lambda x: x[torch.tensor([0, 2])],
    "a list as index": lambda x: x[[0, 2]],
    "network": lambda x: nn.Linear(3, 3, bias=False).to("cuda"),
}


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
def test_what_is_copied_to_the_device_is_counted_once(
    gpu: Emulated, copied: Callable[[Tensor], object]
) -> None:
    x = ones(3) * torch.tensor(2.0) + torch.zeros(3, device="cuda") + torch.zeros_like(ones(3))
    x = x[ones(3).long()]
    assert gpu.copies == []
    copied(x)
    assert len(gpu.copies) == 1
    assert "tests/devices/test_emulation.py:" in gpu.copies[0]


def test_operations_on_the_device_are_counted_without_views(gpu: Emulated) -> None:
    x, host = ones(2, 3).requires_grad_(), torch.ones(2, 3)
    gpu.operations = 0
    assert (host + 1).T.sum() == 12
    assert x.T.reshape(3, 2).detach()[0].is_cuda
    assert gpu.operations == 0
    y = (x * 2).exp()
    assert gpu.operations == 2
    y.sum().backward()
    assert gpu.operations > 4  # the sum, and what makes the gradients


def test_a_device_tensor_has_no_numpy(gpu: Emulated) -> None:
    with pytest.raises(TypeError, match="numpy"):
        ones(3).numpy()


def test_host_tensors_stay_on_the_host(gpu: Emulated) -> None:
    assert torch.zeros(3).device.type == "cpu"
    assert ones(3).cpu().device.type == "cpu"
    assert torch.zeros_like(ones(3), device="cpu").device.type == "cpu"
    assert ones(3).cpu().numpy().tolist() == [1, 1, 1]


@each("kind", [torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD])
@each("how", [{}, {"fused": True}, {"foreach": True}], ids=str)
def test_training_computes_what_it_computes_on_the_host(
    kind: type[torch.optim.Optimizer], how: dict[str, bool]
) -> None:
    def train(device: str) -> list[Tensor]:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2)).to(device)
        optimizer = kind(net.parameters(), lr=0.1, **how)
        for _ in range(3):
            x = torch.randn(16, 4).to(device)
            optimizer.zero_grad()
            net(x).square().mean().backward()
            nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            optimizer.step()
        return [p.detach().to("cpu") for p in net.parameters()]

    with Emulated() as gpu:
        there = train("cuda")
        assert len(gpu.waits) == len(there)  # the copies at the end
    for here, moved in zip(train("cpu"), there, strict=True):
        torch.testing.assert_close(here, moved)


def test_gradients_cross_with_their_tensors(gpu: Emulated) -> None:
    host = torch.ones(3, requires_grad=True)
    (host.to("cuda") * ones(3)).sum().backward()
    assert host.grad is not None
    assert host.grad.device.type == "cpu"
    there = ones(3).requires_grad_()
    (there * 2).sum().backward()
    assert there.grad is not None
    assert there.grad.device.type == "cuda"
