"""The paper's two examples in the plane, and what it says of them."""

from __future__ import annotations

import pytest
import torch

from ttabench_methods.quantile.toys import match, rotation, six_blobs, two_moons, wasserstein


def test_six_blobs_recovers_the_inverse_linear_map() -> None:
    example = six_blobs()
    run = match(example, epochs=150, lr=0.3, every=50)
    shift = torch.linalg.lstsq(example.source, example.target).solution.T
    assert torch.dist(run.matrix @ shift, torch.eye(2)) < 0.05
    for fallen in (run.loss, run.mse, run.wasserstein):
        assert fallen[-1] < 0.05 * fallen[0]
    assert run.epochs == [0, 50, 100, 150]
    torch.testing.assert_close(run.corrected[0], example.target)


def test_two_moons_near_the_symmetry_match_marginals_and_swap_classes() -> None:
    example = two_moons()
    run = match(example, epochs=125, lr=1.0, momentum=0.9, every=125)
    assert run.loss[-1] < 0.02 * run.loss[0]
    assert run.wasserstein[-1] < 0.1 * run.wasserstein[0]
    assert run.mse[-1] > 0.9 * run.mse[0]  # pairs are no closer
    nearest = torch.cdist(run.corrected[-1], example.source).argmin(1)
    assert (example.labels[nearest] != example.labels).float().mean() > 0.95


def test_two_moons_from_the_right_side_find_the_right_answer() -> None:
    run = match(two_moons(start_degrees=150), epochs=125, lr=1.0, momentum=0.9, every=125)
    assert torch.dist(run.matrix, rotation(180)) < 0.1
    assert run.mse[-1] < 0.01 * run.mse[0]


def test_wasserstein_of_a_translation_is_its_length() -> None:
    x = torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
    move = torch.tensor([3.0, -4.0])
    assert wasserstein(x + move, x.flip(0)) == pytest.approx(5.0, rel=1e-5)
