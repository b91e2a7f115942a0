"""How tables spell and order corruptions, architectures and methods. Imports nothing heavy."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from ttabench.cell.subset_names import HEAD, drawn_from
from ttabench.corruptions.corruption_names import CORRUPTIONS, KNOWN_CORRUPTIONS, NATURAL
from ttabench_reports.cells.stored_settings import stored_settings

MEAN, MEAN_EXTRA = "mean", "mean_extra"
MIXED = "mixed"  # the stream of all corruptions: each seed has its own images
OWN = "-local"  # at the end of the names of all own datasets
LONGEST = 120  # characters of a slug: file systems take names of 255 bytes, with what stands around it
FAMILIES = ("resnet", "cct", "cvt", "vit_lite")  # the order of the paper's tables
_RAISED = str.maketrans("abcdefghijklmnoprstuvwxyz", "ᵃᵇᶜᵈᵉᶠᵍʰⁱʲᵏˡᵐⁿᵒᵖʳˢᵗᵘᵛʷˣʸᶻ")
_NAMES = {
    "gaussian_noise": ("gau", "Gaussian"),
    "shot_noise": ("sho", "Shot"),
    "impulse_noise": ("imp", "Impulse"),
    "defocus_blur": ("def", "Defocus"),
    "glass_blur": ("gla", "Glass"),
    "motion_blur": ("mot", "Motion"),
    "zoom_blur": ("zoo", "Zoom"),
    "snow": ("sno", "Snow"),
    "frost": ("fro", "Frost"),
    "fog": ("fog", "Fog"),
    "brightness": ("bri", "Brightness"),
    "contrast": ("con", "Contrast"),
    "elastic_transform": ("ela", "Elastic"),
    "pixelate": ("pix", "Pixelate"),
    "jpeg_compression": ("jpg", "JPEG"),
    "speckle_noise": ("spe", "Speckle"),
    "gaussian_blur": ("gbl", "Gauss. blur"),
    "spatter": ("spa", "Spatter"),
    "saturate": ("sat", "Saturate"),
    "blue_noise_sample": ("blu", "Blue noise"),
    "brownish_noise": ("bro", "Brownish"),
    "checkerboard_cutout": ("che", "Checkerboard"),
    "inverse_sparkles": ("inv", "Inv. sparkles"),
    "pinch_and_twirl": ("pin", "Pinch, twirl"),
    "ripple": ("rip", "Ripple"),
    "circular_motion_blur": ("cir", "Circ. motion"),
    "lines": ("lin", "Lines"),
    "sparkles": ("spk", "Sparkles"),
    "transverse_chromatic_aberration": ("chr", "Chromatic"),
    NATURAL: ("acc", "Accuracy"),
    "mixed": ("mix", "Mixed"),
    "recurring": ("rec", "Recurring"),
    "gradual": ("gra", "Gradual"),
    "ccc": ("ccc", "CCC"),
    "ccc_hard": ("ccc", "CCC (0\u00a0%)"),
    "cdc": ("cdc", "CDC"),
    MEAN: ("mean", "Mean"),
    MEAN_EXTRA: ("mean", "Mean"),
}
"""Column → (three letters, as the papers head it)."""

_METHODS = {
    "source": "Source", "bn_stats": "BNStats", "tent": "TENT", "eata": "EATA", "eta": "ETA", "sar": "SAR",
    "cotta": "CoTTA", "rotta": "RoTTA", "sotta": "SoTTA", "medbn": "MedBN", "lame": "LAME", "t3a": "T3A",
    "deyo": "DeYO", "memo": "MEMO", "roid": "ROID", "shot": "SHOT", "foa": "FOA", "note": "NOTE",
    "actmad": "ActMAD", "actmad_vit": "ActMAD (ViT)", "aqr": "AQR", "cmf": "CMF", "come": "COME",
    "coral": "CORAL", "neo": "NEO", "poem": "POEM", "rdumb": "RDumb", "tca": "LinearTCA", "ttac": "TTAC",
    "stack": "Stack", "rmt": "RMT", "adacontrast": "AdaContrast", "tea": "TEA",
    "asr": "ASR", "rem": "REM", "dpcore": "DPCore", "spa": "SPA",
    "quantile": "Quantile", "quantile_paper": "Quantile (paper)",
    "quantile_strict": "Quantile (strict)",
    "quantile_aqr": "Quantile + AQR", "quantile_selected": "Quantile (selected)",
}  # fmt: skip
_ARCHS = {"resnet": "ResNet", "cct": "CCT", "cvt": "CVT", "vit_lite": "ViT-Lite", "wrn": "WRN", "vit": "ViT"}
_DATASETS = {
    "digits": "Digits", "cifar10": "CIFAR10", "cifar100": "CIFAR100", "tinyimagenet": "TinyImageNet",
    "imagenet": "ImageNet", "cifar10.1": "CIFAR10.1",
}  # fmt: skip
_SHIFTS = {
    "": "", "-c": "-C", "-c-bar": "-C-bar", "-v2": "-V2", "-r": "-R", "-a": "-A", "-sketch": "-Sketch",
}  # fmt: skip
CCC_PART = re.compile(r"(\d{5})-(\d+)")  # of the published files: shard, part of the shard
_CHOSEN: ContextVar[Mapping[str, str]] = ContextVar("chosen", default={})  # noqa: B039 # never changed


@contextmanager
def chosen(names: Mapping[str, str]) -> Iterator[None]:
    """In the block, methods, architectures and datasets have these names: identifier → name."""
    token = _CHOSEN.set(names)
    try:
        yield
    finally:
        _CHOSEN.reset(token)


def renamed(identifier: str) -> bool:
    """Whether the user chose a name for exactly this identifier, of a method with its settings."""
    return identifier in _CHOSEN.get()


_STACKED = {"first": "quantile", "second": "cotta"}  # the defaults, where nothing is stored
_STACK = re.compile(r"stack(?:\[(?P<settings>[^\]]*)\])?(?P<after>(?: .*)?)")


def base(name: str) -> str:
    """A method without settings as papers write it; an unknown identifier stays as it is."""
    return _CHOSEN.get().get(name) or _METHODS.get(name, name)


def method(label: str, config: str = "") -> str:
    """A method and its variant as papers write them: ``tent[norms=all,lr=1]`` → ``TENT [norms=all, lr=1]``.

    ``a+b`` is two methods; an unknown identifier stays as it is. ``stack`` has the names of its methods,
    ``Quantile + CoTTA``.

    config  the stored settings, as JSON; without them those of the label count, then the defaults.
    """
    if name := _CHOSEN.get().get(label):
        return name
    if stack := _STACK.fullmatch(label):
        return _stacked(stack["settings"] or "", config) + stack["after"]
    name, bracket, rest = label.partition("[")
    words = re.split(r"([^A-Za-z0-9_]+)", name)
    known = "".join(base(word) for word in words)
    inside, _, after = rest.rpartition("]")
    return f"{known} [{re.sub(r',(?! )', ', ', inside)}]{after}" if bracket else known


def _stacked(settings: str, config: str) -> str:
    """The two methods of a stack, and what else its label has."""
    others = []
    parts = dict(_STACKED)
    for setting in filter(None, settings.split(",")):
        name, _, value = setting.strip().partition("=")
        if name in parts:
            parts[name] = value
        else:
            others.append(setting.strip())
    stored = stored_settings(config)
    parts |= {name: stored[name] for name in parts if name in stored}
    known = " + ".join(base(str(part)) for part in parts.values())
    return f"{known} [{', '.join(others)}]" if others else known


def arch(name: str) -> str:
    """``resnet18`` → ``ResNet18``, ``vit_lite_7`` → ``ViT-Lite-7``; an unknown identifier stays as it is."""
    if chosen := _CHOSEN.get().get(name):
        return chosen
    match = re.fullmatch(r"(resnet|cct|cvt|vit_lite|vit|wrn)(?:_?(\d\w*))?", name)
    if match is None:
        return name
    family, size = match.groups()
    parts = (size or "").split("_")
    join = "" if family == "resnet" or not size else "-"
    return _ARCHS[family] + join + parts[0] + "".join(f"/{part}" for part in parts[1:])


def without_dataset(name: str) -> str:
    """``official/cct_7_3x1_32_c100`` → ``official/cct_7_3x1_32``, the architecture without its dataset."""
    return re.sub("_(c100|fl)$", "", name) if name.startswith("official/") else name


def network(name: str, *more: str) -> str:
    """``ResNet18, weights 1a2b3c4d``: an architecture, and what else there is to say of it."""
    return ", ".join(filter(None, (arch(name), *more)))


def dataset(name: str) -> str:
    """``cifar10-c`` → ``CIFAR10-C``; own data ``birds-c-local`` → ``birds-C (own)``; others stay as they are.

    The name of own data keeps its letters, so that it is never the name of a published dataset.
    """
    if chosen := _CHOSEN.get().get(name):
        return chosen
    if name.endswith(OWN):
        plain = name.removesuffix(OWN)
        return f"{plain.removesuffix('-c')}-C (own)" if plain.endswith("-c") else f"{plain} (own)"
    if "[" in name:
        plain, _, subset = name.rpartition("[")
        return f"{dataset(plain)} [{_subset(subset.removesuffix(']'))}]"
    base, shift = _parts(name)
    return _DATASETS[base] + _SHIFTS[shift] if base in _DATASETS and shift in _SHIFTS else name


def _subset(text: str) -> str:
    """``5000`` → ``5000 images, balanced``; ``here-4000`` → ``4000 images, incomplete``; lists by name.

    ``200-way`` → ``200-way head``
    """
    if HEAD.fullmatch(text):
        return f"{text} head"
    count, _, seed = text.partition("@")
    if count.isdecimal():
        return f"{count} images, balanced" + (f", seed {seed}" if seed else "")
    return f"{text.removeprefix('here-')} images, incomplete" if text.startswith("here-") else text


def has_own_head(name: str) -> bool:
    """Whether networks have outputs for the classes of a dataset alone: ``imagenet-r[200-way]``."""
    return any(map(HEAD.fullmatch, re.findall(r"\[(.*?)\]", name)))


def clean(name: str) -> str:
    """The clean counterpart of a corrupted dataset: ``cifar10-c`` → ``CIFAR10``."""
    if chosen := _CHOSEN.get().get(name):
        return f"{chosen}, clean"
    if name.endswith(OWN):
        return f"{name.removesuffix(OWN).removesuffix('-c')} (own), clean"
    if "[" in name:
        if (whole := drawn_from(name)) != name:
            return clean(whole)  # a network is measured on all clean images, whatever is drawn
        plain, _, subset = name.rpartition("[")
        return f"{clean(plain)} [{_subset(subset.removesuffix(']'))}]"
    base, shift = _parts(name)
    if base == "cifar10.1":
        return dataset("cifar10")
    if base in _DATASETS and shift and shift in _SHIFTS:
        return dataset(base)
    return name.removesuffix("-c") if name.endswith("-c") else f"{dataset(name)}, clean"


def _parts(name: str) -> tuple[str, str]:
    """``cifar10-c-bar`` → ``cifar10`` and ``-c-bar``; no shift is ""."""
    base, dash, shift = name.partition("-")
    return base, dash + shift


def where(dataset: object, severity: object) -> str:
    """``CIFAR10-C, severity 5``; a natural shift has no severity."""
    return f"{dataset}, severity {severity}" if severity else str(dataset)


def stream(text: str) -> str:
    """A long stream as a heading names it: ``recurring(2)`` → ``recurring stream, 2 rounds``.

    ``ccc(40,length=20000,speed=200)`` → ``CCC stream, 40 %, length 20,000, speed 200``.
    """
    kind, _, inside = text.removesuffix(")").partition("(")
    first, *others = [part.strip() for part in inside.split(",")]
    if "=" in first:  # of a kind without a value of its own
        first, others = "", [first, *others]
    name = f"{kind.upper() if kind in ('ccc', 'cdc') else kind} stream"
    unit = {
        "cdc": f"δ = {first}",
        "recurring": "1 round" if first == "1" else f"{first} rounds",
        "ccc": f"{first}\u00a0%",
    }
    said = [unit.get(kind, first)] if first else []
    for part in others:
        field, _, value = part.partition("=")
        names = value.split("+")
        if value.isdecimal():
            said.append(f"{field} {int(value):,}")
        else:
            said.append(f"{len(names)} {field}" if len(names) > 3 else ", ".join(map(title, names)))
    return ", ".join([name, *said])


def short(column: str, letters: int = 3) -> str:
    """A corruption in three letters (``gau``), or ``mean``; foreign names are cut to as many `letters`.

    Part 00012-3 of the published CCC is ``12-3``.
    """
    if part := CCC_PART.fullmatch(column):
        return f"{int(part[1])}-{part[2]}"
    return _NAMES[column][0] if column in _NAMES else column[:letters]


def shorts(columns: Sequence[str]) -> list[str]:
    """:func:`short` of each; foreign names keep as many letters as they need to differ."""
    plain = [column for column in columns if column not in _NAMES]
    longest = max(map(len, plain), default=3)
    apart = (n for n in range(3, longest) if len({short(column, n) for column in plain}) == len(plain))
    letters = next(apart, longest)
    return [short(column, letters) for column in columns]


def title(column: str) -> str:
    """A corruption as papers head their columns (``Gaussian``), or ``Mean``."""
    if part := CCC_PART.fullmatch(column):
        return f"Shard {int(part[1])}, part {part[2]}"
    return _NAMES[column][1] if column in _NAMES else column.replace("_", " ").capitalize()


def slug(text: str) -> str:
    """`text` as part of a file name or a LaTeX label; a long one is cut, and ends with its SHA-256 then."""
    name = re.sub(r"[^A-Za-z0-9.-]+", "-", text).strip("-.") or "table"
    if len(name) <= LONGEST:
        return name
    return f"{name[:LONGEST].rstrip('-.')}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def free(name: str, taken: set[str]) -> str:
    """`name`, with underscores behind it if it is taken; from now on it is."""
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def split(corruptions: set[str]) -> tuple[list[str], list[str]]:
    """(the columns that a mean is over, the extra ones), each in canonical order.

    The fifteen where any of them is there; else everything is main, so that a sweep over the
    extra corruptions alone, or over corruptions of a user, has a mean too.
    """
    ordered = sorted(corruptions, key=corruption_key)
    main = [name for name in ordered if name in CORRUPTIONS]
    return (main, [name for name in ordered if name not in CORRUPTIONS]) if main else (ordered, [])


def averaged(extra: Sequence[str]) -> tuple[str, ...]:
    """The extra columns that their mean is over: the mixed stream of the fifteen is none of them."""
    return tuple(name for name in extra if name != MIXED) or tuple(extra)


def raised(letters: str) -> str:
    """Footnote letters as Unicode superscripts (``ab`` → ``ᵃᵇ``), where there is such a letter."""
    return letters.translate(_RAISED)


def span(numbers: Sequence[int]) -> str:
    """Of ascending numbers the first and the last: ``1 to 10``; ``5`` where they are the same."""
    return " to ".join(map(str, dict.fromkeys((numbers[0], numbers[-1]))))


def natural(text: str) -> tuple[tuple[int, float, str], ...]:
    """A sort key by which ``batch=64`` comes before ``batch=128``, and ``lr=1e-05`` before ``lr=0.001``."""
    parts = re.findall(r"\d+(?:\.\d+)?(?:e[+-]\d+)?|\D+", text)
    return tuple((0, float(p), "") if p[0].isdigit() else (1, 0.0, p) for p in parts)


def corruption_key(name: str) -> tuple[int, str]:
    """The fifteen, the extra ones, those of -C-bar, then foreign names, numbers in them by their size."""
    known = KNOWN_CORRUPTIONS
    place = known.index(name) if name in known else len(known)
    return place, re.sub(r"\d+", lambda number: number[0].zfill(20), name)


def in_order(column: Any) -> Any:
    """The `key` of pandas' `sort_values` by which corruptions come in the order of :func:`corruption_key`."""
    if column.name != "corruption":
        return column
    return column.map({name: corruption_key(name) for name in column.unique()})


def arch_key(arch: str) -> tuple[object, ...]:
    """ResNets, CCT, CVT, ViT-Lite as in the paper, then others, each in natural order."""
    family = next((i for i, f in enumerate(FAMILIES) if arch.startswith(f)), len(FAMILIES))
    return family, natural(arch)


def method_key(base: str, label: str, config: str = "") -> tuple[object, ...]:
    """The baseline first, then in the alphabet of the names that :func:`method` gives, then by variant."""
    name = method(label, config).partition(" [")[0]
    return base != "source", name.casefold(), natural(label)


def number(value: float, decimals: int = 1) -> str:
    """``97.5``; ``100`` for a full hundred where one decimal would widen the column."""
    text = f"{value:.{decimals}f}"
    return "100" if text == "100.0" else text


def points(value: float, decimals: int = 1) -> str:
    """A difference with its sign: ``+40.5``, ``-0.3``; zero is ``+0.0``."""
    return f"{round(value, decimals) + 0.0:+.{decimals}f}"
