"""Quantile matching to the letter of its paper: each point where `quantile_paper` differs is a setting."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.unit.made_quantile import QUICK, classifier, shifted, source
from ttabench.measure.order_and_batches import Stream
from ttabench.method import Method
from ttabench.registry import method
from ttabench_methods.quantile import QuantilePaper, QuantilePaperConfig
from ttabench_methods.quantile.strict import QuantileStrict, QuantileStrictConfig

PAGE = Path(__file__).resolve().parents[4] / "docs" / "quantile.md"
AS_BEFORE = {"keep": "lowest", "rebase": "stored", "clip": 1.0}


def fitted(settings: dict[str, Any], cls: type[QuantilePaper] = QuantileStrict) -> Any:
    torch.manual_seed(0)
    adapter = cls(classifier(), cls.Config(**{**QUICK, "epochs": 3, **settings}))
    adapter.prepare(source())
    x, _ = shifted(64)
    adapter.fit(Stream(x, np.arange(64), 64))
    return adapter


def state(adapter: Method[Any]) -> dict[str, torch.Tensor]:
    return dict(adapter.decorruptor.state_dict())  # type: ignore[attr-defined]


def test_its_settings_are_the_papers() -> None:
    config = QuantileStrictConfig()
    assert method("quantile_strict") is QuantileStrict
    assert (config.keep, config.rebase, config.clip, config.loss) == ("last", "current", 0, "quantile")
    assert (config.start, config.bank, config.size, config.standardise) == (
        "identity", "epoch", "paper", False,
    )  # fmt: skip


@pytest.mark.parametrize("more", [{}, {"lr": 0.3, "epochs": 1}, {"bank": "step"}, {"bank": "none"}])
def test_with_the_settings_of_quantile_paper_it_has_the_same_numbers(more: dict[str, Any]) -> None:
    """The second case ends at the start, the parameters of lowest loss."""
    strict, known = fitted({**AS_BEFORE, **more}), fitted(more, QuantilePaper)
    assert known.config == QuantilePaperConfig(**{**QUICK, "epochs": 3, **more})
    assert strict.losses == known.losses
    assert strict.kept == known.kept
    for name, value in state(known).items():
        assert torch.equal(state(strict)[name], value), name


def test_the_last_parameters_are_returned_even_where_the_loss_rose() -> None:
    rising = {"lr": 0.3, "epochs": 1}
    last, lowest = fitted(rising), fitted({**rising, "keep": "lowest"})
    assert last.losses[-1] > last.losses[0]
    assert not last.decorruptor.untrained
    assert last.kept == last.losses[-1]
    assert lowest.decorruptor.untrained


@pytest.mark.parametrize("rebase", ["current", "stored"])
def test_the_bank_is_rebuilt_with_the_current_parameters(rebase: str) -> None:
    adapter = fitted({"rebase": rebase})
    x, _ = shifted(64)
    exact = adapter._loss_of(Stream(x, np.arange(64), 64))
    assert (adapter.losses[-1] == pytest.approx(exact, rel=1e-5)) == (rebase == "current")


@pytest.mark.parametrize("clip", [0.0, 1e-3])
def test_gradients_are_clipped_only_if_asked_to(clip: float) -> None:
    adapter = fitted({"clip": clip, "epochs": 1})
    norm = torch.nn.utils.get_total_norm([p.grad for p in adapter.decorruptor.parameters()])
    assert (float(norm) <= 1.001e-3) == bool(clip)


@pytest.mark.parametrize("loss", ["quantile", "mmd", "moments", "sliced"])
def test_each_loss_undoes_a_shift_through_the_same_decorruptor_and_bank(loss: str) -> None:
    adapter = fitted({"loss": loss, "epochs": 8})
    x, labels = shifted(64)
    batch = next(iter(Stream(x, np.arange(64), 64)))
    before = float((adapter.model(batch).argmax(1) == labels).float().mean())
    after = float((adapter.predict(batch).argmax(1) == labels).float().mean())
    assert before < 0.8
    assert after > 0.95
    assert adapter.losses[-1] < 0.5 * adapter.losses[0]


def test_the_loss_of_the_page_is_matched_through_the_bank() -> None:
    """docs/quantile.md: a loss of your own."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    page: dict[str, Any] = {}
    exec(code, page)
    z = torch.randn(20, 3, generator=torch.Generator().manual_seed(0))
    loss = page["Covariance"](z)
    assert float(loss.loss(loss.mean(z))) == 0
    halves = torch.stack([loss.mean(z[:10] + 1), loss.mean(z[10:])])
    torch.testing.assert_close(halves.mean(0), loss.mean(torch.cat([z[:10] + 1, z[10:]])))
    adapter = fitted({"epochs": 8}, page["CovarianceMatching"])
    assert adapter.name == "covariance_matching"
    assert isinstance(adapter.separable, page["Covariance"])
    assert adapter.losses[-1] < 0.5 * adapter.losses[0]


@pytest.mark.parametrize("loss", ["quantile", "mmd"])
def test_online_a_stream_is_adapted_to(loss: str) -> None:
    torch.manual_seed(0)
    adapter = QuantileStrict(classifier(), QuantileStrictConfig(**{**QUICK, "loss": loss}))
    adapter.prepare(source())
    x, _ = shifted(64)
    batch = next(iter(Stream(x, np.arange(64), 64)))
    assert adapter.adapt(batch).shape == (64, 4)
    assert not adapter.decorruptor.untrained


def test_an_offset_costs_next_to_nothing() -> None:
    adapter = fitted({"decorruptor": "offset", "lr": 0.05})
    assert sum(p.numel() for p in adapter.decorruptor.parameters()) == 3
    assert adapter.losses[-1] < adapter.losses[0]
    assert "3 parameters" in adapter.adapted()


@pytest.mark.parametrize(
    ("settings", "word"), [({"bank": "optimal"}, "optimal"), ({"loss": "mmd", "per_class": 1.0}, "per_class")]
)
def test_settings_that_exclude_each_other_are_refused(settings: dict[str, Any], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        QuantileStrictConfig(**settings)
