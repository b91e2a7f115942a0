"""Weights files that hold more than numbers, are damaged, or are something else."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from ttabench.errors import UserError
from ttabench.models.checkpoints.read_weights import read_weights, rewrapped
from ttabench.models.checkpoints.weights import load_weights


def test_texts_and_files_beside_the_arrays_of_an_npz_are_left_out(tmp_path: Path) -> None:
    arrays = {"w": np.ones((2, 2), np.float32), "n": np.array(3), "u": np.uint8([1]), "b": np.array([True])}
    np.savez(tmp_path / "a.npz", **arrays, arch="resnet18", when=np.datetime64("2026-01-01"))
    result = read_weights(tmp_path / "a.npz")
    assert result.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(result[name].numpy(), array)


def test_an_npz_of_texts_alone_holds_no_tensors(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", arch="resnet18")
    with pytest.raises(UserError, match=r"a\.npz holds no tensors"):
        read_weights(tmp_path / "a.npz")


def test_tensors_under_a_name_that_may_mean_other_weights_are_not_taken(tmp_path: Path) -> None:
    torch.save({"ema": {"w": torch.ones(2)}, "epoch": 3}, tmp_path / "a.pt")
    with pytest.raises(
        UserError, match=r"holds no tensors by name, but under ema; save the one that you mean"
    ):
        read_weights(tmp_path / "a.pt")


def test_whole_numbers_of_a_quantised_network_are_no_weights() -> None:
    net = nn.BatchNorm2d(2)
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    tensors = {**before, "bias": torch.tensor([3, -4], dtype=torch.int8)}
    with pytest.raises(
        UserError, match=r"a\.pt holds int8 in bias, and the network has float32: a quantised"
    ):
        load_weights(net, tensors, "a.pt")
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())
    load_weights(net, {**before, "bias": torch.tensor([3.0, -4.0]).half()}, "a.pt")
    assert net.bias.tolist() == [3, -4]


@pytest.mark.parametrize("own", ["", "model."])  # of the names of the network itself
def test_a_network_is_found_among_what_training_scripts_keep_beside_it(own: str, tmp_path: Path) -> None:
    file, wanted = tmp_path / "a.ckpt", nn.Sequential(nn.Conv2d(3, 2, 1), nn.BatchNorm2d(2)).state_dict()

    def found(stored: dict[str, Any]) -> dict[str, Any]:
        torch.save({"state_dict": stored}, file)
        weights = rewrapped(read_weights(file), [own + name for name in wanted], "a.ckpt")
        return {name: tensor.tolist() for name, tensor in weights.items()}

    def below(place: str) -> dict[str, Any]:
        return {f"{place}.{name}": tensor for name, tensor in wanted.items()}

    with warnings.catch_warnings(action="error"):
        averaged = {"n_averaged": torch.tensor(5), **below("module")}
        assert found(averaged) == {own + name: tensor.tolist() for name, tensor in wanted.items()}
        assert found({f"module.{name}": value for name, value in averaged.items()}) == found(averaged)
    criterion = {"loss.weight": torch.ones(2), "loss.pos_weight": torch.ones(2)}
    without_counter = {n: t for n, t in below("encoder").items() if not n.endswith("num_batches_tracked")}
    for network in (below("encoder"), without_counter):
        with pytest.warns(UserWarning, match=r"under encoder; left out beside it: loss\.weight and 1 more"):
            assert len(found({**network, **criterion})) == len(network)
    with pytest.raises(
        UserError, match=r"a\.ckpt holds the network more than once, under ema, student; save"
    ):
        found({**below("student"), **below("ema")})
    larger = {**below("model"), "model.2.weight": torch.ones(2), **criterion}
    assert found(larger).keys() >= {"model.2.weight", "loss.weight"}  # so that loading refuses it


class Versioned(nn.Linear):
    """A layer that looks at the version of its state, as layers of torchvision's MNASNet do."""

    _version = 2

    def _load_from_state_dict(self, state: Any, prefix: str, local_metadata: Any, *rest: Any) -> None:
        assert local_metadata.get("version") == 2
        super()._load_from_state_dict(state, prefix, local_metadata, *rest)


def test_layers_find_the_version_of_their_state() -> None:
    net, other = Versioned(2, 2), Versioned(2, 2)
    load_weights(net, dict(other.state_dict()), "a.pt")
    assert torch.equal(net.weight, other.weight)


def test_arrays_of_the_other_byte_order_are_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", w=np.array([1.5, -2], ">f4"))
    assert torch.equal(read_weights(tmp_path / "a.npz")["w"], torch.tensor([1.5, -2.0]))


def test_an_npy_that_is_named_npz_is_no_npz(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.ones(3))
    file = (tmp_path / "a.npy").rename(tmp_path / "a.npz")
    with pytest.raises(UserError, match=r"a\.npz is truncated or no npz file"):
        read_weights(file)


def legacy(file: Path) -> bytes:
    """A file in torch's format from before 1.6, which is no zip file."""
    tensors = {"w": torch.arange(16.0).reshape(4, 4)}
    torch.save(tensors, file, _use_new_zipfile_serialization=False)
    assert torch.equal(read_weights(file)["w"], tensors["w"])
    return file.read_bytes()


def compressed(file: Path) -> bytes:
    np.savez_compressed(file, w=np.arange(900.0).reshape(30, 30))
    return file.read_bytes()


@pytest.mark.parametrize(("make", "name"), [(legacy, "a.pt"), (compressed, "a.npz")])
@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
def test_a_damaged_file_is_a_sentence_wherever_the_damage_is(
    make: Callable[[Path], bytes], name: str, tmp_path: Path
) -> None:
    """torch raises IndexError, TypeError, AssertionError and more on them, zipfile errors of zlib."""
    file = tmp_path / name
    whole, refused = make(file), list[bytes]()
    cut = [whole[:length] for length in range(0, len(whole), 7)]
    wrong = [whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :] for at in range(0, len(whole), 7)]
    for content in (*cut, *wrong):
        file.write_bytes(content)
        try:
            read_weights(file)
        except UserError:
            refused.append(content)
    assert refused[: len(cut)] == cut


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_a_torchscript_program_is_called_by_its_name(tmp_path: Path) -> None:
    file = tmp_path / "a.pt"
    torch.jit.trace(nn.Linear(2, 2), torch.ones(1, 2)).save(file)
    with (
        warnings.catch_warnings(action="error"),
        pytest.raises(UserError, match=r"a\.pt holds a TorchScript program; save its state_dict instead"),
    ):
        read_weights(file)
    torch.save({"constants.pkl": torch.ones(2)}, file)
    assert read_weights(file).keys() == {"constants.pkl"}
