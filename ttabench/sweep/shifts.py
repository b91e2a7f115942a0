"""What a sweep measures on one dataset: corruptions at severities, or one long stream of them."""

from __future__ import annotations

import itertools
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ttabench.cell.stream_spec import RAMP, StreamSpec, parse_stream
from ttabench.corruptions.corruption_names import (
    CORRUPTIONS,
    IMAGE_SIZES,
    KNOWN_CORRUPTIONS,
    NATURAL,
    NO_SEVERITY,
)
from ttabench.data.balanced_subset import undrawn
from ttabench.data.dataset import Dataset
from ttabench.data.foreign import checked_foreign
from ttabench.data.mixed import MIXED
from ttabench.data.own.manifest import SUFFIX
from ttabench.data.own.open_own import no_corruptions, of_image_files
from ttabench.data.own.own_dataset_base import OwnDataset
from ttabench.data.own.set_checks import check_classes, check_count, check_rows, largest_set
from ttabench.data.published.imagenet import ImageNetC
from ttabench.data.published.imagenet_subset import check_measured, severities_here, there
from ttabench.errors import UserError, unknown
from ttabench.sweep.grid import Grid

CORRUPTS_ITSELF = ("ccc", "ccc_hard")  # streams of clean images that they corrupt
AT_ONE_SEVERITY = ("recurring", "cdc")


@dataclass(frozen=True)
class Shifts:
    """The shifted test sets of a dataset: `corruptions` × `severities`, or one long `stream` of them.

    severities   `NO_SEVERITY` alone where they have none.
    stream       it names its corruptions, if they are not the fifteen.
    baseline     of a ccc stream: the name of the network whose accuracy it keeps; "" = that of each row.
    foreign, image_files   see :class:`ttabench.cell.Cell`.
    """

    corruptions: tuple[str, ...]
    severities: tuple[int, ...]
    stream: StreamSpec | None = None
    baseline: str = ""
    foreign: str = ""
    image_files: bool = False

    @property
    def cells(self) -> tuple[str, ...]:
        """What cells call their corruption: that of each, or the kind of the stream."""
        return (self.kind,) if self.stream else self.corruptions

    @property
    def measured(self) -> tuple[str, ...]:
        """The corruptions whose images are measured: mixed has those of all fifteen."""
        names = (CORRUPTIONS if name == MIXED else (name,) for name in self.corruptions)
        return tuple(dict.fromkeys(itertools.chain.from_iterable(names)))

    @property
    def kind(self) -> str:
        """The kind of the stream; "" without one."""
        return self.stream.kind if self.stream else ""

    @property
    def all_severities(self) -> Sequence[int]:
        """The severities of the images that are measured: a gradual stream goes through all of its ramp."""
        return sorted(set(RAMP)) if self.kind == "gradual" else self.severities


def split_baseline(stream: str) -> tuple[str, str]:
    """``ccc(40,baseline=resnet18)`` → (``ccc(40)``, ``resnet18``); another text → (itself, "").

    The baseline is a network of the sweep, so it is no part of the protocol. Raises UserError.
    """
    kind, bracket, rest = stream.partition("(")
    if kind.strip() != "ccc" or not bracket:
        return stream, ""
    baselines: list[str] = []
    others: list[str] = []
    for part in rest.rpartition(")")[0].split(","):
        match = re.fullmatch(r"\s*baseline\s*=\s*(.*?)\s*", part)
        baselines += [match[1]] if match else []
        others += [] if match else [part]
    if len(baselines) > 1 or baselines == [""]:
        raise UserError(f"--stream {stream}: expected one baseline, such as baseline=resnet18.")
    return f"ccc({','.join(others)})", baselines[0] if baselines else ""


def find_shifts(data: Dataset, grid: Grid) -> Shifts:
    """What a grid measures on a dataset. Raises UserError if it lacks corruptions or images for that."""
    _check_limit(data, grid)
    asked, data = data, undrawn(data)  # which has the same corruptions and severities
    shifts = shifts_of(data.corruptions, grid)
    if isinstance(data, OwnDataset) and not data.corruptions and shifts.kind not in CORRUPTS_ITSELF:
        raise UserError(no_corruptions(data.folder))
    if shifts.stream:
        _check_stream_of(data, shifts.stream, shifts.corruptions)
    else:
        shifts = replace(shifts, corruptions=_of_own(data, shifts.corruptions))
        _check_corruptions(data, shifts.corruptions)
    _check_severities(data, shifts)
    _check_download(data, shifts)
    _check_sets(asked, shifts)
    foreign = checked_foreign(grid.contamination, data)
    read = (data, foreign.data) if foreign else (data,)
    fingerprint = foreign.fingerprint() if foreign else ""
    return replace(shifts, foreign=fingerprint, image_files=any(map(of_image_files, read)))


def _check_limit(data: Dataset, grid: Grid) -> None:
    if grid.limit and grid.limit > (count := largest_set(data)):
        raise UserError(
            f"--limit {grid.limit}: {data.name} has {count} test images; name fewer, or leave it out."
        )


def shifts_of(has: Sequence[str], grid: Grid) -> Shifts:
    """What a grid measures on a dataset that `has` these corruptions.

    The corruptions are those of the grid. If these are the default, the fifteen, and the dataset has none of
    them, all of its corruptions are used. A natural shift and domains have no severities.

    Raises UserError for a long stream that does not go with the rest of the grid.
    """
    corruptions = grid.corruptions
    if corruptions == CORRUPTIONS and not set(has) & set(CORRUPTIONS):
        corruptions = tuple(has)
    if not grid.stream:
        graded = set(corruptions) & {*KNOWN_CORRUPTIONS, MIXED}  # domains and natural shifts are not
        return Shifts(corruptions, grid.severities if graded else (NO_SEVERITY,))
    stream, baseline = split_baseline(grid.stream)
    spec = parse_stream(stream)
    _check_stream(spec, grid)
    corruptions = spec.corruptions or corruptions
    named = replace(spec, corruptions=() if corruptions == CORRUPTIONS else corruptions)
    severities = grid.severities if spec.kind in AT_ONE_SEVERITY else (NO_SEVERITY,)
    return Shifts(corruptions, severities, named, baseline)


def _of_own(data: Dataset, corruptions: tuple[str, ...]) -> tuple[str, ...]:
    """All fifteen mean those of them that an own dataset has, and a warning says so."""
    has = tuple(name for name in corruptions if name in data.corruptions)
    if corruptions != CORRUPTIONS or not isinstance(data, OwnDataset) or has in ((), corruptions):
        return corruptions
    warnings.warn(
        f"{data.name} has {len(has)} of the {len(CORRUPTIONS)} corruptions; measured on these: "
        f"{', '.join(has)}.", stacklevel=2,
    )  # fmt: skip
    return has


def _check_corruptions(data: Dataset, corruptions: Sequence[str]) -> None:
    for corruption in corruptions:
        if corruption == MIXED and (missing := [c for c in CORRUPTIONS if c not in data.corruptions]):
            raise UserError(
                f"mixed interleaves the fifteen corruptions, and {data.name} has no {missing[0]}; "
                "leave out the dataset, or mixed."
            )
        if corruption in (*data.corruptions, MIXED):
            continue
        if data.corruptions and not {*KNOWN_CORRUPTIONS, NATURAL} & set(data.corruptions):
            some = ", ".join(data.corruptions[:3]) + (", …" if len(data.corruptions) > 3 else "")
            raise UserError(
                f"{data.name} has no {corruption}. It has {some}: leave --corruptions out for all of these."
            )
        known = corruption in KNOWN_CORRUPTIONS
        if known and isinstance(data, ImageNetC) and NATURAL not in data.corruptions:
            raise UserError(
                f"{data.name} has no {corruption} here; {there(data)}. Name these with --corruptions, or "
                "fetch the others."
            )
        if known and data.name.endswith(SUFFIX):
            has = ",".join(data.corruptions)
            raise UserError(f"{data.name} has no {corruption}; for what it has: --corruptions {has}")
        raise unknown(f"corruption of {data.name}", corruption, data.corruptions)


def _check_severities(data: Dataset, shifts: Shifts) -> None:
    """Raises UserError if an own dataset was not generated at a severity."""
    if not isinstance(data, OwnDataset) or shifts.kind in CORRUPTS_ITSELF:  # of clean images
        return
    hint = "choose with --severities, or generate it first"
    if shifts.kind == "gradual":
        hint = "generate the others first, for --stream gradual"
    for corruption in shifts.measured:
        has = data.severities(corruption)
        for severity in shifts.all_severities:
            if severity not in has:
                there = ",".join(map(str, has)) or "none"
                raise UserError(
                    f"{data.name} has no {corruption} at severity {severity}; it has {there}: {hint}."
                )


def _check_download(data: Dataset, shifts: Shifts) -> None:
    """Raises UserError, with what is there, if a download of imagenet-c lacks what a sweep measures."""
    if not isinstance(data, ImageNetC) or shifts.corruptions == (NATURAL,):
        return
    for corruption in shifts.measured:
        for severity in shifts.all_severities:
            if corruption in data.corruptions and severity not in severities_here(data, corruption):
                raise UserError(
                    f"{data.name} has no {corruption} at severity {severity} here; {there(data)}. Name these "
                    "with --corruptions and --severities, or fetch the others."
                )
    wanted = itertools.product(shifts.measured, shifts.all_severities)
    check_measured(data, (f"corrupted/{name}/{level}" for name, level in wanted if name in data.corruptions))


def _check_sets(data: Dataset, shifts: Shifts) -> None:
    """Raises UserError where classes differ from the clean set, or sets differ that are taken as alike.

    data   perhaps a draw: its sets have equally many images, and are alike where those of the whole are.
    """
    parts = () if shifts.kind in CORRUPTS_ITSELF else shifts.measured
    for corruption, severity in itertools.product(parts, shifts.all_severities):
        check_classes(undrawn(data), corruption, severity)
        if shifts.stream and isinstance(data, OwnDataset):  # published sets are counted where they are read
            check_count(data, corruption, severity, shifts.kind)
        elif MIXED in shifts.corruptions and corruption in CORRUPTIONS:
            check_rows(undrawn(data), corruption, severity)


def _check_stream(spec: StreamSpec, grid: Grid) -> None:
    """Raises UserError if a long stream does not go with the rest of a grid."""
    for name in spec.corruptions:
        if name not in KNOWN_CORRUPTIONS:
            raise unknown("corruption of --stream", name, KNOWN_CORRUPTIONS)
    if spec.corruptions and grid.corruptions != CORRUPTIONS:
        raise UserError("--stream and --corruptions both name corruptions; keep one.")
    if MIXED in grid.corruptions or NATURAL in grid.corruptions:
        raise UserError(f"--stream {spec.kind} needs corruptions by name; leave out {MIXED} and {NATURAL}.")
    if spec.kind in CORRUPTS_ITSELF and len(spec.corruptions or grid.corruptions) < 2:
        raise UserError("--stream ccc puts two corruptions on each image; name at least two.")
    if spec.kind not in AT_ONE_SEVERITY and grid.severities != (5,):
        raise UserError(
            f"--stream {spec.kind.partition('_')[0]} goes through all severities; leave --severities out."
        )


def _check_stream_of(data: Dataset, spec: StreamSpec, corruptions: tuple[str, ...]) -> None:
    """Raises UserError if a dataset cannot have a long stream of these corruptions."""
    if corruptions == (NATURAL,):
        raise UserError(f"--stream {spec.kind}: {data.name} is a natural shift and has no corruptions.")
    if any(name in data.corruptions and name not in KNOWN_CORRUPTIONS for name in corruptions):
        raise UserError(
            f"--stream {spec.kind.partition('_')[0]}: {data.name} has {corruptions[0]}, which is no "
            "corruption; leave --stream out."
        )
    if spec.kind in CORRUPTS_ITSELF:
        if data.image_size not in IMAGE_SIZES:
            sizes = " or ".join(map(str, IMAGE_SIZES))
            raise UserError(
                f"--stream ccc needs images of {sizes} pixels; those of {data.name} have {data.image_size}."
            )
        return
    for corruption in corruptions:
        if corruption not in data.corruptions:
            raise unknown(f"corruption of {data.name}", corruption, data.corruptions)
