"""Sweep files: every key and bad value, the JSON schema, rules, flags, and the file kept with the results."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.cases import each
from tests.unit.conftest import Run
from tests.unit.planning import source_of
from ttabench.corruptions.corruption_names import CORRUPTIONS
from ttabench.errors import UserError
from ttabench.store import load_frame
from ttabench.sweep.grid import Grid
from ttabench.sweep.option_table import DEFAULTS, OPTIONS
from ttabench.sweep.options_to_grid import make_grid
from ttabench.sweep.plain_grids import plain_grids
from ttabench.sweep.plan import plan
from ttabench.sweep.resolve import resolve
from ttabench.sweep.schema import schema
from ttabench.sweep.sweep_file import (
    RULE_OPTIONS,
    keep,
    kept,
    overridden,
    read_sweep_file,
    to_toml,
    with_flags,
)

ROOT = Path(__file__).resolve().parents[3]
Make = Callable[[str], Path]


@pytest.fixture
def made(tmp_path: Path) -> Make:
    def write(content: str) -> Path:
        file = tmp_path / "my.toml"
        file.write_text(content)
        return file

    return write


def grid(file: Path, **flags: Any) -> Grid:
    return make_grid(with_flags(read_sweep_file(file), flags))


def file_of(asked: Grid) -> str:
    """What is kept of it in its results folder."""
    return to_toml(asked.to_options())


def cells(asked: Grid) -> set[tuple[str, str, str, int, int]]:
    """Method, architecture, corruption, severity and seed of every planned cell."""
    sweep = resolve(asked)
    planned = plan(sweep, [source_of(model) for model in sweep.models])
    result = [(p.cell.label, p.cell.arch, p.cell.corruption, p.cell.severity, p.cell.seed) for p in planned]
    assert len(set(result)) == len(result)
    return set(result)


# ---- keys and values


@each(
    ("content", "message"),
    [
        ('metods = "tent"', "unknown option 'metods'; did you mean 'methods'"),
        ('methods = ""', 'methods = "": expected a list of names'),
        ('methods = "quantile,tent"', "expected a list of names, each in quotes"),
        ("methods = 3", "methods = 3: expected a name or a list of names"),
        ('methods = ["tent", "tent"]', "names 'tent' twice"),
        ("archs = []", "archs = []: expected a name or a list of names"),
        ('corruptions = ["frog"]', "unknown value of corruptions 'frog'; did you mean 'fog'"),
        ("severities = [0]", "severities = [0]: expected a whole number from 1 to 5, or a list of them"),
        ('severities = "5"', 'severities = "5": expected a whole number from 1 to 5'),
        ("seeds = [1, 1]", "seeds = [1, 1] names a number twice"),
        ("seeds = -1", "seeds = -1: expected a whole number of 0 or more"),
        ('mode = "ofline"', "unknown value of mode 'ofline'; did you mean 'offline'?"),
        ("mode = 1", "mode = 1: expected one of"),
        ('order = "sorted"', 'order = "sorted": expected iid or dirichlet(δ)'),
        ('contamination = "noise"', "expected nothing or NAME(ε)"),
        ("held_out = 1.0", "held_out = 1.0: expected a number, 0 or larger and less than 1"),
        ("held_out = true", "held_out = true: expected a number"),
        ('batch_rate = "offical"', "unknown value of batch_rate 'offical'; did you mean 'official'"),
        ("batch_size = 1.5", "batch_size = 1.5: expected a whole number, 0 or larger"),
        (f"batch_size = {10**18}", "expected a whole number, 0 or larger and below 2,147,483,648"),
        ('limit = "all"', 'limit = "all": expected a whole number, 0 or larger'),
        ('classes = "balance"', "unknown value of classes 'balance'; did you mean 'balanced'"),
        ("epochs = -1", "epochs = -1: expected a whole number"),
        ('precision = "float16"', "did you mean 'bfloat16'?"),
        ("checkpoint = 5", "checkpoint = 5: expected a file, in quotes"),
        ("subset = 5000", "subset = 5000: expected a number, robustbench-5k or a file, in quotes"),
        ("normalize = [1]", "normalize = [1]: expected a name, in quotes"),
        ("out = 1", "out = 1: expected a folder, in quotes"),
        ('workers = "many"', 'workers = "many": expected auto or a whole number'),
        ("device = 0", "device = 0: expected a device, in quotes"),
        ("per_gpu = 0", "per_gpu = 0: expected a whole number, 1 or larger"),
        ("cell_timeout = -1", "cell_timeout = -1: expected a number, 0 or larger"),
        ('cell_memory = "4 GB"', 'cell_memory = "4 GB": expected a number'),
        ('stream = "recuring(3)"', 'stream = "recuring(3)": expected nothing, gradual, mixed or'),
        ('pace = "fast"', 'pace = "fast": expected a number, 0 or larger'),
        ("pace_ratio = 3", "pace_ratio = 3: expected METHOD=RATIO, …, in quotes"),
        ("executor = 1", "executor = 1: expected a name, in quotes"),
        ("executor_options = []", "executor_options = []: expected KEY=VALUE, …, in quotes"),
        ("device_memory = -2", "device_memory = -2: expected a number, 0 or larger"),
        ('scores = "al"', "did you mean 'all'?"),
        ('activations = "recomputed"', "did you mean 'recompute'?"),
        ('overwrite = "allways"', "did you mean 'always'?"),
        ("log = 3", "log = 3: expected names, in quotes"),
        ('shard = "0/2"', 'shard = "0/2": expected'),
        ("set = 1", "set = 1: expected a table for each method"),
        ("set.tent = 1", "set.tent = 1: expected a table of settings"),
        ("set.tent.lr = []", "set.tent.lr = []: expected a value, or a list of values"),
        ('set = ["lr=1"]', "expected texts of the form"),
        ('methods = ["tent"]\n[set.tnet]\nlr = 1', "'tnet'; did you mean 'tent'?"),
        ("reset = 1", "reset = 1: expected one of"),
        ("[include]\nmethods = ['tent']", "include: expected tables with at least one option"),
        ("[[include]]", "include: expected tables with at least one option"),
        ("[[include]]\nworkers = 1", "unknown option of [include] 'workers'"),
        ("[[include]]\nseverity = [1]", "unknown option of [include] 'severity'; did you mean 'severities'?"),
        ("[[exclude]]\nlimit = 3", "unknown option of [exclude] 'limit'"),
        ('methods = ["tent"]\n[[exclude]]\nmethods = ["tnet"]', "'tnet'; did you mean 'tent'?"),
        ('archs = ["cct"]\n[[exclude]]\narchs = ["cvt"]', "unknown arch in a rule 'cvt'"),
        ("per_method = 1", "per_method: expected a table for each name, e.g. [per_method.tent]"),
        ("[per_method.tent]\nlimit = 1", "unknown option of [per_method] 'limit'"),
        ("[per_method.tent]\nbatch_size = -1", "batch_size = -1: expected a whole number"),
        ('[per_method."tent[norms=all]"]\nmode = "online"', "per_method.tent[norms=all]: rules are"),
        ('[per_method."quantile+cotta"]\nmode = "online"', "rules are for a whole method; name stack."),
        ('methods = ["tent"]\n[per_method.sar]\nmode = "online"', "unknown method in a rule 'sar'"),
        ("[per_dataset.digits-c]\nlimits = 1", "option of [per_dataset] 'limits'; did you mean 'limit'?"),
        ('datasets = ["digits-c"]\n[per_dataset.digit-c]\nlimit = 1', "'digit-c'; did you mean 'digits-c'?"),
    ],
)  # fmt: skip
def test_a_bad_key_or_value_is_one_sentence_with_the_file(made: Make, content: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        read_sweep_file(made(content))
    output = str(caught.value)
    assert message in output
    assert output.startswith("my.toml: ")
    assert "\n" not in output


def test_options_under_a_heading_are_told_their_place(made: Make) -> None:
    with pytest.raises(UserError, match=r"my\.toml has a table \[sweep\]; its options belong to the top"):
        read_sweep_file(made('[sweep]\nmethods = ["tent"]'))


def test_every_option_has_a_bad_value_above() -> None:
    function = test_a_bad_key_or_value_is_one_sentence_with_the_file
    _, (cases,) = function.folded  # type: ignore[attr-defined]
    contents = [case["content"] for _, case in cases]
    for name in OPTIONS:
        assert any(content.startswith((f"{name} = ", f"{name}.")) for content in contents), name


# ---- the schema

POOL: list[Any] = [
    "", "x", "a,b", "a[b=1,c=2]", "a[b", "all", "fog", "native", "offline", "fixed", "balanced",
    "per_corruption", "continual", "episodic", "iid", "dirichlet(0.1)", "dirichlet", "noise(0.2)",
    "float32", "bfloat16", "auto",
    "stale", "recompute",
    "2/5", "0/2", "tent.lr=1", 0, 1, 5, 6, -1, 0.5, 1.5, 2**31, 2**63, True, False, [], [1], [1, 1],
    [0, 6], [1.5], [True], ["fog"], ["fog", "fog"], ["fog", "frog"], [""], ["a", 1], ["tent.lr=1"], ["lr=1"],
    {}, {"tent": 1}, {"tent": {}}, {"tent": {"lr": 1}}, {"tent": {"lr": [0.1, True, "x"]}},
    {"tent": {"lr": []}}, {"tent": {"lr": {}}},
]  # fmt: skip


VALIDATOR = jsonschema.Draft7Validator(schema())


def toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {toml(v)}" for key, v in value.items()) + "}"
    return f"[{', '.join(map(toml, value))}]" if isinstance(value, list) else json.dumps(value)


def agree(file: Path) -> bool:
    """Whether the parser accepts a file; the schema must say the same."""
    fits = VALIDATOR.is_valid(tomllib.loads(file.read_text()))
    try:
        read_sweep_file(file)
        problem = ""
    except UserError as refusal:
        problem = str(refusal)
    assert fits is not bool(problem), f"{file.read_text()}: {problem or 'the schema refuses it'}"
    return fits


@each("name", OPTIONS)
def test_schema_and_parser_accept_the_same_values(made: Make, name: str) -> None:
    accepted = [value for value in POOL if agree(made(f"{name} = {toml(value)}"))]
    assert 0 < len(accepted) < len(POOL)


@pytest.mark.parametrize("rule", RULE_OPTIONS)
def test_schema_and_parser_accept_the_same_rules(made: Make, rule: str) -> None:
    head = f"[[{rule}]]" if rule in ("include", "exclude") else f"[{rule}.tent]"
    good = {"set": {}, "severities": 1, "seeds": 1} | {
        name: 1 for name in OPTIONS if isinstance(DEFAULTS[name], int | float)
    }
    for name in (*OPTIONS, "metods"):
        value = good.get(name, DEFAULTS.get(name, 1)) if name != "held_out" else 0.5
        value = ["tent"] if name in ("methods", "archs", "datasets") else value
        assert agree(made(f"{head}\n{name} = {toml(value)}")) is (name in RULE_OPTIONS[rule]), name
        assert not agree(made(f"{head}\n{name} = {{a = 1}}"))
    for key in ("tent[norms=all]", "quantile+cotta") if rule == "per_method" else ():
        assert not agree(made(f'[per_method."{key}"]\nmode = "online"'))
    for content in (f"{rule} = 1", f"{rule} = [1]", f"[{rule}]\ntent = 1", f"[[{rule}]]"):
        assert not agree(made(content))


def test_the_schema_is_valid_and_printed(ttabench: Run) -> None:
    jsonschema.Draft7Validator.check_schema(schema())
    assert json.loads(ttabench("sweep", "--schema").out) == schema()
    keys = schema()["properties"]
    assert keys.keys() == OPTIONS.keys() | RULE_OPTIONS.keys()
    assert all(entry["description"] for entry in keys.values())


# ---- rules

SMALL = 'methods = ["tent"]\narchs = ["resnet18"]\ndatasets = ["digits-c"]\ncorruptions = ["fog", "snow"]\n'


def test_include_adds_a_grid_of_its_own(made: Make) -> None:
    both = cells(
        grid(made(SMALL + '[[include]]\nseverities = [1, 5]\ncorruptions = "fog"\nmethods = ["sar"]'))
    )
    assert both == {
        *((m, "resnet18", c, 5, 0) for m in ("source", "tent") for c in ("fog", "snow")),
        *((m, "resnet18", "fog", s, 0) for m in ("source", "sar") for s in (1, 5)),
    }


def test_exclude_leaves_out_what_matches_every_axis_it_names(made: Make) -> None:
    whole = cells(grid(made(SMALL)))
    left = cells(grid(made(SMALL + '[[exclude]]\nmethods = ["tent"]\ncorruptions = "fog"')))
    assert whole - left == {("tent", "resnet18", "fog", 5, 0)}
    seeds = cells(grid(made(SMALL + "seeds = [0, 1]\n[[exclude]]\nseeds = 1\ncorruptions = 'fog'")))
    assert {c for c in seeds if c[4] == 1} == {(m, "resnet18", "snow", 5, 1) for m in ("source", "tent")}
    nothing = cells(grid(made(SMALL + '[[exclude]]\narchs = ["resnet18"]\n[[include]]\nseverities = 1')))
    assert nothing == set()  # exclude rules hold for what is included, too


def test_exclude_may_name_one_variant_of_a_method(made: Make) -> None:
    variants = SMALL + "[set.tent]\nlr = [0.1, 0.2]\n"
    left = cells(grid(made(variants + '[[exclude]]\nmethods = ["tent[lr=0.1]"]')))
    assert {c[0] for c in left} == {"source", "tent[lr=0.2]"}


def test_exclude_compares_values_and_not_their_spelling(made: Make) -> None:
    variants = SMALL + "[set.tent]\nlr = [0.1, 0.2]\n"
    left = cells(grid(made(variants + '[[exclude]]\nmethods = ["tent[lr=1e-1]"]')))
    assert {c[0] for c in left} == {"source", "tent[lr=0.2]"}


def test_exclude_names_settings_that_are_in_force(made: Make) -> None:
    """That is the default, or the rate of official scripts, as a label of the sweep spells it."""
    rule = '[[exclude]]\nmethods = ["tent[lr=0.001]"]\n'
    assert {c[0] for c in cells(grid(made(SMALL + rule)))} == {"source"}
    small = SMALL + "batch_size = 16\n"
    (name,) = {c[0] for c in cells(grid(made(small)))} - {"source"}
    assert "lr=" in name
    assert {c[0] for c in cells(grid(made(f'{small}[[exclude]]\nmethods = ["{name}"]\n')))} == {"source"}


def test_exclude_means_a_network_and_a_dataset_by_all_their_names(made: Make) -> None:
    other = SMALL.replace('["resnet18"]', '["ResNet18_W8"]').replace('"digits-c"', '"digits-c[100]"')
    for axis, name in (("archs", "resnet18_w8"), ("archs", "ResNet18_w8"), ("datasets", "digits-c")):
        asked = grid(made(f'{other}[[exclude]]\n{axis} = ["{name}"]\n'))
        assert cells(asked) == set(), name


@pytest.mark.parametrize(
    ("rule", "spelled"),
    [
        (
            'methods = ["tent[lr=0.3]"]\ncorruptions = ["fog", "snow"]',
            "methods tent[lr=0.3] and corruptions fog, snow",
        ),
        ("seeds = [0, 3]\nseverities = [1]", "seeds 0, 3 and severities 1"),
        ('corruptions = ["frost"]', "corruptions frost"),
    ],
)
def test_an_exclude_rule_that_leaves_out_no_cell_is_warned_of(made: Make, rule: str, spelled: str) -> None:
    used = '[[exclude]]\nmethods = ["tent"]\ncorruptions = ["snow"]\n'
    with pytest.warns(UserWarning, match="the exclude rule") as caught:
        left = cells(grid(made(f"{SMALL}{used}[[exclude]]\n{rule}\n")))
    assert [str(each.message) for each in caught] == [
        f"the exclude rule of {spelled} leaves out no cell of this sweep."
    ]
    assert left == cells(grid(made(SMALL + used)))


def test_exclude_names_a_setting_that_exists(made: Make) -> None:
    with pytest.raises(UserError, match="unknown setting of tent 'lt'; did you mean 'lr'"):
        resolve(grid(made(SMALL + '[[exclude]]\nmethods = ["tent[lt=0.1]"]')))


def test_a_continual_run_goes_on_without_the_corruption_that_is_excluded(made: Make) -> None:
    asked = 'corruptions = ["fog", "snow", "frost"]\nreset = "continual"\n[[exclude]]\ncorruptions = ["snow"]'
    sweep = resolve(grid(made(SMALL.rpartition("corruptions")[0] + asked)))
    planned = plan(sweep, [source_of(model) for model in sweep.models])
    assert [p.cell.history for p in planned if p.cell.corruption == "frost"] == [("fog-5",)] * 2


def test_two_continual_runs_of_one_method_over_the_same_images_are_refused(made: Make) -> None:
    asked = grid(made(SMALL + 'reset = "continual"\n[[include]]\ncorruptions = ["frost"]'))
    with pytest.raises(UserError, match="in two continual runs of this sweep"):
        cells(asked)
    sweep = resolve(grid(made(SMALL + 'reset = "continual"\n[[include]]\nbatch_size = 64')))
    planned = plan(sweep, [source_of(model) for model in sweep.models])
    assert len({p.cell.cell_id for p in planned}) == 8  # two protocols are two runs


def protocols(asked: Grid) -> dict[str, Any]:
    sweep = resolve(asked)
    return {p.cell.method: p.cell.protocol for p in plan(sweep, [source_of(m) for m in sweep.models])}


def test_values_for_a_method_a_dataset_and_all(made: Make) -> None:
    content = (
        SMALL + "batch_size = 50\nlimit = 90\n[per_dataset.digits-c]\nlimit = 70\nbatch_size = 30\n"
        "set.tent.lr = 0.5\n[per_method.tent]\nbatch_size = 20\nmode = 'offline'\n"
    )
    result = protocols(grid(made(content)))
    assert (result["tent"].batch_size, result["tent"].limit, result["tent"].mode) == (20, 70, "offline")
    assert (result["source"].batch_size, result["source"].limit, result["source"].mode) == (30, 70, "online")
    assert {c[0] for c in cells(grid(made(content)))} == {"source", "tent[lr=0.5]"}


def test_epochs_of_a_method_that_runs_online_are_refused(made: Make) -> None:
    with pytest.raises(UserError, match=r"per_method\.tent: epochs belong to offline mode"):
        resolve(grid(made(SMALL + "[per_method.tent]\nepochs = 3")))
    both = protocols(grid(made(SMALL + "[per_method.tent]\nepochs = 3\nmode = 'offline'")))
    assert (both["tent"].epochs, both["source"].mode) == (3, "online")


STREAM = SMALL + 'stream = "recurring(2)"\n'
PLAIN = '[[include]]\nstream = ""\nseeds = 1\n'
LONG = '[[include]]\nstream = "recurring(2)"\nseeds = 1\n'


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (STREAM + PLAIN, {"long": "continual", "": "per_corruption"}),
        (STREAM + 'reset = "continual"\n' + PLAIN, {"long": "continual", "": "continual"}),
        (STREAM + '[per_dataset.digits-c]\nstream = ""\n', {"": "per_corruption"}),
        (SMALL + LONG, {"long": "continual", "": "per_corruption"}),
        (SMALL + 'reset = "per_corruption"\n' + LONG, {"long": "continual", "": "per_corruption"}),
        (SMALL + 'reset = "episodic"\n' + LONG, {"long": "episodic", "": "episodic"}),
        (
            STREAM + 'reset = "every(3)"\n' + PLAIN + 'reset = ""\n',
            {"long": "every(3)", "": "per_corruption"},
        ),
    ],
)
def test_a_reset_that_is_not_given_is_that_of_the_stream_of_its_rule(
    made: Make, content: str, expected: dict[str, str]
) -> None:
    """The kept file means the same."""
    asked = grid(made(content))
    kept_of_it = grid(made(file_of(asked)))
    for one in (asked, kept_of_it):
        sweep = resolve(one)
        planned = plan(sweep, [source_of(model) for model in sweep.models])
        found = {("long" if p.cell.protocol.stream else "", p.cell.protocol.reset) for p in planned}
        assert found == set(expected.items())
    assert (kept_of_it.to_json(), file_of(kept_of_it)) == (asked.to_json(), file_of(asked))


def test_a_reset_per_corruption_of_a_stream_is_refused_wherever_it_is_given(made: Make) -> None:
    reset = 'reset = "per_corruption"\n'
    for content in (STREAM + reset, SMALL + LONG + reset, STREAM + "[per_method.tent]\n" + reset):
        with pytest.raises(UserError, match="stream recurring is one sequence; expected reset continual"):
            resolve(grid(made(content)))
    with pytest.raises(UserError, match="stream recurring is one sequence"):
        resolve(grid(made(STREAM), reset="per_corruption"))
    kept_before = grid(
        made(SMALL + reset), stream="recurring(2)"
    )  # a flag that replaces the stream of a file
    assert {p.reset for p in protocols(kept_before).values()} == {"continual"}


def test_a_rule_for_a_method_that_no_part_of_the_sweep_has_is_refused(made: Make) -> None:
    """A file without methods is checked when the methods are known."""
    with pytest.raises(UserError, match="unknown method in a rule 'tnet'; did you mean 'tent'"):
        resolve(grid(made("[per_method.tnet]\nbatch_size = 20")))
    included = "[per_method.sar]\nbatch_size = 20\n[[include]]\nmethods = ['sar']"
    assert protocols(grid(made(SMALL + included)))["sar"].batch_size == 20


def test_an_include_rule_wins_over_its_dataset(made: Make) -> None:
    rules = "[per_dataset.digits-c]\nseverities = [1]\n[[include]]\nseverities = [2]\n"
    assert {c[3] for c in cells(grid(made(SMALL + rules)))} == {1, 2}


def test_settings_are_of_the_methods_of_their_part(made: Make) -> None:
    rules = "[set.tent]\nlr = 0.5\n[[include]]\nmethods = ['sar']\nset.sar.lr = 0.25"
    assert {c[0] for c in cells(grid(made(SMALL + rules)))} == {"source", "tent[lr=0.5]", "sar[lr=0.25]"}
    with pytest.raises(UserError, match="include rule 1: severities names '2' twice"):
        resolve(
            Grid(methods=("tent",), archs=("cct",), corruptions=("fog",), include=({"severities": (2, 2)},))
        )


def test_the_example_in_the_docs_is_a_sweep(made: Make) -> None:
    page = (ROOT / "docs/sweeps.md").read_text()
    (example,) = re.findall(r"```toml\n(.*?)```", page, flags=re.DOTALL)
    assert agree(made(example))
    plain = plain_grids(grid(made(example)))
    assert [(g.datasets, g.limit, g.severities) for g in plain] == [
        (("cifar10-c",), 0, (5,)), (("cifar100-c",), 5000, (5,)), (("cifar10-c",), 0, (1, 2, 3, 4, 5)),
    ]  # fmt: skip
    assert [g.settings for g in plain] == [
        ("tent.lr=0.001,0.0001",), ("tent.lr=0.001,0.0001", "quantile.quantiles_per_class=10"), (),
    ]  # fmt: skip


# ---- flags

RULED = SMALL + (
    "limit = 60\nset.tent.lr = 0.5\nset.tent.steps = 2\n[per_method.tent]\nbatch_size = 20\n"
    "[per_dataset.digits-c]\nlimit = 70\n[[include]]\nseverities = [1]\nlimit = 80\n"
)


def test_a_flag_replaces_its_option_in_the_whole_file(made: Make) -> None:
    asked = grid(made(RULED), limit=9, batch_size=7, set=["tent.lr=0.1"])
    assert {(p.limit, p.batch_size) for p in protocols(asked).values()} == {(9, 7)}
    assert (asked.per_method, asked.per_dataset, asked.include) == ({}, {}, ({"severities": (1,)},))
    assert {c[0] for c in cells(asked)} == {"source", "tent[lr=0.1,steps=2]"}
    assert {c[3] for c in cells(asked)} == {1, 5}
    rows = "severities = 1\n[[include]]\nseverities = [1, 2]\nseeds = 1"
    assert {c[3] for c in cells(grid(made(SMALL + rows), severities="3"))} == {3}


def test_what_flags_replace_is_said(made: Make) -> None:
    config = read_sweep_file(made(RULED))
    flags = {"limit": 9, "batch_size": 7, "set": ["tent.lr=0.1"], "archs": "resnet18", "seeds": "1"}
    assert overridden(config, flags) == [
        "--limit 9 replaces limit = 60; [[include]] 1: limit = 80; [per_dataset.digits-c] limit = 70.",
        "--batch-size 7 replaces [per_method.tent] batch_size = 20.",
        "--set tent.lr=0.1 replaces tent.lr=0.5.",
    ]
    emptied = overridden(
        {"normalize": "imagenet", "checkpoint": ""}, {"normalize": "", "checkpoint": "net.pt"}
    )
    assert emptied == [
        '--normalize "" replaces normalize = imagenet.', '--checkpoint net.pt replaces checkpoint = "".'
    ]  # fmt: skip


def test_other_methods_than_the_file_has_leave_its_settings_without_effect(made: Make) -> None:
    assert {c[0] for c in cells(grid(made(RULED), methods="sar"))} == {"source", "sar"}
    included = SMALL + "[[include]]\nmethods = ['eata']\nset.eata.lr = 0.1\n"
    assert {c[0] for c in cells(grid(made(included), methods="tent"))} == {"source", "tent"}


def test_rules_of_a_dataset_hold_for_the_part_of_it_that_a_flag_names(made: Make) -> None:
    rules = (
        "[per_dataset.digits-c]\nbatch_size = 20\n"
        '[[exclude]]\ndatasets = ["digits-c"]\ncorruptions = ["snow"]\n'
    )
    asked = grid(made(SMALL + rules), datasets="digits-c[100]")
    assert {c[2] for c in cells(asked)} == {"fog"}
    assert {p.batch_size for p in protocols(asked).values()} == {20}
    assert grid(made(file_of(asked))).to_json() == asked.to_json()
    half = (
        (SMALL + rules)
        .replace("digits-c", "digits-c[50]")
        .replace("per_dataset.digits-c[50]", 'per_dataset."digits-c[50]"')
    )
    another = grid(made(half), datasets="digits-c[100]")
    assert (another.exclude, another.per_dataset) == ((), {})
    limited = grid(made(SMALL + "[per_dataset.digits-c]\nlimit = 100\n"), datasets="digits-c[100]")
    with pytest.raises(UserError, match=r"--limit 100: digits-c\[100\] is a subset already"):
        resolve(limited)
    both = (
        SMALL.replace('["digits-c"]', '["digits-c", "digits-c[100]"]')
        + "[per_dataset.digits-c]\nlimit = 90\n"
    )
    assert [(part.datasets, part.limit) for part in plain_grids(grid(made(both)))] == [
        (("digits-c",), 90), (("digits-c[100]",), 0),
    ]  # fmt: skip


def test_rules_are_kept_however_a_flag_spells_their_names(made: Make) -> None:
    content = (
        'methods = ["quantile+cotta", "tent"]\narchs = ["ResNet18"]\n'
        '[[exclude]]\nmethods = ["quantile+cotta"]\narchs = ["resnet18"]\n'
    )
    rule = {"methods": ("stack[first=quantile,second=cotta]",), "archs": ("resnet18",)}
    for flags in ({}, {"methods": "quantile+cotta"}, {"archs": "resnet18"}, {"archs": "RESNET18"}):
        assert grid(made(content), **flags).exclude == (rule,), flags
    assert grid(made(content), methods="tent").exclude == ()


def test_compute_ratios_of_methods_that_flags_leave_out_have_no_effect(made: Make) -> None:
    wide = 'methods = ["tent", "tent[lr=0.1]", "eata"]\narchs = ["resnet18"]\npace = 1\n'
    file = made(wide + 'pace_ratio = "tent=3,eata=2,tent[lr=0.1]=5"\n')
    assert grid(file, methods="tent").pace_ratio == (("tent", 3.0),)
    assert grid(file, methods="tent[lr=0.1]").pace_ratio == (("tent", 3.0), ("tent[lr=0.1]", 5.0))
    assert grid(file, methods="tent[lr=0.10]").pace_ratio == (("tent", 3.0),)
    spelled = made(wide.replace("0.1]", "0.10]") + 'pace_ratio = "tent[lr=0.1]=5"\n')
    assert grid(spelled, methods="tent[lr=0.10]").pace_ratio == (("tent[lr=0.1]", 5.0),)
    assert grid(file, methods="tent", pace_ratio="tent=4").pace_ratio == (("tent", 4.0),)
    ruled = made(wide + '[[include]]\npace_ratio = "eata=2"\nseeds = 1\n')
    assert grid(ruled, methods="tent").include == ({"seeds": (1,)},)


def test_compute_ratios_of_rules_count_where_the_rule_does(made: Make) -> None:
    rules = "pace = 1\npace_ratio = 'tent=3'\n[[include]]\npace_ratio = 'tent=2'\nseeds = 1\n"
    sweep = resolve(grid(made(SMALL + rules)))
    planned = plan(sweep, [source_of(m) for m in sweep.models], ratio_of=lambda cell: 9.0)
    tent = [p.cell for p in planned if p.cell.method == "tent"]
    assert {(cell.seed, cell.protocol.pace_ratio) for cell in tent} == {(0, 3.0), (1, 2.0)}


def test_the_kept_file_has_no_rule_about_what_flags_left_out(made: Make) -> None:
    """Such a rule has no effect, and a file that has it is refused."""
    wide = 'methods = ["tent", "sar"]\narchs = ["resnet18", "cct"]\ndatasets = ["digits-c", "cifar10-c"]\n'
    rules = (
        "[per_method.sar]\nbatch_size = 20\n[per_dataset.cifar10-c]\nlimit = 70\n"
        '[[exclude]]\narchs = ["cct"]\n[[exclude]]\narchs = ["cct", "resnet18"]\nmethods = ["tent", "sar"]\n'
        'corruptions = "fog"\n'
    )
    asked = grid(made(wide + rules), methods="tent", archs="resnet18", datasets="digits-c")
    assert (asked.per_method, asked.per_dataset) == ({}, {})
    assert asked.exclude == ({"archs": ("resnet18",), "methods": ("tent",), "corruptions": ("fog",)},)
    again = grid(made(file_of(asked)))
    assert again.to_json() == asked.to_json()
    assert cells(again) == {
        *(("source", "resnet18", name, 5, 0) for name in CORRUPTIONS),
        *(("tent", "resnet18", name, 5, 0) for name in CORRUPTIONS if name != "fog"),
    }
    assert grid(made(wide + rules), methods="sar").per_method == {"sar": {"batch_size": 20}}


# ---- what is kept


def test_the_kept_file_is_the_same_sweep(made: Make, tmp_path: Path) -> None:
    full = RULED + '[[exclude]]\ncorruptions = ["fog"]\nseeds = [0, 3]\n'
    for content in (
        full,
        SMALL,
        'methods = "alignment"\narchs = "cct"\ncorruptions = "extra"\nheld_out = 0.5',
        SMALL + 'pace = 1\n[[include]]\npace_ratio = "tent=2"\n[per_dataset.digits-c]\npace_ratio = "tent=3"',
    ):
        asked = grid(made(content))
        file = made(file_of(asked))
        assert grid(file).to_json() == asked.to_json()
        assert file_of(grid(file)) == file_of(asked)
        assert protocols(grid(file)) == protocols(asked)
        assert agree(file)
    assert tomllib.loads(file_of(grid(made("limit = 5"))))["corruptions"] == list(CORRUPTIONS)
    first, other = grid(made(SMALL)), grid(made(RULED))
    names = [keep(file_of(asked), tmp_path).name for asked in (first, first, other, first, other)]
    assert names == ["sweep.toml", "sweep.toml", "sweep-2.toml", "sweep.toml", "sweep-2.toml"]
    assert [file_of(make_grid(with_flags(options, {}))) for options in kept(tmp_path)] == [
        (tmp_path / name).read_text() for name in ("sweep-2.toml", "sweep.toml")
    ]


def test_a_kept_file_that_was_saved_with_other_bytes_is_in_nobodys_way(made: Make, tmp_path: Path) -> None:
    asked = grid(made(SMALL))
    file = keep(file_of(asked), tmp_path)
    file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))
    assert keep(file_of(asked), tmp_path) == file
    file.write_bytes(b"# f\xfcr sp\xe4ter\n" + file.read_bytes())
    assert [keep(file_of(asked), tmp_path).name for _ in range(2)] == ["sweep-2.toml"] * 2
    assert len([*kept(tmp_path)]) == 1


def test_a_sweep_file_runs_and_its_kept_file_goes_on(ttabench: Run, made: Make, tmp_path: Path) -> None:
    content = (
        SMALL + "limit = 20\nworkers = 0\n[[include]]\nseverities = [1]\n[[exclude]]\ncorruptions = 'snow'"
    )
    out = tmp_path / "out"
    output = ttabench("sweep", "--config", made(content), "--out", out, "--limit", "16")
    assert output.code == 0, output.err
    assert "ttabench: --limit 16 replaces limit = 20." in output.err
    frame = load_frame(out)
    assert set(zip(frame["method"], frame["corruption"], frame["severity"], strict=True)) == {
        (method, "fog", severity) for method in ("source", "tent") for severity in (1, 5)
    }
    assert set(frame["limit"]) == {16}
    again = ttabench("sweep", "--config", out / "sweep.toml", "--out", out, "--workers", "0")
    assert again.code == 0, again.err
    assert "4 cells: 0 to run, 4 done" in again.err
    assert "include, exclude; see sweep.toml there" in ttabench("status", out).out
    assert ttabench("report", out, "--format", "csv").code == 0


def test_a_kept_file_has_compute_ratios_as_they_were_given() -> None:
    """Of 3.0000004 another batch is the next to be adapted to than of 3."""
    for ratio, text in ((3.0000004, "tent=3.0000004"), (3.0, "tent=3"), (44.61234567, "tent=44.61234567")):
        made = make_grid({**DEFAULTS, "methods": "tent", "pace": 1.0, "pace_ratio": text})
        assert made.pace_ratio == (("tent", ratio),)
        assert f'pace_ratio = "{text}"' in file_of(made)
