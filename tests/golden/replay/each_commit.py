"""Which traces are replayed at each commit: of each method quick ones that reach most branches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

# The whole trace.
WHOLE = {
    "source-bn_cnn", "source-ln_vit", "norm-bn_cnn-A", "norm-bn_cnn-B",
    "tent-bn_cnn-B", "tent-gn_cnn-B",
    "eata-bn_cnn-B", "eata-gn_cnn-C",  # with Fisher information and without
    "sar-bn_cnn-C",  # restores the model, also with an empty set
    "cotta-bn_cnn-D", "cotta_transform",
    "rotta-bn_cnn-B", "rotta-bn_cnn-C",  # updates in the middle of a batch; recorded views
    "sotta-bn_cnn-A", "sotta-bn_cnn-D",  # evicts; never learns
    "medbn_layer", "medbn_forward-bn_cnn-B", "medbn_tent-bn_cnn-B",
    "deyo-bn_cnn-B", "deyo-gn_cnn-A",
    "lame-bn_cnn-B", "lame-bn_cnn-C", "lame-gn_cnn-A",  # the three affinities
    "memo-bn_cnn-B", "memo-gn_cnn-B",  # the two optimisers, one step and two
    "roid-bn_cnn-A", "roid-gn_cnn-A",
    "shot-bn_cnn-A", "shot_offline-bn_cnn-B",
    "t3a-bn_cnn-C", "t3a-gn_cnn-A",
    "neo-bn_cnn-A", "neo-bn_cnn-B",  # the two forms
    "actmad_vit-ln_vit-A", "ttac-bn_cnn-A", "lineartca-bn_cnn-A",
    "cmf-bn_cnn-C", "come_tent-bn_cnn-B", "come_eata-bn_cnn-A", "come_sar-gn_cnn-A", "poem-gn_cnn-B",
    "rdumb-bn_cnn-A",
}  # fmt: skip

# So many images of it: these take long, or others of the method show most of it.
BEGINNINGS = {
    "tent-bn_cnn-C": 100,  # episodic, three steps
    "eata-ln_vit-B": 100, "sar-ln_vit-C": 100,
    "cotta-bn_cnn-B": 100,  # with views and without; weights are restored
    "sotta-bn_cnn-C": 100, "sotta-ln_vit-B": 100,
    "medbn_eata-bn_cnn-A": 100, "medbn_ema_tent-bn_cnn-A": 100, "medbn_sar-bn_cnn-A": 100,
    "medbn_sotta-bn_cnn-A": 100,
    "foa-cls_vit-B": 96,
    "deyo-ln_vit-A": 96,
    "shot_ttab-bn_cnn-B": 96,
    "actmad-bn_cnn-B": 128, "ttac-ln_vit-B": 128,
    "cmf-ln_vit-A": 100,
}  # fmt: skip


def whole(cases: Iterable[Any]) -> list[Any]:
    """Parameters of a test that replays whole traces: a name, or what has one at the end."""
    params = []
    for case in cases:
        values = case if isinstance(case, tuple) else (case,)
        marks = () if values[-1] in WHOLE else pytest.mark.slow
        params.append(pytest.param(*values, id="/".join(values), marks=marks))
    return params


def beginnings(cases: Iterable[Any]) -> list[Any]:
    """The cases that are begun at each commit."""
    return [case for case in cases if (case if isinstance(case, str) else case[-1]) in BEGINNINGS]


def methods(names: Iterable[str]) -> set[str]:
    """The methods of these traces, without the copies of methods in another repository."""
    return {name.split("-")[0] for name in names if not name.startswith("sottarepo_")}


def first_of_each(changes: Iterable[tuple[str, str, Any]]) -> list[Any]:
    """(trace, setting, value): at each commit the first setting of each trace, as all are read in one way."""
    seen: set[str] = set()
    params = []
    for name, key, value in changes:
        marks = pytest.mark.slow if name in seen else ()
        params.append(pytest.param(name, key, value, marks=marks))
        seen.add(name)
    return params
