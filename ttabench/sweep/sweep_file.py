"""Sweep files: read ``sweep.toml``, put flags over it, and keep the resolved one with the results."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from itertools import starmap
from pathlib import Path
from typing import Any

from ttabench.errors import UserError, shortened, unknown
from ttabench.method.spelling import parse_method, split_list
from ttabench.registry import in_groups
from ttabench.store.sweep_options import ratio_text
from ttabench.sweep.grid import check_whole_methods
from ttabench.sweep.option_table import DEFAULTS, OPTIONS
from ttabench.sweep.options_to_grid import arch_spelling, refuse_domains, stream_as_order
from ttabench.sweep.plain_grids import (
    PER_CORRUPTION,
    dataset_names,
    joined_settings,
    method_names,
    setting_method,
    setting_name,
)
from ttabench.system.files import check_plain, read_plain, replace_file, writing

MEASURED = tuple(name for name, option in OPTIONS.items() if option.scope != "run")
RULE_OPTIONS: dict[str, tuple[str, ...]] = {
    "include": MEASURED,
    "exclude": tuple(name for name, option in OPTIONS.items() if option.scope == "axis"),
    "per_method": tuple(name for name, option in OPTIONS.items() if option.scope == "method"),
    "per_dataset": tuple(name for name in MEASURED if name != "datasets"),
}
"""The rules of a sweep file, and the options that each may have."""
KEPT = "sweep.toml"
NAMED = {"methods", "archs", "datasets"}
"""The axes whose names a rule may only have if the sweep has them."""


def read_sweep_file(path: Path) -> dict[str, Any]:
    """The options in a TOML file, as texts, and its rules as tables of options. Raises UserError."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8-sig"))  # some editors begin with a mark
        str(data)  # a hexadecimal number of thousands of digits has no decimal text
    except OSError as problem:
        raise UserError(f"--config {path} cannot be read ({problem.strerror}).") from None
    except ValueError as problem:  # also of a number with thousands of digits
        raise UserError(f"--config {path} is not valid TOML: {shortened(str(problem), 200)}.") from None
    except RecursionError:
        raise UserError(f"--config {path} is nested too deeply; a sweep file has two levels.") from None
    if isinstance(data.get("sweep"), Mapping):
        raise UserError(f"{path} has a table [sweep]; its options belong to the top of the file.")
    try:
        config = _options(
            {k: v for k, v in data.items() if k not in RULE_OPTIONS}, (*OPTIONS, *RULE_OPTIONS), "option"
        )
        for name in RULE_OPTIONS.keys() & data.keys():
            config[name] = _rules(name, data[name])
        _check_names(config)
    except UserError as problem:
        raise UserError(f"{path.name}: {problem}") from None
    return config


def _options(data: Mapping[str, Any], allowed: Iterable[str], kind: str) -> dict[str, Any]:
    """Options by name, as :data:`DEFAULTS` has them. Raises UserError for unknown keys and bad values."""
    options: dict[str, Any] = {}
    refuse_domains(
        {key: _text(data[key]) for key in ("corruptions", "datasets") if key in data}, "corruptions"
    )
    for key, value in data.items():
        if key not in allowed:
            raise unknown(kind, key, allowed, "`ttabench sweep --help`")
        OPTIONS[key].kind.check(value, key)
        options[key] = setting_texts(value) if key == "set" else _text(value)
    return options


def _rules(name: str, data: Any) -> Any:
    """The rules of one name: a list of tables for include and exclude, a table of tables for the others."""
    kind = f"option of [{name}]"
    if name in ("include", "exclude"):
        if not isinstance(data, list) or not all(isinstance(rule, Mapping) and rule for rule in data):
            raise UserError(f"{name}: expected tables with at least one option, each under [[{name}]].")
        return [_options(rule, RULE_OPTIONS[name], kind) for rule in data]
    example = "tent" if name == "per_method" else "cifar10-c"
    if not isinstance(data, Mapping) or not all(isinstance(rule, Mapping) for rule in data.values()):
        raise UserError(f"{name}: expected a table for each name, e.g. [{name}.{example}].")
    return {key: _options(rule, RULE_OPTIONS[name], kind) for key, rule in data.items()}


def setting_texts(value: Any) -> list[str]:
    """``{"tent": {"lr": [0.1, 0.2]}}`` → ``["tent.lr=0.1,0.2"]``; such texts as they are."""
    if not isinstance(value, Mapping):
        texts = [value] if isinstance(value, str) else value
        if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
            raise UserError(
                f"the settings are {value!r}; expected {{'tent': {{'lr': [0.01]}}}} or texts, 'tent.lr=0.01'."
            )
        return list(texts)
    for method, keys in value.items():
        if not isinstance(keys, Mapping):
            raise UserError(f"the settings of {method} are {keys!r}; expected a table, {{'lr': [0.01]}}.")
    return [f"{method}.{key}={_text(v)}" for method, keys in value.items() for key, v in keys.items()]


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(_text, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _named(config: Mapping[str, Any], axis: str) -> list[str]:
    """All names that a sweep file has on an axis; [] where it leaves the axis to flags and defaults."""
    if axis not in config:
        return []
    tables = [config, *config.get("include", ()), *config.get("per_dataset", {}).values()]
    names = [name for table in tables if axis in table for name in split_list(table[axis])]
    return in_groups(names) if axis == "methods" else names


def _check_names(config: Mapping[str, Any]) -> None:
    """Raises UserError for a rule about a method, architecture or dataset that is not in the file."""
    check_whole_methods(config.get("per_method", ()))
    rules: list[Mapping[str, Any]] = [{"methods": name} for name in config.get("per_method", ())]
    rules += [{"methods": setting_method(text)} for text in config.get("set", ())]
    rules += [{"datasets": name} for name in config.get("per_dataset", ())]
    rules += config.get("exclude", ())
    for axis in ("methods", "archs", "datasets"):
        given = [name for rule in rules if axis in rule for name in split_list(rule[axis])]
        valid = _named(config, axis) if given else []
        if axis == "methods":
            given, valid = method_names(given), method_names([*valid, "source"] if valid else [])
        there = _names_in_rules(axis, valid)
        if valid and (
            wrong := next((name for name in given if _in_one_spelling(axis, name) not in there), "")
        ):
            raise unknown(f"{axis.removesuffix('s')} in a rule", wrong, valid)


def _in_one_spelling(axis: str, name: str) -> str:
    """A name that a rule has on an axis; of a method without its settings."""
    if axis == "methods":
        return parse_method(name)[0]
    return arch_spelling(name) if axis == "archs" else name


def _names_in_rules(axis: str, names: Iterable[str]) -> set[str]:
    """By which names, in one spelling, rules may mean what a sweep has on an axis."""
    every = set().union(*map(dataset_names, names)) if axis == "datasets" else names
    return {_in_one_spelling(axis, name) for name in every}


def with_flags(config: Mapping[str, Any], flags: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a sweep file and of the command line. A flag replaces its option in the whole file.

    That is at the top, in include rules, and in the rules of methods and datasets. ``--set`` replaces the
    settings that it names. With ``--methods``, ``--archs`` or ``--datasets``, what the file says of others
    has no effect. Raises UserError for an order and a stream that is another order, in one of the two or in a
    rule.
    """
    config, flags = stream_as_order(config), stream_as_order(flags)
    options = {**DEFAULTS, **config, **flags}
    if flags.get("stream") and "reset" not in flags and config.get("reset") == PER_CORRUPTION:
        options["reset"] = ""  # as where a rule brings the stream
    if "pace_ratio" in config and "pace_ratio" not in flags:
        options["pace_ratio"] = _ratios_of_sweep(config["pace_ratio"], config, flags)
    replaced = flags.keys() - {"set"}

    def rest(rule: Mapping[str, Any]) -> dict[str, Any]:
        kept = {name: value for name, value in stream_as_order(rule).items() if name not in replaced}
        if "set" in kept:
            kept["set"] = _not_given(_settings_of_sweep(kept["set"], flags), flags.get("set", ()))
        if "pace_ratio" in kept:
            kept["pace_ratio"] = _ratios_of_sweep(kept["pace_ratio"], config, flags)
        return {name: value for name, value in kept.items() if name not in ("set", "pace_ratio") or value}

    options["include"] = [kept for rule in config.get("include", ()) if (kept := rest(rule))]
    for name, axis in (("per_method", "methods"), ("per_dataset", "datasets")):
        rules = config.get(name, {})
        options[name] = {key: kept for key in _of_sweep(rules, axis, flags) if (kept := rest(rules[key]))}
    options["exclude"] = [kept for rule in config.get("exclude", ()) if (kept := _left_out(rule, flags))]
    held = _settings_of_sweep(config.get("set", ()), flags)
    options["set"] = list(joined_settings(held, list(flags.get("set", ()))))
    return options


def _of_sweep(names: Iterable[str], axis: str, flags: Mapping[str, Any]) -> list[str]:
    """The names of a rule that the flag of their axis has; all where there is no such flag."""
    if axis not in flags:
        return list(names)
    chosen = split_list(str(flags[axis]))
    there = _names_in_rules(axis, ["source", *in_groups(chosen)] if axis == "methods" else chosen)
    return [name for name in names if _in_one_spelling(axis, name) in there]


def _settings_of_sweep(settings: Iterable[str], flags: Mapping[str, Any]) -> list[str]:
    """The ``method.key=value`` texts of methods that ``--methods`` has; all without this flag."""
    of_method = {text: setting_method(text) for text in settings}
    methods = _of_sweep(of_method.values(), "methods", flags)
    return [text for text, name in of_method.items() if name in methods]


def _ratios_of_sweep(text: str, config: Mapping[str, Any], flags: Mapping[str, Any]) -> str:
    """``"tent=3,eata=2"`` → ``"tent=3"`` with ``--methods tent``.

    That of ``tent[lr=0.1]`` is left out if the file has this variant, and the flag does not.
    """
    if "methods" not in flags:
        return text
    chosen = [parse_method(name) for name in in_groups(split_list(str(flags["methods"])))]
    before = [parse_method(name) for name in _named(config, "methods")]

    def stays(part: str) -> bool:
        text = part.rpartition("=")[0].strip()
        if not text:  # refused later
            return True
        name, given = parse_method(text)

        def among(variants: list[tuple[str, dict[str, str]]]) -> bool:
            return any(name == other and given.items() <= texts.items() for other, texts in variants)

        return among(chosen) or (name in dict(chosen) and not among(before))

    return ",".join(filter(stays, split_list(text)))


def _left_out(rule: Mapping[str, Any], flags: Mapping[str, Any]) -> dict[str, Any]:
    """An exclude rule with the names that are in the sweep; {} where it names others alone."""
    kept = dict(rule)
    for axis in NAMED & rule.keys():
        kept[axis] = ",".join(_of_sweep(split_list(rule[axis]), axis, flags))
    return kept if all(kept[axis] for axis in NAMED & rule.keys()) else {}


def _not_given(settings: Iterable[str], given: Iterable[str]) -> list[str]:
    names = {setting_name(text) for text in given}
    return [text for text in settings if setting_name(text) not in names]


def overridden(config: Mapping[str, Any], flags: Mapping[str, Any]) -> list[str]:
    """What flags replace in a sweep file, one sentence each: ``--limit 9 replaces limit = 60.``"""
    tables = {"": config}
    tables |= {f"[[include]] {n}: ": rule for n, rule in enumerate(config.get("include", ()), start=1)}
    for kind in ("per_method", "per_dataset"):
        tables |= {f"[{kind}.{key}] ": rule for key, rule in config.get(kind, {}).items()}
    sentences = []
    for name, value in flags.items():
        places = []
        for place, table in tables.items():
            if name == "set":
                held = table.get("set", ())
                kept = [*_not_given(held, value), *value]
                places += [place + text for text in held if text not in kept]
            elif name in table and str(table[name]) != str(value):
                places.append(f"{place}{name} = {_printed(table[name])}")
        if places:
            given = " ".join(value) if name == "set" else _printed(value)
            sentences.append(f"{OPTIONS[name].flag} {given} replaces {'; '.join(places)}.")
    return sentences


def _printed(value: Any) -> str:
    return '""' if value == "" else str(value)


def to_toml(options: Mapping[str, Any]) -> str:
    """The sweep file of what `Grid.to_options` gives."""
    lines = ["# What this sweep measures, with every value. Run it again: ttabench sweep --config FILE"]
    lines += _lines({name: options[name] for name in MEASURED if name in options})
    for name in ("include", "exclude"):
        for rule in options[name]:
            lines += ["", f"[[{name}]]", *_lines(rule)]
    for name in ("per_method", "per_dataset"):
        for key, rule in options[name].items():
            lines += ["", f"[{name}.{_toml(key)}]", *_lines(rule)]
    return "\n".join(lines) + "\n"


def _lines(rule: Mapping[str, Any]) -> list[str]:
    if "pace_ratio" in rule:
        rule = {**rule, "pace_ratio": ",".join(starmap(ratio_text, rule["pace_ratio"]))}
    return [f"{'set' if name == 'settings' else name} = {_toml(value)}" for name, value in rule.items()]


def _toml(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value, ensure_ascii=False)  # texts and numbers are spelled alike in JSON and in TOML


def keep(content: str, folder: Path) -> Path:
    """Write the sweep file of a sweep into a results folder; of a second sweep there, ``sweep-2.toml``.

    content  see `to_toml`.

    Raises UserError if the folder cannot be written, or a file there cannot be read.
    """
    data = content.encode()
    number = 1
    while (path := folder / (KEPT if number == 1 else f"sweep-{number}.toml")).exists():
        try:
            held = read_plain(path)  # a file that was changed by hand may be no UTF-8
        except OSError as problem:
            raise UserError(f"{path} cannot be read ({problem.strerror}).") from None
        if held.replace(b"\r\n", b"\n") == data:  # git may have changed the ends of lines
            return path
        number += 1
    with writing(folder):
        replace_file(path, data)
    return path


def is_one_of_several(content: str, folder: Path) -> bool:
    """Whether a results folder has the sweep file with this content, and another one."""
    data = content.encode()
    try:
        held = [read_plain(file).replace(b"\r\n", b"\n") for file in folder.glob("sweep*.toml")]
    except OSError:
        return False
    return len(held) > 1 and data in held


def kept(folder: Path) -> Iterator[dict[str, Any]]:
    """What `read_sweep_file` gives for each sweep file in a results folder; other files are left out."""
    for path in sorted(folder.glob("sweep*.toml")):
        try:
            check_plain(path)
            yield read_sweep_file(path)
        except UserError:  # changed by hand, or of another version
            continue
