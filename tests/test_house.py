"""The rules of docs/architecture.md that a machine can hold: where imports point, what may be named."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.registry import EXPERIMENTS
from tests import imports

ROOT = Path(__file__).resolve().parents[1]
PAPERS = ("simplicial", "tp_transformer", "folnet", "llrnn")
MAY_IMPORT = {
    "logic_zoo": set(),
    "kernels": set(),
    **{paper: {"logic_zoo", "kernels"} for paper in PAPERS},
    "experiments": {"logic_zoo", "kernels", *PAPERS},
}
OURS = {*MAY_IMPORT, "benchmarks", "examples", "tests"}


def imported(source: str) -> set[str]:
    """The top-level packages a module's text imports."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module.split(".")[0])
    return names


@pytest.mark.parametrize("package", [name for name in MAY_IMPORT if (ROOT / name).is_dir()])
def test_imports_point_down(package):
    """A package imports, of ours, itself and the floors below it."""
    allowed = {package, *MAY_IMPORT[package]}
    modules = sorted((ROOT / package).rglob("*.py"))
    assert modules
    wrong = {
        str(module.relative_to(ROOT)): found
        for module in modules
        if (found := (imported(module.read_text(encoding="utf-8")) & OURS) - allowed)
    }
    assert not wrong


def test_logic_zoo_imports_the_standard_library_only():
    """The other packages import it first, to report what is missing or in the wrong place."""
    for module in (ROOT / "logic_zoo").glob("*.py"):
        allowed = sys.stdlib_module_names | {"logic_zoo"}
        assert imported(module.read_text(encoding="utf-8")) <= allowed


def test_benchmarks_import_nothing_from_tests():
    """What both compare with is in `benchmarks/peers/`, where the tests find it."""
    modules = sorted((ROOT / "benchmarks").rglob("*.py"))
    assert modules
    assert not [module for module in modules if "tests" in imported(module.read_text(encoding="utf-8"))]


def test_the_rule_sees_an_import():
    """The check above would notice."""
    assert imported("import experiments.runtime as r\nfrom llrnn import logic") == {"experiments", "llrnn"}


@pytest.mark.parametrize("package", [name for name in PAPERS if (ROOT / name).is_dir()])
def test_papers_touch_no_flags_and_write_no_checkpoints(package):
    """A paper's package imports no library for them."""
    for module in sorted((ROOT / package).rglob("*.py")):
        found = imported(module.read_text(encoding="utf-8"))
        assert not found & {"absl", "ml_collections", "orbax"}, module


def test_rooms_of_experiments_know_the_runtime_and_not_the_other_way_round():
    """Folders import one another without a cycle, and few of them."""
    edges = imports.graph(ROOT / "experiments")
    rooms = {path.parent.name for path in (ROOT / "experiments").glob("*/__main__.py")}
    assert len(rooms) >= 8
    assert not [edge for edge in edges if edge[0] in ("runtime", "exporting") and edge[1] in rooms]
    assert imports.cycle(edges) == []
    # Folders inside a room are its own business.
    between = {(first.split("/")[0], second.split("/")[0]) for first, second in edges}
    between -= {(name, name) for name in rooms}
    assert len(between) <= 40
    assert len({name for edge in between for name in edge} - rooms) <= 9


def test_a_cycle_is_seen():
    """The check above would notice."""
    edges = {("a", "b"): [], ("b", "c"): [], ("c", "b"): [], ("c", "d"): []}
    assert imports.cycle(edges) == ["b", "c"]


def test_programs_are_not_imported_by_their_packages():
    """Otherwise `python -m` would warn that it executes a module a second time."""
    for path in sorted((ROOT / "experiments").rglob("*.py")):
        init = path.parent / "__init__.py"
        if path.name == "__main__.py" or '__name__ == "__main__"' not in path.read_text(encoding="utf-8"):
            continue
        tree = ast.parse(init.read_text(encoding="utf-8"))
        package = ".".join(path.parent.relative_to(ROOT).parts)
        early = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == package]
        names = {alias.name for node in early for alias in node.names}
        assert path.stem not in names, path


def test_every_room_is_registered():
    """Under the name of its folder, and nothing else is."""
    rooms = {path.parent.name for path in (ROOT / "experiments").glob("*/__main__.py")}
    assert set(EXPERIMENTS) == rooms
    assert all(experiment.name == name for name, experiment in EXPERIMENTS.items())


def test_tests_mirror_the_tree():
    """Every folder of tests stands where the folder it tests stands."""
    for folder in sorted(path for path in (ROOT / "tests").rglob("*") if path.is_dir()):
        relative = folder.relative_to(ROOT / "tests")
        if "__pycache__" in relative.parts or "data" in relative.parts:
            continue
        assert (ROOT / relative).is_dir() or (ROOT / relative).with_suffix(".py").is_file(), relative


def test_nothing_names_one_machine():
    """No tracked text names a home directory or where packages were fetched from."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    pattern = re.compile(r"/home/\w|/(?:root|Users)/|://[^\s)]*/simple\b")
    for name in filter(None, listed.stdout.split("\0")):
        path = ROOT / name
        if path.suffix in {".py", ".md", ".toml", ".txt", ".json", ".jsonl", ""} and path != Path(__file__):
            text = path.read_text(encoding="utf-8", errors="ignore") if path.is_file() else ""
            assert not pattern.search(text), name
