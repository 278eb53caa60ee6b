"""Every preset has the values of the file `test_presets.json`, until a change is meant.

What is published names a preset, and holds for its values only. `python -m tests.experiments.test_presets`
writes the file anew: its difference is what a change does.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from experiments import registry

FILE = Path(__file__).with_suffix(".json")


def flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Returns values by path, "model.features", as JSON has them."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        inner = isinstance(value, dict)
        found |= flat(value, f"{prefix}{name}.") if inner else {prefix + name: json.loads(json.dumps(value))}
    return found


def values_of(name: str) -> dict[str, dict[str, Any]]:
    """Returns all values of an experiment's first preset, and those of the others that differ from them."""
    presets: Any = registry.EXPERIMENTS[name].presets
    every = {preset: flat(dataclasses.asdict(presets(preset))) for preset in presets.names}
    first = every[presets.names[0]]
    return {
        preset: values
        if values is first
        else {k: v for k, v in values.items() if k not in first or v != first[k]}
        for preset, values in every.items()
    }


@pytest.mark.parametrize("name", registry.NAMES)
def test_presets_are_those_of_the_file(name):
    assert values_of(name) == json.loads(FILE.read_text(encoding="utf-8"))[name]


if __name__ == "__main__":
    everything = {name: values_of(name) for name in registry.NAMES}
    FILE.write_text(json.dumps(everything, indent=1) + "\n", encoding="utf-8")
