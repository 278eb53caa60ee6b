"""Chooses the tests of a file: first those of its own, then the rest of its area.

The area of `folnet/...` is `tests/folnet`; that of `experiments/ROOM/...` is `tests/experiments/ROOM` with
the tests that stand directly in `tests/experiments`, which are also the area of what stands directly in
`experiments`. Above that and in other rooms, only tests count that import the file. A file's own tests are
those named after it or its folder (`tests/kernels/trans/test_gpu.py` for `kernels/trans/gpu_forward.py`) and
those that import it.
"""

import ast
import functools
from collections.abc import Mapping
from pathlib import PurePosixPath


def group_of(path: str) -> str:
    """Returns the group of a file or test: a package, in `experiments` a room, or "" outside of packages."""
    parts = PurePosixPath(path.removeprefix("tests/")).parts
    return "/".join(parts[: min(2 if parts[0] == "experiments" else 1, len(parts) - 1)])


def is_test(path: str) -> bool:
    """Whether a file is one of tests, not of their helpers."""
    return path.startswith("tests/") and PurePosixPath(path).name.startswith("test_")


def tests_of(path: str, texts: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Returns the tests of a file in the order in which they run: its own, and the others of its area.

    Args:
        path: the file.
        texts: the texts of all files below `tests`, by path.
    """
    group, module = group_of(path), path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    above = {group.rpartition("/")[0], ""}
    own, others = [], []
    for test in sorted(filter(is_test, texts)):
        other = group_of(test)
        near_enough = other == group or other in above
        of_package = other.partition("/")[0] in (group.partition("/")[0], "")
        if (of_package and module in imported(texts[test])) or (near_enough and _is_of(test, path)):
            own.append(test)
        elif near_enough and other:
            others.append(test)
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
def imported(text: str) -> frozenset[str]:
    """Returns the modules that a file imports; `from a import b` may import `a.b`."""
    names = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(names)


def files_of_group(group: str, texts: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Returns the tests of a group, and the other files next to them and above, both sorted."""
    tests = [name for name in texts if is_test(name) and group_of(name) == group]
    above = {group, group.rpartition("/")[0], ""}
    helpers = [name for name in texts if not is_test(name) and group_of(name) in above]
    return sorted(tests), sorted(helpers)
