"""Which folder of a package imports which: `python tests/imports.py experiments`.

A module that lies directly in the package is a node of its own. Imports inside functions count.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

Edge = tuple[str, str]


def graph(package: Path) -> dict[Edge, list[str]]:
    """For each edge between two folders the files that import so, in the package's own names."""
    edges: dict[Edge, list[str]] = {}
    for file in sorted(package.rglob("*.py")):
        for target in imported(file, package):
            edge = node(file, package), node(target, package)
            if edge[0] != edge[1]:
                edges.setdefault(edge, []).append(file.relative_to(package.parent).as_posix())
    return edges


def node(file: Path, package: Path) -> str:
    """The folder of a file, below the package; of a file directly in the package, its own name."""
    inside = file.relative_to(package)
    return inside.parent.as_posix() if len(inside.parts) > 1 else inside.stem


def imported(file: Path, package: Path) -> Iterator[Path]:
    """The files of the package that a file imports."""
    for statement in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(statement, ast.Import):
            names = [alias.name for alias in statement.names]
        elif isinstance(statement, ast.ImportFrom) and statement.module:
            names = [f"{statement.module}.{alias.name}" for alias in statement.names]
        else:
            continue
        for parts in (name.split(".") for name in names):
            if parts[0] == package.name:
                path = package.joinpath(*parts[1:])
                found = [path.with_suffix(".py"), path / "__init__.py", path.parent.with_suffix(".py")]
                found.append(path.parent / "__init__.py")
                yield next(one for one in found if one.is_file())


def cycle(edges: dict[Edge, list[str]]) -> list[str]:
    """The nodes that lie on a cycle or between two; none if there is no cycle."""
    left = set(edges)
    while True:
        pruned = {(a, b) for a, b in left if any(b == c for c, _ in left) and any(a == d for _, d in left)}
        if pruned == left:
            return sorted({name for edge in left for name in edge})
        left = pruned


if __name__ == "__main__":
    found = graph(Path(sys.argv[1]).resolve())
    for (start, end), files in sorted(found.items()):
        print(f"{start} -> {end}  ({len(files)} files)")
    print(f"{len({name for edge in found for name in edge})} folders, {len(found)} edges")
    print("on a cycle: " + (", ".join(cycle(found)) or "none"))
