"""Values that are recorded in a file beside the tests that make them, until a change is meant.

What is published holds for them. `RECORD=write python -m pytest -n 0 FILE` writes the record of a file of
tests anew: its difference is what a change does.
"""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

ABSENT = "(absent)"


def check(test: str | Path, name: str, value: Any, tolerance: float = 0.0) -> None:
    """Compares a value with the record, or writes it.

    Args:
        test: the file of tests, FILE.py; its record is FILE.json.
        name: the value's in the record.
        value: of JSON's types.
        tolerance: numbers may differ by this, and by this share.
    """
    file = Path(test).with_suffix(".json")
    record = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    got = json.loads(json.dumps(value))
    if os.environ.get("RECORD") == "write":
        record[name] = json.loads(json.dumps(got), parse_float=_rounded) if tolerance else got
        file.write_text(_text(dict(sorted(record.items()))), encoding="utf-8")
    else:
        found = _differences(got, record.get(name), name, tolerance)
        assert not found, "\n".join((*found[:20], f"{len(found)} differences from {file}"))


def _rounded(number: str) -> float:
    return float(f"{float(number):.5g}")


def _text(value: dict[str, Any]) -> str:
    """Writes each value's parts on lines of their own, so that a difference shows which one changed."""
    parts = []
    for name, of in value.items():
        if isinstance(of, dict):
            lines, (start, end) = [f"{json.dumps(k)}: {json.dumps(v)}" for k, v in of.items()], "{}"
        else:
            lines, (start, end) = list(map(json.dumps, of)), "[]"
        parts.append(f"{json.dumps(name)}: {start}\n" + ",\n".join(lines) + f"\n{end}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _differences(got: Any, wanted: Any, where: str, tolerance: float) -> list[str]:
    pairs: list[tuple[str, Any, Any]] | None = None
    if isinstance(got, dict) and isinstance(wanted, dict):
        pairs = [
            (f"{where}.{key}", got.get(key, ABSENT), wanted.get(key, ABSENT)) for key in {**wanted, **got}
        ]
    elif isinstance(got, list) and isinstance(wanted, list) and len(got) == len(wanted):
        pairs = [(f"{where}[{i}]", *both) for i, both in enumerate(zip(got, wanted, strict=True))]
    if pairs is not None:
        return [line for place, a, b in pairs for line in _differences(a, b, place, tolerance)]
    numbers = isinstance(got, int | float) and isinstance(wanted, int | float)
    if tolerance and numbers:
        same = np.isclose(got, wanted, rtol=tolerance, atol=tolerance, equal_nan=True)
    else:
        same = got == wanted and type(got) is type(wanted)
    return [] if same else [f"{where}: got {got!r}, expected {wanted!r}"]
