"""Measurements by chip: which kernel is the default there, and block sizes.

`kernels/tables/NAME.json` is one file per kind of chip:

    {"chip": "NVIDIA H200",                         # as JAX names the device's kind
     "fastest": [{"operation", "kind", "sizes", "backend", "record"}, ...],
     "blocks": [{"operation", "kind", "sizes", "backend", "direction", "blocks"}, ...]}

A line of `fastest` says that the backend's values and gradients were checked on that chip and that it was
faster there than the blockwise path; `record` is the file under `results/kernels/` that shows it. Both lists
are written by programs (`benchmarks.collect`, `benchmarks.tune_kernels`), never by hand.

A line applies to calls of the same kind (dtype, logit, masks, ...) whose sizes are all within a factor of two
of the measured ones. If several lines apply, the nearest is used.
"""

import functools
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from kernels.arrays import Size

Direction = Literal["forward", "backward"]
"""The passes of an operation, each a program with block sizes of its own."""

Sizes = Mapping[str, Size]
"""The sizes of a call by name."""

FOLDER = Path(__file__).parent / "tables"
FARTHEST = 2.0  # a measurement applies to sizes within this factor of its own


@functools.cache
def read() -> dict[str, dict[str, Any]]:
    """Returns the tables by chip.

    Raises:
        ValueError: a file is not such a table; the message names it.
    """
    tables = {}
    for path in sorted(FOLDER.glob("*.json")):
        try:
            table = json.loads(path.read_text(encoding="utf-8"))
            tables[table["chip"]] = {
                "fastest": [_checked(line, backend=str, record=str) for line in table["fastest"]],
                "blocks": [
                    _checked(line, backend=str, direction=str, blocks=dict) for line in table["blocks"]
                ],
            }
        except (ValueError, KeyError, TypeError) as error:  # ValueError covers JSON and its encoding
            raise ValueError(
                f"{path}: got {error!r}, expected a table of measured kernels (chip, fastest, blocks)"
            ) from error
    return tables


def _checked(line: Any, **kinds: type) -> dict[str, Any]:
    """Returns a line of a table if it has the entries of its section.

    Raises:
        KeyError: an entry is missing.
        TypeError: an entry has another type.
    """
    for name, kind in {"operation": str, "kind": dict, "sizes": dict, **kinds}.items():
        if not isinstance(line[name], kind):
            raise TypeError(f"{name}: got {line[name]!r:.60}, expected {kind.__name__}")
    numbers = [*line["sizes"].values(), *line.get("blocks", {}).values()]
    if not all(isinstance(number, int) for number in numbers):
        raise TypeError(f"sizes, blocks: got {numbers!r:.60}, expected integers")
    return line


def fastest_anywhere(operation: str) -> bool:
    """Returns whether the table of any chip has a hand-written kernel for the operation."""
    return any(line["operation"] == operation for table in read().values() for line in table["fastest"])


def fastest(chip: str | None, operation: str, kind: Mapping[str, Any], sizes: Sizes) -> str | None:
    """Returns the backend that is the fastest for such a call on the chip, None if the table has none."""
    line = _nearest(chip, "fastest", {"operation": operation}, kind, sizes)
    return line and line["backend"]


def blocks(
    chip: str | None,
    operation: str,
    backend: str,
    direction: Direction,
    kind: Mapping[str, Any],
    sizes: Sizes,
) -> dict[str, int] | None:
    """Returns the block sizes tuned for such a call on the chip, None for the backend's default."""
    line = _nearest(
        chip, "blocks", {"operation": operation, "backend": backend, "direction": direction}, kind, sizes
    )
    return line and dict(line["blocks"])


def distance(one: Sizes, other: Sizes) -> float:
    """Returns the largest ratio between two sizes of the same name.

    It is infinite if the names differ or a size is a symbol.
    """
    sizes = (*one.values(), *other.values())
    if one.keys() != other.keys() or not all(isinstance(size, int) for size in sizes):
        return math.inf
    ratios = (max(one[name], other[name]) / max(1, min(one[name], other[name])) for name in one)
    return max(ratios, default=1.0)


def _nearest(chip, section, equal, kind, sizes):
    lines = read().get(chip, {}).get(section, ()) if chip is not None else ()
    near = [
        (far, index)
        for index, line in enumerate(lines)
        if all(line[key] == value for key, value in equal.items())
        and line["kind"] == dict(kind)
        and (far := distance(line["sizes"], sizes)) <= FARTHEST
    ]
    return lines[min(near)[1]] if near else None
