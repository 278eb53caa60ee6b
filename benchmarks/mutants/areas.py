"""Chooses the tests of a file: first those of its own, then the rest of its area.

The area of `folnet/...` is `tests/folnet`; that of `experiments/ROOM/...` is `tests/experiments/ROOM` with
the tests that stand directly in `tests/experiments`. A test file that stands directly in `tests` belongs to
the areas of the modules that it imports. A file's own tests are those named after it or after its folder
(`tests/kernels/trans/test_gpu.py` for `kernels/trans/gpu_forward.py`) and those that import it.
"""

import ast
import functools
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath


def area_of(path: str) -> str:
    """Returns the area of a file: its package, and in `experiments` its room."""
    parts = PurePosixPath(path).parts
    return "/".join(parts[:2]) if parts[0] == "experiments" and len(parts) > 2 else parts[0]


def tests_of(path: str, texts: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Returns the tests of a file in the order in which they run: its own, and the others of its area.

    Args:
        path: the file.
        texts: the texts of all files of tests, by path.
    """
    area, module = area_of(path), path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    own, others = [], []
    for test, text in sorted(texts.items()):
        if not PurePosixPath(test).name.startswith("test_"):
            continue
        folder = PurePosixPath(test).parent.as_posix()
        imported = _imported(text)
        inside = f"{folder}/".startswith(f"tests/{area}/") or (
            area.startswith("experiments") and folder == "tests/experiments"
        )
        if not inside and not (folder == "tests" and module in imported):
            continue
        (own if _is_of(test, path) or module in imported else others).append(test)
    near = PurePosixPath("tests", path).parent.as_posix()
    own.sort(key=lambda test: (not _is_of(test, path), test))
    others.sort(key=lambda test: (not test.startswith(f"{near}/"), test))
    return own, others


def _is_of(test: str, path: str) -> bool:
    """Whether a file of tests has the name of a file or of its folder."""
    folder, stem = PurePosixPath(test).parent, PurePosixPath(test).stem.removeprefix("test_")
    module = PurePosixPath("tests", path)
    if folder == module.parent:
        return f"{module.stem}_".startswith(f"{stem}_")
    return folder == module.parent.parent and stem == module.parent.name


@functools.cache
def _imported(text: str) -> frozenset[str]:
    """Returns the modules that a file imports; `from a import b` may import `a.b`."""
    names = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(names)


def tests_of_area(area: str, texts: Mapping[str, str], paths: Iterable[str]) -> list[str]:
    """Returns the tests of the files of an area, sorted."""
    found = [tests_of(path, texts) for path in paths if area_of(path) == area]
    return sorted({test for own, others in found for test in (*own, *others)})


def helpers_of(area: str, texts: Mapping[str, str]) -> list[str]:
    """Returns the files next to the tests of an area, and above them, that have no tests, sorted."""
    folder = PurePosixPath("tests", area)
    parents = {folder.as_posix(), *(parent.as_posix() for parent in folder.parents)}
    found = [
        test
        for test in texts
        if test.startswith(f"{folder}/") or PurePosixPath(test).parent.as_posix() in parents
    ]
    return sorted(test for test in found if not PurePosixPath(test).name.startswith("test_"))
