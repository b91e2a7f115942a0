"""The rules of the structure: who may import whom, and what stays light to import."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib.util import resolve_name
from pathlib import Path

import pytest

from tests.cases import each

ROOT = Path(__file__).resolve().parents[2]
OURS = ("ttabench", "ttabench_methods", "ttabench_reports")


def imports(file: Path) -> set[str]:
    """Absolute names of our own modules that a file imports anywhere."""
    result: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            result |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            if node.level:  # a package's own files
                assert node.level == 1, file
                continue
            inside = node.module in OURS  # from ttabench import nn
            result |= {f"{node.module}.{a.name}" for a in node.names} if inside else {node.module or ""}
    return {name for name in result if name.split(".")[0] in OURS}


def files(folder: str) -> list[Path]:
    result = sorted((ROOT / folder).rglob("*.py"))
    assert result
    return result


def test_cells_import_nothing_else_of_ours() -> None:
    for file in files("ttabench/cell"):
        assert all(name.startswith("ttabench.cell") for name in imports(file)), file


def test_methods_import_only_the_contract_and_the_mechanics() -> None:
    allowed = {"ttabench.method", "ttabench.nn", "ttabench.errors", "ttabench.figure"}
    for file in files("methods"):
        outside = {name for name in imports(file) if not name.startswith("ttabench_methods")}
        assert outside <= allowed, f"{file}: {outside - allowed}"


def test_reports_import_only_the_store_side() -> None:
    allowed = {"store", "provenance", "cell", "errors", "system"}
    for file in files("reports"):
        for name in imports(file):
            top, _, rest = name.partition(".")
            light = name.startswith("ttabench.corruptions.corruption_names")
            side = rest.partition(".")[0] in allowed
            assert top == "ttabench_reports" or side or light, f"{file}: {name}"


def test_the_core_reaches_methods_and_reports_only_through_entry_points() -> None:
    for file in files("ttabench"):
        assert not {n for n in imports(file) if n.split(".")[0] != "ttabench"}, file


LIGHT = (  # one after the other in one process: what is forbidden may not come with those before either
    ("ttabench", ("torch", "pandas", "numpy")),
    ("ttabench_reports", ("torch", "pandas", "matplotlib", "rich")),
    ("ttabench.cli", ("torch", "pandas", "numpy", "rich.progress", "matplotlib")),
    ("ttabench.models.architectures.arch_names", ("torch",)),
    ("ttabench.models.training.weights_identity", ("torch",)),
    ("ttabench.models.checkpoints.cache", ("torch",)),
    ("ttabench.corruptions.corruption_names", ("torch", "cv2", "scipy")),
    ("ttabench.store", ("torch", "matplotlib")),
    ("ttabench_reports.evidence.stats", ("torch", "matplotlib")),
    ("ttabench_reports.tables.build", ("torch", "scipy", "matplotlib.pyplot")),
    ("ttabench_reports.formats.latex", ("torch", "scipy", "matplotlib.pyplot")),
    ("ttabench_reports.compare", ("torch", "scipy", "matplotlib.pyplot")),
    ("ttabench_reports.published", ("torch", "scipy", "matplotlib.pyplot")),
    ("ttabench_reports.terminal.accuracy_tables", ("torch", "scipy", "matplotlib.pyplot")),
    ("ttabench_reports.plots", ("torch", "scipy", "matplotlib.pyplot")),
)
WITH_TORCH = (  # OpenCV and SciPy take as long as all of ttabench, in every process of a sweep
    ("ttabench.run.worker", ("cv2", "scipy", "torchvision", "timm")),
    ("ttabench.api", ("torchvision", "timm")),
    ("ttabench.models.resolve", ("torchvision", "timm")),
)


@each("modules", [LIGHT, WITH_TORCH], ids=["light", "with torch"])
def test_imports_stay_light(modules: tuple[tuple[str, tuple[str, ...]], ...]) -> None:
    script = (
        "import importlib, sys\n"
        f"for name, forbidden in {modules!r}:\n"
        "    importlib.import_module(name)\n"
        "    print(name, *(other for other in forbidden if other in sys.modules))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [name for name, _ in modules], done.stderr


# Each layer may import what stands above it here, and the layers below it may import it.
LAYERS = (
    ("cell", "errors", "public_names"),
    ("system",),
    ("corruptions", "classifier"),
    ("method",),
    ("registry", "nn"),
    ("provenance",),
    ("data", "observe", "store"),
    ("measure",),
    ("models",),
    ("figure", "run"),
    ("conformance", "sweep"),
    ("paper",),
    ("cli",),
    ("api", "__main__"),
)
LAYERS_OF_REPORTS = (
    ("cells",),
    ("words", "published"),
    ("tables",),
    ("evidence",),
    ("sheets", "compare"),
    ("terminal",),
    ("formats",),
    ("plots", "ablation"),
    ("page",),
    ("paper", "leaderboard"),
)


def modules(folder: str) -> dict[str, Path]:
    """The modules below a folder of packages ("" for the core alone), by name."""
    result = {}
    for file in files(folder or "ttabench"):
        name = ".".join(file.relative_to(ROOT / folder).with_suffix("").parts)
        result[name.removesuffix(".__init__")] = file
    return result


def arrows(folder: str = "") -> dict[str, set[str]]:
    """Module → modules of the folder that it imports, also inside functions; not those for types only."""
    known = modules(folder)
    result: dict[str, set[str]] = {}
    for name, file in known.items():
        package = name if file.name == "__init__.py" else name.rpartition(".")[0]
        targets: set[str] = set()
        queue: list[ast.AST] = [ast.parse(file.read_text())]
        while queue:
            node = queue.pop()
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
                queue += node.orelse
            elif isinstance(node, ast.Import):
                targets |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                origin = resolve_name("." * node.level + (node.module or ""), package)
                inner = {f"{origin}.{alias.name}" for alias in node.names}
                targets |= inner & known.keys() or {origin}
            else:
                queue += ast.iter_child_nodes(node)
        result[name] = (targets & known.keys()) - {name, "ttabench"}
    return result


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Every circle that a walk along the arrows closes, as the modules on it."""
    result: list[list[str]] = []
    done: set[str] = set()

    def walk(name: str, path: list[str]) -> None:
        if name in path:
            result.append(path[path.index(name) :])
        elif name not in done:
            for target in sorted(graph[name]):
                walk(target, [*path, name])
            done.add(name)

    for name in sorted(graph):
        walk(name, [])
    return result


def climbs(graph: dict[str, set[str]], layers: tuple[tuple[str, ...], ...] = LAYERS) -> list[str]:
    """Imports from a layer below into one above it, and modules without a layer."""
    level = {name: i for i, layer in enumerate(layers) for name in layer}
    result = []
    for name, targets in sorted(graph.items()):
        ours = name.partition(".")[2].partition(".")[0]
        if ours and ours not in level:
            result.append(f"{name} has no layer")
        for target in sorted(targets):
            other = target.partition(".")[2].partition(".")[0]
            if ours and ours != other and level.get(ours, 99) < level.get(other, 99):
                result.append(f"{name} → {target}")
    return result


def test_imports_go_down_the_layers_and_never_in_a_circle() -> None:
    graph = arrows()
    assert circles(graph) == []
    assert climbs(graph) == []
    reports = arrows("reports")
    assert circles(reports) == []
    assert climbs(reports, LAYERS_OF_REPORTS) == []


@pytest.mark.parametrize("folder", ["methods", "reports"])
def test_methods_and_reports_have_no_circles(folder: str) -> None:
    graph = arrows(folder)
    assert sum(map(len, graph.values())) > 20
    assert circles(graph) == []


def test_a_circle_and_a_climb_would_be_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == [["b", "c"]]
    assert climbs({"ttabench.nn.updates": {"ttabench.models.model"}}) == [
        "ttabench.nn.updates → ttabench.models.model"
    ]
    assert climbs({"ttabench.newroom": set()}) == ["ttabench.newroom has no layer"]
