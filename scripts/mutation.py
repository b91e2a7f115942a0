"""Mutation tests of one group of modules: change one expression of the code at a time, run the tests.

The groups and their tests are in ``tests/mutation/groups.toml``. mutmut runs in a copy of the repository, so
the code here never changes. Prints the share of mutations that the tests noticed, per module, and every
mutation that no test noticed, with the reason from ``tests/mutation/survivors.toml``. Fails below --least.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections import defaultdict
from pathlib import Path

from bench_suite import arguments

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "tests" / "mutation"
MUTMUT = (sys.executable, "-c", "from mutmut.__main__ import cli; cli()")
SHOW = (
    "import sys; from mutmut.__main__ import cli\n"
    "for name in sys.argv[1:]: cli(['show', name], standalone_mode=False)"
)
PYTEST = ["-p", "no:cacheprovider", "-p", "no:xdist", "--hypothesis-profile=no-shrinking"]
# A run that ends by a signal or by its time limit noticed the mutation.
NOTICED = ("killed", "timeout", "segfault", "suspicious")
UNNOTICED = ("survived", "no tests")

Change = tuple[str, str, str]
"""The function, its line before, and its line after."""


def groups() -> dict[str, dict[str, list[str]]]:
    """The modules of each group, and the tests that run on their mutations."""
    table: dict[str, dict[str, list[str]]] = tomllib.loads((FOLDER / "groups.toml").read_text())
    return table


def reasons() -> dict[Change, str]:
    """Why no test notices a change, for every change that is listed."""
    listed = tomllib.loads((FOLDER / "survivors.toml").read_text())["survivor"]
    return {(one["function"], one["before"], one["after"]): one["reason"] for one in listed}


def copy_repository(to: Path) -> None:
    """Copy the files that git knows or does not ignore. ``src`` is the folder of the reports.

    mutmut takes the path of a file for the name of its module, and omits only a leading ``src``.
    """
    names = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)
    if not (to / "src").exists():
        (to / "src").symlink_to("reports")


def configure(work: Path, group: dict[str, list[str]]) -> None:
    """Write mutmut's settings, which say what is changed and which tests run."""
    folders = {"src" if name.startswith("src/") else "ttabench" for name in group["modules"]}
    made_here = {"mutants", "src", "ttabench", "tests"}
    beside = sorted({path.name for path in work.iterdir()} - made_here)
    settings = {
        "source_paths": sorted(folders),
        "only_mutate": group["modules"],
        "also_copy": [*beside, *sorted({"src", "ttabench"} - folders)],
        "pytest_add_cli_args": [*PYTEST, *(f"--deselect={name}" for name in group.get("without", ()))],
        "pytest_add_cli_args_test_selection": group["tests"],
    }
    lines = ["[mutmut]", "use_git_change_detection = false"]
    for key, values in settings.items():
        lines += [f"{key} =", *(f"    {value}" for value in values)]
    (work / "setup.cfg").write_text("\n".join(lines) + "\n")


def output_lines(work: Path, *command: str) -> list[str]:
    """The lines that a command of mutmut prints."""
    done = subprocess.run(command, cwd=work, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.splitlines()


def states(work: Path) -> dict[str, str]:
    """What became of each mutation, by mutmut's name for it."""
    lines = output_lines(work, *MUTMUT, "results", "--all", "true")
    return dict(line.strip().rsplit(": ", 1) for line in lines if ": " in line)


def function_of(name: str) -> str:
    """``ttabench.cell.Cell.from_json`` for ``ttabench.cell.xǁCellǁfrom_json__mutmut_1``."""
    module, _, mangled = name.rpartition(".")
    return f"{module}.{mangled.partition('__mutmut_')[0][2:].replace('ǁ', '.')}"


def changes_of(work: Path, names: list[str]) -> dict[str, Change]:
    """The lines that each mutation changes."""
    changes: dict[str, Change] = {}
    if not names:
        return changes
    for text in "\n".join(["", *output_lines(work, sys.executable, "-c", SHOW, *names)]).split("\n# ")[1:]:
        heading, *lines = text.splitlines()
        name = heading.rpartition(": ")[0]
        before, after = (
            " ".join(line[1:].strip() for line in lines if line.startswith(sign) and line[:3] != 3 * sign)
            for sign in "-+"
        )
        changes[name] = function_of(name), before, after
    return changes


def report(work: Path, group: str, least: float) -> bool:
    """Print what was noticed and what was not; whether all was tried and enough was noticed."""
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    outcome, listed = states(work), reasons()
    for name, state in outcome.items():
        counts[name.rpartition(".")[0]][0] += state in NOTICED
        counts[name.rpartition(".")[0]][1] += 1
    unnoticed = [name for name, state in outcome.items() if state in UNNOTICED]
    for name, change in changes_of(work, unnoticed).items():
        print(f"{name}\n  - {change[1]}\n  + {change[2]}\n  {listed.get(change, 'NOT LISTED')}")
    for module, (noticed, tried) in sorted(counts.items()):
        print(f"{module}: {noticed} of {tried} noticed, {100 * noticed / tried:.1f} %")
    noticed, tried = (sum(column) for column in zip(*counts.values(), strict=True))
    share, left = 100 * noticed / tried, tried - noticed - len(unnoticed)
    print(f"{group}: {noticed} of {tried} noticed, {share:.1f} %; at least {least:g} % are required")
    if left:
        print(f"{left} were not tried")
    return share >= least and not left


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("group", choices=sorted(groups()))
    parser.add_argument("--least", type=float, default=85.0, help="percent")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--work", type=Path, help="keep the copy here")
    parser.add_argument("--again", action="store_true", help="run only what no test noticed in --work")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        work: Path = (options.work or Path(scratch)).resolve()
        copy_repository(work)
        configure(work, groups()[options.group])
        # With names, mutmut first runs the tests by their ids, and stops where one is not found again. Such
        # an id would count as a mutation that was noticed.
        names = ["*"]
        if options.again:
            names = [name for name, state in states(work).items() if state in UNNOTICED]
            # It says which tests reach what, and is not renewed for tests that changed. Where the group has
            # other tests than in it, mutmut also forgets all results.
            (work / "mutants" / "mutmut-stats.json").unlink(missing_ok=True)
        subprocess.run(
            [*MUTMUT, "run", "--max-children", str(options.processes), *names],
            cwd=work, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        sys.exit(not report(work, options.group, options.least))


if __name__ == "__main__":
    main()
