"""The command line at its door: help and its defaults, mistakes in options, and verbs that need no torch."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cases import each
from tests.unit.cli.test_views import results as results  # the fixture
from tests.unit.conftest import Run
from ttabench import registry
from ttabench.cli import _facts, command
from ttabench.errors import UserError
from ttabench.store import Store
from ttabench.sweep.attestation.side_by_side import side_by_side
from ttabench.sweep.option_table import OPTIONS
from ttabench.system.cores import ONE_NUMPY_THREAD


def verbs() -> Iterator[tuple[str, Any]]:
    """Every verb, those of `data` too: what is typed, and its command."""
    for name, verb in command().commands.items():
        inner = getattr(verb, "commands", {})
        yield from ((f"{name} {each}", inner[each]) for each in inner) if inner else ((name, verb),)


VERBS = dict(verbs())


def helped(ttabench: Run, monkeypatch: pytest.MonkeyPatch, verb: str) -> dict[str, str]:
    """Option → the text of its row in the help."""
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setenv("TERMINAL_WIDTH", "300")
    output = ttabench(*verb.split(), "--help")
    assert output.code == 0
    rows = re.findall(r"^│ +(?:\* +)?(--[\w-]+)(.*)│$", output.out, re.MULTILINE)
    assert rows
    return dict(rows)


def test_a_verb_on_its_own_is_the_same_and_imports_no_other() -> None:
    for name, whole in command().commands.items():
        (alone,) = command(name).commands.values()
        assert alone.help == whole.help
        assert [param.opts for param in alone.params] == [param.opts for param in whole.params]
    modules = "print(*[name for name in sys.modules if name.startswith('ttabench.cli.')])"
    script = f"import sys; from ttabench.cli import command; command('status'); {modules}"
    loaded = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert loaded.stdout.split() == ["ttabench.cli._mistakes", "ttabench.cli.status"]


@each("verb", VERBS)
def test_the_default_that_the_help_shows_is_the_one_in_force(
    ttabench: Run, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    rows = helped(ttabench, monkeypatch, verb)
    parameters = inspect.signature(inspect.unwrap(VERBS[verb].callback)).parameters
    for option in VERBS[verb].params:
        if option.param_type_name != "option" or option.name == "help" or option.hidden:
            continue
        row = rows[option.opts[0]]
        shown = re.search(r"\[default: (.*)\]", row)
        default = parameters[option.name].default
        if isinstance(option.show_default, str):
            # Nothing, "" or "off" means: as another thing decides. A sentence says what.
            assert default in (None, "", False)
            assert shown is not None
            assert shown[1] == f"({option.show_default})"
        elif option.is_flag or default in (None, "", []):
            assert shown is None, row  # off, or none
        else:
            assert shown is not None, row
            assert shown[1] == str(default)


@each("verb", VERBS)
def test_the_help_names_what_an_option_takes(
    ttabench: Run, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    helped(ttabench, monkeypatch, verb)
    out = ttabench(*verb.split(), "--help").out
    assert not re.search(r"<(str|int|float|path|bool|list)\b|\\\[", out, re.IGNORECASE), out
    for param in (one for one in VERBS[verb].params if not getattr(one, "hidden", False)):
        takes_value = not getattr(param, "is_flag", False)
        assert bool(param.metavar) == takes_value, param.name


def test_every_verb_that_writes_a_folder_calls_it_out() -> None:
    for verb in ("sweep", "report", "figure", "leaderboard", "data generate", "data fetch"):
        names = {name for param in VERBS[verb].params for name in param.opts}
        assert "--out" in names
        assert "--to" not in names


@each(
    ("arguments", "says"),
    [
        (("sweep", "--archz", "x"), "no such option: --archz. Did you mean --archs?"),
        (("report", "--formt", "csv"), "Did you mean --format?"),
        (("sweep", "--results", "x"), "no such option: --results. Did you mean --out?"),
        (
            ("sweep", "--speed", "2000"),
            "no such option: --speed. It is a part of --stream, as in --stream 'ccc(40,speed=2000)'.",
        ),
        (("status", "--results", "x"), "no such option: --results."),
        (("figure", "tsne", "--to", "x"), "no such option: --to. Did you mean --out?"),
        (("report", "x", "--out", ""), "--out '' names no folder; name one, e.g. --out results"),
        (("leaderboard", "x", "--out="), "--out '' names no folder; name one, e.g. --out results"),
        (("data", "list", "--root", ""), "--root '' names no folder; name one, e.g. --root data"),
        (("data", "verify", "x", "--root="), "--root '' names no folder; name one, e.g. --root data"),
        (
            ("sweep", "--checkpoint", ""),
            "--checkpoint '' names no file; name one, or leave --checkpoint out.",
        ),
        (("sweep", "--batch-size", str(10**21)), "2,147,483,647"),
        (
            ("train", "--datasets", "digits-c", "--recipe", "paper"),
            "Valid: fast, fast-portable. These are the recipes of resnet18",
        ),
        (("sweep", "--out", "--dry-run"), "--out has no value: --dry-run looks like an option."),
        (("sweep", "--methods", "tent", "--out", "--extend"), "--out has no value: --extend looks like"),
        (("sweep", "--config", "--dry-run", "--out", "x"), "--config has no value: --dry-run looks like"),
        (("sweep", "--out", "--dryrun"), "--out has no value: --dryrun looks like an option."),
        (("sweep", "--out", "-h"), "--out has no value: -h looks like an option."),
        (("report", "x", "--out", "--format=csv"), "--out has no value: --format=csv looks like an option."),
        (("data", "list", "--root", "--json"), "--root has no value: --json looks like an option."),
        (("verify", "x", "--device", "--json"), "--device has no value: --json looks like an option."),
        (("sweep", "--limit", "1.5"), "--limit 1.5: expected a whole number, 0 or larger."),
        (("sweep", "--limit=-1"), "--limit -1: expected a whole number, 0 or larger."),
        (("sweep", "--held-out", "half"), "--held-out half: expected a number."),
        (("train", "--seed", "-1"), "--seed -1: expected a whole number, 0 or larger."),
        (("train", "--seed", "9" * 23), f"seed {'9' * 23} does not exist; seeds are 0 to 2⁶³ − 1."),
        (("train", "--threads", "9" * 23), f"--threads {'9' * 23}: expected one whole number from 0 to"),
        (("train", "--archs", ""), "--archs '' names nothing; name at least one."),
        (("train", "--archs", "cct,cct"), "--archs names 'cct' twice; name it once."),
        (("sweep", "--methods", "tent", "--methods=sar"), "give it once, several values with commas."),
        (("sweep", "--limit", "9", "--limit=8"), "--limit is given twice; give it once.\n"),
        (
            ("sweep", "--methods", "tent[lr=0.1,lr=0.2]"),
            "'lr' is in 'tent[lr=0.1,lr=0.2]' twice; give it once.",
        ),
        (("train", "--archs", ":build"), "':build' is not of the form package.module:callable"),
        (("sweep", "--archs", ""), "no archs were given; name at least one."),
        (("sweep", "--archs", "cct,cct"), "archs names 'cct' twice; name each once."),
        (("sweep", "--archs", ":build"), "':build' is not of the form package.module:callable"),
        (("sweep", "--order", "sorted"), "ttabench: order is 'sorted'; expected iid or dirichlet(δ)"),
        (("sweep", "--precision", "half"), "ttabench: precision is 'half'; expected one of float32"),
        (("sweepp",), "no such command 'sweepp'. Did you mean 'sweep'?"),
        (
            ("compare",),
            "missing argument 'BASELINE': a results folder or a cells.csv. "
            "Expected: ttabench compare BASELINE CANDIDATE",
        ),
        (
            ("list",),
            "missing argument 'WHAT': methods, settings, archs, datasets, corruptions or protocols. "
            "Expected: ttabench list WHAT [METHOD]",
        ),
        (("cite", "results", "tent"), "got unexpected extra argument (tent). Expected: ttabench cite [DIR]"),
        (
            ("sweep", "--corruptions", "fog,", "snow"),
            "(snow). Expected: ttabench sweep. Values of one option have commas between them, and no",
        ),
        (("diff", "a", "b", "c", "d"), "got unexpected extra arguments (c d). Expected: ttabench diff A B"),
        (("report", "x", "--format", ""), "--format '' names nothing; name at least one."),
        (("conform", "tent,sar"), "spaces between them, not commas: ttabench conform tent sar."),
        (("paper", "--only", ""), "--only '' names nothing; name at least one."),
        (("paper", "--only", "table1", "--archs", ""), "--archs '' names nothing; name at least one."),
        (("list", "settings"), "settings of which method? For example: ttabench list settings tent."),
        (("list", "archs", "cct"), "list archs takes no name"),
        (("list", "methods", "tnet"), "unknown method 'tnet'; did you mean 'tent'"),
        (("list", "methods", "tnet[lr=1]"), "unknown method 'tnet'; did you mean 'tent'"),
        (("list", "methods", "tent[lrr=1]"), "unknown setting of tent 'lrr'; did you mean 'lr'?"),
        (("list", "settings", "tent[lr=-1]"), "tent: lr is -1.0; expected a number of at least 0"),
        (("sweep", "--methods", "te\x1b[31mnt"), "te\\x1b[31mnt"),
        (("sweep", "--ar\x1b[31mchs", "x"), "--ar\\x1b[31mchs"),
        (("conform", "te\x1b[31mnt"), "te\\x1b[31mnt"),
        (("sw\x1b[31m",), "sw\\x1b[31m"),
        (("figure", "six-blobs", "--out", "x" * 5000), "--out"),
        (("figure", "six-blobs", "--out", "/proc/figures"), "choose another --out."),
        (("report", "x" * 5000), "(5,000 characters) is too long for this system; choose a shorter one."),
        (("compare", "x" * 5000, "y"), "is too long for this system"),
        (("status", "x" * 5000), "cannot be read (File name too long)."),
        (("sweep", "--config", "x" * 5000), "cannot be read"),
        (("sweep", "--checkpoint", "x" * 5000, "--archs", "resnet18"), "(File name too long)"),
        (("sweep", "--corruptions", "frg"), "did you mean 'fog' or 'frost'? See `ttabench list corruptions`"),
        (("sweep", "--datasets", "/data/CIFAR-10-C"), "published datasets are opened by name: cifar10-c"),
        (("sweep", "--archs", "resnet18", "--log", "tensorbord"), "did you mean 'tensorboard'?"),
        (("sweep", "--archs", "resnet18", "--log", "tensorbord", "--dry-run"), "did you mean 'tensorboard'?"),
        (("train", "--precision", "half"), "precision is 'half'; expected auto, float32 or bfloat16."),
        (("train", "--workers", "many"), "--workers many: expected auto or a whole number"),
    ],
    ids=repr,
)
def test_a_mistake_is_one_sentence_and_exit_code_2(
    ttabench: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    output = ttabench(*arguments)
    assert (output.code, output.out) == (2, ""), output
    assert says in output.err
    assert output.err.startswith("ttabench: ")
    assert output.err.count("\n") == 1
    assert "\x1b" not in output.err
    assert len(output.err) < 400
    assert not list(tmp_path.iterdir())


def test_a_link_to_itself_is_one_sentence(
    ttabench: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, results: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("loop").symlink_to("loop")
    for arguments in (
        ("report", results, "--out", "loop"),
        ("leaderboard", results, "--out", "loop/site"),
        ("leaderboard", results, "loop"),
        ("figure", "pipeline", "--out", "loop"),
        ("paper", "--only", "pipeline", "--out", "loop"),
        ("status", "loop"),
    ):
        output = ttabench(*arguments)
        assert (output.code, output.out, output.err.count("\n")) == (2, "", 1), output
        assert "loop" in output.err
    store = Store.at(results)
    with pytest.raises(UserError, match="loop has no ttabench"), side_by_side(store, Path("loop")):
        pass


@each("verb", VERBS)
def test_the_terminal_wraps_the_paragraphs_of_the_help(verb: str) -> None:
    paragraphs = VERBS[verb].help.split("\n\n")
    assert not [paragraph for paragraph in paragraphs if "\n" in paragraph]


def test_no_word_of_the_help_is_cut_on_a_terminal_of_80_columns() -> None:
    words = [word for option in OPTIONS.values() for word in option.help.split()]
    assert max(map(len, words)) <= 36


def test_help_without_a_verb_and_the_short_option(ttabench: Run) -> None:
    assert "Usage" in ttabench("-h").out
    assert "-h" in ttabench("sweep", "-h").out
    output = ttabench("data")
    assert "generate" in output.out + output.err


# ---- verbs that need no torch

WATCH = """
import json, sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            raise AssertionError("torch was imported")
sys.meta_path.insert(0, Refuse())
from ttabench.cli import main
for arguments in json.loads(sys.argv[1]):
    sys.argv = ["ttabench", *arguments]
    print("$", *arguments, flush=True)
    try:
        main()
    except SystemExit as end:
        assert not end.code, arguments
import os
assert os.environ["OPENBLAS_NUM_THREADS"] == "1"
"""
WITHOUT_TORCH = (
    "list archs", "list datasets", "list corruptions", "status RESULTS", "compare RESULTS RESULTS",
    "diff RESULTS RESULTS", "data list", "report RESULTS --format csv,markdown --out OUT",
)  # fmt: skip


def without_torch(*commands: list[str]) -> subprocess.CompletedProcess[str]:
    """Run commands in a process in which nothing can import torch."""
    script = [sys.executable, "-c", WATCH, json.dumps(commands)]
    usual = {name: value for name, value in os.environ.items() if name not in ONE_NUMPY_THREAD}
    return subprocess.run(script, capture_output=True, text=True, env=usual, check=False)


def test_torch_is_not_imported_and_numpy_has_one_thread(results: Path, tmp_path: Path) -> None:
    places = {"RESULTS": str(results), "OUT": str(tmp_path / "out")}
    texts = [re.sub("RESULTS|OUT", lambda found: places[found[0]], each) for each in WITHOUT_TORCH]
    done = without_torch(*map(str.split, texts))
    assert done.returncode == 0, done.stdout[done.stdout.rfind("$ ") :] + done.stderr
    answers = [answer.partition("\n") for answer in f"\n{done.stdout}".split("\n$ ")[1:]]
    assert [given for given, _, _ in answers] == texts
    assert all(answer for _, _, answer in answers)


def test_the_watch_would_notice_torch() -> None:
    done = without_torch(["conform", "source"])
    assert done.returncode != 0
    assert "torch was imported" in done.stderr


# ---- methods and settings in full


def test_one_method_in_full(ttabench: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    from ttabench_methods.sar import SAR

    out = " ".join(ttabench("list", "methods", "sar").out.split())
    for told in (SAR.deviations, SAR.paper.title, SAR.scores, SAR.restores, "gradients"):
        assert " ".join(told.split()) in out


def test_every_setting_has_a_row_and_the_default_in_force() -> None:
    from ttabench.cell import spell

    for name, cls in registry.methods().items():
        fact = _facts.method(name)
        config = cls.Config()
        shown = {setting["name"]: setting["default"] for setting in fact["settings"]}
        fields = getattr(config, "__dataclass_fields__", {})
        assert list(shown) == list(fields), name
        for field in fields:
            value = getattr(config, field)
            assert shown[field] == spell(value), f"{name}.{field}"
        assert all(setting["range"] for setting in fact["settings"])


def test_settings_tell_range_meaning_and_where_they_are_from(
    ttabench: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    out = ttabench("list", "settings", "tent").out
    for told in (
        "adam or adamw or sgd or nesterov",
        "a whole number of at least 1",
        "updates per batch",
        "learning rate",
        "the official CIFAR-10-C configuration (batch size 200)",
        "--set tent.",
    ):
        assert told in out
    assert "lr at another --batch-size: as in official scripts, see --batch-rate" in out
    assert "--batch-rate" not in ttabench("list", "settings", "quantile").out
    assert "has no settings" in ttabench("list", "settings", "source").out
    of_stack = ttabench("list", "settings", "quantile+tent").out
    assert "--methods stack[first=…], or --set stack.first=…" in of_stack
    assert "Raises" not in ttabench("list", "settings", "quantile_strict").out
    rows = {s["name"]: s["meaning"] for s in _facts.method("quantile")["settings"]}
    assert rows["minibatch"] == "images per update; chosen (paper: 128 to 512, for 10,000 images)"
    assert rows["start"].endswith("whichever has the lower quantile loss; the paper: identity")
    rows |= {s["name"]: s["meaning"] for s in _facts.method("lame")["settings"]}
    assert rows["affinity"].endswith('"linear": φ(x_i)·φ(x_j). d_ij = ‖φ(x_i) − φ(x_j)‖')  # over three lines
    assert rows["bank"].startswith("When the mean of the bank is re-based. step: with every update.")


def test_a_method_with_settings_is_listed_as_it_would_run(ttabench: Run) -> None:
    plain, hosted = (
        " ".join(ttabench("list", "methods", name).out.split()) for name in ("come", "come[host=eata]")
    )
    assert "method come what" in plain
    assert "method come[host=eata] what" in hosted
    assert ("Without Forgetting" in hosted.title(), "Without Forgetting" in plain.title()) == (True, False)
    assert "source data nothing" in plain
    assert "source data images" in hosted
    assert "settings host=eata," in hosted
    row = next(
        line for line in ttabench("list", "settings", "tent[lr=0.25]").out.splitlines() if " lr " in line
    )
    assert "0.25" in row


def test_every_setting_of_every_method_has_a_meaning() -> None:
    facts = {fact["name"]: fact for fact in _facts.methods()}
    assert {"come", "quantile", "tent", "ttac"} <= facts.keys()
    silent = [
        f"{name}.{s['name']}" for name, fact in facts.items() for s in fact["settings"] if not s["meaning"]
    ]
    assert not silent, "say in the Config what these settings are"
    unnamed = [name for name, fact in facts.items() if fact["settings"] and not fact["about_settings"]]
    assert not unnamed, "say in the Config's docstring where its values are from"


def test_facts_are_plain_data() -> None:
    assert json.loads(json.dumps(_facts.method("tent"))) == _facts.method("tent")
