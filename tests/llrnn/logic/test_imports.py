"""The modules of llrnn import each other in one direction, also by imports inside functions."""

import ast
import graphlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PATHS = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in (ROOT / "llrnn").rglob("*.py")
}


def imports(source: str, modules: set[str]) -> set[str]:
    """Returns our modules that a text imports anywhere; `from package import module` counts as the module."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in modules else node.module)
    return found & modules


def ordered(sources: dict[str, str]) -> list[str]:
    """Returns the modules in an order where each follows those it imports."""
    graph = {name: imports(source, set(sources)) for name, source in sources.items()}
    return list(graphlib.TopologicalSorter(graph).static_order())


def test_no_import_cycle():
    order = ordered({name: path.read_text(encoding="utf-8") for name, path in PATHS.items()})
    assert order.index("llrnn.logic.types") < order.index("llrnn.logic.terms") < order.index("llrnn.logic")


def test_an_import_inside_a_function_counts():
    first = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p import second"
    with pytest.raises(graphlib.CycleError):
        ordered({"p": "", "p.first": first, "p.second": "def f():\n    import p.first"})
