from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import each
from ttabench.cell.protocol import MODES, RESETS, Protocol, parse_call, parse_contamination
from ttabench.cell.stream_spec import LARGEST, STREAM_FORMS, DynamicSpec, HardSpec, StreamSpec, parse_stream


@each(
    "wrong",
    [
        {"mode": "native"}, {"reset": "never"}, {"precision": "float16"}, {"batch_size": 0}, {"limit": -1},
        {"order": "sorted"}, {"order": "dirichlet(-1)"}, {"order": "dirichlet"},
        {"order": "dirichlet(1e999)"},
        {"contamination": "noise(1)"}, {"contamination": "noise(0)"},
        {"held_out": 1.0}, {"held_out": -0.1}, {"held_out": 0.5, "reset": "episodic"},
        {"held_out": 0.5, "contamination": "noise(0.2)"},
        {"mode": "offline", "reset": "episodic"}, {"mode": "online", "epochs": 3},
    ],
)  # fmt: skip
def test_values_outside_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"expected|cannot|belong|neither"):
        Protocol(**wrong)  # type: ignore[arg-type]


@given(
    mode=st.sampled_from(MODES), reset=st.sampled_from(RESETS), batch=st.integers(1, 1000),
    limit=st.integers(0, 10**6), order=st.sampled_from(["iid", "dirichlet(0.1)"]),
)  # fmt: skip
def test_round_trip(mode: str, reset: str, batch: int, limit: int, order: str) -> None:
    if (mode, reset) == ("offline", "episodic"):
        return
    protocol = Protocol(mode=mode, reset=reset, batch_size=batch, limit=limit, order=order)
    assert Protocol.from_json(json.loads(json.dumps(protocol.to_json()))) == protocol


def test_defaults_stay_out_of_the_identity() -> None:
    # so that a field added later does not change the identity of what is stored
    assert Protocol().to_json() == {"mode": "online"}


def test_caption_names_what_differs() -> None:
    caption = Protocol(
        mode="offline", epochs=3, batch_size=64, limit=100, reset="continual", held_out=0.5
    ).caption()
    for part in (
        "offline",
        "3 epochs",
        "batch size 64",
        "first 100 images",
        "reset continual",
        "scored on the 50 %",
    ):
        assert part in caption


def test_unknown_fields_are_refused() -> None:
    with pytest.raises(ValueError, match="speed"):
        Protocol.from_json({"mode": "online", "speed": 3})


def test_parse_call() -> None:
    assert parse_call("dirichlet(0.1)") == ("dirichlet", 0.1)
    assert parse_call("dirichlet(1e-3)") == parse_call("dirichlet(1E-3)") == ("dirichlet", 0.001)
    assert parse_call("dirichlet 0.1") is None
    assert parse_call("dirichlet(x)") is None
    assert (
        parse_contamination("cifar10.1(2e-1)") == parse_contamination("cifar10.1(2E-1)") == ("cifar10.1", 0.2)
    )


@pytest.mark.parametrize(
    ("protocol", "caption"),
    [
        (Protocol(), "online, batch size 200, iid order, reset per corruption, all images"),
        (
            Protocol(mode="offline", epochs=1, batch_size=64, order="dirichlet(0.1)", limit=50),
            "offline, batch size 64, 1 epoch, dirichlet(0.1) order, reset per corruption, first 50 images",
        ),
        (
            Protocol(mode="offline", epochs=2, held_out=0.25, precision="bfloat16"),
            "offline, batch size 200, 2 epochs, iid order, reset per corruption, "
            "scored on the 25 % not adapted on, all images, bfloat16",
        ),
        (
            Protocol(contamination="noise(0.2)", reset="continual"),
            "online, batch size 200, iid order, reset continual, contaminated by noise(0.2), all images",
        ),
    ],
    ids=["defaults", "offline", "held out", "contaminated"],
)
def test_a_caption_is_one_phrase(protocol: Protocol, caption: str) -> None:
    assert protocol.caption() == caption


def test_all_unknown_fields_are_named() -> None:
    with pytest.raises(ValueError, match=r": haste, speed; update ttabench$"):
        Protocol.from_json({"speed": 3, "haste": 1})


@pytest.mark.parametrize(
    ("mode", "held_out", "frozen"),
    [("online", 0.0, False), ("online", 0.01, True), ("offline", 0.0, True), ("offline", 0.5, True)],
)
def test_a_method_is_frozen_where_it_is_scored_after_adapting(
    mode: str, held_out: float, frozen: bool
) -> None:
    assert Protocol(mode=mode, held_out=held_out).frozen is frozen


@each(
    "least",
    [{"batch_size": 1}, {"limit": 1}, {"mode": "offline", "epochs": 1}, {"order": "dirichlet(0)"},
     {"contamination": "noise(0.999)"}, {"held_out": 0.999}, {"reset": "every(1)"}],
)  # fmt: skip
def test_values_at_the_border_are_taken(least: dict[str, object]) -> None:
    assert Protocol(**least)  # type: ignore[arg-type]


@pytest.mark.parametrize("stream", ["recurring(2)", "gradual"])
def test_a_stream_of_test_sets_may_have_foreign_images(stream: str) -> None:
    contaminated = Protocol(stream=stream, contamination="noise(0.2)", reset="continual")
    assert (contaminated.stream, contaminated.contamination) == (stream, "noise(0.2)")


@each(
    "most",
    [{"batch_size": LARGEST}, {"limit": LARGEST}, {"mode": "offline", "epochs": LARGEST}, {"pace": LARGEST},
     {"pace": 1.0, "pace_ratio": LARGEST}, {"reset": f"every({LARGEST})"},
     {"reset": "continual", "stream": f"cdc({LARGEST})"}],
)  # fmt: skip
def test_the_largest_number_is_taken_and_one_more_is_refused(most: dict[str, Any]) -> None:
    assert Protocol(**most)
    name = list(most)[-1]
    more = {"reset": f"every({LARGEST + 1})", "stream": f"cdc({LARGEST + 1})"}.get(name, LARGEST + 1)
    with pytest.raises(ValueError, match=rf"^{name} is "):
        Protocol(**{**most, name: more})


@each(
    ("wrong", "message"),
    [
        ({"mode": "native"}, "mode is 'native'; expected one of online, offline"),
        (
            {"reset": "never"},
            "reset is 'never'; "
            "expected one of per_corruption, continual, episodic, or every(N) with N batches",
        ),
        (
            {"held_out": 0.5, "reset": "episodic"},
            "held_out cannot be combined with episodic reset or contamination; leave one of them out",
        ),
        (
            {"held_out": 0.5, "contamination": "noise(0.2)"},
            "held_out cannot be combined with episodic reset or contamination; leave one of them out",
        ),
        (
            {"mode": "offline", "reset": "episodic"},
            "offline mode sees all images at once, so it cannot be episodic; choose another reset",
        ),
        (
            {"mode": "offline", "reset": "every(5)"},
            "offline mode sees all images at once, so it is not reset during a stream; choose another reset",
        ),
        (
            {"held_out": 0.5, "reset": "every(5)"},
            "held_out cannot be combined with a reset during the stream; leave one of them out",
        ),
        ({"epochs": 3}, "epochs belong to offline mode; online mode sees every image once: leave epochs out"),
        (
            {"stream": "gradual", "held_out": 0.5},
            "held_out cannot be combined with a stream, which has no last part; leave one of them out",
        ),
        (
            {"stream": "ccc", "contamination": "noise(0.1)"},
            "contamination cannot be combined with a ccc stream; leave one of them out",
        ),
        *(
            (
                {"order": "dirichlet(0)", **other},
                "order is 'dirichlet(0)', one class after the other; it goes with no stream, no "
                "contamination and no held-out images",
            )
            for other in ({"stream": "gradual"}, {"contamination": "noise(0.2)"}, {"held_out": 0.5})
        ),
        ({"pace_ratio": 3.0}, "pace_ratio belongs to a pace; expected a pace above 0"),
        (
            {"pace": 1.0, "held_out": 0.5},
            "pace cannot be combined with held_out, which scores a frozen method; leave one of them out",
        ),
        ({"stream": "steady"}, f"stream is 'steady'; expected {STREAM_FORMS}"),
        ({"stream": "cdc(1,2)"}, f"stream is 'cdc(1,2)'; expected {STREAM_FORMS}"),
        (
            {"stream": "cdc(0)"},
            "stream is 'cdc(0)': δ is 0; expected a number above 0, e.g. cdc(1)",
        ),
        ({"stream": "ccc(40"}, f"stream is 'ccc(40'; expected {STREAM_FORMS}"),
        ({"stream": "gradual(3)"}, f"stream is 'gradual(3)'; expected {STREAM_FORMS}"),
        ({"stream": "recurring(2,3)"}, f"stream is 'recurring(2,3)'; expected {STREAM_FORMS}"),
        (
            {"stream": "ccc(40%)"},
            "stream is 'ccc(40%)': accuracy is 40%; expected a number of percent from 0 to below 100, e.g. "
            "ccc(40)",
        ),
        (
            {"contamination": "0.2"},
            "contamination is '0.2'; expected NAME(ε) with 0 < ε < 1, e.g. noise(0.2)",
        ),
        (
            {"stream": "ccc(length=x)"},
            "stream is 'ccc(length=x)': length is x; expected a whole number from 1 to 2,147,483,647",
        ),
        (
            {"stream": "ccc(length=3=4)"},
            "stream is 'ccc(length=3=4)': length is 3=4; expected a whole number from 1 to 2,147,483,647",
        ),
    ],
)
def test_a_refusal_says_what_is_wrong_and_what_is_expected(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        Protocol(**{"reset": "continual" if "stream" in wrong else "per_corruption", **wrong})


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("recurring(1)", StreamSpec(kind="recurring", rounds=1)),
        (f"recurring({LARGEST})", StreamSpec(kind="recurring", rounds=LARGEST)),
        ("gradual(corruptions=fog+snow)", StreamSpec(kind="gradual", corruptions=("fog", "snow"))),
        ("ccc(0.5,length=1)", StreamSpec(kind="ccc", accuracy=0.5, length=1, speed=1000)),
    ],
)
def test_a_stream_is_read_into_its_values(text: str, spec: StreamSpec) -> None:
    assert StreamSpec.parse(text) == parse_stream(text) == spec
    assert StreamSpec.parse(str(spec)) == spec


@pytest.mark.parametrize(
    "spec",
    [
        HardSpec(kind="ccc_hard", length=9, speed=3, corruptions=("fog", "snow")),
        DynamicSpec(kind="cdc", concentration=0.5, rounds=4, corruptions=("fog", "snow")),
    ],
)
def test_a_stream_of_another_class_is_written_and_read_as_it_is(spec: StreamSpec) -> None:
    assert parse_stream(str(spec)) == spec
